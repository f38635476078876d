"""The optimal set-wise adaptive bound: value functions, their recursion, and products of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.setwise.optimum import SetwiseCurve as SetwiseCurve, optimal_setwise as optimal_setwise
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".optimum": "SetwiseCurve optimal_setwise",
        },
    )
