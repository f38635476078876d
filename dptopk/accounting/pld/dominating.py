"""The Gaussians that dominate other costs: the least μ for which noise N_Z(0, s²), moved by one, is
μ-GDP, and the least for which every ε-DP mechanism is (``covering_mu``).

With X ~ N_Z(0, s²) and c_k = Φ⁻¹(P[X <= k]) the vertices of the trade-off curve are those of the
half-lines, so that the least μ is the largest of d_k = c_k - c_{k-1} (and d_{-k} = d_k). Write μ
for a number of at least 1/s, φ_s for the density of N(0, s²). Three steps, proven in
docs/notes/filters.md:

1. c_{k-1} >= (k - 1/2)/s, k >= 1: the mass of φ_s in the cell around j, over P[X = j], grows with
   |j|.
2. If c_{k-1} μ s² >= k then d_k <= μ. By step 1 that is so from k = sμ / (2 (sμ - 1)) on: finitely
   many d_k are left.
3. If sμ (1 - μ²/12) >= 1 then every d_k <= μ.

A move by a is a moves by one: a μ covers it.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats
from dptopk.errors import InvalidParameter

# Up to this scale the d_k of step 2, about 12 s², are listed; beyond it step 3 is off by at most
# 1/(24 s²), relatively.
_LISTED = 32.0
_MILLS_ERROR = 4 * EPS  # of Mills' ratio by erfcx, measured (gaussian.pair)
# SciPy's inverses of Φ and erf at the corner of ε-DP: measured below 1e-14, ε from 1e-300 to 700;
# that of ln Φ below 1e-12 from there on.
COVERING_ERROR = 2e-12
SMALLEST_MEASURED = 1e-300
LARGEST_MEASURED = 700.0
_LEAST = 1e-6  # below this scale quotients are no longer rounded as stated
# Of c_k, relative: so small an error keeps the slope of ln Q, on which the error bound rests, at
# least max(0.99 c, 0.79) between the computed and the true c_k.
_LARGEST_ERROR = 0.01
_LEAST_SLOPE = 0.79  # φ(0)/Q(0) = 0.797...


def dominating_mu(scale: float, shift: int = 1) -> float:
    """Return a μ such that discrete Gaussian noise of this scale, moved by up to ``shift``, is
    μ-GDP; certified.

    Args:
        scale: s >= 1e-6 in exp(-x²/2s²).
        shift: the largest move, an integer >= 1.

    Returns:
        For shift 1 and scale <= 32 the least such μ, up to rounding; an upper bound on it
        otherwise: by at most 1/(24 scale²) relatively for shift 1. Always above shift/scale.

    Raises:
        InvalidParameter: on a scale below 1e-6.

    >>> [round(dominating_mu(scale) * scale, 4) for scale in (0.5, 1.0, 2.285, 16.0)]
    [1.2442, 1.0458, 1.0081, 1.0002]
    """
    scale = validate.positive(scale=scale)
    shift = validate.count(shift=shift)
    if scale < _LEAST:
        raise InvalidParameter(f"scale must be at least {_LEAST}, got {scale}")
    return math.nextafter(shift * _mu_of_unit_shift(scale), math.inf)


@lru_cache(maxsize=1024)
def _mu_of_unit_shift(scale: float) -> float:
    """Return an upper bound on the least μ for a move by one, by step 3 of the module docstring for
    wide noise, and by step 2 otherwise.

    Raises:
        InvalidParameter: for a scale that is out of range.
    """
    if scale > _LISTED:  # step 3: with y = s^-2, m = 1 + y/12 + y²/12 has m - m³ y/12 >= 1 + y²/20
        square = 1 / (scale * scale)
        return (1 + square / 12 * (1 + square)) / scale * (1 + 8 * EPS)
    _, c_0 = _vertex_bounds(scale, 0)
    first = 2 * float(c_0[0])  # an upper bound on d_0, which is twice c_0
    excess = first * scale - 1
    # Step 2: from k = sμ / (2 (sμ - 1)) on no d_k is larger; a little more covers rounding.
    last = math.ceil((1 + excess) / (2 * excess) * 1.001) + 1
    low, high = _vertex_bounds(scale, last)
    widest = max(first, float(np.max(high[1:] - low[:-1])))
    if not (math.isfinite(widest) and widest > 0):
        raise InvalidParameter(f"scale {scale} is out of range")
    return widest * (1 + 4 * EPS)  # for the rounding of the difference


def _vertex_bounds(scale: float, last: int) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on c_0, ..., c_last of the module docstring for noise of this
    scale: SciPy's inverse of ln Q, and a bound on its error from the value of ln Q there.

    Raises:
        InvalidParameter: for a scale at which the errors are not small.
    """
    log_tails, log_error = _log_tails(scale, last + 1)
    c = -special.ndtri_exp(log_tails)
    # How far off that is, by Mills' ratio R: ln Q(c) = -c²/2 - ln(2π)/2 + ln R(c). Its slope is
    # -φ/Q, of a size of at least max(c, 0.79).
    log_mills = np.log(math.sqrt(math.pi / 2) * special.erfcx(c / math.sqrt(2)))
    recomputed = -c * c / 2 - 0.5 * math.log(2 * math.pi) + log_mills
    rounding = EPS * (2 * c * c + 2 * np.abs(log_mills) + 8) + _MILLS_ERROR
    difference = np.abs(recomputed - log_tails) + rounding + log_error
    error_of_c = difference / np.maximum(0.99 * c, _LEAST_SLOPE)
    if not np.all(error_of_c <= _LARGEST_ERROR * c):
        raise InvalidParameter(f"scale {scale} is out of range")
    return c - error_of_c, c + error_of_c


def _log_tails(scale: float, last: int) -> tuple[Floats, Floats]:
    """Return ln P[X >= k] for k = 1, ..., last, X ~ N_Z(0, scale²), and bounds on their errors.

    P[X >= k] = e^{-k²/2s²} M_k / M, M_k = 1 + e^{-(2k+1)/2s²} M_{k+1} and M = 2 M_0 - 1. The
    recursion begins so far out, with M = 1, that what it leaves out is below e^-40. A step adds 3
    EPS and the error of its exponent to the relative error, and keeps a share 1 - 1/M_k of the
    error before: altogether less than EPS M_0 (3 + 2 M_0).
    """
    twice = 2 * scale * scale
    first_k = math.ceil(math.sqrt(last * last + 80 * scale * scale)) + 2
    factor = 1.0
    factors = np.empty(first_k)
    for k in range(first_k - 1, -1, -1):
        factor = 1 + math.exp(-(2 * k + 1) / twice) * factor
        factors[k] = factor
    starts = np.arange(1.0, last + 1)
    exponents = starts * starts / twice
    total = 2 * factors[0] - 1
    log_tails = np.log(factors[1 : last + 1]) - math.log(total) - exponents
    # That of M_k once, and that of M = 2 M_0 - 1 at most twice.
    of_factors = 3 * factors[0] * (3 + 2 * factors[0])
    error = EPS * (4 * exponents + of_factors + 2 * np.abs(log_tails) + 8)
    return log_tails, error


def covering_mu(epsilon: float) -> float:
    """Return the smallest μ for which every ε-DP mechanism is μ-Gaussian DP, rounded up.

    A convex trade-off curve with the same ends lies below the chain (0, 1), (a, a), (1, 0) of ε-DP,
    a = 1/(1 + e^ε), as soon as it does at the corner: Φ(Φ⁻¹(1 - a) - μ) <= a is μ >= 2Φ⁻¹(1 - a)
    (the regions are those of Kairouz-Oh-Viswanath 2015, the Gaussian curve that of Dong-Roth-Su
    2022). Bounded range of ε is ε-DP.

    Args:
        epsilon: ε >= 0, finite.
    """
    if epsilon < SMALLEST_MEASURED:
        # Subnormal floats are rounded absolutely: 2Φ⁻¹(1/2 + ε/4) is sqrt(π/2) ε here, 1.25331 ε.
        return math.nextafter(1.2534 * epsilon, math.inf) if epsilon > 0 else 0.0
    if epsilon <= 1:
        # 1 - 2a = tanh(ε/2): near the middle Φ⁻¹(1 - a) would lose its digits.
        corner = math.sqrt(2) * float(special.erfinv(math.tanh(epsilon / 2)))
    elif epsilon <= LARGEST_MEASURED:
        corner = -float(special.ndtri(special.expit(-epsilon)))
    else:  # a has no normal float; ln a is -ε to a relative e^-700
        corner = -float(special.ndtri_exp(-epsilon))
    return 2 * corner * (1 + COVERING_ERROR)
