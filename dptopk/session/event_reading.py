"""Questions about raw events: labels are found under a cap, and counted without one
(docs/notes/two-phases.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptopk.datasets.events import events_histogram
from dptopk.datasets.store import EventsStore
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram
from dptopk.planning.two_phase import CAPS

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
    """The histogram that a session on these events is about: an EventCounts where two phases ask
    it.
    """
    if labels_per_user == "auto" and ledger is not None and dataset is not None:
        labels_per_user = ledger.state(dataset).sensitivity.l0 or "auto"
    if weights not in ("auto", True, False):
        raise InvalidParameter(f"weights must be 'auto', True or False, got {weights!r}")
    alone = options.get("user", "") is None and labels_per_user in ("auto", 1)
    if alone and not isinstance(table, EventsStore):  # each row is one person
        return events_histogram(table, labels_per_user=1, **options)
    if not count_capped and labels_per_user is not None:
        most: int
        if isinstance(table, EventsStore):
            most = table.bounds.per_label_cap
        else:
            most = options.get("per_label_cap", 1)
        weighted = most == 1 if weights == "auto" else weights
        profile = weighted and labels_per_user == "auto"
        cap = CAPS[weighted] if labels_per_user == "auto" else labels_per_user
        return event_counts(
            table, labels_per_user=cap, weights=weighted, profile=profile, **options
        )
    if weights is True:
        raise InvalidParameter(
            "weights: of two phases alone, where labels_per_user is a number or 'auto'"
        )
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
