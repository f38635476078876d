"""``dptopk.top_k``: one answer, with a budget of its own, from counts and from events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dptopk
from dptopk import Budget, Histogram, InvalidParameter, Sensitivity, Session

COUNTS = {f"label {i}": 3000 // (i + 1) for i in range(40)}
EVENTS = pd.DataFrame(
    {"who": np.repeat(np.arange(3000), 2), "what": np.tile(["tea", "rum", "ale"], 2000)}
)


def _rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_counts_are_answered_as_by_a_session():
    answer = dptopk.top_k(COUNTS, 5, epsilon=1, delta=1e-6, labels_per_user=1, rng=_rng())
    histogram = Histogram(COUNTS, sensitivity=Sensitivity(l0=1))
    budget = Budget(1, 1e-6)
    session = Session(histogram, budget=budget, rng=_rng())
    other = session.top_k(5, budget=budget, counts="auto")
    assert answer.to_dict() == other.to_dict()


@pytest.mark.slow
def test_events_are_answered_as_by_a_session():
    options = {"user": "who", "item": "what"}
    answer = dptopk.top_k(EVENTS, 2, epsilon=1, delta=1e-6, rng=_rng(), **options)
    budget = Budget(1, 1e-6)
    session = Session.from_events(EVENTS, budget=budget, rng=_rng(), **options)
    assert answer.to_dict() == session.top_k(2, budget=budget, counts="auto").to_dict()


def test_labels_known_to_all_need_no_delta():
    answer = dptopk.top_k(COUNTS, 3, epsilon=1, domain="public", labels_per_user=1)
    assert len(answer.labels) == 3
    assert dptopk.compose(answer.charge, delta=0.0).epsilon <= 1


class Unreadable:
    """Data that must not be looked at."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was read")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "delta must be above 0"),
        ({"user": "who", "item": "what"}, "delta must be above 0"),
        ({"user": "who", "delta": 1e-6}, "name both columns"),
        ({"item": "what", "delta": 1e-6}, "name both columns"),
        ({"delta": 1e-6, "where": {"a": 1}}, "where"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 1e-6, "epsilon": -1.0}, "epsilon"),
        ({"delta": 1e-6, "epsilon": float("nan")}, "epsilon"),
    ],
)
def test_wrong_arguments_are_refused_before_the_data_are_read(options, words):
    with pytest.raises(InvalidParameter, match=words):
        dptopk.top_k(Unreadable(), 3, **{"epsilon": 1.0, **options})


def test_a_histogram_states_its_own_sensitivity():
    histogram = Histogram(COUNTS, sensitivity=Sensitivity(l0=1))
    with pytest.raises(InvalidParameter, match="labels_per_user"):
        dptopk.top_k(histogram, 3, epsilon=1, delta=1e-6, labels_per_user=2)
    assert len(dptopk.top_k(histogram, 3, epsilon=1, delta=1e-6).labels) == 3
