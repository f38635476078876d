"""Gumbel top-k: its law against exact peeling."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from dptopk.mechanisms.random import random_bits
from dptopk.mechanisms.selection import gumbel_top_k


def peeling(weights, k):
    """Return the exact law of k selections as {labels in order: probability}."""
    if k == 0:
        return {(): 1.0}
    total = sum(weights.values())
    return {
        (label, *rest): weight / total * p
        for label, weight in weights.items()
        for rest, p in peeling({x: w for x, w in weights.items() if x != label}, k - 1).items()
    }


def p_value(seen, law):
    n = sum(seen.values())
    assert set(seen) <= set(law)
    statistic = sum((seen[outcome] - n * p) ** 2 / (n * p) for outcome, p in law.items())
    return stats.chi2.sf(statistic, len(law) - 1)


@pytest.mark.parametrize("absent", [0, 2])
def test_law_is_that_of_peeling(absent):
    counts, rate = [3, 5, 5, 1], 0.4
    bits = random_bits(np.random.default_rng(5))
    seen = Counter(
        tuple(gumbel_top_k(counts, 2, epsilon=rate, linf=1, bits=bits, absent=absent).indices.tolist())
        for _ in range(5000)
    )

    def law(r):
        return peeling(dict(enumerate(np.exp(r * np.array(counts + [0] * absent)))), 2)

    assert p_value(seen, law(rate)) > 1e-3
    assert p_value(seen, law(rate * 1.2)) < 1e-6
