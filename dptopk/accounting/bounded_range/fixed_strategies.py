"""Curves of exact optima: a maximum over many candidate strategies, of which a search usually
guesses the best.

Any one strategy gives a lower bound on δ; the maximum over all (or all that can win) is the
optimum. Root finding follows the guessed strategy by Newton's method, and only its end is checked
against all candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats, exp_up
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.work import CUT_BY_TIME, late

Ints = NDArray[np.int64]

# Relative distances of a proven lower bound from the upper one: the smallest is tried by the
# guessed strategy, larger ones by all.
SMALLEST_GAP = 1e-11
LARGER_GAPS = (1e-9, 1e-6, 1e-3)
CLOSE_ENOUGH = 1e-9  # by this ln δ of a root may be below its target: an ε as close as wanted
MOST_CHECKS = 60  # of a root against all strategies
PATIENT_CHECKS = 12  # after which any root that fits is taken
AIMED_BEYOND = 1e-12  # in ln δ: how far past the root a guess aims
MOST_NEWTON_STEPS = 100  # inside a bracket, so that bisection alone comes to its end
ROUNDING = 1e-15  # of a logarithm or an exponential: a few units of roundoff


@dataclass(frozen=True, slots=True)
class LogDeltaPoint:
    """A value of ln δ with its error and its slope.

    Attributes:
        log_value: the truth lies within ``log_value`` ± ``error``.
        error: see ``log_value``.
        slope: d ln δ / dε.
    """

    log_value: float
    error: float = 0.0
    slope: float = 0.0

    @property
    def upper(self) -> float:
        """Return the upper end of ln δ, at most 0; NaN becomes 0, that is δ = 1."""
        end = self.log_value + self.error
        if math.isnan(end):
            return 0.0
        return min(end, 0.0)

    @property
    def lower(self) -> float:
        """Return the lower end of ln δ; it may be NaN, which exceeds nothing."""
        return self.log_value - self.error


# Maps an ε of the composition to ln δ there, of the optimum or of one strategy.
Value = Callable[[float], LogDeltaPoint]
# Maps an ε to the first and the last index of the candidates among which the largest one probably
# is.
Turning = Callable[[float], tuple[int, int]]
# Maps an ε and indices of candidates to the place of the largest of these among them, and its
# value.
Largest = Callable[[float, Ints], tuple[int, LogDeltaPoint]]


@dataclass(frozen=True)
class OptimumCurve(Curve):
    """A curve whose δ(x) is a maximum over strategies.

    Args:
        epsilon_max: an ε from which on δ = 0.
        optimum: the optimum at 0 <= x < epsilon_max.
        guessed_value: the value of a strategy that is likely to be the best one: at most the
            optimum, and cheap.
        first_guess: maps ln δ to a first guess at ε(δ).
    """

    epsilon_max: float
    optimum: Value
    guessed_value: Value
    first_guess: Callable[[float], float]

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return δ, the optimum rounded outward; a positive δ never underflows to 0."""
        return exp_up([self._log_delta(x) for x in epsilon.tolist()])

    def _log_delta(self, x: float) -> float:
        """Return ln δ(x), rounded up."""
        if x >= self.epsilon_max:
            return -math.inf
        return self.optimum(x).upper

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        roots = []
        for target in delta.tolist():
            root = self._root(_log_down(target)) if target > 0 else self.epsilon_max
            roots.append(root)
        return np.array(roots)

    def answer(self, query: Query) -> Answer:
        """Return the upper bound on the answer with a proven lower bound."""
        if query.epsilon is not None:
            if query.epsilon >= self.epsilon_max:
                return Answer(0.0, 0.0)
            point = self.optimum(query.epsilon)
            # Of exp, and of its argument, which is at most 0.
            rounding = ROUNDING * (2 - point.log_value)
            lower = math.exp(min(point.lower, 0.0)) * (1 - rounding)
            # In this order NaN, which proves nothing, becomes 0.
            return Answer(float(exp_up(point.upper)), max(0.0, lower))
        if query.delta <= 0:
            lower = self._proven_lower(self.epsilon_max, query.delta_below)
            return Answer(self.epsilon_max, lower)
        upper = self._root(_log_down(query.delta))
        lower = self._proven_lower(upper, query.delta_below)
        return Answer(upper, lower, CUT_BY_TIME if late() else "")

    def _root(self, log_target: float) -> float:
        """Return an x with ln δ(x) <= log_target, checked against all strategies, and close to the
        smallest.

        Where time is cut it is whichever x was checked so far, or epsilon_max.
        """
        low = 0.0
        fitting = self.epsilon_max
        x = self._guess(log_target)
        for attempt in range(MOST_CHECKS):
            # However late it is, one x is checked.
            if x >= fitting or (attempt and late()):
                break
            point = self.optimum(x)
            excess = point.upper - log_target
            if excess <= 0:
                fitting = x
                # What an error hides cannot be searched for: it widens what is close enough.
                close = excess >= -CLOSE_ENOUGH - 4 * point.error
                if close or attempt >= PATIENT_CHECKS:
                    break
            else:
                low = x
            newton = x - excess / point.slope if point.slope < 0 else math.nan
            # A little beyond, and further each time: rounding must not keep x below the root.
            newton += 4e-15 * 2**attempt * max(x, 1e-3 * self.epsilon_max)
            x = newton if low < newton < fitting else low + (fitting - low) / 2
            if x in (low, fitting):
                break
        return fitting

    def _guess(self, log_target: float) -> float:
        """Return about the x with ln δ(x) = log_target, by Newton's method inside a bracket along
        the guessed strategies.
        """
        low = 0.0
        high = self.epsilon_max
        x = min(self.first_guess(log_target), 0.9 * high)  # inside the bracket
        for _ in range(MOST_NEWTON_STEPS):
            point = self.guessed_value(x)
            # Aims just past the root, so that the check of all strategies succeeds at once.
            excess = point.upper - log_target + AIMED_BEYOND
            if excess > 0:
                low = x
            else:
                high = x
            newton = x - excess / point.slope if point.slope < 0 else math.nan
            # Convergence is quadratic, so that the next step is as good as the root.
            if abs(excess) <= 1e-7 + point.error or high - low <= ROUNDING * high:
                if low <= newton <= high:
                    return newton
                return x
            # The root may be 0 itself, which no bisection reaches.
            if low == 0 and newton <= 0 and self.guessed_value(0.0).upper <= log_target:
                return 0.0
            x = newton if low < newton < high else low + (high - low) / 2
        return x

    def _proven_lower(self, upper: float, delta: float) -> float:
        """Return a lower bound on the smallest ε whose optimal δ is at most ``delta``: an ε a
        little below ``upper`` at which the optimum provably exceeds ``delta``, or 0 where none is
        found in time.

        Args:
            upper: the upper bound on that ε.
            delta: the δ of the question, or a larger one at which a lower bound is asked for.
        """
        log_delta = _log_up(delta) if delta > 0 else -math.inf
        # Any strategy proves a lower bound; the guessed one is cheap, and usually the best.
        x = upper * (1 - SMALLEST_GAP)
        if self._exceeds(self.guessed_value, x, log_delta):
            return x
        for gap in LARGER_GAPS:
            if late():
                break
            x = upper * (1 - gap)
            if self._exceeds(self.optimum, x, log_delta):
                return x
        return 0.0

    def _exceeds(self, value: Value, x: float, log_delta: float) -> bool:
        """Return whether δ(x) is proven to be above a δ; False for an x outside (0, epsilon_max).

        Args:
            value: the optimum, or the value of any strategy, which is at most the optimum.
            x: ε.
            log_delta: ln δ.
        """
        if not 0 < x < self.epsilon_max:
            return False
        return value(x).lower > log_delta


def common_epsilon_curve(
    epsilon: float,
    br_count: int,
    dp_count: int,
    optimum: Value,
    turning: Turning,
    largest: Largest,
    *,
    probes: int,
) -> OptimumCurve:
    """Return the curve of ``br_count`` ε-BR and ``dp_count`` ε-DP mechanisms, whose optimum is a
    maximum over candidates with an index.

    Args:
        epsilon: ε > 0, common to all.
        br_count: the number of BR mechanisms.
        dp_count: the number of DP mechanisms.
        optimum: as for ``OptimumCurve``.
        turning: maps x to the indices between which the values seem to turn from rising to falling.
        largest: maps x and indices to the place of the largest of these candidates, and its value.
        probes: how many candidates a search between the turning points looks at in a step; any
            number from 3 on, which decides only how long it takes.
    """
    # Upper bounds on the variance of a loss: ε²/4 in a range of length ε, ε² in [-ε, ε].
    variance = (br_count / 4 + dp_count) * epsilon**2

    def guessed_value(x: float) -> LogDeltaPoint:
        """Return the value found by sections between the turning points; it is the largest if the
        values rise and then fall there.
        """
        low, high = turning(x)
        while True:
            probe = np.unique(np.linspace(low, high, probes).astype(int))
            best, point = largest(x, probe)
            if high - low < probes:
                return point
            low = int(probe[max(best - 1, 0)])
            high = int(probe[min(best + 1, len(probe) - 1)])

    def first_guess(log_delta: float) -> float:
        """Return the ε of Gaussian tails with this variance and the largest mean: a first guess."""
        return variance / 2 + math.sqrt(2 * variance * -log_delta)

    epsilon_max = math.nextafter(epsilon * (br_count + dp_count), math.inf)
    return OptimumCurve(epsilon_max, optimum, guessed_value, first_guess)


def _log_down(delta: float) -> float:
    """Return ln δ, rounded down, for 0 < δ < 1."""
    return math.log(delta) * (1 + ROUNDING) - ROUNDING


def _log_up(delta: float) -> float:
    """Return ln δ, rounded up, for 0 < δ < 1."""
    return math.log(delta) * (1 - ROUNDING) + ROUNDING
