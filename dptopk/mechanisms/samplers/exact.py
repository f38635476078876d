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

_GUIDE_BITS = 16


def precise(digits: int) -> AbstractContextManager[decimal.Context]:
    """Compute with the given number of decimal digits, correctly rounded, within the widest range
    of exponents.
    """
    traps = [decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow]
    widest = decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, traps=traps
    )
    return decimal.localcontext(widest)


def exp_units(numerators: Iterable[int], denominator: int, bits: int) -> list[int]:
    """Return for each x = numerator/denominator >= 0 the integer nearest to 2**bits * e^{-x}, or
    its neighbour.

    It is always within 1: the numerator, the quotient, the exponential and the product are rounded
    to a relative 5 * 10**-digits each, where 10**digits > 2**bits * 10**7; errors of the exponent
    enter e^{-x} as at most x e^{-x} <= 1/e times theirs. That is less than 2e-6 of a unit in all,
    and rounding to an integer adds half of one.

    >>> exp_units([0, 1], 1, 10)
    [1024, 377]
    """
    with precise(int(bits * 0.30103) + 8):
        divisor = Decimal(denominator)
        scale = Decimal(1 << bits)
        nothing = (bits * 7 // 10 + 2) * denominator  # from here on, 2**bits * e^{-x} < 1/2
        units: list[int] = []
        for numerator in numerators:
            if numerator >= nothing:
                units.append(0)
                continue
            exponential = (-Decimal(numerator) / divisor).exp()
            units.append(round(exponential * scale))
        return units


def _exp_unit(x: Fraction, bits: int) -> int:
    return exp_units([x.numerator], x.denominator, bits)[0]


def below(
    word: int, known: int, units: Callable[[int], int | Fraction], bits: Bits, error: int = 1
) -> bool:
    """Decide U < p exactly for a uniform U in [0, 1) whose first ``known`` bits are ``word``.

    units(b) is within ``error`` of 2**b * p.
    """
    while True:
        # U 2^known is in [word, word + 1], p 2^known within the error of the target: decided unless
        # these overlap.
        target = units(known)
        if word + 1 <= target - error:
            return True
        if word >= target + error:
            return False
        word = bits.more(word)
        known = known + 64


def decide(units: Callable[[int], int], bits: Bits) -> bool:
    """Return one coin, true with probability p; see `below`."""
    return below(int(bits.uint32(1)[0]), 32, units, bits)


def bernoulli(chances: Floats, bits: Bits) -> Bools:
    """Return independent coins, true with exactly these chances: floats in [0, 1), taken as the
    fractions they are.

    Args:
        chances: shape (n,).
        bits: the source of words.
    """
    if bits.listing:
        laws = [partial(_sides, Fraction(chance)) for chance in chances.tolist()]
        return np.array([bits.choose(law) for law in laws], dtype=np.bool_)
    words = bits.uint64(chances.size)
    whole = (chances * 2.0**64).astype(np.uint64)
    # Where the first 64 bits of U and of the chance differ, they decide.
    drawn: Bools = words < whole
    for i in np.flatnonzero(words == whole):
        units = partial(_scaled, Fraction(float(chances[i])))
        drawn[i] = below(int(words[i]), 64, units, bits, error=0)
    return drawn


def _sides(chance: Fraction) -> list[int]:
    """Lower bounds of 1 - chance and of the chance."""
    return [int((1 - chance) * (1 << LISTING_BITS)), int(chance * (1 << LISTING_BITS))]


def _scaled(chance: Fraction, bits: int) -> Fraction:
    return chance * 2**bits


def bernoulli_exp(x: Floats, exact: Callable[[int], Fraction], bits: Bits) -> Bools:
    """Return independent coins that are true with probability e^{-x}, exactly.

    Args:
        x: shape (n,), each at least 0 and within a relative 2**-44 of the true exponent (inf if
            above 1e308).
        exact: exact(i) is the i-th true exponent; asked for about one coin in 2**30.
        bits: the source of words.
    """
    return decide_exp(bits.uint32(x.size), x, exact, bits)


def decide_exp(
    first: npt.NDArray[np.uint32], x: Floats, exact: Callable[[int], Fraction], bits: Bits
) -> Bools:
    """Decide U < e^{-x} for uniforms whose first 32 bits are given; see `bernoulli_exp`."""
    gap = np.exp(-x)
    gap -= first * 2.0**-32
    accepted: Bools = gap > 0
    # U is at most 2**-32 above its first bits; e^{-x} is within 2**-40 of its float: x e^{-x} <=
    # 1/e, and exp costs a few ulps.
    for i in np.flatnonzero(np.abs(gap, out=gap) <= 2.0**-31):
        accepted[i] = below(int(first[i]), 32, partial(_exp_unit, exact(int(i))), bits)
    return accepted


class Cells:
    """A law on 0, 1, 2, ... known by its weights to any precision, sampled by inversion.

    Args:
        weights: weights(b) is a list of integers, the j-th within 1 of 2**b * w_j, and all the w_j
            beyond the list add up to at most 2**-b. A longer list for a larger b continues the
            shorter one. The probabilities are w_j / sum(w).
    """

    def __init__(self, weights: Callable[[int], list[int]]) -> None:
        self._weights = weights
        self._tables: dict[int, tuple[list[int], list[int]]] = {}
        self._first = np.array(self.thresholds(32)[0], dtype=np.int64)
        self._guide = self._make_guide()

    def thresholds(self, known: int) -> tuple[list[int], list[int]]:
        """Return integers lower[j] <= 2**known * P(cell <= j) < upper[j] + 1; upper exceeds lower
        by at most 1.
        """
        if known not in self._tables:
            self._tables[known] = self._compute(known)
        return self._tables[known]

    def masses(self) -> list[int]:
        """Lower bounds of the probabilities, in units of 2**-LISTING_BITS."""
        lower, upper = self.thresholds(LISTING_BITS)
        neighbours = zip(lower, [-1, *upper], strict=False)
        return [max(low - before - 1, 0) for low, before in neighbours]

    def _compute(self, known: int) -> tuple[list[int], list[int]]:
        guard = 16
        while True:
            weights = self._weights(known + guard)
            error = (
                len(weights) + 1
            )  # of every partial sum, and of the total with the mass beyond the list
            total = sum(weights)
            lower = []
            upper = []
            partial = 0
            for weight in weights:
                partial += weight
                # The true sums are within ``error`` of both: each quotient is rounded away from the
                # truth.
                lower.append((max(partial - error, 0) << known) // (total + error))
                upper.append((partial + error << known) // max(total - error, 1))
            if max(map(sub, upper, lower), default=0) <= 1:
                return lower, upper
            guard *= 2

    def _make_guide(self) -> Ints:
        """Return the cell that each value of the leading bits decides, -1 where they do not
        decide.
        """
        shift = 32 - _GUIDE_BITS
        size = 1 << _GUIDE_BITS
        leading = np.minimum(self._first >> shift, size)
        below = np.bincount(leading, minlength=size + 1)[:size].cumsum()
        cell: Ints = below.astype(np.int64)
        # A word that equals a lower threshold, or exceeds it by 1, is undecided; so is all beyond
        # the last one.
        for near in (self._first, self._first + 1):
            cell[near[near < 1 << 32] >> shift] = -1
        cell[below == self._first.size] = -1
        return cell

    def draw(self, size: int, bits: Bits) -> Ints:
        """Return ``size`` independent cell numbers."""
        if bits.listing:
            return np.array([bits.choose(self.masses) for _ in range(size)], dtype=np.int64)
        words = bits.uint32(size)
        cells: Ints = self._guide[words >> np.uint32(32 - _GUIDE_BITS)]
        rest = np.flatnonzero(cells < 0)
        if rest.size:
            cells[rest] = self._locate(words[rest].astype(np.int64), bits)
        return cells

    def _locate(self, words: Ints, bits: Bits) -> Ints:
        cells: Ints = np.searchsorted(self._first, words, side="right").astype(np.int64)
        floor = np.concatenate(([-2], self._first))[cells]
        near = words - floor <= 1
        for i in np.flatnonzero(near | (cells == self._first.size)):
            cells[i] = self._refine(int(words[i]), bits)
        return cells

    def _refine(self, word: int, bits: Bits) -> int:
        known = 32
        while True:
            word = bits.more(word)
            known = known + 64
            lower, upper = self.thresholds(known)
            cell = bisect_right(lower, word)
            if cell < len(lower) and (cell == 0 or word > upper[cell - 1]):
                return cell
