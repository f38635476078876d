"""Several (ε, δ) statements at once are a mixture of randomised responses: which statements count,
and the weights.

Let x = 1/(1 + e^ε) and d(x) = x δ(ε). For a pair that is dominated in both directions, and with S =
1/(1 + e^|L|) for its privacy loss L (S = 0 at an infinite loss),

    d(x) = E[(x - S)_+],      0 <= x <= 1/2,

because 1 - δ is a Bayes risk: x (1 - δ) = E[min(x, S)]. So d is convex with d(0) = 0 and slope at
most 1, and every such function comes from a law of S. The largest d below the points (x_i, x_i δ_i)
is their lower convex hull (from the origin, ended by slope 1): it is the worst case of the
statements together. Its kinks are the *active* constraints, and the jump of its slope at x_i is
P[|L| = ε_i] = the weight w_i of the randomised response RR(ε_i) in the mixture; the slope at the
origin is the atom of infinite loss. This is Assumption 1 of Cadir-Najib-Shkel 2026, and the α of
their Theorem 2, for any number of constraints. The proof is in docs/notes/regions.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.costs import MultiDP
from dptopk.costs.types import checked_pairs
from dptopk.errors import InvalidParameter

Constraint = tuple[float, float]  # (ε, δ)

# δ's are moved by this much before the hull is formed; the floating-point error of the hull is
# below a tenth of it.
PERTURBATION = 2e-14


@dataclass(frozen=True, slots=True)
class RandomizedResponseMixture:
    """The worst case of several (ε, δ) constraints that hold in both directions: the randomised
    response RR(ε_i) with probability w_i, and an answer that gives everything away with probability
    ``atom``.

    Attributes:
        epsilons: falling, distinct, >= 0; the ε's of the active constraints.
        weights: positive, one for each ε; they and the atom add up to 1.
        atom: probability of an infinite loss (the smallest δ).
        active: the active constraints, as given.
        dropped: the constraints that follow from the active ones.
    """

    epsilons: tuple[float, ...]
    weights: tuple[float, ...]
    atom: float
    active: tuple[Constraint, ...]
    dropped: tuple[Constraint, ...]

    def atoms(self) -> tuple[Floats, Floats]:
        """Return the losses, rising, and their probabilities under P; the last loss is +inf where
        ``atom`` is not 0.
        """
        law: dict[float, float] = {}
        for epsilon, weight in zip(self.epsilons, self.weights, strict=True):
            chance_of_true = weight / (1 + math.exp(-epsilon))
            chance_of_false = weight * (math.exp(-epsilon) / (1 + math.exp(-epsilon)))
            law[epsilon] = law.get(epsilon, 0.0) + chance_of_true
            negative = 0.0 - epsilon  # 0.0, not -0.0, where ε = 0
            law[negative] = law.get(negative, 0.0) + chance_of_false
        if self.atom:
            law[math.inf] = self.atom
        losses = sorted(law)
        return np.array(losses), np.array([law[loss] for loss in losses])


def mixture(
    constraints: Iterable[Constraint] | MultiDP, *, nudge: float = 0.0
) -> RandomizedResponseMixture:
    """Return the mixture of randomised responses that is the worst case of all (ε, δ) constraints
    together.

    Args:
        constraints: pairs (ε, δ), ε >= 0, 0 <= δ < 1 (not both 0), in any order, or a MultiDP.
        nudge: relative change of every δ first: with ``PERTURBATION`` the result dominates the true
            worst case in spite of rounding, with ``-PERTURBATION`` it is dominated by it. A
            constraint that is active by less than rounding may be in ``active`` or ``dropped``;
            dropping it can only raise δ, by less than the nudge.

    Raises:
        InvalidParameter: for no constraints, or one outside its ranges.

    Source: Cadir-Najib-Shkel 2026, Assumption 1, Theorem 2 (n = 2) and Conjecture 1 (any n).

    >>> worst = mixture([(0.3, 0.0), (0.15, 0.02), (0.2, 0.5)])
    >>> worst.active, worst.dropped
    (((0.3, 0.0), (0.15, 0.02)), ((0.2, 0.5),))
    >>> [round(weight, 6) for weight in worst.weights]
    [0.249952, 0.750048]
    """
    smallest_deltas = _smallest_deltas(constraints)
    epsilons, slopes = _lower_hull(smallest_deltas, nudge)
    if not slopes:  # no statement says more than that δ <= 1
        return RandomizedResponseMixture((), (), 1.0, (), tuple(smallest_deltas))
    weights = np.diff([*slopes, 1.0])
    corners = set(epsilons)
    active = [pair for pair in smallest_deltas if pair[0] in corners]
    dropped = [pair for pair in smallest_deltas if pair[0] not in corners]
    return RandomizedResponseMixture(
        epsilons=tuple(epsilons),
        weights=tuple(weights.tolist()),
        atom=slopes[0],
        active=tuple(active),
        dropped=tuple(dropped),
    )


def _lower_hull(pairs: list[Constraint], nudge: float) -> tuple[list[float], list[float]]:
    """Return the ε's of the corners of the hull of d after the origin, and the slopes of the
    segments that end in them.

    Args:
        pairs: (ε, δ) by falling ε.
        nudge: relative change of every δ first.
    """
    hull: list[Constraint] = [(math.inf, 0.0)]  # the origin, x = 0
    slopes: list[float] = []
    for epsilon, delta in pairs:
        point = (epsilon, min(delta * (1 + nudge), 1.0))
        slope = _slope(hull[-1], point)
        while slopes and slopes[-1] >= slope:
            hull.pop()
            slopes.pop()
            slope = _slope(hull[-1], point)
        slopes.append(slope)
        hull.append(point)
    # The line of slope 1 that ends the hull passes below these points.
    while slopes and slopes[-1] >= 1:
        hull.pop()
        slopes.pop()
    return [epsilon for epsilon, _ in hull[1:]], slopes


@lru_cache(maxsize=64)
def worst_case(cost: MultiDP, nudge: float) -> RandomizedResponseMixture:
    """Return the mixture of a cost, as ``mixture`` does with this ``nudge``; cached, because a
    composition needs it many times.
    """
    return mixture(cost, nudge=nudge)


def active_constraints(constraints: Iterable[Constraint] | MultiDP) -> tuple[Constraint, ...]:
    """Return the constraints that are not implied by the others, by falling ε (Cadir-Najib-Shkel
    2026, Assumption 1); () where they say no more than that δ <= 1.

    Args:
        constraints: as for ``mixture``. One that is active by less than rounding may be left out.

    Raises:
        InvalidParameter: for no constraints, or one outside its ranges.

    >>> active_constraints([(1.0, 0.0), (0.5, 0.3), (0.2, 0.4)])  # (1, 0): δ(0.5) = 0.287
    ((1.0, 0.0), (0.2, 0.4))
    """
    return mixture(constraints).active


def _smallest_deltas(constraints: Iterable[Constraint] | MultiDP) -> list[Constraint]:
    """Return the validated constraints by falling ε, with the smallest δ for each ε.

    Raises:
        InvalidParameter: for no constraints, or one outside its ranges.
    """
    if isinstance(constraints, MultiDP):  # whose pairs were validated when it was made
        pairs = constraints.constraints
    else:
        pairs = tuple(_checked_constraints(constraints))
    smallest: dict[float, float] = {}
    for epsilon, delta in pairs:
        smallest[epsilon] = min(delta, smallest.get(epsilon, 1.0))
    if not smallest:
        raise InvalidParameter("constraints must not be empty")
    return sorted(smallest.items(), reverse=True)


def _checked_constraints(constraints: Iterable[Constraint]) -> list[Constraint]:
    """Return the constraints as a list, their ranges checked.

    Raises:
        InvalidParameter: for what are no pairs, or one outside its ranges.
    """
    try:
        pairs = [(epsilon, delta) for epsilon, delta in constraints]
    except (TypeError, ValueError):
        raise InvalidParameter("constraints must be (epsilon, delta) pairs") from None
    return checked_pairs(pairs)


def _slope(left: Constraint, right: Constraint) -> float:
    """Return (d_right - d_left) / (x_right - x_left) for x = 1/(1 + e^ε), d = xδ.

    With r = x_left / x_right it is (δ_right - r δ_left) / (1 - r): nothing overflows, and 1 - r
    does not cancel.

    Args:
        left: (ε, δ) with the larger ε, perhaps inf.
        right: (ε, δ) with the smaller ε.
    """
    (a, delta_a), (b, delta_b) = left, right
    ratio = math.exp(b - a) * (1 + math.exp(-b)) / (1 + math.exp(-a))
    rise = delta_b - ratio * delta_a
    run = -math.expm1(b - a) / (1 + math.exp(-a))
    # The ε's may differ by less than the smallest float: the one with the larger δ is then dropped.
    if run == 0:
        if rise > 0:
            return math.inf
        return -math.inf
    return rise / run
