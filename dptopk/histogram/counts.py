"""The reading of counts in the forms that callers have: as 64-bit integers, without rounding, and
with messages that show no count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk.errors import InvalidParameter
from dptopk.histogram.labels import is_missing

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

# Labels and their counts, in the same order and of the same length.
Pairs: TypeAlias = tuple[list[Any], Any]
# Counts stay below 2^62, so that count + threshold + noise never overflows an int64.
LARGEST_COUNT = 2**62
# The names that libraries give to a column of counts.
NAMES_OF_COUNTS = {"count", "counts", "count_star()", "len"}


def _pandas_columns(frame: pd.DataFrame) -> list[Any]:
    """Return the columns of a pandas data frame as series."""
    return [readable_series(frame.iloc[:, place]) for place in range(len(frame.columns))]


def readable_series(series: pd.Series[Any]) -> pd.Series[Any]:
    """Return a pandas series with values of Arrow's days, times, spans and objects as Python's,
    None for a value that Python does not have; a series of any other type unchanged.
    """
    import pandas as pd

    if not isinstance(series.dtype, pd.ArrowDtype) or series.dtype.kind not in "MmO":
        return series
    cells = _python_cells(series.array.__arrow_array__())
    return pd.Series(cells, index=series.index, dtype=object)


def _polars_columns(frame: pl.DataFrame) -> list[Any]:
    """Return the columns of a polars data frame as lists; days and times as Arrow has them, since
    polars fails on one that Python does not have.
    """
    return [
        _python_cells(column.to_arrow()) if column.dtype.is_temporal() else column.to_list()
        for column in frame.get_columns()
    ]


def _arrow_columns(table: pa.Table) -> list[Any]:
    """Return the columns of an Arrow table as lists."""
    return [_python_cells(column) for column in table.itercolumns()]


def _struct_columns(structs: pa.StructArray) -> list[Any]:
    """Return the fields of an Arrow array of structs, which ``value_counts()`` makes, as lists."""
    return [_python_cells(column) for column in structs.flatten()]


def _python_cells(column: pa.ChunkedArray) -> list[object]:
    """Return the values of an Arrow column; None for one that Python does not have, such as text
    that is not UTF-8, a day beyond the year 9999, or the time 24:00.
    """
    try:
        cells = list(column.to_pylist())
    except (ValueError, OverflowError):
        cells = [_python_cell(cell) for cell in column]
    return _without_rounded_times(column, cells)


def _without_rounded_times(column: pa.ChunkedArray, cells: list[object]) -> list[object]:
    """Return the cells of an Arrow column with None for those of which Arrow makes another time or
    day of Python's: of 24:00 it makes 0:00, of a day in milliseconds that is not whole the day, and
    of a time in nanoseconds that of the whole microsecond.

    Args:
        column: the column.
        cells: its values as Arrow gives them.
    """
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_time(kind) or pa.types.is_date64(kind)):
        return cells
    stored = pa.int32() if kind.bit_width == 32 else pa.int64()
    ticks = column.cast(stored).to_pylist()
    ticks_of_day = _TICKS_OF_DAY["ms" if pa.types.is_date64(kind) else kind.unit]
    if pa.types.is_date64(kind):
        has_value = [tick is not None and tick % ticks_of_day == 0 for tick in ticks]
    else:
        step = 1000 if kind.unit == "ns" else 1
        has_value = [
            tick is not None and 0 <= tick < ticks_of_day and tick % step == 0 for tick in ticks
        ]
    return [cell if keep else None for cell, keep in zip(cells, has_value, strict=True)]


def _python_cell(cell: pa.Scalar) -> object:
    """Return one value of an Arrow column; None for one that Python does not have."""
    try:
        value: object = cell.as_py()
    except (ValueError, OverflowError):
        return None
    return value


def _duckdb_columns(relation: duckdb.DuckDBPyRelation) -> list[Any]:
    """Return the columns of a DuckDB relation as sequences.

    Labels that are times are read as Arrow has them, and intervals as text: in Python's values
    DuckDB cuts nanoseconds off, makes 30 days of a month, and of an endless day the last one, so
    that two labels become one.

    Raises:
        InvalidParameter: for a type that this version of DuckDB cannot hand to Arrow.
    """
    kind = str(relation.types[0])
    if kind.startswith(_INEXACT_TIMES):
        import duckdb

        try:
            table = relation.to_arrow_table()
        except duckdb.NotImplementedException:  # decided by the type alone: TIME_NS before 1.5
            raise InvalidParameter(
                f"labels: this version of DuckDB gives no values of the type {kind}; cast the "
                "column to VARCHAR",
                parameter="labels",
            ) from None
        return _arrow_columns(table)
    if kind == "INTERVAL" and len(relation.types) == 2:
        relation = relation.project("#1::VARCHAR AS label, #2 AS count")
    rows = relation.fetchall()
    if not rows:
        return [[] for _ in relation.columns]
    return list(zip(*rows, strict=True))


# The units of times, and how many of each a day has.
_TICKS_OF_DAY = {"s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}

# The types of DuckDB of which it makes Python's values that are not the same ones.
_INEXACT_TIMES = ("DATE", "TIMESTAMP", "TIME_NS")

# How the columns of a table are read, by a method that only tables of its library have.
_COLUMNS: dict[str, Callable[[Any], list[Any]]] = {
    "iloc": _pandas_columns,
    "get_columns": _polars_columns,
    "itercolumns": _arrow_columns,
    "flatten": _struct_columns,
    "fetchall": _duckdb_columns,
    "to_pyarrow": lambda table: _columns(table.to_pyarrow()),  # Ibis
    "collect": lambda lazy: _columns(lazy.collect()),  # polars, lazy
}


def pairs_of(data: object) -> Pairs:
    """Return the labels and the counts of a dict, a list of pairs, ``value_counts()``, or a table
    of two columns, labels first; both have the shape (n,) and are not yet checked.

    Rows without a label are left out: that one is there may depend on one user.

    Raises:
        InvalidParameter: for anything else; the message says what to give instead.
    """
    labels, counts = _all_pairs_of(data)
    if set(map(type, labels)) <= {str, int}:
        return labels, counts
    has_label = [not is_missing(label) for label in labels]
    if all(has_label):
        return labels, counts
    return list(compress(labels, has_label)), list(compress(counts, has_label))


def _all_pairs_of(data: Any) -> Pairs:
    """Return the labels and the counts of all rows, as ``pairs_of`` does.

    Raises:
        InvalidParameter: for a table that does not have two columns, or has the counts first.
    """
    if isinstance(data, Mapping):
        return list(data.keys()), list(data.values())
    if _is_list_of_pairs(data):
        return [label for label, _ in data], [count for _, count in data]
    is_series = hasattr(data, "iloc") and not hasattr(data, "columns")  # of pandas
    if is_series:
        return _pairs_of_series(data)
    columns = _columns(data)
    if len(columns) != 2:
        raise InvalidParameter(
            f"labels: a table must have two columns, labels and counts; this one has "
            f"{len(columns)}; choose two, or use dptopk.datasets.events_histogram if each row is "
            "an event"
        )
    first_name, second_name = _column_names(data) or ("", "")  # without names none is refused
    first_is_counts = str(first_name).lower() in NAMES_OF_COUNTS
    second_is_counts = str(second_name).lower() in NAMES_OF_COUNTS
    if first_is_counts and not second_is_counts:
        raise InvalidParameter(
            "labels: the first column has the name of counts; give the labels first, counts second"
        )
    labels, counts = columns
    return list(labels), counts


def _is_list_of_pairs(data: object) -> bool:
    """Return whether a value is a list or tuple whose items are all pairs."""
    if not isinstance(data, list | tuple):
        return False
    return all(isinstance(item, list | tuple) and len(item) == 2 for item in data)


def _pairs_of_series(series: pd.Series[Any]) -> Pairs:
    """Return the labels and counts of a pandas series, which has the labels as its index.

    Raises:
        InvalidParameter: for integers without a name, which are row numbers or what is left of
            them, unless the series is called as counts are: pandas makes a RangeIndex of integers
            that are equally far from each other, which depends on the labels of all.
    """
    index = series.index
    has_numbers = index.nlevels == 1 and getattr(index.dtype, "kind", "O") in "iu"
    is_called_counts = str(series.name).lower() in NAMES_OF_COUNTS
    if has_numbers and index.name is None and not is_called_counts:
        raise InvalidParameter(
            "labels: the series has row numbers alone; value_counts() counts a column of events; "
            "of counts whose labels are integers, name the index"
        )
    if index.nlevels == 1:  # also of a MultiIndex, whose labels would be tuples of one
        index = index.get_level_values(0)
    return readable_series(index.to_series()).tolist(), series.to_numpy()


def _column_names(data: Any) -> list[Any]:
    """Return the names of a table's columns; [] if it has none, or reading them would run a
    query.
    """
    if hasattr(data, "collect"):
        return []
    names = getattr(data, "column_names", ()) or getattr(data, "columns", ())
    return list(names)


def _columns(data: Any) -> list[Any]:
    """Return the columns of a table of any of the known libraries.

    Raises:
        InvalidParameter: for anything else.
    """
    for method, read in _COLUMNS.items():
        if not hasattr(data, method):
            continue
        if method == "flatten" and "struct" not in str(getattr(data, "type", "")):
            continue  # other arrays have that method too
        return read(data)
    raise InvalidParameter(
        "counts must be given, or labels with their counts: a dict, a Counter, a list of "
        "(label, count) pairs, "
        "value_counts(), or a table of two columns; for a list of labels use "
        "collections.Counter(labels)"
    )


def _exact_array(counts: ArrayLike) -> NDArray[Any]:
    """Return counts as an array in which no integer was rounded because another count is a
    float.

    Args:
        counts: an array, which is taken as it is, or a list or tuple; NumPy would make floats of
            all numbers of a list that holds one float, so such a list becomes an array of objects.

    Raises:
        InvalidParameter: for lists of different lengths in a list.
    """
    try:
        array = np.asarray(counts)
    except ValueError:
        raise InvalidParameter("counts must be whole numbers, got lists") from None
    may_be_rounded = array.dtype.kind == "f" and isinstance(counts, list | tuple)
    if may_be_rounded:
        return np.asarray(counts, dtype=object)
    return array


def whole_counts(counts: ArrayLike) -> NDArray[np.int64]:
    """Return counts as int64, shape (n,).

    Raises:
        InvalidParameter: for anything but whole numbers in [0, 2^62): fractions, NaN, missing
            values, texts.
    """
    array = _exact_array(counts)
    if array.ndim != 1:
        hint = (
            "for a data frame of counts use Histogram.from_pandas, for a table of events "
            "datasets.events_histogram"
        )
        raise InvalidParameter(
            f"counts must be one-dimensional, got {array.ndim} dimensions; {hint}"
        )
    if array.dtype == object:
        array = _whole_numbers(array)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iuf":
        raise InvalidParameter(
            f"counts must be whole numbers, got the type {array.dtype.type.__name__}"
        )
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise InvalidParameter("counts must be finite: a count is NaN, missing or infinite")
        if (array != np.floor(array)).any():
            raise InvalidParameter("counts must be whole numbers: a count is fractional")
    if array.min() < 0:
        raise InvalidParameter("counts must be at least 0: a count is negative")
    if array.max() >= LARGEST_COUNT:
        raise InvalidParameter("counts must be below 2^62")
    return array.astype(np.int64)


def counts_of_table(counts: ArrayLike) -> NDArray[Any]:
    """Return counts of a table as an array in which a missing count is 0 and one of 2^62 or more is
    2^62 - 1; infinities, and what is no number, are unchanged.

    Both may depend on one user: of a list of labels that is joined with counts, a label that nobody
    has comes without one. Its row stays, since the rows may be a public domain.
    """
    array = _exact_array(counts)
    largest = LARGEST_COUNT - 1
    if array.dtype.kind in "iu":
        return np.minimum(array, min(largest, int(np.iinfo(array.dtype).max)))
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), 0.0, array)
        is_large = (array >= LARGEST_COUNT) & np.isfinite(array)
    elif array.dtype == object and array.ndim == 1:
        is_absent = np.fromiter(map(_is_missing_count, array), bool, len(array))
        array = np.where(is_absent, 0, array)
        is_large = np.fromiter(map(_is_large, array), bool, len(array))
    else:
        return array
    if not is_large.any():
        return array
    numbers = array.astype(object)
    numbers[is_large] = largest
    return numbers


def _is_missing_count(value: Any) -> bool:
    """Return whether a cell holds no count; a list or an array in it is none that is missing."""
    return not isinstance(value, list | tuple | np.ndarray) and is_missing(value)


def _is_large(value: Any) -> bool:
    """Return whether a value is a finite number of at least 2^62."""
    if isinstance(value, str | bytes) or is_missing(value):
        return False
    try:
        return bool(LARGEST_COUNT <= value < math.inf)
    except TypeError:  # no number
        return False


def _whole_numbers(array: NDArray[Any]) -> NDArray[Any]:
    """Return the numbers of an object array as int64, shape (n,).

    A number below -1 becomes -1, which the caller refuses too, so that it fits 64 bits.

    Raises:
        InvalidParameter: for missing values, texts, truth values, fractions and large numbers.
    """
    import pandas as pd

    if pd.isna(array).any():
        raise InvalidParameter("counts must be finite: a count is NaN, missing or infinite")
    if any(isinstance(value, bool | str | bytes) for value in array):
        raise InvalidParameter(
            "counts must be whole numbers, got text ('1,000' and 'NaN' are text) or truth values"
        )
    if any(isinstance(value, int) and value >= LARGEST_COUNT for value in array):
        raise InvalidParameter("counts must be below 2^62")
    try:
        integral = all(value == int(value) for value in array)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter("counts must be whole numbers") from None
    if not integral:
        raise InvalidParameter("counts must be whole numbers: a count is fractional")
    return np.array([max(int(value), -1) for value in array], dtype=np.int64)
