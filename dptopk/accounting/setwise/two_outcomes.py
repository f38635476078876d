"""Lower bounds on the conversion of zCDP: laws with two outcomes that satisfy a (ξ, ρ) statement.

P = (p, 1-p) and Q = (p e^{-l}, 1 - p e^{-l}) have D_α(P‖Q), D_α(Q‖P) <= ξ + ρα for every α > 1 if that holds on a grid
of orders with room to spare: D_α rises in α and never exceeds the largest loss, so between orders α < β it is enough
that D_β <= ξ + ρα, and from the order on at which ξ + ρα reaches the largest loss nothing is left to check. At a given
x such a law reaches δ = p (1 - e^{x-l}).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from dptopk._internal.rounding import Floats
from dptopk._internal.search import bisect
from dptopk.accounting.setwise import tuning

ROUNDING = 1e-11  # of a divergence times its order, absolute and relative; far above that of the formulas


def two_outcomes_delta(rho: float, xi: float, x: float) -> float:
    """A lower bound on the largest δ at ε = x of a mechanism that is (ξ, ρ)-zCDP, in both directions.

    Args:
        rho: ρ > 0.
        xi: ξ >= 0.
        x: ε >= 0.

    >>> 9.8e-7 < two_outcomes_delta(0.125, 0.0, 2.419) < 1e-6  # CKS20: 1.0e-6
    True
    """
    extra = np.geomspace(0.03, 6.0, tuning.TRIED_LOSSES) * math.sqrt(rho)
    loss = x + extra
    log_p = -np.maximum(np.maximum(loss - xi - rho, 0.0) ** 2 / (4 * rho), 1e-3)  # at most about this much
    worth = np.log(-np.expm1(-extra))
    best = -math.inf
    for at in np.argsort(-(log_p + worth)):
        if log_p[at] + worth[at] <= best:
            break
        best = max(best, largest_log_mass(rho, xi, float(loss[at]), float(log_p[at])) + float(worth[at]))
    return math.exp(best) * (1 - 1e-12)


def largest_log_mass(rho: float, xi: float, loss: float, log_p: float) -> float:
    """A ln p, not above the one given, with which the law satisfies the statement; -inf if none is found."""
    orders = _orders(rho, xi, loss)

    def holds(at: float) -> bool:
        return _satisfies(rho, xi, loss, at, orders)

    if holds(log_p):
        return log_p
    least = next((log_p - below for below in range(2, 60, 4) if holds(log_p - below)), -math.inf)
    return bisect(holds, least, min(least + 4, log_p), halvings=tuning.HALVINGS)[0] if least > -math.inf else least


def _orders(rho: float, xi: float, loss: float) -> Floats:
    """α - 1 from almost 0 to where ξ + ρα reaches the largest loss; dense where the statement is tightest."""
    last = max(loss / rho, 4.0) * 1.001
    tightest = max((loss - xi - rho) / (2 * rho), 1e-4)
    low, high = min(tightest / 1.7, last / 2), min(tightest * 1.7, last)
    far_below = np.geomspace(1e-6, low, math.ceil(max(math.log(low / 1e-6), 1.0) / tuning.ORDER_STEP_FAR))
    near = np.geomspace(low, high, math.ceil(math.log(high / low) / tuning.ORDER_STEP_NEAR) + 2)
    far_above = np.geomspace(high, last, math.ceil(math.log(last / high) / tuning.ORDER_STEP_FAR) + 2)
    return np.unique(np.concatenate([far_below, near, far_above]))


def _satisfies(rho: float, xi: float, loss: float, log_p: float, orders: Floats) -> bool:
    """Whether both divergences are at most ξ + ρα at every order."""
    log_q = log_p - loss
    rest_p, rest_q = math.log(-math.expm1(log_p)), math.log(-math.expm1(log_q))
    allowed = xi + rho * (1 + np.append(0.0, orders[:-1]))
    largest = max(loss, abs(rest_p - rest_q)) * (1 + ROUNDING)
    if xi + rho * (1 + orders[-1]) < largest:
        return False
    alpha = 1 + orders
    for a, b, rest_a, rest_b in ((log_p, log_q, rest_p, rest_q), (log_q, log_p, rest_q, rest_p)):
        moments = logsumexp([alpha * a - orders * b, alpha * rest_a - orders * rest_b], axis=0)
        divergence = (moments + ROUNDING * (1 + np.abs(alpha * a) + np.abs(orders * b)) * 1e-3) / orders
        if (np.minimum(divergence, largest) > allowed).any():
            return False
    return True
