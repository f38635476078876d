"""The exact optimum for k independent ε-BR mechanisms (DDR Theorem 3), in O(k) simple operations
per ε_g.

DDR show that all k adversaries use one t, and that δ(t) = max over l of F_l(t) with each F_l rising
up to t_l = (x + (l+1)ε)/(k+1) and falling after it (x = ε_g). So δ = max over l of

    G(l) = F_l(t_l) = Σ_{j=0..l} P[Bin(k, 1-q) = l-j] (1 - e^{t_l - (j+1)ε}),     q =
    (1-e^{t_l-ε})/(1-e^{-ε}),

a sum of positive terms (nothing cancels) over 0 <= l < k - x/ε, where t_l < ε.

**Pruning.** F_l and F_{l+1} cross at τ = (x + (l+1)ε)/k, between t_l and t_{l+1}. Hence G(l+1) -
G(l) = U - V with U the rise of F_{l+1} from τ to t_{l+1} and V the fall of F_l from t_l to τ. By
DDR Lemma 5.7, with s = ε - τ and t = τ + w/(k+1) in U, t = τ - w/(k+1) in V,

    U ∝ ∫_0^s e^{A(w)} (e^{s-w} - 1) dw,     V ∝ ∫_0^τ e^{B(w)} (1 - e^{w-τ}) dw,

A and B concave with A(0) = B(0) = 0. The chord bounds e^A from below by an exponential, the tangent
from above; for an exponential e^{aw}, Jensen's inequality at the mean of w and the chord in w bound
the integral from below and above. This brackets R = U/V within O(1/k). A candidate that is proven
smaller than a neighbour is dropped, and a handful out of k+1 remain; no unimodality is assumed.

DDR is Dong-Durfee-Rogers 2020, CR is Cesar-Rogers 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import Floats
from dptopk.accounting.bounded_range.fixed_strategies import (
    Ints,
    LogDeltaPoint,
    OptimumCurve,
    common_epsilon_curve,
)
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.binomial import bernstein_reach, log_binomial_pmf
from dptopk.accounting.registry import bound
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter, NotApplicable

SMALLEST_EPSILON = 1e-300  # beyond, ratios of e^-ε - 1, or e^-ε itself, underflow
LARGEST_EPSILON = 700.0
UNPRUNED = 32  # so few candidates are not worth pruning
CACHED = 1 << 14  # candidates whose temporary arrays fit into the cache
EVALUATED = 64  # candidates whose windows of the binomial law are computed at once
RATIO_MARGIN = 1e-8  # above the error of the brackets of ln R
PROBES = 32  # of R between two indices, in a step of the search for a turning point
LEAST_DIVISOR = 1e-300  # stands for a divisor of 0, whose quotient is not used or cut
LOG_NEGLIGIBLE = 46.0  # what is smaller than e^-46 relative to the sum is bounded, not added


def br_nonadaptive_delta(epsilon: float, count: int, *, at_epsilon: ArrayLike) -> Floats:
    """Return δ of k independent ε-BR mechanisms at ε_g: the exact optimum, rounded outward.

    Args:
        epsilon: ε from 1e-300 to 700.
        count: k >= 1.
        at_epsilon: ε_g >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: DDR Theorem 3. Not valid when a mechanism depends on earlier answers, nor for the k
    selections of one peeling top-k (unless k = 1).

    >>> float(br_nonadaptive_delta(1.0, 1, at_epsilon=0.0).round(6))
    0.244919
    """
    return br_nonadaptive_curve(epsilon, count).delta(validate.nonnegatives(at_epsilon=at_epsilon))


def br_nonadaptive_epsilon(epsilon: float, count: int, *, delta: ArrayLike) -> Floats:
    """Return ε_g of k independent ε-BR mechanisms at δ: the exact optimum, rounded outward.

    Args:
        epsilon: ε from 1e-300 to 700.
        count: k >= 1.
        delta: in [0, 1), any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: DDR Theorem 3; valid where ``br_nonadaptive_delta`` is.

    >>> round(float(br_nonadaptive_epsilon(0.1, 100, delta=1e-6)), 3)
    2.246
    """
    return br_nonadaptive_curve(epsilon, count).epsilon(validate.probabilities(delta=delta))


def br_nonadaptive_curve(epsilon: float, count: int) -> OptimumCurve:
    """Return the curve of k independent ε-BR mechanisms, in both directions (DDR Theorem 3).

    Args:
        epsilon: ε from 1e-300 to 700.
        count: k >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges.
    """
    epsilon = validate.positive(epsilon=epsilon)
    count = validate.count(count=count)
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise InvalidParameter(
            f"epsilon must be from {SMALLEST_EPSILON} to {LARGEST_EPSILON}, got {epsilon}"
        )
    turning = partial(_turning_points, epsilon, count)
    largest = partial(_largest_candidate, epsilon, count)

    def optimum(x: float) -> LogDeltaPoint:
        """Return the largest value of all candidates that are not proven to be smaller."""
        return _largest_value(epsilon, count, x, candidates(epsilon, count, at_epsilon=x))

    return common_epsilon_curve(epsilon, count, 0, optimum, turning, largest, probes=9)


def strongest_interaction(charge: Charge) -> Interaction:
    """Return the strongest interaction in which a bound for independent BR mechanisms holds for a
    charge of BR and DP costs.

    One BR cost leaves no room for adaptivity, alone or beside DP costs (CR Corollary 5.1); several
    must be independent.
    """
    if sum(charge.of(BoundedRange).values()) == 1:
        return "setwise"
    return "batch"


@bound(
    "br_nonadaptive",
    source="Dong-Durfee-Rogers 2020, Theorem 3",
    takes=(BoundedRange,),
    valid_through=strongest_interaction,
)
def _br_nonadaptive(charge: Charge) -> Curve:
    """Return the curve of the BR costs of a charge.

    Raises:
        NotApplicable: when their ε's differ or are out of range.
    """
    if len(charge.costs) > 1:
        raise NotApplicable("needs all BR costs to have the same epsilon")
    ((cost, count),) = charge.of(BoundedRange).items()
    if not SMALLEST_EPSILON <= cost.epsilon <= LARGEST_EPSILON:
        raise NotApplicable(
            f"computes with epsilon from {SMALLEST_EPSILON} to {LARGEST_EPSILON} only"
        )
    return br_nonadaptive_curve(cost.epsilon, count)


def candidates(epsilon: float, count: int, *, at_epsilon: float) -> Ints:
    """Return the indices l that may attain the maximum of G(l): all except those proven to be below
    a neighbour.

    Args:
        epsilon: ε > 0.
        count: k >= 1.
        at_epsilon: ε_g >= 0.

    Returns:
        Rising integers in [0, k), at least one.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> len(candidates(0.1, 10_000, at_epsilon=20.0)) < 200
    True
    """
    epsilon = validate.positive(epsilon=epsilon)
    count = validate.count(count=count)
    last = _last_index(epsilon, count, validate.nonnegative(at_epsilon=at_epsilon))
    indices = np.arange(last + 1)
    if last < UNPRUNED:
        return indices
    # Proven rises and falls from l to l + 1; a NaN proves nothing.
    rises = np.zeros(last, dtype=bool)
    falls = np.zeros(last, dtype=bool)
    for begin in range(0, last, CACHED):
        block = slice(begin, min(begin + CACHED, last))
        low, high = _log_ratio(epsilon, count, at_epsilon, indices[block].astype(float))
        rises[block] = low > RATIO_MARGIN
        falls[block] = high < -RATIO_MARGIN
    # An index is dropped if G rises from it to the next one, or falls to it from the one before.
    return indices[np.append(~rises, True) & np.append(True, ~falls)]


def _last_index(epsilon: float, count: int, x: float) -> int:
    """Return the largest l < k - x/ε, at least 0.

    Rounding may lose the last l; its t_l is next to ε, where δ is far from its maximum.

    Args:
        epsilon: ε.
        count: k.
        x: ε_g.
    """
    return max(0, min(count, math.ceil(count - x / epsilon)) - 1)


@dataclass(frozen=True)
class _LogSlopes:
    """How fast the probabilities of a mechanism's two losses change with t, at the τ of each
    candidate (module docstring): q is that of the larger loss, t, and 1 - q that of the smaller
    one, t - ε.

    Attributes:
        smaller: the derivatives of ln(1-q) in t, which are positive; shape (n,).
        larger: those of -ln q, also positive.
    """

    smaller: Floats
    larger: Floats

    def exponents(
        self, step: Floats, smaller_losses: Floats, larger_losses: Floats
    ) -> tuple[Floats, Floats]:
        """Return an upper and a lower bound on the exponent A or B of the module docstring, where t
        has moved by ``step``: the tangent at 0, and the exponent itself there, to which the chord
        from 0 leads.

        A or B is the change of the logarithm of e^t (1-q)^m q^n when t moves; it is concave.

        Args:
            step: by how much t moves, for each candidate.
            smaller_losses: m, the number of mechanisms with the smaller loss.
            larger_losses: n, the number of those with the larger one.
        """
        growth = np.expm1(step)
        tangent = step * (1 + smaller_losses * self.smaller - larger_losses * self.larger)
        # Rounding may move the new 1 - q, or the new q, below 0: it is cut to 0.
        chord = (
            step
            + smaller_losses * np.log1p(np.maximum(growth * self.smaller, -1.0))
            + larger_losses * np.log1p(-np.minimum(growth * self.larger, 1.0))
        )
        return tangent, chord


def _log_ratio(epsilon: float, k: int, x: float, index: Floats) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on ln R(l) for each index l, R = (rise of F_{l+1}) / (fall of
    F_l); see the module docstring.

    Args:
        epsilon: ε.
        k: the number of mechanisms.
        x: ε_g.
        index: the indices l, shape (n,).
    """
    tau = (x + (index + 1) * epsilon) / k
    # ε - τ is above 0, but rounding may make the last one 0.
    s = np.maximum(((k - 1 - index) * epsilon - x) / k, 5e-324)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # The integrals U and V without e^A and e^B, and R by them alone.
        rise = _Integral.of(s)
        fall = _Integral.of(-tau)
        log_ratio = _log_factor(k, index, s, tau) + rise.log_value - fall.log_value
        # What e^A and e^B change.
        slopes = _LogSlopes(smaller=1 / -np.expm1(-tau), larger=1 / np.expm1(s))
        a_tangent, a_chord = slopes.exponents(s / (k + 1), index + 1, k - index - 2)
        b_tangent, b_chord = slopes.exponents(-tau / (k + 1), index, k - index - 1)
        low = log_ratio + a_chord * rise.mean - np.log1p(np.expm1(b_tangent) * fall.mean)
        high = log_ratio + np.log1p(np.expm1(a_tangent) * rise.mean) - b_chord * fall.mean
    return low, high


def _log_factor(k: int, index: Floats, s: Floats, tau: Floats) -> Floats:
    """Return the logarithm of the ratio of what stands before the integrals U and V, for each l.

    Args:
        k: the number of mechanisms.
        index: the indices l, shape (n,).
        s: ε - τ at each.
        tau: τ at each.
    """
    log_odds = np.log((k - 1 - index) / (index + 1))
    return log_odds + np.log(np.expm1(-tau) / np.expm1(-s))


class _Integral(NamedTuple):
    """The integral of |e^{z-w} - 1| over w from 0 to z, for each of several z.

    With r_n(z) = e^z - Σ_{j<n} z^j/j! it is r_2(z), and the mean of w/z under the density in
    proportion to |e^{z-w} - 1| is r_3(z)/(z r_2(z)).

    Attributes:
        log_value: the logarithm of the integral, less max(z, 0), to 1e-9.
        mean: that mean, in [0, 1], to a relative 1e-9.
    """

    log_value: Floats
    mean: Floats

    @classmethod
    def of(cls, z: Floats) -> _Integral:
        """Return the integrals for z's of either sign, shape (n,)."""
        is_small = np.abs(z) < 1
        by_series = cls._by_series(np.clip(z, -1.0, 1.0))
        # Where z is small the closed form would cancel: its value at 1 is not used.
        closed = cls._closed(np.where(is_small, 1.0, z))
        return cls(
            np.where(is_small, by_series.log_value, closed.log_value),
            np.where(is_small, by_series.mean, closed.mean),
        )

    @classmethod
    def _by_series(cls, z: Floats) -> _Integral:
        """Return the integrals for |z| <= 1, by r_n(z) = Σ_{j>=n} z^j/j! with Horner's rule."""
        # r_2 = (1 + tail_2) z²/2 and r_3 = (1 + tail_3) z³/6.
        tail_2 = np.zeros_like(z)
        tail_3 = np.zeros_like(z)
        for j in range(12, 1, -1):
            tail_2 = (tail_2 + 1) * z / (j + 1)
            tail_3 = (tail_3 + 1) * z / (j + 2)
        integral = (tail_2 + 1) * z**2 / 2
        return cls(np.log(integral) - np.maximum(z, 0.0), (tail_3 + 1) / (tail_2 + 1) / 3)

    @classmethod
    def _closed(cls, z: Floats) -> _Integral:
        """Return the integrals for |z| >= 1, by r_2(z) = e^z - 1 - z and r_3(z) = r_2(z) - z²/2,
        all terms times e^{-max(z, 0)}.
        """
        decay = np.exp(-np.maximum(z, 0.0))
        r2 = np.exp(np.minimum(z, 0.0)) - (1 + z) * decay
        return cls(np.log(r2), 1 / z - z / 2 * decay / r2)


def _turning_points(epsilon: float, count: int, x: float) -> tuple[int, int]:
    """Return the first and the last index between which the bounds on R(l) seem to fall below 1; if
    R falls everywhere, the maximum of G lies there.

    Args:
        epsilon: ε.
        count: k.
        x: ε_g.
    """
    # The intervals (first, last) of indices in which the lower and the upper bound on R fall below
    # 1; one evaluation of both bounds narrows both.
    of_lower = (0, _last_index(epsilon, count, x))
    of_upper = of_lower
    while of_lower[0] < of_lower[1] or of_upper[0] < of_upper[1]:
        firsts = [of_lower[0], of_upper[0]]
        lasts = [max(of_lower[1] - 1, 0), max(of_upper[1] - 1, 0)]
        probe = np.unique(np.linspace(firsts, lasts, PROBES).astype(int))
        log_lower, log_upper = _log_ratio(epsilon, count, x, probe.astype(float))
        of_lower = _narrowed_turn(of_lower, probe, log_lower)
        of_upper = _narrowed_turn(of_upper, probe, log_upper)
    return min(of_lower[0], of_upper[0]), max(of_lower[1], of_upper[1])


def _narrowed_turn(interval: tuple[int, int], probe: Ints, log_ratios: Floats) -> tuple[int, int]:
    """Return a smaller interval (low, high) in which a bound on R turns: it seems to be above 1
    before low, and at most 1 from high on.

    Args:
        interval: the interval known so far.
        probe: indices at which the bound was evaluated, rising.
        log_ratios: its logarithms there; a NaN counts as 0.
    """
    low, high = interval
    is_rise = np.nan_to_num(log_ratios, nan=0.0) > 0
    rises = probe[is_rise & (probe < high)]
    low = max(low, int(rises.max(initial=-1)) + 1)
    falls = probe[~is_rise & (probe >= low)]
    return low, min(high, int(falls.min(initial=high)))


def _largest_value(epsilon: float, count: int, x: float, index: Ints) -> LogDeltaPoint:
    """Return the ln G(l) with the largest upper end, which bounds all, among these indices.

    Args:
        epsilon: ε.
        count: k.
        x: ε_g.
        index: the indices l, at least one.
    """
    points = []
    for begin in range(0, len(index), EVALUATED):
        _, point = _largest_candidate(epsilon, count, x, index[begin : begin + EVALUATED])
        points.append(point)
    return max(points, key=lambda point: point.upper)


@dataclass(frozen=True)
class _Candidates:
    """Candidates l with the law Bin(k, 1-q) of the number of smaller losses at each; arrays of
    shape (m,).

    Attributes:
        index: l.
        s: ε - t_l.
        q: the probability of a mechanism's larger loss, t_l.
        one_minus_q: 1 - q, that of the smaller loss, t_l - ε, to full relative precision.
    """

    index: Floats
    s: Floats
    q: Floats
    one_minus_q: Floats

    @classmethod
    def of(cls, epsilon: float, k: int, x: float, index: Floats) -> _Candidates:
        """Return the candidates with these indices, of k mechanisms of ``epsilon`` at ε_g = x.

        Args:
            epsilon: ε of each mechanism.
            k: the number of mechanisms.
            x: ε_g.
            index: the indices l, shape (m,).
        """
        t = np.minimum((x + (index + 1) * epsilon) / (k + 1), epsilon)
        # t_l < ε for all candidates, but rounding may make the last s 0.
        never_zero = 1e-15 * epsilon
        s = np.maximum(((k - index) * epsilon - x) / (k + 1), never_zero)
        q = np.expm1(-s) / math.expm1(-epsilon)
        # 1 - q = e^{t-ε} (1-e^{-t})/(1-e^{-ε})
        return cls(index, s, q, np.exp(-s) * np.expm1(-t) / math.expm1(-epsilon))


@dataclass(frozen=True)
class _PmfWindows:
    """A window of the pmf of Bin(k, 1-q), the number of smaller losses, for each candidate l, from
    ``top`` downwards.

    Attributes:
        top: shape (m,), the largest number of smaller losses in the window, at most l.
        offset: shape (n,), the numbers are top - offset.
        weights: shape (m, n), pmf(top - offset) / (pmf(top) e^peak).
        peak: shape (m,), the largest ln of pmf(top - offset) / pmf(top).
        cut: shape (m,), bound on the weights that the window leaves out.
    """

    top: Floats
    offset: Floats
    weights: Floats
    peak: Floats
    cut: Floats

    @classmethod
    def of(cls, k: int, tried: _Candidates) -> _PmfWindows:
        """Return the windows of candidates among k mechanisms; they are wide enough for a relative
        e^-46.
        """
        # Of the numbers i of smaller losses up to l, this one has the largest pmf.
        mode = np.minimum(np.floor((k + 1) * tried.one_minus_q), k)
        likeliest = np.minimum(tried.index, mode)
        top = np.minimum(tried.index, mode + bernstein_reach(k * tried.one_minus_q * tried.q))
        width = _reach_downwards(k, likeliest, tried.q, tried.one_minus_q)
        width = width + np.maximum(top - likeliest, 0)
        # All candidates have windows of the same width.
        offset = np.arange(min(int(width.max()), int(top.max())) + 1.0)
        i = np.maximum(top[:, None] - offset, -1.0)  # at -1 the pmf is 0
        odds = tried.q / tried.one_minus_q
        log_ratios = np.log((i + 1) / (k - i) * odds[:, None])  # of pmf(i) to pmf(i + 1)
        log_ratios[:, 0] = 0.0  # of the top to itself
        log_weights = np.cumsum(log_ratios, axis=1)
        peak = log_weights.max(axis=1)
        weights = np.exp(log_weights - peak[:, None])
        cut = _weights_left_out(k, tried.index, i, odds, weights)
        return cls(top, offset, weights, peak, cut)


def _weights_left_out(k: int, index: Floats, i: Floats, odds: Floats, weights: Floats) -> Floats:
    """Return a bound on the weights of the numbers of smaller losses below and above a window, up
    to l = ``index``.

    Args:
        k: the number of mechanisms.
        index: l of each candidate.
        i: shape (m, n), the numbers of smaller losses in the windows, falling.
        odds: q / (1 - q).
        weights: the weights in the windows.
    """
    top = i[:, 0]
    bottom = i[:, -1]
    # The ratios of neighbouring masses at either end; farther out they are smaller.
    ratio_below = np.maximum(bottom, 0) / (k - bottom + 1) * odds
    ratio_above = (k - top) / (top + 1) / odds
    above = np.where(top < index, _geometric_sum(ratio_above), 0.0)
    return weights[:, -1] * _geometric_sum(ratio_below) + weights[:, 0] * above


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # a NaN ends as δ = 1
def _largest_candidate(
    epsilon: float, k: int, x: float, indices: Ints
) -> tuple[int, LogDeltaPoint]:
    """Return where in ``indices`` the l with the largest upper end of ln G(l) stands, and its ln
    G(l) with its error and its slope in x.

    G(l) is pmf(top) e^peak Σ weights · gains over the window of l, and d ln G / dx = -Σ weights ·
    (1 - gains) / Σ weights · gains.

    Args:
        epsilon: ε.
        k: the number of mechanisms.
        x: ε_g.
        indices: the l, shape (m,).
    """
    tried = _Candidates.of(epsilon, k, x, indices.astype(float))
    window = _PmfWindows.of(k, tried)
    gap = (tried.index - window.top)[:, None] + window.offset  # l - i
    gains = -np.expm1(-tried.s[:, None] - gap * epsilon)
    total = (window.weights * gains).sum(axis=1)
    slope = -(window.weights.sum(axis=1) + window.cut - total) / total
    log_anchor = log_binomial_pmf(window.top, k, tried.one_minus_q, tried.q)
    log_value = log_anchor + window.peak + np.log(total)
    # Every step of the sum of logarithms rounds by at most an ulp of its size, which matters down
    # to e^-46 only.
    anchoring = 1e-15 * (10 + np.abs(window.top - k * tried.one_minus_q) + 2 * np.abs(log_anchor))
    rounding = anchoring + 3e-16 * window.offset.size * (50 + window.peak)
    # t_l and s are rounded by a few units of roundoff of kε + x, which the slope carries to ln G.
    error = rounding + np.log1p(window.cut / total) - 4e-16 * (k * epsilon + x) * slope
    best = int(np.nan_to_num(log_value + error, nan=np.inf).argmax())
    return best, LogDeltaPoint(float(log_value[best]), float(error[best]), float(slope[best]))


def _reach_downwards(k: int, i: Floats, q: Floats, one_minus_q: Floats) -> Floats:
    """Return an estimate of the number of terms of the pmf below i that matter, to a relative
    e^-46; what the window leaves out is bounded in any case.

    Args:
        k: the number of mechanisms.
        i: the number of smaller losses where a window begins, for each candidate.
        q: the probability of a larger loss.
        one_minus_q: 1 - q.
    """
    ratio = (k - i + 1) / i * (one_minus_q / q)  # pmf(i) / pmf(i - 1), larger for all terms below
    rate = np.maximum(np.log(ratio), LEAST_DIVISOR)
    return np.minimum(np.ceil(LOG_NEGLIGIBLE / rate) + 1, bernstein_reach(k * one_minus_q * q))


def _geometric_sum(ratio: Floats) -> Floats:
    """Return Σ ratio^j over j >= 1, inf where that does not converge: an upper bound on the sum of
    the terms beyond one of size 1, of a log-concave sequence whose next ratio this is.
    """
    return np.where(ratio < 1, ratio / np.maximum(1 - ratio, LEAST_DIVISOR), np.inf)
