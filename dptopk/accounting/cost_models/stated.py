"""Costs that are known by their (ε, δ)'s alone, as MultiDP is: the rows of the registry that such types share."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dptopk.accounting.cost_models.implied import pure_row
from dptopk.accounting.cost_models.registry import CostModel, cost_model_of
from dptopk.costs import Cost, MultiDP


def stated_model(
    cost_type: type[Any],
    statements: Callable[[Any], tuple[tuple[float, float], ...]],
    covers: Callable[[Any, Cost], bool],
    *,
    counterpart: str,
) -> CostModel:
    """The model of such a type.

    Args:
        cost_type: the type.
        statements: (ε, δ) by falling ε, all of which hold at once; the δ at the first is that of its atom.
        covers: as in ``CostModel``.
        counterpart: why other libraries have none.
    """

    @lru_cache(maxsize=64)
    def without_failure(cost: Any) -> tuple[Cost | None, float]:
        several = MultiDP(statements(cost))
        split = cost_model_of(several).without_failure
        return split(several) if split else (several, 0.0)

    return CostModel(
        cost_type,
        covers=covers,
        implied=pure_row(lambda cost: statements(cost)[0][0]),  # once its atom is split off
        statements=statements,
        without_failure=without_failure,
        dp_event=counterpart,
        pld=counterpart,
    )
