"""One transaction on a log: reading entries, appending, and the two tables next to the log.

The tables ``places`` (where to find an entry) and ``snapshots`` (the state after some entry) are
derived from the log; what they say is checked against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from dptopk._internal.json_text import canonical_json
from dptopk.errors import LedgerError
from dptopk.ledger.entries import GENESIS, Entry
from dptopk.ledger.index import Place, bucket_of
from dptopk.ledger.postgresql import PostgreSQL
from dptopk.ledger.sqlite import SQLite

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy.engine.interfaces import DBAPICursor
    from sqlalchemy.pool import PoolProxiedConnection

    Connection = sqlite3.Connection | PoolProxiedConnection

# of the same methods: durable commits, one writer at a time, the dialect's statements
Database = SQLite | PostgreSQL
PAGE = 500  # rows read in one transaction
_COLUMNS = ("seq", "at", "kind", "dataset", "analyst", "body", "previous", "hash")
_TEXTS = ", ".join(f"{name} TEXT NOT NULL" for name in _COLUMNS[1:])
_TABLES = (
    f"CREATE TABLE IF NOT EXISTS entries (seq INTEGER NOT NULL PRIMARY KEY, {_TEXTS})",
    (
        "CREATE TABLE IF NOT EXISTS places (bucket TEXT, seq INTEGER, name TEXT, PRIMARY KEY "
        "(bucket, seq, name))"
    ),
    "CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS charges_of_all ON entries (dataset, seq) WHERE kind = 'charge'",
    (
        "CREATE INDEX IF NOT EXISTS charges_of_each ON entries (dataset, analyst, seq) WHERE "
        "kind = "
        "'charge'"
    ),
)
TABLES = ("entries", "places", "snapshots")
INDEXES = ("charges_of_all", "charges_of_each")


class Transaction:
    """Reads and appends inside one transaction, which the store begins and ends.

    Args:
        database: whose connection it is.
        connection: that nobody else uses meanwhile.
        key: secret for the chain's HMAC; None = plain SHA-256.
    """

    def __init__(self, database: Database, connection: Connection, key: bytes | None) -> None:
        self._database = database
        self._connection = connection
        self._key = key
        self._cursors: list[sqlite3.Cursor | DBAPICursor] = []

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a statement, with ? for values, and read all its rows."""
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(statement.replace("?", self._database.mark), values)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        cursor.close()
        self._cursors.remove(cursor)
        return rows

    def close(self) -> None:
        """Close the cursors that an interrupt left open."""
        for cursor in self._cursors:
            cursor.close()

    def has_tables(self, names: tuple[str, ...] = TABLES) -> bool:
        """Whether these tables and indexes are there."""
        return self._database.has_tables(names, self.run)

    def damage(self) -> list[str]:
        """Report the database's own check of its pages and indexes."""
        return self._database.damage(self.run)

    def create_tables(self) -> None:
        """Create the tables, and what refuses changes to written rows."""
        for statement in (*_TABLES, *self._database.guards):
            self.run(statement)

    def entries(self, after: int, at_most: int) -> list[Entry]:
        """Entries with a larger sequence number, in order, as stored (the chain is not checked
        here).
        """
        columns = ", ".join(_COLUMNS)
        query = f"SELECT {columns} FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
        return [Entry.read(row) for row in self.run(query, after, at_most)]

    def format(self) -> object:
        """Return what the log says its format is; None when it is empty or there is no log."""
        first = self.entry(1) if self.has_tables(("entries",)) else None
        if first is None:
            return None
        return first.body.get("format")

    def entry(self, seq: int) -> Entry | None:
        """The entry with a sequence number."""
        found = self.entries(seq - 1, 1)
        if found and found[0].seq == seq:
            return found[0]
        return None

    def charges(self, dataset: str, analyst: str | None, at_most: int) -> list[Entry]:
        """The newest charges of a dataset, or of one of its analysts, newest first, as stored."""
        whose = [dataset] if analyst is None else [dataset, analyst]
        which = " AND ".join(("kind = 'charge'", "dataset = ?", "analyst = ?")[: 1 + len(whose)])
        columns = ", ".join(_COLUMNS)
        rows = f"SELECT {columns} FROM entries WHERE {which}"  # noqa: S608
        query = f"{rows} ORDER BY seq DESC LIMIT ?"
        return [Entry.read(row) for row in self.run(query, *whose, at_most)]

    def hash_of(self, seq: int) -> str | None:
        """The hash of the entry with a sequence number, as stored."""
        found = self.run("SELECT hash FROM entries WHERE seq = ?", seq)
        if found:
            return found[0][0]
        return None

    def every_entry(self) -> Iterator[Entry]:
        """All entries, in order, a page at a time."""
        at = 0
        while page := self.entries(at, PAGE):
            yield from page
            at = page[-1].seq

    def chain_again(self, key: bytes) -> str:
        """Give every entry the hash that it has in a chain with another key; the last one's.

        The one change that is ever made to rows that were written, inside a transaction that holds
        the write lock. What is appended to it afterwards is chained by the new key.
        """
        for statement in self._database.unguard:
            self.run(statement)
        before = GENESIS
        for entry in self.every_entry():
            hash_ = replace(entry, previous=before).chained(key)
            self.run(
                "UPDATE entries SET previous = ?, hash = ? WHERE seq = ?", before, hash_, entry.seq
            )
            before = hash_
        for statement in self._database.guards:
            self.run(statement)
        self._key = key
        return before

    def append(
        self,
        last: tuple[int, str],
        kind: str,
        dataset: str,
        analyst: str,
        body: dict[str, Any],
        *,
        at: str | None = None,
    ) -> Entry:
        """Append one entry, whose body is in normal form, after the one with sequence number and
        hash ``last``; ``at``: when it was written first, if this is a copy.

        Raises:
            LedgerError: when what can be read is not what was written.
        """
        at = at or datetime.now(UTC).isoformat(timespec="microseconds")
        bare = Entry(last[0] + 1, at, kind, dataset, analyst, body, last[1], "")
        row = (
            bare.seq,
            at,
            kind,
            dataset,
            analyst,
            canonical_json(body),
            last[1],
            bare.chained(self._key),
        )
        marks = ", ".join("?" for _ in row)
        columns = ", ".join(_COLUMNS)
        self.run(f"INSERT INTO entries ({columns}) VALUES ({marks})", *row)  # noqa: S608
        read = self.entry(bare.seq)
        if read is None or read.hash != row[-1] or read.chained(self._key) != row[-1]:
            raise LedgerError("the ledger's database lost what was written")
        return read

    def place(self, places: Iterable[Place]) -> None:
        """Let names lead to entries."""
        for seq, name in places:
            self.run("INSERT INTO places VALUES (?, ?, ?)", bucket_of(name), seq, name)

    def places(self, bucket: str, until: int) -> list[Place]:
        """Return the entries that the names of a bucket lead to, in order, up to an entry."""
        found = self.run(
            "SELECT seq, name FROM places WHERE bucket = ? AND seq <= ?", bucket, until
        )
        return sorted((int(seq), str(name)) for seq, name in found)

    def buckets(self) -> set[str]:
        """The buckets that names fell into."""
        return {row[0] for row in self.run("SELECT DISTINCT bucket FROM places")}

    def keep_snapshot(self, seq: int, state: str) -> None:
        """Keep the text of the state after an entry, instead of older ones."""
        self.run("DELETE FROM snapshots")
        self.run("INSERT INTO snapshots VALUES (?, ?)", seq, state)

    def snapshot(self) -> tuple[int, str] | None:
        """Return the stored state and the number of its last entry."""
        found = self.run("SELECT seq, state FROM snapshots ORDER BY seq DESC LIMIT 1")
        if found:
            return (found[0][0], found[0][1])
        return None
