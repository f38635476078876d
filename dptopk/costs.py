"""Primitive privacy costs, and Charge: the multiset of costs that a release carries.

A cost is a statement about one mechanism for neighbouring data sets (docs/theorems.md lists the statements and the
worst-case pairs). Costs are plain values: all reasoning about them lives in ``dptopk.accounting``. There is no ``+``
on costs, because two bounded-range costs are not a bounded-range cost: costs are gathered in a Charge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from types import MappingProxyType
from typing import Any, ClassVar

from dptopk import _validate as validate
from dptopk._choices import NEIGHBOURS, Neighbours
from dptopk.errors import IncompatibleCosts, InvalidParameter

__all__ = [
    "CDP",
    "ZCDP",
    "ApproxDP",
    "BoundedRange",
    "Charge",
    "Cost",
    "DiscreteGaussianDP",
    "GaussianDP",
    "MultiDP",
    "PureDP",
    "sum_up",
]


class Cost:
    """Base of the closed union of primitive costs; ``symbol`` is the short name used by Charge.parse and str()."""

    symbol: ClassVar[str]

    def _arguments(self) -> str:
        return ", ".join(repr(getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.symbol}({self._arguments()})"


@dataclass(frozen=True, slots=True)
class PureDP(Cost):
    """ε-differential privacy: the privacy loss lies in [-ε, ε]; worst-case pair: randomised response.

    Raises:
        InvalidParameter: unless 0 < epsilon < inf.
    """

    symbol: ClassVar[str] = "DP"
    epsilon: float

    def __post_init__(self) -> None:
        validate.assign(self, epsilon=validate.positive(epsilon=self.epsilon))


@dataclass(frozen=True, slots=True)
class BoundedRange(Cost):
    """ε-bounded range (DR19): for each pair of neighbours the loss lies in [t-ε, t] for some t in [0, ε].

    The cost of one exponential mechanism (one Gumbel selection). It implies ε-DP, and ε-DP implies 2ε-BR.
    """

    symbol: ClassVar[str] = "BR"
    epsilon: float

    def __post_init__(self) -> None:
        validate.assign(self, epsilon=validate.positive(epsilon=self.epsilon))


@dataclass(frozen=True, slots=True)
class CDP(Cost):
    """(μ, τ)-concentrated DP (Dwork-Rothblum): mean loss at most mu, centred loss tau-subgaussian."""

    symbol: ClassVar[str] = "CDP"
    mu: float
    tau: float

    def __post_init__(self) -> None:
        validate.assign(self, mu=validate.nonnegative(mu=self.mu), tau=validate.positive(tau=self.tau))


@dataclass(frozen=True, slots=True)
class ZCDP(Cost):
    """(ξ, ρ)-zero-concentrated DP (Bun-Steinke): D_α <= xi + rho·α for every order α > 1."""

    symbol: ClassVar[str] = "ZCDP"
    rho: float
    xi: float = 0.0

    def __init__(self, rho: float, *, xi: float = 0.0) -> None:
        validate.assign(self, rho=validate.positive(rho=rho), xi=validate.nonnegative(xi=xi))

    def _arguments(self) -> str:
        return repr(self.rho) if self.xi == 0 else f"{self.rho!r}, xi={self.xi!r}"


@dataclass(frozen=True, slots=True)
class GaussianDP(Cost):
    """μ-Gaussian DP: no easier to tell apart than N(0, 1) from N(mu, 1); mu = shift / standard deviation."""

    symbol: ClassVar[str] = "GDP"
    mu: float

    def __post_init__(self) -> None:
        validate.assign(self, mu=validate.positive(mu=self.mu))


@dataclass(frozen=True, slots=True)
class DiscreteGaussianDP(Cost):
    """The discrete Gaussian on the integers, scale σ (absolute), moved by an integer of at most ``shift``.

    The pair at the largest shift dominates (the pmf is log-concave), in both directions.
    """

    symbol: ClassVar[str] = "DGauss"
    scale: float
    shift: int

    def __post_init__(self) -> None:
        validate.assign(self, scale=validate.positive(scale=self.scale), shift=validate.count(shift=self.shift))


@dataclass(frozen=True, slots=True)
class ApproxDP(Cost):
    """(ε, δ)-differential privacy, 0 <= ε < inf, 0 <= δ < 1 (not both 0)."""

    symbol: ClassVar[str] = "ADP"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        epsilon, delta = validate.nonnegative(epsilon=self.epsilon), validate.probability(delta=self.delta)
        if epsilon == 0 and delta == 0:
            raise InvalidParameter("epsilon and delta must not both be 0: such a mechanism costs nothing")
        validate.assign(self, epsilon=epsilon, delta=delta)


@dataclass(frozen=True, slots=True)
class MultiDP(Cost):
    """Several (ε_i, δ_i) statements that one mechanism satisfies at once (Cadir-Najib-Shkel 2025).

    ``constraints`` is kept sorted by falling ε, without repetitions.
    """

    symbol: ClassVar[str] = "MultiDP"
    constraints: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        try:
            pairs = [(epsilon, delta) for epsilon, delta in self.constraints]
        except (TypeError, ValueError):
            pairs = []
        if not pairs:
            raise InvalidParameter("constraints must be a non-empty sequence of (epsilon, delta) pairs")
        checked = {(ApproxDP(*pair).epsilon, ApproxDP(*pair).delta) for pair in pairs}
        validate.assign(self, constraints=tuple(sorted(checked, reverse=True)))

    def _arguments(self) -> str:
        return ", ".join(f"{epsilon!r}:{delta!r}" for epsilon, delta in self.constraints)


COST_TYPES: tuple[type[Cost], ...] = (
    PureDP, BoundedRange, ApproxDP, MultiDP, GaussianDP, DiscreteGaussianDP, ZCDP, CDP,
)  # fmt: skip
_RANK = {cost_type: rank for rank, cost_type in enumerate(COST_TYPES)}
# Spellings that Charge.parse takes, in lower case.
_SPELLINGS: dict[str, type[Cost]] = {
    **{cost_type.__name__.lower(): cost_type for cost_type in COST_TYPES},
    **{cost_type.symbol.lower(): cost_type for cost_type in COST_TYPES},
    "gaussian": GaussianDP,
    "discretegaussian": DiscreteGaussianDP,
}


def sum_up(values: Mapping[float, int] | list[float]) -> float:
    """Sum of floats (with multiplicities, when a mapping is given): the exact sum rounded toward +inf."""
    items = values.items() if isinstance(values, Mapping) else ((value, 1) for value in values)
    try:
        exact = sum((Fraction(value) * times for value, times in items), Fraction(0))
        rounded = float(exact)  # correctly rounded, so at most one step below the exact sum
    except OverflowError:  # a term or the sum is beyond the largest float
        return math.inf
    return rounded if Fraction(rounded) >= exact else math.nextafter(rounded, math.inf)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Charge:
    """A multiset of primitive costs, plus the probability mass of bad events: what a release has cost.

    Args:
        costs: mapping from cost to how many times it is paid; counts of 0 are dropped.
        delta: mass of bad events in [0, 1), added to the δ of the composition of the costs.
        adaptive: True when the costs depend on one another's outcomes, as the selections of one Gumbel top-k do
            (k > 1); then no bound that needs independent costs applies.
        neighbours: the neighbour relation the costs are stated for, "add_remove" or "replace_one".

    Raises:
        InvalidParameter: on anything that is not a cost, a negative count, or a delta outside [0, 1).

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
        if not isinstance(adaptive, bool):
            raise InvalidParameter(f"adaptive must be True or False, got {adaptive!r}")
        kept = {}
        for cost, times in (costs or {}).items():
            if type(cost) not in _RANK:
                raise InvalidParameter(f"costs must map costs such as PureDP(0.1) to counts, got the key {cost!r}")
            times = validate.count(count=times, at_least=0)
            if times:
                kept[cost] = times
        ordered = sorted(kept, key=_order)
        validate.assign(
            self,
            costs=MappingProxyType({cost: kept[cost] for cost in ordered}),
            delta=validate.probability(delta=delta),
            adaptive=adaptive,
            neighbours=validate.member(NEIGHBOURS, neighbours=neighbours),
        )

    def __hash__(self) -> int:
        return hash((tuple(self.costs.items()), self.delta, self.adaptive, self.neighbours))

    def __reduce__(self) -> tuple[Any, ...]:
        return Charge.parse, (str(self),)

    def __iter__(self) -> Iterator[tuple[Cost, int]]:
        return iter(self.costs.items())

    def __bool__(self) -> bool:
        return bool(self.costs) or self.delta > 0

    @property
    def count(self) -> int:
        """Number of costs, with multiplicity."""
        return sum(self.costs.values())

    def of(self, *cost_types: type[Cost]) -> dict[Any, int]:
        """The costs of the given types with their counts."""
        return {cost: times for cost, times in self.costs.items() if isinstance(cost, cost_types)}

    @staticmethod
    def join(*charges: Charge) -> Charge:
        """The charge of running everything in ``charges``; deltas add, rounded up; adaptive if any of them is.

        Raises:
            IncompatibleCosts: when the charges are stated for different neighbour relations.
        """
        if not all(isinstance(charge, Charge) for charge in charges):
            raise InvalidParameter("charges must be Charge objects")
        relations = {charge.neighbours for charge in charges if charge}
        if len(relations) > 1:
            raise IncompatibleCosts(f"cannot join charges for different neighbours: {', '.join(sorted(relations))}")
        costs: dict[Cost, int] = {}
        for charge in charges:
            for cost, times in charge:
                costs[cost] = costs.get(cost, 0) + times
        default: Neighbours = charges[0].neighbours if charges else "add_remove"
        return Charge(
            costs,
            delta=sum_up([charge.delta for charge in charges]),
            adaptive=any(charge.adaptive for charge in charges),
            neighbours=next(iter(relations), default),
        )

    def times(self, repetitions: int) -> Charge:
        """The charge of ``repetitions`` independent runs; the same as joining that many copies."""
        repetitions = validate.count(repetitions=repetitions, at_least=0)
        return Charge(
            {cost: times * repetitions for cost, times in self.costs.items()},
            delta=sum_up({self.delta: repetitions}),
            adaptive=self.adaptive,
            neighbours=self.neighbours,
        )

    def minus(self, used: Charge) -> Charge:
        """The costs of this charge that ``used`` leaves over, without any delta; none if ``used`` is not a part of it.

        >>> print(Charge({BoundedRange(0.1): 25}, delta=1e-9).minus(Charge({BoundedRange(0.1): 8}, delta=1e-9)))
        17*BR(0.1)
        """
        left = {cost: times - used.costs.get(cost, 0) for cost, times in self}
        part = used.costs.keys() <= left.keys() and min(left.values(), default=0) >= 0
        return Charge(left if part else {}, adaptive=part and self.adaptive, neighbours=self.neighbours)

    def __str__(self) -> str:
        terms = [f"{times}*{cost}" if times > 1 else str(cost) for cost, times in self]
        if self.delta:
            terms.append(f"delta({self.delta!r})")
        flags = ["adaptive"] * self.adaptive
        if self.neighbours != "add_remove":
            flags.append(self.neighbours)
        return (" + ".join(terms) or "0") + (f" [{', '.join(flags)}]" if flags else "")

    def __repr__(self) -> str:
        return f"Charge.parse({str(self)!r})"

    @staticmethod
    def parse(text: str) -> Charge:
        """Read what str() writes; spellings BR, DP, ADP, GDP, DGauss, ZCDP, CDP, MultiDP or the class names.

        Args:
            text: terms joined by ``+``, such as ``"25*BR(0.1) + DP(0.3) + ZCDP(0.07) + delta(1e-7) [adaptive]"``;
                ``DP(ε, δ)`` with two arguments is ApproxDP, a MultiDP is written ``MultiDP(ε1:δ1, ε2:δ2)``.

        Raises:
            InvalidParameter: when the text is not of that form, or a parameter is outside its range.
        """
        return _parse(text)


def _order(cost: Cost) -> tuple[int, tuple[Any, ...]]:
    return _RANK[type(cost)], tuple(getattr(cost, field.name) for field in fields(cost))  # type: ignore[arg-type]


_TERM = re.compile(r"\s*(?:(?P<times>\d{1,4000})\s*\*\s*)?(?P<name>[A-Za-z_]+)\s*\((?P<arguments>[^()]*)\)\s*")
_WHOLE = re.compile(r"(?P<terms>[^\[\]]*)(?:\[(?P<flags>[^\[\]]*)\]\s*)?")


def _parse(text: str) -> Charge:
    whole = _WHOLE.fullmatch(text) if isinstance(text, str) else None
    if whole is None:
        raise InvalidParameter(f"charge must be text such as '25*BR(0.1) + DP(0.3)', got {text!r}")
    costs: dict[Cost, int] = {}
    deltas: list[float] = []
    for term in _split_terms(whole["terms"]):
        match = _TERM.fullmatch(term)
        if match is None:
            raise InvalidParameter(f"charge: cannot read the term {term.strip()!r}; write terms as 25*BR(0.1)")
        times = int(match["times"] or 1)
        if match["name"].lower() == "delta":
            deltas += [_number(match["arguments"], term)] * times
        else:
            cost = _parse_cost(match["name"], match["arguments"], term)
            costs[cost] = costs.get(cost, 0) + times
    flags = {flag.strip() for flag in (whole["flags"] or "").split(",")} - {""}
    relations = [relation for relation in NEIGHBOURS if relation in flags]
    if flags - {"adaptive", *relations} or len(relations) > 1:
        raise InvalidParameter(f"charge: unknown flags [{whole['flags']}]; known: adaptive, {', '.join(NEIGHBOURS)}")
    relation = relations[0] if relations else "add_remove"
    return Charge(costs, delta=sum_up(deltas), adaptive="adaptive" in flags, neighbours=relation)


def _split_terms(terms: str) -> list[str]:
    """Split at the plus signs outside brackets (1e+2 is a number); '0' alone and '' are the empty charge."""
    if terms.strip() in {"", "0"}:
        return []
    return re.split(r"\+(?![^()]*\))", terms)


def _number(text: str, term: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidParameter(f"charge: {text.strip()!r} in {term.strip()!r} is not a number") from None


def _parse_cost(name: str, arguments: str, term: str) -> Cost:
    cost_type = _SPELLINGS.get(name.lower())
    if cost_type is None:
        known = ", ".join(known.symbol for known in COST_TYPES)
        raise InvalidParameter(f"charge: unknown cost {name!r} in {term.strip()!r}; known: {known}")
    parts = [part.split("=")[-1] for part in arguments.split(",") if part.strip()]
    if cost_type is MultiDP:
        pairs = [tuple(_number(number, term) for number in part.split(":")) for part in parts]
        return MultiDP(pairs)  # type: ignore[arg-type]
    numbers: list[Any] = [_number(part, term) for part in parts]
    if cost_type is PureDP and len(numbers) == 2:
        cost_type = ApproxDP
    if cost_type is ZCDP and len(numbers) == 2:
        return ZCDP(numbers[0], xi=numbers[1])
    if len(numbers) != (1 if cost_type is ZCDP else len(fields(cost_type))):  # type: ignore[arg-type]
        raise InvalidParameter(f"charge: wrong number of parameters in {term.strip()!r}")
    if cost_type is DiscreteGaussianDP and numbers[1].is_integer():
        numbers[1] = int(numbers[1])
    return cost_type(*numbers)
