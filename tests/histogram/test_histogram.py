"""Histogram and Sensitivity: what is refused, and that refusals never quote data."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from dptopk import KnownLaplace, Release
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.histogram.labels import label_order

SECRET = "secret-label-4711"  # noqa: S105


@pytest.mark.parametrize(
    ("labels", "counts", "name"),
    [
        (["a", "b"], [1, -4711], "counts"),
        (["a", "b"], [1, 4711.5], "counts"),
        (["a", "b"], [1, math.nan], "counts"),
        (["a", "b"], [1, math.inf], "counts"),
        (["a", "b"], [1, None], "counts"),
        (["a", "b"], ["1", "4711"], "counts"),
        (["a", "b"], [True, False], "counts"),
        (["a", "b"], [1, 2**62], "counts"),
        (["a", "b"], [1, 2**80], "counts"),
        (["a", "b"], [[1, 2]], "counts"),
        ([SECRET, SECRET], [1, 2], "labels"),
        ([SECRET, None], [1, 2], "labels"),
        ([SECRET, math.nan], [1, 2], "labels"),
        ([SECRET], [1, 2], "labels"),
        ([[SECRET], ["b"]], [1, 2], "labels"),
        (SECRET, [1, 2], "labels"),
    ],
)
def test_bad_rows_are_refused_without_quoting_them(labels, counts, name):
    with pytest.raises(InvalidParameter, match=name) as refusal:
        Histogram(labels, counts)
    assert SECRET not in str(refusal.value)
    assert "4711" not in str(refusal.value)


@pytest.mark.parametrize(
    "counts",
    [
        [3, 1, 2],
        np.array([3, 1, 2], dtype=np.uint8),
        [3.0, 1.0, 2.0],
        pd.Series([3, 1, 2], dtype="Int64"),
    ],
)
def test_whole_numbers_of_any_type_are_taken(counts):
    histogram = Histogram(["a", "b", "c"], counts)
    assert histogram.counts.dtype == np.int64
    assert histogram.counts.tolist() == [3, 1, 2]
    assert histogram.labels.tolist() == ["a", "b", "c"]


def test_a_histogram_keeps_what_it_was_made_of():
    counts, labels = np.array([3, 1]), np.array([7, 8])
    histogram = Histogram(labels, counts)
    counts[0], labels[0] = -99, 99
    assert (histogram.counts.tolist(), histogram.labels.tolist()) == ([3, 1], [7, 8])
    for array in (histogram.counts, histogram.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    for name in ("sensitivity", "counts", "domain", "anything"):
        with pytest.raises(AttributeError, match=name):
            setattr(histogram, name, Sensitivity())
    assert Histogram(["a", "b"], [2**53 + 1, 2.0]).counts.tolist() == [2**53 + 1, 2]


def test_a_wider_claim_about_the_same_rows():
    histogram = Histogram(["a"], [3], sensitivity=Sensitivity(linf=2, l0=3))
    wider = histogram.with_sensitivity(Sensitivity(linf=5))
    assert wider.sensitivity == Sensitivity(linf=5)
    assert (wider.identity, histogram.sensitivity.linf) == (histogram.identity, 2)
    for narrower in (
        Sensitivity(linf=1),
        Sensitivity(linf=2, l0=2),
        Sensitivity(2, 3, "replace_one"),
    ):
        with pytest.raises(InvalidParameter, match="sensitivity"):
            histogram.with_sensitivity(narrower)


def test_no_labels_means_a_public_domain_of_integers():
    histogram = Histogram(None, [5, 6], domain_size=10**12)
    assert histogram.domain == "public"
    assert histogram.absent == 10**12 - 2
    assert histogram.label_at(1) == 1
    assert histogram.label_at(10**12 - 1) == 10**12 - 1
    assert histogram.positions([1, 7, 0]).tolist() == [1, -1, 0]


def test_a_domain_that_is_not_listed_is_named_as_a_whole():
    named = Histogram(["b"], [1], domain="public", domain_size=3, absent_label="abc".__getitem__)
    assert not named.listed
    labels, counts = named.whole_domain()
    assert (labels.tolist(), counts.tolist()) == (["a", "b", "c"], [0, 1, 0])


def test_public_labels_are_the_rows():
    histogram = Histogram(["b", "stray"], [7, 9], domain=["a", "b"])
    assert (histogram.domain, histogram.labels.tolist(), histogram.counts.tolist()) == (
        "public",
        ["a", "b"],
        [0, 7],
    )
    huge = Histogram([7, 1.0, -3], [5, 4, 3], domain=range(10**15))
    assert (huge.labels.tolist(), huge.counts.tolist(), huge.domain_size) == ([7], [5], 10**15)
    assert not huge.has_label_outside([9])
    assert huge.has_label_outside([9, 10**15])


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"domain": "secret"}, "domain"),
        ({"domain_size": 5}, "domain_size"),
        ({"domain": "public", "domain_size": 1}, "domain_size"),
        ({"domain": "public", "domain_size": 2.5}, "domain_size"),
        ({"domain": "public", "absent_label": "x"}, "absent_label"),
        ({"domain": "public", "domain_size": 5}, "absent_label"),
        ({"domain": "public", "absent_label": str}, "domain_size"),
        ({"domain": "public", "domain_size": 2**62 + 1, "absent_label": str}, "domain_size"),
        ({"domain": ["a"], "domain_size": 5}, "domain"),
        ({"domain": ["a"], "complete": False}, "domain"),
        ({"domain": ["a", "a"]}, "distinct"),
        ({"sensitivity": 1}, "sensitivity"),
    ],
)
def test_bad_options_are_named(options, name):
    with pytest.raises(InvalidParameter, match=name):
        Histogram(["a", "b"], [1, 2], **options)


@pytest.mark.parametrize(
    "options", [{"linf": 0}, {"linf": 1.5}, {"l0": 0}, {"neighbours": "swap"}, {"linf": True}]
)
def test_bad_sensitivity_is_named(options):
    with pytest.raises(InvalidParameter, match=next(iter(options))):
        Sensitivity(**options)


def test_touched_labels():
    assert Sensitivity(l0=3).touched(2) == 2
    assert Sensitivity(l0=3).touched() == 3
    assert Sensitivity().touched(7) == 7
    assert Sensitivity().touched() is None


def test_from_pandas_names_the_missing_column():
    frame = pd.DataFrame({"word": ["a"], "n": [1]})
    assert len(Histogram.from_pandas(frame, label="word", count="n")) == 1
    with pytest.raises(InvalidParameter, match=r"count.*'m'"):
        Histogram.from_pandas(frame, label="word", count="m")


@pytest.mark.parametrize(
    ("labels", "ordered"),
    [
        (["b", "a", "c"], ["a", "b", "c"]),
        ([10, 9, 2], [2, 9, 10]),
        (["1", 1, ("x", 2)], [1, ("x", 2), "1"]),
    ],
)
def test_ties_follow_labels_and_never_the_rows(labels, ordered):
    for rows in (labels, labels[::-1]):
        histogram = Histogram(rows, [5] * 3)
        assert [histogram.label_at(row) for row in histogram.top_rows(3)] == ordered


def test_positions():
    histogram = Histogram(["x", "y", "z"], [1, 2, 3])
    assert histogram.positions(["z", "nope", "x"]).tolist() == [2, -1, 0]
    with pytest.raises(InvalidParameter, match="distinct"):
        histogram.positions(["z", "z"])


def test_repr_shows_no_rows():
    assert SECRET not in repr(Histogram([SECRET], [4711]))
    assert "4711" not in repr(Histogram([SECRET], [4711]))


def test_limit_is_what_was_asked_for():
    assert Histogram(["a", "b"], [2, 1], complete=False).limit == 2
    assert Histogram(["a", "b"], [2, 1], complete=False, limit=9).limit == 9
    assert Histogram([], [], complete=False, limit=1).limit == 1
    assert Histogram(["a"], [1]).limit is None
    for refused in ({"limit": 3}, {"complete": False, "limit": 1}, {"complete": False, "limit": 0}):
        with pytest.raises(InvalidParameter, match="limit"):
            Histogram(["a", "b"], [2, 1], **refused)


def test_positions_of_labels_of_any_kind():
    numbers = Histogram([7, 3], [1, 2])
    assert numbers.positions([3, "x", np.int64(7), (1, 2)]).tolist() == [1, -1, 0, -1]
    mixed = Histogram(["a", 3, (1, 2)], [1, 2, 3])
    assert mixed.positions([(1, 2), "a", 3, None, "3"]).tolist() == [2, 0, 1, -1, -1]
    assert Histogram(None, [1, 2]).positions(["x", 1]).tolist() == [-1, 1]
    ends = Histogram([-(2**63), 2**63 - 1], [1, 2])
    assert ends.positions([2**63 - 1, -(2**63), 2**63, -(2**63) - 1]).tolist() == [1, 0, -1, -1]


def test_label_order_looks_at_each_label_alone():
    assert label_order(np.array(["b", "a", "ab"], dtype=object)).tolist() == [1, 2, 0]
    assert label_order(np.array([10, 9, 2.5, "x", (1,)], dtype=object)).tolist() == [2, 1, 0, 4, 3]
    assert label_order(np.array(["1", "b", "a"], dtype=object)).tolist() == [0, 2, 1]


def test_top_rows_is_a_sort_cut_off():
    rng = np.random.default_rng(0)
    for _ in range(50):
        counts = rng.integers(0, 4, size=12)
        labels = rng.permutation(list("abcdefghijkl"))
        expected = [
            i for i in sorted(range(12), key=lambda i: (-counts[i], labels[i])) if counts[i] > 0
        ]
        histogram = Histogram(labels, counts)
        for d in (0, 1, 3, 11, 12, 40):
            assert histogram.top_rows(d).tolist() == expected[:d]


def test_labels_come_with_their_counts_from_everyday_objects():
    words = pd.Series(["the", "and", "the"])
    for counted in (Counter(words), {"the": 2, "and": 1}, words.value_counts()):
        histogram = Histogram(counted, sensitivity=Sensitivity(l0=1))
        assert dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)) == {
            "the": 2,
            "and": 1,
        }
        assert histogram.domain == "private"
    assert len(Histogram({})) == 0
    for nothing in (["the"], None, "the"):
        with pytest.raises(InvalidParameter, match="counts"):
            Histogram(nothing)


def test_a_copy_in_depth_is_the_histogram_itself():
    texts = Histogram(np.array(["a", "b" * 40], dtype=np.dtypes.StringDType()), [2, 1])
    assert copy.deepcopy([texts])[0] is texts


def test_a_cap_on_a_users_total_is_stated_covered_and_kept():
    capped = Sensitivity(linf=4, l0=9, l1=6)
    assert (capped.l0, capped.l1) == (6, 6)
    assert [capped.total(n) for n in (0, 1, 2, 5)] == [0, 4, 6, 6]
    assert [capped.squares(n) for n in (0, 1, 2, 5)] == [0, 16, 20, 20]
    assert Sensitivity(linf=4, l0=3).squares(3) == 48
    free = Sensitivity(linf=4, l0=9)
    assert free.covers(capped)
    assert not capped.covers(free)
    assert not capped.covers(Sensitivity(linf=4, l0=9, l1=7))
    assert capped.covers(Sensitivity(linf=4, l0=1))
    assert capped.covers(Sensitivity(linf=3, l0=2))
    assert not capped.covers(Sensitivity(linf=4, l0=2))
    assert not capped.covers(Sensitivity())
    assert Sensitivity(linf=4).covers(capped)
    for each in (capped, free, Sensitivity(linf=100, l0=3, l2=100)):
        assert Sensitivity(**json.loads(json.dumps(each.plain()))) == each
        assert pickle.loads(pickle.dumps(each)) == each  # noqa: S301
        assert eval(repr(each)) == each  # noqa: S307
    assert free.plain() == {"linf": 4, "l0": 9, "neighbours": "add_remove", "l2": None}
    with pytest.raises(InvalidParameter, match="linf=4"):
        Sensitivity(linf=4, l1=3)
    with pytest.raises(InvalidParameter, match="l1"):
        Sensitivity(l1=0)
    with pytest.raises(InvalidParameter, match="l2"):
        Sensitivity(linf=3, l0=2, l2=3, l1=3)


def test_a_cap_on_a_users_total_goes_through_a_release():
    histogram = Histogram({"a": 50, "b": 9}, sensitivity=Sensitivity(linf=3, l1=5), domain="public")
    answer = KnownLaplace(epsilon=1.0).release(histogram, np.random.default_rng(1))
    again = Release.from_dict(json.loads(json.dumps(answer.to_dict())))
    assert again.sensitivity == histogram.sensitivity
    assert again.charge == answer.charge
    assert (
        "l1"
        not in KnownLaplace(epsilon=1.0)
        .release(Histogram({"a": 5}, domain="public"))
        .to_dict()["sensitivity"]
    )
