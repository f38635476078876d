"""The accountant: a registered multiset of costs, played in any order, with a guarantee that never
moves.

The registration fixes the guarantee: for any spends in any order, however adaptively chosen,
everything together is (ε, δ)-DP with ε the best set-wise bound for the registered charge. A spend
uses up tokens of the registration, each covering one cost (``dominates``). Which token a cost uses
is settled when it is spent and not changed later: in the game behind the set-wise bounds the token
is picked before the mechanism runs. For the same reason a refund returns a token only for something
that did not run.

Where the costs are not known beforehand, ``Accountant.filter(budget)`` gives a filter instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from dptopk._internal import validate
from dptopk._internal.formatting import format_lower, format_upper
from dptopk._internal.rounding import round_down
from dptopk._internal.search import first_true
from dptopk.accounting import bounds
from dptopk.accounting.registry import Bound
from dptopk.budgets.account_base import LARGEST_FIT, Account, Record, cost_of
from dptopk.budgets.registered_costs import dominates, match, rough_size
from dptopk.costs import Budget, Charge, Cost
from dptopk.errors import BudgetExceeded, DptopkError, IncompatibleCosts, InvalidParameter

if TYPE_CHECKING:
    import pandas as pd

    from dptopk.budgets.filter import Filter


class _FilterOfClass:
    """``Accountant.filter``, which an instance does not have: it would seem to be about what the
    instance has spent.
    """

    def __get__(self, instance: object, owner: type) -> Callable[..., Filter]:
        """Return the class ``Filter``; refuse where it is asked of an instance."""
        if instance is not None:
            raise AttributeError("call Accountant.filter(budget) on the class, not on an account")
        from dptopk.budgets.filter import Filter

        return Filter


class Accountant(Account):
    """A set-wise accountant over a registered charge.

    Args:
        registered: the multiset of costs that may be spent; its ``delta`` is the most that the
            deltas of all spent charges may add up to (failure mass inside ApproxDP and MultiDP
            costs is part of those costs).
        delta: the total δ at which ``epsilon()`` is reported, in [registered.delta, 1).
        guarantee: computed before for the same registration and delta; None: computed when first
            asked for.

    Raises:
        InvalidParameter: on a δ below the registered one, or an empty registration.

    >>> from dptopk.costs import BoundedRange, PureDP
    >>> accountant = Accountant(Charge({BoundedRange(0.1): 20, PureDP(0.2): 1}), delta=1e-6)
    >>> _ = accountant.spend(Charge({BoundedRange(0.09): 5}))
    >>> print(accountant.remaining())
    DP(0.2) + 15*BR(0.1)
    >>> accountant.epsilon() < 1.6
    True
    """

    def __init__(self, registered: Charge, delta: float, *, guarantee: Bound | None = None) -> None:
        """Begin with all tokens of the registration."""
        super().__init__()
        if not isinstance(registered, Charge) or not registered:
            raise InvalidParameter(
                f"registered must be a Charge that is not empty, got {registered!r}"
            )
        self.delta = validate.probability(delta=delta)
        if self.delta < registered.delta:
            raise InvalidParameter(
                f"delta must be at least the registered delta {registered.delta}, got {delta}"
            )
        self.registered = registered
        self._left: Counter[Cost] = Counter(dict(registered.costs))
        self._used: dict[Cost, Counter[Cost]] = {}  # cost spent -> tokens it used up
        self._delta_left = Fraction(registered.delta)
        self._adaptive = False
        if guarantee is not None:  # the value of the cached property, which then computes nothing
            self.__dict__["guarantee"] = guarantee

    filter = _FilterOfClass()

    def epsilon(self) -> float:
        """Return an upper bound on ε, fixed by the registration: it is valid now and after every
        later spend and refund.
        """
        return self.guarantee.epsilon

    @cached_property
    def guarantee(self) -> Bound:
        """Return the best set-wise bound for the registration, with its name, source and note."""
        return bounds.compose(self.registered, delta=self.delta)

    def quote(self, charge: Charge, stated: Budget | None = None) -> Record:
        """Return the tokens that a spend would use: for every cost the smallest registered tokens
        that cover it.

        Args:
            charge: what is to be spent.
            stated: the (ε, δ) that the question states for it, which only a refusal names.

        Raises:
            BudgetExceeded: when there are no tokens for all of it, or its delta is not covered.
            IncompatibleCosts: when the charge is stated for another neighbour relation.
        """
        validate.instance(Charge, charge=charge)
        self._require_same_neighbours(charge)
        with self._locked_in_own_process():
            if Fraction(charge.delta) > self._delta_left:
                delta_text = format_upper(charge.delta)
                delta_left = format_lower(float(self._delta_left))
                reason = f"its delta {delta_text} is more than the {delta_left} that are left"
                raise BudgetExceeded(
                    charge, self.remaining(), self._total_exceeded_text(stated) + reason
                )
            if all(times <= self._left[cost] for cost, times in charge):
                return {"tokens": [[str(cost), str(cost), times] for cost, times in charge]}
            assignment = match(charge.costs, self._left, dominates, rough_size)
            if assignment is None:
                reason = self._total_exceeded_text(stated) + self._uncovered_text(charge)
                raise BudgetExceeded(charge, self.remaining(), reason)
        rows = [[str(cost), str(token), times] for (cost, token), times in assignment.items()]
        return {"tokens": rows}

    def fits(self, charge: Charge, stated: Budget | None = None) -> int:  # noqa: ARG002
        """Return how many more times a charge fits, at most 2^30; ``stated`` changes nothing."""
        if not charge:
            return LARGEST_FIT
        return first_true(lambda times: not self._fits(charge, times), 1, LARGEST_FIT + 1) - 1

    def _fits(self, charge: Charge, repetitions: int) -> bool:
        """Return whether a charge fits this many times, one after the other; one that is refused
        for any reason, as for other neighbours, does not fit.
        """
        # Deltas are compared exactly, apart: that of ``charge.times`` is rounded up.
        if repetitions * Fraction(charge.delta) > self._delta_left:
            return False
        costs = {cost: times * repetitions for cost, times in charge}
        without_delta = Charge(costs, adaptive=charge.adaptive, neighbours=charge.neighbours)
        try:
            return self.can_spend(without_delta)
        except DptopkError:
            return False

    def _total_exceeded_text(self, stated: Budget | None) -> str:
        """Return the beginning of a refusal, for a question that states more ε than the guarantee
        for everything; '' for any other.
        """
        if stated is None or stated.rho is not None:
            return ""
        total = self.epsilon()
        if stated.epsilon <= total:
            return ""
        return f"epsilon {stated.epsilon:.6g} is more than the total of {total:.6g}; "

    def _uncovered_text(self, charge: Charge) -> str:
        """Return in words which kinds of cost are not covered, and how many of each are left."""
        lines = []
        for cost, times in charge:
            if not any(dominates(token, cost) for token in self.registered.costs):
                lines.append(f"{cost} is not registered, nor a cost that covers it")
                continue
            tokens_left = sum(n for token, n in self._left.items() if n and dominates(token, cost))
            if tokens_left < times:
                lines.append(f"{times}*{cost} asked for, {tokens_left} left")
        return "; ".join(lines) or "the tokens left do not cover all of it at once"

    def _require_same_neighbours(self, charge: Charge) -> None:
        """Refuse a charge for other neighbours than those of the registered costs.

        Raises:
            IncompatibleCosts: for such a charge.
        """
        if charge.neighbours != self.registered.neighbours:
            raise IncompatibleCosts(
                f"registered for {self.registered.neighbours}, charged for {charge.neighbours}"
            )

    def apply(self, charge: Charge, record: Record) -> None:
        """Use up the tokens that a record names, and the charge's delta; see ``Account.apply``.

        Raises:
            BudgetExceeded: when the tokens or the delta are not left; then nothing is spent.
            IncompatibleCosts: when the charge is for other neighbours.
            InvalidParameter: when the record is not one for this charge.
        """
        self._require_same_neighbours(charge)
        with self._locked_in_own_process():
            rows = _token_rows(record)
            paid = Counter[Cost]()
            wanted = Counter[Cost]()
            for cost, token, times in rows:
                paid[cost] += times
                wanted[token] += times
            if paid != Counter(dict(charge.costs)):
                raise InvalidParameter("the record of this charge names different costs")
            if any(self._left[token] < times for token, times in wanted.items()):
                raise BudgetExceeded(charge, self.remaining(), "the tokens named are not left")
            if Fraction(charge.delta) > self._delta_left:
                raise BudgetExceeded(
                    charge, self.remaining(), "the deltas add up to more than was registered"
                )
            for cost, token, times in rows:
                self._left[token] -= times
                self._used.setdefault(cost, Counter())[token] += times
            self._delta_left -= Fraction(charge.delta)
            if charge.adaptive:
                self._adaptive = True

    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """Return the tokens that come back for costs that were spent but never ran.

        Where one cost has used tokens of several kinds, the token that all of the others cover
        comes back: whichever of them the cost that ran had used, the set left is no larger than the
        true one.

        Args:
            charge: the costs that never ran.
            record: the record of the spend that it was part of, of which tokens come back; None:
                all that were used.

        Raises:
            InvalidParameter: when this was not spent, when delta is not 0, or when no such smallest
                token exists.
        """
        if not isinstance(charge, Charge) or charge.delta:
            raise InvalidParameter(
                "charge to refund must be a Charge with delta 0: a delta is never refunded"
            )
        with self._locked_in_own_process():
            returned = []
            for cost, times in charge:
                used = Counter(self._used.get(cost, {}))
                if record is not None:
                    tokens_of_record = {
                        token: n for spent, token, n in _token_rows(record) if spent == cost
                    }
                    used &= Counter(tokens_of_record)
                for token, n in _returned_tokens(cost, times, used):
                    returned.append([str(cost), str(token), n])
        return {"tokens": returned}

    def revert(self, charge: Charge, record: Record) -> None:
        """Return the tokens named in a record of ``quote_refund`` to the account.

        Raises:
            InvalidParameter: when they were not used; then nothing is given back.
        """
        with self._locked_in_own_process():
            returned = _token_rows(record)
            for cost, token, times in returned:
                used = self._used.get(cost, Counter())[token]
                if times > used or times > charge.costs.get(cost, 0):
                    raise InvalidParameter(f"charge to refund was not spent: {cost}")
            for cost, token, times in returned:
                self._used[cost][token] -= times
                if not self._used[cost][token]:
                    del self._used[cost][token]
                self._left[token] += times

    def disagreement(self, charge: Charge, record: Record) -> str:
        """Return, in words, which tokens of a record do not cover their costs by the present table
        (``registered_costs``); '' where all do.
        """
        wrong = [
            f"{token} for {cost}"
            for cost, token, _ in _token_rows(record)
            if not dominates(token, cost)
        ]
        if wrong:
            return f"charge {charge} took " + ", ".join(wrong)
        return ""

    def state(self) -> Record:
        """Return tokens left, tokens used, the δ left, exactly, and whether any charge was
        adaptive.
        """
        with self._locked_in_own_process():
            used = []
            for cost, tokens in self._used.items():
                for token, times in tokens.items():
                    if times:
                        used.append([str(cost), str(token), times])
            return {
                "left": {str(token): times for token, times in self._left.items()},
                "used": sorted(used),
                "delta_left": str(self._delta_left),
                "adaptive": self._adaptive,
            }

    def restore(self, state: Record) -> None:
        """Take over a state of an account of the same registration."""
        with self._locked_in_own_process():
            self._left = Counter({cost_of(token): n for token, n in state["left"].items()})
            self._used = {}
            for cost, token, n in _token_rows({"tokens": state["used"]}):
                self._used.setdefault(cost, Counter())[token] = n
            self._delta_left = Fraction(state["delta_left"])
            self._adaptive = state["adaptive"]

    def copy_of_terms(self) -> Accountant:
        """Return an account of the same registration that has spent as much, for trials: what is
        spent of it is spent nowhere else.
        """
        known_guarantee = self.__dict__.get("guarantee")  # of the cached property, if it is there
        copy = Accountant(self.registered, self.delta, guarantee=known_guarantee)
        copy.restore(self.state())
        return copy

    def remaining(self) -> Charge:
        """Return what may still be spent: the remaining tokens, and the remaining δ (rounded
        down).
        """
        return Charge(
            self._left, delta=round_down(self._delta_left), neighbours=self.registered.neighbours
        )

    def shares(self) -> dict[str, float]:
        """Return the used share of each registered token and of the registered δ, in [0, 1]."""
        remaining = self.remaining()
        delta = self.registered.delta
        used = {
            str(token): 1 - remaining.costs.get(token, 0) / times
            for token, times in self.registered
        }
        if delta:
            used["delta"] = 1 - remaining.delta / delta
        return used

    def spent(self) -> Charge:
        """Return the costs charged (not the tokens used for them), less refunds."""
        costs = {cost: tokens.total() for cost, tokens in self._used.items()}
        delta = float(Fraction(self.registered.delta) - self._delta_left)
        return Charge(
            costs, delta=delta, adaptive=self._adaptive, neighbours=self.registered.neighbours
        )

    def group(self) -> Charge:
        """Return the registration itself: its set-wise bound holds for all that is ever spent."""
        return self.registered

    def table(self) -> pd.DataFrame:
        """Return all bounds for the registration, as ``bounds.table`` does; the column ``taken``
        marks the one that ``epsilon()`` uses.
        """
        rows = bounds.table(self.registered, delta=self.delta, interaction="setwise")
        rows["taken"] = rows["name"] == self.guarantee.name
        return rows

    def __repr__(self) -> str:
        """Return the registration and what remains of it."""
        return (
            f"Accountant(registered={self.registered}, delta={self.delta}, "
            f"remaining={self.remaining()})"
        )


def _token_rows(record: Record) -> list[tuple[Cost, Cost, int]]:
    """Return the rows of a record: the cost that was spent, the token that it used, and how many.

    Raises:
        InvalidParameter: when the record holds no such rows.
    """
    try:
        rows = [(cost_of(cost), cost_of(token), n) for cost, token, n in record["tokens"]]
    except (KeyError, TypeError, ValueError):
        raise InvalidParameter("the record of this charge does not fit a registration") from None
    if any(type(n) is not int or n < 1 for _, _, n in rows):
        raise InvalidParameter("the record of this charge does not fit a registration")
    return rows


def _returned_tokens(cost: Cost, times: int, used: Counter[Cost]) -> list[tuple[Cost, int]]:
    """Return the tokens, with numbers, that come back for a cost: the one that all the others
    cover, as long as there are any, then the next such one.

    Args:
        cost: what never ran.
        times: how many of it.
        used: the tokens that this cost used up.

    Raises:
        InvalidParameter: when fewer were used, or no token is the smallest.
    """
    used = +used  # a copy without zeros
    returned = []
    if used.total() < times:
        raise InvalidParameter(f"charge to refund was not spent: {cost}")
    while times:
        covered = [token for token in used if all(dominates(other, token) for other in used)]
        if not covered:
            raise InvalidParameter(
                f"charge to refund used different tokens, none of them the smallest: {cost}"
            )
        smallest = covered[0]  # any other one covers it, and is covered by it
        number = min(times, used.pop(smallest))
        returned.append((smallest, number))
        times -= number
    return returned
