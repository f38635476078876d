"""The total of a question that asks for all that is left of a session's budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from dptopk.budgets.account_base import Account
from dptopk.costs import Budget, Charge
from dptopk.errors import BudgetExceeded
from dptopk.planning.gauge import Kind, least_left
from dptopk.question import Facts, Question

# A question that asks for all that is left is tried with these shares of the session's δ, chosen by
# hand. A share of 1 would leave nothing for the failures of a filter that has been charged already;
# the smaller ones are for a filter of which much of δ was used.
DELTA_SHARES = (0.9, 0.5, 0.1)


def largest_budget(
    question: Question, facts: Facts, session_budget: Budget, accounts: Collection[Account]
) -> Budget:
    """Return the largest budget found at which the accounts still accept a question: that of the
    largest ε over a few values of δ.

    Args:
        question: the question; its total is not used.
        facts: what its plan may depend on.
        session_budget: the session's budget, in ε and δ; the values of δ that are tried are shares
            of its δ (DELTA_SHARES).
        accounts: all accounts that have to pay, as they are now.

    Raises:
        BudgetExceeded: when it fits at none of them.
    """
    totals = []
    for delta in dict.fromkeys(share * session_budget.delta for share in DELTA_SHARES):
        _, epsilon = least_left(accounts, Kind(replace(question, delta=delta), facts))
        if epsilon > 0:
            totals.append(Budget(epsilon, delta))
    if not totals:
        raise BudgetExceeded(Charge(), "nothing", "no question of this kind fits")
    return max(totals, key=lambda total: total.epsilon)
