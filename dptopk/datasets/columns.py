"""The columns and rows of an event table that a query looks at, by rules that no single user's data
can change.
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

from dptopk.datasets.backends.base import OpenTable, without_data
from dptopk.datasets.backends.rowwise import refuse_across_rows
from dptopk.datasets.backends.total import total
from dptopk.datasets.text_files import columns_listed
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.datatypes as ibis_types
    import ibis.expr.types as ir

    from dptopk.datasets.backends.inputs import Condition, Constant

    # Of a type of column: whether it is one, and what is read of such a column.
    Reading = tuple[Callable[[ibis_types.DataType], bool], Callable[[ir.Column], ir.Column]]
    # Of a type of column: whether it is one, and a constant as a value of it; None = it is none.
    Fitting = tuple[Callable[[ibis_types.DataType], bool], Callable[[Constant], Constant | None]]

# A number written in text: up to 18 digits on each side of the point, an exponent of up to two.
# Groups that capture nothing count as no match on DataFusion.
NUMBER = r"^ *[+-]?[0-9]{1,18}(?:[.][0-9]{0,18})?(?:[eE][+-]?[0-9]{1,2})? *$"
LONGEST_DECIMAL = 38
DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

MATERIALISED = (
    "; writing its rows to a table or a frame first hides it from this check, and does not make "
    "it private: each row "
    "must come from the events of one user alone"
)


def select_events(source: OpenTable, where: Condition, **columns: str | None) -> ir.Table:
    """The events that hold ``where``, with the columns renamed to their roles (user, item, ...),
    without NULL.

    Args:
        source: the table.
        where: as in events_histogram.
        columns: role=name of the column; a role whose column is None is left out. A ``weight`` may
            be NULL.
    """
    refuse_across_rows("table", source.table, hint=MATERIALISED)
    kept = total("table", source.table, source.backend)
    named = {role: name for role, name in columns.items() if name is not None}
    _refuse_alike_but_for_case(
        kept.columns,
        named if not isinstance(where, Mapping) else {**named, **{name: name for name in where}},
    )
    if named.get("user") is not None and named["user"] == named.get("item"):
        raise InvalidParameter(
            f"item must be a different column from user, got {named['item']!r} for both",
            parameter="item",
        )
    for role, name in named.items():
        _typed(kept, role, name)  # a missing column is told before a bad filter
    if where is not None:
        kept = kept.filter(_row_wise(source, kept, where))
    typed = {role: _typed(kept, role, name) for role, name in named.items()}
    person = partial(source.person, named.get("user", ""))
    read: dict[str, Callable[[ir.Column], ir.Column]] = {"weight": _as_it_is, "user": person}
    whole = kept.filter(*[column.notnull() for role, column in typed.items() if role != "weight"])
    return whole.select(
        **{role: read.get(role, source.exact)(column) for role, column in typed.items()}
    )


def _refuse_alike_but_for_case(present: Sequence[str], named: Mapping[str, Any]) -> None:
    """Refuse a column whose name another column shares but for its case: engines then read either
    of them.
    """
    for role, name in named.items():
        if (
            isinstance(name, str)
            and sum(name.casefold() == other.casefold() for other in present) > 1
        ):
            raise InvalidParameter(
                f"{role}: several columns are called {name!r} but for upper and lower case",
                parameter=role,
            )


def _typed(table: ir.Table, role: str, name: str) -> ir.Column:
    """A column, of a type that every engine orders and writes as text in the same way."""
    if not isinstance(name, str):
        raise InvalidParameter(
            f"{role} must be the name of a column, got {type(name).__name__}", parameter=role
        )
    if name not in table.columns:
        listed = columns_listed(name, table.columns)
        raise InvalidParameter(f"{role}: the table has no column {name!r}{listed}", parameter=role)
    column = table[name]
    kind = column.type()
    for holds, read in _WEIGHTS if role == "weight" else _LABELS:
        if holds(kind):
            return read(column)
    if role == "weight":
        wanted = "not a number"
    else:
        wanted = "make it text or integer first"
    raise InvalidParameter(
        f"{role}: the column {name!r} is of type {kind}; {wanted}", parameter=role
    )


def _number(text: ir.StringColumn) -> ir.FloatingColumn:
    """Text that spells a number as numbers are written everywhere, as a number; NULL for all other
    text.

    What a cast takes differs ("1_000", "1d", "nan"), and one that fails would refuse all rows for
    the sake of one.
    """
    import ibis

    return ibis.ifelse(text.re_search(NUMBER), text.strip(), None).cast("float64")


def _whole_or_null(column: ir.FloatingColumn) -> ir.IntegerColumn:
    """Floating-point numbers as integers, NULL where they are no whole number below 2^53.

    In pandas, integers with one of them missing are floating-point: the missing one must not decide
    what is refused.
    """
    import ibis

    # An engine may work out both branches of a condition: what cannot be an integer is gone before
    # the rounding.
    large = column.isnan() | (column.abs() >= 2.0**53)
    small = ibis.ifelse(large, 0.0, column)
    return ibis.ifelse(~large & (small == small.floor()), small, ibis.null("float64")).cast("int64")


def _proper(column: ir.DecimalColumn) -> ir.NumericColumn:
    """Decimal numbers, of a type in which any cap can be said; NULL for what PostgreSQL has among
    them that is none.
    """
    import ibis

    precision = column.type().precision
    # Longer decimals may be too large for a floating-point number, and hold any cap as they are.
    if precision is not None and precision <= LONGEST_DECIMAL:
        return column.cast("float64")
    return ibis.ifelse(column.cast("string") == "NaN", None, column)


def _as_it_is(column: ir.Column) -> ir.Column:
    return column


def _wide(column: ir.IntegerColumn) -> ir.IntegerColumn:
    """Integers as 64 bits: engines hash the same number of another width to another value."""
    if column.type().is_uint64():
        return column
    return column.cast("int64")


def _whole_text(column: ir.DecimalColumn) -> ir.StringColumn:
    """Decimal numbers, which may be beyond 64 bits, as the text of an integer; NULL where they are
    not whole.
    """
    import ibis

    text = column.cast("string").re_replace("[.]0+$", "")
    return ibis.ifelse(text.re_search("^-?[0-9]+$"), text, None)


def _day(column: ir.DateColumn) -> ir.StringColumn:
    """Dates as text, by no settings of the engine; NULL where the year has not four digits, which
    engines write in different ways.
    """
    import ibis

    text = column.strftime("%Y-%m-%d")
    return ibis.ifelse(text.re_search(DAY), text, None)


def _is_empty(kind: ibis_types.DataType) -> bool:
    """Whether a type has only NULL values, as for a column of a file without rows; Ibis may not
    know it.
    """
    return bool(
        kind.is_null() or (kind.is_unknown() and str(kind.raw_type).strip('"').upper() == "NULL")
    )


# What is done with a column of a type: as a weight, and as a user, label or segment.
_WEIGHTS: tuple[Reading, ...] = (
    (lambda kind: kind.is_decimal(), _proper),
    (lambda kind: kind.is_numeric(), _as_it_is),
    (lambda kind: kind.is_string(), _number),
    (_is_empty, lambda column: _number(column.cast("string"))),
)
_LABELS: tuple[Reading, ...] = (
    (lambda kind: kind.is_string(), _as_it_is),
    (lambda kind: kind.is_integer(), _wide),
    (lambda kind: kind.is_decimal(), _whole_text),
    (
        lambda kind: kind.is_boolean() or kind.is_uuid() or _is_empty(kind),
        lambda column: column.cast("string"),
    ),
    (lambda kind: kind.is_date(), _day),
    (lambda kind: kind.is_floating(), _whole_or_null),
)


def needed_columns(where: Condition, **columns: str | None) -> list[str] | None:
    """Names of the columns the query uses; None when only ``where`` itself knows."""
    if where is not None and not isinstance(where, Mapping):
        return None
    names = [name for name in (*columns.values(), *(where or {})) if isinstance(name, str)]
    return list(dict.fromkeys(names))


def _row_wise(source: OpenTable, kept: ir.Table, where: Condition) -> ir.BooleanValue:
    """The condition as an Ibis expression, refused unless each row's answer depends on that row
    alone.

    A comparison with, say, the table's mean would let one user decide which of the others' events
    count.
    """
    if isinstance(where, Mapping):
        return _equalities(source, kept, where)
    condition = without_data(
        "where", "it is no condition on this table", partial(_bound, source.table, where)
    )
    refuse_across_rows("where", condition)
    return total("where", condition, source.backend)


def _bound(table: ir.Table, where: Condition) -> ir.BooleanValue:
    """The condition with the table's columns put in."""
    import ibis
    from ibis.common.deferred import Deferred

    if isinstance(where, Deferred):
        where = where.resolve(table)
    elif callable(where) and not isinstance(where, ibis.Value):
        where = where(table)
    if not isinstance(where, ibis.Value) or not where.type().is_boolean():
        raise InvalidParameter("where must give a truth value for each row")
    table.filter(where)  # fails when it speaks of another table
    return where


def fitting(value: Constant, kind: ibis_types.DataType, what: str) -> Constant:
    """A value that a column is compared with, as the column's own type: the engine then never
    converts the column.

    A conversion in the engine may fail on a single row, and with it the query: one user's value
    would decide between an answer and a refusal. So what fits is decided here, by the value and the
    type.

    Raises:
        InvalidParameter: when the value is not of this type, nor a text or a number that spells it.
    """
    if isinstance(value, np.generic):
        value = value.item()
    for holds, read in _FITTING:
        if holds(kind):
            try:
                fitted = read(value)
            except (TypeError, ValueError, ArithmeticError):
                fitted = None
            if fitted is not None:
                return fitted
            break
    raise InvalidParameter(
        f"{what} is of type {type(value).__name__}, which does not fit the column's, {kind}"
    )


def _as_text(value: Constant) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair, which no column holds, is a ValueError
    if isinstance(value, str | int | UUID):
        return str(value)
    return None


def _as_integer(value: Constant) -> int | None:
    if isinstance(value, str):
        if str(int(value)) == value:
            return int(value)
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    return None


def _as_number(value: Constant) -> float | Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = value if isinstance(value, Decimal) else float(value)
    if math.isfinite(number):
        return number
    return None


def _as_truth(value: Constant) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    if isinstance(value, bool):
        return value
    return None


def _as_date(value: Constant) -> dt.date | None:
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    return None


def _as_time(value: Constant) -> dt.datetime | None:
    if isinstance(value, str):
        return dt.datetime.fromisoformat(value)
    if isinstance(value, dt.datetime):
        return value
    return None


_FITTING: tuple[Fitting, ...] = (
    (lambda kind: kind.is_string(), _as_text),
    (lambda kind: kind.is_integer(), _as_integer),
    (lambda kind: kind.is_boolean(), _as_truth),
    (lambda kind: kind.is_floating() or kind.is_decimal(), _as_number),
    (lambda kind: kind.is_date(), _as_date),
    (lambda kind: kind.is_timestamp(), _as_time),
    (lambda kind: kind.is_uuid(), lambda value: str(UUID(str(value)))),
)


def _equalities(source: OpenTable, table: ir.Table, where: Mapping[str, Any]) -> ir.BooleanValue:
    import ibis

    condition = ibis.literal(True)
    for name, value in where.items():
        if name not in table.columns:
            present = columns_listed(name, table.columns)
            raise InvalidParameter(f"where: the table has no column {name!r}{present}")
        if isinstance(value, list | tuple | set | frozenset):
            listed = list(value)
        else:
            listed = [value]
        column = table[name]
        kind = table[name].type()
        fitted = [fitting(each, kind, f"where: a value for {name!r}") for each in listed]
        column = column.cast("string") if kind.is_uuid() else column
        among = partial(source.among, column, fitted)
        chosen = without_data("where", f"the values for {name!r} do not fit the column", among)
        condition = condition & chosen
    return condition
