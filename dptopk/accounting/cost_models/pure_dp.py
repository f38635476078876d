"""ε-DP, (ε, δ)-DP and several (ε, δ) at once; models of other costs that are known by their (ε,
δ)'s alone.

ε-DP: the loss lies in [-ε, ε], its pair is randomised response (Kairouz-Oh-Viswanath 2017). (ε,
δ)-DP: ruined with probability δ, independently of all else, and ε-DP otherwise (their four-outcome
pair). Several (ε_i, δ_i): a mixture of randomised responses with an atom (Cadir-Najib-Shkel 2026).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dptopk.accounting.cost_models.conversions import is_approx, pure_of, pure_row
from dptopk.accounting.cost_models.cost_registry import CostModel
from dptopk.accounting.cost_models.counterparts import event, stated_distribution
from dptopk.accounting.pld.log_mgf import (
    each_log_mgf,
    mixture_log_mgf,
    pure_dp_log_mgf,
    summed_log_mgf,
)
from dptopk.accounting.pld.loss_components import Responses, SeveralConstraints
from dptopk.costs import ApproxDP, Cost, MultiDP, PureDP

# Costs whose atom stays split off; that takes time, as a cost may have hundreds of constraints.
CACHED_COSTS = 256
THREE_ROUNDINGS = 4e-16  # of two differences and a quotient, relative: the differences are of δ's


@lru_cache(maxsize=CACHED_COSTS)
def _without_failure(cost: MultiDP) -> tuple[Cost | None, float]:
    """Return what is left of a cost without its atom at infinity (None: nothing), and the atom.

    δ_i = a + (1 - a) δ_i' with the common atom a, the least of the δ_i.
    """
    atom = min([delta for _, delta in cost.constraints])
    # δ' = (δ - a) / (1 - a), rounded up; the largest ε that reaches the atom keeps δ' = 0.
    reduced = []
    for epsilon, delta in cost.constraints:
        conditional = 0.0
        if delta > atom:
            conditional = min((delta - atom) / (1 - atom) * (1 + THREE_ROUNDINGS), delta)
        reduced.append((epsilon, conditional))
    if (0.0, 0.0) in reduced:  # (0, 0)-DP: nothing is left
        return None, atom
    if len(reduced) == 1:
        epsilon, _ = reduced[0]
        return PureDP(epsilon), atom
    return MultiDP(tuple(reduced)), atom


_PURE_MODEL = CostModel(
    PureDP,
    covers=lambda token, cost: pure_of(cost) <= token.epsilon,
    implied=pure_row(lambda cost: cost.epsilon),
    log_mgf=lambda costs: summed_log_mgf(
        {cost.epsilon: times for cost, times in costs.items()}, pure_dp_log_mgf
    ),
    loss_components=lambda costs: [
        Responses({cost.epsilon: times for cost, times in costs.items()})
    ],
    family=lambda cost: (PureDP, cost.epsilon),
    dp_event=event("DiscreteLaplaceDpEvent", lambda cost: (cost.epsilon, 1)),
    pld=lambda cost, interval: stated_distribution(cost.epsilon, 0.0, interval),
)
_APPROX_MODEL = CostModel(
    ApproxDP,
    covers=lambda token, cost: is_approx(cost, token.epsilon, token.delta),
    implied=pure_row(lambda cost: cost.epsilon),  # once its atom is split off
    statements=lambda cost: ((cost.epsilon, cost.delta),),
    without_failure=lambda cost: (
        (PureDP(cost.epsilon) if cost.epsilon > 0 else None),
        cost.delta,
    ),
    pld=lambda cost, interval: stated_distribution(cost.epsilon, cost.delta, interval),
    no_counterpart="there is no event for (ε, δ)-DP; to_pld takes it",
)
_MULTI_MODEL = CostModel(
    MultiDP,
    covers=lambda token, cost: all(
        is_approx(cost, *constraint) for constraint in token.constraints
    ),
    implied=pure_row(lambda cost: cost.constraints[0][0]),  # once its atom is split off
    statements=lambda cost: cost.constraints,
    without_failure=_without_failure,
    log_mgf=each_log_mgf(mixture_log_mgf),
    loss_components=lambda costs: [
        SeveralConstraints(cost, times) for cost, times in costs.items()
    ],
    no_counterpart="several (ε, δ) at once have no counterpart",
)
MODELS = (_PURE_MODEL, _APPROX_MODEL, _MULTI_MODEL)


def stated_model(
    cost_type: type[Any],
    statements: Callable[[Any], tuple[tuple[float, float], ...]],
    covers: Callable[[Any, Cost], bool],
    *,
    no_counterpart: str,
) -> CostModel:
    """Return the model of a type of cost that is known by its (ε, δ)'s alone, as MultiDP is.

    Args:
        cost_type: the type.
        statements: (ε, δ) by falling ε, all of which hold at once; the δ at the first is that of
            its atom.
        covers: as in ``CostModel``.
        no_counterpart: as in ``CostModel``.
    """

    def largest_epsilon(cost: Cost) -> float:
        """Return the ε of the first statement, which is pure once its atom is split off."""
        epsilon, _ = statements(cost)[0]
        return epsilon

    @lru_cache(maxsize=64)
    def without_failure(cost: Cost) -> tuple[Cost | None, float]:
        """Return what is left of the cost without its atom, and the atom."""
        return _without_failure(MultiDP(statements(cost)))

    return CostModel(
        cost_type,
        covers=covers,
        implied=pure_row(largest_epsilon),
        statements=statements,
        without_failure=without_failure,
        no_counterpart=no_counterpart,
    )
