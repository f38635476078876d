"""Parameters near the ends of floating point: nothing raises, nothing is NaN, no δ > 0 becomes 0, ε
falls with δ.
"""

import math

import numpy as np
import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.pld.loss_components import GaussianLoss
from dptopk.costs import (
    CDP,
    ZCDP,
    BoundedRange,
    Charge,
    Cost,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)
from dptopk.errors import IncompatibleCosts

TINY, HUGE = 1e-200, 1e200
COSTS: list[Cost] = [
    PureDP(TINY), PureDP(1e-6), PureDP(HUGE),
    BoundedRange(TINY), BoundedRange(1e-6), BoundedRange(50.0), BoundedRange(HUGE),
    GaussianDP(TINY), GaussianDP(1e-8), GaussianDP(HUGE),
    CDP(TINY, TINY), CDP(0.0, HUGE), CDP(HUGE, HUGE),
    ZCDP(TINY), ZCDP(HUGE), ZCDP(1e-3, xi=HUGE),
    DiscreteGaussianDP(TINY, 1), DiscreteGaussianDP(HUGE, 1), DiscreteGaussianDP(1.0, 10**9),
    DiscreteGaussianDP(1e9, 1), DiscreteGaussianDP(1e9, 10**9),
    MultiDP(((HUGE, 0.0), (1.0, 0.1))), MultiDP(((TINY, 0.0), (TINY / 2, TINY / 100))),
]  # fmt: skip


@pytest.mark.parametrize("name", ["renyi", "zcdp_tight", "setwise_zcdp", "setwise_cdp", "gaussian"])
@pytest.mark.parametrize("cost", COSTS, ids=str)
def test_extreme_parameters(cost, name):
    for count in (1, 10**6):
        charge = Charge({cost: count})
        try:
            epsilons = [
                compose(charge, delta=delta, bound=name).epsilon
                for delta in (0.0, 1e-300, 1e-6, 0.9)
            ]
        except IncompatibleCosts:
            return
        assert not any(math.isnan(epsilon) for epsilon in epsilons)
        assert epsilons == sorted(epsilons, reverse=True)
        answers = [
            compose(charge, epsilon=epsilon, bound=name) for epsilon in (0.0, 1.0, 1e5, 1e300)
        ]
        deltas = [answer.delta for answer in answers]
        assert deltas == sorted(deltas, reverse=True)
        assert deltas[0] > 0
        limit = compose(charge, delta=0.0, bound=name).epsilon
        assert all(answer.delta > 0 for answer in answers if answer.epsilon < limit)
        assert all(answer.lower is None or answer.lower <= answer.delta for answer in answers)


def test_small_costs_do_not_vanish_in_a_sum():
    for name in ("renyi", "zcdp_tight", "setwise_zcdp", "setwise_cdp"):
        many = compose(Charge({BoundedRange(1e-6): 10**6}), delta=1e-9, bound=name).epsilon
        assert 1e-3 < many < 1e-2
        assert np.isfinite(many)


@pytest.mark.slow
@pytest.mark.parametrize("charge", ["1000000000*DLap(1e6, 100000)", "100000*DLap(10.0, 100000)"])
def test_a_product_too_wide_for_memory_is_left_to_other_bounds(charge: str) -> None:
    """The lattice of the exact product would have tens of millions of places."""
    found = compose(Charge.parse(charge), epsilon=10.0, bound="optimal_setwise")
    assert found.delta == 1.0
    assert found.note


@pytest.mark.parametrize("beside", [{}, {BoundedRange(0.1): 10}])
@pytest.mark.parametrize("mu", [1e5, 1e9, 1e150])
def test_no_list_of_a_huge_gaussians_losses(
    mu: float, beside: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pairs(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(GaussianLoss, "pairs", pairs)
    found = compose(Charge({GaussianDP(mu): 1, **beside}), delta=1e-6)
    assert mu**2 / 2 < found.epsilon < mu**2 / 2 * (1 + 20 / mu + 1e-9)
