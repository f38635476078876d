"""Privacy regions: all pairs of errors (type I, type II) that a test between neighbours can reach.

An (ε, δ) constraint is a region R(ε, δ), several constraints are an intersection, and a mixture of
tests is a Minkowski sum (``mixtures``). The composition regions here are those of Cadir-Najib-Shkel
2026, as lists of (ε, δ) corners exact to rounding; for proven bounds rounded outward use
``compose`` or ``multi_dp_delta``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats
from dptopk.accounting.f_dp.multi_dp import composition_law
from dptopk.accounting.pld.constraints import RandomizedResponseMixture, mixture
from dptopk.accounting.pld.laws import LossLaw
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import PiecewiseLinear

Pair = tuple[float, float]


@dataclass(frozen=True)
class PrivacyRegion:
    """The intersection of the regions R(ε_i, δ_i): everything that satisfies all the constraints.

    Args:
        constraints: (ε, δ) pairs, ε >= 0, 0 <= δ < 1, not both 0.

    Raises:
        InvalidParameter: on pairs outside these ranges, or when there are none.

    >>> region = PrivacyRegion(((0.3, 0.0), (0.15, 0.02), (0.2, 0.5)))
    >>> region.active
    ((0.3, 0.0), (0.15, 0.02))
    """

    constraints: tuple[Pair, ...]

    def __post_init__(self) -> None:
        validate.assign(self, constraints=tuple(self.constraints))
        mixture(self.constraints)

    @cached_property
    def worst(self) -> RandomizedResponseMixture:
        """The worst-case pair, a mixture of randomised responses."""
        return mixture(self.constraints)

    @property
    def active(self) -> tuple[Pair, ...]:
        """The constraints that the others do not imply, by falling ε (Assumption 1)."""
        return self.worst.active

    @cached_property
    def tradeoff(self) -> PiecewiseLinear:
        """The lower boundary, max_i f_{ε_i, δ_i}."""
        return PiecewiseLinear.from_mixture(self.worst)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """δ(ε) of everything in the region, ε >= 0, any shape."""
        return self.tradeoff.delta(epsilon)

    def includes(self, other: PrivacyRegion, *, rtol: float = 1e-9) -> bool:
        """Whether the other region is a subset: whether it satisfies each active constraint of this
        one.
        """
        epsilons, deltas = np.array(self.active).T
        return bool((other.delta(epsilons) <= deltas * (1 + rtol) + 1e-290).all())

    def intersect(self, *others: PrivacyRegion) -> PrivacyRegion:
        """The intersection with other regions; only its active constraints are kept."""
        together = [pair for region in (self, *others) for pair in region.constraints]
        return PrivacyRegion(mixture(together).active)


def composition_region(constraints: Sequence[Pair], count: int) -> PrivacyRegion:
    """R_k(ε, δ): the region of ``count`` adaptive mechanisms with all (ε_i, δ_i) constraints each;
    exact, any number.

    Losses whose probability underflows (below 1e-310) are left out, so that δ may be 0 where it is
    below 1e-300.

    Args:
        constraints: pairs (ε_i, δ_i), ε_i >= 0, 0 <= δ_i < 1; inactive ones make no difference.
        count: k >= 1.

    Raises:
        NotApplicable: when there are too many outcomes to list.

    Source: Cadir-Najib-Shkel 2026, Theorem 3 (two constraints) and Conjecture 1 (proven in
    docs/notes/regions.md).

    >>> region = composition_region(((0.3, 0.0), (0.15, 0.02)), 3)
    >>> [(round(epsilon, 2), round(delta, 4)) for epsilon, delta in region.active[:3]]
    [(0.9, 0.0), (0.75, 0.0004), (0.6, 0.0042)]
    """
    worst = mixture(constraints)
    return _region(composition_law([(worst, validate.count(count=count))]), _failure(worst, count))


def heterogeneous_region(
    epsilon1: float, epsilon2: float, count1: int, count2: int
) -> PrivacyRegion:
    """C_{x,y}: the region of ``count1`` ε1-DP and ``count2`` ε2-DP mechanisms together, at least
    one in all; exact.

    One (ε, δ) for each non-negative slope ε = ε1 (x - 2a) + ε2 (y - 2b), equal slopes merged.

    Args:
        epsilon1: ε1 >= 0.
        epsilon2: ε2 >= 0.
        count1: x >= 0.
        count2: y >= 0; at least one of the two is positive.

    Source: Cadir-Najib-Shkel 2026, Theorem 1 and Algorithm 1.
    """
    epsilon_counts = (
        (validate.nonnegative(epsilon1=epsilon1), validate.count(count1=count1, at_least=0)),
        (validate.nonnegative(epsilon2=epsilon2), validate.count(count2=count2, at_least=0)),
    )
    validate.count(count=count1 + count2)
    return _region(
        composition_law(
            [(mixture([(epsilon, 0.0)]), times) for epsilon, times in epsilon_counts if times]
        )
    )


def separate_region(constraints: Sequence[Pair], count: int) -> PrivacyRegion:
    """The trivial bound of Remark 1: each constraint composed on its own (KOV), then intersected.

    It holds the exact region. Arguments as for ``composition_region``.

    Source: Cadir-Najib-Shkel 2026, Remark 1.
    """
    first, *others = (composition_region([pair], count) for pair in constraints)
    return first.intersect(*others)


def total_variation(epsilon: float, delta: float) -> float:
    """The largest total variation distance under (ε, δ)-DP, η = δ + (1 - δ)(e^ε - 1)/(e^ε + 1).

    Args:
        epsilon: ε >= 0.
        delta: δ in [0, 1).

    Source: Cadir-Najib-Shkel 2026, Remark 2, where e^ε is misprinted as ε.
    """
    epsilon = validate.nonnegative(epsilon=epsilon)
    delta = validate.probability(delta=delta)
    return delta + (1 - delta) * math.tanh(epsilon / 2)


def total_variation_region(first: Pair, second: Pair, count: int) -> PrivacyRegion:
    """The bound from (ε1, δ1) together with the total variation that (ε2, δ2) implies, cut with
    (ε2, δ2) on its own.

    Args:
        first: (ε1, δ1) of each mechanism, ε1 >= 0, 0 <= δ1 < 1.
        second: (ε2, δ2).
        count: k >= 1.

    Source: Cadir-Najib-Shkel 2026, Remark 2 (after Ghazi-Issa 2024).
    """
    with_variation = composition_region([first, (0.0, total_variation(*second))], count)
    return with_variation.intersect(composition_region([second], count))


def _failure(worst: RandomizedResponseMixture, count: int) -> float:
    """Probability that one of ``count`` draws has an infinite loss."""
    return -math.expm1(count * math.log1p(-worst.atom))


def _region(law: LossLaw, failure: float = 0.0) -> PrivacyRegion:
    """The region of a law of finite losses that fails altogether with probability ``failure``."""
    epsilons, deltas = law.profile()
    constraints = zip(epsilons.tolist(), (failure + (1 - failure) * deltas).tolist(), strict=True)
    return PrivacyRegion(
        tuple(pair for pair in constraints if pair[1] < 1)
    )  # δ rounded to 1 says nothing
