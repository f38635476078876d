"""One statement counts events elsewhere as ``event_counts`` counts them here, and its result is
checked.
"""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest
from ledger.test_postgresql import url  # noqa: F401
from typer.testing import CliRunner

from dptopk import Budget, InvalidParameter, Session

sqlglot = pytest.importorskip("sqlglot")
duckdb = pytest.importorskip("duckdb")

from dptopk.cli import app  # noqa: E402
from dptopk.datasets import event_counts  # noqa: E402
from dptopk.datasets.warehouse import DIALECTS, events_statement  # noqa: E402

KEY = "a secret"
CAP = 3


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(3)
    size = 600
    labels = np.array(["x", "X", "é", "e\u0301", "a|b", "NA", "", "null", "'", "日本", *"abcdefgh"])
    users = np.array([*map(str, range(40)), "a|", "A", ""])
    frame = pd.DataFrame(
        {
            "my member": users[rng.integers(0, len(users), size)],
            "article": labels[rng.zipf(1.2, size) % len(labels)],
        }
    ).astype(object)
    frame.loc[:3, "article"] = None
    frame.loc[4:6, "my member"] = None
    return frame


@pytest.fixture(scope="module")
def statement():
    def of(dialect):
        names = {"table": "clicks", "user": "my member", "item": "article"}
        return events_statement(dialect, **names, labels_per_user=CAP)

    return of


@pytest.fixture(scope="module")
def result(events, statement):
    with duckdb.connect() as connection:
        connection.register("clicks", events)
        connection.execute("CREATE TABLE dptopk_key AS SELECT ? AS secret", [KEY])
        return connection.sql(statement("duckdb")).df()


def rows(counts):
    parts = [counts.labels.tolist(), counts.counts.tolist(), counts.under_cap.counts.tolist()]
    parts += [counts.under(cap).counts.tolist() for cap in counts.narrow]
    profile = [] if counts.profile is None else counts.profile.counts.tolist()
    return sorted(zip(*parts, strict=True)), profile


OPTIONS = {"labels_per_user": CAP, "weights": True, "profile": True}


def expected(events):
    columns = {"user": "my member", "item": "article"}
    return rows(event_counts(events, **columns, **OPTIONS, key=KEY, portable=True))


@pytest.mark.slow
def test_the_result_is_what_events_give_here(events, result, tmp_path):
    assert rows(event_counts(result, **OPTIONS)) == expected(events)
    result.to_csv(tmp_path / "counted.csv", index=False)
    result.to_parquet(tmp_path / "counted.parquet")
    for name in ("counted.csv", "counted.parquet"):
        assert rows(event_counts(tmp_path / name, **OPTIONS)) == expected(events)


@pytest.mark.slow
def test_postgresql_gives_the_same(url, events, statement):  # noqa: F811
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        cursor = connection.cursor()
        cursor.execute('CREATE TEMP TABLE clicks ("my member" text, article text)')
        cursor.executemany("INSERT INTO clicks VALUES (%s, %s)", events.to_numpy().tolist())
        cursor.execute("CREATE TEMP TABLE dptopk_key (secret text)")
        cursor.execute("INSERT INTO dptopk_key VALUES (%s)", [KEY])
        cursor.execute(statement("postgres"))
        names = [column.name for column in cursor.description]
        found = pd.DataFrame(cursor.fetchall(), columns=names)
    assert rows(event_counts(found, **OPTIONS)) == expected(events)


@pytest.mark.slow
def test_clickhouse_gives_the_same(events, statement):
    """On chDB, which no extra installs: pip install chdb."""
    session = pytest.importorskip("chdb.session").Session()
    session.query("CREATE DATABASE events")
    session.query("USE events")
    columns = "`my member` Nullable(String), article Nullable(String)"
    session.query(f"CREATE TABLE clicks ({columns}) ENGINE = Memory")

    def literal(value):
        if value is None:
            return "NULL"
        escaped = value.replace("'", "''")
        return f"'{escaped}'"

    rows_of = [f"({literal(one)}, {literal(other)})" for one, other in events.to_numpy().tolist()]
    session.query(f"INSERT INTO clicks VALUES {', '.join(rows_of)}")  # noqa: S608
    session.query("CREATE TABLE dptopk_key (secret String) ENGINE = Memory")
    session.query(f"INSERT INTO dptopk_key VALUES ('{KEY}')")  # noqa: S608
    found = io.StringIO(str(session.query(statement("clickhouse"), "CSVWithNames")))
    result = pd.read_csv(found, dtype=str, keep_default_na=False)
    assert rows(event_counts(result, **OPTIONS)) == expected(events)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_parsed_and_prints_no_key(statement, dialect):
    text = statement(dialect)
    assert sqlglot.parse_one(text, read=dialect).find(sqlglot.exp.Union)
    assert "DPTOPK_SHA256" not in text
    assert KEY not in text


def test_a_session_asks_the_result_as_events(result):
    options = {"labels_per_user": CAP, "budget": Budget(50.0, 1e-3)}
    session = Session.from_events(result, **options)
    release = session.top_k(2, budget=Budget(50.0, 1e-3))
    true = result[result["dptopk_row"] == "label"].nlargest(2, "users")
    assert set(release.labels) == set(true["dptopk_label"])


@pytest.mark.slow
def test_the_command_line_asks_the_result_as_events(events, tmp_path):
    text = events_statement("duckdb", table="clicks", user="my member", item="article")
    with duckdb.connect() as connection:
        connection.register("clicks", events)
        connection.execute("CREATE TABLE dptopk_key AS SELECT 'a secret' AS secret")
        result = connection.sql(text).df()
    asked = ["--k", "2", "--epsilon", "50", "--delta", "1e-3", "--seed", "1", "--format", "csv"]
    outputs = set()
    for name in ("counted.csv", "counted.parquet"):
        path = tmp_path / name
        (result.to_csv if name.endswith("csv") else result.to_parquet)(path, index=False)
        done = CliRunner().invoke(app, ["topk", str(path), *asked])
        assert done.exit_code == 0, done.output
        outputs.add(done.stdout)
    assert len(outputs) == 1
    refused = tmp_path / "refused.csv"
    result[result["dptopk_row"] != "caps"].to_csv(refused, index=False)
    done = CliRunner().invoke(app, ["topk", str(refused), *asked])
    assert done.exit_code == 2
    assert "the statement of caps" in " ".join(done.output.split())


def without_row(row):
    return lambda table: table[table["dptopk_row"] != row]


def changed(row, column, value):
    def change(table):
        table = table.copy()
        place = table.index[table["dptopk_row"] == row][0]
        table[column] = table[column].astype(object)
        table.loc[place, column] = value
        return table

    return change


BROKEN = {
    "no statement of caps": (without_row("caps"), "the statement of caps"),
    "no key": (without_row("key"), "the key"),
    "an empty key": (changed("key", "dptopk_label", None), "had no key"),
    "a column less": (lambda table: table.drop(columns="above_5"), "lack the columns above_5"),
    "two statements": (lambda table: pd.concat([table, table]), "one row"),
    "other caps": (changed("caps", "dptopk_label", '{"format": 2}'), "not one of this version"),
    "text for caps": (changed("caps", "dptopk_label", "caps"), "cannot be read"),
    "a fraction": (changed("label", "users", 0.5), "no count"),
    "a negative sum": (changed("label", "weights", -1), "no count"),
    "no number": (changed("label", "users", "nan"), "no count"),
    "more than the cap": (changed("label", "weights", 10**9), "above what their caps allow"),
    "a label twice": (
        lambda table: pd.concat([table, table[table["dptopk_row"] == "label"]]),
        "several rows",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_result_that_is_not_whole_is_refused(result, name):
    change, message = BROKEN[name]
    with pytest.raises(InvalidParameter, match=message):
        event_counts(change(result), **OPTIONS)


def test_another_cap_than_the_stated_one_is_refused(result):
    with pytest.raises(InvalidParameter, match="under a cap of 3, got 5"):
        event_counts(result, **(OPTIONS | {"labels_per_user": 5}))


@pytest.mark.parametrize(
    "option",
    [
        {"where": {"what": "x"}},
        {"weight": "amount"},
        {"per_label_cap": 2, "weights": False, "profile": False},
        {"key": "k"},
        {"choose": "random"},
        {"portable": True},
        {"table_name": "t"},
    ],
    ids=str,
)
def test_options_of_events_are_refused_beside_a_result(result, option):
    with pytest.raises(InvalidParameter, match="counted under its own conditions"):
        event_counts(result, **(OPTIONS | option))


def test_names_are_quoted_and_odd_ones_refused():
    text = events_statement("duckdb", table="a.b", user='x"; DROP', item="i")
    assert '"x""; DROP"' in text
    for table in ("t; DROP TABLE t", "t WHERE 1"):
        with pytest.raises(InvalidParameter, match="no name of a table"):
            events_statement("duckdb", table=table, user="u", item="i")
    with pytest.raises(InvalidParameter, match="dialect"):
        events_statement("mysql", table="t", user="u", item="i")


def test_the_command_prints_the_statement():
    columns = ["--table", "clicks", "--user-col", "u", "--item-col", "i"]
    done = CliRunner().invoke(app, ["events-sql", "--dialect", "trino", *columns])
    assert done.exit_code == 0, done.output
    assert "compiled, not run" in done.output
    assert sqlglot.parse_one(done.output, read="trino")


def with_label(label, path):
    """The result of the statement for two users, one of whom has this label, as CSV."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE dptopk_key AS SELECT 'k' AS secret")
        connection.execute("CREATE TABLE events AS SELECT 'a' AS u, 'x' AS i")
        connection.execute("INSERT INTO events VALUES ('b', 'LABEL')")
        text = events_statement("duckdb", table="events", user="u", item="i")
        connection.execute(f"COPY ({text}) TO '{path}' (FORMAT csv, HEADER)")
    path.write_bytes(path.read_bytes().replace(b"LABEL", label))


@pytest.mark.parametrize("label", [b"\xff", b"a\rb", b'"a\rb"', b"\0", b"'"], ids=repr)
def test_no_label_of_a_result_decides_about_the_others(tmp_path, label):
    """One that is not UTF-8, or whose end of a line was not quoted, refused the file."""
    path = tmp_path / "counted.csv"
    with_label(label, path)
    found = event_counts(path, labels_per_user=100, weights=True, profile=True)
    readable = {b'"a\rb"': "a\rb", b"\0": "\0", b"'": "'"}
    expected = {"x", readable[label]} if label in readable else {"x"}
    assert set(found.labels.tolist()) == expected


def test_a_label_of_a_result_in_parquet_that_is_no_text_is_left_out(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    with_label(b"LABEL", tmp_path / "counted.csv")
    table = pa.Table.from_pandas(pd.read_csv(tmp_path / "counted.csv"), preserve_index=False)
    names = table["dptopk_label"].to_pylist()
    stored = pa.array([b"\xff" if name == "LABEL" else name.encode() for name in names])
    texts = pa.StringArray.from_buffers(len(stored), *stored.buffers()[1:])
    place = table.column_names.index("dptopk_label")
    path = tmp_path / "counted.parquet"
    pq.write_table(table.set_column(place, "dptopk_label", texts), path)
    found = event_counts(path, labels_per_user=100, weights=True, profile=True)
    assert found.labels.tolist() == ["x"]
