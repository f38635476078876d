"""Which groups a registration is split into, and on which grids: a guess at the cheapest split that is sharp enough.

Soundness depends on nothing here: every split is bounded by Theorem C. What is known about the price of a split is
measured (docs/setwise.md): a further group of ranges, the largest of them ε, adds about GROUP ε² to the variance of the
loss whatever its size, and a step from above with N grid steps to ε adds about CELL ε²/N² (``guesses``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dptopk.accounting.setwise import guesses
from dptopk.accounting.setwise.steps import rounding_noise

__all__ = ["Group", "partition"]

Ranges = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Group:
    """Ranges (ε, count) that share one recursion.

    A single range is cut into ``copies`` parts of nearly equal size; ``steps`` is the grid steps to the largest ε.
    """

    ranges: Ranges
    copies: int = 1
    steps: int = guesses.FEWEST_STEPS

    @property
    def largest(self) -> float:
        """The largest ε."""
        return max(epsilon for epsilon, _ in self.ranges)

    @property
    def single(self) -> bool:
        """Whether there is one ε only."""
        return len(self.ranges) == 1

    @cached_property
    def spread(self) -> float:
        """Σ n ε²."""
        return math.fsum(count * epsilon**2 for epsilon, count in self.ranges)

    @property
    def states(self) -> int:
        """How many layers the recursion has."""
        if self.single:
            return math.ceil(self.ranges[0][1] / self.copies)
        return math.prod(count + 1 for _, count in self.ranges)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The parts of a single range: (count, how many such parts)."""
        small, larger = divmod(self.ranges[0][1], self.copies)
        return [(n, times) for n, times in ((small, self.copies - larger), (small + 1, larger)) if times]

    @property
    def seconds(self) -> float:
        """About how long the recursion takes."""
        nodes = guesses.NODES * math.sqrt(self.spread / self.copies) / 2 / (self.largest / self.steps) + 2 * self.steps
        work = guesses.PER_STEP + guesses.PER_NODE * nodes * (1 + self.steps / 60)
        return self.states * len(self.ranges) * work

    def noise(self) -> float:
        """About what grid steps add to the variance of the loss."""
        epsilons = tuple(epsilon for epsilon, _ in self.ranges)
        counts = tuple(count for _, count in self.ranges)
        return rounding_noise(epsilons, counts, self.steps, guesses.CELL)


def partition(ranges: Mapping[float, int], variance: float, tolerance: float, seconds: float) -> list[Group]:
    """Groups for which the upper bound on ε should be within about ``tolerance``, relative, of the optimum.

    Args:
        ranges: the distinct ε's with counts.
        variance: about the variance of the whole loss.
        tolerance: relative; a wish, given up where it would take too long.
        seconds: about how long all recursions may take.
    """
    allowed = tolerance / guesses.SENSITIVITY * variance
    groups = _large_enough(ranges, guesses.GROUP_SHARE * allowed)
    groups = _joined(groups, guesses.GROUP_SHARE * allowed, seconds / 2)
    return _fine_enough(groups, guesses.GRID_SHARE * allowed)


def _excess(groups: list[Group]) -> float:
    squares = [group.largest**2 for group in groups]
    total = math.fsum(group.copies * square for group, square in zip(groups, squares, strict=True))
    return guesses.GROUP * (total - max(squares))


def _large_enough(ranges: Mapping[float, int], allowed: float) -> list[Group]:
    """A group for each range, the larger ones cut into equal parts of at most the smallest size that will do."""
    size, groups = guesses.SMALLEST_GROUP, []
    while size <= guesses.LARGEST_GROUP:
        groups = [Group(((epsilon, n),), math.ceil(n / size)) for epsilon, n in sorted(ranges.items())]
        if _excess(groups) <= allowed:
            break
        size = math.ceil(size * guesses.LARGER)
    return groups


def _joined(groups: list[Group], allowed: float, seconds: float) -> list[Group]:
    """Neighbouring ranges joined, as many as need be, or as there is time for.

    Ranges are packed into groups from the largest down, each with at most so many multisets; the limit rises until the
    groups are few enough or take too long.
    """
    best, most = groups, guesses.FEWEST_STATES
    while _excess(best) > allowed and most <= guesses.MOST_STATES:
        packed = _packed(groups, most)
        if sum(group.seconds for group in packed if not group.single) > seconds:
            break
        if _excess(packed) < _excess(best):
            best = packed
        most *= guesses.MORE_STATES
    return best


def _packed(groups: list[Group], most: float) -> list[Group]:
    """Single ranges, in falling order, joined while a group has at most so many multisets."""
    found: list[Group] = []
    for group in sorted(groups, key=lambda one: -one.largest):
        if found and found[-1].copies == group.copies == 1:
            joined = Group(group.ranges + found[-1].ranges, steps=16)
            if joined.states <= most:
                found[-1] = joined
                continue
        found.append(group)
    return found[::-1]


def _fine_enough(groups: list[Group], allowed: float) -> list[Group]:
    """Grid steps for each group: Σ noise is small enough, at about the least cost."""
    wishes = [(group.spread / group.states**1.5) ** (1 / 3) for group in groups]
    total = math.fsum(guesses.CELL * group.spread / wish**2 for group, wish in zip(groups, wishes, strict=True))
    scale = math.sqrt(total / allowed)
    found = []
    for group, wish in zip(groups, wishes, strict=True):
        steps = min(
            max(2 * math.ceil(scale * wish / 2), guesses.FEWEST_STEPS, math.ceil(2 * group.largest)), guesses.MOST_STEPS
        )
        share = guesses.CELL * group.spread / (scale * wish) ** 2
        while (
            not group.single
            and steps < guesses.MOST_STEPS / 2
            and replace(group, steps=steps).noise() > guesses.NOISY * share
        ):
            steps = math.ceil(steps * guesses.FINER_STEPS)
        found.append(replace(group, steps=steps))
    return found
