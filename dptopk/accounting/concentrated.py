"""Composition through concentrated DP: sums of zCDP and CDP parameters."""

from __future__ import annotations

import numpy as np

from dptopk.accounting.bounds import NotApplicable, bound
from dptopk.accounting.conversions import implied
from dptopk.accounting.curves import Curve, EpsilonCurve, outward
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP, sum_up

__all__ = ["setwise_zcdp", "zcdp_total"]

ALL_COSTS = (PureDP, BoundedRange, MultiDP, GaussianDP, DiscreteGaussianDP, ZCDP, CDP)


def zcdp_total(charge: Charge) -> tuple[float, float]:
    """(ξ, ρ) of everything in a charge without failure mass: sums, rounded up.

    Raises:
        NotApplicable: when a cost implies no zCDP.
    """
    xis: dict[float, int] = {}
    rhos: dict[float, int] = {}
    for cost, times in charge:
        zcdp = implied(cost).zcdp
        if zcdp is None:
            raise NotApplicable(f"{type(cost).__name__} implies no zCDP")
        xi, rho = zcdp(cost)
        xis[xi] = xis.get(xi, 0) + times
        rhos[rho] = rhos.get(rho, 0) + times
    return sum_up(xis), sum_up(rhos)


@bound("setwise_zcdp", source="Cesar-Rogers 2022, Lemma 3.4; BS16 Prop. 1.3", takes=ALL_COSTS, valid_through="filter")
def setwise_zcdp(charge: Charge) -> Curve:
    """ε = ξ + ρ + 2 sqrt(ρ ln(1/δ)) for the summed (ξ, ρ)."""
    xi, rho = zcdp_total(charge)
    return EpsilonCurve(lambda log_inverse: outward(xi + rho + 2 * np.sqrt(rho * log_inverse), 1e-15))
