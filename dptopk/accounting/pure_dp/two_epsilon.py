"""Optimal composition of pure DP costs with two different ε's, in closed form, for any counts.

CNS is Cadir-Najib-Shkel 2026.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats, outward
from dptopk._internal.sums import weighted
from dptopk.accounting.cost_models.conversions import pure_epsilons
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Answer, Curve, DeferredCurve, Query, smallest_where
from dptopk.accounting.pld.binomial import log_response_pmf
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.accounting.pure_dp.homogeneous import all_pure, homogeneous, refuse_too_many
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, sum_up
from dptopk.errors import NotApplicable

# δ asked and δ found are compared by their logarithms, each within one float of the exact one.
LOG_ROUNDING = 2 * EPS
# Masses below e^-700 are left out of the outer sum, and what they could add is put on top.
LARGEST_EXPONENT = 700.0
# Arrays of at most this many terms are formed at a time.
CHUNK = 2_000_000
# Distances from a root, relative, at which a lower bound on ε is checked.
RETREATS = (1e-11, 1e-8, 1e-5, 1e-3)


def two_epsilon_delta(
    epsilon_1: float, count_1: int, epsilon_2: float, count_2: int, *, at_epsilon: ArrayLike
) -> Floats:
    """Return the smallest δ such that every adaptive composition of x ε_1-DP and y ε_2-DP
    mechanisms is (ε_g, δ)-DP.

    Algorithm 1 of CNS lists the corners (ε_{a*,b*}, δ_{a*,b*}) of the privacy region. Its double
    sum is here taken one ε at a time: given that the second kind of mechanism has lost L, the first
    is left with ε_g - L,

        δ(ε_g) = Σ_b Bin(y, b) δ_1(ε_g - (2b - y) ε_2),      δ_1(-z) = 1 - e^{-z} + e^{-z} δ_1(z),

    with δ_1 the homogeneous optimum: a search for each b instead of a sum, and any ε_g instead of
    the corners.

    Args:
        epsilon_1: the first ε > 0.
        count_1: x >= 1.
        epsilon_2: the second ε > 0.
        count_2: y >= 1.
        at_epsilon: ε_g >= 0, an array of any shape.

    Returns:
        δ, of the shape of ``at_epsilon``: exact, rounded up.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: Cadir-Najib-Shkel 2026, Theorem 1 and Algorithm 1.

    >>> float(two_epsilon_delta(0.5, 1, 1.0, 1, at_epsilon=0.2))
    0.40257...
    """
    first = validate.positive(epsilon_1=epsilon_1), validate.count(count_1=count_1)
    second = validate.positive(epsilon_2=epsilon_2), validate.count(count_2=count_2)
    return TwoEpsilonCurve(first, second).delta(validate.nonnegatives(at_epsilon=at_epsilon))


class TwoEpsilonCurve(Curve):
    """The privacy profile of x ε_1-DP and y ε_2-DP costs, by the sum in ``two_epsilon_delta``.

    The kind with more copies, or the first one, is the inner one: its curve δ_1 is asked for what
    each loss L of the other, the outer one, leaves of ε.

    Args:
        first, second: (ε, count) of either kind.
        attained: whether randomised responses of these ε's are among the mechanisms that are
            bounded, so that a lower bound may be reported.
    """

    def __init__(
        self, first: tuple[float, int], second: tuple[float, int], *, attained: bool = True
    ) -> None:
        """List the losses of the outer kind, and prepare the curve of the inner one."""
        inner = first
        outer = second
        if second[1] > first[1]:  # more copies
            inner = second
            outer = first
        self._inner: LossCurve = homogeneous(*inner, attained=attained)
        largest_losses = [sum_up({epsilon: count}) for epsilon, count in (inner, outer)]
        self._epsilon_max = sum_up(largest_losses)
        outer_epsilon, outer_count = outer
        log_masses, errors = log_response_pmf(outer_count, outer_epsilon)
        counted = log_masses > -LARGEST_EXPONENT
        places = np.arange(-outer_count, outer_count + 1, 2, dtype=float)[counted]
        self._losses = places * outer_epsilon
        self._masses = np.exp(log_masses[counted])
        # The relative error of a mass: the error of its logarithm, and that of the exponential.
        self._error = float(errors[counted].max()) + 8 * EPS
        self._left_out = 0.0  # a bound on the masses that are not counted
        if not counted.all():
            self._left_out = (outer_count + 1) * np.exp(-LARGEST_EXPONENT)
        # A loss is a product, and ε less it a difference: each rounds by EPS of this size at most.
        self._loss_error = 4 * EPS * self._epsilon_max
        self._attained = attained

    def _delta(self, x: Floats, side: int) -> Floats:
        """Return bounds on δ at each ε = x, shape (n,): upper ones (``side`` = 1) or lower ones
        (-1).
        """
        values = np.empty(x.shape)
        rows = max(1, CHUNK // self._losses.size)
        for start in range(0, x.size, rows):
            part = x[start : start + rows]
            left_for_inner = part[:, None] - self._losses - side * self._loss_error
            inner_deltas = self._inner_delta(left_for_inner, side)
            values[start : start + rows] = weighted(inner_deltas, self._masses)
        # The sum rounds by a unit of roundoff a term, and the terms' factors by a few.
        rounding = self._error + (self._losses.size + 8) * EPS
        if side < 0:
            return values * (1 - rounding)
        upper: Floats = np.minimum(outward(values * (1 + rounding) + self._left_out), 1.0)
        return np.where(x >= self._epsilon_max, 0.0, upper)

    def _inner_delta(self, z: Floats, side: int) -> Floats:
        """Return bounds on the δ_1 of the costs with more copies at any z, also below 0: upper ones
        (``side`` = 1) or lower ones (-1).
        """
        size = np.abs(z)
        if side > 0:
            at_size = self._inner.delta(size)
        else:
            at_size = self._inner.delta_lower(size)
        shrunk = np.exp(-size)
        return np.where(z >= 0, at_size, -np.expm1(-size) + shrunk * at_size)

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ."""
        return self._delta(epsilon, 1)

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        with np.errstate(divide="ignore"):
            target = np.log(delta)
            target -= np.where(np.isfinite(target), LOG_ROUNDING * (1 + np.abs(target)), 0.0)
            return smallest_where(lambda x: np.log(self._delta(x, 1)), target, self._epsilon_max)

    def answer(self, query: Query) -> Answer:
        """Return the upper bound on the answer with a lower bound: δ rounded down, at ε or just
        below the ε found.
        """
        upper = Curve.answer(self, query)
        if not self._attained:
            return upper
        if query.epsilon is not None:
            return Answer(upper.value, float(self._delta(np.array([query.epsilon]), -1)[0]))
        # Just below the root the computed δ need not be above the target.
        candidates = upper.value * (1 - np.array(RETREATS))
        above_target = self._delta(candidates, -1) > query.delta_below
        return Answer(upper.value, float(candidates[above_target].max(initial=0.0)))


@bound(
    "two_epsilon",
    source="Cadir-Najib-Shkel 2026, Theorem 1 and Algorithm 1; set-wise by Theorem A "
    "(docs/theorems.md)",
    takes=types_with("pure"),
    better=lambda charge: "" if all_pure(charge) else "optimal_setwise",
)
def two_epsilon(charge: Charge) -> Curve:
    """Bound costs of two different ε's by their optimal composition, which is the optimum itself
    when every cost is a PureDP cost.

    Raises:
        NotApplicable: for a cost that implies no pure DP, for another number of ε's than two, or
            too many costs.
    """
    epsilons = pure_epsilons(charge)
    if len(epsilons) != 2:
        raise NotApplicable(f"needs exactly two different epsilons, got {len(epsilons)}")
    refuse_too_many(epsilons)
    first, second = epsilons.items()
    return DeferredCurve(lambda: TwoEpsilonCurve(first, second, attained=all_pure(charge)))
