"""Validators: each returns its argument, or raises InvalidParameter if that is not as it must be.

The argument is given under its own name, as in ``validate.positive(epsilon=0.5)``, and the messages
name it. Those of numbers and words also name its value; those of texts and types never do, as a
secret may come there.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk.errors import InvalidParameter

LARGEST = 2**62  # of counts, labels and caps: sums of two fit int64
T = TypeVar("T")
Word = TypeVar("Word", bound=str)


def assign(instance: object, **values: object) -> None:
    """Write validated values into a frozen dataclass, in its ``__post_init__`` or ``__init__``."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def instance(kind: type[T], **arguments: Any) -> T:
    """Return the one argument if it is of that type; the message names the type that came, never
    the value.
    """
    ((name, value),) = arguments.items()
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise InvalidParameter(
            f"{name} must be {article} {kind.__name__}, got {type(value).__name__}", parameter=name
        )
    return value


def text(**arguments: Any) -> str:
    """Return the one argument if it is text that is not empty."""
    ((name, value),) = arguments.items()
    if not isinstance(value, str) or not value:
        raise InvalidParameter(f"{name} must be non-empty text", parameter=name)
    return value


def finite(**arguments: SupportsFloat) -> float:
    """Return the one argument as a finite float, or raise InvalidParameter naming it."""
    ((name, value),) = arguments.items()
    if type(value) is float and math.isfinite(value):  # the usual case, in a tenth of the time
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidParameter(f"{name} must be a real number, got {value!r:.80}", parameter=name)
    try:
        number = float(value)
    except OverflowError:
        raise InvalidParameter(
            f"{name} must be finite, got {value!r:.80}", parameter=name
        ) from None
    if not math.isfinite(number):
        raise InvalidParameter(f"{name} must be finite, got {number}", parameter=name)
    return number


def positive(**arguments: SupportsFloat) -> float:
    """Return the one argument as a finite float above 0."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0, got {value}", parameter=name)
    return number


def nonnegative(**arguments: SupportsFloat) -> float:
    """Return the one argument as a finite float of at least 0."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    if number < 0:
        raise InvalidParameter(f"{name} must be at least 0, got {value}", parameter=name)
    return number + 0.0  # -0.0 becomes 0.0


def probability(*, allow_zero: bool = True, **arguments: SupportsFloat) -> float:
    """Return the one argument as a float in [0, 1), or in (0, 1) when zero is not allowed."""
    ((name, value),) = arguments.items()
    number = finite(**arguments)
    refused_zero = number == 0 and not allow_zero
    if refused_zero or not 0 <= number < 1:
        bracket = "[" if allow_zero else "("
        raise InvalidParameter(f"{name} must be in {bracket}0, 1), got {value}", parameter=name)
    return number + 0.0  # -0.0 becomes 0.0


def count(
    *, at_least: int = 1, at_most: int | None = None, **arguments: SupportsIndex | None
) -> int:
    """Return the one argument as an int from ``at_least`` to ``at_most``; integral floats are
    refused.
    """
    ((name, value),) = arguments.items()
    if type(value) is int:  # the usual case, in a tenth of the time
        number = value
    elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise InvalidParameter(f"{name} must be an integer, got {value!r:.80}", parameter=name)
    else:
        number = int(value)
    if number < at_least:
        raise InvalidParameter(f"{name} must be at least {at_least}, got {number}", parameter=name)
    if at_most is not None and number > at_most:
        most = "2^62" if at_most == LARGEST else at_most
        raise InvalidParameter(f"{name} must be at most {most}, got {number}", parameter=name)
    return number


# Booleans, integers, floats, and objects that may be numbers. NumPy would make floats of complex
# numbers, times and texts as well: of the first it would keep the real parts alone.
KINDS_OF_NUMBERS = "biufO"


def nonnegatives(**arguments: ArrayLike) -> NDArray[np.float64]:
    """Return the one argument as an array of finite floats of at least 0."""
    return _array(arguments, _are_nonnegative, "finite and at least 0")


def probabilities(**arguments: ArrayLike) -> NDArray[np.float64]:
    """Return the one argument as an array of floats in [0, 1)."""
    return _array(arguments, _are_probabilities, "in [0, 1)")


def _are_nonnegative(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values are finite and at least 0."""
    return np.isfinite(values) & (values >= 0)


def _are_probabilities(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which values are in [0, 1)."""
    return (values >= 0) & (values < 1)


def _array(
    arguments: dict[str, Any],
    accept: Callable[[NDArray[np.float64]], NDArray[np.bool_]],
    range_in_words: str,
) -> NDArray[np.float64]:
    """Return the one argument as an array of floats, all of which ``accept`` accepts.

    Args:
        arguments: one entry, the argument under its name.
        accept: returns which values are in the range, in the shape of the array.
        range_in_words: the range in words, as the end of "must be ...".

    Raises:
        InvalidParameter: for what is no array of numbers, and for a value that is refused.
    """
    ((name, value),) = arguments.items()
    no_numbers = InvalidParameter(f"{name} must be an array of numbers", parameter=name)
    try:
        given = np.asarray(value)
    except ValueError:  # lists of different lengths
        raise no_numbers from None
    if given.dtype.kind not in KINDS_OF_NUMBERS:
        raise no_numbers
    try:
        values = given.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise no_numbers from None
    refused = values[~accept(values)]
    if refused.size:
        raise InvalidParameter(f"{name} must be {range_in_words}, got {refused[0]}", parameter=name)
    return values + 0.0  # -0.0 becomes 0.0


def member(choices: tuple[Word, ...], **arguments: Any) -> Word:
    """Return the one argument if it is one of these words, as it stands among them."""
    ((name, value),) = arguments.items()
    if isinstance(value, str):
        for choice in choices:
            if value == choice:
                return choice
    listed = ", ".join(repr(choice) if " " in choice else choice for choice in choices)
    raise InvalidParameter(f"{name} must be one of {listed}; got {value!r:.80}", parameter=name)


# What an argument of this name must be, in every dataclass that is validated as a whole.
RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(
        ("k", "d_bar", "days", "days_per_user", "days_apart", "shift", "labels"), count
    ),
    **dict.fromkeys(
        ("labels_per_user", "total_per_user", "threads", "times", "segments", "segments_per_user"),
        count,
    ),
    **dict.fromkeys(("linf", "l0", "l2", "l1"), partial(count, at_most=LARGEST)),
    **dict.fromkeys(
        ("epsilon", "sigma", "scale", "mu", "tau", "rho", "utility_range", "divergence"), positive
    ),
    **dict.fromkeys(("weight", "accuracy", "locked", "order", "first"), positive),
    "delta": partial(probability, allow_zero=False),
}


def parameters(dataclass_instance: Any, **rules: Callable[..., Any]) -> None:
    """Validate the fields of a frozen dataclass, in its ``__post_init__``: by these rules, else by
    those of RULES.

    None stays None where that is the default, or the annotation has it.
    """
    for field in fields(dataclass_instance):
        rule = rules.get(field.name) or RULES.get(field.name)
        value = getattr(dataclass_instance, field.name)
        may_be_none = field.default is None or "None" in str(field.type)
        if rule is not None and not (value is None and may_be_none):
            object.__setattr__(dataclass_instance, field.name, rule(**{field.name: value}))
