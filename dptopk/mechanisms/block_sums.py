"""Sums of terms for each label, computed in blocks of labels that stay in a processor's cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from dptopk.mechanisms.samplers.random import Array, Ints

# Sums of this many labels are computed at a time, so that they stay in a processor's cache.
_BLOCK = 2**15


def blocks(labels: int) -> Iterator[slice]:
    """Yield slices that cover ``labels`` labels, each small enough for a processor's cache."""
    for start in range(0, labels, _BLOCK):
        yield slice(start, min(start + _BLOCK, labels))


def add_terms(block: Array, terms: Iterable[tuple[np.generic, Sequence[Ints]]], start: int) -> None:
    """Add terms, one after the other, to the sums of the labels of a block.

    The order of the terms does not depend on the blocks, so that neither does the rounding of a
    sum.

    Args:
        block: the sums of the labels from ``start`` on, shape (n,), changed in place.
        terms: a term is a factor and, in consecutive parts, the numbers of the labels from place 0
            on; labels beyond the last part add nothing.
        start: the place of the block's first label.
    """
    term = np.empty(block.size, dtype=block.dtype)
    for factor, parts in terms:
        part_start = -start  # index in the block of the part's first label
        for numbers in parts:
            low = max(part_start, 0)
            high = min(part_start + numbers.size, block.size)
            if low < high:
                np.multiply(
                    numbers[low - part_start : high - part_start], factor, out=term[low:high]
                )
            part_start += numbers.size
        block[: max(part_start, 0)] += term[: max(part_start, 0)]
