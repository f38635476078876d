"""What one user's rows must not change: types, columns, refusals; and types that are refused by
name.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pandas as pd
import pytest

from dptopk import InvalidParameter

pytest.importorskip("ibis")
duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from dptopk.datasets import DuckDB, events_histogram, segment_histograms  # noqa: E402

OPTIONS = {"user": "u", "item": "i", "labels_per_user": 5}


def counts(table, **options):
    histogram = events_histogram(table, **(OPTIONS | options))
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def partitioned(root, *rows):
    for user, label in rows:
        (root / f"i={label}").mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"u": [user]}), root / f"i={label}" / f"{user}.parquet")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("labels", [("2024-01-01", "2024-1-01"), ("1", "01")])
def test_folder_names_are_text_whatever_other_folders_are_called(tmp_path, labels):
    rows = list(zip("ab", labels, strict=True))
    expected = dict.fromkeys(labels, 1)
    assert counts(partitioned(tmp_path / "without", *rows)) == expected
    assert counts(partitioned(tmp_path / "with", *rows, ("c", "zz"))) == expected | {"zz": 1}


def test_files_of_a_folder_that_differ_in_type_are_refused(tmp_path):
    pq.write_table(pa.table({"u": [3, 4], "i": [7, 2]}), tmp_path / "a.parquet")
    assert counts(tmp_path) == {7: 1, 2: 1}
    pq.write_table(pa.table({"u": [3.7, 4.2], "i": ["7.9", "02"]}), tmp_path / "b.parquet")
    with pytest.raises(InvalidParameter, match="different types"):
        counts(tmp_path)
    # Engines take I for i: a text that is no integer refused the rows of all.
    pq.write_table(pa.table({"u": [3, 4], "I": ["x", "02"]}), tmp_path / "b.parquet")
    with pytest.raises(InvalidParameter, match="different types"):
        counts(tmp_path)


def test_columns_that_nobody_needs_may_differ_in_case_alone(tmp_path):
    table = {"u": [3, 4], "i": [7, 2], "x": [1, 2], "X": ["a", "b"]}
    for name in ("a", "b"):
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    assert counts(tmp_path) == {7: 1, 2: 1}


def test_row_numbers_of_the_engine_are_no_condition():
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE events AS SELECT 'a' AS u, 'x' AS i").fetchall()
        ibis = pytest.importorskip("ibis")
        table = ibis.duckdb.from_connection(connection).table("events")
        assert counts(table) == {"x": 1}
        with pytest.raises(InvalidParameter, match="where"):
            counts(table, where=lambda t: t.rowid() < 3)


@pytest.mark.parametrize("where", [None, {"I": "x"}, lambda t: t.u != "b"])
def test_columns_that_differ_in_case_alone_are_refused(where):
    frame = pd.DataFrame({"u": ["alice", "bob"], "i": ["x", "x"], "I": ["y", "y"]})
    if where is None:
        with pytest.raises(InvalidParameter, match="upper and lower case"):
            counts(frame, user="i", item="I")
        assert counts(frame) == {"x": 2}
    else:
        with pytest.raises(InvalidParameter, match="upper and lower case"):
            counts(frame, where=where)


@pytest.mark.slow
@pytest.mark.parametrize(
    "years", [["2024", "2024"], ["2024", "n/a"]], ids=["numbers", "one is none"]
)
def test_a_condition_never_converts_the_column(tmp_path, years):
    path = tmp_path / "events.csv"
    pd.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "year": years}).to_csv(path, index=False)
    assert "x" in counts(path, where={"year": 2024})
    for value in (None, 2024.0, b"2024"):
        with pytest.raises(InvalidParameter, match=r"where.*type"):
            counts(path, where={"year": value})


DAY = dt.date(2024, 1, 31)
TYPED = {
    "whole": ([1, 2], [1, "1"], [True, "01", 1.0, "x"]),
    "real": ([0.5, 2.0], [0.5, "0.5"], ["x", float("nan"), True]),
    "flag": ([True, False], [True, "true"], [1, "yes"]),
    "day": ([DAY, dt.date(2023, 1, 1)], [DAY, "2024-01-31"], ["31.1.2024", 5]),
    "time": ([dt.datetime(2024, 1, 31), dt.datetime(2023, 1, 1)], ["2024-01-31"], [5, "x"]),  # noqa: DTZ001
    "text": (["1", "x"], ["1", 1], [1.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPED)
def test_values_of_a_condition_fit_the_type_of_the_column_or_are_refused(name):
    column, fitting, refused = TYPED[name]
    table = pa.table({"u": ["a", "b"], "i": ["x", "y"], name: column})
    for value in fitting:
        assert counts(table, where={name: value}) == {"x": 1}
    for value in refused:
        with pytest.raises(InvalidParameter, match=r"where.*type"):
            counts(table, where={name: value})


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        (pa.decimal128(38, 38), ["0.99", "-0.5", None], {}),
        (pa.decimal128(38, 0), ["3", "9" * 38, "-5"], {"x": 3, "y": 3}),
        (pa.decimal128(10, 2), ["2.99", None, "1.00"], {"x": 2, "z": 1}),
    ],
)
def test_decimal_weights(kind, texts, expected):
    weights = pa.array([None if text is None else Decimal(text) for text in texts], kind)
    table = pa.table({"u": [1, 2, 3], "i": ["x", "y", "z"], "w": weights})
    assert counts(table, weight="w", per_label_cap=3) == expected


@pytest.mark.slow
def test_uuids_and_bytes_of_frames():
    ids = pd.DataFrame({"u": [UUID(int=1), UUID(int=2)], "i": [UUID(int=7)] * 2, "n": [1, 2]})
    label = str(UUID(int=7))
    assert counts(ids) == {label: 2}
    assert counts(ids, where=lambda t: t.n == 1) == {label: 1}
    assert counts(ids, where={"u": UUID(int=2)}) == {label: 1}
    fixed = pa.table(
        {"u": ["a"], "i": pa.array([b"12345678"], pa.binary(8)), "h": pa.array([1.0], pa.float16())}
    )
    with pytest.raises(InvalidParameter, match="item"):
        counts(fixed)
    assert counts(fixed, item="h") == {1: 1}


@pytest.mark.parametrize(
    ("column", "segments"),
    [
        ([True, False], [True, False]),
        ([1, 2], ["1", "2"]),
        (["1", "2"], [1, "2"]),
        ([DAY, DAY], [DAY, "2023-01-01"]),
    ],
)
def test_segments_fit_the_type_of_their_column(column, segments):
    table = pa.table({"u": ["a", "b"], "i": ["x", "x"], "s": column})
    found = segment_histograms(table, **OPTIONS, segment="s", segments=segments)
    assert list(found) == segments
    assert sum(int(histogram.counts.sum()) for histogram in found.values()) == 2


@pytest.mark.parametrize(("column", "segments"), [([1, 2], ["x"]), (["1", "2"], [1, "1"])])
def test_segments_that_do_not_fit_are_refused(column, segments):
    table = pa.table({"u": ["a", "b"], "i": ["x", "x"], "s": column})
    with pytest.raises(InvalidParameter, match="segments"):
        segment_histograms(table, **OPTIONS, segment="s", segments=segments, engine=DuckDB())


@pytest.mark.parametrize("extra", [[], ["text"], [2.5], ["\ud800"], [pd.NA]], ids=repr)
def test_a_column_of_objects_is_text_value_by_value(extra):
    items = [1, 2, 2.0, True, DAY, b"raw", UUID(int=7), None, *extra]
    frame = pd.DataFrame({"u": range(len(items)), "i": pd.Series(items, dtype=object)})
    expected = {"1": 1, "2": 2, "true": 1, "2024-01-31": 1, "raw": 1, str(UUID(int=7)): 1}
    assert {label: n for label, n in counts(frame).items() if label in expected} == expected
