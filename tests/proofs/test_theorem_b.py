"""Theorem B and the certified recursion, against brute force over all adaptive orders."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Charge, PureDP

from .adversary import brute_force

SETWISE = {"bound": "optimal_setwise"}


@settings(max_examples=25, deadline=None)
@given(
    ranges=st.lists(st.sampled_from([0.2, 0.4, 0.6, 1.0]), min_size=1, max_size=4),
    pure=st.lists(st.sampled_from([0.2, 0.5, 0.7]), max_size=2),
    share=st.floats(0, 0.9),
)
def test_the_bracket_holds_against_brute_force(ranges: list[float], pure: list[float], share: float) -> None:
    x = share * (sum(ranges) + sum(pure))
    costs: dict[object, int] = {}
    for cost in [BoundedRange(e) for e in ranges] + [PureDP(e) for e in pure]:
        costs[cost] = costs.get(cost, 0) + 1
    found = compose(Charge(costs), epsilon=x, rtol=1e-2, **SETWISE)
    achieved = brute_force(tuple(sorted(ranges)), tuple(sorted(pure)), x, points=9)
    assert achieved <= found.delta * (1 + 1e-12)
    assert found.lower is None or found.lower <= found.delta
