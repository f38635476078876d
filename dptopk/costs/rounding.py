"""Exact sums of floats, rounded up once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

__all__ = ["round_up", "sum_up"]


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below an exact non-negative number; inf beyond the largest float."""
    try:
        rounded = float(exact)  # correctly rounded, so at most one step below
    except OverflowError:
        return math.inf
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


def sum_up(values: Mapping[float, int] | list[float]) -> float:
    """Sum of floats (with multiplicities, when a mapping is given): the exact sum rounded toward +inf."""
    counted = values.items() if isinstance(values, Mapping) else [(value, 1) for value in values]
    try:
        ratios = [(*float(value).as_integer_ratio(), times) for value, times in counted]
    except OverflowError:  # a term is inf
        return math.inf
    # All denominators are powers of 2: over the largest of them every term is an integer.
    common = max((below for _, below, _ in ratios), default=1)
    return round_up(Fraction(sum(above * (common // below) * times for above, below, times in ratios), common))
