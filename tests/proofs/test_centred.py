"""Centred counts: the exact hockey-stick divergence of whole answers never exceeds the charge;
mutants do.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import Centred, Charge, Histogram, KnownGaussian, KnownLaplace, Sensitivity
from dptopk.costs import DiscreteGaussianDP, DiscreteLaplaceDP, PureDP
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law

EPSILONS = (0.0, 0.3, 1.0, 2.0, 3.0)
TOLERANCE = 1e-6
HALF = Fraction(1, 2)


def table(law, sensitivity):
    """The probabilities of one noise, up to a mass of about 1e-8."""
    if isinstance(law, KnownGaussian):
        scale = law.spread(sensitivity)
        return gaussian_law(scale).pmf(math.ceil(5.7 * scale))
    return laplace_law(law.epsilon, sensitivity.linf).pmf(
        math.ceil(17 * sensitivity.linf / law.epsilon)
    )


def joint(mechanism, sensitivity, k):
    """The law of the integers (Z_1 + Y, ..., Z_k + Y) on a cube, by summing over Y."""
    own = table(mechanism.noise, sensitivity)
    shared = table(mechanism.common_noise(sensitivity, k), sensitivity)
    size = len(own) + len(shared) - 1
    law = np.zeros((size,) * k)
    for y, mass in enumerate(shared):
        law[(slice(y, y + len(own)),) * k] += mass * product([own] * k)
    return law


def product(marginals):
    law = np.ones(())
    for marginal in marginals:
        law = np.multiply.outer(law, marginal)
    return law


def moves(sensitivity, k):
    """What one user can add to the counts."""
    l0 = sensitivity.touched(k)
    return [
        v
        for v in itertools.product(range(sensitivity.linf + 1), repeat=k)
        if np.count_nonzero(v) <= l0
    ]


def divergence(law, sensitivity, denominator, epsilons=EPSILONS):
    """Largest hockey-stick divergence between the law and itself moved by b·v, over all v, in both
    directions.

    The integers released for counts x are b·x plus the noise, so that neighbours differ by that
    move, whatever x is.
    """
    k, most = law.ndim, denominator * sensitivity.linf
    still = np.pad(law, [(0, most)] * k)
    worst = np.zeros(len(epsilons))
    for v in moves(sensitivity, k):
        moved = np.roll(still, [denominator * step for step in v], axis=range(k))
        for p, q in ((still, moved), (moved, still)):
            excess = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for epsilon in epsilons]
            worst = np.maximum(worst, excess)
    return worst


def promised(charge, epsilons=EPSILONS):
    """δ of the product of the charged pairs, by enumeration."""
    losses, mass = np.zeros(1), np.ones(1)
    for cost, times in charge.costs.items():
        if isinstance(cost, PureDP):
            p = 1 / (1 + math.exp(-cost.epsilon))
            loss, law = np.array([cost.epsilon, -cost.epsilon]), np.array([p, 1 - p])
        elif isinstance(cost, DiscreteLaplaceDP):
            n = np.arange(-math.ceil(30 * cost.scale), math.ceil(30 * cost.scale) + 1)
            loss, law = (
                (np.abs(n - cost.shift) - np.abs(n)) / cost.scale,
                np.exp(-np.abs(n) / cost.scale),
            )
            law /= law.sum()
        else:
            assert isinstance(cost, DiscreteGaussianDP)
            n = np.arange(-math.ceil(6 * cost.scale), math.ceil(6 * cost.scale) + 1)
            loss, law = (
                (2 * cost.shift * n + cost.shift**2) / (2 * cost.scale**2),
                np.exp(-((n / cost.scale) ** 2) / 2),
            )
            law /= law.sum()
        for _ in range(times):
            # Equal losses are merged: the pairs have few different ones.
            losses = np.round(np.add.outer(losses, loss).ravel(), 9)
            mass = np.multiply.outer(mass, law).ravel()
            losses, place = np.unique(losses, return_inverse=True)
            mass = np.bincount(place, weights=mass)
    return np.array(
        [(mass * np.maximum(-np.expm1(np.minimum(e - losses, 0)), 0)).sum() for e in epsilons]
    )


CASES = [
    (mechanism, Sensitivity(linf=linf, l0=l0), k)
    for mechanism in (
        Centred(noise=KnownGaussian(sigma=1.1)),
        Centred(noise=KnownGaussian(sigma=1.1), common=KnownGaussian(sigma=0.7)),
        Centred(noise=KnownLaplace(epsilon=1.2), common=KnownLaplace(epsilon=2.0)),
        Centred(noise=KnownGaussian(sigma=2.0), centre=Fraction(1, 3)),
        Centred(noise=KnownGaussian(sigma=3.0), centre=Fraction(2, 5)),
        Centred(noise=KnownLaplace(epsilon=0.9), centre=Fraction(1, 3)),
    )
    for linf, k, l0 in ((1, 2, None), (1, 2, 1), (2, 2, None), (2, 2, 1), (1, 3, None), (1, 3, 1))
    if k == 2 or isinstance(mechanism.noise, KnownGaussian)
]


@pytest.mark.parametrize(("mechanism", "sensitivity", "k"), CASES, ids=str)
def test_the_divergence_stays_below_the_charge(mechanism, sensitivity, k):
    found = divergence(joint(mechanism, sensitivity, k), sensitivity, mechanism.centre.denominator)
    bound = promised(mechanism.charge(sensitivity, labels=k))
    assert (found - bound).max() <= TOLERANCE
    assert found[1] >= 0.4 * bound[1]  # nor is it of another order


@pytest.mark.parametrize("k", [2, 3])
def test_less_than_independent_noise_of_the_same_size(k):
    sensitivity = Sensitivity()
    mechanism = Centred(noise=KnownGaussian(sigma=1.5))
    centred = divergence(joint(mechanism, sensitivity, k), sensitivity, 2)
    own = table(KnownGaussian(sigma=mechanism.noise_std(sensitivity, labels=k)), sensitivity)
    independent = divergence(product([own] * k), sensitivity, 1)
    assert (independent[1:4] > 1.2 * centred[1:4]).all()


def shortfall(law, charge, sensitivity, denominator=2):
    """By how much a law's divergence exceeds a charge at the worst ε."""
    return (divergence(law, sensitivity, denominator) - promised(charge)).max()


MUTANT = Centred(noise=KnownGaussian(sigma=1.1), common=KnownGaussian(sigma=0.9))


@pytest.mark.parametrize("k", [2, 3])
def test_a_common_noise_drawn_anew_for_each_label_is_caught(k):
    sensitivity = Sensitivity()
    charge = MUTANT.charge(sensitivity, labels=k)
    one = joint(MUTANT, sensitivity, 1)
    assert shortfall(joint(MUTANT, sensitivity, k), charge, sensitivity) <= TOLERANCE
    assert shortfall(product([one] * k), charge, sensitivity) > 1e-3


PARITY = Centred(noise=KnownGaussian(sigma=0.8), common=KnownGaussian(sigma=0.5))


@pytest.mark.parametrize("k", [2, 3])
def test_whole_counts_by_noise_of_one_parity_are_caught(k):
    """Z_i drawn given that Z_i + Y is even, so that counts come out whole: then Y shows in what Z_i
    can be.
    """
    sensitivity = Sensitivity()
    own, shared = (table(law, sensitivity) for law in (PARITY.noise, PARITY.common))
    size, offset = len(own) + len(shared) - 1, len(own) // 2 + len(shared) // 2
    wrong = np.zeros((size,) * k)
    for y, mass in enumerate(shared):
        even = own * ((np.arange(len(own)) + y - offset) % 2 == 0)
        wrong[(slice(y, y + len(own)),) * k] += mass * product([even / even.sum()] * k)
    charge = PARITY.charge(sensitivity, labels=k)
    assert shortfall(joint(PARITY, sensitivity, k), charge, sensitivity) <= TOLERANCE
    assert shortfall(wrong, charge, sensitivity) > 0.01


@pytest.mark.parametrize("k", [2, 3])
def test_whole_noise_of_half_the_scale_is_caught(k):
    """x + Z' + Y' with integers of half the scale: there is no middle between two whole counts to
    hide in.
    """
    sensitivity = Sensitivity()
    wrong = Centred(noise=KnownGaussian(sigma=0.4), common=KnownGaussian(sigma=0.25))
    charge = PARITY.charge(sensitivity, labels=k)
    assert shortfall(joint(wrong, sensitivity, k), charge, sensitivity, denominator=1) > 0.1


@pytest.mark.parametrize(
    ("mechanism", "sensitivity", "missing"),
    [
        (MUTANT, Sensitivity(), DiscreteGaussianDP(0.9, 1)),
        (MUTANT, Sensitivity(), DiscreteGaussianDP(1.1, 1)),
        (
            Centred(noise=KnownLaplace(epsilon=1.0), common=KnownLaplace(epsilon=2.0)),
            Sensitivity(linf=2),
            DiscreteLaplaceDP(1.0, 2),
        ),
        (
            Centred(noise=KnownGaussian(sigma=2.0), centre=HALF),
            Sensitivity(l0=1),
            DiscreteGaussianDP(2.0, 1),
        ),
        (
            Centred(
                noise=KnownGaussian(sigma=2.0),
                common=KnownGaussian(sigma=1.5),
                centre=Fraction(1, 3),
            ),
            Sensitivity(l0=1),
            DiscreteGaussianDP(2.0, 1),
        ),
    ],
    ids=str,
)
def test_each_pair_of_the_charge_is_needed(mechanism, sensitivity, missing):
    charge = mechanism.charge(sensitivity, labels=2)
    fewer = Charge({cost: times - (cost == missing) for cost, times in charge})
    law = joint(mechanism, sensitivity, 2)
    assert shortfall(law, charge, sensitivity, mechanism.centre.denominator) <= TOLERANCE
    assert shortfall(law, fewer, sensitivity, mechanism.centre.denominator) > 1e-3


def test_a_release_shows_the_enumerated_integers(monkeypatch):
    """Given the noise, a release is (b·x + Z + Y)/b with one Y, in the order of its values."""
    rng = np.random.default_rng(4)
    for centre in (HALF, Fraction(2, 5)):
        mechanism = Centred(
            noise=KnownLaplace(epsilon=1.0), common=KnownLaplace(epsilon=2.0), centre=centre
        )
        own, shared, x = rng.integers(-9, 9, 3), rng.integers(-9, 9, 1), rng.integers(0, 5, 3)
        monkeypatch.setattr(
            KnownLaplace,
            "draw_noise",
            lambda self, s, size, bits, z=own, y=shared: z if self.epsilon == 1.0 else y[:size],
        )
        release = mechanism.release(Histogram(["a", "b", "c"], x, domain="public"))
        shown = dict(zip(release.labels, release.counts.tolist(), strict=True))
        integers = centre.denominator * x + own + shared
        assert [round(shown[label] * centre.denominator) for label in "abc"] == integers.tolist()
        assert (np.diff(release.counts) <= 0).all()
