"""The optimal bound for a registered set of costs, played in any order and adaptively: one product
of pairs.

A charge splits into D, its costs with a pair of laws that dominates in both directions, B, its
bounded ranges, and Z, its ZCDP and CDP costs (``game``). B is split into groups (``partition``);
each group, and Z, has a pair (``cost_groups``), and by Theorem C (docs/notes/setwise.md)

    δ_opt(x) <= δ of the product of all pairs at x,

computed on a lattice (``pld.lattice``), tilted to where the question is (``evaluation``). Real
strategies bound it from below (``lower_bounds``). Splits and grids are refined until the two agree
to the tolerance asked for, or the work is used up (``Refinement``); the answer is the upper one
either way, and never above the Rényi route nor above the Gaussian of Theorem H. Without B and Z it
is the product of the dominating pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dptopk.accounting.cost_models.dominating_pairs import (
    DOMINATED,
    BracketCurve,
    certified_bracket,
)
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.gaussian.gaussian_sum import gaussian
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import (
    SMALLEST_DELTA,
    ConcentratedGame,
    delta_at,
    epsilon_at,
)
from dptopk.accounting.setwise.cost_groups import GroupPair
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import SetwiseGame
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.zcdp_gaussian import with_gaussians
from dptopk.accounting.work import USED_UP, OutOfTime, Work
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import NotApplicable

AS_FINE_AS_IT_GETS = "the bracket cannot be made as narrow as asked"


class SetwiseCurve(SetwiseGame, Curve):
    """The optimum for bounded ranges, costs with dominating pairs, and concentrated costs; see the
    module docstring.
    """

    @classmethod
    def of(cls, charge: Charge) -> SetwiseCurve:
        """The curve of a charge without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        return cls(*cls._parts_of(charge))

    @classmethod
    def with_stand_in(cls, charge: Charge, stand_in: GaussianDP, small: Charge) -> SetwiseCurve:
        """The curve of a charge and of small costs, for which one Gaussian stands.

        Raises:
            NotApplicable: as ``of``; or where that Gaussian is a cost of the charge itself.
        """
        if stand_in in charge.costs:
            raise NotApplicable("the Gaussian that stands for small costs is a cost itself")
        parts = cls._parts_of(Charge({**charge.costs, stand_in: 1}))
        return cls(*parts, stand_in=stand_in, small=small)

    def answer(self, query: Query) -> Answer:
        """The answer, refined until the bracket is within ``query.rtol`` or the work is used up."""
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.top)
        if query.epsilon is not None and query.epsilon >= self.top:
            return Answer(0.0, 0.0)
        if len(self.ranges) > tuning.MOST_RANGES:
            return self._merged(query)
        search = Refinement(self, query)
        several = self.smoothed is not None and self.smoothed.together.costs
        if search.value <= FLOOR or not (self.ranges or self.rest.costs or several):
            return search.by_conversion()
        return search.run()

    def _merged(self, query: Query) -> Answer:
        """Very many different ranges, rounded up to fewer for an upper bound and down for a lower
        one.
        """
        rounded_up = SetwiseCurve(_rounded(self.ranges, upper=True), self.rest, self.concentrated)
        above = rounded_up.answer(replace(query, lower=False)).value
        value, order = self.chernoff(query)
        value = min(value, above, self.by_one_gaussian(query))
        tolerance = tuning.FIRST_SHARE * query.rtol
        for reduction in self.reductions:
            reduced = Evaluation(reduction.game, query, order, tolerance, 0.0, value)
            value = min(value, reduced.above())
        below = 0.0
        if query.lower and value > FLOOR:
            below = self._merged_below(query, order, value)
        note = "" if value - below <= query.rtol * value else AS_FINE_AS_IT_GETS
        return Answer(value, below if below > 0 else None, note)

    def _merged_below(self, query: Query, order: float, value: float) -> float:
        """The lower bound of very many different ranges; ``value`` is the upper one."""
        ranges = _rounded(self.ranges, upper=False)
        rounded_down = SetwiseCurve(ranges, self.rest, self.concentrated)
        played = Evaluation(rounded_down, query, order, tuning.LOOSEST, 0.0, value)
        below = max(played.below(value), self._by_responses(query))
        return min(below, value)

    def _by_responses(self, query: Query) -> float:
        """Return what is attained if each range plays randomised response of half its ε, and
        concentrated costs Gaussians.
        """
        halves: dict[Cost, int] = {PureDP(epsilon / 2): n for epsilon, n in self.ranges.items()}
        played = Charge.join(Charge(halves), self.rest, with_gaussians(self.concentrated))
        found = certified_bracket(played, replace(query, work=Work.of("quick"), rtol=1e-3))
        return found.lower

    def proof(self, query: Query) -> Evaluation:
        """The first evaluation of the refinement whose answer is about as good as the best one."""
        search = Refinement(self, query)
        if not self.ranges and not self.rest.costs:
            return search.planned(search.wanted, 1.0)
        search.run()
        if not search.done:
            return search.planned(tuning.LOOSEST, query.work.budget)
        least = min(value for value, _ in search.done)
        good_enough = least * (1 + tuning.AS_GOOD)
        return next(one for value, one in search.done if value <= good_enough)


class Refinement:
    """Refinement of one answer: finer and finer evaluations, each stage of the work with larger
    groups than the one before.
    """

    def __init__(self, game: SetwiseGame, query: Query) -> None:
        self.game = game
        self.query = query
        self.value, self.order = game.chernoff(query)
        by_one = game.by_one_gaussian(query)
        self.by_one_gaussian = by_one < self.value
        self.value = min(self.value, by_one)
        self.lower = 0.0
        self.bracketed = game.bracketed(query)
        # d ln δ for d ln ε
        if query.epsilon is not None:
            sharpness = max(1.0, self.order * query.epsilon)
        else:
            sharpness = 1.0
        self.wanted = max(min(query.rtol / sharpness, tuning.LOOSEST), tuning.FINEST)
        self.target = tuning.FIRST_SHARE * self.wanted
        self.last = math.inf
        self.groups: list[CostGroup] | None = None  # of the last evaluation
        self.done: list[tuple[float, Evaluation]] = []  # what each found
        self.played: ConcentratedGame | None = None  # of the concentrated costs, once it fits

    def run(self) -> Answer:
        """Refine stage by stage."""
        work = self.query.work
        note = USED_UP
        for room in work.rooms():
            self.last = math.inf  # larger groups may be better at the same tolerance
            left = room - self._reduce(room) - self._play(room)
            while (evaluation := self._fitting(left)) is not None:
                if not work.take(evaluation.work):
                    return self.answer(work.note)
                left -= evaluation.work
                before = self.gap
                try:
                    self._evaluate(evaluation)
                except OutOfTime:
                    return self.answer(work.note)
                if self.gap <= self.query.rtol:
                    return self.answer("")
                # Beside concentrated costs the width is not that of the grids, and only larger
                # groups may help.
                by_conversion = bool(self.game.concentrated.costs) and self.played is None
                if self.last <= self.wanted and (not self.bracketed or by_conversion):
                    if len(evaluation.groups) > 1 or by_conversion:
                        break
                    return self.answer(AS_FINE_AS_IT_GETS if self.bracketed else "")
                self._aim()
                if self.last <= self.wanted and self.gap > tuning.STUCK * before:
                    note = AS_FINE_AS_IT_GETS
                    break
        return self.answer(note)

    def _aim(self) -> None:
        """Set the tolerance of the next evaluation."""
        finer = self.wanted / self.last
        if self.bracketed:
            finer = min(finer, self.query.rtol / self.gap)
        leap = max(tuning.AIM * finer, tuning.LEAP)
        self.target = self.last * min(leap, 1 / tuning.FINER)

    def _evaluate(self, evaluation: Evaluation) -> None:
        """One evaluation, and what it tells about the order."""
        self.last = evaluation.tolerance
        self.groups = evaluation.groups
        if self.bracketed and self.by_one_gaussian:
            # The Gaussian of Theorem H may be close enough: then only the lower end is missing.
            self.lower = max(self.lower, min(evaluation.below(self.value), self.value))
            if self.gap <= self.query.rtol:
                return
        above = evaluation.above()
        self.done.append((above, evaluation))
        known = self.by_one_gaussian and self.lower > 0 and self.value <= above
        self.value = min(self.value, above)
        if self.bracketed and not known:
            self.lower = max(self.lower, min(evaluation.below(self.value), self.value))
        if self.query.epsilon is None and math.isfinite(self.value):
            self.order = self.game.chernoff(Query(epsilon=self.value))[1]

    def _reduce(self, room: float) -> float:
        """At the start of a stage, the small ranges as one Gaussian (Theorem H''), where that looks
        better than the groups of the stage; return the work it took.
        """
        if not self.game.reductions:
            return 0.0
        planned = self.planned(self.wanted, room)
        added_by_groups = math.fsum(
            tuning.GROUP * group.copies * group.largest**2 + group.noise()
            for group in planned.groups
        )
        most = tuning.REDUCED_SHARE * room
        total_work = 0.0
        for reduction in self.game.reductions:
            evaluation = Evaluation(
                reduction.game, self.query, self.order, self.wanted, most, self.value
            )
            better = reduction.added <= added_by_groups
            share = tuning.REDUCED_SHARE if better else tuning.CHEAP_SHARE
            if evaluation.work > share * room or not self.query.work.take(evaluation.work):
                continue
            total_work += evaluation.work
            try:
                above = evaluation.above()
            except OutOfTime:
                break
            self.done.append((above, evaluation))
            self.value = min(self.value, above)
        return total_work

    def _play(self, room: float) -> float:
        """At the start of a stage, the game of the concentrated costs, if it fits; return the work
        it took.
        """
        concentrated = self.game.concentrated
        if self.played is not None or not concentrated.costs:
            return 0.0
        negligible = tuning.GAME_NEGLIGIBLE
        if self.query.epsilon is None:
            negligible *= self.query.delta
            reach = self.value
        else:
            negligible *= self.value
            reach = self.query.epsilon
        if not negligible > SMALLEST_DELTA * tuning.GAME_NEGLIGIBLE:
            return 0.0
        alone = float(renyi_curve(log_mgf(concentrated)).epsilon(negligible))
        played = ConcentratedGame.fitting(
            concentrated, min(reach, alone), tuning.GAME_SHARE * room, whole=True
        )
        if played is None:
            return 0.0
        work = played.work(whole=True)
        if not self.query.work.take(work):
            return 0.0
        self.played = played
        self.groups = None  # the same groups are worth another evaluation
        return work

    @property
    def gap(self) -> float:
        """The relative width of the bracket; 0 where the answer itself is 0."""
        if self.value > 0:
            return (self.value - self.lower) / self.value
        return 0.0

    def planned(self, tolerance: float, left: float) -> Evaluation:
        """An evaluation to a tolerance, its groups in a share of what is left."""
        room = tuning.GROUPS_SHARE * left
        return Evaluation(
            self.game, self.query, self.order, tolerance, room, self.value, self.played
        )

    def _fitting(self, left: float) -> Evaluation | None:
        """An evaluation that fits: to the tolerance aimed at if possible, in any case a good deal
        finer than the last.
        """
        tolerance = self.target if left > 0 else math.inf
        while tolerance < min(self.last / tuning.COARSER, tuning.COARSEST):
            evaluation = self.planned(tolerance, left)
            if evaluation.work <= left and evaluation.groups != self.groups:
                return evaluation
            tolerance *= tuning.COARSER
        return None

    def by_conversion(self) -> Answer:
        """Concentrated costs only: the conversion itself, nearly attained for one cost, or the
        Gaussian of many.
        """
        if self.game.smoothed is not None:
            by_small = gaussian(self.game.smoothed.gaussian).answer(self.query)
            self.value = min(self.value, by_small.value)
        if self.value > FLOOR and self.query.lower:
            below = self.planned(self.wanted, 1.0).below(self.value)
            self.lower = max(min(below, self.value), 0.0)
        if self.value > FLOOR and self.gap > self.query.rtol / tuning.GAME_FINER:
            self._by_game()
        return self.answer("")

    def _by_game(self) -> None:
        """Concentrated costs only: their game step by step, if it fits."""
        query = self.query
        reach = self.value if query.epsilon is None else query.epsilon
        least = query.delta if query.epsilon is None else self.value
        if least < SMALLEST_DELTA:
            return
        room = query.work.budget - query.work.spent
        game = ConcentratedGame.fitting(self.game.concentrated, reach, room, whole=False)
        if game is None or not query.work.take(game.work(whole=False)):
            return
        if query.epsilon is not None:
            ends = delta_at(game, query.epsilon)
        else:
            ends = epsilon_at(game, query.delta, query.delta_below, self.value)
        self.value = min(self.value, ends.upper)
        if game.playable_in(query.interaction, alone=True):
            self.lower = max(self.lower, ends.lower)
        self.lower = min(self.lower, self.value)

    def answer(self, note: str) -> Answer:
        """The bracket so far."""
        return Answer(self.value, self.lower if self.lower > 0 else None, note)


def _rounded(ranges: Mapping[float, int], *, upper: bool) -> dict[float, int]:
    """The ranges rounded up, or down, to the largest, or smallest, of each of MOST_RANGES classes
    of equal ratio.
    """
    outermost_first = sorted(ranges.items(), reverse=upper)
    ratio = (max(ranges) / min(ranges)) ** (1 / tuning.MOST_RANGES)
    found: dict[float, int] = {}
    end = outermost_first[0][0]
    for epsilon, count in outermost_first:
        if max(epsilon, end) > min(epsilon, end) * ratio:
            end = epsilon
        found[end] = found.get(end, 0) + count
    return found


def pairs_of_ranges(charge: Charge, *, delta: float, tolerance: float) -> list[GroupPair]:
    """The pairs of groups of the bounded ranges in a charge, each valid together with any other
    cost (Theorem C).

    Args:
        charge: costs without failures, some of them bounded ranges.
        delta: the δ down to which the pairs are sharp.
        tolerance: relative, of the ε of the whole; it decides the groups, and no guarantee.
    """
    curve = SetwiseCurve.of(charge)
    query = Query(delta=delta, lower=False)
    value, order = curve.chernoff(query)
    room = tuning.GROUPS_SHARE * query.work.budget
    return Evaluation(curve, query, order, tolerance, room, value).pairs()


@bound(
    "optimal_setwise",
    source="docs/notes/setwise.md, Theorems A, B and C; recursion of DDR Lemma 6.1 and CR Lemma "
    "5.1",
    takes=(*DOMINATED, BoundedRange, ZCDP, CDP),
    lower_from=lambda charge: (
        "setwise" if charge.of(BoundedRange) else "batch"
    ),  # the strategies adapt and choose
    refines=True,
)
def optimal_setwise(charge: Charge) -> SetwiseCurve | BracketCurve:
    """The optimum over all adaptive interactions with a registered set of costs, as a certified
    bracket.
    """
    curve = SetwiseCurve.of(charge)
    if curve.ranges or curve.concentrated.costs:
        return curve
    return BracketCurve(charge, curve.top)  # the product of dominating pairs
