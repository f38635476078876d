"""Privacy accounting: composition bounds, the accountant, calibration and the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.bounds import compose as compose
    from dptopk.accounting.calibration import calibrate as calibrate
    from dptopk.accounting.registry import Bound as Bound
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__, {".bounds": "compose", ".calibration": "calibrate", ".registry": "Bound"}
    )
