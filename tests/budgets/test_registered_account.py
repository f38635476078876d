"""The accountant: tokens, matching, refunds, refusals that change nothing, and the filter."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.budgets.filter import Filter
from dptopk.budgets.registered_account import Accountant
from dptopk.budgets.registered_costs import dominates, match
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Budget,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter

REGISTERED = Charge({BoundedRange(0.1): 20, PureDP(0.2): 2, ApproxDP(0.1, 1e-8): 1}, delta=1e-7)


def test_a_spend_takes_the_smallest_token_that_covers_it() -> None:
    accountant = Accountant(
        Charge({BoundedRange(0.1): 1, BoundedRange(0.3): 1, PureDP(0.2): 1}), 1e-6
    )
    accountant.spend(Charge({BoundedRange(0.0999): 1}))
    assert accountant.remaining() == Charge({BoundedRange(0.3): 1, PureDP(0.2): 1})
    accountant.spend(
        Charge({BoundedRange(0.15): 1})
    )  # as BR(0.3): ε²/8 is less than DP(0.2)'s ε²/2
    assert accountant.remaining() == Charge({PureDP(0.2): 1})
    accountant.spend(Charge({BoundedRange(0.2): 1}))
    assert not accountant.remaining()
    assert accountant.spent() == Charge(
        {BoundedRange(0.0999): 1, BoundedRange(0.15): 1, BoundedRange(0.2): 1}
    )


def test_epsilon_is_fixed_by_the_registration() -> None:
    accountant = Accountant(REGISTERED, 1e-6)
    before = accountant.epsilon()
    assert before == compose(REGISTERED, delta=1e-6).epsilon
    accountant.spend(Charge({BoundedRange(0.1): 7}, delta=5e-8))
    assert accountant.epsilon() == before
    assert accountant.odometer().epsilon < before
    accountant.refund(Charge({BoundedRange(0.1): 3}))
    assert accountant.epsilon() == before
    assert accountant.remaining().of(BoundedRange) == {BoundedRange(0.1): 16}


@pytest.mark.parametrize("accounting", ["registered", "filter"])
def test_a_count_is_as_many_single_spends(accounting: str) -> None:
    def fresh() -> Accountant | Filter:
        return (
            Accountant(REGISTERED, 1e-6)
            if accounting == "registered"
            else Filter(Budget(2.0, 1e-6))
        )

    cost = BoundedRange(0.1)
    single, together = fresh(), fresh()
    for _ in range(15):
        single.spend(Charge({cost: 1}))
    together.spend(Charge({cost: 15}))
    assert single.remaining() == together.remaining()
    assert single.epsilon() == together.epsilon()
    for n in (1, 5, 6, 40):
        assert single.can_spend(Charge({cost: n})) == together.can_spend(Charge({cost: n}))


@pytest.mark.parametrize(
    "charge",
    [
        Charge({BoundedRange(0.1): 24}),
        Charge({PureDP(0.2): 2, GaussianDP(0.1): 1}),
        Charge({BoundedRange(0.1): 1}, delta=1.0000001e-7),
        Charge({ApproxDP(0.1, 1e-7): 1}),
    ],
)
def test_a_refusal_changes_nothing(charge: Charge) -> None:
    accountant = Accountant(REGISTERED, 1e-6)
    assert not accountant.can_spend(charge)
    with pytest.raises(BudgetExceeded) as refusal:
        accountant.spend(charge)
    assert refusal.value.requested == charge
    assert refusal.value.remaining == REGISTERED == accountant.remaining()
    assert not accountant.spent()


def test_all_of_a_charge_is_matched_where_greed_would_fail() -> None:
    # DP(0.1) may take either token and BR(0.3) only the PureDP one, of the same size as BR(0.6).
    tokens, demands = {"x": 1, "y": 1}, {"small": 1, "large": 1}
    covers = {("x", "small"), ("y", "small"), ("x", "large")}
    sizes = {"small": 2, "large": 1, "x": 0, "y": 1}  # small goes first and takes x
    found = match(demands, tokens, lambda t, d: (t, d) in covers, sizes.__getitem__)
    assert found == {("small", "y"): 1, ("large", "x"): 1}


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    demands=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    edges=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))),
)
def test_matching_against_all_permutations(
    demands: list[int], tokens: list[int], edges: set[tuple[int, int]]
) -> None:
    wanted = {d: demands.count(d) for d in demands}
    there = {t: tokens.count(t) for t in tokens}
    possible = len(demands) <= len(tokens) and any(
        all((t, d) in edges for t, d in zip(chosen, demands, strict=False))
        for chosen in permutations(tokens)
    )
    found = match(wanted, there, lambda t, d: (t, d) in edges, lambda kind: kind)
    assert (found is not None) == possible
    if found is not None:
        assert all((t, d) in edges for d, t in found)
        assert all(
            sum(n for (d, _), n in found.items() if d == demand) == n_
            for demand, n_ in wanted.items()
        )
        assert all(
            sum(n for (_, t), n in found.items() if t == token) <= n_ for token, n_ in there.items()
        )


def test_deltas_are_summed_exactly() -> None:
    query = Charge({PureDP(0.1): 1}, delta=1e-8)
    accountant = Accountant(query.times(10), 1e-6)
    for _ in range(10):
        accountant.spend(query)
    assert not accountant.remaining().costs
    assert Fraction(accountant.remaining().delta) <= Fraction(
        query.times(10).delta
    ) - 10 * Fraction(1e-8)
    short = Accountant(Charge({PureDP(0.1): 10}, delta=float(np.nextafter(1e-8, 0))), 1e-6)
    assert not short.can_spend(query)


class TestRefund:
    def test_only_what_was_spent(self) -> None:
        accountant = Accountant(REGISTERED, 1e-6)
        accountant.spend(Charge({BoundedRange(0.1): 2}, delta=1e-8))
        with pytest.raises(InvalidParameter, match="not spent"):
            accountant.refund(Charge({BoundedRange(0.1): 3}))
        with pytest.raises(InvalidParameter, match="not spent"):
            accountant.refund(Charge({PureDP(0.2): 1}))
        with pytest.raises(InvalidParameter, match="delta"):
            accountant.refund(Charge({BoundedRange(0.1): 1}, delta=1e-8))
        assert accountant.spent() == Charge({BoundedRange(0.1): 2}, delta=accountant.spent().delta)

    def test_the_smallest_of_the_tokens_used_comes_back(self) -> None:
        accountant = Accountant(Charge({BoundedRange(0.1): 1, BoundedRange(0.3): 1}), 1e-6)
        accountant.spend(Charge({BoundedRange(0.1): 2}, adaptive=True))
        accountant.refund(Charge({BoundedRange(0.1): 1}))
        assert accountant.remaining() == Charge({BoundedRange(0.1): 1})

    def test_none_comes_back_where_none_is_smallest(self) -> None:
        accountant = Accountant(Charge({PureDP(0.1): 1, GaussianDP(0.05): 1, ZCDP(1.0): 1}), 1e-6)
        accountant.spend(Charge({PureDP(0.01): 3}))
        with pytest.raises(InvalidParameter, match="none of them"):
            accountant.refund(Charge({PureDP(0.01): 1}))
        assert not accountant.remaining()


def test_another_neighbour_relation_is_refused() -> None:
    accountant = Accountant(REGISTERED, 1e-6)
    with pytest.raises(IncompatibleCosts, match="replace_one"):
        accountant.spend(Charge({BoundedRange(0.1): 1}, neighbours="replace_one"))


def test_no_record_pays_for_another_neighbour_relation() -> None:
    """``apply`` refuses what ``quote`` would: a record of the same costs for other neighbours."""
    accounts = [Accountant(REGISTERED, 1e-6), Accountant.filter(Budget(1, 1e-6))]
    for account in accounts:
        record = account.quote(Charge({BoundedRange(0.1): 1}))
        before = account.state()
        with pytest.raises(IncompatibleCosts, match="replace_one"):
            account.apply(Charge({BoundedRange(0.1): 1}, neighbours="replace_one"), record)
        assert account.state() == before


@pytest.mark.parametrize(
    ("registered", "delta"), [(Charge({}), 1e-6), (REGISTERED, 1e-8), (REGISTERED, math.nan)]
)
def test_bad_registrations(registered: Charge, delta: float) -> None:
    with pytest.raises(InvalidParameter):
        Accountant(registered, delta)


@pytest.mark.slow
def test_the_table_says_which_route_was_taken() -> None:
    rows = Accountant(Charge({BoundedRange(0.1): 5, ZCDP(0.01): 1}), 1e-6).table()
    taken = rows.loc[rows["taken"], "name"].tolist()
    assert len(taken) == 1
    by_name = rows.set_index("name")
    assert by_name.loc[taken[0], "epsilon"] == rows["epsilon"].min()
    assert not by_name.loc["optimal_dp", "applies"]
    assert by_name.loc["optimal_dp", "why not"]


# Costs with one law each: (cost, loss values, probabilities under P), to check the table of tokens
# by hockey sticks.
def _law_delta(cost: object, x: np.ndarray) -> np.ndarray:
    if isinstance(cost, GaussianDP):
        return gaussian_delta(cost.mu, epsilon=x)
    if isinstance(cost, BoundedRange):  # the envelope of all t
        return np.where(
            x < cost.epsilon,
            (np.exp(cost.epsilon / 2) - np.exp(x / 2)) ** 2 / np.expm1(cost.epsilon),
            0.0,
        )
    epsilon, delta = (cost.epsilon, getattr(cost, "delta", 0.0))
    return delta + (1 - delta) * np.maximum(1 - (1 + np.exp(x)) / (1 + np.exp(epsilon)), 0.0)


COSTS = [
    PureDP(0.1),
    PureDP(0.5),
    BoundedRange(0.2),
    BoundedRange(0.5),
    BoundedRange(1.0),
    GaussianDP(0.2),
]
COSTS += [GaussianDP(0.3), GaussianDP(1.5), ApproxDP(0.2, 1e-3), ApproxDP(0.5, 1e-2)]


def test_every_token_lies_above_what_it_covers() -> None:
    x = np.linspace(0, 2, 201)
    pairs = [
        (token, cost)
        for token in COSTS
        for cost in COSTS
        if token != cost and dominates(token, cost)
    ]
    assert len(pairs) >= 15
    for token, cost in pairs:
        assert (_law_delta(cost, x) <= _law_delta(token, x) * (1 + 1e-9) + 1e-15).all(), (
            token,
            cost,
        )


@pytest.mark.parametrize(
    ("token", "cost", "covers"),
    [
        (PureDP(0.1), BoundedRange(0.1), True),
        (PureDP(0.1), BoundedRange(0.11), False),
        (BoundedRange(0.2), PureDP(0.1), True),
        (BoundedRange(0.2), PureDP(0.11), False),
        (ApproxDP(0.2, 1e-6), PureDP(0.2), True),
        (PureDP(0.2), ApproxDP(0.2, 1e-6), False),
        (PureDP(0.2), ApproxDP(0.2, 0.0), True),
        (MultiDP(((1.0, 1e-6), (0.5, 1e-3))), ApproxDP(0.5, 1e-6), True),
        (MultiDP(((1.0, 1e-6), (0.5, 1e-3))), ApproxDP(1.0, 1e-6), False),
        (ApproxDP(0.5, 1e-3), MultiDP(((1.0, 1e-6), (0.5, 1e-3))), True),
        (GaussianDP(0.3), GaussianDP(0.2), True),
        (GaussianDP(0.2), GaussianDP(0.3), False),
        (GaussianDP(0.1), DiscreteGaussianDP(10.0, 1), False),
        (GaussianDP(0.2), DiscreteGaussianDP(10.0, 1), True),
        (DiscreteGaussianDP(10.0, 2), DiscreteGaussianDP(10.0, 1), True),
        (DiscreteGaussianDP(9.0, 2), DiscreteGaussianDP(10.0, 1), False),
        (ZCDP(0.02), GaussianDP(0.19), True),
        (ZCDP(0.02), GaussianDP(0.21), False),
        (ZCDP(0.02), ZCDP(0.01, xi=0.005), True),
        (ZCDP(0.02), ZCDP(0.02, xi=0.001), False),
        (ZCDP(0.02), ApproxDP(0.1, 1e-6), False),
        (CDP(0.01, 0.1), PureDP(0.09), True),
        (CDP(0.01, 0.1), BoundedRange(0.19), True),
        (CDP(0.01, 0.1), ZCDP(0.0001), False),
    ],
)
def test_the_table_of_tokens(token: object, cost: object, covers: bool) -> None:
    assert dominates(token, cost) is covers


class TestFilter:
    def test_it_is_the_cap_on_rho_for_zcdp(self) -> None:
        budget = Accountant.filter(Budget(1.0, 1e-6), method="renyi", failure_delta=0.0)
        spent = 0
        while budget.can_spend(Charge({ZCDP(1e-4): 1})):
            budget.spend(Charge({ZCDP(1e-4): 1}))
            spent += 1
        assert compose(Charge({ZCDP(1e-4): spent}), delta=1e-6, interaction="filter").epsilon <= 1.0
        assert (
            compose(Charge({ZCDP(1e-4): spent + 1}), delta=1e-6, interaction="filter").epsilon > 1.0
        )

    @pytest.mark.parametrize(
        "cost", [BoundedRange(0.1), PureDP(0.05), GaussianDP(0.05), DiscreteGaussianDP(20.0, 1)]
    )
    def test_what_it_lets_through_is_within_the_budget(self, cost: object) -> None:
        budget = Filter(Budget(1.5, 1e-6), method="renyi", failure_delta=5e-7)
        times = 0
        while budget.can_spend(Charge({cost: 1}, delta=1e-10)):
            budget.spend(Charge({cost: 1}, delta=1e-10))
            times += 1
        assert times > 5
        assert budget.epsilon() == 1.5
        charge = Charge({cost: times}, delta=times * 1e-10)
        assert compose(charge, delta=1e-6, bound="renyi").epsilon <= 1.5

    def test_pure_budget(self) -> None:
        budget = Filter(Budget(1.0))
        budget.spend(Charge({PureDP(0.25): 2, BoundedRange(0.25): 2}))
        assert budget.share_left == 0.0
        with pytest.raises(BudgetExceeded, match="used up"):
            budget.spend(Charge({PureDP(1e-9): 1}))
        with pytest.raises(IncompatibleCosts):
            budget.can_spend(Charge({GaussianDP(0.1): 1}))

    def test_failures_have_their_own_budget(self) -> None:
        budget = Filter(Budget(2.0, 1e-6), failure_delta=1e-7)
        budget.spend(Charge({ApproxDP(0.1, 5e-8): 1}, delta=4e-8))
        with pytest.raises(BudgetExceeded, match="failure_delta"):
            budget.spend(Charge({ApproxDP(0.1, 5e-8): 1}))
        budget.refund(Charge({ApproxDP(0.1, 5e-8): 1}))
        assert budget.share_left == 1.0
        assert not budget.can_spend(Charge({}, delta=5e-8))

    def test_refunds(self) -> None:
        budget = Filter(Budget(2.0, 1e-6), method="renyi")
        budget.spend(Charge({BoundedRange(0.1): 10}, delta=1e-8))
        after_ten = budget.share_left
        budget.refund(Charge({BoundedRange(0.1): 4}))
        assert budget.share_left == pytest.approx(1 - (1 - after_ten) * 0.6)
        with pytest.raises(InvalidParameter, match="not spent"):
            budget.refund(Charge({BoundedRange(0.1): 7}))
        with pytest.raises(InvalidParameter, match="delta"):
            budget.refund(Charge({BoundedRange(0.1): 1}, delta=1e-8))

    @pytest.mark.parametrize("options", [{"order": 0.0}, {"failure_delta": 2e-6}, {"order": 1e-9}])
    def test_bad_options(self, options: dict[str, float]) -> None:
        with pytest.raises(InvalidParameter):
            Filter(Budget(1.0, 1e-6), **options)


@pytest.mark.parametrize(
    "account",
    [Filter(Budget(1, 2e-9)), Accountant(Charge({PureDP(0.1): 1}, delta=1e-9), delta=1e-6)],
)
def test_a_refusal_states_no_less_than_was_asked_for_and_no_more_than_is_left(account):
    """To six digits, 1.2345612e-7 would be told as a smaller number."""
    with pytest.raises(BudgetExceeded, match=r"1\.23457e-07 .* 1e-09"):
        account.spend(Charge({PureDP(0.1): 1}, delta=1.2345612e-07))


def test_a_refund_returns_what_was_used_and_no_more_than_its_charge():
    """A record that names more than was used, or more than the charge, returns nothing."""
    one = PureDP(0.1)
    account = Accountant(Charge({one: 9}), 1e-6)
    account.spend(Charge({one: 3}))
    before = account.state()
    for charged, returned in ((4, 4), (1, 3), (9, 9)):
        record = {"tokens": [[str(one), str(one), returned]]}
        with pytest.raises(InvalidParameter, match="was not spent"):
            account.revert(Charge({one: charged}), record)
        assert account.state() == before
    account.revert(Charge({one: 3}), {"tokens": [[str(one), str(one), 3]]})
    assert account.remaining() == Charge({one: 9})


def test_what_a_charge_does_not_hold_is_not_refunded():
    one = PureDP(0.1)
    other = GaussianDP(0.5)
    account = Accountant(Charge({one: 1, other: 1}), 1e-6)
    account.spend(Charge({one: 1, other: 1}))
    with pytest.raises(InvalidParameter, match="was not spent"):
        account.revert(Charge({other: 1}), {"tokens": [[str(one), str(one), 1]]})
    assert not account.can_spend(Charge({one: 1}))


def test_a_question_of_more_than_the_guarantee_is_told_so_first() -> None:
    account = Accountant(Charge({PureDP(0.1): 4}), 1e-6)
    with pytest.raises(BudgetExceeded, match=r"epsilon 3 is more than the total of 0\.39"):
        account.spend(Charge({PureDP(1.0): 3}), stated=Budget(3.0, 1e-7))
    with pytest.raises(BudgetExceeded) as refused:
        account.spend(Charge({PureDP(0.1): 5}), stated=Budget(0.3, 1e-7))
    assert "more than the total" not in str(refused.value)
