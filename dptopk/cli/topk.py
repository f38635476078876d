"""``dptopk topk``: one answer, from a file to a table, a picture or a page."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptopk._internal import validate
from dptopk._internal.formatting import describe_l0, format_lower
from dptopk.cli.options import (
    EVENTS,
    LEDGER,
    Columns,
    Domain,
    Output,
    PayingLedger,
    Protected,
    Quiet,
    Seed,
    listed_names,
    with_delta,
)
from dptopk.cli.shell import fail, warn, working
from dptopk.errors import InvalidParameter
from dptopk.question import Question

if TYPE_CHECKING:
    from numpy.random import Generator

    from dptopk.cli.input import Source
    from dptopk.histogram.histogram import Histogram, Sensitivity
    from dptopk.ledger.dataset import DatasetState
    from dptopk.ledger.ledger import Ledger
    from dptopk.planning import TopKPlan
    from dptopk.planning.gauge import Kind
    from dptopk.question import Facts
    from dptopk.release.release import Release
    from dptopk.session.session import Session


SEGMENTS = "By segment"
# How the answers of segments can be written.
BY_SEGMENT = ("table", "csv", "json")


def topk(
    source: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, Parquet, JSON lines or - (CSV): a row a label, or with --user-col a "
            "row an event."
        ),
    ],
    question_stated: Question,
    protected: Protected,
    columns: Columns,
    output: Output,
    paying: PayingLedger,
    per_label_cap: Annotated[
        int | None,
        typer.Option(
            metavar="τ", help="One user moves one count by at most τ (default: the ledger's, or 1)."
        ),
    ] = None,
    domain: Domain = None,
    seed: Seed = None,
    count_capped: Annotated[
        bool,
        typer.Option(
            "--count-capped",
            help="Count what the cap leaves, in one phase, instead of all data: lower than the "
            "true counts.",
            rich_help_panel=EVENTS,
        ),
    ] = False,
    segment_by: Annotated[
        str | None,
        typer.Option(help="Column: an answer for each segment.", rich_help_panel=SEGMENTS),
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="The public list of them.", rich_help_panel=SEGMENTS),
    ] = None,
    segments_per_user: Annotated[
        int | None,
        typer.Option(
            help="One user is in at most this many segments (default: all); with 1, all cost as "
            "much as one.",
            rich_help_panel=SEGMENTS,
        ),
    ] = None,
    data_version: Annotated[
        str | None,
        typer.Option(help="The data's; it must be the ledger's.", rich_help_panel=LEDGER),
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="Give the stored answer to the identical question again, free.",
            rich_help_panel=LEDGER,
        ),
    ] = False,
    quiet: Quiet = False,  # noqa: ARG001
) -> None:
    """Answer "what are the top k, and how many of each?" once, for a total (ε, δ).

    Labels are private unless --known-domain or --domain says otherwise; of private labels fewer
    than k may come out.

    Of events (--user-col, --item-col) τ is enforced, private labels are found under a cap of Δ
    labels of one user, and what was found is counted without that cap. If Δ is not stated it is 100
    (10 where τ is above 1), or a private look chooses one phase under a smaller cap.
    --count-capped, --method, --d-bar, --fit, --accuracy, --look SHARE and Laplace noise ask for one
    phase, in which Δ holds for the counts too. In a table of counts the caps must hold already: it
    does not tell users apart.
    """
    from dptopk.cli.input import Source, spooled
    from dptopk.cli.output import check_answer
    from dptopk.planning import plan
    from dptopk.planning.gauge import Kind

    if reuse and paying.ledger is None:
        raise InvalidParameter("--reuse needs --ledger")
    check_answer(output, [source, domain, *paying.files(paying.ledger)])
    if output.plot is not None and question_stated.counts == "none":
        raise InvalidParameter("--plot: there are no counts to draw with --counts none")
    if str(source) == "-" and reuse:
        raise InvalidParameter("--reuse: standard input is another source each time; name a file")
    source_stated = Source(
        path=spooled(source),
        **asdict(columns),
        known_domain=protected.known_domain,
        domain=domain,
        count_capped=count_capped,
        segment_by=segment_by,
        segments=[] if segments is None else listed_names(segments=segments),
        segments_per_user=segments_per_user,
    )
    book, state = paying.account()
    caps = caps_of(per_label_cap, _labels(protected, columns), state)
    question = with_delta(replace(question_stated, delta=_delta(question_stated, state)))
    facts = _facts(source_stated, caps, state)
    asker = _asker(paying, book, source_stated, data_version, seed)
    if source_stated.segment_by is not None:
        _check_segments(question, output, reuse=reuse)
        _by_segment(source_stated, question, replace(facts, looks=False), asker, output)
        return
    with working("planning"):
        design = plan(question, facts)
    warn(design.warnings)
    kind = Kind(question, facts)
    design, release, left = _answer(source_stated, design, kind, asker, reuse=reuse)
    about = _about(str(source), design.sensitivity, state, data_version)
    _written(design, release, output, left, about, in_ledger=book is not None)
    warn(source_stated.unreadable(release.labels))


def _asker(
    paying: PayingLedger, book: Ledger | None, events: Source, version: str | None, seed: int | None
) -> Asker:
    """Who asks, with where the data come from as it is before they are read."""
    import numpy as np

    if seed is None:
        rng = None
    else:
        rng = np.random.default_rng(validate.count(at_least=0, seed=seed))
    source = None if book is None else events.stated()
    return Asker(book, paying.dataset, paying.analyst, version, source, rng)


@dataclass(frozen=True)
class Asker:
    """Who asks, and what pays: an account of a ledger, or nothing.

    Attributes:
        ledger: that pays; None: nobody charges.
        dataset, analyst: of the ledger.
        version: of the data; None: the ledger's.
        source: where the data come from, as it was before they were read.
        rng: None for secure noise.
    """

    ledger: Ledger | None
    dataset: str | None
    analyst: str | None
    version: str | None
    source: str | None
    rng: Generator | None

    def session(self, histogram: Histogram) -> Session:
        """A session on the histogram that the ledger pays for."""
        from dptopk.session.session import Session

        return Session(
            histogram,
            ledger=self.ledger,
            dataset=self.dataset,
            analyst=self.analyst,
            version=self.version,
            source=self.source,
            rng=self.rng,
        )


PAID_AGAIN = (
    "this question, or its look, was answered before and is paid again; --reuse gives that "
    "answer, free"
)


def _answer(
    source: Source, plan: TopKPlan, kind: Kind, asker: Asker, *, reuse: bool
) -> tuple[TopKPlan, Release, list[str]]:
    """The plan that ran, its answer, and what is left of a ledger's budget, in lines."""
    histogram = source.read(plan)
    if asker.ledger is None:
        ran, release = plan.run(histogram, asker.rng)
        return ran, release, []
    session = asker.session(histogram)
    if not reuse and session.answered(plan):
        warn([PAID_AGAIN])
    ran, release = session.run_plan(plan, reuse=reuse, kind=kind)
    return ran, release, session.remaining().lines()


def _check_segments(question: Question, output: Output, *, reuse: bool) -> None:
    """Refuse what answers by segment do not have."""
    looked = isinstance(question.look, float)
    sized = question.accuracy is not None
    form = output.form not in BY_SEGMENT
    if output.plot or reuse or looked or sized or form:
        raise InvalidParameter(
            "--segment-by takes table, csv or json, no --plot, --reuse, --accuracy or --look SHARE"
        )


def _about(
    source: str, caps: Sensitivity, state: DatasetState | None, version: str | None
) -> dict[str, str]:
    """The title block of an answer: what the data are, the date, who is protected, which state of
    the data.
    """
    if state is not None:
        name = state.name
        unit = state.unit
        version = version or state.version
    else:
        name = "standard input" if source == "-" else Path(source).name
        unit = "user"
        version = _written_on(Path(source))
    moved = describe_l0(caps.l0)
    about = {
        "Data set": name,
        "Date": datetime.now().astimezone().date().isoformat(),
        "Protected": f"one {unit}, who can affect {moved}, changing each count by at most "
        f"{caps.linf}",
    }
    if version is not None:
        about["Data version"] = version
    return about


def _written_on(path: Path) -> str | None:
    """The day on which a file was written, in words."""
    if not path.is_file():
        return None
    written = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    return f"as written on {written.date()}"


def _delta(stated: Question, state: DatasetState | None) -> float | None:
    """The δ of the question: as given, not above the ledger's, else all for all of ε, a share of
    half for less.

    Half of the ledger's δ is for failures, where the first question does not take all of ε; in ρ
    half of any δ is.
    """
    if state is None:
        return stated.delta
    most, rho = _delta_and_rho(state)
    if stated.delta is not None:
        if stated.delta > most:
            raise InvalidParameter(
                f"--delta {stated.delta:g} is above the ledger's delta of {state.name!r}, {most:g}"
            )
        return stated.delta
    if rho is not None and stated.rho is not None:
        part = min(stated.rho / rho, 1.0)
        return float(format_lower(most * part))
    epsilon = stated.epsilon or math.sqrt(2 * (stated.rho or math.inf))  # ε costs ρ = ε²/2
    share = epsilon / state.account.epsilon()
    if share >= 1:
        return float(most)
    return float(most * share / 2)


def _delta_and_rho(state: DatasetState) -> tuple[float, float | None]:
    """The δ of a ledger's budget, and its ρ where it has one."""
    if "budget" not in state.terms:
        return state.terms["delta"], None
    _, delta, *rho = state.terms["budget"]
    return delta, (rho[0] if rho else None)


def caps_of(cap: int | None, labels: int | None, state: DatasetState | None) -> Sensitivity:
    """The caps as given, else the ledger's; others than the ledger's are refused."""
    from dptopk.histogram.histogram import Sensitivity

    if state is None:
        return Sensitivity(linf=1 if cap is None else cap, l0=labels)
    truth = state.sensitivity
    for option, value, known in (
        ("--per-label-cap", cap, truth.linf),
        ("--labels-per-user", labels, truth.l0),
    ):
        if value is not None and value != known:
            shown = "any number" if known is None else known
            raise InvalidParameter(
                f"{option} {value} contradicts the ledger, whose {state.name!r} has {shown}"
            )
    return truth


def _facts(source: Source, caps: Sensitivity, state: DatasetState | None) -> Facts:
    """Return what the plan may depend on: the caps, where labels come from, and what pays.

    Registered costs are those of one phase.
    """
    from dptopk.question import Events, Facts
    from dptopk.session.session import selections_charged_as

    registered = state is not None and "budget" not in state.terms
    events = Events(labels_per_user=caps.l0 or "auto", per_label_cap=caps.linf)
    return Facts(
        sensitivity=caps,
        domain=source.kind,
        events=events if source.finds and not registered else None,
        charge_as="auto" if state is None else selections_charged_as(state.account),
    )


def _labels(events: Protected, columns: Columns) -> int | None:
    """The cap that was asked for; where each row is one person it is 1."""
    if columns.one_row_per_user and events.labels_per_user not in (None, 1):
        raise InvalidParameter(
            "--one-row-per-user: one person has one label; leave --labels-per-user out"
        )
    if columns.one_row_per_user:
        return 1
    return events.labels_per_user


def _by_segment(
    source: Source, question: Question, facts: Facts, asker: Asker, output: Output
) -> None:
    """One answer for each segment; a user in at most s of them pays for s."""
    from dptopk.cli.answer_sheet import write_sheet
    from dptopk.cli.segment_answers import SegmentsSheet
    from dptopk.planning.per_segment import bound_of, within

    source, asker = _declared(source, asker)
    n = len(source.segments)
    if source.segments_per_user is None:
        per_user = n
    else:
        per_user = min(source.segments_per_user, n)
    plans = within(question, facts, source.segments, per_user)
    warn(plans.each.warnings)
    histograms = source.read_segments(plans.each)
    left: list[str] = []
    if asker.ledger is None:
        plans.check(histograms)
        answers = plans.draw(histograms, asker.rng, average=True)
    else:
        first = next(iter(histograms.values()))
        session = asker.session(first)
        answers = session.run_each(histograms, plans.each)
        left = session.remaining().lines()
    bound = bound_of(plans, question.budget.delta)
    sheet = SegmentsSheet(plans, answers, bound, output.confidence, left)
    write_sheet(sheet, output.form, output.out)


def _declared(source: Source, asker: Asker) -> tuple[Source, Asker]:
    """The segments as a ledger has declared them, in its version of the data.

    The data are read from here on: a version that comes meanwhile is not theirs.
    """
    if asker.ledger is None:
        return source, asker
    state = asker.ledger.state(str(asker.dataset))
    if not state.segments:
        return source, asker
    asker = replace(asker, version=asker.version or state.version)
    if state.segments["by"] == source.segment_by and source.segments_per_user is None:
        source = replace(source, segments_per_user=1)  # as their owner says
    return source, asker


def _written(
    plan: TopKPlan,
    release: Release,
    to: Output,
    left: list[str],
    about: dict[str, str],
    *,
    in_ledger: bool,
) -> None:
    """Write the answer; it is paid for, so that a full disk must not lose it."""
    from dptopk.cli.answer_sheet import write_sheet
    from dptopk.cli.output import TopKSheet, write_plot

    sheet = TopKSheet.of(plan, release, to.confidence, left, about)
    try:
        write_sheet(sheet, to.form, to.out)
        if to.plot is not None:
            write_plot(release, to.plot, to.confidence)
    except BrokenPipeError:
        raise
    except OSError as error:
        trouble = f"the answer could not be written ({error.strerror or error}), and it was charged"
        if in_ledger:
            raise fail(
                f"{trouble}. The ledger keeps it: the same command with --reuse gives it again, "
                f"free",
                1,
            ) from None
        if to.out is not None or to.plot is not None:
            write_sheet(sheet, "table", None)
            raise fail(f"{trouble}. Here it is", 1) from None
        raise fail(f"{trouble}. Without a ledger it is lost", 1) from None
