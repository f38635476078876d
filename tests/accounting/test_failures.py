"""Masses of failure: what the upper bound adds, what is attained, and what a filter may spend at
once.
"""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from dptopk.accounting.bounds import compose, table
from dptopk.accounting.published.cadir_najib_shkel.regions import composition_region
from dptopk.accounting.registry import BoundSpec, names, split_failure
from dptopk.costs import ApproxDP, Charge
from dptopk.errors import IncompatibleCosts


def every_bound(charge, **asked):
    for name in names():
        try:
            yield compose(charge, bound=name, **asked)
        except IncompatibleCosts:
            continue


def attained(epsilon, count, bad, x):
    """δ of ``count`` randomised responses of which the whole fails with probability ``bad``,
    revealed.
    """
    e = mp.mpf(epsilon)
    p = 1 / (1 + mp.exp(-e))
    rest = mp.fsum(
        mp.binomial(count, i) * p**i * (1 - p) ** (count - i) * -mp.expm1(x - (2 * i - count) * e)
        for i in range(count + 1)
        if (2 * i - count) * e > x
    )
    return bad + (1 - mp.mpf(bad)) * rest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "count", "bad", "x"), [(1.0, 1, 1e-3, 0.5), (5.0, 1, 0.02, 1.0), (0.5, 9, 0.1, 0.7)]
)
def test_no_lower_bound_is_above_what_is_attained(epsilon, count, bad, x):
    """With the masses of failure added, as they are in an upper bound, the first two are above
    it.
    """
    charge = Charge.parse(f"{count}*DP({epsilon}) + delta({bad})")
    with mp.workdps(50):
        exact = attained(epsilon, count, bad, x)
        for found in every_bound(charge, epsilon=x):
            assert found.delta >= exact
            assert found.lower is None or found.lower <= exact
        delta = float(exact)
        lowers = [
            found.lower for found in every_bound(charge, delta=delta) if found.lower is not None
        ]
        assert lowers
        assert all(
            attained(epsilon, count, bad, lower * (1 - 1e-12)) >= delta * (1 - 1e-12)
            for lower in lowers
        )
        assert max(lowers) <= x * (1 + 1e-12)
        assert max(lowers) > 0.9 * x


@pytest.mark.parametrize(
    "text",
    [
        "DP(1.0)",
        "DP(1.0) + DP(0.5)",
        "DGauss(1.0, 1)",
        "DGauss(3e5, 9)",
        "3*BR(0.5)",
        "DP(0.5) + 2*BR(0.5)",
    ],
)
def test_failures_that_use_up_delta_leave_room_below(text):
    """Masses 1/2 and 1/4 add up to δ = 3/4 above; what is attained is 5/8, and has 1/3 left for the
    rest.
    """
    rest = Charge.parse(text)
    charge = Charge.join(rest, Charge({ApproxDP(0.0, 0.25): 1}, delta=0.5))
    for interaction in ("batch", "setwise"):
        least = compose(rest, delta=0.3333, interaction=interaction).epsilon
        for found in every_bound(charge, delta=0.75, interaction=interaction):
            assert found.lower is None or found.lower <= least < found.epsilon, found.name


def test_a_filter_may_spend_its_failures_at_once():
    charge = Charge({ApproxDP(0.1, 0.1): 2})
    at_once = Charge({ApproxDP(0.2, 0.2): 1})
    found = compose(charge, epsilon=1.0, interaction="filter")
    assert found.delta >= 0.2
    assert compose(at_once, epsilon=1.0, interaction="filter").delta == pytest.approx(0.2)
    assert "filter" in found.valid_in
    registered = compose(charge, epsilon=1.0)
    assert registered.delta == pytest.approx(0.19)
    assert "filter" not in registered.valid_in
    assert split_failure(charge, summed=True)[1] > 0.19999 > split_failure(charge)[1]
    assert (
        "filter" in compose(Charge({ApproxDP(0.1, 0.1): 1}), epsilon=1.0, bound="basic").valid_in
    )  # one failure
    rows = table(charge, epsilon=1.0).set_index("name")
    assert not rows.loc["basic", "filter"]
    assert rows.loc["basic", "setwise"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GDP(0.01)", marks=pytest.mark.study),
        pytest.param("DP(0.01) + GDP(0.01)", marks=pytest.mark.study),
        "DGauss(100, 1)",
        "DLap(3, 2) + GDP(1e-3)",
    ],
)
def test_no_gaussian_is_pure(text):
    """δ(1) is far below the smallest float here, and not 0."""
    for found in every_bound(Charge.parse(text), epsilon=1.0):
        assert found.delta > 0
    for text in ("DLap(4, 2)", "DLap(4, 2) + DP(0.5)"):
        assert compose(Charge.parse(text), epsilon=1.0).delta == 0


@pytest.mark.parametrize("count", [4, 7])
def test_a_region_whose_delta_rounds_to_one(count):
    for epsilon in (20.0, 35.0, 39.0):
        region = composition_region([(epsilon, 0.0)], count)
        assert max(delta for _, delta in region.constraints) < 1
        assert (count * epsilon, 0.0) in region.constraints


def test_each_curve_is_built_once_for_a_question(monkeypatch):
    built = []
    build = BoundSpec.curve
    monkeypatch.setattr(
        BoundSpec, "curve", lambda spec, charge: (built.append(spec.name), build(spec, charge))[1]
    )
    charge = Charge.parse("3*DP(0.1) + 2*BR(0.2) + ADP(0.1, 1e-9)")
    table(charge, delta=1e-6)
    assert sorted(built) == sorted(names())
    built.clear()
    compose(charge, delta=1e-6)
    assert len(built) == len(set(built))


@pytest.mark.slow
def test_a_fallback_says_why_the_optimum_is_not_known():
    found = compose(
        Charge.parse("100*BR(0.02) + 100*BR(0.05) + 100*BR(0.1)"), delta=1e-6, effort="quick"
    )
    assert math.isfinite(found.epsilon)
    assert found.lower is None or found.lower < found.epsilon * (1 - 1e-3)
    assert "used up" in found.note
