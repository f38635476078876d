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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dptopk.accounting.cost_models.dominating_pairs import (
    DOMINATED,
    BracketCurve,
    certified_bracket,
)
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.gaussian.gaussian_sum import gaussian, total_mu
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import (
    MOST_COSTS,
    SMALLEST_DELTA,
    ConcentratedGame,
)
from dptopk.accounting.setwise.cost_groups import GroupPair
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import SetwiseGame, range_costs
from dptopk.accounting.setwise.game_answers import answer_of_game
from dptopk.accounting.setwise.gaussian_after_game import covering_gaussian
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.several_games import PlayedPart, games_of_parts
from dptopk.accounting.setwise.zcdp_gaussian import played_as_gaussians, zcdp_constant
from dptopk.accounting.work import USED_UP, OutOfTime, Work
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import NotApplicable

# The number of evaluations that answer another query: those with the least upper bounds for the
# first one.
EVALUATIONS_FOR_OTHERS = 2
# How closely the composition of randomised responses is computed, for a lower bound that need not
# be tight.
RESPONSES_RTOL = 1e-3
AS_FINE_AS_IT_GETS = "the bracket cannot be made as narrow as asked"


class SetwiseCurve(SetwiseGame, Curve):
    """The optimum for bounded ranges, costs with dominating pairs, and concentrated costs.

    Its answers are certified brackets; the module docstring says how they are found.
    """

    @classmethod
    def of(cls, charge: Charge) -> SetwiseCurve:
        """Return the curve of a charge without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        return cls(*cls._sorted_costs(charge))

    @classmethod
    def with_stand_in(cls, charge: Charge, stand_in: GaussianDP, small: Charge) -> SetwiseCurve:
        """Return the curve of a charge together with small costs, for which one Gaussian stands.

        Args:
            charge: the costs other than the small ones, without failures.
            stand_in: a Gaussian cost that is worth at least the small ones (Theorem H).
            small: the small costs.

        Raises:
            NotApplicable: where numbers are too large or too small, or where the Gaussian is a cost
                of the charge itself.
        """
        if stand_in in charge.costs:
            raise NotApplicable("the Gaussian that stands for small costs is a cost itself")
        parts = cls._sorted_costs(Charge({**charge.costs, stand_in: 1}))
        return cls(*parts, stand_in=stand_in, small=small)

    def answer(self, query: Query) -> Answer:
        """Return a bracket of the answer, refined until its relative width is at most
        ``query.rtol`` or the work is used up.
        """
        at_largest_loss = self._answer_by_largest_loss(query)
        if at_largest_loss is not None:
            return at_largest_loss
        if len(self.ranges) > tuning.MOST_RANGES:
            return self._answer_by_rounded_ranges(query)
        search = Refinement(self, query)
        if not search.uses_products:
            return search.answer_by_conversion()
        only_concentrated = not self.ranges and not self.dominated.costs
        if only_concentrated and search.narrow_by_games():
            return search.answer("")
        return search.run()

    def answers(self, query: Query, others: Sequence[Query]) -> list[Answer]:
        """Return the answers to other queries by the evaluations of one query.

        Args:
            query: the query for which evaluations are chosen and run.
            others: the queries that are answered.
        """
        if self._answer_by_largest_loss(query) is not None or len(self.ranges) > tuning.MOST_RANGES:
            return super().answers(query, others)
        search = Refinement(self, query)
        if not search.uses_products:
            return super().answers(query, others)
        search.run()
        answers = []
        for other in others:
            answer = self._answer_by_largest_loss(other)
            if answer is None:
                answer = search.answer_to(other)
            answers.append(answer)
        return answers

    def _answer_by_largest_loss(self, query: Query) -> Answer | None:
        """Return the answer that follows from the largest possible loss alone: that loss, for a δ
        of at most FLOOR; and a δ of 0, for an ε that is not less. None for other queries.
        """
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.largest_loss)
        if query.epsilon is not None and query.epsilon >= self.largest_loss:
            return Answer(0.0, 0.0)
        return None

    def _answer_by_rounded_ranges(self, query: Query) -> Answer:
        """Return the answer for very many different ranges, which are rounded up to fewer for an
        upper bound and down for a lower one.
        """
        rounded_up = SetwiseCurve(
            _rounded_ranges(self.ranges, upper=True), self.dominated, self.concentrated
        )
        upper = rounded_up.answer(replace(query, lower=False)).value
        value, order = self.chernoff(query)
        value = min(value, upper, self.one_gaussian_bound(query))
        tolerance = tuning.FIRST_SHARE * query.rtol
        for reduction in self.reductions:
            # Without work for groups: each large range is then a group of its own.
            reduced = Evaluation(
                reduction.game, query, order, tolerance, group_work=0.0, guess=value
            )
            value = min(value, reduced.upper_bound())
        lower = 0.0
        if query.lower and value > FLOOR:
            lower = self._lower_bound_by_rounded_ranges(query, order, value)
        note = "" if value - lower <= query.rtol * value else AS_FINE_AS_IT_GETS
        return Answer(value, lower if lower > 0 else None, note)

    def _lower_bound_by_rounded_ranges(self, query: Query, order: float, value: float) -> float:
        """Return the lower bound on the answer for very many different ranges.

        Args:
            query: what is asked.
            order: the order of the tilt.
            value: the upper bound on the answer.
        """
        ranges = _rounded_ranges(self.ranges, upper=False)
        rounded_down = SetwiseCurve(ranges, self.dominated, self.concentrated)
        evaluation = Evaluation(
            rounded_down, query, order, tuning.LOOSEST, group_work=0.0, guess=value
        )
        by_recursion = evaluation.lower_bound(value)
        by_responses = self._lower_bound_by_responses(query)
        return min(max(by_recursion, by_responses), value)

    def _lower_bound_by_responses(self, query: Query) -> float:
        """Return the lower bound on the answer that is attained if each range plays randomised
        response of half its ε, which is of bounded range ε, and each concentrated cost a Gaussian.
        """
        halves: dict[Cost, int] = {PureDP(epsilon / 2): n for epsilon, n in self.ranges.items()}
        played = Charge.join(Charge(halves), self.dominated, played_as_gaussians(self.concentrated))
        quick = replace(query, work=Work.of("quick"), rtol=RESPONSES_RTOL)
        return certified_bracket(played, quick).lower

    def proof(self, query: Query) -> Evaluation:
        """Return the first evaluation of the refinement whose upper bound is about as good as the
        best one; a certificate is made of it. Bounded ranges are in groups, not in the game of the
        concentrated costs, which a certificate states without them.
        """
        search = Refinement(self, query, ranges_in_game=False)
        if not self.ranges and not self.dominated.costs:
            # Without ranges there are no groups, and the work that they may take is of no effect.
            return search.evaluation_within(search.wanted, work_left=0.0)
        search.run()
        if not search.evaluations:
            return search.evaluation_within(tuning.LOOSEST, query.work.budget)
        least = min(value for value, _ in search.evaluations)
        good_enough = least * (1 + tuning.AS_GOOD)
        return next(run for value, run in search.evaluations if value <= good_enough)


class Refinement:
    """Refinement of one answer by finer and finer evaluations, in stages; each stage has more work
    than the one before, which allows larger groups.

    The bracket is the interval from ``lower`` to ``value``, in which the answer lies.

    Attributes:
        game: the costs.
        query: the question.
        value: the upper end of the bracket: the least upper bound on the answer so far.
        lower: the lower end: the largest lower bound so far; 0 before there is one.
        needs_lower_bound: whether a lower bound is computed as well.
        gaussian_decides: whether one Gaussian for everything was better than the Rényi route.
        wanted: the relative tolerance of an evaluation that answers the query.
        target: the tolerance of the next evaluation.
        last: the tolerance of the last evaluation of this stage; inf before there is one.
        groups: the groups of the last evaluation; None before there is one.
        evaluations: each upper bound with the evaluation that found it.
        concentrated_game: the game of the concentrated costs, once one fits into the work.
        ranges_in_game: whether the ranges may be played in the same game.
        lower_tolerance: the tolerance of the strategy that was evaluated last; inf before.
        last_above: the upper bound of the last evaluation; inf before there is one.
        lower_end_evaluation: the evaluation whose strategy gave the lower end, or None.
        reduced: the games with a Gaussian for the small ranges that were evaluated, with their
            groups.
    """

    def __init__(self, game: SetwiseGame, query: Query, *, ranges_in_game: bool = True) -> None:
        """Begin with the Rényi route and the Gaussian of Theorem H."""
        self.ranges_in_game = ranges_in_game
        self.game = game
        self.query = query
        self.value, self._order = game.chernoff(query)
        # The ε for which the order of the tilt is searched next; None where it has been.
        self._epsilon_to_tilt: float | None = None
        by_gaussian = game.one_gaussian_bound(query)
        self.gaussian_decides = by_gaussian < self.value
        self.value = min(self.value, by_gaussian)
        self.lower = 0.0
        self.needs_lower_bound = game.needs_lower_bound(query)
        # The relative change of δ for a relative change of ε: as an answer δ is that much rougher.
        if query.epsilon is not None:
            sharpness = max(1.0, self._order * query.epsilon)
        else:
            sharpness = 1.0
        self.wanted = max(min(query.rtol / sharpness, tuning.LOOSEST), tuning.FINEST)
        self.target = tuning.FIRST_SHARE * self.wanted
        self.last = math.inf
        self.groups: list[CostGroup] | None = None
        self.evaluations: list[tuple[float, Evaluation]] = []
        self.concentrated_game: ConcentratedGame | None = None
        self.lower_tolerance = math.inf
        self.last_above = math.inf
        self.lower_end_evaluation: Evaluation | None = None
        self.reduced: list[tuple[SetwiseGame, list[CostGroup]]] = []

    def run(self) -> Answer:
        """Return the answer, refined stage by stage until the bracket is narrow enough or the work
        is used up.
        """
        work = self.query.work
        note = USED_UP
        for room in work.stage_rooms():
            self.last = math.inf  # larger groups may be better at the same tolerance
            work_left = room - self._bound_by_reductions(room) - self._compute_game(room)
            if self.gap <= self.query.rtol:
                return self.answer("")
            while (evaluation := self._affordable_evaluation(work_left)) is not None:
                if not work.take(evaluation.work):
                    return self.answer(work.note)
                work_left -= evaluation.work
                gap_before = self.gap
                try:
                    self._evaluate(evaluation)
                except OutOfTime:
                    return self.answer(work.note)
                if self.gap <= self.query.rtol:
                    return self.answer("")
                is_fine = self.last <= self.wanted
                if is_fine and self._finer_grids_are_no_use:
                    if not self._larger_groups_may_help(evaluation):
                        return self.answer("")
                    break  # the next stage has larger groups
                self._set_target()
                if is_fine and self.gap > tuning.STUCK * gap_before:
                    note = AS_FINE_AS_IT_GETS
                    break
        return self.answer(note)

    @property
    def _finer_grids_are_no_use(self) -> bool:
        """Return whether grids that are finer than wanted would not narrow the bracket: where a
        Rényi curve makes it wide, or where there is no lower end.
        """
        return self._converts_concentrated_costs or not self.needs_lower_bound

    def _larger_groups_may_help(self, evaluation: Evaluation) -> bool:
        """Return whether a later stage, with larger groups, may do better than an evaluation: where
        it has several groups, or a Rényi curve that a game may replace.
        """
        return self._converts_concentrated_costs or len(evaluation.groups) > 1

    @property
    def _converts_concentrated_costs(self) -> bool:
        """Return whether concentrated costs are bounded by their Rényi curve, not by their game:
        then the bracket is wider than its grids alone would make it.
        """
        return bool(self.game.concentrated.costs) and self.concentrated_game is None

    def _set_target(self) -> None:
        """Set the tolerance of the next evaluation: the last one, made finer in the proportion in
        which the bracket is wider than what was asked for.
        """
        finer = self.wanted / self.last
        if self.needs_lower_bound:
            finer = min(finer, self.query.rtol / self.gap)
        leap = max(tuning.AIM * finer, tuning.LEAP)
        self.target = self.last * min(leap, 1 / tuning.FINER)

    def _evaluate(self, evaluation: Evaluation) -> None:
        """Run one evaluation, and move both ends of the bracket and the order of the tilt
        accordingly.
        """
        self.last = evaluation.tolerance
        self.groups = evaluation.groups
        has_raised = self.gaussian_decides and self._lower_may_rise
        if has_raised:
            # The Gaussian of Theorem H may be close enough: then only the lower end is missing.
            self._raise_lower_end(evaluation)
            if self.gap <= self.query.rtol:
                return
        above = evaluation.upper_bound()
        self.last_above = above
        self.evaluations.append((above, evaluation))
        # What an evaluation attains depends on ``value`` alone: a second time it is computed only
        # for a smaller one.
        falls = above < self.value
        self.value = min(self.value, above)
        if self._lower_may_rise and (falls or not has_raised):
            self._raise_lower_end(evaluation)
        # At a given δ the tilt is that of the ε found so far.
        if self.query.epsilon is None and math.isfinite(self.value):
            self._epsilon_to_tilt = self.value

    def _order_of_tilt(self) -> float:
        """Return the order λ of the tilt of the next evaluation. It is searched for here and not
        when the bracket is narrowed, since there may be no next evaluation.
        """
        if self._epsilon_to_tilt is not None:
            _, self._order = self.game.chernoff(Query(epsilon=self._epsilon_to_tilt))
            self._epsilon_to_tilt = None
        return self._order

    @property
    def uses_products(self) -> bool:
        """Return whether the costs are bounded by products of pairs, not by one conversion of all
        of them, and whether the first bound leaves them anything to improve.
        """
        game = self.game
        partly_smoothed = game.smoothed_split is not None and bool(
            game.smoothed_split.by_renyi.costs
        )
        several = bool(game.ranges or game.dominated.costs or partly_smoothed)
        return self.value > FLOOR and several

    def answer_to(self, query: Query) -> Answer:
        """Return a bracket of the answer to another query about the same costs, by the evaluations
        with the least upper bounds on this one's answer; nothing is refined for it.
        """
        above = min(self.game.chernoff(query)[0], self.game.one_gaussian_bound(query))
        by_upper_bound = sorted(self.evaluations, key=lambda pair: pair[0])
        for _, evaluation in by_upper_bound[:EVALUATIONS_FOR_OTHERS]:
            above = min(above, evaluation.upper_bound(query))
        below = 0.0
        if self.lower_end_evaluation is not None and above > FLOOR:
            below = min(self.lower_end_evaluation.lower_bound(above, query), above)
        return Answer(above, below if below > 0 else None)

    @property
    def _lower_may_rise(self) -> bool:
        """Return whether a finer strategy may narrow the bracket: not where the last one was so
        fine that nearly all of the width is due to the upper end.
        """
        return self.needs_lower_bound and self.gap <= tuning.LOWER_AGAIN * self.lower_tolerance

    def _raise_lower_end(self, evaluation: Evaluation) -> None:
        """Raise the lower end to what an evaluation attains."""
        below = min(evaluation.lower_bound(self.value), self.value)
        if self.lower_end_evaluation is None or below > self.lower:
            self.lower_end_evaluation = evaluation
        self.lower = max(self.lower, below)
        self.lower_tolerance = evaluation.tolerance

    def _bound_by_reductions(self, room: float) -> float:
        """Replace, at the start of a stage, the small ranges by one Gaussian (Theorem H''), and
        lower the upper bound where that is better.

        Args:
            room: the work of the stage.

        Returns:
            The work that it took.
        """
        if not self.game.reductions:
            return 0.0
        evaluation_by_groups = self.evaluation_within(self.wanted, room)
        added_by_groups = math.fsum(
            tuning.GROUP * group.copies * group.largest**2 + group.noise()
            for group in evaluation_by_groups.groups
        )
        most_work = tuning.REDUCED_SHARE * room
        total_work = 0.0
        for reduction in self.game.reductions:
            evaluation = Evaluation(
                reduction.game,
                self.query,
                self._order_of_tilt(),
                self.wanted,
                group_work=most_work,
                guess=self.value,
            )
            adds_less = reduction.added <= added_by_groups
            share = tuning.REDUCED_SHARE if adds_less else tuning.CHEAP_SHARE
            if (reduction.game, evaluation.groups) in self.reduced:
                continue  # an earlier stage has evaluated the same
            if evaluation.work > share * room or not self.query.work.take(evaluation.work):
                continue
            self.reduced.append((reduction.game, evaluation.groups))
            total_work += evaluation.work
            try:
                above = evaluation.upper_bound()
            except OutOfTime:
                break
            self.evaluations.append((above, evaluation))
            self.value = min(self.value, above)
        return total_work

    def _compute_game(self, room: float) -> float:
        """Compute, at the start of a stage, the game of the concentrated costs if it fits into the
        work. If it has the ranges in it, it is evaluated at once, as there are no groups then.

        Args:
            room: the work of the stage.

        Returns:
            The work that it took.
        """
        concentrated = self.game.concentrated
        known_game = self.concentrated_game
        ranges_may_join = bool(self.game.ranges) and self.ranges_in_game
        if not concentrated.costs or (known_game is not None and not ranges_may_join):
            return 0.0
        negligible = tuning.GAME_NEGLIGIBLE
        if self.query.epsilon is None:
            negligible *= self.query.delta
            reach = self.value
        else:
            negligible *= self.value
            reach = self.query.epsilon
        # The rounding errors of a game are small for δ's above SMALLEST_DELTA.
        if not negligible > SMALLEST_DELTA * tuning.GAME_NEGLIGIBLE:
            return 0.0
        fitting_game = self._fitting_game(reach, negligible, tuning.GAME_SHARE * room)
        if fitting_game is None or fitting_game == known_game:
            return 0.0
        if known_game is not None and not fitting_game.ranges:
            return 0.0  # only a game with the ranges is worth more than the one that is known
        work = fitting_game.work
        if not self.query.work.take(work):
            return 0.0
        self.concentrated_game = fitting_game
        self.groups = None  # the same groups are worth another evaluation
        self.lower_tolerance = math.inf
        if fitting_game.ranges:
            with suppress(OutOfTime):
                self._evaluate(self.evaluation_within(self.wanted, 0.0))
        return work

    def _fitting_game(
        self, reach: float, negligible: float, room: float
    ) -> ConcentratedGame | None:
        """Return the finest game of the concentrated costs, if possible together with the ranges,
        whose work fits into ``room``; None where none does.

        Args:
            reach: the largest ε that is asked for.
            negligible: a δ: the tables of a game end at the ε at which its costs are worth so
                little.
            room: the work that it may take, in seconds.
        """
        concentrated = self.game.concentrated
        if self.game.ranges and self.ranges_in_game:
            ranges = self.game.ranges
            costs = Charge.join(concentrated, Charge(range_costs(ranges)))
            negligible_from = float(renyi_curve(log_mgf(costs)).epsilon(negligible))
            whole_reach = min(reach, negligible_from)
            whole = ConcentratedGame.fitting(concentrated, whole_reach, room, ranges)
            if whole is None or whole.is_better_sketched:
                sketched = ConcentratedGame.sketched(concentrated, whole_reach, room, ranges)
                whole = sketched or whole
            if whole is not None and whole.sparsity <= tuning.SPARSEST_WITH_RANGES:
                return whole
            room *= tuning.GAME_BESIDE_RANGES
        negligible_from = float(renyi_curve(log_mgf(concentrated)).epsilon(negligible))
        return ConcentratedGame.fitting(concentrated, min(reach, negligible_from), room)

    @property
    def gap(self) -> float:
        """Return the relative width of the bracket; 0 where the answer itself is 0."""
        if self.value > 0:
            return (self.value - self.lower) / self.value
        return 0.0

    def evaluation_within(self, tolerance: float, work_left: float) -> Evaluation:
        """Return an evaluation to a tolerance, whose groups may take a share of the work left; it
        computes nothing yet.

        Args:
            tolerance: by how much, relatively, its bounds on ε may be off: a wish.
            work_left: in seconds; an estimate.
        """
        # The curve of everything is tried by the first evaluation; it is the same for all others.
        return Evaluation(
            self.game,
            self.query,
            self._order_of_tilt(),
            tolerance,
            group_work=tuning.GROUPS_SHARE * work_left,
            guess=self.value,
            concentrated_game=self.concentrated_game,
            curve_with_ranges=self.last_above == math.inf,
        )

    def _affordable_evaluation(self, work_left: float) -> Evaluation | None:
        """Return an evaluation that fits into the work left: to the tolerance aimed at if possible,
        else to a coarser one that is still finer than the last one by a factor; None where there is
        none.
        """
        if self.concentrated_game is not None and self.concentrated_game.ranges:
            return None
        tolerance = self.target if work_left > 0 else math.inf
        coarsest = min(self.last / tuning.COARSER, tuning.COARSEST)
        # Most that does not fit at the coarsest tolerance fits at none, and plans take time too.
        if tolerance < coarsest and self.evaluation_within(coarsest, work_left).work > work_left:
            return None
        while tolerance < coarsest:
            evaluation = self.evaluation_within(tolerance, work_left)
            if evaluation.work <= work_left and evaluation.groups != self.groups:
                return evaluation
            tolerance *= tuning.COARSER
        return None

    def answer_by_conversion(self) -> Answer:
        """Return the answer for concentrated costs alone: by the Rényi conversion, which one cost
        nearly attains, by one Gaussian for many small ones, or by their game. A δ below what
        products can resolve is left as the first bound states it, for costs of any kind.
        """
        if self.value <= FLOOR:
            return self.answer("")
        # Of such costs alone, the Gaussian stands for all of them.
        if self.game.smoothed_split is not None:
            by_small = gaussian(self.game.smoothed_split.gaussian).answer(self.query)
            self.value = min(self.value, by_small.value)
        if self.value > FLOOR:
            self.narrow_by_games()
        if self.value > FLOOR and self.query.lower and self.gap > self.query.rtol:
            # By the costs played as Gaussians, for which the work of a quick answer is enough.
            quick = replace(self.query, work=Work.of("quick"))
            evaluation = self.evaluation_within(self.wanted, work_left=0.0)
            below = evaluation.lower_bound(self.value, quick)
            self.lower = max(min(below, self.value), self.lower)
        return self.answer("")

    def narrow_by_games(self) -> bool:
        """Narrow the bracket for concentrated costs alone by their game, or, where they have none,
        by several games.

        Returns:
            Whether one game had all costs, so that nothing else need be tried.
        """
        query = self.query
        reach = self.value if query.epsilon is None else query.epsilon
        least_delta = query.delta if query.epsilon is None else self.value
        if least_delta < SMALLEST_DELTA:
            return False
        room = query.work.budget - query.work.spent
        game = ConcentratedGame.fitting(self.game.concentrated, reach, room)
        # Where one game does not fit, or only with nodes farther apart, another one may: it solves
        # programs of centred losses for few costs of a kind only.
        if game is None or game.is_better_sketched:
            sketched = ConcentratedGame.sketched(self.game.concentrated, reach, room)
            if sketched is not None and query.work.take(sketched.work):
                self._narrow_by_sketched_game(sketched)
                return True
        if game is None:
            # Several games first, with all the work: where they fit they may be the better bound.
            self._narrow_by_several_games(reach, least_delta, room)
            if self.gap > query.rtol:
                self._narrow_by_game_of_last_costs(least_delta)
            return False
        if not query.work.take(game.work):
            return False
        ends = answer_of_game(game, query, self.value)
        self.value = min(self.value, ends.upper)
        if game.is_lower_bound_in(query.interaction, alone=True):
            self.lower = max(self.lower, ends.lower)
        self.lower = min(self.lower, self.value)
        return True

    def _narrow_by_game_of_last_costs(self, least_delta: float) -> None:
        """Narrow the bracket for very many equal concentrated costs by the game of as many as have
        one: from above with Theorem H for the others, and from below with Gaussians before them.

        Args:
            least_delta: the least δ that matters.
        """
        work = self.query.work
        costs = self.game.concentrated
        if len(costs.costs) != 1 or costs.count <= MOST_COSTS:
            return
        (cost,) = costs.costs
        first = Charge({cost: costs.count - MOST_COSTS})
        if total_mu(played_as_gaussians(first)) > tuning.LARGEST_MU_BEFORE_GAME:
            return
        last = Charge({cost: MOST_COSTS})
        reach = float(renyi_curve(log_mgf(last)).epsilon(tuning.GAME_NEGLIGIBLE * least_delta))
        room = tuning.LAST_GAME_SHARE * (work.budget - work.spent)
        game = ConcentratedGame.fitting(last, reach, room)
        if game is None or not work.take(game.work):
            return
        self._cover_after(game)
        self._raise_by_games([PlayedPart(last, game, Charge()), PlayedPart(first, None, Charge())])

    def _cover_after(self, game: ConcentratedGame) -> None:
        """Lower the upper end for equal concentrated costs by Theorem H, which begins with what a
        game of some of them is worth (``gaussian_after_game``).

        Args:
            game: the game, of one class and without ranges.
        """
        costs = self.game.concentrated
        (cost,) = costs.costs
        covering = covering_gaussian(game, zcdp_constant(cost), costs.count)
        if covering is not None:
            self.value = min(self.value, covering.answer(self.query))
            self.lower = min(self.lower, self.value)

    def _raise_by_games(self, parts: list[PlayedPart]) -> None:
        """Raise the lower end to what a strategy with several games attains, where an analyst can
        choose the order of costs.

        Args:
            parts: the parts with their games, which have all costs in them.
        """
        if self.query.lower and self.query.interaction == "setwise":
            evaluation = self.evaluation_within(self.wanted, 0.0)
            below = evaluation.lower_bound_by_games(parts, self.value)
            self.lower = max(self.lower, below)
        self.lower = min(self.lower, self.value)

    def _narrow_by_sketched_game(self, game: ConcentratedGame) -> None:
        """Narrow the bracket by a game that is a sketch (``ConcentratedGame.most_solved``): from
        above by it or by the product of its parts of one kind each, whichever is less, from below
        by the whole game.
        """
        evaluation = self.evaluation_within(self.wanted, 0.0)
        pairs = game.pairs_of_parts()
        above = evaluation.bound_of_product(pairs, evaluation.lattice_step(pairs))
        ends = answer_of_game(game, self.query, self.value)
        self.value = min(self.value, above, ends.upper)
        if game.is_lower_bound_in(self.query.interaction, alone=True):
            self.lower = max(self.lower, ends.lower)
        self.lower = min(self.lower, self.value)

    def _narrow_by_several_games(self, reach: float, least_delta: float, room: float) -> None:
        """Narrow the bracket for concentrated costs that are too many or too different for one
        game: by a product of the pairs of several games (Theorem C).

        Args:
            reach: the largest ε that matters.
            least_delta: the least δ that matters.
            room: of work, in seconds.
        """
        negligible = tuning.GAME_NEGLIGIBLE * least_delta
        parts = games_of_parts(self.game.concentrated, reach, negligible, room)
        games = [part.game for part in parts if part.game is not None]
        work = math.fsum(game.work for game in games)
        if not games or work > room or not self.query.work.take(work):
            return
        evaluation = self.evaluation_within(self.wanted, 0.0)
        self.value = min(self.value, evaluation.bound_by_games(parts))
        self._raise_by_games(parts)
        if len(self.game.concentrated.costs) == 1:
            self._cover_after(max(games, key=lambda game: game.counts))

    def answer(self, note: str) -> Answer:
        """Return the bracket so far as an answer with this note."""
        return Answer(self.value, self.lower if self.lower > 0 else None, note)


def _rounded_ranges(ranges: Mapping[float, int], *, upper: bool) -> dict[float, int]:
    """Return the ranges rounded to about MOST_RANGES different ones: up (``upper``) to the largest
    of those within a ratio, or down to the smallest.
    """
    outermost_first = sorted(ranges.items(), reverse=upper)
    ratio = (max(ranges) / min(ranges)) ** (1 / tuning.MOST_RANGES)
    rounded: dict[float, int] = {}
    level = outermost_first[0][0]  # what ε's are rounded to, until they are too far from it
    for epsilon, count in outermost_first:
        if max(epsilon, level) > min(epsilon, level) * ratio:
            level = epsilon
        rounded[level] = rounded.get(level, 0) + count
    return rounded


def pairs_of_ranges(charge: Charge, *, delta: float, tolerance: float) -> list[GroupPair]:
    """Return the pairs of groups of the bounded ranges in a charge, each valid together with any
    other cost (Theorem C).

    Args:
        charge: costs without failures, some of them bounded ranges.
        delta: the δ down to which the pairs are sharp.
        tolerance: relative, of the ε of the whole; it decides the groups, and no guarantee.
    """
    curve = SetwiseCurve.of(charge)
    query = Query(delta=delta, lower=False)
    value, order = curve.chernoff(query)
    work = tuning.GROUPS_SHARE * query.work.budget
    return Evaluation(curve, query, order, tolerance, group_work=work, guess=value).pairs()


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
    """Bound the δ or ε over all adaptive interactions with a registered set of costs, by a
    certified bracket.
    """
    curve = SetwiseCurve.of(charge)
    if curve.ranges or curve.concentrated.costs:
        return curve
    return BracketCurve(charge, curve.largest_loss)  # the product of dominating pairs
