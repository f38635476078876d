"""Relations of DuckDB: those that look at one row at a time give what their rows give; others are
refused by what is in them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dptopk import Budget, InvalidParameter, Session

duckdb = pytest.importorskip("duckdb")

from dptopk.datasets import events_histogram  # noqa: E402

COLUMNS = {"user": "u", "item": "i"}


@pytest.fixture
def connection():
    with duckdb.connect() as made:
        rows = "range % 40 AS u, 'i' || range % 7 AS i, range % 5 AS w, 't' || range % 3 AS t"
        made.execute(f"CREATE TABLE clicks AS SELECT {rows} FROM range(300)")  # noqa: S608
        made.execute("INSERT INTO clicks VALUES (NULL, 'i1', 1, 't1'), (3, NULL, 1, 't1')")
        made.execute("CREATE TABLE folded (u VARCHAR COLLATE NOCASE, i VARCHAR)")
        yield made


def counted(table, **options):
    found = events_histogram(table, **COLUMNS, labels_per_user=5, **options)
    return found.labels.tolist(), found.counts.tolist()


ROW_WISE = {
    "FROM clicks": lambda frame: frame,
    "SELECT u, i FROM clicks WHERE t = 't1' OR NOT (w >= 2)": lambda frame: frame[
        (frame.t == "t1") | ~(frame.w >= 2)
    ],
    "SELECT * FROM (SELECT u, t AS i FROM clicks WHERE w BETWEEN 1 AND 3 AND w IN (1, 3)) AS x":
        lambda frame: frame[frame.w.isin([1, 3])].drop(columns="i").rename(columns={"t": "i"}),
    "SELECT u, i FROM clicks UNION ALL SELECT u, t AS i FROM clicks WHERE t IS NOT NULL":
        lambda frame: pd.concat([frame[["u", "i"]],
                                 frame[["u", "t"]].rename(columns={"t": "i"})]),
    "WITH kept AS (SELECT * FROM clicks WHERE TRY_CAST(t AS INTEGER) > -1.5) FROM kept":
        lambda frame: frame[:0],
}  # fmt: skip


@pytest.mark.parametrize("query", ROW_WISE)
def test_a_relation_gives_what_its_rows_give(query, connection):
    frame = ROW_WISE[query](connection.table("clicks").df())
    assert counted(connection.sql(query)) == counted(frame)


@pytest.mark.slow
def test_methods_of_relations_and_frames_are_taken(connection):
    clicks = connection.table("clicks")
    frame = clicks.df()
    assert counted(clicks.filter("t = 't1'").project("u, i")) == counted(frame[frame.t == "t1"])
    assert counted(connection.from_df(frame)) == counted(frame)
    assert counted(clicks, where={"t": "t1"}) == counted(frame[frame.t == "t1"])


@pytest.mark.parametrize(
    "query",
    [
        "FROM clicks LIMIT 9",
        "FROM clicks ORDER BY u",
        "SELECT DISTINCT u, i FROM clicks",
        "SELECT u, i, row_number() OVER () AS n FROM clicks",
        "SELECT u, min(i) AS i FROM clicks GROUP BY u",
        "SELECT a.u, a.i FROM clicks AS a JOIN clicks AS b ON a.u = b.u",
        "SELECT a.u, b.i FROM clicks AS a, clicks AS b",
        "SELECT u, i FROM clicks UNION SELECT u, i FROM clicks",
        "SELECT u, i FROM clicks EXCEPT ALL SELECT u, i FROM clicks",
        "SELECT u, i FROM clicks WHERE u IN (SELECT u FROM clicks)",
        "SELECT u, i FROM clicks WHERE w > (SELECT avg(w) FROM clicks)",
        "SELECT u, i FROM clicks WHERE random() < 0.5",
        "SELECT u, i FROM clicks USING SAMPLE 5",
        "SELECT u, i FROM clicks QUALIFY row_number() OVER () < 9",
        "SELECT u, CAST(t AS INTEGER) AS i FROM clicks",
        "SELECT u, i FROM clicks WHERE t = 1",
        "SELECT u, i FROM clicks WHERE t",
        "SELECT u, i FROM clicks WHERE t IS TRUE",
        "SELECT u, i FROM clicks WHERE t = u",
        "SELECT * REPLACE (CAST(t AS INTEGER) AS i) FROM clicks",
        "SELECT u, w AS i FROM (SELECT u, TRY_CAST(t AS INTEGER) AS w FROM clicks) WHERE w = 1",
        "SELECT u, i FROM query('FROM clicks LIMIT 9')",
        "SELECT range AS u, range AS i FROM range(5)",
        "WITH RECURSIVE n AS (SELECT u, i FROM clicks UNION ALL SELECT u, i FROM clicks) FROM n",
        "SELECT u, i FROM clicks WHERE EXISTS (FROM clicks)",
    ],
)
def test_what_may_look_at_several_rows_or_fail_is_refused(query, connection):
    with pytest.raises(InvalidParameter, match="a relation of DuckDB may"):
        counted(connection.sql(query))


def test_a_file_is_refused_and_a_collation_too(connection, tmp_path):
    path = tmp_path / "e.parquet"
    connection.table("clicks").write_parquet(str(path))
    for query in (f"FROM '{path}'", f"FROM read_parquet('{path}')"):
        with pytest.raises(InvalidParameter, match="relation of DuckDB may"):
            counted(connection.sql(query))
    with pytest.raises(InvalidParameter, match="collation"):
        counted(connection.table("folded"))


def test_one_text_that_is_no_number_decides_nothing(connection):
    """TRY_CAST gives NULL; a cast of the same text would refuse all rows."""
    connection.execute("INSERT INTO clicks VALUES (99, 'i1', 1, 'one')")
    relation = connection.sql("SELECT TRY_CAST(t AS INTEGER) AS i, u FROM clicks")
    assert counted(relation) == ([], [])


@pytest.mark.parametrize(
    ("condition", "allowed"),
    [
        ("t = 't1'", True),
        ("w >= '2'", True),
        ("w = 'x'", False),
        ("TRY_CAST(t AS DATE) < '2024-01-31'", True),
        ("TRY_CAST(t AS DATE) IN ('2024-01-31', 'x')", False),
        ("TRY_CAST(t AS TIMESTAMP_NS) = '3000-01-01'", False),
        ("TRY_CAST(t AS VARCHAR) = 5", False),
        ("TRY_CAST(t AS JSON) = 5", False),
        ("TRY_CAST(t AS DATE) = 5", False),
        ("TRY_CAST(t AS DECIMAL(9, 2)) BETWEEN -0.5 AND 1e300", True),
        ("TRY_CAST(t AS DECIMAL(38, 0)) = 0.5", False),
        ("TRY_CAST(t AS HUGEINT) = 0.5", False),
        ("w = 0.1234567890123456789", False),
    ],
)
def test_a_constant_beside_which_a_value_may_fail_is_refused(connection, condition, allowed):
    """Some of them failed for the rows that there are alone, or wherever there was a row."""
    for rows in ("", "AND TRY_CAST(u AS INTEGER) < 0"):
        relation = connection.table("clicks").filter(f"{condition} {rows}").project("u, i")
        if allowed:
            counted(relation)
            continue
        with pytest.raises(InvalidParameter, match="relation of DuckDB may"):
            counted(relation)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT u, i FROM (SELECT u, i, w AS x FROM {table}) WHERE x = 'zzz'",
        "WITH named AS (SELECT u, i, w AS x FROM {table}) SELECT u, i FROM named WHERE x < 'zzz'",
        "SELECT u, i, w FROM {frame} WHERE w = 'zzz' UNION ALL SELECT u, i, t AS w FROM clicks",
    ],
)
@pytest.mark.parametrize("rows", ["true", "false"])
def test_a_text_beside_a_column_of_unknown_type_is_refused_whatever_rows_there_are(
    query, rows, connection
):
    """It failed where there was a row, and counted nothing where there was none."""
    connection.execute(f"CREATE TABLE part AS FROM clicks WHERE {rows}")
    numbers = connection.table("part").df()  # noqa: F841 - a frame has a name on no connection
    relation = connection.sql(query.format(table="part", frame="numbers"))
    with pytest.raises(InvalidParameter, match="relation of DuckDB may"):
        counted(relation)


def test_a_frame_of_texts_beside_a_table_of_numbers_is_compared_with_no_number(connection):
    """The frame has a name on no connection, so that its types are not known."""
    frame = connection.table("clicks").df().assign(w="one")
    connection.register("texts", frame)
    halves = "SELECT u, i FROM {} WHERE w = 1 UNION ALL SELECT u, i FROM clicks"
    with pytest.raises(InvalidParameter, match="relation of DuckDB may"):
        counted(connection.sql(halves.format("texts")))
    with pytest.raises(InvalidParameter, match="relation of DuckDB may"):
        counted(connection.sql(halves.format("frame")))


@pytest.mark.slow
def test_a_session_asks_a_relation_in_two_phases(connection):
    large = Budget(epsilon=50.0, delta=1e-3)
    session = Session.from_events(connection.table("clicks"), **COLUMNS, budget=large,
                                  rng=np.random.default_rng(1))  # fmt: skip
    assert set(session.top_k(3, budget=large).labels) <= {f"i{n}" for n in range(7)}
