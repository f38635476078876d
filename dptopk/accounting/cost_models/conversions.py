"""Table of the conversions between privacy notions for each primitive cost; all entries are upper
bounds.

| cost                 | ε-DP | ε-BR | (ξ, ρ)-zCDP         | exact ρ        | (μ, τ)-CDP       |
source                |
|---|---|---|---|---|---|---|
| PureDP(ε)            | ε    | 2ε   | 0, ε²/2             | ε tanh(ε/2)    | ε tanh(ε/2), ε   |
BS16 Prop. 3.3; DRV10 |
| BoundedRange(ε)      | ε    | ε    | 0, ε²/8             | maxkl(ε)       | maxkl(ε), ε/2    |
DDR Section 3; CR 2   |
| MultiDP, largest δ=0 | ε_1  | 2ε_1 | as PureDP(ε_1)      | as PureDP(ε_1) | as PureDP(ε_1)   |
|
| LaplaceDP, ε=shift/scale | ε | 2ε | 0, ε²/2         | ε - 1 + e^{-ε} | ε - 1 + e^{-ε}, ε |
Steinke 2024          |
| GaussianDP(μ)        |      |      | 0, μ²/2             | the same       | μ²/2, μ          |
BS16 Prop. 1.6        |
| DiscreteGaussianDP   |      |      | 0, (shift/scale)²/2 | the same       | as μ=shift/scale |
CKS20                 |
| ExponentialClockDP   |      |      |                     |                |                  |
docs/notes/clocks.md  |
| ZCDP(ρ, ξ)           |      |      | itself              | itself         |                  |
|
| CDP(μ, τ)            |      |      | 0, τ²/2             | the same       | itself           |
CR Lemma 2.2          |

The exact constants are the smallest ρ for which the whole class is ρ-zCDP;
docs/notes/zcdp-constants.md has the proof. Every formula is moved outward by ``rounding.SLACK`` or
its own error bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from dptopk._internal.rounding import outward, square_up, sum_times
from dptopk.accounting.cost_models.cost_registry import Implied, cost_model_of
from dptopk.costs import Charge, Cost, PureDP
from dptopk.errors import NotApplicable

# below, products are rounded absolutely, to 0 at last: there the exact square is rounded up
EXACT_BELOW = 1e-140
NOTIONS = {"pure": "pure DP", "zcdp": "zCDP", "exact_zcdp": "zCDP", "cdp": "CDP"}


def implied(cost: Cost) -> Implied:
    """The row of the table for one cost (a cost without failure mass: see
    ``registry.split_failure``).
    """
    return cost_model_of(cost).implied


def converted(cost: Cost, notion: str) -> Any:
    """Return what a cost implies in a notion, a column of the table named as in ``Implied``.

    Raises:
        NotApplicable: when it implies nothing.
    """
    convert = getattr(implied(cost), notion)
    if convert is None:
        raise NotApplicable(f"{cost} implies no {NOTIONS[notion]}")
    return convert(cost)


def statements(cost: Cost) -> tuple[tuple[float, float], ...]:
    """Pairs (ε, δ) for which the cost is known to imply (ε, δ)-DP; ε may be inf."""
    listed = cost_model_of(cost).statements
    if listed:
        return listed(cost)
    return ((_pure(cost), 0.0),)


def _pure(cost: Cost) -> float:
    pure = implied(cost).pure
    if pure:
        return pure(cost)
    return math.inf


def is_approx(cost: Cost, epsilon: float, delta: float) -> bool:
    """Whether the cost is stated to be (ε, δ)-DP."""
    return any(e <= epsilon and d <= delta for e, d in statements(cost))


def pure_of(cost: Cost) -> float:
    """The smallest ε for which the cost is known to imply ε-DP, inf when none is."""
    return min((epsilon for epsilon, delta in statements(cost) if delta == 0), default=math.inf)


def plain(cost: Cost) -> Cost | None:
    """A cost that this one implies and whose row of the table holds for it as it stands; None when
    there is none.

    A cost that is known by its (ε, δ)'s is taken as ε-DP.
    """
    if cost_model_of(cost).statements is None:
        return cost
    epsilon = pure_of(cost)
    if 0 < epsilon < math.inf:
        return PureDP(epsilon)
    return None


def pure_epsilons(charge: Charge) -> dict[float, int]:
    """The distinct ε's, with counts, of a charge in which every cost implies ε-DP.

    Raises:
        NotApplicable: when a cost implies no pure DP.
    """
    epsilons: Counter[float] = Counter()
    for cost, times in charge:
        epsilons[converted(cost, "pure")] += times
    return dict(epsilons)


def pure_sum(charge: Charge) -> float:
    """Sum of the ε's when every cost implies pure DP, else inf."""
    pures = [(_pure(cost), times) for cost, times in charge]
    return sum_times(pures)


def max_kl(epsilon: float) -> float:
    """Largest mean loss of an ε-BR mechanism, y - 1 - ln y with y = ε/(e^ε - 1); exact to rounding,
    moved up.

    At most ε²/8 (DDR Corollary 3.1). It is also the smallest ρ for which all ε-BR mechanisms are
    ρ-zCDP.
    """
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 8)
    if (
        epsilon < 0.1
    ):  # the closed form cancels; truncated after a negative term the series is too large
        series = epsilon**2 / 8 - epsilon**4 / 576 + epsilon**6 / 25920
        return float(outward(series))
    log_y = math.log(epsilon) - epsilon - math.log(-math.expm1(-epsilon))
    return float(outward(math.expm1(log_y) - log_y, 1e-12))


def response_mean_loss(epsilon: float) -> float:
    """The largest mean loss under ε-DP, that of randomised response: ε tanh(ε/2), moved up."""
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 2)
    return float(outward(epsilon * math.tanh(epsilon / 2)))


def pure_row(
    epsilon: Callable[[Any], float], mean_loss: Callable[[Any], float] | None = None
) -> Implied:
    """The implications of ε-DP for a type of cost that implies ε(cost)-DP; ``mean_loss``: of its
    law, if known.
    """
    mean_loss = mean_loss or (lambda cost: response_mean_loss(epsilon(cost)))
    return Implied(
        pure=epsilon,
        bounded_range=lambda cost: 2 * epsilon(cost),
        zcdp=lambda cost: (0.0, square_up(epsilon(cost), 2)),
        exact_zcdp=lambda cost: (0.0, mean_loss(cost)),
        cdp=lambda cost: (mean_loss(cost), epsilon(cost)),
    )


def gaussian_row(zcdp: Callable[[Any], tuple[float, float]], mu: Callable[[Any], float]) -> Implied:
    """Return the implications of Gaussian noise for data that move by ``mu`` standard
    deviations.
    """
    return Implied(zcdp=zcdp, exact_zcdp=zcdp, cdp=lambda cost: (zcdp(cost)[1], mu(cost)))
