"""Interface of a ledger's database: durable commits, one writer at a time, and the dialect's statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

LOCK_TIMEOUT_MS = 60_000

Purpose = Literal["read", "write", "create"]
Run = Callable[..., list[tuple[Any, ...]]]  # runs a statement, with its values, and reads all rows


class Database(ABC):
    """A database that a log is written on.

    Attributes:
        mark: stands for a value in a statement.
        guards: statements that make it refuse changes of rows that were written.
        unguard: statements that let it take a change of such rows.
    """

    mark = "?"
    guards: tuple[str, ...] = ()
    unguard: tuple[str, ...] = ()

    @abstractmethod
    def anew(self) -> Database:
        """Return the same database with new connections, for a forked process."""

    @abstractmethod
    def take(self) -> Any:
        """A connection for one transaction.

        Raises:
            LedgerError: when it does not promise durability.
        """

    @abstractmethod
    def give_back(self, connection: Any) -> None:
        """Keep a connection for the next transaction."""

    @abstractmethod
    def drop(self, connection: Any) -> None:
        """Give up the transaction of a connection that an interrupt may have left in any state."""

    @abstractmethod
    def begin(self, run: Run, purpose: Purpose) -> None:
        """Begin; to write or to create the tables, take the lock that excludes others who do."""

    @abstractmethod
    def commit(self, connection: Any, run: Run) -> None:
        """Commit durably."""

    @abstractmethod
    def has_tables(self, names: tuple[str, ...], run: Run) -> bool:
        """Whether these tables exist."""

    @abstractmethod
    def damage(self, run: Run) -> list[str]:
        """Report the database's integrity check, and settings that can lose commits."""

    @abstractmethod
    def backup(self, path: Path) -> None:
        """Copy all of it, as of one moment, into a file that is not there yet.

        Raises:
            LedgerError: when it cannot be done, or there is a file.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections that are not in use; the next use opens one again."""

    def unmoved(self) -> None:  # noqa: B027 - a server's database stays where it is
        """Refuse to go on when this is no longer the database that was opened.

        Raises:
            LedgerError: when it was moved or replaced.
        """
