"""What pays for the plans of a session: its budget, or an answer that the ledger has stored."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded
from dptopk.histogram.histogram import Histogram
from dptopk.planning.gauge import Kind, covers_in_turn
from dptopk.planning.protocol import Plan, Step
from dptopk.release.release import Release
from dptopk.session.budget_backend import InMemoryBudget, LedgerBudget

if TYPE_CHECKING:
    from numpy.random import Generator

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionPaying:
    """The budget of a session as a plan sees it: it charges each step before it is drawn.

    Attributes:
        book: the budget that is charged, and in a ledger has the stored answers.
        histogram: the session's histogram.
        source: where the histogram comes from, in words; None: this very histogram.
        reuse: whether a stored answer to an identical step is given again, free.
        remember: a function that is called with each step that was paid for, and its answer.
        kind: the kind of the question that the steps answer, for the record; None: unknown.
    """

    book: InMemoryBudget | LedgerBudget
    histogram: Histogram
    source: str | None
    reuse: bool
    remember: Callable[[Step, Release], None]
    kind: Kind | None = None

    def covers(self, *plans: Plan) -> bool:
        """Return whether the accounts, as they are now, pay for one plan, or for several that are
        charged one after the other.

        Raises:
            IncompatibleCosts: where a single plan is stated for other neighbours, or has costs
                without a price; several such plans are not covered.
        """
        first, *others = plans
        accounts = self.book.accounts()
        if not others:
            return all(account.can_spend(first.charge, first.stated) for account in accounts)
        return all(covers_in_turn(account, first, *others) for account in accounts)

    def refuse(self, *charges: Charge) -> BudgetExceeded:
        """Return the error that refuses these charges together; the caller raises it."""
        return BudgetExceeded(Charge.join(*charges), self.book.account().remaining())

    def has(self, step: Step) -> bool:
        """Return whether the ledger has an answer to this step."""
        return self.book.has_answer(self.fingerprint_of(step))

    def known(self, step: Step) -> Release | None:
        """Return the stored answer to this step; None if there is none, or stored answers are not
        given again.
        """
        if self.reuse:
            return self.book.stored_answer(self.fingerprint_of(step))
        return None

    def answer(self, step: Step, rng: Generator | None) -> Release:
        """Return the answer to a step: a stored one, or one that is charged and then drawn.

        The part of the charge that the answer did not use is taken back.
        """
        stored_release = self.known(step)
        if stored_release is not None:
            _LOG.info("giving a stored answer again")
            if self.source:
                return stored_release
            return replace(stored_release, source=self.histogram.identity)
        _LOG.info("charging %s for %s", step.charge, step.text)
        receipt = self.book.charge(
            step.charge, self.fingerprint_of(step), step.text, stated=step.stated, kind=self.kind
        )
        _LOG.info("drawing")
        # The types of receipts differ, but each budget gets those that it gave.
        release = self.book.finalize(receipt, step.draw(rng))  # type: ignore[arg-type]
        self.remember(step, release)
        return release

    def fingerprint_of(self, step: Step) -> str:
        """Return a hash of everything that defines a step, apart from the data, under which its
        answer is stored; "", under which none is, for a step whose question is made from data.

        The histogram enters by what was stated about it and where it comes from, not by what it
        holds: whether it equals an earlier one must not show.
        """
        identity = step.plan.identity
        if identity is None:
            return ""
        mechanism, options = identity
        data = step.data
        size = data.domain_size if data.domain == "public" else None
        stated = [str(data.sensitivity), data.domain, size, data.complete, data.limit]
        if step.about:
            source_and_step = [self.source or self.histogram.identity, *step.about]
            origin = ["source", canonical_json(source_and_step)]
        elif self.source:
            origin = ["source", self.source]
        else:
            origin = ["histogram", data.identity]
        return fingerprint([step.text, str(step.charge), mechanism, options, stated, origin])
