"""Laplace laws at their largest shift: the continuous one, for what others release, and the
discrete one.

The discrete one is the worst of all that is h-DP at each unit step.
"""

from __future__ import annotations

import math
from fractions import Fraction

from dptopk._internal.rounding import ratio_up
from dptopk.accounting.cost_models.conversions import pure_of, pure_row
from dptopk.accounting.cost_models.cost_registry import CostModel
from dptopk.accounting.cost_models.counterparts import distribution, event
from dptopk.accounting.pld.discrete_laplace import (
    DiscreteLaplace,
    discrete_laplace_log_mgf,
    mean_loss,
)
from dptopk.accounting.pld.laplace_loss import Laplace, laplace_log_mgf, laplace_mean_loss
from dptopk.accounting.pld.log_mgf import each_log_mgf
from dptopk.costs import Cost, DiscreteLaplaceDP, LaplaceDP


def _covers(token: LaplaceDP, cost: Cost) -> bool:
    """Return whether the cost is Laplace noise with at most the token's shift/scale; the law
    depends on that ratio alone, and a larger one dominates.
    """
    return isinstance(cost, LaplaceDP) and _ratio(cost) <= _ratio(token)


def _covers_discrete(token: DiscreteLaplaceDP, cost: Cost) -> bool:
    """Return whether the token covers the cost: a step of the token is (1/scale)-DP.

    A step covers m steps of a law that is at least m times as wide, a continuous law with the same
    ratio cut into as many steps, or ε-DP as a whole.
    """
    if isinstance(cost, DiscreteLaplaceDP):
        m = int(Fraction(cost.scale) / Fraction(token.scale))
        # The cost's steps, m at a time, are no more than the token's.
        return m >= 1 and cost.shift <= m * token.shift
    if isinstance(cost, LaplaceDP):  # its move in token.shift equal steps, each (1/scale)-DP
        return _ratio(cost) <= _ratio(token)
    epsilon = pure_of(cost)
    return epsilon < math.inf and Fraction(epsilon) * Fraction(token.scale) <= 1


def _ratio(cost: LaplaceDP | DiscreteLaplaceDP) -> Fraction:
    """Return shift/scale, exactly."""
    return Fraction(cost.shift) / Fraction(cost.scale)


def _epsilon(cost: LaplaceDP | DiscreteLaplaceDP) -> float:
    """Return ε = shift/scale, rounded up."""
    return ratio_up(cost.shift, cost.scale)


def _arguments(cost: LaplaceDP) -> tuple[float]:
    """Return the arguments of dp-accounting's event and distribution: the scale for a shift of 1,
    rounded down, since less noise is the safe side.
    """
    return (math.nextafter(1 / _epsilon(cost), 0.0),)


def _discrete_arguments(cost: DiscreteLaplaceDP) -> tuple[float, int]:
    """Return the arguments of dp-accounting's discrete event and distribution: 1/scale, rounded up,
    and the shift.
    """
    return ratio_up(1, cost.scale), cost.shift


_LAPLACE_MODEL = CostModel(
    LaplaceDP,
    covers=_covers,
    implied=pure_row(_epsilon, lambda cost: laplace_mean_loss(_epsilon(cost))),
    log_mgf=each_log_mgf(lambda cost, lam: laplace_log_mgf(_epsilon(cost), lam)),
    loss_components=lambda costs: [Laplace(_epsilon(cost), times) for cost, times in costs.items()],
    family=lambda cost: (LaplaceDP, _epsilon(cost)),
    dp_event=event("LaplaceDpEvent", _arguments),
    pld=distribution("laplace", _arguments),
)
_DISCRETE_MODEL = CostModel(
    DiscreteLaplaceDP,
    covers=_covers_discrete,
    implied=pure_row(_epsilon, lambda cost: mean_loss(cost.scale, cost.shift)),
    log_mgf=each_log_mgf(lambda cost, lam: discrete_laplace_log_mgf(cost.scale, cost.shift, lam)),
    loss_components=lambda costs: [
        DiscreteLaplace(cost.scale, cost.shift, n) for cost, n in costs.items()
    ],
    family=lambda cost: ((DiscreteLaplaceDP, cost.scale), cost.shift),
    dp_event=event("DiscreteLaplaceDpEvent", _discrete_arguments),
    pld=distribution("discrete_laplace", _discrete_arguments),
)
MODELS = (_LAPLACE_MODEL, _DISCRETE_MODEL)
