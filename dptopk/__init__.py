"""Differentially private top-k queries on histograms, with privacy accounting built in.

Every public name is loaded when it is first used, so that ``import dptopk`` costs little more than ``import numpy``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Public name -> the module that defines it.
_HOMES = {
    "dptopk.costs": (
        "ApproxDP", "BoundedRange", "CDP", "Charge", "DiscreteGaussianDP", "GaussianDP", "MultiDP", "PureDP", "ZCDP",
    ),
    "dptopk.histogram": ("Histogram", "Sensitivity"),
    "dptopk.release": ("Release",),
    "dptopk.errors": (
        "BudgetExceeded", "DptopkError", "IncompatibleCosts", "InvalidParameter", "LedgerError", "NotCertified",
    ),
    "dptopk.mechanisms": (
        "CountMLE", "Exponential", "KnownGaussian", "KnownGumbel", "KnownLaplace", "TruncatedGaussian",
        "UnknownGaussian", "UnknownGumbel", "UnknownLaplace",
    ),
    "dptopk.accounting": ("Accountant", "Bound", "Ledger", "calibrate", "compose"),
    "dptopk.planning": ("Plan", "plan_topk"),
    "dptopk.accounting.budget": ("Budget",),
    "dptopk.session": ("Session",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [  # noqa: PLE0604 - names of the table above
    *_HOME_OF,
    "__version__",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'dptopk' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
