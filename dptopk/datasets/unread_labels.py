"""The counts of events of very many labels, whose texts stay in the engine until they are shown.

In one table of the engine's are the counts by code, in the next one the labels in the order of a
histogram. Python reads the counts in this order: noise is drawn row after row as if the labels were
there.
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
    ran,
)
from dptopk.histogram.event_counts import CELLS, NARROW

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from dptopk.histogram.stored_labels import StoredLabels

# Events that are looked at to tell whether labels are many, and the share of different ones among
# them from which they are.
SAMPLE = 2**15
MANY = 1 / 8
_COUNTS = "dptopk_counts"
_ROWS = "dptopk_ranked"
NO_CELL = -1  # of a row of a label


def unread_counts(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> tuple[dict[str, Array], StoredLabels] | None:
    """The sums of ``label_counts`` in the order of a histogram, and the labels, which are not read
    yet; None where there are few labels, or no engine of ours that stores them.

    Of a column of PROFILE for users (``above_``) only the sum has a meaning. What is returned, and
    whether it is, moves no count.
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
    some = events.limit(SAMPLE)
    aggregates = some.agg(events=some.count(), labels=some.item.nunique())
    (found,) = ran(source, aggregates).to_pylist()
    return bool(found["events"] == SAMPLE and found["labels"] > MANY * SAMPLE)


def _counted(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> tuple[dict[str, Array], StoredLabels] | None:
    events = persons(source, events)
    named = bounds.portable or events.item.type().is_integer()
    coded = events if named else events.mutate(item=code(source, events.item))
    rows = counts_with_and_without_cap(source, coded, bounds, weights=weights, profile=False)
    profile = PROFILE.keys() <= sums.keys()
    counted = engine_table(source, _COUNTS, _by_label(rows, profile=profile))
    labels = counted.filter(counted.cell == NO_CELL).drop("cell")
    if not named:  # after the counts, which need the memory
        names = codes(source, events, "item", ordered=True)
        if names is None:
            return None
        placed = names.select("item", place=names.rowid().cast("int32"))
        labels = labels.join(placed, "item").drop("item").rename(item="place")
    ordered = labels.order_by(labels["count"].desc(), labels.item.asc())
    engine_table(source, _ROWS, ordered)
    users = _users(source, counted) if profile else {}
    assert source.store is not None  # noqa: S101
    read = [name for name in labels.columns if name != "item"]
    rows = source.store(_ROWS, names=None if named else NAMES, drop=(_COUNTS,))
    found, unread = rows.columns(read)
    return found | users, unread


def _by_label(rows: ir.Table, *, profile: bool) -> ir.Table:
    """The sums of each label, and of a profile, under no label, how many users have a label in each
    of the places CELLS: ``cell`` tells one from the other.

    Sums of 64 bits are added up in 128; the numbers of rows need half of that.
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
    there = placed.filter(placed.place.isin(CELLS))
    cell = there.place.cast("int16")
    users = there.group_by(cell=cell).agg(count=there.count())
    nothing = {name: ibis.literal(0, labels[name].type()) for name in ("capped", *narrow)}
    users = users.mutate(item=ibis.null(labels.item.type()), **nothing)
    return ibis.union(labels, users.select(labels.columns))


def _users(source: OpenTable, counted: ir.Table) -> dict[str, Array]:
    """How many users have more labels than each of CELLS, in columns of one row."""
    cells = counted.filter(counted.cell != NO_CELL).select("cell", "count")
    rows = ran(source, cells).to_pylist()
    found = {row["cell"]: row["count"] for row in rows}
    return {f"above_{cell}": np.array([found.get(cell, 0)], dtype=np.int64) for cell in CELLS}
