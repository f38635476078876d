"""Summed Rényi curves: soundness against exact compositions, orderings, published numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import implications_of
from dptopk.accounting.pld.log_mgf import mixture_log_mgf
from dptopk.accounting.renyi.concentrated import zcdp_curve
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.costs import (
    CDP,
    ZCDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)

ORDERS = np.geomspace(1e-3, 1e3, 25)


def epsilon_of(charge: Charge, name: str, delta: float = 1e-6) -> float:
    return compose(charge, delta=delta, bound=name).epsilon


@pytest.mark.slow
@given(
    dp=st.floats(1e-6, 50),
    br=st.floats(1e-6, 50),
    counts=st.tuples(st.integers(0, 10**6), st.integers(1, 10**6)),
    exponent=st.floats(0.5, 300),
)
@settings(max_examples=40, deadline=None)
def test_never_worse_than_chernoff(dp, br, counts, exponent):
    charge = Charge({PureDP(dp): counts[0], BoundedRange(br): counts[1]})
    delta = 10.0**-exponent
    assert epsilon_of(charge, "renyi", delta) <= epsilon_of(charge, "mgf", delta) * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-6, 1e-2, 0.5])
@pytest.mark.parametrize(
    ("charge", "exact"),
    [
        (Charge({PureDP(1.0): 100}), "optimal_dp"),
        pytest.param(Charge({PureDP(1e-3): 10**6}), "optimal_dp", marks=pytest.mark.slow),
        (Charge({PureDP(30.0): 3}), "optimal_dp"),
        (Charge({GaussianDP(0.3): 5}), "gaussian"),
        (Charge({GaussianDP(1e-4): 5}), "gaussian"),
        (Charge({DiscreteGaussianDP(1.0, 1): 6}), "gaussian"),
    ],
)
def test_above_the_exact_composition(charge, exact, delta):
    best = epsilon_of(charge, exact, delta)
    assert best <= epsilon_of(charge, "renyi", delta)
    if best > 0:
        there = compose(charge, epsilon=best, bound=exact).delta
        assert there <= compose(charge, epsilon=best, bound="renyi").delta


def test_known_numbers():
    # 100 x epsilon = 1 at delta = 1e-6. Continuous Laplace noise is (eps - 1 + e^-eps)-zCDP, and
    # that would give 80.12; with discrete noise on integers the mechanism is randomised response,
    # whose true value is 83.53.
    assert float(zcdp_curve(100 * math.exp(-1)).epsilon(1e-6)) == pytest.approx(80.12, abs=5e-3)
    assert epsilon_of(Charge({PureDP(1.0): 100}), "optimal_dp") == pytest.approx(83.53, abs=5e-3)
    assert 83.53 < epsilon_of(Charge({PureDP(1.0): 100}), "renyi") < 85.53
    assert epsilon_of(Charge({BoundedRange(0.1): 100}), "renyi") < 2.419
    assert epsilon_of(Charge({BoundedRange(0.1): 100}), "mgf") == pytest.approx(2.7286, abs=5e-5)


def test_log_mgf_adds_up_over_all_costs():
    costs = {
        PureDP(0.3): 2,
        PureDP(0.5): 1,
        BoundedRange(0.4): 7,
        GaussianDP(0.2): 3,
        DiscreteGaussianDP(5.0, 2): 1,
        ZCDP(0.01, xi=0.2): 4,
        CDP(0.3, 0.4): 2,
        MultiDP(((1.0, 0.0), (0.2, 1e-3))): 2,
    }
    parts = sum(times * log_mgf(Charge({cost: 1}))(ORDERS) for cost, times in costs.items())
    assert log_mgf(Charge(costs))(ORDERS) == pytest.approx(parts, rel=1e-12)
    grid = ORDERS.reshape(5, 5)
    assert np.array_equal(log_mgf(Charge(costs))(grid).ravel(), log_mgf(Charge(costs))(ORDERS))


@pytest.mark.parametrize(
    "cost", [PureDP(0.7), BoundedRange(2.0), GaussianDP(0.5), CDP(0.1, 0.5), ZCDP(0.2, xi=0.1)]
)
def test_each_log_mgf_is_below_its_zcdp_bound(cost):
    xi, rho = implications_of(cost).exact_zcdp(cost)
    assert (
        log_mgf(Charge({cost: 1}))(ORDERS) <= ORDERS * (xi + rho * (1 + ORDERS)) * (1 + 1e-12)
    ).all()


@pytest.mark.parametrize("epsilon", [1e-5, 0.5, 5.0, 40.0])
def test_several_constraints_lie_between_their_parts(epsilon):
    both = MultiDP(((epsilon, 0.0), (epsilon / 2, min(epsilon / 30, 0.01))))
    values = mixture_log_mgf(both, ORDERS)
    assert np.isfinite(values).all()
    assert (values < log_mgf(Charge({PureDP(epsilon): 1}))(ORDERS)).all()
    assert (values > log_mgf(Charge({PureDP(epsilon / 2): 1}))(ORDERS)).all()


@pytest.mark.parametrize("epsilon", [1e-5, 0.5, 5.0])
def test_a_constraint_that_follows_from_the_others_changes_nothing(epsilon):
    idle = MultiDP(((epsilon, 0.0), (epsilon / 2, 0.999)))
    assert mixture_log_mgf(idle, ORDERS) == pytest.approx(
        log_mgf(Charge({PureDP(epsilon): 1}))(ORDERS), rel=1e-12
    )


def test_several_constraints_against_the_exact_mixture():
    charge = Charge({MultiDP(((1.0, 0.0), (0.2, 1e-3))): 20})
    best = epsilon_of(charge, "multi_dp")
    found = epsilon_of(charge, "renyi")
    assert best < found < epsilon_of(Charge({PureDP(1.0): 20}), "renyi")
    # the same for a mixture written out: the losses and masses of the worst case
    from dptopk.accounting.pld.constraints import mixture

    losses, masses = mixture(next(iter(charge.costs))).atoms()
    for lam in (0.1, 1.0, 10.0):
        assert float(mixture_log_mgf(next(iter(charge.costs)), np.array(lam))) == pytest.approx(
            math.log(float(masses @ np.exp(lam * losses))), rel=1e-9
        )


@given(mu=st.floats(1e-3, 5), delta=st.floats(1e-290, 0.5))
@settings(max_examples=40, deadline=None)
def test_both_directions_agree(mu, delta):
    curve = renyi_curve(lambda lam: lam * (1 + lam) * mu**2 / 2)
    epsilon = float(curve.epsilon(delta))
    back = float(curve.delta(epsilon))
    assert back <= delta * (1 + 1e-6)
    if epsilon > 1e-6:
        assert back == pytest.approx(delta, rel=1e-5)


def test_a_thousand_different_costs():
    charge = Charge(
        {
            cost: 1
            for i in range(500)
            for cost in (BoundedRange(0.1 + i * 1e-4), PureDP(0.1 + i * 1e-4))
        }
    )
    renyi, tight = epsilon_of(charge, "renyi"), epsilon_of(charge, "zcdp_tight")
    assert 0.9 * tight < renyi < tight


def test_pure_costs_end_at_the_sum():
    charge = Charge({PureDP(0.1): 2, BoundedRange(0.2): 3})
    assert epsilon_of(charge, "renyi", 0.0) == pytest.approx(0.8)
    assert compose(charge, epsilon=0.8000001, bound="renyi").delta == 0.0
    assert epsilon_of(Charge({GaussianDP(1.0): 1}), "renyi", 0.0) == math.inf


@pytest.mark.slow
@given(st.integers(1, 50), st.floats(0.01, 2), st.floats(1e-12, 0.1))
@settings(max_examples=30, deadline=None)
def test_monotone_in_count_cost_and_delta(count, epsilon, delta):
    here = epsilon_of(Charge({BoundedRange(epsilon): count}), "renyi", delta)
    assert epsilon_of(Charge({BoundedRange(epsilon): count + 1}), "renyi", delta) >= here
    assert epsilon_of(Charge({BoundedRange(epsilon * 1.01): count}), "renyi", delta) >= here
    assert epsilon_of(Charge({BoundedRange(epsilon): count}), "renyi", delta / 2) >= here
    assert epsilon_of(Charge({PureDP(epsilon): count}), "renyi", delta) >= here
