"""Very many randomised responses of one ε: a lower bound on what they attain, at any count.

The loss of n responses is jε, j = 2K - n, K binomial with success e^ε/(1 + e^ε), so that

    δ(x) = Σ_j pmf(j) (1 - e^{x - jε})_+ .

Both factors of a term are log-concave in j: between two places the terms are at least a geometric
sequence through its ends, whose sum is closed. With a = j/n and t = tanh(ε/2), by Robbins' form of
Stirling's formula (n! = sqrt(2πn) (n/e)^n e^r, 1/(12n + 1) < r < 1/(12n)),

    ln pmf(j) >= -n D(a, t) + ln(2 / (πn (1 - a²))) / 2 - 1/(3n (1 - a²)),

D(a, t) = ((1 + a) ln((1 + a)/(1 + t)) + (1 - a) ln((1 - a)/(1 - t)))/2: no sum over n places is
formed, and n may be 10^18.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import EPS, Floats

FEWEST_RESPONSES = 50_000  # below, the exact engine is quick
LARGEST_EPSILON = 1.0
BLOCKS = 2048  # geometric sequences in the sum
BEYOND = 9.0  # standard deviations of the loss beyond the threshold that are summed up
RETREATS: Floats = np.geomspace(1e-8, 0.1, 57)  # relative distances of the ε's that are tried
LARGEST_SHARE = 0.9  # of n, of a place j: as far as the rounding of the deviance is bounded
SMALLEST_LOG_RATIO = 1e-300  # of a geometric sequence: 0 would be 0/0
EXACT_INTEGERS = 2.0**52
SUM_SLACK = 1e-9  # relative: rounding of the sums, of their terms, and of places times ε


def log_pmf_below(place: Floats, count: int, epsilon: float) -> Floats:
    """Return a lower bound on ln P[2K - n = j], K being the number of true answers among n
    responses.

    Args:
        place: the j's, whole numbers of the parity of n, |j| <= 0.9 n.
        count: n.
        epsilon: in (0, LARGEST_EPSILON].
    """
    n = float(count)
    t = math.tanh(epsilon / 2)
    a = place / n
    d = a - t
    deviance = (1 + a) * np.log1p(d / (1 + t)) + (1 - a) * np.log1p(-d / (1 - t))  # 2 D(a, t)
    spread = n * (1 - a) * (1 + a)
    log_density = np.log(2 / (math.pi * spread)) / 2
    values = -n * deviance / 2 + log_density - 1 / (3 * spread)
    # d is off by EPS (|a| + 4 t), D has the slope d/(1 - t²) in t and less than 11 d in a; the two
    # terms of D are each computed to 8 EPS of their size, about n |d|.
    factor = 64 + 64 * (np.abs(a) + t)
    rounding = EPS * n * np.abs(d) * factor / (1 - t)
    result: Floats = values - rounding - 64 * EPS * (1 + np.abs(values))
    return result


def responses_delta_below(count: int, epsilon: float, x: float) -> float:
    """Return a lower bound on δ(x) of ``count`` randomised responses of ε; 0 where the sums do not
    apply.

    Args:
        count: n.
        epsilon: ε of one response, in (0, LARGEST_EPSILON].
        x: the ε of all responses together, at least 0.
    """
    tanh = math.tanh(epsilon / 2)
    deviation = math.sqrt(float(count) * (1 - tanh * tanh))
    # Places j of losses above x; two more, as a place too few is a lower bound and a place too many
    # none.
    first = math.floor(x / epsilon) + 2
    first += (first - count) % 2  # j has the parity of n
    # The sum is cut into BLOCKS blocks of places, two apart, with as many terms each.
    terms = max(math.ceil(BEYOND * deviation / BLOCKS / 2), 1)
    last = first + 2 * terms * BLOCKS
    if last >= min(LARGEST_SHARE * float(count), EXACT_INTEGERS):
        return 0.0
    block_ends: Floats = first + 2.0 * terms * np.arange(BLOCKS + 1, dtype=float)
    # A loss jε is moved down by more than its rounding.
    gains = -np.expm1(np.minimum(x - block_ends * epsilon * (1 - 4 * EPS), 0.0))
    is_positive = gains > 0
    with np.errstate(divide="ignore"):
        log_terms = log_pmf_below(block_ends, count, epsilon) + np.log(gains)
    usable = is_positive[:-1] & is_positive[1:]
    sums = _geometric_sums(log_terms, terms, usable)
    return float(np.where(usable, sums, 0.0).sum()) * (1 - SUM_SLACK)


def _geometric_sums(logs: Floats, width: int, usable: NDArray[np.bool_]) -> Floats:
    """Return, for each block of ``width`` terms, the sum of the geometric sequence through the
    terms at its ends; blocks that are not ``usable`` have no meaningful sum.

    Args:
        logs: the logarithms of the terms at the ends of the blocks, one more than blocks.
        width: the number of terms of a block.
        usable: which blocks have a sum.
    """
    first_terms = logs[:-1]
    ratio = (logs[1:] - first_terms) / width  # of neighbouring terms, a logarithm
    is_regular = usable & (np.abs(ratio) > SMALLEST_LOG_RATIO)
    ratio = np.where(is_regular, ratio, -SMALLEST_LOG_RATIO)
    # From the larger end of a block on, its terms fall: no exponential overflows.
    largest = first_terms + np.maximum((width - 1) * ratio, 0.0)
    falling = -np.abs(ratio)
    sums: Floats = np.exp(largest) * np.expm1(width * falling) / np.expm1(falling)
    return sums


def responses_epsilon_below(count: int, epsilon: float, delta: float, upper: float) -> float:
    """Return a lower bound on the ε of ``count`` randomised responses at ``delta``: an ε at which
    their δ is proven to be above it; 0 if none is found near ``upper``.

    Args:
        count: n; a count below FEWEST_RESPONSES is sound, and better left to the exact engine.
        epsilon: of one response.
        delta: the δ asked for.
        upper: an upper bound on the answer, below which ε's are tried.
    """
    if not (0 < epsilon <= LARGEST_EPSILON and 0 < delta < 1):
        return 0.0
    for x in (upper * (1 - RETREATS)).tolist():
        if responses_delta_below(count, epsilon, x) > delta:
            return float(x)
    return 0.0
