"""Counting mechanisms: the exact hockey-stick divergence never exceeds the charge, and attains it
where it should.
"""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from dptopk import (
    Charge,
    CountMLE,
    KnownGaussian,
    KnownLaplace,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownLaplace,
)
from dptopk.histogram.histogram import descending_order
from dptopk.mechanisms import SparseGaussian
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law
from dptopk.mechanisms.thresholds import is_above_threshold

from .charges import delta_of
from .harness import LABELS, SHIFT, WIDTH, World, counting_law, encode, hockey_stick, laws

EPSILONS = (0.0, 0.3, 1.0, 2.0, 3.0, 6.0, math.inf)
# Unbounded noise is enumerated up to a mass of about 1e-8; see harness.py.
TOLERANCE = 1e-6


def noise_table(mechanism, sensitivity):
    """The law of the mechanism's noise, up to a mass of about 1e-8 where it is unbounded."""
    if isinstance(mechanism, TruncatedGaussian):
        bound = mechanism.bound(sensitivity)
        return gaussian_law(sensitivity.linf * mechanism.sigma, bound).pmf(bound)
    if isinstance(mechanism, KnownGaussian | UnknownGaussian | SparseGaussian):
        scale = sensitivity.linf * mechanism.sigma
        return gaussian_law(scale).pmf(math.ceil(6 * scale))
    return laplace_law(mechanism.epsilon, sensitivity.linf).pmf(
        math.ceil(20 * sensitivity.linf / mechanism.epsilon)
    )


def divergence(mechanism, world, epsilons=EPSILONS, **options):
    """Largest divergences over the world at each ε."""
    pmf = noise_table(mechanism, world.sensitivity)
    matrix = laws(world, lambda histogram: counting_law(mechanism, histogram, pmf, **options))
    return hockey_stick(matrix, world.neighbours(), epsilons)


def promised(mechanism, world):
    labels = world.labels if world.domain == "public" else None
    charge = mechanism.charge(world.sensitivity, labels=labels)
    return np.array([delta_of(charge, epsilon) for epsilon in EPSILONS])


def excess(mechanism, world, **options):
    """By how much the divergence exceeds the promise at the worst ε; inf is skipped where nothing
    is promised there.
    """
    return np.nanmax(divergence(mechanism, world, **options) - promised(mechanism, world))


KNOWN = [
    (mechanism, World(labels, levels, Sensitivity(linf=linf, l0=l0), "public"))
    for linf, l0 in [(1, 1), (1, 2), (1, None), (2, 1), (3, 2), (2, None)]
    for mechanism in (KnownLaplace(epsilon=1.0), KnownGaussian(sigma=1.0))
    for labels, levels in [(2, (0, 1, 2, 3))]
]


@pytest.mark.slow
@pytest.mark.parametrize(("mechanism", "world"), KNOWN, ids=str)
def test_known_domain(mechanism, world):
    found, bound = divergence(mechanism, world), promised(mechanism, world)
    assert np.nanmax(found - bound) <= TOLERANCE
    assert np.nanmax(np.abs(found - bound)) <= TOLERANCE  # attained


@pytest.mark.parametrize(
    "mechanism", [KnownLaplace(epsilon=1.0), KnownGaussian(sigma=1.0)], ids=str
)
def test_one_copy_or_one_unit_of_shift_too_few_is_caught(mechanism):
    world = World(2, (0, 1, 2, 3), Sensitivity(linf=3, l0=2), "public")
    ((cost, times),) = mechanism.charge(world.sensitivity).costs.items()
    found = divergence(mechanism, world)[:-1]
    for wrong in ({cost: times - 1}, {replace(cost, shift=cost.shift - 1): times}):
        assert (
            np.max(found - [delta_of(Charge(wrong), epsilon) for epsilon in EPSILONS[:-1]]) > 1e-3
        )


def fitted_law(mechanism, histogram, pmf, monkeypatch):
    """The law of a fitted release on labels ranked beforehand: everything it shows, for every
    noise.
    """
    radius, law = len(pmf) // 2, Counter()
    for noise in itertools.product(range(-radius, radius + 1), repeat=2):
        monkeypatch.setattr(
            type(mechanism.noise), "draw_noise", lambda self, s, size, bits, n=noise: np.array(n)
        )
        release = mechanism.release(histogram, ranking=["b", "a"])
        shown = f"{release.labels} {release.measured.tolist()} {release.counts.tolist()}"
        law[shown] += pmf[noise[0] + radius] * pmf[noise[1] + radius]
    outcomes = np.array(sorted(law))
    return outcomes, np.array([law[outcome] for outcome in outcomes.tolist()])


class _ByTrueCounts(CountMLE):
    """A fit whose rows come in the order of the true counts: what must be caught."""

    def release(self, histogram, rng=None, *, ranking):
        order = np.argsort(-histogram.counts[histogram.positions(ranking)], kind="stable")
        return super().release(histogram, rng, ranking=[ranking[place] for place in order])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "caught"), [(CountMLE, False), (_ByTrueCounts, True)])
def test_a_fit_costs_what_its_noise_costs(kind, caught, monkeypatch):
    noise, world = KnownLaplace(epsilon=1.5), World(2, (0, 1, 2), Sensitivity(l0=1), "public")
    mechanism, pmf = kind(noise=noise), laplace_law(1.5, 1).pmf(10)
    matrix = laws(world, lambda histogram: fitted_law(mechanism, histogram, pmf, monkeypatch))
    found = hockey_stick(matrix, world.neighbours(), EPSILONS[:-1])
    assert (np.max(found - promised(mechanism, world)[:-1]) > 1e-5) == caught


UNKNOWN = [
    *[
        (UnknownLaplace(d_bar=d, epsilon=4.0, delta=delta), d, "laplace")
        for d, delta in [(1, 0.05), (2, 0.1)]
    ],
    *[
        (UnknownGaussian(d_bar=d, sigma=0.8, delta=delta), d, "gauss")
        for d, delta in [(1, 0.05), (2, 0.1)]
    ],
    *[
        (TruncatedGaussian(d_bar=d, sigma=0.8, delta=delta), d, "truncated")
        for d, delta in [(1, 0.05), (2, 0.1)]
    ],
    (TruncatedGaussian(sigma=0.8, delta=0.05), 0, "whole"),
]
SENSITIVITIES = [Sensitivity(linf=linf, l0=l0) for linf in (1, 2, 3) for l0 in (1, 2, None)]


def world_for(mechanism, sensitivity):
    """Three labels, each with a count near 0 or surely above the threshold."""
    offset, linf = mechanism.threshold_offset(sensitivity), sensitivity.linf
    return World(3, (*range(linf + 2), offset + linf, offset + 2 * linf), sensitivity)


LARGE = {(2, 2), (0, 2), (0, 3)}  # d_bar and linf of worlds whose pairs take seconds
CASES = [
    pytest.param(
        mechanism, sensitivity, marks=[pytest.mark.slow] * ((d, sensitivity.linf) in LARGE)
    )
    for mechanism, d, _ in UNKNOWN
    for sensitivity in SENSITIVITIES
    if (d or sensitivity.l0) and not (d == 2 and sensitivity.linf == 3)
]


@pytest.mark.parametrize(("mechanism", "sensitivity"), CASES, ids=str)
def test_unknown_domain(mechanism, sensitivity):
    assert excess(mechanism, world_for(mechanism, sensitivity)) <= TOLERANCE


@pytest.mark.parametrize("mechanism", [mechanism for mechanism, _, _ in UNKNOWN], ids=str)
def test_the_harness_runs_what_a_release_runs(mechanism, monkeypatch):
    """A release with given noise shows the table that the harness codes for that noise."""
    rng = np.random.default_rng(3)
    sensitivity = Sensitivity(linf=2, l0=2)
    offset = mechanism.threshold_offset(sensitivity)
    for _ in range(30):
        counts = rng.choice([0, 1, 2, offset, offset + 1, offset + 3], size=3)
        histogram = World(3, (), sensitivity).histogram(counts)
        seen = mechanism.slots(histogram)
        noise = rng.integers(-2, 3, size=len(seen.counts) + 1)
        monkeypatch.setattr(type(mechanism), "draw_noise", lambda self, s, size, bits, n=noise: n)
        release = mechanism.release(histogram)
        floor_noise = noise[None, -1:] if seen.noisy_floor else 0
        kept = is_above_threshold(seen.counts, noise[None, :-1], seen.floor, floor_noise, offset)
        code = encode(seen.counts + noise[None, :-1], kept, seen.labels, descending_order)[0]
        shown = 0
        for label, value in zip(release.labels, release.counts.tolist(), strict=True):
            shown = shown * (4 * WIDTH + 1) + 1 + list(LABELS).index(label) * WIDTH + value + SHIFT
        assert code == shown


@pytest.mark.slow
def test_samples_follow_the_exact_law():
    """Releases with real noise against the enumerated law; the law of a threshold one lower is
    rejected.
    """
    sensitivity = Sensitivity(l0=1)
    mechanism = UnknownLaplace(d_bar=2, epsilon=1.5, delta=0.2)
    histogram = World(3, (), sensitivity).histogram([4, 3, 1])
    pmf = noise_table(mechanism, sensitivity)
    codes, law = counting_law(mechanism, histogram, pmf)
    rng, draws = np.random.default_rng(11), 4000

    def code(release):
        shown = 0
        for label, value in zip(release.labels, release.counts.tolist(), strict=True):
            shown = shown * (4 * WIDTH + 1) + 1 + list(LABELS).index(label) * WIDTH + value + SHIFT
        return shown

    observed = [code(mechanism.release(histogram, rng)) for _ in range(draws)]

    def statistic(codes, law):
        """Pearson's, over the outcomes expected at least five times, and one cell for the rest;
        over its degrees.
        """
        common = law * draws >= 5
        seen = np.array([observed.count(c) for c in codes[common]])
        expected = law[common] * draws
        rest, rest_expected = draws - seen.sum(), draws - expected.sum()
        total = ((seen - expected) ** 2 / expected).sum() + (
            rest - rest_expected
        ) ** 2 / rest_expected
        return (total - common.sum()) / math.sqrt(2 * common.sum())

    assert abs(statistic(codes, law)) < 4

    class Lower(UnknownLaplace):
        def threshold_offset(self, s):
            return super().threshold_offset(s) - 1

    lower = Lower(d_bar=2, epsilon=1.5, delta=0.2)
    assert statistic(*counting_law(lower, histogram, pmf)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("l0", [1, 2, None])
@pytest.mark.parametrize(
    "mechanism",
    [
        UnknownLaplace(d_bar=2, epsilon=4.0, delta=0.02),
        UnknownGaussian(d_bar=2, sigma=0.6, delta=0.02),
        TruncatedGaussian(d_bar=2, sigma=0.8, delta=0.02),
    ],
    ids=str,
)
def test_two_slots_can_change_their_labels_at_once(mechanism, l0):
    """Four labels over two slots: both may be displaced, by labels that the user touched, and the
    floor moves too.
    """
    sensitivity = Sensitivity(l0=l0)
    offset = mechanism.threshold_offset(sensitivity)
    assert excess(mechanism, World(4, (1, 2, offset + 1, offset + 2), sensitivity)) <= TOLERANCE
