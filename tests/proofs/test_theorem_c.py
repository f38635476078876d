"""Theorem C: the product of the groups' pairs against exact set-wise games, however the costs are
grouped.
"""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.setwise.cost_groups import (
    GroupPair,
    concentrated_pair,
    equal_ranges_pair,
    mixed_ranges_pair,
    pair_above,
)
from dptopk.accounting.setwise.two_outcome_laws import largest_log_mass
from dptopk.costs import ZCDP, BoundedRange, Charge

from .adversary import brute_force

STEPS = 24


def group(ranges: tuple[float, ...]) -> GroupPair:
    counts = tuple((epsilon, ranges.count(epsilon)) for epsilon in sorted(set(ranges)))
    if len(counts) == 1:
        return equal_ranges_pair(*counts[0], STEPS, reach=9.0)
    return mixed_ranges_pair(counts, STEPS, reach=9.0)


def randomised_response(epsilon: float) -> GroupPair:
    p = 1 / (1 + math.exp(-epsilon))
    return GroupPair(np.array([-epsilon, epsilon]), np.log([1 - p, p]), 0.0)


def delta_of(groups: list[GroupPair], x: float) -> float:
    """δ of the product, summed term by term: no lattice."""
    losses, masses, finite = np.zeros(1), np.ones(1), 1.0
    for one in groups:
        losses = np.add.outer(losses, one.losses).ravel()
        masses = np.multiply.outer(masses, np.exp(one.log_masses)).ravel()
        finite *= 1 - one.infinite
    return float(masses @ np.maximum(-np.expm1(x - losses), 0.0)) + 1 - finite


def groupings(ranges: tuple[float, ...]) -> list[list[tuple[float, ...]]]:
    """All together, one each, and cut in two at every place."""
    cuts = [[ranges[:i], ranges[i:]] for i in range(1, len(ranges))]
    return [[ranges], [(epsilon,) for epsilon in ranges], *cuts]


@pytest.mark.slow
@pytest.mark.parametrize("ranges", [(0.4, 0.4, 0.4), (0.2, 0.4, 0.8), (0.3, 0.3, 0.6), (0.5, 1.0)])
@pytest.mark.parametrize("pure", [(), (0.5,)])
def test_every_grouping_is_above_the_game(
    ranges: tuple[float, ...], pure: tuple[float, ...]
) -> None:
    together = []
    for share in (0.0, 0.25, 0.5, 0.75):
        x = share * (sum(ranges) + sum(pure))
        achieved = brute_force(ranges, pure, x, points=9)
        for parts in groupings(ranges):
            bound = delta_of(
                [group(part) for part in parts]
                + [randomised_response(epsilon) for epsilon in pure],
                x,
            )
            assert achieved <= bound * (1 + 1e-12)
            if len(parts) == 1 and share <= 0.5:  # near the largest loss 9 values of t are too few
                together.append(bound / achieved)
    assert max(together) < 1.03  # one group is the game itself: what is left is the two grids


def test_a_further_group_adds_what_is_said() -> None:
    """About 0.19 ε² of variance for each, so that the bound falls as groups grow."""
    charge = Charge({BoundedRange(0.1): 60})
    exact = compose(charge, delta=1e-6)
    sizes = []
    for size in (5, 20, 60):
        pair = equal_ranges_pair(0.1, size, 40, reach=9.0)
        copies = 60 // size
        law = product(
            GroupPair(pair.losses, pair.log_masses, 0.0, copies).pairs(Grid(0.0025, 6.0, 1)),
            step=0.0025,
            tilt=6.0,
            side=1,
        )
        sizes.append(law.epsilon(1e-6 - copies * pair.infinite))
    assert all(larger < smaller for smaller, larger in pairwise(sizes))
    assert exact.lower <= sizes[-1] <= exact.lower * 1.002
    excess = (sizes[0] / sizes[-1]) ** 2 - 1  # relative variance, ε being small
    assert excess == pytest.approx(11 * 0.19 / 15, rel=0.35)


def two_outcomes_law(rho: float, xi: float, loss: float) -> tuple[float, float]:
    """(l, p) of a law that is (ξ, ρ)-zCDP in both directions, p close to the largest possible."""
    log_p = -max(max(loss - xi - rho, 0.0) ** 2 / (4 * rho), 1e-3)
    return loss, math.exp(largest_log_mass(rho, xi, loss, log_p))


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    rho=st.floats(0.01, 0.5),
    ranges=st.lists(st.sampled_from([0.2, 0.4]), min_size=1, max_size=2),
    share=st.floats(0.1, 0.8),
    extra=st.floats(0.2, 2.0),
)
def test_a_concentrated_cost_played_by_a_concrete_law(
    rho: float, ranges: list[float], share: float, extra: float
) -> None:
    """The zCDP cost as a law with two outcomes, before, between and after ranges whose t adapts."""
    x = share * (sum(ranges) + 2 * math.sqrt(rho))
    loss, p = two_outcomes_law(rho, 0.0, x + extra * math.sqrt(rho))
    other = math.log((1 - p) / -math.expm1(math.log(p) - loss))

    def game(left: tuple[float, ...], law_left: bool, at: float) -> float:
        best = max(-math.expm1(at), 0.0)
        if law_left:
            best = max(
                best, p * game(left, False, at - loss) + (1 - p) * game(left, False, at - other)
            )
        for i, epsilon in enumerate(left):
            rest = left[:i] + left[i + 1 :]
            for t in np.linspace(0, epsilon, 7):
                q = math.expm1(t - epsilon) / math.expm1(-epsilon)
                best = max(
                    best,
                    q * game(rest, law_left, at - t)
                    + (1 - q) * game(rest, law_left, at + epsilon - t),
                )
        return best

    achieved = game(tuple(ranges), True, x)
    pair = concentrated_pair(Charge({ZCDP(rho): 1}), 0.02, x + 8 * math.sqrt(rho) + 2)
    assert achieved <= delta_of([group(tuple(sorted(ranges))), pair], x) * (1 + 1e-12)
    charge = Charge({ZCDP(rho): 1, **{BoundedRange(e): ranges.count(e) for e in ranges}})
    found = compose(charge, epsilon=x, rtol=0.5, bound="optimal_setwise")
    assert achieved <= found.delta * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    losses=st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    weights=st.lists(st.floats(0.05, 1), min_size=6, max_size=6),
    noise=st.floats(0, 0.02),
    seed=st.integers(0, 9),
)
def test_a_pair_read_off_is_above_its_values(
    losses: list[float], weights: list[float], noise: float, seed: int
) -> None:
    """Any upper bounds, smooth or not: the profile of the pair is above the function they bound, at
    40 digits.
    """
    mass = np.array(weights[: len(losses)]) / sum(weights[: len(losses)])
    h, nodes = 0.05, np.arange(-50, 51)

    def profile(x: float) -> float:
        return float(np.maximum(-np.expm1(np.minimum(x - np.array(losses), 0.0)), 0.0) @ mass)

    rough = 1 + noise * np.random.default_rng(seed).uniform(size=len(nodes))
    values = np.minimum(np.array([profile(node * h) for node in nodes]) * rough + 1e-12, 1.0)
    pair = pair_above(nodes, values, h)
    assert math.fsum(np.exp(pair.log_masses)) + pair.infinite >= 1 - 1e-12
    with mpmath.workdps(40):
        masses = [mpmath.exp(mpmath.mpf(float(m))) for m in pair.log_masses]
        for x in np.linspace(-2.6, 2.6, 23).tolist():
            above = mpmath.mpf(pair.infinite) + sum(
                m * max(1 - mpmath.exp(mpmath.mpf(x) - mpmath.mpf(float(loss))), 0)
                for m, loss in zip(masses, pair.losses, strict=True)
            )
            assert above >= mpmath.mpf(profile(x)) * (1 - mpmath.mpf("1e-15"))
            if not noise:  # ... and not above by more than chords are
                assert float(above) <= profile(x - h) + 1e-9


def test_the_conversion_as_a_pair_is_symmetric_enough() -> None:
    """Below 0 the profile of a class that is closed under swapping is that of the other side."""
    pair = concentrated_pair(Charge({ZCDP(0.1): 1}), 0.01, 4.0)
    for x in (0.2, 0.7, 1.5):
        right, left = delta_of([pair], x), delta_of([pair], -x)
        assert left <= 1 - math.exp(-x) * (1 - right) + 1e-4
        assert left >= 1 - math.exp(-x) * (1 - right) - 2e-2 * right


@pytest.mark.parametrize(
    ("rho", "xi", "x"), [(0.125, 0.0, 2.419), (0.01, 0.1, 0.7216), (1.0, 0.0, 7.7)]
)
def test_a_law_with_two_outcomes_satisfies_the_statement_at_fifty_digits(
    rho: float, xi: float, x: float
) -> None:
    loss, p = two_outcomes_law(rho, xi, x + 0.5 * math.sqrt(rho))
    with mpmath.workdps(50):
        a, b = mpmath.mpf(p), mpmath.mpf(p) * mpmath.exp(-mpmath.mpf(loss))
        closest = mpmath.mpf(-1)
        for order in np.geomspace(1e-5, 1.2 * loss / rho, 400):
            alpha = 1 + mpmath.mpf(float(order))
            for one, other in ((a, b), (b, a)):
                moment = one**alpha * other ** (1 - alpha) + (1 - one) ** alpha * (1 - other) ** (
                    1 - alpha
                )
                divergence = mpmath.log(moment) / (alpha - 1)
                assert divergence <= xi + rho * alpha
                closest = max(closest, divergence - xi - rho * alpha)
        assert closest > -0.02 * (xi + rho) - 1e-3  # it is used up
