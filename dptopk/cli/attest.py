"""``dptopk attest``: the exact laws of a mechanism on small histograms, in a file that an auditor
can check.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptopk._internal.choices import Counts, FindBy
from dptopk.cli.audit import KnownDomain, Labels, LabelsPerUser, load
from dptopk.cli.options import Cap
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.audit.attestation import Attestation
    from dptopk.costs import Charge
    from dptopk.planning.topk_plan import TopKPlan


EVENTS = "events"  # the word that stands for the plan of EventsOptions in place of a mechanism


@dataclass(frozen=True, kw_only=True)
class EventsOptions:
    """The options that go with "events" alone; None: the option is not given."""

    users: Annotated[
        int | None, typer.Option(help='Of "events": number of users in the small tables.')
    ] = None
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", help='Of "events": how many labels.', show_default="1"),
    ] = None
    epsilon: Annotated[float | None, typer.Option(help='Of "events": the total ε.')] = None
    delta: Annotated[float | None, typer.Option(help='Of "events": the total δ.')] = None
    find: Annotated[
        FindBy | None,
        typer.Option(help='Of "events": how labels are found.', show_default="coins"),
    ] = None
    counts: Annotated[
        Counts | None,
        typer.Option(help='Of "events": the noise on counts.', show_default="box"),
    ] = None

    def plan(self, labels_per_user: int, per_label_cap: int) -> TopKPlan:
        """Return the plan that finds labels of events and counts them, without a look at users.

        Args:
            labels_per_user: the cap Δ under which labels are found, at least 1.
            per_label_cap: τ, the most that one user adds to one label, at least 1.

        Raises:
            InvalidParameter: without --epsilon or --delta, and where no plan meets them.
        """
        from dptopk.histogram.histogram import Sensitivity
        from dptopk.planning.choose import plan
        from dptopk.question import Events, Facts, Question

        if self.epsilon is None or self.delta is None:
            raise InvalidParameter("attest events: give --epsilon and --delta")
        question = Question(
            k=1 if self.k is None else self.k,
            epsilon=self.epsilon,
            delta=self.delta,
            find="coins" if self.find is None else self.find,
            counts="box" if self.counts is None else self.counts,
        )
        events = Events(labels_per_user=labels_per_user, per_label_cap=per_label_cap, profile=False)
        facts = Facts(sensitivity=Sensitivity(linf=per_label_cap), events=events)
        return plan(question, facts)


def attest(
    mechanism: Annotated[
        str,
        typer.Argument(
            metavar="MECHANISM",
            help='Such as "TruncatedLaplace(epsilon=1, delta=0.01)", or file.py:name; or "events": '
            "finding and counting labels of a table of events, with --epsilon and --delta.",
        ),
    ],
    labels_per_user: LabelsPerUser = 1,
    per_label_cap: Cap = 1,
    labels: Labels = 2,
    largest: Annotated[
        int | None,
        typer.Option(
            help="Largest count; the counts are 0, 1, 2, 3, 5, 8, ... up to it.", show_default="2"
        ),
    ] = None,
    near: Annotated[
        list[int] | None,
        typer.Option(help="List counts near this one too, such as a threshold; may be repeated."),
    ] = None,
    known_domain: KnownDomain = False,
    claim: Annotated[
        str | None,
        typer.Option(help='Instead of its own charge, such as "BR(1)" or "DP(1) + delta(1e-6)".'),
    ] = None,
    slack: Annotated[
        float, typer.Option(help="By how much the bound on δ may exceed the exact δ.")
    ] = 1e-9,
    *,
    of_events: EventsOptions,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the laws here; checker/check_attestation.py checks the file."),
    ] = None,
) -> None:
    """List the exact laws of a mechanism on all small histograms, and compare all neighbours with
    its charge.

    Exit code 0: the charge holds there; 1: it does not; 2: a wrong argument, or a law that cannot
    be listed.
    """
    from dptopk.audit.attestation import attest as attest_laws
    from dptopk.audit.worlds import World
    from dptopk.cli.target import check_target
    from dptopk.cli.terms import costs_of
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.mechanisms.named import parse_mechanism

    check_target(out)
    claimed_charge = None if claim is None else costs_of(claim, "--claim")
    if mechanism == EVENTS:
        if known_domain or near or largest is not None:
            raise InvalidParameter(
                '--largest, --near and --known-domain do not go with "events": its tables have '
                "--users and --labels"
            )
        attestation = _attest_events(
            of_events, labels, labels_per_user, per_label_cap, claimed_charge, slack
        )
    elif of_events != EventsOptions():
        raise InvalidParameter(
            '--users, -k, --epsilon, --delta, --find and --counts go with "events" alone'
        )
    else:
        subject = parse_mechanism(mechanism) if "(" in mechanism else load(mechanism)
        world = World(
            Sensitivity(linf=per_label_cap, l0=labels_per_user),
            labels=labels,
            largest=2 if largest is None else largest,
            public=known_domain,
            near=tuple(near or ()),
        )
        attestation = attest_laws(subject, world, claim=claimed_charge, slack=slack)
    typer.echo(str(attestation))
    if out is not None:
        attestation.write(out)
        typer.echo(f"Check it with: python check_attestation.py {out}")
    raise typer.Exit(0 if attestation.holds else 1)


def _attest_events(
    options: EventsOptions,
    labels: int,
    labels_per_user: int | None,
    per_label_cap: int,
    claim: Charge | None,
    slack: float,
) -> Attestation:
    """List the exact laws of the plan that finds and counts labels of events, on small tables.

    Args:
        options: the plan, and the number of users in the tables.
        labels: the number of labels in the tables.
        labels_per_user: the cap under which labels are found; None: 1, since events have a cap.
        per_label_cap: the most that one user adds to one label.
        claim: the charge that the laws are compared with; None: the plan's own.
        slack: by how much the bound on δ may exceed the exact δ.
    """
    from dptopk.audit.attestation import attest as attest_laws
    from dptopk.audit.event_worlds import EventsWorld

    plan = options.plan(1 if labels_per_user is None else labels_per_user, per_label_cap)
    world = EventsWorld(users=1 if options.users is None else options.users, labels=labels)
    return attest_laws(plan, world, claim=claim, slack=slack)
