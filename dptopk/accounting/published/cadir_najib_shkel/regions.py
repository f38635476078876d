"""Privacy regions: all pairs of errors (type I, type II) that a test between neighbours can reach.

An (ε, δ) constraint is a region R(ε, δ), several constraints are an intersection, and a mixture of
tests is a Minkowski sum (``tradeoff.mix``). The composition regions here are those of
Cadir-Najib-Shkel 2026, as lists of (ε, δ) corners exact to rounding; for proven bounds rounded
outward use ``compose`` or ``multi_dp_delta``.
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
from dptopk.errors import InvalidParameter

Pair = tuple[float, float]
UNDERFLOW = 1e-290  # absolute, far above what underflows in a δ


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
        """Store the constraints as a tuple, and refuse those outside their ranges."""
        validate.assign(self, constraints=tuple(self.constraints))
        mixture(self.constraints)  # refuses what is no constraint

    @cached_property
    def worst(self) -> RandomizedResponseMixture:
        """Return the worst-case pair of the region, a mixture of randomised responses."""
        return mixture(self.constraints)

    @property
    def active(self) -> tuple[Pair, ...]:
        """Return the constraints that the others do not imply, by falling ε (Assumption 1)."""
        return self.worst.active

    @cached_property
    def tradeoff(self) -> PiecewiseLinear:
        """Return the lower boundary of the region as a trade-off function, max_i f_{ε_i, δ_i}."""
        return PiecewiseLinear.from_mixture(self.worst)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Return the largest δ(ε) of a mechanism in the region, for every ε >= 0 of an array of any
        shape.
        """
        return self.tradeoff.delta(epsilon)

    def includes(self, other: PrivacyRegion, *, rtol: float = 1e-9) -> bool:
        """Return whether the other region is a subset: whether it satisfies each active constraint
        of this one.

        Args:
            other: the region that may be a subset.
            rtol: relative excess of a δ that is taken for rounding.
        """
        epsilons, deltas = np.array(self.active).T
        return bool((other.delta(epsilons) <= deltas * (1 + rtol) + UNDERFLOW).all())

    def intersect(self, *others: PrivacyRegion) -> PrivacyRegion:
        """Return the intersection with other regions, with its active constraints only."""
        together = [pair for region in (self, *others) for pair in region.constraints]
        return PrivacyRegion(mixture(together).active)


def composition_region(constraints: Sequence[Pair], count: int) -> PrivacyRegion:
    """Return R_k(ε, δ), the region of ``count`` adaptive mechanisms that all satisfy each (ε_i,
    δ_i); exact, for any number of constraints.

    Losses whose probability underflows (below 1e-310) are left out, so that δ may be 0 where it is
    below 1e-300.

    Args:
        constraints: pairs (ε_i, δ_i), ε_i >= 0, 0 <= δ_i < 1; inactive ones make no difference.
        count: k >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges, or when there are no constraints.
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
    """Return C_{x,y}, the exact region of ``count1`` ε1-DP and ``count2`` ε2-DP mechanisms
    together, at least one in all.

    There is one (ε, δ) for each non-negative slope ε = ε1 (x - 2a) + ε2 (y - 2b) with 0 <= a <= x
    and 0 <= b <= y, equal slopes merged.

    Args:
        epsilon1: ε1 >= 0; above 0 unless ``count1`` is 0.
        epsilon2: ε2 >= 0; above 0 unless ``count2`` is 0.
        count1: x >= 0.
        count2: y >= 0; at least one of the two is positive.

    Raises:
        InvalidParameter: on arguments outside their ranges, or when both counts are 0.
        NotApplicable: when there are too many outcomes to list.

    Source: Cadir-Najib-Shkel 2026, Theorem 1 and Algorithm 1.
    """
    epsilon_counts = (
        (validate.nonnegative(epsilon1=epsilon1), validate.count(count1=count1, at_least=0)),
        (validate.nonnegative(epsilon2=epsilon2), validate.count(count2=count2, at_least=0)),
    )
    if count1 + count2 == 0:
        raise InvalidParameter("count1 and count2 must not both be 0")
    parts = [(mixture([(epsilon, 0.0)]), times) for epsilon, times in epsilon_counts if times]
    return _region(composition_law(parts))


def separate_region(constraints: Sequence[Pair], count: int) -> PrivacyRegion:
    """Return a region that holds the exact one, the trivial bound of Remark 1: each constraint is
    composed on its own (KOV), and the regions are intersected.

    Args:
        constraints: pairs (ε_i, δ_i) of each mechanism, ε_i >= 0, 0 <= δ_i < 1.
        count: the number of mechanisms k >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges, or when there are no constraints.
        NotApplicable: when there are too many outcomes to list.

    Source: Cadir-Najib-Shkel 2026, Remark 1.
    """
    if not constraints:
        raise InvalidParameter("constraints must not be empty")
    first, *others = (composition_region([pair], count) for pair in constraints)
    return first.intersect(*others)


def total_variation(epsilon: float, delta: float) -> float:
    """Return the largest total variation distance under (ε, δ)-DP, η = δ + (1 - δ)(e^ε - 1)/(e^ε +
    1).

    Args:
        epsilon: ε >= 0.
        delta: δ in [0, 1).

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Cadir-Najib-Shkel 2026, Remark 2, where e^ε is misprinted as ε.
    """
    epsilon = validate.nonnegative(epsilon=epsilon)
    delta = validate.probability(delta=delta)
    return delta + (1 - delta) * math.tanh(epsilon / 2)


def total_variation_region(first: Pair, second: Pair, count: int) -> PrivacyRegion:
    """Return a region that holds the exact one: that of (ε1, δ1) with the total variation that (ε2,
    δ2) implies, intersected with that of (ε2, δ2) on its own.

    Args:
        first: (ε1, δ1) of each mechanism, ε1 >= 0, 0 <= δ1 < 1.
        second: (ε2, δ2).
        count: k >= 1.

    Raises:
        InvalidParameter: on arguments outside their ranges.
        NotApplicable: when there are too many outcomes to list.

    Source: Cadir-Najib-Shkel 2026, Remark 2 (after Ghazi-Issa 2024).
    """
    with_variation = composition_region([first, (0.0, total_variation(*second))], count)
    return with_variation.intersect(composition_region([second], count))


def _failure(worst: RandomizedResponseMixture, count: int) -> float:
    """Return the probability that at least one of ``count`` draws has an infinite loss."""
    return -math.expm1(count * math.log1p(-worst.atom))


def _region(law: LossLaw, failure: float = 0.0) -> PrivacyRegion:
    """Return the region of a law of losses.

    Args:
        law: the law of the losses, given that they are finite.
        failure: the probability of an infinite loss.
    """
    epsilons, deltas = law.profile()
    constraints = zip(epsilons.tolist(), (failure + (1 - failure) * deltas).tolist(), strict=True)
    # A δ that is rounded to 1 says nothing.
    return PrivacyRegion(tuple((epsilon, delta) for epsilon, delta in constraints if delta < 1))
