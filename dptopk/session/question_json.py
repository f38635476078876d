"""Questions as the JSON that a service takes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dptopk._internal import validate
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.labels import labels_as_list, to_plain
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.question import Question
from dptopk.release.release import Release


def question_json(
    k: int, budget: Budget | None, accuracy: float | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a question for a top k as JSON.

    Fields that are None are left out, and the service takes its defaults; ``counts=None`` is sent
    as "none".

    Args:
        k: the number of labels.
        budget: the total; None with an accuracy.
        accuracy: the half-width of a count, in users or events, instead of a budget.
        options: further fields of the question.

    Raises:
        InvalidParameter: unless exactly one of budget and accuracy is given; if delta is given
            with a budget, or a field has a value outside its range.
        TypeError: for an option that is no field of a question.
    """
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    fields = {name: value for name, value in options.items() if value is not None}
    fields["counts"] = options.get("counts", "auto") or "none"
    Question.of("client", k=k, **fields)  # refuses what is no field
    if budget is not None:
        if "delta" in fields:
            raise InvalidParameter("delta is for accuracy=; a budget has its own delta")
        return {"k": k, **fields, **_budget_json(budget)}
    return {"k": k, **fields, "accuracy": accuracy}


def run_json(
    mechanism: Mechanism,
    labels: Release | Sequence[Hashable] | None,
    ranking: Release | Sequence[Hashable] | None,
    where: Mapping[str, str] | None,
) -> dict[str, Any]:
    """Return a question that runs one mechanism as JSON; the arguments are those of ``Client.run``.

    Raises:
        InvalidParameter: for what is no mechanism, or labels that JSON cannot hold.
    """
    if not isinstance(mechanism, Mechanism):
        raise InvalidParameter("mechanism must be one of dptopk.mechanisms")
    body: dict[str, object] = {"mechanism": mechanism.to_dict()}
    if labels is not None:
        body["labels"] = _labels_json(labels)
    if ranking is not None:
        body["ranking"] = _labels_json(ranking)
    if where is not None:
        body["where"] = dict(where)
    return body


def segments_json(segments: str | Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the field "segments" of a question as JSON: column -> values, [] for all of them."""
    if isinstance(segments, str):
        return {"segments": {segments: []}}
    return {"segments": {column: list(values) for column, values in segments.items()}}


def stream_json(
    k: int, days: int, budget: Budget, first_day: str | None, time_zone: str
) -> dict[str, Any]:
    """Return the terms of a stream as JSON; the arguments are those of ``Client.stream``.

    Raises:
        InvalidParameter: for a budget that is no Budget.
    """
    budget = validate.instance(Budget, budget=budget)
    return {
        "k": k,
        "days": days,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "first_day": first_day,
        "time_zone": time_zone,
    }


def _budget_json(budget: Budget) -> dict[str, Any]:
    """Return a budget as JSON: its δ, and its ε or its ρ, whichever it is stated in.

    Raises:
        InvalidParameter: for what is no Budget.
    """
    budget = validate.instance(Budget, budget=budget)
    if budget.rho is None:
        return {"epsilon": budget.epsilon, "delta": budget.delta}
    return {"rho": budget.rho, "delta": budget.delta}


def _labels_json(labels: Release | Sequence[Hashable]) -> list[Any]:
    """Return labels, or those of a release, as JSON holds them."""
    if isinstance(labels, Release):
        return [to_plain(label) for label in labels.labels]
    return [to_plain(label) for label in labels_as_list(labels)]
