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
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from dptopk.accounting.curves import ROUNDOFF, Floats
from dptopk.accounting.setwise import guesses

__all__ = ["lower_step", "step_slack", "upper_step"]

_CHUNK = 1024  # nodes handled at a time where all cells are looked at


def tolerance(h: float) -> float:
    """Violation, relative to H_{i+N}, that is allowed where monotonicity confines the search: slopes are rough."""
    return 2.0**-44 + 8 * ROUNDOFF / h


def step_slack(N: int, h: float) -> float:
    """Relative error bound of one step in floating point (docs/setwise.md, "Rounding")."""
    return 108 * ROUNDOFF * (4 + N * h) * (1 + N / -math.expm1(-N * h)) + 2 * tolerance(h)


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
        values: shape (..., n + 2N), upper bounds on a convex decreasing H, or on several, at consecutive nodes.
        steps: N, with ε = N h.
        h: the grid step.

    Returns:
        Shape (..., n).
    """
    N, n = steps, values.shape[-1] - 2 * steps
    geometry = _geometry(N, h, 1)
    slopes = np.diff(values)
    slopes *= 1 / math.expm1(h)
    intercepts = values[..., :-1] - slopes
    near, far = values[..., : n + N - 1], values[..., N:-1]
    R = intercepts[..., : n + N - 1] - intercepts[..., N:]
    S = slopes[..., N:] - geometry.E * slopes[..., : n + N - 1]
    out = values[..., N : N + n] * geometry.slack  # t = 0 and t = ε
    chunk = max(_CHUNK * n // out.size, 1)
    for segment in _segments(R, S, far, geometry):
        if segment.smooth:
            _raise_in_window(out, (near, far, R, S), segment, geometry)
            continue
        for begin in range(segment.begin, segment.end, chunk):
            end = min(begin + chunk, segment.end)
            bundle = np.stack([x[..., begin : end + N - 1] for x in (near, far, R, S)])
            np.maximum(out[..., begin:end], _best_of_all(bundle, geometry), out=out[..., begin:end])
    return out


def _raise_in_window(out: Floats, cells: tuple[Floats, ...], segment: _Segment, geometry: _Geometry) -> None:
    """Raise ``out`` to the largest chord whose first end is in a cell of the segment's window."""
    N, length = geometry.N, segment.end - segment.begin
    near, far, R, S = (x[..., segment.begin : segment.end + N - 1] for x in cells)
    root_R, root_S = np.sqrt(np.maximum(R, 0.0)), np.sqrt(np.maximum(S, 0.0))
    highest = out[..., segment.begin : segment.end]
    worth, part = np.empty(highest.shape), np.empty(highest.shape)
    for offset in range(segment.low, segment.high + 1):
        at = (..., slice(N - offset, N - offset + length))
        np.multiply(root_R[at], math.sqrt(geometry.omega[offset]), out=worth)
        np.subtract(worth, root_S[at], out=worth)
        np.multiply(worth, worth, out=worth)
        np.multiply(worth, geometry.scale, out=worth)
        np.multiply(near[at], geometry.near[offset], out=part)
        np.add(worth, part, out=worth)
        np.multiply(far[at], geometry.far[offset], out=part)
        np.add(worth, part, out=worth)
        np.maximum(highest, worth, out=highest)


def _best_of_all(cells: Floats, geometry: _Geometry) -> Floats:
    """The largest chord with its first end in one of N cells, for nodes just above the N-th, (N+1)-th, ... cell.

    Here r is kept in [1, g]: where the values are not smooth the formula for the middle would be far too large.
    """
    near, far, R, S = sliding_window_view(cells, geometry.N, axis=-1)
    omega_R = geometry.omega[:0:-1] * R
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        r = np.sqrt(omega_R / S)
    r = np.fmin(np.fmax(r, 1.0), geometry.ratio)
    gain = np.maximum((r - 1) * (omega_R / r - S), (geometry.ratio - 1) * (omega_R / geometry.ratio - S))
    worth = geometry.scale * np.maximum(gain, 0.0)
    worth += geometry.near[:0:-1] * near
    worth += geometry.far[:0:-1] * far
    best: Floats = worth.max(axis=-1)
    return best


@dataclass(frozen=True, slots=True)
class _Segment:
    """Nodes begin..end-1, for which offsets low..high suffice; not ``smooth``: all cells, r kept in [1, g]."""

    begin: int
    end: int
    low: int
    high: int
    smooth: bool


class _Monotony:
    """Where the worth of a cell rises or falls towards a window; cells 0..n+N-2, node o looks at the cells o..o+N-1."""

    def __init__(self, R: Floats, S: Floats, far: Floats, geometry: _Geometry) -> None:
        self.geometry = geometry
        allowed = far * tolerance(geometry.h)
        positive = np.maximum(R, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # R ω must be at least g² S for every ω beyond the window, and at most S for any before it.
            self.beyond = (geometry.ratio**2 * S - allowed) / positive
            self.before = (S + allowed) / positive
        rough = (S < -allowed) | (R < -allowed)
        self.beyond[rough] = np.inf
        self.before[rough] = -np.inf
        if R.ndim > 1:  # of several functions, what holds for all
            self.beyond, self.before = np.fmax.reduce(self.beyond, axis=0), np.fmin.reduce(self.before, axis=0)

    def window(self, begin: int, end: int) -> _Segment:
        """The window in which monotony is proven for the nodes begin..end-1."""
        N, h = self.geometry.N, self.geometry.h
        cells = slice(begin, end + N - 1)
        most, least = float(np.fmax.reduce(self.beyond[cells])), float(np.fmin.reduce(self.before[cells]))
        if most == math.inf or not least > 0:
            return _Segment(begin, end, 1, N, smooth=False)
        high = math.ceil(math.log(max(most, 1.0)) / h + 1e-6) - 1  # most <= e^{(high + 1) h}
        low = math.floor(math.log(min(max(least, 1.0), 1e300)) / h - 1e-6) + 1  # least >= e^{(low - 1) h}
        high = min(max(high, 1), N)
        return _Segment(begin, end, max(1, min(low, high)), high, smooth=True)

    def windows(self, begin: int, end: int) -> list[_Segment]:
        """The nodes begin..end-1 in one window, or halved again and again where their common window is wide."""
        found, N = self.window(begin, end), self.geometry.N
        if end - begin <= 4 * N or (found.smooth and found.high - found.low <= max(guesses.WIDE, N // 4)):
            return [found]
        middle = (begin + end) // 2
        return self.windows(begin, middle) + self.windows(middle, end)

    def fails(self, cells: slice, window: _Segment) -> NDArray[np.int64]:
        """Places within ``cells`` where monotony is not proven outside the window."""
        h = self.geometry.h
        wrong = self.beyond[cells] == np.inf
        if window.high < self.geometry.N:
            wrong |= self.beyond[cells] > math.exp((window.high + 1) * h)
        if window.low > 1:
            wrong |= self.before[cells] < math.exp((window.low - 1) * h)
        return np.flatnonzero(wrong)


def _segments(R: Floats, S: Floats, far: Floats, geometry: _Geometry) -> list[_Segment]:
    """The nodes in up to four windows in the middle; what fails near the ends looks at all cells."""
    N = geometry.N
    n, edge = R.shape[-1] - N + 1, 3 * N // 2
    if n <= 2 * edge + N:
        return [_Segment(0, n, 1, N, smooth=False)]
    monotony = _Monotony(R, S, far, geometry)
    cuts = np.linspace(edge, n - edge, max(1, min(4, n // (8 * N))) + 1).astype(int).tolist()
    middle = [segment for begin, end in pairwise(cuts) for segment in monotony.windows(begin, end)]
    left = monotony.fails(slice(0, edge), middle[0])
    right = monotony.fails(slice(n - edge + N - 1, n + N - 1), middle[-1])
    first = int(left[-1]) + 1 if len(left) else 0
    last = n - edge + int(right[0]) if len(right) else n
    middle[0] = replace(middle[0], begin=first)
    middle[-1] = replace(middle[-1], end=last)
    ends = (_Segment(0, first, 1, N, smooth=False), _Segment(last, n, 1, N, smooth=False))
    return [segment for segment in (*middle, *ends) if segment.end > segment.begin]


def lower_step(values: Floats, steps: int, h: float) -> Floats:
    """Lower bounds on step(H) at the nodes: the best of some chords that end in nodes; see ``upper_step``.

    Which chords are tried is a guess from a sample of the nodes: each is a strategy, so any choice is sound.
    """
    N, n = steps, values.shape[-1] - 2 * steps
    geometry = _geometry(N, h, -1)
    shape = (*values.shape[:-1], n)
    out, chord, part = np.zeros(shape), np.empty(shape), np.empty(shape)
    for begin, end, first, last in _guesses(values, n, geometry):
        block = (..., slice(begin, end))
        for offset in range(first, last + 1):
            near = values[..., begin + N - offset : end + N - offset]
            far = values[..., begin + 2 * N - offset : end + 2 * N - offset]
            np.multiply(near, geometry.near[offset], out=chord[block])
            np.multiply(far, geometry.far[offset], out=part[block])
            np.add(chord[block], part[block], out=chord[block])
            np.maximum(out[block], chord[block], out=out[block])
    return out


def _guesses(values: Floats, n: int, geometry: _Geometry) -> list[tuple[int, int, int, int]]:
    """Blocks of nodes (begin, end), and offsets (first, last) among which their best chords seem to be."""
    N = geometry.N
    if n <= 8 * N:
        return [(0, n, 0, N)]
    blocks, each = min(guesses.BLOCKS, n // (4 * N)), guesses.SAMPLED
    picks = np.linspace(0, n - 1, blocks * each + 1).astype(int)
    nodes = picks[:, None] + N - np.arange(N + 1)
    best = (geometry.near * values[..., nodes] + geometry.far * values[..., nodes + N]).argmax(axis=-1)
    cuts = [*picks[:-1:each].tolist(), n]
    seen = [best[..., i * each : (i + 1) * each + 1] for i in range(blocks)]
    return [
        (begin, end, max(int(near.min()) - guesses.SPARE, 0), min(int(near.max()) + guesses.SPARE, N))
        for (begin, end), near in zip(pairwise(cuts), seen, strict=True)
    ]
