"""The log together with its state: reading new entries, appending, checkpoints and the
stored head.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from dptopk._internal.json_text import canonical_json
from dptopk.errors import (
    BudgetExceeded,
    DptopkError,
    IncompatibleCosts,
    InvalidParameter,
    LedgerError,
)
from dptopk.ledger.entries import GENESIS, Entry, digest
from dptopk.ledger.heads import Head, HeadFile, HeadTable
from dptopk.ledger.index import Index, bucket_of, chain_hash_of, name_of
from dptopk.ledger.log_store import Store
from dptopk.ledger.replay import LAYOUT, LedgerState
from dptopk.ledger.transaction import PAGE, Transaction
from dptopk.ledger.verify import fold, head_problem, lookup_problems

CHECKPOINT_EVERY = 250  # the most entries that are folded when a ledger is opened
# These errors are raised before anything is appended.
REFUSALS = (InvalidParameter, IncompatibleCosts, BudgetExceeded)


class Journal:
    """A store and the state after the entries that were read so far.

    A log that lacks an entry which this process has seen committed, or which the stored head names,
    was put back to an older state: nothing is read from it, and nothing can be spent. A ledger
    records that its head is stored elsewhere: without the head, or with an old copy of it, nothing
    can be spent either. The first entry of each transaction records how far the stored head was at
    that time. A process that is killed between its commit and its head leaves a head that lags by
    one transaction, which whoever opens the log or writes to it next stores first.

    Args:
        store: the store of the log.
        witness: the place where the head is stored after each commit; None: nowhere.

    Attributes:
        state: the state after the last entry that was read.
        exported: whether the log was checked against an exported head.
    """

    def __init__(self, store: Store, witness: HeadFile | HeadTable | None = None) -> None:
        self.store = store
        self.state = LedgerState(store.key)
        self._witness = witness
        # The last entry that this process has seen committed.
        self._committed_head: Head | None = None
        # The head that a move stores at its new place before its entry is committed.
        self._uncommitted_head: Head | None = None
        self._pid = 0  # the process that has read the state; 0: it must be read again
        self._has_appended = False  # whether the transaction has appended an entry
        self._has_failed = False  # whether a part of the transaction failed after it had appended
        # Whether an operator decides about the head, which may be missing.
        self._is_decision = False
        self.exported = False
        self._head_at_start = 0  # the number of the stored head when the transaction began
        self._transaction: Transaction | None = None  # the transaction of the thread with the lock

    def open(self, first: Mapping[str, Any] | None, heads: list[Head]) -> None:
        """Read the log and check it against heads; begin a new log if there is none.

        Args:
            first: the body of the first entry of a new log; None: a new log is refused.
            heads: exported heads, whose entries the log must hold.

        Raises:
            LedgerError: when there is no ledger and ``first`` is None, or a head is not in the log.
        """
        with self.store.transaction() as log:
            if not log.has_tables(("entries",)):
                raise LedgerError("this is not a ledger: it was never initialised")
        if self._witness is not None:
            self._witness.read()  # raises InvalidParameter for a place that holds no head
        self.refresh()
        if self._is_empty():
            if first is None or heads:
                raise LedgerError("the ledger is empty: it was never initialised")
            with self.write() as log:
                if self._is_empty():  # else another process was first
                    self.append(log, "ledger", "", "", dict(first))
        with self.store.transaction() as log:
            self._require_entries_of(log, heads, may_be_given_up=False)
        self.exported = bool(heads)
        if self._witness is not None:
            stored_heads = self._check_stored_head(self._stored_head())
            if self.state.witness is None and not self.store.read_only:
                self._record_witness(self._witness)
            elif not self.store.read_only:
                self._catch_up_head(stored_heads)

    def _is_empty(self) -> bool:
        """Return whether no entry was read so far."""
        seq, _ = self.state.last
        return seq == 0

    def _record_witness(self, witness: HeadFile | HeadTable) -> None:
        """Record that the head is stored at a place, unless the log records one.

        Raises:
            LedgerError: when something was charged before, and the place holds no head: whether
                this is an old copy of the ledger, an operator must say.
        """
        with self.write() as log:
            if self.state.witness is not None:
                return
            charged = any(state.ever for state in self.state.datasets.values())
            if charged and not self._stored_head():
                raise LedgerError(
                    "the ledger holds charges and was used without a head so far: dptopk ledger "
                    "witness attach, if it is not an old copy"
                )
            body = {"act": "attach", "place": witness.place(), "reason": ""}
            self.append(log, "witness", "", "", body)

    def witness(self) -> Head | None:
        """Return the head at the place where this ledger stores it; None if there is none."""
        return _head_in(self._stored_head())

    def _check_stored_head(self, stored_heads: list[Head]) -> list[Head]:
        """Return the stored head, if it is as far as the log records.

        Args:
            stored_heads: the head as it was read; it is read again if it does not fit.

        Raises:
            LedgerError: when it is missing, or an old copy.
        """
        if self.state.witness is None:
            return stored_heads
        if head_problem(self.state, _head_in(stored_heads)):
            stored_heads = self._stored_head()  # others may have written it since
        problem = head_problem(self.state, _head_in(stored_heads))
        if problem:
            raise LedgerError(problem)
        return stored_heads

    def refusal(self) -> str:
        """Return why nothing may be written: an earlier format, a migration or a missing head; ""
        if it may.
        """
        if self.state.is_earlier:
            return "the ledger has an earlier format: dptopk ledger migrate OLD NEW"
        try:
            self._check_writable(self._stored_head())
        except LedgerError as error:
            return str(error)
        return ""

    def _check_writable(self, stored_heads: list[Head]) -> list[Head]:
        """Return the stored head of a ledger that may be written to.

        Raises:
            LedgerError: when it was migrated, or its stored head does not confirm it.
        """
        if self.state.retired is not None:
            raise LedgerError(
                "the ledger was migrated: it can be read, and the new one goes on (its first "
                f"entry names this one; its id is {self.state.retired['ledger']})"
            )
        if self._is_decision:  # an operator decides about the head, which may be missing
            return stored_heads
        return self._check_stored_head(stored_heads)

    def head(self) -> Head:
        """Return the number and the hash of the last entry that was read."""
        return Head(*self.state.last, self.state.about.get("id"))

    def committed_heads(self) -> list[Head]:
        """Return the last entry that this process has seen committed, as a list of at most one."""
        if self._committed_head is None:
            return []
        return [self._committed_head]

    def refresh(self) -> None:
        """Read and fold the entries that others have appended, a page at a time.

        Raises:
            LedgerError: when the log lacks an entry that it had.
        """
        with self.store.lock:
            if self._transaction is not None:
                return  # nobody else appends meanwhile
            try:
                stored_heads = [] if self._pid == os.getpid() else self._load()
                self._catch_up_in_pages([*self.committed_heads(), *stored_heads])
            except BaseException:
                # An interrupt may have left an entry half folded: the state is read again.
                self._pid = 0
                raise
            self._committed_head = None if self._is_empty() else self.head()

    def _catch_up_in_pages(self, heads: list[Head]) -> None:
        """Read and fold what others have appended, each page in a transaction of its own, so that
        nobody waits for long.

        Args:
            heads: heads whose entries the log must hold.

        Raises:
            LedgerError: when the log lacks an entry that it had, or one of a head.
        """
        has_more = True
        while has_more:
            with self.store.transaction() as log:
                has_more = self._catch_up(log)
                if not has_more:
                    self._require_entries_of(log, heads)

    def _require_entries_of(
        self, log: Transaction, heads: Iterable[Head], *, may_be_given_up: bool = True
    ) -> None:
        """Refuse a log that lacks the entry of one of these heads.

        Args:
            log: a transaction on the log.
            heads: the heads.
            may_be_given_up: whether heads that an operator gave up are left out.

        Raises:
            LedgerError: naming the entry.
        """
        for head in heads:
            may_lack = may_be_given_up and self._was_given_up(head)
            # The last entry that was read needs no look-up.
            if head != self.head() and not may_lack:
                self._require_entry_of(log, head)

    def _require_entry_of(self, log: Transaction, head: Head) -> None:
        """Refuse a log that lacks the entry of a head.

        Raises:
            LedgerError: naming the entry.
        """
        problem = head.problem(self.state.about.get("id"), log.hash_of(head.seq))
        if problem:
            raise LedgerError(
                f"{problem}; was an old copy put in its place? (see dptopk ledger accept-restore)"
            )

    def _was_given_up(self, head: Head) -> bool:
        """Return whether an operator gave up a head."""
        return (head.seq, head.hash) in self.state.replaced

    def _stored_head(self) -> list[Head]:
        """Return the head at the place where it is stored, as a list of at most one.

        Raises:
            LedgerError: if the place holds something else.
        """
        if self._witness is None:
            return []
        try:
            head = self._witness.read()
        except InvalidParameter as error:
            # The ledger is in use: this is no mistake of the arguments.
            raise LedgerError(str(error)) from None
        if head is None:
            return []
        return [head]

    def _store_head(self, confirmed: list[Head]) -> None:
        """Store the head, unless a later one is stored.

        Args:
            confirmed: the head that was stored last, whose entry is known to be in the log.

        Raises:
            LedgerError: if the head cannot be written, or the log lacks the entry of one that
                another process has stored meanwhile.
        """
        if self._witness is None:
            return
        stored_heads = confirmed
        while not any(self._is_latest(head) for head in stored_heads):
            try:
                if self._witness.swap(_head_in(stored_heads), self.head()):
                    return
            except InvalidParameter as error:  # entries are written: no argument was refused
                raise LedgerError(str(error)) from None
            stored_heads = self._stored_head()  # another process has stored one meanwhile
            with self.store.transaction() as log:
                self._require_entries_of(log, stored_heads)

    def _catch_up_head(self, stored_heads: list[Head]) -> list[Head]:
        """Return the stored head after it has caught up with the log, of a ledger that records one.

        A process that was killed between its commit and its head left it behind. What was charged
        by it may be answered now (``Ledger.charge``, ``once``), and must not be lost with an older
        copy of the log that this head would confirm.

        Args:
            stored_heads: the stored head, whose entry is known to be in the log.
        """
        has_latest = any(self._is_latest(head) for head in stored_heads)
        if has_latest or self._is_decision or self.state.witness is None:
            return stored_heads
        self._store_head(stored_heads)
        return self._stored_head()

    def _is_latest(self, head: Head) -> bool:
        """Return whether a stored head is as late as the log and was not given up."""
        seq, _ = self.state.last
        return head.seq >= seq and not self._was_given_up(head)

    def _catch_up(self, log: Transaction) -> bool:
        """Read and fold a page of entries; return whether there may be more.

        Raises:
            LedgerError: if the log lacks the entry that was read last, or an entry could not follow
                those before.
        """
        if not self._is_empty():
            self._require_entry_of(log, self.head())
        seq, _ = self.state.last
        page = log.entries(seq, PAGE)
        for entry in page:
            self.state.apply(entry)
        return len(page) == PAGE

    def _load(self) -> list[Head]:
        """Start from the newest snapshot if its hash is in the log, else from an empty state.

        Returns:
            The stored head, which is read first: the log that is read afterwards must hold its
            entry.

        Raises:
            LedgerError: if the place of the head holds something else, or the entry of the newest
                snapshot was altered.
        """
        state = LedgerState(self.store.key)
        stored_heads = self._stored_head()
        entry = None
        text = ""
        with self.store.transaction() as log:
            snapshot = log.snapshot() if log.has_tables() else None
            if snapshot is not None:
                seq, text = snapshot
                entry = log.entry(seq)
        if entry is not None and entry.kind == "checkpoint":
            if not self.has_right_hash(entry):
                raise LedgerError(
                    f"entry {entry.seq} has a wrong hash: it was changed, or the key is another"
                )
            same_layout = entry.body.get("layout") == LAYOUT
            if same_layout and entry.body.get("state") == digest(None, text):
                state.restore(json.loads(text))
                state.last = (entry.seq, entry.hash)
                state.checkpoint = entry.seq
        self.state = state
        self._pid = os.getpid()
        return stored_heads

    def find(self, log: Transaction, kind: str, *found_by: str | int) -> Entry | None:
        """Return the newest entry with a name, after its hash was checked; None if there is none.

        Args:
            log: a transaction on the log.
            kind: the kind of name, as for ``name_of``.
            found_by: what the entry is found by, as for ``name_of``.

        Raises:
            LedgerError: for a ledger of an earlier format; when the rows that lead to the entry are
                not those of the log, or it is missing or was altered.
        """
        if self.state.is_earlier:
            raise LedgerError(
                "keys and answers of a ledger of an earlier format are found once it is migrated: "
                "dptopk ledger migrate OLD NEW"
            )
        name = name_of(kind, *found_by)
        bucket = bucket_of(name)
        places = log.places(bucket, self.state.last[0])
        if chain_hash_of(places) != self.state.index.chains.get(bucket, GENESIS):
            raise LedgerError(
                "the lookup rows for keys and answers do not match the log: the ledger was damaged"
            )
        seqs = [seq for seq, other_name in places if other_name == name]
        if not seqs:
            return None
        newest = seqs[-1]
        entry = log.entry(newest)
        if entry is None or not self.has_right_hash(entry):
            raise LedgerError(
                f"entry {newest} is missing or has a wrong hash: it was changed, or the key "
                f"is another"
            )
        return entry

    def has_right_hash(self, entry: Entry) -> bool:
        """Return whether the entry's hash is correct."""
        return entry.hash == entry.chain_hash(self.store.key)

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction on the newest state, with the write lock, for a ``with`` block; it is
        committed durably.

        Inside another one it is a part of that: the entries of all parts are committed at the end,
        or none of them.
        """
        with self.store.lock:
            if self._transaction is None:
                with self._write() as log:
                    yield log
                return
            last_before = self.state.last
            try:
                yield self._transaction
            except BaseException as error:
                # A refusal before anything was appended leaves the other parts intact.
                has_appended = self.state.last != last_before
                if has_appended or not isinstance(error, REFUSALS):
                    self._has_failed = True
                raise

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        """Open the outermost transaction of ``write``, and store the head after its commit."""
        self.refresh()
        self._has_appended = False
        self._has_failed = False
        stored_heads = self._stored_head()  # before the log, which must hold the head's entry
        try:
            with self.store.transaction("write") as log:
                while self._catch_up(log):
                    pass
                self._require_entries_of(log, [*self.committed_heads(), *stored_heads])
                stored_heads = self._catch_up_head(self._check_writable(stored_heads))
                head = _head_in(stored_heads)
                self._head_at_start = 0 if head is None else self.state.last_confirmed_by(head)
                self._transaction = log
                yield log
                self._finish(log)
        except BaseException as error:
            if self._has_appended or not isinstance(error, REFUSALS):
                # Appended entries are gone, or an entry is half folded: the state is read again.
                self._pid = 0
            raise
        finally:
            self._transaction = None
        if self._has_appended:
            self._committed_head = self.head()
            self._store_head(stored_heads)

    def append(
        self, log: Transaction, kind: str, dataset: str, analyst: str, body: dict[str, Any]
    ) -> Entry:
        """Append an entry, fold it in as it was read back, and return it.

        Args:
            log: the transaction of ``write``.
            kind: what happened, such as "charge".
            dataset: the name of the data set, or "".
            analyst: the name of the analyst, or "".
            body: the details in normal form.
        """
        is_first_entry = not self._has_appended
        # An entry that decides about the head sets that number itself (``LedgerState``).
        if self.state.witness is not None and is_first_entry and not self._is_decision:
            body = {"witnessed": self._head_at_start} | body
        self._has_appended = True
        entry = log.append(self.state.last, kind, dataset, analyst, body)
        log.write_places(self.state.apply(entry))
        return entry

    def copy(self, log: Transaction, entry: Entry, body: dict[str, Any]) -> None:
        """Append an entry of another log under its number and time, with a body of today's
        format.
        """
        self._has_appended = True
        names = (entry.kind, entry.dataset, entry.analyst)
        copied_entry = log.append(self.state.last, *names, body, at=entry.at)
        log.write_places(self.state.apply(copied_entry))

    def rekey(self, key: bytes) -> None:
        """Hash the whole log again with another key; after an error nothing is changed.

        Raises:
            LedgerError: when the log is damaged under the key that it has.
        """
        old = self.store.key
        try:
            with self.write() as log:
                refuse_damaged_log(log, old)
                before = self.head()
                self.state.last = (before.seq, log.rehash(key))
                self.store.key = key
                self.state.key = key
                self.append(log, "rekey", "", "", {"before": asdict(before)})
        except BaseException:
            self.store.key = old
            self._pid = 0  # the state, which may have the new key, is read again
            raise

    def accept_restore(
        self, witness: HeadFile | HeadTable | None, reason: str, *, incomplete: bool
    ) -> Head | None:
        """Accept a log that lacks the entry of its stored head, or rows that lead to its entries;
        return the head that is given up.

        Args:
            witness: the place of the head; the log's own head is stored there from now on.
            reason: why the log is accepted; an entry records it.
            incomplete: whether the log is known to lack entries, whatever the head says.

        Raises:
            InvalidParameter: when nothing is wrong with it.
            LedgerError: when the log is not whole, or the head belongs to another ledger.
        """
        self.refresh()
        if self.state.witness is not None and witness is None:
            raise InvalidParameter("head-file: this ledger has a head; say where it is stored")
        stored_head = None if witness is None else witness.read()
        lost_head = stored_head
        if lost_head is not None and lost_head.ledger not in {None, self.state.about.get("id")}:
            raise LedgerError("the head belongs to another ledger")
        with self._decision() as log:
            refuse_damaged_log(log, self.store.key)
            log.create_tables()
            if lost_head is not None and not self._is_lost(log, lost_head):
                lost_head = None
            if lost_head is None and not incomplete and not lookup_problems(log, self.state):
                raise InvalidParameter(
                    "head-file: the ledger has the entry it names; there is nothing to accept"
                )
            self._rewrite_places(log)
            body: dict[str, object] = {"lost": None if lost_head is None else asdict(lost_head)}
            body["reason"] = reason
            if incomplete:
                body["incomplete"] = True
            self.append(log, "restore", "", "", body)
        self._witness = witness
        self._store_head([] if stored_head is None else [stored_head])
        return lost_head

    def _is_lost(self, log: Transaction, head: Head) -> bool:
        """Return whether the log lacks the entry of a head that was not given up before."""
        return not self._was_given_up(head) and log.hash_of(head.seq) != head.hash

    @contextmanager
    def _decision(self) -> Iterator[Transaction]:
        """Open a transaction of an operator who decides about the head, which may be missing."""
        self._is_decision = True
        try:
            with self.write() as log:
                yield log
        finally:
            self._is_decision = False

    def set_witness(self, act: str, witness: HeadFile | HeadTable, reason: str) -> None:
        """Store the head at a place from now on; an entry records this decision of an operator.

        Args:
            act: "attach" the first place; "move" from the present place, whose head must be the
                latest one; or "replace" a head that is lost.
            witness: the new place; it may hold a head of this log already.
            reason: why; the entry records it.

        Raises:
            InvalidParameter: when the ledger has a head already, or has none.
            LedgerError: when the log is not whole, or lacks what the new place names.
        """
        former_place = self._witness
        stored_head = witness.read()
        self._uncommitted_head = None
        try:
            self._set_witness(act, witness, reason, stored_head)
        except BaseException:
            self._witness = former_place
            with suppress(DptopkError):
                self._forget_uncommitted_head(witness)
            raise
        if act == "move" and former_place is not None:
            self._remove_former(former_place)

    def _forget_uncommitted_head(self, witness: HeadFile | HeadTable) -> None:
        """Take back the head that a move has stored at its new place, if its entry was not
        committed.
        """
        head = self._uncommitted_head
        if head is None:
            return
        self.refresh()
        with self.store.transaction() as log:
            was_committed = log.hash_of(head.seq) == head.hash
        if not was_committed:
            witness.swap(head, self.head())

    def _set_witness(
        self, act: str, witness: HeadFile | HeadTable, reason: str, stored_head: Head | None
    ) -> None:
        """Record the new place of the head, and store the head there.

        The arguments are those of ``set_witness``; ``stored_head`` is what the new place holds.
        """
        transaction = self.write() if act == "move" else self._decision()
        with transaction as log:
            self._refuse_act(act)
            refuse_damaged_log(log, self.store.key)
            heads = [] if stored_head is None else [stored_head]
            self._require_entries_of(log, heads)
            self._witness = witness
            self._store_head(heads)  # nothing is recorded if that place cannot be written to
            body: dict[str, object] = {"act": act, "place": witness.place(), "reason": reason}
            if act != "attach":
                # Whoever has the former place open is refused: only the new one, where the commit
                # stores the head, names this entry.
                seq, _ = self.state.last
                body["witnessed"] = seq + 1
            self.append(log, "witness", "", "", body)
            if act == "move":
                # The new place names the entry before it is committed: whoever is killed here
                # leaves the former place valid, and whoever is killed later the new one.
                self._uncommitted_head = self.head()
                self._store_head(self._stored_head())

    def _refuse_act(self, act: str) -> None:
        """Refuse to attach a second place of the head, and to move or replace one that is not
        there.

        Raises:
            InvalidParameter: saying what can be done instead.
        """
        has_place = self.state.witness is not None
        if has_place and act == "attach":
            advice = "has one: move it"
        elif not has_place and act != "attach":
            advice = "has none yet: attach it"
        else:
            return
        raise InvalidParameter(f"head-file: the ledger {advice} (dptopk ledger witness)")

    def _remove_former(self, former_place: HeadFile | HeadTable) -> None:
        """Remove the head at the former place, unless that is the new place by another name."""
        former_head = former_place.read()
        if former_head is not None and former_head.seq < self.state.witnessed:
            former_place.remove()

    def _rewrite_places(self, log: Transaction) -> None:
        """Write all rows that lead to entries again, from the entries of the log.

        Raises:
            LedgerError: if they differ from what the state records.
        """
        log.run("DELETE FROM places")
        index = Index()
        for entry in log.every_entry():
            log.write_places(index.add(entry))
        if index.chains != self.state.index.chains:
            raise LedgerError(
                "the log lacks keys or answers that were written to it: it was changed"
            )

    def _finish(self, log: Transaction) -> None:
        """Refuse to commit a transaction of which a part failed; append a checkpoint if one is due.

        Raises:
            LedgerError: if a part failed.
        """
        if self._has_failed:
            raise LedgerError("part of this transaction failed: nothing was written")
        seq, _ = self.state.last
        if not self._has_appended or seq - self.state.checkpoint < CHECKPOINT_EVERY:
            return
        text = canonical_json(self.state.state())
        body = {"layout": LAYOUT, "state": digest(None, text)}
        entry = self.append(log, "checkpoint", "", "", body)
        log.keep_snapshot(entry.seq, text)


def _head_in(heads: list[Head]) -> Head | None:
    """Return the head in a list of at most one head; None if the list is empty."""
    if heads:
        return heads[0]
    return None


def refuse_damaged_log(log: Transaction, key: bytes | None) -> None:
    """Refuse a damaged log, since new hashes would hide what is wrong with it.

    Raises:
        LedgerError: naming the first problem.
    """
    inspection, _ = fold(log.every_entry(), key)
    for problem in inspection.problems:
        raise LedgerError(problem)
