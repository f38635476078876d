"""The certified recursion for bounded range: V_B(x), the largest δ at ε = x of an adaptive game, between two bounds.

With nothing left V = [1 - e^x]_+; with a multiset E left, V_E is the largest of step_ε(V_{E - ε}) over the distinct ε
in E (``chords`` bounds one step from both sides). States are the counts of each distinct ε.

Only x near the line from the question (all costs left, x = ε_g) to the origin (none left, x = 0) matter, a few
standard deviations of the tilted walk wide. Outside this band V is replaced by cruder bounds: above, by the chord to
H(0) = 1, by Chernoff's bound, or by the last node's value; below, by 1 - u, the first node's value, or 0. Proofs:
docs/setwise.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptopk.accounting.curves import ROUNDOFF, Floats
from dptopk.accounting.pld.lattice import log_peak
from dptopk.accounting.renyi.log_mgf import LOG_MGF_ERROR, bounded_range_log_mgf
from dptopk.accounting.setwise.chords import lower_step, upper_step
from dptopk.accounting.setwise.steps import State

__all__ = ["FLOOR", "Band", "OutOfTime", "ValueFunction", "solve", "solve_in_order"]

# Added to V before the first step (a constant passes through every step): no positive value underflows.
FLOOR = 1e-290
SPREAD = 5.2  # half-width of the band in standard deviations
Nodes = NDArray[Any]


class OutOfTime(Exception):
    """The deadline passed before the recursion was done."""


@dataclass(frozen=True)
class Band:
    """What part of the (state, x) plane matters for one question.

    Attributes:
        epsilons, counts: the distinct ε's of the BR costs and how often each occurs.
        order: λ of the tilt; any λ > 0 gives valid bounds, the best Chernoff exponent gives tight ones.
        centre: the x around which V of the full multiset is wanted.
        variance: how far around: the variance of what will be added to x (dominated part, uncertainty of the root).
    """

    epsilons: tuple[float, ...]
    counts: State
    order: float
    centre: float
    variance: float
    spread: float = SPREAD

    @cached_property
    def log_mgf(self) -> tuple[float, ...]:
        """Upper bounds on h_ε(λ)."""
        return tuple(float(bounded_range_log_mgf(e, self.order)) * (1 + 2 * LOG_MGF_ERROR) for e in self.epsilons)

    @cached_property
    def _drift(self) -> tuple[float, ...]:
        """Tilted mean losses, h_ε'(λ) (heuristic)."""
        near = self.order * (1 + 1e-4), self.order * (1 - 1e-4)
        return tuple(
            float(bounded_range_log_mgf(e, near[0]) - bounded_range_log_mgf(e, near[1])) / (near[0] - near[1])
            for e in self.epsilons
        )

    def chernoff(self, state: State) -> float:
        """Ln of the factor C in V_state(x) <= C e^{-λx}."""
        total = math.fsum(n * h for n, h in zip(state, self.log_mgf, strict=True))
        constant = log_peak(self.order)
        return total + constant + 1e-14 * (abs(total) + abs(constant))

    def ranges(self, states: NDArray[Any], h: float) -> NDArray[Any]:
        """First and last node worth computing, for states given as rows: shape (number of states, 2)."""
        epsilons, spent = np.array(self.epsilons), np.array(self.counts) - states
        middle = self.centre - spent @ np.array(self._drift)
        top = states @ epsilons
        origin = min(2.0 / self.order, 20.0) ** 2  # the walk ends near x = -1/λ
        left = origin + states @ epsilons**2 / 4
        done = spent @ epsilons**2 / 4 + self.variance
        width = self.spread * np.sqrt(left * done / (left + done)) + max(self.epsilons) / 2
        high = np.minimum(middle + width, top)
        low = np.minimum(np.maximum(middle - width, -top - 40.0), high)
        return np.column_stack([np.floor(low / h) - 1, np.ceil(high / h) + 1]).astype(np.int64)


@dataclass(frozen=True)
class Layer:
    """Node values of V at one state: bounds at x = (first + j) h, and what is known outside."""

    first: int
    values: Floats
    top: int  # V = 0 from this node on
    log_chernoff: float
    order: float
    upper: bool

    def extended(self, first: int, last: int, h: float) -> Floats:
        """Node values from ``first`` to ``last``, by the cruder bounds outside of what is stored."""
        have = self.first, self.first + len(self.values) - 1
        inner = self.values[max(first - have[0], 0) : max(last - have[0] + 1, 0)]
        left = np.arange(first, min(have[0], last + 1), dtype=np.int64)
        right = np.arange(max(have[1] + 1, first), last + 1, dtype=np.int64)
        return np.concatenate([self._left(left, h), inner, self._right(right, h)])

    def _left(self, nodes: Nodes, h: float) -> Floats:
        if not len(nodes):
            return np.empty(0)
        edge = self.values[0]
        if not self.upper:
            bounds: Floats = np.maximum(edge, -np.expm1(nodes * h) * (1 - 4 * ROUNDOFF))
            return bounds
        # The chord from H(0) = 1 to the first node.
        chord = 1 - (1 - edge) * np.exp((nodes - self.first) * h) * (1 - 8 * ROUNDOFF)
        highest: Floats = np.minimum(np.maximum(chord * (1 + 4 * ROUNDOFF), edge), self._chernoff(nodes, h))
        return highest

    def _right(self, nodes: Nodes, h: float) -> Floats:
        if not len(nodes) or not self.upper:
            return np.zeros(len(nodes))
        return np.where(nodes >= self.top, FLOOR, np.minimum(self.values[-1], self._chernoff(nodes, h)))

    def _chernoff(self, nodes: Nodes, h: float) -> Floats:
        exponent = self.log_chernoff - self.order * h * nodes
        exponent += 8 * ROUNDOFF * (abs(self.log_chernoff) + self.order * h * np.abs(nodes))
        bounds: Floats = np.exp(np.minimum(exponent, 1.0)) * (1 + 4 * ROUNDOFF) + FLOOR
        return bounds


@dataclass(frozen=True)
class ValueFunction:
    """An upper or a lower bound on V of the full multiset, as node values."""

    layer: Layer
    h: float

    def nodes(self, first: int, last: int) -> Floats:
        """Bounds at the nodes ``first``..``last``."""
        return self.layer.extended(first, last, self.h)

    def upper(self, x: NDArray[Any]) -> Floats:
        """Upper bound at any x: the chord between the nodes around it (of an upper value function)."""
        node = np.floor(x / self.h)
        first, last = int(node.min()) - 1, int(node.max()) + 2
        values = self.nodes(first, last)
        at = node.astype(int) - first
        share = np.clip(np.expm1(x - node * self.h) / math.expm1(self.h), 0.0, 1.0)
        chord = values[at] - (values[at] - values[at + 1]) * share
        bounds: Floats = chord * (1 + 4 * ROUNDOFF) + (values[at - 1] - values[at + 1]) * self._moved(x)
        return bounds

    def _moved(self, x: NDArray[Any]) -> Floats:
        """How far rounding can move x within a cell, as a share of the cell."""
        moved: Floats = 8 * ROUNDOFF * (1 + (1 + np.abs(x)) / self.h)
        return moved

    def lower(self, x: Floats, above: ValueFunction) -> Floats:
        """Lower bound at any x (of a lower value function, given an upper one).

        H is convex: left of a node it lies above the line through the node and any point further right, so a lower
        bound at the node and an upper one to its right give a lower bound in between. And should rounding have put x
        beyond the node, H falls there no faster than it does left of the node.
        """
        node = np.ceil(x / self.h)
        first, last = int(node.min()), int(node.max())
        values = self.nodes(first, last)
        upper = above.upper(np.arange(first - 1, last + 2) * self.h)
        at = node.astype(int) - first
        share = np.clip(-np.expm1(x - node * self.h) / math.expm1(self.h), 0.0, 1.0)
        rise = np.maximum(values[at] - upper[at + 2], 0.0) * np.maximum(share - self._moved(x), 0.0)
        fall = (upper[at] - values[at]) * self._moved(x)
        bounds: Floats = np.maximum((values[at] + rise) * (1 - 8 * ROUNDOFF) - fall, 0.0)
        return bounds


def solve(band: Band, steps: tuple[int, ...], h: float, *, upper: bool, deadline: float) -> ValueFunction:
    """Bounds on V of the full multiset around ``band.centre``.

    Args:
        band: the costs and the region that matters.
        steps: for each distinct ε the number N of grid steps: N h >= ε for an upper bound, N h <= ε for a lower one.
        h: the grid step.
        upper: which bound.
        deadline: a reading of time.monotonic().

    Raises:
        OutOfTime: when the deadline passes.
    """
    step = upper_step if upper else lower_step
    layers: dict[State, Layer] = {}
    states = list(product(*(range(k + 1) for k in band.counts)))
    for state, (first, last) in zip(states, band.ranges(np.array(states), h).tolist(), strict=True):
        if time.monotonic() > deadline:
            raise OutOfTime
        best: Floats | None = None
        for part, N in enumerate(steps):
            if state[part] == 0:
                continue
            before = layers[(*state[:part], state[part] - 1, *state[part + 1 :])]
            values = step(before.extended(first - N, last + N, h), N, h)
            best = values if best is None else np.maximum(best, values, out=best)
        if best is None:
            layers[state] = _nothing_left(first, last, h, band, upper=upper, reach=max(steps))
            continue
        top = sum(n * N for n, N in zip(state, steps, strict=True))
        layers[state] = Layer(first, best, top, band.chernoff(state), band.order, upper)
        layers.pop((state[0] - 2, *state[1:]), None)
    return ValueFunction(layers[band.counts], h)


def solve_in_order(
    band: Band,
    steps: tuple[int, ...],
    h: float,
    *,
    deadline: float,
    upper: bool = False,
    order: Sequence[int] | None = None,
) -> ValueFunction:
    """Bounds on the value of playing all costs in one order, equal ε's together; a lower bound on V in any case.

    Args:
        band: as for ``solve``.
        steps: as for ``solve``.
        h: the grid step.
        deadline: a reading of time.monotonic().
        upper: which bound on the value of this order.
        order: places of the ε's in ``band.epsilons``, first played first; None: by rising ε, which is the best order,
            or close to it.

    Raises:
        OutOfTime: when the deadline passes.
    """
    if order is None:
        order = sorted(range(len(band.epsilons)), key=lambda part: band.epsilons[part])
    step = upper_step if upper else lower_step
    parts = [part for part in reversed(order) for _ in range(band.counts[part])]
    states = _growing(parts, len(band.counts))
    ranges = band.ranges(np.array(states), h).tolist()
    layer = _nothing_left(ranges[0][0], ranges[0][1], h, band, upper=upper, reach=max(steps))
    tops = np.array(states) @ np.array(steps)
    for part, state, top, (first, last) in zip(parts, states[1:], tops[1:].tolist(), ranges[1:], strict=True):
        if time.monotonic() > deadline:
            raise OutOfTime
        N = steps[part]
        values = layer.extended(first - N, last + N, h)
        # An ε that is rounded down to 0 is not played.
        values = step(values, N, h) if N else values
        layer = Layer(first, values, top, band.chernoff(state), band.order, upper)
    return ValueFunction(layer, h)


def _growing(parts: Sequence[int], kinds: int) -> list[State]:
    """States from none left on, one more of each part in turn."""
    state = [0] * kinds
    states = [tuple(state)]
    for part in parts:
        state[part] += 1
        states.append(tuple(state))
    return states


def _nothing_left(first: int, last: int, h: float, band: Band, *, upper: bool, reach: int) -> Layer:
    """V of the empty multiset, [1 - e^x]_+, rounded outward."""
    x = np.arange(first - reach, last + reach + 1) * h
    exact = np.maximum(-np.expm1(x), 0.0)
    values = exact * (1 + 8 * ROUNDOFF) + FLOOR if upper else exact * (1 - 8 * ROUNDOFF)
    return Layer(first - reach, values, 0, band.chernoff((0,) * len(band.counts)), band.order, upper)
