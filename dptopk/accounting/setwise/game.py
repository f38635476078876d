"""The registered costs of one question, sorted by how the engine treats them, with their moments.

Three kinds: costs with a pair of laws that dominates in both directions, bounded ranges, and
concentrated costs (ZCDP and CDP). The Rényi route gives the first upper bound on the answer and the
order λ at which the others are tilted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
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
from dptopk.accounting.gaussian.pair import gaussian_curve
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
SMALLEST_ORDER = 1e-290
LARGEST_SMOOTHED = 1e6  # variance of a Gaussian instead of zCDP costs: rounding stays small


class RenyiSplit(NamedTuple):
    """Costs in two parts that are bounded each in its way.

    Attributes:
        gaussian: a Gaussian cost that stands for small zCDP costs, or nothing.
        together: what one Rényi curve bounds.
    """

    gaussian: Charge
    together: Charge


class Reduction(NamedTuple):
    """A game in which one Gaussian stands for the small ranges.

    Attributes:
        added: about the variance that bounding it adds.
        game: the game.
    """

    added: float
    game: SetwiseGame


class _Smoothing(NamedTuple):
    """Concentrated costs of which the small ones become one Gaussian by Theorem H.

    Attributes:
        cut: the largest zCDP constant of a small one.
        variance: of the Gaussian; inf where no cost is small.
        added: about the variance of all costs together, when bounded in this way.
    """

    cut: float
    variance: float
    added: float

    @classmethod
    def of(cls, cut: float, rhos: Mapping[Cost, float], counts: Mapping[Cost, int]) -> _Smoothing:
        """The costs with these zCDP constants and counts, cut there."""
        small: Counter[float] = Counter()
        for cost, rho in rhos.items():
            if 0 < rho <= cut:
                small[rho] += counts[cost]
        variance = concentrated_gaussian(small) if small else math.inf
        total = math.fsum(n * rhos[cost] for cost, n in counts.items())
        left_over = total - math.fsum(rho * n for rho, n in small.items())
        return cls(cut, variance, variance + tuning.SMOOTHED * 2 * left_over)

    @property
    def possible(self) -> bool:
        """Whether such a Gaussian is neither too narrow nor too wide."""
        return SMALLEST_LOSS < self.variance < LARGEST_SMOOTHED and self.added < math.inf

    @property
    def gaussian(self) -> GaussianDP:
        """The Gaussian cost, rounded up."""
        return GaussianDP(math.sqrt(self.variance) * (1 + 4 * ROUNDOFF))


class SetwiseGame:
    """The costs of one question.

    Args:
        ranges: the ε's of the BR costs with counts.
        rest: the costs with dominating pairs.
        concentrated: the ZCDP and CDP costs.
        stand_in: the Gaussian cost, one copy in ``rest``, that stands for ``small``.
        small: the costs that it stands for by Theorem H; they are in none of the other parts.
    """

    def __init__(
        self,
        ranges: Mapping[float, int],
        rest: Charge,
        concentrated: Charge | None = None,
        *,
        stand_in: GaussianDP | None = None,
        small: Charge | None = None,
    ) -> None:
        self.ranges = dict(sorted(ranges.items()))
        self.rest = rest
        self.concentrated = concentrated or Charge()
        self.stand_in = stand_in
        self.small = small or Charge()
        bounded = range_costs(self.ranges)
        self.whole = Charge({**rest.costs, **self.concentrated.costs, **bounded})
        self.parts = loss_components(rest)
        self.top = pure_sum(self.whole)
        self._log_mgf = log_mgf(self.whole)

    @classmethod
    def _parts_of(cls, charge: Charge) -> tuple[dict[float, int], Charge, Charge]:
        """The ranges, the costs with dominating pairs, and the concentrated costs of a charge
        without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        ranges = {cost.epsilon: times for cost, times in charge.of(BoundedRange).items()}
        if any(not SMALLEST_RANGE <= epsilon <= LARGEST_RANGE for epsilon in ranges):
            raise NotApplicable(f"a range outside [{SMALLEST_RANGE}, {LARGEST_RANGE}]")
        others = {
            cost: times for cost, times in charge if not isinstance(cost, BoundedRange | ZCDP | CDP)
        }
        rest = Charge(others)
        if max(rest.of(PureDP).values(), default=0) > MOST_BINOMIAL_COPIES:
            raise NotApplicable(f"more than {MOST_BINOMIAL_COPIES:.0e} copies of one epsilon")
        spreads = [part.spread() for part in loss_components(rest)]
        if not min(spreads, default=math.inf) > SMALLEST_LOSS**2:
            raise NotApplicable("a cost so small that its square underflows")
        return ranges, rest, Charge(charge.of(ZCDP, CDP))

    def bracketed(self, query: Query) -> bool:
        """Whether to compute a lower bound: if requested, or to judge whether a split into groups
        is sharp enough.
        """
        several = 1 < len(self.ranges) < tuning.MOST_RANGES / 2
        return query.lower or (several and not self.concentrated.costs)

    def chernoff(self, query: Query) -> tuple[float, float]:
        """(upper bound on what is asked by the Rényi route, its order λ)."""
        best, order = self._best_order(query)
        if query.epsilon is None:
            epsilon = float(outward(max(best, 0.0), 1e-12))
            return min(epsilon, self.top), order
        log_delta = min(best + 1e-12 * (1 + abs(best)), 0.0)
        delta = float(outward(math.exp(log_delta)))
        return min(1.0, max(delta, FLOOR)), order

    def _best_order(self, query: Query) -> tuple[float, float]:
        """(the smallest ln δ or ε of the Rényi route that was found, its order λ); any order is
        sound.
        """
        variance = max(self.variance(self._order_with_moment()), 1e-20)
        centre = -math.log(math.sqrt(variance))  # of ln λ
        low = centre - 14.0
        high = centre + 14.0
        if len(self.whole.costs) > MANY_ADDENDS:
            orders = tuning.FEW_ORDERS
        else:
            orders = tuning.ORDERS
        best = math.inf
        order = 1.0
        for _ in range(tuning.ZOOMS):
            grid = np.exp(np.linspace(low, high, orders))
            values = self._converted(grid, query)
            at = int(np.nanargmin(values))
            best = min(best, float(values[at]))
            order = float(grid[at])
            low = math.log(grid[max(at - 1, 0)])
            high = math.log(grid[min(at + 1, len(grid) - 1)])
        return best, order

    def _order_with_moment(self) -> float:
        """An order with a finite moment: where losses have exponential tails, beyond some λ all
        is inf.
        """
        start = 1.0
        while not math.isfinite(self._log_mgf(np.array([start]))[0]):
            start /= 2
            if start < SMALLEST_ORDER:
                raise OverflowError("a loss that has no moment")
        return start

    def _converted(self, grid: Floats, query: Query) -> Floats:
        """At each order λ, ln δ at the ε asked for, or ε at the δ asked for."""
        bounds: Floats = self._log_mgf(grid) * (1 + 2 * LOG_MGF_ERROR)
        peaks = np.array(log_peaks(grid.tolist()))
        bounds += 1e-14 * np.abs(peaks)
        log_chernoff = bounds + peaks
        if query.epsilon is not None:
            return log_chernoff - grid * query.epsilon * (1 - 1e-14)
        return (log_chernoff - math.log(query.delta)) / grid

    def by_one_gaussian(self, query: Query) -> float:
        """The upper bound of Theorem H on everything; the trivial one where it does not apply."""
        trivial = math.inf if query.epsilon is None else 1.0
        try:
            mu = gaussian_of(self.whole).mu
        except NotApplicable:
            return trivial
        curve = gaussian_curve(mu)
        if query.epsilon is not None:
            return min(float(curve.delta(query.epsilon)), trivial)
        return float(curve.epsilon(query.delta))

    def log_chernoff(self, order: float) -> Callable[[Mapping[float, int]], float]:
        """The ln C of V_B(x) <= C e^{-λx} for ranges B at one order λ."""

        def of(ranges: Mapping[float, int]) -> float:
            return log_chernoff_of(Charge(range_costs(ranges)), order)

        return of

    def variance(self, order: float) -> float:
        """About the variance of the whole loss under the tilt, by differences for what is not a
        bounded range.
        """
        beside = self._beside
        curvature = 0.0
        if beside.costs:
            step = 1e-3 * order
            around = np.array([order - step, order, order + step])
            down, here, up = log_mgf(beside)(around).tolist()
            if math.isinf(up):  # the last order at which exponential tails have a moment is near
                down, here, up = log_mgf(beside)(around - step).tolist()
            curvature = max((up - 2 * here + down) / step**2, 0.0)
        squares = math.fsum(n * epsilon * epsilon for epsilon, n in self.ranges.items())
        return squares / 4 + curvature

    @cached_property
    def smoothed(self) -> RenyiSplit | None:
        """The concentrated costs, the small ones as one Gaussian by Theorem H, if it may help."""
        counts = self.concentrated.of(ZCDP, CDP)
        rhos = {cost: zcdp_constant(cost) for cost in counts}
        top = max((rho for rho in rhos.values() if rho <= LARGEST_RHO), default=0.0)
        if not top or self.concentrated.count <= 1:
            return None
        tried = [
            _Smoothing.of(top / 2**halvings, rhos, counts)
            for halvings in range(tuning.SMOOTHED_CUTS)
        ]
        possible = (one for one in tried if one.possible)
        best = min(possible, key=lambda one: one.added, default=None)
        if best is None:
            return None
        others = {cost: n for cost, n in counts.items() if not 0 < rhos[cost] <= best.cut}
        return RenyiSplit(Charge({best.gaussian: 1}), Charge(others))

    @cached_property
    def _beside(self) -> Charge:
        return Charge({**self.rest.costs, **self.concentrated.costs})

    @cached_property
    def reductions(self) -> list[Reduction]:
        """This game with its small ranges replaced by one Gaussian (Theorem H''), for a few cuts.

        The largest ranges stay as they are; which cuts look best is a guess by the variance that
        groups and Theorem H add.
        """
        if len(self.ranges) < tuning.FEWEST_REDUCED or self.stand_in is not None:
            return []
        falling = sorted(self.ranges.items(), reverse=True)
        cuts = range(min(len(falling), tuning.MOST_LEFT) + 1)
        added = {left: self._added(falling, left) for left in cuts}
        best = sorted(cuts, key=lambda left: added[left])[: tuning.CUTS]
        found: list[Reduction] = []
        for left in best:
            large = dict(falling[:left])
            small = dict(falling[left:])
            game = self._reduced(large, small)
            if game is not None:
                found.append(Reduction(added[left], game))
        return found

    def _added(self, falling: list[tuple[float, int]], left: int) -> float:
        """About the variance that bounding adds if the ``left`` largest ranges are played
        exactly.
        """
        groups = math.fsum(tuning.GROUP * epsilon**2 for epsilon, _ in falling[:left:2])
        small = {zcdp_constant(BoundedRange(epsilon)): n for epsilon, n in falling[left:]}
        if not small or max(small) > LARGEST_RHO:
            return math.inf
        their_variance = 2 * math.fsum(rho * n for rho, n in small.items())
        return groups + concentrated_gaussian(small) - their_variance

    def _reduced(
        self, ranges: Mapping[float, int], small: Mapping[float, int]
    ) -> SetwiseGame | None:
        """The game in which one Gaussian stands for the small ranges; None where it cannot."""
        try:
            stand_in = gaussian_of(Charge(range_costs(small)))
        except NotApplicable:
            return None
        if stand_in in self.rest.costs or (not ranges and not self.rest.costs):
            return None
        rest = Charge({**self.rest.costs, stand_in: 1})
        kept = Charge(range_costs(small))
        return SetwiseGame(ranges, rest, self.concentrated, stand_in=stand_in, small=kept)


def log_chernoff_of(charge: Charge, order: float) -> float:
    """The ln C of V(x) <= C e^{-λx} for everything in a charge, at one order λ."""
    total = 0.0
    if charge.costs:
        total = float(log_mgf(charge)(np.array([order]))[0])
    constant = log_peak(order)
    rounding = 1e-14 * (abs(total) + abs(constant))
    return total * (1 + 2 * LOG_MGF_ERROR) + constant + rounding


def range_costs(ranges: Mapping[float, int]) -> dict[Cost, int]:
    """The BR costs with these ε's and counts."""
    return {BoundedRange(epsilon): count for epsilon, count in ranges.items()}
