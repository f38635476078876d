"""A durable, append-only log in a SQL database, in which the ledger is written.

Durability: a committed entry survives a crash of the process and of the machine (``sqlite``,
``postgresql``).

Mutual exclusion: an append runs inside one transaction that takes the write lock first, reads what
others appended meanwhile, decides, writes, and reads the row back. Reading takes no lock that
outlives a page of rows.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.ledger.entries import FORMAT, Entry
from dptopk.ledger.heads import HeadStorage, head_storage_at, lock_beside, path_of_uri
from dptopk.ledger.postgresql import PostgreSQL, are_one_database
from dptopk.ledger.sqlite import ERRORS, Purpose, SQLite
from dptopk.ledger.sqlite_file import LedgerFile
from dptopk.ledger.transaction import INDEXES, PAGE, TABLES, Database, Transaction

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

# Databases of the parent process: a child must neither use nor close their connections. They are
# kept here so that nothing frees them.
_databases_of_parent: list[Database] = []
_stores: weakref.WeakSet[Store] = weakref.WeakSet()  # all stores of this process that are in use
_serials = itertools.count()  # the numbers of stores, in the order in which they were opened
_fork_lock = threading.RLock()  # held while a process forks
_locked_for_fork: list[Store] = []  # stores whose locks are held for a fork
_POSTGRESQL_PORT = 5432  # the port of a URL that names none


def _stores_in_use() -> list[Store]:
    """Return all stores of this process, even if another thread opens one meanwhile."""
    while True:
        with suppress(RuntimeError):  # the set changed while it was read
            return list(_stores)


@contextmanager
def no_fork() -> Iterator[None]:
    """Let forks of other threads wait until the end of a ``with`` block.

    It is for code that locks a store while it holds an older one: a fork locks all stores, the
    newest first, so that the two could wait for each other for ever.
    """
    with _fork_lock:
        yield


def _lock_stores() -> None:
    """Lock all stores before a fork, so that no transaction is under way.

    SQLite in the child would believe that it holds the parent's locks. The newest store is locked
    first: a thread that writes to the file of a stream may wait for the ledger, which was opened
    before.
    """
    _fork_lock.acquire()
    for store in sorted(_stores_in_use(), key=lambda store: -store.serial):
        store.lock.acquire()
        _locked_for_fork.append(store)
        store.prepare_fork()


def _unlock_stores() -> None:
    """Unlock all stores in the parent."""
    while _locked_for_fork:
        _locked_for_fork.pop().lock.release()
    _fork_lock.release()


def _reset_locks_in_child() -> None:
    """Forget the parent's locks in the child, which makes its own (``Store.lock``)."""
    _locked_for_fork.clear()
    _fork_lock.release()


if sys.platform != "win32":  # where nothing forks
    os.register_at_fork(
        before=_lock_stores, after_in_parent=_unlock_stores, after_in_child=_reset_locks_in_child
    )


class Store:
    """The log in one database.

    Args:
        url: the path of a SQLite file, the file, or any SQLAlchemy URL.
        key: the secret for the chain's HMAC; None: plain SHA-256.
        read_only: whether nothing is written to the file or its folder.
        create: whether the file, or the tables, are made if there are none.
        network: whether a SQLite file may be on a network file system.
        ahead: whether a SQLite file has a write-ahead log.
        earlier: whether a log of another format may be opened for writing: by a migration, and by
            ``_stated_format``, which asks for the format itself.

    Attributes:
        url: as given.
        key: the secret for the chain's HMAC; it changes when the log gets a new key.
        read_only: as given.
        serial: a number that is larger for stores that were opened later.

    Raises:
        LedgerError: when the database cannot be opened, or will not promise durability and mutual
            exclusion.
    """

    def __init__(
        self,
        url: str | Path | LedgerFile,
        *,
        key: bytes | None = None,
        read_only: bool = False,
        create: bool = True,
        network: bool = False,
        ahead: bool = False,
        earlier: bool = False,
    ) -> None:
        if not isinstance(url, str | Path | LedgerFile):
            raise InvalidParameter(
                f"url must be a path or the URL of a database, got {type(url).__name__}"
            )
        self.url = url
        self.key = key
        self.read_only = read_only
        self.serial = next(_serials)
        creates = create and not read_only
        file = url if isinstance(url, LedgerFile) else ledger_file(str(url), network)
        may_have_log = file is None or file.exists()
        if may_have_log and not read_only and not earlier:
            _refuse_another_format(_stated_format(url if file is None else file))
        if file is not None and creates:
            file.make()
        self._connect_to(_database(url, file, read_only=read_only, ahead=ahead))
        if creates:
            self._create()

    def _connect_to(self, database: Database) -> None:
        """Take a database whose connections belong to this process, with a lock of its own."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._database = database
        self._open_transaction: Transaction | None = None
        _stores.add(self)

    @property
    def lock(self) -> threading.RLock:
        """Return the lock of this process; a child process gets a new lock and new connections."""
        if os.getpid() != self._pid:
            _databases_of_parent.append(self._database)
            self._connect_to(self._database.reopen())
        return self._lock

    @contextmanager
    def transaction(self, purpose: Purpose = "read") -> Iterator[Transaction]:
        """Open a transaction for a ``with`` block; it commits durably at the end of the block, and
        rolls back on any error.

        Args:
            purpose: "read", "write", or "create" (the tables); the latter two first take a lock
                that excludes others.

        Raises:
            LedgerError: on any error of the database. An error while it commits leaves open whether
                it did.
        """
        if purpose != "read" and self.read_only:
            raise LedgerError("the ledger was opened for reading only")
        with self.lock:
            database = self._database
            if self._open_transaction is not None:
                # It is a part of the transaction that this thread has begun.
                yield self._open_transaction
                return
            with _database_errors_explained():
                connection = database.take()
                log = Transaction(database, connection, self.key)
                try:
                    database.refuse_moved_file()
                    database.begin(log.run, purpose)
                    with self._as_open_transaction(log):
                        yield log
                    log.close()
                    database.commit(connection, log.run)
                    database.refuse_moved_file()
                except BaseException:
                    # The cursors are closed first: an open statement would hold its lock.
                    log.close()
                    database.drop(connection)
                    raise
                database.give_back(connection)

    @contextmanager
    def _as_open_transaction(self, log: Transaction) -> Iterator[None]:
        """Let further calls of ``transaction`` in a ``with`` block be a part of this one."""
        self._open_transaction = log
        try:
            yield
        finally:
            self._open_transaction = None

    def _create(self) -> None:
        """Create the tables and indexes that are not there."""
        with self.transaction() as log:
            if log.has_tables((*TABLES, *INDEXES)):
                return
        with self.transaction("create") as log:
            log.create_tables()

    def format(self) -> object:
        """Return the format that the log states, a whole number unless the log was changed; None:
        there is no log yet.
        """
        with self.transaction() as log:
            return log.format()

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield the entries after a sequence number, in order; between pages no transaction is
        open.
        """
        while True:
            with self.transaction() as log:
                page = log.entries(after, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1].seq

    def backup(self, path: Path) -> None:
        """Copy a SQLite ledger as of one moment into a new file.

        Raises:
            LedgerError: when it cannot be copied.
        """
        with _database_errors_explained():
            self._database.backup(path)

    def prepare_fork(self) -> None:
        """Close what a child must not inherit; whoever forks holds the lock."""
        self._database.prepare_fork()

    def close(self) -> None:
        """Close all connections; the next use opens one again."""
        with self.lock:
            self._database.close()


def _database(
    url: str | Path | LedgerFile, file: LedgerFile | None, *, read_only: bool, ahead: bool
) -> Database:
    """Return the database of a ledger: the one in a file, or at a URL if there is no file.

    Args:
        url: the path or URL of the ledger.
        file: its file; None for a URL.
        read_only: whether nothing is written to the file or its folder.
        ahead: whether a SQLite file has a write-ahead log.
    """
    if file is None:
        return PostgreSQL(str(url))
    return SQLite(file, read_only=read_only, ahead=ahead)


@contextmanager
def _database_errors_explained() -> Iterator[None]:
    """Turn an error of the database inside a ``with`` block into a LedgerError that says why.

    Raises:
        LedgerError: for an error of SQLite, SQLAlchemy or its driver; others pass as they are.
    """
    try:
        yield
    except DptopkError:
        raise
    except Exception as error:
        if not _is_database_error(error):
            raise
        raise LedgerError(f"the ledger's database refused: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return what a database says is wrong: the first line of its message, without the content of a
    cell, which may be private.
    """
    if getattr(error, "sqlite_errorname", "") == "SQLITE_READONLY_ROLLBACK":
        return (
            "a process was killed while it wrote, and left its journal beside the file; it can be "
            "read again once somebody has opened it for writing, as the service that uses it does"
        )
    # SQLite writes "Could not decode to UTF-8 column 'body' with text '...'".
    message, _, _ = str(getattr(error, "orig", None) or error).partition(" with text ")
    lines = message.strip().splitlines()  # the first line names the problem
    if lines:
        return lines[0]
    return type(error).__name__


def _stated_format(url: str | Path | LedgerFile) -> object:
    """Return the format that the log at a place states; None: there is no log yet.

    A reader reads it, which writes nothing. Where that fails, a writer does: a writer that was
    killed left its journal, which only a writer can undo.

    Raises:
        LedgerError: when neither can read it.
    """
    reader = Store(url, read_only=True)
    try:
        return reader.format()
    except LedgerError:
        # With ``earlier`` it does not ask for the format, which would call this function again.
        writer = Store(url, create=False, earlier=True)
        try:
            return writer.format()
        finally:
            writer.close()
    finally:
        reader.close()


def _refuse_another_format(stated_format: object) -> None:
    """Refuse to write to a log of another format; None: there is no log yet.

    Raises:
        LedgerError: saying what can be done.
    """
    if stated_format in {None, FORMAT}:
        return
    if isinstance(stated_format, int) and 0 < stated_format < FORMAT:
        raise LedgerError(
            f"the ledger has format {stated_format}; this version writes format {FORMAT}, and can "
            "show, verify and export earlier ones. To go on with it: dptopk ledger migrate OLD NEW"
        )
    raise LedgerError(
        f"the ledger has format {stated_format!r}; this version reads format {FORMAT} and earlier "
        "ones"
    )


def _is_database_error(error: Exception) -> bool:
    """Return whether an error was raised by SQLite, or by SQLAlchemy and the driver below it."""
    package, _, _ = type(error).__module__.partition(".")
    return isinstance(error, ERRORS) or package in {"sqlalchemy", "psycopg"}


@contextmanager
def accepted_log(url: str | Path, network: bool) -> Iterator[str | Path | LedgerFile]:
    """Yield, for a ``with`` block, where a ledger can be opened even if its SQLite file lacks its
    write-ahead log.

    That is a ``LedgerFile`` which opens without the log, if it is lacking, and else the URL as it
    is. Such a file counts as lacking its log until something is written to it, and again when it is
    closed. At the end it is marked as complete, if no error was raised.

    Args:
        url: the path or URL of the ledger.
        network: whether the file may be on a network file system, as for ``Ledger``.
    """
    file = ledger_file(str(url), network)
    if file is None or not file.lacks_log():
        yield url
        return
    yield replace(file, without_log=True)
    with suppress(*ERRORS):  # in use again: the last one to close it does this
        file.mark_complete()


def ledger_file(url: str, network: bool) -> LedgerFile | None:
    """Return the file of a SQLite ledger; None for a database at a URL.

    Args:
        url: a path, which may follow "sqlite:///", or the URL of another database.
        network: whether the file may be on a network file system.

    Raises:
        LedgerError: for a database in memory, or a path with options.
    """
    if not url.startswith("sqlite:") and "://" in url:
        return None
    path = url.removeprefix("sqlite:///")
    if (
        path in ("", ":memory:")
        or path.startswith(("file:", "sqlite:"))
        or (path != url and "?" in path)
    ):
        raise LedgerError("a SQLite ledger is a file: give its path, without options")
    return LedgerFile.at(path, network=network)


def refuse_own_head(url: str | Path | LedgerFile, head_file: str | Path | None) -> None:
    """Refuse to store the head of a ledger in the ledger itself: an old copy would bring both back.

    Nothing is written, and no file opened. Where both are on servers, these are asked whether they
    are the same.

    Args:
        url: the path or URL of the ledger.
        head_file: a path or the URL of a database; None: the ledger has no head.

    Raises:
        InvalidParameter: when it is the ledger's database, or a file that SQLite keeps beside it.
    """
    # ``Store`` refuses a ``url`` of another type.
    if head_file is None or not isinstance(url, str | Path | LedgerFile):
        return
    file = url if isinstance(url, LedgerFile) else ledger_file(str(url), network=False)
    if file is None:
        is_own = _is_database_of_ledger(str(url), str(head_file))
    else:
        is_own = _is_beside_ledger(file, str(head_file))
    if is_own:
        raise InvalidParameter(
            "head-file: this is the ledger itself or a file of its own; whoever puts back an old "
            "copy of the ledger would put back its head too: name another place, best on another "
            "disk (where it is recorded already: dptopk ledger witness replace)"
        )


def _is_database_of_ledger(url: str, place: str) -> bool:
    """Return whether a place of a head is in the database of a ledger at a URL.

    Args:
        url: the URL of the ledger.
        place: the path or URL of the head.
    """
    if "://" not in place:
        return False
    return _name_same_database(place, url) or are_one_database(place, url)


def _is_beside_ledger(file: LedgerFile, place: str) -> bool:
    """Return whether a place of a head is the file of a ledger, or one that is made beside it.

    Args:
        file: the file of the ledger.
        place: the path or URL of the head.
    """
    if "://" not in place:
        lock = lock_beside(Path(os.path.realpath(place)))
        return file.includes(Path(place)) or file.includes(lock)
    database_file = _file_of(place)
    if database_file is None:
        return False
    # Either of them may be a file that SQLite makes beside the other.
    return file.includes(database_file) or LedgerFile.at(database_file).includes(file.path)


def head_storage_of(url: str | Path | LedgerFile, head_file: str | Path) -> HeadStorage:
    """Return the place where the head of a ledger is stored, which ``refuse_own_head`` has
    checked.

    Args:
        url: the path or URL of the ledger.
        head_file: the path or the URL of a database.
    """
    # The file is only compared with others, so that it does not matter where it lies.
    file = url if isinstance(url, LedgerFile) else ledger_file(str(url), network=False)
    return head_storage_at(head_file, file)


def refuse_own_file(url: str | Path, path: Path, name: str) -> None:
    """Refuse a path that leads to the ledger, or to a file that SQLite makes beside it; nothing is
    opened. For a ledger at the URL of a server no path is refused.

    Args:
        url: the path or URL of the ledger.
        path: the path that is refused if it leads there.
        name: the argument that names it, for the message.

    Raises:
        InvalidParameter: naming the argument.
        LedgerError: for a ledger in memory, or a path with options.
    """
    file = ledger_file(str(url), network=False)
    if file is not None and file.includes(path):
        raise InvalidParameter(f"{name}: {path.name!r} is a file of the ledger itself")


def _address(url: str) -> URL | None:
    """Return a database's URL taken apart by SQLAlchemy; None if it cannot be read."""
    try:
        import sqlalchemy as sa

        return sa.engine.make_url(url)
    except (ImportError, ValueError):  # opening the database says what is wrong
        return None
    except sa.exc.SQLAlchemyError:
        return None


def _file_of(url: str) -> Path | None:
    """Return the file of a SQLite database at a URL of SQLAlchemy; None for another database."""
    address = _address(url)
    if address is None or address.get_backend_name() != "sqlite" or not address.database:
        return None
    if address.database.startswith("file:"):
        return path_of_uri(address.database)
    return Path(address.database)


def _name_same_database(first_url: str, second_url: str) -> bool:
    """Return whether two URLs name one database of one server, whatever their users, passwords and
    drivers; nothing is asked of a server.
    """
    first = _address(first_url)
    second = _address(second_url)
    if first is None or second is None:
        return False
    if first.get_backend_name() != second.get_backend_name():
        return False
    same_port = (first.port or _POSTGRESQL_PORT) == (second.port or _POSTGRESQL_PORT)
    first_database = (first.host, first.database, first.query)
    return same_port and first_database == (second.host, second.database, second.query)
