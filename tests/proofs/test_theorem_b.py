"""Theorem B and the certified recursion, against brute force over all adaptive orders."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Charge, GaussianDP, PureDP

from .adversary import brute_force

SETWISE = {"bound": "optimal_setwise"}
Value = Callable[[np.ndarray], np.ndarray]


def nothing_left(x: np.ndarray) -> np.ndarray:
    return np.maximum(-np.expm1(x), 0.0)


def pure(epsilon: float, then: Value) -> Value:
    """The value of playing an ε-DP cost and then going on."""
    p = 1 / (1 + math.exp(-epsilon))
    return lambda x: p * then(x - epsilon) + (1 - p) * then(x + epsilon)


def gaussian(mu: float, then: Value) -> Value:
    nodes, weights = np.polynomial.hermite_e.hermegauss(41)
    losses, weights = mu * mu / 2 + mu * nodes, weights / weights.sum()
    return lambda x: then(x[..., None] - losses) @ weights


def bounded_range(epsilon: float, then: Value, points: int = 601) -> Value:
    """The value of playing an ε-BR cost with the best t for the moment, and then going on."""
    t = np.linspace(0, epsilon, points)
    q = -np.expm1(t - epsilon) / -math.expm1(-epsilon)
    return lambda x: (q * then(x[..., None] - t) + (1 - q) * then(x[..., None] + epsilon - t)).max(
        axis=-1
    )


def at(value: Value, x: float) -> float:
    return float(value(np.array([x]))[0])


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    ranges=st.lists(st.sampled_from([0.2, 0.4, 0.6, 1.0]), min_size=1, max_size=4),
    pure_=st.lists(st.sampled_from([0.2, 0.5, 0.7]), max_size=2),
    share=st.floats(0, 0.9),
)
def test_the_bracket_holds_against_brute_force(
    ranges: list[float], pure_: list[float], share: float
) -> None:
    x = share * (sum(ranges) + sum(pure_))
    costs: dict[object, int] = {}
    for cost in [BoundedRange(e) for e in ranges] + [PureDP(e) for e in pure_]:
        costs[cost] = costs.get(cost, 0) + 1
    found = compose(Charge(costs), epsilon=x, rtol=1e-2, **SETWISE)
    achieved = brute_force(tuple(sorted(ranges)), tuple(sorted(pure_)), x, points=9)
    assert achieved <= found.delta * (1 + 1e-12)
    assert found.lower is None or found.lower <= found.delta


@pytest.mark.parametrize(("epsilon", "mu"), [(0.5, 0.3), (1.0, 1.0), (0.2, 0.05)])
@pytest.mark.parametrize("x", [0.0, 0.3, 0.9])
def test_playing_dominated_costs_first_is_never_worse(epsilon: float, mu: float, x: float) -> None:
    for dominated in (lambda then: gaussian(mu, then), lambda then: pure(mu, then)):
        first = at(dominated(bounded_range(epsilon, nothing_left)), x)
        last = at(bounded_range(epsilon, dominated(nothing_left)), x)
        assert first >= last * (1 - 1e-12)
        # With two ranges the dominated cost may also lie in between.
        between = at(
            bounded_range(epsilon, dominated(bounded_range(epsilon / 2, nothing_left, 61)), 61), x
        )
        assert at(
            dominated(bounded_range(epsilon, bounded_range(epsilon / 2, nothing_left, 61), 61)), x
        ) >= between * (1 - 1e-12)


def test_published_orders() -> None:
    """CR Lemma 5.3 at ε = 1, ε_g = 0.3."""
    first = pure(1.0, bounded_range(1.0, bounded_range(1.0, nothing_left)))
    middle = bounded_range(1.0, pure(1.0, bounded_range(1.0, nothing_left)))
    last = bounded_range(1.0, bounded_range(1.0, pure(1.0, nothing_left)))
    assert at(first, 0.3) == pytest.approx(0.413601, abs=2e-6)
    assert at(middle, 0.3) == pytest.approx(0.409278, abs=2e-6)
    assert at(last, 0.3) == pytest.approx(0.409278, abs=2e-6)
    found = compose(
        Charge({PureDP(1.0): 1, BoundedRange(1.0): 2}), epsilon=0.3, rtol=1e-4, **SETWISE
    )
    assert found.lower <= 0.413602
    assert found.delta >= 0.4136


def test_the_order_of_different_ranges_matters() -> None:
    smaller_first = at(bounded_range(0.5, bounded_range(1.0, nothing_left)), 0.0)
    larger_first = at(bounded_range(1.0, bounded_range(0.5, nothing_left)), 0.0)
    assert smaller_first == pytest.approx(0.2598, abs=1e-4)
    assert larger_first == pytest.approx(0.2449, abs=1e-4)
    found = compose(
        Charge({BoundedRange(0.5): 1, BoundedRange(1.0): 1}), epsilon=0.0, rtol=1e-4, **SETWISE
    )
    assert smaller_first <= found.delta
    assert found.lower > larger_first


def test_with_one_range_at_most_the_dominated_part_is_all_that_adapts() -> None:
    """CR Corollary 5.1: with at most one BR cost, batch and adaptive optimum agree."""
    charge = Charge({PureDP(0.4): 6, BoundedRange(0.4): 1})
    batch = compose(charge, epsilon=0.8, bound="br_dp_nonadaptive", interaction="batch")
    adaptive = compose(charge, epsilon=0.8, rtol=1e-4, **SETWISE)
    assert adaptive.lower <= batch.delta * (1 + 1e-9)
    assert batch.delta * (1 - 1e-9) <= adaptive.delta


def test_adaptivity_gains_something_and_not_much() -> None:
    """DDR Theorem 4: for ε_g <= (k - 3) ε the adaptive optimum is strictly larger than the batch
    one.
    """
    charge = Charge({BoundedRange(0.5): 6})
    batch = compose(charge, epsilon=0.7, bound="br_nonadaptive", interaction="batch")
    adaptive = compose(charge, epsilon=0.7, rtol=1e-4, **SETWISE)
    assert batch.delta < adaptive.lower < 1.1 * batch.delta
    end = compose(charge, epsilon=2.6, rtol=1e-2, **SETWISE)  # at (k - 1) ε and beyond they agree
    assert end.lower <= compose(
        charge, epsilon=2.6, bound="br_nonadaptive", interaction="batch"
    ).delta * (1 + 1e-9)


@pytest.mark.slow
def test_gaussian_and_ranges_against_quadrature() -> None:
    exact = at(gaussian(0.8, bounded_range(0.5, bounded_range(0.5, nothing_left, 201), 201)), 0.6)
    found = compose(
        Charge({GaussianDP(0.8): 1, BoundedRange(0.5): 2}), epsilon=0.6, rtol=1e-3, **SETWISE
    )
    assert found.lower * (1 - 2e-3) <= exact <= found.delta * (1 + 2e-3)
