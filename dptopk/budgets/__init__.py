"""Accounts of a budget: registrations with their tokens, filters with their metrics, shares of analysts, segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.budgets.account import Account as Account, Summary as Summary
    from dptopk.budgets.accountant import Accountant as Accountant
    from dptopk.budgets.filter import Filter as Filter
    from dptopk.budgets.parallel import Parallel as Parallel, segments_charge as segments_charge
    from dptopk.budgets.remaining import Remaining as Remaining
    from dptopk.budgets.shares import Shares as Shares
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".account": "Account Summary",
            ".accountant": "Accountant",
            ".filter": "Filter",
            ".parallel": "Parallel segments_charge",
            ".remaining": "Remaining",
            ".shares": "Shares",
        },
    )
