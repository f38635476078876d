"""Cesar-Rogers 2022: sums of CDP and zCDP parameters (Lemmas 3.3, 3.4), and one ε-DP among two ε-BR
mechanisms.

Lemmas 5.3 and 5.4 have the optimum of the latter, chosen adaptively, in closed form for each order.
The DP mechanism in front is strictly worse for privacy than in the middle or at the end when ε_g <
ε; from ε_g = ε on the order does not matter. The closed form for ε_g >= ε is ours: there only the
outcome +ε of the DP mechanism counts, and two adaptive BR mechanisms at y = ε_g - ε remain, where
the best t is ε/2 for y <= ε/2 (as for x(t) below) and (y + ε)/3, with all three q equal, after
that. CR's z(t) is taken from their appendix: the main text misprints its q.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dptopk._internal import validate
from dptopk._internal.rounding import EPS, Floats, outward, sum_times
from dptopk.accounting.cost_models.conversions import implied_parameters
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Curve, EpsilonCurve
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.concentrated import zcdp_total
from dptopk.costs import Charge

# How far rounding moves δ. The functions below take, instead of a loss t of a BR mechanism, its gap
# s = ε - t, for 1 - e^-s has no cancellation. A gap begins with one difference of ε and ε_g, or of
# their halves and doubles. It is rounded once, and then something of the same sign is added, or it
# is exact, as the two are within a factor 2. So the relative error of a gap is at most 3 EPS/2, and
# its sign is right. Since s e^-s <= 1 - e^-s, it moves q by no larger a factor. With 4 units in the
# last place for each exp and expm1, q has a relative error of at most 10 EPS, δ of one BR mechanism
# 26 EPS, and the product of both and the probability of a response 42 EPS. Only 1 - q is a
# difference of rounded numbers: its absolute error is at most 10 EPS. For q <= 1/2, that is 20 EPS
# of 1 - q, else 20 EPS of the term beside it, where q multiplies a δ that is no smaller. All else
# is sums of non-negative terms, so that δ has a relative error of at most 70 EPS.
ROUNDINGS = 100 * EPS
# Below the smallest normal float a quotient or product is rounded by up to half of the smallest
# positive one. There are less than 25 of them, and δ has a slope of at most 2 in each.
UNDERFLOWS = 32 * math.nextafter(0.0, 1.0)


def dp_first_delta(epsilon: float, *, at_epsilon: ArrayLike) -> Floats:
    """Return δ of one ε-DP mechanism followed by two adaptive ε-BR ones: the exact optimum, rounded
    outward.

    Args:
        epsilon: ε > 0 of all three.
        at_epsilon: ε_g >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: CR Lemma 5.4; for ε_g >= ε see the module docstring.

    >>> float(dp_first_delta(1.0, at_epsilon=0.3).round(6))
    0.413601
    """
    e, g = _arguments(epsilon, at_epsilon)
    low = np.minimum(g, e)
    first = np.where(low >= e / 2, _x(e / 2, e, low), _y((e + low) / 3, (2 * e - low) / 3, e, low))
    # z(t) is largest at t = (2ε + ε_g)/3, where both gaps are (ε - ε_g)/3.
    gap = (e - low) / 3
    return _rounded_up(e, g, first + _z(gap, gap, e))


def dp_later_delta(epsilon: float, *, at_epsilon: ArrayLike) -> Floats:
    """Return δ of (BR, DP, BR), which is also that of (BR, BR, DP), all adaptive: the exact
    optimum, rounded outward.

    Args:
        epsilon: ε > 0 of all three.
        at_epsilon: ε_g >= 0, any shape.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    Source: CR Lemma 5.4; for ε_g >= ε see the module docstring.

    >>> float(dp_later_delta(1.0, at_epsilon=0.3).round(6))
    0.409278
    """
    e, g = _arguments(epsilon, at_epsilon)
    low = np.minimum(g, e)
    # The best t >= ε_g for y + z, as min(ε_g, ε/2) is the best t <= ε_g for x.
    t = np.maximum(low, e / 2)
    below = np.maximum(
        _x(np.minimum(low, e / 2), e, low), _y(t, e - t, e, low) + _z(e - t, (t - low) / 2, e)
    )
    return _rounded_up(e, g, below)


def _arguments(epsilon: float, at_epsilon: ArrayLike) -> tuple[float, Floats]:
    """Return the validated arguments."""
    return validate.positive(epsilon=epsilon), validate.nonnegatives(at_epsilon=at_epsilon)


def _rounded_up(e: float, g: Floats, below_epsilon: Floats) -> Floats:
    """Return δ rounded up, at most 1, and exactly 0 from 3ε on.

    Args:
        e: ε.
        g: ε_g.
        below_epsilon: δ where ε_g < ε.
    """
    from_epsilon, is_positive = _delta_from_epsilon(e, np.maximum(g, e))
    delta = np.where(g < e, below_epsilon, from_epsilon)
    raised = np.minimum(outward(delta, ROUNDINGS) + UNDERFLOWS, 1.0)
    return np.where(is_positive, raised, 0.0)


# In the formulas e is ε, g is ε_g, and x, y, z are the terms of CR Lemma 5.4.


def _q(gap: float | Floats, e: float) -> Floats:
    """Return q_{ε,t} = (1 - e^{t-ε}) / (1 - e^{-ε}), given the gap ε - t."""
    return np.asarray(np.expm1(np.negative(gap)) / np.expm1(-e))


def _larger_response(e: float) -> float:
    """Return q_{2ε,ε}, the probability of the loss +ε in randomised response of ε."""
    return float(1 / (1 + np.exp(-e)))


def _one_range_delta(gap: float | Floats, e: float) -> Floats:
    """Return δ of one BR mechanism at 2t - ε, given the gap ε - t: q_{ε,t}² (1 - e^{-ε})."""
    return -np.expm1(-e) * _q(gap, e) ** 2


def _x(t: float | Floats, e: float, g: Floats) -> Floats:
    """Return x(t): the DP mechanism has loss +ε, and the BR mechanisms continue at both of their
    outcomes.

    Args:
        t: the larger loss of the first BR mechanism, at most ε/2.
        e: ε.
        g: ε_g, at most 3ε/2.
    """
    q = _q(e - t, e)
    up = q * _one_range_delta(((2 * e - g) + t) / 2, e)
    down = (1 - q) * _one_range_delta(((e - g) + t) / 2, e)
    return _larger_response(e) * (up + down)


def _y(t: Floats, gap: Floats, e: float, g: Floats) -> Floats:
    """Return y(t): as x(t), where after the larger outcome everything counts.

    Args:
        t: the larger loss of the first BR mechanism.
        gap: ε - t.
        e: ε.
        g: ε_g, at most ε.
    """
    q = _q(gap, e)
    rest = (e - g) + t
    return _larger_response(e) * (-q * np.expm1(-rest) + (1 - q) * _one_range_delta(rest / 2, e))


def _z(first_gap: Floats, second_gap: Floats, e: float) -> Floats:
    """Return z(t): the DP mechanism has loss -ε, and only the larger outcome of the first BR
    mechanism counts.

    Args:
        first_gap: ε - t, where t is the larger loss of the first BR mechanism.
        second_gap: that of the second one, (t - ε_g)/2.
        e: ε.
    """
    smaller_response = np.exp(-e) / (1 + np.exp(-e))
    return smaller_response * _q(first_gap, e) * _one_range_delta(second_gap, e)


def _delta_from_epsilon(e: float, g: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return δ at each ε_g >= ε, where the order of the three makes no difference, and whether
    ε_g < 3ε: only there is it positive.
    """
    # Each of the two is cut to the ε_g at which it is used.
    below_half = _x(e / 2, e, np.minimum(g, 1.5 * e))
    rest = (2 * e - g) + e  # 3ε - ε_g: the first difference is exact for ε_g up to 4ε
    gap = np.maximum(rest, 0.0) / 3
    from_half = _larger_response(e) * _q(gap, e) * _one_range_delta(gap, e)
    return np.where(g - e < e / 2, below_half, from_half), rest > 0


@bound(
    "setwise_cdp",
    source="Cesar-Rogers 2022, Lemma 3.3 and eq. (3)",
    takes=types_with("cdp"),
    published=True,
)
def setwise_cdp(charge: Charge) -> Curve:
    """Bound ε by Σ μ + sqrt(2 Σ τ² ln(1/δ)): mean losses and subgaussian widths.

    The loss has mean at most Σ μ and is sqrt(Σ τ²)-subgaussian: P[L > Σ μ + t] <= e^{-t²/(2 Σ τ²)}
    = δ at this t.
    """
    means = []
    squares = []
    for cost, times in charge:
        mean, tau = implied_parameters(cost, "cdp")
        means.append((mean, times))
        # The product rounds by one unit of roundoff; nextafter is for squares that underflow.
        squares.append((math.nextafter(tau * tau * (1 + 1e-15), math.inf), times))
    mu = sum_times(means)
    square = sum_times(squares)
    # The product of roots is normal where that of the square and the logarithm underflows.
    root = math.sqrt(2 * square)
    return EpsilonCurve(lambda log_inverse: outward(mu + root * np.sqrt(log_inverse)))


@bound(
    "setwise_zcdp",
    source="Cesar-Rogers 2022, Lemma 3.4; BS16 Prop. 1.3",
    takes=types_with("zcdp"),
    valid_through="filter",
    published=True,
)
def setwise_zcdp(charge: Charge) -> Curve:
    """Bound ε by ξ + ρ + 2 sqrt(ρ ln(1/δ)) for the summed (ξ, ρ), with the published constants."""
    xi, rho = zcdp_total(charge)
    # The product of roots is normal where that of ρ and the logarithm underflows.
    root = math.sqrt(rho)
    return EpsilonCurve(lambda log_inverse: outward(xi + rho + 2 * root * np.sqrt(log_inverse)))
