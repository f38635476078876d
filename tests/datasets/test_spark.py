"""Spark, in local mode: with the same key and a portable hash it gives the histograms that DuckDB
gives.
"""

from __future__ import annotations

import datetime as dt
import logging
import shutil
import sys
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from dptopk import Budget, InvalidParameter, Session

if shutil.which("java") is None:
    pytest.skip("Spark needs Java, and there is no java on the PATH", allow_module_level=True)
pytest.importorskip("pyspark", reason="Spark tests need the extra spark")
ibis = pytest.importorskip("ibis")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from dptopk.datasets import (  # noqa: E402
    DuckDB,
    Spark,
    event_counts,
    events_histogram,
    segment_histograms,
    unread_labels,
)
from dptopk.datasets.backends import spark, spark_rows  # noqa: E402
from dptopk.datasets.backends.contract import CHECKS, Broken, TrialEngine  # noqa: E402
from dptopk.datasets.backends.contract_files import FILE_CHECKS  # noqa: E402
from dptopk.datasets.backends.spark import SPARK  # noqa: E402
from dptopk.datasets.warehouse import events_statement  # noqa: E402
from dptopk.histogram.stored_labels import StoredLabels  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session():
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(11)
    n = 1500
    labels = np.array(
        [
            "x",
            "ü",
            "日本",
            "01",
            "1",
            "a b",
            'say "it", twice',
            "é",
            "e\u0301",
            "👩‍👩‍👧",
            "z" * 300,
            "-0",
        ]
    )
    weights = rng.choice([-2.0, 0.4, 1.0, 2.5, 1e300, np.inf, np.nan], n)
    frame = pd.DataFrame(
        {
            "member": [f"m{u}" for u in rng.integers(0, 150, n)],
            "article": labels[rng.zipf(1.5, n) % len(labels)],
            "number": rng.integers(-5, 30, n),
            "day": [dt.date(2024, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 9, n)],
            "flag": rng.random(n) < 0.5,
            "region": rng.choice(["north", "south", "west"], n),
            "weight": weights,
        }
    )
    frame.loc[::50, "member"] = None
    frame.loc[7::50, "article"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("events")
    events.to_parquet(path / "events.parquet")
    events[["member", "article", "region"]].to_csv(path / "events.csv", index=False)
    events[["member", "article", "region"]].to_json(
        path / "events.jsonl", orient="records", lines=True
    )
    return path


def rows(histogram):
    return list(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


OPTIONS = {
    "user": "member",
    "item": "article",
    "labels_per_user": 2,
    "top": 8,
    "key": "k",
    "portable": True,
}


@pytest.mark.parametrize("file", ["events.parquet", "events.csv", "events.jsonl"])
def test_files(session, folder, file):
    found = events_histogram(folder / file, **OPTIONS, engine=Spark(session=session))
    assert rows(found) == rows(events_histogram(folder / file, **OPTIONS, engine=DuckDB()))
    assert len(found) == 8
    assert not found.complete


@pytest.mark.parametrize(
    "change",
    [
        {"per_label_cap": 3, "choose": "top"},
        {"per_label_cap": 2, "weight": "weight"},
        {"item": "number"},
        {"item": "day", "where": {"region": ["north", "west"]}},
        {"user": "flag", "where": lambda t: t.weight > 0.5},
    ],
)
def test_choices_weights_types_and_filters(session, folder, change):
    path = folder / "events.parquet"
    found = events_histogram(path, **(OPTIONS | change), engine=Spark(session=session))
    assert rows(found) == rows(events_histogram(path, **(OPTIONS | change)))
    assert len(found) > 0


@pytest.mark.parametrize("change", [{}, {"per_label_cap": 3, "choose": "top"}, {"item": "number"}])
def test_the_hash_of_the_engine_itself(session, folder, events, change):
    """Another choice than DuckDB's, under the same bounds: without a cap on labels the two
    agree.
    """
    path, options = folder / "events.parquet", OPTIONS | change | {"portable": False, "top": None}
    first, second = (
        rows(events_histogram(path, **options, engine=Spark(session=session))) for _ in range(2)
    )
    assert first == second
    native, portable = (
        sum(count for _, count in found)
        for found in (first, rows(events_histogram(path, **options)))
    )
    if "per_label_cap" not in change:
        assert native == portable  # both keep min(Δ, labels) pairs of each member
    free = options | {"labels_per_user": None}
    spark = events_histogram(path, **free, engine=Spark(session=session))
    assert sorted(rows(spark)) == sorted(rows(events_histogram(path, **free)))


def test_both_histograms_are_those_of_duckdb(session, folder):
    path, options = (
        folder / "events.parquet",
        {name: value for name, value in OPTIONS.items() if name != "top"},
    )
    found, same = (
        event_counts(path, **options, engine=Spark(session=session)),
        event_counts(path, **options),
    )
    assert sorted(rows(found)) == sorted(rows(same))
    assert sorted(rows(found.under_cap)) == sorted(rows(same.under_cap))
    native = event_counts(path, **(options | {"portable": False}), engine=Spark(session=session))
    assert sorted(rows(native)) == sorted(rows(same))
    assert native.under_cap.counts.sum() == same.under_cap.counts.sum()


def test_segments(session, folder):
    options = OPTIONS | {
        "segment": "region",
        "segments": ["south", "north"],
        "segments_per_user": 1,
        "top": 3,
    }
    found = segment_histograms(folder / "events.parquet", **options, engine=Spark(session=session))
    same = segment_histograms(folder / "events.parquet", **options)
    assert {name: rows(histogram) for name, histogram in found.items()} == {
        name: rows(histogram) for name, histogram in same.items()
    }


def test_a_spark_frame_and_an_ibis_table_bring_their_session(session, folder):
    path = folder / "events.parquet"
    answer = rows(events_histogram(path, **OPTIONS))
    frame = session.read.parquet(str(path))
    assert rows(events_histogram(frame, **OPTIONS)) == answer
    frame.createOrReplaceTempView("clicks")
    assert (
        rows(events_histogram(ibis.pyspark.connect(session).table("clicks"), **OPTIONS)) == answer
    )
    with pytest.raises(InvalidParameter, match="engine"):
        events_histogram(
            ibis.pyspark.connect(session).table("clicks"), **OPTIONS, engine=DuckDB(passes=2)
        )
    assert [table.name for table in session.catalog.listTables()] == [
        "clicks"
    ]  # nothing of ours is left


def test_a_frame_of_another_session_is_asked_there_and_leaves_no_view(session):
    other = session.newSession()
    frame = other.createDataFrame([("a", "x"), ("b", "x")], ["u", "i"])
    options = {"user": "u", "item": "i", "labels_per_user": 1}
    for engine in (None, Spark(session=other)):
        assert rows(events_histogram(frame, **options, engine=engine)) == [("x", 2)]
    with pytest.raises(InvalidParameter, match="another session"):
        events_histogram(frame, **options, engine=Spark(session=session))
    left = [*session.catalog.listTables(), *other.catalog.listTables()]
    assert not [view.name for view in left if view.name.startswith("dptopk")]


def test_hidden_files_are_no_rows(session, tmp_path):
    names = ("a.parquet", ".x.parquet", "_meta.parquet", "_temporary/0/p.parquet")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame({"u": [name], "i": ["x"]}).to_parquet(tmp_path / name)
    options = {"user": "u", "item": "i", "labels_per_user": 1}
    for engine in (Spark(session=session), DuckDB()):
        assert rows(events_histogram(tmp_path, **options, engine=engine)) == [("x", 1)]


def test_a_file_named_as_a_pattern_is_that_file_alone(session, tmp_path):
    for name in ("a", "[a]"):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"u,i\n1,{name}\n", encoding="utf-8")
        pd.read_csv(path, dtype=str).to_parquet(path.with_suffix(".parquet"))
    options = {"user": "u", "item": "i", "labels_per_user": 1, "engine": Spark(session=session)}
    for ending in ("csv", "parquet"):
        found = events_histogram(tmp_path / f"[a].{ending}", **options)
        assert rows(found) == [("[a]", 1)]


FALLIBLE = {
    "a cast": (lambda t: t.i.cast("int64") > 0, {"7", "8"}),
    "a division": (lambda t: 6 / (t.w - 2) < 0, {"7"}),
    "a remainder": (lambda t: 6 % (t.w - 2) >= 0, {"7", "8"}),
    "an overflow": (lambda t: t.w + 1 > 0, {"7", "x"}),
    "a narrow integer": (lambda t: t.w.cast("int8") > 0, {"7", "x"}),
}


def test_operations_that_fail_for_a_row_give_null(session):
    rows_ = [("a", "7", 1), ("b", "x", 2), ("c", "8", 2**63 - 1)]
    frame = session.createDataFrame(rows_, "u string, i string, w long")
    options = {"user": "u", "item": "i", "labels_per_user": 1}
    for where, expected in FALLIBLE.values():
        found = events_histogram(frame, **options, where=where)
        assert set(found.labels.tolist()) == expected


@contextmanager
def settings(session, **values):
    names = {name.replace("_", "."): value for name, value in values.items()}
    earlier = {name: session.conf.get(name) for name in names}
    for name, value in names.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in earlier.items():
            session.conf.set(name, value)


def test_one_row_leaves_out_no_others_where_damaged_files_are_ignored(session, tmp_path):
    """Spark left out all rows of the file, and answered."""
    times = pa.array([1, 2, 2**62, 3], pa.int64()).view(pa.timestamp("ms"))
    events = {"u": list("abcd"), "i": list("xyzx"), "t": times}
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    (tmp_path / "events.csv").write_text('u,i\na,x\nb,"y"z\nc,x\n', encoding="utf-8")
    engine = Spark(session=session)
    options = {"user": "u", "item": "i", "labels_per_user": 2}
    with settings(session, spark_sql_files_ignoreCorruptFiles="true"):
        for name in ("events.parquet", "events.csv"):
            where = (lambda t: t.t.year() > 0) if name == "events.parquet" else None
            with pytest.raises(InvalidParameter, match="could not"):
                events_histogram(tmp_path / name, **options, where=where, engine=engine)
        frame = session.read.parquet(str(tmp_path / "events.parquet"))
        frame.createOrReplaceTempView("ignored")
        for table in (frame, ibis.pyspark.connect(session).table("ignored")):
            with pytest.raises(InvalidParameter, match="ignoreCorruptFiles"):
                events_histogram(table, **options)
    session.catalog.dropTempView("ignored")


@pytest.mark.parametrize("int96", [False, True])
def test_a_day_of_the_old_calendar_refuses_no_file(session, tmp_path, int96):
    """By default Spark 3 refused a file that another program had written."""
    days = pa.array([0, 1, -200_000], pa.int32()).view(pa.date32())
    times = pa.array([0, 1, -(2**62)], pa.int64()).view(pa.timestamp("ns"))
    path = tmp_path / "events.parquet"
    events = {"u": list("abc"), "i": days}
    if int96:
        events = {"u": list("abc"), "i": list("xyz"), "t": times}
    pq.write_table(pa.table(events), path, use_deprecated_int96_timestamps=int96)
    options = {"user": "u", "item": "i", "labels_per_user": 2}
    if int96:
        options["where"] = lambda t: t.t.year() < 2000
    expected = dict(rows(events_histogram(path, **options)))
    assert len(expected) == 3
    names = ("datetimeRebaseModeInRead", "int96RebaseModeInRead")
    exceptions = {f"spark_sql_parquet_{name}": "EXCEPTION" for name in names}
    with settings(session, **exceptions):
        found = events_histogram(path, **options, engine=Spark(session=session))
    assert dict(rows(found)) == expected


def test_refusals(session, folder, tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"secret" * 100)
    with pytest.raises(InvalidParameter, match="table") as caught:
        events_histogram(broken, **OPTIONS, engine=Spark(session=session))
    assert "secret" not in str(caught.value)
    with pytest.raises(InvalidParameter, match="user"):
        events_histogram(
            folder / "events.parquet",
            **(OPTIONS | {"user": "nobody"}),
            engine=Spark(session=session),
        )
    with pytest.raises(InvalidParameter, match="table"):
        events_histogram(pd.DataFrame(), **OPTIONS, engine=Spark(session=session))


def test_a_condition_that_spark_does_not_take_is_refused_in_words(session, folder):
    """It ended in an error of Spark with the query and the schema."""
    with pytest.raises(InvalidParameter, match="could not run the query"):
        events_histogram(
            folder / "events.parquet",
            **OPTIONS,
            where=lambda t: t.member.cast("binary").cast("float64") > 0,
            engine=Spark(session=session),
        )


def test_folder_names_are_text_whatever_other_folders_are_called(session, tmp_path):
    for user, label in zip("abc", ["1", "01", "zz"], strict=True):
        (tmp_path / f"i={label}").mkdir()
        pd.DataFrame({"u": [user]}).to_parquet(tmp_path / f"i={label}" / "part.parquet")
    setting = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = session.conf.get(setting)
    for left_out in (None, "zz"):
        if left_out:
            shutil.rmtree(tmp_path / f"i={left_out}")
        found = events_histogram(
            tmp_path, user="u", item="i", labels_per_user=1, engine=Spark(session=session)
        )
        assert {"1", "01"} <= set(found.labels.tolist())
    assert session.conf.get(setting) == before


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_the_contract(session, check):
    check(TrialEngine(ibis.pyspark.connect(session), SPARK))


@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
def test_files_are_read_as_said(session, tmp_path, check):
    check(Spark(session=session), tmp_path)


def loosely(session, files):
    return session.read.csv(list(files.paths), header=True, inferSchema=False, multiLine=True)


@pytest.mark.parametrize("check", FILE_CHECKS[:2], ids=lambda check: check.__name__)
def test_a_loose_reader_of_files_is_caught(session, tmp_path, monkeypatch, check):
    monkeypatch.setitem(spark._FILES, "csv", loosely)
    with pytest.raises(Broken):
        check(Spark(session=session), tmp_path)


def test_users_under_a_collation(session):
    """Ann and ANN are one user where Spark takes them for equal."""
    frame = session.createDataFrame([("Ann", "x"), ("ANN", "y"), ("b", "x")], ["u", "i"])
    if not hasattr(frame.schema["u"].dataType, "collation"):
        pytest.skip("this Spark has no collations")
    frame = frame.selectExpr("u COLLATE UTF8_LCASE AS u", "i")
    for portable in (False, True):
        found = events_histogram(frame, user="u", item="i", labels_per_user=1, portable=portable)
        assert sum(found.counts) == 2


def test_texts_of_users_stay_texts_where_no_two_are_equal(session):
    """Their order is that of their bytes as it is; labels, which leave the engine, are made
    bytes.
    """
    frame = session.createDataFrame([("a", "x")], ["u", "i"])
    with Spark(session=session).open(frame, columns=None, table_name=None) as source:
        column = source.table.u
        assert source.user_column("u", column) is column
        assert source.exact_text(column).type().is_binary()


def test_files_of_a_folder_that_differ_in_type_are_refused(session, tmp_path):
    """As on DuckDB: else one file's types would be everybody's."""
    asked = {"user": "u", "item": "i", "labels_per_user": 2, "engine": Spark(session=session)}
    pd.DataFrame({"u": [3, 4], "i": [7, 2]}).to_parquet(tmp_path / "a.parquet")
    assert sorted(rows(events_histogram(tmp_path, **asked))) == [(2, 1), (7, 1)]
    pd.DataFrame({"u": [5], "i": [2]}).to_parquet(tmp_path / "c.parquet")
    assert sorted(rows(events_histogram(tmp_path, **asked))) == [(2, 2), (7, 1)]
    for other in (7.9, "02"):
        pd.DataFrame({"u": [5], "i": [other]}).to_parquet(tmp_path / "b.parquet")
        for table in (tmp_path, str(tmp_path / "*.parquet")):
            with pytest.raises(InvalidParameter, match="different types"):
                events_histogram(table, **asked)


def test_the_statement_of_a_warehouse_counts_as_here(session):
    rng = np.random.default_rng(4)
    labels = np.array(["x", "X", "\u00e9", "e\u0301", "a|b", "", *"abcdef"])
    events = pd.DataFrame({"u": rng.integers(0, 30, 400), "i": labels[rng.zipf(1.2, 400) % 12]})
    session.createDataFrame(events).createOrReplaceTempView("clicks")
    session.createDataFrame([("a secret",)], ["secret"]).createOrReplaceTempView("dptopk_key")
    names = {"table": "clicks", "user": "u", "item": "i"}
    result = session.sql(events_statement("spark", **names, labels_per_user=3)).toPandas()
    session.catalog.dropTempView("clicks")
    session.catalog.dropTempView("dptopk_key")
    options = {"labels_per_user": 3, "weights": True, "profile": True}
    columns = {"user": "u", "item": "i", "key": "a secret", "portable": True}
    found, same = event_counts(result, **options), event_counts(events, **columns, **options)
    assert sorted(rows(found)) == sorted(rows(same))
    assert sorted(rows(found.under_cap)) == sorted(rows(same.under_cap))
    assert found.profile.counts.tolist() == same.profile.counts.tolist()


@contextmanager
def set_in(session, settings):
    before = {name: session.conf.get(name) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


@pytest.fixture(scope="module")
def many(session):
    """A frame of events of texts and integers with many labels, in four partitions."""
    rng = np.random.default_rng(5)
    numbers = rng.integers(-150, 150, 900)
    odd = {4: "", 7: "a\0b", 8: "a\0a", 9: "é", 10: "Z"}
    texts = [odd.get(number, f"i{number}") for number in numbers]
    events = pd.DataFrame({"u": rng.integers(0, 120, 900), "text": texts, "number": numbers})
    return session.createDataFrame(events).repartition(4)


@pytest.mark.parametrize(
    ("item", "options"),
    [("text", {"weights": True, "profile": True}), ("number", {"per_label_cap": 2})],
)
def test_labels_that_stay_in_spark_are_those_that_are_read(many, item, options, monkeypatch):
    asked = {"user": "u", "item": item, "labels_per_user": 3, "key": "k", **options}
    read = event_counts(many, **asked)
    monkeypatch.setattr(unread_labels, "FEW", 16)
    monkeypatch.setattr(spark_rows, "BATCH", 100)
    parted = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
    with set_in(many.sparkSession, {**parted, "spark.sql.shuffle.partitions": "5"}):
        unread = event_counts(many, **asked)
    assert isinstance(unread.unread_labels, StoredLabels)
    assert not isinstance(read.unread_labels, StoredLabels)
    pairs = [(unread, read), (unread.under_cap, read.under_cap)]
    pairs += [(unread.under(cap), read.under(cap)) for cap in read.narrow]
    for one, other in pairs:
        assert one.counts.tolist() == other.counts.tolist()
        assert one.labels.tolist() == other.labels.tolist()
    chosen = np.array([7, 2, 250])
    names = read.labels[chosen].tolist()
    assert unread.unread_labels[chosen].tolist() == names
    others = [*names, "none", 2**70, "\ud800", None, 1.0]
    assert unread.positions(others).tolist() == read.positions(others).tolist()
    if read.profile is not None:
        assert unread.profile.counts.tolist() == read.profile.counts.tolist()


def test_a_seeded_answer_of_labels_that_stay_in_spark_reads_only_what_it_shows(many, monkeypatch):
    asked = {"user": "u", "item": "text", "budget": Budget(epsilon=8.0, delta=1e-3)}
    found, reads = [], []
    labels = spark_rows.SparkRows.labels_of_rows

    def counted(self, rows):
        reads.append(rows)
        return labels(self, rows)

    monkeypatch.setattr(spark_rows.SparkRows, "labels_of_rows", counted)
    for few in (1000, 16):
        monkeypatch.setattr(unread_labels, "FEW", few)
        session = Session.from_events(many, **asked, rng=np.random.default_rng(1))
        found.append(session.top_k(5).to_dict())
    assert found[0] == found[1]
    assert reads
    assert not any(rows is None for rows in reads)


def test_folders_of_columns_as_on_duckdb(tmp_path, session):
    """Below different folders, with columns that some files lack: one answer on both engines."""
    for place, folder in enumerate(("a/k=1", "k=2", "c/d/k=2", "k=[x]/sub")):
        path = tmp_path / folder
        path.mkdir(parents=True)
        frame = pd.DataFrame({"u": [str(place)], "i": ["x"]} | ({"z": ["q"]} if place else {}))
        frame.to_parquet(path / "f.parquet")
    options = {"user": "u", "item": "k", "labels_per_user": 5}
    found = [
        events_histogram(tmp_path, engine=engine, **options)
        for engine in (DuckDB(), Spark(session=session))
    ]
    for each in found:
        counts = dict(zip(each.labels.tolist(), each.counts.tolist(), strict=True))
        assert counts == {"1": 1, "2": 2, "[x]": 1}
    with pytest.raises(InvalidParameter, match="no column 'z'"):
        events_histogram(tmp_path, engine=Spark(session=session), **(options | {"item": "z"}))
    (tmp_path / "f.parquet").symlink_to(tmp_path / "k=2" / "f.parquet")
    with pytest.raises(InvalidParameter, match="found twice"):
        events_histogram(tmp_path, engine=Spark(session=session), **options)
    (tmp_path / "f.parquet").unlink()
    frame.to_parquet(tmp_path / "f.parquet")  # Spark read no file but this one's folder
    with pytest.raises(InvalidParameter, match="name them alike"):
        events_histogram(tmp_path, engine=Spark(session=session), **options)
    (tmp_path / "f.parquet").unlink()
    (tmp_path / "k=2").rename(tmp_path / "k=%C3%A9")
    with pytest.raises(InvalidParameter, match="Spark does not read"):
        events_histogram(tmp_path, engine=Spark(session=session), **options)


def test_names_and_numbers_that_spark_reads_in_its_own_way(tmp_path, session):
    """Spark refused a file with a backtick in a name, took 0.1 for another number than those of 32
    bits, and read isinf() as false.
    """
    frame = pd.DataFrame({"u": ["a", "b"], "i": ["x", "y"], "a`b": ["p", "q"]})
    frame["v"] = np.array([0.1, np.inf], dtype=np.float32)
    path = tmp_path / "k=1" / "f.parquet"
    path.parent.mkdir()
    frame.to_parquet(path)
    conditions = [{"v": 0.1}, {"a`b": "p"}, lambda t: ~t.v.isinf()]
    options = {"user": "u", "item": "i", "labels_per_user": 5, "engine": Spark(session=session)}
    for where in conditions:
        assert events_histogram(path, where=where, **options).labels.tolist() == ["x"]
    path.parent.rename(tmp_path / "%6B=1")
    with pytest.raises(InvalidParameter, match="for the % in it"):
        events_histogram(tmp_path, **options)
