"""Selections charged by their clocks: laws of whole orders on worlds large enough that one clock
too few is caught.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dptopk import Budget, Histogram, KnownGumbel, Sensitivity, UnknownGumbel, compose, plan_topk
from dptopk.costs import BoundedRange, Charge, ExponentialClockDP
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.thresholds import slots

from .charges import delta_of

EPSILON = 0.8
AT = np.linspace(0.0, 5.0, 11)


def orders(rates, k):
    """The probabilities of all sequences of k of the clocks."""
    found = {}
    for order in itertools.permutations(range(len(rates)), k):
        mass, left = 1.0, math.fsum(rates)
        for place in order:
            mass, left = mass * rates[place] / left, left - rates[place]
        found[order] = mass
    return np.array(list(found.values()))


def excess(one, other, charge):
    """How far the hockey-stick divergence, in either order, is above what the charge promises."""
    found = [
        max(np.maximum(P - math.exp(x) * Q, 0).sum() for P, Q in ((one, other), (other, one)))
        for x in AT.tolist()
    ]
    return max(a - delta_of(charge, x) for a, x in zip(found, AT.tolist(), strict=True))


def rates_of(mechanism, histogram):
    """The rates of the clocks that a release races."""
    linf = histogram.sensitivity.linf
    if isinstance(mechanism, UnknownGumbel):
        seen = slots(histogram, mechanism.d_bar)
        scores = [
            *seen.counts.tolist(),
            seen.floor + mechanism.threshold_offset(histogram.sensitivity),
        ]
    else:
        scores = histogram.counts.tolist()
    return np.exp(mechanism.epsilon / linf * (np.array(scores) - max(scores)))


MOVED = 2
PAIRS = [
    # Two labels overtake nothing, and gain on four others: the order tells how long both of them
    # took.
    ("known", (3, 3, 4, 4, 4, 4), (4, 4, 4, 4, 4, 4)),
    ("known", (0, 0, 1, 1, 1, 1), (1, 1, 1, 1, 1, 1)),
    # The same among slots that are far above ⊥.
    ("unknown", (60, 60, 61, 61, 61, 61), (61, 61, 61, 61, 61, 61)),
]


@pytest.mark.parametrize(("domain", "smaller", "larger"), PAIRS)
def test_one_clock_too_few_is_caught(domain, smaller, larger):
    sensitivity = Sensitivity(l0=MOVED)
    n = len(smaller)
    if domain == "known":
        mechanism = KnownGumbel(k=n, epsilon=EPSILON, charge_as="clocks")
    else:
        mechanism = UnknownGumbel(k=n, d_bar=n, epsilon=EPSILON, delta=0.3, charge_as="clocks")
    charge = mechanism.charge(sensitivity)
    assert charge.costs == {ExponentialClockDP(EPSILON): MOVED}
    kind = {"sensitivity": sensitivity, "domain": "public" if domain == "known" else "private"}
    laws = [
        orders(rates_of(mechanism, Histogram(list("abcdef"), list(counts), **kind)), n)
        for counts in (smaller, larger)
    ]
    assert excess(*laws, Charge(charge.costs)) <= 1e-5
    assert excess(*laws, Charge({ExponentialClockDP(EPSILON): MOVED - 1})) > 0.02
    assert excess(*laws, Charge({ExponentialClockDP(EPSILON * 0.5): MOVED})) > 0.02


@pytest.mark.slow
@pytest.mark.parametrize("linf", [1, 3])
@pytest.mark.parametrize("moves", [(1.0,), (1.0, 1.0), (0.34, 1.0, 0.67), (1.0, 1.0, 1.0)])
def test_every_split_of_the_moves_is_covered(linf, moves):
    """Moves of a few counts, in one direction, of which the first are the labels touched; k = all
    five labels.
    """
    rng = np.random.default_rng(7)
    mechanism = KnownGumbel(k=5, epsilon=EPSILON, charge_as="clocks")
    charge = mechanism.charge(Sensitivity(linf=linf, l0=len(moves)))
    steps = np.zeros(5)
    steps[: len(moves)] = np.round(np.array(moves) * linf)
    for _ in range(6):
        counts = rng.integers(0, 3 * linf, 5)
        laws = [
            orders(np.exp(EPSILON / linf * (each - each.max())), 5)
            for each in (counts, counts + steps)
        ]
        assert excess(*laws, charge) <= 1e-5


def test_a_mechanism_says_beforehand_how_it_charges():
    with pytest.raises(InvalidParameter, match="finite l0"):
        KnownGumbel(k=3, epsilon=0.1, charge_as="clocks").charge(Sensitivity())
    with pytest.raises(InvalidParameter, match="charge_as"):
        KnownGumbel(k=3, epsilon=0.1, charge_as="whatever is less")
    unknown = UnknownGumbel(k=3, d_bar=7, epsilon=0.1, delta=1e-6, charge_as="clocks")
    assert unknown.charge(Sensitivity()).costs == {ExponentialClockDP(0.1): 7}
    assert unknown.charge(Sensitivity(l0=2)).costs == {ExponentialClockDP(0.1): 2}
    assert not unknown.charge(Sensitivity(l0=2)).adaptive
    plain = UnknownGumbel(k=3, d_bar=7, epsilon=0.1, delta=1e-6)
    assert repr(plain) == "UnknownGumbel(k=3, d_bar=7, epsilon=0.1, delta=1e-06)"
    assert repr(unknown) == repr(plain)[:-1] + ", charge_as='clocks')"


@pytest.mark.slow
@pytest.mark.parametrize(("k", "l0", "ratio"), [(100, 1, 0.53), (1000, 1, 0.17), (1000, 5, 0.25)])
def test_a_plan_takes_what_is_less(k, l0, ratio):
    """Noise at (1, 1e-6) against selections charged one by one: so many of ``ratio`` times this ε
    cost more than 1.
    """
    asked = {
        "sensitivity": Sensitivity(l0=l0),
        "domain": "public",
        "counts": None,
        "method": "Gumbel selections",
    }
    plan = plan_topk(k, Budget(1, 1e-6), **asked)
    (mechanism,) = plan.mechanisms
    assert mechanism.charge_as == "clocks"
    assert 0.99 < plan.epsilon <= 1
    one_by_one = Charge({BoundedRange(mechanism.epsilon * ratio): k}, adaptive=True)
    assert compose(one_by_one, delta=1e-6, rtol=0.01).lower > 1


@pytest.mark.slow
def test_a_plan_does_not_take_clocks_where_they_cost_more():
    asked = {"domain": "public", "counts": None, "method": "Gumbel selections"}
    for k, l0 in ((10, 1), (25, 1), (10, 10), (25, None)):
        plan = plan_topk(k, Budget(1, 1e-6), sensitivity=Sensitivity(l0=l0), **asked)
        assert plan.mechanisms[0].charge_as == "bounded_range"
    pure = plan_topk(200, Budget(1), sensitivity=Sensitivity(l0=1), **asked)
    assert pure.mechanisms[0].charge_as == "bounded_range"
