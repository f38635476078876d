"""Mechanisms by name: as JSON can hold them, and back."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from inspect import getmembers, isclass
from typing import Any, TypeVar

from dptopk import mechanisms
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.mechanism import Mechanism

Kind = TypeVar("Kind", bound=type[Mechanism])
# Also the classes of a mechanism's parts, which are not asked by themselves.
_KINDS: dict[str, type] = dict(getmembers(mechanisms, isclass))
_DESIGNS: list[Any] = []


def register(kind: Kind, *designs: Any) -> Kind:
    """Make a mechanism of your own known by its name: to ledgers, to the service and to plans.

    Args:
        kind: a frozen dataclass on top of ``dptopk.mechanisms.mechanism.Mechanism``.
        designs: ways in which a plan uses it: ``dptopk.planning.designs.Design``.

    Raises:
        InvalidParameter: for anything else, or a name that another mechanism has.
    """
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise InvalidParameter(
            "kind must be a class on top of dptopk.mechanisms.mechanism.Mechanism"
        )
    name = kind.__name__
    if _KINDS.setdefault(name, kind) is not kind:
        raise InvalidParameter(f"kind: another mechanism has the name {name}")
    _DESIGNS.extend(design for design in designs if design not in _DESIGNS)
    return kind


def names() -> tuple[str, ...]:
    """The names of all mechanisms."""
    return tuple(_KINDS)


def registered_designs() -> tuple[Any, ...]:
    """The designs that were registered with mechanisms."""
    return tuple(_DESIGNS)


def mechanism_of(plain: Mapping[str, Any]) -> Mechanism:
    """The mechanism that its ``to_dict`` wrote.

    Raises:
        InvalidParameter: when there is no mechanism of that name, or on parameters that it does not
        take.

    >>> mechanism_of({"name": "CountMLE", "noise": {"name": "KnownLaplace", "epsilon": 0.1}})
    CountMLE(noise=KnownLaplace(epsilon=0.1), shrink=True)
    """
    parts = dict(plain)
    name = parts.pop("name", None)
    if name not in names():
        raise InvalidParameter(f"mechanism: the name must be one of {', '.join(names())}")
    kind = _KINDS[name]
    if not issubclass(kind, Mechanism):
        raise InvalidParameter(f"mechanism: {name} is not asked by itself")
    try:
        values = {
            key: mechanism_of(value) if isinstance(value, Mapping) else value
            for key, value in parts.items()
        }
    except RecursionError:
        raise InvalidParameter("mechanism: one is nested too deeply") from None
    mechanism: Mechanism = kind.from_dict(values)
    return mechanism


def parse_mechanism(text: str) -> Mechanism:
    """The mechanism that a text such as "KnownLaplace(epsilon=0.5)" names; nothing in it is run.

    Raises:
        InvalidParameter: for any other text, or parameters that it does not take.

    >>> parse_mechanism("CountMLE(noise=KnownLaplace(epsilon=0.1))")
    CountMLE(noise=KnownLaplace(epsilon=0.1), shrink=True)
    """
    try:
        parts = _parts(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parts = None
    if not isinstance(parts, dict):
        raise InvalidParameter(
            'mechanism must be a name with parameters, such as "KnownLaplace(epsilon=0.5)"'
        )
    return mechanism_of(parts)


def _parts(node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.args:
        raise ValueError
    return {"name": node.func.id} | {str(each.arg): _parts(each.value) for each in node.keywords}
