"""Intervals of counts that passed a threshold, for noise that is cut and a coin at the threshold:
enumerated.
"""

import numpy as np
import pytest

from dptopk import Histogram, Sensitivity
from dptopk.mechanisms import TruncatedLaplace
from dptopk.release.conditional import PassedCount, level_of_each
from dptopk.release.noise_laws import GaussianNoise, law_of


def _missed(law: PassedCount, weights: np.ndarray, bound: int, count: int, alpha: float) -> float:
    """The exact chance that the interval misses ``count``, given that it is shown."""
    shown = np.arange(max(law.threshold, count - bound), count + bound + 1)
    chances = weights[shown - count + bound] * np.where(
        shown == law.threshold, law.at_threshold, 1.0
    )
    low, high = law.intervals(shown, alpha)
    return float(chances[(low > count) | (high < count)].sum() / chances.sum())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("coin", [0.0, 0.7])
@pytest.mark.parametrize("alpha", [0.3, 0.01, 1e-9])
def test_cut_noise_and_a_coin_miss_no_more_often_than_said_and_a_narrower_law_does(
    kind, coin, alpha
):
    bound, scale = 9, 2.0
    n = np.arange(-bound, bound + 1)
    weights = np.exp(-np.abs(n) / scale) if kind == "laplace" else np.exp(-(n**2) / (2 * scale**2))

    def most(scale: float) -> float:
        law = PassedCount(bound, law_of({"kind": kind, "scale": scale, "bound": bound}).tail, coin)
        return max(_missed(law, weights, bound, count, alpha) for count in range(1, 3 * bound))

    assert most(scale) <= alpha
    assert most(scale / 2) > alpha or alpha < 1e-6


def test_error_bars_of_cut_laplace_noise_are_those_of_its_law_not_its_bound():
    mechanism, sensitivity = TruncatedLaplace(epsilon=1.0, delta=1e-6), Sensitivity(l0=1)
    words = Histogram(
        [f"w{i}" for i in range(25)], [400 - 10 * i for i in range(25)], sensitivity=sensitivity
    )
    release = mechanism.release(words, np.random.default_rng(1))
    table = release.intervals()
    assert set((table["high"] - table["low"]) // 2) == {6}  # of 14
    assert table.attrs["ranks"] == "domain"
    assert (release.intervals(kind="row").eval("high - low") // 2).max() < 6


def test_very_high_confidence_ends():
    law = PassedCount(9, GaussianNoise(2.0).tail)
    low, high = law.intervals(np.array([40]), level_of_each(1e-12, 25))
    assert low[0] >= 20
    assert high[0] <= 60


def test_counts_that_no_noise_could_lift_over_the_threshold_are_in_no_interval():
    """Noise of almost nothing: chances of 1e-300 and less are no reason for an interval from 1 on."""
    law = PassedCount(20, GaussianNoise(0.03).tail)
    low, high = law.intervals(np.array([21, 649]), 1e-9)
    assert low.tolist() == [20, 649]
    assert high.tolist() == [21, 649]
