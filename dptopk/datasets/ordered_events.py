"""Bounding of rows that come in order: all rows of a user together, those of one label together, in
the user's order of labels.

An engine sorts rows once faster than it numbers them within each user, and whoever reads them in
this order knows the place of a label, and how many labels its user has, from the rows before and
after. The counts are those of ``bounding.contributions`` and
``bounding.counts_with_and_without_cap``, row by row.

Rows are added up by label and *cell*: a cell is a range of places that every column of PROFILE
counts alike, all of them or none. It is known by the index of its first place in CUTS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dptopk.datasets.backends.base import Array, OpenTable
from dptopk.datasets.bounding import events_that_count, user_columns
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.engine_calls import call_engine, run_query
from dptopk.datasets.first_events import FirstEvents
from dptopk.datasets.hashing import hash_columns, uses_digest, with_user_codes
from dptopk.datasets.profile_columns import CUTS, PROFILE
from dptopk.histogram.event_counts import WEIGHT

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

# Rows that are counted at one time.
ROWS = 2**16
# The most sums, one for a label and a cell, that are held in Python; with more of them the engine
# counts instead.
MOST_SUMS = 2**20
# The most events of which the texts of users are sorted; more of them would take more memory than
# their codes do, and spill.
MOST_TEXTS = 2**22
_SUMS_TABLE = "dptopk_sums"  # the engine's table of the sums
# The cell of each place up to the last cut, at which the last cell begins.
_CELL_OF_PLACE = np.searchsorted(CUTS, np.arange(CUTS[-1] + 1), side="right") - 1
_CELL_OF_PLACE = _CELL_OF_PLACE.astype(np.int8)


class CellSums(NamedTuple):
    """Sums by label and cell of places, in any order, shape (n,) each.

    Attributes:
        item: the labels, integers.
        cell: the cells, as indices in CUTS.
        rows: how many users have the label at a place of the cell.
        capped: the sum of what these users add under the cap on labels.
    """

    item: Array
    cell: Array
    rows: Array
    capped: Array


@dataclass(frozen=True, kw_only=True)
class CountsInOrder:
    """A function that adds up the labels of all users, from rows that come in order; it is a
    ``counting.CountInOrder``.

    Attributes:
        bounds: the bounds.
        sums: the names of the sums, as for ``counting.label_counts``. Where ``capped`` is one of
            them, ``count`` is without the cap on labels.
        weights: whether ``capped`` is a sum of weights, as for
            ``bounding.counts_with_and_without_cap``.
    """

    bounds: Bounds
    sums: Mapping[str, str]
    weights: bool = False

    def __call__(
        self, source: OpenTable, events: ir.Table, first: FirstEvents | None
    ) -> ir.Table | None:
        """Return the columns item and ``sums``, one row a label, as a table of the engine; None if
        rows cannot be counted in order, or if there are very many labels.

        Args:
            source: the table.
            events: the events, with the columns item and user, and perhaps weight.
            first: the first events, by which texts of users or their codes are sorted; None: codes.
        """
        if source.load is None or source.stream is None:
            return None
        if not events.item.type().is_integer() or not self._order_shows_places(source):
            return None
        # Texts are sorted instead of codes if that is faster. Codes are stored and compared first,
        # so that no two texts share one; this takes little time where pairs were made distinct.
        sorts_texts = not source.distinct and first is not None and first.have_short_users
        if sorts_texts:
            (size,) = run_query(source, events.agg(rows=events.count())).to_pylist()
            sorts_texts = size["rows"] <= MOST_TEXTS
        if not sorts_texts:
            events = with_user_codes(source, events)
        (user,) = user_columns(events, ())
        if not (sorts_texts or events[user].type().is_integer()):
            return None
        counted = events_that_count(events)
        hashes = hash_columns(source, counted, self.bounds)
        rows = counted.select("item", user=counted[user], **hashes)
        in_order = rows.order_by(["user", *hashes, "item"])
        count = partial(source.stream, in_order, self._sums_of_batches)
        counts = call_engine(source, count)
        if counts is None:
            return None
        return source.load(_SUMS_TABLE, counts)

    @property
    def _cap(self) -> int:
        """Return the cap on labels; rows are counted in order only where there is one."""
        # ``_order_shows_places`` has asked.
        assert self.bounds.labels_per_user is not None  # noqa: S101
        return self.bounds.labels_per_user

    def _order_shows_places(self, source: OpenTable) -> bool:
        """Return whether rows in the order of the engine's hash show which labels count: there is a
        cap on labels alone, each label counts once a user, and its place is by that hash.
        """
        bounds = self.bounds
        if bounds.labels_per_user is None or bounds.total_per_user is not None:
            return False
        return bounds.counts_once and not uses_digest(source, bounds)

    def _sums_of_batches(self, batches: pa.RecordBatchReader) -> pa.Table | None:
        """Return the columns item and ``sums`` of the rows; None if there are very many labels.

        Args:
            batches: the rows, as for ``rows_of_users``.
        """
        parts = [_no_sums(batches.schema.field("item").type)]
        # Twice as many are collected before sums of one label and cell are added up, which is then
        # done seldom.
        most = 2 * MOST_SUMS
        size = 0
        for user, item in rows_of_users(batches):
            parts.append(self._sums_by_cell(user, item))
            size += len(parts[-1].item)
            if size > most:
                parts = [_sums_of_parts(parts)]
                size = len(parts[0].item)
                if size > MOST_SUMS:
                    return None
        return self._sums_by_label(_sums_of_parts(parts))

    def _sums_by_cell(self, user: Array, item: Array) -> CellSums:
        """Return the sums by label and cell of some users, of whom all rows are there.

        Args:
            user: the user of each row, in order, shape (n,).
            item: the label of each row, in the user's order, shape (n,); none is repeated.
        """
        starts = np.flatnonzero(_differs_from_previous(user))
        labels = np.diff(starts, append=len(user))
        place = np.arange(len(user)) - np.repeat(starts, labels)
        is_under_cap = place < self._cap
        capped = np.where(is_under_cap, np.repeat(self._amounts_under_cap(labels), labels), 0)
        cell = _CELL_OF_PLACE[np.minimum(place, CUTS[-1])]
        if not PROFILE.keys() <= self.sums.keys():  # no sum depends on the place
            cell = np.zeros_like(cell)
        if "capped" not in self.sums:  # the only count is that under the cap
            item = item[is_under_cap]
            cell = cell[is_under_cap]
            capped = capped[is_under_cap]
        return _sums_of_rows(item, cell, capped)

    def _amounts_under_cap(self, labels: Array) -> Array:
        """Return what a user adds to each label under the cap: 1 or, with weights,
        isqrt(WEIGHT² // d) for the d labels of the user under the cap.

        Args:
            labels: the number of labels of each user, shape (users,).
        """
        if not self.weights:
            return np.ones_like(labels)
        square = WEIGHT**2 // np.minimum(labels, self._cap)
        # The square root of so small an integer never rounds up to a whole number.
        return np.sqrt(square).astype(np.int64)

    def _sums_by_label(self, cells: CellSums) -> pa.Table:
        """Return the columns item and ``sums``, one row a label, from the sums by label and
        cell.
        """
        import pyarrow as pa

        labels, label = _distinct_and_indices(cells.item)
        add_up = partial(_sums_at, label, len(labels))
        columns = {"item": labels, "count": add_up(cells.rows)}
        if "capped" in self.sums:
            columns["capped"] = add_up(cells.capped)
        # A column of PROFILE counts all places of a cell or none, so that the first stands for all.
        first_place = np.array(CUTS)[cells.cell]
        for name in self.sums.keys() & PROFILE.keys():
            is_counted = PROFILE[name].include(first_place)
            columns[name] = add_up(np.where(is_counted, cells.rows, 0))
        return pa.table({name: _arrow_array(column) for name, column in columns.items()})


def _sums_at(places: Array, size: int, values: Array) -> Array:
    """Return the sums of values with equal places, int64, shape (size,); they are exact below 2^53.

    Args:
        places: the place of each value, from 0 and below ``size``, shape (n,).
        size: how many places there are.
        values: integers, shape (n,).
    """
    return np.bincount(places, weights=values, minlength=size).astype(np.int64)


def rows_of_users(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Array, Array]]:
    """Yield users and labels of rows in order without repeated pairs, all rows of a user at one
    time.

    Args:
        batches: the rows, in the order of the columns user and item and without NULL. Labels are
            integers; users that are texts become numbers, which are different for different users.
    """
    users = list[Array]()
    items = list[Array]()
    numbers = _UserNumbers()
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            rows = batch.slice(start, ROWS)
            user = np.concatenate([*users, numbers.of(rows["user"])])
            item = np.concatenate([*items, np.from_dlpack(rows["item"])])
            is_first = _differs_from_previous(user) | _differs_from_previous(item)
            user = user[is_first]
            item = item[is_first]
            # The rows of the last user may go on in the next batch.
            last = int(np.flatnonzero(_differs_from_previous(user))[-1])
            if last:
                yield user[:last], item[:last]
            users = [user[last:]]
            items = [item[last:]]
    if users:
        yield users[0], items[0]


class _UserNumbers:
    """Numbers of users that come in order, piece by piece; integers are their own numbers."""

    def __init__(self) -> None:
        self._last_text: pa.Array | None = None
        self._last_number = 0

    def of(self, users: pa.Array) -> Array:
        """Return the numbers of the next users, at least one: texts are numbered from 0 as they
        come, so that neighbours share a number if and only if they are equal.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_integer(users.type):
            return np.from_dlpack(users)
        before = users.slice(0, 1) if self._last_text is None else self._last_text
        texts = pa.concat_arrays([before, users])
        differs = pc.not_equal(texts.slice(1), texts.slice(0, len(users)))
        steps = np.from_dlpack(differs.cast(pa.int8()))
        numbers = self._last_number + np.cumsum(steps, dtype=np.int64)
        self._last_text = users.slice(len(users) - 1)
        self._last_number = int(numbers[-1])
        return numbers


def _differs_from_previous(values: Array) -> Array:
    """Return whether each value differs from the one before it, as the first value does."""
    differs = np.ones(len(values), dtype=bool)
    np.not_equal(values[1:], values[:-1], out=differs[1:])
    return differs


def _sums_of_rows(item: Array, cell: Array, capped: Array) -> CellSums:
    """Return the sums of some rows by label and cell, with 1 as the number of users of each row.

    Args:
        item: the label of each row, shape (n,).
        cell: the cell of its place.
        capped: what it adds under the cap on labels.
    """
    labels, label = _distinct_and_indices(item)
    cells = int(cell.max(initial=0)) + 1
    size = cells * len(labels)
    if size > MOST_SUMS:  # the rows of a user with very many labels
        return _sums_of_parts([CellSums(item, cell, np.ones_like(capped), capped)])
    pair = label * cells + cell
    rows = np.bincount(pair, minlength=size)
    pairs = np.flatnonzero(rows)
    sums = _sums_at(pair, size, capped)
    return CellSums(
        labels[pairs // cells], (pairs % cells).astype(np.int8), rows[pairs], sums[pairs]
    )


def _sums_of_parts(parts: list[CellSums]) -> CellSums:
    """Return the sums of several parts as one, in which a label and a cell have one sum."""
    together = CellSums(*map(np.concatenate, zip(*parts, strict=True)))
    labels, label = _distinct_and_indices(together.item)
    # One number stands for a label and a cell; the cells are less than len(CUTS).
    pairs, pair = _distinct_and_indices(label.astype(np.int64) * len(CUTS) + together.cell)
    add_up = partial(_sums_at, pair, len(pairs))
    item = labels[pairs // len(CUTS)]
    cell = (pairs % len(CUTS)).astype(np.int8)
    return CellSums(item, cell, add_up(together.rows), add_up(together.capped))


def _no_sums(kind: pa.DataType) -> CellSums:
    """Return sums by label and cell without any rows, for labels of this type of Arrow's."""
    nothing = np.empty(0, dtype=np.int64)
    item = nothing.astype(kind.to_pandas_dtype())
    return CellSums(item, nothing.astype(np.int8), nothing, nothing)


def _distinct_and_indices(values: Array) -> tuple[Array, Array]:
    """Return the different ones of some integers, in the order in which they come first, and the
    index of each integer among them, shape (n,).
    """
    encoded = _arrow_array(values).dictionary_encode()
    return np.from_dlpack(encoded.dictionary), np.from_dlpack(encoded.indices)


def _arrow_array(values: Array) -> pa.Array:
    """Return integers as an Arrow array.

    It is made of their bytes, and comes back by DLPack: Arrow's own conversions from and to NumPy
    load pandas, and its grouping loads readers of files, which take 35 and 15 MiB while the engine
    holds the sorted rows.
    """
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [None, data])
