"""File formats by name, and the fixed list of files of a table while it is read."""

from __future__ import annotations

import codecs
import csv
import io
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING

from dptopk.datasets.backends.base import Arguments, Result, hide_data_of_errors
from dptopk.datasets.backends.folders import (
    columns_of_folders,
    files_matching,
    folder_before_wildcards,
    is_hidden,
    refuse_tables_with_log,
)
from dptopk.datasets.text_files import (
    TextFile,
    TextFormat,
    format_ending,
    has_lone_returns,
    refuse_workbook,
    rows,
    text_format,
)
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from dptopk.datasets.backends.inputs import EventTable

# Files of one folder must agree: an engine that takes the types of one of them reads 7.9 in another
# as 8.
DIFFERING = "table: a column has different types in the files of the folder; write them alike"

# The ending of a file's name -> its format. A further ending says how the file is compressed.
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".txt": "csv",
    ".tab": "tsv", ".jsonl": "json", ".ndjson": "json",
    ".json": "json", ".duckdb": "database", ".ddb": "database", ".db": "database",
}  # fmt: skip
_PARQUET = frozenset(ending for ending, kind in _FORMATS.items() if kind == "parquet")
# A format of text -> what engines take for the character between two cells.
_DELIMITERS = {"csv": ",", "tsv": "\t"}
_CHUNK = 2**20  # the bytes of a file that are read at a time
LONGEST_OBJECT = 2**24  # the most bytes of a line of JSON
# DuckDB numbers the rows of a Parquet file under this name where some value cannot be read.
_ROW_NUMBER = "file_row_number"


def _state(paths: tuple[str, ...]) -> list[tuple[int, ...] | None]:
    """Return for each file a state that changes when the file does; None for a file that is not
    there.
    """
    return [_file_state(Path(path)) for path in paths]


def _file_state(path: Path) -> tuple[int, ...] | None:
    """Return the inode, size and times of a file; None if there is none."""
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@dataclass(frozen=True)
class Files:
    """The files of a table: which they are is decided once, and they must stay as they are while
    they are read.

    Attributes:
        kind: their format, such as "parquet".
        paths: the files, in the order of their names.
        folder: the folder below which folder names such as i=01 are columns: the one that was
            named, or that at the start of a glob; None: a file was named.
        separator, encoding: those of text files, where they are stated; None: the header line
            decides.
        _state_at_start: the states of the files (``_state``) when they were listed.
        _formats: the formats of text files that were looked at, by the path and the columns that
            are asked for.
    """

    kind: str
    paths: tuple[str, ...]
    folder: str | None = None
    separator: str | None = None
    encoding: str | None = None
    _state_at_start: list[tuple[int, ...] | None] = field(init=False, repr=False)
    _formats: dict[tuple[str, ...], TextFormat] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "_state_at_start", _state(self.paths))

    @property
    def delimiter(self) -> str:
        """Return the character that separates the cells of a line."""
        return _DELIMITERS[self.kind]

    def columns_of_folders(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that are the names of folders below the one that was named.

        Args:
            names: the columns of the files.

        Raises:
            InvalidParameter: for names of folders that engines do not read alike.
        """
        if self.folder is None:
            return ()
        folder_names = columns_of_folders(self.paths, Path(self.folder))
        of_files = {name.casefold(): name for name in names}
        for name in folder_names:
            other = of_files.get(name.casefold(), name)
            if other != name:
                raise InvalidParameter(
                    f"table: folders are called {name}=, and a column of the files {other!r}; "
                    f"rename one of them"
                )
        if folder_names:
            self._refuse_folders_above([*names, *folder_names])
        return folder_names

    def _refuse_folders_above(self, names: Sequence[str]) -> None:
        """Refuse columns of these names where a folder above the one that was named is called as
        one of them: DuckDB, where folders below are columns, would read the name of that folder.

        Raises:
            InvalidParameter: naming the folder's column.
        """
        if self.folder is None:  # never: a file that was named has no columns of folders
            return
        folders_above = _folder_columns(Path(self.folder))
        for name in names:
            if name.casefold() in folders_above:
                folder = folders_above[name.casefold()]
                raise InvalidParameter(
                    f"table: a folder above is called {folder}=, as a column; rename it"
                )

    @property
    def is_text(self) -> bool:
        """Return whether the files are tables of text with separators."""
        return self.kind in _DELIMITERS

    def text_format(self, path: str, columns: Sequence[str] | None) -> TextFormat:
        """Return how one of the text files is read when these columns are asked for."""
        names = tuple(columns or ())
        key = (path, *names)
        if key not in self._formats:
            self._formats[key] = text_format(
                path, names, separator=self.separator, encoding=self.encoding
            )
        return self._formats[key]

    def is_plain(self, columns: Sequence[str] | None) -> bool:
        """Return whether the text files are as their engines expect: UTF-8, with the usual
        separator, and with the header in the first line.
        """
        formats = [self.text_format(path, columns) for path in self.paths]
        return all(
            file_format.is_plain and file_format.separator == self.delimiter
            for file_format in formats
        )

    def is_read_alike(self, columns: Sequence[str] | None) -> bool:
        """Return whether DuckDB, where it can read the text files, takes each row as our
        rules do.
        """
        return self.is_plain(columns) and not any(map(has_lone_returns, self.paths))

    @contextmanager
    def rewritten_copies(self, columns: Sequence[str] | None) -> Iterator[Files]:
        """Yield copies of the text files as UTF-8 with commas, which are deleted at the end.

        Bytes that are no UTF-8 are read as cp1252, short rows have empty cells, and long ones lose
        cells. The copies hold the columns that are asked for, or all where one of these is missing.
        """
        with tempfile.TemporaryDirectory(prefix="dptopk-") as folder:
            copies = [Path(folder) / f"{place}.csv" for place in range(len(self.paths))]
            for path, copy in zip(self.paths, copies, strict=True):
                _write_copy(path, copy, self.text_format(path, columns), columns)
            yield Files("csv", tuple(map(str, copies)))

    @contextmanager
    def without_long_lines(self) -> Iterator[Files]:
        """Yield the files of JSON, or copies without lines of more than LONGEST_OBJECT bytes, which
        are deleted at the end.

        DuckDB reads a longer line or refuses the file, as the lines around it have it.
        """
        if not any(map(_has_long_line, self.paths)):
            yield self
            return
        with tempfile.TemporaryDirectory(prefix="dptopk-") as folder:
            copies = [Path(folder) / f"{place}.json" for place in range(len(self.paths))]
            for path, copy in zip(self.paths, copies, strict=True):
                _copy_short_lines(path, copy)
            yield Files(self.kind, tuple(map(str, copies)))

    def refuse_repeated_columns(self, columns: Sequence[str] | None) -> None:
        """Refuse text files that name one of these columns twice: engines give the second one
        another name.

        Raises:
            InvalidParameter: naming the file and the column.
        """
        if not self.is_text:
            return
        for path in self.paths:
            names = self.text_format(path, columns).names
            for name in names if columns is None else columns:
                if name and names.count(name) > 1:
                    raise InvalidParameter(
                        f"table: {Path(path).name!r} has two columns {name!r}; rename one of them"
                    )

    def with_check_of_files(self, run: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return ``run`` with a check of the files after each call: all its answers are of one
        state of the files, or refused.
        """

        def run_and_check(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            """Return what ``run`` returns, unless the files have changed.

            Raises:
                InvalidParameter: if they have.
            """
            answer = run(*arguments, **options)
            if _state(self.paths) != self._state_at_start:
                raise InvalidParameter(
                    "table: its files changed while they were read; ask again when they are whole"
                )
            return answer

        return run_and_check


def _write_copy(
    path: str, copy: Path, file_format: TextFormat, columns: Sequence[str] | None
) -> None:
    """Write the columns of a text file that are asked for as UTF-8 with commas.

    Args:
        path: the text file.
        copy: the file to write.
        file_format: the format of the text file.
        columns: the columns that are asked for; None, or one of them missing: all are written.
    """
    needed = needed_names(columns, file_format.names)
    numbered_names = enumerate(file_format.names)
    places = [
        place for place, name in numbered_names if needed is None or name.casefold() in needed
    ]
    places = places or [0]  # a table has at least one column
    with copy.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([file_format.names[place] for place in places])
        for row in rows(path, file_format):
            writer.writerow([row[place] for place in places])


def _has_long_line(path: str) -> bool:
    """Return whether a file has a line of more than LONGEST_OBJECT bytes."""
    from pyarrow import input_stream

    unended = 0  # the bytes of the line that the chunks so far have not ended
    with input_stream(path) as stream:
        while chunk := stream.read(_CHUNK):
            # A line within one chunk is shorter than LONGEST_OBJECT.
            end, ends_line, _ = chunk.partition(b"\n")
            if unended + len(end) > LONGEST_OBJECT:
                return True
            if ends_line:
                unended = len(chunk) - 1 - chunk.rfind(b"\n")
            else:
                unended += len(chunk)
    return False


def _copy_short_lines(path: str, copy: Path) -> None:
    """Write the lines of a file that have at most LONGEST_OBJECT bytes; the others are empty.

    Args:
        path: the file, which may be compressed.
        copy: the file to write.
    """
    from pyarrow import input_stream

    with io.BufferedReader(input_stream(path)) as lines, copy.open("wb") as file:
        is_within_long_line = False
        while line := lines.readline(LONGEST_OBJECT + 1):
            is_ended = line.endswith(b"\n")
            is_short = is_ended or len(line) <= LONGEST_OBJECT
            if is_short and not is_within_long_line:
                file.write(line)
            elif is_ended:
                file.write(b"\n")
            is_within_long_line = not is_ended


def _folder_columns(path: Path) -> dict[str, str]:
    """Return name without case -> name of the columns that folders of a path name, as i in i=01."""
    names = [folder.partition("=")[0] for folder in path.parts if "=" in folder]
    return {name.casefold(): name for name in names}


def needed_names(columns: Sequence[str] | None, present: Sequence[str]) -> set[str] | None:
    """Return the names, without case, of the columns that are asked for; None stands for all. None
    is also returned where one of them is missing, so that the refusal can list what there is.

    Args:
        columns: the names that are asked for; None: all.
        present: the names of the columns that there are.
    """
    if columns is None or not set(columns) <= set(present):
        return None
    return {name.casefold() for name in columns}


def files_of_table(table: EventTable) -> Files:
    """Return the files of a path that exists, or of a glob, and their format.

    Raises:
        InvalidParameter: when there is no file, it is hidden, is of another format or is one of a
            table with a log.
    """
    if isinstance(table, TextFile):
        files = files_of_table(table.path)
        if not files.is_text:
            raise InvalidParameter("table: a separator and an encoding are for text: CSV and TSV")
        return replace(files, separator=table.separator, encoding=table.encoding)
    if not isinstance(table, str | Path):
        raise InvalidParameter(
            f"table must be a path, a frame, an Arrow or an Ibis table, got {type(table).__name__}"
        )
    path = Path(table)
    if path.is_dir():
        paths = files_matching(f"{escape(str(path))}/**/*", path, endings=_PARQUET)
        refuse_tables_with_log(paths)
        return Files("parquet", paths, str(path))
    if path.exists() and is_hidden(path.name):
        raise InvalidParameter(
            f"table: {path.name!r} is hidden by the . or _ at its start, as files that engines "
            f"leave behind are; rename it"
        )
    if path.exists():
        paths = (str(path),)
        folder = None
    else:
        paths = files_matching(str(path), path)
        folder = str(folder_before_wildcards(str(path)))
    kind = _format_of_name(path)
    if kind == "parquet":
        refuse_tables_with_log(paths)
    return Files(kind, paths, folder)


def _format_of_name(path: Path) -> str:
    """Return the format that a file's name ends in, before an ending that says how the file is
    compressed.

    Raises:
        InvalidParameter: for a workbook, and another ending.
    """
    kind = _FORMATS.get(format_ending(path))
    if kind is None:
        refuse_workbook(path)
        raise InvalidParameter(
            f"table: the format of {path.name!r} is none of {', '.join(_FORMATS)}"
        )
    return kind


def common_columns(paths: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Return the columns that all of these Parquet files have, by the names in the first one.

    An engine that takes the columns of one file fails on another that lacks one, or reads NULL.

    Args:
        paths: the files.
        columns: the columns that are needed, of which a file may have one alone; None: all.

    Raises:
        InvalidParameter: when two files give a column, or a field of it, different types (a field
            is known by its whole path: columns of lists or of records share the names of theirs);
            when a file has two columns of the name of a needed one, in whatever case: engines take
            either of them; when a column has a name that DuckDB needs.
    """
    types = dict[str, tuple[str, str]]()
    names = list[str]()
    for place, path in enumerate(paths):
        present, type_of_field = _parquet_columns(path)
        _refuse_alike(path, present, columns)
        # Engines take names that differ in case alone for one column. Of two such fields in one
        # file, whose columns nobody needs, each keeps its own type.
        alike = Counter(field.casefold() for field in type_of_field)
        for name, kind in type_of_field.items():
            key = name.casefold() if alike[name.casefold()] == 1 else name
            if types.setdefault(key, kind) != kind:
                raise InvalidParameter(DIFFERING)
        present_names = {name.casefold() for name in present}
        if _ROW_NUMBER in present_names:
            raise InvalidParameter(
                f"table: a column is called {_ROW_NUMBER!r}, as one of DuckDB's own; rename it"
            )
        if place == 0:
            names = present
        else:
            names = [name for name in names if name.casefold() in present_names]
    return names


def _refuse_alike(path: str, present: Sequence[str], columns: Sequence[str] | None) -> None:
    """Refuse a Parquet file that has two columns of the name of a needed one but for its case.

    Args:
        path: the file.
        present: the names of its columns.
        columns: the columns that are needed; None: all.

    Raises:
        InvalidParameter: naming the file and the column.
    """
    counts = Counter(name.casefold() for name in present)
    for name in present if columns is None else columns:
        if counts[name.casefold()] > 1:
            raise InvalidParameter(
                f"table: {Path(path).name!r} has several columns called {name!r} but for upper and "
                f"lower case; rename them"
            )


def _parquet_columns(path: str) -> tuple[list[str], dict[str, tuple[str, str]]]:
    """Return the names of the columns of a Parquet file, and for each field, by its path within
    the columns, its type as it is stored and what that type stands for.
    """
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        schema = file.schema
        names = list(file.schema_arrow.names)
        columns = [schema.column(place) for place in range(len(schema))]
    kinds = {column.path: (column.physical_type, str(column.logical_type)) for column in columns}
    return names, kinds


def header_line(path: str) -> bytes:
    """Return the first line of a text file, which names the columns.

    Raises:
        InvalidParameter: if it is empty.
    """
    from pyarrow import input_stream

    with input_stream(path) as stream:
        head = stream.read(_CHUNK).removeprefix(codecs.BOM_UTF8)
        first = head.partition(b"\n")[0].strip()
    if not first:
        raise InvalidParameter(
            "table: the first line of a text file is empty; it must name the columns"
        )
    return bytes(first)


def refuse_array(paths: Sequence[str]) -> None:
    """Refuse files of JSON that begin with a bracket in a line of its own: one array over many
    lines, of which few would be JSON by themselves.

    Raises:
        InvalidParameter: naming the file.
    """
    from pyarrow import input_stream

    for path in paths:
        with input_stream(path) as stream:
            first = stream.read(_CHUNK).removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
        if first.strip() == b"[":
            raise InvalidParameter(
                f"table: {Path(path).name!r} is one JSON array; write one object a line"
            )


def refuse_malformed_text(path: str) -> None:
    """Refuse a text file that is not UTF-8, or whose lines do not all end alike: Spark reads such
    files as others.

    Raises:
        UnicodeDecodeError: for bytes that are no UTF-8; ``read_or_refuse`` hides them.
        InvalidParameter: for lines that end in different ways.
    """
    from pyarrow import input_stream

    decoder = codecs.getincrementaldecoder("utf-8")()
    ends = dict.fromkeys((b"\r\n", b"\r", b"\n"), 0)
    pending = b""
    with input_stream(path) as stream:
        while chunk := stream.read(_CHUNK):
            decoder.decode(chunk)
            chunk = pending + chunk
            # A return at the end of a chunk may belong to a line feed in the next one.
            pending = b"\r" if chunk.endswith(b"\r") else b""
            for end in ends:
                ends[end] += chunk[: len(chunk) - len(pending)].count(end)
    decoder.decode(b"", final=True)
    # If all lines end in CRLF the three numbers are equal; if all end in LF there is no CR.
    if pending or (ends[b"\r"] and len(set(ends.values())) > 1):
        raise InvalidParameter(
            "table: the lines of a text file end in different ways; write them alike"
        )


def read_or_refuse(kind: str, action: Callable[[], Result]) -> Result:
    """Return what an action on files of this format returns, or refuse them with a message that
    contains no data.

    Raises:
        InvalidParameter: for any error of the action.
    """
    hint = f"is it damaged, or not {'UTF-8 text' if kind in _DELIMITERS else kind}?"
    return hide_data_of_errors("table", f"the {kind} file could not be read: {hint}", action)
