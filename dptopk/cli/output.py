"""What the command line prints: answers with their error bars and charges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    spreadsheet,
    visible,
)
from dptopk._internal.json_text import readable_json
from dptopk.cli.options import ENDINGS, Format
from dptopk.cli.page import answer_page, cost, details, notes
from dptopk.cli.shell import QUIET, tell
from dptopk.cli.target import check_target, opened, replacing, write
from dptopk.errors import InvalidParameter
from dptopk.release.release import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from dptopk.cli.options import Output
    from dptopk.planning import TopKPlan
    from dptopk.release.release import Release


def check_answer(to: Output, inputs: list[Path | str | None]) -> None:
    """Refuse what cannot be written, before any budget is spent."""
    validate.probability(allow_zero=False, confidence=to.confidence)
    meant = ENDINGS.get(to.ending, to.form)
    if meant != to.form:
        raise InvalidParameter(
            f"--out: a file {to.ending} would hold {to.form}; give it --format {meant}"
        )
    if to.form == "parquet":
        if to.out is None:
            raise InvalidParameter("--format: parquet is binary; name a file with --out")
        import pyarrow as pa  # noqa: F401
    if to.plot is not None:
        check_picture(to.plot)
        import matplotlib as mpl  # noqa: F401

        if to.out is not None and to.out.absolute() == to.plot.absolute():
            raise InvalidParameter("--plot: --out and --plot name the same file")
    check_target(to.out, inputs=inputs)
    check_target(to.plot, name="plot", inputs=inputs)


def check_picture(plot: Path) -> None:
    """Refuse a picture that is neither PNG nor SVG."""
    if plot.suffix.lower() not in {".png", ".svg"}:
        raise InvalidParameter(f"--plot: must end in .png or .svg, got {plot.name!r}")


def guarantee(plan: TopKPlan) -> str:
    """What the answer of a plan promises, in one sentence."""
    sensitivity = plan.sensitivity
    return (
        f"Total: ({format_upper(plan.bound.epsilon, 4)}, {plan.budget.delta:g})-DP at most, by "
        f"{plan.bound.name} "
        f"({plan.bound.source}), for a {plan.domain} domain; one user can affect "
        f"{describe_l0(sensitivity.l0)}, "
        f"changing each count by at most {sensitivity.linf}. {plan.told_in_rho}"
    ).rstrip()


@dataclass(frozen=True)
class Answer:
    """An answer, and what is written beside it.

    Attributes:
        plan: what was planned.
        release: what came out.
        to: in which format, where, and the confidence of the error bars.
        left: what is left of the budget, in lines.
        about: the title block, of formats that have room for one.
    """

    plan: TopKPlan
    release: Release
    to: Output
    left: Sequence[str] = ()
    about: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> pd.DataFrame:
        """Ranks, labels, and counts with their error bars."""
        return self.release.shown(confidence=self.to.confidence)

    @property
    def remarks(self) -> list[str]:
        """What a reader of the rows must know."""
        lines = notes(self.plan, self.release, self.to.confidence)
        return [*lines, *details(self.release)]


def write_release(
    plan: TopKPlan,
    release: Release,
    to: Output,
    *,
    left: Sequence[str] = (),
    about: Mapping[str, str] | None = None,
) -> None:
    """Write an answer: as a table or a page with its charges, or the bare rows as CSV, JSON or
    Parquet; the arguments are those of Answer.
    """
    WRITERS[to.form](Answer(plan, release, to, left, about or {}))


def _write_parquet(answer: Answer) -> None:
    import pyarrow.parquet as pq

    out = answer.to.out
    assert out is not None  # noqa: S101
    with replacing(out) as temporary:
        pq.write_table(answer.release.to_arrow(), temporary)


def _write_csv(answer: Answer) -> None:
    """The rows; what is said about them goes to standard error, so that no pipe loses it."""
    rows = spreadsheet_rows(answer.release, answer.to.confidence)
    write(rows.to_csv(index=False), answer.to.out)
    for line in [guarantee(answer.plan), *answer.remarks]:
        tell(line)


def _write_json(answer: Answer) -> None:
    told = as_dict(answer.plan, answer.release, answer.to.confidence)
    write(readable_json({"about": answer.about} | told), answer.to.out)


def _write_markdown(answer: Answer) -> None:
    lines = [*answer.remarks, guarantee(answer.plan), *answer.left]
    remarks = "".join(f"\n{markdown(line)}\n" for line in lines)
    title = "".join(f"* {name}: {markdown(text)}\n" for name, text in answer.about.items())
    headers, cells = answer_rows(answer.rows)
    table = markdown_table(headers, cells)
    write(f"{title}\n{table}\n{remarks}", answer.to.out)


def _write_html(answer: Answer) -> None:
    page = answer_page(
        answer.plan,
        answer.release,
        guarantee=guarantee(answer.plan),
        left=answer.left,
        confidence=answer.to.confidence,
        about=answer.about,
    )
    write(page, answer.to.out)


def _write_table(answer: Answer) -> None:
    with opened(answer.to.out) as file:
        console = Console(file=file, highlight=False)
        _print_release(answer.plan, answer.release, console, answer.left, answer.to.confidence)


# A new format is a function here, and its word in ``options.Format``.
WRITERS: dict[Format, Callable[[Answer], None]] = {
    "table": _write_table,
    "csv": _write_csv,
    "json": _write_json,
    "html": _write_html,
    "markdown": _write_markdown,
    "parquet": _write_parquet,
}


def spreadsheet_rows(release: Release, confidence: float) -> pd.DataFrame:
    """The rows of an answer, with labels that no spreadsheet takes for formulas."""
    rows = release.shown(confidence=confidence)
    return rows.assign(label=[spreadsheet(label) for label in rows["label"]])


# What of a plan is written as it is.
PLANNED = ("k", "domain", "design", "why", "epsilon", "noise_std", "threshold", "warnings")


def plan_as_dict(plan: TopKPlan, confidence: float, *, alternatives: bool) -> dict[str, Any]:
    """What a plan costs and delivers, JSON-safe; with the other designs at the same budget, where
    they are wanted.
    """
    high = max(confidence, 0.5)
    appears = {"0.5": plan.appears_at(0.5), f"{high:g}": plan.appears_at(high)}
    phases = [{"name": phase.name, "mechanism": to_json(phase.mechanism)} for phase in plan.phases]
    plain = {name: getattr(plan, name) for name in PLANNED}
    plain |= {
        "delta": plan.budget.delta,
        "bound": plan.bound.name,
        "charge": str(plan.charge),
        "sensitivity": to_json(plan.sensitivity),
        "phases": phases,
        "confidence": confidence,
        "appears_at": appears,
    }
    if plan.counted:
        last = plan.mechanisms[-1]
        width = last.count_width(plan.sensitivity, labels=plan.k, confidence=confidence)
        plain["half_width"] = width
    plain |= dict(plan.in_rho)
    if alternatives:
        rows = plan.alternatives.astype(object)
        without_nan = rows.where(rows.notna(), None)  # JSON has none
        plain["alternatives"] = without_nan.to_dict("records")
    return plain


def as_dict(plan: TopKPlan, release: Release, confidence: float) -> dict[str, Any]:
    """An answer with its intervals and its guarantee, JSON-safe."""
    guarantee = {
        "epsilon": plan.bound.epsilon,
        "delta": plan.budget.delta,
        "bound": plan.bound.name,
    }
    return with_intervals(release, confidence) | {"guarantee": guarantee | dict(plan.in_rho)}


def with_intervals(release: Release, confidence: float) -> dict[str, Any]:
    """An answer with its intervals, JSON-safe."""
    answer = release.to_dict()
    if release.counts is not None and release.measurement is not None:
        table = release.intervals(confidence=confidence)
        for row, bounds in zip(answer["rows"], table.to_dict("records"), strict=True):
            row |= {name: int(bounds[name]) for name in ("low", "high", "rank_low", "rank_high")}
        answer["intervals"] = dict(table.attrs)
    return answer


def print_answer(plan: TopKPlan, release: Release, confidence: float = CONFIDENCE) -> None:
    """Print an answer with what a reader of it must know, and nothing technical."""
    console = Console(highlight=False)
    print_rows(plan, release, console, confidence)
    console.print(Text(cost(plan)))


def _print_release(
    plan: TopKPlan, release: Release, console: Console, left: Sequence[str], confidence: float
) -> None:
    print_rows(plan, release, console, confidence)
    if QUIET.get():
        return
    console.print(Text(cost(plan)))
    console.print("\nWhat it cost")
    for number, (name, run) in enumerate(_runs(plan, release).items(), start=1):
        console.print(Text(visible(rounded_up(f"{number}. {name}: {run}"))))
        paid = rounded_up(f"charged {release.phases.get(name, 'already paid')}")
        console.print(Padding(Text(visible(paid)), (0, 0, 0, 3)))
    split = [f"Split: {plan.split}."] if plan.fixed else []
    for line in [*details(release), guarantee(plan), *split, *left]:
        console.print(Text(visible(rounded_up(line))))


def _runs(plan: TopKPlan, release: Release) -> dict[str, str]:
    """The phases that ran, by name, in words: looks first."""
    chosen = {"answer": "as the looks chose, at the charge of every choice"}
    if plan.fixed:
        chosen = {phase.name: str(phase.mechanism) for phase in plan.phases}
    looks = [name for name in release.phases if name not in chosen]
    return dict.fromkeys(looks, "a private look, by which the rest was chosen") | chosen


def print_rows(plan: TopKPlan, release: Release, console: Console, confidence: float) -> None:
    """Print ranks, labels and counts with their error bars, and what a reader of them must know."""
    console.print(rows_table(release.shown(confidence=confidence), console))
    for line in notes(plan, release, confidence):
        console.print(Text(visible(rounded_up(line))))


def rows_table(rows: pd.DataFrame, console: Console) -> Table:
    """Ranks and labels; where there are counts, these with their error bars, as numbers and
    drawn.
    """
    marks = "█░" if "utf" in console.encoding.lower() else "#-"
    width = max(8, min(24, console.width - 64))
    headers, cells = answer_rows(rows, partial(bar, width=width, marks=marks))
    table = Table(box=box.SIMPLE_HEAD)
    for name in headers:
        justify: Any = "left" if name in {"label", ""} else "right"
        table.add_column(
            name,
            justify=justify,
            overflow="fold" if name == "label" else "ellipsis",
            no_wrap=not name,
        )
    for cell in cells:
        add_row(table, *cell)
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Add cells as plain text: a label such as "[b]" is no markup, and control characters are
    shown, not obeyed.
    """
    table.add_row(*(Text(visible(cell)) for cell in cells), style=style)


def write_plot(release: Release, plot: Path, confidence: float) -> None:
    """Draw the answer into a PNG or SVG file."""
    axes: Any = release.plot(confidence=confidence)
    with replacing(plot) as temporary:
        axes.figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
