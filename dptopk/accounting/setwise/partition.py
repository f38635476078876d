"""Choice of groups and grids for a registration: a heuristic for the cheapest split that is sharp
enough.

The bounded ranges of a charge are split into groups. Each group is bounded by a recursion over the
multisets of its costs that may be left (its *states*), on a grid of its own; a group of very many
equal costs is cut into copies, of which one recursion serves all. Where there are too many states,
coins round the ranges to a few levels with integer *prices*, and the sum of prices that is left is
the state (``price_rounding``).

Soundness depends on nothing here: every split is bounded by Theorem C. A split makes the variance
of the loss, as it is bounded, larger than it is. By how much is measured (docs/notes/setwise.md): a
further group of ranges, the largest of them ε, adds about GROUP ε² whatever its size, and a step
from above with N grid steps to ε adds about CELL ε²/N² (``tuning``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise

from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.price_rounding import RoundingLevels, tuned_levels
from dptopk.accounting.setwise.recursion import rounding_noise

Ranges = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class CostGroup:
    """Ranges that share one recursion.

    Attributes:
        ranges: (ε, count) of each range.
        copies: the costs of a single range are cut into this many parts of nearly equal size, each
            of which is a group; 1 for several ranges.
        steps: the number of grid steps to the largest ε.
        levels: where given, coins round the ranges to these levels, which are played for prices.
    """

    ranges: Ranges
    copies: int = 1
    steps: int = tuning.FEWEST_STEPS
    levels: RoundingLevels | None = None

    @cached_property
    def largest(self) -> float:
        """Return the largest ε of the group."""
        return max(epsilon for epsilon, _ in self.ranges)

    @property
    def grid_step(self) -> float:
        """Return the length of a step of the group's grid, up to rounding."""
        return self.largest / self.steps

    @cached_property
    def gain_by_choice(self) -> float:
        """Return about how much there is to gain by choosing among the ranges, between 0 (all
        alike) and 1: in units of what a game for prices adds to the variance if the smallest range
        is far below the largest, and there are many costs of each.
        """
        smallest = min(epsilon for epsilon, _ in self.ranges)
        squared_ratio = (smallest / self.largest) ** 2
        less_for_few_costs = 1 + tuning.FREE_HALF_COUNT / self.costs_per_range
        return (1 - squared_ratio) ** 2 / less_for_few_costs

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Return the number of costs of each range."""
        return tuple(count for _, count in self.ranges)

    @property
    def single(self) -> bool:
        """Return whether the group has only one ε, used without rounding."""
        return len(self.ranges) == 1 and self.levels is None

    @cached_property
    def costs_per_range(self) -> float:
        """Return the average number of costs of each range in one part."""
        return sum(self.counts) / len(self.ranges) / self.copies

    @cached_property
    def spread(self) -> float:
        """Return Σ n ε² over the ranges, four times a bound on the variance of the loss."""
        return math.fsum(count * epsilon**2 for epsilon, count in self.ranges)

    @cached_property
    def states(self) -> int:
        """Return the number of states that the recursion goes through: multisets that may be left,
        or sums of prices (then an estimate).
        """
        if self.levels:
            # A layer for each unit of money: about the sum of the prices, which are about
            # proportional to ε².
            least_price = self.levels.prices[0]
            per_square = self.levels.prices[-1] / self.largest**2
            prices = [
                (max(per_square * epsilon * epsilon, least_price), n) for epsilon, n in self.ranges
            ]
            return math.ceil(math.fsum(n * price for price, n in prices))
        if self.single:
            return math.ceil(self.ranges[0][1] / self.copies)
        return math.prod(count + 1 for count in self.counts)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """Return the parts of a group with a single range, as (number of costs, number of such
        parts).
        """
        count = self.ranges[0][1]
        small, larger = divmod(count, self.copies)
        sizes = [(small, self.copies - larger), (small + 1, larger)]
        return [(n, times) for n, times in sizes if times]

    @cached_property
    def work(self) -> float:
        """Return an estimate of the work of the recursion, in seconds: its node values,
        weighted.
        """
        # A grid of different ε's has up to twice the steps that are asked for (``common_grid``).
        has_exact_grid = self.single or self.levels
        steps = self.steps * (1.0 if has_exact_grid else tuning.WIDER)
        # Of a part's loss, at most: its variance is at most a quarter of its spread.
        deviation = math.sqrt(self.spread / self.copies) / 2
        nodes = tuning.LAYER_NODES * deviation / (self.largest / steps) + 2 * steps
        work_of_step = tuning.PER_STEP + tuning.PER_NODE * nodes
        if self.levels:
            return self.states * len(self.levels.steps) * work_of_step * tuning.FOR_WEIGHTS
        if self.single:
            return self.states * work_of_step
        work_together = tuning.PER_STEP_TOGETHER + tuning.PER_NODE_TOGETHER * nodes
        # A range is left in count/(count + 1) of the multisets: each has so many steps on average.
        steps_per_state = math.fsum(count / (count + 1) for count in self.counts)
        return self.states * steps_per_state * work_together

    def noise(self) -> float:
        """Return an estimate of the variance that grid steps, or coins and prices, add to one
        part's loss.
        """
        if self.levels:
            return self.levels.noise * self.spread / 4
        epsilons = tuple(epsilon for epsilon, _ in self.ranges)
        return rounding_noise(epsilons, self.counts, self.steps, tuning.CELL)


def partition(
    ranges: Mapping[float, int], variance: float, tolerance: float, work: float, order: float = 1.0
) -> list[CostGroup]:
    """Return groups with which the upper bound on ε should be within about ``tolerance`` of the
    optimum.

    Args:
        ranges: the distinct ε's with counts.
        variance: an estimate of the variance of the whole loss.
        tolerance: relative, of ε; a wish, given up where it would take too long.
        work: what all recursions together may take, in seconds.
        order: λ, at which log-MGFs say what ranges are worth; a guess.
    """
    # What groups and grids may add to the variance for ε to stay within the tolerance.
    allowed = tolerance / tuning.SENSITIVITY * variance
    allowed_by_split = tuning.GROUP_SHARE * allowed
    allowed_by_grids = tuning.GRID_SHARE * allowed
    joined_work = tuning.JOINED_SHARE * work
    rounded_order = float(f"{order:.3g}")  # so that ``tuned_levels`` has it in its cache
    single_groups = _cut_ranges(ranges, allowed_by_split)
    few_ranges = len(ranges) <= tuning.MOST_TRIED  # of more, plans themselves take time
    grid_work = work if few_ranges else math.inf
    # Groups are joined only where their split adds more than it may.
    if _split_variance(single_groups) <= allowed_by_split:
        return _groups_with_fine_grids(single_groups, allowed_by_grids, grid_work)
    # How large joined groups can be depends on the grid steps that are assumed for them.
    tried_steps = tuning.STEPS_JOINED if few_ranges else tuning.STEPS_JOINED[-1:]
    candidates = []
    for steps in tried_steps:
        groups = _joined_groups(single_groups, allowed_by_split, joined_work, steps)
        groups = _groups_for_prices(groups, ranges, allowed_by_split, joined_work)
        groups = _groups_of_neighbours(groups, ranges, rounded_order, allowed_by_split, joined_work)
        candidates.append(_groups_with_fine_grids(groups, allowed_by_grids, grid_work))
    # What a split adds beyond its allowance counts, not how far it is below.
    return min(
        candidates,
        key=lambda groups: max(_split_variance(groups), allowed_by_split) + _grid_variance(groups),
    )


def _grid_variance(groups: list[CostGroup]) -> float:
    """Return an estimate of the variance that the grids of the groups without coins add to the
    loss.
    """
    return math.fsum(group.copies * group.noise() for group in groups if not group.levels)


def _split_variance(groups: list[CostGroup]) -> float:
    """Return an estimate of the variance that splitting into these groups adds to the loss, prices
    and coins included.
    """
    by_part = [_variance_of_part(group) for group in groups]
    parts = zip(groups, by_part, strict=True)
    total = math.fsum([group.copies * part for group, part in parts])
    priced = [group for group in groups if group.levels]
    by_choice = [tuning.FOR_FREE * group.gain_by_choice * group.largest**2 for group in priced]
    free_choice = math.fsum(by_choice)
    noise = math.fsum([group.noise() for group in priced])
    # A single part would be no split: all but one of the parts add to the variance.
    return total - max(by_part) + free_choice + noise


def _variance_of_part(group: CostGroup) -> float:
    """Return an estimate of the variance that one more part like those of this group adds to the
    loss.
    """
    less_for_few_costs = 1 + tuning.GROUP_HALF_COUNT / group.costs_per_range
    return tuning.GROUP * group.largest**2 / less_for_few_costs


def _groups_for_prices(
    groups: list[CostGroup], ranges: Mapping[float, int], allowed: float, work: float
) -> list[CostGroup]:
    """Return groups of rounded ranges that are played for prices, if they are better than
    ``groups``, else ``groups``.

    Each group is as wide as its rounding levels are, the group with the largest ranges first.

    Args:
        groups: the best groups so far.
        ranges: the distinct ε's with counts.
        allowed: what a split may add to the variance; nothing is tried where ``groups`` add less.
        work: what all recursions together may take, in seconds.
    """
    best = groups
    for steps, prices, noise in tuning.ROUNDING_LEVELS:
        if _split_variance(best) <= allowed:
            break
        levels = RoundingLevels(steps, prices, noise)
        bands = _bands_of_ratio(levels.ratio, ranges)
        banded = [CostGroup(band, steps=steps[-1], levels=levels) for band in bands]
        in_time = sum(group.work for group in banded) <= work
        if in_time and _split_variance(banded) < _split_variance(best):
            best = banded
    return best


def _bands_of_ratio(ratio: float, ranges: Mapping[float, int]) -> list[Ranges]:
    """Return the ranges in bands whose largest ε is at most ``ratio`` times their smallest, the
    band with the largest ranges first.
    """
    bands: list[dict[float, int]] = []
    largest = math.inf
    for epsilon, count in sorted(ranges.items(), reverse=True):
        # A ratio that is exceeded by rounding alone is none: the coins round ε's up by more.
        if epsilon * ratio < largest * (1 - 1e-9):
            bands.append({})
            largest = epsilon
        bands[-1][epsilon] = count
    return [tuple(sorted(band.items())) for band in bands]


def _groups_of_neighbours(
    groups: list[CostGroup], ranges: Mapping[float, int], order: float, allowed: float, work: float
) -> list[CostGroup]:
    """Return groups of a few neighbouring ranges (WIDEST_BAND), played for prices of their own, if
    they are better than ``groups``, else ``groups``.

    Args:
        groups: the best groups so far.
        ranges: the distinct ε's with counts.
        order: λ, at which log-MGFs say what ranges are worth.
        allowed: what a split may add to the variance; nothing is tried where ``groups`` add less.
        work: what all recursions together may take, in seconds.
    """
    if _split_variance(groups) <= allowed or work < tuning.LEAST_BANDED:
        return groups
    if not 1 < len(ranges) <= tuning.MOST_BANDED:
        return groups
    rising = tuple(sorted(ranges.items()))
    candidates = [groups]
    for bands in range(1, len(rising) // 2 + 1):
        for split in _cuts(len(rising), bands):
            parts = [rising[begin:end] for begin, end in pairwise(split)]
            in_bands = _groups_in_time(parts, order, work)
            if in_bands is not None:
                candidates.append(in_bands)
    return min(candidates, key=_split_variance)


def _groups_in_time(parts: list[Ranges], order: float, work: float) -> list[CostGroup] | None:
    """Return a group for each part, whose recursions take at most ``work`` together; None where a
    part has no prices that fit into its share.

    What the prices of a part add to the variance of the loss is about proportional to v/w, for work
    w and its own variance v. At a given Σ w_i the sum Σ v_i/w_i is least where w_i is proportional
    to sqrt(v_i).

    Args:
        parts: the ranges of each group, (ε, count); at least one part has several.
        order: λ, at which log-MGFs say what ranges are worth; a guess.
        work: what all recursions together may take, in seconds; an estimate.
    """
    roots = []
    for part in parts:
        # A single range has no prices, and takes no part of the work.
        root = math.sqrt(CostGroup(part).spread) if len(part) > 1 else 0.0
        roots.append(root)
    groups = []
    for part, root in zip(parts, roots, strict=True):
        group = _group_in_time(part, order, work * root / sum(roots))
        if group is None:
            return None
        groups.append(group)
    return groups


@lru_cache(maxsize=64)
def _cuts(length: int, bands: int) -> tuple[tuple[int, ...], ...]:
    """Return all ways to cut a row into consecutive parts of at most WIDEST_BAND places, of which a
    given number are bands: have more than one place.

    Each way is the tuple of its cuts, from 0 to ``length``: (0, 2, 3) are the places 0 and 1, then
    the place 2 alone.

    Args:
        length: the number of places of the row.
        bands: the number of bands.
    """
    if bands < 0 or (not length and bands):
        return ()
    if not length:
        return ((0,),)
    splits: list[tuple[int, ...]] = []
    for size_of_last in range(1, min(length, tuning.WIDEST_BAND) + 1):
        bands_before = bands - 1 if size_of_last > 1 else bands
        before = _cuts(length - size_of_last, bands_before)
        splits += [(*split, length) for split in before]
    return tuple(splits)


def _group_in_time(ranges: Ranges, order: float, most: float) -> CostGroup | None:
    """Return a group of one range, whatever work it takes, or of several that are played for
    prices, as precisely as the work allows; None where no prices fit.

    Args:
        ranges: (ε, count) of each.
        order: λ, at which log-MGFs say what ranges are worth; a guess.
        most: what the recursion of several ranges may take, in seconds; an estimate.
    """
    if len(ranges) == 1:
        return CostGroup(ranges)
    candidates = [
        CostGroup(ranges, steps=levels.steps[-1], levels=levels)
        for levels in tuned_levels(ranges, order)
    ]
    in_time = [group for group in candidates if group.work <= most]
    if in_time:
        return in_time[-1]  # ``tuned_levels`` lists them by rising work and falling noise
    return None


def _cut_ranges(ranges: Mapping[float, int], allowed: float) -> list[CostGroup]:
    """Return a group for each range, cut into nearly equal parts of at most some size, the smallest
    for which the split adds no more than ``allowed`` to the variance, or the largest that is tried:
    smaller parts take less work.
    """
    size = tuning.SMALLEST_GROUP
    groups = []
    while size <= tuning.LARGEST_GROUP:
        groups = [
            CostGroup(((epsilon, count),), math.ceil(count / size))
            for epsilon, count in sorted(ranges.items())
        ]
        if _split_variance(groups) <= allowed:
            break
        size = math.ceil(size * tuning.LARGER)
    return groups


def _joined_groups(
    groups: list[CostGroup], allowed: float, work: float, steps: int
) -> list[CostGroup]:
    """Return neighbouring ranges joined into groups that are solved exactly, with which the split
    adds at most ``allowed`` to the variance, or as little as was found.

    Args:
        groups: a group for each range.
        allowed: what a split may add to the variance of the loss; an estimate.
        work: what the recursions of joined groups together may take, in seconds; an estimate.
        steps: the number of grid steps to the largest ε of a joined group.
    """
    best = groups
    least = _split_variance(groups)
    most_states = tuning.FEWEST_STATES
    # Of very many ranges fewer plans are made, as plans take time too.
    if len(groups) <= tuning.MOST_TRIED:
        state_factor = tuning.MORE_STATES
    else:
        state_factor = tuning.MORE_STATES**3
    while least > allowed and most_states <= tuning.MOST_STATES:
        packed = _packed_groups(groups, most_states, work, steps)
        excess = _split_variance(packed)
        if excess < least:
            best = packed
            least = excess
        most_states *= state_factor
    return best


def _packed_groups(
    groups: list[CostGroup], most_states: float, work: float, steps: int
) -> list[CostGroup]:
    """Return groups in which single ranges are joined, from the largest down, while a group has at
    most ``most_states`` multisets and its work fits into ``work``.

    Args:
        groups: a group for each range.
        most_states: the largest number of multisets of a group.
        work: what the recursions of joined groups together may take, in seconds; an estimate.
        steps: the number of grid steps to the largest ε of a joined group.
    """
    packed: list[CostGroup] = []
    for group in sorted(groups, key=lambda group: -group.largest):
        if packed and packed[-1].copies == group.copies == 1:
            last = packed[-1]
            joined = _exact_group(group.ranges + last.ranges, steps)
            further = joined.work if last.single else joined.work - last.work
            if joined.states <= most_states and further <= work:
                work -= further
                packed[-1] = joined
                continue
        packed.append(group)
    return packed[::-1]


@lru_cache(maxsize=2**12)  # the same groups are looked at again and again
def _exact_group(ranges: Ranges, steps: int) -> CostGroup:
    """Return the group of these ranges that is solved on a grid without prices, which would be
    rounded.
    """
    return CostGroup(ranges, steps=steps)


def _groups_with_fine_grids(
    groups: list[CostGroup], allowed: float, work: float
) -> list[CostGroup]:
    """Return the groups with grid steps such that the grids add at most ``allowed`` to the
    variance, or as little as ``work`` permits where groups are joined.

    Args:
        groups: the groups.
        allowed: what the grids may add to the variance of the loss; an estimate.
        work: what all recursions together may take, in seconds.
    """
    finer = _groups_with_steps(groups, allowed)
    if all(group.single for group in groups):
        return finer
    most_allowed = tuning.COARSEST_GRIDS * sum(group.spread for group in groups)
    while sum(group.work for group in finer) > work:
        allowed *= tuning.LARGER
        if allowed > most_allowed:
            break
        finer = _groups_with_steps(groups, allowed)
    return finer


def _groups_with_steps(groups: list[CostGroup], allowed: float) -> list[CostGroup]:
    """Return the groups with grid steps for each, such that their noise is about ``allowed``, at
    about the least work.

    Args:
        groups: the groups.
        allowed: what the grids may add to the variance of the loss; an estimate.
    """
    # N_i steps in group i add CELL spread_i/N_i² and take work in proportion to states_i^1.5 N_i.
    # At a given sum of what they add, the work is least where the N_i have these proportions.
    proportions = [(group.spread / group.states**1.5) ** (1 / 3) for group in groups]
    noises = [
        tuning.CELL * group.spread / proportion**2
        for group, proportion in zip(groups, proportions, strict=True)
    ]
    scale = math.sqrt(math.fsum(noises) / allowed)
    return [
        _group_with_steps(group, scale * proportion)
        for group, proportion in zip(groups, proportions, strict=True)
    ]


def _group_with_steps(group: CostGroup, wish: float) -> CostGroup:
    """Return the group with about ``wish`` grid steps, or more where its ε's are far from whole
    numbers of steps; a group with levels keeps the steps of these.
    """
    if group.levels:
        return group
    # Even, so that fewer different ladders are computed; and no step is longer than 1/2.
    steps = max(2 * math.ceil(wish / 2), tuning.FEWEST_STEPS, math.ceil(2 * group.largest))
    group = replace(group, steps=min(steps, tuning.MOST_STEPS))
    if group.single:
        return group
    most_noise = tuning.NOISY * (tuning.CELL * group.spread / wish**2)
    while group.steps < tuning.MOST_STEPS / 2 and group.noise() > most_noise:
        group = replace(group, steps=math.ceil(group.steps * tuning.FINER_STEPS))
    return group
