"""Refinement of one answer: finer and finer evaluations, until the bracket is as narrow as asked or
the counted work is used up.
"""

from __future__ import annotations

import math

from dptopk.accounting.curves import Answer, Query
from dptopk.accounting.gaussian.gaussian_sum import gaussian
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import (
    SMALLEST_DELTA,
    ConcentratedGame,
    delta_at,
    epsilon_at,
)
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import SetwiseGame
from dptopk.accounting.setwise.partition import CostGroup
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.work import USED_UP, OutOfTime

AS_FINE_AS_IT_GETS = "the bracket cannot be made as narrow as asked"


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
        added = math.fsum(
            tuning.GROUP * group.copies * group.largest**2 + group.noise()
            for group in planned.groups
        )
        taken = 0.0
        for expected, game in self.game.reductions:
            evaluation = Evaluation(
                game, self.query, self.order, self.wanted, tuning.REDUCED_SHARE * room, self.value
            )
            share = tuning.REDUCED_SHARE if expected <= added else tuning.CHEAP_SHARE
            if evaluation.work > share * room or not self.query.work.take(evaluation.work):
                continue
            taken += evaluation.work
            try:
                above = evaluation.above()
            except OutOfTime:
                break
            self.done.append((above, evaluation))
            self.value = min(self.value, above)
        return taken

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
        played = ConcentratedGame.of(concentrated, min(reach, alone))
        if played is None:
            return 0.0
        work = played.work(whole=True)
        if work > tuning.GAME_SHARE * room or not self.query.work.take(work):
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
            by_small = gaussian(self.game.smoothed[0]).answer(self.query)
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
        game = ConcentratedGame.of(self.game.concentrated, reach)
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
