"""Segments in a session and in a ledger: disjoint segments are charged once, together."""

import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
    plan_topk,
)
from dptopk.datasets import Segments

ONE = Sensitivity(l0=1)
NOISE = KnownLaplace(epsilon=0.5)
REGISTERED = Charge({PureDP(0.5): 4}, delta=1e-6)


def segments(s, names=("eu", "us", "asia")):
    return Segments({name: Histogram(None, [50, 30, place], sensitivity=ONE) for place, name in enumerate(names)}, s)


@pytest.fixture(params=["memory", "ledger"])
def session(request, tmp_path):
    histogram = segments(1)["eu"]
    if request.param == "memory":
        return Session(histogram, budget=Accountant(REGISTERED, delta=1e-5))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=ONE)
    return Session(histogram, ledger=ledger, dataset="d", analyst="ann")


@pytest.mark.parametrize("s", [1, 2, 3])
def test_segments_cost_as_many_as_a_user_is_in(session, s):
    answers = session.run_each(segments(s), NOISE)
    assert list(answers) == ["eu", "us", "asia"]
    assert {answer.charge for answer in answers.values()} == {Charge({PureDP(0.5): 1})}
    assert session.remaining().left.costs.get(PureDP(0.5), 0) == 4 - s
    assert session.report()["rows"].tolist() == [9]
    assert all(len(answer.intervals()) == 3 for answer in answers.values())


def test_what_does_not_fit_costs_nothing(session):
    with pytest.raises(BudgetExceeded):
        session.run_each(segments(3), KnownLaplace(epsilon=0.6))
    with pytest.raises(InvalidParameter, match="plan"):
        session.run_each(segments(1), plan_topk(2, Budget(0.5, 1e-7), sensitivity=ONE))  # for a private domain
    with pytest.raises(InvalidParameter, match="segments"):
        session.run_each({"eu": segments(1)["eu"]}, NOISE)
    assert session.remaining().left == REGISTERED


def test_noise_of_segments_is_drawn_anew():
    session = Session(segments(1)["eu"], budget=Budget(5.0, 0.0), rng=np.random.default_rng(0))
    same = Segments({name: Histogram(None, np.full(40, 9), sensitivity=ONE) for name in "ab"}, 1)
    first, second = session.run_each(same, NOISE).values()
    assert sorted(first.counts.tolist()) != sorted(second.counts.tolist())


def test_a_ledger_refuses_segments_made_for_users_who_move_less(tmp_path):
    ledger, wide = Ledger(tmp_path / "ledger.db"), Sensitivity(linf=2, l0=1)
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=wide)
    session = Session(Histogram(None, [50, 30], sensitivity=wide), ledger=ledger, dataset="d", analyst="ann")
    with pytest.raises(InvalidParameter, match="sensitivity"):
        session.run_each(segments(1), NOISE)
    assert not ledger.spent("d")


def test_a_ledger_keeps_the_answers_of_all_segments(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("d", registered=REGISTERED, delta=1e-5, sensitivity=ONE)
    Session(segments(1)["eu"], ledger=ledger, dataset="d", analyst="ann").run_each(segments(1), NOISE)
    assert ledger.spent("d") == Charge({PureDP(0.5): 1})
    assert Ledger(tmp_path / "ledger.db").verify()
