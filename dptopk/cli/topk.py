"""``dptopk topk``: one answer, from a file to a table, a picture or a page."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from dptopk._internal import validate
from dptopk._internal.formatting import describe_l0, format_lower
from dptopk.cli.answer_sheet import AnswerSheet, CommonFormat, common_formats, write_sheet
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
    names_in_list,
    with_delta,
)
from dptopk.cli.shell import fail, progress_bar, warn
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


def topk(
    source: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV, Parquet, JSON lines or - (CSV): a row a label, or with --user-col a "
            "row an event."
        ),
    ],
    stated_question: Question,
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
        typer.Option(
            help="Column of segments, such as region: one answer for each.",
            rich_help_panel=SEGMENTS,
        ),
    ] = None,
    segments: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="The public list of the segments that are answered.",
            rich_help_panel=SEGMENTS,
        ),
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
        typer.Option(
            help="Version of the data; refused unless it is the ledger's current one.",
            rich_help_panel=LEDGER,
        ),
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
    from dptopk.cli.input import Source, readable_copy
    from dptopk.cli.output import check_answer
    from dptopk.planning import plan
    from dptopk.planning.gauge import Kind

    if reuse and paying.ledger is None:
        raise InvalidParameter("--reuse needs --ledger")
    check_answer(output, [source, domain, *paying.files_to_spare(paying.ledger)])
    if output.plot is not None and stated_question.counts == "none":
        raise InvalidParameter("--plot: there are no counts to draw with --counts none")
    if str(source) == "-" and reuse:
        raise InvalidParameter("--reuse: standard input is another source each time; name a file")
    data = Source(
        path=readable_copy(source),
        **asdict(columns),
        known_domain=protected.known_domain,
        domain=domain,
        count_capped=count_capped,
        segment_by=segment_by,
        segments=[] if segments is None else names_in_list(segments=segments),
        segments_per_user=segments_per_user,
    )
    ledger, state = paying.account()
    caps = caps_of(per_label_cap, _stated_labels_per_user(protected, columns), state)
    question = with_delta(
        replace(stated_question, delta=_delta_of_question(stated_question, state))
    )
    facts = _public_facts(data, caps, state)
    asker = _make_asker(paying, ledger, data, data_version, seed)
    if data.segment_by is not None:
        _check_segments(question, output, reuse=reuse)
        _answer_segments(data, question, replace(facts, looks=False), asker, output)
        return
    with progress_bar("planning"):
        design = plan(question, facts)
    warn(design.warnings)
    kind = Kind(question, facts)
    design, release, budget_lines = _run_plan(data, design, kind, asker, reuse=reuse)
    about = _title_block(str(source), design.sensitivity, state, data_version)
    _write_answer(design, release, output, budget_lines, about, in_ledger=ledger is not None)
    warn(data.encoding_warnings(release.labels))


def _make_asker(
    paying: PayingLedger,
    ledger: Ledger | None,
    source: Source,
    version: str | None,
    seed: int | None,
) -> Asker:
    """Return the asker, with a fingerprint of the source that is taken before its data are read.

    Args:
        paying: the options that name the account.
        ledger: the open ledger; None: nothing pays.
        source: the source of the data.
        version: the stated version of the data.
        seed: the seed of the noise; None: cryptographically secure noise.
    """
    import numpy as np

    if seed is None:
        rng = None
    else:
        rng = np.random.default_rng(validate.count(at_least=0, seed=seed))
    fingerprint = None if ledger is None else source.state_fingerprint()
    return Asker(ledger, paying.dataset, paying.analyst, version, fingerprint, rng)


@dataclass(frozen=True)
class Asker:
    """The analyst who asks, the ledger account that pays (or no account), and the noise source.

    Attributes:
        ledger: the ledger that pays; None: nothing is charged.
        dataset, analyst: the account in that ledger.
        version: the version of the data as stated; None: the ledger's current version.
        source: a fingerprint of where the data come from, taken before they are read; the ledger
            stores it so that --reuse finds the answer again. None without a ledger.
        rng: a seeded generator; None: cryptographically secure noise.
    """

    ledger: Ledger | None
    dataset: str | None
    analyst: str | None
    version: str | None
    source: str | None
    rng: Generator | None

    def session(self, histogram: Histogram) -> Session:
        """Return a session on the histogram whose questions are charged to this asker's account."""
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


def _run_plan(
    source: Source, plan: TopKPlan, kind: Kind, asker: Asker, *, reuse: bool
) -> tuple[TopKPlan, Release, list[str]]:
    """Answer the plan and charge the ledger, if there is one.

    Args:
        source: the source of the data.
        plan: the plan of the question.
        kind: the question and the facts that it was planned for, which the ledger records.
        asker: who asks, and what pays.
        reuse: whether a stored answer to the same question is given again.

    Returns:
        the plan that ran (a private look may have replaced the one given), its answer, and
        lines for people on what is left of the ledger's budget (empty without a ledger).

    Raises:
        BudgetExceeded: nothing was charged.
        InvalidParameter: when the data do not fit the plan; nothing was charged.
    """
    histogram = source.read(plan)
    if asker.ledger is None:
        final_plan, release = plan.run(histogram, asker.rng)
        return final_plan, release, []
    session = asker.session(histogram)
    if not reuse and session.answered(plan):
        warn([PAID_AGAIN])
    final_plan, release = session.run_plan(plan, reuse=reuse, kind=kind)
    return final_plan, release, session.remaining().lines()


def _check_segments(question: Question, output: Output, *, reuse: bool) -> None:
    """Refuse the options that answers by segment do not support: other formats, --plot, --reuse,
    --accuracy and a stated share for --look.

    Args:
        question: the question.
        output: the options for format, file and plot.
        reuse: whether --reuse is given.

    Raises:
        InvalidParameter: naming what is supported.
    """
    look_is_stated = isinstance(question.look, float)
    accuracy_is_stated = question.accuracy is not None
    wrong_format = output.form not in get_args(CommonFormat)
    if output.plot or reuse or look_is_stated or accuracy_is_stated or wrong_format:
        raise InvalidParameter(
            f"--segment-by takes {common_formats()}, no --plot, --reuse, --accuracy or --look SHARE"
        )


def _title_block(
    source: str, caps: Sensitivity, state: DatasetState | None, version: str | None
) -> dict[str, str]:
    """Return the title block of an answer, as a mapping from heading to text.

    It says what the data are, the date, who is protected and, where it is known, the version of the
    data. With a ledger the name, unit and version are the ledger's; ``caps`` are those of the plan.

    Args:
        source: the path as it was typed; "-" for standard input.
        caps: the caps of the plan.
        state: the data set in the ledger; None without a ledger.
        version: the stated version of the data; None: the ledger's, or the date of the file.
    """
    if state is not None:
        name = state.name
        unit = state.unit
        version = version or state.version
    else:
        name = "standard input" if source == "-" else Path(source).name
        unit = "user"
        version = _file_date(Path(source))
    labels_moved = describe_l0(caps.l0)
    about = {
        "Data set": name,
        "Date": datetime.now().astimezone().date().isoformat(),
        "Protected": f"one {unit}, who can affect {labels_moved}, changing each count by at most "
        f"{caps.linf}",
    }
    if version is not None:
        about["Data version"] = version
    return about


def _file_date(path: Path) -> str | None:
    """Return the day on which a file was last written, such as "as written on 2026-11-01"; None if
    the path is no file.
    """
    if not path.is_file():
        return None
    written = datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    return f"as written on {written.date()}"


def _delta_of_question(stated: Question, state: DatasetState | None) -> float | None:
    """Return the δ of the question, or None if neither the options nor a ledger determine it.

    A stated δ is used as it is, and refused if it is above the ledger's. Otherwise the δ is a share
    of the ledger's (``_share_of_ledger_delta``).

    Args:
        stated: the question as the options state it.
        state: the data set in the ledger; None without a ledger.

    Raises:
        InvalidParameter: if the stated δ is above the ledger's.
    """
    if state is None:
        return stated.delta
    ledger_delta, _ = _delta_and_rho(state)
    if stated.delta is None:
        return _share_of_ledger_delta(stated, state)
    if stated.delta > ledger_delta:
        raise InvalidParameter(
            f"--delta {stated.delta:g} is above the ledger's delta of {state.name!r}, "
            f"{ledger_delta:g}"
        )
    return stated.delta


def _share_of_ledger_delta(stated: Question, state: DatasetState) -> float:
    """Return the δ of a question that states none: as large a share of the ledger's δ as the
    question takes of the ledger's ε or ρ.

    It is all of δ for a question that takes the whole ε. For one that takes only a part of ε, the
    ledger reserves half of its δ for failures of the filter, so the share is of the other half. In
    a budget in ρ half of every δ is for failures, so the share is of the whole δ.

    Args:
        stated: the question as the options state it.
        state: the data set in the ledger.
    """
    ledger_delta, ledger_rho = _delta_and_rho(state)
    if ledger_rho is not None and stated.rho is not None:
        share_of_rho = min(stated.rho / ledger_rho, 1.0)
        return float(format_lower(ledger_delta * share_of_rho))
    share_of_epsilon = _epsilon_of_question(stated) / state.account.epsilon()
    if share_of_epsilon >= 1:
        return float(ledger_delta)
    return float(ledger_delta * share_of_epsilon / 2)


def _epsilon_of_question(stated: Question) -> float:
    """Return the ε of the question, by which it takes its share of a ledger's δ.

    A total in ρ counts as the ε whose pure cost it is, ρ = ε²/2. The ε of a question that states an
    accuracy is not known yet: it counts as inf, and takes all of δ.
    """
    if stated.epsilon:
        return stated.epsilon
    if stated.rho:
        return math.sqrt(2 * stated.rho)
    return math.inf


def _delta_and_rho(state: DatasetState) -> tuple[float, float | None]:
    """Return the δ of a ledger's budget, and its ρ; ρ is None unless the budget is stated in ρ."""
    if "budget" not in state.terms:
        return state.terms["delta"], None
    budget = state.terms["budget"]  # [ε, δ], or [ε, δ, ρ] where it is stated in ρ
    delta = budget[1]
    if len(budget) == 2:
        return delta, None
    return delta, budget[2]


def caps_of(
    per_label_cap: int | None, labels_per_user: int | None, state: DatasetState | None
) -> Sensitivity:
    """Return the caps on one user's contribution: the ledger's where there is a ledger, else the
    stated ones.

    Args:
        per_label_cap: τ as stated, the most that one user adds to one label; None: 1, or the
            ledger's.
        labels_per_user: Δ as stated, the most labels of one user; None: unlimited, or the ledger's.
        state: the data set in the ledger; None without a ledger.

    Raises:
        InvalidParameter: if a stated cap differs from the ledger's.
    """
    from dptopk.histogram.histogram import Sensitivity

    if state is None:
        return Sensitivity(linf=1 if per_label_cap is None else per_label_cap, l0=labels_per_user)
    ledger_caps = state.sensitivity
    for option, value, ledger_value in (
        ("--per-label-cap", per_label_cap, ledger_caps.linf),
        ("--labels-per-user", labels_per_user, ledger_caps.l0),
    ):
        if value is not None and value != ledger_value:
            ledger_words = "any number" if ledger_value is None else ledger_value
            raise InvalidParameter(
                f"{option} {value} contradicts the ledger, whose {state.name!r} has {ledger_words}"
            )
    return ledger_caps


def _public_facts(source: Source, caps: Sensitivity, state: DatasetState | None) -> Facts:
    """Return the public facts that the plan may depend on: the caps, where labels come from, and
    what pays.

    Two phases are not offered to a ledger with registered costs: what was registered there are the
    costs of one phase.

    Args:
        source: the source of the data.
        caps: the caps on one user's contribution.
        state: the data set in the ledger; None without a ledger.
    """
    from dptopk.planning.facts import selections_charged_as
    from dptopk.question import Events, Facts

    registered = state is not None and "budget" not in state.terms
    events = Events(labels_per_user=caps.l0 or "auto", per_label_cap=caps.linf)
    return Facts(
        sensitivity=caps,
        domain=source.label_domain,
        events=events if source.finds_labels and not registered else None,
        charge_as="auto" if state is None else selections_charged_as(state.account),
    )


def _stated_labels_per_user(protected: Protected, columns: Columns) -> int | None:
    """Return the stated cap on labels per user, which is 1 where each row is one person; None if
    none is stated.

    Args:
        protected: the options that state the cap.
        columns: the options that say what a row is.

    Raises:
        InvalidParameter: if another cap is stated for data in which each row is one person.
    """
    if columns.one_row_per_user and protected.labels_per_user not in (None, 1):
        raise InvalidParameter(
            "--one-row-per-user: one person has one label; leave --labels-per-user out"
        )
    if columns.one_row_per_user:
        return 1
    return protected.labels_per_user


def _answer_segments(
    source: Source, question: Question, facts: Facts, asker: Asker, output: Output
) -> None:
    """Answer the question for each segment and write one sheet with all answers.

    If the sheet cannot be written, the answers are printed as tables: they were charged, and no
    ledger gives answers of segments again.

    Args:
        source: the source of the data, with its segments.
        question: what is asked of each segment. Its total is for all answers together: where a user
            may be in s segments, each answer costs about a share of 1/s.
        facts: the public facts about each.
        asker: who asks, and what pays.
        output: the options for format and file.

    Raises:
        BudgetExceeded: nothing was charged.
        InvalidParameter: when no plan meets the total, or the data do not fit it; nothing was
            charged.
        LedgerError: when the ledger refuses.
        typer.Exit: if the answers could not be written.
    """
    from dptopk.cli.segment_answers import SegmentsSheet
    from dptopk.planning.per_segment import bound_together, plans_within_total

    source, asker = _with_declared_segments(source, asker)
    per_user = source.most_segments_per_user
    plans = plans_within_total(question, facts, source.segments, per_user)
    warn(plans.each.warnings)
    histograms = source.read_segments(plans.each)
    budget_lines: list[str] = []
    if asker.ledger is None:
        plans.check(histograms)
        # Nothing takes back what an answer does not use, so it is spent on better counts.
        answers = plans.draw(histograms, asker.rng, average=True)
    else:
        # A session is about one histogram; the first one has the public facts of all.
        first = next(iter(histograms.values()))
        session = asker.session(first)
        answers = session.run_each(histograms, plans.each)
        budget_lines = session.remaining().lines()
    bound = bound_together(plans, question.budget.delta)
    sheet = SegmentsSheet(plans, answers, bound, output.confidence, budget_lines)
    try:
        write_sheet(sheet, output.form, output.out)
    except BrokenPipeError:
        raise
    except OSError as error:
        failure = f"the answers could not be written ({error.strerror or error}), and were charged"
        raise _printed_instead(sheet, output, failure, "They are lost") from None


def _with_declared_segments(source: Source, asker: Asker) -> tuple[Source, Asker]:
    """Return the source and the asker, completed by what the ledger has declared about segments.

    If the ledger says that its users are in at most one of these segments, that cap is used unless
    another one is stated. The version of the data is fixed to the ledger's current one, so that a
    version which is set while the data are being read is refused rather than charged.

    Args:
        source: the source of the data, with its segments.
        asker: who asks, and what pays.
    """
    if asker.ledger is None:
        return source, asker
    state = asker.ledger.state(str(asker.dataset))  # a name: --ledger needs --dataset
    if not state.segments:
        return source, asker
    asker = replace(asker, version=asker.version or state.version)
    if state.segments["by"] == source.segment_by and source.segments_per_user is None:
        source = replace(source, segments_per_user=1)  # declared segments are disjoint
    return source, asker


def _write_answer(
    plan: TopKPlan,
    release: Release,
    output: Output,
    budget_lines: list[str],
    about: dict[str, str],
    *,
    in_ledger: bool,
) -> None:
    """Write the answer of a plan to its file or to standard output, and draw the plot.

    The answer was charged already, so it must not be lost: if writing fails, the error says how to
    get it again, or the answer is printed as a table.

    Args:
        plan: the plan that ran.
        release: the answer.
        output: the options for format, file and plot.
        budget_lines: lines on what is left of the budget.
        about: the title block.
        in_ledger: whether a ledger stores the answer.

    Raises:
        typer.Exit: if the answer could not be written.
    """
    from dptopk.cli.output import TopKSheet, write_plot

    sheet = TopKSheet.of(plan, release, output.confidence, budget_lines, about)
    try:
        write_sheet(sheet, output.form, output.out)
        if output.plot is not None:
            write_plot(release, output.plot, output.confidence)
    except BrokenPipeError:
        raise
    except OSError as error:
        failure = f"the answer could not be written ({error.strerror or error}), and it was charged"
        if in_ledger:
            raise fail(
                f"{failure}. The ledger keeps it: the same command with --reuse gives it again, "
                f"free",
                1,
            ) from None
        raise _printed_instead(sheet, output, failure, "Without a ledger it is lost") from None


def _printed_instead(sheet: AnswerSheet, output: Output, failure: str, lost: str) -> typer.Exit:
    """Print as a table an answer that was charged, and that is kept nowhere; return the exit of the
    program, after its message.

    Args:
        sheet: the answer.
        output: the options for format, file and plot: one of these could not be written.
        failure: what happened, in words.
        lost: the sentence that says that the answer is lost, for where it cannot be printed either.
    """
    if output.out is None and output.plot is None:  # standard output is what failed
        return fail(f"{failure}. {lost}", 1)
    try:
        write_sheet(sheet, "table", None)
    except OSError:
        return fail(f"{failure}. {lost}", 1)
    return fail(f"{failure}. Standard output shows all of it", 1)
