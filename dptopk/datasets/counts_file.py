"""Read a table of labels and counts from a CSV, Parquet or JSON-lines file."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dptopk.datasets.backends.readable import file_of_stored_types, with_values_of_python
from dptopk.datasets.text_files import (
    TEXT_ENDINGS,
    TextFormat,
    hint_of_columns,
    known_encoding,
    known_separator,
    refuse_workbook,
    rows,
    text_format,
)
from dptopk.errors import InvalidParameter
from dptopk.histogram.counts import LARGEST_COUNT, counts_of_table, whole_counts
from dptopk.histogram.labels import identity, is_missing

if TYPE_CHECKING:
    from types import ModuleType

    import pandas as pd


Rows = TypeVar("Rows")
# How programs write a count that is missing, as of a label that nobody has.
_NO_COUNT = ["", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "\\N"]


@dataclass(frozen=True)
class _File:
    """A file of counts, and how it is read.

    Attributes:
        path, label, count, where, decimal: as for ``read_counts``; ``columns_of``, which reads no
            column, has "" for label and count.
        separator, encoding: those that are stated; None: the header line decides.
    """

    path: Path
    label: str
    count: str
    separator: str | None
    encoding: str | None
    where: Mapping[str, str]
    decimal: str = "."

    @property
    def columns(self) -> list[str]:
        """Return the columns that are read, each once: label, count and those of conditions."""
        return list(dict.fromkeys([self.label, self.count, *self.where]))

    @property
    def kind(self) -> str:
        """Return the ending that tells the format in lower case, without that of a compression."""
        path = self.path
        if path.suffix.lower() == ".gz":
            path = Path(path.stem)
        return path.suffix.lower()


def _csv_table(file: _File) -> pd.DataFrame:
    """Return the columns of a text file that are read; labels and values of conditions are text.
    Without a column of labels or of counts the frame has the file's column names and no rows.
    """
    import pandas as pd

    file_format = _text_format(file)
    _refuse_repeated_columns(file, file_format)
    if not {file.label, file.count} <= set(file_format.names):
        # The caller refuses the missing column.
        return pd.DataFrame(columns=list(file_format.names))
    text = _csv_of_columns(file, file_format)
    # Labels are text as written ("null", "NA" and "007" are labels).
    frame = _read_csv(text, file, dict.fromkeys([file.label, *file.where], str))
    if frame[file.count].dtype.kind not in "iu":
        # One count that is written as 3.0 made floats of all, which are not exact beyond 2^53, and
        # one that is missing or of more than 64 bits perhaps texts.
        text.seek(0)
        cells = _read_csv(text, file, {file.count: str})[file.count]
        numbers = [_number(cell, file.decimal) for cell in cells]
        if _NO_NUMBER not in numbers:
            frame[file.count] = pd.Series(numbers, dtype=object)
    return frame


def _read_csv(text: io.StringIO, file: _File, types: Mapping[str, type]) -> pd.DataFrame:
    """Return the columns of a CSV text; of those in ``types`` with that type, of others with the
    one that pandas finds.
    """
    import pandas as pd

    return pd.read_csv(
        text,
        dtype=dict(types),
        index_col=False,
        decimal=file.decimal,
        keep_default_na=False,
        na_values={file.count: _NO_COUNT},
    )


_NO_NUMBER = "no number"  # what ``_number`` returns for such a cell


def _number(text: object, decimal: str) -> int | float | str | None:
    """Return the number in a cell of counts; None if it is missing, ``_NO_NUMBER`` if it is none.

    Args:
        text: the cell; what is no text is missing.
        decimal: the decimal mark.
    """
    if not isinstance(text, str):
        return None
    if not text.isascii() or "_" in text:  # of which Python would make a number too
        return _NO_NUMBER
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return _NO_NUMBER


def _text_format(file: _File) -> TextFormat:
    """Return the separator, the encoding and the header of a text file.

    Raises:
        InvalidParameter: as ``text_format``, with the argument's name here.
    """
    column_names = [column for column in file.columns if column]  # ``columns_of`` names none: ""
    stated = {"separator": file.separator, "encoding": file.encoding}
    try:
        return text_format(file.path, column_names, **stated)
    except InvalidParameter as error:
        raise InvalidParameter(f"source{str(error).removeprefix('table')}") from None


def _csv_of_columns(file: _File, file_format: TextFormat) -> io.StringIO:
    """Return the columns that are read, as CSV with commas.

    Lines without a label are left out, such as the ";;" that spreadsheets write below a table, and
    the mark that ends a file of DOS.
    """
    present = [name for name in file.columns if name in file_format.names]
    label = file_format.names.index(file.label)
    count = file_format.names.index(file.count)
    # There are two columns at least, so that a getter returns a tuple.
    cells_of = itemgetter(*(file_format.names.index(name) for name in present))
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(present)
    for row in rows(file.path, file_format):
        is_end_mark = row[label] == "\x1a" and not row[count]
        if row[label] and not is_end_mark:
            writer.writerow(cells_of(row))
    text.seek(0)
    return text


def _refuse_repeated_columns(file: _File, file_format: TextFormat) -> None:
    """Refuse a header that names one of these columns twice: pandas would take the first and rename
    the other.

    Raises:
        InvalidParameter: naming the column.
    """
    for column in file.columns:
        if file_format.names.count(column) > 1:
            raise InvalidParameter(f"source: {file.path.name!r} has two columns {column!r}")


def _pyarrow() -> ModuleType:
    """Return pyarrow's module for Parquet files.

    Raises:
        InvalidParameter: if pyarrow is not installed.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidParameter(
            "source: reading Parquet needs pyarrow: pip install 'dptopk[data]'"
        ) from None
    return pq


def _parquet_table(file: _File) -> pd.DataFrame:
    """Return the columns of a Parquet file, as far as it has them; a label or a value of a
    condition that cannot be read is missing.

    Raises:
        InvalidParameter: for labels of a type that is never one.
    """
    import pyarrow as pa

    pq = _pyarrow()
    schema = pq.read_schema(file.path)
    present = [name for name in file.columns if name in schema.names]
    has_dictionaries = any(pa.types.is_dictionary(schema.field(name).type) for name in present)
    open_file = file_of_stored_types if has_dictionaries else pq.ParquetFile
    with open_file(file.path) as source:
        table = source.read(columns=present)
    if file.label in present and pa.types.is_nested(table.schema.field(file.label).type):
        raise InvalidParameter("label: labels must be hashable")
    # One missing value would make all the integers of a column floats, and so other labels and
    # other conditions.
    return with_values_of_python(table).to_pandas(integer_object_nulls=True, ignore_metadata=True)


def _integer(digits: str) -> int | None:
    """Return the integer that JSON writes with these digits; None if Python reads no number of so
    many.
    """
    try:
        return int(digits)
    except ValueError:
        return None


def _scalar(value: object) -> object:
    """Return a value that JSON holds in a cell; None for a list or an object, which is no label."""
    return None if isinstance(value, list | dict) else value


def _json_rows(file: _File) -> Iterator[dict[str, Any]]:
    """Yield the rows of JSON lines.

    Python's parser returns labels as they are written; that of pandas guesses at dates and numbers.
    """
    import json

    # A mark of byte order, which UTF-8 may begin with, is no part of the first line.
    encoding = "utf-8-sig" if file.encoding in {None, "utf-8"} else file.encoding
    opener = gzip.open if file.path.suffix.lower() == ".gz" else open
    with opener(file.path, "rt", encoding=encoding) as lines:
        yield from (json.loads(line, parse_int=_integer) for line in lines if line.strip())


def _json_table(file: _File) -> pd.DataFrame:
    """Return the columns of JSON lines, as far as a row has them; a missing cell is None.

    Raises:
        ValueError: if a line is not an object.
    """
    import pandas as pd

    rows = list(_json_rows(file))
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a table")
    columns = {}
    for name in file.columns:
        # Without rows no column is missing: an empty file is a table without rows.
        if not rows or any(name in row for row in rows):
            columns[name] = pd.Series([_scalar(row.get(name)) for row in rows], dtype=object)
    return pd.DataFrame(columns)


# Ending of a file's name -> the function that reads its columns.
_READERS: dict[str, Callable[[_File], pd.DataFrame]] = {
    **dict.fromkeys(TEXT_ENDINGS, _csv_table),
    **dict.fromkeys((".parquet", ".pq"), _parquet_table),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_table),
}
# Ending of a file's name -> the function that reads the names of its columns.
_COLUMN_NAME_READERS: dict[str, Callable[[_File], Iterable[str]]] = {
    **dict.fromkeys(TEXT_ENDINGS, lambda file: _text_format(file).names),
    **dict.fromkeys((".parquet", ".pq"), lambda file: _pyarrow().read_schema(file.path).names),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), lambda file: next(_json_rows(file), {})),
}
# The endings of files that are no list of public labels; such a list may be a .txt.
_ENDINGS_OF_TABLES = {*_READERS, ".gz", ".store"} - {".txt"}
# The formats that may be compressed with gzip.
_COMPRESSED = (*TEXT_ENDINGS, ".jsonl", ".ndjson", ".json")


def columns_of(
    path: str | Path, *, separator: str | None = None, encoding: str | None = None
) -> list[str]:
    """Return the names of the columns of a file that read_counts takes.

    No row is read but the first of JSON lines. A column without a name, such as the row numbers
    that pandas writes, is left out.

    Args:
        path: the file.
        separator: as for ``read_counts``.
        encoding: as for ``read_counts``.

    Raises:
        InvalidParameter: when the file cannot be read.
    """
    file = _File(Path(path), "", "", separator, encoding, {})
    names = _COLUMN_NAME_READERS.get(file.kind)
    if names is None:
        refuse_workbook(file.path)
        raise InvalidParameter(
            f"source must end in one of {', '.join(_COLUMN_NAME_READERS)}; got {file.path.name!r}"
        )
    columns = []
    for name in _read_with(names, file):
        is_nan = name != name  # noqa: PLR0124 - a Parquet file of pandas may have such a name
        if not is_nan and name != "":
            columns.append(str(name))
    return columns


def read_counts(
    path: str | Path,
    *,
    label: str,
    count: str,
    separator: str | None = None,
    encoding: str | None = None,
    decimal: str = ".",
    where: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Return the labels in a file and their counts.

    The ending tells the format: .csv, .tsv, .txt (text with separators), .parquet, .jsonl, .ndjson,
    .json. The counts of all rows of a label are added up, so that the caps on one user hold for
    these sums. Rows without a label are left out, and a missing count (NULL, NaN, in text files
    also NA or an empty cell) is 0. Both may depend on one user, and are no error.

    Args:
        path: the file; text formats may be compressed (.csv.gz).
        label: the column of labels.
        count: the column of counts; those of 2^62 and more become 2^62 - 1. In text files without
            separators of thousands: "1,000" is refused, since it may be 1, and so the first label
            that reaches 1,000 would decide that the file is.
        separator: the character between the cells of a CSV file; None: the header line decides
            among commas, semicolons, tabs and bars.
        encoding: the encoding of a text file; None: its mark of byte order and its header line
            decide. Bytes that are no UTF-8 are read as cp1252; short rows have empty cells, and of
            long ones the cells beyond the header are left out.
        decimal: "." or ",", the decimal mark of the counts of a text file.
        where: column -> the value that a row must have there, compared as text; None: all rows.

    Returns:
        A data frame with the columns ``label``, distinct and none of them missing or empty, and
        ``count``.

    Raises:
        InvalidParameter: for another decimal mark, one column for both, an unknown encoding or
            separator; when the file does not exist, cannot be read in its format, lacks a column,
            or holds a count that is none. The message never quotes the file's contents.
    """
    file = _File(
        Path(path),
        label,
        count,
        separator=known_separator(separator),
        encoding=known_encoding(encoding),
        where=dict(where or {}),
        decimal=decimal,
    )
    reader = _READERS.get(file.kind)
    # Parquet compresses its columns itself: a file that is compressed as a whole is not read.
    if reader is None or (file.path.suffix.lower() == ".gz" and file.kind not in _COMPRESSED):
        refuse_workbook(file.path)
        endings = ", ".join([*_READERS, *(f"{kind}.gz" for kind in _COMPRESSED)])
        raise InvalidParameter(f"source must end in one of {endings}; got {file.path.name!r}")
    if decimal not in {".", ","}:
        raise InvalidParameter('decimal must be "." or ","', parameter="decimal")
    if label == count:
        raise InvalidParameter(
            f"count must be a different column from label, got {label!r} twice", parameter="count"
        )
    frame = _read_with(reader, file)
    _refuse_missing_columns(frame, file)
    for column, value in file.where.items():
        frame = frame[frame[column].map(str) == value]
    try:
        counts = whole_counts(counts_of_table(frame[count]))
    except InvalidParameter as error:
        raise InvalidParameter(str(error), parameter="count") from None
    return _summed_by_label(frame[label], counts)


def _refuse_missing_columns(frame: pd.DataFrame, file: _File) -> None:
    """Refuse a file without one of the columns that are asked for; the message names those that it
    has.

    Raises:
        InvalidParameter: naming the argument.
    """
    roles_and_columns = [("label", file.label), ("count", file.count)]
    roles_and_columns += [("where", column) for column in file.where]
    for role, column in roles_and_columns:
        if column not in frame.columns:
            present = _read_with(_COLUMN_NAME_READERS[file.kind], file)
            hint = hint_of_columns(column, list(present))
            raise InvalidParameter(
                f"{role}: {file.path.name!r} has no column {column!r}{hint}", parameter=role
            )


def _identity(label: object) -> Any:
    """Return a value that two labels share exactly if they are the same label.

    Raises:
        InvalidParameter: for a label that is not hashable.
    """
    try:
        key = identity(label)
        hash(key)
    except TypeError:
        raise InvalidParameter("label: labels must be hashable") from None
    return key


def _summed_by_label(labels: pd.Series[Any], counts: NDArray[np.int64]) -> pd.DataFrame:
    """Return each label once, with the sum of its counts; rows without a label are left out."""
    import pandas as pd

    sums: dict[Any, int] = {}
    first_spelling: dict[Any, Any] = {}  # identity of a label -> the label as it came first
    for label, count in zip(labels, counts.tolist(), strict=True):
        if type(label) is str:  # the usual case: a text is its own identity
            key = label
        elif is_missing(label):
            continue
        else:
            key = _identity(label)
        if key != "":  # an empty text is no label
            first_spelling.setdefault(key, label)
            sums[key] = sums.get(key, 0) + count
    # A sum that is too large for a histogram is cut, and refuses nothing.
    totals = [min(total, LARGEST_COUNT - 1) for total in sums.values()]
    return pd.DataFrame(
        {
            "label": pd.Series(list(first_spelling.values()), dtype=labels.dtype),
            "count": np.array(totals, dtype=np.int64),
        }
    )


def _read_with(reader: Callable[[_File], Rows], file: _File) -> Rows:
    """Return what a reader returns for a file; its errors become messages that do not quote the
    file.

    Raises:
        InvalidParameter: if the file cannot be read.
    """
    import pandas as pd

    name = file.path.name
    try:
        return reader(file)
    except InvalidParameter:
        raise
    except UnicodeError:
        advice = (
            f"{name!r} is not {file.encoding or 'UTF-8'} text; name its encoding, such as 'latin-1'"
        )
        raise InvalidParameter(advice, parameter="encoding") from None
    except pd.errors.EmptyDataError:
        raise InvalidParameter(
            f"source: {name!r} cannot be read as {file.kind[1:]}: it is empty"
        ) from None
    except OSError as error:
        raise InvalidParameter(
            f"source: cannot open {name!r}: {error.strerror or 'unreadable file'}"
        ) from None
    except (
        ValueError,  # errors of Arrow are of this type too
        ArithmeticError,
        EOFError,  # a compressed file that ends too early
        RecursionError,  # JSON of very deep lists
        pd.errors.ParserError,
    ):
        hint = ""
        if reader is _csv_table:
            hint = ": rows of unequal length, or a quote that is not closed"
        raise InvalidParameter(
            f"source: {name!r} cannot be read as {file.kind[1:]}{hint}"
        ) from None


def read_labels(path: str | Path) -> list[str]:
    """Return the public labels in a text file, one a line; empty lines are skipped.

    Raises:
        InvalidParameter: when the file cannot be read as UTF-8 text, or holds a label twice; for a
            table, such as CSV, whose lines are not labels.
    """
    file = Path(path)
    if not _ENDINGS_OF_TABLES.isdisjoint(suffix.lower() for suffix in file.suffixes):
        raise InvalidParameter(
            f"domain: {file.name!r} is a table; give a text file of labels alone, one a line",
            parameter="domain",
        )
    try:
        # Only line feeds end a line (splitlines would cut labels that hold U+2028 and the like); a
        # mark of byte order is not a part of the first label.
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise InvalidParameter(
            f"domain: cannot open {file.name!r}: {error.strerror or 'unreadable file'}"
        ) from None
    except UnicodeDecodeError:
        raise InvalidParameter(f"domain: {file.name!r} is not UTF-8 text") from None
    labels = [line for line in lines if line]
    if len(set(labels)) < len(labels):
        raise InvalidParameter(f"domain: {file.name!r} holds a label twice")
    return labels
