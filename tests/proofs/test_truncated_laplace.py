"""TruncatedLaplace: exact divergences over all small neighbours; δ is attained, and one step less is caught."""

import math

import numpy as np
import pytest

from dptopk import Sensitivity
from dptopk.mechanisms import TruncatedLaplace
from dptopk.mechanisms.noise import laplace_law
from dptopk.mechanisms.truncated_laplace import _edge_mass

from .charges import delta_of
from .harness import World, counting_law, hockey_stick, laws
from .test_counting import EPSILONS, TOLERANCE, world_for
from .test_mutants import mutant


def divergence(mechanism, world):
    bound = mechanism.bound(world.sensitivity)
    pmf = laplace_law(mechanism.epsilon, world.sensitivity.linf, bound).pmf(bound)
    return hockey_stick(laws(world, lambda h: counting_law(mechanism, h, pmf)), world.neighbours(), EPSILONS)


def excess(mechanism, world):
    charge = mechanism.charge(world.sensitivity)
    return np.nanmax(divergence(mechanism, world) - [delta_of(charge, epsilon) for epsilon in EPSILONS])


@pytest.mark.parametrize("l0", [1, 2, 3])
@pytest.mark.parametrize("linf", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.05), (2.5, 0.01)])
def test_the_divergence_stays_below_the_charge(epsilon, delta, linf, l0):
    mechanism, sensitivity = TruncatedLaplace(epsilon=epsilon, delta=delta), Sensitivity(linf=linf, l0=l0)
    labels = 3 if mechanism.bound(sensitivity) < 6 else 2
    world = world_for(mechanism, sensitivity)
    assert excess(mechanism, World(labels, world.levels, sensitivity)) <= TOLERANCE


@pytest.mark.parametrize("linf", [1, 2])
def test_delta_is_attained_and_one_step_less_is_caught(linf):
    sensitivity = Sensitivity(linf=linf, l0=1)
    mechanism = TruncatedLaplace(epsilon=1.5, delta=_edge_mass(1.5 / linf, linf, 4) * (1 + 1e-6))
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
        assert _edge_mass(decay, width, bound) == pytest.approx(law[-width:].sum(), rel=1e-8)
        assert _edge_mass(decay, width, bound) >= law[-width:].sum() * (1 - 1e-12)


def test_samples_stay_within_the_bound_and_follow_the_cut_law():
    sensitivity = Sensitivity(l0=1)
    mechanism = TruncatedLaplace(epsilon=0.5, delta=0.02)
    from dptopk.mechanisms.random import random_bits

    bound, draws = mechanism.bound(sensitivity), 40_000
    noise = mechanism.noise(sensitivity, draws, random_bits(np.random.default_rng(5)))
    assert np.abs(noise).max() == bound
    expected = laplace_law(0.5, 1, bound).pmf(bound) * draws
    wrong = laplace_law(0.6, 1, bound).pmf(bound) * draws
    seen = np.bincount(noise + bound, minlength=2 * bound + 1)
    chi = [((seen - e) ** 2 / e).sum() for e in (expected, wrong)]
    assert chi[0] < 2 * bound + 6 * math.sqrt(4 * bound)
    assert chi[1] > 5 * chi[0]


def test_a_label_appears_with_probability_one_half():
    """The count at which half the labels appear at (1, 1e-6): 15, in place of 17 over a noisy floor."""
    sensitivity = Sensitivity(l0=1)
    mechanism = TruncatedLaplace(epsilon=1.0, delta=1e-6)
    bound, half = mechanism.bound(sensitivity), mechanism.appears_at(sensitivity, probability=0.5)
    law = laplace_law(1.0, 1, bound).pmf(bound)
    noise = np.arange(-bound, bound + 1)
    assert half == 15
    assert law[half + noise > bound].sum() >= 0.5 > law[half - 1 + noise > bound].sum()
