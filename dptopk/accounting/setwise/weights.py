"""The price game: costs chosen freely, from all answers, while a sum of prices lasts.

Each declared cost c has an integer price p_c >= 1. With money S left the analyst may stop, or play any cost of at most
that price:

    W_0 = [1 - e^x]_+,    W_S = max(W_{S-1}, max over c with p_c <= S of step_c(W_{S - p_c})),

the largest δ at ε = x, whatever the prices are. So a filter that adds up prices and accepts while the sum is at most S
is (x, δ)-DP as soon as W_S(x) <= δ; and V_E <= W_{Σp} for a registration E, which is one way of spending. The state is
one number, so that six costs take no more layers than two. Steps and their certified bounds are those of the set-wise
recursion (``bellman_step.upper_step``) for bounded range, and expectations over a pair for others
(``custom_costs``). Statement and proof: Theorem G in docs/notes/filters.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.custom_costs import CustomRules
from dptopk.accounting.setwise.recursion import Layer, Rules
from dptopk.accounting.work import OutOfTime, Work, late
from dptopk.costs import Cost

Key = TypeVar("Key", bound=Hashable)


def weights_of(ranges: tuple[float, ...], largest: float = math.inf) -> dict[float, int]:
    """Integer prices about proportional to ε^1.93, which suits games of many costs; any prices are sound.

    With the least price for the smallest range, up to 8, that meets the proportions within 2%, or as well as can be
    with a price of at most ``largest`` for the largest range: long games need less precise prices.

    >>> weights_of((0.1, 0.05))
    {0.1: 15, 0.05: 4}
    """
    return proportional({epsilon: math.pow(epsilon, tuning.WEIGHT_EXPONENT) for epsilon in ranges}, largest)


def proportional(worth: Mapping[Key, float], largest: float = math.inf) -> dict[Key, int]:
    """Integer prices in about the given proportions; see ``weights_of``."""
    least = min(worth.values())
    shares = [each / least for each in worth.values()]

    def misfit(unit: int) -> float:
        return max(abs(max(1, round(unit * share)) / (unit * share) - 1) for share in shares)

    units = [unit for unit in range(1, tuning.FINEST_WEIGHT + 1) if unit == 1 or unit * max(shares) <= largest]
    unit = next((unit for unit in units if misfit(unit) <= tuning.WEIGHT_MISFIT), min(units, key=misfit))
    return {key: max(1, round(unit * share)) for key, share in zip(worth, shares, strict=True)}


def weight_layers(rules: Rules, weights: tuple[int, ...]) -> Iterator[Layer]:
    """Upper bounds on W_0, W_1, W_2, ... of the bounded ranges of ``rules``, as node values."""
    return game_layers(rules, weights, lambda money: window_of(rules, weights, money))


def game_layers(
    rules: Rules | CustomRules, costs: Sequence[int], window_at: Callable[[int], tuple[int, int]]
) -> Iterator[Layer]:
    """Upper bounds on W_0, W_1, W_2, ... of a game, as node values.

    Args:
        rules: the game's grid and steps.
        costs: the price of each of its costs, in its order.
        window_at: the nodes that matter with so much money.
    """
    layers: deque[Layer] = deque([rules.nothing_left()], maxlen=max(costs))
    yield layers[-1]
    money = 0
    while True:
        money += 1
        window = window_at(money)
        before = layers[-1]
        best, top = before.extended(*window), before.top
        for part, weight in enumerate(costs):
            if weight <= money:
                after = layers[-weight]
                best = np.maximum(best, rules.step(after, part, window))
                top = max(top, after.top + rules.steps[part])
        layers.append(Layer(window[0], best, top, rules.h, upper=True))
        yield layers[-1]


def window_of(rules: Rules, costs: tuple[int, ...], money: int) -> tuple[int, int]:
    """The nodes that matter when the money may go into any one range."""
    windows = rules.windows(np.diag([money / weight for weight in costs]))
    return int(windows[:, 0].min()), int(windows[:, 1].max())


def alone(cost: Cost, epsilon: float, delta: float) -> float:
    """About how many of one cost (ε, δ) takes, with a fraction; at least 1."""
    game = CustomRules([cost], delta, steps=tuning.WEIGHT_STEPS)
    before, count = -math.inf, 0
    for layer in game_layers(game, (1,), lambda money: game.window((1,), money)):
        now = math.log(float(layer.above(np.array([epsilon]))[0]))
        if now > math.log(delta):
            return max(count - 1 + (math.log(delta) - before) / (now - before), 1.0) if count > 1 else 1.0
        before, count = now, count + 1
    return 1.0  # the layers have no end


def capacity(weights: Mapping[Cost, int], epsilon: float, delta: float, work: Work) -> int:
    """The largest S found with W_S(epsilon) <= delta, certified; 0 when there is none.

    Args:
        weights: of each cost.
        epsilon: of the total, above 0.
        delta: of the total, above 0.
        work: where to stop: a smaller S is sound too.

    Raises:
        OutOfTime: with the largest S found, where a clock cuts.
    """
    reach = max(tuning.REACH, math.sqrt(-2 * math.log(delta)) + 3)
    found = 0
    game = CustomRules(list(weights), delta, steps=tuning.WEIGHT_STEPS, reach=reach)
    costs = tuple(weights[cost] for cost in game.costs)
    for money, layer in enumerate(game_layers(game, costs, lambda money: game.window(costs, money))):
        amount = len(costs) * (tuning.PER_STEP + tuning.PER_NODE * len(layer.values))
        if float(layer.above(np.array([epsilon]))[0]) > delta or not work.take(amount):
            break
        found = money
    if late():
        raise OutOfTime(found)
    return found
