"""Mechanisms by name: as JSON can hold them, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from dptopk import mechanisms
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.base import Mechanism

NAMES: tuple[str, ...] = tuple(dir(mechanisms))


def named(mechanism: Mechanism) -> dict[str, Any]:
    """A mechanism as a dictionary of its name and its parameters, for JSON; ``mechanism_of`` reads it.

    >>> from dptopk import KnownLaplace
    >>> named(KnownLaplace(epsilon=0.1))
    {'name': 'KnownLaplace', 'epsilon': 0.1}
    """
    if isinstance(mechanism, type) or not isinstance(mechanism, Mechanism):
        raise InvalidParameter("mechanism must be one of dptopk.mechanisms")
    plain: dict[str, Any] = _plain(mechanism)
    return plain


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__} | {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def mechanism_of(plain: Mapping[str, Any]) -> Mechanism:
    """The mechanism that ``named`` wrote.

    Raises:
        InvalidParameter: when there is no mechanism of that name, or on parameters that it does not take.

    >>> mechanism_of({"name": "CountMLE", "noise": {"name": "KnownLaplace", "epsilon": 0.1}})
    CountMLE(noise=KnownLaplace(epsilon=0.1), shrink=True)
    """
    parts = dict(plain)
    name = parts.pop("name", None)
    if name not in NAMES:
        raise InvalidParameter(f"mechanism: the name must be one of {', '.join(NAMES)}")
    kind = getattr(mechanisms, name)
    taken = {part.name for part in fields(kind) if part.init}
    if not parts.keys() <= taken:
        raise InvalidParameter(f"mechanism: {name} takes {', '.join(sorted(taken))}")
    try:
        values = {key: mechanism_of(value) if isinstance(value, Mapping) else value for key, value in parts.items()}
        made: Mechanism = kind(**values)
    except RecursionError:
        raise InvalidParameter("mechanism: one is not made of so many others") from None
    except TypeError:  # of a parameter that is missing; its text would quote none, but names the constructor
        raise InvalidParameter(f"mechanism: {name} needs more of {', '.join(sorted(taken))}") from None
    return made
