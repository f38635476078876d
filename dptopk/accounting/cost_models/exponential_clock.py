"""Exponential clocks of which one user changes the rate by at most e^ε: a pair with exponential tails."""

from __future__ import annotations

from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.registry import CostModel
from dptopk.accounting.pld.clocks import ExponentialClock, clock_log_mgf
from dptopk.accounting.pld.log_mgf import each_log_mgf
from dptopk.costs import BoundedRange, Cost, ExponentialClockDP


def _covers(token: ExponentialClockDP, cost: Cost) -> bool:
    """The pair grows with ε; ε-BR implies it (docs/notes/clocks.md), and ε-DP implies 2ε-BR (DDR Section 2)."""
    if isinstance(cost, ExponentialClockDP | BoundedRange):
        return cost.epsilon <= token.epsilon
    return 2 * pure_of(cost) <= token.epsilon


MODEL = CostModel(
    ExponentialClockDP,
    covers=_covers,
    log_mgf=each_log_mgf(lambda cost, lam: clock_log_mgf(cost.epsilon, lam)),
    loss_components=lambda costs: [ExponentialClock(cost.epsilon, times) for cost, times in costs.items()],
    family=lambda cost: (ExponentialClockDP, cost.epsilon),
    dp_event="there is no event for an exponential clock",
    pld="dp-accounting has no such law",
)
