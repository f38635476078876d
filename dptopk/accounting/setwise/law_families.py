"""Laws with one large loss, the best plays of a concentrated cost, and the steps that they suggest.

Of the losses with E[e^{-L}] = 1 and all moments within the class, those that are worth most have a
rare large value, as likely as the class allows, and one other value, as the linear program of the
step shows (``moment_program``); for CDP, whose moments are about its own mean, a third one below 0
lets the mean be large. So one family of laws, found once for a class, takes the place of a program
at each x. From below its laws are played (``playable_laws``). From above, the order λ at which the
moment of the best one is at its limit is that of a majorant a + βw + γw^{-λ}, whose multipliers
are found by the simplex method for many x's at once. Nothing here is trusted, as in the program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    LARGEST_SCALE,
    Constraint,
    MomentClass,
    Nodes,
    ProgramSolution,
    ValueFunction,
)

LEAST_FALL = 1e-12  # of a mass in a simplex step: less is rounding
STILL_UNSOLVED = 0.7  # programs are gone on without the solved ones where fewer are left
MULTIPLIER_ROUNDING = 1e-9  # relative, far above the rounding of a multiplier


@dataclass(frozen=True)
class LawFamily:
    """Laws of a loss on multiples of h.

    Attributes:
        losses: the losses in multiples of h, shape (laws, outcomes).
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
        table = value.at(np.arange(lowest, highest + 1))
        windows = np.lib.stride_tricks.sliding_window_view(table, last + 1)
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
        """Return the laws, each with one more outcome, which has a loss of 0 and what a share of
        the law leaves; laws without a share are left out.
        """
        idle = 1 - shares
        losses = np.concatenate([self.losses, np.zeros((len(shares), 1), dtype=np.int64)], axis=1)
        masses = np.concatenate([self.masses * shares[:, None], idle[:, None]], axis=1)
        laws = LawFamily(losses, masses, self.orders, self.reversed_orders)
        return laws.where(shares > 0)


@dataclass(frozen=True)
class _Shapes:
    """Laws with three outcomes: a large loss, a low one below 0, and the loss with which
    E[e^{-L}] = 1. One entry a law.

    Attributes:
        large: the large losses.
        log_masses: the logarithms of their probabilities.
        low: the low losses.
        low_masses: their probabilities, perhaps 0.
    """

    large: Floats
    log_masses: Floats
    low: Floats
    low_masses: Floats

    @property
    def masses(self) -> Floats:
        """Return the probabilities of the large losses."""
        masses: Floats = np.exp(self.log_masses)
        return masses

    @property
    def third_losses(self) -> Floats:
        """Return the third loss of each law."""
        masses = self.masses
        under_q = masses * np.exp(-self.large) + self.low_masses * np.exp(-self.low)
        with np.errstate(invalid="ignore", divide="ignore"):
            others: Floats = np.log1p(-masses - self.low_masses) - np.log1p(-under_q)
        return others

    def where(self, places: NDArray[np.bool_]) -> _Shapes:
        """Return the laws at the places that are true."""
        return _Shapes(
            self.large[places],
            self.log_masses[places],
            self.low[places],
            self.low_masses[places],
        )


@lru_cache(maxsize=32)
def law_family(moments: MomentClass, h: float, largest: float) -> LawFamily:
    """Return laws of a class, with large losses of all sizes.

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
    low, low_masses = _low_losses(moments, h)
    number = len(low)
    shapes = _Shapes(
        np.repeat(large * h, number),
        np.zeros(len(large) * number),
        np.tile(low * h, len(large)),
        np.tile(low_masses, len(large)),
    )
    return _family_of(shapes, moments, h)


def _family_of(shapes: _Shapes, moments: MomentClass, h: float) -> LawFamily:
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
    shapes, decisive = _with_largest_masses(shapes, moments, orders)
    possible = shapes.log_masses > -LARGEST_SCALE
    laws = shapes.where(possible)
    losses, masses = _on_nodes(laws, h)
    return LawFamily(losses, masses, decisive[0][possible], decisive[1][possible])


def _on_nodes(shapes: _Shapes, h: float) -> tuple[Nodes, Floats]:
    """Return the losses of laws in multiples of h, and their probabilities."""
    others = shapes.third_losses
    right = np.floor(others / h).astype(np.int64)
    # The third loss is split onto the nodes around it, so that E[e^{-L}] stays.
    share = -np.expm1(-(others - right * h)) / -math.expm1(-h)
    rest = 1 - shapes.masses - shapes.low_masses
    low_nodes = np.rint(shapes.low / h).astype(np.int64)
    large_nodes = np.rint(shapes.large / h).astype(np.int64)
    losses = np.stack([large_nodes, low_nodes, right + 1, right], axis=1)
    masses = [shapes.masses, shapes.low_masses, rest * share, rest * (1 - share)]
    return losses, np.stack(masses, axis=1)


def family_near(
    solutions: Sequence[ProgramSolution], moments: MomentClass, h: float
) -> LawFamily | None:
    """Return laws of centred losses near those that solve programs; None where there are none.

    Of each solution the losses above and below all others are taken; the low one is played a little
    less often as well, because the programs know few orders.

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
        top = losses > losses.max() - width
        bottom = losses < min(losses.min() + width, 0.0)
        if losses.max() < width or top.all():  # a law without a large loss
            continue
        of_top = float(np.average(losses[top], weights=solution.masses[top]))
        large.append(max(round(of_top / h), 1) * h)
        low.append(0.0)
        low_masses.append(0.0)
        if not bottom.any() or (top | bottom).all():  # a law without a low loss or a third one
            continue
        of_bottom = float(np.average(losses[bottom], weights=solution.masses[bottom]))
        for share in tuning.SHARES_OF_LOW:
            large.append(large[-1])
            low.append(round(of_bottom / h) * h)
            low_masses.append(float(solution.masses[bottom].sum()) * share)
    if not large:
        return None
    shapes = _Shapes(np.array(large), np.zeros(len(large)), np.array(low), np.array(low_masses))
    return _family_of(shapes, moments, h)


def _low_losses(moments: MomentClass, h: float) -> tuple[Nodes, Floats]:
    """Return low losses, as nodes, and their probabilities in laws without a large loss, for
    several means; the first one has probability 0.
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
    return np.array(low), np.array(masses)


def _mass_for_mean(low: float, mean: float) -> float:
    """Return the probability of a low loss with which the mean loss of a law with two outcomes is
    ``mean``; 0 where there is none.
    """
    largest = math.exp(low)  # beyond, the other loss is infinite
    below = 0.0
    above = largest
    for _ in range(60):  # to the last digit of a float
        middle = (below + above) / 2
        if middle >= largest:
            return 0.0
        other = math.log1p(-middle) - math.log1p(-middle * math.exp(-low))
        if middle * low + (1 - middle) * other < mean:
            below = middle
        else:
            above = middle
    return below


@dataclass(frozen=True)
class _Excess:
    """How far the moments of laws exceed their limits, on orders of each law.

    Attributes:
        forth: by which share of the room that the limit leaves a moment with exponent λ (or -λ)
            exceeds it, shape (laws, orders).
        back: the same with the neighbours swapped.
        mean: by how much the larger mean exceeds the largest of the class, in deviations.
    """

    forth: Floats
    back: Floats
    mean: Floats

    @property
    def largest(self) -> Floats:
        """Return the largest excess of each law."""
        of_orders = np.maximum(self.forth.max(axis=1), self.back.max(axis=1))
        return np.maximum(of_orders, self.mean)


def _excess(moments: MomentClass, shapes: _Shapes, orders: Floats) -> _Excess:
    """Return by how much the moments of each law exceed their limits.

    Args:
        moments: the class.
        shapes: the laws.
        orders: of all laws, or of each law, shape (laws, orders).
    """
    laws = _Outcomes.of(shapes)
    orders = np.broadcast_to(orders, (len(laws.possible), orders.shape[-1]))
    forth, back = (
        np.maximum.reduce([side.excess(moments, orders, sign) for sign in _signs(moments)])
        for side in (laws, laws.swapped)
    )
    impossible = ~laws.possible[:, np.newaxis]
    return _Excess(
        np.where(impossible, np.inf, forth),
        np.where(impossible, np.inf, back),
        laws.excess_of_mean(moments),
    )


def _fits(moments: MomentClass, shapes: _Shapes, orders: Floats) -> NDArray[np.bool_]:
    """Return which laws exceed no limit (``_excess``), but for rounding.

    A law that exceeds one limit is not compared with the next ones, which saves about a third of
    the exponentials.

    Args:
        moments: the class.
        shapes: the laws.
        orders: of all laws, or of each law, shape (laws, orders).
    """
    laws = _Outcomes.of(shapes)
    orders = np.broadcast_to(orders, (len(laws.possible), orders.shape[-1]))
    fits = laws.possible & (laws.excess_of_mean(moments) <= tuning.LAW_TOLERANCE)
    for side in (laws, laws.swapped):
        for sign in _signs(moments):
            left = np.flatnonzero(fits)
            excess = side.at(left).excess(moments, orders[left], sign)
            fits[left] = (excess <= tuning.LAW_TOLERANCE).all(axis=1)
    return fits


def _signs(moments: MomentClass) -> tuple[int, ...]:
    """Return the signs of the exponents whose moments a class limits: 1, and -1 of centred
    losses.
    """
    return (1, -1) if moments.centred else (1,)


@dataclass(frozen=True)
class _Outcomes:
    """The outcomes of laws under one of the neighbours.

    Attributes:
        losses: shape (outcomes, laws).
        weights: their probabilities.
        possible: whether all losses of a law are finite numbers; where not, they count as 0.
    """

    losses: Floats
    weights: Floats
    possible: NDArray[np.bool_]

    @classmethod
    def of(cls, shapes: _Shapes) -> _Outcomes:
        """Return the outcomes of some laws."""
        losses = np.stack([shapes.large, shapes.low, shapes.third_losses])
        # A law whose third loss is not a finite number is out of the question.
        possible = np.isfinite(losses.sum(axis=0))
        rest = np.maximum(1 - shapes.masses - shapes.low_masses, 0.0)
        weights = np.stack([shapes.masses, shapes.low_masses, rest])
        return cls(np.where(possible, losses, 0.0), weights, possible)

    @property
    def swapped(self) -> _Outcomes:
        """Return the outcomes with the neighbours swapped."""
        return _Outcomes(-self.losses, self.weights * np.exp(-self.losses), self.possible)

    @property
    def mean(self) -> Floats:
        """Return the mean loss of each law."""
        means: Floats = (self.losses * self.weights).sum(axis=0)
        return means

    def at(self, places: NDArray[np.int64]) -> _Outcomes:
        """Return the outcomes of the laws at some places."""
        return _Outcomes(self.losses[:, places], self.weights[:, places], self.possible[places])

    def excess_of_mean(self, moments: MomentClass) -> Floats:
        """Return by how much the larger mean of each law exceeds that of the class, in deviations;
        -inf where the class has none.
        """
        if not moments.centred:
            return np.full(len(self.possible), -np.inf)
        larger = np.maximum(self.mean, self.swapped.mean)
        excess: Floats = (larger - moments.mean) / moments.deviation
        return excess

    def excess(self, moments: MomentClass, orders: Floats, sign: int) -> Floats:
        """Return by which share of its room each moment exceeds its limit, shape (laws, orders).

        Args:
            moments: the class.
            orders: λ > 0, shape (laws, orders).
            sign: 1, or -1 for the moments with exponents -λ, which centred losses have.
        """
        if moments.centred:
            room = moments.rho * orders**2
            limits = sign * orders * self.mean[:, None] + room
        else:
            room = moments.log_moment(orders)
            limits = room
        total = np.zeros(orders.shape)
        for loss, weight in zip(self.losses, self.weights, strict=True):
            logs = sign * orders * loss[:, None] - limits
            total += weight[:, None] * np.exp(np.minimum(logs, LARGEST_EXPONENT))
        excess: Floats = (total - 1) / -np.expm1(-room)
        return excess


def _with_largest_masses(
    shapes: _Shapes, moments: MomentClass, orders: Floats
) -> tuple[_Shapes, list[Floats]]:
    """Return the laws with large losses as likely as the class allows, and the orders that decide
    for each, with the neighbours in either order.

    Args:
        shapes: the laws.
        moments: the class.
        orders: the orders at which moments are compared first, in equal ratios.
    """
    # ln p between far below where ``_family_of`` drops a law, and almost 0.
    lowest = np.full(len(shapes.large), -2 * LARGEST_SCALE)
    ends = (lowest, np.full(len(lowest), -1e-6))
    shapes = _with_masses_between(shapes, moments, orders, ends, tuning.LAW_HALVINGS)
    excess = _excess(moments, shapes, orders)
    # Again at finer orders about those that decided.
    near = np.linspace(-1.0, 1.0, tuning.LAW_ORDERS_NEAR) * math.log(orders[1] / orders[0])
    near_orders = [
        _deciding_orders(orders, side) * np.exp(near) for side in (excess.forth, excess.back)
    ]
    ends = (shapes.log_masses - tuning.LAW_RETREAT, shapes.log_masses)
    both = np.concatenate(near_orders, axis=1)
    shapes = _with_masses_between(shapes, moments, both, ends, tuning.LAW_HALVINGS)
    decisive = [
        _deciding_orders(of_law, side)[:, 0]
        for of_law, side in (
            (near_orders[0], _excess(moments, shapes, near_orders[0]).forth),
            (near_orders[1], _excess(moments, shapes, near_orders[1]).back),
        )
    ]
    return shapes, decisive


def _deciding_orders(orders: Floats, excess: Floats) -> Floats:
    """Return the order with the largest excess of each law, shape (laws, 1)."""
    places = np.argmax(excess, axis=1)[:, None]
    deciding: Floats = np.take_along_axis(np.broadcast_to(orders, excess.shape), places, axis=1)
    return deciding


def _with_masses_between(
    shapes: _Shapes,
    moments: MomentClass,
    orders: Floats,
    ends: tuple[Floats, Floats],
    halvings: int,
) -> _Shapes:
    """Return the laws with the largest probabilities, between two ends of their logarithms, that
    fit the class at some orders.

    Args:
        shapes: the laws.
        moments: the class.
        orders: the orders at which moments are compared, of all laws or of each.
        ends: the ends of ln p of each law; the lower one is taken where nothing between them fits.
        halvings: of the range between them.
    """
    low, high = ends
    for _ in range(halvings):
        middle = (low + high) / 2
        tried = _Shapes(shapes.large, middle, shapes.low, shapes.low_masses)
        fits = _fits(moments, tried, orders)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return _Shapes(shapes.large, low, shapes.low, shapes.low_masses)


# ---- the step from above


def step_solutions(
    moments: MomentClass, value: ValueFunction, nodes: Nodes, family: LawFamily
) -> list[ProgramSolution]:
    """Return solutions of the step's program at some nodes, with the moments of the best law's
    orders, and of centred losses and those with a small mean (ξ < 0) with a few orders that these
    solutions violate.

    Args:
        moments: the class.
        value: upper bounds on V of what is left.
        nodes: x of each program, in multiples of h, at least 0.
        family: the laws of the class.
    """
    best = np.argmax(family.values(value, int(nodes.max()))[:, nodes], axis=0)
    large = nodes - family.losses[best, 0]
    forth = [family.orders[best]]
    back = [family.reversed_orders[best]]
    program = _StepProgram(moments, value, nodes, _Orders(forth, back))
    program.solve(large)
    if moments.centred:
        more_orders = tuning.MORE_ORDERS
    elif moments.xi < 0:
        # The limit on the mean, that of small orders, decides beside that of a large order.
        more_orders = tuning.MORE_ORDERS_UNCENTRED
    else:
        more_orders = 0
    for _ in range(more_orders):
        more = program.violated_orders()
        forth.append(more[0])
        back.append(more[1])
        program = _StepProgram(moments, value, nodes, _Orders(forth, back))
        program.solve(large)
    return program.solutions()


@dataclass(frozen=True)
class _Orders:
    """The orders of the moments in programs at several x's.

    Attributes:
        forth: orders λ of E[e^{λL}], each an array of one for each x.
        back: orders of the moments with the neighbours swapped, which centred losses have.
    """

    forth: Sequence[Floats]
    back: Sequence[Floats]


def _inverses(matrices: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the inverse of each matrix, and whether it has none: then it is that of the identity,
    and is not used.
    """
    singular = np.linalg.slogdet(matrices)[0] == 0
    matrices[singular] = np.eye(matrices.shape[-1])
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64), singular


def _first_to_fall(masses: Floats, inverse: Floats, entering: Floats) -> NDArray[np.intp]:
    """Return the place of the mass that falls to 0 first, for each program; what falls by rounding
    alone stays.

    Args:
        masses: of the columns in use.
        inverse: of the matrix of these columns.
        entering: the column that comes into use.
    """
    falls = (inverse @ entering[:, :, None])[:, :, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(falls > LEAST_FALL, np.maximum(masses, 0.0) / falls, np.inf)
    return np.argmin(ratios, axis=1)


class _StepProgram:
    """Programs max E[V(x - L)] for several x's, by the simplex method.

    The constraints are E 1 = 1, E[1 - e^{-L}] = 0 and E[e^{λL} - 1] <= e^{K(λ)} - 1 at some orders.
    Of centred losses with means m of L and m' of -L under the other neighbour, both in [0, M], the
    moment is at most e^{λ²ρ + λm}, which is convex in m and so below its chord over [0, M]; the
    constraints are m <= M, m' <= M, and that the moments of some orders are below these chords.

    Attributes:
        columns: for each x, the coefficients in the constraints of the masses of all losses, of
            slacks, and of centred losses the two ``_rising_columns``; shape (x's, constraints,
            columns).
        worth: what each mass is worth.
        basis: the places of the columns that are in use, as many as constraints.
        multipliers: of the constraints.
        masses: of the columns in use.
        failed: whether the method failed at an x.
    """

    def __init__(
        self, moments: MomentClass, value: ValueFunction, nodes: Nodes, orders: _Orders
    ) -> None:
        """Lay out the columns, scaled to coefficients of at most 1 where they are not too large."""
        self.moments = moments
        self.nodes = nodes
        self.h = value.h
        self.orders = orders
        deviation = moments.deviation
        self.first = math.floor(-tuning.PROGRAM_LEFT * deviation / self.h)
        self.reach = math.ceil(tuning.PROGRAM_RIGHT * deviation / self.h)
        last = int(nodes.max()) + self.reach
        places = np.arange(self.first, last + 1)
        self.losses = len(places)
        losses = (nodes[:, None] - places).astype(np.float64) * self.h
        coefficients = np.stack(self._constraint_rows(losses), axis=1)
        self.number = coefficients.shape[1]
        # Losses beyond a program's own reach have columns of zeros.
        within = places <= nodes[:, None] + self.reach
        sizes = np.abs(coefficients).max(axis=1)
        self.scales = within / np.minimum(sizes, tuning.LARGEST_COEFFICIENT)
        self.columns = self._all_columns(coefficients * self.scales[:, None, :])
        worth = value.at(places) * self.scales
        no_worth = np.zeros((len(nodes), self.columns.shape[2] - self.losses))
        self.worth = np.concatenate([worth, no_worth], axis=1)
        # ``solve`` sets these.
        self.basis: NDArray[np.int64] = np.zeros((len(nodes), self.number), dtype=np.int64)
        self.multipliers: Floats = np.zeros((len(nodes), self.number))
        self.masses: Floats = np.zeros((len(nodes), self.number))
        self.failed: NDArray[np.bool_] = np.zeros(len(nodes), dtype=np.bool_)

    def _all_columns(self, of_losses: Floats) -> Floats:
        """Return the columns of losses, followed by those of slacks and, of centred losses, by the
        rising columns.

        The first two constraints are equations, and have no slacks.

        Args:
            of_losses: shape (x's, constraints, losses).
        """
        slacks = np.vstack([np.zeros((2, self.number - 2)), np.eye(self.number - 2)])
        columns = [of_losses, np.broadcast_to(slacks, (len(self.nodes), *slacks.shape))]
        if self.moments.centred:
            columns += self._rising_columns()
        return np.concatenate(columns, axis=2)

    def _constraint_rows(self, losses: Floats) -> list[Floats]:
        """Return what a mass of 1 at each loss adds to each constraint, on 1, on E[1 - e^{-L}], of
        centred losses on both means, and on the moments; every limit but that on 1 - e^{-L}, which
        is 0, is scaled to 1.

        Args:
            losses: of each program, shape (x's, losses).
        """
        moments = self.moments
        rows = [np.ones_like(losses), -np.expm1(-losses) / moments.deviation]
        if moments.centred:
            rows += [losses / moments.mean, -losses * np.exp(-losses) / moments.mean]
        rows += [self._moment(order[:, None], losses, 1) for order in self.orders.forth]
        if moments.centred:
            rows += [self._moment(order[:, None], losses, -1) for order in self.orders.back]
        return rows

    def _moment(self, orders: Floats, losses: Floats, sign: int) -> Floats:
        """Return what each loss adds to a moment, and of centred losses to a moment less its chord,
        of which at most 1 is allowed.

        With s = e^{-λ²ρ} and the chord 1 + k m over e^{λm} (``_chord``), E[e^{λL}] <= e^{λ²ρ} (1 +
        k m) and m = E L make s E[e^{λL} - 1] - k E L <= 1 - s; both sides are divided by 1 - s.

        Args:
            orders: λ, in a shape that goes with that of the losses.
            losses: L.
            sign: 1, or -1 with the neighbours swapped.
        """
        powers = np.minimum(sign * orders * losses, LARGEST_EXPONENT)
        if not self.moments.centred:
            return np.asarray(np.expm1(powers) / self._largest_moments(orders))
        small, slope = self._chord(orders)
        moment: Floats = (small * np.expm1(powers) - slope * sign * losses) / (1 - small)
        if sign < 0:
            moment = moment * np.exp(-losses)
        return moment

    def _largest_moments(self, orders: Floats) -> Floats:
        """Return the limit e^{K(λ)} - 1 of E[e^{λL} - 1] at each order λ, for losses that are not
        centred.
        """
        logs = np.minimum(self.moments.log_moment(orders), LARGEST_EXPONENT)
        return np.asarray(np.expm1(logs))

    def _rising_columns(self) -> list[Floats]:
        """Return two columns with which the majorant F of centred losses rises at the last node.

        A column that is worth 0 demands of the multipliers that their sum over the column is at
        least 0. These columns are the derivatives of the constraints in t = e^{-L} at the last
        node, so that this sum is F' there: of one column the whole, of the other without the part
        -c/t of L, which ``Majorant.with_rising_slope_at`` leaves out where c < 0. So it needs to
        add little, for any sign of c.
        """
        y = np.full(len(self.nodes), self.reach * self.h)
        t = np.exp(y)
        deviation = self.moments.deviation
        mean = self.moments.mean
        columns = []
        for share in (0.0, 1.0):
            of_l = -share / t
            of_product = 1 + y
            rows = [np.zeros_like(t), np.full_like(t, -1 / deviation)]
            rows += [of_l / mean, of_product / mean]
            for order in self.orders.forth:
                small, slope = self._chord(order)
                power = -order * np.exp(-np.minimum((1 + order) * y, LARGEST_EXPONENT))
                rows.append((small * power - slope * of_l) / (1 - small))
            for order in self.orders.back:
                small, slope = self._chord(order)
                power = (1 + order) * np.exp(np.minimum(order * y, LARGEST_EXPONENT)) - 1
                rows.append((small * power - slope * of_product) / (1 - small))
            column = np.stack(rows, axis=1)
            size = np.abs(column).max(axis=1, keepdims=True)
            columns.append((column / size)[:, :, None])
        return columns

    def _chord(self, orders: Floats) -> tuple[Floats, Floats]:
        """Return e^{-λ²ρ}, and the slope of the chord of e^{λm} over the possible means m, from 0
        to that of the class, at each order λ.
        """
        small = np.exp(-np.minimum(orders**2 * self.moments.rho, LARGEST_EXPONENT))
        powers = np.minimum(orders * self.moments.mean, LARGEST_EXPONENT)
        slope = np.expm1(powers) / self.moments.mean
        return small, slope

    def solve(self, large: Nodes) -> None:
        """Solve the programs, from the law that says nothing on.

        The first columns in use are those of the losses 0 and about ``large``, with masses of about
        1 and 0, and all slacks.

        Args:
            large: the node after the large loss of a law that is nearly the best, for each x.
        """
        each = np.arange(len(self.nodes))
        at_large = np.clip(large - self.first, 0, self.losses - 1)
        slacks = self.losses + np.arange(self.number - 2)
        in_use = np.broadcast_to(slacks, (len(each), self.number - 2))
        self.basis = np.concatenate(
            [(self.nodes - self.first)[:, None], at_large[:, None], in_use], axis=1
        )
        # Programs of which some are not solved yet, with their columns and what these are worth.
        unsolved = each
        columns = self.columns
        worth = self.worth
        for _ in range(tuning.SIMPLEX_STEPS):
            better = self._exchange(unsolved, columns, worth)
            if not better.any():
                break
            # A solved program stays as it is; leaving it out copies the columns of the others.
            if np.count_nonzero(better) < STILL_UNSOLVED * len(better):
                unsolved = unsolved[better]
                columns = columns[better]
                worth = worth[better]

    def _exchange(
        self, programs: NDArray[np.int64], columns: Floats, worth: Floats
    ) -> NDArray[np.bool_]:
        """Bring the most promising column of some programs into use; return where there was one.

        Args:
            programs: the places of the programs.
            columns: the columns of each.
            worth: what the masses of each are worth.
        """
        each = np.arange(len(programs))
        basis = self.basis[programs]
        inverse, singular = _inverses(np.take_along_axis(columns, basis[:, None, :], axis=2))
        self.failed[programs] |= singular
        worth_of_used = np.take_along_axis(worth, basis, axis=1)
        masses = inverse @ self._right_sides()
        multipliers = (worth_of_used[:, None, :] @ inverse)[:, 0, :]
        gains = worth - (multipliers[:, None, :] @ columns)[:, 0, :]
        entering = np.argmax(gains, axis=1)
        attained = (masses * worth_of_used).sum(axis=1)
        better: NDArray[np.bool_] = gains[each, entering] > tuning.PROGRAM_TOLERANCE * attained
        better &= ~singular
        places = each, _first_to_fall(masses, inverse, columns[each, :, entering])
        basis[places] = np.where(better, entering, basis[places])
        self.basis[programs] = basis
        self.masses[programs] = masses
        self.multipliers[programs] = multipliers
        return better

    def _right_sides(self) -> Floats:
        """Return the right sides of the constraints, moved apart a little: ties would keep the
        method at one vertex.
        """
        right = np.ones(self.number)
        right[1] = 0.0
        right[1:] += tuning.UNTIED * np.sqrt(np.arange(1, self.number))
        return right

    def violated_orders(self) -> tuple[Floats, Floats]:
        """Return the orders, in both directions, whose moments exceed their limits most; those of
        the other direction are used for centred losses only.
        """
        played = self.basis < self.losses
        places = np.where(played, self.basis, 0)
        scales = np.take_along_axis(self.scales, places, axis=1)
        masses = np.where(played, np.maximum(self.masses, 0.0) * scales, 0.0)[:, :, None]
        own_losses = (self.nodes[:, None] - self.first - places).astype(np.float64) * self.h
        losses = own_losses[:, :, None]
        deviation = self.moments.deviation
        # In units of 1/deviation the orders that matter are neither very small nor very large; any
        # choice is sound.
        orders = np.geomspace(0.05 / deviation, 12.0 / deviation, tuning.LAW_ORDERS)
        worst = []
        for sign in (1, -1):
            excess = (self._moment(orders, losses, sign) * masses).sum(axis=1)
            worst.append(orders[np.argmax(excess, axis=1)])
        return worst[0], worst[1]

    def solutions(self) -> list[ProgramSolution]:
        """Return the solutions, with multipliers of moments that are not negative."""
        terms = self._terms()
        finite = np.isfinite(self.multipliers).all(axis=1) & ~self.failed
        orders = [(order, False) for order in self.orders.forth]
        if self.moments.centred:
            orders += [(order, True) for order in self.orders.back]
        solutions = []
        for place in np.flatnonzero(finite).tolist():
            played = (self.basis[place] < self.losses) & (self.masses[place] > 0)
            used = self.basis[place][played]
            constraints = [Constraint(float(of_x[place]), back) for of_x, back in orders]
            solution = ProgramSolution(
                x=float(self.nodes[place] * self.h),
                nodes=used + self.first,
                masses=self.masses[place][played] * self.scales[place][used],
                constant=float(terms.constant[place]),
                slope=float(terms.slope[place]),
                constraints=tuple(constraints),
                weights=terms.weights[place],
                compared=np.arange(self.first, self.nodes[place] + self.reach + 1),
                linear=float(terms.linear[place]),
                reversed_linear=float(terms.reversed_linear[place]),
            )
            solutions.append(solution)
        return solutions

    def _terms(self) -> _Terms:
        """Return the functions that the multipliers make.

        The multipliers y are in the order of ``_constraint_rows``.
        """
        y = self.multipliers.T.copy()
        y[2:] = np.maximum(y[2:], 0.0)
        slope = -y[1] / self.moments.deviation
        constant = y[0] - slope
        if not self.moments.centred:
            weights = y[2:].T / self._largest_moments(np.stack(self.orders.forth, axis=1))
            return _Terms(constant - weights.sum(axis=1), slope, weights, 0 * slope, 0 * slope)
        # Four multipliers are of the constraints on 1, on E[1 - e^{-L}] and on the two means.
        first_back = 4 + len(self.orders.forth)
        forth, linear = self._moment_terms(self.orders.forth, y[4:first_back])
        back, reversed_linear = self._moment_terms(self.orders.back, y[first_back:])
        reversed_linear = y[3] / self.moments.mean - reversed_linear
        # Rounding must not leave a concave part that nothing balances.
        noise = np.abs(reversed_linear) < MULTIPLIER_ROUNDING * np.abs(constant)
        return _Terms(
            constant - forth.sum(axis=1),
            slope - back.sum(axis=1),
            np.concatenate([forth, back], axis=1),
            y[2] / self.moments.mean - linear,
            np.where(noise, np.maximum(reversed_linear, 0.0), reversed_linear),
        )

    def _moment_terms(self, orders: Sequence[Floats], y: Floats) -> tuple[Floats, Floats]:
        """Return the weights of moments, shape (x's, orders), and the sum of the slopes of their
        chords.

        Args:
            orders: the orders of the moments of one direction.
            y: their multipliers, one row each.
        """
        weights = []
        slopes = np.zeros(len(self.nodes))
        for order, multiplier in zip(orders, y, strict=True):
            small, slope = self._chord(order)
            weights.append(multiplier * small / (1 - small))
            slopes += multiplier * slope / (1 - small)
        return np.stack(weights, axis=1), slopes


@dataclass(frozen=True)
class _Terms:
    """The terms of the functions that multipliers make, for each x (``ProgramSolution``).

    Attributes:
        constant, slope: of 1 and of e^{-L}.
        weights: of the moments, shape (x's, moments).
        linear, reversed_linear: of L and of -L e^{-L}.
    """

    constant: Floats
    slope: Floats
    weights: Floats
    linear: Floats
    reversed_linear: Floats
