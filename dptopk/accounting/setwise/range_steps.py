"""One step of a bounded range whose ε need not be a multiple of the grid step.

V is known at the nodes jh between two bounds. With H(e^x) = V(x), convex in u = e^x, a step of
ε-bounded range is the largest chord of H of ratio e^ε (``bellman_step``).

From above ε is a coin between the two multiples of h next to it (Lemma 3 of
docs/notes/setwise.md): it shows the larger one, b, with the probability for which E[e^{-ε'}] =
e^{-ε}. From below the chord has one end at a node, and the other where it belongs, between two
nodes: there H lies above the line through the nodes to the right, continued to the left.
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
        below, above: the multiples, as numbers of steps; both are the same where ε is nearly one.
        chance: the probability of the larger one, rounded up.
        short: the larger multiple less ε, at least 0.
    """

    epsilon: float
    below: int
    above: int
    chance: float
    short: float


@lru_cache(maxsize=1024)
def range_on_grid(epsilon: float, h: float) -> RangeOnGrid:
    """Return where ε lies on a grid; compared as rationals."""
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
    """Return upper bounds on the step at the nodes 0, ..., last.

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
    """Return upper bounds on the step of a range of a whole number of grid steps."""
    values = value.at(np.arange(-steps, last + steps + 1)) * OUTWARD + FLOOR
    if not steps:
        return values
    return upper_step(values, steps, value.h)


def range_step_below(
    on_grid: RangeOnGrid, lower: ValueFunction, upper: ValueFunction, last: int
) -> Floats:
    """Return lower bounds on the step at the nodes 0, ..., last.

    Args:
        on_grid: the range.
        lower: lower bounds on V of what is left.
        upper: upper bounds on it.
        last: the last node.
    """
    weights = _chord_weights(on_grid.epsilon, lower.h)
    nodes = np.arange(-len(weights), last + on_grid.above + 1)
    near = lower.at(nodes) * INWARD
    far = continued_to_the_left(lower, upper, nodes, on_grid.short) * INWARD
    # A chord over a node with its near end there is worth V itself.
    best = near[len(weights) :][: last + 1]
    for offset, weight in enumerate(weights):
        at = len(weights) - offset
        chord = weight.near * near[at:][: last + 1]
        chord += weight.far * far[at + on_grid.above :][: last + 1]
        best = np.maximum(best, chord)
    bounds: Floats = best * (1 - CHORD_ROUNDING)
    return bounds


class _Weights(NamedTuple):
    """The weights of the two ends of a chord."""

    near: float
    far: float


@lru_cache(maxsize=256)
def _chord_weights(epsilon: float, h: float) -> list[_Weights]:
    """Return the weights of the near and the far end of the chords over a node whose near end lies
    0, 1, ... nodes to the left of it.
    """
    whole = math.expm1(epsilon)
    weights = []
    for offset in range(math.floor(Fraction(epsilon) / Fraction(h)) + 1):
        behind = offset * Fraction(h)
        near = math.exp(float(behind)) * math.expm1(float(Fraction(epsilon) - behind)) / whole
        weights.append(_Weights(near, math.expm1(float(behind)) / whole))
    return weights


def continued_to_the_left(
    lower: ValueFunction, upper: ValueFunction, nodes: Nodes, distance: float
) -> Floats:
    """Return lower bounds on V at some distance to the left of each node, less than a grid step.

    For v < u < w convexity puts H(v) above H(u) + c (H(u) - H(w)), c = (u - v)/(w - u), which
    rises with H(u) and falls with H(w).

    Args:
        lower: lower bounds on V.
        upper: upper bounds on V.
        nodes: the nodes.
        distance: to the left of each, in x.
    """
    values = lower.at(nodes)
    best = values
    for apart in CONTINUED_OVER:
        share = -math.expm1(-distance) / math.expm1(apart * lower.h)
        best = np.maximum(best, values + share * (values - upper.at(nodes + apart)))
    bounds: Floats = best * (1 - CHORD_ROUNDING)
    return bounds
