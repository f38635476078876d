"""Keyword validators whose messages name the argument and its value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptopk.errors import InvalidParameter

__all__ = ["count", "finite", "member", "nonnegative", "nonnegatives", "positive", "probabilities", "probability"]


def finite(**arguments: Any) -> float:
    """Return the one argument as a finite float, or raise InvalidParameter naming it."""
    ((name, value),) = arguments.items()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameter(f"{name} must be a real number, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidParameter(f"{name} must be finite, got {value!r}") from None
    if not math.isfinite(number):
        raise InvalidParameter(f"{name} must be finite, got {number}")
    return number


def positive(**arguments: Any) -> float:
    """Return the one argument as a finite float above 0."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0, got {value}")
    return number


def nonnegative(**arguments: Any) -> float:
    """Return the one argument as a finite float of at least 0."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    if number < 0:
        raise InvalidParameter(f"{name} must be at least 0, got {value}")
    return number + 0.0  # -0.0 becomes 0.0


def probability(*, allow_zero: bool = True, **arguments: Any) -> float:
    """Return the one argument as a float in [0, 1), or in (0, 1) when zero is not allowed."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    if not (0 <= number < 1) or (number == 0 and not allow_zero):
        raise InvalidParameter(f"{name} must be in {'[' if allow_zero else '('}0, 1), got {value}")
    return number + 0.0


def count(*, at_least: int = 1, **arguments: Any) -> int:
    """Return the one argument as an int of at least ``at_least``; integral floats are refused."""
    ((name, value),) = arguments.items()
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidParameter(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < at_least:
        raise InvalidParameter(f"{name} must be at least {at_least}, got {number}")
    return number


def nonnegatives(**arguments: Any) -> NDArray[np.float64]:
    """Return the one argument as an array of finite floats of at least 0."""
    return _array(arguments, lambda values: np.isfinite(values) & (values >= 0), "finite and at least 0")


def probabilities(**arguments: Any) -> NDArray[np.float64]:
    """Return the one argument as an array of floats in [0, 1)."""
    return _array(arguments, lambda values: (values >= 0) & (values < 1), "in [0, 1)")


def _array(
    arguments: dict[str, Any], accept: Callable[[NDArray[np.float64]], NDArray[np.bool_]], range_: str
) -> NDArray[np.float64]:
    ((name, value),) = arguments.items()
    try:
        values = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be an array of numbers") from None
    refused = values[~accept(values)]
    if refused.size:
        raise InvalidParameter(f"{name} must be {range_}, got {refused[0]}")
    return values + 0.0


def member(choices: tuple[str, ...], **arguments: Any) -> str:
    """Return the one argument if it is among the choices."""
    ((name, value),) = arguments.items()
    if value not in choices:
        raise InvalidParameter(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)
