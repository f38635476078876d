"""TruncatedLaplace: exact divergences over all small neighbours; δ is attained, and one step less
is caught.
"""

import math

import mpmath
import numpy as np
import pytest

from dptopk import Histogram, InvalidParameter, Sensitivity
from dptopk._internal.tails import laplace_edge_mass
from dptopk.mechanisms import TruncatedLaplace
from dptopk.mechanisms.laplace import rate
from dptopk.mechanisms.samplers.noise import laplace_law

from .charges import delta_of
from .harness import World, counting_law, hockey_stick, laws
from .test_counting import EPSILONS, TOLERANCE, world_for
from .test_mutants import mutant


def divergence(mechanism, world):
    bound = mechanism.bound(world.sensitivity)
    pmf = laplace_law(mechanism.epsilon, world.sensitivity.linf, bound).pmf(bound)
    return hockey_stick(
        laws(world, lambda h: counting_law(mechanism, h, pmf)), world.neighbours(), EPSILONS
    )


def excess(mechanism, world):
    charge = mechanism.charge(world.sensitivity)
    return np.nanmax(
        divergence(mechanism, world) - [delta_of(charge, epsilon) for epsilon in EPSILONS]
    )


@pytest.mark.slow
@pytest.mark.parametrize("l0", [1, 2, 3])
@pytest.mark.parametrize("linf", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (2.5, 0.01)])
def test_the_divergence_stays_below_the_charge(epsilon, delta, linf, l0):
    mechanism, sensitivity = (
        TruncatedLaplace(epsilon=epsilon, delta=delta),
        Sensitivity(linf=linf, l0=l0),
    )
    labels = 3 if mechanism.bound(sensitivity) < 6 else 2
    world = world_for(mechanism, sensitivity)
    assert excess(mechanism, World(labels, world.levels, sensitivity)) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("linf", [1, 2])
def test_delta_is_attained_and_one_step_less_is_caught(linf):
    sensitivity = Sensitivity(linf=linf, l0=1)
    mechanism = TruncatedLaplace(
        epsilon=1.5, delta=laplace_edge_mass(1.5 / linf, linf, 4) * (1 + 1e-6)
    )
    assert mechanism.bound(sensitivity) == 4
    world = world_for(mechanism, sensitivity)
    found = divergence(mechanism, world)
    assert found[-1] == pytest.approx(mechanism.delta, abs=TOLERANCE)
    narrower = mutant(mechanism, bound=lambda self, s: 3)
    assert divergence(narrower, world)[-1] > 1.2 * mechanism.delta
    lower = mutant(mechanism, threshold_offset=lambda self, s: 3)
    assert divergence(lower, world)[-1] > 1.2 * mechanism.delta


def test_the_edge_is_that_of_the_cut_law():
    for decay, width, bound in ((0.1, 1, 50), (1.0, 1, 14), (0.5, 3, 9), (2.0, 2, 2)):
        law = laplace_law(decay, 1, bound).pmf(bound)
        assert laplace_edge_mass(decay, width, bound) == pytest.approx(law[-width:].sum(), rel=1e-8)
        assert laplace_edge_mass(decay, width, bound) >= law[-width:].sum() * (1 - 1e-12)


@pytest.mark.parametrize("epsilon", [1e-13, 1e-12, 1e-9, 1e-3, 1.0, 60.0])
@pytest.mark.parametrize("delta", [1e-200, 1e-9, 3e-4, 0.4, 0.97, 1 - 1e-12])
def test_delta_holds_whatever_is_rounded(epsilon, delta):
    """At 300 digits: of next to no decay the cut law is nearly flat, and its total the difference
    of near numbers.
    """
    for linf, l0 in ((1, 1), (3, 2), (1, 50)):
        sensitivity = Sensitivity(linf=linf, l0=l0)
        mechanism = TruncatedLaplace(epsilon=epsilon, delta=delta)
        try:
            bound, chance = mechanism.bound(sensitivity), mechanism.at_threshold(sensitivity)
        except InvalidParameter:
            assert (
                epsilon < 1e-12 or delta < 1e-100
            )  # too much noise, or a threshold beyond all counts
            continue
        with mpmath.workdps(300):
            q = mpmath.exp(-mpmath.mpf(rate(epsilon, sensitivity)))
            total = (1 + q - 2 * q ** (bound + 1)) / (1 - q)
            above = q ** (bound - linf + 1) * (1 - q**linf) / (1 - q) / total
            shown = above + mpmath.mpf(chance) * q ** (bound - linf) / total
            assert 1 - (1 - shown) ** l0 <= delta


def test_samples_stay_within_the_bound_and_follow_the_cut_law():
    sensitivity = Sensitivity(l0=1)
    mechanism = TruncatedLaplace(epsilon=0.5, delta=0.02)
    from dptopk.mechanisms.samplers.random import random_bits

    bound, draws = mechanism.bound(sensitivity), 40_000
    noise = mechanism.draw_noise(sensitivity, draws, random_bits(np.random.default_rng(5)))
    assert np.abs(noise).max() == bound
    expected = laplace_law(0.5, 1, bound).pmf(bound) * draws
    wrong = laplace_law(0.6, 1, bound).pmf(bound) * draws
    seen = np.bincount(noise + bound, minlength=2 * bound + 1)
    chi = [((seen - e) ** 2 / e).sum() for e in (expected, wrong)]
    assert chi[0] < 2 * bound + 6 * math.sqrt(4 * bound)
    assert chi[1] > 5 * chi[0]


def test_a_label_appears_with_probability_one_half():
    """The count at which half the labels appear at (1, 1e-6): 14, in place of 17 over a noisy
    floor.
    """
    sensitivity = Sensitivity(l0=1)
    for delta, probability, count in (
        (1e-6, 0.5, 14),
        (4.5e-7, 0.5, 15),
        (1e-6, 0.9, 16),
        (1e-6, 0.99, None),
    ):
        mechanism = TruncatedLaplace(epsilon=1.0, delta=delta)
        bound, found = (
            mechanism.bound(sensitivity),
            mechanism.appears_at(sensitivity, probability=probability),
        )
        law, chance = laplace_law(1.0, 1, bound).pmf(bound), mechanism.at_threshold(sensitivity)
        noise = np.arange(-bound, bound + 1)

        def shown(x, law=law, noise=noise, bound=bound, chance=chance):
            return law[x + noise > bound].sum() + chance * law[x + noise == bound].sum()

        assert count in (None, found)
        assert shown(found) >= probability - 1e-9
        assert shown(found - 1) < probability


@pytest.mark.parametrize(
    ("linf", "l0", "delta"), [(1, 1, 0.03), (1, 1, 0.3), (2, 1, 0.04), (1, 2, 0.05), (3, 1, 0.01)]
)
def test_the_coin_at_the_threshold_spends_all_of_delta_and_no_more(linf, l0, delta):
    """Labels that one user alone has; a coin that is a tenth likelier is caught, and so is a sure
    one.
    """
    sensitivity = Sensitivity(linf=linf, l0=l0)
    mechanism = TruncatedLaplace(epsilon=1.5, delta=delta)
    chance = mechanism.at_threshold(sensitivity)
    assert 0.01 < chance < 0.9
    world = World(l0, tuple(range(2 * linf + 1)), sensitivity)
    assert divergence(mechanism, world)[-1] == pytest.approx(delta, rel=1e-6)
    assert excess(mechanism, world) <= TOLERANCE
    for likelier in (1.1 * chance, 1.0):
        wrong = mutant(mechanism, at_threshold=lambda self, s, likelier=likelier: likelier)
        assert divergence(wrong, world)[-1] > delta * 1.005


def test_releases_toss_the_coin():
    sensitivity, labels = Sensitivity(l0=1), 40_000
    mechanism = TruncatedLaplace(epsilon=1.0, delta=1e-6)
    bound, chance = mechanism.bound(sensitivity), mechanism.at_threshold(sensitivity)
    histogram = Histogram(np.arange(labels), np.full(labels, bound), sensitivity=sensitivity)
    counts = mechanism.release(histogram, np.random.default_rng(4)).counts
    law = laplace_law(1.0, 1, bound).pmf(bound)
    assert counts.min() == bound
    expected = chance * law[bound] * labels
    assert abs((counts == bound).sum() - expected) < 5 * math.sqrt(expected)
