"""The service's own tables: tokens, the audit log and jobs; budgets are in the ledger alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

from dptopk.errors import LedgerError
from dptopk.ledger.sqlite import LOCK_TIMEOUT_MS
from dptopk.ledger.sqlite_file import LedgerFile

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

_META = sa.MetaData()

Kind = TypeEngine[Any] | type[TypeEngine[Any]]  # the type of a column

WORD = sa.String(16)  # a word of our own, such as a role
TIME = sa.String(40)  # a time as text that sorts


def _table(name: str, /, *nullable: str, **columns: Kind) -> sa.Table:
    """Return the description of a table of the service.

    Args:
        name: its name in the database.
        nullable: the names of the columns that may be NULL.
        columns: the type of each column, by its name; the first one is the key.
    """
    key = next(iter(columns))
    table_columns = []
    for column, kind in columns.items():
        may_be_null = column in nullable
        table_columns.append(
            sa.Column(column, kind, primary_key=column == key, nullable=may_be_null)
        )
    return sa.Table(name, _META, *table_columns)


CREATING = 715517  # the number of an advisory lock of our own, held while the tables are made

SECRET: dict[str, Kind] = {"salt": sa.String(64), "hash": sa.String(128)}
TIMES: dict[str, Kind] = {"made": TIME, "ended": TIME, "expires": TIME}
TOKENS = _table(
    "service_tokens", "ended", "expires", id=WORD, analyst=sa.Text, role=WORD, **SECRET, **TIMES
)
NOTE: dict[str, Kind] = {
    "action": sa.String(40),
    "dataset": sa.Text,
    "outcome": sa.Text,
    "detail": sa.Text,
}
AUDIT = _table("service_audit", number=sa.Integer, at=TIME, analyst=sa.Text, **NOTE)
STATUS: dict[str, Kind] = {
    "stage": sa.String(20),
    "done": sa.Integer,
    "total": sa.Integer,
    "code": sa.String(40),
    "message": sa.Text,
}
JOBS = _table(
    "service_jobs", id=sa.String(64), analyst=sa.Text, dataset=sa.Text, **STATUS, updated=sa.Float
)
USAGE = _table("service_usage", analyst=sa.Text, bytes=sa.BigInteger)
SOURCES = _table("service_sources", source=sa.Text, dataset=sa.Text)
LOGGED = _table("service_logged", day_and_analyst=sa.Text, bytes=sa.BigInteger)
CURRENT = _table("service_current", dataset=sa.Text, source=sa.Text)
LEDGERS = _table("service_ledgers", dataset=sa.Text, ledger=sa.Text)
SETTINGS = _table("service_settings", name=sa.String(40), value=sa.BigInteger)
RELOAD = "catalog"  # the setting that counts how often workers were asked to read the catalog again


class Tables:
    """The access database, with the service's tables; tables that are missing are made.

    Tokens and cancellations survive a crash of the machine as soon as they are written. The
    progress of jobs and the audit log may lack the last moments before a crash: their writes do not
    wait for the disk, and what was charged is in the ledger.

    Args:
        url: the path of a SQLite file (made readable for its owner alone), or a SQLAlchemy URL.
        read_only: whether nothing is written to a SQLite file; then only its tokens, sources and
            settings are read, once.

    Raises:
        LedgerError: when it cannot be opened.
    """

    tokens = TOKENS
    audit = AUDIT
    jobs = JOBS
    usage = USAGE
    sources = SOURCES
    settings = SETTINGS
    logged = LOGGED
    current = CURRENT
    ledgers = LEDGERS

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        try:
            if read_only and "://" not in url:
                self.engine = self._durable = _copy_in_memory(Path(url).absolute())
            else:
                place = _database_url(url)
                self.engine = _engine(place, durable=False)
                self._durable = _engine(place, durable=True)
            self._create_tables()
        except (sa.exc.SQLAlchemyError, sqlite3.Error, ModuleNotFoundError) as error:
            raise LedgerError(f"cannot open the access database: {_reason(error)}") from None

    def _create_tables(self) -> None:
        """Make the tables that are missing, and the column that an earlier version of the tokens
        lacked.
        """
        with self._durable.begin() as connection:
            if self._durable.dialect.name == "postgresql":  # two workers that start together
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({CREATING})")
            _META.create_all(connection)
            columns = sa.inspect(connection).get_columns(TOKENS.name)
            if "expires" not in {column["name"] for column in columns}:
                connection.exec_driver_sql(
                    f"ALTER TABLE {TOKENS.name} ADD COLUMN expires VARCHAR(40)"
                )

    def rows(self, statement: sa.Executable) -> list[Any]:
        """Run a query and return its rows.

        Raises:
            LedgerError: when they cannot be read now.
        """
        with _explaining_errors("read"), self.engine.connect() as connection:
            return list(connection.execute(statement))

    def change(self, *statements: sa.Executable, durable: bool = False) -> int:
        """Run statements in one transaction; return how many rows the last one changed.

        Args:
            statements: the statements, in order.
            durable: whether to wait until the disk has the changes.

        Raises:
            LedgerError: when nothing can be written now; nothing was.
            sqlalchemy.exc.IntegrityError: when a row with the same key is there.
        """
        changed = 0
        engine = self._durable if durable else self.engine
        with _explaining_errors("written"), engine.begin() as connection:
            for statement in statements:
                changed = int(connection.execute(statement).rowcount)
        return changed

    def insert(self, statement: sa.Insert) -> int:
        """Insert one row whose key is a number, and return that number.

        Raises:
            LedgerError: when nothing can be written now; nothing was.
        """
        with _explaining_errors("written"), self.engine.begin() as connection:
            key = connection.execute(statement).inserted_primary_key
        if key is None:  # never: a row was written
            return 0
        return int(key[0])

    def lock_statements(self, table: sa.Table) -> list[sa.TextClause]:
        """Return the statements that let one transaction at a time change a table, if they come
        first in it.

        PostgreSQL needs one: a statement that waits there for another transaction does not see the
        rows which that has added. SQLite has one writer at a time.

        Args:
            table: one of our own tables.
        """
        if self.engine.dialect.name != "postgresql":
            return []
        return [sa.text(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")]

    def add_statement(self, table: sa.Table, key: str, amount: int) -> sa.TextClause:
        """Return the statement that adds an amount to the number in the row of a key; a missing row
        is made.

        Args:
            table: a table of two columns, a key and a number, such as ``usage``.
            key: the key of the row.
            amount: what is added.
        """
        key_column, number_column = table.columns.keys()
        # The names are those of our own tables, not a user's.
        insert = f"INSERT INTO {table.name} VALUES (:key, :amount)"  # noqa: S608
        text = f"{insert} ON CONFLICT ({key_column}) "
        text += f"DO UPDATE SET {number_column} = {table.name}.{number_column} + :amount"
        return sa.text(text).bindparams(key=key, amount=amount)

    def value(self, table: sa.Table, key: str) -> int:
        """Return the number in the row of a key; 0 if there is no such row.

        Args:
            table: a table of two columns, a key and a number, such as ``usage``.
            key: the key of the row.
        """
        key_column, number_column = table.columns.values()
        rows = self.rows(sa.select(number_column).where(key_column == key))  # one at most
        if not rows:
            return 0
        return int(rows[0][0])

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()
        self._durable.dispose()


def _database_url(url: str) -> str:
    """Return the SQLAlchemy URL of a database; a SQLite file is made here, readable for its owner
    alone.

    Raises:
        LedgerError: if the file cannot be made.
    """
    if url.startswith(("postgresql://", "postgres://")):
        return "postgresql+psycopg://" + url.partition("://")[2]
    if "://" in url:
        return url
    path = Path(url).absolute()
    try:
        LedgerFile(path).make()
    except LedgerError as error:
        _, _, reason = str(error).rpartition(": ")
        raise LedgerError(f"cannot open {path.name!r}: {reason}") from None
    return f"sqlite:///{path}"


def _copy_in_memory(path: Path) -> sa.Engine:
    """Return a database in memory with a copy of the small tables of a SQLite file, to which
    nothing is written. Tables that the file lacks are left out.

    Raises:
        sqlite3.Error: when the file cannot be read.
    """
    memory = sqlite3.connect(":memory:", uri=True, check_same_thread=False)
    memory.execute("ATTACH ? AS disk", (f"{path.as_uri()}?mode=ro",))
    rows_of_names = memory.execute("SELECT name FROM disk.sqlite_master WHERE type = 'table'")
    names = {name for (name,) in rows_of_names}
    for table in (TOKENS, SOURCES, CURRENT, LEDGERS, SETTINGS):
        if table.name in names:
            rows = f"SELECT * FROM disk.{table.name}"  # noqa: S608
            memory.execute(f"CREATE TABLE {table.name} AS {rows}")
    memory.commit()
    memory.execute("DETACH disk")
    return sa.create_engine("sqlite://", creator=lambda: memory, poolclass=sa.pool.StaticPool)


@contextmanager
def _explaining_errors(what: str) -> Iterator[None]:
    """Turn an error of the database in a ``with`` block into a LedgerError that says why.

    Args:
        what: "read" or "written", for the message.

    Raises:
        LedgerError: for any error but that of a row whose key is there already; the question can be
            asked again.
        sqlalchemy.exc.IntegrityError: for such a row, which is left to the caller.
    """
    try:
        yield
    except sa.exc.IntegrityError:
        raise
    except sa.exc.SQLAlchemyError as error:
        raise LedgerError(
            f"the access database cannot be {what} now ({_reason(error)}); ask again with the "
            "same key"
        ) from None


def _reason(error: Exception) -> str:
    """Return why a database failed: SQLite's message, which names no data, or the type of the
    error.
    """
    origin = getattr(error, "orig", error)
    if isinstance(origin, sqlite3.OperationalError):
        return str(origin)
    return type(error).__name__


def _engine(url: str, *, durable: bool) -> sa.Engine:
    """Return an engine whose commits wait for the disk, or do not.

    Args:
        url: the URL of the database, as SQLAlchemy takes it.
        durable: whether a commit waits until the disk has it.

    Raises:
        LedgerError: for a database that is neither SQLite nor PostgreSQL.
    """
    # A connection to a server may have ended since its last use; a file has no such connections.
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    if engine.dialect.name == "sqlite":
        # With a write-ahead log a commit in the mode NORMAL is durable at the next checkpoint only.
        synchronous = "FULL" if durable else "NORMAL"
        settings: tuple[str, ...] = (
            f"PRAGMA busy_timeout={LOCK_TIMEOUT_MS}",
            "PRAGMA journal_mode=WAL",
            f"PRAGMA synchronous={synchronous}",
        )
    elif engine.dialect.name == "postgresql":
        settings = (
            # A worker that was stopped may hold a lock for ever.
            f"SET lock_timeout = {LOCK_TIMEOUT_MS}",
            f"SET synchronous_commit = {'on' if durable else 'off'}",
        )
    else:
        raise LedgerError("the access database is a SQLite file or a PostgreSQL database")

    def apply_settings(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        """Apply the settings to a new connection."""
        cursor = connection.cursor()
        for statement in settings:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    sa.event.listen(engine, "connect", apply_settings)
    return engine
