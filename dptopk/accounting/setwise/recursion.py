"""The certified recursion for bounded range: V_B(x), the largest δ at ε = x of an adaptive game,
between two bounds.

With nothing left V = [1 - e^x]_+; with a multiset E left, V_E is the largest of step_ε(V_{E - ε})
over the distinct ε in E (``bellman_step`` bounds one step from both sides). States are the counts
of each distinct ε.

Given everything before, the loss of an ε-BR mechanism has a mean of at most maxkl(ε) and is
ε/2-subgaussian around it (Hoeffding), so that V_E(x) <= e^{-z²/2} for x = Σ maxkl + z σ, σ² = Σ
ε²/4. Nodes are computed in a window of a few σ around that mean; outside, V is replaced by cruder
bounds: above, by the chords to H(0) = 1 and to where H vanishes; below, by 1 - u, the first node's
value, or 0. The window does not depend on what is asked, so value functions can be kept and used
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

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.bellman_step import lower_step, upper_step
from dptopk.accounting.work import check

# Added to V before the first step (a constant passes through every step): no positive value
# underflows.
FLOOR = 1e-290
# exp and expm1 of x = j h err by a few roundoffs relatively; 64 of them are outward on either side.
OUTWARD = 1 + 64 * ROUNDOFF
INWARD = 1 - 64 * ROUNDOFF
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
        """The grid with about ``steps`` for the largest ε, every ε rounded outward exactly."""
        epsilons = tuple(ranges)
        counts = tuple(ranges.values())
        each, h = common_grid(epsilons, counts, steps, upper=upper)
        return cls(epsilons, each, h, upper, reach)

    def windows(self, states: NDArray[Any]) -> NDArray[Any]:
        """First and last node worth computing, for states given as rows: shape (number of states,
        2).
        """
        epsilons = np.array(self.epsilons)
        mean_losses = np.array([mean_loss(epsilon) for epsilon in self.epsilons])
        counts = states.astype(float)
        top = counts @ epsilons
        mean = counts @ mean_losses
        # A loss with range ε has a standard deviation of at most ε/2 (Popoviciu), and variances
        # add.
        sigma = np.sqrt(counts @ epsilons**2) / 2
        low = np.maximum(mean - tuning.BELOW * sigma - max(self.epsilons), -top)
        above = math.hypot(self.reach, tuning.STRAY)
        high = np.minimum(mean + above * sigma, top)
        low = np.minimum(low, high)
        first = np.floor(low / self.h) - 1
        last = np.ceil(high / self.h) + 1
        return np.column_stack([first, last]).astype(np.int64)

    def nothing_left(self) -> Layer:
        """V of the empty multiset, [1 - e^x]_+, rounded outward."""
        reach = max(*self.steps, 1) + 2
        x = np.arange(-reach, reach + 1) * self.h
        computed = np.maximum(-np.expm1(x), 0.0)
        if self.upper:
            values = computed * OUTWARD + FLOOR
        else:
            values = computed * INWARD
        return Layer(-reach, values, 0, self.h, self.upper)

    def step(self, before: Layer, part: int, window: Sequence[int]) -> Floats:
        """The value of playing one cost of a part first, at the nodes of a window."""
        N = self.steps[part]
        values = before.extended(window[0] - N, window[1] + N)
        if not N:  # an ε that was rounded down to 0 is not played
            return values
        if self.upper:
            return upper_step(values, N, self.h)
        return lower_step(values, N, self.h)


def mean_loss(epsilon: float) -> float:
    """About maxkl(ε), the largest mean loss."""
    y = epsilon / math.expm1(epsilon)
    return y - 1 - math.log(y)


def common_grid(
    epsilons: tuple[float, ...], counts: State, steps: int, *, upper: bool
) -> tuple[State, float]:
    """A grid step for several ε's, and how many steps each takes: N h >= ε (upper) or N h <= ε
    (lower), exactly.

    Among the grids with ``steps`` to ``2 steps`` for the largest ε, the one that changes Σ ε²
    least.
    """
    largest = max(epsilons)
    if len(epsilons) == 1:
        return (steps,), _exact_step(epsilons, (steps,), largest / steps, upper=upper)
    changes = _changes(epsilons, counts, steps, tuning.GRID_CELL, upper=upper)
    best = steps + int(np.argmin(changes))
    multiples = np.array(epsilons) / largest * best
    each = tuple(int(n) for n in _rounded(multiples, upper=upper))
    return each, _exact_step(epsilons, each, largest / best, upper=upper)


@lru_cache(maxsize=8192)  # a partition asks for the same groups and steps again and again
def rounding_noise(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool = True
) -> float:
    """Approximate variance that ``common_grid`` adds to the loss: ε's rounded outward, and ``cell``
    h² per step.
    """
    if len(epsilons) == 1:
        return cell * (epsilons[0] / steps) ** 2 * counts[0]
    return float(_changes(epsilons, counts, steps, cell, upper=upper).min())


def _rounded(multiples: Floats, *, upper: bool) -> Floats:
    if upper:
        return np.ceil(multiples - 1e-9)
    return np.floor(multiples + 1e-9)


def _changes(
    epsilons: tuple[float, ...], counts: State, steps: int, cell: float, *, upper: bool
) -> Floats:
    """By how much grids of ``steps`` to ``2 steps`` change the variance Σ ε²/4, interpolation
    included, about.
    """
    each = np.array(epsilons)
    many = np.array(counts, dtype=float)
    steps_to_largest = np.arange(steps, 2 * steps + 1)
    h = each.max() / steps_to_largest[:, None]
    moved = h * _rounded(each / h, upper=upper)
    by_rounding = np.abs(moved**2 - each**2) / 4
    return (by_rounding + cell * h**2) @ many


def _exact_step(epsilons: tuple[float, ...], steps: State, h: float, *, upper: bool) -> float:
    """The float closest to h with N h >= ε (upper) or N h <= ε (lower) for every ε and its N,
    exactly.
    """
    for epsilon, N in zip(epsilons, steps, strict=True):
        while upper and Fraction(h) * N < Fraction(epsilon):
            h = math.nextafter(h, math.inf)
        while not upper and Fraction(h) * N > Fraction(epsilon):
            h = math.nextafter(h, 0.0)
    return h


@dataclass(frozen=True)
class Layer:
    """Node values of V at one state, or a row for each of several: bounds at x = (first + j) h, and
    what is outside.
    """

    first: int
    values: Floats
    top: int | NDArray[np.int64]  # V = 0 from this node on; of several states, a column
    h: float
    upper: bool

    def of_states(self, rows: NDArray[np.int64], tops: NDArray[np.int64]) -> Layer:
        """The rows of some states, given from which node on V = 0 in each."""
        return replace(self, values=self.values[rows], top=tops[:, None])

    def extended(self, first: int, last: int) -> Floats:
        """Node values from ``first`` to ``last``, by the cruder bounds outside of what is
        stored.
        """
        end = self.first + self.values.shape[-1]
        left = np.arange(first, min(self.first, last + 1), dtype=np.int64)
        right = np.arange(max(end, first), last + 1, dtype=np.int64)
        stored_from = max(first - self.first, 0)
        stored_to = max(last - self.first + 1, 0)
        stored = self.values[..., stored_from:stored_to]
        return np.concatenate([self._left(left), stored, self._right(right)], axis=-1)

    def _left(self, nodes: Nodes) -> Floats:
        if not len(nodes):
            return self.values[..., :0]
        edge = self.values[..., :1]
        if not self.upper:
            # V falls in x, and is at least its value for the empty multiset, 1 - e^x.
            nothing_left = -np.expm1(nodes * self.h) * INWARD
            return np.maximum(edge, nothing_left)
        # The chord from H(0) = 1 to the first node; from a little more where values rounded up
        # would not be convex.
        second = self.values[..., 1:2]
        origin = edge - (second - edge) / math.expm1(self.h)
        origin = np.maximum(origin, 1.0)
        growth = np.exp((nodes - self.first) * self.h)
        chord = origin - (origin - edge) * growth * INWARD
        return np.maximum(chord * (1 + 4 * ROUNDOFF), edge)

    def _right(self, nodes: Nodes) -> Floats:
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
        """Upper bound at any x: the chord between the nodes around it (of an upper value
        function).
        """
        node = np.floor(x / self.h)
        first = int(node.min()) - 1
        last = int(node.max()) + 2
        values = self.extended(first, last)
        at = node.astype(int) - first
        here = values[at]
        after = values[at + 1]
        share = np.clip(self._beyond(node, x), 0.0, 1.0)
        chord = here - (here - after) * share
        fall = np.maximum(values[at - 1] - after, 0)
        return chord * (1 + 4 * ROUNDOFF) + fall * self._moved(x)

    def delta(self, epsilon: float) -> float:
        """Upper bound on δ at an ε (of an upper value function)."""
        return float(self.above(np.array([epsilon]))[0])

    def _beyond(self, node: Floats, x: Floats) -> Floats:
        """How far e^x lies beyond a node, as a share of the cell to the right of the node."""
        share: Floats = np.expm1(x - node * self.h) / math.expm1(self.h)
        return share

    def _moved(self, x: NDArray[Any]) -> Floats:
        """Bound on the movement of x within a cell by rounding, as a share of the cell."""
        return 64 * ROUNDOFF * (1 + (1 + np.abs(x)) / self.h)

    def below(self, x: Floats, above: Layer) -> Floats:
        """Lower bound at any x (of a lower value function, given an upper one).

        H is convex: left of a node it lies above the line through the node and any point further
        right, so a lower bound at the node and an upper one to its right give a lower bound in
        between. And should rounding have put x beyond the node, H falls there no faster than it
        does left of the node.
        """
        first = self.first * self.h
        last = (self.first + len(self.values) - 1) * self.h
        inside = np.clip(x, first, last)
        if np.isnan(inside).any():
            # Of losses that are no floats nothing is known: 0 is always below.
            return np.zeros(x.shape)
        bounds = self._below_inside(inside, above)
        # Outside of what is stored: no less than at its left end and than 1 - e^x, or than 0.
        nothing_left = -np.expm1(np.minimum(x, 0.0)) * INWARD
        bounds_to_the_left = np.maximum(bounds, nothing_left)
        bounds = np.where(x > last, 0.0, bounds)
        return np.where(x < first, bounds_to_the_left, bounds)

    def _below_inside(self, inside: Floats, above: Layer) -> Floats:
        """``below`` at any x between the first and the last node."""
        node = np.ceil(inside / self.h)
        first = int(node.min())
        last = int(node.max())
        values = self.extended(first, last)
        upper = above.above(np.arange(first - 1, last + 2) * self.h)
        at = node.astype(int) - first
        here = values[at]
        share = np.clip(-self._beyond(node, inside), 0.0, 1.0)
        moved = self._moved(inside)
        rise = np.maximum(here - upper[at + 2], 0.0) * np.maximum(share - moved, 0.0)
        fall = np.maximum(upper[at] - here, 0.0) * moved
        bounds = (here + rise) * INWARD - fall
        return np.maximum(bounds, 0.0)


class _FirstPlay(NamedTuple):
    """One ε that is played first in some states.

    Attributes:
        part: its place.
        some: which of the states have one to play.
        left: the rows of the states that are then left.
    """

    part: int
    some: NDArray[np.intp]
    left: NDArray[np.intp]


@dataclass(frozen=True)
class _Remainders:
    """Every multiset that may be left of some counts.

    Attributes:
        states: how often each ε is left, a row for each multiset.
        strides: for each ε, how many rows further up the multiset with one of it less is.
        tops: for each multiset, the node from which on V = 0.
        windows: the first and the last node worth computing for each.
    """

    states: NDArray[np.int64]
    strides: tuple[int, ...]
    tops: NDArray[np.int64]
    windows: NDArray[np.int64]

    @classmethod
    def of(cls, rules: Rules, counts: State) -> _Remainders:
        """Of all counts up to these."""
        sizes = [count + 1 for count in counts]
        states = np.array(list(product(*map(range, sizes))))
        strides = tuple(math.prod(sizes[part + 1 :]) for part in range(len(sizes)))
        tops = states @ np.array(rules.steps)
        return cls(states, strides, tops, rules.windows(states))

    def of_size(self, total: int) -> NDArray[np.intp]:
        """The rows of the multisets of a size."""
        return np.flatnonzero(self.states.sum(axis=1) == total)

    def first_plays(self, found: NDArray[np.intp], width: int) -> Iterator[_FirstPlay]:
        """Each ε that may be played first, in batches of states.

        Args:
            found: rows of states.
            width: how many node values are computed for each.
        """
        for part, stride in enumerate(self.strides):
            having = np.flatnonzero(self.states[found, part])
            batches = math.ceil(len(having) * width / tuning.BATCH)
            for some in np.array_split(having, batches):
                yield _FirstPlay(part, some, found[some] - stride)


def solve(rules: Rules, counts: State) -> Layer:
    """Bounds on V of a multiset: every multiset that may be left is a state, those of one size at a
    time.

    Args:
        rules: the game and its grid.
        counts: how often each ε occurs.
    """
    remainders = _Remainders.of(rules, counts)
    rows = np.zeros(len(remainders.tops), dtype=np.int64)  # of states, in the layer of their size
    layer = rules.nothing_left()
    layer = replace(layer, values=layer.values[None])
    for total in range(1, sum(counts) + 1):
        found = remainders.of_size(total)
        layer = _layer_of_states(rules, remainders, found, layer, rows)
        rows[found] = np.arange(len(found))
    return replace(layer, values=layer.values[0], top=int(remainders.tops[-1]))


def _layer_of_states(
    rules: Rules,
    remainders: _Remainders,
    found: NDArray[np.intp],
    smaller: Layer,
    rows: NDArray[np.int64],
) -> Layer:
    """Bounds on V of states of one size, from those of the states with one cost less.

    Args:
        rules: the game and its grid.
        remainders: all states.
        found: which of them are of this size.
        smaller: those with one cost less.
        rows: where each of these stands in it.
    """
    first = int(remainders.windows[found, 0].min())
    last = int(remainders.windows[found, 1].max())
    best = np.zeros((len(found), last - first + 1))
    for play in remainders.first_plays(found, best.shape[1]):
        check()
        after = smaller.of_states(rows[play.left], remainders.tops[play.left])
        values = rules.step(after, play.part, (first, last))
        # Bellman: V is the largest value over the cost that is played first.
        best[play.some] = np.maximum(best[play.some], values)
    tops = remainders.tops[found][:, None]
    # Beyond a state's largest loss V is 0. As computed it is not quite convex there, which takes
    # many more chords.
    beyond = np.arange(first, last + 1) >= tops
    best[beyond] = FLOOR * rules.upper
    return Layer(first, best, tops, rules.h, rules.upper)


def solve_in_order(rules: Rules, played: Sequence[int]) -> Layer:
    """Bounds on the value of playing costs in one order; a lower bound on V in any case.

    Args:
        rules: the game and its grid.
        played: places in ``rules.epsilons``, first played first.
    """
    parts = list(reversed(played))
    which = np.array(parts)[:, None] == np.arange(len(rules.epsilons))
    left = np.cumsum(which, axis=0)
    tops = (left @ np.array(rules.steps)).tolist()
    windows = rules.windows(left).tolist()
    layer = rules.nothing_left()
    for part, top, window in zip(parts, tops, windows, strict=True):
        check()
        values = rules.step(layer, part, window)
        layer = Layer(window[0], values, top, rules.h, rules.upper)
    return layer


class Ladder:
    """V of n equal ranges, n = 0, 1, 2, ..., each computed from the previous one, as far as needed
    so far.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._layers = {0: rules.nothing_left()}
        self._lock = threading.Lock()

    def value(self, count: int) -> Layer:
        """Bounds on V of ``count`` costs."""
        rules = self._rules
        with self._lock:
            n = max([place for place in self._layers if place <= count])
            layer = self._layers[n]
            further = np.arange(n + 1, count + 1)
            windows = rules.windows(further[:, None]).tolist()
            for window in windows:
                check()
                n += 1
                values = rules.step(layer, 0, window)
                layer = Layer(window[0], values, n * rules.steps[0], rules.h, rules.upper)
                if n <= tuning.LADDER_HEAD or n % tuning.LADDER_PERIOD == 0:
                    self._layers[n] = layer
            self._layers[n] = layer
            return layer


@lru_cache(maxsize=12)
def ladder(epsilon: float, steps: int, *, upper: bool, reach: float) -> Ladder:
    """The ladder of one range, cached for later queries."""
    return Ladder(Rules.of({epsilon: 1}, steps, upper=upper, reach=reach))
