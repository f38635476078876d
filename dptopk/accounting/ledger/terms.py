"""The terms of a budget, as the log holds them: all that defines an account, with what was computed when it was made.

The guarantee of a registration and the capacity of a filter are computed once and stored, so that no other processor,
later version or busy hour reads another one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dptopk.accounting.account import Account
from dptopk.accounting.accountant import Accountant
from dptopk.accounting.bounds import Bound
from dptopk.accounting.budget import Budget
from dptopk.accounting.filter import Filter
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter

__all__ = ["account_of", "terms_of"]

_STORED = ("epsilon", "delta", "lower", "name", "source", "note")


def terms_of(
    registered: Charge | None, budget: Budget | None, delta: float | None, ranges: Sequence[float] | None = None
) -> dict[str, Any]:
    """A budget in words that the log can hold: a set-wise registration with its δ, or a filter's total (ε, δ).

    Raises:
        InvalidParameter: unless exactly one of registered (with delta) and budget is given, and accountants take it.
    """
    if (registered is None) == (budget is None):
        raise InvalidParameter("give exactly one of registered and budget")
    if budget is not None:
        if not isinstance(budget, Budget) or delta is not None:
            raise InvalidParameter("budget must be a Budget, which has its own delta")
        return {"budget": [budget.epsilon, budget.delta], "filter": Filter(budget, ranges=ranges).terms()}
    if ranges is not None:
        raise InvalidParameter("ranges are for a budget: a registration names its costs")
    if not isinstance(registered, Charge) or delta is None:
        raise InvalidParameter("registered must be a Charge, with the delta at which its guarantee is stated")
    account = Accountant(registered, delta)  # refuses what the accountant refuses
    terms: dict[str, Any] = {"registered": str(registered), "delta": account.delta}
    if math.isfinite(account.guarantee.epsilon):
        terms["guarantee"] = {name: getattr(account.guarantee, name) for name in _STORED}
    return terms


def account_of(terms: dict[str, Any]) -> Account:
    """The account of a budget, nothing spent; entries of format 1 hold neither guarantee nor capacity."""
    if "filter" in terms:
        return Filter.of_terms(terms["filter"])
    if "budget" in terms:
        return Accountant.filter(Budget(*terms["budget"]))
    stored = terms.get("guarantee")
    guarantee = None if stored is None else Bound(**stored, valid_in=("batch", "ordered", "setwise"))
    return Accountant(Charge.parse(terms["registered"]), terms["delta"], guarantee=guarantee)
