"""CountMLE: the fits against cvxpy and brute force, the charge, and refusals."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk import Charge, CountMLE, Histogram, InvalidParameter, KnownGaussian, KnownLaplace, Sensitivity
from dptopk.mechanisms.count_mle import isotonic_least_squares, isotonic_median

GAUSSIAN = CountMLE(noise=KnownGaussian(sigma=2.0))
LAPLACE = CountMLE(noise=KnownLaplace(epsilon=0.5))
VALUES = st.lists(st.integers(-20, 20), min_size=1, max_size=9)


def program(values, norm):
    """The fit as a convex program, solved by cvxpy: its optimal value and a point."""
    import cvxpy as cp

    x = cp.Variable(len(values))
    constraints = [x >= 0] + ([x[:-1] >= x[1:]] if len(values) > 1 else [])
    loss = cp.sum_squares(x - values) if norm == 2 else cp.norm1(x - values)
    problem = cp.Problem(cp.Minimize(loss), constraints)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, x.value


@pytest.mark.parametrize("seed", range(6))
def test_fits_solve_the_convex_programs(seed):
    values = np.random.default_rng(seed).integers(-10, 30, size=12)
    squares, point = program(values, 2)
    np.testing.assert_allclose(isotonic_least_squares(values), point, atol=1e-4)
    assert ((isotonic_least_squares(values) - values) ** 2).sum() <= squares + 1e-6
    absolute, _ = program(values, 1)
    assert np.abs(isotonic_median(values) - values).sum() <= absolute + 1e-6


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_the_fits_are_monotone_nonnegative_and_fix_fitted_values(values):
    for fit in (isotonic_least_squares, isotonic_median):
        fitted = fit(np.array(values))
        assert (np.diff(fitted) <= 0).all()
        assert (fitted >= 0).all()
        np.testing.assert_allclose(fit(fitted), fitted, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-2, 4), min_size=1, max_size=4))
def test_the_l1_fit_is_the_least_squares_point_among_the_optima(values):
    """Brute force on a grid of twelfths, which holds all means of up to four values and all medians."""
    grid = np.arange(0, 4 * 12 + 1) / 12
    points = np.array(list(itertools.combinations_with_replacement(grid[::-1], len(values))))
    absolute = np.abs(points - values).sum(axis=1)
    optima = points[absolute <= absolute.min() + 1e-9]
    nearest = ((optima - values) ** 2).sum(axis=1).min()
    fitted = isotonic_median(np.array(values))
    assert np.abs(fitted - values).sum() <= absolute.min() + 1e-9
    assert ((fitted - values) ** 2).sum() == pytest.approx(nearest, abs=1e-9)


def test_long_inputs_are_fast():
    values = np.random.default_rng(0).integers(0, 10**6, size=10**6)
    start = time.process_time()
    isotonic_least_squares(values)
    assert time.process_time() - start < 1.0
    start = time.process_time()
    isotonic_median(values[:20_000])
    isotonic_median(np.arange(20_000))
    assert time.process_time() - start < 5.0


def test_rows_follow_the_ranking_and_the_raw_counts_are_kept():
    histogram = Histogram(["a", "b", "c"], [100, 300, 200], sensitivity=Sensitivity(l0=2))
    for mechanism in (GAUSSIAN, LAPLACE):
        release = mechanism.release(histogram, np.random.default_rng(0), ranking=["b", "c", "nobody"])
        assert release.labels == ("b", "c", "nobody")
        assert (np.diff(release.counts) <= 0).all()
        assert release.counts[2] >= 0
        assert release.measured.dtype == np.int64
        assert release.charge == mechanism.charge(histogram.sensitivity) == mechanism.noise.charge(Sensitivity(l0=2))
        assert release.intervals()["high"].gt(100).tolist() == [True, True, False]
    out_of_order = GAUSSIAN.release(histogram, np.random.default_rng(0), ranking=["a", "b"])
    assert out_of_order.counts[0] == out_of_order.counts[1]


def test_charge_counts_the_ranking_when_l0_is_unrestricted():
    histogram = Histogram(["a", "b"], [1, 2])
    assert GAUSSIAN.release(histogram, ranking=["a", "b", "c"]).charge.count == 3
    assert GAUSSIAN.release(histogram, ranking=[]).charge == Charge()
    with pytest.raises(InvalidParameter, match="labels"):
        GAUSSIAN.charge(Sensitivity())


@pytest.mark.parametrize("ranking", ["ab", ["a", "a"]])
def test_bad_rankings(ranking):
    with pytest.raises(InvalidParameter, match="labels"):
        GAUSSIAN.release(Histogram(["a", "b"], [1, 2]), ranking=ranking)


@pytest.mark.parametrize("noise", [None, 3, "gaussian", KnownGaussian])
def test_bad_noise(noise):
    with pytest.raises(InvalidParameter, match="noise"):
        CountMLE(noise=noise)


def test_incomplete_histogram_needs_its_own_release():
    with pytest.raises(InvalidParameter, match="labels"):
        GAUSSIAN.release(Histogram(["a", "b"], [1, 2], complete=False), ranking=["a"])
