"""The counts of all labels: what each user contributes, added up; if the engine's memory is full,
over one part of the users after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Array, MemoryFull, OpenTable
from dptopk.datasets.bounding import events_that_count
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.columns import HASHED
from dptopk.datasets.engine_calls import call_engine, engine_table
from dptopk.datasets.first_events import FirstEvents, first_events
from dptopk.datasets.hashing import code_of, text_codes, with_user_codes
from dptopk.datasets.profile_columns import PROFILE

if TYPE_CHECKING:
    import ibis.expr.types as ir

# If the engine's memory is full, the users are split into at most this many parts.
MOST_PARTS = 64

# A function that is called with the passes done and the number of all passes.
Progress = Callable[[int, int], None]
# Sums (name of a sum -> the column that is summed) of a histogram with one count a label.
ONLY_COUNT: Mapping[str, str] = {"count": "value"}
# A function of a source and its events that returns a row for each label of each user, with the
# column ``value``. For segments it also takes bounds and ``within``.
Contribute = Callable[..., "ir.Table"]
# A function of a source, its events and the first of them that returns the sums of each label, if
# the engine hands the rows on in order; None if it does not.
CountInOrder = Callable[[OpenTable, "ir.Table", "FirstEvents | None"], "ir.Table | None"]


def label_counts(
    source: OpenTable,
    events: ir.Table,
    contribute: Contribute,
    bounds: Bounds,
    *,
    top: int | None,
    within: Sequence[str] = (),
    sums: Mapping[str, str] = ONLY_COUNT,
    in_order: CountInOrder | None = None,
    first: FirstEvents | None = None,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """Return the counts of all labels, as arrays by the name of their column.

    If memory does not suffice, the users are split into parts that are counted one after the other.
    Each user is in one part, so that the bounds hold as in a single pass and the counts add up.

    Args:
        source: the table.
        events: its events, with the columns ``within``, user, item and perhaps weight.
        contribute: the function that returns what each user adds to each label.
        bounds: the bounds that it enforces.
        top: only this many of the largest counts are returned, for each value of ``within``; None:
            all.
        within: further columns, such as that of segments.
        sums: name of a sum -> the column of ``contribute`` that is summed.
        in_order: a function that returns these sums without ``contribute``, where it can.
        first: the first events; None: they are looked at here.
        progress: a function that is called with (passes done, all passes).

    Returns:
        The columns ``within``, item and ``sums``.
    """
    keys = [*within, "item"]
    # Only under a cap are a user's labels ranked, for which fewer rows are faster.
    if bounds.labels_per_user is not None:
        first = first or first_events(source, events, within)
        source, events = _without_repeated_pairs(source, events, bounds, within, first)
    codes = None if bounds.portable else text_codes(source, events, "item")
    with_codes = events if codes is None else events.mutate(item=code_of(source, events.item))
    events = source.together(with_codes)

    def counts_of_part(part: int, parts: int) -> ir.Table:
        """Return the sums over the users of one of ``parts`` parts, the parts being numbered from
        0; items are codes if there are ``codes``.
        """
        if parts == 1:
            events_of_part = events
        else:
            events_of_part = events.filter(_part_of(source, events.user, parts) == part)
        counts = None if in_order is None else in_order(source, events_of_part, first)
        if counts is not None:
            return counts
        events_of_part = _with_user_codes_under_cap(source, events_of_part, bounds)
        return _sums_by_key(contribute(source, events_of_part), keys, sums)

    def counts_in(parts: int) -> dict[str, Array]:
        """Return the counts of all labels from this many parts of the users."""
        total = _total_counts(source, counts_of_part, parts, keys, sums, progress)
        if codes is not None:
            # All rows with the last count stay: which of them are cut, the texts decide.
            total = _largest_rows(total, top, within, ties=True).join(codes, "item")
            total = total.select(*within, *sums, item=total["name"])
        rows = _largest_rows(_with_narrow_sums(total, sums), top, within).select(*keys, *sums)
        columns = call_engine(source, partial(source.columns, rows))
        if progress is not None and parts == 1:  # several parts have each reported theirs
            progress(1, 1)
        return columns

    return _in_enough_parts(source, counts_in)


def _in_enough_parts(
    source: OpenTable, counts_in: Callable[[int], dict[str, Array]]
) -> dict[str, Array]:
    """Return the counts from the stated number of parts of the users or, where none is stated, from
    the fewest for which the engine's memory suffices, of 1, 2, 4, ..., MOST_PARTS.

    Args:
        source: the table, with the stated number in ``passes``.
        counts_in: the function of a number of parts that counts in this many.

    Raises:
        MemoryFull: if the memory does not suffice.
    """
    parts = source.passes or 1
    while True:
        try:
            return counts_in(parts)
        except MemoryFull:
            if source.passes is not None or parts >= MOST_PARTS:
                raise
        parts *= 2


def counts_by_label(rows: ir.Table, sums: Mapping[str, str]) -> ir.Table:
    """Return the columns item and ``sums`` of what each user adds to each label, as one query."""
    return _with_narrow_sums(_sums_by_key(rows, ["item"], sums), sums)


def _with_narrow_sums(total: ir.Table, sums: Mapping[str, str]) -> ir.Table:
    """Return the sums, with the numbers of users in a profile as integers of 32 bits, which take
    half the memory and hold as many users as LARGEST_CAP allows for.
    """
    narrow = {name: total[name].cast("int32") for name in sums if name in PROFILE}
    return total.mutate(**narrow)


def _sums_by_key(rows: ir.Table, keys: Sequence[str], sums: Mapping[str, str]) -> ir.Table:
    """Return the sums of columns over the rows with equal keys; ``sums`` is name of a sum ->
    column.
    """
    return rows.group_by(keys).agg(**{name: rows[column].sum() for name, column in sums.items()})


def _total_counts(
    source: OpenTable,
    counts_of_part: Callable[[int, int], ir.Table],
    parts: int,
    keys: Sequence[str],
    sums: Mapping[str, str],
    progress: Progress | None,
) -> ir.Table:
    """Return the counts of all users as an expression; several parts are counted here, one after
    the other.

    Args:
        source: the table of the events.
        counts_of_part: maps the index of a part and the number of parts to the counts of the users
            in it.
        parts: the number of parts.
        keys: the names of the columns by which is counted: those of ``within`` and item.
        sums: name of a sum -> column, as for ``label_counts``.
        progress: as for ``label_counts``.
    """
    import ibis

    if parts == 1:
        return counts_of_part(0, 1)
    tables = []
    for part in range(parts):
        tables.append(engine_table(source, f"dptopk_part_{part}", counts_of_part(part, parts)))
        if progress is not None:
            progress(part + 1, parts)
    total = ibis.union(*tables)
    return total.group_by(keys).agg(**{name: total[name].sum() for name in sums})


def _part_of(source: OpenTable, user: ir.Column, parts: int) -> ir.IntegerColumn:
    """Return the number of the part, from 0 and below ``parts``, in which a user is, by a hash of
    the engine's; no count depends on the parts.
    """
    return (source.mix(user) % parts + parts) % parts  # a remainder may be negative


def _without_repeated_pairs(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    first: FirstEvents | None,
) -> tuple[OpenTable, ir.Table]:
    """Return the source and its events, after repeated pairs of a user and a label were removed if
    that saves work; the source then says that its pairs are ``distinct``.

    Args:
        source: the table.
        events: its events.
        bounds: the bounds, by which a label may count once.
        within: further columns that distinguish a pair, such as that of segments.
        first: the first events, which show how often pairs repeat; None: they were not looked at,
            and no pair is removed.
    """
    pairs = None
    if bounds.counts_once and first is not None and first.repeat_pairs:
        pairs = _distinct_pairs(source, events, within)
    if pairs is None:
        return source, events
    return replace(source, distinct=True), pairs


def _distinct_pairs(source: OpenTable, events: ir.Table, within: Sequence[str]) -> ir.Table | None:
    """Return the different pairs of a user and a label: as a table in the engine, or as a part of
    the one statement of an engine that stores no tables; None if its memory is full.

    The columns are ``within``, user, item, and the texts of HASHED where the events have them.
    """
    texts = [name for name in HASHED.values() if name in events.columns]
    pairs = events_that_count(events).select(*within, "user", "item", *texts).distinct()
    if source.keep is None:
        return pairs
    try:
        return engine_table(source, "dptopk_pairs", pairs)
    except MemoryFull:  # a part of the users may still fit
        return None


def _with_user_codes_under_cap(source: OpenTable, events: ir.Table, bounds: Bounds) -> ir.Table:
    """Return ``with_user_codes`` under a cap on labels, without which no labels are sorted."""
    if bounds.labels_per_user is None:
        return events
    return with_user_codes(source, events)


def _largest_rows(
    counts: ir.Table, top: int | None, within: Sequence[str], *, ties: bool = False
) -> ir.Table:
    """Return the rows with the largest counts, for each value of ``within``.

    Args:
        counts: the rows, with the columns item and count.
        top: how many rows; None: all.
        within: further columns.
        ties: whether all rows with the last count are returned; else ties are ordered by item, a
            rule that does not depend on who contributed.
    """
    import ibis

    if top is None:
        return counts
    order = [counts["count"].desc(), counts["item"].asc()]
    if ties:
        place = ibis.rank().over(group_by=list(within), order_by=order[:1])
    elif within:
        place = ibis.row_number().over(group_by=list(within), order_by=order)
    else:
        return counts.order_by(order).limit(top)
    ranked = counts.mutate(place=place)
    return ranked.filter(ranked.place < top).drop("place")
