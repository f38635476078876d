"""The contract of an engine that reads files itself: each check is a clause, tested on small files in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dptopk.datasets.backends.contract import Broken, agree
from dptopk.datasets.backends.opening import Engine
from dptopk.datasets.events import events_histogram
from dptopk.errors import InvalidParameter

MALFORMED = {
    "Latin-1": b"u,i\na,caf\xe9\nb,caf\xe8\n",
    "mixed ends of lines": b"u,i\r\na,x\nb,y\r\n",
    "a mixed end in the last line": b"u,i\na,x\nb,y\r\n",
    "too few cells": b"u,i\na\nb,y\n",
    "too many cells": b"u,i\na,x,z\nb,y\n",
    "a quote within a cell": b'u,i\na,"x"y\nb,y\n',
    "an empty first line": b"\nu,i\na,x\n",
    "empty first lines that end in CRLF": b"\r\n\r\nu,i\r\na,x\r\n",
}


def _counts(engine: Engine, table: Any) -> dict[Any, int]:
    found = events_histogram(table, user="u", item="i", labels_per_user=5, engine=engine)
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


def columns_are_read_by_name(engine: Engine, folder: Path) -> None:
    """Files of one glob may have their columns in another order; each cell belongs to the column of its own header."""
    for name, text in {"1": "u,i\na,x\nb,x\n", "2": "i,u\nx,a\nz,a\n", "3": "u,i\nc,x\n"}.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    agree(_counts(engine, folder / "*.csv"), {"x": 3, "z": 1}, "the histogram of three files")


def malformed_text_is_refused(engine: Engine, folder: Path) -> None:
    """A text file is UTF-8, its first line names the columns, its lines end alike and have one cell a column."""
    for what, content in MALFORMED.items():
        (folder / "events.csv").write_bytes(content)
        try:
            found = _counts(engine, folder / "events.csv")
        except InvalidParameter:
            continue
        raise Broken(f"a file with {what} gave {found}")


def files_are_those_of_the_start(engine: Engine, folder: Path) -> None:
    """A file that comes later is not read, and one that changes between two statements is refused."""
    (folder / "1.csv").write_text("u,i\na,x\n", encoding="utf-8")
    with engine.open(folder / "*.csv", columns=None, table_name=None) as source:
        (folder / "2.csv").write_text("u,i\nb,x\n", encoding="utf-8")
        agree(source.run(source.table).num_rows, 1, "rows after a second file came")
        (folder / "1.csv").write_text("u,i\na,x\nb,x\n", encoding="utf-8")
        try:
            found = source.run(source.table)
        except InvalidParameter:
            return
    raise Broken(f"a file that changed gave {found.num_rows} rows")


FILE_CHECKS: tuple[Callable[[Engine, Path], None], ...] = (
    columns_are_read_by_name,
    malformed_text_is_refused,
    files_are_those_of_the_start,
)
