"""Primitive privacy costs, and Charge: the multiset of costs that a release carries."""

from __future__ import annotations

from dptopk._internal.rounding import sum_up
from dptopk.costs.budget import Budget
from dptopk.costs.charge import Charge
from dptopk.costs.types import (
    CDP,
    COST_TYPES,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Cost,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    ExponentialClockDP,
    GaussianDP,
    LabelCoinsDP,
    LaplaceDP,
    MultiDP,
    PureDP,
    SparseGaussianDP,
)

__all__ = [
    "CDP",
    "COST_TYPES",
    "ZCDP",
    "ApproxDP",
    "BoundedRange",
    "Budget",
    "Charge",
    "Cost",
    "DiscreteGaussianDP",
    "DiscreteLaplaceDP",
    "ExponentialClockDP",
    "GaussianDP",
    "LabelCoinsDP",
    "LaplaceDP",
    "MultiDP",
    "PureDP",
    "SparseGaussianDP",
    "sum_up",
]
