"""One evaluation of a question: the product of the pairs of all groups from above, a strategy from
below, at one tilt and one tolerance.

Loss distributions are computed on a lattice under a *tilt*: masses at a loss l are weighed by
e^{λl}, with the order λ at which the question looks at the loss, so that those that matter are the
large ones. Any tilt is sound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from dptopk._internal.rounding import outward
from dptopk.accounting.cost_models.dominating_pairs import certified_bracket, loss_components
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.lattice import LossDistribution, product
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
from dptopk.accounting.setwise.game_answers import answer_of_game
from dptopk.accounting.setwise.lower_bounds import (
    Strategy,
    StrategyAim,
    last_ranges,
    nearly_best_strategy,
    steps_from_below,
    strategy_before,
)
from dptopk.accounting.setwise.partition import CostGroup, partition
from dptopk.accounting.setwise.price_rounding import weighted_ranges_pair
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.several_games import PlayedPart
from dptopk.accounting.setwise.two_outcome_laws import two_outcomes_delta
from dptopk.accounting.setwise.zcdp_gaussian import played_as_gaussians
from dptopk.costs import ZCDP, BoundedRange, Charge, DiscreteGaussianDP

FINEST_PRODUCT = 1e-3  # relative: a lower bound by a product alone is computed no more closely
MANY_RANGES = 150  # of more different ones than this no strategy is played by a recursion
# Relative, of a sum of products of non-negative numbers: each product rounds once, and fsum once,
# which is 4e-16 in all.
SUM_ROUNDING = 1e-14
FACTORS_OF_GROUP = 8  # a group has several parts, each a factor of the product: a guess


class DominatingProduct(NamedTuple):
    """A product of pairs that bounds all costs from above.

    Attributes:
        law: the product on a lattice, of the finite losses; None where the lattice would have too
            many places, and the product says nothing.
        infinite: the mass of infinite losses, rounded up.
    """

    law: LossDistribution | None
    infinite: float

    def answer(self, query: Query) -> float:
        """Return an upper bound on the δ or ε asked for."""
        if self.law is None:
            return math.inf if query.epsilon is None else 1.0
        if query.epsilon is not None:
            delta = self.law.delta(query.epsilon) + self.infinite
            return min(float(outward(delta)), 1.0)
        delta_left = (query.delta - self.infinite) * (1 - SUM_ROUNDING)
        if delta_left > 0:
            return self.law.epsilon(delta_left)
        return math.inf


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of a question, from above and from below, at one tilt and to one tolerance.

    Attributes:
        game: the costs.
        query: the question.
        order: λ of the tilt.
        tolerance: by how much, relatively, the bounds on the answer may be off by groups and grids:
            a wish.
        group_work: the work that the recursions of its groups may take, in seconds; an estimate.
        guess: an upper bound on the answer that is known already.
        concentrated_game: the game of the concentrated costs, where it is played step by step; it
            may have all ranges in it. None where these costs are bounded by a Rényi curve.
        curve_with_ranges: whether one Rényi curve of the concentrated costs and the ranges is tried
            too. It takes long, and gets no better with other groups.
        _strategies: those made so far, by whether they play the last ranges by a recursion.
    """

    game: SetwiseGame
    query: Query
    order: float
    tolerance: float
    group_work: float
    guess: float
    concentrated_game: ConcentratedGame | None = None
    curve_with_ranges: bool = True
    _strategies: dict[bool, Strategy] = field(init=False, default_factory=dict)

    @cached_property
    def variance(self) -> float:
        """Return an estimate of the variance of the whole loss under the tilt, at least a small
        share of the untilted one: close to the largest loss differences of log-MGFs have no digits.
        """
        spread = math.fsum(part.spread() for part in self.game.parts)
        return max(self.game.variance(self.order), tuning.LEAST_VARIANCE * spread)

    @cached_property
    def groups(self) -> list[CostGroup]:
        """Return the groups into which the bounded ranges are split; none where there are no
        ranges.
        """
        ranges = self.game.ranges
        if not ranges or self._whole_game is not None:
            return []
        return partition(ranges, self.variance, self.tolerance, self.group_work, self.order)

    @property
    def _whole_game(self) -> ConcentratedGame | None:
        """Return the game of the concentrated costs if it has the ranges in it, else None."""
        if self.concentrated_game is not None and self.concentrated_game.ranges:
            return self.concentrated_game
        return None

    @cached_property
    def work(self) -> float:
        """Return an estimate of the work of both bounds, in seconds: node values of the groups,
        places of the lattice, and pairs that are multiplied.
        """
        game = self.game
        discrete = game.dominated.of(DiscreteGaussianDP).items()
        lattice_points = math.fsum(cost.scale * math.sqrt(n) for cost, n in discrete)
        factors = sum(part.factors() for part in game.parts) + FACTORS_OF_GROUP * len(self.groups)
        curves = 0
        if game.concentrated.costs:
            curves += 1
        if game.smoothed_split is not None:
            curves += 1
        work = math.fsum(group.work for group in self.groups)
        work += math.fsum(part.work() for part in game.parts)
        work += tuning.WORK_PER_LATTICE_POINT * lattice_points + tuning.WORK_PER_FACTOR * factors
        work += tuning.WORK_PER_CURVE * curves
        work += self._lattice_work()
        if not game.ranges or not game.needs_lower_bound(self.query):
            return work
        return work + self._work_of_strategies()

    def _lattice_work(self) -> float:
        """Return an estimate of the work, in seconds, of the lattice of the product, if its step is
        the finest step of the groups; 0 without groups.
        """
        finest = min((group.grid_step for group in self.groups), default=math.inf)
        deviation = math.sqrt(self.variance)
        return tuning.WORK_PER_PLACE * tuning.WINDOW / 2 * deviation / finest

    def _work_of_strategies(self) -> float:
        """Return an estimate of the work, in seconds, of the recursions, from above and from below,
        for the ranges that a strategy plays last.
        """
        last = last_ranges(self.game.ranges)
        count = sum(last.values())
        steps = steps_from_below(last, self.variance, self.tolerance)
        return 2 * CostGroup(((max(last), count),), steps=steps).work

    @property
    def reach(self) -> float:
        """Return the number z of standard deviations of a group's loss that matter: beyond, V <=
        e^{-z²/2}, by Hoeffding's inequality for bounded ranges, is a small share of δ. It is only
        a guess at what is worth computing.
        """
        copies = max(sum(group.copies for group in self.groups), 1)
        if self.query.epsilon is None:
            delta = self.query.delta
        else:
            # The δ is not known yet; it may be far below its upper bound, the guess.
            delta = self.guess / tuning.GUESS_ABOVE_DELTA
        # Each copy may lose its part of the share.
        share = tuning.WINDOW_SHARE * max(delta, FLOOR)
        z = math.sqrt(2 * math.log(copies / share))
        # A multiple of REACHES, so that the groups of other evaluations can be used again.
        return tuning.REACHES * math.ceil(z / tuning.REACHES)

    def pairs(self) -> list[GroupPair]:
        """Return the pairs of all groups of ranges, which bound them from above: of a group with
        levels or several ranges one pair, of a group of one range a pair for each size of its
        parts.
        """
        reach = self.reach
        pairs: list[GroupPair] = []
        for group in self.groups:
            if group.levels:
                pairs.append(weighted_ranges_pair(group.ranges, group.levels, reach=reach))
            elif not group.single:
                pairs.append(mixed_ranges_pair(group.ranges, group.steps, reach=reach))
            else:
                for count, times in group.sizes:
                    pair = equal_ranges_pair(group.largest, count, group.steps, reach=reach)
                    pairs.append(replace(pair, count=times))
        return pairs

    def upper_bound(self, query: Query | None = None) -> float:
        """Return the upper bound on the answer, by the best way to bound the concentrated costs;
        inf where no product is left.

        Args:
            query: what is asked; None: the evaluation's own query.
        """
        asked = query or self.query
        if self._whole_game is not None and not self.game.parts:
            start = self.guess if query is None else self.game.chernoff(query)[0]
            return answer_of_game(self._whole_game, asked, start).upper
        return min([product.answer(asked) for product in self.products], default=math.inf)

    @cached_property
    def products(self) -> list[DominatingProduct]:
        """Return the products of pairs from above, one for each way to bound the concentrated
        costs.

        One Rényi curve of everything is left out, because the refinement begins with it.
        """
        pairs = self.pairs()
        step = self.lattice_step(pairs)
        if self._whole_game is not None:
            return [self._product([*self.game.parts, self._whole_game.pair()], step)]
        all_costs = self.game.all_costs.count
        splits = [split for split in self.splits() if split.by_renyi.count < all_costs]
        products = [self._split_product(split, pairs, step) for split in splits]
        if self.concentrated_game is not None:
            parts = [*self.game.parts, *pairs, self.concentrated_game.pair()]
            products.append(self._product(parts, step))
        return products

    def splits(self) -> list[RenyiSplit]:
        """Return the ways to bound the concentrated costs by Rényi curves, of which the best one
        counts.
        """
        game = self.game
        splits = [RenyiSplit(Charge(), game.concentrated)]
        if game.concentrated.costs and game.ranges and self.curve_with_ranges:
            ranges = Charge(range_costs(game.ranges))
            splits.append(RenyiSplit(Charge(), Charge.join(game.concentrated, ranges)))
        if game.smoothed_split:
            splits.append(game.smoothed_split)
        return splits

    def bound_of_split(self, split: RenyiSplit, pairs: Sequence[GroupPair], step: float) -> float:
        """Return the upper bound on the answer with one of the splits; the arguments are those of
        ``_split_product``.
        """
        return self._split_product(split, pairs, step).answer(self.query)

    def _split_product(
        self, split: RenyiSplit, pairs: Sequence[GroupPair], step: float
    ) -> DominatingProduct:
        """Return the product that bounds the costs from above with one of the splits.

        Args:
            split: how the concentrated costs are bounded; its curve may include all bounded ranges.
            pairs: the pairs of the bounded ranges, used where the curve does not include these.
            step: the step of the product's lattice.
        """
        parts = [*self.game.parts]
        if not split.by_renyi.of(BoundedRange):
            parts += pairs
        parts += loss_components(split.gaussian)
        if split.by_renyi.costs:
            parts.append(self.renyi_pair(step, split.by_renyi))
        return self._product(parts, step)

    def lattice_step(self, pairs: Sequence[GroupPair]) -> float:
        """Return the step of the product's lattice; any step gives an upper bound.

        It is the step of the groups if these alone make up the charge and all have the same,
        otherwise one that is fine enough for the masses to be split between lattice points: each
        split of a mass adds up to a squared step to the variance.

        Args:
            pairs: the pairs of the groups that are multiplied.
        """
        game = self.game
        group_steps = {group.grid_step for group in self.groups}
        only_single = all(group.single for group in self.groups)
        only_ranges = not game.parts and not game.concentrated.costs
        if len(group_steps) == 1 and only_ranges and only_single:
            return group_steps.pop()
        splits = sum(part.roundings().above for part in game.parts)
        splits += sum(pair.count for pair in pairs)
        tolerance = tuning.SPLITTING * tuning.LATTICE_SHARE * self.tolerance
        step = math.sqrt(tolerance * self.variance / max(splits, 1))
        step = min(step, math.sqrt(self.variance) / tuning.CELLS_PER_STD)
        step = max(step, self._smallest_step())
        epsilon = self.query.epsilon
        if epsilon is not None and epsilon > step:
            # A lattice point at ε, where the chord touches.
            step = epsilon / math.ceil(epsilon / step)
        return step

    def _smallest_step(self) -> float:
        """Return the smallest step of a lattice that may be used, with which it has the most points
        that are allowed.
        """
        game = self.game
        spread = self.variance + math.fsum(part.spread() for part in game.parts)
        step = tuning.WINDOW * math.sqrt(spread) / tuning.MOST_POINTS
        if game.concentrated.costs:
            # The lattice reaches the ε asked or answered, which may be many deviations from the
            # mean.
            largest = self.guess if self.query.epsilon is None else self.query.epsilon
            step = max(step, largest / tuning.MOST_POINTS)
        return step

    def renyi_pair(self, step: float, by_renyi: Charge) -> GroupPair:
        """Return the pair of concentrated costs, perhaps together with bounded ranges, by their
        Rényi curve.

        Args:
            step: the step of the lattice, which is also that of the pair unless it would have too
                many points.
            by_renyi: the costs.
        """
        reach = self.guess if self.query.epsilon is None else self.query.epsilon
        reach += tuning.CONCENTRATED_REACH * math.sqrt(self.variance)
        finest = reach / tuning.CONCENTRATED_POINTS
        return concentrated_pair(by_renyi, max(step, finest), reach)

    def bound_of_product(self, parts: Sequence[LossComponent], step: float) -> float:
        """Return the upper bound on the query's answer by the product of pairs, computed on a
        lattice with this step.
        """
        return self._product(parts, step).answer(self.query)

    def _product(self, parts: Sequence[LossComponent], step: float) -> DominatingProduct:
        """Return the product of pairs on a lattice with this step; it says nothing where that would
        have too many places.
        """
        grid = Grid(step, self.order, 1)
        law: LossDistribution | None
        try:
            pairs = [pair for part in parts for pair in part.pairs(grid)]
            law = product(pairs, step=step, tilt=self.order, side=1)
        except OverflowError:
            law = None
        groups = [part for part in parts if isinstance(part, GroupPair)]
        infinite = math.fsum(part.infinite * part.count for part in groups) * (1 + SUM_ROUNDING)
        return DominatingProduct(law, infinite)

    def lower_bound(self, value: float, query: Query | None = None) -> float:
        """Return the lower bound on the answer: the best that one of some strategies reaches; 0
        where none is found.

        Args:
            value: the upper bound on the answer.
            query: what is asked; None: the evaluation's own query.
        """
        asked = query or self.query
        if self._whole_game is not None and not self.game.parts:
            return answer_of_game(self._whole_game, asked, value).lower
        best = 0.0
        low = self._smallest_tried_epsilon(value, asked)
        if self._strategy_before_game is not None:
            best = self._strategy_before_game.answer(asked, low, value)
        ranges = self.game.ranges
        if self._whole_game is not None:
            return best
        if not ranges:
            return max(best, self._lower_bound_without_ranges(asked, value))
        if len(ranges) <= MANY_RANGES:
            adaptive = self._strategy_for_all_costs(adaptive=True)
            best = max(best, adaptive.answer(asked, low, value))
        # Strategies with fixed t's are better where the grid is too coarse, close to the largest
        # loss, and quick for very many ranges.
        if value - best > tuning.SETTLED * self.tolerance * value:
            with_fixed_t = self._strategy_for_all_costs(adaptive=False)
            best = max(best, with_fixed_t.answer(asked, low, value))
        return best

    @property
    def _strategy_aim(self) -> StrategyAim:
        """Return what the strategies of this evaluation are made for."""
        return StrategyAim(self.order, self.variance, self.tolerance)

    @property
    def _other_costs(self) -> Charge:
        """Return the costs that a strategy plays beside the ranges: those with dominating pairs,
        and Gaussians for the concentrated ones.
        """
        game = self.game
        if game.concentrated.costs:
            return Charge.join(game.dominated, played_as_gaussians(game.concentrated))
        return game.dominated

    def _strategy_for_all_costs(self, *, adaptive: bool) -> Strategy:
        """Return a strategy for all costs, made when it is first asked for.

        Args:
            adaptive: whether the last ranges are played by a recursion, else each with a fixed t.
        """
        if adaptive not in self._strategies:
            self._strategies[adaptive] = nearly_best_strategy(
                self.game.ranges,
                self._other_costs,
                self._strategy_aim,
                steps={group.largest: group.steps for group in self.groups if group.single},
                reach=self.reach,
                adaptive=adaptive,
            )
        return self._strategies[adaptive]

    @cached_property
    def _strategy_before_game(self) -> Strategy | None:
        """Return the strategy that plays the concentrated costs last, by their game; None where
        they are not played so.
        """
        concentrated_game = self.concentrated_game
        if concentrated_game is None:
            return None
        if not concentrated_game.is_lower_bound_in(self.query.interaction, alone=False):
            return None
        game = self.game
        first_ranges = game.ranges
        last = game.concentrated
        if concentrated_game.ranges:
            last = Charge.join(last, Charge(range_costs(first_ranges)))
            first_ranges = {}
        return strategy_before(
            concentrated_game,
            first_ranges,
            game.dominated,
            self._strategy_aim,
            log_chernoff=log_chernoff_of(last, self.order),
        )

    def bound_by_games(self, parts: Sequence[PlayedPart]) -> float:
        """Return the upper bound on the answer by the product of the pairs of several games, which
        have all costs in them.
        """
        components = [component for part in parts for component in part.components()]
        pairs = [component for component in components if isinstance(component, GroupPair)]
        return self.bound_of_product(components, self.lattice_step(pairs))

    def lower_bound_by_games(self, parts: Sequence[PlayedPart], value: float) -> float:
        """Return the lower bound on the answer by a strategy that plays the game of the most
        variance last, and Gaussians for all other costs before.

        Args:
            parts: several games, which have all costs in them.
            value: the upper bound on the answer.
        """
        games = [(part.game.variance, part.game, part) for part in parts if part.game is not None]
        _, game, last = max(games, key=lambda played: played[0])
        others = [played_as_gaussians(part.costs) for part in parts if part is not last]
        gaussians = Charge.join(*others)
        strategy = strategy_before(
            game,
            {},
            gaussians,
            self._strategy_aim,
            log_chernoff=log_chernoff_of(last.costs, self.order),
        )
        low = self._smallest_tried_epsilon(value, self.query)
        return strategy.answer(self.query, low, value)

    def _smallest_tried_epsilon(self, value: float, query: Query) -> float:
        """Return the smallest ε at which a strategy is evaluated; 0 where the query states ε."""
        if query.epsilon is not None:
            return 0.0
        return max(value - tuning.STRATEGY_REACH * math.sqrt(self.variance), 0.0)

    def _lower_bound_without_ranges(self, query: Query, value: float) -> float:
        """Return the lower bound where there are no bounded ranges: by a product of pairs, or for a
        single ZCDP cost by a law with two outcomes.
        """
        query_of_product = replace(query, rtol=max(self.tolerance, FINEST_PRODUCT))
        product_below = certified_bracket(self._other_costs, query_of_product).lower
        costs = self.game.all_costs
        # One ZCDP cost alone: several could not be played by one law.
        if costs.count == 1 and costs.of(ZCDP):
            (cost,) = costs.of(ZCDP)
            return max(
                product_below, _lower_bound_by_two_outcomes(cost, query, value, product_below)
            )
        return product_below


def _lower_bound_by_two_outcomes(cost: ZCDP, query: Query, value: float, least: float) -> float:
    """Return a δ or an ε that a law with two outcomes attains for one ZCDP cost: for an ε one of a
    few below ``value``, or 0 if none above ``least`` is attained.

    Args:
        cost: the only cost.
        query: what is asked.
        value: the upper bound on the answer.
        least: a lower bound that is known already.
    """
    if query.epsilon is not None:
        return two_outcomes_delta(cost.rho, cost.xi, query.epsilon)
    for retreat in tuning.CONCENTRATED_RETREATS:
        x = value * (1 - retreat)
        if x <= least:
            break
        if two_outcomes_delta(cost.rho, cost.xi, x) > query.delta_below:
            return x
    return 0.0
