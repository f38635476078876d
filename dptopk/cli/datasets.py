"""``dptopk datasets``: made-up events with a known truth, and the shipped word table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dptopk.cli.shell import Subgroup, progress_bar
from dptopk.cli.target import check_target
from dptopk.errors import InvalidParameter

app = typer.Typer(cls=Subgroup, no_args_is_help=True, help="Data to try things on.")


@app.command()
def make(
    out: Annotated[Path, typer.Argument(help="Parquet file to write.")],
    events: Annotated[int, typer.Option(help="Number of events, one a row.")] = 1_000_000,
    users: Annotated[int, typer.Option(help="Number of members.")] = 10_000,
    items: Annotated[
        int, typer.Option(help="Number of articles, whose popularity follows Zipf's law.")
    ] = 10_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same events.")] = 0,
) -> None:
    """Write made-up events "member reads article", whose expected counts are known."""
    from dptopk.datasets import make_events

    if out.suffix.lower() not in {".parquet", ".pq"}:
        raise InvalidParameter(f"OUT: {out.name!r} would hold Parquet; name it {out.stem}.parquet")
    check_target(out, option="OUT")
    with progress_bar("making events") as report:
        law = make_events(out, events=events, users=users, items=items, seed=seed, progress=report)
    typer.echo(f"{out}: {events} events, columns member, article, section, region")
    popular = zip(law.articles[:5], law.expected_users(5), strict=False)
    expected = ", ".join(f"{article} ({members:.0f})" for article, members in popular)
    typer.echo(f"most popular articles and the members expected at each: {expected}")


@app.command()
def macbeth(
    out: Annotated[Path, typer.Argument(help="CSV file to write: columns word, count.")],
) -> None:
    """Write the word table of Macbeth."""
    from dptopk.datasets import macbeth_counts

    check_target(out, option="OUT")
    table = macbeth_counts()
    table.to_csv(out, index=False)
    typer.echo(f"{out}: {len(table)} words")
