"""Counts that noisy released values help to select by."""

import numpy as np
import pytest

from dptopk.histogram.counts import LARGEST_COUNT
from dptopk.planning.helped import SPREAD_OF_CAPPED, helped_counts, weight_of_released

RELEASED = np.array([900, 400, 250, 100])


def test_what_is_added_is_the_weighted_released_value():
    """Of two labels the second of them says how far counts and capped counts are apart."""
    counts = np.array([1000, 500, 300, 100])
    added = helped_counts(counts, RELEASED, 2, 30.0, 10.0) - counts
    weight = 30.0**2 / (10.0**2 + (SPREAD_OF_CAPPED * 400) ** 2)
    assert added.tolist() == np.rint(weight * RELEASED).tolist()


def test_sums_move_as_the_counts_do():
    """Given what was released, nothing that is added depends on the counts; at the largest count
    sums are cut, and move by no more.
    """
    rng = np.random.default_rng(4)
    counts = np.append(rng.integers(0, 1000, 3), LARGEST_COUNT - 2)
    for moved in np.ndindex(2, 2, 2, 2):
        more = helped_counts(counts + moved, RELEASED, 2, 50.0, 9.0)
        less = helped_counts(counts, RELEASED, 2, 50.0, 9.0)
        assert (0 <= more - less).all()
        assert (more - less <= np.array(moved)).all()
        assert (more < LARGEST_COUNT).all()


def test_nothing_is_added_where_rounding_costs_more_than_it_helps():
    """At ε = 100 the values added to counts of 15 and 13 were 1.4 and 1.5, rounded to 1 and 2: of
    the ten labels of 15 two were shown, and eight without help.
    """
    counts = np.array([15] * 10 + [13] * 500)
    released = np.array([12] * 10 + [13] * 500)
    assert helped_counts(counts, released, 10, 0.45, 0.25).tolist() == counts.tolist()
    assert weight_of_released(0.45, 0.25, 13.0) == 0
    assert weight_of_released(2.0, 0.25, 13.0) > 2


@pytest.mark.parametrize("selection_std", [1e-9, 1e30, 1e200])
def test_extreme_noise_adds_a_bounded_whole_number(selection_std):
    sums = helped_counts(np.array([5, 7, 2, 1]), RELEASED, 1, selection_std, 1e-3)
    assert sums.dtype == np.int64
    assert (sums >= np.array([5, 7, 2, 1])).all()
    if selection_std < 1:
        assert sums.tolist() == [5, 7, 2, 1]


def test_the_weight_tends_to_zero_with_the_noise_of_both():
    """As a budget grows the noise of the selection and that of the values fall alike."""
    weights = [weight_of_released(noise, noise / 4, 300.0) for noise in (100.0, 10.0, 1.0, 0.1)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] < 1e-4
    assert weights[0] > 4
