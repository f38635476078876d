"""The continuous Laplace law at its largest shift, for what others release."""

from __future__ import annotations

import math
from fractions import Fraction

from dptopk._internal.rounding import ratio_up
from dptopk.accounting.cost_models.counterparts import distribution, event
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.laplace import Laplace, laplace_log_mgf, laplace_mean_loss
from dptopk.accounting.pld.log_mgf import each_log_mgf
from dptopk.costs import Cost, LaplaceDP


def _covers(token: LaplaceDP, cost: Cost) -> bool:
    """The law depends on shift/scale alone, and a larger one dominates."""
    return isinstance(cost, LaplaceDP) and _ratio(cost) <= _ratio(token)


def _ratio(cost: LaplaceDP) -> Fraction:
    return Fraction(cost.shift) / Fraction(cost.scale)


def _epsilon(cost: LaplaceDP) -> float:
    return ratio_up(cost.shift, cost.scale)


def _noise(cost: LaplaceDP) -> tuple[float]:
    """The noise for a shift of 1, rounded down: less noise is the safe side."""
    return (math.nextafter(1 / _epsilon(cost), 0.0),)


MODEL = CostModel(
    LaplaceDP,
    covers=_covers,
    implied=pure_row(_epsilon, lambda cost: laplace_mean_loss(_epsilon(cost))),
    log_mgf=each_log_mgf(lambda cost, lam: laplace_log_mgf(_epsilon(cost), lam)),
    loss_components=lambda costs: [Laplace(_epsilon(cost), times) for cost, times in costs.items()],
    family=lambda cost: (LaplaceDP, _epsilon(cost)),
    dp_event=event("LaplaceDpEvent", _noise),
    pld=distribution("laplace", _noise),
)
