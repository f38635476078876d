"""Plans within a budget in ρ: the plan of the largest total (ε, δ) found whose charge the budget
takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from dptopk._internal.rounding import round_up
from dptopk.accounting.bounds import compose
from dptopk.budgets.filter import Filter
from dptopk.costs import ZCDP, Budget, Charge
from dptopk.errors import IncompatibleCosts, InvalidParameter
from dptopk.planning.topk_plan import TopKPlan

P = TypeVar("P", bound=TopKPlan)
REPORTED_AT = 1e-6  # the δ of the plan's (ε, δ) where the budget has none for failures
# How many totals (ε, δ) are tried at most; chosen by hand.
MOST_RESCALINGS = 6
# A plan that takes this share of ρ is good enough; each rescaling aims a little below the budget,
# since charges do not grow exactly as ε².
ENOUGH_OF_BUDGET = 0.995
AIMED_SHARE = 1 - 1e-3


@dataclass(frozen=True)
class _Attempt:
    """A total that was planned for: its ε, and the ρ of the plan's charge."""

    epsilon: float
    rho: float


def plan_in_rho(budget: Budget, plan: Callable[[Budget], P]) -> P:
    """Return the plan, made by the function ``plan``, for the largest total (ε, δ) found whose
    charge fits an unspent filter of a budget in ρ.

    Args:
        budget: in ρ. With its δ at 0 nothing may fail, and the plan's own total is stated at δ =
            1e-6.
        plan: the function that returns the plan for a total (ε, δ).

    Returns:
        The plan, with its ``in_rho`` set; its charge is within the budget (checked by the filter).
        Its ε is within about half a per cent of the largest one, where the search ends there.

    Raises:
        InvalidParameter: when no plan fits, or its costs have no ρ; as ``plan``.
    """
    unspent = Filter(budget)
    # A filter in ρ accepts failures of up to half of its δ; a δ of 0 states no (ε, δ).
    delta = budget.delta / 2 if budget.delta else REPORTED_AT
    rho = budget.rho or 0.0  # for the type checker: the budget is in ρ
    epsilon = compose(Charge({ZCDP(rho): 1}), delta=delta).epsilon
    best: P | None = None
    attempts: list[_Attempt] = []
    for _ in range(MOST_RESCALINGS):
        candidate = plan(Budget(epsilon, delta))
        rho_of_plan, failures = _rho_and_failures(unspent, candidate.charge)
        if unspent.can_spend(candidate.charge) and (
            best is None or candidate.epsilon > best.epsilon
        ):
            terms = (("rho", rho_of_plan), ("rho_budget", rho), ("failure_delta", failures))
            best = replace(candidate, in_rho=terms)
            if rho_of_plan >= ENOUGH_OF_BUDGET * rho:
                break
        attempts.append(_Attempt(epsilon, rho_of_plan))
        # If ρ grows as this power of ε, it is the budget's at the next ε.
        power = _growth(attempts)
        epsilon *= (rho / rho_of_plan) ** (1 / power) * AIMED_SHARE
    if best is not None:
        return best
    if failures > budget.delta / 2:
        raise InvalidParameter(
            f"no plan fits {budget}: its charge has a δ; give the budget one, or a public domain"
        )
    raise InvalidParameter(f"no plan was found that fits {budget}; give a budget in epsilon")


def _rho_and_failures(unspent: Filter, charge: Charge) -> tuple[float, float]:
    """Return ρ and the failure mass of a charge as a filter in ρ counts them, rounded up.

    Raises:
        InvalidParameter: when a cost has no ρ.
    """
    try:
        totals = unspent.totals_of_prices(charge)
    except IncompatibleCosts as reason:
        raise InvalidParameter(
            f"budget: a plan in rho needs costs of zCDP: {reason}; name a method"
        ) from None
    (exact,) = totals.sums.values()  # a budget in rho has one metric
    return round_up(exact), round_up(totals.failures)


def _growth(attempts: list[_Attempt]) -> float:
    """Return the power of ε with which ρ grew between the last two attempts, cut to [1, 2]; 2 after
    the first attempt.

    ρ grows about as ε² where ε is small, and as ε where it is large.

    Args:
        attempts: the totals that were planned for, at least one, the latest last.
    """
    if len(attempts) == 1:
        return 2.0
    previous, latest = attempts[-2:]
    if latest.epsilon == previous.epsilon:
        return 2.0
    power = math.log(latest.rho / previous.rho) / math.log(latest.epsilon / previous.epsilon)
    return min(max(power, 1.0), 2.0)
