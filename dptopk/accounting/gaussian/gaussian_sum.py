"""Composition of Gaussian and discrete Gaussian mechanisms: exact, set-wise.

Both classes have one pair that dominates in both directions, so the composition is the product of
the pairs, in any order the analyst likes. Gaussians make one Gaussian of μ = sqrt(Σ μ²); discrete
Gaussians of one scale and shift make one lattice law (``discrete_gaussian``); a mixture is δ(x) =
E[δ_μ(x - L)] over the loss L of the lattice laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dptopk._internal.rounding import EPS, Floats, outward
from dptopk.accounting.curves import Answer, Curve, DeferredCurve, DeltaCurve, Query
from dptopk.accounting.gaussian.discrete import (
    LISTED,
    LatticeLaw,
    discrete_gaussian_curve,
    lattice_law,
    listed_curve,
)
from dptopk.accounting.gaussian.pair import gaussian_curve, gaussian_log_delta
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, DiscreteGaussianDP, GaussianDP, sum_up
from dptopk.errors import InvalidParameter, NotApplicable

# How often a root finder asks for an expectation, about, and the most terms that are formed in all.
EVALUATIONS = 40
EVALUATIONS_FOR_DELTA = 2  # one from above, one from below
MOST_TERMS = 10**7
# Most points of a product of lattice laws.
_POINTS = 2**21
# (μ/top)² n: a division that counts twice, a product, the count as a float and its product: five
# roundings. The root and the last product are two more.
SQUARE_ROUNDING = 4 * EPS
# A listed loss is off by at most this share of the largest one: of at most 11 laws (three points
# each at least, _POINTS together), none of them wider than their sum, six roundings each and one
# for the sum.
LOSS_ROUNDING = 64 * EPS
# Relative error of Σ e^{t - top}, t - top > -745: half of 745 EPS each and two units for the
# exponential, and pairwise sums, 21 + 16 roundings.
SUM_ROUNDING = 400 * EPS
LARGEST_MU = 1e100  # squares of it are no overflow
# Points of a lattice of one standard deviation: 39 on either side (``discrete``), and the ends.
POINTS_PER_DEVIATION = 78
# Logarithms of masses that are left out of a product of laws, and a bound on each: e^-715 < 1e-310.
LOG_SMALLEST_MASS = -715
SMALLEST_MASS = 1e-310
# Errors of log masses below this are within what an exact curve promises.
EXACT_LOG_ERROR = 3e-11


def total_mu(charge: Charge) -> float:
    """Return sqrt(Σ μ²) over the Gaussian costs of a charge, rounded up; 0 when there are none."""
    counts = {cost.mu: times for cost, times in charge.of(GaussianDP).items()}
    if not counts:
        return 0.0
    # Scaled by the largest, so that no square overflows and the sum does not underflow.
    largest = max(counts)
    squares = sum_up([_sum_of_squares_up(mu / largest, n) for mu, n in counts.items()])
    return float(outward(largest * math.sqrt(squares), SQUARE_ROUNDING))


def _sum_of_squares_up(ratio: float, count: int) -> float:
    """Return the sum of ``count`` equal squares of a ratio in (0, 1], rounded up."""
    square = ratio**2 * count * (1 + SQUARE_ROUNDING)
    return float(np.nextafter(square, np.inf))


@bound(
    "gaussian",
    source="Balle-Wang 2018, Theorem 8; Dong-Roth-Su 2022, Corollary 3.3; discrete: lattice "
    "convolution",
    takes=(GaussianDP, DiscreteGaussianDP),
)
def gaussian(charge: Charge) -> Curve:
    """Return the curve of the product of all Gaussian and discrete Gaussian pairs, which is exact.

    Raises:
        NotApplicable: when μ is too large, or the lattices are too large to be listed.
    """
    mu = total_mu(charge)
    if mu > LARGEST_MU:
        raise NotApplicable(f"mu of all costs together is above {LARGEST_MU:g}")
    groups = charge.of(DiscreteGaussianDP)
    if not groups:
        return gaussian_curve(mu)
    try:
        if len(groups) == 1 and not mu:
            ((cost, times),) = groups.items()
            return discrete_gaussian_curve(cost.scale, cost.shift, times)
        widths = [cost.scale * math.sqrt(times) for cost, times in groups.items()]
        points = math.prod(POINTS_PER_DEVIATION * width + 3 for width in widths)
        if max(widths) > LISTED or points > _POINTS:
            raise NotApplicable(
                "the lattices of different discrete Gaussians have too many points together"
            )
        for cost, times in groups.items():
            discrete_gaussian_curve(cost.scale, cost.shift, times)  # refuses what cannot be listed
    except InvalidParameter as reason:
        raise NotApplicable(str(reason)) from None
    return DeferredCurve(lambda: _product_curve(mu, groups))


def _product_curve(mu: float, groups: dict[DiscreteGaussianDP, int]) -> Curve:
    """Return the curve of one Gaussian of μ (0: none) and the discrete Gaussians of ``groups``."""
    laws = [lattice_law(cost.scale, cost.shift, times) for cost, times in groups.items()]
    law = reduce(_product, laws)
    if not mu:
        return listed_curve(law)

    def log_delta(epsilon: Floats) -> Floats:
        """Return an upper bound on ln δ."""
        return _expected_log_delta(epsilon, mu, law)

    exact = float(law.log_error.max()) < EXACT_LOG_ERROR
    return _MixedCurve(log_delta, exact=exact, atoms=law.losses.size)


@dataclass(frozen=True)
class _MixedCurve(DeltaCurve):
    """A curve of discrete and continuous Gaussian noise together, whose δ is a sum over many
    losses; it answers only where that does not take long.

    Attributes:
        atoms: the number of losses in the sum.
    """

    atoms: int = 0

    def answer(self, query: Query) -> Answer:
        """Return the answer; where it would take too long inf with a note, which bounds nothing."""
        evaluations = EVALUATIONS_FOR_DELTA if query.epsilon is not None else EVALUATIONS
        if evaluations * self.atoms > MOST_TERMS:
            return Answer(math.inf, None, "a sum of too many losses")
        return super().answer(query)


def _product(first: LatticeLaw, second: LatticeLaw) -> LatticeLaw:
    """Return the law of the sum of two independent losses; masses below e^-715 are not listed, and
    a bound on each is added to the tail.
    """
    losses = np.add.outer(first.losses, second.losses).ravel()
    log_masses = np.add.outer(first.log_masses, second.log_masses).ravel()
    log_error = np.add.outer(first.log_error, second.log_error).ravel()
    tail = first.tail + second.tail + SMALLEST_MASS * losses.size
    order = np.argsort(losses, kind="stable")
    order = order[log_masses[order] > LOG_SMALLEST_MASS]
    log_masses = log_masses[order]
    return LatticeLaw(losses[order], log_masses, log_error[order] + EPS * np.abs(log_masses), tail)


def _expected_log_delta(epsilon: Floats, mu: float, law: LatticeLaw) -> Floats:
    """Return the logarithm of E[δ_μ(ε - L)] + tail at each ε, rounded up: every loss is moved up by
    its rounding error.

    Args:
        epsilon: ε's.
        mu: μ of the Gaussian.
        law: the law of L.
    """
    upper_losses = law.losses + LOSS_ROUNDING * float(np.abs(law.losses).max())
    weights = law.log_masses + law.log_error
    sums = np.array([_log_sum(weights + _log_delta_on_line(x - upper_losses, mu)) for x in epsilon])
    # Two sums of the exponents and three roundings of the result are relative to its size.
    upper = sums + SUM_ROUNDING + 8 * EPS * (1 + np.abs(sums))
    with_tail = np.logaddexp(upper, math.log(law.tail))
    return np.minimum(with_tail + 4 * EPS * (1 + np.abs(with_tail)), 0.0)


def _log_sum(exponents: Floats) -> float:
    """Return ln Σ e^t of the exponents t, with an error of at most SUM_ROUNDING."""
    largest = float(exponents.max())
    with np.errstate(under="ignore"):
        if largest > -math.inf:
            return largest + math.log(float(np.exp(exponents - largest).sum()))
        return largest


def _log_delta_on_line(x: Floats, mu: float) -> Floats:
    """Return an upper bound on ln δ_μ(x) at any real x; for x < 0 by the symmetry δ(x) = 1 - e^x +
    e^x δ(-x) of the pair.
    """
    values = gaussian_log_delta(mu, epsilon=np.abs(x))
    # Where x >= 0 the result of this branch is not used; any negative number does there.
    below_0 = np.minimum(x, -math.ulp(0.0))
    with np.errstate(under="ignore"):
        at_negative = np.log(-np.expm1(below_0) + np.exp(below_0 + values))
    # The exponent x + ln δ(-x) rounds by at most EPS/2 of itself. Its term is e^-u of the sum,
    # where u is how far the exponent lies below the logarithm of the sum, so that the sum is off
    # by at most EPS/2 (|its logarithm| + u) e^-u of itself, and u e^-u < 1. The exponentials and
    # the sum add less than 3 EPS, and the logarithm EPS of itself. More than all together is added:
    at_negative += EPS * (2 * np.abs(at_negative) + 8)
    return np.where(x < 0, np.minimum(at_negative, 0.0), values)
