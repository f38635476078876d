"""Rényi curves: log-MGFs, concentrated DP, and their conversions to (ε, δ)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.pld.log_mgf import (
        LOG_MGF_ERROR as LOG_MGF_ERROR,
        ChernoffCurve as ChernoffCurve,
        bounded_range_log_mgf as bounded_range_log_mgf,
        pure_dp_log_mgf as pure_dp_log_mgf,
    )
    from dptopk.accounting.renyi.composition import renyi_curve as renyi_curve
    from dptopk.accounting.renyi.concentrated import (
        cdp_epsilon as cdp_epsilon,
        zcdp_curve as zcdp_curve,
        zcdp_epsilon as zcdp_epsilon,
        zcdp_rho as zcdp_rho,
        zcdp_total as zcdp_total,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "dptopk.accounting.pld.log_mgf": "ChernoffCurve LOG_MGF_ERROR bounded_range_log_mgf pure_dp_log_mgf",
            ".composition": "renyi_curve",
            ".concentrated": "cdp_epsilon zcdp_curve zcdp_epsilon zcdp_rho zcdp_total",
        },
    )
