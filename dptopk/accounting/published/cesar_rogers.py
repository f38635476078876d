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
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats, outward, sum_times
from dptopk.accounting.cost_models.conversions import implied_parameters
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Curve, EpsilonCurve
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.concentrated import zcdp_total
from dptopk.costs import Charge

THIRTY_ROUNDINGS = 1e-14  # relative, and as much again


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
    first = np.where(low >= e / 2, _x(e / 2, e, low), _y((e + low) / 3, e, low))
    below_epsilon = first + _z((2 * e + low) / 3, e, low)
    return _rounded_up(np.where(g < e, below_epsilon, _delta_from_epsilon(e, g)))


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
    below = np.maximum(_x(np.minimum(low, e / 2), e, low), _y(t, e, low) + _z(t, e, low))
    return _rounded_up(np.where(g < e, below, _delta_from_epsilon(e, g)))


def _arguments(epsilon: float, at_epsilon: ArrayLike) -> tuple[float, Floats]:
    """Return the validated arguments."""
    return validate.positive(epsilon=epsilon), validate.nonnegatives(at_epsilon=at_epsilon)


def _rounded_up(delta: Floats) -> Floats:
    """Return δ rounded up, at most 1; it was computed by about thirty sums and products of
    non-negative terms.
    """
    return np.minimum(outward(delta, THIRTY_ROUNDINGS), 1.0)


# In the formulas e is ε, g is ε_g, and x, y, z are the terms of CR Lemma 5.4.


def _q(t: float | Floats, e: float) -> Floats:
    """Return q_{ε,t} = (1 - e^{t-ε}) / (1 - e^{-ε})."""
    return np.asarray(np.expm1(t - e) / np.expm1(-e))


def _larger_response(e: float) -> float:
    """Return q_{2ε,ε}, the probability of the loss +ε in randomised response of ε."""
    return float(1 / (1 + np.exp(-e)))


def _one_range_delta(t: float | Floats, e: float) -> Floats:
    """Return δ of one BR mechanism at 2t - ε, which is q_{ε,t}² (1 - e^{-ε})."""
    return -np.expm1(-e) * _q(t, e) ** 2


def _x(t: float | Floats, e: float, g: Floats) -> Floats:
    """Return x(t): the DP mechanism has loss +ε, and the BR mechanisms continue at both of their
    outcomes.

    Args:
        t: the larger loss of the first BR mechanism.
        e: ε.
        g: ε_g.
    """
    up = _q(t, e) * _one_range_delta((g - t) / 2, e)
    down = (1 - _q(t, e)) * _one_range_delta((g + e - t) / 2, e)
    return _larger_response(e) * (up + down)


def _y(t: float | Floats, e: float, g: Floats) -> Floats:
    """Return y(t): as x(t), where after the larger outcome everything counts.

    Args:
        t: the larger loss of the first BR mechanism.
        e: ε.
        g: ε_g.
    """
    up = -_q(t, e) * np.expm1(g - e - t)
    down = (1 - _q(t, e)) * _one_range_delta((g + e - t) / 2, e)
    return _larger_response(e) * (up + down)


def _z(t: float | Floats, e: float, g: Floats) -> Floats:
    """Return z(t): the DP mechanism has loss -ε, and only the larger outcome of the first BR
    mechanism counts.

    Args:
        t: the larger loss of the first BR mechanism.
        e: ε.
        g: ε_g.
    """
    return (1 - _larger_response(e)) * _q(t, e) * _one_range_delta(e + (g - t) / 2, e)


def _delta_from_epsilon(e: float, g: Floats) -> Floats:
    """Return δ at each ε_g >= ε, where the order of the three makes no difference."""
    y = np.clip(g - e, 0, 2 * e)
    t = (y + e) / 3
    # Each of the two is cut to the ε_g at which it is used.
    below_half = _x(e / 2, e, np.clip(g, e, 1.5 * e))
    from_half = _larger_response(e) * _q(t, e) * _one_range_delta(t, e)
    return np.where(y < e / 2, below_half, from_half)


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
    return EpsilonCurve(lambda log_inverse: outward(mu + np.sqrt(2 * square * log_inverse)))


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
    return EpsilonCurve(lambda log_inverse: outward(xi + rho + 2 * np.sqrt(rho * log_inverse)))
