"""What the name of a file says about its format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dptopk.datasets.backends.base import without_data
from dptopk.errors import InvalidParameter

__all__ = ["DIFFERING", "delimiter", "located", "opened"]

# Files of one folder must agree: an engine that takes the types of one of them reads 7.9 in another as 8.
DIFFERING = "table: a column has different types in the files of the folder; write them alike"

# Compression is told by a further suffix.
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".duckdb": "database", ".ddb": "database", ".db": "database",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
_DELIMITERS = {"csv": ",", "tsv": "\t"}


def located(table: Any) -> tuple[str, str]:
    """A path that exists, or a glob, and its format."""
    if not isinstance(table, str | Path):
        raise InvalidParameter(f"table must be a path, a frame, an Arrow or an Ibis table, got {type(table).__name__}")
    path = Path(table)
    if path.is_dir():
        return str(path / "**" / "*.parquet"), "parquet"
    pattern = str(path.relative_to(path.anchor))
    if not path.exists() and not ("*" in pattern and any(Path(path.anchor).glob(pattern))):
        raise InvalidParameter(f"table: there is no file {str(table)!r}")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        raise InvalidParameter(f"table: the format of {path.name!r} is none of {', '.join(_FORMATS)}")
    return str(path), kind


def delimiter(path: str) -> str:
    """What separates the cells of a text file."""
    return _DELIMITERS[located(path)[1]]


def opened(kind: str, action: Callable[[], Any]) -> Any:
    """What opening a file of this format gives, or a refusal without a word of the data."""
    return without_data("table", f"the {kind} file could not be opened", action)
