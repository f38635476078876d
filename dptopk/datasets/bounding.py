"""Contribution bounding as Ibis expressions: which of a user's events count, and their counts.

Every step treats one user's rows by themselves, or adds users up. So removing a user subtracts
exactly what that user contributes after the bounds: at most ``labels_per_user`` labels, at most
``per_label_cap`` at each.

A *pair* is a user together with a label of that user. The labels of a user are put in an order, by
which a cap on labels says which of them count, and each has a *place* in it, from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import OpenTable
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.hashing import hash_columns, hash_order, uses_digest
from dptopk.datasets.profile_columns import CUTS, PROFILE
from dptopk.histogram.event_counts import WEIGHT

if TYPE_CHECKING:
    import ibis.expr.types as ir


def contributions(
    source: OpenTable, events: ir.Table, bounds: Bounds, *, within: Sequence[str] = ()
) -> ir.Table:
    """Return what each user adds to each label after the bounds.

    The columns are ``within``, user, item, value and perhaps others.

    Args:
        source: the table, whose hash decides which labels count.
        events: the events, with the columns user, item, perhaps weight, and those of ``within``.
        bounds: the bounds, which hold for each user and each value of ``within`` separately.
        within: further columns, such as that of segments.
    """
    if bounds.total_per_user is not None:
        return _cut_to_total(_ranked_labels(source, events, bounds, within), bounds, within)
    if bounds.labels_per_user is not None:
        ranked = _ranked_labels(source, events, bounds, within)
        if "nth" in ranked.columns:  # the place from 1, see ``_ranked_by_sorting``
            under_cap = ranked.nth <= bounds.labels_per_user
        else:
            under_cap = ranked.place < bounds.labels_per_user
        return ranked.filter(under_cap)
    if bounds.per_label_cap == 1:
        labels = events_that_count(events).select(*within, "user", "item")
        return labels.distinct().mutate(value=1)
    return _capped_amounts(events, bounds, within)


def _cut_to_total(ranked: ir.Table, bounds: Bounds, within: Sequence[str]) -> ir.Table:
    """Return the ranked labels of each user, up to Δ of them and up to the total of their values.

    The value of the label at which the total is reached is cut to what is left of the total.

    Args:
        ranked: the labels of each user, as ``_ranked_labels`` returns them.
        bounds: the bounds, with a total.
        within: further columns that distinguish a user, such as that of segments.
    """
    import ibis

    rows_up_to_this = ibis.window(
        group_by=user_columns(ranked, within), order_by=ranked.place, preceding=None, following=0
    )
    summed = ranked.mutate(running_sum=ranked.value.sum().over(rows_up_to_this))
    sum_before = summed.running_sum - summed.value
    with_rest = summed.mutate(rest=bounds.total_per_user - sum_before)
    under_total = with_rest.filter(with_rest.rest > 0)
    under_total = under_total.mutate(value=ibis.least(with_rest.value, with_rest.rest))
    if bounds.labels_per_user is None:
        return under_total
    return under_total.filter(under_total.place < bounds.labels_per_user)


def counts_with_and_without_cap(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    within: Sequence[str] = (),
    weights: bool = False,
    profile: bool,
) -> ir.Table:
    """Return what each user adds to each label without and with the cap on labels.

    With a profile the rows of all users are added up by label and by range of places.

    Args:
        source: the table, as for ``contributions``.
        events: the events, as for ``contributions``.
        bounds: the bounds, with a cap on labels and without a total.
        within: further columns, as for ``contributions``.
        weights: whether ``capped`` is a weight instead of the value: isqrt(WEIGHT² // d) for each
            of the d labels of a user under the cap.
        profile: whether the columns of PROFILE are added; users must add at most 1 to a label.

    Returns:
        A table with the columns ``within``, item, ``value`` (without the cap) and ``capped`` (with
        it, 0 for labels above the cap), perhaps those of PROFILE, and perhaps others.
    """
    import ibis

    ranked = _ranked_labels(source, events, bounds, within, count_labels=weights)
    amount = ranked.value
    if weights:
        labels_under_cap = ibis.least(ranked.labels, bounds.labels_per_user)
        square = ibis.literal(WEIGHT**2) // labels_under_cap
        # The square root of so small an integer never rounds up to a whole number.
        amount = square.cast("float64").sqrt().floor().cast("int64")
    is_under_cap = ranked.place < bounds.labels_per_user
    ranked = ranked.mutate(capped=ibis.ifelse(is_under_cap, amount, 0))
    if not profile:
        return ranked
    return _sums_with_profile(ranked, within)


def _sums_with_profile(ranked: ir.Table, within: Sequence[str]) -> ir.Table:
    """Return the ranked labels of all users, added up by label, with the columns of PROFILE.

    Places between two of CUTS are added up too, since every column counts all of them or none: the
    smallest of them stands for all.

    Args:
        ranked: the labels of each user, with the columns item, place, value and capped.
        within: further columns by which they are added up, such as that of segments.
    """
    import ibis

    cases = [(ranked.place < end, start) for start, end in pairwise(CUTS)]
    smallest_place = ibis.cases(*cases, else_=CUTS[-1])
    summed = ranked.group_by(*within, "item", place=smallest_place).agg(
        value=ranked.value.sum(), capped=ranked.capped.sum()
    )
    columns = {}
    for name, counted in PROFILE.items():
        columns[name] = ibis.ifelse(counted.include(summed.place), summed.value, 0)
    return summed.mutate(**columns)


def user_columns(rows: ir.Table, within: Sequence[str]) -> list[str]:
    """Return the names of the columns that identify a user within each value of ``within``; the
    column of users is last.

    If there is a column ``user_code`` with codes of users, it is used, since it sorts faster.
    """
    if "user_code" in rows.columns:
        return [*within, "user_code"]
    return [*within, "user"]


def events_that_count(events: ir.Table) -> ir.Table:
    """Return the events that count if a label counts once: those with a weight of at least 1."""
    if "weight" in events.columns:
        return events.filter(_whole_weight(events.weight, 1) >= 1)
    return events


def _ranked_labels(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    *,
    count_labels: bool = False,
) -> ir.Table:
    """Return one row for each label of each user, with its place in the user's order of labels.

    The order is that of hashes, or that of amounts and then of hashes where ``choose`` is "top".

    Args:
        source: the table, as for ``contributions``.
        events: the events, as for ``contributions``.
        bounds: the bounds, which say by what labels are ordered; no label is left out here.
        within: further columns, as for ``contributions``.
        count_labels: whether the column ``labels`` is added.

    Returns:
        A table with the columns of ``user_columns``, item, and:

        * ``value``: the amount under the cap on a label.
        * ``place``: the label's place in the user's order, from 0.
        * ``labels``, with count_labels: the number of the user's labels.
        * perhaps others, such as ``nth`` (``_ranked_by_sorting``).
    """
    import ibis

    # Events are ranked without a grouping where each label counts once. Repeated events must have
    # one place (``peers``), and a SHA-256 of each event would cost more than the grouping.
    ranks_events = bounds.counts_once and source.backend.peers and not uses_digest(source, bounds)
    if ranks_events:
        # Where the engine stores tables, pairs are made distinct first, so that a count of rows is
        # one of labels; integers that may repeat are sorted instead.
        pairs_first = source.keep is not None and not _is_ranked_first(source, events)
        if count_labels and pairs_first:
            return _ranked_distinct_pairs(source, events, bounds, within)
        ranked = _ranked_without_grouping(source, events, bounds, within, count_labels=count_labels)
    else:
        pairs = _capped_amounts(events, bounds, within)
        order = hash_order(source, pairs.user, pairs.item, bounds)
        if bounds.choose == "top":
            order.insert(0, pairs.amount.desc())
        user = user_columns(pairs, within)
        ranked = pairs.mutate(place=ibis.row_number().over(group_by=user, order_by=order))
    # The number of labels is added before other columns, which the engine would sort with the rows.
    if count_labels and "labels" not in ranked.columns:
        user = user_columns(ranked, within)
        return ranked.mutate(labels=ranked.count().over(ibis.window(group_by=user)))
    return ranked


def _is_ranked_first(source: OpenTable, events: ir.Table) -> bool:
    """Return whether events with repeated pairs are ranked before the labels of a user are counted:
    integers are sorted faster than their pairs are hashed.
    """
    if source.distinct:
        return False
    return events.user.type().is_signed_integer() and events.item.type().is_signed_integer()


def _ranked_distinct_pairs(
    source: OpenTable, events: ir.Table, bounds: Bounds, within: Sequence[str]
) -> ir.Table:
    """Return ``_ranked_labels`` with the number of the user's labels, if a label counts once.

    Unlike ``_ranked_without_grouping`` it makes pairs distinct first, so that a count of rows is
    one of labels. Both windows have one order, so that the engine sorts once. The arguments are
    those of ``_ranked_labels``.
    """
    events = events_that_count(events)
    user = user_columns(events, within)
    if events.user.type().is_integer():  # hashes are made of the pairs, which are narrower
        pairs = events.select(*user, "item")
        if not source.distinct:
            pairs = pairs.distinct()
        # The last of the columns has the user, or the same number of another width, which would
        # have another hash (``with_user_codes``).
        numbers = pairs[user[-1]].cast(events.user.type())
        pairs_with_user = pairs.mutate(user=numbers)
        hashes = hash_columns(source, pairs_with_user, bounds)
        pairs = pairs_with_user.select(*user, "item", **hashes)
    else:
        hashes = hash_columns(source, events, bounds)
        pairs = events.select(*user, "item", **hashes)
        if not source.distinct:
            pairs = pairs.distinct()
    return _numbered_pairs(pairs, user, [*hashes, "item"])


def _numbered_pairs(pairs: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return distinct pairs with their ``place`` in the order of the user, from 0, the number of
    the user's ``labels`` and ``value``, which is 1, by windows of one order and one frame.

    Args:
        pairs: the pairs, one row each.
        user: the names of the columns that identify a user.
        order: the names of the columns by which a user's labels are ordered.
    """
    import ibis

    window = {"group_by": user, "order_by": order}
    return pairs.mutate(
        place=ibis.row_number().over(**window),
        labels=pairs.count().over(ibis.window(**window, preceding=None, following=None)),
        value=1,
    )


def _ranked_without_grouping(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    *,
    count_labels: bool,
) -> ir.Table:
    """Return ``_ranked_labels`` if a label counts once, without a grouping of events by pair.

    Pairs that are distinct already are numbered. Where the engine sorts for DISTINCT (``unhashed``
    of ``Backend``) they are made distinct first. Elsewhere events are ranked, and the first of
    equal ones is kept.

    The arguments are those of ``_ranked_labels``. Each pair has one row, perhaps with the column
    ``nth`` of ``_ranked_by_sorting``. The column ``labels`` is added, with count_labels, only where
    the engine sorts for DISTINCT; elsewhere the caller counts the rows of each user.
    """
    import ibis

    events = events_that_count(events)
    user = user_columns(events, within)
    hashes = hash_columns(source, events, bounds)
    # Only the columns that are needed are sorted, and not the users' texts.
    events = events.select(*user, "item", **hashes)
    order = [*hashes, "item"]
    if source.distinct:  # each pair is one row already
        place = ibis.row_number().over(group_by=user, order_by=order)
        return events.mutate(place=place, value=1)
    if source.backend.unhashed is not None:
        # DISTINCT of rows with a value that cannot be hashed sorts them, in the order in which they
        # are numbered next.
        sortable_rows = events.select(*user, *order, unhashed=source.backend.unhashed())
        pairs = sortable_rows.distinct()
        if count_labels:
            return _numbered_pairs(pairs, user, order)
        return _ranked_by_sorting(pairs, user, order)
    return _first_of_equal_ranks(events, user, order)


def _ranked_by_sorting(pairs: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return distinct pairs with their ``place`` in the order of the user, from 0, and ``nth``, the
    same from 1, which ``contributions`` compares with the cap.

    They are numbered by a running count, because PostgreSQL stops a window early at a limit on one,
    but not at a limit on row_number() - 1, which is what Ibis writes for a number from 0.

    Args:
        pairs: the pairs, one row each, which the engine has sorted.
        user: the names of the columns that identify a user.
        order: the names of the columns by which a user's labels are ordered.
    """
    import ibis

    rows_up_to_this = ibis.window(group_by=user, order_by=order, preceding=None, following=0)
    numbered = pairs.mutate(nth=pairs.count().over(rows_up_to_this))
    return numbered.mutate(place=numbered.nth - 1, value=1)


def _first_of_equal_ranks(events: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return the first row of each pair, with its ``place`` in the order of the user, from 0, by
    one window over the events.

    In the order by hash and item the rows of one label are peers, which have equal ranks. So
    ``dense_rank`` numbers the labels, and only the first row of each label has the same ``rank``
    and ``row_number``.

    Args:
        events: the events, in which a pair may repeat.
        user: the names of the columns that identify a user.
        order: the names of the columns by which a user's labels are ordered; the last is the item.
    """
    import ibis

    window = ibis.window(group_by=user, order_by=order)
    ranked = events.mutate(
        place=ibis.dense_rank().over(window),
        rank=ibis.rank().over(window),
        row=ibis.row_number().over(window),
    )
    return ranked.filter(ranked.row == ranked["rank"]).mutate(value=1)


def amounts(events: ir.Table, bounds: Bounds, within: Sequence[str] = ()) -> ir.Table:
    """Return what each user adds to each label before the bounds, but for the cap on each weight.

    The amount is the number of the pair's events or, with weights, the sum of these, each rounded
    down to a whole number in [0, τ].

    Args:
        events: the events, as for ``contributions``.
        bounds: the bounds, of which the cap on a label limits each weight.
        within: further columns, as for ``contributions``.

    Returns:
        A table with the columns ``within``, user, item and amount, which is above 0, and perhaps
        ``user_code``.
    """
    amount = events.count()
    if "weight" in events.columns:
        amount = _whole_weight(events.weight, bounds.per_label_cap).sum()
    # The keys of a dictionary are in order and different.
    keys = list(dict.fromkeys([*user_columns(events, within), "user", "item"]))
    pairs = events.group_by(keys).agg(amount=amount)
    return pairs.filter(pairs.amount > 0)


def _capped_amounts(events: ir.Table, bounds: Bounds, within: Sequence[str]) -> ir.Table:
    """Return the rows of ``amounts`` with a column ``value``: the amount, at most the cap on a
    label.
    """
    pairs = amounts(events, bounds, within)
    return pairs.mutate(value=pairs.amount.clip(upper=bounds.per_label_cap))


def _whole_weight(weight: ir.NumericColumn, cap: int) -> ir.IntegerColumn:
    """Return a weight rounded down to a whole number in [0, cap]; NULL and NaN become 0.

    It is rounded *before* the sum: a floating-point sum depends on the order in which an engine
    adds, and could change for other users when one is removed.
    """
    import ibis

    if weight.type().is_floating():
        weight = ibis.ifelse(weight.isnan(), 0.0, weight)
    clipped = weight.fill_null(0).clip(lower=0, upper=cap)
    return clipped.floor().cast("int64")
