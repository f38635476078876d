"""A stored answer comes again for a question of the same name: so whatever changes the rows of an
answer, and neither the words of the plan nor its charge, must be in the identity of the plan.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from dptopk import Histogram, InvalidParameter, Sensitivity
from dptopk.histogram.event_counts import EventCounts, finding_sensitivity
from dptopk.planning import plan
from dptopk.question import Events, Facts, Question

LABELS = [f"label {place}" for place in range(80)]
SENSITIVITY = Sensitivity(l0=2)
# For each field of a question, a value beside which the usual question is another one. A new field
# needs a value here.
OTHER_VALUES = {
    "k": 60,
    "epsilon": 15.0,
    "rho": 5.0,
    "accuracy": 0.5,
    "delta": 0.01,
    "counts": "none",
    "users": 2_000_000,
    "d_bar": 79,
    "method": "peel",
    "fit": False,
    "look": 0.1,
    "selection_share": 0.3,
    "find": "threshold",
    "share": 0.6,
    "min_users": 300,
    "effort": "quick",
    "like": [400.0] * 80,
    "charge_as": "clocks",
    "max_seconds": 5.0,
}
# They choose the data; the name of a step has them in what it says of its source.
OF_THE_DATA = {"where", "segments"}
# They warn, say how much work is done, or concern selections before counts, which none of these
# plans has: no answer here is another one for them.
WITHOUT_EFFECT = {"users", "effort", "fit"}
TOTALS = {"epsilon", "rho", "accuracy"}


def question(**changed):
    """The usual question, with the fields that are changed."""
    stated = {"k": 50, "delta": 0.1, **changed}
    if not TOTALS & changed.keys():
        stated["epsilon"] = 20.0
    return Question(**stated)


def counts():
    """40 labels of 299 users, and 40 of 10⁶: with ε 20 nearly without noise."""
    return [299] * 40 + [10**6] * 40


def in_one_phase():
    return Facts(sensitivity=SENSITIVITY), Histogram(LABELS, counts(), sensitivity=SENSITIVITY)


def in_two_phases(*, weights):
    under = finding_sensitivity(2, 1, weights=weights)
    capped = [count * under.linf for count in counts()]
    data = EventCounts.of_histograms(
        Histogram(LABELS, counts()), Histogram(LABELS, capped, sensitivity=under)
    )
    events = Events(labels_per_user=2, weights=weights, profile=False)
    return Facts(sensitivity=Sensitivity(), events=events), data


WORLDS = {
    "one phase": in_one_phase,
    "weights": lambda: in_two_phases(weights=True),
    "capped counts": lambda: in_two_phases(weights=False),
}


def name_of(made):
    """What of a plan is in the name of its question."""
    return made.text, str(made.charge), made.identity


def rows_of(made, data):
    released = made.release(data, np.random.default_rng(8))
    return list(released.labels), list(released.counts if made.counted else ())


def test_there_is_another_value_for_every_field_of_a_question():
    assert OTHER_VALUES.keys() | OF_THE_DATA == {field.name for field in fields(Question)}


@pytest.mark.parametrize("field", OTHER_VALUES)
@pytest.mark.parametrize("world", WORLDS)
def test_a_field_that_changes_only_rows_is_in_the_identity_of_the_plan(world, field):
    facts, data = WORLDS[world]()
    usual = plan(question(), facts)
    try:
        changed = plan(question(**{field: OTHER_VALUES[field]}), facts)
    except InvalidParameter:  # a question that is refused has no answer
        return
    if name_of(usual) == name_of(changed):
        assert rows_of(usual, data) == rows_of(changed, data)


@pytest.mark.parametrize("field", sorted(OTHER_VALUES.keys() - WITHOUT_EFFECT))
def test_every_other_value_makes_another_question_or_other_rows(field):
    """Otherwise the test above could not fail for the field."""
    worlds = (make() for make in WORLDS.values())
    assert any(differs(field, facts, data) for facts, data in worlds)


def differs(field, facts, data):
    usual = plan(question(), facts)
    try:
        changed = plan(question(**{field: OTHER_VALUES[field]}), facts)
    except InvalidParameter:
        return False
    return name_of(usual) != name_of(changed) or rows_of(usual, data) != rows_of(changed, data)
