"""Charge: what a release has cost, a multiset of costs and a mass of bad events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

from dptopk._internal import validate
from dptopk._internal.choices import NEIGHBOURS, Neighbours
from dptopk._internal.rounding import sum_up
from dptopk.costs.text import read_charge
from dptopk.costs.types import COST_TYPES, Cost
from dptopk.errors import IncompatibleCosts, InvalidParameter

OneType = TypeVar("OneType", bound=Cost)

_RANK = {cost_type: rank for rank, cost_type in enumerate(COST_TYPES)}


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Charge:
    """A multiset of primitive costs, plus the probability mass of bad events: what a release has
    cost.

    Args:
        costs: mapping from cost to how many times it is paid; counts of 0 are dropped.
        delta: mass of bad events in [0, 1), added to the δ of the composition of the costs.
        adaptive: True when the costs depend on one another's outcomes, as the selections of one
            Gumbel top-k do (k > 1); then no bound that needs independent costs applies.
        neighbours: the neighbour relation the costs are stated for, "add_remove" or "replace_one".

    Raises:
        InvalidParameter: on anything that is not a cost, a negative count, or a delta outside [0,
        1).

    >>> from dptopk.costs import BoundedRange, PureDP
    >>> print(Charge({BoundedRange(0.1): 25, PureDP(0.3): 2}, delta=1e-7, adaptive=True))
    2*DP(0.3) + 25*BR(0.1) + delta(1e-07) [adaptive]
    >>> Charge.parse("25*BR(0.1) + 2*DP(0.3)") == Charge({PureDP(0.3): 2, BoundedRange(0.1): 25})
    True
    """

    costs: Mapping[Cost, int]
    delta: float
    adaptive: bool
    neighbours: Neighbours

    def __init__(
        self,
        costs: Mapping[Cost, int] | None = None,
        *,
        delta: float = 0.0,
        adaptive: bool = False,
        neighbours: Neighbours = "add_remove",
    ) -> None:
        if costs is not None and not isinstance(costs, Mapping):
            raise InvalidParameter("costs must be a mapping from cost to count")
        validate.instance(bool, adaptive=adaptive)
        checked = {}
        for cost, times in (costs or {}).items():
            if type(cost) not in _RANK:
                raise InvalidParameter(
                    f"costs must map costs such as PureDP(0.1) to counts, got the key {cost!r}"
                )
            checked[cost] = validate.count(count=times, at_least=0)
        ordered = {cost: checked[cost] for cost in sorted(checked, key=_sort_key) if checked[cost]}
        validate.assign(
            self,
            costs=MappingProxyType(ordered),
            delta=validate.probability(delta=delta),
            adaptive=adaptive,
            neighbours=validate.member(NEIGHBOURS, neighbours=neighbours),
        )

    def __hash__(self) -> int:
        return hash((tuple(self.costs.items()), self.delta, self.adaptive, self.neighbours))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text, because a mapping proxy cannot be pickled."""
        return Charge.parse, (str(self),)

    def __iter__(self) -> Iterator[tuple[Cost, int]]:
        """Yield each cost with its multiplicity, in the order of the text."""
        return iter(self.costs.items())

    def __bool__(self) -> bool:
        """Return False for a charge of nothing."""
        return bool(self.costs) or self.delta > 0

    @property
    def count(self) -> int:
        """Return the number of costs, with multiplicity."""
        return sum(self.costs.values())

    def of(self, *cost_types: type[OneType]) -> dict[OneType, int]:
        """Return the costs of the given types with their multiplicities."""
        return {cost: times for cost, times in self.costs.items() if isinstance(cost, cost_types)}

    def join(*charges: Charge) -> Charge:
        """Return the charge of everything in ``charges`` together; deltas are added, rounded up,
        and it is adaptive if any of them is.

        It can be called on the class and on a charge: ``Charge.join(a, b)`` and ``a.join(b)`` are
        the same.

        Raises:
            InvalidParameter: when one of them is no Charge, or their deltas add up to 1 or more.
            IncompatibleCosts: when the charges are stated for different neighbour relations.
        """
        if not all(isinstance(charge, Charge) for charge in charges):
            raise InvalidParameter("charges must be Charge objects")
        relations = {charge.neighbours for charge in charges if charge}
        if len(relations) > 1:
            raise IncompatibleCosts(
                f"cannot join charges for different neighbours: {', '.join(sorted(relations))}"
            )
        costs: Counter[Cost] = Counter()
        for charge in charges:
            costs.update(dict(charge.costs))
        delta = sum_up([charge.delta for charge in charges])
        adaptive = any(charge.adaptive for charge in charges)
        neighbours: Neighbours = "add_remove"
        if relations:
            neighbours = relations.pop()
        elif charges:  # all of them are charges of nothing
            neighbours = charges[0].neighbours
        return Charge(costs, delta=delta, adaptive=adaptive, neighbours=neighbours)

    def times(self, repetitions: int) -> Charge:
        """Return the charge of ``repetitions`` independent runs, that of joining as many copies.

        Raises:
            InvalidParameter: unless it is an integer of at least 0, and all deltas add up to less
                than 1.
        """
        repetitions = validate.count(repetitions=repetitions, at_least=0)
        costs = {cost: times * repetitions for cost, times in self}
        delta = sum_up({self.delta: repetitions})
        return Charge(costs, delta=delta, adaptive=self.adaptive, neighbours=self.neighbours)

    def includes(self, used: Charge) -> bool:
        """Return whether ``used`` is a part of this charge: no cost occurs in it more often, its δ
        is no larger, it is not adaptive unless this charge is, and neighbours are the same.

        >>> from dptopk.costs import BoundedRange, PureDP
        >>> Charge({BoundedRange(0.1): 25}, delta=1e-9).includes(Charge({BoundedRange(0.1): 8},
        ...     delta=1e-9))
        True
        """
        if not used:
            return True
        if used.neighbours != self.neighbours or used.delta > self.delta:
            return False
        if used.adaptive and not self.adaptive:
            return False
        return all(times <= self.costs.get(cost, 0) for cost, times in used)

    def minus(self, used: Charge) -> Charge:
        """Return the costs of this charge that ``used`` does not have, without any delta; a charge
        of nothing if ``used`` has costs that this one has not.

        >>> from dptopk.costs import BoundedRange, PureDP
        >>> print(Charge({BoundedRange(0.1): 25}, delta=1e-9).minus(Charge({BoundedRange(0.1):
        ...     8}, delta=1e-9)))
        17*BR(0.1)
        """
        remaining = {cost: times - used.costs.get(cost, 0) for cost, times in self}
        enough = min(remaining.values(), default=0) >= 0
        if enough and used.costs.keys() <= remaining.keys():
            return Charge(remaining, adaptive=self.adaptive, neighbours=self.neighbours)
        return Charge({}, neighbours=self.neighbours)

    def __str__(self) -> str:
        """Return the text that ``parse`` reads, such as "25*BR(0.1) + delta(1e-07) [adaptive]"."""
        terms = [f"{times}*{cost}" if times > 1 else str(cost) for cost, times in self]
        if self.delta:
            terms.append(f"delta({self.delta!r})")
        flags: list[str] = []
        if self.adaptive:
            flags.append("adaptive")
        if self.neighbours != "add_remove":
            flags.append(self.neighbours)
        written = " + ".join(terms) or "0"
        if flags:
            return f"{written} [{', '.join(flags)}]"
        return written

    def __repr__(self) -> str:
        return f"Charge.parse({str(self)!r})"

    @staticmethod
    def parse(text: str) -> Charge:
        """Return the charge that a text describes, as str() writes it; costs are named BR, DP, ADP,
        GDP, DGauss, ZCDP, CDP, MultiDP, ... or by their class names.

        Args:
            text: terms joined by ``+``, such as ``"25*BR(0.1) + DP(0.3) + ZCDP(0.07) + delta(1e-7)
                [adaptive]"``; parameters may be named, ``ZCDP(rho=0.1, xi=0.4)``; ``DP(ε, δ)`` with
                two arguments is ApproxDP, a MultiDP is written ``MultiDP(ε1:δ1, ε2:δ2)``.

        Raises:
            InvalidParameter: when the text is not of that form, or a parameter is outside its
            range.
        """
        return Charge(**read_charge(text))


def charge_of(value: Charge | Cost | str | Iterable[Charge | Cost | str]) -> Charge:
    """Return the charge that a value stands for.

    Args:
        value: a Charge, a cost, a text as for ``Charge.parse``, or a list of these, which are
            joined.

    Raises:
        InvalidParameter: on anything else; a mapping must be given as ``Charge(costs)``.

    >>> from dptopk.costs import PureDP
    >>> print(charge_of(["25*BR(0.1)", PureDP(0.3)]))
    DP(0.3) + 25*BR(0.1)
    """
    if isinstance(value, Charge):
        return value
    if isinstance(value, Cost):
        return Charge({value: 1})
    if isinstance(value, str):
        return Charge.parse(value)
    if isinstance(value, list | tuple):
        return Charge.join(*map(charge_of, value))
    raise InvalidParameter(
        "charge must be a Charge, a cost, text such as '25*BR(0.1)', or a list of these, "
        f"got {type(value).__name__}",
        parameter="charge",
    )


@lru_cache(maxsize=4096)  # a cost is sorted in every charge that has it
def _sort_key(cost: Cost) -> tuple[int, tuple[Any, ...]]:
    """Return the sort key of a cost: the place of its type in COST_TYPES, then its parameters."""
    return _RANK[type(cost)], tuple(getattr(cost, field.name) for field in fields(cost))
