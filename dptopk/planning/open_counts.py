"""A look at the counts of events, and the counts that its noise leaves open.

Looked at are the mean of the k largest counts, and the counts of the ranks k and 4k. One user moves
each count by at most τ, and all in one direction. So this mean and the count of any rank move by at
most τ, all in one direction too: box noise of ε on them is ε-DP, whatever the number of a user's
labels.

What the counts may be after the look is drawn from a law of what they are in usual tables, weighed
by how likely the noise is that would explain what was seen. Predictions alone depend on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms import Box
from dptopk.mechanisms.mechanism import require_add_remove
from dptopk.planning.mixture import Mixture

if TYPE_CHECKING:
    from dptopk.planning.mixture import Array

# The ranks that are looked at beside the mean of the top k, in multiples of k.
FACTORS = (1, 4)
MEAN = "mean of the top"
# Before the look the mean of the top k is as likely as 1/(mean + SMALL) up to the number of users.
# Independently of it the natural logarithm of the mean over the count of rank k has an exponential
# law with the mean OVER_KTH, and that of rank k over the last rank a gamma law of shape 2 with the
# mean OVER_LAST, or in one of TAIL tables, as where labels end, an exponential law with the mean
# ENDS. The tables of BUILD (benchmarks/tables.py) at k = 5 to 200 have the means 1.06 and 1.23, and
# the deviations 0.79 and 0.69.
SMALL = 10.0
OVER_KTH = 1.0
OVER_LAST = 1.2
ENDS = 5.0
TAIL = 10
# How many candidates are drawn from the law before the look, and as many by its noise; chosen by
# hand.
PRIOR_DRAWS = 4000
# The least count that has a logarithm; and the least value that a curve goes through.
LEAST = 1e-100
LEAST_VALUE = 0.5
# The exponents of power laws r^-a, and of exponential ones, among which the one with a given mean
# of the top k over the count of rank k is looked for.
EXPONENTS = np.linspace(0.0, 4.0, 81)
DECAYS = np.linspace(0.0, 12.0, 81)


def names_of_values(k: int) -> list[str]:
    """Return the names of the values that are looked at, in their order: the mean of the top k, and
    the ranks k and 4k.
    """
    return [f"{MEAN} {k}", *(f"rank {fold * k}" for fold in FACTORS)]


def mean_and_ranks(histogram: Histogram, k: int) -> Histogram:
    """Return what is looked at, as a histogram of its own, with the labels of ``names_of_values``.

    The mean is rounded down: one that moves by at most τ, a whole number, still moves by at most τ
    then. A rank beyond the last label has the count 0.

    Args:
        histogram: the counts of all events.
        k: how many labels are asked for.

    Raises:
        InvalidParameter: for other neighbours than add_remove, and for sums of weights.
    """
    sensitivity = require_add_remove(histogram.sensitivity)
    last = FACTORS[-1] * k
    top = histogram.counts[histogram.top_rows(last)]
    padded = np.zeros(last, dtype=np.int64)
    padded[: len(top)] = top
    mean = sum(padded[:k].tolist()) // k
    ranked = [int(padded[fold * k - 1]) for fold in FACTORS]
    unlimited = replace(sensitivity, l0=None)
    return Histogram(names_of_values(k), [mean, *ranked], sensitivity=unlimited, domain="public")


@lru_cache(maxsize=16)
def _mean_of_laws(k: int) -> tuple[Array, Array]:
    """Return the mean of the first k counts over the k-th count, for power laws of each of
    EXPONENTS and for exponential laws of each of DECAYS, shape (81,) both.
    """
    rank = np.arange(1, k + 1)
    powers = (k / rank[None, :]) ** EXPONENTS[:, None]
    decays = np.exp(DECAYS[:, None] * (1 - rank[None, :] / k))
    return powers.mean(axis=1), decays.mean(axis=1)


@dataclass(frozen=True)
class _RankCurves:
    """Curves of the counts by rank, each through a mean of the top k and the counts of two ranks.

    Attributes:
        k: how many labels are asked for.
        mean, kth, last: of each curve the mean of the k largest, the count of rank k, and that of
            the last rank that is looked at, shape (curves, 1).
    """

    k: int
    mean: Array
    kth: Array
    last: Array

    def counts_up_to_k(self, rank: Array, by_factors: Array) -> Array:
        """Return the counts of ranks up to k, with the curve's mean and its count of rank k, shape
        (curves, ranks); what is returned for larger ranks has no meaning.

        Args:
            rank: the ranks, shape (ranks,).
            by_factors: whether the counts of a curve fall by the same factor from each rank to the
                next, or else as a power of the rank, shape (curves, 1).
        """
        means_of_powers, means_of_decays = _mean_of_laws(self.k)
        mean_over_kth = (self.mean / self.kth)[:, 0]
        exponent = np.interp(mean_over_kth, means_of_powers, EXPONENTS)[:, None]
        decay = np.interp(mean_over_kth, means_of_decays, DECAYS)[:, None]
        power_law = self.kth * (self.k / rank) ** exponent
        # Cut, so that ranks after k, which have no meaning here, do not overflow.
        share_before_k = np.maximum(1 - rank / self.k, 0.0)
        return np.where(by_factors, self.kth * np.exp(decay * share_before_k), power_law)

    def counts_after_k(self, rank: Array, fall: Array) -> Array:
        """Return the counts of ranks after k, shape (curves, ranks); what is returned for smaller
        ranks has no meaning.

        From rank k to the last rank that is looked at they fall as ``fall`` says, and after it as
        the power of the rank through both.

        Args:
            rank: the ranks, shape (ranks,).
            fall: of each curve 0: counts fall as a power of the rank; 1: by the same factor from
                each rank to the next; 2: all at once at the last rank; 3: all at once after rank k;
                shape (curves, 1).
        """
        last_rank = FACTORS[-1] * self.k
        from_last = rank >= last_rank
        # The share of the fall from rank k to the last one, in logarithms, down to a rank.
        by_power = np.log(rank / self.k) / np.log(FACTORS[-1])
        by_factor = (rank - self.k) / (last_rank - self.k)
        at_last = from_last.astype(np.float64)
        after_k = (rank > self.k).astype(np.float64)
        share_before_last = np.choose(fall, [by_power, by_factor, at_last, after_k])
        share = np.where(from_last, by_power, share_before_last)
        lower: Array = self.kth * (self.last / self.kth) ** share
        return lower


def shapes_through(k: int, values: Array, length: int) -> Mixture:
    """Return shapes of the counts of all events, each through the values that are looked at.

    Up to rank k counts fall as a power of the rank or, in a third of the shapes, by the same factor
    from each rank to the next; between the ranks that are looked at in one of the four ways of
    ``_RankCurves.counts_after_k``; after them as a power. Which shape falls how is drawn with a
    fixed seed.

    Args:
        k: how many labels are asked for.
        values: of each shape the mean of the top k and the counts of both ranks, shape (shapes, 3).
        length: how many ranks a shape has.
    """
    number = len(values)
    mean, kth, last = np.maximum(values, LEAST_VALUE).T[:, :, None]
    curves = _RankCurves(k, mean, kth, last)
    rng = np.random.default_rng(k + 2)
    by_factors = rng.permutation(np.arange(number) % 3 == 0)[:, None]
    fall = rng.permutation(np.arange(number) % 4)[:, None]

    def counts(rank: Array) -> Array:
        """Return the counts of these ranks, rounded to whole numbers, shape (shapes, ranks)."""
        up_to_k = curves.counts_up_to_k(rank, by_factors)
        after_k = curves.counts_after_k(rank, fall)
        return np.rint(np.where(rank <= k, up_to_k, after_k))

    return Mixture.of(k, length, counts)


def likely_counts(noisy_values: Array, mechanism: Box, number: int, users: float) -> Array:
    """Return draws of the mean of the top k and the counts of both ranks, from their law after a
    look, shape (number, 3), in the order of their means.

    Candidates are drawn and weighed: half of them from the law before the look, half by its noise
    taken off again, so that some are likely whether the look shows much or nothing. Of the weighed
    candidates the quantiles by the mean are returned.

    Args:
        noisy_values: the noisy values of ``names_of_values``, shape (3,).
        mechanism: the box noise that the look had.
        number: how many draws are returned.
        users: the most that a count may be.
    """
    # Weights are those of importance sampling: the candidates are a half-half mixture of draws from
    # the prior and draws from the look, the density wanted is the product of both.
    rng = np.random.default_rng(number)
    largest_mean = max(users, 1.0)
    by_prior = _draws_of_prior(largest_mean, rng)
    by_noise = noisy_values - draws_of_box_noise(mechanism, len(FACTORS) + 1, 1, PRIOR_DRAWS, rng)
    candidates = np.concatenate((by_prior, by_noise))
    candidates = candidates[np.argsort(candidates[:, 0], kind="stable")]
    log_prior = _log_prior(candidates, largest_mean)
    log_look = _log_look(noisy_values - candidates, mechanism.epsilon)
    log_weight = log_prior + log_look - np.logaddexp(log_prior, log_look)
    cumulative = np.exp(log_weight - log_weight.max()).cumsum()
    middles = (np.arange(number) + 0.5) / number
    return candidates[np.searchsorted(cumulative, cumulative[-1] * middles)]


def _draws_of_prior(largest_mean: float, rng: np.random.Generator) -> Array:
    """Return draws of the mean of the top k and the counts of both ranks, from their law before the
    look, with means up to ``largest_mean``, shape (PRIOR_DRAWS, 3).
    """
    # The density 1/(mean + SMALL) by inversion.
    mean = SMALL * ((largest_mean + SMALL) / SMALL) ** rng.random(PRIOR_DRAWS) - SMALL
    kth = mean * np.exp(-rng.exponential(OVER_KTH, size=PRIOR_DRAWS))
    falls = rng.gamma(2.0, OVER_LAST / 2, size=PRIOR_DRAWS)
    # Every TAIL-th table ends.
    falls[::TAIL] = rng.exponential(ENDS, size=len(falls[::TAIL]))
    return np.stack((mean, kth, kth * np.exp(-falls)), axis=1)


def _log_prior(counts: Array, largest_mean: float) -> Array:
    """Return the log density of ``_draws_of_prior`` at counts, shape (draws, 3) -> (draws,); -inf
    where they rise, are not above 0, or have a mean above ``largest_mean``.
    """
    logs = np.log(np.maximum(counts, LEAST))
    fall_to_kth, fall_to_last = -np.diff(logs, axis=1).T
    mean = np.maximum(counts[:, 0], 0.0)
    falling = (
        (fall_to_kth >= 0) & (fall_to_last >= 0) & (counts > 0).all(axis=1) & (mean <= largest_mean)
    )
    # The densities of the two falls are of logarithms: d(ln x) = dx / x for each count.
    log_mean = -np.log(mean + SMALL) - math.log(math.log((largest_mean + SMALL) / SMALL))
    log_kth = -fall_to_kth / OVER_KTH - math.log(OVER_KTH) - logs[:, 1]
    log_last = _log_fall(np.maximum(fall_to_last, 0.0)) - logs[:, 2]
    return np.where(falling, log_mean + log_kth + log_last, -np.inf)


def _log_fall(fall: Array) -> Array:
    """Return the log density, before the look, of ln(count of rank k / count of the last rank)."""
    scale = OVER_LAST / 2
    gamma = fall / scale**2 * np.exp(-fall / scale)
    ending = np.exp(-fall / ENDS) / ENDS
    log_density: Array = np.log((1 - 1 / TAIL) * gamma + ending / TAIL)
    return log_density


def _log_look(noise: Array, epsilon: float) -> Array:
    """Return the log density of box noise on d counts, for a cap of 1, shape (draws, d) ->
    (draws,).

    The density falls as e^{-εL} in the length L(x) = max(0, max x) - min(0, min x) of the noise;
    the x of a length of at most 1 have the volume d + 1 in d dimensions.

    Args:
        noise: the noise on each count, shape (draws, d).
        epsilon: ε of the mechanism.
    """
    number = noise.shape[1]
    length = np.maximum(noise.max(axis=1), 0) - np.minimum(noise.min(axis=1), 0)
    # The logarithm of 1 / (volume · ∫ e^{-εr} d(r^d)): the integral is d! / ε^d.
    log_scale = number * math.log(epsilon) - math.lgamma(number + 1) - math.log(number + 1)
    log_density: Array = log_scale - epsilon * length
    return log_density


def draws_of_box_noise(
    mechanism: Box, counts: int, linf: int, draws: int, rng: np.random.Generator
) -> Array:
    """Return draws of box noise on some counts, in floats, shape (draws, counts).

    Args:
        mechanism: what has this noise.
        counts: how many counts there are.
        linf: the most that one user adds to a count.
        draws: how many draws are made.
        rng: draws the noise.
    """
    # Differences of d uniform numbers and a shared one have the density 1 - L, with the length L
    # of ``_log_look``; times a gamma variable of shape d + 2 and scale linf/ε they have a density
    # in proportion to e^{-εL/linf}.
    side = rng.gamma(counts + 2, linf / mechanism.epsilon, size=(draws, 1))
    noise: Array = side * (rng.random((draws, counts)) - rng.random((draws, 1)))
    return noise
