"""What the command line prints: answers, charges and tables of bounds."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dptopk._choices import INTERACTIONS
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.costs import Charge
    from dptopk.planning import Plan
    from dptopk.release import Release

__all__ = ["check_target", "write_bounds", "write_release"]


def check_target(output_format: str, out: Path | None) -> None:
    """Refuse a target that cannot be written, before any budget is spent."""
    if output_format == "parquet" and out is None:
        raise InvalidParameter("format: parquet is binary; name a file with --out")
    if out is not None and not out.absolute().parent.is_dir():
        raise InvalidParameter(f"out: the folder of {str(out)!r} does not exist")
    if out is not None and out.is_dir():
        raise InvalidParameter(f"out: {str(out)!r} is a folder")
    if out is not None and not _writable(out):
        raise InvalidParameter(f"out: {str(out)!r} cannot be written")


def _writable(out: Path) -> bool:
    """Try it with the name that the answer is written under at first (permissions and read-only disks lie)."""
    try:
        temporary = _temporary(out)
        temporary.open("w", encoding="utf-8").close()
        temporary.unlink()
    except OSError:
        return False
    return True


def _temporary(out: Path) -> Path:
    return out.with_name(f".{out.name}.part")


def write_release(plan: Plan, release: Release, output_format: str, out: Path | None) -> None:
    """Write an answer: the table with its charges, or the bare rows as CSV, JSON or Parquet."""
    if output_format == "parquet":
        _parquet(release, out)
        return
    if output_format == "csv":
        _write(release.table.to_csv(index=False), out)
        return
    if output_format == "json":
        guarantee = {"epsilon": plan.bound.epsilon, "delta": plan.budget.delta, "bound": plan.bound.name}
        _write(json.dumps(release.to_dict() | {"guarantee": guarantee}, indent=2, ensure_ascii=False) + "\n", out)
        return
    with _Sink(out) as file:
        _print_release(plan, release, Console(file=file, highlight=False))


def _print_release(plan: Plan, release: Release, console: Console) -> None:
    rows = Table(box=box.SIMPLE_HEAD)
    rows.add_column("rank", justify="right")
    rows.add_column("label")
    if release.counts is not None:
        rows.add_column("noisy count", justify="right")
    for rank, label in enumerate(release.labels):
        cells = [str(rank + 1), str(label)]
        if release.counts is not None:
            cells.append(_number(release.counts[rank].item()))
        _add_row(rows, *cells)
    console.print(rows)
    if len(release) < plan.k:
        console.print(f"{len(release)} of {plan.k} labels passed the threshold of the unknown domain.")
    charges = Table(box=box.SIMPLE_HEAD)
    charges.add_column("phase")
    charges.add_column("mechanism", overflow="fold")
    charges.add_column("charge", overflow="fold")
    for phase in plan.phases:
        paid = release.phases.get(phase.name, "already paid")
        _add_row(charges, phase.name, str(phase.mechanism), str(paid))
    console.print(charges)
    console.print(
        f"Total: ({plan.bound.epsilon:.4g}, {plan.budget.delta:g})-DP at most, by {plan.bound.name} "
        f"({plan.bound.source}), for a {plan.domain} domain, one user moving "
        f"{'any number of' if plan.sensitivity.l0 is None else f'at most {plan.sensitivity.l0}'} label(s) "
        f"by at most {plan.sensitivity.linf}."
    )
    console.print(f"Split: {plan.split}.")
    if release.seeded:
        console.print("Made with a fixed seed: for tests and examples, not for production.")


def _add_row(table: Table, *cells: str, style: str = "") -> None:
    """Add cells as plain text: a label such as "[b]" is no markup, and control characters are shown, not obeyed."""
    table.add_row(
        *(Text("".join(c if c.isprintable() else repr(c)[1:-1] for c in cell)) for cell in cells), style=style
    )


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.1f}"


def write_bounds(charge: Charge, rows: pd.DataFrame, output_format: str, **query: Any) -> None:
    """Write the table of bounds; the smallest one that applies is marked with an arrow."""
    wanted = "epsilon" if query["epsilon"] is None else "delta"
    applicable = rows[rows["applies"]].sort_values(wanted, kind="stable")
    best = None if applicable.empty else str(applicable["name"].iloc[0])
    if output_format == "csv":
        _write(rows.to_csv(index=False), None)
        return
    if output_format == "json":
        records = [{key: _plain(value) for key, value in row.items()} for row in rows.to_dict("records")]
        question = {key: value for key, value in query.items() if value is not None}
        _write(json.dumps({"charge": str(charge), **question, "best": best, "bounds": records}, indent=2) + "\n", None)
        return
    if output_format == "parquet":
        raise InvalidParameter("format: compose writes table, csv or json")
    console = Console(highlight=False)
    given = f"δ = {query['delta']:g}" if wanted == "epsilon" else f"ε = {query['epsilon']:g}"
    table = Table(box=box.SIMPLE_HEAD, title=f"{charge}   at {given}, {query['interaction']}", title_justify="left")
    for column in ("", "bound", "ε" if wanted == "epsilon" else "δ", "valid in", "source, or why it does not apply"):
        table.add_column(column, justify="right" if column in {"ε", "δ"} else "left", overflow="fold")
    table.columns[1].no_wrap = True
    for row in rows.to_dict("records"):
        models = [model for model in INTERACTIONS if row[model]]
        strongest = f"{models[0]}-{models[-1]}" if len(models) > 1 else "".join(models)
        style = "bold green" if row["name"] == best else ("" if row["applies"] else "dim")
        value = "" if math.isnan(row[wanted]) else f"{row[wanted]:.6g}"
        mark = "->" if row["name"] == best else ""
        _add_row(table, mark, row["name"], value, strongest, row["why not"] or row["source"], style=style)
    console.print(table)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value.item() if hasattr(value, "item") else value


def _parquet(release: Release, out: Path | None) -> None:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidParameter("format: writing Parquet needs pyarrow; install dptopk[data]") from None
    pq.write_table(release.to_arrow(), out)


def _write(text: str, out: Path | None) -> None:
    with _Sink(out) as file:
        file.write(text)


class _Sink:
    """Standard output, or a file that appears only when it was written whole."""

    def __init__(self, out: Path | None) -> None:
        self.out = out
        self.temporary = None if out is None else _temporary(out)
        self.file: Any = sys.stdout

    def __enter__(self) -> Any:
        if self.temporary is not None:
            self.file = self.temporary.open("w", encoding="utf-8")
        return self.file

    def __exit__(self, kind: object, *_: object) -> None:
        if self.out is None or self.temporary is None:
            return
        self.file.close()
        if kind is None:
            self.temporary.replace(self.out)
        else:
            self.temporary.unlink()
