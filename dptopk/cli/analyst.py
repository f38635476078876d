"""``dptopk ledger analyst``: tokens of the people who may ask over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dptopk.cli.shell import Subgroup
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.service.access import Access


app = typer.Typer(
    cls=Subgroup, no_args_is_help=True, help="Tokens of the people who may ask over HTTP."
)

Catalog = Annotated[Path, typer.Argument(help="The catalog of the service.")]
Name = Annotated[str, typer.Argument(help="Name of the analyst, as in the ledger.")]
Days = Annotated[
    float, typer.Option("--days", min=0.01, max=36_500, help="Days until the token expires.")
]


def _access(catalog: Path) -> Access:
    """Return the table of tokens in the database of a service's catalog.

    Raises:
        InvalidParameter: for a catalog that cannot be read, or has a mistake.
        LedgerError: when the database cannot be opened.
    """
    from dptopk.service.access import Access
    from dptopk.service.catalog_file import load
    from dptopk.service.tables import Tables

    return Access(Tables(load(catalog).access))


@app.command()
def add(
    catalog: Catalog,
    analyst: Name,
    role: Annotated[
        Literal["reader", "analyst", "admin"],
        typer.Option(help="reader: see and plan; analyst: also ask; admin: also see what all do."),
    ] = "analyst",
    days: Days = 365.0,
) -> None:
    """Create a token and print it, this once; the database holds its hash."""
    typer.echo(_access(catalog).create(analyst, role, days=days))


@app.command()
def rotate(catalog: Catalog, analyst: Name, days: Days = 365.0) -> None:
    """Print a new token; the analyst's other tokens end."""
    typer.echo(_access(catalog).rotate(analyst, days=days))


@app.command()
def revoke(catalog: Catalog, analyst: Name) -> None:
    """End all tokens of an analyst, in every worker: at once for what spends, within a second for
    the rest.
    """
    ended = _access(catalog).revoke(analyst)
    if not ended:
        raise InvalidParameter(f"analyst: {analyst!r} has no token")
    typer.echo(f"{ended} token(s) of {analyst!r} ended.")


@app.command("list")
def list_tokens(catalog: Catalog) -> None:
    """List all tokens by their ids: whose, since when, until when."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "token", "analyst", "role", "made (UTC)", "expires (UTC)", "ended (UTC)", box=None
    )
    for row in _access(catalog).people():
        names = ("id", "analyst", "role", "made", "expires", "ended")
        # Times to the second; a token that has not ended has no third one.
        cells: list[Any] = [Text(str(row[name] or "")[:19]) for name in names]
        table.add_row(*cells)
    Console(highlight=False).print(table)


@app.command("log")
def export_log(
    catalog: Catalog,
    out: Annotated[
        Path | None, typer.Option(help="File to be made; default: standard output.")
    ] = None,
    since: Annotated[str, typer.Option(help="From this date or time (UTC) on.")] = "",
) -> None:
    """Write the audit log as lines of JSON, oldest first: what was asked, never data."""
    import os

    from dptopk._internal.json_text import canonical_json

    lines = (canonical_json(line) for line in _access(catalog).all_lines(since))
    if out is None:
        for line in lines:
            typer.echo(line)
        return
    number = os.open(out, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
