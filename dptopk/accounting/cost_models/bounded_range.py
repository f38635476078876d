"""ε-bounded range, and the exponential clocks that such a cost is covered by.

Bounded range: no one pair, the adversary picks t (Dong-Durfee-Rogers 2020); composed by recursion
and log-MGFs. Clocks of which one user changes the rate by at most e^ε: a pair with exponential
tails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dptopk._internal.rounding import square_up
from dptopk.accounting.cost_models.conversions import max_kl, pure_of
from dptopk.accounting.cost_models.cost_registry import CostModel, Implied
from dptopk.accounting.pld.clocks import ExponentialClock, clock_log_mgf
from dptopk.accounting.pld.log_mgf import bounded_range_log_mgf, each_log_mgf, summed_log_mgf
from dptopk.costs import BoundedRange, Cost, ExponentialClockDP


def _covers(*types: type[Any]) -> Callable[[Any, Any], bool]:
    """Return ``covers`` of ``CostModel`` for a token of ε: it covers costs of the given types with
    no larger ε, and ε/2-DP, which implies ε-BR (DDR Section 2).
    """

    def covers(token: BoundedRange | ExponentialClockDP, cost: Cost) -> bool:
        """Return whether the token covers the cost."""
        if isinstance(cost, types):
            return cost.epsilon <= token.epsilon
        return 2 * pure_of(cost) <= token.epsilon

    return covers


_RANGE_MODEL = CostModel(
    BoundedRange,
    covers=_covers(BoundedRange),
    implied=Implied(
        pure=lambda cost: cost.epsilon,
        bounded_range=lambda cost: cost.epsilon,
        zcdp=lambda cost: (0.0, square_up(cost.epsilon, 8)),
        exact_zcdp=lambda cost: (0.0, max_kl(cost.epsilon)),
        cdp=lambda cost: (max_kl(cost.epsilon), cost.epsilon / 2),
    ),
    log_mgf=lambda costs: summed_log_mgf(
        {c.epsilon: times for c, times in costs.items()}, bounded_range_log_mgf
    ),
    family=lambda cost: (BoundedRange, cost.epsilon),
    no_counterpart="a bounded-range cost is not one pair of distributions; "
    'bounded_range="dp" takes it as ε-DP',
)
_CLOCK_MODEL = CostModel(
    ExponentialClockDP,
    # ε-BR implies the clock of ε (docs/notes/clocks.md).
    covers=_covers(ExponentialClockDP, BoundedRange),
    log_mgf=each_log_mgf(lambda cost, lam: clock_log_mgf(cost.epsilon, lam)),
    loss_components=lambda costs: [
        ExponentialClock(cost.epsilon, times) for cost, times in costs.items()
    ],
    family=lambda cost: (ExponentialClockDP, cost.epsilon),
    no_counterpart="dp-accounting has no exponential clock",
)
MODELS = (_RANGE_MODEL, _CLOCK_MODEL)
