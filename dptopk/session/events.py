"""Sessions on raw events: labels are found under a cap, and counted without one (docs/two-phases.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from dptopk._internal.choices import Counts
from dptopk.budgets.account import Account
from dptopk.costs.budget import Budget
from dptopk.datasets.events import events_histogram
from dptopk.datasets.store import EventsStore
from dptopk.datasets.two_counts import EventCounts, event_counts
from dptopk.errors import InvalidParameter
from dptopk.planning import plan_topk
from dptopk.planning.two_phase import CAP, Find, plan_two_phases
from dptopk.release.release import Release
from dptopk.session.session import Session

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger


class EventsSession(Session):
    """A Session on an EventCounts: ``histogram`` is that of all events, its ``under_cap`` finds labels."""

    def top_k(  # type: ignore[override]
        self,
        k: int,
        *,
        budget: Budget,
        counts: Counts | None = "auto",
        reuse: bool = False,
        share: float | Literal["auto"] = "auto",
        find: Find = "auto",
    ) -> Release:
        """Find labels under the cap, count them without it, and show the k largest.

        Args:
            k: how many labels.
            budget: the (ε, δ) of this answer, both phases together; δ above 0.
            counts: "auto" or "gaussian"; None for labels alone, which all of the budget then finds.
            reuse: as for ``run``.
            share: of the budget for finding labels, as for ``plan_two_phases``.
            find: how they are found, as there.

        Returns:
            Release: its note says what was found under which cap, ``phases`` what each phase cost; counts and error
            bars are about all events.
        """
        both = self.histogram
        assert isinstance(both, EventCounts)  # noqa: S101 - from_events makes no other
        under = both.under_cap
        if counts in (None, "none"):
            labels = object.__new__(Session)
            labels._begin(under, self._book, self._source, self._rng)
            labels._answered, labels._asked = self._answered, self._asked
            plan = plan_topk(k, budget, sensitivity=under.sensitivity, counts=None, charge_as="bounded_range")
            return labels.run(plan, reuse=reuse)
        if counts not in ("auto", "gaussian"):
            raise InvalidParameter(
                f"counts={counts!r}: two phases count with Gaussian noise; for other noise make the session with "
                "count_capped=True"
            )
        sensitivity = under.sensitivity
        planned = plan_two_phases(
            k, budget, labels_per_user=sensitivity.l0 or CAP, per_label_cap=sensitivity.linf, share=share, find=find
        )
        return self.run(planned, reuse=reuse)


# What of the options is for the session, not for reading the events.
_PAYING = ("dataset", "analyst", "version", "unit", "source", "rng")


def session_from_events(
    table: Any,
    labels_per_user: int | Literal["auto"] | None,
    *,
    count_capped: bool,
    budget: Budget | Account | None,
    ledger: Ledger | None,
    options: dict[str, Any],
) -> Session:
    """Session.from_events."""
    paying = {name: options.pop(name) for name in _PAYING if name in options} | {"budget": budget, "ledger": ledger}
    if (budget is None) == (ledger is None):  # before the data are read
        raise InvalidParameter("give exactly one of budget and ledger")
    if labels_per_user == "auto" and ledger is not None and "dataset" in paying:
        labels_per_user = ledger.state(paying["dataset"]).sensitivity.l0 or "auto"
    if count_capped or labels_per_user is None:
        if isinstance(table, EventsStore):
            return Session(table.histogram(), **paying)
        if labels_per_user == "auto":
            raise InvalidParameter(
                "labels_per_user must be given with count_capped=True: a number, or None for all labels of a user"
            )
        return Session(events_histogram(table, labels_per_user=labels_per_user, **options), **paying)
    cap = CAP if labels_per_user == "auto" else labels_per_user
    return EventsSession(event_counts(table, labels_per_user=cap, **options), **paying)
