"""What each primitive cost implies in every other notion, as one table; all entries are upper bounds.

| cost                 | ε-DP | ε-BR | (ξ, ρ)-zCDP          | (μ, τ)-CDP       | source                  |
|----------------------|------|------|----------------------|------------------|-------------------------|
| PureDP(ε)            | ε    | 2ε   | 0, ε²/2              | ε tanh(ε/2), ε   | BS16 Prop. 3.3; DRV10   |
| BoundedRange(ε)      | ε    | ε    | 0, ε²/8              | maxkl(ε), ε/2    | DDR Section 3; CR 2     |
| MultiDP, largest δ=0 | ε_1  | 2ε_1 | as PureDP(ε_1)       | as PureDP(ε_1)   |                         |
| GaussianDP(μ)        |      |      | 0, μ²/2              | μ²/2, μ          | BS16 Prop. 1.6          |
| DiscreteGaussianDP   |      |      | 0, shift²/(2 scale²) |                  | CKS20                   |
| ZCDP(ρ, ξ)           |      |      | itself               |                  |                         |
| CDP(μ, τ)            |      |      | (μ - τ²/2)_+, τ²/2   | itself           | CR Lemma 2.2            |

Every formula is moved outward by ``curves.SLACK``.
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

    At most ε²/8 (DDR Corollary 3.1).
    """
    if epsilon < 0.1:  # the closed form cancels; truncated after a negative term the series is too large
        series = epsilon**2 / 8 - epsilon**4 / 576 + epsilon**6 / 25920
        return float(outward(series))
    log_y = math.log(epsilon) - epsilon - math.log(-math.expm1(-epsilon))
    return float(outward(math.expm1(log_y) - log_y, 1e-12))


@dataclass(frozen=True, slots=True)
class Implied:
    """What a cost of one type implies; None where nothing is known (or the class has no finite bound)."""

    pure: Callable[[Any], float] | None = None
    bounded_range: Callable[[Any], float] | None = None
    zcdp: Callable[[Any], tuple[float, float]] | None = None  # (ξ, ρ)
    cdp: Callable[[Any], tuple[float, float]] | None = None  # (μ, τ)


def _pure(epsilon: Callable[[Any], float]) -> Implied:
    return Implied(
        pure=epsilon,
        bounded_range=lambda cost: 2 * epsilon(cost),
        zcdp=lambda cost: (0.0, float(outward(epsilon(cost) ** 2 / 2))),
        cdp=lambda cost: (float(outward(epsilon(cost) * math.tanh(epsilon(cost) / 2))), epsilon(cost)),
    )


_IMPLIED: dict[type[Cost], Implied] = {
    PureDP: _pure(lambda cost: cost.epsilon),
    MultiDP: _pure(lambda cost: cost.constraints[0][0]),
    BoundedRange: Implied(
        pure=lambda cost: cost.epsilon,
        bounded_range=lambda cost: cost.epsilon,
        zcdp=lambda cost: (0.0, float(outward(cost.epsilon**2 / 8))),
        cdp=lambda cost: (max_kl(cost.epsilon), cost.epsilon / 2),
    ),
    GaussianDP: Implied(
        zcdp=lambda cost: (0.0, float(outward(cost.mu**2 / 2))),
        cdp=lambda cost: (float(outward(cost.mu**2 / 2)), cost.mu),
    ),
    DiscreteGaussianDP: Implied(zcdp=lambda cost: (0.0, float(outward((cost.shift / cost.scale) ** 2 / 2)))),
    ZCDP: Implied(zcdp=lambda cost: (cost.xi, cost.rho)),
    CDP: Implied(
        zcdp=lambda cost: (max(0.0, float(outward(cost.mu)) - cost.tau**2 / 2 * (1 - 1e-15)), cost.tau**2 / 2),
        cdp=lambda cost: (cost.mu, cost.tau),
    ),
}


def implied(cost: Cost) -> Implied:
    """The row of the table for one cost (a cost without failure mass: see ``bounds.split_failure``)."""
    return _IMPLIED[type(cost)]
