"""Read access to a ledger: budgets, charges, stored answers, and verification. Writes nothing.

A row that leads to an entry (``index``) is used only after it was compared with the log, and an
entry only after its hash was checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from dptopk.budgets.account_base import Summary
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger.dataset import DatasetState
from dptopk.ledger.entries import Entry
from dptopk.ledger.heads import Head
from dptopk.ledger.journal import Journal
from dptopk.ledger.keys import secret_of
from dptopk.ledger.log_store import Store, head_storage_of, refuse_own_head
from dptopk.ledger.names import analyst_name
from dptopk.ledger.recorded import RecordedHead
from dptopk.ledger.replay import LedgerState
from dptopk.ledger.spends import Spend
from dptopk.ledger.transaction import Transaction
from dptopk.ledger.verify import Inspection, inspect


class StoredAnswer(NamedTuple):
    """The entries of an answer that the ledger holds.

    Attributes:
        charge: the entry of its charge.
        release: the entry of its release, which has the answer.
    """

    charge: Entry
    release: Entry


class Reader:
    """An open ledger, with all that can be asked of it without writing.

    Args:
        store: the store of the log.
        journal: the store together with the state after its entries.
    """

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store = store
        self._journal = journal

    def __reduce__(self) -> NoReturn:
        raise InvalidParameter(
            "a Ledger cannot be copied or pickled: open it again by its path where it is used"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _now(self) -> LedgerState:
        """Return the state of the ledger after the last entry that this process has read."""
        return self._journal.state

    @contextmanager
    def _read_transaction(self, *datasets: str) -> Iterator[Transaction]:
        """Open a transaction on the newest state, which nobody in this process changes during the
        ``with`` block.

        Raises:
            InvalidParameter: when one of these data sets is not in the ledger.
        """
        with self._store.lock:
            self._journal.refresh()
            for name in datasets:
                self._now.dataset(name)
            with self._store.transaction() as log:
                yield log

    @property
    def test(self) -> bool:
        """Return whether this ledger was created for tests."""
        return bool(self._now.about.get("test"))

    def identities(self) -> tuple[str, ...]:
        """Return the identity of this ledger and, if it was migrated, those of the ones before it,
        newest first.
        """
        self._journal.refresh()
        about = self._now.about
        identities = [about.get("id")]
        migrated = about.get("migrated")
        while migrated is not None:
            identities.append(migrated["head"]["ledger"])
            migrated = migrated.get("before")
        return tuple(identity for identity in identities if identity is not None)

    def refusal(self) -> str:
        """Return why this ledger would refuse every charge; "" if it would not."""
        self._journal.refresh()
        return self._journal.refusal()

    def datasets(self) -> tuple[str, ...]:
        """Return the names of the data sets."""
        self._journal.refresh()
        return tuple(self._now.datasets)

    def state(self, dataset: str) -> DatasetState:
        """Return the present state of a data set: a copy, whose accounts spend nothing.

        Raises:
            InvalidParameter: for a data set that is not in the ledger.
        """
        with self._store.lock:
            self._journal.refresh()
            return self._now.dataset(dataset).copy()

    def spent(self, name: str, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """Return the sum of the charges of a data set, less refunds.

        Args:
            name: the name of the data set.
            analyst: whose charges are added; None: everybody's.
            lifetime: whether charges before the last renewal count too.

        Raises:
            InvalidParameter: for a data set that is not in the ledger.
        """
        with self._store.lock:
            self._journal.refresh()
            return self._now.dataset(name).spent(analyst=analyst, lifetime=lifetime)

    def remaining(self, name: str) -> Charge | str:
        """Return the remaining budget of a data set: the registered costs that are not spent, or of
        a filter a text.

        Raises:
            InvalidParameter: for a data set that is not in the ledger.
        """
        return self.state(name).account.remaining()

    def summary(self, name: str, *, analyst: str | None = None) -> Summary:
        """Return a data set's budget in numbers or, for an analyst, that of their share or limit.

        Args:
            name: the name of the data set.
            analyst: the analyst, in any spelling; None: the whole data set.

        Raises:
            InvalidParameter: for a data set that is not in the ledger, a name that no analyst may
                have, or an analyst with neither.
            BudgetExceeded: for an analyst without a share of a budget that has no reserve.
        """
        state = self.state(name)
        if analyst is None:
            return state.account.summary()
        share = state.account.account(analyst_name(analyst))
        if share is not state.account:  # an account without shares is that of every analyst
            return share.summary()
        limits = state.limits_of(analyst_name(analyst))
        if not limits:
            raise InvalidParameter(f"analyst: {analyst!r} has no limit in {name!r}")
        (limit,) = limits.values()  # an analyst has one limit at most
        return limit.summary()

    def stored_answer(self, dataset: str, query: str) -> dict[str, Any] | None:
        """Return the stored release of an identical query on the same data version; None if there
        is none. Nobody is charged.

        Args:
            dataset: the name of the data set.
            query: the fingerprint of the question, as for ``Ledger.charge``.

        Raises:
            InvalidParameter: for a data set that is not in the ledger.
            LedgerError: if the entry of the charge or of the answer was changed.
        """
        with self._read_transaction() as log:
            stored = self._stored_entries(log, self._now.dataset(dataset), query)
        if stored is None:
            return None
        return dict(stored.release.body["answer"])

    def _stored_entries(
        self, log: Transaction, state: DatasetState, query: str
    ) -> StoredAnswer | None:
        """Return the entries of a stored answer, with checked hashes.

        It is None if there is no answer, or the data have had a new version since the charge.

        Args:
            log: a transaction on the log.
            state: the state of the data set.
            query: the fingerprint of the question; "": no answer is stored for it.

        Raises:
            LedgerError: if one of the entries was changed.
        """
        if not query:
            return None
        release = self._journal.find(log, "answer", state.name, query)
        if release is None or release.body["charge"] < state.version_entry:
            return None
        charged = log.entry(release.body["charge"])
        if (
            charged is None
            or charged.kind != "charge"
            or not self._journal.has_right_hash(charged)
            or charged.body["query"] != query
        ):
            raise LedgerError(
                f"entry {release.body['charge']} is not the charge of a stored answer: it was "
                f"changed"
            )
        return StoredAnswer(charged, release)

    def asked(self, dataset: str, analyst: str, once: str) -> Spend | None:
        """Return the charge that an analyst made under a key, and whether it was answered; None if
        there is none.

        Args:
            dataset: the name of the data set.
            analyst: the analyst, in any spelling.
            once: the key, as for ``Ledger.charge``.

        Raises:
            InvalidParameter: for a data set that is not in the ledger, or a name that no analyst
                may have.
            LedgerError: if the hash of one of the entries is wrong.
        """
        analyst = analyst_name(analyst)
        with self._read_transaction(dataset) as log:
            charged = self._charge_of_key(log, dataset, analyst, once)
            if charged is None:
                return None
            return self._spend(log, charged)

    def answer(self, spend: Spend) -> dict[str, Any] | None:
        """Return the answer that was stored with a charge, None if none was; nobody is charged.

        Raises:
            LedgerError: if the stored answer is not that of the charge, or its hash is wrong.
        """
        if spend.answer is None:
            return None
        with self._read_transaction() as log:
            release = self._journal.find(log, "release", spend.seq)
        if release is None or release.seq != spend.answer:
            raise LedgerError(f"entry {spend.answer} is not the answer to the charge {spend.seq}")
        return dict(release.body["answer"])

    def _charge_of_key(
        self, log: Transaction, dataset: str, analyst: str, once: str
    ) -> Entry | None:
        """Return the entry of the charge under a key, with a checked hash; None if there is
        none.

        Args:
            log: a transaction on the log.
            dataset: the name of the data set.
            analyst: the name of the analyst, as the ledger writes it.
            once: the key; "": none.
        """
        if once:
            return self._journal.find(log, "once", dataset, analyst, once)
        return None

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Yield all entries after a number, in order; no lock is held between them."""
        return self._store.entries(after)

    def history(self, dataset: str, *, after: int = 0) -> list[Spend]:
        """Return the charges of a data set, in order, and whether each was answered.

        Args:
            dataset: the name of the data set.
            after: only charges whose entries have larger numbers are returned; 0: all.

        Raises:
            InvalidParameter: for a data set that is not in the ledger.
        """
        self._journal.refresh()
        renewed = self._now.dataset(dataset).renewal_entry
        spends = dict[int, Spend]()
        for entry in self._entries_in_todays_format(after):
            if entry.dataset != dataset:
                continue
            if entry.kind == "charge":
                spends[entry.seq] = Spend.of_charge(entry, renewed=renewed)
            elif entry.kind == "release" and entry.body["charge"] in spends:
                seq = entry.body["charge"]
                spends[seq] = spends[seq].with_release(entry)
        return list(spends.values())

    def _entries_in_todays_format(self, after: int) -> Iterator[Entry]:
        """Yield all entries after a number, in order, in today's format."""
        if not self._now.is_earlier:
            yield from self._store.entries(after)
            return
        state = LedgerState(self._store.key)
        for entry in self._store.entries():
            state.apply(entry)
            if entry.seq > after and state.folded is not None:  # never None after an entry
                yield state.folded

    def recent(
        self, dataset: str, *, analyst: str | None = None, at_most: int = 20, outcomes: bool = True
    ) -> list[Spend]:
        """Return the newest charges of a data set, newest first.

        Args:
            dataset: the name of the data set.
            analyst: the analyst who was charged; None: anybody.
            at_most: how many charges are returned at most, >= 0.
            outcomes: whether it is looked up which charges were answered; False saves that time,
                and every charge is then returned as if it had not been answered.

        Raises:
            InvalidParameter: for a data set that is not in the ledger, a name that no analyst may
                have, or a number below 0.
            LedgerError: if the hash of an entry is wrong, or outcomes are asked of a ledger of an
                earlier format.
        """
        if at_most < 0:
            raise InvalidParameter(f"at_most must be at least 0, got {at_most}")
        with self._read_transaction(dataset) as log:
            name = None if analyst is None else analyst_name(analyst)
            entries = log.charges(dataset, name, at_most)
            return [self._spend(log, entry, outcome=outcomes) for entry in entries]

    def spend(self, dataset: str, seq: int) -> Spend | None:
        """Return the charge of a data set with an entry's number, and whether it was answered; None
        if there is none.

        Args:
            dataset: the name of the data set.
            seq: the number of the charge's entry; that of another entry, or of another data set's,
                is none.

        Raises:
            LedgerError: if the hash of one of the entries is wrong.
        """
        with self._read_transaction() as log:
            entry = log.entry(seq)
            if entry is None or (entry.kind, entry.dataset) != ("charge", dataset):
                return None
            return self._spend(log, entry)

    def _spend(self, log: Transaction, charged: Entry, *, outcome: bool = True) -> Spend:
        """Return the charge of an entry and, if ``outcome``, whether it was answered.

        Args:
            log: a transaction on the log.
            charged: the entry of the charge.
            outcome: whether its answer is looked up; else it counts as not answered.

        Raises:
            LedgerError: if the hash of one of the entries is wrong.
        """
        self._journal.refuse_wrong_hash(charged)
        spend = Spend.of_charge(charged, renewed=self._now.dataset(charged.dataset).renewal_entry)
        if not outcome:
            return spend
        release = self._journal.find(log, "release", charged.seq)
        if release is None:
            return spend
        return spend.with_release(release)

    def head(self) -> RecordedHead:
        """Return the end of the log, for storing elsewhere, as ``inspect`` takes it: the number of
        the last entry (``seq``), its hash, and the identity of the ledger.

        A log whose tail was cut off later lacks that entry, which shows it.

        Raises:
            LedgerError: when the log lacks an entry that it had, or cannot be read.
        """
        self._journal.refresh()
        head = self._journal.head()
        return {"seq": head.seq, "hash": head.hash, "ledger": head.ledger}

    def inspect(self, *, head: Mapping[str, Any] | None = None) -> Inspection:
        """Check the database, fold the whole log from its first entry and check every recorded
        decision.

        The log must hold the entry of ``head``, the last one that this process has seen committed,
        and the one that the ledger's stored head names, if the ledger was opened with it.

        Args:
            head: a head that was exported; None: none.

        Raises:
            InvalidParameter: for a head that is none.
            LedgerError: when the stored head cannot be read.
        """
        heads = [] if head is None else [Head.of(head)]
        committed_head = self._journal.committed_head
        if committed_head is not None:
            heads.append(committed_head)
        return inspect(
            self._store,
            heads,
            stored_head=self._journal.stored_head(),
            read_stored_head=self._journal.stored_head,
            head_exported=head is not None or self._journal.was_compared_with_export,
        )

    def check(self, *, head: Mapping[str, Any] | None = None) -> list[str]:
        """Return everything that is wrong with the log: a broken chain, gaps, an impossible
        history, a missing tail.

        Args:
            head: a head that was exported; None: none.

        Raises:
            InvalidParameter, LedgerError: as ``inspect``.
        """
        return list(self.inspect(head=head).problems)

    def verify(self, *, head: Mapping[str, Any] | None = None) -> bool:
        """Return whether ``check`` finds no problem."""
        return not self.check(head=head)

    @staticmethod
    def inspect_file(
        url: str | Path,
        *,
        key: str | bytes | None = None,
        head: Mapping[str, Any] | None = None,
        head_file: str | Path | None = None,
    ) -> Inspection:
        """Inspect a ledger that may be too damaged to be opened.

        Args:
            url: the path or URL of the ledger.
            key: the secret of the hash chain; None: it has none.
            head: a head that was exported; None: none.
            head_file: where the ledger stores its own head; None: not given.

        Raises:
            InvalidParameter: for a head that is none, or one that is stored in the ledger itself.
            LedgerError: when there is no database to read.
        """
        heads = [] if head is None else [Head.of(head)]
        refuse_own_head(url, head_file)
        stored_head = None if head_file is None else head_storage_of(url, head_file).read()
        store = Store(url, key=secret_of(key), read_only=True, create=False)
        try:
            return inspect(store, heads, stored_head=stored_head, head_exported=head is not None)
        finally:
            store.close()

    def backup(self, path: str | Path) -> None:
        """Copy a SQLite ledger, as of one moment and while it is in use, into a file that does not
        exist yet.

        Raises:
            LedgerError: if the file exists, cannot be written, or the ledger is one of PostgreSQL.
        """
        self._store.backup(Path(path))

    def close(self) -> None:
        """Close the connections to the database."""
        self._store.close()
