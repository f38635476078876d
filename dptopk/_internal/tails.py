"""Tails of the integer noise laws: upper bounds in closed form or by summation, never below the
truth.

Every function returns an upper bound whose relative excess is below 1e-6 (larger only where
stated). Rounding errors of the float64 operations are below 1e-12 relative and are covered by
TAIL_SLACK.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import TAIL_SLACK, tail_up
from dptopk._internal.search import first_true
from dptopk.errors import InvalidParameter

# Gaussian sums run term by term up to this scale; beyond, the integral is within 1e-6 of the sum.
SUMMED_SCALE = 1000.0
# Edges are summed point by point up to this width.
EDGE_POINTS = 100_000
LARGEST_OFFSET = 2**60  # with twice of it added, counts stay within 64 bits


def smallest_offset(tail: Callable[[int], float], delta: float, name: str, start: int = 0) -> int:
    """Return the smallest threshold, an integer c >= start, with tail(c) <= delta, for a decreasing
    tail.

    Args:
        tail: maps c to an upper bound on the tail beyond it.
        delta: the tail that is allowed.
        name: the argument that an error names.
        start: the smallest c.

    Raises:
        InvalidParameter: naming ``name``, when that c is beyond 2^60 or the tail cannot be shown to
            be so small.
    """
    offset = first_true(lambda c: tail(c) <= delta, start, LARGEST_OFFSET + 1)
    return _offset_in_range(offset, name)


def first_offset(hidden: Callable[[int], bool], name: str, start: int = 0) -> int:
    """Return the smallest threshold, an integer c >= start, from which on ``hidden`` is true.

    Args:
        hidden: maps c to whether it hides enough; once it is true it stays so.
        name: the argument that an error names.
        start: the smallest c.

    Raises:
        InvalidParameter: naming ``name``, when that c is beyond 2^60.
    """
    return _offset_in_range(first_true(hidden, start, LARGEST_OFFSET + 1), name)


def _offset_in_range(offset: int, name: str) -> int:
    """Return the offset, unless it is beyond 2^60.

    Raises:
        InvalidParameter: naming ``name``, the argument that makes it so large.
    """
    if offset > LARGEST_OFFSET:
        raise InvalidParameter(
            f"{name} needs a threshold beyond 2^60: it is too small for this noise"
        )
    return offset


def laplace_tail(rate: float, c: int) -> float:
    """Return an upper bound on P[N > c] for c >= 0 and P[N = n] ∝ exp(-rate |n|): q^{c+1}/(1+q), q
    = e^{-rate}.
    """
    first = math.exp(-rate * (c + 1))
    return tail_up(first / (1 + math.exp(-rate)))


def laplace_edge_mass(decay: float, width: int, bound: int) -> float:
    """Return an upper bound on P[N > bound - width] for P[n] ∝ exp(-decay |n|) cut to [-bound,
    bound], 1 <= width <= bound.

    With q = e^{-decay}: q^{bound - width + 1} (1 - q^width) / (1 + q - 2 q^{bound + 1}).

    Args:
        decay: the decay in the law.
        width: the number of outermost points on one side.
        bound: the largest value of the noise.
    """
    innermost = bound - width + 1
    fall = -math.expm1(-decay * width)
    edge = math.exp(-decay * innermost) * fall
    total = laplace_total(decay, bound)
    if total > 0:
        return tail_up(edge / total)
    return 1.0


def laplace_total(decay: float, bound: int) -> float:
    """Return 1 + q - 2 q^{bound + 1}, q = e^{-decay}: (1 - q) times the sum of q^|n| over |n| <=
    bound.

    It is computed as (1 - q^{bound + 1}) + q (1 - q^bound), the parts of n >= 0 and of n < 0,
    because the three terms cancel where ``decay`` is small.
    """
    q = math.exp(-decay)
    from_zero = -math.expm1(-decay * (bound + 1))
    from_one = -q * math.expm1(-decay * bound)
    return from_zero + from_one


def laplace_difference_tail(rate: float, c: int) -> float:
    """Return an upper bound on P[N1 - N2 > c] for c >= 0: the tail of the law's convolution with
    itself.

    With q = e^{-rate} and s >= 0, P[N1 - N2 = s] = ((1-q)/(1+q))² q^s (s + (1+q²)/(1-q²)); summed
    over s > c.
    """
    q = math.exp(-rate)
    p = -math.expm1(-rate)
    offset = (1 + q * q) / (p * (1 + q))
    total = c + 1 + q / p + offset
    first = math.exp(-rate * (c + 1))
    # p * total is at least 1/2; first * p alone may be a subnormal float, which has few digits.
    return tail_up(first * (p * total) / (1 + q) ** 2)


@overload
def gaussian_weight(n: NDArray[np.float64], scale: float) -> NDArray[np.float64]: ...
@overload
def gaussian_weight(n: np.float64, scale: float) -> np.float64: ...
def gaussian_weight(
    n: NDArray[np.float64] | np.float64, scale: float
) -> NDArray[np.float64] | np.float64:
    """Return the Gaussian weight exp(-n²/(2 scale²)); a square that overflows gives 0."""
    with np.errstate(over="ignore"):
        weight: NDArray[np.float64] | np.float64 = np.exp(-((n / scale) ** 2) / 2)
    return weight


def gaussian_tails(scale: float, first: int, number: int) -> np.ndarray[Any, Any]:
    """Return upper bounds on P[N > c], as ``gaussian_tail`` does, at ``number`` consecutive
    integers c from ``first`` >= 0 on; an array of the shape (number,).

    Args:
        scale: the scale of the noise, P[N = n] ∝ exp(-n²/(2 scale²)).
        first: the first c.
        number: how many c there are.
    """
    if scale <= SUMMED_SCALE:
        terms = number + _number_of_terms(scale)
        n = np.arange(first + 1, first + terms, dtype=np.float64)
        from_the_end = gaussian_weight(n, scale)[::-1].cumsum()
        up_to_last = from_the_end[::-1][:number]
        sums = up_to_last + _integral_beyond(float(n[-1]), scale)
    else:
        cuts = np.arange(first, first + number, dtype=np.float64)
        sums = _sum_by_midpoints(scale, cuts)
    return tails_up(sums / theta(scale))


def tails_up(tails: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return each probability of an array raised by TAIL_SLACK, as ``tail_up`` does it."""
    raised = np.clip(tails * (1 + TAIL_SLACK), 2.0**-1022, 1.0)
    return np.where(tails < 1, raised, 1.0)


def unions(tails: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return for each pair of a probability p and a number n the bound of ``union``: 1 - (1-p)^n,
    rounded up.

    Args:
        tails: the probabilities of one event.
        numbers: how many independent events there are, in the same shape.
    """
    with np.errstate(divide="ignore"):
        log_none = numbers * np.log1p(-tails)
        return tails_up(-np.expm1(log_none))


def _half_sum(scale: float, c: int) -> float:
    """Return an upper bound on the sum of exp(-n²/(2 scale²)) over the integers n > c, for an
    integer c >= 0.
    """
    if scale <= SUMMED_SCALE:
        # The terms fall, so what is left after the last one is at most the integral from it.
        last = c + _number_of_terms(scale)
        n = np.arange(c + 1, last + 1, dtype=np.float64)
        return float(gaussian_weight(n, scale).sum()) + float(_integral_beyond(last, scale))
    return float(_sum_by_midpoints(scale, np.array([c], dtype=np.float64))[0])


def _sum_by_midpoints(scale: float, cuts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an upper bound on the sum of f(n) = exp(-n²/(2 scale²)) over n > c for each integer c
    of ``cuts``, too large by a share of about 1/(8 scale²) at most.

    f(n) exceeds its integral over the unit interval around n by at most 1/8 of the integral of
    max(-f'', 0) over it, and -f'' <= f/scale². Beyond one scale f is convex, without an excess.
    """
    bend = np.where(cuts >= scale, 0.0, 1 / (8 * scale * scale))
    integrals: NDArray[np.float64] = _integral_beyond(cuts + 0.5, scale)
    return integrals * (1 + bend)


def _number_of_terms(scale: float) -> int:
    """Return how many terms of a sum of Gaussian weights are added one by one; any number is sound,
    since the others are bounded by an integral.

    After 10 scales a term is below e^-50 of the first one.
    """
    return max(64, math.ceil(10 * scale))


def _integral_beyond(x: Any, scale: float) -> Any:
    """Return the integral of exp(-n²/(2 scale²)) over the real n > x, for a number x or for each of
    an array.
    """
    from scipy.special import erfc

    tail = erfc(x / (scale * math.sqrt(2)))
    return scale * math.sqrt(math.pi / 2) * tail


def theta(scale: float, offset: float = 0.0) -> float:
    """Return the sum of exp(-(n+offset)²/(2 scale²)) over all integers n, to rounding: by Poisson
    summation from scale 1 on, term by term below.

    Args:
        scale: the scale of the Gaussian weights, above 0.
        offset: how far the integers are shifted, in [0, 1).
    """
    if scale >= 1:
        damped = math.exp(-2 * (math.pi * scale) ** 2)
        angle = 2 * math.pi * offset
        wave = 2 * math.cos(angle) * damped
        integral = scale * math.sqrt(2 * math.pi)
        return integral * (1 + wave)  # the next wave is below 2 e^-78
    # Further terms underflow at scales below 1.
    n = np.arange(-60.0, 61.0) + offset
    return float(gaussian_weight(n, scale).sum())


def gaussian_tail(scale: float, c: int) -> float:
    """Return an upper bound on P[N > c] for c >= 0 and P[N = n] ∝ exp(-n²/(2 scale²))."""
    return tail_up(_half_sum(scale, c) / theta(scale))


def gaussian_difference_tail(scale: float, c: int) -> float:
    """Return an upper bound on P[N1 - N2 > c] for c >= 0 and P[N = n] ∝ exp(-n²/(2 scale²)).

    P[N1 - N2 = d] = exp(-d²/(4 scale²)) Σ_n exp(-(n + d/2)²/scale²) / Z²: a discrete Gaussian of
    scale √2·scale whose weights depend on the parity of d. From scale 3 on the two weights agree to
    1e-37.
    """
    wide = scale * math.sqrt(2)
    narrow = scale / math.sqrt(2)
    if scale >= 3:
        beyond_c = _half_sum(wide, c) * theta(narrow)
        return tail_up(beyond_c / theta(scale) ** 2)
    # Beyond 160 more points a weight is below e^-700, and the larger of the two sums serves.
    d = np.arange(c + 1, c + 161, dtype=np.float64)
    weights = np.where(d % 2 == 0, theta(narrow), theta(narrow, 0.5))
    up_to_160 = float((gaussian_weight(d, wide) * weights).sum())
    beyond_160 = _half_sum(wide, c + 160) * theta(narrow)
    return tail_up((up_to_160 + beyond_160) / theta(scale) ** 2)


def gaussian_edge_mass(scale: float, width: int, bound: int) -> float:
    """Return an upper bound on P[N > bound - width] for P[N = n] ∝ exp(-n²/(2 scale²)) cut to
    [-bound, bound]: its ``width`` outermost points.

    Needs 1 <= width <= bound, and scale <= 2^48 as mechanisms do: beyond, differences cancel. From
    bound < scale on (a mass near 1) the excess may be larger than 1e-6.

    Args:
        scale: the scale of the noise before it is cut.
        width: the number of outermost points on one side.
        bound: the largest value of the noise.
    """
    # The weight falls, so its value at the left end bounds a whole step.
    step = -(-width // EDGE_POINTS)
    innermost = bound - width + 1
    n = np.arange(innermost, bound + 1, step, dtype=np.float64)
    edge = step * float(gaussian_weight(n, scale).sum())
    outermost = float(gaussian_weight(np.float64(bound), scale))
    # Below one large scale the integral from ``bound`` on is above the sum by about 1/2: that makes
    # the difference too small, by more than it loses to rounding.
    if SUMMED_SCALE < scale and bound < scale:
        mass_beyond = float(_integral_beyond(bound, scale))
    else:
        mass_beyond = _half_sum(scale, bound)
    mass_inside = theta(scale) - 2 * mass_beyond
    # Where the difference cancels: each of the 2·bound weights but that of 0 is at least the last.
    total = max(mass_inside, 1 + 2 * bound * outermost)
    return tail_up(edge / total)


def union(probability: float, n: int) -> float:
    """Return 1 - (1-p)^n, rounded up: the probability that one of n independent events of
    probability p happens.
    """
    if probability < 1:
        log_none = n * math.log1p(-probability)
        return tail_up(-math.expm1(log_none))
    return 1.0
