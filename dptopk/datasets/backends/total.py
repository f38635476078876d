"""Makes the Ibis expressions of a caller total: each row gives a value or NULL, and no value fails
the query.

A cast that fails, a division by zero or an overflow in one user's row would decide whether there is
an answer for all. Operations that never fail stay as they are; of the others each engine knows what
to write instead, and what it cannot write is refused by name, before a row is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
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
    "Literal", "ScalarParameter", "E", "Pi", "Field", "Alias", "TypeOf", "IsNull", "NotNull",
    "Not", "And", "Or", "Xor", "IsNan", "IsInf", "Sign", "Hash", "HashBytes", "HexDigest",
    "StructField", "Uppercase", "Lowercase", "Reverse", "Strip", "LStrip", "RStrip", "Capitalize",
    "StringContains", "StartsWith", "EndsWith", "StringLength", "StringConcat", "StringReplace",
    "StringFind", "Translate",
))  # fmt: skip
# These compare values or choose among values; the engine converts some if their types differ.
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
# Years of which every moment fits 64 bits of nanoseconds.
_YEARS_OF_NANOSECONDS = range(1678, 2262)
# How engines write a constant of decimal type: DuckDB with 15 digits before the point, Spark with
# 18 after it.
_WHOLE_DIGITS = 15
_PLACES = 18
_INTEGER_DIGITS = 20  # of 64 bits
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"


@dataclass(frozen=True)
class _Spelling:
    """How every engine reads a constant text beside a column of some type.

    Attributes:
        is_of_kind: whether a type of column is the one that this is about.
        pattern: the texts that engines read alike.
        value_of: the function from such a text to its value; it raises ValueError for a text that
            has none, such as a 31st of February.
    """

    is_of_kind: Callable[[dt.DataType], bool]
    pattern: re.Pattern[str]
    value_of: Callable[[str], Any]


_SPELLINGS = (
    _Spelling(lambda kind: kind.is_date(), re.compile(_DAY), date.fromisoformat),
    _Spelling(
        lambda kind: kind.is_timestamp(),
        re.compile(f"{_DAY}([ T]{_CLOCK})?"),
        datetime.fromisoformat,
    ),
    _Spelling(lambda kind: kind.is_time(), re.compile(_CLOCK), time.fromisoformat),
    _Spelling(lambda kind: kind.is_uuid(), re.compile("[0-9a-fA-F-]{36}"), UUID),
)


def total_expression(argument: str, expression: ir.Expr, backend: Backend) -> ir.Expr:
    """Return the expression with NULL for each value that an operation of it would fail on.

    NaN in a column of the tables it reads is NULL too: statistics of a Parquet file leave NaN out,
    so that an engine that reads them would take NaN for a number or leave its row out, by what the
    others' rows hold. So are decimals of more digits than their type has, on an engine that fails
    on them.

    Args:
        argument: the argument whose expression it is, for messages.
        expression: an Ibis table or column that looks at one row at a time.
        backend: what the engine that holds the table does in its own way.

    Raises:
        InvalidParameter: when an operation may fail for a value and the engine has no way to give
            NULL instead; it names the operation.
    """
    import ibis.expr.operations as ops

    def replace_node(node: ops.Node, changed: Mapping[str, ops.Node] | None) -> ops.Node:
        """Return a node, with its changed inputs, in a form that fails for no value."""
        rewritten = node.__recreate__(changed) if changed else node
        if isinstance(node, ops.FillNull):
            return _with_filled_nulls(argument, rewritten, backend)
        if isinstance(node, ops.Relation):
            return _with_numbers_or_null(rewritten, backend)
        if not isinstance(node, ops.Value):
            return rewritten
        return _total_value(argument, rewritten, backend)

    return expression.op().replace(replace_node).to_expr()


def _total_value(argument: str, operation: ops.Value, backend: Backend) -> ops.Value:
    """Return an operation on one row in a form that fails for no value.

    Args:
        argument: the argument whose expression it is, for messages.
        operation: the operation.
        backend: the engine.

    Raises:
        InvalidParameter: when the engine has no such form; it names the operation.
    """
    if type(operation).__name__ == "IsInf" and operation.arg.dtype.is_floating():
        # Ibis writes this one as false on Spark.
        return (operation.arg.to_expr().abs() == math.inf).op()
    if is_total(operation, backend):
        return operation
    instead = None if backend.total is None else backend.total(operation)
    if instead is None:
        raise InvalidParameter(
            f"{argument}: {type(operation).__name__} may fail for the value of one row, which "
            f"would decide whether there is an answer, and {backend.name} has no form of it "
            f"that gives NULL; make the column in the table first"
        )
    return instead.op()


def _with_filled_nulls(argument: str, relation: ops.FillNull, backend: Backend) -> ops.Relation:
    """Return a table with constants for NULL, each chosen by an operation that fails for no
    value.

    Args:
        argument: the argument whose expression it is, for messages.
        relation: the operation that fills NULL: its table, and one constant or one for each column.
        backend: the engine.
    """
    import ibis

    table = relation.parent.to_expr()
    constants = relation.replacements
    if not isinstance(constants, Mapping):
        constants = {name: constants for name, kind in table.schema().items() if kind.nullable}
    columns: dict[str, ir.Value] = {}
    for name, constant in constants.items():
        if constant is not None:
            filled = ibis.coalesce(table[name], constant)
            columns[name] = _total_value(argument, filled.op(), backend).to_expr()
    return table.mutate(**columns).op()


def _with_numbers_or_null(relation: ops.Relation, backend: Backend) -> ops.Relation:
    """Return the table with NULL for NaN, and for decimals of more digits than their type has;
    other relations stay as they are.
    """
    if type(relation).__name__ not in TABLES:
        return relation
    table = relation.to_expr()
    numbers: dict[str, ir.Value] = {}
    for name, kind in table.schema().items():
        if kind.is_floating():
            numbers[name] = _number_or_null(table[name], backend.nan)
        if kind.is_decimal() and backend.decimal_or_null is not None:
            numbers[name] = backend.decimal_or_null(table[name])
    if not numbers:
        return relation
    return table.mutate(**numbers).op()


def _number_or_null(
    column: ir.FloatingColumn, nan: Callable[[ir.FloatingColumn], ir.BooleanValue]
) -> ir.FloatingColumn:
    """Return a column with NULL for NaN; ``nan`` asks the engine which numbers are NaN."""
    import ibis

    return ibis.ifelse(nan(column), ibis.null(column.type()), column)


def is_total(operation: ops.Value, backend: Backend) -> bool:
    """Return whether an operation on one row has a value or NULL on this engine, whatever the
    values.
    """
    return never_fails(operation) and _is_within_decimals(operation, backend.decimals)


def never_fails(operation: ops.Value) -> bool:
    """Return whether an operation on one row has a value or NULL on every engine whose decimal
    numbers have any number of digits, whatever the values.
    """
    name = type(operation).__name__
    if name in _PLAIN:
        return True
    if name in _CHOOSING:
        return _converts_safely(operation)
    if name in _PATTERNS:
        return _has_constant_pattern(operation)
    # Ibis writes the second one as the first for an engine that has it not, such as PostgreSQL.
    if name in ("Cast", "TryCast"):
        return _fits_every_value(operation.arg.dtype, operation.to)
    if name in ("Substring", "StrRight"):
        return _has_constant_places(operation)
    return name in ("Abs", "Negate") and operation.arg.dtype.is_floating()


def _converts_safely(operation: ops.Value) -> bool:
    """Return whether the engine converts no argument of an operation of _CHOOSING to a type that it
    may not fit, and whether the result is of the type that Ibis states.
    """
    compared, chosen = _compared_and_chosen(operation)
    return (
        _are_compared_safely(compared)
        and _are_compared_safely(chosen)
        and _keep_stated_type(chosen)
    )


def _compared_and_chosen(
    operation: ops.Value,
) -> tuple[tuple[ops.Value, ...], tuple[ops.Value, ...]]:
    """Return the arguments of an operation of _CHOOSING that it compares, and those among which it
    chooses its result. The engine converts all arguments of each of these two groups to one type.
    """
    name = type(operation).__name__
    if name == "IfElse":
        return (), (operation.true_expr, operation.false_null_expr)
    if name == "SearchedCase":
        return (), (*operation.results, operation.default)
    if name == "SimpleCase":
        return (operation.base, *operation.cases), (*operation.results, operation.default)
    if name in ("Coalesce", "Greatest", "Least", "Clip"):
        return (), tuple(operation.__children__)
    return tuple(operation.__children__), ()


def _are_compared_safely(values: tuple[ops.Value, ...]) -> bool:
    """Return whether values that the engine converts to one type can all be converted, whatever
    the rows hold.
    """
    constants, types = _constants_and_types(values)
    if len({_group_compared_safely(kind) for kind in types} - {"boolean", "null"}) > 1:
        return False
    return all(_is_comparable(constant, kind) for constant in constants for kind in types)


def _keep_stated_type(values: tuple[ops.Value, ...]) -> bool:
    """Return whether the engine gives what is chosen among values the type that Ibis states, by
    which the next operation is judged. Beside a UUID a constant text is a UUID, and a text to Ibis;
    beside a time a constant day is a time, and a day to Ibis.
    """
    constants, types = _constants_and_types(values)
    pairs = [(constant.dtype, kind) for constant in constants for kind in types]
    return all(_keeps_type_beside(constant_type, kind) for constant_type, kind in pairs)


def _keeps_type_beside(constant_type: dt.DataType, kind: dt.DataType) -> bool:
    """Return whether what is chosen between a constant and a column has the type that Ibis states.

    Args:
        constant_type: the type of the constant.
        kind: the type of the column.
    """
    if constant_type.is_null() or kind.is_null():
        return True
    if constant_type.is_string() != kind.is_string():
        return False
    if constant_type.is_date() != kind.is_date():
        return False
    return not _is_of_nanoseconds(kind)


def _constants_and_types(
    values: tuple[ops.Value, ...],
) -> tuple[set[ops.Literal], set[dt.DataType]]:
    """Return the constants among values, and the types of the others."""
    import ibis.expr.operations as ops

    constants = {value for value in values if isinstance(value, ops.Literal)}
    return constants, {value.dtype for value in values if value not in constants}


def _is_comparable(constant: ops.Literal, kind: dt.DataType) -> bool:
    """Return whether a constant can be compared with each value of a type, without an error."""
    if constant.dtype.is_string():
        return _spells(constant.value, kind)
    constant_type = constant.dtype
    if constant_type.is_null() or kind.is_null():
        return True
    if constant_type.is_decimal():
        return kind.is_decimal() and bool(constant.value.is_finite())
    if kind.is_decimal() and constant_type.is_floating() and not math.isfinite(constant.value):
        return False  # PostgreSQL's decimals may be beyond its floating-point numbers
    if constant_type.is_date() or constant_type.is_timestamp():
        return _becomes_day_or_time(constant.value, constant_type, kind)
    return _group_beside_constant(constant_type) == _group_beside_constant(kind)


def _becomes_day_or_time(value: date, constant_type: dt.DataType, kind: dt.DataType) -> bool:
    """Return whether a constant day or time can become a value of a type, so that each value of
    the type can be compared with it. A column of days is compared with days alone: as times, those
    of the largest years do not fit.

    Args:
        value: the day or time.
        constant_type: the type of the constant.
        kind: the type of the values that it stands beside.
    """
    if kind.is_date():
        return constant_type.is_date()
    in_range = not _is_of_nanoseconds(kind) or value.year in _YEARS_OF_NANOSECONDS
    return kind.is_timestamp() and in_range


def _is_of_nanoseconds(kind: dt.DataType) -> bool:
    """Return whether a type is that of times in nanoseconds, which end in 2262."""
    digits_of_microseconds = 6  # those of a second after the point
    return kind.is_timestamp() and kind.scale is not None and kind.scale > digits_of_microseconds


def _is_within_decimals(operation: ops.Value, digits: int | None) -> bool:
    """Return whether what an operation compares or chooses among fits a decimal type of the engine.

    Args:
        operation: the operation, whose arguments the engine can convert (``_converts_safely``).
        digits: the most digits of a decimal number; None: there is no limit.
    """
    if digits is None or type(operation).__name__ not in _CHOOSING:
        return True
    return all(_has_common_decimal(values, digits) for values in _compared_and_chosen(operation))


def _has_common_decimal(values: tuple[ops.Value, ...], digits: int) -> bool:
    """Return whether an engine has a decimal type for all values of a group: it takes the most
    digits on either side of the point. A long integer of DuckDB has one more digit than Ibis
    states.
    """
    constants, types = _constants_and_types(values)
    decimals = [kind for kind in map(_as_decimal, types) if kind is not None]
    has_several_columns = len(values) - len(constants) > 1
    # A column of all the digits that there can be, or of unknown ones, leaves no room for others.
    if has_several_columns and any(kind.precision in (None, digits) for kind in decimals):
        return False
    numbers = [constant.value for constant in constants if constant.value is not None]
    return all(_has_room(number, kind, digits) for number in numbers for kind in decimals)


def _as_decimal(kind: dt.DataType) -> dt.Decimal | None:
    """Return a decimal type that holds the values of a type of decimals or integers; None for other
    types.
    """
    import ibis.expr.datatypes as dt

    if kind.is_decimal():
        return kind
    if kind.is_integer():
        return dt.Decimal(_INTEGER_DIGITS, 0)
    return None


def _has_room(number: float | Decimal, kind: dt.Decimal, digits: int) -> bool:
    """Return whether a constant number and all values of a decimal type fit one decimal type.

    Args:
        number: the constant.
        kind: the decimal type; without a precision or a scale its numbers may have any digits.
        digits: the most digits of the engine's decimal types.
    """
    if isinstance(number, float) and ("e" in repr(number) or not math.isfinite(number)):
        return True  # the engine compares floating-point numbers
    if kind.precision is None or kind.scale is None:
        return False
    # The digits of the constant before and after the point, as it is written.
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    whole = max(exact.adjusted() + 1, 0)
    places = max(-int(exact.as_tuple().exponent), 0)
    if isinstance(number, Decimal):  # engines write it in types of their own
        if whole > _WHOLE_DIGITS:
            return False
        places = max(places, _PLACES)
    scale = max(kind.scale, places)
    return max(kind.precision - kind.scale, whole) + scale <= digits


def _group_beside_constant(kind: dt.DataType) -> str:
    """Return the name of the group of a type: an engine compares all values of a group with a
    constant of it.

    With a constant of another group it would convert each value, such as a text to a date.
    """
    if kind.is_numeric() or kind.is_boolean():
        return "number"
    if kind.is_date() or kind.is_timestamp():
        return "moment"
    return _group_compared_safely(kind)


def _spells(text: str | None, kind: dt.DataType) -> bool:
    """Return whether every engine takes a constant text for a value of a type. Another text fails
    where a row is compared with it, and not where there is no such row.
    """
    if text is None or kind.is_string() or kind.is_null():
        return True
    for spelling in _SPELLINGS:
        if spelling.is_of_kind(kind) and spelling.pattern.fullmatch(text):
            try:
                value = spelling.value_of(text)
            except ValueError:
                return False
            return not _is_of_nanoseconds(kind) or value.year in _YEARS_OF_NANOSECONDS
    return False


def _group_compared_safely(kind: dt.DataType) -> str:
    """Return the name of the group of a type: engines compare the values of a group with each other
    without a conversion that can fail.

    Decimals are a group for each number of digits: an integer of 64 bits does not fit most of them.
    """
    if kind.is_integer() or kind.is_floating():
        return "number"
    if kind.is_null():
        return "null"
    return str(kind.copy(nullable=True))


def _fits_every_value(source: dt.DataType, target: dt.DataType) -> bool:
    """Return whether a cast has a value for every value of the type ``source``."""
    is_same = source.copy(nullable=True) == target.copy(nullable=True)
    if is_same or target.is_string():
        # Bytes may be no text, and engines write nested values and JSON each in their own way.
        return not (source.is_binary() or source.is_nested() or source.is_json())
    if source.is_boolean() and target.is_integer():
        return True
    if source.is_integer() and target.is_integer():
        fits_below = source.bounds.lower >= target.bounds.lower
        fits_above = source.bounds.upper <= target.bounds.upper
        return bool(fits_below and fits_above)
    return target.is_float64() and (source.is_integer() or source.is_floating())


def _has_constant_pattern(operation: ops.Value) -> bool:
    """Return whether the pattern of a text search is a constant without escapes, which may be
    invalid.
    """
    import ibis.expr.operations as ops

    pattern = operation.pattern
    if not isinstance(pattern, ops.Literal) or pattern.value is None or "\\" in pattern.value:
        return False
    if type(operation).__name__ == "RegexReplace" and not _has_constant_replacement(operation):
        return False
    return type(operation).__name__ not in _REGULAR or _is_regular(pattern.value)


def _has_constant_replacement(operation: ops.RegexReplace) -> bool:
    """Return whether what is put in the place of a match is a constant without the letters by which
    engines refer to parts of the match: one that is not there fails where a row matches.
    """
    import ibis.expr.operations as ops

    replacement = operation.replacement
    if not isinstance(replacement, ops.Literal) or replacement.value is None:
        return False
    return not {"\\", "$"} & set(replacement.value)


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
    """Return whether the positions and lengths in a text, all arguments but the first, are
    constants that are not negative.
    """
    return all(place is None or _is_natural(place) for place in operation.args[1:])


def _is_natural(place: ops.Node) -> bool:
    """Return whether a position or length is a constant integer of at least 0."""
    import ibis.expr.operations as ops

    return isinstance(place, ops.Literal) and place.value is not None and place.value >= 0


def try_cast_of(operation: ops.Cast | ops.TryCast) -> ir.Value:
    """Return the cast in a form that gives NULL where it fails."""
    return operation.arg.to_expr().try_cast(operation.to)


def cast_of_numbers(operation: ops.Cast | ops.TryCast) -> ir.Value | None:
    """Return a cast of numbers to integers with NULL for those that do not fit; None for other
    casts.

    It is for engines without a cast that gives NULL itself, and for those where Ibis writes its own
    as one that fails. Floating-point numbers fit up to 2^53, beyond which they are not exact
    integers.
    """
    target = operation.to
    source = operation.arg.dtype
    if not target.is_integer() or not (source.is_integer() or source.is_floating()):
        return None
    lowest = target.bounds.lower
    highest = target.bounds.upper
    if source.is_floating():
        lowest = max(lowest, -(2**53))
        highest = min(highest, 2**53)
    else:  # no number is beyond the bounds of its own type
        lowest = max(lowest, source.bounds.lower)
        highest = min(highest, source.bounds.upper)
    return null_where_unfit(operation, lambda number: number.between(lowest, highest))


def null_where_unfit(operation: ops.Value, fits: Callable[[ir.Value], ir.BooleanValue]) -> ir.Value:
    """Return the operation with NULL for its first argument where that does not fit.

    Args:
        operation: an operation on one row.
        fits: the function that returns whether that argument fits.
    """
    import ibis

    argument = operation.args[0].to_expr()
    fitting = ibis.ifelse(fits(argument), argument, ibis.null(argument.type()))
    return operation.copy(**{operation.argnames[0]: fitting.op()}).to_expr()


def rounding_below_limit(operation: ops.Value) -> ir.Value | None:
    """Return a rounding of floating-point numbers with NULL for those of 2^53 and more, so that the
    result fits 64 bits; None for other operations.
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
