"""A durable, append-only, hash-chained log in a SQL database: what the ledger is written on.

Durability: on SQLite every connection runs with a write-ahead log and ``synchronous=FULL`` (read back and checked), so
a committed entry survives a crash of the process and of the machine. Mutual exclusion: an append runs inside one
transaction that takes the write lock first (``BEGIN IMMEDIATE``; an exclusive table lock on PostgreSQL), reads what
others appended meanwhile, decides, and writes.

The chain: hash_n = H(hash_(n-1) ‖ entry_n) with H = SHA-256, or HMAC-SHA-256 when a key is given.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk.errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["GENESIS", "Entry", "Store", "chain_hash"]

GENESIS = "0" * 64
BUSY_TIMEOUT_MS = 60_000
_COLUMNS = ("seq", "at", "kind", "dataset", "analyst", "body", "previous", "hash")
_APPEND_ONLY = tuple(
    f"CREATE TRIGGER IF NOT EXISTS entries_no_{action.lower()} BEFORE {action} ON entries "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
    for action in ("UPDATE", "DELETE")
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log; ``body`` is a JSON object, ``at`` a UTC time that informs but decides nothing."""

    seq: int
    at: str
    kind: str
    dataset: str
    analyst: str
    body: dict[str, Any]
    previous: str
    hash: str


def chain_hash(key: bytes | None, previous: str, *fields: Any) -> str:
    """The hash of an entry: over the previous hash and a canonical text of all its fields."""
    text = json.dumps([previous, *fields], sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest() if key else hashlib.sha256(text).hexdigest()


class Store:
    """The log in one database.

    Args:
        url: a path to a SQLite file, or any SQLAlchemy URL.
        key: secret for the chain's HMAC; None = plain SHA-256.
        read_only: refuse to write; a file on read-only media can then still be read.

    Raises:
        LedgerError: when the database cannot be opened, or will not promise durability.
    """

    def __init__(self, url: str | Path, *, key: bytes | None = None, read_only: bool = False) -> None:
        self.key = key
        self.read_only = read_only
        self.lock = threading.RLock()
        self._pid = os.getpid()
        self._engine = self._open(str(url))

    def _open(self, url: str) -> Engine:
        import sqlalchemy as sa

        if "://" not in url:
            path = Path(url).absolute()
            if self.read_only and not path.exists():
                raise LedgerError(f"cannot open the ledger {path.name!r}: no such file")
            query = "?mode=ro&uri=true" if self.read_only else ""
            url = f"sqlite:///file:{path}{query}" if self.read_only else f"sqlite:///{path}"
        try:
            engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
        except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
            raise LedgerError(f"cannot open the ledger: {type(error).__name__}") from None
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", self._durable)
            sa.event.listen(engine, "begin", self._begin)
        return engine

    def _durable(self, connection: Any, _record: Any) -> None:
        """Make a new SQLite connection durable, and check that it is."""
        connection.isolation_level = None  # transactions are begun by _begin alone
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        if not self.read_only:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("PRAGMA synchronous=FULL")
            cursor.execute("PRAGMA fullfsync=ON")  # where fsync alone does not reach the disk
            journal = cursor.execute("PRAGMA journal_mode").fetchone()[0]
            synchronous = cursor.execute("PRAGMA synchronous").fetchone()[0]
            if (journal, synchronous) != ("wal", 2):
                raise LedgerError(f"SQLite refuses durability: journal_mode={journal}, synchronous={synchronous}")
        cursor.close()

    def _begin(self, connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if self.read_only else "BEGIN IMMEDIATE")

    @property
    def engine(self) -> Engine:
        """The engine; a child process gets connections of its own."""
        if os.getpid() != self._pid:
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        return self._engine

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One transaction that holds the write lock; commits durably at the end, rolls back on any error.

        Raises:
            LedgerError: on any error of the database, which then holds nothing of this transaction.
        """
        import sqlalchemy as sa

        try:
            with self.lock, self.engine.begin() as connection:
                if connection.dialect.name == "postgresql" and not self.read_only:
                    connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
                yield Transaction(self, connection)
        except sa.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or type(error).__name__).splitlines()[0]
            raise LedgerError(f"the ledger's database refused: {reason}") from None

    def create(self) -> None:
        """Create the table and, on SQLite, the triggers that refuse changes to written rows."""
        import sqlalchemy as sa

        metadata = sa.MetaData()
        sa.Table(
            "entries",
            metadata,
            sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
            *(sa.Column(name, sa.Text, nullable=False) for name in _COLUMNS[1:]),
        )
        try:
            with self.engine.begin() as connection:
                metadata.create_all(connection)
                if connection.dialect.name == "sqlite":
                    for trigger in _APPEND_ONLY:
                        connection.exec_driver_sql(trigger)
        except sa.exc.SQLAlchemyError as error:
            reason = str(getattr(error, "orig", None) or type(error).__name__).splitlines()[0]
            raise LedgerError(f"cannot create the ledger: {reason}") from None

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class Transaction:
    """Reads and appends under the store's write lock."""

    def __init__(self, store: Store, connection: Connection) -> None:
        self._store = store
        self._connection = connection

    def after(self, seq: int) -> Iterator[Entry]:
        """Entries with a larger sequence number, in order, as stored (the chain is not checked here)."""
        import sqlalchemy as sa

        columns = ", ".join(_COLUMNS)
        query = sa.text(f"SELECT {columns} FROM entries WHERE seq > :seq ORDER BY seq")  # noqa: S608 - constant names
        for row in self._connection.execute(query, {"seq": seq}):
            try:
                body = json.loads(row.body)
            except ValueError:
                raise LedgerError(f"entry {row.seq} is not readable: the ledger was damaged") from None
            yield Entry(row.seq, row.at, row.kind, row.dataset, row.analyst, body, row.previous, row.hash)

    def append(self, last: tuple[int, str], kind: str, dataset: str, analyst: str, body: dict[str, Any]) -> Entry:
        """Append one entry after the one with sequence number and hash ``last``."""
        import sqlalchemy as sa

        seq, previous = last[0] + 1, last[1]
        at = datetime.now(UTC).isoformat(timespec="microseconds")
        digest = chain_hash(self._store.key, previous, seq, at, kind, dataset, analyst, body)
        text = json.dumps(body, sort_keys=True, ensure_ascii=False)
        values = (seq, at, kind, dataset, analyst, text, previous, digest)
        names = ", ".join(f":{name}" for name in _COLUMNS)
        self._connection.execute(
            sa.text(f"INSERT INTO entries ({', '.join(_COLUMNS)}) VALUES ({names})"),  # noqa: S608 - constant names
            dict(zip(_COLUMNS, values, strict=True)),
        )
        return Entry(seq, at, kind, dataset, analyst, body, previous, digest)
