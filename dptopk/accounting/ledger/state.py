"""What the log of a ledger says: a fold of its entries into datasets, accounts and totals.

The state holds nothing that grows with the number of entries: accounts, and for each analyst the sum of what was
charged. A charge is entered with the record of what it took from each account (``Account.quote``), a release with the
record of what came back: folding adds up recorded numbers, exactly, and decides nothing anew. So every processor and
every version reads the same state. Whether each record was right is asked by ``verify`` alone.

Entries of format 1 hold no records: what they took is computed again. Where the account would refuse today what it
accepted then, the entry stands, a warning is kept, and the account is closed: nothing more fits into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

from dptopk.accounting.accounts.account import Account, cost_of
from dptopk.accounting.accounts.parallel import Parallel
from dptopk.accounting.accounts.shares import Shares
from dptopk.accounting.ledger.entries import FORMAT, GENESIS, Entry
from dptopk.accounting.ledger.names import canonical
from dptopk.accounting.ledger.terms import account_of
from dptopk.costs import Charge, Cost, sum_up
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.histogram import Sensitivity

__all__ = ["FORMAT", "LAYOUT", "DatasetState", "LedgerState", "Total", "owner_of"]

LAYOUT = 2  # of the text of a state; a snapshot of another one is not read, and the log is folded from its beginning


def owner_of(analyst: str) -> str:
    """The name of the account that holds an analyst's limit."""
    return f"limit of {analyst!r}"


@dataclass
class Total:
    """What was charged in sum, net of what came back."""

    costs: Counter[Cost] = field(default_factory=Counter)
    delta: Fraction = Fraction(0)
    adaptive: bool = False
    queries: int = 0

    def add(self, charge: Charge) -> None:
        """Add the charge of one query."""
        self.costs.update(dict(charge.costs))
        self.delta += Fraction(charge.delta)
        self.adaptive |= charge.adaptive
        self.queries += 1

    def subtract(self, unused: Charge) -> None:
        """Take costs off that never ran."""
        self.costs.subtract(dict(unused.costs))

    def charge(self, neighbours: Any) -> Charge:
        """The sum as a charge; its delta rounded up."""
        delta = float(self.delta)
        delta = delta if Fraction(delta) >= self.delta else sum_up([delta, 5e-324])
        return Charge(+self.costs, delta=min(delta, 1 - 2**-53), adaptive=self.adaptive, neighbours=neighbours)

    def state(self) -> dict[str, Any]:
        """As JSON; ``restored`` reads it."""
        costs = {str(cost): times for cost, times in self.costs.items() if times}
        return {"costs": costs, "delta": str(self.delta), "adaptive": self.adaptive, "queries": self.queries}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Total:
        """The total that ``state`` gave."""
        costs = Counter({cost_of(cost): times for cost, times in state["costs"].items()})
        return cls(costs, Fraction(state["delta"]), state["adaptive"], state["queries"])


@dataclass
class DatasetState:
    """What the log says about one dataset.

    Attributes:
        terms, account: of the dataset's budget.
        limits: analyst -> terms and account of a limit.
        now, ever: analyst -> what was charged since the last renewal, and since the beginning.
        seen: analyst -> what stored answers paid for by others have shown, since the last renewal.
        segments: what was declared of disjoint segments (by what, their names), or None; then all accounts are theirs.
        versioned, renewed: the entries of the last change of version and the last renewal.
    """

    name: str
    unit: str
    version: str
    sensitivity: Sensitivity
    terms: dict[str, Any]
    account: Account
    limits: dict[str, tuple[dict[str, Any], Account]] = field(default_factory=dict)
    now: dict[str, Total] = field(default_factory=dict)
    ever: dict[str, Total] = field(default_factory=dict)
    seen: dict[str, Total] = field(default_factory=dict)
    renewals: int = 0
    versioned: int = 0
    renewed: int = 0
    closed: set[str] = field(default_factory=set)
    segments: dict[str, Any] | None = None

    def spent(self, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """Charges since the last renewal (or ever), of one analyst or of all, net of what came back.

        Of disjoint segments all charges since the last renewal are what the costliest one has been charged; those of
        one analyst, or ever, are added up.
        """
        if self.segments and analyst is None and not lifetime:
            return self.account.spent()
        totals = self.ever if lifetime else self.now
        return self._joined(totals.values() if analyst is None else _of(totals, analyst))

    def charged(self, name: str) -> Charge:
        """What was charged under exactly this spelling of a name, since the last renewal."""
        return self._joined([self.now[name]] if name in self.now else [])

    def shown(self, analyst: str) -> Charge:
        """What an analyst was charged and was shown of others' answers, since the last renewal."""
        return self._joined([*_of(self.now, analyst), *_of(self.seen, analyst)])

    def _joined(self, totals: Iterable[Total]) -> Charge:
        joined = Total()
        for total in totals:
            joined.costs.update(total.costs)
            joined.delta += total.delta
            joined.adaptive |= total.adaptive
        return joined.charge(self.sensitivity.neighbours)

    def limits_of(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """The accounts of the limits that bind an analyst: names written before they were unified may be several."""
        one = canonical(analyst)
        found = {owner_of(name): account for name, (_, account) in self.limits.items() if canonical(name) == one}
        return self._only(found, segments)

    def accounts(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """The accounts that a spend of an analyst must fit: the dataset's, and those of the analyst's limits.

        Args:
            analyst: who spends.
            segments: what the question is about; None: all data.

        Raises:
            InvalidParameter: on segments that were not declared.
        """
        found = {"dataset": self.account.account(canonical(analyst)), **self.limits_of(analyst)}
        return self._only(found, segments)

    def _only(self, accounts: dict[str, Account], segments: Iterable[str] | None) -> dict[str, Account]:
        if segments is None:
            return accounts
        names = list(segments)
        if self.segments is None or not names:
            raise InvalidParameter("segments: none were declared for this data set, or none were named")
        return {owner: account.only(*names) for owner, account in accounts.items() if isinstance(account, Parallel)}

    def by_owner(self) -> dict[str, tuple[dict[str, Any], Account]]:
        """Terms and account of everything that has a budget here: the dataset or its shares, and the limits."""
        found = {owner_of(name): held for name, held in self.limits.items()}
        if not isinstance(self.account, Shares):
            return {"dataset": (self.terms, self.account), **found}
        parts = self.account.parts.items()
        return {f"share {name}": (self.terms["shares"][name], part) for name, part in parts} | found

    def merged(self) -> dict[str, Any]:
        """What each account of disjoint segments takes at once when users may have moved between them.

        A user who was in one segment and is in another pays in both: every account begins anew with a charge that
        covers what any of them has spent.

        Raises:
            BudgetExceeded: when that does not fit into one account.
        """
        if self.segments is None:
            return {}
        merged = {}
        for owner, (terms, account) in self.by_owner().items():
            spent = account.spent()
            merged[owner] = {"charge": str(spent), "record": account_of(terms).quote(spent)}
        return merged

    def merge(self, merged: dict[str, Any]) -> None:
        """Begin each account anew with what ``merged`` said that it takes.

        Raises:
            LedgerError: when an account of segments is left out.
        """
        owned = self.by_owner()
        if self.segments and merged.keys() != owned.keys():
            raise LedgerError("a new version without the record of what an account of segments takes")
        for owner, taken in merged.items():
            terms, account = owned[owner]
            account.restore(account_of(terms).state())
            account.take(Charge.parse(taken["charge"]), taken["record"])

    def unspent(self) -> DatasetState:
        """The same data set and budget, nothing spent, and nobody with a limit: to go through its charges again."""
        return replace(self, account=account_of(self.terms), limits={}, now={}, ever={}, seen={}, closed=set())

    def copy(self) -> DatasetState:
        """An equal state that shares nothing with this one."""
        return DatasetState.restored(self.name, self.state())

    def state(self) -> dict[str, Any]:
        """As JSON; ``restored`` reads it."""
        return {
            "unit": self.unit,
            "version": self.version,
            "sensitivity": asdict(self.sensitivity),
            "terms": self.terms,
            "account": self.account.state(),
            "limits": {name: [terms, account.state()] for name, (terms, account) in self.limits.items()},
            **{
                name: {who: total.state() for who, total in totals.items()}
                for name, totals in (("now", self.now), ("ever", self.ever), ("seen", self.seen))
            },
            "renewals": self.renewals,
            "versioned": self.versioned,
            "renewed": self.renewed,
            "closed": sorted(self.closed),
            "segments": self.segments,
        }

    @classmethod
    def restored(cls, name: str, state: dict[str, Any]) -> DatasetState:
        """The state of a dataset that ``state`` gave."""
        made = cls(
            name=name,
            unit=state["unit"],
            version=state["version"],
            sensitivity=Sensitivity(**state["sensitivity"]),
            terms=state["terms"],
            account=_restored(state["terms"], state["account"]),
            limits={who: (terms, _restored(terms, held)) for who, (terms, held) in state["limits"].items()},
            renewals=state["renewals"],
            versioned=state["versioned"],
            renewed=state["renewed"],
            closed=set(state["closed"]),
            segments=state.get("segments"),
        )
        for totals, held in ((made.now, "now"), (made.ever, "ever"), (made.seen, "seen")):
            totals.update({who: Total.restored(total) for who, total in state[held].items()})
        return made


def _of(totals: dict[str, Total], analyst: str) -> list[Total]:
    """The totals of an analyst: several, where names were written before they were unified."""
    one = canonical(analyst)
    return [total for name, total in totals.items() if canonical(name) == one]


def _restored(terms: dict[str, Any], state: dict[str, Any]) -> Account:
    account = account_of(terms)
    account.restore(state)
    return account


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
        self.format = FORMAT
        self.datasets: dict[str, DatasetState] = {}
        self.checkpoint = 0
        self.warnings: list[str] = []
        self.open_charges: dict[int, tuple[str, Charge]] = {}  # of format 1: seq -> analyst, charge
        self._audit = audit

    def apply(self, entry: Entry) -> None:
        """Check that an entry follows the last one and is genuine, and fold it in.

        Raises:
            LedgerError: when the chain is broken or the entry could never have been written.
        """
        if entry.seq != self.last[0] + 1 or entry.previous != self.last[1]:
            raise LedgerError(f"entry {entry.seq} does not follow entry {self.last[0]}: the log was changed")
        fold = _FOLDS.get(entry.kind)
        if fold is None:
            raise LedgerError(f"entry {entry.seq} is of the unknown kind {entry.kind!r}")
        try:
            _check_hash(self, entry)
            if self._audit is not None:
                self._audit(self, entry)
            fold(self, entry)
        except LedgerError:
            raise
        except (DptopkError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise LedgerError(f"entry {entry.seq} could never have been written: {error}") from None
        self.last = (entry.seq, entry.hash)

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
        return {
            "layout": LAYOUT,
            "about": self.about,
            "format": self.format,
            "datasets": {name: state.state() for name, state in self.datasets.items()},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` gave, apart from where in the log it held."""
        self.about, self.format = state["about"], state["format"]
        self.datasets = {name: DatasetState.restored(name, held) for name, held in state["datasets"].items()}


def _check_hash(ledger: LedgerState, entry: Entry) -> None:
    """Refuse an entry whose hash is not its own."""
    if entry.hash != entry.chained(ledger.key, _format_of(ledger, entry)):
        raise LedgerError(f"entry {entry.seq} has a wrong hash: it was changed, or the key is another")


def _format_of(ledger: LedgerState, entry: Entry) -> int:
    """The format whose rules an entry follows.

    Raises:
        LedgerError: on one that this version does not know.
    """
    format_ = entry.body["format"] if entry.kind in {"ledger", "format"} else ledger.format
    if format_ not in range(1, FORMAT + 1):
        raise LedgerError(f"the ledger is of format {format_!r}; this version reads format {FORMAT} and older")
    return int(format_)


def _ledger_made(ledger: LedgerState, entry: Entry) -> None:
    ledger.about, ledger.format = entry.body, entry.body["format"]


def _format(ledger: LedgerState, entry: Entry) -> None:
    """From here on newer rules hold; the state is the one that was written down when they began to."""
    ledger.restore(entry.body["state"])
    ledger.format = entry.body["format"]
    ledger.open_charges.clear()


def _rekey(ledger: LedgerState, entry: Entry) -> None:
    """All entries before this one were chained anew; it keeps the head that they had."""


def _checkpoint(ledger: LedgerState, entry: Entry) -> None:
    ledger.checkpoint = entry.seq


def _dataset_made(ledger: LedgerState, entry: Entry) -> None:
    body = entry.body
    if entry.dataset in ledger.datasets:
        raise LedgerError(f"entry {entry.seq} makes a dataset that exists")
    ledger.datasets[entry.dataset] = DatasetState(
        name=entry.dataset,
        unit=body["unit"],
        version=body["version"],
        sensitivity=Sensitivity(**body["sensitivity"]),
        terms=body["terms"],
        account=account_of(body["terms"]),
        segments=body.get("segments"),
    )


def _limit(ledger: LedgerState, entry: Entry) -> None:
    state, terms = ledger.dataset(entry.dataset), entry.body["terms"]
    account = account_of(terms)
    before = state.shown(entry.analyst) if ledger.format > 1 else state.charged(entry.analyst)
    state.closed.discard(owner_of(entry.analyst))
    if ledger.format > 1:
        account.take(before, entry.body["record"])
    else:
        _spend_again(ledger, entry, owner_of(entry.analyst), account, before)
    state.limits[entry.analyst] = (terms, account)


def _version(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    state.version, state.versioned = entry.body["version"], entry.seq
    state.merge(entry.body.get("merged", {}))


def _renewal(ledger: LedgerState, entry: Entry) -> None:
    state = ledger.dataset(entry.dataset)
    state.terms, state.account = entry.body["terms"], account_of(entry.body["terms"])
    state.limits = {analyst: (terms, account_of(terms)) for analyst, (terms, _) in state.limits.items()}
    state.now, state.seen, state.closed = {}, {}, set()
    state.renewals += 1
    state.renewed = entry.seq


def _charge(ledger: LedgerState, entry: Entry) -> None:
    state, body = ledger.dataset(entry.dataset), entry.body
    charge = Charge.parse(body["charge"])
    if ledger.format > 1:
        _take(state.accounts(entry.analyst, body.get("segments")), charge, body["records"])
    else:
        accounts = {"dataset": state.account}
        if entry.analyst in state.limits:
            accounts[owner_of(entry.analyst)] = state.limits[entry.analyst][1]
        for owner, account in accounts.items():
            _spend_again(ledger, entry, owner, account, charge)
        ledger.open_charges[entry.seq] = (entry.analyst, charge)
    for totals in (state.now, state.ever):
        totals.setdefault(entry.analyst, Total()).add(charge)


def _take(accounts: dict[str, Account], charge: Charge, records: dict[str, Any]) -> None:
    """Take a charge from all accounts at recorded terms."""
    if accounts.keys() != records.keys():
        raise LedgerError("a charge without the record of an account that it must fit")
    for owner, account in accounts.items():
        account.take(charge, records[owner])


def _spend_again(ledger: LedgerState, entry: Entry, owner: str, account: Account, charge: Charge) -> None:
    """Decide on an entry of format 1 again; it stands also where the decision is another."""
    try:
        account.spend(charge)
    except (BudgetExceeded, DptopkError) as error:
        ledger.warnings.append(f"entry {entry.seq} was accepted when it was written and would be refused now: {error}")
        ledger.dataset(entry.dataset).closed.add(owner)


def _release(ledger: LedgerState, entry: Entry) -> None:
    state, body = ledger.dataset(entry.dataset), entry.body
    if ledger.format == 1:
        _release_1(ledger, state, entry)
        return
    returned = body["returned"]
    unused = Charge.parse(body["unused"])
    accounts = state.accounts(entry.analyst, body.get("segments"))
    for owner, record in returned.items():
        accounts[owner].give_back(unused, record)
    if "dataset" in returned:
        for totals in (state.now, state.ever):
            totals[entry.analyst].subtract(unused)


def _release_1(ledger: LedgerState, state: DatasetState, entry: Entry) -> None:
    seq = entry.body["charge"]
    if seq not in ledger.open_charges:
        raise LedgerError(f"entry {seq} was released before")
    analyst, charge = ledger.open_charges.pop(seq)
    unused = charge.minus(Charge.parse(entry.body["used"]))
    if not unused or seq < state.renewed:
        return
    if analyst in state.limits:
        _refund(state.limits[analyst][1], unused)
    if _refund(state.account, unused):
        for totals in (state.now, state.ever):
            totals[analyst].subtract(unused)


def _refund(account: Account, unused: Charge) -> bool:
    """Give back costs that never ran; where the account cannot take them back soundly they stay charged."""
    try:
        account.refund(unused)
    except InvalidParameter:
        return False
    return True


def _reuse(ledger: LedgerState, entry: Entry) -> None:
    """An analyst is shown a stored answer that another has paid for: it counts against the analyst's limit."""
    state, charge = ledger.dataset(entry.dataset), Charge.parse(entry.body["charge"])
    _take(state.limits_of(entry.analyst, entry.body.get("segments")), charge, entry.body["records"])
    state.seen.setdefault(entry.analyst, Total()).add(charge)


_FOLDS: dict[str, Callable[[LedgerState, Entry], None]] = {
    "ledger": _ledger_made,
    "format": _format,
    "checkpoint": _checkpoint,
    "rekey": _rekey,
    "dataset": _dataset_made,
    "limit": _limit,
    "version": _version,
    "renewal": _renewal,
    "charge": _charge,
    "release": _release,
    "reuse": _reuse,
}
