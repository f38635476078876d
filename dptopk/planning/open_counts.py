"""The counts that a look at events leaves open: noisy mean of the top k, and noisy counts of two
ranks.

One user moves each count by at most τ, and all in one direction. So the mean of the k largest and
the count of any rank move by at most τ, all in one direction too: box noise of ε on them is ε-DP,
whatever the number of a user's labels.
"""

from __future__ import annotations

from dataclasses import replace
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
    true = np.maximum(likely_counts(seen, mechanism, 1, number, finer=FINER), 0.5)
    mean, kth, last = true.T[:, :, None]
    powers, decays = _mean_of_laws(k)
    over = mean[:, 0] / kth[:, 0]
    exponent = np.interp(over, powers, EXPONENTS)[:, None]
    decay = np.interp(over, decays, DECAYS)[:, None]
    rng = np.random.default_rng(k + 2)
    first = rng.permutation(np.arange(number) % 3 == 0)[:, None]
    then = rng.permutation(np.arange(number) % 4)[:, None]

    def counts(rank: Array) -> Array:
        by_powers = kth * (k / rank) ** exponent
        by_factors = kth * np.exp(decay * np.maximum(1 - rank / k, 0.0))
        above = np.where(first, by_factors, by_powers)
        share = np.log(rank / k) / np.log(FACTORS[-1])
        steps = (rank - k) / (FACTORS[-1] * k - k)
        at_end = (rank >= FACTORS[-1] * k).astype(np.float64)
        at_start = (rank > k).astype(np.float64)
        ways = np.choose(then, [share, steps, at_end, at_start])
        way = np.where(at_end > 0, share, ways)
        below = kth * (last / kth) ** way
        return np.rint(np.where(rank <= k, above, below))

    return Mixture.of(k, length, counts)
