"""Advanced composition of ε-DP costs (Dwork-Rothblum-Vadhan 2010), with the published mean loss and
the exact one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats, outward
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Curve, EpsilonCurve
from dptopk.accounting.pure_dp.homogeneous import one_epsilon
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, sum_up

ROUNDING = 1e-14  # relative: of a dozen operations on numbers that are not negative


def advanced_epsilon(epsilon: float, count: int, *, delta: ArrayLike) -> Floats:
    """Return ε_g = ε sqrt(2k ln(1/δ)) + k ε (e^ε - 1), the classical advanced composition: an upper
    bound.

    Args:
        epsilon: ε > 0 of each mechanism.
        count: k >= 1, how many.
        delta: δ >= 0, an array of any shape; at 0 the answer is inf, from 1 on that for 1.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Dwork-Rothblum-Vadhan 2010; Murtagh-Vadhan 2016, Theorem 1.3.

    >>> round(float(advanced_epsilon(0.1, 25, delta=1e-6)), 4)
    2.8912
    """
    epsilon = validate.positive(epsilon=epsilon)
    count = validate.count(count=count)
    with np.errstate(divide="ignore"):
        log_inverse = np.maximum(-np.log(validate.nonnegatives(delta=delta)), 0.0)
    return _advanced_sum(epsilon, count, math.expm1(epsilon), log_inverse)


def _advanced_sum(epsilon: float, count: int, mean: float, log_inverse: Floats) -> Floats:
    """Return ε sqrt(2k ln(1/δ)) + k ε · m, rounded up.

    Args:
        epsilon: ε of each mechanism.
        count: k.
        mean: m, the largest mean loss of a mechanism over ε.
        log_inverse: ln(1/δ), any shape.
    """
    total = epsilon * np.sqrt(2 * count * log_inverse) + count * epsilon * mean
    # Both products may underflow to 0, which ``outward`` takes for an exact one.
    return np.asarray(outward(np.maximum(total, math.ulp(0.0)), ROUNDING))


@bound(
    "advanced",
    source="Dwork-Rothblum-Vadhan 2010 (Murtagh-Vadhan 2016, Theorem 1.3), with the mean ε "
    "tanh(ε/2)",
    takes=types_with("pure"),
    published=True,
)
def advanced(charge: Charge) -> Curve:
    """Bound k equal ε's by advanced composition, or by their sum where that is less.

    Raises:
        NotApplicable: when the ε's differ.
    """
    epsilon, count = one_epsilon(charge)
    # Times ε it is the largest mean loss of ε-DP (Kairouz-Oh-Viswanath 2017, Theorem 3.4).
    mean = math.tanh(epsilon / 2)
    return EpsilonCurve(
        lambda log_inverse: _advanced_sum(epsilon, count, mean, log_inverse),
        epsilon_max=sum_up({epsilon: count}),
    )
