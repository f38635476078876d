"""All counts at once under pure differential privacy, however many of them one user moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptopk._internal import validate
from dptopk._internal.box_tails import log_power_sum, slack
from dptopk._internal.maxima import log_concave_sum
from dptopk._internal.rounding import smaller_of
from dptopk.costs import Charge, Cost, MultiDP, PureDP
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.mechanism import LARGEST_SCALE, CountingMechanism, add_remove
from dptopk.mechanisms.samplers.box_noise import box_noise, side_law
from dptopk.mechanisms.samplers.random import Array, Bits
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS, Noise, SimulationInput, seeded
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import BoxNoise

MOST_COUNTS = 10**6
LARGEST_EPSILON = 1e300


@dataclass(frozen=True, kw_only=True)
class Box(CountingMechanism):
    """Counts + box noise: P(z) ∝ e^{-epsilon·|z|} for linf = 1, |z| the length of the hull of the
    noise z and 0.

    Charge, for k labels together and any l0: one MultiDP(((epsilon, 0), (0, t))), exact for l0 >=
    (k+1)/2, a valid bound that falls with l0 below; PureDP(epsilon) where k is not known. t is
    below the tanh(epsilon/2) of an ε-DP mechanism; with fewer labels it is larger. Neighbours: add
    or remove one user. The noise of different counts is dependent.

    Args:
        epsilon: ε of all counts together.

    Source: the K-norm mechanism of Hardt-Talwar 2010; for counts on the reals Joseph-Yu 2024; on
    the integers ripple mechanisms, Joseph-Kulesza-Wang-Yu 2026. The law for linf > 1, the pair,
    tails and floor: docs/notes/box.md.

    >>> print(Box(epsilon=1.0).charge(Sensitivity()))
    DP(1.0)
    """

    epsilon: float
    fitted = False
    noise_falls_with = ("epsilon",)
    fewer_cost_more = True

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """One cost for all counts; without ``labels`` it holds for every number of them."""
        add_remove(sensitivity)
        if labels is None:
            return Charge({PureDP(self.epsilon): 1})
        labels = validate.count(labels=labels, at_least=0)
        if labels == 0:
            return Charge()
        self._checked(sensitivity, labels)
        return Charge({box_cost(self.epsilon, labels + 1, sensitivity.touched(labels) or 0): 1})

    def _checked(self, sensitivity: Sensitivity, labels: int) -> int:
        """The power of the law of the side, where noise stays within 64-bit integers and its law is
        listed.
        """
        if labels > MOST_COUNTS or self.epsilon > LARGEST_EPSILON:
            raise InvalidParameter(
                f"box noise takes at most 10^6 counts, epsilon 1e300; got {labels}, {self.epsilon}"
            )
        if self.epsilon * LARGEST_SCALE < (labels + 1) * sensitivity.linf:
            raise InvalidParameter(
                f"epsilon={self.epsilon} is too small: labels·linf/epsilon must be at most 2^48"
            )
        return labels + 1

    def draw_noise(self, sensitivity: Sensitivity, size: int, bits: Bits) -> Array:
        """Draw box noise for ``size`` counts, int64, shape (size,)."""
        return self.draw_some(sensitivity, size, size, bits)

    def draw_some(self, sensitivity: Sensitivity, size: int, labels: int, bits: Bits) -> Array:
        """The first ``size`` coordinates of the noise of ``labels`` counts."""
        if not size:
            return np.zeros(0, dtype=np.int64)
        law = side_law(self._checked(sensitivity, labels), smaller_of(self.epsilon))
        return box_noise(law, sensitivity.linf, size, bits)

    def float_noise(self, scene: SimulationInput, labels: int) -> Noise:
        """U_i - U_0 on a side with a Gamma law."""
        sensitivity = scene.sensitivity
        unit = scene.noise("uniform", 1.0)
        power = self._checked(sensitivity, labels)

        def draw(number: int) -> Array:
            rng = seeded("side", number)
            side = sensitivity.linf / self.epsilon * rng.gamma(power + 1, size=(BLOCK_DRAWS, 1))
            noise: Array = np.floor(side * unit(number))
            return noise - np.floor(side * rng.random((BLOCK_DRAWS, 1)))

        return draw

    def law(self, sensitivity: Sensitivity, labels: int) -> BoxNoise:
        """The law of the noise of that many counts together."""
        power = self._checked(sensitivity, labels)
        return BoxNoise(sensitivity.linf / self.epsilon, power, sensitivity.linf)

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """State ``law`` of at least one label."""
        return Measurement(self.law(sensitivity, max(labels, 1)), labels, whole=whole)

    def labels_unsaid(self) -> int:
        """Refused: the noise depends on how many labels are counted."""
        raise InvalidParameter(
            "labels must be given: the noise depends on how many labels are counted"
        )


@lru_cache(maxsize=256)
def box_cost(epsilon: float, values: int, moved: int) -> Cost:
    """The cost of box noise on ``values`` - 1 counts of which one user moves at most ``moved``.

    The loss of a move of s counts is ±ε with the probabilities p(s) and e^{-ε}p(s), else 0; p is
    largest at s = min(moved, values // 2). So that pair is MultiDP(((ε, 0), (0, p(1 - e^{-ε})))),
    the second rounded up.
    """
    pure = PureDP(epsilon)
    total = math.tanh(epsilon / 2)
    likely = loss_chance(epsilon, values, min(moved, values // 2))
    second = likely * -math.expm1(-epsilon) * (1 + 1e-15)
    if values > 2 and second < total:
        return MultiDP(((epsilon, 0.0), (0.0, second)))
    return pure


def loss_chance(epsilon: float, values: int, moved: int) -> float:
    """Upper bound on p(s) = Σ_{L>=0} q^L ((L+1)^s - L^s) ((L+1)^b - L^b) / Z, b = values - s, q =
    e^{-ε}.

    Z = (1-q)²/q · Σ n^values q^n. The terms are log-concave in L, also between the integers: x^s -
    (x-1)^s is the integral of a log-concave function over an interval.
    """
    terms = _loss_terms(epsilon, (moved, values - moved))
    spread = math.sqrt(values)
    first = max(math.floor((values - 12 * spread - 40) / epsilon), 0)  # the terms grow up to there
    last = math.ceil((values + 16 * spread + 130) / epsilon)
    (at_first, at_last), (_, falls) = terms(np.array([float(first), float(last)]))
    rest = first * float(at_first) + float(at_last) / -math.expm1(float(falls))
    most = log_concave_sum(terms, first, last) + rest
    total = most * math.exp(slack(values)) * (1 + 1e-12)
    if total < 1:
        return total
    return 1.0  # also where it is not a number


def _loss_terms(epsilon: float, parts: tuple[int, int]) -> Callable[[Array], tuple[Array, Array]]:
    """The terms of ``loss_chance``, and the derivatives of their logarithms."""
    values = sum(parts)
    log_z = 2 * math.log(-math.expm1(-epsilon)) + epsilon
    log_z = log_z + log_power_sum(values, epsilon) - slack(values)

    def terms(L: Array) -> tuple[Array, Array]:
        logs = -epsilon * L - log_z
        slope = np.full_like(L, -epsilon)
        with np.errstate(divide="ignore"):
            after = np.log1p(L)  # ln(L + 1), and by how much ln(L) is below it
            step = np.log1p(1 / L)
        for s in parts:
            factor = _log_difference(s, after, step)
            logs = logs + factor
            if s > 1:
                growth = _log_difference(s - 1, after, step)
                slope = slope + s * np.exp(growth - factor)
        return np.exp(logs), slope

    return terms


def _log_difference(s: int, after: Array, step: Array) -> Array:
    """The logarithm of (L + 1)^s - L^s."""
    found: Array = s * after + np.log(-np.expm1(-s * step))
    return found
