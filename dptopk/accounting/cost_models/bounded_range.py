"""ε-bounded range: no one pair, the adversary picks t (Dong-Durfee-Rogers 2020); composed by recursion and log-MGFs."""

from __future__ import annotations

from dptopk._internal.rounding import square_up
from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.implied import Implied, max_kl
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import bounded_range_log_mgf, summed_log_mgf
from dptopk.costs import BoundedRange, Cost

_NO_PAIR = 'a bounded-range cost is not one pair of distributions; bounded_range="dp" takes it as ε-DP'


def _covers(token: BoundedRange, cost: Cost) -> bool:
    """ε-DP implies 2ε-BR (DDR Section 2)."""
    return (cost.epsilon if isinstance(cost, BoundedRange) else 2 * pure_of(cost)) <= token.epsilon


MODEL = CostModel(
    BoundedRange,
    covers=_covers,
    implied=Implied(
        pure=lambda cost: cost.epsilon,
        bounded_range=lambda cost: cost.epsilon,
        zcdp=lambda cost: (0.0, square_up(cost.epsilon, 8)),
        exact_zcdp=lambda cost: (0.0, max_kl(cost.epsilon)),
        cdp=lambda cost: (max_kl(cost.epsilon), cost.epsilon / 2),
    ),
    log_mgf=lambda costs: summed_log_mgf({c.epsilon: times for c, times in costs.items()}, bounded_range_log_mgf),
    family=lambda cost: (BoundedRange, cost.epsilon),
    dp_event=_NO_PAIR,
    pld=_NO_PAIR,
)
