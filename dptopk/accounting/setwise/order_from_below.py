"""Different ranges in one order, from below: at each node of a grid a strategy, with what it
attains at every x.

A strategy attains P(S) - u Q(S) at u = e^x for its event S: affine in u. So beside its worth L at a
node u_j its mass r = u_j Q(S) is stored, and L + r (1 - u/u_j) is what the same strategy attains at
every other u. A chord from a node (``bellman_step``) may thus end between two nodes, at the line of
the strategy of either: no ε is rounded, and no bound from above is needed (docs/notes/setwise.md,
"From below"). L is rounded down, and of r a bound on its relative error is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.setwise.bellman_step import Block, blocks_with_offsets
from dptopk.accounting.setwise.range_steps import (
    ChordWeights,
    RangeOnGrid,
    chord_weights,
    range_on_grid,
)
from dptopk.accounting.setwise.recursion import INWARD, Rules
from dptopk.accounting.work import raise_if_late

# Units of roundoff, above the relative error of one chord: two weights, each a product of three
# exponentials, of arguments up to ε with one rounding each, two products and sums.
CHORD_ROUNDINGS = 256
# The same of an exponential of x, |x| <= 100, and a product with it.
MOVE_ROUNDINGS = 256
# Units of roundoff, above those of x, of a node and of their quotient.
PLACE_ROUNDINGS = 64
NO_CHORD = -1  # the offset of a node at which the strategy that plays nothing first is the best


@dataclass(frozen=True)
class PlayedInOrder:
    """What strategies attain, one for each of consecutive nodes.

    Attributes:
        first: the first node.
        h: the grid step.
        worth: L of each strategy at its node, shape (n,).
        mass: r of each, the probability of its event under Q times e^x.
        mass_error: a bound on the relative error of the masses.
    """

    first: int
    h: float
    worth: Floats
    mass: Floats
    mass_error: float

    @classmethod
    def of_nothing(cls, reach: int, h: float) -> PlayedInOrder:
        """Return the two strategies without costs: everything up to x = 0, then nothing.

        Args:
            reach: how many nodes there are on either side of 0.
            h: the grid step.
        """
        x = np.arange(-reach, reach + 1.0) * h
        worth = np.maximum(-np.expm1(x), 0.0) * INWARD
        return cls(-reach, h, worth, _mass_of_everything(x), MOVE_ROUNDINGS * ROUNDOFF)

    def between(self, first: int, last: int) -> PlayedInOrder:
        """Return strategies for all nodes from ``first`` to ``last``: to the left of the stored
        ones the first of them, or the event that is everything, whichever is worth more; to the
        right the event that is nothing.
        """
        end = self.first + len(self.worth)
        nodes = np.arange(first, min(self.first, last + 1), dtype=np.float64)
        x = nodes * self.h
        behind = (nodes - self.first) * self.h
        of_first = self._lines(np.zeros(len(nodes), dtype=np.int64), behind)
        of_all = -np.expm1(x) * INWARD
        all_is_better = of_all > of_first
        mass_of_first = self.mass[0] * np.exp(behind)
        masses = np.where(all_is_better, _mass_of_everything(x), mass_of_first)
        stored = slice(max(first - self.first, 0), max(last + 1 - self.first, 0))
        nothing = np.zeros(max(last + 1 - max(end, first), 0))
        return PlayedInOrder(
            first,
            self.h,
            np.concatenate([np.maximum(of_first, of_all), self.worth[stored], nothing]),
            np.concatenate([masses, self.mass[stored], nothing]),
            self.mass_error + MOVE_ROUNDINGS * ROUNDOFF,
        )

    def moved_left(self, distance: float) -> PlayedInOrder:
        """Return strategies for the places at some distance to the left of each node: the better
        one of those of this node and of the node before.

        Args:
            distance: from 0 to h, in x.

        Returns:
            The entry of each node has the worth and the mass at the place to its left; it is for
                ``_with_one_before`` only, as ``first`` is still that of the nodes.
        """
        here = np.arange(len(self.worth))
        before = np.maximum(here - 1, 0)
        by_here = self._lines(here, -distance)
        by_before = np.where(here > 0, self._lines(before, self.h - distance), 0.0)
        before_is_better = by_before > by_here
        mass = self.mass * math.exp(-distance)
        mass_of_before = self.mass[before] * math.exp(self.h - distance)
        return PlayedInOrder(
            self.first,
            self.h,
            np.maximum(by_here, by_before),
            np.where(before_is_better, mass_of_before, mass),
            self.mass_error + MOVE_ROUNDINGS * ROUNDOFF,
        )

    def _lines(self, places: NDArray[np.int64], beyond: Floats | float) -> Floats:
        """Return what some strategies attain away from their nodes, rounded down.

        Args:
            places: of the strategies.
            beyond: by how much x lies to the right of each strategy's node; negative to the left.
        """
        moves = np.expm1(beyond)
        error = self.mass_error + MOVE_ROUNDINGS * ROUNDOFF
        # The mass counts as smaller to the left of the node, and as larger to the right.
        moved = self.mass[places] * moves * (1 + np.sign(moves) * error)
        lines: Floats = self.worth[places] * INWARD - moved
        return lines * (1 - np.sign(lines) * ROUNDOFF)

    def below(self, x: Floats) -> Floats:
        """Return a lower bound on V at any x: the better one of what the strategies of the two
        nodes around it attain.
        """
        safe_x = x + PLACE_ROUNDINGS * ROUNDOFF * (np.abs(x) + self.h)
        last = self.first + len(self.worth) - 1
        # Beyond the last node, and of what is no number, nothing is known.
        known_x = np.fmin(safe_x, last * self.h)
        right = np.clip(np.ceil(known_x / self.h), self.first, last)
        left = np.maximum(right - 1, self.first)
        lines = -np.expm1(np.minimum(known_x, 0.0)) * INWARD
        for node in (left, right):
            places = node.astype(np.int64) - self.first
            lines = np.maximum(lines, self._lines(places, known_x - node * self.h))
        bounds: Floats = np.where(safe_x <= last * self.h, lines, 0.0)
        return bounds


def _mass_of_everything(x: Floats) -> Floats:
    """Return r of the event that is everything, where that is worth playing: e^x up to x = 0."""
    masses: Floats = np.where(x <= 0, np.exp(np.minimum(x, 0.0)), 0.0)
    return masses


def play_in_order(
    ranges: Mapping[float, int], played: Sequence[int], steps: int, *, reach: float
) -> PlayedInOrder:
    """Return strategies that play bounded ranges in a given order, with t chosen from all answers.

    Args:
        ranges: the distinct ε's with counts.
        played: for each cost the place of its ε in ``ranges``, first played first.
        steps: the number of grid steps to the largest ε.
        reach: the half-width of the windows in standard deviations.
    """
    epsilons = tuple(ranges)
    h = max(epsilons) / steps
    rules = Rules(epsilons, (), h, upper=False, reach=reach)
    places = np.array(list(reversed(played)))
    states = np.cumsum(places[:, None] == np.arange(len(epsilons)), axis=0)
    attained = PlayedInOrder.of_nothing(steps + 2, h)
    for place, window in zip(places.tolist(), rules.windows(states).tolist(), strict=True):
        raise_if_late()
        attained = _with_one_before(attained, range_on_grid(epsilons[place], h), window)
    return attained


def _with_one_before(
    after: PlayedInOrder, on_grid: RangeOnGrid, window: Sequence[int]
) -> PlayedInOrder:
    """Return strategies that play one range first, at the nodes of a window.

    Args:
        after: the strategies for what is left.
        on_grid: the range.
        window: the first and the last node.
    """
    N = on_grid.above
    h = after.h
    near = after.between(window[0] - N, window[1] + N)
    far = near.moved_left(on_grid.short)
    chords = _Chords(near.worth, far.worth, chord_weights(on_grid.epsilon, h), N)
    worth = near.worth[N:-N].copy()  # with no chord at all
    offsets = np.full(len(worth), NO_CHORD)
    for block in blocks_with_offsets(near.worth, len(worth), N, h):
        _raise_to_chords(worth, offsets, chords, block)
    mass = np.where(
        offsets != NO_CHORD,
        _masses_of_chords(near.mass, far.mass, chords, np.maximum(offsets, 0)),
        near.mass[N:-N],
    )
    rounding = CHORD_ROUNDINGS * ROUNDOFF * (1 + on_grid.epsilon)
    return PlayedInOrder(window[0], h, worth * (1 - rounding), mass, far.mass_error + rounding)


class _Chords(NamedTuple):
    """What is known of the ends of all chords of one range.

    Attributes:
        near_worth: what is attained at each possible near end: the nodes of the answer and N more
            on either side.
        far_worth: what is attained to the left of the same nodes, where far ends are.
        weights: of the ends, for each offset.
        N: how many places after the near end of a chord its far end is stored.
    """

    near_worth: Floats
    far_worth: Floats
    weights: ChordWeights
    N: int


def _masses_of_chords(
    near_mass: Floats, far_mass: Floats, chords: _Chords, offsets: NDArray[np.int64]
) -> Floats:
    """Return the mass of the strategy of one chord over each node of the answer: that of the
    strategies at its ends, in the same proportions as its worth.

    Args:
        near_mass: the masses of the strategies at possible near ends, stored as their worths are.
        far_mass: those at far ends.
        chords: the chords.
        offsets: the offset of the chord over each node, at least 0.
    """
    near_ends = np.arange(len(offsets)) + chords.N - offsets
    from_near = chords.weights.near[offsets] * near_mass[near_ends]
    from_far = chords.weights.far[offsets] * far_mass[near_ends + chords.N]
    masses: Floats = from_near + from_far
    return masses


def _raise_to_chords(
    worth: Floats, offsets: NDArray[np.int64], chords: _Chords, block: Block
) -> None:
    """Raise ``worth``, and set ``offsets``, in place, at the nodes of a block to those of the best
    chords.

    Args:
        worth: what the strategy of each node attains so far.
        offsets: how many nodes to the left of it the near end of its chord lies, or NO_CHORD.
        chords: the chords.
        block: the nodes, and the offsets that are tried.
    """
    N = chords.N
    nodes = slice(block.begin, block.end)
    highest = worth[nodes]
    count = block.end - block.begin
    for offset in range(block.first, min(block.last + 1, len(chords.weights.near))):
        begin = block.begin + N - offset  # of the near ends of the chords
        chord = chords.weights.near[offset] * chords.near_worth[begin : begin + count]
        chord += chords.weights.far[offset] * chords.far_worth[begin + N : begin + N + count]
        better = chord > highest
        np.copyto(highest, chord, where=better)
        np.copyto(offsets[nodes], offset, where=better)
