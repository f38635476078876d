"""The files of a folder or a glob that are the rows of a table, on every engine the same ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from glob import glob, has_magic
from pathlib import Path
from urllib.parse import unquote_to_bytes

from dptopk.errors import InvalidParameter

# What a folder of a table with a log of its own holds, and how such a table is read. Its files
# include rows that were deleted or replaced: only the log says which.
_DELTA = (
    "give deltalake.DeltaTable(path).to_pyarrow_dataset(), or the frame "
    "spark.read.format('delta').load(path)"
)
_ICEBERG = (
    "give pyiceberg.table.StaticTable.from_metadata(file).scan().to_arrow(), or the frame "
    "spark.read.format('iceberg').load(path)"
)
# What a folder with a log holds -> the kind of table, and how to read it.
_LOGS = {
    "_delta_log": ("a Delta table", _DELTA),
    "metadata/*.metadata.json*": ("an Iceberg table", _ICEBERG),
    "metadata/version-hint.text": ("an Iceberg table", _ICEBERG),
    ".hoodie": ("a Hudi table", "give the frame spark.read.format('hudi').load(path)"),
}

# Engines take these letters of a folder's name for the end of its value.
_SEPARATING = "?\\\n\r"


def is_hidden(name: str) -> bool:
    """Return whether a name is that of a file or folder which is no part of a table: Spark, Hive
    and Hadoop write some for their own use. Folders such as _day=1 are parts.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def files_matching(
    pattern: str, named_path: Path, *, endings: Collection[str] | None = None
) -> tuple[str, ...]:
    """Return the paths of the files of a glob that are not hidden, in the order of their names.

    Args:
        pattern: the pattern of the files; links to folders are followed.
        named_path: the path or pattern that the caller named, for messages.
        endings: the endings that a file's name may have, in lower case; the name may have it in
            any case. None: any ending.

    Raises:
        InvalidParameter: when there is none, when they belong to a table with a log, when a link
            below ``**`` leads to a folder that it is in, when a file is found by two names, or when
            what is found is no file.
    """
    start = folder_before_wildcards(pattern)
    if "**" in pattern:
        _refuse_loops(start)
    # A pattern may be absolute, which ``Path.glob`` does not take.
    paths_found = glob(pattern, recursive=True)  # noqa: PTH207
    parts = [path for path in paths_found if _is_part(Path(path), start, endings)]
    _refuse_no_files(parts, goes_into_folders="**" in pattern)
    paths = sorted(path for path in parts if Path(path).is_file())
    for folder in _searched_folders(paths, start):
        _refuse_log(folder)
    if not paths:
        raise InvalidParameter(f"table: there is no file {str(named_path)!r}")
    _refuse_twice(paths)
    return tuple(paths)


def columns_of_folders(paths: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the columns that the names of folders are, such as i in i=01, from the top.

    Folders that are no columns may be above the columns and below them, in some files only.

    Args:
        paths: the files.
        folder: only folders below this one are columns.

    Raises:
        InvalidParameter: for names that engines do not read alike: all files must have the same
            columns, in the same order, without another folder between two of them.
    """
    columns = {tuple(map(_column, column_folders(path, folder))) for path in paths}
    first, *others = sorted(columns)
    if others:
        raise InvalidParameter(
            f"table: folders are columns of some files, {_columns_text(others[0])}, and of others "
            f"{_columns_text(first)}; name them alike"
        )
    if len({name.casefold() for name in first}) < len(first):
        raise InvalidParameter(f"table: folders name a column twice, {_columns_text(first)}")
    return first


def column_folders(path: str, folder: Path) -> list[str]:
    """Return the names of the folders between a folder and a file in it that are columns: i=01.

    Args:
        path: the path of the file.
        folder: the folder, which is no column itself.

    Raises:
        InvalidParameter: when a folder between two that are columns is none.
    """
    start = parent_of_columns(path, folder)
    parts = Path(path).relative_to(start).parent.parts
    column_parts = [part for part in parts if "=" in part]
    if column_parts != list(parts[: len(column_parts)]):
        names = _columns_text(part.partition("=")[0] for part in column_parts)
        raise InvalidParameter(
            f"table: between the folders {names} is one that is no column; rename it"
        )
    return column_parts


def parent_of_columns(path: str, folder: Path) -> Path:
    """Return the folder that has the first folder which is a column, such as i=01, on the way from
    ``folder`` to a file in it; ``folder`` itself if none is a column.
    """
    parent = folder
    for part in Path(path).relative_to(folder).parent.parts:
        if "=" in part:
            return parent
        parent /= part
    return folder


def _columns_text(columns: Iterable[str]) -> str:
    """Return the columns that folders name as text for messages, such as "day=/hour="; "none"
    without any.
    """
    return "/".join(f"{name}=" for name in columns) or "none"


def _column(part: str) -> str:
    """Return the column that the name of a folder states: day for day=01.

    A refusal does not repeat the value, which may be a user's.

    Raises:
        InvalidParameter: for a name that engines do not read alike.
    """
    name, _, value = part.partition("=")
    has_separator = "=" in value or any(letter in part for letter in _SEPARATING)
    if not name or has_separator or not _is_quoted_text(value):
        raise InvalidParameter(
            f"table: engines do not agree on what the name of a folder {name}= says; write = ? \\ "
            f"in its value as %3D %3F %5C, and letters in UTF-8"
        )
    return name


def _is_quoted_text(value: str) -> bool:
    """Return whether a part of a path, in which %C3%A9 may stand for é, is text in UTF-8."""
    try:
        unquote_to_bytes(os.fsencode(value)).decode()
    except UnicodeDecodeError:
        return False
    return True


def _refuse_loops(start: Path) -> None:
    """Refuse a link to a folder that it is in: files below it would be found at every turn. Refuse
    a folder that cannot be read too: a glob leaves it out without a word.

    Raises:
        InvalidParameter: without the name of the link or folder.
    """
    refuse_unread = partial(_refuse_unread_folder, start)
    for folder, names, _ in os.walk(start, followlinks=True, onerror=refuse_unread):
        # ``os.walk`` goes on in the folders left in its list. A glob leaves out the others too.
        names[:] = [name for name in names if not name.startswith(".")]
        parent = Path(folder)
        for link in map(parent.joinpath, names):
            if link.is_symlink() and parent.resolve().is_relative_to(link.resolve()):
                raise InvalidParameter(
                    "table: a link below its folder leads to a folder that it is in; remove it"
                )


def _refuse_unread_folder(start: Path, error: OSError) -> None:
    """Refuse a table with a folder that cannot be read, but for a hidden one, whose files are no
    part of it. Where nothing is at ``start``, the caller says that there is no file.

    Args:
        start: the folder in which the table's files are searched for.
        error: why a folder was not read, with its path.

    Raises:
        InvalidParameter: with the error's own words, without the name of the folder.
    """
    below_start = Path(error.filename).relative_to(start).parts
    if any(map(is_hidden, below_start)) or not start.is_dir():
        return
    raise InvalidParameter(
        f"table: a folder below it cannot be read: {error.strerror or 'unreadable folder'}"
    ) from None


def _refuse_twice(paths: Sequence[str]) -> None:
    """Refuse a file that is found by two names, by a link of either kind: its rows would count
    twice.

    Raises:
        InvalidParameter: naming the file.
    """
    names: dict[tuple[int, int] | Path, str] = {}
    for path in paths:
        status = Path(path).stat()
        has_names = status.st_nlink > 1  # hard links
        place = (status.st_dev, status.st_ino) if has_names else Path(path).resolve()
        if names.setdefault(place, path) != path:
            raise InvalidParameter(
                f"table: the file {Path(path).name!r} is found twice, by a link; remove the link"
            )


def refuse_tables_with_log(paths: Sequence[str]) -> None:
    """Refuse files of which one lies within a table with a log, in a folder below it too.

    Raises:
        InvalidParameter: with a way to read the table.
    """
    links = [path for path in paths if Path(path).is_symlink()]
    all_paths = [*map(Path, paths), *(Path(path).resolve() for path in links)]
    folders = {path.parent for path in all_paths}
    enclosing_folders = {place for folder in folders for place in _folder_and_parents(folder)}
    for folder in sorted(enclosing_folders, reverse=True):
        _refuse_log(folder)


def _folder_and_parents(folder: Path) -> set[Path]:
    """Return a folder and all folders above it, by the path that was named and by the one without
    links.
    """
    spellings = (folder.absolute(), folder.resolve())
    return {place for path in spellings for place in (path, *path.parents)}


def folder_before_wildcards(pattern: str) -> Path:
    """Return the folders at the start of a pattern that have no wildcard."""
    folders = Path()
    for part in Path(pattern).parent.parts:
        # A wildcard in brackets of its own, such as [*], stands for that letter.
        if has_magic(part) and not _is_escaped(part):
            break
        folders /= _without_escapes(part)
    return folders


def _without_escapes(part: str) -> str:
    """Return a part of a pattern with its escaped letters, such as [*], as plain letters."""
    for letter in "*?[":
        part = part.replace(f"[{letter}]", letter)
    return part


def _is_escaped(part: str) -> bool:
    """Return whether all wildcards in a part of a pattern are escaped."""
    plain = part
    for letter in "*?[":
        plain = plain.replace(f"[{letter}]", "")
    return not has_magic(plain)


def _is_part(path: Path, start: Path, endings: Collection[str] | None) -> bool:
    """Return whether a path is a part of the table: it has one of the endings, and neither it nor a
    folder below ``start`` is hidden.
    """
    if endings is not None and path.suffix.lower() not in endings:
        return False
    names = path.relative_to(start).parts
    return not any(map(is_hidden, names))


def _refuse_no_files(paths: Sequence[str], *, goes_into_folders: bool) -> None:
    """Refuse what is no file: without it the rest of a table would be taken for the whole.

    Args:
        paths: what was found.
        goes_into_folders: whether files in the folders among them were looked for as well.

    Raises:
        InvalidParameter: naming the first one.
    """
    for path in map(Path, paths):
        if path.is_dir() and not goes_into_folders:
            raise InvalidParameter(
                f"table: {path.name!r} is a folder; name it alone, or its files, as in "
                f"{path.name}/*.parquet"
            )
        if not path.is_dir() and not path.is_file():
            raise InvalidParameter(
                f"table: {path.name!r} is no file, such as a link to one that is not there; remove "
                f"it"
            )


def _searched_folders(paths: list[str], start: Path) -> Iterator[Path]:
    """Yield the folders below which files of a table were looked for, each once.

    Args:
        paths: the files that were found.
        start: the folder that was named; the others are below it.
    """
    seen = {start}
    yield start
    for path in paths:
        for folder in Path(path).parents:
            if folder in seen:  # so were all folders above it
                break
            seen.add(folder)
            yield folder


def _refuse_log(folder: Path) -> None:
    """Refuse a folder whose log says which of its files are in the table, as of Delta tables.

    Raises:
        InvalidParameter: with a way to read the table.
    """
    for mark, (kind, advice) in _LOGS.items():
        if next(folder.glob(mark), None) is not None:
            raise InvalidParameter(
                f"table: {folder.name!r} is {kind}, whose files also hold rows that were removed; "
                f"{advice}"
            )
