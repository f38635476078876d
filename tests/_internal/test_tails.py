"""Tails of the integer laws against sums of the pmf at 40 digits."""

import math

import mpmath
import numpy as np
import pytest

from dptopk import InvalidParameter
from dptopk._internal import tails

EXCESS = 1e-6


def pmf(weight, reach):
    """The law ∝ weight(n) on [-reach, reach], in high precision."""
    weights = {n: weight(mpmath.mpf(n)) for n in range(-reach, reach + 1)}
    total = mpmath.fsum(weights.values())
    return {n: w / total for n, w in weights.items()}


def difference(law, c):
    """P[N1 - N2 > c] by summing over pairs."""
    reach = max(law)
    above = {}  # P[N > n]
    running = mpmath.mpf(0)
    for n in range(reach, -reach - 1, -1):
        above[n] = running
        running += law[n]
    return mpmath.fsum(
        p * (above.get(n + c, mpmath.mpf(0)) if n + c <= reach else 0) for n, p in law.items()
    )


def assert_tight(bound, exact, excess=EXCESS):
    assert exact <= bound <= exact * (1 + excess)


@pytest.mark.parametrize("rate", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("c", [0, 1, 7, 40])
def test_laplace(rate, c):
    with mpmath.workdps(40):
        law = pmf(lambda n: mpmath.exp(-mpmath.mpf(rate) * abs(n)), math.ceil(40 + c + 120 / rate))
        assert_tight(tails.laplace_tail(rate, c), mpmath.fsum(p for n, p in law.items() if n > c))
        assert_tight(tails.laplace_difference_tail(rate, c), difference(law, c))


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.7, 1.0, 1.7, 2.99, 3.0, 8.3, 60.0])
@pytest.mark.parametrize("deviations", [0, 1, 3, 6])
def test_gaussian(scale, deviations):
    c = round(deviations * scale)
    with mpmath.workdps(40):
        law = pmf(
            lambda n: mpmath.exp(-((n / mpmath.mpf(scale)) ** 2) / 2), math.ceil(c + 4 + 14 * scale)
        )
        assert_tight(tails.gaussian_tail(scale, c), mpmath.fsum(p for n, p in law.items() if n > c))
        assert_tight(tails.gaussian_difference_tail(scale, c), difference(law, c))


def test_integral_and_sum_meet(monkeypatch):
    """Where sums give way to integrals both must agree, and the integral must not be below."""
    summed = [tails._half_sum(1000.0, c) for c in (0, 500, 2000, 7000)]
    monkeypatch.setattr(tails, "SUMMED_SCALE", 0.0)
    integrated = [tails._half_sum(1000.0, c) for c in (0, 500, 2000, 7000)]
    for small, large, slack in zip(summed, integrated, (2e-7, 2e-7, 1e-5, 1e-5), strict=True):
        assert small <= large * (1 + 1e-12)
        assert large <= small * (1 + slack)


@pytest.mark.parametrize("deviations", [0, 0.1, 0.5, 0.99, 1.0, 2.0])
def test_wide_gaussian_within_one_deviation(deviations):
    """A tail near the middle of wide noise is as close as the others: intervals rely on it."""
    scale = 1234.5
    c = round(deviations * scale)
    n = np.arange(c + 1, 40 * scale)
    half = math.fsum(tails.gaussian_weight(n, scale))
    total = scale * math.sqrt(2 * math.pi)
    assert_tight(tails.gaussian_tail(scale, c), half / total)
    assert_tight(tails.gaussian_tails(scale, c, 1)[0], half / total)


def test_difference_of_wide_laplace_far_out():
    """q^(c+1) times 1 - q would be a subnormal float of few digits: the tail was 5e-4 too low."""
    rate = 2.0**-48
    c = math.ceil(704.4 / rate)
    with mpmath.workdps(60):
        q = mpmath.exp(-mpmath.mpf(rate))
        offset = (1 + q * q) / (1 - q * q)
        exact = q ** (c + 1) * (1 - q) * (c + 1 + q / (1 - q) + offset) / (1 + q) ** 2
        assert exact > 1e-304
        assert_tight(tails.laplace_difference_tail(rate, c), exact)


def test_underflow_never_gives_zero():
    for bound in (
        tails.laplace_tail(1.0, 10**6),
        tails.gaussian_tail(1.0, 10**6),
        tails.gaussian_tail(1e6, 10**12),
    ):
        assert bound > 0


def test_smallest_offset_is_smallest_and_names_what_is_too_small():
    for delta in np.geomspace(1e-12, 0.4, 9):
        c = tails.smallest_offset(lambda c: tails.laplace_difference_tail(0.3, c), delta, "delta")
        assert tails.laplace_difference_tail(0.3, c) <= delta
        assert c == 0 or tails.laplace_difference_tail(0.3, c - 1) > delta
    with pytest.raises(InvalidParameter, match="delta"):
        tails.smallest_offset(lambda c: tails.laplace_tail(2.0**-60, c), 1e-9, "delta")


def test_what_is_no_number_is_no_small_tail():
    assert [tails.tail_up(value) for value in (math.nan, math.inf, 2.0, 0.0)] == [
        1.0,
        1.0,
        1.0,
        2.0**-1022,
    ]
