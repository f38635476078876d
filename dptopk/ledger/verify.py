"""Verification: the whole log is folded from its first entry, and each recorded decision is
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dptopk._internal.json_text import fingerprint
from dptopk.budgets.account_base import Account
from dptopk.costs import Charge
from dptopk.errors import LedgerError
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.entries import GENESIS, Entry
from dptopk.ledger.heads import Head
from dptopk.ledger.index import chain_hash_of
from dptopk.ledger.log_store import Store
from dptopk.ledger.replay import LAYOUT, LedgerState
from dptopk.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of a verification.

    Attributes:
        problems: what must not be in a log: a broken chain, a gap, an impossible history, a missing
            tail.
        warnings: decisions that stand, but that this version would make differently (another price
            or assignment).
        entries: the number of entries up to the first problem.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    entries: int


def is_part(used: Charge, whole: Charge) -> bool:
    """Return whether one charge is a part of another: no cost occurs more often in ``used`` than in
    ``whole``, and δ is not larger.
    """
    is_within_costs = all(times <= whole.costs.get(cost, 0) for cost, times in used)
    return is_within_costs and used.delta <= whole.delta


class _CostOnDataset(NamedTuple):
    """What an entry charges or uses, and of which data set.

    Attributes:
        dataset: the name of the data set; "", which no data set is named, for an entry that is not
            there.
        cost: the charge, or the part of it that an answer used.
    """

    dataset: str = ""
    cost: Charge = Charge()


class _DecisionAudit:
    """The checks of each entry's decision, which folding takes as recorded.

    A kind of entry that is checked has a method with the name of the kind. It takes the state
    before the entry, and the entry in today's format.

    Attributes:
        open_charges: number of a charge's entry -> the charge, if no release of it was seen yet.
        answers: number of a release's entry -> the costs that its answer used.
        warnings: the decisions that this version would make differently.
    """

    def __init__(self) -> None:
        self.open_charges: dict[int, _CostOnDataset] = {}
        self.answers: dict[int, _CostOnDataset] = {}
        self.warnings: list[str] = []

    def __call__(self, ledger: LedgerState, entry: Entry) -> None:
        """Check an entry before it is folded, by the method that has the name of its kind.

        Args:
            ledger: the state before the entry.
            entry: the entry, in today's format.

        Raises:
            LedgerError: if the entry could never have been written.
        """
        check = getattr(self, f"_{entry.kind}", None)
        if check is not None:
            check(ledger, entry)

    def _checkpoint(self, ledger: LedgerState, entry: Entry) -> None:
        """Refuse a checkpoint whose hash is not that of the state.

        Raises:
            LedgerError: naming the entry.
        """
        if entry.body["layout"] == LAYOUT and fingerprint(ledger.state()) != entry.body["state"]:
            raise LedgerError(
                f"entry {entry.seq} is a checkpoint of another state: the log was changed"
            )

    def _restore(self, ledger: LedgerState, entry: Entry) -> None:  # noqa: ARG002
        """Warn of entries that were lost when an older copy was accepted."""
        lost = entry.body["lost"]
        if lost is None and not entry.body.get("incomplete"):
            return
        if lost is None:
            lost_part = "what its log held was"
        else:
            lost_part = f"entries up to {lost['seq']} were"
        lost_part += " written before it and lost, with what was charged"
        self.warnings.append(f"entry {entry.seq} accepts a restored file: {lost_part}")

    def _format(self, ledger: LedgerState, entry: Entry) -> None:  # noqa: ARG002
        """Warn if the state recorded at an upgrade is used instead of the computed one."""
        if "datasets" in entry.body:
            self.warnings.append(
                f"entry {entry.seq}: the entries before it are computed otherwise today; the state "
                "that was written down then is used"
            )

    def _limit(self, ledger: LedgerState, entry: Entry) -> None:
        """Warn if a new limit would take another amount for what the analyst has learnt before."""
        self._warn_of_refusals(entry)
        learnt = ledger.dataset(entry.dataset).learnt_charge(entry.analyst)
        account = account_of(entry.body["terms"])
        self._warn(entry, account.disagreement(learnt, entry.body["record"]))

    def _version(self, ledger: LedgerState, entry: Entry) -> None:
        """Warn if the accounts of segments would start from other sums in a new version."""
        budgets = ledger.dataset(entry.dataset).budgets_by_owner()
        for owner, starting_point in entry.body.get("merged", {}).items():
            spent = str(budgets[owner].account.spent())
            if starting_point["charge"] != spent:
                self._warn(entry, f"{owner}: {starting_point['charge']} then, {spent} now")

    def _charge(self, ledger: LedgerState, entry: Entry) -> None:
        """Warn if an account would take another amount for a charge."""
        self._warn_of_refusals(entry)
        charge = Charge.parse(entry.body["charge"])
        self.open_charges[entry.seq] = _CostOnDataset(entry.dataset, charge)
        state = ledger.dataset(entry.dataset)
        accounts = state.accounts(entry.analyst, entry.body.get("segments"))
        self._warn_of_changes(entry, accounts, charge)

    def _release(self, ledger: LedgerState, entry: Entry) -> None:
        """Refuse a release without a charge, one that refunds too much, and one that refunds to a
        budget which was renewed since.

        Raises:
            LedgerError: naming the entry.
        """
        seq = entry.body["charge"]
        charged = self.open_charges.pop(seq, _CostOnDataset())
        if charged.dataset != entry.dataset:
            raise LedgerError(
                f"entry {entry.seq} releases entry {seq}, which is not an open charge of its "
                f"dataset"
            )
        used = Charge.parse(entry.body["used"])
        self.answers[entry.seq] = _CostOnDataset(entry.dataset, used)
        unused = Charge.parse(entry.body["unused"])
        # A release may give nothing back; otherwise it gives back all that was not used.
        refunds_other_part = bool(unused) and unused != charged.cost.minus(used)
        if not is_part(used, charged.cost) or refunds_other_part:
            raise LedgerError(f"entry {entry.seq} refunds more than was unused")
        state = ledger.dataset(entry.dataset)
        if entry.body["returned"] and seq < state.accounts_since:
            raise LedgerError(
                f"entry {entry.seq} refunds to a budget that was renewed or merged since"
            )

    def _reuse(self, ledger: LedgerState, entry: Entry) -> None:
        """Refuse the showing of a stored answer that charges a limit less than the answer has cost;
        warn if the limit would take another amount for it.

        Raises:
            LedgerError: naming the entry.
        """
        answer = self.answers.get(entry.body["answer"], _CostOnDataset())
        charge = Charge.parse(entry.body["charge"])
        if answer.dataset != entry.dataset or not is_part(answer.cost, charge):
            raise LedgerError(
                f"entry {entry.seq} charges less than the cost of the answer it shows"
            )
        state = ledger.dataset(entry.dataset)
        limits = state.limits_of(entry.analyst, entry.body.get("segments"))
        self._warn_of_changes(entry, limits, charge)

    def _warn_of_changes(self, entry: Entry, accounts: dict[str, Account], charge: Charge) -> None:
        """Warn of each account that would take another amount for a charge than was recorded.

        Args:
            entry: the entry that records what each account takes.
            accounts: the accounts that must pay, by owner.
            charge: the charge that they pay.
        """
        beyond = entry.body.get("beyond", [])
        for owner, account in accounts.items():
            if owner not in beyond:
                self._warn(entry, account.disagreement(charge, entry.body["records"][owner]))

    def _warn_of_refusals(self, entry: Entry) -> None:
        """Warn of each account that would refuse the entry today."""
        for owner in entry.body.get("beyond", []):
            self.warnings.append(
                f"entry {entry.seq} was accepted when it was written and would be refused now; "
                f"nothing more is taken from its account: {owner}"
            )

    def _warn(self, entry: Entry, difference: str) -> None:
        """Add a warning about an entry, unless ``difference`` is "", which stands for none."""
        if difference:
            self.warnings.append(f"entry {entry.seq}: {difference}")


def fold(
    entries: Iterator[Entry], key: bytes | None, heads: Sequence[Head] = ()
) -> tuple[Inspection, LedgerState]:
    """Fold a whole log into a new state, with a check of each entry.

    Args:
        entries: all entries of the log, in order.
        key: the secret of the hash chain; None: it has none.
        heads: heads whose entries the log must hold.

    Returns:
        What is wrong with the log, and the state after the last entry before the first problem.
    """
    audit = _DecisionAudit()
    state = LedgerState(key, audit)
    hash_at: dict[int, str | None] = {head.seq: None for head in heads}
    problems: list[str] = []
    try:
        for entry in entries:
            state.apply(entry)
            if entry.seq in hash_at:
                hash_at[entry.seq] = entry.hash
    except LedgerError as error:
        problems.append(str(error))
    if not problems and not state.last.seq:
        problems.append("the ledger is empty: it was never initialised")
    if not problems:
        for head in heads:
            problem = head.problem(state.about.get("id"), hash_at[head.seq])
            if problem and problem not in problems:
                problems.append(problem)
    return Inspection(tuple(problems), tuple(audit.warnings), state.last.seq), state


def head_problem(state: LedgerState, head: Head | None) -> str:
    """Return why a head does not confirm that a ledger is the present one; "" if it does.

    Args:
        state: the state of the ledger, which records where its head is stored.
        head: the head that is stored there; None: it is missing.
    """
    place = ""
    if state.head_place:
        place = f"{state.head_place['kind']} {state.head_place['name']!r}"
    if head is None:
        return (
            f"the head of this ledger is missing ({place}): without it nobody can say whether the "
            "ledger is an old copy. Is its disk mounted, and --head-file given? If it is lost for "
            "good: dptopk ledger witness replace"
        )
    confirmed_seq = state.last_confirmed_by(head)
    if confirmed_seq < state.last_confirmed:
        return (
            f"the head of this ledger ({place}) is an old copy: it names entry {confirmed_seq}, "
            f"and named entry {state.last_confirmed} before. Put the present one back; if it is "
            "lost for good: dptopk ledger witness replace"
        )
    return ""


def lookup_problems(log: Transaction, state: LedgerState) -> list[str]:
    """Return a problem if the rows that lead to keys and answers are not those of the log; else an
    empty list.

    Args:
        log: a transaction on the log.
        state: the state of the log; rows of later entries are not looked at.
    """
    chains = state.index.chains
    for bucket in sorted(log.buckets() | chains.keys()):
        if chain_hash_of(log.lookup_rows(bucket, state.last.seq)) != chains.get(bucket, GENESIS):
            problem = (
                "keys or answers of the log are not found: rows that lead to them are missing or "
                "were changed"
            )
            return [problem]
    return []


def inspect(
    store: Store,
    heads: Sequence[Head] = (),
    *,
    stored_head: Head | None = None,
    read_stored_head: Callable[[], Head | None] | None = None,
    head_exported: bool = False,
) -> Inspection:
    """Return all that is wrong with a ledger.

    The database checks itself, the log is folded, the rows that lead to its entries are compared
    with it, and its end must be the one that its head names.

    Args:
        store: the store of the log.
        heads: heads that were exported before, or seen by this process.
        stored_head: the head at the place where this ledger stores it; None: there is none.
        read_stored_head: a function that reads it again, for a ledger that is written to meanwhile;
            None: it is not read again.
        head_exported: whether a head that was exported is among ``heads``.
    """
    all_heads = list(heads) if stored_head is None else [*heads, stored_head]
    folding, state = fold(store.entries(), store.key, all_heads)
    problems = list(folding.problems)
    if not problems and state.head_place is not None and not head_exported:
        problem = head_problem(state, stored_head)
        if problem and read_stored_head is not None:
            problem = head_problem(state, read_stored_head())
        if problem:
            problems.append(problem)
    try:
        with store.transaction() as log:
            problems += log.damage()
            # Nothing is looked up in a log of an earlier format, whose rows may be others.
            if not problems and not state.is_earlier:
                problems += lookup_problems(log, state)
    except LedgerError as error:
        problems.append(str(error))
    return replace(folding, problems=tuple(dict.fromkeys(problems)))
