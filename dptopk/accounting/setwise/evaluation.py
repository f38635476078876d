"""One evaluation of a question: the product of the pairs of all groups from above, a strategy from
below, at one tilt and one tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dptopk._internal.rounding import outward
from dptopk.accounting.cost_models.dominating_pairs import certified_bracket, loss_components
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Grid, LossComponent
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.cost_groups import (
    GroupPair,
    concentrated_pair,
    equal_ranges_pair,
    mixed_ranges_pair,
)
from dptopk.accounting.setwise.game import RenyiSplit, SetwiseGame, log_chernoff_of, range_costs
from dptopk.accounting.setwise.lower_bounds import (
    last_ranges,
    steps_from_below,
    strategy,
    strategy_before,
    two_outcomes_delta,
)
from dptopk.accounting.setwise.partition import CostGroup, partition
from dptopk.accounting.setwise.price_rounding import weighted_ranges_pair
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.zcdp_gaussian import with_gaussians
from dptopk.costs import ZCDP, BoundedRange, Charge, DiscreteGaussianDP

MANY_RANGES = 150  # of more different ones than this no strategy is played by a recursion


@dataclass(frozen=True)
class Evaluation:
    """One evaluation from above and from below: at a tilt, to a tolerance, with windows that reach
    far enough.

    Attributes:
        game: the costs.
        query: the question.
        order: λ of the tilt.
        tolerance: relative, of the answer; a guess.
        room: the work that its groups may take.
        guess: an upper bound on what is asked.
        played: the game of the concentrated costs, where it is played step by step.
    """

    game: SetwiseGame
    query: Query
    order: float
    tolerance: float
    room: float
    guess: float
    played: ConcentratedGame | None = None

    @cached_property
    def variance(self) -> float:
        """About the variance of the whole loss under the tilt; next to the largest loss differences
        say nothing.
        """
        spread = math.fsum(part.spread() for part in self.game.parts)
        return max(self.game.variance(self.order), tuning.LEAST_VARIANCE * spread)

    @cached_property
    def groups(self) -> list[CostGroup]:
        """The groups of ranges."""
        ranges = self.game.ranges
        if not ranges:
            return []
        return partition(ranges, self.variance, self.tolerance, self.room, self.order)

    @cached_property
    def work(self) -> float:
        """The work of both bounds: node values of the groups, places of the lattice, pairs that are
        multiplied.
        """
        game = self.game
        discrete = game.rest.of(DiscreteGaussianDP).items()
        wide = math.fsum(cost.scale * math.sqrt(n) for cost, n in discrete)
        factors = sum(part.factors() for part in game.parts) + 8 * len(self.groups)
        curves = bool(game.concentrated.costs) + (game.smoothed is not None)
        above = math.fsum(group.work for group in self.groups)
        above += math.fsum(part.work() for part in game.parts)
        above += tuning.WORK_PER_LATTICE_POINT * wide + tuning.WORK_PER_FACTOR * factors
        above += tuning.WORK_PER_CURVE * curves
        above += self._lattice_work()
        if not game.ranges or not game.bracketed(self.query):
            return above
        return above + self._work_below()

    def _lattice_work(self) -> float:
        """The work of the places of the product's lattice, if that has the steps of the groups."""
        finest = min((group.grid_step for group in self.groups), default=math.inf)
        deviation = math.sqrt(self.variance)
        return tuning.WORK_PER_PLACE * tuning.WINDOW / 2 * deviation / finest

    def _work_below(self) -> float:
        """The work of the recursions, from either side, of the ranges that are played last."""
        last = last_ranges(self.game.ranges)
        count = sum(last.values())
        steps = steps_from_below(last, self.variance, self.tolerance)
        return 2 * CostGroup(((max(last), count),), steps=steps).work

    @property
    def reach(self) -> float:
        """Number of standard deviations of a group's loss that matter: beyond, V <= e^{-z²/2} is a
        small share of δ.
        """
        copies = max(sum(group.copies for group in self.groups), 1)
        if self.query.epsilon is None:
            delta = self.query.delta
        else:
            delta = self.guess / 100
        share = tuning.WINDOW_SHARE * max(delta, FLOOR)
        z = math.sqrt(2 * math.log(copies / share))
        return tuning.REACHES * math.ceil(z / tuning.REACHES)

    def pairs(self) -> list[GroupPair]:
        """The pairs of all groups of ranges."""
        found: list[GroupPair] = []
        for group in self.groups:
            found += self._pairs_of(group)
        return found

    def _pairs_of(self, group: CostGroup) -> list[GroupPair]:
        """The pairs of one group: of its parts where it is a single range."""
        reach = self.reach
        if group.levels:
            return [weighted_ranges_pair(group.ranges, group.levels, reach=reach)]
        if not group.single:
            return [mixed_ranges_pair(group.ranges, group.steps, reach=reach)]
        found = []
        for count, times in group.sizes:
            pair = equal_ranges_pair(group.largest, count, group.steps, reach=reach)
            found.append(replace(pair, count=times))
        return found

    def above(self) -> float:
        """The upper bound, but for one Rényi curve of everything: that is what the refinement
        begins with.
        """
        pairs = self.pairs()
        step = self.lattice_step(pairs)
        whole = self.game.whole.count
        splits = [split for split in self.splits() if split.together.count < whole]
        found = [self.of_split(*split, pairs, step) for split in splits]
        if self.played is not None:
            parts = [*self.game.parts, *pairs, self.played.pair()]
            found.append(self.of_product(parts, step))
        return min(found, default=math.inf)

    def splits(self) -> list[RenyiSplit]:
        """The ways to bound the concentrated costs, of which the best one counts."""
        game = self.game
        found = [RenyiSplit(Charge(), game.concentrated)]
        if game.concentrated.costs and game.ranges:
            ranges = Charge(range_costs(game.ranges))
            found.append(RenyiSplit(Charge(), Charge.join(game.concentrated, ranges)))
        if game.smoothed:
            found.append(game.smoothed)
        return found

    def of_split(
        self, gaussian: Charge, together: Charge, pairs: Sequence[GroupPair], step: float
    ) -> float:
        """The bound of one of the splits; ``pairs`` are those of the ranges."""
        parts = [*self.game.parts]
        if not together.of(BoundedRange):
            parts += pairs
        parts += loss_components(gaussian)
        if together.costs:
            parts.append(self.concentrated(step, together))
        return self.of_product(parts, step)

    def lattice_step(self, pairs: Sequence[GroupPair]) -> float:
        """The step of the product's lattice: that of the groups if all have the same, else one fine
        enough to split.
        """
        game = self.game
        own = {group.grid_step for group in self.groups}
        only_single = all(group.single for group in self.groups)
        alone = not game.parts and not game.concentrated.costs
        if len(own) == 1 and alone and only_single:
            return own.pop()
        splits = sum(part.roundings()[0] for part in game.parts)
        splits += sum(pair.count for pair in pairs)
        tolerance = tuning.SPLITTING * tuning.LATTICE_SHARE * self.tolerance
        step = math.sqrt(tolerance * self.variance / max(splits, 1))
        step = min(step, math.sqrt(self.variance) / tuning.CELLS_PER_STD)
        step = max(step, self._coarsest_step())
        epsilon = self.query.epsilon
        if epsilon is not None and epsilon > step:
            # A lattice point at ε, where the chord touches.
            step = epsilon / math.ceil(epsilon / step)
        return step

    def _coarsest_step(self) -> float:
        """The step of the longest lattice."""
        game = self.game
        spread = self.variance + math.fsum(part.spread() for part in game.parts)
        step = tuning.WINDOW * math.sqrt(spread) / tuning.MOST_POINTS
        if game.concentrated.costs:  # whose losses may be far larger than their deviation
            step = max(step, self.guess / tuning.MOST_POINTS)
        return step

    def concentrated(self, step: float, together: Charge) -> GroupPair:
        """The pair of concentrated costs, perhaps together with others, by their Rényi curve."""
        reach = self.guess if self.query.epsilon is None else self.query.epsilon
        reach += tuning.CONCENTRATED_REACH * math.sqrt(self.variance)
        finest = reach / tuning.CONCENTRATED_POINTS
        return concentrated_pair(together, max(step, finest), reach)

    def of_product(self, parts: Sequence[LossComponent], step: float) -> float:
        """Evaluate the query on the product of pairs on a lattice; infinite losses add their
        mass.
        """
        grid = Grid(step, self.order, 1)
        pairs = [pair for part in parts for pair in part.pairs(grid)]
        law = product(pairs, step=step, tilt=self.order, side=1)
        groups = [part for part in parts if isinstance(part, GroupPair)]
        infinite = math.fsum(part.infinite * part.count for part in groups) * (1 + 1e-14)
        if self.query.epsilon is not None:
            delta = law.delta(self.query.epsilon) + infinite
            return min(float(outward(delta)), 1.0)
        left = (self.query.delta - infinite) * (1 - 1e-14)
        if left > 0:
            return law.epsilon(left)
        return math.inf

    def below(self, value: float) -> float:
        """The lower bound; ``value`` is the upper one."""
        best = 0.0
        if self.played is not None and self.played.playable_in(self.query.interaction, alone=False):
            best = self._below_with_game(self.played, value)
        game = self.game
        rest = game.rest
        if game.concentrated.costs:
            rest = Charge.join(rest, with_gaussians(game.concentrated))
        if not game.ranges:
            return max(best, self._below_without_ranges(rest, value))
        low = self._lowest(value)
        # Fixed t's are better where the grid is too coarse, close to the largest loss, and quick
        # for very many ranges.
        ways = (True, False) if len(game.ranges) <= MANY_RANGES else (False,)
        climbed = {group.largest: group.steps for group in self.groups if group.single}
        for adaptive in ways:
            found = strategy(
                game.ranges,
                rest,
                order=self.order,
                log_chernoff=game.log_chernoff(self.order),
                variance=self.variance,
                tolerance=self.tolerance,
                steps=climbed,
                reach=self.reach,
                adaptive=adaptive,
            )
            best = max(best, found.answer(self.query, low, value))
            if value - best <= tuning.SETTLED * self.tolerance * value:
                break
        return best

    def _below_with_game(self, played: ConcentratedGame, value: float) -> float:
        """The lower bound if the concentrated costs are played last, by their game."""
        game = self.game
        found = strategy_before(
            played,
            game.ranges,
            game.rest,
            order=self.order,
            log_chernoff=log_chernoff_of(game.concentrated, self.order),
            variance=self.variance,
            tolerance=self.tolerance,
        )
        return found.answer(self.query, self._lowest(value), value)

    def _lowest(self, value: float) -> float:
        """From where on a strategy's ε is looked for."""
        if self.query.epsilon is not None:
            return 0.0
        return max(value - tuning.STRATEGY_REACH * math.sqrt(self.variance), 0.0)

    def _below_without_ranges(self, rest: Charge, value: float) -> float:
        """The lower bound where there are no ranges: a product, or a law with two outcomes."""
        fine = replace(self.query, rtol=max(self.tolerance, 1e-3))
        product_below = certified_bracket(rest, fine).lower
        whole = self.game.whole
        # One ZCDP cost alone: several could not be played by one law.
        if whole.count == 1 and whole.of(ZCDP):
            (cost,) = whole.of(ZCDP)
            return max(product_below, self._below_by_two_outcomes(cost, value, product_below))
        return product_below

    def _below_by_two_outcomes(self, cost: ZCDP, value: float, least: float) -> float:
        """What a law with two outcomes attains of one cost, if more than ``least``, else 0."""
        query = self.query
        if query.epsilon is not None:
            return two_outcomes_delta(cost.rho, cost.xi, query.epsilon)
        for retreat in tuning.CONCENTRATED_RETREATS:
            x = value * (1 - retreat)
            if x <= least:
                break
            if two_outcomes_delta(cost.rho, cost.xi, x) > query.delta_below:
                return x
        return 0.0
