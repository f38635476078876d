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
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.mechanisms.named import mechanism_of
from dptopk.planning.gauge import Kind, kind_of
from dptopk.release.release import Release

if TYPE_CHECKING:
    from dptopk.ledger.ledger import Ledger
    from dptopk.ledger.spends import Receipt, Spend


# An answer with more characters of JSON than this is not stored in a ledger. Chosen by hand: it has
# room for a thousand labels of a thousand letters, four times over.
MOST_STORED = 2**22

# An Accountant may serve several sessions and threads: no other spend may come between a check and
# the spend that follows it.
_SPENDING = threading.RLock()


class InMemoryBudget:
    """The budget of a session without a ledger: an account in the memory of this process.

    Attributes:
        own_budget: the budget that the session was given, if the account was made of it, so that
            nobody else spends from it; else None.

    Args:
        budget: a Budget, of which an account is made, or an account that others may use too.

    Raises:
        InvalidParameter: if it is neither.
    """

    def __init__(self, budget: Budget | Account | None) -> None:
        self.own_budget: Budget | None = None
        self._segments: Segments | None = None
        if isinstance(budget, Budget):
            self.own_budget = budget
            self._account: Account = Accountant.filter(budget)
        elif isinstance(budget, Account):
            self._account = budget
        else:
            raise InvalidParameter(
                f"budget must be a Budget or an Accountant, got {type(budget).__name__}"
            )

    def stored_answer(self, query: str) -> Release | None:  # noqa: ARG002
        """Return None: nothing is stored without a ledger."""
        return None

    def has_answer(self, query: str) -> bool:  # noqa: ARG002
        """Return False: nothing is stored without a ledger."""
        return False

    def require_coverage(self, *sensitivities: Sensitivity) -> None:
        """Accept every sensitivity: without a ledger nobody has stated that of the data."""

    def charge(
        self,
        charge: Charge,
        query: str,  # noqa: ARG002
        mechanism: str,  # noqa: ARG002
        *,
        stated: Budget | None = None,
        kind: Kind | None = None,  # noqa: ARG002
    ) -> tuple[Charge, Record]:
        """Spend a charge, and return the receipt that ``finalize`` takes.

        Args:
            charge: the costs to spend.
            query: what a ledger would store the answer under; not used.
            mechanism: what a ledger would record; not used.
            stated: the (ε, δ) that the question states for the charge; None: none.
            kind: what a ledger would record; not used.

        Raises:
            BudgetExceeded: if it does not fit; nothing was spent.
        """
        with _SPENDING:
            return charge, self._account.spend(charge, stated=stated)

    def finalize(self, receipt: tuple[Charge, Record], release: Release) -> Release:
        """Take back the part of the charge that the answer did not use; return the answer.

        If there is no sound way to take it back, it stays charged.
        """
        charge, record = receipt
        unused = charge.minus(release.charge)
        if unused:
            with _SPENDING, suppress(InvalidParameter):
                self._account.revert(unused, self._account.quote_refund(unused, record))
        return release

    def account(self) -> Account:
        """Return the account that is charged."""
        return self._account

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts that a question has to be paid from, of which there is one."""
        return (self._account,)

    def kind(self) -> Kind | None:
        """Return None: without a ledger the last question of others is not known."""
        return None

    def declare(self, segments: Segments) -> None:
        """Give each segment a separate account with what is left of the budget, unless these
        segments have accounts already.

        Raises:
            InvalidParameter: if other segments were declared before, or others may spend from this
                account.
        """
        with _SPENDING:
            if self.own_budget is not None and self._segments is None:
                self._account = _account_of_each(segments, self._account)
                self._segments = segments
        if not self.has_segments(segments):
            raise InvalidParameter(
                "segments: others were declared before, or others may spend from this budget; give "
                "the session a Budget, or a dptopk.budgets.Parallel with an account for each "
                "segment"
            )

    def has_segments(self, segments: Segments) -> bool:
        """Return whether each of these segments has a separate account.

        Where the account was made of the session's own Budget, only the very object that was
        declared has: other segments of the same names may hold other users.

        Where a Parallel account was given, its names decide, and each user must be in one segment
        only: for a user in several segments, what their accounts paid would have to be added up.
        """
        if self.own_budget is not None:
            return self._segments is segments
        if not isinstance(self._account, Parallel):
            return False
        return segments.segments_per_user == 1 and segments.keys() <= self._account.parts.keys()

    def of_segments(self, *names: Hashable) -> InMemoryBudget:
        """Return the budget of some of the segments, by their names.

        Raises:
            InvalidParameter: where no segments were declared.
        """
        account = self._account
        if not isinstance(account, Parallel):
            raise InvalidParameter("segments: none were declared")
        return InMemoryBudget(account.only(*names))


class LedgerBudget:
    """The account of a data set in a ledger, as one analyst uses it.

    Attributes:
        own_budget: None; others may spend from this account.
        owner: the names of the data set and of the analyst.
        unit: the privacy unit that the session states; None: not stated.

    Args:
        ledger: the ledger.
        dataset, analyst: the account.
        histogram: the session's histogram, whose sensitivity is checked against the data set's.
        version: the version of the data as stated; None: not checked.
        unit: the privacy unit as stated; None: not checked.
        seeded: whether noise is drawn with a fixed seed, which only a ledger for tests accepts.
    """

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
        self.own_budget: Budget | None = None
        # The version at which the session began, which ``of_segments`` holds it to.
        self._first_version = ledger.state(dataset).version if version is None else version
        self._seeded = seeded
        self.owner = {"dataset": dataset, "analyst": analyst}
        self.unit = unit

    def stored_answer(self, query: str) -> Release | None:
        """Return the stored answer to an identical question on the same version of the data, at no
        charge; None if there is none.

        Args:
            query: the hash of the question, as ``SessionPaying.fingerprint_of`` makes it.
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
        note = "given again from the ledger: no further charge"
        if release.note:
            note = f"{release.note}; {note}"
        mechanism = _mechanism_of_record(release.mechanism)
        return replace(release, charge=free, phases={}, mechanism=mechanism, note=note)

    def has_answer(self, query: str) -> bool:
        """Return whether an identical question on the same version of the data has a stored answer;
        nothing is charged.
        """
        return self._ledger.stored_answer(self._dataset, query) is not None

    def require_coverage(self, *sensitivities: Sensitivity) -> None:
        """Refuse histograms made for users who can change less than those of the data set can.

        Raises:
            InvalidParameter: naming the sensitivities.
        """
        declared = self._ledger.state(self._dataset).sensitivity
        for sensitivity in sensitivities:
            if not sensitivity.covers(declared):
                raise InvalidParameter(
                    f"sensitivity: a segment is made for {sensitivity}, the dataset has {declared}"
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
        """Write a charge to the ledger, and return its receipt.

        Args:
            charge: the costs to spend.
            query: the hash of the question, under which its stored answer can be found again; "":
                it cannot be found.
            mechanism: what runs, in words.
            stated: the (ε, δ) that the question states for the charge; None: none.
            kind: the kind of the question, for the record; None: unknown.
            once: a key under which the charge is made once; a second call returns the first one's
                receipt. "": each call charges.
            about: further facts for the record, by name.

        Raises:
            BudgetExceeded: if it does not fit; nothing was charged.
            InvalidParameter, LedgerError: as ``Ledger.charge``.
        """
        record = {"text": mechanism} | about
        if kind is not None:
            record["question_kind"] = kind.plain()
        # The free record of a stream's day is not checked against the data set: the stream was.
        is_checked = bool(charge) or not once
        return self._ledger.charge(
            self._dataset, self._analyst, charge, query=query, mechanism=record,
            seeded=self._seeded, once=once, stated=stated,
            segments=self._segments,
            sensitivity=self._sensitivity if is_checked else None,
            version=self._version if is_checked else None,
            unit=self._unit if is_checked else None,
        )  # fmt: skip

    def asked(self, key: str) -> Spend | None:
        """Return the charge that was made once under a key, and whether it was answered; None if
        there is none.
        """
        return self._ledger.asked(self._dataset, self._analyst, key)

    def finalize(self, receipt: Receipt, release: Release) -> Release:
        """Record the answer of a charge, and return it.

        The answer is paid for: if it cannot be stored it is returned nevertheless, with a note.
        """
        answer = release.to_dict()
        problem = ""
        too_long = len(canonical_json(answer)) > MOST_STORED  # labels are as long as users like
        if too_long:
            problem = "not stored in the ledger: it is too long"
        try:
            self._ledger.finalize(receipt, release.charge, answer=None if too_long else answer)
        except LedgerError as error:
            problem = (
                f"not stored in the ledger ({error}): entry {receipt.seq} stays charged in full"
            )
        notes = [note for note in (release.note, problem) if note]
        return replace(release, note="; ".join(notes))

    def account(self) -> Account:
        """Return the account that pays for this analyst's questions, as it is now; it is a copy,
        which spends nothing.
        """
        account = self._ledger.state(self._dataset).account
        # An analyst without a share cannot spend, but can have stored answers.
        with suppress(BudgetExceeded):
            account = account.account(self._analyst)
        if self._segments and isinstance(account, Parallel):
            return account.only(*self._segments)
        return account

    def accounts(self) -> tuple[Account, ...]:
        """Return all accounts that a question of this analyst has to be paid from: the data
        set's or their share of it, and the analyst's limits.

        They are copies as of now, which spend nothing.
        """
        state = self._ledger.state(self._dataset)
        limits = state.limits_of(self._analyst, self._segments)
        return (self.account(), *limits.values())

    def kind(self) -> Kind | None:
        """Return the kind of the last question to the data set whose charge recorded one, whoever
        asked it (the usual kind if that record cannot be read); None if no charge did.
        """
        state = self._ledger.state(self._dataset)
        if state.last_question_kind is None:
            return None
        return kind_of(state.last_question_kind, state.account, state.sensitivity)

    def declare(self, segments: Segments) -> None:
        """Refuse segments that the ledger does not know: only the owner of the data can declare
        them.

        Raises:
            InvalidParameter: naming their column and the data set.
        """
        if not self.has_segments(segments):
            raise InvalidParameter(
                f"segments: the ledger has no such segments by {segments.by!r} of the dataset "
                f"{self._dataset!r}; they are declared when it is created"
            )

    def has_segments(self, segments: Segments) -> bool:
        """Return whether the ledger has a separate account for each of these segments."""
        in_ledger = self._ledger.state(self._dataset).segments
        if in_ledger is None or segments.segments_per_user > 1 or self._segments is not None:
            return False
        return in_ledger["by"] == segments.by and set(segments) <= set(in_ledger["names"])

    def of_segments(self, *names: str) -> LedgerBudget:
        """Return the budget of some of the segments, for the version of the data at which the
        session began.

        In the next version a user may be in another segment, whose account would pay for new
        questions: an answer from the old data would then be paid for by nobody.
        """
        self._version = self._first_version  # of this session too, which shares the accounts
        budget = copy.copy(self)
        budget._segments = names  # noqa: SLF001
        return budget


def _account_of_each(segments: Segments, account: Account) -> Parallel:
    """Return an account with a part for each segment; each part has the terms and the spends of a
    session's filter.

    Args:
        segments: the segments.
        account: the session's filter.
    """
    filter_ = validate.instance(Filter, budget=account)
    return Parallel({name: filter_.copy_of_terms() for name in segments})


def _mechanism_of_record(plain: object) -> Any:
    """Return the mechanism that a stored answer records.

    Args:
        plain: the record, as ``Mechanism.to_dict`` makes it; text, and a record that no known
            mechanism has written, is returned as it is.
    """
    if not isinstance(plain, Mapping):
        return plain
    try:
        return mechanism_of(plain)
    except InvalidParameter:
        return plain
