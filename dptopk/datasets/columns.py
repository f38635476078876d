"""The columns and rows of an event table that a query looks at, by rules that no single user's data can change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dptopk.datasets.engines import Source, without_data
from dptopk.errors import InvalidParameter

__all__ = ["needed_columns", "select_events"]


def select_events(source: Source, where: Any, **columns: str | None) -> Any:
    """The events that hold ``where``, with the columns renamed to their roles (user, item, ...), without NULL.

    Args:
        source: the table.
        where: as in events_histogram.
        columns: role=name of the column; a role whose column is None is left out. A ``weight`` may be NULL.
    """
    kept = source.table
    named = {role: name for role, name in columns.items() if name is not None}
    for role, name in named.items():
        _typed(kept, role, name)  # a missing column is told before a bad filter
    if where is not None:
        kept = kept.filter(_row_wise(kept, where))
    typed = {role: _typed(kept, role, name) for role, name in named.items()}
    events = kept.select(
        **{role: column if role == "weight" else source.exact(column) for role, column in typed.items()}
    )
    return events.filter(*[events[role].notnull() for role in typed if role != "weight"])


def _typed(table: Any, role: str, name: str) -> Any:
    """A column, of a type that every engine orders and writes as text in the same way."""
    if not isinstance(name, str):
        raise InvalidParameter(f"{role} must be the name of a column, got {type(name).__name__}")
    if name not in table.columns:
        raise InvalidParameter(f"{role}: the table has no column {name!r}")
    column, kind = table[name], table[name].type()
    if role == "weight":
        if kind.is_numeric():
            return column
        if kind.is_string():  # text files: what is no number counts 0
            return column.try_cast("float64")
        raise InvalidParameter(f"weight: the column {name!r} is of type {kind}, not a number")
    if kind.is_string() or kind.is_integer():
        return column
    if kind.is_boolean() or kind.is_date() or kind.is_uuid() or kind.is_null():
        return column.cast("string")
    if kind.is_floating():
        return _whole_or_null(column)
    raise InvalidParameter(f"{role}: the column {name!r} is of type {kind}; make it text or integer first")


def _whole_or_null(column: Any) -> Any:
    """Floating-point numbers as integers, NULL where they are no whole number below 2^53.

    In pandas, integers with one of them missing are floating-point: the missing one must not decide what is refused.
    """
    import ibis

    whole = (column.abs() < 2.0**53) & (column == column.floor())
    return ibis.ifelse(whole, column, ibis.null("float64")).cast("int64")


def needed_columns(where: Any, **columns: str | None) -> list[str] | None:
    """Names of the columns the query uses; None when only ``where`` itself knows."""
    if where is not None and not isinstance(where, Mapping):
        return None
    names = [name for name in (*columns.values(), *(where or {})) if isinstance(name, str)]
    return list(dict.fromkeys(names))


def _row_wise(table: Any, where: Any) -> Any:
    """The condition as an Ibis expression, refused unless each row's answer depends on that row alone.

    A comparison with, say, the table's mean would let one user decide which of the others' events count.
    """
    import ibis.expr.operations as ops

    if isinstance(where, Mapping):
        return _equalities(table, where)
    condition = without_data("where", "it is no condition on this table", partial(_bound, table, where))
    across = (ops.Reduction, ops.Analytic, ops.WindowFunction, ops.Subquery, ops.Impure)
    if condition.op().find(across, filter=ops.Value):
        raise InvalidParameter("where must look at one row at a time: no aggregates, windows, subqueries")
    return condition


def _bound(table: Any, where: Any) -> Any:
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


def _equalities(table: Any, where: Mapping[str, Any]) -> Any:
    import ibis

    condition = ibis.literal(True)
    for name, value in where.items():
        if name not in table.columns:
            raise InvalidParameter(f"where: the table has no column {name!r}")
        listed = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        chosen = without_data(
            "where", f"the values for {name!r} do not fit the column", partial(table[name].isin, listed)
        )
        condition = condition & chosen
    return condition
