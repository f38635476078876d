"""Intervals for counts released because they passed a fixed threshold, independent of the other
labels.

Given which labels passed, their noisy counts are independent, each with the law of x + N given x +
N > T. That law does not depend on how many others were given noise, which is private. Its
likelihood ratio rises with x, so the x for which neither end of it is improbable form an interval.
Statement and proof: docs/notes/intervals.md, "Counts that passed".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dptopk._internal.search import first_true

Array = np.ndarray[Any, Any]
Tail = Callable[[int], float]
# A true count that would be shown with at most this probability is not among the rows: of at most
# 2^62 labels, any such one is shown with a probability below 1e-230, which no float of α shows.
NEVER = 1e-250
# Tails are upper bounds, at most this share too large; both ends are moved outward by twice as
# much.
TAIL_ERROR = 1e-6


def level(alpha: float, rows: int) -> float:
    """Return the level of each of n independent intervals that jointly fail with probability at
    most alpha.
    """
    log_each = np.log1p(-alpha) / max(rows, 1)
    return float(-np.expm1(log_each))


@dataclass(frozen=True)
class Passed:
    """The law of a count with noise that was shown because it was above a threshold.

    Attributes:
        threshold: T.
        tail: upper bounds on P[N > c] for c >= 0, at most TAIL_ERROR too large; N is symmetric
            around 0.
        at_threshold: the chance with which a value of exactly T is shown.
    """

    threshold: int
    tail: Tail
    at_threshold: float = 0.0

    def intervals(self, values: Array, alpha: float) -> tuple[Array, Array]:
        """The lowest and highest true counts, at least 1, of values that were shown.

        Args:
            values: the values shown, integers of at least ``threshold``, shape (rows,).
            alpha: each interval misses with at most this probability, given which labels passed.

        Returns:
            Two int64 arrays of shape (rows,).
        """
        half = alpha / 2

        @cache
        def ends(y: int) -> tuple[int, int]:
            nearest = max(y, 1)
            above = first_true(lambda x: self.lower_tail(y, x) <= half, nearest)
            lowest = first_true(lambda x: self._may_be(y, x, half), 1, nearest)
            return lowest, above - 1

        pairs = list(map(ends, values.tolist()))
        low, high = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return low, high

    def _may_be(self, y: int, x: int, half: float) -> bool:
        """Whether a true count x is not too small for the value y that was shown."""
        return self._shown(x) > NEVER and self.upper_tail(y, x) > half

    def upper_tail(self, y: int, x: int) -> float:
        """Upper bound on P[x + N >= y | shown]."""
        if y > self.threshold:
            share = self._more(y - x - 1) / self._shown(x)
            return min(share * (1 + 2 * TAIL_ERROR), 1.0)
        return 1.0

    def lower_tail(self, y: int, x: int) -> float:
        """Upper bound on P[x + N <= y | shown]; of small chances the difference of the tails below
        is precise.
        """
        shown = self._shown(x)
        more = self._more(y - x) / shown
        by_rest = 1 - more * (1 - 2 * TAIL_ERROR)
        if x <= y:
            return by_rest
        hidden = self._shown(x, hidden=True)
        surely_hidden = hidden * (1 - TAIL_ERROR)
        below = (self.tail(x - y - 1) - surely_hidden) / shown
        return min(by_rest, below * (1 + 2 * TAIL_ERROR))

    def _shown(self, x: int, *, hidden: bool = False) -> float:
        """P[a count x is shown]: above T, or at T with that chance; or, of x > T, that it is not
        shown.
        """
        missing = self.threshold - x
        tie = self.at_threshold
        total = 0.0
        for c, weight in ((missing, 1 - tie), (missing - 1, tie)):
            if weight == 0:
                continue
            if hidden and c < 0:
                total += weight * self.tail(-c - 1)
            else:
                total += weight * self._more(c)
        return total

    def _more(self, c: int) -> float:
        """P[N > c] for every c, by symmetry."""
        if c >= 0:
            return self.tail(c)
        return 1 - self.tail(-c - 1)
