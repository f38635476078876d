"""What a look at the counts of events is at, and the shapes that it leaves open."""

import numpy as np
import pytest

from dptopk import Box, Histogram
from dptopk.planning.open_counts import (
    likely_counts,
    mean_and_ranks,
    names_of_values,
    shapes_through,
)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_one_user_moves_all_that_is_looked_at_one_way_by_at_most_one(k):
    rng = np.random.default_rng(k)
    for _ in range(100):
        counts = rng.integers(0, 9, size=rng.integers(1, 16))
        more = counts + rng.integers(0, 2, size=len(counts))
        names = [f"x{place}" for place in range(len(counts))]
        less, greater = (mean_and_ranks(Histogram(names, each), k) for each in (counts, more))
        moved = greater.counts - less.counts
        assert set(moved.tolist()) <= {0, 1}


def test_of_exact_values_the_shapes_have_their_mean_and_ranks():
    k = 10
    seen = np.array([300.0, 80.0, 20.0])
    likely = likely_counts(seen, Box(epsilon=1000.0), 24, 10_000.0)
    drawn = shapes_through(k, likely, 410)
    top = drawn.counts @ drawn.of_top(k) / k
    assert np.abs(top / 300 - 1).max() < 0.1
    ranked = [int(np.searchsorted(drawn.edges, rank)) - 1 for rank in (10, 60)]
    assert (np.abs(drawn.counts[:, ranked[0]] - 80) <= 1).all()
    assert (drawn.counts[:, ranked[1]] <= 20).all()
    assert names_of_values(k) == ["mean of the top 10", "rank 10", "rank 40"]
