"""The cost and accuracy of a question in numbers, before any data is seen."""

from __future__ import annotations

from typing import TypedDict

from dptopk._internal.choices import CONFIDENCE
from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.planning import Plan


class PlanSummary(TypedDict, total=False):
    """The numbers of a question, as the service sends them; null where there is no such number.

    Attributes:
        charge: the costs of the whole question.
        labels_per_user, per_label_cap: the caps under which its counts are made; null: any number
            of labels. Counts of events in two phases have other caps than the data set.
        noise_std: the standard deviation of the noise on a count.
        half_width: the half-width within which a count's noise is with probability ``confidence``.
        confidence: the confidence of half_width and error_bar.
        error_bar: the half-width within which the noise of all rows is at once.
        threshold: the noisy count that a private label must pass to be shown.
        appears_at: the count at which a private label appears half of the time; where labels are
            found by weights, the number of users, who have no other label, at which it does.
        above_rank: a rank: ``threshold`` and ``appears_at`` are then leads over the count of this
            rank; null: they are counts.
        appearing: in words, from which count on a private label appears; "" in a public domain.
        k: the number of labels.
        warnings: what is doubtful about the question.
        explain: the plan in words.
        epsilon, delta, bound: the guarantee and the bound that proves it.
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
    appearing: str
    k: int | None
    warnings: list[str]
    explain: str
    epsilon: float | None
    delta: float
    bound: str | None


def plan_summary(plan: Plan, charge: Charge, delta: float) -> PlanSummary:
    """Return the cost and accuracy of a question and, for private labels, the count at which a
    label appears.

    Args:
        plan: the plan that runs on one histogram.
        charge: the charge of the whole question, which for segments covers all of them.
        delta: the δ at which ε is stated if the question states none.
    """
    preview = plan.preview()
    caps = plan.reading.sensitivity
    summary: PlanSummary = {
        "charge": str(charge),
        "labels_per_user": caps.l0,
        "per_label_cap": caps.linf,
        "noise_std": preview.noise_std,
        "half_width": preview.half_width,
        "confidence": CONFIDENCE,
        "error_bar": preview.error_bar,
        "threshold": preview.threshold,
        "appears_at": preview.appears_at,
        "above_rank": preview.above_rank,
        "appearing": preview.appearing,
    }
    if preview.explanation is not None:  # a mechanism that was asked for by name has none
        summary["k"] = preview.k
        summary["warnings"] = list(preview.warnings)
        summary["explain"] = preview.explanation
    # The plan's ε is that of its own charge; segments may be charged more.
    if preview.delta is not None and charge == plan.charge:
        summary["epsilon"] = preview.epsilon
        summary["delta"] = preview.delta
        summary["bound"] = preview.bound
        return summary
    wanted_delta = delta if preview.delta is None else preview.delta
    # The charge's own bad events need a part of δ; at exactly that δ no ε would be finite. Twice as
    # much leaves as much again for the rest; 1/2 holds the result below 1, as a δ must be.
    summary["delta"] = max(wanted_delta, min(2 * charge.delta, 0.5))
    bound = compose(charge, delta=summary["delta"])
    summary["epsilon"] = bound.epsilon
    summary["bound"] = bound.name
    return summary
