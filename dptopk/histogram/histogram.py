"""Histogram, which maps labels to counts, and Sensitivity, which bounds how far one user can move
it.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import DOMAINS, NEIGHBOURS, Domain, Neighbours
from dptopk.errors import InvalidParameter
from dptopk.histogram.counts import counts_of_table, pairs_of, readable_series, whole_counts
from dptopk.histogram.labels import (
    INT64,
    Label,
    as_labels,
    check_distinct,
    identity,
    label_order,
    labels_as_list,
)
from dptopk.histogram.stored_labels import StoredLabels

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Bounds on the change of a histogram when one user is added or removed; all of that user's
    changes have the same direction.

    Args:
        linf: τ from 1 to 2^62, the most by which one user moves one count.
        l0: Δ from 1 to 2^62, the most labels that one user touches; None = unrestricted.
        neighbours: "add_remove" (one user added or removed) or "replace_one".
        l2: for sums of weights instead of counts: a user of d labels adds at most isqrt(l2² // d)
            to each, so that what one user adds has a Euclidean norm of at most l2. It may be less:
            ``min_users`` takes a constant off each sum. None: counts. Sums of weights find labels
            and are never shown as counts.
        l1: t from linf to 2^62, the most that one user adds to all counts together; None = only
            what linf and l0 imply. A user of a total of t touches at most t labels, so that ``l0``
            becomes at most t. Only a cut of each user's own contributions before counting, such as
            ``events_histogram(..., total_per_user=t)``, makes it true.

    Raises:
        InvalidParameter: on values outside these ranges, and if both l1 and l2 are given.

    >>> Sensitivity(linf=10, l1=25)
    Sensitivity(linf=10, l0=25, neighbours='add_remove', l1=25)
    """

    linf: int = 1
    l0: int | None = None
    neighbours: Neighbours = "add_remove"
    l2: int | None = field(default=None, metadata={"optional": True})
    l1: int | None = field(default=None, metadata={"optional": True})

    def __post_init__(self) -> None:
        validate.parameters(self, neighbours=partial(validate.member, NEIGHBOURS))
        if self.l1 is None:
            return
        if self.l2 is not None:
            raise InvalidParameter("l1 is a cap on counts, l2 one on sums of weights: give one")
        if self.l1 < self.linf:
            raise InvalidParameter(
                f"l1={self.l1} is below linf={self.linf}: a user who adds at most {self.l1} in all "
                f"moves no count by more; give linf={self.l1}"
            )
        validate.assign(self, l0=self.touched(self.l1))

    def __repr__(self) -> str:
        """Return the text of a dataclass, with l2 and l1 only where they are given."""
        l2_text = "" if self.l2 is None else f", l2={self.l2}"
        l1_text = "" if self.l1 is None else f", l1={self.l1}"
        fields_text = f"linf={self.linf}, l0={self.l0}, neighbours={self.neighbours!r}"
        return f"Sensitivity({fields_text}{l2_text}{l1_text})"

    @overload
    def touched(self, labels: int) -> int: ...

    @overload
    def touched(self, labels: None = None) -> int | None: ...

    def touched(self, labels: int | None = None) -> int | None:
        """Return how many of ``labels`` labels one user touches at most: min(Δ, labels); None when
        neither number is known.
        """
        bounds = [bound for bound in (self.l0, labels) if bound is not None]
        return min(bounds, default=None)

    def total(self, touched: int) -> int:
        """Return the most that one user adds to ``touched`` counts together: min(t, τ·touched), or
        τ·touched without a total t.
        """
        most = self.linf * touched
        if self.l1 is None:
            return most
        return min(self.l1, most)

    def squares(self, touched: int) -> int:
        """Return the largest sum of squares of what one user adds to ``touched`` counts.

        With at most τ at each and t together that is ⌊t/τ⌋ τ² + (t mod τ)²: moving a unit from a
        smaller part to a larger one raises the sum of squares.
        """
        full_moves, remainder = divmod(self.total(touched), self.linf)
        return full_moves * self.linf**2 + remainder**2

    def plain(self) -> dict[str, int | str | None]:
        """Return the fields as JSON holds them; ``l1`` appears only where it is given, so that
        records from before it was introduced stay the same.
        """
        values: dict[str, int | str | None] = {
            "linf": self.linf,
            "l0": self.l0,
            "neighbours": self.neighbours,
            "l2": self.l2,
        }
        if self.l1 is None:
            return values
        return values | {"l1": self.l1}

    def covers(self, other: Sensitivity) -> bool:
        """Return whether a guarantee for this sensitivity also holds for the other one, because no
        user can change more under the other than under this one.
        """
        if (other.neighbours, other.l2 is None) != (self.neighbours, self.l2 is None):
            return False
        # Both l2 are numbers, or neither is.
        if other.linf > self.linf or (other.l2 or 0) > (self.l2 or 0):
            return False
        if self.l0 is None:  # then l1 is None too
            return True
        if other.l0 is None or other.l0 > self.l0:
            return False
        return self.l1 is None or other.total(other.l0) <= self.l1


class Histogram:
    """A histogram and what is known about it in advance; it cannot be changed.

    Arrays are copied, except for a read-only array of texts (NumPy's StringDType).

    Args:
        labels: distinct labels, shape (n,): any hashable values, kept as the objects they are; None
            = the integers 0..n-1, which makes the domain public. Labels are the same when type and
            value are: 1, 1.0 and "1" differ. Without ``counts``: labels with their counts: a dict,
            a Counter, a list of (label, count) pairs, ``value_counts()`` of pandas, polars or
            Arrow, or a table of two columns, labels first and integer counts second: a pandas,
            polars or Arrow table, a DuckDB relation, an Ibis table; of these, rows without a label
            are left out, a missing count is 0, and counts of 2^62 and more become 2^62 - 1.
        counts: non-negative integers below 2^62, shape (n,); floats are taken when they are whole
            numbers.
        sensitivity: how far one user can move the counts.
        domain: "private" (the labels come from the data), "public" (the label set is known to all),
            or the public labels themselves: then they are the rows, in this order, with count 0
            where none is given, and other labels are left out. A ``range`` may be of any length.
        domain_size: for a public domain with labels=None or absent_label: its size, at most 2^62,
            if it may be larger than n; labels that are not listed have count 0.
        absent_label: a function that names the labels of a public domain that is too large to be
            written down: it takes an index 0 <= i < domain_size in the *whole* domain and returns
            its label; all labels differ, and the rows' labels are among them. Neither the function
            nor domain_size may depend on which labels have a row.
        complete: False when the rows are the top of a longer histogram (by count, ties by label).
        limit: for an incomplete histogram, how many rows were requested; there are fewer rows if
            there were no more labels. Unlike the number of rows it is known beforehand. The default
            is the number of rows, which is right when there certainly were more labels.
        capped: whether contributions above the sensitivity were cut off to make these counts;
            releases then say so.

    Attributes:
        labels: the labels of the rows, shape (n,).
        counts: the counts of the rows, int64, shape (n,); the array is read-only.
        sensitivity, complete, capped: as given.
        domain: "private" or "public".
        domain_size: how many labels the domain has; for a private one the number of rows.
        limit: as given, or the number of rows of an incomplete histogram; None if it is complete.
        identity: random text by which an answer and a stream know the histogram that they were
            made of; a copy under another sensitivity has the same one.

    Raises:
        InvalidParameter: on negative, fractional, missing or NaN counts, repeated or missing
            labels, labels that nothing orders (such as objects without a text of their own),
            unequal lengths, a domain_size or limit below n, labels with a domain_size but no
            absent_label (which of them have a row would show), or a limit of a complete histogram.
            The message never holds a label or a count.

    >>> histogram = Histogram(["the", "and", "to"], [649, 545, 383], sensitivity=Sensitivity(l0=1))
    >>> len(histogram), histogram.domain
    (3, 'private')
    >>> Histogram({"the": 649, "and": 545}).labels.tolist()
    ['the', 'and']
    >>> Histogram(["the"], [649], domain=["a", "the"]).counts.tolist()
    [0, 649]
    """

    counts: Array
    sensitivity: Sensitivity
    domain: Domain
    domain_size: int
    complete: bool
    limit: int | None
    capped: bool
    identity: str
    _labels: Array | StoredLabels | None
    _naming: Callable[[int], Any] | None

    def __init__(
        self,
        labels: Any,
        counts: Sequence[int] | Array | pd.Series[Any] | None = None,
        *,
        sensitivity: Sensitivity = Sensitivity(),
        domain: Domain | Sequence[Any] | Array | pd.Series[Any] = "private",
        domain_size: int | None = None,
        absent_label: Callable[[int], Any] | None = None,
        complete: bool = True,
        limit: int | None = None,
        capped: bool = False,
    ) -> None:
        validate.instance(Sensitivity, sensitivity=sensitivity)
        if not isinstance(complete, bool | np.bool_):
            raise InvalidParameter(f"complete must be True or False, got {complete!r}")
        if counts is None:
            labels, cells = pairs_of(labels)
            numbers = whole_counts(counts_of_table(cells))
        else:
            numbers = whole_counts(counts)
        rows = labels if isinstance(labels, StoredLabels | None) else as_labels(labels)
        if rows is not None and len(rows) != len(numbers):
            raise InvalidParameter("labels and counts must have the same length")
        limit = _requested_rows(limit, rows=len(numbers), complete=bool(complete))
        if isinstance(domain, str):
            contents = _contents_of_rows(rows, numbers, domain, domain_size, absent_label)
        else:
            if rows is None or domain_size is not None or absent_label is not None or not complete:
                raise InvalidParameter(
                    "domain: public labels are given with labels and counts of a whole histogram"
                )
            contents = _domain_contents(np.asarray(rows), numbers, domain)
        for array in (contents.counts, contents.labels):  # copies, or read-only already
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        self.__dict__.update(
            counts=contents.counts,
            sensitivity=sensitivity,
            domain=contents.domain,
            domain_size=contents.domain_size,
            complete=bool(complete),
            limit=limit,
            capped=bool(capped),
            identity=uuid.uuid4().hex,
            _labels=contents.labels,
            _naming=contents.naming,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse, because a histogram cannot be changed."""
        raise AttributeError(f"a Histogram cannot be changed: {name}")

    def __delattr__(self, name: str) -> None:
        """Refuse, because a histogram cannot be changed."""
        raise AttributeError(f"a Histogram cannot be changed: {name}")

    def __deepcopy__(self, _memo: dict[int, Any]) -> Histogram:
        """Return this histogram itself, because it cannot be changed; NumPy 2.0 crashes when it
        copies an array of its own texts deeply.
        """
        return self

    @classmethod
    def from_pandas(cls, df: pd.DataFrame, *, label: str, count: str, **options: Any) -> Histogram:
        """Return the histogram in two columns of a data frame.

        A column has one type. If pandas chose it by looking at the data (1 and 2 become 1.0 and 2.0
        if there is a 2.5), labels were changed before they came here: read label columns as text,
        or with a type of your choice. Rows without a label are left out, and a missing
        count is 0.

        Args:
            df: the data frame.
            label: the name of the column of labels.
            count: the name of the column of counts, whole numbers of at least 0.
            options: further arguments of Histogram.

        Raises:
            InvalidParameter: when a column does not exist, and as Histogram does.
        """
        for name, column in (("label", label), ("count", count)):
            if column not in df.columns:
                raise InvalidParameter(f"{name}: the data frame has no column {column!r}")
        labels = df[label]
        counts = df[count]
        if labels.ndim != 1 or counts.ndim != 1:  # two columns have the name: a table is refused
            return cls(labels, counts, **options)
        labels = readable_series(labels)
        has_label = labels.notna()  # that a label is missing may depend on one user
        if not has_label.all():
            labels = labels[has_label]
            counts = counts[has_label]
        return cls(labels, whole_counts(counts_of_table(counts)), **options)

    def with_sensitivity(self, sensitivity: Sensitivity) -> Histogram:
        """Return the same rows under a sensitivity that allows one user larger changes.

        Raises:
            InvalidParameter: when the sensitivity allows less than this histogram's, or has other
                neighbours.
        """
        if not sensitivity.covers(self.sensitivity):
            raise InvalidParameter(f"sensitivity: {sensitivity} does not cover {self.sensitivity}")
        wider = copy.copy(self)
        wider.__dict__["sensitivity"] = sensitivity
        return wider

    def with_counts(self, counts: Array, sensitivity: Sensitivity) -> Histogram:
        """Return a private histogram of the same labels with other counts, which were capped;
        labels whose new count is 0 are left out.

        Args:
            counts: the new counts, int64, shape (n,).
            sensitivity: how far one user moves them.
        """
        present = counts > 0
        labels = self.unread_labels
        if not present.all():  # a selection is a copy
            labels = labels[present]
            counts = counts[present]
        if isinstance(labels, np.ndarray):
            labels.flags.writeable = False  # a read-only array is not copied
        return Histogram(labels, counts, sensitivity=sensitivity, capped=True)

    def __len__(self) -> int:
        """Return the number of rows (for a private domain this number is itself private)."""
        return len(self.counts)

    def __repr__(self) -> str:
        """Return a text that shows public facts only, never labels, counts or their number."""
        size = f", domain_size={self.domain_size}" if self.domain == "public" else ""
        return (
            f"Histogram(domain={self.domain!r}{size}, complete={self.complete}, "
            f"sensitivity={self.sensitivity})"
        )

    @cached_property
    def labels(self) -> Array:
        """Return the labels of the rows, shape (n,): int64, objects, or texts of events as NumPy's
        StringDType.
        """
        if self._labels is None:
            return np.arange(len(self.counts))
        return np.asarray(self._labels)

    @property
    def unread_labels(self) -> Array | StoredLabels:
        """Return the labels of the rows, shape (n,); labels that a database engine stores are not
        read before some of them are chosen.
        """
        if isinstance(self._labels, StoredLabels):
            return self._labels
        return self.labels

    @property
    def absent(self) -> int:
        """Return the number of public labels without a row, all with count 0."""
        return self.domain_size - len(self.counts)

    @property
    def listed(self) -> bool:
        """Return whether ``label_at`` knows every label of the domain: all labels have rows, or
        they are the integers 0, 1, ...; False if only a function names labels without a row.
        """
        return self._naming is None

    def label_at(self, index: int) -> Label:
        """Return the label of row ``index``, from 0; if the labels are the integers 0, 1, ..., that
        of any index of the domain, which is this integer.
        """
        if self._labels is None:
            return index
        (label,) = self._labels[index : index + 1].tolist()
        return label

    def label_in_domain(self, index: int) -> Label:
        """Return the label of index 0 <= i < domain_size in the whole of a public domain, as
        ``absent_label`` names it.
        """
        if self._naming is None:
            return self.label_at(index)
        return self._naming(index)

    def whole_domain(self) -> tuple[Array, Array]:
        """Return all labels of a public domain and their counts, shape (domain_size,) each: in the
        order of the function that names them or, where there is none, the rows first.
        """
        if self._naming is not None:
            names = [self.label_in_domain(index) for index in range(self.domain_size)]
            return as_labels(names), self.count_of(names)
        labels = np.arange(self.domain_size) if self._labels is None else self.labels
        if not self.absent:
            return labels, self.counts
        return labels, np.concatenate([self.counts, np.zeros(self.absent, dtype=np.int64)])

    def count_of(self, labels: Sequence[Any]) -> Array:
        """Return the counts of the given labels, int64, shape (len(labels),); 0 for a label
        without a row.

        Raises:
            InvalidParameter: for labels that are repeated or cannot be compared.
        """
        rows = self.positions(labels)
        counts = self.counts[rows] if len(self) else np.zeros_like(rows)
        return np.where(rows >= 0, counts, 0)

    def top_rows(self, d: int) -> Array:
        """Return the row indices of the d largest counts among the present labels (count > 0),
        largest first, ties in label order; fewer than d if fewer labels are present.

        It takes linear time, plus the time to sort the d rows; labels are compared only where
        counts are tied.
        """
        if 0 < d < len(self.counts):
            dth_largest = int(np.partition(self.counts, -d)[-d])
            least_count = max(dth_largest, 1)  # labels of count 0 are not present
            candidates = np.flatnonzero(self.counts >= least_count)
        else:
            candidates = np.flatnonzero(self.counts > 0)
        labels = None if self._labels is None else self._labels[candidates]
        ordered: Array = candidates[descending_order(self.counts[candidates], labels)]
        return ordered[: max(d, 0)]

    def has_label_outside(self, labels: Sequence[Any]) -> bool:
        """Return whether one of the labels is known not to be in the public domain; that depends
        on the domain, not on the counts.
        """
        if self.domain == "private":
            return False
        if self._labels is None:
            return not all(type(label) is int and 0 <= label < self.domain_size for label in labels)
        if self._naming is None:
            return bool((self.positions(labels) < 0).any())
        if not isinstance(self._naming, _Range):
            return False  # a function that names labels cannot say which ones there are
        return any(label not in self._naming for label in labels)

    def positions(self, labels: Sequence[Any]) -> Array:
        """Return the row of each given label, int64, shape (len(labels),); -1 for a label without
        a row.

        Raises:
            InvalidParameter: for labels that are repeated or cannot be compared.
        """
        labels = labels_as_list(labels)
        check_distinct(labels)
        if isinstance(self._labels, StoredLabels):
            return self._labels.positions(labels)
        place_of = {identity(label): place for place, label in enumerate(labels)}
        rows = np.full(len(labels), -1, dtype=np.int64)
        if self._labels is None or self._labels.dtype.kind == "i":
            integers = [label for label in place_of if type(label) is int and label in INT64]
            for label, row in self._rows_of_integers(integers):
                rows[place_of[label]] = row
            return rows
        for row, label in enumerate(self._labels):
            place = place_of.get(identity(label))
            if place is not None:
                rows[place] = row
        return rows

    def _rows_of_integers(self, labels: list[int]) -> list[tuple[int, int]]:
        """Return the pairs (label, row) of those of the given 64-bit integers that have a row,
        where the labels of all rows are integers.
        """
        if self._labels is None:
            return [(label, label) for label in labels if 0 <= label < len(self.counts)]
        integers = np.array(labels, dtype=np.int64)
        rows = np.flatnonzero(np.isin(self.labels, integers))
        return list(zip(self.labels[rows].tolist(), rows.tolist(), strict=True))


class _Contents(NamedTuple):
    """The rows of a histogram and their domain, as ``Histogram`` stores them.

    Attributes:
        labels: the labels of the rows, shape (n,); None if they are the integers 0..n-1.
        counts: their counts, int64, shape (n,).
        domain: "private" or "public".
        domain_size: the number of labels in the domain.
        naming: the function of an index of the domain that names its label, as ``absent_label``;
            None if all labels have a row or are the integers 0, 1, ...
    """

    labels: Array | StoredLabels | None
    counts: Array
    domain: Domain
    domain_size: int
    naming: Callable[[int], Any] | None


class _Range:
    """A function that names the labels of a public domain that is a range of integers: it takes an
    index of the domain, from 0, and returns the integer there. ``in`` asks whether a label is one.
    """

    def __init__(self, domain: range) -> None:
        self.domain = domain

    def __call__(self, index: int) -> int:
        return self.domain[index]

    def __contains__(self, label: Label) -> bool:
        """Return whether a label is an integer of the range; 1.0 and True are not."""
        return type(label) is int and label in self.domain


def _contents_of_rows(
    rows: Array | StoredLabels | None,
    counts: Array,
    domain: str,
    domain_size: int | None,
    absent_label: Callable[[int], Any] | None,
) -> _Contents:
    """Return the contents of a histogram whose domain is given as "private" or "public".

    Args:
        rows: the labels, shape (n,); None: the integers 0..n-1, which makes the domain public.
        counts: their counts, int64, shape (n,).
        domain: "private" or "public".
        domain_size: the size of a public domain, or None.
        absent_label: the function that names the labels of a public domain, or None.

    Raises:
        InvalidParameter: for another domain, or arguments that do not go together.
    """
    numbered = rows is None
    kind = "public" if numbered else validate.member(DOMAINS, domain=domain)
    size, naming = _size_and_naming(
        domain_size, absent_label, kind=kind, rows=len(counts), numbered=numbered
    )
    return _Contents(rows, counts, kind, size, naming)


def _domain_contents(
    rows: Array, counts: Array, domain: Sequence[Any] | Array | pd.Series[Any]
) -> _Contents:
    """Restrict labels and counts to a public domain.

    Args:
        rows: the labels, shape (n,).
        counts: their counts, int64, shape (n,).
        domain: the public labels.

    Returns:
        Rows for all public labels, in their order; for a range, only the given labels that are in
        it, and the function that names all of it.

    Raises:
        InvalidParameter: when the domain is not a collection of distinct labels.
    """
    if isinstance(domain, range):
        names = _Range(domain)
        validate.count(domain_size=len(domain), at_least=0)  # refuses a range that is too long
        is_in_domain = np.array([label in names for label in rows.tolist()], dtype=bool)
        return _Contents(rows[is_in_domain], counts[is_in_domain], "public", len(domain), names)
    try:
        public = as_labels(domain)
    except InvalidParameter as error:
        raise InvalidParameter(
            f"domain must be 'private', 'public' or the public labels: {error}"
        ) from None
    place_of = {identity(label): place for place, label in enumerate(public.tolist())}
    places = np.array([place_of.get(identity(label), -1) for label in rows.tolist()], np.int64)
    public_counts = np.zeros(len(public), dtype=np.int64)
    is_in_domain = places >= 0
    public_counts[places[is_in_domain]] = counts[is_in_domain]
    return _Contents(public, public_counts, "public", len(public), None)


def _size_and_naming(
    size: int | None,
    absent_label: Callable[[int], Any] | None,
    *,
    kind: str,
    rows: int,
    numbered: bool,
) -> tuple[int, Callable[[int], Any] | None]:
    """Return the size of the domain, and the function that names labels without a row (None if all
    are listed or numbered).

    Args:
        size: the domain_size that was given, or None.
        absent_label: the function that was given, or None.
        kind: "private" or "public".
        rows: how many labels have a row.
        numbered: whether labels are the integers 0, 1, ..., so that no function has to name them.

    Raises:
        InvalidParameter: for arguments that do not go together.
    """
    if absent_label is not None and not callable(absent_label):
        raise InvalidParameter("absent_label must be a function from index to label")
    if size is None:
        if absent_label is not None and not numbered:
            raise InvalidParameter("domain_size must be given with absent_label")
        return rows, None
    if kind == "private":
        raise InvalidParameter("domain_size is known only for a public domain")
    if absent_label is None and not numbered:
        raise InvalidParameter(
            "domain_size: labels without a row need names; pass domain=labels, or absent_label"
        )
    size = validate.count(domain_size=size, at_least=0, at_most=validate.LARGEST)
    if size < rows:  # how many rows there are may be private
        raise InvalidParameter("domain_size must be at least the number of rows")
    return size, None if numbered else absent_label


def descending_order(values: Array, labels: Array | StoredLabels | None = None) -> Array:
    """Return the permutation that sorts integer values in descending order, shape (n,); ties are in
    label order, or in the given order if ``labels`` is None.

    Labels are compared only among equal values.

    >>> descending_order(np.array([3, 5, 3]), np.array(["b", "c", "a"], dtype=object)).tolist()
    [1, 2, 0]
    """
    order: Array = np.argsort(-values, kind="stable")
    if labels is None or len(order) < 2:
        return order
    same = values[order[1:]] == values[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if len(tied):
        rows = order[tied]
        rows = rows[label_order(np.asarray(labels[rows]))]
        order[tied] = rows[np.argsort(-values[rows], kind="stable")]
    return order


def _requested_rows(limit: int | None, *, rows: int, complete: bool) -> int | None:
    """Return how many rows of an incomplete histogram were requested; None for a complete one.

    Args:
        limit: that number as it was given; None: as many as there are.
        rows: how many there are.
        complete: whether the histogram has all rows.

    Raises:
        InvalidParameter: for a limit that is no positive integer, is below the number of rows, or
            is that of a complete histogram.
    """
    if complete:
        if limit is not None:
            raise InvalidParameter(
                "limit is for incomplete histograms: give complete=False as well"
            )
        return None
    if limit is None:
        return rows
    limit = validate.count(limit=limit)
    if rows > limit:
        raise InvalidParameter(f"limit={limit} is below the number of rows")
    return limit
