"""Exported heads: the number and hash of the last entry, kept in another place.

A database that was restored from a backup, copied without its journal, or cut off at its end looks whole. A head that
was written elsewhere after a later commit tells: the log must still hold that entry with that hash.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptopk.errors import InvalidParameter, LedgerError

__all__ = ["Head", "read_head", "write_head"]


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

    def problem(self, ledger: str | None, last: int, hash_there: str | None) -> str:
        """What is wrong with a log that ends at ``last`` and has this hash at the head's entry; '' for nothing."""
        if self.ledger is not None and ledger is not None and self.ledger != ledger:
            return "the head is of another ledger"
        if hash_there is None:
            return f"the tail is missing: the log ends at entry {last}, the head is entry {self.seq}"
        if hash_there != self.hash:
            return f"entry {self.seq} is not the one whose hash was exported: the log was rewritten"
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


def write_head(path: Path, head: Mapping[str, Any]) -> None:
    """Put a head into a file, whole and durably, unless a later one is there.

    Raises:
        LedgerError: when it cannot be written; the entry itself is in the ledger.
    """
    there = read_head(path)
    if there is not None and there.seq >= head["seq"]:
        return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            os.write(file, (json.dumps(head) + "\n").encode())
            os.fsync(file)
        finally:
            os.close(file)
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise LedgerError(f"the head could not be written to {path.name!r}: {error.strerror}") from None
