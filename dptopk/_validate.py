"""Keyword validators whose messages name the argument and its value."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dptopk.errors import InvalidParameter

__all__ = ["count", "finite", "member", "nonnegative", "positive", "probability"]


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


def member(choices: tuple[str, ...], **arguments: Any) -> str:
    """Return the one argument if it is among the choices."""
    ((name, value),) = arguments.items()
    if value not in choices:
        raise InvalidParameter(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)
