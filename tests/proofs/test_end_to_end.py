"""From mechanism to reported guarantee: the exact divergence of whole answers against what
``compose`` says of them.
"""

import itertools

import numpy as np
import pytest

from dptopk import (
    Charge,
    KnownGaussian,
    KnownGumbel,
    KnownLaplace,
    PartitionSelection,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownLaplace,
    compose,
)

from .harness import World, hockey_stick, laws
from .test_counting import divergence, noise_table, world_for
from .test_gumbel import peeling

EPSILONS = (0.0, 0.4, 1.0, 2.5, 4.0)
TOLERANCE = 1e-6


def reported(charge, epsilon):
    return compose(charge, epsilon=epsilon).delta


@pytest.mark.parametrize(
    "mechanism",
    [KnownLaplace(epsilon=1.0), KnownGaussian(sigma=1.0)],
    ids=lambda m: type(m).__name__,
)
def test_known_counts_cost_what_is_reported_and_no_less(mechanism):
    sensitivity = Sensitivity(l0=2)
    found = divergence(mechanism, World(2, (0, 1, 2), sensitivity, "public"), epsilons=EPSILONS)
    for epsilon, exact in zip(EPSILONS, found, strict=True):
        delta = reported(mechanism.charge(sensitivity), epsilon)
        assert exact <= delta + TOLERANCE
        assert delta <= exact * 1.02 + TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        UnknownLaplace(d_bar=1, epsilon=3.0, delta=0.02),
        UnknownGaussian(d_bar=1, sigma=0.8, delta=0.02),
        TruncatedGaussian(d_bar=1, sigma=0.8, delta=0.02),
        TruncatedGaussian(sigma=0.8, delta=0.02),
    ],
    ids=str,
)
@pytest.mark.parametrize("linf", [1, 2])
def test_unknown_domains_never_cost_more_than_reported(mechanism, linf):
    sensitivity = Sensitivity(linf=linf, l0=2)
    found = divergence(mechanism, world_for(mechanism, sensitivity), epsilons=EPSILONS)
    for epsilon, exact in zip(EPSILONS, found, strict=True):
        assert exact <= reported(mechanism.charge(sensitivity), epsilon) + TOLERANCE


def select_then_count(gumbel, counting, histogram):
    """The exact law of k selections and then the noisy counts of what was selected, all of it the
    outcome.
    """
    linf = histogram.sensitivity.linf
    pmf = noise_table(counting, histogram.sensitivity)
    radius = len(pmf) // 2
    codes, mass = [], []
    for sequence, probability in peeling(
        np.exp(gumbel.epsilon / linf * histogram.counts), gumbel.k, None
    ):
        noise = np.array(list(itertools.product(range(-radius, radius + 1), repeat=gumbel.k)))
        code = np.zeros(len(noise), dtype=np.int64)
        for place, label in enumerate(sequence):
            code = (code * 4 + label) * 512 + histogram.counts[label] + noise[:, place] + 256
        codes.append(code)
        mass.append(probability * np.prod(pmf[noise + radius], axis=1))
    codes, mass = np.concatenate(codes), np.concatenate(mass)
    order = np.argsort(codes)
    return codes[order], mass[order]


@pytest.mark.parametrize("l0", [1, 2, None])
@pytest.mark.parametrize(
    ("k", "counting"), [(1, KnownGaussian(sigma=1.0)), (2, KnownLaplace(epsilon=2.0))], ids=str
)
def test_a_private_top_k_with_counts_costs_at_most_what_is_reported(k, counting, l0):
    sensitivity = Sensitivity(l0=l0)
    gumbel = KnownGumbel(k=k, epsilon=0.8)
    world = World(3, (0, 1, 2), sensitivity, "public")
    matrix = laws(world, lambda histogram: select_then_count(gumbel, counting, histogram))
    charge = Charge.join(gumbel.charge(sensitivity), counting.charge(sensitivity, labels=k))
    found = hockey_stick(matrix, world.neighbours(), EPSILONS)
    for epsilon, exact in zip(EPSILONS, found, strict=True):
        delta = reported(charge, epsilon)
        assert exact <= delta + TOLERANCE
        assert delta <= 3 * exact + 0.02  # no slack of another order either


def coins_then_counts(coins, counting, histogram):
    """The exact law of the labels that coins show and then their noisy counts, all of it the
    outcome.
    """
    pmf = noise_table(counting, histogram.sensitivity)
    values = np.arange(len(pmf)) - len(pmf) // 2 + 256
    codes, law = np.zeros(1, dtype=np.int64), np.ones(1)
    chances = coins.chances(histogram.sensitivity)
    level = np.minimum(-(-histogram.counts // histogram.sensitivity.linf), len(chances.shown) - 1)
    for count, shown, hidden in zip(
        histogram.counts, chances.shown[level], chances.hidden[level], strict=True
    ):
        codes = np.add.outer(codes * 512, np.concatenate([[0], count + values])).ravel()
        law = np.outer(law, np.concatenate([[hidden], shown * pmf])).ravel()
    kept = law > 0
    return codes[kept], law[kept]


@pytest.mark.slow
@pytest.mark.parametrize(("linf", "l0"), [(1, 2), (2, 2), (1, 1)])
def test_labels_by_coins_and_then_counts_cost_at_most_what_is_reported(linf, l0):
    sensitivity = Sensitivity(linf=linf, l0=l0)
    coins, counting = PartitionSelection(epsilon=2.0, delta=0.05), KnownGaussian(sigma=0.9)
    most = linf * (len(coins.chances(sensitivity).shown) - 1)
    world = World(2, tuple(range(most + linf + 1)), sensitivity)
    matrix = laws(world, lambda histogram: coins_then_counts(coins, counting, histogram))
    found = hockey_stick(matrix, world.neighbours(), EPSILONS)
    parts = [coins.charge(sensitivity), counting.charge(sensitivity)]
    for epsilon, exact in zip(EPSILONS, found, strict=True):
        delta = reported(Charge.join(*parts), epsilon)
        assert exact <= delta + TOLERANCE
        assert delta <= 2 * exact + 0.02
    for alone in parts:  # both are needed
        assert (
            max(
                exact - reported(alone, epsilon)
                for epsilon, exact in zip(EPSILONS, found, strict=True)
            )
            > 1e-3
        )
