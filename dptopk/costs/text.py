"""The reading of a charge from text, as str() or a person writes it.

Ambiguous text is refused, because reading a smaller cost than was meant is a privacy bug: an
unknown or repeated name, ``1,000`` or ``1_000`` for a thousand, a number that underflows to 0.
Reading takes linear time.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import TypedDict

from dptopk._internal.choices import NEIGHBOURS, Neighbours
from dptopk._internal.rounding import sum_up
from dptopk.costs.types import COST_TYPES, ApproxDP, Cost, MultiDP, PureDP
from dptopk.errors import InvalidParameter


def _spellings() -> dict[str, type[Cost]]:
    """Return the cost types by all their names, in lower case."""
    types: dict[str, type[Cost]] = {}
    for cost_type in COST_TYPES:
        for spelling in (cost_type.__name__, cost_type.symbol, *cost_type.spellings):
            types[spelling.lower()] = cost_type
    return types


_SPELLINGS = _spellings()
_CHARGE = re.compile(r"(?P<terms>[^\[\]]*)(?:\[(?P<flags>[^\[\]]*)\]\s*)?")
_TERM = re.compile(
    r"\s*(?:(?P<times>[0-9]{1,4000})\s*\*\s*)?(?P<name>[A-Za-z_]+)\s*\((?P<arguments>[^()]*)\)\s*"
)
_PARAMETER = re.compile(r"\s*(?:(?P<name>[A-Za-z_]+)\s*=)?(?P<value>[^=]*)")
# No leading zeros: in "1,000" the 000 is not a number of its own.
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\s*"
)
_QUOTED_LENGTH = 60  # the most characters of a text that a message repeats
_LARGEST_POWER = 300  # of 10, in a whole number: it is a float too


class ChargeArguments(TypedDict):
    """The arguments of a Charge."""

    costs: dict[Cost, int]
    delta: float
    adaptive: bool
    neighbours: Neighbours


def read_charge(text: str) -> ChargeArguments:
    """Return the arguments of the Charge that a text stands for.

    Raises:
        InvalidParameter: when the text cannot be read, or a parameter is outside its range.
    """
    charge = _CHARGE.fullmatch(text) if isinstance(text, str) else None
    if charge is None:
        raise InvalidParameter(
            "charge must be text such as '25*BR(0.1) + DP(0.3)', "
            f"got {str(text)[:_QUOTED_LENGTH]!r}"
        )
    costs: dict[Cost, int] = {}
    deltas: dict[float, int] = {}
    for match in _terms(charge["terms"]):
        term = match[0].strip()
        times = int(match["times"] or 1)
        if match["name"].lower() == "delta":
            delta = _read_number(match["arguments"], term)
            deltas[delta] = deltas.get(delta, 0) + times
        else:
            cost = _cost_of_term(match["name"], match["arguments"], term)
            costs[cost] = costs.get(cost, 0) + times
    adaptive, neighbours = _read_flags(charge["flags"] or "")
    return {
        "costs": costs,
        "delta": sum_up(deltas),
        "adaptive": adaptive,
        "neighbours": neighbours,
    }


def _cost_of_term(name: str, arguments: str, term: str) -> Cost:
    """Return the cost of a term, as ``_read_cost`` does, with errors that name the term.

    Args:
        name: a symbol of a cost or another of its spellings, in either case.
        arguments: the text between its parentheses.
        term: the text of the whole term, for messages.

    Raises:
        InvalidParameter: when it cannot be read, or a parameter is outside its range; it names the
            term.
    """
    try:
        return _read_cost(name, arguments, term)
    except InvalidParameter as error:
        # Errors of reading name the term already, those of the cost's own checks do not.
        if str(error).startswith("charge"):
            raise InvalidParameter(str(error)) from None
        raise InvalidParameter(f"charge: {term[:_QUOTED_LENGTH]!r}: {error}") from None


def _read_flags(text: str) -> tuple[bool, Neighbours]:
    """Return whether a charge is adaptive, and its neighbour relation, given its flags without
    the brackets.

    Raises:
        InvalidParameter: for an unknown flag, and for two neighbour relations.
    """
    flags = {flag.strip() for flag in text.split(",")} - {""}
    relations = [relation for relation in NEIGHBOURS if relation in flags]
    if flags - {"adaptive", *relations} or len(relations) > 1:
        raise InvalidParameter(
            f"charge: unknown flags [{text}]; known: adaptive, {', '.join(NEIGHBOURS)}"
        )
    neighbours = relations[0] if relations else "add_remove"
    return "adaptive" in flags, neighbours


def _terms(text: str) -> list[re.Match[str]]:
    """Return the matches of the terms between the plus signs; '0' alone and '' have none.

    Raises:
        InvalidParameter: at the first term that cannot be read.
    """
    terms: list[re.Match[str]] = []
    if text.strip() in {"", "0"}:
        return terms
    at = 0
    while True:
        match = _TERM.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in {"", "+"}:
            shown = text[at : at + _QUOTED_LENGTH].strip()
            raise InvalidParameter(
                f"charge: cannot read the term at {shown!r}; write terms as 25*BR(0.1)"
            )
        terms.append(match)
        if match.end() == len(text):
            return terms
        at = match.end() + 1  # after the plus sign


def _read_number(text: str, term: str) -> float:
    """Return the number that a text stands for; ``term`` is named in errors.

    Raises:
        InvalidParameter: for another text, or a number that would be read as 0.
    """
    shown = f"charge: {text.strip()[:_QUOTED_LENGTH]!r} in {term[:_QUOTED_LENGTH]!r}"
    if not _NUMBER.fullmatch(text):
        raise InvalidParameter(f"{shown} is not a number")
    number = float(text)
    if number == 0 and Decimal(text.strip()) != 0:
        raise InvalidParameter(f"{shown} is too small: it would be read as 0")
    return number


def _read_whole_number(text: str, term: str) -> int:
    """Return the integer that a text stands for; ``term`` is named in errors.

    Raises:
        InvalidParameter: for another text, a fraction, or a number above 10^300.
    """
    _read_number(text, term)
    exact = Decimal(text.strip())
    if exact != exact.to_integral_value() or exact.adjusted() > _LARGEST_POWER:
        raise InvalidParameter(
            f"charge: {text.strip()[:_QUOTED_LENGTH]!r} in {term[:_QUOTED_LENGTH]!r} "
            "must be an integer"
        )
    return int(exact)


def _read_cost(name: str, arguments: str, term: str) -> Cost:
    """Return the cost with this name and these arguments between its parentheses.

    Args:
        name: a symbol of a cost or another of its spellings, in either case.
        arguments: the text between its parentheses.
        term: the text of the whole term, for messages.

    Raises:
        InvalidParameter: for an unknown name, arguments that cannot be read, or a parameter outside
            its range.
    """
    cost_type = _SPELLINGS.get(name.lower())
    if cost_type is None:
        known = ", ".join(known.symbol for known in COST_TYPES)
        raise InvalidParameter(
            f"charge: unknown cost {name!r} in {term[:_QUOTED_LENGTH]!r}; known: {known}"
        )
    parts = arguments.split(",")
    if cost_type is MultiDP:
        return MultiDP([_read_pair(part, term) for part in parts])  # type: ignore[arg-type]
    if cost_type is PureDP and len(parts) == 2:
        cost_type = ApproxDP
    return cost_type(**_parameters(cost_type, parts, term))


def _parameter_error(name: str | None, term: str, names: list[str]) -> InvalidParameter:
    """Return the error for a parameter that is unknown or repeated, or that has no name but comes
    after one with a name.

    Args:
        name: the parameter's name; None: it has none.
        term: the text of the cost.
        names: of all parameters of the cost.
    """
    if name:
        reason = f"{name!r} is unknown or repeated"
    else:
        reason = "a parameter without a name after one with a name"
    return InvalidParameter(
        f"charge: {reason} in {term[:_QUOTED_LENGTH]!r}; the parameters are {', '.join(names)}"
    )


def _read_pair(text: str, term: str) -> tuple[float, ...]:
    """Return the numbers of a pair "ε:δ"; ``MultiDP`` refuses what has more or fewer than two
    numbers.

    Args:
        text: the pair.
        term: the text of the whole cost, for messages.
    """
    return tuple(_read_number(number, term) for number in text.split(":"))


def _parameters(cost_type: type[Cost], parts: list[str], term: str) -> dict[str, float]:
    """Return the parameters of a cost by name.

    Args:
        cost_type: the type of the cost.
        parts: ``value``, for parameters in their order, or ``name=value``, after these.
        term: the text of the cost, which errors name.

    Raises:
        InvalidParameter: for unknown, repeated or missing parameters.
    """
    known = {field.name: field for field in fields(cost_type)}
    names = list(known)
    parameters: dict[str, float] = {}
    by_position = True  # until the first parameter with a name
    for place, part in enumerate(parts):
        match = _PARAMETER.fullmatch(part)
        if match is None or place >= len(names):
            raise InvalidParameter(
                f"charge: cannot read the parameters of {term[:_QUOTED_LENGTH]!r}; they are "
                f"{', '.join(names)}"
            )
        name = match["name"]
        if name is not None:
            by_position = False
        elif by_position:
            name = names[place]
        if name not in known or name in parameters:
            raise _parameter_error(name, term, names)
        # Types of fields are texts, since annotations are not evaluated.
        read = _read_whole_number if known[name].type == "int" else _read_number
        parameters[name] = read(match["value"], term)
    missing = [
        name for name, field in known.items() if field.default is MISSING and name not in parameters
    ]
    if missing:
        raise InvalidParameter(f"charge: {', '.join(missing)} missing in {term[:_QUOTED_LENGTH]!r}")
    return parameters
