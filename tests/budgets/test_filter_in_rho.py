"""A budget in rho reads decimals: what was declared fits exactly, and never more."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from dptopk.budgets.filter import Filter
from dptopk.budgets.filter_metrics import Zcdp
from dptopk.costs import CDP, ZCDP, Budget, Charge, DiscreteGaussianDP, GaussianDP
from dptopk.errors import BudgetExceeded, InvalidParameter

EXACT = [
    (GaussianDP(0.1), 100),
    (GaussianDP(0.02), 2500),
    (DiscreteGaussianDP(10.0, 1), 100),
    (DiscreteGaussianDP(3.0, 1), 9),
    (DiscreteGaussianDP(30.0, 2), 225),
    (CDP(0.005, 0.1), 100),
    (CDP(0.02, 0.1), 100),
    (ZCDP(0.003, xi=0.002), 100),
    (ZCDP(0.005), 100),
]


@pytest.mark.parametrize(("cost", "times"), EXACT, ids=str)
def test_a_budget_in_rho_reads_decimals_for_every_cost(cost, times):
    """As ten times 0.1 is exactly 1: at once, one by one, and after a refund."""
    one = Charge({cost: 1})
    account = Filter(Budget(rho=0.5))
    assert account.fits(one) == times
    assert not account.can_spend(one.times(times + 1))
    account.spend(one.times(times - 1))
    account.refund(one)
    for _ in range(2):
        account.spend(one)
    assert account.remaining()
    with pytest.raises(BudgetExceeded):
        account.spend(Charge({ZCDP(1e-18): 1}))
    again = Filter.of_terms(json.loads(json.dumps(account.terms())))
    again.restore(json.loads(json.dumps(account.state())))
    assert again.state() == account.state()


@given(st.floats(1e-4, 3), st.floats(0.3, 50), st.integers(1, 5), st.floats(0, 0.1))
def test_a_price_in_rho_is_never_below_the_decimals_nor_what_runs(mu, scale, shift, xi):
    metric = Zcdp(0.5)

    def price(cost):
        return metric.read(metric.price(Charge({cost: 1})))

    decimals = [Fraction(repr(number)) for number in (mu, scale, xi)]
    exact = decimals[0] ** 2 / 2
    assert exact <= price(GaussianDP(mu)) <= exact * (1 + Fraction(1, 10**15))
    assert price(DiscreteGaussianDP(scale, shift)) >= (shift / decimals[1]) ** 2 / 2
    assert price(DiscreteGaussianDP(scale, shift)) >= (shift / Fraction(scale)) ** 2 / 2
    assert price(ZCDP(mu, xi=xi)) >= decimals[0] + decimals[2]
    assert price(CDP(mu, scale)) >= decimals[1] ** 2 / 2


def test_fractions_of_many_costs_are_still_written():
    """Whatever an analyst chooses: the sums have few digits, and the ledger can hold them."""
    account = Filter(Budget(rho=1e6))
    for twice in range(2, 1200):
        account.spend(Charge({DiscreteGaussianDP(math.sqrt(twice / 2), 1): 1}))
        if twice < 90:
            account.spend(Charge({DiscreteGaussianDP(float(twice), 1): 1}))
    again = Filter.of_terms(account.terms())
    again.restore(json.loads(json.dumps(account.state())))
    assert again.state() == account.state()


@pytest.mark.parametrize("price", ["1/0", "-1/2", "1", "1/99999", "a/b", "1/2 ", True, math.nan])
def test_a_recorded_price_that_is_no_amount_is_refused(price):
    account = Filter(Budget(rho=0.5))
    cost = GaussianDP(0.1)
    with pytest.raises(InvalidParameter, match="does not fit a filter"):
        account.apply(Charge({cost: 1}), {"prices": {str(cost): [price, 0.0]}})


def test_the_share_of_a_budget_in_rho_without_delta_is_of_rho():
    account = Filter(Budget(rho=0.1))
    account.spend(Charge({ZCDP(0.02): 2}))
    summary = account.summary()
    assert math.isinf(summary.epsilon_total)
    assert summary.share == pytest.approx(0.4)
    assert summary.shares == {"rho": summary.share}
    assert Filter(Budget(rho=0.1, delta=1e-6)).summary().shares.keys() == {
        "epsilon",
        "failure delta",
    }
