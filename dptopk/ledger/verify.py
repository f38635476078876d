"""Verification: all of a log folded from its first entry, with every recorded decision asked for
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dptopk._internal.json_text import fingerprint
from dptopk.budgets.account_base import Account
from dptopk.costs import Charge
from dptopk.errors import LedgerError
from dptopk.ledger.budget_terms import account_of
from dptopk.ledger.entries import GENESIS, Entry
from dptopk.ledger.heads import Head
from dptopk.ledger.index import chain_of
from dptopk.ledger.log_store import Store
from dptopk.ledger.replay import LAYOUT, LedgerState
from dptopk.ledger.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Inspection:
    """The result of a verification.

    Attributes:
        problems: what must not be in a log: a broken chain, a gap, an impossible history, a missing
            tail.
        warnings: decisions that stand, but that this version would take otherwise (another price or
            assignment).
        entries: how many entries are good.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...]
    entries: int


def is_part(used: Charge, whole: Charge) -> bool:
    """Whether a charge is part of another: no cost occurs more often, no larger δ."""
    fewer = all(times <= whole.costs.get(cost, 0) for cost, times in used)
    return used.delta <= whole.delta and fewer


class _ChainAudit:
    """Asks, entry by entry, what folding takes as recorded."""

    def __init__(self) -> None:
        self.charges: dict[
            int, tuple[str, str, Charge]
        ] = {}  # not released yet: dataset, analyst, charge
        self.answers: dict[int, tuple[str, Charge]] = {}
        self.warnings: list[str] = []

    def __call__(self, ledger: LedgerState, entry: Entry) -> None:
        """Look at an entry before it is folded into a state."""
        ask = getattr(self, f"_{entry.kind}", None)
        if ask is not None:
            ask(ledger, entry)

    def _checkpoint(self, ledger: LedgerState, entry: Entry) -> None:
        if entry.body["layout"] == LAYOUT and fingerprint(ledger.state()) != entry.body["state"]:
            raise LedgerError(
                f"entry {entry.seq} is a checkpoint of another state: the log was changed"
            )

    def _restore(self, ledger: LedgerState, entry: Entry) -> None:  # noqa: ARG002
        lost = entry.body["lost"]
        if lost is not None or entry.body.get("incomplete"):
            if lost is None:
                what = "what its log held was"
            else:
                what = f"entries up to {lost['seq']} were"
            what += " written before it and lost, with what was charged"
            self.warnings.append(f"entry {entry.seq} accepts a restored file: {what}")

    def _format(self, ledger: LedgerState, entry: Entry) -> None:  # noqa: ARG002
        if "datasets" in entry.body:
            self.warnings.append(
                f"entry {entry.seq}: the entries before it are computed otherwise today; the state "
                "that was written down then is used"
            )

    def _limit(self, ledger: LedgerState, entry: Entry) -> None:
        self._beyond(entry)
        shown = ledger.dataset(entry.dataset).shown(entry.analyst)
        self._differs(
            entry, account_of(entry.body["terms"]).disagreement(shown, entry.body["record"])
        )

    def _version(self, ledger: LedgerState, entry: Entry) -> None:
        held = entry.body.get("merged", {})
        now = ledger.dataset(entry.dataset).by_owner()
        for owner, merge_terms in held.items():
            spent = str(now[owner][1].spent())
            if merge_terms["charge"] == spent:
                other = ""
            else:
                other = f"{owner}: {merge_terms['charge']} then, {spent} now"
            self._differs(entry, other)

    def _charge(self, ledger: LedgerState, entry: Entry) -> None:
        self._beyond(entry)
        charge = Charge.parse(entry.body["charge"])
        self.charges[entry.seq] = (entry.dataset, entry.analyst, charge)
        self._check_record(
            entry,
            ledger.dataset(entry.dataset).accounts(entry.analyst, entry.body.get("segments")),
            charge,
        )

    def _release(self, ledger: LedgerState, entry: Entry) -> None:
        seq = entry.body["charge"]
        dataset, _, charge = self.charges.pop(seq, ("", "", Charge()))
        if dataset != entry.dataset:
            raise LedgerError(
                f"entry {entry.seq} releases entry {seq}, which is not an open charge of its "
                f"dataset"
            )
        used = Charge.parse(entry.body["used"])
        self.answers[entry.seq] = (entry.dataset, used)
        unused = Charge.parse(entry.body["unused"])
        if not is_part(used, charge) or (unused and unused != charge.minus(used)):
            raise LedgerError(f"entry {entry.seq} refunds more than was unused")
        state = ledger.dataset(entry.dataset)
        if entry.body["returned"] and seq < max(
            state.renewed, state.versioned if state.segments else 0
        ):
            raise LedgerError(
                f"entry {entry.seq} refunds to a budget that was renewed or merged since"
            )

    def _reuse(self, ledger: LedgerState, entry: Entry) -> None:
        dataset, used = self.answers.get(entry.body["answer"], ("", Charge()))
        charge = Charge.parse(entry.body["charge"])
        if (
            dataset != entry.dataset
            or not is_part(used, charge)
            or Fraction(charge.delta) < Fraction(used.delta)
        ):
            raise LedgerError(
                f"entry {entry.seq} charges less than the cost of the answer it shows"
            )
        self._check_record(
            entry,
            ledger.dataset(entry.dataset).limits_of(entry.analyst, entry.body.get("segments")),
            charge,
        )

    def _check_record(self, entry: Entry, accounts: dict[str, Account], charge: Charge) -> None:
        beyond = entry.body.get("beyond", [])
        for owner, account in accounts.items():
            if owner not in beyond:
                self._differs(entry, account.disagreement(charge, entry.body["records"][owner]))

    def _beyond(self, entry: Entry) -> None:
        for owner in entry.body.get("beyond", []):
            self.warnings.append(
                f"entry {entry.seq} was accepted when it was written and would be refused now; "
                f"nothing more is taken from its account: {owner}"
            )

    def _differs(self, entry: Entry, difference: str) -> None:
        if difference:
            self.warnings.append(f"entry {entry.seq}: {difference}")


def fold(
    entries: Iterator[Entry], key: bytes | None, heads: Sequence[Head] = ()
) -> tuple[Inspection, LedgerState]:
    """Fold a whole log; what was found, and the state after the last good entry."""
    audit = _ChainAudit()
    state = LedgerState(key, audit)
    there: dict[int, str | None] = {head.seq: None for head in heads}
    problems: list[str] = []
    try:
        for entry in entries:
            state.apply(entry)
            if entry.seq in there:
                there[entry.seq] = entry.hash
    except LedgerError as error:
        problems.append(str(error))
    if not problems and not state.last[0]:
        problems.append("the ledger is empty: it was never initialised")
    if not problems:
        found = (head.problem(state.about.get("id"), there[head.seq]) for head in heads)
        problems += dict.fromkeys(filter(None, found))
    return Inspection(tuple(problems), tuple(audit.warnings), state.last[0]), state


def unwitnessed(state: LedgerState, head: Head | None) -> str:
    """Say why a ledger with a head is not to be believed by this one; '' if it is."""
    if state.witness:
        place = f"{state.witness['kind']} {state.witness['name']!r}"
    else:
        place = ""
    if head is None:
        return (
            f"the head of this ledger is missing ({place}): without it nobody can say whether the "
            "ledger is an old copy. Is its disk mounted, and --head-file given? If it is lost for "
            "good: dptopk ledger witness replace"
        )
    reached = state.last_named_by(head)
    if reached < state.witnessed:
        return (
            f"the head of this ledger ({place}) is an old copy: it names entry {reached}, and "
            f"named entry {state.witnessed} before. Put the present one back; if it is lost for "
            "good: dptopk ledger witness replace"
        )
    return ""


def misplaced(log: Transaction, state: LedgerState) -> list[str]:
    """Report wrong lookup rows for the keys and answers of a log, up to the last entry of a
    state.
    """
    chains = state.index.chains
    for bucket in sorted(log.buckets() | chains.keys()):
        if chain_of(log.places(bucket, state.last[0])) != chains.get(bucket, GENESIS):
            return [
                (
                    "keys or answers of the log are not found: rows that lead to them are missing "
                    "or were changed"
                )
            ]
    return []


def inspect(
    store: Store,
    heads: Sequence[Head] = (),
    *,
    witness: Head | None = None,
    head_exported: bool = False,
) -> Inspection:
    """All that is wrong with a ledger: its database by the database's own check, its log, what
    leads to its entries, and that its end is the one that its head names.

    Args:
        store: of the log.
        heads: exported before, or seen by this process.
        witness: the head at the place where this ledger stores it.
        head_exported: whether a head that was exported is among ``heads``.
    """
    known = list(heads) if witness is None else [*heads, witness]
    found, state = fold(store.entries(), store.key, known)
    problems = list(found.problems)
    if not problems and state.witness is not None and not head_exported:
        problems += filter(None, [unwitnessed(state, witness)])
    try:
        with store.transaction() as log:
            problems += log.damage()
            if not problems and not state.is_earlier:
                problems += misplaced(log, state)
    except LedgerError as error:
        problems.append(str(error))
    return replace(found, problems=tuple(dict.fromkeys(problems)))
