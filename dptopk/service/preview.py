"""A question in numbers, before any data is seen, as the service answers it."""

from __future__ import annotations

from typing import Any

from dptopk._internal.choices import CONFIDENCE
from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.planning import Plan


def preview(plan: Plan, charge: Charge, delta: float) -> dict[str, Any]:
    """A question in numbers: cost, noise, and in an unknown domain the count at which a label
    appears.

    Args:
        plan: what runs on one histogram.
        charge: of the whole question: of all its segments.
        delta: at which ε is stated where the question states none.
    """
    promised = plan.preview()
    about: dict[str, Any] = {
        "charge": str(charge),
        "noise_std": promised.noise_std,
        "half_width": promised.half_width,
        "confidence": CONFIDENCE,
        "error_bar": promised.error_bar,
        "threshold": promised.threshold,
        "appears_at": promised.appears_at,
        "above_rank": promised.above_rank,
    }
    if promised.explanation is not None:
        about["k"] = promised.k
        about["warnings"] = list(promised.warnings)
        about["explain"] = promised.explanation
    if promised.delta is not None:
        delta = promised.delta
        if charge == plan.charge:
            stated = {"epsilon": promised.epsilon, "delta": delta, "bound": promised.bound}
            return about | stated
    delta = max(delta, min(2 * charge.delta, 0.5))
    bound = compose(charge, delta=delta)
    return about | {"epsilon": bound.epsilon, "delta": delta, "bound": bound.name}
