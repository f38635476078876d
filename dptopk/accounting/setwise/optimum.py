"""The optimal bound for a registered set of costs, played in any order and adaptively: Theorems A and B.

A charge splits into B, its bounded-range costs, and D, the costs with a pair of laws that dominates in both directions.
The optimum over all adaptive, set-wise interactions is (docs/setwise.md)

    δ_opt(x) = p_inf + E_{L ~ finite product loss of D}[ V_B(x - L) ],

with V_B from ``recursion`` and the loss of D on a grid (``dominating_pairs``), both between an upper and a lower bound;
p_inf has been split off beforehand. The grids are refined until the two answers agree to the tolerance asked for, or
time is up; the answer is the upper one either way. Without bounded-range costs it is the product of the pairs alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from dptopk.accounting.bounds import bound
from dptopk.accounting.curves import ROUNDOFF, Answer, Curve, Floats, Query, outward
from dptopk.accounting.pld.dominating_pairs import DOMINATED, certified_bracket, sources
from dptopk.accounting.pld.lattice import log_peak
from dptopk.accounting.pld.sources import Grid
from dptopk.accounting.pure_dp.heterogeneous import MOST_COPIES
from dptopk.accounting.renyi.composition import log_mgf, pure_sum
from dptopk.accounting.renyi.log_mgf import LOG_MGF_ERROR
from dptopk.accounting.setwise.atoms import Atoms
from dptopk.accounting.setwise.recursion import FLOOR, Band, OutOfTime, ValueFunction, solve, solve_in_order
from dptopk.accounting.setwise.steps import common_grid, first_steps
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, DiscreteGaussianDP, PureDP
from dptopk.errors import NotApplicable

__all__ = ["Bracket", "SetwiseCurve", "optimal_setwise"]

# Grid steps for the largest ε: on the first run and at most; seconds a state takes at first (a guess).
FIRST_STEPS, MOST_STEPS = 8, 1024
SECONDS_PER_STATE = 1.5e-4
SECONDS_PER_LATTICE_POINT = 5e-5  # of a wide discrete Gaussian, whose lattice is split for every grid
# With at least MANY costs the bracket is about WIDTH h² / ε² wide, and up to MOST_ALONE steps are tried at once.
MANY, WIDTH, MOST_ALONE = 30, 0.95, 96
# Above this many multisets of different ε's the smaller ones are rounded up to larger ones.
MOST_STATES = 6_000
# ... unless that raises Σ ε² by more than this factor: then the answer is left to the Rényi route.
MOST_ROUNDING = 1.2
# Atoms that the loss of D may have on a grid.
MOST_ATOMS = 200_000
# e^ε and its products must not overflow, and the rounding of a step must stay small.
SMALLEST_RANGE, LARGEST_RANGE = 1e-9, 100.0
TINY = 1e-200
TIME_RAN_OUT = "time ran out before the bracket was as narrow as asked"


@dataclass(frozen=True)
class Bracket:
    """δ_opt between two bounds, from one pair of runs of the recursion; both take any finite x."""

    above: ValueFunction
    below: ValueFunction
    atoms_above: Atoms
    atoms_below: Atoms

    def upper(self, x: Floats) -> Floats:
        """Upper bound on δ_opt at every x of a one-dimensional array."""
        values = self.above.upper(np.subtract.outer(x, self.atoms_above.losses))
        total = values @ self.atoms_above.masses * (1 + ROUNDOFF * (len(self.atoms_above.masses) + 8))
        return np.minimum(total + self.atoms_above.error(x) + FLOOR, 1.0)

    def lower(self, x: Floats) -> Floats:
        """Lower bound on δ_opt at every x of a one-dimensional array."""
        values = self.below.lower(np.subtract.outer(x, self.atoms_below.losses), self.above)
        total = values @ self.atoms_below.masses * (1 - ROUNDOFF * (len(self.atoms_below.masses) + 8))
        return np.maximum(total - self.atoms_below.error(x) - FLOOR, 0.0)

    def answer(self, query: Query, low: float, high: float) -> tuple[float, float]:
        """(upper, lower) bound on what is asked; for ε, searched for between ``low`` and ``high``."""
        if query.epsilon is not None:
            x = np.array([query.epsilon])
            return float(self.upper(x)[0]), float(self.lower(x)[0])
        return (
            _crossing(self.upper, query.delta, low, high)[1],
            _crossing(self.lower, query.delta, low, high)[0],
        )


def _crossing(function: Callable[[Floats], Floats], level: float, low: float, high: float) -> tuple[float, float]:
    """Close points with function > level at the first and <= level at the second; (0, ...) or (..., high) at worst.

    Finer and finer grids, then clusters around the root of the chord of ln function; what is returned was evaluated.
    """
    values = function(np.array([low, high]))
    if values[0] <= level:
        return 0.0, low
    at = np.array([values[0], max(float(values[1]), level * 1e-9)])
    for shares in (_GRID, _GRID, _CLUSTER, _CLUSTER, _CLUSTER):
        rise = math.log(at[0] / level) if at[0] > level else 0.0
        root = rise / math.log(at[0] / at[1]) if shares is _CLUSTER and at[0] > at[1] else 0.0
        points = np.append(low + (high - low) * np.clip(root + shares, 0.0, 1.0), high)
        values = np.append(function(points[:-1]), at[1])
        above = np.flatnonzero(values > level)
        if not above.size:
            return low, float(points[0])
        last = min(int(above[-1]), len(points) - 2)
        low, high = float(points[last]), float(points[last + 1])
        at = np.array([values[last], max(float(values[last + 1]), level * 1e-9)])
    return low, high


_GRID = np.linspace(0, 1, 13)[:-1]
_CLUSTER = np.array([-0.1, -1e-2, -1e-3, -1e-5, 1e-5, 1e-3, 1e-2, 0.1])


class SetwiseCurve(Curve):
    """The optimum for bounded-range costs and costs with dominating pairs; see the module docstring.

    Args:
        ranges: the ε's of the BR costs with counts, at least one.
        rest: the other costs, of the types ``DOMINATED``.
    """

    def __init__(self, ranges: Mapping[float, int], rest: Charge) -> None:
        self.ranges = dict(ranges)
        self.rounded = _rounded_up(ranges, MOST_STATES)
        self.rest = rest
        self.parts = sources(rest)
        whole = Charge({**rest.costs, **{BoundedRange(e): n for e, n in self.ranges.items()}})
        self.top = pure_sum(whole)
        self._log_mgf, self._rest_log_mgf = log_mgf(whole), log_mgf(rest)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Upper bound on δ, each refined to a relative 1e-3 or for ten seconds."""
        x = np.asarray(epsilon, dtype=float)
        return np.array([self.answer(Query(epsilon=float(e))).value for e in x.ravel()]).reshape(x.shape)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Upper bound on ε, each refined to a relative 1e-3 or for ten seconds."""
        d = np.asarray(delta, dtype=float)
        return np.array([self.answer(Query(delta=float(e))).value for e in d.ravel()]).reshape(d.shape)

    def answer(self, query: Query) -> Answer:
        """The answer, refined until the bracket is within ``query.rtol`` or time is up."""
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.top)
        if query.epsilon is not None and query.epsilon >= self.top:
            return Answer(0.0, 0.0)
        search = _Search(self, query)
        return search.answer("") if search.value <= FLOOR else search.run()

    def chernoff(self, query: Query) -> tuple[float, float]:
        """(upper bound on what is asked by the Rényi route, its order λ)."""
        low, high = (end - math.log(self.sigma(1.0)) for end in (-14.0, 14.0))
        best, order = math.inf, 1.0
        for _ in range(5):
            grid = np.exp(np.linspace(low, high, 60))
            log_mgf_ = self._log_mgf(grid) * (1 + 2 * LOG_MGF_ERROR)
            peaks = np.array([log_peak(one) for one in grid.tolist()])
            log_mgf_ += 1e-14 * np.abs(peaks)
            if query.epsilon is not None:
                values = log_mgf_ + peaks - grid * query.epsilon * (1 - 1e-14)
            else:
                values = (log_mgf_ + peaks - math.log(query.delta)) / grid
            at = int(np.nanargmin(values))
            best, order = min(best, float(values[at])), float(grid[at])
            low, high = math.log(grid[max(at - 1, 0)]), math.log(grid[min(at + 1, 59)])
        if query.epsilon is not None:
            return min(1.0, max(float(outward(math.exp(min(best + 1e-12 * (1 + abs(best)), 0.0)))), FLOOR)), order
        return min(float(outward(max(best, 0.0), 1e-12)), self.top), order

    def moments(self, order: float) -> tuple[float, float]:
        """Mean and variance of the loss of D under the tilt, by differences (a heuristic)."""
        if not self.parts:
            return 0.0, 0.0
        step = 1e-3 * order
        down, here, up = self._rest_log_mgf(np.array([order - step, order, order + step])).tolist()
        return (up - down) / (2 * step), max((up - 2 * here + down) / step**2, 0.0)

    def saddle_point(self, delta: float) -> float | None:
        """About the ε at a δ, from the tilt at which e^{K - λK'} / (λ (1 + λ) sqrt(2π K'')) = δ (a heuristic)."""
        orders = np.exp(np.linspace(-8.0, 8.0, 400) - math.log(self.sigma(1.0)))
        low, here, high = (self._log_mgf(orders * scale) for scale in (1 - 1e-3, 1.0, 1 + 1e-3))
        mean, variance = (high - low) / (2e-3 * orders), (high - 2 * here + low) / (1e-3 * orders) ** 2
        with np.errstate(invalid="ignore", divide="ignore"):
            log_delta = here - orders * mean - np.log(orders * (1 + orders)) - np.log(2 * math.pi * variance) / 2
        reached = np.flatnonzero(log_delta <= math.log(delta))
        if not reached.size or reached[0] == 0 or not mean[reached[0]] > 0:
            return None
        return float(np.interp(-math.log(delta), -log_delta[reached[0] - 1 : reached[0] + 1],
                               mean[reached[0] - 1 : reached[0] + 1]))  # fmt: skip

    def sigma(self, order: float) -> float:
        """About the standard deviation of the whole loss (a heuristic)."""
        return math.sqrt(math.fsum(n * e * e for e, n in self.ranges.items()) / 4 + self.moments(order)[1])

    def bracket(self, order: float, around: tuple[float, float], steps: int, query: Query) -> Bracket:
        """One run at a given fineness, sharp for x within a few times around[1] of around[0]; always sound."""
        mean, variance = self.moments(order)
        bands = []
        for ranges in (self.rounded, self.ranges):
            epsilons, counts = tuple(ranges), tuple(ranges.values())
            bands.append(Band(epsilons, counts, order, around[0] - mean, variance + around[1] ** 2))
        up, h_up = common_grid(bands[0].epsilons, bands[0].counts, steps, upper=True)
        down, h_down = common_grid(bands[1].epsilons, bands[1].counts, steps, upper=False)
        grids = self._grids(order, steps)
        return Bracket(
            solve(bands[0], up, h_up, upper=True, deadline=query.deadline),
            solve_in_order(bands[1], down, h_down, deadline=query.deadline),
            *(
                Atoms.of(self.parts, grid, band.chernoff(band.counts), merge=grids[0].step)
                for grid, band in zip(grids, bands, strict=True)
            ),
        )

    def _grids(self, order: float, steps: int) -> tuple[Grid, Grid]:
        """Grids for D whose errors are well below those of N = ``steps`` in B, which are about 1/N² of the variance."""
        sharpness = 0.1 / steps**2
        spread = math.fsum(part.spread() for part in self.parts)
        roundings = np.sum([part.roundings() for part in self.parts], axis=0) if self.parts else (1, 1)
        typical = self.sigma(order) * math.sqrt(2 * max(1.0, math.log1p(order)))
        coarsest = spread**0.5 / 4
        above = min(math.sqrt(2 * sharpness * (spread + self.sigma(order) ** 2) / roundings[0]), coarsest)
        below = min(2 * sharpness * typical / roundings[1], coarsest)
        finest = 30 * math.sqrt(spread) / MOST_ATOMS
        width = math.sqrt(4 * sharpness * spread / max(self.rest.count, 1))
        return Grid(max(above, finest), order, 1), Grid(max(below, finest), order, -1, width)


class _Search:
    """Refinement of one answer."""

    def __init__(self, curve: SetwiseCurve, query: Query) -> None:
        self.curve, self.query = curve, query
        self.value, self.order = curve.chernoff(query)
        self.lower = 0.0
        self.sigma = curve.sigma(self.order)
        if query.epsilon is not None:
            self.around = query.epsilon, 0.0
        else:
            self.around = self.value - self.sigma / 2, self.sigma / 3

    def run(self) -> Answer:
        before, after = (math.fsum(n * e * e for e, n in r.items()) for r in (self.curve.ranges, self.curve.rounded))
        if after > MOST_ROUNDING * before:
            return self.answer("too many multisets of different ranges for the recursion: by the Rényi route")
        steps, seconds = self.start()
        while True:
            began = time.monotonic()
            if seconds > self.query.deadline - began:
                return self.answer(TIME_RAN_OUT)
            try:
                gap = self.refine(steps)
            except OutOfTime:
                return self.answer(TIME_RAN_OUT)
            if self.value - self.lower <= self.query.rtol * self.value:
                return self.answer("")
            if steps >= MOST_STEPS:
                return self.answer("the bracket cannot be made as narrow as asked")
            ratio = math.sqrt(gap / (0.6 * self.query.rtol * self.value))  # the gap falls as 1 / steps²
            finer = min(2 * math.ceil(steps * min(max(ratio, 1.3), 4.0) / 2), MOST_STEPS)
            seconds = (time.monotonic() - began) * (finer / steps) ** 1.3
            steps = finer

    def start(self) -> tuple[int, float]:
        """Grid steps of the first run and the seconds it may take; also places that run when there are many costs.

        For many costs the width of the bracket and the answer itself are known well enough in advance (as guesses) to
        do with a single run.
        """
        epsilons, counts = tuple(self.curve.rounded), tuple(self.curve.rounded.values())
        steps = first_steps(epsilons, counts, FIRST_STEPS, MOST_STEPS // 4)
        wide = math.fsum(cost.scale * math.sqrt(n) for cost, n in self.curve.rest.of(DiscreteGaussianDP).items())
        seconds = SECONDS_PER_STATE * math.prod(n + 1 for n in counts) + SECONDS_PER_LATTICE_POINT * wide
        if sum(counts) < MANY:
            return steps, seconds
        guess = self.query.epsilon if self.query.epsilon is not None else self.curve.saddle_point(self.query.delta)
        if guess is None:
            return steps, seconds
        sharper = max(1.0, self.order * guess) if self.query.epsilon is not None else 1.0  # d ln δ for d ln ε
        # A step adds about h² to the variance of the upper bound, σ² in all; the grids of D add theirs.
        added = max(epsilons) ** 2 * sum(counts) / 4 / self.sigma**2
        width = WIDTH * added * (0.5 if len(counts) > 1 else 1.0) + (0.3 if self.curve.parts else 0.0)
        enough = min(2 * math.ceil(math.sqrt(width * sharper / self.query.rtol) / 2), MOST_ALONE)
        longer = seconds * len(counts) * (1 + enough / 16)
        if longer > (self.query.deadline - time.monotonic()) / 2:
            return steps, seconds
        if self.query.epsilon is None:
            self.around = min(guess, self.value), 0.05 * self.sigma
            self.order = self.curve.chernoff(Query(epsilon=self.around[0]))[1]
        return max(steps, enough), longer

    def refine(self, steps: int) -> float:
        """One run; the width of its bracket."""
        bracket = self.curve.bracket(self.order, self.around, steps, self.query)
        low = max(self.around[0] - 5 * self.sigma, 0.0)
        above, below = bracket.answer(self.query, low, self.value)
        self.value, self.lower = min(self.value, above), max(self.lower, min(below, above))
        if self.query.epsilon is None:
            half = (self.value - self.lower) / 2
            self.around = self.lower + half, max(half, 0.02 * self.sigma)
            self.order = self.curve.chernoff(Query(epsilon=self.around[0]))[1]
        return above - below

    def answer(self, note: str) -> Answer:
        if self.curve.rounded != self.curve.ranges and note == TIME_RAN_OUT:
            note += "; different epsilons of bounded range were rounded up to " + str(sorted(self.curve.rounded))
        return Answer(self.value, self.lower if self.lower > 0 else None, note)


def _rounded_up(ranges: Mapping[float, int], most: int) -> dict[float, int]:
    """The ε's with neighbours joined at the larger one, cheapest first, until at most ``most`` multisets are left."""
    rounded = dict(sorted(ranges.items()))
    while math.prod(n + 1 for n in rounded.values()) > most and len(rounded) > 1:
        epsilons = list(rounded)
        low, high = min(pairwise(epsilons), key=lambda pair: rounded[pair[0]] * (pair[1] ** 2 - pair[0] ** 2))
        rounded[high] += rounded.pop(low)
    return rounded


class _ProductCurve(SetwiseCurve):
    """The same without bounded-range costs: the product of the dominating pairs."""

    def answer(self, query: Query) -> Answer:
        """The certified bracket of the product."""
        if query.epsilon is None and query.delta <= 0:
            return Answer(self.top)
        found = certified_bracket(self.rest, query)
        return Answer(found.upper, found.lower, found.note)


@bound(
    "optimal_setwise",
    source="docs/setwise.md, Theorems A and B; recursion of DDR Lemma 6.1 and CR Lemma 5.1",
    takes=(*DOMINATED, BoundedRange, ZCDP, CDP),
    lower_from=lambda charge: "setwise" if charge.of(BoundedRange) else "batch",  # the strategies adapt and choose
)
def optimal_setwise(charge: Charge) -> Curve:
    """The optimum over all adaptive interactions with a registered set of costs, as a certified bracket."""
    if charge.of(ZCDP, CDP):
        raise NotApplicable("ZCDP and CDP costs have no dominating pair: combine them by renyi")
    ranges = {cost.epsilon: times for cost, times in charge.of(BoundedRange).items()}
    if any(not SMALLEST_RANGE <= epsilon <= LARGEST_RANGE for epsilon in ranges):
        raise NotApplicable(f"a range outside [{SMALLEST_RANGE}, {LARGEST_RANGE}]")
    rest = Charge({cost: times for cost, times in charge if not isinstance(cost, BoundedRange)})
    if max(rest.of(PureDP).values(), default=0) > MOST_COPIES:
        raise NotApplicable(f"more than {MOST_COPIES:.0e} copies of one epsilon")
    if rest.costs and not min(part.spread() for part in sources(rest)) > TINY:
        raise NotApplicable("a cost so small that its square underflows")
    return SetwiseCurve(ranges, rest) if ranges else _ProductCurve({}, rest)
