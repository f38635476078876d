"""A ledger in a SQLite file.

It runs with ``synchronous=FULL``, so that a committed entry survives a crash of the process and of
the machine, and with a rollback journal that is kept (``journal_mode=PERSIST``): all entries are in
the one file. Both are read back on every connection. A writer begins with ``BEGIN IMMEDIATE``,
which takes the lock of the file.

A process that stays, such as the service, may write ahead (``journal_mode=WAL``): a commit is then
one sync instead of five, of a log next to the file, from which the file is brought up to date now
and then, and when the last process closes it. The file itself is marked (``user_version``) as
incomplete without its log before there is one, and until there is none.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dptopk.errors import LedgerError
from dptopk.ledger.sqlite_file import COMPLETE, NEEDS_LOG, LedgerFile

LOCK_TIMEOUT_MS = 60_000
ERRORS = (
    sqlite3.Error,
    UnicodeDecodeError,
)  # the second where a message would quote a damaged name
Purpose = Literal["read", "write", "create"]
Run = Callable[..., list[tuple[Any, ...]]]  # runs a statement, with its values, and reads all rows


class SQLite:
    """The database in one file, which stays where it is while it is open.

    Args:
        file: where it is.
        read_only: nothing is written to the file or its folder.
        ahead: write ahead; else only while another process does.
        identity: what the file was when it was first opened (``LedgerFile.identity``); None: that
            is now.

    Raises:
        LedgerError: when the file is not there, or one whose locks may not hold.
    """

    mark = "?"
    guards = tuple(
        f"CREATE TRIGGER IF NOT EXISTS entries_no_{action.lower()} BEFORE {action} ON entries "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for action in ("UPDATE", "DELETE")
    )
    unguard = ("DROP TRIGGER entries_no_update",)

    def __init__(
        self,
        file: LedgerFile,
        *,
        read_only: bool,
        ahead: bool = False,
        identity: tuple[int, int] | None = None,
    ) -> None:
        if identity is None:
            file.check()
        self._file = file
        self._read_only = read_only
        self._ahead = (
            ahead and not file.network
        )  # a log ahead needs memory that all processes share
        self._identity = identity or file.identity()
        self._idle: list[sqlite3.Connection] = []  # at most one
        weakref.finalize(self, _close, self._idle, file, os.getpid())
        self._written: tuple[int, int] | None = (
            None  # when and how long the file was as the write lock was taken
        )

    def anew(self) -> SQLite:
        """Return the same file with a new connection."""
        return SQLite(
            self._file, read_only=self._read_only, ahead=self._ahead, identity=self._identity
        )

    def take(self) -> sqlite3.Connection:
        """The connection of the transaction before, or a new one: durable, and checked to be."""
        if self._idle:
            return self._idle.pop()
        return self._connect()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next transaction."""
        self._idle.append(connection)

    def drop(self, connection: sqlite3.Connection) -> None:
        """Roll back; close a connection that an interrupt may have left in another state."""
        try:
            connection.rollback()
        except ERRORS:
            connection.close()
        else:
            self._idle.append(connection)

    def _connect(self) -> sqlite3.Connection:
        self._file.refuse_lost_log()
        connection = sqlite3.connect(
            self._file.address(read_only=self._read_only),
            uri=True,
            isolation_level=None,  # transactions are begun by ``begin`` alone
            check_same_thread=False,  # one thread at a time: see ``Store.lock``
            timeout=LOCK_TIMEOUT_MS / 1000,
        )
        try:
            self.unmoved()
            if not self._read_only:
                _make_durable(connection, ahead=self._ahead)
        except BaseException:
            connection.close()
            raise
        return connection

    def unmoved(self) -> None:
        """Refuse to go on when the file was moved, replaced or deleted, or got a second name."""
        if self._file.identity() != self._identity:
            raise LedgerError(
                f"the ledger {self._file.path.name!r} was moved or replaced while it was open"
            )

    def begin(self, run: Run, purpose: Purpose) -> None:
        """Begin; to write, with the lock of the file.

        SQLite believes the pages that it has in memory when a counter in the file is as it was,
        which the same number of commits to an older copy makes true: so they are read anew.
        """
        run("PRAGMA shrink_memory")
        run("BEGIN" if purpose == "read" else "BEGIN IMMEDIATE")
        ahead = run("PRAGMA journal_mode") == [("wal",)]
        self._written = None if purpose == "read" or ahead else self._file.written()
        if ahead and purpose != "read" and run("PRAGMA user_version") != [(NEEDS_LOG,)]:
            # an older version of this program cleared it: the file itself has it before we go on
            run(f"PRAGMA user_version = {NEEDS_LOG}")
            run("COMMIT")
            run("PRAGMA wal_checkpoint(FULL)")
            run("BEGIN IMMEDIATE")

    # one signature
    def commit(self, connection: sqlite3.Connection, run: Run) -> None:  # noqa: ARG002
        """Commit durably, unless another file was written over this one since the lock was
        taken.
        """
        if self._written not in {None, self._file.written()}:
            raise LedgerError(
                f"the ledger {self._file.path.name!r} was overwritten while it was in use"
            )
        run("COMMIT")

    def has_tables(self, names: tuple[str, ...], run: Run) -> bool:
        """Whether these tables exist."""
        return {(name,) for name in names} <= set(run("SELECT name FROM sqlite_master"))

    def damage(self, run: Run) -> list[str]:
        """Report SQLite's check of all pages and indexes."""
        return [f"SQLite: {row[0]}" for row in run("PRAGMA integrity_check") if row[0] != "ok"]

    def backup(self, path: Path) -> None:
        """Copy the file as of one moment into a new one."""
        if path.exists() or path.is_symlink():
            raise LedgerError(f"{path.name!r} exists already; name a new file")
        copy = LedgerFile.at(path)
        if self._file.includes(path):
            raise LedgerError(f"{path.name!r} is a name of SQLite's own; give another name")
        copy.make()
        source = self._connect()
        target = sqlite3.connect(copy.path)
        try:
            source.backup(target)
            for pragma in (
                "user_version = 0",
                "journal_mode = DELETE",
            ):  # a copy has no log of its own
                target.execute(f"PRAGMA {pragma}")
        except ERRORS as error:
            raise LedgerError(f"the backup failed: {error}") from None
        finally:
            target.close()
            _close([source], self._file, os.getpid())

    def close(self) -> None:
        """Close the cached connection."""
        _close(self._idle, self._file, os.getpid())


def _make_durable(connection: sqlite3.Connection, *, ahead: bool) -> None:
    """Set what durability needs, and read it back."""
    for pragma in (
        "synchronous=FULL",
        "fullfsync=ON",
        "checkpoint_fullfsync=ON",
        "cache_spill=OFF",
    ):
        _pragma(connection, pragma)
    if _pragma(connection, "journal_mode") != "wal":
        _pragma(connection, "journal_mode=PERSIST")
        # where another process is writing, the journal that there is will do
        with suppress(sqlite3.OperationalError):
            if ahead:
                # the mark first: it is in the file itself before there is a log
                _pragma(connection, f"user_version={NEEDS_LOG}")
                _pragma(connection, "journal_mode=WAL")
                # the log gets its header with its first commit: without one it counts as lost
                _pragma(connection, f"user_version={NEEDS_LOG}")
    journal = _pragma(connection, "journal_mode")
    synchronous = _pragma(connection, "synchronous")
    if journal not in {"persist", "wal"} or synchronous != 2:
        raise LedgerError(
            f"SQLite refuses durability: journal_mode={journal}, synchronous={synchronous}"
        )


def _close(connections: list[sqlite3.Connection], file: LedgerFile, pid: int) -> None:
    """Close connections of this process; the last one of all processes leaves one file, complete
    without a log.

    The mark goes after the log, which SQLite takes into the file before it leaves the mode with a
    log. It refuses that while another connection is open, whose process then does it.
    """
    while connections and pid == os.getpid():
        connection = connections.pop()
        ahead = False
        with suppress(*ERRORS):
            ahead = _pragma(connection, "journal_mode") == "wal"
            if ahead and _pragma(connection, "journal_mode=PERSIST") == "persist":
                _pragma(connection, f"user_version={COMPLETE}")
        connection.close()
        # where two closed at once, SQLite has taken in the log as the second one did
        with suppress(*ERRORS):
            log_was_folded = ahead and file.path.exists() and not file.log().exists()
            if log_was_folded and file.lacks_log():
                file.settle()


def _pragma(connection: sqlite3.Connection, pragma: str) -> object:
    """Set or read a setting of a database."""
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    if row is None:
        return None
    value: object = row[0]
    return value
