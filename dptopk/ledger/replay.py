"""The state of a ledger: its entries folded, in order, into data sets, accounts and totals.

The state holds nothing that grows with the number of entries: accounts, and for each analyst the
sum of what was charged. The entry of a charge records what it took from each account
(``Account.quote``), the entry of a release records what came back. Folding adds up recorded
numbers, exactly, and decides nothing again, so that every processor and every version reads the
same state. Only ``verify`` checks whether each record was right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from dptopk._internal import validate
from dptopk.budgets.account_base import Account, Record
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.dataset import BudgetAccount, DatasetState, Total, owner_of
from dptopk.ledger.earlier_formats import EarlierFormats
from dptopk.ledger.entries import FORMAT, GENESIS, Entry, LastEntry
from dptopk.ledger.heads import Head
from dptopk.ledger.index import Index, LookupRow
from dptopk.ledger.recorded import FirstEntryBody, HeadPlace, RecordedHead, RecordedLedger
from dptopk.ledger.spends import Spend

# The version of a state's JSON. A snapshot of another version is not read: the log is then folded
# from its beginning.
LAYOUT = 9


class LedgerState:
    """The state after the entries that were applied so far.

    Args:
        key: the secret of the hash chain; None: the chain has none.
        audit: a function that is called with each entry before it is folded, when a whole log is
            verified; None in daily use.

    Attributes:
        key: the secret of the hash chain.
        last: the number and the hash of the last entry that was applied.
        about: the body of the first entry.
        datasets: the state of each data set, by name.
        index: the hashes of the rows that lead from names to entries.
        replaced: number and hash of a head that an operator gave up, by a new key or a restored
            copy -> the number of the entry that did so.
        checkpoint: the number of the last checkpoint.
        folded: the last entry as it was folded, in today's format.
        earlier: the reader of entries of earlier formats.
        head_place: where the head of this ledger is stored ("kind", "name"); None: nowhere.
        last_confirmed: the number of an entry that the head stored there named when the last entry
            was written; a stored head that names an earlier one is an old copy.
        retired: the head of the ledger that this one was migrated to; None: it was not.
    """

    def __init__(
        self, key: bytes | None, audit: Callable[[LedgerState, Entry], None] | None = None
    ) -> None:
        self.key = key
        self.last = LastEntry(0, GENESIS)
        self.about: FirstEntryBody = {}
        self.datasets: dict[str, DatasetState] = {}
        self.index = Index()
        self.replaced: dict[tuple[int, str], int] = {}
        self.checkpoint = 0
        self.folded: Entry | None = None
        self.earlier = EarlierFormats()
        self.head_place: HeadPlace | None = None
        self.last_confirmed = 0
        self.retired: RecordedHead | None = None
        self._audit = audit

    def apply(self, entry: Entry) -> list[LookupRow]:
        """Check that an entry follows the last one and has the right hash, and fold it in.

        Returns:
            The rows that lead from names to the entry, which are stored beside the log.

        Raises:
            LedgerError: when the chain is broken or the entry could never have been written.
        """
        if entry.seq != self.last.seq + 1 or entry.previous != self.last.hash:
            raise LedgerError(
                f"entry {entry.seq} does not follow entry {self.last.seq}: the log was changed"
            )
        fold = getattr(self, f"_fold_{entry.kind}", None)
        if fold is None:
            raise LedgerError(f"entry {entry.seq} has the unknown kind {entry.kind!r}")
        try:
            self._refuse_wrong_hash(entry)
            today = self.earlier.in_todays_format(entry, self)
            if self._audit is not None:
                self._audit(self, today)
            fold(today)
            self.last_confirmed = today.body.get("witnessed", self.last_confirmed)
            rows = self.index.add(today)
        except LedgerError:
            raise
        except (  # for a part of the body that is missing, of another type, or out of range
            DptopkError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
        ) as error:
            raise LedgerError(f"entry {entry.seq} could never have been written: {error}") from None
        self.last = LastEntry(entry.seq, entry.hash)
        self.folded = today
        return rows

    def last_confirmed_by(self, head: Head | None) -> int:
        """Return the number of the last entry that a stored head confirms; 0 without a head.

        A head that an operator gave up confirms the entries before the one that gave it up.
        """
        if head is None:
            return 0
        replaced_by = self.replaced.get((head.seq, head.hash))
        if replaced_by is None:
            return head.seq
        return replaced_by - 1

    @property
    def is_earlier(self) -> bool:
        """Return whether the log began with an earlier format; it can then only be read and
        migrated.
        """
        return self.earlier.first_format != FORMAT

    def dataset(self, name: str) -> DatasetState:
        """Return the state of one data set.

        Raises:
            InvalidParameter: when there is none of that name.
        """
        state = self.datasets.get(name)
        if state is None:
            names = ", ".join(map(repr, self.datasets)) or "none yet"
            raise InvalidParameter(f"dataset: {name!r} is not in the ledger; known: {names}")
        return state

    def state(self) -> RecordedLedger:
        """Return the state as JSON; ``restore`` reads it."""
        return {
            "layout": LAYOUT,
            "about": self.about,
            "datasets": {name: state.state() for name, state in self.datasets.items()},
            "index": dict(self.index.chains),
            "replaced": [(*head, by) for head, by in self.replaced.items()],
            "witness": self.head_place,
            "witnessed": self.last_confirmed,
            "retired": self.retired,
        }

    def restore(self, state: RecordedLedger) -> None:
        """Take over the state of which ``state`` is the JSON; the number and hash of its last entry
        are not part of it.
        """
        self.about = state["about"]
        self.datasets = {
            name: DatasetState.of_state(name, dataset)
            for name, dataset in state["datasets"].items()
        }
        self.index.chains = dict(state["index"])
        self.replaced = {(seq, hash_): by for seq, hash_, by in state["replaced"]}
        self.head_place = state["witness"]
        self.last_confirmed = state["witnessed"]
        self.retired = state["retired"]

    def _refuse_wrong_hash(self, entry: Entry) -> None:
        """Refuse an entry whose hash is wrong, and one of an unknown format.

        Raises:
            LedgerError: naming the entry.
        """
        if entry.hash != entry.chain_hash(self.key, self.earlier.format_of(entry)):
            raise LedgerError(
                f"entry {entry.seq} has a wrong hash: it was changed, or the key is another"
            )

    # One method for each kind of entry: ``apply`` finds it by its name.

    def _fold_ledger(self, entry: Entry) -> None:
        """Fold the first entry, which says what the ledger is."""
        self.about = cast("FirstEntryBody", entry.body)

    def _fold_checkpoint(self, entry: Entry) -> None:
        """Fold a checkpoint, which holds the hash of the state at this place, for snapshots."""
        self.checkpoint = entry.seq

    def _fold_rekey(self, entry: Entry) -> None:
        """Fold a new key: all entries before this one were hashed again with it, and the head that
        they had is given up.
        """
        self._give_up_head(entry.body["before"], entry.seq)

    def _fold_restore(self, entry: Entry) -> None:
        """Fold the decision of an operator to continue with an older copy of the log: the lost head
        is given up.
        """
        if entry.body["lost"] is not None:
            self._give_up_head(entry.body["lost"], entry.seq)
        self.last_confirmed = 0  # the head of this log is stored anew

    def _fold_witness(self, entry: Entry) -> None:
        """Fold a new place of the head, where it is stored from this entry on."""
        self.head_place = entry.body["place"]
        self.last_confirmed = 0  # unless the entry itself states a number (``apply``)

    def _fold_retired(self, entry: Entry) -> None:
        """Fold the last entry of a ledger that was migrated to another one."""
        self.retired = entry.body["to"]

    def _fold_format(self, entry: Entry) -> None:
        """Fold an upgrade of the log to another format.

        If this version computes another state from the entries before, the state that was recorded
        at the upgrade is used instead.
        """
        datasets = entry.body.get("datasets")
        if datasets is not None:
            self.datasets = {
                name: DatasetState.of_state(name, dataset) for name, dataset in datasets.items()
            }

    def _give_up_head(self, head: RecordedHead, by: int) -> None:
        """Record that a head was given up by the entry with the number ``by``."""
        self.replaced[head["seq"], head["hash"]] = by

    def _fold_dataset(self, entry: Entry) -> None:
        """Fold a new data set, with an account on which nothing is spent.

        Raises:
            LedgerError: when there is one of that name.
        """
        body = entry.body
        name = entry.dataset
        if name in self.datasets:
            raise LedgerError(f"entry {entry.seq} makes a dataset that exists")
        sensitivity = Sensitivity(**body["sensitivity"])
        account = account_of(body["terms"])
        dataset_state = DatasetState(
            name, body["unit"], body["version"], sensitivity, body["terms"], account
        )
        self.datasets[name] = replace(dataset_state, segments=body.get("segments"))

    def _fold_limit(self, entry: Entry) -> None:
        """Fold the limit of an analyst, to which what the analyst has learnt so far is charged."""
        state = self.dataset(entry.dataset)
        terms = entry.body["terms"]
        account = account_of(terms)
        account.apply(state.learnt_charge(entry.analyst), entry.body["record"])
        state.limits[entry.analyst] = BudgetAccount(terms, account)
        state.limit_entries[entry.analyst] = entry.seq
        # The account is new: it is closed only if this entry, of format 1, says that it would not
        # hold what was learnt ("beyond").
        state.closed = [name for name in state.closed if name != owner_of(entry.analyst)]
        state.closed += entry.body.get("beyond", [])

    def _fold_version(self, entry: Entry) -> None:
        """Fold a new version of the data: each account of segments starts from what covers all of
        them.
        """
        state = self.dataset(entry.dataset)
        state.version = entry.body["version"]
        state.version_entry = entry.seq
        state.restart(entry.body.get("merged", {}))

    def _fold_renewal(self, entry: Entry) -> None:
        """Fold a renewal of the budget: the accounts of the data set and of all limits are empty
        again.
        """
        state = self.dataset(entry.dataset)
        state.terms = entry.body["terms"]
        state.account = account_of(entry.body["terms"])
        state.limits = {
            analyst: BudgetAccount(limit.terms, account_of(limit.terms))
            for analyst, limit in state.limits.items()
        }
        state.totals_since_renewal = {}
        state.shown_since_renewal = {}
        state.closed = []
        state.renewals += 1
        state.renewal_entry = entry.seq

    def _fold_charge(self, entry: Entry) -> None:
        """Fold the charge of a question: each account takes what the entry records."""
        state = self.dataset(entry.dataset)
        body = entry.body
        charge = Spend.of_charge(entry).charge  # refuses an entry of which no spend can be made
        accounts = state.accounts(entry.analyst, body.get("segments"))
        # Owners of accounts that would refuse today what was charged to them in format 1.
        beyond = body.get("beyond", [])
        payers = {owner: account for owner, account in accounts.items() if owner not in beyond}
        _apply_charge(payers, charge, body["records"])
        state.closed += [owner for owner in beyond if owner not in state.closed]
        state.last_question_kind = body["mechanism"].get("question_kind", state.last_question_kind)
        for totals in (state.totals_since_renewal, state.totals_ever):
            totals.setdefault(entry.analyst, Total()).add(charge)

    def _fold_release(self, entry: Entry) -> None:
        """Fold the release of an answer: each account takes back what the entry records."""
        state = self.dataset(entry.dataset)
        body = entry.body
        unused = Charge.parse(body["unused"])
        # Readers of the log need these two, whatever comes back.
        Charge.parse(body["used"])
        if body["answer"] is not None:
            validate.instance(dict, answer=body["answer"])
        accounts = state.accounts(entry.analyst, body.get("segments"))
        for owner, record in body["returned"].items():
            accounts[owner].revert(unused, record)
        # Costs that the data set's account did not take back stay charged.
        if "dataset" in body["returned"]:
            for totals in (state.totals_since_renewal, state.totals_ever):
                totals[entry.analyst].subtract(unused)

    def _fold_reuse(self, entry: Entry) -> None:
        """Fold the showing of a stored answer that another analyst paid for: it counts against the
        limit of the analyst who was shown it.
        """
        state = self.dataset(entry.dataset)
        charge = Charge.parse(entry.body["charge"])
        limits = state.limits_of(entry.analyst, entry.body.get("segments"))
        _apply_charge(limits, charge, entry.body["records"])
        state.shown_since_renewal.setdefault(entry.analyst, Total()).add(charge)


def _apply_charge(
    accounts: dict[str, Account], charge: Charge, records: Mapping[str, Record]
) -> None:
    """Take a charge from all accounts, as the records of the entry say.

    Args:
        accounts: the accounts that pay, by owner.
        charge: the charge.
        records: owner -> what the entry recorded that the account takes (``Account.quote``).

    Raises:
        LedgerError: unless there is a record for each account.
    """
    if accounts.keys() != records.keys():
        raise LedgerError("a charge lacks the record of an account")
    for owner, account in accounts.items():
        account.apply(charge, records[owner])
