"""Factorisations of running sums: which weighted sums of days are measured with noise, and how
totals are computed from them.

The matrix of all running sums is A = B W. The rows of W are measured with noise, each on the last
day that it needs; a day's totals are combinations B of what has been measured so far. W has integer
entries, so that measurements are integers and their charge is exact; B is post-processing. See
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
from dptopk.mechanisms.samplers.optimal_factorisation import optimal_strategy
from dptopk.mechanisms.samplers.participation import Error, Participation
from dptopk.mechanisms.samplers.random import Array

Kind = Literal["optimal", "square_root", "tree", "daily"]
SUM_ROUNDING = 1e-9  # relative, far above that of the solution of a triangular system and its sums
EXACT_INTEGERS = 2**53  # below, integers are exact as floats
ENERGY_ROUNDING = 1e-12  # relative, of a sum of larger integers
SHRINK = 1e-6  # relative: by how much less the next scale is tried
# Beyond those of the number of days: so rounding the weights raises the noise of totals by little.
BITS_OF_UNIT = 5


@dataclass(frozen=True, eq=False)
class Factorisation:
    """Measurements of weighted sums of the days' counts, and totals from them.

    Attributes:
        strategy: W, integers, shape (rows, days): the weights of the days in each measurement; row
            r is measured on the last day whose weight is not 0.
        totals: B, float64, shape (days, rows): the weights of the measurements in each day's total;
            B W is the lower triangle of ones, and B[t] uses rows measured by day t.
        unit: the integer that stands for the weight 1; the scale of the noise of a measurement is
            sigma·linf times this.
    """

    strategy: Array
    totals: Array
    unit: int

    @cached_property
    def measured_on(self) -> Array:
        """Return the day, from 0, on which each row is measured: the last one that it sums; shape
        (rows,).
        """
        # Of the days in reverse order, argmax finds the first one that a row sums.
        days_after = np.argmax(self.strategy[:, ::-1] != 0, axis=1)
        return self.strategy.shape[1] - 1 - days_after

    @cached_property
    def largest_weight_sum(self) -> int:
        """Return the largest sum of the absolute weights of the days in a measurement."""
        sums = np.abs(self.strategy).sum(axis=1)
        return int(sums.max())

    @cached_property
    def spread(self) -> Array:
        """Return an upper bound on the standard deviation of the noise on each day's total at sigma
        = 1, shape (days,).
        """
        squares: Array = (self.totals**2).sum(axis=1)
        return self.unit * np.sqrt(squares) * (1 + SUM_ROUNDING)

    @cached_property
    def sums_of_weights(self) -> Array:
        """Return an upper bound on the sum of the absolute weights of the measurements in each
        day's total, shape (days,).
        """
        sums: Array = np.abs(self.totals).sum(axis=1) * (1 + SUM_ROUNDING)
        return sums

    def energy(self, participation: Participation) -> int:
        """Return an upper bound, a whole number, on the sum of the squares by which one user shifts
        the measurements of one label: a user who is active on the days that ``participation``
        allows, and adds 1 on each. It is computed once.
        """
        return _energy(self, participation)

    def error(self, participation: Participation, error: Error) -> float:
        """Return the standard deviation of the noise on a total if all days of a user together
        cost GaussianDP(1): that of the worst day, or the root mean square over all days.
        """
        variances = (self.spread / self.unit) ** 2 * self.energy(participation)
        return float(np.sqrt(_aggregated_variance(variances, error)))


def _aggregated_variance(variances: Array, error: Error) -> float:
    """Return the largest or the mean of the days' variances, shape (days,), as ``error`` says."""
    if error == "max":
        return float(variances.max())
    return float(variances.mean())


@lru_cache(maxsize=64)
def _energy(factorisation: Factorisation, participation: Participation) -> int:
    """Return ``Participation.energy`` of a strategy, rounded up to an integer; it is free of
    rounding below 2^53.
    """
    energy = participation.energy(factorisation.strategy)
    if energy < EXACT_INTEGERS:
        return int(energy)
    return math.ceil(energy * (1 + ENERGY_ROUNDING))


@lru_cache(maxsize=4)  # each takes a quarter of a gigabyte for 4000 days
def factorise(kind: Kind, participation: Participation, error: Error = "max") -> Factorisation:
    """Return the factorisation of this name with integer weights, scaled so that the energy
    (``Factorisation.energy``) is at most unit² and close to it: all measurements together then cost
    what one would that a user shifts by the unit.

    Args:
        kind: its name.
        participation: on which days one user may be active.
        error: what the kinds that minimise the noise of totals minimise: that of the worst day, or
            the mean.
    """
    real_weights = FACTORISATIONS[kind](participation, error)
    days = participation.days
    unit = unit_of(participation)
    weights_of_energy_1 = real_weights / np.sqrt(participation.energy(real_weights))
    factor = float(unit)
    energy = np.inf
    while energy > unit**2:  # rounding the weights can raise it: then a smaller factor is tried
        strategy = np.rint(factor * weights_of_energy_1).astype(np.int64)
        energy = participation.energy(strategy)
        factor *= min(unit / np.sqrt(energy), 1) * (1 - SHRINK)
    if kind == "tree":  # it is not square, and all its weights are equal
        return Factorisation(strategy, _tree_totals(days) / strategy.max(), unit)
    return factorisation_of(strategy, unit)


def unit_of(participation: Participation) -> int:
    """Return the integer that stands for the weight 1.

    A rounded weight is off by at most half a unit. The unit grows with the number of days, and
    where a user is active on many of them and weights are smaller, so that rounding raises the
    noise of a total by little (docs/notes/continual.md). It biases no total: B is that of the
    rounded weights.
    """
    # Weights are about 1/sqrt(most) of those of a user with one day.
    bits_of_user = participation.most.bit_length() // 2
    return 1 << (BITS_OF_UNIT + participation.days.bit_length() + bits_of_user)


def factorisation_of(strategy: Array, unit: int) -> Factorisation:
    """Return the factorisation with these measurements, one for each day, which determine the
    totals: B = A W⁻¹, with A the lower triangle of ones.

    Args:
        strategy: W, integers, lower triangular, shape (days, days); row t is measured on day t.
        unit: the integer that stands for the weight 1.

    Raises:
        InvalidParameter: where the measurements do not determine the totals.
    """
    from scipy.linalg import solve_triangular

    if (np.diagonal(strategy) <= 0).any() or np.triu(strategy, 1).any():
        raise InvalidParameter(
            f"factorisation: these measurements do not suit {len(strategy)} days"
        )
    sums = np.tri(len(strategy))
    totals = solve_triangular(strategy.T.astype(float), sums.T, lower=False)
    return Factorisation(strategy, totals.T, unit)


def _optimal_strategy(participation: Participation, error: Error) -> Array:
    """Return a strategy close to the optimum, real, shape (days, days)."""
    square_root = factorise("square_root", participation, error)
    return optimal_strategy(participation, error, square_root.error(participation, error))


def _square_root_strategy(participation: Participation, error: Error) -> Array:
    """Return the square root of A, the lower triangle of ones, with columns of norm 1, real, shape
    (days, days).

    It is the Toeplitz matrix of binom(2n, n)/4^n (Fichtenberger et al. 2023). Where users are
    active on several days it is cut to a band (Kalinin-Lampert 2024): to the one of
    ``_band_widths`` with the least error before columns are normalised.
    """
    days = participation.days
    # binom(2n, n)/4^n is (2n - 1)/(2n) times the number before it.
    twice_n = 2 * np.arange(1.0, days)
    root = np.cumprod(np.r_[1.0, (twice_n - 1) / twice_n])
    if participation.most == 1:
        band = days
    else:
        band = min(_band_widths(participation), key=partial(_band_loss, root, participation, error))
    lag = np.subtract.outer(np.arange(days), np.arange(days))
    in_band = (lag >= 0) & (lag < band)
    matrix = np.where(in_band, root[np.maximum(lag, 0)], 0.0)
    return matrix / np.sqrt((matrix**2).sum(axis=0))


def _band_widths(participation: Participation) -> list[int]:
    """Return the widths of bands to try: all days, powers of 2, and these times ``apart``."""
    days = participation.days
    powers = [1 << n for n in range(days.bit_length())]
    candidates = [*powers, *(power * participation.apart for power in powers)]
    return sorted({days} | {band for band in candidates if band <= days})


def _band_loss(root: Array, participation: Participation, error: Error, band: int) -> float:
    """Return the energy of one user times the aggregated variance of the totals, for the strategy
    that has the first ``band`` diagonals of the square root.

    Args:
        root: the first column of the square root, shape (days,).
        participation: on which days one user may be active.
        error: how the variances of the days are aggregated.
        band: how many diagonals are used.
    """
    from scipy.signal import lfilter

    days = participation.days
    column = np.where(np.arange(days) < band, root, 0.0)
    # B = A W^-1 is Toeplitz too: its first column solves W b = (1, ..., 1), by recursion.
    rows = lfilter([1.0], column[:band], np.ones(days))
    variances = np.cumsum(rows**2)
    # A user moves the measurements most on the earliest days: by a sum of shifted columns.
    user_days = participation.earliest_days.tolist()
    shifts = sum(np.r_[np.zeros(day), column[: days - day]] for day in user_days)
    return float(np.sum(shifts**2) * _aggregated_variance(variances, error))


def _dyadic_intervals(days: int) -> list[tuple[int, int]]:
    """Return all dyadic intervals [start, end) within the days, the shortest first."""
    intervals: list[tuple[int, int]] = []
    for level in range(days.bit_length()):
        length = 1 << level
        starts = range(0, days - length + 1, length)
        intervals.extend((start, start + length) for start in starts)
    return intervals


def _tree_strategy(participation: Participation, _: Error) -> Array:
    """Return the strategy that sums each dyadic interval, shape (intervals, days).

    The total of a day is the sum of as many intervals as its number has binary digits 1 (Dwork et
    al. 2010, Chan et al. 2011).
    """
    intervals = np.array(_dyadic_intervals(participation.days))
    first = intervals[:, :1]  # of shape (intervals, 1), to be compared with all days
    end = intervals[:, 1:]
    day = np.arange(participation.days)
    return ((first <= day) & (day < end)).astype(float)


def _tree_totals(days: int) -> Array:
    """Return which dyadic intervals make up each day's total, 0 or 1, shape (days, intervals)."""
    intervals = _dyadic_intervals(days)
    row_of = {interval: row for row, interval in enumerate(intervals)}
    totals = np.zeros((days, len(intervals)))
    for day in range(days):
        end = day + 1
        while end:
            start = end & (end - 1)  # without its lowest digit 1
            totals[day, row_of[start, end]] = 1.0
            end = start
    return totals


def _daily_strategy(participation: Participation, _: Error) -> Array:
    """Return the strategy that measures each day by itself, the identity matrix."""
    return np.eye(participation.days)


FACTORISATIONS: dict[Kind, Callable[[Participation, Error], Array]] = {
    "optimal": _optimal_strategy,
    "square_root": _square_root_strategy,
    "tree": _tree_strategy,
    "daily": _daily_strategy,
}
