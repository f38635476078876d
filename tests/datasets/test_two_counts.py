"""Both histograms of one pass: each is that of events_histogram, and one user moves them as they
say.
"""

from __future__ import annotations

import math
import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest

from dptopk import Histogram, InvalidParameter, Sensitivity

pytest.importorskip("ibis")
pytest.importorskip("duckdb")

from dptopk.datasets import (
    Bounds,
    DuckDB,
    EventsStore,
    event_counts,
    events_histogram,
    first_events,
    segment_histograms,
    two_counts,
)
from dptopk.datasets.ordered_events import CountsInOrder
from dptopk.histogram.event_counts import CELLS, NARROW
from dptopk.histogram.stored_labels import StoredLabels

COLUMNS = {"user": "user", "item": "item"}


def as_dict(histogram: Histogram) -> dict:
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def events(seed: int, rows: int = 400, users: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    items = [f"i{i}" for i in rng.zipf(1.4, rows) % 15]
    return pd.DataFrame(
        {"user": rng.integers(0, users, rows), "item": items, "weight": rng.integers(-1, 4, rows)}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_label_cap": 3},
        {"weight": "weight", "per_label_cap": 2},
        {"choose": "top"},
        {"portable": True, "key": "k"},
        {"engine": DuckDB(passes=3)},
        {"where": {"item": ["i1", "i2", "i3"]}},
    ],
    ids=str,
)
def test_each_is_the_histogram_of_a_pass_of_its_own(options):
    made = event_counts(events(1), **COLUMNS, labels_per_user=2, **options)
    whole, capped = (
        events_histogram(events(1), **COLUMNS, labels_per_user=cap, **options) for cap in (None, 2)
    )
    assert as_dict(made) == as_dict(whole)
    assert as_dict(made.under_cap) == as_dict(capped)
    assert made.sensitivity == whole.sensitivity
    assert made.under_cap.sensitivity == capped.sensitivity
    assert made.under_cap.capped
    assert made.capped == (
        options.get("per_label_cap", 1) > 1
    )  # users are counted once, and so as they are


@pytest.mark.slow
def test_one_user_moves_both_as_they_say():
    frame = events(2, rows=80, users=6)
    with_all = event_counts(frame, **COLUMNS, labels_per_user=2)
    truth = frame.groupby("item")["user"].nunique().to_dict()
    assert as_dict(with_all) == truth
    for user in frame["user"].unique():
        without = event_counts(frame[frame["user"] != user], **COLUMNS, labels_per_user=2)
        for one, other, most in (
            (with_all, without, 15),
            (with_all.under_cap, without.under_cap, 2),
        ):
            before, after = as_dict(one), as_dict(other)
            moves = [before[item] - after.get(item, 0) for item in before]
            assert set(after) <= set(before)
            assert set(moves) <= {0, 1}
            assert sum(moves) <= most


@pytest.mark.parametrize("portable", [False, True])
def test_a_store_without_a_cap_has_both(portable, tmp_path):
    frame = events(3)
    options = {"key": "k", "portable": portable}
    with EventsStore(
        tmp_path / "events.store", **COLUMNS, labels_per_user=None, **options
    ) as store:
        assert len(event_counts(store, labels_per_user=2)) == 0
        store.append(frame[:150], version="1")
        store.append(frame[150:], version="2")
        made = event_counts(store, **COLUMNS, labels_per_user=2)
        for wrong in (
            {"where": {"item": "i1"}},
            {"user": "item", "item": "item"},
            {"key": "other"},
            {"per_label_cap": 2},
        ):
            with pytest.raises(InvalidParameter, match="a store of events has its own columns"):
                event_counts(store, labels_per_user=2, **wrong)
    both = event_counts(frame, **COLUMNS, labels_per_user=2, **options)
    assert as_dict(made) == as_dict(both)
    assert as_dict(made.under_cap) == as_dict(both.under_cap)


def test_a_store_that_kept_a_part_of_each_users_labels_is_refused(tmp_path):
    with EventsStore(tmp_path / "events.store", **COLUMNS, labels_per_user=4) as store:
        store.append(events(4), version="1")
        with pytest.raises(InvalidParameter, match="kept at most 4 labels"):
            event_counts(store, labels_per_user=2)


def test_what_is_no_cap_is_refused():
    with pytest.raises(InvalidParameter, match=r"Session\.from_events"):
        events_histogram(events(1), **COLUMNS, labels_per_user="auto")
    with pytest.raises(InvalidParameter, match="labels_per_user"):
        event_counts(events(1), **COLUMNS, labels_per_user=None)
    with pytest.raises(InvalidParameter, match="user and item must be given"):
        event_counts(events(1), labels_per_user=2)


def test_no_events_make_two_empty_histograms():
    made = event_counts(events(1)[:0], **COLUMNS, labels_per_user=2)
    assert (len(made), len(made.under_cap), made.sensitivity) == (0, 0, Sensitivity())


def weighted(frame: pd.DataFrame) -> dict:
    """The sums of isqrt(100² // d), in plain Python."""
    pairs = frame[["user", "item"]].drop_duplicates()
    each = pairs.groupby("user")["item"].transform("size").map(lambda d: math.isqrt(10_000 // d))
    return each.groupby(pairs["item"]).sum().to_dict()


@pytest.mark.parametrize(
    "options", [{}, {"portable": True}, {"choose": "top"}, {"engine": DuckDB(passes=3)}], ids=str
)
def test_weights(options, tmp_path):
    made = event_counts(events(5), **COLUMNS, labels_per_user=20, weights=True, **options)
    assert as_dict(made.under_cap) == weighted(events(5))
    assert made.under_cap.sensitivity == Sensitivity(100, 20, l2=100)
    counts, capped = (
        event_counts(events(5), **COLUMNS, labels_per_user=2, weights=weights, **options)
        for weights in (False, True)
    )
    assert as_dict(made) == as_dict(counts) == as_dict(capped)
    assert set(as_dict(capped.under_cap)) == set(as_dict(counts.under_cap))
    assert (
        70 * sum(counts.under_cap.counts)
        <= sum(capped.under_cap.counts)
        < 72 * sum(counts.under_cap.counts)
    )


def test_weights_of_integers_that_are_ranked_before_repeats_are_dropped():
    frame = events(5, rows=60)  # few events repeat a pair
    frame["item"] = frame["item"].str[1:].astype(int)
    made = event_counts(frame, **COLUMNS, labels_per_user=20, weights=True)
    assert 60 * first_events.REPEATED < len(frame[["user", "item"]].drop_duplicates()) < 60
    assert as_dict(made.under_cap) == weighted(frame)


@pytest.mark.slow
def test_weights_of_a_store_and_of_segments(tmp_path):
    frame = events(6)
    with EventsStore(tmp_path / "events.store", **COLUMNS, labels_per_user=None) as store:
        store.append(frame[:150], version="1")
        store.append(frame[150:], version="2")
        for cap in (2, 20):
            stored = event_counts(store, labels_per_user=cap, weights=True)
            assert as_dict(stored.under_cap) == as_dict(
                event_counts(frame, **COLUMNS, labels_per_user=cap, weights=True).under_cap
            )
    with EventsStore(
        tmp_path / "more.store", **COLUMNS, labels_per_user=None, per_label_cap=2
    ) as store:
        store.append(frame, version="1")
        with pytest.raises(InvalidParameter, match="weights"):
            event_counts(store, labels_per_user=2, weights=True)
    apart = frame.assign(segment=frame["user"] % 3)
    options = {
        "segment": "segment",
        "segments": [0, 1],
        "labels_per_user": 3,
        "count_capped": False,
    }
    for weights in (False, True):
        found = segment_histograms(
            apart, **COLUMNS, **options, segments_per_user=1, weights=weights
        )
        for name, both in found.items():
            alone = event_counts(
                apart[apart["segment"] == name], **COLUMNS, labels_per_user=3, weights=weights
            )
            assert as_dict(both) == as_dict(alone)
            assert as_dict(both.under_cap) == as_dict(alone.under_cap)
            assert both.under_cap.sensitivity == alone.under_cap.sensitivity
    for wrong in (
        {"top": 3},
        {"labels_per_user": None},
        {"count_capped": True, "weights": True},
        {"count_capped": True, "profile": True},
    ):
        with pytest.raises(InvalidParameter, match="count_capped"):
            segment_histograms(apart, **COLUMNS, **options | wrong)


@pytest.mark.slow
def test_one_user_moves_the_sums_by_equal_weights_of_norm_100():
    frame = events(7, rows=80, users=6)
    all_of_them = as_dict(event_counts(frame, **COLUMNS, labels_per_user=4, weights=True).under_cap)
    for user in frame["user"].unique():
        without = event_counts(
            frame[frame["user"] != user], **COLUMNS, labels_per_user=4, weights=True
        )
        less = as_dict(without.under_cap)
        moves = [
            most - less.get(item, 0)
            for item, most in all_of_them.items()
            if most != less.get(item, 0)
        ]
        assert set(moves) == {math.isqrt(10_000 // len(moves))}
        assert len(moves) <= 4


def profiled(frame: pd.DataFrame) -> tuple[list[int], dict]:
    """How many users are in each cell, and the sums of the counts under narrow caps, in plain
    Python.
    """
    degrees = frame[["user", "item"]].drop_duplicates().groupby("user").size().tolist()
    ends = [*CELLS[1:], math.inf]
    cells = [sum(start < d <= end for d in degrees) for start, end in zip(CELLS, ends, strict=True)]
    return cells, {cap: sum(min(d, cap) for d in degrees) for cap in NARROW}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"portable": True},
        {"choose": "top"},
        {"engine": DuckDB(passes=3)},
        {"labels_per_user": 2},
    ],
    ids=str,
)
def test_a_profile_counts_every_user_in_one_cell(options):
    frame = events(8, rows=500, users=80)
    options = COLUMNS | {"labels_per_user": 20, "weights": True} | options
    made = event_counts(frame, **options, profile=True)
    cells, totals = profiled(frame)
    assert made.profile.counts.tolist() == cells
    assert made.profile.sensitivity == Sensitivity(l0=1)
    assert {cap: sum(made.under(cap).counts) for cap in made.narrow} == totals
    for cap in made.narrow:
        assert (made.under(cap).sensitivity, made.under(cap).capped) == (Sensitivity(l0=cap), True)
    without = event_counts(frame, **options)
    assert (without.profile, without.narrow) == (None, {})
    assert (as_dict(made), as_dict(made.under_cap)) == (
        as_dict(without),
        as_dict(without.under_cap),
    )


def test_a_profile_is_summed_from_few_rows_of_each_label_and_is_exact_at_the_ends_of_cells(
    monkeypatch,
):
    from dptopk.datasets import two_counts

    degrees = sorted({max(at + step, 1) for at in (*CELLS, *NARROW) for step in (-1, 0, 1)} | {260})
    pairs = [(user, item) for user, degree in enumerate(degrees) for item in range(degree)]
    frame, rows = pd.DataFrame(pairs, columns=["user", "item"]), []
    made = two_counts.counts_with_and_without_cap

    def counted(source, *rest, **options):
        found = made(source, *rest, **options)
        rows.extend(source.run(found.group_by("item").agg(rows=found.count()))["rows"].to_pylist())
        return found

    monkeypatch.setattr(two_counts, "counts_with_and_without_cap", counted)
    monkeypatch.setattr(CountsInOrder, "__call__", lambda *_: None)
    found = event_counts(frame, **COLUMNS, labels_per_user=20, weights=True, profile=True)
    cells, totals = profiled(frame)
    assert found.profile.counts.tolist() == cells
    assert {cap: sum(found.under(cap).counts) for cap in found.narrow} == totals
    assert found.counts.sum() == len(pairs)
    assert found.under_cap.counts.sum() == sum(
        min(d, 20) * math.isqrt(10_000 // min(d, 20)) for d in degrees
    )
    assert max(rows) <= len({*CELLS, *NARROW, *(cell + 1 for cell in CELLS)}) < len(degrees)


@pytest.mark.slow
def test_one_user_moves_one_cell_by_one_and_narrow_counts_by_their_cap():
    frame = events(9, rows=90, users=7)
    before = event_counts(frame, **COLUMNS, labels_per_user=4, weights=True, profile=True)
    for user in frame["user"].unique():
        after = event_counts(
            frame[frame["user"] != user], **COLUMNS, labels_per_user=4, weights=True, profile=True
        )
        assert sorted(before.profile.counts - after.profile.counts) == [0] * (len(CELLS) - 1) + [1]
        for cap in before.narrow:
            less = as_dict(after.under(cap))
            moves = [
                count - less.get(item, 0) for item, count in as_dict(before.under(cap)).items()
            ]
            assert set(moves) <= {0, 1}
            assert sum(moves) <= cap


@pytest.mark.slow
def test_a_profile_of_a_store_of_segments_and_of_nothing(tmp_path):
    frame = events(10)
    options = {"labels_per_user": 20, "weights": True, "profile": True}
    with EventsStore(tmp_path / "events.store", **COLUMNS, labels_per_user=None) as store:
        assert sum(event_counts(store, **options).profile.counts) == 0
        store.append(frame[:200], version="1")
        store.append(frame[200:], version="2")
        stored, made = event_counts(store, **options), event_counts(frame, **COLUMNS, **options)
    assert stored.profile.counts.tolist() == made.profile.counts.tolist() == profiled(frame)[0]
    assert all(as_dict(stored.under(cap)) == as_dict(made.under(cap)) for cap in NARROW)
    apart = frame.assign(segment=frame["user"] % 2)
    found = segment_histograms(
        apart, **COLUMNS, segment="segment", segments=[0, 1], count_capped=False, **options
    )
    for name, both in found.items():
        assert both.profile.counts.tolist() == profiled(apart[apart["segment"] == name])[0]
    assert sum(event_counts(frame[:0], **COLUMNS, **options).profile.counts) == 0
    for wrong in ({"weights": False}, {"count_capped": False}):
        read = (
            partial(segment_histograms, segment="segment", segments=[0])
            if "count_capped" in wrong
            else event_counts
        )
        with pytest.raises(InvalidParameter, match="weights"):
            read(apart, **COLUMNS, **options | {"weights": False} | wrong)


def both_plans(monkeypatch, ask):
    """The answers where distinct pairs are taken first, and where they never are."""
    answers = []
    for share in (2.0, 0.0):
        monkeypatch.setattr("dptopk.datasets.first_events.REPEATED", share)
        answers.append(ask())
    return answers


@pytest.mark.parametrize("text", [False, True], ids=["integers", "texts"])
def test_taking_distinct_pairs_first_moves_no_count(monkeypatch, text):
    rng = np.random.default_rng(5)
    users, items = rng.integers(0, 40, 3000), rng.zipf(1.3, 3000) % 60
    frame = pd.DataFrame({"u": users, "i": items})
    if text:
        frame = frame.astype(str)

    def ask():
        found = event_counts(
            frame, user="u", item="i", labels_per_user=7, weights=True, profile=True
        )
        narrow = [found.under(cap).counts.tolist() for cap in found.narrow]
        return found.labels.tolist(), found.counts.tolist(), found.under_cap.counts.tolist(), narrow

    first, never = both_plans(monkeypatch, ask)
    assert first == never


def test_distinct_pairs_come_first_where_users_repeat_labels(monkeypatch):
    seen = []
    chosen = CountsInOrder.__call__

    def spy(counts, source, events, first):
        seen.append(source.distinct)
        return chosen(counts, source, events, first)

    monkeypatch.setattr(CountsInOrder, "__call__", spy)
    for labels in (range(300), [0, 1, 2] * 100):
        frame = pd.DataFrame({"u": [1] * 300, "i": list(labels)})
        event_counts(frame, user="u", item="i", labels_per_user=5)
    assert seen == [False, True]


def test_histograms_are_made_without_further_copies_of_their_counts():
    rows = 2**18
    unread = StoredLabels(rows, np.dtype(np.int64), lambda _: np.arange(rows), lambda _: None)
    tracemalloc.start()
    columns = {name: np.full(rows, 3, dtype=np.uint32) for name in ("count", "capped")}
    options = {"bounds": Bounds(labels_per_user=2), "weights": False, "clipped": False}
    two_counts.event_counts_of(columns, **options, labels=unread)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The histograms hold 8 bytes a row each; beside them are the 4 of the last column and a mask.
    assert peak < rows * (8 + 8 + 4 + 2)
