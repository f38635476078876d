"""Session: every answer is charged before it is drawn, in memory and in a ledger, by the same
rules.
"""

from __future__ import annotations

import copy
import datetime as dt
import os
import pickle
import sys
import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dptopk.budgets.registered_account import Accountant
from dptopk.costs import BoundedRange, Budget, Charge, ExponentialClockDP, PureDP
from dptopk.datasets import Segments, macbeth
from dptopk.errors import BudgetExceeded, InvalidParameter, LedgerError, ReleaseWithheld
from dptopk.histogram.histogram import Histogram, Sensitivity
from dptopk.ledger.ledger import Ledger
from dptopk.mechanisms import CountMLE, KnownGumbel, KnownLaplace, UnknownGumbel
from dptopk.planning import plan_topk
from dptopk.session.session import Session

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


@pytest.mark.slow
def test_discover_then_count(session):
    found = session.run(DISCOVER)
    counted = session.run(COUNT, ranking=found)
    assert counted.labels == found.labels
    left = session.remaining().left
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
    assert session.remaining().left.costs.get(BoundedRange(0.5), 0) < 5


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
    assert session.remaining().left.costs[BoundedRange(0.5)] == 25
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
    session = Session(
        WORDS, ledger=ledger, dataset="words", analyst="ann", rng=np.random.default_rng(1)
    )
    with pytest.raises(LedgerError, match="fixed seed"):
        session.run(DISCOVER)


# What is charged is what is released


class Growing(list):
    """Labels of which more come out than were counted."""

    def __len__(self):
        return 1


@pytest.mark.parametrize(
    "labels", [pd.DataFrame([[1] * 20]), pd.DataFrame({"the": [1]}), {"the": 1}, {"the"}]
)
def test_labels_that_are_no_sequence_are_refused_and_cost_nothing(labels):
    session = Session(WORDS, budget=Accountant(REGISTERED, delta=1e-5))
    with pytest.raises(InvalidParameter, match="labels"):
        session.run(KnownLaplace(epsilon=0.5), labels=labels)
    with pytest.raises(InvalidParameter, match="labels"):
        session.run(COUNT, ranking=labels)
    assert session.remaining().left == REGISTERED


def test_options_that_a_mechanism_does_not_take_are_named_and_cost_nothing(session):
    for mechanism, options, said in (
        (COUNT, {"labels": ["the"]}, "CountMLE takes ranking, not labels"),
        (COUNT, {"ranking": ["the"], "passes": 2}, "CountMLE takes ranking, not passes"),
        (COUNT, {}, "ranking must be given for CountMLE"),
        (
            KnownGumbel(k=1, epsilon=1.0),
            {"labels": ["the"]},
            "KnownGumbel takes no further options, not labels",
        ),
    ):
        with pytest.raises(InvalidParameter, match=said):
            session.run(mechanism, **options)
    assert session.report().empty


@pytest.mark.slow
def test_labels_are_read_once():
    histogram = Histogram(["a", "b", "c"], [5, 6, 7])
    session = Session(histogram, budget=Accountant(REGISTERED, delta=1e-5))
    assert len(session.run(KnownLaplace(epsilon=0.5), labels=Growing("abc"))) == 3
    assert len(session.run(COUNT, ranking=(label for label in "ab"))) == 2
    assert session.remaining().left.costs[PureDP(0.5)] == 1


def test_an_answer_that_costs_more_than_was_charged_is_withheld(session, monkeypatch):
    honest = KnownLaplace.release

    def twice(self, histogram, rng=None, **options):
        release = honest(self, histogram, rng, **options)
        return replace(release, charge=release.charge.times(2))

    monkeypatch.setattr(KnownLaplace, "release", twice)
    with pytest.raises(ReleaseWithheld, match="withheld"):
        session.run(KnownLaplace(epsilon=0.5), labels=["the"])
    assert session.remaining().left.costs[PureDP(0.5)] == 5
    assert session.report().empty
    design = "Gumbel, then Laplace counts"
    plan = plan_topk(5, Budget(1, 1e-6), method=design, fit=False, sensitivity=SENSITIVITY)
    with pytest.raises(ReleaseWithheld):
        plan.release(WORDS, np.random.default_rng(1))


@pytest.mark.parametrize("counts", ["gaussian", "laplace"])
def test_a_plan_releases_the_noise_that_it_charges(counts):
    """Of a histogram that allows less than the plan: DGauss(σ, 1) is not covered by DGauss(2σ,
    2).
    """
    plan = plan_topk(
        1, Budget(6, 1e-6), sensitivity=Sensitivity(linf=2, l0=1), domain="public", counts=counts
    )
    narrow = Histogram(["a", "b"], [50, 9], sensitivity=Sensitivity(linf=1, l0=1), domain="public")
    release = plan.release(narrow, np.random.default_rng(1))
    assert release.sensitivity == plan.sensitivity
    assert release.charge == plan.charge
    with pytest.raises(InvalidParameter, match="sensitivity"):
        plan.release(narrow.with_sensitivity(Sensitivity(linf=3, l0=1)))


def test_notes_of_all_phases_are_kept():
    plan = plan_topk(30, Budget(1, 1e-6), method="peel")
    release = plan.release(Histogram(["a", "b"], [900, 3]), np.random.default_rng(1))
    assert "stopped at the threshold" in release.note


# One budget


def test_a_session_is_not_copied_pickled_or_forked(session, monkeypatch):
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidParameter, match="second budget"):
            copied(session)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(InvalidParameter, match="second budget"):
        session.run(DISCOVER)


def test_threads_share_one_budget():
    session = Session(WORDS, budget=Accountant(Charge({PureDP(0.5): 20}), delta=1e-6))
    answers, interval = [], sys.getswitchinterval()

    def ask():
        with suppress(BudgetExceeded):
            while True:
                answers.append(session.run(KnownLaplace(epsilon=0.5), labels=["the"]))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(answers) == len(session.report()) == 20


# Stored answers


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset(
        "words", registered=REGISTERED, delta=1e-5, sensitivity=SENSITIVITY, unit="member"
    )
    return ledger


def test_a_stored_answer_is_for_the_same_data_alone(ledger):
    def asks(histogram, **stated):
        before = ledger.spent("words")
        session = Session(histogram, ledger=ledger, dataset="words", analyst="ann", **stated)
        session.run(DISCOVER, reuse=True)
        return ledger.spent("words") != before

    other = Histogram(["x", "y"], [500, 400], sensitivity=SENSITIVITY)
    assert asks(WORDS)
    assert not asks(WORDS)
    assert asks(other)
    assert asks(WORDS, source="words.csv")
    assert not asks(macbeth(sensitivity=SENSITIVITY), source="words.csv")
    assert asks(other, source="other.csv")
    for wrong in ({"version": "2"}, {"unit": "household"}):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            asks(WORDS, **wrong)


def test_a_stored_answer_is_a_full_release(ledger):
    labels = [dt.date(2020, 1, 1), ("a", 1), "\ud800", 2**80, 1.0]
    histogram = Histogram(labels, [900, 800, 700, 600, 500], sensitivity=SENSITIVITY)
    session = Session(histogram, ledger=ledger, dataset="words", analyst="ann")
    first = session.run(KnownLaplace(epsilon=0.5), labels=labels)
    again = session.run(KnownLaplace(epsilon=0.5), labels=labels, reuse=True)
    assert (again.labels, again.mechanism) == (first.labels, first.mechanism)
    assert [type(label) for label in again.labels] == [type(label) for label in first.labels]
    pd.testing.assert_frame_equal(again.intervals(), first.intervals())
    assert again.made_on(histogram)
    assert ledger.verify()


def test_an_answer_that_cannot_be_stored_is_given_all_the_same(ledger, monkeypatch):
    def full(*_arguments, **_options):
        raise LedgerError("the disk is full")

    monkeypatch.setattr(Ledger, "finalize", full)
    session = Session(WORDS, ledger=ledger, dataset="words", analyst="ann")
    release = session.run(DISCOVER)
    assert "the" in release.labels
    assert "the disk is full" in release.note
    assert ledger.spent("words").costs[BoundedRange(0.5)] == 5


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


@pytest.mark.slow
def test_clocks_are_charged_where_they_are_registered(tmp_path):
    """A registration pays for them, in memory and in a ledger; elsewhere selections are charged one
    by one.
    """
    asked = {
        "sensitivity": Sensitivity(l0=1),
        "domain": "public",
        "counts": None,
        "method": "Gumbel selections",
    }
    plan = plan_topk(40, Budget(1, 1e-6), **asked)
    assert plan.charge.costs == {ExponentialClockDP(plan.mechanisms[0].epsilon): 1}
    histogram = Histogram(
        [f"w{i}" for i in range(60)], range(60), sensitivity=Sensitivity(l0=1), domain="public"
    )
    session = Session(histogram, budget=Accountant(plan.charge.times(2), delta=1e-6))
    assert session.run(plan).charge == plan.charge
    asked_again = session.top_k(40, budget=Budget(1, 1e-6), counts=None, method="Gumbel selections")
    assert asked_again.charge == plan.charge
    with pytest.raises(BudgetExceeded):
        session.run(plan)
    ledger = Ledger(tmp_path / "l.db")
    ledger.create_dataset(
        "d", registered=plan.charge.times(2), delta=1e-5, sensitivity=Sensitivity(l0=1)
    )
    durable = Session(histogram, ledger=ledger, dataset="d", analyst="a")
    durable.run(plan)
    narrower = replace(plan.mechanisms[0], epsilon=plan.mechanisms[0].epsilon / 2)
    assert durable.run(narrower).charge == narrower.charge(
        Sensitivity(l0=1)
    )  # a smaller clock has the same token
    assert ledger.verify()
    assert Ledger(tmp_path / "l.db").spent("d").count == 2
    with pytest.raises(BudgetExceeded):
        durable.run(narrower)
    filtered = Session(histogram, budget=Budget(3, 1e-6))
    assert not filtered.top_k(
        40, budget=Budget(1, 1e-7), counts=None, method="Gumbel selections"
    ).charge.of(ExponentialClockDP)


def test_top_k_counts_unless_labels_alone_are_asked_for():
    session = Session(WORDS, budget=Budget(8, 1e-4), rng=np.random.default_rng(1))
    labels = session.top_k(5, budget=Budget(1, 1e-6), counts=None)
    assert list(labels.table.columns) == ["rank", "label"]
    assert list(session.top_k(5, budget=Budget(1, 1e-6)).table.columns) == [
        "rank",
        "label",
        "count",
    ]
    alone = plan_topk(5, Budget(1, 1e-6), sensitivity=SENSITIVITY, counts=None)
    assert labels.charge == alone.charge


def test_an_answer_that_is_too_long_is_given_and_not_kept(tmp_path):
    long = Histogram(["x" * 2**22, "y"], [900, 5], sensitivity=SENSITIVITY)
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", registered=REGISTERED, delta=1e-5, sensitivity=SENSITIVITY)
    session = Session(long, ledger=ledger, dataset="words", analyst="ann")
    answer = session.run(UnknownGumbel(k=1, d_bar=1, epsilon=0.5, delta=1e-7))
    assert len(answer.labels[0]) == 2**22
    assert "too long" in answer.note
    (spend,) = ledger.history("words")
    assert spend.released
    assert spend.answer is None
    assert (tmp_path / "ledger.db").stat().st_size < 2**20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("l0", "counts"), [(1, "auto"), (3, "auto"), pytest.param(None, None, marks=pytest.mark.study)]
)
def test_one_question_may_take_the_whole_budget(l0, counts):
    """More δ than a filter sets aside for failures, or bounds that no filter has: it is entered as
    a whole.
    """
    histogram = Histogram(["a", "b", "c"], [900, 700, 5], sensitivity=Sensitivity(l0=l0))
    budget = Budget(2, 1e-6)
    plan = plan_topk(2, budget, sensitivity=histogram.sensitivity, counts=counts)
    with pytest.raises(
        BudgetExceeded
    ):  # an account whose failure_delta was named is as it was made
        Session(histogram, budget=Accountant.filter(budget, failure_delta=1e-9)).run(plan)
    session = Session(histogram, budget=budget)
    session.run(plan)
    assert session.remaining().epsilon_total <= 2
    assert session.remaining().delta == 1e-6
    with pytest.raises(BudgetExceeded):
        session.run(plan)
    with pytest.raises(BudgetExceeded):
        session.run(KnownLaplace(epsilon=1.0), labels=["a"])


def test_what_the_first_question_needs_is_set_aside_and_nothing_later():
    session = Session(WORDS, budget=Budget(1, 1e-6))
    with pytest.raises(BudgetExceeded):
        session.run(UnknownGumbel(k=5, d_bar=50, epsilon=3.0, delta=9e-7))
    session.run(UnknownGumbel(k=1, d_bar=50, epsilon=0.1, delta=8e-7))
    session.run(KnownLaplace(epsilon=0.01), labels=["the"])
    with pytest.raises(BudgetExceeded, match="failure_delta"):
        session.run(UnknownGumbel(k=1, d_bar=50, epsilon=0.1, delta=1e-7))
    even = Session(WORDS, budget=Budget(1, 1e-6))
    even.run(UnknownGumbel(k=1, d_bar=50, epsilon=0.1, delta=1e-8))
    with pytest.raises(
        BudgetExceeded, match="failure_delta"
    ):  # an answer was given: the parts of δ are fixed
        even.run(UnknownGumbel(k=1, d_bar=50, epsilon=0.1, delta=8e-7))


@pytest.mark.slow
def test_segments_have_what_a_question_about_all_data_has_left():
    histogram = Histogram(["a", "b", "c"], [900, 700, 5], sensitivity=Sensitivity(l0=None))
    session = Session(histogram, budget=Budget(2, 1e-6))
    session.top_k(2, budget=Budget(2, 1e-6))
    segment = session.segments(Segments({"x": histogram}, 1))["x"]
    with pytest.raises(BudgetExceeded):
        segment.run(KnownLaplace(epsilon=1.0), labels=["a"])


@pytest.mark.parametrize("name", ["dataset", "analyst", "version", "unit"])
def test_what_is_about_a_ledger_is_refused_beside_a_budget(name):
    budget = Budget(1.0, 1e-6)
    with pytest.raises(InvalidParameter, match=f"{name} goes with a ledger"):
        Session(WORDS, budget=budget, **{name: "user-day"})
    with pytest.raises(InvalidParameter, match=f"{name} goes with a ledger"):
        Session.from_events("missing.csv", user="u", item="i", budget=budget, **{name: "x"})
