"""Budgets that people can spend: decimals, one question of exactly the budget, ρ, and what a
refusal says.
"""

from fractions import Fraction

import pytest

from dptopk import (
    ZCDP,
    Accountant,
    ApproxDP,
    BoundedRange,
    Budget,
    BudgetExceeded,
    Charge,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    Histogram,
    InvalidParameter,
    KnownLaplace,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
    compose,
    plan_topk,
)
from dptopk._internal.rounding import decimal, round_down, smaller_of, sum_decimals
from dptopk.accounting.cost_models.conversions import pure_epsilons
from dptopk.budgets.account_base import cost_of
from dptopk.budgets.filter import Filter
from dptopk.mechanisms.router import RoutedTopK
from dptopk.mechanisms.samplers.noise import laplace_law

ONE = Histogram(None, [5, 3], sensitivity=Sensitivity(l0=1))
EPSILONS = [0.1, 0.2, 0.3, 0.7, 1.1, 1 / 3, 1e-9, 12.3, *(n / 97 + 1 / n for n in range(1, 50))]


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize(
    ("epsilon", "times", "total"), [(0.1, 10, 1.0), (0.05, 20, 1.0), (0.1, 3, 0.3), (0.7, 3, 2.1)]
)
def test_decimals_add_up(epsilon, times, total, delta):
    charge = Charge({PureDP(epsilon): 1})
    assert compose(charge.times(times), delta=0).epsilon == total
    budget = Accountant.filter(Budget(total, delta))
    assert budget.fits(charge) >= times
    for _ in range(times):
        budget.spend(charge)
    if not delta:
        assert not budget.can_spend(Charge({PureDP(1e-300): 1}))
        assert budget.pure_left() == 0.0


def test_sums_of_decimals_are_the_least_float_that_reads_as_no_less():
    for count in range(1, 30):
        values = dict.fromkeys(EPSILONS[:count], count)
        exact = sum(decimal(value) * times for value, times in values.items())
        total = sum_decimals(values)
        assert (
            decimal(total)
            >= exact
            > decimal(round_down(Fraction(total) * (1 - Fraction(1, 2**53))))
        )
    assert sum_decimals({1e308: 10}) == float("inf")


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_what_runs_is_at_most_what_is_charged(epsilon):
    """Of each law whose ε is exact: at most the float, at which it is composed, and the decimal,
    which is added up.
    """
    runs = laplace_law(epsilon, 1).linear
    assert runs == smaller_of(epsilon) <= min(Fraction(epsilon), Fraction(repr(epsilon)))
    routed = RoutedTopK(k=2, epsilon=epsilon)
    assert sum(map(decimal, (routed.answer_epsilon, routed.choice_epsilon))) <= smaller_of(epsilon)
    (price,) = pure_epsilons(Charge({DiscreteLaplaceDP(1 / epsilon, 3): 1}))
    assert min(decimal(price), Fraction(price)) >= 3 / Fraction(1 / epsilon)


@pytest.mark.parametrize(
    "name", ["KnownGumbel", "JointTopK", "CanonicalTopK", "OneShotTopK", "Exponential"]
)
def test_selections_run_at_the_smaller_of_float_and_decimal(name, monkeypatch):
    """0.1 is above 1/10 and 0.3 below 3/10: every rate that reaches a sampler is checked."""
    from dptopk import mechanisms
    from dptopk.mechanisms import joint_selection
    from dptopk.mechanisms.samplers import exponential_race

    rates = []

    class Stop(Exception):
        """The sampler was reached."""

    def caught(_answers, rate, _bits):
        rates.append(rate)
        raise Stop

    def raced(self, rate, *_):
        rates.append(rate)
        raise Stop

    monkeypatch.setattr(exponential_race.Race, "__init__", raced)
    monkeypatch.setattr(joint_selection, "draw_answer", caught)
    for epsilon in (0.1, 0.3):
        options = {"utility_range": 1.0} if name == "Exponential" else {"k": 1}
        with pytest.raises(Stop):
            getattr(mechanisms, name)(epsilon=epsilon, **options).release(ONE)
        halves = 2 if name in {"JointTopK", "CanonicalTopK"} else 1
        near = smaller_of(epsilon) * (1 - Fraction(1, 2**51))
        assert near <= rates.pop() * halves <= smaller_of(epsilon)


@pytest.mark.slow
@pytest.mark.parametrize("l0", [1, 3, pytest.param(None, marks=pytest.mark.study)])
def test_a_question_of_exactly_the_budget_fits_a_fresh_ledger(l0, tmp_path):
    histogram = Histogram(["a", "b", "c"], [900, 700, 5], sensitivity=Sensitivity(l0=l0))
    plan = plan_topk(2, Budget(1, 1e-6), sensitivity=histogram.sensitivity)
    with Ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.create_dataset("d", budget=Budget(1, 1e-6), sensitivity=histogram.sensitivity)
        session = Session(histogram, ledger=ledger, dataset="d", analyst="ann")
        session.run(plan)
        with pytest.raises(BudgetExceeded):
            session.run(plan)
        assert ledger.verify()
        left = session.remaining()
        assert left.epsilon_left == 0
    with Ledger(tmp_path / "ledger.db") as again:
        state = again.state("d")
        assert state.account.reading() == left.epsilon_spent


WHOLE = Charge({BoundedRange(0.05): 30}, delta=9e-7)  # more failure mass than half of δ


def test_the_first_charge_divides_delta_and_no_later_one():
    budget = Accountant.filter(Budget(1, 1e-6))
    budget.spend(WHOLE)
    assert budget.failure_delta == 9e-7
    late = Accountant.filter(Budget(1, 1e-6))
    late.spend(Charge({PureDP(1e-3): 1}))
    late.refund(Charge({PureDP(1e-3): 1}))
    with pytest.raises(
        BudgetExceeded, match="failure_delta"
    ):  # nothing is in the sums, but an answer may have come
        late.spend(WHOLE)
    with pytest.raises(InvalidParameter, match="after the first"):
        late.apply(WHOLE, Accountant.filter(Budget(1, 1e-6)).quote(WHOLE))
    named = Accountant.filter(Budget(1, 1e-6), failure_delta=5e-7)
    with pytest.raises(BudgetExceeded, match="failure_delta"):
        named.spend(WHOLE)
    again = Filter.of_terms(budget.terms())
    again.restore(budget.state())
    assert again.state() == budget.state()
    assert again.remaining() == budget.remaining()


def test_a_choice_after_answers_is_closed(tmp_path):
    """Where a first charge may come after answers of the same users, the terms leave nothing to
    it.
    """
    one = Sensitivity(l0=1)
    with Ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.create_dataset(
            "s", budget=Budget(1, 1e-6), segments={"r": ["x", "y"]}, sensitivity=one
        )
        with pytest.raises(BudgetExceeded, match="failure_delta"):
            ledger.charge("s", "ann", WHOLE)
        ledger.create_dataset("d", budget=Budget(2, 1e-5), sensitivity=one)
        ledger.charge("d", "ann", WHOLE)
        with pytest.raises(InvalidParameter, match="already spent"):
            ledger.set_limit("d", "ann", budget=Budget(1, 1e-6))
        ledger.set_limit("d", "bob", budget=Budget(1, 1e-6))
        ledger.charge("d", "bob", WHOLE)
        assert ledger.verify()


def test_a_whole_charge_is_never_refunded_out_of_another_one():
    part = Charge({ZCDP(0.001): 2})
    budget = Accountant.filter(Budget(1, 1e-6), method="gaussian")
    record = budget.spend(part)  # no Gaussian is known to cover it
    assert "whole" in record
    for known in (None, record):
        with pytest.raises(InvalidParameter, match="as a whole"):
            budget.quote_refund(part, known)


def test_a_statement_is_never_refunded_out_of_another_charge():
    part = Charge({BoundedRange(0.02): 20})
    budget = Accountant.filter(Budget(1, 1e-6), failure_delta=1e-6)
    for charge in (part, Charge({PureDP(0.3): 1})):
        assert "stated" not in budget.spend(charge)
    record = budget.spend(part)  # 0.4 + 0.3 + 0.4 is more than 1
    assert "stated" in record
    before = budget.state()["sums"]
    for known in (None, record):
        assert all(price[0] == 0 for price in budget.quote_refund(part, known)["prices"].values())
    assert budget.state()["sums"] == before


@pytest.mark.parametrize(
    "spent",
    [
        Charge({PureDP(0.1): 7}),
        Charge({DiscreteGaussianDP(20.0, 1): 40}),
        Charge({BoundedRange(0.1): 10, ApproxDP(0.1, 1e-7): 1}),
    ],
    ids=str,
)
def test_what_is_said_to_be_left_is_accepted(spent):
    budget = Accountant.filter(Budget(2, 1e-6))
    budget.spend(spent)
    left = budget.pure_left()
    assert 0 < left < 2
    assert budget.can_spend(Charge({PureDP(left): 1}))
    assert not budget.can_spend(Charge({PureDP(left * 1.001): 1}, delta=budget.failure_delta))
    room = round_down(Fraction(budget.failure_delta) - Fraction(budget.state()["failures"]))
    assert budget.can_spend(Charge({ApproxDP(left, room): 1}))
    with pytest.raises(BudgetExceeded) as refused:
        budget.spend(Charge({PureDP(3.0): 1}))
    assert f"{left:.3g}"[:4] in str(refused.value)
    assert "order" not in str(refused.value)
    assert "%" not in str(refused.value)


def test_a_session_accepts_what_it_says_is_left():
    session = Session(ONE, budget=Budget(1, 1e-6))
    for _ in range(10):
        session.run(KnownLaplace(epsilon=0.1))
    left = session.remaining()
    assert left.epsilon_left < 0.3
    assert "the top 10 at delta 1e-07" in str(left)
    session = Session(ONE, budget=Budget(1, 1e-6))
    session.run(KnownLaplace(epsilon=0.85))
    left = session.remaining().epsilon_left
    session.top_k(2, budget=Budget(left, 1e-7), counts="auto")


class TestRho:
    def test_budgets(self):
        budget = Budget(rho=0.5)
        assert (budget.rho, budget.delta) == (0.5, 0.0)
        with pytest.raises(InvalidParameter, match="epsilon and delta"):
            assert budget.epsilon
        for bad in ({}, {"epsilon": 1.0, "rho": 1.0}, {"rho": 0.0}, {"rho": float("nan")}):
            with pytest.raises(InvalidParameter):
                Budget(**bad)
        assert Budget.of_terms(budget.terms()) == budget != Budget(0.5)

    def test_the_filter_adds_up_rhos(self):
        budget = Accountant.filter(Budget(rho=0.5, delta=1e-6))
        for cost, times in (
            (ZCDP(0.1), 2),
            (DiscreteGaussianDP(2.0, 1), 1),
            (ZCDP(0.1, xi=0.05), 1),
        ):
            budget.spend(Charge({cost: times}))
        assert budget.fits(Charge({ZCDP(0.01): 1})) == 2  # 0.2 + 1/8 + 0.15 are spent
        assert budget.group() == Charge({ZCDP(0.5): 1}, delta=5e-7)
        assert budget.epsilon() == compose(budget.group(), delta=1e-6).epsilon
        with pytest.raises(BudgetExceeded, match=r"rho up to 0\.025"):
            budget.spend(Charge({ZCDP(0.03): 1}))
        with pytest.raises(BudgetExceeded, match="failure_delta"):
            budget.spend(Charge({}, delta=6e-7))
        assert Accountant.filter(Budget(rho=1)).fits(Charge({ZCDP(0.1): 1})) == 10

    @pytest.mark.slow
    def test_plans(self):
        budget = Budget(rho=0.05)
        plan = plan_topk(3, budget, sensitivity=Sensitivity(l0=3), domain="public", method="peel")
        filter_ = Accountant.filter(budget)
        filter_.spend(plan.charge)
        assert filter_.share_left < 0.02
        with pytest.raises(InvalidParameter, match="delta"):
            plan_topk(3, budget)

    def test_a_ledger_keeps_it(self, tmp_path):
        with Ledger(tmp_path / "ledger.db", create=True) as ledger:
            ledger.create_dataset("d", budget=Budget(rho=0.5, delta=1e-6))
            ledger.charge("d", "ann", Charge({ZCDP(0.3): 1}))
        with Ledger(tmp_path / "ledger.db") as ledger:
            assert ledger.state("d").account.budget == Budget(rho=0.5, delta=1e-6)
            with pytest.raises(BudgetExceeded, match=r"rho up to 0\.2"):
                ledger.charge("d", "ann", Charge({ZCDP(0.3): 1}))
            assert ledger.verify()


@pytest.mark.parametrize(
    "text", ["DP(1.0) + delta(0.1)", "DP(1.0) [adaptive]", "2*DP(1.0)", "DP(1.0) + DP(2.0)"]
)
def test_a_text_of_more_than_one_cost_is_refused(text):
    with pytest.raises(InvalidParameter, match="not one cost"):
        cost_of(text)
    assert cost_of("DP(1.0)") == PureDP(1.0)


def test_the_delta_of_a_guarantee_is_rounded_up():
    """1.2345644e-06 was shown as 1.23456e-06."""
    account = Filter(Budget(1.0, 1.2345644e-06))
    assert "1.23457e-06)-DP" in account._repr_html_()
