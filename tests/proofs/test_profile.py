"""A look at users and ranks, and the way of answering chosen by it: the exact law on small tables of events.

Users and tables are those of test_two_phases. The outcome is what both looks show, and the answer in the way that is
chosen by it. Of what is seen only the ratio of its probabilities in the two tables matters beside the choice: outcomes
of the looks are put together by both.
"""

import itertools
import math
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from dptopk import Budget, Sensitivity, compose
from dptopk.mechanisms import Box, GaussianCounts, KnownLaplace, SparseGaussian, WeightedGaussian
from dptopk.planning import TwoPhasePlan, profile
from dptopk.planning.plan import Phase

from .test_two_phases import boxed, by_own_coins, counts_of, gaussian, law, pairs

TABLES = pairs("ab", 2)
UNDER = Sensitivity(4, 2, l2=4)
USERS, RANKS = 2.0, 0.4


@cache
def plan(users=USERS):
    looks = KnownLaplace(epsilon=users), Box(epsilon=RANKS)
    find, count = WeightedGaussian(sigma=0.8, delta=0.02), GaussianCounts(mu=1.0)
    return TwoPhasePlan(
        k=2, budget=Budget(9.0, 0.2), sensitivity=Sensitivity(), domain="private", bound=None, split="", under=UNDER,
        phases=(Phase("find", find, find.charge(UNDER)), Phase("count", count, count.charge(Sensitivity()))),
        looks=tuple(Phase("look", look, look.charge(Sensitivity(l0=1))) for look in looks),
    )  # fmt: skip


@pytest.fixture
def ways(monkeypatch):
    monkeypatch.setattr(profile, "NARROW", (1, 2))
    monkeypatch.setattr(profile, "SHARES", (0.3, 0.7))
    made = profile.ways(plan())
    assert [len(way.phases) for way in made] == [2, 2, 2, 1, 1]
    return made


def one_cell(users):
    """How many users have one label, and how many have two."""
    return tuple(sum(len(user) == labels for user in users) for labels in (1, 2))


def by_label(users):
    """A mutant: a user is counted once for each label, so that one user moves a cell by two."""
    return tuple(labels * cell for labels, cell in zip((1, 2), one_cell(users), strict=True))


@cache
def laplace(counts):
    """The law of counts with discrete Laplace noise, shape (values, values)."""
    values = np.arange(-25, 33)
    law = [np.exp(-USERS * np.abs(values - count)) * math.tanh(USERS / 2) for count in counts]
    return np.multiply.outer(*law)


@cache
def ranked(users):
    """The law of the two sorted counts with box noise."""
    return boxed(RANKS, tuple(sorted(counts_of(users)[:2], reverse=True)), 8)


def outcomes(P, Q, chooses):
    """(choice, log of Q/P) -> probability under P."""
    found = defaultdict(float)
    with np.errstate(divide="ignore"):
        logs = np.round(np.log(Q) - np.log(P), 6)
    for choice in (False, True):
        for value in np.unique(logs[chooses == choice]):
            found[choice, float(value)] = P[(chooses == choice) & (logs == value)].sum()
    return dict(found)


@cache
def one_phase(mechanism, cap, users):
    """Set of labels over the threshold -> the law of their noisy counts."""
    masses, offset = gaussian(mechanism.sigma), mechanism.threshold_offset(Sensitivity(l0=cap))
    radius = len(masses) // 2
    values, total = np.arange(offset + 1, offset + 2 * radius), defaultdict(float)
    for kept, chance in by_own_coins(users, cap):
        present = {label: count for label, count in zip("ab", counts_of(kept), strict=False) if count}
        at = {label: np.where(values - c <= radius, masses[np.clip(values - c + radius, 0, 2 * radius)], 0)
              for label, c in present.items()}  # fmt: skip
        for names in itertools.chain.from_iterable(itertools.combinations(present, n) for n in range(len(present) + 1)):
            hidden = math.prod(1 - at[label].sum() for label in present if label not in names)
            shown = np.ones(())
            for label in names:
                shown = np.multiply.outer(shown, at[label])
            total[names] = total[names] + chance * hidden * shown
    return dict(total)


@cache
def answered(mechanisms, cap, users):
    """The law of the answer in one way."""
    if isinstance(mechanisms[0], SparseGaussian):
        return one_phase(mechanisms[0], cap, users)
    find, count = mechanisms
    noise = lambda labels: count.noise(Sensitivity(), labels)  # noqa: E731
    return law(by_own_coins(users, cap), users, finding=find, under=UNDER, noise=noise, k=2)


@cache
def weighed(mechanisms, cap, P, Q, ratio):
    """The hockey-stick divergence of two answers at a ratio."""
    mine, others = answered(mechanisms, cap, P), answered(mechanisms, cap, Q)
    return sum(np.maximum(each - ratio * others.get(names, 0.0), 0).sum() for names, each in mine.items())


def excess(P, Q, choice, epsilon, cells, noisy):
    """The divergence of all that is released; ``choice``: by a bit of either look, a way."""
    users = [laplace(cells(each)) for each in (P, Q)]
    bits = np.arange(-25, 33)[None] >= 1 if noisy else np.array([[cells(P)[1] >= 1]])
    bits = np.broadcast_to(bits, users[0].shape)
    counts = [ranked(each) for each in (P, Q)]
    high = np.broadcast_to((np.arange(counts[0].shape[0]) - counts[0].shape[0] // 2 >= 2)[:, None], counts[0].shape)
    total = 0.0
    for (few, one), p in outcomes(*users, bits).items():
        for (steep, two), q in outcomes(*counts, high).items():
            way = choice[few, steep]
            other = choice[bool(cells(Q)[1] >= 1), steep] if not noisy else way
            if other is not way:  # what Q does then is another way: as if disjoint
                total += p * q
                continue
            cap = way.sensitivity.l0 or UNDER.l0
            total += p * q * weighed(way.mechanisms, cap, P, Q, round(math.exp(epsilon + one + two), 12))
    return total


def ratio(ways, *, charged=USERS, cells=one_cell, noisy=True, epsilons=(1.0,)):
    """The largest divergence, over tables, directions and two rules of choice, over what is charged."""
    rules = [dict(zip(itertools.product((False, True), repeat=2), chosen, strict=True))
             for chosen in ((ways[0], ways[3], ways[2], ways[4]), (ways[4], ways[1], ways[3], ways[0]))]  # fmt: skip
    promised = {x: compose(plan(charged).charge, epsilon=x, rtol=0.01, effort="quick", lower=False).delta
                for x in epsilons}  # fmt: skip
    return max(
        excess(*way, rule, x, cells, noisy) / promised[x]
        for pair in TABLES for way in (pair, pair[::-1]) for rule in rules for x in epsilons
    )  # fmt: skip


def test_looks_and_answer_cost_at_most_their_product(ways):
    assert 0.9 < ratio(ways, epsilons=(1.0,)) <= 1


def test_mutants_are_caught(ways):
    """A look charged too low; cells that one user moves by two; a choice by the cells themselves."""
    assert ratio(ways, charged=USERS / 4, epsilons=(2.0,)) > 1.1
    assert ratio(ways, cells=by_label, epsilons=(2.0,)) > 1.1
    assert ratio(ways, noisy=False, epsilons=(2.0,)) > 1.1
