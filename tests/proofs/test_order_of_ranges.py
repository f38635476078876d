"""The order of bounded ranges: of two the smaller first is best (closed forms); of four it need not
be.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dptopk.accounting.setwise.bellman_step import lower_step, upper_step
from dptopk.accounting.setwise.lower_bounds import LastRanges
from dptopk.accounting.setwise.recursion import Rules, solve_in_order


def in_order(
    steps: list[int], h: float, node: int, step: Callable[..., np.ndarray], rounding: float
) -> float:
    """The value at node · h of ranges played first to last: from above or from below, as ``step``
    bounds one step.
    """
    reach = sum(steps)
    values = np.maximum(-np.expm1((node + np.arange(-reach, reach + 1)) * h), 0.0) * (1 + rounding)
    values += max(rounding, 0.0) * 1e-276
    for N in reversed(steps):
        values = step(values, N, h)
    return float(values[0])


def test_of_four_ranges_the_smallest_first_can_be_worse() -> None:
    """0.5 before three times 0.8 is worth less at x = 0.625 than after the first of them: certified
    from both sides.

    Of 0.5 and one or two times 0.8, no such thing.
    """
    h, a, b = 0.005, 100, 160
    sorted_above = in_order([a, b, b, b], h, 125, upper_step, 1e-14)
    swapped_below = in_order([b, a, b, b], h, 125, lower_step, -1e-14)
    assert swapped_below > sorted_above * (1 + 1e-4)
    for rest in ([b], [b, b]):
        above = in_order([a, *rest], h, 125, upper_step, 1e-14)
        for place in range(1, len(rest) + 1):
            other = in_order([*rest[:place], a, *rest[place:]], h, 125, lower_step, -1e-14)
            assert other < above


def one_first(first: float, second: float, x: float) -> float:
    """δ(x) of two ranges in this order, by the cases of the proof in docs/notes/setwise.md."""

    def worth(at: float) -> list[float]:
        b, a = first, second  # b's chord over the function of one step a
        half_a, half_b, found = a / 2, b / 2, [0.0]
        if -b <= at <= b:  # both ends beyond the reach of a
            found.append((math.cosh((at + b) / 2) - 1) / math.sinh(half_b))
        if abs(at) <= a - b / 2:  # both within
            found.append((math.cosh((at + a) / 2) - 1 / math.cosh(half_b / 2)) / math.sinh(half_a))
        T = (at + 2 * a - b) / 6  # the left end within
        if max(0.0, (2 * a - b) / 4) <= T <= half_a:
            w = 2 * math.sinh(half_b) * math.sinh(T) * math.sinh(2 * T - half_a + half_b)
            w += 2 * math.sinh(half_a - T) * math.sinh(half_b - half_a + T) ** 2
            found.append(w / (math.sinh(half_a) * math.sinh(half_b)))
        return found

    kink = 2 * math.sinh(x / 2)
    return math.exp(x / 2) * max(kink, *worth(x), *(w + kink for w in worth(-x))) - math.expm1(x)


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.8), (0.3, 1.2), (1.0, 1.05), (0.7, 1.4), (2.0, 3.0)])
def test_of_two_ranges_the_smaller_first_is_best(a: float, b: float) -> None:
    """The closed forms are what the recursion brackets, and in the order of the theorem."""
    rules = [Rules.of({a: 1, b: 1}, 400, upper=upper) for upper in (False, True)]
    low, high = ([solve_in_order(one, order) for order in ([0, 1], [1, 0])] for one in rules)
    x = np.linspace(0.0, a + b, 41)[:-1]
    larger = np.array([one_first(b, a, at) for at in x])
    assert (LastRanges(low[1], high[1]).below(x) <= larger + 1e-12).all()
    assert (larger <= high[1].above(x) + 1e-12).all()
    assert (larger <= high[0].above(x) + 1e-12).all()
    assert (
        LastRanges(low[0], high[0]).below(x) - larger
    ).max() > 1e-5  # and it does make a difference


def test_the_inequalities_of_the_proof() -> None:
    """Both brackets are 0 at one end, and rise."""
    for p in np.linspace(0.05, 2, 40):
        r = np.linspace(p, 2 * p, 200)
        bracket = 1.5 * np.sinh(r) - 0.5 * np.sinh(3 * r - 4 * p) - 2 * math.sinh(p)
        assert bracket[0] == pytest.approx(0, abs=1e-12)
        assert (np.diff(bracket) >= -1e-12).all()
        e = np.linspace(0, p, 200)
        bracket = 1.5 * np.sinh(p + e) + 0.5 * np.sinh(p - 3 * e) - 2 * math.sinh(p)
        assert bracket[0] == pytest.approx(0, abs=1e-12)
        assert (np.diff(bracket) >= -1e-12).all()
