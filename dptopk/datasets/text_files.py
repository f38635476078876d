"""Text tables as spreadsheets write them: separators, encodings, and rows of unequal length.

The mark of byte order, the header line and the columns that are asked for decide the separator and
the encoding: no user's row decides how the others are read. In a file that its header shows to be
UTF-8, each byte that is no UTF-8 is read as cp1252; bytes that the encoding does not know become
U+FFFD. A short row has empty cells at its end, and a long one loses those beyond the header.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from dptopk._internal.formatting import visible
from dptopk.errors import InvalidParameter

# "Unicode text" of Excel is a .txt with tabs.
TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".tab")
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
_TABBED = (".tsv", ".tab")
_COMPRESSED = (".gz", ".zst")
# Of separators that make equally many columns the first one is taken.
_SEPARATORS = (",", ";", "\t", "|")
_SEPARATORS_IN_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_HEAD = 2**20  # the bytes that are read at a time
LONGEST_LINE = 2**28  # the most bytes of a row of a text file
_MOST_LISTED = 20  # the most columns that a message lists
# Excel writes the separator into a line of its own before the header, LibreOffice in quotes.
_SEPARATOR_LINE = re.compile('("?)sep=(.)\\1\r?\n?', re.IGNORECASE)


@dataclass(frozen=True)
class TextFile:
    """A text file of events whose separator or encoding is stated; for a path alone the header line
    decides.

    Attributes:
        path: a CSV or TSV file, or a glob of such files.
        separator: the character between the cells; None: the header line decides.
        encoding: the encoding, such as "cp1252"; None: the mark of byte order and the header line
            decide.

    Raises:
        InvalidParameter: for a separator that is not one character, or an unknown encoding.
    """

    path: str | Path
    separator: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "separator", known_separator(self.separator))
        object.__setattr__(self, "encoding", known_encoding(self.encoding))


@dataclass(frozen=True)
class TextFormat:
    """The format of a text file.

    Attributes:
        separator: the character between two cells.
        encoding: Python's name of the encoding.
        names: the cells of the header line.
        skipped: how many lines come before the header: empty ones, and one that states "sep=".
    """

    separator: str
    encoding: str
    names: tuple[str, ...]
    skipped: int

    @property
    def is_plain(self) -> bool:
        """Return whether the file is UTF-8 text that begins with its header."""
        return self.encoding in {"utf-8", "utf-8-sig"} and not self.skipped

    def in_words(self) -> str:
        """Return the format in words, such as "cells between semicolons, encoding utf-16"."""
        between = _SEPARATORS_IN_WORDS.get(self.separator, repr(self.separator))
        return f"cells between {between}, encoding {self.encoding.removesuffix('-sig')}"


def _as_cp1252(error: UnicodeError) -> tuple[str, int]:
    """Return the text for bytes that cannot be decoded, and where to go on, as ``codecs`` asks of
    an error handler.

    In UTF-8 it is that of cp1252, as far as that has a character. Only these bytes decide, so that
    no row decides how another one is read.

    Raises:
        UnicodeError: the error itself, where a text cannot be encoded.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    undecodable = error.object[error.start : error.end]
    if error.encoding.startswith("utf-8"):
        return undecodable.decode("cp1252", errors="replace"), error.end
    return "\ufffd", error.end


_ODD_BYTES = "dptopk.cp1252"
codecs.register_error(_ODD_BYTES, _as_cp1252)


def format_ending(path: str | Path) -> str:
    """Return the ending of a file's name that tells its format, in lower case: the last one that is
    not of a compression; "" if there is none.
    """
    endings = [suffix.lower() for suffix in Path(path).suffixes]
    of_formats = [ending for ending in endings if ending not in _COMPRESSED]
    return of_formats[-1] if of_formats else ""


def is_text_file(path: str | Path) -> bool:
    """Return whether the ending of a file's name says that it is a text table."""
    return format_ending(path) in TEXT_ENDINGS


def is_tabbed(path: str | Path) -> bool:
    """Return whether the ending of a file's name says that tabs separate its cells."""
    return format_ending(path) in _TABBED


def known_encoding(encoding: str | None) -> str | None:
    """Return Python's name of an encoding; None stays None.

    Raises:
        InvalidParameter: when there is no such encoding.
    """
    if encoding is None:
        return None
    try:
        name = codecs.lookup(encoding).name
        str(b"", name)  # refuses a codec between bytes, such as hex, which makes no text
    except (LookupError, ValueError, TypeError):
        raise InvalidParameter(
            f"encoding: {encoding!r} is not known", parameter="encoding"
        ) from None
    return name


def known_separator(separator: str | None) -> str | None:
    r"""Return the character between two cells; "\t" and "tab" stand for a tab, None stays None.

    Raises:
        InvalidParameter: when it is not one character, or one that cannot separate cells.
    """
    character = "\t" if separator in {"\\t", "tab"} else separator
    if character is not None and (len(character) != 1 or character in '"\r\n\0'):
        raise InvalidParameter(
            "separator must be a character, and no quote or end of line", parameter="separator"
        )
    return character


def text_format(
    path: str | Path,
    columns: Sequence[str] = (),
    *,
    separator: str | None = None,
    encoding: str | None = None,
) -> TextFormat:
    """Return how a text file is read, by its mark of byte order and its header line.

    Args:
        path: a text file, which may be compressed (.gz, .zst).
        columns: the columns that are asked for: a separator with which the header has them all is
            the right one; otherwise it is the one that makes the most columns.
        separator: the separator as stated; None: it is found.
        encoding: the encoding as stated; None: it is found.

    Raises:
        InvalidParameter: when the header line is empty.
        OSError: when the file cannot be read.
    """
    with closing(_open_bytes(path)) as stream:
        head = stream.read(_HEAD)
    coding = encoding or _encoding(head)
    text = head.decode(coding, errors="replace").removeprefix("\ufeff")
    lines, stated_in_file = _lines_before_header(text)
    text = text[sum(map(len, lines)) :]
    if not text:
        raise InvalidParameter(f"table: {Path(path).name!r} has no line that names the columns")
    separator = separator or stated_in_file
    if separator is None:
        separator = _separator(text, columns, is_tsv=is_tabbed(Path(path)))
    return TextFormat(separator, coding, _cells(text, separator), len(lines))


def _lines_before_header(text: str) -> tuple[list[str], str | None]:
    """Return the lines before the header, which are empty or state "sep=", and the separator that
    the first such statement names; None: there is none.
    """
    lines = list[str]()
    separator = None
    for line in io.StringIO(text, newline=""):
        separator_line = _SEPARATOR_LINE.fullmatch(line)
        if separator_line and separator is None:
            separator = separator_line[2]
        if not separator_line and line.strip():
            break
        lines.append(line)
    return lines, separator


def rows(path: str | Path, file_format: TextFormat) -> Iterator[list[str]]:
    """Yield the rows below the header, each with one cell for each column.

    Lines without any cell are left out, and rows whose cells have more than LONGEST_LINE bytes. No
    shorter row is left out: an engine may read the same file itself, and whether it can depends on
    the rows of others.

    Args:
        path: a text file, which may be compressed.
        file_format: its format, as ``text_format`` finds it.
    """
    # The csv module reads cells of 131,072 characters, with one limit for the whole process.
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))
    with closing(_open_bytes(path)) as stream:
        text = io.TextIOWrapper(stream, file_format.encoding, errors=_ODD_BYTES, newline="")
        for _ in range(file_format.skipped):
            text.readline()
        lines = _with_engine_quotes(text, file_format.separator)
        reader = csv.reader(lines, delimiter=file_format.separator)
        columns = len(file_format.names)
        is_header = True
        while True:
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:  # a row without cells that can be read, as of a cell beyond the limit
                continue
            # A character has at most four bytes, so that few rows have to be encoded.
            may_be_too_long = 4 * sum(map(len, row)) > LONGEST_LINE
            is_too_long = may_be_too_long and _bytes_of(row) > LONGEST_LINE
            if row and not is_header and not is_too_long:
                empty_cells = [""] * (columns - len(row))
                yield row[:columns] + empty_cells
            is_header = False


def _bytes_of(row: Sequence[str]) -> int:
    """Return how many bytes the cells of a row have in UTF-8."""
    return sum(len(cell.encode(errors="replace")) for cell in row)


# The quote that opens a cell, what is quoted up to the next single quote, and blanks after it.
_OPENING = re.compile(' ?"')
_QUOTED = re.compile('[^"]*(?:""[^"]*)*')
_BLANKS = re.compile(" *")


def _with_engine_quotes(lines: Iterable[str], separator: str) -> Iterator[str]:
    """Yield the lines of a table, changed so that the csv module reads quotes as DuckDB does.

    DuckDB leaves out a blank before a quoted cell and all blanks after it, as in 'a, "b"', and
    continues the same cell if another quote follows the blanks.
    """
    unquoted_cell = re.compile(f"[^{re.escape(separator)}\\r\\n]*")
    ends = separator + "\r\n"
    is_inside = False  # whether the line before ended within a quoted cell
    for line in lines:
        if not is_inside and '"' not in line:
            yield line
            continue
        pieces = list[str]()
        place = 0
        while place < len(line):
            # A cell begins at ``place``, or a quoted one goes on.
            opening = None if is_inside else _OPENING.match(line, place)
            if opening:
                pieces.append('"')
                place = opening.end()
                is_inside = True
            if is_inside:
                part = _quoted_part(line, place, ends)
                pieces.append(part.text)
                place = part.end
                is_inside = part.is_open
            if is_inside:
                continue
            # What is not quoted, up to the separator and with it.
            end = _match_end(unquoted_cell, line, place) + 1
            pieces.append(line[place:end])
            place = end
        yield "".join(pieces)


@dataclass(frozen=True)
class _QuotedPart:
    """A part of a quoted cell, up to its next quote and with it.

    Attributes:
        text: the part.
        end: the place after it in the line.
        is_open: whether the cell goes on there: in this line, as after a quote that only blanks
            separate from the next one, or in the next line.
    """

    text: str
    end: int
    is_open: bool


def _quoted_part(line: str, place: int, ends: str) -> _QuotedPart:
    """Return the part of a quoted cell that begins at a place of a line.

    Args:
        line: the line.
        place: where the part begins in it.
        ends: the characters that end a cell: the separator and those of the end of a line.
    """
    end = _match_end(_QUOTED, line, place)
    after = _match_end(_BLANKS, line, end + 1)
    next_character = line[after : after + 1]
    if next_character == '"':  # the cell goes on with the blanks
        return _QuotedPart(line[place:end] + line[end + 1 : after], after + 1, is_open=True)
    if end == len(line):  # no quote follows in this line
        return _QuotedPart(line[place:], end, is_open=True)
    # Blanks before a separator or the end of the line are left out.
    following = after if next_character in ends else end + 1
    return _QuotedPart(line[place : end + 1], following, is_open=False)


def _match_end(pattern: re.Pattern[str], line: str, place: int) -> int:
    """Return where the match of a pattern at a place of a line ends; the place itself without a
    match.
    """
    match = pattern.match(line, place)
    if match is None:
        return place
    return match.end()


def _encoding(head: bytes) -> str:
    """Return the encoding of a file by its first bytes: that of its mark, or one that its header
    line can have.
    """
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    line = _header_line(head)
    # In UTF-16 without a mark a letter of ASCII has a zero byte before or after it.
    if b"\0" in line[:2]:
        if line.startswith(b"\0"):
            return "utf-16-be"
        return "utf-16-le"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _header_line(head: bytes) -> bytes:
    """Return the bytes up to the end of the first line that is neither empty nor "sep="."""
    # Each byte is one character of Latin-1.
    lines = ""
    for line in io.TextIOWrapper(io.BytesIO(head), "latin-1", newline=""):
        lines += line
        if line.strip("\r\n\0 ") and not _SEPARATOR_LINE.fullmatch(line):
            break
    return lines.encode("latin-1")


def has_lone_returns(path: str | Path) -> bool:
    """Return whether a text file in UTF-8 has a carriage return without a line feed.

    DuckDB may leave out a blank that follows it, and the csv module does not.
    """
    with closing(_open_bytes(path)) as stream:
        # A return at the end of a chunk, whose line feed may be in the next one.
        pending_return = b""
        chunk = stream.read(_HEAD)
        while chunk:
            text = pending_return + chunk
            pending_return = b"\r" if text.endswith(b"\r") else b""
            # Most files have no return at all, and two counts take ten times as long.
            has_returns = b"\r" in text
            if has_returns and text.count(b"\r") - len(pending_return) > text.count(b"\r\n"):
                return True
            chunk = stream.read(_HEAD)
    return bool(pending_return)


def _separator(text: str, columns: Sequence[str], *, is_tsv: bool) -> str:
    """Return the separator with which the header has the columns wanted, or else the most columns;
    of several the first one, which in a TSV file is the tab.

    Args:
        text: the file from its header line on.
        columns: the columns wanted; empty: any.
        is_tsv: whether the file's name says that tabs separate its cells.
    """
    order = list(_SEPARATORS)
    if is_tsv:
        order.remove("\t")
        order.insert(0, "\t")
    headers = {separator: _cells(text, separator) for separator in order}
    for separator, names in headers.items():
        if columns and set(columns) <= set(names):
            return separator
    return max(order, key=lambda separator: len(headers[separator]))


def _cells(text: str, separator: str) -> tuple[str, ...]:
    """Return the cells of the first line; the whole line if the csv module cannot divide it."""
    try:
        lines = _with_engine_quotes(io.StringIO(text, newline=""), separator)
        return tuple(next(csv.reader(lines, delimiter=separator)))
    except (csv.Error, StopIteration):
        return (text.splitlines()[0],)


def _open_bytes(path: str | Path) -> IO[bytes]:
    """Return the bytes of a file, decompressed, as a stream."""
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        return cast("IO[bytes]", gzip.open(path, "rb"))
    if suffix == ".zst":
        from pyarrow import input_stream

        return cast("IO[bytes]", input_stream(str(path)))
    return Path(path).open("rb")


def refuse_workbook(path: Path) -> None:
    """Refuse a workbook of a spreadsheet program, which holds many tables.

    Raises:
        InvalidParameter: saying what to do.
    """
    if path.suffix.lower() in WORKBOOKS:
        raise InvalidParameter(
            f"source: {path.name!r} is a workbook; save the sheet that you need as CSV"
        )


def hint_of_columns(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a missing column: the columns that there are, and which of
    them may be meant.

    Args:
        name: the name that is none of them.
        names: the names of the columns.
    """
    from difflib import get_close_matches

    column_names = [f"'{visible(other)}'" for other in names if str(other)]
    more = ""
    if len(column_names) > _MOST_LISTED:
        more = f", and {len(column_names) - _MOST_LISTED} more"
    # In reverse order: of names that are alike but for case, the first one is proposed.
    folded = {str(other).strip().casefold(): str(other) for other in reversed(names)}
    close_names = get_close_matches(name.strip().casefold(), list(folded), n=1)
    nearest = ""
    if close_names:
        nearest = f"; did you mean {visible(folded[close_names[0]])!r}?"
    if len(column_names) == 1 and not nearest:
        nearest = " alone; the first line of the file must name the columns"
    if column_names:
        return f"; it has {', '.join(column_names[:_MOST_LISTED])}{more}{nearest}"
    return ""
