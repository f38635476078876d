"""(μ, τ)-concentrated DP (Dwork-Rothblum): a class of mechanisms, ln E[e^{λL}] <= λμ + λ²τ²/2."""

from __future__ import annotations

import math

from dptopk._internal.rounding import outward, square_up
from dptopk.accounting.cost_models.conversions import implied, plain
from dptopk.accounting.cost_models.implied import Implied
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import quadratic_log_mgf
from dptopk.costs import CDP, Cost

_NO_PAIR = "CDP is a class of mechanisms without a dominating pair"


def _covers(token: CDP, cost: Cost) -> bool:
    other = plain(cost)
    cdp = implied(other).cdp if other else None
    if cdp is None:
        return False
    mu, tau = cdp(other)
    return mu <= token.mu and tau <= token.tau


def _zcdp(cost: CDP) -> tuple[float, float]:
    """CR Lemma 2.2: ξ = (μ - τ²/2)_+, ρ = τ²/2, ξ + ρ no less than μ."""
    rho = square_up(cost.tau, 2)
    xi = float(outward(cost.mu)) - rho * (1 - 1e-12)
    return (max(0.0, xi) if math.isfinite(rho) else 0.0), rho


MODEL = CostModel(
    CDP,
    covers=_covers,
    implied=Implied(zcdp=_zcdp, exact_zcdp=_zcdp, cdp=lambda cost: (cost.mu, cost.tau)),
    log_mgf=quadratic_log_mgf(lambda cost: (cost.mu, square_up(cost.tau, 2))),
    dp_event=_NO_PAIR,
    pld=_NO_PAIR,
)
