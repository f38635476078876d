"""Choice of groups and grids for a registration: a heuristic for the cheapest split that is sharp
enough.

Soundness depends on nothing here: every split is bounded by Theorem C. What is known about the
price of a split is
measured (docs/notes/setwise.md): a further group of ranges, the largest of them ε, adds about GROUP
ε² to the variance of the loss whatever its size, and a step from above with N grid steps to ε adds
about CELL ε²/N² (``tuning``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.price_rounding import RoundingLevels, tuned
from dptopk.accounting.setwise.recursion import rounding_noise

Ranges = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class CostGroup:
    """Ranges (ε, count) that share one recursion.

    A single range is cut into ``copies`` parts of nearly equal size; ``steps`` is the grid steps to
    the largest ε. With ``levels`` they are rounded by coins and played for prices.
    """

    ranges: Ranges
    copies: int = 1
    steps: int = tuning.FEWEST_STEPS
    levels: RoundingLevels | None = None

    @property
    def largest(self) -> float:
        """The largest ε."""
        return max(epsilon for epsilon, _ in self.ranges)

    @property
    def grid_step(self) -> float:
        """About how long a step of its grid is."""
        return self.largest / self.steps

    @property
    def unlike(self) -> float:
        """About how much there is to gain by choosing among its ranges, between 0 and 1."""
        smallest = min(epsilon for epsilon, _ in self.ranges)
        alike = (smallest / self.largest) ** 2
        few = 1 + tuning.FREE_HALF_COUNT / self.each
        return (1 - alike) ** 2 / few

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of costs of each range."""
        return tuple(count for _, count in self.ranges)

    @property
    def single(self) -> bool:
        """Whether there is only one ε, used without rounding."""
        return len(self.ranges) == 1 and self.levels is None

    @property
    def each(self) -> float:
        """Average number of costs of each range in a part."""
        return sum(self.counts) / len(self.ranges) / self.copies

    @cached_property
    def spread(self) -> float:
        """Σ n ε²."""
        return math.fsum(count * epsilon**2 for epsilon, count in self.ranges)

    @property
    def states(self) -> int:
        """Number of layers of the recursion."""
        if self.levels:
            least = self.levels.weights[0]
            unit = self.levels.weights[-1] / self.largest**2
            prices = [(max(unit * epsilon * epsilon, least), n) for epsilon, n in self.ranges]
            return math.ceil(math.fsum(n * price for price, n in prices))
        if self.single:
            return math.ceil(self.ranges[0][1] / self.copies)
        return math.prod(count + 1 for count in self.counts)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The parts of a single range: (count, how many such parts)."""
        count = self.ranges[0][1]
        small, larger = divmod(count, self.copies)
        sizes = [(small, self.copies - larger), (small + 1, larger)]
        return [(n, times) for n, times in sizes if times]

    @property
    def work(self) -> float:
        """The work of the recursion: its node values, weighted."""
        wider = 1.0 if self.single or self.levels else tuning.WIDER
        steps = wider * self.steps
        wide = tuning.LAYER_NODES * math.sqrt(self.spread / self.copies) / 2
        nodes = wide / (self.largest / steps) + 2 * steps
        each = tuning.PER_STEP + tuning.PER_NODE * nodes
        if self.levels:
            return self.states * len(self.levels.steps) * each * tuning.FOR_WEIGHTS
        if self.single:
            return self.states * each
        each = tuning.PER_STEP_TOGETHER + tuning.PER_NODE_TOGETHER * nodes
        # The share of the multisets in which one of each range may still be played.
        plays = math.fsum(count / (count + 1) for count in self.counts)
        return self.states * plays * each

    def noise(self) -> float:
        """About what grid steps, and coins and prices, add to the variance of the loss."""
        if self.levels:
            return self.levels.noise * self.spread / 4
        epsilons = tuple(epsilon for epsilon, _ in self.ranges)
        return rounding_noise(epsilons, self.counts, self.steps, tuning.CELL)


def partition(
    ranges: Mapping[float, int], variance: float, tolerance: float, work: float, order: float = 1.0
) -> list[CostGroup]:
    """Groups for which the upper bound on ε should be within about ``tolerance``, relative, of the
    optimum.

    Args:
        ranges: the distinct ε's with counts.
        variance: about the variance of the whole loss.
        tolerance: relative; a wish, given up where it would take too long.
        work: what all recursions may take.
        order: λ, at which log-MGFs say what ranges are worth; a guess.
    """
    allowed = tolerance / tuning.SENSITIVITY * variance
    for_split = tuning.GROUP_SHARE * allowed
    for_grids = tuning.GRID_SHARE * allowed
    joined_work = tuning.JOINED_SHARE * work
    about_order = float(f"{order:.3g}")
    single = _large_enough(ranges, for_split)
    several = len(ranges) <= tuning.MOST_TRIED
    grid_work = work if several else math.inf
    found = []
    for steps in tuning.STEPS_JOINED if several else tuning.STEPS_JOINED[-1:]:
        groups = _joined(single, for_split, joined_work, steps)
        groups = _priced(groups, ranges, for_split, joined_work)
        groups = _banded(groups, ranges, about_order, for_split, joined_work)
        found.append(_fine_enough(groups, for_grids, grid_work))
    return min(found, key=lambda groups: max(_excess(groups), for_split) + _noise(groups))


def _noise(groups: list[CostGroup]) -> float:
    """About what the grids add to the variance of the loss."""
    return math.fsum(group.copies * group.noise() for group in groups if not group.levels)


def _excess(groups: list[CostGroup]) -> float:
    """About what the split adds to the variance of the loss."""
    one_part = [_excess_of_part(group) for group in groups]
    total = math.fsum(group.copies * part for group, part in zip(groups, one_part, strict=True))
    priced = [group for group in groups if group.levels]
    free = math.fsum(tuning.FOR_FREE * group.unlike * group.largest**2 for group in priced)
    noise = math.fsum(group.noise() for group in priced)
    # The first group is no split.
    return total - max(one_part) + free + noise


def _excess_of_part(group: CostGroup) -> float:
    """About what a further part like that of a group adds to the variance of the loss."""
    few = 1 + tuning.GROUP_HALF_COUNT / group.each
    return tuning.GROUP * group.largest**2 / few


def _priced(
    groups: list[CostGroup], ranges: Mapping[float, int], allowed: float, work: float
) -> list[CostGroup]:
    """All ranges played for prices, where that is better: each group as wide as its anchors, the
    largest first.
    """
    best = groups
    for steps, weights, noise in tuning.ROUNDING_LEVELS:
        if _excess(best) <= allowed:
            break
        levels = RoundingLevels(steps, weights, noise)
        bands = _as_wide_as(levels.ratio, ranges)
        found = [CostGroup(band, steps=steps[-1], levels=levels) for band in bands]
        in_time = sum(group.work for group in found) <= work
        if in_time and _excess(found) < _excess(best):
            best = found
    return best


def _as_wide_as(ratio: float, ranges: Mapping[float, int]) -> list[Ranges]:
    """The ranges in bands whose largest is at most ``ratio`` times their smallest, the largest band
    first.
    """
    bands: list[dict[float, int]] = []
    largest = math.inf
    for epsilon, count in sorted(ranges.items(), reverse=True):
        if epsilon * ratio < largest * (1 - 1e-9):
            bands.append({})
            largest = epsilon
        bands[-1][epsilon] = count
    return [tuple(sorted(band.items())) for band in bands]


def _banded(
    groups: list[CostGroup], ranges: Mapping[float, int], order: float, allowed: float, work: float
) -> list[CostGroup]:
    """Two or three neighbouring ranges at a time played for prices of their own, where that is
    better.
    """
    if _excess(groups) <= allowed or work < tuning.LEAST_BANDED:
        return groups
    if not 1 < len(ranges) <= tuning.MOST_BANDED:
        return groups
    rising = tuple(sorted(ranges.items()))
    found = [groups]
    for bands in range(1, len(rising) // 2 + 1):
        for split in _splits(len(rising), bands):
            parts = [rising[begin:end] for begin, end in pairwise(split)]
            in_bands = _bands(parts, order, work)
            if in_bands is not None:
                found.append(in_bands)
    return min(found, key=_excess)


def _bands(parts: list[Ranges], order: float, work: float) -> list[CostGroup] | None:
    """A group for each part, all of them in some work; None where a part takes more than its share.

    What a band adds falls about as its work grows: the least in all for work as the roots of the
    variances.
    """
    roots = [math.sqrt(CostGroup(part).spread) if len(part) > 1 else 0.0 for part in parts]
    groups = []
    for part, root in zip(parts, roots, strict=True):
        group = _band(part, order, work * root / sum(roots))
        if group is None:
            return None
        groups.append(group)
    return groups


@lru_cache(maxsize=64)
def _splits(length: int, bands: int) -> tuple[tuple[int, ...], ...]:
    """Ends of parts of one, two or three, of which ``bands`` have more than one."""
    if bands < 0 or not length:
        return ((0,),) if bands == length == 0 else ()
    found: list[tuple[int, ...]] = []
    for size in range(1, min(length, tuning.WIDEST_BAND) + 1):
        before = _splits(length - size, bands - (size > 1))
        found += [(*split, length) for split in before]
    return tuple(found)


def _band(ranges: Ranges, order: float, most: float) -> CostGroup | None:
    """One range, or several played for prices as precisely as time allows."""
    if len(ranges) == 1:
        return CostGroup(ranges)
    found = [CostGroup(ranges, steps=one.steps[-1], levels=one) for one in tuned(ranges, order)]
    in_time = [group for group in found if group.work <= most]
    if in_time:
        return in_time[-1]
    return None


def _large_enough(ranges: Mapping[float, int], allowed: float) -> list[CostGroup]:
    """A group for each range, the larger ones cut into equal parts of at most the smallest size
    that will do.
    """
    size = tuning.SMALLEST_GROUP
    groups = []
    while size <= tuning.LARGEST_GROUP:
        groups = [CostGroup((one,), math.ceil(one[1] / size)) for one in sorted(ranges.items())]
        if _excess(groups) <= allowed:
            break
        size = math.ceil(size * tuning.LARGER)
    return groups


def _joined(groups: list[CostGroup], allowed: float, work: float, steps: int) -> list[CostGroup]:
    """Neighbouring ranges joined, as many as need be, or as there is work for: of rising limits the
    best one.
    """
    best = groups
    least = _excess(groups)
    most = tuning.FEWEST_STATES
    if len(groups) <= tuning.MOST_TRIED:
        more = tuning.MORE_STATES
    else:
        more = tuning.MORE_STATES**3
    while least > allowed and most <= tuning.MOST_STATES:
        packed = _packed(groups, most, work, steps)
        excess = _excess(packed)
        if excess < least:
            best = packed
            least = excess
        most *= more
    return best


def _packed(groups: list[CostGroup], most: float, work: float, steps: int) -> list[CostGroup]:
    """Single ranges joined, from the largest down, while a group has at most ``most`` multisets and
    there is work.
    """
    found: list[CostGroup] = []
    for group in sorted(groups, key=lambda one: -one.largest):
        if found and found[-1].copies == group.copies == 1:
            last = found[-1]
            joined = CostGroup(group.ranges + last.ranges, steps=steps)
            further = joined.work if last.single else joined.work - last.work
            if joined.states <= most and further <= work:
                work -= further
                found[-1] = joined
                continue
        found.append(group)
    return found[::-1]


def _fine_enough(groups: list[CostGroup], allowed: float, work: float) -> list[CostGroup]:
    """Grid steps for each group: Σ noise is small enough, or as small as it can be in time where
    groups are joined.
    """
    found = _with_steps(groups, allowed)
    if all(group.single for group in groups):
        return found
    most_allowed = tuning.COARSEST_GRIDS * sum(group.spread for group in groups)
    while sum(group.work for group in found) > work:
        allowed *= tuning.LARGER
        if allowed > most_allowed:
            break
        found = _with_steps(groups, allowed)
    return found


def _with_steps(groups: list[CostGroup], allowed: float) -> list[CostGroup]:
    """Grid steps for each group: Σ noise is about what is allowed, at about the least cost."""
    # Steps N_i with Σ cell_i/N_i² as allowed cost least, Σ states_i^1.5 N_i, in these proportions.
    shares = [(group.spread / group.states**1.5) ** (1 / 3) for group in groups]
    noises = [
        tuning.CELL * group.spread / share**2 for group, share in zip(groups, shares, strict=True)
    ]
    scale = math.sqrt(math.fsum(noises) / allowed)
    return [
        _with_steps_near(group, scale * share) for group, share in zip(groups, shares, strict=True)
    ]


def _with_steps_near(group: CostGroup, wish: float) -> CostGroup:
    """The group with about so many grid steps, or more where its ε's are far from whole numbers of
    steps.
    """
    if group.levels:
        return group
    steps = max(2 * math.ceil(wish / 2), tuning.FEWEST_STEPS, math.ceil(2 * group.largest))
    group = replace(group, steps=min(steps, tuning.MOST_STEPS))
    if group.single:
        return group
    most_noise = tuning.NOISY * (tuning.CELL * group.spread / wish**2)
    while group.steps < tuning.MOST_STEPS / 2 and group.noise() > most_noise:
        group = replace(group, steps=math.ceil(group.steps * tuning.FINER_STEPS))
    return group
