"""State of a ledger: a fold of its log into data sets, accounts and totals.

The state holds nothing that grows with the number of entries: accounts, and for each analyst the sum of what was
charged. A charge is entered with the record of what it took from each account (``Account.quote``), a release with the
record of what came back: folding adds up recorded numbers, exactly, and decides nothing anew. So every processor and
every version reads the same state. Whether each record was right is asked by ``verify`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dptopk.budgets.account import Account
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.dataset import DatasetState, Total
from dptopk.ledger.entries import FORMAT, GENESIS, Entry
from dptopk.ledger.index import Index, Place
from dptopk.ledger.terms import account_of

LAYOUT = 5  # of the text of a state; a snapshot of another one is not read, and the log is folded from its beginning


class LedgerState:
    """The state after the entries applied so far.

    Args:
        key: of the chain.
        audit: called, when folding all of a log, with each entry before it is folded; None in daily use.
    """

    def __init__(self, key: bytes | None, audit: Callable[[LedgerState, Entry], None] | None = None) -> None:
        self.key = key
        self.last: tuple[int, str] = (0, GENESIS)
        self.about: dict[str, Any] = {}
        self.datasets: dict[str, DatasetState] = {}
        self.index = Index()
        self.replaced: list[list[Any]] = []  # heads (number, hash) that an operator gave up: rekeyed, or restored over
        self.checkpoint = 0
        self._audit = audit

    def apply(self, entry: Entry) -> list[Place]:
        """Check that an entry follows the last one and is genuine, and fold it in; what leads to it.

        Raises:
            LedgerError: when the chain is broken or the entry could never have been written.
        """
        if entry.seq != self.last[0] + 1 or entry.previous != self.last[1]:
            raise LedgerError(f"entry {entry.seq} does not follow entry {self.last[0]}: the log was changed")
        fold = getattr(self, f"_fold_{entry.kind}", None)
        if fold is None:
            raise LedgerError(f"entry {entry.seq} has the unknown kind {entry.kind!r}")
        try:
            self._check(entry)
            if self._audit is not None:
                self._audit(self, entry)
            fold(entry)
            places = self.index.add(entry)
        except LedgerError:
            raise
        except (DptopkError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LedgerError(f"entry {entry.seq} could never have been written: {error}") from None
        self.last = (entry.seq, entry.hash)
        return places

    def dataset(self, name: str) -> DatasetState:
        """The state of one dataset.

        Raises:
            InvalidParameter: when there is none of that name.
        """
        state = self.datasets.get(name)
        if state is None:
            known = ", ".join(map(repr, self.datasets)) or "none yet"
            raise InvalidParameter(f"dataset: {name!r} is not in the ledger; known: {known}")
        return state

    def state(self) -> dict[str, Any]:
        """As JSON; ``restore`` reads it."""
        datasets = {name: state.state() for name, state in self.datasets.items()}
        now = {"layout": LAYOUT, "about": self.about, "datasets": datasets, "index": dict(self.index.chains)}
        return {**now, "replaced": list(self.replaced)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave, apart from where in the log it held."""
        self.about = state["about"]
        self.datasets = {name: DatasetState.restored(name, held) for name, held in state["datasets"].items()}
        self.index.chains, self.replaced = dict(state["index"]), list(state["replaced"])

    def _check(self, entry: Entry) -> None:
        """Refuse a log of another format, and an entry whose hash is not its own."""
        if entry.kind == "ledger" and entry.body["format"] != FORMAT:
            raise LedgerError(f"the ledger has format {entry.body['format']!r}; this version reads format {FORMAT}")
        if entry.hash != entry.chained(self.key):
            raise LedgerError(f"entry {entry.seq} has a wrong hash: it was changed, or the key is another")

    # One fold for each kind of entry.

    def _fold_ledger(self, entry: Entry) -> None:
        self.about = entry.body

    def _fold_checkpoint(self, entry: Entry) -> None:
        self.checkpoint = entry.seq

    def _fold_rekey(self, entry: Entry) -> None:
        """All entries before this one were chained anew; it keeps the head that they had."""
        self._replace(entry.body["before"])

    def _fold_restore(self, entry: Entry) -> None:
        """An operator continues with an older copy of the log; the lost head no longer counts."""
        if entry.body["lost"] is not None:
            self._replace(entry.body["lost"])

    def _replace(self, head: dict[str, Any]) -> None:
        self.replaced.append([head["seq"], head["hash"]])

    def _fold_dataset(self, entry: Entry) -> None:
        body, name = entry.body, entry.dataset
        if name in self.datasets:
            raise LedgerError(f"entry {entry.seq} makes a dataset that exists")
        sensitivity, account = Sensitivity(**body["sensitivity"]), account_of(body["terms"])
        made = DatasetState(name, body["unit"], body["version"], sensitivity, body["terms"], account)
        self.datasets[name] = replace(made, segments=body.get("segments"))

    def _fold_limit(self, entry: Entry) -> None:
        state, terms = self.dataset(entry.dataset), entry.body["terms"]
        account = account_of(terms)
        account.apply(state.shown(entry.analyst), entry.body["record"])
        state.limits[entry.analyst] = (terms, account)

    def _fold_version(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        state.version, state.versioned = entry.body["version"], entry.seq
        state.merge(entry.body.get("merged", {}))

    def _fold_renewal(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        state.terms, state.account = entry.body["terms"], account_of(entry.body["terms"])
        state.limits = {analyst: (terms, account_of(terms)) for analyst, (terms, _) in state.limits.items()}
        state.now, state.seen = {}, {}
        state.renewals += 1
        state.renewed = entry.seq

    def _fold_charge(self, entry: Entry) -> None:
        state, body = self.dataset(entry.dataset), entry.body
        charge = Charge.parse(body["charge"])
        _take(state.accounts(entry.analyst, body.get("segments")), charge, body["records"])
        for totals in (state.now, state.ever):
            totals.setdefault(entry.analyst, Total()).add(charge)

    def _fold_release(self, entry: Entry) -> None:
        state, body = self.dataset(entry.dataset), entry.body
        unused = Charge.parse(body["unused"])
        accounts = state.accounts(entry.analyst, body.get("segments"))
        for owner, record in body["returned"].items():
            accounts[owner].revert(unused, record)
        if "dataset" in body["returned"]:
            for totals in (state.now, state.ever):
                totals[entry.analyst].subtract(unused)

    def _fold_reuse(self, entry: Entry) -> None:
        """An analyst is shown a stored answer charged to another: it counts against the analyst's limit."""
        state, charge = self.dataset(entry.dataset), Charge.parse(entry.body["charge"])
        _take(state.limits_of(entry.analyst, entry.body.get("segments")), charge, entry.body["records"])
        state.seen.setdefault(entry.analyst, Total()).add(charge)


def _take(accounts: dict[str, Account], charge: Charge, records: dict[str, Any]) -> None:
    """Take a charge from all accounts at recorded terms."""
    if accounts.keys() != records.keys():
        raise LedgerError("a charge lacks the record of an account")
    for owner, account in accounts.items():
        account.apply(charge, records[owner])
