"""Bounded ranges beside concentrated costs in one game: steps of any ε on a grid, and both ends
against plays of an adversary.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dptopk import Charge, compose
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.game_answers import delta_at, epsilon_at
from dptopk.accounting.setwise.majorants import ValueTable
from dptopk.accounting.setwise.range_steps import (
    between_nodes,
    range_on_grid,
    range_step_above,
    range_step_below,
)
from dptopk.costs import ZCDP

H = 0.05
LAST = 40
NODES = np.arange(LAST + 1)
EPSILONS = [0.5, 0.31, 0.047, 0.05 * 7 + 1e-12, 1.234]


def _kink(x):
    return np.maximum(-np.expm1(np.minimum(x, 0.0)), 0.0)


def _after_responses(x):
    """Three randomised responses of 0.3, exactly."""
    chance = 1 / (1 + math.exp(-0.3))
    total = np.zeros_like(x)
    for hits in range(4):
        mass = math.comb(3, hits) * chance**hits * (1 - chance) ** (3 - hits)
        total = total + mass * _kink(x - 0.3 * (2 * hits - 3))
    return total


VALUES = [_kink, _after_responses]


def _exact_step(value, epsilon, x):
    """The largest chord over x, by 4001 places of its near end: below the true step by little."""
    t = np.linspace(0.0, epsilon, 4001)[:, None]
    near = np.expm1(epsilon - t) / -np.expm1(-epsilon) * np.exp(t - epsilon)
    return (near * value(x - t) + (1 - near) * value(x + epsilon - t)).max(axis=0)


def _tables(value):
    nodes = np.arange(LAST + 60)
    values = value(nodes * H)
    return ValueTable(H, values, upper=True), ValueTable(H, values, upper=False)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_step_lies_between_its_bounds(value, epsilon) -> None:
    upper, lower = _tables(value)
    on_grid = range_on_grid(epsilon, H)
    above = range_step_above(on_grid, upper, LAST)
    below = range_step_below(on_grid, lower, upper, LAST)
    exact = _exact_step(value, epsilon, NODES * H)
    assert (exact <= above).all()
    # The largest chord of 4001 is below the largest of all by a share of (ε/8000)².
    assert (below <= exact + 1e-7).all()
    assert (above - exact).max() < 5e-4
    # From below only multiples of h are tried as t, here few or none.
    assert (exact - below).max() < (0.0025 if epsilon > H else 0.02)


def test_a_coin_that_is_a_little_too_small_is_caught() -> None:
    on_grid = range_on_grid(0.31, H)
    upper, _ = _tables(_after_responses)
    exact = _exact_step(_after_responses, 0.31, NODES * H)
    below = range_step_above(replace(on_grid, chance=0.0), upper, LAST)
    whole = range_step_above(on_grid, upper, LAST)
    assert (exact > below).any()
    assert (whole <= range_step_above(replace(on_grid, chance=1.0), upper, LAST) * (1 + 1e-9)).all()
    mean = math.exp(-on_grid.below * H) * (1 - on_grid.chance)
    mean += math.exp(-on_grid.above * H) * on_grid.chance
    assert mean <= math.exp(-0.31) <= mean * (1 + 1e-10)


@pytest.mark.parametrize("epsilon", [0.3, 0.1 * 3, 1.7, 1 / 3])
@pytest.mark.parametrize("h", [0.1, 0.1 / 3, 0.3 / 7])
def test_multiples_are_outward(epsilon, h) -> None:
    on_grid = range_on_grid(epsilon, h)
    assert on_grid.above * h >= epsilon * (1 - 1e-15)
    assert 0 <= on_grid.short < h
    assert on_grid.above - on_grid.below <= 1


def test_a_line_between_nodes_is_below_v() -> None:
    upper, lower = _tables(_after_responses)
    rough = replace(lower, values=lower.values * 0.98)
    nodes = np.arange(-30, 60)
    for distance in (0.0, 0.01, 0.049):
        exact = _after_responses(nodes * H - distance)
        assert (between_nodes(rough, upper, nodes, distance) <= exact).all()
        close = between_nodes(lower, upper, nodes, distance)
        assert (close <= exact + 1e-12).all()
        # Left of a kink at a node the line is the one to its right.
        assert np.median(exact - close) < 1e-4
    # Continued farther than the distance it says, or from bounds that are no bounds, it is not.
    assert (between_nodes(lower, upper, nodes, 0.049) > _after_responses(nodes * H)).any()


def _game(text, reach=1.6, fineness=1.0):
    charge = Charge.parse(text)
    ranges = {cost.epsilon: times for cost, times in charge if not hasattr(cost, "rho")}
    concentrated = Charge(charge.of(ZCDP))
    return ConcentratedGame.of(concentrated, reach, fineness=fineness, ranges=ranges)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["ZCDP(0.02) + 2*BR(0.3)", "ZCDP(0.02) + BR(0.3) + BR(0.17)"])
def test_plays_of_ranges_and_laws_are_never_above(text) -> None:
    """The adversary knows the definition alone: laws of two outcomes that are 0.02-zCDP at 400
    orders, and chords with near ends at random, in every order, chosen greedily at each node.
    """
    game = _game(text)
    rng = np.random.default_rng(3)
    laws = _laws_of_two_outcomes(0.02, rng)
    assert len(laws) > 15
    nodes = np.arange(round(-2.5 / game.h), round(2.5 / game.h) + 1)
    x = nodes * game.h
    kink = _kink(x)
    best = {(0,) * len(game.counts): kink}
    for costs_left in sorted(np.ndindex(*[count + 1 for count in game.counts]), key=sum)[1:]:
        attained = np.zeros(len(x))
        for place, count in enumerate(costs_left):
            if not count:
                continue
            after = (*costs_left[:place], count - 1, *costs_left[place + 1 :])
            if place:
                epsilon = game.ranges[place - 1]
                ts = rng.uniform(0, epsilon, 60)
                plays = [([t, t - epsilon], _masses(t, t - epsilon)) for t in ts]
            else:
                plays = laws
            for losses, masses in plays:
                value = sum(
                    mass * np.interp(x - loss, x, best[after], left=0.0, right=0.0)
                    for loss, mass in zip(losses, masses, strict=True)
                )
                attained = np.maximum(attained, value)
        best[costs_left] = attained * (1 - 2e-3)  # interpolation in x is above V by h²/8
        above, below = game.tables(costs_left)
        inner = (nodes >= 0) & (nodes < len(above.values)) & (x < 1.0)
        ratios = best[costs_left][inner] / above.values[: inner.sum()]
        assert ratios.max() <= 1
        assert ratios.max() > 0.9
        assert (below.values <= above.values).all()


def _masses(large, low):
    chance = -math.expm1(-low) / (math.exp(-large) - math.exp(-low))
    return [chance, 1 - chance]


def _laws_of_two_outcomes(rho, rng):
    laws = []
    orders = np.geomspace(1e-3, 2e3, 400)
    for _ in range(400):
        large = rng.uniform(0.05, 0.9)
        low = -rng.uniform(0.0, 0.3)
        masses = np.array(_masses(large, low))
        losses = np.array([large, low])
        holds = True
        for values, weights in ((losses, masses), (-losses, masses * np.exp(-losses))):
            logs = orders[:, None] * values + np.log(weights)
            moment = np.logaddexp.reduce(logs, axis=1)
            holds &= bool((moment <= orders * (1 + orders) * rho).all())
        if holds:
            laws.append((losses, masses))
    return laws


@pytest.mark.slow
@pytest.mark.parametrize("text", ["ZCDP({rho}) + 3*BR(0.3)", "2*ZCDP({rho}) + BR(0.3) + BR(0.37)"])
def test_ranges_that_are_concentrated_are_a_play(text) -> None:
    """A zCDP cost may be played as a bounded range that satisfies it: another engine values it."""
    epsilon = 0.25
    rho = float(np.nextafter(epsilon**2 / 8, 1))
    found = compose(Charge.parse(text.format(rho=rho)), delta=1e-5)
    times = 2 if text.startswith("2") else 1
    played = Charge.parse(f"{times}*BR({epsilon})" + text[text.index(" +") :])
    play = compose(played, delta=1e-5)
    assert play.lower <= found.epsilon
    assert found.epsilon <= found.lower * 1.002


@pytest.mark.slow
def test_a_game_of_ranges_that_are_a_little_too_small_is_caught() -> None:
    """A game of smaller ranges, or of a smaller zCDP cost, is worth less than what can be
    played.
    """
    charge = Charge.parse("ZCDP(0.01) + 3*BR(0.3)")
    attained = compose(charge, delta=1e-5).lower
    for text in ("ZCDP(0.01) + 3*BR(0.295)", "ZCDP(0.0095) + 3*BR(0.3)"):
        small = epsilon_at(_game(text), 1e-5, 1e-5, math.inf)
        assert small.upper < attained


@pytest.mark.slow
def test_order_count_and_epsilon() -> None:
    texts = ["ZCDP(0.01) + BR(0.2)", "ZCDP(0.01) + BR(0.23)", "ZCDP(0.01) + 2*BR(0.23)"]
    ends = [epsilon_at(_game(text), 1e-5, 1e-5, math.inf) for text in texts]
    for smaller, larger in pairwise(ends):
        assert smaller.lower <= smaller.upper < larger.lower <= larger.upper
    same = compose(Charge.parse("BR(0.2) + ZCDP(0.01)"), delta=1e-5)
    assert same.epsilon == compose(Charge.parse(texts[0]), delta=1e-5).epsilon
    game = _game(texts[2])
    deltas = [delta_at(game, x) for x in np.linspace(0.0, 1.4, 57)]
    assert all(ends.lower <= ends.upper for ends in deltas)
    for left, right in pairwise(deltas):
        assert right.upper <= left.upper
        assert right.lower <= left.upper


@pytest.mark.slow
def test_other_points_of_a_profile_are_not_capped_by_the_answer_of_one() -> None:
    charge = Charge.parse("ZCDP(0.01) + 2*BR(0.2)")
    bound = compose(charge, delta=1e-5)
    deltas = np.geomspace(1e-3, 1e-7, 6)
    rows = bound.profile(deltas=deltas)
    for place in (0, 5):
        alone = compose(charge, delta=float(deltas[place]))
        assert alone.lower <= rows.epsilons[place] <= alone.epsilon * 1.01
