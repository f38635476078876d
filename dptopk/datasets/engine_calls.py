"""Calls to the engine of an opened table, whose errors never quote the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import OpenTable, Result, hide_data_of_errors

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa


def run_query(source: OpenTable, expression: ir.Table) -> pa.Table:
    """Return the rows of an expression; an error of the engine becomes one that does not quote the
    data (``call_engine``).
    """
    return call_engine(source, partial(source.run, expression))


def engine_table(source: OpenTable, name: str, expression: ir.Table) -> ir.Table:
    """Return the rows of an expression as a table: in the engine if it can store one, else in
    memory.

    Args:
        source: the opened table of the events.
        name: the name of the table in the engine; an earlier one of the name is replaced.
        expression: the rows.
    """
    import ibis

    if source.keep is None:
        return ibis.memtable(run_query(source, expression))
    return call_engine(source, partial(source.keep, name, expression))


def call_engine(source: OpenTable, action: Callable[[], Result]) -> Result:
    """Return the result of a call to the engine; its errors become ones that do not quote the data.

    Raises:
        MemoryFull: if the engine's memory is too small.
        InvalidParameter: for any other error of the engine.
    """
    return hide_data_of_errors(
        "table", "the engine could not run the query", action, full=source.backend.full
    )
