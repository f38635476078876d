"""The ledger on a real SQLite file: what is written, what is refused, what verification finds."""

from __future__ import annotations

import sqlite3

import pytest

from dptopk.costs import ZCDP, BoundedRange, Budget, Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram.histogram import Sensitivity
from dptopk.ledger.ledger import Ledger

REGISTERED = Charge({BoundedRange(0.1): 100, PureDP(0.1): 10}, delta=1e-6)
TOP5 = Charge({BoundedRange(0.1): 5}, delta=1e-8, adaptive=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    made = Ledger(path)
    made.create_dataset(
        "articles", registered=REGISTERED, delta=1e-5, sensitivity=Sensitivity(l0=3), unit="member"
    )
    yield made
    made.close()


def test_a_spend_is_on_disk_before_it_returns(path, ledger):
    receipt = ledger.charge("articles", "ann", TOP5)
    rows = (
        sqlite3.connect(path).execute("SELECT kind, analyst FROM entries ORDER BY seq").fetchall()
    )
    assert rows == [("ledger", ""), ("dataset", ""), ("charge", "ann")]
    assert receipt.seq == 3
    assert ledger.spent("articles") == TOP5


def test_every_connection_is_durable(ledger):
    for _ in range(2):
        with ledger._store.transaction() as log:
            assert log.run("PRAGMA synchronous") == [(2,)]
            assert log.run("PRAGMA journal_mode") == [("persist",)]
        ledger._store.close()


def test_unused_selections_come_back_and_delta_does_not(ledger):
    receipt = ledger.charge("articles", "ann", TOP5)
    used = Charge({BoundedRange(0.1): 2}, delta=1e-8)
    ledger.finalize(receipt, used)
    assert ledger.spent("articles").costs == used.costs
    assert ledger.spent("articles").delta == 1e-8
    assert ledger.remaining("articles").costs[BoundedRange(0.1)] == 98


def test_a_charge_that_is_never_settled_stays_charged(path, ledger):
    ledger.charge("articles", "ann", TOP5)
    again = Ledger(path)
    assert again.spent("articles") == TOP5
    assert [spend.released for spend in again.history("articles")] == [False]


def test_a_settled_charge_cannot_be_settled_again(ledger):
    receipt = ledger.charge("articles", "ann", TOP5)
    ledger.finalize(receipt, TOP5)
    with pytest.raises(InvalidParameter, match="settled"):
        ledger.finalize(receipt, Charge())
    assert ledger.verify()


def test_what_does_not_fit_is_refused_and_nothing_is_written(ledger):
    before = ledger.head()
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.charge("articles", "ann", Charge({BoundedRange(0.1): 111}))
    assert refusal.value.requested == Charge({BoundedRange(0.1): 111})
    for arguments, named in [
        ({"sensitivity": Sensitivity(l0=2)}, "sensitivity"),
        ({"sensitivity": Sensitivity(l0=3, neighbours="replace_one")}, "sensitivity"),
        ({"version": "2"}, "version"),
        ({"unit": "device"}, "unit"),
        ({"analyst": ""}, "analyst"),
        ({"dataset": "books"}, "dataset"),
        ({"charge": Charge({PureDP(0.1): 1}, neighbours="replace_one")}, "neighbours"),
        ({"charge": "BR(0.1)"}, "charge"),
    ]:
        request = {"dataset": "articles", "analyst": "ann", "charge": TOP5} | arguments
        with pytest.raises(InvalidParameter, match=named):
            ledger.charge(**request)
    assert ledger.head() == before


def test_a_charge_for_a_wider_sensitivity_is_taken(ledger):
    ledger.charge(
        "articles",
        "ann",
        TOP5,
        sensitivity=Sensitivity(linf=2, l0=None),
        version="1",
        unit="member",
    )
    assert ledger.spent("articles") == TOP5


def test_analysts_have_limits_inside_the_budget(ledger):
    ledger.charge("articles", "ann", TOP5)
    ledger.set_limit(
        "articles", "ann", registered=Charge({BoundedRange(0.1): 12}, delta=1e-7), delta=1e-5
    )
    ledger.charge("articles", "ann", TOP5)
    with pytest.raises(BudgetExceeded, match="limit of 'ann'"):
        ledger.charge("articles", "ann", TOP5)
    ledger.charge("articles", "bob", TOP5)
    assert ledger.spent("articles", analyst="ann").count == 10
    with pytest.raises(InvalidParameter, match="already spent"):
        ledger.set_limit("articles", "bob", registered=Charge({BoundedRange(0.1): 1}), delta=1e-5)


def test_a_limit_without_a_price_for_what_was_spent_says_so(ledger):
    ledger.create_dataset("books", budget=Budget(2, 1e-6))
    ledger.charge("books", "ann", Charge({ZCDP(0.01): 1}))
    with pytest.raises(InvalidParameter, match="has no price for what the analyst 'ann'"):
        ledger.set_limit("books", "ann", budget=Budget(1.0, 1e-6), ranges=[0.2])


def test_a_filter_takes_costs_as_they_come(ledger):
    ledger.create_dataset("books", budget=Budget(2, 1e-6))
    ledger.charge("books", "ann", Charge({ZCDP(0.01): 1}))
    ledger.charge("books", "ann", Charge({BoundedRange(0.2): 3}))
    with pytest.raises(BudgetExceeded):
        ledger.charge("books", "ann", Charge({ZCDP(0.5): 1}))
    assert ledger.verify()


def test_renewal_is_recorded_and_the_lifetime_goes_on(ledger):
    ledger.charge("articles", "ann", TOP5)
    ledger.renew("articles", registered=REGISTERED, delta=1e-5, reason="new year")
    assert ledger.spent("articles") == Charge()
    assert ledger.spent("articles", lifetime=True) == TOP5
    ledger.charge("articles", "ann", TOP5)
    assert ledger.spent("articles", lifetime=True).count == 10
    with pytest.raises(InvalidParameter, match="reason"):
        ledger.renew("articles", registered=REGISTERED, delta=1e-5, reason=" ")


def test_stored_answers_belong_to_a_data_version(ledger):
    receipt = ledger.charge("articles", "ann", TOP5, query="q")
    assert ledger.stored_answer("articles", "q") is None
    ledger.finalize(receipt, TOP5, answer={"rows": [1]})
    assert ledger.stored_answer("articles", "q") == {"rows": [1]}
    ledger.set_version("articles", "2")
    assert ledger.stored_answer("articles", "q") is None


def test_two_ledgers_on_one_file_see_each_other(path, ledger):
    other = Ledger(path)
    for _ in range(10):
        ledger.charge("articles", "ann", TOP5)
        other.charge("articles", "bob", TOP5)
    assert ledger.spent("articles") == other.spent("articles")
    with pytest.raises(BudgetExceeded):
        ledger.charge("articles", "ann", Charge({BoundedRange(0.1): 11}))


def change(path, statement):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS entries_no_update")
        connection.execute("DROP TRIGGER IF EXISTS entries_no_delete")
        connection.execute(statement)


def test_rows_refuse_to_be_changed(path, ledger):
    for statement in ("UPDATE entries SET analyst = 'eve'", "DELETE FROM entries"):
        with (
            sqlite3.connect(path) as connection,
            pytest.raises(sqlite3.IntegrityError, match="append-only"),
        ):
            connection.execute(statement)
    assert ledger.verify()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET analyst = 'eve' WHERE seq = 3",
        "UPDATE entries SET at = '2000-01-01' WHERE seq = 3",
        "UPDATE entries SET body = replace(body, '5*BR', '4*BR') WHERE seq = 3",
        "UPDATE entries SET body = 'x' WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 3",
        "UPDATE entries SET seq = 9 WHERE seq = 4",
    ],
)
def test_verification_finds_changes(path, ledger, statement):
    ledger.charge("articles", "ann", TOP5)
    ledger.charge("articles", "bob", TOP5)
    assert ledger.verify()
    change(path, statement)
    assert not ledger.verify()
    with pytest.raises(LedgerError):
        Ledger(path)


def test_a_missing_tail_is_found_by_an_exported_head(path, ledger):
    ledger.charge("articles", "ann", TOP5)
    head = ledger.head()
    change(path, "DELETE FROM entries WHERE seq = 3")
    assert Ledger(path).verify()
    assert not Ledger(path).verify(head=head)
    assert "tail is missing" in Ledger(path).check(head=head)[0]


def test_a_key_makes_the_chain_unforgeable_without_it(tmp_path):
    path = tmp_path / "keyed.db"
    Ledger(path, key="secret").create_dataset("articles", registered=REGISTERED, delta=1e-5)
    assert Ledger(path, key="secret").verify()
    for wrong in (None, "other"):
        with pytest.raises(LedgerError, match="hash"):
            Ledger(path, key=wrong)


def test_seeded_releases_need_a_test_ledger(tmp_path, ledger):
    with pytest.raises(LedgerError, match="fixed seed"):
        ledger.charge("articles", "ann", TOP5, seeded=True)
    test = Ledger(tmp_path / "test.db", test=True)
    test.create_dataset("articles", registered=REGISTERED, delta=1e-5)
    test.charge("articles", "ann", TOP5, seeded=True)
    assert Ledger(tmp_path / "test.db").test


def test_bad_files_are_named(tmp_path):
    corrupt = tmp_path / "corrupt.db"
    corrupt.write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(LedgerError):
        Ledger(corrupt)
    with pytest.raises(LedgerError, match="no such file"):
        Ledger(tmp_path / "none.db", read_only=True)
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "no" / "folder.db")


def test_a_read_only_ledger_reads_and_refuses_to_write(path, ledger):
    ledger.charge("articles", "ann", TOP5)
    reader = Ledger(path, read_only=True)
    assert reader.spent("articles") == TOP5
    assert reader.verify()
    with pytest.raises(LedgerError):
        reader.charge("articles", "ann", TOP5)


def test_a_full_database_charges_nothing(path, ledger):
    ledger.charge("articles", "ann", TOP5)
    with ledger._store.transaction() as log:
        ((pages,),) = log.run("PRAGMA page_count")
        log.run(f"PRAGMA max_page_count={pages}")
    written = 0
    with pytest.raises(LedgerError, match="full"):
        for _ in range(50):
            ledger.charge(
                "articles", "ann", Charge({BoundedRange(0.1): 1}), mechanism={"text": "x" * 2000}
            )
            written += 1
    assert ledger.spent("articles").count == 5 + written
    assert Ledger(path).spent("articles").count == 5 + written


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "exactly one"),
        ({"registered": REGISTERED, "budget": Budget(1, 1e-6)}, "exactly one"),
        ({"registered": REGISTERED}, "delta"),
        ({"registered": "BR(1)", "delta": 1e-6}, "registered"),
        ({"budget": (1, 1e-6)}, "budget"),
        ({"budget": Budget(1, 1e-6), "delta": 1e-6}, "budget"),
        ({"budget": Budget(1, 1e-6), "segments": {"region": "eu"}}, "segments"),
        ({"registered": REGISTERED, "delta": 1e-5, "unit": ""}, "unit"),
        ({"registered": REGISTERED, "delta": 1e-5, "version": 2}, "version"),
        ({"registered": REGISTERED, "delta": 1e-5, "unit": "eve\x1b[2J"}, "unit"),
        ({"registered": REGISTERED, "delta": 1e-5, "sensitivity": 1}, "sensitivity"),
        ({"registered": REGISTERED, "delta": 1e-5, "name": "articles"}, "exists"),
    ],
)
def test_bad_datasets_are_named(ledger, arguments, named):
    with pytest.raises(InvalidParameter, match=named):
        ledger.create_dataset(**({"name": "books"} | arguments))


def test_how_much_of_delta_is_for_failures_is_said_when_the_budget_is_made(tmp_path):
    ledger, question = Ledger(tmp_path / "l.db"), Charge({PureDP(0.1): 1}, delta=8e-7)
    ledger.create_dataset("even", budget=Budget(1, 1e-6))
    ledger.charge(
        "even", "ann", Charge({PureDP(0.1): 1}, delta=1e-9)
    )  # a first charge of more would divide δ itself
    with pytest.raises(BudgetExceeded, match="set aside for the deltas"):
        ledger.charge("even", "ann", question)
    ledger.create_dataset("most", budget=Budget(1, 1e-6), failure_delta=9e-7)
    ledger.charge("most", "ann", question)
    with pytest.raises(BudgetExceeded, match="set aside for the deltas"):
        ledger.charge("most", "ann", question)
    ledger.renew(
        "even", reason="too little for thresholds", budget=Budget(1, 1e-6), failure_delta=8e-7
    )
    ledger.set_limit("even", "ann", budget=Budget(0.5, 9e-7), failure_delta=8e-7)
    ledger.charge("even", "ann", question)
    assert Ledger(tmp_path / "l.db").verify()
    for wrong in ({"failure_delta": 2e-6}, {"failure_delta": -1.0}, {"order": 3.0}):
        with pytest.raises(InvalidParameter):
            ledger.create_dataset("other", budget=Budget(1, 1e-6), **wrong)
    with pytest.raises(InvalidParameter, match="failure_delta"):
        ledger.create_dataset("other", registered=question, delta=1e-6, failure_delta=1e-7)
    with pytest.raises(InvalidParameter, match="exactly one"):
        ledger.create_dataset("other", shares={"ann": question}, delta=1e-6, failure_delta=0.0)


def test_a_filter_by_one_gaussian_goes_on_where_the_log_ends(tmp_path):
    """The method that the first charge chose, and all that ran, are read from the log."""
    path, cost = tmp_path / "l.db", BoundedRange(0.03)
    ledger = Ledger(path)
    ledger.create_dataset("d", budget=Budget(3, 1e-6), failure_delta=0.0)
    ledger.charge("d", "ann", Charge({cost: 1000}))
    receipt = Ledger(path).charge("d", "bob", Charge({cost: 861}))  # 1646 by Rényi in all
    with pytest.raises(BudgetExceeded):
        Ledger(path).charge("d", "ann", Charge({cost: 1}))
    Ledger(path).finalize(receipt, Charge({cost: 860}))
    Ledger(path).charge("d", "ann", Charge({cost: 1}))
    assert Ledger(path).verify()


SHARE = Charge({PureDP(0.1): 3})


@pytest.mark.parametrize(
    "given",
    [
        {"shares": {"ann": SHARE}},  # no delta
        {"shares": {"ann": SHARE}, "delta": 1e-6, "registered": SHARE},
        {"shares": {"ann": SHARE}, "delta": 1e-6, "budget": Budget(1.0, 1e-9)},
        {"shares": {"ann": SHARE}, "budget": Budget(1.0, 1e-9)},
        {"shares": {}, "delta": 1e-6},
        {"shares": [("ann", SHARE)], "delta": 1e-6},
    ],
    ids=str,
)
def test_shares_stand_alone_and_have_a_delta(tmp_path, given):
    """Each by itself is refused: none that are empty or no mapping, no delta, another budget."""
    with Ledger(tmp_path / "shares.db") as ledger:
        with pytest.raises(InvalidParameter, match="shares"):
            ledger.create_dataset("shared", **given)
        assert ledger.datasets() == ()
