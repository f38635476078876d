"""Homogeneous composition against enumeration, 50-digit arithmetic and published numbers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.loss_curve import LossCurve
from dptopk.accounting.pure_dp import homogeneous as module
from dptopk.accounting.pure_dp.homogeneous import (
    EqualEpsilons,
    homogeneous,
    optimal_dp_delta,
    optimal_dp_epsilon,
)
from dptopk.costs import ApproxDP, BoundedRange, Charge, PureDP
from dptopk.errors import IncompatibleCosts, InvalidParameter


def brute_force_delta(epsilons: list[float], x: float) -> float:
    """δ at ε_g = x of independent randomised responses, by all 2^k outcomes (Murtagh-Vadhan 2016,
    equation 1).
    """
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        p = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
        q = math.prod(1 / (1 + math.exp(s * e)) for s, e in zip(signs, epsilons, strict=True))
        total += max(p - math.exp(x) * q, 0.0)
    return total


def mp_delta(epsilon: float, count: int, x: float) -> mpmath.mpf:
    """KOV's sum in 90 digits, l the number of positive losses."""
    with mpmath.workdps(90):
        e, x, log_p = mpmath.mpf(epsilon), mpmath.mpf(x), -mpmath.log1p(mpmath.exp(-epsilon))
        first = max(int(mpmath.floor((x / e + count) / 2)), 0)
        gaps = {i: (2 * i - count) * e - x for i in range(first, count + 1)}
        total = mpmath.fsum(
            mpmath.binomial(count, i)
            * mpmath.exp(i * e + count * (log_p - e))
            * -mpmath.expm1(-gap)
            for i, gap in gaps.items()
            if gap > 0
        )
        return min(total, mpmath.mpf(1))  # rounding of the 90th digit


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("epsilon", [0.03, 0.7, 4.0])
def test_equals_enumeration_of_all_outcomes(count: int, epsilon: float) -> None:
    for x in np.linspace(0, count * epsilon * 0.99, 7):
        assert float(optimal_dp_delta(epsilon, count, at_epsilon=x)) == pytest.approx(
            brute_force_delta([epsilon] * count, x), rel=1e-11
        )


@pytest.mark.parametrize("count", [1, 2, 7, 100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 50.0])
def test_bracket_holds_the_value_in_high_precision(count: int, epsilon: float) -> None:
    curve = homogeneous(epsilon, count, attained=True)
    for fraction in (0, 1e-9, 0.07, 0.3, 0.61, 0.9, 1 - 1e-9, 1 - 1e-15):
        x = fraction * count * epsilon
        exact = mp_delta(epsilon, count, x)
        upper = float(curve.delta(x))
        assert float(curve.delta_lower(x)) <= exact <= upper
        if 1e-300 < exact and fraction < 0.95:
            assert upper <= exact * (1 + mpmath.mpf(2e-11))


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-12, 1e-6, 0.1])
@pytest.mark.parametrize(
    ("epsilon", "count"),
    [(1e-6, 1000), (0.1, 1000), (3.0, 60), pytest.param(1e-4, 3000, marks=pytest.mark.slow)],
)
def test_inverse_is_tight_in_high_precision(epsilon: float, count: int, delta: float) -> None:
    found = float(optimal_dp_epsilon(epsilon, count, delta=delta))
    assert mp_delta(epsilon, count, found) <= delta
    if 0 < found < count * epsilon:
        assert mp_delta(epsilon, count, found * (1 - 1e-9)) > delta


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 50.0])
def test_a_million_mechanisms(epsilon: float) -> None:
    count = 10**6
    deltas = np.array([0.0, 1e-300, 1e-6, 0.3])
    found = optimal_dp_epsilon(epsilon, count, delta=deltas)
    assert count * epsilon <= found[0] <= count * epsilon * (1 + 1e-15)
    assert np.all(np.diff(found) <= 0)
    assert np.isfinite(found).all()
    back = optimal_dp_delta(epsilon, count, at_epsilon=found[2:3])
    assert back[0] <= 1e-6 * (1 + 1e-6)


@pytest.mark.parametrize(("epsilon", "count"), [(1e-4, 50_000), (0.03, 4_000), (1.5, 3_000)])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-4, 0.3])
def test_outcomes_near_the_answer_say_what_all_do(epsilon: float, count: int, delta: float) -> None:
    near = EqualEpsilons(epsilon, count, attained=True)
    found = near.answer(Query(delta=delta))
    back = near.answer(Query(epsilon=found.value * 0.99))
    if delta > 1e-300:
        assert "whole" not in vars(near)
    whole = near.whole_curve.answer(Query(delta=delta))
    assert whole.lower is not None
    assert found.lower is not None
    assert whole.lower * (1 - 1e-15) <= found.value <= whole.value * (1 + 1e-15)
    assert whole.lower * (1 - 1e-15) <= found.lower <= found.value
    whole_back = near.whole_curve.answer(Query(epsilon=found.value * 0.99))
    assert whole_back.lower is not None
    assert back.lower is not None
    assert whole_back.lower <= back.value <= whole_back.value * (1 + 1e-13)
    assert whole_back.lower * (1 - 1e-13) <= back.lower <= back.value


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40, 3000])
@pytest.mark.parametrize("epsilon", [1e-300, 1e-6, 0.1, 30.0])
def test_questions_at_and_beyond_the_largest_loss(count: int, epsilon: float) -> None:
    near = EqualEpsilons(epsilon, count, attained=True)
    for share in (0.0, 0.5, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0, 1e6):
        asked = Query(epsilon=count * epsilon * share)
        found = near.answer(asked)
        whole = near.whole_curve.answer(asked)
        assert whole.lower is not None
        assert whole.lower * (1 - 1e-13) <= found.value <= whole.value * (1 + 1e-13)
        assert (found.value == 0) == (whole.value == 0)
    for delta in (0.0, 5e-324, 1e-9, 0.5, 1 - 1e-9):
        asked = Query(delta=delta)
        found = near.answer(asked)
        whole = near.whole_curve.answer(asked)
        assert whole.lower is not None
        assert whole.lower * (1 - 1e-13) <= found.value <= whole.value * (1 + 1e-13)


@pytest.mark.slow
def test_a_million_mechanisms_in_high_precision() -> None:
    epsilon, count, x = 0.1, 10**6, 5469.571839817823
    with mpmath.workdps(50):
        e, odds = mpmath.mpf(epsilon), mpmath.exp(mpmath.mpf(epsilon))
        first = int(mpmath.floor((mpmath.mpf(x) / e + count) / 2)) + 1
        log_choose = (
            mpmath.loggamma(count + 1)
            - mpmath.loggamma(first + 1)
            - mpmath.loggamma(count - first + 1)
        )
        weight = mpmath.exp(log_choose + first * e - count * mpmath.log1p(odds))
        exact = mpmath.mpf(0)
        for i in range(first, first + 20_000):  # 40 standard deviations
            exact += weight * -mpmath.expm1(x - (2 * i - count) * e)
            weight *= (count - i) * odds / (i + 1)
    curve = homogeneous(epsilon, count, attained=True)
    assert float(curve.delta_lower(x)) <= exact <= float(curve.delta(x))
    assert float(curve.delta(x)) == pytest.approx(float(exact), rel=1e-9)


def test_published_number() -> None:
    """k = 25, ε = 0.1, δ = 1e-6: ε_g = 2.08 in Cesar-Rogers 2022, Section 6.3."""
    assert compose(
        Charge({PureDP(0.1): 25}), delta=1e-6, bound="optimal_dp"
    ).epsilon == pytest.approx(2.07906, abs=5e-6)


def test_murtagh_vadhan_formula_at_its_knots() -> None:
    """MV Theorem 1.4 answers with multiples (k - 2i) ε: the smallest of them at or above ours."""
    epsilon, count, delta = 0.2, 30, 1e-5
    answers = []
    for i in range(count // 2 + 1):
        total = (
            sum(
                math.comb(count, j)
                * (math.exp((count - j) * epsilon) - math.exp((count - 2 * i + j) * epsilon))
                for j in range(i)
            )
            / (1 + math.exp(epsilon)) ** count
        )
        if total <= delta:
            answers.append((count - 2 * i) * epsilon)
    ours = float(optimal_dp_epsilon(epsilon, count, delta=delta))
    assert answers[-1] - 2 * epsilon < ours <= answers[-1]


def test_failure_mass() -> None:
    """δ = 1 - (1 - δ0)^k (1 - δ_pure(ε_g)) for (ε, δ0)-DP."""
    found = compose(Charge({ApproxDP(0.1, 1e-8): 25}), epsilon=1.5, bound="optimal_dp").delta
    pure = float(optimal_dp_delta(0.1, 25, at_epsilon=1.5))
    assert found == pytest.approx(-math.expm1(25 * math.log1p(-1e-8) + math.log1p(-pure)), rel=1e-9)


def test_exactness_is_claimed_for_pure_dp_alone() -> None:
    pure = compose(Charge({PureDP(0.1): 20}), delta=1e-6, bound="optimal_dp")
    assert pure.lower is not None
    assert pure.lower == pytest.approx(pure.epsilon, rel=1e-9)
    mixed = compose(
        Charge({PureDP(0.1): 10, BoundedRange(0.1): 10}), delta=1e-6, bound="optimal_dp"
    )
    assert mixed.lower is None
    assert mixed.epsilon == pure.epsilon


def test_refuses_different_epsilons_and_bad_arguments() -> None:
    with pytest.raises(IncompatibleCosts, match="needs equal epsilons"):
        compose(Charge({PureDP(0.1): 1, PureDP(0.2): 1}), delta=1e-6, bound="optimal_dp")
    for call in (
        lambda: optimal_dp_delta(0.0, 5, at_epsilon=1.0),
        lambda: optimal_dp_delta(0.1, 0, at_epsilon=1.0),
        lambda: optimal_dp_delta(0.1, 5, at_epsilon=math.nan),
        lambda: optimal_dp_delta(0.1, 5, at_epsilon=-1.0),
        lambda: optimal_dp_epsilon(0.1, 5, delta=[0.1, math.nan]),
        lambda: optimal_dp_epsilon(0.1, 5, delta=math.inf),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_ten_thousand_take_ten_thousand_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is listed once and sorted into one curve, for an ε as well as a δ: no O(k²), no search
    over the law.
    """
    listed: list[int] = []

    def spy(*arguments: Any, **names: Any) -> LossCurve:
        curve = LossCurve(*arguments, **names)
        listed.append(len(arguments[0]))
        return curve

    monkeypatch.setattr(module, "LossCurve", spy)
    optimal_dp_epsilon(0.1037, 10_000, delta=[1e-6, 1e-3])
    assert len(listed) == 1
    assert listed[0] <= 10_001


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(1e-6, 20),
    count=st.integers(1, 300),
    fraction=st.floats(0, 1),
    step=st.floats(1e-3, 0.5),
)
def test_monotone(epsilon: float, count: int, fraction: float, step: float) -> None:
    x = fraction * count * epsilon
    here = float(optimal_dp_delta(epsilon, count, at_epsilon=x))
    assert 0 <= here <= 1
    assert float(optimal_dp_delta(epsilon, count, at_epsilon=x * (1 + step))) <= here * (1 + 1e-9)
    assert float(optimal_dp_delta(epsilon * (1 + step), count, at_epsilon=x)) >= here * (1 - 1e-9)
    assert float(optimal_dp_delta(epsilon, count + 1, at_epsilon=x)) >= here * (1 - 1e-9)


@settings(max_examples=60, deadline=None)
@given(epsilon=st.floats(1e-6, 20), count=st.integers(1, 300), log_delta=st.floats(-600, -0.01))
def test_directions_invert_each_other(epsilon: float, count: int, log_delta: float) -> None:
    delta = math.exp(log_delta)
    found = float(optimal_dp_epsilon(epsilon, count, delta=delta))
    assert 0 <= found <= count * epsilon * (1 + 1e-15)
    if found < count * epsilon:
        assert float(optimal_dp_delta(epsilon, count, at_epsilon=found * (1 + 1e-9))) <= delta
