"""Lower bounds for one (ξ, ρ)-zCDP statement: laws of a loss with two outcomes that satisfy it.

Under the one neighbour, P, the first outcome has the probability p, under the other, Q, it has
p e^{-l}: its loss is l. So P = (p, 1 - p) and Q = (p e^{-l}, 1 - p e^{-l}), and at ε = x < l such a
law reaches δ = p (1 - e^{x-l}).

The statement asks for D_α(P‖Q), D_α(Q‖P) <= ξ + ρα at every α > 1. It holds if these hold on a
grid of orders with room to spare: D_α rises in α and never exceeds the largest loss, so between
orders α < β it is enough that D_β <= ξ + ρα, and from the order on at which ξ + ρα reaches the
largest loss nothing is left to check.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from dptopk._internal.rounding import Floats
from dptopk._internal.search import bisect
from dptopk.accounting.setwise import tuning

EXP_ROUNDING = 1e-12  # relative, far above that of e^x for an x of a few hundred at most
# Of a divergence times its order, absolute and relative; far above that of the formulas.
ROUNDING = 1e-11
FIRST_ORDER = 1e-6  # α - 1 of the first divergence that is checked; ξ + ρ is allowed below it
# The logarithms of p that are tried lie FIRST_DECREASE, then LOG_STEP more each, below the first
# one, all by less than LARGEST_DECREASE.
FIRST_DECREASE = 2
LARGEST_DECREASE = 60
LOG_STEP = 4


def two_outcomes_delta(rho: float, xi: float, x: float) -> float:
    """Return a lower bound on the largest δ at ε = x of a mechanism that is (ξ, ρ)-zCDP, in both
    directions.

    Args:
        rho: ρ > 0.
        xi: ξ >= 0.
        x: ε >= 0.

    >>> 9.8e-7 < two_outcomes_delta(0.125, 0.0, 2.419) < 1e-6  # CKS20: 1.0e-6
    True
    """
    # How far the loss l is above x: a few of these, each of which gives a lower bound.
    distances = np.geomspace(0.03, 6.0, tuning.TRIED_LOSSES) * math.sqrt(rho)
    losses = x + distances
    excess = np.maximum(losses - xi - rho, 0.0)
    # About the largest ln p, by Chernoff's inequality; below 0, for the second outcome.
    log_p = -np.maximum(excess**2 / (4 * rho), 1e-3)
    log_worth = np.log(-np.expm1(-distances))  # ln(1 - e^{x-l}), so that δ = p times the worth
    log_guess = log_p + log_worth
    best = -math.inf
    for place in np.argsort(-log_guess):
        # No ln p exceeds its guess: where the guess is no better, nothing after it is.
        if log_guess[place] <= best:
            break
        log_mass = largest_log_mass(rho, xi, float(losses[place]), float(log_p[place]))
        best = max(best, log_mass + float(log_worth[place]))
    return math.exp(best) * (1 - EXP_ROUNDING)


def largest_log_mass(rho: float, xi: float, loss: float, log_p: float) -> float:
    """Return a ln p <= ``log_p`` with which the law with two outcomes is (ξ, ρ)-zCDP; -inf if none
    is found.

    Of those that are tried it is the largest; larger ones may exist.

    Args:
        rho: ρ > 0.
        xi: ξ >= 0.
        loss: l, the loss of the first outcome.
        log_p: an upper limit of ln p, the log-probability of the first outcome under P.
    """
    orders = _checked_orders(rho, xi, loss)

    def holds(log_mass: float) -> bool:
        """Return whether the law with this ln p is (ξ, ρ)-zCDP."""
        return _satisfies_zcdp(rho, xi, _TwoOutcomes.of(log_mass, loss), orders)

    if holds(log_p):
        return log_p
    for decrease in range(FIRST_DECREASE, LARGEST_DECREASE, LOG_STEP):
        lower = log_p - decrease
        if holds(lower):
            upper = min(lower + LOG_STEP, log_p)
            largest, _ = bisect(holds, lower, upper, halvings=tuning.HALVINGS)
            return largest
    return -math.inf


def _checked_orders(rho: float, xi: float, loss: float) -> Floats:
    """Return orders α - 1, rising, from almost 0 to the one at which ξ + ρα reaches the largest
    loss; they are dense where the statement is tightest.

    Any such orders are sound: the fewer, the more room a law must leave between two of them.

    Args:
        rho: ρ.
        xi: ξ.
        loss: l, the loss of the first outcome.
    """
    # Beyond loss/ρ, where ξ + ρα is above the largest loss; at least some orders.
    last = max(loss / rho, 4.0) * 1.001
    # α ln(p/q) - ξα - ρα² is largest here, and orders are dense within a factor of 1.7 of it.
    tightest = max((loss - xi - rho) / (2 * rho), 1e-4)
    low = min(tightest / 1.7, last / 2)
    high = min(tightest * 1.7, last)
    log_ratio = max(math.log(low / FIRST_ORDER), 1.0)
    far_below = np.geomspace(FIRST_ORDER, low, math.ceil(log_ratio / tuning.ORDER_STEP_FAR))
    around_tightest = _orders_between(low, high, tuning.ORDER_STEP_NEAR)
    far_above = _orders_between(high, last, tuning.ORDER_STEP_FAR)
    return np.unique(np.concatenate([far_below, around_tightest, far_above]))


def _orders_between(low: float, high: float, log_step: float) -> Floats:
    """Return orders of equal ratio, less than ``log_step`` apart in logarithms, both ends
    among them.

    Args:
        low: the smallest order.
        high: the largest order.
        log_step: above 0.
    """
    steps = math.ceil(math.log(high / low) / log_step)
    # One step more than is needed, so that rounding makes none too long.
    return np.geomspace(low, high, steps + 2)


class _TwoOutcomes(NamedTuple):
    """The logarithms of the probabilities of a law with two outcomes.

    Attributes:
        first_p: of the first outcome under P.
        first_q: of the first outcome under Q.
        second_p: of the second outcome under P.
        second_q: of the second outcome under Q.
        largest_loss: the largest absolute loss of the two outcomes, rounded up.
    """

    first_p: float
    first_q: float
    second_p: float
    second_q: float
    largest_loss: float

    @classmethod
    def of(cls, log_p: float, loss: float) -> _TwoOutcomes:
        """Return the law whose first outcome has the loss l = ``loss`` > 0 and the log-probability
        ``log_p`` < 0 under P.
        """
        log_q = log_p - loss
        second_p = math.log(-math.expm1(log_p))
        second_q = math.log(-math.expm1(log_q))
        largest_loss = max(loss, abs(second_p - second_q)) * (1 + ROUNDING)
        return cls(log_p, log_q, second_p, second_q, largest_loss)

    @property
    def swapped(self) -> _TwoOutcomes:
        """Return the law with P and Q exchanged."""
        return _TwoOutcomes(
            self.first_q, self.first_p, self.second_q, self.second_p, self.largest_loss
        )

    def divergence_bounds(self, orders: Floats) -> Floats:
        """Return upper bounds on the Rényi divergences D_α(P‖Q).

        Args:
            orders: α - 1 > 0 of each divergence.
        """
        alpha = 1 + orders
        # D_α is ln(p^α q^{-(α - 1)}, summed over both outcomes) / (α - 1).
        first = alpha * self.first_p - orders * self.first_q
        second = alpha * self.second_p - orders * self.second_q
        moments = logsumexp([first, second], axis=0)
        exponents = 1 + np.abs(alpha * self.first_p) + np.abs(orders * self.first_q)
        # A moment rounds by a few units of roundoff of the exponents, below ROUNDING / 1000.
        divergences: Floats = (moments + ROUNDING * exponents * 1e-3) / orders
        return divergences


def _satisfies_zcdp(rho: float, xi: float, law: _TwoOutcomes, orders: Floats) -> bool:
    """Return whether the divergences in both directions are proven to be at most ξ + ρα at every
    α > 1, by a check on a grid.

    Between two orders D_α is at most its value at the larger one, and ξ + ρα at least that at the
    smaller one.

    Args:
        rho: ρ > 0.
        xi: ξ >= 0.
        law: the law.
        orders: the orders α - 1 of the grid, rising.
    """
    orders_before = np.append(0.0, orders[:-1])
    allowed = xi + rho * (1 + orders_before)
    if xi + rho * (1 + orders[-1]) < law.largest_loss:
        return False  # beyond the last order something would be left to check
    for direction in (law, law.swapped):
        # No divergence exceeds the largest loss.
        divergences = np.minimum(direction.divergence_bounds(orders), law.largest_loss)
        if (divergences > allowed).any():
            return False
    return True
