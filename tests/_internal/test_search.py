"""Searches: the end that is returned was tried, on the side that was asked for, with the work of a
logarithm.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dptopk._internal.search import bisect, bisect_each, bracket, cross_each, first_true

RANGES = [
    (low, most)
    for low in (-7, 0, 1, 5)
    for most in (None, 1, 2, 7, 40, 1000)
    if most is None or most >= low
]


@pytest.mark.parametrize("change", [-5, 0, 1, 2, 3, 31, 32, 33, 100])
@pytest.mark.parametrize(("low", "most"), RANGES)
def test_first_true(low, most, change):
    tried = []
    found = first_true(lambda n: tried.append(n) or n >= change, low, most)
    assert found == min(max(low, change), math.inf if most is None else most)
    assert all(low <= n < (math.inf if most is None else most) for n in tried)
    assert len(tried) <= 2 * (found - low + 2).bit_length() + 1


def test_first_true_far_away():
    tried = []
    assert first_true(lambda n: tried.append(n) or n >= 10**100, 0) == 10**100
    assert len(tried) < 700


@pytest.mark.parametrize("start", [0.3, 1.0, 900.0])
@pytest.mark.parametrize("change", [0.001, 0.3, 1.0, 77.0])
@pytest.mark.parametrize("factor", [1.5, 2.0, 4.0])
def test_bracket(start, change, factor):
    seen = {}
    low, high = bracket(lambda x: seen.setdefault(x, x < change), start, factor)
    assert seen[low]
    assert not seen[high]
    assert high == pytest.approx(low * factor)


def test_what_a_bracket_does_not_try():
    assert bracket(lambda x: True, 1.0, most=1e6)[1] >= 1e6
    assert bracket(lambda x: False, 1.0, least=1e-6)[0] <= 1e-6


@pytest.mark.parametrize("geometric", [False, True])
@pytest.mark.parametrize("change", [0.1, 1 / 3, 1.0, math.pi, 4.0])
def test_bisect_ends_between_neighbours(change, geometric):
    seen = {}
    low, high = bisect(lambda x: seen.setdefault(x, x < change), 0.05, 5.0, geometric=geometric)
    assert seen[low]
    assert not seen[high]
    assert high - low <= 4e-16 * high
    narrow = bisect(lambda x: x < change, 0.05, 5.0, rtol=0.1, geometric=geometric)
    assert narrow[0] < change <= narrow[1]
    assert narrow[1] - narrow[0] <= 0.1 * narrow[1]


def test_each_is_bisected_alone():
    roots = np.array([[0.0, 0.25], [math.pi, 10.0]])
    low, high = bisect_each(lambda x: x < roots, np.full((2, 2), -1.0), np.full((2, 2), 11.0))
    assert (low <= roots).all()
    assert (high >= roots).all()
    assert (high - low).max() < 2e-15


def test_roots_of_many_falling_functions_are_found_together_in_few_steps():
    """Sums of Gumbel and of normal tails around counts that are far apart for their noise, and
    equal ones: where they are as large as the number that is wanted.
    """
    ndtr = pytest.importorskip("scipy.special").ndtr
    counts = np.stack([1e5 / np.arange(1, 60), np.full(59, 500.0), np.linspace(1e3, 1, 59)])
    wanted = np.array([[10.5], [20.0], [3.0]])
    for tail in (lambda x: -np.expm1(-np.exp(np.minimum(-x, 50.0))), lambda x: ndtr(-x)):
        calls = []

        def excess(level, tail=tail, calls=calls):
            calls.append(level)
            number = tail((level - counts) / 5.0).sum(axis=1, keepdims=True)
            return np.log(np.maximum(number / wanted, 1e-300))

        ends = np.full((3, 1), -100.0), counts[:, :1] + 100.0
        found = cross_each(excess, *ends, counts[:, 9:10], 5.0)
        assert np.abs(excess(found)).max() <= 1e-6
        assert len(calls) < 25
        low, high = bisect_each(lambda level, excess=excess: excess(level) > 0, *ends)
        assert (np.abs(found - low) < 1e-3).all()
        assert (low <= high).all()


def test_a_jump_over_0_is_bracketed_and_where_none_is_an_end_is_returned():
    def excess(point):
        return np.where(point < [[3.0], [-1.0], [99.0]], 1.0, -2.0)

    found = cross_each(excess, np.zeros((3, 1)), np.full((3, 1), 9.0), np.ones((3, 1)), 0.1)
    assert found == pytest.approx(np.array([[3.0], [0.0], [9.0]]), abs=1e-5)
