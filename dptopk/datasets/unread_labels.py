"""The counts of events with very many labels, whose texts stay in the engine until they are shown.

One table in the engine has the counts by code, the next one the labels in the order of a histogram:
by falling counts, ties by label. Python reads the counts in this order, and draws noise row after
row as if it had the labels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dptopk.datasets.backends.base import (
    Array,
    CountsAndLabels,
    HeldCounts,
    MemoryFull,
    OpenTable,
)
from dptopk.datasets.bounding import counts_with_and_without_cap
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.counting import counts_by_label
from dptopk.datasets.engine_calls import call_engine, engine_table, run_query
from dptopk.datasets.first_events import FirstEvents
from dptopk.datasets.hashing import TEXTS_TABLE, code_of, text_codes, with_user_codes
from dptopk.datasets.profile_columns import PROFILE
from dptopk.histogram.event_counts import CELLS, NARROW

if TYPE_CHECKING:
    import ibis.expr.types as ir


# There are many labels if at least this many first events were looked at, and these have more
# different labels than the share MANY of their number: only then the texts of labels take more time
# than the counts.
MANY_EVENTS = 2**15
MANY = 1 / 8
# At most this many labels are read with their counts if the engine holds both.
FEW = 2**16
# The engine's tables of the counts by code, and of the labels and counts in order.
_COUNTS = "dptopk_counts"
_ROWS = "dptopk_ranked"
NO_CELL = -1  # the value of ``cell`` in the row of a label


def unread_counts(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    first: FirstEvents | None,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> CountsAndLabels | None:
    """Return the sums of ``label_counts`` in the order of a histogram, and labels that stay in the
    engine; None where these counts are to be read by ``label_counts``, which are the same.

    Args:
        source: the table.
        events: its events.
        bounds: the bounds, with a cap on labels.
        first: the first events; None if they were not looked at.
        weights: whether ``capped`` is a sum of weights.
        sums: name of a sum -> column, as for ``label_counts``.

    Returns:
        The sums and the labels. Where ``labels`` is None, there were so few that they were read
        with the sums, in any order. Of the columns of PROFILE for users (``above_``) only the sum
        over all labels has a meaning; they may have one row alone. None if there are few labels,
        or if the engine cannot store them.
    """
    kind = events.item.type()
    # Labels of other types, which no engine with ``count`` has, would be read in another way.
    if source.count is not None and (kind.is_binary() or kind.is_int64()):
        grouped_events = source.together(events)
        profile = PROFILE.keys() <= sums.keys()
        rows = counts_with_and_without_cap(
            source, grouped_events, bounds, weights=weights, profile=profile
        )
        count = partial(source.count, counts_by_label(rows, sums))
        return _read_held_counts(partial(call_engine, source, count), sums)
    # A stated number of passes asks for less memory than one pass over all users takes.
    if source.store is None or source.passes is not None:
        return None
    if not (kind.is_string() or kind.is_int64()):
        return None
    if first is None or not _has_many_labels(first):
        return None
    try:
        return _store_counts(source, events, bounds, weights=weights, sums=sums)
    except MemoryFull:  # a part of the users may still fit, once the tables so far are dropped
        source.store(_ROWS, drop=(_ROWS, _COUNTS, TEXTS_TABLE)).forget()
    return None


def _read_held_counts(
    count: Callable[[], HeldCounts | None], sums: Mapping[str, str]
) -> CountsAndLabels | None:
    """Return the result of ``unread_counts`` on an engine that holds what one query has counted.

    Args:
        count: the function that runs the query and returns what is held; None: nothing is.
        sums: name of a sum -> column.
    """
    held_counts = count()
    if held_counts is None:
        return None
    if len(held_counts) <= FEW:
        return CountsAndLabels(held_counts.columns(), None)
    user_sums = [name for name in sums if name.startswith("above_")]
    totals = held_counts.totals(user_sums) if user_sums else {}
    label_sums = _sums_of_labels(sums)
    counts, unread = held_counts.in_order(label_sums).columns(label_sums)
    return CountsAndLabels(counts | totals, unread)


def _sums_of_labels(sums: Mapping[str, str]) -> list[str]:
    """Return the names of the sums that each label has; those of users are called ``above_``."""
    return [name for name in sums if not name.startswith("above_")]


def _has_many_labels(first: FirstEvents) -> bool:
    """Return whether the labels are so many that their texts should stay in the engine."""
    return first.events >= MANY_EVENTS and first.labels > MANY * first.events


def _store_counts(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    sums: Mapping[str, str],
) -> CountsAndLabels | None:
    """Return the result of ``unread_counts`` for many labels; None if two texts share a code.

    The counts are stored first, by the codes of labels; then the texts are numbered in their order;
    then the labels, as these numbers, are stored in the order of a histogram. The arguments are
    those of ``unread_counts``.
    """
    events = with_user_codes(source, events)
    keeps_items = bounds.portable or events.item.type().is_integer()
    coded = events if keeps_items else events.mutate(item=code_of(source, events.item))
    # The profile is made of cells (``_sums_by_label``), not of columns of these rows.
    rows = counts_with_and_without_cap(source, coded, bounds, weights=weights, profile=False)
    profile = PROFILE.keys() <= sums.keys()
    assert source.store is not None  # noqa: S101 - ``unread_counts`` has asked
    stored = source.store(_ROWS, names=None if keeps_items else TEXTS_TABLE, drop=(_COUNTS,))
    table_of_counts = engine_table(source, _COUNTS, _sums_by_label(rows, profile=profile))
    # The tables so far are compressed before each further step, which needs the memory.
    call_engine(source, stored.compress)
    labels = table_of_counts.filter(table_of_counts.cell == NO_CELL).drop("cell")
    if not keeps_items:
        # Only after the counts, which need the memory, are the texts put in order.
        texts = text_codes(source, events, "item", ordered=True)
        if texts is None:
            return None
        call_engine(source, stored.compress)
        # The item is now the index of its text in their order.
        labels = labels.join(texts, "item").drop("item").rename(item="place")
    _store_in_order(source, labels)
    users = _users_above_cells(source, table_of_counts) if profile else {}
    call_engine(source, stored.forget)
    call_engine(source, stored.compress)
    counts, unread = stored.columns(_sums_of_labels(sums))
    return CountsAndLabels(counts | users, unread)


def _store_in_order(source: OpenTable, labels: ir.Table) -> None:
    """Store labels and their sums as a table of the engine, in the order of a histogram."""
    rows_in_order = labels.order_by(labels["count"].desc(), labels.item.asc())
    engine_table(source, _ROWS, rows_in_order)


def _sums_by_label(rows: ir.Table, *, profile: bool) -> ir.Table:
    """Return the sums of each label and, with a profile, a further row for each of CELLS.

    The column ``cell`` distinguishes them: it is NO_CELL in the row of a label. In a further row,
    which has no label, ``count`` is the number of users who have a label at the place ``cell``:
    those with more labels than this number. Rows are counted rather than summed where that is
    enough: the engine sums 64-bit numbers with 128 bits.

    Args:
        rows: what each user adds to each label, as ``counts_with_and_without_cap`` returns it
            without a profile.
        profile: whether users and labels under narrow caps are counted as well; users must add at
            most 1 to a label.

    Returns:
        A table with the columns item, cell, count, capped and, with a profile, those of PROFILE
        for narrow caps (``under_``).
    """
    import ibis

    if not profile:
        sums = rows.group_by("item").agg(count=rows["value"].sum(), capped=rows.capped.sum())
        return sums.mutate(cell=ibis.literal(NO_CELL, "int16"))
    rows_with_cell = _rows_with_cells(rows)
    narrow = {
        f"under_{cap}": rows_with_cell.count(where=rows_with_cell.place < cap) for cap in NARROW
    }
    labels = rows_with_cell.group_by("item", "cell").agg(
        count=rows_with_cell.count(), capped=rows_with_cell.capped.sum().cast("int64"), **narrow
    )
    return labels.mutate(**{name: labels[name].cast("int32") for name in narrow})


def _rows_with_cells(rows: ir.Table) -> ir.Table:
    """Return the ranked rows in small integers, with NO_CELL in a column ``cell``, and those of a
    place in CELLS once more, with this place as the cell and without their label.

    Each row gets a list of one or two cells, which is then unnested: a second query of the same
    rows would need all of them in memory or on disk.

    Args:
        rows: what each user adds to each label, with the columns item, place and capped.
    """
    import ibis

    no_cell = ibis.literal(NO_CELL, "int16")
    # The engine may cast places that are in no cell too.
    place = ibis.least(rows.place, CELLS[-1]).cast("int16")
    both = ibis.array([no_cell, place])
    cells = ibis.ifelse(rows.place.isin(CELLS), both, ibis.array([no_cell]))
    rows_with_cell = rows.select(
        "item",
        capped=rows.capped.cast("int16"),  # a weight, at most WEIGHT
        place=rows.place.cast("int32"),
        cell=cells.unnest(),
    )
    no_label = ibis.null(rows_with_cell.item.type())
    return rows_with_cell.mutate(
        item=ibis.ifelse(rows_with_cell.cell == NO_CELL, rows_with_cell.item, no_label)
    )


def _users_above_cells(source: OpenTable, table_of_counts: ir.Table) -> dict[str, Array]:
    """Return how many users have more labels than each of CELLS, by name (``above_``), shape (1,)
    each.

    Args:
        source: the opened table of the events.
        table_of_counts: the rows of ``_sums_by_label``, with those for users.
    """
    cells = table_of_counts.filter(table_of_counts.cell != NO_CELL).select("cell", "count")
    rows = run_query(source, cells).to_pylist()
    users = {row["cell"]: row["count"] for row in rows}
    return {f"above_{cell}": np.array([users.get(cell, 0)], dtype=np.int64) for cell in CELLS}
