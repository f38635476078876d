"""The certified bracket for independent BR mechanisms with different ε's, against brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_delta
from dptopk.accounting.bounded_range.nonadaptive_heterogeneous import br_heterogeneous
from dptopk.accounting.bounds import compose
from dptopk.accounting.work import within
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import IncompatibleCosts, NotApplicable


def br_heterogeneous_bracket(epsilons, counts, at_epsilon, rtol=1e-3):
    """Lower and upper bounds on δ."""
    counts = np.broadcast_to(counts, len(epsilons)).tolist()
    costs = {BoundedRange(epsilon): count for epsilon, count in zip(epsilons, counts, strict=True)}
    return br_heterogeneous(Charge(costs)).bracket(at_epsilon, rtol)


def delta_of_strategy(epsilons, t, x):
    """δ(x) of independent RR_{ε_i,t_i}, over all 2^k outcomes."""
    epsilons, t = np.asarray(epsilons), np.asarray(t)
    q = np.expm1(t - epsilons) / np.expm1(-epsilons)
    total = 0.0
    for outcome in product([True, False], repeat=len(t)):
        hit = np.array(outcome)
        loss = np.where(hit, t, t - epsilons).sum()
        total += np.where(hit, q, 1 - q).prod() * max(-np.expm1(min(x - loss, 0.0)), 0.0)
    return total


@pytest.mark.slow
@given(
    ratio=st.floats(1.05, 4),
    epsilon=st.floats(0.05, 2),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    share=st.floats(0, 0.9),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=15, deadline=None)
def test_no_vector_of_t_beats_the_upper_end(ratio, epsilon, counts, share, seed):
    epsilons = [epsilon] * counts[0] + [epsilon * ratio] * counts[1]
    x = share * sum(epsilons)
    lower, upper = br_heterogeneous_bracket(
        [epsilon, epsilon * ratio], counts, at_epsilon=x, rtol=0.01
    )
    assert 0 <= lower <= upper <= 1
    rng = np.random.default_rng(seed)
    found = [delta_of_strategy(epsilons, rng.uniform(0, epsilons), x) for _ in range(60)]
    assert max(found) <= upper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilons", "share"), [((0.5, 1.0), 0.0), ((0.5, 1.0), 0.4), ((0.4, 1.0), 0.6)]
)
def test_two_mechanisms_on_a_fine_grid(epsilons, share):
    x = share * sum(epsilons)
    lower, upper = br_heterogeneous_bracket(epsilons, 1, at_epsilon=x)
    grid = max(
        delta_of_strategy(epsilons, t, x)
        for t in product(*(np.linspace(0, epsilon, 81) for epsilon in epsilons))
    )
    assert grid <= upper
    assert grid == pytest.approx(lower, rel=2e-3)
    assert upper <= lower * 1.0011


def test_nearly_equal_epsilons_are_the_homogeneous_optimum():
    lower, upper = br_heterogeneous_bracket([0.1, 0.1 * (1 + 1e-9)], [6, 4], at_epsilon=0.4)
    exact = float(br_nonadaptive_delta(0.1, 10, at_epsilon=0.4))
    assert lower * (1 - 1e-6) <= exact <= upper
    assert upper <= exact * 1.0011


@pytest.mark.slow
def test_inverse_is_certified():
    charge = Charge.parse("2*BR(0.1) + 2*BR(0.2)")
    bound = compose(charge, delta=1e-3, bound="br_heterogeneous", interaction="batch", rtol=1e-2)
    assert bound.lower < bound.epsilon <= bound.lower * 1.011
    assert br_heterogeneous_bracket([0.1, 0.2], 2, at_epsilon=bound.epsilon)[0] <= 1e-3
    assert br_heterogeneous_bracket([0.1, 0.2], 2, at_epsilon=bound.lower * (1 - 1e-6))[1] >= 1e-3
    assert compose(
        charge, delta=0.0, bound="br_heterogeneous", interaction="batch"
    ).epsilon == pytest.approx(0.6)


def test_cut_by_the_guard_the_bracket_is_wider_and_sound():
    with within(1e-9):
        lower, upper = br_heterogeneous_bracket([0.1, 0.2], [5, 5], at_epsilon=0.5)
    narrow = br_heterogeneous_bracket([0.1, 0.2], [5, 5], at_epsilon=0.5, rtol=0.01)
    assert lower <= narrow[1]
    assert upper >= narrow[1] > upper / 100
    late = compose(Charge.parse("5*BR(0.1) + 5*BR(0.2)"), epsilon=0.5, bound="br_heterogeneous", interaction="batch",
                   max_seconds=1e-9)  # fmt: skip
    assert late.note == "not refined further"


def test_where_it_applies():
    with pytest.raises(IncompatibleCosts, match="batch"):
        compose(Charge.parse("BR(0.1) + BR(0.2)"), delta=1e-3, bound="br_heterogeneous")
    with pytest.raises(IncompatibleCosts, match="exact for equal"):
        compose(
            Charge.parse("2*BR(0.1)"), delta=1e-3, bound="br_heterogeneous", interaction="batch"
        )
    with pytest.raises(NotApplicable, match="at most 3"):
        br_heterogeneous_bracket([0.1, 0.2, 0.3, 0.4], 1, at_epsilon=0.1)


@pytest.mark.slow
def test_curve_answers_arrays():
    curve = br_heterogeneous(Charge.parse("BR(0.5) + BR(1)"))
    deltas = curve.delta([0.0, 0.7, 1.5, 2.0])
    assert deltas[0] == pytest.approx(br_heterogeneous_bracket([0.5, 1.0], 1, at_epsilon=0.0)[1])
    assert deltas[0] > deltas[1] > 0 == deltas[2] == deltas[3]
    found = curve.epsilon([0.9, deltas[1]])
    assert found[0] < 1e-5
    assert found[1] == pytest.approx(0.7, rel=2e-3)


def test_large_epsilons_are_declined():
    with pytest.raises(NotApplicable, match="up to 350"):
        br_heterogeneous_bracket([1.0, 351.0], 1, at_epsilon=1.0)
