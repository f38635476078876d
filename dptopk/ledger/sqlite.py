"""A ledger in a SQLite file.

It runs with a rollback journal that is kept (``journal_mode=PERSIST``) and ``synchronous=FULL``, both read back on
every connection, so a committed entry is in the one file of the ledger and survives a crash of the process and of the
machine. A writer begins with ``BEGIN IMMEDIATE``, which takes the lock of the file.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from dptopk.errors import LedgerError
from dptopk.ledger.database import LOCK_TIMEOUT_MS, Database, Purpose, Run
from dptopk.ledger.files import LedgerFile


class SQLite(Database):
    """The database in one file, which stays where it is while it is open.

    Args:
        file: where it is.
        read_only: nothing is written to the file or beside it.
        identity: what the file was when it was first opened (``LedgerFile.identity``); None: that is now.

    Raises:
        LedgerError: when the file is not there, or one whose locks may not hold.
    """

    guards = tuple(
        f"CREATE TRIGGER IF NOT EXISTS entries_no_{action.lower()} BEFORE {action} ON entries "
        "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        for action in ("UPDATE", "DELETE")
    )
    unguard = ("DROP TRIGGER entries_no_update",)

    def __init__(self, file: LedgerFile, *, read_only: bool, identity: tuple[int, int] | None = None) -> None:
        if identity is None:
            file.check()
        self._file = file
        self._read_only = read_only
        self._identity = identity or file.identity()
        self._idle: sqlite3.Connection | None = None
        self._written: tuple[int, int] | None = None  # when and how long the file was as the write lock was taken

    def anew(self) -> SQLite:
        """The same file, with a connection of its own."""
        return SQLite(self._file, read_only=self._read_only, identity=self._identity)

    def take(self) -> sqlite3.Connection:
        """The connection of the transaction before, or a new one: durable, and checked to be."""
        connection, self._idle = self._idle or self._connect(), None
        return connection

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next transaction."""
        self._idle = connection

    def drop(self, connection: sqlite3.Connection) -> None:
        """Close a connection that an interrupt may have left in any state."""
        connection.close()

    def _connect(self) -> sqlite3.Connection:
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
                _make_durable(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def unmoved(self) -> None:
        """Refuse to go on when the file was moved, replaced or deleted, or got a second name."""
        if self._file.identity() != self._identity:
            raise LedgerError(f"the ledger {self._file.path.name!r} was moved or replaced while it was open")

    def begin(self, run: Run, purpose: Purpose) -> None:
        """Begin; to write, with the lock of the file.

        SQLite believes the pages that it has in memory when a counter in the file is as it was, which the same number
        of commits to an older copy makes true: so they are read anew.
        """
        run("PRAGMA shrink_memory")
        run("BEGIN" if purpose == "read" else "BEGIN IMMEDIATE")
        self._written = None if purpose == "read" else self._file.written()

    def commit(self, connection: sqlite3.Connection, run: Run) -> None:  # noqa: ARG002 - one signature
        """Commit durably, unless another file was written over this one since the lock was taken."""
        if self._written not in {None, self._file.written()}:
            raise LedgerError(f"the ledger {self._file.path.name!r} was overwritten while it was in use")
        run("COMMIT")

    def has_tables(self, names: tuple[str, ...], run: Run) -> bool:
        """Whether these tables are there."""
        return {(name,) for name in names} <= set(run("SELECT name FROM sqlite_master"))

    def damage(self, run: Run) -> list[str]:
        """What SQLite's check of all pages and indexes finds."""
        return [f"SQLite: {row[0]}" for row in run("PRAGMA integrity_check") if row[0] != "ok"]

    def backup(self, path: Path) -> None:
        """Copy the file as of one moment into a new one."""
        if path.exists() or path.is_symlink():
            raise LedgerError(f"{path.name!r} exists already")
        copy = LedgerFile.at(path)
        copy.make()
        source = self._connect()
        target = sqlite3.connect(copy.path)
        try:
            source.backup(target)
        except sqlite3.Error as error:
            raise LedgerError(f"the backup failed: {error}") from None
        finally:
            target.close()
            source.close()

    def close(self) -> None:
        """Close the connection that is kept."""
        connection, self._idle = self._idle, None
        if connection is not None:
            connection.close()


def _make_durable(connection: sqlite3.Connection) -> None:
    """Set what durability needs, and read it back."""
    for pragma in ("journal_mode=PERSIST", "synchronous=FULL", "fullfsync=ON", "cache_spill=OFF"):
        connection.execute(f"PRAGMA {pragma}").close()
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if (journal, synchronous) != ("persist", 2):
        raise LedgerError(f"SQLite refuses durability: journal_mode={journal}, synchronous={synchronous}")
