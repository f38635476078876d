"""Queries on a caller's connection to DuckDB, planned without the extremes of columns.

To order joins DuckDB asks a Parquet file for the extremes of all columns that a view names, and
fails if it cannot read one of them, such as a time in milliseconds that is too large: one user's
value in a column that nobody asks for would refuse the whole table.

The setting that prevents it belongs to the database, which several connections and threads may
share. So no other query is planned, nor is the setting restored, between its change and the end of
planning; and only who has changed it restores it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from dptopk.datasets.backends.quoting import text_literal
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from duckdb import DuckDBPyRelation
    from ibis.backends.duckdb import Backend as DuckDBConnection

Planned = TypeVar("Planned")
# A function that runs a statement and returns its rows.
Execute = Callable[[str], list[tuple[Any, ...]]]
_JOIN_ORDER = "join_order"  # the step of DuckDB's planner that reads the extremes
_NAME = "dptopk_setting"  # what a statement beside a relation calls it; none uses the name
_READ_SETTING = (
    "SELECT current_setting('disabled_optimizers'), current_setting('lock_configuration')"
)
# One for all databases, since connections do not say whether they share one. The same thread may
# take it again, because the end of a reading that was dropped can come at any time.
_LOCK = RLock()


def run_without_extremes(connection: DuckDBConnection) -> Callable[[ir.Table], pa.Table]:
    """Return the function that returns the rows of an Ibis expression on a caller's connection as
    an Arrow table. Meanwhile a setting of its database is changed.
    """

    def execute(statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return list(connection.con.execute(statement).fetchall())

    def run(expression: ir.Table) -> pa.Table:
        """Return the rows of an expression."""
        plan_and_run = partial(connection.to_pyarrow, expression)
        with planned_without_extremes(execute, plan_and_run) as rows:
            return rows

    return run


def statements_beside(relation: DuckDBPyRelation) -> Execute:
    """Return the function that runs a statement on the connection of a relation, and returns its
    rows; DuckDB's relations do not give their connection away.
    """

    def execute(statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        answer = relation.query(_NAME, statement)
        return [] if answer is None else list(answer.fetchall())

    return execute


@contextmanager
def planned_without_extremes(execute: Execute, plan: Callable[[], Planned]) -> Iterator[Planned]:
    """Plan a query without the extremes of columns, and let its rows be read within the block; the
    setting is restored at its end, since no statement runs on a connection while rows are read.

    Args:
        execute: the function that runs a statement and returns its rows.
        plan: the function that plans the query; what it returns is the value of the block.

    Raises:
        InvalidParameter: where the configuration of the database is locked.
    """
    with _LOCK:
        change = _turn_join_order_off(execute)
        try:
            planned = plan()
        except BaseException:
            _restore_setting(execute, change)
            raise
    try:
        yield planned
    finally:
        with _LOCK:
            _restore_setting(execute, change)


def _turn_join_order_off(execute: Execute) -> tuple[str, str] | None:
    """Turn off the step of DuckDB's planner that orders joins; return the values of the setting
    before and after the change, or None where that step was off already.

    Raises:
        InvalidParameter: where it is on, and the configuration of the database is locked.
    """
    ((earlier, is_locked),) = execute(_READ_SETTING)
    steps = {step for step in earlier.split(",") if step}
    if _JOIN_ORDER in steps:
        return None
    if is_locked:
        # Without the change, one user's value could refuse the table.
        raise InvalidParameter(
            "table: lock_configuration of its database is true: SET disabled_optimizers = "
            "'join_order' before it is locked"
        )
    value = ",".join({*steps, _JOIN_ORDER})
    execute(f"SET disabled_optimizers = {text_literal(value)}")
    ((present, _),) = execute(_READ_SETTING)  # DuckDB orders the steps
    return earlier, present


def _restore_setting(execute: Execute, change: tuple[str, str] | None) -> None:
    """Restore the setting that ``_turn_join_order_off`` has changed, unless somebody has set
    another value since.

    Args:
        execute: the function that runs a statement and returns its rows.
        change: what ``_turn_join_order_off`` has returned.
    """
    if change is None:
        return
    earlier, present = change
    ((found, _),) = execute(_READ_SETTING)
    if found == present:
        execute(f"SET disabled_optimizers = {text_literal(earlier)}")
