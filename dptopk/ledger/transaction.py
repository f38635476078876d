"""One transaction on a log: reading entries, appending, and the two tables next to the log.

The tables ``places`` (where to find an entry) and ``snapshots`` (the state after some entry) are
derived from the log, and their rows are checked against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from dptopk._internal.json_text import canonical_json
from dptopk.errors import LedgerError
from dptopk.ledger.entries import GENESIS, Entry, LastEntry
from dptopk.ledger.index import LookupRow, bucket_of
from dptopk.ledger.postgresql import PostgreSQL
from dptopk.ledger.sqlite import SQLite

if TYPE_CHECKING:
    import sqlite3

    from sqlalchemy.engine.interfaces import DBAPICursor
    from sqlalchemy.pool import PoolProxiedConnection

    Connection = sqlite3.Connection | PoolProxiedConnection

# Both have the same attributes and methods: durable commits, one writer at a time, and the
# statements that differ between the two dialects of SQL.
Database = SQLite | PostgreSQL
PAGE = 500  # the most entries that are read in one transaction, so that nobody waits for long
_COLUMNS = ("seq", "at", "kind", "dataset", "analyst", "body", "previous", "hash")
_TEXTS = ", ".join(f"{name} TEXT NOT NULL" for name in _COLUMNS[1:])
_CREATION = (
    f"CREATE TABLE IF NOT EXISTS entries (seq INTEGER NOT NULL PRIMARY KEY, {_TEXTS})",
    (
        "CREATE TABLE IF NOT EXISTS places (bucket TEXT, seq INTEGER, name TEXT, PRIMARY KEY "
        "(bucket, seq, name))"
    ),
    "CREATE TABLE IF NOT EXISTS snapshots (seq INTEGER NOT NULL PRIMARY KEY, state TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS charges_of_all ON entries (dataset, seq) WHERE kind = 'charge'",
    (
        "CREATE INDEX IF NOT EXISTS charges_of_each ON entries (dataset, analyst, seq) "
        "WHERE kind = 'charge'"
    ),
)
TABLES = ("entries", "places", "snapshots")
INDEXES = ("charges_of_all", "charges_of_each")


class Snapshot(NamedTuple):
    """A state of the ledger as it was stored beside the log.

    Attributes:
        seq: the number of the entry after which it was stored, a checkpoint.
        text: the state as JSON, which must be compared with the hash in that entry.
    """

    seq: int
    text: str


class Transaction:
    """Reads and appends inside one transaction, which the store begins and ends.

    Args:
        database: the database of the connection.
        connection: a connection that nobody else uses meanwhile.
        key: the secret for the chain's HMAC; None: plain SHA-256.
    """

    def __init__(self, database: Database, connection: Connection, key: bytes | None) -> None:
        self._database = database
        self._connection = connection
        self._key = key
        self._cursors: list[sqlite3.Cursor | DBAPICursor] = []

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a SQL statement and return all its rows; empty for one that is no query.

        Args:
            statement: the statement, with ? in the place of each value.
            values: the values, in order.
        """
        cursor = self._connection.cursor()
        self._cursors.append(cursor)
        cursor.execute(statement.replace("?", self._database.mark), values)
        rows = []
        if cursor.description:  # the statement is a query
            rows = [tuple(row) for row in cursor.fetchall()]
        cursor.close()
        self._cursors.remove(cursor)
        return rows

    def close(self) -> None:
        """Close the cursors that an interrupt left open."""
        for cursor in self._cursors:
            cursor.close()

    def has_tables(self, names: tuple[str, ...] = TABLES) -> bool:
        """Return whether these tables and indexes exist."""
        return self._database.has_tables(names, self.run)

    def damage(self) -> list[str]:
        """Return the problems that the database's own check of its pages and indexes finds."""
        return self._database.damage(self.run)

    def create_tables(self) -> None:
        """Create the tables and indexes that are not there, and the triggers that refuse changes of
        written rows.
        """
        for statement in (*_CREATION, *self._database.guards):
            self.run(statement)

    def entries(self, after: int, at_most: int) -> list[Entry]:
        """Return the entries with a larger sequence number, in order, as stored; the chain is not
        checked here.

        Args:
            after: the entries with larger numbers are returned.
            at_most: how many are returned.
        """
        columns = ", ".join(_COLUMNS)
        query = f"SELECT {columns} FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
        return [Entry.read(row) for row in self.run(query, after, at_most)]

    def format(self) -> object:
        """Return the format that the first entry states; None if the log is empty or does not
        exist.
        """
        first = self.entry(1) if self.has_tables(("entries",)) else None
        if first is None:
            return None
        return first.body.get("format")

    def entry(self, seq: int) -> Entry | None:
        """Return the entry with a sequence number; None if there is none."""
        for entry in self.entries(seq - 1, 1):
            if entry.seq == seq:
                return entry
        return None

    def charges(self, dataset: str, analyst: str | None, at_most: int) -> list[Entry]:
        """Return the newest charges of a data set, newest first, as stored.

        Args:
            dataset: the name of the data set.
            analyst: the analyst who was charged; None: anybody.
            at_most: how many charges are returned.
        """
        condition = "kind = 'charge' AND dataset = ?"
        values = [dataset]
        if analyst is not None:
            condition += " AND analyst = ?"
            values.append(analyst)
        columns = ", ".join(_COLUMNS)
        selection = f"SELECT {columns} FROM entries WHERE {condition}"  # noqa: S608
        query = f"{selection} ORDER BY seq DESC LIMIT ?"
        return [Entry.read(row) for row in self.run(query, *values, at_most)]

    def hash_of(self, seq: int) -> str | None:
        """Return the stored hash of the entry with a sequence number; None if there is none."""
        for (hash_,) in self.run("SELECT hash FROM entries WHERE seq = ?", seq):
            return hash_
        return None

    def every_entry(self) -> Iterator[Entry]:
        """Yield all entries, in order; they are read a page at a time."""
        page = self.entries(0, PAGE)
        while page:
            yield from page
            page = self.entries(page[-1].seq, PAGE)

    def rehash(self, key: bytes) -> str:
        """Give every entry the hash that it has in a chain with another key; return the last hash.

        No other change is ever made to written rows. It happens inside a transaction that holds the
        write lock. Entries that are appended afterwards are chained with the new key.
        """
        for statement in self._database.unguard:
            self.run(statement)
        before = GENESIS
        for entry in self.every_entry():
            hash_ = replace(entry, previous=before).chain_hash(key)
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
        last: LastEntry,
        kind: str,
        body: dict[str, Any],
        *,
        dataset: str = "",
        analyst: str = "",
        at: str | None = None,
    ) -> Entry:
        """Append one entry, and return it as it was read back.

        Args:
            last: the last entry of the log.
            kind: what happened, such as "charge".
            body: the details in normal form.
            dataset: the name of the data set; "": the entry is about the ledger.
            analyst: the name of the analyst; "": the entry is about nobody.
            at: the time at which it was written first, if it is a copy; None: now.

        Raises:
            LedgerError: when what is read back is not what was written.
        """
        at = at or datetime.now(UTC).isoformat(timespec="microseconds")
        unhashed = Entry(last.seq + 1, at, kind, dataset, analyst, body, last.hash, hash="")
        hash_ = unhashed.chain_hash(self._key)
        text = canonical_json(body)
        row = (unhashed.seq, at, kind, dataset, analyst, text, last.hash, hash_)
        marks = ", ".join("?" for _ in row)
        columns = ", ".join(_COLUMNS)
        self.run(f"INSERT INTO entries ({columns}) VALUES ({marks})", *row)  # noqa: S608
        entry = self.entry(unhashed.seq)
        if entry is None or entry.hash != hash_ or entry.chain_hash(self._key) != hash_:
            raise LedgerError("the ledger's database lost what was written")
        return entry

    def write_lookup_rows(self, rows: Iterable[LookupRow]) -> None:
        """Write rows that lead from names to entries."""
        for seq, name in rows:
            self.run("INSERT INTO places VALUES (?, ?, ?)", bucket_of(name), seq, name)

    def delete_lookup_rows(self) -> None:
        """Delete all rows that lead from names to entries."""
        self.run("DELETE FROM places")

    def lookup_rows(self, bucket: str, until: int) -> list[LookupRow]:
        """Return the rows that lead from names to entries, of one bucket, in order.

        Args:
            bucket: the bucket, as ``bucket_of`` returns it.
            until: rows that lead to entries after the one with this number are left out.
        """
        query = "SELECT seq, name FROM places WHERE bucket = ? AND seq <= ?"
        rows = self.run(query, bucket, until)
        return sorted(LookupRow(int(seq), str(name)) for seq, name in rows)

    def buckets(self) -> set[str]:
        """Return the buckets that have rows in the table ``places``."""
        return {row[0] for row in self.run("SELECT DISTINCT bucket FROM places")}

    def replace_snapshot(self, seq: int, state: str) -> None:
        """Store the text of the ledger's state after an entry; older ones are deleted.

        Args:
            seq: the number of the entry.
            state: the state as JSON.
        """
        self.run("DELETE FROM snapshots")
        self.run("INSERT INTO snapshots VALUES (?, ?)", seq, state)

    def snapshot(self) -> Snapshot | None:
        """Return the newest stored state of the ledger; None if there is none."""
        for seq, state in self.run("SELECT seq, state FROM snapshots ORDER BY seq DESC LIMIT 1"):
            return Snapshot(seq, state)
        return None
