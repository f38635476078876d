"""Apache Spark: files and Spark data frames, in a session."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import Any

from dptopk.datasets.backends.base import Backend, OpenTable, builtin, imported, without_data
from dptopk.datasets.backends.files import DIFFERING, Files, header, located, opened, well_formed
from dptopk.datasets.backends.frames import library
from dptopk.errors import InvalidParameter


def _encode(text: Any) -> Any:
    return builtin("encode", ("string", "string"), "binary")(text, "UTF-8")


def _decode(data: Any) -> Any:
    return builtin("decode", ("binary", "string"), "string")(data, "UTF-8")


def _mix(*columns: Any) -> Any:
    return builtin("xxhash64", tuple(column.type() for column in columns), "int64")(*columns)


SPARK = Backend(name="pyspark", encode=_encode, decode=_decode, mix=_mix, bytewise=True)


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
        session = self.session or without_data("engine", "no Spark session could be started", _own_session)
        connection = ibis.pyspark.connect(session)
        frame, run = table, connection.to_pyarrow
        if library(table) != "pyspark":
            files = located(table)
            if files.kind not in _FILES:
                raise InvalidParameter(f"table: Spark does not read a {files.kind} file")
            opened(files.kind, lambda: files.tell_apart(columns))
            frame = opened(files.kind, lambda: _FILES[files.kind](session, files))
            run = files.steady(run)
        views = _Views(session, connection)
        return OpenTable(views.of(frame), run, SPARK, close=views.drop, together=views.together)


class _Views:
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


def _own_session() -> Any:
    """The active session, or a local one of our own, which keeps what it reads out of its log."""
    builder = import_module("pyspark.sql").SparkSession
    active = builder.getActiveSession()
    if active is not None:
        return active
    session = builder.builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _parquet(session: Any, files: Files) -> Any:
    """Folder names such as i=01 are text, whatever other folders are called; files must agree on their types."""
    if _differing(files.paths):
        raise InvalidParameter(DIFFERING)
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = session.conf.get(setting)
    session.conf.set(setting, "false")
    reader = session.read if files.folder is None else session.read.option("basePath", files.folder)
    try:
        return reader.parquet(*files.paths)
    finally:
        session.conf.set(setting, before)


def _differing(paths: Sequence[str]) -> bool:
    """Whether two of the files give a column different types: Spark would use those of one file."""
    from pyarrow.parquet import ParquetFile

    types = dict[str, tuple[str, str]]()
    for path in paths:
        with ParquetFile(path) as file:
            columns = [file.schema.column(place) for place in range(len(file.schema))]
        for column in columns:
            kind = (column.physical_type, str(column.logical_type))
            if types.setdefault(column.path, kind) != kind:
                return True
    return False


def _text(session: Any, files: Files) -> Any:
    """Spark gives the columns of all files of one reading the names of the first: only files of one header share it."""
    alike = dict[bytes, list[str]]()
    for path in files.paths:
        well_formed(path)
        alike.setdefault(header(path), []).append(path)
    plain = {"sep": files.delimiter, "quote": '"', "escape": '"', "header": True, "inferSchema": False}
    strict = {"mode": "FAILFAST", "enforceSchema": False, "columnPruning": False, "multiLine": True}
    reader = session.read.options(**plain, **strict, unescapedQuoteHandling="RAISE_ERROR")
    return reduce(lambda one, other: one.unionByName(other), [reader.csv(paths) for paths in alike.values()])


def _json(session: Any, files: Files) -> Any:
    for path in files.paths:
        well_formed(path)
    return session.read.json(list(files.paths), primitivesAsString=True, mode="FAILFAST")


_FILES: dict[str, Callable[[Any, Files], Any]] = {"parquet": _parquet, "csv": _text, "tsv": _text, "json": _json}
