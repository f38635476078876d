"""Running sums by fewer, better measurements: which sums of days are measured, and how they make up
a total.

The matrix of all running sums is A = B W. The rows of W are measured with noise, each on the last
day that it needs; a day's totals are combinations B of what has been measured so far. W has whole
numbers, so that measurements are integers and their charge is exact; B is post-processing.
docs/notes/continual.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Literal

import numpy as np

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.optimal_factorisation import optimum
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array

Kind = Literal["optimal", "square_root", "tree", "daily"]


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Measurements of sums of days, and totals from them.

    Attributes:
        strategy: W, integers, shape (rows, days): row r is measured on the last day of its support.
        totals: B, shape (days, rows): B W is the lower triangle of ones, and B[t] uses rows
            measured by day t.
        unit: the noise's scale is sigma times this.
    """

    strategy: Array
    totals: Array
    unit: int

    @cached_property
    def measured_on(self) -> Array:
        """The day, from 0, on which each row is measured: the last one in it."""
        after = np.argmax(self.strategy[:, ::-1] != 0, axis=1)
        return self.strategy.shape[1] - 1 - after

    @cached_property
    def heaviest(self) -> int:
        """The largest sum of a row's weights, without signs."""
        sums = np.abs(self.strategy).sum(axis=1)
        return int(sums.max())

    @cached_property
    def spread(self) -> Array:
        """Upper bound on the standard deviation of the noise on each day's total at sigma = 1,
        shape (days,).
        """
        squares: Array = (self.totals**2).sum(axis=1)
        return self.unit * np.sqrt(squares) * (1 + 1e-9)

    @cached_property
    def weights(self) -> Array:
        """Upper bound on the sum of the weights of each day's total, without signs, shape
        (days,).
        """
        found: Array = np.abs(self.totals).sum(axis=1) * (1 + 1e-9)
        return found

    def energy(self, participation: Participation) -> int:
        """The most that the squared shifts of one label's rows sum to, for one user."""
        return _energy(self, participation)

    def error(self, participation: Participation, error: Error) -> float:
        """Standard deviation of a total where all days of a user together are 1-Gaussian: the
        worst, or in the mean.
        """
        squares = (self.spread / self.unit) ** 2 * self.energy(participation)
        return float(np.sqrt(_total(squares, error)))


def _total(of_days: Array, error: Error) -> float:
    """Return what is to be small of a value for each day: the largest, or the mean."""
    return float(of_days.max() if error == "max" else of_days.mean())


@lru_cache(maxsize=64)
def _energy(plan: Factorisation, participation: Participation) -> int:
    found = participation.energy(plan.strategy)
    if found < 2**53:
        return int(found)
    return math.ceil(found * (1 + 1e-12))  # a sum of integers that may be rounded


@lru_cache(maxsize=4)  # of 4000 days each takes a quarter of a gigabyte
def factorise(kind: Kind, participation: Participation, error: Error = "max") -> Factorisation:
    """The factorisation of that name, in whole numbers: the energy is at most unit², and just
    below.
    """
    real = FACTORISATIONS[kind](participation, error)
    days = participation.days
    unit = unit_of(participation)
    scaled = real / np.sqrt(participation.energy(real))
    factor = float(unit)
    energy = np.inf
    while energy > unit**2:
        whole = np.rint(factor * scaled).astype(np.int64)
        energy = participation.energy(whole)
        factor *= min(unit / np.sqrt(energy), 1) * (1 - 1e-6)
    if kind == "tree":  # every weight is the same
        return Factorisation(whole, _tree_totals(days) / whole.max(), unit)
    return triangular(whole, unit)


def unit_of(participation: Participation) -> int:
    """The unit: of many days of a user weights are smaller, so it is finer, and rounding is below a
    32nd of a count.
    """
    of_user = participation.most.bit_length() // 2
    return 1 << (5 + participation.days.bit_length() + of_user)


def triangular(strategy: Array, unit: int) -> Factorisation:
    """The factorisation of these measurements, a row for each day, that are made on the row's own
    day.

    Raises:
        InvalidParameter: where they do not determine the totals.
    """
    from scipy.linalg import solve_triangular

    if (np.diagonal(strategy) <= 0).any() or np.triu(strategy, 1).any():
        raise InvalidParameter(
            f"factorisation: these measurements do not suit {len(strategy)} days"
        )
    sums = np.tri(len(strategy))
    totals = solve_triangular(strategy.T.astype(float), sums.T, lower=False)
    return Factorisation(strategy, totals.T, unit)


def _optimal(participation: Participation, error: Error) -> Array:
    near = factorise("square_root", participation, error)
    return optimum(participation, error, near.error(participation, error))


def _square_root(participation: Participation, error: Error) -> Array:
    """The square root of A, Toeplitz with binom(2n, n)/4^n (Fichtenberger et al. 2023), cut to a
    band, norms of 1.

    The band (Kalinin-Lampert 2024) is the one with the least error before columns are divided by
    their norms, of powers of 2 and these times ``apart``, where users are active on several days;
    else it is the whole matrix.
    """
    days = participation.days
    twice = 2 * np.arange(1.0, days)
    root = np.cumprod(np.r_[1.0, (twice - 1) / twice])
    if participation.most == 1:
        band = days
    else:
        band = min(_bands(participation), key=partial(_band_loss, root, participation, error))
    lag = np.subtract.outer(np.arange(days), np.arange(days))
    inside = (lag >= 0) & (lag < band)
    matrix = np.where(inside, root[np.maximum(lag, 0)], 0.0)
    return matrix / np.sqrt((matrix**2).sum(axis=0))


def _bands(participation: Participation) -> list[int]:
    """The bands that are tried: all days, powers of 2, and these times ``apart``."""
    days = participation.days
    powers = [1 << n for n in range(days.bit_length())]
    candidates = [*powers, *(power * participation.apart for power in powers)]
    return sorted({days} | {band for band in candidates if band <= days})


def _band_loss(root: Array, participation: Participation, error: Error, band: int) -> float:
    """The energy of one user times the error, of the square root's first ``band`` diagonals."""
    from scipy.signal import lfilter

    days = participation.days
    column = np.where(np.arange(days) < band, root, 0.0)
    rows = lfilter([1.0], column[:band], np.ones(days))
    noise = np.cumsum(rows**2)
    first_days = participation.first.tolist()
    moved = sum(np.r_[np.zeros(day), column[: days - day]] for day in first_days)
    return float(np.sum(moved**2) * _total(noise, error))


def _dyadic(days: int) -> list[tuple[int, int]]:
    """All dyadic intervals within the days."""
    lengths = [1 << level for level in range(days.bit_length())]
    return [
        (start, start + length)
        for length in lengths
        for start in range(0, days - length + 1, length)
    ]


def _tree(participation: Participation, _: Error) -> Array:
    """Dyadic intervals; a total is the sum of as many as its day has digits 1 (Dwork et al. 2010,
    Chan et al. 2011).
    """
    first, end = np.array(_dyadic(participation.days)).T[:, :, None]
    day = np.arange(participation.days)
    return ((first <= day) & (day < end)).astype(float)


def _tree_totals(days: int) -> Array:
    place = {interval: row for row, interval in enumerate(_dyadic(days))}
    totals = np.zeros((days, len(_dyadic(days))))
    for day in range(days):
        end = day + 1
        while end:
            start = end & (end - 1)  # without its lowest digit
            totals[day, place[start, end]] = 1.0
            end = start
    return totals


def _daily(participation: Participation, _: Error) -> Array:
    """Each day by itself, added up."""
    return np.eye(participation.days)


FACTORISATIONS: dict[Kind, Callable[[Participation, Error], Array]] = {
    "optimal": _optimal,
    "square_root": _square_root,
    "tree": _tree,
    "daily": _daily,
}
