"""The counts of events with very many labels, whose texts stay in the engine until they are shown.

One table in the engine has the counts by code, the next one the labels in the order of a histogram.
Python reads the counts in this order, and draws noise row after row as if it had the labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dptopk.datasets.backends.base import Array, MemoryFull, OpenTable
from dptopk.datasets.bounding import (
    NAMES,
    PROFILE,
    Bounds,
    code,
    codes,
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
) -> tuple[dict[str, Array], StoredLabels] | None:
    """Return the sums of ``label_counts`` in the order of a histogram, and the unread labels.

    It is None if there are few labels, or if the engine cannot store them; the counts are then read
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
    counted = engine_table(source, _COUNTS, _by_label(rows, profile=profile))
    labels = counted.filter(counted.cell == NO_CELL).drop("cell")
    if not is_uncoded:  # after the counts, which need the memory
        names = codes(source, events, "item", ordered=True)
        if names is None:
            return None
        placed = names.select("item", place=names.rowid().cast("int32"))
        labels = labels.join(placed, "item").drop("item").rename(item="place")
    ordered = labels.order_by(labels["count"].desc(), labels.item.asc())
    engine_table(source, _ROWS, ordered)
    users = _users(source, counted) if profile else {}
    assert source.store is not None  # noqa: S101
    sum_names = [name for name in labels.columns if name != "item"]
    stored = source.store(_ROWS, names=None if is_uncoded else NAMES, drop=(_COUNTS,))
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
    placed = rows.select("item", "capped", place=rows.place.cast("int32"))
    narrow = {f"under_{cap}": placed.count(where=placed.place < cap) for cap in NARROW}
    labels = placed.group_by("item").agg(
        count=placed.count(), capped=placed.capped.sum().cast("int64"), **narrow
    )
    labels = labels.mutate(cell=ibis.literal(NO_CELL, "int16"))
    in_32_bits = {name: labels[name].cast("int32") for name in narrow}
    labels = labels.mutate(**in_32_bits)
    in_cells = placed.filter(placed.place.isin(CELLS))
    cell = in_cells.place.cast("int16")
    users = in_cells.group_by(cell=cell).agg(count=in_cells.count())
    zeros = {name: ibis.literal(0, labels[name].type()) for name in ("capped", *narrow)}
    users = users.mutate(item=ibis.null(labels.item.type()), **zeros)
    return ibis.union(labels, users.select(labels.columns))


def _users(source: OpenTable, counted: ir.Table) -> dict[str, Array]:
    """Return how many users have more labels than each of CELLS, as columns of one row."""
    cells = counted.filter(counted.cell != NO_CELL).select("cell", "count")
    rows = run_query(source, cells).to_pylist()
    users = {row["cell"]: row["count"] for row in rows}
    return {f"above_{cell}": np.array([users.get(cell, 0)], dtype=np.int64) for cell in CELLS}
