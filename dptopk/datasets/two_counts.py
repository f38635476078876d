"""Two histograms of the same events in one pass: all of them, and what is left of them under a cap
on labels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dptopk._internal import validate
from dptopk.datasets.backends.opening import Engine, selected
from dptopk.datasets.bounding import (
    PROFILE,
    Bounds,
    Progress,
    counts_with_and_without_cap,
    label_counts,
)
from dptopk.datasets.events import in_order
from dptopk.datasets.store import EventsStore
from dptopk.datasets.unread_labels import unread_counts
from dptopk.datasets.warehouse import CountedEvents, read_counted
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import CELLS, NARROW, EventCounts, finding_sensitivity
from dptopk.histogram.histogram import Array, Histogram, Sensitivity

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import Condition, EventTable
    from dptopk.histogram.stored_labels import StoredLabels


def sums_of(*, weights: bool, profile: bool) -> dict[str, str]:
    """The sums of what ``bounding.counts_with_and_without_cap`` makes; refuses a profile without
    weights.
    """
    if profile and not weights:
        raise InvalidParameter("profile: it goes with weights=True")
    return {"count": "value", "capped": "capped"} | {name: name for name in PROFILE if profile}


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
    """Count the users of each item without and with a cap, from the same state of the rows.

    Args:
        table: events, as for events_histogram, or an EventsStore that was made without a cap
            (labels_per_user=None), which has its columns and keeps its other bounds.
        user: column of users; not needed for a store.
        item: column of labels; not needed for a store.
        labels_per_user: the cap Δ of the second histogram.
        weights: the second histogram has sums of weights, isqrt(100² // d) for each of the d labels
            of a user under the cap, instead of counts; where τ is 1.
        profile: with weights: count users by their number of labels too, and labels under some
            narrow caps, by which ``plan_two_phases(profile=True)`` chooses.
        per_label_cap: τ, in both histograms.
        weight: as for events_histogram.
        where: as for events_histogram.
        choose: as for events_histogram.
        key: as for events_histogram.
        portable: as for events_histogram.
        engine: as for events_histogram.
        table_name: as for events_histogram.
        progress: as for events_histogram.

    Returns:
        EventCounts: all labels of the events.

    Raises:
        InvalidParameter: as events_histogram; for a store that kept a part of each user's labels
        only.
    """
    cap = validate.count(labels_per_user=labels_per_user)
    if weights and per_label_cap != 1:
        raise InvalidParameter(
            "weights: of users who add at most 1 to a label; per_label_cap must be 1"
        )
    sums = sums_of(weights=weights, profile=profile)
    if isinstance(table, EventsStore):
        table_options = (weight, where, engine, table_name, progress, key or None, portable or None)
        named = (user, item) in ((None, None), table.columns)
        if (
            any(value is not None for value in table_options)
            or (per_label_cap, choose) != (1, "hash")
            or not named
        ):
            raise InvalidParameter(
                "table: a store of events has its own columns, bounds and choice; give it alone"
            )
        if weights and table.bounds.per_label_cap != 1:
            raise InvalidParameter(
                "weights: users add at most 1 to a label, and the store has another per_label_cap"
            )
        counted, under = table.counts_with_and_without_cap(cap, weights=weights, profile=profile)
        return beside(counted, under, weights=weights, clipped=table.clipped)
    if user is None and item is None:
        found = read_counted(table)
        if found is not None:
            return _of_warehouse(found, cap, weights=weights, profile=profile)
    if user is None or item is None:
        raise InvalidParameter("user and item must be given: the columns of users and of labels")
    under = Bounds(
        labels_per_user=cap, per_label_cap=per_label_cap, choose=choose, key=key, portable=portable
    )
    with selected(table, where, engine, table_name, user=user, item=item, weight=weight) as (
        source,
        events,
    ):
        unread = unread_counts(source, events, under, weights=weights, sums=sums)
        if unread is not None:
            counted, labels = unread
        else:
            labels = None
            contribute = partial(
                counts_with_and_without_cap, bounds=under, weights=weights, profile=profile
            )
            counted = label_counts(
                source, events, contribute, under, top=None, sums=sums, progress=progress
            )
    clipped = weight is not None or under.per_label_cap > 1
    return beside(counted, under, weights=weights, clipped=clipped, labels=labels)


def _of_warehouse(found: CountedEvents, cap: int, *, weights: bool, profile: bool) -> EventCounts:
    """The counts that a statement made elsewhere, under the cap that it states."""
    if found.labels_per_user != cap:
        raise InvalidParameter(
            f"labels_per_user: the events were counted under a cap of {found.labels_per_user}, "
            f"got {cap}",
            parameter="labels_per_user",
        )
    columns = {"item": found.columns["item"], "count": found.columns["count"]}
    columns["capped"] = found.columns["weights" if weights else "capped"]
    columns |= {name: found.columns[name] for name in PROFILE if profile}
    return beside(columns, Bounds(labels_per_user=cap), weights=weights, clipped=False)


def beside(
    columns: dict[str, Array],
    under: Bounds,
    *,
    weights: bool,
    clipped: bool,
    labels: StoredLabels | None = None,
) -> EventCounts:
    """Make both histograms of the columns item, count and capped, perhaps PROFILE; ``clipped``:
    sums were cut at linf; ``labels``: instead of item, of rows that are in order.
    """
    looked = list[Any]()
    if PROFILE.keys() <= columns.keys():
        above = [int(columns.pop(f"above_{cell}").sum()) for cell in CELLS]
        users = -np.diff(above, append=0)
        one_cell = Sensitivity(l0=1)
        looked.append(Histogram(list(CELLS), users, sensitivity=one_cell, domain="public"))
    if labels is None:
        columns = in_order(columns)
    moved = Sensitivity(linf=under.per_label_cap)
    named = columns["item"] if labels is None else labels
    everything = Histogram(named, columns["count"], sensitivity=moved, capped=clipped)
    finding = finding_sensitivity(under.labels_per_user or 1, under.per_label_cap, weights=weights)
    if looked:
        looked.append({cap: columns[f"under_{cap}"] for cap in NARROW})
    return EventCounts.beside(everything, everything.recounted(columns["capped"], finding), *looked)
