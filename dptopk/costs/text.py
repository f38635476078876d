"""Reading a charge from text: what str() writes, and what people write by hand.

Everything ambiguous is refused, because a cost that is read as a smaller one is a privacy bug: an
unknown or repeated name, ``1,000`` or ``1_000`` for a thousand, a number that underflows to 0. Time
is linear.
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

# Spellings of the cost types, in lower case.
_SPELLINGS: dict[str, type[Cost]] = {
    spelling.lower(): cost_type
    for cost_type in COST_TYPES
    for spelling in (cost_type.__name__, cost_type.symbol, *cost_type.spellings)
}
_WHOLE = re.compile(r"(?P<terms>[^\[\]]*)(?:\[(?P<flags>[^\[\]]*)\]\s*)?")
_TERM = re.compile(
    r"\s*(?:(?P<times>[0-9]{1,4000})\s*\*\s*)?(?P<name>[A-Za-z_]+)\s*\((?P<arguments>[^()]*)\)\s*"
)
_NAMED = re.compile(r"\s*(?:(?P<name>[A-Za-z_]+)\s*=)?(?P<value>[^=]*)")
# No leading zeros: in "1,000" the 000 is not a number of its own.
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?\s*"
)
_SHOWN = 60  # characters of the text that a message repeats


class ChargeArguments(TypedDict):
    """The arguments of a Charge."""

    costs: dict[Cost, int]
    delta: float
    adaptive: bool
    neighbours: Neighbours


def read_charge(text: str) -> ChargeArguments:
    """The arguments of the Charge that a text stands for."""
    whole = _WHOLE.fullmatch(text) if isinstance(text, str) else None
    if whole is None:
        raise InvalidParameter(
            f"charge must be text such as '25*BR(0.1) + DP(0.3)', got {str(text)[:_SHOWN]!r}"
        )
    costs: dict[Cost, int] = {}
    deltas: dict[float, int] = {}
    for match in _terms(whole["terms"]):
        term = match[0].strip()
        times = int(match["times"] or 1)
        if match["name"].lower() == "delta":
            delta = _number(match["arguments"], term)
            deltas[delta] = deltas.get(delta, 0) + times
        else:
            try:
                cost = _read_cost(match["name"], match["arguments"], term)
            except InvalidParameter as error:
                if str(error).startswith("charge"):
                    raise InvalidParameter(str(error)) from None
                raise InvalidParameter(f"charge: {term[:_SHOWN]!r}: {error}") from None
            costs[cost] = costs.get(cost, 0) + times
    adaptive, neighbours = _read_flags(whole["flags"] or "")
    return {
        "costs": costs,
        "delta": sum_up(deltas),
        "adaptive": adaptive,
        "neighbours": neighbours,
    }


def _read_flags(text: str) -> tuple[bool, Neighbours]:
    """Whether a charge is adaptive, and its relation of neighbours."""
    flags = {flag.strip() for flag in text.split(",")} - {""}
    relations = [relation for relation in NEIGHBOURS if relation in flags]
    if flags - {"adaptive", *relations} or len(relations) > 1:
        raise InvalidParameter(
            f"charge: unknown flags [{text}]; known: adaptive, {', '.join(NEIGHBOURS)}"
        )
    return "adaptive" in flags, relations[0] if relations else "add_remove"


def _terms(text: str) -> list[re.Match[str]]:
    """The terms between the plus signs; '0' alone and '' are the empty charge."""
    found: list[re.Match[str]] = []
    at = 0
    while text.strip() not in {"", "0"}:
        match = _TERM.match(text, at)
        if match is None or text[match.end() : match.end() + 1] not in {"", "+"}:
            shown = text[at : at + _SHOWN].strip()
            raise InvalidParameter(
                f"charge: cannot read the term at {shown!r}; write terms as 25*BR(0.1)"
            )
        found.append(match)
        if match.end() == len(text):
            break
        at = match.end() + 1
    return found


def _number(text: str, term: str) -> float:
    shown = f"charge: {text.strip()[:_SHOWN]!r} in {term[:_SHOWN]!r}"
    if not _NUMBER.fullmatch(text):
        raise InvalidParameter(f"{shown} is not a number")
    number = float(text)
    if number == 0 and Decimal(text.strip()) != 0:
        raise InvalidParameter(f"{shown} is too small: it would be read as 0")
    return number


def _whole_number(text: str, term: str) -> int:
    _number(text, term)
    exact = Decimal(text.strip())
    if exact != exact.to_integral_value() or exact.adjusted() > 300:
        raise InvalidParameter(
            f"charge: {text.strip()[:_SHOWN]!r} in {term[:_SHOWN]!r} must be an integer"
        )
    return int(exact)


def _read_cost(name: str, arguments: str, term: str) -> Cost:
    cost_type = _SPELLINGS.get(name.lower())
    if cost_type is None:
        known = ", ".join(known.symbol for known in COST_TYPES)
        raise InvalidParameter(
            f"charge: unknown cost {name!r} in {term[:_SHOWN]!r}; known: {known}"
        )
    parts = arguments.split(",")
    if cost_type is MultiDP:
        pairs = [tuple(_number(number, term) for number in part.split(":")) for part in parts]
        return MultiDP(pairs)  # type: ignore[arg-type]
    if cost_type is PureDP and len(parts) == 2:
        cost_type = ApproxDP
    return cost_type(**_parameters(cost_type, parts, term))


def _parameters(cost_type: type[Cost], parts: list[str], term: str) -> dict[str, float]:
    """The parameters of a cost by name: ``name=value``, or by position before any that is named."""
    known = {field.name: field for field in fields(cost_type)}
    found: dict[str, float] = {}
    in_order = True
    listed = ", ".join(known)
    for place, part in enumerate(parts):
        match = _NAMED.fullmatch(part)
        if match is None or place >= len(known):
            raise InvalidParameter(
                f"charge: cannot read the parameters of {term[:_SHOWN]!r}; they are {listed}"
            )
        in_order = in_order and match["name"] is None
        name = match["name"] or (list(known)[place] if in_order else "")
        if name not in known or name in found:
            if name:
                what = f"{name!r} is unknown or repeated"
            else:
                what = "a parameter without a name after one with a name"
            raise InvalidParameter(
                f"charge: {what} in {term[:_SHOWN]!r}; the parameters are {listed}"
            )
        read = _whole_number if known[name].type == "int" else _number
        found[name] = read(match["value"], term)
    missing = [
        name for name, field in known.items() if name not in found and field.default is MISSING
    ]
    if missing:
        raise InvalidParameter(f"charge: {', '.join(missing)} missing in {term[:_SHOWN]!r}")
    return found
