"""Where answers are written: to standard output, or to a file that appears when it is complete."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dptopk.errors import InvalidParameter

_SQLITE_HEADER = b"SQLite format 3\0"


def check_target(
    out: Path | None, *, option: str = "--out", inputs: Iterable[Path | str | None] = ()
) -> None:
    """Refuse a file that cannot be written, or that must not be lost, before any budget is spent.

    Args:
        out: the file to write; None: standard output.
        option: the option or argument that names it, for messages.
        inputs: files that are read or kept, such as the data and the ledger; none of them may be
            the target.

    Raises:
        InvalidParameter: naming the option and what is wrong.
    """
    if out is None:
        return
    if not out.absolute().parent.is_dir():
        raise InvalidParameter(f"{option}: the folder of {str(out)!r} does not exist")
    if out.is_dir():
        raise InvalidParameter(f"{option}: {str(out)!r} is a folder")
    with suppress(OSError):  # there may be no file yet
        if not stat.S_ISREG(out.stat().st_mode):
            advice = f"; leave {option} out" if option.startswith("--") else ""
            raise InvalidParameter(
                f"{option}: {str(out)!r} is a device or a pipe, not a file{advice}"
            )
    for path in inputs:
        if path is not None and _is_same_file(out, Path(str(path).removeprefix("sqlite:///"))):
            raise InvalidParameter(
                f"{option}: {str(out)!r} is read by this very command, and would be lost"
            )
    if _is_database(out):
        raise InvalidParameter(
            f"{option}: {str(out)!r} is a SQLite database, such as a ledger; name a new file"
        )
    from dptopk.ledger.heads import lock_beside

    lock = lock_beside(out)
    # Path.exists fails where a name is too long
    if os.path.exists(lock):  # noqa: PTH110
        raise InvalidParameter(
            f"{option}: {str(out)!r} is the head file of a ledger ({lock.name!r} is beside it)"
        )
    try:
        with _temporary_file(out):
            pass
    except OSError:
        raise InvalidParameter(f"{option}: {str(out)!r} cannot be written") from None


def _is_database(path: Path) -> bool:
    """Return whether a file begins as SQLite databases do.

    Args:
        path: none of the databases that this process has open: to close it here would end the
            process's locks on it.
    """
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
    except OSError:
        return False


def _is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are the same file, links followed; compared as text where one does
    not exist.
    """
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return path.absolute() == other.absolute()


@contextmanager
def _temporary_file(out: Path) -> Iterator[Path]:
    """Yield, for a ``with`` block, a new, empty file in the folder of ``out`` with an unpredictable
    name; it is deleted at the end of the block.
    """
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(8)}.part")
    no_link = getattr(os, "O_NOFOLLOW", 0)
    new_file = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | no_link, 0o666)
    os.close(new_file)
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacement_file(out: Path) -> Iterator[Path]:
    """Yield, for a ``with`` block, a new file in the folder of ``out``, which replaces ``out`` when
    the block ends without an error.
    """
    with _temporary_file(out) as temporary:
        yield temporary
        temporary.replace(out)


@contextmanager
def text_file(out: Path | None) -> Iterator[IO[str]]:
    """Open a text file to write to for a ``with`` block: standard output, or a file that appears as
    ``out`` when the block ends without an error.

    In a file, halves of surrogate pairs, which labels may hold and UTF-8 does not, are written as
    escapes.
    """
    if out is None:
        yield sys.stdout
        # A full disk or a closed pipe is an error here, not at the end of the process.
        sys.stdout.flush()
        return
    with (
        replacement_file(out) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield file


def write(text: str, out: Path | None) -> None:
    """Write a text to the file ``out``, or to standard output if that is None."""
    with text_file(out) as file:
        file.write(text)
