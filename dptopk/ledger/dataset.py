"""State of one data set by the log: its accounts, and the sums of its charges.

Nothing here grows with the number of entries. A charge is entered with the record of what it took
from each account (``Account.quote``), a release with the record of what came back: folding adds up
recorded numbers, exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dptopk._internal.choices import Neighbours
from dptopk._internal.rounding import round_up
from dptopk.budgets.account_base import Account, Record, cost_of
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.shares import Shares
from dptopk.costs import Budget, Charge, Cost
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.entries import Entry
from dptopk.ledger.names import canonical
from dptopk.ledger.recorded import (
    Declared,
    Merged,
    RecordedData,
    RecordedTerms,
    RecordedTotal,
)


def owner_of(analyst: str) -> str:
    """The name of the account that holds an analyst's limit."""
    return f"limit of {analyst!r}"


@dataclass
class Total:
    """The sum of all charges, less refunds."""

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

    def charge(self, neighbours: Neighbours) -> Charge:
        """The sum as a charge; its delta rounded up."""
        delta = min(round_up(self.delta), 1 - 2**-53)
        return Charge(+self.costs, delta=delta, adaptive=self.adaptive, neighbours=neighbours)

    def state(self) -> RecordedTotal:
        """Return the state as JSON; ``restored`` reads it."""
        costs = {str(cost): times for cost, times in self.costs.items() if times}
        return {
            "costs": costs,
            "delta": str(self.delta),
            "adaptive": self.adaptive,
            "queries": self.queries,
        }

    @classmethod
    def restored(cls, state: RecordedTotal) -> Total:
        """The total that ``state`` gave."""
        costs = Counter({cost_of(cost): times for cost, times in state["costs"].items()})
        return cls(costs, Fraction(state["delta"]), state["adaptive"], state["queries"])


@dataclass
class DatasetState:
    """The state of one data set by the log.

    Attributes:
        terms, account: of the dataset's budget.
        limits: analyst -> terms and account of a limit.
        limited: analyst -> the entry of that limit.
        now, ever: analyst -> what was charged since the last renewal, and since the beginning.
        seen: analyst -> what stored answers paid for by others have shown, since the last renewal.
        segments: what was declared of disjoint segments (by what, their names), or None; then all
            accounts are theirs.
        kind: of the last question, as its charge recorded it, or None.
        versioned, renewed: the entries of the last change of version and the last renewal.
        closed: owners of accounts that an earlier version let spend more than is accepted today.
    """

    name: str
    unit: str
    version: str
    sensitivity: Sensitivity
    terms: RecordedTerms
    account: Account
    limits: dict[str, tuple[RecordedTerms, Account]] = field(default_factory=dict)
    limited: dict[str, int] = field(default_factory=dict)
    now: dict[str, Total] = field(default_factory=dict)
    ever: dict[str, Total] = field(default_factory=dict)
    seen: dict[str, Total] = field(default_factory=dict)
    renewals: int = 0
    versioned: int = 0
    renewed: int = 0
    segments: Declared | None = None
    kind: Record | None = None
    closed: list[str] = field(default_factory=list)

    def spent(self, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """Charges since the last renewal (or ever), of one analyst or of all, net of what came
        back.

        Of disjoint segments all charges since the last renewal are what the costliest one has been
        charged; those of one analyst, or ever, are added up.
        """
        if self.segments and analyst is None and not lifetime:
            return self.account.spent()
        totals = self.ever if lifetime else self.now
        return self._joined(totals.values() if analyst is None else _of(totals, analyst))

    def shown(self, analyst: str) -> Charge:
        """The charges of an analyst since the last renewal, including others' answers shown to that
        analyst.
        """
        return self._joined([*_of(self.now, analyst), *_of(self.seen, analyst)])

    def _joined(self, totals: Iterable[Total]) -> Charge:
        joined = Total()
        for total in totals:
            joined.costs.update(total.costs)
            joined.delta += total.delta
            joined.adaptive |= total.adaptive
        return joined.charge(self.sensitivity.neighbours)

    def limits_of(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """The account of the limit that binds an analyst, if there is one."""
        one = canonical(analyst)
        return self._only(
            {owner_of(one): self.limits[one][1]} if one in self.limits else {}, segments
        )

    def accounts(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """The accounts that a spend of an analyst must fit: the dataset's, and those of the
        analyst's limits.

        Args:
            analyst: who spends.
            segments: what the question is about; None: all data.

        Raises:
            InvalidParameter: on segments that were not declared.
        """
        found = {"dataset": self.account.account(canonical(analyst))}
        return self._only(found | self.limits_of(analyst), segments)

    def _only(
        self, accounts: dict[str, Account], segments: Iterable[str] | None
    ) -> dict[str, Account]:
        if segments is None:
            return accounts
        names = list(segments)
        if self.segments is None or not names:
            raise InvalidParameter("segments: this data set has none, or none were named")
        return {
            owner: account.only(*names)
            for owner, account in accounts.items()
            if isinstance(account, Parallel)
        }

    def check_fit(
        self, charge: Charge, sensitivity: Sensitivity | None, version: str | None, unit: str | None
    ) -> None:
        """Refuse a charge that was computed for other data than these; what is None was not stated.

        Raises:
            InvalidParameter: naming what differs.
        """
        truth = self.sensitivity
        if charge.neighbours != truth.neighbours:
            raise InvalidParameter(
                f"charge is for neighbours {charge.neighbours!r}, the data for {truth.neighbours!r}"
            )
        if sensitivity is not None and not sensitivity.covers(truth):
            differ = f"the charge is for {sensitivity}, the dataset has {truth}"
            raise InvalidParameter(
                f"sensitivity: {differ}; use the caps of the dataset, or larger ones"
            )
        if version is not None and version != self.version:
            raise InvalidParameter(f"version: the dataset is at {self.version!r}, got {version!r}")
        if unit is not None and unit != self.unit:
            raise InvalidParameter(
                f"unit: the dataset's privacy unit is {self.unit!r}, got {unit!r}"
            )

    def records(
        self, accounts: Mapping[str, Account], charge: Charge, stated: Budget | None = None
    ) -> dict[str, Record]:
        """Return what each of these accounts takes for a charge; ``stated``: as for
        ``Account.quote``.

        Raises:
            BudgetExceeded: by the first that does not cover it.
        """
        records = {}
        for owner, account in accounts.items():
            if owner in self.closed:
                why = f"{owner}: an earlier version let it spend more than is accepted today"
                raise BudgetExceeded(charge, account.remaining(), f"{why}; renew it")
            try:
                records[owner] = account.quote(charge, stated)
            except BudgetExceeded as error:
                raise BudgetExceeded(charge, error.remaining, f"{owner}: {error.reason}") from None
        return records

    def returns(self, charged: Entry, unused: Charge) -> dict[str, Record]:
        """Return the refund of a charge to each account; costs that cannot be refunded soundly stay
        charged.
        """
        returned = {}
        records = charged.body.get("records", {})
        if charged.seq < self.limited.get(canonical(charged.analyst), 0):
            # it has the record of another limit, of which this one took all charges as one
            records = {name: held for name, held in records.items() if name == "dataset"}
        for owner, account in self.accounts(charged.analyst, charged.body.get("segments")).items():
            with suppress(InvalidParameter):
                returned[owner] = account.quote_refund(unused, records.get(owner))
        return returned

    def by_owner(self) -> dict[str, tuple[RecordedTerms, Account]]:
        """Terms and account of everything that has a budget here: the dataset or its shares, and
        the limits.
        """
        found = {owner_of(name): held for name, held in self.limits.items()}
        if not isinstance(self.account, Shares):
            return {"dataset": (self.terms, self.account)} | found
        parts = self.account.parts.items()
        return {f"share {name}": (self.terms["shares"][name], part) for name, part in parts} | found

    def merged(self) -> dict[str, Merged]:
        """Return what each account of disjoint segments takes when users may have moved between
        them.

        A user who was in one segment and is in another pays in both. A filter of each segment goes
        on from totals that are at least those of every segment. Registered costs begin anew with a
        charge that covers what any segment has spent.

        Raises:
            BudgetExceeded: when that does not fit into one account.
        """
        if self.segments is None:
            return {}
        merged = {}
        for owner, (terms, account) in self.by_owner().items():
            spent = account.spent()
            merge_terms: Merged = {"charge": str(spent)}
            state = account.merged() if isinstance(account, Parallel) else None
            if state is None:
                merge_terms["record"] = account_of(terms).quote_past(spent)
            else:
                merge_terms["state"] = state
            merged[owner] = merge_terms
        return merged

    def merge(self, merged: Mapping[str, Merged]) -> None:
        """Begin each account anew with what ``merged`` said that it takes.

        Raises:
            LedgerError: when an account of segments is left out.
        """
        owned = self.by_owner()
        if self.segments and merged.keys() != owned.keys():
            raise LedgerError(
                "a new version lacks the record of what the accounts of segments take"
            )
        for owner, merge_terms in merged.items():
            terms, account = owned[owner]
            if "state" in merge_terms:
                account.restore(merge_terms["state"])
                continue
            account.restore(account_of(terms).state())
            account.apply(Charge.parse(merge_terms["charge"]), merge_terms["record"])

    def unspent(self) -> DatasetState:
        """Return the data set with an unspent budget and no limits, to replay its charges."""
        unspent = account_of(self.terms)
        return replace(self, account=unspent, limits={}, now={}, ever={}, seen={}, closed=[])

    def copy(self) -> DatasetState:
        """An equal state that shares nothing with this one."""
        return DatasetState.restored(self.name, self.state())

    def state(self) -> RecordedData:
        """Return the state as JSON; ``restored`` reads it."""
        limits = {name: (terms, account.state()) for name, (terms, account) in self.limits.items()}
        return {
            "unit": self.unit,
            "version": self.version,
            "terms": self.terms,
            "renewals": self.renewals,
            "versioned": self.versioned,
            "renewed": self.renewed,
            "segments": self.segments,
            "closed": self.closed,
            "kind": self.kind,
            "now": _states(self.now),
            "ever": _states(self.ever),
            "seen": _states(self.seen),
            "sensitivity": self.sensitivity.plain(),
            "account": self.account.state(),
            "limits": limits,
            "limited": self.limited,
        }

    @classmethod
    def restored(cls, name: str, state: RecordedData) -> DatasetState:
        """The state of a dataset that ``state`` gave."""
        limits = {
            who: (terms, _restored(terms, spent)) for who, (terms, spent) in state["limits"].items()
        }
        found = cls(
            name=name,
            unit=state["unit"],
            version=state["version"],
            sensitivity=Sensitivity(**state["sensitivity"]),
            terms=state["terms"],
            account=_restored(state["terms"], state["account"]),
            limits=limits,
            limited=dict(state["limited"]),
            now=_totals(state["now"]),
            ever=_totals(state["ever"]),
            seen=_totals(state["seen"]),
            renewals=state["renewals"],
            versioned=state["versioned"],
            renewed=state["renewed"],
            segments=state["segments"],
            kind=state["kind"],
            closed=state["closed"],
        )
        if "dataset" in found.closed:
            found.account.close()
        for owner, (_, account) in found.by_owner().items():
            if owner in found.closed:
                account.close()
        return found


def _states(totals: Mapping[str, Total]) -> dict[str, RecordedTotal]:
    """The totals of each analyst as JSON; ``_totals`` reads it."""
    return {who: total.state() for who, total in totals.items()}


def _totals(states: Mapping[str, RecordedTotal]) -> dict[str, Total]:
    """The totals that ``_states`` wrote."""
    return {who: Total.restored(total) for who, total in states.items()}


def _of(totals: dict[str, Total], analyst: str) -> list[Total]:
    """The total of an analyst, if there is one."""
    one = canonical(analyst)
    if one in totals:
        return [totals[one]]
    return []


def _restored(terms: RecordedTerms, state: Record) -> Account:
    """The account of these terms that has spent what a state says."""
    account = account_of(terms)
    account.restore(state)
    return account
