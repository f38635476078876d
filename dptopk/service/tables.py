"""The service's own tables: tokens, the audit log and jobs; budgets are in the ledger alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dptopk.errors import LedgerError

_META = sa.MetaData()

TOKENS = sa.Table(
    "service_tokens",
    _META,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("analyst", sa.Text, nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("salt", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(128), nullable=False),
    sa.Column("made", sa.String(40), nullable=False),
    sa.Column("ended", sa.String(40)),
    sa.Column("expires", sa.String(40)),
)
AUDIT = sa.Table(
    "service_audit",
    _META,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("analyst", sa.Text, nullable=False),
    sa.Column("action", sa.String(40), nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("outcome", sa.Text, nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)
JOBS = sa.Table(
    "service_jobs",
    _META,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("analyst", sa.Text, nullable=False),
    sa.Column("dataset", sa.Text, nullable=False),
    sa.Column("stage", sa.String(20), nullable=False),
    sa.Column("done", sa.Integer, nullable=False),
    sa.Column("total", sa.Integer, nullable=False),
    sa.Column("code", sa.String(40), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("updated", sa.Float, nullable=False),
)
USAGE = sa.Table(
    "service_usage",
    _META,
    sa.Column("analyst", sa.Text, primary_key=True),
    sa.Column("bytes", sa.BigInteger, nullable=False),
)
SOURCES = sa.Table(
    "service_sources",
    _META,
    sa.Column("source", sa.Text, primary_key=True),
    sa.Column("dataset", sa.Text, nullable=False),
)
SETTINGS = sa.Table(
    "service_settings",
    _META,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)
RELOAD = "catalog"  # the setting that counts how often workers were told to read the catalog again


class Tables:
    """A database with the service's tables, made where they are missing.

    Tokens, and that a question was called off, survive a crash of the machine as soon as they are written. Progress of
    jobs and the audit log may lack the last moments before it: no write waits for the disk on their account, and what
    was charged the ledger says.

    Args:
        url: path of a SQLite file (made readable for its owner alone), or a SQLAlchemy URL.

    Raises:
        LedgerError: when it cannot be opened.
    """

    tokens, audit, jobs, usage, sources, settings = TOKENS, AUDIT, JOBS, USAGE, SOURCES, SETTINGS

    def __init__(self, url: str) -> None:
        if "://" not in url:
            path = Path(url).absolute()
            try:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            except OSError as error:
                raise LedgerError(f"cannot open {path.name!r}: {error.strerror}") from None
            url = f"sqlite:///{path}"
        elif url.startswith(("postgresql://", "postgres://")):
            url = "postgresql+psycopg://" + url.partition("://")[2]
        try:
            self.engine, self._durable = _engine(url, durable=False), _engine(url, durable=True)
            with self._durable.begin() as connection:
                if self._durable.dialect.name == "postgresql":  # two workers that start together
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(715517)")
                _META.create_all(connection)
                if "expires" not in {column["name"] for column in sa.inspect(connection).get_columns(TOKENS.name)}:
                    connection.exec_driver_sql(f"ALTER TABLE {TOKENS.name} ADD COLUMN expires VARCHAR(40)")
        except (sa.exc.SQLAlchemyError, ModuleNotFoundError) as error:
            raise LedgerError(f"cannot open the access database: {type(error).__name__}") from None

    def rows(self, statement: Any) -> list[Any]:
        """Run a query and read its rows."""
        with self.engine.connect() as connection:
            return list(connection.execute(statement))

    def change(self, *statements: Any, durable: bool = False) -> int:
        """Run statements in a transaction; how many rows the last one changed.

        Args:
            statements: what to run.
            durable: whether to wait until the disk has it.
        """
        changed = 0
        with (self._durable if durable else self.engine).begin() as connection:
            for statement in statements:
                changed = int(connection.execute(statement).rowcount)
        return changed

    def add(self, table: sa.Table, key: str, amount: int) -> sa.TextClause:
        """A statement that adds to the number in the row of a key."""
        name, value = table.columns.keys()
        text = f"INSERT INTO {table.name} VALUES (:key, :amount) ON CONFLICT ({name}) "  # noqa: S608 - its own names
        text += f"DO UPDATE SET {value} = {table.name}.{value} + :amount"
        return sa.text(text).bindparams(key=key, amount=amount)

    def value(self, table: sa.Table, key: str) -> int:
        """The number in the row of a key; 0 where there is none."""
        name, value = table.columns.values()
        found = self.rows(sa.select(value).where(name == key))
        return int(found[0][0]) if found else 0

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()
        self._durable.dispose()


def _engine(url: str, *, durable: bool) -> sa.Engine:
    """Connections whose commits wait for the disk, or do not."""
    engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
    level = ("FULL", "on") if durable else ("NORMAL", "off")
    settings = {
        "sqlite": ("PRAGMA busy_timeout=60000", "PRAGMA journal_mode=WAL", f"PRAGMA synchronous={level[0]}"),
        "postgresql": (f"SET synchronous_commit = {level[1]}",),
    }[engine.dialect.name]

    def configured(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        for statement in settings:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    sa.event.listen(engine, "connect", configured)
    return engine
