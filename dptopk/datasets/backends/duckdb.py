"""DuckDB, inside this process: files, frames, Arrow data, and DuckDB's own databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dptopk._internal import validate
from dptopk.datasets.backends.base import Backend, OpenTable, builtin, imported, without_data
from dptopk.datasets.backends.files import DIFFERING, Files, located, opened
from dptopk.datasets.backends.frames import FRAMES, library
from dptopk.errors import InvalidParameter

MEMORY = re.compile(r"[0-9]+([.][0-9]+)? ?(([KMGT]i?)?B|%)", re.IGNORECASE)
MOST_PASSES = 10_000  # each reads the whole table


def _encode(text: Any) -> Any:
    return builtin("encode", ("string",), "binary")(text)


def _decode(data: Any) -> Any:
    return builtin("decode", ("binary",), "string")(data)


def _hash(*columns: Any) -> Any:
    return builtin("hash", tuple(column.type() for column in columns), "uint64")(*columns)


def _mix(*columns: Any) -> Any:
    """Hashed again: DuckDB joins the hashes of several values by XOR, so the order of two items would be one bit's."""
    return _hash(_hash(*columns))


def _keep(connection: Any, name: str, expression: Any) -> Any:
    connection.con.execute(f"DROP TABLE IF EXISTS temp.{name}").fetchall()
    return connection.create_table(name, expression, temp=True)


def _stream(connection: Any, expression: Any, take: Callable[[Any], Any]) -> Any:
    """A query gives its rows as it finds them; a result would be there twice, in DuckDB and in Arrow."""
    import pyarrow as pa

    connection.create_view("dptopk_rows", expression, overwrite=True)
    return take(pa.RecordBatchReader.from_stream(connection.con.sql("FROM dptopk_rows")))


def _full(error: Exception) -> bool:
    """While batches are read, Arrow raises errors of its own with DuckDB's text."""
    return type(error).__name__ == "OutOfMemoryException" or "Out of Memory Error" in str(error)


DUCKDB = Backend(name="duckdb", encode=_encode, decode=_decode, mix=_mix, keep=_keep, full=_full)


@dataclass(frozen=True, kw_only=True)
class DuckDB:
    """The embedded engine: files, frames and Arrow tables are read by DuckDB inside this process.

    Args:
        memory_limit: such as "4GB"; beyond it DuckDB spills to disk. None = DuckDB's default (80% of the machine).
        threads: worker threads; None = one a core.
        temp_directory: where it spills; None = DuckDB's default.
        passes: split the users into this many parts by a hash, and query one part at a time: less memory and disk for
            more time. None = one pass, and twice as many whenever DuckDB says that memory and disk are full. The answer
            does not depend on it.

    >>> DuckDB(memory_limit="4GB", passes=4).passes
    4
    """

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | Path | None = None
    passes: int | None = None

    def __post_init__(self) -> None:
        validate.parameters(self, passes=partial(validate.count, at_most=MOST_PASSES))
        limit = self.memory_limit
        if limit is not None and not (isinstance(limit, str) and MEMORY.fullmatch(limit.strip())):
            raise InvalidParameter(
                f"memory_limit must be a size such as '4GB', got {limit!r}", parameter="memory_limit"
            )

    def connect(self) -> Any:
        """A new in-memory connection with these settings."""
        ibis = imported("ibis", extra="data")
        imported("duckdb", extra="data")
        folder = None if self.temp_directory is None else str(self.temp_directory)
        wanted = {"memory_limit": self.memory_limit, "threads": self.threads, "temp_directory": folder}
        settings = {name: value for name, value in wanted.items() if value is not None}
        return without_data("engine", "DuckDB refused its settings", lambda: ibis.duckdb.connect(**settings))

    def open(self, table: Any, *, columns: Sequence[str] | None, table_name: str | None) -> OpenTable:
        """Open the table on a separate connection."""
        connection = self.connect()
        try:
            return self._opened(connection, table, columns, table_name)
        except BaseException:
            connection.disconnect()
            raise

    def _opened(self, connection: Any, table: Any, columns: Sequence[str] | None, table_name: str | None) -> OpenTable:
        collated = False  # our own connection compares bytes, and only a database says otherwise for a column
        read, run = FRAMES.get(library(table)), connection.to_pyarrow
        keep: Callable[[str, Any], Any] = partial(_keep, connection)
        stream: Callable[..., Any] = partial(_stream, connection)
        if read is not None:
            found = _framed(connection, read(table, columns))
        else:
            files = located(table)
            opened(files.kind, partial(files.tell_apart, columns))
            collated = files.kind == "database"
            found = opened(files.kind, lambda: _FILES[files.kind](connection, files, table_name))
            run, keep, stream = files.steady(run), files.steady(keep), files.steady(stream)
            if files.kind in _PARSED:
                found = _once(keep, found, columns)
        return OpenTable(
            found, run, DUCKDB, self.passes, connection.disconnect, collated=collated, keep=keep, stream=stream
        )


def _once(keep: Callable[[str, Any], Any], found: Any, columns: Sequence[str] | None) -> Any:
    """The columns needed of a text file, parsed once: in a table of DuckDB's, which stays within its memory."""
    names = {name.casefold() for name in found.columns if columns is None or name in columns}
    chosen = found.select([name for name in found.columns if name.casefold() in names] or found.columns[:1])
    return without_data("table", "the engine cannot read the file", lambda: keep("dptopk_events", chosen), full=_full)


def _framed(connection: Any, data: Any) -> Any:
    """An Arrow table as it is; a stream goes into a table of DuckDB's, which keeps to its memory limit and spills."""
    ibis = imported("ibis", extra="data")
    if not hasattr(data, "read_next_batch"):
        return ibis.memtable(data)

    def keep() -> Any:
        connection.con.register("dptopk_stream", data)
        connection.con.execute("CREATE TEMP TABLE dptopk_events AS SELECT * FROM dptopk_stream").fetchall()
        connection.con.unregister("dptopk_stream")
        return connection.table("dptopk_events")

    return without_data("table", "the stream could not be read", keep)


def _text(connection: Any, files: Files, _: str | None) -> Any:
    plain = {"delim": files.delimiter, "quote": '"', "escape": '"', "skip": 0, "comment": ""}
    return connection.read_csv(list(files.paths), all_varchar=True, header=True, **plain)


def _json(connection: Any, files: Files, _: str | None) -> Any:
    paths = list(files.paths)
    names = connection.read_json(paths, format="newline_delimited").columns
    return connection.read_json(paths, format="newline_delimited", columns=dict.fromkeys(names, "VARCHAR"))


def _database(connection: Any, files: Files, table_name: str | None) -> Any:
    if table_name is None:
        raise InvalidParameter("table_name: say which table of the database file holds the events")
    quoted = files.paths[0].replace("'", "''")
    connection.con.execute(f"ATTACH '{quoted}' AS events_file (TYPE duckdb, READ_ONLY)").fetchall()
    table = partial(connection.table, table_name, database="events_file.main")
    return without_data("table_name", "the database has no such table", table)


def _parquet(connection: Any, files: Files, _: str | None) -> Any:
    """Folder names such as i=01 are text, whatever other folders are called; files must agree on their types."""
    paths = list(files.paths)
    described = "SELECT DISTINCT name, type, converted_type, logical_type FROM parquet_schema(?)"
    differing = f"SELECT count(*) FROM (SELECT name FROM ({described}) GROUP BY name HAVING count(*) > 1)"  # noqa: S608
    if len(paths) > 1 and connection.con.execute(differing, [paths]).fetchone()[0]:
        raise InvalidParameter(DIFFERING)
    return connection.read_parquet(paths, hive_types_autocast=False)


_PARSED = ("csv", "tsv", "json")
_FILES: dict[str, Callable[[Any, Files, str | None], Any]] = {
    "parquet": _parquet,
    "csv": _text,
    "tsv": _text,
    "json": _json,
    "database": _database,
}
