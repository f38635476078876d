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
from dptopk.accounting.setwise.cost_groups import pair_of_symmetric
from dptopk.accounting.setwise.recursion import FLOOR, Layer, Rules
from dptopk.accounting.work import OutOfTime, Work, late
from dptopk.costs import BoundedRange, Charge, Cost

Key = TypeVar("Key", bound=Hashable)


# Of the spans at which a profile is looked at, each is this much longer than the last: the longest
# is 200 times the first, which is wide enough.
SPAN_GROWTH = 1.25
SPANS = 24
# A cost that is worth less than this share of the dearest one is priced as one of this share, so
# that prices, of which the dearest is the number of layers that are kept, stay small.
LEAST_WORTH = 1e-6


def weights_of(ranges: tuple[float, ...], largest: float = math.inf) -> dict[float, int]:
    """Return an integer price for each of several bounded ranges, about proportional to ε^1.93,
    which suits games of many costs; any prices give a sound bound.

    They are chosen as ``proportional_prices`` says.

    Args:
        ranges: the ε's.
        largest: a limit on the price of the largest range, as for ``proportional_prices``: long
            games need less precise prices.

    >>> weights_of((0.1, 0.05))
    {0.1: 15, 0.05: 4}
    """
    return proportional_prices(
        {epsilon: math.pow(epsilon, tuning.WEIGHT_EXPONENT) for epsilon in ranges}, largest
    )


def proportional_prices(worth: Mapping[Key, float], largest: float = math.inf) -> dict[Key, int]:
    """Return integer prices in about the proportions of ``worth``.

    The cheapest cost gets the least price, up to ``tuning.FINEST_WEIGHT``, with which each price is
    within the share ``tuning.WEIGHT_MISFIT`` of its proportion, or the price with which they are
    as near as possible. A cost that is worth less than the share LEAST_WORTH of the dearest one
    counts as that share.

    Args:
        worth: for each cost a positive number.
        largest: a limit on the largest price; it is exceeded only where the prices in which the
            cheapest cost has the price 1 exceed it.
    """
    least = LEAST_WORTH * max(worth.values())
    smallest_worth = max(min(worth.values()), least)
    # What each cost is worth in units of the cheapest one.
    multiples = [max(value, least) / smallest_worth for value in worth.values()]

    def misfit(unit: int) -> float:
        """Return the largest relative distance of a price from its proportion, if the cheapest cost
        has the price ``unit``.
        """
        exact = [unit * multiple for multiple in multiples]
        return max(abs(_price(price) / price - 1) for price in exact)

    units = range(1, tuning.FINEST_WEIGHT + 1)
    dearest = max(multiples)
    # A price may be rounded up.
    allowed = [unit for unit in units if max(unit * dearest, _price(unit * dearest)) <= largest]
    allowed = allowed or [1]
    close_enough = [unit for unit in allowed if misfit(unit) <= tuning.WEIGHT_MISFIT]
    unit = close_enough[0] if close_enough else min(allowed, key=misfit)
    return {key: _price(unit * multiple) for key, multiple in zip(worth, multiples, strict=True)}


def _price(exact: float) -> int:
    """Return the integer price nearest to an exact one, at least 1."""
    return max(1, round(exact))


def weight_layers(rules: Rules, prices: tuple[int, ...]) -> Iterator[Layer]:
    """Yield upper bounds on W_0, W_1, W_2, ... of the bounded ranges of ``rules``, as node values,
    without an end.

    Args:
        rules: the ranges and their grid.
        prices: the price of each range.
    """
    return game_layers(rules, prices, lambda money: window_of(rules, prices, money))


def game_layers(
    rules: Rules | CustomRules, prices: Sequence[int], window_at: Callable[[int], tuple[int, int]]
) -> Iterator[Layer]:
    """Yield upper bounds on W_0, W_1, W_2, ... of a game, as node values, without an end.

    Args:
        rules: the game's grid and steps.
        prices: the price of each of its costs, in its order.
        window_at: maps a sum of money to the first and the last node that matter with it.
    """
    layers: deque[Layer] = deque([rules.empty_layer()], maxlen=max(prices))
    yield layers[-1]
    money = 0
    while True:
        money += 1
        window = window_at(money)
        layer_before = layers[-1]
        best = layer_before.values_between(*window)
        top = layer_before.top
        for part, price in enumerate(prices):
            if price <= money:
                layer_after = layers[-price]
                values = rules.step(layer_after, part, window)
                best = np.maximum(best, values)
                top = max(top, layer_after.top + rules.steps[part])
        layers.append(Layer(window[0], best, top, rules.h, upper=True))
        yield layers[-1]


def window_of(rules: Rules, prices: tuple[int, ...], money: int) -> tuple[int, int]:
    """Return the first and the last node that matter when the money may be spent on any one range.

    Args:
        rules: the ranges and their grid.
        prices: the price of each range.
        money: the sum that is left.
    """
    windows = rules.windows(np.diag([money / price for price in prices]))
    return int(windows[:, 0].min()), int(windows[:, 1].max())


def affordable_copies(cost: Cost, epsilon: float, delta: float) -> float:
    """Return an estimate of the number of copies of a cost that together are (ε, δ)-DP, with a
    fraction; at least 1.

    Args:
        cost: without failure mass.
        epsilon: of the total, above 0.
        delta: of the total, above 0.
    """
    game = CustomRules([cost], delta, steps=tuning.WEIGHT_STEPS)
    log_delta = math.log(delta)
    log_delta_before = -math.inf  # of one copy less
    # With a price of 1, the money is the number of copies.
    for count, layer in enumerate(game.layers((1,))):
        log_delta_of_count = math.log(layer.delta(epsilon))
        if log_delta_of_count > log_delta:
            if count <= 1:
                break
            # Between two numbers of copies ln δ is taken to be linear.
            rise = log_delta_of_count - log_delta_before
            return max(count - 1 + (log_delta - log_delta_before) / rise, 1.0)
        log_delta_before = log_delta_of_count
    return 1.0


def capacity(weights: Mapping[Cost, int], epsilon: float, delta: float, work: Work) -> int:
    """Return the largest sum of money S found with W_S(epsilon) <= delta, certified; 0 when there
    is none.

    Args:
        weights: the price of each cost.
        epsilon: of the total, above 0.
        delta: of the total, above 0.
        work: where to stop; a smaller S is sound too.

    Raises:
        OutOfTime: with the largest S found, where the deadline cuts the search.
    """
    # A loss matters up to this many deviations beyond its mean: three more than the z at which
    # e^{-z²/2} is δ.
    reach = max(tuning.REACH, math.sqrt(-2 * math.log(delta)) + 3)
    largest = 0
    game = CustomRules(list(weights), delta, steps=tuning.WEIGHT_STEPS, reach=reach)
    prices = tuple(weights[cost] for cost in game.costs)
    for money, layer in enumerate(game.layers(prices)):
        work_of_layer = len(prices) * (tuning.PER_STEP + tuning.PER_NODE * len(layer.values))
        if layer.delta(epsilon) > delta or not work.take(work_of_layer):
            break
        largest = money
    if late():
        raise OutOfTime(largest)
    return largest


# A node beyond every grid, for costs whose V is positive everywhere: it is the number of grid steps
# that they are said to have, after which a V that is 0 would begin.
_BEYOND_GRIDS = 2**40


@dataclass(frozen=True)
class _Step:
    """The step of one cost that is no bounded range: an expectation over a pair (P, Q) that
    dominates the cost, and whose losses are nodes.

    Attributes:
        first: the smallest loss, in nodes.
        masses: the probabilities under P of losses at consecutive nodes, rounded up.
        infinite: the mass at an infinite loss, rounded up.
        mean: about the mean of the loss; only windows depend on it.
        spread: about the variance of the loss; only windows depend on it.
    """

    first: int
    masses: Floats
    infinite: float
    mean: float
    spread: float

    @classmethod
    def of(cls, cost: Cost, h: float, delta: float) -> _Step:
        """Return the step of a cost.

        Args:
            cost: a cost with a dominating pair or a Rényi curve.
            h: the distance of two nodes.
            delta: the mass that is moved to an infinite loss is small against this δ.
        """
        x = np.arange(_profile_nodes(cost, h, delta) + 1, dtype=np.float64) * h
        profile_from_0: Floats = np.clip(profile(cost, x, h), FLOOR, 1.0)
        pair = pair_of_symmetric(profile_from_0, h)
        nodes = np.rint(pair.losses / h).astype(np.int64)
        # Of the logarithm of a mass and of its exponential, with a margin.
        rounding = 64 * ROUNDOFF * (2 + np.abs(pair.log_masses))
        masses = np.exp(pair.log_masses) * (1 + rounding)
        # The pair names only the nodes that have a mass.
        places = nodes - nodes[0]
        masses_of_all_nodes = np.zeros(int(places[-1]) + 1)
        masses_of_all_nodes[places] = masses
        mean = float(masses @ pair.losses)
        spread = float(masses @ (pair.losses - mean) ** 2)
        return cls(int(nodes[0]), masses_of_all_nodes, pair.infinite, mean, spread)

    def apply(self, before: Layer, window: Sequence[int]) -> Floats:
        """Return upper bounds on E_P[V(x - L)], which is what playing the cost first is worth, at
        the nodes of a window.

        Args:
            before: upper bounds on V of what is left after the cost.
            window: the first and the last node.
        """
        last = self.first + len(self.masses) - 1
        values = before.values_between(window[0] - last, window[1] - self.first)
        expected = np.convolve(values, self.masses, mode="valid") + self.infinite
        # A sum of products with a term for each mass.
        rounding = 4 * ROUNDOFF * (8 + len(self.masses))
        return np.minimum(expected * (1 + rounding), 1.0)


def profile(cost: Cost, x: Floats, h: float) -> Floats:
    """Return upper bounds on the δ at ε = x of every mechanism with one cost, in either direction.

    They come from the cost's dominating pair where it has one (split on a grid finer than h), and
    from its Rényi curve otherwise.

    Args:
        cost: without failure mass.
        x: x >= 0, ascending.
        h: the distance of two nodes of the game.

    Raises:
        NotApplicable: when it has neither.
    """
    charge = Charge({cost: 1})
    parts = loss_components(charge)
    if not parts:
        return renyi_curve(log_mgf(charge)).delta(x)
    tilts = 0.0, best_tilt(parts, delta=tuning.PROFILE_DELTA)  # for the middle, and far out
    laws = [grid_product(parts, Grid(h / tuning.PROFILE_STEPS, tilt, 1)) for tilt in tilts]
    return np.array([min(law.delta(epsilon) for law in laws) for epsilon in x.tolist()])


def _profile_nodes(cost: Cost, h: float, delta: float) -> int:
    """Return about the number of nodes beyond which the profile of a cost is negligible, or
    PROFILE_NODES where that is smaller; any number is sound.

    Args:
        cost: without failure mass.
        h: the distance of two nodes.
        delta: the δ against which the profile is negligible.
    """
    span = 4 * max(h, _deviation(cost))  # the first that is looked at; any will do
    for _ in range(SPANS):
        if span / h >= tuning.PROFILE_NODES:
            return tuning.PROFILE_NODES
        delta_at_span = float(profile(cost, np.array([span]), h)[0])
        if delta_at_span <= tuning.PROFILE_BEYOND * delta:
            break
        span *= SPAN_GROWTH
    return math.ceil(span / h)


def _deviation(cost: Cost) -> float:
    """Return an estimate of the standard deviation of a cost's loss: that of its pair, or of a
    Gaussian with its Rényi curve.
    """
    charge = Charge({cost: 1})
    parts = loss_components(charge)
    if parts:
        return math.sqrt(sum(part.spread() for part in parts))
    at_order_1 = float(log_mgf(charge)(np.array([1.0]))[0])
    return math.sqrt(at_order_1)


class CustomRules:
    """The rules of a price game with costs of any class: a grid and a step for each cost.

    Args:
        costs: distinct costs without failure mass, each with a dominating pair or a Rényi curve.
        delta: the δ that is asked about; mass far below it may be moved to an infinite loss.
        steps: the least number of grid steps to the largest range.
        reach: of the windows, in standard deviations.

    Attributes:
        costs: the costs, bounded ranges first; prices and places of costs are in this order.
        h: the grid step.
        steps: for each cost the number of grid steps to its largest loss; of costs that are no
            bounded ranges one that is beyond every grid.
    """

    upper = True

    def __init__(
        self, costs: Sequence[Cost], delta: float, *, steps: int, reach: float = tuning.REACH
    ) -> None:
        """Choose a grid that is fine enough for all costs, and compute the step of each."""
        ranges = [cost for cost in costs if isinstance(cost, BoundedRange)]
        others = [cost for cost in costs if not isinstance(cost, BoundedRange)]
        self.costs: tuple[Cost, ...] = (*ranges, *others)
        least_deviation = min((_deviation(cost) for cost in others), default=math.inf)
        # Without ranges the grid is that of one range as wide as eight deviations; any other would
        # do.
        largest = max((cost.epsilon for cost in ranges), default=8 * least_deviation)
        fine_enough = math.ceil(tuning.SPREAD_STEPS * largest / least_deviation)
        steps = min(max(steps, fine_enough), tuning.MOST_STEPS)
        one_of_each = {cost.epsilon: 1 for cost in ranges}
        if not one_of_each:
            one_of_each = {largest: 1}
        self._rules = Rules.of(one_of_each, steps, upper=True, reach=reach)
        self.h = self._rules.h
        self._count = len(ranges)
        self._others = [_Step.of(cost, self.h, delta) for cost in others]
        self.steps = (*self._rules.steps[: len(ranges)], *(_BEYOND_GRIDS for _ in others))

    def empty_layer(self) -> Layer:
        """Return V without any money, [1 - e^x]_+, rounded up."""
        return self._rules.empty_layer()

    def step(self, before: Layer, part: int, window: Sequence[int]) -> Floats:
        """Return upper bounds on the value of playing the cost at place ``part`` first, at the
        nodes of a window, where ``before`` bounds V of what is left.

        Args:
            before: upper bounds on V of what is left after the cost.
            part: the place of the cost in ``costs``.
            window: the first and the last node.
        """
        if part < self._count:
            return self._rules.step(before, part, window)
        return self._others[part - self._count].apply(before, window)

    def window(self, prices: Sequence[int], money: int) -> tuple[int, int]:
        """Return the first and the last node that matter when the money may be spent on any one
        cost.

        Args:
            prices: the price of each cost.
            money: the sum that is left.
        """
        affordable = [money / price for price in prices]  # copies of each cost
        windows = []  # the first and the last node for each kind of cost
        if self._count:
            of_ranges = self._rules.windows(np.diag(affordable[: self._count]))
            windows.append((int(of_ranges[:, 0].min()), int(of_ranges[:, 1].max())))
        for copies, other in zip(affordable[self._count :], self._others, strict=True):
            windows.append(self._window_of_other(copies, other))
        return min(first for first, _ in windows), max(last for _, last in windows)

    def _window_of_other(self, copies: float, step: _Step) -> tuple[int, int]:
        """Return the first and the last node that matter when some copies of one cost may be
        played.

        Args:
            copies: how many, perhaps with a fraction.
            step: the step of the cost.
        """
        mean = copies * step.mean
        sigma = math.sqrt(copies * step.spread)
        last = step.first + len(step.masses) - 1
        # One more step reads nodes as far to the left as its largest loss.
        low = mean - tuning.BELOW * sigma - last * self.h
        high = mean + math.hypot(self._rules.reach, tuning.STRAY) * sigma
        return math.floor(low / self.h) - 1, math.ceil(high / self.h) + 1

    def layers(self, prices: Sequence[int]) -> Iterator[Layer]:
        """Yield upper bounds on W_0, W_1, W_2, ... for a price of each cost, without an end."""
        return game_layers(self, prices, lambda money: self.window(prices, money))
