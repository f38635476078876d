"""The service's own tables: tokens, the audit log and jobs; budgets are in the ledger alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dptopk.errors import LedgerError

_META = sa.MetaData()

WORD, TIME = sa.String(16), sa.String(40)


def _table(name: str, /, *empty: str, **columns: Any) -> sa.Table:
    """A table by its columns: the first is the key, those named in ``empty`` may be empty."""
    key = next(iter(columns))
    made = (sa.Column(one, kind, primary_key=one == key, nullable=one in empty) for one, kind in columns.items())
    return sa.Table(name, _META, *made)


SECRET = {"salt": sa.String(64), "hash": sa.String(128)}
TIMES = {"made": TIME, "ended": TIME, "expires": TIME}
TOKENS = _table("service_tokens", "ended", "expires", id=WORD, analyst=sa.Text, role=WORD, **SECRET, **TIMES)
NOTE = {"action": sa.String(40), "dataset": sa.Text, "outcome": sa.Text, "detail": sa.Text}
AUDIT = _table("service_audit", number=sa.Integer, at=TIME, analyst=sa.Text, **NOTE)
STATUS = {"stage": sa.String(20), "done": sa.Integer, "total": sa.Integer, "code": sa.String(40), "message": sa.Text}
JOBS = _table("service_jobs", id=sa.String(64), analyst=sa.Text, dataset=sa.Text, **STATUS, updated=sa.Float)
USAGE = _table("service_usage", analyst=sa.Text, bytes=sa.BigInteger)
SOURCES = _table("service_sources", source=sa.Text, dataset=sa.Text)
SETTINGS = _table("service_settings", name=sa.String(40), value=sa.BigInteger)
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
