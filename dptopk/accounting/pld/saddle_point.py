"""Binomial probabilities to nearly full relative precision in the log domain, by Loader's saddle-point expansion.

ln C(n,i) from log-gammas loses nine digits at n = 10^6; here every term is of the size of the answer (C. Loader, "Fast
and accurate computation of binomial probabilities", 2000).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dptopk.accounting.curves import Floats

__all__ = ["log_binomial_pmf"]

# ln n! - (n + 1/2) ln n + n - ln sqrt(2π) for n = 0 (never used), 1, ..., 15, where the asymptotic series is too short.
_STIRLING = np.array([
    0.0, 0.0810614667953272582, 0.0413406959554092941, 0.0276779256849983391, 0.0207906721037650931,
    0.0166446911898211922, 0.0138761288230707480, 0.0118967099458917701, 0.0104112652619720965,
    0.00925546218271273292, 0.00833056343336287126, 0.00757367548795184079, 0.00694284010720952987,
    0.00640899418800420707, 0.00595137011275884774, 0.00555473355196280137,
])  # fmt: skip


def log_binomial_pmf(successes: ArrayLike, trials: ArrayLike, success: ArrayLike, failure: ArrayLike) -> Floats:
    """Log-pmf of a binomial variable; relative error of the pmf about 1e-15 (5 + |ln pmf| + |successes - mean|).

    Args:
        successes: integers in [0, trials], any shape; all arguments are broadcast.
        trials: integers >= 0.
        success: probability of a success, to full relative precision.
        failure: probability of a failure, to full relative precision; the two add up to 1 up to rounding.

    >>> float(np.exp(log_binomial_pmf(3, 10, 0.25, 0.75)).round(12))
    0.250282287598
    """
    i, n, p, q = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in (successes, trials, success, failure)))
    p, q, rest = p + 0.0, q + 0.0, n - i  # no negative zeros
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (
            _stirling_error(n)
            - _stirling_error(i)
            - _stirling_error(rest)
            - _deviance(i, n * p)
            - _deviance(rest, n * q)
            + 0.5 * np.log(n / (2 * np.pi * i * rest))
        )
        none = np.where(n > 0, n * np.where(p < 0.5, np.log1p(-p), np.log(q)), 0.0)
        every = n * np.where(q < 0.5, np.log1p(-q), np.log(p))
    values: Floats = np.where(i == 0, none, np.where(rest == 0, every, inner))
    return values


def _stirling_error(n: Floats) -> Floats:
    """Error of Stirling's formula for ln n!, n >= 1 an integer."""
    large = np.maximum(n, 15.0)
    x = 1 / large**2
    series = (1 / 12 - x * (1 / 360 - x * (1 / 1260 - x * (1 / 1680 - x * (1 / 1188 - x * 691 / 360360))))) / large
    return np.where(n > 15, series, _STIRLING[np.clip(n, 0, 15).astype(int)])


def _deviance(x: Floats, mean: Floats) -> Floats:
    """X ln(x/mean) + mean - x >= 0 without cancellation when x is close to the mean."""
    v = (x - mean) / (x + mean)
    # x ln(x/mean) + mean - x = (x - mean) v + 2 x (atanh(v) - v)
    series = np.zeros_like(v)
    for j in range(12, 0, -1):
        series = (series + 1 / (2 * j + 1)) * v**2
    near = (x - mean) * v + 2 * x * v * series
    return np.where(np.abs(v) < 0.1, near, x * np.log(x / mean) + mean - x)
