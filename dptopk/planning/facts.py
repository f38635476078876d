"""The public facts about a histogram that is at hand, and about the account that pays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from dptopk._internal.choices import ChargeAs
from dptopk.budgets.account_base import Account
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import ExponentialClockDP
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram
from dptopk.planning.protocol import Plan
from dptopk.question import Events, Facts, any_plan

# What a question that asks for one phase is told, where the events were read for two.
ONE_PHASE = "make the session with count_capped=True"


def facts_of(
    histogram: Histogram,
    *,
    charge_as: ChargeAs | Literal["auto"] = "auto",
    covers: Callable[[Plan], bool] = any_plan,
) -> Facts:
    """Return what a plan may depend on, of a histogram: what was declared about it, and no count.

    Args:
        histogram: an EventCounts can only be asked in two phases.
        charge_as: what selections pay for, as the account takes it.
        covers: the function that says whether the account pays for a plan, or has paid for it, so
            that its answer comes again.
    """
    return Facts(
        sensitivity=histogram.sensitivity,
        domain=histogram.domain,
        events=_events_of(histogram) if isinstance(histogram, EventCounts) else None,
        complete=histogram.complete,
        looks=histogram.complete,
        charge_as=charge_as,
        covers=covers,
    )


def _events_of(events: EventCounts) -> Events:
    """Return how the events were read: a plan must find labels under the same caps.

    With a profile the planner may take any cap of those that were read; else it has the one cap.
    """
    under = events.under_cap.sensitivity
    profile = events.profile is not None
    cap = under.l0 or 1  # for the type checker: under a cap l0 is finite
    return Events(
        labels_per_user="auto" if profile else cap,
        per_label_cap=events.sensitivity.linf,
        weights=under.l2 is not None,
        profile=profile,
        instead=ONE_PHASE,
    )


def selections_charged_as(account: Account) -> Literal["auto", "bounded_range"]:
    """Return how a plan charges its selections to an account: "auto" if the account has registered
    clocks, else "bounded_range".

    A filter has no price for clocks (docs/notes/clocks.md), and registered costs of other types do
    not cover them.
    """
    if isinstance(account, Accountant):
        costs = account.registered.costs
        if any(isinstance(cost, ExponentialClockDP) for cost in costs):
            return "auto"
    return "bounded_range"
