"""Session: every answer is charged before it is drawn, in memory and in a ledger, by the same rules."""

from __future__ import annotations

import numpy as np
import pytest

from dptopk.accounting.accountant import Accountant
from dptopk.accounting.budget import Budget
from dptopk.accounting.ledger.ledger import Ledger
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.datasets import macbeth
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms import CountMLE, KnownGumbel, KnownLaplace, UnknownGumbel
from dptopk.session import Session

SENSITIVITY = Sensitivity(l0=2)
WORDS = macbeth(sensitivity=SENSITIVITY)
REGISTERED = Charge({BoundedRange(0.5): 30, PureDP(0.5): 6}, delta=1e-6)
DISCOVER = UnknownGumbel(k=5, d_bar=50, epsilon=0.5, delta=1e-7)
COUNT = CountMLE(noise=KnownLaplace(epsilon=0.5))


@pytest.fixture(params=["memory", "ledger"])
def session(request, tmp_path):
    if request.param == "memory":
        return Session(WORDS, budget=Accountant(REGISTERED, delta=1e-5))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", registered=REGISTERED, delta=1e-5, sensitivity=SENSITIVITY)
    return Session(WORDS, ledger=ledger, dataset="words", analyst="ann")


def test_discover_then_count(session):
    found = session.run(DISCOVER)
    counted = session.run(COUNT, ranking=found)
    assert counted.labels == found.labels
    left = session.remaining()
    assert left.costs[BoundedRange(0.5)] == 30 - found.charge.costs[BoundedRange(0.5)]
    assert left.costs[PureDP(0.5)] == 6 - counted.charge.costs.get(PureDP(0.5), 0)
    assert left.delta == pytest.approx(1e-6 - 1e-7)
    report = session.report()
    assert report["rows"].tolist() == [len(found), len(counted)]
    assert report["charge"].tolist() == [str(found.charge), str(counted.charge)]


def test_a_spent_budget_refuses_before_drawing(session):
    for _ in range(6):
        session.run(DISCOVER)
    with pytest.raises(BudgetExceeded):
        for _ in range(30):
            session.run(DISCOVER)
    assert session.remaining().costs.get(BoundedRange(0.5), 0) < 5


def test_a_question_that_does_not_fit_costs_nothing(session):
    before = session.remaining()
    with pytest.raises(InvalidParameter):
        session.run(KnownGumbel(k=5, epsilon=0.5))  # the domain is private
    with pytest.raises(InvalidParameter):
        session.run(KnownLaplace(epsilon=0.5))
    assert session.remaining() == before


def test_a_failed_draw_stays_charged(session, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("no more random bits")

    monkeypatch.setattr(UnknownGumbel, "release", fail)
    with pytest.raises(RuntimeError, match="random bits"):
        session.run(DISCOVER)
    assert session.remaining().costs[BoundedRange(0.5)] == 25
    assert session.report().empty


def test_top_k_on_a_filter():
    session = Session(WORDS, budget=Budget(2, 1e-6), rng=np.random.default_rng(1))
    first = session.top_k(5, budget=Budget(0.5, 1e-7), counts="laplace")
    assert "the" in first.labels
    with pytest.raises(BudgetExceeded):
        for _ in range(100):
            session.top_k(5, budget=Budget(0.5, 1e-7), counts="laplace")
    assert 1 <= len(session.report()) < 100


def test_the_same_question_is_answered_again_for_free_if_asked_for(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", registered=REGISTERED, delta=1e-5, sensitivity=SENSITIVITY)
    ann = Session(WORDS, ledger=ledger, dataset="words", analyst="ann")
    bob = Session(WORDS, ledger=ledger, dataset="words", analyst="bob")
    first = ann.run(DISCOVER)
    spent = ledger.spent("words")
    again = bob.run(DISCOVER, reuse=True)
    assert again.labels == first.labels
    assert not again.charge
    assert "given again" in again.note
    assert ledger.spent("words") == spent
    ann.run(UnknownGumbel(k=5, d_bar=51, epsilon=0.5, delta=1e-7), reuse=True)
    assert ledger.spent("words") != spent
    ledger.set_version("words", "2")
    bob.run(DISCOVER, reuse=True)
    assert ledger.spent("words").delta == pytest.approx(3e-7)


def test_a_histogram_with_a_narrower_claim_than_the_dataset_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", registered=REGISTERED, delta=1e-5, sensitivity=Sensitivity(l0=3))
    with pytest.raises(InvalidParameter, match="sensitivity"):
        Session(WORDS, ledger=ledger, dataset="words", analyst="ann").run(DISCOVER)
    assert ledger.spent("words") == Charge()


def test_seeded_answers_need_a_test_ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", registered=REGISTERED, delta=1e-5, sensitivity=SENSITIVITY)
    session = Session(WORDS, ledger=ledger, dataset="words", analyst="ann", rng=np.random.default_rng(1))
    with pytest.raises(LedgerError, match="fixed seed"):
        session.run(DISCOVER)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "exactly one"),
        ({"budget": (1, 1e-6)}, "budget"),
        ({"budget": Budget(1, 1e-6), "histogram": [1, 2]}, "histogram"),
        ({"ledger": "ledger.db"}, "dataset"),
    ],
)
def test_bad_sessions_are_named(arguments, named):
    with pytest.raises(InvalidParameter, match=named):
        Session(**({"histogram": Histogram(None, [1, 2])} | arguments))
