"""Common base of all budget accounts: one owner process, one spend at a time, no copies, records.

An account in memory is the only record of what was spent. So a copy, a pickle or a forked process
would be a second budget: all three are refused. A check and the spend that follows happen under one
lock.

``quote`` says what a spend would take, as a record that can be kept as JSON; ``apply`` takes it. A
ledger keeps the record with the charge: read again, on another processor or by a later version, it
is taken as it was written, and ``disagreement`` says where the account would decide otherwise
today.
"""

from __future__ import annotations

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from dptopk._internal.formatting import format_upper, html_lines, html_table
from dptopk.accounting import bounds
from dptopk.accounting.registry import Bound
from dptopk.costs import Budget, Charge, Cost
from dptopk.errors import BudgetExceeded, InvalidParameter

Record = dict[str, Any]  # what an account says of a spend, or of its own state, as JSON
LARGEST_FIT = 2**30  # the largest answer of ``fits``


@dataclass(frozen=True, slots=True)
class Summary:
    """An account in numbers, at one moment.

    Attributes:
        epsilon_spent: the reading of what was spent, at ``delta``; not a guarantee (see
            ``Account.reading``).
        epsilon_total: the guarantee, at ``delta``, now and later.
        delta: the δ of both.
        share: ``epsilon_spent`` over ``epsilon_total``; 0 where the total is not finite.
        shares: how much of each kind of budget is used: of each registered cost, or of ε and of the
            failure part of δ.
    """

    epsilon_spent: float
    epsilon_total: float
    delta: float
    share: float
    shares: Mapping[str, float]
    _account: Account

    def fits(self, charge: Charge) -> int:
        """Return how many more times a charge fits into the account as it is, at most
        LARGEST_FIT.
        """
        return self._account.fits(charge)


class Account(ABC):
    """An account from which a budget is spent: an Accountant (registered costs) or a Filter (free
    choice).

    Attributes:
        delta: the total δ at which the guarantee is stated.
        closed: whether the account accepts no charge any more, whatever is left: a ledger closes
            one that an earlier version let spend too much.
    """

    delta: float
    closed: bool = False

    def __init__(self) -> None:
        """Record which process the account belongs to: no other may spend from it."""
        self._lock = threading.RLock()
        self._pid = os.getpid()

    # What an account must say

    @abstractmethod
    def quote(self, charge: Charge, stated: Budget | None = None) -> Record:
        """Return what a spend would take now, without spending.

        Args:
            charge: what would be spent.
            stated: the (ε, δ) that the question states for all of its charge together; a filter
                proves it anew and then adds it to a sum of such statements (``adding_up``).

        Raises:
            BudgetExceeded: when it would be refused; the reason says what is missing and what would
            fit.
            IncompatibleCosts: when the charge is stated for other neighbours, or has no price here.
        """

    @abstractmethod
    def apply(self, charge: Charge, record: Record) -> None:
        """Spend a charge at the terms of a record, given by ``quote`` now or long ago.

        Raises:
            BudgetExceeded: when what the record says does not fit; then nothing is spent.
            IncompatibleCosts: when the charge is for other neighbours.
            InvalidParameter: when the record is not one for this charge.
        """

    @abstractmethod
    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """Return what a refund would give back, without refunding.

        Args:
            charge: the costs that never ran, with delta 0.
            record: the record of the spend that they were part of; None: it is not known.

        Raises:
            InvalidParameter: when this was not spent, or cannot be given back.
        """

    @abstractmethod
    def revert(self, charge: Charge, record: Record) -> None:
        """Give back a charge as a record of ``quote_refund`` says.

        Raises:
            InvalidParameter: when this was not spent; then nothing is given back.
        """

    @abstractmethod
    def disagreement(self, charge: Charge, record: Record) -> str:
        """Return, in words, where this account would take more for a charge today than a record
        says was taken, beyond rounding; '' if nowhere.
        """

    @abstractmethod
    def state(self) -> Record:
        """Return all that changes, as JSON; ``restore`` reads it."""

    @abstractmethod
    def restore(self, state: Record) -> None:
        """Take over a state that ``state`` gave for an account of the same terms."""

    @abstractmethod
    def copy_of_terms(self) -> Account:
        """Return an account of the same terms that has spent as much, for trials: what is spent of
        it is spent nowhere else.
        """

    @abstractmethod
    def remaining(self) -> Charge | str:
        """Return what is left: a charge of registered costs, or a filter's budget in words."""

    @abstractmethod
    def shares(self) -> dict[str, float]:
        """Return the used share, in [0, 1], of each kind of budget that the account has, by its
        name, such as "epsilon" or a registered cost.
        """

    @abstractmethod
    def spent(self) -> Charge:
        """Return what has been charged, less refunds."""

    @abstractmethod
    def epsilon(self) -> float:
        """Return an upper bound on ε that holds at every moment."""

    @abstractmethod
    def group(self) -> Charge:
        """Return a charge whose set-wise bound holds for all that this account may ever let through
        (docs/notes/setwise.md, Theorem C).
        """

    # What follows

    @contextmanager
    def _locked_in_own_process(self) -> Iterator[None]:
        """Hold the account's lock for a ``with`` block; refuse in any process but the one that the
        account belongs to.

        Raises:
            InvalidParameter: in another process.
        """
        if os.getpid() != self._pid:
            raise InvalidParameter(
                "this account belongs to another process: a fork would be a second budget"
            )
        with self._lock:
            yield

    def close(self) -> None:
        """Mark this account as closed: it accepts no charge any more, whatever ``remaining`` says
        is left.
        """
        self.closed = True

    def account(self, analyst: str) -> Account:  # noqa: ARG002
        """Return the account that an analyst draws on: this one, for everybody."""
        return self

    def odometer(self) -> Bound:
        """Return a reading of what was spent so far, at the budget's δ. It is NOT a guarantee.

        The number is the set-wise bound for ``spent()``. It would be a guarantee only if
        ``spent()`` had been fixed before the first answer. Where the analyst's choice of when to
        stop, or the number of selections a query came to use, depended on the answers, only
        ``epsilon()`` holds.
        """
        return bounds.compose(self.spent(), delta=self.delta, lower=False, effort="quick")

    def reading(self) -> float:
        """Return the ε, at the budget's δ, of all that was charged so far, as if nothing were
        charged later; it is no guarantee.

        It is the ε of ``odometer``, but never above the guarantee. Every place that shows what was
        spent shows this.
        """
        if self.spent():
            return min(self.odometer().epsilon, self.epsilon())
        return 0.0

    def share(self) -> float:
        """Return the share of the total ε that was spent by the reading; 0 where the total is
        infinite.
        """
        total = self.epsilon()
        if math.isfinite(total):
            return self.reading() / total
        return 0.0

    def summary(self) -> Summary:
        """Return the account in numbers, at this moment."""
        return Summary(
            epsilon_spent=self.reading(),
            epsilon_total=self.epsilon(),
            delta=self.delta,
            share=self.share(),
            shares=self.shares(),
            _account=self,
        )

    def quote_past(self, charge: Charge) -> Record:
        """Return what a charge would take that is the sum of many charges of the past, as where a
        limit of an analyst begins after answers.

        Raises:
            BudgetExceeded: when it is not covered.
            IncompatibleCosts: when the charge has no price here, or is for other neighbours.
        """
        return self.quote(charge)

    def can_spend(self, charge: Charge, stated: Budget | None = None) -> bool:
        """Return whether ``spend`` would accept the charge; arguments as for ``quote``.

        Raises:
            IncompatibleCosts: when the charge is stated for other neighbours, or has no price here.
            InvalidParameter: in another process than the account's.
        """
        if self.closed:
            return False
        try:
            self.quote(charge, stated)
        except BudgetExceeded:
            return False
        return True

    def spend(self, charge: Charge, *, stated: Budget | None = None) -> Record:
        """Take the charge off what is left; call it before the mechanism runs.

        Args:
            charge: the most that the answer can cost.
            stated: the (ε, δ) that the question states for its charge; None: none was stated.

        Returns:
            The record of what was taken, which ``quote_refund`` takes.

        Raises:
            BudgetExceeded: when it is not covered, or the account is closed; then nothing is spent.
            IncompatibleCosts: when the charge is stated for other neighbours, or has no price here.
            InvalidParameter: in another process than the account's.
        """
        with self._locked_in_own_process():
            if self.closed:
                raise BudgetExceeded(charge, self.remaining(), "this account is closed")
            record = self.quote(charge, stated)
            self.apply(charge, record)
            return record

    def refund(self, charge: Charge) -> None:
        """Give back costs that were spent but never ran, such as the selections after an early
        stop.

        How many selections ran may depend on what came out: a selection that never ran was never
        played. The δ of a query is spent in full and never comes back; the charge must have delta
        0.

        Raises:
            InvalidParameter: when this was not spent, when delta is not 0, or where it is not
                sound; then nothing is given back.
        """
        with self._locked_in_own_process():
            self.revert(charge, self.quote_refund(charge))

    @abstractmethod
    def fits(self, charge: Charge, stated: Budget | None = None) -> int:
        """Return how many more times a charge fits, one after the other, at most 2^30; ``stated``
        as for ``quote``.
        """

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the guarantee, what is spent and what is left."""
        now = self.summary()
        shares = [(name, f"{share:.1%}") for name, share in now.shares.items()]
        guarantee = f"({format_upper(now.epsilon_total)}, {format_upper(now.delta)})-DP"
        holds = f"{type(self).__name__}: {guarantee} for all answers together, at any time"
        spent = f"ε about {now.epsilon_spent:.4g} spent (an estimate); left: {self.remaining()}"
        return html_lines([holds, spent]) + html_table(["of the budget", "used"], shares)

    def _refuse_copy(self, *_: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise InvalidParameter(
            f"{type(self).__name__} cannot be copied or pickled: it would be a second budget"
        )

    __copy__ = __deepcopy__ = __reduce_ex__ = _refuse_copy


@lru_cache(maxsize=4096)
def cost_of(text: str) -> Cost:
    """Return the one cost that ``str(cost)`` wrote.

    Raises:
        InvalidParameter: when the text is not one cost.
    """
    charge = Charge.parse(text)
    if charge.count == 1:
        (cost,) = charge.costs
        # A δ or a flag beside the cost would be lost.
        if charge == Charge({cost: 1}):
            return cost
    raise InvalidParameter(f"{text!r} is not one cost")
