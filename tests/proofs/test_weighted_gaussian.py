"""WeightedGaussian: exact divergences of noisy sums of weights over small tables of users, and
mutants.
"""

import itertools
import math
from functools import reduce

import numpy as np
import pytest

from dptopk import Charge, Histogram, InvalidParameter, KnownGaussian, Sensitivity, compose
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.dominating import dominating_mu
from dptopk.costs import DiscreteGaussianDP, GaussianDP
from dptopk.mechanisms import WeightedGaussian

EPSILONS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
TOLERANCE = 1e-9


def masses(scale):
    radius = math.ceil(7 * scale)
    weights = np.exp(-(np.arange(-radius, radius + 1.0) ** 2) / (2 * scale**2))
    return weights / weights.sum()


def of_one(scale, threshold, value, width):
    """The law of a label: hidden, or its noisy sum above the threshold, on a grid of ``width``
    values.
    """
    law, noise = np.zeros(width + 1), masses(scale)
    radius = len(noise) // 2
    for z in range(-radius, radius + 1):
        above = value + z - threshold
        law[above if value and 0 < above <= width else 0] += noise[z + radius]
    return law


def sums(users, labels, weight):
    return tuple(sum(weight(len(user)) for user in users if label in user) for label in labels)


def worst(mechanism, sensitivity, labels, rest, *, weight=None, threshold=None):
    """The largest divergence at each of EPSILONS where one user more comes to ``rest``."""
    weight = weight or (lambda d: math.isqrt(sensitivity.l2**2 // d))
    threshold = mechanism.threshold_offset(sensitivity) if threshold is None else threshold
    scale = mechanism.scale(sensitivity)
    width = math.ceil(7 * scale) + sensitivity.l2 * (len(rest) + 1)
    found = np.zeros(len(EPSILONS))
    for size in range(1, min(len(labels), sensitivity.l0) + 1):
        for more in itertools.combinations(labels, size):
            sides = [
                reduce(
                    np.multiply.outer,
                    [
                        of_one(scale, threshold, value, width)
                        for value in sums(users, labels, weight)
                    ],
                )
                for users in (rest, (*rest, more))
            ]
            for P, Q in (sides, sides[::-1]):
                found = np.maximum(
                    found, [np.maximum(P - np.exp(x) * Q, 0).sum() for x in EPSILONS]
                )
    return found


def charged(mechanism, sensitivity):
    return np.array(
        [compose(mechanism.charge(sensitivity), epsilon=x, lower=False).delta for x in EPSILONS]
    )


TABLES = [
    (),
    (("a",),) * 3,
    (("a", "b"),) * 2,
    (("a", "b"), ("a",), ("b",)),
    (("b",), ("a",), ("a",)),
]


@pytest.mark.parametrize("rest", TABLES, ids=str)
@pytest.mark.parametrize(("l2", "sigma", "delta"), [(4, 0.5, 0.1), (3, 1.0, 0.02), (1, 1.5, 0.1)])
def test_two_labels_cost_at_most_the_charge(l2, sigma, delta, rest):
    """The noisy sums themselves, of which the mechanism shows the order alone."""
    mechanism, sensitivity = WeightedGaussian(sigma=sigma, delta=delta), Sensitivity(l2, 2, l2=l2)
    assert (
        worst(mechanism, sensitivity, "ab", rest) - TOLERANCE <= charged(mechanism, sensitivity)
    ).all()


@pytest.mark.parametrize("rest", [(), (("a", "b", "c"),) * 2, (("a", "b"), ("c",))], ids=str)
def test_three_labels_cost_at_most_the_charge(rest):
    mechanism, sensitivity = WeightedGaussian(sigma=0.5, delta=0.1), Sensitivity(4, 3, l2=4)
    assert (
        worst(mechanism, sensitivity, "abc", rest) - TOLERANCE <= charged(mechanism, sensitivity)
    ).all()


def divergences(mechanism, sensitivity, base, move):
    """The divergence at each of EPSILONS where one user adds ``move`` to the sums ``base``."""
    scale, threshold = mechanism.scale(sensitivity), mechanism.threshold_offset(sensitivity)
    width = math.ceil(7 * scale) + max(base) + sensitivity.l2
    sides = [
        reduce(np.multiply.outer, [of_one(scale, threshold, value, width) for value in values])
        for values in (base, np.add(base, move).tolist())
    ]
    return np.array(
        [
            max(np.maximum(P - np.exp(x) * Q, 0).sum() for P, Q in (sides, sides[::-1]))
            for x in EPSILONS
        ]
    )


@pytest.mark.parametrize("base", [(0, 0), (0, 4), (1, 8)], ids=str)
def test_who_adds_less_costs_no_more_than_who_adds_most_to_the_same_labels(base):
    mechanism, sensitivity = WeightedGaussian(sigma=0.5, delta=0.1), Sensitivity(4, 2, l2=4)
    price = charged(mechanism, sensitivity)
    for largest in ((4, 0), (0, 4), (2, 2)):
        most = divergences(mechanism, sensitivity, base, largest)
        assert (most <= price + TOLERANCE).all()
        for less in itertools.product(
            *(range(1, weight + 1) if weight else (0,) for weight in largest)
        ):
            assert (divergences(mechanism, sensitivity, base, less) <= most + TOLERANCE).all()
    # Of two labels 2 is the largest weight; one that is too large is noticed.
    assert (divergences(mechanism, sensitivity, base, (3, 3)) > most + TOLERANCE).any()


def test_mutants_are_caught():
    """Weights that do not fall; a threshold for a single label; the noise of a norm that is too
    small.
    """
    mechanism, sensitivity = WeightedGaussian(sigma=1.0, delta=0.02), Sensitivity(3, 2, l2=3)
    both, price = (("a", "b"),) * 4, charged(mechanism, sensitivity)
    assert (worst(mechanism, sensitivity, "ab", both, weight=lambda d: 3) > 1.1 * price).any()
    wide = WeightedGaussian(sigma=2.0, delta=0.02)
    assert (
        worst(wide, sensitivity, "ab", both, weight=lambda d: 3 * math.isqrt(9 // d))
        > charged(wide, sensitivity)
    ).any()
    several = Sensitivity(3, 9, l2=3)
    low = WeightedGaussian(sigma=4.0, delta=0.02).threshold_offset(Sensitivity(3, 1, l2=3))
    assert low < WeightedGaussian(sigma=4.0, delta=0.02).threshold_offset(several)
    alone = (
        1 - (1 - masses(12.0)[len(masses(12.0)) // 2 + low :].sum()) ** 9
    )  # nine labels of weight 1
    assert alone > 1.5 * 0.02


def test_the_threshold_is_the_least_for_every_number_of_labels():
    for l0, l2, scale in ((5, 4, 6.0), (100, 10, 25.0), (1, 7, 3.0), (40, 6, 50.0)):
        mechanism, sensitivity = (
            WeightedGaussian(sigma=scale / l2, delta=1e-3),
            Sensitivity(l2, l0, l2=l2),
        )
        noise = masses(scale)
        tails = np.append(np.cumsum(noise[::-1])[::-1], 0.0)

        def passed(T, tails=tails, noise=noise, l0=l0, l2=l2):
            own = [(d, T - math.isqrt(l2 * l2 // d)) for d in range(1, l0 + 1) if d <= l2 * l2]
            return max(1 - (1 - tails[len(noise) // 2 + above + 1]) ** d for d, above in own)

        T = mechanism.threshold_offset(sensitivity)
        assert passed(T) <= 1e-3
        assert T == l2 or passed(T - 1) > 1e-3 * (1 - 1e-6)


def test_one_label_is_not_always_the_worst():
    """Of norm 4 and scale 4, 16 labels of weight 1 cost more at x = 3 than one of weight 4; the
    charge covers both.
    """
    one, many = (
        compose(Charge({DiscreteGaussianDP(4.0, shift): n}), epsilon=3.0).delta
        for shift, n in ((4, 1), (1, 16))
    )
    assert one == pytest.approx(1.4482e-3, rel=1e-3)
    assert many == pytest.approx(1.5315e-3, rel=1e-3)
    (cost,) = WeightedGaussian(sigma=1.0, delta=1e-6).charge(Sensitivity(4, 16, l2=4)).costs
    assert cost == GaussianDP(dominating_mu(4.0, 4))
    assert many < float(gaussian_delta(cost.mu, epsilon=3.0)) < 1.04 * many


def test_what_does_not_fit_is_refused():
    mechanism, weighted = WeightedGaussian(sigma=5.0, delta=1e-3), Sensitivity(4, 3, l2=4)
    for sensitivity in (Sensitivity(1, 3), Sensitivity(4, None, l2=4), Sensitivity(4, 3, l2=10**5)):
        with pytest.raises(InvalidParameter, match="l2"):
            mechanism.charge(sensitivity)
    with pytest.raises(InvalidParameter, match="neighbours"):
        mechanism.charge(Sensitivity(4, 3, "replace_one", 4))
    summed = Histogram({"a": 400, "b": 0}, sensitivity=weighted)
    for other in (KnownGaussian(sigma=1.0), WeightedGaussian(sigma=5.0, delta=1e-3)):
        if isinstance(other, WeightedGaussian):
            assert other.release(summed, np.random.default_rng(1)).labels == ("a",)
            continue
        with pytest.raises(InvalidParameter, match="never shown as counts"):
            other.release(summed, labels=["a"])
    for narrow, wide in (
        (weighted, Sensitivity(4, 3)),
        (Sensitivity(4, 3), weighted),
        (weighted, Sensitivity(4, 3, l2=3)),
    ):
        assert not wide.covers(narrow)
    assert Sensitivity(5, 3, l2=5).covers(weighted)
    assert repr(weighted).endswith("l2=4)")


def test_the_order_is_that_of_the_noisy_sums():
    summed = Histogram(
        {"a": 3000, "b": 9000, "c": 1, "d": 6000}, sensitivity=Sensitivity(4, 3, l2=4)
    )
    answer = WeightedGaussian(sigma=5.0, delta=1e-6).release(summed, np.random.default_rng(2))
    assert answer.labels == ("b", "d", "a")
    assert answer.counts is None
