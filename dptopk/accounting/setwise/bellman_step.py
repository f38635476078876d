"""One step of the recursion for bounded range, on a grid: chords from above, chords between nodes
from below.

Write u = e^x, H(u) = V(ln u), E = e^ε. With y = u e^{-t} a BR step is

    step(H)(u) = sup over y in [u/E, u] of the chord of H between y and E y, evaluated at u:

"the largest chord of ratio e^ε over u". H is convex and decreasing with 1 - u <= H <= 1 and stays
so. On the nodes x_j = j h, with ε = N h, a *cell* is the interval between two neighbouring nodes. A
chord has a near end y in a cell i, to the left, and a far end E y in the cell i + N; its *offset*
over a node is the number of places from the first node of the near cell to that node, 0 to N.

- lower bound: only chords that end in nodes; each is a strategy that somebody can play.
- upper bound: H lies below its chords between neighbouring nodes. For y = y_i r, 1 <= r <= g = e^h,
  in one cell, with H = a_i + B_i r there and H = a_{i+N} + B_{i+N} r in the cell of E y, the chord
  at u = ω y_i is worth

      [(E - ω) H_i + (ω - 1) H_{i+N} + S (1 - r) + R ω (1 - 1/r)] / (E - 1),   R = a_i - a_{i+N},  S
      = B_{i+N} - E B_i,

  at most its value with (√(ω R) - √S)² instead of the last two terms, reached at r = √(ω R / S).
  Outside its cell that formula still is a chord of lines below H, so no clipping is needed.

For each pair of cells only the two or three nodes u are looked at for which r lies in the cell:
elsewhere the worth rises or falls throughout the cell, towards a neighbour. Where a cell in which
it rises meets one in which it falls, which happens if the values are not convex, more nodes are
looked at. Proofs and the bound on rounding errors: docs/notes/setwise.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.setwise import tuning

# The two parts of τ: some 500 units of roundoff, above the rounding of sums of values; and, over h,
# units of roundoff, above the 25 that an intercept or a slope may be off (Lemma 5 of the notes).
LEAST_NEGLIGIBLE_SHARE = 2.0**-44
ROUNDINGS_OF_SLOPES = 32


def negligible_share(h: float) -> float:
    """Return τ: R and S of a cell count as 0 where they are at most τ H_{i+N}.

    Both are differences that are made of the slopes of chords, whose rounding error is some units
    of roundoff over h. Any τ is sound, because ``step_slack`` pays for it
    (docs/notes/setwise.md, "Rounding"); this one is above that error.
    """
    return LEAST_NEGLIGIBLE_SHARE + ROUNDINGS_OF_SLOPES * ROUNDOFF / h


def step_slack(N: int, h: float, tau: float) -> float:
    """Return a bound on the relative error of one step in floating point; the factors 190, 3 and 2
    are those of docs/notes/setwise.md, "Rounding".

    Args:
        N: the number of grid steps to ε.
        h: the grid step.
        tau: τ, the share below which R and S count as 0 (``negligible_share``).
    """
    amplified = 1 + N / -math.expm1(-N * h)
    rounding = 190 * ROUNDOFF * (4 + N * h) * amplified
    neglected = (3 + 2 * N * h) * tau
    return rounding + neglected


class _Geometry:
    """The constants of one step, for each offset n: a node that lies t = n h above a cell's first
    node.

    Args:
        N: the number of grid steps to ε.
        h: the grid step.
        sign: 1 for weights moved up by the rounding of one step, for upper bounds, -1 for weights
            moved down, for lower ones.

    Attributes:
        E: e^ε, ε = N h.
        negligible_share: τ, the share below which R and S count as 0.
        slack: the factor by which weights are moved, 1 ± ``step_slack``.
        scale: slack/(E - 1).
        root_omega: √ω at each offset, ω = e^t, shape (N + 1,).
        near_weights: slack (E - ω)/(E - 1), the weights of a chord's end in the left cell.
        far_weights: slack (ω - 1)/(E - 1), those of its end in the right cell.
    """

    def __init__(self, N: int, h: float, sign: int) -> None:
        """Compute the constants of the step, and the weights at each offset."""
        self.N = N
        self.h = h
        self.E = math.exp(N * h)
        self.negligible_share = negligible_share(h)
        self.slack = 1 + sign * step_slack(N, h, self.negligible_share)
        self.scale = self.slack / math.expm1(N * h)
        offsets = np.arange(N + 1)
        t = offsets * h
        omega = np.exp(t)
        self.root_omega = np.sqrt(omega)
        rest_of_epsilon = (N - offsets) * h
        self.near_weights = omega * np.expm1(rest_of_epsilon) * self.scale  # (E - ω)/(E - 1)
        self.far_weights = np.expm1(t) * self.scale  # (ω - 1)/(E - 1)


_geometry = lru_cache(maxsize=64)(_Geometry)  # the constants of a step, computed once


def upper_step(values: Floats, steps: int, h: float) -> Floats:
    """Return upper bounds on step(H) at the nodes, from upper bounds on H at these and N more nodes
    on either side.

    Args:
        values: shape (..., n + 2N), upper bounds on a convex decreasing H, or on several, at
            consecutive nodes.
        steps: N, with ε = N h.
        h: the grid step.

    Returns:
        Shape (..., n).
    """
    N = steps
    n = values.shape[-1] - 2 * N
    rows = values.reshape(-1, values.shape[-1])
    cells = _Cells(rows, _geometry(N, h, 1))
    # Cell i and offset k belong to the node at place i + k - 1; the outermost places are no nodes
    # of the answer.
    reached = np.zeros((len(rows), n + 2 * N - 2))
    answer = reached[:, N - 1 : N - 1 + n]
    # The chords that begin or end at u itself, t = 0 or ε, are worth H(u).
    answer[:] = rows[:, N : N + n] * cells.geometry.slack
    _raise_to_best_chords(reached, cells)
    return answer.reshape(*values.shape[:-1], n)


def _raise_to_best_chords(reached: Floats, cells: _Cells) -> None:
    """Raise ``reached``, in place, to the values of the chords whose ends lie inside the cells.

    Of each cell only the two offsets are tried at which its best chord ends inside it, and what
    ``_Cells.out_of_order`` adds (module docstring).

    Args:
        reached: the best value so far at each node, a row for each state; as long as the row of H
            without its first and last node.
        cells: the cells of H.
    """
    N = cells.geometry.N
    length = reached.shape[1]
    row_starts = np.arange(len(reached))[:, None] * length
    in_a_row = np.arange(-1, length - N)
    # Where offset 0 of each cell is in the flattened ``reached``.
    places = (in_a_row + row_starts).reshape(-1)
    highest = reached.reshape(-1)
    # ``first`` of all cells in one row, moved into [0, N]; N where it is NaN.
    moved_first = np.fmax(np.fmin(cells.first, N), 0.0)
    first = moved_first.reshape(-1).astype(np.intp)
    for offsets in (np.maximum(first, 1), np.minimum(first + 1, N)):
        np.maximum.at(highest, places + offsets, cells.best(offsets))
    # The outermost places are no nodes of the answer.
    inner = slice(N - 1, length - N + 1)
    more_cells, offsets = cells.out_of_order(np.minimum.accumulate(reached[:, inner], axis=1))
    if len(more_cells):
        chords = cells.at_first_points(more_cells, offsets)
        np.maximum.at(highest, places[more_cells] + offsets, chords)


class _Cells:
    """The chords with their near end in a cell i and their far end in the cell i + N, for all i,
    and their values at the node with the offset k, k places to the right of node i.

    Args:
        rows: upper bounds on H at consecutive nodes, a row for each state.
        geometry: the constants of the step.

    Attributes:
        geometry: the constants of the step.
        first: for each i, the smallest k for which the best of the chords does not end in the first
            points of its cells; for k above ``first`` + 1 it ends in the last ones. NaN where all
            are worth the same.
    """

    def __init__(self, rows: Floats, geometry: _Geometry) -> None:
        """Compute R and S of every cell, and from them ``first``."""
        self.geometry = geometry
        N = geometry.N
        count = rows.shape[-1] - N - 1
        slopes = np.diff(rows)
        slopes *= 1 / math.expm1(geometry.h)
        intercepts = rows[:, :-1] - slopes
        # R and S of the module docstring, for each cell i.
        R = intercepts[:, :count] - intercepts[:, N:]
        S = slopes[:, N:] - self.geometry.E * slopes[:, :count]
        self._near_values = rows[:, :count].reshape(-1)
        far_values = rows[:, N:-1]
        self._far_values = far_values.reshape(-1)
        noise = far_values * self.geometry.negligible_share
        # Hollow cells: neither is positive, as both must be where the values are convex, so that
        # the best chord may end in the first points or in the last.
        neither_positive = np.maximum(R, S) <= noise
        one_negative = np.minimum(R, S) < -noise
        self._hollow = np.flatnonzero(neither_positive & one_negative)
        # The best end w = sqrt(ωR/S), ω = e^{kh}, lies beyond the first point, w = 1, from k =
        # ln(S/R)/h on.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(S > noise, S, 0.0) / np.where(R > noise, R, 0.0)
            self.first = np.ceil(np.log(ratio) / geometry.h)
        best_inside = (self.first >= 0) & (self.first <= N)
        self._root_of_R = np.sqrt(np.where(best_inside, R, 0.0)).reshape(-1)
        self._root_of_S = np.sqrt(np.where(best_inside, S, 0.0)).reshape(-1)

    def best(self, offsets: NDArray[np.intp]) -> Floats:
        """Return the value of the best chord of each cell whose ends lie inside the cell, at the
        node with the offset given for the cell; one that ends in its first points where none does.
        """
        # A chord with its end at w is worth a constant - (S w + ωR/w)/(E - 1): the gain over w = 1
        # is this square.
        root = np.take(self.geometry.root_omega, offsets) * self._root_of_R - self._root_of_S
        gain = root * root * self.geometry.scale
        return self._chord_values(gain, offsets, self._near_values, self._far_values)

    def at_first_points(self, cells: NDArray[np.intp], offsets: NDArray[np.intp]) -> Floats:
        """Return the values of the chords that end in the first points of the cells, at the nodes
        of their offsets.
        """
        gain = np.zeros(len(cells))
        return self._chord_values(gain, offsets, self._near_values[cells], self._far_values[cells])

    def _chord_values(
        self, gain: Floats, offsets: NDArray[np.intp], near_values: Floats, far_values: Floats
    ) -> Floats:
        """Return the values of chords: the weighted values at the cells' first points, plus a gain.
        The array ``gain`` is overwritten.

        Args:
            gain: by how much each chord is above the one that ends in the cells' first points.
            offsets: how many places each node is above the first point of the chord's near cell.
            near_values: bounds on H at the first points of the near cells, those to the left.
            far_values: bounds on H at the first points of the far cells, N places on.
        """
        gain += np.take(self.geometry.near_weights, offsets) * near_values
        gain += np.take(self.geometry.far_weights, offsets) * far_values
        return gain

    def out_of_order(self, reached: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the chords that are looked at besides those of ``best``, as two arrays: the cells
        in whose first points they end, as places in the flattened ``first``, and the offsets of the
        nodes over which they are valued.

        They are those of cells that are out of order (``_jumps``), and of hollow cells at every
        offset; without those that can be above nothing that is reached already.

        Args:
            reached: for each node of the answer the least value reached so far at it and at the
                nodes left of it.
        """
        N = self.geometry.N
        hollow = self._hollow
        jumps = self._jumps()
        cells = np.append(jumps.cells, hollow)
        low = np.append(jumps.low, np.ones(len(hollow))).astype(np.intp)
        high = np.append(jumps.high, np.full(len(hollow), N)).astype(np.intp)
        # The offset of the last node of the answer, from each cell.
        last = reached.shape[1] - 1 + N - cells % self.first.shape[1]
        low = np.maximum(low, self._first_that_gain(cells, reached))
        return _pairs_of_cell_and_offset(cells, low, np.minimum(high, last))

    def _jumps(self) -> _Jumps:
        """Return the cells at which ``first`` jumps by more than 1 from the cell before.

        In the usual order the best chord of a cell ends in its last points where that of the next
        cell ends in its first. At a jump the worth may rise in one cell, or be constant, and fall
        in the next: the chords that end between them may be the best at the offsets of the jump.
        """
        N = self.geometry.N
        at_most = self.first[:, :-1] + 1
        in_order = self.first[:, 1:] <= at_most
        row, place = np.nonzero(~in_order)
        first_here = self.first[row, place + 1]
        # Where the cell before has no ``first`` (NaN) the jump begins at 1, and where this one has
        # none there is no jump.
        low = np.clip(np.fmax(at_most[row, place], 1.0), 1.0, N)
        high = np.clip(first_here - 1, 0.0, N)
        high[np.isnan(first_here)] = 0.0
        return _Jumps(row * self.first.shape[1] + place + 1, low, high)

    def _first_that_gain(self, cells: NDArray[np.intp], reached: Floats) -> NDArray[np.intp]:
        """Return the least offset of each cell at whose node a chord may be above what is reached
        there, or at any node left of it.

        No chord is above both of its ends, and no step of H is above 1.

        Args:
            cells: places in the flattened array ``first``.
            reached: shape (rows, nodes of the answer), falling along each row.
        """
        N = self.geometry.N
        ends = np.maximum(self._near_values[cells], self._far_values[cells])
        highest_chord = np.minimum(ends * self.geometry.slack, 1.0)
        # The cells are grouped by row, as the rows of ``reached`` are searched one by one.
        row, place = np.divmod(cells, self.first.shape[1])
        order = np.argsort(row, kind="stable")
        cuts = np.searchsorted(row[order], np.arange(len(reached) + 1))
        nodes = np.empty(len(cells), dtype=np.intp)
        for values, (begin, end) in zip(reached, pairwise(cuts.tolist()), strict=True):
            cells_of_row = order[begin:end]
            nodes[cells_of_row] = np.searchsorted(
                -values, -highest_chord[cells_of_row], side="right"
            )
        return nodes + N - place


class _Jumps(NamedTuple):
    """Cells at which ``_Cells.first`` jumps, with the offsets between its two values.

    Attributes:
        cells: places in the flattened ``first``.
        low: the first offset of each.
        high: the last offset of each; below ``low`` where there is none.
    """

    cells: NDArray[np.intp]
    low: Floats
    high: Floats


def _pairs_of_cell_and_offset(
    cells: NDArray[np.intp], low: NDArray[np.intp], high: Floats
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return each cell with each of its offsets from ``low`` to ``high``, as two arrays of equal
    length.

    Args:
        cells: places of cells.
        low: the first offset of each.
        high: the last offset of each, below ``low`` where there is none.
    """
    counts = np.maximum(high - low + 1, 0.0).astype(np.intp)
    starts = np.cumsum(counts) - counts
    offsets = np.arange(counts.sum()) - np.repeat(starts - low, counts)
    return np.repeat(cells, counts), offsets


def lower_step(values: Floats, steps: int, h: float) -> Floats:
    """Return lower bounds on step(H) at the nodes: the best of some chords that end in nodes.

    Which chords are tried is a guess from a sample of the nodes. Each chord is a strategy, so any
    choice gives a lower bound.

    Args:
        values: shape (..., n + 2N), lower bounds on H at consecutive nodes.
        steps: N, with ε = N h.
        h: the grid step.

    Returns:
        Shape (..., n).
    """
    n = values.shape[-1] - 2 * steps
    geometry = _geometry(steps, h, -1)
    best = np.zeros((*values.shape[:-1], n))
    for block in blocks_with_offsets(values, n, steps, h):
        highest = best[..., block.begin : block.end]
        nodes = block.end - block.begin
        for offset in range(block.first, block.last + 1):
            at_near = block.begin + steps - offset
            at_far = at_near + steps
            near_values = values[..., at_near : at_near + nodes]
            far_values = values[..., at_far : at_far + nodes]
            chord = (
                near_values * geometry.near_weights[offset]
                + far_values * geometry.far_weights[offset]
            )
            np.maximum(highest, chord, out=highest)
    return best


class Block(NamedTuple):
    """A run of nodes with the offsets among which their best chords seem to be.

    Attributes:
        begin: the first node, counted from the first node of the answer.
        end: the node after the last.
        first: the smallest offset that is tried.
        last: the largest.
    """

    begin: int
    end: int
    first: int
    last: int


def blocks_with_offsets(values: Floats, n: int, N: int, h: float) -> list[Block]:
    """Divide the ``n`` nodes of the answer into blocks, with the offsets that a sample of the nodes
    suggests for each: a guess.

    Args:
        values: at the nodes of the answer and N more on either side.
        n: the number of nodes of the answer.
        N: the number of grid steps to ε.
        h: the grid step.
    """
    geometry = _geometry(N, h, -1)
    # For so few nodes a sample takes about as long as all offsets.
    if n <= 8 * N:
        return [Block(0, n, 0, N)]
    # A block has at least 4 N nodes, so that its sample is a small part of its work.
    count = min(tuning.SAMPLED_BLOCKS, n // (4 * N))
    per_block = tuning.SAMPLED
    picks = np.linspace(0, n - 1, count * per_block + 1).astype(int)
    best = _best_offsets(values, picks, geometry)
    cuts = [*picks[:-1:per_block].tolist(), n]
    blocks = []
    for place, (begin, end) in enumerate(pairwise(cuts)):
        # The samples of a block, and the first one of the next.
        sampled = best[..., place * per_block : (place + 1) * per_block + 1]
        blocks.append(Block(begin, end, *_offset_range(sampled, N)))
    return blocks


def _best_offsets(values: Floats, picks: NDArray[np.intp], geometry: _Geometry) -> NDArray[np.intp]:
    """Return the offset of the best chord between nodes, for each of the nodes ``picks`` of the
    answer.

    Args:
        values: lower bounds on H at consecutive nodes, N more on either side of the answer.
        picks: nodes of the answer.
        geometry: the constants of the step.
    """
    N = geometry.N
    nodes = picks[:, None] + N - np.arange(N + 1)
    near_values = geometry.near_weights * values[..., nodes]
    far_values = geometry.far_weights * values[..., nodes + N]
    return (near_values + far_values).argmax(axis=-1)


def _offset_range(sampled: NDArray[np.intp], N: int) -> tuple[int, int]:
    """Return the first and the last offset worth trying at the nodes of a block.

    Args:
        sampled: the best offsets at samples of the block's nodes.
        N: the number of grid steps to ε, which is the last offset.
    """
    # Between neighbouring samples the best offset may lie beyond both, about as far as it changes.
    changes = np.abs(np.diff(sampled))
    margin = max(tuning.END_SAMPLES, int(changes.max()))
    first = int(sampled.min()) - margin
    last = int(sampled.max()) + margin
    return max(first, 0), min(last, N)
