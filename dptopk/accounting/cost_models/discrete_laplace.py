"""The discrete Laplace law at its largest shift: the worst of all that is h-DP at each unit step."""

from __future__ import annotations

import math
from fractions import Fraction

from dptopk._internal.rounding import ratio_up
from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.counterparts import distribution, event
from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.discrete_laplace import DiscreteLaplace, discrete_laplace_log_mgf, mean_loss
from dptopk.accounting.pld.log_mgf import each_log_mgf
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


def _epsilon(cost: DiscreteLaplaceDP) -> float:
    return ratio_up(cost.shift, cost.scale)


def _arguments(cost: DiscreteLaplaceDP) -> tuple[float, int]:
    return ratio_up(1, cost.scale), cost.shift


MODEL = CostModel(
    DiscreteLaplaceDP,
    covers=_covers,
    implied=pure_row(_epsilon, lambda cost: mean_loss(cost.scale, cost.shift)),
    log_mgf=each_log_mgf(lambda cost, lam: discrete_laplace_log_mgf(cost.scale, cost.shift, lam)),
    loss_components=lambda costs: [DiscreteLaplace(cost.scale, cost.shift, times) for cost, times in costs.items()],
    family=lambda cost: ((DiscreteLaplaceDP, cost.scale), cost.shift),
    dp_event=event("DiscreteLaplaceDpEvent", _arguments),
    pld=distribution("discrete_laplace", _arguments),
)
