"""The state of one data set as the log defines it: its accounts, and the sums of its charges.

Nothing here grows with the number of entries. The entry of a charge records what it took from each
account (``Account.quote``), the entry of a release records what came back. So replaying the log
adds up recorded numbers, exactly, and decides nothing again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import NamedTuple

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
from dptopk.ledger.names import canonical_name
from dptopk.ledger.recorded import (
    DeclaredSegments,
    RecordedDataset,
    RecordedTerms,
    RecordedTotal,
    StartingPoint,
)


def owner_of(analyst: str) -> str:
    """Return the name by which the account of an analyst's limit is known, as its owner.

    The *owner* of an account is a text by which the log and messages name it: "dataset", the limit
    of an analyst, or a share.
    """
    return f"limit of {analyst!r}"


@dataclass
class Total:
    """The sum of all charges of one analyst, less refunds.

    Attributes:
        costs: how often each cost was charged.
        delta: the sum of the charges' δ, exactly.
        adaptive: whether any charge is adaptive.
        queries: the number of charges.
    """

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
        """Subtract the costs of a refund; its δ stays charged."""
        self.costs.subtract(dict(unused.costs))

    def charge(self, neighbours: Neighbours) -> Charge:
        """Return the sum as a charge; its δ is rounded up, and at most the largest number
        below 1, since a charge's δ must be below 1.
        """
        delta = min(round_up(self.delta), 1 - 2**-53)
        return Charge(+self.costs, delta=delta, adaptive=self.adaptive, neighbours=neighbours)

    def state(self) -> RecordedTotal:
        """Return the total as JSON; ``of_state`` reads it."""
        costs = {str(cost): times for cost, times in self.costs.items() if times}
        return {
            "costs": costs,
            "delta": str(self.delta),
            "adaptive": self.adaptive,
            "queries": self.queries,
        }

    @classmethod
    def of_state(cls, state: RecordedTotal) -> Total:
        """Return the total of which ``state`` is the JSON."""
        costs = Counter({cost_of(cost): times for cost, times in state["costs"].items()})
        return cls(costs, Fraction(state["delta"]), state["adaptive"], state["queries"])


class BudgetAccount(NamedTuple):
    """An account, and the terms by which it was opened.

    Attributes:
        terms: the terms, from which an account on which nothing is spent can be opened again
            (``account_of``).
        account: the account, from which charges are paid.
    """

    terms: RecordedTerms
    account: Account


@dataclass
class DatasetState:
    """The state of one data set as the log defines it.

    Attributes:
        name: the name of the data set.
        unit: the privacy unit, in words.
        version: the present version of the data.
        sensitivity: the caps on one unit, and the neighbour relation.
        terms: the terms of the data set's budget.
        account: the account with these terms, from which charges are paid.
        limits: analyst -> the limit of what that analyst may learn: its terms and its account.
        limit_entries: analyst -> the number of the entry of that limit.
        totals_since_renewal: analyst -> what was charged since the last renewal.
        totals_ever: analyst -> what was charged since the data set was made.
        shown_since_renewal: analyst -> the costs of stored answers that others paid for and the
            analyst was shown, since the last renewal.
        renewals: how many renewals there were.
        version_entry: the number of the entry of the last change of version; 0: there was none.
        renewal_entry: the number of the entry of the last renewal; 0: there was none.
        segments: the declared disjoint segments, for each of which the accounts have a part; None:
            there are none.
        last_question_kind: the kind of the last question whose charge recorded one, by which what
            is left is stated; None: no charge did.
        closed: the owners of accounts that an earlier version of dptopk let spend more than is
            accepted today; they pay for nothing more.
    """

    name: str
    unit: str
    version: str
    sensitivity: Sensitivity
    terms: RecordedTerms
    account: Account
    limits: dict[str, BudgetAccount] = field(default_factory=dict)
    limit_entries: dict[str, int] = field(default_factory=dict)
    totals_since_renewal: dict[str, Total] = field(default_factory=dict)
    totals_ever: dict[str, Total] = field(default_factory=dict)
    shown_since_renewal: dict[str, Total] = field(default_factory=dict)
    renewals: int = 0
    version_entry: int = 0
    renewal_entry: int = 0
    segments: DeclaredSegments | None = None
    last_question_kind: Record | None = None
    closed: list[str] = field(default_factory=list)

    def spent(self, *, analyst: str | None = None, lifetime: bool = False) -> Charge:
        """Return the sum of the charges since the last renewal, less refunds.

        With disjoint segments, the sum of all analysts since the last renewal is what the costliest
        segment was charged, since a user is in one of them. All other sums simply add up.

        Args:
            analyst: whose charges are added; None: everybody's.
            lifetime: whether charges before the last renewal count too.
        """
        if self.segments and analyst is None and not lifetime:
            return self.account.spent()
        totals = self.totals_ever if lifetime else self.totals_since_renewal
        if analyst is None:
            return self._sum_of(totals.values())
        return self._sum_of([_total_of(totals, analyst)])

    def learnt_charge(self, analyst: str) -> Charge:
        """Return what an analyst has learnt since the last renewal, as a charge.

        It is the sum of the analyst's charges and of the costs of others' answers that the analyst
        was shown.
        """
        charged = _total_of(self.totals_since_renewal, analyst)
        shown = _total_of(self.shown_since_renewal, analyst)
        return self._sum_of([charged, shown])

    def _sum_of(self, totals: Iterable[Total]) -> Charge:
        """Return the sum of totals as a charge."""
        sum_of_totals = Total()
        for total in totals:
            sum_of_totals.costs.update(total.costs)
            sum_of_totals.delta += total.delta
            sum_of_totals.adaptive |= total.adaptive
        return sum_of_totals.charge(self.sensitivity.neighbours)

    def limits_of(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """Return the account of an analyst's limit, by the name of its owner; empty without a
        limit.

        Args:
            analyst: the analyst, in any spelling.
            segments: the segments that a question is about; None: all data.

        Raises:
            InvalidParameter: on segments that were not declared.
        """
        name = canonical_name(analyst)
        accounts = {}
        if name in self.limits:
            accounts[owner_of(name)] = self.limits[name].account
        return self._in_segments(accounts, segments)

    def accounts(self, analyst: str, segments: Iterable[str] | None = None) -> dict[str, Account]:
        """Return the accounts that must pay for a charge, by the names of their owners.

        They are that of the data set ("dataset"), or of the analyst's share of it, and that of the
        analyst's limit.

        Args:
            analyst: the analyst who is charged.
            segments: the segments that the question is about; None: all data.

        Raises:
            InvalidParameter: on segments that were not declared.
            BudgetExceeded: for an analyst without a share of a budget that has no reserve.
        """
        accounts = {"dataset": self.account.account(canonical_name(analyst))}
        return self._in_segments(accounts | self.limits_of(analyst), segments)

    def _in_segments(
        self, accounts: dict[str, Account], segments: Iterable[str] | None
    ) -> dict[str, Account]:
        """Return accounts, by owner, that pay for some segments alone.

        Args:
            accounts: the accounts, by owner.
            segments: the segments that a question is about; None: all data, for which the accounts
                are returned as they are.

        Raises:
            InvalidParameter: on segments that were not declared.
        """
        if segments is None:
            return accounts
        names = list(segments)
        if self.segments is None or not names:
            raise InvalidParameter("segments: this data set has none, or none were named")
        # All its accounts are by segment (``terms_by_segment``); the condition is for the type.
        return {
            owner: account.only(*names)
            for owner, account in accounts.items()
            if isinstance(account, Parallel)
        }

    def check_fit(
        self, charge: Charge, sensitivity: Sensitivity | None, version: str | None, unit: str | None
    ) -> None:
        """Refuse a charge that was computed for other data than these.

        Args:
            charge: the charge, whose neighbour relation must be that of the data.
            sensitivity: the caps that it was computed for; None: not stated.
            version: the version of the data that will be read; None: not stated.
            unit: the privacy unit; None: not stated.

        Raises:
            InvalidParameter: naming what differs.
        """
        declared = self.sensitivity
        if charge.neighbours != declared.neighbours:
            raise InvalidParameter(
                f"charge is for neighbours {charge.neighbours!r}, the data for "
                f"{declared.neighbours!r}"
            )
        if sensitivity is not None and not sensitivity.covers(declared):
            difference = f"the charge is for {sensitivity}, the dataset has {declared}"
            raise InvalidParameter(
                f"sensitivity: {difference}; use the caps of the dataset, or larger ones"
            )
        if version is not None and version != self.version:
            raise InvalidParameter(f"version: the dataset is at {self.version!r}, got {version!r}")
        if unit is not None and unit != self.unit:
            raise InvalidParameter(
                f"unit: the dataset's privacy unit is {self.unit!r}, got {unit!r}"
            )

    def charge_records(
        self, accounts: Mapping[str, Account], charge: Charge, stated: Budget | None = None
    ) -> dict[str, Record]:
        """Return the record of what each of these accounts takes for a charge, by owner.

        Args:
            accounts: the accounts, by owner.
            charge: the charge.
            stated: the (ε, δ) that the question states for it, as for ``Account.quote``.

        Raises:
            BudgetExceeded: naming the first account that does not cover it.
        """
        records = {}
        for owner, account in accounts.items():
            if owner in self.closed:
                reason = f"{owner}: an earlier version let it spend more than is accepted today"
                raise BudgetExceeded(charge, account.remaining(), f"{reason}; renew it")
            try:
                records[owner] = account.quote(charge, stated)
            except BudgetExceeded as error:
                raise BudgetExceeded(charge, error.remaining, f"{owner}: {error.reason}") from None
        return records

    def refund_records(self, charged: Entry, unused: Charge) -> dict[str, Record]:
        """Return the record of what comes back to each account for unused costs, by owner.

        An account for which there is no sound way to take costs back is left out: they stay charged
        to it.

        Args:
            charged: the entry of the charge.
            unused: the costs that were not used.
        """
        refunds = {}
        records = charged.body.get("records", {})
        if charged.seq < self.limit_entries.get(canonical_name(charged.analyst), 0):
            # The record of its limit is of a former one. The present limit took all earlier charges
            # as one, so that its refund must not be computed from that record.
            records = {owner: record for owner, record in records.items() if owner == "dataset"}
        for owner, account in self.accounts(charged.analyst, charged.body.get("segments")).items():
            with suppress(InvalidParameter):
                refunds[owner] = account.quote_refund(unused, records.get(owner))
        return refunds

    @property
    def accounts_since(self) -> int:
        """Return the number of the entry since which the present accounts pay for charges.

        It is the last renewal or, with segments, the last new version, if that is later, since it
        merges their accounts. No account takes back costs of an earlier charge.
        """
        if self.segments:
            return max(self.renewal_entry, self.version_entry)
        return self.renewal_entry

    def budgets_by_owner(self) -> dict[str, BudgetAccount]:
        """Return terms and account of everything that has a budget here, by the owner's name.

        They are the data set ("dataset"), or the shares of its budget, and the limits.
        """
        budgets = {}
        if isinstance(self.account, Shares):
            for name, part in self.account.parts.items():
                budgets[f"share {name}"] = BudgetAccount(self.terms["shares"][name], part)
        else:
            budgets["dataset"] = BudgetAccount(self.terms, self.account)
        for analyst, limit in self.limits.items():
            budgets[owner_of(analyst)] = limit
        return budgets

    def starting_points(self) -> dict[str, StartingPoint]:
        """Return what each account must start from when users may have moved between segments, by
        owner.

        A user who was in one segment and is now in another has been charged by the first, and is
        charged by the second from now on. So a filter goes on in each segment from totals that are
        at least those of every segment, and registered costs start again with a charge that covers
        what any segment has spent. Without segments nothing changes, and the result is empty.

        Raises:
            BudgetExceeded: when that does not fit into one account.
        """
        if self.segments is None:
            return {}
        points = {}
        for owner, (terms, account) in self.budgets_by_owner().items():
            spent = account.spent()
            point: StartingPoint = {"charge": str(spent)}
            # With segments all accounts are Parallel; the condition is for the type.
            state = account.merged_state() if isinstance(account, Parallel) else None
            if state is None:  # registered costs
                point["record"] = account_of(terms).quote_past(spent)
            else:
                point["state"] = state
            points[owner] = point
        return points

    def restart(self, starting_points: Mapping[str, StartingPoint]) -> None:
        """Let each account start from what ``starting_points`` returned.

        Args:
            starting_points: owner of an account -> what it starts from.

        Raises:
            LedgerError: when an account of segments is left out.
        """
        budgets = self.budgets_by_owner()
        if self.segments and starting_points.keys() != budgets.keys():
            raise LedgerError(
                "a new version lacks the record of what the accounts of segments take"
            )
        for owner, point in starting_points.items():
            terms, account = budgets[owner]
            if "state" in point:
                account.restore(point["state"])
                continue
            # What covers all segments is taken from an empty account.
            account.restore(account_of(terms).state())
            account.apply(Charge.parse(point["charge"]), point["record"])

    def unspent(self) -> DatasetState:
        """Return the data set with an unspent budget and no limits, to replay its charges."""
        return replace(
            self,
            account=account_of(self.terms),
            limits={},
            totals_since_renewal={},
            totals_ever={},
            shown_since_renewal={},
            closed=[],
        )

    def copy(self) -> DatasetState:
        """Return an equal state whose accounts can be spent from without a change of this one."""
        return DatasetState.of_state(self.name, self.state())

    def state(self) -> RecordedDataset:
        """Return the state as JSON; ``of_state`` reads it."""
        limits = {name: (terms, account.state()) for name, (terms, account) in self.limits.items()}
        return {
            "unit": self.unit,
            "version": self.version,
            "terms": self.terms,
            "renewals": self.renewals,
            "versioned": self.version_entry,
            "renewed": self.renewal_entry,
            "segments": self.segments,
            "closed": self.closed,
            "kind": self.last_question_kind,
            "now": _states(self.totals_since_renewal),
            "ever": _states(self.totals_ever),
            "seen": _states(self.shown_since_renewal),
            "sensitivity": self.sensitivity.plain(),
            "account": self.account.state(),
            "limits": limits,
            "limited": self.limit_entries,
        }

    @classmethod
    def of_state(cls, name: str, state: RecordedDataset) -> DatasetState:
        """Return the state of which ``state`` is the JSON."""
        limits = {}
        for analyst, (terms, account_state) in state["limits"].items():
            limits[analyst] = BudgetAccount(terms, _restored_account(terms, account_state))
        restored = cls(
            name=name,
            unit=state["unit"],
            version=state["version"],
            sensitivity=Sensitivity(**state["sensitivity"]),
            terms=state["terms"],
            account=_restored_account(state["terms"], state["account"]),
            limits=limits,
            limit_entries=dict(state["limited"]),
            totals_since_renewal=_totals(state["now"]),
            totals_ever=_totals(state["ever"]),
            shown_since_renewal=_totals(state["seen"]),
            renewals=state["renewals"],
            version_entry=state["versioned"],
            renewal_entry=state["renewed"],
            segments=state["segments"],
            last_question_kind=state["kind"],
            closed=state["closed"],
        )
        # A budget in shares is none of the loop below, which closes the shares by their own names.
        if "dataset" in restored.closed:
            restored.account.close()
        for owner, (_, account) in restored.budgets_by_owner().items():
            if owner in restored.closed:
                account.close()
        return restored


def _states(totals: Mapping[str, Total]) -> dict[str, RecordedTotal]:
    """Return the totals of each analyst as JSON; ``_totals`` reads it."""
    return {who: total.state() for who, total in totals.items()}


def _totals(states: Mapping[str, RecordedTotal]) -> dict[str, Total]:
    """Return the totals of each analyst, of which ``_states`` wrote the JSON."""
    return {who: Total.of_state(total) for who, total in states.items()}


def _total_of(totals: dict[str, Total], analyst: str) -> Total:
    """Return the total of an analyst, who may be written in any spelling; an empty one if there is
    none.
    """
    return totals.get(canonical_name(analyst), Total())


def _restored_account(terms: RecordedTerms, state: Record) -> Account:
    """Return an account that has spent what a state records.

    Args:
        terms: the terms of the account.
        state: what it has spent, as ``Account.state`` writes it.
    """
    account = account_of(terms)
    account.restore(state)
    return account
