"""``dptopk ledger migrate`` and ``witness``: a ledger or its head goes to another place."""

from __future__ import annotations

import json
import os
import re
import secrets
from pathlib import Path
from typing import Annotated, Literal

import typer

from dptopk.cli.options import Book, Chain
from dptopk.errors import InvalidParameter

# The line of a catalog that names its ledger: before the first table, as text in quotes.
_NAMED = re.compile(r"""^ledger[ \t]*=[ \t]*("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


def migrate(
    chain: Chain,
    old: Annotated[str, typer.Argument(help="A ledger of any format: path or URL.")],
    new: Annotated[Path, typer.Argument(help="The new ledger, a file that is not there yet.")],
    catalog: Annotated[
        Path | None, typer.Option(help="A service's catalog that names OLD: it then names NEW.")
    ] = None,
) -> None:
    """Make a ledger of today's format with all that OLD holds; OLD is retired. Stop its users."""
    from dptopk.ledger.ledger import Ledger

    text = None if catalog is None else _renamed(catalog, old, new)
    head = Ledger.migrate(old, new, key=chain.secret(old), head_file=chain.head_file)
    typer.echo(
        f"{new} has all {head['seq']} entries, keys and answers. {old} can be read, and is never "
        "written to again."
    )
    if chain.head_file is not None:
        typer.echo(f"The head in {Path(chain.head_file).name!r} is that of the new ledger.")
    if catalog is not None and text is not None:
        _replace(catalog, text)
        typer.echo(f"{catalog.name} names it: dptopk serve {catalog.name} --check")


def witness(
    act: Annotated[
        Literal["attach", "move", "replace"],
        typer.Argument(
            help="attach: store the head from now on; move: from --head-file to --to; replace: one "
            "that is lost."
        ),
    ],
    book: Book,
    reason: Annotated[str, typer.Option(help="Why; it is recorded.")],
    to: Annotated[
        str | None, typer.Option(help="With move: the new place, a file or a database URL.")
    ] = None,
) -> None:
    """Say where the head of a ledger is stored; without its head, a ledger grants nothing."""
    from dptopk.ledger.ledger import Ledger

    if book.head_file is None:
        raise InvalidParameter("--head-file: say where the head is stored")
    if (to is not None) != (act == "move"):
        raise InvalidParameter("--to: the new place of the head, with move and with nothing else")
    if to is not None:
        with book.open() as ledger:
            ledger.move_witness(to, reason=reason)
    elif act == "attach":
        Ledger.attach_witness(book.url, book.head_file, reason=reason, key=book.key)
    else:
        Ledger.replace_witness(book.url, book.head_file, reason=reason, key=book.key)
    typer.echo("Recorded. From here on nothing is granted without the head at that place.")


def _renamed(catalog: Path, old: str, new: Path) -> str:
    """The text of a catalog with the path of another ledger.

    Raises:
        InvalidParameter: when it does not name the old one.
    """
    try:
        text = catalog.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidParameter(f"--catalog: cannot read {catalog.name!r}") from error
    head = text.partition("\n[")[0]
    found = _NAMED.search(head)
    named = "ledger.db" if found is None else found[1][1:-1]
    before = named if "://" in named else os.path.realpath(catalog.parent / named)
    if found is not None and before == os.path.realpath(new):
        return text  # by a migration that is being completed
    if found is None or before not in {old, os.path.realpath(old)}:
        raise InvalidParameter(f"--catalog: {catalog.name!r} does not name this ledger in a line")
    path = json.dumps(os.path.realpath(new), ensure_ascii=False)
    return text[: found.start(1)] + path + text[found.end(1) :]


def _replace(catalog: Path, text: str) -> None:
    """Write a catalog anew, whole or not at all."""
    beside = catalog.with_name(f".{catalog.name}.{secrets.token_hex(8)}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.chmod(catalog.stat().st_mode & 0o777)
        beside.replace(catalog.resolve())
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidParameter(f"--catalog: {catalog.name!r}: {error.strerror}") from None
