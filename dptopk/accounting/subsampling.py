"""Costs of mechanisms that run on a Poisson sample of users.

Let a mechanism be (x, δ(x))-DP at every x >= 0, whichever neighbour comes first, for data sets that
differ by one user. On a sample that holds each user with probability q, independently, its law with
the user is qP + (1 - q)Q and without the user Q, mixed over the others' presence. With e^y = g and
joint convexity,

    with against without: δ'(y) = q δ(ln(1 + (g - 1)/q)),
    without against with: δ'(y) = (1 - g(1 - q)) δ(ln(gq / (1 - g(1 - q)))) while g < 1/(1 - q),
    then 0,

(Balle-Barthe-Gaboardi 2018, Theorem 8, for the first; Zhu-Dong-Wang 2022, Theorem 11, for both).
The first one holds for both: the second is s δ(ln(1 + (g - 1)/s)) with s = 1 - g(1 - q) = q -
(g - 1)(1 - q) <= q, and as δ falls, s δ(ln(1 + (g - 1)/s)) rises with s. Its points are a
``MultiDP`` cost.
"""

from __future__ import annotations

import math

import numpy as np

from dptopk._internal import validate
from dptopk._internal.rounding import Floats
from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_curve
from dptopk.accounting.imported_costs import (
    LARGEST_LOSS,
    MOST_POINTS,
    POINTS,
    evenly_spaced_epsilons,
    from_profile,
)
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.costs import CDP, ZCDP, Charge, Cost, GaussianDP, LaplaceDP, MultiDP, PureDP
from dptopk.errors import IncompatibleCosts

ROUNDING = 1e-12  # relative, far above that of the formulas
UNDERFLOW = float(np.finfo(float).tiny)  # above what products lose that are below it
POINTS_ONE_BY_ONE = 100  # where each takes a composition


def subsampled(cost: Cost, rate: float, *, points: int = POINTS) -> MultiDP:
    """Return the cost of a mechanism that is given a Poisson sample of the users.

    Args:
        cost: of the mechanism on the sample, for neighbours that differ by one user.
        rate: q in (0, 1), the chance of each user to be in the sample, independently of all others
            and secret.
        points: the largest number of (ε, δ) in the cost, at least 2; at most POINTS_ONE_BY_ONE
            where each takes a composition.

    Returns:
        MultiDP: an upper bound on the profile of the sampled mechanism, whichever direction: at its
        points exact where the cost's own profile is (pure, Gaussian and Laplace costs), for bounded
        range and other classes from the best bound on a single one. For a pure ε its last point is
        (ln(1 + q(e^ε - 1)), 0), rounded up: a sample is pure too. More points bring less than 1e-4.

    Raises:
        InvalidParameter: on another rate, or points below 2.
        IncompatibleCosts: for a cost whose δ does not fall.

    >>> from dptopk.accounting import compose
    >>> day = subsampled(GaussianDP(0.5), 0.01)
    >>> compose(Charge({day: 1000}), delta=1e-6).epsilon < 2.1
    True
    """
    share = validate.probability(rate=rate, allow_zero=False)
    validate.instance(Cost, cost=cost)
    points = validate.count(at_least=2, at_most=MOST_POINTS, points=points)

    def delta_of_cost(x: Floats) -> Floats:
        """Return upper bounds on the δ of the mechanism itself."""
        return _cost_deltas(cost, x)

    def delta_of_sampled(y: Floats) -> Floats:
        """Return upper bounds on δ' of the sampled mechanism; arguments of δ are rounded down."""
        return share * delta_of_cost(np.log1p(np.expm1(y) / share) * (1 - ROUNDING))

    # The largest ε of the cost's own profile: that of pure DP, else where δ is negligible.
    pure_epsilon = compose(Charge({cost: 1}), delta=0.0).epsilon
    largest = pure_epsilon
    if pure_epsilon > LARGEST_LOSS:
        _, largest = evenly_spaced_epsilons(delta_of_cost, 2).tolist()
    if not largest < LARGEST_LOSS:
        raise IncompatibleCosts(f"{cost} has no profile that falls")
    if not isinstance(cost, GaussianDP | PureDP | LaplaceDP):
        points = min(points, POINTS_ONE_BY_ONE)
    epsilons_of_cost = np.linspace(0.0, largest * (1 + ROUNDING), points)
    # At these ε's of the sample the argument of δ is evenly spaced.
    epsilons = np.log1p(share * np.expm1(epsilons_of_cost))
    zero_from = None
    if pure_epsilon <= LARGEST_LOSS:
        zero_from = float(epsilons[-1]) * (1 + ROUNDING) + UNDERFLOW
    grid = _with_steep_part(epsilons, epsilons_of_cost, share)
    return from_profile(delta_of_sampled, grid, zero_from=zero_from)


def _with_steep_part(epsilons: Floats, epsilons_of_cost: Floats, share: float) -> Floats:
    """Return every second ε and the last one, with as many others below -ln(1 - q), where the
    profile of a sample is steep.

    These are the ε's at which the other direction of the module docstring takes δ at the cost's
    own ε's: y with e^y = e^x / (q + (1 - q) e^x).

    Args:
        epsilons: y's of the sample, rising from 0.
        epsilons_of_cost: x's of the cost, as many.
        share: q.
    """
    steep = epsilons_of_cost - np.log(share + np.exp(epsilons_of_cost) * (1 - share))
    grid = np.unique(np.concatenate([epsilons[::2], steep[1::2], epsilons[-1:]]))
    return np.maximum(grid, 0.0)


def _cost_deltas(cost: Cost, x: Floats) -> Floats:
    """Return upper bounds on the δ of one mechanism at each x >= 0."""
    if isinstance(cost, GaussianDP):
        return gaussian_curve(cost.mu).delta(x)
    if isinstance(cost, PureDP):  # randomised response: (1 - e^{x-ε})_+ / (1 + e^{-ε})
        differences = -np.expm1(np.minimum(x - cost.epsilon, 0.0))
        deltas = differences / (1 + math.exp(-cost.epsilon))
        return deltas * (1 + ROUNDING)
    if isinstance(cost, LaplaceDP):  # (1 - e^{(x-ε)/2})_+
        epsilon = cost.shift / cost.scale
        return -np.expm1(np.minimum(x - epsilon * (1 + ROUNDING), 0.0) / 2) * (1 + ROUNDING)
    single = Charge({cost: 1})
    if isinstance(cost, ZCDP | CDP):
        return renyi_curve(log_mgf(single)).delta(x)
    return np.array([compose(single, epsilon=each, effort="quick").delta for each in x.tolist()])
