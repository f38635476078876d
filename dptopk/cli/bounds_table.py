"""The tables that ``dptopk compose`` and ``dptopk plan --alternatives`` print."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dptopk._internal.choices import INTERACTIONS, Interaction
from dptopk._internal.formatting import format_lower, format_upper
from dptopk._internal.json_text import readable_json
from dptopk.cli.output import add_row
from dptopk.cli.target import write

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.costs import Charge


SYMBOLS = {"epsilon": "ε", "delta": "δ"}


@dataclass(frozen=True)
class BoundsQuery:
    """The question about a charge: its ε at a given δ, or its δ at a given ε.

    Attributes:
        delta, epsilon: the number that is given; the other is None.
        interaction: who chooses the costs, and when (a word of INTERACTIONS).
    """

    delta: float | None
    epsilon: float | None
    interaction: Interaction

    @property
    def quantity(self) -> str:
        """Return the name of the number that is asked for: "epsilon" or "delta"."""
        if self.epsilon is None:
            return "epsilon"
        return "delta"

    @property
    def given_number(self) -> float:
        """Return the number that is given."""
        if self.delta is not None:
            return self.delta
        assert self.epsilon is not None  # noqa: S101 - one of the two is given
        return self.epsilon


def write_bounds(
    charge: Charge, rows: pd.DataFrame, output_format: str, query: BoundsQuery
) -> None:
    """Print the table of bounds; the smallest one that applies is marked with an arrow.

    Args:
        charge: the charge that was composed.
        rows: a row for each bound, as ``bounds.table`` gives them.
        output_format: "table", "csv" or "json".
        query: the question.
    """
    quantity = query.quantity
    applicable = rows[rows["applies"]].sort_values(quantity, kind="stable")
    best = None
    if not applicable.empty:
        best = str(applicable["name"].iloc[0])
    if output_format == "csv":
        write(rows.to_csv(index=False), None)
        return
    if output_format == "json":
        question = {key: value for key, value in asdict(query).items() if value is not None}
        records = list(map(_plain_row, rows.to_dict("records")))
        answer = {"charge": str(charge), **question, "best": best, "bounds": records}
        write(readable_json(answer), None)
        return
    console = Console(highlight=False)
    for line in _answer_lines(charge, applicable, quantity, query):
        console.print(Text(line))
    _print_rows(rows, quantity, best, console)


def _print_rows(rows: pd.DataFrame, quantity: str, best: str | None, console: Console) -> None:
    """Print the bounds that have a value, those that apply first, each part from the smallest to
    the largest; then name the other bounds.

    Args:
        rows: a row for each bound, as ``bounds.table`` gives them.
        quantity: the name of the number that is asked for.
        best: the name of the smallest bound that applies; None: none applies.
        console: the console to print to.
    """
    rows_with_value = rows[rows[quantity].notna()]
    order = ["applies", quantity]
    rows_with_value = rows_with_value.sort_values(order, ascending=[False, True], kind="stable")
    console.print(_bounds_table(rows_with_value, quantity, best))
    without_value = rows[rows[quantity].isna()]["name"]
    if len(without_value):
        names = ", ".join(without_value)
        console.print(Text(f"Not for these costs (--format csv says why): {names}."))


def _answer_lines(
    charge: Charge, applicable: pd.DataFrame, quantity: str, query: BoundsQuery
) -> list[str]:
    """Return lines with the smallest valid bound, rounded up, and the best lower bound that is
    known.

    Args:
        charge: the charge that was composed.
        applicable: the bounds that apply, the smallest first.
        quantity: the name of the number that is asked for.
        query: the question.
    """
    given_name = "delta" if quantity == "epsilon" else "epsilon"
    symbol = SYMBOLS[quantity]
    lines = [f"{charge} at {SYMBOLS[given_name]} = {query.given_number:g}, {query.interaction}:"]
    if applicable.empty:
        return [*lines, "no bound applies"]
    best = applicable.iloc[0]
    line = f"{symbol} = {format_upper(best[quantity])} by {best['name']}"
    if not math.isnan(best["lower"]):
        line += f"; no valid one can be below {format_lower(best['lower'])}"
    if quantity == "epsilon" and query.given_number < charge.delta:
        line += f": δ is below what the charge itself may fail with, {charge.delta:g}"
    return [*lines, line]


def _bounds_table(rows: pd.DataFrame, quantity: str, best: str | None) -> Table:
    """Return the printed table of bounds: the best one in bold, those that do not apply dim.

    Args:
        rows: the bounds that have a value, in the order in which they are printed.
        quantity: the name of the number that is asked for.
        best: the name of the smallest bound that applies; None: none applies.
    """
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("", overflow="fold")
    table.add_column("bound", no_wrap=True, overflow="fold")
    table.add_column(SYMBOLS[quantity], justify="right", overflow="fold")
    table.add_column("valid in", overflow="fold")
    table.add_column("source, or why it does not apply", overflow="fold")
    for row in rows.to_dict("records"):
        mark = ""
        style = "dim"
        if row["name"] == best:
            mark = "->"
            style = "bold green"
        elif row["applies"]:
            style = ""
        reason = row["why not"] or row["source"]
        cells = [mark, row["name"], format_upper(row[quantity]), _valid_models(row), reason]
        add_row(table, *cells, style=style)
    return table


def _valid_models(row: dict[Hashable, Any]) -> str:
    """Return the interaction models that a bound is valid in, such as "batch-setwise": the weakest
    and the strongest analyst.
    """
    models = [model for model in INTERACTIONS if row[model]]
    if len(models) > 1:
        return f"{models[0]}-{models[-1]}"
    return "".join(models)


def _plain_row(row: dict[Hashable, Any]) -> dict[Hashable, Any]:
    """Return a row whose values JSON can hold."""
    return {key: _json_value(value) for key, value in row.items()}


def print_designs(designs: pd.DataFrame) -> None:
    """Print a table of what each design delivers, best first; the planned one is marked with an
    arrow.

    Args:
        designs: a row for each design, as ``TopKPlan.alternatives`` gives them.
    """
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("design", no_wrap=True)
    for column in ("noise", "appears at"):
        table.add_column(column, justify="right")
    for row in designs.to_dict("records"):
        numbers = (_number_cell(row["noise_std"]), _number_cell(row["appears_at_half"]))
        if row["chosen"]:
            add_row(table, "->", row["design"], *numbers, style="bold")
        else:
            add_row(table, "", row["design"], *numbers)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "noise: standard deviation on a count; appears at: the count above the floor at which a "
        "label appears half of the time."
    )


def _number_cell(number: float | None) -> str:
    """Return a number as a cell shows it; "-" for None and NaN, where a design has none."""
    if number is None or math.isnan(number):
        return "-"
    return f"{number:.4g}"


def _json_value(value: float | str | bool | np.generic | None) -> float | str | bool | None:
    """Return a value that JSON can hold: None for NaN, "inf" for infinity, and NumPy's numbers as
    Python's.
    """
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        return "inf"
    if isinstance(value, np.generic):
        return value.item()
    return value
