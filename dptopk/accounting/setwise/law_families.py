"""Families of laws with one large loss, the best plays of a concentrated cost.

Of the losses with E[e^{-L}] = 1 and all moments within the class, those that are worth most have a
rare large value, as likely as the class allows, and one other value, as the linear program of the
step shows (``moment_program``); for CDP, whose moments are about its own mean, a third one below 0
lets the mean be large. So one family of laws, found once for a class, takes the place of a program
at each x. From below its laws are played (``playable_laws``). From above, the order λ at which the
moment of the best one is at its limit is that of a majorant a + βw + γw^{-λ}, whose multipliers
are found by the simplex method for many x's at once (``step_program``). Nothing here is trusted,
as in the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.law_moments import LawShapes, with_largest_masses
from dptopk.accounting.setwise.moment_program import (
    LARGEST_SCALE,
    MomentClass,
    Nodes,
    ProgramSolution,
    ValueFunction,
)


@dataclass(frozen=True)
class LawFamily:
    """Laws of a loss on multiples of h, none of which is proven to be in its class.

    Attributes:
        losses: the losses in multiples of h, shape (laws, outcomes); the first is the large one.
        masses: their probabilities under P, with E[e^{-L}] = 1.
        orders: for each law, the order at which its moment is nearest to its limit.
        reversed_orders: the same with the neighbours swapped.
    """

    losses: Nodes
    masses: Floats
    orders: Floats
    reversed_orders: Floats

    def values(self, value: ValueFunction, last: int) -> Floats:
        """Return E[V(x - L)] at the nodes 0, ..., last, for each law; shape (laws, nodes).

        Args:
            value: V of what is left.
            last: the last node.
        """
        lowest = -int(self.losses.max())
        highest = last - int(self.losses.min())
        value_at_nodes = value.at(np.arange(lowest, highest + 1))
        # For a loss of l nodes, V at the nodes -l, ..., last - l is one window.
        windows = np.lib.stride_tricks.sliding_window_view(value_at_nodes, last + 1)
        starts = -self.losses - lowest
        values = np.zeros((len(self.losses), last + 1))
        for outcome in range(self.losses.shape[1]):
            values += self.masses[:, outcome, None] * windows[starts[:, outcome]]
        return values

    def where(self, places: NDArray[np.bool_]) -> LawFamily:
        """Return the laws at the places that are true."""
        return LawFamily(
            self.losses[places],
            self.masses[places],
            self.orders[places],
            self.reversed_orders[places],
        )

    def with_idle_outcome(self, shares: Floats) -> LawFamily:
        """Return the laws mixed with one that says nothing: each law is played with the probability
        of its share, and otherwise the loss is 0, which is one more outcome.

        Args:
            shares: from 0 to 1, one for each law; laws with a share of 0 are left out.
        """
        idle = 1 - shares
        losses = np.concatenate([self.losses, np.zeros((len(shares), 1), dtype=np.int64)], axis=1)
        masses = np.concatenate([self.masses * shares[:, None], idle[:, None]], axis=1)
        laws = LawFamily(losses, masses, self.orders, self.reversed_orders)
        return laws.where(shares > 0)


@lru_cache(maxsize=32)
def law_family(moments: MomentClass, h: float, largest: float) -> LawFamily:
    """Return laws of a class, with large losses of all sizes, each with every low loss.

    Args:
        moments: the class.
        h: the distance of two nodes.
        largest: the largest loss.
    """
    deviation = moments.deviation
    per_deviation = tuning.LAWS_PER_DEVIATION
    if moments.centred:
        per_deviation = tuning.CENTRED_LAWS_PER_DEVIATION
    step = max(round(deviation / per_deviation / h), 1)
    large = np.arange(step, math.ceil(largest / h) + 1, step)
    low = _low_losses(moments, h)
    number_of_low = len(low.nodes)
    shapes = LawShapes(
        large=np.repeat(large * h, number_of_low),
        log_masses=np.zeros(len(large) * number_of_low),  # found by ``_family_of``
        low=np.tile(low.nodes * h, len(large)),
        low_masses=np.tile(low.masses, len(large)),
    )
    return _family_of(shapes, moments, h)


def _family_of(shapes: LawShapes, moments: MomentClass, h: float) -> LawFamily:
    """Return the laws of some shapes, with large losses as likely as the class allows, on nodes.

    Args:
        shapes: the losses of the laws; the probabilities of the large ones are found here.
        moments: the class.
        h: the distance of two nodes.
    """
    largest = float(shapes.large.max())
    first = tuning.LEAST_LAW_ORDER / moments.deviation
    # Beyond about largest / ρ no moment exceeds its limit, which is e^{λ²ρ} at least.
    last = 2 * (largest + moments.deviation) / moments.rho
    orders = np.geomspace(first, last, tuning.LAW_ORDERS)
    laws = with_largest_masses(shapes, moments, orders)
    # Where no probability fits, that of the large loss has become almost 0.
    possible = laws.shapes.log_masses > -LARGEST_SCALE
    losses, masses = _on_nodes(laws.shapes.where(possible), h)
    return LawFamily(losses, masses, laws.orders[possible], laws.reversed_orders[possible])


def _on_nodes(shapes: LawShapes, h: float) -> tuple[Nodes, Floats]:
    """Return laws on nodes: their losses in multiples of h and the probabilities of these, both of
    shape (laws, 4). The third loss of a law becomes two, the nodes around it.
    """
    third = shapes.third_losses
    below_third = np.floor(third / h).astype(np.int64)
    # The third loss is split so that E[e^{-L}] stays: the larger node gets this share of it.
    share_of_larger = -np.expm1(-(third - below_third * h)) / -math.expm1(-h)
    mass_of_third = 1 - shapes.masses - shapes.low_masses
    low_nodes = np.rint(shapes.low / h).astype(np.int64)
    large_nodes = np.rint(shapes.large / h).astype(np.int64)
    losses = np.stack([large_nodes, low_nodes, below_third + 1, below_third], axis=1)
    masses = [
        shapes.masses,
        shapes.low_masses,
        mass_of_third * share_of_larger,
        mass_of_third * (1 - share_of_larger),
    ]
    return losses, np.stack(masses, axis=1)


def family_near(
    solutions: Sequence[ProgramSolution], moments: MomentClass, h: float
) -> LawFamily | None:
    """Return laws of centred losses near those that solve programs; None where there are none.

    Of each solution the mean of the largest losses and the mean of the lowest ones are taken, as
    the large and the low loss of a law. The low one is played a little less often as well, because
    the programs know few orders, and their solutions need not be in the class.

    Args:
        solutions: the solutions of the programs.
        moments: the class.
        h: the distance of two nodes.
    """
    large: list[float] = []
    low: list[float] = []
    low_masses: list[float] = []
    # Losses within this distance of the largest one, or of the lowest one, are taken together.
    width = moments.deviation / 4
    for solution in solutions:
        losses = solution.x - solution.nodes * h
        is_large = losses > losses.max() - width
        is_low = losses < min(losses.min() + width, 0.0)
        if losses.max() < width or is_large.all():  # a law without a large loss
            continue
        mean_of_large = float(np.average(losses[is_large], weights=solution.masses[is_large]))
        # First a law without a low loss.
        large.append(max(round(mean_of_large / h), 1) * h)
        low.append(0.0)
        low_masses.append(0.0)
        if not is_low.any() or (is_large | is_low).all():  # without a low loss or a third one
            continue
        mean_of_low = float(np.average(losses[is_low], weights=solution.masses[is_low]))
        for share in tuning.SHARES_OF_LOW:
            large.append(large[-1])
            low.append(round(mean_of_low / h) * h)
            low_masses.append(float(solution.masses[is_low].sum()) * share)
    if not large:
        return None
    shapes = LawShapes(np.array(large), np.zeros(len(large)), np.array(low), np.array(low_masses))
    return _family_of(shapes, moments, h)


class _LowLosses(NamedTuple):
    """The low losses of a family of laws, one entry for each.

    Attributes:
        nodes: the losses in multiples of h.
        masses: their probabilities.
    """

    nodes: Nodes
    masses: Floats


def _low_losses(moments: MomentClass, h: float) -> _LowLosses:
    """Return the low losses with which the laws of a class are tried: none, which is a loss of 0
    with the probability 0, and for centred losses several, below 0.

    Each has the probability with which a law of it and one other loss, without a large one, has a
    mean that is a given share of the largest of the class.

    Args:
        moments: the class.
        h: the distance of two nodes.
    """
    low = [0]
    masses = [0.0]
    if moments.centred:
        for deviations in tuning.LOW_LOSSES:
            node = -max(round(deviations * moments.deviation / h), 1)
            for share in tuning.SHARES_OF_MEAN:
                mass = _mass_for_mean(node * h, share * moments.mean)
                if mass > 0:
                    low.append(node)
                    masses.append(mass)
    return _LowLosses(np.array(low), np.array(masses))


def _mass_for_mean(low: float, mean: float) -> float:
    """Return the probability of a low loss with which a law with two outcomes has a given mean
    loss; 0 where there is none. It is found by halving.

    Args:
        low: the low loss, below 0; the other one makes E[e^{-L}] = 1.
        mean: the mean loss, above 0.
    """
    largest = math.exp(low)  # beyond, the other loss is infinite
    below = 0.0
    above = largest
    for _ in range(60):  # to the last digit of a float
        middle = (below + above) / 2
        if middle >= largest:
            return 0.0
        other_loss = math.log1p(-middle) - math.log1p(-middle * math.exp(-low))
        if middle * low + (1 - middle) * other_loss < mean:
            below = middle
        else:
            above = middle
    return below
