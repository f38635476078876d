"""Primitive privacy costs, and Charge: the multiset of costs that a release carries."""

from dptopk._internal.rounding import sum_up as sum_up
from dptopk.costs.budget import Budget as Budget
from dptopk.costs.charge import Charge as Charge, charge_of as charge_of
from dptopk.costs.types import (
    CDP as CDP,
    COST_TYPES as COST_TYPES,
    ZCDP as ZCDP,
    ApproxDP as ApproxDP,
    BoundedRange as BoundedRange,
    Cost as Cost,
    DiscreteGaussianDP as DiscreteGaussianDP,
    DiscreteLaplaceDP as DiscreteLaplaceDP,
    ExponentialClockDP as ExponentialClockDP,
    GaussianDP as GaussianDP,
    LabelCoinsDP as LabelCoinsDP,
    LaplaceDP as LaplaceDP,
    MultiDP as MultiDP,
    PureDP as PureDP,
    SparseGaussianDP as SparseGaussianDP,
)  # fmt: skip
