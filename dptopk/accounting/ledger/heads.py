"""Exported heads: the number and hash of the last entry, kept in another place.

A database that was restored from a backup, copied without its journal, or cut off at its end looks whole. A head that
was written elsewhere after a later commit tells: the log must still hold that entry with that hash. A head file is
replaced by a later head of the same log alone, by one process at a time.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dptopk.errors import InvalidParameter, LedgerError

if sys.platform != "win32":  # there heads are replaced without a lock
    import fcntl

__all__ = ["Head", "held", "read_head", "write_head"]


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log ended: sequence number and hash of its last entry, and the ledger's identity."""

    seq: int
    hash: str
    ledger: str | None = None

    @classmethod
    def of(cls, head: Mapping[str, Any]) -> Head:
        """A head as it was exported.

        Raises:
            InvalidParameter: when it is not one.
        """
        try:
            seq, hash_, ledger = head["seq"], head["hash"], head.get("ledger")
        except (KeyError, TypeError, AttributeError):
            raise InvalidParameter("head must hold seq and hash, as an exported head does") from None
        if type(seq) is not int or not isinstance(hash_, str) or not isinstance(ledger, str | None):
            raise InvalidParameter("head must hold seq and hash, as an exported head does")
        return cls(seq, hash_, ledger)

    def problem(self, ledger: str | None, hash_there: str | None) -> str:
        """What is wrong with a log that has this hash at the head's entry (None: no such entry); '' for nothing."""
        if self.ledger is not None and ledger is not None and self.ledger != ledger:
            return "the head is of another ledger"
        if hash_there is None:
            return f"the tail is missing: the log has no entry {self.seq}, which was written before"
        if hash_there != self.hash:
            return f"entry {self.seq} is not the one that was written before: the log was rewritten"
        return ""


def read_head(path: Path) -> Head | None:
    """The head in a file; None when there is no file.

    Raises:
        InvalidParameter: when the file holds no head.
    """
    try:
        return Head.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidParameter(f"head: {path.name!r} is not an exported head ({type(error).__name__})") from None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a head file, which lets one process at a time compare and replace it.

    Raises:
        LedgerError: when it cannot be locked.
    """
    if sys.platform == "win32":
        yield
        return
    try:
        lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise LedgerError(f"the head file {path.name!r} could not be locked: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # closing it gives the lock back
        yield
    finally:
        os.close(lock)


def write_head(path: Path, head: Head) -> None:
    """Put a head into a file, whole and durably; whoever calls has compared it with the one that is there.

    Raises:
        LedgerError: when it cannot be written; the entry itself is in the ledger.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.write(file, (json.dumps(asdict(head)) + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise LedgerError(f"the head could not be written to {path.name!r}: {error.strerror}") from None
