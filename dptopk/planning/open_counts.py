"""The counts that a look at events leaves open: noisy mean of the top k, and noisy counts of two
ranks.

One user moves each count by at most τ, and all in one direction. So the mean of the k largest and
the count of any rank move by at most τ, all in one direction too: box noise of ε on them is ε-DP,
whatever the number of a user's labels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from dptopk.histogram.histogram import Histogram
from dptopk.mechanisms import Box
from dptopk.mechanisms.mechanism import add_remove
from dptopk.planning.mixture import Mixture
from dptopk.planning.probe import likely_counts

if TYPE_CHECKING:
    from dptopk.planning.mixture import Array

# The ranks that are looked at beside the mean of the top k, in multiples of k.
FACTORS = (1, 4)
MEAN = "mean of the top"
# Shapes are quantiles of as many times more likely counts, so that rare ones have a part.
FINER = 16
# The exponents a of power laws r^-a, and of exponential ones, that are compared with the mean.
EXPONENTS = np.linspace(0.0, 4.0, 81)
DECAYS = np.linspace(0.0, 12.0, 81)


def looked_at(k: int) -> list[str]:
    """The names of what is looked at."""
    return [f"{MEAN} {k}", *(f"rank {fold * k}" for fold in FACTORS)]


def mean_and_ranks(histogram: Histogram, k: int) -> Histogram:
    """Return what is looked at, as a histogram of its own; the mean is rounded down.

    Rounded down a mean that moves by at most τ, a whole number, still moves by at most τ.
    """
    sensitivity = add_remove(histogram.sensitivity)
    last = FACTORS[-1] * k
    top = histogram.counts[histogram.top_rows(last)]
    padded = np.zeros(last, dtype=np.int64)
    padded[: len(top)] = top
    mean = sum(padded[:k].tolist()) // k
    ranked = [int(padded[fold * k - 1]) for fold in FACTORS]
    unlimited = replace(sensitivity, l0=None)
    return Histogram(looked_at(k), [mean, *ranked], sensitivity=unlimited, domain="public")


@lru_cache(maxsize=16)
def _mean_of_laws(k: int) -> tuple[Array, Array]:
    """The mean of the first k counts over the k-th, for each of EXPONENTS and of DECAYS."""
    rank = np.arange(1, k + 1)
    powers = (k / rank[None, :]) ** EXPONENTS[:, None]
    decays = np.exp(DECAYS[:, None] * (1 - rank[None, :] / k))
    return powers.mean(axis=1), decays.mean(axis=1)


@dataclass(frozen=True)
class _Curves:
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

    def above(self, rank: Array, by_factors: Array) -> Array:
        """Up to rank k: by a factor a rank where that is said, else by powers."""
        powers, decays = _mean_of_laws(self.k)
        over = (self.mean / self.kth)[:, 0]
        exponent = np.interp(over, powers, EXPONENTS)[:, None]
        decay = np.interp(over, decays, DECAYS)[:, None]
        power_law = self.kth * (self.k / rank) ** exponent
        left = np.maximum(1 - rank / self.k, 0.0)
        return np.where(by_factors, self.kth * np.exp(decay * left), power_law)

    def below(self, rank: Array, how: Array) -> Array:
        """After rank k: up to the last rank by powers (0), by a factor a rank (1), all at once at
        the last (2) or after rank k (3); beyond it by powers.
        """
        last_rank = FACTORS[-1] * self.k
        powers = np.log(rank / self.k) / np.log(FACTORS[-1])
        steps = (rank - self.k) / (last_rank - self.k)
        beyond = rank >= last_rank
        fallen = np.choose(how, [powers, steps, beyond * 1.0, (rank > self.k) * 1.0])
        share = np.where(beyond, powers, fallen)
        lower: Array = self.kth * (self.last / self.kth) ** share
        return lower


def open_counts(seen: Array, k: int, mechanism: Box, length: int, number: int) -> Mixture:
    """Shapes of the counts of all events that the noisy values leave open, with fixed seeds.

    Args:
        seen: the noisy values of ``looked_at``, shape (values,).
        k: how many labels are asked for.
        mechanism: whose noise it is.
        length: how many ranks a shape has.
        number: how many shapes.

    Up to rank k counts fall by powers, in a third of the shapes by a factor a rank; between the
    ranks that are looked at by powers, by a factor a rank or all at once; after them by powers.
    """
    likely = np.maximum(likely_counts(seen, mechanism, 1, number, finer=FINER), 0.5)
    curves = _Curves(k, *likely.T[:, :, None])
    rng = np.random.default_rng(k + 2)
    by_factors = rng.permutation(np.arange(number) % 3 == 0)[:, None]
    how = rng.permutation(np.arange(number) % 4)[:, None]

    def counts(rank: Array) -> Array:
        whole = np.where(rank <= k, curves.above(rank, by_factors), curves.below(rank, how))
        return np.rint(whole)

    return Mixture.of(k, length, counts)
