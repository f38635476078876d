"""What was written can be read: normal form, records of what was charged, checkpoints, and a stored
ledger.
"""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dptopk.budgets import filter as filters
from dptopk.budgets.filter_metrics import Renyi
from dptopk.costs import ZCDP, BoundedRange, Budget, Charge, DiscreteGaussianDP, GaussianDP, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.ledger import journal
from dptopk.ledger.entries import DEEPEST, normal_form
from dptopk.ledger.ledger import Ledger

DATA = Path(__file__).parents[1] / "data"
REGISTERED = Charge({BoundedRange(0.1): 100, PureDP(0.1): 10}, delta=1e-6)
ONE = Charge({BoundedRange(0.1): 1}, delta=1e-9)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path):
    with Ledger(path) as made:
        made.create_dataset("d", registered=REGISTERED, delta=1e-5)
        yield made


ODD = {
    2: "a",
    10: "b",
    0.5: {True: 1, None: (1, 2)},
    "surrogate": "\ud800",
    "nul": "\0",
    "far": "漢\u2028",
}


@pytest.mark.slow
def test_odd_keys_and_texts_are_read_as_they_were_written(path, ledger):
    receipt = ledger.charge("d", "ann", ONE, mechanism=ODD, query="q")
    ledger.finalize(receipt, ONE, answer=ODD)
    with Ledger(path) as again:
        assert again.verify()
        assert again.stored_answer("d", "q") == normal_form(odd=ODD)
        assert again.history("d")[0].mechanism["10"] == "b"


@pytest.mark.parametrize(
    "body",
    [
        {"x": math.nan},
        {"x": math.inf},
        {1: "a", "1": "b"},
        {"x": object()},
        {"x": {1, 2}},
        "text",
        {"x": 10**5000},
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(ledger, body):
    before = ledger.head()
    with pytest.raises(InvalidParameter):
        ledger.charge("d", "ann", ONE, mechanism=body)
    assert ledger.head() == before
    receipt = ledger.charge("d", "ann", ONE)
    with pytest.raises(InvalidParameter):
        ledger.finalize(receipt, ONE, answer=body)
    ledger.finalize(receipt, ONE)
    assert ledger.verify()


def test_a_state_that_was_handed_out_spends_nothing(path, ledger):
    everything = Charge({BoundedRange(0.1): 100, PureDP(0.1): 10})
    ledger.charge("d", "ann", everything)
    copy = ledger.state("d")
    copy.account.refund(everything)
    copy.limits.clear()
    with pytest.raises(BudgetExceeded):
        ledger.charge("d", "ann", ONE)
    assert Ledger(path).verify()


def test_a_release_beyond_its_receipt_is_refused(ledger):
    receipt = ledger.charge("d", "ann", ONE)
    for used in (
        ONE.times(2),
        Charge({BoundedRange(0.1): 1}, delta=2e-9),
        Charge({PureDP(0.1): 1}),
    ):
        with pytest.raises(InvalidParameter, match="not part"):
            ledger.finalize(receipt, used)
    assert not ledger.history("d")[0].released


def test_a_stored_ledger_opens_verifies_and_goes_on(tmp_path):
    """Written by the code of its time; its numbers are from then."""
    path, key = tmp_path / "old.db", "format three"
    shutil.copy(DATA / "ledger_format_3.db", path)
    spent = Charge(
        {PureDP(0.1): 1, BoundedRange(0.05): 3, BoundedRange(0.1): 12}, delta=5.0000000000000004e-08
    )
    with Ledger(path, key=key, read_only=True) as reader:
        assert reader.inspect().problems == reader.inspect().warnings == ()
        assert reader.spent("articles").costs == spent.costs
        assert reader.spent("articles").delta == spent.delta
        assert reader.spent("books") == Charge({BoundedRange(0.1): 4})
        assert reader.spent("books", lifetime=True).costs[DiscreteGaussianDP(9.5, 1)] == 2
        assert reader.spent("books", lifetime=True).of(ZCDP) == {}  # it came back
    with Ledger(path, key=key) as writer:
        last = writer.head()
        open_charge = writer.history("articles")[-1]
        with pytest.raises(BudgetExceeded, match="limit of 'ann'"):
            writer.charge("articles", "ann", ONE.times(10))
        writer.charge("articles", "ann", Charge({BoundedRange(0.1): 1}))
        from dptopk.ledger.spends import Receipt

        receipt = Receipt(open_charge.seq, "articles", open_charge.analyst, open_charge.charge)
        writer.finalize(receipt, Charge(delta=1e-8), answer={"rows": []})
        assert writer.spent("articles").costs[BoundedRange(0.1)] == 8
        with pytest.raises(InvalidParameter, match="already settled"):
            writer.finalize(receipt, Charge())
        assert writer.stored_answer("articles", "q2") == {"rows": []}
        assert writer.verify(head=last)
    with Ledger(path, key=key) as again:
        assert again.spent("articles").costs[BoundedRange(0.1)] == 8
        assert again.inspect().problems == ()


def test_prices_of_another_processor_are_taken_as_they_were_written(path, monkeypatch):
    """A filter filled to its last bit here, then read where every price is an ulp, or a tenth,
    larger.
    """
    costs = [BoundedRange(0.1), GaussianDP(0.05), ZCDP(1e-4)]
    with Ledger(path) as ledger:
        ledger.create_dataset("d", budget=Budget(1.0, 1e-6))
        ledger.set_limit("d", "ann", budget=Budget(1.0, 1e-6))
        for cost in costs:
            while ledger.state("d").account.can_spend(Charge({cost: 1})):
                fits = ledger.state("d").account.fits(Charge({cost: 1}))
                ledger.charge("d", "ann", Charge({cost: fits}))
        spent, share = ledger.spent("d"), ledger.state("d").account.share_left
        assert share < 1e-3
    price = Renyi.price
    for factor, warned in ((1 + 2**-50, False), (1.1, True)):
        monkeypatch.setattr(
            Renyi, "price", lambda self, rest, factor=factor: price(self, rest) * factor
        )
        with Ledger(path) as other:
            assert other.spent("d") == spent
            assert other.state("d").account.share_left == share
            found = other.inspect()
            assert found.problems == ()
            assert bool(found.warnings) == warned
            receipt = other.charge("d", "ann", Charge({PureDP(1e-9): 1})) if not warned else None
            if receipt is not None:
                other.finalize(receipt, Charge())  # comes back at the price of its own charge
    assert filters.PRICE_TOLERANCE < 0.1


def test_a_stricter_later_version_reads_what_was_sound_when_written(path, ledger, monkeypatch):
    ledger.charge("d", "ann", Charge({BoundedRange(0.05): 3}))
    ledger.close()
    strict = "dptopk.budgets.registered_account.dominates"
    monkeypatch.setattr(strict, lambda token, cost: token == cost)
    with Ledger(path) as later:
        assert later.spent("d").count == 3
        found = later.inspect()
        assert found.problems == ()
        assert "took BR(0.1) for BR(0.05)" in found.warnings[0]
        with pytest.raises(BudgetExceeded):
            later.charge("d", "ann", Charge({BoundedRange(0.05): 3}))


def test_a_ledger_is_opened_from_its_last_checkpoint(path, ledger, monkeypatch):
    monkeypatch.setattr(journal, "CHECKPOINT_EVERY", 10)
    ledger.set_limit("d", "bob", registered=Charge({BoundedRange(0.1): 30}, delta=1e-6), delta=1e-5)
    for i in range(24):
        receipt = ledger.charge("d", ("ann", "bob")[i % 2], ONE.times(2), query=f"q{i}")
        if i % 3:
            ledger.finalize(receipt, ONE, answer={"i": i})
    state = ledger._now.state()
    assert sum(entry.kind == "checkpoint" for entry in ledger.entries()) >= 4
    with Ledger(path) as opened:
        assert opened._now.state() == state
        assert opened._now.checkpoint > 40
        assert opened.stored_answer("d", "q1") == {"i": 1}
        assert opened.verify()
        opened.charge("d", "ann", ONE)
    assert ledger.spent("d") == Ledger(path).spent("d")


def test_a_changed_snapshot_is_not_believed(path, ledger, monkeypatch):
    monkeypatch.setattr(journal, "CHECKPOINT_EVERY", 5)
    for _ in range(10):
        ledger.charge("d", "ann", ONE)
    with sqlite3.connect(path) as connection:
        changed = connection.execute(
            "UPDATE snapshots SET state = replace(state, '\"BR(0.1)\": 9', '\"BR(0.1)\": 99')"
        )
        assert changed.rowcount == 1
    with Ledger(path) as opened:
        assert opened.spent("d").count == 10
        assert opened._now.checkpoint > 0  # folded from the first entry


def test_a_forged_checkpoint_is_found_by_verification(path, ledger, monkeypatch):
    """A state that is not the fold of the log, with all hashes right: as a faulty writer might
    leave it.
    """
    monkeypatch.setattr(journal, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(
        type(ledger._now),
        "state",
        lambda self: {"layout": 1, "about": {}, "format": 2, "datasets": {}},
    )
    for _ in range(10):
        ledger.charge("d", "ann", ONE)
    monkeypatch.undo()
    assert "checkpoint of another state" in ledger.check()[0]


def test_terms_that_name_no_method_are_refused(ledger, monkeypatch):
    """With all hashes right: as whoever can write the file might leave it."""
    written = filters.Filter.terms
    monkeypatch.setattr(filters.Filter, "terms", lambda self: written(self) | {"meters": []})
    with pytest.raises(LedgerError, match="name no method"):
        ledger.create_dataset("free", budget=Budget(1.0, 1e-6))
    assert ledger.check() == []


def test_refunds_that_were_never_due_are_found_by_verification(path, ledger, monkeypatch):
    receipt = ledger.charge("d", "ann", ONE.times(5))
    monkeypatch.setattr("dptopk.ledger.ledger.is_part", lambda used, whole: True)
    ledger.finalize(receipt, Charge({PureDP(0.1): 1}))
    assert "refunds more" in ledger.check()[0]


def test_a_foreign_trigger_cannot_swallow_a_charge(path, ledger):
    with sqlite3.connect(path) as connection:
        connection.execute(
            "CREATE TRIGGER eater BEFORE INSERT ON entries BEGIN SELECT RAISE(IGNORE); END"
        )
    with pytest.raises(LedgerError, match="lost what was"):
        ledger.charge("d", "ann", ONE)


def test_names_that_look_alike_are_one_analyst(ledger):
    ledger.set_limit("d", "ann", registered=Charge({BoundedRange(0.1): 2}, delta=1e-8), delta=1e-5)
    for name in ("ann", " Ann "):
        ledger.charge("d", name, ONE)
    for name in ("ann", "ANN", "ann ", "\uff21nn", "a\u00adnn".replace("\u00ad", "")):
        with pytest.raises(BudgetExceeded, match="limit of 'ann'"):
            ledger.charge("d", name, ONE)
    for name in (
        "аnn",
        "eve\x1b]0;PWNED\x07",
        "a\u200bnn",
        "",
        " ",
        "x" * 300,
    ):  # the first letter is Cyrillic
        with pytest.raises(InvalidParameter, match="analyst"):
            ledger.charge("d", name, ONE)
    assert ledger.spent("d", analyst="Ann").count == 2


def test_a_limit_binds_what_is_shown_of_others_answers(ledger):
    ledger.set_limit("d", "ann", registered=Charge({BoundedRange(0.1): 5}, delta=1e-8), delta=1e-5)
    for i in range(3):
        receipt = ledger.charge("d", "bob", ONE.times(2), query=f"q{i}")
        ledger.finalize(receipt, ONE.times(2), answer={"i": i})
    spent = ledger.spent("d")
    for _ in range(3):  # shown again, it costs nothing more
        assert ledger.reuse("d", "Ann", "q0") == {"i": 0}
    assert ledger.reuse("d", "ann", "q1") == {"i": 1}
    with pytest.raises(BudgetExceeded, match="limit of 'ann'"):
        ledger.reuse("d", "ann", "q2")
    assert ledger.reuse("d", "bob", "q2") == {"i": 2}
    assert ledger.reuse("d", "ann", "never asked") is None
    assert ledger.spent("d") == spent
    assert ledger.state("d").learnt_charge("ann").count == 4
    ledger.reuse("d", "eve", "q0")
    with pytest.raises(InvalidParameter, match="already spent"):
        ledger.set_limit(
            "d", "eve", registered=Charge({BoundedRange(0.1): 1}, delta=1e-8), delta=1e-5
        )
    with pytest.raises(InvalidParameter, match="version"):
        ledger.reuse("d", "bob", "q2", version="2")
    assert ledger.verify()


def test_the_guarantee_is_the_one_that_was_stored(path, ledger, monkeypatch):
    epsilon = ledger.state("d").account.epsilon()
    monkeypatch.setattr(
        "dptopk.accounting.bounds.compose", lambda *args, **options: pytest.fail("computed again")
    )
    with Ledger(path) as again:
        assert again.state("d").account.epsilon() == epsilon


def test_a_refusal_names_the_kind_that_is_missing(ledger):
    ledger.charge("d", "ann", Charge({PureDP(0.1): 8}))
    with pytest.raises(
        BudgetExceeded,
        match=r"3\*DP\(0\.1\) asked for, 2 left; DGauss\(20\.0, 1\) is not registered",
    ):
        ledger.charge("d", "ann", Charge({DiscreteGaussianDP(20.0, 1): 5, PureDP(0.1): 3}))


def test_what_nests_too_deep_to_be_read_again_is_refused(path, ledger):
    """Python reads JSON by recursion: with more calls under way a deep body was "damaged"."""
    body = {}
    for _ in range(900):
        body = {"a": body}

    def charged():
        with Ledger(path) as other:
            other.charge("d", "ann", ONE, mechanism=body)

    with pytest.raises(InvalidParameter, match=r"levels deep|RecursionError"):
        charged()

    def opened(calls):
        return opened(calls - 1) if calls else Ledger(path).verify()

    assert opened(300)


def test_a_receipt_whose_charge_was_changed_returns_nothing(tmp_path):
    """A larger charge would give back what was never taken."""
    path = tmp_path / "keyed.db"
    with Ledger(path, key="secret") as ledger:
        ledger.create_dataset("d", registered=ONE.times(30), delta=1e-6)
        for _ in range(29):
            ledger.charge("d", "ann", ONE)
        receipt = ledger.charge("d", "ann", ONE)
        with closing(sqlite3.connect(path)) as file:
            file.execute("DROP TRIGGER entries_no_update")
            query = "SELECT body FROM entries WHERE seq = ?"
            body = json.loads(file.execute(query, (receipt.seq,)).fetchone()[0])
            body["charge"] = str(ONE.times(20))
            body["records"]["dataset"]["tokens"][0][2] = 20
            changed = (json.dumps(body), receipt.seq)
            file.execute("UPDATE entries SET body = ? WHERE seq = ?", changed)
            file.commit()
        with pytest.raises(LedgerError, match="wrong hash"):
            ledger.finalize(receipt, Charge())
        with pytest.raises((BudgetExceeded, LedgerError)):
            ledger.charge("d", "ann", ONE)


TENTH = Charge({PureDP(0.1): 1})
LIMITS = {
    "registered": {"registered": TENTH.times(20), "delta": 1e-6},
    "filter": {"budget": Budget(4, 1e-6)},
    "pure": {"budget": Budget(4, 0)},
    "rho": {"budget": Budget(rho=0.5)},
}


@pytest.mark.parametrize("after", LIMITS)
@pytest.mark.parametrize("before", LIMITS)
def test_a_limit_that_changes_while_an_answer_is_drawn_gives_back_what_it_took(
    tmp_path, before, after
):
    """The record of the charge is one of the limit before, which the new one cannot read."""
    with Ledger(tmp_path / "limits.db") as ledger:
        ledger.create_dataset("d", budget=Budget(100, 1e-4))
        for analyst in ("ann", "bob"):
            ledger.set_limit("d", analyst, **LIMITS[before])
        receipt = ledger.charge("d", "ann", TENTH.times(2))
        for analyst in ("ann", "bob"):
            ledger.set_limit("d", analyst, **LIMITS[after])
        ledger.finalize(receipt, TENTH, answer={})
        ledger.charge("d", "bob", TENTH)
        left = [ledger.state("d").limits_of(who).popitem()[1].shares() for who in ("ann", "bob")]
        assert left[0] == pytest.approx(left[1])
        assert ledger.verify()


def test_details_may_be_nested_on_so_many_levels_and_no_more():
    nested: dict[str, object] = {}
    for _ in range(DEEPEST - 1):
        nested = {"in": nested}
    assert normal_form(mechanism=nested) == nested
    with pytest.raises(InvalidParameter, match="levels deep"):
        normal_form(mechanism={"in": nested})
