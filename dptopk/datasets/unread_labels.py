"""The counts of events with very many labels, whose texts stay in the engine until they are shown.

One table in the engine has the counts by code, the next one the labels in the order of a histogram.
Python reads the counts in this order, and draws noise row after row as if it had the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dptopk.datasets.backends.base import Array, HeldCounts, MemoryFull, OpenTable
from dptopk.datasets.bounding import (
    NAMES,
    PROFILE,
    Bounds,
    answer_of,
    code,
    codes,
    counts_by_label,
    counts_with_and_without_cap,
    engine_table,
    persons,
    run_query,
)
from dptopk.histogram.event_counts import CELLS, NARROW

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from dptopk.histogram.stored_labels import StoredLabels

# Labels count as many if, among the first SAMPLE events, more than the share MANY are different:
# only then the texts take more time than the counts.
SAMPLE = 2**15
MANY = 1 / 8
# At most this many labels are read with their counts if the engine holds both.
FEW = 2**16
_COUNTS = "dptopk_counts"
_ROWS = "dptopk_ranked"
NO_CELL = -1  # the value of ``cell`` in the row of a label


def unread_counts(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> tuple[dict[str, Array], StoredLabels | None] | None:
    """Return the sums of ``label_counts`` in the order of a histogram, and the unread labels.

    Instead of the labels there is None if few of them were read with the sums, in any order. All
    is None if there are few labels, or if the engine cannot store them; the counts are then read
    in another way and are the same. Of a column of PROFILE for users (``above_``) only the sum has
    a meaning.

    Args:
        source: the table.
        events: its events.
        bounds: the bounds, with a cap on labels.
        weights: whether ``capped`` is a sum of weights.
        sums: name of a sum -> column, as for ``label_counts``.
    """
    kind = events.item.type()
    if source.count is not None and (kind.is_binary() or kind.is_int64()):
        together = source.together(events)
        profile = PROFILE.keys() <= sums.keys()
        rows = counts_with_and_without_cap(
            source, together, bounds, weights=weights, profile=profile
        )
        count = partial(source.count, counts_by_label(rows, sums))
        return _held(partial(answer_of, source, count), sums)
    if source.store is None or source.passes is not None:
        return None
    if not (kind.is_string() or kind.is_int64()):
        return None
    try:
        if _are_many(source, events):
            return _counted(source, events, bounds, weights=weights, sums=sums)
    except MemoryFull:  # a part of the users may still fit
        source.store(_ROWS, drop=(_ROWS, _COUNTS, NAMES)).forget()
    return None


def _held(
    count: Callable[[], HeldCounts | None], sums: Mapping[str, str]
) -> tuple[dict[str, Array], StoredLabels | None] | None:
    """Return the result of ``unread_counts`` of an engine that holds what one query has counted."""
    held = count()
    if held is None:
        return None
    if len(held) <= FEW:
        return held.columns(), None
    user_sums = [name for name in sums if name.startswith("above_")]
    totals = held.totals(user_sums) if user_sums else {}
    label_sums = [name for name in sums if name not in user_sums]
    counts, unread = held.in_order(label_sums).columns(label_sums)
    return counts | totals, unread


def _are_many(source: OpenTable, events: ir.Table) -> bool:
    """Return whether the labels are so many that their texts should stay in the engine."""
    sample = events.limit(SAMPLE)
    aggregates = sample.agg(events=sample.count(), labels=sample.item.nunique())
    (numbers,) = run_query(source, aggregates).to_pylist()
    return bool(numbers["events"] == SAMPLE and numbers["labels"] > MANY * SAMPLE)


def _counted(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> tuple[dict[str, Array], StoredLabels] | None:
    """Return the result of ``unread_counts`` for many labels; None if two texts share a code."""
    events = persons(source, events)
    is_uncoded = bounds.portable or events.item.type().is_integer()
    coded = events if is_uncoded else events.mutate(item=code(source, events.item))
    rows = counts_with_and_without_cap(source, coded, bounds, weights=weights, profile=False)
    profile = PROFILE.keys() <= sums.keys()
    assert source.store is not None  # noqa: S101
    stored = source.store(_ROWS, names=None if is_uncoded else NAMES, drop=(_COUNTS,))
    counted = engine_table(source, _COUNTS, _by_label(rows, profile=profile))
    answer_of(source, stored.compress)
    labels = counted.filter(counted.cell == NO_CELL).drop("cell")
    if not is_uncoded:  # after the counts, which need the memory
        names = codes(source, events, "item", ordered=True)
        if names is None:
            return None
        answer_of(source, stored.compress)
        labels = labels.join(names, "item").drop("item").rename(item="place")
    ordered = labels.order_by(labels["count"].desc(), labels.item.asc())
    engine_table(source, _ROWS, ordered)
    users = _users(source, counted) if profile else {}
    answer_of(source, stored.forget)
    answer_of(source, stored.compress)
    sum_names = [name for name in sums if not name.startswith("above_")]
    counts, unread = stored.columns(sum_names)
    return counts | users, unread


def _by_label(rows: ir.Table, *, profile: bool) -> ir.Table:
    """Return the sums of each label and, with a profile, further rows for users.

    The column ``cell`` distinguishes them: it is NO_CELL in the row of a label. In the further
    rows, which have no label, ``count`` is the number of users who have a label in the place
    ``cell``, one of CELLS. Rows are counted rather than summed where that is enough: the engine
    sums 64-bit numbers with 128 bits.
    """
    import ibis

    if not profile:
        sums = rows.group_by("item").agg(count=rows["value"].sum(), capped=rows.capped.sum())
        return sums.mutate(cell=ibis.literal(NO_CELL, "int16"))
    placed = _doubled(rows)
    narrow = {f"under_{cap}": placed.count(where=placed.place < cap) for cap in NARROW}
    labels = placed.group_by("item", "cell").agg(
        count=placed.count(), capped=placed.capped.sum().cast("int64"), **narrow
    )
    return labels.mutate(**{name: labels[name].cast("int32") for name in narrow})


def _doubled(rows: ir.Table) -> ir.Table:
    """Return the ranked rows in small integers, with NO_CELL in a column ``cell``, and those of a
    place in CELLS once more, with this cell and without their label.

    A second query of the same rows would need all of them in memory or on disk.
    """
    import ibis

    label = ibis.literal(NO_CELL, "int16")
    # The engine may cast places that are in no cell too.
    place = ibis.least(rows.place, CELLS[-1]).cast("int16")
    both = ibis.array([label, place])
    cells = ibis.ifelse(rows.place.isin(CELLS), both, ibis.array([label]))
    placed = rows.select(
        "item",
        capped=rows.capped.cast("int16"),  # a weight, at most WEIGHT
        place=rows.place.cast("int32"),
        cell=cells.unnest(),
    )
    no_label = ibis.null(placed.item.type())
    return placed.mutate(item=ibis.ifelse(placed.cell == NO_CELL, placed.item, no_label))


def _users(source: OpenTable, counted: ir.Table) -> dict[str, Array]:
    """Return how many users have more labels than each of CELLS, as columns of one row."""
    cells = counted.filter(counted.cell != NO_CELL).select("cell", "count")
    rows = run_query(source, cells).to_pylist()
    users = {row["cell"]: row["count"] for row in rows}
    return {f"above_{cell}": np.array([users.get(cell, 0)], dtype=np.int64) for cell in CELLS}
