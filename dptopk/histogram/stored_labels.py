"""Labels of a private histogram that stay in the database engine that counted them until a row is
shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dptopk.histogram.labels import INT64

Array = np.ndarray[Any, Any]
_SURROGATES = re.compile("[\ud800-\udfff]")  # halves of surrogate pairs, which UTF-8 cannot hold


class StoredLabels:
    """Distinct labels, one for each row of a table, that are read from the engine on demand.

    Indexing returns another object of this class; ``tolist`` and ``numpy.asarray`` read the labels.

    Args:
        size: how many rows the table has.
        dtype: NumPy's StringDType or int64.
        read: the function of row indices from 0 (int64, shape (n,)), or of None for all rows, that
            returns their labels as an array of this dtype, in the same order.
        find: the function of labels of the dtype's type that returns the indices of their rows,
            shape (n,), -1 for a label without a row.
        rows: the rows of the table that this object stands for, ascending; None = all.
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
        self.size = size
        self.dtype = dtype
        self.rows = rows
        self._read = read
        self._find = find

    def __len__(self) -> int:
        return self.size if self.rows is None else len(self.rows)

    def __getitem__(self, index: Array | slice) -> StoredLabels:
        """Return the labels at the positions of a slice, of an integer array, or of a boolean
        mask; nothing is read yet.
        """
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
        labels = np.empty(0, self.dtype) if len(self) == 0 else self._read(self.rows)
        return labels if dtype is None else labels.astype(dtype)

    def __reduce__(self) -> tuple[Callable[[Array], Array], tuple[Array]]:
        """Pickle the labels themselves, because another process cannot read from the engine."""
        return np.asarray, (np.asarray(self),)

    def tolist(self) -> list[Any]:
        """Read the labels and return them as Python values."""
        return np.asarray(self).tolist()

    def positions(self, labels: Sequence[Any]) -> Array:
        """Return the position of each given label among these labels, int64, shape (n,); -1 for a
        label that is not among them.
        """
        candidates = [
            place for place, label in enumerate(labels) if self._has_type_of_labels(label)
        ]
        rows = np.full(len(labels), -1, dtype=np.int64)
        if not candidates:
            return rows
        rows[candidates] = self._find([labels[place] for place in candidates])
        if self.rows is None:
            return rows
        position_of = {row: position for position, row in enumerate(self.rows.tolist())}
        return np.array([position_of.get(row, -1) for row in rows.tolist()], dtype=np.int64)

    def _has_type_of_labels(self, label: object) -> bool:
        """Return whether a value has the type of these labels, so that the engine can look for
        it.
        """
        if self.dtype.kind == "i":
            return type(label) is int and label in INT64
        return type(label) is str and not _SURROGATES.search(label)
