"""CountMLE: the fits against cvxpy and brute force, the charge, and refusals."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk import (
    Centred,
    Charge,
    CountMLE,
    Histogram,
    InvalidParameter,
    KnownGaussian,
    KnownLaplace,
    Sensitivity,
)
from dptopk.mechanisms.count_mle import isotonic_least_squares, isotonic_median

GAUSSIAN = CountMLE(noise=KnownGaussian(sigma=2.0), shrink=False)
LAPLACE = CountMLE(noise=KnownLaplace(epsilon=0.5), shrink=False)
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


@pytest.mark.slow
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


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-2, 4), min_size=1, max_size=4))
def test_the_l1_fit_is_the_least_squares_point_among_the_optima(values):
    """Brute force on a grid of twelfths, which holds all means of up to four values and all
    medians.
    """
    grid = np.arange(0, 4 * 12 + 1) / 12
    points = np.array(list(itertools.combinations_with_replacement(grid[::-1], len(values))))
    absolute = np.abs(points - values).sum(axis=1)
    optima = points[absolute <= absolute.min() + 1e-9]
    nearest = ((optima - values) ** 2).sum(axis=1).min()
    fitted = isotonic_median(np.array(values))
    assert np.abs(fitted - values).sum() <= absolute.min() + 1e-9
    assert ((fitted - values) ** 2).sum() == pytest.approx(nearest, abs=1e-9)


def test_long_inputs():
    """Too long for a quadratic algorithm: the fits fall, and keep the mean, or half on either
    side.
    """
    values = np.random.default_rng(0).integers(0, 10**6, size=10**6)
    fitted = isotonic_least_squares(values)
    assert (np.diff(fitted) <= 0).all()
    assert fitted.mean() == pytest.approx(values.mean(), rel=1e-12)
    medians = isotonic_median(values[:20_000])
    assert (np.diff(medians) <= 0).all()
    assert abs(np.mean(values[:20_000] < medians) - np.mean(values[:20_000] > medians)) < 0.02
    assert set(isotonic_median(np.arange(20_000))) == {9_999.5}  # one level for all


def test_rows_follow_the_ranking_and_the_raw_counts_are_kept():
    histogram = Histogram(["a", "b", "c"], [100, 300, 200], sensitivity=Sensitivity(l0=2))
    for mechanism in (GAUSSIAN, LAPLACE):
        release = mechanism.release(
            histogram, np.random.default_rng(0), ranking=["b", "c", "nobody"]
        )
        assert release.labels == ("b", "c", "nobody")
        assert (np.diff(release.counts) <= 0).all()
        assert release.counts[2] >= 0
        assert release.measured.dtype == np.int64
        assert (
            release.charge
            == mechanism.charge(histogram.sensitivity)
            == mechanism.noise.charge(Sensitivity(l0=2))
        )
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


# True counts in the drawn order: right, wrong, equal, reversed, with zeros.
ORDERS = {
    "right": np.linspace(300, 20, 20),
    "wrong": np.random.default_rng(3).permutation(np.linspace(300, 20, 20)),
    "equal": np.full(20, 50.0),
    "reversed": np.linspace(0, 30, 20),
    "mostly nothing": np.where(np.arange(20) < 3, 90.0, 0.0),
}
SCALE = 12.0
NOISES = {
    "gaussian": KnownGaussian(sigma=SCALE),
    "laplace": KnownLaplace(epsilon=math.sqrt(2) / SCALE),
    "centred": Centred(noise=KnownGaussian(sigma=SCALE), common=KnownGaussian(sigma=SCALE)),
}


def squared_errors(noise, truth, trials=400):
    """Mean squared errors of the noisy counts, the shrunk counts and the estimate of the latter,
    over seeded noise.
    """
    rng, mechanism, sensitivity = np.random.default_rng(17), CountMLE(noise=noise), Sensitivity()
    histogram = Histogram(None, np.rint(truth).astype(int), sensitivity=sensitivity)
    found = []
    for _ in range(trials):
        release = mechanism.release(histogram, rng, ranking=range(len(truth)))
        errors = [
            ((values - np.rint(truth)) ** 2).mean() for values in (release.measured, release.counts)
        ]
        found.append([*errors, mechanism.error(release.measured, sensitivity) ** 2])
    return np.mean(found, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("order", ORDERS)
def test_the_shrunk_fit_is_never_worse_than_the_noisy_counts(noise, order):
    plain, shrunk, estimated = squared_errors(NOISES[noise], ORDERS[order])
    assert shrunk <= plain
    assert 0.8 * shrunk <= estimated <= 1.6 * shrunk + 0.1 * plain  # the floor makes it err upwards
    if order in {"equal", "mostly nothing"}:
        assert shrunk < 0.7 * plain


def test_the_published_fit_can_be_worse_than_the_noisy_counts():
    """The reason for shrinking: least squares believes a wrong order."""
    rng, truth = np.random.default_rng(1), ORDERS["wrong"]
    noisy = truth + rng.normal(scale=SCALE, size=(200, len(truth)))
    fitted = np.array([isotonic_least_squares(values) for values in noisy])
    assert ((fitted - truth) ** 2).mean() > 5 * SCALE**2


def test_shrinking_goes_all_the_way_where_the_fit_is_near():
    mechanism = CountMLE(noise=KnownGaussian(sigma=100.0))
    values = np.array([50.0, 40.0, 45.0, 30.0, 35.0, 20.0, 22.0, 10.0])
    np.testing.assert_array_equal(
        mechanism.fit(values, Sensitivity()), isotonic_least_squares(values)
    )
    far = np.array([0.0, 1e6] * 5)
    np.testing.assert_allclose(mechanism.fit(far, Sensitivity()), far, atol=1.0)
    assert mechanism.fit(np.array([3.0, 5.0]), Sensitivity()).tolist() == [
        3.0,
        5.0,
    ]  # two counts tell too little
    assert mechanism.error(np.empty(0), Sensitivity()) == 0.0


def test_a_noise_that_all_counts_share_is_neither_fitted_nor_clipped():
    mechanism = CountMLE(
        noise=Centred(noise=KnownGaussian(sigma=10.0), common=KnownGaussian(sigma=50.0))
    )
    values = np.array([30.0, 10.0, 20.0, 4.0, 6.0, -3.0])
    moved = mechanism.fit(values - 1000, Sensitivity())
    np.testing.assert_allclose(moved, mechanism.fit(values, Sensitivity()) - 1000)
    assert moved.sum() == pytest.approx((values - 1000).sum())
    published = CountMLE(noise=mechanism.noise, shrink=False)
    assert (published.fit(values - 1000, Sensitivity()) < 0).all()


def test_bad_shrink():
    with pytest.raises(InvalidParameter, match="shrink"):
        CountMLE(noise=KnownGaussian(sigma=1.0), shrink="yes")
