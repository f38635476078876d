"""Labels found under a cap and counted without one: the exact law of both phases on small tables of events.

A table is a tuple of users, a user the set of labels that the user has. The neighbour has one user less. Each user's
labels under the cap are drawn by coins of this user alone; the outcome is the set of labels found and their noisy
counts.
"""

import itertools
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, PartitionSelection, Sensitivity, compose
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.datasets import EventCounts
from dptopk.mechanisms import Centred, GaussianCounts, KnownGaussian, SparseGaussian
from dptopk.mechanisms.thresholds import passing
from dptopk.planning.two_phase import plan_two_phases

EPSILONS = (0.0, 0.5, 1.0, 2.0, 3.0)
TOLERANCE = 1e-6  # what lies beyond six standard deviations


def gaussian(scale):
    """The masses of a discrete Gaussian on -radius..radius."""
    radius = int(6 * scale) + 1
    masses = np.exp(-(np.arange(-radius, radius + 1.0) ** 2) / (2 * scale**2))
    return masses / masses.sum()


def by_own_coins(users, cap):
    """Every way to keep at most ``cap`` labels of each user, with its chance."""
    ways = [list(itertools.combinations(sorted(user), min(cap, len(user)))) for user in users]
    chance = 1 / np.prod([len(each) for each in ways]) if ways else 1.0
    return [(kept, chance) for kept in itertools.product(*ways)]


def by_place(users, cap):
    """A mutant: one fixed shuffle of all rows, so that a user's choice depends on how many users come before."""
    return [(tuple(tuple(sorted(user)[(place + n) % len(user)] for n in range(min(cap, len(user))))
                   for place, user in enumerate(users)), 1.0)]  # fmt: skip


def uncapped(users, cap):
    """A mutant: no cap at all."""
    return [(tuple(tuple(sorted(user)) for user in users), 1.0)]


def counts_of(kept):
    return tuple(sum(label in user for user in kept) for label in "abc")


@cache
def found_of(finding, under, counts, k):
    """The law of the set of labels found on a capped histogram, as the package decides."""
    present = [(label, count) for label, count in zip("abc", counts, strict=True) if count]
    names, values = [label for label, _ in present], np.array([count for _, count in present], dtype=np.int64)
    law = defaultdict(float)
    if isinstance(finding, PartitionSelection):
        chances = finding.chances(under)
        level = np.minimum(values, len(chances.shown) - 1)
        for coins in itertools.product([False, True], repeat=len(names)):
            chance = np.prod(np.where(coins, chances.shown[level], chances.hidden[level]))
            law[tuple(name for name, shown in zip(names, coins, strict=True) if shown)] += chance
        return dict(law)
    masses = gaussian(finding.sigma)
    radius = len(masses) // 2
    for noise in itertools.product(range(-radius, radius + 1), repeat=len(names)):
        noisy = values + np.array(noise, dtype=np.int64)
        passed = passing(values[None], np.array([noise], dtype=np.int64), 0, 0, finding.threshold_offset(under))[0]
        rows = sorted((-noisy[row], names[row]) for row in np.flatnonzero(passed))[:k]
        law[tuple(sorted(name for _, name in rows))] += np.prod(masses[np.array(noise, dtype=int) + radius])
    return dict(law)


@cache
def counted(noise, counts, most=8):
    """The law of 2 counts + Z + Y on a grid that does not depend on the counts, shape (values,) * labels."""
    own, common = gaussian(noise.noise.sigma), gaussian(noise.common.sigma)
    radius, shared = len(own) // 2, len(common) // 2
    values = np.arange(-radius - shared, radius + shared + 2 * most + 1)
    padded = np.zeros(len(values) + 4 * (shared + most) + 1)
    padded[: len(own)] = own  # index of noise z: z + radius; what lies outside is 0
    law = np.zeros((len(values),) * len(counts))
    for y, chance in zip(range(-shared, shared + 1), common, strict=True):
        axes = [padded[np.where(np.abs(values - 2 * c - y) <= radius, values - 2 * c - y + radius, -1)] for c in counts]
        product = np.array(chance)
        for axis in axes:
            product = np.multiply.outer(product, axis)
        law += product
    return law


def law(ways, users, *, finding, under, noise, k):
    """Set of labels found -> its chance times the law of their counts."""
    sets = defaultdict(float)
    for kept, chance in ways:
        for names, found in found_of(finding, under, counts_of(kept), k).items():
            sets[names] += chance * found
    truth = dict(zip("abc", counts_of(users), strict=True))
    return {
        names: chance * (counted(noise(len(names)), tuple(truth[name] for name in names)) if names else np.ones(1))
        for names, chance in sets.items()
    }


def excess(P, Q, epsilon):
    """The hockey-stick divergence of two such laws."""
    none = np.zeros(1)
    return sum(np.maximum(each - np.exp(epsilon) * Q.get(names, none), 0).sum() for names, each in P.items())


def pairs(labels, most):
    """Neighbours: up to ``most`` users with one label or more, and one user more in front of them."""
    sets = [kept for size in range(1, len(labels) + 1) for kept in itertools.combinations(labels, size)]
    rest = [users for size in range(most + 1) for users in itertools.combinations_with_replacement(sets, size)]
    return [(users, (more, *users)) for users in rest for more in sets]


ALL = ("a", "b", "c")
TWO = pairs("ab", 3)
THREE = [((ALL,) * n, (more, *(ALL,) * n)) for n in range(7) for more in (ALL, ALL[:2], ALL[:1])]
COINS, SURE = PartitionSelection(epsilon=2.0, delta=0.2), PartitionSelection(epsilon=1.0, delta=0.05)
OVER = SparseGaussian(sigma=1.2, delta=0.1)
MU = 1.5


def exact(labels):
    return GaussianCounts(mu=MU).noise(Sensitivity(), labels)


def ratio(tables, finding, cap, *, charged=None, k=3, noise=exact, choose=by_own_coins):
    """The largest divergence, in both directions, over what both phases are charged for this cap or another."""
    how = {"finding": finding, "under": Sensitivity(l0=charged or cap), "noise": noise, "k": k}
    sides = [[law(choose(users, cap), users, **how) for users in pair] for pair in tables]
    found = [max(excess(*way, x) for P, Q in sides for way in ((P, Q), (Q, P))) for x in EPSILONS]
    return max(
        (each - TOLERANCE) / promised(finding, charged or cap, x) for each, x in zip(found, EPSILONS, strict=True)
    )


@cache
def promised(finding, cap, epsilon):
    whole = Charge.join(finding.charge(Sensitivity(l0=cap)), GaussianCounts(mu=MU).charge(Sensitivity()))
    return compose(whole, epsilon=epsilon, rtol=0.01, effort="quick", lower=False).delta


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize(("finding", "k"), [(COINS, 3), (OVER, 2), (OVER, 1)], ids=str)
def test_both_phases_cost_at_most_their_product(finding, k, cap):
    assert 0.5 < ratio(TWO, finding, cap, k=k) <= 1


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_three_labels(cap):
    assert 0.5 < ratio(THREE, SURE, cap) <= 1


def test_mutants_are_caught():
    """No cap; a cap of 2 charged as 1; the noise of one label for three; a shuffle that others can alter."""
    assert ratio(TWO, COINS, 1, choose=uncapped) > 1.1
    assert ratio(TWO, COINS, 2, charged=1) > 1.1
    assert ratio(THREE, SURE, 3, noise=lambda _: exact(1)) > 1.1
    assert ratio(TWO, COINS, 1, choose=by_place) > 1.5


def naive(mu, labels):
    """A mutant: σ² = labels/μ² and so on, as if discrete noise were as good as continuous noise."""
    sigma = (labels + labels**0.5) ** 0.5 / mu
    return Centred(noise=KnownGaussian(sigma=sigma), common=KnownGaussian(sigma=sigma / labels**0.25))


def against_the_gaussian(noise, mu):
    """The largest divergence of the counts over that of the Gaussian pair, over all users and numbers of labels."""
    worst = 0.0
    for labels in (1, 2, 3):
        before = counted(noise(labels), (0,) * labels)
        for move in itertools.product((0, 1), repeat=labels):
            after = counted(noise(labels), move)
            for x in np.linspace(0, 4, 9):
                most = max(np.maximum(P - np.exp(x) * Q, 0).sum() for P, Q in ((before, after), (after, before)))
                worst = max(worst, most / float(gaussian_delta(mu, epsilon=x)))
    return worst


@pytest.mark.parametrize("mu", [1.5, 3.0])
def test_the_counts_alone_are_below_one_gaussian_for_every_number_of_labels(mu):
    assert 0.9 < against_the_gaussian(lambda d: GaussianCounts(mu=mu).noise(Sensitivity(), d), mu) <= 1
    assert against_the_gaussian(lambda d: naive(mu, d), mu) > 1.1  # discrete noise of these scales is not μ-Gaussian


def test_the_squares_are_certified_and_hardly_below():
    for mu, labels, linf in ((0.2, 100, 1), (0.2, 7, 3), (2.0, 1, 1), (1e-4, 10**6, 5)):
        noise = GaussianCounts(mu=mu).noise(Sensitivity(linf=linf), labels)
        laws = ((labels, noise.noise), (1, noise.common))
        squares = sum(n * dominating_mu(each.sigma * linf, linf) ** 2 for n, each in laws)
        assert mu**2 * (1 - 0.05) <= squares <= mu**2


def test_the_plan_runs_the_law_that_was_enumerated():
    """Frequencies of sets found by the plan on one table, against the enumeration of this file."""
    users = (ALL, ("a", "b"), ("a",), ("b", "c"))
    truth, under = Histogram(list(ALL), counts_of(users)), Sensitivity(l0=2)
    kept = (("a", "b"), ("a", "b"), ("a",), ("b", "c"))
    both = EventCounts.beside(truth, Histogram(list(ALL), counts_of(kept), sensitivity=under))
    plan = plan_two_phases(3, Budget(3.0, 0.3), labels_per_user=2, find="coins")
    rng, seen, draws = np.random.default_rng(5), Counter(), 400
    for _ in range(draws):
        seen[tuple(sorted(plan.release(both, rng).labels))] += 1
    expected = found_of(plan.mechanisms[0], under, counts_of(kept), 3)
    statistic = sum((seen[names] - draws * chance) ** 2 / (draws * chance) for names, chance in expected.items())
    assert statistic < 30  # 7 degrees of freedom: 1e-4
