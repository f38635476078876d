"""The log together with its state: reading others' entries, appending, checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from dptopk._internal.json_text import canonical_json
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter, LedgerError
from dptopk.ledger.entries import GENESIS, Entry, digest
from dptopk.ledger.heads import Head, HeadFile, HeadTable
from dptopk.ledger.index import Index, bucket_of, chain_of, name_of
from dptopk.ledger.state import LAYOUT, LedgerState
from dptopk.ledger.store import Store
from dptopk.ledger.transaction import PAGE, Transaction
from dptopk.ledger.verify import fold, misplaced

CHECKPOINT_EVERY = 250  # entries; at most this many are folded when a ledger is opened
REFUSALS = (InvalidParameter, IncompatibleCosts, BudgetExceeded)  # which come before anything is appended


class Journal:
    """A store and the state after its entries, as far as they were read.

    A log that lacks an entry which this process has seen committed, or which the head file names, was put back to an
    older state: nothing is read from it, and nothing granted on it.

    Args:
        store: of the log.
        witness: where the head is written after each commit.
    """

    def __init__(self, store: Store, witness: HeadFile | HeadTable | None = None) -> None:
        self.store = store
        self.state = LedgerState(store.key)
        self._witness = witness
        self._known: Head | None = None  # the last entry that this process has seen committed
        self._pid = 0  # of the process that the state was read in; another one reads it anew
        self._appended = self._broken = False
        self._writing: Transaction | None = None  # under way in the thread that holds the lock of the store

    def open(self, first: Mapping[str, Any] | None, heads: list[Head]) -> None:
        """Read the log, and check it against heads; ``first``: the body of the first entry of a log that is new.

        Raises:
            LedgerError: when there is no ledger and ``first`` is None, or a head is not in the log.
        """
        with self.store.transaction() as log:
            if not log.has_tables(("entries",)):
                raise LedgerError("this is not a ledger: it was never initialised")
        if self._witness is not None:
            self._witness.read()  # what is no head is the caller's mistake
        self.refresh()
        if not self.state.last[0]:
            if first is None or heads:
                raise LedgerError("the ledger is empty: it was never initialised")
            with self.write() as log:
                if not self.state.last[0]:
                    self.append(log, "ledger", "", "", dict(first))
        with self.store.transaction() as log:
            self._confirm(log, heads, replaced=False)

    def head(self) -> Head:
        """Number and hash of the last entry that was read."""
        return Head(*self.state.last, self.state.about.get("id"))

    def known(self) -> list[Head]:
        """The last entry that this process has seen committed, if there is one."""
        return [] if self._known is None else [self._known]

    def refresh(self) -> None:
        """Fold in what others have appended, a page of rows at a time.

        Raises:
            LedgerError: when the log lacks an entry that was known.
        """
        with self.store.lock:
            if self._writing is not None:
                return  # nobody else appends meanwhile
            try:
                kept = [] if self._pid == os.getpid() else self._load()
                more = True
                while more:
                    with self.store.transaction() as log:
                        more = self._catch_up(log)
                        if not more:
                            self._confirm(log, [*self.known(), *kept])
            except BaseException:
                self._pid = 0  # an interrupt may have left an entry half folded: read the state anew
                raise
            self._known = self.head() if self.state.last[0] else None

    def _confirm(self, log: Transaction, heads: Iterable[Head], *, replaced: bool = True) -> None:
        """Refuse a log that lacks an entry that was known; ``replaced``: unless an operator gave it up."""
        for head in heads:
            if head != self.head() and not (replaced and self._replaced(head)):
                self._look_up(log, head)

    def _look_up(self, log: Transaction, head: Head) -> None:
        problem = head.problem(self.state.about.get("id"), log.hash_of(head.seq))
        if problem:
            raise LedgerError(f"{problem}; was an old copy put in its place? (see dptopk ledger accept-restore)")

    def _replaced(self, head: Head) -> bool:
        return [head.seq, head.hash] in self.state.replaced

    def _kept(self) -> list[Head]:
        """The head in the head file, if there is one."""
        try:
            head = None if self._witness is None else self._witness.read()
        except InvalidParameter as error:  # while the ledger is in use: not a mistake of whoever asks
            raise LedgerError(str(error)) from None
        return [] if head is None else [head]

    def _keep(self, confirmed: list[Head]) -> None:
        """Write the head to the head file, unless a later one is there; the heads ``confirmed`` are in the log."""
        if self._witness is None:
            return
        there = confirmed
        while all(head.seq < self.state.last[0] or self._replaced(head) for head in there):
            if self._witness.swap(there[0] if there else None, self.head()):
                return
            there = self._kept()
            with self.store.transaction() as log:
                self._confirm(log, there)

    def _catch_up(self, log: Transaction) -> bool:
        """Fold in a page; whether there may be more."""
        if self.state.last[0]:
            self._look_up(log, self.head())
        page = log.entries(self.state.last[0], PAGE)
        for entry in page:
            self.state.apply(entry)
        return len(page) == PAGE

    def _load(self) -> list[Head]:
        """Begin with the newest snapshot, if it is the one whose hash is in the log; else with nothing.

        Returns:
            The head in the head file, which was read first: what is read from now on must hold its entry.
        """
        state, head = LedgerState(self.store.key), self._kept()
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
        return head

    def find(self, log: Transaction, kind: str, *found_by: str | int) -> Entry | None:
        """The newest entry that is found by these (``name_of``), as the chain holds it; None when there is none.

        Raises:
            LedgerError: when what leads there is not what the log says.
        """
        name = name_of(kind, *found_by)
        bucket = bucket_of(name)
        places = log.places(bucket, self.state.last[0])
        if chain_of(places) != self.state.index.chains.get(bucket, GENESIS):
            raise LedgerError("the lookup rows for keys and answers do not match the log: the ledger was damaged")
        seqs = [seq for seq, found in places if found == name]
        if not seqs:
            return None
        entry = log.entry(seqs[-1])
        if entry is None or not self.genuine(entry):
            raise LedgerError(f"entry {seqs[-1]} is missing or has a wrong hash: it was changed, or the key is another")
        return entry

    def genuine(self, entry: Entry) -> bool:
        """Whether the entry's hash is correct."""
        return entry.hash == entry.chained(self.store.key)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction on the newest state that holds the write lock; what is appended inside is committed durably.

        Inside another one it is a part of that: what is appended by all parts is committed at the end, or nothing.
        """
        with self.store.lock:
            if self._writing is None:
                with self._write() as log:
                    yield log
                return
            before = self.state.last
            try:
                yield self._writing
            except BaseException as error:
                self._broken = self._broken or self.state.last != before or not isinstance(error, REFUSALS)
                raise

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        self.refresh()
        self._appended, self._broken, kept = False, False, self._kept()
        try:
            with self.store.transaction("write") as log:
                while self._catch_up(log):
                    pass
                self._confirm(log, [*self.known(), *kept])
                self._writing = log
                yield log
                self._finish(log)
        except BaseException as error:
            if self._appended or not isinstance(error, REFUSALS):
                self._pid = 0  # what was appended is not there, or an entry is half folded: read the state anew
            raise
        finally:
            self._writing = None
        if self._appended:
            self._known = self.head()
            self._keep(kept)

    def append(self, log: Transaction, kind: str, dataset: str, analyst: str, body: dict[str, Any]) -> Entry:
        """Append an entry and fold it in, as it was read back."""
        self._appended = True
        entry = log.append(self.state.last, kind, dataset, analyst, body)
        log.place(self.state.apply(entry))
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
                self.state.last = (before.seq, log.chain_again(key))
                self.store.key = self.state.key = key
                self.append(log, "rekey", "", "", {"before": asdict(before)})
        except BaseException:
            self.store.key, self._pid = old, 0
            raise

    def accept_restore(self, witness: HeadFile | HeadTable | None, reason: str, *, incomplete: bool) -> Head | None:
        """Go on with a log that lacks what a head file names, or what leads to its keys and answers; the lost head.

        Args:
            witness: names an entry that the log lacks, and holds the log's own head from here on.
            reason: recorded.
            incomplete: whether the log is known to lack entries, whatever the witness says.

        Raises:
            InvalidParameter: when nothing is wrong with it.
            LedgerError: when the log is not whole, or the head belongs to another ledger.
        """
        lost = kept = None if witness is None else witness.read()
        if lost is not None and lost.ledger not in {None, self.state.about.get("id")}:
            raise LedgerError("the head belongs to another ledger")
        with self.write() as log:
            _refuse_broken(log, self.store.key)
            log.create_tables()
            if lost is not None and (self._replaced(lost) or log.hash_of(lost.seq) == lost.hash):
                lost = None
            if lost is None and not incomplete and not misplaced(log, self.state):
                raise InvalidParameter("head-file: the ledger has the entry it names; there is nothing to accept")
            self._place_again(log)
            body: dict[str, Any] = {"lost": None if lost is None else asdict(lost), "reason": reason}
            body |= {"incomplete": True} if incomplete else {}
            self.append(log, "restore", "", "", body)
        self._witness = witness
        self._keep([] if kept is None else [kept])
        return lost

    def _place_again(self, log: Transaction) -> None:
        """Write anew what leads to keys and answers, from the entries of the log."""
        log.run("DELETE FROM places")
        index = Index()
        for entry in log.every_entry():
            log.place(index.add(entry))
        if index.chains != self.state.index.chains:
            raise LedgerError("the log lacks keys or answers that were written to it: it was changed")

    def _finish(self, log: Transaction) -> None:
        """Refuse to commit a part of what was to be written together; write a checkpoint where one is due."""
        if self._broken:
            raise LedgerError("part of this transaction failed: nothing was written")
        if not self._appended or self.state.last[0] - self.state.checkpoint < CHECKPOINT_EVERY:
            return
        text = canonical_json(self.state.state())
        entry = self.append(log, "checkpoint", "", "", {"layout": LAYOUT, "state": digest(None, text)})
        log.keep_snapshot(entry.seq, text)


def _refuse_broken(log: Transaction, key: bytes | None) -> None:
    """Refuse a log that is not whole: new hashes would hide what is wrong with it."""
    problems = fold(log.every_entry(), key)[0].problems
    if problems:
        raise LedgerError(problems[0])
