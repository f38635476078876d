"""Discrete laws of the privacy loss with their rounding errors, and the δ(ε) they give, rounded
either way.

A law lists losses l and their probabilities m under P; with the loss under Q implied (m e^{-l}),

    δ(x) = Σ_{l > x} m (1 - e^{x - l}).

Every term is positive, so δ inherits the relative error of the masses, plus what an error of the
losses moves: δ falls in x and rises in every l, hence it is evaluated at losses moved up (or down)
by their error. This is exact rounding, not an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.pld.characteristic_function import by_squaring

# What masses that underflow elsewhere than in an ``IntegerLaw`` may add up to: at most 1e7 of them,
# each below 1e-307.
UNDERFLOW = 1e-300
# Masses below this are left out of an ``IntegerLaw``: denormal numbers have lost their accuracy,
# and are slow. The sum of n products that underflow each errs by n 2^-1075 more, which for n < 1e14
# is below a hundredth of it.
LEAST_MASS = 1e-307


@dataclass(frozen=True, slots=True)
class LossLaw:
    """A finite law of the privacy loss.

    Attributes:
        losses: shape (n,), rising, finite, perhaps with repetitions.
        masses: shape (n,), probabilities under P.
        mass_error: relative error bound of every mass.
        loss_error: absolute error bound of every loss.
        lost: what masses that are not listed add up to at most.
    """

    losses: Floats
    masses: Floats
    mass_error: float
    loss_error: float
    lost: float = UNDERFLOW

    @classmethod
    def from_unsorted(
        cls, losses: Floats, masses: Floats, mass_error: float, loss_error: float, lost: float = 0.0
    ) -> LossLaw:
        """Return the law of losses listed in any order; impossible ones are left out.

        Args:
            losses: of any shape.
            masses: their probabilities under P, same shape.
            mass_error: relative error bound of every mass.
            loss_error: absolute error bound of every loss.
            lost: what masses that are not listed add up to at most, apart from underflow.
        """
        possible = masses.ravel() > 0
        losses = losses.ravel()[possible]
        masses = masses.ravel()[possible]
        order = np.argsort(losses, kind="stable")
        return cls(losses[order], masses[order], mass_error, loss_error, lost + UNDERFLOW)

    @property
    def size(self) -> int:
        """Return the number of listed losses."""
        return len(self.losses)

    def delta_upper(self, epsilon: Floats) -> Floats:
        """Return an upper bound on δ at every ε of an array of shape (m,).

        It is never below ``lost``: beyond the largest loss listed there may be others whose masses
        have underflowed. Where the largest possible loss is known, the caller sets δ = 0 from there
        on.
        """
        with np.errstate(under="ignore"):
            values = self._delta(epsilon, self.loss_error) * (1 + self.mass_error + 64 * ROUNDOFF)
        return np.minimum(values + self.lost, 1.0)

    def delta_lower(self, epsilon: Floats) -> Floats:
        """Return a lower bound on δ at every ε of an array of shape (m,)."""
        with np.errstate(under="ignore"):
            values = self._delta(epsilon, -self.loss_error) * (1 - self.mass_error - 64 * ROUNDOFF)
        return np.maximum(values, 0.0)

    def profile(self) -> tuple[Floats, Floats]:
        """Return all corners of δ: every distinct loss ε >= 0, rising, and δ(ε) there; exact to
        rounding, not moved outward.

        With C_j = Σ_{i >= j} m_i e^{l_j - l_i}, δ(l_{j-1}) = δ(l_j) + (1 - e^{l_{j-1} - l_j}) C_j:
        positive terms only.
        """
        first = np.searchsorted(self.losses, 0.0)
        # Losses that may be equal, but for their errors, are one corner: those that are no farther
        # apart than twice the sum of two errors.
        distinct = np.append(np.diff(self.losses[first:]) > 4 * self.loss_error, True)
        corners = self.losses[first:][distinct]
        place = np.append(0, np.cumsum(distinct)[:-1])
        masses = np.bincount(place, weights=self.masses[first:])
        centre = corners[-1] / 2  # so that losses up to 1400 have finite exponentials below
        with np.errstate(under="ignore"):
            weights = masses * np.exp(centre - corners)
            tails = np.cumsum(weights[::-1])[::-1] * np.exp(corners - centre)
        steps = -np.expm1(-np.diff(corners)) * tails[1:]
        deltas = np.cumsum(steps[::-1])[::-1]
        return corners, np.append(deltas, 0.0)

    def _delta(self, epsilon: Floats, shift: float) -> Floats:
        """Return Σ m (1 - e^{x-l-shift}) over l + shift > x for each x in ``epsilon``; NumPy sums
        pairwise, with a relative error below 64 units of roundoff.
        """
        first_larger = np.searchsorted(self.losses, epsilon - shift, side="right")
        sums = []
        for first, x in zip(first_larger, epsilon, strict=True):
            losses = self.losses[first:] + shift
            gains = -np.expm1(np.minimum(x - losses, 0.0))
            sums.append(np.sum(self.masses[first:] * gains))
        return np.array(sums)


def product(first: LossLaw, second: LossLaw) -> LossLaw:
    """Return the law of the sum of two independent losses, with every pair of them listed."""
    reach = abs(first.losses).max() + abs(second.losses).max()
    return LossLaw.from_unsorted(
        losses=np.add.outer(first.losses, second.losses),
        masses=np.multiply.outer(first.masses, second.masses),
        # The last factor is for the product of the errors.
        mass_error=(first.mass_error + second.mass_error + 2 * ROUNDOFF) * (1 + 1e-9),
        loss_error=first.loss_error + second.loss_error + 2 * ROUNDOFF * reach,
        lost=first.lost + second.lost,
    )


def binomials(count: int, success: float, failure: float) -> Floats:
    """Return the binomial laws of 0..count trials: entry [n, j] = C(n, j) success^j failure^(n-j),
    zeros for j > n.

    They follow by Pascal's rule, all terms positive: the relative error is at most 3 count units of
    roundoff, besides that of the arguments (which may be off by a unit each: 5 count in all).

    Args:
        count: the largest number of trials.
        success: the probability of a success.
        failure: the probability of a failure.
    """
    laws = np.zeros((count + 1, count + 1))
    laws[0, 0] = 1.0
    with np.errstate(under="ignore"):
        for n in range(count):
            laws[n + 1, : n + 1] = failure * laws[n, : n + 1]
            laws[n + 1, 1 : n + 2] += success * laws[n, : n + 1]
    return laws


@dataclass(frozen=True, slots=True)
class IntegerLaw:
    """A law on the integers, known by computed probabilities and bounds on their errors.

    Attributes:
        masses: shape (n,), the computed probabilities of offset, offset + 1, ...
        offset: the integer of the first mass.
        error: relative error bound of every mass that is not 0.
        lost: the most that the probabilities of all other integers, and those computed as 0, add up
            to.
    """

    masses: Floats
    offset: int = 0
    error: float = 0.0
    lost: float = 0.0

    def places(self) -> Floats:
        """Return the integers that ``masses`` belong to, as floats."""
        return np.arange(self.offset, self.offset + len(self.masses), dtype=float)

    def up_to(self, last: int) -> Floats:
        """Return the masses of 0, 1, ..., ``last``, as an array of this length, with 0 where a mass
        was left out; the law must have none outside this range.
        """
        return np.pad(self.masses, (self.offset, last + 1 - self.offset - len(self.masses)))

    def convolution(self, other: IntegerLaw) -> IntegerLaw:
        """Return the law of the sum of two independent integers, of this law and of the other.

        It is computed by direct sums, never a Fourier transform: all terms are positive, so that
        tiny masses keep their relative accuracy. A sum of n products has a relative error of at
        most n + 1 units of roundoff on top of its factors'. What is left out of one factor is worth
        as much in the product, because the other adds up to at most 1.
        """
        masses = _convolve(self.masses, other.masses)
        normal = np.flatnonzero(masses >= LEAST_MASS)
        masses[masses < LEAST_MASS] = 0.0
        terms = min(len(self.masses), len(other.masses)) + 1
        # A mass that was left out is off by its own error, and errors have products: hence the
        # factors a little above 1.
        dropped = 1.01 * LEAST_MASS * (len(masses) - len(normal))
        return IntegerLaw(
            masses=masses[normal[0] : normal[-1] + 1],
            offset=self.offset + other.offset + int(normal[0]),
            error=(self.error + other.error + terms * ROUNDOFF) * (1 + 1e-6),
            lost=(self.lost + other.lost + dropped) * (1 + 1e-6),
        )


def _convolve(a: Floats, b: Floats, block: int = 4096) -> Floats:
    """Return the convolution of two vectors, by blocks of the shorter one: these stay in the cache,
    and below the size at which sums are threaded.

    Args:
        a: the one vector.
        b: the other vector.
        block: the largest number of entries of a block.
    """
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = np.zeros(len(a) + len(b) - 1)
    with np.errstate(under="ignore"):
        for first in range(0, len(shorter), block):
            part = np.convolve(longer, shorter[first : first + block])
            total[first : first + len(part)] += part
    return total


def convolution_power(factor: IntegerLaw, count: int) -> IntegerLaw:
    """Return the law of the sum of ``count`` >= 0 independent integers of one law, with the error
    bounds of ``IntegerLaw.convolution``.
    """
    if count:
        return by_squaring(IntegerLaw.convolution, factor, count)
    return IntegerLaw(np.ones(1))
