"""Accounts of a budget: what all have in common, what filters sum up, the shares of several analysts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.accounts.account import Account as Account, Summary as Summary
    from dptopk.accounting.accounts.shares import Shares as Shares

__getattr__, __dir__, __all__ = attach(__name__)
