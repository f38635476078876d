"""Box noise: all counts at once under pure differential privacy, for any number of labels per
user.
"""

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
from dptopk.mechanisms.counting_mechanism import CountingMechanism
from dptopk.mechanisms.mechanism import LARGEST_SCALE, require_add_remove
from dptopk.mechanisms.samplers.box_noise import box_noise, side_law
from dptopk.mechanisms.samplers.random import Array, Bits
from dptopk.mechanisms.samplers.simulation import (
    BLOCK_DRAWS,
    Noise,
    SimulationInput,
    generator_of_block,
)
from dptopk.release.intervals import Measurement
from dptopk.release.noise_laws import BoxNoise

# Takes numbers, shape (n,); returns a term at each of them and the derivatives of the logarithms of
# the terms, shape (n,) each.
Terms = Callable[[Array], tuple[Array, Array]]
# With more counts the rounding error of the tails (_internal.box_tails.slack) would not be small.
MOST_COUNTS = 10**6
# Above this ε, epsilon times a small integer would overflow.
LARGEST_EPSILON = 1e300
DELTA_ROUNDING = 1e-15  # relative, of a product and two exponentials
SUM_ROUNDING = 1e-12  # relative, of a sum of positive terms and of what stands for its ends
# A slope of the logarithms of terms is believed from this share of ε on: far above its rounding,
# and far below the slopes at either end, which are some 12 ε / sqrt(number of values).
SURE_SLOPE = 1e-6


@dataclass(frozen=True, kw_only=True)
class Box(CountingMechanism):
    """Counts + box noise: P(z) ∝ e^{-epsilon·|z|} for linf = 1, where z is the noise on all counts
    and |z| the length of the smallest interval that contains its values and 0.

    It is drawn as the position of a random point in a box, relative to a random corner: z_i = U_i -
    U_0, all U uniform on 0..side-1. The side is linf·m, where P(m) ∝ m^(k+1) e^{-epsilon·m} for k
    counts.

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
        """Return one cost for all counts together: PureDP(ε), which is valid for any number of
        them; or where ``labels`` is given the MultiDP of ``box_cost``, if that is less.

        Raises:
            InvalidParameter: for other neighbours than add_remove, and where noise could leave the
                64-bit integers or its law is not covered.
        """
        require_add_remove(sensitivity)
        if labels is None:  # whether the noise can be drawn depends on that number
            return Charge({PureDP(self.epsilon): 1})
        labels = validate.count(labels=labels, at_least=0)
        if labels == 0:
            return Charge()
        self._side_power(sensitivity, labels)  # refuses what has no law of the noise
        moved = sensitivity.touched(labels)
        return Charge({box_cost(self.epsilon, labels, moved): 1})

    def _side_power(self, sensitivity: Sensitivity, labels: int) -> int:
        """Return labels + 1, the power in the law of the side of the box, linf·m with P(m) ∝
        m^power e^{-epsilon·m}.

        Raises:
            InvalidParameter: when noise could leave the 64-bit integers, or the law is not covered.
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
        """Draw box noise for ``size`` counts, int64, shape (size,).

        Args:
            sensitivity: the histogram's.
            size: how many counts get noise.
            bits: the source of words.
        """
        return self.draw_noise_of_part(sensitivity, size, size, bits)

    def draw_noise_of_part(
        self, sensitivity: Sensitivity, size: int, labels: int, bits: Bits
    ) -> Array:
        """Draw the noise of ``size`` of ``labels`` counts that are measured together, int64, shape
        (size,). Which of them they are makes no difference, as the law is symmetric in the counts.

        Args:
            sensitivity: of the counts.
            size: how many counts get noise, at most ``labels``.
            labels: how many counts are measured together.
            bits: the random bits.

        Raises:
            InvalidParameter: where noise could leave the 64-bit integers or has no law.
        """
        if not size:
            return np.zeros(0, dtype=np.int64)
        law = side_law(self._side_power(sensitivity, labels), smaller_of(self.epsilon))
        return box_noise(law, sensitivity.linf, size, bits)

    def float_noise(self, inputs: SimulationInput, labels: int) -> Noise:
        """Simulate the noise as U_i - U_0, with U_i and U_0 uniform on [0, side] and a Gamma law of
        the side.
        """
        sensitivity = inputs.sensitivity
        uniform = inputs.noise("uniform", 1.0)  # on [0, 1]
        power = self._side_power(sensitivity, labels)

        def draw(number: int) -> Array:
            """Return the noise of the block of draws with this number."""
            rng = generator_of_block("side", number)
            # The density m^power e^{-epsilon·m} is that of a Gamma law of shape power + 1.
            side = sensitivity.linf / self.epsilon * rng.gamma(power + 1, size=(BLOCK_DRAWS, 1))
            points: Array = np.floor(side * uniform(number))
            corner = np.floor(side * rng.random((BLOCK_DRAWS, 1)))
            return points - corner

        return draw

    def law(self, sensitivity: Sensitivity, labels: int) -> BoxNoise:
        """Return the law of the noise on ``labels`` counts that are measured together.

        Raises:
            InvalidParameter: where noise could leave the 64-bit integers or has no law.
        """
        power = self._side_power(sensitivity, labels)
        return BoxNoise(sensitivity.linf / self.epsilon, power, sensitivity.linf)

    def measurement(self, sensitivity: Sensitivity, labels: int, *, whole: bool) -> Measurement:
        """Return the law of the noise on ``labels`` counts, as intervals need it; for no label,
        that for one.

        Args:
            sensitivity: the histogram's.
            labels: how many labels are counted together.
            whole: whether these are all labels of the domain.
        """
        return Measurement(self.law(sensitivity, max(labels, 1)), labels, whole=whole)

    def assumed_labels(self) -> int:
        """Refuse to assume a number of labels, because the noise depends on it.

        Raises:
            InvalidParameter: always.
        """
        raise InvalidParameter(
            "labels must be given: the noise depends on how many labels are counted"
        )


@lru_cache(maxsize=256)
def box_cost(epsilon: float, counts: int, moved: int) -> Cost:
    """Return the cost of box noise on ``counts`` counts of which one user moves at most ``moved``.

    The privacy loss (the log-ratio of the outcome's probabilities) of a user who moves s counts is
    ε with a probability p(s), -ε with e^{-ε} p(s), and else 0. The law with the largest p stands
    for all of them: with values = counts + 1 (the points and the corner of the box) p is largest at
    s = min(moved, values // 2). Its δ is 0 at ε, and at ε = 0 it is p(1 - e^{-ε}), which is rounded
    up: that is MultiDP(((ε, 0), (0, p(1 - e^{-ε})))). PureDP(ε) is returned where that is not less:
    the worst law of PureDP, randomised response, has the δ tanh(ε/2) at ε = 0; one count has just
    that law.

    Args:
        epsilon: ε of the noise.
        counts: how many counts have the noise, at least 1.
        moved: how many of them one user moves at most.
    """
    pure = PureDP(epsilon)
    if counts == 1:
        return pure
    values = counts + 1
    pure_delta_at_zero = math.tanh(epsilon / 2)
    chance_of_loss = loss_chance(epsilon, values, min(moved, values // 2))
    delta_at_zero = chance_of_loss * -math.expm1(-epsilon) * (1 + DELTA_ROUNDING)
    if delta_at_zero < pure_delta_at_zero:
        return MultiDP(((epsilon, 0.0), (0.0, delta_at_zero)))
    return pure


def loss_chance(epsilon: float, values: int, moved: int) -> float:
    """Return an upper bound on the probability p(s) of a loss of ε when s = ``moved`` counts move.

    p(s) = Σ_{L>=0} q^L ((L+1)^s - L^s) ((L+1)^b - L^b) / Z with b = values - s, q = e^{-ε} and
    Z = (1-q)²/q · Σ n^values q^n (docs/notes/box.md). The terms are log-concave in L, also between
    the integers: x^s - (x-1)^s is the integral of a log-concave function over an interval. Those
    from a first to a last L are summed, the others bounded.

    Args:
        epsilon: ε of the noise.
        values: the number of counts plus one, for the corner of the box.
        moved: s, from 1 to ``values`` // 2.

    Returns:
        The bound, at most 1; 1 too where floating point does not show a smaller one.
    """
    terms = _loss_terms(epsilon, (moved, values - moved))
    first, last = _likely_lengths(epsilon, values)
    sum_of_ends = _sum_of_ends(terms, first, last, epsilon)
    if math.isinf(sum_of_ends):
        return 1.0
    upper_sum = log_concave_sum(terms, first, last) + sum_of_ends
    # ``slack`` bounds the rounding of the logarithms of the terms.
    total = upper_sum * math.exp(slack(values)) * (1 + SUM_ROUNDING)
    if total < 1:
        return total
    return 1.0  # also where it is not a number


def _sum_of_ends(terms: Terms, first: int, last: int, epsilon: float) -> float:
    """Return an upper bound on the sum of the terms at 0..first-1 and at last, last + 1, ...; inf
    where none is certain.

    Up to ``first`` the terms must grow, so that each is at most the one at ``first``, and from
    ``last`` on fall at least geometrically. Where slopes do not say so clearly, nothing is claimed.

    Args:
        terms: the terms and the slopes of their logarithms.
        first: at least 0.
        last: above ``first``.
        epsilon: ε of the noise, to which slopes are compared.
    """
    at_ends, slopes = terms(np.array([float(first), float(last)]))
    slope_at_first, slope_at_last = slopes.tolist()
    sure_slope = SURE_SLOPE * epsilon
    if first > 0 and not slope_at_first > sure_slope:
        return math.inf
    if not slope_at_last < -sure_slope:
        return math.inf
    before_first = first * float(at_ends[0])
    after_last = float(at_ends[1]) / -math.expm1(slope_at_last)
    return before_first + after_last


def _likely_lengths(epsilon: float, values: int) -> tuple[int, int]:
    """Return a first and a last L >= 0 outside of which the terms of ``loss_chance`` add up to
    next to nothing.

    L is about Gamma(values)/ε, of mean values/ε and deviation sqrt(values)/ε. 12 deviations below
    and 16 above leave negligible ends; for few values, where the law is far from normal, 40/ε and
    130/ε do.
    """
    deviation = math.sqrt(values)  # of L, times ε
    first = max(math.floor((values - 12 * deviation - 40) / epsilon) - 1, 0)
    last = math.ceil((values + 16 * deviation + 130) / epsilon)
    return first, last


def _loss_terms(epsilon: float, exponents: tuple[int, int]) -> Terms:
    """Return a function of L, float64, shape (n,), that computes upper bounds on the terms of the
    sum in ``loss_chance`` and the derivatives of their logarithms, shape (n,) each; the bounds
    contain a Z that is bounded from below.

    Args:
        epsilon: ε of the noise.
        exponents: s and b, each at least 1; their sum is ``values``.
    """
    values = sum(exponents)
    log_factor = 2 * math.log(-math.expm1(-epsilon)) + epsilon  # of (1-q)²/q
    log_z = log_factor + log_power_sum(values, epsilon) - slack(values)  # from below

    def terms(L: Array) -> tuple[Array, Array]:
        """Return the terms, and the slopes of their logarithms, shape (n,) both."""
        logs = -epsilon * L - log_z
        slope = np.full_like(L, -epsilon)
        with np.errstate(divide="ignore"):
            log_next = np.log1p(L)  # ln(L + 1)
            log_ratio = np.log1p(1 / L)  # ln(L + 1) - ln(L)
        for s in exponents:
            log_factor_of_s = _log_difference(s, log_next, log_ratio)
            logs = logs + log_factor_of_s
            if s > 1:  # the derivative of (L+1)^s - L^s is s ((L+1)^(s-1) - L^(s-1)), for s = 1 0
                log_growth = _log_difference(s - 1, log_next, log_ratio)
                slope = slope + s * np.exp(log_growth - log_factor_of_s)
        return np.exp(logs), slope

    return terms


def _log_difference(s: int, log_next: Array, log_ratio: Array) -> Array:
    """Return ln((L + 1)^s - L^s), given ``log_next`` = ln(L + 1) and ``log_ratio`` = ln(L + 1) -
    ln(L), shape (n,) each.

    Args:
        s: the exponent, at least 1.
        log_next: ln(L + 1).
        log_ratio: ln(L + 1) - ln(L).
    """
    logs: Array = s * log_next + np.log(-np.expm1(-s * log_ratio))
    return logs
