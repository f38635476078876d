"""Apache Spark: files and Spark data frames, in a session."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dptopk.datasets.backends.base import Backend, OpenTable, builtin, imported, without_data
from dptopk.datasets.backends.files import DIFFERING, delimiter, located, opened
from dptopk.datasets.backends.frames import library
from dptopk.errors import InvalidParameter

__all__ = ["SPARK", "Spark"]


def _encode(text: Any) -> Any:
    return builtin("encode", ("string", "string"), "binary")(text, "UTF-8")


def _decode(data: Any) -> Any:
    return builtin("decode", ("binary", "string"), "string")(data, "UTF-8")


def _mix(*columns: Any) -> Any:
    return builtin("xxhash64", tuple(column.type() for column in columns), "int64")(*columns)


SPARK = Backend(name="pyspark", encode=_encode, decode=_decode, mix=_mix)


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
        if library(table) == "pyspark":
            frame = table
        else:
            path, kind = located(table)
            if kind not in _FILES:
                raise InvalidParameter(f"table: Spark does not read a {kind} file")
            frame = opened(kind, lambda: _FILES[kind](session, path))
        views = _Views(session, connection)
        return OpenTable(views.of(frame), connection.to_pyarrow, SPARK, close=views.drop, together=views.together)


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


def _parquet(session: Any, path: str) -> Any:
    """Folder names such as i=01 are text, whatever other folders are called; files must agree on their types."""
    if "*" in path and _differing(path):
        raise InvalidParameter(DIFFERING)
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = session.conf.get(setting)
    session.conf.set(setting, "false")
    try:
        return session.read.parquet(path.removesuffix("/**/*.parquet"))
    finally:
        session.conf.set(setting, before)


def _differing(pattern: str) -> bool:
    """Whether two of the files give a column different types: Spark would take those of one file."""
    from pyarrow.parquet import ParquetFile

    types = dict[str, tuple[str, str]]()
    root = Path(pattern)
    for path in Path(root.anchor).glob(str(root.relative_to(root.anchor))):
        with ParquetFile(path) as file:
            columns = [file.schema.column(place) for place in range(len(file.schema))]
        for column in columns:
            kind = (column.physical_type, str(column.logical_type))
            if types.setdefault(column.path, kind) != kind:
                return True
    return False


def _text(session: Any, path: str) -> Any:
    return session.read.csv(
        path, header=True, inferSchema=False, sep=delimiter(path), quote='"', escape='"', multiLine=True
    )


_FILES: dict[str, Callable[[Any, str], Any]] = {
    "parquet": _parquet,
    "csv": _text,
    "tsv": _text,
    "json": lambda session, path: session.read.json(path, primitivesAsString=True),
}
