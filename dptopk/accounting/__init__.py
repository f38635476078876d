"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.bounds import Bound as Bound, compose as compose
    from dptopk.accounting.calibration import calibrate as calibrate
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".bounds": "Bound compose",
            ".calibration": "calibrate",
        },
    )
