"""The laws of noise on released counts: one class for each family, which says all of it.

A law is a statement: what a release, its intervals, a plan and an audit know of noise comes from
here. Draws are exact (``dptopk.mechanisms.samplers``); ``dptopk.testing.check_mechanism`` compares
them with the law. All probabilities are upper bounds. Proofs: docs/notes/intervals.md,
docs/notes/box.md.
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
# A chance so small is not made smaller by a sum, whose terms would underflow.
SETTLED = 1e-100
_FAMILIES: dict[str, type[NoiseLaw]] = {}


class NoiseLaw(ABC):
    """A law of integer noise, symmetric around 0 and falling on both sides; a frozen dataclass."""

    #: The name of the family in stored answers.
    kind: ClassVar[str]
    #: Whether the noises of different counts are independent.
    independent: ClassVar[bool] = True
    #: Where the law is cut: P[|N| > bound] = 0; None = nowhere.
    bound: int | None = None

    @property
    @abstractmethod
    def std(self) -> float:
        """Standard deviation; of cut or rounded noise an upper bound."""

    @abstractmethod
    def tail(self, c: int) -> float:
        """Upper bound on P[N > c], c >= 0."""

    @abstractmethod
    def difference(self, c: int) -> float:
        """Upper bound on P[N1 - N2 > c] of two counts, c >= 0."""

    @abstractmethod
    def floor_offset(self, special: int, delta: float) -> int:
        """The smallest certified integer c with P[max of ``special`` noises - another > c] <=
        delta.
        """

    @property
    def precise(self) -> bool:
        """Whether ``tail`` is too large by at most a relative 1e-6."""
        return True

    def missed(self, n: int, w: int) -> float:
        """Upper bound on P[some |N_i| > w, i = 1..n]."""
        return tails.union(min(2 * self.tail(w), 1.0), n)

    def apart(self, n: int, w: int) -> float:
        """Upper bound on P[some |N_i - N_j| > 2w, i, j = 1..n]."""
        return self.missed(n, w)

    def sum_missed(self, common: NoiseLaw, w: int) -> float | None:
        """Upper bound on P[|N + Y| > w], Y independent of this other law; None where only the
        general bound is known.
        """
        return None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """The family and its parameters as JSON holds them; ``law_of`` reads it."""
        values = asdict(self)  # type: ignore[call-overload]
        return {"kind": self.kind, **values}

    @classmethod
    def of_parameters(cls, plain: Mapping[str, Any]) -> Self:
        """The law of these parameters; those of other families, which older answers list with their
        defaults, are left out.
        """
        own = {part.name for part in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in plain.items() if name in own})


def register_law(law: Law) -> Law:
    """Make a family of laws known by its ``kind``, so that stored answers can name it.

    Raises:
        InvalidParameter: when another family has that name.
    """
    if _FAMILIES.setdefault(law.kind, law) is not law:
        raise InvalidParameter(f"kind: another law has the name {law.kind!r}")
    return law


def law_of(plain: Mapping[str, Any]) -> NoiseLaw:
    """The law that ``to_dict`` wrote.

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
    """A family of independent noises with a scale, perhaps cut to [-bound, bound].

    Attributes:
        scale: in counts.
        bound: where the law is cut; None = nowhere.
    """

    scale: float
    bound: int | None = None

    @abstractmethod
    def uncut_tail(self, c: int) -> float:
        """Upper bound on P[N > c] of the law that is not cut, c >= 0."""

    @abstractmethod
    def edge_mass(self, width: int, bound: int) -> float:
        """Upper bound on P[N > bound - width] of the law cut to [-bound, bound], at most 1/2."""

    @abstractmethod
    def sum_tail(self, common: Self, c: int) -> float:
        """Upper bound on P[N + Y > c], c >= 0, Y of the same family."""

    def tail(self, c: int) -> float:
        """Upper bound on P[N > c], c >= 0."""
        if self.bound is None:
            return self.uncut_tail(c)
        if c < self.bound:
            return self.edge_mass(self.bound - c, self.bound)
        return 0.0

    def sum_missed(self, common: NoiseLaw, w: int) -> float | None:
        """By a sum, where the other law is of this family too."""
        if not isinstance(common, type(self)) or self.bound is not None:
            return None
        # One of the two is beyond its part of w.
        part = round(w * self.scale / (self.scale + common.scale))
        tails_apart = 2 * self.tail(part) + 2 * common.tail(w - part)
        apart = min(tails_apart, 1.0)
        if apart < SETTLED:
            return apart
        return min(2 * self.sum_tail(common, w), apart)


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
        """The inverse of the scale."""
        return 1 / self.scale

    @property
    def std(self) -> float:
        """sqrt(2q)/(1-q), q = exp(-rate)."""
        half = self.rate / 2
        if half < 700:
            return 1 / (math.sqrt(2) * math.sinh(half))
        return 0.0

    def uncut_tail(self, c: int) -> float:
        """In closed form."""
        return tails.laplace_tail(self.rate, c)

    def difference(self, c: int) -> float:
        """In closed form, of uncut noise."""
        return tails.laplace_difference_tail(self.rate, c)

    def floor_offset(self, special: int, delta: float) -> int:
        """By a sum of the law and its tails."""
        return laplace_offset(self.rate, special, delta)

    def edge_mass(self, width: int, bound: int) -> float:
        """In closed form."""
        return min(tails.laplace_edge_mass(self.rate, width, bound), 0.5)

    def sum_tail(self, common: Self, c: int) -> float:
        """By a sum; the order of the two does not matter."""
        less, more = sorted((self.rate, common.rate))
        return laplace_maximum_tail(less, 1, c, more)


@register_law
@dataclass(frozen=True)
class GaussianNoise(IndependentNoiseLaw):
    """P[n] ∝ exp(-n²/(2 scale²)), for |n| <= bound if there is a bound."""

    kind: ClassVar[str] = "gaussian"

    @property
    def std(self) -> float:
        """The scale, or less where that is below 2."""
        if self.scale >= 2:
            return self.scale
        n = np.arange(-60.0, 61.0)
        weights = tails.density(n, self.scale)
        variance = (weights * n**2).sum() / weights.sum()
        return float(np.sqrt(variance))

    def uncut_tail(self, c: int) -> float:
        """By a sum, beyond a scale of 1000 by an integral."""
        return tails.gaussian_tail(self.scale, c)

    def difference(self, c: int) -> float:
        """By theta sums, of uncut noise."""
        return tails.gaussian_difference_tail(self.scale, c)

    def floor_offset(self, special: int, delta: float) -> int:
        """By a sum of the law and its tails."""
        return gaussian_offset(self.scale, special, delta)

    def edge_mass(self, width: int, bound: int) -> float:
        """By a sum, of more than 100,000 points in steps."""
        return min(tails.gaussian_edge_mass(self.scale, width, bound), 0.5)

    @property
    def precise(self) -> bool:
        """Not where the law is cut so near or so far that its edges are bounded in steps."""
        return self.bound is None or self.scale <= self.bound <= tails.EDGE_POINTS

    def sum_tail(self, common: Self, c: int) -> float:
        """By a sum; the order of the two does not matter."""
        less, more = sorted((self.scale, common.scale))
        return gaussian_maximum_tail(more, 1, c, less)


@register_law
@dataclass(frozen=True)
class RoundedNormalNoise(NoiseLaw):
    """Real noise with tails of at most a normal law's, rounded to the nearest integer."""

    kind: ClassVar[str] = "normal"
    scale: float

    @property
    def std(self) -> float:
        """The standard deviation of the normal law, and 1/2 for rounding."""
        return self.scale + 0.5

    def tail(self, c: int) -> float:
        """N > c only where the real noise is at least c + 1/2."""
        deviations = (c + 0.5) / (self.scale * math.sqrt(2))
        return tail_up(math.erfc(deviations) / 2)

    def difference(self, c: int) -> float:
        """By the union bound: one of two noises is beyond half of c, on its side."""
        return min(2 * self.tail(c // 2), 1.0)

    def floor_offset(self, special: int, delta: float) -> int:
        """By the union bound."""
        return tails.smallest_offset(
            lambda c: min(special * self.difference(c), 1.0), delta, "delta"
        )


@register_law
@dataclass(frozen=True)
class BoxNoise(NoiseLaw):
    """U - U_0 of docs/notes/box.md: the noises of different counts share U_0 and the side n.

    Attributes:
        scale: in counts.
        power, step: n = step·m with P(m) ∝ m^power e^{-m·step/scale}.
    """

    kind: ClassVar[str] = "box"
    independent: ClassVar[bool] = False
    scale: float
    power: int
    step: int = 1

    @property
    def rate(self) -> float:
        """The rate of the law of m."""
        return self.step / self.scale

    @property
    def std(self) -> float:
        """The root of E[n² - 1]/6."""
        return box_std(self.power, self.rate, self.step)

    def tail(self, c: int) -> float:
        """By blocks of sides, a few per cent too large at most."""
        return box_tail(self.power, self.rate, self.step, 1, c)

    def difference(self, c: int) -> float:
        """Return the bound for one noise: a difference of two has no corner, and neither has one
        beside 0.
        """
        return self.tail(c)

    def floor_offset(self, special: int, delta: float) -> int:
        """By blocks of sides."""
        return _box_offset(self, special, delta)

    def missed(self, n: int, w: int) -> float:
        """By the joint law, each side apart."""
        return min(2 * box_tail(self.power, self.rate, self.step, n, w), 1.0)

    def apart(self, n: int, w: int) -> float:
        """Box noises differ by less than the side."""
        return box_side_tail(self.power, self.rate, self.step, 2 * w + 1)


@lru_cache(maxsize=256)
def _box_offset(law: BoxNoise, special: int, delta: float) -> int:
    return tails.smallest_offset(
        lambda c: box_tail(law.power, law.rate, law.step, special, c), delta, "delta"
    )
