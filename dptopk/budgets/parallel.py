"""Disjoint segments: what releases on them cost one user together, and a budget of which each of
them has its own.

The segments are named in public and one user's data lie in at most one of them, as a fact of the
data. Then a question about one segment costs only the users in it. A user in segment g pays for
what is asked of g and of all the data; all other answers are computed from data that are the same
with and without that user and from noise of their own, also where the analyst chose the question
after seeing g's answers. So the play is one of g's account alone, and the guarantee of the data set
is that of one account, however many segments there are (docs/ledger.md, Segments).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack

from dptopk._internal import validate
from dptopk.accounting.cost_models.cost_registry import cost_model_of
from dptopk.budgets.account_base import Account, Record
from dptopk.budgets.filter import Filter
from dptopk.costs import Budget, Charge, Cost, sum_up
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter


class Parallel(Account):
    """The accounts of disjoint segments: a question about one takes from one, a question about all
    data from each.

    Args:
        parts: segment -> its account, all with the same guarantee.

    What the caller must ensure: one user is in at most one segment, now and for as long as the
    accounts are spent from, and neighbours are "add_remove" (other charges are refused).

    Raises:
        InvalidParameter: when there are no segments, or their accounts do not promise the same.

    >>> from dptopk import Accountant, PureDP
    >>> regions = Parallel({name: Accountant(Charge({PureDP(0.1): 3}), 1e-6) for name in ("eu",
    ...     "us")})
    >>> _ = regions.only("eu").spend(Charge({PureDP(0.1): 2}))
    >>> _ = regions.spend(Charge({PureDP(0.1): 1}))
    >>> regions.only("eu").can_spend(Charge({PureDP(0.1): 1}))
    False
    >>> regions.only("us").can_spend(Charge({PureDP(0.1): 2}))
    True
    >>> print(regions.spent())
    3*DP(0.1)
    """

    def __init__(self, parts: Mapping[Hashable, Account]) -> None:
        """Check that all accounts promise the same guarantee."""
        super().__init__()
        if not parts or not all(isinstance(part, Account) for part in parts.values()):
            raise InvalidParameter("parts must map segments to accounts, at least one")
        self.parts = dict(parts)
        self._first = next(iter(parts.values()))
        self.delta = self._first.delta
        guarantees = {(part.group(), part.delta) for part in parts.values()}
        if len(guarantees) > 1:
            raise InvalidParameter(
                "parts must be accounts with the same guarantee, which is that of the data set"
            )

    def only(self, *segments: Hashable) -> Parallel:
        """Return the accounts of some segments only, from which a question about these is charged;
        closed where this account is.

        Raises:
            InvalidParameter: on a segment that was not declared.
        """
        if not all(segment in self.parts for segment in segments):
            raise InvalidParameter("segments: one of these was not declared")
        chosen = Parallel({segment: self.parts[segment] for segment in segments})
        chosen.closed = self.closed
        return chosen

    def close(self) -> None:
        """Mark this account and all of its parts as closed."""
        super().close()
        for part in self.parts.values():
            part.close()

    def quote(self, charge: Charge, stated: Budget | None = None) -> Record:
        """Return what each segment's account would take; refused if one of them refuses.

        Raises:
            BudgetExceeded: when one of the accounts does not cover it; the reason names the
                segment.
            IncompatibleCosts: for neighbours other than add_remove, or without a price in one of
                the accounts.
            InvalidParameter: for what is no Charge, and in another process.
        """
        validate.instance(Charge, charge=charge)
        if charge.neighbours != "add_remove":
            raise IncompatibleCosts(
                "a user who is replaced is in two segments: they are for add_remove alone"
            )
        records = []
        for name, part in self.parts.items():
            try:
                records.append([name, part.quote(charge, stated)])
            except BudgetExceeded as refused:
                raise BudgetExceeded(
                    charge, refused.remaining, f"segment {name}: {refused.reason}"
                ) from None
        return {"segments": records}

    def quote_past(self, charge: Charge) -> Record:
        """Return what each segment's account would take for a charge that sums up the past."""
        parts = self.parts.items()
        return {"segments": [[name, part.quote_past(charge)] for name, part in parts]}

    def apply(self, charge: Charge, record: Record) -> None:
        """Spend a charge from every segment's account or, where one refuses, from none.

        Raises:
            DptopkError: the refusal of an account; InvalidParameter for the record of other
                segments.
        """
        self._act_on_all(record, lambda part, part_record: part.apply(charge, part_record))

    def quote_refund(self, charge: Charge, record: Record | None = None) -> Record:
        """Return what each segment's account would give back.

        Args:
            charge: the costs that never ran.
            record: the record of the spend that they were part of; None: it is not known.

        Raises:
            InvalidParameter: when one of the accounts does not give it back.
        """
        spent = {} if record is None else self._records_of_parts(record)
        refunds = []
        for name, part in self.parts.items():
            refunds.append([name, part.quote_refund(charge, spent.get(name))])
        return {"segments": refunds}

    def revert(self, charge: Charge, record: Record) -> None:
        """Give a charge back to every segment's account or, where one refuses, to none.

        Raises:
            InvalidParameter: the refusal of an account, or for the record of other segments.
        """
        self._act_on_all(record, lambda part, part_record: part.revert(charge, part_record))

    def _act_on_all(self, record: Record, act: Callable[[Account, Record], None]) -> None:
        """Call a function for each segment's account and its record; where it raises, all accounts
        are as they were before.

        Args:
            record: the record of all segments, as ``quote`` returns it.
            act: the function, which changes one account.

        Raises:
            InvalidParameter: where the record is not one of these segments.
        """
        with ExitStack() as locks:
            # One order for all callers, so that no two wait for each other.
            for account in sorted(self.parts.values(), key=id):
                locks.enter_context(account._locked_in_own_process())  # noqa: SLF001
            records = self._records_of_parts(record)
            states_before = dict[Hashable, Record]()
            try:
                for name, part in self.parts.items():
                    states_before[name] = part.state()
                    act(part, records[name])
            except BaseException:
                for name, state in states_before.items():
                    self.parts[name].restore(state)
                raise

    def _records_of_parts(self, record: Record) -> dict[Hashable, Record]:
        """Return the record of each segment's account.

        Raises:
            InvalidParameter: where the record is not one of these segments.
        """
        try:
            records: dict[Hashable, Record] = dict(record["segments"])
        except (KeyError, TypeError, ValueError):
            raise InvalidParameter("the record of this charge does not fit segments") from None
        if records.keys() != self.parts.keys():
            raise InvalidParameter("the record of this charge is for different segments")
        return records

    def disagreement(self, charge: Charge, record: Record) -> str:
        """Return where one of the accounts would decide differently today; '' where none would."""
        records = self._records_of_parts(record)
        for name, part in self.parts.items():
            difference = part.disagreement(charge, records[name])
            if difference:
                return difference
        return ""

    def state(self) -> Record:
        """Return the states of the accounts."""
        return {"segments": [[name, part.state()] for name, part in self.parts.items()]}

    def merged_state(self) -> Record | None:
        """Return the state in which every segment's account has spent at least what any of them
        has: users may have moved between segments. None where no account is a filter.

        Raises:
            BudgetExceeded: when they divide δ in different ways, or only some of them are filters.
        """
        filters = [part for part in self.parts.values() if isinstance(part, Filter)]
        if not filters:
            return None
        if len(filters) < len(self.parts):
            reason = "the budgets of some segments are registered costs, those of others are not"
            raise BudgetExceeded(self.spent(), self.remaining(), reason)
        first, *others = filters
        state = first.state_covering(others)
        if state is None:
            reason = "the segments divide delta in different ways"
            raise BudgetExceeded(self.spent(), self.remaining(), reason)
        return {"segments": [[name, state] for name in self.parts]}

    def restore(self, state: Record) -> None:
        """Take over states of the same segments' accounts."""
        for name, state_of_part in self._records_of_parts(state).items():
            self.parts[name].restore(state_of_part)

    def copy_of_terms(self) -> Parallel:
        """Return accounts of the same terms that have spent as much, for trials: what is spent of
        them is spent nowhere else.
        """
        return Parallel({name: part.copy_of_terms() for name, part in self.parts.items()})

    def remaining(self) -> Charge | str:
        """Return what every segment has left; if they differ, what each has."""
        by_segment = {name: part.remaining() for name, part in self.parts.items()}
        first = self._first.remaining()
        if all(remainder == first for remainder in by_segment.values()):
            return first
        return "; ".join(f"{name}: {remainder}" for name, remainder in by_segment.items())

    def shares(self) -> dict[str, float]:
        """Return the used share of each segment's account, by the reading of its ε; of a single
        one the shares that it has itself.
        """
        if len(self.parts) == 1:
            return self._first.shares()
        return {str(name): part.share() for name, part in self.parts.items()}

    def spent(self) -> Charge:
        """Return a charge that covers what any one segment has spent (parallel composition)."""
        return segments_charge([part.spent() for part in self.parts.values()], segments_per_user=1)

    def epsilon(self) -> float:
        """Return an upper bound on ε for every user: each pays from one account."""
        return self._first.epsilon()

    def reading(self) -> float:
        """Return the reading of the segment that has spent most."""
        distinct = {part.spent(): part for part in self.parts.values()}
        return max(part.reading() for part in distinct.values())

    def group(self) -> Charge:
        """Return the group of one segment's account, which is the same for all: a user meets one of
        them.
        """
        return self._first.group()

    def fits(self, charge: Charge, stated: Budget | None = None) -> int:
        """Return how many more times a charge fits into every segment's account."""
        return min(part.fits(charge, stated) for part in self.parts.values())

    def __repr__(self) -> str:
        """Return the segments and what remains."""
        return f"Parallel({', '.join(map(repr, self.parts))}; remaining={self.remaining()})"


def segments_charge(charges: Sequence[Charge], *, segments_per_user: int) -> Charge:
    """Return a charge that covers releases on disjoint segments if one user counts in at most s of
    them.

    The releases on segments without the user do not depend on the user, so the loss is that of some
    s of the charges, whichever they are. The answer covers every such choice: for costs of one
    family, ordered by their parameter, it holds as many costs of at least each size as the s
    segments with the most of them hold together; for others, as many of each cost; and the s
    largest deltas. Equal charges: exactly s of them (s = 1: parallel composition). Under
    "replace_one" one user leaves s segments and another enters s, so that 2s take the place of s.

    Args:
        charges: one for each segment, fixed before any data is seen.
        segments_per_user: s, at least 1, as enforced by segment_histograms.

    Returns:
        A charge that dominates every choice of s charges: an upper bound, exact when the charges
        are equal.

    Raises:
        IncompatibleCosts: for different neighbour relations.
        InvalidParameter: for what is no Charge, and an s below 1.

    >>> from dptopk import PureDP
    >>> small, large = Charge({PureDP(0.1): 3}), Charge({PureDP(0.2): 2})
    >>> print(segments_charge([small, small, large], segments_per_user=1))
    DP(0.1) + 2*DP(0.2)
    """
    s = validate.count(segments_per_user=segments_per_user)
    if not all(isinstance(charge, Charge) for charge in charges):
        raise InvalidParameter("charges must be a Charge for each segment")
    relations = {charge.neighbours for charge in charges if charge}
    if len(relations) > 1:
        raise IncompatibleCosts(
            f"segments charged for different neighbours: {', '.join(sorted(relations))}"
        )
    if "replace_one" in relations:
        s *= 2
    costs: dict[Cost, int] = {}
    for family in _cost_families(charges):
        covered = 0
        for place, cost in enumerate(family):
            # The most costs of at least this size that one user can meet at once.
            largest_number = _largest_total(charges, family[: place + 1], s)
            costs[cost] = largest_number - covered
            covered = largest_number
    deltas = sorted((charge.delta for charge in charges), reverse=True)
    return Charge(
        costs,
        delta=sum_up(deltas[:s]),
        adaptive=any(charge.adaptive for charge in charges),
        neighbours=next(iter(relations), "add_remove"),
    )


def _largest_total(charges: Sequence[Charge], costs: Sequence[Cost], s: int) -> int:
    """Return the number of these costs that the s charges with the most of them hold together.

    Args:
        charges: one for each segment.
        costs: the costs that are counted.
        s: how many of the charges are taken.
    """
    numbers = [sum(charge.costs.get(cost, 0) for cost in costs) for charge in charges]
    numbers.sort(reverse=True)
    return sum(numbers[:s])


def _cost_families(charges: Sequence[Charge]) -> list[list[Cost]]:
    """Return the distinct costs of charges by their families, such as all ε-DP costs, each from the
    largest down; in a family a larger cost is a weaker promise. A cost without a family is alone.
    """
    families: dict[Hashable, list[tuple[float, Cost]]] = {}
    # In the order of the charges: equal sizes keep it, and what is charged depends on it alone.
    distinct = dict.fromkeys(cost for charge in charges for cost in charge.costs)
    for cost in distinct:
        family = cost_model_of(cost).family
        if family is None:
            families[cost] = [(0.0, cost)]
        else:
            name, size = family(cost)
            families.setdefault(name, []).append((size, cost))
    return [_by_falling_size(family) for family in families.values()]


def _by_falling_size(sized: list[tuple[float, Cost]]) -> list[Cost]:
    """Return the costs of (size, cost) pairs, from the largest size down."""

    def falling_size(pair: tuple[float, Cost]) -> float:
        """Return the key that sorts from the largest size down."""
        size, _ = pair
        return -size

    return [cost for _, cost in sorted(sized, key=falling_size)]
