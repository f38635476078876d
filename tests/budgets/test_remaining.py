"""What is left, in numbers: for registered costs, for a filter, in words, JSON and HTML."""

import json

import numpy as np
import pytest

from dptopk import Accountant, Budget, Charge, Histogram, KnownLaplace, PureDP, Sensitivity, Session
from dptopk.budgets import Filter
from dptopk.errors import BudgetExceeded

HISTOGRAM = Histogram(None, [5, 3], sensitivity=Sensitivity(l0=1))


def asked(budget, times=1):
    session = Session(HISTOGRAM, budget=budget)
    for _ in range(times):
        session.run(KnownLaplace(epsilon=0.5))
    return session


def test_registered_costs_are_counted():
    registered = Charge({PureDP(0.5): 4})
    left = asked(Accountant(registered, delta=1e-6)).remaining()
    assert left.left == Charge({PureDP(0.5): 3})
    assert left.fits == {"KnownLaplace(epsilon=0.5)": 3}
    assert left.share_used == left.epsilon_spent / left.epsilon_total
    assert left.share_used == pytest.approx(0.25, abs=1e-6)
    assert 0.499 < left.epsilon_spent < left.epsilon_total <= 2.0
    assert left.epsilon_left <= 0.5  # of each question, three of which are registered


def test_a_filter_fits_as_many_as_it_says():
    session = asked(Budget(2.0, 0.0))
    more = session.remaining().fits["KnownLaplace(epsilon=0.5)"]
    assert more == 3
    for _ in range(more):
        session.run(KnownLaplace(epsilon=0.5))
    left = session.remaining()
    assert left.fits["KnownLaplace(epsilon=0.5)"] == 0
    assert left.share_used == 1.0
    assert left.epsilon_left == 0.0


def test_words_json_and_html_say_the_same():
    left = asked(Accountant(Charge({PureDP(0.5): 4}), delta=1e-6)).remaining()
    plain = json.loads(json.dumps(left.to_dict()))
    assert plain["fits"] == {"KnownLaplace(epsilon=0.5)": 3}
    assert plain["epsilon_left"] == left.epsilon_left
    for text in (str(left), left._repr_html_()):
        assert "25.0%" in text
        assert f"{left.epsilon_total:.4g}" in text
    assert "3 more of KnownLaplace(epsilon=0.5)" in str(left)


def test_sessions_are_shown_with_what_is_left():
    shown = asked(Budget(2.0, 0.0))._repr_html_()
    assert "KnownLaplace" in shown
    assert "ε about 0.5 of 2 spent (an estimate), 25.0%" in shown
    assert np.isfinite(asked(Budget(2.0, 0.0), times=0).remaining().epsilon_left)


def test_how_often_a_cost_fits_is_found_without_refusals_in_words(monkeypatch):
    account = Filter(Budget(2.0, 0.0))
    monkeypatch.setattr(
        Filter, "remaining", lambda _: pytest.fail("words for each number that was tried")
    )
    assert account.fits(Charge({PureDP(0.5): 1})) == 4


def test_a_charge_that_was_taken_whole_ends_with_the_budget():
    """The second of two equal charges was told to be of a kind that has no price."""
    account = Filter(Budget(0.5, 1e-5), ranges=[0.1, 0.2])
    charge = Charge.parse("3*DGauss(100,1)")
    account.spend(charge)
    with pytest.raises(BudgetExceeded):
        for _ in range(100):
            account.spend(charge)
