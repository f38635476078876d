"""The rows of files as tables of a connection to DuckDB: text with separators, JSON lines, Parquet
files, and tables of DuckDB's own databases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from glob import escape
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import (
    REPEATED,
    SAMPLE,
    MemoryFull,
    OpenTable,
    RowStream,
    hide_data_of_errors,
    import_of_extra,
)
from dptopk.datasets.backends.duckdb_operations import DUCKDB, hash_of, is_memory_full
from dptopk.datasets.backends.files import (
    Files,
    common_columns,
    needed_names,
    read_or_refuse,
    refuse_array,
)
from dptopk.datasets.backends.quoting import quote_name, text_literal
from dptopk.datasets.backends.readable import ReadableFiles
from dptopk.datasets.backends.statements import Statements
from dptopk.datasets.text_files import LONGEST_LINE
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends.duckdb import Backend as DuckDBConnection

    # Stores the rows of an expression in a table of a name, and returns that table.
    Keep = Callable[[str, ir.Table], ir.Table]

_LOG = logging.getLogger(__name__)
_FIRST_LINES = 20_000  # the lines of JSON that are looked at: their keys are the columns
# Of a copy of a text file: its quotes are doubled, and each of its cells has some.
LONGEST_COPIED_LINE = 4 * LONGEST_LINE


def open_files(
    statements: Statements,
    files: Files,
    columns: Sequence[str] | None,
    table_name: str | None,
    passes: int | None,
    keep_rows: Keep,
) -> OpenTable:
    """Return files, or a table of a database file, as a table of this connection, whose answers are
    all of one state of the files.

    Args:
        statements: the way to run expressions on the connection.
        files: the files.
        columns: the columns that are needed; None: all.
        table_name: the table in a database file.
        passes: in how many parts the users are counted, as for ``DuckDB``.
        keep_rows: the function that stores the rows of files that are parsed once.
    """
    connection = statements.connection
    run: Callable[[ir.Table], pa.Table] = statements.run
    keep: Keep = statements.keep
    stream: RowStream = statements.stream
    read_or_refuse(files.kind, partial(files.refuse_repeated_columns, columns))
    if files.is_text:
        opened = _text_table(connection, files.with_check_of_files(keep_rows), files, columns)
    elif files.kind == "parquet":
        read_parquet = partial(_parquet_rows, connection, files, columns)
        opened = read_or_refuse(files.kind, read_parquet)
    elif files.kind == "json":
        opened = _json_table(connection, files.with_check_of_files(keep_rows), files, columns)
    else:
        read_file = _FILES[files.kind]
        opened = read_or_refuse(files.kind, lambda: read_file(connection, files, table_name))
    if files.kind == "parquet":
        if not _are_integers(opened, columns):
            connection.con.execute(f"SET disabled_optimizers = '{_BY_STATISTICS}'")
        rows = ReadableFiles(connection, opened.op().name, files.paths, columns)
        read_or_refuse(files.kind, rows.read_once)
        run = rows.with_second_attempt(run)
        keep = rows.with_second_attempt(keep)
        stream = rows.with_second_attempt(stream)
    run = files.with_check_of_files(run)
    keep = files.with_check_of_files(keep)
    stream = files.with_check_of_files(stream)
    return OpenTable(
        opened,
        run,
        DUCKDB,
        passes,
        collated=files.kind == "database",  # only its columns may have a collation
        keep=keep,
        stream=stream,
        view=statements.view,
        load=statements.load,
    )


def keep_different(statements: Statements, name: str, rows: ir.Table) -> ir.Table:
    """Store the different ones of some rows if many of the first ones repeat others, and they fit
    in memory; else all rows. No count of different rows depends on it.

    Args:
        statements: the way to run expressions on the connection.
        name: the name of the table.
        rows: the rows, as an expression.
    """
    first = rows.limit(SAMPLE)
    row = hash_of(*(first[column] for column in first.columns))
    numbers = first.agg(rows=first.count(), different=row.nunique())
    connection = statements.connection
    # A relation of DuckDB's would look at the beginning of the file once more.
    ((size, different),) = connection.con.execute(connection.compile(numbers)).fetchall()
    if different < REPEATED * size:
        try:
            return statements.keep(name, rows.distinct())
        except Exception as error:
            if not is_memory_full(error):
                raise
    return statements.keep(name, rows)


def _stored_columns(keep: Keep, opened: ir.Table, columns: Sequence[str] | None) -> ir.Table:
    """Return a table of DuckDB's with the needed columns of a text file: so the file is parsed
    once, and the rows stay within the memory limit.

    Args:
        keep: the function that stores the rows of an expression in a table of DuckDB's.
        opened: the rows of the file.
        columns: the columns that are needed; None: all.
    """
    wanted = needed_names(columns, opened.columns)
    names = [name for name in opened.columns if wanted is None or name.casefold() in wanted]
    chosen = opened.select(names or opened.columns[:1])  # a table has at least one column
    return hide_data_of_errors(
        "table",
        "the engine cannot read the file",
        lambda: keep("dptopk_events", chosen),
        full=is_memory_full,
    )


def _text_table(
    connection: DuckDBConnection,
    keep: Keep,
    files: Files,
    columns: Sequence[str] | None,
) -> ir.Table:
    """Return a table of DuckDB's with the needed columns of text files of any separator and
    encoding.

    Plain files are read by DuckDB itself, strictly. Where it refuses them for some row, and for all
    other files, it reads a copy that our rules make. Rows that DuckDB reads strictly are the same
    in each, so that no row decides what another one means.

    Args:
        connection: the connection.
        keep: the function that stores the rows of an expression in a table of DuckDB's.
        files: the files.
        columns: the columns that are needed; None: all.
    """
    if read_or_refuse(files.kind, partial(files.is_read_alike, columns)):
        try:
            return _stored_columns(keep, _FILES[files.kind](connection, files, None), columns)
        except MemoryFull:  # a copy would not be smaller
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the copy may be read
            _LOG.info("a text file is copied by rule after %s", type(error).__name__)

    def read_copy() -> ir.Table:
        """Return the table of a copy of the files that is written by our own rules."""
        with files.rewritten_copies(columns) as copies:
            table = _read_text(connection, copies, LONGEST_COPIED_LINE)
            return _stored_columns(keep, table, columns)

    return read_or_refuse(files.kind, read_copy)


def _exact_patterns(files: Files) -> list[str]:
    """Return patterns of DuckDB's that match these paths alone: it takes a name such as "a*.csv"
    for a pattern, and would read other files with it, or some twice.
    """
    return [escape(path) for path in files.paths]


def _text_rows(connection: DuckDBConnection, files: Files, _: str | None) -> ir.Table:
    """Return the rows of text files with commas or tabs, all columns as text."""
    return _read_text(connection, files, LONGEST_LINE)


def _read_text(connection: DuckDBConnection, files: Files, longest: int) -> ir.Table:
    """Return the rows of text files, all columns as text; a row that breaks the rules of the format
    makes DuckDB refuse the file.

    Args:
        connection: the connection that reads the files.
        files: the files.
        longest: the largest size of a line, in bytes.
    """
    options = {
        "all_varchar": "true",
        "header": "true",
        "delim": text_literal(files.delimiter),
        "quote": "'\"'",
        "escape": "'\"'",
        "skip": "0",
        "comment": "''",
        "max_line_size": str(longest),
        # A copy that our rules make has the columns of the header alone.
        "hive_partitioning": "false",
    }
    return _view_of_texts(connection, _reader("read_csv", files, options))


def _view_of_texts(connection: DuckDBConnection, reader: str) -> ir.Table:
    """Return a view of what a reader reads (``_reader``), whose columns are all texts.

    Its columns are read from the catalogue: to describe the view, DuckDB would look at the
    beginning of the file once more.
    """
    ibis = import_of_extra("ibis", extra="data")
    run = connection.con.execute
    run(f"CREATE OR REPLACE TEMP VIEW dptopk_texts AS FROM {reader}").fetchall()
    in_order = "WHERE table_name = 'dptopk_texts' ORDER BY column_index"
    names = run(f"SELECT column_name FROM duckdb_columns() {in_order}").fetchall()  # noqa: S608
    return ibis.table({name: "string" for (name,) in names}, name="dptopk_texts")


def _reader(function: str, files: Files, options: Mapping[str, str]) -> str:
    """Return a call of DuckDB's function that reads these files, as a part of a statement."""
    paths = ", ".join(map(text_literal, _exact_patterns(files)))
    stated = "".join(f", {name}={value}" for name, value in options.items())
    return f"{function}([{paths}]{stated})"


def _json_table(
    connection: DuckDBConnection,
    keep: Keep,
    files: Files,
    columns: Sequence[str] | None,
) -> ir.Table:
    """Return a table of DuckDB's with the needed columns of files with one JSON object a line.

    Args:
        connection: the connection.
        keep: the function that stores the rows of an expression in a table of DuckDB's.
        files: the files.
        columns: the columns that are needed; None: all.
    """

    def read() -> ir.Table:
        """Return the table of the lines that are not too long."""
        refuse_array(files.paths)
        with files.without_long_lines() as short:
            return _stored_columns(keep, _json_rows(connection, short), columns)

    return read_or_refuse(files.kind, read)


def _json_rows(connection: DuckDBConnection, files: Files) -> ir.Table:
    """Return the rows of files with one JSON object a line: a line that holds none has no value in
    any column.
    """
    run = connection.con.execute
    paths = ", ".join(map(text_literal, _exact_patterns(files)))
    lines = f"FROM read_ndjson_objects([{paths}], ignore_errors=true)"
    cells = [
        f"json_extract_string(json, {_pointer(name)}) AS {quote_name(name)}"
        for name in _keys_of_first_lines(connection, lines)
    ]
    chosen = ", ".join(cells) or "json"  # without any key the lines themselves are a column
    run(f"CREATE OR REPLACE TEMP VIEW dptopk_json AS SELECT {chosen} {lines}").fetchall()
    return connection.table("dptopk_json")


def _keys_of_first_lines(connection: DuckDBConnection, lines: str) -> list[str]:
    """Return the keys of the objects in the first lines of JSON, the most frequent one first; of
    keys that are alike but for case only the most frequent one.

    Args:
        connection: the connection.
        lines: the lines, as a part of a statement that begins with FROM.
    """
    first_lines = f"SELECT json {lines} LIMIT {_FIRST_LINES}"
    objects = f"FROM ({first_lines}) WHERE json_type(json) = 'OBJECT'"
    keys = f"SELECT unnest(json_keys(json)) AS key {objects}"
    counted = f"SELECT key, count(*) AS n FROM ({keys}) WHERE key <> ''"  # noqa: S608
    query = f"{counted} GROUP BY key ORDER BY n DESC, key"
    name_by_case: dict[str, str] = {}
    for name, _ in connection.con.execute(query).fetchall():
        name_by_case.setdefault(name.casefold(), name)
    return list(name_by_case.values())


def _pointer(key: str) -> str:
    """Return a JSON pointer to the value of a key, as a literal of SQL."""
    return text_literal("/" + key.replace("~", "~0").replace("/", "~1"))


def _database_table(connection: DuckDBConnection, files: Files, table_name: str | None) -> ir.Table:
    """Return a table of a database file, which is attached for reading only.

    Args:
        connection: the connection.
        files: the database file, one.
        table_name: the name of the table; None: not given.

    Raises:
        InvalidParameter: without a name of the table, or when the database has none of that name.
    """
    if table_name is None:
        raise InvalidParameter("table_name: say which table of the database file holds the events")
    path = text_literal(files.paths[0])
    connection.con.execute(f"ATTACH {path} AS events_file (TYPE duckdb, READ_ONLY)").fetchall()
    table = partial(connection.table, table_name, database="events_file.main")
    return hide_data_of_errors("table_name", "the database has no such table", table)


# These answer conditions from the statistics of a Parquet file, which leave NaN out, and take text
# that nobody can read for a value: whether it is read, and then missing, would depend on the rows
# of others. Of integers the statistics are exact, and save a quarter of the time.
_BY_STATISTICS = "statistics_propagation,filter_pushdown"


def _parquet_rows(
    connection: DuckDBConnection, files: Files, needed_columns: Sequence[str] | None
) -> ir.Table:
    """Return the needed columns of Parquet files, which must agree on their types. Values from the
    names of folders, such as i=01, are text, whatever other folders are called.

    Other columns are not named: by its statistics DuckDB would convert the extremes of all that
    are, and refuse the file for one of them.
    """
    names = common_columns(files.paths, needed_columns)
    of_folders = files.columns_of_folders(names)
    options = {"hive_types_autocast": "false"}
    if not of_folders:
        options["hive_partitioning"] = "false"
    reader = _reader("read_parquet", files, options)
    opened = connection.con.sql(f"FROM {reader}")
    # Columns of ``opened`` alone are missing in some file, or the names of folders above.
    present = {name.casefold() for name in (*names, *of_folders)}
    needed = needed_names(needed_columns, (*names, *of_folders)) or present
    columns = [name for name in opened.columns if name.casefold() in present & needed]
    column_list = ", ".join(map(quote_name, columns))
    query = f"SELECT {column_list} FROM {reader}"  # noqa: S608
    connection.con.execute(f"CREATE OR REPLACE TEMP VIEW dptopk_parquet AS {query}").fetchall()
    return connection.table("dptopk_parquet")


def _are_integers(table: ir.Table, columns: Sequence[str] | None) -> bool:
    """Return whether the needed columns of a table (None: all) are signed integers."""
    kinds = table.schema()
    needed = kinds.names if columns is None else columns
    return all(name in kinds and kinds[name].is_signed_integer() for name in needed)


# A format of files -> the function that returns their rows.
_FILES: dict[str, Callable[[DuckDBConnection, Files, str | None], ir.Table]] = {
    "csv": _text_rows,
    "tsv": _text_rows,
    "database": _database_table,
}
