"""A ledger in a PostgreSQL database.

The server must run with ``fsync`` and ``full_page_writes``, which every write checks, and commits
synchronously. A writer takes an exclusive lock of the table of entries.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dptopk.errors import LedgerError
from dptopk.ledger.sqlite import LOCK_TIMEOUT_MS, Purpose, Run

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry


# The settings of a server without which a crash may lose commits.
_SERVER_SETTINGS = ("fsync", "full_page_writes")
# The key of the advisory lock that is held while tables are created, since there is no table to
# lock yet. Any number that no other program uses would do; it must not change.
CREATING = 7032817


class PostgreSQL:
    """A database of a PostgreSQL server.

    Args:
        url: the URL of the database, as SQLAlchemy takes it.

    Attributes:
        mark: what stands for a value in a statement.
        guards: the statements that make the database refuse changes of written rows; none here.
        unguard: the statements that allow to change them again; none here.

    Raises:
        LedgerError: when it is the address of another kind of database, or a driver is missing.
    """

    mark = "%s"
    guards = ()
    unguard = ()

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine = _engine(url)

    def reopen(self) -> PostgreSQL:
        """Return the same database for a child process, which makes connections of its own."""
        return PostgreSQL(self._url)

    def take(self) -> Any:
        """Return a connection for one transaction, from the pool of the engine.

        Each connection was checked when it was made (``_refuse_unsafe_database``).
        """
        return self._engine.raw_connection()

    def give_back(self, connection: Any) -> None:
        """Give the connection of a transaction that was committed back to the pool."""
        connection.close()

    def drop(self, connection: Any) -> None:
        """Close a connection that an interrupt may have left in any state; the server rolls its
        transaction back.
        """
        connection.invalidate()

    def begin(self, run: Run, purpose: Purpose) -> None:
        """Begin a transaction; for a purpose other than reading, take the lock that excludes other
        writers.

        Args:
            run: runs a statement on the connection (``Transaction.run``).
            purpose: what the transaction is for, as ``Store.transaction`` takes it.

        Raises:
            LedgerError: for a server whose settings may lose commits in a crash.
        """
        run(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
        if purpose == "create":
            run(f"SELECT pg_advisory_xact_lock({CREATING})")
        elif purpose == "write":
            run("LOCK TABLE entries IN EXCLUSIVE MODE")
            _refuse_lossy_server(run)
            if not _commits_synchronously(run):
                run("SET LOCAL synchronous_commit = on")

    def commit(self, connection: Any, run: Run) -> None:  # noqa: ARG002
        """Commit the transaction of a connection durably; SQLite needs ``run`` for that too."""
        connection.commit()

    def has_tables(self, names: tuple[str, ...], run: Run) -> bool:
        """Return whether these tables and indexes exist.

        Args:
            names: the names of the tables and indexes.
            run: runs a statement on the connection (``Transaction.run``).
        """
        return all(run("SELECT to_regclass(?)", name)[0][0] is not None for name in names)

    def damage(self, run: Run) -> list[str]:
        """Check the settings of the server, and the indexes by the extension amcheck, if that is
        installed.

        Returns:
            An empty list: unlike SQLite, PostgreSQL reports what is wrong as an error.

        Raises:
            LedgerError: naming a setting with which commits may be lost. What amcheck finds is
                raised as an error of the database, of which the store makes a LedgerError.
        """
        _refuse_lossy_server(run)
        if run("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'"):
            for table in ("entries", "places", "snapshots"):
                run("SELECT bt_index_check(to_regclass(?)::oid::regclass, true)", f"{table}_pkey")
        return []

    def backup(self, path: Path) -> None:  # noqa: ARG002
        """Refuse to copy the database, since the server has its own tools for that.

        Raises:
            LedgerError: always.
        """
        raise LedgerError("back up a PostgreSQL ledger with the server's own tools")

    def close(self) -> None:
        """Close all connections of the pool; the next use opens one again."""
        self._engine.dispose()

    def prepare_fork(self) -> None:
        """Do nothing: the child makes connections of its own, and leaves these alone."""

    def refuse_moved_file(self) -> None:
        """Do nothing: a server's database stays where it is."""


def are_one_database(one_url: str, other_url: str) -> bool:
    """Return whether two URLs lead to one PostgreSQL database of one server, by whatever names.

    A lock that is taken through one is then held for the other. Nothing is written. It is False for
    other kinds of databases, and also if one of them cannot be asked: whoever opens it gets the
    error.
    """
    import sqlalchemy as sa

    # The key of a lock that nobody else takes: keys of PostgreSQL are signed numbers of 64 bits.
    key = secrets.randbits(62)
    try:
        one_engine = sa.create_engine(one_url, poolclass=sa.NullPool)
        other_engine = sa.create_engine(other_url, poolclass=sa.NullPool)
        if {one_engine.dialect.name, other_engine.dialect.name} != {"postgresql"}:
            return False
        with one_engine.connect() as holder, other_engine.connect() as asker:
            holder.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})
            try_lock = sa.text("SELECT pg_try_advisory_xact_lock(:key)")
            is_free = asker.execute(try_lock, {"key": key}).scalar()
            return is_free is False
    except (sa.exc.SQLAlchemyError, ImportError, ValueError):
        return False


def _engine(url: str) -> Engine:
    """Return an engine for a PostgreSQL database, which checks each new connection.

    Raises:
        LedgerError: for another kind of database, a malformed URL or a missing driver.
    """
    import sqlalchemy as sa

    try:
        engine = sa.create_engine(url, pool_pre_ping=True)
    except (sa.exc.ArgumentError, ValueError):
        raise LedgerError(
            "cannot open the ledger: the URL is malformed; write postgresql://user@host/name"
        ) from None
    except ModuleNotFoundError as error:
        if not url.startswith("postgres"):
            raise LedgerError("a ledger is a SQLite file or a PostgreSQL database") from None
        raise LedgerError(
            f"cannot open the ledger: this needs {error.name}: pip install 'dptopk[postgres]'"
        ) from None
    if engine.dialect.name != "postgresql":
        raise LedgerError("a ledger is a SQLite file or a PostgreSQL database")
    sa.event.listen(engine, "connect", _refuse_unsafe_database)
    return engine


def _refuse_lossy_server(run: Run) -> None:
    """Refuse a server whose settings lose commits in a crash.

    Args:
        run: runs a statement on a connection to it.

    Raises:
        LedgerError: naming the setting.
    """
    for name in _SERVER_SETTINGS:
        if _setting(run, name) != "on":
            raise LedgerError(
                f"the PostgreSQL server may lose charges in a crash: {name} is off; set it to on"
            )


def _commits_synchronously(run: Run) -> bool:
    """Return whether a commit waits until the disk has it, which a transaction can set itself."""
    return _setting(run, "synchronous_commit") != "off"


def _setting(run: Run, name: str) -> str:
    """Return the value of a setting of the server.

    Args:
        run: runs a statement on a connection to it.
        name: the name of the setting, such as "fsync".
    """
    ((value,),) = run(f"SELECT current_setting('{name}')")
    return str(value)


def _refuse_unsafe_database(connection: DBAPIConnection, _record: ConnectionPoolEntry) -> None:
    """Refuse a new connection to a server that loses commits in a crash, or to a database whose
    encoding cannot hold every name.

    Args:
        connection: the new connection, as SQLAlchemy hands it over with its record in the pool.

    Raises:
        LedgerError: naming the setting or the encoding.
    """
    with closing(connection.cursor()) as cursor:

        def run(statement: str) -> list[tuple[Any, ...]]:
            """Return the rows of a statement on the new connection."""
            cursor.execute(statement)
            return list(cursor.fetchall())

        _refuse_lossy_server(run)
        encoding = _setting(run, "server_encoding")
        if encoding != "UTF8":
            raise LedgerError(
                f"a ledger's database must have the encoding UTF8, this one has {encoding}"
            )
    connection.rollback()
