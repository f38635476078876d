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
from dptopk.ledger.log_store import Store
from dptopk.ledger.replay import LAYOUT, LedgerState
from dptopk.ledger.transaction import PAGE, Transaction
from dptopk.ledger.verify import fold, misplaced, unwitnessed

CHECKPOINT_EVERY = 250  # entries; at most this many are folded when a ledger is opened
REFUSALS = (
    InvalidParameter,
    IncompatibleCosts,
    BudgetExceeded,
)  # which come before anything is appended


class Journal:
    """A store and the state after its entries, as far as they were read.

    A log that lacks an entry which this process has seen committed, or which the head file names,
    was put back to an older state: nothing is read from it, and nothing granted on it. A ledger
    records that its head is stored elsewhere: without it, or with an old copy of it, nothing is
    granted either. The first entry of each transaction records how far the head was at that time,
    so a head may lag behind the log by the last transaction of a process that was killed, and by
    nothing else.

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
        self._deciding = False  # an operator's decision about the head: it may be missing
        self.exported = False  # whether the log was checked against an exported head
        self._head_seen = 0  # the number of the stored head, as the transaction began
        self._writing: Transaction | None = (
            None  # under way in the thread that holds the lock of the store
        )

    def open(self, first: Mapping[str, Any] | None, heads: list[Head]) -> None:
        """Read the log, and check it against heads; ``first``: the body of the first entry of a log
        that is new.

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
        self.exported = bool(heads)
        if self._witness is not None:
            self._believe(self._kept())
            if self.state.witness is None and not self.store.read_only:
                self._attach(self._witness)

    def _attach(self, witness: HeadFile | HeadTable) -> None:
        """Record that the head is stored at the place that was given, from the beginning on.

        Raises:
            LedgerError: when something was charged before, and the place holds no head: whether
                this is an old copy of the ledger, an operator must say.
        """
        with self.write() as log:
            if self.state.witness is not None:
                return
            charged = any(state.ever for state in self.state.datasets.values())
            if charged and not self._kept():
                raise LedgerError(
                    "the ledger holds charges and was used without a head so far: dptopk ledger "
                    "witness attach, if it is not an old copy"
                )
            body = {"act": "attach", "place": witness.place(), "reason": ""}
            self.append(log, "witness", "", "", body)

    def witness(self) -> Head | None:
        """The head at the place where this ledger stores it, if there is one."""
        return next(iter(self._kept()), None)

    def _believe(self, kept: list[Head]) -> list[Head]:
        """The stored head, if it is as far as the log has seen it.

        Raises:
            LedgerError: when it is missing, or an old copy.
        """
        if self.state.witness is None:
            return kept
        if unwitnessed(self.state, kept[0] if kept else None):
            kept = self._kept()  # others may have written it since
        problem = unwitnessed(self.state, kept[0] if kept else None)
        if problem:
            raise LedgerError(problem)
        return kept

    def refusal(self) -> str:
        """Why nothing may be written: an earlier format, a migration, a head that is missing."""
        if self.state.is_earlier:
            return "the ledger has an earlier format: dptopk ledger migrate OLD NEW"
        try:
            self._grantable(self._kept())
        except LedgerError as error:
            return str(error)
        return ""

    def _grantable(self, kept: list[Head]) -> list[Head]:
        """The stored head of a ledger that may be written to.

        Raises:
            LedgerError: when it was migrated, or its head is not to be believed.
        """
        if self.state.retired is not None:
            raise LedgerError(
                "the ledger was migrated: it can be read, and the new one goes on (its first "
                f"entry names this one; its id is {self.state.retired['ledger']})"
            )
        if self._deciding:
            return kept
        return self._believe(kept)

    def head(self) -> Head:
        """Number and hash of the last entry that was read."""
        return Head(*self.state.last, self.state.about.get("id"))

    def known(self) -> list[Head]:
        """The last entry that this process has seen committed, if there is one."""
        if self._known is None:
            return []
        return [self._known]

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
                self._pid = (
                    0  # an interrupt may have left an entry half folded: read the state anew
                )
                raise
            self._known = self.head() if self.state.last[0] else None

    def _confirm(self, log: Transaction, heads: Iterable[Head], *, replaced: bool = True) -> None:
        """Refuse a log that lacks an entry that was known; ``replaced``: unless an operator gave it
        up.
        """
        for head in heads:
            if head != self.head() and not (replaced and self._replaced(head)):
                self._look_up(log, head)

    def _look_up(self, log: Transaction, head: Head) -> None:
        problem = head.problem(self.state.about.get("id"), log.hash_of(head.seq))
        if problem:
            raise LedgerError(
                f"{problem}; was an old copy put in its place? (see dptopk ledger accept-restore)"
            )

    def _replaced(self, head: Head) -> bool:
        return (head.seq, head.hash) in self.state.replaced

    def _kept(self) -> list[Head]:
        """The head in the head file, if there is one."""
        try:
            head = None if self._witness is None else self._witness.read()
        except (
            InvalidParameter
        ) as error:  # while the ledger is in use: not a mistake of whoever asks
            raise LedgerError(str(error)) from None
        if head is None:
            return []
        return [head]

    def _keep(self, confirmed: list[Head]) -> None:
        """Write the head to the head file, unless a later one is there; the heads ``confirmed`` are
        in the log.
        """
        if self._witness is None:
            return
        there = confirmed
        while not any(self._stays(head) for head in there):
            if self._witness.swap(there[0] if there else None, self.head()):
                return
            there = self._kept()
            with self.store.transaction() as log:
                self._confirm(log, there)

    def _stays(self, head: Head) -> bool:
        """Whether a stored head is as late as the log and was not given up."""
        return head.seq >= self.state.last[0] and not self._replaced(head)

    def _catch_up(self, log: Transaction) -> bool:
        """Fold in a page; whether there may be more."""
        if self.state.last[0]:
            self._look_up(log, self.head())
        page = log.entries(self.state.last[0], PAGE)
        for entry in page:
            self.state.apply(entry)
        return len(page) == PAGE

    def _load(self) -> list[Head]:
        """Begin with the newest snapshot, if it is the one whose hash is in the log; else with
        nothing.

        Returns:
            The head in the head file, which was read first: what is read from now on must hold its
            entry.
        """
        state = LedgerState(self.store.key)
        head = self._kept()
        with self.store.transaction() as log:
            kept = log.snapshot() if log.has_tables() else None
            entry = None if kept is None else log.entry(kept[0])
        if kept is not None and entry is not None and entry.kind == "checkpoint":
            if not self.genuine(entry):
                raise LedgerError(
                    f"entry {entry.seq} has a wrong hash: it was changed, or the key is another"
                )
            if entry.body.get("layout") == LAYOUT and entry.body.get("state") == digest(
                None, kept[1]
            ):
                state.restore(json.loads(kept[1]))
                state.last = (entry.seq, entry.hash)
                state.checkpoint = entry.seq
        self.state = state
        self._pid = os.getpid()
        return head

    def find(self, log: Transaction, kind: str, *found_by: str | int) -> Entry | None:
        """The newest entry that is found by these (``name_of``), as the chain holds it; None when
        there is none.

        Raises:
            LedgerError: when what leads there is not what the log says.
        """
        if self.state.is_earlier:
            raise LedgerError(
                "keys and answers of a ledger of an earlier format are found once it is migrated: "
                "dptopk ledger migrate OLD NEW"
            )
        name = name_of(kind, *found_by)
        bucket = bucket_of(name)
        places = log.places(bucket, self.state.last[0])
        if chain_of(places) != self.state.index.chains.get(bucket, GENESIS):
            raise LedgerError(
                "the lookup rows for keys and answers do not match the log: the ledger was damaged"
            )
        seqs = [seq for seq, found in places if found == name]
        if not seqs:
            return None
        entry = log.entry(seqs[-1])
        if entry is None or not self.genuine(entry):
            raise LedgerError(
                f"entry {seqs[-1]} is missing or has a wrong hash: it was changed, or the key "
                f"is another"
            )
        return entry

    def genuine(self, entry: Entry) -> bool:
        """Whether the entry's hash is correct."""
        return entry.hash == entry.chained(self.store.key)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction on the newest state that holds the write lock; what is appended inside is
        committed durably.

        Inside another one it is a part of that: what is appended by all parts is committed at the
        end, or nothing.
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
                self._broken = (
                    self._broken or self.state.last != before or not isinstance(error, REFUSALS)
                )
                raise

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        self.refresh()
        self._appended = False
        self._broken = False
        kept = self._kept()
        try:
            with self.store.transaction("write") as log:
                while self._catch_up(log):
                    pass
                self._confirm(log, [*self.known(), *kept])
                kept = self._grantable(kept)
                self._head_seen = self.state.last_named_by(kept[0]) if kept else 0
                self._writing = log
                yield log
                self._finish(log)
        except BaseException as error:
            if self._appended or not isinstance(error, REFUSALS):
                # what was appended is not there, or an entry is half folded: read the state anew
                self._pid = 0
            raise
        finally:
            self._writing = None
        if self._appended:
            self._known = self.head()
            self._keep(kept)

    def append(
        self, log: Transaction, kind: str, dataset: str, analyst: str, body: dict[str, Any]
    ) -> Entry:
        """Append an entry and fold it in, as it was read back."""
        if self.state.witness is not None and not (self._appended or self._deciding):
            body = body | {"witnessed": self._head_seen}
        self._appended = True
        entry = log.append(self.state.last, kind, dataset, analyst, body)
        log.place(self.state.apply(entry))
        return entry

    def copy(self, log: Transaction, entry: Entry, body: dict[str, Any]) -> None:
        """Append an entry of another log under its number and time, with a body of today's form."""
        self._appended = True
        names = (entry.kind, entry.dataset, entry.analyst)
        copied_entry = log.append(self.state.last, *names, body, at=entry.at)
        log.place(self.state.apply(copied_entry))

    def rekey(self, key: bytes) -> None:
        """Chain the log by another key: all of it or, on any error, nothing of it.

        Raises:
            LedgerError: when the log is not whole under the key that it has.
        """
        old = self.store.key
        try:
            with self.write() as log:
                refuse_broken(log, old)
                before = self.head()
                self.state.last = (before.seq, log.chain_again(key))
                self.store.key = self.state.key = key
                self.append(log, "rekey", "", "", {"before": asdict(before)})
        except BaseException:
            self.store.key = old
            self._pid = 0
            raise

    def accept_restore(
        self, witness: HeadFile | HeadTable | None, reason: str, *, incomplete: bool
    ) -> Head | None:
        """Go on with a log that lacks what a head file names, or what leads to its keys and
        answers; the lost head.

        Args:
            witness: names an entry that the log lacks, and holds the log's own head from here on.
            reason: recorded.
            incomplete: whether the log is known to lack entries, whatever the witness says.

        Raises:
            InvalidParameter: when nothing is wrong with it.
            LedgerError: when the log is not whole, or the head belongs to another ledger.
        """
        self.refresh()
        if self.state.witness is not None and witness is None:
            raise InvalidParameter("head-file: this ledger has a head; say where it is stored")
        lost = kept = None if witness is None else witness.read()
        if lost is not None and lost.ledger not in {None, self.state.about.get("id")}:
            raise LedgerError("the head belongs to another ledger")
        with self._decision() as log:
            refuse_broken(log, self.store.key)
            log.create_tables()
            if lost is not None and (self._replaced(lost) or log.hash_of(lost.seq) == lost.hash):
                lost = None
            if lost is None and not incomplete and not misplaced(log, self.state):
                raise InvalidParameter(
                    "head-file: the ledger has the entry it names; there is nothing to accept"
                )
            self._place_again(log)
            forgone = None if lost is None else asdict(lost)
            decision = {"lost": forgone, "reason": reason}
            missing = {"incomplete": True} if incomplete else {}
            self.append(log, "restore", "", "", decision | missing)
        self._witness = witness
        self._keep([] if kept is None else [kept])
        return lost

    @contextmanager
    def _decision(self) -> Iterator[Transaction]:
        """A transaction of an operator who decides what is done about the head."""
        self._deciding = True
        try:
            with self.write() as log:
                yield log
        finally:
            self._deciding = False

    def set_witness(self, act: str, witness: HeadFile | HeadTable, reason: str) -> None:
        """Store the head at a place from here on: an operator's decision, which the log records.

        Args:
            act: "attach" the first one; "move" from the place that is in use, whose head must be
                the present one; or "replace" one that is lost.
            witness: where it is stored from here on; the head of this log that may be there stays
                or is replaced by a later one.
            reason: recorded.

        Raises:
            InvalidParameter: when the ledger has a head already, or has none.
            LedgerError: when the log is not whole, or lacks what the new place names.
        """
        before = self._witness
        there = witness.read()
        deciding = self.write() if act == "move" else self._decision()
        with deciding as log:
            if (self.state.witness is None) != (act == "attach"):
                has = "has none yet: attach" if self.state.witness is None else "has one: move"
                raise InvalidParameter(f"head-file: the ledger {has} it (dptopk ledger witness)")
            refuse_broken(log, self.store.key)
            self._confirm(log, [] if there is None else [there])
            body = {"act": act, "place": witness.place(), "reason": reason}
            self.append(log, "witness", "", "", body)
        self._witness = witness
        self._keep([] if there is None else [there])
        if act == "move" and before is not None:
            before.remove()

    def _place_again(self, log: Transaction) -> None:
        """Write anew what leads to keys and answers, from the entries of the log."""
        log.run("DELETE FROM places")
        index = Index()
        for entry in log.every_entry():
            log.place(index.add(entry))
        if index.chains != self.state.index.chains:
            raise LedgerError(
                "the log lacks keys or answers that were written to it: it was changed"
            )

    def _finish(self, log: Transaction) -> None:
        """Refuse to commit a part of what was to be written together; write a checkpoint where one
        is due.
        """
        if self._broken:
            raise LedgerError("part of this transaction failed: nothing was written")
        if not self._appended or self.state.last[0] - self.state.checkpoint < CHECKPOINT_EVERY:
            return
        text = canonical_json(self.state.state())
        entry = self.append(
            log, "checkpoint", "", "", {"layout": LAYOUT, "state": digest(None, text)}
        )
        log.keep_snapshot(entry.seq, text)


def refuse_broken(log: Transaction, key: bytes | None) -> None:
    """Refuse a log that is not whole: new hashes would hide what is wrong with it."""
    problems = fold(log.every_entry(), key)[0].problems
    if problems:
        raise LedgerError(problems[0])
