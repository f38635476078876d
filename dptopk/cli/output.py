"""How the command line prints an answer: its rows with error bars, its charge and its guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import (
    answer_rows,
    bar,
    describe_l0,
    format_upper,
    markdown,
    markdown_table,
    rounded_up,
    spreadsheet_cell,
    visible,
)
from dptopk.cli.answer_sheet import ENDINGS, AnswerSheet
from dptopk.cli.page import answer_page, cost_sentence, notes, technical_notes
from dptopk.cli.shell import QUIET
from dptopk.cli.target import check_target, replacement_file
from dptopk.errors import InvalidParameter
from dptopk.release.release import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

    from dptopk.cli.options import Output
    from dptopk.planning import TopKPlan
    from dptopk.release.release import Release


def check_answer(to: Output, inputs: list[Path | str | None]) -> None:
    """Refuse an answer that could not be written, before any budget is spent.

    Args:
        to: the options for format, file and plot.
        inputs: the files that are read or must survive; an answer over one of them is refused.

    Raises:
        InvalidParameter: naming the option.
        ImportError: where the package that writes this format, or draws plots, is not installed.
    """
    validate.probability(allow_zero=False, confidence=to.confidence)
    format_of_name = ENDINGS.get(to.ending, to.form)
    if format_of_name != to.form:
        raise InvalidParameter(
            f"--out: a file {to.ending} would hold {to.form}; give it --format {format_of_name}"
        )
    if to.form == "parquet":
        if to.out is None:
            raise InvalidParameter("--format: parquet is binary; name a file with --out")
        import pyarrow as pa  # noqa: F401 - only tried here, and used by the writer
    if to.plot is not None:
        check_picture(to.plot)
        import matplotlib as mpl  # noqa: F401 - only tried here, and used by ``write_plot``

        if to.out is not None and to.out.absolute() == to.plot.absolute():
            raise InvalidParameter("--plot: --out and --plot name the same file")
    check_target(to.out, inputs=inputs)
    check_target(to.plot, option="--plot", inputs=inputs)


def check_picture(plot: Path) -> None:
    """Refuse the file of a plot that is neither PNG nor SVG.

    Raises:
        InvalidParameter: naming the file.
    """
    if plot.suffix.lower() not in {".png", ".svg"}:
        raise InvalidParameter(f"--plot: must end in .png or .svg, got {plot.name!r}")


def guarantee(plan: TopKPlan) -> str:
    """Return the guarantee in words: the (ε, δ), by which bound, for what change of one user it
    holds, and for a budget in ρ what the plan says of it.
    """
    sensitivity = plan.sensitivity
    return (
        f"Total: ({format_upper(plan.bound.epsilon, 4)}, "
        f"{format_upper(plan.budget.delta)})-DP at most, by "
        f"{plan.bound.name} ({plan.bound.source}), for a {plan.domain} domain; one user can affect "
        f"{describe_l0(sensitivity.l0)}, changing each count by at most {sensitivity.linf}. "
        f"{plan.summary_in_rho}"
    ).rstrip()


@dataclass(frozen=True)
class TopKSheet(AnswerSheet):
    """The answer of a plan, as it is written in each format.

    Attributes:
        plan: the plan that ran.
        release: its answer.
        confidence: the confidence of the error bars, in (0, 1).
        rows: ranks, labels, and counts with their error bars, as ``Release.display_table`` gives
            them.
        budget_lines: lines on what is left of the budget; empty where nothing pays.
        about: the title block, heading to text, for formats that have room for one.
    """

    plan: TopKPlan
    release: Release
    confidence: float
    rows: pd.DataFrame
    budget_lines: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        plan: TopKPlan,
        release: Release,
        confidence: float = CONFIDENCE,
        budget_lines: Sequence[str] = (),
        about: Mapping[str, str] | None = None,
    ) -> Self:
        """Return the sheet of an answer whose error bars have this confidence.

        Args:
            plan: the plan that ran.
            release: its answer.
            confidence: the confidence of the error bars, in (0, 1).
            budget_lines: lines on what is left of the budget; empty where nothing pays.
            about: the title block, heading to text; None: there is none.
        """
        rows = release.display_table(confidence=confidence)
        return cls(plan, release, confidence, rows, budget_lines, about or {})

    @property
    def notes(self) -> list[str]:
        """Return the sentences that a reader of the rows must know."""
        return notes(self.plan, self.release, self.rows)

    def remarks(self) -> list[str]:
        """Return the guarantee, what a reader of the rows must know, and the technical note, as
        lines.
        """
        return [guarantee(self.plan), *self.notes, *technical_notes(self.release)]

    def cells(self) -> pd.DataFrame:
        """Return the rows for a spreadsheet; labels that look like formulas are marked as text."""
        return spreadsheet_rows(self.rows)

    def as_dict(self) -> dict[str, object]:
        """Return a JSON-safe dictionary of the title block, the rows with their intervals, and the
        guarantee.
        """
        return {"about": self.about} | answer_as_dict(self.plan, self.release, self.confidence)

    def markdown(self) -> str:
        """Return the answer as Markdown: the title block and the table; below it what a reader of
        the rows must know, the technical note, the guarantee, and what is left of the budget.
        """
        lines = [
            *self.notes,
            *technical_notes(self.release),
            guarantee(self.plan),
            *self.budget_lines,
        ]
        remarks = "".join(f"\n{markdown(line)}\n" for line in lines)
        title = "".join(f"* {name}: {markdown(text)}\n" for name, text in self.about.items())
        table = markdown_table(*answer_rows(self.rows))
        return f"{title}\n{table}\n{remarks}"

    def page(self) -> str:
        """Return the answer as an HTML page that loads nothing from elsewhere."""
        return answer_page(
            self.plan,
            self.release,
            guarantee=guarantee(self.plan),
            budget_lines=self.budget_lines,
            rows=self.rows,
            about=self.about,
        )

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table whose metadata hold the charge."""
        return self.release.to_arrow()

    def print_rows(self, console: Console) -> None:
        """Print the rows, and what a reader of them must know."""
        console.print(rows_table(self.rows, console))
        for line in self.notes:
            console.print(_line_for_people(line))

    def print_answer(self, console: Console) -> None:
        """Print the rows, what a reader of them must know, and what the answer costs."""
        self.print_rows(console)
        console.print(Text(cost_sentence(self.plan)))

    def print_to(self, console: Console) -> None:
        """Print the answer and, unless the command is quiet, how it was computed."""
        if QUIET.get():
            self.print_rows(console)
            return
        self.print_answer(console)
        console.print("\nWhat it cost")
        for number, (name, run) in enumerate(
            _phases_in_words(self.plan, self.release).items(), start=1
        ):
            console.print(_line_for_people(f"{number}. {name}: {run}"))
            # An answer that was stored has no charges of phases: it is free.
            charge = self.release.phases.get(name, "already paid")
            console.print(Padding(_line_for_people(f"charged {charge}"), (0, 0, 0, 3)))
        split = [f"Split: {self.plan.split}."] if self.plan.fixed else []
        for line in [
            *technical_notes(self.release),
            guarantee(self.plan),
            *split,
            *self.budget_lines,
        ]:
            console.print(_line_for_people(line))


def _line_for_people(line: str) -> Text:
    """Return a line without markup, its long numbers rounded up and its control characters made
    visible.
    """
    return Text(visible(rounded_up(line)))


def spreadsheet_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with each label that a spreadsheet could take for a formula marked as
    text.
    """
    return rows.assign(label=[spreadsheet_cell(label) for label in rows["label"]])


# The attributes of a plan that ``plan_as_dict`` writes as they are.
PLAN_ATTRIBUTES = ("k", "domain", "design", "why", "epsilon", "noise_std", "threshold", "warnings")


def plan_as_dict(plan: TopKPlan, confidence: float, *, alternatives: bool) -> dict[str, object]:
    """Return a JSON-safe dictionary of what a plan costs and delivers.

    Args:
        plan: the plan.
        confidence: the confidence of half_width, in (0, 1), and the second probability of
            appears_at if it is above one half.
        alternatives: whether the other designs at the same budget are listed too.
    """
    probability = max(confidence, 0.5)
    appears = {"0.5": plan.appears_at(0.5), f"{probability:g}": plan.appears_at(probability)}
    phases = [{"name": phase.name, "mechanism": to_json(phase.mechanism)} for phase in plan.phases]
    plain = {name: getattr(plan, name) for name in PLAN_ATTRIBUTES}
    plain |= {
        "delta": plan.budget.delta,
        "bound": plan.bound.name,
        "charge": str(plan.charge),
        "sensitivity": to_json(plan.sensitivity),
        "phases": phases,
        "confidence": confidence,
        "appears_at": appears,
        "above_rank": plan.mechanisms[0].floor_rank,
        "appearing": plan.appearing(),
    }
    if plan.counted:
        counting = plan.mechanisms[-1]
        width = counting.count_width(plan.sensitivity, labels=plan.k, confidence=confidence)
        plain["half_width"] = width
    plain |= dict(plan.in_rho)
    if alternatives:
        rows = plan.alternatives.astype(object)
        without_nan = rows.where(rows.notna(), None)  # JSON has none
        plain["alternatives"] = without_nan.to_dict("records")
    return plain


def answer_as_dict(plan: TopKPlan, release: Release, confidence: float) -> dict[str, object]:
    """Return a JSON-safe dictionary of an answer: its rows with their intervals at this confidence,
    and its guarantee, which for a budget in ρ also says what the costs take of it.

    Args:
        plan: the plan that ran.
        release: its answer.
        confidence: of the intervals, in (0, 1).
    """
    promised = {
        "epsilon": plan.bound.epsilon,
        "delta": plan.budget.delta,
        "bound": plan.bound.name,
    }
    promised |= dict(plan.in_rho)  # "rho", "rho_budget", "failure_delta"; empty for one in ε
    answer = with_intervals(release, confidence)
    answer["guarantee"] = promised
    return answer


def with_intervals(release: Release, confidence: float) -> dict[str, object]:
    """Return a JSON-safe dictionary of an answer, whose rows have low, high, rank_low and rank_high
    where counts have error bars.

    Args:
        release: the answer.
        confidence: of the intervals, in (0, 1).
    """
    answer = release.to_dict()
    if release.counts is not None and release.measurement is not None:
        table = release.intervals(confidence=confidence)
        columns = ("low", "high", "rank_low", "rank_high")
        for row, interval in zip(answer["rows"], table.to_dict("records"), strict=True):
            row |= {name: int(interval[name]) for name in columns}
        answer["intervals"] = dict(table.attrs)
    return answer


def _phases_in_words(plan: TopKPlan, release: Release) -> dict[str, str]:
    """Return what ran in each phase, in words, by the phase's name; private looks come first.

    Args:
        plan: the plan of the answer.
        release: the answer, which has a charge for each phase that ran.
    """
    if plan.fixed:
        planned_phases = {phase.name: str(phase.mechanism) for phase in plan.phases}
    else:
        planned_phases = {"answer": "as the looks chose, at the charge of every choice"}
    looks = [name for name in release.phases if name not in planned_phases]
    words_of_looks = dict.fromkeys(looks, "a private look, by which the rest was chosen")
    return words_of_looks | planned_phases


def rows_table(rows: pd.DataFrame, console: Console) -> Table:
    """Return a table of ranks and labels and, if there are counts, their error bars as numbers and
    drawn.

    The drawn bars take the width of the console that the rest of a row leaves, within 8 to 24
    characters.

    Args:
        rows: the rows with their intervals, as ``Release.shown`` gives them.
        console: the console on which the table is printed.
    """
    marks = "█░" if "utf" in console.encoding.lower() else "#-"
    # About 64 characters are for the other columns; where they take more, the table is folded.
    width = max(8, min(24, console.width - 64))
    headers, cells = answer_rows(rows, partial(bar, width=width, marks=marks))
    table = Table(box=box.SIMPLE_HEAD)
    for name in headers:
        if name == "label":
            table.add_column(name, justify="left", overflow="fold")
        elif name:
            table.add_column(name, justify="right")
        else:  # the bars
            table.add_column(name, justify="left", no_wrap=True)
    for cell in cells:
        add_row(table, *cell)
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Add a row of cells as plain text.

    A label such as "[b]" is not taken for markup, and control characters are made visible.
    """
    table.add_row(*(Text(visible(cell)) for cell in cells), style=style)


def write_plot(release: Release, plot: Path, confidence: float) -> None:
    """Draw the answer's counts and error bars into the PNG or SVG file ``plot``.

    Args:
        release: the answer.
        plot: the file, which ends in .png or .svg.
        confidence: of the error bars, in (0, 1).
    """
    from matplotlib.figure import Figure

    figure = release.plot(confidence=confidence).figure
    assert isinstance(figure, Figure)  # noqa: S101 - new Axes are in no part of another figure
    with replacement_file(plot) as temporary:
        figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
