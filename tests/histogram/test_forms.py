"""Histogram(data): data as people have it; every other form is refused with what to do next."""

from __future__ import annotations

from collections import Counter

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dptopk import Histogram, InvalidParameter

WORDS = ["the", "and", "the", "to", "the", "and"]
TRUTH = {"the": 3, "and": 2, "to": 1}
PAIRS = [("the", 3), ("and", 2), ("to", 1)]
FRAME = pd.DataFrame(PAIRS, columns=["word", "n"])


def relation():
    """A relation lives no longer than its connection."""
    connection = duckdb.connect()
    found = connection.from_arrow(pa.Table.from_pandas(FRAME)).aggregate(
        "word, sum(n)::BIGINT AS n", "word"
    )
    return connection, found


FORMS = {
    "dict": lambda: TRUTH,
    "Counter": lambda: Counter(WORDS),
    "pairs": lambda: PAIRS,
    "lists": lambda: [list(pair) for pair in PAIRS],
    "pandas value_counts": lambda: pd.Series(WORDS).value_counts(),
    "pandas value_counts of a frame": lambda: pd.DataFrame({"word": WORDS}).value_counts(),
    "pandas frame": lambda: FRAME,
    "pandas groupby": lambda: pd.DataFrame({"word": WORDS}).groupby("word").size(),
    "polars value_counts": lambda: pl.Series("word", WORDS).value_counts(),
    "polars frame": lambda: pl.DataFrame(PAIRS, schema=["word", "n"], orient="row"),
    "polars lazy": lambda: pl.LazyFrame({"word": WORDS}).group_by("word").len(),
    "Arrow value_counts": lambda: pa.array(WORDS).value_counts(),
    "Arrow chunked value_counts": lambda: pa.chunked_array([WORDS[:3], WORDS[3:]]).value_counts(),
    "Arrow table": lambda: pa.Table.from_pandas(FRAME),
    "Arrow batch": lambda: pa.RecordBatch.from_pandas(FRAME),
    "Ibis": lambda: ibis.memtable(FRAME),
}


@pytest.mark.parametrize("form", FORMS)
def test_counts_of_labels_in_every_form(form):
    histogram = Histogram(FORMS[form]())
    assert dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)) == TRUTH
    assert histogram.domain == "private"


def test_a_relation_of_duckdb():
    connection, found = relation()
    histogram = Histogram(found)
    assert dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)) == TRUTH
    assert len(Histogram(found.filter("n > 5"))) == 0
    connection.close()


@pytest.mark.parametrize(
    "empty",
    [
        {},
        [],
        pd.DataFrame({"word": [], "n": []}),
        pl.DataFrame({"word": [], "n": []}),
        pa.table({"w": [], "n": []}),
    ],
)
def test_no_rows_are_an_empty_histogram(empty):
    assert len(Histogram(empty)) == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (WORDS, ("counts", "Counter")),
        ("the", ("counts", "Counter")),
        (5, ("counts", "dict")),
        (np.array([[1, 2], [3, 4]]), ("counts", "pairs")),
        (pl.Series(WORDS), ("counts", "value_counts()")),
        (pa.array(WORDS), ("counts", "value_counts()")),
        (pa.array([[1, 2]]), ("counts", "value_counts()")),
        (iter(PAIRS), ("counts", "list")),
        (pd.Series([7, 7, 9]), ("row numbers", "value_counts()")),
        (pd.DataFrame({"count": [5, 7], "article": [1, 2]}), ("first column", "labels first")),
        (pl.DataFrame({"len": [5, 7], "article": [1, 2]}), ("first column", "labels first")),
        (pa.table({"count": [5, 7], "article": [1, 2]}), ("first column", "labels first")),
        (pd.Series(WORDS, index=[3, *range(1, len(WORDS))]), ("row numbers", "name the index")),
        ({"a": "seven"}, ("type str_",)),
        (
            pd.DataFrame({"user": [1], "item": [2], "day": [3]}),
            ("two columns", "3", "events_histogram"),
        ),
        (pl.DataFrame({"word": WORDS}), ("two columns", "1", "events_histogram")),
        (FRAME[["n", "word"]], ("whole numbers",)),
        ([("the", 3), ("the", 2)], ("label",)),
        ([("the", 3.5)], ("fractional",)),
        ({"the": float("inf")}, ("whole numbers",)),
    ],
)
def test_other_forms_are_refused_with_the_next_step(data, words):
    with pytest.raises(InvalidParameter) as refused:
        Histogram(data)
    for word in words:
        assert word in str(refused.value)
    assert "the'" not in str(refused.value)


WITHOUT_A_LABEL = {
    "dict": lambda: {"the": 3, None: 1},
    "Counter": lambda: Counter(["the", "the", "the", float("nan")]),
    "pairs": lambda: [("the", 3), (None, 1)],
    "pandas": lambda: pd.Series(["the"] * 3 + [None]).value_counts(dropna=False),
    "table of pandas": lambda: pd.DataFrame({"word": ["the", None], "n": [3, 1]}),
    "polars": lambda: pl.Series("word", ["the"] * 3 + [None]).value_counts(),
    "Arrow": lambda: pa.array(["the"] * 3 + [None]).value_counts(),
    "table of Arrow": lambda: pa.table({"word": ["the", None], "n": [3, 1]}),
}


@pytest.mark.parametrize("name", WITHOUT_A_LABEL)
def test_a_row_without_a_label_is_left_out(name):
    """One user's missing value refused the counts of all."""
    found = Histogram(WITHOUT_A_LABEL[name]())
    assert dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True)) == {"the": 3}


WITHOUT_A_COUNT = {
    "dict": lambda: {"the": 3, "and": None},
    "pairs": lambda: [("the", 3), ("and", float("nan"))],
    "table of pandas": lambda: pd.DataFrame({"word": ["the", "and"], "n": [3, None]}),
    "integers of pandas": lambda: pd.DataFrame(
        {"word": ["the", "and"], "n": pd.array([3, None], dtype="Int64")}
    ),
    "series": lambda: pd.Series([3, None], index=["the", "and"]),
    "table of polars": lambda: pl.DataFrame({"word": ["the", "and"], "n": [3, None]}),
    "table of Arrow": lambda: pa.table({"word": ["the", "and"], "n": [3, None]}),
}


@pytest.mark.parametrize("name", WITHOUT_A_COUNT)
def test_a_missing_count_is_zero(name):
    """Of labels that were joined with counts, the first user of one decided about all; and where
    the labels are public, the row of a label that nobody has is one of them.
    """
    for domain in ("private", "public"):
        found = Histogram(WITHOUT_A_COUNT[name](), domain=domain)
        counts = dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))
        assert counts == {"the": 3, "and": 0}


def test_lists_of_counts_are_no_missing_ones():
    with pytest.raises(InvalidParameter, match="whole numbers"):
        Histogram({"a": np.array([1, 2]), "b": 3})


def test_a_row_of_named_columns_without_a_label_is_left_out():
    frame = pd.DataFrame({"word": ["the", None, np.nan], "n": [3, 1, 1]})
    found = Histogram.from_pandas(frame, label="word", count="n")
    assert found.labels.tolist() == ["the"]


def test_a_label_that_python_does_not_have_is_left_out():
    """It ended in an error of Python that quoted it."""
    stored = pa.array([b"the", b"\xff"], pa.binary())
    texts = pa.StringArray.from_buffers(2, *stored.buffers()[1:])
    days = pa.array([1, 2**30], pa.int32()).cast(pa.date32())
    times = pa.array([1, 2**62], pa.timestamp("us", tz="UTC"))
    for labels in (texts, texts.dictionary_encode(), days, times):
        assert Histogram(pa.table({"word": labels, "n": [3, 1]})).counts.tolist() == [3]


def _counted_days(days):
    table = pa.table({"day": days, "count": pa.array([30, 20][: len(days)])})
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return {
        "polars": lambda: Histogram(pl.from_arrow(table)),
        "frame": lambda: Histogram(frame),
        "columns": lambda: Histogram.from_pandas(frame, label="day", count="count"),
        "series": lambda: Histogram(frame["day"].value_counts()),
    }


@pytest.mark.parametrize("form", ["polars", "frame", "columns", "series"])
@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us")], ids=str)
def test_a_day_that_python_does_not_have_is_missing_in_frames(form, kind):
    """One of them ended in a raw error of polars or Python for all."""
    ticks = pa.int32() if kind.bit_width == 32 else pa.int64()
    largest = 2 ** (kind.bit_width - 1) - 1
    days = pa.array([0, largest], ticks).view(kind)
    with_odd_day = _counted_days(days)[form]()
    without = _counted_days(days.slice(0, 1))[form]()
    assert with_odd_day.labels.tolist() == without.labels.tolist()
    assert with_odd_day.counts.tolist() == without.counts.tolist()


ODD_TIMES = [
    *[(form, pa.time64("us"), 86_400_000_000) for form in ("polars", "frame", "columns", "series")],
    *[(form, pa.time64("ns"), 1) for form in ("polars", "frame", "columns", "series")],
    *[(form, pa.date64(), 1) for form in ("frame", "columns", "series")],  # a time to polars
]


@pytest.mark.parametrize(("form", "kind", "odd"), ODD_TIMES)
def test_a_time_that_python_takes_for_another_one_is_missing(form, kind, odd):
    """Arrow gave 24:00 as 0:00, and a day in milliseconds as that day, so that a label was there
    twice and refused all.
    """
    labels = pa.array([0, odd], pa.int64()).view(kind)
    with_odd_time = _counted_days(labels)[form]()
    without = _counted_days(labels.slice(0, 1))[form]()
    assert with_odd_time.labels.tolist() == without.labels.tolist()
    assert with_odd_time.counts.tolist() == without.counts.tolist()
    table = pa.table({"label": labels, "count": [30, 20]})
    assert Histogram(table).counts.tolist() == [30]


# For each type of DuckDB two values of which Python's were the same, and how many labels they are.
TIMES_OF_DUCKDB = [
    ("TIMESTAMP_NS", "2020-01-01 00:00:00.000000001", "2020-01-01 00:00:00.000000002", 2),
    ("DATE", "9999-12-31", "infinity", 1),
    ("TIMESTAMP", "9999-12-31 23:59:59.999999", "infinity", 1),
    ("TIMESTAMPTZ", "9999-12-31 23:59:59.999999+00", "infinity", 1),
    ("TIME_NS", "10:00:00", "10:00:00.000000001", 1),
    ("INTERVAL", "1 month", "30 days", 2),
    ("INTERVAL", "1 month", "99999999 years", 2),
]


@pytest.mark.parametrize(("kind", "first", "second", "labels"), TIMES_OF_DUCKDB)
def test_times_of_a_relation_stay_apart(kind, first, second, labels):
    """One user's time became that of others, whose counts were refused then, or an error of Python
    ended the question.
    """
    connection = duckdb.connect()
    rows = f"(VALUES ('{first}'::{kind}, 3), ('{second}'::{kind}, 1)) AS counts(day, n)"
    relation = connection.sql(f"FROM {rows}")
    if kind == "TIME_NS" and _has_no_arrow_values(relation):
        with pytest.raises(InvalidParameter, match="cast the column to VARCHAR"):
            Histogram(relation)
    else:
        assert Histogram(relation).counts.tolist() == [3, 1][:labels]
    connection.close()


def _has_no_arrow_values(relation: duckdb.DuckDBPyRelation) -> bool:
    """Whether this version of DuckDB cannot hand the relation's types to Arrow."""
    try:
        relation.to_arrow_table()
    except duckdb.NotImplementedException:
        return True
    return False


@pytest.mark.parametrize("count", [2**62, 2**63, 2**64, float(2**70)])
def test_a_count_of_a_table_that_is_too_large_is_cut(count):
    """The user who made it so large refused the counts of all others."""
    tables = [
        {"the": 2**53 + 1, "and": count},
        [("the", 2**53 + 1), ("and", count)],
        pd.DataFrame({"word": ["the", "and"], "n": pd.Series([2**53 + 1, count], dtype=object)}),
    ]
    if isinstance(count, int) and count < 2**64:
        tables.append(
            pa.table({"word": ["the", "and"], "n": pa.array([2**53 + 1, count], "uint64")})
        )
    found = [Histogram(table).counts.tolist() for table in tables]
    frame = pd.DataFrame({"word": ["the", "and"], "n": pd.Series([2**53 + 1, count], dtype=object)})
    found.append(Histogram.from_pandas(frame, label="word", count="n").counts.tolist())
    assert found == [[2**53 + 1, 2**62 - 1]] * len(found)


@pytest.mark.parametrize("events", [[0, 1, 1, 2], [0, 1, 1, 3]])
def test_integers_without_a_name_are_row_numbers_wherever_they_are(events):
    """Which of them pandas makes a RangeIndex, and so which were refused, depends on all users."""
    counts = pd.Series(np.bincount(events))
    present = counts[counts > 0]
    with pytest.raises(InvalidParameter, match="name the index"):
        Histogram(present)
    named = Histogram(present.rename_axis("event"))
    assert named.counts.tolist() == [1, 2, 1]
    assert sorted(Histogram(pd.Series(events).value_counts()).counts.tolist()) == [1, 1, 2]
