"""The probability that given ones of several independent uniform numbers are the smallest, in a
given order; for samplers whose outcomes are enumerated.
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

MOST_ORDERS = 1000  # the most orders that are integrated; it takes seconds
_END_BITS = 3 * LISTING_BITS  # precision of the ends of the uniform numbers
Order = tuple[int, ...]
Polynomial = list[Fraction]  # coefficients, from the constant one on
Segment = tuple[Fraction, Fraction]  # its two ends


def smallest_in_order(levels: Sequence[int], rate: Fraction, k: int) -> dict[Order, int]:
    """Return lower bounds on the probabilities of all orders of the k smallest of the numbers
    U_i e^{-rate·level_i}, with independent uniform U_i, in units of 2**-LISTING_BITS.

    The numbers are uniform on [0, e^{-rate·level_i}]. The probabilities are computed exactly for
    ends e^{-rate·(level_i - least level)} that are rounded, by a relative error η <= 1/2. Let U and
    V be the uniform variables of two of the numbers. These change places because of errors of their
    ends only if U/V lies between two values whose ratio is at most (1 + η)/(1 - η). The density of
    ln(U/V) is at most 1/2, so that the probability of that is at most η/(1 - η) <= 2η; and the
    probability of an order is off by at most 2η for every pair.

    Args:
        levels: one for each number.
        rate: greater than 0.
        k: at most len(levels).

    Raises:
        InvalidParameter: for more than MOST_ORDERS orders, or gaps whose e^{-rate·gap} is too small
            for these units.
    """
    if math.perm(len(levels), k) > MOST_ORDERS:
        raise InvalidParameter(
            f"mechanism: more than {MOST_ORDERS} answers cannot be listed; take fewer labels"
        )
    units = _units_of_ends(levels, rate)
    # From 2^(LISTING_BITS + 2) on, 2η is at most one unit of the answer.
    if min(units) >> LISTING_BITS + 2 == 0:
        raise InvalidParameter("mechanism: gaps so large cannot be listed at this noise")
    # A unit is within 1 of the exact end, which is at least half of it.
    relative_error = Fraction(2, min(units))
    error = 2 * relative_error * math.comb(len(levels), 2)
    ends = [Fraction(unit, 1 << _END_BITS) for unit in units]
    masses: dict[Order, int] = {}
    for order, probability in orders_of_uniforms(ends, k).items():
        masses[order] = max(int((probability - error) * (1 << LISTING_BITS)), 0)
    return masses


def _units_of_ends(levels: Sequence[int], rate: Fraction) -> list[int]:
    """Return integers within 1 of 2**_END_BITS·e^{-rate·(level - least level)}, for each level."""
    exponents = [rate * (level - min(levels)) for level in levels]
    common = lcm(*(x.denominator for x in exponents))
    return exp_units([int(x * common) for x in exponents], common, _END_BITS)


def orders_of_uniforms(ends: Sequence[Fraction], k: int) -> dict[Order, Fraction]:
    """Return, for every order of k numbers, the exact probability that they are the k smallest, in
    this order, of independent numbers that are uniform on [0, end] each.

    Args:
        ends: the end of each number's interval, above 0; numbers are named by their places.
        k: from 1 to the number of ends.
    """
    cuts = sorted({Fraction(0), *ends})
    segments = list(itertools.pairwise(cuts))
    orders = itertools.permutations(range(len(ends)), k)
    return {order: _chance_of_order(order, ends, segments) for order in orders}


def _chance_of_order(
    order: Order, ends: Sequence[Fraction], segments: Sequence[Segment]
) -> Fraction:
    """Return the probability that the numbers of ``order`` are the smallest, in this order.

    The density of one number after the other is integrated; between any two cuts it is a
    polynomial in t.

    Args:
        order: the numbers, at least one.
        ends: the ends of all numbers' intervals.
        segments: the intervals between successive cuts at 0 and the ends.
    """
    others = set(range(len(ends))) - set(order)
    probability = Fraction(0)
    # The probability that the numbers so far come in order and the last of them is below t.
    chances_in_order: list[Polynomial] = [[Fraction(1)] for _ in segments]
    for number in order:
        density: list[Polynomial] = []
        for coefficients, (_, high) in zip(chances_in_order, segments, strict=True):
            density.append(_next_density(coefficients, ends[number], high))
        if number == order[-1]:
            for other in others:
                density = _density_before_other(density, ends[other], segments)
        chances_in_order, probability = _integral(density, segments)
    return probability


def _next_density(chance_in_order: Polynomial, end: Fraction, high: Fraction) -> Polynomial:
    """Return the density at t of the next number of an order, on a segment up to ``high``, together
    with the event that the earlier numbers come before it in order.

    Args:
        chance_in_order: the probability that the earlier numbers are in order and below t, on the
            segment.
        end: the next number is uniform on [0, end].
        high: the end of the segment.
    """
    if high > end:
        return [Fraction(0)]
    return [coefficient / end for coefficient in chance_in_order]


def _density_before_other(
    density: list[Polynomial], end: Fraction, segments: Sequence[Segment]
) -> list[Polynomial]:
    """Return the density times 1 - t/end, the probability that another number, uniform on [0,
    end], comes after t; 0 where t exceeds the end.

    Args:
        density: of t on each segment.
        end: that of the other number's interval.
        segments: the segments, each from low to high.
    """
    products: list[Polynomial] = []
    for coefficients, (_, high) in zip(density, segments, strict=True):
        if high > end:
            products.append([Fraction(0)])
            continue
        shifted = [Fraction(0), *(coefficient / end for coefficient in coefficients)]
        padded = [*coefficients, Fraction(0)]
        products.append([a - b for a, b in zip(padded, shifted, strict=True)])
    return products


def _integral(
    density: list[Polynomial], segments: Sequence[Segment]
) -> tuple[list[Polynomial], Fraction]:
    """Return the integral of a density from 0 to t, a polynomial on each segment, and its value at
    the last cut.
    """
    total = Fraction(0)
    integrals: list[Polynomial] = []
    for coefficients, (low, high) in zip(density, segments, strict=True):
        integral = [Fraction(0)]
        for power, coefficient in enumerate(coefficients, start=1):
            integral.append(coefficient / power)
        integral[0] = total - _polynomial_value(integral, low)
        integrals.append(integral)
        total = _polynomial_value(integral, high)
    return integrals, total


def _polynomial_value(coefficients: Polynomial, t: Fraction) -> Fraction:
    """Return the value of a polynomial at t."""
    total = Fraction(0)
    for coefficient in reversed(coefficients):
        total = total * t + coefficient
    return total
