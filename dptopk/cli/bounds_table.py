"""The tables that ``dptopk compose`` and ``dptopk plan --alternatives`` print."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dptopk._internal.choices import INTERACTIONS
from dptopk._internal.formatting import format_lower, format_upper
from dptopk._internal.json_text import readable_json
from dptopk.cli.output import add_row
from dptopk.cli.target import write

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.costs import Charge


def write_bounds(charge: Charge, rows: pd.DataFrame, output_format: str, **query: Any) -> None:
    """Write the table of bounds; the smallest one that applies is marked with an arrow."""
    wanted = "epsilon" if query["epsilon"] is None else "delta"
    applicable = rows[rows["applies"]].sort_values(wanted, kind="stable")
    best = None if applicable.empty else str(applicable["name"].iloc[0])
    if output_format == "csv":
        write(rows.to_csv(index=False), None)
        return
    if output_format == "json":
        records = [{key: _plain(value) for key, value in row.items()} for row in rows.to_dict("records")]
        question = {key: value for key, value in query.items() if value is not None}
        write(readable_json({"charge": str(charge), **question, "best": best, "bounds": records}), None)
        return
    console = Console(highlight=False)
    for line in _answer(charge, applicable, wanted, query):
        console.print(Text(line))
    valued = rows[rows[wanted].notna()].sort_values(["applies", wanted], ascending=[False, True], kind="stable")
    console.print(_table(valued, wanted, best))
    others = rows[rows[wanted].isna()]["name"]
    if len(others):
        console.print(Text(f"Not for these costs (--format csv says why): {', '.join(others)}."))


def _answer(charge: Charge, applicable: pd.DataFrame, wanted: str, query: dict[str, Any]) -> list[str]:
    """The smallest valid bound in words, with the best lower bound that is known."""
    asked = f"δ = {query['delta']:g}" if wanted == "epsilon" else f"ε = {query['epsilon']:g}"
    symbol = "ε" if wanted == "epsilon" else "δ"
    lines = [f"{charge} at {asked}, {query['interaction']}:"]
    if applicable.empty:
        return [*lines, "no bound applies"]
    best = applicable.iloc[0]
    line = f"{symbol} = {format_upper(best[wanted])} by {best['name']}"
    if not math.isnan(best["lower"]):
        line += f"; no valid one can be below {format_lower(best['lower'])}"
    if wanted == "epsilon" and query["delta"] < charge.delta:
        line += f": δ is below what the charge itself may fail with, {charge.delta:g}"
    return [*lines, line]


def _table(rows: pd.DataFrame, wanted: str, best: str | None) -> Table:
    """The bounds that have a value: first those that are valid here, smallest first, then the others, dim."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "bound", "ε" if wanted == "epsilon" else "δ", "valid in", "source, or why it does not apply"):
        table.add_column(column, justify="right" if column in {"ε", "δ"} else "left", overflow="fold")
    table.columns[1].no_wrap = True
    for row in rows.to_dict("records"):
        models = [model for model in INTERACTIONS if row[model]]
        strongest = f"{models[0]}-{models[-1]}" if len(models) > 1 else "".join(models)
        style = "bold green" if row["name"] == best else ("" if row["applies"] else "dim")
        mark = "->" if row["name"] == best else ""
        add_row(
            table, mark, row["name"], format_upper(row[wanted]), strongest, row["why not"] or row["source"], style=style
        )
    return table


def print_designs(designs: pd.DataFrame) -> None:
    """Print what each design delivers, best first; the planned one is marked with an arrow."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("design", no_wrap=True)
    for column in ("noise", "appears at"):
        table.add_column(column, justify="right")
    known = designs[["noise_std", "appears_at_half"]].astype(float)
    for (_, numbers), row in zip(known.iterrows(), designs.to_dict("records"), strict=True):
        shown = ["-" if math.isnan(number) else f"{number:.4g}" for number in numbers]
        add_row(table, "->" if row["chosen"] else "", row["design"], *shown, style="bold" if row["chosen"] else "")
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "noise: standard deviation on a count; appears at: the count above the floor at which a label appears half of "
        "the time."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value.item() if hasattr(value, "item") else value
