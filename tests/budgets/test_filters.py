"""Filters against games that are played out: free choice within the prices never exceeds what the
filter promises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

from dptopk.accounting.bounds import compose
from dptopk.accounting.calibration import queries_affordable
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.price_game import (
    CustomRules,
    capacity,
    game_layers,
    profile,
    weight_layers,
    weights_of,
)
from dptopk.accounting.setwise.recursion import Layer, Rules
from dptopk.accounting.work import Work
from dptopk.budgets.filter import Filter
from dptopk.budgets.filter_metrics import Gaussian, Renyi
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import (
    ZCDP,
    ApproxDP,
    BoundedRange,
    Budget,
    Charge,
    Cost,
    DiscreteGaussianDP,
    DiscreteLaplaceDP,
    GaussianDP,
    PureDP,
)
from dptopk.errors import BudgetExceeded, IncompatibleCosts, InvalidParameter
from dptopk.ledger.ledger import Ledger

H = 0.1  # losses of the games played out are multiples of it: every strategy is a real one


NOISE = DiscreteGaussianDP(math.sqrt(5), 1)  # of losses that are odd multiples of 0.1; 0.1-zCDP


def laws(cost: Cost) -> list[list[tuple[float, int]]]:
    """Pairs of mechanisms with a cost: for each its losses, in steps of H, with their probabilities
    under P.
    """
    if isinstance(cost, PureDP):
        n, p = round(cost.epsilon / H), 1 / (1 + math.exp(-cost.epsilon))
        return [[(p, n), (1 - p, -n)]]
    if isinstance(cost, ZCDP):  # ρ = 0.1
        return laws(NOISE)
    if isinstance(cost, DiscreteGaussianDP):  # losses (1 - 2z) / 2s² of the noises z
        z = np.arange(-25, 26)
        weights = np.exp(-(z**2) / (2 * cost.scale**2))
        losses = np.rint((1 - 2 * z) / (2 * cost.scale**2 * H)).astype(int)
        return [list(zip((weights / weights.sum()).tolist(), losses.tolist(), strict=True))]
    assert isinstance(cost, BoundedRange)
    n = round(cost.epsilon / H)
    q = [-math.expm1((t - n) * H) / -math.expm1(-cost.epsilon) for t in range(n + 1)]
    return [[(q[t], t), (1 - q[t], t - n)] for t in range(n + 1)]


def best_play(costs: list[Cost], accepts: Callable[[tuple[int, ...]], bool], x: int) -> float:
    """The largest δ at ε = x H of an analyst who chooses costs, and mechanisms, from all answers so
    far.
    """

    @cache
    def value(ran: tuple[int, ...], left: int) -> float:
        best = max(0.0, -math.expm1(left * H))
        for kind, cost in enumerate(costs):
            then = (*ran[:kind], ran[kind] + 1, *ran[kind + 1 :])
            if accepts(then):
                best = max(
                    best,
                    *(sum(p * value(then, left - loss) for p, loss in law) for law in laws(cost)),
                )
        return best

    return value((0,) * len(costs), x)


def layers_of(prices: dict[float, int]) -> Iterator[Layer]:
    """The price game of some ranges."""
    rules = Rules.of(dict.fromkeys(prices, 1), tuning.WEIGHT_STEPS, upper=True)
    return weight_layers(rules, tuple(prices.values()))


GAMES = [({0.8: 3, 0.4: 1}, 6), ({0.6: 2, 0.3: 1}, 5), ({0.5: 5, 0.3: 2, 0.2: 1}, 9), ({0.4: 1}, 4)]


@pytest.mark.parametrize(("prices", "money"), GAMES)
def test_free_choice_within_prices_never_exceeds_the_price_game(
    prices: dict[float, int], money: int
) -> None:
    costs: list[Cost] = [BoundedRange(epsilon) for epsilon in prices]
    layer = next(islice(layers_of(prices), money, None))
    cheaper = next(
        islice(layers_of({0.97 * epsilon: price for epsilon, price in prices.items()}), money, None)
    )
    caught = 0
    for x in range(0, 12, 2):
        played = best_play(
            costs, lambda ran: sum(map(int.__mul__, ran, prices.values())) <= money, x
        )
        above = float(layer.above(np.array([x * H]))[0])
        assert played <= above * (1 + 1e-12) + 1e-15
        assert (
            above <= played * 1.05 + 3e-3
        )  # and it is no looser than the coarse grid of the strategies
        caught += played > float(cheaper.above(np.array([x * H]))[0])
    assert caught > 0  # steps of ranges 3% smaller would have been found out


def weaker(cost: Cost) -> Cost:
    """A cost that promises a little more."""
    if isinstance(cost, DiscreteGaussianDP):
        return DiscreteGaussianDP(cost.scale / 0.96, 1)
    assert isinstance(cost, PureDP | BoundedRange)
    return type(cost)(0.96 * cost.epsilon)


def bounds_of(prices: dict[Cost, int], money: int) -> Layer:
    game = CustomRules(list(prices), 1e-6, steps=160)
    costs = [prices[cost] for cost in game.costs]
    return next(
        islice(game_layers(game, costs, lambda left: game.window(costs, left)), money, None)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prices", "money"),
    [
        ({BoundedRange(0.4): 1, PureDP(0.3): 2, NOISE: 2}, 5),
        ({PureDP(0.3): 1, NOISE: 1}, 3),
        ({BoundedRange(0.6): 2, NOISE: 3}, 7),
        ({PureDP(0.5): 1, PureDP(0.2): 1}, 3),
    ],
)
def test_free_choice_among_costs_of_any_class_never_exceeds_the_price_game(
    prices: dict[Cost, int], money: int
) -> None:
    layer = bounds_of(prices, money)
    mutant = bounds_of({weaker(cost): price for cost, price in prices.items()}, money)
    caught = 0
    for x in range(0, 16, 3):
        played = best_play(
            list(prices), lambda ran: sum(map(int.__mul__, ran, prices.values())) <= money, x
        )
        above = float(layer.above(np.array([x * H]))[0])
        assert played <= above * (1 + 1e-12) + 1e-15
        assert above <= played * 1.05 + 3e-3
        caught += played > float(mutant.above(np.array([x * H]))[0])
    assert caught > 0


def test_a_class_without_a_worst_mechanism_has_a_price_too() -> None:
    prices: dict[Cost, int] = {BoundedRange(0.4): 1, ZCDP(0.1): 2}
    layer = bounds_of(prices, 5)
    for x in range(0, 16, 3):
        played = best_play(list(prices), lambda ran: ran[0] + 2 * ran[1] <= 5, x)
        assert played <= float(layer.above(np.array([x * H]))[0])


@pytest.mark.slow
@pytest.mark.parametrize("cost", [NOISE, PureDP(0.37), GaussianDP(0.2), DiscreteLaplaceDP(4.0, 3)])
def test_the_profile_of_a_declared_cost_is_no_lower_than_its_own(cost: Cost) -> None:
    x = np.linspace(0.0, 1.0, 6)
    found = profile(cost, x, 0.02)
    for each, bound in zip(x, found, strict=True):
        own = compose(Charge({cost: 1}), epsilon=float(each))
        assert bound >= (own.lower or 0.0)
        assert bound <= own.delta * 1.2 + 1e-3


@pytest.mark.slow
def test_one_filter_for_selections_noise_and_pure_costs() -> None:
    costs = [DiscreteGaussianDP(20.0, 1), PureDP(0.1)]
    free = Accountant.filter(Budget(2.252, 1e-6), failure_delta=0.0, method="renyi")
    priced = Accountant.filter(Budget(2.252, 1e-6), failure_delta=0.0, ranges=(0.1,), costs=costs)
    for cost in (BoundedRange(0.1), *costs):
        most = priced.fits(Charge({cost: 1}))
        assert most >= 1.05 * free.fits(Charge({cost: 1}))
        assert compose(Charge({cost: most}), delta=1e-6).epsilon <= 2.252
    assert priced.price(DiscreteGaussianDP(20.0, 1))[0] == priced.price(BoundedRange(0.1))[0]
    with pytest.raises(IncompatibleCosts):  # no price; it may be added up as a whole
        Filter(Budget(2.0, 1e-6), costs=costs[:1]).price(ZCDP(0.1))
    again = Filter.of_terms(priced.terms())
    again.spend(Charge({BoundedRange(0.1): 50, costs[0]: 20, costs[1]: 2}))
    assert again.terms() == priced.terms()
    for bad in ([], [0.1], [BoundedRange(0.1), ZCDP(0.1, xi=0.1), 3], [ApproxDP(0.1, 1e-7)]):
        with pytest.raises(InvalidParameter, match="costs"):
            Filter(Budget(2.0, 1e-6), costs=bad)  # type: ignore[arg-type]


def test_a_registration_is_one_way_of_spending() -> None:
    prices = {0.2: 4, 0.1: 1}
    layer = next(islice(layers_of(prices), 3 * 4 + 5, None))
    lower = compose(Charge({BoundedRange(0.2): 3, BoundedRange(0.1): 5}), epsilon=0.5).lower
    above = float(layer.above(np.array([0.5]))[0])
    assert lower is not None
    assert lower <= above <= lower * 1.5


def test_prices_keep_their_proportions() -> None:
    assert weights_of((0.1,)) == {0.1: 1}
    assert weights_of((0.1, 0.05)) == {0.1: 15, 0.05: 4}
    assert weights_of((0.1, 0.05), largest=10) == {0.1: 4, 0.05: 1}
    assert capacity({BoundedRange(0.1): 1}, 1e-9, 1e-12, Work()) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "epsilon", "renyi", "ranges"), [(2.252, 0.1, 89, 100), (1.0, 0.05, 79, 89)]
)
def test_the_price_filter_takes_as_many_as_a_registration(
    total: float, epsilon: float, renyi: int, ranges: int
) -> None:
    query = Charge({BoundedRange(epsilon): 1})
    free = Accountant.filter(Budget(total, 1e-6), failure_delta=0.0, method="renyi")
    priced = Accountant.filter(Budget(total, 1e-6), failure_delta=0.0, ranges=(epsilon,))
    assert (free.fits(query), priced.fits(query)) == (renyi, ranges)
    assert compose(query.times(ranges), delta=1e-6).epsilon <= total * (1 + 1e-3)
    assert compose(query.times(ranges + 1), delta=1e-6).lower > total * (1 - 1e-4)


@pytest.mark.slow
def test_what_a_price_filter_takes_and_refuses() -> None:
    budget = Filter(Budget(2.0, 1e-6), ranges=(0.2, 0.1))
    assert (
        budget.price(BoundedRange(0.05))[0]
        == budget.price(BoundedRange(0.1))[0]
        == budget.price(PureDP(0.05))[0]
    )
    assert budget.price(BoundedRange(0.11))[0] == budget.price(BoundedRange(0.2))[0]
    with pytest.raises(IncompatibleCosts):
        budget.price(DiscreteGaussianDP(20.0, 1))
    assert "whole" in budget.quote(Charge({DiscreteGaussianDP(20.0, 1): 1}))
    budget.spend(Charge({BoundedRange(0.15): 3, BoundedRange(0.1): 2}, delta=1e-8))
    left = budget.share_left
    budget.spend(Charge({BoundedRange(0.15): 4}))
    budget.refund(Charge({BoundedRange(0.15): 4}))
    assert budget.share_left == left
    assert budget.fits(Charge({BoundedRange(0.1): 1})) >= budget.fits(
        Charge({BoundedRange(0.2): 1})
    )
    again = Filter.of_terms(budget.terms())
    again.restore(budget.state())
    assert again.state() == budget.state()
    assert again.remaining() == budget.remaining()


@pytest.mark.parametrize(
    "options",
    [
        {"ranges": ()},
        {"ranges": (0.1, math.nan)},
        {"method": "ranges"},
        {"ranges": (0.1,), "order": 2.0},
        {"method": "f"},
    ],
)
def test_bad_options_of_a_filter(options: dict[str, object]) -> None:
    with pytest.raises(InvalidParameter):
        Filter(Budget(1.0, 1e-6), **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"method": name} for name in ("renyi", "variance", "gaussian")] + [{"ranges": (0.3, 0.2)}],
)
def test_the_union_with_pure_costs_costs_nothing(options: dict[str, object]) -> None:
    """All plays that the real filter admits, pure costs and selections mixed as the analyst
    likes.
    """
    costs: list[Cost] = [PureDP(0.5), BoundedRange(0.3)]
    total, delta = 1.0, 0.02

    def accepts(ran: tuple[int, ...]) -> bool:
        charge = Charge(dict(zip(costs, ran, strict=True)))
        return Filter.of_terms(terms).can_spend(charge)

    terms = Filter(Budget(total, delta), failure_delta=0.0, **options).terms()
    assert accepts((2, 0))  # by the second rule
    played = best_play(costs, lru_cache(maxsize=None)(accepts), round(total / H))
    assert played <= delta
    looser = Filter(Budget(total * 1.3, delta), failure_delta=0.0, **options).terms()
    terms = looser
    assert (
        best_play(costs, lru_cache(maxsize=None)(accepts), round(total / H)) > delta
    )  # it would be found out


def test_it_takes_a_pure_cost_as_large_as_its_budget() -> None:
    for total in (1.0, 4.0):
        budget = Filter(Budget(total, 1e-6))
        assert budget.can_spend(Charge({PureDP(total): 1}))
        budget.spend(Charge({PureDP(total / 2): 1}))
        assert budget.fits(Charge({PureDP(total / 2): 1})) == 1
        budget.spend(Charge({PureDP(total / 2): 1}))
        with pytest.raises(BudgetExceeded):
            budget.spend(Charge({ZCDP(1e-3): 1}))


def test_the_gaussian_filter_is_exact_for_gaussians() -> None:
    capacity_ = float(Gaussian.at(1.0, 1e-6).capacity)
    assert gaussian_delta(math.sqrt(capacity_), epsilon=np.array([1.0]))[0] <= 1e-6
    assert gaussian_delta(math.sqrt(capacity_) * (1 + 1e-6), epsilon=np.array([1.0]))[0] > 1e-6
    budget = Filter(Budget(1.0, 1e-6), failure_delta=0.0, method="gaussian")
    assert budget.fits(Charge({GaussianDP(0.01): 1})) == math.floor(capacity_ / 1e-4)
    with pytest.raises(IncompatibleCosts):
        budget.can_spend(Charge({ZCDP(0.01): 1}))


FILTERS = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text(encoding="utf-8")
NAMES = {
    "GaussianDP(0.01)": GaussianDP(0.01),
    "DiscreteGaussianDP(20, 1)": DiscreteGaussianDP(20, 1),
    "PureDP(0.02)": PureDP(0.02),
}
ROWS = re.findall(r"^\| `(\w+\(.*?\))`, ([\d.]+) \| (.*) \|$", FILTERS, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize(("cost", "total", "counts"), ROWS)
def test_what_is_left_to_gain_over_the_gaussian_filter(cost: str, total: str, counts: str) -> None:
    """The table of docs/budgets.md. No filter takes more of one cost than its registration alone:
    the last column.
    """
    query, budget = Charge({NAMES[cost]: 1}), Budget(float(total), 1e-6)

    def taken(**options: object) -> int:
        return Accountant.filter(budget, failure_delta=0.0, **options).fits(query)

    found = [
        taken(method="renyi"),
        taken(method="variance"),
        taken(method="gaussian"),
        taken(costs=tuple(query.costs)),
        queries_affordable(query, budget),
    ]
    assert found == [int(count) for count in counts.split(" | ")]
    assert max(found) == found[-1]


@pytest.mark.parametrize(("scale", "shift"), [(0.8, 1), (1.0, 1), (4.0, 3)])
def test_the_gaussian_filter_takes_discrete_noise_at_a_dominating_mu(
    scale: float, shift: int
) -> None:
    """As many as fit are within the budget by their own law; as many as would fit at shift/scale
    are not.
    """
    cost, n = DiscreteGaussianDP(scale, shift), 3
    total = compose(Charge({GaussianDP(dominating_mu(scale, shift)): n}), delta=1e-3).epsilon * (
        1 + 1e-9
    )
    budget = Filter(Budget(total, 1e-3), failure_delta=0.0, method="gaussian")
    assert budget.fits(Charge({cost: 1})) == n
    assert compose(Charge({cost: n}), delta=1e-3).epsilon <= total
    continuous = compose(Charge({GaussianDP(shift / scale): n}), delta=1e-3).epsilon
    assert (
        compose(Charge({cost: n}), epsilon=0.0).lower
        > compose(Charge({GaussianDP(shift / scale): n}), epsilon=0.0).delta
    )
    tight = Filter(Budget(continuous * (1 + 1e-9), 1e-3), failure_delta=0.0, method="gaussian")
    assert tight.fits(Charge({cost: 1})) == n - 1


@pytest.mark.slow
def test_a_ledger_keeps_a_filters_capacity(tmp_path, monkeypatch) -> None:
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset(
            "d", budget=Budget(2.0, 1e-6), ranges=(0.1,), costs=[DiscreteGaussianDP(20.0, 1)]
        )
        left = ledger.summary("d").fits(Charge({BoundedRange(0.1): 1}))
        assert left > 70
    monkeypatch.setattr(
        "dptopk.budgets.filter_metrics.price_capacity", lambda *_: pytest.fail("computed again")
    )
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.charge("d", "ann", Charge({BoundedRange(0.1): left}))
        with pytest.raises(BudgetExceeded):
            ledger.charge("d", "ann", Charge({BoundedRange(0.1): 1}))
        assert ledger.verify()


def test_one_pool_for_failures_and_conversion_would_be_worth_twice_as_much():
    """docs/notes/filters.md: where no first loss came the rest of δ is spent on a failure, else on
    a second loss.
    """
    epsilon, delta, order = 1.0, 1e-6, 20.984537163299986

    def within(part):
        return Renyi.at(epsilon, part, order).capacity

    def asked(loss, chance):
        """ln E_P[e^{λL}] of a mechanism whose loss is this large with this chance, and else a
        little below 0.
        """
        other = math.log1p(-chance) - math.log1p(-chance * math.exp(-loss))
        return float(
            np.logaddexp(math.log(chance) + order * loss, math.log1p(-chance) + order * other)
        )

    def value(loss, chance, second, part, failure):
        """δ of the play whose Rényi sum uses up the capacity for this part of δ, and whose failure
        is this large.
        """
        left = within(part) - asked(loss, chance)
        again = brentq(lambda x: asked(second, x) - left, 1e-12, 1 - 1e-12)
        return -chance * again * math.expm1(epsilon - loss - second) + (1 - chance) * failure

    first = (0.7553, math.exp(-9.52))
    converts = delta * math.exp(
        asked(*first) - within(delta)
    )  # what the first mechanism takes of the pool
    assert within(converts) == pytest.approx(asked(*first))
    assert (
        value(*first, 0.2915, delta, delta - converts) > 1.9 * delta
    )  # no path takes more of the pool than δ
    apart = value(0.9045, math.exp(-10.79), 0.1421, delta / 2, delta / 2)
    assert 0.99 * delta < apart <= delta


@pytest.mark.parametrize("epsilon", [1e291, 1e300, 1.7e308])
def test_a_budget_of_any_size_has_a_filter(epsilon: float) -> None:
    """Warnings are errors: an order that was only tried overflowed."""
    assert Filter(Budget(epsilon, 1e-6)).can_spend(Charge({PureDP(epsilon / 2): 1}))


def test_declared_ranges_may_be_very_different():
    """The search for their grid never ended; the prices of the larger one are kept in layers."""
    filtered = Filter(Budget(2.0, 1e-6), ranges=(1.0, 1e-12))
    assert filtered.can_spend(Charge.parse("BR(1.0)"))
    assert filtered.can_spend(Charge.parse("1000*BR(1e-12)"))
    assert not filtered.can_spend(Charge.parse("10*BR(1.0)"))


def test_past_costs_without_a_price_are_told_from_a_spent_budget():
    limit = Filter(Budget(1.0, 1e-6), method="gaussian")
    with pytest.raises(IncompatibleCosts):
        limit.quote_past(Charge({ZCDP(0.001): 1}))
    with pytest.raises(BudgetExceeded):
        limit.quote_past(Charge({GaussianDP(5.0): 1}))
