"""Exported heads: the number and hash of the last entry, stored in another place.

A database that was restored from a backup, copied without its journal, or cut off at its end looks
whole. A head that was written elsewhere after a later commit tells: the log must still hold that
entry with that hash. A head file is replaced by a later head of the same log alone, by one process
at a time. A database may hold the head instead.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.recorded import HeadPlace
from dptopk.ledger.sqlite_file import LedgerFile

if sys.platform != "win32":  # there heads are replaced without a lock
    import fcntl


_MAX_SEQ = 2**63 - 1  # of an integer in SQLite and PostgreSQL
_MAX_BYTES = 10_000  # of a head file; one that is written here has 150


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log: sequence number and hash of its last entry, and the ledger's identity."""

    seq: int
    hash: str
    ledger: str | None = None

    @classmethod
    def of(cls, head: Mapping[str, Any]) -> Head:
        """A head as it was exported.

        Raises:
            InvalidParameter: when it is not one.
        """
        try:
            seq = head["seq"]
            hash_ = head["hash"]
            ledger = head.get("ledger")
        except (KeyError, TypeError, AttributeError):
            raise InvalidParameter(
                "head must contain seq and hash, as an exported head does"
            ) from None
        if type(seq) is not int or not isinstance(hash_, str) or not isinstance(ledger, str | None):
            raise InvalidParameter("head must contain seq and hash, as an exported head does")
        if abs(seq) > _MAX_SEQ:
            raise InvalidParameter("the head is damaged: its seq is no number of an entry")
        return cls(seq, hash_, ledger)

    def problem(self, ledger: str | None, hash_there: str | None) -> str:
        """Describe what is wrong with a log with this hash at the head's entry (None: no such
        entry); '' if nothing.
        """
        if self.ledger is not None and ledger is not None and self.ledger != ledger:
            return "the head belongs to another ledger"
        if hash_there is None:
            return f"the tail is missing: the log has no entry {self.seq}, which was written before"
        if hash_there != self.hash:
            return f"entry {self.seq} is not the one that was written before: the log was rewritten"
        return ""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """A head in a file.

    Args:
        path: where it is; a link to it stays one.
        ledger: the file of the ledger whose head it is, which is never opened here.
    """

    path: Path
    ledger: LedgerFile | None = None

    def read(self) -> Head | None:
        """The head; None when there is no file.

        Raises:
            InvalidParameter: when the file holds no head.
        """
        try:
            self._refuse_what_is_no_head()
            return Head.of(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            hint = (
                "dptopk ledger export --head writes one; where a ledger stores its head, and it is "
                "lost: dptopk ledger witness replace"
            )
            raise InvalidParameter(
                f"head: {self.path.name!r} is not an exported head; {hint}"
            ) from None

    def _refuse_what_is_no_head(self) -> None:
        """Refuse a pipe or a device, whose reading may never end, and the ledger, whose locks would
        be dropped when it is closed.

        Raises:
            OSError: when there is no file.
            ValueError: when what is there now is none that may be read.
        """
        found = self.path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_BYTES:
            raise ValueError("no file of a head")
        if self.ledger is not None and self.ledger.is_one_of_its_files(found):
            raise ValueError("a file of the ledger")

    def _where(self) -> Path:
        """The file itself: a link to another disk must not become a file on this one."""
        return Path(os.path.realpath(self.path))

    def place(self) -> HeadPlace:
        """Return how a ledger records where this is."""
        return {"kind": "file", "name": self.path.name}

    def remove(self) -> None:
        """Take the head away: from here on it is stored elsewhere.

        Raises:
            LedgerError: when it cannot be removed.
        """
        where = self._where()
        try:
            with _held(lock_beside(where)):
                where.unlink(missing_ok=True)
        except OSError as error:
            raise LedgerError(
                f"the head in {self.path.name!r} cannot be removed: {error.strerror}"
            ) from None

    def swap(self, old: Head | None, new: Head) -> bool:
        """Replace a head, whole and durably, if it is still the one there; whether it was.

        Raises:
            LedgerError: when it cannot be written; the entry itself is in the ledger.
        """
        where = self._where()
        beside = where.with_name(f".{where.name}.{secrets.token_hex(8)}")
        try:
            with _held(lock_beside(where)):
                if self.read() != old:
                    return False
                _write_durably(beside, canonical_json(asdict(new)) + "\n")
                beside.replace(where)
                _sync_folder(where.parent)
        except OSError as error:
            with suppress(OSError):
                beside.unlink(missing_ok=True)
            raise LedgerError(
                f"the head could not be written to {self.path.name!r}: {error.strerror}"
            ) from None
        return True


def _write_durably(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, all of it.

    Raises:
        OSError: when it is there already, or the disk does not take all of it.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(text.encode())  # again until all of it is written
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a file's new name in a folder durable: else a crash of the machine brings back the
    former head, which the log knows to be an old one.
    """
    if sys.platform == "win32":  # where a folder cannot be opened
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def lock_beside(path: Path) -> Path:
    """The file that is locked while a head file is replaced; it stays, so it tells it from an
    exported head.
    """
    return path.with_name(f".{path.name}.lock")


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock file, so that one process at a time compares and replaces a head."""
    if sys.platform == "win32":
        yield
        return
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # closing it gives the lock back
        yield
    finally:
        os.close(lock)


class HeadTable:
    """A head in a database, preferably on another server: the only row of its table.

    Args:
        url: as SQLAlchemy takes it; SQLite or PostgreSQL.

    Raises:
        LedgerError: when it cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._run(
            "CREATE TABLE IF NOT EXISTS dptopk_head (id INTEGER PRIMARY KEY, ledger TEXT, seq "
            "BIGINT, hash TEXT)"
        )

    def read(self) -> Head | None:
        """The head, if there is one."""
        found, _ = self._run("SELECT ledger, seq, hash FROM dptopk_head WHERE id = 1")
        if found:
            return Head.of(dict(zip(("ledger", "seq", "hash"), found[0], strict=True)))
        return None

    def swap(self, old: Head | None, new: Head) -> bool:
        """Replace a head durably, if it is still the one there; whether it was."""
        change = (
            "INSERT INTO dptopk_head VALUES (1, :ledger, :seq, :hash) ON CONFLICT (id) "
            "DO UPDATE SET ledger = :ledger, seq = :seq, hash = :hash "
            "WHERE dptopk_head.seq = :old_seq AND dptopk_head.hash = :old_hash"
        )
        there = Head(-1, "") if old is None else old
        return self._run(change, **asdict(new), old_seq=there.seq, old_hash=there.hash)[1] == 1

    def place(self) -> HeadPlace:
        """Return how a ledger records where this is; without the address, which may hold a
        password.
        """
        return {"kind": "database", "name": self._url.partition(":")[0]}

    def remove(self) -> None:
        """Take the head away: from here on it is stored elsewhere."""
        self._run("DELETE FROM dptopk_head WHERE id = 1")

    def _run(self, statement: str, **values: str | int | None) -> tuple[list[Any], int]:
        """Run a statement by itself; its rows, and how many it changed."""
        import sqlalchemy as sa

        try:
            # A connection for each statement: none is shared with a child process, or left open.
            with sa.create_engine(self._url, poolclass=sa.NullPool).begin() as connection:
                result = connection.execute(sa.text(statement), values)
                rows = list(result.fetchall()) if result.returns_rows else []
                return rows, result.rowcount
        except (sa.exc.SQLAlchemyError, ImportError, ValueError) as error:
            cause = getattr(error, "orig", None) or error
            reason = str(cause).strip().splitlines() or [type(error).__name__]
            raise LedgerError(f"the database of the head refused: {reason[0]}") from None


def witness_at(place: str | Path, ledger: LedgerFile | None = None) -> HeadFile | HeadTable:
    """Return the storage of a head at a path or a database URL; ``ledger``: the file of its ledger,
    if that is one.
    """
    if "://" in str(place):
        return HeadTable(str(place))
    return HeadFile(Path(place), ledger)
