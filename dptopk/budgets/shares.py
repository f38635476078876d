"""Several analysts on one data set, each with a registration or a filter of their own: the total is
their product.

Each share is a group in the sense of Theorem C (docs/notes/setwise.md): whatever its analyst does
with it, adaptively and also after seeing the others' answers, its value is at most that of its own
pair, and everything together at most the product of the pairs. That is far below the sum of the
guarantees. *The shares are fixed before the first answer*: a share chosen by looking at answers
would be a choice between games. Analysts who come later draw on the reserve, a share that was there
from the start.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NoReturn

from dptopk._internal import validate
from dptopk.accounting import bounds
from dptopk.accounting.registry import Bound, split_failure
from dptopk.budgets.account_base import Account, Record
from dptopk.costs import Budget, Charge, sum_up
from dptopk.errors import BudgetExceeded, InvalidParameter

RESERVE = "reserve"
SUM_ROUNDING = 1e-12  # relative, far above that of a sum over all analysts
LARGEST_DELTA = 1 - 2**-53  # the largest float below 1: ``compose`` takes no δ of 1


def _least_delta(group: Charge) -> float:
    """Return the part of δ that a share's group takes at any ε, rounded up: its own δ and the
    masses of failure of its costs. Below it, its ε is infinite.
    """
    _, failure = split_failure(group)
    return sum_up([failure, group.delta])


class Shares(Account):
    """The shares of a data set's analysts, and the guarantee of all of them together.

    Args:
        parts: name of an analyst, or "reserve" for everybody else -> an account nothing was spent
            of.
        delta: the total δ at which the guarantee is stated.
        guarantee: computed before for the same shares and delta; None: computed when first asked
            for.

    Raises:
        InvalidParameter: when there are no shares, when something was spent, or on shares for
            different neighbours.

    >>> from dptopk import Accountant, BoundedRange
    >>> month = Charge({BoundedRange(0.1): 50})
    >>> shares = Shares({name: Accountant(month, 1e-6) for name in ("ann", "bob")}, delta=1e-6)
    >>> _ = shares.account("ann").spend(Charge({BoundedRange(0.1): 50}))
    >>> shares.epsilon() < 0.75 * shares.sum().epsilon
    True
    """

    def __init__(
        self, parts: Mapping[str, Account], delta: float, *, guarantee: Bound | None = None
    ) -> None:
        """Check that the shares are unspent, and join what they guarantee."""
        super().__init__()
        accounts = all(isinstance(part, Account) for part in parts.values())
        if not parts or not accounts:
            raise InvalidParameter("parts must map names to accounts, at least one")
        if any(part.spent() for part in parts.values()):
            raise InvalidParameter(
                "parts must be unspent accounts: shares are fixed before the first answer"
            )
        self.delta = validate.probability(delta=delta)
        self.parts = dict(parts)
        self._group = Charge.join(*(part.group() for part in parts.values()))
        if guarantee is not None:  # the value of the cached property, which then computes nothing
            self.__dict__["guarantee"] = guarantee

    def account(self, analyst: str) -> Account:
        """Return the account that an analyst draws on: an own share, else the reserve.

        Raises:
            BudgetExceeded: when there is neither.
        """
        part = self.parts.get(analyst, self.parts.get(RESERVE))
        if part is None:
            raise BudgetExceeded(
                Charge(), "no share", f"{analyst!r} has no share, and there is no reserve"
            )
        return part

    def close(self) -> None:
        """Mark this account and all of its parts as closed."""
        super().close()
        for part in self.parts.values():
            part.close()

    @cached_property
    def guarantee(self) -> Bound:
        """Return the smaller of the product of the shares' pairs and the sum of their
        guarantees.
        """
        product = bounds.compose(self._group, delta=self.delta)
        total = self.sum()
        if total.epsilon < product.epsilon:
            return total
        return product

    def sum(self) -> Bound:
        """Return the sum of the shares' guarantees (basic composition); δ is divided evenly beyond
        what each must have.
        """
        source = "basic composition of the shares"
        groups = [part.group() for part in self.parts.values()]
        least_deltas = [_least_delta(group) for group in groups]
        if sum_up(least_deltas) > self.delta:
            note = "delta is below the shares' own masses of bad events"
            return Bound(math.inf, self.delta, None, "sum", source, (), note)
        # δ is lowered by more than the roundings of the parts, so that they add up to at most δ.
        spare_delta = self.delta * (1 - SUM_ROUNDING) - sum_up(least_deltas)
        spare_of_each = max(spare_delta, 0.0) / len(groups)
        guarantees = [
            bounds.compose(group, delta=min(least_delta + spare_of_each, LARGEST_DELTA))
            for group, least_delta in zip(groups, least_deltas, strict=True)
        ]
        total = sum_up([bound.epsilon for bound in guarantees])
        return Bound(total, self.delta, None, "sum", source, guarantees[0].valid_in)

    def epsilon(self) -> float:
        """Return an upper bound on ε of everything that all analysts will ever see."""
        return self.guarantee.epsilon

    def group(self) -> Charge:
        """Return one charge that covers what all shares ever let through: their groups together."""
        return self._group

    def spent(self) -> Charge:
        """Return what all shares have spent."""
        return Charge.join(*(part.spent() for part in self.parts.values()))

    def remaining(self) -> str:
        """Return what each share has left."""
        by_share = [f"{name}: {part.remaining()}" for name, part in self.parts.items()]
        return "; ".join(by_share)

    def shares(self) -> dict[str, float]:
        """Return the used part of each share, in [0, 1], by the reading of its ε."""
        return {name: part.share() for name, part in self.parts.items()}

    def fits(self, charge: Charge, stated: Budget | None = None) -> int:
        """Return how many more times a charge fits into the share with the most room for it."""
        return max(part.fits(charge, stated) for part in self.parts.values())

    def state(self) -> Record:
        """Return the states of the shares."""
        return {name: part.state() for name, part in self.parts.items()}

    def restore(self, state: Record) -> None:
        """Take over states of equal shares."""
        for name, part in self.parts.items():
            part.restore(state[name])

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Refuse to spend from all shares together."""
        raise InvalidParameter("this budget is divided into shares: spend from account(analyst)")

    quote = apply = quote_refund = revert = disagreement = copy_of_terms = _refuse

    def __repr__(self) -> str:
        """Return the names of the shares and what remains of them."""
        return (
            f"Shares({', '.join(map(repr, self.parts))}, delta={self.delta}, "
            f"remaining={self.remaining()})"
        )
