"""Theorem H': the filter by the variance of one Gaussian, against exact games and the Rényi filter."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Accountant, Budget, BudgetExceeded, Charge, IncompatibleCosts, InvalidParameter
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.setwise.zcdp_gaussian import SmallCostBudget, zcdp_constant
from dptopk.budgets.filter import Filter
from dptopk.budgets.filter_metrics import Variance, metric_of
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Cost,
    DiscreteGaussianDP,
    ExponentialClockDP,
    GaussianDP,
    PureDP,
)

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


Play = dict[tuple[str, int], int]


def played(costs: list[tuple[str, int]], admits: Callable[[Play], bool], unit: float) -> np.ndarray:
    """The value of the best play of a filter, at 0, ..., SPAN units.

    Args:
        costs: that may be chosen: kind and size in units.
        admits: whether the filter accepts, given how often each cost ran.
        unit: of the lattice.
    """

    @functools.cache
    def value(used: tuple[int, ...]) -> tuple[float, ...]:
        best = np.maximum(-np.expm1(np.arange(-SPAN, SPAN + 1) * unit), 0.0)
        for place, (kind, size) in enumerate(costs):
            after = (*used[:place], used[place] + 1, *used[place + 1 :])
            if admits(dict(zip(costs, after, strict=True))):
                best = np.maximum(best, step(kind, size, unit, np.array(value(after))))
        return tuple(best)

    return np.array(value((0,) * len(costs)))[SPAN:]


OF_KIND = {"BR": BoundedRange, "DP": PureDP}


def cost_of(kind: str, size: int, unit: float) -> Cost:
    return OF_KIND[kind](size * unit)


def variance(play: Play, unit: float) -> float:
    """What the filter counts for a play."""
    spent = {cost_of(*cost, unit): times for cost, times in play.items() if times}
    return float(Variance(1.0).used(Fraction(0), spent)) if spent else 0.0


def twice_rho(play: Play, unit: float) -> float:
    """What a filter without the excess of Theorem H would count."""
    return sum(2 * zcdp_constant(cost_of(*cost, unit)) * times for cost, times in play.items())


def halved(play: Play, unit: float) -> float:
    """What a filter would count that takes pure costs for ranges of the same size."""
    return variance({("BR", size): times for (_, size), times in play.items()}, unit)


CASES = [
    ([("BR", 4), ("BR", 6), ("DP", 2)], 0.05, 4),
    ([("BR", 4), ("DP", 3)], 0.05, 5),
    ([("BR", 8), ("BR", 2)], 0.03, 4),
    ([("BR", 6), ("DP", 2)], 0.1, 5),
]


@pytest.mark.parametrize(("costs", "unit", "rounds"), CASES)
def test_no_play_is_above_the_gaussian_of_the_capacity(
    costs: list[tuple[str, int]], unit: float, rounds: int
) -> None:
    """Every choice of costs while the filter accepts, at every x."""
    capacity = max(variance({cost: rounds}, unit) for cost in costs) * (1 + 1e-12)
    bound = gaussian_delta(math.sqrt(capacity), epsilon=np.arange(SPAN + 1) * unit)
    reached = played(costs, lambda play: variance(play, unit) <= capacity, unit)
    assert (reached <= bound).all()
    assert reached.max() > 0.5 * bound.max()


@pytest.mark.slow
@pytest.mark.parametrize("counted", [twice_rho, halved])
def test_a_filter_that_counts_less_is_caught(counted: Callable[[Play, float], float]) -> None:
    """Without the excess of Theorem H, or with pure costs counted as ranges, some play is above."""
    costs, unit = [("DP", 8)], 0.05
    capacity = counted({("DP", 8): 6}, unit) * (1 + 1e-12)
    bound = gaussian_delta(math.sqrt(capacity), epsilon=np.arange(SPAN + 1) * unit)
    reached = played(costs, lambda play: counted(play, unit) <= capacity, unit)
    assert (reached > bound).any()


TARGETS = [
    (7.29928, ZCDP(0.001), 1000),
    (7.29928, BoundedRange(0.01), 80_244),
    (1.0, PureDP(0.01), 557),
    (1.0, BoundedRange(0.01), 2238),
    (1.0, ZCDP(0.001), 26),
]


@pytest.mark.parametrize(("epsilon", "cost", "count"), TARGETS)
def test_what_fits_without_a_word(epsilon: float, cost: Cost, count: int) -> None:
    """One by one and as one charge, with nothing declared."""
    budget = Accountant.filter(Budget(epsilon, 1e-6), failure_delta=0.0)
    assert budget.fits(Charge({cost: 1})) == count
    assert budget.can_spend(Charge({cost: count}))


def test_the_first_charge_chooses_the_method() -> None:
    """By which more charges like it fit: large zCDP costs by the Rényi sum, small ones by one
    Gaussian; the choice is kept in the record and for good.
    """
    small, large = Charge({ZCDP(0.001): 1}), Charge({ZCDP(0.1): 1})
    by_renyi = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0)
    assert "split" not in by_renyi.spend(large)
    assert not by_renyi.can_spend(Charge({ZCDP(0.001): 90}))
    by_variance = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0)
    record = by_variance.spend(small)
    assert [meter["name"] for meter in record["split"]["meters"]] == ["variance", "pure"]
    for terms in (0, {}, record["split"] | {"budget": 1}, record["split"] | {"meters": [{}]}):
        with pytest.raises(InvalidParameter, match="does not fit a filter"):
            Filter(Budget(3.0, 1e-6)).apply(large, record | {"split": terms})
    assert not by_variance.can_spend(large)
    again = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0)
    again.apply(small, json.loads(json.dumps(record)))
    assert again.state() == by_variance.state()
    with pytest.raises(InvalidParameter, match="after the first charge"):
        again.apply(small, record)


def test_a_refund_is_as_if_it_had_never_run() -> None:
    """Whatever was charged in between; and after it as much fits as before."""
    budget = Accountant.filter(Budget(3.0, 1e-6), failure_delta=0.0)
    cost, other = BoundedRange(0.03), GaussianDP(0.1)
    count = budget.fits(Charge({cost: 1}))
    budget.spend(Charge({cost: 10}))
    budget.spend(Charge({other: 3}))
    budget.spend(Charge({cost: count - 200}))
    left = budget.fits(Charge({cost: 1}))
    assert 0 < left < 190
    budget.spend(Charge({cost: left}))
    assert not budget.can_spend(Charge({cost: 1}))
    budget.refund(Charge({cost: 7}))
    assert budget.fits(Charge({cost: 1})) == 7
    budget.refund(Charge({cost: left + count - 197, other: 3}))
    assert budget.fits(Charge({cost: 1})) == count


def test_the_order_of_charges_does_not_matter() -> None:
    charges = [Charge({cost: 2}) for cost in (BoundedRange(0.1), ZCDP(1e-4), GaussianDP(0.1))]
    one, two = (Filter(Budget(2.0, 1e-6), method="variance") for _ in range(2))
    for charge in charges:
        one.spend(charge)
    for charge in reversed(charges):
        two.spend(charge)
    assert one.state() == two.state()
    assert one.share_left == two.share_left


def test_what_was_accepted_is_accepted_again() -> None:
    """Rounding on another processor does not refuse what a record says; a real excess is."""
    budget = Filter(Budget(2.0, 1e-6), method="variance", failure_delta=0.0)
    cost = Charge({GaussianDP(0.1): 1})
    record = budget.quote(cost)
    for slack, accepted in ((0.0, True), (1e-10, True), (1e-8, False)):
        terms = budget.terms()
        used = float(Variance(1.0).used(Fraction(0), {GaussianDP(0.1): 1}))
        terms["meters"] = [{"name": "variance", "capacity": used * (1 - slack) * (1 + 1e-9)}]
        other = Filter.of_terms(terms)
        assert other.can_spend(cost) is (slack == 0.0)
        if accepted:
            other.apply(cost, {"prices": {"GDP(0.1)": record["prices"]["GDP(0.1)"][::2]}})
        else:
            with pytest.raises(Exception, match="fits"):
                other.apply(cost, {"prices": {"GDP(0.1)": record["prices"]["GDP(0.1)"][::2]}})


def test_gaussians_take_their_variance_and_large_costs_that_of_a_gaussian_that_covers_them() -> (
    None
):
    used = Variance(1.0).used
    assert float(used(Fraction(0), {GaussianDP(0.1): 4})) == pytest.approx(0.04, rel=1e-12)
    noise = {DiscreteGaussianDP(20.0, 1): 4}
    assert float(used(Fraction(0), noise)) == pytest.approx(0.01, rel=1e-3)
    large = {PureDP(2.0): 1}
    assert float(used(Fraction(0), large)) < 4 * zcdp_constant(PureDP(2.0))
    beside = large | {ZCDP(0.001): 10}
    assert float(used(Fraction(0), beside)) < float(used(Fraction(0), large)) + 0.03


@pytest.mark.parametrize("cost", [ZCDP(0.6), ExponentialClockDP(0.1)])
def test_what_has_no_constant_is_refused_by_name(cost: Cost) -> None:
    budget = Filter(Budget(1.0, 1e-6), method="variance", failure_delta=0.0)
    with pytest.raises(IncompatibleCosts, match="is not covered by the variance"):
        budget.spend(Charge({cost: 1}))


def test_failures_are_counted_apart() -> None:
    budget = Filter(Budget(3.0, 1e-6), method="variance", failure_delta=2e-8)
    budget.spend(Charge({CDP(1e-4, 0.01): 1}))
    budget.spend(Charge({ApproxDP(0.1, 1e-8): 1}))
    with pytest.raises(BudgetExceeded, match="failure_delta"):
        budget.spend(Charge({ApproxDP(0.1, 1.1e-8): 1}))


@pytest.mark.parametrize("share", [1.0, 3.0, 8.0])
def test_the_inequality_of_the_prices_in_older_ledgers(share: float) -> None:
    """φ(T) - φ(T - h) covers a step of Theorem H (i), whatever T and h."""
    small = SmallCostBudget(0.01, 0.01 * share)
    for money in (0.02, 0.1, 3.0):
        for rho in (1e-6, 0.003, 0.01):
            price = 2 * small.factor * rho
            if price <= money:
                before = small.variance(money - price)
                after = before + price + price**2 / (4 * before)
                assert after <= small.variance(money) * (1 + 1e-12)


def test_a_filter_of_an_older_ledger_keeps_its_method() -> None:
    terms = Filter(Budget(3.0, 1e-6)).terms()
    assert terms.pop("undecided")
    cost = Charge({BoundedRange(0.01): 1})
    assert "split" not in Filter.of_terms(terms).quote(cost)
    assert "split" in Filter(Budget(3.0, 1e-6)).quote(cost)


def test_a_filter_of_an_older_ledger_with_prices_is_read() -> None:
    metric = metric_of({"name": "small", "largest_rho": 0.01, "start": 0.03, "capacity": 1.0})
    price = metric.price(Charge({ZCDP(0.005): 1}))
    assert 0.01 < float(price) < 0.0102
    with pytest.raises(InvalidParameter, match="knows no filter by 'later'"):
        metric_of({"name": "later"})


def test_more_costs_than_any_float_are_beyond_every_capacity() -> None:
    budget = Filter(Budget(1.0, 1e-6), method="variance")
    for cost in (BoundedRange(1e-200), GaussianDP(1e-9)):
        assert not budget.can_spend(Charge({cost: 10**700}))
