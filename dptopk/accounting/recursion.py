"""The certified recursion for bounded range: V_B(x), the largest δ at ε = x of an adaptive game, between two bounds.

Write u = e^x, H(u) = V(ln u), E = e^ε. With y = u e^{-t} a BR step is

    step(H)(u) = sup over y in [u/E, u] of the chord of H between y and E y, evaluated at u:

"the largest chord of ratio e^ε over u". H is convex and decreasing with 1 - u <= H <= 1 and stays so. On the nodes
x_j = j h, with ε = N h:

- lower bound: only chords that end in nodes; each is a strategy that somebody can play.
- upper bound: H lies below its chords between neighbouring nodes. For y = y_i r, 1 <= r <= g = e^h, in one cell, with
  H = a_i + B_i r there and H = a_{i+N} + B_{i+N} r in the cell of E y, the chord at u = ω y_i is worth

      [(E - ω) H_i + (ω - 1) H_{i+N} + S (1 - r) + R ω (1 - 1/r)] / (E - 1),   R = a_i - a_{i+N},  S = B_{i+N} - E B_i,

  at most its value with (√(ω R) - √S)² in place of the last two terms, reached at r = √(ω R / S). Outside its
  cell that formula still is a chord of lines below H, so no clipping is needed.

Only cells near the maximising t are looked at. That is proven in every step, for every node, by monotonicity: where
R ω >= g² S in all cells of larger t, and S >= R ω in all cells of smaller t, the worth rises towards the window; the
cells join continuously, so nothing outside beats the window's edge. Near the ends of the array all cells are looked at.

Only x near the line from the question (all costs left, x = ε_g) to the origin (none left, x = 0) matter, a few
standard deviations of the tilted walk wide. Outside this band V is replaced by cruder bounds: above, by the chord to
H(0) = 1, by Chernoff's bound, or by the last node's value; below, by 1 - u, the first node's value, or 0. Proofs and
the bound on rounding errors: docs/setwise.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dptopk.accounting.curves import Floats
from dptopk.accounting.lattice import log_peak
from dptopk.accounting.log_mgf import LOG_MGF_ERROR, bounded_range_log_mgf

__all__ = [
    "Band",
    "OutOfTime",
    "ValueFunction",
    "common_grid",
    "first_steps",
    "lower_step",
    "solve",
    "solve_in_order",
    "upper_step",
]

ROUNDOFF = 2.0**-53
# Added to V before the first step (a constant passes through every step): no positive value underflows.
FLOOR = 1e-290
# Allowed violation, relative to H_{i+N}, of the monotonicity that confines the search; part of ``step_slack``.
TOLERANCE = 2.0**-44
SPREAD = 5.2  # half-width of the band in standard deviations
_CHUNK = 256  # nodes handled at a time where all cells are looked at
State = tuple[int, ...]
Nodes = NDArray[Any]


class OutOfTime(Exception):
    """The deadline passed before the recursion was done."""


def step_slack(N: int, h: float) -> float:
    """Relative error bound of one step in floating point (docs/setwise.md, "Rounding")."""
    return 32 * ROUNDOFF * (4 + N * h + N / -math.expm1(-N * h)) + 2 * TOLERANCE


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


class _Geometry:
    """The constants of a step: for offset n, nodes that lie t = n h above a cell's first node.

    ``sign`` is 1 for weights moved up by the rounding of one step, -1 for weights moved down.
    """

    def __init__(self, N: int, h: float, sign: int) -> None:
        self.N, self.h = N, h
        self.E, self.ratio = math.exp(N * h), math.exp(h)
        self.slack = 1 + sign * step_slack(N, h)
        self.scale = self.slack / math.expm1(N * h)
        offsets = np.arange(N + 1)
        self.omega = np.exp(offsets * h)
        self.near = self.omega * np.expm1((N - offsets) * h) * self.scale  # (E - ω)/(E - 1)
        self.far = np.expm1(offsets * h) * self.scale  # (ω - 1)/(E - 1)


_geometry = lru_cache(maxsize=64)(_Geometry)


def upper_step(values: Floats, steps: int, h: float) -> Floats:
    """Upper bounds on step(H) at the nodes, from upper bounds on H at the nodes up to N on either side.

    Args:
        values: shape (n + 2N,), upper bounds on a convex decreasing H at consecutive nodes.
        steps: N, with ε = N h.
        h: the grid step.

    Returns:
        Shape (n,).
    """
    N, n = steps, len(values) - 2 * steps
    geometry = _geometry(N, h, 1)
    slopes = np.diff(values)
    slopes *= 1 / math.expm1(h)
    intercepts = values[:-1] - slopes
    near, far = values[: n + N - 1], values[N:-1]
    R = intercepts[: n + N - 1] - intercepts[N:]
    S = slopes[N:] - geometry.E * slopes[: n + N - 1]
    window = _Window.of(R, S, far, geometry)
    out = values[N : N + n] * geometry.slack  # t = 0 and t = ε
    first = min(window.unsafe_left, n)
    last = max(n - window.unsafe_right, first)
    for begin in (*range(0, first, _CHUNK), *range(last, n, _CHUNK)):
        end = min(begin + _CHUNK, first if begin < first else n)
        bundle = np.stack([x[begin : end + N - 1] for x in (near, far, R, S)])
        np.maximum(out[begin:end], _best_of_all(bundle, geometry), out=out[begin:end])
    if last > first:
        middle = out[first:last]
        root_R, root_S = (np.sqrt(np.maximum(x[first : last + N], 0.0)) for x in (R, S))
        worth, part = np.empty(last - first), np.empty(last - first)
        for offset in range(window.low, window.high + 1):
            cells = slice(N - offset, last - first + N - offset)
            np.multiply(root_R[cells], math.sqrt(geometry.omega[offset]), out=worth)
            np.subtract(worth, root_S[cells], out=worth)
            np.multiply(worth, worth, out=worth)
            np.multiply(worth, geometry.scale, out=worth)
            np.multiply(near[first:][cells], geometry.near[offset], out=part)
            np.add(worth, part, out=worth)
            np.multiply(far[first:][cells], geometry.far[offset], out=part)
            np.add(worth, part, out=worth)
            np.maximum(middle, worth, out=middle)
    return out


def _best_of_all(cells: Floats, geometry: _Geometry) -> Floats:
    """The largest chord with its first end in one of N cells, for nodes just above the N-th, (N+1)-th, ... cell.

    Here r is kept in [1, g]: where the values are not smooth the formula for the middle would be far too large.
    """
    near, far, R, S = sliding_window_view(cells, geometry.N, axis=1)
    omega_R = geometry.omega[:0:-1] * R
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.sqrt(omega_R / S)
    r = np.fmin(np.fmax(r, 1.0), geometry.ratio)
    gain = np.maximum((r - 1) * (omega_R / r - S), (geometry.ratio - 1) * (omega_R / geometry.ratio - S))
    worth = geometry.scale * np.maximum(gain, 0.0)
    worth += geometry.near[:0:-1] * near
    worth += geometry.far[:0:-1] * far
    best: Floats = worth.max(axis=1)
    return best


@dataclass(frozen=True, slots=True)
class _Window:
    """Offsets low..high suffice for all nodes but ``unsafe_left`` and ``unsafe_right`` many at the two ends."""

    low: int
    high: int
    unsafe_left: int
    unsafe_right: int

    @classmethod
    def of(cls, R: Floats, S: Floats, far: Floats, geometry: _Geometry) -> _Window:
        """The window in which monotonicity is proven; cells 0..n+N-2, node o looks at the cells o..o+N-1."""
        N, h, edge = geometry.N, geometry.h, 2 * geometry.N
        everything = cls(1, N, len(R), 0)
        if len(R) <= 3 * edge:
            return everything
        tolerance = far * TOLERANCE
        needed = geometry.ratio**2 * S - tolerance  # R ω must reach this for every ω beyond the window
        enough = S + tolerance  # and R ω must not exceed this for any ω before it
        inner = slice(edge, len(R) - edge)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            largest = np.fmax.reduce(np.where(needed[inner] > 0, needed[inner] / np.maximum(R[inner], 0.0), 0.0))
            smallest = np.fmin.reduce(np.where(R[inner] > 0, enough[inner] / R[inner], np.inf))
        if (enough[inner] < 0).any() or not smallest > 0:
            return everything
        high = min(N, max(1, math.ceil(min(math.log(max(largest, 1.0)) / h, N)) + 1))
        low = max(1, min(high, math.floor(max(math.log(min(smallest, 1e300)) / h, 0)) - 1))
        beyond, before = math.exp((high + 1) * h), math.exp((low - 1) * h)
        unsafe = []
        for part in (slice(0, edge), slice(len(R) - edge, None)):
            wrong = (needed[part] > R[part] * beyond) if high < N else np.zeros(edge, bool)
            if low > 1:
                wrong |= enough[part] < R[part] * before
            unsafe.append(np.flatnonzero(wrong))
        left = int(unsafe[0][-1]) + 1 if len(unsafe[0]) else 0
        right = edge - int(unsafe[1][0]) if len(unsafe[1]) else 0
        return cls(low, high, left, right)


def lower_step(values: Floats, steps: int, h: float) -> Floats:
    """Lower bounds on step(H) at the nodes: the best of some chords that end in nodes; see ``upper_step``.

    Which chords are tried is a guess from a sample of the nodes: each is a strategy, so any choice is sound.
    """
    N, n = steps, len(values) - 2 * steps
    geometry = _geometry(N, h, -1)
    first, last = 0, N
    if n > 8 * N:
        picks = np.linspace(0, n - 1, 40).astype(int)
        nodes = picks[:, None] + N - np.arange(N + 1)
        best = (geometry.near * values[nodes] + geometry.far * values[nodes + N]).argmax(axis=1)
        first, last = max(int(best.min()) - 2, 0), min(int(best.max()) + 2, N)
    out = np.zeros(n)
    chord, part = np.empty(n), np.empty(n)
    for offset in range(first, last + 1):
        np.multiply(values[N - offset : N - offset + n], geometry.near[offset], out=chord)
        np.multiply(values[2 * N - offset : 2 * N - offset + n], geometry.far[offset], out=part)
        np.add(chord, part, out=chord)
        np.maximum(out, chord, out=out)
    return out


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
            best = _nothing_left(first, last, h, upper=upper, reach=max(steps))
            first, last = first - max(steps), last + max(steps)
        top = sum(n * N for n, N in zip(state, steps, strict=True))
        layers[state] = Layer(first, best, top, band.chernoff(state), band.order, upper)
        layers.pop((state[0] - 2, *state[1:]), None)
    return ValueFunction(layers[band.counts], h)


def _nothing_left(first: int, last: int, h: float, *, upper: bool, reach: int) -> Floats:
    """V of the empty multiset, [1 - e^x]_+, rounded outward."""
    x = np.arange(first - reach, last + reach + 1) * h
    exact = np.maximum(-np.expm1(x), 0.0)
    bounds: Floats = exact * (1 + 8 * ROUNDOFF) + FLOOR if upper else exact * (1 - 8 * ROUNDOFF)
    return bounds


def solve_in_order(band: Band, steps: tuple[int, ...], h: float, *, deadline: float) -> ValueFunction:
    """A lower bound on V of the full multiset: the value of playing the smallest ε first, the largest last.

    That order is a strategy; it is the best one, or close to it.
    """
    layer: Layer | None = None
    states = list(_largest_last(band.counts, band.epsilons))
    for state, (first, last) in zip(states, band.ranges(np.array(states), h).tolist(), strict=True):
        if time.monotonic() > deadline:
            raise OutOfTime
        if layer is None:
            reach = max(steps)
            layer = Layer(first - reach, _nothing_left(first, last, h, upper=False, reach=reach), 0, 0.0, 1.0, False)
            before = state
            continue
        N = next(N for N, now, then in zip(steps, state, before, strict=True) if now > then)
        values = layer.extended(first - N, last + N, h)
        # An ε that is rounded down to 0 is not played.
        layer = Layer(first, lower_step(values, N, h) if N else values, 0, 0.0, 1.0, False)
        before = state
    if layer is None:
        raise ValueError("no state")
    return ValueFunction(layer, h)


def _largest_last(counts: State, epsilons: tuple[float, ...]) -> Iterator[State]:
    """States from none left to all left when the largest ε is played last, hence counted first."""
    state = [0] * len(counts)
    yield tuple(state)
    for part in sorted(range(len(counts)), key=lambda part: -epsilons[part]):
        for _ in range(counts[part]):
            state[part] += 1
            yield tuple(state)


def common_grid(epsilons: tuple[float, ...], counts: State, steps: int, *, upper: bool) -> tuple[State, float]:
    """A grid step for several ε's, and how many steps each takes: N h >= ε (upper) or N h <= ε (lower), exactly.

    Among the grids with ``steps`` to ``2 steps`` for the largest ε, the one that changes Σ ε² least.
    """
    largest = max(epsilons)
    if len(epsilons) == 1:
        return (steps,), _exact_step(epsilons, (steps,), largest / steps, upper=upper)
    best = min(range(steps, 2 * steps + 1), key=lambda n: _change(epsilons, counts, n, upper=upper))
    each = tuple(_rounded(epsilon / largest * best, upper=upper) for epsilon in epsilons)
    return each, _exact_step(epsilons, each, largest / best, upper=upper)


def first_steps(epsilons: tuple[float, ...], counts: State, steps: int, most: int) -> int:
    """``steps``, doubled until rounding the ε's to the grid changes Σ ε² by at most a fiftieth."""
    total = math.fsum(k * e * e for e, k in zip(epsilons, counts, strict=True))
    while (
        steps < most and min(_change(epsilons, counts, n, upper=True) for n in range(steps, 2 * steps + 1)) > total / 50
    ):
        steps *= 2
    return min(steps, most)


def _rounded(multiple: float, *, upper: bool) -> int:
    return math.ceil(multiple - 1e-9) if upper else math.floor(multiple + 1e-9)


def _change(epsilons: tuple[float, ...], counts: State, n: int, *, upper: bool) -> float:
    """By how much a grid with n steps for the largest ε changes the variance Σ ε², interpolation included, about."""
    step = max(epsilons) / n
    moved = (step * _rounded(epsilon / step, upper=upper) for epsilon in epsilons)
    return math.fsum(k * (abs(m * m - e * e) + step**2 / 4) for m, e, k in zip(moved, epsilons, counts, strict=True))


def _exact_step(epsilons: tuple[float, ...], steps: State, h: float, *, upper: bool) -> float:
    """The float closest to h with N h >= ε (upper) or N h <= ε (lower) for every ε and its N, exactly."""
    for epsilon, N in zip(epsilons, steps, strict=True):
        while upper and Fraction(h) * N < Fraction(epsilon):
            h = math.nextafter(h, math.inf)
        while not upper and Fraction(h) * N > Fraction(epsilon):
            h = math.nextafter(h, 0.0)
    return h
