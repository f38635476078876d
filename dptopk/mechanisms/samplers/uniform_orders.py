"""Which of some independent uniform numbers are the smallest, in order: the probability of every
answer, for samplers that list their outcomes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.exact import exp_units
from dptopk.mechanisms.samplers.random import LISTING_BITS

MOST_ORDERS = 1000
Order = tuple[int, ...]
Polynomial = list[Fraction]  # coefficients, from the constant one on


def smallest_in_order(levels: Sequence[int], rate: Fraction, k: int) -> dict[Order, int]:
    """Lower bounds, in units of 2**-LISTING_BITS, of the probabilities that these are the k
    smallest of U e^{-rate·level}, in order.

    The ends e^{-rate·(level - least)} are known to a relative error η <= 1/2. With the same U and V
    two numbers whose ends are off change places only if U/V lies between two values whose ratio is
    at most (1 + η)/(1 - η). The density of ln(U/V) is at most 1/2, so that the probability is at
    most η/(1 - η) <= 2η; and no answer's is off by more than 2η for every pair.

    Args:
        levels: one for each number.
        rate: greater than 0.
        k: at most len(levels).

    Raises:
        InvalidParameter: for more than MOST_ORDERS answers, or gaps whose e^{-rate·gap} is below
            these units.
    """
    if math.perm(len(levels), k) > MOST_ORDERS:
        raise InvalidParameter(
            f"mechanism: more than {MOST_ORDERS} answers cannot be listed; take fewer labels"
        )
    bits = 3 * LISTING_BITS
    exponents = [rate * (level - min(levels)) for level in levels]
    common = lcm(*(x.denominator for x in exponents))
    units = exp_units([int(x * common) for x in exponents], common, bits)
    if min(units) >> LISTING_BITS + 2 == 0:
        raise InvalidParameter("mechanism: gaps so large cannot be listed at this noise")
    pairs = math.comb(len(levels), 2)
    error = Fraction(2, min(units))  # a unit is within 1 of the end, which is at least half of it
    off = 2 * error * pairs
    exact = orders_of_uniforms([Fraction(unit, 1 << bits) for unit in units], k)
    return {order: max(int((mass - off) * (1 << LISTING_BITS)), 0) for order, mass in exact.items()}


def orders_of_uniforms(ends: Sequence[Fraction], k: int) -> dict[Order, Fraction]:
    """The probabilities that these are the k smallest, in order, of independent numbers uniform on
    [0, end] each.
    """
    cuts = sorted({Fraction(0), *ends})
    return {
        order: _in_order(order, ends, cuts) for order in itertools.permutations(range(len(ends)), k)
    }


def _in_order(order: Order, ends: Sequence[Fraction], cuts: list[Fraction]) -> Fraction:
    """Integrate the density of one number after the other, a polynomial between any two cuts."""
    segments = list(itertools.pairwise(cuts))
    # Of the numbers before: the probability that they come in order, the last one below t.
    before: list[Polynomial] = [[Fraction(1)] for _ in segments]
    for place, label in enumerate(order):
        density = [
            [part / ends[label] for part in parts] if high <= ends[label] else [Fraction(0)]
            for parts, (_, high) in zip(before, segments, strict=True)
        ]
        if place == len(order) - 1:
            for other in set(range(len(ends))) - set(order):
                density = [
                    _thinned(parts, ends[other]) if high <= ends[other] else [Fraction(0)]
                    for parts, (_, high) in zip(density, segments, strict=True)
                ]
        total = Fraction(0)
        before = []
        for parts, (low, high) in zip(density, segments, strict=True):
            integral = [Fraction(0), *(part / (i + 1) for i, part in enumerate(parts))]
            integral[0] = total - _value(integral, low)
            before.append(integral)
            total = _value(integral, high)
    return total


def _thinned(parts: Polynomial, end: Fraction) -> Polynomial:
    """Times 1 - t/end: another number comes after t."""
    shifted = [Fraction(0), *(part / end for part in parts)]
    return [a - b for a, b in zip([*parts, Fraction(0)], shifted, strict=True)]


def _value(parts: Polynomial, t: Fraction) -> Fraction:
    """A polynomial at a point."""
    total = Fraction(0)
    for part in reversed(parts):
        total = total * t + part
    return total
