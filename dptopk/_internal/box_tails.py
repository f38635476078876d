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
TERMS_AT_A_TIME = 1 << 15


def slack(power: int) -> float:
    """More than the error of logarithms of terms m^power: a few roundings of power·ln(m), with m
    below e^40.
    """
    return 1e-11 + 1e-13 * power


@lru_cache(maxsize=256)
def log_power_sum(power: int, rate: float) -> float:
    """The logarithm of Σ_{m >= 1} m^power e^{-rate·m}, within ``slack``.

    It is power! Σ_j (rate + 2πij)^{-power-1} over all integers j, by Poisson summation; the terms
    but for j = 0 add at most 2ζ(power + 1)(rate/2π)^{power+1} of the first. Where that is not small
    enough, the sum is short.
    """
    if (power + 1) * math.log(rate / (2 * math.pi)) < math.log(1e-13):
        return math.lgamma(power + 1) - (power + 1) * math.log(rate)
    m = np.arange(1, _last(power, rate) + 1, dtype=np.float64)
    logs = power * np.log(m) - rate * m
    top = float(logs.max())
    return top + math.log(math.fsum(np.exp(logs - top)))


def box_std(power: int, rate: float, step: int) -> float:
    """The standard deviation of z_i, the root of E[n² - 1]/6."""
    square = math.exp(log_power_sum(power + 2, rate) - log_power_sum(power, rate))
    return math.sqrt(max(step * step * square - 1, 0.0) / 6)


def _last(power: int, rate: float) -> int:
    """Beyond it m has a mass below about e^-120."""
    return math.ceil((power + 16 * math.sqrt(power) + 130) / rate)


def _log_pmf(power: int, rate: float, m: Array | float) -> Array:
    logs: Array = (
        power * np.log(m) - rate * np.asarray(m, dtype=np.float64) - log_power_sum(power, rate)
    )
    return logs + slack(power)


def _beyond(power: int, rate: float, m: int) -> float:
    """Upper bound on the mass from m on, above the peak: a geometric series, for the law is
    log-concave.
    """
    fall = rate - power * math.log1p(1 / m)
    return tail_up(float(np.exp(_log_pmf(power, rate, float(m)))) / -math.expm1(-fall))


@lru_cache(maxsize=32)
def _blocks(power: int, rate: float) -> tuple[Array, Array]:
    """The last m of blocks and upper bounds on their masses; each term is below the tangent of the
    logarithm.
    """
    first = max(math.floor((power - 10 * math.sqrt(power)) / rate), 1)
    last = _last(power, rate)
    width = -(-(last - first + 1) // TERMS_AT_A_TIME)
    middle = (
        first
        + (width - 1) / 2
        + width * np.arange(-(-(last - first + 1) // width), dtype=np.float64)
    )
    half = np.maximum(np.abs(power / middle - rate) / 2, 1e-100)
    with np.errstate(over="ignore", under="ignore"):
        # sinh(width·half)/sinh(half), whose factors may be beyond floats
        ratio = np.expm1(-2 * width * half) / np.expm1(-2 * half)
        mass = np.exp(_log_pmf(power, rate, middle) + (width - 1) * half) * ratio
        below = (first - 1) * float(
            np.exp(_log_pmf(power, rate, float(first)))
        )  # the law grows up to there
    ends = middle + (width - 1) / 2
    return np.concatenate([[max(first - 1, 1)], ends]), np.concatenate([[below], mass])


def box_tail(power: int, rate: float, step: int, special: int, c: int) -> float:
    """Upper bound on P[max(U_1, ..., U_special) - U_0 > c], c >= 0."""
    ends, mass = _blocks(power, rate)
    last = int(ends[-1])
    if c + 1 >= step * last:
        return _beyond(power, rate, (c + 1) // step + 1)
    start = int(np.searchsorted(step * ends, c + 1, side="right"))
    n = step * ends[start:]
    total = float((mass[start:] * _given(n, special, c)).sum())
    return tail_up(total + _beyond(power, rate, last + 1))


def box_side_tail(power: int, rate: float, step: int, side: int) -> float:
    """Upper bound on P[n > side], side >= 0."""
    ends, mass = _blocks(power, rate)
    first = side // step + 1
    last = int(ends[-1])
    if first > last:
        return _beyond(power, rate, first)
    return tail_up(
        float(mass[np.searchsorted(ends, first) :].sum()) + _beyond(power, rate, last + 1)
    )


def _given(n: Array, special: int, c: int) -> Array:
    """The same given n > c + 1: 1 - x^s averaged over x = j/n for j = c+1..n-1, and by the union
    bound.

    The sum of j^s is at least its integral and half of both ends, for j^s is convex; exact for s =
    1.
    """
    one: Array = (n - c - 1) * (n - c) / (2 * n * n)
    if special == 1:
        return one
    x = np.log((c + 1) / n)
    log_y = np.log1p(-1 / n)
    powers = np.exp(special * x), np.exp(special * log_y)
    area = (powers[1] * np.exp(log_y) - powers[0] * np.exp(x)) / (special + 1)
    any_of = (n - c - 1) / n - area - (powers[0] + powers[1]) / (2 * n) + 1e-14
    return np.minimum(np.minimum(special * one, any_of), 1.0)
