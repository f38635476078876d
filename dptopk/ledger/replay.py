"""State of a ledger: a fold of its log into data sets, accounts and totals.

The state holds nothing that grows with the number of entries: accounts, and for each analyst the
sum of what was charged. A charge is entered with the record of what it took from each account
(``Account.quote``), a release with the record of what came back: folding adds up recorded numbers,
exactly, and decides nothing anew. So every processor and every version reads the same state.
Whether each record was right is asked by ``verify`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from dptopk.budgets.account_base import Account, Record
from dptopk.costs import Charge
from dptopk.errors import DptopkError, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.dataset import DatasetState, Total, owner_of
from dptopk.ledger.earlier_formats import EarlierFormats
from dptopk.ledger.entries import FORMAT, GENESIS, Entry
from dptopk.ledger.heads import Head
from dptopk.ledger.index import Index, Place
from dptopk.ledger.recorded import About, HeadPlace, RecordedHead, RecordedLedger

# of the text of a state; a snapshot of another one is not read, and the log is folded from its
# beginning
LAYOUT = 9


class LedgerState:
    """The state after the entries applied so far.

    Args:
        key: of the chain.
        audit: called, when folding all of a log, with each entry before it is folded; None in daily
            use.

    Attributes:
        folded: the last entry, as it was folded: in today's format.
        earlier: reads entries of earlier formats.
        witness: where the head of this ledger is stored ("kind", "name"), or None.
        witnessed: the number of the head that was stored there when the last entry was written, at
            least.
        retired: the head of the ledger that this one was migrated to, or None.
    """

    def __init__(
        self, key: bytes | None, audit: Callable[[LedgerState, Entry], None] | None = None
    ) -> None:
        self.key = key
        self.last: tuple[int, str] = (0, GENESIS)
        self.about: About = {}
        self.datasets: dict[str, DatasetState] = {}
        self.index = Index()
        # heads (number, hash) that an operator gave up, rekeyed or restored over, and the entry
        # that did so
        self.replaced: dict[tuple[int, str], int] = {}
        self.checkpoint = 0
        self.folded: Entry | None = None
        self.earlier = EarlierFormats()
        self.witness: HeadPlace | None = None
        self.witnessed = 0
        self.retired: RecordedHead | None = None
        self._audit = audit

    def apply(self, entry: Entry) -> list[Place]:
        """Check that an entry follows the last one and is genuine, and fold it in; what leads to
        it.

        Raises:
            LedgerError: when the chain is broken or the entry could never have been written.
        """
        if entry.seq != self.last[0] + 1 or entry.previous != self.last[1]:
            raise LedgerError(
                f"entry {entry.seq} does not follow entry {self.last[0]}: the log was changed"
            )
        fold = getattr(self, f"_fold_{entry.kind}", None)
        if fold is None:
            raise LedgerError(f"entry {entry.seq} has the unknown kind {entry.kind!r}")
        try:
            self._check(entry)
            today = self.earlier.today(entry, self)
            if self._audit is not None:
                self._audit(self, today)
            fold(today)
            self.witnessed = today.body.get("witnessed", self.witnessed)
            places = self.index.add(today)
        except LedgerError:
            raise
        except (
            DptopkError,
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
        ) as error:
            raise LedgerError(f"entry {entry.seq} could never have been written: {error}") from None
        self.last = (entry.seq, entry.hash)
        self.folded = today
        return places

    def last_named_by(self, head: Head) -> int:
        """The number of the last entry that a stored head vouches for: of one that was given up,
        the last before the entry that did so.
        """
        by = self.replaced.get((head.seq, head.hash))
        if by is None:
            return head.seq
        return by - 1

    @property
    def is_earlier(self) -> bool:
        """Whether the log began with an earlier format: then it can be read, and migrated."""
        return self.earlier.began != FORMAT

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

    def state(self) -> RecordedLedger:
        """Return it as JSON; ``restore`` reads it."""
        return {
            "layout": LAYOUT,
            "about": self.about,
            "datasets": {name: state.state() for name, state in self.datasets.items()},
            "index": dict(self.index.chains),
            "replaced": [(*head, by) for head, by in self.replaced.items()],
            "witness": self.witness,
            "witnessed": self.witnessed,
            "retired": self.retired,
        }

    def restore(self, state: RecordedLedger) -> None:
        """Take over what ``state`` gave, apart from where in the log it held."""
        self.about = state["about"]
        self.datasets = {
            name: DatasetState.restored(name, held) for name, held in state["datasets"].items()
        }
        self.index.chains = dict(state["index"])
        self.replaced = {(seq, hash_): by for seq, hash_, by in state["replaced"]}
        self.witness = state["witness"]
        self.witnessed = state["witnessed"]
        self.retired = state["retired"]

    def _check(self, entry: Entry) -> None:
        """Refuse a log of a format that is not known, and an entry whose hash is not its own."""
        if entry.hash != entry.chained(self.key, self.earlier.rule(entry)):
            raise LedgerError(
                f"entry {entry.seq} has a wrong hash: it was changed, or the key is another"
            )

    # One fold for each kind of entry.

    def _fold_ledger(self, entry: Entry) -> None:
        self.about = cast("About", entry.body)

    def _fold_checkpoint(self, entry: Entry) -> None:
        self.checkpoint = entry.seq

    def _fold_rekey(self, entry: Entry) -> None:
        """All entries before this one were chained anew; it keeps the head that they had."""
        self._replace(entry.body["before"], entry.seq)

    def _fold_restore(self, entry: Entry) -> None:
        """An operator continues with an older copy of the log; the lost head no longer counts."""
        if entry.body["lost"] is not None:
            self._replace(entry.body["lost"], entry.seq)
        self.witnessed = 0

    def _fold_witness(self, entry: Entry) -> None:
        """From here on the head is stored at this place."""
        self.witness = entry.body["place"]
        self.witnessed = 0

    def _fold_retired(self, entry: Entry) -> None:
        """All of this log is in another ledger, which goes on from here."""
        self.retired = entry.body["to"]

    def _fold_format(self, entry: Entry) -> None:
        """The log was upgraded here; where the entries before are computed otherwise today, the
        state that was written down then holds.
        """
        datasets = entry.body.get("datasets")
        if datasets is not None:
            self.datasets = {
                name: DatasetState.restored(name, held) for name, held in datasets.items()
            }

    def _replace(self, head: RecordedHead, by: int) -> None:
        self.replaced[head["seq"], head["hash"]] = by

    def _fold_dataset(self, entry: Entry) -> None:
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
        state = self.dataset(entry.dataset)
        terms = entry.body["terms"]
        account = account_of(terms)
        account.apply(state.shown(entry.analyst), entry.body["record"])
        state.limits[entry.analyst] = (terms, account)
        state.limited[entry.analyst] = entry.seq
        state.closed = [name for name in state.closed if name != owner_of(entry.analyst)]
        state.closed += entry.body.get("beyond", [])

    def _fold_version(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        state.version = entry.body["version"]
        state.versioned = entry.seq
        state.merge(entry.body.get("merged", {}))

    def _fold_renewal(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        state.terms = entry.body["terms"]
        state.account = account_of(entry.body["terms"])
        state.limits = {
            analyst: (terms, account_of(terms)) for analyst, (terms, _) in state.limits.items()
        }
        state.now = {}
        state.seen = {}
        state.closed = []
        state.renewals += 1
        state.renewed = entry.seq

    def _fold_charge(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        body = entry.body
        charge = Charge.parse(body["charge"])
        accounts = state.accounts(entry.analyst, body.get("segments"))
        beyond = body.get("beyond", [])
        paying = {owner: account for owner, account in accounts.items() if owner not in beyond}
        _take(paying, charge, body["records"])
        state.closed += [owner for owner in beyond if owner not in state.closed]
        state.kind = body["mechanism"].get("question_kind", state.kind)
        for totals in (state.now, state.ever):
            totals.setdefault(entry.analyst, Total()).add(charge)

    def _fold_release(self, entry: Entry) -> None:
        state = self.dataset(entry.dataset)
        body = entry.body
        unused = Charge.parse(body["unused"])
        accounts = state.accounts(entry.analyst, body.get("segments"))
        for owner, record in body["returned"].items():
            accounts[owner].revert(unused, record)
        if "dataset" in body["returned"]:
            for totals in (state.now, state.ever):
                totals[entry.analyst].subtract(unused)

    def _fold_reuse(self, entry: Entry) -> None:
        """An analyst is shown a stored answer charged to another: it counts against the analyst's
        limit.
        """
        state = self.dataset(entry.dataset)
        charge = Charge.parse(entry.body["charge"])
        _take(
            state.limits_of(entry.analyst, entry.body.get("segments")),
            charge,
            entry.body["records"],
        )
        state.seen.setdefault(entry.analyst, Total()).add(charge)


def _take(accounts: dict[str, Account], charge: Charge, records: Mapping[str, Record]) -> None:
    """Take a charge from all accounts at recorded terms."""
    if accounts.keys() != records.keys():
        raise LedgerError("a charge lacks the record of an account")
    for owner, account in accounts.items():
        account.apply(charge, records[owner])
