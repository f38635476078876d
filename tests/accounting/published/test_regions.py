"""Privacy regions and their compositions: Algorithm 1, Theorems 2 and 3, Conjecture 1, the setting
of Figure 2.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.f_dp.multi_dp import multi_dp_delta
from dptopk.accounting.published.cadir_najib_shkel.regions import (
    PrivacyRegion,
    composition_region,
    heterogeneous_region,
    separate_region,
    total_variation,
    total_variation_region,
)
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import PiecewiseLinear, mix
from dptopk.errors import InvalidParameter

FIGURE_2 = ((0.3, 0.0), (0.15, 0.02))


def algorithm_1(e1, e2, x, y):
    """The paper's sums, literally, in 40 digits: a list of (slope, δ) over S(ε1, ε2; x, y)."""
    corners = []
    with mpmath.workdps(40):
        e1, e2 = mpmath.mpf(e1), mpmath.mpf(e2)
        for a_star, b_star in itertools.product(range(x + 1), range(y + 1)):
            slope = e1 * (x - 2 * a_star) + e2 * (y - 2 * b_star)
            if slope < 0:
                continue
            total = mpmath.mpf(0)
            for b in range(y + 1):
                a_0 = max(0, int(mpmath.ceil((y - b_star - b) * e2 / e1 + (x - a_star))))
                for a in range(a_0, x + 1):
                    gain = mpmath.exp(a * e1 + b * e2)
                    loss = mpmath.exp(e1 * (2 * (x - a_star) - a) + e2 * (2 * (y - b_star) - b))
                    total += math.comb(x, a) * math.comb(y, b) * (gain - loss)
            corners.append((slope, total / (mpmath.exp(e1) + 1) ** x / (mpmath.exp(e2) + 1) ** y))
    return corners


@pytest.mark.parametrize(
    ("e1", "e2", "x", "y"),
    [(1.0, 0.37, 3, 4), (0.5, 0.25, 4, 2), (2.1, 0.1, 1, 6), (0.7, 0.3, 5, 0)],
)
def test_heterogeneous_region_is_algorithm_1(e1, e2, x, y):
    region = heterogeneous_region(e1, e2, x, y)
    expected = algorithm_1(e1, e2, x, y)
    for slope, delta in expected:
        assert float(region.delta(float(slope))) == pytest.approx(
            float(delta), rel=1e-12, abs=1e-14
        )
    slopes = {round(float(slope), 9) for slope, _ in expected}
    assert {round(epsilon, 9) for epsilon, _ in region.constraints} == slopes


@pytest.mark.parametrize("k", [1, 2, 5, 12])
@pytest.mark.parametrize(
    "constraints", [FIGURE_2, ((1.0, 0.05), (0.3, 0.1)), ((0.8, 0.0), (0.4, 0.2))]
)
def test_theorems_2_and_3_agree(constraints, k):
    """R_k is the mixture of the C_{j,k-j}, j binomial, and of R(0, 1) where a mechanism fails."""
    worst, direct = PrivacyRegion(constraints).worst, composition_region(constraints, k)
    share = worst.weights[0] / (1 - worst.atom)
    survival = (1 - worst.atom) ** k
    weights = [survival * math.comb(k, j) * share**j * (1 - share) ** (k - j) for j in range(k + 1)]
    functions = [heterogeneous_region(*worst.epsilons, j, k - j).tradeoff for j in range(k + 1)]
    by_mixture = mix(
        [*functions, PiecewiseLinear.from_masses([0.0, 1.0], [1.0, 0.0])], [*weights, 1 - survival]
    )
    x = np.linspace(0, 1.1 * k * constraints[0][0], 25)
    np.testing.assert_allclose(by_mixture.delta(x), direct.delta(x), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(
        direct.delta(x), multi_dp_delta(constraints, k, at_epsilon=x), rtol=1e-11, atol=1e-12
    )


def test_figure_2_bounds_are_nested_and_worsen_with_k():
    """ε = (0.3, 0.15), δ = (0, 0.02): exact inside both baselines; close for k = 3, far for k =
    20.
    """
    ratios = {}
    for k in (3, 20):
        exact = composition_region(FIGURE_2, k)
        trivial, by_variation = separate_region(FIGURE_2, k), total_variation_region(*FIGURE_2, k)
        for bound in (trivial, by_variation):
            assert bound.includes(exact)
            assert not exact.includes(bound)
        assert trivial.includes(by_variation)
        ratios[k] = [
            float(bound.delta(0.1 * k) / exact.delta(0.1 * k)) for bound in (trivial, by_variation)
        ]
    assert ratios[3][0] < 2
    assert ratios[3][1] < 1.5
    assert ratios[20][0] > 10
    assert ratios[20][1] > 3


def test_total_variation_of_a_constraint_is_that_of_its_region():
    """η of Remark 2, corrected, is δ(0) of R(ε, δ)."""
    for epsilon, delta in ((0.15, 0.02), (2.0, 0.1), (0.01, 0.0)):
        assert total_variation(epsilon, delta) == pytest.approx(
            float(PrivacyRegion(((epsilon, delta),)).delta(0.0))
        )


def test_one_constraint_is_kov():
    """R_k(ε, δ): δ_j = 1 - (1-δ)^k (1 - Σ_l C(k,l) (e^{(k-l)ε} - e^{(k-2j+l)ε}) / (1+e^ε)^k) at ε_j
    = (k-2j) ε.
    """
    epsilon, delta, k = 0.4, 0.01, 6
    region = composition_region([(epsilon, delta)], k)
    for j in range(k // 2 + 1):
        terms = [
            math.comb(k, i) * (math.exp((k - i) * epsilon) - math.exp((k - 2 * j + i) * epsilon))
            for i in range(j)
        ]
        exact = 1 - (1 - delta) ** k * (1 - sum(terms) / (1 + math.exp(epsilon)) ** k)
        assert float(region.delta((k - 2 * j) * epsilon)) == pytest.approx(exact, rel=1e-12)


def test_an_inactive_constraint_changes_nothing():
    assert (
        composition_region([(0.3, 0.0), (0.2, 0.5)], 5).constraints
        == composition_region([(0.3, 0.0)], 5).constraints
    )


regions = st.lists(
    st.tuples(st.floats(0.0, 2.0), st.floats(1e-4, 0.5)), min_size=1, max_size=4
).map(lambda pairs: PrivacyRegion(tuple(pairs)))


@settings(max_examples=60, deadline=None)
@given(regions, regions)
def test_intersection_is_inside_both(one, other):
    both = one.intersect(other)
    assert one.includes(both)
    assert other.includes(both)
    assert both.intersect(one).active == both.active


@settings(max_examples=40, deadline=None)
@given(regions, st.integers(1, 3))
def test_composition_grows_with_k_and_is_symmetric(region, k):
    smaller, larger = (composition_region(region.constraints, count) for count in (k, k + 1))
    assert larger.includes(smaller)
    t = np.linspace(0, 1, 50)
    np.testing.assert_allclose(larger.tradeoff.inverse()(t), larger.tradeoff(t), atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(regions, st.tuples(st.floats(0.0, 2.0), st.floats(1e-4, 0.5)))
def test_one_more_constraint_shrinks_the_composition(region, pair):
    before, after = (
        composition_region(some, 3) for some in (region.constraints, (*region.constraints, pair))
    )
    assert before.includes(after)


@pytest.mark.parametrize("constraints", [(), ((1.0, -0.1),), ((math.inf, 0.1),)])
def test_regions_without_meaning_are_refused(constraints):
    with pytest.raises(InvalidParameter):
        PrivacyRegion(constraints)


def test_nothing_to_compose_is_refused():
    with pytest.raises(InvalidParameter, match="constraints"):
        separate_region((), 3)
    with pytest.raises(InvalidParameter, match="count1 and count2"):
        heterogeneous_region(1.0, 0.5, 0, 0)
