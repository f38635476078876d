"""What the command line prints: answers with their error bars and charges."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dptopk._internal import validate
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
from dptopk.cli.page import answer_page, notes
from dptopk.cli.shell import QUIET, tell
from dptopk.cli.target import check_target, opened, replacing, write
from dptopk.errors import InvalidParameter
from dptopk.release.release import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from dptopk.cli.options import Output
    from dptopk.planning import Plan
    from dptopk.release.release import Release


def check_answer(to: Output, inputs: list[Path | str | None]) -> None:
    """Refuse what cannot be written, before any budget is spent."""
    validate.probability(allow_zero=False, confidence=to.confidence)
    ending = "" if to.out is None else to.out.suffix.lower()
    meant = {".csv": "csv", ".json": "json", ".html": "html", ".htm": "html", ".parquet": "parquet", ".md": "markdown"}
    if meant.get(ending, to.output_format) != to.output_format:
        raise InvalidParameter(
            f"--out: a file {ending} would hold {to.output_format}; give it --format {meant[ending]}"
        )
    if to.output_format == "parquet":
        if to.out is None:
            raise InvalidParameter("--format: parquet is binary; name a file with --out")
        import pyarrow as pa  # noqa: F401 - is it there?
    if to.plot is not None:
        check_picture(to.plot)
        import matplotlib as mpl  # noqa: F401 - is it there?

        if to.out is not None and to.out.absolute() == to.plot.absolute():
            raise InvalidParameter("--plot: --out and --plot name the same file")
    check_target(to.out, inputs=inputs)
    check_target(to.plot, name="plot", inputs=inputs)


def check_picture(plot: Path) -> None:
    """Refuse a picture that is neither PNG nor SVG."""
    if plot.suffix.lower() not in {".png", ".svg"}:
        raise InvalidParameter(f"--plot: must end in .png or .svg, got {plot.name!r}")


def guarantee(plan: Plan) -> str:
    """What the answer of a plan promises, in one sentence."""
    sensitivity = plan.sensitivity
    return (
        f"Total: ({format_upper(plan.bound.epsilon, 4)}, {plan.budget.delta:g})-DP at most, by {plan.bound.name} "
        f"({plan.bound.source}), for a {plan.domain} domain; one user can affect {describe_l0(sensitivity.l0)}, "
        f"changing each count by at most {sensitivity.linf}. {plan.told_in_rho}"
    ).rstrip()


def write_release(
    plan: Plan, release: Release, to: Output, *, left: Sequence[str] = (), about: Mapping[str, str] | None = None
) -> None:
    """Write an answer: as a table or a page with its charges, or the bare rows as CSV, JSON or Parquet.

    Args:
        plan: what was planned.
        release: what came out.
        to: in which format, where, and the confidence of the error bars.
        left: what is left of the budget, in lines.
        about: the title block, of formats that have room for one.
    """
    about, form, out, confidence = about or {}, to.output_format, to.out, to.confidence
    if form == "parquet":
        assert out is not None  # noqa: S101 - check_answer
        import pyarrow.parquet as pq

        with replacing(out) as temporary:
            pq.write_table(release.to_arrow(), temporary)
    elif form == "csv":
        write(spreadsheet_rows(release, confidence).to_csv(index=False), out)
        for line in [guarantee(plan), *notes(plan, release, confidence)]:  # beside the rows: a pipe does not lose it
            tell(line)
    elif form == "json":
        write(readable_json({"about": about} | as_dict(plan, release, confidence)), out)
    elif form == "markdown":
        lines = [*notes(plan, release, confidence), guarantee(plan), *left]
        remarks = "".join(f"\n{markdown(line)}\n" for line in lines)
        title = "".join(f"* {name}: {markdown(text)}\n" for name, text in about.items())
        write(f"{title}\n{markdown_table(*answer_rows(release.shown(confidence=confidence)))}\n{remarks}", out)
    elif form == "html":
        said = guarantee(plan)
        write(answer_page(plan, release, guarantee=said, left=left, confidence=confidence, about=about), out)
    else:
        with opened(out) as file:
            _print_release(plan, release, Console(file=file, highlight=False), left, confidence)


def spreadsheet_rows(release: Release, confidence: float) -> pd.DataFrame:
    """The rows of an answer, with labels that no spreadsheet takes for formulas."""
    rows = release.shown(confidence=confidence)
    return rows.assign(label=[spreadsheet(label) for label in rows["label"]])


# What of a plan is written as it is.
PLANNED = ("k", "domain", "design", "why", "epsilon", "noise_std", "threshold", "warnings")


def plan_as_dict(plan: Plan, confidence: float, *, alternatives: bool) -> dict[str, Any]:
    """What a plan costs and delivers, JSON-safe; with the other designs at the same budget, where they are wanted."""
    counting, high = plan.mechanisms[-1], max(confidence, 0.5)
    made = {name: getattr(plan, name) for name in PLANNED} | {
        "delta": plan.budget.delta,
        "bound": plan.bound.name,
        "charge": str(plan.charge),
        "sensitivity": to_json(plan.sensitivity),
        "phases": [{"name": phase.name, "mechanism": to_json(phase.mechanism)} for phase in plan.phases],
        "confidence": confidence,
        "appears_at": {"0.5": plan.appears_at(0.5), f"{high:g}": plan.appears_at(high)},
    }
    if plan.counted:
        made["half_width"] = counting.count_width(plan.sensitivity, labels=plan.k, confidence=confidence)
    made |= dict(plan.in_rho)
    if alternatives:
        rows = plan.alternatives.astype(object)
        made["alternatives"] = rows.where(rows.notna(), None).to_dict("records")  # JSON has no NaN
    return made


def as_dict(plan: Plan, release: Release, confidence: float) -> dict[str, Any]:
    """An answer with its intervals and its guarantee, JSON-safe."""
    guarantee = {"epsilon": plan.bound.epsilon, "delta": plan.budget.delta, "bound": plan.bound.name}
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


def _print_release(plan: Plan, release: Release, console: Console, left: Sequence[str], confidence: float) -> None:
    print_rows(plan, release, console, confidence)
    if QUIET.get():
        return
    console.print("\nWhat it cost")
    made = {phase.name: str(phase.mechanism) for phase in plan.phases}
    looks = [name for name in release.phases if name not in made]
    chosen = made if plan.fixed else dict.fromkeys(made, "as the looks chose, at the charge of every choice")
    for number_of, (name, run) in enumerate(
        (dict.fromkeys(looks, "a private look, by which the rest was chosen") | chosen).items(), start=1
    ):
        console.print(Text(visible(rounded_up(f"{number_of}. {name}: {run}"))))
        paid = rounded_up(f"charged {release.phases.get(name, 'already paid')}")
        console.print(Padding(Text(visible(paid)), (0, 0, 0, 3)))
    for line in [guarantee(plan), *([f"Split: {plan.split}."] if plan.fixed else []), *left]:
        console.print(Text(visible(rounded_up(line))))


def print_rows(plan: Plan, release: Release, console: Console, confidence: float) -> None:
    """Print ranks, labels and counts with their error bars, and what a reader of them must know."""
    console.print(rows_table(release.shown(confidence=confidence), console))
    for line in notes(plan, release, confidence):
        console.print(Text(visible(rounded_up(line))))


def rows_table(rows: pd.DataFrame, console: Console) -> Table:
    """Ranks and labels; where there are counts, these with their error bars, as numbers and drawn."""
    marks = "█░" if "utf" in console.encoding.lower() else "#-"
    headers, cells = answer_rows(rows, partial(bar, width=max(8, min(24, console.width - 64)), marks=marks))
    table = Table(box=box.SIMPLE_HEAD)
    for name in headers:
        justify: Any = "left" if name in {"label", ""} else "right"
        table.add_column(name, justify=justify, overflow="fold" if name == "label" else "ellipsis", no_wrap=not name)
    for cell in cells:
        add_row(table, *cell)
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Add cells as plain text: a label such as "[b]" is no markup, and control characters are shown, not obeyed."""
    table.add_row(*(Text(visible(cell)) for cell in cells), style=style)


def write_plot(release: Release, plot: Path, confidence: float) -> None:
    """Draw the answer into a PNG or SVG file."""
    axes: Any = release.plot(confidence=confidence)
    with replacing(plot) as temporary:
        axes.figure.savefig(temporary, format=plot.suffix[1:].lower(), dpi=150)
