"""``dptopk ledger migrate`` and ``witness``: move a ledger, or its head, to another place."""

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

# The line of a catalog that names its ledger: before the first table, as text in quotes. The group
# is the text with its quotes.
_LEDGER_LINE = re.compile(r"""^ledger[ \t]*=[ \t]*("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


def migrate(
    chain: Chain,
    old: Annotated[str, typer.Argument(help="A ledger of any format: path or URL.")],
    new: Annotated[Path, typer.Argument(help="The new ledger, a file that is not there yet.")],
    catalog: Annotated[
        Path | None, typer.Option(help="A service's catalog that names OLD: it then names NEW.")
    ] = None,
) -> None:
    """Make a ledger of today's format with all that OLD holds, and retire OLD. First stop every
    program that has OLD open.
    """
    from dptopk.ledger.ledger import Ledger

    # Before the migration, because a catalog that cannot be read or changed is refused.
    new_catalog = "" if catalog is None else _catalog_text_with(catalog, old, new)
    head = Ledger.migrate(old, new, key=chain.secret(old), head_file=chain.head_file)
    typer.echo(
        f"{new} has all {head['seq']} entries, keys and answers. {old} can be read, and is never "
        "written to again."
    )
    if chain.head_file is not None:
        typer.echo(f"The head in {Path(chain.head_file).name!r} is that of the new ledger.")
    if catalog is not None:
        _replace_text(catalog, new_catalog)
        typer.echo(f"{catalog.name} names the new ledger: dptopk serve {catalog.name} --check")


def witness(
    act: Annotated[
        Literal["attach", "move", "replace"],
        typer.Argument(
            help="attach: store the head at --head-file from now on; move: from --head-file to "
            "--to; replace: store it at --head-file in place of one that is lost."
        ),
    ],
    book: Book,
    reason: Annotated[str, typer.Option(help="Why; the ledger records it.")],
    to: Annotated[
        str | None, typer.Option(help="With move: the new place, a file or a database URL.")
    ] = None,
) -> None:
    """Say where the head of a ledger (number and hash of its last entry) is stored. From then on
    the ledger grants nothing without it.
    """
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


def _catalog_text_with(catalog: Path, old: str, new: Path) -> str:
    """Return the text of a catalog in which the path of the old ledger is replaced by the new one.

    A catalog that names the new ledger already is returned as it is: a migration that was
    interrupted is being completed.

    Args:
        catalog: the catalog's file.
        old: path or URL of the old ledger.
        new: the file of the new one.

    Raises:
        InvalidParameter: when the catalog cannot be read, or does not name the old ledger.
    """
    from dptopk.service.catalog_file import text_of

    try:
        text = text_of(catalog)
    except InvalidParameter as error:
        raise InvalidParameter(f"--catalog: cannot read {catalog.name!r}") from error
    before_tables, _, _ = text.partition("\n[")
    line = _LEDGER_LINE.search(before_tables)
    if line is None:
        raise InvalidParameter(f"--catalog: {catalog.name!r} does not name this ledger in a line")
    ledger = line[1][1:-1]  # without its quotes
    if "://" not in ledger:
        ledger = os.path.realpath(catalog.parent / ledger)
    if ledger == os.path.realpath(new):
        return text
    if ledger not in {old, os.path.realpath(old)}:
        raise InvalidParameter(f"--catalog: {catalog.name!r} does not name this ledger in a line")
    quoted_path = json.dumps(os.path.realpath(new), ensure_ascii=False)
    return text[: line.start(1)] + quoted_path + text[line.end(1) :]


def _replace_text(catalog: Path, text: str) -> None:
    """Replace the text of a catalog, completely or not at all, and keep the file's permissions.

    Raises:
        InvalidParameter: if it cannot be written.
    """
    file = catalog.resolve()  # a link may lead to another disk, and stays a link
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.chmod(file.stat().st_mode & 0o777)
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InvalidParameter(f"--catalog: {catalog.name!r}: {error.strerror}") from None
