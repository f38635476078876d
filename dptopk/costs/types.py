"""The primitive privacy costs: the guarantees that one mechanism gives for neighbouring data sets.

A cost is a plain, validated value (docs/theorems.md lists the statements and the worst-case pairs).
The properties of a type of cost that accounting uses (what it implies, its pair, its log-MGF, ...)
are in one module of ``dptopk.accounting.cost_models``. There is no ``+`` on costs, because two
bounded-range costs are not a bounded-range cost: costs are collected in a Charge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import chain
from typing import ClassVar

import numpy as np

from dptopk._internal import validate
from dptopk.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Cost:
    """The base of the primitive costs, of which COST_TYPES lists all.

    Attributes:
        symbol: the short name that str() writes and Charge.parse reads.
        spellings: other names, in lower case, that Charge.parse reads.
    """

    symbol: ClassVar[str]
    spellings: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        validate.parameters(self)

    def _arguments(self) -> str:
        """Return the parameters as text, as they are written between parentheses."""
        return ", ".join(repr(getattr(self, field.name)) for field in fields(self))

    def __str__(self) -> str:
        return f"{self.symbol}({self._arguments()})"


@dataclass(frozen=True, slots=True)
class PureDP(Cost):
    """ε-differential privacy: the privacy loss, the logarithm of how much more likely an answer is
    with a user than without, lies in [-ε, ε]. The worst such mechanism is randomised response.

    Raises:
        InvalidParameter: unless 0 < epsilon < inf.
    """

    symbol: ClassVar[str] = "DP"
    epsilon: float


@dataclass(frozen=True, slots=True)
class BoundedRange(Cost):
    """ε-bounded range (Durfee-Rogers 2019): for each pair of neighbours the privacy loss lies in
    [t - ε, t] for some t in [0, ε].

    It is the cost of one exponential mechanism (one Gumbel selection). It implies ε-DP, and ε-DP
    implies 2ε-BR.
    """

    symbol: ClassVar[str] = "BR"
    epsilon: float


@dataclass(frozen=True, slots=True)
class CDP(Cost):
    """(μ, τ)-concentrated DP (Dwork-Rothblum 2016): the privacy loss has a mean of at most mu, and
    less its mean it is tau-subgaussian.
    """

    symbol: ClassVar[str] = "CDP"
    mu: float
    tau: float

    def __post_init__(self) -> None:
        validate.parameters(self, mu=validate.nonnegative)


@dataclass(frozen=True, slots=True)
class ZCDP(Cost):
    """(ξ, ρ)-zero-concentrated DP (Bun-Steinke 2016): the Rényi divergence D_α is at most
    xi + rho·α for every order α > 1.
    """

    symbol: ClassVar[str] = "ZCDP"
    rho: float
    xi: float = 0.0

    def __init__(self, rho: float, *, xi: float = 0.0) -> None:
        validate.assign(self, rho=validate.positive(rho=rho), xi=validate.nonnegative(xi=xi))

    def _arguments(self) -> str:
        """Return the parameters as text, without a ξ of 0."""
        if self.xi == 0:
            return repr(self.rho)
        return f"{self.rho!r}, xi={self.xi!r}"


@dataclass(frozen=True, slots=True)
class GaussianDP(Cost):
    """μ-Gaussian DP: neighbours are no easier to tell apart than N(0, 1) from N(mu, 1).

    Gaussian noise on a number that one user moves by at most a shift has mu = shift / standard
    deviation.
    """

    symbol: ClassVar[str] = "GDP"
    spellings: ClassVar[tuple[str, ...]] = ("gaussian",)
    mu: float


@dataclass(frozen=True, slots=True)
class DiscreteGaussianDP(Cost):
    """The cost of discrete Gaussian noise, P[n] ∝ e^{-n²/(2 scale²)}, on an integer that one user
    moves by at most ``shift``.

    The pair at the largest shift dominates (the pmf is log-concave), in both directions.
    """

    symbol: ClassVar[str] = "DGauss"
    spellings: ClassVar[tuple[str, ...]] = ("discretegaussian",)
    scale: float
    shift: int


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceDP(Cost):
    """The cost of discrete Laplace noise, P[n] ∝ e^{-|n|/scale}, on an integer that one user moves
    by at most ``shift``.

    A mechanism may charge one such cost for each group of values that its noise is added to, if one
    user moves the values of the group by integers whose absolute values add up to at most ``shift``
    (docs/notes/discrete-laplace.md). It implies (shift/scale)-DP and costs less; with shift = 1 it
    is PureDP(1/scale).
    """

    symbol: ClassVar[str] = "DLap"
    spellings: ClassVar[tuple[str, ...]] = ("discretelaplace", "laplace")
    scale: float
    shift: int


@dataclass(frozen=True, slots=True)
class LaplaceDP(Cost):
    """The cost of continuous Laplace noise of density ∝ e^{-|x|/scale} on a real number that one
    user moves by at most ``shift``.

    It is for the releases of other software: noise of this package is discrete. It implies
    (shift/scale)-DP and costs less;
    the pair at the largest shift dominates, in both directions (docs/notes/discrete-laplace.md,
    "The continuous law").
    """

    symbol: ClassVar[str] = "Lap"
    spellings: ClassVar[tuple[str, ...]] = ("continuouslaplace",)
    scale: float
    shift: float

    def __post_init__(self) -> None:
        validate.assign(
            self,
            scale=validate.positive(scale=self.scale),
            shift=validate.positive(shift=self.shift),
        )


@dataclass(frozen=True, slots=True)
class SparseGaussianDP(Cost):
    """The cost of counts of private labels with discrete Gaussian noise of this scale, of which
    those above ``threshold`` are shown.

    One user moves at most ``labels`` counts, each by an integer of at most ``shift``; a label that
    nobody else has is shown with the small probability P[noise > threshold - shift], or moves like
    any other. The guarantee is the largest δ over all numbers of labels of the two kinds, at
    several hundred values of ε (docs/notes/sparse-gaussian.md).

    Raises:
        InvalidParameter: also when threshold < shift.
    """

    symbol: ClassVar[str] = "SGauss"
    scale: float
    shift: int
    threshold: int
    labels: int

    def __post_init__(self) -> None:
        validate.parameters(self)
        threshold = validate.count(at_least=self.shift, threshold=self.threshold)
        validate.assign(self, threshold=threshold)


@dataclass(frozen=True, slots=True)
class LabelCoinsDP(Cost):
    """The cost of showing private labels by independent coins, whose probabilities depend on the
    label's own count alone, and of releasing nothing else.

    The level of a label is about how many users have it; each level has a probability of being
    shown. That of the first level, of a label that one user alone has, is ``first``. The coin of
    each next level has the largest probability at which it, but for a share ``first`` of its law,
    has a Rényi divergence of ``order`` of at most ``divergence``, in both directions, from the coin
    of the level before. One user moves at most ``labels`` labels by one level each. The guarantee
    is the largest δ over all their levels, at up to several hundred values of ε
    (docs/notes/partition-selection.md).

    Raises:
        InvalidParameter: unless order > 1, divergence > 0 and 0 < first < 1/2.
    """

    symbol: ClassVar[str] = "Coins"
    spellings: ClassVar[tuple[str, ...]] = ("labelcoins",)
    order: float
    divergence: float
    first: float
    labels: int

    def __post_init__(self) -> None:
        validate.parameters(self)
        if self.order <= 1:
            raise InvalidParameter(f"order must be above 1, got {self.order}")
        if self.first >= 0.5:
            raise InvalidParameter(f"first must be below 1/2, got {self.first}")


@dataclass(frozen=True, slots=True)
class ExponentialClockDP(Cost):
    """The cost of an exponential clock, a random time of exponential law, whose rate one user
    changes by a factor in [1, e^ε].

    For x >= 0, δ(x) <= (1 - e^{-ε}) e^{-(x + ε)κ}, κ = 1/(e^ε - 1), for both orders of the
    neighbours. A race of clocks, such as Gumbel top-k, costs one for each clock that a user can
    change, however many selections are made of it (docs/notes/clocks.md). BoundedRange(ε) implies
    it; it implies no pure DP and no zCDP, since the loss has exponential tails: E e^{λL} is
    infinite from λ = κ on.
    """

    symbol: ClassVar[str] = "Clock"
    spellings: ClassVar[tuple[str, ...]] = ("exponentialclock",)
    epsilon: float


@dataclass(frozen=True, slots=True)
class ApproxDP(Cost):
    """(ε, δ)-differential privacy.

    Raises:
        InvalidParameter: unless 0 <= epsilon < inf and 0 <= delta < 1, and not both are 0.
    """

    symbol: ClassVar[str] = "ADP"
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        validate.parameters(self, epsilon=validate.nonnegative, delta=validate.probability)
        if self.epsilon == 0 and self.delta == 0:
            raise InvalidParameter("epsilon and delta must not both be 0: that is no cost")


def checked_pairs(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return (ε, δ) pairs as floats, after a check of their ranges.

    A mechanism on labels states hundreds of pairs. So floats are checked all at once; only if one
    of them is refused they are checked one by one, so that the message can name it.

    Args:
        pairs: (ε, δ) pairs of real numbers.

    Raises:
        InvalidParameter: as ``ApproxDP`` does.
    """
    if set(map(type, chain.from_iterable(pairs))) == {float}:
        values = np.array(pairs)
        epsilon, delta = values.T
        finite_epsilons = np.isfinite(epsilon) & (epsilon >= 0)
        in_range = (delta >= 0) & (delta < 1)
        not_both_zero = (epsilon > 0) | (delta > 0)
        if (finite_epsilons & in_range & not_both_zero).all():
            return list(map(tuple, (values + 0.0).tolist()))  # -0.0 becomes 0.0
    costs = [ApproxDP(*pair) for pair in pairs]
    return [(cost.epsilon, cost.delta) for cost in costs]


@dataclass(frozen=True, slots=True)
class MultiDP(Cost):
    """Several (ε_i, δ_i) guarantees that one mechanism gives at once (Cadir-Najib-Shkel 2026).

    ``constraints`` are sorted by falling ε here, and repetitions are left out.

    Raises:
        InvalidParameter: when there is none, or one of them is no ``ApproxDP``.
    """

    symbol: ClassVar[str] = "MultiDP"
    constraints: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        try:
            pairs = [(epsilon, delta) for epsilon, delta in self.constraints]
        except (TypeError, ValueError):
            pairs = []
        if not pairs:
            raise InvalidParameter(
                "constraints must be a non-empty sequence of (epsilon, delta) pairs"
            )
        checked = set(checked_pairs(pairs))
        validate.assign(self, constraints=tuple(sorted(checked, reverse=True)))

    def _arguments(self) -> str:
        """Return the constraints as text, each as "ε:δ"."""
        return ", ".join(f"{epsilon!r}:{delta!r}" for epsilon, delta in self.constraints)


# The types in the order in which str() lists costs. A new type is added here and has its model in a
# module of dptopk.accounting.cost_models.
COST_TYPES: tuple[type[Cost], ...] = (
    PureDP, BoundedRange, ExponentialClockDP, ApproxDP, MultiDP, DiscreteLaplaceDP, LaplaceDP,
    GaussianDP,
    DiscreteGaussianDP, SparseGaussianDP, LabelCoinsDP, ZCDP, CDP,
)  # fmt: skip
