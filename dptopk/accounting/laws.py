"""Discrete laws of the privacy loss with their rounding errors, and the δ(ε) they give, rounded either way.

A law lists losses l and their probabilities m under P; with the loss under Q implied (m e^{-l}),

    δ(x) = Σ_{l > x} m (1 - e^{x - l}).

Every term is positive, so δ inherits the relative error of the masses, plus what an error of the losses moves: δ falls
in x and rises in every l, hence it is evaluated at losses moved up (or down) by their error. This is exact rounding,
not an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dptopk.accounting.curves import Floats

__all__ = ["UNDERFLOW", "LossLaw", "binomials", "power", "product"]

# Unit roundoff, and what all masses that underflow may add up to: at most 1e9 of them, each below 1e-310.
ROUNDOFF = 2.0**-53
UNDERFLOW = 1e-300


@dataclass(frozen=True, slots=True)
class LossLaw:
    """A finite law of the privacy loss.

    Attributes:
        losses: shape (n,), rising, finite, perhaps with repetitions.
        masses: shape (n,), probabilities under P.
        mass_error: relative error bound of every mass (masses that underflowed aside: ``UNDERFLOW``).
        loss_error: absolute error bound of every loss.
    """

    losses: Floats
    masses: Floats
    mass_error: float
    loss_error: float

    @classmethod
    def sort(cls, losses: Floats, masses: Floats, mass_error: float, loss_error: float) -> LossLaw:
        """The law of losses in any order; impossible ones are left out."""
        possible = masses.ravel() > 0
        losses, masses = losses.ravel()[possible], masses.ravel()[possible]
        order = np.argsort(losses, kind="stable")
        return cls(losses[order], masses[order], mass_error, loss_error)

    @property
    def size(self) -> int:
        """Number of listed losses."""
        return len(self.losses)

    @property
    def largest(self) -> float:
        """An upper bound on the largest loss: δ = 0 from there on."""
        return float(self.losses[-1]) + self.loss_error

    def delta_upper(self, epsilon: Floats) -> Floats:
        """Upper bound on δ at every ε of an array of shape (m,)."""
        with np.errstate(under="ignore"):
            values = self._delta(epsilon, self.loss_error) * (1 + self.mass_error + 64 * ROUNDOFF) + UNDERFLOW
        return np.where(epsilon >= self.largest, 0.0, np.minimum(values, 1.0))

    def delta_lower(self, epsilon: Floats) -> Floats:
        """Lower bound on δ at every ε of an array of shape (m,)."""
        with np.errstate(under="ignore"):
            values = self._delta(epsilon, -self.loss_error) * (1 - self.mass_error - 64 * ROUNDOFF)
        lower: Floats = np.maximum(values, 0.0)
        return lower

    def _delta(self, epsilon: Floats, shift: float) -> Floats:
        """Σ m (1 - e^{x-l-shift}) over l + shift > x, summed pairwise: relative error below 64 units of roundoff."""
        firsts = np.searchsorted(self.losses, epsilon - shift, side="right")
        sums = [
            np.sum(self.masses[first:] * -np.expm1(np.minimum(x - (self.losses[first:] + shift), 0.0)))
            for first, x in zip(firsts, epsilon, strict=True)
        ]
        return np.array(sums)


def product(one: LossLaw, other: LossLaw) -> LossLaw:
    """The law of the sum of two independent losses, every pair listed."""
    return LossLaw.sort(
        np.add.outer(one.losses, other.losses),
        np.multiply.outer(one.masses, other.masses),
        (one.mass_error + other.mass_error + 2 * ROUNDOFF) * (1 + 1e-9),
        one.loss_error + other.loss_error + 2 * ROUNDOFF * (abs(one.losses).max() + abs(other.losses).max()),
    )


def binomials(count: int, success: float, failure: float) -> Floats:
    """Binomial laws for 0..count trials: entry [n, j] = C(n, j) success^j failure^(n-j), zeros for j > n.

    By Pascal's rule, all terms positive: relative error at most 3 count units of roundoff, besides that of the
    arguments (which may be off by a unit each: 5 count in all).
    """
    table = np.zeros((count + 1, count + 1))
    table[0, 0] = 1.0
    with np.errstate(under="ignore"):
        for n in range(count):
            table[n + 1, : n + 1] = failure * table[n, : n + 1]
            table[n + 1, 1 : n + 2] += success * table[n, : n + 1]
    return table


def power(masses: Floats, count: int) -> tuple[Floats, float]:
    """The count-fold convolution of a vector of non-negative masses, and its relative error bound.

    By repeated squaring with direct sums, never a Fourier transform: all terms are positive, so that tiny masses keep
    their relative accuracy. A convolution of length n has a relative error of at most n + 1 units of roundoff on top
    of those of its factors.
    """
    result, error = np.ones(1), 0.0
    square, square_error = np.asarray(masses, dtype=float), 0.0
    while count:
        if count & 1:
            error += square_error + min(len(result), len(square)) + 1
            result = _convolve(result, square)
        count >>= 1
        if count:
            square_error = 2 * square_error + len(square) + 1
            square = _convolve(square, square)
    return result, error * ROUNDOFF * (1 + 1e-6)


def _convolve(a: NDArray[np.float64], b: NDArray[np.float64]) -> Floats:
    with np.errstate(under="ignore"):
        product = np.convolve(a, b)
    product[product < 1e-310] = 0.0  # denormal numbers have lost their accuracy, and are slow
    return product
