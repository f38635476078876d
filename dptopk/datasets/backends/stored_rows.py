"""Counts and labels in a table of DuckDB's, of which Python reads the counts, and of the labels
those of rows that are shown.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk.datasets.backends.base import Array, CountsAndLabels, arrays_of, hide_data_of_errors
from dptopk.histogram.stored_labels import StoredLabels

if TYPE_CHECKING:
    from ibis.backends.duckdb import Backend as DuckDBConnection

# Memory that is left to DuckDB for a table of labels where its memory is limited; the rest of the
# table is on disk.
SPARED_MEBIBYTES = 64
# Freed memory from which on DuckDB's allocator gives it back.
FLUSH_THRESHOLD = "16MiB"
# A size as DuckDB writes it, such as "1.5 MiB".
_SIZE = re.compile(r"([0-9.]+) (bytes|[KMGT]iB)")
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
# The table of the rows or labels that a query looks up.
_WANTED = "dptopk_wanted"
# The connection's database of tables of our own, which a checkpoint compresses, and its schema.
KEPT = "dptopk_kept"
SCHEMA = "main"
TABLES = f"{KEPT}.{SCHEMA}"


class Holder:
    """A count of who needs a connection, which is closed after the last one: each ``close`` undoes
    the opening or one ``hold``. A forked process closes nothing: the files are those of its parent.

    Args:
        close_connection: the function that closes it.
    """

    def __init__(self, close_connection: Callable[[], None]) -> None:
        self._close_connection = close_connection
        self._users = 1  # whoever has opened it
        self._lock = Lock()
        self._process = os.getpid()
        _OPEN_HOLDERS.add(self)

    def hold(self) -> None:
        """Count one more user of the connection."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Count one user less, and close the connection after the last one."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last and os.getpid() == self._process:
            self._close_connection()


_OPEN_HOLDERS: weakref.WeakSet[Holder] = weakref.WeakSet()
_HOLDERS_OF_PARENT: list[Holder] = []


def _keep_holders_of_parent() -> None:
    """Keep the connections of the parent in a forked process: if one was collected there, the files
    of the parent would be removed.
    """
    _HOLDERS_OF_PARENT.extend(_OPEN_HOLDERS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_holders_of_parent)


@dataclass(frozen=True)
class StoredRows:
    """The rows of a table of a connection's own, in their order; a row is known by its index, from
    0.

    Attributes:
        connection: an Ibis connection to DuckDB.
        holder: the count of who needs the connection, which labels that are not read yet hold open.
        memory_limit: the memory limit of DuckDB, such as "4GB"; None: its own.
        table: the table; its column ``item`` has the labels, or the rows of their names.
        names: the table of names in that case, with a column ``name``; None: the labels themselves.
        drop: further tables, which are not needed any more.
        lock: the lock that lets one thread at a time run a query.
    """

    connection: DuckDBConnection
    holder: Holder
    memory_limit: str | None
    table: str
    names: str | None = None
    drop: Sequence[str] = ()
    lock: AbstractContextManager[object] = field(default_factory=Lock)

    def forget(self) -> None:
        """Drop the tables that are not needed any more."""
        for name in self.drop:
            self.connection.con.execute(f"DROP TABLE IF EXISTS {TABLES}.{name}").fetchall()

    def compress(self) -> None:
        """Compress what all tables of the connection's own hold."""
        self.connection.con.execute(f"CHECKPOINT {KEPT}").fetchall()

    def columns(self, sums: Sequence[str]) -> CountsAndLabels:
        """Return the values of the columns ``sums``, and labels that are read when they are asked
        for.

        The labels keep the connection open as long as they live.
        """
        column_list = ", ".join(sums)
        counts = f"SELECT {column_list} FROM {TABLES}.{self.table}"  # noqa: S608
        with self._with_table_on_disk():
            columns = self._rows(counts)
        no_rows = f"SELECT item FROM {self._labels_query} LIMIT 0"  # noqa: S608
        kind = self.connection.con.sql(no_rows)
        is_integer = str(kind.types[0]) == "BIGINT"
        dtype: np.dtype[Any] = np.dtype(np.int64) if is_integer else np.dtypes.StringDType()
        size = len(columns[sums[0]])
        labels = StoredLabels(size, dtype, self.labels_of_rows, self.rows_of_labels)
        # The labels refer to this object, by the two methods they were given: it goes with them.
        self.holder.hold()
        weakref.finalize(self, self.holder.close)
        return CountsAndLabels(columns, labels)

    @property
    def _labels_query(self) -> str:
        """Return SQL for the rows (``row``, from 0) and their labels (``item``), as a part of a
        statement.
        """
        if self.names is None:
            return f"(SELECT rowid AS row, item FROM {TABLES}.{self.table})"  # noqa: S608
        joined_tables = f"{TABLES}.{self.table} AS ranked JOIN {TABLES}.{self.names} AS named"
        return (
            f"(SELECT ranked.rowid AS row, named.name AS item FROM {joined_tables} "  # noqa: S608
            "ON ranked.item = named.rowid)"
        )

    def labels_of_rows(self, rows: Array | None) -> Array:
        """Return the labels of the rows of these indices, in their order; None: of all rows."""
        if rows is None:
            query = f"SELECT item FROM {self._labels_query} ORDER BY row"  # noqa: S608
            result = self._rows(query)["item"]
        else:
            joined = f"{_WANTED} JOIN {self._labels_query} AS labelled ON labelled.row = wanted"
            query = f"SELECT item FROM {joined} ORDER BY place"  # noqa: S608
            result = self._rows(query, wanted=rows)["item"]
        if result.dtype.kind in "iu":  # integers, which were read in the smallest type
            return result.astype(np.int64)
        return result

    def rows_of_labels(self, labels: Sequence[Any]) -> Array:
        """Return the index of each label's row, int64, shape (labels,); -1 for a label without
        one.
        """
        rows = np.full(len(labels), -1, dtype=np.int64)
        joined = f"{_WANTED} JOIN {self._labels_query} AS labelled ON labelled.item = wanted"
        result = self._rows(f"SELECT place, row FROM {joined}", wanted=labels)  # noqa: S608
        rows[result["place"]] = result["row"]
        return rows

    def _rows(self, query: str, **wanted: Sequence[Any] | Array) -> dict[str, Array]:
        """Return the columns of a query's result, by name.

        Args:
            query: the statement.
            wanted: name=values: a column of the table ``dptopk_wanted``, which the statement may
                join; its column ``place`` numbers the values from 0. At most one.
        """

        def read() -> dict[str, Array]:
            """Run the query, for which the wanted values are a table of the connection."""
            import pyarrow as pa

            con = self.connection.con
            with self.lock:
                for name, values in wanted.items():
                    place = pa.array(range(len(values)), pa.int64())
                    keys = pa.table({name: pa.array(values), "place": place})
                    con.register(_WANTED, keys)
                try:
                    return arrays_of(pa.RecordBatchReader.from_stream(con.sql(query)))
                finally:
                    if wanted:
                        con.unregister(_WANTED)

        return hide_data_of_errors("table", "the engine could not read the labels", read)

    @contextmanager
    def _with_table_on_disk(self) -> Iterator[None]:
        """Let DuckDB hold the table on disk during a ``with`` block, if its memory was limited:
        Python takes memory for the counts. Memory that DuckDB frees goes back to the system at
        once.

        The limit comes back afterwards: labels that are shown are read by joins, which need it.
        """
        con = self.connection.con
        if self.memory_limit is None:
            yield
            return
        ((current_limit,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
        size = _SIZE.fullmatch(current_limit)
        # A limit that is lower already, or written in another way, stays.
        if size and float(size[1]) * _UNITS[size[2]] > SPARED_MEBIBYTES * _UNITS["MiB"]:
            # A version of DuckDB without one of these settings holds the table in memory.
            with suppress(Exception):
                con.execute(
                    f"SET allocator_bulk_deallocation_flush_threshold = '{FLUSH_THRESHOLD}'"
                )
                con.execute(f"SET allocator_flush_threshold = '{FLUSH_THRESHOLD}'")
                con.execute(f"SET memory_limit = '{SPARED_MEBIBYTES}MiB'").fetchall()
        try:
            yield
        finally:
            con.execute(f"SET memory_limit = '{self.memory_limit}'").fetchall()
