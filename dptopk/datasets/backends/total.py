"""Makes the Ibis expressions of a caller total: each row gives a value or NULL, and no value fails
the query.

A cast that fails, a division by zero or an overflow in one user's row would decide whether there is
an answer for all. Operations that never fail stay as they are; of the others each engine knows what
to write instead, and what it cannot write is refused by name, before a row is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import UUID

from dptopk.datasets.backends.base import Backend
from dptopk.datasets.backends.rowwise import TABLES
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.datatypes as dt
    import ibis.expr.operations as ops
    import ibis.expr.types as ir

# A number in one row can make their texts fill the memory: no engine may run them.
GROWING = frozenset(("Repeat", "LPad", "RPad"))
# Whatever their values are, these have a value or NULL.
_PLAIN = frozenset((
    "Literal", "ScalarParameter", "E", "Pi", "Field", "Alias", "TryCast", "TypeOf", "IsNull",
    "NotNull", "Not", "And", "Or", "Xor", "IsNan", "IsInf", "Sign", "Hash", "HashBytes",
    "HexDigest", "StructField", "Uppercase", "Lowercase", "Reverse", "Strip", "LStrip", "RStrip",
    "Capitalize", "StringContains", "StartsWith", "EndsWith", "StringLength", "StringConcat",
    "StringReplace", "StringFind", "Translate",
))  # fmt: skip
# These compare or choose among values, of which the engine converts some if their types differ.
_CHOOSING = frozenset((
    "Equals", "NotEquals", "Greater", "GreaterEqual", "Less", "LessEqual", "IdenticalTo",
    "Between", "InValues", "NullIf", "Coalesce", "Greatest", "Least", "IfElse", "SimpleCase",
    "SearchedCase", "Clip",
))  # fmt: skip
# With a constant pattern these are total; an escape at its end fails when a row meets it.
_PATTERNS = frozenset(("StringSQLLike", "StringSQLILike", "RegexSearch", "RegexReplace"))
_REGULAR = frozenset(("RegexSearch", "RegexReplace"))
# Counts, groups with marks, brackets within brackets, and repetition of a repetition or an anchor.
_SPECIAL = re.compile(r"[{}]|\(\?|\[\^?\]|\[[^]]*\[|[*+?]{2}|[\^$|(][*+?]")
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
# Of a type of column: whether it is one, and how every engine reads a constant text as its value.
_SPELT: tuple[tuple[Callable[[dt.DataType], bool], re.Pattern[str], Callable[[str], object]], ...]
_SPELT = (
    (lambda kind: kind.is_date(), re.compile(_DAY), date.fromisoformat),
    (
        lambda kind: kind.is_timestamp(),
        re.compile(f"{_DAY}([ T]{_CLOCK})?"),
        datetime.fromisoformat,
    ),
    (lambda kind: kind.is_time(), re.compile(_CLOCK), time.fromisoformat),
    (lambda kind: kind.is_uuid(), re.compile("[0-9a-fA-F-]{36}"), UUID),
)


def total(argument: str, expression: ir.Expr, backend: Backend) -> ir.Expr:
    """Return the expression with NULL for each value that an operation of it would fail on.

    NaN in a column of the tables it reads is NULL too: statistics of a Parquet file leave NaN out,
    so that an engine that reads them would take NaN for a number or leave its row out, by what the
    others' rows hold.

    Args:
        argument: whose expression it is.
        expression: an Ibis table or column that looks at one row at a time.
        backend: of the engine that holds the table.

    Raises:
        InvalidParameter: when an operation may fail for a value and the engine has no way to give
            NULL instead; it names the operation.
    """
    import ibis.expr.operations as ops

    def replace_node(node: ops.Node, changed: Mapping[str, ops.Node] | None) -> ops.Node:
        """Return a node, with its changed inputs, in a form that fails for no value."""
        rewritten = node.__recreate__(changed) if changed else node
        if isinstance(node, ops.Relation):
            return _without_nan(rewritten, backend)
        if not isinstance(node, ops.Value) or never_fails(rewritten):
            return rewritten
        replacement = None if backend.total is None else backend.total(rewritten)
        if replacement is None:
            raise InvalidParameter(
                f"{argument}: {type(node).__name__} may fail for the value of one row, which "
                f"would decide whether there is an answer, and {backend.name} has no form of it "
                f"that gives NULL; make the column in the table first"
            )
        return replacement.op()

    return expression.op().replace(replace_node).to_expr()


def _without_nan(relation: ops.Relation, backend: Backend) -> ops.Relation:
    """Return the table with NULL for NaN; other relations stay as they are."""
    if type(relation).__name__ not in TABLES:
        return relation
    table = relation.to_expr()
    floating_columns = [name for name, kind in table.schema().items() if kind.is_floating()]
    if not floating_columns:
        return relation
    numbers = {name: _number_or_null(table[name], backend.nan) for name in floating_columns}
    return table.mutate(**numbers).op()


def _number_or_null(
    column: ir.FloatingColumn, nan: Callable[[ir.FloatingColumn], ir.BooleanValue]
) -> ir.FloatingColumn:
    """Return a column with NULL for NaN; ``nan`` asks the engine which numbers are NaN."""
    import ibis

    return ibis.ifelse(nan(column), ibis.null(column.type()), column)


def never_fails(operation: ops.Value) -> bool:
    """Return whether an operation on one row has a value or NULL on every engine, whatever the
    values.
    """
    name = type(operation).__name__
    if name in _PLAIN:
        return True
    if name in _CHOOSING:
        return _has_one_kind(operation)
    if name in _PATTERNS:
        return _has_constant_pattern(operation)
    if name == "Cast":
        return _widens(operation.arg.dtype, operation.to)
    if name in ("Substring", "StrRight"):
        return _has_constant_places(operation)
    return name in ("Abs", "Negate") and operation.arg.dtype.is_floating()


def _has_one_kind(operation: ops.Value) -> bool:
    """Return whether the arguments are of one kind, so that the engine converts none that may not
    fit.
    """
    return all(map(_are_of_one_kind, _argument_groups(operation)))


def _argument_groups(operation: ops.Value) -> list[tuple[ops.Value, ...]]:
    """Return the arguments of an operation in groups, of which the engine brings each to one type:
    what is compared, and what is chosen among.
    """
    name = type(operation).__name__
    if name == "IfElse":
        return [(operation.true_expr, operation.false_null_expr)]
    if name == "SearchedCase":
        return [(*operation.results, operation.default)]
    if name == "SimpleCase":
        comparands = (operation.base, *operation.cases)
        return [comparands, (*operation.results, operation.default)]
    return [tuple(operation.__children__)]


def _are_of_one_kind(values: tuple[ops.Value, ...]) -> bool:
    """Return whether values that the engine brings to one type are of one kind."""
    import ibis.expr.operations as ops

    constants = {value for value in values if isinstance(value, ops.Literal)}
    types = {value.dtype for value in values if value not in constants}
    if len({_kind(kind) for kind in types} - {"boolean", "null"}) > 1:
        return False
    return all(_is_comparable(constant, kind) for constant in constants for kind in types)


def _is_comparable(constant: ops.Literal, kind: dt.DataType) -> bool:
    """Return whether a constant can be compared with each value of a type, without an error."""
    if constant.dtype.is_string():
        return _spells(constant.value, kind)
    constant_type = constant.dtype
    if constant_type.is_null() or kind.is_null():
        return True
    if constant_type.is_decimal():
        return kind.is_decimal() and _has_room(constant.value, kind)
    return _class(constant_type) == _class(kind)


def _has_room(number: Decimal, kind: dt.Decimal) -> bool:
    """Return whether a type of decimals has as many digits before the point as a number."""
    if kind.precision is None or kind.scale is None:
        return True
    return number.is_finite() and abs(number) < Decimal(10) ** (kind.precision - kind.scale)


def _class(kind: dt.DataType) -> str:
    """Return the name of the types of which an engine compares all values with a constant of one.

    With a constant of another class it would convert each value, such as a text to a date.
    """
    if kind.is_numeric() or kind.is_boolean():
        return "number"
    if kind.is_date() or kind.is_timestamp():
        return "moment"
    return _kind(kind)


def _spells(text: str | None, kind: dt.DataType) -> bool:
    """Return whether every engine takes a constant text for a value of a type. Another text fails
    where a row is compared with it, and not where there is no such row.
    """
    if text is None or kind.is_string() or kind.is_null():
        return True
    for is_of_kind, pattern, read in _SPELT:
        if is_of_kind(kind) and pattern.fullmatch(text):
            try:
                read(text)
            except ValueError:
                return False
            return True
    return False


def _kind(kind: dt.DataType) -> str:
    """Return the name of a group of types that engines compare without a conversion that can fail.

    Decimals are a group for each number of digits: an integer of 64 bits does not fit most of them.
    """
    if kind.is_integer() or kind.is_floating():
        return "number"
    if kind.is_null():
        return "null"
    return str(kind.copy(nullable=True))


def _widens(source: dt.DataType, target: dt.DataType) -> bool:
    """Return whether a cast has a value for every value of the type ``source``."""
    if source.copy(nullable=True) == target.copy(nullable=True) or target.is_string():
        return not (source.is_binary() or source.is_nested() or source.is_json())
    if source.is_boolean() and target.is_integer():
        return True
    if source.is_integer() and target.is_integer():
        return bool(source.bounds.lower >= target.bounds.lower) and bool(
            source.bounds.upper <= target.bounds.upper
        )
    return target.is_float64() and (source.is_integer() or source.is_floating())


def _has_constant_pattern(operation: ops.Value) -> bool:
    """Return whether the pattern of a text search is a constant without escapes, which may be
    invalid.
    """
    import ibis.expr.operations as ops

    pattern = operation.pattern
    if not isinstance(pattern, ops.Literal) or "\\" in pattern.value:
        return False
    return type(operation).__name__ not in _REGULAR or _is_regular(pattern.value)


def _is_regular(pattern: str) -> bool:
    """Return whether a pattern is a regular expression for Python, and none of what engines differ
    in: one that an engine refuses fails where a row has a value, and not where there is no such
    row.
    """
    if _SPECIAL.search(pattern):
        return False
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _has_constant_places(operation: ops.Value) -> bool:
    """Return whether the places in a text are constants that are not negative."""
    return all(place is None or _is_natural(place) for place in operation.args[1:])


def _is_natural(place: ops.Node) -> bool:
    """Return whether a place is a constant integer of at least 0."""
    import ibis.expr.operations as ops

    return isinstance(place, ops.Literal) and place.value is not None and place.value >= 0


def try_cast_of(operation: ops.Cast) -> ir.Value:
    """Return the cast in a form that gives NULL where it fails."""
    return operation.arg.to_expr().try_cast(operation.to)


def null_where_unfit(operation: ops.Value, fits: Callable[[ir.Value], ir.BooleanValue]) -> ir.Value:
    """Return the operation with NULL for its first argument where that does not fit.

    Args:
        operation: of one row.
        fits: takes that argument, gives a condition.
    """
    import ibis

    argument = operation.args[0].to_expr()
    fitting = ibis.ifelse(fits(argument), argument, ibis.null(argument.type()))
    return operation.copy(**{operation.argnames[0]: fitting.op()}).to_expr()


def rounding_below_limit(operation: ops.Value) -> ir.Value | None:
    """Return a rounding of floating-point numbers with NULL for those of 2^53 and more; None for
    other operations.
    """
    if not operation.args[0].dtype.is_floating():
        return None
    return null_where_unfit(operation, lambda number: number.abs() < 2.0**53)


def null_by_zero(operation: ops.NumericBinary) -> ir.Value | None:
    """Return a division or remainder of integers that is NULL where the divisor is 0; None for
    other numbers.
    """
    left = operation.left
    right = operation.right
    if not (left.dtype.is_integer() and right.dtype.is_integer()):
        return None
    return operation.copy(right=right.to_expr().nullif(0).op()).to_expr()


def replacement_in(
    table: Mapping[str, Callable[..., ir.Value | None]], operation: ops.Value
) -> ir.Value | None:
    """Return what an engine's table writes instead of an operation that may fail; None if it has
    nothing for that operation.
    """
    safe = table.get(type(operation).__name__)
    if safe is None:
        return None
    return safe(operation)


def is_extraction(operation: ops.Value) -> bool:
    """Return whether the operation gives a field of a date or time, such as its year."""
    import ibis.expr.operations as ops

    return isinstance(operation, ops.ExtractTemporalField | ops.DayOfWeekIndex)
