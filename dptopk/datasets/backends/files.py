"""File formats by name, and the fixed list of files of a table while it is read."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from glob import escape, glob
from pathlib import Path
from typing import Any

from dptopk.datasets.backends.base import without_data
from dptopk.errors import InvalidParameter

# Files of one folder must agree: an engine that takes the types of one of them reads 7.9 in another as 8.
DIFFERING = "table: a column has different types in the files of the folder; write them alike"

# Compression is told by a further suffix.
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".duckdb": "database", ".ddb": "database", ".db": "database",
}  # fmt: skip
_COMPRESSED = (".gz", ".zst")
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_CHUNK = 2**20


def _state(paths: tuple[str, ...]) -> list[tuple[int, ...] | None]:
    """Return a state that changes when one of the files does."""
    found = [Path(path).stat() if Path(path).exists() else None for path in paths]
    return [each and (each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in found]


@dataclass(frozen=True)
class Files:
    """The files of a table: which they are is decided once, and they must stay as they are while they are read.

    Attributes:
        kind: their format, such as "parquet".
        paths: the files, in the order of their names.
        folder: below which folder names such as i=01 are columns; None = a file or a glob was named.
    """

    kind: str
    paths: tuple[str, ...]
    folder: str | None = None
    _seen: list[Any] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_seen", _state(self.paths))

    @property
    def delimiter(self) -> str:
        """The separator of the cells of a text file."""
        return _DELIMITERS[self.kind]

    def tell_apart(self, columns: Sequence[str] | None) -> None:
        """Refuse text files that name one of these columns twice: engines give the second one another name."""
        for path in self.paths if self.kind in _DELIMITERS else ():
            names = next(csv.reader([header(path).decode(errors="replace")], delimiter=self.delimiter))
            for name in names if columns is None else columns:
                if name and names.count(name) > 1:
                    raise InvalidParameter(f"table: {Path(path).name!r} has two columns {name!r}; rename one of them")

    def steady(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The function ``run``, refused after a change of the files: so that all its answers are of one state."""

        def checked(*asked: Any) -> Any:
            answer = run(*asked)
            if _state(self.paths) != self._seen:
                raise InvalidParameter("table: its files changed while they were read; ask again when they are whole")
            return answer

        return checked


def located(table: Any) -> Files:
    """The files of a path that exists, or of a glob, and their format."""
    if not isinstance(table, str | Path):
        raise InvalidParameter(f"table must be a path, a frame, an Arrow or an Ibis table, got {type(table).__name__}")
    path = Path(table)
    if path.is_dir():
        return Files("parquet", _matching(escape(str(path)) + "/**/*.parquet", path), str(path))
    paths = (str(path),) if path.exists() else _matching(str(path), path)
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in _COMPRESSED]
    kind = _FORMATS.get(suffixes[-1]) if suffixes else None
    if kind is None:
        raise InvalidParameter(f"table: the format of {path.name!r} is none of {', '.join(_FORMATS)}")
    return Files(kind, paths)


def _matching(pattern: str, named: Path) -> tuple[str, ...]:
    found = glob(pattern, recursive=True, include_hidden=True)  # noqa: PTH207 - follows links to folders
    paths = tuple(sorted(path for path in found if Path(path).is_file()))
    if not paths:
        raise InvalidParameter(f"table: there is no file {str(named)!r}")
    return paths


def header(path: str) -> bytes:
    """The first line of a text file, which names the columns: engines skip an empty one and take the next for data."""
    from pyarrow import input_stream

    with input_stream(path) as stream:
        first = stream.read(_CHUNK).removeprefix(codecs.BOM_UTF8).partition(b"\n")[0].strip()
    if not first:
        raise InvalidParameter("table: the first line of a text file is empty; it must name the columns")
    return bytes(first)


def well_formed(path: str) -> None:
    """Refuse a text file that is not UTF-8, or whose lines do not all end alike: Spark reads such files as others."""
    from pyarrow import input_stream

    decoder, ends, left = codecs.getincrementaldecoder("utf-8")(), dict.fromkeys((b"\r\n", b"\r", b"\n"), 0), b""
    with input_stream(path) as stream:
        while chunk := stream.read(_CHUNK):
            decoder.decode(chunk)
            chunk = left + chunk
            left = b"\r" * chunk.endswith(b"\r")
            for end in ends:
                ends[end] += chunk[: len(chunk) - len(left)].count(end)
    decoder.decode(b"", final=True)
    if left or (ends[b"\r"] and len(set(ends.values())) > 1):
        raise InvalidParameter("table: the lines of a text file end in different ways; write them alike")


def opened(kind: str, action: Callable[[], Any]) -> Any:
    """Open a file of this format, or refuse it with a message that contains no data."""
    hint = f"is it damaged, or not {'UTF-8 text' if kind in _DELIMITERS else kind}?"
    return without_data("table", f"the {kind} file could not be read: {hint}", action)
