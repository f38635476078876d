"""``dptopk stream``: a top k every day: create, answer, show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dptopk._internal import validate
from dptopk._internal.formatting import describe_l0, format_upper, visible
from dptopk.cli.answer_sheet import AnswerSheet, CommonFormat, write_sheet
from dptopk.cli.options import AnswerFile, Chain, Columns, Domain, K, PayingLedger, PerUser
from dptopk.cli.shell import Subgroup
from dptopk.cli.target import check_target
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dptopk.histogram.histogram import Histogram
    from dptopk.mechanisms.continual import ContinualTopK
    from dptopk.release.release import Release
    from dptopk.session.stream_session import StreamSession

app = typer.Typer(
    cls=Subgroup,
    no_args_is_help=True,
    help="A top k of all days so far, every day: charged once, in full, before the first answer.",
)

File = Annotated[
    Path, typer.Argument(help="The stream's file. It holds counts: keep it with the data.")
]
Ledger = Annotated[str, typer.Option(help="The ledger that paid.")]


@app.command()
def create(
    stream: File,
    k: K,
    paying: PayingLedger,
    days: Annotated[int, typer.Option(help="How many days: fixed now, at most 4000.")],
    epsilon: Annotated[float, typer.Option(help="Total ε of all days together.")],
    delta: Annotated[float, typer.Option(help="Total δ of all days together, above 0.")],
    labels_per_user: PerUser = None,
    per_label_cap: Annotated[
        int | None,
        typer.Option(
            metavar="τ",
            help="One user moves one count of a day by at most τ (default: the ledger's, or 1).",
        ),
    ] = None,
    days_per_user: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Protect a user who adds something on at most N days; with N as large as --days, "
            "every user.",
        ),
    ] = 1,
    days_apart: Annotated[
        int, typer.Option(metavar="N", help="Any two of those days are at least N days apart.")
    ] = 1,
    domain: Domain = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The privacy unit that the ledger names for the dataset; to be stated where not "
            "all days of a user are protected."
        ),
    ] = None,
    first_day: Annotated[
        str | None, typer.Option(metavar="DATE", help="The date of day 1, as 2026-11-01.")
    ] = None,
    time_zone: Annotated[
        str,
        typer.Option(
            help="The time zone whose midnight parts two days, such as Europe/Berlin; recorded."
        ),
    ] = "UTC",
    late: Annotated[
        Literal["arrival", "left-out"],
        typer.Option(
            help="Events of a day that was answered before they came: counted on arrival, or left "
            "out."
        ),
    ] = "arrival",
) -> None:
    """Say what all days cost and deliver; with a ledger spend it, and make the stream's file.

    It may be run again after a failure: a stream of the same name and terms is charged once.
    """
    from dptopk.cli.topk import caps_of
    from dptopk.costs import Budget
    from dptopk.datasets import read_labels
    from dptopk.histogram.histogram import Histogram
    from dptopk.planning import plan_continual
    from dptopk.session.session import Session
    from dptopk.session.stream_session import Calendar

    calendar = Calendar(first_day=first_day, time_zone=time_zone, late=_late_events(late))
    open_ledger, state = paying.account()
    public_labels: list[str] | Literal["private"] = (
        "private" if domain is None else read_labels(domain)
    )
    shape = Histogram(
        {}, sensitivity=caps_of(per_label_cap, labels_per_user, state), domain=public_labels
    )
    if shape.sensitivity.l0 is None and domain is None:
        raise InvalidParameter(
            "--labels-per-user must be given where the labels are private (no --domain)"
        )
    mechanism = plan_continual(
        k,
        days,
        Budget(epsilon, delta),
        sensitivity=shape.sensitivity,
        labels=None if domain is None else len(public_labels),
        days_per_user=days_per_user,
        days_apart=days_apart,
    )
    lines = _stream_facts(mechanism, shape, delta)
    if open_ledger is not None:
        session = Session(
            shape, ledger=open_ledger, dataset=paying.dataset, analyst=paying.analyst, unit=unit
        )
        session.stream(stream.stem, mechanism, path=stream, calendar=calendar)
        lines += [*session.remaining().lines(), f"Day 1 is {calendar.name(1)}."]
    for line in lines:
        typer.echo(visible(line))


@app.command()
def answer(
    stream: File,
    ledger: Ledger,
    chain: Chain,
    columns: Columns,
    to: AnswerFile,
    day: Annotated[str, typer.Option(help="The day: its number from 1, or its date.")],
    source: Annotated[
        Path | None,
        typer.Argument(help="The counts or events of that day alone, as for dptopk topk."),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(
            help="Of a store: the version that holds the day's events (default: its date)."
        ),
    ] = None,
    output_format: Annotated[
        CommonFormat, typer.Option("--format", help="How the answer is written.")
    ] = "table",
) -> None:
    """Give the top k of all days up to this one. Nothing more is charged.

    A day that was answered before gives the same answer again, even if the data have changed;
    without SOURCE that is all that is given. Days are answered in order; one without data is
    answered with a table without rows. The same file is refused for two days.
    """
    from dptopk.session.stream_session import StreamSession

    validate.probability(allow_zero=False, confidence=to.confidence)
    check_target(to.out, inputs=[stream, source, *chain.files_to_spare(ledger)])
    with chain.open_ledger(ledger) as open_ledger:
        stream_session = StreamSession.open(open_ledger, stream)
        number = stream_session.calendar.number(day)
        release = stream_session.stored(number)
        if release is None:
            if source is None:
                raise InvalidParameter(
                    f"--day: day {day} was not answered yet; give the file with its data"
                )
            release = _answer_of_day(stream_session, number, source, partition, columns)
    about = {
        "stream": stream_session.name,
        "day": number,
        "date": stream_session.calendar.name(number),
    }
    write_sheet(DaySheet(about, release, to.confidence), output_format, to.out)


@app.command()
def show(stream: File, ledger: Ledger, chain: Chain) -> None:
    """Show what a stream promises, what it cost, and the first labels of its answers. Nothing is
    charged.
    """
    from dptopk.histogram.histogram import Histogram
    from dptopk.session.stream_session import StreamSession

    with chain.open_ledger(ledger) as open_ledger:
        stream_session = StreamSession.open(open_ledger, stream)
        shape = Histogram(
            {},
            sensitivity=stream_session.sensitivity,
            domain=stream_session.public_labels() or "private",
        )
        lines = _stream_facts(stream_session.mechanism, shape)
        days = stream_session.answered()
        for day, name in days.items():
            release = stream_session.stored(day)
            first_labels = [] if release is None else release.labels[:5]
            labels = ", ".join(map(str, first_labels))
            lines.append(
                f"day {day} ({stream_session.calendar.name(day)}), data {name!r}: {labels}"
            )
    for line in (*lines, f"{len(days)} of {stream_session.mechanism.days} days are answered."):
        typer.echo(visible(line))


def _late_events(late: Literal["arrival", "left-out"]) -> str:
    """Return the words by which a calendar records what becomes of late events.

    Args:
        late: the word of --late.
    """
    from dptopk.session.stream_session import LATE

    counted_on_arrival, left_out = LATE
    if late == "left-out":
        return left_out
    return counted_on_arrival


def _answer_of_day(
    stream_session: StreamSession,
    number: int,
    source: Path,
    partition: str | None,
    columns: Columns,
) -> Release:
    """Return the answer of a day, from the events of a store or the histogram of a file.

    Public labels are those of the stream, whatever type the labels of the file have.

    Args:
        stream_session: the open stream.
        number: the day's number, from 1.
        source: a store of events, or a file as for ``dptopk topk``.
        partition: the name of the day's data; None: of a store the day's date, of a file its name
            and state.
        columns: the options that say what the file's columns mean.

    Raises:
        InvalidParameter: for data that cannot be read or do not fit the stream, a day that is not
            the next one, and data that another day has had.
    """
    from dptopk.cli.input import Source, readable_copy
    from dptopk.datasets import EventsStore
    from dptopk.histogram.histogram import Histogram

    if source.suffix.lower() == ".store":
        with EventsStore(source) as store:
            return stream_session.answer(number, store, partition=partition)
    public_labels = stream_session.public_labels()
    day_source = Source(path=readable_copy(source), **asdict(columns), domain=public_labels)
    histogram = day_source.capped_histogram(stream_session.sensitivity)
    if public_labels is not None:
        histogram = Histogram(
            public_labels, histogram.counts, sensitivity=stream_session.sensitivity, domain="public"
        )
    name_and_state = f"{source.name} {day_source.state_fingerprint()[:16]}"
    return stream_session.answer(number, histogram, partition=partition or name_and_state)


def _stream_facts(
    mechanism: ContinualTopK, shape: Histogram, delta: float | None = None
) -> list[str]:
    """Return lines for people on what a stream promises and how exact it is.

    Args:
        mechanism: the stream's mechanism.
        shape: an empty histogram with the caps of one day and the domain of the labels.
        delta: the δ at which the ε of all days together is stated; None: it is left out.
    """
    from dptopk.accounting.bounds import compose

    caps = shape.sensitivity
    labels = shape.domain_size if shape.domain == "public" else None
    charge = mechanism.charge(caps, labels=labels)
    noise_std = mechanism.noise_std(caps)
    total = []
    if delta is not None:
        epsilon = format_upper(compose(charge, delta=delta).epsilon, 4)
        total.append(f"All days together: ({epsilon}, {format_upper(delta)})-DP at most.")
    lines = [
        f"Top {mechanism.k} of all days so far, on each of {mechanism.days} days.",
        (
            f"Protected: what one user adds {_protected_days(mechanism)}, "
            f"{describe_l0(caps.l0)} a day, each by at most {caps.linf}."
        ),
        *total,
        f"Charged at once: {charge}",
        f"Standard deviation of a total: at most {noise_std:.4g} on the worst day.",
    ]
    if shape.domain == "private":
        first = mechanism.threshold(caps, 1)
        last = mechanism.threshold(caps, mechanism.days)
        lines.append(
            f"A label is shown while its total is above a threshold: {first} on day 1, {last} "
            f"on the last."
        )
    return lines


def _protected_days(mechanism: ContinualTopK) -> str:
    """Return the days on which what one user adds is protected, such as "on at most 3 days"."""
    if mechanism.days_per_user is None:
        days = mechanism.days
    else:
        days = mechanism.days_per_user
    if days == 1:
        return "on one day"
    if days >= mechanism.days:
        days_in_words = "on all days"
    else:
        days_in_words = f"on at most {days} days"
    if mechanism.days_apart > 1:
        days_in_words += f" that are at least {mechanism.days_apart} apart"
    return days_in_words


@dataclass(frozen=True)
class DaySheet(AnswerSheet):
    """The answer of one day of a stream, as it is written in each format.

    Attributes:
        about: the stream's name, the number of the day and its date.
        release: the answer.
        confidence: the confidence of the error bars, in (0, 1).
    """

    about: Mapping[str, object]
    release: Release
    confidence: float

    def cells(self) -> pd.DataFrame:
        """Return the rows for a spreadsheet; labels that look like formulas are marked as text."""
        from dptopk.cli.output import spreadsheet_rows

        return spreadsheet_rows(self.release.display_table(confidence=self.confidence))

    def as_dict(self) -> dict[str, object]:
        """Return a JSON-safe dictionary of the day and the rows with their intervals."""
        from dptopk.cli.output import with_intervals

        return dict(self.about) | with_intervals(self.release, self.confidence)

    def remarks(self) -> list[str]:
        """Return the charge and what a reader of the rows must know, as lines."""
        return self.release.remarks()

    def print_to(self, console: Console) -> None:
        """Print the rows and the remarks of the answer."""
        from dptopk.cli.output import rows_table

        console.print(rows_table(self.release.display_table(confidence=self.confidence), console))
        for line in self.remarks():
            console.print(visible(line), markup=False)
