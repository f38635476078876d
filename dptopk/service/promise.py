"""What a plan promises, in numbers, before any data is seen."""

from __future__ import annotations

from typing import Any

from dptopk.mechanisms.base import Thresholded
from dptopk.planning import Plan
from dptopk.planning.merit import half_width

__all__ = ["promise"]


def promise(made: Plan) -> dict[str, Any]:
    """A plan in numbers: cost, noise, and in an unknown domain the count at which a label appears."""
    first: Any = made.mechanisms[0]
    last: Any = made.mechanisms[-1]
    return {
        "k": made.k,
        "charge": str(made.charge),
        "epsilon": made.epsilon,
        "delta": made.budget.delta,
        "bound": made.bound.name,
        "noise_std": made.noise_std,
        "half_width": half_width(last, made.sensitivity) if made.counted else None,
        "threshold": made.threshold,
        "appears_at": made.appears_at(0.5),
        "above_rank": first.d_bar + 1 if isinstance(first, Thresholded) and first.d_bar is not None else None,
        "warnings": made.warnings,
        "explain": made.explain(),
    }
