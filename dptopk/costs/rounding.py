"""Exact sums, rounded up once, of floats as binary fractions and of declared numbers as decimals.

A declared ε of 0.1 is 1/10: the shortest decimal that reads as the float, which is what ``repr`` prints. A mechanism
runs at ``smaller_of`` the decimal and the float, so that sums of decimals and all computations with the float are
upper bounds (docs/notes/notation.md, "Decimals").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache


@lru_cache(maxsize=4096)
def decimal(value: float) -> Fraction:
    """The shortest decimal that reads as this finite float.

    >>> decimal(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(float(value)))


def smaller_of(value: float) -> Fraction:
    """The smaller of a float and its decimal: the ε at which a mechanism runs that is charged for ``value``."""
    return min(decimal(value), Fraction(value))


def round_up(exact: Fraction) -> float:
    """The smallest float that is not below an exact non-negative number; inf beyond the largest float."""
    try:
        rounded = float(exact)  # correctly rounded, so at most one step below
    except OverflowError:
        return math.inf
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


def decimal_up(exact: Fraction) -> float:
    """The smallest float whose decimal is not below an exact non-negative number; inf beyond the largest float."""
    try:
        rounded = float(exact)
    except OverflowError:
        return math.inf
    # A nearest float that reads as less than the number is followed by one that reads as more: reading is monotone.
    return rounded if decimal(rounded) >= exact else math.nextafter(rounded, math.inf)


def read_up(exact: Fraction) -> float:
    """The smallest float that is not below an exact non-negative number, read as a float and as a decimal."""
    return max(round_up(exact), decimal_up(exact))


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


def round_down(exact: Fraction) -> float:
    """The largest float that is not above an exact non-negative number within the range of floats."""
    rounded = float(exact)
    return rounded if Fraction(rounded) <= exact else math.nextafter(rounded, 0.0)


def sum_decimals(values: Mapping[float, int]) -> float:
    """Sum of decimals with multiplicities: the smallest float whose own decimal is not below the exact sum.

    >>> sum_decimals({0.1: 10}), sum_decimals({0.1: 3}), sum_up({0.1: 10})
    (1.0, 0.3, 1.0000000000000002)
    """
    if math.inf in values:
        return math.inf
    return decimal_up(sum((decimal(value) * times for value, times in values.items()), Fraction(0)))
