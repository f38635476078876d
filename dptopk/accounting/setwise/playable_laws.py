"""Laws of concentrated costs that are proven to belong to their class, so that they may be played.

A law is mixed with one that says nothing until all its moments hold (docs/notes/setwise.md, "Few
concentrated costs"). Where a law came from is of no matter (``law_families``, ``moment_program``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise.law_families import LawFamily, law_family
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    ValueFunction,
)

# Of the masses of a law whose sum, and whose E[e^{-L}], are 1 but for rounding.
LAW_ERROR = 2e-14
# Relative, above the rounding of a sum over a law's outcomes, and of one product with expm1.
SUM_ERROR = 1e-13
TERM_ERROR = 1e-12
ORDER_ERROR = 1e-9  # relative, far above that of powers and exponentials of orders
# Shares of a law of centred losses that are tried, from the largest on.
SHARES = (1.0, 0.998, 0.995, 0.99, 0.97, 0.9)
# The orders at which moments are checked: the smallest one (of centred losses over the deviation),
# how many there are to a factor of 10, and how far they go beyond the last that needs a check. Any
# orders are sound: fewer leave less room between them.
FIRST_ORDER = 1e-4
FIRST_CENTRED_ORDER = 0.02
ORDERS_PER_DECADE = 250
CENTRED_ORDERS_PER_DECADE = 150
BEYOND_LAST_ORDER = 1.001


@dataclass(frozen=True)
class PlayableFamily:
    """Laws of a class on multiples of h, any of which may be played at any node.

    Attributes:
        laws: the laws; each has one more outcome, with a loss of 0.
    """

    laws: LawFamily

    @classmethod
    def of(cls, family: LawFamily, moments: MomentClass, h: float) -> PlayableFamily:
        """Return the laws of a family that belong to the class, or that are in it when they are
        mixed with no loss.

        Args:
            family: laws that need not be in the class.
            moments: the class.
            h: the distance of two nodes.
        """
        total = family.masses.sum(axis=1) - 1
        under_q = (family.masses * np.expm1(-family.losses * h)).sum(axis=1)
        # A quarter, as the sums themselves round.
        sums_to_1 = (np.abs(total) <= LAW_ERROR / 4) & (np.abs(under_q) <= LAW_ERROR / 4)
        valid = sums_to_1 & (family.masses >= 0).all(axis=1)
        family = family.where(valid)
        losses = family.losses.astype(np.float64) * h
        if moments.centred:
            shares = _centred_family_shares(losses, family.masses, moments)
        else:
            shares = _largest_shares(losses, family.masses, moments)
        return cls(family.with_idle_outcome(shares))

    def step(self, value: ValueFunction, last: int) -> Floats:
        """Return lower bounds on the step at the nodes 0, ..., last, by the best law at each.

        Args:
            value: lower bounds on V of what is left.
            last: the last node.
        """
        if not len(self.laws.masses):
            return np.zeros(last + 1)
        best = self.laws.values(value, last).max(axis=0)
        return np.maximum(best * (1 - SUM_ERROR) - LAW_ERROR, 0.0)


@lru_cache(maxsize=32)
def playable_family(moments: MomentClass, h: float, largest: float) -> PlayableFamily:
    """Return laws of a class that may be played, with large losses up to ``largest``.

    Args:
        moments: the class.
        h: the distance of two nodes.
        largest: the largest loss.
    """
    return PlayableFamily.of(law_family(moments, h, largest), moments, h)


def _largest_shares(losses: Floats, masses: Floats, moments: MomentClass) -> Floats:
    """Return the largest share of each law with which all its moments hold, the rest being no
    loss.

    The moments are checked at orders between which ln E[e^{λL}], which is convex, lies below its
    chord, and K above its own less ρΔ²/4; up to the first order by convexity from 0, beyond the
    last by the largest loss.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        moments: the class.
    """
    # From ``last`` on K(λ)/λ is above the largest loss.
    last = max(float(np.abs(losses).max()) - moments.mean, 0.0) / moments.rho + 1
    number = math.ceil(ORDERS_PER_DECADE * math.log10(last / FIRST_ORDER)) + 2
    orders = np.geomspace(FIRST_ORDER, last * BEYOND_LAST_ORDER, number)
    gaps = np.diff(orders)
    widest = np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))
    allowed = moments.log_moment(orders) - moments.rho * widest**2 / 4
    allowed[0] = min(allowed[0], orders[0] * moments.mean)
    room = np.expm1(np.minimum(allowed, LARGEST_EXPONENT)) * (1 - ORDER_ERROR)
    shares = np.ones(len(losses))
    for exponents in (orders, -(1 + orders)):
        rises, reachable = _rises(losses, masses, exponents)
        with np.errstate(divide="ignore"):
            of_orders = np.where(rises > 0, room / rises, np.inf)
        shares = np.minimum(shares, np.where(reachable, of_orders.min(axis=1), 0.0))
    return shares


def _rises(losses: Floats, masses: Floats, exponents: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return upper bounds on E[e^{eL}] - 1 of each law at each exponent e, shape (laws,
    exponents), and whether the exponents of a law can be computed.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        exponents: e's.
    """
    rises = np.full((len(losses), len(exponents)), LAW_ERROR)
    largest = float(np.abs(exponents).max())
    for of_law, mass in zip(losses.T, masses.T, strict=True):
        logs = np.minimum(np.outer(of_law, exponents), LARGEST_EXPONENT)
        parts = mass[:, None] * np.expm1(logs)
        rises += parts + TERM_ERROR * np.abs(parts)
    reachable = (np.abs(losses) * (masses > 0)).max(axis=1) * largest <= LARGEST_EXPONENT
    return rises, reachable


def _centred_family_shares(losses: Floats, masses: Floats, moments: MomentClass) -> Floats:
    """Return for each law the largest of a few shares with which it is in a class of centred
    losses, the rest being no loss.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        moments: the class.
    """
    mixed_losses = np.concatenate([losses, np.zeros((len(losses), 1))], axis=1)
    shares = np.zeros(len(losses))
    for share in SHARES:
        left = np.flatnonzero(shares == 0)
        idle = np.full((len(left), 1), 1 - share)
        laws = np.concatenate([masses[left] * share, idle], axis=1)
        holds = _centred_holds(mixed_losses[left], laws, moments)
        shares[left[holds]] = share
    return shares


def _centred_holds(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """Return for each law whether it is subgaussian about its mean in both directions, with means
    of at most that of the class.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        moments: the class.
    """
    forth = _subgaussian(losses, masses, moments)
    return forth & _subgaussian(-losses, masses * np.exp(-losses), moments)


def _centred_orders(largest: float, moments: MomentClass) -> Floats:
    """Return the orders λ > 0, rising in equal ratios, at which the moments of centred losses are
    checked: up to one from which on λρ is above the largest |L| + m.

    Args:
        largest: the largest |L|.
        moments: the class.
    """
    first = FIRST_CENTRED_ORDER / moments.deviation
    last = BEYOND_LAST_ORDER * (largest + moments.mean) / moments.rho + 2 * first
    number = math.ceil(CENTRED_ORDERS_PER_DECADE * math.log10(last / first)) + 2
    return np.geomspace(first, last, number)


def _subgaussian(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """Return for each law whether it is subgaussian about its mean, which is small enough.

    ln M(λ) <= λm + λ²ρ, both convex, is checked on orders of both signs as in
    ``_largest_shares``, about 0 by (ln M)'' <= E[L² e^{|λL|}] / M <= 2ρ, and beyond the last order
    by the largest |L| + m.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their weights: probabilities, or with the neighbours swapped p e^{-l}.
        moments: the class.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.bool_)
    rising = _centred_orders(float((np.abs(losses) * (masses > 0)).max()), moments)
    first = float(rising[0])
    gap = rising * (rising[1] / rising[0] - 1) * (1 + ORDER_ERROR)
    mean = (losses * masses).sum(axis=1)
    size = (np.abs(losses) * masses).sum(axis=1)
    mean_error = SUM_ERROR * size + LAW_ERROR
    holds = mean + mean_error <= moments.mean
    for orders in (rising, -rising):
        allowed = np.outer(mean, orders) - np.outer(mean_error, np.abs(orders))
        allowed += moments.rho * (orders**2 - gap**2 / 4)
        rises, reachable = _rises(losses, masses, orders)
        holds &= reachable & (np.log1p(rises) + SUM_ERROR <= allowed).all(axis=1)
    # Between the two orders nearest to 0, where M >= e^{-|λ| E|L|}.
    second = (losses**2 * np.exp(first * np.abs(losses)) * masses).sum(axis=1)
    return holds & (second * np.exp(first * size) <= 2 * moments.rho * (1 - ORDER_ERROR))
