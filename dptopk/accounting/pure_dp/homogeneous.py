"""Composition of ε-DP costs: the basic sum and the optimum for equal ε's.

An (ε, δ)-DP cost arrives here as ε-DP: its failure mass is split off beforehand
(``registry.split_failure``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats, sum_decimals
from dptopk.accounting.cost_models.conversions import pure_epsilons
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Answer, Curve, EpsilonCurve, Query
from dptopk.accounting.pld.binomial import log_response_pmf
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, PureDP, sum_up
from dptopk.errors import NotApplicable


def all_pure(charge: Charge) -> bool:
    """Return whether every cost is a PureDP cost; randomised response then attains the optimum for
    the ε's.
    """
    return set(map(type, charge.costs)) <= {PureDP}


@bound(
    "basic",
    source="Murtagh-Vadhan 2016, Theorem 1.2",
    takes=types_with("pure"),
    valid_through="filter",
)
def basic(charge: Charge) -> Curve:
    """Return the curve of basic composition: at every δ the sum of the ε's, added up as the
    decimals that they were written as, and no δ below 1 at a smaller ε.
    """
    total = sum_decimals(pure_epsilons(charge))
    return EpsilonCurve(lambda log_inverse: np.full_like(log_inverse, total), epsilon_max=total)


def one_epsilon(charge: Charge) -> tuple[float, int]:
    """Return the ε and the number of costs of a charge whose costs all imply ε-DP for the same ε.

    Raises:
        NotApplicable: when their ε's differ, or a cost implies no pure DP.
    """
    epsilons = pure_epsilons(charge)
    if len(epsilons) > 1:
        raise NotApplicable(f"needs equal epsilons, got {len(epsilons)} different ones")
    ((epsilon, count),) = epsilons.items()
    return epsilon, count


# Outcomes that are listed at most: a second, and 200 MB.
MOST_SUMMED_OUTCOMES = 4_000_000
# The outcomes that one question leaves out have about e^-REACH of the mass at its answer, and may
# have at most the share NEGLIGIBLE of the answer's δ.
REACH = 50.0
NEGLIGIBLE = 1e-14
LEAST_POSITIVE = 5e-324  # δ = 0 has no logarithm
LEAST_TAIL = 1e-300  # above a tail that underflows
# Relative, far above the rounding of a few operations (2**-53 each). The quotient of a geometric
# sum is raised, so that 1 / (1 - quotient) is rounded up where the quotient is near 1.
MARGIN = 1e-9
QUOTIENT_ROUNDING = 1e-12


def refuse_too_many(counts: Mapping[float, int]) -> None:
    """Refuse costs whose binomial losses would be too many to list.

    Args:
        counts: the number of costs of each ε.

    Raises:
        NotApplicable: when a single ε has more than MOST_SUMMED_OUTCOMES copies.
    """
    if max(counts.values()) > MOST_SUMMED_OUTCOMES:
        raise NotApplicable(f"more than {MOST_SUMMED_OUTCOMES:.0e} copies of one epsilon")


def homogeneous(epsilon: float, count: int, *, attained: bool) -> LossCurve:
    """Return the privacy curve of k randomised responses of ε, the optimum of k ε-DP mechanisms:
    the loss (2l - k) ε has the mass of Bin(k, e^ε / (1 + e^ε)) at l.

    Args:
        epsilon: ε > 0.
        count: k >= 1.
        attained: whether the optimum is attained, so that a lower bound is reported.
    """
    log_masses, error = log_response_pmf(count, epsilon)
    losses = np.arange(-count, count + 1, 2, dtype=float) * epsilon
    return LossCurve(
        losses, log_masses, log_error=error, epsilon_max=sum_up({epsilon: count}), exact=attained
    )


@dataclass(frozen=True)
class EqualEpsilons(Curve):
    """The privacy curve of many equal ε's, as ``homogeneous`` gives it; ``answer`` lists only the
    outcomes near the answer, where they suffice.

    Outcome l is that l of the k randomised responses are true answers; its loss is (2l - k) ε.

    Attributes:
        each: the ε of one cost.
        count: k, the number of costs.
        attained: whether a lower bound is reported too.
    """

    each: float
    count: int
    attained: bool

    @cached_property
    def whole_curve(self) -> LossCurve:
        """Return the curve of all outcomes."""
        return homogeneous(self.each, self.count, attained=self.attained)

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ."""
        return self.whole_curve.delta(epsilon)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        return self.whole_curve.epsilon(delta)

    def answer(self, query: Query) -> Answer:
        """Return the answer to one query, from the outcomes near it where they say as much as
        all of them.
        """
        largest_loss = self.count * self.each * (1 - MARGIN)
        if query.epsilon is not None and query.epsilon >= largest_loss:
            # From the largest loss on δ is 0, which only the whole curve knows.
            return self.whole_curve.answer(query)
        first, last = self._outcomes_near_answer(query)
        if last - first > self.count / 2:  # a part that would save little
            return self.whole_curve.answer(query)
        answer = self._answer_from_outcomes(first, last, query)
        if answer is None:
            return self.whole_curve.answer(query)
        return answer

    def _answer_from_outcomes(self, first: int, last: int, query: Query) -> Answer | None:
        """Return the answer from the outcomes first, ..., last and a bound on the mass of those
        beyond; None where that is not the answer of all outcomes.
        """
        log_masses, errors = log_response_pmf(self.count, self.each, first, last)
        multiples = np.arange(2 * first - self.count, 2 * last - self.count + 1, 2, dtype=float)
        losses = multiples * self.each
        beyond = self._tail_bound(last, float(log_masses[-1] + errors[-1]))
        part = LossCurve(losses, log_masses, log_error=errors, tail=beyond, exact=self.attained)
        answer = part.answer(query)
        if query.epsilon is not None:
            epsilon = query.epsilon
            delta = answer.value
        else:
            epsilon = answer.value
            delta = query.delta
        # At an ε below its first loss the δ of the part is too small.
        is_inside = losses[0] * (1 + MARGIN) < epsilon < losses[-1]
        if is_inside and beyond <= NEGLIGIBLE * delta:
            return answer
        return None

    def _outcomes_near_answer(self, query: Query) -> tuple[int, int]:
        """Return the first and the last outcome l that a query is answered from.

        Given ε, the first is just below the outcome whose loss is ε; given δ, it is at least two
        standard deviations below the mean, since the answer is nearly always above it. Beyond the
        last, the mass is about e^-REACH of that at the answer. Neither needs to be right:
        ``answer`` checks, and takes the whole curve if the part does not do.
        """
        mean = self.count / (1 + math.exp(-self.each))
        # By Hoeffding's inequality P[l >= mean + t] <= e^{-2t²/k}. ``exponent`` is 2t²/k at the
        # answer, or -ln δ; ``last`` solves for a t with ``exponent`` + REACH.
        if query.epsilon is not None:
            answer_place = max((query.epsilon / self.each + self.count) / 2, 0.0)
            exponent = 2 * max(answer_place - mean, 0.0) ** 2 / self.count
            first = answer_place
        else:
            exponent = -math.log(max(query.delta, LEAST_POSITIVE))
            first = mean - math.sqrt(self.count)
        last = mean + math.sqrt(self.count * (exponent + REACH) / 2)
        # The 2 that is taken off is slack for rounding, the 2 that is added keeps at least three
        # outcomes where there are as many.
        first_outcome = min(max(math.floor(first) - 2, 0), self.count - 1)
        return first_outcome, min(max(math.ceil(last), first_outcome + 2), self.count)

    def _tail_bound(self, last: int, log_mass: float) -> float:
        """Return an upper bound on the probability of more than ``last`` true answers; 1 where none
        is known.

        Args:
            last: l.
            log_mass: ln P[l], rounded up.
        """
        if last == self.count:
            return 0.0
        # The quotient of neighbouring masses falls: beyond l they are at most geometric.
        quotient = (self.count - last) / (last + 1) * math.exp(self.each)
        quotient *= 1 + QUOTIENT_ROUNDING
        if quotient >= 1:
            return 1.0
        geometric_sum = math.exp(log_mass) * quotient / (1 - quotient)
        return min(geometric_sum * (1 + MARGIN) + LEAST_TAIL, 1.0)


def optimal_dp_delta(epsilon: float, count: int, *, at_epsilon: ArrayLike) -> Floats:
    """Return the smallest δ such that every k-fold adaptive composition of ε-DP mechanisms is (ε_g,
    δ)-DP.

    Args:
        epsilon: ε > 0 of each mechanism.
        count: k, how many, from 1 to 4 * 10^6.
        at_epsilon: ε_g >= 0, an array of any shape.

    Returns:
        δ, of the shape of ``at_epsilon``: exact, rounded up (relative error below 1e-10 for k <=
        10^6).

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Kairouz-Oh-Viswanath 2017, Theorem 3.3; Murtagh-Vadhan 2016, Theorem 1.4.

    >>> float(optimal_dp_delta(1.0, 1, at_epsilon=0.0))  # (e - 1) / (e + 1)
    0.46211715726...
    """
    return _validated_curve(epsilon, count).delta(validate.nonnegatives(at_epsilon=at_epsilon))


def optimal_dp_epsilon(epsilon: float, count: int, *, delta: ArrayLike) -> Floats:
    """Return the smallest ε_g such that every k-fold adaptive composition of ε-DP mechanisms is
    (ε_g, δ)-DP.

    Args:
        epsilon: ε > 0 of each mechanism.
        count: k, how many, from 1 to 4 * 10^6.
        delta: δ >= 0, an array of any shape; from 1 on the answer is 0.

    Returns:
        ε_g, of the shape of ``delta``: exact, rounded up.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: as for ``optimal_dp_delta``.

    >>> round(float(optimal_dp_epsilon(0.1, 25, delta=1e-6)), 5)
    2.07906
    """
    return _validated_curve(epsilon, count).epsilon(validate.nonnegatives(delta=delta))


def _validated_curve(epsilon: float, count: int) -> LossCurve:
    """Return the curve of validated arguments."""
    count = validate.count(count=count, at_most=MOST_SUMMED_OUTCOMES)
    return homogeneous(validate.positive(epsilon=epsilon), count, attained=True)


@bound(
    "optimal_dp",
    source="Kairouz-Oh-Viswanath 2017, Theorem 3.3; Murtagh-Vadhan 2016, Theorem 1.4",
    takes=types_with("pure"),
    better=lambda charge: "" if all_pure(charge) else "optimal_setwise",
)
def optimal_dp(charge: Charge) -> Curve:
    """Bound k costs of equal ε by their optimal composition, which is the optimum itself when every
    cost is a PureDP cost.

    Raises:
        NotApplicable: when their ε's differ, or when they are too many.
    """
    epsilon, count = one_epsilon(charge)
    refuse_too_many({epsilon: count})
    return EqualEpsilons(epsilon, count, attained=all_pure(charge))
