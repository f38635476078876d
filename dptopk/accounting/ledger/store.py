"""A durable, append-only log in a SQL database: what the ledger is written on.

Durability: SQLite runs with a rollback journal that is kept (``journal_mode=PERSIST``) and ``synchronous=FULL``, both
read back on every connection, so a committed entry is in the one file of the ledger and survives a crash of the process
and of the machine. PostgreSQL must run with ``fsync`` and ``full_page_writes``, and commits synchronously.

Mutual exclusion: an append runs inside one transaction that takes the write lock first (``BEGIN IMMEDIATE``; an
exclusive table lock on PostgreSQL), reads what others appended meanwhile, decides, writes, and reads the row back.
Reading takes no lock that outlives a page of rows.

Beside the log stand two tables that it could be without: ``pointers``, where to find an entry, and ``snapshots``, the
state after some entry. Both are derived from the log, and what they say is checked against it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk.accounting.ledger.entries import FORMAT, GENESIS, Entry, text_of
from dptopk.accounting.ledger.files import LedgerFile
from dptopk.errors import DptopkError, LedgerError

if TYPE_CHECKING:
    from sqlalchemy import Engine

__all__ = ["Store", "Transaction"]

LOCK_TIMEOUT_MS = 60_000
PAGE = 500  # rows read in one transaction
_COLUMNS = ("seq", "at", "kind", "dataset", "analyst", "body", "previous", "hash")
_TABLES = (
    "CREATE TABLE IF NOT EXISTS entries (seq INTEGER NOT NULL PRIMARY KEY, "
    + ", ".join(f"{name} TEXT NOT NULL" for name in _COLUMNS[1:])
    + ")",
    "CREATE TABLE IF NOT EXISTS pointers (name TEXT NOT NULL PRIMARY KEY, seq INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL)",
)
_APPEND_ONLY = tuple(
    f"CREATE TRIGGER IF NOT EXISTS entries_no_{action.lower()} BEFORE {action} ON entries "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for action in ("UPDATE", "DELETE")
)
_leaked: list[Any] = []  # connections of a parent process: a child must neither use nor close them
_stores: weakref.WeakSet[Store] = weakref.WeakSet()
_forking = threading.RLock()
_held: list[Store] = []


def _before_fork() -> None:
    """Wait until no transaction is under way: SQLite in the child would believe that it holds the parent's locks."""
    _forking.acquire()
    for store in list(_stores):
        store.lock.acquire()
        _held.append(store)


def _after_fork() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _in_child() -> None:
    _held.clear()  # a child makes locks and connections of its own: see ``Store.lock``
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


class Store:
    """The log in one database.

    Args:
        url: a path to a SQLite file, or any SQLAlchemy URL.
        key: secret for the chain's HMAC; None = plain SHA-256.
        read_only: refuse to write; nothing is written to the file or beside it.
        create: make the file, or the tables, when there are none.
        network: open a SQLite file also on a network file system.

    Raises:
        LedgerError: when the database cannot be opened, or will not promise durability and mutual exclusion.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        key: bytes | None = None,
        read_only: bool = False,
        create: bool = True,
        network: bool = False,
    ) -> None:
        self.key = key
        self.read_only = read_only
        self.file = _sqlite_file(str(url), network)
        self._identity: tuple[int, int] | None = None
        if self.file is not None:
            if create and not read_only:
                self.file.make()
            self.file.check()
            self._identity = self.file.identity()
        self._url = str(url)
        self._start()
        if create and not read_only:
            self._create()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._engine = self._server() if self.file is None else None
        _stores.add(self)

    def _server(self) -> Engine:
        """The engine of a PostgreSQL database."""
        import sqlalchemy as sa

        try:
            engine = sa.create_engine(self._url, pool_pre_ping=True)
        except (sa.exc.ArgumentError, ValueError) as error:
            raise LedgerError(f"cannot open the ledger: {type(error).__name__}") from None
        except ModuleNotFoundError as error:
            raise LedgerError(f"cannot open the ledger: install {error.name}") from None
        if engine.dialect.name != "postgresql":
            raise LedgerError("a ledger is a SQLite file or a PostgreSQL database")
        sa.event.listen(engine, "connect", self._postgresql)
        return engine

    def _connect(self, file: LedgerFile) -> sqlite3.Connection:
        """A new SQLite connection: durable, and checked to be."""
        connection = sqlite3.connect(
            file.address(read_only=self.read_only),
            uri=True,
            isolation_level=None,  # transactions are begun by ``transaction`` alone
            check_same_thread=False,  # one thread at a time: see ``lock``
            timeout=LOCK_TIMEOUT_MS / 1000,
        )
        try:
            self._unmoved()
            if not self.read_only:
                _make_durable(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _postgresql(self, connection: Any, _record: Any) -> None:
        """Refuse a server that loses commits when it crashes, or a database that cannot hold every name."""
        with connection.cursor() as cursor:
            for setting in ("fsync", "full_page_writes"):
                cursor.execute(f"SHOW {setting}")
                if cursor.fetchone()[0] != "on":
                    raise LedgerError(f"PostgreSQL refuses durability: {setting} is off")
            cursor.execute("SHOW server_encoding")
            encoding = cursor.fetchone()[0]
            if encoding != "UTF8":
                raise LedgerError(f"a ledger's database must have the encoding UTF8, this one has {encoding}")
        connection.rollback()

    def _unmoved(self) -> None:
        """Refuse to go on when the file was moved, replaced or deleted, or got a second name."""
        if self.file is not None and self.file.identity() != self._identity:
            raise LedgerError(f"the ledger {self.file.path.name!r} was moved or replaced while it was open")

    @property
    def lock(self) -> threading.RLock:
        """The lock of this process; a child process gets a lock and connections of its own."""
        if os.getpid() != self._pid:
            _leaked.extend((self._engine, self._connection))
            self._start()
        return self._lock

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Transaction]:
        """One transaction; it commits durably at the end and rolls back on any error.

        Args:
            write: take the write lock first.

        Raises:
            LedgerError: on any error of the database. An error while it commits leaves open whether it did.
        """
        if write and self.read_only:
            raise LedgerError("the ledger was opened for reading only")
        with self.lock:
            try:
                connection, done = self._taken()
                log = Transaction(self, connection, postgresql=self.file is None)
                try:
                    self._unmoved()
                    log.begin(write=write)
                    yield log
                    log.close()
                    log.commit()
                    self._unmoved()
                except BaseException:
                    # The cursors first: a statement that is still open would keep its lock. The connection is not used
                    # again: an interrupt may have left it in any state.
                    log.close()
                    connection.invalidate() if self.file is None else connection.close()
                    raise
                done()
            except DptopkError:
                raise
            except Exception as error:
                if not _is_database_error(error):
                    raise
                reason = str(getattr(error, "orig", None) or error).strip().splitlines() or [type(error).__name__]
                raise LedgerError(f"the ledger's database refused: {reason[0]}") from None

    def _taken(self) -> tuple[Any, Callable[[], None]]:
        """A connection, and what gives it back for the next transaction."""
        if self._engine is not None:
            pooled = self._engine.raw_connection()
            return pooled, pooled.close
        if self.file is None:
            raise LedgerError("the ledger was closed")
        connection, self._connection = self._connection or self._connect(self.file), None

        def give_back() -> None:
            self._connection = connection

        return connection, give_back

    def _create(self) -> None:
        """Create the tables and, on SQLite, the triggers that refuse changes to written rows."""
        with self.transaction(write=False) as log:
            if log.has_tables():
                return
        with self.lock, self._creation() as log:
            for statement in (*_TABLES, *(_APPEND_ONLY if self.file is not None else ())):
                log.run(statement)

    @contextmanager
    def _creation(self) -> Iterator[Transaction]:
        if self.file is not None:
            with self.transaction(write=True) as log:
                yield log
        else:
            with self.transaction() as log:  # there is no table to lock yet
                log.run("SELECT pg_advisory_xact_lock(7032817)")
                yield log

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Entries after a sequence number, in order; between pages no transaction is open."""
        while True:
            with self.transaction() as log:
                page = log.entries(after, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def backup(self, path: Path) -> None:
        """Copy a SQLite ledger as of one moment into a new file."""
        if self.file is None:
            raise LedgerError("back up a PostgreSQL ledger with the server's own tools")
        if path.exists() or path.is_symlink():
            raise LedgerError(f"{path.name!r} exists already")
        copy = LedgerFile.at(path)
        copy.make()
        source = self._connect(self.file)
        target = sqlite3.connect(copy.path)
        try:
            source.backup(target)
        except sqlite3.Error as error:
            raise LedgerError(f"the backup failed: {error}") from None
        finally:
            target.close()
            source.close()

    def close(self) -> None:
        """Close all connections; the next use opens one again."""
        with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            if self._engine is not None:
                self._engine.dispose()


def _is_database_error(error: Exception) -> bool:
    """Whether SQLite, or SQLAlchemy and the driver below it, raised an error."""
    return isinstance(error, sqlite3.Error) or type(error).__module__.split(".")[0] in {"sqlalchemy", "psycopg"}


def _make_durable(connection: sqlite3.Connection) -> None:
    """Set what durability needs, and read it back."""
    for pragma in ("journal_mode=PERSIST", "synchronous=FULL", "fullfsync=ON"):
        connection.execute(f"PRAGMA {pragma}").close()
    journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    if (journal, synchronous) != ("persist", 2):
        raise LedgerError(f"SQLite refuses durability: journal_mode={journal}, synchronous={synchronous}")


def _sqlite_file(url: str, network: bool) -> LedgerFile | None:
    """The file of a SQLite ledger; None for another database."""
    if not url.startswith("sqlite:") and "://" in url:
        return None
    path = url
    if url.startswith("sqlite:"):
        path = url.removeprefix("sqlite:///")
        if path == url or not path or path == ":memory:" or path.startswith("file:") or "?" in path:
            raise LedgerError("a SQLite ledger is a file: give its path, without options")
    return LedgerFile.at(path, network=network)


class Transaction:
    """Reads and appends inside one transaction."""

    def __init__(self, store: Store, connection: Any, *, postgresql: bool) -> None:
        self._store = store
        self._connection = connection
        self._postgresql = postgresql
        self._cursors: list[Any] = []

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, with ? for values, and read all its rows."""
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(statement.replace("?", "%s") if self._postgresql else statement, values)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        cursor.close()
        self._cursors.remove(cursor)
        return rows

    def close(self) -> None:
        """Close the cursors that an interrupt left open."""
        for cursor in self._cursors:
            cursor.close()

    def begin(self, *, write: bool) -> None:
        """Begin; to write, take the lock that excludes other writers."""
        if not self._postgresql:
            self.run("BEGIN IMMEDIATE" if write else "BEGIN")
            return
        self.run(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        if write:
            if self.run("SHOW synchronous_commit")[0][0] == "off":
                self.run("SET LOCAL synchronous_commit = on")
            self.run("LOCK TABLE entries IN EXCLUSIVE MODE")

    def commit(self) -> None:
        """Commit durably."""
        if self._postgresql:
            self._connection.commit()
        else:
            self.run("COMMIT")

    def has_tables(self, names: tuple[str, ...] = ("entries", "pointers", "snapshots")) -> bool:
        """Whether these tables are there."""
        if self._postgresql:
            return all(self.run("SELECT to_regclass(?)", name)[0][0] is not None for name in names)
        found = self.run("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {(name,) for name in names} <= set(found)

    def entries(self, after: int, at_most: int) -> list[Entry]:
        """Entries with a larger sequence number, in order, as stored (the chain is not checked here)."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
        return [Entry.read(row) for row in self.run(query, after, at_most)]

    def entry(self, seq: int) -> Entry | None:
        """The entry with a sequence number."""
        found = self.entries(seq - 1, 1)
        return found[0] if found and found[0].seq == seq else None

    def every_entry(self) -> Iterator[Entry]:
        """All entries, in order, a page at a time."""
        at = 0
        while page := self.entries(at, PAGE):
            yield from page
            at = page[-1].seq

    def chain_again(self, key: bytes) -> str:
        """Give every entry the hash that it has in a chain with another key; the last one's.

        The one change that is ever made to rows that were written, inside a transaction that holds the write lock.
        """
        if not self._postgresql:
            self.run("DROP TRIGGER entries_no_update")
        before, format_ = GENESIS, FORMAT
        for entry in self.every_entry():
            format_ = entry.body["format"] if entry.kind in {"ledger", "format"} else format_
            hash_ = replace(entry, previous=before).chained(key, format_)
            self.run("UPDATE entries SET previous = ?, hash = ? WHERE seq = ?", before, hash_, entry.seq)
            before = hash_
        if not self._postgresql:
            for statement in _APPEND_ONLY:
                self.run(statement)
        return before

    def append(self, last: tuple[int, str], kind: str, dataset: str, analyst: str, body: dict[str, Any]) -> Entry:
        """Append one entry, whose body is in normal form, after the one with sequence number and hash ``last``.

        Raises:
            LedgerError: when what can be read is not what was written.
        """
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        bare = Entry(last[0] + 1, at, kind, dataset, analyst, body, last[1], "")
        row = (bare.seq, at, kind, dataset, analyst, text_of(body), last[1], bare.chained(self._store.key, FORMAT))
        marks = ", ".join("?" for _ in row)
        self.run(f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({marks})", *row)  # noqa: S608
        read = self.entry(bare.seq)
        if read is None or read.hash != row[-1] or read.chained(self._store.key, FORMAT) != row[-1]:
            raise LedgerError("the ledger's database did not keep what was written")
        return read

    def point(self, name: str, seq: int) -> None:
        """Let a name lead to an entry."""
        self.run("INSERT INTO pointers VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq", name, seq)

    def pointed(self, name: str) -> int | None:
        """The entry that a name leads to."""
        found = self.run("SELECT seq FROM pointers WHERE name = ?", name)
        return found[0][0] if found else None

    def keep_snapshot(self, seq: int, state: str) -> None:
        """Keep the text of the state after an entry, in place of older ones."""
        self.run("DELETE FROM snapshots")
        self.run("INSERT INTO snapshots VALUES (?, ?)", seq, state)

    def snapshot(self) -> tuple[int, str] | None:
        """The kept state and the entry after which it held."""
        found = self.run("SELECT seq, state FROM snapshots ORDER BY seq DESC LIMIT 1")
        return (found[0][0], found[0][1]) if found else None
