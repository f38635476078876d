"""Sums of products in one thread.

BLAS, behind ``@`` and ``np.linalg.norm``, splits long sums among threads. At the lengths that occur
here they wait for one another several times as long as the sum takes, and their number decides its
last digits.
"""

from __future__ import annotations

import numpy as np

from dptopk._internal.rounding import Floats


def inner(a: Floats, b: Floats) -> float:
    """Return Σ a_i b_i of two vectors, added pairwise: it is off by less than 64 units of roundoff,
    relative to Σ |a_i b_i|.
    """
    return float(np.sum(a * b))


def weighted(rows: Floats, weights: Floats) -> Floats:
    """Return Σ_j rows[i, j] weights[j] for each row i of a matrix, added one after the other."""
    sums: Floats = np.einsum("ij,j->i", rows, weights)
    return sums
