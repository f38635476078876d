"""The table of bounds that ``dptopk compose`` prints."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from dptopk._choices import INTERACTIONS
from dptopk.cli.output import add_row
from dptopk.cli.target import write
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.costs import Charge

__all__ = ["write_bounds"]


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
        write(json.dumps({"charge": str(charge), **question, "best": best, "bounds": records}, indent=2) + "\n", None)
        return
    if output_format != "table":
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
        add_row(table, mark, row["name"], value, strongest, row["why not"] or row["source"], style=style)
    console.print(table)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value.item() if hasattr(value, "item") else value
