"""This module says what pays for the plans of a session: its budget, and the answers that a ledger
has stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dptopk._internal.json_text import canonical_json, fingerprint
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded
from dptopk.histogram.histogram import Histogram
from dptopk.planning.gauge import Kind
from dptopk.planning.protocol import Plan, Step
from dptopk.release.release import Release
from dptopk.session.budget_backend import InMemoryBudget, LedgerBudget, covers_in_turn

if TYPE_CHECKING:
    from numpy.random import Generator

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SessionPaying:
    """Pays for the steps of a plan out of a session's budget.

    Attributes:
        book: the budget.
        histogram: of the session.
        source: where it comes from, in words; None: this very histogram.
        reuse: whether a stored answer to an identical step is given again, free.
        remember: told each step that was paid for, and its answer.
        kind: of the question that the steps answer, for the record; None: unknown.
    """

    book: InMemoryBudget | LedgerBudget
    histogram: Histogram
    source: str | None
    reuse: bool
    remember: Callable[[Step, Release], None]
    kind: Kind | None = None

    def covers(self, *plans: Plan) -> bool:
        """Whether the accounts, as they are now, pay for one plan, or for one and then another."""
        first, *then = plans
        accounts = self.book.accounts()
        if not then:
            return all(account.can_spend(first.charge, first.stated) for account in accounts)
        return all(covers_in_turn(account, first, *then) for account in accounts)

    def refuse(self, *charges: Charge) -> BudgetExceeded:
        """The refusal of these charges together."""
        return BudgetExceeded(Charge.join(*charges), self.book.account().remaining())

    def has(self, step: Step) -> bool:
        """Whether the ledger has an answer to this step."""
        return self.book.has_answer(self.name(step))

    def known(self, step: Step) -> Release | None:
        """The stored answer to this step, where it may be given again."""
        if self.reuse:
            return self.book.stored(self.name(step))
        return None

    def answer(self, step: Step, rng: Generator | None) -> Release:
        """Give a stored answer again; or charge, draw, and take back what was not used."""
        stored = self.known(step)
        if stored is not None:
            _LOG.info("giving a stored answer again")
            if self.source:
                return stored
            return replace(stored, source=self.histogram.identity)
        _LOG.info("charging %s for %s", step.charge, step.text)
        receipt = self.book.charge(
            step.charge, self.name(step), step.text, stated=step.stated, kind=self.kind
        )
        _LOG.info("drawing")
        # each book takes the receipts that it gave
        release = self.book.finalize(receipt, step.draw(rng))  # type: ignore[arg-type]
        self.remember(step, release)
        return release

    def name(self, step: Step) -> str:
        """A hash of everything that defines a step, apart from the data; '' for one that is made
        of data.

        The histogram stands here as what was stated about it and where it comes from, not as what
        it holds: whether it equals an earlier one must not show.
        """
        identity = step.plan.identity
        if identity is None:
            return ""
        planned, options = identity
        data = step.data
        size = data.domain_size if data.domain == "public" else None
        about = [str(data.sensitivity), data.domain, size, data.complete, data.limit]
        if self.source:
            origin = ["source", self.source]
        else:
            origin = ["histogram", data.identity]
        if step.about:
            source_and_step = [self.source or self.histogram.identity, *step.about]
            origin = ["source", canonical_json(source_and_step)]
        return fingerprint([step.text, str(step.charge), planned, options, about, origin])
