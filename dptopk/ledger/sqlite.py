"""A ledger in a SQLite file.

It runs with ``synchronous=FULL``, so that a committed entry survives a crash of the process and of
the machine, and with a rollback journal (``journal_mode=PERSIST``), so that all entries are in the
one file. Both settings are read back on every connection. A writer begins with ``BEGIN IMMEDIATE``,
which takes the lock of the file.

A process that stays, such as the service, may use a write-ahead log (``journal_mode=WAL``). A
commit is then one sync instead of five, of a log next to the file. The file is brought up to date
from it now and then, and when the last process closes it. As long as there may be a log, the file
itself is marked (``user_version``) as incomplete without it.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dptopk.errors import LedgerError
from dptopk.ledger.sqlite_file import COMPLETE, NEEDS_LOG, LedgerFile

LOCK_TIMEOUT_MS = 60_000  # who waits so long for the lock of a database is refused
# The errors of SQLite. sqlite3 raises the second one when a message would quote a damaged name.
ERRORS = (sqlite3.Error, UnicodeDecodeError)
Purpose = Literal["read", "write", "create"]  # of a transaction; "create": the tables
# A function that runs a statement with its values and returns all rows.
Run = Callable[..., list[tuple[Any, ...]]]


@dataclass
class _Opened:
    """What SQLite has open of one database in this process.

    Attributes:
        connections: the numbers (``id``) of the connections.
        log: the identities of the two files of a write-ahead log (``LedgerFile.log_files``), when
            the first of them began a transaction; None: there is no log.
    """

    connections: set[int] = field(default_factory=set)
    log: tuple[int, ...] | None = None


# Identity of a database -> what is open of it. All connections of a process share the memory of a
# log that the first of them has opened.
_opened: dict[tuple[int, int], _Opened] = {}


@dataclass
class _Idle:
    """The connection that is open between two transactions, if there is one.

    Attributes:
        database: the identity of its database.
        connection: the connection; None: there is none, or a transaction has taken it.
    """

    database: tuple[int, int]
    connection: sqlite3.Connection | None = None

    def take(self) -> sqlite3.Connection | None:
        """Return the connection, which is not idle any more; None if there is none."""
        connection = self.connection
        self.connection = None
        return connection


class SQLite:
    """The database in one file, which stays where it is while it is open.

    Args:
        file: the file.
        read_only: whether nothing is written to the file or its folder.
        ahead: whether it uses a write-ahead log; else it does so only while another process does.
        identity: the identity of the file when it was first opened (``LedgerFile.identity``); None:
            it is opened now.

    Attributes:
        mark: what stands for a value in a statement.
        guards: the statements that make the database refuse changes of written rows.
        unguard: the statements that allow to change them again, as a new key needs it.

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
        # A write-ahead log needs memory that all processes share.
        self._ahead = ahead and not file.network
        self._identity = identity or file.identity()
        self._idle = _Idle(self._identity)
        weakref.finalize(self, _close, self._idle, file, os.getpid())
        # The time and size of the file when the write lock was taken.
        self._state_at_lock: tuple[int, int] | None = None

    def reopen(self) -> SQLite:
        """Return the same database for a child process, which makes connections of its own."""
        return SQLite(
            self._file, read_only=self._read_only, ahead=self._ahead, identity=self._identity
        )

    def take(self) -> sqlite3.Connection:
        """Return a connection for one transaction: that of the transaction before, or a new one
        whose settings are checked.
        """
        idle_connection = self._idle.take()
        if idle_connection is not None:
            return idle_connection
        return self._connect()

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Keep the connection of a transaction that was committed for the next one."""
        self._idle.connection = connection

    def drop(self, connection: sqlite3.Connection) -> None:
        """Roll back the transaction of a connection, and keep the connection for the next one; one
        that cannot roll back is closed.
        """
        try:
            connection.rollback()
        except ERRORS:
            _close_connection(connection, self._identity)
        else:
            self._idle.connection = connection

    def _connect(self) -> sqlite3.Connection:
        """Return a new connection with durable settings.

        Raises:
            LedgerError: if the file was moved, or lacks its log.
        """
        self._file.refuse_lost_log()
        connection = sqlite3.connect(
            self._file.address(read_only=self._read_only),
            uri=True,
            isolation_level=None,  # only ``begin`` begins transactions
            check_same_thread=False,  # one thread at a time: see ``Store.lock``
            timeout=LOCK_TIMEOUT_MS / 1000,
        )
        _opened.setdefault(self._identity, _Opened()).connections.add(id(connection))
        try:
            self.refuse_moved_file()
            if not self._read_only:
                _make_durable(connection, ahead=self._ahead)
        except BaseException:
            _close_connection(connection, self._identity)
            raise
        return connection

    def refuse_moved_file(self) -> None:
        """Refuse to go on if the file was moved, replaced or deleted, or has a second name.

        Raises:
            LedgerError: if so.
        """
        if self._file.identity() != self._identity:
            raise LedgerError(
                f"the ledger {self._file.path.name!r} was moved or replaced while it was open"
            )

    def begin(self, run: Run, purpose: Purpose) -> None:
        """Begin a transaction; for a purpose other than reading, take the lock of the file.

        SQLite uses the pages that it has in memory if a counter in the file is unchanged. The same
        number of commits to an older copy leads to the same counter, so the pages are dropped
        first.

        Args:
            run: runs a statement on the connection (``Transaction.run``).
            purpose: what the transaction is for, as ``Store.transaction`` takes it.

        Raises:
            LedgerError: when a file of the write-ahead log was removed or replaced.
        """
        run("PRAGMA shrink_memory")
        run("BEGIN" if purpose == "read" else "BEGIN IMMEDIATE")
        has_log = run("PRAGMA journal_mode") == [("wal",)]
        self._state_at_lock = None if purpose == "read" or has_log else self._file.change_state()
        self._refuse_lost_log(has_log=has_log)
        if has_log and purpose != "read" and run("PRAGMA user_version") != [(NEEDS_LOG,)]:
            # An older version of this program removed the mark; the file itself must have it first.
            run(f"PRAGMA user_version = {NEEDS_LOG}")
            run("COMMIT")
            run("PRAGMA wal_checkpoint(FULL)")
            run("BEGIN IMMEDIATE")

    def _refuse_lost_log(self, *, has_log: bool) -> None:
        """Refuse to go on if somebody removed or replaced a file of the write-ahead log.

        This process would write to a log that nobody else sees. The locks of the log are in its
        -shm file: whoever opens the ledger makes a new one, and would write to the log at the same
        places as this process.

        Args:
            has_log: whether there is a log now.

        Raises:
            LedgerError: if so.
        """
        opened = _opened[self._identity]
        if not has_log:
            opened.log = None
            return
        log = self._file.log_files()
        if opened.log is None:
            opened.log = log  # None: SQLite could not make one of them, and says so itself
        elif log != opened.log:
            name = self._file.path.name
            raise LedgerError(
                f"somebody removed or replaced {name + '-wal'!r} or {name + '-shm'!r} while the "
                "ledger was open: nothing more is written by this process; start it again"
            )

    # The signature is that of PostgreSQL's.
    def commit(self, connection: sqlite3.Connection, run: Run) -> None:  # noqa: ARG002
        """Commit durably, unless another file was written over this one since the lock was taken.

        Args:
            connection: the connection of the transaction, which PostgreSQL needs.
            run: runs a statement on it (``Transaction.run``).

        Raises:
            LedgerError: if so, or if a file beside it was removed or replaced.
        """
        has_log = _opened[self._identity].log is not None
        if has_log:
            self._refuse_lost_log(has_log=True)
        if self._state_at_lock not in {None, self._file.change_state()}:
            raise LedgerError(
                f"the ledger {self._file.path.name!r} was overwritten while it was in use"
            )
        run("COMMIT")
        if has_log:  # a commit to a log that was replaced meanwhile is seen by nobody else
            self._refuse_lost_log(has_log=True)

    def has_tables(self, names: tuple[str, ...], run: Run) -> bool:
        """Return whether these tables and indexes exist.

        Args:
            names: the names of the tables and indexes.
            run: runs a statement on the connection (``Transaction.run``).
        """
        return {(name,) for name in names} <= set(run("SELECT name FROM sqlite_master"))

    def damage(self, run: Run) -> list[str]:
        """Return the problems that SQLite's check of all pages and indexes finds."""
        return [f"SQLite: {row[0]}" for row in run("PRAGMA integrity_check") if row[0] != "ok"]

    def backup(self, path: Path) -> None:
        """Copy the file, as of one moment, into a file that does not exist yet.

        Raises:
            LedgerError: if it exists, or cannot be written.
            sqlite3.Error: if SQLite cannot copy it; the unfinished copy is removed.
        """
        copy = LedgerFile.at(path)
        if copy.exists() or path.is_symlink():
            raise LedgerError(f"{path.name!r} exists already; name a new file")
        if self._file.includes(path):
            raise LedgerError(f"{path.name!r} is a name of SQLite's own; give another name")
        source = self._connect()
        try:
            copy.make()
            try:
                _copy_all(source, copy)
            except BaseException:
                copy.path.unlink(missing_ok=True)
                raise
        finally:
            _close(_Idle(self._identity, source), self._file, os.getpid())

    def close(self) -> None:
        """Close the connection that is kept for the next transaction; the next use opens one."""
        _close(self._idle, self._file, os.getpid())

    def prepare_fork(self) -> None:
        """Close a connection with a write-ahead log, whose locks SQLite would believe to hold in
        the child.

        Such a connection holds them between transactions, too. Without them, another process takes
        itself for the last one and removes the log.
        """
        opened = _opened.get(self._identity)
        if opened is not None and opened.log is not None:
            self.close()


def _copy_all(source: sqlite3.Connection, copy: LedgerFile) -> None:
    """Copy a database into an empty file, which is complete then and has no log."""
    with closing(sqlite3.connect(copy.path)) as target:
        source.backup(target)
        target.execute(f"PRAGMA user_version = {COMPLETE}")
        target.execute("PRAGMA journal_mode = DELETE")


def _make_durable(connection: sqlite3.Connection, *, ahead: bool) -> None:
    """Make the settings of a connection durable, and read them back.

    Args:
        connection: the connection.
        ahead: whether it uses a write-ahead log.

    Raises:
        LedgerError: if SQLite does not take them.
    """
    for pragma in (
        "synchronous=FULL",
        "fullfsync=ON",
        "checkpoint_fullfsync=ON",
        "cache_spill=OFF",
    ):
        _pragma(connection, pragma)
    if _pragma(connection, "journal_mode") != "wal":
        _pragma(connection, "journal_mode=PERSIST")
        # While another process is writing, the mode cannot be changed, and the present one will do.
        with suppress(sqlite3.OperationalError):
            if ahead:
                # The mark comes first: it is in the file itself before there is a log.
                _pragma(connection, f"user_version={NEEDS_LOG}")
                _pragma(connection, "journal_mode=WAL")
                # The log gets its header with its first commit: without one it counts as lost.
                _pragma(connection, f"user_version={NEEDS_LOG}")
    journal = _pragma(connection, "journal_mode")
    synchronous = _pragma(connection, "synchronous")
    if journal not in {"persist", "wal"} or synchronous != 2:  # 2 is FULL
        raise LedgerError(
            f"SQLite refuses durability: journal_mode={journal}, synchronous={synchronous}"
        )


def _close(idle: _Idle, file: LedgerFile, pid: int) -> None:
    """Close an idle connection; the last of all processes that closes one leaves a complete file.

    SQLite takes the log into the file before it leaves the mode with a log, and the mark is removed
    after that. SQLite refuses to leave the mode while another connection is open, whose process
    then does it.

    Args:
        idle: holds the connection, which is removed from it; without one nothing is done.
        file: its file; one that was opened without the log that it needs keeps its mark.
        pid: the process that opened it; another one, a child, must not touch it.
    """
    connection = idle.take() if pid == os.getpid() else None
    if connection is None:
        return
    opened = _opened[idle.database]
    if opened.log is not None and file.log_files() != opened.log:
        # SQLite would take its own part of the log into the file, and remove the log with what
        # others wrote to it. The connection ends with the process: it is never freed.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        return
    has_log = _leave_log_mode(connection, file)
    _close_connection(connection, idle.database)
    if file.log_files() is None:  # this process was the last one
        opened.log = None
    # If two processes closed at once, SQLite took the log in when the second one did.
    with suppress(*ERRORS, LedgerError):
        log_was_taken_in = has_log and file.exists() and file.log_files() is None
        if log_was_taken_in and file.lacks_log():
            file.mark_complete()


def _leave_log_mode(connection: sqlite3.Connection, file: LedgerFile) -> bool:
    """Let SQLite take a write-ahead log into its file and mark the file as complete, unless another
    connection is open.

    Args:
        connection: a connection to the file.
        file: the file.

    Returns:
        Whether the file had a log; False also for one that was opened without the log that it
        needs, and where SQLite does not say.
    """
    has_log = False
    with suppress(*ERRORS):
        has_log = _pragma(connection, "journal_mode") == "wal" and not file.without_log
        if has_log and _pragma(connection, "journal_mode=PERSIST") == "persist":
            _pragma(connection, f"user_version={COMPLETE}")
    return has_log


def _close_connection(connection: sqlite3.Connection, database: tuple[int, int]) -> None:
    """Close a connection, and forget that it is open in this process (``_opened``).

    Args:
        connection: the connection.
        database: the identity of its database.
    """
    connection.close()
    connections = _opened[database].connections
    connections.discard(id(connection))
    if not connections:
        _opened.pop(database, None)


def _pragma(connection: sqlite3.Connection, pragma: str) -> object:
    """Set or read a setting of a database by a PRAGMA statement of SQLite.

    Args:
        connection: a connection to the database.
        pragma: the name of the setting, to read it, or "name=value", to set it.

    Returns:
        The value of the setting, after it was set; None if SQLite returns none.
    """
    row = connection.execute(f"PRAGMA {pragma}").fetchone()
    if row is None:
        return None
    value: object = row[0]
    return value
