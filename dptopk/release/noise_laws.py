"""The laws of noise on released counts: one class for each family.

A law states everything that a release, its intervals, a plan and an audit use of the noise. Draws
are exact (``dptopk.mechanisms.samplers``); ``dptopk.testing.check_mechanism`` compares them with
the law. All probabilities are upper bounds. Proofs: docs/notes/intervals.md, docs/notes/box.md.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from dptopk._internal import tails
from dptopk._internal.box_tails import box_side_tail, box_std, box_tail
from dptopk._internal.maxima import (
    gaussian_maximum_tail,
    gaussian_offset,
    laplace_maximum_tail,
    laplace_offset,
)
from dptopk._internal.rounding import tail_up
from dptopk.errors import InvalidParameter

Law = TypeVar("Law", bound=type["NoiseLaw"])
# A bound below this is not improved by a sum, whose terms would underflow.
SETTLED = 1e-100
LARGEST_EXPONENT = 700.0  # e to a larger power may be no float
_FAMILIES: dict[str, type[NoiseLaw]] = {}


class NoiseLaw(ABC):
    """A law of integer noise, symmetric around 0 and falling on both sides; a frozen dataclass. In
    its formulas N, N1, N_i are noises on different counts, in whole counts or, for noise in finer
    steps, in these.
    """

    #: The name of the family in stored answers.
    kind: ClassVar[str]
    #: Whether the noises of different counts are independent.
    independent: ClassVar[bool] = True
    #: Where the law is cut: P[|N| > bound] = 0; None = nowhere.
    bound: int | None = None

    @property
    @abstractmethod
    def std(self) -> float:
        """Return the standard deviation of the noise; an upper bound for cut or rounded noise."""

    @abstractmethod
    def tail(self, c: int) -> float:
        """Return an upper bound on P[N > c], c >= 0."""

    @abstractmethod
    def difference(self, c: int) -> float:
        """Return an upper bound on P[N1 - N2 > c] for the noises of two counts, c >= 0."""

    @abstractmethod
    def floor_offset(self, special: int, delta: float) -> int:
        """Return an integer c >= 0, the smallest that is proven to satisfy P[max of ``special``
        noises - another noise > c] <= delta: how far above a noisy floor a threshold must be.

        Args:
            special: how many noises there are beside that of the floor: one for each label that
                one user alone has, at least 1.
            delta: the probability, in (0, 1).
        """

    @property
    def precise(self) -> bool:
        """Return whether ``tail`` is too large by a relative 1e-6 at most."""
        return True

    def miss_probability(self, n: int, w: int) -> float:
        """Return an upper bound on P[some |N_i| > w, i = 1..n]; this default is for independent
        noises.
        """
        return tails.union(min(2 * self.tail(w), 1.0), n)

    def spread_probability(self, n: int, w: int) -> float:
        """Return an upper bound on P[some |N_i - N_j| > 2w, i, j = 1..n]; this default is the
        probability that some |N_i| > w, without which no two can differ by more than 2w.
        """
        return self.miss_probability(n, w)

    def sum_miss_probability(self, common: NoiseLaw, w: int) -> float | None:
        """Return an upper bound on P[|N + Y| > w] for an independent Y with the law ``common``;
        None where no such bound is known, so that the caller uses a general one.
        """
        return None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Return the family and its parameters as JSON holds them; ``law_of`` reads them."""
        values = asdict(self)  # type: ignore[call-overload]
        return {"kind": self.kind, **values}

    @classmethod
    def of_parameters(cls, plain: Mapping[str, Any]) -> Self:
        """Return the law with these parameters; names that are not fields of this family are
        ignored, because older stored answers list the parameters of all families.
        """
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in plain.items() if name in names})


def register_law(law: Law) -> Law:
    """Register a family of laws by its ``kind``, so that stored answers can name it; return the
    class.

    Raises:
        InvalidParameter: when another family has that name.
    """
    if _FAMILIES.setdefault(law.kind, law) is not law:
        raise InvalidParameter(f"kind: another law has the name {law.kind!r}")
    return law


def law_of(plain: Mapping[str, Any]) -> NoiseLaw:
    """Return the law that ``NoiseLaw.to_dict`` wrote.

    Raises:
        InvalidParameter: when no family has that name.

    >>> law_of({"kind": "gaussian", "scale": 10.0})
    GaussianNoise(scale=10.0, bound=None)
    """
    parameters = dict(plain)
    kind = parameters.pop("kind")
    if kind not in _FAMILIES:
        raise InvalidParameter(f"noise: the kind must be one of {', '.join(_FAMILIES)}")
    return _FAMILIES[kind].of_parameters(parameters)


@dataclass(frozen=True)
class IndependentNoiseLaw(NoiseLaw):
    """A family of independent noises with a scale, perhaps conditioned on [-bound, bound].

    Attributes:
        scale: the scale of the noise in counts.
        bound: where the law is cut; None = nowhere.
    """

    scale: float
    bound: int | None = None

    @abstractmethod
    def uncut_tail(self, c: int) -> float:
        """Return an upper bound on P[N > c] for the law without the cut, c >= 0."""

    @abstractmethod
    def edge_mass(self, width: int, bound: int) -> float:
        """Return an upper bound on P[N > bound - width] for the law cut to [-bound, bound], the
        mass of its ``width`` outermost points; at most 1/2.
        """

    @abstractmethod
    def sum_tail(self, common: Self, c: int) -> float:
        """Return an upper bound on P[N + Y > c], c >= 0, for an independent Y with the law
        ``common`` of the same family.
        """

    def tail(self, c: int) -> float:
        """Return an upper bound on P[N > c], c >= 0, for the law with its cut."""
        if self.bound is None:
            return self.uncut_tail(c)
        if c < self.bound:
            return self.edge_mass(self.bound - c, self.bound)
        return 0.0

    def sum_miss_probability(self, common: NoiseLaw, w: int) -> float | None:
        """Return an upper bound on P[|N + Y| > w] by the law of the sum, where both laws are of
        the same family and N is not cut; None otherwise.
        """
        if not isinstance(common, type(self)) or self.bound is not None:
            return None
        # If the sum exceeds w, one of the two noises exceeds its part of w.
        own_share = round(w * self.scale / (self.scale + common.scale))
        both_tails = 2 * self.tail(own_share) + 2 * common.tail(w - own_share)
        union_bound = min(both_tails, 1.0)
        if union_bound < SETTLED:
            return union_bound
        return min(2 * self.sum_tail(common, w), union_bound)


@register_law
@dataclass(frozen=True)
class LaplaceNoise(IndependentNoiseLaw):
    """P[n] ∝ exp(-|n|/scale), for |n| <= bound if there is a bound.

    >>> LaplaceNoise(1.0).tail(0) > 0.2689
    True
    """

    kind: ClassVar[str] = "laplace"

    @property
    def rate(self) -> float:
        """Return the inverse of the scale."""
        return 1 / self.scale

    @property
    def std(self) -> float:
        """Return the standard deviation without the cut: sqrt(2q)/(1-q) with q = exp(-rate), which
        is 1/(sqrt(2) sinh(rate/2)).
        """
        half = self.rate / 2
        if half < LARGEST_EXPONENT:
            return 1 / (math.sqrt(2) * math.sinh(half))
        return 0.0

    def uncut_tail(self, c: int) -> float:
        """Return P[N > c] without the cut, c >= 0, by its closed form, rounded up."""
        return tails.laplace_tail(self.rate, c)

    def difference(self, c: int) -> float:
        """Return P[N1 - N2 > c] without the cut, c >= 0, by its closed form, rounded up."""
        return tails.laplace_difference_tail(self.rate, c)

    def floor_offset(self, special: int, delta: float) -> int:
        """Return the smallest proven c with P[max of ``special`` noises - another > c] <= delta,
        without the cut; the probability is a sum over the law of one noise.
        """
        return laplace_offset(self.rate, special, delta)

    def edge_mass(self, width: int, bound: int) -> float:
        """Return the mass of the ``width`` outermost points on one side of the law cut to [-bound,
        bound], by its closed form, rounded up; at most 1/2.
        """
        return min(tails.laplace_edge_mass(self.rate, width, bound), 0.5)

    def sum_tail(self, common: Self, c: int) -> float:
        """Return an upper bound on P[N + Y > c], c >= 0, by a sum over the law of one of them."""
        # Y is symmetric, so that N + Y has the law of N - Y: of a noise less another one.
        smaller, larger = sorted((self.rate, common.rate))
        return laplace_maximum_tail(smaller, 1, c, larger)


@register_law
@dataclass(frozen=True)
class GaussianNoise(IndependentNoiseLaw):
    """P[n] ∝ exp(-n²/(2 scale²)), for |n| <= bound if there is a bound."""

    kind: ClassVar[str] = "gaussian"

    @property
    def std(self) -> float:
        """Return an upper bound on the standard deviation without the cut: the scale if that is at
        least 2, else the standard deviation itself, computed from the law.
        """
        if self.scale >= 2:
            return self.scale
        n = np.arange(-60.0, 61.0)  # more than 30 scales on each side, beyond which nothing is
        weights = tails.gaussian_weight(n, self.scale)
        variance = (weights * n**2).sum() / weights.sum()
        return float(np.sqrt(variance))

    def uncut_tail(self, c: int) -> float:
        """Return an upper bound on P[N > c] without the cut, c >= 0: a sum, or for scales above
        1000 an integral.
        """
        return tails.gaussian_tail(self.scale, c)

    def difference(self, c: int) -> float:
        """Return an upper bound on P[N1 - N2 > c] without the cut, c >= 0, by sums over the law of
        the difference.
        """
        return tails.gaussian_difference_tail(self.scale, c)

    def floor_offset(self, special: int, delta: float) -> int:
        """Return the smallest proven c with P[max of ``special`` noises - another > c] <= delta,
        without the cut; the probability is a sum over the law of one noise.
        """
        return gaussian_offset(self.scale, special, delta)

    def edge_mass(self, width: int, bound: int) -> float:
        """Return an upper bound on the mass of the ``width`` outermost points on one side of the
        law cut to [-bound, bound], at most 1/2: a sum, in coarse steps for more than 100,000
        points.
        """
        return min(tails.gaussian_edge_mass(self.scale, width, bound), 0.5)

    @property
    def precise(self) -> bool:
        """Return whether ``tail`` is too large by a relative 1e-6 at most; it is not where the cut
        is so near or so far that the edge mass is bounded in coarse steps.
        """
        return self.bound is None or self.scale <= self.bound <= tails.EDGE_POINTS

    def sum_tail(self, common: Self, c: int) -> float:
        """Return an upper bound on P[N + Y > c], c >= 0, by a sum over the law of one of them."""
        # Y is symmetric, so that N + Y has the law of N - Y: of a noise less another one.
        smaller, larger = sorted((self.scale, common.scale))
        return gaussian_maximum_tail(larger, 1, c, smaller)


@register_law
@dataclass(frozen=True)
class RoundedNormalNoise(NoiseLaw):
    """Real noise whose tails are at most those of a normal law, rounded to the nearest integer.

    Attributes:
        scale: the standard deviation of the normal law, in counts.
    """

    kind: ClassVar[str] = "normal"
    scale: float

    @property
    def std(self) -> float:
        """Return an upper bound on the standard deviation: that of the normal law, plus 1/2 for
        rounding.
        """
        return self.scale + 0.5

    def tail(self, c: int) -> float:
        """Return an upper bound on P[N > c], c >= 0: the normal tail at c + 1/2, which the real
        noise must reach.
        """
        deviations = (c + 0.5) / (self.scale * math.sqrt(2))
        return tail_up(math.erfc(deviations) / 2)

    def difference(self, c: int) -> float:
        """Return an upper bound on P[N1 - N2 > c], c >= 0, by the union bound: one of the two
        noises must exceed half of c.
        """
        return min(2 * self.tail(c // 2), 1.0)

    def floor_offset(self, special: int, delta: float) -> int:
        """Return the smallest c at which the union bound on P[max of ``special`` noises - another
        > c] is at most delta.
        """

        def chance(c: int) -> float:
            """Return the union bound at c."""
            return min(special * self.difference(c), 1.0)

        return tails.smallest_offset(chance, delta, "delta")


@register_law
@dataclass(frozen=True)
class BoxNoise(NoiseLaw):
    """Box noise (docs/notes/box.md): the noise of a count is U - U_0, where U and U_0 are uniform
    on the integers 0..n-1. Each count has its own U; all share U_0, the corner of a box, and n, its
    side.

    Attributes:
        scale: the scale of the noise in counts.
        power: of the law of the side n = step·m, P(m) ∝ m^power e^{-m·step/scale}.
        step: linf, of which the side is a multiple.
    """

    kind: ClassVar[str] = "box"
    independent: ClassVar[bool] = False
    scale: float
    power: int
    step: int = 1

    @property
    def rate(self) -> float:
        """Return the rate of the law of m: step/scale."""
        return self.step / self.scale

    @property
    def std(self) -> float:
        """Return the standard deviation of the noise on one count, the root of E[n² - 1]/6."""
        return box_std(self.power, self.rate, self.step)

    def tail(self, c: int) -> float:
        """Return an upper bound on P[N > c], c >= 0, a few per cent too large at most; it sums
        over blocks of sides.
        """
        return box_tail(self.power, self.rate, self.step, 1, c)

    def difference(self, c: int) -> float:
        """Return an upper bound on P[N1 - N2 > c], c >= 0.

        U_0 cancels, so that N1 - N2 = U_1 - U_2 has the same law as one noise U_1 - U_0.
        """
        return self.tail(c)

    def floor_offset(self, special: int, delta: float) -> int:
        """Return the smallest c at which the bound on P[max of ``special`` noises - another > c]
        is at most delta; the bound sums over blocks of sides.
        """
        return _box_offset(self, special, delta)

    def miss_probability(self, n: int, w: int) -> float:
        """Return an upper bound on P[some |N_i| > w, i = 1..n]: by the joint law of the noises,
        once for each direction.
        """
        return min(2 * box_tail(self.power, self.rate, self.step, n, w), 1.0)

    def spread_probability(self, n: int, w: int) -> float:
        """Return an upper bound on P[some |N_i - N_j| > 2w]: the probability that the side exceeds
        2w + 1, because noises differ by less than the side.
        """
        return box_side_tail(self.power, self.rate, self.step, 2 * w + 1)


@lru_cache(maxsize=256)
def _box_offset(law: BoxNoise, special: int, delta: float) -> int:
    """Return ``law.floor_offset(special, delta)``, stored between calls."""

    def chance(c: int) -> float:
        """Return the bound at c."""
        return box_tail(law.power, law.rate, law.step, special, c)

    return tails.smallest_offset(chance, delta, "delta")
