"""The privacy profile of the Gaussian pair N(0, 1), N(μ, 1), to a few ulps at any ε (Balle-Wang
2018).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, SLACK, Floats
from dptopk.accounting.curves import DeltaCurve

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)

# What rounding can do, relatively. SciPy's functions were measured at 120 digits
# (tests/accounting/gaussian): Mills' ratio by erfcx, with the rounding of its argument, is off by
# less than 4 EPS; ndtr(x), x < 0, by less than half of (2 x² + 12) EPS.
MILLS_ERROR = 4 * EPS
NDTR_ERROR = 12 * EPS
# 1 - x R(x), x < FAR: x R(x) < 1 is off by MILLS_ERROR + EPS, and 1 / (1 - x R(x)) < FAR² + 3. From
# FAR on the series in x^-2, of signs that alternate, ends with an error below its first term left
# out, 41!! FAR^-40 < 1e-17.
FAR = 12.0
TERMS = 20
SLOPE_ERROR = (FAR**2 + 3) * (MILLS_ERROR + EPS) + TERMS * EPS
# R(a) - R(b), b >= a + 1/4: R(a) + R(b) < (9 |a| + 11) (R(a) - R(b)).
DIFFERENCE_ERROR = MILLS_ERROR + EPS
# Where the difference of two ratios cancels: from here on a bound by the slope is used. There δ is
# below e^-5e7.
FAR_OUT = 1e4
# How close to the largest μ a search ends, relatively.
ROOT_TOLERANCE = 1e-13
MOST_STEPS = 120  # of that search: a sixth of them halve a bracket of ln μ of about 750
# e to this power is the smallest float, whose δ is less than half of it: it fits every δ.
LEAST_LOG_MU = -745.0
FIRST_STEP = 1e-3  # in ln μ, before two values give a slope
LARGEST_RATIO = 1e100  # of ε and μ: squares of it are no overflow


def _mills(x: Floats) -> Floats:
    """Return Mills' ratio R(x) = Q(x)/φ(x) for x >= -1 or so."""
    # Q(x) = erfc(x/√2)/2 and erfcx(y) = e^{y²} erfc(y): no underflow far out.
    return math.sqrt(math.pi / 2) * special.erfcx(x / math.sqrt(2))


def _mills_slope(x: Floats) -> Floats:
    """Return 1 - x R(x), the negative slope of Mills' ratio, for x > -1 to a relative SLOPE_ERROR;
    where the difference cancels, by the asymptotic series.
    """
    # 1 - x R(x) = x^-2 - 3 x^-4 + 15 x^-6 - ..., an alternating asymptotic series.
    inverse_square = np.maximum(x, FAR) ** -2.0
    series = np.zeros_like(inverse_square)
    term = inverse_square
    for k in range(TERMS):
        series = series + term
        term = -term * (2 * k + 3) * inverse_square
    return np.where(x < FAR, 1 - x * _mills(np.minimum(x, FAR)), series)


def _log_mills_difference(a: Floats, width: float) -> Floats:
    """Return the logarithm of R(a) - R(a + width), R being Mills' ratio.

    It is computed as a difference of two ratios, or as a quadrature of the slope where the width is
    small; from FAR_OUT on an upper bound is returned.

    Args:
        a: a >= -1.
        width: > 0.
    """
    if width > 0.25:  # DIFFERENCE_ERROR covers what cancels
        capped = np.minimum(a, FAR_OUT)
        difference = _mills(capped) - _mills(capped + width)
        # The slope is steepest at a, and R(b) > 0.
        at_most = np.minimum(width * _mills_slope(a), _mills(a))
        return np.log(np.where(a > FAR_OUT, at_most, difference))
    # R' = x R - 1, so R(a) - R(b) is the integral of 1 - x R(x) over [a, b]: Gauss-Legendre.
    points = a[:, None] + width * (1 + _NODES) / 2
    return math.log(width) + np.log(_mills_slope(points) @ (_WEIGHTS / 2))


def gaussian_log_delta(mu: float, *, epsilon: ArrayLike) -> Floats:
    """Return the logarithm of δ(ε) of the pair N(0,1), N(μ,1), rounded up: δ = Φ(μ/2 - ε/μ) - e^ε
    Φ(-μ/2 - ε/μ) (Balle-Wang 2018, Theorem 8).

    With a = ε/μ - μ/2, b = ε/μ + μ/2 and R = Q/φ, e^ε φ(b) = φ(a) turns it into φ(a) (R(a) - R(b)):
    no overflow, and no underflow of ln δ at any ε. That is used for a > -1; for smaller a, where δ
    is close to 1, 1 - δ is computed. The result is rounded up by the errors of a and b (a division,
    a subtraction, and one more rounding of an ε that was computed), of which ln δ moves by at most
    |a| + 2 times as much, and by the errors of the evaluation.

    Args:
        mu: > 0.
        epsilon: >= 0, any shape.
    """
    x = np.asarray(epsilon, dtype=float)
    flat = x.ravel()
    with np.errstate(over="ignore"):
        ratio = np.minimum(flat / mu, LARGEST_RATIO)  # a smaller ε is on the safe side
    a = ratio - mu / 2
    argument_error = 2 * EPS * (ratio + mu)
    a_inner = np.maximum(a, -1.0)
    with np.errstate(under="ignore", divide="ignore", over="ignore"):
        by_ratios = -a_inner * a_inner / 2 - _HALF_LOG_2PI + _log_mills_difference(a_inner, mu)
        close_to_1 = _log_delta_close_to_1(np.minimum(a, -1.0), ratio + mu / 2, argument_error)
    # The three terms of ``by_ratios`` and their sums are at most a² + |by_ratios| + 2.
    slack = (np.abs(a_inner) + 2) * argument_error
    slack = slack + 2 * EPS * (a_inner * a_inner + np.abs(by_ratios) + 2)
    cancellation = 9 * np.minimum(np.abs(a_inner), FAR_OUT) + 11
    slack += np.maximum(SLOPE_ERROR, cancellation * DIFFERENCE_ERROR)
    return np.minimum(np.where(a > -1, by_ratios + slack, close_to_1), 0.0).reshape(x.shape)


def _log_delta_close_to_1(a: Floats, b: Floats, argument_error: Floats) -> Floats:
    """Return ln(1 - Φ(a) - φ(a) R(b)), rounded up: what is subtracted from 1 is lowered by its
    relative error.

    Args:
        a: a <= -1, any shape.
        b: of the same shape.
        argument_error: bounds on the errors of a and of b.
    """
    density = np.exp(-a * a / 2 - _HALF_LOG_2PI)
    missing = special.ndtr(a) + density * _mills(b)
    error_by_a = (np.abs(a) + 2) * argument_error + 2 * EPS * a * a
    relative = error_by_a + NDTR_ERROR + MILLS_ERROR
    return np.log1p(-missing * np.maximum(1 - relative, 0.0))


def gaussian_delta(mu: float, *, epsilon: ArrayLike) -> Floats:
    """Return δ(ε) of μ-Gaussian DP, rounded up, and exact to rounding for μ < 1000: beyond, what is
    added for rounding grows with μ² (Balle-Wang 2018, Theorem 8).

    Args:
        mu: μ > 0, shift over standard deviation; of a composition the root of Σ μ_i².
        epsilon: ε >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> float(gaussian_delta(1.0, epsilon=1.0).round(6))
    0.126937
    """
    return gaussian_curve(validate.positive(mu=mu)).delta(validate.nonnegatives(epsilon=epsilon))


def gaussian_epsilon(mu: float, *, delta: ArrayLike) -> Floats:
    """Return the smallest ε for which μ-Gaussian DP is (ε, δ)-DP; exact to rounding and rounded up.

    Args:
        mu: μ > 0, as for ``gaussian_delta``.
        delta: in [0, 1), any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> float(gaussian_epsilon(25**0.5 / 10.7645, delta=1e-6).round(4))
    2.0791
    """
    return gaussian_curve(validate.positive(mu=mu)).epsilon(validate.probabilities(delta=delta))


def gaussian_mu(*, epsilon: float, delta: float) -> float:
    """Return the largest μ for which μ-Gaussian DP is (ε, δ)-DP, rounded down.

    Args:
        epsilon: >= 0.
        delta: in (0, 1).

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> round(25**0.5 / gaussian_mu(epsilon=2.07906, delta=1e-6), 4)
    10.7645
    """
    x = np.array([validate.nonnegative(epsilon=epsilon)])
    target = math.log(validate.probability(delta=delta, allow_zero=False))
    # gaussian_delta moves δ up by SLACK, and takes one more logarithm.
    target -= 3 * SLACK + 4 * EPS * abs(target)

    def excess(log_mu: float) -> float:
        """Return by how much ln δ at this ln μ is above what is allowed."""
        return float(gaussian_log_delta(math.exp(log_mu), epsilon=x)[0]) - target

    # At μ = e (ε + 100) the pair has δ > 1/2.
    high = math.log(x[0] + 100) + 1
    log_mu = _largest_not_above_0(excess, LEAST_LOG_MU, _first_log_mu(float(x[0]), target), high)
    return math.exp(log_mu) * (1 - SLACK)  # less the ripple of rounding


def _largest_not_above_0(
    function: Callable[[float], float], low: float, first: float, high: float
) -> float:
    """Return the largest place found, to about ROOT_TOLERANCE, at which a rising function is at
    most 0: by secants to just below the root, and halving where they lead out of the bracket and
    every sixth time.

    Args:
        function: the function; at most 0 at ``low``, and above 0 at ``high``.
        low: the left end of the bracket, which is returned where no other place is found.
        first: the place that is tried first.
        high: the right end of the bracket.
    """
    place = first
    slope = math.nan
    previous_place = math.nan
    previous_value = math.nan
    for number in range(MOST_STEPS):
        value = function(place)
        if value <= 0:
            low = place
        else:
            high = place
        if place != previous_place and value != previous_value:
            slope = (value - previous_value) / (place - previous_place)
        if -ROOT_TOLERANCE * slope <= value <= 0:
            break
        previous_place = place
        previous_value = value
        if math.isnan(slope):
            place = place - FIRST_STEP
        else:
            place = place - value / slope - ROOT_TOLERANCE / 2
        if not low < place < high or number % 6 == 5:
            place = (low + high) / 2
    return low


def _first_log_mu(epsilon: float, log_delta: float) -> float:
    """Return about the logarithm of the largest μ for which μ-Gaussian DP is (ε, δ)-DP.

    It solves ε/μ - μ/2 = t with t = sqrt(2 ln(1/δ)): μ = sqrt(t² + 2ε) - t.

    Args:
        epsilon: ε.
        log_delta: ln δ.
    """
    tail = math.sqrt(-2 * log_delta)
    twice = 2 * min(epsilon, 8e307)  # cut, so that it is a float
    mu = math.sqrt(tail * tail + twice) - tail
    return math.log(max(mu, 1e-300))  # a μ of 0 has no logarithm


@lru_cache(maxsize=512)
def gaussian_epsilon_at(mu: float, delta: float) -> float:
    """Return ``gaussian_epsilon`` at one δ of arguments that were validated: several bounds of one
    charge ask for the same one.
    """
    return float(gaussian_curve(mu).epsilon(delta))


def gaussian_curve(mu: float) -> DeltaCurve:
    """Return the exact curve of the pair N(0, 1), N(μ, 1), which answers for δ and for ε."""
    # Above μ = 1000 the rounding allowance exceeds what an exact curve promises.
    return DeltaCurve(lambda epsilon: gaussian_log_delta(mu, epsilon=epsilon), exact=mu < 1000)
