"""Where events live and which engine reads them: DuckDB inside this process, or Spark, both through Ibis.

An engine turns what the caller hands in (a file, a frame, an Ibis table) into an Ibis table, and runs expressions on
it. Nothing about the *meaning* of a table may depend on its data: text files carry no types, so every column of theirs
is text (a type guessed from a sample could merge the labels "01" and "1" for the sake of one user's rows).
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dptopk import _validate as validate
from dptopk.errors import InvalidParameter
from dptopk.labels import label_text, missing

__all__ = ["DuckDB", "Engine", "OpenTable", "Spark", "imported", "open_table", "without_data"]

# What a path's name says about its format; compression is told by a further suffix.
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".duckdb": "database", ".ddb": "database", ".db": "database",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
_DELIMITERS = {"csv": ",", "tsv": "\t"}

# Ibis backends on which the tests have run -> what their encode() and decode() want besides the text.
_CHARSET: dict[str, tuple[str, ...]] = {"duckdb": (), "pyspark": ("UTF-8",)}
# Their own 64-bit hash of several values, and its type. DuckDB joins the hashes of several values by XOR, so that the
# order of two items would depend on single bits: its hash of that hash does not.
_HASH = {"duckdb": ("hash", "uint64"), "pyspark": ("xxhash64", "int64")}
_HASHED_AGAIN = ("duckdb",)


@dataclass(frozen=True)
class OpenTable:
    """An Ibis table and the way to run expressions on it.

    Attributes:
        table: the events, one row an event.
        run: takes an Ibis expression, returns a pyarrow.Table.
        passes: into how many parts the users are split, one query each, so that a query fits in memory.
        close: gives back what was opened for this table; called on leaving a ``with`` block.
        backend: the name of its Ibis backend.
        collated: whether its text may have a collation, in which different texts are equal.
        together: takes an expression with a column ``user``, returns it with each user's rows in one place, where that
            saves the engine later shuffles.
        narrow: whether grouping by 64-bit codes of texts, and joining the texts later, is faster than by the texts.
    """

    table: Any
    run: Callable[[Any], Any]
    passes: int = 1
    close: Callable[[], Any] = lambda: None
    backend: str = "duckdb"
    collated: bool = True
    together: Callable[[Any], Any] = lambda events: events
    narrow: bool = False

    def __enter__(self) -> OpenTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def exact(self, column: Any) -> Any:
        """A column with text as its bytes, where "A" and "a" might be equal: one user's spelling would name all."""
        is_text = column.type().is_string()
        return _codec("encode", self.backend)(column) if is_text and self.collated else column

    def mix(self, *columns: Any) -> Any:
        """The engine's own 64-bit hash of some columns or literals: fast; the same for one version of the engine."""
        mixed = _mixer(self.backend, tuple(column.type() for column in columns))(*columns)
        return _mixer(self.backend, (mixed.type(),))(mixed) if self.backend in _HASHED_AGAIN else mixed

    def text(self, column: Any) -> Any:
        """A column from ``exact`` as text."""
        return _codec("decode", self.backend)(column) if column.type().is_binary() else column.cast("string")


@dataclass(frozen=True, kw_only=True)
class DuckDB:
    """The embedded engine: files, frames and Arrow tables are read by DuckDB inside this process.

    Args:
        memory_limit: such as "4GB"; beyond it DuckDB spills to disk. None = DuckDB's default (80% of the machine).
        threads: worker threads; None = one a core.
        temp_directory: where it spills; None = DuckDB's default.
        passes: split the users into this many parts by a hash, and query one part at a time: less memory and disk for
            more time. The answer does not depend on it.

    >>> DuckDB(memory_limit="4GB", passes=4).passes
    4
    """

    memory_limit: str | None = None
    threads: int | None = None
    temp_directory: str | Path | None = None
    passes: int = 1

    def __post_init__(self) -> None:
        threads = None if self.threads is None else validate.count(threads=self.threads)
        validate.assign(self, passes=validate.count(passes=self.passes), threads=threads)

    def connect(self) -> Any:
        """A new in-memory connection with these settings."""
        ibis = imported("ibis", extra="data")
        imported("duckdb", extra="data")
        wanted = {
            "memory_limit": self.memory_limit,
            "threads": self.threads,
            "temp_directory": None if self.temp_directory is None else str(self.temp_directory),
        }
        settings = {name: value for name, value in wanted.items() if value is not None}
        return without_data("engine", "DuckDB refused its settings", lambda: ibis.duckdb.connect(**settings))

    def open(self, table: Any, *, columns: Sequence[str] | None, table_name: str | None) -> OpenTable:
        """The table on a connection of its own."""
        connection = self.connect()
        try:
            return self._opened(connection, table, columns, table_name)
        except BaseException:
            connection.disconnect()
            raise

    def _opened(self, connection: Any, table: Any, columns: Sequence[str] | None, table_name: str | None) -> OpenTable:
        collated = False  # our own connection compares bytes, and only a database says otherwise for a column
        read = _DUCKDB_FRAMES.get(_library(table))
        if read is not None:
            ibis = imported("ibis", extra="data")
            opened = ibis.memtable(_plain_columns(read(table, columns)))
        else:
            path, kind = _located(table)
            collated = kind == "database"
            opened = _reading(kind, lambda: _DUCKDB_FILES[kind](connection, path, table_name))
        run, close = connection.to_pyarrow, connection.disconnect
        return OpenTable(opened, run, self.passes, close, collated=collated, narrow=True)


@dataclass(frozen=True, kw_only=True)
class Spark:
    """Apache Spark: files and Spark data frames are read by a Spark session.

    Args:
        session: a pyspark.sql.SparkSession; None = the active one, or a new local one.
    """

    session: Any = None

    def open(self, table: Any, *, columns: Sequence[str] | None, table_name: str | None) -> OpenTable:  # noqa: ARG002
        """The table in the session."""
        ibis = imported("ibis", extra="spark")
        imported("pyspark", extra="spark")
        session = self.session or without_data("engine", "no Spark session could be started", _spark_session)
        connection = ibis.pyspark.connect(session)
        if _library(table) == "pyspark":
            frame = table
        else:
            path, kind = _located(table)
            if kind not in _SPARK_FILES:
                raise InvalidParameter(f"table: Spark does not read a {kind} file")
            frame = _reading(kind, lambda: _SPARK_FILES[kind](session, path))
        views = _SparkViews(session, connection)
        opened, run = views.of(frame), connection.to_pyarrow
        return OpenTable(opened, run, close=views.drop, backend="pyspark", together=views.together)


class _SparkViews:
    """Temporary views of a session, by names of their own; dropped together."""

    def __init__(self, session: Any, connection: Any) -> None:
        self.session, self.connection, self.names = session, connection, list[str]()

    def of(self, frame: Any) -> Any:
        """An Ibis table of a Spark data frame."""
        self.names.append(f"dptopk_events_{secrets.token_hex(8)}")
        frame.createOrReplaceTempView(self.names[-1])
        return self.connection.table(self.names[-1])

    def together(self, events: Any) -> Any:
        """One shuffle by user here saves those of the grouping and of the ranking."""
        return self.of(self.session.sql(self.connection.compile(events)).repartition("user"))

    def drop(self) -> None:
        """Drop all of them."""
        for name in self.names:
            self.session.catalog.dropTempView(name)


Engine = DuckDB | Spark


def open_table(
    table: Any, engine: Engine | None, *, columns: Sequence[str] | None = None, table_name: str | None = None
) -> OpenTable:
    """The events as an Ibis table, on the engine that holds them.

    Args:
        table: an Ibis table (on DuckDB or Spark), a Spark data frame, a pandas or polars frame, an Arrow table, or the
            path of a file: Parquet (also a directory or a glob), CSV, TSV, JSON lines, a DuckDB database.
        engine: DuckDB(...) or Spark(...); None = the engine that holds the table, DuckDB for files and frames.
        columns: the columns needed, None = all; others are not converted.
        table_name: the table in a database file.

    Raises:
        InvalidParameter: when the table cannot be read, naming the argument and no value of the data.
        ImportError: when an extra is missing, saying what to install.
    """
    if _library(table) == "ibis":
        return _open_ibis(table, engine)
    if engine is None:
        engine = Spark() if _library(table) == "pyspark" else DuckDB()
    if not isinstance(engine, DuckDB | Spark):
        raise InvalidParameter(f"engine must be DuckDB(...) or Spark(...), got {type(engine).__name__}")
    return engine.open(table, columns=columns, table_name=table_name)


def _open_ibis(table: Any, engine: Engine | None) -> OpenTable:
    """An Ibis table brings its own connection; on DuckDB, DuckDB(passes=) still says in how many parts to ask."""
    import ibis.expr.types as ir

    if not isinstance(table, ir.Table):
        raise InvalidParameter(f"table must be an Ibis table, got {type(table).__name__}")
    backend = table.get_backend()
    if backend.name not in _CHARSET:
        raise InvalidParameter(f"table: the Ibis backend {backend.name!r} is untried; use {', '.join(_CHARSET)}")
    passes = engine.passes if isinstance(engine, DuckDB) and backend.name == "duckdb" else 1
    if engine not in (None, DuckDB(passes=passes)):
        raise InvalidParameter("engine: an Ibis table has its own connection; only DuckDB(passes=) applies, on DuckDB")
    return OpenTable(table, backend.to_pyarrow, passes, backend=backend.name, narrow=backend.name == "duckdb")


def _of_one(_a: Any) -> None: ...


def _of_two(_a: Any, _b: Any) -> None: ...


def _of_three(_a: Any, _b: Any, _c: Any) -> None: ...


_TAKES: dict[int, Callable[..., None]] = {
    1: _of_one,
    2: _of_two,
    3: _of_three,
}  # Ibis reads how many arguments there are


@cache
def _mixer(backend: str, types: tuple[Any, ...]) -> Callable[..., Any]:
    """The engine's own hash as a function of Ibis columns of these types."""
    import ibis

    name, gives = _HASH[backend]
    stub = _TAKES[len(types)]
    made: Callable[..., Any] = ibis.udf.scalar.builtin(stub, name=name, signature=(types, gives))
    return made


@cache
def _codec(name: str, backend: str) -> Callable[[Any], Any]:
    """The engine's own encode (text to bytes) or decode (bytes to text), as a function of Ibis columns."""
    import ibis
    import ibis.expr.datatypes as dt

    charset = _CHARSET[backend]
    takes, gives = (dt.string, dt.binary) if name == "encode" else (dt.binary, dt.string)
    signature = ((takes, *[dt.string] * len(charset)), gives)
    stub = (lambda text, charset: None) if charset else (lambda text: None)  # noqa: ARG005 - only its arity counts
    function = ibis.udf.scalar.builtin(stub, name=name, signature=signature)
    return lambda column: function(column, *charset)


def without_data(argument: str, what: str, action: Callable[[], Any]) -> Any:
    """Run an action of an engine; any error of its becomes InvalidParameter, since engines quote rows in messages.

    A function and not a context manager, so that the engine's error is not kept as the context of ours either.
    """
    try:
        return action()
    except (InvalidParameter, ImportError):
        raise
    except Exception as error:  # noqa: BLE001 - engines raise errors of many unrelated types
        failure = type(error).__name__
    raise InvalidParameter(f"{argument}: {what} ({failure})")


def _reading(kind: str, action: Callable[[], Any]) -> Any:
    return without_data("table", f"the {kind} file could not be opened", action)


def imported(module: str, *, extra: str) -> Any:
    """A module of an optional dependency, or an ImportError that says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"events need {package}: install it with pip install 'dptopk[{extra}]'") from error


def _library(table: Any) -> str:
    """The package that a table comes from, told without importing it."""
    return type(table).__module__.partition(".")[0]


def _located(table: Any) -> tuple[str, str]:
    """A path that exists, or a glob, and its format."""
    if not isinstance(table, str | Path):
        raise InvalidParameter(f"table must be a path, a frame, an Arrow or an Ibis table, got {type(table).__name__}")
    path = Path(table)
    if path.is_dir():
        return str(path / "**" / "*.parquet"), "parquet"
    pattern = str(path.relative_to(path.anchor))
    if not path.exists() and not ("*" in pattern and any(Path(path.anchor).glob(pattern))):
        raise InvalidParameter(f"table: there is no file {str(table)!r}")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        raise InvalidParameter(f"table: the format of {path.name!r} is none of {', '.join(_FORMATS)}")
    return str(path), kind


def _duckdb_text(connection: Any, path: str, _: str | None) -> Any:
    delimiter = _DELIMITERS[_located(path)[1]]
    return connection.read_csv(
        path, all_varchar=True, header=True, delim=delimiter, quote='"', escape='"', skip=0, comment=""
    )


def _duckdb_json(connection: Any, path: str, _: str | None) -> Any:
    names = connection.read_json(path, format="newline_delimited").columns
    return connection.read_json(path, format="newline_delimited", columns=dict.fromkeys(names, "VARCHAR"))


def _duckdb_database(connection: Any, path: str, table_name: str | None) -> Any:
    if table_name is None:
        raise InvalidParameter("table_name: say which table of the database file holds the events")
    quoted = path.replace("'", "''")
    connection.con.execute(f"ATTACH '{quoted}' AS events_file (TYPE duckdb, READ_ONLY)").fetchall()
    table = partial(connection.table, table_name, database="events_file.main")
    return without_data("table_name", "the database has no such table", table)


def _duckdb_parquet(connection: Any, path: str, _: str | None) -> Any:
    """Folder names such as i=01 are text, whatever other folders are called; files must agree on their types."""
    described = "SELECT DISTINCT name, type, converted_type, logical_type FROM parquet_schema(?)"
    differing = f"SELECT count(*) FROM (SELECT name FROM ({described}) GROUP BY name HAVING count(*) > 1)"  # noqa: S608
    if "*" in path and connection.con.execute(differing, [path]).fetchone()[0]:
        raise InvalidParameter("table: a column has different types in the files of the folder; write them alike")
    return connection.read_parquet(path, hive_types_autocast=False)


_DUCKDB_FILES: dict[str, Callable[[Any, str, str | None], Any]] = {
    "parquet": _duckdb_parquet,
    "csv": _duckdb_text,
    "tsv": _duckdb_text,
    "json": _duckdb_json,
    "database": _duckdb_database,
}


def _spark_session() -> Any:
    """The active session, or a local one of our own, which keeps what it reads out of its log."""
    builder = import_module("pyspark.sql").SparkSession
    active = builder.getActiveSession()
    if active is not None:
        return active
    session = builder.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _spark_parquet(session: Any, path: str) -> Any:
    """Folder names such as i=01 are text, whatever other folders are called."""
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = session.conf.get(setting)
    session.conf.set(setting, "false")
    try:
        return session.read.parquet(path.removesuffix("/**/*.parquet"))
    finally:
        session.conf.set(setting, before)


def _spark_text(session: Any, path: str) -> Any:
    delimiter = _DELIMITERS[_located(path)[1]]
    return session.read.csv(path, header=True, inferSchema=False, sep=delimiter, quote='"', escape='"', multiLine=True)


_SPARK_FILES: dict[str, Callable[[Any, str], Any]] = {
    "parquet": _spark_parquet,
    "csv": _spark_text,
    "tsv": _spark_text,
    "json": lambda session, path: session.read.json(path, primitivesAsString=True),
}


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa

    if not hasattr(frame, "columns"):
        raise InvalidParameter(f"table must be a pandas DataFrame, got {type(frame).__name__}")
    if not frame.columns.is_unique:
        raise InvalidParameter("table: the columns of a pandas frame must have different names")
    kept = frame if columns is None else frame[[name for name in columns if name in frame.columns]]
    table = without_data(
        "table",
        "a column of the pandas frame is of a type that Arrow does not know; make it text",
        lambda: pa.Table.from_pandas(_without_objects(kept), preserve_index=False),
    )
    return table.replace_schema_metadata(None)


def _without_objects(frame: Any) -> Any:
    """The frame with each column of Python objects as text, value by value.

    What Arrow makes of such a column depends on all its values: one user's text among integers would refuse them.
    """
    import pandas as pd

    texts = {
        name: pd.Series(list(map(_object_text, frame[name].tolist())), index=frame.index, dtype="string[pyarrow]")
        for name in frame.columns
        if frame[name].dtype == object
    }
    return frame.assign(**texts) if texts else frame


def _object_text(value: Any) -> str | None:
    """One value of a column of objects as text; None for what is missing."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return label_text(value.isoformat() if isinstance(value, dt.date) else value)


def _from_polars(frame: Any, columns: Sequence[str] | None) -> Any:
    lazy = frame.lazy()
    names = lazy.collect_schema().names()
    kept = [name for name in names if columns is None or name in columns]
    return lazy.select(kept).collect().to_arrow()


def _from_arrow(table: Any, columns: Sequence[str] | None) -> Any:
    import pyarrow as pa

    if isinstance(table, pa.RecordBatchReader):
        table = table.read_all()
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise InvalidParameter(f"table must be an Arrow table, got {type(table).__name__}")
    return table.select([name for name in table.column_names if columns is None or name in columns])


_DUCKDB_FRAMES: dict[str, Callable[[Any, Sequence[str] | None], Any]] = {
    "pandas": _from_pandas,
    "polars": _from_polars,
    "pyarrow": _from_arrow,
}


def _plain_columns(table: Any) -> Any:
    """Types that Ibis knows: dictionaries as their values, UUIDs and a column of nothing but NULL (no type) as text."""
    import pyarrow as pa

    def plain(kind: Any) -> Any:
        if pa.types.is_dictionary(kind):
            return plain(kind.value_type)
        if pa.types.is_fixed_size_binary(kind):
            return pa.binary()
        return pa.string() if pa.types.is_null(kind) else pa.float32() if pa.types.is_float16(kind) else kind

    for place, field in enumerate(table.schema):
        if getattr(field.type, "extension_name", "") == "arrow.uuid":
            texts = [None if value is None else str(value) for value in table.column(place).to_pylist()]
            table = table.set_column(place, field.name, pa.array(texts, pa.string()))
    return table.cast(pa.schema([field.with_type(plain(field.type)) for field in table.schema]))
