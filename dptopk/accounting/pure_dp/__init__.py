"""Composition of (ε, δ)-DP costs: equal ones, and two different ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dptopk._internal.lazy import attach

if TYPE_CHECKING:
    from dptopk.accounting.pure_dp.homogeneous import (
        optimal_dp_delta as optimal_dp_delta,
        optimal_dp_epsilon as optimal_dp_epsilon,
    )
    from dptopk.accounting.pure_dp.two_epsilon import two_epsilon_delta as two_epsilon_delta
else:  # a type checker that saw __getattr__ would believe in any name
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            ".homogeneous": "optimal_dp_delta optimal_dp_epsilon",
            ".two_epsilon": "two_epsilon_delta",
        },
    )
