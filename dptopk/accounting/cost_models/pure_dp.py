"""ε-differential privacy: the loss lies in [-ε, ε]; its pair is randomised response (Kairouz-Oh-Viswanath 2017)."""

from __future__ import annotations

from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.counterparts import event, stated_distribution
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import pure_dp_log_mgf, summed_log_mgf
from dptopk.accounting.pld.loss_components import Responses
from dptopk.costs import PureDP

MODEL = CostModel(
    PureDP,
    covers=lambda token, cost: pure_of(cost) <= token.epsilon,
    implied=pure_row(lambda cost: cost.epsilon),
    log_mgf=lambda costs: summed_log_mgf({cost.epsilon: times for cost, times in costs.items()}, pure_dp_log_mgf),
    loss_components=lambda costs: [Responses({cost.epsilon: times for cost, times in costs.items()})],
    family=lambda cost: (PureDP, cost.epsilon),
    dp_event=event("DiscreteLaplaceDpEvent", lambda cost: (cost.epsilon, 1)),
    pld=lambda cost, interval: stated_distribution(cost.epsilon, 0.0, interval),
)
