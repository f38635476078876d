"""From events (user, item) to a histogram of bounded sensitivity, inside the engine that holds the events.

Every step treats one user's rows by themselves, or adds users up. So removing a user removes just what that user still
contributed after the bounds: at most ``labels_per_user`` labels, at most ``per_label_cap`` on each, all downwards.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

from dptopk import _validate as validate
from dptopk.datasets.engines import Engine, Source, open_table, without_data
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity

__all__ = ["CHOICES", "Bounds", "contributions", "events_histogram", "label_counts"]

CHOICES = ("hash", "random", "top")

# Largest per_label_cap: the sums of up to 2^31 users stay below 2^62.
LARGEST_CAP = 2**31 - 1
# Hexadecimal digits kept of a digest: 48 bits, which the engines hold inline; equal ones are decided by the item.
DIGITS = 12

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much of each user's events counts.

    Args:
        labels_per_user: Δ, the most labels of one user that count; None = all.
        per_label_cap: τ, the most that one user adds to one label, in 1..2^31 - 1.
        choose: which labels, for a user with more than Δ: "hash" (those with the smallest SHA-256 of key, user and
            item: looks random, repeats, and is the same on every engine), "random" ("hash" under a fresh secret key)
            or "top" (the user's most frequent, ties as in "hash").
        key: text that varies the choice of "hash" and "top".
    """

    labels_per_user: int | None
    per_label_cap: int = 1
    choose: str = "hash"
    key: str = ""

    def __post_init__(self) -> None:
        if self.labels_per_user is not None:
            object.__setattr__(self, "labels_per_user", validate.count(labels_per_user=self.labels_per_user))
        object.__setattr__(self, "per_label_cap", validate.count(per_label_cap=self.per_label_cap))
        if self.per_label_cap > LARGEST_CAP:
            raise InvalidParameter(f"per_label_cap must be at most {LARGEST_CAP}, got {self.per_label_cap}")
        validate.member(CHOICES, choose=self.choose)
        if not isinstance(self.key, str):
            raise InvalidParameter(f"key must be text, got {type(self.key).__name__}")
        if self.choose == "random":
            if self.key:
                raise InvalidParameter("key: choose='random' draws a fresh key itself; with a key, use choose='hash'")
            # An engine's own random() would do it too, but is drawn anew when Spark runs a lost task again.
            object.__setattr__(self, "key", secrets.token_hex(32))

    @property
    def sensitivity(self) -> Sensitivity:
        """What these bounds guarantee: linf = τ, l0 = Δ, for adding or removing one user."""
        return Sensitivity(linf=self.per_label_cap, l0=self.labels_per_user)


def events_histogram(
    table: Any,
    *,
    user: str,
    item: str,
    labels_per_user: int | None,
    per_label_cap: int = 1,
    top: int | None = None,
    weight: str | None = None,
    where: Any = None,
    choose: str = "hash",
    key: str = "",
    engine: Engine | None = None,
    table_name: str | None = None,
    progress: Progress | None = None,
) -> Histogram:
    """How many users are at each item, with every user's contribution bounded; a private-domain histogram.

    Args:
        table: events, one a row: an Ibis table on DuckDB or Spark, a Spark, pandas or polars frame, an Arrow table, or
            the path of a Parquet (also directory or glob), CSV, TSV, JSON-lines or DuckDB file.
        user: column of whom the privacy is for: text, integers, truth values, dates or UUIDs.
        item: column of the labels; the same types: integers stay integers, all others become text. Floating-point
            numbers, as pandas makes of integers with a gap, are taken as integers; what is not whole counts as missing.
        labels_per_user: Δ, the most labels of one user that count; None = all, the l0-sensitivity is then unrestricted.
        per_label_cap: τ, the most that one user adds to one label.
        top: bring back only the rows with the largest counts, ties in the order of the labels; None = all. The
            mechanisms for an unknown domain need d_bar + 1 of them.
        weight: column of what an event adds, instead of 1. Each weight is rounded down to a whole number and clipped to
            [0, τ]; NULL and NaN count 0. Nothing is refused for its value.
        where: keep only events for which this holds: {column: value or list of values}, or a function of the Ibis
            table, or an Ibis expression. It must look at one row at a time.
        choose: which labels count for a user with more than Δ: "hash", "random" or "top"; see Bounds.
        key: varies the choice of "hash" and "top".
        engine: DuckDB(memory_limit=, temp_directory=, passes=, ...) or Spark(session=); None = what fits the table.
        table_name: the table, when ``table`` is a database file.
        progress: called with (passes done, all passes).

    Returns:
        A Histogram with the Sensitivity that was enforced; complete is False whenever ``top`` is given. Events
        without a user or item (NULL) are dropped; without any events there are no rows, which is no error.

    Raises:
        InvalidParameter: on a missing column, a type or file that cannot be read; never for a value of the data.
        ImportError: when an extra (``data``, ``spark``) is not installed.

    What the caller must ensure: one person's events all carry the same user, and every row of ``table`` comes from
    that user's events alone.

    >>> import pandas as pd
    >>> events = pd.DataFrame({"member": ["a", "a", "a", "b"], "article": ["x", "x", "y", "x"]})
    >>> histogram = events_histogram(events, user="member", item="article", labels_per_user=5)
    >>> dict(zip(histogram.labels.tolist(), histogram.counts.tolist())) == {"x": 2, "y": 1}
    True
    >>> histogram.sensitivity
    Sensitivity(linf=1, l0=5, neighbours='add_remove')
    """
    bounds = Bounds(labels_per_user=labels_per_user, per_label_cap=per_label_cap, choose=choose, key=key)
    if top is not None:
        top = validate.count(top=top)
    needed = _needed_columns(where, user=user, item=item, weight=weight)
    source = open_table(table, engine, columns=needed, table_name=table_name)
    events = select_events(source, where, user=user, item=item, weight=weight)
    counted = label_counts(source, events, bounds, top=top, progress=progress)
    return to_histogram(counted, bounds, top)


def select_events(source: Source, where: Any, **columns: str | None) -> Any:
    """The events that hold ``where``, with the columns renamed to their roles (user, item, ...), without NULL.

    Args:
        source: the table.
        where: as in events_histogram.
        columns: role=name of the column; a role whose column is None is left out. A ``weight`` may be NULL.
    """
    kept = source.table
    typed = {role: _typed(kept, role, name) for role, name in columns.items() if name is not None}
    if where is not None:
        kept = kept.filter(_row_wise(kept, where))
        typed = {role: _typed(kept, role, name) for role, name in columns.items() if name is not None}
    events = kept.select(**typed)
    return events.filter(*[events[role].notnull() for role in typed if role != "weight"])


def contributions(events: Any, bounds: Bounds, *, within: Sequence[str] = ()) -> Any:
    """What each user adds to each label after the bounds: columns user, item, value, and those of ``within``.

    Args:
        events: columns user, item, perhaps weight, and those of ``within``.
        bounds: how much counts.
        within: further columns: the bounds hold for each of their values by itself.
    """
    import ibis

    cap = bounds.per_label_cap
    amount = events.count() if "weight" not in events.columns else _whole(events.weight, cap).sum()
    pairs = events.group_by([*within, "user", "item"]).agg(amount=amount)
    pairs = pairs.filter(pairs.amount > 0)
    pairs = pairs.mutate(value=pairs.amount.clip(upper=cap))
    if bounds.labels_per_user is None:
        return pairs
    pairs = pairs.mutate(lot=_lot(pairs.user, pairs.item, bounds.key))
    order = [pairs.lot, pairs.item]
    if bounds.choose == "top":
        order.insert(0, pairs.amount.desc())
    place = ibis.row_number().over(group_by=[*within, "user"], order_by=order)  # from 0
    ranked = pairs.mutate(place=place)
    return ranked.filter(ranked.place < bounds.labels_per_user)


def label_counts(
    source: Source, events: Any, bounds: Bounds, *, top: int | None, progress: Progress | None = None
) -> Any:
    """The counts (pyarrow.Table: item, count), cut to the ``top`` rows by count, ties by item.

    In several passes each user is in one part, so the bounds hold as in a single pass, and the parts' counts add up.
    """
    import pyarrow as pa

    total = None
    for part in range(source.passes):
        chosen = events if source.passes == 1 else events.filter(_part_of(events.user, source.passes) == part)
        kept = contributions(chosen, bounds)
        counted = kept.group_by("item").agg(count=kept.value.sum())
        if source.passes == 1 and top is not None:
            counted = counted.order_by([counted["count"].desc(), counted["item"].asc()]).limit(top)
        rows = without_data("table", "the engine could not run the query", partial(source.run, counted))
        if total is None:
            total = rows
        else:
            both = pa.concat_tables([total, rows])
            total = both.group_by("item").aggregate([("count", "sum")]).rename_columns({"count_sum": "count"})
        if progress is not None:
            progress(part + 1, source.passes)
    if top is not None and source.passes > 1:
        total = total.sort_by([("count", "descending"), ("item", "ascending")]).slice(0, top)  # type: ignore[union-attr]
    return total


def to_histogram(counted: Any, bounds: Bounds, top: int | None) -> Histogram:
    """A private-domain histogram of the columns item and count; whether it is whole is decided by ``top`` alone."""
    labels = counted["item"].to_pandas().to_numpy()
    counts = counted["count"].to_pandas().to_numpy()
    return Histogram(labels, counts, sensitivity=bounds.sensitivity, complete=top is None)


def _lot(user: Any, item: Any, key: str) -> Any:
    """The start of the hexadecimal SHA-256 of key | user | item; the key enters by its own digest, of fixed length."""
    import ibis

    prefix = ibis.literal(sha256(key.encode()).hexdigest()[:32] + "|")
    return (prefix + user.cast("string") + "|" + item.cast("string")).hexdigest("sha256").substr(0, DIGITS)


def _part_of(user: Any, parts: int) -> Any:
    """In which of so many parts a user falls, by any hash of the engine's; the answer does not depend on it."""
    return (user.hash() % parts + parts) % parts


def _whole(weight: Any, cap: int) -> Any:
    """A weight rounded down to a whole number in [0, cap]; NULL and NaN are 0.

    Whole numbers *before* the sum: a floating-point sum depends on the order in which an engine adds, and could change
    for other users when one is removed.
    """
    import ibis

    if weight.type().is_floating():
        weight = ibis.ifelse(weight.isnan(), 0.0, weight)
    return weight.fill_null(0).clip(lower=0, upper=cap).floor().cast("int64")


def _typed(table: Any, role: str, name: str) -> Any:
    """A column, of a type that every engine orders and writes as text in the same way."""
    if not isinstance(name, str):
        raise InvalidParameter(f"{role} must be the name of a column, got {type(name).__name__}")
    if name not in table.columns:
        raise InvalidParameter(f"{role}: the table has no column {name!r}")
    column, kind = table[name], table[name].type()
    if role == "weight":
        if kind.is_numeric():
            return column
        if kind.is_string():  # text files: what is no number counts 0
            return column.try_cast("float64")
        raise InvalidParameter(f"weight: the column {name!r} is of type {kind}, not a number")
    if kind.is_string() or kind.is_integer():
        return column
    if kind.is_boolean() or kind.is_date() or kind.is_uuid() or kind.is_null():
        return column.cast("string")
    if kind.is_floating():
        return _whole_or_null(column)
    raise InvalidParameter(f"{role}: the column {name!r} is of type {kind}; make it text or integer first")


def _whole_or_null(column: Any) -> Any:
    """Floating-point numbers as integers, NULL where they are no whole number below 2^53.

    In pandas, integers with one of them missing are floating-point: the missing one must not decide what is refused.
    """
    import ibis

    whole = (column.abs() < 2.0**53) & (column == column.floor())
    return ibis.ifelse(whole, column, ibis.null("float64")).cast("int64")


def _needed_columns(where: Any, **columns: str | None) -> list[str] | None:
    """Names of the columns the query uses; None when only ``where`` itself knows."""
    if where is not None and not isinstance(where, Mapping):
        return None
    names = [name for name in (*columns.values(), *(where or {})) if isinstance(name, str)]
    return list(dict.fromkeys(names))


def _row_wise(table: Any, where: Any) -> Any:
    """The condition as an Ibis expression, refused unless each row's answer depends on that row alone.

    A comparison with, say, the table's mean would let one user decide which of the others' events count.
    """
    import ibis.expr.operations as ops

    if isinstance(where, Mapping):
        return _equalities(table, where)
    condition = without_data("where", "it is no condition on this table", partial(_bound, table, where))
    across = (ops.Reduction, ops.Analytic, ops.WindowFunction, ops.Subquery, ops.Impure)
    if condition.op().find(across, filter=ops.Value):
        raise InvalidParameter("where must look at one row at a time: no aggregates, windows, subqueries")
    return condition


def _bound(table: Any, where: Any) -> Any:
    """The condition with the table's columns put in."""
    import ibis
    from ibis.common.deferred import Deferred

    if isinstance(where, Deferred):
        where = where.resolve(table)
    elif callable(where) and not isinstance(where, ibis.Value):
        where = where(table)
    if not isinstance(where, ibis.Value) or not where.type().is_boolean():
        raise InvalidParameter("where must give a truth value for each row")
    table.filter(where)  # fails when it speaks of another table
    return where


def _equalities(table: Any, where: Mapping[str, Any]) -> Any:
    import ibis

    condition = ibis.literal(True)
    for name, value in where.items():
        if name not in table.columns:
            raise InvalidParameter(f"where: the table has no column {name!r}")
        listed = list(value) if isinstance(value, list | tuple | set | frozenset) else [value]
        chosen = without_data(
            "where", f"the values for {name!r} do not fit the column", partial(table[name].isin, listed)
        )
        condition = condition & chosen
    return condition
