"""Discrete Gaussian noise over a threshold: a cost that is known by its (ε, δ)'s, as MultiDP is."""

from __future__ import annotations

from functools import lru_cache

from dptopk.accounting.gaussian.sparse import sparse_gaussian_statements
from dptopk.accounting.kinds.implied import pure_row
from dptopk.accounting.kinds.registry import Kind, kind_of, register
from dptopk.costs import Cost, DiscreteGaussianDP, MultiDP, SparseGaussianDP
from dptopk.errors import InvalidParameter

_NONE = "thresholded counts have no counterpart"


def _statements(cost: SparseGaussianDP) -> tuple[tuple[float, float], ...]:
    """Those that say anything: with little noise δ rounds up to 1 where ε is small.

    Raises:
        InvalidParameter: where none says anything.
    """
    every = sparse_gaussian_statements(cost.scale, cost.shift, cost.threshold, cost.labels)
    told = tuple((epsilon, delta) for epsilon, delta in every if delta < 1)
    if not told:
        raise InvalidParameter(
            f"{cost} promises nothing: a label that one user alone has is shown almost surely; give a higher threshold"
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


@lru_cache(maxsize=64)
def _without_failure(cost: SparseGaussianDP) -> tuple[Cost | None, float]:
    several = MultiDP(_statements(cost))
    split = kind_of(several).without_failure
    return split(several) if split else (several, 0.0)


register(
    Kind(
        SparseGaussianDP,
        covers=_covers,
        implied=pure_row(lambda cost: _statements(cost)[0][0]),  # once its atom is split off
        statements=_statements,
        without_failure=_without_failure,
        dp_event=_NONE,
        pld=_NONE,
    )
)
