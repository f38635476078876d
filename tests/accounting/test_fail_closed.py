"""``compose`` at the edges: overflow, masses of failure that fill δ, counts without end, and the
guard.
"""

import math

import numpy as np
import pytest

from dptopk.accounting.bounds import compose, table
from dptopk.accounting.pld import loss_components as pld_sources
from dptopk.accounting.pld.loss_components import GaussianLoss, Grid
from dptopk.accounting.registry import names
from dptopk.costs import (
    ApproxDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)
from dptopk.errors import IncompatibleCosts

SEVERAL = MultiDP(((2.0, 0.0), (1.0, 1e-3), (0.5, 0.01)))


def every_bound(charge, **asked):
    """The answers of all bounds that take the charge."""
    for name in names():
        try:
            yield compose(charge, bound=name, **asked)
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
        pytest.param(Charge({SEVERAL: 10**9}), marks=pytest.mark.slow),
        Charge({MultiDP(((800.0, 0.0), (1e-300, 0.1))): 30, GaussianDP(1.0): 3}),
    ],
    ids=lambda charge: str(charge)[:40],
)
def test_nothing_but_an_answer(charge):
    assert not math.isnan(compose(charge, delta=1e-6).epsilon)
    for found in every_bound(charge, delta=1e-6):
        assert found.epsilon > 0.09  # no charge above is smaller than one of its costs


@pytest.mark.slow
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
    assert all(
        0.7 < found.lower <= found.delta for found in lowers
    )  # of 0.3 + 0.7 δ, where 0.3 + δ may be above 1


@pytest.mark.slow
def test_an_optimum_stops_at_the_guard_with_a_note():
    charge = Charge({BoundedRange(0.1): 3000, PureDP(0.1): 3000})
    asked = {"delta": 1e-6, "interaction": "batch", "bound": "br_dp_nonadaptive"}
    hurried = compose(charge, max_seconds=1e-9, **asked)
    assert "not reproducible" in hurried.note
    assert hurried.epsilon < 600
    assert hurried.epsilon >= hurried.lower > 0


def test_the_table_gives_a_reason_for_every_bound_that_is_out_of_range():
    rows = table(Charge({PureDP(0.1): 10**12}), delta=1e-6).set_index("name")
    assert rows.loc["optimal_dp_approx", "why not"] == "more than 1e+09 copies of one epsilon"
    assert rows.loc["multi_dp", "why not"].startswith("more than 1e+07 costs")


@pytest.mark.parametrize("mu", [3e-8, 1e-3, 0.5])
@pytest.mark.parametrize("step", [1e-3, 0.1, 3.0])
def test_a_narrow_gaussian_on_a_wide_grid_takes_few_nodes(mu, step):
    """Cells are cut only where the law is: an earlier form took gigabytes. Mass and mean stay."""
    for side in (1, -1):
        (pair,) = GaussianLoss(mu**2).pairs(Grid(step, 2.0, side))
        assert pair.losses.size <= 5 * (200 + 8 * (20 * mu / step + 2))
        masses = np.exp(pair.log_masses[0] + 2.0 * pair.losses[0])
        assert math.log(masses.sum()) == pytest.approx(
            3 * mu**2, rel=1e-6, abs=1e-10
        )  # K(θ) = μ² θ (θ + 1) / 2
        edges = np.floor(pair.losses[0].reshape(-1, 5) / step)
        wide = (
            np.ptp(pair.losses[0].reshape(-1, 5), axis=1) > 1e-9 * step
        )  # not a cell that ends at a grid point
        assert (edges == edges[:, :1])[wide].all()  # no rule reaches across a grid point


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["DGauss(2100, 500) + GDP(0.3)", "3*DGauss(2500, 300) + 3*DP(0.1)"]
)
@pytest.mark.parametrize("asked", [{"delta": 1e-6}, {"epsilon": 0.7}])
def test_wide_discrete_gaussians_gathered_at_once(text, asked, monkeypatch):
    """The closed form on the grid against the convolution that narrower ones take."""
    charge = Charge.parse(text)
    wide = compose(charge, bound="optimal_setwise", effort="thorough", **asked)
    monkeypatch.setattr(pld_sources, "CLOSED_FORM_SCALE", math.inf)
    narrow = compose(charge, bound="optimal_setwise", effort="thorough", **asked)
    name = "epsilon" if "delta" in asked else "delta"
    assert getattr(wide, name) == pytest.approx(getattr(narrow, name), rel=2e-3)
    assert wide.lower <= getattr(narrow, name)
    assert narrow.lower <= getattr(wide, name)


def test_too_many_losses_are_left_to_other_bounds():
    """2.4 billion lattice points: not listed, and the note says so."""
    found = compose(Charge.parse("DGauss(1e8, 100000000) + GDP(0.3)"), delta=1e-6)
    assert 4.8 < found.epsilon < 6
    assert "too many losses" in found.note
