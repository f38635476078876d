"""Counts as callers have them, read as 64-bit integers: nothing is rounded, and no message shows a count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptopk.errors import InvalidParameter

# Counts stay below 2^62, so that count + threshold + noise never overflows an int64.
LARGEST_COUNT = 2**62


def pairs_of(labels: Any) -> tuple[Any, Any]:
    """Labels and counts of a mapping, or of a pandas series with the labels as its index.

    Raises:
        InvalidParameter: for anything else.
    """
    if isinstance(labels, Mapping):
        return list(labels.keys()), list(labels.values())
    if hasattr(labels, "index") and hasattr(labels, "to_numpy"):
        return labels.index.tolist(), labels.to_numpy()
    raise InvalidParameter("counts must be given, or labels with their counts: a dict, a Counter or value_counts()")


def _one_by_one(counts: Any) -> NDArray[Any]:
    """Counts as an array in which no integer was rounded because another count is a float."""
    array = np.asarray(counts)
    mixed = array.dtype.kind == "f" and isinstance(counts, list | tuple)
    return np.asarray(counts, dtype=object) if mixed else array


def whole_counts(counts: Any) -> NDArray[np.int64]:
    """Counts as int64, shape (n,).

    Raises:
        InvalidParameter: for whatever is not a whole number in [0, 2^62): fractions, NaN, missing values, texts.
    """
    array = _one_by_one(counts)
    if array.ndim != 1:
        raise InvalidParameter(
            f"counts must be one-dimensional, got {array.ndim} dimensions; of a data frame of counts "
            "Histogram.from_pandas makes a histogram, of a table of events datasets.events_histogram"
        )
    if array.dtype == object:
        array = _from_objects(array)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iuf":
        raise InvalidParameter(f"counts must be whole numbers, got the type {array.dtype}")
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
        raise InvalidParameter("counts must be whole numbers, got text ('1,000' and 'NaN' are text) or truth values")
    if any(isinstance(value, int) and value >= LARGEST_COUNT for value in array):
        raise InvalidParameter("counts must be below 2^62")
    try:
        integral = all(value == int(value) for value in array)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter("counts must be whole numbers") from None
    if not integral:
        raise InvalidParameter("counts must be whole numbers: a count is fractional")
    return np.array([max(int(value), -1) for value in array], dtype=np.int64)
