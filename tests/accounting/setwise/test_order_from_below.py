"""Different ranges in one order, from below: strategies that know what they attain everywhere."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dptopk.accounting.setwise.order_from_below import PlayedInOrder, play_in_order
from dptopk.accounting.setwise.recursion import Rules, solve_in_order

RANGES = {0.31: 1, 0.5: 1, 0.83: 1}
X = np.linspace(-1.7, 1.7, 137)


def _kink(x):
    return np.maximum(-np.expm1(np.minimum(x, 0.0)), 0.0)


def _exact(epsilons, x, places=60):
    """The first range first, each by many t's, no grid in x; below the truth by about the square of
    a t's distance.
    """
    if not epsilons:
        return _kink(x)
    epsilon, *later = epsilons
    best = np.zeros_like(x)
    for t in np.linspace(0.0, epsilon, places):
        often = math.expm1(t - epsilon) / math.expm1(-epsilon)
        near = _exact(later, x - t, places)
        far = _exact(later, x + epsilon - t, places)
        best = np.maximum(best, often * near + (1 - often) * far)
    return best


@pytest.mark.parametrize("steps", [7, 20, 61])
@pytest.mark.parametrize("order", [[0], [0, 1], [1, 0]])
def test_what_is_attained_is_below_the_best_and_near_it(steps, order) -> None:
    ranges = dict(list(RANGES.items())[:2])
    found = play_in_order(ranges, order, steps, reach=9.0)
    exact = _exact([list(ranges)[place] for place in order], X)
    below = found.below(X)
    assert (below <= exact + 1e-4).all()
    assert (exact - below).max() < 0.6 / steps**2 + 1e-3


def test_rough_grids_are_below_fine_upper_bounds() -> None:
    """Any grid is below an upper bound of the same order, at nodes and between them."""
    played = [0, 0, 1, 2, 2]
    fine = solve_in_order(Rules.of(RANGES, 400, upper=True), played)
    above = fine.above(X)
    for steps in (3, 5, 11, 40, 97):
        found = play_in_order(RANGES, played, steps, reach=9.0)
        assert (found.below(X) <= above).all()
        nodes = (found.first + np.arange(len(found.worth))) * found.h
        inside = np.abs(nodes) < 2.5
        assert (found.worth <= fine.above(nodes))[inside].all()
    assert (above - found.below(X)).max() < 5e-3


def test_every_strategy_attains_its_line() -> None:
    """L + r (1 - u/u_j) is below V at all u up to u_j, not only within a cell; a mass that is 3%
    too large is caught.
    """
    played = [0, 1, 2]
    fine = solve_in_order(Rules.of(RANGES, 300, upper=True), played)
    found = play_in_order(RANGES, played, 40, reach=9.0)
    x = np.linspace(-1.6, 1.6, 81)
    above = fine.above(x)
    caught = False
    for node in range(0, len(found.worth), 3):
        at = (found.first + node) * found.h
        left = x <= at
        line = found.worth[node] - found.mass[node] * np.expm1(x - at)
        assert (line <= above + 1e-12)[left].all()
        false = found.worth[node] - 1.03 * found.mass[node] * np.expm1(x - at)
        caught |= bool((false > above)[left].any())
    assert caught


def test_moved_too_far_to_the_left_it_is_above() -> None:
    """A far end that is taken for one more to the left than it is, is caught."""
    found = play_in_order(RANGES, [0, 1], 40, reach=9.0)
    nodes = (found.first + np.arange(len(found.worth))) * found.h
    inside = np.abs(nodes) < 1.0
    right = found.moved_left(0.3 * found.h)
    exact = _exact([0.31, 0.5], nodes[inside] - 0.3 * found.h)
    assert (right.worth[inside] <= exact + 1e-4).all()
    wrong = found.moved_left(1.3 * found.h)
    assert (wrong.worth[inside] > exact + 1e-3).any()


def test_outside_of_what_is_kept_and_of_what_is_no_number() -> None:
    found = play_in_order(RANGES, [2], 10, reach=1.0)
    ends = found.below(np.array([-50.0, -3.0, 40.0, math.nan, math.inf]))
    assert ends[0] == pytest.approx(1.0)
    assert ends[1] <= -math.expm1(-3.0)
    assert ends[1] > 0.9
    assert (ends[2:] == 0).all()
    wide = found.between(found.first - 5, found.first + len(found.worth) + 4)
    assert len(wide.worth) == len(wide.mass) == len(found.worth) + 10
    assert (wide.worth[-5:] == 0).all()
    far = found.between(found.first + 1000, found.first + 1003)
    assert (far.worth == 0).all()
    assert isinstance(far, PlayedInOrder)
    assert (replace(found, worth=found.worth * 0).below(X) >= 0).all()


def test_ranges_that_fit_no_grid_lose_little() -> None:
    """Twenty of them; with ε's rounded down to a grid of 240 steps 0.54325 was attained."""
    sizes = np.sort(np.random.default_rng(8).uniform(0.02, 0.1, 20)).tolist()
    found = play_in_order(dict.fromkeys(sizes, 1), range(20), 192, reach=6.0)
    assert found.below(np.array([0.5437]))[0] > 1e-6
    finer = solve_in_order(Rules.of(dict.fromkeys(sizes, 1), 400, upper=True), range(20))
    assert found.below(np.array([0.5443]))[0] < finer.delta(0.5443)
