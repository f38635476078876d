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
    items = values.items() if isinstance(values, Mapping) else ((value, 1) for value in values)
    try:
        return round_up(sum((Fraction(value) * times for value, times in items), Fraction(0)))
    except OverflowError:  # a term is inf
        return math.inf
