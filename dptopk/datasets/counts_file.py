"""Read a table of labels and counts from a CSV, Parquet or JSON-lines file."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dptopk.errors import InvalidParameter
from dptopk.histogram.counts import LARGEST_COUNT, whole_counts
from dptopk.histogram.labels import identity, missing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class _File:
    """A file of counts, and how to read it."""

    path: Path
    label: str
    count: str
    separator: str | None
    encoding: str
    where: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """All columns that are looked at."""
        return list(dict.fromkeys([self.label, self.count, *self.where]))

    @property
    def kind(self) -> str:
        """The ending that tells the format, without that of a compression."""
        path = Path(self.path.stem) if self.path.suffix.lower() == ".gz" else self.path
        return path.suffix.lower()


def _csv(file: _File) -> pd.DataFrame:
    import warnings

    import pandas as pd

    # Labels are text as written ("null", "NA" and "007" are labels); only an empty count is missing. A row with more
    # cells than the header has must not shift its columns (index_col), nor lose cells with a mere warning.
    separator = file.separator or ("\t" if file.kind == ".tsv" else ",")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            _one_of_each(file, separator)
            return pd.read_csv(
                file.path,
                sep=separator,
                encoding=file.encoding,
                dtype=dict.fromkeys([file.label, *file.where], str),
                index_col=False,
                keep_default_na=False,
                na_values={file.count: [""]},
            )
        except pd.errors.ParserWarning:
            raise ValueError("rows longer than the header") from None


def _one_of_each(file: _File, separator: str) -> None:
    """Refuse a header that names a column twice: pandas would take the first and rename the other.

    Raises:
        InvalidParameter: naming the column.
    """
    header = _header(file, separator)
    for column in file.columns:
        if header.count(column) > 1:
            raise InvalidParameter(f"source: {file.path.name!r} has two columns {column!r}")


def _header(file: _File, separator: str) -> list[str]:
    """The cells of the first line of a text file."""
    import pandas as pd

    first = pd.read_csv(file.path, sep=separator, encoding=file.encoding, dtype=str, header=None, nrows=1)
    return list(first.iloc[0])


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidParameter("source: reading Parquet needs pyarrow: pip install 'dptopk[data]'") from None
    return pq


def _parquet(file: _File) -> pd.DataFrame:
    pq = _pyarrow()
    present = pq.read_schema(file.path).names
    table = pq.read_table(file.path, columns=[name for name in file.columns if name in present])
    # One missing value would make all the integers of a column floats, and so other labels and other conditions.
    return table.to_pandas(integer_object_nulls=True, ignore_metadata=True)


def _rows(file: _File) -> Iterator[Any]:
    """The rows of JSON lines: the standard parser keeps labels as written, pandas guesses at dates and numbers."""
    import json

    encoding = "utf-8-sig" if file.encoding.lower() in {"utf-8", "utf8"} else file.encoding
    opener = gzip.open if file.path.suffix.lower() == ".gz" else open
    with opener(file.path, "rt", encoding=encoding) as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def _json_lines(file: _File) -> pd.DataFrame:
    import pandas as pd

    rows = list(_rows(file))
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a table")
    present = [name for name in file.columns if not rows or any(name in row for row in rows)]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in present})


_READERS: dict[str, Callable[[_File], pd.DataFrame]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys((".parquet", ".pq"), _parquet),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _json_lines),
}
# The names of a file's columns.
_NAMES: dict[str, Callable[[_File], Any]] = {
    **dict.fromkeys((".csv", ".tsv"), lambda file: _header(file, "\t" if file.kind == ".tsv" else ",")),
    **dict.fromkeys((".parquet", ".pq"), lambda file: _pyarrow().read_schema(file.path).names),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), lambda file: next(_rows(file), {})),
}
_TABLES = {*_READERS, ".gz", ".store"}
_COMPRESSED = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")


def columns_of(path: str | Path) -> list[str]:
    """The names of the columns of a file that read_counts takes; no row is read but the first of JSON lines.

    A column without a name, such as the row numbers that pandas writes, is left out.

    Raises:
        InvalidParameter: when the file cannot be read.
    """
    file = _File(Path(path), "", "", None, "utf-8", {})
    names = _NAMES.get(file.kind)
    if names is None:
        raise InvalidParameter(f"source must end in one of {', '.join(_NAMES)}; got {file.path.name!r}")
    return [str(name) for name in _read(names, file) if name == name and name != ""]  # noqa: PLR0124 - NaN: no name


def read_counts(
    path: str | Path,
    *,
    label: str,
    count: str,
    separator: str | None = None,
    encoding: str = "utf-8",
    where: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The labels in a file and their counts; the ending tells the format: .csv, .tsv, .parquet, .jsonl, .ndjson, .json.

    The counts of all rows of a label are added up, so what one user moves is what the user moves in these sums. Rows
    without a label are left out. Both may depend on one user, and are no error.

    Args:
        path: the file; text formats may be compressed (.csv.gz).
        label: column of labels.
        count: column of counts.
        separator: between the cells of a CSV file; None = a comma, or a tab in a .tsv file.
        encoding: of a text file.
        where: keep only rows in which these columns hold these values, compared as text.

    Returns:
        A data frame with the columns ``label``, distinct and none of them missing or empty, and ``count``.

    Raises:
        InvalidParameter: when the file does not exist, cannot be read in its format, lacks a column, or holds a count
            that is none. The message never quotes the file's contents.
    """
    file = _File(Path(path), label, count, separator, _known(encoding), dict(where or {}))
    name, reader = file.path.name, _READERS.get(file.kind)
    if reader is None or (file.path.suffix.lower() == ".gz" and file.kind not in _COMPRESSED):
        endings = ", ".join([*_READERS, *(f"{kind}.gz" for kind in _COMPRESSED)])
        raise InvalidParameter(f"source must end in one of {endings}; got {name!r}")
    if separator == "":
        raise InvalidParameter("separator must be a character", parameter="separator")
    if label == count:
        raise InvalidParameter(f"count must be a different column from label, got {label!r} twice", parameter="count")
    frame = _read(reader, file)
    for role, column in (("label", label), ("count", count), *(("where", column) for column in file.where)):
        if column not in frame.columns:
            alone = reader is _csv and len(frame.columns) == 1
            hint = "; it has only one column: name the character that separates columns" if alone else ""
            raise InvalidParameter(f"{role}: {name!r} has no column {column!r}{hint}", parameter=role)
    for column, value in file.where.items():
        frame = frame[frame[column].map(str) == value]
    try:
        counts = whole_counts(frame[count])
    except InvalidParameter as error:
        raise InvalidParameter(str(error), parameter="count") from None
    return _added_up(frame[label], counts)


def _added_up(labels: pd.Series[Any], counts: NDArray[np.int64]) -> pd.DataFrame:
    """Each label once, with the sum of its counts."""
    import pandas as pd

    sums: dict[Any, int] = {}
    rows: dict[Any, Any] = {}
    for label, count in zip(labels, counts.tolist(), strict=True):
        if not missing(label) and label != "":
            try:
                same = identity(label)
                rows.setdefault(same, label)
            except TypeError:
                raise InvalidParameter("label: labels must be hashable") from None
            sums[same] = sums.get(same, 0) + count
    found = [min(total, LARGEST_COUNT - 1) for total in sums.values()]  # no sum is too large for a histogram
    return pd.DataFrame(
        {"label": pd.Series(list(rows.values()), dtype=labels.dtype), "count": np.array(found, dtype=np.int64)}
    )


def _read(reader: Callable[[_File], Any], file: _File) -> Any:
    """Read the file, or raise an error whose message does not quote it."""
    import pandas as pd

    name = file.path.name
    try:
        return reader(file)
    except InvalidParameter:
        raise
    except UnicodeError:
        told = f"{name!r} is not {file.encoding} text; name its encoding, such as 'latin-1'"
        raise InvalidParameter(told, parameter="encoding") from None
    except pd.errors.EmptyDataError:
        raise InvalidParameter(f"source: {name!r} cannot be read as {file.kind[1:]}: it is empty") from None
    except OSError as error:
        raise InvalidParameter(f"source: cannot open {name!r}: {error.strerror or 'unreadable file'}") from None
    except (ValueError, ArithmeticError, EOFError, RecursionError, pd.errors.ParserError):  # includes Arrow errors
        hint = ": rows of unequal length, or a quote that is not closed" if reader is _csv else ""
        raise InvalidParameter(f"source: {name!r} cannot be read as {file.kind[1:]}{hint}") from None


def _known(encoding: str) -> str:
    import codecs

    try:
        return codecs.lookup(encoding).name
    except LookupError:
        raise InvalidParameter(f"encoding: {encoding!r} is not known", parameter="encoding") from None


def read_labels(path: str | Path) -> list[str]:
    """The public labels in a text file, one a line; empty lines are skipped.

    Raises:
        InvalidParameter: when the file cannot be read as UTF-8 text, or holds a label twice; for a table, such as CSV,
            whose lines are not labels.
    """
    file = Path(path)
    if not _TABLES.isdisjoint(suffix.lower() for suffix in file.suffixes):
        raise InvalidParameter(
            f"domain: {file.name!r} is a table; give a text file of labels alone, one a line", parameter="domain"
        )
    try:
        # Only line feeds end a line (splitlines would cut labels that hold U+2028 and the like); a mark of byte order
        # is not a part of the first label.
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise InvalidParameter(f"domain: cannot open {file.name!r}: {error.strerror or 'unreadable file'}") from None
    except UnicodeDecodeError:
        raise InvalidParameter(f"domain: {file.name!r} is not UTF-8 text") from None
    labels = [line for line in lines if line]
    if len(set(labels)) < len(labels):
        raise InvalidParameter(f"domain: {file.name!r} holds a label twice")
    return labels
