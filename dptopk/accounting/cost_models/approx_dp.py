"""(ε, δ)-DP: ruined with probability δ, independently of all else, and ε-DP otherwise (KOV's four-outcome pair)."""

from __future__ import annotations

from dptopk.accounting.cost_models.conversions import is_approx
from dptopk.accounting.cost_models.counterparts import stated_distribution
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.costs import ApproxDP, Cost, PureDP


def _without_failure(cost: ApproxDP) -> tuple[Cost | None, float]:
    return (PureDP(cost.epsilon) if cost.epsilon > 0 else None), cost.delta


MODEL = CostModel(
    ApproxDP,
    covers=lambda token, cost: is_approx(cost, token.epsilon, token.delta),
    implied=pure_row(lambda cost: cost.epsilon),  # once its atom is split off
    statements=lambda cost: ((cost.epsilon, cost.delta),),
    without_failure=_without_failure,
    dp_event="there is no event for (ε, δ)-DP; to_pld takes it",
    pld=lambda cost, interval: stated_distribution(cost.epsilon, cost.delta, interval),
)
