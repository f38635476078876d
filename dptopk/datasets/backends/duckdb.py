"""DuckDB, inside this process: files, frames, Arrow data, and DuckDB's own databases."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dptopk._internal import validate
from dptopk.datasets.backends.base import (
    REPEATED,
    SAMPLE,
    Backend,
    MemoryFull,
    OpenTable,
    RowStream,
    builtin,
    hide_data_of_errors,
    import_of_extra,
)
from dptopk.datasets.backends.files import (
    Files,
    common_columns,
    files_of_table,
    needed_names,
    read_or_refuse,
    refuse_array,
)
from dptopk.datasets.backends.frames import FRAMES, package_of
from dptopk.datasets.backends.quoting import quote_name, text_literal
from dptopk.datasets.backends.readable import ReadableFiles
from dptopk.datasets.backends.spill import Spill
from dptopk.datasets.backends.statements import Statements, attach_own_database, keep_table
from dptopk.datasets.backends.stored_rows import Holder, StoredRows
from dptopk.datasets.backends.total import GROWING
from dptopk.datasets.text_files import LONGEST_LINE
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends.duckdb import Backend as DuckDBConnection

    from dptopk.datasets.backends.inputs import EventTable

    # Stores the rows of an expression in a table of a name, and returns that table.
    Keep = Callable[[str, ir.Table], ir.Table]

_LOG = logging.getLogger(__name__)
# A size or a share of the memory, as DuckDB reads it.
MEMORY = re.compile(r"[0-9]+([.][0-9]+)? ?(([KMGT]i?)?B|%)", re.IGNORECASE)
_FIRST_LINES = 20_000  # the lines of JSON that are looked at: their keys are the columns
MOST_PASSES = 10_000  # each reads the whole table
# DuckDB starts as many threads as it is told, each with memory of its own.
MOST_THREADS = 1024
# Of a copy of a text file: its quotes are doubled, and each of its cells has some.
LONGEST_COPIED_LINE = 4 * LONGEST_LINE


def _encode(text: ir.StringValue) -> ir.BinaryValue:
    """Return the bytes of a text in UTF-8, by DuckDB's function."""
    return builtin("encode", ("string",), "binary")(text)


def _decode(data: ir.BinaryValue) -> ir.StringValue:
    """Return the text of bytes in UTF-8, by DuckDB's function."""
    return builtin("decode", ("binary",), "string")(data)


def _hash(*columns: ir.Value) -> ir.IntegerValue:
    """Return DuckDB's own 64-bit hash of some columns."""
    types = tuple(column.type() for column in columns)
    return builtin("hash", types, "uint64")(*columns)


def _mix(*columns: ir.Value) -> ir.IntegerValue:
    """Return a 64-bit hash of some columns: DuckDB's hash of their joint hash.

    DuckDB joins the hashes of several values by XOR. Without the second hash the order of two items
    would be decided for all users by one bit of the user's hash: the highest one in which the
    hashes of the items differ.
    """
    return _hash(_hash(*columns))


# What DuckDB says where memory is short: of its own limit, and of an address space that is too
# small, in which a page of a Parquet file cannot be decompressed. A damaged page says the latter
# too, and fails with any number of passes.
FULL = ("Out of Memory Error", "ZSTD Decompression failure", "bad_alloc", "Allocation failure")


def _is_memory_full(error: Exception) -> bool:
    """Return whether an error says that memory is short; while batches are read, Arrow raises
    errors of its own with DuckDB's text.
    """
    if type(error).__name__ == "OutOfMemoryException" or isinstance(error, MemoryError):
        return True
    return any(text in str(error) for text in FULL)


def _is_nan(column: ir.FloatingColumn) -> ir.BooleanValue:
    """Return whether each number of a column is NaN, asked of it as the element of a list.

    DuckDB answers isnan of a column by the statistics of a Parquet file, which say nothing about
    NaN; of an element of a list there are none.
    """
    import ibis

    return ibis.array([column])[0].isnan()


def _decimal_or_null(column: ir.DecimalColumn) -> ir.DecimalColumn:
    """Return decimals with NULL for those of more digits than their type has, on which a cast or a
    comparison fails.

    Writers of Parquet files and Arrow data need not count digits, and DuckDB itself hands integers
    of 128 bits over as decimals of 38 digits.
    """
    import ibis

    kind = column.type()
    digits = "9" * kind.precision
    whole_digits = kind.precision - kind.scale
    largest = f"{digits[:whole_digits]}.{digits[whole_digits:]}"
    # The constants are of the column's type, so that the comparison converts no value. A long
    # integer would be converted, and has no value that DuckDB fails on.
    is_in_range = column.between(
        ibis.literal(f"-{largest}").cast(kind), ibis.literal(largest).cast(kind)
    )
    is_integer = builtin("typeof", (kind,), "string")(column) == "HUGEINT"
    return ibis.ifelse(ibis.ifelse(is_integer, True, is_in_range), column, ibis.null())


def _total(operation: ops.Value) -> ir.Value | None:
    """Return the operation in DuckDB's TRY, which gives NULL for a row where it fails; None for an
    operation that TRY cannot make safe, so that it is refused: its texts may fill the memory, or
    its error ends the connection.

    The value is cast to the type that Ibis states, by which the next operation is judged. DuckDB's
    own may be another: a day and an interval make a time in DuckDB and a day in Ibis; a choice
    between a UUID and a text is a UUID in DuckDB, for which other texts fail, and a text in Ibis.

    Raises:
        InvalidParameter: for a constant that is no regular expression.
    """
    import ibis.expr.operations as ops

    if type(operation).__name__ in GROWING or _writes_json(operation):
        return None
    _refuse_invalid_pattern(operation)
    expression = operation.to_expr()
    kind = expression.type()
    if kind.is_string() or kind.is_date() or kind.is_timestamp() or kind.is_time():
        expression = ops.Cast(operation, kind).to_expr()
    return builtin("try", (kind,), kind)(expression)


def _writes_json(operation: ops.Value) -> bool:
    """Return whether an operation writes values of other types as JSON. For some times it ends in
    an internal error, which TRY does not catch and which ends the connection.
    """
    import ibis.expr.operations as ops

    is_cast = isinstance(operation, ops.Cast | ops.TryCast)
    return is_cast and operation.to.is_json() and not operation.arg.dtype.is_string()


def _refuse_invalid_pattern(operation: ops.Value) -> None:
    """Refuse a constant that is no regular expression, or no replacement for one, which would give
    NULL for every row.

    Raises:
        InvalidParameter: with the constant, which is the caller's.
    """
    import ibis.expr.operations as ops

    if not isinstance(operation, ops.RegexSearch | ops.RegexExtract | ops.RegexReplace):
        return
    parts = [operation.pattern]
    if isinstance(operation, ops.RegexReplace) and isinstance(operation.replacement, ops.Literal):
        parts.append(operation.replacement)
    # A pattern of a column is judged row by row, and NULL gives NULL: neither is a mistake.
    if any(not isinstance(part, ops.Literal) or part.value is None for part in parts):
        return
    texts = [part.value for part in parts]
    try:
        _replace_in_empty_text(*texts)
    except Exception as error:
        listed = " and ".join(map(repr, texts))
        raise InvalidParameter(f"where: DuckDB takes no regular expression {listed}") from error


@cache
def _replace_in_empty_text(pattern: str, replacement: str = "") -> None:
    """Let DuckDB read a regular expression and a replacement, by using them once."""
    duckdb = import_of_extra("duckdb", extra="data")
    with duckdb.connect() as connection:
        query = "SELECT regexp_replace('', ?, ?)"
        connection.execute(query, [pattern, replacement]).fetchall()


DUCKDB = Backend(
    name="duckdb",
    encode=_encode,
    decode=_decode,
    mix=_mix,
    keep=keep_table,
    full=_is_memory_full,
    nan=_is_nan,
    decimals=38,
    decimal_or_null=_decimal_or_null,
    total=_total,
)


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
            full=_is_memory_full,
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
                keep_rows = partial(_keep_different, statements)
            return _open_files(statements, files, columns, table_name, self.passes, keep_rows)
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


def _open_files(
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


def _keep_different(statements: Statements, name: str, rows: ir.Table) -> ir.Table:
    """Store the different ones of some rows if many of the first ones repeat others, and they fit
    in memory; else all rows. No count of different rows depends on it.

    Args:
        statements: the way to run expressions on the connection.
        name: the name of the table.
        rows: the rows, as an expression.
    """
    first = rows.limit(SAMPLE)
    row = _hash(*(first[column] for column in first.columns))
    numbers = first.agg(rows=first.count(), different=row.nunique())
    connection = statements.connection
    # A relation of DuckDB's would look at the beginning of the file once more.
    ((size, different),) = connection.con.execute(connection.compile(numbers)).fetchall()
    if different < REPEATED * size:
        try:
            return statements.keep(name, rows.distinct())
        except Exception as error:
            if not _is_memory_full(error):
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
        full=_is_memory_full,
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

    return hide_data_of_errors("table", "the rows could not be read", keep, full=_is_memory_full)


def _is_known_to_ibis(schema: pa.Schema) -> bool:
    """Return whether Ibis knows the types of all columns."""
    ibis = import_of_extra("ibis", extra="data")
    try:
        ibis.Schema.from_pyarrow(schema)
    except (KeyError, ValueError, TypeError, NotImplementedError):
        return False
    return True


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
