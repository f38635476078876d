"""Sums of terms for each label, computed in blocks of labels that stay in a processor's cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dptopk.mechanisms.samplers.random import Array, Ints

# Sums of this many labels are computed at a time, so that they stay in a processor's cache.
_BLOCK = 2**15


@dataclass(frozen=True)
class Term:
    """A number for each label, times a factor.

    Attributes:
        factor: the factor, of the type in which sums are computed.
        parts: the numbers of the labels 0, 1, ..., cut into consecutive arrays; the labels beyond
            the last array have none.
    """

    factor: np.generic
    parts: Sequence[Ints]


def blocks(labels: int) -> Iterator[slice]:
    """Yield slices that cover ``labels`` labels, each small enough for a processor's cache."""
    for start in range(0, labels, _BLOCK):
        yield slice(start, min(start + _BLOCK, labels))


def add_terms(sums: Array, terms: Iterable[Term], start: int) -> None:
    """Add terms, one after the other, to the sums of the labels of a block.

    The order of the terms does not depend on the blocks, so that neither does the rounding of a
    sum.

    Args:
        sums: those of the labels ``start``, ``start`` + 1, ..., shape (n,), changed in place.
        terms: what is added; labels for which a term has no number stay as they are.
        start: the first label of the block.
    """
    products = np.empty(sums.size, dtype=sums.dtype)
    for term in terms:
        # Places in ``sums`` between which the numbers of a part belong; the first may be below 0.
        part_begin = -start
        for numbers in term.parts:
            part_end = part_begin + numbers.size
            begin = max(part_begin, 0)
            end = min(part_end, sums.size)
            if begin < end:
                in_block = numbers[begin - part_begin : end - part_begin]
                np.multiply(in_block, term.factor, out=products[begin:end])
            part_begin = part_end
        labels_with_number = max(part_begin, 0)
        sums[:labels_with_number] += products[:labels_with_number]
