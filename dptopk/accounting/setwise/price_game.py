"""The price game: costs chosen freely, from all answers, while a sum of prices lasts.

Each declared cost c has an integer price p_c >= 1. With money S left the analyst may stop, or play
any cost of at most that price:

    W_0 = [1 - e^x]_+,    W_S = max(W_{S-1}, max over c with p_c <= S of step_c(W_{S - p_c})),

the largest δ at ε = x, whatever the prices are. So a filter that adds up prices and accepts while
the sum is at most S is (x, δ)-DP as soon as W_S(x) <= δ; and V_E <= W_{Σp} for a registration E,
which is one way of spending. The state is one number, so that six costs take no more layers than
two. Steps and their certified bounds are those of the set-wise recursion
(``bellman_step.upper_step``) for bounded range, and expectations over a pair for others
(``CustomRules``). Statement and proof: Theorem G in docs/notes/filters.md.

The price game for costs of any class that were declared beforehand (docs/notes/filters.md, "The
price game").

A step for bounded range is that of the recursion (``bellman_step``). For any other cost c, let (P,
Q) be a pair whose profile is nowhere below that of a mechanism of c; then step_c(V)(x) <= E_P[V(x -
L)] (docs/notes/setwise.md, Lemma 2). The pair is read off, by chords, from bounds on the profile at
the nodes (``cost_groups.pair_above``): its losses are nodes, so that node values of V are all that
is needed. Masses are positive and rounded up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.cost_models.dominating_pairs import grid_product, loss_components
from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.pld.tilt import best_tilt
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import pair_above
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules
from dptopk.accounting.work import OutOfTime, Work, late
from dptopk.costs import BoundedRange, Charge, Cost

Key = TypeVar("Key", bound=Hashable)


def weights_of(ranges: tuple[float, ...], largest: float = math.inf) -> dict[float, int]:
    """Integer prices about proportional to ε^1.93, which suits games of many costs; any prices are
    sound.

    With the least price for the smallest range, up to 8, that meets the proportions within 2%, or
    as well as can be with a price of at most ``largest`` for the largest range: long games need
    less precise prices.

    >>> weights_of((0.1, 0.05))
    {0.1: 15, 0.05: 4}
    """
    return proportional(
        {epsilon: math.pow(epsilon, tuning.WEIGHT_EXPONENT) for epsilon in ranges}, largest
    )


def proportional(worth: Mapping[Key, float], largest: float = math.inf) -> dict[Key, int]:
    """Integer prices in about the given proportions; see ``weights_of``."""
    least = min(worth.values())
    shares = [each / least for each in worth.values()]

    def misfit(unit: int) -> float:
        return max(abs(max(1, round(unit * share)) / (unit * share) - 1) for share in shares)

    units = [
        unit
        for unit in range(1, tuning.FINEST_WEIGHT + 1)
        if unit == 1 or unit * max(shares) <= largest
    ]
    unit = next(
        (unit for unit in units if misfit(unit) <= tuning.WEIGHT_MISFIT), min(units, key=misfit)
    )
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
        best = before.extended(*window)
        top = before.top
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
    before = -math.inf
    count = 0
    for layer in game_layers(game, (1,), lambda money: game.window((1,), money)):
        now = math.log(float(layer.above(np.array([epsilon]))[0]))
        if now > math.log(delta):
            if count > 1:
                return max(count - 1 + (math.log(delta) - before) / (now - before), 1.0)
            return 1.0
        before = now
        count = count + 1
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
    for money, layer in enumerate(
        game_layers(game, costs, lambda money: game.window(costs, money))
    ):
        amount = len(costs) * (tuning.PER_STEP + tuning.PER_NODE * len(layer.values))
        if float(layer.above(np.array([epsilon]))[0]) > delta or not work.take(amount):
            break
        found = money
    if late():
        raise OutOfTime(found)
    return found


_ENDLESS = 2**40  # a node beyond every grid: V is positive everywhere


@dataclass(frozen=True)
class _Step:
    """One cost other than a bounded range: its loss on the nodes, and E_P[V(x - L)] for node values
    of V.

    Attributes:
        first: the smallest loss, in nodes.
        masses: under P, at consecutive nodes, rounded up.
        infinite: the mass at an infinite loss, rounded up.
        mean, spread: of the loss, about; only windows depend on them.
    """

    first: int
    masses: Floats
    infinite: float
    mean: float
    spread: float

    @classmethod
    def of(cls, cost: Cost, h: float, delta: float) -> _Step:
        """The step of a cost on nodes of a step h; what it leaves to infinity is small against
        ``delta``.
        """
        rising = np.arange(_reach(cost, h, delta) + 1, dtype=np.float64)
        right: Floats = np.clip(profile(cost, rising * h, h), FLOOR, 1.0)
        # In the other direction the class is the same: δ(-x) = 1 - e^{-x} (1 - δ(x)) for x > 0.
        left = 1 - np.exp(-rising[1:] * h) * (1 - right[1:]) * (1 - 64 * ROUNDOFF)
        values = np.concatenate([np.minimum(left * (1 + 8 * ROUNDOFF), 1.0)[::-1], right])
        pair = pair_above(np.arange(-len(rising) + 1, len(rising)), values, h)
        nodes = np.rint(pair.losses / h).astype(np.int64)
        masses = np.exp(pair.log_masses) * (1 + 64 * ROUNDOFF * (2 + np.abs(pair.log_masses)))
        dense = np.zeros(int(nodes[-1] - nodes[0]) + 1)
        dense[nodes - nodes[0]] = masses
        mean = float(masses @ pair.losses)
        spread = float(masses @ (pair.losses - mean) ** 2)
        return cls(int(nodes[0]), dense, pair.infinite, mean, spread)

    def apply(self, before: Layer, window: Sequence[int]) -> Floats:
        """Upper bounds on E_P[V(x - L)] at the nodes of a window."""
        last = self.first + len(self.masses) - 1
        values = before.extended(window[0] - last, window[1] - self.first)
        expected = np.convolve(values, self.masses, mode="valid") + self.infinite
        return np.minimum(expected * (1 + 4 * ROUNDOFF * (8 + len(self.masses))), 1.0)


def profile(cost: Cost, x: Floats, h: float) -> Floats:
    """Upper bounds on δ(x), x >= 0 ascending, of every mechanism with one cost, in either
    direction.

    By the cost's dominating pair where it has one (split on a grid finer than h), and by its Rényi
    curve otherwise.

    Raises:
        NotApplicable: when it has neither.
    """
    charge = Charge({cost: 1})
    parts = loss_components(charge)
    if not parts:
        return renyi_curve(log_mgf(charge)).delta(x)
    tilts = 0.0, best_tilt(parts, delta=tuning.PROFILE_DELTA)  # for the middle, and far out
    laws = [grid_product(parts, Grid(h / tuning.PROFILE_STEPS, tilt, 1)) for tilt in tilts]
    return np.array([min(law.delta(float(each)) for law in laws) for each in x])


def _reach(cost: Cost, h: float, delta: float) -> int:
    """Nodes beyond which the profile is negligible, or as many as are looked at."""
    span = 4 * max(h, _spread(cost))
    for _ in range(24):
        if span / h >= tuning.PROFILE_NODES:
            return tuning.PROFILE_NODES
        if float(profile(cost, np.array([span]), h)[0]) <= tuning.PROFILE_BEYOND * delta:
            break
        span *= 1.25
    return math.ceil(span / h)


def _spread(cost: Cost) -> float:
    """About the standard deviation of a cost's loss: of its pair, or of a Gaussian with its Rényi
    curve.
    """
    parts = loss_components(Charge({cost: 1}))
    if parts:
        return math.sqrt(sum(part.spread() for part in parts))
    return math.sqrt(float(log_mgf(Charge({cost: 1}))(np.array([1.0]))[0]))


class CustomRules:
    """The rules of a price game with costs of any class: a grid, a step for each cost, and how much
    is computed.

    The order of costs is that of ``self.costs``: bounded ranges first.

    Args:
        costs: distinct costs without failure mass, each with a dominating pair or a Rényi curve.
        delta: the δ that is asked about; mass far below it may be left to infinity.
        steps, reach: as for ``Rules.of``.
    """

    upper = True

    def __init__(
        self, costs: Sequence[Cost], delta: float, *, steps: int, reach: float = tuning.REACH
    ) -> None:
        ranges = [cost for cost in costs if isinstance(cost, BoundedRange)]
        others = [cost for cost in costs if not isinstance(cost, BoundedRange)]
        self.costs: tuple[Cost, ...] = (*ranges, *others)
        least = min((_spread(cost) for cost in others), default=math.inf)
        largest = max((cost.epsilon for cost in ranges), default=8 * least)
        steps = min(max(steps, math.ceil(tuning.SPREAD_STEPS * largest / least)), tuning.MOST_STEPS)
        counted = {cost.epsilon: 1 for cost in ranges} or {largest: 1}
        self._rules = Rules.of(counted, steps, upper=True, reach=reach)
        self.h = self._rules.h
        self._count = len(ranges)
        self._others = [_Step.of(cost, self.h, delta) for cost in others]
        self.steps = (*self._rules.steps[: len(ranges)], *(_ENDLESS for _ in others))

    def nothing_left(self) -> Layer:
        """V of an empty purse."""
        return self._rules.nothing_left()

    def step(self, before: Layer, part: int, window: Sequence[int]) -> Floats:
        """The value of playing one cost first, at the nodes of a window."""
        if part < self._count:
            return self._rules.step(before, part, window)
        return self._others[part - self._count].apply(before, window)

    def window(self, weights: Sequence[int], money: int) -> tuple[int, int]:
        """The nodes that matter when the money may go into any one cost."""
        counts = [money / weight for weight in weights]
        ends = []
        if self._count:
            found = self._rules.windows(np.diag(counts[: self._count]))
            ends.append((int(found[:, 0].min()), int(found[:, 1].max())))
        for count, other in zip(counts[self._count :], self._others, strict=True):
            mean = count * other.mean
            sigma = math.sqrt(count * other.spread)
            last = other.first + len(other.masses) - 1
            low = mean - tuning.BELOW * sigma - last * self.h
            high = mean + math.hypot(self._rules.reach, tuning.STRAY) * sigma
            ends.append((math.floor(low / self.h) - 1, math.ceil(high / self.h) + 1))
        return min(low for low, _ in ends), max(high for _, high in ends)
