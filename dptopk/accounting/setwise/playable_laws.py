"""Laws of concentrated costs that are proven to belong to their class, so that they may be played.

A law of the loss L belongs to its class if each moment E[e^{λL}], and each with the neighbours
swapped, stays within its limit at every order λ (``moment_program``). That is checked at finitely
many orders, with room to spare for those between them. A law that does not belong is mixed with one
that says nothing: played with the probability of a *share*, while otherwise the loss is 0, which
makes moments less one smaller in proportion (docs/notes/setwise.md, "Few concentrated costs",
Laws). Where a law came from is of no matter (``law_families``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

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
# Shares of a law of centred losses that are tried, from the largest on: a law that needs a smaller
# one is worth little.
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
        """Return the laws of a family, each mixed with no loss as far as it must be to belong to
        the class; laws for which no share is found are left out.

        Args:
            family: laws that need not be in the class.
            moments: the class.
            h: the distance of two nodes.
        """
        excess_of_masses = family.masses.sum(axis=1) - 1
        excess_under_q = (family.masses * np.expm1(-family.losses * h)).sum(axis=1)
        # A quarter, as the sums themselves round.
        sums_to_1 = np.abs(excess_of_masses) <= LAW_ERROR / 4
        sums_to_1 &= np.abs(excess_under_q) <= LAW_ERROR / 4
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
    """Return, for each law of a class that is not centred, the largest share with which all its
    moments stay within their limits, the rest being no loss; 0 where none is found.

    The moments are checked at orders between which ln E[e^{λL}], which is convex, lies below its
    chord, and K above its own less ρΔ²/4, Δ the gap between two orders; up to the first order by
    convexity from 0, beyond the last by the largest loss.

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
    wider_gaps = np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))  # beside each order
    allowed_logs = moments.log_moment(orders) - moments.rho * wider_gaps**2 / 4
    allowed_logs[0] = min(allowed_logs[0], orders[0] * moments.mean)
    # What a moment may exceed 1 by.
    allowed = np.expm1(np.minimum(allowed_logs, LARGEST_EXPONENT)) * (1 - ORDER_ERROR)
    shares = np.ones(len(losses))
    for exponents in (orders, -(1 + orders)):
        excess = _moments_less_1(losses, masses, exponents)
        with np.errstate(divide="ignore"):
            of_orders = np.where(excess.bounds > 0, allowed / excess.bounds, np.inf)
        shares = np.minimum(shares, np.where(excess.is_known, of_orders.min(axis=1), 0.0))
    return shares


class _MomentsLess1(NamedTuple):
    """Moments of several laws, less 1.

    Attributes:
        bounds: upper bounds on E[e^{eL}] - 1, shape (laws, exponents e).
        is_known: for each law, whether its exponentials are floats, so that the bounds hold.
    """

    bounds: Floats
    is_known: NDArray[np.bool_]


def _moments_less_1(losses: Floats, masses: Floats, exponents: Floats) -> _MomentsLess1:
    """Return upper bounds on E[e^{eL}] - 1 of each law at each exponent e.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        exponents: every e, shape (exponents,).
    """
    bounds = np.full((len(losses), len(exponents)), LAW_ERROR)
    largest = float(np.abs(exponents).max())
    # One outcome of all laws at a time.
    for loss, mass in zip(losses.T, masses.T, strict=True):
        logs = np.minimum(np.outer(loss, exponents), LARGEST_EXPONENT)
        terms = mass[:, None] * np.expm1(logs)
        bounds += terms + TERM_ERROR * np.abs(terms)
    is_known = (np.abs(losses) * (masses > 0)).max(axis=1) * largest <= LARGEST_EXPONENT
    return _MomentsLess1(bounds, is_known)


def _centred_family_shares(losses: Floats, masses: Floats, moments: MomentClass) -> Floats:
    """Return for each law the largest of a few shares with which it is in a class of centred
    losses, the rest being no loss; 0 where it is with none of them.

    A share that will do in one direction says nothing of a smaller one, as the mean of the law
    falls with it: so each is checked by itself.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        moments: the class.
    """
    mixed_losses = np.concatenate([losses, np.zeros((len(losses), 1))], axis=1)
    shares = np.zeros(len(losses))
    for share in SHARES:
        undecided = np.flatnonzero(shares == 0)
        mass_of_no_loss = np.full((len(undecided), 1), 1 - share)
        mixed_masses = np.concatenate([masses[undecided] * share, mass_of_no_loss], axis=1)
        belongs = _belongs_to_centred(mixed_losses[undecided], mixed_masses, moments)
        shares[undecided[belongs]] = share
    return shares


def _belongs_to_centred(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """Return for each law whether it is proven to be in a class of centred losses: subgaussian
    about its mean in both directions, with means of at most that of the class.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their probabilities.
        moments: the class.
    """
    forward = _is_subgaussian(losses, masses, moments)
    return forward & _is_subgaussian(-losses, masses * np.exp(-losses), moments)


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


def _is_subgaussian(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """Return for each law whether it is proven to be subgaussian about its mean m, with the ρ of
    the class, and m to be at most the mean of the class.

    With M(λ) = E[e^{λL}] it asks for ln M(λ) <= λm + λ²ρ at every real λ. Both sides are convex, so
    this is checked on orders of both signs as in ``_largest_shares``; about 0 by (ln M)'' <= E[L²
    e^{|λL|}] / M <= 2ρ, and beyond the last order by the largest |L| + m.

    Args:
        losses: the losses of each law, shape (laws, outcomes).
        masses: their weights: probabilities, or with the neighbours swapped p e^{-l}.
        moments: the class.
    """
    if not len(losses):
        return np.zeros(0, dtype=np.bool_)
    positive_orders = _centred_orders(float((np.abs(losses) * (masses > 0)).max()), moments)
    first = float(positive_orders[0])
    # From each order to the next; they have equal ratios.
    gap = positive_orders * (positive_orders[1] / positive_orders[0] - 1) * (1 + ORDER_ERROR)
    mean = (losses * masses).sum(axis=1)
    mean_size = (np.abs(losses) * masses).sum(axis=1)  # E|L|
    mean_error = SUM_ERROR * mean_size + LAW_ERROR
    holds = mean + mean_error <= moments.mean
    for orders in (positive_orders, -positive_orders):
        allowed_logs = np.outer(mean, orders) - np.outer(mean_error, np.abs(orders))
        allowed_logs += moments.rho * (orders**2 - gap**2 / 4)
        excess = _moments_less_1(losses, masses, orders)
        is_allowed = np.log1p(excess.bounds) + SUM_ERROR <= allowed_logs
        holds &= excess.is_known & is_allowed.all(axis=1)
    # Between the two orders nearest to 0, where M >= e^{-|λ| E|L|}.
    second_moment = (losses**2 * np.exp(first * np.abs(losses)) * masses).sum(axis=1)
    return holds & (
        second_moment * np.exp(first * mean_size) <= 2 * moments.rho * (1 - ORDER_ERROR)
    )
