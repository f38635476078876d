"""The continuous Laplace law at its largest shift, for what others release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dptopk._internal.rounding import ratio_up, square_up
from dptopk.accounting.cost_models.implied import Implied
from dptopk.accounting.cost_models.registry import CostModel, register
from dptopk.accounting.curves import Floats
from dptopk.accounting.pld.laplace import Laplace, laplace_log_mgf, laplace_mean_loss
from dptopk.accounting.pld.log_mgf import LogMGF
from dptopk.costs import Cost, LaplaceDP


def _covers(token: LaplaceDP, cost: Cost) -> bool:
    """The law depends on shift/scale alone, and a larger one dominates."""
    return isinstance(cost, LaplaceDP) and _ratio(cost) <= _ratio(token)


def _ratio(cost: LaplaceDP) -> Fraction:
    return Fraction(cost.shift) / Fraction(cost.scale)


def _log_mgf(costs: Mapping[LaplaceDP, int]) -> LogMGF:
    def total(lam: Floats) -> Floats:
        return sum((times * laplace_log_mgf(_epsilon(cost), lam) for cost, times in costs.items()), 0.0 * lam)

    return total


def _epsilon(cost: LaplaceDP) -> float:
    return ratio_up(cost.shift, cost.scale)


def _exact(cost: LaplaceDP) -> float:
    return laplace_mean_loss(_epsilon(cost))


def _noise(cost: LaplaceDP) -> float:
    """The noise for a shift of 1, rounded down: less noise is the safe side."""
    return math.nextafter(1 / _epsilon(cost), 0.0)


def _event(cost: LaplaceDP) -> Any:
    from dp_accounting import dp_event

    return dp_event.LaplaceDpEvent(_noise(cost))


def _pld(cost: LaplaceDP, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_laplace_mechanism(_noise(cost), value_discretization_interval=interval, pessimistic_estimate=True)


register(
    CostModel(
        LaplaceDP,
        covers=_covers,
        implied=Implied(
            pure=_epsilon,
            bounded_range=lambda cost: 2 * _epsilon(cost),
            zcdp=lambda cost: (0.0, square_up(cost.shift, 2, cost.scale)),
            exact_zcdp=lambda cost: (0.0, _exact(cost)),
            cdp=lambda cost: (_exact(cost), _epsilon(cost)),
        ),
        log_mgf=_log_mgf,
        loss_components=lambda costs: [Laplace(_epsilon(cost), times) for cost, times in costs.items()],
        family=lambda cost: (LaplaceDP, _epsilon(cost)),
        dp_event=_event,
        pld=_pld,
    )
)
