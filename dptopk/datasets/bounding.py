"""Contribution bounding as Ibis expressions: which of a user's events count, and their counts.

Every step treats one user's rows by themselves, or adds users up. So removing a user subtracts
exactly what that user contributes after the bounds: at most ``labels_per_user`` labels, at most
``per_label_cap`` at each.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING

from dptopk._internal import validate
from dptopk.datasets.backends.base import (
    REPEATED,
    SAMPLE,
    Array,
    MemoryFull,
    OpenTable,
    Result,
    hide_data_of_errors,
)
from dptopk.datasets.columns import HASHED
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, NARROW, WEIGHT
from dptopk.histogram.histogram import Sensitivity

if TYPE_CHECKING:
    import ibis.expr.types as ir
    import pyarrow as pa

_LOG = logging.getLogger(__name__)

CHOICES = ("hash", "random", "top")

# Largest per_label_cap: the sums of up to 2^31 users stay below 2^62.
LARGEST_CAP = 2**31 - 1
# The hexadecimal digits of a digest that are used: 48 bits, which the engines hold inline. Equal
# digests are ordered by the item.
DIGITS = 12
# The most characters of texts that are sorted as fast as their codes.
SHORT = 12
# The engine's table of the texts of labels and their codes.
NAMES = "dptopk_names"
# If the engine's memory is full, the users are split into at most this many parts.
MOST_PARTS = 64

Progress = Callable[[int, int], None]
# The columns that are summed up: name of the sum -> column.
COUNT: Mapping[str, str] = {"count": "value"}
# The columns of a profile -> the places that they count, from 0. A user has a label at place n if
# and only if the user has more than n labels.
PROFILE = {f"under_{cap}": ("<", cap) for cap in NARROW} | {
    f"above_{cell}": ("=", cell) for cell in CELLS
}


def _cuts() -> list[int]:
    """Return the places, from 0, between which all are on the same side of each in PROFILE."""
    cuts = {0}
    for sign, place in PROFILE.values():
        cuts.add(place)
        if sign == "=":
            cuts.add(place + 1)
    return sorted(cuts)


CUTS = tuple(_cuts())


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits on each user's contribution.

    Args:
        labels_per_user: Δ, the most labels of one user that count; None: all.
        per_label_cap: τ, the most that one user adds to one label, in 1..2^31 - 1.
        choose: which labels of a user with more than Δ count: "hash" (those with the smallest hash
            of key, user and item, which looks random and is repeatable), "random" ("hash" with a
            new secret key) or "top" (the user's most frequent ones, ties as in "hash").
        total_per_user: the most that one user adds to all labels together; the labels are added up
            in the order of the choice, and what exceeds the total is cut. None: no limit.
        key: text that varies the choice of "hash" and "top".
        portable: whether hashes are SHA-256, the same on every engine and version, instead of the
            engine's own 64-bit hash, which is about twice as fast. Privacy needs only that the
            choice is a function of the key and the one user's rows, as both are.
    """

    labels_per_user: int | None
    per_label_cap: int = 1
    choose: str = "hash"
    key: str = ""
    portable: bool = False
    total_per_user: int | None = None

    def __post_init__(self) -> None:
        # These calls refuse values that are out of range.
        validate.parameters(self, per_label_cap=partial(validate.count, at_most=LARGEST_CAP))
        validate.member(CHOICES, choose=self.choose)
        validate.instance(str, key=self.key)
        # The two differ where the key holds half of a surrogate pair.
        if self.key.encode("utf-8", "replace") != self.key.encode("utf-8", "surrogatepass"):
            raise InvalidParameter("key must be text that UTF-8 can hold")
        if self.choose == "random":
            if self.key:
                raise InvalidParameter(
                    "key: choose='random' draws a fresh key itself; with a key, use choose='hash'"
                )
            # An engine's random() would not do: Spark draws it again when it repeats a lost task.
            validate.assign(self, key=secrets.token_hex(32))

    @property
    def sensitivity(self) -> Sensitivity:
        """Return the caps that adding or removing one user obeys: linf = τ, l0 = Δ, and the total
        l1.

        A total below τ also limits linf.
        """
        linf = self.per_label_cap
        if self.total_per_user is not None:
            linf = min(linf, self.total_per_user)
        return Sensitivity(linf=linf, l0=self.labels_per_user, l1=self.total_per_user)

    @property
    def counts_once(self) -> bool:
        """Return whether a label counts once a user, and no number of events decides which do."""
        return self.per_label_cap == 1 and self.choose != "top"


# A function of a source and its events that returns a row for each label of each user, with the
# column ``value``. For segments it also takes bounds and ``within``.
Contribute = Callable[..., "ir.Table"]
# A function of a source, its events and the first of them that returns the sums of each label, if
# the engine hands the rows on in order; None if it does not.
CountInOrder = Callable[[OpenTable, "ir.Table", "FirstEvents | None"], "ir.Table | None"]


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
        if "nth" in ranked.columns:  # the place from 1, see ``_first_by_sorting``
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

    The value of the label at which the total is reached is cut to the rest of the total.

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

    Args:
        source: the table, as for ``contributions``.
        events: the events, as for ``contributions``.
        bounds: the bounds, with a cap on labels.
        within: further columns, as for ``contributions``.
        weights: whether ``capped`` is a weight instead of the value: isqrt(WEIGHT² // d) for each
            of the d labels of a user under the cap.
        profile: whether the columns of PROFILE are added; users must add at most 1 to a label.

    Returns:
        A table with the columns ``within``, item, ``value`` (without the cap) and ``capped`` (with
        it, 0 for labels above the cap).
    """
    import ibis

    ranked = _ranked_labels(source, events, bounds, within, labels=weights)
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

    Places that are on the same side of every number in PROFILE are added up too: the smallest of
    them stands for all.
    """
    import ibis

    cases = [(ranked.place < end, start) for start, end in pairwise(CUTS)]
    smallest_place = ibis.cases(*cases, else_=CUTS[-1])
    summed = ranked.group_by(*within, "item", place=smallest_place).agg(
        value=ranked.value.sum(), capped=ranked.capped.sum()
    )
    columns = {}
    for name, (sign, place) in PROFILE.items():
        counts = summed.place < place if sign == "<" else summed.place == place
        columns[name] = ibis.ifelse(counts, summed.value, 0)
    return summed.mutate(**columns)


def user_columns(rows: ir.Table, within: Sequence[str]) -> list[str]:
    """Return the columns that identify a user within each value of ``within``.

    If there is a column ``person`` with codes of users, it is used, since it sorts faster.
    """
    if "person" in rows.columns:
        return [*within, "person"]
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
    labels: bool = False,
) -> ir.Table:
    """Return one row for each label of each user, in the user's order of labels.

    The arguments are those of ``contributions``; labels: whether the column ``labels`` is added.

    Returns:
        A table with the columns of ``contributions``, or with ``person`` instead of ``user``
        (``user_columns``). ``value`` is the amount under the cap on a label, ``place`` is the
        label's place in the user's order, from 0, and ``labels`` is the number of the user's
        labels. The order is that of hashes, or that of amounts and then of hashes where ``choose``
        is "top".
    """
    import ibis

    # Events are ranked without a grouping where each label counts once. Repeated events must have
    # one place (``peers``), and a SHA-256 of each event would cost more than the grouping.
    ranks_events = bounds.counts_once and source.backend.peers and not uses_digest(source, bounds)
    if ranks_events:
        # Where the engine stores tables, pairs are made distinct first, so that a count of rows is
        # one of labels; integers that may repeat are sorted instead.
        pairs_first = source.keep is not None and not _is_ranked_first(source, events)
        if labels and pairs_first:
            return _ranked_distinct_pairs(source, events, bounds, within)
        ranked = _first_events(source, events, bounds, within, labels=labels)
    else:
        pairs = _capped_amounts(events, bounds, within)
        order = hash_ranks(source, pairs.user, pairs.item, bounds)
        if bounds.choose == "top":
            order.insert(0, pairs.amount.desc())
        user = user_columns(pairs, within)
        ranked = pairs.mutate(place=ibis.row_number().over(group_by=user, order_by=order))
    # The number of labels is added before other columns, which the engine would sort with the rows.
    if labels and "labels" not in ranked.columns:
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

    Unlike ``_first_events`` it makes the pairs of a user and a label distinct first, so that a
    count of rows is one of labels. Both windows have one order, so that the engine sorts once.
    """
    events = events_that_count(events)
    user = user_columns(events, within)
    if events.user.type().is_integer():  # lots are made of the pairs, which are narrower
        pairs = events.select(*user, "item")
        if not source.distinct:
            pairs = pairs.distinct()
        # The last of ``user`` is the user, or the same number of another width (``with_persons``).
        numbered = pairs.mutate(user=pairs[user[-1]].cast(events.user.type()))
        lots = lot_columns(source, numbered, bounds)
        pairs = numbered.select(*user, "item", **lots)
    else:
        lots = lot_columns(source, events, bounds)
        pairs = events.select(*user, "item", **lots)
        if not source.distinct:
            pairs = pairs.distinct()
    return _numbered_pairs(pairs, user, [*lots, "item"])


def _numbered_pairs(pairs: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return different pairs of a user and a label with their ``place`` in the order of the user,
    from 0, and the number of the user's ``labels``, by windows of one order and one frame.
    """
    import ibis

    window = {"group_by": user, "order_by": order}
    return pairs.mutate(
        place=ibis.row_number().over(**window),
        labels=pairs.count().over(ibis.window(**window, preceding=None, following=None)),
        value=1,
    )


def lot_columns(source: OpenTable, events: ir.Table, bounds: Bounds) -> dict[str, ir.Column]:
    """Return the columns of ``hash_ranks`` before the item, by name: the lot of a user's item,
    which is the hash of key, user and item, and, if codes stand for texts, the code of the item.

    Args:
        source: the table, whose engine hashes.
        events: the events, or pairs of a user and a label.
        bounds: the bounds, as for ``hash_ranks``.
    """
    user, item = (
        events[HASHED[role]] if HASHED[role] in events.columns else events[role]
        for role in ("user", "item")
    )
    *lots, _ = hash_ranks(source, user, item, bounds)
    return {f"lot{number}": lot for number, lot in enumerate(lots)}


def _first_events(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    *,
    labels: bool,
) -> ir.Table:
    """Return ``_ranked_labels`` if a label counts once, without grouping.

    It has one row for each pair of a user and a label, perhaps with the column ``nth`` of
    ``_first_by_sorting``, or with ``labels`` where they are asked for. The arguments are those of
    ``_ranked_labels``.
    """
    import ibis

    events = events_that_count(events)
    user = user_columns(events, within)
    lots = lot_columns(source, events, bounds)
    # Only the columns that are needed are sorted, and not the users' texts.
    events = events.select(*user, "item", **lots)
    order = [*lots, "item"]
    if source.distinct:  # each pair is one row already
        place = ibis.row_number().over(group_by=user, order_by=order)
        return events.mutate(place=place, value=1)
    if source.backend.unhashed is not None:
        marked = events.select(*user, *order, unhashed=source.backend.unhashed())
        if labels:
            return _numbered_pairs(marked.distinct(), user, order)
        return _first_by_sorting(marked, user, order)
    return _first_of_equal_ranks(events, user, order)


def _first_by_sorting(events: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return the distinct rows with their ``place`` in the order of the user, from 0, and ``nth``,
    the same from 1, which ``contributions`` compares with the limit.

    A column of ``events`` that cannot be hashed makes DISTINCT sort the rows, in the order in which
    they are numbered next. They are numbered by a running count, because PostgreSQL stops a window
    early at a limit on one, but not at a limit on row_number() - 1, which is what Ibis writes for a
    number from 0.
    """
    import ibis

    pairs = events.distinct()
    rows_up_to_this = ibis.window(group_by=user, order_by=order, preceding=None, following=0)
    numbered = pairs.mutate(nth=pairs.count().over(rows_up_to_this))
    return numbered.mutate(place=numbered.nth - 1, value=1)


def _first_of_equal_ranks(events: ir.Table, user: list[str], order: list[str]) -> ir.Table:
    """Return the first row of each pair of a user and a label, with its ``place`` in the order of
    the user, from 0, by one window over the events.

    In the order by hash and item the rows of one label are peers. So ``dense_rank`` numbers the
    labels, and only the first row of each label has the same ``rank`` and ``row_number``.
    """
    import ibis

    window = ibis.window(group_by=user, order_by=order)
    place = ibis.dense_rank().over(window)
    label = ibis.rank().over(window)
    row = ibis.row_number().over(window)
    ranked = events.mutate(place=place, label=label, row=row)
    return ranked.filter(ranked.row == ranked.label).mutate(value=1)


def amounts(events: ir.Table, bounds: Bounds, within: Sequence[str] = ()) -> ir.Table:
    """Return what each user adds to each label before the bounds: columns ``within``, user, item
    and amount (above 0).
    """
    amount = events.count()
    if "weight" in events.columns:
        amount = _whole_weight(events.weight, bounds.per_label_cap).sum()
    keys = list(dict.fromkeys([*user_columns(events, within), "user", "item"]))
    pairs = events.group_by(keys).agg(amount=amount)
    return pairs.filter(pairs.amount > 0)


def _capped_amounts(events: ir.Table, bounds: Bounds, within: Sequence[str]) -> ir.Table:
    """Return the rows of ``amounts`` with a column ``value``: the amount, at most the cap on a
    label.
    """
    pairs = amounts(events, bounds, within)
    return pairs.mutate(value=pairs.amount.clip(upper=bounds.per_label_cap))


@dataclass(frozen=True)
class FirstEvents:
    """The first events of a table, which decide between query plans and move no count.

    Attributes:
        events: how many there are, at most SAMPLE.
        labels: the number of their different labels.
        pairs: the number of their different pairs of a user and a label.
        longest_user: the most characters of a user; None if users are no texts.
    """

    events: int
    labels: int
    pairs: int
    longest_user: int | None = None

    @property
    def repeat_pairs(self) -> bool:
        """Return whether so many repeat a pair that the pairs are made distinct first."""
        return self.pairs < REPEATED * self.events

    @property
    def have_short_users(self) -> bool:
        """Return whether users are texts that are sorted as fast as their codes."""
        return self.longest_user is not None and self.longest_user <= SHORT


def first_events(
    source: OpenTable, events: ir.Table, within: Sequence[str] = ()
) -> FirstEvents | None:
    """Return the numbers of the first events; None on an engine where one plan is fastest or which
    has no fast hash, or if the memory is full.

    Args:
        source: the table.
        events: its events.
        within: further columns that distinguish a pair, such as that of segments.
    """
    # Where DISTINCT can be made to sort, it would sort repeated events too.
    has_plans = source.keep is not None or source.backend.unhashed is not None
    # Pairs are told apart by their hashes.
    if not has_plans or source.backend.mix is None:
        return None
    sample = events.limit(SAMPLE)
    pair = source.mix(*(sample[name] for name in (*within, "user", "item")))
    numbers = {
        "events": sample.count(),
        "labels": sample.item.nunique(),
        "pairs": pair.nunique(),
    }
    if sample.user.type().is_string():
        numbers["longest_user"] = sample.user.length().max()
    try:
        (row,) = run_query(source, sample.agg(**numbers)).to_pylist()
    except MemoryFull:  # a part of the users may still fit
        return None
    return FirstEvents(**row)


def label_counts(
    source: OpenTable,
    events: ir.Table,
    contribute: Contribute,
    bounds: Bounds,
    *,
    top: int | None,
    within: Sequence[str] = (),
    sums: Mapping[str, str] = COUNT,
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
    names = None if bounds.portable else codes(source, events, "item")
    with_codes = events if names is None else events.mutate(item=code(source, events.item))
    events = source.together(with_codes)

    def counts_of_part(part: int, parts: int) -> ir.Table:
        """Return the sums over one of ``parts`` parts of the users."""
        if parts == 1:
            events_of_part = events
        else:
            events_of_part = events.filter(_part_of(source, events.user, parts) == part)
        counts = None if in_order is None else in_order(source, events_of_part, first)
        if counts is not None:
            return counts
        events_of_part = _with_persons_under_cap(source, events_of_part, bounds)
        return _sums_by_key(contribute(source, events_of_part), keys, sums)

    parts = source.passes or 1  # None: one, and more if memory is full
    while True:
        try:
            total = _total_counts(source, counts_of_part, parts, keys, sums, progress)
            if names is not None:
                # All rows with the last count stay: which of them are cut, the texts decide.
                total = _largest_rows(total, top, within, ties=True).join(names, "item")
                total = total.select(*within, *sums, item=total["name"])
            rows = _largest_rows(_with_narrow_sums(total, sums), top, within).select(*keys, *sums)
            columns = answer_of(source, partial(source.columns, rows))
            break
        except MemoryFull:
            if source.passes is not None or parts >= MOST_PARTS:
                raise
            parts *= 2
    if progress is not None and parts == 1:  # several parts have each reported theirs
        progress(1, 1)
    return columns


def _with_narrow_sums(total: ir.Table, sums: Mapping[str, str]) -> ir.Table:
    """Return the sums, with the numbers of users in a profile as integers of 32 bits, which take
    half the memory and hold as many users as LARGEST_CAP allows for.
    """
    narrow = {name: total[name].cast("int32") for name in sums if name in PROFILE}
    return total.mutate(**narrow)


def counts_by_label(rows: ir.Table, sums: Mapping[str, str]) -> ir.Table:
    """Return the columns item and ``sums`` of what each user adds to each label, as one query."""
    return _with_narrow_sums(_sums_by_key(rows, ["item"], sums), sums)


def _without_repeated_pairs(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    first: FirstEvents | None,
) -> tuple[OpenTable, ir.Table]:
    """Return the source and its events, after repeated pairs of a user and a label were removed if
    that saves work.

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


def _sums_by_key(rows: ir.Table, keys: Sequence[str], sums: Mapping[str, str]) -> ir.Table:
    """Return the sums of columns by keys; ``sums`` is name -> column."""
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
        keys: the columns that name a count.
        sums: the columns of a count, as for ``label_counts``.
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


def _with_persons_under_cap(source: OpenTable, events: ir.Table, bounds: Bounds) -> ir.Table:
    """Return ``with_persons`` under a cap on labels, without which no labels are sorted."""
    if bounds.labels_per_user is None:
        return events
    return with_persons(source, events)


def with_persons(source: OpenTable, events: ir.Table) -> ir.Table:
    """Return the events with a column ``person``, one-to-one with ``user``, if the engine sorts
    such a column faster; else the events as they are.

    A text has its 64-bit code, and an integer its last 32 bits if all users fit into them.
    """
    if source.keep is None:
        return events
    if not events.user.type().is_integer():
        if codes(source, events, "user") is None:
            return events
        return events.mutate(person=code(source, events.user))
    aggregates = events.agg(low=events.user.min(), high=events.user.max())
    (extremes,) = run_query(source, aggregates).to_pylist()
    low = extremes["low"]  # None without any events
    if low is not None and -(2**31) <= low and extremes["high"] < 2**31:
        return events.mutate(person=events.user.cast("int32"))
    return events


def _distinct_pairs(source: OpenTable, events: ir.Table, within: Sequence[str]) -> ir.Table | None:
    """Return the different pairs of a user and a label: as a table in the engine, or as a part of
    the one statement of an engine that stores no tables; None if its memory is full.
    """
    texts = [name for name in HASHED.values() if name in events.columns]
    pairs = events_that_count(events).select(*within, "user", "item", *texts).distinct()
    if source.keep is None:
        return pairs
    try:
        return engine_table(source, "dptopk_pairs", pairs)
    except MemoryFull:  # a part of the users may still fit
        return None


def codes(
    source: OpenTable, events: ir.Table, role: str, *, ordered: bool = False
) -> ir.Table | None:
    """Return the texts of a column and their 64-bit codes, if grouping by codes is faster.

    It is None if it is not faster, if the rows may change before they are counted, if the texts
    alone fill the memory, and if two of them share a code: then the texts themselves are grouped.
    The counts are the same either way: items are ordered by the same codes, and the code of a user
    only says which rows belong together. The texts of other users never enter a choice.

    Args:
        source: the table.
        events: its events.
        role: the column, "user" or "item".
        ordered: whether the rows are ordered by their text.

    Returns:
        A table with the columns item (the code) and name (the text) or, if it is ordered, place
        (the number of the row).
    """
    if source.keep is None or events[role].type().is_integer():
        return None
    texts = events.select(name=events[role]).distinct()
    names = texts.mutate(item=code(source, texts["name"]))
    try:
        if ordered:  # codes are made again rather than sorted
            stored = engine_table(source, NAMES, texts.order_by("name"))
            place = stored.rowid().cast("int32")
            names = stored.select(item=code(source, stored["name"]), place=place)
        elif role == "item":
            names = engine_table(source, NAMES, names)
        aggregates = names.agg(names=names.count(), codes=names.item.nunique())
        (numbers,) = run_query(source, aggregates).to_pylist()
    except MemoryFull:  # a part of the users may still fit
        return None
    if numbers["codes"] == numbers["names"]:
        return names
    return None


def run_query(source: OpenTable, expression: ir.Table) -> pa.Table:
    """Return the rows of an expression; an error of the engine becomes one that does not quote the
    data.
    """
    return answer_of(source, partial(source.run, expression))


def engine_table(source: OpenTable, name: str, expression: ir.Table) -> ir.Table:
    """Return the rows of an expression as a table: in the engine if it can store one, else in
    memory.

    Args:
        source: the opened table of the events.
        name: the name of the table in the engine; an earlier one of the name is replaced.
        expression: the rows.
    """
    import ibis

    if source.keep is None:
        return ibis.memtable(run_query(source, expression))
    return answer_of(source, partial(source.keep, name, expression))


def answer_of(source: OpenTable, action: Callable[[], Result]) -> Result:
    """Return the result of a call to the engine; its errors become ones that do not quote
    the data.
    """
    return hide_data_of_errors(
        "table", "the engine could not run the query", action, full=source.backend.full
    )


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


def hash_ranks(
    source: OpenTable, user: ir.Column, item: ir.Column, bounds: Bounds
) -> list[ir.Column]:
    """Return the columns by which one user's items are ordered: a hash of key, user and item, and
    then what distinguishes equal hashes, with the item last.

    The code of a text comes before the text, so that the order is the same if codes stand for the
    texts. There are always at least two columns: DuckDB plans a filter on the place in an order by
    one column more slowly.

    Args:
        source: the table, whose engine hashes.
        user: the column of users.
        item: the column of labels.
        bounds: the bounds, whose key varies the hash and which say whether it is SHA-256.
    """
    if uses_digest(source, bounds):
        return [digest(source, user, item, bounds.key), item]
    if source.backend.keep is None:  # codes never stand for the texts
        return [source.mix(_key(bounds.key), user, item), item]
    item_code = code(source, item)
    lot = source.mix(_key(bounds.key), user, item_code)
    if item_code is item:
        return [lot, item]
    return [lot, item_code, item]


def uses_digest(source: OpenTable, bounds: Bounds) -> bool:
    """Return whether the hashes that order labels are SHA-256."""
    return bounds.portable or source.backend.mix is None


def code(source: OpenTable, item: ir.Column) -> ir.Column:
    """Return the 64-bit code of a column: an integer is its own code, and a text has the engine's
    hash with a salt that never changes.
    """
    import ibis

    if item.type().is_integer():
        return item
    return source.mix(ibis.literal("item"), item)


def digest(source: OpenTable, user: ir.Column, item: ir.Column, key: str) -> ir.StringValue:
    """Return the first digits of the hexadecimal SHA-256 of key | user | item, the same on every
    engine.
    """
    text = _key(key) + "|" + source.text(user) + "|" + source.text(item)
    return source.backend.digest(text).substr(0, DIGITS)


def _key(key: str) -> ir.StringScalar:
    """Return the first digits of the SHA-256 of the key; their fixed length separates the key from
    a user.
    """
    import ibis

    return ibis.literal(sha256(key.encode()).hexdigest()[:32])


def _part_of(source: OpenTable, user: ir.Column, parts: int) -> ir.IntegerColumn:
    """Return the number of the part, from 0, in which a user is, by a hash of the engine's; no
    count depends on the parts.
    """
    return (source.mix(user) % parts + parts) % parts  # a remainder may be negative


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
