"""The budget of a session: an account in memory, or a data set's account in a ledger."""

from __future__ import annotations

import copy
import threading
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dptopk._internal import validate
from dptopk._internal.json_text import canonical_json
from dptopk.budgets.account_base import Account, Record
from dptopk.budgets.filter import Filter
from dptopk.budgets.parallel import Parallel
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import Budget, Charge
from dptopk.datasets.segments import Segments
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.named import mechanism_of
from dptopk.planning import Plan
from dptopk.planning.gauge import Kind, kind_of
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger
    from dptopk.ledger.spends import Receipt, Spend


MOST_STORED = (
    2**22
    # characters of an answer that a ledger keeps: a thousand labels of a thousand letters, four
    # times
)

# An Accountant may serve several sessions and threads: a check and the spend that follows must not
# be torn apart.
_SPENDING = threading.RLock()


class InMemoryBudget:
    """The budget of a session without a ledger."""

    def __init__(self, budget: Budget | Account | None) -> None:
        self._own = isinstance(budget, Budget)  # then nobody else spends from the account
        self.own = budget if isinstance(budget, Budget) else None
        self._segments: Segments | None = None
        if isinstance(budget, Budget):
            self._account: Account = Accountant.filter(budget)
        elif isinstance(budget, Account):
            self._account = budget
        else:
            raise InvalidParameter(
                f"budget must be a Budget or an Accountant, got {type(budget).__name__}"
            )

    def stored(self, query: str) -> Release | None:  # noqa: ARG002
        """Nothing is stored without a ledger."""
        return None

    def has_answer(self, query: str) -> bool:  # noqa: ARG002
        """Nothing is stored without a ledger."""
        return False

    def fits(self, *sensitivities: Sensitivity) -> None:
        """Nothing is known of the data but the histograms."""

    def charge(
        self,
        charge: Charge,
        query: str,  # noqa: ARG002
        mechanism: str,  # noqa: ARG002
        *,
        stated: Budget | None = None,
        kind: Kind | None = None,  # noqa: ARG002
    ) -> tuple[Charge, Record]:
        """Spend it; ``stated``: the (ε, δ) that the question states for it."""
        with _SPENDING:
            return charge, self._account.spend(charge, stated=stated)

    def finalize(self, receipt: tuple[Charge, Record], release: Release) -> Release:
        """Take back what was not used."""
        charge, record = receipt
        unused = charge.minus(release.charge)
        if unused:
            with (
                _SPENDING,
                suppress(InvalidParameter),
            ):  # no sound way to take it back: it stays charged
                self._account.revert(unused, self._account.quote_refund(unused, record))
        return release

    def account(self) -> Account:
        """The account that is charged."""
        return self._account

    def accounts(self) -> tuple[Account, ...]:
        """All accounts that a question has to be paid from: this one."""
        return (self._account,)

    def kind(self) -> Kind | None:
        """The kind of the last question of others: not known without a ledger."""
        return None

    def declare(self, segments: Segments) -> None:
        """Let each segment have what is left of the budget."""
        with _SPENDING:
            if self._own and self._segments is None:
                self._account = _for_each(segments, self._account)
                self._segments = segments
        if not self.declared(segments):
            raise InvalidParameter(
                "segments: others were declared before, or others may spend from this budget; "
                "give the session a "
                "Budget, or a dptopk.budgets.Parallel with an account for each segment"
            )

    def declared(self, segments: Segments) -> bool:
        """Whether these segments have separate accounts."""
        if self._own:
            return self._segments is segments
        parts = self._account.parts if isinstance(self._account, Parallel) else {}
        return segments.segments_per_user == 1 and segments.keys() <= parts.keys()

    def only(self, *names: Hashable) -> InMemoryBudget:
        """The book of some of the segments."""
        account = self._account
        if not isinstance(account, Parallel):
            raise InvalidParameter("segments: none were declared")
        return InMemoryBudget(account.only(*names))


class LedgerBudget:
    """A dataset's account in a ledger, as one analyst sees it."""

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        analyst: str,
        histogram: Histogram,
        version: str | None,
        unit: str | None,
        seeded: bool,
    ) -> None:
        self._segments: tuple[str, ...] | None = None
        self._ledger = ledger
        self._dataset = dataset
        self._analyst = analyst
        self._sensitivity = histogram.sensitivity
        self._version = version
        self._unit = unit
        self.own: Budget | None = None
        self._first_version = ledger.state(dataset).version if version is None else version
        self._seeded = seeded
        self.owner = {"dataset": dataset, "analyst": analyst}
        self.unit = unit

    def stored(self, query: str) -> Release | None:
        """The stored answer to an identical question on the same data version, free of charge to
        the data set.
        """
        answer = self._ledger.reuse(
            self._dataset,
            self._analyst,
            query,
            sensitivity=self._sensitivity,
            version=self._version,
            unit=self._unit,
        )
        if answer is None:
            return None
        release = Release.from_dict(answer)
        free = Charge(neighbours=release.charge.neighbours)
        again = "given again from the ledger: no further charge"
        note = f"{release.note}; {again}" if release.note else again
        return replace(
            release, charge=free, phases={}, mechanism=_rebuilt(release.mechanism), note=note
        )

    def has_answer(self, query: str) -> bool:
        """Whether an identical question on the same data version has a stored answer; nothing is
        charged.
        """
        return self._ledger.stored_answer(self._dataset, query) is not None

    def fits(self, *sensitivities: Sensitivity) -> None:
        """Refuse what was made for users who move less than those of the dataset do."""
        truth = self._ledger.state(self._dataset).sensitivity
        for claimed in sensitivities:
            if not claimed.covers(truth):
                raise InvalidParameter(
                    f"sensitivity: a segment is made for {claimed}, the dataset has {truth}"
                )

    def charge(
        self,
        charge: Charge,
        query: str,
        mechanism: str,
        *,
        stated: Budget | None = None,
        kind: Kind | None = None,
        once: str = "",
        **about: Any,
    ) -> Receipt:
        """Write the charge down; ``once``: where it was under this key, it is not charged again;
        ``stated``: the (ε, δ) that the question states for it; ``kind``: of the question.
        """
        described = {"text": mechanism} | about
        if kind is not None:
            described["question_kind"] = kind.plain()
        fits = bool(charge) or not once
        return self._ledger.charge(
            self._dataset, self._analyst, charge, query=query, mechanism=described,
            seeded=self._seeded, once=once, stated=stated,
            segments=self._segments,
            sensitivity=self._sensitivity if fits else None,
            version=self._version if fits else None,
            unit=self._unit if fits else None,
        )  # fmt: skip

    def asked(self, key: str) -> Spend | None:
        """Return the charge under a key, and its state."""
        return self._ledger.asked(self._dataset, self._analyst, key)

    def finalize(self, receipt: Receipt, release: Release) -> Release:
        """Record the answer. It is already charged: if it cannot be stored it is returned
        nevertheless, with a note.
        """
        written = release.to_dict()
        lost = ""
        if len(canonical_json(written)) > MOST_STORED:  # labels are as long as users make them
            answer = None
            lost = "not stored in the ledger: it is too long"
        else:
            answer = written
        try:
            self._ledger.finalize(receipt, release.charge, answer=answer)
        except LedgerError as error:
            lost = f"not stored in the ledger ({error}): entry {receipt.seq} stays charged in full"
        return replace(release, note="; ".join(filter(None, (release.note, lost))))

    def account(self) -> Account:
        """The analyst's account of the data set as it is now: a copy that spends nothing."""
        account = self._ledger.state(self._dataset).account
        with suppress(BudgetExceeded):  # who has no share can have stored answers
            account = account.account(self._analyst)
        if self._segments and isinstance(account, Parallel):
            return account.only(*self._segments)
        return account

    def accounts(self) -> tuple[Account, ...]:
        """All accounts that a question of this analyst has to be paid from: that of the data set,
        and the analyst's limit; copies that spend nothing.
        """
        state = self._ledger.state(self._dataset)
        limits = state.limits_of(self._analyst, self._segments)
        return (self.account(), *limits.values())

    def kind(self) -> Kind | None:
        """The kind of the data set's last question, whoever asked it."""
        state = self._ledger.state(self._dataset)
        if state.kind is None:
            return None
        return kind_of(state.kind, state.account, state.sensitivity)

    def declare(self, segments: Segments) -> None:
        """Refuse segments that the ledger does not know: who owns the data declares them."""
        if not self.declared(segments):
            raise InvalidParameter(
                f"segments: the ledger has no such segments by {segments.by!r} of the dataset "
                f"{self._dataset!r}; "
                "they are declared when it is created"
            )

    def declared(self, segments: Segments) -> bool:
        """Whether the ledger has a separate account for each of these segments."""
        known = self._ledger.state(self._dataset).segments
        if known is None or segments.segments_per_user > 1 or self._segments is not None:
            return False
        return known["by"] == segments.by and set(segments) <= set(known["names"])

    def only(self, *names: str) -> LedgerBudget:
        """The book of some of the segments, in the version of the data that there was when the
        session began.

        With the next version a user may be in another segment, and its account is that of the new
        one: an answer from the old data would be paid for by nobody.
        """
        self._version = self._first_version
        backend = copy.copy(self)
        backend._segments = names  # noqa: SLF001
        return backend


def _for_each(segments: Segments, account: Account) -> Parallel:
    """Accounts for all segments, each as a session's own filter is now."""
    own = validate.instance(Filter, budget=account)
    return Parallel({name: own.copy_of_terms() for name in segments})


def covers_in_turn(account: Account, first: Plan, then: Plan) -> bool:
    """Whether an account covers one plan and then another; nothing is spent."""
    if not isinstance(account, Filter):
        return account.can_spend(Charge.join(first.charge, then.charge))
    with suppress(BudgetExceeded, IncompatibleCosts):
        trial = account.copy_of_terms()
        trial.spend(first.charge, stated=first.stated)
        return trial.can_spend(then.charge, then.stated)
    return False


def _rebuilt(plain: object) -> Any:
    """The mechanism of a stored answer; what no mechanism has written stays as it is."""
    with suppress(InvalidParameter):
        if isinstance(plain, Mapping):
            return mechanism_of(plain)
        return plain
    return plain
