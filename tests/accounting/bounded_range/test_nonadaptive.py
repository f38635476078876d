"""DDR Theorem 3 against its definition: brute force over outcomes and over t, and the literal
formula in 50 digits.
"""

from itertools import product

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounded_range.nonadaptive import (
    _largest_value,
    br_nonadaptive_curve,
    br_nonadaptive_delta,
    br_nonadaptive_epsilon,
    candidates,
)
from dptopk.accounting.bounds import compose
from dptopk.accounting.published.dong_durfee_rogers import adaptivity_gap, mgf_delta, mgf_epsilon
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import IncompatibleCosts, InvalidParameter


def delta_of_strategies(epsilon, t, x):
    """δ(x) of independent RR_{ε,t_i}, over all 2^k outcomes; t has shape (..., k)."""
    q = np.expm1(t - epsilon) / np.expm1(-epsilon)
    total = np.zeros(t.shape[:-1])
    for outcome in product([True, False], repeat=t.shape[-1]):
        hit = np.array(outcome)
        probability = np.where(hit, q, 1 - q).prod(axis=-1)
        total += probability * np.maximum(
            -np.expm1(x - np.where(hit, t, t - epsilon).sum(axis=-1)), 0
        )
    return total


def literal(epsilon, count, x):
    """The formula of DDR Theorem 3 as it is written, in 50 digits: (δ, the maximising l)."""
    with mp.workdps(50):
        e, x = mp.mpf(epsilon), mp.mpf(x)
        best = (mp.mpf(0), -1)
        for index in range(count + 1):
            t = min(max((x + (index + 1) * e) / (count + 1), 0), e)
            p = (mp.exp(-t) - mp.exp(-e)) / (1 - mp.exp(-e))
            terms = (
                mp.binomial(count, i)
                * p ** (count - i)
                * (1 - p) ** i
                * (mp.exp(count * t - i * e) - mp.exp(x))
                for i in range(count + 1)
                if count * t - i * e > x
            )
            best = max(best, (mp.fsum(terms), index))
        return best


def adaptive(epsilon, count, x, steps=60):
    """Lower bound on the adaptive optimum: DDR Lemma 3.2 with t restricted to multiples of
    ε/steps.
    """
    grid = np.arange(-steps * count, steps * count + 1)
    t = np.arange(steps + 1)
    q = np.expm1((t - steps) * epsilon / steps) / np.expm1(-epsilon)

    def clamp(values, nodes):
        inside = values[np.clip(nodes + steps * count, 0, len(grid) - 1)]
        return np.where(
            nodes > grid[-1],
            0,
            np.where(nodes < grid[0], -np.expm1(nodes * epsilon / steps), inside),
        )

    values = np.maximum(-np.expm1(grid * epsilon / steps), 0)
    for _ in range(count):
        nodes = grid[:, None] - t
        values = (q * clamp(values, nodes) + (1 - q) * clamp(values, nodes + steps)).max(axis=1)
    return values[round(x / epsilon * steps) + steps * count]


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 1), (1.0, 2), (0.5, 3), (3.0, 5), (1.0, 8)])
def test_no_common_t_beats_it_and_some_t_attains_it(epsilon, count):
    t = np.linspace(0, epsilon, 2001)
    for share in (0.0, 0.13, 0.5, 0.9):
        x = share * epsilon * count
        on_grid = delta_of_strategies(epsilon, np.repeat(t[:, None], count, axis=1), x)
        delta = float(br_nonadaptive_delta(epsilon, count, at_epsilon=x))
        assert on_grid.max() <= delta
        assert on_grid.max() == pytest.approx(delta, rel=1e-4)


@pytest.mark.slow
@given(
    epsilon=st.floats(0.01, 5),
    share=st.floats(0, 0.99),
    places=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
@settings(max_examples=80, deadline=None)
def test_no_vector_of_different_t_beats_it(epsilon, share, places):
    count = len(places)
    t = epsilon * np.array(places)
    delta = float(br_nonadaptive_delta(epsilon, count, at_epsilon=share * epsilon * count))
    assert delta_of_strategies(epsilon, t, share * epsilon * count) <= delta * (1 + 1e-12) + 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.3, 2.0, 50.0])
@pytest.mark.parametrize("count", [1, 2, 7, 33, pytest.param(70, marks=pytest.mark.slow)])
def test_agrees_with_the_literal_formula_to_the_stated_error(epsilon, count):
    curve = br_nonadaptive_curve(epsilon, count)
    for share in (0.0, 0.2, 0.61, 1 - 1e-9):
        x = share * epsilon * count
        exact, index = literal(epsilon, count, x)
        point = curve.optimum(x)
        difference = abs(mp.log(exact) - mp.mpf(point.log_value))
        assert difference <= point.error, (share, index)
        assert point.error < 1e-10 or share > 0.99
        assert curve.delta(x) >= min(exact, 1)


@pytest.mark.slow
def test_pruning_keeps_the_maximum_among_all_candidates():
    """Against the evaluation of every candidate."""
    for epsilon, count, x in [
        (0.1, 400, 3.0),
        (1.0, 300, 20.0),
        (5.0, 80, 150.0),
        (0.01, 500, 0.0),
        (0.01, 70, 0.1),
    ]:
        curve = br_nonadaptive_curve(epsilon, count)
        kept = candidates(epsilon, count, at_epsilon=x)
        exact, _ = literal(epsilon, count, x) if count <= 100 else (None, None)
        everything = _largest_value(epsilon, count, x, np.arange(int(count - x / epsilon)))
        assert len(kept) < count / 3
        assert curve.optimum(x).log_value >= everything.log_value - 1e-12
        if exact is not None:
            assert abs(mp.log(exact) - mp.mpf(everything.log_value)) <= everything.error


def test_pruning_is_strong_where_k_is_large():
    assert len(candidates(0.1, 10_000, at_epsilon=20.0)) < 10
    assert len(candidates(0.01, 100_000, at_epsilon=30.0)) < 50


def test_known_number():
    assert float(br_nonadaptive_epsilon(0.1, 100, delta=1e-6)) == pytest.approx(2.246, abs=5e-4)


@pytest.mark.slow
@given(epsilon=st.floats(1e-6, 50), count=st.integers(1, 1000), log_delta=st.floats(-690, -0.1))
@settings(max_examples=30, deadline=None)
def test_inverse_round_trip_and_bracket(epsilon, count, log_delta):
    delta = float(np.exp(log_delta))
    bound = compose(
        Charge({BoundedRange(epsilon): count}),
        delta=delta,
        bound="br_nonadaptive",
        interaction="batch",
    )
    assert bound.lower <= bound.epsilon <= epsilon * count * (1 + 1e-15)
    assert bound.epsilon - bound.lower <= 2e-9 * bound.epsilon
    if bound.epsilon < epsilon * count:
        assert float(br_nonadaptive_delta(epsilon, count, at_epsilon=bound.epsilon)) <= delta * (
            1 + 1e-11
        )
    if bound.lower > 0:
        assert float(br_nonadaptive_delta(epsilon, count, at_epsilon=bound.lower)) >= delta


@pytest.mark.slow
@given(
    epsilon=st.floats(1e-3, 10),
    count=st.integers(1, 2000),
    shares=st.tuples(st.floats(0, 0.95), st.floats(0, 0.95)),
)
@settings(max_examples=40, deadline=None)
def test_monotone_in_everything(epsilon, count, shares):
    low, high = sorted(share * epsilon * count for share in shares)
    at_low, at_high = br_nonadaptive_delta(epsilon, count, at_epsilon=[low, high])
    slack = 1 + 1e-9
    assert at_high <= at_low * slack
    assert at_low <= float(br_nonadaptive_delta(epsilon, count + 1, at_epsilon=low)) * slack
    assert at_low <= float(br_nonadaptive_delta(epsilon * 1.01, count, at_epsilon=low)) * slack


@pytest.mark.parametrize(("epsilon", "count"), [(1.0, 2), (0.5, 4), (2.0, 6)])
def test_adaptive_analyst_does_no_worse_and_gains_where_theory_says(epsilon, count):
    for share in (0.0, 0.25, 0.5, 1 - 0.5 / count):
        x = round(share * count * 60) / 60 * epsilon
        free, fixed = (
            adaptive(epsilon, count, x),
            float(br_nonadaptive_delta(epsilon, count, at_epsilon=x)),
        )
        gap = adaptivity_gap(epsilon, count, at_epsilon=x)
        if gap is False:
            assert free == pytest.approx(fixed, rel=0.05)
            assert free <= fixed * (1 + 1e-12)
        if gap is True:
            assert free > fixed
        assert free > fixed * 0.95  # the grid of t costs a little
        assert free <= float(mgf_delta(epsilon, count, at_epsilon=x))
    assert adaptivity_gap(0.5, 4, at_epsilon=0.25) is True


@pytest.mark.slow
@given(epsilon=st.floats(1e-4, 20), count=st.integers(1, 5000), log_delta=st.floats(-600, -1))
@settings(max_examples=40, deadline=None)
def test_optimum_is_below_the_mgf_bound(epsilon, count, log_delta):
    delta = float(np.exp(log_delta))
    assert br_nonadaptive_epsilon(epsilon, count, delta=delta) <= mgf_epsilon(
        epsilon, count, delta=delta
    ) * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 50.0])
def test_extremes_are_finite(epsilon):
    values = br_nonadaptive_epsilon(epsilon, 10**6, delta=[0.01, 1e-300])
    assert np.all(np.isfinite(values))
    assert values[0] < values[1] <= epsilon * 10**6
    assert br_nonadaptive_delta(epsilon, 10**6, at_epsilon=epsilon * 10**6 * 2).tolist() == 0.0


def test_at_zero_delta_the_sum_is_the_answer():
    assert float(br_nonadaptive_epsilon(0.25, 4, delta=0.0)) == pytest.approx(1.0, abs=1e-15)
    near = float(br_nonadaptive_delta(0.25, 4, at_epsilon=np.nextafter(1.0, 0)))
    assert 0 < near < 1e-40


def test_where_it_is_valid():
    several, single = Charge({BoundedRange(0.3): 5}), Charge({BoundedRange(0.3): 1})
    with pytest.raises(IncompatibleCosts, match="batch"):
        compose(several, delta=1e-6, bound="br_nonadaptive", interaction="ordered")
    with pytest.raises(IncompatibleCosts, match="adaptive inside"):
        compose(
            Charge({BoundedRange(0.3): 5}, adaptive=True),
            delta=1e-6,
            bound="br_nonadaptive",
            interaction="batch",
        )
    mixed = Charge({BoundedRange(0.3): 5, BoundedRange(0.2): 1})
    with pytest.raises(IncompatibleCosts, match="same epsilon"):
        compose(mixed, delta=1e-6, bound="br_nonadaptive", interaction="batch")
    # One 0.3-BR mechanism at ε_g = 0 is at worst randomised response with ε/2: tanh(ε/4).
    alone = compose(single, epsilon=0.0, bound="br_nonadaptive", interaction="setwise")
    assert alone.delta == pytest.approx(np.tanh(0.3 / 4), rel=1e-12)


def test_arguments_are_checked():
    with pytest.raises(InvalidParameter, match="epsilon"):
        br_nonadaptive_delta(0.0, 3, at_epsilon=1.0)
    with pytest.raises(InvalidParameter, match="count"):
        br_nonadaptive_epsilon(0.1, 2.5, delta=1e-6)
    for refused in (np.nan, np.inf, -1.0):
        with pytest.raises(InvalidParameter, match="at_epsilon"):
            br_nonadaptive_delta(0.1, 2, at_epsilon=[0.1, refused])
        with pytest.raises(InvalidParameter, match="delta"):
            br_nonadaptive_epsilon(0.1, 2, delta=refused)


def test_epsilons_beyond_the_floats_are_declined():
    with pytest.raises(InvalidParameter, match="to 700"):
        br_nonadaptive_delta(701.0, 2, at_epsilon=1.0)
    with pytest.raises(IncompatibleCosts, match="only"):
        compose(Charge.parse("2*BR(701)"), delta=1e-6, bound="br_nonadaptive", interaction="batch")
