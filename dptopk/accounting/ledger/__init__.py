"""The ledger: every charge on disk before its answer exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.ledger.ledger import Ledger as Ledger, Receipt as Receipt

__getattr__, __dir__, __all__ = attach(__name__)
