"""Binomial probabilities to nearly full relative precision in the log domain, by Loader's
saddle-point expansion.

ln C(n,i) from log-gammas loses nine digits at n = 10^6; here every term is of the size of the
answer (C. Loader, "Fast and accurate computation of binomial probabilities", 2000): with n! =
sqrt(2πn) (n/e)^n e^{s(n)}

    ln pmf(i) = s(n) - s(i) - s(n-i) - d(i, np) - d(n-i, nq) - ln(2π i (n-i) / n) / 2,
    d(x, m) = x ln(x/m) + m - x >= 0.

Rounding, in units of roundoff u: a d is computed to 10u of itself (terms of one sign, or a
cancellation by no more than ten), and the d's add up to at most |ln pmf| + ln(n)/2 + 2; a mean that
is off by 6u moves its d by 6u of the distance from the mean; s and the logarithm are off by at most
40u. In all at most EPS (5 |ln pmf| + 6 distance + 60), which ``ERROR_FACTOR`` · EPS · (16 +
distance + |ln pmf|) covers. Tests compare every index with 60 digits.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal.rounding import EPS, Floats

ERROR_FACTOR = 8
# A mean number of failures that is so near the smallest float that it is inexact.
RARE_MEAN = 1e-280
LAST_TABULATED = 15  # of Stirling's error: the series is exact to roundoff from 16 on
SERIES_RANGE = 0.1  # |v| below which 12 terms of a series in v² are exact to roundoff
SERIES_TERMS = 12

# ln n! - (n + 1/2) ln n + n - ln sqrt(2π) for n = 0 (never used), 1, ..., 15, where the asymptotic
# series is too short.
_STIRLING = np.array([
    0.0, 0.0810614667953272582, 0.0413406959554092941, 0.0276779256849983391, 0.0207906721037650931,
    0.0166446911898211922, 0.0138761288230707480, 0.0118967099458917701, 0.0104112652619720965,
    0.00925546218271273292, 0.00833056343336287126, 0.00757367548795184079, 0.00694284010720952987,
    0.00640899418800420707, 0.00595137011275884774, 0.00555473355196280137,
])  # fmt: skip


def bernstein_reach(variance: Floats | float) -> Floats:
    """Return a distance from its mean that a binomial variable exceeds, on either side, with
    probability below e^-46 only.

    Bernstein's inequality: t² = 92 (v + t/3) has the root t = 46/3 + sqrt((46/3)² + 92 v), whose
    constants are rounded up.

    Args:
        variance: v of the binomial variable, any shape.
    """
    return np.ceil(16 + np.sqrt(240 + 92 * np.asarray(variance)))


def log_binomial_pmf(
    successes: ArrayLike, trials: ArrayLike, success: ArrayLike, failure: ArrayLike
) -> Floats:
    """Return the logarithm of the probability of each number of successes of a binomial variable;
    the relative error of the probability is about 1e-15 (5 + |ln pmf| + |successes - mean|).

    Args:
        successes: integers in [0, trials], any shape; all arguments are broadcast.
        trials: integers >= 0.
        success: probability of a success, to full relative precision.
        failure: probability of a failure, to full relative precision; the two add up to 1 up to
            rounding.

    >>> float(np.exp(log_binomial_pmf(3, 10, 0.25, 0.75)).round(12))
    0.250282287598
    """
    arguments = (successes, trials, success, failure)
    i, n, p, q = np.broadcast_arrays(*(np.asarray(a, dtype=float) for a in arguments))
    p = p + 0.0  # no negative zeros
    q = q + 0.0
    failures = n - i
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (
            _stirling_error(n)
            - _stirling_error(i)
            - _stirling_error(failures)
            - _deviance(i, n * p)
            - _deviance(failures, n * q)
            + 0.5 * np.log(n / (2 * np.pi * i * failures))
        )
        # The logarithm of the larger of p and q is taken by way of the smaller, which has all its
        # digits.
        no_success = np.where(n > 0, n * np.where(p < 0.5, np.log1p(-p), np.log(q)), 0.0)
        all_success = n * np.where(q < 0.5, np.log1p(-q), np.log(p))
    return np.where(i == 0, no_success, np.where(failures == 0, all_success, inner))


def log_response_pmf(
    count: int, epsilon: float, first: int = 0, last: int | None = None
) -> tuple[Floats, Floats]:
    """Return the logarithms of the probabilities of each number of true answers among ``count``
    randomised responses, and bounds on their errors.

    The number is binomial with k = ``count`` trials of probability e^ε/(1 + e^ε).

    Args:
        count: k >= 1.
        epsilon: ε >= 0.
        first: the smallest number of true answers wanted.
        last: the largest, at most k; None: k.

    Returns:
        Logarithms for first, ..., last, and bounds on their absolute errors.
    """
    small = math.exp(-epsilon)
    log_success = -math.log1p(small)
    log_failure = log_success - epsilon
    if last is None:
        last = count
    true_answers = np.arange(first, last + 1)
    success = 1 / (1 + small)
    failure = small / (1 + small)
    # So near the smallest float n q is inexact; this formula needs ln q only.
    if count * failure < RARE_MEAN:
        false_answers = (count - true_answers).astype(float)
        values = _with_rare_failures(
            true_answers.astype(float), false_answers, float(count), success, log_failure
        )
    else:
        values = log_binomial_pmf(true_answers, count, success, failure)
    values = np.where(true_answers == count, count * log_success, values)
    values = np.where(true_answers == 0, count * log_failure, values)
    distance = np.abs(true_answers - count * success)
    return values, ERROR_FACTOR * EPS * (16 + distance + np.abs(values))


def _with_rare_failures(
    true_answers: Floats, false_answers: Floats, count: float, success: float, log_failure: float
) -> Floats:
    """Return ln pmf(i) where nq is below the floats, by d(n-i, nq) = (n-i) (ln(n-i) - ln n - ln q)
    - (n-i), which needs ln q only.

    Args:
        true_answers: numbers of true answers i; values at i = 0 and i = n are not meaningful.
        false_answers: n - i.
        count: n.
        success: p.
        log_failure: ln q.
    """
    inner = (true_answers > 0) & (false_answers > 0)
    i = np.where(inner, true_answers, 1.0)
    rest = np.where(inner, false_answers, 1.0)  # n - i
    return (
        _stirling_error(np.asarray(count))
        - _stirling_error(i)
        - _stirling_error(rest)
        - _deviance(i, np.asarray(count * success))
        - (rest * (np.log(rest / count) - log_failure) - rest)
        + 0.5 * np.log(count / (2 * np.pi * i * rest))
    )


def _stirling_error(n: Floats) -> Floats:
    """Return s(n), the error of Stirling's formula for ln n!, at integers n >= 1."""
    large = np.maximum(n, float(LAST_TABULATED))
    x = 1 / large**2
    # s(n) = 1/(12n) - 1/(360n³) + 1/(1260n⁵) - ..., six terms by Horner's rule in x = n^-2.
    series = (
        1 / 12 - x * (1 / 360 - x * (1 / 1260 - x * (1 / 1680 - x * (1 / 1188 - x * 691 / 360360))))
    ) / large
    tabulated = _STIRLING[np.clip(n, 0, LAST_TABULATED).astype(int)]
    return np.where(n > LAST_TABULATED, series, tabulated)


def _deviance(x: Floats, mean: Floats) -> Floats:
    """Return d(x, mean) = x ln(x/mean) + mean - x >= 0, without cancellation when x is close to the
    mean.
    """
    v = (x - mean) / (x + mean)
    # x ln(x/mean) + mean - x = (x - mean) v + 2 x (atanh(v) - v)
    series = np.zeros_like(v)
    for j in range(SERIES_TERMS, 0, -1):
        series = (series + 1 / (2 * j + 1)) * v**2
    by_series = (x - mean) * v + 2 * x * v * series
    by_logarithm = x * np.log(x / mean) + mean - x
    return np.where(np.abs(v) < SERIES_RANGE, by_series, by_logarithm)
