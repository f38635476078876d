"""The game of a few concentrated costs (ZCDP and CDP), perhaps with bounded ranges beside them:
tables of upper and lower bounds on what every multiset of them is worth.

V(x) of a multiset is the largest δ at ε = x that an analyst can reach who plays its costs one by
one, each chosen after all earlier answers. It is computed from the smaller multisets: V of the
whole is the largest *step* over the cost that is played first, the value of playing that cost and
then what is left. A step of a concentrated cost is bounded

- from above by majorants of V of what is left (``majorants``), or by the Rényi conversion;
- from below by laws of the loss that are proven to belong to the cost's class (``playable_laws``).

Those of bounded ranges are in ``range_steps``. Proofs: docs/notes/setwise.md, "Few concentrated
costs".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import NamedTuple, Self

import numpy as np

from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.law_families import family_near, law_family
from dptopk.accounting.setwise.majorants import ROUNDING, Majorant, ValueTable
from dptopk.accounting.setwise.moment_program import (
    PRODUCT_ROUNDING,
    MomentClass,
    Nodes,
    ProgramSolution,
    moment_class,
)
from dptopk.accounting.setwise.playable_laws import PlayableFamily, playable_family
from dptopk.accounting.setwise.range_steps import (
    CHORD_ROUNDING,
    range_on_grid,
    range_step_above,
    range_step_below,
)
from dptopk.accounting.setwise.recursion import FLOOR, NEARLY_WHOLE, mean_loss
from dptopk.accounting.setwise.step_program import step_solutions
from dptopk.costs import BoundedRange, Charge, Cost

# The rounding errors of tables and moments stay small next to δ and to moments in these ranges. The
# smallest moment is the mean of the loss, which may be far below ρ.
SMALLEST_MEAN = 1e-7
LARGEST_RHO = 2.0
SMALLEST_DELTA = 1e-10
LARGEST_DEVIATION = 4.0  # of a cost's loss
# Limits on the work and the memory of a game.
MOST_COSTS = 20  # concentrated ones
MOST_STATES = 60  # multisets of concentrated costs that may be left
MOST_STATES_WITH_RANGES = 400  # of all costs; their tables are remembered while they are computed
MOST_NODES = 6000  # of a table
LARGEST_RATIO = 12.0  # of the deviations of two costs of a game, which share its nodes
CONVERTED_EVERY = 4  # nodes; that of ranges takes long, and decides only where no majorant does
NEAREST_PROGRAMS = 12  # whose majorants are tried at a time

# How many costs there are of each kind: of each class of a game, then of each of its ranges.
Multiset = tuple[int, ...]
NO_RANGES: Mapping[float, int] = {}


class ValueBounds(NamedTuple):
    """Upper and lower bounds on V of one multiset, at the same nodes."""

    upper: ValueTable
    lower: ValueTable


class _StepBounds(NamedTuple):
    """Upper and lower bounds on the step of one cost, at the nodes of a table."""

    above: Floats
    below: Floats


class _RangePlay(NamedTuple):
    """A bounded range that may be played first.

    Attributes:
        epsilon: its ε.
        costs_after: the multiset that is left after it.
    """

    epsilon: float
    costs_after: Multiset


@dataclass(frozen=True)
class ConcentratedGame:
    """A few costs of moment classes, perhaps together with a few bounded ranges.

    Tables of V have nodes at x = jh, j >= 0. In each step of a class, linear programs are solved
    for some of these x's, the *solved nodes*: their multipliers make majorants, which hold at every
    x.

    Attributes:
        classes: the distinct classes, by rising ρ.
        counts: the number of costs of each class, then of each range.
        h: the distance of two nodes.
        reach: the largest x of a table.
        sparsity: at least 1: how many times farther apart than usual the solved nodes of centred
            losses are, whose programs take long.
        ranges: the distinct ε's of bounded ranges, rising.
        most_solved: 0 where programs of centred losses are solved in every step. Otherwise the game
            is a sketch: they are solved only from multisets of a single kind with at most this many
            costs; in all other steps a larger class takes the place of theirs, in which only
            the largest mean counts (``bounding_class``).
    """

    classes: tuple[MomentClass, ...]
    counts: Multiset
    h: float
    reach: float
    sparsity: float = 1.0
    ranges: tuple[float, ...] = ()
    most_solved: int = 0

    @classmethod
    def of(
        cls,
        charge: Charge,
        reach: float,
        *,
        fineness: float = 1.0,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return the game of ZCDP and CDP costs and bounded ranges; None where they are too many,
        too different, too small or too large.

        Args:
            charge: the ZCDP and CDP costs; of other costs there is no game.
            reach: the largest x at which V is needed.
            fineness: how many times as many nodes it has as the coarsest grid, at least 1.
            ranges: the ε's of bounded ranges with counts.
        """
        ranges = dict(sorted(ranges.items()))
        if not 0 < charge.count <= MOST_COSTS or not math.isfinite(reach):
            return None
        count_of_class = _counts_of_classes(charge)
        if not count_of_class:
            return None
        classes = tuple(sorted(count_of_class, key=lambda moments: (moments.rho, moments.xi)))
        class_counts = tuple(count_of_class[moments] for moments in classes)
        counts = (*class_counts, *ranges.values())
        if _has_too_many_multisets(class_counts, counts):
            return None
        widest, narrowest = _widest_and_narrowest(classes, ranges)
        if widest > min(LARGEST_RATIO * narrowest, LARGEST_DEVIATION):
            return None
        coarsest = min(widest / tuning.GAME_NODES, narrowest / tuning.GAME_NODES_OF_SMALLEST)
        h = _grid_step_for_ranges(ranges, coarsest / fineness)
        # A reach in whole deviations, so that questions share their tables.
        reach = widest * math.ceil(reach / widest + tuning.GAME_BEYOND)
        if reach > MOST_NODES * h:
            return None
        return cls(classes, counts, h, reach, ranges=tuple(ranges))

    @classmethod
    def fitting(
        cls,
        charge: Charge,
        reach: float,
        most_work: float,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return the finest game of some costs that does not take too much work, with exact
        programs in every step; None where there is none.

        Args:
            charge: the costs; of other types than ZCDP and CDP there is no game.
            reach: the largest x at which V is needed.
            most_work: the work that it may take, in seconds; an estimate.
            ranges: the ε's of bounded ranges with counts.
        """
        for fineness, sparsity in tuning.GAME_FINENESS:
            game = cls.of(charge, reach, fineness=fineness, ranges=ranges)
            if game is None:
                continue
            game = replace(game, sparsity=sparsity)
            if game.work <= most_work:
                return game
        return None

    @classmethod
    def sketched(
        cls,
        charge: Charge,
        reach: float,
        most_work: float,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return a game that is a sketch (``most_solved``), with the most exact programs that do
        not take too much work; None where there is none.

        Args:
            charge: the costs; of other types than ZCDP and CDP there is no game.
            reach: the largest x at which V is needed.
            most_work: the work that it may take, in seconds; an estimate.
            ranges: the ε's of bounded ranges with counts.
        """
        for most_solved, fineness in product(tuning.MOST_SOLVED, tuning.SKETCHED_FINENESS):
            game = cls.of(charge, reach, fineness=fineness, ranges=ranges)
            if game is None:
                continue
            game = replace(game, most_solved=most_solved)
            if game.work <= most_work:
                return game
        return None

    @property
    def is_better_sketched(self) -> bool:
        """Return whether a sketch of the same costs (``sketched``) seems to give closer bounds: a
        guess.

        It does where the solved nodes lie farther apart than usual, unless the least mean loss is a
        middling share of ρ. Where all means are about ρ, which the moments imply, a sketch loses
        little; where one is far smaller, programs at few nodes say little.
        """
        least_mean = min(moments.mean / moments.rho for moments in self.classes)
        is_middling = tuning.SPARSE_MEANS[0] < least_mean < tuning.SPARSE_MEANS[1]
        return self.sparsity > 1 and not is_middling

    def has_exact_programs(self, costs_left: Multiset) -> bool:
        """Return whether programs of centred losses are solved for the steps from a multiset, as
        ``most_solved`` says.
        """
        if not self.most_solved:
            return True
        kinds = [count for count in costs_left if count]
        return len(kinds) == 1 and kinds[0] <= self.most_solved

    def pairs_of_parts(self) -> list[GroupPair]:
        """Return pairs whose product bounds V of all costs (Theorem C), for a sketch: the costs of
        each kind are split into nearly equal parts of at most ``most_solved``, and each part has a
        pair.
        """
        pairs = []
        for place, count in enumerate(self.counts):
            parts = math.ceil(count / self.most_solved)
            size, larger_parts = divmod(count, parts)
            smaller = self._pair_of(self.of_one_kind(place, size))
            pairs.append(replace(smaller, count=parts - larger_parts))
            if larger_parts:
                larger = self._pair_of(self.of_one_kind(place, size + 1))
                pairs.append(replace(larger, count=larger_parts))
        return pairs

    def counts_with_laws(self, most: int) -> list[int]:
        """Return the counts m up to ``most`` for which laws near the solutions of the programs of m
        equal centred costs are played.
        """
        return [count for count in tuning.COUNTS_OF_LAWS if count <= most]

    def of_one_kind(self, place: int, count: int) -> Multiset:
        """Return the multiset of ``count`` costs of one kind, the one at ``place`` of ``counts``,
        and none of any other.
        """
        after = len(self.counts) - place - 1
        return (*(0,) * place, count, *(0,) * after)

    def is_lower_bound_in(self, interaction: Interaction, *, alone: bool) -> bool:
        """Return whether an analyst can play the game's strategy in this interaction, so that its
        value is a lower bound.

        The strategy chooses each law by the answers before it, and which class comes next. In
        "batch" nothing may depend on answers: it can be played for one cost with no others beside
        it. In "ordered" the order is fixed: it can be played for one class. In "setwise" and
        "filter" it can always be played.

        Args:
            interaction: that of the question.
            alone: whether there are no costs but those of the game.
        """
        if interaction == "batch":
            return alone and sum(self.counts) == 1
        if interaction == "ordered":
            return len(self.counts) == 1
        return True

    @property
    def work(self) -> float:
        """Return an estimate of the work, in seconds, of the tables of all multisets."""
        work_on_table = tuning.WORK_PER_NODE * self.reach / self.h
        work = 0.0
        for costs_left in self.multisets:
            for moments in self.left_after_classes(costs_left):
                bounding = self.bounding_class(costs_left, moments)
                of_one_majorant = tuning.WORK_PER_MAJORANT + work_on_table
                if bounding.centred:
                    of_one_majorant += tuning.WORK_PER_CENTRED_MAJORANT
                elif moments.centred:
                    of_one_majorant += tuning.WORK_PER_UNCENTRED_MAJORANT
                    work += tuning.WORK_PER_UNSOLVED
                work += of_one_majorant * len(self.solved_nodes(costs_left, bounding))
            if self.ranges:
                work += tuning.WORK_PER_MIXED_STATE + work_on_table * len(self.ranges)
        return work + math.fsum(map(self._work_of_laws, range(len(self.classes))))

    def _work_of_laws(self, place: int) -> float:
        """Return an estimate of the work, in seconds, of finding the laws that costs of the class
        at a place of ``classes`` play.
        """
        moments = self.classes[place]
        if not moments.centred:
            return tuning.WORK_PER_FAMILY
        laws_near_solutions = 0
        for count in self.counts_with_laws(self.counts[place]):
            before_step = self.of_one_kind(place, count)
            laws_near_solutions += len(self.solved_nodes(before_step, moments))
        return tuning.WORK_PER_CENTRED_FAMILY + tuning.WORK_PER_LAW_NEAR * laws_near_solutions

    def solved_nodes(self, costs_left: Multiset, moments: MomentClass) -> Nodes:
        """Return the nodes at which the programs of a step of one class are solved: the smoother V
        is, the farther apart, and none where V is negligible. Any nodes are sound.

        Args:
            costs_left: the multiset before the step.
            moments: the class whose programs are solved.
        """
        # A multiset has the ranges after the classes.
        counts = list(zip(costs_left, self.classes, strict=False))
        mean = math.fsum(count * of_class.mean for count, of_class in counts)
        ranges = self.ranges_left(costs_left)
        mean += math.fsum(count * mean_loss(epsilon) for epsilon, count in ranges)
        deviation = math.sqrt(self.variance_of(costs_left))
        far = min(mean + tuning.SOLVED_REACH * deviation, self.reach)
        per_deviation: float = tuning.SOLVED_PER_DEVIATION
        if moments.centred:
            per_deviation = tuning.CENTRED_SOLVED_PER_DEVIATION / self.sparsity
        spacing = max(round(deviation / per_deviation / self.h), 1)
        return np.arange(0, math.ceil(far / self.h) + 1, spacing)

    def solutions_at(
        self, moments: MomentClass, value: ValueTable, nodes: Nodes
    ) -> list[ProgramSolution]:
        """Return the solutions of the linear programs of one class's step at some nodes.

        Args:
            moments: the class.
            value: upper bounds on V of what is left.
            nodes: x of each program, in multiples of h.
        """
        family = law_family(moments, self.h, self.largest_loss(moments))
        return step_solutions(moments, value, nodes, family)

    def with_uncentred_classes(self) -> ConcentratedGame:
        """Return the game with each class of centred losses replaced by the larger one in which
        only the largest mean counts; it is worth at least as much.
        """
        classes: list[MomentClass] = []
        for moments in self.classes:
            larger = replace(moments, centred=False)
            # The classes of a game are distinct: a ρ is raised where two would be the same.
            while larger in classes:
                larger = replace(larger, rho=math.nextafter(larger.rho, math.inf))
            classes.append(larger)
        return replace(self, classes=tuple(classes))

    def largest_loss(self, moments: MomentClass) -> float:
        """Return the largest loss of the laws of one class that are tried: a guess."""
        largest = self.reach + tuning.LOSSES_BEYOND * moments.deviation
        return min(largest, tuning.LARGEST_LOSS * moments.deviation)

    def tables(self, costs_left: Multiset) -> ValueBounds:
        """Return upper and lower bounds on V of a multiset of costs still to come, at the nodes up
        to the reach; they are computed once and remembered.
        """
        if not any(costs_left):
            return ValueBounds(
                ValueTable.of_nothing(self.h, upper=True),
                ValueTable.of_nothing(self.h, upper=False),
            )
        if costs_left == self.counts:
            # The smaller multisets first, so that no call is nested deeply.
            for smaller in self.multisets:
                _computed_tables(self, smaller)
        return _computed_tables(self, costs_left)

    @property
    def variance(self) -> float:
        """Return an estimate of the variance of the loss of all costs."""
        return self.variance_of(self.counts)

    def variance_of(self, costs_left: Multiset) -> float:
        """Return an estimate of the variance of the loss of some of the costs: a cost of a class
        adds about 2ρ, a range at most ε²/4.
        """
        counts = zip(costs_left, self.classes, strict=False)
        of_classes = math.fsum(count * 2 * moments.rho for count, moments in counts)
        ranges = self.ranges_left(costs_left)
        return of_classes + math.fsum(count * epsilon**2 / 4 for epsilon, count in ranges)

    @property
    def multisets(self) -> list[Multiset]:
        """Return the multisets that may be left, smaller ones first, without the empty one."""
        return sorted(product(*(range(count + 1) for count in self.counts)), key=sum)[1:]

    def left_after_classes(self, costs_left: Multiset) -> dict[MomentClass, Multiset]:
        """Return, for each class of which a cost may be played first, the multiset that is left
        after that cost.
        """
        left_after = {}
        for place, moments in enumerate(self.classes):
            if costs_left[place]:
                left_after[moments] = _without_one(costs_left, place)
        return left_after

    def plays_of_ranges(self, costs_left: Multiset) -> list[_RangePlay]:
        """Return each range that may be played first, with the multiset that is left after it."""
        plays = []
        for place, epsilon in enumerate(self.ranges, start=len(self.classes)):
            if costs_left[place]:
                plays.append(_RangePlay(epsilon, _without_one(costs_left, place)))
        return plays

    def ranges_left(self, costs_left: Multiset) -> list[tuple[float, int]]:
        """Return (ε, count) of each range in a multiset, counts of 0 included."""
        return list(zip(self.ranges, costs_left[len(self.classes) :], strict=True))

    def solutions_of_step(
        self, costs_left: Multiset, moments: MomentClass
    ) -> tuple[ProgramSolution, ...]:
        """Return the solutions of the linear programs of one class's step, at all its solved nodes;
        they are computed once and remembered.

        Args:
            costs_left: the multiset before the step, with at least one cost of the class.
            moments: the class of the cost that is played.
        """
        return _solutions(self, costs_left, moments)

    def bounding_class(self, costs_left: Multiset, moments: MomentClass) -> MomentClass:
        """Return the class whose programs bound the step of one class from above: the class itself,
        or, in the steps in which a sketch does not solve these, the larger class in which only the
        largest mean counts.

        Args:
            costs_left: the multiset before the step.
            moments: the class of the cost that is played.
        """
        if self.has_exact_programs(costs_left):
            return moments
        return replace(moments, centred=False)

    def conversion(self, costs_left: Multiset, x: Floats) -> Floats:
        """Return upper bounds on V of a multiset at each x >= 0 by the Rényi conversion (CKS20) of
        the summed limits on moments.
        """
        ranges: dict[Cost, int] = {
            BoundedRange(epsilon): count for epsilon, count in self.ranges_left(costs_left) if count
        }
        of_ranges = log_mgf(Charge(ranges))

        def of_all(orders: Floats) -> Floats:
            """Return an upper bound on the log-MGF of the loss of all costs."""
            parts = [
                count * moments.log_moment(orders)
                for moments, count in zip(self.classes, costs_left, strict=False)
            ]
            if ranges:
                parts.append(of_ranges(orders))
            # Some roundings of each part, and one for each sum.
            total: Floats = np.sum(parts, axis=0) * (1 + PRODUCT_ROUNDING * len(parts))
            return total

        return np.minimum(renyi_curve(of_all).delta(x), 1.0)

    def above(self, x: Floats) -> Floats:
        """Return upper bounds on V of all costs at any x >= 0, between nodes too: from the
        majorants themselves, which hold at every x, or with ranges from the chord between two
        nodes.

        V falls, so its bound at the node to the left bounds it as well.
        """
        table = self.tables(self.counts).upper
        left = np.floor(x / self.h * (1 - PRODUCT_ROUNDING)).astype(np.int64)
        at_left = table.at(left)
        if self.ranges:
            return _bounds_by_chord(table, left, x)
        converted = np.minimum(self.conversion(self.counts, x), at_left)
        above = np.zeros(len(x))
        for moments, after_first in self.left_after_classes(self.counts).items():
            value_after = self.tables(after_first).upper
            nearest = _nearest_solutions(self.solutions_of_step(self.counts, moments), x)
            bounding = self.bounding_class(self.counts, moments)
            bounds = _least_majorant_bounds(nearest, bounding, value_after, converted, x)
            above = np.maximum(above, bounds)
        return above

    def below(self, x: Floats) -> Floats:
        """Return lower bounds on V of all costs at any x.

        Between two nodes V, convex in u = e^x, is above a line continued to the left: the line
        through the lower bound at the node to the right and the upper bound at the one after it.
        """
        upper, lower = self.tables(self.counts)
        right = np.ceil(x / self.h).astype(np.int64)
        left_by = np.maximum(right * self.h - x, 0.0)
        values = lower.at(right)
        falls = np.maximum(values - upper.at(right + 1), 0.0)
        continued: Floats = values - falls * np.expm1(-left_by) / math.expm1(self.h)
        return continued * (1 - ROUNDING)

    def pair(self) -> GroupPair:
        """Return a pair whose profile is at least V of all costs (Theorem C)."""
        return self._pair_of(self.counts)

    def _pair_of(self, costs_left: Multiset) -> GroupPair:
        """Return a pair whose profile is at least V of some of the costs (Theorem C)."""
        above = self.tables(costs_left).upper
        last = len(above.values) - 1
        nodes = np.arange(-last, last + 1)
        values = np.maximum(above.at(nodes) * (1 + PRODUCT_ROUNDING), FLOOR)
        return pair_above(nodes, values, self.h)


@lru_cache(maxsize=2 * MOST_STATES_WITH_RANGES)
def _computed_tables(game: ConcentratedGame, costs_left: Multiset) -> ValueBounds:
    """Return upper and lower bounds on V of a multiset that is not empty: at each node the largest
    bound on the step of a cost that may be played first.

    They are cached here. A step calls ``game.tables`` of what is left after it, and so this
    function for a multiset that is smaller by one.
    """
    last = math.ceil(game.reach / game.h)
    above = np.zeros(last + 1)
    below = np.zeros(last + 1)
    for steps in (_steps_of_classes, _steps_of_ranges):
        for step in steps(game, costs_left, last):
            above = np.maximum(above, step.above)
            below = np.maximum(below, step.below)
    # V falls, but where programs know the wrong orders the bounds may rise.
    above = np.minimum.accumulate(above)
    return ValueBounds(
        ValueTable(game.h, above, upper=True), ValueTable(game.h, below, upper=False)
    )


def _steps_of_classes(
    game: ConcentratedGame, costs_left: Multiset, last: int
) -> Iterator[_StepBounds]:
    """Yield bounds on the step of each class of which a cost may be played first, at the nodes 0,
    ..., last.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        last: the last node.
    """
    x = np.arange(last + 1.0) * game.h
    if not game.left_after_classes(costs_left):
        return
    every = CONVERTED_EVERY if game.ranges else 1
    # V falls, so that what bounds it at a node does at those to the right.
    converted = np.repeat(game.conversion(costs_left, x[::every]), every)[: last + 1]
    for moments, after_first in game.left_after_classes(costs_left).items():
        value_after = game.tables(after_first)
        solutions = game.solutions_of_step(costs_left, moments)
        bounding = game.bounding_class(costs_left, moments)
        above = _least_majorant_bounds(solutions, bounding, value_after.upper, converted, x)
        below = np.zeros(last + 1)
        for laws in _laws_to_play(game, costs_left, moments):
            below = np.maximum(below, laws.step(value_after.lower, last))
        yield _StepBounds(above, below)


def _steps_of_ranges(
    game: ConcentratedGame, costs_left: Multiset, last: int
) -> Iterator[_StepBounds]:
    """Yield bounds on the step of each range that may be played first, at the nodes 0, ..., last.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        last: the last node.
    """
    for play in game.plays_of_ranges(costs_left):
        upper, lower = game.tables(play.costs_after)
        on_grid = range_on_grid(play.epsilon, game.h)
        above = range_step_above(on_grid, upper, last)
        below = range_step_below(on_grid, lower, upper, last)
        yield _StepBounds(above, below)


def _number_of_multisets(costs: Multiset) -> int:
    """Return the number of multisets that may be left of a multiset, itself and the empty one
    among them.
    """
    return math.prod(count + 1 for count in costs)


def _has_too_many_multisets(class_counts: Multiset, counts: Multiset) -> bool:
    """Return whether a game would take too much work or memory.

    Args:
        class_counts: the number of costs of each class.
        counts: the same, followed by that of each range.
    """
    if _number_of_multisets(class_counts) > MOST_STATES:
        return True
    return _number_of_multisets(counts) > MOST_STATES_WITH_RANGES


def _without_one(costs_left: Multiset, place: int) -> Multiset:
    """Return the multiset with one cost less of the kind at a place, of which it has one."""
    return (*costs_left[:place], costs_left[place] - 1, *costs_left[place + 1 :])


def _widest_and_narrowest(
    classes: Sequence[MomentClass], ranges: Mapping[float, int]
) -> tuple[float, float]:
    """Return estimates of the largest and of the smallest standard deviation of one cost's loss."""
    deviations = [moments.deviation for moments in classes]
    deviations += [epsilon / 2 for epsilon in ranges]
    return max(deviations), min(deviations)


def _grid_step_for_ranges(ranges: Mapping[float, int], longest: float) -> float:
    """Return a grid step that suits ranges, at most about ``longest``: a guess; without ranges that
    step itself.

    A range that is no multiple of the step is a coin between the two multiples next to it, a and b,
    which adds about (b - ε)(ε - a)/4 to the variance of the loss; so does the grid itself,
    GRID_CELL of a squared step for each cost. The steps tried are fractions of the largest range.

    Args:
        ranges: the ε's of bounded ranges with counts, ε rising.
        longest: the longest grid step.
    """
    if not ranges:
        return longest
    epsilons = np.array(list(ranges))
    counts = np.array(list(ranges.values()), dtype=float)
    fewest = math.ceil(epsilons[-1] / longest)
    steps_to_largest = np.arange(fewest, math.ceil(fewest * tuning.FINER_FOR_RANGES) + 1)
    steps = epsilons[-1] / steps_to_largest
    # How far each ε lies beyond the multiple before it, as a share of a step.
    misfits = np.mod(epsilons / steps[:, None] + NEARLY_WHOLE, 1.0)
    added_by_coins = steps**2 * ((1 - misfits) * misfits @ counts)
    added_by_grid = tuning.GRID_CELL * steps**2 * counts.sum()
    best = float(steps[np.argmin(added_by_coins + added_by_grid)])
    # The largest range is a multiple, if need be a little less than the grid has it.
    return best * (1 + 4 * ROUNDOFF)


def _bounds_by_chord(table: ValueTable, left: Nodes, x: Floats) -> Floats:
    """Return upper bounds on V at each x by the chord, in u = e^x, between the two nodes around it.

    Args:
        table: upper bounds at the nodes.
        left: the node to the left of each x.
        x: ε's >= 0.
    """
    at_left = table.at(left)
    at_right = table.at(left + 1)
    share = np.clip(np.expm1(x - left * table.h) / math.expm1(table.h), 0.0, 1.0)
    # By how much rounding may have moved x, as a share of a cell.
    moved = CHORD_ROUNDING * (1 + np.abs(x) / table.h)
    chord = at_left * (1 - share) + at_right * share + moved * np.maximum(at_left - at_right, 0.0)
    bounds: Floats = np.minimum(chord * (1 + CHORD_ROUNDING), 1.0)
    return bounds


def _laws_to_play(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> list[PlayableFamily]:
    """Return the laws that are tried for the first of some costs, in the class of which all of them
    are: those of its family, and for centred losses those near the solutions of programs, also of
    later steps.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        moments: the class of the first cost.
    """
    families = [playable_family(moments, game.h, game.largest_loss(moments))]
    if not moments.centred:
        return families
    place = game.classes.index(moments)
    most = costs_left[place]
    if game.most_solved:
        most = min(most, game.most_solved)
    for count in game.counts_with_laws(most):
        # Beside costs of other kinds the laws are nearly the same, and there are many multisets.
        before_step = game.of_one_kind(place, count)
        nearby = _laws_near_solutions(game, before_step, moments)
        if nearby is not None:
            families.append(nearby)
    return families


@lru_cache(maxsize=256)
def _laws_near_solutions(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> PlayableFamily | None:
    """Return laws of a class near the solutions of the programs of one step; None where there are
    none.

    Args:
        game: the game.
        costs_left: the multiset before the step.
        moments: the class of the cost that is played.
    """
    nearby = family_near(game.solutions_of_step(costs_left, moments), moments, game.h)
    if nearby is None:
        return None
    return PlayableFamily.of(nearby, moments, game.h)


def _least_majorant_bounds(
    solutions: Sequence[ProgramSolution],
    moments: MomentClass,
    value_after: ValueTable,
    converted: Floats,
    x: Floats,
) -> Floats:
    """Return at each x the least of the upper bounds on a step that majorants prove, and of one
    that is known already.

    Args:
        solutions: the solutions of programs, which make the majorants.
        moments: the class whose programs they solve.
        value_after: upper bounds on V of the costs left after the step.
        converted: upper bounds on V before the step, and so on the step, at each x.
        x: ε's.
    """
    least = converted
    for solution in solutions:
        least = np.minimum(least, _majorant_bounds(solution, moments, value_after, x))
    return least


def _majorant_bounds(
    solution: ProgramSolution, moments: MomentClass, value_after: ValueTable, x: Floats
) -> Floats:
    """Return the upper bounds on a step at each x that the multipliers of a program prove; 1 where
    they prove nothing.

    Args:
        solution: the solution of the program.
        moments: the class of the cost that is played.
        value_after: upper bounds on V of the costs left after it.
        x: ε's.
    """
    majorant = Majorant.of(solution, moments).lifted(value_after, solution.compared)
    if majorant is None:
        return np.ones(len(x))
    return majorant.step_bounds(x)


def _nearest_solutions(solutions: Sequence[ProgramSolution], x: Floats) -> list[ProgramSolution]:
    """Return the NEAREST_PROGRAMS solutions (all, if there are fewer) that lie nearest to any of
    the points ``x``. Each of them bounds the step from above at every x, so that leaving others out
    only makes the bound larger.
    """
    distances = [float(np.abs(x - solution.x).min()) for solution in solutions]
    order = np.argsort(distances)
    return [solutions[place] for place in order[:NEAREST_PROGRAMS].tolist()]


@lru_cache(maxsize=1024)
def _solutions(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> tuple[ProgramSolution, ...]:
    """Return the solutions of the linear programs whose multipliers bound the step of ``moments``
    from above, at all solved nodes of that step.

    They are cached here, because tables, bounds between nodes and laws all use them.

    Args:
        game: the game.
        costs_left: the multiset before the step.
        moments: the class of the cost that is played.
    """
    value_after = game.tables(game.left_after_classes(costs_left)[moments]).upper
    bounding = game.bounding_class(costs_left, moments)
    nodes = game.solved_nodes(costs_left, bounding)
    return tuple(game.solutions_at(bounding, value_after, nodes))


def _counts_of_classes(charge: Charge) -> dict[MomentClass, int] | None:
    """Return how many costs of a charge are in each moment class; None where a cost is in none, or
    in one with a mean loss below SMALLEST_MEAN or a ρ above LARGEST_RHO.
    """
    counts: dict[MomentClass, int] = {}
    for cost, times in charge:
        moments = moment_class(cost)
        if moments is None:
            return None
        is_in_range = moments.mean >= SMALLEST_MEAN and moments.rho <= LARGEST_RHO
        if not is_in_range:  # also where a parameter is not a number
            return None
        counts[moments] = counts.get(moments, 0) + times
    return counts
