"""Selections that are helped by noisy values which were released before (notes/two-phases.md).

Where labels were found by noisy capped counts, a selection of k of them by their counts without a
cap may use both: to each count a whole number is added that depends on what was released alone. One
user moves the sums as far as the counts, so that the charge is the same.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from dptopk.histogram.counts import LARGEST_COUNT
from dptopk.mechanisms.samplers.random import Array, Ints

FloatOrArray = TypeVar("FloatOrArray", float, Array)
# How far a count and its capped count are from being in proportion, as a share of the k-th largest
# capped count: chosen on the tables of BUILD (benchmarks/tables.py), where 0.05 is as good within
# 3% and 0.2 up to 9% worse (docs/notes/two-phases.md).
SPREAD_OF_CAPPED = 0.1
# A selection whose noise is this many times that of the released values goes by these alone in any
# case, so that a larger ratio, which would overflow, changes nothing.
LARGEST_RATIO = 1e3
# The standard deviation of what rounding to the nearest integer adds.
ROUNDING_STD = 1 / math.sqrt(12)
# What is added to a count is at most this, so that sums are integers of 64 bits.
LARGEST_ADDED = 2**61


def weight_of_released(
    selection_std: FloatOrArray, released_std: FloatOrArray, kth_released: FloatOrArray
) -> FloatOrArray:
    """Return the weight that released values have beside the counts of a selection: as two
    estimates of one number are averaged, in proportion to one over their variances.

    It tends to 0 with the noise of the selection, so that the counts alone decide as the budget
    grows; and it is 0 where the variance that an average saves is less than that of rounding.

    Args:
        selection_std: the standard deviation of the noise of the selection, g.
        released_std: that of the noise on the released values.
        kth_released: the k-th largest of the released values, above 0.
    """
    released_spread = np.hypot(released_std, SPREAD_OF_CAPPED * kth_released)
    ratio = np.minimum(selection_std / released_spread, LARGEST_RATIO)
    # The mean of two estimates of the deviations g and s has the variance g²s²/(g² + s²), which is
    # less than g² by g² r²/(1 + r²), r = g/s.
    saved_std = selection_std * ratio / np.hypot(1.0, ratio)
    weight: FloatOrArray = ratio * ratio * (saved_std > ROUNDING_STD)
    return weight


def helped_counts(
    counts: Ints, released: Array, k: int, selection_std: float, released_std: float
) -> Ints:
    """Return the counts plus the nearest integer to the weighted released values, int64, of the
    same shape.

    Given what was released, one user moves each sum as its count, or not at all where it is cut at
    the largest count: all in one direction and by at most as much.

    Args:
        counts: those by which labels are selected, below 2^62.
        released: the released noisy value of each label, above 0.
        k: how many labels are selected, at most as many as there are.
        selection_std: the standard deviation of the noise of the selection.
        released_std: that of the noise on the released values.
    """
    values = np.asarray(released, dtype=np.float64)
    kth = float(np.partition(values, -k)[-k])
    weighted = np.rint(weight_of_released(selection_std, released_std, kth) * values)
    added = np.clip(weighted, 0, LARGEST_ADDED).astype(np.int64)
    return np.minimum(counts + added, LARGEST_COUNT - 1)
