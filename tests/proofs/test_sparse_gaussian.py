"""SparseGaussian: exact divergences over all small neighbours, its charge attained, and mutants
that are caught.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from dptopk import Charge, Sensitivity, compose
from dptopk._internal import tails
from dptopk.accounting.gaussian.sparse import sparse_gaussian_delta, sparse_gaussian_statements
from dptopk.costs import DiscreteGaussianDP, SparseGaussianDP
from dptopk.errors import InvalidParameter
from dptopk.mechanisms import SparseGaussian

from .charges import delta_of
from .harness import World
from .test_counting import EPSILONS, TOLERANCE, divergence, excess
from .test_mutants import exactly, mutant


def levels_for(mechanism, sensitivity):
    """Counts of a label that is alone, of one that may pass or not, and of one that always
    passes.
    """
    linf, threshold = sensitivity.linf, mechanism.threshold_offset(sensitivity)
    far = threshold + math.ceil(6 * mechanism.sigma * linf)
    return (0, *range(1, linf + 1), threshold, threshold + linf, far, far + linf)


@pytest.mark.parametrize(("linf", "l0"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)])
@pytest.mark.parametrize(("sigma", "delta"), [(0.8, 0.05), (1.1, 0.2)])
def test_the_divergence_stays_below_the_charge_and_attains_it(sigma, delta, linf, l0):
    mechanism, sensitivity = SparseGaussian(sigma=sigma, delta=delta), Sensitivity(linf=linf, l0=l0)
    world = World(2, levels_for(mechanism, sensitivity), sensitivity)
    found = divergence(mechanism, world)
    promised = np.array([delta_of(mechanism.charge(sensitivity), epsilon) for epsilon in EPSILONS])
    assert (found <= promised + TOLERANCE).all()
    assert found == pytest.approx(
        promised, abs=2 * TOLERANCE
    )  # a label alone, or one that always passes, or both


@pytest.mark.slow
def test_three_labels():
    mechanism, sensitivity = SparseGaussian(sigma=0.7, delta=0.1), Sensitivity(l0=3)
    assert excess(mechanism, World(3, (0, 1, 2, 6, 7), sensitivity)) <= TOLERANCE


def test_mutants_are_caught():
    """A threshold one too low, a smaller shift, one label less; and the threshold's δ alone, or the
    noise's alone.
    """
    sensitivity = Sensitivity(linf=2, l0=2)
    delta = exactly(tails.union(tails.gaussian_tail(1.8, 4), 2))
    mechanism = SparseGaussian(sigma=0.9, delta=delta)
    assert mechanism.threshold_offset(sensitivity) == 6
    world = World(2, levels_for(mechanism, sensitivity), sensitivity)
    (cost,) = mechanism.charge(sensitivity).costs
    wrong = [
        replace(cost, threshold=cost.threshold + 1),
        replace(cost, labels=1),
        replace(cost, shift=1),
    ]
    found = divergence(mechanism, world)
    for cheaper in wrong:
        assert max(found - [delta_of(Charge({cheaper: 1}), epsilon) for epsilon in EPSILONS]) > 1e-3
    noise_alone = [
        delta_of(Charge({DiscreteGaussianDP(1.8, 2): 2}), epsilon) for epsilon in EPSILONS[:-1]
    ]
    assert max(found[:-1] - noise_alone) > 1e-3
    assert found[0] > 2 * delta  # and the threshold's δ alone
    lower = mutant(
        mechanism,
        threshold_offset=lambda self, s: 5,
        charge=lambda self, s, labels=None: Charge({cost: 1}),
    )
    assert excess(lower, world) > 1e-3


@pytest.mark.parametrize(
    "cost", [SparseGaussianDP(1.2, 1, 3, 3), SparseGaussianDP(4.0, 2, 11, 2)], ids=str
)
def test_the_curve_is_that_of_brute_force(cost):
    x = np.linspace(0, 6, 40)
    found = sparse_gaussian_delta(x, cost.scale, cost.shift, cost.threshold, cost.labels)
    exact = np.array([delta_of(Charge({cost: 1}), each) for each in x])
    assert (found >= exact * (1 - 1e-9)).all()
    assert found == pytest.approx(exact, rel=3e-6)


def test_below_the_loss_of_the_labels_that_are_hidden_the_curve_is_exact_too():
    """Counts so likely to pass that x + m ln h < 0: the product of pairs, listed outcome by
    outcome.
    """
    scale, shift, threshold, labels = 1.3, 1, 2, 3
    noise = np.arange(-40.0, 41.0)
    masses = np.exp(-(noise**2) / (2 * scale**2))
    masses /= masses.sum()
    hidden = masses[noise <= threshold - shift].sum()
    for x in (0.0, 0.1, 0.3, 0.6):
        worst = 0.0
        for j in range(labels + 1):
            kept = hidden ** (labels - j)
            p = q = np.ones(1)
            for _ in range(j):
                p, q = (
                    np.multiply.outer(a, b).ravel()
                    for a, b in ((p, masses), (q, np.roll(masses, shift)))
                )
            # With the user: what is hidden, and what is shown and cannot be without.
            worst = max(worst, 1 - kept + np.maximum(kept * p - math.exp(x) * q, 0).sum(),
                        np.maximum(p - math.exp(x) * kept * q, 0).sum())  # fmt: skip
        found = float(sparse_gaussian_delta(np.array([x]), scale, shift, threshold, labels)[0])
        assert worst * (1 - 1e-9) <= found <= worst * (1 + 1e-6)


@pytest.mark.slow
def test_ranges_of_splits_are_above_the_splits_and_hardly():
    cost = (6.0, 1, 33, 30)
    x = np.array([0.5, 2.0, 4.0, 6.0])
    ranges = sparse_gaussian_delta(x, *cost)
    exact = np.array([delta_of(Charge({SparseGaussianDP(*cost): 1}), each) for each in x])
    assert (ranges >= exact * (1 - 1e-9)).all()
    assert (ranges <= exact * 1.05).all()


def test_the_statements_are_the_curve_and_their_chords_hardly_more():
    cost = SparseGaussianDP(9.45, 1, 49, 5)
    statements = np.array(sparse_gaussian_statements(9.45, 1, 49, 5))
    assert statements[:, 1] == pytest.approx(
        sparse_gaussian_delta(statements[:, 0], 9.45, 1, 49, 5)
    )
    for epsilon in (0.1, 1.0):
        exact = float(sparse_gaussian_delta(np.array([epsilon]), 9.45, 1, 49, 5)[0])
        composed = compose(Charge({cost: 1}), epsilon=epsilon, rtol=1e-3).delta
        assert exact <= composed <= exact * 1.003


def test_one_charge_costs_less_than_the_two_deltas_added():
    """At (1, 1e-6) and five labels a user: noise of 9.45 and a threshold of 49; with added δ's 49
    is out of reach.
    """
    mechanism, sensitivity = SparseGaussian(sigma=9.4475, delta=1e-6), Sensitivity(l0=5)
    assert mechanism.threshold_offset(sensitivity) == 49
    assert compose(mechanism.charge(sensitivity), delta=1e-6).epsilon <= 1.0005
    atom = tails.union(tails.gaussian_tail(9.4475, 48), 5)
    added = Charge({DiscreteGaussianDP(9.4475, 1): 5}, delta=atom)
    assert compose(added, delta=1e-6).epsilon > 1.06


def test_next_to_no_noise_is_a_charge_too():
    """Where δ rounds up to 1 at small ε the statement says nothing and is left out."""
    charge = SparseGaussian(sigma=0.108, delta=1e-7).charge(Sensitivity(l0=1))
    assert compose(charge, delta=1e-6).epsilon > 40


def test_a_threshold_that_shows_every_label_is_named():
    """Of 60 labels some one passes a threshold of 1 almost surely: every δ rounds up to 1."""
    cost = SparseGaussianDP(5.0, 1, 1, 60)
    for ask in ({"delta": 1e-6}, {"epsilon": 1.0}):
        with pytest.raises(
            InvalidParameter, match=r"SGauss\(5.0, 1, 1, 60\) promises nothing: .*higher threshold"
        ):
            compose(Charge({cost: 1}), **ask)
    assert compose(Charge({SparseGaussianDP(5.0, 1, 30, 60): 1}), delta=1e-3).epsilon < 10
