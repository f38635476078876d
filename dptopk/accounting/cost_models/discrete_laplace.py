"""The discrete Laplace law at its largest shift: the worst of all that is h-DP at each unit step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dptopk._internal.rounding import ratio_up, square_up
from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.implied import Implied
from dptopk.accounting.cost_models.registry import CostModel, register
from dptopk.accounting.curves import Floats
from dptopk.accounting.pld.discrete_laplace import DiscreteLaplace, discrete_laplace_log_mgf, mean_loss
from dptopk.accounting.pld.log_mgf import LogMGF
from dptopk.costs import Cost, DiscreteLaplaceDP, LaplaceDP


def _covers(token: DiscreteLaplaceDP, cost: Cost) -> bool:
    """A step of the token is (1/scale)-DP: it takes m steps of a wider law, or ε-DP as a whole."""
    if isinstance(cost, DiscreteLaplaceDP):
        m = int(Fraction(cost.scale) / Fraction(token.scale))
        return m >= 1 and -(-cost.shift // m) <= token.shift
    if isinstance(cost, LaplaceDP):  # its move in token.shift equal steps, each (1/scale)-DP
        return Fraction(cost.shift) / Fraction(cost.scale) <= Fraction(token.shift) / Fraction(token.scale)
    epsilon = pure_of(cost)
    return epsilon < math.inf and Fraction(epsilon) * Fraction(token.scale) <= 1


def _log_mgf(costs: Mapping[DiscreteLaplaceDP, int]) -> LogMGF:
    def total(lam: Floats) -> Floats:
        parts = (times * discrete_laplace_log_mgf(cost.scale, cost.shift, lam) for cost, times in costs.items())
        return sum(parts, 0.0 * lam)

    return total


def _epsilon(cost: DiscreteLaplaceDP) -> float:
    return ratio_up(cost.shift, cost.scale)


def _exact(cost: DiscreteLaplaceDP) -> float:
    return mean_loss(cost.scale, cost.shift)


def _event(cost: DiscreteLaplaceDP) -> Any:
    from dp_accounting import dp_event

    return dp_event.DiscreteLaplaceDpEvent(ratio_up(1, cost.scale), cost.shift)


def _pld(cost: DiscreteLaplaceDP, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_discrete_laplace_mechanism(
        ratio_up(1, cost.scale), cost.shift, value_discretization_interval=interval, pessimistic_estimate=True
    )


register(
    CostModel(
        DiscreteLaplaceDP,
        covers=_covers,
        implied=Implied(
            pure=_epsilon,
            bounded_range=lambda cost: 2 * _epsilon(cost),
            zcdp=lambda cost: (0.0, square_up(cost.shift, 2, cost.scale)),
            exact_zcdp=lambda cost: (0.0, _exact(cost)),
            cdp=lambda cost: (_exact(cost), _epsilon(cost)),
        ),
        log_mgf=_log_mgf,
        loss_components=lambda costs: [DiscreteLaplace(cost.scale, cost.shift, times) for cost, times in costs.items()],
        family=lambda cost: ((DiscreteLaplaceDP, cost.scale), cost.shift),
        dp_event=_event,
        pld=_pld,
    )
)
