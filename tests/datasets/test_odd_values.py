"""No value of one user decides whether there is an answer, or whose other rows count."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest

from dptopk import InvalidParameter

ibis = pytest.importorskip("ibis")
duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from datasets.odd_files import csv, disagreement, drawn, lines_of_json, parquet  # noqa: E402
from dptopk.datasets import (  # noqa: E402
    Backend,
    DuckDB,
    EventsStore,
    events_histogram,
    segment_histograms,
    users_by_labels,
)
from dptopk.datasets.backends.contract_files import FILE_CHECKS  # noqa: E402
from dptopk.datasets.backends.datafusion import DATAFUSION  # noqa: E402
from dptopk.datasets.backends.duckdb_operations import DUCKDB  # noqa: E402
from dptopk.datasets.backends.extremes import (  # noqa: E402
    planned_without_extremes,
    statements_beside,
)
from dptopk.datasets.backends.postgres import POSTGRES  # noqa: E402
from dptopk.datasets.backends.readable import ReadableFiles  # noqa: E402
from dptopk.datasets.backends.relation import from_relation  # noqa: E402
from dptopk.datasets.backends.spark import SPARK  # noqa: E402
from dptopk.datasets.backends.total import total_expression  # noqa: E402
from dptopk.datasets.columns import constant_of_type  # noqa: E402

NAN = float("nan")
OPTIONS = {"user": "u", "item": "i"}


def counts(table, **options):
    found = events_histogram(table, **({**OPTIONS, "labels_per_user": 5} | options))
    return dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True))


@pytest.fixture
def with_nan(tmp_path):
    path = tmp_path / "events.parquet"
    table = pa.table(
        {"u": [1.0, NAN, 2.0], "i": ["x", "y", "x"], "n": [1.0, 1.0, NAN], "s": ["a"] * 3}
    )
    pq.write_table(table, path)
    return path


def in_one_segment(path):
    found = segment_histograms(path, **OPTIONS, segment="s", segments=["a"], labels_per_user=2)
    return found["a"].counts.tolist()


ASKED = {
    "users": lambda path: counts(path) == {"x": 2},
    "labels": lambda path: counts(path, user="i", item="u") == {1: 1, 2: 1},
    "integer labels": lambda path: counts(path, item="n") == {1: 1},
    "users by labels": lambda path: users_by_labels(path, **OPTIONS).counts[0] == 2,
    "segments": lambda path: in_one_segment(path) == [2],
    "all events": lambda path: counts(path, labels_per_user=None) == {"x": 2},
}


@pytest.mark.parametrize("name", ASKED)
def test_nan_in_a_parquet_file_is_missing(with_nan, name):
    assert ASKED[name](with_nan)


def test_nan_in_a_parquet_file_is_missing_in_a_store(with_nan, tmp_path):
    with EventsStore(tmp_path / "e.store", **OPTIONS, labels_per_user=2) as store:
        store.append(with_nan, version="1")
        assert store.histogram().counts.tolist() == [2]


@pytest.mark.parametrize("of_the_caller", [False, True], ids=["path", "Ibis table"])
@pytest.mark.parametrize(
    "where", [lambda t: t.v > 100, lambda t: ~(t.v <= 100)], ids=["above", "not below"]
)
def test_statistics_of_a_file_do_not_let_one_user_decide_about_anothers_row(
    tmp_path, where, of_the_caller
):
    """The row with NaN counts the same, whether or not another's value is above the bound."""
    labels = []
    for largest in (5.0, 200.0):
        path = tmp_path / f"{largest}.parquet"
        pq.write_table(pa.table({"u": ["a", "b"], "i": ["x", "y"], "v": [NAN, largest]}), path)
        table = ibis.duckdb.connect().read_parquet(path) if of_the_caller else path
        labels.append(counts(table, where=where))
    assert labels == [{}, {"y": 1}]


EVENTS = {
    "u": ["a", "b", "c"],
    "i": ["7", "x", "8"],
    "w": [1, 2, 2**63 - 1],
    "f": [1.5, 0.0, 1e300],
}
FALLIBLE = {
    "a cast": (lambda t: t.i.cast("int64") > 0, {"7": 1, "8": 1}),
    "a division of integers": (lambda t: 6 // (t.w - 2) < 0, {"7": 1}),
    "a remainder": (lambda t: 6 % (t.w - 2) >= 0, {"7": 1, "8": 1}),
    "an overflow": (lambda t: t.w + 1 > 0, {"7": 1, "x": 1}),
    "a product": (lambda t: t.w * t.w > 0, {"7": 1, "x": 1}),
    "a rounding": (lambda t: t.f.floor() >= 0, {"7": 1, "x": 1}),
    "a narrow integer": (lambda t: t.w.cast("int8") > 0, {"7": 1, "x": 1}),
}


@pytest.mark.parametrize("name", FALLIBLE)
def test_an_operation_that_fails_for_a_row_gives_null(name):
    where, expected = FALLIBLE[name]
    assert counts(pa.table(EVENTS), where=where) == expected


@pytest.mark.parametrize("role", ["user", "item", "weight"])
def test_a_cast_in_a_table_that_fails_for_a_row_gives_null(role):
    with duckdb.connect() as connection:
        events = pa.table(EVENTS)
        connection.register("events", events)
        table = ibis.duckdb.from_connection(connection).table("events")
        cast = table.mutate(n=table.i.cast("int64"))
        assert sum(counts(cast, **{role: "n"}).values()) == 2


@pytest.mark.parametrize("backend", [DUCKDB, SPARK, POSTGRES, DATAFUSION], ids=lambda b: b.name)
def test_what_no_engine_can_make_total_is_refused_by_name(backend):
    table = ibis.table({"i": "string", "w": "int64"})
    with pytest.raises(InvalidParameter, match="where: Repeat may fail"):
        total_expression("where", table.i.repeat(table.w) == "x", backend)
    with pytest.raises(InvalidParameter, match="Cast may fail"):
        total_expression("where", table.i.cast("int64") > 0, Backend(name=backend.name))


def test_a_long_cell_of_a_text_file_is_a_label(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("u,i\na,x\nb," + "y" * 3_000_000 + "\nc,x\n", encoding="utf-8")
    assert sorted(counts(path).values()) == [1, 2]


@pytest.mark.parametrize("engine", [DuckDB()], ids=["duckdb"])
@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
def test_the_embedded_engine_keeps_the_contract_of_files(engine, check, tmp_path):
    check(engine, tmp_path)


def test_bytes_that_are_no_text_are_missing_in_arrow_data_and_below_folders(tmp_path):
    stored = pa.array([b"x", b"caf\xe9", b"x"], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 3, stored.buffers())
    table = pa.table({"u": ["a", "b", "c"], "i": texts})
    assert counts(table) == {"x": 2}
    for day in ("01", "a%20b"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(table, tmp_path / f"day={day}" / "1.parquet")
    assert counts(tmp_path, item="day", where=lambda t: t.i == "x") == {"01": 2, "a b": 2}


def with_bytes_that_are_no_text(kind):
    """A column of x, bytes that are not UTF-8, x and z."""
    stored = [b"x", b"caf\xe9", b"x", b"z"]
    binary = {
        pa.string(): pa.binary(),
        pa.large_string(): pa.large_binary(),
        pa.string_view(): pa.binary_view(),
    }
    return pa.Array.from_buffers(kind, 4, pa.array(stored, binary[kind]).buffers())


STATED = with_bytes_that_are_no_text(pa.string())
UNREADABLE = {
    "dictionary": STATED.dictionary_encode(),
    "dictionary of long text": with_bytes_that_are_no_text(pa.large_string()).dictionary_encode(),
}
# Arrow before 18 makes no views of text from their buffers.
if int(pa.__version__.split(".")[0]) >= 18:
    UNREADABLE["view"] = with_bytes_that_are_no_text(pa.string_view())
AT = pa.array([0, 1, 2, 3, 4], pa.int32())
NAMES = pa.array(["a", "b", "c", "d"])
TIMES = pa.array([0, 2**55, 5, -(2**60)], pa.int64()).view(pa.timestamp("ms"))
NESTED = {
    "text of a structure": (
        pa.StructArray.from_arrays([STATED], ["a"]),
        lambda t: t.s.a != "z",
        ["a", "c"],
    ),
    "coded text of a structure": (
        pa.StructArray.from_arrays([UNREADABLE["dictionary"]], ["a"]),
        lambda t: t.s.a != "z",
        ["a", "c"],
    ),
    "two fields of a structure": (
        pa.StructArray.from_arrays([STATED, pa.array([1, 2, 3, 4])], ["a", "b"]),
        lambda t: (t.s.b < 3) & (t.s.a != "z"),
        ["a"],
    ),
    "a structure in a structure": (
        pa.StructArray.from_arrays([pa.StructArray.from_arrays([STATED], ["a"])], ["b"]),
        lambda t: t.s.b.a != "z",
        ["a", "c"],
    ),
    "times of a structure": (
        pa.StructArray.from_arrays([TIMES], ["a"]),
        lambda t: t.s.a.isnull(),
        ["b", "d"],
    ),
    "text of a list": (pa.ListArray.from_arrays(AT, STATED), lambda t: t.s.isnull(), ["b"]),
    "text of a map": (
        pa.MapArray.from_arrays(AT, NAMES, STATED),
        lambda t: t.s.isnull(),
        ["b"],
    ),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_bytes_that_are_no_text_are_missing_however_text_is_stored(tmp_path, name):
    events = pa.table({"n": NAMES, "t": UNREADABLE[name]})
    path = tmp_path / "events.parquet"
    pq.write_table(events, path)
    for table in (path, events):
        assert counts(table, user="n", item="t") == {"x": 2, "z": 1}
        assert counts(table, user="t", item="n") == {"a": 1, "c": 1, "d": 1}


@pytest.mark.parametrize("name", NESTED)
def test_unreadable_values_within_values_are_missing(tmp_path, name):
    column, where, expected = NESTED[name]
    events = pa.table({"u": NAMES, "i": NAMES, "s": column})
    path = tmp_path / "events.parquet"
    pq.write_table(events, path)
    for table in (path, events):
        assert counts(table, where=where) == dict.fromkeys(expected, 1)


ODD_LINES = {
    b'{"u":"b","i":"\\ud800"}': {},
    b'{"u":"b","i":"\xff"}': {},
    b'{"u":"b","i":"x': {},
    b"[1, 2]": {},
    b'{"U":"b","i":"y"}': {},
    b'{"u":"b","u":"c","i":"y"}': {"y": 1},
    b'{"u":"b","i":"y","":1}': {"y": 1},
    b'{"u":"b","i":"y","z":' + b"[" * 5_000 + b"]" * 5_000 + b"}": {"y": 1},
}


@pytest.mark.parametrize("line", ODD_LINES)
def test_no_line_of_json_decides_about_the_others(tmp_path, line):
    path = tmp_path / "events.jsonl"
    others = b'{"u":"a","i":"x"}\n{"u":"d","i":"x"}\n'
    for text in (line + b"\n" + others, others + line + b"\n"):
        path.write_bytes(text)
        assert counts(path) == {"x": 2, **ODD_LINES[line]}


def test_an_array_over_many_lines_is_no_json_lines(tmp_path):
    path = tmp_path / "events.json"
    path.write_text('[\n{"u":"a","i":"x"},\n{"u":"b","i":"x"}\n]\n', encoding="utf-8")
    with pytest.raises(InvalidParameter, match="write one object a line"):
        counts(path)


def test_keys_of_json_may_have_any_letters(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"a/~1\\"b\'":"a","i":null}\n{"a/~1\\"b\'":"b","i":"x"}\n')
    assert counts(path, user="a/~1\"b'") == {"x": 1}


WRITERS = {"parquet": parquet, "csv": csv, "json": lines_of_json}


@pytest.mark.slow
@pytest.mark.parametrize("format_", WRITERS)
def test_without_any_one_user_an_answer_stays_an_answer(tmp_path, format_):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        case = drawn(rng, typed=format_ == "parquet")
        state = int(rng.integers(2**31))

        def write(columns, case=case, state=state):
            return WRITERS[format_](case, columns, tmp_path, np.random.default_rng(state))

        assert disagreement(case, write, users=2) is None, (seed, case.kinds, case.condition)


# Columns that DuckDB and Arrow read from a Parquet file as different types.
READ_IN_TWO_WAYS = {
    "durations": pa.array([1, 2, 3, None], pa.duration("us")),
    "durations of a list": pa.array([[1], [], [3], None], pa.list_(pa.duration("s"))),
    "half floats": pa.array([1, 2, 3, None], pa.float16()),
    "long decimals": pa.array([Decimal(1), Decimal(2), Decimal(3), None], pa.decimal256(50, 2)),
    "JSON": pa.array(["{}", "[1]", "1", None]),
}


@pytest.mark.parametrize("name", READ_IN_TWO_WAYS)
def test_unreadable_text_is_missing_beside_columns_of_any_type(tmp_path, name):
    path = tmp_path / "events.parquet"
    events = pa.table({"u": NAMES, "i": STATED, "s": READ_IN_TWO_WAYS[name]})
    pq.write_table(events, path)
    assert counts(path, where=lambda t: t.s.notnull()) == {"x": 2}


def test_unreadable_bytes_of_json_are_missing(tmp_path):
    path = tmp_path / "events.parquet"
    with duckdb.connect() as connection:
        rows = "VALUES ('a', 'x', '{}'), ('b', 'y', '\"xQx\"')"
        chosen = f"SELECT u, i, j::JSON AS j FROM ({rows}) AS t(u, i, j)"  # noqa: S608
        target = f"'{path}' (FORMAT parquet, COMPRESSION uncompressed)"
        connection.execute(f"COPY ({chosen}) TO {target}")
    path.write_bytes(path.read_bytes().replace(b"xQx", b"x\xffx"))
    assert counts(path, where=lambda t: t.j.notnull()) == {"x": 1}


@pytest.mark.skipif(not hasattr(pa, "json_"), reason="Arrow before 19")
def test_extensions_of_arrow_are_read_as_they_are_stored():
    texts = pa.ExtensionArray.from_storage(pa.json_(), STATED)
    assert counts(pa.table({"u": NAMES, "i": texts})) == {"x": 2, "z": 1}


def test_times_beyond_microseconds_are_missing(tmp_path):
    times = pa.array([2**55, 0, -(2**60)], pa.int64()).view(pa.timestamp("ms"))
    events = pa.table({"u": [1, 2, 3], "i": ["x", "y", "x"], "t": times})
    path = tmp_path / "events.parquet"
    pq.write_table(events, path)
    for table in (path, events):
        assert counts(table, where=lambda t: t.t.year() == 1970) == {"y": 1}
        assert counts(table, where=lambda t: t.t.isnull()) == {"x": 2}


@pytest.mark.parametrize("day", [200_000_000, 2**31 - 1, 2**31])
def test_times_of_96_bits_beyond_microseconds_are_missing(tmp_path, day):
    """The days of 1970 are 2440588 and 2440589; microseconds of 64 bits end with day 109192579."""
    times = pa.array([0, 86_400_000_001_000], pa.timestamp("ns"))
    events = pa.table({"u": ["a", "b"], "i": ["x", "y"], "t": times})
    path = tmp_path / "events.parquet"
    pq.write_table(
        events, path, use_deprecated_int96_timestamps=True, compression="none",
        use_dictionary=False, write_statistics=False,
    )  # fmt: skip
    stored = path.read_bytes()
    path.write_bytes(stored.replace((2_440_588).to_bytes(4, "little"), day.to_bytes(4, "little")))
    assert counts(path, where=lambda t: t.t.notnull()) == {"y": 1}
    assert counts(path, where=lambda t: t.t.microsecond() == 1) == {"y": 1}


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_durations_beyond_microseconds_are_missing(unit):
    lengths = pa.array([2**62, 0, -(2**62), None], pa.int64()).view(pa.duration(unit))
    events = pa.table({"u": [1, 2, 3, 4], "i": ["x", "y", "x", "x"], "t": lengths})
    assert counts(events, where=lambda t: t.t.notnull()) == {"y": 1}
    assert counts(events, where=lambda t: t.t.isnull()) == {"x": 3}


@pytest.mark.parametrize(
    "kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
)
def test_times_of_day_beyond_a_day_are_missing(tmp_path, kind):
    """One of them refused a Parquet file, and each condition that writes an Arrow column as text."""
    day = pa.scalar(86_400, pa.int64()).cast(pa.duration("s"))
    last = day.cast(pa.duration(kind.unit)).cast(pa.int64()).as_py()
    ticks = pa.int32() if kind.bit_width == 32 else pa.int64()
    times = pa.array([0, last, last + 10**6, -(10**6), None], ticks).view(kind)
    events = pa.table({"u": [1, 2, 3, 4, 5], "i": ["x", "y", "x", "x", "x"], "t": times})
    path = tmp_path / "events.parquet"
    pq.write_table(events, path)
    for table in (events, path):
        assert counts(table, where=lambda t: t.t.cast("string") != "") == {"x": 1, "y": 1}
        assert counts(table, where=lambda t: t.t.isnull()) == {"x": 3}


@pytest.mark.parametrize("where", [None, {"x": "k"}, lambda t: t.x == "k"])
def test_a_time_of_a_column_that_is_not_asked_for_refuses_nothing(tmp_path, where):
    """DuckDB converts the extremes of all columns that a view names."""
    times = pa.array([0, 2**55], pa.int64()).view(pa.timestamp("ms"))
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"u": [1, 2], "i": [5, 6], "x": ["k", "k"], "t": times}), path)
    assert counts(path, where=where) == {5: 1, 6: 1}


@pytest.mark.parametrize("other", [0, 2**55])
def test_another_user_decides_not_whether_the_largest_time_is_one(tmp_path, other):
    """DuckDB reads it as infinite in a Parquet file, and it was missing beside another that is
    beyond microseconds.
    """
    times = pa.array([2**63 - 1, 1 - 2**63, other], pa.int64()).view(pa.timestamp("ms"))
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"u": [1, 2, 3], "i": [5, 6, 7], "t": times}), path)
    found = counts(path, where=lambda t: t.t.isnull() & (t.u < 3))
    assert found == {5: 1, 6: 1}


def test_another_user_decides_no_digits_of_a_time_of_day(tmp_path):
    """Beside text that is not UTF-8 a time of day in nanoseconds lost its last three digits."""
    path = tmp_path / "events.parquet"
    found = []
    for text in (b"x", b"\xff"):
        texts = pa.array([b"x", text], pa.binary()).buffers()[1:]
        times = pa.array([999, 0], pa.int64()).view(pa.time64("ns"))
        events = {"u": [1, 2], "i": pa.StringArray.from_buffers(2, *texts), "t": times}
        pq.write_table(pa.table(events), path)
        found.append(counts(path, where=lambda t: (t.u == 1) & t.t.cast("string").endswith("999")))
    assert found[0] == found[1]


CONDITIONS = {
    "isnull": lambda text: text.isnull(),
    "notnull": lambda text: text.notnull(),
    "fill_null": lambda text: text.fill_null("q") == "q",
    "nullif": lambda text: text.nullif("a").isnull(),
    "identical": lambda text: text.identical_to(ibis.null("string")),
    "less": lambda text: text < "b",
}


DAY = date(2024, 1, 31)
CONSTANTS = {
    "a text among days": (pa.array([DAY, None, None]), lambda t: t.s.isin(["x"])),
    "a day without dashes": (pa.array([DAY, None, None]), lambda t: t.s == "20240131"),
    "a text among numbers": (pa.array([1, None, None]), lambda t: t.s.isin(["x"])),
    "a text among truth values": (pa.array([True, None, None]), lambda t: t.s.isin(["x"])),
    "a number among intervals": (
        pa.array([{"a": 1}, None, None]),
        lambda t: t.s.cast("interval('s')") == 0,
    ),
    "a number among texts": (pa.array(["5x", None, None]), lambda t: t.s.isin([5])),
    "a day among texts": (pa.array(["x", None, None]), lambda t: t.s.isin([DAY])),
    "a day among numbers": (pa.array([1, None, None]), lambda t: t.s.isin([DAY])),
    "bytes among truth values": (pa.array([True, None, None]), lambda t: t.s.isin([b"x"])),
    "a list among days": (pa.array([DAY, None, None]), lambda t: t.s.isin([[1]])),
    "a number beyond decimals": (
        pa.array([Decimal("1.50"), None, None], pa.decimal128(9, 2)),
        lambda t: t.s.fill_null(Decimal("1E+20")) < 0,
    ),
    "a text that is no time": (
        pa.array(["01:02:03", None, "x"]),
        lambda t: t.s.cast("time") == "1",
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_is_no_value_of_its_column_is_equal_to_none(tmp_path, name):
    """It failed where some user had a value, and was answered where nobody had."""
    column, where = CONSTANTS[name]
    path = tmp_path / "events.parquet"
    for rows in (3, 0):
        events = pa.table({"u": [1, 2, 3], "i": ["x", "y", "z"], "s": column})
        pq.write_table(events.slice(3 - rows), path)
        assert counts(path, where=where) == {}


def test_constants_of_days_and_truth_values_stay_as_they_are():
    table = ibis.table(
        {"day": "date", "time": "timestamp", "flag": "boolean"}
        | {"word": "string", "n": "int64", "price": "decimal(9, 2)"},
        name="t",
    )
    kept = (
        (table.day >= "2024-01-31") & (table.time < "2024-01-31 10:00:00"),
        ibis.ifelse(table.flag, "a", "b") == "a",
        (table.word.cases(("a", 1), ("b", 2), else_=0) == 1) & (table.time >= DAY),
        (table.n.cases((1, "a"), else_="b") == "a")
        & (table.n < 2.5)
        & (table.price > Decimal("1.5")),
    )
    for condition in kept:
        assert total_expression("where", condition, POSTGRES).equals(condition)
    for pattern in ("^(a|b)+[0-9]*[^c]?$", "a"):
        condition = table.word.re_search(pattern)
        assert total_expression("where", condition, POSTGRES).equals(condition)
    for pattern in ("(", "a**", "[b-a]", "a*+", "^*", "(?<x>a)", "a{2}{3}", "[]a]", "[[a]"):
        with pytest.raises(InvalidParameter, match="RegexSearch may fail"):
            total_expression("where", table.word.re_search(pattern), POSTGRES)
    with pytest.raises(InvalidParameter, match="InValues may fail"):
        total_expression("where", table.day.isin(["x"]), POSTGRES)


# A column of DuckDB with one odd value: what fails for it, or for a constant, if DuckDB converts.
ODD_VALUES = {
    "d": "DATE '5881580-07-10'", "ts": "TIMESTAMP '2024-01-31 10:00:00'", "flag": "true",
    "ns": "TIMESTAMP_NS '2024-01-31 10:00:00'", "id": "uuid()", "big": f"{2**127 - 1}::HUGEINT",
    "long": f"'{'9' * 38}'::DECIMAL(38, 0)", "small": "'0.5'::DECIMAL(38, 38)",
    "price": "1.5::DECIMAL(9, 2)", "n": str(2**63 - 1), "word": "'x'",
}  # fmt: skip
TIME = datetime.fromisoformat("2024-01-31 10:00")
LATE = datetime.fromisoformat("3000-01-01")
MIXED = {
    "a time among days": lambda t: t.d.isin([TIME]),
    "a time for missing days": lambda t: t.d.fill_null(TIME) > DAY,
    "the later of a day and a time": lambda t: ibis.greatest(t.d, TIME) > DAY,
    "a day or a time": lambda t: ibis.ifelse(t.flag, t.d, TIME) > DAY,
    "a time or a day": lambda t: ibis.ifelse(t.flag, t.ts, DAY) == t.d,
    "the next day": lambda t: t.d.isin([t.d + ibis.interval(days=1)]),
    "a late time": lambda t: t.ns == LATE,
    "a late day": lambda t: t.ns > date(3000, 1, 1),
    "a late text": lambda t: t.ns > "3000-01-01",
    "a late time for missing ones": lambda t: t.ns.fill_null(LATE) > TIME,
    "a text for missing UUIDs": lambda t: t.id.fill_null(f"{0:032}") == "x",
    "a text or a UUID": lambda t: ibis.ifelse(t.id.isnull(), t.id, "x") != "x",
    "a fraction beside long decimals": lambda t: t.long == 0.5,
    "decimals beside long decimals": lambda t: t.long.isin([Decimal("0.5")]),
    "a fraction beside long integers": lambda t: t.big == 2.5,
    "a fraction for missing long integers": lambda t: t.big.fill_null(2.5) > 0,
    "long integers beside long decimals": lambda t: t.big == t.long,
    "a number beside small decimals": lambda t: t.small == 2,
    "many places beside integers": lambda t: t.n == 0.00012345678901234567,
    "an infinite number": lambda t: t.n >= float("inf"),
    "no number": lambda t: t.n.isin([NAN]),
    "a large decimal": lambda t: t.price < Decimal("1E+20"),
}
FILLED = {"d": TIME, "ns": LATE, "price": Decimal("1E20"), "small": 2, "id": "x"}


@pytest.fixture(scope="module")
def odd_tables():
    """Tables with the odd values, with missing ones, and without rows."""
    with duckdb.connect() as connection:
        values = ", ".join(f"{value} AS {name}" for name, value in ODD_VALUES.items())
        for name, rows in {"odd": "", "none": "LIMIT 0"}.items():
            connection.execute(f"CREATE TABLE {name} AS SELECT 'a' AS u, 'x' AS i, {values} {rows}")
        connection.execute("CREATE TABLE missing AS FROM none")
        connection.execute("INSERT INTO missing (u, i) VALUES ('a', 'x')")
        opened = ibis.duckdb.from_connection(connection)
        yield [opened.table(name) for name in ("odd", "missing", "none")]


@pytest.mark.parametrize("name", MIXED)
def test_types_that_are_mixed_in_a_condition_fail_for_no_value(odd_tables, name):
    assert all(counts(table, where=MIXED[name]) in ({}, {"x": 1}) for table in odd_tables)


@pytest.mark.parametrize("column", FILLED)
def test_constants_for_missing_values_of_a_table_fail_for_no_value(odd_tables, column):
    for table in odd_tables:
        filled = table.fill_null({column: FILLED[column]})
        assert counts(filled, where=lambda t: t[column].notnull()) in ({}, {"x": 1})


@pytest.mark.parametrize(
    "where",
    [{"long": 0.5}, {"big": 0.5}, {"small": 2}, {"price": Decimal("1E20")}, {"ns": LATE}],
    ids=str,
)
def test_values_that_do_not_fit_their_column_are_refused_for_all_rows_alike(odd_tables, where):
    for table in odd_tables:
        with pytest.raises(InvalidParameter, match="do not fit the column, which is of type"):
            counts(table, where=where)


@pytest.mark.parametrize("backend", [POSTGRES, DATAFUSION], ids=lambda backend: backend.name)
def test_engines_without_a_cast_that_gives_null(backend):
    """Ibis writes its TRY_CAST as a CAST there."""
    table = ibis.table({"word": "string", "n": "int16", "price": "decimal", "day": "date"})
    casts = (table.word.try_cast("int64"), table.word.cast("date"), table.day.cast("timestamp"))
    for cast in casts:
        with pytest.raises(InvalidParameter, match="may fail for the value"):
            total_expression("where", cast.isnull(), backend)
    for kind in ("uint64", "int8"):
        expected = total_expression("where", table.n.cast(kind).isnull(), backend)
        assert not expected.equals(table.n.cast(kind).isnull())


def test_casts_of_an_engine_that_gives_null():
    table = ibis.table({"word": "string", "price": "decimal"})
    with pytest.raises(InvalidParameter, match="may fail for the value"):
        total_expression("where", table.price >= float("inf"), POSTGRES)
    condition = table.word.try_cast("int64") > 0
    assert total_expression("where", condition, SPARK).equals(condition)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["3", "z"])
def test_no_text_fails_a_cast_on_datafusion(tmp_path, last):
    """The condition was answered without a text that is no number, and not with it."""
    events = {"u": ["a", "b"], "i": ["x", "y"], "s": ["1", last], "r": [2.5, 1e300], "n": [1, 300]}
    pq.write_table(pa.table(events), tmp_path / "events.parquet")
    table = ibis.datafusion.connect().read_parquet(tmp_path / "events.parquet", table_name="t")
    with pytest.raises(InvalidParameter, match="Cast may fail for the value"):
        counts(table, where=lambda t: t.s.cast("int64") > 0)
    assert counts(table, where=lambda t: t.r.cast("int64") == 2) == {"x": 1}
    assert counts(table, where=lambda t: t.n.cast("int8").notnull()) == {"x": 1}


FAR_DAYS = [2**31 - 1, -(2**31), 2**28, -(2**28), 3_000_000, -719_163]


@pytest.mark.slow
@pytest.mark.parametrize("day", FAR_DAYS)
def test_a_day_that_is_far_away_is_missing_on_datafusion(tmp_path, day):
    """It refused the table."""
    days = pa.array([0, 1, day], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"u": days, "i": days}), tmp_path / "events.parquet")
    table = ibis.datafusion.connect().read_parquet(tmp_path / "events.parquet", table_name="t")
    assert counts(table, portable=True) == {"1970-01-01": 1, "1970-01-02": 1}


PATTERNS = {
    "no group": lambda t: t.word.re_replace("x", "\\1") == "a",
    "no letter": lambda t: t.word.re_replace("x", "\\") == "a",
    "no end": lambda t: t.word.re_search("("),
    "no end of letters": lambda t: t.word.re_extract("[a", 0) == "a",
}


@pytest.mark.parametrize("name", PATTERNS)
def test_an_invalid_regular_expression_is_refused_for_all_rows_alike(odd_tables, name):
    for table in odd_tables:
        with pytest.raises(InvalidParameter, match="DuckDB takes no regular expression"):
            counts(table, where=PATTERNS[name])


def test_a_time_is_not_written_as_json():
    """An infinite one ended in an internal error of DuckDB, which TRY does not catch."""
    table = ibis.table({"time": "timestamp", "word": "string"})
    for cast in (table.time.cast("timestamp(0)").cast("json"), table.time.try_cast("json")):
        with pytest.raises(InvalidParameter, match="may fail for the value"):
            total_expression("where", cast.isnull(), DUCKDB)
    assert total_expression("where", table.word.cast("json").isnull(), DUCKDB) is not None


def test_a_replacement_of_a_row_fails_for_no_value(odd_tables):
    for table in odd_tables:
        replaced = table.mutate(other=ibis.literal("\\"))
        found = counts(replaced, where=lambda t: t.word.re_replace("x", t.other).isnull())
        assert set(found) <= {"x"}
    table = ibis.table({"word": "string", "other": "string"})
    for replacement in ("$1", "$", "\\1", table.other):
        with pytest.raises(InvalidParameter, match="RegexReplace may fail"):
            total_expression("where", table.word.re_replace("x", replacement), SPARK)
    condition = table.word.re_replace("(a)b", "x")
    assert total_expression("where", condition, SPARK).equals(condition)


@pytest.mark.parametrize("text", [b"y", b"\xff"])
def test_a_text_that_is_none_beside_a_structure_of_the_same_path_is_missing(tmp_path, text):
    """It refused the file: Arrow read the structure as well."""
    stored = pa.array([b"x", text], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, stored.buffers())
    table = pa.table({"u": ["a", "b"], "i": pa.array([{"x": 1}] * 2), "i.x": texts})
    pq.write_table(table, tmp_path / "events.parquet")
    assert counts(tmp_path / "events.parquet", item="i.x")["x"] == 1


def texts_of_users(folder, values, *, in_structure):
    texts = pa.array(values, pa.binary())
    texts = pa.Array.from_buffers(pa.string(), len(values), texts.buffers())
    if in_structure:
        texts = pa.StructArray.from_arrays([texts], names=["s"])
    users = [str(user) for user in range(len(values))]
    path = folder / "texts.parquet"
    pq.write_table(pa.table({"u": users, "i": users, "t": texts}), path, row_group_size=2)
    return path


@pytest.mark.parametrize("in_structure", [False, True])
@pytest.mark.parametrize("name", CONDITIONS)
@pytest.mark.parametrize("other", [b"a", None, b"\xff"])
def test_unreadable_text_is_missing_in_a_condition_whatever_others_hold(
    tmp_path, other, name, in_structure
):
    values = [b"a", b"\xff", b"c", b"d", b"b", other]

    def condition(table):
        return CONDITIONS[name](table.t.s if in_structure else table.t)

    path = texts_of_users(tmp_path, values, in_structure=in_structure)
    found = counts(path, where=condition)
    readable = [None if value == b"\xff" else value for value in values]
    path = texts_of_users(tmp_path, readable, in_structure=in_structure)
    assert found == counts(path, where=condition)


def texts_that_are_none(size):
    """Arrow texts of which the last one is not UTF-8."""
    stored = pa.array([b"x"] * (size - 1) + [b"\xff"], pa.binary())
    return pa.StringArray.from_buffers(size, *stored.buffers()[1:])


STATED_AS_THERE = {
    "text": lambda: texts_that_are_none(2),
    "time": lambda: pa.array([1, 2**62], pa.timestamp("s")),
    "duration": lambda: pa.array([1, 2**62], pa.duration("ms")),
    "missing": lambda: pa.array(["x", None]),
}


@pytest.mark.parametrize("name", STATED_AS_THERE)
@pytest.mark.parametrize("form", [lambda t: t, lambda t: t.to_reader()], ids=["table", "stream"])
def test_a_column_that_is_said_to_have_no_null_may_have_one(name, form):
    """A stream was refused for one text that is not UTF-8, and a table for one NULL."""
    column = STATED_AS_THERE[name]()
    fields = [pa.field("u", pa.string()), pa.field("i", pa.string())]
    schema = pa.schema([*fields, pa.field("odd", column.type, nullable=False)])
    table = pa.table([pa.array(["a", "b"]), pa.array(["x", "y"]), column], schema=schema)
    assert counts(form(table), where=lambda t: t.odd.notnull()) == {"x": 1}


def maps(*rows, key=None):
    return pa.array(rows, pa.map_(key or pa.string(), pa.int64()))


TWICE = {
    "text": maps([("a", 1)], [("b", 1)], [("a", 1), ("a", 2)]),
    "NaN": maps([(1.0, 1)], [(2.0, 1)], [(np.nan, 1), (np.nan, 2)], key=pa.float64()),
    "zeros": maps([(1.0, 1)], [(2.0, 1)], [(0.0, 1), (-0.0, 2)], key=pa.float64()),
    "structure": pa.StructArray.from_arrays([maps([("a", 1)], [], [("a", 1)] * 2)], ["map"]),
    "list": pa.ListArray.from_arrays([0, 1, 2, 3], maps([("a", 1)], [], [("a", 1)] * 2)),
    "list of durations": pa.array([[1], [None], [2**62]], pa.list_(pa.duration("s"))),
    "list of times": pa.array([[1], [None], [2**62]], pa.list_(pa.timestamp("s"), 1)),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_map_with_a_key_twice_is_missing(name):
    """One of them refused every condition that looks at the column, and every stream."""
    column = TWICE[name]
    table = pa.table({"u": ["a", "b", "c"], "i": ["x", "y", "z"], "odd": column})

    def where(rows):
        return (rows.odd.map if name == "structure" else rows.odd).notnull()

    assert counts(table, where=where) == {"x": 1, "y": 1}
    assert counts(table.to_reader(), where=where) == {"x": 1, "y": 1}
    assert counts(table.slice(1), where=where) == {"y": 1}


@pytest.mark.parametrize("other", [b"q", b"\xff"])
def test_whether_a_map_of_a_file_counts_depends_on_no_other_value(tmp_path, other):
    """DuckDB reads a key twice in a Parquet file, and refused it beside text that is not UTF-8."""
    stored = pa.array([b"q", b"q", other], pa.binary())
    texts = pa.StringArray.from_buffers(3, *stored.buffers()[1:])
    column = maps([("a", 1)], [("a", 1), ("a", 2)], [("a", 1)])
    table = pa.table({"u": ["a", "b", "c"], "i": ["x", "y", "x"], "odd": column, "text": texts})
    pq.write_table(table, tmp_path / "e.parquet")
    found = counts(tmp_path / "e.parquet", where=lambda t: t.odd.notnull() & (t.text == "q"))
    assert found == {"x": 2 if other == b"q" else 1}


@pytest.mark.parametrize("odd", [1, "\ud800", None])
@pytest.mark.parametrize("kind", ["category", "string[python]"])
def test_values_of_pandas_are_converted_one_by_one(odd, kind):
    """A category of an integer among texts refused the frame, and so did half a surrogate pair."""
    pd = pytest.importorskip("pandas")
    if kind == "category":
        texts = pd.Index([value for value in ("x", odd) if value is not None], dtype=object)
        items = pd.Categorical.from_codes([0, 1 if odd is not None else -1], categories=texts)
    else:
        items = pd.array(["x", None if odd is None else str(odd)], dtype=kind)
    frame = pd.DataFrame({"u": ["a", "b"], "i": items})
    spelt = {"1": 1} if odd == 1 else {"\\ud800": 1} if odd else {}
    assert counts(frame) == {"x": 1} | spelt


UNKNOWN_TO_IBIS = {
    "run ends": lambda: pa.compute.run_end_encode(pa.array([7, 8])),
    "view of bytes": lambda: pa.array([b"x", b"\xff"], pa.binary_view()),
    "view of a list": lambda: pa.array([["x"], ["y"]], pa.list_view(pa.string())),
    "months": lambda: pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
}


@pytest.mark.parametrize("name", UNKNOWN_TO_IBIS)
def test_types_that_ibis_does_not_know_are_read_by_duckdb(name):
    """They ended in an error of Ibis, with any condition that is a function."""
    table = pa.table({"u": ["a", "b"], "i": ["x", "y"], "odd": UNKNOWN_TO_IBIS[name]()})
    assert counts(table, where=lambda t: t.u != "b") == {"x": 1}


def test_a_type_that_nothing_reads_is_refused_in_words():
    types = pa.array([0, 1], pa.int8())
    union = pa.UnionArray.from_sparse(types, [pa.array(["x", "y"]), pa.array([7, 8])])
    table = pa.table({"u": ["a", "b"], "i": union})
    with pytest.raises(InvalidParameter, match="type that cannot be read"):
        counts(table)


@pytest.mark.parametrize("index", [pa.int8(), pa.int32(), pa.int64(), pa.uint16()], ids=str)
def test_a_text_of_a_dictionary_in_a_file_that_is_no_text_is_missing(tmp_path, index):
    """A category of pandas has short codes: Arrow read the file, and then refused to shorten
    them.
    """
    codes = pa.array([0, 1], index)
    items = pa.DictionaryArray.from_arrays(codes, texts_that_are_none(2))
    pq.write_table(pa.table({"u": ["a", "b"], "i": items}), tmp_path / "e.parquet")
    assert counts(tmp_path / "e.parquet") == {"x": 1}


def test_parts_of_structures_are_read_as_the_file_stores_them(tmp_path):
    """Beside a text that is not UTF-8 durations and long decimals in a structure refused it."""
    stored = [("text", pa.string()), ("long", pa.decimal256(50, 2)), ("span", pa.duration("s"))]
    parts = pa.array([{"text": "x", "long": 5, "span": 1}, {"text": "y"}], pa.struct(stored))
    table = pa.table({"u": ["a", "b"], "i": texts_that_are_none(2), "parts": parts})
    pq.write_table(table, tmp_path / "e.parquet")
    assert counts(tmp_path / "e.parquet", where=lambda t: t.parts.text == "x") == {"x": 1}


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**24 - 100, 2**24 + 100, 40 * 2**20])
@pytest.mark.parametrize("ends", [True, False], ids=["with an end", "at the end"])
def test_a_long_line_of_json_decides_about_no_other(tmp_path, size, ends):
    """DuckDB refused a file with a line beyond its buffers, and read shorter ones by their place."""
    path = tmp_path / "events.jsonl"
    others = '{"u": "a", "i": "x"}\n{"u": "b", "i": "x"}\n'
    long = f'{{"u": "c", "i": "{"z" * size}"}}'
    path.write_text(f"{others}{long}\n{others}" if ends else others + long, encoding="utf-8")
    found = counts(path)
    assert {label[:1]: count for label, count in found.items()} == {
        "x": 2,
        **({"z": 1} if size < 2**24 else {}),
    }


@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT"])
def test_an_integer_beyond_38_digits_of_a_relation_is_missing_and_refuses_nothing(kind):
    """Arrow has no decimals of 39 digits; the rows of all users were refused for one."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE e (u VARCHAR, i {kind})").fetchall()
        connection.execute("INSERT INTO e VALUES ('a', 7)").fetchall()
        assert counts(connection.table("e")) == {"7": 1}
        largest = {"HUGEINT": 2**127 - 1, "UHUGEINT": 2**128 - 1}[kind]
        connection.execute("INSERT INTO e VALUES ('b', $1)", [str(largest)]).fetchall()
        assert counts(connection.table("e")) == {"7": 1}
        assert counts(connection.table("e"), user="i", item="u") == {"a": 1}
        if kind == "HUGEINT":  # DuckDB reads its own integers
            table = ibis.duckdb.from_connection(connection).table("e")
            assert counts(table) == {"7": 1, str(largest): 1}


def decimals(numbers, precision):
    """Decimals whose digits nobody has counted."""
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    kind = pa.decimal128(precision, 0)
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(data)])


@pytest.mark.parametrize(("precision", "number"), [(38, -(2**127)), (18, 2**63 - 1)])
@pytest.mark.parametrize("of_file", [False, True], ids=["frame", "file"])
def test_a_decimal_of_more_digits_than_its_type_is_missing(tmp_path, precision, number, of_file):
    """DuckDB failed on it, in a cast or beside a constant."""
    table = pa.table({"u": ["a", "b"], "i": decimals([7, number], precision), "x": ["x", "x"]})
    if of_file:
        pq.write_table(table, tmp_path / "events.parquet")
        table = tmp_path / "events.parquet"
    assert counts(table) == {"7": 1}
    assert counts(table, item="x", where=lambda t: t.i.cast("string") != "8") == {"x": 1}
    assert counts(table, item="x", weight="i", per_label_cap=9) == {"x": 7}
    if precision < 38:
        assert counts(table, item="x", where={"i": 7}) == {"x": 1}


def test_a_column_of_a_callers_view_that_nobody_needs_refuses_nothing(tmp_path):
    """DuckDB asked the file for the extremes of all columns of the view, and could not read one."""
    times = pa.array([0, 2**62], pa.int64()).view(pa.timestamp("ms"))
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"u": ["a", "b"], "i": ["x", "x"], "t": times}), path)
    connection = ibis.duckdb.connect()
    connection.con.execute("SET disabled_optimizers = 'top_n'").fetchall()
    view = connection.read_parquet(path, table_name="v")
    assert counts(view) == {"x": 2}
    assert counts(connection.con.table("v")) == {"x": 2}
    setting = connection.con.execute("SELECT current_setting('disabled_optimizers')").fetchall()
    assert setting == [("top_n",)]


def setting_of(connection):
    """Return the steps of the planner that are off in a database."""
    return connection.execute("SELECT current_setting('disabled_optimizers')").fetchone()


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_two_relations_of_a_database_leave_its_setting_as_it_was(first_ends_first):
    """The second to begin took the setting of the first for the caller's, and restored it."""
    connection = duckdb.connect()
    connection.execute("SET disabled_optimizers = 'top_n'")
    connection.execute("CREATE TABLE t AS SELECT range AS u, 'x' AS i FROM range(9)")
    readers = [from_relation(connection.cursor().table("t"), ["u", "i"]) for _ in range(2)]
    batches = [iter(reader) for reader in readers]
    for batch in batches:
        next(batch)
    for batch in batches if first_ends_first else reversed(batches):
        assert list(batch) == []
    assert setting_of(connection) == ("top_n",)


def test_a_relation_is_planned_while_no_other_restores_the_setting(monkeypatch):
    """Between the change of one query and its planning another one restored the setting."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t AS SELECT range AS u, 'x' AS i FROM range(9)")
    first = iter(from_relation(connection.cursor().table("t"), ["u", "i"]))
    next(first)
    ending = threading.Thread(target=list, args=(first,))
    seen = []

    def plan():
        ending.start()
        ending.join(0.2)
        seen.append(setting_of(connection.cursor()))

    execute = statements_beside(connection.cursor().table("t"))
    with planned_without_extremes(execute, plan):
        ending.join()
    assert seen == [("join_order",)]
    assert setting_of(connection) == ("",)


def test_a_database_whose_configuration_is_locked_is_refused_by_name_or_prepared():
    """Every relation of it was refused, without a word on why."""
    for setting, refusal in (("", pytest.raises(InvalidParameter, match="lock_configuration")),
                             ("join_order", nullcontext())):  # fmt: skip
        connection = duckdb.connect()
        connection.execute("CREATE TABLE t AS SELECT range AS u, 'x' AS i FROM range(9)")
        connection.execute(f"SET disabled_optimizers = '{setting}'")
        connection.execute("SET lock_configuration = true")
        with refusal:
            assert counts(connection.table("t")) == {"x": 9}


def test_a_condition_on_a_column_of_32_bits_holds_for_the_number_next_to_it():
    """Spark took 0.1 for the number of 64 bits, which no such column holds."""
    column = pa.array([0.1, 0.5], pa.float32())
    table = pa.table({"u": ["a", "b"], "i": ["x", "y"], "v": column})
    assert constant_of_type(0.1, ibis.dtype("float32"), "where") == float(np.float32(0.1))
    assert counts(table, where={"v": "0.1"}) == {"x": 1}
    with pytest.raises(InvalidParameter, match="does not fit"):
        counts(table, where={"v": 1e300})


def test_columns_that_are_read_in_one_way_alone_can_be_read_again(tmp_path):
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"u": [1, 2, 3], "i": [7, 7, 8], "other": ["x", "y", "z"]}), path)
    connection = ibis.duckdb.connect()
    view = connection.read_parquet(path, table_name="events")
    ReadableFiles(connection, "events", [str(path)], ["u", "i"])._replace_view()
    rows = view.order_by("u").to_pyarrow().to_pydict()
    assert rows == {"u": [1, 2, 3], "i": [7, 7, 8], "other": [None] * 3}
