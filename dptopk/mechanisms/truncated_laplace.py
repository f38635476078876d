"""Counts of private labels over a fixed threshold, with discrete Laplace noise that is cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial

from dptopk._internal import validate
from dptopk._internal.choices import CONFIDENCE
from dptopk._internal.rounding import decimal, read_up, tail_up
from dptopk._internal.search import first_true
from dptopk._internal.tails import first_offset, laplace_edge_mass, laplace_total
from dptopk.costs import Charge, PureDP
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms.laplace import KnownLaplace, rate
from dptopk.mechanisms.mechanism import finite_l0
from dptopk.mechanisms.thresholds import CutMechanism
from dptopk.mechanisms.user_total import cap_binds, chance_to_show_any, one_cost_is_less

# Share of δ that is set aside for the rounding of masses and logarithms, each of a few ulps.
DELTA_ROUNDING = 1e-9
# A noisy count at the threshold is released with a probability below 1 by at least this step: with
# probability 1 the threshold would be one lower.
CHANCE_STEP = 2.0**-20


@dataclass(frozen=True, kw_only=True)
class TruncatedLaplace(CutMechanism):
    """Every present count + discrete Laplace noise cut to [-T, T], released if above T; needs the
    whole histogram.

    A noisy count of exactly T is released with the probability that spends all of δ. Charge: l0 ×
    PureDP(epsilon) + δ; l0 must be finite. Neighbours: add or remove one user. A released count is
    never further than T from the true one. Whether the histogram is whole is a fact about how it
    was made, not one to be read off the data.

    Args:
        epsilon: ε of each count, not of all.
        delta: bounds the mass outside the common support of neighbouring outcomes; in (0, 1). The δ
            charged is the one asked for.

    Source: docs/notes/mechanisms.md, "Truncated noise"; for linf = 1 the k-TSGD mechanism of
    Desfontaines et al. 2022. T is the smallest integer >= linf with 1 - (1-q)^l0 <= delta, q the
    mass of the linf outermost points of the cut law.

    >>> mechanism = TruncatedLaplace(epsilon=1.0, delta=1e-6)
    >>> print(mechanism.charge(Sensitivity(l0=1)), mechanism.threshold_offset(Sensitivity(l0=1)))
    DP(1.0) + delta(1e-06) 14
    """

    epsilon: float
    delta: float
    noise_falls_with = ("epsilon",)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:
        """Return l0 × DP(ε) + δ, for any ``labels``; where a user's total is capped by t, return
        DP(ε t/τ) + δ if that is less.

        Raises:
            InvalidParameter: when l0 is None, because there is no bound.
        """
        self.bound(sensitivity)  # refuses what has no bound
        touched = self.moving_counts(sensitivity)
        if not one_cost_is_less(sensitivity, touched, self.epsilon):
            return Charge({PureDP(self.epsilon): touched}, delta=self.delta)
        # The cost is not below that of the float epsilon, nor below that of the decimal by which it
        # is written.
        epsilon = max(Fraction(self.epsilon), decimal(self.epsilon))
        epsilon_of_total = epsilon * sensitivity.total(touched) / sensitivity.linf
        return Charge({PureDP(read_up(epsilon_of_total)): 1}, delta=self.delta)

    def threshold_offset(self, sensitivity: Sensitivity) -> int:
        """Return the threshold T, at which the noise is cut: a noisy count above it is released,
        and one of exactly T with the probability ``at_threshold``.
        """
        return self.bound(sensitivity)

    def at_threshold(self, sensitivity: Sensitivity) -> float:
        """Return the probability π, below 1, with which a noisy count of exactly T is released, so
        that all of δ is spent.

        A label that one user alone has, linf times, is released with P[N > T - linf] + π P[N = T -
        linf]; π is chosen so that this is 1 - (1-δ)^(1/l0), rounded down, because then one of l0
        such labels is released with probability δ. Where a user's total is capped, π is the largest
        multiple of CHANCE_STEP with which δ suffices for every split of the total.

        Raises:
            InvalidParameter: when l0 is None, or for a δ that is too small for this noise.
        """
        bound = self.bound(sensitivity)
        decay = rate(self.epsilon, sensitivity)
        linf = sensitivity.linf
        labels = finite_l0(sensitivity)
        if cap_binds(sensitivity, labels):
            return _chance_for_capped_total(decay, sensitivity, labels, bound, self.delta)
        delta_per_label = -math.expm1(math.log1p(-self.delta) / labels)
        spare = delta_per_label * (1 - DELTA_ROUNDING) - laplace_edge_mass(decay, linf, bound)
        chance = spare / _point_mass(decay, bound - linf, bound)
        # Rounding may leave no spare δ at all.
        return min(max(chance, 0.0), 1 - CHANCE_STEP)

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = CONFIDENCE) -> int:
        """Return the smallest count that is released with at least this probability; below 1/2 the
        answer is that for 1/2.
        """
        probability = validate.probability(allow_zero=False, probability=probability)
        chance = self.at_threshold(sensitivity)
        tail = self.threshold_tail(sensitivity)
        most_hidden = min(1 - probability, 0.5)

        def appears(above: int) -> bool:
            """Return whether a count of T + ``above`` is hidden rarely enough: by noise below
            -above, or by noise of exactly -above and a coin.
            """
            below_threshold = tail(above)  # P[noise < -above], by symmetry
            # P[noise <= -above]: for 0 it is 1 - P[noise > 0].
            at_most_threshold = tail(above - 1) if above else 1 - below_threshold
            hidden = chance * below_threshold + (1 - chance) * at_most_threshold
            return hidden <= most_hidden

        return self.bound(sensitivity) + first_offset(appears, "probability")

    @cached_property
    def counting(self) -> KnownLaplace:
        """Return the mechanism for known domains that has this noise before it is cut."""
        return KnownLaplace(epsilon=self.epsilon)


@lru_cache(maxsize=1024)
def _chance_for_capped_total(
    decay: float, sensitivity: Sensitivity, labels: int, bound: int, delta: float
) -> float:
    """Return the largest probability, a multiple of CHANCE_STEP below 1, with which a noisy count
    of exactly the bound may be released, so that for every split of a user's capped total δ
    suffices.

    Args:
        decay: rate of the Laplace noise.
        sensitivity: of the counts, with a cap on a user's total.
        labels: how many labels one user has at most.
        bound: T, at which the noise is cut.
        delta: bounds the probability that one of the user's own labels is released.
    """

    def is_too_large(steps: int) -> bool:
        """Return whether a probability of steps·CHANCE_STEP would need more than delta."""
        shown = partial(_chance_to_be_shown, decay, bound, steps * CHANCE_STEP)
        return chance_to_show_any(shown, sensitivity, labels) > delta * (1 - DELTA_ROUNDING)

    most_steps = round(1 / CHANCE_STEP) - 1
    first_too_large = first_true(is_too_large, 0, most_steps + 1)
    return max(first_too_large - 1, 0) * CHANCE_STEP


def _chance_to_be_shown(decay: float, bound: int, chance_at_bound: float, count: int) -> float:
    """Return an upper bound on the probability that a label which one user alone has is shown.

    Args:
        decay: the rate of the Laplace noise.
        bound: T, at which the noise is cut.
        chance_at_bound: the probability with which a noisy count of exactly T is released.
        count: the true count of the label, from 1 to T.
    """
    above = laplace_edge_mass(decay, count, bound)
    return above + chance_at_bound * _point_mass(decay, bound - count, bound)


def _point_mass(decay: float, value: int, bound: int) -> float:
    """Return an upper bound on P[N = value], value from 0 to ``bound``, for Laplace noise of rate
    ``decay`` that is cut to [-bound, bound].

    Args:
        decay: the rate of the noise, above 0.
        value: from 0 to ``bound``.
        bound: of the noise.
    """
    total = laplace_total(decay, bound)  # 0 only where the decay underflows
    if total > 0:
        return tail_up(math.exp(-decay * value) * -math.expm1(-decay) / total)
    return 1.0
