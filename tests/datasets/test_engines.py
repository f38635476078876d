"""Every way to hand in events gives the same histogram; what cannot be read is refused without a
word of the data.
"""

from __future__ import annotations

import gzip
import sys

import pandas as pd
import pytest

from dptopk import InvalidParameter

ibis = pytest.importorskip("ibis")
duckdb = pytest.importorskip("duckdb")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")
pq = pytest.importorskip("pyarrow.parquet")
pyarrow_dataset = pytest.importorskip("pyarrow.dataset")

from dptopk._internal.lru import LRUCache  # noqa: E402
from dptopk.datasets import DuckDB, Spark, events_histogram  # noqa: E402
from dptopk.datasets.backends import statements  # noqa: E402

EVENTS = pd.DataFrame(
    {
        "member": ["a", "a", "b", "b", "b", "c", None, "d"],
        "article": ["x", "x", "x", "y,\"'", "ü", "01", "x", None],
        "section": ["s", "t"] * 4,
    }
)
ANSWER = {"x": 2, "y,\"'": 1, "ü": 1, "01": 1}


def counts(table, **options):
    histogram = events_histogram(table, user="member", item="article", labels_per_user=5, **options)
    return dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))


def write_database(path):
    with duckdb.connect(str(path)) as connection:
        connection.register("frame", pa.Table.from_pandas(EVENTS))
        connection.execute("CREATE TABLE clicks AS SELECT * FROM frame").fetchall()


WRITERS = {
    "events.parquet": EVENTS.to_parquet,
    "events.csv": lambda path: EVENTS.to_csv(path, index=False),
    "events.csv.gz": lambda path: EVENTS.to_csv(path, index=False),
    "events.tsv": lambda path: EVENTS.to_csv(path, index=False, sep="\t"),
    "events.jsonl": lambda path: EVENTS.to_json(path, orient="records", lines=True),
    "events.duckdb": write_database,
}

FRAMES = {
    "pandas": lambda: EVENTS,
    "pandas categories": lambda: EVENTS.astype("category"),
    "polars": lambda: pl.from_pandas(EVENTS),
    "polars lazy": lambda: pl.from_pandas(EVENTS).lazy(),
    "polars categories": lambda: pl.from_pandas(EVENTS).with_columns(
        pl.col("article").cast(pl.Categorical)
    ),
    "arrow": lambda: pa.Table.from_pandas(EVENTS),
    "arrow batch": lambda: pa.RecordBatch.from_pandas(EVENTS),
    "polars lazy categories": lambda: (
        pl.from_pandas(EVENTS).lazy().with_columns(pl.col("article").cast(pl.Categorical))
    ),
    "arrow dataset": lambda: pyarrow_dataset.dataset(pa.Table.from_pandas(EVENTS)),
    "arrow dictionaries in a stream": lambda: pa.Table.from_pandas(
        EVENTS.astype("category")
    ).to_reader(max_chunksize=3),
    "arrow reader": lambda: pa.Table.from_pandas(EVENTS).to_reader(),
    "ibis of pandas": lambda: ibis.memtable(EVENTS),
    "ibis": lambda: ibis.memtable(pa.Table.from_pandas(EVENTS)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_files(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    options = {"table_name": "clicks"} if name.endswith(".duckdb") else {}
    assert counts(path, **options) == ANSWER
    assert counts(str(path), where={"section": "t"}, **options) == {"x": 1, "y,\"'": 1, "01": 1}


@pytest.mark.parametrize("name", FRAMES)
def test_frames(name):
    assert counts(FRAMES[name]()) == ANSWER


def test_equal_questions_of_other_tables_are_compiled_once(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(statements, "_COMPILED", LRUCache(128))  # nothing from tests before
    connection = type(ibis.duckdb.connect())
    compile_expression = connection.compile

    def counted(self, expression, **options):
        compiled.append(expression)
        return compile_expression(self, expression, **options)

    monkeypatch.setattr(connection, "compile", counted)
    found, numbers = [], []
    for number, table in enumerate((EVENTS, EVENTS[:3])):
        path = tmp_path / f"{number}.parquet"
        table.to_parquet(path)
        compiled.clear()
        found.append(counts(path))
        numbers.append(len(compiled))
    assert found == [ANSWER, {"x": 2}]
    assert numbers[0] > 1
    assert numbers[1] == 1  # the view of the events, which has the path


@pytest.mark.parametrize(
    ("columns", "trusts"), [(["u", "i"], True), (["u", "i", "x"], False), (None, False)], ids=str
)
def test_statistics_of_a_parquet_file_are_used_of_integers_alone(columns, trusts, tmp_path):
    path = tmp_path / "events.parquet"
    pd.DataFrame({"u": [1, 2], "i": [3, 4], "x": [0.5, 0.25]}).to_parquet(path)
    with DuckDB().open(path, columns=columns, table_name=None) as source:
        setting = "SELECT current_setting('disabled_optimizers')"
        ((disabled,),) = source.table.get_backend().con.execute(setting).fetchall()
    assert ("statistics_propagation" in disabled) is not trusts


def write_rows(folder, kind):
    """Nine rows, of which three are different in three columns, and all in four."""
    frame = pd.DataFrame({"u": [1, 1, 2] * 3, "i": ["x", "y", "x"] * 3, "n": range(9), "w": 2})
    path = folder / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("columns", "only_different", "expected"),
    [(["u", "i"], True, 3), (["u", "i"], False, 9), (["u", "i", "n"], True, 9)],
)
def test_repeated_rows_of_text_are_left_out_where_only_different_ones_count(
    tmp_path, kind, columns, only_different, expected
):
    path = write_rows(tmp_path, kind)
    options = {"columns": columns, "table_name": None, "only_different": only_different}
    with DuckDB().open(path, **options) as source:
        assert source.run(source.table.aggregate(n=source.table.count())).to_pylist() == [
            {"n": expected}
        ]


def test_rows_whose_different_ones_do_not_fit_in_memory_are_stored_as_they_are(
    tmp_path, monkeypatch
):
    keep = statements.Statements.keep
    stored = []

    def keep_without_memory(self, name, rows):
        if type(rows.op()).__name__ == "Distinct":
            raise MemoryError
        stored.append(name)
        return keep(self, name, rows)

    monkeypatch.setattr(statements.Statements, "keep", keep_without_memory)
    path = write_rows(tmp_path, "csv")
    found = events_histogram(path, user="u", item="i", labels_per_user=None)
    assert dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True)) == {"x": 2, "y": 1}
    assert stored[0] == "dptopk_events"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"x": 2, "y": 1}),
        ({"per_label_cap": 2}, {"x": 4, "y": 2}),
        ({"choose": "top"}, {"x": 2, "y": 1}),
        ({"weight": "w", "per_label_cap": 9}, {"x": 12, "y": 6}),
    ],
    ids=str,
)
def test_repeated_rows_of_text_count_where_the_number_of_events_does(tmp_path, options, expected):
    path = write_rows(tmp_path, "csv")
    found = events_histogram(path, user="u", item="i", labels_per_user=2, **options)
    assert dict(zip(found.labels.tolist(), found.counts.tolist(), strict=True)) == expected
    one_row = events_histogram(path, user=None, item="i", labels_per_user=1)
    assert sum(one_row.counts.tolist()) == 9


def test_a_stream_is_read_batch_by_batch_and_what_breaks_it_is_not_shown():
    schema, alive = (
        pa.schema([("member", pa.int64()), ("article", pa.string()), ("unused", pa.string())]),
        [],
    )

    def batches(last):
        for number in range(20):
            batch = pa.record_batch(
                [[number] * 1000, ["x"] * 1000, ["y" * 500] * 1000], schema=schema
            )
            alive.append(pa.total_allocated_bytes())
            yield batch
        if last is not None:
            raise ValueError(last)

    assert counts(pa.RecordBatchReader.from_batches(schema, batches(None))) == {"x": 20}
    assert (
        max(alive) - min(alive) < 5 * 600_000
    )  # of 20 batches of more than half a megabyte, a few at a time
    with pytest.raises(InvalidParameter, match="table") as caught:
        counts(pa.RecordBatchReader.from_batches(schema, batches("secret")))
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("is_lazy", [False, True])
def test_integers_of_128_bits_of_polars_are_refused_in_words(is_lazy):
    frame = pl.DataFrame({"member": ["a"], "article": pl.Series([1], dtype=pl.Int128)})
    with pytest.raises(InvalidParameter, match="type that Arrow does not know"):
        events_histogram(
            frame.lazy() if is_lazy else frame, user="member", item="article", labels_per_user=1
        )


def test_a_dataset_of_files_and_a_lazy_scan(tmp_path):
    EVENTS[:3].to_parquet(tmp_path / "one.parquet")
    EVENTS[3:].to_parquet(tmp_path / "two.parquet")
    for table in (pyarrow_dataset.dataset(tmp_path), pl.scan_parquet(tmp_path / "*.parquet")):
        assert counts(table) == ANSWER
        assert counts(table, where=lambda t: t.section == "t") == {"x": 1, "y,\"'": 1, "01": 1}
    with pytest.raises(InvalidParameter, match="table"):
        counts(pl.scan_parquet(tmp_path / "nothing.parquet"))


@pytest.mark.slow
def test_directories_and_globs(tmp_path):
    EVENTS[:3].to_parquet(tmp_path / "one.parquet")
    EVENTS[3:].to_parquet(tmp_path / "two.parquet")
    assert counts(tmp_path) == ANSWER
    assert counts(str(tmp_path / "*.parquet")) == ANSWER
    assert counts(str(tmp_path.parent / (tmp_path.name[:-1] + "?") / "t*.parquet")) == counts(
        EVENTS[3:]
    )


@pytest.mark.slow
def test_an_ibis_table_on_its_own_connection(tmp_path):
    EVENTS.to_parquet(tmp_path / "events.parquet")
    table = ibis.duckdb.connect().read_parquet(tmp_path / "events.parquet")
    assert counts(table) == ANSWER
    assert counts(table, engine=DuckDB(passes=3)) == ANSWER
    assert counts(table.filter(table.section == "t"), where=lambda t: t.article != "x") == {
        "y,\"'": 1,
        "01": 1,
    }


def test_text_files_keep_text_whatever_the_other_rows_hold(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("member,article\n1,01\n2,1\n3,1\n")
    assert counts(path) == {"01": 1, "1": 2}
    path.write_text("member;x,article\n1,a;b\n2,# c\n")
    assert set(
        events_histogram(path, user="member;x", item="article", labels_per_user=1).labels
    ) == {"a;b", "# c"}


@pytest.mark.slow
def test_a_collation_does_not_join_labels_or_users(tmp_path):
    path = tmp_path / "events.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE clicks (member VARCHAR COLLATE NOCASE, article VARCHAR COLLATE NOCASE)"
        ).fetchall()
        connection.execute(
            "INSERT INTO clicks VALUES ('u', 'A'), ('U', 'a'), ('v', 'a'), ('v', 'B')"
        ).fetchall()
    apart = {"A": 1, "a": 2, "B": 1}
    assert counts(path, table_name="clicks") == apart
    with duckdb.connect(str(path)) as connection:
        assert connection.execute(
            "SELECT count(*) FROM (SELECT DISTINCT article FROM clicks)"
        ).fetchall() == [(2,)]
    own = ibis.duckdb.connect()
    own.con.execute("SET default_collation = 'nocase'").fetchall()
    table = own.read_csv(
        write(tmp_path / "events.csv", "member,article\nu,A\nU,a\nv,a\nv,B\n"), all_varchar=True
    )
    assert counts(table) == apart
    assert counts(table, engine=DuckDB(passes=2)) == apart


def write(path, content):
    path.write_text(content)
    return path


def test_engine_settings_are_used(tmp_path):
    engine = DuckDB(memory_limit="100MB", threads=1, temp_directory=tmp_path / "spill")
    connection = engine.connect().con
    for setting, value in (
        ("threads", "1"),
        ("memory_limit", "95.3 MiB"),
        ("temp_directory", str(tmp_path / "spill")),
    ):
        assert (
            str(connection.execute(f"SELECT current_setting('{setting}')").fetchall()[0][0])
            == value
        )
    assert counts(EVENTS, engine=engine) == ANSWER


BROKEN = {
    "secret.parquet": b"secret" * 100,
    "secret.jsonl": b'{"member": "secret", "article": secret\n',
    "secret.csv.gz": b"secret" * 100,
    "secret.duckdb": b"secret" * 1000,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_without_their_content(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(InvalidParameter, match="table") as caught:
        counts(path, table_name="clicks")
    assert "secret" not in str(caught.value).replace(path.name, "")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "text",
    [
        b'member,article\na,x\nb,x\n"c,secret\nd,"secret" secret\n',
        b"member,article\na,x\nb,x\nc,\xff\xfesecret\n",
    ],
)
def test_odd_rows_of_a_text_file_change_no_other_row(tmp_path, text):
    path = tmp_path / "events.csv"
    path.write_bytes(text)
    assert counts(path)["x"] == 2


def test_a_truncated_parquet_file(tmp_path):
    path = tmp_path / "events.parquet"
    pd.concat([EVENTS] * 1000).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidParameter, match="table"):
        counts(path)


@pytest.mark.parametrize("content", ["member,article\n", "member,article"])
def test_a_text_file_of_no_rows(tmp_path, content):
    path = tmp_path / "events.csv"
    path.write_text(content)
    assert counts(path) == {}
    with gzip.open(tmp_path / "events.csv.gz", "wt") as file:
        file.write(content)
    assert counts(tmp_path / "events.csv.gz") == {}


def test_a_parquet_file_of_no_rows(tmp_path):
    EVENTS[:0].to_parquet(tmp_path / "events.parquet")
    assert counts(tmp_path / "events.parquet") == {}


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("nowhere.parquet", {}, "no file"),
        ("nowhere/*.parquet", {}, "no file"),
        (__file__, {}, "format"),
        (42, {}, "table must be"),
        (None, {}, "table must be"),
        (ibis.memtable({"member": ["a"]}).member, {}, "Ibis table"),
        (EVENTS, {"engine": "spark"}, "engine"),
        (FRAMES["ibis"](), {"engine": DuckDB(memory_limit="1GB")}, "engine"),
        (FRAMES["ibis"](), {"engine": Spark()}, "engine"),
        (pa.array([1]), {}, "Arrow table"),
        (pd.concat([EVENTS, EVENTS], axis=1), {}, "different names"),
        (EVENTS["member"], {}, "pandas"),
    ],
)
def test_what_is_no_table(table, options, message):
    with pytest.raises(InvalidParameter, match=message) as caught:
        counts(table, **options)
    assert "secret" not in str(caught.value)


def test_a_database_needs_the_name_of_a_table(tmp_path):
    path = tmp_path / "events.duckdb"
    write_database(path)
    with pytest.raises(InvalidParameter, match="table_name"):
        counts(path)
    with pytest.raises(InvalidParameter, match="table_name"):
        counts(path, table_name="nothing")


def test_an_untried_backend_is_refused(tmp_path):
    pytest.importorskip("polars")
    table = ibis.polars.connect({"events": pl.from_pandas(EVENTS)}).table("events")
    with pytest.raises(InvalidParameter, match="let in"):
        counts(table)


@pytest.mark.parametrize(("module", "extra"), [("ibis", "data"), ("duckdb", "data")])
def test_a_missing_extra_says_what_to_install(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"dptopk\[{extra}\]"):
        DuckDB().connect()


@pytest.mark.parametrize(
    "change", [{"passes": 0}, {"threads": 0}, {"threads": 10**9}, {"passes": 1.5}]
)
def test_engine_parameters(change):
    with pytest.raises(InvalidParameter, match=next(iter(change))):
        DuckDB(**change)


@pytest.mark.parametrize("limit", ["lots", "-1GB", "", "4 apples", 4])
def test_a_memory_limit_is_a_size(limit):
    with pytest.raises(InvalidParameter, match="memory_limit must be a size such as '4GB'"):
        DuckDB(memory_limit=limit)
    assert DuckDB(memory_limit="1.5 GiB").memory_limit == "1.5 GiB"


def test_user_and_label_are_different_columns():
    with pytest.raises(InvalidParameter, match="item must be a different column from user"):
        events_histogram(EVENTS, user="member", item="member", labels_per_user=1)


def test_a_column_that_is_asked_for_is_named_once(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("member,article,note,note\nu1,a,x,y\n")
    assert counts(path) == {"a": 1}
    path.write_text("member,member,article\nu1,u2,a\n")
    with pytest.raises(InvalidParameter, match="two columns 'member'"):
        counts(path)
