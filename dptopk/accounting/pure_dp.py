"""Composition of ε-DP costs: the basic sum and the optimum for equal ε's.

An (ε, δ)-DP cost arrives here as ε-DP: its failure mass is split off beforehand (``bounds.split_failure``).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dptopk import _validate as validate
from dptopk.accounting.binomial import log_binomial_pmf
from dptopk.accounting.bounds import NotApplicable, bound
from dptopk.accounting.conversions import implied
from dptopk.accounting.curves import Curve, DeltaCurve, Floats
from dptopk.accounting.loss_curve import LossCurve
from dptopk.costs import BoundedRange, Charge, MultiDP, PureDP, sum_up
from dptopk.errors import InvalidParameter

__all__ = ["basic", "optimal_dp", "optimal_dp_delta", "optimal_dp_epsilon", "pure_epsilons"]


def pure_epsilons(charge: Charge) -> dict[float, int]:
    """The distinct ε's, with counts, of a charge in which every cost implies ε-DP.

    Raises:
        NotApplicable: when a cost implies no pure DP.
    """
    epsilons: dict[float, int] = {}
    for cost, times in charge:
        pure = implied(cost).pure
        if pure is None:
            raise NotApplicable(f"{type(cost).__name__} implies no pure DP")
        epsilons[pure(cost)] = epsilons.get(pure(cost), 0) + times
    return epsilons


@bound(
    "basic",
    source="Murtagh-Vadhan 2016, Theorem 1.2",
    takes=(PureDP, BoundedRange, MultiDP),
    valid_through="filter",
)
def basic(charge: Charge) -> Curve:
    """Basic composition: the sum of the ε's, with δ = 0; nothing is claimed below that sum."""
    return DeltaCurve(np.zeros_like, epsilon_max=sum_up(pure_epsilons(charge)))


@lru_cache(maxsize=4)  # a question asks for the curve of its charge more than once
def _homogeneous(epsilon: float, count: int, *, exact: bool) -> LossCurve:
    """k-fold randomised response: the loss (2l - k) ε has the mass of Bin(k, e^ε / (1 + e^ε)) at l."""
    log_masses, error = log_binomial_pmf(count, epsilon)
    losses = np.arange(-count, count + 1, 2, dtype=float) * epsilon
    return LossCurve(losses, log_masses, log_error=error, epsilon_max=sum_up({epsilon: count}), exact=exact)


def optimal_dp_delta(epsilon: float, count: int, epsilon_global: ArrayLike) -> Floats:
    """Smallest δ such that every k-fold adaptive composition of ε-DP mechanisms is (ε_g, δ)-DP.

    Args:
        epsilon: ε > 0 of each mechanism.
        count: k >= 1, how many.
        epsilon_global: ε_g >= 0, an array of any shape.

    Returns:
        δ, of the shape of ``epsilon_global``: exact, rounded up (relative error below 1e-10 for k <= 10^6).

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Kairouz-Oh-Viswanath 2017, Theorem 3.3; Murtagh-Vadhan 2016, Theorem 1.4.

    >>> float(optimal_dp_delta(1.0, 1, 0.0))  # (e - 1) / (e + 1)
    0.46211715726...
    """
    return _optimal(epsilon, count).delta(_nonnegative(epsilon_global=epsilon_global))


def optimal_dp_epsilon(epsilon: float, count: int, delta: ArrayLike) -> Floats:
    """Smallest ε_g such that every k-fold adaptive composition of ε-DP mechanisms is (ε_g, δ)-DP.

    Arguments and source as for ``optimal_dp_delta``; ``delta`` in [0, 1], an array of any shape.

    >>> round(float(optimal_dp_epsilon(0.1, 25, 1e-6)), 5)
    2.07906
    """
    return _optimal(epsilon, count).epsilon(_nonnegative(delta=delta))


def _optimal(epsilon: float, count: int) -> LossCurve:
    return _homogeneous(validate.positive(epsilon=epsilon), validate.count(count=count), exact=True)


def _nonnegative(**arguments: ArrayLike) -> Floats:
    """Return the one argument as an array of numbers >= 0, or raise InvalidParameter naming it."""
    ((name, value),) = arguments.items()
    array = np.asarray(value, dtype=float)
    if not np.all(array >= 0) or np.isinf(array).any():
        raise InvalidParameter(f"{name} must be finite and at least 0")
    return array


@bound(
    "optimal_dp",
    source="Kairouz-Oh-Viswanath 2017, Theorem 3.3; Murtagh-Vadhan 2016, Theorem 1.4",
    takes=(PureDP, BoundedRange, MultiDP),
)
def optimal_dp(charge: Charge) -> Curve:
    """The optimal composition of k equal ε's; the optimum itself when every cost is an ε-DP cost."""
    epsilons = pure_epsilons(charge)
    if len(epsilons) > 1:
        raise NotApplicable(f"needs equal epsilons, got {len(epsilons)} different ones")
    ((epsilon, count),) = epsilons.items()
    return _homogeneous(epsilon, count, exact=len(charge.of(PureDP)) == len(charge.costs))
