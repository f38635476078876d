"""Discrete Gaussian noise over a threshold: a cost that is known by its (ε, δ)'s, as MultiDP is."""

from __future__ import annotations

from dptopk.accounting.cost_models.pure_dp import stated_model
from dptopk.accounting.gaussian.sparse import sparse_gaussian_statements
from dptopk.costs import Cost, DiscreteGaussianDP, SparseGaussianDP
from dptopk.errors import InvalidParameter


def _statements(cost: SparseGaussianDP) -> tuple[tuple[float, float], ...]:
    """Return the informative statements: with little noise δ rounds up to 1 at small ε.

    Raises:
        InvalidParameter: where none says anything.
    """
    every = sparse_gaussian_statements(cost.scale, cost.shift, cost.threshold, cost.labels)
    told = tuple((epsilon, delta) for epsilon, delta in every if delta < 1)
    if not told:
        raise InvalidParameter(
            f"{cost} promises nothing: a label that one user alone has is almost always shown; give a higher threshold"
        )
    return told


def _covers(token: SparseGaussianDP, cost: Cost) -> bool:
    """Fewer labels, smaller moves, or a higher threshold; and one count of the same noise."""
    if isinstance(cost, DiscreteGaussianDP):
        return cost.scale == token.scale and cost.shift <= token.shift
    return (
        isinstance(cost, SparseGaussianDP)
        and cost.scale == token.scale
        and cost.shift <= token.shift
        and cost.labels <= token.labels
        and cost.threshold - cost.shift >= token.threshold - token.shift
    )


MODELS = (
    stated_model(SparseGaussianDP, _statements, _covers, no_counterpart="thresholded counts have no counterpart"),
)
