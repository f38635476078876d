"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.accounts.accountant import Accountant as Accountant
    from dptopk.accounting.accounts.filter import Filter as Filter
    from dptopk.accounting.bounds import Bound as Bound, compose as compose
    from dptopk.accounting.budget import Budget as Budget
    from dptopk.accounting.calibration import calibrate as calibrate
    from dptopk.accounting.ledger import Ledger as Ledger
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".accounts.accountant": "Accountant",
            ".accounts.filter": "Filter",
            ".bounds": "Bound compose",
            ".budget": "Budget",
            ".calibration": "calibrate",
            ".ledger": "Ledger",
        },
    )
