"""What a cap cuts off: exact bins, one count of one user, estimates that find the truth."""

import numpy as np
import pandas as pd
import pytest

from dptopk import Histogram, InvalidParameter, KnownLaplace, Sensitivity
from dptopk.datasets import clipping_loss, events_histogram, users_by_labels


def events(labels_of, repeat=1):
    """A table in which user i touches labels_of[i] labels, each so many times."""
    rows = [
        (user, label)
        for user, n in enumerate(labels_of)
        for label in range(n)
        for _ in range(repeat)
    ]
    return pd.DataFrame(rows, columns=["who", "what"])


@pytest.mark.slow
def test_users_are_counted_by_their_labels():
    histogram = users_by_labels(
        events([1, 1, 2, 7, 8, 9, 64, 65, 300], repeat=2), user="who", item="what"
    )
    found = dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))
    assert {name: count for name, count in found.items() if count} == {
        "1": 2, "2": 1, "7-8": 2, "9-10": 1, "51-64": 1, "65 or more": 2,
    }  # fmt: skip
    assert histogram.domain == "public"
    assert histogram.sensitivity == Sensitivity(linf=1, l0=1)
    assert not histogram.capped


@pytest.mark.slow
def test_one_user_moves_one_count_by_one():
    table = events([1, 2, 7, 40, 100])
    whole = users_by_labels(table, user="who", item="what").counts
    for user in range(5):
        rest = users_by_labels(table[table.who != user], user="who", item="what").counts
        assert sorted((whole - rest).tolist())[-2:] == [0, 1]
        assert (whole - rest).sum() == 1


@pytest.mark.slow
def test_the_estimate_finds_what_the_cap_cuts_off():
    rng = np.random.default_rng(0)
    labels_of = rng.geometric(0.15, 3000)
    table = events(labels_of)
    answer = KnownLaplace(epsilon=0.05).release(
        users_by_labels(table, user="who", item="what"), rng
    )
    for cap in (2, 5, 12):
        capped = events_histogram(table, user="who", item="what", labels_per_user=cap)
        true = 1 - capped.counts.sum() / len(table)
        found = clipping_loss(answer, cap)
        assert abs(found.pairs - true) < found.error + 0.02  # and the width of the bins
        assert found.users == pytest.approx((labels_of > cap).mean(), abs=0.1)
    assert clipping_loss(answer, 2).pairs > clipping_loss(answer, 12).pairs


def test_a_wrong_cap_is_not_mistaken_for_the_right_one():
    answer = KnownLaplace(epsilon=1.0).release(
        users_by_labels(events([10] * 500), user="who", item="what"), np.random.default_rng(1)
    )
    found = clipping_loss(answer, 5)
    assert found.pairs == pytest.approx(0.475, abs=0.05)  # bin 9-10: 9.5 labels on average
    assert found.error < 0.05
    assert clipping_loss(answer, 10).pairs < 0.05


def test_nothing_to_tell_from_nothing():
    empty = users_by_labels(events([]).astype(object), user="who", item="what")
    assert empty.counts.sum() == 0
    none = KnownLaplace(epsilon=1e3).release(empty)
    assert clipping_loss(none, 5).error == 1.0


def test_other_answers_are_refused():
    other = KnownLaplace(epsilon=1.0).release(
        Histogram(None, [1, 2], sensitivity=Sensitivity(l0=1))
    )
    with pytest.raises(InvalidParameter, match="users_by_labels"):
        clipping_loss(other, 5)
