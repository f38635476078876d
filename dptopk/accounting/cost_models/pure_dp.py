"""ε-differential privacy: the loss lies in [-ε, ε]; its pair is randomised response (Kairouz-Oh-Viswanath 2017)."""

from __future__ import annotations

from typing import Any

from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel, register
from dptopk.accounting.pld.log_mgf import pure_dp_log_mgf, summed_log_mgf
from dptopk.accounting.pld.loss_components import Responses
from dptopk.costs import PureDP


def parameters_pld(epsilon: float, delta: float, interval: float) -> Any:
    """dp-accounting's privacy loss distribution of (ε, δ)-DP."""
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    pair = common.DifferentialPrivacyParameters(epsilon, delta)
    return pld.from_privacy_parameters(pair, value_discretization_interval=interval)


def _event(cost: PureDP) -> Any:
    from dp_accounting import dp_event

    return dp_event.DiscreteLaplaceDpEvent(cost.epsilon, 1)


register(
    CostModel(
        PureDP,
        covers=lambda token, cost: pure_of(cost) <= token.epsilon,
        implied=pure_row(lambda cost: cost.epsilon),
        log_mgf=lambda costs: summed_log_mgf({cost.epsilon: times for cost, times in costs.items()}, pure_dp_log_mgf),
        loss_components=lambda costs: [Responses({cost.epsilon: times for cost, times in costs.items()})],
        family=lambda cost: (PureDP, cost.epsilon),
        dp_event=_event,
        pld=lambda cost, interval: parameters_pld(cost.epsilon, 0.0, interval),
    )
)
