"""The certified recursion for bounded range: V_B(x), the largest δ at ε = x of an adaptive game,
between two bounds.

With nothing left V = [1 - e^x]_+; with a multiset E left, V_E is the largest of step_ε(V_{E - ε})
over the distinct ε in E: the value of playing a cost of that ε first (``bellman_step`` bounds one
step from both sides). The state of the game is what is left, as the count of each distinct ε.

Given everything before, the loss of an ε-BR mechanism has a mean of at most maxkl(ε) and is
ε/2-subgaussian around it (Hoeffding), so that V_E(x) <= e^{-z²/2} for x = Σ maxkl + z σ, σ² = Σ
ε²/4. Nodes are computed in a window of a few σ around that mean; outside, V is replaced by cruder
bounds: above, by the chords to H(0) = 1 and to where H vanishes; below, by 1 - u, the first node's
value, or 0. The window does not depend on what is asked, so value functions can be stored and used
again (``Ladder``). Proofs: docs/notes/setwise.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import ROUNDOFF, Floats, round_down, round_up
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import lower_step, upper_step
from dptopk.accounting.work import raise_if_late

# Added to V before the first step (a constant passes through every step): no positive value
# underflows.
FLOOR = 1e-290
# exp and expm1 of x = j h err by a few roundoffs relatively; 64 of them are outward on either side.
OUTWARD = 1 + 64 * ROUNDOFF
INWARD = 1 - 64 * ROUNDOFF
NEARLY_WHOLE = 1e-9  # of a multiple of a grid step
# The C library of Linux returns the memory of freed arrays to the system and faults it in again for
# the next ones, a third of the time of all steps. Once a block of this size was freed it keeps up
# to twice as much (mallopt(3), M_MMAP_THRESHOLD). Elsewhere this does nothing.
np.empty(2**21)
Nodes = NDArray[Any]
State = tuple[int, ...]


@dataclass(frozen=True)
class Rules:
    """A game on a grid: its ranges, which bound on V is computed, and how much of it.

    Attributes:
        epsilons: the distinct ε's.
        steps: for each the number N of grid steps: N h >= ε for an upper bound, N h <= ε for a
            lower one.
        h: the grid step.
        upper: which bound.
        reach: how many standard deviations beyond its mean V matters to the right.
    """

    epsilons: tuple[float, ...]
    steps: tuple[int, ...]
    h: float
    upper: bool
    reach: float = tuning.REACH

    @classmethod
    def of(
        cls, ranges: dict[float, int], steps: int, *, upper: bool, reach: float = tuning.REACH
    ) -> Rules:
        """Return the rules of a game on a grid with about ``steps`` steps to the largest ε.

        Every ε becomes a whole number of grid steps: at least ε for an upper bound, at most ε for a
        lower one, both exactly.

        Args:
            ranges: the distinct ε's with counts; the counts only help to choose the grid.
            steps: the least number of steps to the largest ε.
            upper: whether V is bounded from above.
            reach: how many standard deviations beyond its mean V matters to the right.
        """
        epsilons = tuple(ranges)
        counts = tuple(ranges.values())
        steps_of_each, h = common_grid(epsilons, counts, steps, upper=upper)
        return cls(epsilons, steps_of_each, h, upper, reach)

    def windows(self, states: NDArray[Any]) -> NDArray[Any]:
        """Return the first and the last node that is computed in each state.

        Any window is sound, and a narrow one only loses tightness. V matters up to ``reach``
        standard deviations beyond its mean; the window is wider by what the walk from there to 0
        strays (docs/notes/setwise.md, "Windows, kept").

        Args:
            states: how often each ε is left, shape (number of states, number of ε's).

        Returns:
            Integers, shape (number of states, 2). Outside its window V is replaced by cruder
                bounds.
        """
        epsilons = np.array(self.epsilons)
        mean_losses = np.array([mean_loss(epsilon) for epsilon in self.epsilons])
        counts = states.astype(float)
        largest_loss = counts @ epsilons
        mean = counts @ mean_losses
        # A loss with range ε has a standard deviation of at most ε/2 (Popoviciu), and variances
        # add.
        sigma = np.sqrt(counts @ epsilons**2) / 2
        # To the left of a node a step reads up to the largest ε further.
        low = np.maximum(mean - tuning.BELOW * sigma - max(self.epsilons), -largest_loss)
        # Where a share f of the variance is left, the walk is near reach·sqrt(f) deviations of what
        # is left, within STRAY·sqrt(1 - f): at most the hypot (Cauchy-Schwarz).
        above = math.hypot(self.reach, tuning.STRAY)
        high = np.minimum(mean + above * sigma, largest_loss)
        low = np.minimum(low, high)
        # A node to spare on each side, as the quotients are rounded.
        first = np.floor(low / self.h) - 1
        last = np.ceil(high / self.h) + 1
        return np.column_stack([first, last]).astype(np.int64)

    def empty_layer(self) -> Layer:
        """Return V of the empty multiset, [1 - e^x]_+, rounded outward, at about the nodes that the
        longest step from 0 reads; beyond, ``Layer`` has bounds.
        """
        reach = max(*self.steps, 1) + 2  # two to spare
        x = np.arange(-reach, reach + 1) * self.h
        computed = np.maximum(-np.expm1(x), 0.0)
        if self.upper:
            values = computed * OUTWARD + FLOOR
        else:
            values = computed * INWARD
        return Layer(-reach, values, 0, self.h, self.upper)

    def step(self, before: Layer, part: int, window: Sequence[int]) -> Floats:
        """Return bounds on the value of playing one cost first, at each node of a window.

        Args:
            before: bounds on V of what is left after that cost.
            part: the place of the cost's ε in ``epsilons``.
            window: the first and the last node.
        """
        N = self.steps[part]
        values = before.values_between(window[0] - N, window[1] + N)
        if not N:  # an ε that was rounded down to 0 is not played
            return values
        if self.upper:
            return upper_step(values, N, self.h)
        return lower_step(values, N, self.h)


def mean_loss(epsilon: float) -> float:
    """Return maxkl(ε), the largest mean loss of a mechanism of ε-bounded range, but for rounding;
    only windows depend on it.
    """
    y = epsilon / math.expm1(epsilon)
    return y - 1 - math.log(y)


def common_grid(
    epsilons: tuple[float, ...], counts: State, steps: int, *, upper: bool
) -> tuple[State, float]:
    """Return the number of grid steps N of each ε, and the grid step h: N h >= ε for ``upper``,
    else N h <= ε, exactly.

    Args:
        epsilons: the ε's.
        counts: the number of costs of each.
        steps: the least number of grid steps to the largest ε.
        upper: whether ε's are rounded up, for upper bounds on V.
    """
    largest = max(epsilons)
    if len(epsilons) == 1:
        return (steps,), _exact_step(epsilons, (steps,), largest / steps, upper=upper)
    changes = _variance_changes(epsilons, counts, steps, tuning.GRID_CELL, upper=upper)
    best = steps + int(np.argmin(changes))
    multiples = np.array(epsilons) / largest * best
    steps_of_each = tuple(int(n) for n in _whole_multiples(multiples, upper=upper))
    return steps_of_each, _exact_step(epsilons, steps_of_each, largest / best, upper=upper)


@lru_cache(maxsize=8192)  # a partition asks for the same groups and steps again and again
def rounding_noise(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool = True
) -> float:
    """Return an estimate of the variance that ``common_grid`` adds to the loss by rounding ε's
    outward, plus ``cell`` h² for the step of each cost.

    Args:
        epsilons: the ε's.
        counts: the number of costs of each.
        steps: the least number of grid steps to the largest ε.
        cell: what a step of the recursion adds to the variance, in units of h².
        upper: whether ε's are rounded up, for upper bounds on V.
    """
    if len(epsilons) == 1:
        return cell * (epsilons[0] / steps) ** 2 * counts[0]
    return float(_variance_changes(epsilons, counts, steps, cell, upper=upper).min())


def _whole_multiples(multiples: Floats, *, upper: bool) -> Floats:
    """Return multiples of the grid step rounded up (``upper``) or down to whole numbers, as floats;
    a deviation of NEARLY_WHOLE from a whole number is ignored, and ``_exact_step`` makes up for it.
    """
    if upper:
        # One step at least: N h >= ε has no solution with N = 0.
        return np.maximum(np.ceil(multiples - NEARLY_WHOLE), 1.0)
    return np.floor(multiples + NEARLY_WHOLE)


def _variance_changes(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool
) -> Floats:
    """Return estimates of the amounts by which grids of ``steps`` to ``2 steps`` steps to the
    largest ε change the variance Σ ε²/4, the error of interpolation included; one for each grid.

    Args:
        epsilons: the ε's.
        counts: the number of costs of each.
        steps: the least number of grid steps to the largest ε.
        cell: what a step of the recursion adds to the variance, in units of h².
        upper: whether ε's are rounded up, for upper bounds on V.
    """
    sizes = np.array(epsilons)
    times = np.array(counts, dtype=float)
    steps_to_largest = np.arange(steps, 2 * steps + 1)
    h = sizes.max() / steps_to_largest[:, None]
    moved = h * _whole_multiples(sizes / h, upper=upper)
    by_rounding = np.abs(moved**2 - sizes**2) / 4
    return (by_rounding + cell * h**2) @ times


def _exact_step(epsilons: tuple[float, ...], steps: State, h: float, *, upper: bool) -> float:
    """Return the float closest to h with N h >= ε (``upper``) or N h <= ε (else) for every ε and
    its N, compared as rationals.

    Args:
        epsilons: the ε's.
        steps: N of each, the number of grid steps to it.
        h: a grid step; the one returned differs as little as every ε allows.
        upper: whether the step is for upper bounds on V.
    """
    for epsilon, N in zip(epsilons, steps, strict=True):
        if N == 0:  # an ε that was rounded down to 0 fits every step
            continue
        exact = Fraction(epsilon) / N
        if upper:
            h = max(h, round_up(exact))
        else:
            h = min(h, round_down(exact))
    return h


@dataclass(frozen=True)
class Layer:
    """Bounds on V at consecutive nodes, in one state or in several at once (a row for each).

    The nodes are at x = (first + j) h. Methods give bounds outside of them and between them.

    Attributes:
        first: the first node, j of x = jh.
        values: the bounds, shape (nodes,) or (states, nodes).
        top: the node of the largest loss, from which on V = 0; for several states a column.
        h: the grid step.
        upper: whether these are upper bounds.
    """

    first: int
    values: Floats
    top: int | NDArray[np.int64]
    h: float
    upper: bool

    def of_states(self, rows: NDArray[np.int64], tops: NDArray[np.int64]) -> Layer:
        """Return the layer with only the states in ``rows``; in each of them V = 0 from its node in
        ``tops`` on.
        """
        return replace(self, values=self.values[rows], top=tops[:, None])

    def values_between(self, first: int, last: int) -> Floats:
        """Return bounds at all nodes from ``first`` to ``last``; outside of the stored ones cruder
        bounds, see the module docstring.
        """
        end = self.first + self.values.shape[-1]
        before = np.arange(first, min(self.first, last + 1), dtype=np.int64)
        after = np.arange(max(end, first), last + 1, dtype=np.int64)
        stored_from = max(first - self.first, 0)
        stored_to = max(last - self.first + 1, 0)
        stored = self.values[..., stored_from:stored_to]
        return np.concatenate(
            [self._bounds_to_the_left(before), stored, self._bounds_to_the_right(after)], axis=-1
        )

    def _bounds_to_the_left(self, nodes: Nodes) -> Floats:
        """Return bounds on V at nodes to the left of the stored ones."""
        if not len(nodes):
            return self.values[..., :0]
        edge = self.values[..., :1]
        if not self.upper:
            # V falls in x, and is at least its value for the empty multiset, 1 - e^x.
            empty_values = -np.expm1(nodes * self.h) * INWARD
            return np.maximum(edge, empty_values)
        # The chord from H(0) = 1 to the first node; from a little more where values rounded up
        # would not be convex.
        second = self.values[..., 1:2]
        origin = edge - (second - edge) / math.expm1(self.h)
        origin = np.maximum(origin, 1.0)
        growth = np.exp((nodes - self.first) * self.h)
        chord = origin - (origin - edge) * growth * INWARD
        # Of the sums and products above.
        return np.maximum(chord * (1 + 4 * ROUNDOFF), edge)

    def _bounds_to_the_right(self, nodes: Nodes) -> Floats:
        """Return bounds on V at nodes to the right of the stored ones."""
        if not self.upper:
            return np.zeros((*self.values.shape[:-1], len(nodes)))
        # The chord from the last node to where V vanishes.
        last_node = self.first + self.values.shape[-1] - 1
        last = (last_node - self.top) * self.h
        x = (nodes - self.top) * self.h
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.expm1(x) / np.expm1(last)
        chord = self.values[..., -1:] * (share * OUTWARD)
        return np.where(nodes >= self.top, FLOOR, np.maximum(chord, FLOOR))

    def above(self, x: NDArray[Any]) -> Floats:
        """Return upper bounds on V at any x, not only at nodes: the chord between the two nodes
        around it. The layer must be an upper one.
        """
        node = np.floor(x / self.h)
        first = int(node.min()) - 1
        last = int(node.max()) + 2
        values = self.values_between(first, last)
        place = node.astype(int) - first
        at_node = values[place]
        at_next = values[place + 1]
        share = np.clip(self.share_in_cell(node, x), 0.0, 1.0)
        chord = at_node - (at_node - at_next) * share
        # The most by which V falls over this cell and the one before, where rounding may have moved
        # x from.
        fall = np.maximum(values[place - 1] - at_next, 0)
        return chord * (1 + 4 * ROUNDOFF) + fall * self.rounding_of_share(x)

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on δ at one ε. The layer must be an upper one."""
        return float(self.above(np.array([epsilon]))[0])

    def share_in_cell(self, node: Floats, x: Floats) -> Floats:
        """Return (e^x - e^{jh}) / (e^{(j+1)h} - e^{jh}) for the node j: the share of the cell to
        the right of the node that lies before x.
        """
        share: Floats = np.expm1(x - node * self.h) / math.expm1(self.h)
        return share

    def rounding_of_share(self, x: NDArray[Any]) -> Floats:
        """Return a bound on the amount by which rounding moves x within a cell, as a share of the
        cell.
        """
        # x and its exponentials err by some units of roundoff, and a cell is h long.
        return 64 * ROUNDOFF * (1 + (1 + np.abs(x)) / self.h)


class _FirstPlay(NamedTuple):
    """One ε, with the states of one size in which it may be played first.

    Attributes:
        part: the place of the ε in ``Rules.epsilons``.
        places: the states in which at least one such cost is left, as places in the list of states
            asked for.
        rows_after: for each of them, the row (in ``_Remainders``) of the state after the play.
    """

    part: int
    places: NDArray[np.intp]
    rows_after: NDArray[np.intp]


@dataclass(frozen=True)
class _Remainders:
    """Every multiset that may be left of a game, as a row of a table.

    Attributes:
        states: how often each ε is left, shape (multisets, number of ε's).
        strides: for each ε, how many rows further up the multiset with one of it less is.
        tops: for each multiset, the node from which on V = 0.
        windows: for each multiset, the first and the last node worth computing.
    """

    states: NDArray[np.int64]
    strides: tuple[int, ...]
    tops: NDArray[np.int64]
    windows: NDArray[np.int64]

    @classmethod
    def of(cls, rules: Rules, counts: State) -> _Remainders:
        """Return all multisets with at most ``counts`` costs of each ε."""
        sizes = [count + 1 for count in counts]
        states = np.array(list(product(*map(range, sizes))))
        strides = tuple(math.prod(sizes[part + 1 :]) for part in range(len(sizes)))
        tops = states @ np.array(rules.steps)
        return cls(states, strides, tops, rules.windows(states))

    def of_size(self, total: int) -> NDArray[np.intp]:
        """Return the rows of the multisets with ``total`` costs."""
        return np.flatnonzero(self.states.sum(axis=1) == total)

    def first_plays(self, rows: NDArray[np.intp], width: int) -> Iterator[_FirstPlay]:
        """Yield each ε that may be played first, in batches of states whose values fit into the
        processor's cache.

        Args:
            rows: rows of states.
            width: how many node values are computed for each state.
        """
        for part, stride in enumerate(self.strides):
            with_cost = np.flatnonzero(self.states[rows, part])
            batches = math.ceil(len(with_cost) * width / tuning.BATCH)
            for places in np.array_split(with_cost, batches):
                yield _FirstPlay(part, places, rows[places] - stride)


def solve(rules: Rules, counts: State) -> Layer:
    """Return bounds on V of a multiset.

    Every multiset that may be left is a state; those of one size are computed together, from those
    that are smaller by one.

    Args:
        rules: the game and its grid.
        counts: how often each ε occurs.
    """
    remainders = _Remainders.of(rules, counts)
    # For each state, its row in the layer of the states of its size.
    rows_in_layers = np.zeros(len(remainders.tops), dtype=np.int64)
    layer = rules.empty_layer()
    layer = replace(layer, values=layer.values[None])
    for total in range(1, sum(counts) + 1):
        states = remainders.of_size(total)
        layer = _layer_of_states(rules, remainders, states, layer, rows_in_layers)
        rows_in_layers[states] = np.arange(len(states))
    return replace(layer, values=layer.values[0], top=int(remainders.tops[-1]))


def _layer_of_states(
    rules: Rules,
    remainders: _Remainders,
    states: NDArray[np.intp],
    smaller: Layer,
    rows_in_layers: NDArray[np.int64],
) -> Layer:
    """Return bounds on V of all states of one size, from bounds for the states with one cost less.

    Args:
        rules: the game and its grid.
        remainders: all states.
        states: the rows of the states of this size.
        smaller: the layer of the states with one cost less.
        rows_in_layers: for each state of ``remainders``, its row in the layer of the states of its
            size.
    """
    first = int(remainders.windows[states, 0].min())
    last = int(remainders.windows[states, 1].max())
    best = np.zeros((len(states), last - first + 1))
    for play in remainders.first_plays(states, best.shape[1]):
        raise_if_late()
        rows_after = rows_in_layers[play.rows_after]
        after = smaller.of_states(rows_after, remainders.tops[play.rows_after])
        values = rules.step(after, play.part, (first, last))
        # Bellman: V is the largest value over the cost that is played first.
        best[play.places] = np.maximum(best[play.places], values)
    tops = remainders.tops[states][:, None]
    # Beyond a state's largest loss V is 0. As computed it is not quite convex there, which takes
    # many more chords.
    worth_nothing = np.arange(first, last + 1) >= tops
    best[worth_nothing] = FLOOR if rules.upper else 0.0
    return Layer(first, best, tops, rules.h, rules.upper)


def solve_in_order(rules: Rules, played: Sequence[int]) -> Layer:
    """Return bounds on the value of playing costs in one given order.

    A lower bound is one on V as well: the order is one of the adversary's choices.

    Args:
        rules: the game and its grid.
        played: for each cost the place of its ε in ``rules.epsilons``, first played first.
    """
    parts = list(reversed(played))  # the cost that is played last is the first that is valued
    is_played = np.array(parts)[:, None] == np.arange(len(rules.epsilons))
    states = np.cumsum(is_played, axis=0)
    tops = (states @ np.array(rules.steps)).tolist()
    windows = rules.windows(states).tolist()
    layer = rules.empty_layer()
    for part, top, window in zip(parts, tops, windows, strict=True):
        raise_if_late()
        values = rules.step(layer, part, window)
        layer = Layer(window[0], values, top, rules.h, rules.upper)
    return layer


class Ladder:
    """V of n equal ranges for n = 0, 1, 2, ..., each computed from the one before, and some of them
    stored for later calls.

    Args:
        rules: a game with a single ε.
    """

    def __init__(self, rules: Rules) -> None:
        """Start with V of no costs."""
        self._rules = rules
        self._layers = {0: rules.empty_layer()}
        self._lock = threading.Lock()

    def value(self, count: int) -> Layer:
        """Return bounds on V of ``count`` costs, computed from the largest stored n up to it.
        Threads may call it at the same time.
        """
        rules = self._rules
        with self._lock:
            n = max([place for place in self._layers if place <= count])
            layer = self._layers[n]
            further = np.arange(n + 1, count + 1)
            windows = rules.windows(further[:, None]).tolist()
            for window in windows:
                raise_if_late()
                n += 1
                values = rules.step(layer, 0, window)
                layer = Layer(window[0], values, n * rules.steps[0], rules.h, rules.upper)
                if n <= tuning.LADDER_HEAD or n % tuning.LADDER_PERIOD == 0:
                    self._layers[n] = layer
            self._layers[n] = layer
            return layer


@lru_cache(maxsize=12)
def ladder(epsilon: float, steps: int, *, upper: bool, reach: float) -> Ladder:
    """Return the ladder of one range; it is cached for later queries.

    Args:
        epsilon: ε.
        steps: the number of grid steps to ε.
        upper: whether it bounds V from above.
        reach: the half-width of the windows in standard deviations.
    """
    return Ladder(Rules.of({epsilon: 1}, steps, upper=upper, reach=reach))
