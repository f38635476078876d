"""Very many equal concentrated costs: the Gaussian that covers the game of a few, and its steps."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dptopk import Charge, compose
from dptopk.accounting.curves import Query
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.gaussian_after_game import (
    CoveringGaussian,
    _is_covered,
    covering_gaussian,
)
from dptopk.accounting.setwise.majorants import ValueTable
from dptopk.accounting.setwise.zcdp_gaussian import (
    concentrated_gaussian,
    variance_after,
    zcdp_constant,
)
from dptopk.costs import CDP, ZCDP

RHO = 0.004


def _covering(count: int, played: int = 4) -> CoveringGaussian:
    reach = 10 * math.sqrt(2 * RHO * played)
    game = ConcentratedGame.of(Charge({ZCDP(RHO): played}), reach)
    covering = covering_gaussian(game, RHO, count)
    assert covering is not None
    return covering


def _responses_delta(count: int, x: float) -> float:
    """δ(x) of randomised responses of ε with ε tanh(ε/2) = ρ, which is exactly ρ-zCDP."""
    low = 0.0
    high = 2.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle * math.tanh(middle / 2) < RHO:
            low = middle
        else:
            high = middle
    heads = np.arange(count + 1)
    losses = (2 * heads - count) * low
    masses = stats.binom.pmf(heads, count, 1 / (1 + math.exp(-low)))
    return float(masses @ -np.expm1(np.minimum(x - losses, 0.0)))


def _gaussian_delta(variance: float, x: float) -> float:
    mean = variance / 2
    deviation = math.sqrt(variance)
    tail = stats.norm.sf((x - mean) / deviation)
    return float(tail - math.exp(x) * stats.norm.sf((x + mean) / deviation))


@pytest.mark.parametrize("count", [1, 3, 7, 25, 101])
def test_no_play_is_above_the_gaussian_that_covers(count) -> None:
    covering = _covering(max(count, 4))
    for x in [0.0, *np.linspace(0.01, 4 * math.sqrt(2 * RHO * count), 9)]:
        above = covering.answer(Query(epsilon=max(float(x), 1e-12)))
        assert _responses_delta(count, float(x)) <= above
        assert _gaussian_delta(2 * RHO * count, float(x)) <= above
    # Responses are worth more than Gaussians at 0: without any excess this would fail.
    assert _responses_delta(count, 0.0) > _gaussian_delta(2 * RHO * count, 0.0)


def test_half_of_its_excess_is_too_little_for_one_response() -> None:
    game = ConcentratedGame.of(Charge({ZCDP(RHO): 1}), 10 * math.sqrt(2 * RHO))
    table, _ = game.tables((1,))
    missing = float(table.values[-1])
    assert _is_covered(table, missing, 3.2 * RHO)
    half = 2.6 * RHO
    assert not _is_covered(table, missing, half)
    assert _responses_delta(1, 0.0) > _gaussian_delta(half, 0.0)


def test_the_table_is_covered_between_its_nodes_and_beyond_them() -> None:
    h = 0.05
    variance = 0.09
    x = np.arange(40) * h
    at_nodes = np.array([_gaussian_delta(variance, node) for node in x])
    touching = ValueTable(h, at_nodes, upper=True)
    # Its chords are above the profile that it touches at the nodes.
    assert not _is_covered(touching, float(at_nodes[-1]), variance)
    slightly_more = variance + h * h
    missing = float(at_nodes[-1])
    assert _is_covered(touching, missing, slightly_more)
    for place in range(len(x) - 1):
        middle = math.log((math.exp(x[place]) + math.exp(x[place + 1])) / 2)
        chord = (at_nodes[place] + at_nodes[place + 1]) / 2
        assert chord <= _gaussian_delta(slightly_more, middle) + missing
    # What is worth more beyond the last node than is added is not covered.
    assert not _is_covered(touching, float(at_nodes[-1]) / 2, variance)


def test_steps_from_a_larger_variance_add_less() -> None:
    starts = RHO * np.array([1.0, 2.0, 8.0, 40.0])
    added = variance_after(RHO, 30 * RHO, starts) - starts - 60 * RHO
    assert (np.diff(added) < 0).all()
    assert (added > 0).all()
    least = min(variance_after(RHO, 30 * RHO, RHO * start) for start in np.linspace(1, 8, 71))
    assert concentrated_gaussian({RHO: 30}) == pytest.approx(least)


@pytest.mark.slow
def test_brackets_of_many_costs() -> None:
    """Narrow, rising with the count, falling with δ, and the same by δ and by ε."""
    few, many = (compose(Charge({ZCDP(RHO): count}), delta=1e-6) for count in (21, 41))
    assert few.lower <= few.epsilon < many.lower <= many.epsilon
    for bound in (few, many):
        assert bound.epsilon - bound.lower < 6e-3 * bound.epsilon
    larger_delta = compose(Charge({ZCDP(RHO): 41}), delta=1e-5)
    assert larger_delta.epsilon < many.lower
    at_epsilon = compose(Charge({ZCDP(RHO): 41}), epsilon=many.epsilon)
    assert at_epsilon.lower <= 1e-6 * (1 + 1e-9)
    assert at_epsilon.delta == pytest.approx(1e-6, rel=0.05)


def test_a_gaussian_that_lacks_all_of_delta_bounds_no_epsilon() -> None:
    covering = CoveringGaussian(1.0, 1e-6)
    assert math.isinf(covering.answer(Query(delta=1e-6)))
    lacks_more = covering._replace(missing=1.5e-6)
    assert covering.answer(Query(delta=2e-6)) < lacks_more.answer(Query(delta=2e-6))
    assert covering.answer(Query(epsilon=100.0)) >= 1e-6


def test_costs_that_are_too_large_are_not_covered() -> None:
    game = ConcentratedGame.of(Charge({ZCDP(0.6): 1}), 10.0)
    assert covering_gaussian(replace(game, counts=(1,)), 0.6, 30) is None


@pytest.mark.parametrize(
    ("charge", "epsilon"),
    [
        (Charge({ZCDP(0.1): 10**10}), 1.00025e9),
        (Charge({CDP(0.1, 0.4): 10**12}), 8.0003e10),
        (Charge({ZCDP(0.5): 10**18}), 5.0001e17),
    ],
)
def test_enormous_charges_take_little_memory(charge: Charge, epsilon: float) -> None:
    """Gaussians before a game have nodes in proportion to their deviation: here up to 1 PB."""
    tracemalloc.start()
    try:
        bound = compose(charge, delta=1e-6)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2e8
    rho = math.fsum(times * zcdp_constant(cost) for cost, times in charge)
    assert rho < bound.epsilon <= epsilon
    assert bound.lower is None or bound.lower <= bound.epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cost", "count", "known"),
    [
        (CDP(0.05, 0.6), 30, 15.4995),
        (ZCDP(0.3), 40, 35.7682),
        pytest.param(ZCDP(0.5), 40, 51.0689, marks=pytest.mark.study),
        pytest.param(ZCDP(0.3), 30, 29.6376, marks=pytest.mark.study),
        pytest.param(ZCDP(0.1), 40, 17.3919, marks=pytest.mark.study),
    ],
)
def test_a_further_bound_takes_no_work_from_several_games(
    cost: ZCDP | CDP, count: int, known: float
) -> None:
    """Two games are a proven bound of at most ``known`` within the normal effort, and Theorem H
    after one of them may be worse: asked first it left no work for the two games, and up to 14%
    more ε.
    """
    bound = compose(Charge({cost: count}), delta=1e-6)
    assert bound.lower <= bound.epsilon <= known
