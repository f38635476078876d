"""Counts with discrete Laplace noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptopk.costs import Cost, DiscreteLaplaceDP, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.counting_mechanism import IndependentNoise
from dptopk.mechanisms.mechanism import LARGEST_SCALE
from dptopk.mechanisms.samplers.noise import ExactNoise, laplace_law
from dptopk.mechanisms.samplers.random import Array
from dptopk.mechanisms.samplers.simulation import Noise, SimulationInput
from dptopk.mechanisms.thresholds import IndependentCounts, NoisyFloorMechanism
from dptopk.mechanisms.user_total import one_cost_is_less
from dptopk.release.noise_laws import LaplaceNoise


@dataclass(frozen=True, kw_only=True)
class KnownLaplace(IndependentNoise):
    """Every count + discrete Laplace noise, P[n] ∝ exp(-epsilon |n| / linf).

    Charge: min(l0, labels) × the law of the noise: PureDP(epsilon) for linf = 1, else
    DiscreteLaplaceDP(linf/epsilon, linf), which is less; or, for a cap l1 on a user's total, one
    DiscreteLaplaceDP(linf/epsilon, l1). Neighbours: add or remove one user.

    Args:
        epsilon: ε of each count, not of all.

    Source: Cesar-Rogers 2022, Lemma 6.2, with integer noise; docs/notes/discrete-laplace.md.

    >>> print(KnownLaplace(epsilon=0.1).charge(Sensitivity(l0=3)))
    3*DP(0.1)
    """

    epsilon: float
    noise_falls_with = ("epsilon",)

    def cost(self, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
        """Return the cost of this noise on a count that one user moves by at most ``shift``; None
        means linf.
        """
        return laplace_cost(self.epsilon, sensitivity, shift)

    def costs(self, sensitivity: Sensitivity, touched: int) -> Mapping[Cost, int]:
        """Return one cost for each touched count, or one cost for a user's capped total, however
        it is split.
        """
        if one_cost_is_less(sensitivity, touched, self.epsilon):
            return {self.cost(sensitivity, sensitivity.total(touched)): 1}
        return {self.cost(sensitivity): touched}

    def sampler(self, sensitivity: Sensitivity, bound: int | None = None) -> ExactNoise:
        """Return the exact sampler of discrete Laplace noise, conditioned on [-bound, bound] if a
        bound is given.
        """
        rate(self.epsilon, sensitivity)  # refuses a scale that cannot be drawn
        return laplace_law(self.epsilon, sensitivity.linf, bound)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the noise as the difference of two geometric variables, each the whole part of
        an exponential variable of the scale linf/epsilon.
        """
        scale = inputs.sensitivity.linf / self.epsilon

        def draw(number: int) -> Array:
            """Return the noise of the block of draws with this number."""
            pairs = inputs.standard.exponential_pairs(number) * scale
            geometric, other_geometric = np.floor(pairs)
            noise: Array = geometric - other_geometric
            return noise

        return draw

    def law(self, sensitivity: Sensitivity) -> LaplaceNoise:
        """Return the law of discrete Laplace noise, P[n] ∝ exp(-epsilon |n| / linf)."""
        return LaplaceNoise(1 / rate(self.epsilon, sensitivity))


@dataclass(frozen=True, kw_only=True)
class UnknownLaplace(IndependentCounts, NoisyFloorMechanism):
    """The d_bar largest counts + discrete Laplace noise, released if above h_(d_bar+1) + linf + c +
    the same noise.

    Charge: min(l0, d_bar + 1) × the law of the noise, as KnownLaplace, + δ; with l0=None that is
    d_bar + 1. Neighbours: add or remove a user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        epsilon: ε of each count, not of all.
        delta: bounds the probability that a label is released that only one of two neighbours can
            release.

    Source: Cesar-Rogers 2022, §6.2 (UnkLap), with the threshold of the slot lemma
    (docs/notes/mechanisms.md): c is the smallest integer with P[max of m noises - N0 > c] <= delta,
    m = min(l0, d_bar). The δ charged is the one asked for.

    >>> mechanism = UnknownLaplace(d_bar=100, epsilon=0.5, delta=1e-6)
    >>> print(mechanism.charge(Sensitivity(l0=3)), mechanism.threshold_offset(Sensitivity(l0=3)))
    3*DP(0.5) + delta(1e-06) 34
    """

    d_bar: int
    epsilon: float
    delta: float
    noise_falls_with = ("epsilon",)

    @cached_property
    def counting(self) -> KnownLaplace:
        """Return the mechanism for known domains that has this noise."""
        return KnownLaplace(epsilon=self.epsilon)


def rate(epsilon: float, sensitivity: Sensitivity) -> float:
    """Return the rate epsilon/linf of the noise, whose law is P[n] ∝ exp(-rate |n|).

    Raises:
        InvalidParameter: when it is so small that noise could leave the 64-bit integers.
    """
    quotient = epsilon / sensitivity.linf
    if quotient * LARGEST_SCALE < 1:
        raise InvalidParameter(
            f"epsilon={epsilon} is too small: noise of scale linf/epsilon exceeds 2^48"
        )
    return quotient


def laplace_cost(epsilon: float, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
    """Return the cost of noise P[n] ∝ exp(-epsilon |n| / linf) on counts that one user moves by at
    most ``shift`` in sum; None means linf.

    That a move split over several counts costs no more than one move of the sum is proven in
    docs/notes/discrete-laplace.md, "A split move". The scale linf/epsilon is rounded down, which
    can only raise the cost.

    Args:
        epsilon: ε of the noise for a move of linf.
        sensitivity: whose linf is meant.
        shift: the sum of a user's moves; None: linf.

    Raises:
        InvalidParameter: when noise could leave the 64-bit integers.
    """
    shift = sensitivity.linf if shift is None else shift
    rate(epsilon, sensitivity)  # refuses noise that is too wide
    if shift == sensitivity.linf == 1:
        return PureDP(epsilon)
    exact_scale = sensitivity.linf / Fraction(epsilon)
    scale = float(exact_scale)
    if Fraction(scale) > exact_scale:
        scale = math.nextafter(scale, 0)
    return DiscreteLaplaceDP(scale, shift)
