"""Exact decisions from a finite number of random bits, more of them being read only when the first
do not decide.

A uniform real U is known by its leading bits. `bernoulli` decides U < p, `bernoulli_exp` U <
e^{-x}, `Cells` finds the cell of a discrete law that contains U. All compare integers whose
distance to the exact value is bounded (by 0 for p), and read 64 more bits of U and compare again
with a finer bound when the comparison is within that distance; so the law of the answer is exact,
whatever the precision of the first attempt. Proofs: docs/notes/exact-sampling.md.
"""

from __future__ import annotations

import decimal
from bisect import bisect_right
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from decimal import Decimal
from fractions import Fraction
from functools import partial
from operator import sub

import numpy as np
import numpy.typing as npt

from dptopk.mechanisms.samplers.random import LISTING_BITS, Bits, Bools, Floats, Ints

_GUIDE_BITS = 16  # leading bits by which a table of ``Cells`` finds most cells
_DIGITS_PER_BIT = 0.30103  # a little more than log10(2)
# Bits beyond those asked for, with which thresholds are computed at first; doubled while too few.
_FIRST_GUARD_BITS = 16


def precise(digits: int) -> AbstractContextManager[decimal.Context]:
    """Return a context in which decimals are computed with this many digits, correctly rounded,
    and with the widest range of exponents.
    """
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    widest = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=traps
    )
    return decimal.localcontext(widest)


def exp_units(numerators: Iterable[int], denominator: int, bits: int) -> list[int]:
    """Return for each x = numerator/denominator >= 0 an integer within 1 of 2**bits * e^{-x}.

    The numerator, the quotient, the exponential and the product are rounded to a relative 5 *
    10**-digits each, where 10**digits > 2**bits * 10**7; errors of the exponent are multiplied by
    at most x e^{-x} <= 1/e. The total error is less than 2e-6 of a unit, and rounding to an integer
    adds half of one.

    Args:
        numerators: integers >= 0.
        denominator: of all of them, at least 1.
        bits: the binary logarithm of the unit, at least 0.

    >>> exp_units([0, 1], 1, 10)
    [1024, 377]
    """
    with precise(int(bits * _DIGITS_PER_BIT) + 8):  # 10**digits > 2**bits * 10**7
        divisor = Decimal(denominator)
        scale = Decimal(1 << bits)
        # As 7/10 > ln 2, 2**bits * e^{-x} < 1/2 from here on.
        negligible = (bits * 7 // 10 + 2) * denominator
        units: list[int] = []
        for numerator in numerators:
            if numerator >= negligible:
                units.append(0)
                continue
            exponential = (-Decimal(numerator) / divisor).exp()
            units.append(round(exponential * scale))
        return units


def _exp_unit(x: Fraction, bits: int) -> int:
    """Return an integer within 1 of 2**bits * e^{-x}, for x >= 0."""
    (unit,) = exp_units([x.numerator], x.denominator, bits)
    return unit


def is_below(
    word: int, known: int, units: Callable[[int], int | Fraction], bits: Bits, error: int = 1
) -> bool:
    """Decide U < p exactly for a uniform U in [0, 1), reading as many bits of U as that takes.

    Args:
        word: the first ``known`` bits of U.
        known: how many bits of U are known.
        units: of a number of bits b; a number within ``error`` of 2**b * p.
        bits: the source of more bits.
        error: 0 or 1.
    """
    while True:
        # U 2^known is in [word, word + 1], and p 2^known within the error of the target: that
        # decides unless the intervals overlap.
        target = units(known)
        if word + 1 <= target - error:
            return True
        if word >= target + error:
            return False
        word = bits.append_bits(word)
        known = known + 64


def coin_of_probability(units: Callable[[int], int], bits: Bits) -> bool:
    """Return True with a probability p that is known to any precision; the law is exact.

    Args:
        units: of a number of bits b; an integer within 1 of 2**b * p.
        bits: the source of words.
    """
    return is_below(int(bits.uint32(1)[0]), 32, units, bits)


def bernoulli(chances: Floats, bits: Bits) -> Bools:
    """Draw independent coins that are true with exactly the given probabilities, bool, shape (n,).

    Args:
        chances: the probabilities, floats in [0, 1) without further rounding, shape (n,).
        bits: the source of words.
    """
    if bits.listing:
        laws = [partial(_coin_masses, Fraction(chance)) for chance in chances.tolist()]
        return np.array([bits.choose(law) for law in laws], dtype=np.bool_)
    words = bits.uint64(chances.size)
    leading = (chances * 2.0**64).astype(np.uint64)
    # Where the first 64 bits of U and of the probability differ, they decide.
    drawn: Bools = words < leading
    for i in np.flatnonzero(words == leading):
        units = partial(_scaled_chance, Fraction(float(chances[i])))
        drawn[i] = is_below(int(words[i]), 64, units, bits, error=0)
    return drawn


def _coin_masses(chance: Fraction) -> list[int]:
    """Return lower bounds on the probabilities of False and True in units of 2**-LISTING_BITS."""
    unit = 1 << LISTING_BITS
    return [int((1 - chance) * unit), int(chance * unit)]


def _scaled_chance(chance: Fraction, bits: int) -> Fraction:
    """Return 2**bits * chance, exactly."""
    return chance * 2**bits


def bernoulli_exp(x: Floats, exact: Callable[[int], Fraction], bits: Bits) -> Bools:
    """Draw independent coins that are true with probability e^{-x}, exactly, bool, shape (n,).

    Args:
        x: the exponents as floats, shape (n,), each at least 0 and within a relative 2**-44 of the
            exact exponent (inf if above 1e308).
        exact: exact(i) is the i-th exponent, exactly; it is called for about one coin in 2**30.
        bits: the source of words.
    """
    return decide_exp(bits.uint32(x.size), x, exact, bits)


def decide_exp(
    first: npt.NDArray[np.uint32], x: Floats, exact: Callable[[int], Fraction], bits: Bits
) -> Bools:
    """Return whether U < e^{-x}, exactly, for uniform U in [0, 1) whose first 32 bits are given;
    bool, shape (n,).

    Floats decide where U and e^{-x} are well apart, more bits of U where they are not.

    Args:
        first: the first 32 bits of each U, shape (n,).
        x: as for ``bernoulli_exp``.
        exact: as for ``bernoulli_exp``.
        bits: the source of more bits.
    """
    gap = np.exp(-x)
    gap -= first * 2.0**-32
    accepted: Bools = gap > 0
    # U is at most 2**-32 above its first bits. The float of e^{-x} is within 2**-40 of it, because
    # x e^{-x} <= 1/e and exp is off by a few ulps. So a gap above 2**-31 decides.
    for i in np.flatnonzero(np.abs(gap, out=gap) <= 2.0**-31):
        accepted[i] = is_below(int(first[i]), 32, partial(_exp_unit, exact(int(i))), bits)
    return accepted


class Cells:
    """A law on 0, 1, 2, ... known by its weights to any precision, sampled by inversion: the unit
    interval is cut into cells, one for each number, as long as its probability; a number is drawn
    as the cell that contains a uniform U.

    Args:
        weights: weights(b) is a list of integers, the j-th within 1 of 2**b * w_j, and all the w_j
            beyond the list add up to at most 2**-b. A longer list for a larger b continues the
            shorter one. The probabilities are w_j / sum(w).
    """

    def __init__(self, weights: Callable[[int], list[int]]) -> None:
        self._weights = weights
        self._tables: dict[int, tuple[list[int], list[int]]] = {}
        lower_of_32_bits, _ = self.thresholds(32)
        # In units of 2**-32: the first 32 bits of U are looked at first.
        self._lower_thresholds = np.array(lower_of_32_bits, dtype=np.int64)
        self._guide = self._cells_by_leading_bits()

    def thresholds(self, known: int) -> tuple[list[int], list[int]]:
        """Return where the cells end, in units of 2**-known: for each cell j a lower and an upper
        integer with lower[j] <= 2**known * P(cell <= j) < upper[j] + 1, where upper[j] is lower[j]
        or lower[j] + 1.
        """
        if known not in self._tables:
            self._tables[known] = self._compute_thresholds(known)
        return self._tables[known]

    def masses(self) -> list[int]:
        """Return lower bounds on the probabilities of the cells, in units of 2**-LISTING_BITS."""
        lower, upper = self.thresholds(LISTING_BITS)
        # P(cell = j) = P(cell <= j) - P(cell <= j - 1). The first is at least lower[j], the second
        # is below upper[j - 1] + 1, and for j = 0 it is 0.
        least_ends = lower
        most_begins = [0, *(end + 1 for end in upper[:-1])]
        pairs = zip(least_ends, most_begins, strict=True)
        return [max(end - begin, 0) for end, begin in pairs]

    def _compute_thresholds(self, known: int) -> tuple[list[int], list[int]]:
        """Return what ``thresholds`` returns, computed from weights with as many bits beyond
        ``known`` as it takes for the lower and the upper ends to differ by at most 1.
        """
        guard = _FIRST_GUARD_BITS
        while True:
            weights = self._weights(known + guard)
            # Bounds the error of every partial sum, and of the total with the mass beyond the list.
            error = len(weights) + 1
            total = sum(weights)
            lower = []
            upper = []
            partial_sum = 0
            for weight in weights:
                partial_sum += weight
                # The true sums are within ``error`` of both: each quotient is rounded away from the
                # truth.
                lower.append((max(partial_sum - error, 0) << known) // (total + error))
                upper.append((partial_sum + error << known) // max(total - error, 1))
            if max(map(sub, upper, lower), default=0) <= 1:
                return lower, upper
            guard *= 2

    def _cells_by_leading_bits(self) -> Ints:
        """Return the cell that contains U for each value of its leading 16 bits, int64, shape
        (2**16,); -1 where they do not decide.
        """
        shift = 32 - _GUIDE_BITS
        size = 1 << _GUIDE_BITS
        leading = np.minimum(self._lower_thresholds >> shift, size)
        # The number of thresholds at or below the first word with these bits: its cell.
        thresholds_below = np.bincount(leading, minlength=size + 1)[:size].cumsum()
        cell: Ints = thresholds_below.astype(np.int64)
        # A word that equals a lower threshold, or exceeds it by 1, is undecided; so is all beyond
        # the last one.
        for undecided in (self._lower_thresholds, self._lower_thresholds + 1):
            cell[undecided[undecided < 1 << 32] >> shift] = -1
        cell[thresholds_below == self._lower_thresholds.size] = -1
        return cell

    def draw(self, size: int, bits: Bits) -> Ints:
        """Draw ``size`` independent cell numbers, int64, shape (size,); the law is exact."""
        if bits.listing:
            return np.array([bits.choose(self.masses) for _ in range(size)], dtype=np.int64)
        words = bits.uint32(size)
        cells: Ints = self._guide[words >> np.uint32(32 - _GUIDE_BITS)]
        undecided = np.flatnonzero(cells < 0)
        if undecided.size:
            cells[undecided] = self._cells_of_words(words[undecided].astype(np.int64), bits)
        return cells

    def _cells_of_words(self, words: Ints, bits: Bits) -> Ints:
        """Return the cells that contain uniforms of which the first 32 bits are ``words``; more
        bits are read where these do not decide.
        """
        thresholds = self._lower_thresholds
        cells: Ints = np.searchsorted(thresholds, words, side="right").astype(np.int64)
        # Before the first cell there is no threshold: -2 is near no word.
        threshold_below = np.concatenate(([-2], thresholds))[cells]
        # The true threshold is less than 2 above this lower one.
        is_near = words - threshold_below <= 1
        for i in np.flatnonzero(is_near | (cells == thresholds.size)):
            cells[i] = self._cell_by_more_bits(int(words[i]), bits)
        return cells

    def _cell_by_more_bits(self, word: int, bits: Bits) -> int:
        """Return the cell that contains a uniform of which the first 32 bits are ``word``, reading
        64 more bits at a time until they decide.
        """
        known = 32
        while True:
            word = bits.append_bits(word)
            known = known + 64
            lower, upper = self.thresholds(known)
            cell = bisect_right(lower, word)
            # U is below the end of this cell; that it is above the end of the cell before is
            # certain if the word exceeds that upper threshold.
            if cell < len(lower) and (cell == 0 or word > upper[cell - 1]):
                return cell
