"""Composition of bounded ranges: closed forms, and the optima of analysts who do not adapt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.bounded_range.concentration import (
        adaptivity_gap as adaptivity_gap,
        dr19_epsilon as dr19_epsilon,
        improved_drv10_epsilon as improved_drv10_epsilon,
        mgf_delta as mgf_delta,
        mgf_epsilon as mgf_epsilon,
        opt_kl_epsilon as opt_kl_epsilon,
    )
    from dptopk.accounting.bounded_range.nonadaptive import (
        br_nonadaptive_delta as br_nonadaptive_delta,
        br_nonadaptive_epsilon as br_nonadaptive_epsilon,
        candidates as candidates,
    )
    from dptopk.accounting.bounded_range.nonadaptive_heterogeneous import (
        br_heterogeneous_bracket as br_heterogeneous_bracket,
    )
    from dptopk.accounting.bounded_range.nonadaptive_with_dp import (
        br_dp_nonadaptive_delta as br_dp_nonadaptive_delta,
        br_dp_nonadaptive_epsilon as br_dp_nonadaptive_epsilon,
    )
    from dptopk.accounting.bounded_range.orderings import (
        dp_first_delta as dp_first_delta,
        dp_later_delta as dp_later_delta,
    )
    from dptopk.accounting.bounded_range.strategies import OptimumCurve as OptimumCurve, Point as Point
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".concentration": "adaptivity_gap dr19_epsilon improved_drv10_epsilon mgf_delta mgf_epsilon opt_kl_epsilon",
            ".nonadaptive": "br_nonadaptive_delta br_nonadaptive_epsilon candidates",
            ".nonadaptive_heterogeneous": "br_heterogeneous_bracket",
            ".nonadaptive_with_dp": "br_dp_nonadaptive_delta br_dp_nonadaptive_epsilon",
            ".orderings": "dp_first_delta dp_later_delta",
            ".strategies": "OptimumCurve Point",
        },
    )
