"""Labels found under a cap and counted without one: the exact law of both phases on small tables of
events.

A table is a tuple of users, a user the set of labels that the user has. The neighbour has one user
less. Each user's labels under the cap are drawn by coins of this user alone; the outcome is the set
of labels found and their noisy counts.
"""

import itertools
import math
from collections import Counter, defaultdict
from functools import cache

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, PartitionSelection, Sensitivity, compose
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.datasets import EventCounts
from dptopk.mechanisms import (
    Box,
    Centred,
    GaussianCounts,
    KnownGaussian,
    SparseGaussian,
    WeightedGaussian,
)
from dptopk.mechanisms.thresholds import is_above_threshold
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
    """A mutant: one fixed shuffle of all rows, so that a user's choice depends on how many users
    come before.
    """
    return [(tuple(tuple(sorted(user)[(place + n) % len(user)] for n in range(min(cap, len(user))))
                   for place, user in enumerate(users)), 1.0)]  # fmt: skip


def uncapped(users, cap):
    """A mutant: no cap at all."""
    return [(tuple(tuple(sorted(user)) for user in users), 1.0)]


def counts_of(kept, l2=None):
    """How many users have each label; with l2 the sums of their weights."""
    return tuple(
        sum(math.isqrt(l2**2 // len(user)) if l2 else 1 for user in kept if label in user)
        for label in "abc"
    )


@cache
def found_of(finding, under, counts, k):
    """The law of the set of labels found on a capped histogram, as the package decides."""
    present = [(label, count) for label, count in zip("abc", counts, strict=True) if count]
    names, values = (
        [label for label, _ in present],
        np.array([count for _, count in present], dtype=np.int64),
    )
    law = defaultdict(float)
    if isinstance(finding, PartitionSelection):
        chances = finding.chances(under)
        level = np.minimum(values, len(chances.shown) - 1)
        for coins in itertools.product([False, True], repeat=len(names)):
            chance = np.prod(np.where(coins, chances.shown[level], chances.hidden[level]))
            law[tuple(name for name, shown in zip(names, coins, strict=True) if shown)] += chance
        return dict(law)
    weighted = isinstance(finding, WeightedGaussian)
    masses = gaussian(finding.scale(under) if weighted else finding.sigma)
    radius = len(masses) // 2
    for noise in itertools.product(range(-radius, radius + 1), repeat=len(names)):
        noisy = values + np.array(noise, dtype=np.int64)
        passed = is_above_threshold(
            values[None], np.array([noise], dtype=np.int64), 0, 0, finding.threshold_offset(under)
        )[0]
        rows = sorted((-noisy[row], names[row]) for row in np.flatnonzero(passed))[:k]
        law[tuple(sorted(name for _, name in rows))] += np.prod(
            masses[np.array(noise, dtype=int) + radius]
        )
    return dict(law)


@cache
def counted(noise, counts, most=8):
    """The law of 2 counts + Z + Y on a grid that does not depend on the counts, shape (values,) *
    labels.
    """
    if isinstance(noise, Box):
        return boxed(noise.epsilon, counts, most)
    own, common = gaussian(noise.noise.sigma), gaussian(noise.common.sigma)
    radius, shared = len(own) // 2, len(common) // 2
    values = np.arange(-radius - shared, radius + shared + 2 * most + 1)
    padded = np.zeros(len(values) + 4 * (shared + most) + 1)
    padded[: len(own)] = own  # index of noise z: z + radius; what lies outside is 0
    law = np.zeros((len(values),) * len(counts))
    for y, chance in zip(range(-shared, shared + 1), common, strict=True):
        axes = [
            padded[np.where(np.abs(values - 2 * c - y) <= radius, values - 2 * c - y + radius, -1)]
            for c in counts
        ]
        product = np.array(chance)
        for axis in axes:
            product = np.multiply.outer(product, axis)
        law += product
    return law


def boxed(epsilon, counts, most):
    """The law of counts with box noise: in proportion to e^(-epsilon · the length of the hull of
    the noise and 0).
    """
    radius = math.ceil(18 / epsilon)
    values = np.meshgrid(*[np.arange(-radius, radius + most + 1)] * len(counts), indexing="ij")
    noise = [axis - count for axis, count in zip(values, counts, strict=True)]
    hull = np.maximum(np.maximum.reduce(noise), 0) - np.minimum(np.minimum.reduce(noise), 0)
    alone = np.meshgrid(*[np.arange(-3 * radius, 3 * radius + 1)] * len(counts), indexing="ij")
    lengths = np.maximum(np.maximum.reduce(alone), 0) - np.minimum(np.minimum.reduce(alone), 0)
    return np.exp(-epsilon * hull) / np.exp(-epsilon * lengths).sum()


def law(ways, users, *, finding, under, noise, k, seen=lambda counts: counts):
    """Set of labels found -> its chance times the law of their counts; ``seen``: which counts are
    looked at.
    """
    sets = defaultdict(float)
    for kept, chance in ways:
        for names, found in found_of(finding, under, seen(counts_of(kept, under.l2)), k).items():
            sets[names] += chance * found
    truth = dict(zip("abc", counts_of(users), strict=True))
    return {
        names: chance
        * (
            counted(noise(len(names)), tuple(truth[name] for name in names))
            if names
            else np.ones(1)
        )
        for names, chance in sets.items()
    }


def excess(P, Q, epsilon):
    """The hockey-stick divergence of two such laws."""
    none = np.zeros(1)
    return sum(
        np.maximum(each - np.exp(epsilon) * Q.get(names, none), 0).sum()
        for names, each in P.items()
    )


def pairs(labels, most):
    """Neighbours: up to ``most`` users with one label or more, and one user more in front of
    them.
    """
    sets = [
        kept for size in range(1, len(labels) + 1) for kept in itertools.combinations(labels, size)
    ]
    rest = [
        users
        for size in range(most + 1)
        for users in itertools.combinations_with_replacement(sets, size)
    ]
    return [(users, (more, *users)) for users in rest for more in sets]


ALL = ("a", "b", "c")
TWO = pairs("ab", 3)
THREE = [((ALL,) * n, (more, *(ALL,) * n)) for n in range(7) for more in (ALL, ALL[:2], ALL[:1])]
COINS, SURE = (
    PartitionSelection(epsilon=2.0, delta=0.2),
    PartitionSelection(epsilon=1.0, delta=0.05),
)
OVER = SparseGaussian(sigma=1.2, delta=0.1)
MU = 1.5


def exact(labels):
    return GaussianCounts(mu=MU).noise(Sensitivity(), labels)


def ratio(
    tables,
    finding,
    cap,
    *,
    charged=None,
    k=3,
    noise=exact,
    choose=by_own_coins,
    l2=None,
    counting=None,
    **seen,
):
    """The largest divergence, in both directions, over what both phases are charged for this cap or
    another.
    """
    under, counting = Sensitivity(l2 or 1, charged or cap, l2=l2), counting or GaussianCounts(mu=MU)
    how = {"finding": finding, "under": under, "noise": noise, "k": k} | seen
    sides = [[law(choose(users, cap), users, **how) for users in pair] for pair in tables]
    found = [max(excess(*way, x) for P, Q in sides for way in ((P, Q), (Q, P))) for x in EPSILONS]
    return max(
        (each - TOLERANCE) / promised(finding, under, counting, x)
        for each, x in zip(found, EPSILONS, strict=True)
    )


@cache
def promised(finding, under, counting, epsilon):
    whole = Charge.join(finding.charge(under), counting.charge(Sensitivity()))
    return compose(whole, epsilon=epsilon, rtol=0.01, effort="quick", lower=False).delta


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize(("finding", "k"), [(COINS, 3), (OVER, 2), (OVER, 1)], ids=str)
def test_both_phases_cost_at_most_their_product(finding, k, cap):
    assert 0.5 < ratio(TWO, finding, cap, k=k) <= 1


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_three_labels(cap):
    assert 0.5 < ratio(THREE, SURE, cap) <= 1


def test_mutants_are_caught():
    """No cap; a cap of 2 charged as 1; the noise of one label for three; a shuffle that others can
    alter.
    """
    assert ratio(TWO, COINS, 1, choose=uncapped) > 1.1
    assert ratio(TWO, COINS, 2, charged=1) > 1.1
    assert ratio(THREE, SURE, 3, noise=lambda _: exact(1)) > 1.1
    assert ratio(TWO, COINS, 1, choose=by_place) > 1.5


WEIGHTED = WeightedGaussian(sigma=0.6, delta=0.1)


@pytest.mark.parametrize(("cap", "k"), [(1, 2), (2, 2), (2, 1)])
def test_weights(cap, k):
    """A user's only label weighs 4, each of two labels 2."""
    assert 0.4 < ratio(TWO, WEIGHTED, cap, k=k, l2=4) <= 1


def test_box_noise_on_what_was_found():
    """Its cost for every number of labels is epsilon; the pair of one label, charged for two, would
    be too little.
    """
    box = Box(epsilon=1.2)
    tables = pairs("ab", 2)
    assert 0.5 < ratio(tables, COINS, 2, counting=box, noise=lambda _: box) <= 1
    assert 0.4 < ratio(tables, WEIGHTED, 2, counting=box, noise=lambda _: box, l2=4) <= 1
    assert ratio(tables, COINS, 2, counting=Box(epsilon=0.8), noise=lambda _: box) > 1.1


@pytest.mark.parametrize(
    ("finding", "k", "l2"), [(COINS, 3, None), (OVER, 1, None), (WEIGHTED, 2, 4)], ids=str
)
def test_a_least_number_of_users_is_taken_off_every_count(finding, k, l2):
    least = l2 or 1  # what one user adds, of min_users = 2
    assert (
        ratio(
            TWO,
            finding,
            2,
            k=k,
            l2=l2,
            seen=lambda counts: tuple(max(c - least, 0) for c in counts),
        )
        <= 1
    )


def test_counts_that_are_only_dropped_below_it_would_be_a_jump():
    tables = pairs("ab", 4)
    for least in (3, 4):
        cut = ratio(
            tables,
            COINS,
            1,
            seen=lambda counts, least=least: tuple(c if c >= least else 0 for c in counts),
        )
        assert cut > 1.1


def naive(mu, labels):
    """A mutant: σ² = labels/μ² and so on, as if discrete noise were as good as continuous noise."""
    sigma = (labels + labels**0.5) ** 0.5 / mu
    return Centred(
        noise=KnownGaussian(sigma=sigma), common=KnownGaussian(sigma=sigma / labels**0.25)
    )


def against_the_gaussian(noise, mu):
    """The largest divergence of the counts over that of the Gaussian pair, over all users and
    numbers of labels.
    """
    worst = 0.0
    for labels in (1, 2, 3):
        before = counted(noise(labels), (0,) * labels)
        for move in itertools.product((0, 1), repeat=labels):
            after = counted(noise(labels), move)
            for x in np.linspace(0, 4, 9):
                most = max(
                    np.maximum(P - np.exp(x) * Q, 0).sum()
                    for P, Q in ((before, after), (after, before))
                )
                worst = max(worst, most / float(gaussian_delta(mu, epsilon=x)))
    return worst


@pytest.mark.parametrize("mu", [1.5, 3.0])
def test_the_counts_alone_are_below_one_gaussian_for_every_number_of_labels(mu):
    assert (
        0.9 < against_the_gaussian(lambda d: GaussianCounts(mu=mu).noise(Sensitivity(), d), mu) <= 1
    )
    assert (
        against_the_gaussian(lambda d: naive(mu, d), mu) > 1.1
    )  # discrete noise of these scales is not μ-Gaussian


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
    both = EventCounts.of_histograms(
        truth, Histogram(list(ALL), counts_of(kept), sensitivity=under)
    )
    plan = plan_two_phases(3, Budget(3.0, 0.3), labels_per_user=2, find="coins")
    rng, seen, draws = np.random.default_rng(5), Counter(), 400
    for _ in range(draws):
        seen[tuple(sorted(plan.release(both, rng).labels))] += 1
    expected = found_of(plan.mechanisms[0], under, counts_of(kept), 3)
    statistic = sum(
        (seen[names] - draws * chance) ** 2 / (draws * chance) for names, chance in expected.items()
    )
    assert statistic < 30  # 7 degrees of freedom: 1e-4
