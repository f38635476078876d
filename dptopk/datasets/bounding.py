"""Contribution bounding as Ibis expressions: how much of each user's events counts, and the counts
that are left.

Every step treats one user's rows by themselves, or adds users up. So removing a user removes just
what that user still contributed after the bounds: at most ``labels_per_user`` labels, at most
``per_label_cap`` on each, all downwards.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

from dptopk._internal import validate
from dptopk.datasets.backends.base import Array, MemoryFull, OpenTable, Result, without_data
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
# Hexadecimal digits kept of a digest: 48 bits, which the engines hold inline; equal ones are
# decided by the item.
DIGITS = 12
# Events that are looked at to choose between two plans, and the share of different pairs of a user
# and a label among them below which these are taken first.
SAMPLE = 2**16
REPEATED = 2 / 3
# The engine's table of the texts of labels and their codes.
NAMES = "dptopk_names"
# Where the engine's memory is full, the users are split into at most this many parts.
MOST_PARTS = 64

Progress = Callable[[int, int], None]
# The columns that are summed up: name of the sum, and of what it sums.
COUNT: Mapping[str, str] = {"count": "value"}
# Those of a profile: the row of a user's label number n + 1 is there where the user has more than n
# labels.
PROFILE = {f"under_{cap}": ("<", cap) for cap in NARROW} | {
    f"above_{cell}": ("=", cell) for cell in CELLS
}


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits on each user's contribution.

    Args:
        labels_per_user: Δ, the most labels of one user that count; None = all.
        per_label_cap: τ, the most that one user adds to one label, in 1..2^31 - 1.
        choose: which labels, for a user with more than Δ: "hash" (those with the smallest hash of
            key, user and item: looks random and repeats), "random" ("hash" under a fresh secret
            key) or "top" (the user's most frequent, ties as in "hash").
        total_per_user: the most that one user adds in all; what comes after, in the order of the
            choice, is cut.
        key: text that varies the choice of "hash" and "top".
        portable: hash by SHA-256, the same on every engine and version, instead of the engine's own
            64-bit hash, which is about twice as fast. Either is a function of the key and the one
            user's rows: all that privacy needs.
    """

    labels_per_user: int | None
    per_label_cap: int = 1
    choose: str = "hash"
    key: str = ""
    portable: bool = False
    total_per_user: int | None = None

    def __post_init__(self) -> None:
        validate.parameters(self, per_label_cap=partial(validate.count, at_most=LARGEST_CAP))
        validate.member(CHOICES, choose=self.choose)
        validate.instance(str, key=self.key)
        if self.key.encode("utf-8", "replace") != self.key.encode("utf-8", "surrogatepass"):
            raise InvalidParameter("key must be text that UTF-8 can hold")
        if self.choose == "random":
            if self.key:
                raise InvalidParameter(
                    "key: choose='random' draws a fresh key itself; with a key, use choose='hash'"
                )
            # An engine's own random() would do it too, but is drawn anew when Spark runs a lost
            # task again.
            validate.assign(self, key=secrets.token_hex(32))

    @property
    def sensitivity(self) -> Sensitivity:
        """Return what these bounds guarantee for adding or removing one user: linf = τ, l0 = Δ,
        neither above the total l1 = t.
        """
        most = self.total_per_user
        linf = self.per_label_cap if most is None else min(self.per_label_cap, most)
        return Sensitivity(linf=linf, l0=self.labels_per_user, l1=most)


# Of a source and events; those of segments are further given bounds and ``within``.
Contribute = Callable[..., "ir.Table"]


def contributions(
    source: OpenTable, events: ir.Table, bounds: Bounds, *, within: Sequence[str] = ()
) -> ir.Table:
    """Return what each user adds to each label after the bounds: columns ``within``, user, item,
    value, perhaps more.

    Args:
        source: whose hash decides.
        events: columns user, item, perhaps weight, and those of ``within``.
        bounds: hold for each user and each value of ``within`` by itself.
        within: further columns whose values are kept apart.
    """
    if bounds.total_per_user is not None:
        return _under_total(_ranked(source, events, bounds, within), bounds, within)
    if bounds.labels_per_user is not None:
        ranked = _ranked(source, events, bounds, within)
        if "nth" in ranked.columns:
            few = ranked.nth <= bounds.labels_per_user
        else:
            few = ranked.place < bounds.labels_per_user
        return ranked.filter(few)
    if bounds.per_label_cap == 1:
        labels = _counting(events).select(*within, "user", "item")
        return labels.distinct().mutate(value=1)
    return _amounts_under(events, bounds, within)


def _under_total(ranked: ir.Table, bounds: Bounds, within: Sequence[str]) -> ir.Table:
    """The ranked labels of each user, up to Δ of them and up to the total of their values."""
    import ibis

    so_far = ibis.window(
        group_by=_each_user(ranked, within), order_by=ranked.place, preceding=None, following=0
    )
    summed = ranked.mutate(so_far=ranked.value.sum().over(so_far))
    before = summed.so_far - summed.value
    left = summed.mutate(left=bounds.total_per_user - before)
    kept = left.filter(left.left > 0).mutate(value=ibis.least(left.value, left.left))
    if bounds.labels_per_user is None:
        return kept
    return kept.filter(kept.place < bounds.labels_per_user)


def counts_with_and_without_cap(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    within: Sequence[str] = (),
    weights: bool = False,
    profile: bool,
) -> ir.Table:
    """Return what each user adds to each label: ``value`` without the cap on labels (a number),
    ``capped`` with it.

    With ``weights`` the second is isqrt(WEIGHT² // d) for a user of d labels under the cap; with
    ``profile``, of users who add at most 1 to a label and bounds with a cap, the columns of PROFILE
    are there too.
    """
    import ibis

    found = _ranked(source, events, bounds, within, labels=weights)
    capped = found.value
    if weights:
        under = ibis.least(
            found.labels, bounds.labels_per_user
        )  # the root of a small integer rounds to no larger one
        capped = (ibis.literal(WEIGHT**2) // under).cast("float64").sqrt().floor().cast("int64")
    kept = found.place < bounds.labels_per_user
    found = found.mutate(capped=ibis.ifelse(kept, capped, 0))
    if not profile:
        return found
    return _profiled(found, within)


def _profiled(found: ir.Table, within: Sequence[str]) -> ir.Table:
    """The ranked labels of all users, added up by label and place, with the columns of PROFILE."""
    import ibis

    # Added up where the place is on the same side of all numbers: the least place of these stands
    # for them.
    cuts = sorted(
        {at + step for sign, at in PROFILE.values() for step in (0, sign == "=")}, reverse=True
    )
    cell = ibis.cases(*((found.place >= cut, cut) for cut in cuts), else_=0)
    found = found.group_by(*within, "item", place=cell).agg(
        value=found.value.sum(), capped=found.capped.sum()
    )
    there = {
        name: found.place < at if sign == "<" else found.place == at
        for name, (sign, at) in PROFILE.items()
    }
    return found.mutate(**{name: ibis.ifelse(one, found.value, 0) for name, one in there.items()})


def _each_user(rows: ir.Table, within: Sequence[str]) -> list[str]:
    """The columns that say whose rows they are: the codes of users where they are there, which
    sorts faster.
    """
    return [*within, "person" if "person" in rows.columns else "user"]


def _counting(events: ir.Table) -> ir.Table:
    """The events that count where a label counts once: those of a weight of at least 1."""
    if "weight" in events.columns:
        return events.filter(_whole(events.weight, 1) >= 1)
    return events


def _ranked(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    within: Sequence[str],
    *,
    labels: bool = False,
) -> ir.Table:
    """One row for each label of each user, with its ``value`` and its ``place`` in the order of
    lots, from 0; perhaps with the number of the user's ``labels``.
    """
    import ibis

    if (
        bounds.per_label_cap == 1
        and bounds.choose != "top"
        and source.backend.peers
        and not _digested(source, bounds)
    ):  # a SHA-256 of each event costs more than a grouping
        if labels and source.keep is not None:
            return _first_and_all(source, events, bounds, within)
        found = _first_events(source, events, bounds, within)
    else:
        pairs = _amounts_under(events, bounds, within)
        order = hash_ranks(source, pairs.user, pairs.item, bounds)
        if bounds.choose == "top":
            order.insert(0, pairs.amount.desc())
        each = _each_user(pairs, within)
        found = pairs.mutate(place=ibis.row_number().over(group_by=each, order_by=order))
    if labels:  # before all else: the engine sorts no column for them that is made later
        each = _each_user(found, within)
        return found.mutate(labels=found.count().over(ibis.window(group_by=each)))
    return found


def _first_and_all(
    source: OpenTable, events: ir.Table, bounds: Bounds, within: Sequence[str]
) -> ir.Table:
    """One row for each label of each user: its ``place`` in the order of lots, and the number of
    the user's ``labels``.

    Unlike ``_first_events`` it makes the pairs distinct first, so that a count of rows is one of
    labels. Both windows have one order: the engine sorts once.
    """
    import ibis

    events = _counting(events)
    each = _each_user(events, within)
    drawn = _lots(source, events, bounds)
    pairs = events.select(*each, "item", **drawn)
    if not source.distinct:
        pairs = pairs.distinct()
    order = {"group_by": each, "order_by": [*drawn, "item"]}
    return pairs.mutate(
        place=ibis.row_number().over(**order),
        labels=pairs.count().over(ibis.window(**order, preceding=None, following=None)),
        value=1,
    )


def _lots(source: OpenTable, events: ir.Table, bounds: Bounds) -> dict[str, ir.Column]:
    """The columns of ``hash_ranks`` before the item, by name: one, or two where codes stand for
    texts.
    """
    *lots, _ = hash_ranks(source, events.user, events.item, bounds)
    return {f"lot{number}": lot for number, lot in enumerate(lots)}


def _first_events(
    source: OpenTable, events: ir.Table, bounds: Bounds, within: Sequence[str]
) -> ir.Table:
    """``_ranked`` where a label counts once: one window over the events, no grouping.

    In the order by lot and item the rows of one label are peers: ``dense_rank`` numbers labels, and
    only the first row of each has as many rows before it as its label has.
    """
    import ibis

    events = _counting(events)
    each = _each_user(events, within)
    drawn = _lots(source, events, bounds)
    # Nothing else is sorted, such as the users' texts.
    events = events.select(*each, "item", **drawn)
    order = {"group_by": each, "order_by": [*drawn, "item"]}
    if source.distinct:
        return events.mutate(place=ibis.row_number().over(**order), value=1)
    if source.backend.unhashed is not None:
        unhashed = source.backend.unhashed()
        events = events.select(*each, *drawn, "item", unhashed=unhashed).distinct()
        # A running count, since Ibis writes row_number() - 1, at whose limit PostgreSQL does not
        # stop.
        numbered = events.mutate(
            nth=events.count().over(ibis.window(**order, preceding=None, following=0))
        )
        return numbered.mutate(place=numbered.nth - 1, value=1)
    window = ibis.window(**order)
    place = ibis.dense_rank().over(window)
    label = ibis.rank().over(window)
    row = ibis.row_number().over(window)
    ranked = events.mutate(place=place, label=label, row=row)
    return ranked.filter(ranked.row == ranked.label).mutate(value=1)


def amounts(events: ir.Table, bounds: Bounds, within: Sequence[str] = ()) -> ir.Table:
    """Return what each user adds to each label before the bounds: columns ``within``, user, item,
    amount (above 0).
    """
    amount = events.count()
    if "weight" in events.columns:
        amount = _whole(events.weight, bounds.per_label_cap).sum()
    pairs = events.group_by(list(dict.fromkeys([*_each_user(events, within), "user", "item"]))).agg(
        amount=amount
    )
    return pairs.filter(pairs.amount > 0)


def _amounts_under(events: ir.Table, bounds: Bounds, within: Sequence[str]) -> ir.Table:
    """The amounts under the cap on a label; adds ``value``."""
    pairs = amounts(events, bounds, within)
    return pairs.mutate(value=pairs.amount.clip(upper=bounds.per_label_cap))


def label_counts(
    source: OpenTable,
    events: ir.Table,
    contribute: Contribute,
    bounds: Bounds,
    *,
    top: int | None,
    within: Sequence[str] = (),
    sums: Mapping[str, str] = COUNT,
    progress: Progress | None = None,
) -> dict[str, Array]:
    """The counts (columns ``within``, item, ``sums``), cut to the ``top`` rows of each value of
    ``within``.

    In several passes each user is in one part, so the bounds hold as in a single pass, and the
    parts' counts add up.
    """
    keys = [*within, "item"]
    if bounds.labels_per_user is not None:
        source, events = _paired(source, events, bounds, within)
    names = None if bounds.portable else codes(source, events, "item")
    coded = events if names is None else events.mutate(item=code(source, events.item))
    events = source.together(coded)

    def counted(part: int, parts: int) -> ir.Table:
        if parts == 1:
            chosen = events
        else:
            chosen = events.filter(_part_of(source, events.user, parts) == part)
        return _summed(contribute(source, chosen), keys, sums)

    parts = source.passes or 1
    while True:
        try:
            total = _added_up(source, counted, parts, keys, sums, progress)
            if names is not None:
                total = _cut(total, top, within, ties=True).join(names, "item")
                total = total.select(*within, *sums, item=total["name"])
            narrow = {name: total[name].cast("int32") for name in sums if name in PROFILE}
            rows = _cut(total.mutate(**narrow), top, within).select(*keys, *sums)
            columns = _answer_of(source, partial(source.columns, rows))
            break
        except MemoryFull:
            if source.passes is not None or parts >= MOST_PARTS:
                raise
            parts *= 2
    if progress is not None and parts == 1:
        progress(1, 1)
    return columns


def _paired(
    source: OpenTable, events: ir.Table, bounds: Bounds, within: Sequence[str]
) -> tuple[OpenTable, ir.Table]:
    """The events with users as ``persons`` has them, each pair of a user and a label once where
    that is less work.
    """
    pairs = _pairs(source, events, bounds, within)
    if pairs is None:
        return source, persons(source, events)
    source = replace(source, distinct=True)
    return source, persons(source, pairs)


def _summed(rows: ir.Table, keys: Sequence[str], sums: Mapping[str, str]) -> ir.Table:
    return rows.group_by(keys).agg(**{name: rows[column].sum() for name, column in sums.items()})


def _added_up(
    source: OpenTable,
    counted: Callable[[int, int], ir.Table],
    parts: int,
    keys: Sequence[str],
    sums: Mapping[str, str],
    progress: Progress | None,
) -> ir.Table:
    """The counts of all users as an expression; those of several parts are run here, one after the
    other.
    """
    import ibis

    if parts == 1:
        return counted(0, 1)
    done = []
    for part in range(parts):
        done.append(engine_table(source, f"dptopk_part_{part}", counted(part, parts)))
        if progress is not None:
            progress(part + 1, parts)
    total = ibis.union(*done)
    return total.group_by(keys).agg(**{name: total[name].sum() for name in sums})


def persons(source: OpenTable, events: ir.Table) -> ir.Table:
    """The events with a column ``person``, one for one with ``user``, where there is one that the
    engine sorts faster.

    A text has its code, and an integer its last 32 bits where these are all that is in use.
    """
    if source.keep is None:
        return events
    if not events.user.type().is_integer():
        if codes(source, events, "user") is None:
            return events
        return events.mutate(person=code(source, events.user))
    (ends,) = ran(source, events.agg(low=events.user.min(), high=events.user.max())).to_pylist()
    narrow = ends["low"] is not None and -(2**31) <= ends["low"] and ends["high"] < 2**31
    if narrow:
        return events.mutate(person=events.user.cast("int32"))
    return events


def _pairs(
    source: OpenTable, events: ir.Table, bounds: Bounds, within: Sequence[str]
) -> ir.Table | None:
    """The different pairs of a user and a label as a table of the engine's, where most events
    repeat one and a label counts once; None elsewhere.

    Some of the events decide which of two plans is the faster one, which moves no count.
    """
    if source.keep is None or bounds.per_label_cap > 1 or bounds.choose == "top":
        return None
    some = events.limit(SAMPLE)
    keys = [*within, "user", "item"]
    pair = source.mix(*(some[name] for name in keys))
    try:
        (found,) = ran(source, some.agg(events=some.count(), pairs=pair.nunique())).to_pylist()
        if found["pairs"] < REPEATED * found["events"]:
            return engine_table(source, "dptopk_pairs", _counting(events).select(keys).distinct())
    except MemoryFull:  # a part of the users may still fit
        return None
    return None


def codes(
    source: OpenTable, events: ir.Table, role: str, *, ordered: bool = False
) -> ir.Table | None:
    """The texts of the users or items and their codes (a table: item, name; perhaps ``ordered`` by
    name), where grouping by codes is faster.

    None where it is not, where the rows may change before they are counted, where the texts alone
    fill the memory, and where two of them share a code: then the texts themselves are grouped. The
    answer is the same: items are ordered by the same codes, and the code of a user says only whose
    rows belong together. Others' texts never enter a choice.
    """
    if source.keep is None or events[role].type().is_integer():
        return None
    texts = events.select(name=events[role]).distinct()
    if ordered:
        texts = texts.order_by("name")
    found = texts.mutate(item=code(source, texts["name"]))
    try:
        if role == "item":
            found = engine_table(source, NAMES, found)
        tally = ran(source, found.agg(names=found.count(), codes=found.item.nunique())).to_pylist()[
            0
        ]
    except MemoryFull:  # a part of the users may still fit
        return None
    if tally["codes"] == tally["names"]:
        return found
    return None


def ran(source: OpenTable, expression: ir.Table) -> pa.Table:
    """The rows of an expression; an error of the engine says nothing of the data."""
    return _answer_of(source, partial(source.run, expression))


def engine_table(source: OpenTable, name: str, expression: ir.Table) -> ir.Table:
    """The rows of an expression as a table: in the engine where it may keep them, else in
    memory.
    """
    import ibis

    if source.keep is None:
        return ibis.memtable(ran(source, expression))
    return _answer_of(source, partial(source.keep, name, expression))


def _answer_of(source: OpenTable, action: Callable[[], Result]) -> Result:
    return without_data(
        "table", "the engine could not run the query", action, full=source.backend.full
    )


def _cut(
    counted: ir.Table, top: int | None, within: Sequence[str], *, ties: bool = False
) -> ir.Table:
    """The rows with the largest counts, ties by item: a rule that does not look at who moved; or
    with all ties.
    """
    import ibis

    if top is None:
        return counted
    order = [counted["count"].desc(), counted["item"].asc()]
    if ties:
        place = ibis.rank().over(group_by=list(within), order_by=order[:1])
    elif within:
        place = ibis.row_number().over(group_by=list(within), order_by=order)
    else:
        return counted.order_by(order).limit(top)
    ranked = counted.mutate(place=place)
    return ranked.filter(ranked.place < top).drop("place")


def hash_ranks(
    source: OpenTable, user: ir.Column, item: ir.Column, bounds: Bounds
) -> list[ir.Column]:
    """By what one user's items are ordered: a hash of key, user and item, what tells equal hashes
    apart, then the item.

    The code of a text comes before the text, so that the order is the same where codes stand for
    the texts. At least two keys always: DuckDB turns a filter on the place in an order by one key
    into a slower plan.
    """
    if _digested(source, bounds):
        return [digest(source, user, item, bounds.key), item]
    if source.backend.keep is None:  # no codes ever stand for the texts
        return [source.mix(_key(bounds.key), user, item), item]
    coded = code(source, item)
    return [source.mix(_key(bounds.key), user, coded), coded, *([] if coded is item else [item])]


def _digested(source: OpenTable, bounds: Bounds) -> bool:
    """Whether the hashes are SHA-256."""
    return bounds.portable or source.backend.mix is None


def code(source: OpenTable, item: ir.Column) -> ir.Column:
    """Integers are their own codes; texts have the engine's 64-bit hash, under one salt for
    ever.
    """
    import ibis

    if item.type().is_integer():
        return item
    return source.mix(ibis.literal("item"), item)


def digest(source: OpenTable, user: ir.Column, item: ir.Column, key: str) -> ir.StringValue:
    """The start of the hexadecimal SHA-256 of key | user | item, the same on every engine."""
    return source.backend.digest(
        _key(key) + "|" + source.text(user) + "|" + source.text(item)
    ).substr(0, DIGITS)


def _key(key: str) -> ir.StringScalar:
    """The key by its own digest, of fixed length: no key and user run into each other."""
    import ibis

    return ibis.literal(sha256(key.encode()).hexdigest()[:32])


def _part_of(source: OpenTable, user: ir.Column, parts: int) -> ir.IntegerColumn:
    """In which of several parts a user falls, by any hash of the engine's; the answer does not
    depend on it.
    """
    return (source.mix(user) % parts + parts) % parts  # a remainder may be negative


def _whole(weight: ir.NumericColumn, cap: int) -> ir.IntegerColumn:
    """A weight rounded down to a whole number in [0, cap]; NULL and NaN are 0.

    Whole numbers *before* the sum: a floating-point sum depends on the order in which an engine
    adds, and could change for other users when one is removed.
    """
    import ibis

    if weight.type().is_floating():
        weight = ibis.ifelse(weight.isnan(), 0.0, weight)
    clipped = weight.fill_null(0).clip(lower=0, upper=cap)
    return clipped.floor().cast("int64")
