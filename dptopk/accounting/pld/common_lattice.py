"""Compositions of mixtures of randomised responses whose ε's are multiples of a common step: exact,
by convolution.

A mixture is a law of |L| = ε, given as pairs (ε, weight). Composed, the losses are multiples of the
step too, and the law of their sum is a product of convolution powers of positive masses on the
integers (``laws.power``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dptopk._internal.rounding import ROUNDOFF
from dptopk.accounting.pld.laws import IntegerLaw, LossLaw, convolution_power

# A mixture of randomised responses: the ε and the weight of each, by falling ε; the weights add up
# to 1.
WeightedEpsilons = tuple[tuple[float, float], ...]
# Mixtures, and how often each is taken.
CountedMixtures = Sequence[tuple[WeightedEpsilons, int]]

# The losses of a composition reach at most this many steps from end to end.
MOST_LATTICE_CELLS = 60_000
LARGEST_DENOMINATOR = 1000  # of the ratios of two ε's that are looked for
# Units of roundoff by which an ε may be off its node; two written decimals are off by about two.
NODE_ROUNDINGS = 8
# A ratio whose product with the smallest ε is this many units off its ε has no node within
# NODE_ROUNDINGS: node times step and this product are off the exact one by at most three units
# each.
FAR_ROUNDINGS = 16


def signs(epsilon: float) -> tuple[float, float]:
    """Return P[+ε] and P[-ε] of randomised response with this ε."""
    odds = math.exp(-epsilon)
    return 1 / (1 + odds), odds / (1 + odds)


@dataclass(frozen=True, slots=True)
class CommonLattice:
    """A step, and a node for every ε such that ε ≈ node · step.

    Attributes:
        step: the distance of two nodes.
        nodes: the node of each ε.
    """

    step: float
    nodes: Mapping[float, int]

    def is_within_rounding(self) -> bool:
        """Return whether every ε is its node times the step, up to NODE_ROUNDINGS units of
        roundoff.
        """
        return all(
            abs(node * self.step - epsilon) <= NODE_ROUNDINGS * ROUNDOFF * epsilon
            for epsilon, node in self.nodes.items()
        )

    def law(self, parts: CountedMixtures) -> LossLaw:
        """Return the law under P of the sum of all losses, with bounds on its rounding; an ε may be
        off its node by 8 units of roundoff.

        Args:
            parts: mixtures of randomised responses, with their counts.
        """
        total = IntegerLaw(np.ones(1))
        for responses, times in parts:
            total = total.convolution(convolution_power(self._masses(responses), times))
        # A single mass: the weight, the sign's share and the sum of the two, below 16 units of
        # roundoff.
        mass_error = total.error + 16 * ROUNDOFF * sum(times for _, times in parts)
        largest_loss = sum(times * largest_epsilon(responses) for responses, times in parts)
        # Every ε is off its node by NODE_ROUNDINGS units; the rest covers the products and sums.
        loss_error = 24 * ROUNDOFF * largest_loss
        return LossLaw.from_unsorted(
            losses=self.step * total.places(),
            masses=total.masses,
            mass_error=mass_error * (1 + 1e-6),  # and the products of errors
            loss_error=loss_error,
            lost=total.lost,
        )

    def _masses(self, responses: WeightedEpsilons) -> IntegerLaw:
        """Return the law under P of the loss of one mixture, in steps."""
        reach = self.nodes[largest_epsilon(responses)]
        masses = np.zeros(2 * reach + 1)
        for epsilon, weight in responses:
            plus, minus = signs(epsilon)
            masses[reach + self.nodes[epsilon]] += weight * plus
            masses[reach - self.nodes[epsilon]] += weight * minus
        return IntegerLaw(masses, -reach)


def largest_epsilon(responses: WeightedEpsilons) -> float:
    """Return the largest ε of a mixture, which comes first."""
    epsilon, _ = responses[0]
    return epsilon


def common_lattice(parts: CountedMixtures) -> CommonLattice | None:
    """Return a step of which the ε's of all mixtures are multiples to within roundoff, with their
    nodes; None where none was found, or the composition would reach over more than
    MOST_LATTICE_CELLS steps.
    """
    epsilons = {epsilon for responses, _ in parts for epsilon, _ in responses}
    # The smallest ε above 0: the step is a whole part of it. With 0 alone any step will do.
    smallest = min((epsilon for epsilon in epsilons if epsilon), default=1.0)
    if max(epsilons) / smallest > MOST_LATTICE_CELLS:
        return None
    ratios = {}
    for epsilon in epsilons:
        ratio = Fraction(epsilon / smallest).limit_denominator(LARGEST_DENOMINATOR)
        # Of hundreds of ε's without a common step the first ones show it.
        if abs(float(ratio) * smallest - epsilon) > FAR_ROUNDINGS * ROUNDOFF * epsilon:
            return None
        ratios[epsilon] = ratio
    steps_of_smallest = math.lcm(*(ratio.denominator for ratio in ratios.values()))
    nodes = {epsilon: int(ratio * steps_of_smallest) for epsilon, ratio in ratios.items()}
    reach = sum(times * nodes[largest_epsilon(responses)] for responses, times in parts)
    lattice = CommonLattice(smallest / steps_of_smallest, nodes)
    if lattice.is_within_rounding() and 2 * reach <= MOST_LATTICE_CELLS:
        return lattice
    return None
