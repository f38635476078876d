"""Rounding outward: how far each kind of formula is moved up, and exact sums that are rounded up
once.

Formulas in floats are moved up by a relative slack that is far above their rounding errors, sums of
floats and of declared numbers are exact and rounded once. An upper bound that is positive never
becomes 0, and NaN never a number.

A declared ε of 0.1 is 1/10: the shortest decimal that reads as the float, which is what ``repr``
prints. A mechanism runs at ``smaller_of`` the decimal and the float, so that sums of decimals and
all computations with the float are upper bounds (docs/notes/notation.md, "Decimals").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
EPS = 2.0**-52  # from 1 to the next float
ROUNDOFF = EPS / 2  # the relative error of one operation, or of one number that is rounded

# Formulas of the accounting are evaluated to a relative error far below this.
SLACK = 1e-13
# The lower bound of an exact curve is moved inward by more, as its roots are found to about this.
EXACT_SLACK = 1e-10
# Tails of the noise laws are quotients of sums, with relative errors below 1e-12.
TAIL_SLACK = 1e-9


def outward(value: ArrayLike, slack: ArrayLike = SLACK) -> Floats:
    """Return upper bounds, of at least 0, moved up by a relative ``slack`` and to the next float.

    An exact 0 stays 0, and NaN becomes inf: what could not be computed is never a small bound.
    """
    raised = np.asarray(value, dtype=float) * (1 + np.asarray(slack))
    moved = np.nextafter(raised, np.inf)
    moved = np.where(np.asarray(value) == 0, 0.0, moved)
    return np.where(np.isnan(moved), np.inf, moved)


def exp_up(log_values: ArrayLike) -> Floats:
    """Return upper bounds on the probabilities with these logarithms: positive unless the logarithm
    is -inf; NaN becomes 1.
    """
    logs = np.minimum(np.where(np.isnan(log_values), 0.0, log_values), 0.0)
    with np.errstate(under="ignore"):
        values = np.maximum(np.exp(logs), np.nextafter(0.0, 1.0))
    # Rounding a logarithm moves the exponential by up to the logarithm times EPS / 2. Below e^-1000
    # the exponential is 0 in floats, and became the smallest positive one.
    slack = SLACK + 1e-15 * np.minimum(-logs, 1e3)
    bounded = np.minimum(outward(values, slack), 1.0)
    return np.where(logs == -np.inf, 0.0, bounded)


def tail_up(probability: float) -> float:
    """Return the probability raised by TAIL_SLACK, within [2^-1022, 1]: an underflow never turns it
    into 0; NaN becomes 1.
    """
    if probability < 1:
        raised = probability * (1 + TAIL_SLACK)
        return min(max(raised, 2.0**-1022), 1.0)
    return 1.0


@lru_cache(maxsize=4096)
def decimal(value: float) -> Fraction:
    """Return the shortest decimal that reads as this finite float.

    >>> decimal(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(float(value)))


def smaller_of(value: float) -> Fraction:
    """Return the smaller of a float and its decimal: the ε at which a mechanism runs that is
    charged for ``value``.
    """
    return min(decimal(value), Fraction(value))


def round_up(exact: Fraction, read: Callable[[float], Fraction] = Fraction) -> float:
    """Return the smallest float that does not read as less than an exact number; inf beyond the
    largest float.

    Args:
        exact: the number.
        read: maps a float to the number that it is read as: its own value, or its decimal.
    """
    try:
        rounded = float(exact)  # correctly rounded, so at most one step below
    except OverflowError:
        return math.inf
    if read(rounded) >= exact:
        return rounded
    return math.nextafter(rounded, math.inf)


def decimal_up(exact: Fraction) -> float:
    """Return the smallest float whose decimal is not below an exact non-negative number; inf beyond
    the largest float.
    """
    # A nearest float that reads as less than the number is followed by one that reads as more:
    # reading is monotone.
    return round_up(exact, decimal)


def read_up(exact: Fraction) -> float:
    """Return the smallest float that is not below an exact non-negative number in either reading:
    as the float itself, and as its shortest decimal.
    """
    return max(round_up(exact), decimal_up(exact))


def ratio_up(numerator: float, denominator: float) -> float:
    """Return the quotient of two floats > 0, rounded up as a float and as a decimal; never 0."""
    return read_up(Fraction(numerator) / Fraction(denominator))


def square_up(numerator: float, divisor: int, denominator: float = 1.0) -> float:
    """Return (numerator / denominator)² / divisor for floats > 0: the exact value rounded up; never
    0.

    Args:
        numerator: above 0.
        divisor: at least 1.
        denominator: above 0.
    """
    quotient = Fraction(numerator) / Fraction(denominator)
    return round_up(quotient**2 / divisor)


def sum_up(values: Mapping[float, int] | list[float]) -> float:
    """Return the sum of floats (with multiplicities, when a mapping is given): the exact sum
    rounded toward +inf.
    """
    if isinstance(values, Mapping):
        return sum_times(values.items())
    return sum_times([(value, 1) for value in values])


def sum_times(counted: Iterable[tuple[float, int]]) -> float:
    """Return the sum of floats with multiplicities: the exact sum rounded toward +inf.

    Args:
        counted: pairs of a float and the number of times that it is added.

    Raises:
        ArithmeticError: when a term is NaN.
    """
    try:
        ratios = [(*float(value).as_integer_ratio(), times) for value, times in counted]
    except OverflowError:  # a term is inf
        return math.inf
    except ValueError:
        raise ArithmeticError("a term of a sum is not a number") from None
    # All denominators are powers of 2: over the largest of them every term is an integer.
    common = max([denominator for _, denominator, _ in ratios], default=1)
    total = sum(
        [numerator * (common // denominator) * times for numerator, denominator, times in ratios]
    )
    return round_up(Fraction(total, common))


def round_down(exact: Fraction) -> float:
    """Return the largest float that is not above an exact non-negative number within the range of
    floats.
    """
    rounded = float(exact)
    if Fraction(rounded) <= exact:
        return rounded
    return math.nextafter(rounded, 0.0)


def floor_digits(value: float, digits: int = 6) -> float:
    """Round a value down to so many significant digits, so that people can read and repeat it."""
    return float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(value))


def ceil_digits(value: float) -> float:
    """Round a value up to six significant digits."""
    return float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(value))


def sum_decimals(values: Mapping[float, int]) -> float:
    """Return the sum of decimals with multiplicities: the smallest float whose own decimal is not
    below the exact sum.

    >>> sum_decimals({0.1: 10}), sum_decimals({0.1: 3}), sum_up({0.1: 10})
    (1.0, 0.3, 1.0000000000000002)
    """
    if math.inf in values:
        return math.inf
    terms = [decimal(value) * times for value, times in values.items()]
    return decimal_up(sum(terms, Fraction(0)))
