"""Products of laws on the integers by their characteristic functions, with the rounding errors of
every frequency.

What is known of each frequency and what it means for the masses: docs/notes/lattice.md, "FFT".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import EPS, Floats
from dptopk._internal.sums import inner

Indices = NDArray[np.int64]

# The most laws that are multiplied together, and from how many neighbouring grid points they are.
ROWS_AT_ONCE = 64
GROUPED_RANKS = 8
# A row has its own FFT when its atoms times the frequencies exceed this multiple of the FFT's
# length.
FFT_WORTH = 2
# A modulus at which a frequency is given up.
FAINT = 1e-20
# Covers what underflows in an error bound.
TINIEST = 1e-200
# An FFT of length n loses at most FFT_ERROR · log2(n) · EPS in the 2-norm (a few times the usual
# worst-case constant).
FFT_ERROR = 8.0
# Relative, of the sums of error bounds themselves: far above their rounding.
SUM_SLACK = 1e-9

Factor = TypeVar("Factor")


class CharacteristicFunction:
    """A product of characteristic functions of laws on the integers, at the frequencies 0 .. n/2 of
    a grid of n points, with a bound on the error of each value.

    No factor exceeds 1, so a frequency at which the product has become FAINT stays so: it is given
    up, as 0. Sums of many losses are smooth; after a few dozen factors few frequencies are left.

    Args:
        places: how many places of the grid are needed; n is the next length that FFTs like.
    """

    def __init__(self, places: int) -> None:
        """Start with the constant 1, the characteristic function of a sum without terms."""
        length = _fast_length(places)
        self._length = length
        self._active = np.arange(length // 2 + 1)
        self._values = np.ones(self._active.size, dtype=complex)
        self._errors = np.full(self._active.size, TINIEST)  # bounds on the absolute errors
        self._dropped = 0.0  # the sum of the squares of the errors at frequencies given up

    @cached_property
    def _roots(self) -> NDArray[np.complex128]:
        """Return the powers of the root of unity of the grid."""
        return np.exp(-2j * np.pi / self._length * np.arange(self._length))

    def error(self) -> float:
        """Return a bound on the 2-norm of the error at all frequencies, negative ones included."""
        squares = inner(self._errors, self._errors) + self._dropped
        return math.sqrt(2 * squares) * (1 + SUM_SLACK)

    def masses(self, first: int) -> tuple[Floats, float]:
        """Return the masses on the grid from place ``first`` on, and a bound on the 1-norm of their
        numerical error.

        Parseval: the 1-norm of an error is at most sqrt(n) times its 2-norm, which is that of its
        spectrum over sqrt(n); all frequencies but two stand for themselves and their conjugates.
        """
        values = np.zeros(self._length // 2 + 1, dtype=complex)
        values[self._active] = self._values
        masses: Floats = np.roll(np.fft.irfft(values, self._length), -(first % self._length))
        norm = math.sqrt(inner(values.real, values.real) + inner(values.imag, values.imag))
        inverse = FFT_ERROR * math.log2(self._length + 1) * EPS * norm
        return masses, self.error() + math.sqrt(2) * inverse

    def multiply(self, indices: Indices, masses: Floats, count: int) -> None:
        """Multiply by the characteristic functions of several laws, each to the power ``count``.

        With w a root of unity, a law with masses m_j at the places x_j has the value Σ_j m_j w^{f
        x_j} at frequency f. The laws are taken in blocks that share few places: the values of a
        block are a sparse matrix of masses times a matrix of roots, or come from an FFT where that
        takes less.

        Args:
            indices: shape (laws, atoms), the integer places of the atoms.
            masses: the probabilities of the atoms, same shape.
            count: how often each law is taken.
        """
        from scipy.sparse import csr_array

        atoms = indices.shape[1]
        by_fft = atoms * self._active.size > FFT_WORTH * self._length
        for rows in _blocks(indices[:, 0]):
            if rows.size == 1 and by_fft:
                self._multiply_by_fft(indices[rows[0]], masses[rows[0]], count)
                continue
            points, place = np.unique(indices[rows], return_inverse=True)
            place = place.reshape(rows.size, -1)
            # Row r of the sparse matrix has the masses of law r in the columns of its places.
            row_ends = np.arange(0, place.size + 1, atoms)
            weights = csr_array(
                (masses[rows].ravel(), place.ravel(), row_ends), shape=(rows.size, points.size)
            )
            # Exponents are reduced modulo the length first, so that their products stay integers.
            exponents = (points[:, None] % self._length) * self._active % self._length
            roots = self._roots[exponents]
            # The matrix is real: the complex roots are multiplied as pairs of reals.
            factors = (weights @ roots.view(float)).view(complex)
            # Of each law a sum of ``atoms`` products and an inexact root; then a product of them.
            error = rows.size * (atoms + 16) * EPS
            self._multiply_by_power(np.multiply.reduce(factors, axis=0), count, error)

    def _multiply_by_fft(self, indices: Indices, masses: Floats, count: int) -> None:
        """Multiply by the characteristic function of one law, computed by an FFT.

        Args:
            indices: shape (atoms,), the integer places.
            masses: their probabilities.
            count: how often the law is taken.
        """
        counted = np.bincount(indices % self._length, masses, minlength=self._length)
        dense = np.asarray(counted, dtype=float)
        # Probabilities have a 2-norm of at most 1; 8 EPS are for the sums at each place.
        norm = math.sqrt(self._length) * min(math.sqrt(inner(dense, dense)), 1.0)
        error = (FFT_ERROR * math.log2(self._length + 1) * norm + 8) * EPS
        self._multiply_by_power(np.fft.rfft(dense)[self._active], count, error)

    def _multiply_by_power(self, factor: NDArray[np.complex128], count: int, error: float) -> None:
        """Multiply by a power of a factor that is known to an absolute ``error``, itself at most 1
        in modulus.

        With m the larger of the moduli of the factor and of what is computed, m^n changes by at
        most n m^(n-1) error, and n - 1 complex products change it by n m^n 4 EPS. Where the power
        is faint, so is its error.

        Args:
            factor: the values of a characteristic function at the active frequencies.
            count: n.
            error: a bound on the absolute error of each value.
        """
        power = by_squaring(np.multiply, factor, count)
        power_errors = count * (error + 4 * EPS) * (np.abs(factor) + error) ** (count - 1)
        moduli = np.abs(self._values)
        power_moduli = np.abs(power)
        errors = (
            moduli * power_errors
            + (power_moduli + power_errors) * self._errors
            + 4 * EPS * moduli * power_moduli
            + TINIEST
        )
        self._errors = errors * (1 + SUM_SLACK)
        self._values = self._values * power
        not_faint = np.abs(self._values) > FAINT
        # Copying takes as long as a product: it is done when half of the frequencies are faint.
        if 2 * np.count_nonzero(not_faint) < not_faint.size:
            self._dropped += float(np.sum((self._errors[~not_faint] + FAINT) ** 2))
            self._active = self._active[not_faint]
            self._values = self._values[not_faint]
            self._errors = self._errors[not_faint]


def _blocks(cells: Indices) -> list[Indices]:
    """Return the rows in blocks, such that the laws of one block share a few grid points, in a
    shuffled order that is always the same.

    Args:
        cells: shape (rows,), a grid point of each law.
    """
    order = np.argsort(cells, kind="stable")
    rank = np.concatenate([[0], np.cumsum(np.diff(cells[order]) > 0)])
    group_starts = np.flatnonzero(np.diff(rank // GROUPED_RANKS)) + 1
    blocks: list[Indices] = []
    for group in np.split(order, group_starts):
        blocks += np.array_split(group, math.ceil(group.size / ROWS_AT_ONCE))
    # Losses of different sizes together make the spectrum faint sooner.
    shuffled = np.random.default_rng(0).permutation(len(blocks))
    return [blocks[place] for place in shuffled]


def _fast_length(n: int) -> int:
    """Return the least even length of at least n for which FFTs are fast."""
    from scipy.fft import next_fast_len

    length = int(next_fast_len(max(n, 2), real=True))
    if length % 2 == 0:
        return length
    return _fast_length(length + 1)


def by_squaring(multiply: Callable[[Factor, Factor], Factor], factor: Factor, count: int) -> Factor:
    """Return the product of ``count`` equal factors by repeated squaring.

    Args:
        multiply: multiplies two factors, and accounts for its own errors.
        factor: the factor.
        count: how many equal factors there are, at least 1.
    """
    while not count & 1:
        factor = multiply(factor, factor)
        count = count >> 1
    result = factor
    count = count >> 1
    while count:
        factor = multiply(factor, factor)
        if count & 1:
            result = multiply(result, factor)
        count = count >> 1
    return result
