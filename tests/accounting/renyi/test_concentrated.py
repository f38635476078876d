"""Set-wise CDP and zCDP against the printed formulas, published numbers and one another."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.renyi.concentrated import zcdp_curve, zcdp_epsilon, zcdp_rho
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, GaussianDP, PureDP
from dptopk.errors import IncompatibleCosts, InvalidParameter


def epsilon_of(charge: Charge, name: str, delta: float = 1e-6) -> float:
    return compose(charge, delta=delta, bound=name).epsilon


def test_setwise_cdp_is_equation_three():
    dp, br, count_dp, count_br, delta = 0.2, 0.3, 7, 11, 1e-6
    charge = Charge(
        {PureDP(dp): count_dp, BoundedRange(br): count_br, CDP(0.02, 0.25): 3, GaussianDP(0.1): 2}
    )
    y = br / math.expm1(br)
    mean = (
        count_dp * dp * math.expm1(dp) / (math.exp(dp) + 1)
        + count_br * (y - 1 - math.log(y))
        + 3 * 0.02
        + 2 * 0.005
    )
    square = count_dp * dp**2 + count_br / 4 * br**2 + 3 * 0.25**2 + 2 * 0.1**2
    expected = mean + math.sqrt(2 * square * math.log(1 / delta))
    assert expected <= epsilon_of(charge, "setwise_cdp") <= expected * (1 + 1e-11)


@pytest.mark.parametrize("cost", [ZCDP(1e-323), CDP(0.0, 2e-162)])
def test_a_product_that_underflows_is_no_smaller_bound(cost):
    """The root of ρ ln(1/δ), of a few units of the smallest float, was 4% too small."""
    delta = 0.9
    with mp.workdps(50):
        rho = mp.mpf(cost.rho) if isinstance(cost, ZCDP) else mp.mpf(cost.tau) ** 2 / 2
        least = 2 * mp.sqrt(rho * -mp.log(delta))
    name = "setwise_zcdp" if isinstance(cost, ZCDP) else "setwise_cdp"
    assert mp.mpf(epsilon_of(Charge({cost: 1}), name, delta)) >= least


def test_setwise_zcdp_is_lemma_3_4():
    charge = Charge({PureDP(0.2): 7, BoundedRange(0.3): 11, ZCDP(0.01, xi=0.05): 2})
    rho, xi = 7 * 0.02 + 11 * 0.09 / 8 + 0.02, 0.1
    expected = xi + rho + 2 * math.sqrt(rho * math.log(1e6))
    assert expected <= epsilon_of(charge, "setwise_zcdp") <= expected * (1 + 1e-11)


def test_known_numbers():
    # 100 x BR(0.1), delta = 1e-6, through eps^2/8-zCDP and the conversion of CKS20
    assert float(zcdp_curve(100 * 0.1**2 / 8).epsilon(1e-6)) == pytest.approx(2.419, abs=5e-4)
    assert epsilon_of(Charge({BoundedRange(0.1): 100}), "zcdp_tight") == pytest.approx(
        2.419, abs=5e-4
    )
    # Cesar-Rogers Lemma 6.3: sigma = 13.1 for 25 counts
    assert math.sqrt(25 / (2 * zcdp_rho(epsilon=2.07906, delta=1e-6))) == pytest.approx(
        13.10, abs=5e-3
    )


@pytest.mark.slow
@given(
    dp=st.floats(1e-6, 50),
    br=st.floats(1e-6, 50),
    counts=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)),
    exponent=st.floats(0.5, 300),
)
@settings(max_examples=50, deadline=None)
def test_tighter_bounds_are_smaller(dp, br, counts, exponent):
    charge = Charge({PureDP(dp): counts[0], BoundedRange(br): counts[1]})
    delta = 10.0**-exponent
    names = ("renyi", "zcdp_tight", "setwise_zcdp")
    renyi, tight, plain = (epsilon_of(charge, name, delta) for name in names)
    assert 0 <= renyi <= tight * (1 + 1e-8)
    assert tight <= plain * (1 + 1e-8)
    assert math.isfinite(plain)


@given(rho=st.floats(1e-10, 1e3), xi=st.floats(0, 1), exponent=st.floats(0.5, 300))
@settings(max_examples=50, deadline=None)
def test_tight_conversion_is_a_minimum_over_orders_and_round_trips(rho, xi, exponent):
    delta = 10.0**-exponent
    curve = zcdp_curve(rho, xi)
    epsilon = float(curve.epsilon(delta))
    assert epsilon <= float(zcdp_epsilon(rho, xi, delta=delta)) * (1 + 1e-10)
    alpha = 1 + np.geomspace(1e-6, 1e10, 20_001)  # CKS20 as printed
    printed = (
        xi + rho * alpha + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    )
    assert epsilon <= max(0.0, printed.min()) * (1 + 1e-6) + 1e-9
    if epsilon > 0:
        assert float(curve.delta(epsilon * (1 + 1e-6))) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 2.0, 50.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.1])
def test_zcdp_rho_is_the_inverse_from_below(epsilon, delta):
    rho = zcdp_rho(epsilon=epsilon, delta=delta)
    assert float(zcdp_epsilon(rho, delta=delta)) <= epsilon
    assert float(zcdp_epsilon(rho * (1 + 1e-6), delta=delta)) > epsilon


@pytest.mark.parametrize(
    ("rho", "xi"), [(math.inf, 0.0), (0.1, math.inf), (math.nan, 0.0), (-1, 0)]
)
def test_a_curve_of_numbers_that_are_not_finite_is_refused(rho, xi):
    with pytest.raises(InvalidParameter, match="must be"):
        zcdp_curve(rho, xi)


def test_a_cdp_cost_of_one_gaussian_equals_zcdp():
    found = compose(Charge({CDP(0.5, 1.0): 1}), delta=1e-6, bound="setwise_cdp")
    assert found.epsilon == pytest.approx(float(zcdp_epsilon(0.5, delta=1e-6)))


@pytest.mark.parametrize("name", ["setwise_cdp", "setwise_zcdp", "zcdp_tight", "renyi"])
def test_count_equals_singles_and_both_directions_agree(name):
    charge = Charge({BoundedRange(0.1): 40, PureDP(0.2): 3, GaussianDP(0.3): 5})
    singles = Charge.join(*[Charge({cost: 1}) for cost, times in charge for _ in range(times)])
    there = compose(charge, delta=1e-7, bound=name)
    assert there == compose(singles, delta=1e-7, bound=name)
    back = compose(charge, epsilon=there.epsilon, bound=name)
    assert back.delta == pytest.approx(1e-7, rel=1e-6)


def test_validity():
    charge = Charge({BoundedRange(0.1): 4})
    assert (
        compose(charge, delta=1e-6, bound="zcdp_tight", interaction="filter").valid_in[-1]
        == "filter"
    )
    assert (
        compose(Charge({ZCDP(0.1): 4}), delta=1e-6, bound="renyi", interaction="filter").epsilon > 0
    )
    for name in ("renyi", "setwise_cdp"):
        with pytest.raises(IncompatibleCosts):
            compose(charge, delta=1e-6, bound=name, interaction="filter")
    with pytest.raises(IncompatibleCosts):
        compose(Charge({ZCDP(0.1): 4}), delta=1e-6, bound="setwise_cdp")


@pytest.mark.parametrize(("rho", "delta"), [(5e-324, 0.999), (1e-300, 1 - 1e-16)])
def test_the_epsilon_of_zcdp_whose_product_underflows(rho, delta):
    """ρ ln(1/δ) is below the normal floats, its root is not."""
    with mp.workdps(400):
        exact = mp.mpf(rho) + 2 * mp.sqrt(mp.mpf(rho) * -mp.log(mp.mpf(delta)))
        assert exact <= float(zcdp_epsilon(rho, delta=delta)) <= exact * (1 + 1e-12)
