"""The exact optimum for ε-BR and ε-DP mechanisms together, all with the same ε and independent (CR
Theorem 3).

With b BR and m DP mechanisms the loss is L = mε + bt - Nε, N = i + 2j, i ~ Bin(b, 1-q_t) and j ~
Bin(m, 1/(1+e^ε)). CR show that the best t is among t_n = (x + (n+1-m)ε)/(b+1), clipped to [0, ε],
where

    δ(t_n) = Σ_{ν<=n} P[N = ν] (1 - e^{t_n - (n+1-ν)ε}),

so that m = 0 is DDR Theorem 3 and b = 0 is KOV. Only b + 1 of the b + 2m + 1 candidates lie inside
(0, ε); for each the law of N is one convolution of two short windows: O(b) convolutions instead of
O((b+m)³) terms.

The law is computed under the tilted measure P[N = ν] e^{θ(ν - n)}, θ <= 0 chosen so that N has mean
n (θ = 0 where the mean is below n): i and j are then binomial again, the terms that matter have
probabilities near 1/sqrt(b+m), whatever δ is, and what windows around the two means leave out
weighs at most its tilted mass, which is added.

DDR is Dong-Durfee-Rogers 2020, CR is Cesar-Rogers 2022, KOV is Kairouz-Oh-Viswanath 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats
from dptopk._internal.search import bisect
from dptopk.accounting.bounded_range.fixed_strategies import (
    Ints,
    LogDeltaPoint,
    OptimumCurve,
    common_epsilon_curve,
)
from dptopk.accounting.bounded_range.nonadaptive import (
    LARGEST_EPSILON,
    br_nonadaptive_curve,
    strongest_interaction,
)
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.binomial import bernstein_reach, log_binomial_pmf
from dptopk.accounting.pld.common_lattice import signs
from dptopk.accounting.registry import bound
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import InvalidParameter, NotApplicable

# b sqrt(b (b + m)), about the work of one evaluation, above which the bound declines: some three
# seconds.
LARGEST_WORK = 4e7
MASS_OUTSIDE_WINDOW = 2.2e-20  # 2 e^-46, the most that a window leaves out
CUT = 2 * MASS_OUTSIDE_WINDOW  # of the sum, by the windows of its two parts
LARGEST_TILT = 60.0  # of i; beyond, e^θ leaves a law of which windows see one point


def br_dp_nonadaptive_delta(
    epsilon: float, ranged: int, pure: int, *, at_epsilon: ArrayLike
) -> Floats:
    """Return δ of ``ranged`` ε-BR and ``pure`` ε-DP independent mechanisms: the exact optimum,
    rounded outward.

    Args:
        epsilon: ε in (0, 700], common to all.
        ranged: b >= 0, the number of BR mechanisms.
        pure: m >= 0, the number of DP mechanisms; at least one of the two is positive.
        at_epsilon: ε_g >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: CR Theorem 3. The order does not matter; the DP mechanisms may be adaptive, and so may
    the BR mechanism if it is the only one (CR Corollary 5.1).

    >>> float(br_dp_nonadaptive_delta(1.0, 1, 1, at_epsilon=0.5).round(6))
    0.321971
    """
    return br_dp_nonadaptive_curve(epsilon, ranged, pure).delta(
        validate.nonnegatives(at_epsilon=at_epsilon)
    )


def br_dp_nonadaptive_epsilon(
    epsilon: float, ranged: int, pure: int, *, delta: ArrayLike
) -> Floats:
    """Return ε_g of ``ranged`` ε-BR and ``pure`` ε-DP independent mechanisms: the exact optimum,
    rounded outward.

    Args:
        epsilon: ε in (0, 700], common to all.
        ranged: b >= 0, the number of BR mechanisms.
        pure: m >= 0, the number of DP mechanisms; at least one of the two is positive.
        delta: in [0, 1), any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: CR Theorem 3; valid where ``br_dp_nonadaptive_delta`` is.

    >>> round(float(br_dp_nonadaptive_epsilon(0.1, 0, 25, delta=1e-6)), 5)  # KOV
    2.07906
    """
    return br_dp_nonadaptive_curve(epsilon, ranged, pure).epsilon(
        validate.probabilities(delta=delta)
    )


def br_dp_nonadaptive_curve(epsilon: float, ranged: int, pure: int) -> OptimumCurve:
    """Return the curve of ``ranged`` ε-BR and ``pure`` ε-DP independent mechanisms, in both
    directions (CR Theorem 3).

    Args:
        epsilon: ε in (0, 700], common to all.
        ranged: number of BR mechanisms.
        pure: number of DP mechanisms; at least one of the two is positive.

    Raises:
        InvalidParameter: on arguments outside their ranges.
    """
    epsilon = validate.positive(epsilon=epsilon)
    if epsilon > LARGEST_EPSILON:
        raise InvalidParameter(f"epsilon must be at most {LARGEST_EPSILON}, got {epsilon}")
    ranged = validate.count(ranged=ranged, at_least=0)
    pure = validate.count(pure=pure, at_least=0 if ranged else 1)
    if not pure:
        return br_nonadaptive_curve(epsilon, ranged)
    mechanisms = _Mechanisms(epsilon, ranged, pure)
    return common_epsilon_curve(
        epsilon,
        ranged,
        pure,
        mechanisms.optimum,
        mechanisms.first_and_last_candidate,
        mechanisms.largest_candidate,
        probes=7,
    )


@bound(
    "br_dp_nonadaptive",
    source="Cesar-Rogers 2022, Theorem 3; Corollary 5.1",
    takes=(PureDP, BoundedRange),
    valid_through=strongest_interaction,
)
def _br_dp_nonadaptive(charge: Charge) -> Curve:
    """Return the curve of the BR and DP costs of a charge.

    Raises:
        NotApplicable: when their ε's differ, when one kind is missing, or when there are too many.
    """
    ranges = charge.of(BoundedRange)
    pures = charge.of(PureDP)
    epsilons = {cost.epsilon for cost in ranges} | {cost.epsilon for cost in pures}
    if len(epsilons) > 1:
        raise NotApplicable("needs all costs to have the same epsilon")
    if not ranges or not pures:
        raise NotApplicable("needs both BR and DP costs")
    (epsilon,) = epsilons
    ranged = sum(ranges.values())
    pure = sum(pures.values())
    if ranged * math.sqrt(ranged * (ranged + pure)) > LARGEST_WORK:
        raise NotApplicable("too many costs for an evaluation of all candidates")
    if epsilon > LARGEST_EPSILON:
        raise NotApplicable(f"computes with epsilon up to {LARGEST_EPSILON} only")
    return br_dp_nonadaptive_curve(epsilon, ranged, pure)


@dataclass(frozen=True)
class _Mechanisms:
    """The mechanisms that are composed.

    Attributes:
        epsilon: ε, common to all.
        ranged: b, the number of BR mechanisms.
        pure: m, the number of DP mechanisms.
    """

    epsilon: float
    ranged: int
    pure: int

    def optimum(self, x: float) -> LogDeltaPoint:
        """Return the largest value of all candidates at ε_g = x."""
        first, last = self.first_and_last_candidate(x)
        points = [self.log_delta_at(x, n) for n in range(first, last + 1)]
        return max(points, key=lambda point: point.upper)

    def largest_candidate(self, x: float, index: Ints) -> tuple[int, LogDeltaPoint]:
        """Return where in ``index`` the n of the largest candidate at ε_g = x stands, and its
        value.
        """
        points = [self.log_delta_at(x, n) for n in index.tolist()]
        best = max(range(len(points)), key=lambda place: points[place].log_value)
        return best, points[best]

    def first_and_last_candidate(self, x: float) -> tuple[int, int]:
        """Return the first and the last n with 0 < t_n < ε at ε_g = x, up to rounding; n = m - x/ε
        - 1 + (b+1) t_n/ε.
        """
        offset = self.pure - x / self.epsilon
        # t_n > 0 where n > offset - 1, and t_n < ε where n < offset + b.
        first = max(math.floor(offset), 0)
        return first, max(first, math.ceil(offset + self.ranged) - 1)

    def log_delta_at(self, x: float, n: int) -> LogDeltaPoint:
        """Return ln δ(t_n) at ε_g = x, a sum of the module docstring, with its error and slope."""
        count = self.ranged + self.pure
        t = (x + (n + 1 - self.pure) * self.epsilon) / (self.ranged + 1)
        t = min(max(t, 0.0), self.epsilon)
        # s = ε - t is above 0 for all candidates, but rounding may make the last one 0.
        s = ((count - n) * self.epsilon - x) / (self.ranged + 1)
        s = min(max(s, 1e-15 * self.epsilon), self.epsilon)
        numbers = _SmallerLosses.of(self, t, s, n)
        first, masses = numbers.law_of_sum()
        gap = n - (first + np.arange(len(masses)))  # n - ν
        masses = masses[gap >= 0]  # the sum is over ν <= n
        gap = gap[gap >= 0]
        masses = masses * np.exp(numbers.tilt * gap)
        gains = -np.expm1(-s - gap * self.epsilon)
        total = float((masses * gains).sum())
        if total <= 0:  # only what the windows left out may be there
            return LogDeltaPoint(numbers.log_untilted(math.log(CUT), n))
        slope = -(float(masses.sum()) + CUT - total) / total
        log_value = numbers.log_untilted(math.log(total), n)
        size = numbers.rounding_size + abs(numbers.tilt) * (n + count)
        # Each of the steps rounds by a few units of roundoff of what it adds up; what the windows
        # leave out is added, and the rounding of the loss is carried to ln δ by the slope.
        error = 3e-15 * (10 + size + abs(log_value)) + math.log1p(CUT / total)
        error_by_loss = -4e-16 * (count * self.epsilon + x) * slope
        return LogDeltaPoint(log_value, error + error_by_loss, slope)


@dataclass(frozen=True)
class _TiltedBinomial:
    """The law P[i] e^{θi} of a binomial i in a window, not normalised.

    Attributes:
        first: the first i of the window.
        masses: those of first, first + 1, ..., divided by e^log_scale.
        log_scale: see ``masses``.
    """

    first: int
    masses: Floats
    log_scale: float


@dataclass(frozen=True)
class _SmallerLosses:
    """The tilted laws of the numbers i and j of smaller losses: t - ε of the BR mechanisms, and -ε
    of the DP mechanisms.

    Attributes:
        tilt: θ <= 0; i is tilted by θ, j by 2θ.
        ranged: the law of i.
        pure: the law of j.
    """

    tilt: float
    ranged: _TiltedBinomial
    pure: _TiltedBinomial

    @classmethod
    def of(cls, mechanisms: _Mechanisms, t: float, s: float, n: int) -> _SmallerLosses:
        """Return the laws at t = ε - s, tilted so that i + 2j has mean n, if its mean is not below
        n without a tilt.

        Args:
            mechanisms: what is composed.
            t: the larger loss of a BR mechanism.
            s: ε - t, to full relative precision.
            n: the index of the candidate.
        """
        epsilon = mechanisms.epsilon
        q = math.expm1(-s) / math.expm1(-epsilon)
        one_minus_q = math.exp(-s) * math.expm1(-t) / math.expm1(-epsilon)
        pure_odds = math.exp(-epsilon)
        theta = 0.0
        if q > 0:  # it may underflow; any tilt is sound
            theta = _tilt_to_mean(n, mechanisms, one_minus_q / q, pure_odds)
        ranged = _tilted_binomial(mechanisms.ranged, one_minus_q, q, theta)
        chance_of_plus, _ = signs(epsilon)  # of the loss +ε; j counts the losses -ε
        chance_of_minus = pure_odds * chance_of_plus
        pure = _tilted_binomial(mechanisms.pure, chance_of_minus, chance_of_plus, 2 * theta)
        return cls(theta, ranged, pure)

    def law_of_sum(self) -> tuple[int, Floats]:
        """Return the tilted law of N = i + 2j, divided by both scales: the first N, and the masses
        of it and the following ones.
        """
        spaced = np.zeros(2 * len(self.pure.masses) - 1)
        spaced[::2] = self.pure.masses
        first = self.ranged.first + 2 * self.pure.first
        return first, np.convolve(self.ranged.masses, spaced)

    def log_untilted(self, log_value: float, n: int) -> float:
        """Return ln Σ P[N = ν] g(ν) for a sum over ν <= n, given that sum as it is computed.

        Args:
            log_value: ln of the same sum of the masses that ``law_of_sum`` returns, which are P[N =
                ν] e^{θν} over both scales, times e^{θ(n - ν)}.
            n: the last ν.
        """
        return log_value + self.ranged.log_scale + self.pure.log_scale - self.tilt * n

    @property
    def rounding_size(self) -> float:
        """Return the number that the rounding of the two laws is proportional to."""
        places = len(self.ranged.masses) + len(self.pure.masses)
        return places + abs(self.ranged.log_scale) + abs(self.pure.log_scale)


def _tilt_to_mean(n: int, mechanisms: _Mechanisms, ranged_odds: float, pure_odds: float) -> float:
    """Return θ <= 0 at which i + 2j has mean n, by bisection (0 if its mean is below n); any θ <= 0
    is sound.

    Args:
        n: the mean that is wanted.
        mechanisms: what is composed.
        ranged_odds: the odds of the smaller loss, t - ε, of a BR mechanism.
        pure_odds: the odds of the loss -ε of a DP mechanism.
    """

    def mean(theta: float) -> float:
        """Return the mean of i + 2j under the tilt."""
        of_ranged = ranged_odds * math.exp(theta)
        of_pure = pure_odds * math.exp(2 * theta)
        mean_i = mechanisms.ranged * of_ranged / (1 + of_ranged)
        return mean_i + 2 * mechanisms.pure * of_pure / (1 + of_pure)

    if mean(0.0) <= n:
        return 0.0
    # 30 halvings find the mean to far less than its deviation.
    _, theta = bisect(lambda theta: mean(theta) < n, -LARGEST_TILT, 0.0, halvings=30)
    return theta


def _tilted_binomial(trials: int, success: float, failure: float, theta: float) -> _TiltedBinomial:
    """Return the law P[i] e^{θi} of a binomial i, in a window around its mean.

    The tilted law over e^log_scale is a binomial law again; outside the window it has mass at most
    ``MASS_OUTSIDE_WINDOW``.

    Args:
        trials: the number of trials.
        success: the probability that a trial counts.
        failure: 1 - success, to full relative precision.
        theta: θ.
    """
    weight = success * math.exp(theta)
    total = weight + failure
    tilted_success = weight / total
    tilted_failure = failure / total
    mean = trials * tilted_success
    reach = 1 + float(bernstein_reach(mean * tilted_failure))
    first = max(math.floor(mean - reach), 0)
    last = min(math.ceil(mean + reach), trials)
    window = np.arange(first, last + 1)
    law = np.exp(log_binomial_pmf(window, trials, tilted_success, tilted_failure))
    return _TiltedBinomial(first, law, trials * math.log(total))
