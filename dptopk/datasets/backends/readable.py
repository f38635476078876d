"""Values that an engine cannot read count as missing, in Parquet files and Arrow data: text that is
not UTF-8, times and durations beyond 64 bits of microseconds, times of day below 0:00 or beyond
24:00, and maps with one key twice, also in the fields of structures. A list or map that holds such
a value is missing as a whole.

Writers need not check what they write. An engine that meets such a value refuses the whole table:
one user's value would decide whether there is an answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dptopk.datasets.backends.base import Arguments, Result
from dptopk.datasets.backends.quoting import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from ibis.backends.duckdb import Backend as DuckDBConnection
    from pyarrow.parquet import ParquetFile

_ROWS = "dptopk_readable_rows"
_ROW = "dptopk_row_number"
# What DuckDB says of a value that it cannot read; Arrow raises errors of its own with this text.
_UNREADABLE = ("Conversion Error", "Invalid Input Error", "Out of Range Error")
LONGEST_DECIMAL = 38  # the most digits of DuckDB's decimals
_PARQUET_END = 8  # bytes: the length of the footer and the mark of the format
_NOTE = b"ARROW:schema"  # the key under which a footer notes the types of Arrow
# The units of which 64 bits may be beyond 64 bits of microseconds, and how many of these each has.
_MICROSECONDS_OF_UNIT = {"s": 10**6, "ms": 10**3}
# The units of time, and how many of each a day has.
_TICKS_OF_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_EPOCH = date(1970, 1, 1).toordinal()


def with_readable_values(table: pa.Table) -> pa.Table:
    """Return an Arrow table with NULL for each value that DuckDB cannot read; text that is coded by
    a dictionary becomes plain text.
    """
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        kind = _readable_values(pa.array([], field.type)).type
        chunks = [_readable_values(chunk) for chunk in table.column(place).chunks]
        column = pa.chunked_array(chunks, kind)
        table = table.set_column(place, field.with_type(kind), column)
    return table


def _readable_values(values: pa.Array) -> pa.Array:
    """Return an Arrow array with NULL for each value that DuckDB cannot read; of a structure only
    the unreadable fields become NULL.
    """
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType) and _may_be_unreadable(kind):
        return pa.ExtensionArray.from_storage(kind, _readable_values(values.storage))
    limits = _limits_of_duckdb(kind)
    if limits is not None:
        return _null_outside(values, *limits)
    if pa.types.is_struct(kind) and kind.num_fields:
        return _readable_fields(values)
    if pa.types.is_nested(kind):
        return _without_rows(values, _unreadable_rows(values))
    if not _is_text(kind) or _is_valid(values):
        return values
    return _decoded_texts(values)


def with_values_of_python(table: pa.Table) -> pa.Table:
    """Return an Arrow table with NULL for each value of which Python has none: unreadable text,
    days and times whose year does not have four digits, and times of day beyond 24 hours or within
    a microsecond.
    """
    import pyarrow as pa

    table = with_readable_values(table)
    for place, field in enumerate(table.schema):
        limits = _limits_of_python(field.type)
        if limits is not None:
            chunks = [_null_outside(chunk, *limits) for chunk in table.column(place).chunks]
            if pa.types.is_time64(field.type) and field.type.unit == "ns":
                chunks = list(map(_null_within_microseconds, chunks))
            table = table.set_column(place, field, pa.chunked_array(chunks, field.type))
    return table


def _limits_of_duckdb(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the smallest and the largest number that stands for a time or duration which DuckDB
    can read; None where it can read them all, and for other types.
    """
    import pyarrow as pa

    if pa.types.is_time(kind):
        return 0, _TICKS_OF_DAY[kind.unit]
    is_moment = pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
    if is_moment and kind.unit in _MICROSECONDS_OF_UNIT:
        largest = (2**63 - 1) // _MICROSECONDS_OF_UNIT[kind.unit]
        return -largest, largest
    return None


def _limits_of_python(kind: pa.DataType) -> tuple[int, int] | None:
    """Return the smallest and the largest number that stands for a day or a time of Python's;
    None for other types.
    """
    import pyarrow as pa

    first_day, last_day = (day.toordinal() - _EPOCH for day in (date.min, date.max))
    if pa.types.is_date32(kind):
        return first_day, last_day
    if pa.types.is_date64(kind):
        return first_day * _TICKS_OF_DAY["ms"], last_day * _TICKS_OF_DAY["ms"]
    if pa.types.is_time(kind):
        return 0, _TICKS_OF_DAY[kind.unit] - 1
    if pa.types.is_timestamp(kind):
        # A zone may be a day away.
        first = (first_day + 1) * _TICKS_OF_DAY[kind.unit]
        last = last_day * _TICKS_OF_DAY[kind.unit] - 1
        return max(first, -(2**63)), min(last, 2**63 - 1)
    return None


def _null_outside(values: pa.Array, least: int, largest: int) -> pa.Array:
    """Return days, times or durations with NULL for those that are stored as an integer below
    ``least`` or above ``largest``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    storage_type = pa.int32() if values.type.bit_width == 32 else pa.int64()
    numbers = values.cast(storage_type).cast(pa.int64())
    is_between = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, largest))
    is_between = pc.fill_null(is_between, False)
    # DuckDB also converts the integer that is stored in the place of a NULL, here 0.
    readable = pc.if_else(is_between, numbers, 0).cast(storage_type).cast(values.type)
    return pc.if_else(is_between, readable, pa.scalar(None, values.type))


def _null_within_microseconds(times: pa.Array) -> pa.Array:
    """Return times of day in nanoseconds with NULL for those that are not whole microseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = times.cast(pa.int64())
    is_whole = pc.equal(pc.multiply(pc.divide(numbers, 1000), 1000), numbers)
    return pc.if_else(is_whole, times, pa.scalar(None, times.type))


def _readable_fields(values: pa.StructArray) -> pa.StructArray:
    """Return a structure each of whose fields is readable, or NULL."""
    import pyarrow as pa

    columns = [_readable_values(column) for column in values.flatten()]
    pairs = zip(values.type, columns, strict=True)
    fields = [field.with_type(column.type).with_nullable(True) for field, column in pairs]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())


def _is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's types of text."""
    import pyarrow as pa

    is_view = pa.types.is_string_view(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_view)


def _is_valid(values: pa.Array) -> bool:
    """Return whether all values of an array are in the form that their type asks for, such as
    UTF-8.
    """
    import pyarrow as pa

    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _decoded_texts(texts: pa.Array) -> pa.Array:
    """Return an array of texts with NULL for those that are not UTF-8."""
    import pyarrow as pa

    kind = pa.large_binary() if pa.types.is_large_string(texts.type) else pa.binary()
    values = texts.cast(kind).to_pylist()
    return pa.array([_text_or_null(value) for value in values], texts.type)


def _without_rows(values: pa.Array, is_left_out: NDArray[np.bool_]) -> pa.Array:
    """Return an array with NULL in some rows.

    Args:
        values: the array.
        is_left_out: whether each of its rows becomes NULL, shape (rows,).
    """
    import pyarrow as pa

    if not is_left_out.any():
        return values
    return values.take(pa.array(np.arange(len(values)), pa.int64(), mask=is_left_out))


def _unreadable_rows(values: pa.Array) -> NDArray[np.bool_]:
    """Return in which rows of an array there is something that DuckDB cannot read, at any depth."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    kind = values.type
    is_unreadable = np.zeros(len(values), dtype=bool)
    if not _may_be_unreadable(kind):
        return is_unreadable
    if _is_text(kind):
        if _is_valid(values):
            return is_unreadable
        return _has_become_null(values, _decoded_texts(values))
    if _limits_of_duckdb(kind) is not None:
        return _has_become_null(values, _readable_values(values))
    if pa.types.is_struct(kind):
        for column in values.flatten():
            is_unreadable |= _unreadable_rows(column)
        return is_unreadable
    return _unreadable_lists(values)


def _unreadable_lists(values: pa.Array) -> NDArray[np.bool_]:
    """Return in which rows of lists or maps there is something that DuckDB cannot read; such a row
    is left out as a whole.
    """
    import pyarrow as pa

    kind = values.type
    lists = values
    if pa.types.is_map(kind):  # it is a list of keys and values
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        lists = values.cast(pa.list_(entry))
    elements = lists.flatten()
    rows = _rows_of_elements(lists)
    is_unreadable = np.zeros(len(values), dtype=bool)
    is_unreadable[rows[_unreadable_rows(elements)]] = True
    if pa.types.is_map(kind):
        is_unreadable[_rows_with_repeated_keys(rows, elements.flatten()[0])] = True
    return is_unreadable


def _has_become_null(before: pa.Array, after: pa.Array) -> NDArray[np.bool_]:
    """Return which values of an array are NULL in ``after`` and not in ``before``."""
    return np.asarray(after.is_null()) & ~np.asarray(before.is_null())


def _rows_of_elements(values: pa.Array) -> NDArray[np.int64]:
    """Return for each element of an array of lists or maps, as ``flatten`` gives them, its row."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(values.type):
        lengths = np.full(len(values), values.type.list_size)
    elif pa.types.is_list_view(values.type) or pa.types.is_large_list_view(values.type):
        lengths = np.asarray(values.sizes)
    else:
        lengths = np.diff(np.asarray(values.offsets))
    lengths = np.where(np.asarray(values.is_null()), 0, lengths)
    return np.repeat(np.arange(len(values)), lengths)


def _rows_with_repeated_keys(rows: NDArray[np.int64], keys: pa.Array) -> NDArray[np.int64]:
    """Return the rows of maps in which a key is there twice.

    Args:
        rows: the row of each key.
        keys: the keys.
    """
    pairs, counts = np.unique(
        np.column_stack([rows, _codes_of_keys(keys)]), axis=0, return_counts=True
    )
    return pairs[counts > 1, 0].astype(np.int64)


def _codes_of_keys(keys: pa.Array) -> NDArray[np.int64]:
    """Return numbers that two keys share if they are equal, as NaN and NaN are, and 0.0 and
    -0.0.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(keys.type):
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(str(key), len(codes)) for key in keys], dtype=np.int64)
    if pa.types.is_floating(keys.type):
        keys = pc.add(keys.cast(pa.float64()), 0.0)  # the sum of -0.0 and 0.0 is 0.0
    indices = keys.dictionary_encode().indices
    return np.asarray(indices.fill_null(-1)).astype(np.int64)


def _text_or_null(value: bytes | None) -> str | None:
    """Return bytes as text; None if they are None or not UTF-8."""
    try:
        if value is None:
            return None
        return value.decode()
    except UnicodeDecodeError:
        return None


@dataclass(frozen=True)
class ReadableFiles:
    """Parquet files on DuckDB, in which a query may meet a value that it cannot read.

    Attributes:
        connection: an Ibis connection to DuckDB.
        view: the name of the temporary view of the files.
        paths: the files.
        columns: the columns that are needed; None: all.
    """

    connection: DuckDBConnection
    view: str
    paths: Sequence[str]
    columns: Sequence[str] | None

    def read_once(self) -> None:
        """Read the values once and for all where DuckDB reads some of a needed column in one way in
        a Parquet file and in another in Arrow data: other values of the file would decide what
        these are.
        """
        with file_of_stored_types(self.paths[0]) as file:
            fields = list(file.schema_arrow)
        names = {name.casefold() for name in self._kinds() if self._is_needed(name)}
        kinds = [field.type for field in fields if field.name.casefold() in names]
        if any(map(_is_read_in_two_ways, kinds)):
            self._replace_view()

    def with_second_attempt(
        self, action: Callable[Arguments, Result]
    ) -> Callable[Arguments, Result]:
        """Return the action on expressions of the view with a second attempt: where a value cannot
        be read, it runs again on the readable values. A first attempt that succeeds is the answer.
        """

        def run(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            """Return what ``action`` returns, of the readable values if it fails on others."""
            try:
                return action(*arguments, **options)
            except UnicodeDecodeError:  # DuckDB quotes the bytes of JSON in its message
                pass
            except Exception as error:
                if not any(kind in str(error) for kind in _UNREADABLE):
                    raise
            self._replace_view()
            return action(*arguments, **options)

        return run

    def _replace_view(self) -> None:
        """Make the view one of a table of DuckDB's that holds the readable values of all rows."""
        run = self.connection.con.execute
        kinds = self._kinds()
        empty = ", ".join(
            f"CAST(NULL AS {kind}) AS {quote_name(name)}" for name, kind in kinds.items()
        )
        run(f"CREATE OR REPLACE TEMP TABLE {_ROWS} AS SELECT {empty} LIMIT 0").fetchall()
        for path in self.paths:
            self._append(path, [name for name in kinds if self._is_needed(name)])
        rows = f"SELECT * FROM {_ROWS}"  # noqa: S608
        run(f"CREATE OR REPLACE TEMP VIEW {quote_name(self.view)} AS {rows}").fetchall()

    def _kinds(self) -> dict[str, str]:
        """Return the types of the view's columns, by name."""
        describe = f"DESCRIBE {quote_name(self.view)}"
        rows = self.connection.con.execute(describe).fetchall()
        return {name: kind for name, kind, *_ in rows}

    def _is_needed(self, name: str) -> bool:
        """Return whether a column takes part in the question."""
        return self.columns is None or name in self.columns

    def _append(self, path: str, names: Sequence[str]) -> None:
        """Append the rows of a file to the table of readable values.

        Columns of types that DuckDB may fail on are read by Arrow, with NULL for what DuckDB cannot
        read. All others are read by DuckDB, also those whose values are in the names of folders, as
        in ``day=1``. Both are joined by the number of the row. Columns of the table that are not
        needed are NULL.

        Args:
            path: the file.
            names: the needed columns of the view, as the view calls them.
        """
        run = self.connection.con.execute
        with (
            file_of_stored_types(path, coerce_int96_timestamp_unit="us") as file,
            file_of_stored_types(path, coerce_int96_timestamp_unit="s") as in_seconds,
        ):
            # Times of 96 bits are read twice: in microseconds, which 64 bits may not hold, and in
            # seconds, which show where that is so (``_readable_batches``).
            schema = in_seconds.schema_arrow
            name_in_file = _spelling_in_file(names, schema.names)
            doubtful_columns = _doubtful_columns(schema, name_in_file)
            column_list = ", ".join(map(quote_name, names))
            other_names = [name for name in names if name not in doubtful_columns]
            # Columns that the file itself does not have are in the names of folders.
            other_columns = _query_of_file(other_names, has_folders=len(name_in_file) < len(names))
            insert = f"INSERT INTO {_ROWS} ({column_list}) SELECT {column_list}"
            if not doubtful_columns:
                run(f"{insert} FROM ({other_columns})", {"path": escape(path)}).fetchall()
                return
            rows = _readable_batches(file, in_seconds, list(doubtful_columns.values()))
            self.connection.con.register("dptopk_stream", rows)
            joined_rows = f"dptopk_stream JOIN ({other_columns}) USING ({_ROW})"
            run(f"{insert} FROM {joined_rows}", {"path": escape(path)}).fetchall()
            self.connection.con.unregister("dptopk_stream")


def _spelling_in_file(names: Sequence[str], file_names: Sequence[str]) -> dict[str, str]:
    """Return name -> the name in a file, for the columns that the file has: the files of a folder
    may spell a name with other capitals.
    """
    by_case = {name.casefold(): name for name in file_names}
    return {name: by_case[name.casefold()] for name in names if name.casefold() in by_case}


def _doubtful_columns(schema: pa.Schema, name_in_file: dict[str, str]) -> dict[str, str]:
    """Return name -> the name in a file, for the columns of types that DuckDB may fail on.

    Args:
        schema: the schema of the file.
        name_in_file: name -> the name in the file, for all columns that are needed.
    """
    return {
        name: file_name
        for name, file_name in name_in_file.items()
        if _may_be_unreadable(_stored_type(schema.field(file_name).type))
    }


def _query_of_file(names: Sequence[str], *, has_folders: bool) -> str:
    """Return the query of the numbers of a Parquet file's rows and of some columns, as DuckDB reads
    them; its parameter is ``path``.

    Args:
        names: the columns.
        has_folders: whether the names of folders are among the columns; they are then texts.
    """
    folders = "hive_types_autocast=false" if has_folders else "hive_partitioning=false"
    column_list = ", ".join([f"file_row_number AS {_ROW}", *map(quote_name, names)])
    source = f"read_parquet($path, {folders}, file_row_number=true)"
    return f"SELECT {column_list} FROM {source}"  # noqa: S608


def _without_times_out_of_range(rows: pa.Table, in_seconds: pa.Table) -> pa.Table:
    """Return rows with NULL for times of 96 bits that are too large for 64 bits of microseconds;
    ``in_seconds`` are the same rows, with these times in seconds.
    """
    import pyarrow.compute as pc

    for place, field in enumerate(in_seconds.schema):
        # Only times of 96 bits have another type in the two readings.
        if field.type != rows.schema.field(place).type and str(field.type) == "timestamp[s]":
            in_range = with_readable_values(in_seconds.select([place])).column(0)
            times = pc.if_else(pc.is_valid(in_range), rows.column(place), None)
            rows = rows.set_column(place, rows.schema.field(place), times)
    return rows


def _is_read_in_two_ways(kind: pa.DataType) -> bool:
    """Return whether DuckDB reads a Parquet column of this type as other values than Arrow data: a
    map with one key twice, the largest times in milliseconds, which are infinite, and times of day
    in nanoseconds, of which it reads whole microseconds in Arrow data.
    """
    import pyarrow as pa

    if pa.types.is_nested(kind) and not pa.types.is_map(kind):
        fields = [kind.field(place).type for place in range(kind.num_fields)]
        return any(map(_is_read_in_two_ways, fields))
    in_milliseconds = pa.types.is_timestamp(kind) and kind.unit == "ms"
    in_nanoseconds = pa.types.is_time64(kind) and kind.unit == "ns"
    return pa.types.is_map(kind) or in_milliseconds or in_nanoseconds


def _may_be_unreadable(kind: pa.DataType) -> bool:
    """Return whether a column of this type may hold a value that DuckDB cannot read."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if _limits_of_duckdb(kind) is not None:
        return True
    if pa.types.is_map(kind):  # a key may be there twice
        return True
    if pa.types.is_nested(kind):
        fields = [kind.field(place).type for place in range(kind.num_fields)]
        return any(map(_may_be_unreadable, fields))
    return _is_text(kind)


def file_of_stored_types(path: str | Path, **options: str) -> ParquetFile:
    """Return a Parquet file whose columns have the types that it stores, without those of Arrow
    that its writer has noted beside them, such as dictionaries.

    Arrow converts what it has read to the types that are noted, and refuses the file where a text
    of a dictionary is not UTF-8.

    Args:
        path: the file.
        options: further arguments of ``pyarrow.parquet.ParquetFile``.
    """
    from pyarrow import BufferReader
    from pyarrow.parquet import ParquetFile, read_metadata

    # A Parquet file begins with its mark, and ends with the footer, the footer's length in four
    # bytes, and the mark.
    with Path(path).open("rb") as file:
        file.seek(-_PARQUET_END, os.SEEK_END)
        end = file.read()
        mark = end[4:]
        size = int.from_bytes(end[:4], "little") + _PARQUET_END
        file.seek(-size, os.SEEK_END)
        footer = file.read()
    # Under another key of the same length nobody finds the note; a file without rows will do.
    without_note = BufferReader(mark + footer.replace(_NOTE, bytes(len(_NOTE))))
    return ParquetFile(path, metadata=read_metadata(without_note), **options)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Return a type as DuckDB reads it from a Parquet file: half floats and decimals of more than
    38 digits as floats, within lists, maps and structures too.
    """
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_stored_type(kind.key_type), _stored_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_type(kind.value_type)))
    if pa.types.is_float16(kind):
        kind = pa.float32()
    if pa.types.is_decimal256(kind) and kind.precision > LONGEST_DECIMAL:
        kind = pa.float64()
    return kind


def _readable_batches(
    file: ParquetFile, in_seconds: ParquetFile, columns: Sequence[str]
) -> pa.RecordBatchReader:
    """Return the rows of a pyarrow.parquet.ParquetFile as a stream, numbered from 0, with NULL for
    what cannot be read.

    Args:
        file: the file, of which times of 96 bits are read in microseconds, also beyond 64 bits.
        in_seconds: the same file, of which they are read in seconds, which 64 bits hold.
        columns: the columns that are read.
    """
    import pyarrow as pa

    kinds = pa.schema(
        [pa.field(name, _stored_type(file.schema_arrow.field(name).type)) for name in columns]
    )
    schema = with_readable_values(kinds.empty_table()).schema.append(pa.field(_ROW, pa.int64()))

    def batches() -> Iterator[pa.RecordBatch]:
        """Yield the readable rows with their numbers, a batch at a time."""
        first = 0
        names = list(columns)
        batches_in_seconds = in_seconds.iter_batches(columns=names)
        for batch in file.iter_batches(columns=names):
            # For a column "a.b" Arrow also reads a structure "a" that has a field "b".
            rows = with_readable_values(pa.Table.from_batches([batch]).select(names).cast(kinds))
            rows_in_seconds = pa.Table.from_batches([next(batches_in_seconds)]).select(names)
            rows = _without_times_out_of_range(rows, rows_in_seconds)
            numbers = pa.array(range(first, first + len(batch)), pa.int64())
            yield from rows.append_column(schema.field(_ROW), numbers).to_batches()
            first += len(batch)

    return pa.RecordBatchReader.from_batches(schema, batches())
