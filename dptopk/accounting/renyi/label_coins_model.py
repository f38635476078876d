"""Labels shown by coins: a cost that is known by its (ε, δ)'s."""

from __future__ import annotations

from dptopk.accounting.cost_models.pure_dp import stated_model
from dptopk.accounting.renyi.label_coins import label_coins_statements
from dptopk.costs import Cost, LabelCoinsDP


def _statements(cost: LabelCoinsDP) -> tuple[tuple[float, float], ...]:
    return label_coins_statements(cost.order, cost.divergence, cost.first, cost.labels)


def _covers(token: LabelCoinsDP, cost: Cost) -> bool:
    """The same coin for fewer labels."""
    return (
        isinstance(cost, LabelCoinsDP)
        and (cost.order, cost.divergence, cost.first) == (token.order, token.divergence, token.first)
        and cost.labels <= token.labels
    )


MODELS = (stated_model(LabelCoinsDP, _statements, _covers, no_counterpart="labels without counts have no counterpart"),)
