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
from dptopk.ledger.sqlite_file import LedgerFile

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

_META = sa.MetaData()

Kind = TypeEngine[Any] | type[TypeEngine[Any]]  # of a column

WORD = sa.String(16)
TIME = sa.String(40)


def _table(name: str, /, *empty: str, **columns: Kind) -> sa.Table:
    """A table by its columns: the first is the key, those named in ``empty`` may be empty."""
    key = next(iter(columns))
    all_columns = (
        sa.Column(one, kind, primary_key=one == key, nullable=one in empty)
        for one, kind in columns.items()
    )
    return sa.Table(name, _META, *all_columns)


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
SETTINGS = _table("service_settings", name=sa.String(40), value=sa.BigInteger)
RELOAD = "catalog"  # the setting that counts how often workers were told to read the catalog again


class Tables:
    """A database with the service's tables, made where they are missing.

    Tokens, and that a question was called off, survive a crash of the machine as soon as they are
    written. Progress of jobs and the audit log may lack the last moments before it: no write waits
    for the disk on their account, and what was charged the ledger says.

    Args:
        url: path of a SQLite file (made readable for its owner alone), or a SQLAlchemy URL.
        read_only: whether nothing is written to a file; its tokens, sources and settings alone are
            then read, once.

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

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        try:
            if read_only and "://" not in url:
                self.engine = self._durable = _copied(Path(url).absolute())
            else:
                place = _placed(url)
                self.engine = _engine(place, durable=False)
                self._durable = _engine(place, durable=True)
            self._make()
        except (sa.exc.SQLAlchemyError, sqlite3.Error, ModuleNotFoundError) as error:
            raise LedgerError(f"cannot open the access database: {_reason(error)}") from None

    def _make(self) -> None:
        """Make what is missing."""
        with self._durable.begin() as connection:
            if self._durable.dialect.name == "postgresql":  # two workers that start together
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(715517)")
            _META.create_all(connection)
            columns = sa.inspect(connection).get_columns(TOKENS.name)
            if "expires" not in {column["name"] for column in columns}:
                connection.exec_driver_sql(
                    f"ALTER TABLE {TOKENS.name} ADD COLUMN expires VARCHAR(40)"
                )

    def rows(self, statement: sa.Executable) -> list[Any]:
        """Run a query and read its rows.

        Raises:
            LedgerError: when they cannot be read now.
        """
        with _in_words("read"), self.engine.connect() as connection:
            return list(connection.execute(statement))

    def change(self, *statements: sa.Executable, durable: bool = False) -> int:
        """Run statements in a transaction; how many rows the last one changed.

        Args:
            statements: what to run.
            durable: whether to wait until the disk has it.

        Raises:
            LedgerError: when nothing can be written now; nothing was.
            sqlalchemy.exc.IntegrityError: when a row with the same key is there.
        """
        changed = 0
        with (
            _in_words("written"),
            (self._durable if durable else self.engine).begin() as connection,
        ):
            for statement in statements:
                changed = int(connection.execute(statement).rowcount)
        return changed

    def insert(self, statement: sa.Insert) -> int:
        """Write one row, whose key is a number; the number.

        Raises:
            LedgerError: when nothing can be written now; nothing was.
        """
        with _in_words("written"), self.engine.begin() as connection:
            key = connection.execute(statement).inserted_primary_key
        if key is not None:
            return int(key[0])
        return 0

    def add(self, table: sa.Table, key: str, amount: int) -> sa.TextClause:
        """A statement that adds to the number in the row of a key."""
        name, value = table.columns.keys()
        # its own names
        insert = f"INSERT INTO {table.name} VALUES (:key, :amount)"  # noqa: S608
        text = f"{insert} ON CONFLICT ({name}) "
        text += f"DO UPDATE SET {value} = {table.name}.{value} + :amount"
        return sa.text(text).bindparams(key=key, amount=amount)

    def value(self, table: sa.Table, key: str) -> int:
        """The number in the row of a key; 0 where there is none."""
        name, value = table.columns.values()
        found = self.rows(sa.select(value).where(name == key))
        if found:
            return int(found[0][0])
        return 0

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()
        self._durable.dispose()


def _placed(url: str) -> str:
    """The URL of a database; a file is made here, readable for its owner alone."""
    if url.startswith(("postgresql://", "postgres://")):
        return "postgresql+psycopg://" + url.partition("://")[2]
    if "://" in url:
        return url
    path = Path(url).absolute()
    try:
        LedgerFile(path).make()  # by SQLite alone: see there
    except LedgerError as error:
        reason = str(error).rpartition(": ")[2]
        raise LedgerError(f"cannot open {path.name!r}: {reason}") from None
    return f"sqlite:///{path}"


def _copied(path: Path) -> sa.Engine:
    """The small tables of a file, in memory: nothing is written to the file."""
    memory = sqlite3.connect(":memory:", uri=True, check_same_thread=False)
    memory.execute("ATTACH ? AS disk", (f"{path.as_uri()}?mode=ro",))
    found = memory.execute("SELECT name FROM disk.sqlite_master WHERE type = 'table'")
    names = {name for (name,) in found}
    for table in (TOKENS, SOURCES, CURRENT, SETTINGS):
        if table.name in names:
            rows = f"SELECT * FROM disk.{table.name}"  # noqa: S608
            memory.execute(f"CREATE TABLE {table.name} AS {rows}")
    memory.commit()
    memory.execute("DETACH disk")
    return sa.create_engine("sqlite://", creator=lambda: memory, poolclass=sa.pool.StaticPool)


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    """Say of a database that fails why it does; the question can be asked again."""
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
    """Why a database fails: what SQLite says, which names no data, or the type of the error."""
    origin = getattr(error, "orig", error)
    if isinstance(origin, sqlite3.OperationalError):
        return str(origin)
    return type(error).__name__


def _engine(url: str, *, durable: bool) -> sa.Engine:
    """Connections whose commits wait for the disk, or do not."""
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    level = ("FULL", "on") if durable else ("NORMAL", "off")
    settings = {
        "sqlite": (
            "PRAGMA busy_timeout=60000",
            "PRAGMA journal_mode=WAL",
            f"PRAGMA synchronous={level[0]}",
        ),
        "postgresql": (f"SET synchronous_commit = {level[1]}",),
    }[engine.dialect.name]

    def configured(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for statement in settings:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    sa.event.listen(engine, "connect", configured)
    return engine
