"""One step of the recursion for bounded range, on a grid: chords from above, chords between nodes from below.

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
Proofs and the bound on rounding errors: docs/setwise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dptopk.accounting.curves import Floats

__all__ = ["ROUNDOFF", "lower_step", "step_slack", "upper_step"]

ROUNDOFF = 2.0**-53
_CHUNK = 256  # nodes handled at a time where all cells are looked at


def tolerance(h: float) -> float:
    """Violation, relative to H_{i+N}, that is allowed where monotonicity confines the search: slopes are rough."""
    return 2.0**-44 + 8 * ROUNDOFF / h


def step_slack(N: int, h: float) -> float:
    """Relative error bound of one step in floating point (docs/setwise.md, "Rounding")."""
    return 16 * ROUNDOFF * (4 + N * h) * (1 + N / -math.expm1(-N * h)) + 2 * tolerance(h)


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
        allowed = far * tolerance(h)
        needed = geometry.ratio**2 * S - allowed  # R ω must reach this for every ω beyond the window
        enough = S + allowed  # and R ω must not exceed this for any ω before it
        inner = slice(edge, len(R) - edge)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            largest = np.fmax.reduce(np.where(needed[inner] > 0, needed[inner] / np.maximum(R[inner], 0.0), 0.0))
            smallest = np.fmin.reduce(np.where(R[inner] > 0, enough[inner] / R[inner], np.inf))
        negative = (enough < 0) | (R < -allowed)
        if negative[inner].any() or not smallest > 0:
            return everything
        high = min(N, max(1, math.ceil(min(math.log(max(largest, 1.0)) / h, N)) + 1))
        low = max(1, min(high, math.floor(max(math.log(min(smallest, 1e300)) / h, 0)) - 1))
        beyond, before = math.exp((high + 1) * h), math.exp((low - 1) * h)
        unsafe = []
        for part in (slice(0, edge), slice(len(R) - edge, None)):
            wrong = negative[part]
            if high < N:
                wrong = wrong | (needed[part] > R[part] * beyond)
            if low > 1:
                wrong = wrong | (enough[part] < R[part] * before)
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
