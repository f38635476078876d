"""A question in numbers, before any data is seen, as the service answers it."""

from __future__ import annotations

from typing import TypedDict

from dptopk._internal.choices import CONFIDENCE
from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.planning import Plan


class Summarised(TypedDict, total=False):
    """The numbers of a question.

    ``labels_per_user`` and ``per_label_cap`` are those under which its counts are made, which of
    events in two phases are no caps of the data set; null: any number of labels.
    """

    charge: str
    labels_per_user: int | None
    per_label_cap: int
    noise_std: float | None
    half_width: float | None
    confidence: float
    error_bar: float | None
    threshold: int | None
    appears_at: int | None
    above_rank: int | None
    k: int | None
    warnings: list[str]
    explain: str
    epsilon: float | None
    delta: float
    bound: str | None


def plan_summary(plan: Plan, charge: Charge, delta: float) -> Summarised:
    """A question in numbers: cost, noise, and in an unknown domain the count at which a label
    appears.

    Args:
        plan: what runs on one histogram.
        charge: of the whole question: of all its segments.
        delta: at which ε is stated where the question states none.
    """
    promised = plan.preview()
    counted = plan.reading.sensitivity
    about: Summarised = {
        "charge": str(charge),
        "labels_per_user": counted.l0,
        "per_label_cap": counted.linf,
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
            about["epsilon"] = promised.epsilon
            about["delta"] = delta
            about["bound"] = promised.bound
            return about
    about["delta"] = max(delta, min(2 * charge.delta, 0.5))
    bound = compose(charge, delta=about["delta"])
    about["epsilon"] = bound.epsilon
    about["bound"] = bound.name
    return about
