"""Dominating pairs with finitely many losses: what the lattice multiplies."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dptopk._internal.rounding import EPS, Floats

# Atoms whose tilted mass is this far (in logarithms) below the largest are cut off; their mass is
# charged as an error.
NEGLIGIBLE = 50.0


@dataclass(frozen=True)
class Pairs:
    """Independent pairs of laws with finitely many losses, which dominate costs, or are dominated
    by them.

    Attributes:
        losses, log_masses: shape (rows, atoms): one pair a row; masses are those under P, -inf for
            an absent atom.
        count: every row is taken this many times.
        log_error: bound on the error of each log mass, a number or an array of their shape.
        loss_error: bound on the absolute error of each loss.
        error: bound on the mass missing from or misplaced in each row, as a share of the row's
            total under the tilt that it will be used with.
    """

    losses: Floats
    log_masses: Floats
    count: int = 1
    log_error: float | Floats = 0.0
    loss_error: float = 0.0
    error: float = 0.0

    def log_mgf(self, tilt: float) -> float:
        """Return K(θ) = ln E[e^{θ L}] at θ = ``tilt``, summed over all rows and counts."""
        return self.count * math.fsum(log_sum(self.log_masses + tilt * self.losses))

    def variance(self) -> float:
        """Return the variance of the total loss under P."""
        weights = np.exp(self.log_masses - log_sum(self.log_masses)[:, None])
        means = (weights * self.losses).sum(axis=1)
        variances = (weights * (self.losses - means[:, None]) ** 2).sum(axis=1)
        return self.count * float(variances.sum())

    def without_negligible_atoms(self, tilt: float) -> Pairs:
        """Return this pair (one row) without the atoms that are negligible under the tilt; their
        share of the weight is added to its error.
        """
        exponents = self.log_masses[0] + tilt * self.losses[0]
        weights = np.exp(exponents - exponents.max())
        counted = weights > math.exp(-NEGLIGIBLE)
        # A hundredth more covers the rounding of both sums.
        lost_share = float(weights[~counted].sum() / weights.sum()) * 1.01
        errors = self.log_error
        if isinstance(errors, np.ndarray):
            errors = errors[:, counted]
        losses = self.losses[:, counted]
        log_masses = self.log_masses[:, counted]
        error = self.error + lost_share
        return replace(self, losses=losses, log_masses=log_masses, log_error=errors, error=error)


def randomised_response(epsilons: Floats, count: int = 1) -> Pairs:
    """Return one row for each ε, taken ``count`` times: the loss +ε with mass 1 / (1 + e^{-ε}),
    else -ε.
    """
    e = np.asarray(epsilons, dtype=float)[:, None]
    log_p = -np.log1p(np.exp(-e))
    losses = np.hstack([e, -e])
    log_masses = np.hstack([log_p, log_p - e])
    # Logarithms of size at most ε + ln 2, by three operations.
    log_error = 8 * EPS * (1 + float(e.max()))
    return Pairs(losses, log_masses, count, log_error)


def pair_of(
    losses: Floats, log_masses: Floats, count: int = 1, log_error: float | Floats = 0.0
) -> Pairs:
    """Return a pair given by its losses and log masses under P, both of shape (n,), taken ``count``
    times.

    Args:
        losses: the losses.
        log_masses: the logarithms of their masses under P.
        count: how many times the pair is taken.
        log_error: a bound on the error of each log mass, a number or one for each.
    """
    error = log_error if isinstance(log_error, float) else log_error[None, :]
    return Pairs(
        np.asarray(losses, dtype=float)[None, :], np.asarray(log_masses)[None, :], count, error
    )


LARGEST_LOG = 700  # e^-700 is still a normal float


def merged_responses(epsilons: Floats) -> Pairs:
    """Return the pair of several randomised responses of which only the number of true answers is
    seen.

    Its probabilities are Poisson-binomial, P_l under P and P_{n-l} under Q. Merging outcomes is
    post-processing, so the pair is a bound from below.

    Args:
        epsilons: the ε's, with Σ (ε + ln 2) <= 700.
    """
    small = np.exp(-np.asarray(epsilons, dtype=float))
    masses = np.ones(1)
    for false_answer, true_answer in zip(small / (1 + small), 1 / (1 + small), strict=True):
        masses = np.convolve(masses, (false_answer, true_answer))
    log_masses = np.log(masses)
    # A mass is a sum of products of ``len(masses)`` - 1 factors, each off by a few units of
    # roundoff; its logarithm, of size at most LARGEST_LOG, rounds once more.
    error = 4 * EPS * (len(masses) + LARGEST_LOG)
    pair = pair_of(log_masses - log_masses[::-1], log_masses, log_error=error)
    return replace(pair, loss_error=2 * error)


def log_sum(exponents: Floats) -> Floats:
    """Return ln Σ e^t along the last axis."""
    largest = exponents.max(axis=-1)
    sums = np.exp(exponents - largest[..., None]).sum(axis=-1)
    return largest + np.log(sums)
