"""Table of the conversions between privacy notions for each primitive cost; all entries are upper
bounds.

| cost                 | ε-DP | ε-BR | zCDP      | exact ρ        | (μ, τ)-CDP        | source     |
|----------------------|------|------|-----------|----------------|-------------------|------------|
| PureDP(ε)            | ε    | 2ε   | ε²/2      | ε tanh(ε/2)    | ε tanh(ε/2), ε    | BS16 DRV10 |
| BoundedRange(ε)      | ε    | ε    | ε²/8      | maxkl(ε)       | maxkl(ε), ε/2     | DDR, CR    |
| MultiDP, least δ = 0 | ε_1  | 2ε_1 | as PureDP | as PureDP      | as PureDP         |            |
| LaplaceDP            | ε    | 2ε   | ε²/2      | ε - 1 + e^{-ε} | ε - 1 + e^{-ε}, ε | Steinke    |
| GaussianDP(μ)        |      |      | μ²/2      | the same       | μ²/2, μ           | BS16       |
| DiscreteGaussianDP   |      |      | μ²/2      | the same       | μ²/2, μ           | CKS20      |
| ExponentialClockDP   |      |      |           |                |                   | clocks.md  |
| ZCDP(ρ, ξ)           |      |      | itself    | itself         |                   |            |
| CDP(μ, τ)            |      |      | τ²/2      | the same       | itself            | CR         |

A zCDP entry is ρ with ξ = 0; ε of LaplaceDP and μ of DiscreteGaussianDP are shift/scale. The
theorems are BS16 Propositions 1.6 and 3.3, DDR Section 3, CR Section 2 and Lemma 2.2, and
docs/notes/clocks.md. The exact constants are the smallest ρ for which the whole class is ρ-zCDP
(Steinke 2024); docs/notes/zcdp-constants.md has the proof. Every formula is moved outward by
``rounding.SLACK`` or its own error bound.

DDR is Dong-Durfee-Rogers 2020, CR is Cesar-Rogers 2022, BS16 is Bun-Steinke 2016, CKS20 is
Canonne-Kamath-Steinke 2020, DRV10 is Dwork-Rothblum-Vadhan 2010.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from dptopk._internal.rounding import outward, square_up, sum_times
from dptopk.accounting.cost_models.cost_registry import Implied, cost_model_of
from dptopk.costs import Charge, Cost, PureDP
from dptopk.errors import NotApplicable

# Below this, products are rounded absolutely, in the end to 0; there the exact square is rounded
# up.
EXACT_BELOW = 1e-140
DIFFERENCE_SLACK = 1e-12  # relative, above what cancels in ``max_kl`` from ε = 0.1 on
NOTIONS = {"pure": "pure DP", "zcdp": "zCDP", "exact_zcdp": "zCDP", "cdp": "CDP"}


def implications_of(cost: Cost) -> Implied:
    """Return the row of the table for one cost without failure mass (see ``split_failure``)."""
    return cost_model_of(cost).implied


def implied_parameters(cost: Cost, notion: str) -> Any:
    """Return what a cost implies in a notion of privacy, a column of the table.

    Args:
        cost: the cost.
        notion: a field of ``Implied``.

    Returns:
        ε for "pure" and "bounded_range", (ξ, ρ) for "zcdp" and "exact_zcdp", (μ, τ) for "cdp".

    Raises:
        NotApplicable: when it implies nothing.
    """
    convert = getattr(implications_of(cost), notion)
    if convert is None:
        raise NotApplicable(f"{cost} implies no {NOTIONS[notion]}")
    return convert(cost)


def statements(cost: Cost) -> tuple[tuple[float, float], ...]:
    """Return pairs (ε, δ) for which the cost is known to imply (ε, δ)-DP; ε may be inf."""
    by_definition = cost_model_of(cost).statements
    if by_definition:
        return by_definition(cost)
    return ((_pure(cost), 0.0),)


def _pure(cost: Cost) -> float:
    """Return the ε for which the cost implies ε-DP by the table; inf where it implies none."""
    pure = implications_of(cost).pure
    if pure:
        return pure(cost)
    return math.inf


def is_approx(cost: Cost, epsilon: float, delta: float) -> bool:
    """Return whether one of the cost's statements has at most this ε and at most this δ, so that
    the cost is (ε, δ)-DP.

    Args:
        cost: the cost.
        epsilon: ε >= 0.
        delta: δ in [0, 1).
    """
    return any(e <= epsilon and d <= delta for e, d in statements(cost))


def pure_of(cost: Cost) -> float:
    """Return the smallest ε for which the cost is known to imply ε-DP; inf where it
    implies none.
    """
    return min((epsilon for epsilon, delta in statements(cost) if delta == 0), default=math.inf)


def cost_with_row(cost: Cost) -> Cost | None:
    """Return a cost that this one implies and that has a row of the table; None where there is
    none.

    A cost that is known by its statements (ε, δ) has no row of its own: PureDP of its smallest ε at
    δ = 0 stands for it.
    """
    has_row = cost_model_of(cost).statements is None
    if has_row:
        return cost
    epsilon = pure_of(cost)
    if 0 < epsilon < math.inf:
        return PureDP(epsilon)
    return None


def pure_epsilons(charge: Charge) -> dict[float, int]:
    """Return the distinct ε's, with counts, of a charge in which every cost implies ε-DP.

    Raises:
        NotApplicable: when a cost implies no pure DP.
    """
    epsilons: Counter[float] = Counter()
    for cost, times in charge:
        epsilons[implied_parameters(cost, "pure")] += times
    return dict(epsilons)


def pure_sum(costs: Iterable[tuple[Cost, int]]) -> float:
    """Return the sum of the ε's, rounded up, when every cost implies pure DP; inf otherwise.

    Args:
        costs: each cost with its multiplicity, as a Charge yields them.
    """
    pures = [(_pure(cost), times) for cost, times in costs]
    return sum_times(pures)


def max_kl(epsilon: float) -> float:
    """Return the largest mean loss of an ε-BR mechanism, y - 1 - ln y with y = ε/(e^ε - 1); exact
    to rounding, moved up.

    It is at most ε²/8 (DDR Corollary 3.1), and it is also the smallest ρ for which all ε-BR
    mechanisms are ρ-zCDP.
    """
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 8)
    if epsilon < 0.1:
        # The closed form would cancel here. The terms of the series alternate and fall, so that
        # ending it with a positive one makes it too large.
        series = epsilon**2 / 8 - epsilon**4 / 576 + epsilon**6 / 25920
        return float(outward(series))
    log_y = math.log(epsilon) - epsilon - math.log(-math.expm1(-epsilon))
    return float(outward(math.expm1(log_y) - log_y, DIFFERENCE_SLACK))


def response_mean_loss(epsilon: float) -> float:
    """Return the largest mean loss under ε-DP, that of randomised response: ε tanh(ε/2),
    moved up.
    """
    if epsilon < EXACT_BELOW:
        return square_up(epsilon, 2)
    return float(outward(epsilon * math.tanh(epsilon / 2)))


def pure_row(
    epsilon: Callable[[Any], float], mean_loss: Callable[[Any], float] | None = None
) -> Implied:
    """Return the implications of ε-DP for a type of cost that implies ε-DP.

    Args:
        epsilon: maps a cost to its ε.
        mean_loss: maps a cost to the mean loss of its law, where that is known; else that of
            randomised response.
    """

    def mean(cost: Cost) -> float:
        """Return an upper bound on the mean loss of a mechanism with this cost."""
        if mean_loss is None:
            return response_mean_loss(epsilon(cost))
        return mean_loss(cost)

    return Implied(
        pure=epsilon,
        bounded_range=lambda cost: 2 * epsilon(cost),
        zcdp=lambda cost: (0.0, square_up(epsilon(cost), 2)),
        exact_zcdp=lambda cost: (0.0, mean(cost)),
        cdp=lambda cost: (mean(cost), epsilon(cost)),
    )


def gaussian_row(zcdp: Callable[[Any], tuple[float, float]], mu: Callable[[Any], float]) -> Implied:
    """Return the implications of Gaussian noise.

    Args:
        zcdp: maps a cost to (0, μ²/2).
        mu: maps a cost to μ, the number of standard deviations by which the data move.
    """

    def cdp(cost: Cost) -> tuple[float, float]:
        """Return the mean loss, which is ρ, and μ."""
        _, rho = zcdp(cost)
        return rho, mu(cost)

    return Implied(zcdp=zcdp, exact_zcdp=zcdp, cdp=cdp)
