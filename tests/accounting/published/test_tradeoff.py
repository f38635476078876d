"""Trade-off functions, (ε, δ) <-> f, mixtures of tests: closed forms, enumeration and the setting
of Figure 1.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.pld.constraints import active_constraints, mixture
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import (
    GaussianTradeoff,
    PiecewiseLinear,
    mix,
)
from dptopk.errors import InvalidParameter

T = np.linspace(0, 1, 301)
pairs = st.tuples(st.floats(0.0, 3.0), st.floats(1e-6, 0.6))
constraint_lists = st.lists(pairs, min_size=1, max_size=5)


@settings(max_examples=80, deadline=None)
@given(constraint_lists)
def test_constraints_to_f_is_the_pointwise_maximum(constraints):
    f = PiecewiseLinear.from_constraints(constraints)
    lines = [
        (1 - d - math.exp(e) * T, math.exp(-e) * (1 - d - T)) for e, d in constraints
    ]  # of f_{ε, δ}
    expected = np.maximum(np.max(lines, axis=(0, 1)), 0)
    np.testing.assert_allclose(f(T), expected, atol=3e-14)


@settings(max_examples=80, deadline=None)
@given(constraint_lists)
def test_f_is_convex_falling_symmetric_and_below_the_diagonal(constraints):
    f = PiecewiseLinear.from_constraints(constraints)
    type_1, type_2 = f.vertices()
    assert (np.diff(type_1) >= 0).all()
    assert (np.diff(type_2) <= 0).all()
    assert (type_2 <= 1 - type_1 + 1e-14).all()
    assert (np.diff(f.losses) > 0).all()
    np.testing.assert_allclose(f.inverse()(T), f(T), atol=3e-14)


@settings(max_examples=80, deadline=None)
@given(constraint_lists)
def test_there_and_back_again(constraints):
    """f -> constraints gives the active ones (and no weaker ones), and the same f."""
    f = PiecewiseLinear.from_constraints(constraints)
    for epsilon, delta in active_constraints(constraints):
        assert float(f.delta(epsilon)) == pytest.approx(delta, rel=1e-11, abs=1e-15)
    np.testing.assert_allclose(
        PiecewiseLinear.from_constraints(f.constraints())(T), f(T), atol=1e-13
    )


@settings(max_examples=50, deadline=None)
@given(constraint_lists, st.floats(0, 4))
def test_delta_is_one_minus_the_least_error_sum(constraints, epsilon):
    f = PiecewiseLinear.from_constraints(constraints)
    least = (f(f.vertices()[0]) + math.exp(epsilon) * f.vertices()[0]).min()
    assert float(f.delta(epsilon)) == pytest.approx(1 - least, abs=1e-13)
    touched = float(f.touch(epsilon))
    assert float(f(touched)) + math.exp(epsilon) * touched == pytest.approx(least, abs=1e-12)


def test_mixture_weights_are_the_alphas_of_theorem_2():
    (e1, d1), (e2, d2) = (0.7, 0.03), (0.2, 0.1)
    alpha = ((1 - d1) * math.exp(e2) - (1 - d2) * math.exp(e1) + d2 - d1) / (
        (math.exp(e2) - math.exp(e1)) * (1 - d1)
    )
    worst = mixture([(e1, d1), (e2, d2)])
    assert worst.atom == pytest.approx(d1)
    np.testing.assert_allclose(
        worst.weights, [(1 - d1) * (1 - alpha), (1 - d1) * alpha], rtol=1e-13
    )


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        ((0.5, 0.3), ((1.0, 0.0), (0.2, 0.4))),
        ((2.0, 0.1), ((1.0, 0.05),)),
        ((0.1, 0.5), ((0.3, 0.01),)),
    ],
)
def test_inactive_constraints_are_found(weaker, stronger):
    """Assumption 1: a constraint is active when (1 - δ)(1 + e^ε) orders strictly, and then only."""
    assert active_constraints([weaker, *stronger]) == stronger
    assert mixture([weaker, *stronger]).dropped == (weaker,)


def test_activity_is_assumption_1():
    rng = np.random.default_rng(1)
    kept = 0
    for _ in range(300):
        (e1, e2), (d1, d2) = np.sort(rng.uniform(0, 2, 2))[::-1], np.sort(rng.uniform(0, 0.4, 2))
        active = (1 - d1) * (1 + math.exp(e2)) < (1 - d2) * (1 + math.exp(e1))
        assert (len(active_constraints([(e1, d1), (e2, d2)])) == 2) == active
        kept += active
    assert 50 < kept < 250


@settings(max_examples=40, deadline=None)
@given(constraint_lists, st.floats(1e-16, 1e-12))
def test_nearly_equal_constraints_do_no_harm(constraints, gap):
    doubled = [
        *constraints,
        *((epsilon * (1 + gap), delta * (1 + gap)) for epsilon, delta in constraints),
    ]
    x = np.linspace(0, 3, 31)
    expected = PiecewiseLinear.from_constraints(constraints).delta(x)
    np.testing.assert_allclose(
        PiecewiseLinear.from_constraints(doubled).delta(x), expected, rtol=1e-10, atol=1e-12
    )


def test_epsilons_that_differ_by_a_denormal_number():
    """Between them 1/(1 + e^ε) does not move: the smaller δ wins, whichever ε it is at."""
    for deltas in ((0.5, 0.4), (0.4, 0.5)):
        worst = mixture(zip((3e-311, 2e-311), deltas, strict=True))
        assert [delta for _, delta in worst.active] == [0.4]


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_gaussian_against_mpmath(mu):
    f = GaussianTradeoff(mu)
    with mpmath.workdps(40):
        for x in (0.0, 0.3, 2.0, 8 * mu):
            exact = mpmath.ncdf(mu / 2 - mpmath.mpf(x) / mu) - mpmath.exp(x) * mpmath.ncdf(
                -mu / 2 - mpmath.mpf(x) / mu
            )
            assert float(f.delta(x)) == pytest.approx(float(exact), rel=1e-11)
    assert f.fixed_point == pytest.approx(float(f(f.fixed_point)), rel=1e-12)
    np.testing.assert_allclose(f(f(T[1:-1])), T[1:-1], rtol=1e-8, atol=1e-12)


def test_smooth_f_is_the_envelope_of_its_lines():
    f = GaussianTradeoff(0.8)
    x = np.linspace(0, 8, 4001)
    envelope = np.max([1 - d - np.exp(e) * T for e, d in zip(x, f.delta(x), strict=True)], axis=0)
    upper_half = T <= f.fixed_point
    np.testing.assert_allclose(envelope[upper_half][1:], f(T)[upper_half][1:], atol=2e-6)
    touched = f.touch(x)
    np.testing.assert_allclose(1 - f.delta(x) - np.exp(x) * touched, f(touched), atol=1e-12)


def test_figure_1_mixture_of_two_regions():
    """f_{1.3,0} and f_{0.5,0.2} in equal parts: neither above nor below the union of the two
    regions, nor inside it.
    """
    one, other = ((1.3, 0.0),), ((0.5, 0.2),)
    f1, f2 = (PiecewiseLinear.from_constraints(some) for some in (one, other))
    mixed = mix([f1, f2], [0.5, 0.5])
    union = np.minimum(f1(T), f2(T))
    assert (mixed(T) > union + 1e-3).any()
    assert (mixed(T) < union - 1e-3).any()
    assert float(mixed(0.0)) == pytest.approx(1 - 0.2 / 2)
    c1, c2 = 1 / (1 + math.exp(1.3)), 0.8 / (1 + math.exp(0.5))
    corner = (c1 + c2) / 2  # the Minkowski sum of the corners on the diagonal
    assert float(mixed(corner)) == pytest.approx(corner, abs=1e-12)


def test_lemma_1_by_brute_force_over_splits():
    f1, f2 = (
        PiecewiseLinear.from_constraints([(1.3, 0.0), (0.4, 0.1)]),
        PiecewiseLinear.from_constraints([(0.5, 0.2)]),
    )
    mixed = mix([f1, f2], [0.3, 0.7])
    fine = np.linspace(0, 1, 20_001)
    for t in (0.05, 0.2, 0.5, 0.77):
        t2 = (t - 0.3 * fine) / 0.7
        valid = (t2 >= 0) & (t2 <= 1)
        best = (0.3 * f1(fine[valid]) + 0.7 * f2(t2[valid])).min()
        assert float(mixed(t)) == pytest.approx(best, abs=1e-4)
        assert float(mixed(t)) <= best + 1e-12


@settings(max_examples=40, deadline=None)
@given(st.lists(constraint_lists, min_size=1, max_size=4), st.floats(0.1, 0.9), st.floats(0, 3))
def test_conjugates_add(lists, share, epsilon):
    """Lemma 2: f_m* = Σ α_i f_i*; at the slope -e^ε the conjugate is δ(ε) - 1."""
    functions = [PiecewiseLinear.from_constraints(some) for some in lists]
    weights = np.array([share**i for i in range(len(functions))])
    weights /= weights.sum()
    mixed = mix(functions, weights.tolist())
    total = sum(
        weight * float(f.delta(epsilon)) for weight, f in zip(weights, functions, strict=True)
    )
    assert float(mixed.delta(epsilon)) == pytest.approx(total, abs=1e-13)


def test_mixing_many_pieces_is_fast_and_exact():
    rng = np.random.default_rng(3)
    functions = []
    for _ in range(100):
        p = rng.dirichlet(np.ones(1000))
        functions.append(PiecewiseLinear.from_masses(p, rng.permutation(p)))
    mixed = mix(functions, [0.01] * 100)
    assert 99_000 < len(mixed.p) <= 100_000  # equal slopes are merged
    total = sum(0.01 * float(f.delta(0.4)) for f in functions)
    assert float(mixed.delta(0.4)) == pytest.approx(total, abs=1e-12)


def test_from_masses_is_the_best_test_over_all_events():
    rng = np.random.default_rng(5)
    p, q = rng.dirichlet(np.ones(8)), rng.dirichlet(np.ones(8))
    f = PiecewiseLinear.from_masses(p, q)
    for chosen in itertools.product([0, 1], repeat=8):
        event = np.array(chosen)
        assert 1 - q @ event >= float(f(min(p @ event, 1.0))) - 1e-13
    for epsilon in (0.0, 0.4, 1.5):
        best = max(
            q @ np.array(c) - math.exp(epsilon) * (p @ np.array(c))
            for c in itertools.product([0, 1], repeat=8)
        )
        assert float(f.delta(epsilon)) == pytest.approx(best, abs=1e-14)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        ([0.5, 0.5], [1.0]),
        ([0.5, 0.4], [0.5, 0.5]),
        ([1.5, -0.5], [0.5, 0.5]),
        ([[1.0]], [[1.0]]),
        (["a"], [1.0]),
        ([[0.5], [0.5, 1.0]], [1.0]),
        ([1j], [1.0]),
        ([1.0], None),
    ],
)
def test_masses_that_are_no_probabilities_are_refused(p, q):
    with pytest.raises(InvalidParameter):
        PiecewiseLinear.from_masses(p, q)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]])
def test_weights_that_do_not_match_are_refused(weights):
    f = PiecewiseLinear.from_constraints([(1.0, 0.0)])
    with pytest.raises(InvalidParameter, match="weights"):
        mix([f, f], weights)


@pytest.mark.parametrize(
    "constraints", [[], [(1.0,)], [(math.nan, 0.1)], [(-1.0, 0.1)], [(1.0, 1.0)], [(0.0, 0.0)]]
)
def test_constraints_outside_their_ranges_are_refused(constraints):
    with pytest.raises(InvalidParameter):
        PiecewiseLinear.from_constraints(constraints)
