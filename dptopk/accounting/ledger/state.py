"""What the log of a ledger says: a pure fold of its entries into datasets, accounts and analysts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dptopk.accounting.accountant import Account, Accountant
from dptopk.accounting.budget import Budget
from dptopk.accounting.ledger.store import GENESIS, Entry, chain_hash
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.histogram import Sensitivity

__all__ = ["FORMAT", "DatasetState", "LedgerState", "Spend", "account_of", "fits", "terms_of"]

FORMAT = 1  # of the log; an entry of another one may mean something else


def terms_of(registered: Charge | None, budget: Budget | None, delta: float | None) -> dict[str, Any]:
    """A budget in words that the log can hold: a set-wise registration with its δ, or a filter's total (ε, δ).

    Raises:
        InvalidParameter: unless exactly one of registered (with delta) and budget is given.
    """
    if (registered is None) == (budget is None):
        raise InvalidParameter("give exactly one of registered and budget")
    if budget is not None:
        if not isinstance(budget, Budget) or delta is not None:
            raise InvalidParameter("budget must be a Budget, which has its own delta")
        return {"budget": [budget.epsilon, budget.delta]}
    if not isinstance(registered, Charge) or delta is None:
        raise InvalidParameter("registered must be a Charge, with the delta at which its guarantee is stated")
    terms = {"registered": str(registered), "delta": float(delta)}
    account_of(terms)  # refuses what the accountant refuses
    return terms


def account_of(terms: dict[str, Any]) -> Account:
    """The accountant of a budget, nothing spent."""
    if "budget" in terms:
        return Accountant.filter(Budget(*terms["budget"]))
    return Accountant(Charge.parse(terms["registered"]), terms["delta"])


def fits(account: Account, charges: list[Charge]) -> bool:
    """Spend charges on a new account; False when they do not fit."""
    try:
        for charge in charges:
            account.spend(charge)
    except BudgetExceeded:
        return False
    return True


@dataclass
class Spend:
    """One charge and what became of it."""

    seq: int
    at: str
    analyst: str
    charge: Charge  # net of what was returned
    mechanism: dict[str, Any]
    query: str
    version: str
    renewals: int  # how often the budget had been renewed
    released: bool = False


@dataclass
class DatasetState:
    """What the log says about one dataset."""

    name: str
    unit: str
    version: str
    sensitivity: Sensitivity
    terms: dict[str, Any]
    account: Account
    limits: dict[str, tuple[dict[str, Any], Account]] = field(default_factory=dict)  # analyst -> terms, account
    spends: dict[int, Spend] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)  # query -> seq of a stored release on this version
    renewals: int = 0

    def current(self, *, analyst: str | None = None, lifetime: bool = False) -> list[Charge]:
        """Charges since the last renewal (or ever), of one analyst or of all, net of what was returned."""
        return [
            spend.charge
            for spend in self.spends.values()
            if (lifetime or spend.renewals == self.renewals) and analyst in {None, spend.analyst}
        ]

    def accounts(self, analyst: str) -> dict[str, Account]:
        """The accounts that a spend of an analyst must fit: the dataset's, and the analyst's limit if there is one."""
        accounts = {"dataset": self.account}
        if analyst in self.limits:
            accounts[f"limit of {analyst!r}"] = self.limits[analyst][1]
        return accounts


class LedgerState:
    """The state after the entries applied so far.

    Args:
        key: of the chain.
    """

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.last: tuple[int, str] = (0, GENESIS)
        self.about: dict[str, Any] = {}
        self.datasets: dict[str, DatasetState] = {}

    def apply(self, entry: Entry) -> None:
        """Check that an entry follows the last one and is genuine, and fold it in.

        Raises:
            LedgerError: when the chain is broken or the entry could never have been written.
        """
        fields = (entry.seq, entry.at, entry.kind, entry.dataset, entry.analyst, entry.body)
        if entry.seq != self.last[0] + 1 or entry.previous != self.last[1]:
            raise LedgerError(f"entry {entry.seq} does not follow entry {self.last[0]}: the log was changed")
        if entry.hash != chain_hash(self.key, entry.previous, *fields):
            raise LedgerError(f"entry {entry.seq} has a wrong hash: it was changed, or the key is another")
        fold = _FOLDS.get(entry.kind)
        if fold is None:
            raise LedgerError(f"entry {entry.seq} is of the unknown kind {entry.kind!r}")
        try:
            fold(self, entry)
        except LedgerError:
            raise
        except (DptopkError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"entry {entry.seq} could never have been written: {error}") from None
        self.last = (entry.seq, entry.hash)

    def dataset(self, name: str) -> DatasetState:
        """The state of one dataset.

        Raises:
            InvalidParameter: when there is none of that name.
        """
        state = self.datasets.get(name)
        if state is None:
            known = ", ".join(self.datasets) or "none yet"
            raise InvalidParameter(f"dataset: {name!r} is not in the ledger; known: {known}")
        return state


def _ledger_made(ledger: LedgerState, entry: Entry) -> None:
    if entry.body["format"] != FORMAT:
        raise LedgerError(f"the ledger is of format {entry.body['format']!r}; this version reads format {FORMAT}")
    ledger.about = entry.body


def _dataset_made(ledger: LedgerState, entry: Entry) -> None:
    body = entry.body
    ledger.datasets[entry.dataset] = DatasetState(
        name=entry.dataset,
        unit=body["unit"],
        version=body["version"],
        sensitivity=Sensitivity(**body["sensitivity"]),
        terms=body["terms"],
        account=account_of(body["terms"]),
    )


def _limit(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    account = account_of(entry.body["terms"])
    if not fits(account, state.current(analyst=entry.analyst)):
        raise LedgerError("a limit below what was spent")
    state.limits[entry.analyst] = (entry.body["terms"], account)


def _version(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    state.version = entry.body["version"]
    state.answers.clear()


def _renewal(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    state.terms, state.account = entry.body["terms"], account_of(entry.body["terms"])
    state.limits = {analyst: (terms, account_of(terms)) for analyst, (terms, _) in state.limits.items()}
    state.renewals += 1


def _charge(ledger: LedgerState, entry: Entry) -> None:
    state, body = ledger.dataset(entry.dataset), entry.body
    charge = Charge.parse(body["charge"])
    for account in state.accounts(entry.analyst).values():
        account.spend(charge)
    state.spends[entry.seq] = Spend(
        seq=entry.seq,
        at=entry.at,
        analyst=entry.analyst,
        charge=charge,
        mechanism=body["mechanism"],
        query=body["query"],
        version=state.version,
        renewals=state.renewals,
    )


def _release(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    spend = state.spends[entry.body["charge"]]
    if spend.released:
        raise LedgerError(f"entry {spend.seq} was released before")
    spend.released = True
    unused = spend.charge.minus(Charge.parse(entry.body["used"]))
    if unused and spend.renewals == state.renewals:
        returned = {owner: _refund(account, unused) for owner, account in state.accounts(spend.analyst).items()}
        if returned["dataset"]:
            left = spend.charge.minus(unused)
            spend.charge = Charge(
                left.costs, delta=spend.charge.delta, adaptive=spend.charge.adaptive, neighbours=left.neighbours
            )
    if entry.body["answer"] is not None and spend.query and spend.version == state.version:
        state.answers[spend.query] = entry.seq


def _refund(account: Account, unused: Charge) -> bool:
    """Return costs that never ran; where the account cannot take them back soundly they stay charged."""
    try:
        account.refund(unused)
    except InvalidParameter:
        return False
    return True


_FOLDS: dict[str, Callable[[LedgerState, Entry], None]] = {
    "ledger": _ledger_made,
    "dataset": _dataset_made,
    "limit": _limit,
    "version": _version,
    "renewal": _renewal,
    "charge": _charge,
    "release": _release,
}
