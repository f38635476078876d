"""A cap on a user's total: exact divergences over all small neighbours under it, every split of a
total over labels of one user alone, and mutants.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dptopk import (
    Budget,
    Charge,
    Histogram,
    KnownGaussian,
    KnownLaplace,
    Sensitivity,
    TruncatedGaussian,
    UnknownGaussian,
    UnknownLaplace,
    compose,
    plan_topk,
)
from dptopk.costs import DiscreteLaplaceDP, GaussianDP, PureDP
from dptopk.datasets.bounds import Bounds
from dptopk.mechanisms import ContinualTopK, SparseGaussian, TruncatedLaplace, user_total
from dptopk.mechanisms.samplers.noise import laplace_law
from dptopk.mechanisms.user_total import chance_to_show_any

from .charges import delta_of
from .harness import World, counting_law, hockey_stick, laws
from .test_counting import EPSILONS, TOLERANCE, divergence, excess, world_for
from .test_truncated_laplace import excess as excess_of_cut_laplace

CAPPED = [
    Sensitivity(linf=2, l0=2, l1=3),
    Sensitivity(linf=3, l0=2, l1=4),
    Sensitivity(linf=2, l1=2),
    Sensitivity(linf=3, l1=3),
]


def ids(value):
    return str(value)


@pytest.mark.parametrize("sensitivity", CAPPED, ids=ids)
@pytest.mark.parametrize(
    "mechanism", [KnownLaplace(epsilon=1.0), KnownGaussian(sigma=1.2)], ids=ids
)
def test_known_counts_cost_no_more_than_the_whole_move(mechanism, sensitivity):
    world = World(2, (0, 1, 2, 3), sensitivity, "public")
    assert excess(mechanism, world) <= TOLERANCE
    charge = mechanism.charge(sensitivity, labels=2)
    apart = mechanism.charge(Sensitivity(linf=sensitivity.linf, l0=sensitivity.l0), labels=2)
    assert compose(charge, delta=1e-6).epsilon < compose(apart, delta=1e-6).epsilon


def test_a_total_charged_one_too_low_is_caught():
    """The charge of the noise is attained where the whole total is on one label."""
    sensitivity = Sensitivity(linf=3, l1=3)
    world = World(2, (0, 1, 2, 3), sensitivity, "public")
    for mechanism in (KnownLaplace(epsilon=1.0), KnownGaussian(sigma=1.2)):
        less = mechanism.charge(sensitivity, labels=2)
        ((cost, times),) = less.costs.items()
        wrong = (
            DiscreteLaplaceDP(cost.scale, 2)
            if isinstance(cost, DiscreteLaplaceDP)
            else GaussianDP(cost.mu * 2 / 3)
        )
        assert times == 1
        found = np.array([delta_of(Charge({wrong: 1}), epsilon) for epsilon in EPSILONS])
        promised = np.array([delta_of(less, epsilon) for epsilon in EPSILONS])
        assert np.nanmax(promised - found) > 1e-2
        assert excess(mechanism, world) <= TOLERANCE
        assert excess(mechanism, World(2, (0, 1, 2, 3), sensitivity, "public")) > -1


FLOORS = [
    UnknownLaplace(d_bar=1, epsilon=4.0, delta=0.05),
    UnknownGaussian(d_bar=1, sigma=0.8, delta=0.05),
    TruncatedGaussian(d_bar=1, sigma=0.8, delta=0.05),
    TruncatedGaussian(sigma=0.8, delta=0.05),
    SparseGaussian(sigma=0.9, delta=0.05),
]


@pytest.mark.parametrize("sensitivity", [CAPPED[0], CAPPED[2]], ids=ids)
@pytest.mark.parametrize("mechanism", FLOORS, ids=ids)
def test_unknown_domains_cost_no_more_than_the_charge(mechanism, sensitivity):
    world = world_for(mechanism, sensitivity)
    labels = 2 if mechanism.floor_rank is None else 3
    assert excess(mechanism, World(labels, world.levels, sensitivity)) <= TOLERANCE


@pytest.mark.parametrize("sensitivity", [CAPPED[0], CAPPED[1], CAPPED[2]], ids=ids)
@pytest.mark.parametrize(("epsilon", "delta"), [(2.5, 0.01), (1.2, 0.08)])
def test_cut_laplace_noise_costs_no_more_than_the_charge(epsilon, delta, sensitivity):
    mechanism = TruncatedLaplace(epsilon=epsilon, delta=delta)
    world = world_for(mechanism, sensitivity)
    assert excess_of_cut_laplace(mechanism, World(2, world.levels, sensitivity)) <= TOLERANCE


def some_shown(chances) -> float:
    """1 - Π (1 - p), without cancellation."""
    return -math.expm1(math.fsum(math.log1p(-chance) for chance in chances))


def splits(total: int, most: int, labels: int):
    """All ways to add at most ``total`` to at most so many labels, at most ``most`` to each."""
    for parts in range(1, labels + 1):
        for split in itertools.combinations_with_replacement(range(1, most + 1), parts):
            if sum(split) <= total:
                yield split


@pytest.mark.parametrize("listed", [64, 0])
@pytest.mark.parametrize("rate", [0.05, 0.4, 3.0])
@pytest.mark.parametrize("above", [0.0, 0.7])
def test_the_worst_split_of_a_total_is_that_of_all_splits(rate, above, listed, monkeypatch):
    """Of uncut noise, and of noise with a coin; by the chord it is an upper bound."""
    monkeypatch.setattr(user_total, "LISTED_PARTS", listed)
    threshold = 9

    def shown(v: int) -> float:
        return math.exp(-rate * (threshold - v)) * (math.exp(-rate) + above) / 4

    cases = list(itertools.product((2, 3, 4), (4, 5, 6, 7, 8), (2, 3, 8)))
    for linf, total, labels in cases:
        sensitivity = Sensitivity(linf=linf, l0=labels, l1=total)
        found = chance_to_show_any(shown, sensitivity, min(labels, total))
        worst = max(some_shown(shown(v) for v in split) for split in splits(total, linf, labels))
        assert found >= worst * (1 - 1e-12)
        if listed:
            assert found == pytest.approx(worst, rel=1e-8)
        else:
            assert found <= 2 * worst


def test_the_bound_by_the_chord_is_rounded_up():
    """Where h is a line through 0 every split has the same sum, which is the bound's exactly."""
    for h_one in (0.1, 1 / 3, 2e-9):
        for tau, total in itertools.product((70, 99, 1000), (1001, 12345)):
            exact = Fraction(h_one) * total
            bound = user_total._chord_bound(h_one, tau * h_one, tau, total, labels=total)
            assert exact <= Fraction(bound) <= exact * (1 + Fraction(1, 10**11))


def test_ones_or_whole_parts_alone_are_not_the_worst_split():
    """Little decay: many labels once; much decay: few labels often."""
    sensitivity = Sensitivity(linf=5, l1=20)
    for rate, most in ((0.02, 20), (2.0, 4)):

        def shown(v: int, rate: float = rate) -> float:
            return math.exp(-rate * (30 - v)) * 1e-3

        found = chance_to_show_any(shown, sensitivity, 20)
        part = 20 // most
        assert found == pytest.approx(some_shown([shown(part)] * most), rel=1e-6)
        other = {20: 4, 4: 20}[most]
        assert some_shown([shown(20 // other)] * other) < 0.7 * found


@pytest.mark.parametrize("delta", [1e-2, 1e-6])
@pytest.mark.parametrize(
    "sensitivity",
    [Sensitivity(linf=4, l1=9), Sensitivity(linf=10, l1=10), Sensitivity(linf=3, l0=2, l1=5)],
    ids=ids,
)
def test_thresholds_spend_delta_on_the_worst_split_and_no_more(sensitivity, delta):
    """Every split, by the laws of the noise themselves."""
    labels, linf = sensitivity.l0 or 1, sensitivity.linf
    mechanism = TruncatedLaplace(epsilon=0.8, delta=delta)
    bound, coin = mechanism.bound(sensitivity), mechanism.at_threshold(sensitivity)
    pmf = laplace_law(0.8, linf, bound).pmf(bound)

    def worst(bound_of_coin: float) -> float:
        def shown(v: int) -> float:
            return float(pmf[len(pmf) - v :].sum() + bound_of_coin * pmf[len(pmf) - v - 1])

        return max(
            some_shown(shown(v) for v in split)
            for split in splits(sensitivity.l1 or 0, linf, labels)
        )

    assert worst(coin) <= delta
    assert worst(coin) > 0.999 * delta or coin > 0.9999
    sparse = SparseGaussian(sigma=3.0, delta=delta)
    threshold, scale = sparse.threshold_offset(sensitivity), 3.0 * linf
    tails = np.exp(-(np.arange(0, 40 * linf) ** 2) / (2 * scale**2))
    tails = tails[::-1].cumsum()[::-1] / (2 * tails.sum() - 1)

    def seen(at: int) -> float:
        return max(
            some_shown(float(tails[at - v + 1]) for v in split)
            for split in splits(sensitivity.l1 or 0, linf, labels)
        )

    assert seen(threshold) <= delta < seen(threshold - 1)


def test_the_example_of_a_total_of_ten_over_ten_labels():
    """(1, 1e-6): ten times less Laplace noise, a third of the Gaussian noise."""
    capped, free = Sensitivity(linf=10, l0=10, l1=10), Sensitivity(linf=10, l0=10)
    assert KnownLaplace(epsilon=1.0).charge(capped).costs == {DiscreteLaplaceDP(10.0, 10): 1}
    assert KnownLaplace(epsilon=0.1).charge(free).costs == {
        DiscreteLaplaceDP(math.nextafter(100, 0), 10): 10
    }
    plans = [
        plan_topk(
            5, Budget(1.0, 1e-6), sensitivity=each, domain="public", counts=kind, method="threshold"
        )
        for kind in ("laplace", "gaussian")
        for each in (free, capped)
    ]
    laplace, laplace_capped, gaussian, gaussian_capped = (plan.noise_std for plan in plans)
    assert laplace_capped < 0.15 * laplace
    assert 0.25 * gaussian < gaussian_capped < 0.37 * gaussian
    offset = TruncatedLaplace(epsilon=1.0, delta=1e-6).threshold_offset(capped)
    assert offset < 0.12 * TruncatedLaplace(epsilon=0.1, delta=1e-6).threshold_offset(free)
    assert TruncatedLaplace(epsilon=1.0, delta=1e-6).charge(capped).costs == {PureDP(1.0): 1}


def test_a_cap_never_costs_more_and_selections_stay_as_they_are():
    for linf, l0, l1 in itertools.product((1, 2, 7), (1, 5, 40), (7, 30, 39, 300)):
        capped, free = Sensitivity(linf=linf, l0=l0, l1=l1), Sensitivity(linf=linf, l0=l0)
        for epsilon in (0.05, 1.0):
            charges = [KnownLaplace(epsilon=epsilon).charge(each) for each in (capped, free)]
            first, second = (compose(each, delta=1e-6).epsilon for each in charges)
            assert first <= second * 1.05
        least = min(l0, l1)
        assert KnownGaussian(sigma=9.0).charge(capped, labels=3) is not None
        assert capped.l0 == least


@pytest.mark.parametrize("linf", [2, 3])
def test_days_of_a_stream_cost_what_squares_of_a_capped_total_cost(linf):
    mechanism = ContinualTopK(k=2, days=4, sigma=5.0, days_per_user=2)
    free = mechanism.charge(Sensitivity(linf=linf, l0=4))
    capped = mechanism.charge(Sensitivity(linf=linf, l0=4, l1=linf + 1))
    ((one, _),), ((other, _),) = free.costs.items(), capped.costs.items()
    assert other.mu / one.mu == pytest.approx(math.sqrt((linf**2 + 1) / (4 * linf**2)))


def test_no_split_of_two_days_over_labels_moves_a_stream_further():
    """All ways of one user on two days over two labels, in squares of what is measured."""
    linf, total = 2, 3
    sensitivity = Sensitivity(linf=linf, l0=2, l1=total)
    mechanism = ContinualTopK(k=1, days=3, sigma=1.0, days_per_user=2)
    strategy = mechanism.measurements.strategy
    days = [each for each in itertools.product(range(linf + 1), repeat=2) if sum(each) <= total]
    most = 0.0
    for active in itertools.combinations(range(3), 2):
        for first, second in itertools.product(days, repeat=2):
            moves = strategy[:, active] @ np.array([first, second])
            most = max(most, float((moves**2).sum()))
    charged = sensitivity.squares(2) * mechanism.measurements.energy(mechanism.participation)
    assert most <= charged


def test_the_slots_of_neighbours_under_a_cap_move_by_at_most_the_total():
    """The slot lemma, listed: slots and floor together, each upwards."""
    sensitivity, d_bar = Sensitivity(linf=3, l1=4), 2
    world = World(4, (0, 1, 2, 5), sensitivity)
    counts = world.counts
    for smaller, larger in world.neighbours():
        tops = [np.sort(counts[row])[::-1][: d_bar + 1] for row in (smaller, larger)]
        moved = tops[1] - tops[0]
        assert (moved >= 0).all()
        assert moved.sum() <= 4


def test_a_threshold_for_ones_alone_is_too_low():
    """A mutant: the threshold of labels that come once each, where the total is on few labels."""
    sensitivity = Sensitivity(linf=3, l1=3)
    mechanism = TruncatedLaplace(epsilon=2.0, delta=0.01)
    ones = TruncatedLaplace(epsilon=2.0 / 3, delta=0.01).bound(Sensitivity(l0=3))
    bound = mechanism.bound(sensitivity)
    assert ones < bound
    pmf = laplace_law(2.0, 3, ones).pmf(ones)
    world = World(1, (0, 1, 2, 3, ones + 3), sensitivity)

    class Low(TruncatedLaplace):
        def bound(self, sensitivity):
            return ones

    low = Low(epsilon=2.0, delta=0.01)
    found = hockey_stick(
        laws(world, lambda h: counting_law(low, h, pmf)), world.neighbours(), EPSILONS
    )
    assert np.nanmax(found - [delta_of(mechanism.charge(sensitivity), x) for x in EPSILONS]) > 1e-3
    assert Histogram({"a": 3}, sensitivity=sensitivity).sensitivity.l1 == 3


def test_bounds_of_events_state_the_total_that_they_cut_to():
    bounds = Bounds(labels_per_user=5, per_label_cap=4, total_per_user=7)
    assert bounds.sensitivity == Sensitivity(linf=4, l0=5, l1=7)
    assert Bounds(labels_per_user=None, per_label_cap=4, total_per_user=3).sensitivity == (
        Sensitivity(linf=3, l0=3, l1=3)
    )
    assert Bounds(labels_per_user=2).sensitivity.l1 is None


def test_discrete_gaussian_noise_of_small_scale_is_charged_by_its_own_mu():
    """1/scale in its place is too little: a mutant that the exact divergence refutes."""
    sensitivity = Sensitivity(linf=2, l0=2, l1=2)
    mechanism = KnownGaussian(sigma=0.45)
    world = World(2, (0, 1, 2, 3), sensitivity, "public")
    found = divergence(mechanism, world)
    ((cost, _),) = mechanism.charge(sensitivity, labels=2).costs.items()
    promised = np.array([delta_of(Charge({cost: 1}), epsilon) for epsilon in EPSILONS])
    assert np.nanmax(found - promised) <= TOLERANCE
    wrong = np.array([delta_of(Charge({GaussianDP(2 / 0.9): 1}), x) for x in EPSILONS])
    assert np.nanmax(found - wrong) > 1e-4
