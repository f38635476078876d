"""Majorants: functions that lie above V at every x, and so bound a step of a concentrated cost.

V(x) is the largest δ at ε = x that the costs still to come can reach. As a function of w = e^x it
is convex, falls, and is 1 at w = 0. One more cost with the loss L is worth E[V(x - L)], for the law
of L that is the worst of its class (``moment_program``). Where a function F of w is above V, this
is at most E[F(e^{x - L})]; and if F is a sum of powers of w, the class limits each expectation.

So a majorant F is made of the multipliers of a linear program (``step_program``), which come close
to the least such bound and of which nothing is trusted; then ``Majorant.lifted`` raises F until it
is proven to be above V. Proofs: docs/notes/setwise.md, "Few concentrated costs", Majorants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    Nodes,
    ProgramSolution,
)

# Of sums of a few exponentials with exponents up to 600, relative to the sum of their sizes.
ROUNDING = 1e-12
# Of the gaps between chords and their functions: absolute, of differences of numbers about 1; and
# relative, far above all else.
GAP_ROUNDING = 1e-14
CHORD_MARGIN = 1e-9


@dataclass(frozen=True)
class ValueTable:
    """Bounds on V at the nodes x = jh, for 0 <= j < n; those at x < 0 follow by symmetry.

    The class of each cost is closed under swapping the neighbours, hence
    V(x) = 1 - e^x (1 - V(-x)).

    Attributes:
        h: the distance of two nodes.
        values: the bounds, shape (n,).
        upper: whether they are upper bounds, else lower ones.
    """

    h: float
    values: Floats
    upper: bool

    def at(self, nodes: Nodes) -> Floats:
        """Return bounds on V at x = jh for an array of any integers j. Beyond the last stored node
        an upper table repeats its last bound, as V falls, and a lower one says 0.
        """
        places = np.abs(nodes)
        last = len(self.values) - 1
        after_last = self.values[last] if self.upper else 0.0
        values = np.where(places <= last, self.values[np.minimum(places, last)], after_last)
        below_0 = np.minimum(nodes, 0) * self.h
        by_symmetry = -np.expm1(below_0) + np.exp(below_0) * values
        bounds: Floats = np.where(nodes >= 0, values, by_symmetry)
        return bounds

    @classmethod
    def of_nothing(cls, h: float, *, upper: bool) -> ValueTable:
        """Return V without costs, [1 - e^x]_+, which is exact: 0 at x = 0 and beyond."""
        return cls(h, np.zeros(1), upper)


@dataclass(frozen=True)
class Majorant:
    """A function F, which is above V everywhere once it comes from ``lifted``.

    With t = e^{y - x}, where x is fixed and y is any ε, it is

        F = a + b t - c ln t + d t ln t + Σ g_i t^{-e_i}.

    For t = e^{-L}, the loss L of a cost that is played at x, the expectation of t^{-e_i} is the
    moment E[e^{e_i L}], those of -ln t and t ln t are the mean losses in both directions, and
    E t = 1.

    Attributes:
        x: the ε at which t = 1.
        moments: the class of the cost; its losses are centred where c or d is not 0.
        constant: a.
        slope: b, at least 0 after ``lifted``.
        weights: every g_i >= 0.
        exponents: every e_i: an order λ > 0 of the class, or -(1 + λ) for the moment of order λ
            with the neighbours swapped.
        linear: c, the coefficient of L = -ln t.
        reversed_linear: d, the coefficient of -L e^{-L} = t ln t.
    """

    x: float
    moments: MomentClass
    constant: float
    slope: float
    weights: Floats
    exponents: Floats
    linear: float = 0.0
    reversed_linear: float = 0.0

    @classmethod
    def of(cls, solution: ProgramSolution, moments: MomentClass) -> Majorant:
        """Return the function F that the multipliers of a linear program make; it is not yet proven
        to be above V.
        """
        exponents = np.array([constraint.exponent for constraint in solution.constraints])
        return cls(
            x=solution.x,
            moments=moments,
            constant=solution.constant,
            slope=solution.slope,
            weights=solution.weights,
            exponents=exponents,
            linear=solution.linear,
            reversed_linear=solution.reversed_linear,
        )

    @property
    def orders(self) -> Floats:
        """Return the order λ of each term g_i t^{-e_i}, whichever its direction."""
        orders: Floats = np.where(self.exponents > 0, self.exponents, -1 - self.exponents)
        return orders

    @property
    def limits(self) -> Floats:
        """Return K(λ) of each term's order λ, the logarithm of the largest moment of the class."""
        return self.moments.log_moment(self.orders)

    def lifted(self, value: ValueTable, nodes: Nodes) -> Majorant | None:
        """Return this function raised until it is proven to be above V everywhere; None where it
        cannot be.

        It is raised to the upper bounds on V at the nodes, then above the chords between them:
        V, convex in w, lies below these. On the left of the nodes
        ``is_above_left_of`` decides; on the right V falls, and F is made to rise.

        Args:
            value: upper bounds on V.
            nodes: consecutive nodes at which the function is compared with V.
        """
        y = nodes.astype(np.float64) * value.h - self.x
        first = float(y[0])
        last = float(y[-1])
        above = value.at(nodes)
        raised = self.with_rising_slope_at(last)
        values, sizes = raised.values_with_sizes(y)
        shortfalls = above - values + ROUNDING * sizes
        if float(shortfalls.max()) > 0:
            raised = raised.with_shortfall_added(shortfalls, self.terms(y).sum(axis=0))
        # To the right of the nodes F must rise: what the chords add may have made it fall there.
        raised = raised.with_chords(value.h).with_rising_slope_at(last)
        is_majorant = (
            np.isfinite(raised.weights).all()
            and raised.is_above_left_of(first, float(above[0]))
            and raised.derivative_rises_from(last)
        )
        return raised if is_majorant else None

    def with_chords(self, h: float) -> Majorant:
        """Return a function that is above every chord of F between neighbouring nodes.

        a + bt is its own chord, and a term with c < 0 or d < 0 is concave, so above its chords. The
        chord of t^{-e} is at most ``chord_factor`` times t^{-e}; those of -c ln t and d t ln t, for
        c, d > 0, exceed them by at most c and dt times ``chord_gaps``.

        Args:
            h: the distance of two nodes.
        """
        factors = [chord_factor(-exponent, h) for exponent in self.exponents.tolist()]
        of_log, of_product = chord_gaps(h)
        return replace(
            self,
            weights=self.weights * np.array(factors),
            constant=self.constant + max(self.linear, 0.0) * of_log,
            slope=self.slope + max(self.reversed_linear, 0.0) * of_product,
        )

    def with_rising_slope_at(self, y: float) -> Majorant:
        """Return F with its slope b raised, where needed, so that F' >= 0 at t = e^y.

        A part -c/t > 0 of F', for c < 0, is not counted on, as it vanishes far out.
        """
        without_rising_log = replace(self, linear=max(self.linear, 0.0))
        rise, size = without_rising_log.derivative_with_size(y)
        return replace(self, slope=self.slope + max(ROUNDING * size - rise, 0.0))

    def is_above_left_of(self, y: float, bound: float) -> bool:
        """Return whether F is proven to be above V on all of (0, e^y], given that it is at e^y.

        V lies below the chord from (0, 1) to its bound at e^y. F, where it is convex, lies above
        its tangent at e^y. So it is enough that the tangent is no steeper than the chord.

        Args:
            y: the logarithm of the first node's t.
            bound: an upper bound on V there, at most F.
        """
        slope, size = self.derivative_with_size(y)
        slope_of_chord = (bound - 1) * math.exp(-y)
        tangent_is_above = slope + ROUNDING * size <= slope_of_chord * (1 + ROUNDING)
        return tangent_is_above and self.is_convex_up_to(y)

    def is_convex_up_to(self, y: float) -> bool:
        """Return whether F is proven to be convex on (0, e^y].

        There t² F'' is at least c + dt + Σ g e(e+1) t^{-e} over e > 0, whose last part falls.
        """
        if self.linear >= 0 and self.reversed_linear >= 0:
            return True
        at_y = self.terms(np.array([y]))[:, 0]
        curvature = np.where(self.exponents > 0, self.exponents * (self.exponents + 1) * at_y, 0.0)
        below_0 = min(self.linear, 0.0) + min(self.reversed_linear, 0.0) * math.exp(y)
        return float(curvature.sum()) * (1 - ROUNDING) >= -below_0 * (1 + ROUNDING)

    def derivative_rises_from(self, y: float) -> bool:
        """Return whether F', without a part -c/t > 0, is proven to rise for t >= e^y.

        t times its derivative is at least d + Σ g e(e+1) t^{-e-1} over e < -1, which rises.
        """
        if self.reversed_linear >= 0:
            return True
        at_y = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        curvature = np.where(self.exponents < 0, self.exponents * (self.exponents + 1) * at_y, 0.0)
        return float(curvature.sum()) * (1 - ROUNDING) >= -self.reversed_linear * (1 + ROUNDING)

    def with_shortfall_added(self, shortfalls: Floats, moments: Floats) -> Majorant:
        """Return F raised by its shortfall at the nodes: by a constant, or by raising all g_i in
        one proportion, whichever adds less to the bound at x.

        Args:
            shortfalls: by how much F is below V at each node; somewhere positive.
            moments: Σ g_i t^{-e_i} at each node.
        """
        constant = float(shortfalls.max())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shares = np.where(shortfalls > 0, shortfalls / moments, 0.0)
            share = float(np.max(shares))
            moment_worth = float(self.weights @ np.exp(np.minimum(self.limits, LARGEST_EXPONENT)))
        if math.isfinite(share) and share * moment_worth < constant:
            return replace(self, weights=self.weights * (1 + share) * (1 + ROUNDING))
        return replace(self, constant=self.constant + constant)

    def terms(self, y: Floats) -> Floats:
        """Return g_i t^{-e_i} at each t = e^y, shape (terms, length of y)."""
        logs = np.clip(-np.outer(self.exponents, y), -LARGEST_EXPONENT, LARGEST_EXPONENT)
        terms: Floats = self.weights[:, None] * np.exp(logs)
        return terms

    def values_with_sizes(self, y: Floats) -> tuple[Floats, Floats]:
        """Return F at each t = e^y, and the sum of the absolute values of its terms: F is off by at
        most ROUNDING times that.
        """
        t = np.exp(y)
        powers = self.terms(y).sum(axis=0)
        others = (self.slope * t, -self.linear * y, self.reversed_linear * t * y)
        values = self.constant + np.sum(others, axis=0) + powers
        sizes = abs(self.constant) + np.abs(others).sum(axis=0) + powers
        return values, sizes

    def derivative_with_size(self, y: float) -> tuple[float, float]:
        """Return dF/dt at t = e^y, and the sum of the absolute values of its terms: the derivative
        is off by at most ROUNDING times that.
        """
        terms = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        of_log = -self.linear * math.exp(-y)
        of_product = self.reversed_linear * (1 + y)
        derivative = self.slope + of_log + of_product - float(self.exponents @ terms)
        size = abs(self.slope) + abs(of_log) + abs(self.reversed_linear) * (1 + abs(y))
        return derivative, size + float(np.abs(self.exponents) @ terms)

    def step_bounds(self, x: Floats) -> Floats:
        """Return upper bounds on what playing one cost of the class at each ε of ``x`` is worth,
        rounded up; 1 where they are beyond all floats. F must be above V (``lifted``).

        With r = x - ``self.x``, E F(e^{r - L}) is a + b e^r - c (r - m) + d e^r (r + m') and
        moments, where m = E L and m' = -E[L e^{-L}] are the means in both directions, between 0 and
        the largest one M. The moments of centred losses are at most e^{λ²ρ + λm}, and with m' in
        the other direction: convex in m and in m', so that one of their ends decides.
        """
        r = x - self.x
        with np.errstate(over="ignore", invalid="ignore"):
            t = np.exp(r)
            without_means = (self.slope * t, -self.linear * r, self.reversed_linear * t * r)
            forward = self._worst_over_means(r, self.exponents > 0, np.full(len(x), self.linear))
            backward = self._worst_over_means(r, self.exponents < 0, self.reversed_linear * t)
            total = self.constant + np.sum(without_means, axis=0) + forward.worst + backward.worst
            sizes = abs(self.constant) + np.abs(without_means).sum(axis=0)
            sizes = sizes + forward.size + backward.size
            bounds = total + ROUNDING * sizes
        return np.where(np.isfinite(bounds), np.clip(bounds, 0.0, 1.0), 1.0)

    def _worst_over_means(
        self, r: Floats, in_direction: NDArray[np.bool_], factor: Floats
    ) -> _WorstOverMeans:
        """Return the largest value, over the mean losses that the class allows in one direction, of
        a multiple of the mean plus the moments of that direction.

        Args:
            r: x - ``self.x`` for each x.
            in_direction: for each term g_i t^{-e_i}, whether it is a moment of this direction.
            factor: what the mean is multiplied by, for each x.
        """
        worst = np.full(len(r), -np.inf)
        size = np.zeros(len(r))
        means = (0.0, self.moments.mean) if self.moments.centred else (self.moments.mean,)
        for mean in means:
            limits = self.moments.log_moment_at(self.orders[in_direction], mean)
            logs = -np.outer(self.exponents[in_direction], r) + limits[:, None]
            powers = np.where(logs > LARGEST_EXPONENT, np.inf, np.exp(logs))
            of_powers = (self.weights[in_direction][:, None] * powers).sum(axis=0)
            worst = np.fmax(worst, factor * mean + of_powers)
            size = size + np.abs(factor * mean) + of_powers
        return _WorstOverMeans(worst, size)


class _WorstOverMeans(NamedTuple):
    """What depends on a law's mean loss in one direction, for each x.

    Attributes:
        worst: the largest value over the means of the class.
        size: a bound on the sum of the absolute values of its terms; not finite beyond all floats.
    """

    worst: Floats
    size: Floats


class ChordGaps(NamedTuple):
    """By how much chords between two nodes exceed their functions at most, rounded up.

    Attributes:
        of_log: the chord of -ln t.
        of_product: the chord of t ln t, relative to t at the left node.
    """

    of_log: float
    of_product: float


def chord_gaps(h: float) -> ChordGaps:
    """Return the largest gaps between -ln t, t ln t and their chords, between two nodes.

    With r = h / (e^h - 1), the first is largest at t = 1 / r and is r - 1 - ln r; the chord of
    t ln t from t = 1 has the slope k = r e^h, and exceeds it most at t = e^{k - 1}.

    Args:
        h: the distance of the nodes, so that their t's are a factor e^h apart.
    """
    ratio = h / math.expm1(h)
    of_log = ratio - 1 - math.log(ratio)
    slope = ratio * math.exp(h)
    of_product = math.exp(slope - 1) - slope
    return ChordGaps(_gap_rounded_up(of_log), _gap_rounded_up(of_product))


def _gap_rounded_up(gap: float) -> float:
    """Return a gap of ``chord_gaps`` moved up by more than its rounding."""
    return max(gap, 0.0) * (1 + CHORD_MARGIN) + GAP_ROUNDING


def chord_factor(exponent: float, h: float) -> float:
    """Return the largest ratio of the chord of t^e between two nodes, a factor e^h apart, to t^e
    itself, rounded up.

    With 1 + s (t - 1) for the chord over [1, e^h], the ratio is largest at t = e (1 - s) / (s (1 -
    e)).

    Args:
        exponent: e, outside (0, 1), so that the power is convex.
        h: the distance of the nodes, the logarithm of the quotient of their t's.
    """
    rise = math.expm1(exponent * h)
    s = rise / math.expm1(h)
    if s == 0 or exponent == 1:
        return 1.0
    t = exponent * (1 - s) / (s * (1 - exponent))
    t = min(max(t, 1.0), math.exp(h))
    ratio = (1 + s * (t - 1)) * math.exp(-exponent * math.log(t))
    return max(ratio, 1.0) * (1 + CHORD_MARGIN)
