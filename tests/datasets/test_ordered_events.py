"""Labels that are ranked by the order in which rows come are those that the engine ranks itself."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("ibis")

import pyarrow as pa

from dptopk.datasets import (
    Bounds,
    DuckDB,
    counting,
    event_counts,
    events_histogram,
    hashing,
    ordered_events,
)
from dptopk.datasets.ordered_events import CountsInOrder, rows_of_users
from dptopk.datasets.two_counts import summed_columns

COLUMNS = {"user": "user", "item": "item"}


def events(seed, *, text, rows=3000, users=2000):
    rng = np.random.default_rng(seed)
    # Some users have more labels than the last cell of a profile, and many have one.
    user = (users ** (rng.random(rows) ** 2)).astype(int)
    frame = pd.DataFrame({"user": user, "item": rng.zipf(1.1, rows) % 2000 - 5})
    frame["weight"] = rng.integers(0, 3, rows)
    if not text:
        return frame
    frame = frame.astype({"user": str, "item": str})
    frame["user"] = text + frame["user"]
    return frame


def counts(frame, **options):
    """All numbers of two phases."""
    found = event_counts(frame, **COLUMNS, **options)
    numbers = [found.labels.tolist(), found.counts.tolist(), found.under_cap.counts.tolist()]
    if found.profile is not None:
        numbers.append(found.profile.counts.tolist())
        numbers += [found.under(cap).counts.tolist() for cap in found.narrow]
    return numbers


def one_phase(frame, **options):
    """The rows of one phase."""
    found = events_histogram(frame, **COLUMNS, labels_per_user=7, key="k", **options)
    return found.labels.tolist(), found.counts.tolist()


def by_the_engine(monkeypatch, ask):
    """What ``ask`` returns if no rows are counted in order."""
    with monkeypatch.context() as patch:
        patch.setattr(CountsInOrder, "__call__", lambda *_: None)
        return ask()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 2.0], ids=["events", "pairs"])
@pytest.mark.parametrize(
    "text", ["", "a\0ü", "longer than codes "], ids=["integers", "texts", "long texts"]
)
def test_both_ways_give_the_same_counts(monkeypatch, text, share):
    frame = events(3, text=text)
    monkeypatch.setattr("dptopk.datasets.first_events.REPEATED", share)
    monkeypatch.setattr(ordered_events, "ROWS", 97)  # most users are in several batches
    results, counted = [], CountsInOrder.__call__

    def watched(*arguments):
        results.append(counted(*arguments))
        return results[-1]

    monkeypatch.setattr(CountsInOrder, "__call__", watched)
    asked = [
        lambda: counts(frame, labels_per_user=20, weights=True, profile=True),
        lambda: counts(frame, labels_per_user=3, weight="weight"),
        lambda: one_phase(frame, top=40),
        lambda: one_phase(frame.head(0)),
    ]
    for ask in asked:
        assert ask() == by_the_engine(monkeypatch, ask)
    assert len(results) == len(asked)
    assert not any(result is None for result in results)


def test_files_and_frames_are_counted_in_order(monkeypatch, tmp_path):
    frame = events(5, text="", rows=50)
    frame.to_parquet(tmp_path / "e.parquet")
    frame.to_csv(tmp_path / "e.csv")
    results, counted = [], CountsInOrder.__call__
    monkeypatch.setattr(
        CountsInOrder, "__call__", lambda *given: results.append(counted(*given)) or results[-1]
    )
    for table in (frame, tmp_path / "e.parquet", tmp_path / "e.csv"):
        one_phase(table)
    assert len(results) == 3
    assert not any(result is None for result in results)


@pytest.mark.parametrize(
    ("user", "most", "is_sorted"),
    [("u", 50, True), ("u", 49, False), ("longer than codes ", 50, False)],
)
def test_few_short_texts_of_users_are_sorted_without_codes(monkeypatch, user, most, is_sorted):
    monkeypatch.setattr(ordered_events, "MOST_TEXTS", most)
    coded, codes = [], hashing.text_codes
    for module in (counting, hashing):
        monkeypatch.setattr(
            module, "text_codes", lambda *given: coded.append(given[2]) or codes(*given)
        )
    one_phase(events(6, text=user, rows=50))
    assert coded == (["item"] if is_sorted else ["item", "user"])


@pytest.mark.slow
def test_parts_of_the_users_add_up_and_very_many_labels_are_left_to_the_engine(monkeypatch):
    frame = events(4, text="u")
    options = {"labels_per_user": 20, "weights": True, "profile": True}
    expected = counts(frame, **options)
    assert 0 not in expected[3]  # users are in every cell
    assert counts(frame, **options, engine=DuckDB(passes=3)) == expected
    monkeypatch.setattr(ordered_events, "ROWS", 200)
    monkeypatch.setattr(ordered_events, "MOST_SUMS", 5)  # the stream of rows is left unread
    assert counts(frame, **options) == expected


@pytest.mark.parametrize("text", [False, True], ids=["integers", "texts"])
@pytest.mark.parametrize(("sizes", "rows"), [((1, 5, 2, 9, 1), 4), ((30,), 7), ((3, 3), 100)])
def test_users_are_whole_and_their_repeated_labels_are_dropped(monkeypatch, sizes, rows, text):
    monkeypatch.setattr(ordered_events, "ROWS", rows)
    rng = np.random.default_rng(1)
    pairs = [
        (user, label, copy)
        for user, labels in enumerate(sizes)
        for label in rng.permutation(labels).tolist()
        for copy in range(rng.integers(1, 4))
    ]
    user, item, _ = map(np.array, zip(*pairs, strict=True))
    table = pa.table({"user": [f"{number}\0" for number in user] if text else user, "item": item})
    found = list(rows_of_users(table.to_batches(max_chunksize=5)))
    users_of_parts = [set(part.tolist()) for part, _ in found]
    assert sum(map(len, users_of_parts)) == len(set().union(*users_of_parts)) == len(sizes)
    together = [pair for part in found for pair in zip(*map(np.ndarray.tolist, part), strict=True)]
    assert together == list(dict.fromkeys((u, i) for u, i, _ in pairs))


# Without pandas before: what makes the rows does not load it.
COUNTED_WITHOUT_PANDAS = """
import sys
import duckdb
import pyarrow as pa
from dptopk.datasets.bounds import Bounds
from dptopk.datasets.ordered_events import CountsInOrder
rows = duckdb.sql("SELECT range // 3 AS user, range % 3 AS item FROM range(9)")
counts = CountsInOrder(bounds=Bounds(labels_per_user=2), sums={"count": "", "capped": ""})
found = counts._sums_of_batches(pa.RecordBatchReader.from_stream(rows))
print({"pandas", "pyarrow.dataset"} & sys.modules.keys(), found.to_pydict())
"""


@pytest.mark.slow
def test_neither_pandas_nor_readers_of_files_are_loaded_while_the_engine_holds_the_rows():
    command = [sys.executable, "-c", COUNTED_WITHOUT_PANDAS]
    answer = subprocess.run(command, capture_output=True, text="u", check=True)
    expected = {"item": [0, 1, 2], "count": [3, 3, 3], "capped": [3, 3, 0]}
    assert answer.stdout == f"set() {expected}\n"


ASKED_WITHOUT_PANDAS = """
import sys
import duckdb
from dptopk.datasets import event_counts
path = sys.argv[1]
rows = "SELECT range // 3 AS user, 'é' || range % 3 AS item FROM range(9)"
duckdb.sql(f"COPY ({rows}) TO '{path}'")
options = {"labels_per_user": 2, "weights": True, "profile": True}
found = event_counts(path, user="user", item="item", **options)
print({"pandas"} & sys.modules.keys(), found.labels.tolist(), found.counts.tolist())
"""


@pytest.mark.slow
def test_a_file_is_counted_without_pandas(tmp_path):
    command = [sys.executable, "-c", ASKED_WITHOUT_PANDAS, str(tmp_path / "e.parquet")]
    answer = subprocess.run(command, capture_output=True, text="u", check=True)
    assert answer.stdout == "set() ['é0', 'é1', 'é2'] [3, 3, 3]\n"


@pytest.mark.parametrize("cap", [2, 100])
@pytest.mark.parametrize("labels", [1, 40, 3000])
def test_sums_of_a_batch_are_those_of_its_rows(labels, cap, monkeypatch):
    rng = np.random.default_rng(8)
    user = np.sort(rng.integers(0, 60, 2000))
    item = rng.integers(0, labels, 2000) - 5
    options = {"bounds": Bounds(labels_per_user=cap), "weights": True}
    count = CountsInOrder(sums=summed_columns(weights=True, profile=True), **options)

    def sums():
        found = zip(*map(np.ndarray.tolist, count._sums_by_cell(user, item)), strict=True)
        return sorted(found)

    on_a_grid = sums()
    monkeypatch.setattr(ordered_events, "MOST_SUMS", 0)
    assert on_a_grid == sums()
    assert sum(rows for _, _, rows, _ in on_a_grid) == len(item)
