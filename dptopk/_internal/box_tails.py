"""Tails of box noise: z_i = U_i - U_0, all U uniform on n = step·m integers, P(m) ∝ m^power
e^{-rate·m}.

Given n, P[max(U_1, ..., U_s) - U_0 > c] is a sum of powers; it grows with n (docs/notes/box.md), so
that over blocks of m it is at most its value at their ends. All bounds are above the truth, by a
few per cent at most.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dptopk._internal.rounding import tail_up

Array = np.ndarray[Any, Any]
TERMS_AT_A_TIME = 1 << 15  # the most blocks of m whose masses are added


def slack(power: int) -> float:
    """Return an upper bound on the error of logarithms of terms m^power: a few roundings of
    power·ln(m), with m below e^40.
    """
    return 1e-11 + 1e-13 * power


@lru_cache(maxsize=256)
def log_power_sum(power: int, rate: float) -> float:
    """Return the logarithm of Σ_{m >= 1} m^power e^{-rate·m}, within ``slack``.

    It is power! Σ_j (rate + 2πij)^{-power-1} over all integers j, by Poisson summation; the terms
    but for j = 0 add at most 2ζ(power + 1)(rate/2π)^{power+1} of the first. Where that is not small
    enough, ``rate`` is so large that the sum itself has few terms, and they are added.

    Args:
        power: at least 1.
        rate: above 0.
    """
    ratio = rate / (2 * math.pi)
    log_share = (power + 1) * math.log(ratio)
    if log_share < math.log(1e-13):  # far within ``slack``
        scaling = (power + 1) * math.log(rate)
        return math.lgamma(power + 1) - scaling
    last = _last_side(power, rate)
    m = np.arange(1, last + 1, dtype=np.float64)
    logs = power * np.log(m) - rate * m
    largest = float(logs.max())
    relative = math.fsum(np.exp(logs - largest))
    return largest + math.log(relative)


def box_std(power: int, rate: float, step: int) -> float:
    """Return the standard deviation of the noise z_i on one count: the root of E[n² - 1]/6, as z_i
    is the difference of two uniform integers out of n.

    Args:
        power: the power in the law of m.
        rate: the rate in the law of m.
        step: n = step·m.
    """
    log_square = log_power_sum(power + 2, rate) - log_power_sum(power, rate)
    square = step * step * math.exp(log_square)
    return math.sqrt(max(square - 1, 0.0) / 6)


def _last_side(power: int, rate: float) -> int:
    """Return an m beyond which every m has a mass below about e^-120.

    The law is about a gamma law of the mean power/rate and the deviation √power/rate. 16 deviations
    above the mean a mass is below e^-120 for large powers; 130/rate adds that for small ones.
    """
    spread = 16 * math.sqrt(power)
    return math.ceil((power + spread + 130) / rate)


def _log_pmf(power: int, rate: float, m: Array | float) -> Array:
    """Return an upper bound on ln P(m) at each m.

    Args:
        power: the power in the law of m.
        rate: the rate in the law of m.
        m: the values, floats of at least 1.
    """
    weights: Array = power * np.log(m) - rate * np.asarray(m, dtype=np.float64)
    logs = weights - log_power_sum(power, rate)
    return logs + slack(power)


def _tail_mass(power: int, rate: float, m: int) -> float:
    """Return an upper bound on the mass from m on, for an m above the peak: a geometric series, for
    the law is log-concave.

    Args:
        power: the power in the law of m.
        rate: the rate in the law of m.
        m: the first value of the tail, above the peak of the law.
    """
    # P(m + 1) / P(m) = e^-fall; this ratio falls as m grows.
    fall = rate - power * math.log1p(1 / m)
    first = float(np.exp(_log_pmf(power, rate, float(m))))
    return tail_up(first / -math.expm1(-fall))


@lru_cache(maxsize=32)
def _blocks(power: int, rate: float) -> tuple[Array, Array]:
    """Return the last m of each block of the law of m, and upper bounds on the blocks' masses: two
    arrays of one length.

    A block has ``width`` integers. The logarithm of P(m) is concave, so that each term of a block
    is below the tangent at its middle; those add up to e^{(width-1)h} (1 - e^{-2·width·h}) /
    (1 - e^{-2h}) times the middle, with h half the slope of the tangent, either sign.

    The first block, all m that are 10 deviations or more below the peak, is bounded by the term
    that follows it, times their number. Any other first term below the peak would be sound.
    """
    first = max(math.floor((power - 10 * math.sqrt(power)) / rate), 1)
    terms = _last_side(power, rate) - first + 1
    width = -(-terms // TERMS_AT_A_TIME)  # rounded up, so that there are TERMS_AT_A_TIME at most
    blocks = np.arange(-(-terms // width), dtype=np.float64)
    middle = first + (width - 1) / 2 + width * blocks
    slopes = np.abs(power / middle - rate)
    half = np.maximum(slopes / 2, 1e-100)  # a steeper slope only adds, and 0 cannot divide
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.expm1(-2 * width * half) / np.expm1(-2 * half)
        highest = _log_pmf(power, rate, middle) + (width - 1) * half
        mass = np.exp(highest) * ratio
        # The law grows up to ``first``, so that no mass below it is larger than the one there.
        below = (first - 1) * float(np.exp(_log_pmf(power, rate, float(first))))
    ends = middle + (width - 1) / 2
    # Where ``first`` is 1 the first block is empty: its mass is 0, wherever it is said to end.
    return np.concatenate([[max(first - 1, 1)], ends]), np.concatenate([[below], mass])


def box_tail(power: int, rate: float, step: int, special: int, c: int) -> float:
    """Return an upper bound on P[max(U_1, ..., U_special) - U_0 > c], c >= 0.

    Args:
        power: the power in the law of m.
        rate: the rate in the law of m.
        step: U_0, U_1, ... are uniform on n = step·m integers.
        special: the number of noises that the maximum is of.
        c: the threshold.
    """
    ends, mass = _blocks(power, rate)
    last = int(ends[-1])
    # U_i - U_0 is at most n - 1, so that only n > c + 1 count.
    if c + 1 >= step * last:
        return _tail_mass(power, rate, (c + 1) // step + 1)
    start = int(np.searchsorted(step * ends, c + 1, side="right"))
    n = step * ends[start:]
    masses = mass[start:] * _chance_to_exceed(n, special, c)
    total = float(masses.sum())
    return tail_up(total + _tail_mass(power, rate, last + 1))


def box_side_tail(power: int, rate: float, step: int, side: int) -> float:
    """Return an upper bound on P[n > side], side >= 0, with n = step·m.

    Args:
        power: the power in the law of m.
        rate: the rate in the law of m.
        step: n = step·m.
        side: the threshold.
    """
    ends, mass = _blocks(power, rate)
    first = side // step + 1
    last = int(ends[-1])
    if first > last:
        return _tail_mass(power, rate, first)
    start = np.searchsorted(ends, first)
    total = float(mass[start:].sum())
    return tail_up(total + _tail_mass(power, rate, last + 1))


def _chance_to_exceed(n: Array, special: int, c: int) -> Array:
    """Return an upper bound on P[max(U_1, ..., U_special) - U_0 > c] for each n > c + 1.

    Given U_0 = j - c - 1 it is 1 - (j/n)^special, for j = c + 1 to n - 1, and 0 for larger U_0. The
    sum of (j/n)^special over these j is at least the integral between the first and the last of
    them and half of both terms there, because trapezoids lie above a convex function. The bound is
    exact for one special noise.

    Args:
        n: numbers of integers on which the noises are uniform, floats.
        special: s, the number of noises that the maximum is of.
        c: the threshold, at least 0.
    """
    for_one: Array = (n - c - 1) * (n - c) / (2 * n * n)
    if special == 1:
        return for_one
    log_first = np.log((c + 1) / n)
    log_last = np.log1p(-1 / n)
    first = np.exp(special * log_first)
    last = np.exp(special * log_last)
    integral = (last * np.exp(log_last) - first * np.exp(log_first)) / (special + 1)
    half_of_end_terms = (first + last) / (2 * n)
    # 1e-14 is more than the rounding.
    by_trapezoids = (n - c - 1) / n - integral - half_of_end_terms + 1e-14
    by_union = special * for_one
    return np.minimum(np.minimum(by_union, by_trapezoids), 1.0)
