"""Composition of (ε, δ)-DP costs: equal ones, two different ones, any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.pure_dp.heterogeneous import (
        optimal_dp_approx_epsilon as optimal_dp_approx_epsilon,
        optimal_dp_bracket as optimal_dp_bracket,
        optimal_dp_exact_delta as optimal_dp_exact_delta,
        optimal_dp_exact_epsilon as optimal_dp_exact_epsilon,
    )
    from dptopk.accounting.pure_dp.homogeneous import (
        advanced_epsilon as advanced_epsilon,
        improved_advanced_epsilon as improved_advanced_epsilon,
        optimal_dp_delta as optimal_dp_delta,
        optimal_dp_epsilon as optimal_dp_epsilon,
    )
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".heterogeneous": "optimal_dp_approx_epsilon optimal_dp_bracket optimal_dp_exact_delta "
            "optimal_dp_exact_epsilon",
            ".homogeneous": "advanced_epsilon improved_advanced_epsilon optimal_dp_delta optimal_dp_epsilon",
        },
    )
