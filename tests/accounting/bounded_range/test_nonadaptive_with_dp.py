"""CR Theorem 3 against its definition, the literal formula in 50 digits, and the special cases it
contains.
"""

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_delta
from dptopk.accounting.bounded_range.nonadaptive_with_dp import (
    br_dp_nonadaptive_curve,
    br_dp_nonadaptive_delta,
    br_dp_nonadaptive_epsilon,
)
from dptopk.accounting.bounds import compose, table
from dptopk.accounting.published.cesar_rogers import dp_first_delta, dp_later_delta
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_delta
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import IncompatibleCosts, InvalidParameter


def delta_of_strategies(epsilon, t, pure, x):
    """δ(x) of independent RR_{ε,t_i} and ``pure`` RR(ε), over all outcomes; t has shape (...,
    b).
    """
    ranged = t.shape[-1]
    q = np.expm1(t - epsilon) / np.expm1(-epsilon)
    q = np.concatenate([q, np.full((*q.shape[:-1], pure), 1 / (1 + np.exp(-epsilon)))], axis=-1)
    high = np.concatenate([t, np.full((*t.shape[:-1], pure), epsilon)], axis=-1)
    low = high - epsilon * np.array([1] * ranged + [2] * pure)
    total = np.zeros(t.shape[:-1])
    for outcome in product([True, False], repeat=ranged + pure):
        hit = np.array(outcome)
        loss = np.where(hit, high, low).sum(axis=-1)
        total += np.where(hit, q, 1 - q).prod(axis=-1) * np.maximum(
            -np.expm1(np.minimum(x - loss, 0)), 0
        )
    return total


def literal(epsilon, ranged, pure, x):
    """The formula of CR Theorem 3 as it is written, in 50 digits."""
    with mp.workdps(50):
        e, x = mp.mpf(epsilon), mp.mpf(x)
        up = mp.exp(e) / (1 + mp.exp(e))
        best = mp.mpf(0)
        for index in range(ranged + 2 * pure + 1):
            t = min(max((x + e * (index + 1 - pure)) / (ranged + 1), 0), e)
            q = (1 - mp.exp(t - e)) / (1 - mp.exp(-e))
            total = mp.mpf(0)
            for i, j in product(range(ranged + 1), range(pure + 1)):
                exponent = x - e * (pure - 2 * j - i) - t * ranged
                if exponent < 0:
                    weight = (
                        mp.binomial(ranged, i)
                        * mp.binomial(pure, j)
                        * up ** (pure - j)
                        * (1 - up) ** j
                    )
                    total += weight * q ** (ranged - i) * (1 - q) ** i * -mp.expm1(exponent)
            best = max(best, total)
        return best


@pytest.mark.parametrize(
    ("epsilon", "ranged", "pure"), [(0.1, 1, 1), (1.0, 2, 1), (0.5, 3, 4), (3.0, 5, 2), (1, 1, 7)]
)
def test_no_common_t_beats_it_and_some_t_attains_it(epsilon, ranged, pure):
    t = np.repeat(np.linspace(0, epsilon, 2001)[:, None], ranged, axis=1)
    for share in (0.0, 0.13, 0.5, 0.9):
        x = share * epsilon * (ranged + pure)
        on_grid = delta_of_strategies(epsilon, t, pure, x)
        delta = float(br_dp_nonadaptive_delta(epsilon, ranged, pure, at_epsilon=x))
        assert on_grid.max() <= delta * (1 + 1e-12)
        assert on_grid.max() == pytest.approx(delta, rel=1e-4)


@pytest.mark.slow
@given(
    epsilon=st.floats(0.01, 5),
    share=st.floats(0, 0.99),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    pure=st.integers(1, 3),
)
@settings(max_examples=80, deadline=None)
def test_no_vector_of_different_t_beats_it(epsilon, share, places, pure):
    x = share * epsilon * (len(places) + pure)
    delta = float(br_dp_nonadaptive_delta(epsilon, len(places), pure, at_epsilon=x))
    assert (
        delta_of_strategies(epsilon, epsilon * np.array(places), pure, x)
        <= delta * (1 + 1e-12) + 1e-15
    )


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 2.0, 50.0])
@pytest.mark.parametrize(("ranged", "pure"), [(0, 3), (1, 1), (1, 6), (7, 2), (5, 9)])
def test_agrees_with_the_literal_formula_to_the_stated_error(epsilon, ranged, pure):
    curve = br_dp_nonadaptive_curve(epsilon, ranged, pure)
    for share in (0.0, 0.2, 0.5, 0.83, 1 - 1e-9):
        x = share * epsilon * (ranged + pure)
        exact, point = literal(epsilon, ranged, pure, x), curve.optimum(x)
        assert abs(mp.log(exact) - mp.mpf(point.log_value)) <= point.error, share
        assert point.error < 1e-10 or share > 0.99
        assert curve.delta(x) >= min(exact, 1)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 6.0])
def test_only_dp_is_the_optimum_of_dp(epsilon):
    x = epsilon * 40 * np.array([0.0, 0.05, 0.3, 0.9])
    assert br_dp_nonadaptive_delta(epsilon, 0, 40, at_epsilon=x) == pytest.approx(
        optimal_dp_delta(epsilon, 40, at_epsilon=x), rel=1e-10
    )


def test_no_dp_is_the_theorem_on_bounded_range():
    x = np.array([0.0, 0.5, 1.5])
    assert np.all(
        br_dp_nonadaptive_delta(0.1, 30, 0, at_epsilon=x)
        == br_nonadaptive_delta(0.1, 30, at_epsilon=x)
    )


def test_each_dp_mechanism_in_place_of_a_bounded_range_one_costs_more():
    values = [
        float(br_dp_nonadaptive_epsilon(0.1, 60 - m, m, delta=1e-6)) for m in (0, 1, 5, 30, 60)
    ]
    assert values == sorted(values)
    assert values[-1] > 1.5 * values[0]


def test_adaptive_optima_of_three_are_above():
    for x in (0.0, 0.3, 0.7, 1.4, 2.5):
        fixed = float(br_dp_nonadaptive_delta(1.0, 2, 1, at_epsilon=x))
        assert fixed <= float(dp_later_delta(1.0, at_epsilon=x)) * (1 + 1e-12)
        assert fixed <= float(dp_first_delta(1.0, at_epsilon=x)) * (1 + 1e-12)


@pytest.mark.slow
@given(
    epsilon=st.floats(1e-4, 20),
    ranged=st.integers(1, 60),
    pure=st.integers(1, 60),
    log_delta=st.floats(-690, -0.1),
)
@settings(max_examples=25, deadline=None)
def test_inverse_round_trip_and_bracket(epsilon, ranged, pure, log_delta):
    delta = float(np.exp(log_delta))
    charge = Charge({BoundedRange(epsilon): ranged, PureDP(epsilon): pure})
    bound = compose(charge, delta=delta, bound="br_dp_nonadaptive", interaction="batch")
    assert bound.lower <= bound.epsilon <= epsilon * (ranged + pure) * (1 + 1e-15)
    assert bound.epsilon - bound.lower <= 1e-5 * bound.epsilon  # mostly 2e-9
    if bound.epsilon < epsilon * (ranged + pure):
        assert float(
            br_dp_nonadaptive_delta(epsilon, ranged, pure, at_epsilon=bound.epsilon)
        ) <= delta * (1 + 1e-11)
    if bound.lower > 0:
        assert (
            float(br_dp_nonadaptive_delta(epsilon, ranged, pure, at_epsilon=bound.lower)) >= delta
        )


@pytest.mark.slow
@given(
    epsilon=st.floats(1e-3, 10),
    ranged=st.integers(1, 40),
    pure=st.integers(1, 40),
    shares=st.tuples(*[st.floats(0, 0.95)] * 2),
)
@settings(max_examples=25, deadline=None)
def test_monotone_in_everything(epsilon, ranged, pure, shares):
    low, high = sorted(share * epsilon * (ranged + pure) for share in shares)
    at_low, at_high = br_dp_nonadaptive_delta(epsilon, ranged, pure, at_epsilon=[low, high])
    slack = 1 + 1e-9
    assert at_high <= at_low * slack
    assert (
        at_low <= float(br_dp_nonadaptive_delta(epsilon, ranged + 1, pure, at_epsilon=low)) * slack
    )
    assert (
        at_low <= float(br_dp_nonadaptive_delta(epsilon, ranged, pure + 1, at_epsilon=low)) * slack
    )
    assert (
        at_low
        <= float(br_dp_nonadaptive_delta(epsilon * 1.01, ranged, pure, at_epsilon=low)) * slack
    )


def test_tiny_delta_is_not_lost():
    curve = br_dp_nonadaptive_curve(0.2, 50, 30)
    values = curve.epsilon([1e-100, 1e-300])
    assert values[0] < values[1] < 16
    assert curve.delta(values) == pytest.approx([1e-100, 1e-300], rel=1e-9)


def test_one_bounded_range_cost_among_very_many():
    values = br_dp_nonadaptive_epsilon(0.001, 1, 10**5, delta=[1e-6, 1e-300])
    assert np.all(np.diff(values) > 0)
    neighbours = [
        float(br_dp_nonadaptive_epsilon(0.001, 0, 10**5 + more, delta=1e-6)) for more in (0, 1)
    ]
    assert neighbours[0] < values[0] < neighbours[1]


def test_where_it_is_valid():
    single, several = Charge.parse("BR(0.3) + 4*DP(0.3)"), Charge.parse("2*BR(0.3) + 4*DP(0.3)")
    assert compose(single, delta=1e-6, bound="br_dp_nonadaptive").epsilon < 1.5
    with pytest.raises(IncompatibleCosts, match="batch"):
        compose(several, delta=1e-6, bound="br_dp_nonadaptive", interaction="ordered")
    with pytest.raises(IncompatibleCosts, match="same epsilon"):
        compose(Charge.parse("BR(0.3) + DP(0.2)"), delta=1e-6, bound="br_dp_nonadaptive")
    with pytest.raises(IncompatibleCosts, match="both BR and DP"):
        compose(Charge.parse("4*DP(0.3)"), delta=1e-6, bound="br_dp_nonadaptive")
    with pytest.raises(IncompatibleCosts, match="too many"):
        compose(
            Charge.parse("100000*BR(0.3) + 9*DP(0.3)"),
            delta=1e-6,
            bound="br_dp_nonadaptive",
            interaction="batch",
        )
    row = table(several, delta=1e-6, interaction="batch").set_index("name").loc["br_dp_nonadaptive"]
    assert (bool(row["batch"]), bool(row["setwise"]), bool(row["applies"])) == (True, False, True)


def test_failure_mass_is_added():
    clean = compose(Charge.parse("2*BR(0.3) + 4*DP(0.3)"), epsilon=0.7, interaction="batch").delta
    failing = compose(
        Charge.parse("2*BR(0.3) + 4*ADP(0.3, 0.01)"), epsilon=0.7, interaction="batch"
    ).delta
    survival = 0.99**4
    assert failing == pytest.approx(1 - survival + survival * clean, rel=1e-9)


def test_arguments_are_checked():
    with pytest.raises(InvalidParameter, match="pure"):
        br_dp_nonadaptive_delta(0.1, 0, 0, at_epsilon=1.0)
    with pytest.raises(InvalidParameter, match="at_epsilon"):
        br_dp_nonadaptive_delta(0.1, 1, 1, at_epsilon=np.nan)
    with pytest.raises(InvalidParameter, match="delta"):
        br_dp_nonadaptive_epsilon(0.1, 1, 1, delta=1.0)


def test_epsilons_beyond_the_floats_are_declined():
    with pytest.raises(InvalidParameter, match="at most 700"):
        br_dp_nonadaptive_delta(701.0, 1, 1, at_epsilon=1.0)
    with pytest.raises(IncompatibleCosts, match="up to 700"):
        compose(
            Charge.parse("BR(701) + DP(701)"),
            delta=1e-6,
            bound="br_dp_nonadaptive",
            interaction="batch",
        )
