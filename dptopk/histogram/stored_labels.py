"""Labels of a private histogram that stay in the engine that counted them, until a row is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptopk.histogram.labels import INT64

Array = np.ndarray[Any, Any]
_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs, which UTF-8 cannot hold


class StoredLabels:
    """Distinct labels, one a row, of which only those that are asked for are read.

    An index gives further ones of this class; ``tolist`` and ``numpy.asarray`` read them.

    Args:
        size: how many rows there are.
        dtype: NumPy's StringDType or int64.
        read: of rows (int64, shape (n,)) or None for all: their labels, as an array of this dtype,
            in the order of the rows.
        find: of labels of the dtype's type: their rows, shape (n,); -1 for one that has none.
        rows: which of these rows are meant, ascending; None = all.
    """

    def __init__(
        self,
        size: int,
        dtype: np.dtype[Any],
        read: Callable[[Array | None], Array],
        find: Callable[[Sequence[Any]], Array],
        *,
        rows: Array | None = None,
    ) -> None:
        self.size, self.dtype, self.rows = size, dtype, rows
        self._read, self._find = read, find

    def __len__(self) -> int:
        return self.size if self.rows is None else len(self.rows)

    def __getitem__(self, index: Array | slice) -> StoredLabels:
        """The labels of a slice, of rows, or of those for which an array of booleans is true."""
        if isinstance(index, np.ndarray) and index.dtype == bool:
            index = np.flatnonzero(index)
        if self.rows is not None:
            rows = self.rows[index]
        elif isinstance(index, slice):
            rows = np.arange(self.size)[index]
        else:
            rows = index.astype(np.int64)
        return StoredLabels(self.size, self.dtype, self._read, self._find, rows=rows)

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> Array:
        labels = self._read(self.rows)
        return labels if dtype is None else labels.astype(dtype)

    def __reduce__(self) -> tuple[Callable[[Array], Array], tuple[Array]]:
        """A copy for another process holds the labels themselves."""
        return np.asarray, (np.asarray(self),)

    def tolist(self) -> list[Any]:
        """The labels, as Python's values."""
        return np.asarray(self).tolist()

    def positions(self, labels: Sequence[Any]) -> Array:
        """The place of each label among these, shape (n,); -1 for one that is not there."""
        typed = [place for place, label in enumerate(labels) if self._may_be(label)]
        found = np.full(len(labels), -1, dtype=np.int64)
        if not typed:
            return found
        found[typed] = self._find([labels[place] for place in typed])
        if self.rows is None:
            return found
        own = {row: place for place, row in enumerate(self.rows.tolist())}
        return np.array([own.get(row, -1) for row in found.tolist()], dtype=np.int64)

    def _may_be(self, label: object) -> bool:
        """Whether a value is one that the engine could have among these labels."""
        if self.dtype.kind == "i":
            return type(label) is int and label in INT64
        return type(label) is str and not _HALVES.search(label)
