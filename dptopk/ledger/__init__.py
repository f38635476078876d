"""The ledger: every charge on disk before its answer exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.ledger.disclosure import statement as statement
    from dptopk.ledger.ledger import Ledger as Ledger
    from dptopk.ledger.spends import Receipt as Receipt
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".disclosure": "statement",
            ".ledger": "Ledger",
            ".spends": "Receipt",
        },
    )
