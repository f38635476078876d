"""Classes of mechanisms without a dominating pair: (ξ, ρ)-zCDP and (μ, τ)-concentrated DP.

(ξ, ρ)-zCDP: Rényi divergences D_α <= ξ + ρα (Bun-Steinke 2016). (μ, τ)-CDP: L - E[L] is
τ-subgaussian, and E[L] <= μ, whichever neighbour comes first (Dwork-Rothblum 2016).

CR is Cesar-Rogers 2022.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptopk._internal.rounding import square_up
from dptopk.accounting.cost_models.conversions import cost_with_row, implications_of
from dptopk.accounting.cost_models.cost_registry import CostModel, Implied
from dptopk.accounting.pld.log_mgf import quadratic_log_mgf, zcdp_log_mgf
from dptopk.costs import CDP, ZCDP, Cost


def _covers_zcdp(token: ZCDP, cost: Cost) -> bool:
    """Return whether every mechanism with the cost is (ξ, ρ)-zCDP as the token states.

    ξ' + ρ'α <= ξ + ρα for all α > 1 when it holds at α = 1 and ρ' <= ρ.
    """
    xi, rho = _implied_parameters_or_inf(cost, "exact_zcdp")
    at_1 = Fraction(token.xi) + Fraction(token.rho)
    return rho <= token.rho and Fraction(xi) + Fraction(rho) <= at_1


def _covers_cdp(token: CDP, cost: Cost) -> bool:
    """Return whether every mechanism with the cost is (μ, τ)-CDP as the token states."""
    mu, tau = _implied_parameters_or_inf(cost, "cdp")
    return mu <= token.mu and tau <= token.tau


def _implied_parameters_or_inf(cost: Cost, notion: str) -> tuple[float, float]:
    """Return the parameters of the notion, a field of ``Implied``, that a cost implies; inf where
    none is known.
    """
    stated = cost_with_row(cost)
    convert = getattr(implications_of(stated), notion) if stated else None
    if convert:
        return convert(stated)
    return math.inf, math.inf


def _own_parameters(cost: ZCDP) -> tuple[float, float]:
    """Return (ξ, ρ) of the cost."""
    return cost.xi, cost.rho


def _zcdp_of_subgaussian(cost: CDP) -> tuple[float, float]:
    """Return (ξ, ρ) = (0, τ²/2), which holds whatever μ is.

    1 = E[e^{-L}] <= e^{τ²/2 - E[L]}, as L is finite in both directions, so E[L] <= τ²/2, and ln
    E[e^{λL}] <= λτ²/2 + λ²τ²/2. CR Lemma 2.2 has ξ = (μ - τ²/2)_+ besides.
    """
    return 0.0, square_up(cost.tau, 2)


def _mean_and_spread(cost: CDP) -> tuple[float, float]:
    """Return a and b of the bound aλ + bλ² on the log-MGF: the largest mean, min(μ, τ²/2), and
    τ²/2.
    """
    rho = square_up(cost.tau, 2)
    return min(cost.mu, rho), rho


_ZCDP_MODEL = CostModel(
    ZCDP,
    covers=_covers_zcdp,
    implied=Implied(zcdp=_own_parameters, exact_zcdp=_own_parameters),
    log_mgf=zcdp_log_mgf(_own_parameters),
    # A larger ρ is the weaker promise only where ξ is equal.
    family=lambda cost: ((ZCDP, cost.xi), cost.rho),
    no_counterpart="zCDP is a class of mechanisms without a dominating pair",
)
_CDP_MODEL = CostModel(
    CDP,
    covers=_covers_cdp,
    implied=Implied(
        zcdp=_zcdp_of_subgaussian,
        exact_zcdp=_zcdp_of_subgaussian,
        cdp=lambda cost: (cost.mu, cost.tau),
    ),
    log_mgf=quadratic_log_mgf(_mean_and_spread),
    no_counterpart="CDP is a class of mechanisms without a dominating pair",
)
MODELS = (_ZCDP_MODEL, _CDP_MODEL)
