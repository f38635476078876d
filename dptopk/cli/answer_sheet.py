"""One table of formats for all answers of the command line: of a top k, of segments, of a day."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from rich.console import Console

from dptopk._internal.json_text import readable_json
from dptopk.cli.shell import tell
from dptopk.cli.target import replacement_file, text_file, write
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


# docs/architecture.md, "To add an export format", names each place of a new one.
# The formats that every answer has, those of segments and of streams too.
CommonFormat = Literal["table", "csv", "json"]
# The formats that an answer of one top k has.
Format = Literal[CommonFormat, "html", "markdown", "parquet"]

# Which format a file of a name with this ending holds.
ENDINGS: dict[str, Format] = {
    ".csv": "csv",
    ".json": "json",
    ".html": "html",
    ".htm": "html",
    ".parquet": "parquet",
    ".md": "markdown",
}


class AnswerSheet(ABC):
    """An answer, and all that is written beside it, in each of the formats that it can have.

    Every answer has the formats of CommonFormat. The methods of the others refuse here with
    InvalidParameter; the classes of answers that have such a format define its method.
    """

    @abstractmethod
    def print_to(self, console: Console) -> None:
        """Print the answer as a table for people."""

    @abstractmethod
    def cells(self) -> pd.DataFrame:
        """Return the rows for a spreadsheet; labels that look like formulas are marked as text."""

    @abstractmethod
    def as_dict(self) -> dict[str, object]:
        """Return the answer as a JSON-safe dictionary."""

    def remarks(self) -> list[str]:
        """Return the lines that go to standard error where the format has room for rows alone."""
        return []

    def page(self) -> str:
        """Return the answer as an HTML page.

        Raises:
            InvalidParameter: for an answer that does not have this format.
        """
        raise InvalidParameter(NO_PAGE)

    def markdown(self) -> str:
        """Return the answer as Markdown.

        Raises:
            InvalidParameter: for an answer that does not have this format.
        """
        raise InvalidParameter(NO_PAGE)

    def arrow(self) -> pa.Table:
        """Return the rows as an Arrow table.

        Raises:
            InvalidParameter: for an answer that does not have this format.
        """
        raise InvalidParameter(NO_PAGE)


def common_formats() -> str:
    """Return the formats that every answer has, in words: "table, csv or json"."""
    *others, last = get_args(CommonFormat)
    return f"{', '.join(others)} or {last}"


NO_PAGE = f"--format: this answer is written as {common_formats()}"


def write_sheet(sheet: AnswerSheet, form: Format, out: Path | None) -> None:
    """Write an answer in a format to the file ``out``, or to standard output if that is None.

    Args:
        sheet: the answer.
        form: the format.
        out: the file; None: standard output, which a binary format cannot have.

    Raises:
        InvalidParameter: for a format that this answer does not have.
        OSError: when the file cannot be written.
    """
    SHEET_WRITERS[form](sheet, out)


def _write_table(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the answer as a table for people."""
    with text_file(out) as file:
        sheet.print_to(Console(file=file, highlight=False))


def _write_csv(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the rows as CSV; the remarks go to standard error, so that a pipe does not lose
    them.
    """
    write(sheet.cells().to_csv(index=False), out)
    for line in sheet.remarks():
        tell(line)


def _write_json(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the answer as JSON."""
    write(readable_json(sheet.as_dict()), out)


def _write_html(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the answer as an HTML page."""
    write(sheet.page(), out)


def _write_markdown(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the answer as Markdown."""
    write(sheet.markdown(), out)


def _write_parquet(sheet: AnswerSheet, out: Path | None) -> None:
    """Write the rows as a Parquet file; ``out`` is not None, as ``check_answer`` made sure."""
    import pyarrow.parquet as pq

    table = sheet.arrow()
    assert out is not None  # noqa: S101
    with replacement_file(out) as temporary:
        pq.write_table(table, temporary)


SHEET_WRITERS: dict[Format, Callable[[AnswerSheet, Path | None], None]] = {
    "table": _write_table,
    "csv": _write_csv,
    "json": _write_json,
    "html": _write_html,
    "markdown": _write_markdown,
    "parquet": _write_parquet,
}
