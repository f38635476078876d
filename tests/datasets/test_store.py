"""A store gives, day by day, the histogram that reading everything would give."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from dptopk import Budget, Charge, InvalidParameter, Ledger, PureDP, Sensitivity
from dptopk.cli import app

ibis = pytest.importorskip("ibis")
duckdb = pytest.importorskip("duckdb")

from dptopk.datasets import EventsStore, events_histogram  # noqa: E402

COLUMNS = {"user": "who", "item": "what"}


def frame(events):
    return pd.DataFrame(events, columns=["who", "what"]).astype({"who": "string", "what": "string"})


def as_dict(histogram):
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


DAYS = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("uvwxyz")), max_size=12), max_size=4
)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    DAYS,
    st.sampled_from([1, 2, None]),
    st.integers(1, 3),
    st.sampled_from(["", "k"]),
    st.booleans(),
)
def test_day_by_day_is_all_at_once(tmp_path_factory, days, delta, cap, key, portable):
    options = COLUMNS | {
        "labels_per_user": delta,
        "per_label_cap": cap,
        "key": key,
        "portable": portable,
    }
    path = tmp_path_factory.mktemp("store") / "events.store"
    so_far = []
    with EventsStore(path, **options, partitions=True) as store:
        for number, day in enumerate(days):
            store.append(frame(day), version=str(number))
            so_far += day
            whole = events_histogram(frame(so_far), **options)
            found = store.histogram()
            assert as_dict(found) == as_dict(whole)
            assert found.sensitivity == whole.sensitivity == Sensitivity(linf=cap, l0=delta)
        for gone in ("", *{user for user, _ in so_far[:3]}):
            store.delete_user(gone)
            so_far, *days = (
                [event for event in day if event[0] != gone] for day in (so_far, *days)
            )
            assert as_dict(store.histogram()) == as_dict(events_histogram(frame(so_far), **options))
            for number, day in enumerate(days):
                found, alone = (
                    store.histogram(partition=str(number)),
                    events_histogram(frame(day), **options),
                )
                assert as_dict(found) == as_dict(alone)
                assert found.sensitivity == alone.sensitivity


@pytest.mark.parametrize("most", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_user_counts_on_the_first_days_alone(tmp_path, most):
    """What a day leaves out of a user depends on that user's events alone, and the sum of days
    leaves out nothing.
    """
    days = [
        [("a", "x"), ("b", "x")],
        [("a", "y"), ("a", "x")],
        [("b", "y"), ("c", "y")],
        [("a", "z"), ("b", "z")],
    ]
    with EventsStore(
        tmp_path / "e.store", **COLUMNS, labels_per_user=2, partitions=True, days_per_user=most
    ) as store:
        for number, day in enumerate(days):
            store.append(frame(day), version=str(number))
    active = {user: [n for n, day in enumerate(days) if user in dict(day)][:most] for user in "abc"}
    with EventsStore(tmp_path / "e.store") as store:
        assert store.days_per_user == most
        for number, day in enumerate(days):
            counted = [event for event in day if number in active[event[0]]]
            expected = events_histogram(frame(counted), **COLUMNS, labels_per_user=2)
            assert as_dict(store.histogram(partition=str(number))) == as_dict(expected)
        assert as_dict(store.histogram()) == as_dict(
            events_histogram(
                frame([event for day in days for event in day]), **COLUMNS, labels_per_user=2
            )
        )
        store.delete_user("a")
        store.append(frame([("a", "v")]), version="later")
        assert as_dict(store.histogram(partition="later")) == {"v": 1}


def test_days_per_user_needs_partitions_and_is_fixed(tmp_path):
    for most, partitions in ((2, False), (0, True), (1.5, True)):
        with pytest.raises(InvalidParameter, match="days_per_user"):
            EventsStore(tmp_path / "e.store", **COLUMNS, partitions=partitions, days_per_user=most)
    assert not (tmp_path / "e.store").exists()
    EventsStore(tmp_path / "e.store", **COLUMNS, partitions=True, days_per_user=2).close()
    with pytest.raises(InvalidParameter, match="days_per_user"):
        EventsStore(tmp_path / "e.store", **COLUMNS, partitions=True, days_per_user=3)


@pytest.mark.parametrize(
    "settings",
    [
        {"labels_per_user": 3},
        {"labels_per_user": 2},
        {"per_label_cap": 2},
        {"weight": "w"},
        {"key": "x"},
        {"portable": True},
        {"partitions": True},
        {"partitions": True, "days_per_user": 5},
    ],
    ids=str,
)
def test_settings_without_columns_are_refused_before_anything_is_opened(tmp_path, settings):
    """They were ignored, whatever the store was made with."""
    for content in (None, b"no store"):
        path = tmp_path / "e.store"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidParameter, match="fixed when it is made"):
            EventsStore(path, **settings)
        assert path.exists() == (content is not None)


def test_bounds_out_of_range_are_refused_without_columns_too(tmp_path):
    EventsStore(tmp_path / "e.store", **COLUMNS, labels_per_user=2).close()
    with pytest.raises(InvalidParameter, match="per_label_cap"):
        EventsStore(tmp_path / "e.store", per_label_cap=0)


@pytest.mark.slow
def test_it_reopens_by_its_path_and_refuses_other_settings(tmp_path):
    path = tmp_path / "events.store"
    with EventsStore(path, **COLUMNS, labels_per_user=2) as store:
        store.append(frame([("a", "x"), ("b", "x")]), version="monday")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with EventsStore(path) as store:
        assert store.versions == ("monday",)
        assert as_dict(store.histogram(top=1)) == {"x": 2}
        assert not store.histogram(top=1).complete
        with pytest.raises(InvalidParameter, match="version"):
            store.append(frame([("a", "y")]), version="monday")
        with pytest.raises(InvalidParameter, match="types"):
            store.append(pd.DataFrame({"who": [1], "what": ["x"]}), version="tuesday")
        assert store.versions == ("monday",)
        with pytest.raises(InvalidParameter, match="partitions=True"):
            store.histogram(partition="monday")
    for other in ({"labels_per_user": 3}, {"labels_per_user": 2, "partitions": True}):
        with pytest.raises(InvalidParameter, match=[*other][-1]):
            EventsStore(path, **COLUMNS, **other)
    with pytest.raises(InvalidParameter, match="no store"):
        EventsStore(tmp_path / "other.store")
    (tmp_path / "text.store").write_text("secret", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="no store") as caught:
        EventsStore(tmp_path / "text.store")
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("portable", [False, True])
def test_a_day_is_cut_before_it_leaves_its_engine(tmp_path, monkeypatch, portable):
    events = [
        (user, f"{item} is a label of more than twelve letters")
        for user in "abc"
        for item in range(20)
    ]
    with duckdb.connect(str(tmp_path / "day.duckdb")) as file:  # its columns are read as bytes
        file.register("rows", frame(events).astype(object))
        file.execute("CREATE TABLE day AS SELECT * FROM rows")
    options = COLUMNS | {"labels_per_user": 4, "portable": portable}
    left, keep = [], EventsStore._add_day
    monkeypatch.setattr(
        EventsStore,
        "_add_day",
        lambda self, day, items: (left.append(len(day)), keep(self, day, items)),
    )
    with EventsStore(tmp_path / "e.store", **options) as store:
        connection = ibis.duckdb.connect(tmp_path / "day.duckdb")
        store.append(connection.table("day"), version="1")
        connection.disconnect()
        assert left == [12]
        assert as_dict(store.histogram()) == as_dict(events_histogram(frame(events), **options))


@pytest.mark.slow
def test_integers_and_weights(tmp_path):
    events = pd.DataFrame({"who": [1, 1, 2, 2], "what": [7, 8, 7, 7], "w": [2.5, 0.2, 1, 9]})
    options = COLUMNS | {"weight": "w", "labels_per_user": 1, "per_label_cap": 4}
    with EventsStore(tmp_path / "e.store", **options) as store:
        store.append(events[:2], version="1")
        store.append(events[2:], version="2")
        assert as_dict(store.histogram()) == as_dict(events_histogram(events, **options)) == {7: 6}


@pytest.mark.slow
def test_numbers_beyond_63_bits_and_days_without_rows(tmp_path):
    """What is taken is decided by a column's type, never by a value: ids are often unsigned
    hashes.
    """
    events = pd.DataFrame(
        {"who": [1, 2**64 - 1, 2], "what": [2**64 - 2, 2**64 - 2, 3]}, dtype="uint64"
    )
    for portable in (False, True):
        options = COLUMNS | {"labels_per_user": 1, "portable": portable}
        with EventsStore(tmp_path / f"{portable}.store", **options) as store:
            store.append(events[:1], version="1")
            store.append(events[1:], version="2")
            assert (
                as_dict(store.histogram())
                == as_dict(events_histogram(events, **options))
                == {2**64 - 2: 2, 3: 1}
            )
            with pytest.raises(InvalidParameter, match="types"):
                store.append(events.astype("float64"), version="3")
    pd.DataFrame({"who": [], "what": []}, dtype=object).to_parquet(
        tmp_path / "empty.parquet"
    )  # columns of no type
    with EventsStore(tmp_path / "text.store", **COLUMNS) as store:
        store.append(tmp_path / "empty.parquet", version="1")
        store.append(frame([("a", "x")]), version="2")
        assert as_dict(store.histogram()) == {"x": 1}


def test_an_error_of_the_engine_quotes_no_data(tmp_path, monkeypatch):
    with EventsStore(tmp_path / "e.store", **COLUMNS) as store:
        monkeypatch.setattr("dptopk.datasets.store._CODE", {"VARCHAR": "item::BIGINT"})
        with pytest.raises(InvalidParameter, match="could not be changed") as caught:
            store.append(frame([("a", "secret")]), version="1")
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None
        assert store.versions == ()


def test_making_that_was_cut_short_is_done_again(tmp_path, monkeypatch):
    path = tmp_path / "events.store"

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EventsStore, "_make", interrupted)
        with pytest.raises(KeyboardInterrupt):
            EventsStore(path, **COLUMNS)
    assert list(tmp_path.iterdir()) == []  # Ctrl-C leaves nothing
    import duckdb

    duckdb.connect(str(path)).close()  # a crash may leave an empty database
    with pytest.raises(InvalidParameter, match="no store"):
        EventsStore(path)
    with EventsStore(path, **COLUMNS) as store:
        assert store.versions == ()


def test_a_store_is_refused_by_a_duckdb_of_another_hash(tmp_path, monkeypatch):
    for portable in (False, True):
        EventsStore(tmp_path / f"{portable}.store", **COLUMNS, portable=portable).close()
    monkeypatch.setattr(EventsStore, "_hash_fingerprint", lambda _: "another")
    EventsStore(tmp_path / "True.store").close()
    with pytest.raises(InvalidParameter, match="version of DuckDB"):
        EventsStore(tmp_path / "False.store")


def append_and_die(path, delay):
    import threading
    import time

    def die():
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
    rng = np.random.default_rng(0)
    day = [
        (f"u{u}", f"i{i}")
        for u, i in zip(rng.integers(0, 300, 20_000), rng.integers(0, 50, 20_000), strict=True)
    ]
    with EventsStore(path) as store:
        store.append(frame(day), version="second")


@pytest.mark.slow
@pytest.mark.parametrize("delay", [pytest.param(0.3, marks=pytest.mark.study), 0.6])
def test_a_killed_append_leaves_all_or_nothing(tmp_path, delay):
    path = tmp_path / "events.store"
    with EventsStore(path, **COLUMNS, labels_per_user=3) as store:
        store.append(frame([("a", "x")]), version="first")
        before = as_dict(store.histogram())
    process = multiprocessing.get_context("spawn").Process(
        target=append_and_die, args=(path, delay)
    )
    process.start()
    process.join(120)
    with EventsStore(path) as store:
        if store.versions == ("first",):
            assert as_dict(store.histogram()) == before
        else:
            assert store.versions == ("first", "second")
            assert sum(as_dict(store.histogram()).values()) == 1 + 300 * 3


@pytest.mark.slow
def test_refresh_sets_the_version_in_the_ledger(tmp_path):
    book, store = str(tmp_path / "ledger.db"), str(tmp_path / "events.store")
    with Ledger(book, create=True) as ledger:
        ledger.create_dataset(
            "clicks",
            registered=Charge({PureDP(0.1): 3}),
            delta=1e-6,
            sensitivity=Sensitivity(l0=2),
            unit="member",
            version="0",
        )
    for day in ("2026-01-01", "2026-01-02", "2026-01-02"):
        partition = tmp_path / f"{day}.csv"
        frame([("a", "x"), (day, "y")]).to_csv(partition, index=False)
        made = (
            ["--user-col", "who", "--item-col", "what", "--labels-per-user", "2"]
            if day.endswith("01")
            else []
        )
        command = [
            "refresh",
            store,
            str(partition),
            "--data-version",
            day,
            "--ledger",
            book,
            "--dataset",
            "clicks",
        ]
        result = CliRunner().invoke(app, command + made)
        assert result.exit_code == 0, result.output
    assert "2 partitions" in result.output
    with EventsStore(store) as events:
        assert as_dict(events.histogram()) == {"x": 1, "y": 2}
    with Ledger(book) as ledger:
        assert ledger.state("clicks").version == "2026-01-02"


@pytest.mark.slow
def test_refresh_makes_a_portable_store_and_forgets_no_setting(tmp_path):
    store, day = tmp_path / "events.store", tmp_path / "day.csv"
    frame([("a", "x")]).to_csv(day, index=False)

    def refresh(version, *more):
        command = ["refresh", store, day, "--data-version", version, *more]
        return CliRunner().invoke(app, [str(argument) for argument in command])

    made = refresh(
        "1", "--user-col", "who", "--item-col", "what", "--portable", "--labels-per-user", 3
    )
    assert made.exit_code == 0, made.output
    with EventsStore(store) as events:
        assert events.bounds.portable
        assert events.bounds.labels_per_user == 3
    for more in (("--portable",), ("--labels-per-user", 2), ("--per-label-cap", 1)):
        refused = refresh("2", *more)
        assert refused.exit_code == 2
        assert "fixed when a store is made" in refused.output
    assert refresh("2").exit_code == 0


@pytest.mark.slow
def test_a_stored_answer_is_given_again_for_the_same_version_alone(tmp_path):
    """On the command line: a day is added, the version is set by the same call, and the old answer
    is history.
    """
    book, store, day = (
        str(tmp_path / "ledger.db"),
        str(tmp_path / "clicks.store"),
        tmp_path / "day.csv",
    )

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    with Ledger(book, create=True, test=True) as ledger:
        budget = Budget(epsilon=9.0, delta=1e-5)
        ledger.create_dataset(
            "clicks", budget=budget, sensitivity=Sensitivity(l0=2), unit="member", version="0"
        )
    paying = ("--ledger", book, "--dataset", "clicks")
    columns = ("--user-col", "who", "--item-col", "what", "--labels-per-user", 2)

    def refresh(version, label):
        frame([(f"{version}{user}", label) for user in range(900)]).to_csv(day, index=False)
        made = columns if version == "1" else ()
        result = run("refresh", store, day, "--data-version", version, *paying, *made)
        assert result.exit_code == 0, result.output

    def ask(version, *more):
        asked = (
            "--k",
            2,
            "--epsilon",
            1,
            "--delta",
            1e-7,
            "--labels-per-user",
            2,
            "--format",
            "json",
            "--reuse",
        )
        return run(
            "topk",
            store,
            *asked,
            *paying,
            "--analyst",
            "ann",
            "--data-version",
            version,
            "--seed",
            1,
            *more,
        )

    def spent():
        with Ledger(book) as ledger:
            return ledger.spent("clicks")

    refresh("1", "x")
    first, once = json.loads(ask("1").stdout), spent()
    assert [row["label"] for row in first["rows"]] == ["x"]
    assert json.loads(ask("1").stdout)["rows"] == first["rows"]
    assert spent() == once
    refresh("2", "y")
    stale = ask("1")
    assert stale.exit_code == 2
    assert "version" in stale.output
    assert spent() == once
    assert {row["label"] for row in json.loads(ask("2").stdout)["rows"]} == {"x", "y"}
    assert spent() != once
    with Ledger(book) as ledger:
        head = ledger.head()
        refresh("2", "y")  # run again: the ledger is at that version, and nobody has moved
        assert ledger.head() == head
    refused = ask("2", "--per-label-cap", 3)
    assert refused.exit_code == 2
    assert "contradicts the ledger" in refused.output


@pytest.mark.parametrize(
    ("who", "what"), [("int8", "int16"), ("int32", "uint8"), ("uint64", "int32")]
)
def test_integers_of_any_width_are_kept_as_all_at_once(tmp_path, who, what):
    """Negative ones too, whose hashes DuckDB makes of their width."""
    rng = np.random.default_rng(0)
    users, items = (
        rng.integers(-9, 9, 60) + 9 * who.startswith("u"),
        rng.integers(-4, 4, 60) + 4 * what.startswith("u"),
    )
    events = pd.DataFrame({"who": users.astype(who), "what": items.astype(what)})
    with EventsStore(tmp_path / "e.store", **COLUMNS, labels_per_user=2) as store:
        store.append(events[:30], version="1")
        store.append(events[30:], version="2")
        assert as_dict(store.histogram()) == as_dict(
            events_histogram(events, **COLUMNS, labels_per_user=2)
        )


def test_users_whose_texts_are_equal_under_a_collation_are_refused(tmp_path):
    """Days come one by one: which text stands for a user is not known from the other days."""
    import ibis

    own = ibis.duckdb.connect()
    own.con.execute("CREATE TABLE clicks (who VARCHAR COLLATE NOCASE, what VARCHAR)").fetchall()
    with EventsStore(tmp_path / "e.store", **COLUMNS) as store:
        with pytest.raises(InvalidParameter, match="collation"):
            store.append(own.table("clicks"), version="1")
        store.append(
            own.table("clicks").mutate(who=ibis._.who.lower().cast("binary").cast("string")),
            version="1",
        )
