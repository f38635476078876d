"""Histogram (label -> count) and Sensitivity: what a private query runs on, and how far one user can move it."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk import _validate as validate
from dptopk._choices import DOMAINS, NEIGHBOURS, Domain, Neighbours
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Histogram", "Sensitivity", "descending", "label_order"]

# Counts stay below 2^62, so that count + threshold + noise never overflows an int64.
LARGEST_COUNT = 2**62


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """How far adding or removing one user can move a histogram; every moved count moves in the same direction.

    Args:
        linf: τ >= 1, the most by which one user moves one count.
        l0: Δ >= 1, the most labels that one user touches; None = unrestricted.
        neighbours: "add_remove" (one user added or removed) or "replace_one".

    Raises:
        InvalidParameter: on values outside these ranges.
    """

    linf: int = 1
    l0: int | None = None
    neighbours: Neighbours = "add_remove"

    def __post_init__(self) -> None:
        l0 = None if self.l0 is None else validate.count(l0=self.l0)
        validate.assign(self, linf=validate.count(linf=self.linf), l0=l0)
        validate.member(NEIGHBOURS, neighbours=self.neighbours)

    def touched(self, labels: int | None = None) -> int | None:
        """The most labels among ``labels`` that one user touches: min(Δ, labels); None when neither is known."""
        bounds = [bound for bound in (self.l0, labels) if bound is not None]
        return min(bounds, default=None)

    def covers(self, other: Sensitivity) -> bool:
        """Whether what is proven for this sensitivity holds for the other: no user moves more there than here."""
        wider = self.l0 is not None and (other.l0 is None or other.l0 > self.l0)
        return other.linf <= self.linf and not wider and other.neighbours == self.neighbours


class Histogram:
    """A histogram and what is known about it in advance.

    Args:
        labels: distinct labels, shape (n,): strings, integers or any hashable values; None = the integers 0..n-1,
            which makes the domain public.
        counts: non-negative integers below 2^62, shape (n,); floats are taken when they are whole numbers.
        sensitivity: how far one user can move the counts.
        domain: "private" (the labels come from the data) or "public" (the label set is known to all).
        domain_size: for a public domain, its size if it is larger than n; labels not listed have count 0.
        absent_label: names the unlisted label of index 0 <= i < domain_size - n when it is drawn. By default the
            integer n + i when labels is None, else the text "absent[i]".
        complete: False when the rows are the top of a longer histogram (by count, ties by label).
        limit: of an incomplete histogram, how many rows were asked for; fewer came if there were no more labels.
            Known beforehand, unlike the number of rows at hand; that is the default, which is right when there surely
            were more labels.
        capped: whether contributions above the sensitivity were cut off to make these counts; releases then say so.

    Raises:
        InvalidParameter: on negative, fractional, missing or NaN counts, repeated or missing labels, unequal lengths,
            a domain_size or limit below n, or a limit of a complete histogram. The message never holds a label or a
            count.

    >>> histogram = Histogram(["the", "and", "to"], [649, 545, 383], sensitivity=Sensitivity(l0=1))
    >>> len(histogram), histogram.domain
    (3, 'private')
    """

    def __init__(
        self,
        labels: Sequence[Any] | np.ndarray[Any, Any] | pd.Series[Any] | None,
        counts: Sequence[int] | np.ndarray[Any, Any] | pd.Series[Any],
        *,
        sensitivity: Sensitivity = Sensitivity(),
        domain: Domain = "private",
        domain_size: int | None = None,
        absent_label: Callable[[int], Any] | None = None,
        complete: bool = True,
        limit: int | None = None,
        capped: bool = False,
    ) -> None:
        self.sensitivity = validate.instance(Sensitivity, sensitivity=sensitivity)
        self.counts = _whole_counts(counts)
        self.domain: Domain = "public" if labels is None else validate.member(DOMAINS, domain=domain)
        if not isinstance(complete, bool | np.bool_):
            raise InvalidParameter(f"complete must be True or False, got {complete!r}")
        self.complete = bool(complete)
        self.capped = bool(capped)
        self.limit = _limit(limit, rows=len(self.counts), complete=self.complete)
        self._labels = None if labels is None else _distinct_labels(labels, len(self.counts))
        if domain_size is None:
            domain_size = len(self.counts)
        elif self.domain == "private":
            raise InvalidParameter("domain_size is known only for a public domain")
        self.domain_size = validate.count(domain_size=domain_size, at_least=len(self.counts))
        if absent_label is not None and not callable(absent_label):
            raise InvalidParameter("absent_label must be a function from index to label")
        self._absent_label = absent_label
        self.identity = object()  # a token by which releases name the histogram they were drawn from

    @classmethod
    def from_pandas(cls, df: pd.DataFrame, *, label: str, count: str, **options: Any) -> Histogram:
        """The histogram in two columns of a data frame; ``options`` are those of Histogram.

        Raises:
            InvalidParameter: when a column does not exist, and as Histogram does.
        """
        for name, column in (("label", label), ("count", count)):
            if column not in df.columns:
                raise InvalidParameter(f"{name}: the data frame has no column {column!r}")
        return cls(df[label], df[count], **options)

    def __len__(self) -> int:
        """Number of rows at hand (for a private domain this number is itself private)."""
        return len(self.counts)

    def __repr__(self) -> str:
        size = f", domain_size={self.domain_size}" if self.domain == "public" else ""
        return f"Histogram(domain={self.domain!r}{size}, complete={self.complete}, sensitivity={self.sensitivity})"

    @cached_property
    def labels(self) -> np.ndarray[Any, Any]:
        """The labels of the rows, shape (n,)."""
        return np.arange(len(self.counts)) if self._labels is None else self._labels

    @property
    def absent(self) -> int:
        """Number of public labels that are not listed, all with count 0."""
        return self.domain_size - len(self.counts)

    def label_at(self, index: int) -> Any:
        """The label of row ``index``, or of the absent label ``index - n`` from n on."""
        n = len(self.counts)
        if index < n:
            label = index if self._labels is None else self._labels[index]
            return label.item() if isinstance(label, np.generic) else label
        if self._absent_label is not None:
            return self._absent_label(index - n)
        return index if self._labels is None else f"absent[{index - n}]"

    def top_rows(self, d: int) -> np.ndarray[Any, Any]:
        """Rows of the d largest counts among the present labels (count > 0), largest first, ties in label order.

        Linear time apart from the d rows themselves; labels are compared only where counts are tied.

        Returns:
            At most d row indices; fewer when fewer labels are present.
        """
        if 0 < d < len(self.counts):
            cut = max(int(np.partition(self.counts, -d)[-d]), 1)
            candidates = np.flatnonzero(self.counts >= cut)
        else:
            candidates = np.flatnonzero(self.counts > 0)
        tied = None if self._labels is None else self._labels[candidates]
        chosen: np.ndarray[Any, Any] = candidates[descending(self.counts[candidates], tied)]
        return chosen[: max(d, 0)]

    def positions(self, labels: Sequence[Any]) -> np.ndarray[Any, Any]:
        """Row of each of the given labels, shape (len(labels),); -1 for a label that has no row."""
        try:
            wanted = {label: place for place, label in enumerate(labels)}
        except TypeError:
            raise InvalidParameter("labels must be hashable") from None
        if len(wanted) < len(labels):
            raise InvalidParameter("labels must be distinct")
        rows = np.full(len(labels), -1, dtype=np.int64)
        if self._labels is None:
            for label, place in wanted.items():
                if isinstance(label, int | np.integer) and 0 <= label < len(self.counts):
                    rows[place] = label
            return rows
        import pandas as pd

        targets = np.empty(len(labels), dtype=object)
        targets[:] = list(labels)
        index, wanted_index = (pd.Index(array, dtype=object, tupleize_cols=False) for array in (self._labels, targets))
        rows[:] = index.get_indexer(wanted_index)
        return rows


def label_order(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The permutation that sorts labels by a rule that looks at each label alone, never at the data around it.

    Real numbers come first, by value; then everything else by its text, and equal texts by the name of their type.

    >>> label_order(np.array(["b", 10, "a", 9], dtype=object)).tolist()
    [3, 1, 2, 0]
    """
    if labels.dtype.kind in "iu":
        order: np.ndarray[Any, Any] = np.argsort(labels, kind="stable")
        return order
    if all(type(label) is str for label in labels):  # distinct, so texts alone decide
        return np.array(sorted(range(len(labels)), key=labels.tolist().__getitem__), dtype=np.int64)
    keys = [
        (0, label, "", "") if isinstance(label, numbers.Real) else (1, 0, str(label), type(label).__name__)
        for label in labels
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def descending(values: np.ndarray[Any, Any], labels: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
    """The permutation that sorts integer values downwards, ties in label order (None: in the order given).

    Labels are compared only inside runs of equal values.

    >>> descending(np.array([3, 5, 3]), np.array(["b", "c", "a"], dtype=object)).tolist()
    [1, 2, 0]
    """
    order: np.ndarray[Any, Any] = np.argsort(-values, kind="stable")
    if labels is None or len(order) < 2:
        return order
    same = values[order[1:]] == values[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        rows = order[tied]
        rows = rows[label_order(labels[rows])]
        order[tied] = rows[np.argsort(-values[rows], kind="stable")]
    return order


def _limit(limit: int | None, *, rows: int, complete: bool) -> int | None:
    """Rows asked for, None when all were."""
    if complete:
        if limit is not None:
            raise InvalidParameter("limit is of an incomplete histogram: give complete=False with it")
        return None
    if limit is None:
        return rows
    limit = validate.count(limit=limit)
    if rows > limit:
        raise InvalidParameter(f"limit={limit} is below the number of rows")
    return limit


def _whole_counts(counts: Any) -> np.ndarray[Any, Any]:
    """Counts as int64, refusing whatever is not a whole number in [0, 2^62)."""
    array = np.asarray(counts)
    if array.ndim != 1:
        raise InvalidParameter(f"counts must be one-dimensional, got {array.ndim} dimensions")
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
    return array.astype(np.int64, copy=array.dtype != np.int64)


def _from_objects(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Python integers or missing values in an object array, as a numeric array."""
    import pandas as pd

    if pd.isna(array).any():
        raise InvalidParameter("counts must be finite: a count is NaN, missing or infinite")
    if any(isinstance(value, bool | str | bytes) for value in array):
        raise InvalidParameter("counts must be whole numbers, got text or truth values")
    if any(isinstance(value, int) and value >= LARGEST_COUNT for value in array):
        raise InvalidParameter("counts must be below 2^62")
    try:
        integral = all(value == int(value) for value in array)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter("counts must be whole numbers") from None
    if not integral:
        raise InvalidParameter("counts must be whole numbers: a count is fractional")
    return np.array([max(int(value), -1) for value in array], dtype=np.int64)


def _distinct_labels(labels: Any, n: int) -> np.ndarray[Any, Any]:
    """Labels as an array of integers or objects, refusing missing or repeated ones."""
    import pandas as pd

    if isinstance(labels, str | bytes):
        raise InvalidParameter("labels must be a sequence of labels, not one text")
    try:
        index = pd.Index(labels, tupleize_cols=False)
    except TypeError:
        raise InvalidParameter(f"labels must be a sequence of labels, got {type(labels).__name__}") from None
    if len(index) != n:
        raise InvalidParameter("labels and counts must have the same length")
    if index.hasnans:
        raise InvalidParameter("labels must not be missing")
    if index.dtype == object and index.inferred_type != "string":
        try:
            set(index)
        except TypeError:
            raise InvalidParameter("labels must be hashable") from None
    if not index.is_unique:
        raise InvalidParameter("labels must be distinct: a label is repeated")
    array: np.ndarray[Any, Any] = index.to_numpy()
    return array if array.dtype.kind in "iu" else array.astype(object)
