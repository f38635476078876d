"""Find, select, count: the exact law of the whole answer on small tables of events.

Tables, users and the mechanisms that find and count are those of test_two_phases. Between them k of
the labels found are selected by Gumbel noise on the counts without a cap: k picks, each in
proportion to e^(ε count) among what is left. Without a cap the first pass is one race of picks over
a noisy floor. The outcome is the set of labels found, the picks in their order and the noisy counts.
"""

import itertools
import math
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from dptopk import Budget, Charge, Histogram, Sensitivity, UnknownGumbel, compose
from dptopk.datasets import EventCounts
from dptopk.mechanisms import (
    Box,
    GaussianCounts,
    KnownGumbel,
    PartitionSelection,
    SparseGaussian,
    WeightedGaussian,
)
from dptopk.mechanisms.gumbel import gumbel_std
from dptopk.planning import TwoPhasePlan
from dptopk.planning.helped import helped_counts
from dptopk.planning.topk_plan import Phase
from dptopk.planning.ways import Way
from dptopk.release.noise_laws import GaussianNoise

from .test_two_phases import (
    ALL,
    COINS,
    EPSILONS,
    THREE,
    TOLERANCE,
    TWO,
    boxed,
    by_own_coins,
    counted,
    counts_of,
    exact,
    found_of,
    gaussian,
    pairs,
)

PICK = 0.8
BOX = Box(epsilon=1.2)
SMALL = pairs("ab", 2)


@cache
def picks(names, counts, number, rate):
    """The law of the first picks: names in order -> chance, in proportion to e^(rate count)."""
    if not number:
        return {(): 1.0}
    weights = [math.exp(rate * count) for count in counts]
    law = defaultdict(float)
    for place, name in enumerate(names):
        rest = names[:place] + names[place + 1 :]
        others = counts[:place] + counts[place + 1 :]
        chance = weights[place] / sum(weights)
        for after, then in picks(rest, others, number - 1, rate).items():
            law[(name, *after)] += chance * then
    return dict(law)


@cache
def races(counts, floor_rank, k, mechanism):
    """The law of UnknownGumbel: the picks until ⊥ is drawn, and whether it was."""
    names = tuple(name for name, count in zip(ALL, counts, strict=True) if count)
    values = sorted(((c, n) for n, c in zip(ALL, counts, strict=True) if c), reverse=True)
    top = sorted(values, key=lambda each: (-each[0], each[1]))[:floor_rank]
    floor = values[floor_rank][0] if len(names) > floor_rank else 0
    bottom = floor + mechanism.threshold_offset(Sensitivity())
    law = defaultdict(float)
    rows = (*(name for _, name in top), "bottom")
    heights = (*(float(count) for count, _ in top), float(bottom))
    for order, chance in picks(rows, heights, min(k, len(rows)), mechanism.epsilon).items():
        until = order[: order.index("bottom") + 1] if "bottom" in order else order
        law[until] += chance
    return dict(law)


def noisy_counts(noise, names, truth):
    """The law of the noisy counts of the picks."""
    if not names:
        return np.ones(1)
    return counted(noise(len(names)), tuple(truth[name] for name in names))


def law(users, *, find, under, cap, k, rate, noise, selected_by):
    """(found, picks) -> its chance times the law of their counts."""
    truth = dict(zip(ALL, counts_of(users), strict=True))
    if isinstance(find, UnknownGumbel):
        outcome = races(tuple(truth.values()), find.d_bar, k, find)
        chosen = {("all", order): chance for order, chance in outcome.items()}
    else:
        sets, chosen = defaultdict(float), defaultdict(float)
        for kept, chance in by_own_coins(users, cap):
            for names, found in found_of(find, under, counts_of(kept, under.l2), 3).items():
                sets[names] += chance * found
        seen = dict(zip(ALL, selected_by(users), strict=True))
        for names, chance in sets.items():
            values = tuple(seen[name] for name in names)
            for order, picked in picks(names, values, min(k, len(names)), rate).items():
                chosen[names, order] += chance * picked
    return {
        (names, order): chance
        * noisy_counts(noise, tuple(name for name in order if name != "bottom"), truth)
        for (names, order), chance in chosen.items()
    }


def excess(P, Q, epsilon):
    """The hockey-stick divergence of two such laws."""
    none = np.zeros(1)
    ratio = math.exp(epsilon)
    return sum(np.maximum(each - ratio * Q.get(key, none), 0).sum() for key, each in P.items())


def ratio(tables, find, charge, *, cap=2, k=1, rate=PICK, noise=exact, l2=None, **other):
    """The largest divergence, in both directions, over what the charge allows."""
    how = {"find": find, "under": Sensitivity(l2 or 1, cap, l2=l2), "cap": cap, "k": k}
    how |= {"rate": rate, "noise": noise, "selected_by": counts_of} | other
    worst = 0.0
    sides = [[law(users, **how) for users in pair] for pair in tables]
    for epsilon in EPSILONS:
        found = max(excess(*way, epsilon) for P, Q in sides for way in ((P, Q), (Q, P)))
        allowed = compose(charge, epsilon=epsilon, rtol=0.01, effort="quick", lower=False).delta
        worst = max(worst, (found - TOLERANCE) / allowed)
    return worst


def charge_of(find, under, k, count, rate=PICK):
    """The charge that the package states for the phases."""
    phases = [find.charge(under), count.charge(Sensitivity())]
    if not isinstance(find, UnknownGumbel):
        phases.append(KnownGumbel(k=k, epsilon=rate).charge(Sensitivity()))
    total = Charge.join(*phases)
    return Charge(total.costs, delta=total.delta, adaptive=True)


GAUSSIAN = GaussianCounts(mu=1.5)
WEIGHTED = WeightedGaussian(sigma=0.6, delta=0.1)
UNCAPPED = UnknownGumbel(k=2, d_bar=2, epsilon=1.0, delta=0.1)


@pytest.mark.parametrize("k", [1, 2])
def test_coins_selections_and_counts_cost_at_most_their_product(k):
    under = Sensitivity(1, 2)
    assert 0.4 < ratio(TWO, COINS, charge_of(COINS, under, k, GAUSSIAN), k=k) <= 1


def test_weights_selections_and_counts_cost_at_most_their_product():
    under = Sensitivity(4, 2, l2=4)
    assert 0.4 < ratio(TWO, WEIGHTED, charge_of(WEIGHTED, under, 1, GAUSSIAN), l2=4) <= 1


def test_with_box_noise():
    under = Sensitivity(1, 2)
    charge = charge_of(COINS, under, 1, BOX)
    assert 0.4 < ratio(SMALL, COINS, charge, noise=lambda _: BOX) <= 1


def test_without_a_cap_three_labels_of_one_user_cost_as_much_as_one():
    charge = charge_of(UNCAPPED, Sensitivity(), 2, GAUSSIAN)
    assert 0.4 < ratio(THREE[:12], UNCAPPED, charge, k=2) <= 1


OVER = SparseGaussian(sigma=1.2, delta=0.1)


@cache
def chances_of_first(heights, lowest, highest, rate):
    """The chance that the first of two labels is picked, for each of their noisy values from the
    lowest to the highest, shape (values, values): the package adds to both counts what they say.
    """
    noises = (gumbel_std(1 / rate), GaussianNoise(OVER.sigma).std)
    counts = np.array(heights)
    released = np.arange(lowest, highest + 1)
    first, second = np.meshgrid(released, released, indexing="ij")
    pairs = zip(first.ravel(), second.ravel(), strict=True)
    sums = np.array([helped_counts(counts, np.array(pair), 1, *noises) for pair in pairs])
    lead = (sums[:, 0] - sums[:, 1]).reshape(first.shape)
    return 1 / (1 + np.exp(-rate * lead))


def capped_law(users, cap, rate, heights_of=lambda truth: truth):
    """Noisy capped counts of what passes, of which the one is shown that is picked by all events and
    by these noisy counts: (found, pick) -> chance times the law of the count that is shown.
    """
    masses, offset = gaussian(OVER.sigma), OVER.threshold_offset(Sensitivity(l0=cap))
    radius = len(masses) // 2
    values = np.arange(offset + 1, offset + 2 * radius)
    heights = heights_of(counts_of(users)[:2])
    first_picked = chances_of_first(heights, values[0], values[-1], rate)
    total = defaultdict(float)
    for kept, chance in by_own_coins(users, cap):
        present = {name: count for name, count in zip("ab", counts_of(kept), strict=False) if count}
        at = {}
        for name, count in present.items():
            place = np.clip(values - count + radius, 0, 2 * radius)
            at[name] = np.where(values - count <= radius, masses[place], 0.0)
        hidden = {name: 1 - at[name].sum() for name in present}
        total["", ""] += chance * math.prod(hidden.values())
        for name in present:
            others = math.prod(hidden[other] for other in present if other != name)
            total[name, name] += chance * others * at[name]
        if len(present) == 2:
            joint = chance * np.multiply.outer(at["a"], at["b"])
            total["ab", "a"] += (joint * first_picked).sum(axis=1)
            total["ab", "b"] += (joint * (1 - first_picked)).sum(axis=0)
    return dict(total)


def capped_ratio(cap, rate, charge, **how):
    """The largest divergence over what the charge allows."""
    worst = 0.0
    sides = [[capped_law(users, cap, rate, **how) for users in pair] for pair in TWO]
    for epsilon in EPSILONS:
        found = max(excess(*way, epsilon) for P, Q in sides for way in ((P, Q), (Q, P)))
        allowed = compose(charge, epsilon=epsilon, rtol=0.01, effort="quick", lower=False).delta
        worst = max(worst, (found - TOLERANCE) / allowed)
    return worst


def capped_charge(cap, rate):
    """The charge of capped counts and one pick."""
    picked = KnownGumbel(k=1, epsilon=rate).charge(Sensitivity())
    total = Charge.join(OVER.charge(Sensitivity(l0=cap)), picked)
    return Charge(total.costs, delta=total.delta, adaptive=True)


@pytest.mark.slow
@pytest.mark.parametrize(("cap", "rate"), [(1, PICK), (2, PICK), (2, 0.1), (2, 3.0)])
def test_counts_under_the_cap_help_selections_without_one(cap, rate):
    """The counts by which labels were found are charged already: to show those of the picks, and to
    add to the counts of a pick what they say, is free.
    """
    assert 0.4 < capped_ratio(cap, rate, capped_charge(cap, rate)) <= 1


@pytest.mark.slow
def test_mutants_of_capped_counts_are_caught():
    """A quarter of the rate of the picks as their charge; and what is added depends on the counts
    themselves.
    """
    assert capped_ratio(2, 4.0, capped_charge(2, 1.0)) > 1.1
    larger = lambda truth: tuple(4 * count for count in truth)  # noqa: E731
    assert capped_ratio(2, 1.5, capped_charge(2, 1.5), heights_of=larger) > 1.1


def test_mutants_are_caught():
    """Picks at twice the rate; and picks by scores that one user moves both ways: its own labels
    up, all others down, which is no bounded range of ε.
    """
    under = Sensitivity(1, 2)
    find = PartitionSelection(epsilon=1.0, delta=0.1)
    quiet = GaussianCounts(mu=0.2)
    noise = lambda labels: quiet.noise(Sensitivity(), labels)  # noqa: E731
    fair = charge_of(find, under, 1, quiet, 2.5)
    six = (("a", "b"),) * 6
    table = [(six, (("a",), *six))]
    assert 0.4 < ratio(table, find, fair, rate=2.5, noise=noise) <= 1
    assert ratio(table, find, fair, rate=5.0, noise=noise) > 1.1

    def both_ways(users):
        several = counts_of(users)
        return tuple(2 * count - sum(several) for count in several)

    assert ratio(table, find, fair, rate=2.5, noise=noise, selected_by=both_ways) > 1.1


@pytest.mark.slow
def test_the_plan_runs_the_law_that_was_enumerated():
    """Frequencies of picks by the plan on one table, against the enumeration of this file."""
    users = (ALL, ("a", "b"), ("a",), ("b", "c"), ("b",), ("a", "c"))
    under = Sensitivity(l0=3)
    truth = Histogram(list(ALL), counts_of(users))
    both = EventCounts.of_histograms(
        truth, Histogram(list(ALL), counts_of(users), sensitivity=under)
    )
    select = KnownGumbel(k=1, epsilon=PICK)
    find = PartitionSelection(epsilon=4.0, delta=0.3)
    mechanisms = {"find": (find, under), "select": (select, Sensitivity())}
    phases = tuple(
        Phase(name, mechanism, mechanism.charge(sensitivity))
        for name, (mechanism, sensitivity) in mechanisms.items()
    )
    plan = TwoPhasePlan(
        k=1, budget=Budget(9.0, 0.9), sensitivity=Sensitivity(), domain="private", bound=None, split="",
        phases=phases, counted=False, under=under, way=Way("coins", 1.0, 0.5, None, 3),
    )  # fmt: skip
    rng, draws = np.random.default_rng(5), 600
    seen = defaultdict(int)
    for _ in range(draws):
        seen[tuple(plan.release(both, rng).labels)] += 1
    expected = defaultdict(float)
    values = dict(zip(ALL, counts_of(users), strict=True))
    for names, chance in found_of(find, under, counts_of(users), 3).items():
        heights = tuple(values[name] for name in names)
        for order, picked in picks(names, heights, min(1, len(names)), PICK).items():
            expected[order] += chance * picked
    likely = {order: chance for order, chance in expected.items() if draws * chance > 1}
    statistic = sum(
        (seen[order] - draws * chance) ** 2 / (draws * chance) for order, chance in likely.items()
    )
    assert statistic < 22  # 3 degrees of freedom: 1e-4
    assert sum(seen[order] for order in likely) > draws - 20


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_one_statement_covers_every_way_chosen_by_a_look(epsilon):
    """A pure look and a choice by it between two ways, each at most δ at ε: both together are at
    most δ at ε and the look's; and more than δ at ε alone.
    """
    ways = {
        False: {"find": COINS, "noise": exact, "rate": 1.5},
        True: {"find": COINS, "noise": exact, "rate": PICK},
    }
    how = {"under": Sensitivity(1, 2), "cap": 2, "k": 1, "selected_by": counts_of}
    tables = [way for pair in TWO[::5] for way in (pair, pair[::-1])]
    alone = {bit: [apart(pair, how | way, epsilon) for pair in tables] for bit, way in ways.items()}
    delta = max(max(found) for found in alone.values())
    seen = [[boxed(LOOK, counts_of(each)[:1], 8) for each in pair] for pair in tables]
    together = [looked(*one, ways, how, epsilon + LOOK) for one in zip(seen, tables, strict=True)]
    assert 0.5 * delta < max(together) <= delta + TOLERANCE
    free = [looked(*one, ways, how, epsilon) for one in zip(seen, tables, strict=True)]
    assert max(free) > 1.01 * delta


LOOK = 0.4


def apart(pair, way, epsilon):
    """The divergence of one way."""
    return excess(*(law(users, **way) for users in pair), epsilon)


def looked(seen, pair, ways, how, epsilon):
    """The divergence of a noisy count of the first label and the way that is chosen by it."""
    P, Q = seen
    half = (len(P) - 9) // 2 + 2  # the index of a noisy count of 2
    total = 0.0
    for bit, part in ((False, slice(None, half)), (True, slice(half, None))):
        laws = [law(users, **(how | ways[bit])) for users in pair]
        with np.errstate(divide="ignore"):
            logs = np.log(Q[part]) - np.log(P[part])
        for chance, log in zip(P[part], logs, strict=True):
            if chance > TOLERANCE / 100:
                total += chance * excess(*laws, epsilon + float(log))
    return total


def test_picks_of_equal_counts_are_alike():
    orders = picks(("a", "b", "c"), (2, 2, 2), 2, 1.0)
    assert len(orders) == len(list(itertools.permutations("abc", 2)))
    assert np.allclose(list(orders.values()), 1 / 6)
