"""Entries of formats 1 and 2, read as entries of today's format.

A ledger of an earlier format is never written to. After the hash of an entry was checked by the
rules of its time, the entry is read as the one that today's format has for it, under the same
number. So an old ledger is shown and verified like any other, and a migration writes what was read.

* Format 1 had no records of what a charge took from each account: they are computed again. An
  account that would refuse today what it accepted then is listed under ``beyond``; it takes no
  further charge until it is renewed. Spellings of a name were different analysts; now they are one.
  It held NaN and infinities, in labels for instance, which no JSON has: they are written as labels
  are today.
* Format 2 did not repeat the question in a release, by which a stored answer is found.
* A log that was upgraded in the middle has a ``format`` entry there, with the state at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dptopk.budgets.account_base import Account, Record
from dptopk.budgets.filter import Filter
from dptopk.budgets.filter_options import FilterMethod
from dptopk.costs import Budget, Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.labels import to_plain
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.dataset import DatasetState, owner_of
from dptopk.ledger.entries import FORMAT, Entry
from dptopk.ledger.names import canonical_name
from dptopk.ledger.recorded import RecordedDataset, RecordedTerms

if TYPE_CHECKING:
    from dptopk.ledger.replay import LedgerState

FIRST_WITH_RECORDS = 2  # the first format with records of what a charge took from each account
FIRST_WITH_QUESTIONS = 3  # the first format whose releases repeat the question


class EarlierFormats:
    """The reader of the entries of one log, in order, in today's format.

    A kind of entry that changed since format 1 has a method with the name of the kind. It takes the
    entry, as it was written, and the state of the ledger before it, and returns the entry that
    today's format has for it.

    Attributes:
        format: the format of the entries that come next.
        first_format: the format of the first entry.
    """

    def __init__(self) -> None:
        self.format = FORMAT
        self.first_format = FORMAT
        # Number of a charge's entry -> the fingerprint of its question.
        self._questions: dict[int, str] = {}
        self._charges: dict[int, Entry] = {}  # charges of format 1 that were not released yet
        # Data set and analyst -> the first spelling of the analyst's name that got a limit.
        self._spellings: dict[tuple[str, str], str] = {}

    def format_of(self, entry: Entry) -> int:
        """Return the format whose rules an entry follows.

        Raises:
            LedgerError: when this version does not know it.
        """
        if entry.kind in {"ledger", "format"}:
            stated = entry.body["format"]
        else:
            stated = self.format
        if type(stated) is not int or not 1 <= stated <= FORMAT:
            raise LedgerError(
                f"the ledger has format {stated!r}; this version reads format {FORMAT} and earlier "
                "ones"
            )
        return stated

    def in_todays_format(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry that today's format has for an entry of this log.

        Args:
            entry: the entry, as it was written.
            ledger: the state before it.

        Raises:
            LedgerError: when this version does not know the format of the log.
        """
        if entry.kind == "ledger":  # the first entry, which states the format
            self.first_format = self.format_of(entry)
            self.format = self.first_format
            return entry
        if self.first_format == FORMAT:  # nothing is to be translated
            return entry
        if entry.kind == "format":
            return self._upgrade(entry, ledger)
        if self.format < FIRST_WITH_QUESTIONS and entry.kind == "charge":
            self._questions[entry.seq] = entry.body.get("query", "")
        if self.format < FIRST_WITH_RECORDS:
            entry = self._with_records(entry, ledger)
        if entry.kind == "release" and "query" not in entry.body:
            query = self._questions.get(entry.body["charge"], "")
            entry = replace(entry, body=entry.body | {"query": query})
        return entry

    def _upgrade(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry for an upgrade to a later format.

        The later format's rules hold from here on. The version that made the upgrade may have
        computed the states by other rules, and decided by them what it accepted afterwards; so if
        the state that it recorded differs from the one computed today, the entry holds the recorded
        one.

        Args:
            entry: the entry of the upgrade, as it was written.
            ledger: the state before it.

        Raises:
            LedgerError: when this version does not know the format.
        """
        self.format = self.format_of(entry)
        self._charges.clear()  # releases of a later format have records of their own
        recorded = _states_in(entry, ledger)
        computed = {name: state.state() for name, state in ledger.datasets.items()}
        if recorded is None or recorded == computed:
            return replace(entry, body={"format": self.format})
        return replace(entry, body={"format": self.format, "datasets": recorded})

    def _with_records(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return an entry of format 1 with the records that today's format has in addition, by the
        method that has the name of its kind.

        Args:
            entry: the entry, as it was written.
            ledger: the state before it.
        """
        body = {name: _with_finite_numbers(value) for name, value in entry.body.items()}
        entry = replace(entry, body=body)
        reader = getattr(self, f"_{entry.kind}", None)
        if reader is None:
            return entry
        return reader(entry, ledger)

    def _dataset(self, entry: Entry, _ledger: LedgerState) -> Entry:
        """Return the entry of a data set or a renewal, with the terms of its filter."""
        return replace(entry, body=entry.body | {"terms": _terms_with_filter(entry.body["terms"])})

    _renewal = _dataset

    def _limit(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry of a limit, with what it takes for what the analyst has learnt
        before.
        """
        analyst = canonical_name(entry.analyst)
        state = ledger.dataset(entry.dataset)
        terms = _terms_with_filter(entry.body["terms"])
        learnt = state.learnt_charge(analyst)
        first_spelling = self._spellings.setdefault((entry.dataset, analyst), entry.analyst)
        is_closed = first_spelling != entry.analyst  # a second spelling had a second limit then
        try:
            record = account_of(terms).quote_past(learnt)
        except DptopkError:
            is_closed = True
        if is_closed:
            # A closed account pays for nothing more, so that it need not hold what was learnt.
            learnt = Charge()
            record = account_of(terms).quote_past(learnt)
        body = {"terms": terms, "charge": str(learnt), "record": record}
        if is_closed:
            body["beyond"] = [owner_of(analyst)]
        return replace(entry, analyst=analyst, body=body)

    def _charge(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry of a charge, with the records of what it takes from each account."""
        analyst = canonical_name(entry.analyst)
        charge = Charge.parse(entry.body["charge"])
        accounts = ledger.dataset(entry.dataset).accounts(analyst)
        records, refusing_owners = _charge_records(accounts, charge)
        body = entry.body | {"records": records}
        if refusing_owners:
            body["beyond"] = refusing_owners
        charged = replace(entry, analyst=analyst, body=body)
        self._charges[entry.seq] = charged
        return charged

    def _release(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry of a release, with the records of what comes back to each account.

        Raises:
            LedgerError: if the charge was released before.
        """
        seq = entry.body["charge"]
        state = ledger.dataset(entry.dataset)
        charged = self._charges.pop(seq, None)
        if charged is None:
            raise LedgerError(f"entry {seq} was released before")
        used = Charge.parse(entry.body["used"])
        unused = Charge.parse(charged.body["charge"]).minus(used)
        refunds: dict[str, Record] = {}
        if unused and seq > state.renewal_entry:  # a renewed account has not paid for the charge
            refunds = _refund_records(state, charged, unused)
        body = entry.body | {"unused": str(unused), "returned": refunds}
        return replace(entry, analyst=charged.analyst, body=body)


def _with_finite_numbers(value: object) -> object:
    """Return JSON in which each NaN and each infinity is written as labels are (``to_plain``)."""
    if isinstance(value, dict):
        return {key: _with_finite_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_finite_numbers(part) for part in value]
    if isinstance(value, float):
        return to_plain(value)
    return value


def _states_in(entry: Entry, ledger: LedgerState) -> dict[str, RecordedDataset] | None:
    """Return the states of data sets that an upgrade recorded, in today's form, by name; None if
    one of them cannot be read.

    Args:
        entry: the entry of the upgrade, as it was written.
        ledger: the state before it.
    """
    states = {}
    try:
        for name, recorded in entry.body["state"]["datasets"].items():
            # The upgrade did not record when limits were set: at its own entry at the latest.
            limited = dict.fromkeys(recorded["limits"], entry.seq)
            if name in ledger.datasets:
                limited |= ledger.datasets[name].limit_entries
            states[name] = DatasetState.of_state(name, _completed_state(recorded, limited)).state()
    except (DptopkError, KeyError, TypeError, ValueError, AttributeError):
        # A state that this version cannot read, such as costs that it does not know.
        return None
    return states


def _completed_state(state: Mapping[str, Any], limited: dict[str, int]) -> RecordedDataset:
    """Return the state of a data set in an earlier format, completed by the parts that it did not
    have yet.

    Args:
        state: the state, as it was recorded.
        limited: analyst -> the number of the entry of that analyst's limit, which no state of an
            earlier format has.
    """
    return {
        "unit": state["unit"],
        "version": state["version"],
        "terms": _terms_with_filter(state["terms"]),
        "renewals": state["renewals"],
        "versioned": state.get("versioned", 0),
        "renewed": state.get("renewed", 0),
        "segments": state.get("segments"),
        "closed": state.get("closed", []),
        "kind": state.get("kind"),
        "now": state["now"],
        "ever": state["ever"],
        "seen": state.get("seen", {}),
        "sensitivity": state["sensitivity"],
        "account": state["account"],
        "limits": {
            analyst: (_terms_with_filter(terms), account_state)
            for analyst, (terms, account_state) in state["limits"].items()
        },
        "limited": limited,
    }


def _terms_with_filter(terms: RecordedTerms) -> RecordedTerms:
    """Return terms of format 1 as today's format has them: those of a filter with all that defines
    it; other terms are returned as they are.
    """
    if "budget" not in terms or "filter" in terms:
        return terms
    total = Budget.of_terms(terms["budget"])
    failure_delta = total.delta / 2  # as format 1 divided δ
    # Left open, the first charge would choose the method of a budget in ε, as it did not then; for
    # a budget in ρ there is one method only.
    method: FilterMethod | None = "renyi" if total.rho is None else None
    filter_ = Filter(total, method=method, failure_delta=failure_delta)
    return terms | {"filter": filter_.terms()}


def _charge_records(
    accounts: dict[str, Account], charge: Charge
) -> tuple[dict[str, Record], list[str]]:
    """Return the record of what each account takes for a charge, by owner, and the owners of those
    that would refuse it.

    Args:
        accounts: the accounts, by owner.
        charge: the charge.
    """
    records: dict[str, Record] = {}
    refusing_owners: list[str] = []
    for owner, account in accounts.items():
        try:
            records[owner] = account.quote(charge)
        except DptopkError:
            refusing_owners.append(owner)
    return records, refusing_owners


def _refund_records(state: DatasetState, charged: Entry, unused: Charge) -> dict[str, Record]:
    """Return the record of what comes back to each account that took something for a charge.

    An account for which there is no sound way to take costs back is left out, as in
    ``DatasetState.refund_records``.

    Args:
        state: the state of the data set before the release.
        charged: the entry of the charge, in today's format.
        unused: the costs that were not used.
    """
    records = charged.body["records"]
    refunds: dict[str, Record] = {}
    for owner, account in state.accounts(charged.analyst).items():
        if owner in records:
            with suppress(InvalidParameter):
                refunds[owner] = account.quote_refund(unused, records[owner])
    return refunds
