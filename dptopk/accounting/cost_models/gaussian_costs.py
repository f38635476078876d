"""Gaussian noise at its largest shift, which dominates in both directions.

μ-Gaussian DP: the pair N(0, 1), N(μ, 1); n of them are one Gaussian of μ² = Σ μ_i² (Dong-Roth-Su
2022). The pmf of the discrete Gaussian is log-concave, and the constants of the continuous one hold
(CKS20).

CKS20 is Canonne-Kamath-Steinke 2020.
"""

from __future__ import annotations

import math

from dptopk._internal.rounding import ratio_up, square_up
from dptopk.accounting.cost_models.conversions import gaussian_row, pure_of
from dptopk.accounting.cost_models.cost_registry import CostModel
from dptopk.accounting.cost_models.counterparts import distribution, event
from dptopk.accounting.pld.log_mgf import zcdp_log_mgf
from dptopk.accounting.pld.loss_components import DiscreteGaussian, GaussianLoss
from dptopk.costs import Cost, DiscreteGaussianDP, GaussianDP


def _covers(token: GaussianDP, cost: Cost) -> bool:
    """Return whether every mechanism with the cost is μ-GDP for the token's μ: by the cost's own
    μ', by the dominating μ' of discrete noise, or by the μ' that covers an ε-DP cost
    (docs/notes/filters.md).
    """
    if isinstance(cost, GaussianDP):
        return cost.mu <= token.mu
    if isinstance(cost, DiscreteGaussianDP):
        from dptopk.accounting.pld.dominating import dominating_mu

        return dominating_mu(cost.scale, cost.shift) <= token.mu
    epsilon = pure_of(cost)
    if not epsilon < math.inf:
        return False
    from dptopk.accounting.pld.dominating import covering_mu

    return covering_mu(epsilon) <= token.mu


def _covers_discrete(token: DiscreteGaussianDP, cost: Cost) -> bool:
    """Return whether the cost is the same noise with a move that is no larger."""
    return (
        isinstance(cost, DiscreteGaussianDP)
        and cost.scale == token.scale
        and cost.shift <= token.shift
    )


def _arguments(cost: GaussianDP) -> tuple[float]:
    """Return the arguments of dp-accounting's event and distribution: the standard deviation 1/μ
    for a move of 1, rounded down, since less noise is the safe side.
    """
    return (math.nextafter(1.0 / cost.mu, 0.0),)


def _zcdp(cost: GaussianDP) -> tuple[float, float]:
    """Return (ξ, ρ) = (0, μ²/2), rounded up."""
    return 0.0, square_up(cost.mu, 2)


def _zcdp_discrete(cost: DiscreteGaussianDP) -> tuple[float, float]:
    """Return (ξ, ρ) = (0, (shift/scale)²/2), rounded up."""
    return 0.0, square_up(cost.shift, 2, cost.scale)


_GAUSSIAN_MODEL = CostModel(
    GaussianDP,
    covers=_covers,
    implied=gaussian_row(_zcdp, lambda cost: cost.mu),
    log_mgf=zcdp_log_mgf(_zcdp),
    loss_components=lambda costs: [
        GaussianLoss(math.fsum(times * cost.mu**2 for cost, times in costs.items()))
    ],
    family=lambda cost: (GaussianDP, cost.mu),
    dp_event=event("GaussianDpEvent", _arguments),
    pld=distribution("gaussian", _arguments),
)
_DISCRETE_MODEL = CostModel(
    DiscreteGaussianDP,
    covers=_covers_discrete,
    implied=gaussian_row(_zcdp_discrete, lambda cost: ratio_up(cost.shift, cost.scale)),
    log_mgf=zcdp_log_mgf(_zcdp_discrete),
    loss_components=lambda costs: [
        DiscreteGaussian(cost.scale, cost.shift, n) for cost, n in costs.items()
    ],
    family=lambda cost: ((DiscreteGaussianDP, cost.scale), cost.shift),
    pld=distribution("discrete_gaussian", lambda cost: (cost.scale, cost.shift)),
    no_counterpart="there is no event for the discrete Gaussian; to_pld takes it",
)
MODELS = (_GAUSSIAN_MODEL, _DISCRETE_MODEL)
