"""Exact integer noise: discrete Laplace and discrete Gaussian, whole or conditioned on a bounded
range.

One sampler serves every law with pmf ∝ e^{-f(|n|)} and f(m) = A m + B m² for exact rationals A and
B. The positive integers are cut into blocks of 2^j numbers. A block is drawn by inverting a table
of the blocks' largest weights, a number in the block uniformly, and it is kept with probability
e^{-(f(number) - f(first number))}. Blocks are a small fraction of the scale wide, so almost every
candidate is kept; for small scales they hold a single number, and nothing is rejected. The table
holds a few hundred thresholds whatever the scale, and it is continued outward as far as the random
bits ask (see exact.py), so the tails are right too. Statement and proof:
docs/notes/exact-sampling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dptopk._internal import validate as _validate
from dptopk._internal.rounding import smaller_of
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.exact import Cells, decide_exp, exp_units
from dptopk.mechanisms.samplers.random import Bits, Bools, Floats, Ints

_CHUNK = 1 << 16  # candidates at a time: the work stays in the processor's cache
# Up to this number of draws, the table of words that accept costs more than it saves.
_FEW_DRAWS = 1 << 12
_LOG2 = 0.6932  # a little more than the logarithm of 2
# Beyond this number of scales a law weighs nothing: e^-40 = 4e-18 for Laplace, others less.
_FARTHEST = 40
_MOST_SUMMED = 1 << 18  # of a Gaussian law, numbers that are summed one by one
_LARGEST_FLOAT = Fraction(10**300)  # coefficients are cut here before they become floats
_SURE_LINEAR = Fraction(100)  # from here on, tanh(linear/2) is 1
_FIRST_TABLE_BITS = 48  # of the weights in the first table: 32 and the guard bits of ``Cells``
# Beyond it, a draw could leave int64 with a probability that is not absurdly small.
_LARGEST_SCALE = 2.0**48
# Of noise whose values are listed one by one.
_LARGEST_LISTED = 4096


class NoiseSampler(Protocol):
    """The exact sampler of a law on the integers, from which independent noise is drawn."""

    def sample(self, size: int, bits: Bits) -> Ints:
        """Draw ``size`` independent integers, int64, shape (size,); the law is exact.

        Args:
            size: number of draws.
            bits: source of random words.
        """


@dataclass(frozen=True)
class ExactNoise:
    """The law on the integers with pmf ∝ e^{-(linear·|n| + square·n²)}, for |n| <= bound.

    Attributes:
        linear, square: exact rationals, at least 0, not both 0.
        bound: largest magnitude, or None.
    """

    linear: Fraction
    square: Fraction
    bound: int | None = None

    def exponent(self, n: int) -> Fraction:
        """Return f(|n|) = linear·|n| + square·n² exactly: the pmf is e^{-f(|n|)} over the sum of
        these.
        """
        return self.linear * abs(n) + self.square * n * n

    @cached_property
    def scale(self) -> float:
        """Return the magnitude at which the exponent is 1 (Laplace) or 1/2 (Gaussian)."""
        if self.linear:
            return float(1 / self.linear)
        return math.sqrt(1 / (2 * self.square))

    @cached_property
    def width_bits(self) -> int:
        """Return the binary logarithm of the number of integers in a block, which is 1/16 to 1/8
        of the scale and at most the bound.
        """
        if self.bound is None:
            width = self.scale / 8
        else:
            width = min(self.scale / 8, self.bound)
        _, exponent = math.frexp(width)  # the width is from 2^(exponent - 1) on, below 2^exponent
        return max(0, exponent - 1)

    def pmf(self, radius: int) -> Floats:
        """Return the probabilities of -radius..radius, shape (2·radius + 1,), each within a
        relative 1e-12 where it is above 1e-307, and within 1e-307 where it is not.

        >>> laplace_law(math.log(3), 1).pmf(1).round(6)
        array([0.166667, 0.5     , 0.166667])
        """
        n = np.abs(np.arange(-radius, radius + 1, dtype=np.float64))
        weights = self._unnormalised_pmf(n)
        if self.bound is not None:
            weights[n > self.bound] = 0.0
        return weights / self.normaliser

    def _unnormalised_pmf(self, n: Floats) -> Floats:
        """Return e^{-f(n)} for magnitudes n >= 0, which ``bound`` does not cut, float64, shape of
        ``n``.
        """
        linear = float(min(self.linear, _LARGEST_FLOAT))
        square = float(min(self.square, _LARGEST_FLOAT))
        with np.errstate(over="ignore"):
            weights: Floats = np.exp(-(linear * n + square * n * n))
        return weights

    @cached_property
    def normaliser(self) -> float:
        """Return the sum of e^{-f(|n|)} over all n of at most ``bound``, within a relative 1e-13;
        the pmf is divided by it.
        """
        if not self.square and self.bound is None:
            # The sum of a whole Laplace law is coth(linear/2).
            linear = float(min(self.linear, _SURE_LINEAR))
            return 1 / math.tanh(linear / 2)
        largest = math.ceil(_FARTHEST * self.scale) + 2
        last = largest if self.bound is None else min(largest, self.bound)
        if last > _MOST_SUMMED and not self.linear:
            # Euler-Maclaurin: the sum from -last to last is the integral + (f(last) + f(-last))/2 +
            # (f'(last) - f'(-last))/12, f the weight. The next term is below 1/(360·scale³), and
            # the scale exceeds 6000 here.
            edge = last / self.scale
            at_edge = math.exp(-edge * edge / 2)
            slope = edge / self.scale * at_edge
            area = self.scale * math.sqrt(2 * math.pi) * math.erf(edge / math.sqrt(2))
            return area + at_edge - slope / 6
        n = np.arange(1, last + 1, dtype=np.float64)
        return 1.0 + 2.0 * math.fsum(self._unnormalised_pmf(n))

    def weights(self, bits: int) -> list[int]:
        """Return the weights of the cells 0, +block 0, -block 0, +block 1, ... in units of
        2**-bits, each within 1.

        The weight of a block is the number of its integers times the largest of their e^{-f}; the
        list ends where all that is left weighs at most one unit.
        """
        return self._weights_of_blocks(bits, self.width_bits)

    def _weights_of_blocks(self, bits: int, width_bits: int) -> list[int]:
        """Return ``weights`` for blocks of 2**width_bits integers."""
        # The exponents of all integers are whole multiples of 1/common.
        common = math.lcm(self.linear.denominator, self.square.denominator)
        # A block weighs 2**width_bits times the e^{-f} of its first number; that many units of
        # 2**-bits are as many as that e^{-f} alone has units of 2**-(bits + width_bits).
        bits_of_densities = bits + width_bits
        exponents = self._smallest_exponents(bits_of_densities, 1 << width_bits, common)
        weights = [1 << bits]
        for weight in exp_units(exponents, common, bits_of_densities):
            weights += [weight, weight]  # of both signs
        return weights

    def _smallest_exponents(self, bits: int, width: int, common: int) -> list[int]:
        """Return the exponent f of each block's first number, times ``common``, up to the block
        from which on the e^{-f} of all blocks of both signs add up to at most 2**-bits.

        Args:
            bits: the binary logarithm of the unit.
            width: how many integers a block has.
            common: a common denominator of ``linear`` and ``square``.
        """
        linear = int(self.linear * common)
        square = int(self.square * common)
        exponents: list[int] = []
        first = 1
        exponent = linear + square
        while self.bound is None or first <= self.bound:
            gap = width * (linear + square * (2 * first + width))
            # Exponents grow by at least g = gap / common from block to block, so that this one and
            # all later ones are at most a geometric series of sum 1/(1 - e^-g), which is at most
            # 1 + 1/g. Its logarithm is at most ln 2 where g >= 1.
            if gap < common:
                log_series = math.log1p(common / gap)
            else:
                log_series = 1.0
            # The 1 is for blocks of both signs.
            if exponent > math.ceil((bits + 1) * _LOG2 + log_series) * common:
                break
            exponents.append(exponent)
            first = first + width
            exponent = exponent + gap
        return exponents

    @cached_property
    def _cells(self) -> Cells:
        """Return the sampler of cells: 0, and the blocks with their signs."""
        return Cells(self.weights)

    @cached_property
    def _single_number_cells(self) -> Cells:
        """Return the sampler of cells of one integer each, for sources that enumerate outcomes.

        Raises:
            InvalidParameter: for a law with too many likely integers.
        """
        if self.scale > _LARGEST_LISTED:
            raise InvalidParameter(
                f"mechanism: noise of a scale above {_LARGEST_LISTED} cannot be listed"
            )
        return Cells(partial(self._weights_of_blocks, width_bits=0))

    def sample(self, size: int, bits: Bits) -> Ints:
        """Draw ``size`` independent integers, int64, shape (size,); the law is exact.

        A source that enumerates outcomes lists each integer with its probability by the formula;
        that blocks and rejection have the same law is proven in docs/notes/exact-sampling.md.

        Args:
            size: number of draws.
            bits: source of random words (`random_bits`).

        >>> from dptopk.mechanisms.samplers.random import random_bits
        >>> laplace_law(1.0, 1).sample(5, random_bits(np.random.default_rng(7))).dtype
        dtype('int64')
        """
        drawn = np.empty(_validate.count(size=size, at_least=0), dtype=np.int64)
        if bits.listing and self.width_bits:
            return _signed_numbers(self._single_number_cells.draw(size, bits))
        filled = 0
        while filled < size:
            accepted = self._accepted_candidates(min(size - filled, _CHUNK), bits)
            drawn[filled : filled + accepted.size] = accepted
            filled += accepted.size
        return drawn

    @cached_property
    def _accepting_words(self) -> npt.NDArray[np.uint32]:
        """Return for each cell of the first table, and then for all cells beyond it, a limit below
        which a 32-bit word accepts every number of the cell's block; uint32.

        It saves work: most candidates are accepted by one comparison, and only the others need the
        exact decision of ``_is_accepted``. Beyond the table the limit is 0.
        """
        width = 1 << self.width_bits
        blocks = len(self.weights(_FIRST_TABLE_BITS)) // 2
        words = [(1 << 32) - 1]  # the cell 0 is always accepted
        for first in range(1, 1 + width * blocks, width):
            step = self.exponent(first + width - 1) - self.exponent(first)
            (units,) = exp_units([step.numerator], step.denominator, 32)
            certain_words = max(units - 1, 0)  # the units may be 1 too many
            words += [certain_words] * 2  # of both signs
        return np.array([*words, 0], dtype=np.uint32)

    def _accepted_candidates(self, size: int, bits: Bits) -> Ints:
        """Draw ``size`` candidates; return those that are accepted, int64.

        A candidate is a block with a sign, and a uniform offset in the block. It is accepted with
        the probability e^{-(f(number) - f(first number of its block))}, and where it is within the
        bound.
        """
        cells = self._cells.draw(size, bits)
        if not self.width_bits:
            return _signed_numbers(cells)
        # The cells 1, 2, 3, 4, ... are the blocks +0, -0, +1, -1, ...
        sign = np.where(cells & 1, 1, -1)
        first = (((cells - 1) >> 1) << self.width_bits) + 1
        offset = bits.low_bits(size, self.width_bits)
        is_zero = cells == 0  # the cell 0 holds the number 0 alone
        first[is_zero] = 0
        offset[is_zero] = 0
        words = bits.uint32(size)
        if size > _FEW_DRAWS:  # cells beyond the table find its last entry, a 0
            accepted = words < self._accepting_words.take(cells, mode="clip")
        else:
            accepted = np.zeros(size, dtype=np.bool_)
        unsure = np.flatnonzero(~accepted)
        accepted[unsure] = self._is_accepted(words[unsure], first[unsure], offset[unsure], bits)
        magnitude = first + offset
        if self.bound is not None:
            accepted &= magnitude <= self.bound
        return (magnitude * sign)[accepted]

    def _is_accepted(
        self, words: npt.NDArray[np.uint32], first: Ints, offset: Ints, bits: Bits
    ) -> Bools:
        """Return whether U < e^{-(f(first + offset) - f(first))}, exactly, for uniforms of which
        ``words`` are the first 32 bits; bool, shape (n,).

        Args:
            words: the first 32 bits of each uniform U, shape (n,).
            first: the first number of each candidate's block.
            offset: the place of the candidate in its block, from 0.
            bits: the source of further words.
        """

        def exact(i: int) -> Fraction:
            """Return the i-th exponent f(first + offset) - f(first), exactly."""
            return self.exponent(int(first[i] + offset[i])) - self.exponent(int(first[i]))

        slope = float(self.linear) + float(self.square) * (2.0 * first + offset)
        x = offset * slope
        return decide_exp(words, x, exact, bits)


@lru_cache(maxsize=64)
def laplace_law(epsilon: float, linf: int, bound: int | None = None) -> ExactNoise:
    """Return the law with pmf ∝ e^{-epsilon·|n|/linf}, for |n| <= bound if there is one.

    Args:
        epsilon: greater than 0, linf/epsilon at most 2^48; the smaller of the float and its decimal
            is used.
        linf: how far one user moves a count, at least 1.
        bound: an integer of at least 0, or None.

    Raises:
        InvalidParameter: an argument is out of its range.
    """
    epsilon = _validate.positive(epsilon=epsilon)
    linf = _validate.count(linf=linf)
    if bound is not None:
        bound = _validate.count(bound=bound, at_least=0)
    return _law_of_bounded_scale(ExactNoise(smaller_of(epsilon) / linf, Fraction(0), bound))


@lru_cache(maxsize=64)
def gaussian_law(scale: float, bound: int | None = None) -> ExactNoise:
    """Return the law with pmf ∝ e^{-n²/(2·scale²)}, for |n| <= bound if there is a bound.

    Args:
        scale: greater than 0 and at most 2^48; the exact value of the float is used.
        bound: an integer of at least 0, or None.

    Raises:
        InvalidParameter: an argument is out of its range.
    """
    scale = _validate.positive(scale=scale)
    if bound is not None:
        bound = _validate.count(bound=bound, at_least=0)
    return _law_of_bounded_scale(ExactNoise(Fraction(0), 1 / (2 * Fraction(scale) ** 2), bound))


def _signed_numbers(cells: Ints) -> Ints:
    """Return the integers 0, 1, -1, 2, -2, ... for the cells 0, 1, 2, 3, 4, ..., in the shape of
    ``cells``.
    """
    sign = np.where(cells & 1, 1, -1)
    return ((cells + 1) >> 1) * sign


def _law_of_bounded_scale(law: ExactNoise) -> ExactNoise:
    """Return the law, if its scale is at most _LARGEST_SCALE.

    Raises:
        InvalidParameter: for a larger scale.
    """
    if law.linear:
        too_large = law.linear * Fraction(_LARGEST_SCALE) < 1
    else:
        too_large = law.square * Fraction(2 * _LARGEST_SCALE**2) < 1
    if too_large:
        raise InvalidParameter(
            f"the noise scale must be at most {_LARGEST_SCALE:.3g} for int64 results"
        )
    return law
