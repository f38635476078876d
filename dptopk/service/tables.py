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


class Tables:
    """A database with the service's tables, made where they are missing.

    Args:
        url: path of a SQLite file (made readable for its owner alone), or a SQLAlchemy URL.

    Raises:
        LedgerError: when it cannot be opened.
    """

    tokens, audit, jobs = TOKENS, AUDIT, JOBS

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
            self.engine = sa.create_engine(url, pool_pre_ping=not url.startswith("sqlite"))
            if self.engine.dialect.name == "sqlite":
                sa.event.listen(self.engine, "connect", _settings)
            with self.engine.begin() as connection:
                if self.engine.dialect.name == "postgresql":  # two workers that start together
                    connection.exec_driver_sql("SELECT pg_advisory_xact_lock(715517)")
                _META.create_all(connection)
        except (sa.exc.SQLAlchemyError, ModuleNotFoundError) as error:
            raise LedgerError(f"cannot open the access database: {type(error).__name__}") from None

    def rows(self, statement: Any) -> list[Any]:
        """Run a query and read its rows."""
        with self.engine.connect() as connection:
            return list(connection.execute(statement))

    def change(self, statement: Any) -> int:
        """Run one statement in a transaction of its own; how many rows it changed."""
        with self.engine.begin() as connection:
            return int(connection.execute(statement).rowcount)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()


def _settings(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=60000")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.close()
