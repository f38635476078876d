"""Composition of ε-DP and (ε, δ)-DP costs."""

from __future__ import annotations

import numpy as np

from dptopk.accounting.bounds import NotApplicable, bound
from dptopk.accounting.conversions import implied
from dptopk.accounting.curves import Curve, DeltaCurve
from dptopk.costs import BoundedRange, Charge, MultiDP, PureDP, sum_up

__all__ = ["basic", "pure_epsilons"]


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
