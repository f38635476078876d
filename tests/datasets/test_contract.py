"""Every backend keeps the contract, and one that breaks a clause of it is not let in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ledger.test_postgresql import url  # noqa: F401

from dptopk import InvalidParameter

ibis = pytest.importorskip("ibis")
pytest.importorskip("duckdb")
pytest.importorskip("psycopg")

from dptopk.datasets import Backend, DuckDB, events_histogram, register_backend  # noqa: E402
from dptopk.datasets.backends.base import builtin  # noqa: E402
from dptopk.datasets.backends.contract import (  # noqa: E402
    CHECKS,
    Broken,
    TrialEngine,
    _check_users_by_labels,
)
from dptopk.datasets.backends.contract_files import FILE_CHECKS  # noqa: E402
from dptopk.datasets.backends.datafusion import DATAFUSION  # noqa: E402
from dptopk.datasets.backends.duckdb_operations import DUCKDB, hash_of  # noqa: E402
from dptopk.datasets.backends.opening import REGISTERED  # noqa: E402
from dptopk.datasets.backends.postgres import POSTGRES  # noqa: E402
from dptopk.datasets.hashing import text_codes  # noqa: E402
from dptopk.datasets.text_files import TextFormat  # noqa: E402


def clause_of(name):
    return next(check for check in CHECKS if check.__name__ == name)


@pytest.fixture(scope="module")
def duckdb():
    opened = ibis.duckdb.connect()
    yield opened
    opened.disconnect()


@pytest.fixture(scope="module")
def datafusion():
    return ibis.datafusion.connect()


@pytest.fixture(scope="module")
def postgres(url):  # noqa: F811
    opened = ibis.connect(url.replace("+psycopg", ""))
    yield opened
    opened.disconnect()


@pytest.fixture
def connection(request, backend):
    return request.getfixturevalue(backend.name)


each_backend = pytest.mark.parametrize(
    "backend",
    [
        DUCKDB,
        *(pytest.param(backend, marks=pytest.mark.slow) for backend in (POSTGRES, DATAFUSION)),
    ],
    ids=lambda backend: backend.name,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@each_backend
def test_a_backend_keeps_the_contract(connection, backend, check):
    check(TrialEngine(connection, backend))


@each_backend
def test_without_a_hash_of_its_own_a_backend_has_sha256(connection, backend):
    plain = replace(backend, mix=None, keep=None)
    for name in ("the_hash_is_a_function", "the_hash_spreads", "the_answer_is_the_definition"):
        clause_of(name)(TrialEngine(connection, plain))


@each_backend
def test_without_equal_places_for_equal_rows_pairs_are_grouped(connection, backend):
    plain = replace(backend, peers=False)
    for name in ("windows_rank_as_said", "the_answer_is_the_definition"):
        clause_of(name)(TrialEngine(connection, plain))


def blind_to_the_user(*columns):
    return DUCKDB.mix(*columns[-1:])


def blind_to_the_key(*columns):
    return DUCKDB.mix(*columns[-2:])


def of_the_moment(*columns):
    return (DUCKDB.mix(*columns).cast("float64") * ibis.random()).cast("int64")


def of_few_bits(*columns):
    return DUCKDB.mix(*columns) % 2**10


MUTANTS = {
    "joined by XOR": (replace(DUCKDB, mix=hash_of), "the_hash_spreads"),
    "blind to the user": (replace(DUCKDB, mix=blind_to_the_user), "the_hash_is_a_function"),
    "blind to the key": (replace(DUCKDB, mix=blind_to_the_key), "the_hash_is_a_function"),
    "of the moment": (replace(DUCKDB, mix=of_the_moment), "the_hash_is_a_function"),
    "too short": (replace(DUCKDB, mix=of_few_bits), "the_hash_is_a_function"),
    "text cut short": (
        replace(DUCKDB, encode=lambda text: DUCKDB.encode(text.left(9))),
        "long_texts_are_whole",
    ),
    "text folded": (
        replace(DUCKDB, encode=lambda text: DUCKDB.encode(text.lower())),
        "texts_are_their_bytes",
    ),
    "text trimmed": (
        replace(DUCKDB, encode=lambda text: DUCKDB.encode(text.strip())),
        "texts_are_their_bytes",
    ),
    "another digest": (
        replace(DUCKDB, digest=lambda text: text.hexdigest("md5")),
        "sha256_is_sha256",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(duckdb, name):
    mutant, clause = MUTANTS[name]
    with pytest.raises(Exception):  # noqa: B017, PT011
        clause_of(clause)(TrialEngine(duckdb, mutant))


def test_a_number_of_labels_with_another_number_of_users_is_caught(duckdb):
    pairs = [("a", "x"), ("a", "y"), ("b", "x")]
    table = TrialEngine(duckdb, DUCKDB).table(
        u=[user for user, _ in pairs], i=[item for _, item in pairs]
    )
    _check_users_by_labels(table, pairs)
    for others in ([*pairs, ("b", "y")], [*pairs, ("c", "x")], pairs[:2]):
        with pytest.raises(Broken, match="1 to 6 labels"):
            _check_users_by_labels(table, others)


def _codes_anyway(source, events, role):
    return text_codes(
        replace(source, keep=lambda _, asked: ibis.memtable(source.run(asked))), events, role
    )


RULES = {
    "integers of their own width": (
        "columns._LABELS",
        ((lambda kind: True, lambda column: column),),
    ),
    "users by their bytes": ("backends.base.OpenTable.equates_texts", lambda *_: False),
    "two statements": ("counting.text_codes", _codes_anyway),
    "all relations": ("backends.rowwise._looks_at_one_row", lambda node: True),
}
CLAUSES = (
    "integers_of_any_width_are_alike",
    "users_are_one_where_texts_are_equal",
    "answers_are_of_one_state",
    "tables_are_taken_row_by_row",
)


@pytest.mark.parametrize(("name", "clause"), list(zip(RULES, CLAUSES, strict=True)))
def test_a_rule_of_ours_left_out_is_caught(monkeypatch, name, clause):
    connection = ibis.duckdb.connect()
    connection.con.execute("SET default_collation = 'nocase'").fetchall()
    clause_of(clause)(TrialEngine(connection, DUCKDB))
    where, mutant = RULES[name]
    monkeypatch.setattr(f"dptopk.datasets.{where}", mutant)
    with pytest.raises(Broken):
        clause_of(clause)(TrialEngine(connection, DUCKDB))


def test_a_function_of_the_users_own_is_refused_by_name():
    table = ibis.memtable({"u": ["a"], "i": ["x"]})
    condition = builtin("upper", ("string",), "string")(table.i) == "X"
    for options in ({"where": condition}, {"table": table.filter(condition)}):
        with pytest.raises(InvalidParameter, match=r"one row at a time.* upper may not"):
            events_histogram(
                **({"table": table, "user": "u", "item": "i", "labels_per_user": 1} | options)
            )


class Other:
    """A connection whose engine does one thing wrong: what it gives back is changed."""

    name = "duckdb"

    def __init__(self, connection, change):
        self.connection, self.change = connection, change

    def __getattr__(self, name):
        return getattr(self.connection, name)

    def to_pyarrow(self, expression):
        return self.change(self.connection.to_pyarrow(expression))


def rounded(table):
    """Sums as 64-bit floating-point numbers."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if field.name in {"count", "n"} and pa.types.is_integer(field.type):
            column = table.column(place).cast(pa.float64(), safe=False).cast(pa.int64(), safe=False)
            table = table.set_column(place, field.name, column)
    return table


def one_less(table):
    """The rows but for the last. (In which order they come makes no difference.)"""
    return table.slice(0, max(len(table) - 1, 0))


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        (rounded, "integers_are_64_bits_wide"),
        (one_less, "the_cut_is_by_count_then_label"),
        (one_less, "windows_rank_as_said"),
    ],
)
def test_an_engine_that_gives_back_something_else_is_caught(duckdb, change, clause):
    with pytest.raises(Exception):  # noqa: B017, PT011
        clause_of(clause)(TrialEngine(Other(duckdb, change), DUCKDB))


@pytest.mark.slow
def test_a_collation_is_caught():
    """Where text may be equal that is not the same, a backend that does not compare bytes is not
    let in.
    """
    connection = ibis.duckdb.connect()
    connection.con.execute("SET default_collation = 'nocase'").fetchall()
    for check in CHECKS:
        if check.__name__ in {
            "texts_are_their_bytes",
            "names_and_values_are_quoted",
            "the_answer_is_the_definition",
        }:
            check(TrialEngine(connection, DUCKDB))
    with pytest.raises(InvalidParameter, match="texts_are_their_bytes"):
        register_backend(connection, Backend(name="duckdb"))
    assert REGISTERED["duckdb"] is DUCKDB


def test_a_backend_without_total_forms_keeps_the_clause_of_rows():
    plain = Backend(name="duckdb")
    clause_of("tables_are_taken_row_by_row")(TrialEngine(ibis.duckdb.connect(), plain))


def test_where_the_contract_stops_an_engine_the_operation_is_named():
    polars = TrialEngine(ibis.polars.connect(), Backend(name="polars"))
    with pytest.raises(InvalidParameter, match="it has no WindowFunction"):
        clause_of("missing_values_are_dropped")(polars)


@pytest.mark.slow
def test_an_engine_that_is_not_up_to_it_is_not_let_in():
    """SQLite takes remainders of integers through fractions and writes truth values as numbers, to
    name two.
    """
    connection = ibis.sqlite.connect()
    connection.raw_sql("CREATE TABLE events (u text, i text)")
    with pytest.raises(InvalidParameter, match="remainders_have_a_sign") as caught:
        register_backend(connection, Backend(name="sqlite"))
    assert "types_are_written_alike" in str(caught.value)
    with pytest.raises(InvalidParameter, match="let in"):
        events_histogram(connection.table("events"), user="u", item="i", labels_per_user=1)


@pytest.mark.slow
def test_what_keeps_the_contract_is_let_in(duckdb, postgres, monkeypatch):
    monkeypatch.delitem(REGISTERED, "postgres")
    table = postgres.create_table("clicks", {"u": ["a", "b"], "i": ["x", "x"]}, temp=True)
    options = {"user": "u", "item": "i", "labels_per_user": 1}
    with pytest.raises(InvalidParameter, match="let in"):
        events_histogram(table, **options)
    with pytest.raises(InvalidParameter, match="connection"):
        register_backend(duckdb, POSTGRES)
    register_backend(postgres, POSTGRES)
    assert events_histogram(table, **options).counts.tolist() == [2]


@pytest.mark.parametrize("check", FILE_CHECKS, ids=lambda check: check.__name__)
def test_duckdb_reads_files_as_said(tmp_path, check):
    check(DuckDB(), tmp_path)


def by_position(connection, files, _):
    return connection.read_csv(
        list(files.paths), header=False, skip=1, names=["u", "i"], all_varchar=True
    )


def by_another_encoding(path, wanted, **stated):
    return TextFormat(",", "latin-1", ("u", "i"), 0)


@pytest.mark.parametrize(
    ("where", "mutant", "clause"),
    [
        ("duckdb_files._FILES", {"csv": by_position}, "columns_are_read_by_name"),
        ("files.text_format", by_another_encoding, "malformed_text_is_read_by_rule"),
        ("files._state", lambda paths: None, "files_are_those_of_the_start"),
    ],
)
def test_reading_files_otherwise_is_caught(monkeypatch, tmp_path, where, mutant, clause):
    monkeypatch.setattr(f"dptopk.datasets.backends.{where}", mutant)
    with pytest.raises(Broken):
        next(check for check in FILE_CHECKS if check.__name__ == clause)(DuckDB(), tmp_path)


@pytest.mark.parametrize(
    "change",
    [{"encode": DUCKDB.encode}, {"decode": DUCKDB.decode}, {"keep": DUCKDB.keep}],
    ids=["encode", "decode", "keep"],
)
def test_parameters_that_do_not_fit_together(change):
    with pytest.raises(InvalidParameter, match=next(iter(change))):
        Backend(name="duckdb", **change)


def test_the_page_states_every_clause():
    page = (Path(__file__).parents[2] / "docs" / "backends.md").read_text(encoding="utf-8")
    for check in (*CHECKS, *FILE_CHECKS):
        assert f"| `{check.__name__}` | {' '.join(check.__doc__.split())} |" in page
