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
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import describe_l0
from dptopk.cli import ledger as ledger_commands
from dptopk.cli.options import Asked, Confidence, Delta, Domain, Format, Quiet, Seed, asking, listed_names, warn
from dptopk.cli.shell import fail, working
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import numpy as np

    from dptopk.cli.input import Source
    from dptopk.costs import Budget
    from dptopk.histogram.histogram import Histogram, Sensitivity
    from dptopk.ledger.dataset import DatasetState
    from dptopk.planning import Plan
    from dptopk.release.release import Release


EVENTS, SEGMENTS, LEDGER, OUTPUT = "Of events", "By segment", "With a ledger", "Output"
# How the answers of segments can be written.
BY_SEGMENT = ("table", "csv", "json")


@asking
def topk(
    source: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, Parquet, JSON lines or - (CSV): a row a label, or with --user-col a row an event."
        ),
    ],
    asked: Asked,
    delta: Delta = None,
    label_col: Annotated[str, typer.Option("--label-col", help="Column of labels.")] = "label",
    count_col: Annotated[str, typer.Option("--count-col", help="Column of counts.")] = "count",
    user_col: Annotated[
        str | None, typer.Option("--user-col", help="Of events: column of users; Δ and τ are enforced.")
    ] = None,
    item_col: Annotated[str | None, typer.Option("--item-col", help="Of events: column of labels.")] = None,
    output_format: Annotated[Format, typer.Option("--format", help="How the answer is written.")] = "table",
    sep: Annotated[str | None, typer.Option("--sep", help="Of a CSV file of counts: what separates cells.")] = None,
    encoding: Annotated[str, typer.Option("--encoding", help="Of a text file of counts, such as cp1252.")] = "utf-8",
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=VALUE", help="Only these rows; may be repeated.")
    ] = None,
    per_label_cap: Annotated[
        int | None,
        typer.Option(
            "--per-label-cap", metavar="τ", help="One user moves one count by at most τ (default: the ledger's, or 1)."
        ),
    ] = None,
    domain: Domain = None,
    look: Annotated[
        float | None,
        typer.Option("--look", metavar="SHARE", help="Plan by a private look at a few ranks, for this share of ε."),
    ] = None,
    seed: Seed = None,
    count_capped: Annotated[
        bool,
        typer.Option(
            "--count-capped",
            help="Count what the cap leaves, in one phase, instead of all data: lower than the true counts.",
            rich_help_panel=EVENTS,
        ),
    ] = False,
    one_row_per_user: Annotated[
        bool,
        typer.Option(
            "--one-row-per-user",
            help="Each row is one person, as in a survey: no --user-col.",
            rich_help_panel=EVENTS,
        ),
    ] = False,
    min_users: Annotated[
        int,
        typer.Option(
            "--min-users",
            help="Show no label that fewer users have, whatever the noise (in two phases).",
            rich_help_panel=EVENTS,
        ),
    ] = 1,
    memory_limit: Annotated[
        str | None, typer.Option("--memory-limit", help="Memory for the engine, such as 4GB.", rich_help_panel=EVENTS)
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(
            "--passes",
            help="Split the users into this many parts (default: one, more if need be).",
            rich_help_panel=EVENTS,
        ),
    ] = None,
    segment_by: Annotated[
        str | None, typer.Option("--segment-by", help="Column: an answer for each segment.", rich_help_panel=SEGMENTS)
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option("--segments", metavar="A,B,...", help="The public list of them.", rich_help_panel=SEGMENTS),
    ] = None,
    segments_per_user: Annotated[
        int | None,
        typer.Option(
            "--segments-per-user",
            help="One user is in at most this many segments (default: all); with 1, all cost as much as one.",
            rich_help_panel=SEGMENTS,
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            "--ledger",
            help="The ledger that pays: a SQLite file, or the URL of a PostgreSQL database.",
            rich_help_panel=LEDGER,
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="The ledger's dataset.", rich_help_panel=LEDGER)
    ] = None,
    analyst: Annotated[str | None, typer.Option("--analyst", help="Who asks.", rich_help_panel=LEDGER)] = None,
    key_file: ledger_commands.KeyFile = None,
    head_file: ledger_commands.HeadFile = None,
    data_version: Annotated[
        str | None, typer.Option("--data-version", help="The data's; it must be the ledger's.", rich_help_panel=LEDGER)
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Give the stored answer to the identical question again, free.", rich_help_panel=LEDGER
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write it to this file.", rich_help_panel=OUTPUT)] = None,
    confidence: Confidence = CONFIDENCE,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw it into this PNG or SVG file too.", rich_help_panel=OUTPUT)
    ] = None,
    quiet: Quiet = False,  # noqa: ARG001 - its callback heeds it
) -> None:
    """Answer "what are the top k, and how many of each?" once, for a total (ε, δ).

    Labels are private unless --known-domain or --domain says otherwise; of private labels fewer than k may come out.

    Of events (--user-col, --item-col) τ is enforced, private labels are found under a cap of Δ labels of one user (100
    where nothing is said), and what was found is counted without that cap; --count-capped, --method, --d-bar, --fit,
    --accuracy, --look and Laplace noise ask for one phase, in which Δ holds for the counts too. In a table of
    counts the caps must hold already: it does not tell users apart.
    """
    import numpy as np

    from dptopk.cli import output
    from dptopk.cli.input import Source, spooled
    from dptopk.planning import plan_topk
    from dptopk.session.session import Session, selections_charged_as

    if ledger is None and (reuse or dataset is not None or analyst is not None or key_file is not None):
        raise InvalidParameter("--dataset, --analyst, --key-file and --reuse need --ledger")
    if ledger is not None and (dataset is None or analyst is None):
        raise InvalidParameter("--ledger needs --dataset and --analyst: what is asked about, and who asks")
    validate.probability(allow_zero=False, confidence=confidence)
    output.check_answer(output_format, out, plot, [source, domain, ledger, key_file])
    if plot is not None and asked.counts == "none":
        raise InvalidParameter("--plot: there are no counts to draw with --counts none")
    if str(source) == "-" and reuse:
        raise InvalidParameter("--reuse: standard input is another source each time; name a file")
    _looks_alone(look, ledger, segment_by, asked.accuracy)
    given = Source(
        path=spooled(source),
        label=label_col,
        count=count_col,
        separator=sep,
        encoding=encoding,
        where=where or [],
        user=user_col,
        item=item_col,
        known_domain=asked.known_domain,
        domain=domain,
        memory_limit=memory_limit,
        passes=passes,
        segment_by=segment_by,
        segments=[] if segments is None else listed_names(segments=segments),
        segments_per_user=segments_per_user,
        count_capped=count_capped,
        one_row_per_user=one_row_per_user,
    )
    book = None if ledger is None else ledger_commands.open_ledger(ledger, key_file, head_file)
    state = None if book is None or dataset is None else book.state(dataset)
    total = asked.total(_delta(delta, asked.epsilon, state))
    planned = partial(
        plan_topk,
        **asked.planned,
        sensitivity=caps_of(per_label_cap, _labels(asked, one_row_per_user), state),
        domain=given.kind,
        charge_as="auto" if state is None else selections_charged_as(state.account),
    )
    open_ = look is None and _leaves_open(planned, fit=asked.fit, accuracy=asked.accuracy, state=state)
    plans = _in_phases(planned, two=open_ and given.finds, min_users=min_users)
    rng = None if seed is None else np.random.default_rng(validate.count(at_least=0, seed=seed))
    paying: dict[str, Any] = {
        "ledger": book,
        "dataset": dataset,
        "analyst": analyst,
        "version": data_version,
        "source": None if book is None else given.stated(),
    }
    if given.segment_by is not None:
        if plot is not None or reuse or asked.accuracy is not None or output_format not in BY_SEGMENT:
            raise InvalidParameter("--segment-by takes --format table, csv or json, and no --plot, --reuse, --accuracy")
        _by_segment(
            given, plans, total["budget"], fit=bool(asked.fit), paying=paying, rng=rng, form=output_format, out=out,
            confidence=confidence
        )  # fmt: skip
        return
    with working("planning"):
        plan = plans(**total)
    _reject_unused(plan, fit=bool(asked.fit))
    warn(plan.warnings)
    histogram = given.read(plan) if look is None else given.counted(plan.sensitivity)  # a look needs every row
    left: list[str] = []
    if ledger is None:
        plan, release = _looked(look, plan, planned, histogram, rng)
    else:
        session = Session(histogram, **paying, rng=rng)
        if not reuse and session.answered(plan):
            warn(["this very question was answered before, and is paid for again; --reuse gives that answer, free"])
        release = session.run(plan, reuse=reuse)
        left = session.remaining().lines()
    about = _about(str(source), plan.sensitivity, state, data_version)
    _written(plan, release, output_format, out, plot, left, ledger, confidence, about)


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


def _looks_alone(look: float | None, *others: Any) -> None:
    if look is not None and any(other is not None for other in others):
        raise InvalidParameter("--look takes no --ledger, --segment-by or --accuracy")


def _looked(
    share: float | None, plan: Plan, planned: partial[Plan], histogram: Histogram, rng: np.random.Generator | None
) -> tuple[Plan, Release]:
    """The answer; by a look for a share of ε and the plan by it for what is left, where one was asked for."""
    if share is None:
        return plan, plan.release(histogram, rng)
    from dptopk.planning.probe import Look, at_ranks

    look = Look(plan.k, plan.budget, share)
    seen = look.mechanism.release(at_ranks(histogram, look.k), rng)
    plan = look.plan(seen, histogram.sensitivity, planned, look.rest)
    return look.total(plan), look.on(plan.release(histogram, rng), seen.charge)


def _delta(delta: float | None, epsilon: float | None, state: DatasetState | None) -> float | None:
    """The δ of the question: as given, not above the ledger's, else all for all of epsilon, a share of half for less.

    Half of the ledger's δ is for failures, where the first question does not take all of epsilon.
    """
    if state is None:
        return delta
    terms = state.terms
    most = float(terms["budget"][1] if "budget" in terms else terms["delta"])
    if delta is not None and delta > most:
        raise InvalidParameter(f"--delta {delta:g} is above the ledger's delta of {state.name!r}, {most:g}")
    share = (epsilon or math.inf) / state.account.epsilon()
    return (most if share >= 1 else most * share / 2) if delta is None else delta


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


def _leaves_open(
    planned: partial[Any], *, fit: bool | None, accuracy: float | None, state: DatasetState | None
) -> bool:
    """Whether no option, and no registration of the ledger's, asks for a design of one phase."""
    asked = planned.keywords
    told = fit or accuracy is not None or asked["d_bar"] is not None or asked["method"] != "auto"
    registered = state is not None and "budget" not in state.terms
    return not told and asked["counts"] != "laplace" and not registered


def _labels(asked: Asked, one_row_per_user: bool) -> int | None:
    """The cap that was asked for; where each row is one person it is 1."""
    if one_row_per_user and asked.labels_per_user not in (None, 1):
        raise InvalidParameter("--one-row-per-user: one person has one label; leave --labels-per-user out")
    return 1 if one_row_per_user else asked.labels_per_user


def _in_phases(planned: partial[Plan], *, two: bool, min_users: int) -> Callable[..., Plan]:
    """The same question, in two phases where it may be; a stated cap is that under which labels are found."""
    from dptopk.planning import plan_two_phases

    if not two and min_users != 1:
        raise InvalidParameter("--min-users: of two phases, which private labels of events with --user-col have")
    if not two:
        return planned
    caps = planned.keywords["sensitivity"]
    return partial(
        plan_two_phases,
        planned.keywords["k"],
        labels_per_user=caps.l0 or "auto",
        per_label_cap=caps.linf,
        counts=planned.keywords["counts"],
        min_users=min_users,
        users=planned.keywords["users"],
    )


def _by_segment(
    given: Source,
    planned: Callable[..., Plan],
    budget: Budget,
    fit: bool,
    paying: dict[str, Any],
    rng: np.random.Generator | None,
    form: str,
    out: Path | None,
    confidence: float,
) -> None:
    """One answer for each segment; a user in at most s of them pays for s."""
    from dptopk.cli.segments import plan_each, total_bound, write_segments
    from dptopk.session.session import Session

    now = None if paying["ledger"] is None else paying["ledger"].state(str(paying["dataset"]))
    declared = None if now is None else now.segments
    if now is not None and declared:  # the data are read from here on: a version that comes meanwhile is not theirs
        paying = paying | {"version": paying["version"] or now.version}
    if declared and declared["by"] == given.segment_by and given.segments_per_user is None:
        given = replace(given, segments_per_user=1)  # as their owner says
    n = len(given.segments)
    per_user = n if given.segments_per_user is None else min(given.segments_per_user, n)
    plan = plan_each(lambda part: planned(budget=part), budget, n, per_user)
    _reject_unused(plan, fit=fit)
    warn(plan.warnings)
    histograms = given.read_segments(plan)
    left: list[str] = []
    if paying["ledger"] is None:
        answers = {name: plan.release(histogram, rng) for name, histogram in histograms.items()}
    else:
        session = Session(next(iter(histograms.values())), **paying, rng=rng)
        answers = session.run_each(histograms, plan)
        left = session.remaining().lines()
    bound = total_bound(plan, n, per_user, budget.delta)
    write_segments(plan, answers, bound, per_user, form, out, left, confidence)


def _reject_unused(plan: Plan, *, fit: bool) -> None:
    """Refuse options that the plan has no use for, rather than forget them."""
    if fit and len(plan.phases) == 1:
        raise InvalidParameter(
            "--fit: counts are fitted to the order of a selection, and this plan selects by the counts themselves; "
            "add --method peel, or leave --fit out"
        )


def _written(
    plan: Plan,
    release: Release,
    output_format: str,
    out: Path | None,
    plot: Path | None,
    left: list[str],
    ledger: str | None,
    confidence: float,
    about: dict[str, str],
) -> None:
    """Write the answer; it is paid for, so that a full disk must not lose it."""
    from dptopk.cli import output

    try:
        output.write_release(plan, release, output_format, out, left=left, confidence=confidence, about=about)
        if plot is not None:
            output.write_plot(release, plot, confidence)
    except BrokenPipeError:
        raise
    except OSError as error:
        trouble = f"the answer could not be written ({error.strerror or error}), and it was charged"
        if ledger is not None:
            raise fail(
                f"{trouble}. The ledger keeps it: the same command with --reuse gives it again, free", 1
            ) from None
        if out is not None or plot is not None:
            output.write_release(plan, release, "table", None, left=left, confidence=confidence)
            raise fail(f"{trouble}. Here it is", 1) from None
        raise fail(f"{trouble}. Without a ledger it is lost", 1) from None
