"""Theorem H': the filter of many small costs, against exact games and the Rényi filter."""

from __future__ import annotations

import functools
import json
import math

import numpy as np
import pytest

from dptopk import Accountant, Budget, Charge, IncompatibleCosts, InvalidParameter
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.setwise.zcdp_gaussian import SmallCostBudget, zcdp_constant
from dptopk.budgets.filter import Filter
from dptopk.costs import ZCDP, BoundedRange, GaussianDP, PureDP

SPAN = 90  # of the lattice, in units


def step(kind: str, size: int, unit: float, later: np.ndarray) -> np.ndarray:
    """The best play of one cost before a game of value ``later`` at -SPAN, ..., SPAN units."""
    width = size if kind == "BR" else 2 * size
    ends = range(1, size) if kind == "BR" else (size,)
    places = np.arange(-SPAN, SPAN + 1)
    best = np.maximum(-np.expm1(places * unit), 0.0)
    for end in ends:
        chance = math.expm1((end - width) * unit) / math.expm1(-width * unit)
        reached = np.zeros_like(best)
        for probability, loss in ((chance, end), (1 - chance, end - width)):
            left = np.roll(later, loss)
            outside = (places - loss < -SPAN) | (places - loss > SPAN)
            reached += probability * np.where(outside, 0.0, left)
        best = np.maximum(best, reached)
    return best


def played(prices: dict[tuple[str, int], float], capacity: float, unit: float) -> np.ndarray:
    """The value of the best play of a filter with these prices, at 0, ..., SPAN units."""

    @functools.cache
    def value(used: tuple[int, ...]) -> tuple[float, ...]:
        best = np.maximum(-np.expm1(np.arange(-SPAN, SPAN + 1) * unit), 0.0)
        spent = sum(n * price for n, price in zip(used, prices.values(), strict=True))
        for place, ((kind, size), price) in enumerate(prices.items()):
            if spent + price <= capacity:
                after = (*used[:place], used[place] + 1, *used[place + 1 :])
                best = np.maximum(best, step(kind, size, unit, np.array(value(after))))
        return tuple(best)

    return np.array(value((0,) * len(prices)))[SPAN:]


COSTS = ("BR", 4), ("BR", 6), ("DP", 2)
OF_KIND = {"BR": BoundedRange, "DP": PureDP}


@pytest.mark.parametrize("unit", [0.01, 0.05])
@pytest.mark.parametrize("rounds", [3, 7])
def test_no_play_is_above_the_gaussian_of_the_capacity(unit: float, rounds: int) -> None:
    """Every choice of costs while the prices last, at every x; at a third of the prices some is
    above.
    """
    rhos = {cost: zcdp_constant(OF_KIND[cost[0]](cost[1] * unit)) for cost in COSTS}
    largest = max(rhos.values())
    small = SmallCostBudget(largest, 2 * largest)
    prices = {cost: 2 * small.factor * rho for cost, rho in rhos.items()}
    capacity = rounds * max(prices.values()) * (1 + 1e-12)
    asked = np.arange(SPAN + 1) * unit
    bound = gaussian_delta(math.sqrt(small.variance(capacity)), epsilon=asked)
    reached = played(prices, capacity, unit)
    assert (reached <= bound).all()
    if rounds == 3:
        cheap = {cost: price / 3 for cost, price in prices.items()}
        assert (played(cheap, capacity, unit) > bound).any()


@pytest.mark.parametrize("share", [1.0, 3.0, 8.0])
def test_the_inequality_of_the_proof(share: float) -> None:
    """φ(T) - φ(T - h) covers a step of Theorem H (i), whatever T and h."""
    small = SmallCostBudget(0.01, 0.01 * share)
    for money in (0.02, 0.1, 3.0):
        for rho in (1e-6, 0.003, 0.01):
            price = 2 * small.factor * rho
            if price <= money:
                before = small.variance(money - price)
                after = before + price + price**2 / (4 * before)
                assert after <= small.variance(money) * (1 + 1e-12)


def most(method: str | None, cost: object, **options: object) -> int:
    """How many of a cost fit (3, 1e-6)."""
    budget = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0, method=method, **options)  # type: ignore[arg-type]
    low, high = 0, 10**6
    while low < high:
        middle = (low + high + 1) // 2
        fits = budget.can_spend(Charge({cost: middle}))  # type: ignore[dict-item]
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


@pytest.mark.slow
@pytest.mark.parametrize("cost", [ZCDP(0.001), BoundedRange(0.03), PureDP(0.01)])
def test_more_small_costs_fit_than_by_renyi(cost: object) -> None:
    by_renyi = most(None, cost)
    assert most("small", cost) > 1.08 * by_renyi
    assert most("small", cost, costs=[cost]) > 1.1 * by_renyi


@pytest.mark.slow
def test_the_filter_agrees_with_the_bound_on_its_content() -> None:
    """What was accepted composes to at most the budget's ε, and one cost more is refused."""
    cost = BoundedRange(0.03)
    budget = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0, method="small", costs=[cost])
    count = most("small", cost, costs=[cost])
    budget.spend(Charge({cost: count}))
    assert not budget.can_spend(Charge({cost: 1}))
    again = Filter.of_terms(json.loads(json.dumps(budget.terms())))
    again.restore(json.loads(json.dumps(budget.state())))
    assert not again.can_spend(Charge({cost: 1}))
    budget.refund(Charge({cost: 1}))
    assert budget.can_spend(Charge({cost: 1}))


def test_gaussians_are_priced_by_their_variance() -> None:
    small = Filter(Budget(3.0, 1e-6), failure_delta=0.0, method="small")
    price, *_ = small.price(GaussianDP(0.1))
    assert price == pytest.approx(0.01, rel=1e-12)
    dear, *_ = small.price(
        BoundedRange(0.5)
    )  # too large for Theorem H: the Gaussian that covers it
    assert dear is not None
    assert dear > 2 * zcdp_constant(BoundedRange(0.5))


def test_what_is_too_large_is_refused_by_name() -> None:
    small = Filter(Budget(1.0, 1e-6), failure_delta=0.0, method="small")
    with pytest.raises(IncompatibleCosts, match=r"ZCDP\(0.1\) is not covered"):
        small.spend(Charge({ZCDP(0.1): 1}))
    with pytest.raises(InvalidParameter, match=r"ZCDP\(0.6\) is not known"):
        Filter(Budget(1.0, 1e-6), failure_delta=0.0, method="small", costs=[ZCDP(0.6)])
