"""Questions about raw events: labels are found under a cap, and counted without one (docs/notes/two-phases.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from dptopk.costs import Budget
from dptopk.datasets.events import events_histogram
from dptopk.datasets.store import EventsStore
from dptopk.datasets.two_counts import event_counts
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram
from dptopk.planning import Plan, TwoPhasePlan, plan_two_phases
from dptopk.planning.two_phase import CAPS

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger

TAKEN = {"counts", "share", "find", "min_users"}
ONE_PHASE = "make the session with count_capped=True"


def read_events(
    table: Any,
    labels_per_user: int | Literal["auto"] | None,
    *,
    count_capped: bool,
    weights: bool | Literal["auto"],
    ledger: Ledger | None,
    dataset: str | None,
    options: dict[str, Any],
) -> Histogram:
    """The histogram that a session on these events is about: an EventCounts where two phases ask it."""
    if labels_per_user == "auto" and ledger is not None and dataset is not None:
        labels_per_user = ledger.state(dataset).sensitivity.l0 or "auto"
    if weights not in ("auto", True, False):
        raise InvalidParameter(f"weights must be 'auto', True or False, got {weights!r}")
    if options.get("user", "") is None and labels_per_user in ("auto", 1):  # each row is one person
        return events_histogram(table, labels_per_user=1, **options)
    if not count_capped and labels_per_user is not None:
        store = isinstance(table, EventsStore)
        most = table.bounds.per_label_cap if store else options.get("per_label_cap", 1)
        weighted = most == 1 if weights == "auto" else weights
        profile = weighted and labels_per_user == "auto"
        cap = CAPS[weighted] if labels_per_user == "auto" else labels_per_user
        return event_counts(table, labels_per_user=cap, weights=weighted, profile=profile, **options)
    if weights is True:
        raise InvalidParameter("weights: of two phases alone, where labels_per_user is a number or 'auto'")
    if isinstance(table, EventsStore):
        if options or labels_per_user not in ("auto", table.bounds.labels_per_user):
            raise InvalidParameter("table: a store of events has its own columns and bounds; give it alone")
        return table.histogram()
    if labels_per_user == "auto":
        raise InvalidParameter("labels_per_user must be given with count_capped=True: a number, or None for all labels")
    return events_histogram(table, labels_per_user=labels_per_user, **options)


def plan_of_events(
    both: EventCounts, k: int, budget: Budget, taken: Callable[[Plan], bool], options: dict[str, Any]
) -> TwoPhasePlan:
    """The plan of two phases for these histograms; ``options`` are those of plan_two_phases, or refused.

    With a profile where there is one, but for ``look=None`` and where the plan without it alone is ``taken``: one that
    can be charged, or is not charged again.
    """
    under = both.under_cap.sensitivity
    if (look := options.pop("look", "auto")) not in (None, "auto"):
        raise InvalidParameter(f"look: a look is for one phase; {ONE_PHASE}")
    if others := options.keys() - TAKEN:
        raise InvalidParameter(f"{sorted(others)[0]}: of one phase; {ONE_PHASE}")
    find = options.pop("find", "auto")
    if (find == "weights") != (under.l2 is not None) and find != "auto":
        raise InvalidParameter(f"find={find!r}: weights are decided when events are read, by from_events(weights=)")
    if find == "auto" and under.l2 is None:
        find = "counts"
    planned = partial(plan_two_phases, k, budget, per_label_cap=both.sensitivity.linf, find=find, **options)
    usual = partial(planned, labels_per_user=under.l0 or 1)
    if both.profile is None or look is None:
        return usual()
    looking = planned(profile=True)
    return looking if taken(looking) or not taken(without := usual()) else without
