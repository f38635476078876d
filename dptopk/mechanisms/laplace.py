"""Counts with discrete Laplace noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.tails import laplace_difference_tail
from dptopk.costs import Charge, Cost, DiscreteLaplaceDP, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.base import LARGEST_SCALE, CountingMechanism, add_remove
from dptopk.mechanisms.samplers.maxima import laplace_offset
from dptopk.mechanisms.samplers.noise import discrete_laplace
from dptopk.mechanisms.samplers.simulation import Noise, Scene
from dptopk.mechanisms.thresholds import NoisyFloorMechanism, moving_slots
from dptopk.release.intervals import CountNoise


@dataclass(frozen=True, kw_only=True)
class KnownLaplace(CountingMechanism):
    """Every count + discrete Laplace noise, P[n] ∝ exp(-epsilon |n| / linf).

    Charge: min(l0, labels) × the law of the noise: PureDP(epsilon) for linf = 1, else DiscreteLaplaceDP(linf/epsilon,
    linf), which is less. Neighbours: add or remove one user.

    Args:
        epsilon: ε of each count, not of all.

    Source: Cesar-Rogers 2022, Lemma 6.2, with integer noise; docs/notes/discrete-laplace.md.

    >>> print(KnownLaplace(epsilon=0.1).charge(Sensitivity(l0=3)))
    3*DP(0.1)
    """

    epsilon: float

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """min(l0, labels) × the noise's own pair, exact.

        Raises:
            InvalidParameter: when l0 is None and ``labels``, the number of labels counted, is not given.
        """
        touched = copies(add_remove(sensitivity), labels)
        return Charge({laplace_cost(self.epsilon, sensitivity): touched})

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Any) -> np.ndarray[Any, Any]:
        """Draw discrete Laplace noise, int64, shape (size,)."""
        rate(self.epsilon, sensitivity)
        return discrete_laplace(self.epsilon, sensitivity.linf, size, bits)

    def float_noise(self, scene: Scene, labels: int) -> Noise:
        """Differences of two geometric variables."""
        pair = scene.noise("laplace", scene.sensitivity.linf / self.epsilon)

        def draw(number: int) -> np.ndarray[Any, Any]:
            plus, minus = np.floor(pair(number))
            noise: np.ndarray[Any, Any] = plus - minus
            return noise

        return draw

    def law(self, sensitivity: Sensitivity, labels: int) -> CountNoise:
        """The law of the noise on one count."""
        return CountNoise("laplace", 1 / rate(self.epsilon, sensitivity))

    def swap_chance(self, sensitivity: Sensitivity, gap: float) -> float:
        """Probability that the difference of two noises is at least the gap."""
        return laplace_difference_tail(self.epsilon / sensitivity.linf, max(math.ceil(gap) - 1, 0))

    def noise_std(self, sensitivity: Sensitivity) -> float:
        """Standard deviation of the noise on one count: sqrt(2q)/(1-q), q = exp(-ε/τ)."""
        half = rate(self.epsilon, add_remove(sensitivity)) / 2
        return 1 / (math.sqrt(2) * math.sinh(half)) if half < 700 else 0.0


@dataclass(frozen=True, kw_only=True)
class UnknownLaplace(NoisyFloorMechanism):
    """The d_bar largest counts + discrete Laplace noise, released if above h_(d_bar+1) + linf + c + the same noise.

    Charge: min(l0, d_bar + 1) × the law of the noise, as KnownLaplace, + δ; with l0=None that is d_bar + 1. Neighbours:
    add or remove a user.

    Args:
        d_bar: how many labels take part; a fixed number, not one that depends on the data.
        epsilon: ε of each count, not of all.
        delta: bounds the probability that a label is released that only one of two neighbours can release.

    Source: Cesar-Rogers 2022, §6.2 (UnkLap), with the threshold of the slot lemma (docs/notes/mechanisms.md): c is the
    smallest integer with P[max of m noises - N0 > c] <= delta, m = min(l0, d_bar). The δ charged is the one asked for.

    >>> mechanism = UnknownLaplace(d_bar=100, epsilon=0.5, delta=1e-6)
    >>> print(mechanism.charge(Sensitivity(l0=3)), mechanism.threshold_offset(Sensitivity(l0=3)))
    3*DP(0.5) + delta(1e-06) 34
    """

    d_bar: int
    epsilon: float
    delta: float

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """min(l0, d_bar + 1) × the noise's pair + δ; at most d_bar counts are released for any ``labels``."""
        self.threshold_offset(sensitivity)
        cost = laplace_cost(self.epsilon, sensitivity)
        return Charge({cost: moving_slots(sensitivity, self.d_bar)}, delta=self.delta)

    @property
    def counting(self) -> KnownLaplace:
        """The mechanism for known domains that has this noise."""
        return KnownLaplace(epsilon=self.epsilon)

    def noise_offset(self, sensitivity: Sensitivity, special: int) -> int:
        """The smallest integer c with P[max of ``special`` noises - another > c] <= delta."""
        return laplace_offset(rate(self.epsilon, sensitivity), special, self.delta)

    def threshold_tail(self, sensitivity: Sensitivity, c: int) -> float:
        """Upper bound on P[N1 - N2 > c]."""
        return laplace_difference_tail(rate(self.epsilon, sensitivity), c)


def rate(epsilon: float, sensitivity: Sensitivity) -> float:
    """The noise's rate ε/τ: P[n] ∝ exp(-rate |n|).

    Raises:
        InvalidParameter: when it is so small that noise could leave the 64-bit integers.
    """
    quotient = epsilon / sensitivity.linf
    if quotient * LARGEST_SCALE < 1:
        raise InvalidParameter(f"epsilon={epsilon} is too small: noise of scale linf/epsilon exceeds 2^48")
    return quotient


def laplace_cost(epsilon: float, sensitivity: Sensitivity, shift: int | None = None) -> Cost:
    """The cost of noise P[n] ∝ exp(-epsilon |n| / linf) on integers of which one user moves one by ``shift`` (linf).

    The same for several that move by as much in sum: docs/notes/discrete-laplace.md, "A split move". The scale
    linf/epsilon is rounded down, which is the safe side.

    Raises:
        InvalidParameter: when noise could leave the 64-bit integers.
    """
    shift = sensitivity.linf if shift is None else shift
    rate(epsilon, sensitivity)
    if shift == sensitivity.linf == 1:
        return PureDP(epsilon)
    exact = sensitivity.linf / Fraction(epsilon)
    scale = float(exact)
    return DiscreteLaplaceDP(scale if Fraction(scale) <= exact else math.nextafter(scale, 0), shift)


def copies(sensitivity: Sensitivity, labels: int | None) -> int:
    """min(l0, labels): how many of the counted labels one user can touch.

    Raises:
        InvalidParameter: when neither is known.
    """
    if labels is not None:
        labels = validate.count(labels=labels, at_least=0)
    touched = sensitivity.touched(labels)
    if touched is None:
        raise InvalidParameter("labels must be given (how many labels are counted) when the sensitivity has l0=None")
    return touched
