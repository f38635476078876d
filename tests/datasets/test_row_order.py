"""The same events give the same histogram and, under a seed, the same answer: however a file is
laid out and read.
"""

from __future__ import annotations

import numpy as np
import pytest

from dptopk import (
    Budget,
    KnownLaplace,
    PartitionSelection,
    Session,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownGumbel,
    UnknownLaplace,
    plan_topk,
)
from dptopk.mechanisms import SparseGaussian, TruncatedLaplace, UnknownBox, UnknownCentred, named
from dptopk.mechanisms.thresholds import FromData
from dptopk.planning import plan_two_phases
from dptopk.planning.two_phase import usual_cap

pytest.importorskip("duckdb")

import pyarrow as pa
from pyarrow import parquet

from dptopk.datasets import DuckDB, EventsStore, event_counts, events_histogram, segment_histograms
from dptopk.datasets.backends import base

COLUMNS = {"user": "user", "item": "item"}
BUDGET = Budget(4.0, 1e-3)
SEEDS = range(3)
# One of each class that takes labels from the data, but for sums of weights, which two phases ask.
ONE_PHASE = [
    TruncatedGaussian(sigma=3.0, delta=1e-3),
    TruncatedGaussian(sigma=3.0, delta=1e-3, d_bar=40),
    TruncatedLaplace(epsilon=1.0, delta=1e-3),
    SparseGaussian(sigma=5.0, delta=1e-3),
    PartitionSelection(epsilon=2.0, delta=1e-3),
    UnknownGumbel(k=8, d_bar=40, epsilon=0.5, delta=1e-3),
    UnknownLaplace(d_bar=40, epsilon=0.5, delta=1e-3),
    UnknownGaussian(d_bar=40, sigma=3.0, delta=1e-3),
    UnknownBox(d_bar=40, epsilon=2.0, delta=1e-3),
    UnknownCentred(d_bar=40, delta=1e-3, noise=KnownLaplace(epsilon=1.0)),
]
# By whether labels are found by weights.
TWO_PHASES = {
    True: [
        {"k": 10},
        {"k": 5, "counts": "box"},
        {"k": 30, "profile": True},
        {"k": 30, "min_users": 3},
    ],
    False: [
        {"k": 30, "find": "coins"},
        {"k": 10, "find": "threshold"},
        {"k": 30, "find": "coins", "min_users": 3},
    ],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One table in three orders of rows and layouts, each read with another number of threads."""
    rng, made = np.random.default_rng(7), []
    items = rng.zipf(1.3, 12_000) % 3000
    rows = {
        "user": rng.integers(0, 900, 12_000),
        "item": [f"i{i}" for i in items],
        "part": items % 2,
    }
    table, folder = pa.table(rows), tmp_path_factory.mktemp("order")
    for threads, group in ((1, 12_000), (2, 2048), (4, 3500)):
        made.append((str(folder / f"{threads}.parquet"), DuckDB(threads=threads)))
        parquet.write_table(
            table.take(rng.permutation(len(table))), made[-1][0], row_group_size=group
        )
    return made


def alike(answers):
    first, *others = ([(*map(str, row),) for row in answer] for answer in answers)
    assert first
    assert all(other == first for other in others)


def rows(histogram):
    return list(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def shown(release):
    counts = [None] * len(release) if release.counts is None else release.counts.tolist()
    return list(zip(release.labels, counts, strict=True))


def test_every_mechanism_for_labels_from_the_data_is_tried():
    kinds = {kind for kind in named._KINDS.values() if issubclass(kind, FromData)}
    assert kinds == {type(one) for one in ONE_PHASE} | {named._KINDS["WeightedGaussian"]}


@pytest.mark.slow
def test_one_phase_answers_alike(files):
    read = [
        events_histogram(path, **COLUMNS, labels_per_user=5, engine=engine)
        for path, engine in files
    ]
    alike(map(rows, read))
    assert rows(read[0]) == sorted(rows(read[0]), key=lambda row: (-row[1], row[0]))
    for mechanism in ONE_PHASE:
        for seed in SEEDS:
            answers = [shown(mechanism.release(one, np.random.default_rng(seed))) for one in read]
            assert answers[0] == answers[1] == answers[2], mechanism
    plan = plan_topk(5, BUDGET, sensitivity=read[0].sensitivity)
    alike(shown(plan.release(one, np.random.default_rng(1))) for one in read)


@pytest.mark.slow
def test_two_phases_answer_alike(files):
    for weights, asked in TWO_PHASES.items():
        bounds = {
            "labels_per_user": usual_cap(weights=weights),
            "weights": weights,
            "profile": weights,
        }
        read = [event_counts(path, **COLUMNS, **bounds, engine=engine) for path, engine in files]
        alike(map(rows, read))
        alike(rows(both.under_cap) for both in read)
        alike(
            [row for cap in both.narrow for row in rows(both.under(cap))] or [()] for both in read
        )
        for options in asked:
            plan = plan_two_phases(budget=BUDGET, **options)
            alike(shown(plan.release(both, np.random.default_rng(3))) for both in read)
    answers = []
    for path, engine in files:
        session = Session.from_events(
            path, **COLUMNS, engine=engine, budget=BUDGET, rng=np.random.default_rng(5)
        )
        answers.append(session.top_k(30, budget=BUDGET))
    alike(map(shown, answers))
    assert "chosen by a look" in answers[0].note


@pytest.mark.slow
def test_segments_and_stores_answer_alike(files, tmp_path):
    options = COLUMNS | {"segment": "part", "segments": [1, 0], "labels_per_user": 4}
    for top in (None, 20):
        read = [
            segment_histograms(path, **options, top=top, engine=engine) for path, engine in files
        ]
        alike([row for part in one.values() for row in rows(part)] for one in read)
    stored = []
    for number, (path, _) in enumerate(files):
        with EventsStore(tmp_path / f"{number}.store", **COLUMNS, labels_per_user=None) as store:
            store.append(path, version="1")
            stored.append((store.histogram(), event_counts(store, labels_per_user=4, weights=True)))
    for held in zip(*stored, strict=True):
        alike(map(rows, held))


def test_labels_are_compact_and_in_memory_once(files, monkeypatch):
    """Never as one table of Arrow or as Python objects: 16 bytes for a label of up to 15 bytes."""
    path, engine = files[0]
    whole = event_counts(
        path, **COLUMNS, labels_per_user=20, weights=True, profile=True, engine=engine
    )
    assert whole.labels is whole.under_cap.labels
    assert whole.labels.nbytes == 16 * len(whole)
    assert all(counts.dtype.itemsize <= 2 for counts in whole.narrow.values())
    sizes, to_array = [], base._array
    monkeypatch.setattr(base, "BATCH", 100)
    monkeypatch.setattr(
        base, "_array", lambda column: sizes.append(len(column)) or to_array(column)
    )
    again = event_counts(
        path, **COLUMNS, labels_per_user=20, weights=True, profile=True, engine=engine
    )
    assert max(sizes) == 100
    assert (rows(again), rows(again.under_cap)) == (rows(whole), rows(whole.under_cap))


def test_a_label_may_hold_a_nul():
    """NumPy compares texts up to one."""
    labels = [f"a{end}" for end in ("", "\0", "\0b", "\0a", "\0" * 30)]
    frame = pa.table({"user": range(5), "item": labels})
    for order in ([0, 1, 2, 3, 4], [4, 2, 3, 1, 0]):
        assert events_histogram(
            frame.take(order), **COLUMNS, labels_per_user=1
        ).labels.tolist() == sorted(labels)


@pytest.mark.parametrize(
    "columns", [{}, {"item": pa.int64()}, {"item": pa.uint64(), "user": pa.int8()}], ids=str
)
def test_columns_of_batches(columns):
    """As engines give them: sums as decimals, bytes for texts, negative numbers, more than 64 bits
    hold with a sign.
    """
    values = (
        [2**64 - 1, 3]
        if columns.get("item") == pa.uint64()
        else [-5, 2**60 + 1]
        if columns
        else [b"b", "a\u00e4"]
    )
    kinds = {"item": pa.binary(), "count": pa.decimal128(38, 0)} | columns
    given = {"item": values, "count": [2**40, 0], "user": [1, -1]}
    table = pa.table({name: pa.array(given[name], kind) for name, kind in kinds.items()})
    found = base.arrays_of(table.to_reader(max_chunksize=1))
    texts = [value.decode() if isinstance(value, bytes) else value for value in values]
    assert {name: array.tolist() for name, array in found.items()} == {
        name: texts if name == "item" else given[name] for name in kinds
    }
    assert [array.size for array in base.arrays_of(table[:0].to_reader()).values()] == [0] * len(
        kinds
    )
