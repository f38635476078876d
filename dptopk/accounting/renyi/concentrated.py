"""Composition through concentrated DP: sums of zCDP and CDP parameters.

CR is Cesar-Rogers 2022, BS16 is Bun-Steinke 2016, CKS20 is Canonne-Kamath-Steinke 2020.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import Floats, outward, sum_times
from dptopk.accounting.cost_models.conversions import implied_parameters
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Curve
from dptopk.accounting.pld.log_mgf import ChernoffCurve
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.renyi_curves import renyi_curve
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter

ROUNDING = 4e-13  # relative, far above that of two roots, a quotient and a square


def zcdp_total(charge: Charge, *, exact: bool = False) -> tuple[float, float]:
    """Return (ξ, ρ) of everything in a charge without failure mass: sums, rounded up.

    Args:
        charge: the costs.
        exact: use the smallest ρ of each class (docs/notes/zcdp-constants.md) instead of the
            published ε²/8 and ε²/2.

    Raises:
        NotApplicable: when a cost implies no zCDP.

    >>> from dptopk.costs import ZCDP, BoundedRange
    >>> zcdp_total(Charge({BoundedRange(0.2): 4, ZCDP(0.5): 1}))[1].__round__(9)
    0.52
    """
    terms = [
        (*implied_parameters(cost, "exact_zcdp" if exact else "zcdp"), times)
        for cost, times in charge
    ]
    xi = sum_times((xi, times) for xi, _, times in terms)
    return xi, sum_times((rho, times) for _, rho, times in terms)


def zcdp_epsilon(rho: ArrayLike, xi: ArrayLike = 0.0, *, delta: ArrayLike) -> Floats:
    """Return ε = ξ + ρ + 2 sqrt(ρ ln(1/δ)) of a (ξ, ρ)-zCDP mechanism (BS16 Prop. 1.3, CR Lemma
    2.3), rounded up: an upper bound.

    Args:
        rho: ρ >= 0; all three are arrays whose shapes broadcast.
        xi: ξ >= 0.
        delta: δ in (0, 1).

    Returns:
        ε, float64, of the broadcast shape.

    Raises:
        InvalidParameter: for numbers outside these ranges.

    >>> float(zcdp_epsilon(100 * 0.1**2 / 8, delta=1e-6).round(3))
    2.753
    """
    rho = validate.nonnegatives(rho=rho)
    xi = validate.nonnegatives(xi=xi)
    delta = validate.probabilities(delta=delta)
    if (delta == 0).any():
        raise InvalidParameter("delta must be in (0, 1), got 0.0")
    # The least of ξ + ρα + ln(1/δ)/(α - 1), at α = 1 + sqrt(ln(1/δ)/ρ). The root of a product that
    # underflows would be too small: roots of floats are normal, and so is their product.
    spread = np.sqrt(rho) * np.sqrt(-np.log(delta))
    return np.asarray(outward(xi + rho + 2 * spread))


def zcdp_curve(rho: float, xi: float = 0.0) -> ChernoffCurve:
    """Return the curve of upper bounds for a (ξ, ρ)-zCDP mechanism by the conversion of CKS20
    (Proposition 12), minimised over the order.

    Args:
        rho: ρ >= 0, finite.
        xi: ξ >= 0, finite.

    Raises:
        InvalidParameter: for numbers outside these ranges.

    >>> float(zcdp_curve(100 * 0.1**2 / 8).epsilon(1e-6).round(3))
    2.419
    """
    return _curve_of_total(validate.nonnegative(rho=rho), validate.nonnegative(xi=xi))


def _curve_of_total(rho: float, xi: float) -> ChernoffCurve:
    """Return the curve of ``zcdp_curve``; where a sum overflowed to inf, so does every ε."""
    # ln E[e^{λL}] = λ D_{1+λ} <= λ (ξ + ρ (1 + λ)).
    return renyi_curve(lambda lam: lam * (xi + rho * (1 + lam)))


def zcdp_rho(*, epsilon: float, delta: float) -> float:
    """Return the largest ρ for which ρ-zCDP implies (ε, δ)-DP by ρ + 2 sqrt(ρ ln(1/δ)) = ε (BS16
    Prop. 1.3), rounded down.

    Args:
        epsilon: > 0.
        delta: in (0, 1).

    Raises:
        InvalidParameter: for numbers outside these ranges.

    >>> round((25 / (2 * zcdp_rho(epsilon=2.07906, delta=1e-6))) ** 0.5, 2)
    13.1
    """
    epsilon = validate.positive(epsilon=epsilon)
    log_inverse = -np.log(validate.probability(delta=delta, allow_zero=False))
    # sqrt(ρ) = sqrt(L + ε) - sqrt(L), without cancellation.
    roots = np.sqrt(log_inverse + epsilon) + np.sqrt(log_inverse)
    return float((epsilon / roots) ** 2 * (1 - ROUNDING))


@bound(
    "zcdp_tight",
    source="CKS20 Prop. 12 at the best order; exact zCDP constants",
    takes=types_with("zcdp"),
    valid_through="filter",
    better="renyi",
)
def zcdp_tight(charge: Charge) -> Curve:
    """Bound all costs by their summed (ξ, ρ), each ρ the smallest of its class, through the
    conversion of CKS20.

    Raises:
        NotApplicable: when a cost implies no zCDP.
    """
    xi, rho = zcdp_total(charge, exact=True)
    return _curve_of_total(rho, xi)
