"""The optimal bound for a registered set of costs, played in any order and adaptively: Theorems A and B.

A charge splits into B, its bounded-range costs, and D, the costs with a pair of laws that dominates in both directions.
The optimum over all adaptive, set-wise interactions is (docs/setwise.md)

    δ_opt(x) = p_inf + E_{L ~ finite product loss of D}[ V_B(x - L) ],

with V_B from ``recursion`` and the loss of D as a list of atoms, both between an upper and a lower bound. The grid is
refined until the two answers agree to the tolerance asked for, or time is up; the answer is the upper one either way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from dptopk.accounting.binomial import log_binomial_pmf
from dptopk.accounting.bounds import NotApplicable, bound
from dptopk.accounting.curves import Answer, Curve, Floats, Query, outward
from dptopk.accounting.log_mgf import LOG_MGF_ERROR, bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.accounting.recursion import (
    FLOOR,
    ROUNDOFF,
    Band,
    OutOfTime,
    State,
    ValueFunction,
    common_grid,
    log_one_minus_chernoff,
    solve,
    solve_in_order,
)
from dptopk.costs import BoundedRange, Charge, PureDP, sum_up

__all__ = ["Bracket", "SetwiseCurve", "optimal_setwise"]

_FIRST_STEPS = 8
_MOST_STEPS = 1024
_MOST_ATOMS = 200_000
_SECONDS_PER_STATE = 1.5e-4


@dataclass(frozen=True, slots=True)
class Atoms:
    """The finite part of a loss distribution: losses and masses, all moved to the same safe side, and the rest."""

    losses: Floats
    masses: Floats
    infinite: float

    @classmethod
    def nothing(cls) -> Atoms:
        """The loss 0."""
        return cls(np.zeros(1), np.ones(1), 0.0)


@dataclass(frozen=True)
class Dominated:
    """The part of a charge whose costs have dominating pairs.

    Attributes:
        log_mgf: upper bound on ln E e^{λL}, for an array of λ > 0.
        top: the largest finite loss, an upper bound.
        atoms: (upper, accuracy) -> the loss distribution as atoms.
    """

    log_mgf: Callable[[Floats], Floats]
    top: float
    atoms: Callable[[bool, float], Atoms]

    @classmethod
    def of(cls, charge: Charge) -> Dominated:
        """The dominated part of a charge (its BR costs left out)."""
        epsilons = {cost.epsilon: times for cost, times in charge.of(PureDP).items()}
        if math.prod(times + 1 for times in epsilons.values()) > _MOST_ATOMS:
            raise NotApplicable("too many different combinations of pure costs")

        def log_mgf(order: Floats) -> Floats:
            total = sum((times * pure_dp_log_mgf(e, order) for e, times in epsilons.items()), np.zeros_like(order))
            return total * (1 + 2 * LOG_MGF_ERROR)

        return cls(log_mgf, sum_up(epsilons), lambda upper, _: _pure_atoms(epsilons, upper=upper))


def _pure_atoms(epsilons: dict[float, int], *, upper: bool) -> Atoms:
    """All sums of randomised-response losses, with binomial weights."""
    parts = []
    for epsilon, times in epsilons.items():
        log_mass, error = log_binomial_pmf(times, epsilon)
        sign = 1 if upper else -1
        parts.append(((2 * np.arange(times + 1) - times) * epsilon, np.exp(log_mass + sign * (error + 4 * ROUNDOFF))))
    nothing = Atoms.nothing()
    losses = reduce(lambda a, b: np.add.outer(a, b).ravel(), (losses for losses, _ in parts), nothing.losses)
    masses = reduce(lambda a, b: np.multiply.outer(a, b).ravel(), (masses for _, masses in parts), nothing.masses)
    moved = 4 * len(parts) * ROUNDOFF * sum_up(epsilons)
    return Atoms(losses + (moved if upper else -moved), masses, 0.0)


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
        return np.minimum(total + self.atoms_above.infinite * (1 + 2 * ROUNDOFF), 1.0)

    def lower(self, x: Floats) -> Floats:
        """Lower bound on δ_opt at every x of a one-dimensional array."""
        values = self.below.lower(np.subtract.outer(x, self.atoms_below.losses), self.above)
        total = values @ self.atoms_below.masses * (1 - ROUNDOFF * (len(self.atoms_below.masses) + 8))
        return np.maximum(total + self.atoms_below.infinite * (1 - 2 * ROUNDOFF) - FLOOR, 0.0)

    def answer(self, query: Query, low: float, high: float) -> tuple[float, float]:
        """(upper, lower) bound on what is asked; for ε, searched for between ``low`` and ``high``."""
        if query.epsilon is not None:
            x = np.array([query.epsilon])
            return float(self.upper(x)[0]), float(self.lower(x)[0])
        above = _first_where(lambda x: self.upper(x) <= query.delta, low, high)[1]
        below = _first_where(lambda x: self.lower(x) <= query.delta, low, high)[0]
        return above, below


def _first_where(holds: Callable[[Floats], np.ndarray], low: float, high: float) -> tuple[float, float]:
    """Neighbouring points: the last that was seen not to satisfy ``holds``, the first that was; (0, high) at worst."""
    if holds(np.array([low]))[0]:
        return 0.0, low
    for _ in range(8):
        grid = np.linspace(low, high, 18)
        at = holds(grid[1:-1])
        first = int(at.argmax()) if at.any() else len(at)
        low, high = float(grid[first]), float(grid[first + 1])
    return low, high


@dataclass
class SetwiseCurve(Curve):
    """The optimum for a charge of BR costs and costs with dominating pairs; see the module docstring."""

    epsilons: tuple[float, ...]
    counts: State
    dominated: Dominated
    seconds: float = 10.0
    _note: str = field(default="", init=False)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Upper bound on δ, each refined to a relative 1e-3."""
        x = np.asarray(epsilon, dtype=float)
        answers = [self.answer(Query(epsilon=float(e), deadline=time.monotonic() + self.seconds)) for e in x.ravel()]
        return np.array([answer.value for answer in answers]).reshape(x.shape)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Upper bound on ε, each refined to a relative 1e-3."""
        d = np.asarray(delta, dtype=float)
        answers = [self.answer(Query(delta=float(e), deadline=time.monotonic() + self.seconds)) for e in d.ravel()]
        return np.array([answer.value for answer in answers]).reshape(d.shape)

    @property
    def top(self) -> float:
        """The largest finite loss: no excess over p_inf from there on."""
        return sum_up([sum_up(dict(zip(self.epsilons, self.counts, strict=True))), self.dominated.top])

    def log_mgf(self, order: Floats) -> Floats:
        """Upper bound on ln E e^{λL} of everything together."""
        total = self.dominated.log_mgf(order)
        for epsilon, times in zip(self.epsilons, self.counts, strict=True):
            total = total + times * bounded_range_log_mgf(epsilon, order) * (1 + 2 * LOG_MGF_ERROR)
        return total + np.array([log_one_minus_chernoff(float(one)) for one in order]) * (1 - 1e-14)

    def chernoff(self, query: Query) -> tuple[float, float]:
        """(bound on what is asked, its order λ)."""
        low, high = -12.0, 12.0 - math.log(min(self.top, 1e4))
        best, order = math.inf, 1.0
        for _ in range(5):
            grid = np.exp(np.linspace(low, high, 40))
            if query.epsilon is not None:
                values = self.log_mgf(grid) - grid * query.epsilon * (1 - 1e-15)
            else:
                values = (self.log_mgf(grid) - math.log(query.delta)) / grid
            at = int(np.nanargmin(values))
            best, order = min(best, float(values[at])), float(grid[at])
            low, high = math.log(grid[max(at - 1, 0)]), math.log(grid[min(at + 1, 39)])
        if query.epsilon is not None:
            return min(1.0, float(outward(math.exp(min(best + 1e-12 * (1 + abs(best)), 0.0))))), order
        return min(float(outward(max(best, 0.0), 1e-12)), self.top), order

    def answer(self, query: Query) -> Answer:
        """The answer, refined until the bracket is within ``query.rtol`` or time is up."""
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.top)
        if query.epsilon is not None and query.epsilon >= self.top:
            return Answer(0.0, 0.0)
        value, order = self.chernoff(query)
        value = value if query.epsilon is None else max(value, FLOOR)
        lower, steps, cost = 0.0, _FIRST_STEPS, math.prod(k + 1 for k in self.counts) * _SECONDS_PER_STATE
        sigma = self._sigma(order)
        centre, slack = (query.epsilon, 0.0) if query.epsilon is not None else (value - sigma / 2, sigma / 3)
        note = ""
        while True:
            remaining = query.deadline - time.monotonic()
            if cost > remaining:
                note = "time ran out before the bracket was as narrow as asked"
                break
            began = time.monotonic()
            try:
                bracket = self._bracket(order, centre, slack, steps, query.deadline)
            except OutOfTime:
                note = "time ran out before the bracket was as narrow as asked"
                break
            found, proven = bracket.answer(query, max(centre - 5 * sigma, 0.0), value)
            value, lower = min(value, found), max(lower, min(proven, found))
            if value - lower <= query.rtol * value:
                break
            if steps >= _MOST_STEPS:
                note = "the bracket cannot be made as narrow as asked"
                break
            ratio = math.sqrt((found - proven) / (0.7 * query.rtol * value))
            grown = 2 * math.ceil(steps * min(max(ratio, 1.3), 4.0) / 2)
            # The band is about sqrt(k) N nodes long; short ones are all edge, of N cells a node.
            power = 1.2 if sum(self.counts) > 50 else 2.0
            cost = (time.monotonic() - began) * (grown / steps) ** power
            steps = grown
            if query.epsilon is None:
                centre, slack = (value + lower) / 2, max((value - lower) / 2, 0.02 * sigma)
                order = self.chernoff(Query(epsilon=centre))[1]
        return Answer(value, lower if lower > 0 else None, note)

    def _sigma(self, order: float) -> float:
        """Standard deviation of the whole loss (heuristic)."""
        ranges = math.fsum(n * e * e for n, e in zip(self.counts, self.epsilons, strict=True)) / 4
        return math.sqrt(ranges + self._dominated_moments(order)[1])

    def _dominated_moments(self, order: float) -> tuple[float, float]:
        """Tilted mean and variance of the loss of D, by differences (heuristic)."""
        step = 1e-3 * order
        down, here, up = self.dominated.log_mgf(np.array([order - step, order, order + step]))
        return (up - down) / (2 * step), max((up - 2 * here + down) / step**2, 0.0)

    def _bracket(self, order: float, centre: float, slack: float, steps: int, deadline: float) -> Bracket:
        mean, variance = self._dominated_moments(order)
        band = Band(self.epsilons, self.counts, order, centre - mean, variance + slack**2)
        up, h_up = common_grid(self.epsilons, self.counts, steps, upper=True)
        down, h_down = common_grid(self.epsilons, self.counts, steps, upper=False)
        return Bracket(
            solve(band, up, h_up, upper=True, deadline=deadline),
            solve_in_order(band, down, h_down, deadline=deadline),
            self.dominated.atoms(True, 1 / steps),
            self.dominated.atoms(False, 1 / steps),
        )


@bound("optimal_setwise", source="docs/setwise.md, Theorems A and B", takes=(PureDP, BoundedRange))
def optimal_setwise(charge: Charge) -> Curve:
    """The optimum over all adaptive interactions with a registered set of costs, as a certified bracket."""
    ranges = {
        cost.epsilon: times for cost, times in sorted(charge.of(BoundedRange).items(), key=lambda c: c[0].epsilon)
    }
    rest = Charge({cost: times for cost, times in charge if not isinstance(cost, BoundedRange)})
    if not ranges:
        raise NotApplicable("no bounded-range cost: optimal_dp and its kin are exact")
    return SetwiseCurve(tuple(ranges), tuple(ranges.values()), Dominated.of(rest))
