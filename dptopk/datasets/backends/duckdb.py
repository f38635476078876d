"""DuckDB, inside this process: files, frames, Arrow data, and DuckDB's own databases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dptopk._internal import validate
from dptopk.datasets.backends.base import OpenTable, hide_data_of_errors, import_of_extra
from dptopk.datasets.backends.duckdb_files import keep_different, open_files
from dptopk.datasets.backends.duckdb_operations import DUCKDB, is_memory_full
from dptopk.datasets.backends.files import files_of_table
from dptopk.datasets.backends.frames import FRAMES, package_of
from dptopk.datasets.backends.spill import Spill
from dptopk.datasets.backends.statements import Statements, attach_own_database
from dptopk.datasets.backends.stored_rows import Holder, StoredRows
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends.duckdb import Backend as DuckDBConnection

    from dptopk.datasets.backends.duckdb_files import Keep
    from dptopk.datasets.backends.inputs import EventTable

# A size or a share of the memory, as DuckDB reads it.
MEMORY = re.compile(r"[0-9]+([.][0-9]+)? ?(([KMGT]i?)?B|%)", re.IGNORECASE)
MOST_PASSES = 10_000  # each reads the whole table
# DuckDB starts as many threads as it is told, each with memory of its own.
MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class DuckDB:
    """The embedded engine: files, frames and Arrow tables are read by DuckDB inside this process.

    Args:
        memory_limit: such as "4GB"; beyond it DuckDB spills to disk. None: DuckDB's default (80%
            of the machine).
        threads: worker threads, 1 to 1024; None: one a core.
        temp_directory: where it spills, in a folder of its own that is removed afterwards, as are
            those of processes that were killed; None: DuckDB's default.
        passes: split the users into this many parts by a hash, and query one part at a time: less
            memory and disk for more time. None: one pass, and twice as many whenever DuckDB says
            that memory and disk are full. The answer does not depend on it.

    >>> DuckDB(memory_limit="4GB", passes=4).passes
    4
    """

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | Path | None = None
    passes: int | None = None

    def __post_init__(self) -> None:
        # This call refuses values that are out of range.
        validate.parameters(
            self,
            passes=partial(validate.count, at_most=MOST_PASSES),
            threads=partial(validate.count, at_most=MOST_THREADS),
        )
        limit = self.memory_limit
        if limit is not None and not (isinstance(limit, str) and MEMORY.fullmatch(limit.strip())):
            raise InvalidParameter(
                f"memory_limit must be a size such as '4GB', got {limit!r}",
                parameter="memory_limit",
            )

    def connect(self, *, spill: Spill | None = None) -> DuckDBConnection:
        """Return a new in-memory connection with these settings.

        Args:
            spill: its own folder on disk, which the caller removes; None: ``temp_directory``.

        Raises:
            InvalidParameter: when DuckDB refuses the settings.
            ImportError: when the extra ``data`` is not installed.
        """
        ibis = import_of_extra("ibis", extra="data")
        import_of_extra("duckdb", extra="data")
        folder = self.temp_directory if spill is None else spill.folder
        stated = {
            "memory_limit": self.memory_limit,
            "threads": self.threads,
            "temp_directory": None if folder is None else str(folder),
        }
        settings = {name: value for name, value in stated.items() if value is not None}
        connection: DuckDBConnection = hide_data_of_errors(
            "engine",
            "DuckDB refused its settings",
            lambda: ibis.duckdb.connect(**settings),
            full=is_memory_full,
        )
        try:
            attach_own_database(connection)
        except BaseException:
            connection.disconnect()
            raise
        return connection

    def open(
        self,
        table: EventTable,
        *,
        columns: Sequence[str] | None,
        table_name: str | None,
        only_different: bool = False,
    ) -> OpenTable:
        """Return the table, opened on a connection of its own.

        Args:
            table: files, a frame or Arrow data, as for ``open_table``.
            columns: the columns that are needed; None: all.
            table_name: the table in a database file; None: not given.
            only_different: whether rows that repeat others may be left out.

        Raises:
            InvalidParameter: when it cannot be read, or DuckDB refuses its settings.
            ImportError: when the extra ``data`` is not installed.
        """
        with ExitStack() as unfinished:  # it is undone unless the table is opened
            spill = self._spill()
            if spill is not None:
                unfinished.callback(spill.remove)
            connection = self.connect(spill=spill)
            unfinished.callback(connection.disconnect)
            opened_table = self._open_on(
                connection, table, columns, table_name, only_different=only_different
            )
            # The last step comes first: the connection is closed before its folder is removed.
            holder = Holder(unfinished.pop_all().close)
        store = partial(StoredRows, connection, holder, self.memory_limit)
        return replace(opened_table, close=holder.close, store=store)

    def _spill(self) -> Spill | None:
        """Return a new folder for one connection; None where no place to spill to was given."""
        if self.temp_directory is None:
            return None
        parent = Path(self.temp_directory)
        spill: Spill = hide_data_of_errors(
            "engine", "temp_directory cannot be used", lambda: Spill(parent)
        )
        return spill

    def _open_on(
        self,
        connection: DuckDBConnection,
        table: EventTable,
        columns: Sequence[str] | None,
        table_name: str | None,
        *,
        only_different: bool,
    ) -> OpenTable:
        """Return the table as one of this connection; files, frames and databases are read here.

        Args:
            connection: the connection.
            table: files, a frame or Arrow data, as for ``open_table``.
            columns: the columns that are needed; None: all.
            table_name: the table in a database file; None: not given.
            only_different: whether rows that repeat others may be left out. Those of frames, which
                are in memory already, are all kept.

        Raises:
            InvalidParameter: when it cannot be read.
        """
        statements = Statements(connection)
        read_frame = FRAMES.get(package_of(table))
        if read_frame is None:
            files = files_of_table(table)
            keep_rows: Keep = statements.keep
            if only_different:
                keep_rows = partial(keep_different, statements)
            return open_files(statements, files, columns, table_name, self.passes, keep_rows)
        return OpenTable(
            _arrow_table(connection, read_frame(table, columns)),
            statements.run,
            DUCKDB,
            self.passes,
            collated=False,  # our own connection compares bytes
            keep=statements.keep,
            stream=statements.stream,
            view=statements.view,
            load=statements.load,
        )


def _arrow_table(connection: DuckDBConnection, data: pa.Table | pa.RecordBatchReader) -> ir.Table:
    """Return Arrow data as a table of DuckDB's.

    A stream, and a table of types that Ibis does not know, is copied into one, which keeps to the
    memory limit and spills.

    Raises:
        MemoryFull: if the copy does not fit the memory limit and the place to spill to.
        InvalidParameter: if the data cannot be read.
    """
    ibis = import_of_extra("ibis", extra="data")
    is_stream = hasattr(data, "read_next_batch")
    if not is_stream and _is_known_to_ibis(data.schema):
        return ibis.memtable(data)

    def keep() -> ir.Table:
        """Return a table of DuckDB's with the rows of ``data``."""
        connection.con.register("dptopk_stream", data)
        connection.con.execute(
            "CREATE TEMP TABLE dptopk_events AS SELECT * FROM dptopk_stream"
        ).fetchall()
        connection.con.unregister("dptopk_stream")
        return connection.table("dptopk_events")

    return hide_data_of_errors("table", "the rows could not be read", keep, full=is_memory_full)


def _is_known_to_ibis(schema: pa.Schema) -> bool:
    """Return whether Ibis knows the types of all columns."""
    ibis = import_of_extra("ibis", extra="data")
    try:
        ibis.Schema.from_pyarrow(schema)
    except (KeyError, ValueError, TypeError, NotImplementedError):
        return False
    return True
