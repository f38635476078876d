"""Composition by Rényi curves: log-MGFs of the losses are summed and converted to (ε, δ) at the best order.

For a fixed order λ = α - 1 > 0 let h_i(λ) bound ln E[e^{λ L_i}] given everything before, whichever mechanism with
cost i is chosen. Then E[exp(λ Σ L_i - Σ h_i(λ))] <= 1 by induction over the rounds, and Σ h_i is known beforehand
even when the analyst picks the order set-wise. So h = Σ h_i bounds the log-MGF of the whole loss, and by CKS20
(Proposition 12)

    δ <= exp(g(λ) - λ ε),   g(λ) = h(λ) + λ ln λ - (1+λ) ln(1+λ),

for every λ: Chernoff's bound with a smaller g. As any λ will do, the minimisation over λ needs no certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dptopk.accounting.bounds import bound
from dptopk.accounting.conversions import implied
from dptopk.accounting.curves import Curve, Floats
from dptopk.accounting.log_mgf import LOG_MGF_ERROR, ChernoffCurve, bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP, sum_up

__all__ = ["log_mgf", "renyi", "renyi_curve"]

LogMGF = Callable[[Floats], Floats]


def renyi_curve(log_mgf: LogMGF, epsilon_max: float = np.inf) -> ChernoffCurve:
    """The (ε, δ) curve of a mechanism whose loss has log-MGF at most ``log_mgf`` (CKS20, Proposition 12).

    Args:
        log_mgf: upper bound on ln E[e^{λL}] = λ D_{1+λ} to a relative ``LOG_MGF_ERROR``, elementwise in λ > 0.
        epsilon_max: an ε from which on δ = 0; inf when there is none.

    Returns:
        An upper bound in both directions, each minimised over the order by itself.
    """

    def exponent(lam: Floats) -> Floats:
        h = log_mgf(lam)
        gain = lam * np.log1p(1 / lam) + np.log1p(lam)
        return h - gain + 8 * LOG_MGF_ERROR * (h + gain)  # the curve's own allowance is relative to the difference

    return ChernoffCurve(exponent, epsilon_max)


def _zcdp_log_mgf(cost: Cost, lam: Floats) -> Floats:
    zcdp = implied(cost).exact_zcdp
    if zcdp is None:
        return np.full(lam.shape, np.inf)
    xi, rho = zcdp(cost)
    return lam * (xi + rho * (1 + lam))


_LOG_MGF: dict[type[Cost], Callable[[Any, Floats], Floats]] = {
    PureDP: lambda cost, lam: pure_dp_log_mgf(cost.epsilon, lam),
    MultiDP: lambda cost, lam: pure_dp_log_mgf(cost.constraints[0][0], lam),
    BoundedRange: lambda cost, lam: bounded_range_log_mgf(cost.epsilon, lam),
    CDP: lambda cost, lam: lam * (cost.mu + lam * cost.tau**2 / 2),
    GaussianDP: _zcdp_log_mgf,
    DiscreteGaussianDP: _zcdp_log_mgf,
    ZCDP: _zcdp_log_mgf,
}


def log_mgf(charge: Charge) -> LogMGF:
    """Upper bound on ln E[e^{λL}] for the whole loss of a charge without failure mass, as a function of λ > 0."""

    def total(lam: Floats) -> Floats:
        values = np.zeros(lam.shape)
        for cost, times in charge:
            values = values + times * _LOG_MGF[type(cost)](cost, lam)
        return values

    return total


def pure_sum(charge: Charge) -> float:
    """Sum of the ε's when every cost implies pure DP, else inf."""
    epsilons: dict[float, int] = {}
    for cost, times in charge:
        pure = implied(cost).pure
        if pure is None:
            return np.inf
        epsilons[pure(cost)] = epsilons.get(pure(cost), 0) + times
    return sum_up(epsilons)


@bound(
    "renyi",
    source="Rényi curves of DDR Theorem 5 and randomised response, summed; CKS20 Prop. 12",
    takes=tuple(_LOG_MGF),
    valid_through=lambda charge: "filter" if all(isinstance(cost, ZCDP) for cost in charge.costs) else "setwise",
)
def renyi(charge: Charge) -> Curve:
    """Each cost's own Rényi curve, summed at each order; never worse than zcdp_tight."""
    return renyi_curve(log_mgf(charge), pure_sum(charge))
