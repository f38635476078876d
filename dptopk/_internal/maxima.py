"""P[max(N1, ..., Nm) - N0 > c] for integer noise: the chance that one of m slots passes a threshold
they share.

The probability is Σ_n p(n) φ(S(n + c)) with S(x) = P[N > x] and φ(S) = 1 - (1 - S)^m. The laws are
log-concave, so is S, and log φ is concave and increasing in log S: the terms are log-concave in n,
also as a function on the reals. Short sums are taken term by term; long ones in blocks, where each
term is at most the tangent of the logarithm at the middle of its block. Never below the truth; the
relative excess is below 1e-5 for c up to 50 scales, and 2e-9 in short sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dptopk._internal.rounding import tail_up
from dptopk._internal.tails import (
    SUMMED_SCALE,
    gaussian_difference_tail,
    gaussian_tail,
    gaussian_weight,
    laplace_difference_tail,
    laplace_tail,
    smallest_offset,
    theta,
)

Array = np.ndarray[Any, Any]
CELLS_AT_A_TIME = 16384  # the most terms, or blocks of terms, that are added
# Below this, products of small terms could underflow, and the union bound (a closed form) stands.
SMALLEST_SUM = 1e-280


@lru_cache(maxsize=256)
def laplace_offset(rate: float, special: int, delta: float) -> int:
    """Return the smallest integer c >= 0 at which ``laplace_maximum_tail``, an upper bound on
    P[max of ``special`` noises - N0 > c], is at most delta.

    Args:
        rate: the rate of all noises, P[n] ∝ exp(-rate |n|).
        special: the number of noises that the maximum is of.
        delta: the tail that is allowed, in (0, 1).

    >>> laplace_offset(0.1, 1, 1e-6), laplace_offset(0.1, 100, 1e-6)
    (153, 199)
    """
    return _smallest_maximum_offset(
        partial(laplace_maximum_tail, rate), partial(laplace_difference_tail, rate), special, delta
    )


@lru_cache(maxsize=256)
def gaussian_offset(scale: float, special: int, delta: float) -> int:
    """Return the smallest integer c >= 0 at which ``gaussian_maximum_tail``, an upper bound on
    P[max of ``special`` noises - N0 > c], is at most delta.

    Args:
        scale: the scale of all noises, P[n] ∝ exp(-n²/(2 scale²)).
        special: the number of noises that the maximum is of.
        delta: the tail that is allowed, in (0, 1).

    >>> gaussian_offset(10.0, 1, 1e-6), gaussian_offset(10.0, 100, 1e-6)
    (67, 79)
    """
    return _smallest_maximum_offset(
        partial(gaussian_maximum_tail, scale),
        partial(gaussian_difference_tail, scale),
        special,
        delta,
    )


def _smallest_maximum_offset(
    maximum: Callable[[int, int], float], single: Callable[[int], float], special: int, delta: float
) -> int:
    """Return the smallest integer offset at which the tail of the maximum is at most ``delta``.

    It lies between the offsets of one slot and of the union bound, and is found by interpolation of
    the tail's logarithm (the Illinois method).

    Args:
        maximum: maps the number of slots and c to the tail of the maximum.
        single: maps c to the tail of one slot.
        special: the number of slots.
        delta: the tail that is allowed.
    """
    low = smallest_offset(single, delta, "delta")
    if special == 1 or maximum(special, low) <= delta:
        return low

    def union(c: int) -> float:
        """Return the union bound at an offset."""
        return special * single(c)

    high = smallest_offset(union, delta, "delta", low)
    # The logarithms of tail / delta: above 0 at ``low``, at most 0 at ``high``.
    excess_at_low = math.log(maximum(special, low) / delta)
    excess_at_high = math.log(maximum(special, high) / delta)
    low_moved_last = False
    while high - low > 1:
        share = excess_at_low / (excess_at_low - excess_at_high)
        crossing = low + round((high - low) * share)
        middle = min(max(crossing, low + 1), high - 1)
        tail = maximum(special, middle)
        if tail > delta:
            low = middle
            excess_at_low = math.log(tail / delta)
            if low_moved_last:  # the same end moved twice: weigh the other one less
                excess_at_high = excess_at_high / 2
            low_moved_last = True
        else:
            high = middle
            excess_at_high = math.log(tail / delta)
            if not low_moved_last:
                excess_at_low = excess_at_low / 2
            low_moved_last = False
    return high


def laplace_maximum_tail(rate: float, m: int, c: int, other: float | None = None) -> float:
    """Return an upper bound on P[max(N1, ..., Nm) - N0 > c] for P[n] ∝ exp(-rate |n|); at most the
    union bound where all have one rate.

    The terms are added over a range of N0; what is outside it is bounded by
    P[N0 < first] + P[N0 > last] P[max(N1, ..., Nm) > last + c].

    Args:
        rate: the rate of N1, ..., Nm.
        m: the number of slots, at least 1.
        c: the threshold, at least 0.
        other: the rate of N0; None: the same. The laws are symmetric, so that with m = 1 this is
            the tail of a sum of two noises.
    """
    if other is None:
        union = min(m * laplace_difference_tail(rate, c), 1.0)
    else:
        union = 1.0
    if m == 1 and other is None:
        return union
    other = rate if other is None else other
    # Any range is sound; 20 scales beyond -c and 0 leave about a share e^-20 outside.
    reach = math.ceil(20 / min(rate, other)) + 1
    first = -c - reach
    last = reach
    terms = partial(_laplace_terms, rate, other, m, c)
    slot_tail = laplace_tail(rate, last + c)
    pass_tail, _ = _pass_probability(m, np.array(slot_tail))
    above = laplace_tail(other, last) * float(pass_tail)
    end_masses = laplace_tail(other, -first) + above
    return _smaller_bound(log_concave_sum(terms, first, last) + end_masses, union)


@np.errstate(over="ignore")  # e^-inf = 0; what is then not a number leaves the union bound
def _laplace_terms(rate: float, other: float, m: int, c: int, n: Array) -> tuple[Array, Array]:
    """Return P[N0 = n] P[max(N1, ..., Nm) > n + c] at each n, and the slope of its
    logarithm in n.

    Args:
        rate: the rate of N1, ..., Nm.
        other: the rate of N0.
        m: the number of slots.
        c: the threshold.
        n: integers, or the middles of blocks, as floats.
    """
    survival, hazard = _laplace_survival(rate, n + c)
    passes, elasticity = _pass_probability(m, survival)
    weights = np.exp(-other * np.abs(n))
    pmf = math.tanh(other / 2) * weights
    slope = -other * np.sign(n)
    return pmf * passes, slope - elasticity * hazard


def _laplace_survival(rate: float, x: Array) -> tuple[Array, Array]:
    """Return S(x) = P[N > x] at each x, and the slope of -log S there.

    With q = e^{-rate}, S(x) (1 + q) is q^{x+1} for x >= -1 and 1 + q - q^{-x} below, at integers;
    the same formulas continue log S to the reals as a concave function.
    """
    q = math.exp(-rate)
    distance = np.maximum(x + 1, 0)
    falling = np.exp(-rate * distance)
    rising = np.exp(rate * np.minimum(x, 0))
    survival = np.where(x >= -1, falling, 1 + q - rising)
    survival /= 1 + q
    # This slope is used at x < -1, where S is above 1/2; elsewhere S may be 0, and cannot divide.
    slope_below = rate * rising / ((1 + q) * np.maximum(survival, 0.1))
    return survival, np.where(x >= -1, rate, slope_below)


def gaussian_maximum_tail(scale: float, m: int, c: int, other: float | None = None) -> float:
    """Return an upper bound on P[max(N1, ..., Nm) - N0 > c] for P[n] ∝ exp(-n²/(2 scale²)); at most
    the union bound where all have one scale.

    The terms are added over a range of N0; what is outside it is bounded as in
    ``laplace_maximum_tail``.

    Args:
        scale: the scale of N1, ..., Nm.
        m: the number of slots, at least 1.
        c: the threshold, at least 0.
        other: the scale of N0, at most ``scale``; None: the same.
    """
    if other is None:
        union = min(m * gaussian_difference_tail(scale, c), 1.0)
    else:
        union = 1.0
    if m == 1 and other is None:
        return union
    other = scale if other is None else other
    reach = math.ceil(7 * other) + 1
    # P[N0 < first] is below e^-24 of P[N1 - N0 > c], which is about exp(-c²/(2 (scale² + other²))).
    likeliest = other / math.hypot(scale, other) * c
    first = -math.ceil(likeliest) - reach
    last = reach
    sums = _gaussian_lattice_sum if scale <= SUMMED_SCALE else _gaussian_block_sum
    slot_tail = gaussian_tail(scale, last + c)
    pass_tail, _ = _pass_probability(m, np.array(slot_tail))
    above = gaussian_tail(other, last) * float(pass_tail)
    end_masses = gaussian_tail(other, -first) + above
    return _smaller_bound(sums(scale, other, m, c, first, last) + end_masses, union)


def _gaussian_lattice_sum(
    scale: float, other: float, m: int, c: int, first: int, last: int
) -> float:
    """Return the sum of P[N0 = n] P[max(N1, ..., Nm) > n + c] over first..last, term by term.

    Args:
        scale: the scale of N1, ..., Nm.
        other: the scale of N0.
        m: the number of slots.
        c: the threshold.
        first: the first n.
        last: the last n.
    """
    n = np.arange(first, last + 1, dtype=np.float64)
    # P[N = x] from x = last + c down to first + c + 1; added to P[N > last + c] they give P[N > x].
    falling_pmf = gaussian_weight(n[:0:-1] + c, scale) / theta(scale)
    tail_at_last = gaussian_tail(scale, last + c)
    falling_tails = tail_at_last + np.concatenate([[0.0], np.cumsum(falling_pmf)])
    survival = np.minimum(falling_tails[::-1], 1.0)  # P[N > n + c] at each n
    passes, _ = _pass_probability(m, survival)
    pmf = gaussian_weight(n, other) / theta(other)
    return float((pmf * passes).sum())


def _gaussian_block_sum(scale: float, other: float, m: int, c: int, first: int, last: int) -> float:
    """Return an upper bound on the sum of P[N0 = n] P[max(N1, ..., Nm) > n + c] over first..last,
    by blocks of n, for scales from 1000 on; ``_gaussian_lattice_sum`` adds it term by term.

    S(x) = P[N > x] is bounded by the normal tail Φc(x) = P[X > x], where X is normal with the same
    scale: S(x) <= (1 + 1/scale²) Φc(x + 1/2). For x >= scale
    the weights are convex: each is at most its integral over the unit interval around it. For x <
    scale the midpoint rule errs by at most 1/8 of the second derivative's absolute integral, 4
    e^{-1/2} / scale: over the total and over Φc(1 + 1/(2 scale)) that is below 1 / scale². The
    normal tail is log-concave, also cut at 1.

    Args:
        scale: the scale of N1, ..., Nm, at least 1000.
        other: the scale of N0.
        m: the number of slots.
        c: the threshold.
        first: the first n.
        last: the last n.
    """
    from scipy.special import erfc, erfcx

    def terms(n: Array) -> tuple[Array, Array]:
        """Return bounds on the terms at each n, and the slopes of their logarithms.

        With Φc(x) = erfc(z)/2 and z = x/(√2 scale), the slope of -log Φc is √(2/π)/(scale
        erfcx(z)).
        """
        z = (n + c + 0.5) / (scale * math.sqrt(2))
        normal_tail = (1 + 1 / scale**2) * erfc(z) / 2
        survival = np.minimum(normal_tail, 1.0)
        passes, elasticity = _pass_probability(m, survival)
        # erfcx(z) is about 1/(z √π), and above 1e-300 for every z that occurs.
        slope_of_tail = math.sqrt(2 / math.pi) / scale / np.maximum(erfcx(z), 1e-300)
        hazard = np.where(survival < 1, slope_of_tail, 0.0)  # the slope of -log S
        pmf = gaussian_weight(n, other) / theta(other)
        slope = -n / other**2
        return pmf * passes, slope - elasticity * hazard

    return log_concave_sum(terms, first, last)


def _pass_probability(m: int, survival: Array) -> tuple[Array, Array]:
    """Return φ(S) = 1 - (1-S)^m, the chance that one of m slots passes, and its elasticity S
    φ'(S)/φ(S), at each S = ``survival``.

    The elasticity falls from 1 at S = 0 to 0 at S = 1 (m >= 2).
    """
    if m == 1:
        return survival, np.ones_like(survival)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        log_none = np.log1p(-survival)
        passes = -np.expm1(m * log_none)
        others_pass_not = np.exp((m - 1) * log_none)
        elasticity = np.where(passes > 0, m * survival * others_pass_not / passes, 1.0)
    return passes, elasticity


def log_concave_sum(terms: Callable[[Array], tuple[Array, Array]], first: int, last: int) -> float:
    """Return an upper bound on the sum of a log-concave f over the integers from first to last.

    It is exact for at most CELLS_AT_A_TIME terms. Otherwise a block of w terms around its middle a
    has f(a + k) <= f(a) e^{k·slope}, which sums to f(a) sinh(w·slope/2) / sinh(slope/2). The last
    block may reach beyond ``last``.

    Args:
        terms: maps an array of places to f there, and to a slope (supergradient) of log f there.
        first: the first integer.
        last: the last integer.
    """
    number = last - first + 1
    width = -(-number // CELLS_AT_A_TIME)
    blocks = np.arange(-(-number // width))
    first_middle = first + (width - 1) / 2
    values, slope = terms(first_middle + float(width) * blocks)
    if width == 1:
        return float(values.sum())
    half = np.maximum(np.abs(slope) / 2, 1e-100)  # a steeper slope only adds
    with np.errstate(over="ignore", invalid="ignore"):
        sums = values * np.sinh(width * half) / np.sinh(half)
        return float(sums.sum())


def _smaller_bound(total: float, union: float) -> float:
    """Return the smaller one of a sum, rounded up, and the union bound; the union bound where the
    sum is NaN or could have underflowed.
    """
    if total >= SMALLEST_SUM:
        return min(union, tail_up(total))
    return union
