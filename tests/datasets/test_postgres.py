"""PostgreSQL, for real: with a portable hash it gives the histograms that DuckDB gives, under any
collation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from ledger.test_postgresql import url  # noqa: F401

from dptopk import InvalidParameter

ibis = pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pytest.importorskip("psycopg")

from dptopk.datasets import (  # noqa: E402
    DuckDB,
    event_counts,
    events_histogram,
    segment_histograms,
    users_by_labels,
)
from dptopk.datasets.backends import contract  # noqa: E402
from dptopk.datasets.backends.base import OpenTable  # noqa: E402
from dptopk.datasets.backends.contract import TrialEngine  # noqa: E402
from dptopk.datasets.backends.postgres import POSTGRES  # noqa: E402

pytestmark = pytest.mark.slow
OPTIONS = {
    "user": "member",
    "item": "article",
    "labels_per_user": 2,
    "top": 8,
    "key": "k",
    "portable": True,
}
COLUMNS = """member text, article text COLLATE nocase, number bigint, day date, flag boolean,
    region text COLLATE nocase, weight double precision, price numeric, spelt text, id uuid"""


@pytest.fixture(scope="module")
def connection(url):  # noqa: F811
    opened = ibis.connect(url.replace("+psycopg", ""))
    yield opened
    opened.disconnect()


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(11)
    n = 1500
    labels = np.array(
        [
            "x",
            "X",
            "ü",
            "日本",
            "01",
            "1",
            "a b",
            'say "it", twice',
            "é",
            "e\u0301",
            "z" * 300,
            "-0",
        ]
    )
    frame = pd.DataFrame(
        {
            "member": [f"m{u}" for u in rng.integers(0, 150, n)],
            "article": labels[rng.zipf(1.5, n) % len(labels)],
            "number": rng.integers(-5, 30, n),
            "day": (
                pd.Timestamp(2024, 1, 1) + pd.to_timedelta(rng.integers(0, 9, n), unit="D")
            ).date,
            "flag": rng.random(n) < 0.5,
            "region": rng.choice(["north", "North", "west"], n),
            "weight": rng.choice([-2.0, 0.4, 1.0, 2.5, 1e300, np.inf, np.nan], n),
            "price": rng.choice([-2.0, 0.4, 1.0, 2.5], n),
            "spelt": rng.choice(["1", "2.5", "1_000", "1d", "", "nan", " 3 "], n),
            "id": [f"00000000-0000-0000-0000-{u:012d}" for u in rng.integers(0, 9, n)],
        }
    )
    frame.loc[::50, "member"] = None
    frame.loc[7::50, "article"] = None
    return frame


@pytest.fixture(scope="module")
def table(connection, events):
    with connection.con.cursor() as cursor:
        cursor.execute(
            "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic "
            "= false)"
        )
        cursor.execute(f"CREATE TABLE clicks ({COLUMNS})")
        with cursor.copy("COPY clicks FROM STDIN") as copy:
            for member, article, *others in events.itertuples(index=False):
                named = [None if pd.isna(value) else value for value in (member, article)]
                copy.write_row([*named, *others])
    connection.con.commit()
    return connection.table("clicks")


def rows(histogram):
    return list(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"per_label_cap": 3, "choose": "top"},
        {"per_label_cap": 2, "weight": "weight"},
        {"per_label_cap": 2, "weight": "price"},
        {"per_label_cap": 3, "weight": "spelt"},
        {"item": "number", "top": None},
        {"item": "day", "where": {"region": ["north", "west"], "flag": True}},
        {"item": "id", "where": lambda t: t.number > 0},
        {"user": "flag", "labels_per_user": None},
    ],
    ids=lambda change: (
        ", ".join(f"{name}={getattr(value, '__name__', value)}" for name, value in change.items())
        or "plain"
    ),
)
def test_the_answers_are_those_of_duckdb(table, events, change):
    found, same = (events_histogram(each, **(OPTIONS | change)) for each in (table, events))
    assert sorted(rows(found)) == sorted(rows(same))
    if found.limit is not None:
        assert rows(found) == rows(same)
    assert len(found) > 1


def test_both_histograms_are_those_of_duckdb(table, events):
    options = {name: value for name, value in OPTIONS.items() if name != "top"}
    found, same = (event_counts(each, **options) for each in (table, events))
    assert sorted(rows(found)) == sorted(rows(same))
    assert sorted(rows(found.under_cap)) == sorted(rows(same.under_cap))
    assert sum(found.counts) > sum(found.under_cap.counts)


WEIGHTED = {
    "user": "member",
    "item": "article",
    "labels_per_user": 3,
    "key": "k",
    "portable": True,
    "weights": True,
}


def all_of(both):
    """Every histogram of an EventCounts, as sorted rows."""
    looked = (both.profile, *map(both.under, both.narrow)) if both.profile is not None else ()
    return [sorted(rows(each)) for each in (both, both.under_cap, *looked)]


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize(
    "change", [{}, {"choose": "top"}, {"where": {"region": ["north", "west"]}}], ids=str
)
def test_weights_and_profiles_are_those_of_duckdb(table, events, change, profile):
    found, same = (
        event_counts(each, **WEIGHTED | change, profile=profile) for each in (table, events)
    )
    assert all_of(found) == all_of(same)
    assert (found.under_cap.sensitivity.l2, found.profile is not None) == (100, profile)
    assert sum(found.under_cap.counts) > 50 * len(found)


def test_weights_by_segments_are_those_of_duckdb(table, events):
    options = WEIGHTED | {
        "segment": "region",
        "segments": ["west", "north"],
        "segments_per_user": 1,
    }
    found, same = (
        segment_histograms(each, **options, count_capped=False, profile=True)
        for each in (table, events)
    )
    assert [all_of(found[name]) for name in found] == [all_of(same[name]) for name in same]


def test_one_user_moves_weights_and_profile_as_they_say(connection, table):
    """With the engine's own hash: random users left out, against the norm of 100, and one cell of
    the profile.
    """
    options = {
        "user": "member",
        "item": "article",
        "labels_per_user": 3,
        "weights": True,
        "profile": True,
    }
    before = event_counts(table, **options)
    for member in (f"m{user}" for user in np.random.default_rng(5).integers(0, 150, 12)):
        after = event_counts(table, **options, where=lambda t, member=member: t.member != member)
        moved = {
            name: count - dict(rows(after.under_cap)).get(name, 0)
            for name, count in rows(before.under_cap)
        }
        assert min(moved.values()) >= 0
        assert sum(move**2 for move in moved.values()) <= 100**2
        assert sum(move > 0 for move in moved.values()) <= 3
        cells = before.profile.counts - after.profile.counts
        assert sorted(cells) == [0] * (len(cells) - 1) + [1]
        for cap in before.narrow:
            less = dict(rows(after.under(cap)))
            moves = [count - less.get(name, 0) for name, count in rows(before.under(cap))]
            assert set(moves) <= {0, 1}
            assert sum(moves) <= cap


def test_segments_and_users_by_labels(table, events):
    options = OPTIONS | {
        "segment": "region",
        "segments": ["west", "north"],
        "segments_per_user": 1,
        "top": 3,
    }
    for name, histogram in segment_histograms(table, **options).items():
        assert rows(histogram) == rows(segment_histograms(events, **options)[name])
    options = {"user": "member", "item": "article"}
    assert rows(users_by_labels(table, **options)) == rows(users_by_labels(events, **options))


def test_the_hash_of_the_engine_itself(table):
    """Another choice than DuckDB's, of as many pairs, and the same when asked again."""
    options = OPTIONS | {"top": None}
    native = [rows(events_histogram(table, **(options | {"portable": False}))) for _ in range(2)]
    assert native[0] == native[1]
    assert sum(count for _, count in native[0]) == sum(
        count for _, count in rows(events_histogram(table, **options))
    )


def test_events_are_sorted_once_and_ranked_up_to_the_cap(connection, table, monkeypatch):
    """Where few events repeat, those are dropped by the sort of the ranking, and a place beyond
    the cap ends it.
    """
    monkeypatch.setattr("dptopk.datasets.first_events.REPEATED", 0.0)
    asked = []
    source = OpenTable(
        table, lambda asks: asked.append(asks) or connection.to_pyarrow(asks), POSTGRES
    )
    for user in ("member", "number"):
        events_histogram(source, **OPTIONS | {"user": user, "portable": False})
        with connection.con.cursor() as cursor:
            cursor.execute("EXPLAIN " + ibis.to_sql(asked[-1], dialect="postgres"))
            below = "\n".join(row[0] for row in cursor.fetchall()).partition("WindowAgg")[2]
            cursor.execute("SELECT current_setting('server_version_num')::int >= 150000")
            stops = cursor.fetchone()[0]
        assert below.count("Unique") == below.count("Sort  (") == 1
        assert "HashAggregate" not in below
        assert ("Run Condition" in below) == stops


@pytest.mark.parametrize("user", ["member", "number"])
def test_pairs_are_made_distinct_first_where_many_events_repeat(table, monkeypatch, user):
    columns = {"user": user, "item": "article"}

    def ask():
        source = OpenTable(
            table, lambda asks: asked.append(asks) or table.get_backend().to_pyarrow(asks), POSTGRES
        )
        asked = []
        found = [rows(events_histogram(source, **columns, labels_per_user=2))]
        both = event_counts(source, **columns, labels_per_user=2, weights=True, profile=True)
        found += [rows(both), rows(both.under_cap), rows(both.profile)]
        return found, "TSVECTORIN" in ibis.to_sql(asked[-1], dialect="postgres")

    found, sorts_events = ask()
    monkeypatch.setattr("dptopk.datasets.first_events.REPEATED", 0.0)
    expected, sorted_events = ask()
    assert found == expected
    assert (sorts_events, sorted_events) == (False, True)


def test_numbers_that_are_none_and_settings_that_write_dates(connection):
    with connection.con.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE odd (u int, i date, w numeric)")
        cursor.execute(
            "INSERT INTO odd VALUES (1, '2024-01-31', 'NaN'), (2, '2024-01-31', 3), (3, "
            "'2024-02-01', 1e30)"
        )
        cursor.execute("SET datestyle = 'German'")
    odd = connection.table("odd")
    found = events_histogram(
        odd, user="u", item="i", weight="w", labels_per_user=1, per_label_cap=2
    )
    assert dict(rows(found)) == {"2024-01-31": 2, "2024-02-01": 2}


def test_refusals_show_no_value(connection, table):
    with pytest.raises(InvalidParameter, match="engine"):
        events_histogram(table, **OPTIONS, engine=DuckDB(memory_limit="1GB"))
    with pytest.raises(InvalidParameter, match="table") as caught:
        events_histogram(table, **OPTIONS, where=lambda t: t.article.cast("int64") > 0)
    assert "日本" not in str(caught.value)
    assert caught.value.__context__ is None
    connection.con.rollback()
    assert len(events_histogram(table, **OPTIONS)) == 8


class Collated(TrialEngine):
    """Texts in columns of a type or collation in which different texts are equal."""

    kind = ""

    def table(self, **columns):
        plain = super().table(**columns)
        types = {
            name: self.kind if isinstance(values[0], str) else "bigint"
            for name, values in columns.items()
        }
        with self.connection.con.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS tried")
            cursor.execute(
                f"CREATE TEMP TABLE tried "
                f"({', '.join(f'{name} {kind}' for name, kind in types.items())})"
            )
            with cursor.copy("COPY tried FROM STDIN") as copy:
                for row in zip(*columns.values(), strict=True):
                    copy.write_row(row)
        self.connection.con.commit()
        return replace(plain, table=self.connection.table("tried"))


@pytest.mark.parametrize("kind", ["text", "text COLLATE nocase", "citext", "char(12)"])
def test_users_are_one_where_the_column_takes_their_texts_for_equal(
    connection, table, kind, monkeypatch
):
    if kind == "citext":
        with connection.con.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'")
            if not cursor.fetchone()[0]:
                pytest.skip("this server has no citext")
            cursor.execute("CREATE EXTENSION IF NOT EXISTS citext")
    texts = ("Ann", "ANN", "ann", "aNN", "Bob", "é", "e\u0301", "z")
    monkeypatch.setattr(contract, "TEXTS", texts)
    monkeypatch.setattr(Collated, "kind", kind)
    contract.users_are_one_where_texts_are_equal(Collated(connection, POSTGRES))
    monkeypatch.setattr(OpenTable, "equates_texts", lambda *_: False)
    if kind in {"text COLLATE nocase", "citext"}:
        with pytest.raises(contract.Broken):
            contract.users_are_one_where_texts_are_equal(Collated(connection, POSTGRES))


def test_numeric_users_and_labels(connection):
    with connection.con.cursor() as cursor:
        cursor.execute("CREATE TEMP TABLE numbered (u numeric, i numeric(20, 0))")
        cursor.execute(
            "INSERT INTO numbered VALUES (7, 1), (7.0, 2), ('NaN', 3), (7.5, 3), (1e25, "
            "12345678901234567890)"
        )
    found = events_histogram(connection.table("numbered"), user="u", item="i", labels_per_user=None)
    assert dict(rows(found)) == {"1": 1, "2": 1, "12345678901234567890": 1}
    capped = events_histogram(connection.table("numbered"), user="u", item="i", labels_per_user=1)
    assert sum(capped.counts) == 2  # 7 and 7.0 are one user


def test_enums_are_labels_and_users(connection):
    with connection.begin() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy')")
        cursor.execute("CREATE TABLE moods (u mood, i mood, n int, place point, code oid)")
        cursor.execute("INSERT INTO moods VALUES ('sad', 'happy', 1), ('happy', 'so so', 2)")
        cursor.execute("INSERT INTO moods VALUES ('happy', 'happy', 3), (NULL, 'sad', 4)")
    table = connection.table("moods")
    options = {"user": "u", "item": "i", "labels_per_user": 2}
    assert rows(events_histogram(table, **options)) == [("happy", 2), ("so so", 1)]
    found = events_histogram(table, **options, portable=True, where={"u": "happy"})
    assert sorted(rows(found)) == [("happy", 1), ("so so", 1)]


def test_identifiers_of_objects_are_compared_as_integers(connection):
    with connection.begin() as cursor:
        cursor.execute("CREATE TABLE coded (u text, i text, code oid, n bigint)")
        cursor.execute("INSERT INTO coded VALUES ('a', 'x', 5, -1), ('b', 'x', 7, 7)")
    options = {"user": "u", "item": "i", "labels_per_user": 2}
    found = events_histogram(connection.table("coded"), **options, where=lambda t: t.code == t.n)
    assert rows(found) == [("x", 1)]


def test_decimals_beyond_floating_point_are_weights(connection):
    with connection.begin() as cursor:
        cursor.execute("CREATE TABLE long_decimals (u text, i text, w numeric(400, 1))")
        cursor.execute("INSERT INTO long_decimals VALUES ('a', 'x', 10::numeric ^ 390)")
        cursor.execute("INSERT INTO long_decimals VALUES ('b', 'x', 'NaN'), ('c', 'x', 1.5)")
    options = {"user": "u", "item": "i", "labels_per_user": 2, "per_label_cap": 3}
    found = events_histogram(connection.table("long_decimals"), weight="w", **options)
    assert rows(found) == [("x", 4)]


FALLIBLE = {
    "a division": (lambda t: 6 / (t.w - 2) < 0, {"7"}),
    "a remainder": (lambda t: 6 % (t.w - 2) >= 0, {"7", "8"}),
    "an overflow": (lambda t: t.w + 1 > 0, {"7", "x"}),
    "a product": (lambda t: t.w * t.w > 0, {"7", "x"}),
    "a narrow integer": (lambda t: t.w.cast("int16") > 0, {"7", "x"}),
    "a rounding": (lambda t: t.f.floor() > 0, {"x"}),
    "a year": (lambda t: t.d.year() > 2000, {"7"}),
    "a large number": (lambda t: t.f > 100, {"8"}),
}


def test_operations_that_fail_for_a_row_give_null(connection):
    with connection.begin() as cursor:
        cursor.execute(
            "CREATE TABLE fallible (u text, i text, w bigint, f double precision, d date)"
        )
        cursor.execute("INSERT INTO fallible VALUES ('a', '7', 1, 'NaN', '2024-01-01')")
        cursor.execute("INSERT INTO fallible VALUES ('b', 'x', 2, 1.5, 'infinity')")
        cursor.execute("INSERT INTO fallible VALUES ('c', '8', 9223372036854775807, 1e300, NULL)")
    table = connection.table("fallible")
    options = {"user": "u", "item": "i", "labels_per_user": 2}
    for name, (where, expected) in FALLIBLE.items():
        found = events_histogram(table, **options, where=where)
        assert set(found.labels.tolist()) == expected, name
    with pytest.raises(InvalidParameter, match="Cast may fail"):
        events_histogram(table, **options, where=lambda t: t.i.cast("int64") > 0)


# Under a collation in which different texts are equal PostgreSQL lacks some operations, and says so
# when it meets a text.
OF_COLLATIONS = {
    "pattern": lambda t: t.spelt.like("h%"),
    "part": lambda t: t.spelt.contains("h"),
    "place": lambda t: t.spelt.find("l") > 0,
    "replacement": lambda t: t.spelt.replace("h", "x") == "xello",
    "two collations": lambda t: t.spelt == t.plain,
    "a choice between two": lambda t: ibis.ifelse(t.u == "a", t.spelt, t.plain) == "hello",
    "joined": lambda t: (t.spelt + t.plain) == "hello",
    "none that is lacked": lambda t: t.spelt.upper() == "HELLO",
}


@pytest.fixture(scope="module")
def collated(connection):
    rows = """u text, i text, spelt text COLLATE alike, plain text COLLATE "C", day date"""
    with connection.begin() as cursor:
        cursor.execute(
            "CREATE COLLATION alike (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false)"
        )
        cursor.execute(f"CREATE TABLE texts ({rows})")
        cursor.execute(f"CREATE TABLE no_texts ({rows})")
        cursor.execute(
            "INSERT INTO texts VALUES ('a', 'x', 'Hello', 'z', '0044-03-15 BC'), "
            "('b', 'y', NULL, NULL, '0044-03-15'), ('c', 'y', NULL, NULL, 'infinity')"
        )
    return [connection.table(name) for name in ("texts", "no_texts")]


def answer_or_refusal(table, **options):
    try:
        histogram = events_histogram(table, user="u", labels_per_user=None, **options)
    except InvalidParameter as error:
        return str(error)
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


@pytest.mark.parametrize("name", OF_COLLATIONS)
def test_no_text_of_a_row_decides_whether_an_operation_is_there(collated, name):
    with_text, without = (
        answer_or_refusal(table, item="i", where=OF_COLLATIONS[name]) for table in collated
    )
    if name == "none that is lacked":
        assert (with_text, without) == ({"x": 1}, {})
    else:
        assert "for texts of this collation" in with_text
        assert with_text == without


def test_numbers_in_texts_of_a_collation_are_refused_for_all_rows_alike(collated):
    answers = [answer_or_refusal(table, item="i", weight="spelt") for table in collated]
    assert "weight: postgres has no RegexSearch" in answers[0]
    assert answers[0] == answers[1]


def test_a_day_before_christ_is_no_other_day(collated):
    assert answer_or_refusal(collated[0], item="day") == {"0044-03-15": 1}


def test_a_database_in_another_encoding_is_refused(connection, url):  # noqa: F811
    import psycopg

    address = url.replace("+psycopg", "")
    with psycopg.connect(address, autocommit=True) as server:
        server.execute(
            "CREATE DATABASE latin ENCODING 'WIN1252' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    other = ibis.connect(address.removesuffix("/postgres") + "/latin")
    try:
        with other.begin() as cursor:
            cursor.execute("CREATE TABLE texts (u int, i int, s text)")
        answer = answer_or_refusal(other.table("texts"), item="i", where={"s": "k"})
    finally:
        other.disconnect()
    assert "stores text in WIN1252" in answer
