"""Questions about raw events: labels are found under a cap, and counted without one (docs/notes/two-phases.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptopk._internal.choices import Counts
from dptopk.costs import Budget
from dptopk.datasets.events import events_histogram
from dptopk.datasets.store import EventsStore
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram
from dptopk.planning import Plan, plan_topk
from dptopk.planning.two_phase import CAP, Find, plan_two_phases

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger


def read_events(
    table: Any,
    labels_per_user: int | Literal["auto"] | None,
    *,
    count_capped: bool,
    ledger: Ledger | None,
    dataset: str | None,
    options: dict[str, Any],
) -> Histogram:
    """The histogram that a session on these events is about: an EventCounts where two phases ask it."""
    if labels_per_user == "auto" and ledger is not None and dataset is not None:
        labels_per_user = ledger.state(dataset).sensitivity.l0 or "auto"
    if not count_capped and labels_per_user is not None:
        return event_counts(table, labels_per_user=CAP if labels_per_user == "auto" else labels_per_user, **options)
    if isinstance(table, EventsStore):
        if options or labels_per_user not in ("auto", table.bounds.labels_per_user):
            raise InvalidParameter("table: a store of events has its own columns and bounds; give it alone")
        return table.histogram()
    if labels_per_user == "auto":
        raise InvalidParameter(
            "labels_per_user must be given with count_capped=True: a number, or None for all labels of a user"
        )
    return events_histogram(table, labels_per_user=labels_per_user, **options)


def plan_of_events(
    both: EventCounts,
    k: int,
    budget: Budget,
    counts: Counts | None,
    share: float | Literal["auto"],
    find: Find,
) -> Plan:
    """The plan of two phases; of labels alone that of one, on the capped histogram."""
    under = both.under_cap.sensitivity
    if counts in (None, "none"):
        return plan_topk(k, budget, sensitivity=under, counts=None, charge_as="bounded_range")
    if counts not in ("auto", "gaussian"):
        raise InvalidParameter(
            f"counts={counts!r}: two phases count with Gaussian noise; for other noise make the session with "
            "count_capped=True"
        )
    return plan_two_phases(k, budget, labels_per_user=under.l0 or CAP, per_label_cap=under.linf, share=share, find=find)
