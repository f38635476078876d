"""How likely the large loss of a law may be for its moments to stay within the limits of its class:
found by halving, at some orders only, so that nothing here is proven.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    LARGEST_SCALE,
    MomentClass,
)


@dataclass(frozen=True)
class LawShapes:
    """Laws with three outcomes: a large loss, a low one below 0, and the loss with which
    E[e^{-L}] = 1. All arrays have one entry for each law.

    Attributes:
        large: the large losses.
        log_masses: the logarithms of their probabilities.
        low: the low losses; 0 where a law has none.
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
        """Return the third loss of each law; NaN or infinite where no loss makes E[e^{-L}] = 1."""
        masses = self.masses
        under_q = masses * np.exp(-self.large) + self.low_masses * np.exp(-self.low)
        with np.errstate(invalid="ignore", divide="ignore"):
            others: Floats = np.log1p(-masses - self.low_masses) - np.log1p(-under_q)
        return others

    def where(self, places: NDArray[np.bool_]) -> LawShapes:
        """Return the laws at the places that are true."""
        return LawShapes(
            self.large[places],
            self.log_masses[places],
            self.low[places],
            self.low_masses[places],
        )


@dataclass(frozen=True)
class _Excess:
    """By how much the moments of laws exceed their limits; below 0 where they do not.

    The unit is the room of a limit: by how much the limit itself is above the moment of no loss.
    All entries are inf for a law that is impossible.

    Attributes:
        forward: the excess of the moment of each order, with the exponent λ, or the larger of those
            with λ and -λ; shape (laws, orders).
        backward: the same with the neighbours swapped.
    """

    forward: Floats
    backward: Floats


def _excess(moments: MomentClass, shapes: LawShapes, orders: Floats) -> _Excess:
    """Return by how much the moments of each law exceed their limits.

    Args:
        moments: the class.
        shapes: the laws.
        orders: of all laws, shape (orders,), or of each law, shape (laws, orders).
    """
    laws = _Outcomes.of(shapes)
    orders = np.broadcast_to(orders, (len(laws.possible), orders.shape[-1]))
    forward, backward = (
        np.maximum.reduce([direction.excess(moments, orders, sign) for sign in _signs(moments)])
        for direction in (laws, laws.swapped)
    )
    impossible = ~laws.possible[:, np.newaxis]
    return _Excess(np.where(impossible, np.inf, forward), np.where(impossible, np.inf, backward))


def _fits(moments: MomentClass, shapes: LawShapes, orders: Floats) -> NDArray[np.bool_]:
    """Return for each law whether it exceeds no limit at these orders, and not the largest mean,
    but for rounding.

    A law that exceeds one limit is not compared with the next ones, which saves about a third of
    the exponentials.

    Args:
        moments: the class.
        shapes: the laws.
        orders: of all laws, shape (orders,), or of each law, shape (laws, orders).
    """
    laws = _Outcomes.of(shapes)
    orders = np.broadcast_to(orders, (len(laws.possible), orders.shape[-1]))
    fits = laws.possible & (laws.excess_of_mean(moments) <= tuning.LAW_TOLERANCE)
    for direction in (laws, laws.swapped):
        for sign in _signs(moments):
            fitting = np.flatnonzero(fits)
            excess = direction.at(fitting).excess(moments, orders[fitting], sign)
            fits[fitting] = (excess <= tuning.LAW_TOLERANCE).all(axis=1)
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
        weights: their probabilities, of the same shape.
        possible: for each law whether all its losses are finite numbers; where not, they count as
            0.
    """

    losses: Floats
    weights: Floats
    possible: NDArray[np.bool_]

    @classmethod
    def of(cls, shapes: LawShapes) -> _Outcomes:
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
        """Return by how much each moment exceeds its limit, in units of the limit's room
        (``_Excess``), shape (laws, orders).

        Args:
            moments: the class.
            orders: λ > 0, shape (laws, orders).
            sign: 1, or -1 for the moments with exponents -λ, which centred losses have.
        """
        if moments.centred:
            log_room = moments.rho * orders**2
            log_limits = sign * orders * self.mean[:, None] + log_room
        else:
            log_room = moments.log_moment(orders)
            log_limits = log_room
        moment_over_limit = np.zeros(orders.shape)
        for loss, weight in zip(self.losses, self.weights, strict=True):
            logs = sign * orders * loss[:, None] - log_limits
            moment_over_limit += weight[:, None] * np.exp(np.minimum(logs, LARGEST_EXPONENT))
        excess: Floats = (moment_over_limit - 1) / -np.expm1(-log_room)
        return excess


class LikeliestLaws(NamedTuple):
    """Laws whose large losses are as likely as their class allows.

    Attributes:
        shapes: the laws.
        orders: for each law, the order λ whose moment E[e^{λL}] is nearest to its limit.
        reversed_orders: the same of the moments with the neighbours swapped.
    """

    shapes: LawShapes
    orders: Floats
    reversed_orders: Floats


def with_largest_masses(shapes: LawShapes, moments: MomentClass, orders: Floats) -> LikeliestLaws:
    """Return laws with their large losses made as likely as the class allows.

    Args:
        shapes: the laws; the probabilities of their large losses are not read.
        moments: the class.
        orders: the orders at which moments are compared first, in equal ratios.
    """
    # ln p between far below where ``_family_of`` drops a law, and almost 0.
    lowest = np.full(len(shapes.large), -2 * LARGEST_SCALE)
    highest = np.full(len(lowest), -1e-6)
    shapes = _with_masses_between(shapes, moments, orders, lowest, highest)
    excess = _excess(moments, shapes, orders)
    # Again at finer orders about those that decided.
    near = np.linspace(-1.0, 1.0, tuning.LAW_ORDERS_NEAR) * math.log(orders[1] / orders[0])
    forward_orders = _deciding_orders(orders, excess.forward) * np.exp(near)
    backward_orders = _deciding_orders(orders, excess.backward) * np.exp(near)
    both = np.concatenate([forward_orders, backward_orders], axis=1)
    lowest = shapes.log_masses - tuning.LAW_RETREAT
    shapes = _with_masses_between(shapes, moments, both, lowest, shapes.log_masses)
    forward = _excess(moments, shapes, forward_orders).forward
    backward = _excess(moments, shapes, backward_orders).backward
    return LikeliestLaws(
        shapes,
        _deciding_orders(forward_orders, forward)[:, 0],
        _deciding_orders(backward_orders, backward)[:, 0],
    )


def _deciding_orders(orders: Floats, excess: Floats) -> Floats:
    """Return the order with the largest excess of each law, shape (laws, 1).

    Args:
        orders: of all laws, shape (orders,), or of each law, shape (laws, orders).
        excess: of the moment of each order, shape (laws, orders).
    """
    places = np.argmax(excess, axis=1)[:, None]
    deciding: Floats = np.take_along_axis(np.broadcast_to(orders, excess.shape), places, axis=1)
    return deciding


def _with_masses_between(
    shapes: LawShapes,
    moments: MomentClass,
    orders: Floats,
    low: Floats,
    high: Floats,
) -> LawShapes:
    """Return laws with the largest probabilities of their large losses with which they fit the
    class at some orders, found by halving.

    Args:
        shapes: the laws.
        moments: the class.
        orders: the orders at which moments are compared, of all laws or of each.
        low: the smallest ln p of each law; it is taken where no larger one fits.
        high: the largest ln p of each law.
    """
    for _ in range(tuning.LAW_HALVINGS):
        middle = (low + high) / 2
        tried = LawShapes(shapes.large, middle, shapes.low, shapes.low_masses)
        fits = _fits(moments, tried, orders)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return LawShapes(shapes.large, low, shapes.low, shapes.low_masses)
