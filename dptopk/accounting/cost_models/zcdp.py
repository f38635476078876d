"""(ξ, ρ)-zCDP: a class of mechanisms, known by its Rényi divergences D_α <= ξ + ρα (Bun-Steinke 2016)."""

from __future__ import annotations

from fractions import Fraction

from dptopk.accounting.cost_models.conversions import implied, plain
from dptopk.accounting.cost_models.implied import Implied
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import zcdp_log_mgf
from dptopk.costs import ZCDP, Cost

_NO_PAIR = "zCDP is a class of mechanisms without a dominating pair"


def _covers(token: ZCDP, cost: Cost) -> bool:
    """ξ' + ρ'α <= ξ + ρα for all α > 1 when it holds at α = 1 and ρ' <= ρ."""
    other = plain(cost)
    zcdp = implied(other).exact_zcdp if other else None
    if zcdp is None:
        return False
    xi, rho = zcdp(other)
    return rho <= token.rho and Fraction(xi) + Fraction(rho) <= Fraction(token.xi) + Fraction(token.rho)


def _itself(cost: ZCDP) -> tuple[float, float]:
    return cost.xi, cost.rho


MODEL = CostModel(
    ZCDP,
    covers=_covers,
    implied=Implied(zcdp=_itself, exact_zcdp=_itself),
    log_mgf=zcdp_log_mgf(_itself),
    family=lambda cost: ((ZCDP, cost.xi), cost.rho),  # with equal ξ alone is a larger ρ the weaker promise
    dp_event=_NO_PAIR,
    pld=_NO_PAIR,
)
