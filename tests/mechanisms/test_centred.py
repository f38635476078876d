"""Centred counts: size of the noise, its tail, its common part, and refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import (
    Budget,
    Centred,
    Histogram,
    KnownGaussian,
    KnownLaplace,
    Sensitivity,
    calibrate,
    compose,
)
from dptopk._internal.maxima import gaussian_maximum_tail, laplace_maximum_tail
from dptopk.errors import InvalidParameter
from dptopk.mechanisms import GaussianCounts, UnknownCentred
from dptopk.mechanisms.centred import best_centre
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law

ANY = Sensitivity()
BUDGET = Budget(1, 1e-6)


def centred(k, scale, **options):
    return Centred(noise=KnownGaussian(sigma=math.sqrt(k) / scale), **options)


@pytest.mark.parametrize(("k", "ratio"), [(25, 0.6), (100, 0.55)])
def test_half_the_noise_at_the_same_cost(k, ratio):
    """(sqrt(k) + 1)/2 against sqrt(k): Lebeda 2025, for the total of a budget."""
    alone = calibrate(lambda x: KnownGaussian(sigma=1 / x).charge(ANY, labels=k), BUDGET)
    scale = calibrate(lambda x: centred(k, x).charge(ANY, labels=k), BUDGET)
    assert centred(k, scale).noise_std(ANY, labels=k) * alone == pytest.approx(ratio, rel=2e-3)


@pytest.mark.parametrize(("k", "l0", "spread"), [(100, 25, 4.56), (25, 9, 2.71), (100, None, 5.5)])
def test_the_best_centre_for_few_touched_labels(k, l0, spread):
    """Standard deviation times μ; 5 and 3 for independent noise at l0 = 25 and 9."""
    centre = best_centre(k, l0 or k)
    mechanism = Centred(noise=KnownGaussian(sigma=100.0), centre=centre)
    charge = mechanism.charge(Sensitivity(l0=l0), labels=k)
    mu = math.sqrt(sum(times * (cost.shift / cost.scale) ** 2 for cost, times in charge))
    assert mechanism.noise_std(Sensitivity(l0=l0), labels=k) * mu == pytest.approx(spread, rel=2e-3)


def test_laplace_noise_is_halved_without_a_delta():
    k = 100
    mechanism = Centred(noise=KnownLaplace(epsilon=0.01))
    epsilon = compose(mechanism.charge(ANY, labels=k), delta=0.0).epsilon
    assert mechanism.noise_std(ANY, labels=k) < 0.55 * KnownLaplace(epsilon=epsilon / k).noise_std(
        ANY
    )


def test_laplace_noise_is_charged_by_its_own_law():
    """Moves of up to 100: the law of the noise is cheaper than the ε-DP that it implies; moves of 1
    are that ε-DP.
    """
    mechanism = Centred(noise=KnownLaplace(epsilon=0.3), common=KnownLaplace(epsilon=0.6))
    charge = mechanism.charge(Sensitivity(linf=100), labels=30)
    assert (
        str(charge) == "DLap(166.66666666666666, 100) + 30*DLap(333.3333333333333, 100)"
    )  # 100/0.3 rounded down
    pure = mechanism.charge(Sensitivity(), labels=30)
    assert str(pure) == "30*DP(0.3) + DP(0.6)"
    assert compose(charge, delta=1e-6).epsilon < 0.96 * compose(pure, delta=1e-6).epsilon


@pytest.mark.parametrize(
    ("noise", "common", "law"),
    [
        (KnownGaussian(sigma=3.0), KnownGaussian(sigma=1.5), gaussian_law),
        (KnownGaussian(sigma=1.5), KnownGaussian(sigma=3.0), gaussian_law),
        (
            KnownLaplace(epsilon=0.5),
            KnownLaplace(epsilon=1.5),
            lambda epsilon: laplace_law(epsilon, 1),
        ),
    ],
)
def test_the_tail_is_that_of_the_sum(noise, common, law):
    mechanism = Centred(noise=noise, common=common)
    own, shared = (
        law(getattr(part, "sigma", None) or part.epsilon).pmf(120) for part in (noise, common)
    )
    both = np.convolve(own, shared)
    n = np.arange(len(both)) - len(both) // 2
    for c in (0, 1, 7, 20):
        exact = both[np.abs(n) > c].sum()
        assert exact <= mechanism.tail(ANY, c / 2) <= exact * (1 + 1e-6)
    width = mechanism.half_width(ANY, confidence=0.95)
    assert both[np.abs(n) > 2 * width].sum() <= 0.05 < both[np.abs(n) > 2 * width - 1].sum()


def test_tails_of_long_sums_agree_with_the_continuous_law():
    from scipy.stats import norm

    for scale, other, c in (
        (5000.0, 2000.0, 15_000),
        (5000.0, 30.0, 20_000),
        (1e6, 1e6, 3_000_000),
    ):
        exact = norm.sf((c + 0.5) / math.hypot(scale, other))
        assert exact * (1 - 1e-6) <= gaussian_maximum_tail(scale, 1, c, other) <= exact * (1 + 1e-4)
    assert laplace_maximum_tail(0.3, 1, 9, 0.3) == pytest.approx(
        laplace_maximum_tail(0.3, 1, 9), rel=1e-9
    )


def test_releases_share_one_noise():
    """Differences between counts do not see Y: their variance is that of Z alone."""
    mechanism = Centred(noise=KnownGaussian(sigma=4.0), common=KnownGaussian(sigma=40.0))
    histogram = Histogram(None, np.zeros(2000, dtype=int), sensitivity=ANY)
    rng = np.random.default_rng(8)
    counts = [mechanism.release(histogram, rng).counts for _ in range(200)]
    assert np.mean([c.var() for c in counts]) == pytest.approx(4.0, rel=0.02)
    assert np.std([c.mean() for c in counts]) == pytest.approx(20.0, rel=0.2)
    assert mechanism.noise_of(ANY, None).own_std == pytest.approx(2.0)
    assert mechanism.noise_of(ANY, None).shared_std == pytest.approx(20.0)


def test_a_release_writes_out_the_law_of_the_common_noise():
    histogram = Histogram(["a", "b"], [2**61, 5], domain="public", sensitivity=ANY)
    release = Centred(noise=KnownGaussian(sigma=2.0)).release(histogram, np.random.default_rng(1))
    assert release.mechanism.common == KnownGaussian(sigma=2.0 / 2**0.25)
    assert release.charge == release.mechanism.charge(ANY, labels=2)
    assert release.labels == ("a", "b")
    assert len(release.intervals(confidence=0.9)) == 2


def test_no_labels_cost_nothing():
    mechanism = Centred(noise=KnownGaussian(sigma=2.0))
    release = mechanism.release(Histogram(["a"], [3], domain="public"), labels=[])
    assert len(release) == 0
    assert not release.charge


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"noise": 3}, "noise"),
        ({"noise": KnownGaussian(sigma=1.0), "common": KnownLaplace(epsilon=1.0)}, "common"),
        ({"noise": KnownGaussian(sigma=1.0), "centre": 0}, "centre"),
        ({"noise": KnownGaussian(sigma=1.0), "centre": Fraction(2, 3)}, "centre"),
        ({"noise": KnownGaussian(sigma=1.0), "centre": math.nan}, "centre"),
        ({"noise": KnownGaussian(sigma=1.0), "centre": Fraction(1, 10**6)}, "centre"),
    ],
)
def test_refusals(arguments, named):
    with pytest.raises(InvalidParameter, match=named):
        Centred(**arguments)


def test_labels_must_be_known_and_neighbours_too():
    mechanism = Centred(noise=KnownGaussian(sigma=1.0))
    with pytest.raises(InvalidParameter, match="labels"):
        mechanism.charge(Sensitivity(l0=3))
    with pytest.raises(InvalidParameter, match="labels"):
        mechanism.noise_std(ANY)
    with pytest.raises(InvalidParameter, match="neighbours"):
        mechanism.charge(Sensitivity(neighbours="replace_one"), labels=3)


def test_over_a_noisy_floor_half_the_noise_and_a_lower_threshold():
    """Any number of labels a user, (1, 1e-6), 50 labels: 17.8 and 133 (Lebeda-Retschmeier 2025 on
    the reals).
    """

    def made(scale):
        return UnknownCentred(d_bar=50, noise=KnownGaussian(sigma=1 / scale), delta=5e-7)

    mechanism = made(calibrate(lambda scale: made(scale).charge(ANY), BUDGET))
    assert mechanism.noise_std(ANY) == pytest.approx(17.8, rel=5e-3)
    assert mechanism.threshold_offset(ANY) == 133
    assert compose(mechanism.charge(ANY), delta=1e-6).epsilon <= 1


@pytest.mark.parametrize("noise", [KnownGaussian(sigma=4.0), KnownLaplace(epsilon=0.5)], ids=str)
@pytest.mark.parametrize("centre", [Fraction(1, 2), Fraction(1, 3)])
def test_a_count_at_the_stated_distance_from_the_floor_appears_as_often(noise, centre):
    mechanism, rng, runs = (
        UnknownCentred(d_bar=2, noise=noise, centre=centre, delta=1e-4),
        np.random.default_rng(3),
        150,
    )
    sensitivity = Sensitivity(linf=2, l0=1)
    distance = mechanism.appears_at(sensitivity, probability=0.8)

    def share(count):
        histogram = Histogram(["x"], [count], sensitivity=sensitivity)
        return np.mean([len(mechanism.release(histogram, rng)) for _ in range(runs)])

    assert share(distance) >= 0.8 - 0.13
    assert share(distance - 5) <= 0.8 - 0.1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"noise": 3}, "noise"),
        ({"d_bar": 0}, "d_bar"),
        ({"delta": 0}, "delta"),
        ({"centre": 2}, "centre"),
    ],
)
def test_refusals_over_a_noisy_floor(arguments, named):
    with pytest.raises(InvalidParameter, match=named):
        UnknownCentred(
            **({"d_bar": 3, "noise": KnownGaussian(sigma=1.0), "delta": 0.1} | arguments)
        )
    with pytest.raises(InvalidParameter, match="neighbours"):
        made = UnknownCentred(d_bar=3, noise=KnownGaussian(sigma=1.0), delta=0.1)
        made.charge(Sensitivity(neighbours="replace_one"))


def test_the_width_of_counts_at_one_price_is_that_of_so_many_labels():
    counts = GaussianCounts(mu=0.2)
    widths = [counts.count_width(ANY, labels=n) for n in (1, 10, 100)]
    assert widths == [counts.half_width(ANY, labels=n) for n in (1, 10, 100)] == [10.0, 20.5, 54.0]
