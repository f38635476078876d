"""How a session reads raw events, for two phases or as one histogram (docs/notes/two-phases.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptopk.datasets.events import events_histogram
from dptopk.datasets.store import EventsStore
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.planning.two_phase import usual_cap

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import EventTable
    from dptopk.ledger.ledger import Ledger


def read_events(
    table: EventTable | EventsStore,
    labels_per_user: int | Literal["auto"] | None,
    *,
    count_capped: bool,
    weights: bool | Literal["auto"],
    ledger: Ledger | None,
    dataset: str | None,
    options: dict[str, Any],
) -> Histogram:
    """Return the histogram that a session on these events is about.

    It is an EventCounts where labels are found under a cap and then counted without it. It is one
    histogram, for one phase, with ``count_capped`` or without any cap, and where each row is one
    person: a cap changes nothing there, so that its counts are those of the capped data too.

    Args:
        table: the events, or a store of them.
        labels_per_user: the cap; "auto": the ledger's, or the usual one; None: no cap, in one
            phase.
        count_capped: whether the counts are of the capped data, in one phase.
        weights: whether labels are found by sums of weights; "auto": if one user adds at most 1 to
            a label.
        ledger: the ledger that pays; None: a budget in memory.
        dataset: the name of the data set in the ledger.
        options: the options of ``datasets.events_histogram``, such as the columns.

    Raises:
        InvalidParameter: for options that do not go together, and for ``weights`` of another type.
    """
    if labels_per_user == "auto" and ledger is not None and dataset is not None:
        labels_per_user = ledger.state(dataset).sensitivity.l0 or "auto"
    if not isinstance(weights, bool) and weights != "auto":
        raise InvalidParameter(f"weights must be 'auto', True or False, got {weights!r}")
    # Whoever gives user=None on purpose says that each row is one person.
    states_no_user = options.get("user", "") is None
    if states_no_user and isinstance(table, EventsStore):
        raise InvalidParameter("user=None: a store of events has its own column of users")
    if states_no_user and labels_per_user == "auto":
        labels_per_user = 1
    one_row_per_user = states_no_user and labels_per_user == 1
    if not (one_row_per_user or count_capped or labels_per_user is None):
        return _two_phase_counts(table, labels_per_user, weights, options)
    if weights is True:
        raise InvalidParameter(
            "weights=True is for labels that are found first and counted then: give user= and "
            "labels_per_user=, and leave out count_capped=True"
        )
    return _one_histogram(table, labels_per_user, options)


def _one_histogram(
    table: EventTable | EventsStore,
    labels_per_user: int | Literal["auto"] | None,
    options: dict[str, Any],
) -> Histogram:
    """Return the histogram for one phase; the arguments are those of ``read_events``.

    Raises:
        InvalidParameter: for a store, if it has another cap, or options; for another table, if the
            cap is "auto".
    """
    if isinstance(table, EventsStore):
        if options or labels_per_user not in ("auto", table.bounds.labels_per_user):
            raise InvalidParameter(
                "table: a store of events has its own columns and bounds; give it alone"
            )
        return table.histogram()
    if labels_per_user == "auto":
        raise InvalidParameter(
            "labels_per_user must be given with count_capped=True: a number, or None for all labels"
        )
    return events_histogram(table, labels_per_user=labels_per_user, **options)


def _two_phase_counts(
    table: EventTable | EventsStore,
    labels_per_user: int | Literal["auto"],
    weights: bool | Literal["auto"],
    options: dict[str, Any],
) -> Histogram:
    """Return the EventCounts for two phases; the arguments are those of ``read_events``.

    If the cap is "auto" and labels are found by weights, users are counted by their number of
    labels too, so that a private look at that profile can choose the cap.
    """
    per_label_cap: int
    if isinstance(table, EventsStore):
        per_label_cap = table.bounds.per_label_cap
    else:
        per_label_cap = options.get("per_label_cap", 1)
    by_weights = per_label_cap == 1 if weights == "auto" else weights
    if labels_per_user == "auto":
        return event_counts(
            table,
            labels_per_user=usual_cap(weights=by_weights),
            weights=by_weights,
            profile=by_weights,
            **options,
        )
    return event_counts(
        table, labels_per_user=labels_per_user, weights=by_weights, profile=False, **options
    )
