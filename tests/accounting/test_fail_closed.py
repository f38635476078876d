"""``compose`` at the edges: overflow, masses of failure that fill δ, counts without end, and the deadline."""

import math
import time

import numpy as np
import pytest

from dptopk.accounting.bounds import compose, names, table
from dptopk.accounting.pld.grid import LabelLaw
from dptopk.accounting.pld.laws import Power
from dptopk.costs import ApproxDP, BoundedRange, Charge, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP
from dptopk.errors import IncompatibleCosts

SEVERAL = MultiDP(((2.0, 0.0), (1.0, 1e-3), (0.5, 0.01)))


def every_bound(charge, **asked):
    """The answers of all bounds that take the charge."""
    for name in names():
        try:
            yield compose(charge, bound=name, max_seconds=1.0, **asked)
        except IncompatibleCosts:
            continue


@pytest.mark.parametrize(
    "charge",
    [
        Charge({PureDP(1e300): 2}),
        Charge({BoundedRange(1e300): 2}),
        Charge({GaussianDP(1e300): 2}),
        Charge({DiscreteGaussianDP(1.0, 10**400): 1}),
        Charge({DiscreteGaussianDP(1.0, 1): 10**400}),
        Charge({ApproxDP(0.1, 1e-300): 10**310}),
        Charge({PureDP(0.1): 10**12}),
        Charge({SEVERAL: 10**9}),
        Charge({MultiDP(((800.0, 0.0), (1e-300, 0.1))): 30, GaussianDP(1.0): 3}),
    ],
    ids=lambda charge: str(charge)[:40],
)
def test_nothing_but_an_answer(charge):
    begun = time.monotonic()
    assert not math.isnan(compose(charge, delta=1e-6, max_seconds=1.0).epsilon)
    assert time.monotonic() - begun < 20
    for found in every_bound(charge, delta=1e-6):
        assert found.epsilon > 0.09  # no charge above is smaller than one of its costs


@pytest.mark.parametrize(
    "charge",
    [
        Charge({DiscreteGaussianDP(1.2, 2): 2}, delta=0.3),
        Charge({ApproxDP(0.06, 1e-3): 9569}, delta=0.3),
        Charge({SEVERAL: 300}, delta=0.3),
    ],
    ids=str,
)
def test_a_lower_bound_on_delta_is_never_above_the_upper_one(charge):
    lowers = [found for found in every_bound(charge, epsilon=0.02) if found.lower is not None]
    assert lowers
    assert all(0.9 < found.lower <= found.delta for found in lowers)


def test_laws_of_labels_that_lie_apart_bound_nothing():
    apart = LabelLaw(Power(np.full(20, 0.05)), Power(np.full(5, 0.2), offset=-9), 0.1, 0.0)
    assert apart.delta_lower(np.zeros(1)).tolist() == [0.0]


def test_an_optimum_stops_at_the_deadline_with_a_note():
    charge = Charge({BoundedRange(0.1): 3000, PureDP(0.1): 3000})
    asked = {"delta": 1e-6, "interaction": "batch", "bound": "br_dp_nonadaptive"}
    hurried = compose(charge, max_seconds=1e-3, **asked)
    assert "out of time" in hurried.note
    assert hurried.epsilon < 600
    assert hurried.epsilon >= hurried.lower > 0


def test_the_table_gives_a_reason_for_every_bound_that_is_out_of_range():
    rows = table(Charge({PureDP(0.1): 10**12}), delta=1e-6, max_seconds=1.0).set_index("name")
    assert rows.loc["optimal_dp_approx", "why not"] == "more than 1e+09 copies of one epsilon"
    assert rows.loc["multi_dp", "why not"].startswith("more than 1e+07 costs")
