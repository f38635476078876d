"""A privacy profile: δ at many ε, or ε at many δ, with lower ends, to look at.

Bounds are composed at two ε or three; the same evaluations answer for some more ε near these
(``bounds.compose_near``), the nodes. Between nodes bounds follow from what is true of every
profile: with u = e^ε, δ is a convex, non-increasing function of u with values in [0, 1]. So it lies
below the chord between two points that bound it from above, and above the line through two nodes
continued beyond the nearer one, where that has its lower and the farther one its upper bound
(docs/notes/setwise.md, Lemma 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.choices import Effort, Interaction
from dptopk._internal.rounding import Floats
from dptopk.accounting.bounds import compose_near
from dptopk.accounting.curves import LARGEST_EPSILON, Profile
from dptopk.costs import Charge, charge_of
from dptopk.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dptopk.costs import Cost

# Bounds are found for at most MOST_NODES points, the nodes; all others lie between two of them. The
# first FIRST_NODES are evenly spread ε's. Of up to FEW_NODES each is composed by itself.
MOST_NODES = 40
FIRST_NODES = 8
FEW_NODES = 4
SMALLEST_DELTA = 1e-300  # for the logarithm of a δ of 0
# Relative. A chord is a sum of two non-negative products, whose shares are quotients of expm1's:
# some ten roundings, 2e-15 in all.
CHORD_ROUNDING = 1e-12


def profile(
    charge: Charge | Cost | str | Iterable[Charge | Cost | str],
    *,
    deltas: ArrayLike | None = None,
    epsilons: ArrayLike | None = None,
    interaction: Interaction = "setwise",
    effort: Effort = "quick",
) -> Profile:
    """Return bounds on δ at many ε, or on ε at many δ.

    Up to four points are composed each by itself. Of up to 40 two are composed, three for δ at many
    ε, and their evaluations answer for the others; a point for which they are too coarse is
    composed again. Where more points are asked for, the rest follow from these by convexity.

    Args:
        charge: what was spent: a Charge, a cost, text such as "25*BR(0.1)", or a list of these.
        deltas: in (0, 1), any number of them: then ε is computed. Exactly one of deltas and
            epsilons is given.
        epsilons: >= 0, at most 500: then δ is computed.
        interaction: as for ``compose``.
        effort: for each point that is composed.

    Returns:
        Profile: upper bounds, rounded outward, with proven lower ends where known.

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> found = profile("25*DP(0.1)", epsilons=[0.0, 1.0, 2.0])
    >>> found.deltas.round(6).tolist()
    [0.199314, 0.006659, 3e-06]
    """
    costs = charge_of(charge)
    if (deltas is None) == (epsilons is None):
        raise InvalidParameter("give exactly one of deltas and epsilons")
    composer = _ProfileComposer(costs, interaction, effort)
    if epsilons is not None:
        points = np.atleast_1d(validate.nonnegatives(epsilons=epsilons)).ravel()
        if points.size and points.max() > LARGEST_EPSILON:
            raise InvalidParameter(f"epsilons must be at most {LARGEST_EPSILON:g}")
        return composer.profile_at_epsilons(points)
    # ``deltas`` is not None here; the empty list is for the type checker.
    levels = np.atleast_1d(validate.probabilities(deltas=[] if deltas is None else deltas)).ravel()
    if levels.size and levels.min() <= 0:
        raise InvalidParameter("deltas must be in (0, 1)")
    return composer.profile_at_deltas(levels)


@dataclass(frozen=True)
class _ProfileComposer:
    """Makes profiles of a charge: composes it at a few points, the nodes, and bounds the others
    between them.

    Attributes:
        charge: the costs.
        interaction: as for ``compose``.
        effort: of each composition.
    """

    charge: Charge
    interaction: Interaction
    effort: Effort

    def composed_deltas(self, nodes: Sequence[float], parts: int = 2) -> tuple[Floats, Floats]:
        """Return upper bounds on δ at each ε, made non-increasing, and lower bounds (NaN where none
        is known), as ``compose_near`` finds them.

        Args:
            nodes: ε's, rising.
            parts: into how many parts the nodes are divided, each of which is composed near its
                middle.
        """
        bounds = [
            bound
            for part in _nodes_in_parts(nodes, parts)
            for bound in compose_near(
                self.charge, epsilons=part, interaction=self.interaction, effort=self.effort
            )
        ]
        upper = np.minimum.accumulate(np.array([bound.delta for bound in bounds]))
        lower = np.array([math.nan if bound.lower is None else bound.lower for bound in bounds])
        return upper, np.minimum(lower, upper)

    def profile_at_epsilons(self, points: Floats) -> Profile:
        """Return the profile with δ at each of these ε's: composed for a few, the others between
        them by convexity.
        """
        nodes = _spread_points(points, points, FIRST_NODES)
        if len(np.unique(points)) > len(nodes):
            # Further nodes are spread evenly in ln δ, since chords are off where it falls much
            # between two nodes.
            first_deltas, _ = self.composed_deltas(nodes, parts=1)
            logs = np.interp(points, nodes, -np.log(np.maximum(first_deltas, SMALLEST_DELTA)))
            nodes = sorted({*nodes, *_spread_points(points, logs, MOST_NODES - FIRST_NODES)})
        upper, lower = self.composed_deltas(nodes)
        values = _upper_between_nodes(points, nodes, upper)
        lower_values = _lower_between_nodes(points, nodes, upper, lower)
        return Profile(self.charge, points, values, lower_values, "delta", self.interaction)

    def profile_at_deltas(self, levels: Floats) -> Profile:
        """Return the profile with ε at each of these δ's: composed for a few, the others between
        them by chords in e^ε.
        """
        nodes = _spread_points(levels, -np.log(levels), MOST_NODES)
        bounds = [
            bound
            for part in _nodes_in_parts(nodes, 2)
            for bound in compose_near(
                self.charge, deltas=part, interaction=self.interaction, effort=self.effort
            )
        ]
        by_falling_delta = list(reversed(bounds))  # and so by rising ε
        deltas = np.array([bound.delta for bound in by_falling_delta])
        upper = np.maximum.accumulate(np.array([bound.epsilon for bound in by_falling_delta]))
        lower_at_nodes = np.array([bound.lower or 0.0 for bound in by_falling_delta])
        epsilons = np.array([_epsilon_on_chord(level, upper, deltas) for level in levels])
        lower = _lower_steps(levels, deltas, lower_at_nodes)
        lower = np.where(lower > 0, np.minimum(lower, epsilons), math.nan)
        return Profile(self.charge, epsilons, np.array(levels), lower, "epsilon", self.interaction)


def _nodes_in_parts(nodes: Sequence[float], parts: int) -> list[list[float]]:
    """Return the nodes divided into this many parts, each of which is composed near its middle; up
    to FEW_NODES nodes are each a part.
    """
    if len(nodes) <= FEW_NODES:
        parts = len(nodes)
    # Without nodes there are no parts, and nothing to divide by.
    ends = [len(nodes) * place // max(parts, 1) for place in range(parts + 1)]
    return [list(nodes[begin:end]) for begin, end in pairwise(ends)]


def _spread_points(coordinates: Floats, scale: Floats, most_points: int) -> list[float]:
    """Return the distinct points, rising; of more than ``most_points`` some that are evenly spread
    in ``scale``, the first and the last among them.

    Args:
        coordinates: the points, ε's or δ's.
        scale: a monotone function of the points, its value at each.
        most_points: how many are returned at most.
    """
    points, first = np.unique(coordinates, return_index=True)
    if len(points) <= most_points:
        return [float(point) for point in points]
    scales = scale[first]
    wanted = np.linspace(scales[0], scales[-1], most_points)
    order = np.argsort(scales)
    nearest = order[np.clip(np.searchsorted(scales[order], wanted), 0, len(points) - 1)]
    chosen = {0, len(points) - 1, *nearest.tolist()}
    return [float(points[place]) for place in sorted(chosen)]


def _upper_between_nodes(epsilons: Floats, nodes: Sequence[float], upper: Floats) -> Floats:
    """Return upper bounds on δ at each ε: the given ones at the nodes, and between two nodes the
    chord in e^ε, which is above the convex profile.

    Args:
        epsilons: the ε's, between the first and the last node.
        nodes: ε's, rising.
        upper: upper bounds on δ at the nodes.
    """
    ends = np.array(nodes)
    right = np.clip(np.searchsorted(ends, epsilons), 1, max(len(ends) - 1, 1))
    if len(ends) < 2:
        return np.full(epsilons.shape, upper[0] if len(upper) else 1.0)
    left = right - 1
    # Both shares by themselves: a difference of the bounds, at whose end little is left, would have
    # no digits there.
    right_share = np.expm1(epsilons - ends[left]) / np.expm1(ends[right] - ends[left])
    left_share = np.expm1(epsilons - ends[right]) / np.expm1(ends[left] - ends[right])
    values = left_share * upper[left] + right_share * upper[right]
    raised = np.minimum(values * (1 + CHORD_ROUNDING), upper[left])
    exact = np.searchsorted(ends, epsilons)
    at_node = ends[np.minimum(exact, len(ends) - 1)] == epsilons
    chords: Floats = np.where(at_node, upper[np.minimum(exact, len(ends) - 1)], raised)
    return chords


def _lower_between_nodes(
    epsilons: Floats, nodes: Sequence[float], upper: Floats, lower: Floats
) -> Floats:
    """Return lower bounds on δ at each ε, NaN where none is known.

    At the nodes they are the given ones. Between two nodes they are on the line through the next
    two nodes to the right, by the lower bound of the nearer and the upper bound of the farther one,
    continued to the left: a convex profile is above it.

    Args:
        epsilons: the ε's.
        nodes: ε's, rising.
        upper: upper bounds on δ at the nodes.
        lower: lower bounds on δ at the nodes, NaN where none is known.
    """
    ends = np.array(nodes)
    lower_or_0 = np.where(np.isnan(lower), 0.0, lower)
    bounds = []
    for x in epsilons.tolist():
        right = int(np.searchsorted(ends, x))
        if right >= len(ends):
            bounds.append(math.nan)
            continue
        value = lower_or_0[right]
        if ends[right] > x and right + 1 < len(ends):
            # How far the line falls from the right node to the next, and with u = e^x in proportion
            # on the way from x to the right node.
            fall = max(lower_or_0[right] - upper[right + 1], 0.0)
            value += fall * -math.expm1(x - ends[right]) / math.expm1(ends[right + 1] - ends[right])
        bounds.append(value * (1 - CHORD_ROUNDING) if value > 0 else math.nan)
    return np.array(bounds)


def _lower_steps(levels: Floats, deltas: Floats, lower: Floats) -> Floats:
    """Return lower bounds on ε at each level of δ; 0 where none is known.

    A smaller δ needs a larger ε: so the bound at the next larger δ of a node is one here too.

    Args:
        levels: the δ's.
        deltas: δ at the nodes, falling.
        lower: lower bounds on ε at the nodes, 0 where none is known.
    """
    steps = np.maximum.accumulate(lower)
    place = np.searchsorted(-deltas, -levels, side="right") - 1
    return np.where(place >= 0, steps[np.maximum(place, 0)], 0.0)


def _epsilon_on_chord(level: float, epsilons: Floats, deltas: Floats) -> float:
    """Return an upper bound on the ε of a level of δ: where the chord through (e^ε, δ) of two nodes
    comes down to it; inf beyond the last node.

    Args:
        level: δ.
        epsilons: upper bounds on ε at the nodes, rising.
        deltas: δ at the nodes, falling.
    """
    right = int(np.searchsorted(-deltas, -level))
    if right >= len(epsilons):
        return math.inf
    epsilon = float(epsilons[right])
    if deltas[right] == level or right == 0 or not math.isfinite(epsilon):
        return epsilon
    previous_epsilon = float(epsilons[right - 1])
    share = (deltas[right - 1] - level) / (deltas[right - 1] - deltas[right])
    # e^x = e^previous + share (e^epsilon - e^previous)
    on_chord = previous_epsilon + math.log1p(
        share * math.expm1(min(epsilon - previous_epsilon, LARGEST_EPSILON))
    )
    if epsilon - previous_epsilon < LARGEST_EPSILON:
        return min(on_chord * (1 + CHORD_ROUNDING), epsilon)
    return epsilon  # the chord was cut before it came to this node
