"""From what the caller hands in to the engine that holds it.

Nothing about the *meaning* of a table may depend on its data: text files carry no types, so every
column of theirs is text (a type guessed from a sample could merge the labels "01" and "1" for the
sake of one user's rows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from dptopk.datasets.backends.base import Backend, OpenTable, hide_data_of_errors
from dptopk.datasets.backends.datafusion import DATAFUSION
from dptopk.datasets.backends.duckdb import DuckDB
from dptopk.datasets.backends.duckdb_operations import DUCKDB
from dptopk.datasets.backends.extremes import run_without_extremes
from dptopk.datasets.backends.frames import package_of
from dptopk.datasets.backends.postgres import POSTGRES, with_types_of_ibis
from dptopk.datasets.backends.spark import SPARK, Spark, refuse_ignored_files
from dptopk.datasets.columns import needed_columns, select_events
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from dptopk.datasets.backends.inputs import Condition, EventTable

Engine = DuckDB | Spark

# The backends that have passed the contract, by Ibis's names: these in our tests, others in this
# process by ``register_backend``.
REGISTERED: dict[str, Backend] = {
    backend.name: backend for backend in (DUCKDB, SPARK, POSTGRES, DATAFUSION)
}


def open_table(
    table: EventTable | OpenTable,
    engine: Engine | None,
    *,
    columns: Sequence[str] | None = None,
    table_name: str | None = None,
    only_different: bool = False,
) -> OpenTable:
    """Return the events as an Ibis table, on the engine that holds them.

    Args:
        table: an Ibis table (of a backend that was let in), a Spark data frame, a pandas or polars
            frame (also lazy), an Arrow table, stream or dataset, or the path of a file: Parquet
            (also a directory or a glob), CSV, TSV, JSON lines, a DuckDB database.
        engine: DuckDB(...) or Spark(...); None: the engine that holds the table, DuckDB for files
            and frames.
        columns: the columns that are needed; None: all. Others are not converted.
        table_name: the table in a database file; None: not given.
        only_different: whether the question asks which different rows of ``columns`` there are, so
            that rows that repeat others may be left out.

    Raises:
        InvalidParameter: when the table cannot be read, naming the argument and no value of the
            data.
        ImportError: when an extra is missing, saying what to install.
    """
    if isinstance(table, OpenTable):
        return table
    if package_of(table) == "ibis":
        return _open_ibis(table, engine)
    if engine is None:
        engine = Spark() if package_of(table) == "pyspark" else DuckDB()
    if not isinstance(engine, DuckDB | Spark):
        raise InvalidParameter(
            f"engine must be DuckDB(...) or Spark(...), got {type(engine).__name__}"
        )
    if isinstance(engine, Spark):
        return engine.open(table, columns=columns, table_name=table_name)
    return engine.open(table, columns=columns, table_name=table_name, only_different=only_different)


@contextmanager
def selected_events(
    table: EventTable | OpenTable,
    where: Condition,
    engine: Engine | None,
    table_name: str | None,
    *,
    only_different: bool = False,
    **columns: str | None,
) -> Iterator[tuple[OpenTable, Any]]:
    """Yield the opened table, and the events in it for which ``where`` holds, with their columns by
    role (``select_events``).

    Args:
        table: the table, as for ``open_table``.
        where: the condition, as for events_histogram.
        engine: the engine, as for ``open_table``.
        table_name: the table in a database file; None: not given.
        only_different: as for ``open_table``.
        columns: role=name of the column, as for ``select_events``.
    """
    with open_table(
        table,
        engine,
        columns=needed_columns(where, **columns),
        table_name=table_name,
        only_different=only_different,
    ) as source:
        events = select_events(source, where, **columns)
        if source.view is not None:
            view = partial(source.view, events)
            events = hide_data_of_errors("table", "the engine could not run the query", view)
        yield source, events


def _open_ibis(table: ir.Table, engine: Engine | None) -> OpenTable:
    """Return an Ibis table as an opened one, on its own connection; on DuckDB the engine still says
    in how many passes to ask.

    Raises:
        InvalidParameter: for something else of Ibis, a backend that was not let in, and settings of
            an engine, which an Ibis table has already.
    """
    import ibis.expr.types as ir

    if not isinstance(table, ir.Table):
        raise InvalidParameter(f"table must be an Ibis table, got {type(table).__name__}")
    connection = table.get_backend()
    backend = REGISTERED.get(connection.name)
    if backend is None:
        raise InvalidParameter(
            f"table: the Ibis backend {connection.name!r} is not let in; it may be by "
            f"dptopk.datasets.register_backend"
        )
    if isinstance(engine, DuckDB) and backend is DUCKDB:
        passes = engine.passes
    else:
        passes = None
    if engine not in (None, DuckDB(passes=passes)):  # it has another setting, or is Spark
        raise InvalidParameter(
            "engine: an Ibis table has its own connection; only DuckDB(passes=) applies, on DuckDB"
        )
    if backend is POSTGRES:
        table = hide_data_of_errors(
            "table", "its types could not be read", partial(with_types_of_ibis, table)
        )
    if backend is SPARK:
        refuse_ignored_files(connection._session)  # noqa: SLF001
    run = run_without_extremes(connection) if backend is DUCKDB else connection.to_pyarrow
    return OpenTable(table, run, backend, passes)
