"""Frames and Arrow data inside this process, as what DuckDB reads: an Arrow table, or a stream of
batches.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk.datasets.backends.base import hide_data_of_errors
from dptopk.datasets.backends.readable import with_readable_values
from dptopk.datasets.backends.relation import from_relation
from dptopk.errors import InvalidParameter
from dptopk.histogram.labels import is_missing, label_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pads
    from duckdb import DuckDBPyRelation

    from dptopk.datasets.backends.inputs import EventTable


def package_of(table: EventTable) -> str:
    """Return the name of the package of a table's class, such as "pandas", without importing that
    package.
    """
    return type(table).__module__.partition(".")[0]


def _needed_names(columns: Sequence[str] | None, present: Sequence[str]) -> list[str]:
    """Return the names of the columns that are asked for, or all where one of these is missing: the
    refusal then lists what there is.
    """
    if columns is None or not set(columns) <= set(present):
        return list(present)
    return [name for name in present if name in columns]


def _from_pandas(frame: pd.DataFrame, columns: Sequence[str] | None) -> pa.Table:
    """Return the needed columns of a pandas frame as an Arrow table.

    Raises:
        InvalidParameter: for what is no data frame, one that names a column twice, and a column of
            a type that Arrow does not know.
    """
    import pyarrow as pa

    if not hasattr(frame, "columns"):
        raise InvalidParameter(f"table must be a pandas DataFrame, got {type(frame).__name__}")
    if not frame.columns.is_unique:
        raise InvalidParameter("table: the columns of a pandas frame must have different names")
    if columns is None or not set(columns) <= set(frame.columns):
        chosen_columns = frame
    else:
        chosen_columns = frame[list(dict.fromkeys(columns))]
    table = hide_data_of_errors(
        "table",
        "a column of the pandas frame is of a type that Arrow does not know; make it text",
        lambda: pa.Table.from_pandas(_with_text_columns(chosen_columns), preserve_index=False),
    )
    return _plain_columns(table.replace_schema_metadata(None))


def _with_text_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with each column of Python objects as text, value by value.

    What Arrow makes of such a column depends on all its values: one user's text among integers
    would refuse them. So would half of a surrogate pair among texts.
    """
    texts = {name: _as_texts(frame[name]) for name in frame.columns if _has_objects(frame[name])}
    if texts:
        return frame.assign(**texts)
    return frame


def _has_objects(column: pd.Series[Any]) -> bool:
    """Return whether the values of a column, or its categories, are objects of Python."""
    import pandas as pd

    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        kind = kind.categories.dtype
    if pd.api.types.is_object_dtype(kind):
        return True
    return isinstance(kind, pd.StringDtype) and kind.storage == "python"


def _as_texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return a column of objects, or of categories that are objects, as one of texts."""
    import pandas as pd

    values = column.cat.categories if isinstance(column.dtype, pd.CategoricalDtype) else column
    texts = pd.array(list(map(_object_text, values.tolist())), dtype="string[pyarrow]")
    if isinstance(column.dtype, pd.CategoricalDtype):
        texts = texts.take(column.cat.codes.to_numpy(), allow_fill=True)  # -1 is a missing value
    return pd.Series(texts, index=column.index)


def _object_text(value: Any) -> str | None:
    """Return one value of a column of objects as text; None for what is missing."""
    if isinstance(value, str):  # half of a surrogate pair has no bytes in UTF-8
        return value.encode("utf-8", "backslashreplace").decode()
    if is_missing(value):
        return None
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():  # as pandas makes of integers with a gap
        return str(int(value))
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return label_text(value.isoformat() if isinstance(value, dt.date) else value)


def _from_polars(
    frame: pl.DataFrame | pl.LazyFrame, columns: Sequence[str] | None
) -> pa.Table | pa.RecordBatchReader:
    """Return the needed columns of a polars frame as a table, or of a lazy one as a stream, which
    is never in memory as a whole.
    """
    import polars as pl
    import pyarrow as pa

    lazy_frame = frame.lazy()
    names = hide_data_of_errors(
        "table", "the lazy frame cannot be run", lambda: lazy_frame.collect_schema().names()
    )
    chosen = lazy_frame.select(_needed_names(columns, names))
    if not isinstance(frame, pl.LazyFrame):
        as_arrow = hide_data_of_errors(
            "table", "a column is of a type that Arrow does not know", chosen.collect().to_arrow
        )
        return _plain_columns(as_arrow)
    no_rows = hide_data_of_errors(
        "table",
        "a column is of a type that Arrow does not know",
        lambda: pa.table(chosen.collect_schema().to_frame().to_arrow()),
    )
    schema = _plain_columns(no_rows).schema

    def batches() -> Iterator[pa.RecordBatch]:
        """Yield the rows in the types of the schema, a batch at a time."""
        for batch in chosen.collect_batches():
            yield from _plain_columns(batch.to_arrow()).cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _from_arrow(
    table: pa.Table | pa.RecordBatch | pa.RecordBatchReader | pads.Dataset,
    columns: Sequence[str] | None,
) -> pa.Table | pa.RecordBatchReader:
    """Return the needed columns of an Arrow table or batch as a table, of a stream or dataset as a
    stream, which is never in memory as a whole.

    Raises:
        InvalidParameter: for what is no Arrow data, and a column of a type that cannot be read.
    """
    import pyarrow as pa
    import pyarrow.dataset as pads

    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table | pa.RecordBatchReader | pads.Dataset):
        raise InvalidParameter(f"table must be an Arrow table, got {type(table).__name__}")
    names = _needed_names(columns, table.schema.names)
    if isinstance(table, pa.Table):
        return _plain_columns(table.select(names))
    if isinstance(table, pads.Dataset):
        table = table.scanner(columns=names).to_reader()
    chosen_columns = pa.schema([table.schema.field(name) for name in names])
    schema = _plain_columns(chosen_columns.empty_table()).schema

    def batches() -> Iterator[pa.RecordBatch]:
        """Yield the needed columns in the types of the schema, a batch at a time."""
        for batch in table:
            yield from (
                _plain_columns(pa.Table.from_batches([batch]).select(names))
                .cast(schema)
                .to_batches()
            )

    return pa.RecordBatchReader.from_batches(schema, batches())


def _from_duckdb(
    relation: DuckDBPyRelation, columns: Sequence[str] | None
) -> pa.Table | pa.RecordBatchReader:
    """Return the needed columns of a relation of DuckDB as a stream."""
    names = _needed_names(columns, relation.columns)
    return _from_arrow(from_relation(relation, names), names)


# A package -> the function that returns its frames, tables or relations as Arrow data. Its
# arguments are the table and the names of the columns that are needed (None: all).
FRAMES: dict[str, Callable[..., pa.Table | pa.RecordBatchReader]] = {
    "pandas": _from_pandas,
    "polars": _from_polars,
    "pyarrow": _from_arrow,
    "duckdb": _from_duckdb,
    "_duckdb": _from_duckdb,  # the package of relations in some versions of DuckDB
}


def _plain_columns(table: pa.Table) -> pa.Table:
    """Return the table with types that Ibis knows: dictionaries become their values, other
    extensions of Arrow what they are stored in; UUIDs, and columns without a type, become text;
    bytes of a fixed length any bytes, and numbers of 16 bits those of 32.

    A column that is said to have no NULL may have some: a value that cannot be read becomes one.
    """
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        column = _without_uncastable_type(table.column(place))
        if column.type != field.type:
            table = table.set_column(place, field.name, column)
    fields = [
        field.with_type(_type_known_to_ibis(field.type)).with_nullable(True)
        for field in table.schema
    ]
    plain: pa.Table = hide_data_of_errors(
        "table",
        "a column is of a type that cannot be read; leave it out, or make it text or integer",
        lambda: with_readable_values(table.cast(pa.schema(fields))),
    )
    return plain


def _without_uncastable_type(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that is coded as runs as its values, and one of UUIDs as text, for which a
    cast of Arrow's will not do; other columns unchanged.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_run_end_encoded(column.type):
        chunks = [pc.run_end_decode(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, column.type.value_type)
    if getattr(column.type, "extension_name", "") == "arrow.uuid":
        texts = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.chunked_array([texts], pa.string())
    return column


def _type_known_to_ibis(kind: pa.DataType) -> pa.DataType:
    """Return the type that ``_plain_columns`` gives a column of a type."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _type_known_to_ibis(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _type_known_to_ibis(kind.storage_type)
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    return kind
