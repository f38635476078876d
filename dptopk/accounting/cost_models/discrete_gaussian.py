"""The discrete Gaussian at its largest shift, which dominates in both directions: its pmf is log-concave."""

from __future__ import annotations

from typing import Any

from dptopk._internal.rounding import ratio_up, square_up
from dptopk.accounting.cost_models.implied import gaussian_row
from dptopk.accounting.cost_models.registry import CostModel, register
from dptopk.accounting.pld.log_mgf import zcdp_log_mgf
from dptopk.accounting.pld.loss_components import DiscreteGaussian
from dptopk.costs import Cost, DiscreteGaussianDP


def _covers(token: DiscreteGaussianDP, cost: Cost) -> bool:
    return isinstance(cost, DiscreteGaussianDP) and cost.scale == token.scale and cost.shift <= token.shift


def _pld(cost: DiscreteGaussianDP, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_discrete_gaussian_mechanism(
        cost.scale, sensitivity=cost.shift, value_discretization_interval=interval, pessimistic_estimate=True
    )


def _zcdp(cost: DiscreteGaussianDP) -> tuple[float, float]:
    """The constants of the continuous Gaussian hold (CKS20)."""
    return 0.0, square_up(cost.shift, 2, cost.scale)


register(
    CostModel(
        DiscreteGaussianDP,
        covers=_covers,
        implied=gaussian_row(_zcdp, lambda cost: ratio_up(cost.shift, cost.scale)),
        log_mgf=zcdp_log_mgf(_zcdp),
        loss_components=lambda costs: [
            DiscreteGaussian(cost.scale, cost.shift, times) for cost, times in costs.items()
        ],
        family=lambda cost: ((DiscreteGaussianDP, cost.scale), cost.shift),
        dp_event="there is no event for the discrete Gaussian; to_pld takes it",
        pld=_pld,
    )
)
