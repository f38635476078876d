"""Intervals for counts that were kept because they passed a fixed threshold, whoever else was there.

Given which labels passed, their noisy counts are independent, each with the law of x + N given x + N > T. That law does
not depend on how many others were given noise, which is private. Its likelihood ratio rises with x, so the x for which
neither end of it is improbable form an interval. Statement and proof: docs/intervals.md, "Counts that passed".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from dptopk._internal.search import first_true

Tail = Callable[[int], float]
# Tails are upper bounds, at most this share too large; both ends are moved outward by twice as much.
SHARE = 1e-6


def level(alpha: float, rows: int) -> float:
    """The level of each of so many independent intervals that miss together with probability at most alpha."""
    return float(-np.expm1(np.log1p(-alpha) / max(rows, 1)))


def passed_intervals(
    values: np.ndarray[Any, Any], threshold: int, tail: Tail, alpha: float
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The lowest and highest true counts, at least 1, of values that were shown because they were above the threshold.

    Args:
        values: the values shown, integers above ``threshold``, shape (rows,).
        threshold: T.
        tail: upper bounds on P[N > c] for c >= 0, at most SHARE too large; N is symmetric around 0.
        alpha: each interval misses with at most this probability, given which labels passed.

    Returns:
        Two int64 arrays of shape (rows,).
    """
    half = alpha / 2
    signed = lru_cache(maxsize=None)(_signed(tail))

    def at_least(y: int, x: int) -> float:
        """Upper bound on P[x + N >= y | x + N > T]."""
        return signed(y - x - 1) / signed(threshold - x) * (1 + 2 * SHARE)

    def at_most(y: int, x: int) -> float:
        """Upper bound on P[x + N <= y | x + N > T]."""
        return 1 - signed(y - x) / signed(threshold - x) * (1 - 2 * SHARE)

    def ends(y: int) -> tuple[int, int]:
        return first_true(lambda x: at_least(y, x) > half, 1, y), first_true(lambda x: at_most(y, x) <= half, y) - 1

    low, high = np.array([ends(y) for y in values.tolist()], dtype=np.int64).reshape(-1, 2).T
    return low, high


def _signed(tail: Tail) -> Tail:
    """P[N > c] for every c, by symmetry."""
    return lambda c: tail(c) if c >= 0 else 1 - tail(-c - 1)
