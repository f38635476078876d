"""From events (user, item) to a histogram of bounded sensitivity, computed by the events'
engine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.opening import Engine, selected_events
from dptopk.datasets.bounding import contributions
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.counting import ONLY_COUNT, Contribute, CountInOrder, Progress, label_counts
from dptopk.datasets.ordered_events import CountsInOrder
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Array, Histogram
from dptopk.histogram.labels import label_order

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from dptopk.datasets.backends.base import OpenTable
    from dptopk.datasets.backends.inputs import Condition, EventTable


def events_histogram(  # noqa: PLR0913
    table: EventTable,
    *,
    user: str | None,
    item: str,
    labels_per_user: int | None,
    per_label_cap: int = 1,
    total_per_user: int | None = None,
    top: int | None = None,
    weight: str | None = None,
    where: Condition = None,
    choose: str = "hash",
    key: str = "",
    portable: bool = False,
    engine: Engine | None = None,
    table_name: str | None = None,
    progress: Progress | None = None,
) -> Histogram:
    """Return the number of users of each item, with every user's contribution bounded, as a
    private-domain histogram.

    Args:
        table: events, one a row: an Ibis table of DuckDB, Spark, PostgreSQL or DataFusion
            (projections, casts, filters and unions of tables; all else is refused), a Spark, pandas
            or polars frame, an Arrow table, or the path of a Parquet (also directory or glob), CSV,
            TSV, JSON-lines or DuckDB file.
        user: the column of the protected users: text, integers, decimals, truth values, dates or
            UUIDs. Texts that the column takes for equal, as under a collation, are one user. None:
            each row is one person, as in a survey; then labels_per_user must be 1, which holds by
            itself, and there is no ``weight``.
        item: the column of the labels, of the same types: integers stay integers, all others become
            text. Floating-point numbers, as pandas makes of integers with a gap, are taken as
            integers; a number that is not whole counts as missing.
        labels_per_user: Δ, the most labels of one user that count; None: all, and the
            l0-sensitivity is unrestricted.
        per_label_cap: τ, the most that one user adds to one label.
        total_per_user: t, the most that one user adds to all labels together, so that linf and l0
            are at most t; None: no limit.
        top: only this many rows are returned, those with the largest counts, ties in the order of
            the labels; None: all. The mechanisms for an unknown domain need top > d_bar; fewer
            labels in the data are no error.
        weight: the column of what an event adds, instead of 1. Each weight is rounded down to a
            whole number and clipped to [0, τ]; NULL and NaN count 0, and so does text that is no
            number of at most 18 digits on each side of the point, with an exponent of at most two.
            No value is refused.
        where: only events for which this holds count: {column: value or list of values}, or a
            function of the Ibis table, or an Ibis expression. It must look at one row at a time.
        choose: which labels count for a user with more than Δ: "hash", "random" or "top"; see
            Bounds.
        key: text that varies the choice of "hash" and "top".
        portable: whether the choice is the same on every engine and version, by SHA-256, which is
            slower; see Bounds.
        engine: DuckDB(memory_limit=, temp_directory=, passes=, ...) or Spark(session=); None: the
            engine that fits the table.
        table_name: the name of the table, if ``table`` is a database file.
        progress: a function that is called with (passes done, all passes).

    Returns:
        A Histogram with the Sensitivity that was enforced. Its complete is False and its limit is
        ``top`` whenever that is given, even if there were fewer labels: only what is known
        beforehand decides, never the data. Events without a user or item (NULL) are dropped;
        without any events there are no rows, which is no error.

    Raises:
        InvalidParameter: for an argument out of range, options that do not go together, a missing
            column, and a type or file that cannot be read; never for a value of the data.
        ImportError: when an extra (``data``, ``spark``) is not installed.

    What the caller must ensure: one person's events all carry the same user, and every row of
    ``table`` comes from that user's events alone.

    >>> import pandas as pd
    >>> events = pd.DataFrame({"member": ["a", "a", "a", "b"], "article": ["x", "x", "y", "x"]})
    >>> histogram = events_histogram(events, user="member", item="article", labels_per_user=5)
    >>> dict(zip(histogram.labels.tolist(), histogram.counts.tolist())) == {"x": 2, "y": 1}
    True
    >>> histogram.sensitivity
    Sensitivity(linf=1, l0=5, neighbours='add_remove')
    """
    if labels_per_user == "auto":  # type: ignore[comparison-overlap]
        raise InvalidParameter(
            "labels_per_user='auto' is for Session.from_events, which counts labels without the "
            "cap under which it finds them; here give a number, or None for all labels of a user"
        )
    bounds = Bounds(
        labels_per_user=labels_per_user, per_label_cap=per_label_cap,
        total_per_user=total_per_user, choose=choose,
        key=key, portable=portable,
    )  # fmt: skip
    if top is not None:
        top = validate.count(top=top)
    one_row_per_user = user is None
    adds_more = (labels_per_user, per_label_cap) != (1, 1) or weight is not None
    if one_row_per_user and adds_more:
        raise InvalidParameter(
            "user=None: each row is one person, who adds 1 to 1 label: labels_per_user must be 1"
        )
    with selected_events(
        table,
        where,
        engine,
        table_name,
        only_different=bounds.counts_once and weight is None and user is not None,
        user=user,
        item=item,
        weight=weight,
    ) as (source, events):
        contribute: Contribute
        in_order: CountInOrder | None = None
        if one_row_per_user:
            # There is no user by whom rows could be split if memory is full: labels serve instead.
            events = events.mutate(user=events.item)
            contribute = _one_row_contributions
            # A row has one label, so that no cap on labels has to be enforced.
            enforced_bounds = replace(bounds, labels_per_user=None)
        else:
            contribute = partial(contributions, bounds=bounds)
            in_order = CountsInOrder(bounds=bounds, sums=ONLY_COUNT)
            enforced_bounds = bounds
        columns = label_counts(
            source,
            events,
            contribute,
            enforced_bounds,
            top=top,
            in_order=in_order,
            progress=progress,
        )
    return to_histogram(columns, bounds, top, capped=not one_row_per_user)


def _one_row_contributions(_source: OpenTable, events: ir.Table, **_: Any) -> ir.Table:
    """Return the events with a column ``value``: each row adds 1 to its label.

    It is a ``Contribute`` of label_counts; no other argument of such a function matters here.
    """
    return events.mutate(value=1)


def rows_in_order(columns: dict[str, Array]) -> dict[str, Array]:
    """Return the columns ordered by falling counts, ties by label, whatever order an engine has.

    Noise is drawn row after row, so that a seeded answer depends on the order.

    Args:
        columns: item and count, and perhaps others. The dictionary is emptied: each column is
            dropped before the next one is copied, which saves memory.
    """
    order = label_order(columns["item"])
    below_largest = columns["count"].max(initial=0) - columns["count"][order]
    # A stable sort leaves equal counts in the order of their labels.
    order = order[np.argsort(below_largest, kind="stable")]
    ordered = {name: columns.pop(name)[order] for name in list(columns)}
    ordered["item"].flags.writeable = False  # a Histogram need not copy it
    return ordered


def to_histogram(
    columns: dict[str, Array], bounds: Bounds, top: int | None, *, capped: bool = True
) -> Histogram:
    """Return a private-domain histogram of the columns item and count.

    Args:
        columns: the columns, which are used up.
        bounds: the bounds that were enforced.
        top: the limit on its rows; None: it is complete.
        capped: whether its counts are of data that were cut to the bounds.
    """
    columns = rows_in_order(columns)
    return Histogram(
        columns["item"],
        columns["count"],
        sensitivity=bounds.sensitivity,
        complete=top is None,
        limit=top,
        capped=capped,
    )
