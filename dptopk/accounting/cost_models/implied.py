"""Implications of a cost in other notions, and rows of ``conversions`` that several types of cost share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dptopk._internal.rounding import outward, square_up

EXACT_BELOW = 1e-140  # below, products are rounded absolutely, to 0 at last: there the exact square is rounded up


def max_kl(epsilon: float) -> float:
    """Largest mean loss of an ε-BR mechanism, y - 1 - ln y with y = ε/(e^ε - 1); exact to rounding, moved up.

    At most ε²/8 (DDR Corollary 3.1). It is also the smallest ρ for which all ε-BR mechanisms are ρ-zCDP.
    """
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 8)
    if epsilon < 0.1:  # the closed form cancels; truncated after a negative term the series is too large
        series = epsilon**2 / 8 - epsilon**4 / 576 + epsilon**6 / 25920
        return float(outward(series))
    log_y = math.log(epsilon) - epsilon - math.log(-math.expm1(-epsilon))
    return float(outward(math.expm1(log_y) - log_y, 1e-12))


@dataclass(frozen=True, slots=True)
class Implied:
    """The implications of one type of cost; None if nothing is known (or the class has no finite bound)."""

    pure: Callable[[Any], float] | None = None
    bounded_range: Callable[[Any], float] | None = None
    zcdp: Callable[[Any], tuple[float, float]] | None = None  # (ξ, ρ), the published constants
    exact_zcdp: Callable[[Any], tuple[float, float]] | None = None  # (ξ, ρ), the smallest ρ
    cdp: Callable[[Any], tuple[float, float]] | None = None  # (μ, τ)


def response_mean_loss(epsilon: float) -> float:
    """The largest mean loss under ε-DP, that of randomised response: ε tanh(ε/2), moved up."""
    return square_up(epsilon, 2) if epsilon < EXACT_BELOW else float(outward(epsilon * math.tanh(epsilon / 2)))


def pure_row(epsilon: Callable[[Any], float], mean_loss: Callable[[Any], float] | None = None) -> Implied:
    """The implications of ε-DP for a type of cost that implies ε(cost)-DP; ``mean_loss``: of its law, if known."""
    mean_loss = mean_loss or (lambda cost: response_mean_loss(epsilon(cost)))
    return Implied(
        pure=epsilon,
        bounded_range=lambda cost: 2 * epsilon(cost),
        zcdp=lambda cost: (0.0, square_up(epsilon(cost), 2)),
        exact_zcdp=lambda cost: (0.0, mean_loss(cost)),
        cdp=lambda cost: (mean_loss(cost), epsilon(cost)),
    )


def gaussian_row(zcdp: Callable[[Any], tuple[float, float]], mu: Callable[[Any], float]) -> Implied:
    """Return the implications of Gaussian noise for data that move by ``mu`` standard deviations."""
    return Implied(zcdp=zcdp, exact_zcdp=zcdp, cdp=lambda cost: (zcdp(cost)[1], mu(cost)))
