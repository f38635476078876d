"""Read a table of labels and counts from a CSV, Parquet or JSON-lines file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_counts", "read_labels"]


def _csv(path: Path, label: str, count: str, separator: str = ",") -> pd.DataFrame:
    import warnings

    import pandas as pd

    # Labels are text as written ("null", "NA" and "007" are labels); only an empty count is missing. A row with more
    # cells than the header has must not shift its columns (index_col), nor lose cells with a mere warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(
                path,
                sep=separator,
                dtype={label: str},
                index_col=False,
                keep_default_na=False,
                na_values={count: [""]},
            )
        except pd.errors.ParserWarning:
            raise ValueError("rows longer than the header") from None


def _tsv(path: Path, label: str, count: str) -> pd.DataFrame:
    return _csv(path, label, count, separator="\t")


def _parquet(path: Path, label: str, count: str) -> pd.DataFrame:
    import pandas as pd

    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InvalidParameter("source: reading Parquet needs pyarrow; install dptopk[data]") from None
    present = pq.read_schema(path).names
    return pd.read_parquet(path, columns=[name for name in (label, count) if name in present])


def _json_lines(path: Path, label: str, count: str) -> pd.DataFrame:
    import json

    import pandas as pd

    # The standard parser keeps labels as written, where pandas guesses at dates and numbers.
    with path.open(encoding="utf-8-sig") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a table")
    present = [name for name in (label, count) if any(name in row for row in rows)]
    return pd.DataFrame({name: pd.Series([row.get(name) for row in rows], dtype=object) for name in present})


_READERS: dict[str, Callable[[Path, str, str], Any]] = {
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".pq": _parquet,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json_lines,
}


def read_counts(path: str | Path, *, label: str, count: str) -> pd.DataFrame:
    """The two named columns of a file; the ending tells the format: .csv, .tsv, .parquet, .jsonl, .ndjson, .json.

    Returns:
        A data frame with the columns ``label`` and ``count``; empty labels and counts are missing values.

    Raises:
        InvalidParameter: when the file does not exist, cannot be read in its format, or lacks a column. The message
            never quotes the file's contents.
    """
    import pandas as pd

    file = Path(path)
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        raise InvalidParameter(f"source must end in one of {', '.join(_READERS)}; got {file.name!r}")
    if label == count:
        raise InvalidParameter(f"label and count must be different columns, got {label!r} twice")
    try:
        frame = reader(file, label, count)
    except InvalidParameter:
        raise
    except OSError as error:
        raise InvalidParameter(f"source: cannot open {file.name!r}: {error.strerror or 'unreadable file'}") from None
    except (ValueError, ArithmeticError, pd.errors.ParserError):  # includes decoding and Arrow errors
        raise InvalidParameter(f"source: {file.name!r} cannot be read as {file.suffix[1:].lower()}") from None
    for name, column in (("label", label), ("count", count)):
        if column not in frame.columns:
            raise InvalidParameter(f"{name}: {file.name!r} has no column {column!r}")
    labels = frame[label]
    return pd.DataFrame({"label": labels.mask(labels == ""), "count": frame[count]})


def read_labels(path: str | Path) -> list[str]:
    """The public labels in a text file, one a line; empty lines are skipped.

    Raises:
        InvalidParameter: when the file cannot be read as UTF-8 text, or holds a label twice.
    """
    file = Path(path)
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
