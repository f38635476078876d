"""Releases with real noise follow the law that is charged, and the tests would notice a law that is
a little off.
"""

import math

import numpy as np
import pytest

from dptopk import (
    CountMLE,
    Histogram,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    Sensitivity,
    TruncatedGaussian,
    UnknownGumbel,
)

DRAWS = 40_000
SENSITIVITY = Sensitivity(linf=2, l0=1)
PUBLIC = Histogram(None, np.full(DRAWS, 10**6), sensitivity=SENSITIVITY)
PRIVATE = Histogram([f"label {i}" for i in range(DRAWS)], PUBLIC.counts, sensitivity=SENSITIVITY)
N = np.arange(-300, 301)


def laplace(epsilon):
    return np.exp(-epsilon * np.abs(N) / 2)


def gaussian(sigma, bound=300):
    return np.where(np.abs(N) <= bound, np.exp(-(N**2) / (2 * (2 * sigma) ** 2)), 0.0)


def deviation(observed, weights):
    """Pearson's statistic over cells expected at least ten times, in standard deviations above its
    mean.
    """
    expected = weights / weights.sum() * len(observed)
    kept = expected >= 10
    seen = np.bincount(observed + 300, minlength=601)
    terms = (seen[kept] - expected[kept]) ** 2 / expected[kept]
    rest, rest_expected = seen[~kept].sum(), max(expected[~kept].sum(), 1e-9)
    total = terms.sum() + (rest - rest_expected) ** 2 / max(rest_expected, 1.0)
    return (total - kept.sum()) / math.sqrt(2 * kept.sum())


TRUNCATED = TruncatedGaussian(sigma=3.0, delta=1e-3)
CASES = [
    (KnownLaplace(epsilon=0.5), PUBLIC, laplace(0.5), laplace(0.55)),
    (KnownGaussian(sigma=3.0), PUBLIC, gaussian(3.0), gaussian(3.15)),
    (
        TRUNCATED,
        PRIVATE,
        gaussian(3.0, TRUNCATED.bound(SENSITIVITY)),
        gaussian(3.15, TRUNCATED.bound(SENSITIVITY)),
    ),
]


@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize(
    ("mechanism", "histogram", "law", "wrong"), CASES, ids=lambda value: type(value).__name__
)
def test_noise_on_counts(mechanism, histogram, law, wrong, seed):
    release = mechanism.release(histogram, None if seed is None else np.random.default_rng(seed))
    noise = release.counts - 10**6
    assert len(noise) == DRAWS
    assert deviation(noise, law) < 8
    assert deviation(noise, wrong) > 8
    if mechanism is TRUNCATED:
        assert np.abs(noise).max() <= TRUNCATED.bound(SENSITIVITY)


def test_measured_counts_of_a_ranking_have_the_noise_of_their_mechanism():
    release = CountMLE(noise=KnownGaussian(sigma=3.0)).release(
        PUBLIC, np.random.default_rng(1), ranking=range(DRAWS)
    )
    assert deviation(release.measured - 10**6, gaussian(3.0)) < 8
    assert deviation(release.measured - 10**6, gaussian(3.15)) > 8


def sequences(mechanism, histogram, draws=4000):
    rng, seen = np.random.default_rng(3), {}
    for _ in range(draws):
        labels = mechanism.release(histogram, rng).labels
        seen[labels] = seen.get(labels, 0) + 1
    return seen


def peeling(scores, k):
    """The law of k selections with weights e^score; the label None ends a sequence."""
    law = {}

    def extend(chosen, left, mass):
        if len(chosen) == k or not left or chosen[-1:] == (None,):
            shown = tuple(label for label in chosen if label is not None)
            law[shown] = law.get(shown, 0.0) + mass
            return
        total = sum(math.exp(score) for score in left.values())
        for label, score in left.items():
            rest = {other: value for other, value in left.items() if other != label}
            extend((*chosen, label), rest, mass * math.exp(score) / total)

    extend((), scores, 1.0)
    return law


def chi_square(seen, law, draws=4000):
    cells = [
        (seen.get(outcome, 0), mass * draws) for outcome, mass in law.items() if mass * draws >= 5
    ]
    total = sum((count - expected) ** 2 / expected for count, expected in cells)
    return (total - len(cells)) / math.sqrt(2 * len(cells))


@pytest.mark.slow
def test_sequences_of_selections():
    """ε per selection, over τ: neither half of it nor twice; and ⊥ at the floor plus the offset."""
    counts = {"a": 5, "b": 3, "c": 0}
    public = Histogram(
        list(counts), list(counts.values()), domain="public", sensitivity=SENSITIVITY
    )
    seen = sequences(KnownGumbel(k=2, epsilon=0.8), public)

    def law(epsilon):
        return peeling({label: epsilon * count / 2 for label, count in counts.items()}, 2)

    assert chi_square(seen, law(0.8)) < 5
    assert chi_square(seen, law(0.4)) > 5
    assert chi_square(seen, law(1.6)) > 5

    mechanism = UnknownGumbel(k=2, d_bar=2, epsilon=0.8, delta=0.2)
    private = Histogram(["a", "b", "c"], [9, 7, 2], sensitivity=SENSITIVITY)
    seen = sequences(mechanism, private)
    offset = mechanism.threshold_offset(SENSITIVITY)

    def stopped(shift):
        return peeling({"a": 0.4 * 9, "b": 0.4 * 7, None: 0.4 * (2 + offset + shift)}, 2)

    assert chi_square(seen, stopped(0)) < 5
    assert chi_square(seen, stopped(-1)) > 5
    assert chi_square(seen, stopped(1)) > 5
