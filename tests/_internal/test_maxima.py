"""P[max of m noises - N0 > c] against sums over the lattice, and the thresholds that follow from
it.
"""

import math

import numpy as np
import pytest

from dptopk import Sensitivity, UnknownGaussian, UnknownLaplace
from dptopk._internal import maxima, tails

MAXIMA = {"laplace": maxima.laplace_maximum_tail, "gaussian": maxima.gaussian_maximum_tail}
SINGLE = {"laplace": tails.laplace_difference_tail, "gaussian": tails.gaussian_difference_tail}
OFFSETS = {"laplace": maxima.laplace_offset, "gaussian": maxima.gaussian_offset}


def parameter(kind, scale):
    return 1 / scale if kind == "laplace" else scale


def law(kind, scale, points):
    """The pmf on [-reach, reach] and reach."""
    reach = math.ceil(points * scale) + 40
    n = np.arange(-reach, reach + 1.0)
    weights = np.exp(-np.abs(n) / scale) if kind == "laplace" else np.exp(-((n / scale) ** 2) / 2)
    return weights / weights.sum(), reach


def summed(kind, scale, m, c):
    """Σ p(n) (1 - P[N <= n + c]^m) without any block."""
    pmf, _ = law(kind, scale, 70 if kind == "laplace" else 16)
    above = np.append(np.cumsum(pmf[::-1])[::-1], 0.0)  # entry i: P[N >= i - reach]
    place = np.minimum(np.arange(len(pmf)) + c + 1, len(pmf))
    none = np.log1p(-np.minimum(above[place], 1 - 2.0**-53))
    return float((pmf * -np.expm1(m * none)).sum())


@pytest.mark.parametrize("kind", MAXIMA)
@pytest.mark.parametrize("m", [2, 3])
def test_against_every_combination_of_noises(kind, m):
    """No formula at all: the product law of m + 1 noises on a small lattice."""
    pmf, reach = law(kind, 0.8, 0)
    pmf, reach = pmf[reach - 12 : reach + 13], 12
    axes = np.meshgrid(*[np.arange(-reach, reach + 1)] * (m + 1), indexing="ij", sparse=True)
    mass = math.prod(pmf[axis + reach] for axis in axes)
    gap = axes[0]
    for axis in axes[1:m]:
        gap = np.maximum(gap, axis)
    for c in range(4):
        exact = mass[np.broadcast_to(gap - axes[m] > c, mass.shape)].sum()
        assert MAXIMA[kind](parameter(kind, 0.8), m, c) == pytest.approx(exact, rel=1e-5, abs=2e-6)


@pytest.mark.parametrize("kind", MAXIMA)
@pytest.mark.parametrize("scale", [0.2, 0.7, 1.0, 3.3, 40.0, 300.0])
@pytest.mark.parametrize("m", [2, 5, 50, 10**6])
def test_never_below_the_sum_and_close_to_it(kind, scale, m, monkeypatch):
    for deviations in (0, 1, 4, 9):
        c = round(deviations * scale)
        exact = summed(kind, scale, m, c)
        assert exact <= MAXIMA[kind](parameter(kind, scale), m, c) <= exact * (1 + 1e-8) + 2e-16
    # The same in blocks, as for large scales.
    monkeypatch.setattr(maxima, "CELLS_AT_A_TIME", 1000)
    if scale < 40:
        return
    for deviations in (0, 1, 4, 9):
        c = round(deviations * scale)
        exact = summed(kind, scale, m, c)
        assert exact <= MAXIMA[kind](parameter(kind, scale), m, c) <= exact * (1 + 2e-3)


@pytest.mark.parametrize("m", [2, 50, 10**6])
@pytest.mark.parametrize(
    ("kind", "scale"), [("laplace", 1000.5), ("laplace", 4000.0), ("gaussian", 1000.5)]
)
def test_blocks_at_large_scales(kind, scale, m):
    for deviations in (0, 1, 5, 8):
        c = round(deviations * scale)
        exact = summed(kind, scale, m, c)
        assert exact <= MAXIMA[kind](parameter(kind, scale), m, c) <= exact * (1 + 1e-5)


def test_gaussian_blocks_and_lattice_agree():
    for c in (0, 800, 5000, 8000):
        first, last = -math.ceil(0.75 * c) - 7001, 7001
        lattice = maxima._gaussian_lattice_sum(1000.0, 1000.0, 20, c, first, last)
        assert (
            lattice
            <= maxima._gaussian_block_sum(1000.0, 1000.0, 20, c, first, last)
            <= lattice * (1 + 1e-5)
        )


@pytest.mark.parametrize("kind", MAXIMA)
@pytest.mark.parametrize("scale", [0.1, 1.0, 33.0, 700.0, 1e5, 2.0**40])
def test_between_one_slot_and_the_union_and_falling(kind, scale):
    a = parameter(kind, scale)
    for m in (1, 2, 30, 10**6):
        values = []
        for deviations in (0, 0.5, 1, 3, 8, 20, 36):
            c = round(deviations * scale)
            single, tail = SINGLE[kind](a, c), MAXIMA[kind](a, m, c)
            assert single <= tail * (1 + 2e-9)
            assert tail <= min(m * single, 1.0)
            assert m > 1 or tail == single
            assert tail <= MAXIMA[kind](a, m + 1, c)
            values.append(tail)
        assert values == sorted(values, reverse=True)
    for c in range(round(3 * scale), round(3 * scale) + 3):
        assert MAXIMA[kind](a, 7, c + 1) <= MAXIMA[kind](a, 7, c)


@pytest.mark.parametrize("kind", MAXIMA)
@pytest.mark.parametrize("scale", [0.4, 1.0, 20.0, 1500.0, 1e6])
@pytest.mark.parametrize("delta", [0.4, 1e-3, 1e-10])
def test_offsets_are_smallest_and_never_above_those_of_the_union(kind, scale, delta):
    a = parameter(kind, scale)
    for m in (1, 2, 40, 10**6):
        c = OFFSETS[kind](a, m, delta)
        assert MAXIMA[kind](a, m, c) <= delta
        assert c == 0 or MAXIMA[kind](a, m, c - 1) > delta
        union = tails.smallest_offset(lambda c, m=m: m * SINGLE[kind](a, c), delta, "delta")
        assert c <= union
        assert m > 1 or c == union
        assert m < 10**6 or scale < 1000 or c < union


def test_underflow_and_nonsense_leave_the_union():
    for kind, scale in (("laplace", 1.0), ("gaussian", 1.0), ("gaussian", 2000.0)):
        c = round(scale * 10**4)
        assert (
            MAXIMA[kind](parameter(kind, scale), 9, c)
            == 9 * SINGLE[kind](parameter(kind, scale), c)
            > 0
        )
    assert maxima._smaller_bound(math.nan, 0.3) == 0.3
    assert maxima._smaller_bound(math.inf, 0.3) == 0.3


@pytest.mark.parametrize(
    "make",
    [
        lambda d: UnknownLaplace(d_bar=d, epsilon=0.1, delta=1e-6),
        lambda d: UnknownGaussian(d_bar=d, sigma=10.0, delta=1e-6),
    ],
)
def test_mechanisms_use_them(make):
    for l0, d_bar, m in ((5, 9, 5), (None, 9, 9), (12, 9, 9)):
        mechanism = make(d_bar)
        laplace = isinstance(mechanism, UnknownLaplace)
        c = (
            maxima.laplace_offset(0.1 / 2, m, 1e-6)
            if laplace
            else maxima.gaussian_offset(20.0, m, 1e-6)
        )
        assert mechanism.threshold_offset(Sensitivity(linf=2, l0=l0)) == 2 + c
