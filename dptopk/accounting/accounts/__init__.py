"""Accounts of a budget: registrations with their tokens, filters with their meters, shares of analysts, segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.accounts.account import Account as Account, Summary as Summary
    from dptopk.accounting.accounts.accountant import Accountant as Accountant
    from dptopk.accounting.accounts.filter import Filter as Filter
    from dptopk.accounting.accounts.parallel import Parallel as Parallel, segments_charge as segments_charge
    from dptopk.accounting.accounts.shares import Shares as Shares
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".account": "Account Summary",
            ".accountant": "Accountant",
            ".filter": "Filter",
            ".parallel": "Parallel segments_charge",
            ".shares": "Shares",
        },
    )
