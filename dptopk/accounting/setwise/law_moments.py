"""Moments of laws with one large loss, beside the limits of their class: how likely it may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

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


def _excess(moments: MomentClass, shapes: LawShapes, orders: Floats) -> _Excess:
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


def _fits(moments: MomentClass, shapes: LawShapes, orders: Floats) -> NDArray[np.bool_]:
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


def with_largest_masses(
    shapes: LawShapes, moments: MomentClass, orders: Floats
) -> tuple[LawShapes, list[Floats]]:
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
    shapes: LawShapes,
    moments: MomentClass,
    orders: Floats,
    ends: tuple[Floats, Floats],
    halvings: int,
) -> LawShapes:
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
        tried = LawShapes(shapes.large, middle, shapes.low, shapes.low_masses)
        fits = _fits(moments, tried, orders)
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return LawShapes(shapes.large, low, shapes.low, shapes.low_masses)
