"""The discrete Gaussian at its largest shift, which dominates in both directions: its pmf is log-concave."""

from __future__ import annotations

from dptopk._internal.rounding import ratio_up, square_up
from dptopk.accounting.cost_models.counterparts import distribution
from dptopk.accounting.cost_models.implied import gaussian_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.log_mgf import zcdp_log_mgf
from dptopk.accounting.pld.loss_components import DiscreteGaussian
from dptopk.costs import Cost, DiscreteGaussianDP


def _covers(token: DiscreteGaussianDP, cost: Cost) -> bool:
    return isinstance(cost, DiscreteGaussianDP) and cost.scale == token.scale and cost.shift <= token.shift


def _zcdp(cost: DiscreteGaussianDP) -> tuple[float, float]:
    """The constants of the continuous Gaussian hold (CKS20)."""
    return 0.0, square_up(cost.shift, 2, cost.scale)


MODEL = CostModel(
    DiscreteGaussianDP,
    covers=_covers,
    implied=gaussian_row(_zcdp, lambda cost: ratio_up(cost.shift, cost.scale)),
    log_mgf=zcdp_log_mgf(_zcdp),
    loss_components=lambda costs: [DiscreteGaussian(cost.scale, cost.shift, times) for cost, times in costs.items()],
    family=lambda cost: ((DiscreteGaussianDP, cost.scale), cost.shift),
    dp_event="there is no event for the discrete Gaussian; to_pld takes it",
    pld=distribution("discrete_gaussian", lambda cost: (cost.scale, cost.shift)),
)
