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
    epsilons_of,
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

    # The largest ε of the profile: that of pure DP, else where δ is negligible.
    pure = compose(Charge({cost: 1}), delta=0.0).epsilon
    reach = pure
    if pure > LARGEST_LOSS:
        _, reach = epsilons_of(delta_of_cost, 2).tolist()
    if not reach < LARGEST_LOSS:
        raise IncompatibleCosts(f"{cost} has no profile that falls")
    if not isinstance(cost, GaussianDP | PureDP | LaplaceDP):
        points = min(points, POINTS_ONE_BY_ONE)
    x = np.linspace(0.0, reach * (1 + ROUNDING), points)
    y = np.log1p(share * np.expm1(x))
    # Half of the points are evenly spaced in the argument of δ, half lie below -ln(1 - q), where
    # the profile is steep; the last one ends it.
    steep = x - np.log(share + np.exp(x) * (1 - share))
    grid = np.unique(np.concatenate([y[::2], steep[1::2], y[-1:]]))
    zero_from = None
    if pure <= LARGEST_LOSS:
        zero_from = float(y[-1]) * (1 + ROUNDING) + UNDERFLOW
    return from_profile(delta_of_sampled, np.maximum(grid, 0.0), zero_from=zero_from)


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
