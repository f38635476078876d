"""The accountant: a registered multiset of costs, played in any order, with a guarantee that never moves.

The registration fixes the guarantee: whatever is spent, in whatever order and however adaptively, everything together
is (ε, δ)-DP with ε the best set-wise bound for the registered charge. A spend uses up tokens of the registration, each
covering one cost (``domination``). Which token a cost uses is settled when it is spent and not changed later: in the
game behind the set-wise bounds the token is picked before the mechanism runs. For the same reason a refund returns a
token only for something that did not run.

Where the costs are not known beforehand, ``Accountant.filter(budget)`` gives a filter instead.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dptopk import _validate as validate
from dptopk.accounting import bounds
from dptopk.accounting.tokens import dominates, match, size
from dptopk.costs import Charge, Cost
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.accounting.budget import Budget
    from dptopk.accounting.filter import Filter

__all__ = ["Account", "Accountant"]


@runtime_checkable
class Account(Protocol):
    """What a budget is spent from: an Accountant or a Filter."""

    def can_spend(self, charge: Charge) -> bool:
        """Whether ``spend`` would accept the charge."""

    def spend(self, charge: Charge) -> None:
        """Take the charge off what is left, or raise BudgetExceeded and take nothing."""

    def refund(self, charge: Charge) -> None:
        """Give back costs that never ran, or raise InvalidParameter where that is not sound."""

    def remaining(self) -> Charge | str:
        """What is left: a charge of registered costs, or a filter's budget in words."""

    def shares(self) -> dict[str, float]:
        """What is used of each kind of budget, as shares in [0, 1]."""

    def epsilon(self) -> float:
        """Upper bound on ε at every moment."""


class Accountant:
    """A set-wise accountant over a registered charge.

    Args:
        registered: the multiset of costs that may be spent; its ``delta`` is the most that the deltas of all spent
            charges may add up to (failure mass inside ApproxDP and MultiDP costs is part of those costs).
        delta: the total δ at which ``epsilon()`` is reported, in [registered.delta, 1).
        rtol, max_seconds: how well the guarantee is computed; see ``bounds.compose``.

    Raises:
        InvalidParameter: on a δ below the registered one, or an empty registration.

    >>> from dptopk.costs import BoundedRange, PureDP
    >>> accountant = Accountant(Charge({BoundedRange(0.1): 20, PureDP(0.2): 1}), delta=1e-6)
    >>> accountant.spend(Charge({BoundedRange(0.09): 5}))
    >>> print(accountant.remaining())
    DP(0.2) + 15*BR(0.1)
    >>> accountant.epsilon() < 1.6
    True
    """

    def __init__(self, registered: Charge, delta: float, *, rtol: float = 1e-3, max_seconds: float = 10.0) -> None:
        if not isinstance(registered, Charge) or not registered:
            raise InvalidParameter(f"registered must be a Charge that is not empty, got {registered!r}")
        self.delta = validate.probability(delta=delta)
        if self.delta < registered.delta:
            raise InvalidParameter(f"delta must be at least the registered delta {registered.delta}, got {delta}")
        self.registered = registered
        self._rtol, self._max_seconds = validate.positive(rtol=rtol), validate.positive(max_seconds=max_seconds)
        self._left: Counter[Cost] = Counter(dict(registered.costs))
        self._used: Counter[tuple[Cost, Cost]] = Counter()  # (cost spent, token it used up)
        self._delta_left = Fraction(registered.delta)
        self._adaptive = False

    @staticmethod
    def filter(budget: Budget, **options: Any) -> Filter:
        """A filter for costs that are not registered beforehand; see ``filter.Filter``."""
        from dptopk.accounting.filter import Filter

        return Filter(budget, **options)

    def epsilon(self) -> float:
        """Upper bound on ε, fixed by the registration: valid now and after every later spend and refund."""
        return self.guarantee.epsilon

    @cached_property
    def guarantee(self) -> bounds.Bound:
        """The best set-wise bound for the registration, with its name, source and note."""
        return self._best(self.registered)

    def _best(self, charge: Charge) -> bounds.Bound:
        return bounds.compose(
            charge, delta=self.delta, interaction="setwise", rtol=self._rtol, max_seconds=self._max_seconds
        )

    def can_spend(self, charge: Charge) -> bool:
        """Whether ``spend`` would accept the charge."""
        return not isinstance(self._assignment(charge), str)

    def spend(self, charge: Charge) -> None:
        """Use up, for every cost of the charge, the smallest registered token that covers it, and its delta.

        Raises:
            BudgetExceeded: when there are no tokens for all of it; then nothing is spent.
            IncompatibleCosts: when the charge is stated for another neighbour relation.
        """
        assignment = self._assignment(charge)
        if isinstance(assignment, str):
            raise BudgetExceeded(charge, self.remaining(), assignment)
        for (cost, token), times in assignment.items():
            self._left[token] -= times
            self._used[cost, token] += times
        self._delta_left -= Fraction(charge.delta)
        self._adaptive |= charge.adaptive

    def _assignment(self, charge: Charge) -> dict[tuple[Cost, Cost], int] | str:
        """The tokens that a spend would use, or why it is refused."""
        validate.instance(Charge, charge=charge)
        if charge.neighbours != self.registered.neighbours:
            raise IncompatibleCosts(f"registered for {self.registered.neighbours}, charged for {charge.neighbours}")
        if Fraction(charge.delta) > self._delta_left:
            return "the deltas add up to more than was registered"
        assignment = match(charge.costs, self._left, dominates, size)
        return "no registered tokens are left that cover it" if assignment is None else assignment

    def refund(self, charge: Charge) -> None:
        """Return the tokens of costs that were spent but never ran, such as the selections after an early stop.

        How many selections ran may depend on what came out: a selection that never ran was never played. The δ of a
        query is spent in full and never comes back; the charge must have delta 0.

        Where one cost has used tokens of several kinds, the token that all of the others cover comes back: whichever
        of them the cost that ran had used, the set left is no larger than the true one.

        Raises:
            InvalidParameter: when this was not spent, when delta is not 0, or when no such smallest token exists; then
                nothing is returned.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter("charge to refund must be a Charge with delta 0: a delta is never refunded")
        returned: Counter[tuple[Cost, Cost]] = Counter()
        for cost, times in charge:
            for _ in range(times):
                used = [
                    token for (spent, token), n in self._used.items() if spent == cost and n > returned[spent, token]
                ]
                if not used:
                    raise InvalidParameter(f"charge to refund was not spent: {cost}")
                smallest = next((t for t in used if all(dominates(other, t) for other in used)), None)
                if smallest is None:
                    raise InvalidParameter(f"charge to refund used different tokens, none of them the smallest: {cost}")
                returned[cost, smallest] += 1
        for (cost, token), times in returned.items():
            self._used[cost, token] -= times
            self._left[token] += times

    def remaining(self) -> Charge:
        """What may still be spent: the tokens left, and the δ left (rounded down)."""
        left = float(self._delta_left)
        while Fraction(left) > self._delta_left:
            left = max(0.0, left * (1 - 2**-52))
        return Charge(self._left, delta=left, neighbours=self.registered.neighbours)

    def shares(self) -> dict[str, float]:
        """What is used of each registered token and of the registered δ, as shares in [0, 1]."""
        left, delta = self.remaining(), self.registered.delta
        used = {str(token): 1 - left.costs.get(token, 0) / times for token, times in self.registered}
        return used | ({"delta": 1 - left.delta / delta} if delta else {})

    def spent(self) -> Charge:
        """What has been spent, as it was charged (not the tokens it used), refunds taken off."""
        costs: Counter[Cost] = Counter()
        for (cost, _), times in self._used.items():
            costs[cost] += times
        delta = float(Fraction(self.registered.delta) - self._delta_left)
        return Charge(costs, delta=delta, adaptive=self._adaptive, neighbours=self.registered.neighbours)

    def odometer(self) -> bounds.Bound:
        """A reading of what was spent so far, at the same δ. NOT a guarantee.

        The number is the set-wise bound for ``spent()``. It would be a guarantee only if ``spent()`` had been fixed
        before the first answer. Where the analyst's choice of when to stop, or the number of selections a query came
        to use, depended on the answers, only ``epsilon()`` holds.
        """
        return self._best(self.spent())

    def table(self) -> pd.DataFrame:
        """All bounds for the registration, as ``bounds.table``, with ``taken`` marking the one that ``epsilon()`` uses.

        CDP and ZCDP costs have no dominating pair; with them the optimum is not known and the row taken is one of the
        Rényi route (renyi, zcdp_tight, setwise_zcdp or setwise_cdp).
        """
        rows = bounds.table(
            self.registered, delta=self.delta, interaction="setwise", rtol=self._rtol, max_seconds=self._max_seconds
        )
        rows["taken"] = rows["name"] == self.guarantee.name
        return rows

    def balance(self) -> pd.DataFrame:
        """A row for each registered token: token, registered, left, used."""
        import pandas as pd

        rows = [
            {"token": str(token), "registered": times, "left": self._left[token], "used": times - self._left[token]}
            for token, times in self.registered
        ]
        return pd.DataFrame(rows, columns=["token", "registered", "left", "used"])

    def __repr__(self) -> str:
        return f"Accountant(registered={self.registered}, delta={self.delta}, remaining={self.remaining()})"
