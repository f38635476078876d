"""The numbers that a plan guarantees or predicts, before any data is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dptopk._internal.choices import CONFIDENCE
from dptopk.accounting.bounds import compose
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import EventCounts
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.planning import Plan, TwoPhasePlan
from dptopk.planning.probe import LookedPlan
from dptopk.service.questions import Prepared, Single


def error_bar(made: Plan) -> float | None:
    """Half the width of the intervals that the answer will show, for all rows at once; None where there are none.

    Of an answer to the same plan on made-up data of k labels with large counts. Where more than k labels pass a
    threshold the intervals of the k that are shown are a little wider, since the others competed with them.
    """
    made = made.usual if isinstance(made, LookedPlan) else made
    if not made.counted or made.domain == "public":  # there they follow from the number of labels as well
        return None
    counts = [2**40 + (made.k - place) * 2**30 for place in range(made.k)]
    labels = [str(place) for place in range(made.k)]
    try:
        histogram = Histogram(labels, counts, sensitivity=made.sensitivity)
        if isinstance(made, TwoPhasePlan):
            histogram = EventCounts.beside(histogram, Histogram(labels, counts, sensitivity=made.under))
            made = replace(made, looks=())  # the bars of the usual way
        table = made.release(histogram).intervals()
    except InvalidParameter:  # of a mechanism without intervals
        return None
    return float((table["high"] - table["low"]).max()) / 2 if len(table) else None


def preview(prepared: Prepared, charge: Charge, sensitivity: Sensitivity, delta: float) -> dict[str, Any]:
    """A question in numbers: cost, noise, and in an unknown domain the count at which a label appears.

    Args:
        prepared: what runs on one histogram.
        charge: of the whole question: of all its segments.
        sensitivity: of the data set.
        delta: at which ε is stated where the question states none.
    """
    first, last = prepared.mechanisms[0], prepared.mechanisms[-1]
    planned = prepared if isinstance(prepared, Plan) else None
    sensitivity = planned.sensitivity if planned else sensitivity
    counted = planned.counted if planned else True
    named = map(len, prepared.options.values() if isinstance(prepared, Single) else ())
    together = planned.k if planned else next(named, None)
    about: dict[str, Any] = {
        "charge": str(charge),
        "noise_std": last.count_noise(sensitivity, labels=together) if counted else None,
        "half_width": last.count_width(sensitivity, labels=together) if counted else None,
        "confidence": CONFIDENCE,
        "error_bar": error_bar(planned) if planned else None,
        "threshold": planned.threshold if planned else first.threshold_offset(sensitivity),
        "appears_at": planned.appears_at() if planned else first.appears_at(sensitivity, probability=0.5),
        "above_rank": first.floor_rank,
    }
    if planned:
        about |= {"k": planned.k, "warnings": planned.warnings, "explain": planned.explain()}
        delta = planned.budget.delta
        if charge == planned.charge:
            return about | {"epsilon": planned.epsilon, "delta": delta, "bound": planned.bound.name}
    delta = max(delta, min(2 * charge.delta, 0.5))
    bound = compose(charge, delta=delta)
    return about | {"epsilon": bound.epsilon, "delta": delta, "bound": bound.name}
