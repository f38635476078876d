"""Binomial weights of k-fold randomised response, as logarithms with a bound on their error."""

from __future__ import annotations

import math

import numpy as np

from dptopk.accounting.curves import EPS, Floats

__all__ = ["log_binomial_pmf"]


def log_binomial_pmf(count: int, epsilon: float, first: int = 0, last: int | None = None) -> tuple[Floats, Floats]:
    """Logarithms of P[Bin(k, p) = l], l = first..last (0..k), p = e^ε / (1 + e^ε), and a bound on their absolute error.

    Loader's saddle-point form (2000): with n! = sqrt(2πn) (n/e)^n e^{s(n)} the large parts cancel on paper, and what is
    left is -d(l, kp) - d(k - l, kq) + s(k) - s(l) - s(k - l) - ln(2π l (k - l) / k) / 2, with the deviance d below. A
    relative error of p or q enters through d only, multiplied by the distance from the mean.
    """
    small = math.exp(-epsilon)
    log_p = -math.log1p(small)
    log_q = log_p - epsilon
    k, hits = float(count), np.arange(first, (count if last is None else last) + 1, dtype=float)
    within = (hits > 0) & (hits < k)
    inner, rest = hits[within], k - hits[within]
    stirling = _stirling_remainder(np.array([k])) - _stirling_remainder(inner) - _stirling_remainder(rest)
    deviance = _deviance(inner, k / (1 + small), math.log(k) + log_p)
    deviance += _deviance(rest, k * (small / (1 + small)), math.log(k) + log_q)
    values = np.where(hits > 0, k * log_p, k * log_q)
    values[within] = stirling - deviance - np.log(2 * math.pi * inner * (rest / k)) / 2
    distance = np.abs(hits - k / (1 + small))
    return values, 8 * EPS * (16 + distance + np.abs(values))


def _deviance(x: Floats, mean: float, log_mean: float) -> Floats:
    """d(x, m) = x ln(x / m) + m - x for x >= 1 and m >= 0, without the cancellation near x = m."""
    t = (x - mean) / max(mean, 1e-300)
    near = np.abs(t) < 0.5
    s = np.where(near, t, 0.0)
    return np.where(near, mean * ((1 + s) * np.log1p(s) - s), x * (np.log(x) - log_mean) + (mean - x))


_SMALL = np.array([0.0] + [math.lgamma(n + 1) - ((n + 0.5) * math.log(n) - n + math.log(2 * math.pi) / 2)
                           for n in range(1, 16)])  # fmt: skip


def _stirling_remainder(n: Floats) -> Floats:
    """s(n) = ln n! - ln(sqrt(2πn) (n/e)^n) for integers n >= 1, to an absolute 1e-14."""
    r = 1 / n
    series = r * (1 / 12 - r**2 * (1 / 360 - r**2 * (1 / 1260 - r**2 * (1 / 1680 - r**2 / 1188))))
    return np.where(n < 16, _SMALL[np.minimum(n, 15).astype(int)], series)
