"""Intervals for counts that were released because they passed a fixed threshold, whatever the other
labels' counts.

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
# A true count that would be shown with at most this probability is assumed not to be among the
# rows: that any of 2^62 such labels is shown has a probability below 1e-230, which changes no α.
NEVER = 1e-250
# Tails are upper bounds that are too large by at most this relative error; both ends of an interval
# allow for twice as much.
TAIL_ERROR = 1e-6


def level_of_each(alpha: float, rows: int) -> float:
    """Return the error probability that each of ``rows`` independent intervals may have so that
    some interval fails with probability at most alpha: 1 - (1 - alpha)^(1/rows).
    """
    log_each = np.log1p(-alpha) / max(rows, 1)
    return float(-np.expm1(log_each))


@dataclass(frozen=True)
class PassedCount:
    """The law of a count with noise N that was shown because it was above a threshold. Below, x is
    a true count, and y a value that was shown.

    Attributes:
        threshold: T, a whole number.
        tail: upper bounds on P[N > c] for c >= 0, larger by at most a relative TAIL_ERROR; N is an
            integer, symmetric around 0.
        at_threshold: the probability with which a value of exactly T is shown.
    """

    threshold: int
    tail: Tail
    at_threshold: float = 0.0

    def intervals(self, values: Array, alpha: float) -> tuple[Array, Array]:
        """Return the lowest and the highest true count, at least 1, of each value's interval.

        Args:
            values: the values shown, integers of at least ``threshold``, shape (rows,).
            alpha: each interval misses with at most this probability, given which labels passed.

        Returns:
            Two int64 arrays of shape (rows,).
        """
        half = alpha / 2

        @cache
        def ends(y: int) -> tuple[int, int]:
            """Return the ends of the interval of one shown value."""
            nearest = max(y, 1)
            # From ``first_above`` on true counts are so large that a value of at most y is
            # improbable; below ``lowest`` they are so small that one of at least y is.
            first_above = first_true(lambda x: self.lower_tail(y, x) <= half, nearest)
            lowest = first_true(lambda x: self._is_large_enough(x, y, half), 1, nearest)
            return lowest, first_above - 1

        pairs = list(map(ends, values.tolist()))
        low, high = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return low, high

    def _is_large_enough(self, x: int, y: int, half: float) -> bool:
        """Return whether a true count x is not below the interval of the shown value y: whether a
        value of at least y has a probability above ``half``, and x is not practically always hidden
        (NEVER).

        Args:
            x: the true count.
            y: the value shown.
            half: the error probability of the lower end.
        """
        return self._show_probability(x) > NEVER and self.upper_tail(y, x) > half

    def upper_tail(self, y: int, x: int) -> float:
        """Return an upper bound on P[x + N >= y | shown] for a true count x."""
        if y > self.threshold:
            share = self._signed_tail(y - x - 1) / self._show_probability(x)
            return min(share * (1 + 2 * TAIL_ERROR), 1.0)
        return 1.0

    def lower_tail(self, y: int, x: int) -> float:
        """Return an upper bound on P[x + N <= y | shown] for a true count x.

        For x > y it is the smaller of two bounds: 1 minus the upper tail, and P[T < x + N <= y] as
        a difference of two small tails, which keeps its precision where 1 minus does not.
        """
        show_probability = self._show_probability(x)
        upper = self._signed_tail(y - x) / show_probability
        by_complement = 1 - upper * (1 - 2 * TAIL_ERROR)
        if x <= y:
            return by_complement
        least_hide_probability = self._hide_probability(x) * (1 - TAIL_ERROR)
        by_difference = (self.tail(x - y - 1) - least_hide_probability) / show_probability
        return min(by_complement, by_difference * (1 + 2 * TAIL_ERROR))

    def _show_probability(self, x: int) -> float:
        """Return the probability that a true count x is shown: above T, or at T by a coin."""
        above = self._signed_tail(self.threshold - x)
        coin = self.at_threshold
        if coin == 0:
            return above
        at_least = self._signed_tail(self.threshold - x - 1)
        return (1 - coin) * above + coin * at_least

    def _hide_probability(self, x: int) -> float:
        """Return the probability that a true count x > T is not shown, at most TAIL_ERROR too
        large: computed from tails below T, without a difference of nearly equal numbers.
        """
        at_most = self.tail(x - self.threshold - 1)
        coin = self.at_threshold
        if coin == 0:
            return at_most
        below = self.tail(x - self.threshold)
        return (1 - coin) * at_most + coin * below

    def _signed_tail(self, c: int) -> float:
        """Return P[N > c] for an integer c of either sign, by the symmetry of the law."""
        if c >= 0:
            return self.tail(c)
        return 1 - self.tail(-c - 1)
