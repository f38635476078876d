"""Theorem A by exhaustion: with pairs that dominate in both directions, neither order nor
adaptivity matters.

An adversary picks, after every answer, any pair that is left; the best that it reaches equals the
product, whatever it does. With a pair that dominates in one direction only and a free choice of
direction it does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.costs import ApproxDP, Charge, MultiDP, PureDP

# A pair is a tuple of outcomes (p, q), their probabilities under the two neighbours.
Pair = tuple[tuple[float, float], ...]


def hockey_stick(pairs: Sequence[Pair], x: float) -> float:
    """δ(x) of independent pairs: every outcome of the product."""
    total = 0.0
    for outcome in product(*pairs):
        p, q = math.prod(o[0] for o in outcome), math.prod(o[1] for o in outcome)
        total += max(p - math.exp(x) * q, 0.0)
    return total


def best_play(menus: tuple[tuple[Pair, ...], ...], x: float) -> float:
    """The largest δ(x): in each round any menu that is left and any pair on it, depending on all
    answers so far.
    """

    @cache
    def value(left: tuple[tuple[Pair, ...], ...], p: float, q: float) -> float:
        if not left:
            return max(p - math.exp(x) * q, 0.0)
        return max(
            math.fsum(value(left[:i] + left[i + 1 :], p * a, q * b) for a, b in pair)
            for i, menu in enumerate(left)
            for pair in menu
        )

    return value(menus, 1.0, 1.0)


def worst_play(menus: tuple[tuple[Pair, ...], ...], x: float) -> float:
    """The smallest δ(x) over all strategies: for Theorem A it equals the largest."""

    @cache
    def value(left: tuple[tuple[Pair, ...], ...], p: float, q: float) -> float:
        if not left:
            return max(p - math.exp(x) * q, 0.0)
        return min(
            math.fsum(value(left[:i] + left[i + 1 :], p * a, q * b) for a, b in pair)
            for i, menu in enumerate(left)
            for pair in menu
        )

    return value(menus, 1.0, 1.0)


def response(epsilon: float, delta: float = 0.0) -> Pair:
    """Randomised response, or KOV's pair with four outcomes."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon)) * (1 - delta)
    q = (1 - delta) / (1 + math.exp(epsilon))
    return ((p, q), (q, p)) if delta == 0 else ((p, q), (q, p), (delta, 0.0), (0.0, delta))


def post_processed(pair: Pair, mix: float) -> Pair:
    """A mechanism that the pair dominates: with probability ``mix`` the answer is thrown away."""
    return (*((a * (1 - mix), b * (1 - mix)) for a, b in pair), (mix, mix))


@settings(max_examples=40, deadline=None)
@given(
    epsilons=st.lists(st.sampled_from([0.1, 0.3, 0.7, 1.0]), min_size=1, max_size=4),
    deltas=st.lists(st.sampled_from([0.0, 0.0, 0.01]), min_size=4, max_size=4),
    x=st.floats(0, 1.5),
)
def test_order_and_adaptivity_do_not_matter(
    epsilons: list[float], deltas: list[float], x: float
) -> None:
    pairs = [response(e, d) for e, d in zip(epsilons, deltas, strict=False)]
    menus = tuple((pair,) for pair in pairs)
    exact = hockey_stick(pairs, x)
    assert best_play(menus, x) == pytest.approx(exact, rel=1e-12, abs=1e-15)
    assert worst_play(menus, x) == pytest.approx(exact, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("x", [0.0, 0.4, 1.2])
def test_mechanisms_that_the_pairs_dominate_gain_nothing(x: float) -> None:
    menus = tuple(
        (
            response(e),
            post_processed(response(e), 0.4),
            response(e / 2),
            tuple((b, a) for a, b in response(e)),
        )
        for e in (0.2, 0.5, 1.0)
    )
    assert best_play(menus, x) == pytest.approx(
        hockey_stick([menu[0] for menu in menus], x), rel=1e-12
    )


@pytest.mark.slow
def test_the_optimal_bound_is_this_product() -> None:
    costs = [PureDP(0.3), PureDP(0.7), ApproxDP(0.5, 1e-3), MultiDP(((1.0, 0.0), (0.5, 0.05)))]
    # CNS Theorem 1's pair for ((1, 0), (0.5, 0.05)), read off its trade-off function: a mixture of
    # two responses.
    share = (0.05 * (1 + math.e)) / (math.e - math.exp(0.5))
    mixture = tuple(
        (w * a, w * b) for w, e in ((share, 1.0), (1 - share, 0.5)) for a, b in response(e)
    )
    for x in (0.0, 0.5, 1.4):
        exact = hockey_stick([response(0.3), response(0.7), response(0.5, 1e-3), mixture], x)
        found = compose(
            Charge(dict.fromkeys(costs, 1)), epsilon=x, bound="optimal_setwise", rtol=1e-3
        )
        assert found.lower <= exact * (1 + 1e-9)
        assert exact <= found.delta * (1 + 1e-9)
        assert found.delta - found.lower <= 1e-3 * found.delta


def test_a_pair_that_dominates_in_one_direction_only_is_not_enough() -> None:
    """P = (.5, .5), Q = (.1, .9), three rounds, x = 0: a free choice of direction beats every
    product.
    """
    forward: Pair = ((0.5, 0.1), (0.5, 0.9))
    backward: Pair = tuple((b, a) for a, b in forward)
    best_product = max(
        hockey_stick(choice, 0.0) for choice in product((forward, backward), repeat=3)
    )
    free = best_play(((forward, backward),) * 3, 0.0)
    assert best_product == pytest.approx(0.604, abs=1e-12)
    assert free == pytest.approx(0.644, abs=1e-12)


def test_every_order_of_a_product_is_listed() -> None:
    """The oracle itself: on pairs that are no responses, a fixed order is one of its plays."""
    pairs = [((0.6, 0.3), (0.4, 0.7)), ((0.2, 0.25), (0.8, 0.75)), ((0.5, 0.1), (0.5, 0.9))]
    values = {
        round(hockey_stick([pairs[i] for i in order], 0.2), 12) for order in permutations(range(3))
    }
    assert values == {round(best_play(tuple((pair,) for pair in pairs), 0.2), 12)}
    assert np.isclose(
        best_play(((pairs[0], pairs[2]),), 0.2),
        max(hockey_stick([p], 0.2) for p in (pairs[0], pairs[2])),
    )
