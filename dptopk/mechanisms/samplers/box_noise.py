"""Box noise: integers whose law falls with the length of their hull with 0, drawn exactly
(docs/notes/box.md).

z_i = U_i - M for U_1, ..., U_k and M independent and uniform on {0, ..., n-1}, n = step·m, P(m) ∝
m^{k+1} e^{-rate·m}. For step = 1 that is P(z) ∝ e^{-rate·|z|}, |z| = max(0, max z) - min(0, min z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache, partial

from dptopk.mechanisms.samplers.exact import Cells, coin_of_probability, precise
from dptopk.mechanisms.samplers.random import Array, Bits

_LOG2 = 0.6931  # a little less than the logarithm of 2
_DIGITS_PER_BIT = 0.30103  # a little more than log10(2)


@dataclass(frozen=True)
class SideLaw:
    """The law of integers m >= 1 with P(m) ∝ m^power e^{-rate·m}, sampled exactly by rejection; m
    times the step is the side of the box.

    The integers are cut into blocks. The weight of a block is the number of its integers times the
    largest density in it, which is that at the point nearest to the peak; a uniform integer of the
    block is accepted with the ratio of its density to the largest one.

    Attributes:
        power: an integer, at least 1.
        rate: the exact rational, above 0.
    """

    power: int
    rate: Fraction

    @cached_property
    def peak(self) -> Fraction:
        """Return the m >= 1, perhaps not an integer, at which the density m^power e^{-rate·m} is
        largest.
        """
        return max(self.power / self.rate, Fraction(1))

    @cached_property
    def width_bits(self) -> int:
        """Return the binary logarithm of the length of a block, which is 1/16 to 1/8 of a standard
        deviation.
        """
        deviation = math.sqrt(self.power) / float(self.rate)
        # An eighth of it is from 2^(exponent - 1) on, below 2^exponent.
        _, exponent = math.frexp(deviation / 8)
        return max(0, exponent - 1)

    def _log_density(self, m: Fraction | int, at: Fraction | int) -> Decimal:
        """Return the logarithm of the density (m^power e^{-rate·m}) at m divided by that at the
        point ``at``, to the precision of the current decimal context.
        """
        ratio = Fraction(m) / at
        step = (Fraction(m) - at) * self.rate
        logarithm = (Decimal(ratio.numerator) / ratio.denominator).ln()
        return self.power * logarithm - Decimal(step.numerator) / step.denominator

    def units(self, m: Fraction | int, at: Fraction | int, bits: int) -> int:
        """Return an integer within 1 of 2**bits times the density at m divided by the density at
        the point ``at``, which must be no smaller.

        The two terms of the logarithm may nearly cancel; where the result is not 0, neither exceeds
        2·|logarithm| + 4·power, so that as many digits more than the answer's, and a few, leave an
        error below 1e-5 of a unit.

        Args:
            m: the point, at least 1.
            at: the point of reference, at least 1.
            bits: the binary logarithm of the unit.
        """
        answer_digits = int(bits * _DIGITS_PER_BIT)
        # As |logarithm| is at most (bits + 1) ln 2, this is as long as that number, or a digit
        # shorter; the 8 digits below are enough for both.
        cancelled_digits = len(str(self.power * (bits + 60)))
        with precise(answer_digits + cancelled_digits + 8):
            return round(self._log_density(m, at).exp() * (1 << bits))

    def densest_point(self, block: int) -> Fraction:
        """Return the point of a block, perhaps between two integers, at which the density is
        largest.
        """
        first = 1 + (block << self.width_bits)
        last = first + (1 << self.width_bits) - 1
        return min(max(self.peak, Fraction(first)), Fraction(last))

    def weights(self, bits: int) -> list[int]:
        """Return the weights of the blocks in units of 2**-bits, each within 1; all blocks beyond
        the list together weigh at most one unit.
        """
        width = 1 << self.width_bits
        units = bits + self.width_bits
        power = float(self.power)
        rate = float(self.rate)
        peak = float(self.peak)
        # The logarithm of less than a quarter of a unit: the 1 is more than what (units + 2) times
        # _LOG2 lacks to the true logarithm, and than the rounding below.
        negligible = -(units + 2) * _LOG2 - 1
        weights: list[int] = []
        while True:
            densest = self.densest_point(len(weights))
            x = float(densest)
            log_density = power * math.log(x / peak) - rate * (x - peak)
            if log_density < negligible:
                weights.append(0)
            else:
                weights.append(self.units(densest, self.peak, units))
            # Beyond the peak the blocks fall at least as fast as from this one to the next, by a
            # factor of e^-gap, so that all later ones together are at most a geometric series.
            gap = rate * width - power * math.log1p(width / x)
            if x > peak and gap > 0:
                log_series = -math.log(-math.expm1(-gap))
                if log_density + log_series < negligible:
                    return weights

    @cached_property
    def _cells(self) -> Cells:
        """Return the sampler of block numbers by their weights."""
        return Cells(self.weights)

    def sample(self, bits: Bits) -> int:
        """Draw one integer; the law is exact."""
        while True:
            block = int(self._cells.draw(1, bits)[0])
            offset = int(bits.low_bits(1, self.width_bits)[0])
            m = 1 + (block << self.width_bits) + offset
            densest = self.densest_point(block)
            if m == densest or coin_of_probability(partial(self.units, m, densest), bits):
                return m


@lru_cache(maxsize=64)
def side_law(power: int, rate: Fraction) -> SideLaw:
    """Return ``SideLaw`` of these parameters, shared between calls together with its computed
    tables.
    """
    return SideLaw(power, rate)


def box_noise(law: SideLaw, step: int, size: int, bits: Bits) -> Array:
    """Draw box noise of ``size`` counts, int64, shape (size,).

    Args:
        law: the law of the side, for the number of counts that are measured together.
        step: linf.
        size: how many of these counts, at most law.power - 1.
        bits: the source of random bits.
    """
    n = step * law.sample(bits)
    corner = bits.below(n, 1)
    return bits.below(n, size) - corner
