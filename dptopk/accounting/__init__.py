"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> the module that defines it; modules load when a name is first used.
_HOME_OF = {
    "Accountant": "accountant",
    "Bound": "bounds",
    "Budget": "budget",
    "Ledger": "ledger",
    "calibrate": "calibration",
    "compose": "bounds",
}

__all__ = ["Accountant", "Bound", "Budget", "Ledger", "calibrate", "compose"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dptopk.accounting' has no attribute {name!r}")
    return getattr(import_module(f"dptopk.accounting.{home}"), name)
