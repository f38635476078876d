"""Composition of bounded ranges: closed forms, and the optima of analysts who do not adapt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
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
    from dptopk.accounting.bounded_range.strategies import OptimumCurve as OptimumCurve, Point as Point
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".nonadaptive": "br_nonadaptive_delta br_nonadaptive_epsilon candidates",
            ".nonadaptive_heterogeneous": "br_heterogeneous_bracket",
            ".nonadaptive_with_dp": "br_dp_nonadaptive_delta br_dp_nonadaptive_epsilon",
            ".strategies": "OptimumCurve Point",
        },
    )
