"""Entries of formats 1 and 2, read as entries of today's format.

A ledger of an earlier format is never written to. Each of its entries, once its hash was checked by
the rules of its time, is read as the entry that today's format has for it, under the same number:
so an old ledger is shown and verified like any other, and a migration writes down what was read.

* Format 1 had no records of what a charge took from each account: they are computed again. An
  account that would refuse today what it accepted then is listed under ``beyond``; it takes no
  further charge until it is renewed. Spellings of a name were different analysts; now they are one.
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
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.dataset import DatasetState, owner_of
from dptopk.ledger.entries import FORMAT, Entry
from dptopk.ledger.names import canonical
from dptopk.ledger.recorded import RecordedData, RecordedTerms

if TYPE_CHECKING:
    from dptopk.ledger.replay import LedgerState

RECORDS = 2  # the first format with records of what was taken
QUESTIONS = 3  # the first format whose releases repeat the question


class EarlierFormats:
    """Reads the entries of one log, in order, as today's.

    Attributes:
        format: of the entries that come next; today's for a log that began with it.
    """

    def __init__(self) -> None:
        self.format = FORMAT
        self.began = FORMAT
        self._questions: dict[int, str] = {}
        self._charges: dict[int, Entry] = {}  # of format 1, not released yet
        self._spellings: dict[tuple[str, str], str] = {}

    def rule(self, entry: Entry) -> int:
        """The format whose rules an entry follows.

        Raises:
            LedgerError: when this version does not know it.
        """
        if entry.kind in {"ledger", "format"}:
            found = entry.body["format"]
        else:
            found = self.format
        if type(found) is not int or not 1 <= found <= FORMAT:
            raise LedgerError(
                f"the ledger has format {found!r}; this version reads format {FORMAT} and earlier "
                "ones"
            )
        return found

    def today(self, entry: Entry, ledger: LedgerState) -> Entry:
        """Return the entry of today's format for one of this log; ``ledger``: before it."""
        if entry.kind == "ledger":
            self.format = self.began = self.rule(entry)
            return entry
        if self.began == FORMAT:
            return entry
        if entry.kind == "format":
            return self._upgrade(entry, ledger)
        if self.format < QUESTIONS and entry.kind == "charge":
            self._questions[entry.seq] = entry.body.get("query", "")
        if self.format < RECORDS:
            entry = self._recorded(entry, ledger)
        if entry.kind == "release" and "query" not in entry.body:
            query = self._questions.get(entry.body["charge"], "")
            entry = replace(entry, body=entry.body | {"query": query})
        return entry

    def _upgrade(self, entry: Entry, ledger: LedgerState) -> Entry:
        """From here on the rules of a later format hold, on the state that was written down."""
        self.format = self.rule(entry)
        self._charges.clear()
        then = _states_in(entry, ledger)
        now = {name: state.state() for name, state in ledger.datasets.items()}
        if then is None or then == now:
            return replace(entry, body={"format": self.format})
        return replace(entry, body={"format": self.format, "datasets": then})

    def _recorded(self, entry: Entry, ledger: LedgerState) -> Entry:
        """An entry of format 1 with what today's log says of it besides."""
        read = getattr(self, f"_{entry.kind}", None)
        if read is None:
            return entry
        return read(entry, ledger)

    def _dataset(self, entry: Entry, _ledger: LedgerState) -> Entry:
        return replace(entry, body=entry.body | {"terms": _terms(entry.body["terms"])})

    _renewal = _dataset

    def _limit(self, entry: Entry, ledger: LedgerState) -> Entry:
        analyst = canonical(entry.analyst)
        state = ledger.dataset(entry.dataset)
        terms = _terms(entry.body["terms"])
        shown = state.shown(analyst)
        before = self._spellings.setdefault((entry.dataset, analyst), entry.analyst)
        closed = before != entry.analyst  # a second spelling had a second limit then
        try:
            record = account_of(terms).quote_past(shown)
        except DptopkError:
            closed = True
        if closed:
            shown = Charge()
            record = account_of(terms).quote_past(shown)
        body = {"terms": terms, "charge": str(shown), "record": record}
        if closed:
            body["beyond"] = [owner_of(analyst)]
        return replace(entry, analyst=analyst, body=body)

    def _charge(self, entry: Entry, ledger: LedgerState) -> Entry:
        analyst = canonical(entry.analyst)
        charge = Charge.parse(entry.body["charge"])
        accounts = ledger.dataset(entry.dataset).accounts(analyst)
        records, beyond = _quoted(accounts, charge)
        body = entry.body | {"records": records}
        if beyond:
            body["beyond"] = beyond
        entry = self._charges[entry.seq] = replace(entry, analyst=analyst, body=body)
        return entry

    def _release(self, entry: Entry, ledger: LedgerState) -> Entry:
        seq = entry.body["charge"]
        state = ledger.dataset(entry.dataset)
        charged = self._charges.pop(seq, None)
        if charged is None:
            raise LedgerError(f"entry {seq} was released before")
        used = Charge.parse(entry.body["used"])
        unused = Charge.parse(charged.body["charge"]).minus(used)
        returned: dict[str, Record] = {}
        if unused and seq > state.renewed:
            returned = _returned(state, charged, unused)
        body = entry.body | {"unused": str(unused), "returned": returned}
        return replace(entry, analyst=charged.analyst, body=body)


def _states_in(entry: Entry, ledger: LedgerState) -> dict[str, RecordedData] | None:
    """The states of data sets that an upgrade wrote down, as today's log has them; None: it wrote
    none that can be read. ``ledger``: before it.
    """
    try:
        held = entry.body["state"]["datasets"]
        limited = {name: state.limited for name, state in ledger.datasets.items()}
        whole = {
            name: _whole(state, dict.fromkeys(state["limits"], entry.seq) | limited.get(name, {}))
            for name, state in held.items()
        }
        then = {name: DatasetState.restored(name, state) for name, state in whole.items()}
        return {name: state.state() for name, state in then.items()}
    except (DptopkError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _whole(state: Mapping[str, Any], limited: dict[str, int]) -> RecordedData:
    """The state of a data set in an earlier format, with the parts that it did not have yet, such
    as the entries of its limits.
    """
    return {
        "unit": state["unit"],
        "version": state["version"],
        "terms": _terms(state["terms"]),
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
        "limits": {who: (_terms(terms), spent) for who, (terms, spent) in state["limits"].items()},
        "limited": limited,
    }


def _terms(terms: RecordedTerms) -> RecordedTerms:
    """Terms of format 1 with what was computed when they were made, as today's log holds it."""
    if "budget" not in terms or "filter" in terms:
        return terms
    total = Budget.of_terms(terms["budget"])
    half = total.delta / 2  # what format 1 set aside for failures
    method: FilterMethod | None = "renyi" if total.rho is None else None
    return terms | {"filter": Filter(total, method=method, failure_delta=half).terms()}


def _quoted(accounts: dict[str, Account], charge: Charge) -> tuple[dict[str, Record], list[str]]:
    """Return what each account takes for a charge, and which would refuse it."""
    records: dict[str, Record] = {}
    beyond: list[str] = []
    for owner, account in accounts.items():
        try:
            records[owner] = account.quote(charge)
        except DptopkError:
            beyond.append(owner)
    return records, beyond


def _returned(state: DatasetState, charged: Entry, unused: Charge) -> dict[str, Record]:
    """Return what comes back to each account that took something for a charge."""
    records = charged.body["records"]
    returned: dict[str, Record] = {}
    for owner, account in state.accounts(charged.analyst).items():
        if owner in records:
            with suppress(InvalidParameter):
                returned[owner] = account.quote_refund(unused, records[owner])
    return returned
