"""The columns and rows of an event table that a query reads.

The rules depend on types and arguments alone, so that no user's data can change them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from dptopk.datasets.backends.base import OpenTable, hide_data_of_errors
from dptopk.datasets.backends.made_up_texts import refuse_untaken_texts
from dptopk.datasets.backends.rowwise import refuse_across_rows
from dptopk.datasets.backends.total import is_total, total_expression
from dptopk.datasets.text_files import hint_of_columns
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.datatypes as ibis_types
    import ibis.expr.types as ir

    from dptopk.datasets.backends.inputs import Condition, Constant

    # Whether a type of column is of some kind, and how a column of that kind is read.
    Reading = tuple[Callable[[ibis_types.DataType], bool], Callable[[ir.Column], ir.Column]]
    # Whether a type of column is of some kind, and how a constant becomes a value of that kind
    # (None: it is no such value).
    Fitting = tuple[Callable[[ibis_types.DataType], bool], Callable[[Constant], Constant | None]]

# A number written in text: up to 18 digits on each side of the point, an exponent of up to two.
# Groups that capture nothing count as no match on DataFusion.
NUMBER = r"^ *[+-]?[0-9]{1,18}(?:[.][0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})? *$"
# Decimal numbers of at most this many digits are read as floating-point numbers.
LONGEST_DECIMAL = 38
_DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"  # a date whose year has four digits
# The columns that are hashed, and those of the texts by which they are hashed on some engines.
HASHED = {"user": "user_text", "item": "item_text"}
# What the refusal of a table that looks at several rows says of the way around it.
MATERIALISED = (
    "; writing its rows to a table or a frame first hides it from this check, and does not make it "
    "private: each row must come from the events of one user alone"
)


def select_events(source: OpenTable, where: Condition, **columns: str | None) -> ir.Table:
    """Return the events that meet ``where``, with the columns renamed to their roles (user, item,
    ...), without NULL; on engines that hash a text faster than its bytes, also with those texts
    (``HASHED``).

    Args:
        source: the table.
        where: the condition, as for events_histogram.
        columns: role=name of the column; a role whose column is None is left out. A ``weight`` may
            be NULL.

    Raises:
        InvalidParameter: naming the argument, for a missing column, a type that cannot be read, or
            a condition that looks at several rows.
    """
    refuse_across_rows("table", source.table, hint=MATERIALISED)
    rows = total_expression("table", source.table, source.backend)
    refuse_untaken_texts("table", rows, source)
    names_by_role = {role: name for role, name in columns.items() if name is not None}
    roles: dict[Any, Any] = dict(names_by_role)
    if isinstance(where, Mapping):
        roles |= {name: name for name in where}
    _refuse_alike_but_for_case(rows.columns, roles)
    if names_by_role.get("user") is not None and names_by_role["user"] == names_by_role.get("item"):
        raise InvalidParameter(
            f"item must be a different column from user, got {names_by_role['item']!r} for both",
            parameter="item",
        )
    for role, name in names_by_role.items():
        # This call refuses a missing column, before a bad condition is refused below.
        _column_of_role(rows, role, name)
    if where is not None:
        rows = rows.filter(_row_condition(source, rows, where))
    columns_by_role = {
        role: _column_of_role(rows, role, name) for role, name in names_by_role.items()
    }
    if "weight" in columns_by_role:
        refuse_untaken_texts("weight", columns_by_role["weight"], source)
    complete = rows.filter(
        *[column.notnull() for role, column in columns_by_role.items() if role != "weight"]
    )
    columns_read = _columns_as_read(source, columns_by_role, names_by_role.get("user", ""))
    return complete.select(**columns_read)


def _columns_as_read(
    source: OpenTable, columns_by_role: Mapping[str, ir.Column], user: str
) -> dict[str, ir.Column]:
    """Return the columns of events as they are grouped, and texts by which they are hashed.

    Args:
        source: the table.
        columns_by_role: the columns by role.
        user: the name of the column of users; "" where no role is "user".
    """
    readers: dict[str, Callable[[ir.Column], ir.Column]] = {
        "weight": _same_column,
        "user": partial(source.user_column, user),
    }
    columns_read = {}
    hashable = source.backend.hashable
    for role, column in columns_by_role.items():
        reader = readers.get(role, source.exact_text)
        columns_read[role] = reader(column)
        # The text is hashed instead of its bytes where those are what is grouped; users under a
        # collation are grouped by another text than their own.
        is_own_text = columns_read[role].equals(source.exact_text(column))
        is_encoded = role in HASHED and is_own_text
        if is_encoded and hashable is not None and columns_read[role].type().is_binary():
            columns_read[HASHED[role]] = hashable(column)
    return columns_read


def _refuse_alike_but_for_case(present: Sequence[str], names_by_role: Mapping[str, Any]) -> None:
    """Refuse a column if another column has the same name but for its case: engines then read
    either of them.

    Args:
        present: the names of all columns.
        names_by_role: role -> the name of the column that is asked for.

    Raises:
        InvalidParameter: naming the role.
    """
    for role, name in names_by_role.items():
        if not isinstance(name, str):  # it is refused later, as no column
            continue
        similar_names = [other for other in present if name.casefold() == other.casefold()]
        if len(similar_names) > 1:
            raise InvalidParameter(
                f"{role}: several columns are called {name!r} but for upper and lower case",
                parameter=role,
            )


def _column_of_role(table: ir.Table, role: str, name: str) -> ir.Column:
    """Return a column as a type that every engine orders and writes as text in the same way.

    Args:
        table: the table.
        role: the argument that names the column, for messages.
        name: the name of the column.

    Raises:
        InvalidParameter: if it is missing, or its type is none that can be read.
    """
    if not isinstance(name, str):
        raise InvalidParameter(
            f"{role} must be the name of a column, got {type(name).__name__}", parameter=role
        )
    if name not in table.columns:
        hint = hint_of_columns(name, table.columns)
        raise InvalidParameter(f"{role}: the table has no column {name!r}{hint}", parameter=role)
    column = table[name]
    kind = column.type()
    if role == "weight":
        readings = _WEIGHTS
        problem = "not a number"
    else:
        readings = _LABELS
        problem = "make it text or integer first"
    for is_of_kind, read in readings:
        if is_of_kind(kind):
            return read(column)
    raise InvalidParameter(
        f"{role}: the column {name!r} is of type {kind}; {problem}", parameter=role
    )


def _numbers_of_text(text: ir.StringColumn) -> ir.FloatingColumn:
    """Return text as numbers; NULL for text that does not have the form of NUMBER.

    Engines differ in what a cast accepts ("1_000", "1d", "nan"), and a cast that fails would refuse
    all rows because of one.
    """
    import ibis

    return ibis.ifelse(text.re_search(NUMBER), text.strip(), None).cast("float64")


def _whole_or_null(column: ir.FloatingColumn) -> ir.IntegerColumn:
    """Return floating-point numbers as integers; NULL for those that are not whole, or not below
    2^53.

    In pandas, a column of integers becomes floating-point if one of them is missing, which must not
    decide whether the column is refused.
    """
    import ibis

    # An engine may compute both branches of a condition: numbers that cannot be integers are
    # replaced before the rounding.
    large = column.isnan() | (column.abs() >= 2.0**53)
    small = ibis.ifelse(large, 0.0, column)
    is_whole = ~large & (small == small.floor())
    return ibis.ifelse(is_whole, small, ibis.null("float64")).cast("int64")


def _decimals_without_nan(column: ir.DecimalColumn) -> ir.NumericColumn:
    """Return decimal numbers as a type that can hold any cap; NULL for PostgreSQL's NaN."""
    import ibis

    precision = column.type().precision
    # Longer decimals may be too large for a floating-point number, and hold any cap as they are.
    if precision is not None and precision <= LONGEST_DECIMAL:
        return column.cast("float64")
    return ibis.ifelse(column.cast("string") == "NaN", None, column)


def _same_column(column: ir.Column) -> ir.Column:
    """Return a column unchanged."""
    return column


def _as_64_bits(column: ir.IntegerColumn) -> ir.IntegerColumn:
    """Return integers with 64 bits: engines hash the same number of another width to
    another value.
    """
    if column.type().is_uint64():
        return column
    return column.cast("int64")


def _whole_decimals_as_text(column: ir.DecimalColumn) -> ir.StringColumn:
    """Return decimal numbers, which may be beyond 64 bits, as the texts of integers; NULL for those
    that are not whole.
    """
    import ibis

    text = column.cast("string").re_replace("[.]0+$", "")
    return ibis.ifelse(text.re_search("^-?[0-9]+$"), text, None)


def _dates_as_text(column: ir.DateColumn) -> ir.StringColumn:
    """Return dates as text, whatever the settings of the engine; NULL for years that are not from
    1 to 9999: engines write them differently, and one before Christ as the same one after.

    Such a day is NULL before it is written: engines fail on those that are too far away.
    """
    import ibis

    # Ibis writes a constant day as a time in nanoseconds on DataFusion, which ends in 2262.
    first, last = (ibis.literal(str(day)).cast("date") for day in (dt.date.min, dt.date.max))
    has_year = column.between(first, last)
    text = ibis.ifelse(has_year, column, ibis.null("date")).strftime("%Y-%m-%d")
    return ibis.ifelse(text.re_search(_DAY), text, None)


def _has_only_null(kind: ibis_types.DataType) -> bool:
    """Return whether a type is that of NULL alone, as of a column of a file without rows; Ibis may
    not know that type.
    """
    if kind.is_null():
        return True
    return bool(kind.is_unknown() and str(kind.raw_type).strip('"').upper() == "NULL")


# How a column is read by its type: as a weight, and as a user, label or segment.
_WEIGHTS: tuple[Reading, ...] = (
    (lambda kind: kind.is_decimal(), _decimals_without_nan),
    (lambda kind: kind.is_numeric(), _same_column),
    (lambda kind: kind.is_string(), _numbers_of_text),
    (_has_only_null, lambda column: _numbers_of_text(column.cast("string"))),
)
_LABELS: tuple[Reading, ...] = (
    (lambda kind: kind.is_string(), _same_column),
    (lambda kind: kind.is_integer(), _as_64_bits),
    (lambda kind: kind.is_decimal(), _whole_decimals_as_text),
    (
        lambda kind: kind.is_boolean() or kind.is_uuid() or _has_only_null(kind),
        lambda column: column.cast("string"),
    ),
    (lambda kind: kind.is_date(), _dates_as_text),
    (lambda kind: kind.is_floating(), _whole_or_null),
)


def needed_columns(where: Condition, **columns: str | None) -> list[str] | None:
    """Return the names of the columns that a query uses; None if a ``where`` that is no mapping
    uses unknown ones.
    """
    if where is not None and not isinstance(where, Mapping):
        return None
    names = [name for name in (*columns.values(), *(where or {})) if isinstance(name, str)]
    return list(dict.fromkeys(names))


def _row_condition(source: OpenTable, rows: ir.Table, where: Condition) -> ir.BooleanValue:
    """Return the condition as an Ibis expression, after it was checked that each row's answer
    depends on that row alone.

    A comparison with, say, the table's mean would let one user decide which of the others' events
    count.

    Args:
        source: the table.
        rows: the table's rows, with every operation made total.
        where: the condition, as for events_histogram.
    """
    if isinstance(where, Mapping):
        return _equalities(source, rows, where)
    condition = hide_data_of_errors(
        "where",
        "it is no condition on this table",
        partial(_resolved_condition, source.table, where),
    )
    refuse_across_rows("where", condition)
    condition = total_expression("where", condition, source.backend)
    refuse_untaken_texts("where", condition, source)
    return condition


def _resolved_condition(table: ir.Table, where: Condition) -> ir.BooleanValue:
    """Return a condition as an expression on a table.

    Raises:
        InvalidParameter: if it does not give a truth value for each row.
    """
    import ibis
    from ibis.common.deferred import Deferred

    if isinstance(where, Deferred):
        where = where.resolve(table)
    elif callable(where) and not isinstance(where, ibis.Value):
        where = where(table)
    if not isinstance(where, ibis.Value) or not where.type().is_boolean():
        raise InvalidParameter("where must give a truth value for each row")
    table.filter(where)  # fails if the condition is about another table
    return where


def constant_of_type(value: Constant, kind: ibis_types.DataType, what: str) -> Constant:
    """Return a value that a column is compared with, converted to the column's type.

    The engine then never converts the column. A conversion in the engine may fail on a single row,
    and the query with it: one user's value would decide between an answer and a refusal. So this
    function decides, by the value and the type, whether the value fits.

    Args:
        value: the value.
        kind: the type of the column.
        what: the value's role, for messages.

    Raises:
        InvalidParameter: when the value is not of this type, nor a text or a number that spells it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    constant = _fitted_constant(value, kind)
    if constant is None:
        raise InvalidParameter(
            f"{what} is of type {type(value).__name__}, which does not fit the column's, {kind}"
        )
    return constant


def _fitted_constant(value: Constant, kind: ibis_types.DataType) -> Constant | None:
    """Return a value converted to a type of column; None if it does not fit the type, and for types
    whose columns are compared with no value, such as lists.
    """
    for is_of_kind, read in _FITTING:
        if is_of_kind(kind):
            try:
                return read(value)
            except (TypeError, ValueError, ArithmeticError):
                return None
    return None


def _as_text(value: Constant) -> str | None:
    """Return a value as the text that a column of texts holds; None if it is no such value.

    Raises:
        ValueError: for a text with half of a surrogate pair.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, str):
        value.encode()  # refuses half of a surrogate pair, which no column holds
    if isinstance(value, str | int | UUID):
        return str(value)
    return None


def _as_integer(value: Constant) -> int | None:
    """Return a value as an integer; None if it is neither an integer nor the text that Python
    writes for one.

    Raises:
        ValueError: for a text that Python reads as no integer.
    """
    if isinstance(value, str):
        # "007" and " 7" are other texts than the integer's, and perhaps other labels elsewhere.
        if str(int(value)) == value:
            return int(value)
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return None


def _as_number(value: Constant) -> float | Decimal | None:
    """Return a value, or the number that a text spells, as a finite number; None if it is none.

    Raises:
        ValueError: for a text that spells no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = value if isinstance(value, Decimal) else float(value)
    if math.isfinite(number):
        return number
    return None


def _as_single(value: Constant) -> float | None:
    """Return a value, or the number that a text spells, as the number of 32 bits next to it; None
    if that is none.

    Some engines compare with the number of 64 bits, which no column of 32 bits holds.

    Raises:
        ValueError: for a text that spells no number.
    """
    number = _as_number(value)
    if number is None or abs(float(number)) > float(np.finfo(np.float32).max):
        return None
    return float(np.float32(number))


def _as_truth(value: Constant) -> bool | None:
    """Return a value as a truth value; None if it is neither one nor the text "true" or "false"."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    if isinstance(value, bool):
        return value
    return None


def _as_date(value: Constant) -> dt.date | None:
    """Return a value as a date; None if it is neither a date nor a text.

    Raises:
        ValueError: for a text that spells no date.
    """
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    return None


def _as_time(value: Constant) -> dt.datetime | None:
    """Return a value as a date with a time; None if it is neither that nor a text.

    Raises:
        ValueError: for a text that spells none.
    """
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        return value
    return None


# Of a type of column: whether it is one, and how a constant is read as its value.
_FITTING: tuple[Fitting, ...] = (
    (lambda kind: kind.is_string(), _as_text),
    (lambda kind: kind.is_integer(), _as_integer),
    (lambda kind: kind.is_boolean(), _as_truth),
    (lambda kind: kind.is_float32(), _as_single),
    (lambda kind: kind.is_floating() or kind.is_decimal(), _as_number),
    (lambda kind: kind.is_date(), _as_date),
    (lambda kind: kind.is_timestamp(), _as_time),
    (lambda kind: kind.is_uuid(), lambda value: str(UUID(str(value)))),
)


def _equalities(source: OpenTable, table: ir.Table, where: Mapping[str, Any]) -> ir.BooleanValue:
    """Return the condition that columns have given values, or one of several values.

    Args:
        source: the table.
        table: its rows, with every operation made total.
        where: column -> its value, or a list of values.

    Raises:
        InvalidParameter: for a missing column, or a value that does not fit its type.
    """
    import ibis

    condition = ibis.literal(True)
    for name, value in where.items():
        condition = condition & _equality(source, table, name, value)
    return condition


def _equality(source: OpenTable, table: ir.Table, name: str, value: Any) -> ir.BooleanValue:
    """Return the condition that a column has a given value, or one of several values.

    Args:
        source: the table.
        table: its rows, with every operation made total.
        name: the name of the column.
        value: its value, or a list, tuple or set of values; no row has one of no values.

    Raises:
        InvalidParameter: for a missing column, or a value that does not fit its type.
    """
    if name not in table.columns:
        present = hint_of_columns(name, table.columns)
        raise InvalidParameter(f"where: the table has no column {name!r}{present}")
    values = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
    column = table[name]
    kind = column.type()
    constants = [
        constant_of_type(constant, kind, f"where: a value for {name!r}") for constant in values
    ]
    if kind.is_uuid():  # its constants are texts
        column = column.cast("string")
    refusal = f"the values for {name!r} do not fit the column"
    # This comparison is not used: it is made to refuse a column whose values the engine would
    # convert for it.
    compared = hide_data_of_errors("where", refusal, partial(column.isin, constants))
    if not is_total(compared.op(), source.backend):
        raise InvalidParameter(f"where: {refusal}, which is of type {kind}")
    return hide_data_of_errors("where", refusal, partial(source.is_one_of, column, constants))
