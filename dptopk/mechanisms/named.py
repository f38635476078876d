"""The registry of mechanisms by name, and the reading of mechanisms from JSON and from text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from inspect import getmembers, isclass
from typing import Any, TypeVar

from dptopk import mechanisms
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.mechanism import Mechanism

Kind = TypeVar("Kind", bound=type[Mechanism])
# ContinualTopK is among them, which answers a stream of days and is no ``Mechanism``.
_KINDS: dict[str, type] = dict(getmembers(mechanisms, isclass))
# The planning designs that were registered with mechanisms, in that order.
OTHER_DESIGNS: list[Any] = []


def register(kind: Kind, *designs: Any) -> Kind:
    """Register a mechanism of your own under its class name, so that ledgers, the service and
    plans know it; return the class.

    Args:
        kind: a frozen dataclass that derives from ``dptopk.mechanisms.mechanism.Mechanism``.
        designs: ways in which a plan uses it: ``dptopk.planning.designs.Design``.

    Raises:
        InvalidParameter: for any other class, or a name that another mechanism has.
    """
    if not (isinstance(kind, type) and issubclass(kind, Mechanism)):
        raise InvalidParameter(
            "kind must be a class on top of dptopk.mechanisms.mechanism.Mechanism"
        )
    name = kind.__name__
    if _KINDS.setdefault(name, kind) is not kind:
        raise InvalidParameter(f"kind: another mechanism has the name {name}")
    OTHER_DESIGNS.extend(design for design in designs if design not in OTHER_DESIGNS)
    return kind


def names() -> tuple[str, ...]:
    """Return the class names of all mechanisms, those registered by other packages last; one of
    them, ContinualTopK, answers a stream of days and cannot be read by ``mechanism_of``.
    """
    return tuple(_KINDS)


def mechanism_of(plain: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism that ``Mechanism.to_dict`` wrote as ``plain``: its class name as "name"
    and its parameters, of which one that is a mechanism is written in the same way.

    Raises:
        InvalidParameter: when there is no mechanism of that name, or for parameters that it does
            not take.

    >>> mechanism_of({"name": "CountMLE", "noise": {"name": "KnownLaplace", "epsilon": 0.1}})
    CountMLE(noise=KnownLaplace(epsilon=0.1), shrink=True)
    """
    parameters = dict(plain)
    name = parameters.pop("name", None)
    if name not in names():
        raise InvalidParameter(f"mechanism: the name must be one of {', '.join(names())}")
    kind = _KINDS[name]
    if not issubclass(kind, Mechanism):
        raise InvalidParameter(f"mechanism: {name} does not answer a single histogram")
    try:
        values = {key: _parameter_from_plain(value) for key, value in parameters.items()}
    except RecursionError:
        raise InvalidParameter("mechanism: one is nested too deeply") from None
    mechanism: Mechanism = kind.from_dict(values)
    return mechanism


def _parameter_from_plain(plain: object) -> object:
    """Return the mechanism that a nested mapping stands for, as ``mechanism_of`` reads it; any
    other value as it is.
    """
    if isinstance(plain, Mapping):
        return mechanism_of(plain)
    return plain


def parse_mechanism(text: str) -> Mechanism:
    """Return the mechanism that a text such as "KnownLaplace(epsilon=0.5)" describes.

    The text is parsed, never executed.

    Raises:
        InvalidParameter: for any other text, or for parameters that the mechanism does not take.

    >>> parse_mechanism("CountMLE(noise=KnownLaplace(epsilon=0.1))")
    CountMLE(noise=KnownLaplace(epsilon=0.1), shrink=True)
    """
    try:
        plain = _plain_value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        plain = None
    if not isinstance(plain, dict):
        raise InvalidParameter(
            'mechanism must be a name with parameters, such as "KnownLaplace(epsilon=0.5)"'
        )
    return mechanism_of(plain)


def _plain_value(node: ast.expr) -> Any:
    """Return the value of a parsed literal, and for a call ``Name(key=...)`` the dictionary that
    ``mechanism_of`` reads: "name" and the keyword arguments.

    Raises:
        ValueError: for any other expression.
    """
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    if not isinstance(node.func, ast.Name) or node.args:
        raise ValueError
    parameters = {str(keyword.arg): _plain_value(keyword.value) for keyword in node.keywords}
    return {"name": node.func.id, **parameters}
