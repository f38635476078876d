"""The ledger: no answer without a durable charge.

Everything that happens to a budget is an entry of one append-only, hash-chained log (``ledger_store``). What is spent
and what remains is never stored: it is the fold of the log through the same Accountant that works without a ledger.

Order of a spend: inside one transaction that holds the write lock, read what others appended, check the budgets, append
the charge, commit durably; only then may noise be drawn. After the answer a ``release`` entry marks it as given and
returns unused costs (never δ). A process killed at any instant therefore leaves charged >= released.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dptopk import _validate as validate
from dptopk.accounting.budget import Budget
from dptopk.accounting.ledger.state import FORMAT, DatasetState, LedgerState, account_of, fits, terms_of
from dptopk.accounting.ledger.store import Entry, Store, Transaction
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram import Sensitivity

__all__ = ["Ledger", "Receipt"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof that a charge was written: without one no noise is drawn."""

    seq: int
    dataset: str
    analyst: str
    charge: Charge


class Ledger:
    """Budgets of datasets, and every charge against them, in a durable database.

    Args:
        url: path of a SQLite file (created when it does not exist), or any SQLAlchemy URL.
        key: secret text or bytes; then the chain is an HMAC that only holders of the key can extend or forge.
        test: marks a *new* ledger as one for tests; only such a ledger takes releases made with a fixed seed.
        read_only: open for ``show``, ``verify`` and ``export`` alone.

    Raises:
        LedgerError: when the database cannot be opened, is not a ledger, or was written with another key.
    """

    def __init__(
        self, url: str | Path, *, key: str | bytes | None = None, test: bool = False, read_only: bool = False
    ) -> None:
        secret = key.encode() if isinstance(key, str) else key
        if secret is not None and not secret:
            raise InvalidParameter("key must not be empty")
        self._store = Store(url, key=secret, read_only=read_only)
        self._state = LedgerState(secret)
        try:
            self._initialise(test)
        except BaseException:
            self.close()
            raise

    def _initialise(self, test: bool) -> None:
        """Read the log; write its first entry when it is new."""
        if not self._store.read_only:
            self._store.create()
        with self._write() as log:
            if self._state.last[0] == 0:
                if self._store.read_only:
                    raise LedgerError("the ledger is empty: it was never initialised")
                keyed = self._store.key is not None
                body = {"format": FORMAT, "id": uuid.uuid4().hex, "keyed": keyed, "test": test}
                self._append(log, "ledger", "", "", body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Writing

    def create_dataset(
        self,
        name: str,
        *,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
        sensitivity: Sensitivity = Sensitivity(),  # noqa: B008 - immutable
        unit: str = "user",
        version: str = "1",
    ) -> None:
        """Open the account of a dataset.

        Args:
            name: not used before in this ledger.
            registered: a set-wise registration: these costs, in any order; ``delta`` is the δ it is reported at.
            budget: instead of a registration: a fully adaptive filter on a total (ε, δ).
            delta: with ``registered``: the δ at which the guarantee is stated.
            sensitivity: what one unit can move in this data, and the neighbour relation.
            unit: the privacy unit in words, such as "member".
            version: of the data.

        Raises:
            InvalidParameter: on bad arguments or a name that exists.
        """
        terms = terms_of(registered, budget, delta)
        for label, text in (("name", name), ("unit", unit), ("version", version)):
            validate.text(**{label: text})
        validate.instance(Sensitivity, sensitivity=sensitivity)
        body = {"terms": terms, "unit": unit, "version": version, "sensitivity": asdict(sensitivity)}
        with self._write() as log:
            if name in self._state.datasets:
                raise InvalidParameter(f"name: the dataset {name!r} exists already")
            self._append(log, "dataset", name, "", body)

    def set_limit(
        self,
        dataset: str,
        analyst: str,
        *,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
    ) -> None:
        """Limit one analyst inside a dataset's budget; what the analyst has spent before counts."""
        body = {"terms": terms_of(registered, budget, delta)}
        with self._write() as log:
            if not fits(account_of(body["terms"]), self._state.dataset(dataset).current(analyst=analyst)):
                raise InvalidParameter(f"the analyst {analyst!r} has already spent more than this limit")
            self._append(log, "limit", dataset, validate.text(analyst=analyst), body)

    def set_version(self, dataset: str, version: str) -> None:
        """Record that the data changed; budgets and spending go on, since the same users may be in the new data."""
        validate.text(version=version)
        with self._write() as log:
            self._state.dataset(dataset)
            self._append(log, "version", dataset, "", {"version": version})

    def renew(
        self,
        dataset: str,
        *,
        reason: str,
        registered: Charge | None = None,
        budget: Budget | None = None,
        delta: float | None = None,
    ) -> None:
        """Open a new budget on the same dataset: an explicit, recorded act, no reset; the lifetime spend goes on."""
        if not isinstance(reason, str) or not reason.strip():
            raise InvalidParameter("reason must say why the budget is renewed")
        body = {"terms": terms_of(registered, budget, delta), "reason": reason}
        with self._write() as log:
            self._state.dataset(dataset)
            self._append(log, "renewal", dataset, "", body)

    def charge(
        self,
        dataset: str,
        analyst: str,
        charge: Charge,
        *,
        sensitivity: Sensitivity | None = None,
        mechanism: Mapping[str, Any] | None = None,
        query: str = "",
        version: str | None = None,
        unit: str | None = None,
        seeded: bool = False,
    ) -> Receipt:
        """Check the budgets and write a charge durably; when this returns, noise may be drawn.

        Args:
            dataset: a name that was created.
            analyst: any name; an analyst is registered on first use.
            charge: the most that the answer can cost.
            sensitivity: what the charge was computed for; it must cover the dataset's.
            mechanism: name and parameters, for the record.
            query: fingerprint under which a stored answer can be found again.
            version: when given it must be the dataset's.
            unit: when given it must be the dataset's.
            seeded: the noise will come from a fixed seed: refused unless the ledger is marked as a test one.

        Raises:
            BudgetExceeded: nothing was written.
            InvalidParameter: when the charge does not fit the dataset; nothing was written.
            LedgerError: when the database refuses; nothing was written, nothing may be released.
        """
        validate.instance(Charge, charge=charge)
        if seeded and not self.test:
            raise LedgerError("a release with a fixed seed may be written only to a ledger marked as a test one")
        body = {"charge": str(charge), "mechanism": dict(mechanism or {}), "query": query, "seeded": seeded}
        with self._write() as log:
            state = self._state.dataset(dataset)
            _check_fit(state, charge, sensitivity, version, unit)
            for owner, account in state.accounts(validate.text(analyst=analyst)).items():
                if not account.can_spend(charge):
                    raise BudgetExceeded(charge, account.remaining(), owner)
            entry = self._append(log, "charge", dataset, analyst, body)
        return Receipt(entry.seq, dataset, analyst, charge)

    def settle(self, receipt: Receipt, used: Charge, *, answer: Mapping[str, Any] | None = None) -> None:
        """Mark a charge as released, and return the costs that were not used (never δ).

        Args:
            receipt: of the charge.
            used: what the release says it has cost: a part of what was charged.
            answer: the release as a JSON-safe dictionary, to be given again free of charge if asked for.
        """
        body = {"charge": receipt.seq, "used": str(used), "answer": None if answer is None else dict(answer)}
        with self._write() as log:
            state = self._state.dataset(receipt.dataset)
            spend = state.spends.get(receipt.seq)
            if spend is None or spend.released:
                raise InvalidParameter("receipt: this charge was settled before, or is not in this ledger")
            self._append(log, "release", receipt.dataset, receipt.analyst, body)

    # Reading

    @property
    def test(self) -> bool:
        """Whether this ledger was marked as one for tests when it was made."""
        return bool(self._state.about.get("test"))

    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets."""
        self._refresh()
        return tuple(self._state.datasets)

    def state(self, dataset: str) -> DatasetState:
        """All that the log says about a dataset, now; for reading only."""
        self._refresh()
        return self._state.dataset(dataset)

    def spent(self, name: str, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """What a dataset has been charged since its last renewal (or ever), net of refunds."""
        return Charge.join(*self.state(name).current(analyst=analyst, lifetime=lifetime))

    def remaining(self, name: str) -> Charge | str:
        """What remains of a dataset's budget, as its accountant says it."""
        return self.state(name).account.remaining()

    def stored_answer(self, dataset: str, query: str) -> dict[str, Any] | None:
        """The stored release of an identical query on the same data version, if there is one."""
        seq = self.state(dataset).answers.get(query)
        if seq is None:
            return None
        with self._store.transaction() as log:
            entry = next(log.after(seq - 1))
        return dict(entry.body["answer"])

    def entries(self) -> Iterator[Entry]:
        """All entries, in order."""
        with self._store.transaction() as log:
            yield from log.after(0)

    def head(self) -> dict[str, Any]:
        """The last sequence number and hash: keep it elsewhere, and a log whose tail was cut off is found out."""
        self._refresh()
        return {"ledger": self._state.about.get("id"), "seq": self._state.last[0], "hash": self._state.last[1]}

    def check(self, *, head: Mapping[str, Any] | None = None) -> list[str]:
        """Everything that is wrong with the log: broken chain, gaps, an impossible history, a missing tail."""
        return _inspect(self._store, head)[0]

    @staticmethod
    def inspect(
        url: str | Path, *, key: str | bytes | None = None, head: Mapping[str, Any] | None = None
    ) -> tuple[list[str], int]:
        """What ``check`` finds in a ledger that may be too damaged to be opened, and how many entries are good."""
        return _inspect(Store(url, key=key.encode() if isinstance(key, str) else key, read_only=True), head)

    def verify(self, *, head: Mapping[str, Any] | None = None) -> bool:
        """Whether ``check`` finds nothing."""
        return not self.check(head=head)

    def close(self) -> None:
        """Close the connections."""
        self._store.close()

    # State

    def _refresh(self) -> None:
        with self._store.lock, self._store.transaction() as log:
            self._catch_up(log)

    def _catch_up(self, log: Transaction) -> None:
        """Fold in what others have appended since the last look."""
        for entry in log.after(self._state.last[0]):
            self._state.apply(entry)

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        """A transaction on the newest state; when it fails after an append, the state is read anew next time."""
        with self._store.lock:
            written = self._state.last
            try:
                with self._store.transaction() as log:
                    self._catch_up(log)
                    written = self._state.last
                    yield log
            except BaseException:
                if self._state.last != written:
                    self._state = LedgerState(self._store.key)
                raise

    def _append(self, log: Transaction, kind: str, dataset: str, analyst: str, body: dict[str, Any]) -> Entry:
        entry = log.append(self._state.last, kind, dataset, analyst, body)
        self._state.apply(entry)
        return entry


def _inspect(store: Store, head: Mapping[str, Any] | None) -> tuple[list[str], int]:
    """Replay a whole log; problems found, and the number of good entries before the first."""
    fresh = LedgerState(store.key)
    kept: str | None = None
    try:
        with store.transaction() as log:
            for entry in log.after(0):
                fresh.apply(entry)
                if head is not None and entry.seq == head["seq"]:
                    kept = entry.hash
    except LedgerError as error:
        return [str(error)], fresh.last[0]
    if head is None or kept == head["hash"]:
        return [], fresh.last[0]
    if kept is None:
        missing = f"the tail is missing: the log ends at entry {fresh.last[0]}, the head is entry {head['seq']}"
        return [missing], fresh.last[0]
    return [f"entry {head['seq']} is not the one whose hash was exported: the log was rewritten"], fresh.last[0]


def _check_fit(
    state: DatasetState, charge: Charge, sensitivity: Sensitivity | None, version: str | None, unit: str | None
) -> None:
    """Refuse a charge that was computed for other data than the dataset's."""
    truth = state.sensitivity
    if charge.neighbours != truth.neighbours:
        raise InvalidParameter(f"charge is for neighbours {charge.neighbours!r}, the dataset for {truth.neighbours!r}")
    if sensitivity is not None and not sensitivity.covers(truth):
        raise InvalidParameter(f"sensitivity: the charge is for {sensitivity}, the dataset has {truth}")
    if version is not None and version != state.version:
        raise InvalidParameter(f"version: the dataset is at {state.version!r}, got {version!r}")
    if unit is not None and unit != state.unit:
        raise InvalidParameter(f"unit: the dataset's privacy unit is {state.unit!r}, got {unit!r}")
