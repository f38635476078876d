"""Two histograms of the same events in one pass: of all events, and of those under a cap on
labels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.base import CountsAndLabels, OpenTable
from dptopk.datasets.backends.opening import Engine, selected_events
from dptopk.datasets.bounding import counts_with_and_without_cap
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.counting import Progress, label_counts
from dptopk.datasets.events import rows_in_order
from dptopk.datasets.first_events import first_events
from dptopk.datasets.ordered_events import CountsInOrder
from dptopk.datasets.profile_columns import PROFILE
from dptopk.datasets.store import EventsStore
from dptopk.datasets.unread_labels import unread_counts
from dptopk.datasets.warehouse import CountedEvents, read_counted
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, NARROW, EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Array, Histogram, Sensitivity

if TYPE_CHECKING:
    import ibis.expr.types as ir

    from dptopk.datasets.backends.inputs import Condition, EventTable
    from dptopk.histogram.stored_labels import StoredLabels


def summed_columns(*, weights: bool, profile: bool) -> dict[str, str]:
    """Return which columns of ``bounding.counts_with_and_without_cap`` are summed up by label: name
    of a sum -> column.

    Args:
        weights: whether ``capped`` has weights, which a profile needs.
        profile: whether the columns of PROFILE are there.

    Raises:
        InvalidParameter: for a profile without weights.
    """
    if profile and not weights:
        raise InvalidParameter("profile: it needs weights=True")
    sums = {"count": "value", "capped": "capped"}
    if profile:
        sums |= {name: name for name in PROFILE}
    return sums


def event_counts(  # noqa: PLR0913
    table: EventTable | EventsStore,
    *,
    user: str | None = None,
    item: str | None = None,
    labels_per_user: int,
    weights: bool = False,
    profile: bool = False,
    per_label_cap: int = 1,
    weight: str | None = None,
    where: Condition = None,
    choose: str = "hash",
    key: str = "",
    portable: bool = False,
    engine: Engine | None = None,
    table_name: str | None = None,
    progress: Progress | None = None,
) -> EventCounts:
    """Return the counts of each item's users without and with a cap, from the same state of the
    rows.

    Args:
        table: events, as for events_histogram, or an EventsStore that was made without a cap
            (labels_per_user=None), which has columns and other bounds of its own.
        user: the column of users; not needed for a store.
        item: the column of labels; not needed for a store.
        labels_per_user: the cap Δ of the second histogram.
        weights: whether the second histogram has sums of weights instead of counts: isqrt(100² //
            d) for each of the d labels of a user under the cap. It needs τ = 1.
        profile: with weights: whether users are counted by their number of labels too, and labels
            under some narrow caps, by which ``plan_two_phases(profile=True)`` chooses.
        per_label_cap: τ, the most that one user adds to one label, in both histograms.
        weight: the column of what an event adds, as for events_histogram.
        where: a condition on events, as for events_histogram.
        choose: which labels of a user are under the cap, as for events_histogram.
        key: text that varies the choice, as for events_histogram.
        portable: whether the choice is by SHA-256, as for events_histogram.
        engine: the engine, as for events_histogram.
        table_name: the table in a database file, as for events_histogram.
        progress: a function that is called with (passes done, all passes), as for events_histogram;
            the result of a statement is read at once, without a call.

    Returns:
        EventCounts: all labels of the events.

    Raises:
        InvalidParameter: as events_histogram; for a store that kept a part of each user's labels
            only; for options of events beside a store or the result of a statement.
    """
    cap = validate.count(labels_per_user=labels_per_user)
    if weights and per_label_cap != 1:
        raise InvalidParameter(
            "weights: they are for users who add at most 1 to a label; per_label_cap must be 1"
        )
    summed_columns(weights=weights, profile=profile)  # refuses a profile without weights
    # Options of reading events and of bounding them, which were fixed where events were counted
    # or stored before.
    has_options = any(value is not None for value in (weight, where, engine, table_name))
    has_options |= (per_label_cap, choose, key, portable) != (1, "hash", "", False)
    if isinstance(table, EventsStore):
        has_other_columns = (user, item) not in ((None, None), table.columns)
        if has_other_columns or has_options or progress is not None:
            raise InvalidParameter(
                "table: a store of events has its own columns, bounds and choice; give it alone"
            )
        return _counts_of_store(table, cap, weights=weights, profile=profile)
    if user is None and item is None:
        statement_result = read_counted(table)
        if statement_result is not None:
            if has_options:
                raise InvalidParameter(
                    "table: the result of a statement was counted under its own conditions, bounds "
                    "and choice; give it alone"
                )
            return _counts_of_statement(statement_result, cap, weights=weights, profile=profile)
    if user is None or item is None:
        raise InvalidParameter("user and item must be given: the columns of users and of labels")
    bounds = Bounds(
        labels_per_user=cap, per_label_cap=per_label_cap, choose=choose, key=key, portable=portable
    )
    with selected_events(
        table,
        where,
        engine,
        table_name,
        only_different=bounds.counts_once and weight is None,
        user=user,
        item=item,
        weight=weight,
    ) as (source, events):
        columns, labels = _columns_of_events(
            source, events, bounds, weights=weights, profile=profile, progress=progress
        )
    clipped = weight is not None or bounds.per_label_cap > 1
    return event_counts_of(columns, bounds, weights=weights, clipped=clipped, labels=labels)


def _columns_of_events(
    source: OpenTable,
    events: ir.Table,
    bounds: Bounds,
    *,
    weights: bool,
    profile: bool,
    progress: Progress | None,
) -> CountsAndLabels:
    """Return the columns of both histograms of events, and their labels if these stay in the
    engine.

    Args:
        source: the opened table.
        events: its events, with the columns user and item and perhaps weight.
        bounds: the bounds of the second histogram.
        weights: whether the second histogram has sums of weights.
        profile: whether the columns of PROFILE are added.
        progress: a function that is called with (passes done, all passes); None: none is called.
    """
    sums = summed_columns(weights=weights, profile=profile)
    first = first_events(source, events)
    unread = unread_counts(source, events, bounds, first, weights=weights, sums=sums)
    if unread is not None:
        return unread
    contribute = partial(
        counts_with_and_without_cap, bounds=bounds, weights=weights, profile=profile
    )
    columns = label_counts(
        source,
        events,
        contribute,
        bounds,
        top=None,
        sums=sums,
        in_order=CountsInOrder(bounds=bounds, sums=sums, weights=weights),
        first=first,
        progress=progress,
    )
    return CountsAndLabels(columns, None)


def _counts_of_store(store: EventsStore, cap: int, *, weights: bool, profile: bool) -> EventCounts:
    """Return the counts of the events in a store, with and without a cap on labels.

    Args:
        store: the store.
        cap: the cap Δ of the second histogram.
        weights: whether the second histogram has sums of weights.
        profile: whether users are counted by their number of labels too.

    Raises:
        InvalidParameter: for weights of a store in which a user may add more than 1 to a label, and
            for a store that holds a part of each user's labels only.
    """
    if weights and store.bounds.per_label_cap != 1:
        raise InvalidParameter(
            "weights: users add at most 1 to a label, and the store has another per_label_cap"
        )
    columns, bounds = store.counts_with_and_without_cap(cap, weights=weights, profile=profile)
    return event_counts_of(columns, bounds, weights=weights, clipped=store.clips_amounts)


def _counts_of_statement(
    result: CountedEvents, cap: int, *, weights: bool, profile: bool
) -> EventCounts:
    """Return the counts in the result of a statement that ran elsewhere, under the cap that it
    states.

    Args:
        result: the result, with the cap that the statement counted under.
        cap: the cap that the caller wants.
        weights: whether the second histogram has the sums of weights instead of the counts under
            the cap.
        profile: whether the columns of PROFILE are taken too.

    Raises:
        InvalidParameter: if the statement counted under another cap than the caller's.
    """
    if result.labels_per_user != cap:
        raise InvalidParameter(
            f"labels_per_user: the events were counted under a cap of {result.labels_per_user}, "
            f"got {cap}",
            parameter="labels_per_user",
        )
    columns = {"item": result.columns["item"], "count": result.columns["count"]}
    columns["capped"] = result.columns["weights" if weights else "capped"]
    if profile:
        columns |= {name: result.columns[name] for name in PROFILE}
    return event_counts_of(columns, Bounds(labels_per_user=cap), weights=weights, clipped=False)


def event_counts_of(
    columns: dict[str, Array],
    bounds: Bounds,
    *,
    weights: bool,
    clipped: bool,
    labels: StoredLabels | None = None,
) -> EventCounts:
    """Return the two histograms of the same events, made of their columns.

    Args:
        columns: item, count and capped, and perhaps the columns of PROFILE. Counts are removed
            once a histogram holds them, which saves memory.
        bounds: the bounds of the second histogram.
        weights: whether the second histogram has sums of weights.
        clipped: whether what one user adds to a label was cut at τ.
        labels: the labels of the rows, which are in order, instead of the column item; None: the
            column item.
    """
    profile: Histogram | None = None
    if PROFILE.keys() <= columns.keys():
        profile = _users_by_cell(columns)
    if labels is None:
        columns = rows_in_order(columns)
    without_cap = Sensitivity(linf=bounds.per_label_cap)
    names = columns["item"] if labels is None else labels
    uncapped = Histogram(names, columns.pop("count"), sensitivity=without_cap, capped=clipped)
    finding = finding_sensitivity(
        bounds.labels_per_user or 1,  # the bounds of a second histogram have a cap: never None
        bounds.per_label_cap,
        weights=weights,
    )
    under_cap = uncapped.with_counts(columns.pop("capped"), finding)
    if profile is None:
        return EventCounts.of_histograms(uncapped, under_cap)
    narrow = {cap: columns[f"under_{cap}"] for cap in NARROW}
    return EventCounts.of_histograms(uncapped, under_cap, profile, narrow)


def _users_by_cell(columns: dict[str, Array]) -> Histogram:
    """Return how many users are in each of CELLS, by their number of labels; the columns
    ``above_`` are removed.

    Args:
        columns: the columns ``above_`` among others. The row of a label in ``above_n`` counts the
            users who have this label at place n, from 0. Every user with more than n labels has one
            there, so that the sum of the column is the number of these users.
    """
    # The users with more labels than each of CELLS; their differences are the users of a cell.
    users_above = [int(columns.pop(f"above_{cell}").sum()) for cell in CELLS]
    users = -np.diff(users_above, append=0)
    one_cell = Sensitivity(l0=1)  # a user is in one cell
    return Histogram(list(CELLS), users, sensitivity=one_cell, domain="public")
