"""Counts as callers have them, read as 64-bit integers: nothing is rounded, and no message shows a
count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk.errors import InvalidParameter

# Counts stay below 2^62, so that count + threshold + noise never overflows an int64.
LARGEST_COUNT = 2**62
# What libraries call the column of counts that they make.
COUNTS = {"count", "counts", "count_star()", "len"}


# How the columns of a table are read, by a method that only tables of its library have.
_COLUMNS: dict[str, Callable[[Any], list[Any]]] = {
    "iloc": lambda frame: [frame.iloc[:, place] for place in range(len(frame.columns))],  # pandas
    "get_columns": lambda frame: [column.to_list() for column in frame.get_columns()],  # polars
    "itercolumns": lambda table: [column.to_pylist() for column in table.itercolumns()],  # Arrow
    "flatten": lambda structs: [
        column.to_pylist() for column in structs.flatten()
    ],  # Arrow's value_counts()
    "fetchall": lambda relation: (
        list(zip(*relation.fetchall(), strict=True)) or [[] for _ in relation.columns]
    ),  # DuckDB
    "to_pyarrow": lambda table: _columns(table.to_pyarrow()),  # Ibis
    "collect": lambda lazy: _columns(lazy.collect()),  # polars, lazy
}


def pairs_of(data: Any) -> tuple[Any, Any]:
    """Labels and counts of a dict, a list of pairs, ``value_counts()``, or a table of two columns,
    labels first.

    Raises:
        InvalidParameter: for anything else, saying what to make of it.
    """
    if isinstance(data, Mapping):
        return list(data.keys()), list(data.values())
    if isinstance(data, list | tuple) and all(
        isinstance(pair, list | tuple) and len(pair) == 2 for pair in data
    ):
        return [label for label, _ in data], [count for _, count in data]
    if hasattr(data, "iloc") and not hasattr(data, "columns"):  # a pandas series
        if type(data.index).__name__ == "RangeIndex" and data.index.name is None:
            raise InvalidParameter(
                "labels: the series has row numbers alone; value_counts() counts a column of events"
            )
        if data.index.nlevels == 1:
            index = data.index.get_level_values(0)
        else:
            index = data.index
        return index.tolist(), data.to_numpy()
    columns = _columns(data)
    if len(columns) != 2:
        wanted = (
            f"a table must have two columns, labels and counts; this one has "
            f"{len(columns)}; choose two"
        )
        raise InvalidParameter(
            f"labels: {wanted}, or use dptopk.datasets.events_histogram if each row is an event"
        )
    first, second = (str(name).lower() in COUNTS for name in _names(data) or ("", ""))
    if first and not second:
        raise InvalidParameter(
            "labels: the first column has the name of counts; give the labels first, counts second"
        )
    return list(columns[0]), columns[1]


def _names(data: Any) -> list[Any]:
    """Return what the columns of a table are called; [] where asking would run a query, or there
    are no names.
    """
    if hasattr(data, "collect"):
        return []
    names = getattr(data, "column_names", ()) or getattr(data, "columns", ())
    return list(names)


def _columns(data: Any) -> list[Any]:
    for method, read in _COLUMNS.items():
        if hasattr(data, method) and (
            method != "flatten" or "struct" in str(getattr(data, "type", ""))
        ):
            return read(data)
    raise InvalidParameter(
        "counts must be given, or labels with their counts: a dict, a Counter, a list of "
        "(label, count) pairs, "
        "value_counts(), or a table of two columns; for a list of labels use "
        "collections.Counter(labels)"
    )


def _one_by_one(counts: ArrayLike) -> NDArray[Any]:
    """Counts as an array in which no integer was rounded because another count is a float."""
    array = np.asarray(counts)
    mixed = array.dtype.kind == "f" and isinstance(counts, list | tuple)
    if mixed:
        return np.asarray(counts, dtype=object)
    return array


def whole_counts(counts: ArrayLike) -> NDArray[np.int64]:
    """Counts as int64, shape (n,).

    Raises:
        InvalidParameter: for whatever is not a whole number in [0, 2^62): fractions, NaN, missing
        values, texts.
    """
    array = _one_by_one(counts)
    if array.ndim != 1:
        hint = (
            "for a data frame of counts use Histogram.from_pandas, for a table of events "
            "datasets.events_histogram"
        )
        raise InvalidParameter(
            f"counts must be one-dimensional, got {array.ndim} dimensions; {hint}"
        )
    if array.dtype == object:
        array = _from_objects(array)
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


def _from_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Python integers or missing values in an object array, as a numeric array."""
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
