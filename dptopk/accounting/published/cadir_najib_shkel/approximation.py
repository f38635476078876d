"""f-DP composed through several (ε, δ) constraints: a trade-off function approximated from below
and from above.

A *slope* is stated as the ε >= 0 for which it is -e^ε.

- *From below*: tangents. The constraints (ε_i, δ(ε_i)) hold for every f-DP mechanism, so what they
  compose to is an upper bound on δ. In the upper half of the graph (above the diagonal) the n
  tangents that leave the least area touch f in the middle of their own segments.
- *From above*: chords. Outcomes are merged, which is post-processing, so what they compose to is a
  lower bound on the δ of the f-DP pair. The vertices with the least area have tangents parallel to
  the chord between their neighbours.

Any choice of tangents and chords is sound; the best ones are only found numerically. Composed k
times with ``multi_dp_bracket``, they hold the k-fold composition of f between them, and meet as n
grows (docs/notes/regions.md).

Source: Cadir-Najib-Shkel 2026, Section IV, Propositions 1 and 2 (n = 2), here for any n.
Proposition 1 as printed (``proposition_1``) turns the graph and integrates up to the turned end of
the graph, not up to t = 0: with respect to the integral (8) that it sets out to minimise, it is off
the optimum (for G_1 its area is 9% larger).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats
from dptopk.accounting.f_dp.multi_dp import multi_dp_bracket
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import PiecewiseLinear, TradeoffFunction
from dptopk.errors import InvalidParameter

# Relative rounding of the δ(ε) of a smooth f and of its touching points (error functions in
# logarithms).
ROUNDING = 1e-11
# The search for a steep end of the graph: by what the slope ε grows, and where it stops.
SLOPE_GROWTH = 1.5
LARGEST_SLOPE = 1e3
NEGLIGIBLE_WIDTH = 1e-12  # a type I error: what is left of the graph before it is ignored
TURNED_ROUNDING = 1e-13  # relative: so close to its end a point of the turned graph counts as it
SLOPE_AT_0 = 1e6  # an ε at which a line touches f at t = 0 only
# Of a root: a few units of roundoff. Tangents of other slopes are sound too.
ROOT_TOLERANCE = 1e-14
LENGTH_POINTS = 20_001  # at which the affine length is summed by the trapezoid rule


def from_below(f: TradeoffFunction, epsilons: ArrayLike) -> PiecewiseLinear:
    """Return a trade-off function f_{ε, δ(ε)} <= f: the largest of its tangents of slopes -e^ε_i,
    mirrored at the diagonal. The δ's are rounded up by a relative 1e-11.

    Args:
        f: a symmetric trade-off function.
        epsilons: one-dimensional, >= 0; equal ones count once.

    Raises:
        InvalidParameter: when they are no such numbers.
    """
    slopes = _slopes(epsilons)
    deltas = np.minimum(f.delta(slopes) * (1 + ROUNDING), np.nextafter(1, 0))
    return PiecewiseLinear.from_constraints(zip(slopes.tolist(), deltas.tolist(), strict=True))


def from_above(f: TradeoffFunction, epsilons: ArrayLike) -> PiecewiseLinear:
    """Return a trade-off function that is at least f, so that its δ is a lower bound: the chords
    between the points at which f has the slopes -e^ε_i, mirrored at the diagonal.

    The points (0, f(0)) and, with ε = 0, the one on the diagonal are added.

    Args:
        f: a symmetric trade-off function.
        epsilons: one-dimensional, >= 0; equal ones count once.

    Raises:
        InvalidParameter: when they are no such numbers.
    """
    slopes = _slopes(epsilons)
    if min(slopes) > 0:
        slopes = np.append(slopes, 0.0)
    # The points where f has these slopes; 1 - f there is computed without cancellation.
    type_1 = f.touch(slopes)
    one_less_f = f.delta(slopes) + np.exp(slopes) * type_1
    widths = np.diff(type_1, prepend=0.0)
    drops = np.diff(one_less_f, prepend=0.0)
    is_segment = (widths > 0) | (drops > 0)
    widths = widths[is_segment]
    drops = drops[is_segment]
    # Mirrored at the diagonal, a width becomes a drop.
    p = np.concatenate([widths, drops[::-1]])
    q = np.concatenate([drops, widths[::-1]])
    return PiecewiseLinear.from_masses(p / math.fsum(p), q / math.fsum(q))


def compose_f_dp(
    f: TradeoffFunction,
    count: int,
    *,
    at_epsilon: ArrayLike,
    pieces: int = 8,
    slopes: ArrayLike | None = None,
    rtol: float = 1e-4,
) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on the δ of ``count`` f-DP mechanisms, from ``pieces`` chords
    and tangents in each half of the graph.

    Args:
        f: a symmetric trade-off function, strictly convex.
        count: number of mechanisms k >= 1.
        at_epsilon: ε >= 0, any shape.
        pieces: n, the constraints of either approximation, of least area.
        slopes: use tangents and chords at these ε >= 0 instead. Evenly spaced ones that reach far
            suit a small δ: the least area cares little for the corner at t = 0, which fails
            altogether with probability δ(ε_1) each time.
        rtol: to which they are composed, when their outcomes are too many to list
            (``multi_dp_bracket``).

    Returns:
        (lower, upper) on the δ of the product of the f-DP pair, of the shape of at_epsilon. The
        upper bound holds for every f-DP mechanism. Rounding: δ(ε) and f of a smooth function are
        taken to be right to 1e-11.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Cadir-Najib-Shkel 2026, Section IV.

    >>> from dptopk.accounting.published.cadir_najib_shkel.tradeoff import GaussianTradeoff
    >>> lower, upper = compose_f_dp(GaussianTradeoff(1.0), 3, at_epsilon=[1.0], pieces=8)
    >>> bool(lower < GaussianTradeoff(3**0.5).delta([1.0]) < upper)
    True
    """
    validate.count(count=count)
    if slopes is None:
        above = best_chords(f, pieces)
        below = best_tangents(f, pieces)
    else:
        above = from_above(f, slopes)
        below = from_below(f, slopes)
    # A relative error of 1e-11 in each mass of the chords moves δ by at most 2 k 1e-11.
    lower, _ = multi_dp_bracket(above.constraints(), count, at_epsilon=at_epsilon, rtol=rtol)
    lower = lower - 4 * count * ROUNDING  # twice that
    _, upper = multi_dp_bracket(below.constraints(), count, at_epsilon=at_epsilon, rtol=rtol)
    return np.maximum(lower, 0.0), upper


def best_tangents(f: TradeoffFunction, pieces: int) -> PiecewiseLinear:
    """Return the ``from_below`` of n slopes, those with (numerically) the least area to f.

    Every tangent touches f in the middle of its segment, between t = 0 and the diagonal.

    Args:
        f: a symmetric trade-off function, strictly convex.
        pieces: n >= 1, the tangents of one half.

    Raises:
        InvalidParameter: for another number of pieces.
    """

    def residual(epsilons: Floats) -> Floats:
        """Return by how much each touching point is off the middle of its segment, relatively."""
        deltas = f.delta(epsilons)
        slopes = np.exp(epsilons)
        crossings = -np.diff(deltas) / np.diff(slopes)  # of neighbouring tangents
        last = (1 - deltas[-1]) / (1 + slopes[-1])  # with the diagonal
        ends = np.concatenate([[0.0], crossings, [last]])
        return np.asarray(f.touch(epsilons) / ((ends[:-1] + ends[1:]) / 2) - 1)

    return from_below(f, _solve(residual, slopes_of_equal_length(f, pieces)))


def best_chords(f: TradeoffFunction, pieces: int) -> PiecewiseLinear:
    """Return the ``from_above`` of n - 1 inner vertices, those with (numerically) the least area to
    f.

    At each vertex f is parallel to the chord between its neighbours; the outer ones are t = 0 and
    the diagonal.

    Args:
        f: a symmetric trade-off function, strictly convex.
        pieces: n >= 1, the chords of one half.

    Raises:
        InvalidParameter: for another number of pieces.
    """

    def slope_errors(epsilons: Floats) -> Floats:
        """Return by how much ln of the slope of the chord between the neighbours of each vertex is
        off its ε.
        """
        slopes = np.append(epsilons, 0.0)
        touching = f.touch(slopes)
        # The line of slope -e^ε through (t, f(t)) meets t = 0 at 1 - δ(ε).
        one_less_f = f.delta(slopes) + np.exp(slopes) * touching
        at_0 = float(f.delta(SLOPE_AT_0))  # 1 - f(0) = δ(∞)
        type_1 = np.append(0.0, touching)
        one_less_f = np.append(at_0, one_less_f)
        slopes_of_chords = (one_less_f[2:] - one_less_f[:-2]) / (type_1[2:] - type_1[:-2])
        return np.asarray(np.log(slopes_of_chords) - epsilons)

    if validate.count(pieces=pieces) == 1:
        return from_above(f, [0.0])
    return from_above(
        f, np.append(_solve(slope_errors, slopes_of_equal_length(f, pieces - 1)), 0.0)
    )


def slopes_of_equal_length(f: TradeoffFunction, pieces: int) -> Floats:
    """Return n slopes ε, falling, at equal steps of the affine length ∫ f''^{1/3} dt of the graph,
    which leave the least area asymptotically.

    With t(ε) the touching point it is ∫ e^{ε/3} |t'(ε)|^{2/3} dε.

    Args:
        f: a symmetric trade-off function, strictly convex.
        pieces: n >= 1.

    Raises:
        InvalidParameter: for another number of pieces.
    """
    validate.count(pieces=pieces)
    steepest = 1.0  # an ε from which on the lines touch f at almost 0
    while float(f.touch(steepest)) > NEGLIGIBLE_WIDTH and steepest < LARGEST_SLOPE:
        steepest *= SLOPE_GROWTH
    epsilons = np.linspace(0, steepest, LENGTH_POINTS)
    with np.errstate(divide="ignore", invalid="ignore"):
        speeds = np.abs(np.gradient(f.touch(epsilons), epsilons))  # |t'(ε)|
        density = np.exp(epsilons / 3) * speeds ** (2 / 3)
    length = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
    wanted = length[-1] * (np.arange(pieces) + 0.5) / pieces
    return np.asarray(np.interp(wanted, length, epsilons)[::-1])


def proposition_1(f: TradeoffFunction) -> PiecewiseLinear:
    """Return the ``from_below`` of the two slopes that Proposition 1 states, taken literally.

    In the graph turned by 45 degrees, u = (t - f(t))/√2, from z = -f(0)/√2 to 0, the tangents at
    (u* + z)/2 and u*/2 meet at u*, which is found by a search for a root. Its δ's are rounded up
    as those of ``from_below``.

    Args:
        f: a symmetric trade-off function, strictly convex.
    """
    from scipy.optimize import brentq

    graph = _TurnedGraph(f)
    z = graph.left_end

    def gap(meeting: float) -> float:
        """Return the difference of the heights of both tangents where they ought to meet."""
        left_tangent = graph.tangent_height((meeting + z) / 2, at=meeting)
        right_tangent = graph.tangent_height(meeting / 2, at=meeting)
        return left_tangent - right_tangent

    # Inside the ends z and 0, where the two tangents would be one.
    meeting = float(brentq(gap, z * (1 - 1e-9), z * 1e-9, xtol=ROOT_TOLERANCE))
    return from_below(f, [graph.epsilon_at((meeting + z) / 2), graph.epsilon_at(meeting / 2)])


class _TurnedGraph:
    """The left half of the graph of a trade-off function, turned by 45 degrees: the height
    (t + f(t))/√2 over u = (t - f(t))/√2, where u runs from a left end to 0 at the diagonal.

    Args:
        f: a symmetric trade-off function, strictly convex.

    Attributes:
        left_end: z = -f(0)/√2, which is u at t = 0.
    """

    def __init__(self, f: TradeoffFunction) -> None:
        """Look for a slope at which the turned graph has come to its left end."""
        self._f = f
        self.left_end = -float(f(0.0)) / math.sqrt(2)
        near_left_end = self.left_end * (1 - TURNED_ROUNDING)
        self._largest_epsilon = 1.0
        while self._point(self._largest_epsilon)[0] > near_left_end:
            if self._largest_epsilon >= LARGEST_SLOPE:
                break
            self._largest_epsilon *= SLOPE_GROWTH

    def _point(self, epsilon: float) -> tuple[float, float]:
        """Return (u, height) of the point at which f has the slope -e^ε."""
        t = float(self._f.touch(epsilon))
        value = float(self._f(self._f.touch(epsilon)))
        return (t - value) / math.sqrt(2), (t + value) / math.sqrt(2)

    def epsilon_at(self, u: float) -> float:
        """Return the ε for which f has the slope -e^ε at u; 0 at the diagonal and beyond."""
        from scipy.optimize import brentq

        if u >= 0:
            return 0.0

        def excess(epsilon: float) -> float:
            """Return by how much u at a slope is too large."""
            u_at_slope, _ = self._point(epsilon)
            return u_at_slope - u

        return float(brentq(excess, 0.0, self._largest_epsilon, xtol=ROOT_TOLERANCE))

    def tangent_height(self, u: float, *, at: float) -> float:
        """Return the height, over another place, of the tangent that touches the turned graph.

        Args:
            u: where the tangent touches.
            at: the place at which its height is asked for.
        """
        epsilon = self.epsilon_at(u)
        _, height = self._point(epsilon)
        # In the turned graph the slope is (1 - e^ε)/(1 + e^ε).
        return height - math.tanh(epsilon / 2) * (at - u)


def area_between(
    f: TradeoffFunction, approximation: PiecewiseLinear, points: int = 200_001
) -> float:
    """Estimate ∫ |f(t) - approximation(t)| dt over [0, 1] by the trapezoid rule, with points
    crowded at t = 0 and t = 1.

    Args:
        f: a trade-off function.
        approximation: of it, from either side.
        points: of the rule, at least 2.

    Raises:
        InvalidParameter: on another number of points.
    """
    points = validate.count(at_least=2, points=points)
    t = (1 - np.cos(np.linspace(0, np.pi, points))) / 2
    return float(np.trapezoid(np.abs(f(t) - approximation(t)), t))


def _slopes(epsilons: ArrayLike) -> Floats:
    """Return the distinct ε's, falling, which stand for the slopes -e^ε from the steepest on.

    Raises:
        InvalidParameter: unless they are a one-dimensional array of finite numbers >= 0.
    """
    array = validate.nonnegatives(epsilons=epsilons)
    if array.ndim != 1 or not array.size:
        raise InvalidParameter("epsilons must be one-dimensional and not empty")
    return np.unique(array)[::-1]


def _solve(residual: Callable[[Floats], Floats], guess: Floats) -> Floats:
    """Return ε's > 0, falling, at which the optimality conditions hold, or the guess where no root
    is found, which is sound as well.

    Args:
        residual: maps the ε's to what the conditions are off by.
        guess: the ε's > 0, falling, where the search starts.
    """
    from scipy.optimize import root

    def finite_residual(log_gaps: Floats) -> Floats:
        """Return the residuals of the ε's whose differences have these logarithms, so that they are
        in order; 1000 where they are no numbers.
        """
        with np.errstate(all="ignore"):
            values = residual(np.cumsum(np.exp(log_gaps))[::-1])
        return np.where(np.isfinite(values), values, 1e3)

    # Any ε's are sound: the tolerance decides only how close to the least area they come.
    gaps = np.diff(guess[::-1], prepend=0.0)
    solution = root(finite_residual, np.log(gaps), method="hybr", options={"xtol": 1e-13})
    root_epsilons = np.cumsum(np.exp(solution.x))[::-1]
    best = min((guess, root_epsilons), key=lambda x: float(np.abs(residual(x)).max()))
    if np.isfinite(best).all():
        return best
    return guess
