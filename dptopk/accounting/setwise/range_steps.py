"""One step of a bounded range whose ε need not be a multiple of the grid step.

V is known at the nodes jh between two bounds. With H(e^x) = V(x), convex in u = e^x, a step of
ε-bounded range is the largest chord of H of ratio e^ε (``bellman_step``).

From above ε is a coin between the two multiples of h next to it (Lemma 3 of
docs/notes/setwise.md): it shows the larger one, b, with the probability for which E[e^{-ε'}] =
e^{-ε}. From below the chord has one end at a node, and the other where it belongs, between two
nodes: there H lies above the lines through two nodes on either side, continued.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise.bellman_step import upper_step
from dptopk.accounting.setwise.moment_program import Nodes, ValueFunction
from dptopk.accounting.setwise.recursion import FLOOR, INWARD, OUTWARD

# Relative, far above the rounding of a chord and of the two ends' weights: each is a product of a
# few exponentials of arguments with one rounding.
CHORD_ROUNDING = 1e-12
# A multiple of h that exceeds ε by less than this share of h stands for it without a coin.
NEARLY = 1e-9
# How many nodes apart the two are whose line is continued.
CONTINUED_OVER = (1, 2, 4, 8)


@dataclass(frozen=True)
class RangeOnGrid:
    """ε between two neighbouring multiples of a grid step.

    Attributes:
        epsilon: ε.
        below: the smaller multiple, as a number of steps.
        above: the larger one; the same as ``below`` where ε is nearly a multiple.
        chance: the probability, rounded up, with which a coin shows the larger one.
        short: by how much ε is short of the larger multiple, at least 0; in units of ε.
    """

    epsilon: float
    below: int
    above: int
    chance: float
    short: float


@lru_cache(maxsize=1024)
def range_on_grid(epsilon: float, h: float) -> RangeOnGrid:
    """Return where ε lies on a grid; it is compared with multiples of the step as a rational.

    Args:
        epsilon: ε.
        h: the grid step.
    """
    exact = Fraction(epsilon)
    step = Fraction(h)
    above = math.ceil(exact / step)
    short = float(above * step - exact)
    if short <= NEARLY * h:
        return RangeOnGrid(epsilon, above, above, 1.0, short)
    below = above - 1
    beyond = float(exact - below * step)
    chance = math.expm1(-beyond) / math.expm1(-h) * (1 + CHORD_ROUNDING)
    return RangeOnGrid(epsilon, below, above, min(chance, 1.0), short)


def range_step_above(on_grid: RangeOnGrid, value: ValueFunction, last: int) -> Floats:
    """Return upper bounds on the value of playing a range first, at the nodes 0, ..., last: the
    mean, over the coin, of the steps of the two multiples.

    Args:
        on_grid: the range.
        value: upper bounds on V of what is left.
        last: the last node.
    """
    larger = _step_of_multiple(on_grid.above, value, last)
    if on_grid.chance == 1:
        return larger
    smaller = _step_of_multiple(on_grid.below, value, last)
    # A larger range is worth no less, so that a chance that is rounded up only raises the sum.
    rise = np.maximum(larger - smaller, 0.0)
    bounds: Floats = (smaller + on_grid.chance * rise) * (1 + CHORD_ROUNDING)
    return bounds


def _step_of_multiple(steps: int, value: ValueFunction, last: int) -> Floats:
    """Return upper bounds on the step of a range of a whole number of grid steps.

    Args:
        steps: the number of grid steps.
        value: upper bounds on V of what is left.
        last: the last node of the answer.
    """
    values = value.at(np.arange(-steps, last + steps + 1)) * OUTWARD + FLOOR
    if not steps:
        return values
    return upper_step(values, steps, value.h)


def range_step_below(
    on_grid: RangeOnGrid, lower: ValueFunction, upper: ValueFunction, last: int
) -> Floats:
    """Return lower bounds on the value of playing a range first, at the nodes 0, ..., last: the
    best chord over each node whose near end, to the left, is a node.

    Args:
        on_grid: the range.
        lower: lower bounds on V of what is left.
        upper: upper bounds on it.
        last: the last node.
    """
    weights = chord_weights(on_grid.epsilon, lower.h)
    before = len(weights.near)
    nodes = np.arange(-before, last + on_grid.above + 1)
    count = last + 1  # of the nodes of the answer, of which node 0 is at the place ``before``
    near = lower.at(nodes) * INWARD
    # The node ``above`` steps after a near end lies ``short`` to the right of the far end.
    far = between_nodes(lower, upper, nodes, on_grid.short) * INWARD
    # A chord over a node with its near end there is worth V itself.
    best = near[before : before + count]
    for offset in range(before):
        begin = before - offset  # the place of the near end of the chord over node 0
        begin_far = begin + on_grid.above
        chord = weights.near[offset] * near[begin : begin + count]
        chord += weights.far[offset] * far[begin_far : begin_far + count]
        best = np.maximum(best, chord)
    bounds: Floats = best * (1 - CHORD_ROUNDING)
    return bounds


class ChordWeights(NamedTuple):
    """The weights of both ends of chords over a node, one entry for each *offset*: the number of
    nodes, 0, 1, ..., by which the near end of the chord lies to the left of the node.

    The chord is worth near · H(near end) + far · H(far end) at the node.

    Attributes:
        near: of the near ends, those to the left.
        far: of the far ends, ε to the right of these.
    """

    near: Floats
    far: Floats


@lru_cache(maxsize=256)
def chord_weights(epsilon: float, h: float) -> ChordWeights:
    """Return the weights of all chords of ratio e^ε over a node whose near ends are nodes; within a
    few roundings.

    Args:
        epsilon: ε.
        h: the grid step.
    """
    exact = Fraction(epsilon)
    step = Fraction(h)
    offsets = range(math.floor(exact / step) + 1)
    to_node = np.array([float(offset * step) for offset in offsets])
    from_node = np.array([float(exact - offset * step) for offset in offsets])
    near = np.exp(to_node) * np.expm1(from_node) / math.expm1(epsilon)
    return ChordWeights(near, np.expm1(to_node) / math.expm1(epsilon))


def between_nodes(
    lower: ValueFunction, upper: ValueFunction, nodes: Nodes, distance: float
) -> Floats:
    """Return lower bounds on V at some distance to the left of each node, less than a grid step.

    For v < u < w convexity puts H(v) above H(u) + c (H(u) - H(w)), c = (u - v)/(w - u), and so for
    v > u > w: the line through two nodes on one side, which rises with H(u) and falls with H(w).

    Args:
        lower: lower bounds on V.
        upper: upper bounds on V.
        nodes: consecutive nodes.
        distance: to the left of each, in x.
    """
    left_values = lower.at(nodes - 1)
    right_values = lower.at(nodes)
    best = right_values
    for apart in CONTINUED_OVER:
        # The line through the node and one to its right, continued to the left.
        share = -math.expm1(-distance) / math.expm1(apart * lower.h)
        best = np.maximum(best, right_values + share * (right_values - upper.at(nodes + apart)))
        # The line through the node before and one to its left, continued to the right.
        share = math.expm1(lower.h - distance) / -math.expm1(-apart * lower.h)
        line = left_values - share * (upper.at(nodes - 1 - apart) - left_values)
        # A difference of numbers up to (1 + share) times the larger one.
        best = np.maximum(best, line - CHORD_ROUNDING * (1 + share) * left_values)
    bounds: Floats = best * (1 - CHORD_ROUNDING)
    return bounds
