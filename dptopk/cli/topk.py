"""``dptopk topk``: one answer, from a file to a table, a picture or a page."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dptopk._internal import validate
from dptopk._internal.formatting import describe_l0, format_lower
from dptopk.cli.options import EVENTS, LEDGER, Asked, Columns, Domain, Look, Output, Paying, Quiet, Seed, listed_names
from dptopk.cli.shell import fail, warn, working
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.cli.input import Source
    from dptopk.costs import Budget
    from dptopk.histogram.histogram import Sensitivity
    from dptopk.ledger.dataset import DatasetState
    from dptopk.planning import Plan
    from dptopk.release.release import Release


SEGMENTS = "By segment"
# How the answers of segments can be written.
BY_SEGMENT = ("table", "csv", "json")


def topk(
    source: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, Parquet, JSON lines or - (CSV): a row a label, or with --user-col a row an event."
        ),
    ],
    asked: Asked,
    columns: Columns,
    output: Output,
    paying: Paying,
    per_label_cap: Annotated[
        int | None,
        typer.Option(metavar="τ", help="One user moves one count by at most τ (default: the ledger's, or 1)."),
    ] = None,
    domain: Domain = None,
    look: Look = "auto",
    seed: Seed = None,
    count_capped: Annotated[
        bool,
        typer.Option(
            "--count-capped",
            help="Count what the cap leaves, in one phase, instead of all data: lower than the true counts.",
            rich_help_panel=EVENTS,
        ),
    ] = False,
    min_users: Annotated[
        int, typer.Option(help="Never show a label that fewer users have (in two phases).", rich_help_panel=EVENTS)
    ] = 1,
    segment_by: Annotated[
        str | None, typer.Option(help="Column: an answer for each segment.", rich_help_panel=SEGMENTS)
    ] = None,
    segments: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="The public list of them.", rich_help_panel=SEGMENTS)
    ] = None,
    segments_per_user: Annotated[
        int | None,
        typer.Option(
            help="One user is in at most this many segments (default: all); with 1, all cost as much as one.",
            rich_help_panel=SEGMENTS,
        ),
    ] = None,
    data_version: Annotated[
        str | None, typer.Option(help="The data's; it must be the ledger's.", rich_help_panel=LEDGER)
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Give the stored answer to the identical question again, free.", rich_help_panel=LEDGER
        ),
    ] = False,
    quiet: Quiet = False,  # noqa: ARG001 - its callback heeds it
) -> None:
    """Answer "what are the top k, and how many of each?" once, for a total (ε, δ).

    Labels are private unless --known-domain or --domain says otherwise; of private labels fewer than k may come out.

    Of events (--user-col, --item-col) τ is enforced, private labels are found under a cap of Δ labels of one user, and
    what was found is counted without that cap. If Δ is not stated it is 100 (10 where τ is above 1), or a private look
    chooses one phase under a smaller cap. --count-capped, --method, --d-bar, --fit, --accuracy, --look SHARE and
    Laplace noise ask for one phase, in which Δ holds for the counts too. In a table of counts the caps must hold
    already: it does not tell users apart.
    """
    import numpy as np

    from dptopk.cli.input import Source, spooled
    from dptopk.cli.output import check_answer
    from dptopk.planning import plan_topk
    from dptopk.planning.probe import with_look
    from dptopk.session.session import Session, selections_charged_as

    if reuse and paying.ledger is None:
        raise InvalidParameter("--reuse needs --ledger")
    check_answer(output, [source, domain, *paying.files(paying.ledger)])
    if output.plot is not None and asked.counts == "none":
        raise InvalidParameter("--plot: there are no counts to draw with --counts none")
    if str(source) == "-" and reuse:
        raise InvalidParameter("--reuse: standard input is another source each time; name a file")
    listed = [] if segments is None else listed_names(segments=segments)
    by: dict[str, Any] = {"segment_by": segment_by, "segments": listed, "segments_per_user": segments_per_user}
    labels: dict[str, Any] = {"known_domain": asked.known_domain, "domain": domain, "count_capped": count_capped}
    given = Source(path=spooled(source), **vars(columns), **labels, **by)
    book, state = paying.account()
    total = replace(asked, delta=_delta(asked, state)).total
    caps = caps_of(per_label_cap, _labels(asked, columns), state)
    charge_as: Any = "auto" if state is None else selections_charged_as(state.account)
    planned = partial(plan_topk, **asked.planned, sensitivity=caps, domain=given.kind, charge_as=charge_as)
    share = isinstance(look, float)
    two = not share and _leaves_open(asked, state) and given.finds
    plans = _in_phases(planned, two=two, min_users=min_users, profile=look is not None)
    rng = None if seed is None else np.random.default_rng(validate.count(at_least=0, seed=seed))
    account: dict[str, Any] = {"ledger": book, "dataset": paying.dataset, "analyst": paying.analyst, "rng": rng}
    account |= {"version": data_version, "source": None if book is None else given.stated()}
    if given.segment_by is not None:
        if output.plot or reuse or share or asked.accuracy is not None or output.output_format not in BY_SEGMENT:
            raise InvalidParameter(
                "--segment-by takes table, csv or json, no --plot, --reuse, --accuracy or --look SHARE"
            )
        _by_segment(given, plans, total["budget"], asked, account, output)
        return
    with working("planning"):
        plan = plans(**total) if two else with_look(look, planned, **total)()
    _checked(plan, asked)
    histogram = given.read(plan)
    left: list[str] = []
    if book is None:
        plan, release = plan.run(histogram, rng)
    else:
        session = Session(histogram, **account)
        if not reuse and session.answered(plan):
            warn(["this question, or its look, was answered before and is paid again; --reuse gives that answer, free"])
        plan, release = session.run_plan(plan, reuse=reuse)
        left = session.remaining().lines()
    about = _about(str(source), plan.sensitivity, state, data_version)
    _written(plan, release, output, left, about, in_ledger=book is not None)


def _about(source: str, caps: Sensitivity, state: DatasetState | None, version: str | None) -> dict[str, str]:
    """The title block of an answer: what the data are, the date, who is protected, which state of the data."""
    path = Path(source)
    if state is not None:
        name, unit, version = state.name, state.unit, version or state.version
    else:
        name, unit = "standard input" if source == "-" else path.name, "user"
        version = (
            f"as written on {datetime.fromtimestamp(path.stat().st_mtime).astimezone().date()}"
            if path.is_file()
            else None
        )
    moved = f"one {unit}, who can affect {describe_l0(caps.l0)}, changing each count by at most {caps.linf}"
    about = {"Data set": name, "Date": datetime.now().astimezone().date().isoformat(), "Protected": moved}
    return about | ({} if version is None else {"Data version": version})


def _delta(asked: Asked, state: DatasetState | None) -> float | None:
    """The δ of the question: as given, not above the ledger's, else all for all of ε, a share of half for less.

    Half of the ledger's δ is for failures, where the first question does not take all of ε; in ρ half of any δ is.
    """
    if state is None:
        return asked.delta
    most, *rho = state.terms["budget"][1:] if "budget" in state.terms else [state.terms["delta"]]
    if asked.delta is not None:
        if asked.delta > most:
            raise InvalidParameter(f"--delta {asked.delta:g} is above the ledger's delta of {state.name!r}, {most:g}")
        return asked.delta
    if rho and asked.rho is not None:
        return float(format_lower(most * min(asked.rho / rho[0], 1.0)))
    share = (asked.epsilon or math.sqrt(2 * (asked.rho or math.inf))) / state.account.epsilon()  # ε costs ρ = ε²/2
    return float(most if share >= 1 else most * share / 2)


def caps_of(cap: int | None, labels: int | None, state: DatasetState | None) -> Sensitivity:
    """The caps as given, else the ledger's; others than the ledger's are refused."""
    from dptopk.histogram.histogram import Sensitivity

    if state is None:
        return Sensitivity(linf=1 if cap is None else cap, l0=labels)
    truth = state.sensitivity
    for option, given, known in (("--per-label-cap", cap, truth.linf), ("--labels-per-user", labels, truth.l0)):
        if given is not None and given != known:
            shown = "any number" if known is None else known
            raise InvalidParameter(f"{option} {given} contradicts the ledger, whose {state.name!r} has {shown}")
    return truth


def _leaves_open(asked: Asked, state: DatasetState | None) -> bool:
    """Whether no option, and no registration of the ledger's, asks for a design of one phase."""
    told = asked.fit or asked.accuracy is not None or asked.d_bar is not None or asked.method != "auto"
    registered = state is not None and "budget" not in state.terms
    return not told and asked.counts != "laplace" and not registered


def _labels(asked: Asked, columns: Columns) -> int | None:
    """The cap that was asked for; where each row is one person it is 1."""
    if columns.one_row_per_user and asked.labels_per_user not in (None, 1):
        raise InvalidParameter("--one-row-per-user: one person has one label; leave --labels-per-user out")
    return 1 if columns.one_row_per_user else asked.labels_per_user


def _in_phases(planned: partial[Plan], *, two: bool, min_users: int, profile: bool) -> Callable[..., Plan]:
    """The same question, in two phases where it may be; a stated cap is that under which labels are found."""
    from dptopk.planning import plan_two_phases

    if not two and min_users != 1:
        raise InvalidParameter("--min-users is for events answered in two phases; leave out what asks for one (--help)")
    if not two:
        return planned
    same: dict[str, Any] = {name: planned.keywords[name] for name in ("k", "counts", "users")}
    caps = planned.keywords["sensitivity"]
    same |= {"labels_per_user": caps.l0 or "auto", "per_label_cap": caps.linf}
    return partial(plan_two_phases, **same, min_users=min_users, profile=profile)


def _by_segment(
    given: Source, planned: Callable[..., Plan], budget: Budget, asked: Asked, account: dict[str, Any], output: Output
) -> None:
    """One answer for each segment; a user in at most s of them pays for s."""
    from dptopk.cli.segments import plan_each, total_bound, write_segments
    from dptopk.session.session import Session

    now = None if account["ledger"] is None else account["ledger"].state(account["dataset"])
    declared = None if now is None else now.segments
    if now is not None and declared:  # the data are read from here on: a version that comes meanwhile is not theirs
        account = account | {"version": account["version"] or now.version}
    if declared and declared["by"] == given.segment_by and given.segments_per_user is None:
        given = replace(given, segments_per_user=1)  # as their owner says
    n = len(given.segments)
    per_user = n if given.segments_per_user is None else min(given.segments_per_user, n)
    plan = plan_each(lambda part: planned(budget=part), budget, n, per_user)
    _checked(plan, asked)
    histograms = given.read_segments(plan)
    left: list[str] = []
    if account["ledger"] is None:
        answers = {name: plan.release(histogram, account["rng"]) for name, histogram in histograms.items()}
    else:
        session = Session(next(iter(histograms.values())), **account)
        answers = session.run_each(histograms, plan)
        left = session.remaining().lines()
    write_segments(plan, answers, total_bound(plan, n, per_user, budget.delta), per_user, output, left)


def _checked(plan: Plan, asked: Asked) -> None:
    """Refuse options that the plan has no use for, rather than forget them; say what is doubtful."""
    if asked.fit and len(plan.phases) == 1:
        raise InvalidParameter(
            "--fit: counts are fitted to the order of a selection, and this plan selects by the counts themselves; "
            "add --method peel, or leave --fit out"
        )
    warn(plan.warnings)


def _written(
    plan: Plan, release: Release, to: Output, left: list[str], about: dict[str, str], *, in_ledger: bool
) -> None:
    """Write the answer; it is paid for, so that a full disk must not lose it."""
    from dptopk.cli.output import write_plot, write_release

    try:
        write_release(plan, release, to, left=left, about=about)
        if to.plot is not None:
            write_plot(release, to.plot, to.confidence)
    except BrokenPipeError:
        raise
    except OSError as error:
        trouble = f"the answer could not be written ({error.strerror or error}), and it was charged"
        if in_ledger:
            raise fail(
                f"{trouble}. The ledger keeps it: the same command with --reuse gives it again, free", 1
            ) from None
        if to.out is not None or to.plot is not None:
            write_release(plan, release, Output(confidence=to.confidence), left=left)
            raise fail(f"{trouble}. Here it is", 1) from None
        raise fail(f"{trouble}. Without a ledger it is lost", 1) from None
