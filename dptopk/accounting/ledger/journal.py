"""The log and what it says, kept together: reading what others appended, appending, checkpoints, newer formats."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dptopk.accounting.ledger.entries import FORMAT, Entry, digest, text_of
from dptopk.accounting.ledger.heads import Head, read_head, write_head
from dptopk.accounting.ledger.state import LAYOUT, LedgerState
from dptopk.accounting.ledger.store import Store
from dptopk.accounting.ledger.transaction import PAGE, Transaction
from dptopk.accounting.ledger.verify import inspect
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter, LedgerError

__all__ = ["Journal", "answer_pointer", "once_pointer", "release_pointer", "seen_pointer"]

CHECKPOINT_EVERY = 250  # entries; so many at most are folded when a ledger is opened


def release_pointer(charge: int) -> str:
    """The name that leads from a charge to its release."""
    return f"release {charge}"


def answer_pointer(dataset: str, query: str) -> str:
    """The name that leads from a question to its newest stored answer."""
    return "answer " + digest(None, json.dumps([dataset, query]))


def seen_pointer(dataset: str, analyst: str, answer: int) -> str:
    """The name that leads to the entry by which an analyst was shown another's answer."""
    return "seen " + digest(None, json.dumps([dataset, analyst, answer]))


def once_pointer(dataset: str, analyst: str, key: str) -> str:
    """The name that leads to the charge that an analyst made under a key."""
    return "once " + digest(None, json.dumps([dataset, analyst, key]))


class Journal:
    """A store and the state after its entries, as far as they were read.

    Args:
        store: of the log.
        head_file: where the head is written after each commit.
    """

    def __init__(self, store: Store, head_file: Path | None = None) -> None:
        self.store = store
        self.state = LedgerState(store.key)
        self._head_file = head_file
        self._pid = 0  # of the process that the state was read in; another one reads it anew
        self._appended = False

    def open(self, first: Mapping[str, Any] | None, heads: list[Head]) -> None:
        """Read the log, and check it against heads; ``first``: the body of the first entry of a log that is new.

        Raises:
            LedgerError: when there is no ledger and ``first`` is None, or a head is not in the log.
        """
        with self.store.transaction() as log:
            if not log.has_tables(("entries",)):
                raise LedgerError("this is no ledger: it was never initialised")
        if self._head_file is not None:
            kept = read_head(self._head_file)
            heads = heads if kept is None else [*heads, kept]
        self.refresh()
        if not self.state.last[0]:
            if first is None or heads:
                raise LedgerError("the ledger is empty: it was never initialised")
            with self.write() as log:
                if not self.state.last[0]:
                    self.append(log, "ledger", "", "", dict(first))
        for head in heads:
            with self.store.transaction() as log:
                entry = log.entry(head.seq)
            there = None if entry is None else entry.hash
            problem = head.problem(self.state.about.get("id"), self.state.last[0], there)
            if problem:
                raise LedgerError(f"{problem}; was an old copy put in its place?")

    def head(self) -> dict[str, Any]:
        """Number and hash of the last entry that was read."""
        return {"ledger": self.state.about.get("id"), "seq": self.state.last[0], "hash": self.state.last[1]}

    def refresh(self) -> None:
        """Fold in what others have appended, a page of rows at a time."""
        with self.store.lock:
            if self._pid != os.getpid():
                self._load()
            try:
                while True:
                    with self.store.transaction() as log:
                        if not self._catch_up(log):
                            return
            except BaseException:
                self._pid = 0  # an interrupt may have left an entry half folded: read the state anew
                raise

    def _catch_up(self, log: Transaction) -> bool:
        """Fold in a page; whether there may be more."""
        page = log.entries(self.state.last[0], PAGE)
        for entry in page:
            self.state.apply(entry)
        return len(page) == PAGE

    def _load(self) -> None:
        """Begin with the newest snapshot, if it is the one whose hash is in the log; else with nothing."""
        state = LedgerState(self.store.key)
        with self.store.transaction() as log:
            kept = log.snapshot() if log.has_tables() else None
            entry = None if kept is None else log.entry(kept[0])
        if kept is not None and entry is not None and entry.kind == "checkpoint":
            if not self.genuine(entry):
                raise LedgerError(f"entry {entry.seq} has a wrong hash: it was changed, or the key is another")
            if entry.body.get("layout") == LAYOUT and entry.body.get("state") == digest(None, kept[1]):
                state.restore(json.loads(kept[1]))
                state.last, state.checkpoint = (entry.seq, entry.hash), entry.seq
        self.state, self._pid = state, os.getpid()

    def genuine(self, entry: Entry) -> bool:
        """Whether the entry's hash is its own, in some format."""
        return any(entry.hash == entry.chained(self.store.key, format_) for format_ in range(FORMAT, 0, -1))

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction on the newest state that holds the write lock; what is appended inside is committed durably."""
        with self.store.lock:
            self.refresh()
            self._appended = False
            try:
                with self.store.transaction("write") as log:
                    while self._catch_up(log):
                        pass
                    if self.state.last[0] and self.state.format < FORMAT:
                        self._upgrade(log)
                    yield log
                    if self._appended and self.state.last[0] - self.state.checkpoint >= CHECKPOINT_EVERY:
                        self._checkpoint(log)
            except BaseException as error:
                if self._appended or not isinstance(error, InvalidParameter | IncompatibleCosts | BudgetExceeded):
                    self._pid = 0  # what was appended is not there, or an entry is half folded: read the state anew
                raise
            if self._appended and self._head_file is not None:
                write_head(self._head_file, self.head())

    def append(self, log: Transaction, kind: str, dataset: str, analyst: str, body: dict[str, Any]) -> Entry:
        """Append an entry and fold it in, as it was read back."""
        self._appended = True
        entry = log.append(self.state.last, kind, dataset, analyst, body)
        self.state.apply(entry)
        return entry

    def rekey(self, key: bytes) -> None:
        """Chain the log by another key: all of it or, on any error, nothing of it.

        Raises:
            LedgerError: when the log is not whole under the key that it has.
        """
        old = self.store.key
        try:
            with self.write() as log:
                _refuse_broken(log, old)
                before = self.head()
                self.state.last = (before["seq"], log.chain_again(key))
                self.store.key = self.state.key = key
                self.append(log, "rekey", "", "", {"before": before})
        except BaseException:
            self.store.key, self._pid = old, 0
            raise

    def _checkpoint(self, log: Transaction) -> None:
        text = text_of(self.state.state())
        entry = self.append(log, "checkpoint", "", "", {"layout": LAYOUT, "state": digest(None, text)})
        log.keep_snapshot(entry.seq, text)

    def _upgrade(self, log: Transaction) -> None:
        """From here on the newest format; the state so far is written down, and the old entries can be found."""
        self.append(log, "format", "", "", {"format": FORMAT, "state": self.state.state()})
        at, queries = 0, dict[int, str]()
        while page := log.entries(at, PAGE):
            for entry in page:
                if entry.kind == "charge":
                    queries[entry.seq] = entry.body.get("query", "")
                elif entry.kind == "release":
                    charge = entry.body["charge"]
                    log.point(release_pointer(charge), entry.seq)
                    if queries.get(charge) and entry.body.get("answer") is not None:
                        log.point(answer_pointer(entry.dataset, queries[charge]), entry.seq)
            at = page[-1].seq


def _refuse_broken(log: Transaction, key: bytes | None) -> None:
    """Refuse a log that is not whole: new hashes would hide what is wrong with it."""
    problems = inspect(log.every_entry(), key, None)[0].problems
    if problems:
        raise LedgerError(problems[0])
