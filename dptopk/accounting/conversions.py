"""What each primitive cost implies in every other notion, as one table; all entries are upper bounds.

| cost                 | ε-DP | ε-BR | (ξ, ρ)-zCDP         | exact ρ        | (μ, τ)-CDP       | source                |
|----------------------|------|------|---------------------|----------------|------------------|-----------------------|
| PureDP(ε)            | ε    | 2ε   | 0, ε²/2             | ε tanh(ε/2)    | ε tanh(ε/2), ε   | BS16 Prop. 3.3; DRV10 |
| BoundedRange(ε)      | ε    | ε    | 0, ε²/8             | maxkl(ε)       | maxkl(ε), ε/2    | DDR Section 3; CR 2   |
| MultiDP, largest δ=0 | ε_1  | 2ε_1 | as PureDP(ε_1)      | as PureDP(ε_1) | as PureDP(ε_1)   |                       |
| GaussianDP(μ)        |      |      | 0, μ²/2             | the same       | μ²/2, μ          | BS16 Prop. 1.6        |
| DiscreteGaussianDP   |      |      | 0, (shift/scale)²/2 | the same       | as μ=shift/scale | CKS20                 |
| ZCDP(ρ, ξ)           |      |      | itself              | itself         |                  |                       |
| CDP(μ, τ)            |      |      | (μ - τ²/2)_+, τ²/2  | the same       | itself           | CR Lemma 2.2          |

The exact constants are the smallest ρ for which the whole class is ρ-zCDP; docs/zcdp-constants.md has the proof.
Every formula is moved outward by ``curves.SLACK`` or its own error bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dptopk.accounting.curves import outward
from dptopk.costs import (
    CDP,
    ZCDP,
    BoundedRange,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)

__all__ = ["Implied", "implied", "max_kl"]


def max_kl(epsilon: float) -> float:
    """Largest mean loss of an ε-BR mechanism, y - 1 - ln y with y = ε/(e^ε - 1); exact to rounding, moved up.

    At most ε²/8 (DDR Corollary 3.1). It is also the smallest ρ for which all ε-BR mechanisms are ρ-zCDP.
    """
    if epsilon < 0.1:  # the closed form cancels; truncated after a negative term the series is too large
        series = epsilon**2 / 8 - epsilon**4 / 576 + epsilon**6 / 25920
        return _up(series)
    log_y = math.log(epsilon) - epsilon - math.log(-math.expm1(-epsilon))
    return float(outward(math.expm1(log_y) - log_y, 1e-12))


@dataclass(frozen=True, slots=True)
class Implied:
    """What a cost of one type implies; None where nothing is known (or the class has no finite bound)."""

    pure: Callable[[Any], float] | None = None
    bounded_range: Callable[[Any], float] | None = None
    zcdp: Callable[[Any], tuple[float, float]] | None = None  # (ξ, ρ), the published constants
    exact_zcdp: Callable[[Any], tuple[float, float]] | None = None  # (ξ, ρ), the smallest ρ
    cdp: Callable[[Any], tuple[float, float]] | None = None  # (μ, τ)


def _up(value: float) -> float:
    """A positive value moved up; an underflow to 0 becomes the smallest float."""
    return max(float(outward(value)), math.ulp(0.0))


def _square(value: float, divisor: float) -> float:
    return _up(value * value / divisor)  # value**2 would raise where the square overflows to inf


def _pure(epsilon: Callable[[Any], float]) -> Implied:
    def mean_loss(cost: Any) -> float:
        return _up(epsilon(cost) * math.tanh(epsilon(cost) / 2))

    return Implied(
        pure=epsilon,
        bounded_range=lambda cost: 2 * epsilon(cost),
        zcdp=lambda cost: (0.0, _square(epsilon(cost), 2)),
        exact_zcdp=lambda cost: (0.0, mean_loss(cost)),
        cdp=lambda cost: (mean_loss(cost), epsilon(cost)),
    )


def _gaussian(mu: Callable[[Any], float]) -> Implied:
    def zcdp(cost: Any) -> tuple[float, float]:
        return 0.0, _square(mu(cost), 2)

    return Implied(zcdp=zcdp, exact_zcdp=zcdp, cdp=lambda cost: (zcdp(cost)[1], mu(cost)))


def _itself(cost: ZCDP) -> tuple[float, float]:
    return cost.xi, cost.rho


def _zcdp_of_cdp(cost: CDP) -> tuple[float, float]:
    rho = _square(cost.tau, 2)
    xi = float(outward(cost.mu)) - rho * (1 - 1e-12)
    return (max(0.0, xi) if math.isfinite(rho) else 0.0), rho


_IMPLIED: dict[type[Cost], Implied] = {
    PureDP: _pure(lambda cost: cost.epsilon),
    MultiDP: _pure(lambda cost: cost.constraints[0][0]),
    BoundedRange: Implied(
        pure=lambda cost: cost.epsilon,
        bounded_range=lambda cost: cost.epsilon,
        zcdp=lambda cost: (0.0, _square(cost.epsilon, 8)),
        exact_zcdp=lambda cost: (0.0, max_kl(cost.epsilon)),
        cdp=lambda cost: (max_kl(cost.epsilon), cost.epsilon / 2),
    ),
    GaussianDP: _gaussian(lambda cost: cost.mu),
    DiscreteGaussianDP: _gaussian(lambda cost: _up(cost.shift / cost.scale)),
    ZCDP: Implied(zcdp=_itself, exact_zcdp=_itself),
    CDP: Implied(zcdp=_zcdp_of_cdp, exact_zcdp=_zcdp_of_cdp, cdp=lambda cost: (cost.mu, cost.tau)),
}


def implied(cost: Cost) -> Implied:
    """The row of the table for one cost (a cost without failure mass: see ``bounds.split_failure``)."""
    return _IMPLIED[type(cost)]
