"""``dptopk events-sql``: the statement that counts events in a warehouse."""

from __future__ import annotations

from typing import Annotated

import typer

from dptopk.datasets.warehouse import DIALECTS, events_statement


def events_sql(
    dialect: Annotated[str, typer.Option(help=f"SQL of the warehouse: {', '.join(DIALECTS)}.")],
    table: Annotated[str, typer.Option(help="The table of events, perhaps with its schema.")],
    user: Annotated[str, typer.Option("--user-col", help="Column of the user: text or integers.")],
    item: Annotated[
        str, typer.Option("--item-col", help="Column of the labels: text or integers.")
    ],
    labels_per_user: Annotated[
        int, typer.Option(metavar="Δ", help="Labels are found by at most Δ labels of one user.")
    ] = 100,
    key_table: Annotated[
        str,
        typer.Option(
            help="Table with one secret text, in a column [bold]secret[/bold], by which the labels "
            "of a user are chosen."
        ),
    ] = "dptopk_key",
) -> None:
    """Print one SQL statement that counts events in a warehouse without a driver of dptopk.

    Save its result as CSV or Parquet, and ask it with Session.from_events(file, budget=...). The
    result is private data, as the events are. Statements of dialects that are marked "compiled, not
    run" were parsed, and never run by the tests: see docs/events.md for what to check.
    """
    text = events_statement(
        dialect,
        table=table,
        user=user,
        item=item,
        labels_per_user=labels_per_user,
        key_table=key_table,
    )
    tested = DIALECTS[dialect].tested
    typer.echo(f"-- dptopk events-sql, {dialect}: {tested}. The result is private data.")
    typer.echo(text)
