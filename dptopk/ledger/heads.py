"""Exported heads: the number and hash of the last entry, stored in another place.

A database that was restored from a backup, copied without its journal, or cut off at its end looks
complete. A head that was written elsewhere after a later commit shows it: the log must still hold
that entry with that hash. A head file is replaced only by a later head of the same log, by one
process at a time. A database may hold the head instead of a file.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from dptopk._internal.json_text import canonical_json
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.postgresql import CREATING
from dptopk.ledger.recorded import HeadPlace
from dptopk.ledger.sqlite_file import LedgerFile

if TYPE_CHECKING:
    from sqlalchemy import Connection

if sys.platform != "win32":  # there heads are replaced without a lock
    import fcntl


_MAX_SEQ = 2**63 - 1  # the largest integer in SQLite and PostgreSQL
# The lock of a head is held for milliseconds. A process that waits for it this long is refused: the
# holder was stopped. While it waits it tries again after each pause.
LOCK_SECONDS = 60.0
PAUSE_SECONDS = 0.001
_MAX_BYTES = 10_000  # a larger file is no head file; one that is written here has 150 bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a log.

    Attributes:
        seq: the sequence number of its last entry.
        hash: the hash of that entry.
        ledger: the identity of the ledger; None in heads of earlier versions.
    """

    seq: int
    hash: str
    ledger: str | None = None

    @classmethod
    def of(cls, head: Mapping[str, Any]) -> Head:
        """Return a head as it was exported.

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

    def problem(self, ledger: str | None, hash_in_log: str | None) -> str:
        """Return what is wrong with a log by this head; "" if nothing.

        Args:
            ledger: the identity of the log's ledger.
            hash_in_log: the hash of the log's entry with this number; None: there is no such entry.
        """
        if self.ledger is not None and ledger is not None and self.ledger != ledger:
            return "the head belongs to another ledger"
        if hash_in_log is None:
            return f"the tail is missing: the log has no entry {self.seq}, which was written before"
        if hash_in_log != self.hash:
            return f"entry {self.seq} is not the one that was written before: the log was rewritten"
        return ""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """A head in a file.

    Args:
        path: the path of the file; a link to it stays a link.
        ledger: the file of the ledger whose head it is, which is never opened here; None: unknown.
    """

    path: Path
    ledger: LedgerFile | None = None

    def read(self) -> Head | None:
        """Return the head; None if there is no file.

        Raises:
            InvalidParameter: when the file holds no head, or cannot be read.
        """
        try:
            with self._readable_path() as path:
                return Head.of(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:  # the head may be there, and be the present one
            raise InvalidParameter(
                f"head: {self.path.name!r} cannot be read: {error.strerror}"
            ) from None
        except (ValueError, RecursionError):
            hint = (
                "dptopk ledger export --head writes one; where a ledger stores its head, and it is "
                "lost: dptopk ledger witness replace"
            )
            raise InvalidParameter(
                f"head: {self.path.name!r} is not an exported head; {hint}"
            ) from None

    @contextmanager
    def _readable_path(self) -> Iterator[Path]:
        """Yield a path at which the head can be read; refuse a file that must not be opened.

        To read a pipe or a device may never end; to close a file of the ledger would drop its
        locks. So the file is opened without any access first, of which no lock knows, and read
        by that handle, even if another file gets its name meanwhile. Where there are no such
        handles, its path is yielded.

        Raises:
            OSError: when there is no file.
            ValueError: when it is no regular small file, or one of the ledger's.
        """
        without_access: int | None = getattr(os, "O_PATH", None)
        if without_access is None:
            self._refuse_what_is_no_head(self.path.stat())
            yield self.path
            return
        handle = os.open(self.path, without_access)
        try:
            self._refuse_what_is_no_head(os.fstat(handle))
            by_handle = Path(f"/proc/self/fd/{handle}")
            yield by_handle if by_handle.exists() else self.path
        finally:
            os.close(handle)

    def _refuse_what_is_no_head(self, status: os.stat_result) -> None:
        """Refuse a file that must not be read as a head.

        Raises:
            ValueError: when it is no regular small file, or one of the ledger's.
        """
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES:
            raise ValueError("no file of a head")
        if self.ledger is not None and self.ledger.is_one_of_its_files(status):
            raise ValueError("a file of the ledger")

    def _real_path(self) -> Path:
        """Return the path with links followed: a link to another disk must not be replaced by a
        file on this one.
        """
        return Path(os.path.realpath(self.path))

    def place(self) -> HeadPlace:
        """Return how a ledger records this place."""
        return {"kind": "file", "name": self.path.name}

    def remove(self) -> None:
        """Remove the head, which is stored elsewhere from now on.

        Raises:
            LedgerError: when it cannot be removed.
        """
        path = self._real_path()
        try:
            with _hold_lock(lock_beside(path)):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise LedgerError(
                f"the head in {self.path.name!r} cannot be removed: {error.strerror}"
            ) from None

    def swap(self, old: Head | None, new: Head) -> bool:
        """Replace the head ``old`` durably; return False if another one is there.

        A crash leaves the old head or the new one, never a part of it.

        Args:
            old: the head that is there; None: there is none yet.
            new: the head that takes its place.

        Raises:
            InvalidParameter: when the file holds no head.
            LedgerError: when it cannot be written; the entry itself is in the ledger.
        """
        path = self._real_path()
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with _hold_lock(lock_beside(path)):
                if self.read() != old:
                    return False
                _write_durably(temporary, canonical_json(asdict(new)) + "\n")
                temporary.replace(path)
                _sync_folder(path.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise LedgerError(
                f"the head could not be written to {self.path.name!r}: {error.strerror}"
            ) from None
        return True


def _write_durably(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, and wait until the disk has it.

    Raises:
        OSError: when the file exists, or the disk does not take all of it.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(text.encode())  # a buffered file writes until all of it is written
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a file's new name in a folder durable.

    Otherwise a crash of the machine could bring back the former head, which the log would refuse as
    an old one. Where folders cannot be opened or synced, nothing more can be done; the errors that
    say so are those that PostgreSQL passes over (``fsync_fname_ext`` in its fd.c).
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EISDIR}:
            return
        raise
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.EINVAL}:
            raise
    finally:
        os.close(descriptor)


def lock_beside(path: Path) -> Path:
    """Return the file that is locked while a head file is replaced.

    It is never deleted, so that a head file can be told from an exported head.
    """
    return path.with_name(f".{path.name}.lock")


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold a lock file, so that one process at a time compares and replaces a head; on Windows
    nothing is locked.

    Raises:
        OSError: when it cannot be opened, or another process holds it for LOCK_SECONDS.
    """
    if sys.platform == "win32":
        yield
        return
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        _lock(lock)  # closing the file releases the lock
        yield
    finally:
        os.close(lock)


def _lock(file: int) -> None:
    """Lock a file that other processes lock too, by its descriptor.

    A process that was stopped may hold the lock for ever.

    Raises:
        TimeoutError: when another process holds it for LOCK_SECONDS.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                reason = "another process, which may have been stopped, holds its lock"
                raise TimeoutError(errno.ETIMEDOUT, reason) from None
            time.sleep(PAUSE_SECONDS)
        else:
            return


class HeadTable:
    """A head in a database, preferably on another server: the only row of its table.

    Args:
        url: the URL of a SQLite or PostgreSQL database, as SQLAlchemy takes it.

    Raises:
        InvalidParameter: for a SQLite database in memory, in which no head would stay.
        LedgerError: when it cannot be opened.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.read()  # refuses a database that cannot be read

    def read(self) -> Head | None:
        """Return the head; None if there is none. Nothing is written, and no file is made.

        Raises:
            InvalidParameter: for a SQLite database in memory, or a row that is no head.
            LedgerError: when the database refuses.
        """
        if self._lacks_file():
            return None
        selection = "SELECT ledger, seq, hash FROM dptopk_head WHERE id = 1"
        try:
            rows, _ = self._run(selection)
        except LedgerError:
            if self._lacks_table():
                return None
            rows, _ = self._run(selection)  # another process may have made the table meanwhile
        for ledger, seq, hash_ in rows:
            return Head.of({"ledger": ledger, "seq": seq, "hash": hash_})
        return None

    def swap(self, old: Head | None, new: Head) -> bool:
        """Replace the head ``old`` durably; return False if another one is there.

        Args:
            old: the head that is there; None: there is none yet.
            new: the head that takes its place.

        Raises:
            LedgerError: when the database refuses; the entry itself is in the ledger.
        """
        if old is None:
            self._create_table()
            _, changed = self._run(
                "INSERT INTO dptopk_head VALUES (1, :ledger, :seq, :hash) ON CONFLICT (id) "
                "DO NOTHING",
                **asdict(new),
            )
        else:
            _, changed = self._run(
                "UPDATE dptopk_head SET ledger = :ledger, seq = :seq, hash = :hash "
                "WHERE id = 1 AND seq = :old_seq AND hash = :old_hash",
                **asdict(new),
                old_seq=old.seq,
                old_hash=old.hash,
            )
        return changed == 1

    def place(self) -> HeadPlace:
        """Return how a ledger records this place; the address is left out, since it may hold a
        password.
        """
        return {"kind": "database", "name": self._url.partition(":")[0]}

    def remove(self) -> None:
        """Remove the head, which is stored elsewhere from now on.

        Raises:
            LedgerError: when the database refuses.
        """
        self._run("DELETE FROM dptopk_head WHERE id = 1")

    def _lacks_file(self) -> bool:
        """Return whether the URL is of a SQLite file that does not exist, which a query would
        create.

        Raises:
            InvalidParameter: for a SQLite database in memory.
        """
        import sqlalchemy as sa

        try:
            address = sa.engine.make_url(self._url)
            is_sqlite = address.get_backend_name() == "sqlite"
            takes_uri = sa.util.asbool(address.query.get("uri", "false"))
        except (sa.exc.SQLAlchemyError, ValueError):  # the query that follows says what is wrong
            return False
        if not is_sqlite:
            return False
        name = address.database or ""
        path = Path(name)
        if takes_uri and name.startswith("file:"):
            path = path_of_uri(name)
        if str(path) in {".", ":memory:"} or address.query.get("mode") == "memory":
            raise InvalidParameter("head: a database in memory is lost when it is closed")
        return not path.exists()

    def _lacks_table(self) -> bool:
        """Return whether the database has no table of a head."""
        import sqlalchemy as sa

        with self._connection() as connection:
            return not sa.inspect(connection).has_table("dptopk_head")

    def _create_table(self) -> None:
        """Create the table of the head if it is not there."""
        import sqlalchemy as sa

        with self._connection() as connection:
            if connection.dialect.name == "postgresql":
                # Of two that create one table at once, PostgreSQL refuses one nevertheless.
                lock = sa.text("SELECT pg_advisory_xact_lock(:key)")
                connection.execute(lock, {"key": CREATING})
            columns = "id INTEGER PRIMARY KEY, ledger TEXT, seq BIGINT, hash TEXT"
            table = f"CREATE TABLE IF NOT EXISTS dptopk_head ({columns})"
            connection.execute(sa.text(table))

    def _run(self, statement: str, **values: str | int | None) -> tuple[list[Any], int]:
        """Run a statement in a transaction of its own; return its rows, and how many rows it
        changed.
        """
        import sqlalchemy as sa

        with self._connection() as connection:
            result = connection.execute(sa.text(statement), values)
            rows = list(result.fetchall()) if result.returns_rows else []
            return rows, result.rowcount

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Open a connection with a transaction of its own for a ``with`` block.

        Raises:
            LedgerError: when the database refuses.
        """
        import sqlalchemy as sa

        try:
            # A connection for each statement: none is shared with a child process, or left open.
            with sa.create_engine(self._url, poolclass=sa.NullPool).begin() as connection:
                if connection.dialect.name == "postgresql":
                    milliseconds = round(LOCK_SECONDS * 1000)
                    connection.execute(sa.text(f"SET LOCAL lock_timeout = {milliseconds}"))
                yield connection
        except (sa.exc.SQLAlchemyError, ImportError, ValueError) as error:
            cause = getattr(error, "orig", None) or error
            lines = str(cause).strip().splitlines()
            reason = lines[0] if lines else type(error).__name__
            raise LedgerError(f"the database of the head refused: {reason}") from None


# Where a head is stored; both have the methods read, swap, remove and place.
HeadStorage = HeadFile | HeadTable


def path_of_uri(uri: str) -> Path:
    """Return the path of the file that a URI of SQLite names, "file:" and a path; what follows "?"
    is left out.

    Source: "Uniform Resource Identifiers" of SQLite, section 3.
    """
    path = uri.removeprefix("file:").partition("?")[0]
    path_without_host = re.sub("^//[^/]*", "", path)
    return Path(unquote(path_without_host))


def head_storage_at(place: str | Path, ledger: LedgerFile | None = None) -> HeadStorage:
    """Return the place at a path or a database URL as one that a head can be stored at.

    Args:
        place: the path or URL.
        ledger: the file of the ledger, if that is one.
    """
    if "://" in str(place):
        return HeadTable(str(place))
    return HeadFile(Path(place), ledger)
