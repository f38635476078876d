"""The log together with its state: reading new entries, appending, checkpoints and the stored head.

To *fold* an entry is to add it to the state (``replay.LedgerState``). A *head* is the number and
the hash of the last entry of a log at some time (``heads``): whoever has it can tell a log from an
older copy of itself, which lacks that entry. The *stored head* is one that a ledger replaces after
each commit, at a place outside its database, best on another disk. An *exported* head is one that
somebody saved (``dptopk ledger export --head``). A *checkpoint* is an entry with the hash of the
state at its place; the state itself is stored beside the log as a *snapshot*, from which a ledger
is opened quickly.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, Literal

from dptopk._internal.json_text import canonical_json
from dptopk.errors import (
    BudgetExceeded,
    DptopkError,
    IncompatibleCosts,
    InvalidParameter,
    LedgerError,
)
from dptopk.ledger.entries import GENESIS, Entry, LastEntry, digest
from dptopk.ledger.heads import Head, HeadStorage
from dptopk.ledger.index import Index, bucket_of, chain_hash_of, name_of
from dptopk.ledger.log_store import Store
from dptopk.ledger.replay import LAYOUT, LedgerState
from dptopk.ledger.transaction import PAGE, Snapshot, Transaction
from dptopk.ledger.verify import fold, head_problem, lookup_problems

CHECKPOINT_EVERY = 250  # the most entries that are folded when a ledger is opened
HeadAct = Literal["attach", "move", "replace"]  # what an operator decides about the stored head
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
        head_storage: the place where the head is stored after each commit; None: nowhere.

    Attributes:
        store: the store of the log.
        state: the state after the last entry that was read.
        committed_head: the last entry that this process has seen committed; None: it has seen none.
        was_compared_with_export: whether the log was found to hold the entry of an exported head.
    """

    def __init__(self, store: Store, head_storage: HeadStorage | None = None) -> None:
        self.store = store
        self.state = LedgerState(store.key)
        self.committed_head: Head | None = None
        self.was_compared_with_export = False
        self._head_storage = head_storage
        # The head that a move stores at its new place before its entry is committed.
        self._uncommitted_head: Head | None = None
        self._pid = 0  # the process that has read the state; 0: it must be read again
        self._has_appended = False  # whether the transaction has appended an entry
        self._has_failed = False  # whether a part of the transaction failed after it had appended
        # Whether an operator decides about the head, which may be missing.
        self._is_decision = False
        # The last entry that the stored head confirmed when the transaction began; 0: none.
        self._confirmed_at_start = 0
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
        if self._head_storage is not None:
            self._head_storage.read()  # raises InvalidParameter for a place that holds no head
        self.refresh()
        if self._is_empty():
            if first is None or heads:
                raise LedgerError("the ledger is empty: it was never initialised")
            with self.write() as log:
                if self._is_empty():  # else another process was first
                    self.append(log, "ledger", dict(first))
        with self.store.transaction() as log:
            self._require_entries_of(log, heads, may_be_given_up=False)
        self.was_compared_with_export = bool(heads)
        if self._head_storage is None:
            return
        stored_head = self._check_stored_head(self.stored_head())
        if self.store.read_only:
            return
        if self.state.head_place is None:
            self._record_head_storage(self._head_storage)
        else:
            self._catch_up_head(stored_head)

    def _is_empty(self) -> bool:
        """Return whether no entry was read so far."""
        return self.state.last.seq == 0

    def _record_head_storage(self, head_storage: HeadStorage) -> None:
        """Record that the head is stored at a place, unless the log records one.

        Raises:
            LedgerError: when something was charged before, and the place holds no head: whether
                this is an old copy of the ledger, an operator must say.
        """
        with self.write() as log:
            if self.state.head_place is not None:
                return
            was_charged = any(state.totals_ever for state in self.state.datasets.values())
            if was_charged and self.stored_head() is None:
                raise LedgerError(
                    "the ledger holds charges and was used without a head so far: dptopk ledger "
                    "witness attach, if it is not an old copy"
                )
            body = {"act": "attach", "place": head_storage.place(), "reason": ""}
            self.append(log, "witness", body)

    def _check_stored_head(self, stored_head: Head | None) -> Head | None:
        """Return the stored head, if it is as far as the log records.

        Args:
            stored_head: the head as it was read, None if there was none; it is read again if it
                does not fit.

        Returns:
            The head that was read last; None only for a ledger that stores no head.

        Raises:
            LedgerError: when it is missing, or an old copy.
        """
        if self.state.head_place is None:
            return stored_head
        if head_problem(self.state, stored_head):
            stored_head = self.stored_head()  # others may have written it since
        problem = head_problem(self.state, stored_head)
        if problem:
            raise LedgerError(problem)
        return stored_head

    def refusal(self) -> str:
        """Return why nothing may be written, as a sentence for users; "" if it may.

        The ledger may have an earlier format, have been migrated, or lack its present head.
        """
        if self.state.is_earlier:
            return "the ledger has an earlier format: dptopk ledger migrate OLD NEW"
        try:
            self._check_writable(self.stored_head())
        except LedgerError as error:
            return str(error)
        return ""

    def _check_writable(self, stored_head: Head | None) -> Head | None:
        """Return the stored head of a ledger that may be written to.

        Args:
            stored_head: the head as it was read, None if there was none; it is read again if it
                does not fit.

        Raises:
            LedgerError: when it was migrated, or its stored head does not confirm it.
        """
        if self.state.retired is not None:
            raise LedgerError(
                "the ledger was migrated: it can be read, and the new one goes on (its first "
                f"entry names this one; its id is {self.state.retired['ledger']})"
            )
        if self._is_decision:  # an operator decides about the head, which may be missing
            return stored_head
        return self._check_stored_head(stored_head)

    def head(self) -> Head:
        """Return the head of the log as far as it was read: number and hash of the last entry."""
        last = self.state.last
        return Head(last.seq, last.hash, ledger=self.state.about.get("id"))

    def refresh(self) -> None:
        """Read and fold the entries that others have appended, a page at a time.

        Raises:
            LedgerError: when the log lacks an entry that it had.
        """
        with self.store.lock:
            if self._transaction is not None:
                return  # nobody else appends meanwhile
            try:
                has_state = self._pid == os.getpid()  # else this is a child, or an error forgot it
                stored_head = None if has_state else self._load()
                self._catch_up_in_pages([self.committed_head, stored_head])
            except BaseException:
                # An interrupt may have left an entry half folded: the state is read again.
                self._pid = 0
                raise
            self.committed_head = None if self._is_empty() else self.head()

    def _catch_up_in_pages(self, heads: list[Head | None]) -> None:
        """Read and fold what others have appended, each page in a transaction of its own, so that
        nobody waits for long.

        Args:
            heads: heads whose entries the log must hold; None is none.

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
        self, log: Transaction, heads: Iterable[Head | None], *, may_be_given_up: bool = True
    ) -> None:
        """Refuse a log that lacks the entry of one of these heads.

        Args:
            log: a transaction on the log.
            heads: the heads; None is none.
            may_be_given_up: whether the log may lack the entry of a head that an operator gave up.

        Raises:
            LedgerError: naming the entry.
        """
        for head in heads:
            if head is None or head == self.head():  # the last entry needs no look-up
                continue
            may_lack = may_be_given_up and self._was_given_up(head)
            if not may_lack:
                self._require_entry_of(log, head)

    def _require_entry_of(self, log: Transaction, head: Head) -> None:
        """Refuse a log that lacks the entry of a head.

        Args:
            log: a transaction on the log.
            head: the head.

        Raises:
            LedgerError: naming the entry.
        """
        problem = head.problem(self.state.about.get("id"), log.hash_of(head.seq))
        if problem:
            raise LedgerError(
                f"{problem}; was an old copy put in its place? (see dptopk ledger accept-restore)"
            )

    def _was_given_up(self, head: Head) -> bool:
        """Return whether an operator gave up a head, by accepting a restored copy or a new key."""
        return (head.seq, head.hash) in self.state.replaced

    def stored_head(self) -> Head | None:
        """Read the head at the place where this ledger stores it; None if there is none.

        Raises:
            LedgerError: if the place holds something else.
        """
        if self._head_storage is None:
            return None
        try:
            return self._head_storage.read()
        except InvalidParameter as error:
            # The ledger is in use: this is no mistake of the arguments.
            raise LedgerError(str(error)) from None

    def _store_head(self, confirmed: Head | None) -> None:
        """Store the head of the log at its place, unless a later one is stored there.

        Args:
            confirmed: the head that was read there last, whose entry is known to be in the log;
                None: there was none.

        Raises:
            LedgerError: if the head cannot be written, or the log lacks the entry of one that
                another process has stored meanwhile.
        """
        if self._head_storage is None:
            return
        stored_head = confirmed
        while not self._is_latest(stored_head):
            try:
                if self._head_storage.swap(stored_head, self.head()):
                    return
            except InvalidParameter as error:  # entries are written: no argument was refused
                raise LedgerError(str(error)) from None
            stored_head = self.stored_head()  # another process has stored one meanwhile
            with self.store.transaction() as log:
                self._require_entries_of(log, [stored_head])

    def _catch_up_head(self, stored_head: Head | None) -> Head | None:
        """Store the head of a log whose stored head lags behind it; return the head that is stored
        then.

        A process that was killed between its commit and its head left it behind. What was charged
        by it may be answered now (``Ledger.charge``, ``once``), and must not be lost with an older
        copy of the log that this head would confirm. Nothing is stored for a ledger that records no
        place of a head, or while an operator decides about it.

        Args:
            stored_head: the stored head, whose entry is known to be in the log; None: there is
                none.
        """
        stores_no_head = self._is_decision or self.state.head_place is None
        if stores_no_head or self._is_latest(stored_head):
            return stored_head
        self._store_head(stored_head)
        return self.stored_head()

    def _is_latest(self, stored_head: Head | None) -> bool:
        """Return whether there is a stored head that is as late as the log and was not given up."""
        if stored_head is None or self._was_given_up(stored_head):
            return False
        return stored_head.seq >= self.state.last.seq

    def _catch_up(self, log: Transaction) -> bool:
        """Read and fold the next page of entries of the log, at most PAGE.

        Returns:
            Whether there may be more.

        Raises:
            LedgerError: if the log lacks the entry that was read last, or an entry could not follow
                those before.
        """
        if not self._is_empty():
            self._require_entry_of(log, self.head())
        page = log.entries(self.state.last.seq, PAGE)
        for entry in page:
            self.state.apply(entry)
        return len(page) == PAGE

    def _load(self) -> Head | None:
        """Start from the newest snapshot if its hash is in the log, else from an empty state.

        Entries after the snapshot are not read here.

        Returns:
            The stored head, None if there is none. It is read first: the log that is read
            afterwards must hold its entry.

        Raises:
            LedgerError: if the place of the head holds something else, or the entry of the newest
                snapshot was altered.
        """
        stored_head = self.stored_head()
        with self.store.transaction() as log:
            snapshot = log.snapshot() if log.has_tables() else None
            checkpoint = None if snapshot is None else log.entry(snapshot.seq)
        self.state = self._state_of_snapshot(snapshot, checkpoint)
        self._pid = os.getpid()
        return stored_head

    def _state_of_snapshot(
        self, snapshot: Snapshot | None, checkpoint: Entry | None
    ) -> LedgerState:
        """Return the state in a snapshot; an empty state if it cannot be used.

        A snapshot can be used if this version reads its layout, and the log holds its hash.

        Args:
            snapshot: the newest snapshot; None: there is none.
            checkpoint: the entry of the log with its number; None: there is none.

        Raises:
            LedgerError: if that entry was altered.
        """
        state = LedgerState(self.store.key)
        if snapshot is None or checkpoint is None or checkpoint.kind != "checkpoint":
            return state
        self.refuse_wrong_hash(checkpoint)
        same_layout = checkpoint.body.get("layout") == LAYOUT
        if same_layout and checkpoint.body.get("state") == digest(None, snapshot.text):
            state.restore(json.loads(snapshot.text))
            state.last = LastEntry(checkpoint.seq, checkpoint.hash)
            state.checkpoint = checkpoint.seq
        return state

    def find(self, log: Transaction, kind: str, *found_by: str | int) -> Entry | None:
        """Return the newest entry to which a name leads, after its hash was checked; None if there
        is none.

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
        rows = log.lookup_rows(bucket, self.state.last.seq)
        if chain_hash_of(rows) != self.state.index.chains.get(bucket, GENESIS):
            raise LedgerError(
                "the lookup rows for keys and answers do not match the log: the ledger was damaged"
            )
        seqs = [row.seq for row in rows if row.name == name]
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
        """Return whether an entry has the hash that its content has in the chain."""
        return entry.hash == entry.chain_hash(self.store.key)

    def refuse_wrong_hash(self, entry: Entry) -> None:
        """Refuse an entry whose hash is not that of its content.

        Raises:
            LedgerError: naming the entry.
        """
        if not self.has_right_hash(entry):
            raise LedgerError(
                f"entry {entry.seq} has a wrong hash: it was changed, or the key is another"
            )

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Open a transaction on the newest state, with the write lock, for a ``with`` block; it is
        committed durably.

        Inside another one it is a part of that: the entries of all parts are committed at the end,
        or none of them.
        """
        with self.store.lock:
            if self._transaction is None:
                with self._outermost_write() as log:
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
    def _outermost_write(self) -> Iterator[Transaction]:
        """Open the outermost transaction of ``write``, and store the head after its commit.

        Raises:
            LedgerError: when the log or its stored head is not the present one; when a part of the
                transaction failed after it had appended, so that nothing is committed.
        """
        self.refresh()
        self._has_appended = False
        self._has_failed = False
        stored_head = self.stored_head()  # before the log, which must hold the head's entry
        try:
            with self.store.transaction("write") as log:
                while self._catch_up(log):
                    pass
                self._require_entries_of(log, [self.committed_head, stored_head])
                stored_head = self._catch_up_head(self._check_writable(stored_head))
                self._confirmed_at_start = self.state.last_confirmed_by(stored_head)
                self._transaction = log
                yield log
                self._refuse_failed_part()
                self._append_due_checkpoint(log)
        except BaseException as error:
            if self._has_appended or not isinstance(error, REFUSALS):
                # Appended entries are gone, or an entry is half folded: the state is read again.
                self._pid = 0
            raise
        finally:
            self._transaction = None
        if self._has_appended:
            self.committed_head = self.head()
            self._store_head(stored_head)

    def append(
        self,
        log: Transaction,
        kind: str,
        body: dict[str, Any],
        *,
        dataset: str = "",
        analyst: str = "",
    ) -> Entry:
        """Append an entry, fold it in as it was read back, and return it.

        Args:
            log: the transaction of ``write``.
            kind: what happened, such as "charge".
            body: the details in normal form.
            dataset: the name of the data set; "": the entry is about the ledger.
            analyst: the name of the analyst; "": the entry is about nobody.
        """
        is_first_entry = not self._has_appended
        # An entry that decides about the head sets that number itself (``LedgerState``).
        if self.state.head_place is not None and is_first_entry and not self._is_decision:
            body = {"witnessed": self._confirmed_at_start} | body
        self._has_appended = True
        entry = log.append(self.state.last, kind, body, dataset=dataset, analyst=analyst)
        log.write_lookup_rows(self.state.apply(entry))
        return entry

    def copy(self, log: Transaction, entry: Entry, body: dict[str, Any]) -> None:
        """Append an entry of another log under its time; its number is the same, if all entries
        before it were copied.

        Args:
            log: the transaction of ``write``.
            entry: the entry of the other log.
            body: its body in today's format.
        """
        self._has_appended = True
        copied_entry = log.append(
            self.state.last,
            entry.kind,
            body,
            dataset=entry.dataset,
            analyst=entry.analyst,
            at=entry.at,
        )
        log.write_lookup_rows(self.state.apply(copied_entry))

    def rekey(self, key: bytes) -> None:
        """Hash the whole log again with another key; after an error nothing is changed.

        Raises:
            LedgerError: when the log is damaged under the key that it has.
        """
        old_key = self.store.key
        try:
            with self.write() as log:
                refuse_damaged_log(log, old_key)
                old_head = self.head()
                self.state.last = LastEntry(old_head.seq, log.rehash(key))
                self.store.key = key
                self.state.key = key
                self.append(log, "rekey", {"before": asdict(old_head)})
        except BaseException:
            self.store.key = old_key
            self._pid = 0  # the state, which may have the new key, is read again
            raise

    def accept_restore(
        self, head_storage: HeadStorage | None, reason: str, *, incomplete: bool
    ) -> Head | None:
        """Accept a log that lacks the entry of its stored head, or rows that lead to its entries.

        Args:
            head_storage: the place of the head; the log's own head is stored there from now on.
                None: this ledger stores no head.
            reason: why the log is accepted; an entry records it.
            incomplete: whether the log is known to lack entries, whatever the head says.

        Returns:
            The head that is given up; None if the log lacks no entry of a head.

        Raises:
            InvalidParameter: when nothing is wrong with it.
            LedgerError: when the log is not whole, or the head belongs to another ledger.
        """
        self.refresh()
        if self.state.head_place is not None and head_storage is None:
            raise InvalidParameter("head-file: this ledger has a head; say where it is stored")
        stored_head = None if head_storage is None else head_storage.read()
        if stored_head is not None and stored_head.ledger not in {None, self.state.about.get("id")}:
            raise LedgerError("the head belongs to another ledger")
        with self._decision() as log:
            refuse_damaged_log(log, self.store.key)
            log.create_tables()
            lost_head = None
            if stored_head is not None and self._is_lost(log, stored_head):
                lost_head = stored_head
            if lost_head is None and not incomplete and not lookup_problems(log, self.state):
                raise InvalidParameter(
                    "head-file: the ledger has the entry it names; there is nothing to accept"
                )
            self._rewrite_lookup_rows(log)
            body: dict[str, object] = {"lost": None if lost_head is None else asdict(lost_head)}
            body["reason"] = reason
            if incomplete:
                body["incomplete"] = True
            self.append(log, "restore", body)
        self._head_storage = head_storage
        self._store_head(stored_head)
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

    def change_head_storage(self, act: HeadAct, head_storage: HeadStorage, reason: str) -> None:
        """Store the head at a place from now on; an entry records this decision of an operator.

        Args:
            act: "attach" the first place; "move" from the present place, whose head must be the
                latest one; or "replace" a head that is lost.
            head_storage: the new place; it may hold a head of this log already.
            reason: why; the entry records it.

        Raises:
            InvalidParameter: when the ledger has a head already, or has none.
            LedgerError: when the log is not whole, or lacks what the new place names.
        """
        former_place = self._head_storage
        stored_head = head_storage.read()
        self._uncommitted_head = None
        try:
            self._record_and_store_head(act, head_storage, reason, stored_head)
        except BaseException:
            self._head_storage = former_place
            with suppress(DptopkError):
                self._forget_uncommitted_head(head_storage)
            raise
        if act == "move" and former_place is not None:
            self._remove_former(former_place)

    def _forget_uncommitted_head(self, head_storage: HeadStorage) -> None:
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
            head_storage.swap(head, self.head())

    def _record_and_store_head(
        self, act: HeadAct, head_storage: HeadStorage, reason: str, stored_head: Head | None
    ) -> None:
        """Record the new place of the head in an entry, and store the head there.

        Args:
            act: as for ``change_head_storage``.
            head_storage: the new place.
            reason: why; the entry records it.
            stored_head: the head that the new place holds already; None: it holds none.

        Raises:
            InvalidParameter, LedgerError: as ``change_head_storage``.
        """
        transaction = self.write() if act == "move" else self._decision()
        with transaction as log:
            self._refuse_act(act)
            refuse_damaged_log(log, self.store.key)
            self._require_entries_of(log, [stored_head])
            self._head_storage = head_storage
            self._store_head(stored_head)  # nothing is recorded if that place cannot be written to
            place = head_storage.place()
            body: dict[str, object] = {"act": act, "place": place, "reason": reason}
            if act != "attach":
                # Whoever has the former place open is refused: only the new one, where the commit
                # stores the head, names this entry.
                body["witnessed"] = self.state.last.seq + 1
            self.append(log, "witness", body)
            if act == "move":
                # The new place names the entry before it is committed: whoever is killed here
                # leaves the former place valid, and whoever is killed later the new one.
                self._uncommitted_head = self.head()
                self._store_head(self.stored_head())

    def _refuse_act(self, act: HeadAct) -> None:
        """Refuse to attach a second place of the head, and to move or replace one that is not
        there.

        Raises:
            InvalidParameter: saying what can be done instead.
        """
        has_place = self.state.head_place is not None
        if has_place and act == "attach":
            advice = "has one: move it"
        elif not has_place and act != "attach":
            advice = "has none yet: attach it"
        else:
            return
        raise InvalidParameter(f"head-file: the ledger {advice} (dptopk ledger witness)")

    def _remove_former(self, former_place: HeadStorage) -> None:
        """Remove the head at the former place, unless that is the new place by another name."""
        former_head = former_place.read()
        if former_head is not None and former_head.seq < self.state.last_confirmed:
            former_place.remove()

    def _rewrite_lookup_rows(self, log: Transaction) -> None:
        """Write all rows that lead from names to entries again, from the entries of the log.

        Raises:
            LedgerError: if they differ from what the state records.
        """
        log.delete_lookup_rows()
        index = Index()
        for entry in log.every_entry():
            log.write_lookup_rows(index.add(entry))
        if index.chains != self.state.index.chains:
            raise LedgerError(
                "the log lacks keys or answers that were written to it: it was changed"
            )

    def _refuse_failed_part(self) -> None:
        """Refuse to commit a transaction of which a part failed after it had appended.

        Raises:
            LedgerError: if so.
        """
        if self._has_failed:
            raise LedgerError("part of this transaction failed: nothing was written")

    def _append_due_checkpoint(self, log: Transaction) -> None:
        """Append a checkpoint and replace the snapshot, if the last one is CHECKPOINT_EVERY entries
        ago.
        """
        entries_since = self.state.last.seq - self.state.checkpoint
        if not self._has_appended or entries_since < CHECKPOINT_EVERY:
            return
        text = canonical_json(self.state.state())
        entry = self.append(log, "checkpoint", {"layout": LAYOUT, "state": digest(None, text)})
        log.replace_snapshot(entry.seq, text)


def refuse_damaged_log(log: Transaction, key: bytes | None) -> None:
    """Refuse a damaged log, since new hashes would hide what is wrong with it.

    Args:
        log: a transaction on the log.
        key: the secret of the hash chain; None: it has none.

    Raises:
        LedgerError: naming the first problem.
    """
    inspection, _ = fold(log.every_entry(), key)
    for problem in inspection.problems:
        raise LedgerError(problem)
