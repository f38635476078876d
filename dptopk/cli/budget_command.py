"""``dptopk budget``: divide one (ε, δ) over wanted queries."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.formatting import format_upper, percent
from dptopk._internal.json_text import readable_json
from dptopk.cli.shell import progress_bar
from dptopk.cli.target import check_target
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.planning.division import Division


def budget(
    plan: Annotated[
        Path,
        typer.Argument(help=r"TOML file: epsilon, delta and \[\[query]] tables (docs/budgets.md)."),
    ],
    output_format: Annotated[
        Literal["table", "json"], typer.Option("--format", help="How the division is written.")
    ] = "table",
    registration: Annotated[
        Path | None,
        typer.Option(help="Write the costs to this file, for `ledger init --registered`."),
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="Write to this file what to ask on which day, as CSV.")
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3660, help="Number of days of --schedule.")] = 30,
) -> None:
    """Divide one (ε, δ) over wanted queries by what they are worth, and predict the error of
    each.
    """
    from dptopk.planning.division import divide, queries_of

    check_target(registration, option="--registration", inputs=[plan])
    check_target(schedule, option="--schedule", inputs=[plan])
    table = _read_queries(plan)
    with progress_bar("dividing the budget"):
        division = divide(queries_of(table["query"]), table["epsilon"], table["delta"])
    if registration is not None:
        registration.write_text(f"{division.charge}\n", encoding="utf-8")
    if schedule is not None:
        with schedule.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["day", "query", "mechanism"])
            writer.writeheader()
            writer.writerows(division.schedule(days))
    if output_format == "json":
        typer.echo(readable_json(division.plain()), nl=False)
    else:
        _print_division(division)


def _read_queries(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file of wanted queries.

    Raises:
        InvalidParameter: unless it is TOML and has exactly epsilon, delta and [[query]] tables.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"plan: {path.name!r} is not TOML: {error}") from None
    if set(table) != {"epsilon", "delta", "query"} or not isinstance(table["query"], list):
        raise InvalidParameter("plan: give epsilon, delta and at least one [[query]], nothing else")
    return table


def _print_division(division: Division) -> None:
    """Print a table of the queries with their shares and errors, and what they cost together."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "query",
        "share",
        f"error of a count ({percent(CONFIDENCE)})",
        "even split",
        "ε by itself",
        box=None,
    )
    for part in division.parts:
        locked = " locked" if part.query.locked is not None else ""
        cells = (
            f"{part.share:.1%}",
            f"± {part.error:g}{locked}",
            f"± {part.even_error:g}",
            f"{part.epsilon:.4g}",
        )
        table.add_row(Text(part.query.name), *cells)
    console = Console(highlight=False)
    console.print(table)
    total = f"({format_upper(division.epsilon)}, {format_upper(division.budget.delta)})-DP"
    reduction = 1 - division.weighted_error / division.even_error
    even_split = (
        f"an even split of the same total: {division.even_error:.5g} ({reduction:.1%} less)"
    )
    console.print(f"\nTogether: {total} at most, by {division.bound}.")
    console.print(f"Weighted error {division.weighted_error:.5g}; {even_split}.")
    console.print(f"Registration: {division.charge}")
