"""Composition of mechanisms with several (ε, δ) constraints: against enumeration, the paper's
theorems and mpmath.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.f_dp import multi_dp as module
from dptopk.accounting.f_dp.multi_dp import composition_law, multi_dp_delta
from dptopk.accounting.pld.common_lattice import common_lattice
from dptopk.accounting.pld.constraints import PERTURBATION, mixture
from dptopk.costs import ApproxDP, Charge, MultiDP, PureDP
from dptopk.errors import NotApplicable

FIGURE_2 = ((0.3, 0.0), (0.15, 0.02))
FIVE = ((0.5, 0.0), (0.41, 0.001), (0.3, 0.005), (0.2, 0.02), (0.1, 0.06))


def enumerate_delta(pairs, x):
    """δ(x) of a product of (probabilities, losses) pairs, over every outcome."""
    total = 0.0
    for outcome in itertools.product(*(list(zip(*pair, strict=True)) for pair in pairs)):
        mass = math.prod(p for p, _ in outcome)
        loss = math.fsum(value for _, value in outcome)
        total += mass * max(0.0, -math.expm1(x - loss))
    return total


def theorem_3(constraints, k, x):
    """CNS Theorem 3's sum over (a, b, c, d) at any slope x, in 50 digits, for δ1 = 0."""
    with mpmath.workdps(50):
        (e1, d1), (e2, d2) = [(mpmath.mpf(e), mpmath.mpf(d)) for e, d in constraints]
        alpha = ((1 - d1) * mpmath.e**e2 - (1 - d2) * mpmath.e**e1 + d2 - d1) / (
            (mpmath.e**e2 - mpmath.e**e1) * (1 - d1)
        )
        total = mpmath.mpf(0)
        for a, b, c in itertools.product(range(k + 1), repeat=3):
            d = k - a - b - c
            loss = (a - d) * e1 + (b - c) * e2
            if d < 0 or loss <= x:
                continue
            ways = mpmath.factorial(k) / mpmath.fprod(map(mpmath.factorial, (a, b, c, d)))
            outer = ((1 - alpha) / (mpmath.e**e1 + 1)) ** (a + d) * (
                alpha / (mpmath.e**e2 + 1)
            ) ** (b + c)
            total += (
                ways * outer * (mpmath.e ** (a * e1 + b * e2) - mpmath.e ** (x + d * e1 + c * e2))
            )
        return total


@pytest.mark.parametrize(
    "constraints", [FIGURE_2, ((0.31, 0.0), (0.1234567, 0.04)), ((2.0, 0.0), (0.0, 0.3))]
)
@pytest.mark.parametrize("k", [1, 3, 7])
def test_agrees_with_theorem_3_at_50_digits(constraints, k):
    for x in (0.0, 0.05, constraints[1][0] * k / 2, constraints[0][0] * k * 0.9):
        exact = theorem_3(constraints, k, x)
        value = float(multi_dp_delta(constraints, k, at_epsilon=x))
        assert exact <= value <= exact * (1 + 1e-12) + mpmath.mpf(10) ** -290


def worst_pair(cost):
    """Probabilities under P and losses."""
    losses, probabilities = module._mixture_of(cost, PERTURBATION).atoms()
    return probabilities, losses


def test_every_way_of_listing_gives_the_same_delta():
    """A grid, the rows of Theorem 3, and the mixture over counts, for losses that a nudge makes
    incommensurable.
    """
    x = np.linspace(0, 3, 7)
    for constraints in (FIGURE_2, ((0.5, 0.0), (0.3, 0.01), (0.1, 0.05)), FIVE):
        on_grid = multi_dp_delta(constraints, 8, at_epsilon=x)
        moved = [
            (epsilon * (1 + 1e-9 * i), delta) for i, (epsilon, delta) in enumerate(constraints)
        ]
        assert common_lattice([(module._mixture_without_atom(mixture(moved)), 8)]) is None
        np.testing.assert_allclose(
            multi_dp_delta(moved, 8, at_epsilon=x), on_grid, rtol=1e-7, atol=1e-12
        )


@pytest.mark.parametrize("constraints", [FIGURE_2, FIVE, ((1.1, 0.0), (0.7, 0.05), (0.0, 0.3))])
def test_brute_force_over_all_outcomes(constraints):
    pair = worst_pair(MultiDP(constraints))
    for k in (1, 2, 4):
        for x in (0.0, 0.21, 0.9):
            exact = enumerate_delta([pair] * k, x)
            assert float(multi_dp_delta(constraints, k, at_epsilon=x)) == pytest.approx(
                exact, rel=1e-12, abs=1e-290
            )


def test_heterogeneous_charge_by_enumeration():
    costs = {MultiDP(FIGURE_2): 2, MultiDP(((0.7, 0.0), (0.4, 0.01))): 1, PureDP(0.2345): 2}
    pairs = [worst_pair(cost) for cost, times in costs.items() for _ in range(times)]
    for x in (0.0, 0.4, 1.3):
        found = compose(Charge(costs), epsilon=x, bound="multi_dp")
        assert found.delta == pytest.approx(enumerate_delta(pairs, x), rel=1e-11)
        assert found.lower <= found.delta <= found.lower * (1 + 1e-11)


def test_one_constraint_is_kov_with_delta():
    """(ε, δ) alone: 1 - (1-δ)^k (1 - binomial sum); Figure 1 of DDR's k = 25 example gives ε_g =
    2.07906.
    """
    found = compose(Charge({MultiDP(((0.1, 1e-6),)): 25}), delta=1e-6 * 25 + 1e-6, bound="multi_dp")
    plain = compose(Charge({ApproxDP(0.1, 1e-6): 25}), delta=1e-6 * 25 + 1e-6, bound="multi_dp")
    assert found.epsilon == pytest.approx(plain.epsilon, rel=1e-12)
    pure = compose(Charge({PureDP(0.1): 25}), delta=1e-6, bound="multi_dp")
    assert pure.epsilon == pytest.approx(2.07906, abs=5e-6)


def test_certified_bracket_is_narrow_in_both_directions():
    charge = Charge({MultiDP(((0.31234567, 1e-9), (0.15, 0.02))): 100})
    at_delta = compose(charge, delta=1e-4, bound="multi_dp")
    assert at_delta.lower <= at_delta.epsilon <= at_delta.lower * (1 + 1e-9)
    at_epsilon = compose(charge, epsilon=at_delta.epsilon, bound="multi_dp")
    assert at_epsilon.delta <= 1e-4 * (1 + 1e-9)
    assert at_epsilon.lower <= at_epsilon.delta <= at_epsilon.lower * (1 + 1e-9)


def test_zero_delta_is_the_sum_of_the_largest_epsilons():
    found = compose(Charge({MultiDP(FIGURE_2): 20, PureDP(0.5): 2}), delta=0.0, bound="multi_dp")
    assert found.epsilon == pytest.approx(7.0, rel=1e-12)
    assert found.epsilon >= 7.0


@pytest.mark.parametrize("epsilon", [1.0, 1.2345])
def test_losses_whose_masses_underflow_still_count(epsilon):
    """3000 times TV 0.3: the largest loss has a mass near 1e-1700, and δ is 0 only beyond it."""
    constraints = ((epsilon, 0.0), (0.0, 0.3))
    assert (
        compose(Charge({MultiDP(constraints): 3000}), delta=0.0, bound="multi_dp").epsilon
        >= 3000 * epsilon
    )
    assert float(multi_dp_delta(constraints, 3000, at_epsilon=2999 * epsilon)) > 0
    found = compose(Charge({MultiDP(constraints): 3000}), delta=1e-305, bound="multi_dp")
    assert found.epsilon >= 3000 * epsilon * (1 - 1e-12)


def test_no_delta_needs_no_refinement():
    constraints = (
        (0.5123, 0.0),
        (0.41123, 0.001),
        (0.3071, 0.005),
        (0.20013, 0.02),
        (0.10077, 0.06),
    )
    found = compose(Charge({MultiDP(constraints): 1000}), delta=0.0, bound="multi_dp")
    assert found.epsilon == pytest.approx(512.3, rel=1e-14)
    assert found.lower == pytest.approx(found.epsilon, rel=1e-14)
    assert found.note == ""


def test_dropped_constraints_are_named():
    found = compose(Charge({MultiDP((*FIGURE_2, (0.2, 0.5))): 3}), delta=1e-3, bound="multi_dp")
    assert "(0.2, 0.5)" in found.note
    assert (
        found.epsilon
        == compose(Charge({MultiDP(FIGURE_2): 3}), delta=1e-3, bound="multi_dp").epsilon
    )


@pytest.mark.slow
def test_adds_up_over_thousands_of_compositions():
    """k = 1000 with two incommensurable ε's: between randomised response at the smaller and at the
    larger ε.
    """
    charge = Charge({MultiDP(((0.05123, 0.0), (0.0171, 0.001))): 1000})
    found = compose(charge, delta=1e-5, bound="multi_dp")
    small, large = (
        compose(Charge({PureDP(e): 1000}), delta=1e-5, bound="multi_dp") for e in (0.0171, 0.05123)
    )
    assert small.epsilon < found.epsilon < large.epsilon
    assert found.lower > found.epsilon * (1 - 1e-9)


@pytest.mark.parametrize(
    "epsilons", [(900.0, 800.0, 1.0), (50.0, 1e-9), (1.0, 1.0 - 1e-15), (3e-8, 1e-8)]
)
def test_extreme_epsilons_stay_sound(epsilons):
    deltas = [0.0, 0.01, 0.3][: len(epsilons)]
    constraints = list(zip(epsilons, deltas, strict=True))
    for x, delta in constraints:
        assert float(multi_dp_delta(constraints, 1, at_epsilon=x)) <= max(delta, 1e-290) * (
            1 + 1e-9
        )
    curve = multi_dp_delta(constraints, 5, at_epsilon=np.linspace(0, 5 * epsilons[0], 11))
    assert np.isfinite(curve).all()
    assert (np.diff(curve) <= 0).all()
    assert curve[-1] <= 1e-290


def test_the_worst_pair_is_symmetric_and_normalised():
    probabilities, losses = worst_pair(MultiDP(FIVE))
    assert probabilities.sum() == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(losses, -losses[::-1])
    np.testing.assert_allclose(probabilities * np.exp(-losses), probabilities[::-1], rtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 12, pytest.param(25, marks=pytest.mark.study)])
@pytest.mark.parametrize("failing", [0.0, 1e-3, 0.9])
def test_bracket_on_a_grid_holds_the_exact_value_and_closes(k, failing, monkeypatch):
    """Listed outcomes against the lattice, for one mechanism that may fail outright; also beside
    pure DP costs.
    """
    constraints = ((0.51237, failing), (0.21013, failing + 0.02 * (1 - failing)))
    costs = Charge({MultiDP(((0.51237, 0.0), (0.21013, 0.02))): k, PureDP(0.1357): 2})
    x = np.linspace(0, 0.3 * k, 5)
    listed = multi_dp_delta(constraints, k, at_epsilon=x)
    pure = [compose(costs, epsilon=each, bound="multi_dp") for each in x]
    monkeypatch.setattr(module, "MOST_LISTED_OUTCOMES", 0)
    for rtol in (1e-1, 1e-3):
        lower, upper = module.multi_dp_bracket(constraints, k, at_epsilon=x, rtol=rtol)
        assert (lower <= listed * (1 + 1e-10)).all()
        assert (upper >= listed * (1 - 1e-10)).all()
        assert (upper - lower <= rtol * upper).all()
        for each, exact in zip(x, pure, strict=True):
            found = compose(costs, epsilon=each, bound="multi_dp", rtol=rtol)
            assert exact.lower * (1 - 1e-10) <= found.delta
            assert found.lower <= exact.delta * (1 + 1e-10)
            assert found.delta - found.lower <= rtol * found.delta
            assert exact.lower != found.lower  # not the same computation twice


@pytest.mark.slow
@pytest.mark.parametrize(("k", "rtol"), [(200, 1e-4), (1000, 1e-3)])
def test_five_incommensurable_constraints_are_bracketed_in_seconds(k, rtol):
    constraints = (
        (0.5123, 0.0),
        (0.41123, 0.001),
        (0.3071, 0.005),
        (0.20013, 0.02),
        (0.10077, 0.06),
    )
    charge = Charge({MultiDP(constraints): k})
    found = compose(charge, delta=1e-6, bound="multi_dp", rtol=rtol)
    assert found.lower <= found.epsilon <= found.lower * (1 + rtol)
    at_epsilon = compose(charge, epsilon=found.epsilon, bound="multi_dp", rtol=rtol)
    assert at_epsilon.lower <= 1e-6 * (1 + 1e-9)


@pytest.mark.slow
def test_a_bracket_whose_work_is_used_up_says_so():
    constraints = ((0.5123, 0.0), (0.41123, 0.001), (0.3071, 0.005))
    found = compose(
        Charge({MultiDP(constraints): 2000}),
        delta=1e-6,
        bound="multi_dp",
        rtol=1e-9,
        effort="quick",
    )
    assert "used up" in found.note
    assert found.lower < found.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("rare", [1e-12, 1e-60])
def test_a_rare_large_loss_does_not_need_a_huge_grid(rare):
    """The typical loss is 0.01, but a loss of 5 or 4 comes with a small probability."""
    constraints = ((5.123, 0.0), (4.0, rare / 3), (0.0123, rare))
    lower, upper = module.multi_dp_bracket(constraints, 500, at_epsilon=[0.0, 0.1, 6.0])
    assert (lower <= upper).all()
    assert 0 < lower[0] < upper[0] < 2 * lower[0]
    assert upper[2] <= 500 * rare * (1 + 1e-9) + 1e-50


@pytest.mark.slow
def test_large_losses_keep_a_lower_bound():
    """Losses near 1500: what Q has where P lives is e^-1500."""
    charge = Charge({MultiDP(((2.03, 0.0), (1.9777, 0.1), (0.61, 0.3))): 1000})
    found = compose(charge, delta=1e-6, bound="multi_dp")
    assert found.epsilon > 500
    assert found.lower > 0.999 * found.epsilon


def test_too_many_outcomes_are_refused():
    moved = [(epsilon * (1 + 1e-9 * i), delta) for i, (epsilon, delta) in enumerate(FIVE)]
    with pytest.raises(NotApplicable, match="too many"):
        composition_law([(mixture(moved, nudge=PERTURBATION), 100)])


constraint_sets = st.lists(
    st.tuples(st.floats(0.0, 3.0), st.floats(1e-6, 0.5)), min_size=0, max_size=3
).flatmap(lambda extra: st.tuples(st.just(extra), st.floats(0.01, 4.0)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    constraint_sets,
    st.tuples(st.floats(0.0, 3.0), st.floats(1e-6, 0.5)),
    st.floats(0.0, 4.0),
    st.integers(1, 4),
)
def test_adding_a_constraint_never_raises_delta(drawn, added, x, k):
    extra, largest = drawn
    base = [(largest, 0.0), *extra]
    before, after = (
        float(multi_dp_delta(some, k, at_epsilon=x)) for some in (base, [added, *base])
    )
    assert after <= before * (1 + 1e-8) + 1e-290


@settings(max_examples=40, deadline=None)
@given(constraint_sets, st.randoms(use_true_random=False), st.floats(0.0, 4.0))
def test_order_of_constraints_and_repetitions_do_not_matter(drawn, random, x):
    extra, largest = drawn
    base = [(largest, 0.0), *extra]
    shuffled = base + base[:1]
    random.shuffle(shuffled)
    assert float(multi_dp_delta(base, 2, at_epsilon=x)) == float(
        multi_dp_delta(shuffled, 2, at_epsilon=x)
    )


@settings(max_examples=20, deadline=None)
@given(constraint_sets, st.floats(0.0, 4.0))
def test_count_is_as_many_singles(drawn, x):
    """count = n against n equal costs kept apart (distinct only by an inactive constraint)."""
    extra, largest = drawn
    base = ((largest, 0.0), *extra)
    single = {MultiDP((*base, (largest + 1 + i, 0.9))): 1 for i in range(3)}
    together = compose(Charge({MultiDP(base): 3}), epsilon=x, bound="multi_dp").delta
    apart = compose(Charge(single), epsilon=x, bound="multi_dp").delta
    assert apart == pytest.approx(together, rel=1e-7, abs=1e-290)  # losses carry an absolute error


def test_one_cost_of_many_constraints_is_its_corners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each constraint of a convex curve is attained, between them it is a chord in e^ε; and nothing
    is split up.
    """
    epsilons = np.linspace(0.02, 3.0, 150)[::-1]
    deltas = 0.1 * np.exp(-2 * epsilons)
    cost = MultiDP(tuple(zip(epsilons.tolist(), deltas.tolist(), strict=True)))
    monkeypatch.setattr(module, "_law_of_several_epsilons", None)
    for epsilon in (0.02, 0.5, 1.234, 2.9):
        chord = np.interp(math.exp(epsilon), np.exp(epsilons[::-1]), deltas[::-1])
        found = compose(Charge({cost: 1}), epsilon=epsilon, bound="multi_dp")
        assert found.delta == pytest.approx(chord, rel=1e-9)
        assert found.lower is not None
        assert found.lower <= found.delta
