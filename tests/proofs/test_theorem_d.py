"""Theorem D: the recursion's upper bound approximates the adaptive optimum of equal ranges, as
proven.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.setwise.lower_bounds import LastRanges
from dptopk.accounting.setwise.recursion import Layer, Rules, solve


def bounds(epsilon: float, k: int, steps: int) -> tuple[Layer, Layer]:
    above, below = (
        solve(Rules.of({epsilon: k}, steps, upper=side), (k,)) for side in (True, False)
    )
    return above, below


@pytest.mark.parametrize(("epsilon", "k"), [(0.3, 3), (0.1, 10), (1.5, 4)])
@pytest.mark.parametrize("eta", [0.5, 0.1])
def test_the_sandwich(epsilon: float, k: int, eta: float) -> None:
    """V(x) <= U(x) and U(x + η) <= e^η V(x), V taken from below on a finer grid."""
    coarse, _ = bounds(epsilon, k, math.ceil((2 * k + 1) * max(1.0, epsilon) / eta))
    fine, below = bounds(epsilon, k, 150)
    x = np.linspace(-0.5, 0.95, 25) * k * epsilon
    assert (LastRanges(below, fine).below(x) <= coarse.above(x)).all()
    # V lies between ``below`` and ``fine``: the claim is about V, so it is tested with the upper
    # end of that bracket.
    assert (coarse.above(x + eta) <= math.exp(eta) * fine.above(x) * (1 + 1e-9) + 1e-12).all()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(epsilon=st.floats(0.01, 3), more=st.floats(1e-3, 1), share=st.floats(0.001, 0.999))
def test_what_a_larger_range_can_do_a_smaller_one_nearly_can(
    epsilon: float, more: float, share: float
) -> None:
    """The step of the proof: losses move by at most c, probabilities grow by at most 1 + c/ε."""
    c = more * epsilon
    t, t_small = share * (epsilon + c), share * epsilon

    def often(range_: float, at: float) -> float:
        return math.expm1(at - range_) / math.expm1(-range_)

    large, small = often(epsilon + c, t), often(epsilon, t_small)
    assert large <= (1 + c / epsilon) * small * (1 + 1e-12)
    assert 1 - large <= (1 - small) * (1 + c / epsilon) + 1e-12
    assert abs(t - t_small) <= c * (1 + 1e-12)
    assert abs((t - epsilon - c) - (t_small - epsilon)) <= c * (1 + 1e-9)
