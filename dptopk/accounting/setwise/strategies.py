"""Lower bounds for any mix: strategies that an analyst could really follow, valued from below.

First all costs with dominating pairs; then most of the ranges, each with the t that is best for the
tilt of the whole loss, as if they were independent; then the last few ranges by the recursion from
below, t chosen from all answers before, the smaller ranges first. ZCDP and CDP costs are played by
a Gaussian that satisfies them; a single such statement with nothing beside it by a law with two
outcomes (``two_outcomes``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.binomial import log_binomial_pmf
from dptopk.accounting.pld.loss_components import Grid, LossComponent
from dptopk.accounting.pld.pairs import Pairs, pair_of
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.grid import rounding_noise
from dptopk.accounting.setwise.lower_bounds import Atoms
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules, ladder, solve_in_order
from dptopk.costs import Charge


@dataclass(frozen=True)
class FixedRanges(LossComponent):
    """n mechanisms of ε-bounded range, all with one t: loss t with mass q_t, else t - ε; n is
    summed up exactly.
    """

    epsilon: float
    count: int
    t: float

    def pairs(self, grid: Grid) -> list[Pairs]:
        """The sum of the losses within 6.5 sqrt(n) of its tilted mean: beyond, Hoeffding leaves 2
        e^-84.
        """
        n = self.count
        t = self.t
        epsilon = self.epsilon
        often = math.expm1(t - epsilon) / math.expm1(-epsilon)
        rarely = math.exp(t - epsilon) * math.expm1(-t) / math.expm1(-epsilon)
        tilted = often / (often + rarely * math.exp(max(-grid.tilt * epsilon, -700.0)))
        reach = 6.5 * math.sqrt(n) + 1
        first = max(math.floor(n * tilted - reach), 0)
        last = min(math.ceil(n * tilted + reach), n)
        hits = np.arange(first, last + 1, dtype=float)
        log_masses = np.asarray(log_binomial_pmf(hits, n, often, rarely))
        possible = log_masses > -np.inf
        hits = hits[possible]
        log_masses = log_masses[possible]
        distance = np.abs(hits - n * often)
        # The two probabilities are known to 64 roundoffs; their error enters through the deviance,
        # times the distance.
        errors = ROUNDOFF * (64 * (1 + np.abs(log_masses)) + 128 * (distance + 16))
        losses = n * t - (n - hits) * epsilon
        pair = pair_of(losses, log_masses, log_error=errors)
        return [replace(pair, loss_error=8 * ROUNDOFF * n * max(t, epsilon), error=1e-30)]


def best_t(epsilon: float, order: float) -> float:
    """Approximate t that maximises ln E[e^{λL}] of RR_{ε,t} (DDR Theorem 5), away from the ends."""
    b = epsilon / 2
    s = math.log(order / (1 + order)) + b
    s += math.log(-math.expm1(-2 * (order + 1) * b)) - math.log(-math.expm1(-2 * order * b))
    return min(max(b + s, 1e-6 * epsilon), (1 - 1e-6) * epsilon)


class Endgame(Protocol):
    """The costs that are played last, after the atoms."""

    def below(self, x: Floats) -> Floats:
        """A lower bound on its V at any x."""
        ...


@dataclass(frozen=True)
class LastRanges:
    """Ranges played by a recursion: V from below and from above."""

    lower: Layer
    upper: Layer

    def below(self, x: Floats) -> Floats:
        """A lower bound on V."""
        return self.lower.below(x, self.upper)


@dataclass(frozen=True)
class Strategy:
    """The value of one strategy: costs that are played first as atoms, then the last ranges by a
    recursion.
    """

    atoms: Atoms
    last: Endgame | None

    def value(self, x: Floats) -> Floats:
        """Lower bound on δ_opt at every x of a one-dimensional array."""
        left = np.subtract.outer(x, self.atoms.losses)
        if self.last is None:
            values = -np.expm1(np.minimum(left + 4 * ROUNDOFF * np.abs(left), 0.0)) * (
                1 - 64 * ROUNDOFF
            )
        else:
            values = self.last.below(left)
        total = values @ self.atoms.masses * (1 - ROUNDOFF * (len(self.atoms.masses) + 8))
        return np.maximum(total - self.atoms.error(x) - FLOOR, 0.0)

    def answer(self, query: Query, low: float, high: float) -> float:
        """A lower bound on what is asked; for ε, searched for between ``low`` and ``high``."""
        if query.epsilon is not None:
            return float(self.value(np.array([query.epsilon]))[0])
        return crossing(self.value, query.delta_below, low, high)


def strategy(
    ranges: Mapping[float, int],
    rest: Charge,
    *,
    order: float,
    log_chernoff: Callable[[Mapping[float, int]], float],
    variance: float,
    tolerance: float,
    steps: Mapping[float, int],
    reach: float,
    adaptive: bool = True,
) -> Strategy:
    """A strategy whose ε should be within about ``tolerance``, relative, of the best one's.

    Args:
        ranges: the distinct ε's of the BR costs with counts, at least one.
        rest: the other costs, with dominating pairs.
        order: λ of the tilt.
        log_chernoff: the ln C of V_B(x) <= C e^{-λx}, for any ranges B.
        variance: about the variance of the whole loss.
        tolerance: relative.
        steps: grid steps to an ε of ladders that have been climbed from above already.
        reach: of the windows of the recursion, in standard deviations.
        adaptive: whether the last ranges are played by the recursion; else all of them with a fixed
            t.
    """
    last = last_ranges(ranges) if adaptive else {}
    atoms = _played_first(ranges, last, rest, order, log_chernoff(last), variance, tolerance)
    if not last:
        return Strategy(atoms, None)
    fine = steps_from_below(last, variance, tolerance)
    fine = max(fine, steps.get(next(iter(last)), 0)) if len(last) == 1 else fine
    return Strategy(atoms, _endgame(last, fine, reach))


def strategy_before(
    last: Endgame,
    ranges: Mapping[float, int],
    rest: Charge,
    *,
    order: float,
    log_chernoff: float,
    variance: float,
    tolerance: float,
) -> Strategy:
    """The strategy that plays everything in ``rest``, then the ranges, each with a fixed t, and
    then another game, for which ``log_chernoff`` is the ln C of V(x) <= C e^{-λx}.
    """
    atoms = _played_first(ranges, {}, rest, order, log_chernoff, variance, tolerance)
    return Strategy(atoms, last)


def _played_first(
    ranges: Mapping[float, int],
    last: Mapping[float, int],
    rest: Charge,
    order: float,
    log_chernoff: float,
    variance: float,
    tolerance: float,
) -> Atoms:
    """The product of the costs with dominating pairs and of the ranges that are not played last."""
    first = {epsilon: count - last.get(epsilon, 0) for epsilon, count in ranges.items()}
    parts: list[LossComponent] = loss_components(rest)
    parts += [FixedRanges(epsilon, n, best_t(epsilon, order)) for epsilon, n in first.items() if n]
    sigma = math.sqrt(variance)
    below = sum(part.roundings()[1] if not isinstance(part, FixedRanges) else 1 for part in parts)
    step = max(
        tuning.LATTICE_SHARE_BELOW * tolerance * 4 * sigma / max(below, 1),
        tuning.WINDOW * sigma / tuning.MOST_ATOMS,
    )
    width = math.sqrt(4 * tuning.LATTICE_SHARE_BELOW * tolerance * variance / max(rest.count, 1))
    merge = sigma * math.sqrt(tuning.LATTICE_SHARE_BELOW * tolerance)
    grid = Grid(min(step, sigma / tuning.CELLS_PER_STD), order, -1, width)
    return Atoms.of(parts, grid, log_chernoff, merge=merge)


def last_ranges(ranges: Mapping[float, int]) -> dict[float, int]:
    """The ranges that are played last: the larger ones."""
    left = tuning.LAST_EQUAL if len(ranges) == 1 else tuning.LAST_DIFFERENT
    last = {}
    for epsilon, count in sorted(ranges.items(), reverse=True)[: tuning.LAST_KINDS]:
        if left:
            last[epsilon] = min(count, left)
            left -= last[epsilon]
    return last


def steps_from_below(last: Mapping[float, int], variance: float, tolerance: float) -> int:
    """Grid steps to the largest ε; different ε's are also rounded down."""
    epsilons = tuple(last)
    counts = tuple(last.values())
    steps = max(8, math.ceil(2 * max(epsilons)))
    most = tuning.MOST_STEPS if len(last) == 1 else tuning.STEPS_OF_KINDS
    while (
        steps < most
        and rounding_noise(epsilons, counts, steps, tuning.CELL, upper=False)
        > tuning.GRID_SHARE_BELOW * tolerance * variance
    ):
        steps = math.ceil(steps * tuning.LARGER)
    return min(2 * math.ceil(steps / 2), tuning.MOST_STEPS)


def _endgame(last: dict[float, int], steps: int, reach: float) -> LastRanges:
    """The value of playing the last ranges by rising ε, t
    adaptive.
    """
    if len(last) == 1:
        ((epsilon, count),) = last.items()
        below, above = (ladder(epsilon, steps, upper=side, reach=reach) for side in (False, True))
        return LastRanges(below.value(count), above.value(count))
    rising = dict(sorted(last.items()))
    played = [place for place, count in enumerate(rising.values()) for _ in range(count)]
    lower, upper = (Rules.of(rising, steps, upper=side, reach=reach) for side in (False, True))
    return LastRanges(solve_in_order(lower, played), solve_in_order(upper, played))


def crossing(function: Callable[[Floats], Floats], level: float, low: float, high: float) -> float:
    """A point in [low, high) with function > level, close to the last one; 0 if none is seen.

    Further and further back from ``high``, then clusters around the root of the chord of ln
    function; what is returned was evaluated.
    """
    points = high - (high - low) * _BACK
    values = function(points)
    found = 0.0
    for left in range(3, -1, -1):
        above = np.flatnonzero(values > level)
        if not above.size:
            break
        last = int(above[-1])
        found = float(points[last])
        if last == len(points) - 1 or not left:
            break
        at = np.array([values[last], max(float(values[last + 1]), level * 1e-9)])
        if at[0] > at[1]:
            root = math.log(at[0] / level) / math.log(at[0] / at[1])
        else:
            root = 0.0
        end = float(points[last + 1])
        points = np.append(found + (end - found) * np.clip(root + _CLUSTER, 0.0, 1.0), end)
        values = np.append(function(points[:-1]), min(at[1], level))
    return found


_BACK = np.geomspace(1.0, 1e-5, 26)
_CLUSTER = np.array([-0.1, -1e-2, -1e-3, -1e-5, 1e-5, 1e-3, 1e-2, 0.1])
