"""Apache Spark: files and Spark data frames, in a session."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from dptopk.datasets.backends.base import (
    Backend,
    OpenTable,
    builtin,
    hide_data_of_errors,
    import_of_extra,
)
from dptopk.datasets.backends.files import (
    Files,
    common_columns,
    files_of_table,
    header_line,
    read_or_refuse,
    refuse_malformed_text,
)
from dptopk.datasets.backends.folders import column_folders, parent_of_columns
from dptopk.datasets.backends.frames import package_of
from dptopk.datasets.backends.spark_rows import SparkCounts
from dptopk.datasets.backends.total import (
    is_extraction,
    null_by_zero,
    replacement_in,
    rounding_below_limit,
    try_cast_of,
)
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import ibis.expr.operations as ops
    import ibis.expr.types as ir
    import pyarrow as pa
    from ibis.backends.pyspark import Backend as SparkConnection
    from pyspark.sql import DataFrame as SparkFrame, DataFrameReader, SparkSession

    from dptopk.datasets.backends.inputs import EventTable


_IGNORE_CORRUPT = "spark.sql.files.ignoreCorruptFiles"
_MAGIC = re.compile(r"[\\*?\[\]{}^]")  # letters with a meaning in patterns of Hadoop

_ESCAPED_BYTE = re.compile("%[89A-Fa-f][0-9A-Fa-f]")  # of a letter that is not ASCII


def _encode(text: ir.StringValue) -> ir.BinaryValue:
    """Return the bytes of a text in UTF-8, by Spark's function."""
    return builtin("encode", ("string", "string"), "binary")(text, "UTF-8")


def _decode(data: ir.BinaryValue) -> ir.StringValue:
    """Return the text of bytes in UTF-8, by Spark's function."""
    return builtin("decode", ("binary", "string"), "string")(data, "UTF-8")


def _mix(*columns: ir.Value) -> ir.IntegerValue:
    """Return Spark's own 64-bit hash of some columns."""
    types = tuple(column.type() for column in columns)
    return builtin("xxhash64", types, "int64")(*columns)


def _arithmetic(name: str) -> Callable[[ops.NumericBinary], ir.Value | None]:
    """Return a function that replaces an operation on numbers by Spark's form of it that gives NULL
    instead of an overflow; ``name`` is that of Spark's function.
    """

    def null_on_overflow(operation: ops.NumericBinary) -> ir.Value | None:
        """Return Spark's form of an operation; None if it is not one on integers or floats."""
        kind = operation.dtype
        if kind.is_floating():  # it overflows to infinity, which is no error
            return operation.to_expr()
        if not kind.is_integer():
            return None
        operands = (operation.left, operation.right)
        operands_of_kind = [side.to_expr().cast(kind) for side in operands]
        return builtin(name, (kind, kind), kind)(*operands_of_kind)

    return null_on_overflow


# An operation that may fail -> what is written instead of it (``replacement_in``).
_TOTAL: dict[str, Callable[..., ir.Value | None]] = {
    "Cast": try_cast_of,
    "TryCast": try_cast_of,
    "Add": _arithmetic("try_add"),
    "Subtract": _arithmetic("try_subtract"),
    "Multiply": _arithmetic("try_multiply"),
    "Divide": null_by_zero,
    "Modulus": null_by_zero,
    "Floor": rounding_below_limit,
    "Ceil": rounding_below_limit,
    "Round": rounding_below_limit,
    "Date": lambda operation: operation.to_expr(),
}


def _total(operation: ops.Value) -> ir.Value | None:
    """Return an equal operation that gives NULL where this one would fail; None if none is known,
    so that the operation is refused.
    """
    if is_extraction(operation):  # every time of Spark's has each field
        return operation.to_expr()
    return replacement_in(_TOTAL, operation)


SPARK = Backend(
    name="pyspark",
    encode=_encode,
    decode=_decode,
    mix=_mix,
    bytewise=True,
    decimals=38,
    total=_total,
)


@dataclass(frozen=True, kw_only=True)
class Spark:
    """Apache Spark: files and Spark data frames are read by a Spark session.

    Args:
        session: a pyspark.sql.SparkSession; None: the active one, or a new local one.
    """

    session: SparkSession | None = None

    def open(
        self,
        table: EventTable,
        *,
        columns: Sequence[str] | None,
        table_name: str | None,  # noqa: ARG002
    ) -> OpenTable:
        """Return the table, opened in the session.

        Args:
            table: files or a Spark data frame, as for ``open_table``.
            columns: the columns that are needed, which text files must name once each and as Spark
                reads them; None: all.
            table_name: nothing: Spark reads no database files.

        Raises:
            InvalidParameter: when it cannot be read, or is a frame of another session.
            ImportError: when the extra ``spark`` is not installed.
        """
        ibis = import_of_extra("ibis", extra="spark")
        import_of_extra("pyspark", extra="spark")
        frame = cast("SparkFrame", table) if package_of(table) == "pyspark" else None
        session = self._session(frame)
        connection = ibis.pyspark.connect(session)
        run: Callable[[ir.Table], pa.Table] = partial(_rows, session, connection)
        count: Callable[[ir.Table], SparkCounts | None] = partial(_held_counts, session, connection)
        if frame is None:
            files = files_of_table(table)
            if files.kind not in _FILES:
                raise InvalidParameter(f"table: Spark does not read a {files.kind} file")
            read_or_refuse(files.kind, lambda: files.refuse_repeated_columns(columns))
            if files.is_text and not read_or_refuse(files.kind, lambda: files.is_plain(columns)):
                raise InvalidParameter(
                    "table: Spark reads text files as UTF-8 with commas (tabs in .tsv) and with "
                    "the header in the first line, not after an empty line or 'sep='; rewrite the "
                    "file so, or let DuckDB read it"
                )
            frame = read_or_refuse(files.kind, lambda: _FILES[files.kind](session, files))
            run = files.with_check_of_files(run)
            count = files.with_check_of_files(count)
        else:
            refuse_ignored_files(session)
        views = _Views(session, connection)
        opened = hide_data_of_errors("table", "Spark could not open it", partial(views.add, frame))
        return OpenTable(
            opened, run, SPARK, close=views.drop, together=views.group_by_user, count=count
        )

    def _session(self, frame: SparkFrame | None) -> SparkSession:
        """Return the session of a frame, in which alone its views are found; without a frame the
        one that was given, the active one or a new one.

        Raises:
            InvalidParameter: if another session was given, or none can be started.
        """
        if frame is None:
            return self.session or hide_data_of_errors(
                "engine", "no Spark session could be started", _active_or_new_session
            )
        if self.session is not None and self.session is not frame.sparkSession:
            raise InvalidParameter(
                "engine: the Spark frame belongs to another session; leave it out"
            )
        return frame.sparkSession


def _rows(session: SparkSession, connection: SparkConnection, expression: ir.Table) -> pa.Table:
    """Return the rows of an expression as an Arrow table. From Spark 4.0 on it hands them over so:
    texts are never objects of Python, as they would be in pandas.

    Args:
        session: the session that runs it.
        connection: the Ibis connection to that session, which compiles it.
        expression: what is run.
    """
    operations = import_module("ibis.expr.operations")
    if expression.op().find(operations.InMemoryTable):
        return connection.to_pyarrow(expression)
    frame = session.sql(connection.compile(expression))
    if not hasattr(frame, "toArrow"):
        return connection.to_pyarrow(expression)
    return frame.toArrow()


def _held_counts(
    session: SparkSession, connection: SparkConnection, expression: ir.Table
) -> SparkCounts | None:
    """Return counts by label in Spark's executors; None before Spark 4.0, which hands on no Arrow
    data. Arguments as for ``_rows``.
    """
    frame = session.sql(connection.compile(expression))
    if not hasattr(frame, "toArrow"):
        return None
    return SparkCounts.of(frame)


class _Views:
    """Temporary views of a session, by random names; they are dropped together.

    Attributes:
        session: the session.
        connection: an Ibis connection to it.
        names: the names of the views that were made.
    """

    def __init__(self, session: SparkSession, connection: SparkConnection) -> None:
        self.session = session
        self.connection = connection
        self.names: list[str] = []

    def add(self, frame: SparkFrame) -> ir.Table:
        """Return an Ibis table of a Spark data frame, which becomes a temporary view."""
        self.names.append(f"dptopk_events_{secrets.token_hex(8)}")
        frame.createOrReplaceTempView(self.names[-1])
        try:
            return self.connection.table(self.names[-1])
        except BaseException:
            self.drop()
            raise

    def group_by_user(self, events: ir.Table) -> ir.Table:
        """Return the events with those of each user in one partition, by one shuffle; then neither
        the grouping by user nor the ranking within a user needs one.
        """

        def grouped_events() -> ir.Table:
            """Return the table; Spark looks at the query here first, and may refuse it."""
            query = self.connection.compile(events)
            return self.add(self.session.sql(query).repartition("user"))

        return hide_data_of_errors("table", "the engine could not run the query", grouped_events)

    def drop(self) -> None:
        """Drop all temporary views."""
        for name in self.names:
            self.session.catalog.dropTempView(name)


def _active_or_new_session() -> SparkSession:
    """Return the active session, or a local one of our own, which keeps what it reads out of its
    log.
    """
    builder = import_module("pyspark.sql").SparkSession
    active = builder.getActiveSession()
    if active is not None:
        return active
    session = builder.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def refuse_ignored_files(session: SparkSession) -> None:
    """Refuse a session that ignores damaged files: of a file of a caller's frame or table it would
    leave out the rows after one that it cannot read, whoever's they are.

    Raises:
        InvalidParameter: naming the setting.
    """
    if str(session.conf.get(_IGNORE_CORRUPT, "false")).lower() == "true":
        raise InvalidParameter(
            f"table: with {_IGNORE_CORRUPT} Spark leaves out all rows after one that it cannot "
            f"read, which would be one user's; set it to false, or give the path of the files"
        )


def _exact_patterns(paths: Sequence[str]) -> list[str]:
    """Return patterns of Spark's that match these paths alone: it takes a name such as "[a].csv"
    for a pattern, and would read other files for it, or with it.
    """
    return [_MAGIC.sub(r"\\\g<0>", path) for path in paths]


def _reader(session: SparkSession) -> DataFrameReader:
    """Return a reader of files to which no setting of the session applies by which one row decides
    about others.

    Where damaged files are ignored, Spark leaves out the rows after one that it cannot read. Where
    its old calendar raises exceptions (the default of Spark 3), one day before 1582 refuses a file
    that another program has written; there the calendar is that of all other engines.
    """
    options = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
    for kind in ("datetime", "int96"):
        setting = f"spark.sql.parquet.{kind}RebaseModeInRead"
        if str(session.conf.get(setting, "EXCEPTION")).upper() == "EXCEPTION":
            options[f"{kind}RebaseMode"] = "CORRECTED"
    return session.read.options(**options)


def _parquet_rows(session: SparkSession, files: Files) -> SparkFrame:
    """Return the rows of Parquet files, which must agree on their types. Values from the names of
    folders, such as i=01, are text, whatever other folders are called.
    """
    # Spark reads no file with two columns that are alike but for case.
    names = common_columns(files.paths, None)
    of_folders = files.columns_of_folders(names)
    _refuse_misread_folders(files)
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    earlier_value = session.conf.get(setting)
    session.conf.set(setting, "false")
    try:
        parts = [_valid_text(part) for part in _read_by_base(session, files)]
    finally:
        session.conf.set(setting, str(earlier_value))
    column_names = list(dict.fromkeys([*names, *of_folders]))
    columns = list(map(_quoted_name, column_names))
    return reduce(
        lambda first, second: first.unionByName(second), [part.select(columns) for part in parts]
    )


def _quoted_name(name: str) -> str:
    """Return the name of a column in the form in which Spark reads it as that name alone."""
    return "`" + name.replace("`", "``") + "`"


def _read_by_base(session: SparkSession, files: Files) -> list[SparkFrame]:
    """Return the frames of the files, one for each folder below which folders are columns: Spark
    takes one such folder at a time.
    """
    if files.folder is None:
        return [_reader(session).parquet(*_exact_patterns(files.paths))]
    groups = dict[str, list[str]]()
    for path in files.paths:
        start = parent_of_columns(path, Path(files.folder))
        groups.setdefault(str(start), []).append(path)
    return [
        _reader(session).option("basePath", start).parquet(*_exact_patterns(paths))
        for start, paths in groups.items()
    ]


def _refuse_misread_folders(files: Files) -> None:
    """Refuse names of folders of which Spark makes other letters, or which it refuses.

    Raises:
        InvalidParameter: without the name, which may be a user's value.
    """
    if files.folder is None:
        return
    for path in files.paths:
        for part in column_folders(path, Path(files.folder)):
            name, _, value = part.partition("=")
            if "%" in name:
                raise InvalidParameter(
                    f"table: Spark reads another name of a column from the name of a folder "
                    f"{name}=, for the % in it; let DuckDB read the table"
                )
            if not value or _ESCAPED_BYTE.search(value):
                raise InvalidParameter(
                    f"table: Spark does not read an empty name of a folder {name}=, nor letters in "
                    f"it that are written as %C3%A9; let DuckDB read the table"
                )


def _valid_text(frame: SparkFrame) -> SparkFrame:
    """Return the frame with NULL for text that is not UTF-8, which Spark 4.0 and later can tell."""
    functions = import_module("pyspark.sql.functions")
    if not hasattr(functions, "try_validate_utf8"):
        return frame
    texts = [name for name, kind in frame.dtypes if kind == "string"]
    valid = {name: functions.try_validate_utf8(functions.col(_quoted_name(name))) for name in texts}
    if valid:
        return frame.withColumns(valid)
    return frame


def _text_rows(session: SparkSession, files: Files) -> SparkFrame:
    """Return the rows of text files, all columns as text. Spark names the columns of all files that
    it reads together by the first of them, so that only files of one header are read together.
    """
    paths_by_header = dict[bytes, list[str]]()
    for path in files.paths:
        refuse_malformed_text(path)
        paths_by_header.setdefault(header_line(path), []).append(path)
    comma_reader = _reader(session).options(
        sep=files.delimiter, quote='"', escape='"', header=True, inferSchema=False
    )
    strict_reader = comma_reader.options(
        mode="FAILFAST", enforceSchema=False, columnPruning=False, multiLine=True
    )
    reader = strict_reader.options(unescapedQuoteHandling="RAISE_ERROR")
    return reduce(
        lambda first, second: first.unionByName(second),
        [reader.csv(_exact_patterns(paths)) for paths in paths_by_header.values()],
    )


def _json_rows(session: SparkSession, files: Files) -> SparkFrame:
    """Return the rows of files with one JSON object a line."""
    for path in files.paths:
        refuse_malformed_text(path)
    reader = _reader(session).options(primitivesAsString=True, mode="FAILFAST")
    return reader.json(_exact_patterns(files.paths))


# A format of files -> the function that returns their rows.
_FILES: dict[str, Callable[[SparkSession, Files], SparkFrame]] = {
    "parquet": _parquet_rows,
    "csv": _text_rows,
    "tsv": _text_rows,
    "json": _json_rows,
}
