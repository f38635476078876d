"""The files of a folder or a glob that are the rows of a table, on every engine the same ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
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


def matching(pattern: str, named: Path) -> tuple[str, ...]:
    """Return the paths of the files of a glob that are not hidden, in the order of their names.

    Args:
        pattern: of the files; links to folders are followed.
        named: what the caller named.

    Raises:
        InvalidParameter: when there is none, or when they belong to a table with a log.
    """
    start = fixed(pattern)
    if "**" in pattern:
        _refuse_loops(start)
    found = glob(pattern, recursive=True)  # noqa: PTH207
    paths = sorted(path for path in found if _is_part(Path(path), start))
    for folder in _folders(paths, start):
        _refuse_log(folder)
    if not paths:
        raise InvalidParameter(f"table: there is no file {str(named)!r}")
    _refuse_twice(paths)
    return tuple(paths)


def columns_of_folders(paths: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the columns that the names of folders are, such as i in i=01, from the top.

    Args:
        paths: the files.
        folder: only folders below this one are columns.

    Raises:
        InvalidParameter: for names that engines do not read alike: all files must have the same
            columns, in the same order, and no other folders below these.
    """
    columns = {tuple(map(_column, named_folders(path, folder))) for path in paths}
    first, *others = sorted(columns)
    if others:
        raise InvalidParameter(
            f"table: folders are columns of some files, {_listed(others[0])}, and of others "
            f"{_listed(first)}; name them alike"
        )
    if len({name.casefold() for name in first}) < len(first):
        raise InvalidParameter(f"table: folders name a column twice, {_listed(first)}")
    return first


def named_folders(path: str, folder: Path) -> list[str]:
    """Return the names of the folders between a folder and a file in it that are columns: i=01.

    Raises:
        InvalidParameter: when one between them is none.
    """
    start = base(path, folder)
    parts = Path(path).relative_to(start).parent.parts
    named = [part for part in parts if "=" in part]
    if named != list(parts[: len(named)]):
        raise InvalidParameter(
            f"table: between the folders {_listed(part.partition('=')[0] for part in named)} is "
            f"one that is no column; rename it"
        )
    return named


def base(path: str, folder: Path) -> Path:
    """Return the folder below which, on the way to a file, the first folder is a column."""
    found = folder
    for part in Path(path).relative_to(folder).parent.parts:
        if "=" in part:
            return found
        found /= part
    return folder


def _listed(columns: Iterable[str]) -> str:
    """Return columns of folders for messages."""
    return "/".join(f"{name}=" for name in columns) or "none"


def _column(part: str) -> str:
    """Return the column that the name of a folder states.

    A refusal does not repeat the value, which may be a user's.
    """
    name, _, value = part.partition("=")
    try:
        unquote_to_bytes(os.fsencode(value)).decode()
    except UnicodeDecodeError:
        is_text = False
    else:
        is_text = True
    if not name or not is_text or any(letter in part for letter in _SEPARATING) or "=" in value:
        raise InvalidParameter(
            f"table: engines do not agree on what the name of a folder {name}= says; write = ? \\ "
            f"in its value as %3D %3F %5C, and letters in UTF-8"
        )
    return name


def _refuse_loops(start: Path) -> None:
    """Refuse a link to a folder that it is in: files below it would be found at every turn."""
    for folder, names, _ in os.walk(start, followlinks=True):
        names[:] = [name for name in names if not name.startswith(".")]
        below = Path(folder)
        for link in map(below.joinpath, names):
            if link.is_symlink() and below.resolve().is_relative_to(link.resolve()):
                raise InvalidParameter(
                    "table: a link below its folder leads to a folder that it is in; remove it"
                )


def _refuse_twice(paths: Sequence[str]) -> None:
    """Refuse a file that is found by two names: its rows would count twice."""
    names: dict[Path, str] = {}
    for path in paths:
        if names.setdefault(Path(path).resolve(), path) != path:
            raise InvalidParameter(
                f"table: the file {Path(path).name!r} is found twice, by a link; remove the link"
            )


def refuse_parts(paths: Sequence[str]) -> None:
    """Refuse files of which one lies within a table with a log, in a folder below it too.

    Raises:
        InvalidParameter: with a way to read the table.
    """
    links = [path for path in paths if Path(path).is_symlink()]
    named = [*map(Path, paths), *(Path(path).resolve() for path in links)]
    folders = {path.parent for path in named}
    within = {place for folder in folders for place in _places(folder)}
    for folder in sorted(within, reverse=True):
        _refuse_log(folder)


def _places(folder: Path) -> set[Path]:
    """Return a folder and all folders above it, by the path that was named and by the one without
    links.
    """
    ways = (folder.absolute(), folder.resolve())
    return {place for way in ways for place in (way, *way.parents)}


def fixed(pattern: str) -> Path:
    """Return the folders at the start of a pattern that have no wildcard."""
    folders = Path()
    for part in Path(pattern).parent.parts:
        # A bracket around one letter is that letter, escaped.
        if has_magic(part) and not _is_escaped(part):
            break
        folders /= _unescaped(part)
    return folders


def _unescaped(part: str) -> str:
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


def _is_part(path: Path, fixed: Path) -> bool:
    """Return whether a path is a file of the table: neither it nor a folder below ``fixed`` is
    hidden.
    """
    below = path.relative_to(fixed).parts
    return path.is_file() and not any(map(is_hidden, below))


def _folders(paths: list[str], fixed: Path) -> Iterator[Path]:
    """Yield the folder that was named and those below it in which files were found, each once."""
    seen = {fixed}
    yield fixed
    for path in paths:
        for folder in Path(path).parents:
            if folder in seen:
                break
            seen.add(folder)
            yield folder


def _refuse_log(folder: Path) -> None:
    """Refuse a folder whose log says which of its files are in the table, as of Delta tables."""
    for mark, (kind, advice) in _LOGS.items():
        if next(folder.glob(mark), None) is not None:
            raise InvalidParameter(
                f"table: {folder.name!r} is {kind}, whose files also hold rows that were removed; "
                f"{advice}"
            )
