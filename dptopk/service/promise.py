"""What a plan promises, in numbers, before any data is seen."""

from __future__ import annotations

from typing import Any

from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram
from dptopk.mechanisms.base import Thresholded
from dptopk.planning import Plan
from dptopk.planning.merit import half_width

__all__ = ["error_bar", "promise"]


def error_bar(made: Plan) -> float | None:
    """Half the width of the intervals that the answer will show, for all rows at once; None where there are none.

    Of an answer to the same plan on made-up data of k labels with large counts: the widths follow from the plan alone.
    """
    if not made.counted or made.domain == "public":  # there they follow from the number of labels as well
        return None
    counts = [2**40 + (made.k - place) * 2**30 for place in range(made.k)]
    labels = [str(place) for place in range(made.k)]
    try:
        table = made.release(Histogram(labels, counts, sensitivity=made.sensitivity)).intervals()
    except InvalidParameter:  # of a mechanism without intervals
        return None
    return float((table["high"] - table["low"]).max()) / 2 if len(table) else None


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
        "error_bar": error_bar(made),
        "threshold": made.threshold,
        "appears_at": made.appears_at(0.5),
        "above_rank": first.d_bar + 1 if isinstance(first, Thresholded) and first.d_bar is not None else None,
        "warnings": made.warnings,
        "explain": made.explain(),
    }
