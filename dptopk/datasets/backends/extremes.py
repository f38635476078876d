"""Queries on a caller's connection to DuckDB, planned without the extremes of columns.

To order joins DuckDB asks a Parquet file for the extremes of all columns that a view names, and
fails if it cannot read one of them, such as a time in milliseconds that is too large: one user's
value in a column that nobody asks for would refuse the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dptopk.datasets.backends.quoting import text_literal

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from ibis.backends.duckdb import Backend as DuckDBConnection

_JOIN_ORDER = "join_order"
_NAME = "dptopk_setting"
_READ = "SELECT current_setting('disabled_optimizers')"
_LOCKS: WeakKeyDictionary[DuckDBConnection, Lock] = WeakKeyDictionary()


def run_without_extremes(connection: DuckDBConnection) -> Callable[[ir.Table], pa.Table]:
    """Return the function that returns the rows of an Ibis expression on a caller's connection as
    an Arrow table. Meanwhile a setting of its database is changed.
    """
    # A second query would take the changed setting for the caller's.
    lock = _LOCKS.setdefault(connection, Lock())

    def execute(statement: str) -> list[tuple[str, ...]]:
        """Return the rows of a statement."""
        return list(connection.con.execute(statement).fetchall())

    def run(expression: ir.Table) -> pa.Table:
        """Return the rows of an expression."""
        with lock, _without_extremes(execute):
            return connection.to_pyarrow(expression)

    return run


@contextmanager
def planned_without_extremes(relation: DuckDBPyRelation) -> Iterator[None]:
    """Let queries of a relation be planned without the extremes of columns within the block."""

    def execute(statement: str) -> list[tuple[str, ...]]:
        """Return the rows of a statement on the relation's connection."""
        answer = relation.query(_NAME, statement)
        return [] if answer is None else list(answer.fetchall())

    with _without_extremes(execute):
        yield


@contextmanager
def _without_extremes(execute: Callable[[str], list[tuple[str, ...]]]) -> Iterator[None]:
    """Turn off the step of DuckDB's planner that orders joins within the block.

    Args:
        execute: the function that runs a statement and returns its rows.
    """
    ((earlier,),) = execute(_READ)
    steps = [step for step in earlier.split(",") if step]
    execute(f"SET disabled_optimizers = {text_literal(','.join({*steps, _JOIN_ORDER}))}")
    try:
        yield
    finally:
        execute(f"SET disabled_optimizers = {text_literal(earlier)}")
