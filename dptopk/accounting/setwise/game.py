"""The registered costs of one question, sorted by how the engine treats them, with their moments.

Three kinds: costs with a pair of laws that dominates in both directions, bounded ranges, and
concentrated costs (ZCDP and CDP). The Rényi route gives the first upper bound on the answer and the
order λ at which the others are tilted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats, outward
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.cost_models.dominating_pairs import (
    MOST_BINOMIAL_COPIES,
    SMALLEST_LOSS,
    loss_components,
)
from dptopk.accounting.curves import Query
from dptopk.accounting.gaussian.pair import gaussian_curve, gaussian_epsilon_at
from dptopk.accounting.pld.log_mgf import LOG_MGF_ERROR, MANY_ADDENDS
from dptopk.accounting.pld.tilt import log_peak, log_peaks
from dptopk.accounting.renyi.renyi_curves import log_mgf
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.zcdp_gaussian import (
    LARGEST_RHO,
    concentrated_gaussian,
    gaussian_of,
    zcdp_constant,
)
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import NotApplicable

# e^ε and its products must not overflow, and the rounding of a step must stay small.
SMALLEST_RANGE = 1e-9
LARGEST_RANGE = 100.0
SMALLEST_ORDER = 1e-290  # below, a loss counts as one without any moment
LARGEST_SMOOTHED = 1e6  # variance of a Gaussian instead of zCDP costs: rounding stays small
# ln λ is looked for this far on either side of a guess, -ln(deviation).
LOG_ORDER_REACH = 14.0
SMALLEST_VARIANCE = 1e-20  # of a loss, for that guess
LOG_ROUNDING = 1e-14  # relative, of a sum or a product of a few logarithms
ANSWER_ROUNDING = 1e-12  # relative, of the answer of the Rényi route


class RenyiSplit(NamedTuple):
    """Concentrated costs in two parts, of which each is bounded in its own way.

    Attributes:
        gaussian: one copy of the Gaussian cost that stands for small zCDP costs, or an empty
            charge.
        by_renyi: the costs that one Rényi curve bounds together.
    """

    gaussian: Charge
    by_renyi: Charge


class ChernoffBound(NamedTuple):
    """An upper bound on an answer by a Rényi curve.

    Attributes:
        value: the bound, on δ or on ε.
        order: the order λ at which the curve gives it.
    """

    value: float
    order: float


class Reduction(NamedTuple):
    """A game in which one Gaussian stands for the small bounded ranges.

    Attributes:
        added: about by how much the bound's variance of the loss exceeds the true one.
        game: the game with the Gaussian.
    """

    added: float
    game: SetwiseGame


class _Smoothing(NamedTuple):
    """Concentrated costs, of which the small ones become one Gaussian by Theorem H.

    Attributes:
        cut: the largest zCDP constant of a small cost.
        variance: the variance of the Gaussian's loss; inf where no cost is small.
        total: an estimate of the variance of the loss of all costs, as this smoothing bounds them:
            the less, the better it is.
    """

    cut: float
    variance: float
    total: float

    @classmethod
    def of(cls, cut: float, rhos: Mapping[Cost, float], counts: Mapping[Cost, int]) -> _Smoothing:
        """Return the smoothing in which the costs with a zCDP constant of at most ``cut`` are
        small.

        Args:
            cut: the largest zCDP constant of a small cost.
            rhos: the zCDP constant of each cost.
            counts: how often each cost occurs.
        """
        small: Counter[float] = Counter()
        for cost, rho in rhos.items():
            if 0 < rho <= cut:
                small[rho] += counts[cost]
        variance = concentrated_gaussian(small) if small else math.inf
        sum_of_rhos = math.fsum(n * rhos[cost] for cost, n in counts.items())
        rhos_of_others = sum_of_rhos - math.fsum(rho * n for rho, n in small.items())
        # The conversion of the others is worth about a Gaussian of SMOOTHED times their 2 Σ ρ.
        return cls(cut, variance, variance + tuning.SMOOTHED * 2 * rhos_of_others)

    @property
    def is_usable(self) -> bool:
        """Return whether the variance is in the range in which a Gaussian's profile can be
        computed.
        """
        return SMALLEST_LOSS < self.variance < LARGEST_SMOOTHED and self.total < math.inf

    @property
    def gaussian(self) -> GaussianDP:
        """Return the Gaussian cost that stands for the small costs, its μ rounded up."""
        return GaussianDP(math.sqrt(self.variance) * (1 + 4 * ROUNDOFF))


def _best_smoothing(
    largest: float, rhos: Mapping[Cost, float], counts: Mapping[Cost, int]
) -> _Smoothing | None:
    """Return the smoothing with the least total variance, of those whose cut is ``largest`` halved
    several times; None where none has a usable Gaussian.

    Args:
        largest: the largest zCDP constant of a cost that may be small.
        rhos: the zCDP constant of each cost.
        counts: how often each cost occurs.
    """
    best: _Smoothing | None = None
    for halvings in range(tuning.SMOOTHED_CUTS):
        smoothing = _Smoothing.of(largest / 2**halvings, rhos, counts)
        if smoothing.is_usable and (best is None or smoothing.total < best.total):
            best = smoothing
    return best


class SetwiseGame:
    """The costs of one question, sorted by how the engine bounds them.

    Args:
        ranges: the ε's of the BR costs with counts.
        dominated: the costs with dominating pairs.
        concentrated: the ZCDP and CDP costs.
        stand_in: the Gaussian cost, one copy in ``dominated``, that stands for ``small``.
        small: the costs that it stands for by Theorem H; they are in none of the other parts.

    Attributes:
        all_costs: all of them as one charge, with the stand-in and without ``small``.
        parts: the losses of the dominated costs.
        largest_loss: the largest loss that all costs together can have; inf where there is none.
    """

    def __init__(
        self,
        ranges: Mapping[float, int],
        dominated: Charge,
        concentrated: Charge | None = None,
        *,
        stand_in: GaussianDP | None = None,
        small: Charge | None = None,
    ) -> None:
        """Sort the costs, and prepare the loss components and the log-MGF of all of them."""
        self.ranges = dict(sorted(ranges.items()))
        self.dominated = dominated
        self.concentrated = concentrated or Charge()
        self.stand_in = stand_in
        self.small = small or Charge()
        bounded = range_costs(self.ranges)
        self.all_costs = Charge({**dominated.costs, **self.concentrated.costs, **bounded})
        self.parts = loss_components(dominated)
        self.largest_loss = pure_sum(self.all_costs)
        self._log_mgf = log_mgf(self.all_costs)

    @classmethod
    def _sorted_costs(cls, charge: Charge) -> tuple[dict[float, int], Charge, Charge]:
        """Return the bounded ranges (ε with its count), the costs with dominating pairs, and the
        concentrated costs of a charge without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        ranges = {cost.epsilon: times for cost, times in charge.of(BoundedRange).items()}
        if any(not SMALLEST_RANGE <= epsilon <= LARGEST_RANGE for epsilon in ranges):
            raise NotApplicable(f"a range outside [{SMALLEST_RANGE}, {LARGEST_RANGE}]")
        others = {
            cost: times for cost, times in charge if not isinstance(cost, BoundedRange | ZCDP | CDP)
        }
        dominated = Charge(others)
        if max(dominated.of(PureDP).values(), default=0) > MOST_BINOMIAL_COPIES:
            raise NotApplicable(f"more than {MOST_BINOMIAL_COPIES:.0e} copies of one epsilon")
        spreads = [part.spread() for part in loss_components(dominated)]
        if not min(spreads, default=math.inf) > SMALLEST_LOSS**2:
            raise NotApplicable("a cost so small that its square underflows")
        return ranges, dominated, Charge(charge.of(ZCDP, CDP))

    def needs_lower_bound(self, query: Query) -> bool:
        """Return whether a lower bound is computed as well: because the query asks for one, or to
        judge whether a split of the ranges into groups is sharp enough, where these are few enough
        (less than MOST_RANGES / 2) for a strategy to be found in time.
        """
        several = 1 < len(self.ranges) < tuning.MOST_RANGES / 2
        return query.lower or (several and not self.concentrated.costs)

    def chernoff(self, query: Query) -> ChernoffBound:
        """Return an upper bound on the answer by the Rényi route, all costs in one curve, with the
        order λ that gives it.
        """
        best = self._best_order(query)
        if query.epsilon is None:
            epsilon = float(outward(max(best.value, 0.0), ANSWER_ROUNDING))
            return ChernoffBound(min(epsilon, self.largest_loss), best.order)
        log_delta = min(best.value + ANSWER_ROUNDING * (1 + abs(best.value)), 0.0)
        delta = float(outward(math.exp(log_delta)))
        return ChernoffBound(min(1.0, max(delta, FLOOR)), best.order)

    def _best_order(self, query: Query) -> ChernoffBound:
        """Return the smallest bound of the Rényi route that was found, not rounded: on ln δ where
        the query states ε, otherwise on ε. The search may miss the best order; every order gives
        an upper bound.
        """
        variance = max(self.variance(self._order_with_moment()), SMALLEST_VARIANCE)
        centre = -math.log(math.sqrt(variance))
        low = centre - LOG_ORDER_REACH
        high = centre + LOG_ORDER_REACH
        if len(self.all_costs.costs) > MANY_ADDENDS:
            orders = tuning.FEW_ORDERS
        else:
            orders = tuning.ORDERS
        best = math.inf
        order = 1.0
        for _ in range(tuning.ZOOMS):
            grid = np.exp(np.linspace(low, high, orders))
            values = self._bounds_by_order(grid, query)
            place = int(np.nanargmin(values))
            best = min(best, float(values[place]))
            order = float(grid[place])
            # The next, finer grid lies between the neighbours of the best order.
            low = math.log(grid[max(place - 1, 0)])
            high = math.log(grid[min(place + 1, len(grid) - 1)])
        return ChernoffBound(best, order)

    def _order_with_moment(self) -> float:
        """Return an order λ <= 1 with a finite moment: a loss with exponential tails has none
        beyond some λ.

        Raises:
            OverflowError: when no order from SMALLEST_ORDER on has one.
        """
        start = 1.0
        while not math.isfinite(self._log_mgf(np.array([start]))[0]):
            start /= 2
            if start < SMALLEST_ORDER:
                raise OverflowError("a loss that has no moment")
        return start

    def _bounds_by_order(self, orders: Floats, query: Query) -> Floats:
        """Return, for each order λ, an upper bound on ln δ at the query's ε, or on ε at its δ.

        They solve ln δ = K(λ) + ln peak(λ) - λε, where K is the log-MGF and peak(λ) the largest
        value of (1 - e^{-y})_+ e^{-λy} over y (``tilt.log_peak``).
        """
        bounds: Floats = self._log_mgf(orders) * (1 + 2 * LOG_MGF_ERROR)
        peaks = np.array(log_peaks(orders.tolist()))
        bounds += LOG_ROUNDING * np.abs(peaks)
        log_chernoff = bounds + peaks
        if query.epsilon is not None:
            return log_chernoff - orders * query.epsilon * (1 - LOG_ROUNDING)
        return (log_chernoff - math.log(query.delta)) / orders

    def one_gaussian_bound(self, query: Query) -> float:
        """Return the upper bound of Theorem H, which replaces all costs by one Gaussian.

        Returns:
            A bound on δ (at most 1) or on ε; the trivial bound 1 or inf where the theorem does not
                apply.
        """
        try:
            mu = gaussian_of(self.all_costs).mu
        except NotApplicable:
            return math.inf if query.epsilon is None else 1.0
        if query.epsilon is not None:
            return min(float(gaussian_curve(mu).delta(query.epsilon)), 1.0)
        return gaussian_epsilon_at(mu, query.delta)

    def variance(self, order: float) -> float:
        """Return an estimate of the variance of the whole loss under the tilt λ = ``order``: ε²/4
        for each bounded range, and for the other costs the second derivative of their log-MGF, by
        differences.
        """
        others = self._costs_without_ranges
        curvature = 0.0
        if others.costs:
            # Small beside λ, and large enough for the differences to have digits.
            step = 1e-3 * order
            orders = np.array([order - step, order, order + step])
            before, middle, after = log_mgf(others)(orders).tolist()
            if math.isinf(after):  # the last order at which exponential tails have a moment is near
                before, middle, after = log_mgf(others)(orders - step).tolist()
            curvature = max((after - 2 * middle + before) / step**2, 0.0)
        squares = math.fsum(n * epsilon * epsilon for epsilon, n in self.ranges.items())
        return squares / 4 + curvature

    @cached_property
    def smoothed_split(self) -> RenyiSplit | None:
        """Return the concentrated costs with the small ones as one Gaussian (Theorem H), or None.

        None means that no cut makes a Gaussian of usable variance, or that a single cost is all
        there is. Of the cuts the one is chosen that seems to add the least variance.
        """
        counts = self.concentrated.of(ZCDP, CDP)
        rhos = {cost: zcdp_constant(cost) for cost in counts}
        largest = max((rho for rho in rhos.values() if rho <= LARGEST_RHO), default=0.0)
        if not largest or self.concentrated.count <= 1:
            return None
        best = _best_smoothing(largest, rhos, counts)
        if best is None:
            return None
        others = {cost: n for cost, n in counts.items() if not 0 < rhos[cost] <= best.cut}
        return RenyiSplit(Charge({best.gaussian: 1}), Charge(others))

    @cached_property
    def _costs_without_ranges(self) -> Charge:
        """Return the costs other than bounded ranges."""
        return Charge({**self.dominated.costs, **self.concentrated.costs})

    @cached_property
    def reductions(self) -> list[Reduction]:
        """Return this game with its small ranges replaced by one Gaussian (Theorem H''), for a few
        numbers of large ranges, which stay as they are.

        Which numbers look best is a guess by the variance that groups and Theorem H add.
        """
        if len(self.ranges) < tuning.FEWEST_REDUCED or self.stand_in is not None:
            return []
        falling = sorted(self.ranges.items(), reverse=True)
        numbers_of_large = range(min(len(falling), tuning.MOST_LEFT) + 1)
        added = {number: self._added_variance(falling, number) for number in numbers_of_large}
        best_numbers = sorted(numbers_of_large, key=lambda number: added[number])[: tuning.CUTS]
        reductions: list[Reduction] = []
        for number in best_numbers:
            large = dict(falling[:number])
            small = dict(falling[number:])
            game = self._game_with_stand_in(large, small)
            if game is not None:
                reductions.append(Reduction(added[number], game))
        return reductions

    def _added_variance(self, falling: list[tuple[float, int]], number_of_large: int) -> float:
        """Return an estimate of the variance that bounding adds if the largest ranges are played
        by recursions, two of them in a group, and one Gaussian stands for the others; inf where
        there are no others, or Theorem H does not apply to them.

        Args:
            falling: (ε, count) of each range, the largest ε first.
            number_of_large: how many of the largest ranges are played by recursions.
        """
        large = falling[:number_of_large]
        added_by_groups = math.fsum(tuning.GROUP * epsilon**2 for epsilon, _ in large[::2])
        small = {
            zcdp_constant(BoundedRange(epsilon)): n for epsilon, n in falling[number_of_large:]
        }
        if not small or max(small) > LARGEST_RHO:
            return math.inf
        variance_of_small = 2 * math.fsum(rho * n for rho, n in small.items())
        return added_by_groups + concentrated_gaussian(small) - variance_of_small

    def _game_with_stand_in(
        self, ranges: Mapping[float, int], small: Mapping[float, int]
    ) -> SetwiseGame | None:
        """Return the game in which one Gaussian stands for small ranges; None where Theorem H does
        not apply to them, or where nothing else would be left to bound.

        Args:
            ranges: the ε's of the other ranges with counts.
            small: the ε's of the small ranges with counts.
        """
        try:
            stand_in = gaussian_of(Charge(range_costs(small)))
        except NotApplicable:
            return None
        if not ranges and not self.dominated.costs:
            return None
        if stand_in in self.dominated.costs:  # the two could not be told apart
            return None
        dominated = Charge({**self.dominated.costs, stand_in: 1})
        small_costs = Charge(range_costs(small))
        return SetwiseGame(
            ranges, dominated, self.concentrated, stand_in=stand_in, small=small_costs
        )


def log_chernoff_of(charge: Charge, order: float) -> float:
    """Return an upper bound on the ln C of V(x) <= C e^{-λx}, V being the largest δ at x of all
    costs of a charge: C = e^K peak(λ) as in ``SetwiseGame.chernoff``.

    Args:
        charge: costs of any type with a Rényi curve; without costs V(x) = [1 - e^x]_+.
        order: λ > 0.
    """
    log_moment = 0.0
    if charge.costs:
        log_moment = float(log_mgf(charge)(np.array([order]))[0])
    log_of_peak = log_peak(order)
    rounding = LOG_ROUNDING * (abs(log_moment) + abs(log_of_peak))
    return log_moment * (1 + 2 * LOG_MGF_ERROR) + log_of_peak + rounding


def range_costs(ranges: Mapping[float, int]) -> dict[Cost, int]:
    """Return the BR costs with these ε's as a dict from cost to count."""
    return {BoundedRange(epsilon): count for epsilon, count in ranges.items()}
