"""Running sums by fewer, better measurements: which sums of days are measured, and how they make up a total.

The matrix of all running sums is A = B W. The rows of W are measured with noise, each on the last day that it needs;
a day's totals are combinations B of what has been measured so far. W has whole numbers, so that measurements are
integers and their charge is exact; B is post-processing. docs/notes/continual.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

Kind = Literal["square_root", "tree", "daily"]
# The square root's entries are rounded to multiples of 1/UNIT: finer ones would lower the error by less than 1%.
UNIT = 32


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Measurements of sums of days, and totals from them.

    Attributes:
        strategy: W, non-negative integers, shape (rows, days): row r is measured on the last day of its support.
        totals: B, shape (days, rows): B W is the lower triangle of ones, and B[t] uses rows measured by day t.
        unit: the noise's scale is sigma times this.
    """

    strategy: np.ndarray[Any, Any]
    totals: np.ndarray[Any, Any]
    unit: int

    @property
    def days(self) -> int:
        """Number of days."""
        return int(self.strategy.shape[1])

    @cached_property
    def measured_on(self) -> np.ndarray[Any, Any]:
        """The day, from 0, on which each row is measured: the last one in it."""
        return self.days - 1 - np.argmax(self.strategy[:, ::-1] > 0, axis=1)

    @cached_property
    def shifts(self) -> dict[int, int]:
        """Weights with which one day enters the measurements, with their numbers: enough for whichever day it is.

        A day's positive weights, sorted, are at most these, one by one; a token for a larger shift covers a smaller.
        """
        columns = -np.sort(-self.strategy, axis=0)  # each day's weights, falling
        worst = columns.max(axis=1)
        return dict(Counter(worst[worst > 0].tolist()))

    @cached_property
    def alone(self) -> bool:
        """Whether each measurement holds one day, so that several days of one user never add up inside it."""
        return bool((self.strategy > 0).sum(axis=1).max() == 1)

    def energy(self, days_per_user: int, days_apart: int) -> int:
        """The most that the squared shifts of one label's rows sum to, where a user is active on several days.

        Active on the days S, the shifts W·1_S have squares that sum to Σ G_ij over i, j in S, G = WᵀW. Let Ĝ be the
        least matrix above G that falls with the first day and with the distance: Ĝ_(i, i+d) = max of G_(j, j+e) over
        j >= i, e >= d. The a-th day of S is at least g(a - 1) from the first possible one, and g(b - a) from the b-th,
        so that the sum is at most that of Ĝ over the days 1, 1 + g, 1 + 2g, ... This is attained where G = Ĝ.

        Args:
            days_per_user: at most this many days, at least 1.
            days_apart: g, the smallest distance of two of them, at least 1.
        """
        if days_per_user == 1:
            return sum(n * weight**2 for weight, n in self.shifts.items())
        return _energy(self, days_per_user, days_apart)

    def scales(self, sigma: float) -> np.ndarray[Any, Any]:
        """Upper bound on the standard deviation of the noise on each day's total, shape (days,)."""
        return sigma * self.unit * np.sqrt((self.totals**2).sum(axis=1))


@lru_cache(maxsize=64)
def _energy(plan: Factorisation, days_per_user: int, days_apart: int) -> int:
    columns = plan.strategy.astype(float)  # sums below 2^53: exact
    gram, days = columns.T @ columns, plan.days
    above = np.zeros_like(gram)  # first day × distance
    for apart in range(days):
        above[: days - apart, apart] = np.diagonal(gram, apart)
    above = np.maximum.accumulate(np.maximum.accumulate(above[::-1, ::-1], axis=0), axis=1)[::-1, ::-1]
    active = np.arange(0, days, min(days_apart, days))[:days_per_user]
    first, distance = np.minimum.outer(active, active), np.abs(np.subtract.outer(active, active))
    return int(above[first, distance].sum())


@lru_cache(maxsize=8)
def factorise(kind: Kind, days: int) -> Factorisation:
    """The factorisation of that name for so many days."""
    return FACTORISATIONS[kind](days)


def _square_root(days: int) -> Factorisation:
    """W near the square root of A, the Toeplitz matrix of binom(2n, n)/4^n (Fichtenberger et al. 2023)."""
    column = np.ones(days)
    for n in range(1, days):
        column[n] = column[n - 1] * (2 * n - 1) / (2 * n)
    whole = np.maximum(np.rint(UNIT * column), 1.0).astype(np.int64)
    inverse = np.zeros(days)  # B = A W^-1 is Toeplitz too: its column b solves sum_j b_j w_(n-j) = 1
    for n in range(days):
        inverse[n] = (1 - inverse[:n] @ whole[n:0:-1]) / whole[0]
    return Factorisation(_toeplitz(whole), _toeplitz(inverse), UNIT)


def _toeplitz(column: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    lag = np.subtract.outer(np.arange(len(column)), np.arange(len(column)))
    return np.where(lag >= 0, column[np.maximum(lag, 0)], 0)


def _tree(days: int) -> Factorisation:
    """Dyadic intervals; a total is the sum of as many as its day has digits 1 (Dwork et al. 2010, Chan et al. 2011)."""
    intervals = [
        (start, start + length)
        for length in (1 << level for level in range(days.bit_length()))
        for start in range(0, days - length + 1, length)
    ]
    place = {interval: row for row, interval in enumerate(intervals)}
    strategy, totals = np.zeros((len(intervals), days), dtype=np.int64), np.zeros((days, len(intervals)))
    for row, (start, end) in enumerate(intervals):
        strategy[row, start:end] = 1
    for day in range(days):
        end = day + 1
        while end:
            start = end & (end - 1)  # without its lowest digit
            totals[day, place[start, end]] = 1.0
            end = start
    return Factorisation(strategy, totals, 1)


def _daily(days: int) -> Factorisation:
    """Each day by itself, added up."""
    return Factorisation(np.eye(days, dtype=np.int64), np.tri(days), 1)


FACTORISATIONS: dict[Kind, Callable[[int], Factorisation]] = {
    "square_root": _square_root,
    "tree": _tree,
    "daily": _daily,
}
