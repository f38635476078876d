"""Curves: inversion that ends on the safe side, and formulas that fail closed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp

from dptopk._internal.rounding import exp_up, outward
from dptopk.accounting.curves import (
    Answer,
    Curve,
    DeferredCurve,
    DeltaCurve,
    EpsilonCurve,
    Query,
    smallest_where,
)
from dptopk.accounting.pld.loss_curve import LossCurve


def quadratic(x: np.ndarray) -> np.ndarray:
    return -(x**2) / 3 - x / 7


QUADRATIC = DeltaCurve(quadratic, exact=True)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(log_delta=st.floats(-700, -1e-6))
def test_the_inverse_is_checked_and_tight(log_delta: float) -> None:
    delta = math.exp(log_delta)
    found = float(QUADRATIC.epsilon(delta))
    assert quadratic(np.array(found)) <= math.log(delta)
    assert quadratic(np.array(found * (1 - 1e-9) - 1e-12)) > math.log(delta) - 1e-9 * (
        1 + abs(log_delta)
    )


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.floats(0.01, 5), min_size=1, max_size=12), log_delta=st.floats(-60, -0.01))
def test_smallest_where_of_a_staircase(steps: list[float], log_delta: float) -> None:
    """Jumps: the answer is at or just right of the jump, never left of it."""
    jumps = np.cumsum(steps)

    def log_delta_at(x: np.ndarray) -> np.ndarray:
        return -5.0 * np.searchsorted(jumps, x, side="right")

    found = smallest_where(log_delta_at, np.array([log_delta]), np.inf)[0]
    needed = math.ceil(-log_delta / 5)
    if needed > len(jumps):
        assert found == np.inf
    else:
        assert log_delta_at(np.array([found]))[0] <= log_delta
        assert found == pytest.approx(jumps[needed - 1], rel=1e-12)


def test_shapes_are_kept() -> None:
    epsilon_curve = EpsilonCurve(lambda log_inverse: 0.1 + np.sqrt(log_inverse))
    for curve in (QUADRATIC, epsilon_curve, LossCurve(np.array([-1.0, 1.0]), np.log([0.27, 0.73]))):
        for shape in ((), (3,), (2, 3), (0,)):
            assert curve.delta(np.full(shape, 0.5)).shape == shape
            assert curve.epsilon(np.full(shape, 0.01)).shape == shape


@pytest.mark.parametrize(
    "curve",
    [
        DeltaCurve(lambda x: np.full_like(x, np.nan)),
        DeltaCurve(lambda x: np.full_like(x, np.inf)),
        EpsilonCurve(lambda x: np.full_like(x, np.nan)),
        EpsilonCurve(lambda x: np.full_like(x, np.inf)),
    ],
)
def test_a_failing_formula_gives_no_guarantee(curve: Curve) -> None:
    assert curve.epsilon(1e-6) == np.inf
    assert curve.delta(1.0) == 1


def test_a_formula_that_fails_in_places_fails_there_alone() -> None:
    curve = DeltaCurve(lambda x: np.where(x < 1, np.nan, -x))
    assert curve.delta(0.5) == 1
    assert float(curve.delta(3.0)) == pytest.approx(math.exp(-3))
    assert float(curve.epsilon(math.exp(-0.5))) >= 1
    assert float(curve.epsilon(math.exp(-3))) == pytest.approx(3)


def test_values_outside_the_range_are_clipped() -> None:
    assert DeltaCurve(lambda x: 5 - x).delta(0.0) == 1
    assert EpsilonCurve(lambda x: x - 100).epsilon(1e-6) == 0


def test_a_positive_delta_does_not_underflow_to_zero() -> None:
    for curve in (
        DeltaCurve(lambda x: -1e5 * x),
        LossCurve(np.array([-1.0, 2.0]), np.array([-1e-9, -5000.0])),
    ):
        assert 0 < curve.delta(1.0) < 1e-300


def test_delta_zero_and_one() -> None:
    unbounded = DeltaCurve(lambda x: -x)
    bounded = DeltaCurve(lambda x: -x, epsilon_max=2.0)
    assert unbounded.epsilon(0.0) == np.inf
    assert bounded.epsilon(0.0) == 2.0
    assert bounded.epsilon(1e-300) == 2.0
    assert bounded.delta(2.0) == 0
    assert bounded.delta(1.999) > 0
    assert unbounded.epsilon(1.0) <= 1e-12
    assert EpsilonCurve(np.sqrt).epsilon(0.0) == np.inf
    assert EpsilonCurve(np.sqrt, epsilon_max=3.0).epsilon(0.0) == 3.0
    assert EpsilonCurve(np.sqrt, epsilon_max=3.0).delta(3.0) == 0


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(log_inverse=st.floats(0.01, 600))
def test_epsilon_curve_round_trip(log_inverse: float) -> None:
    curve = EpsilonCurve(lambda x: outward(0.3 + 2 * np.sqrt(0.7 * x)))
    delta = math.exp(-log_inverse)
    epsilon = float(curve.epsilon(delta))
    back = float(curve.delta(epsilon))
    assert back == pytest.approx(delta, rel=1e-9)
    assert float(curve.epsilon(back)) <= epsilon * (1 + 1e-12)


def test_exact_curves_bracket() -> None:
    for query, truth in (
        (Query(epsilon=1.3), math.exp(quadratic(np.array(1.3)))),
        (Query(delta=1e-9), (-3 / 7 + math.sqrt(9 / 49 + 12 * 9 * math.log(10))) / 2),
    ):
        answer = QUADRATIC.answer(query)
        assert answer.lower is not None
        assert answer.lower <= truth <= answer.value
        assert answer.value - answer.lower < 1e-8 * truth


def test_near_epsilon_max_the_lower_bound_still_holds() -> None:
    """δ(ε) = 1 - e^{ε - 1}: a float's worth of ε changes δ by much more than a relative 1e-10."""
    curve = DeltaCurve(
        lambda x: np.log(np.maximum(-np.expm1(x - 1.0), 0.0) + 1e-18), epsilon_max=1.0, exact=True
    )
    epsilon = 1 - 2.0**-50
    answer = curve.answer(Query(epsilon=epsilon))
    assert answer.lower is not None
    assert answer.lower <= -math.expm1(epsilon - 1) <= answer.value


def test_outward() -> None:
    values = np.array([0.0, 1e-300, 1.0, np.inf, np.nan])
    moved = outward(values)
    assert moved[0] == 0
    assert (moved[1:3] > values[1:3]).all()
    assert (moved[3:] == np.inf).all()


def test_exp_up_is_never_below_the_exponential() -> None:
    logs = np.array([-1e-300, -1e-9, -0.3, -7.0, -123.4, -700.0, -740.0, -1e6])
    with mp.workdps(50):
        for log, found in zip(logs.tolist(), exp_up(logs).tolist(), strict=True):
            assert 0 < found <= 1
            assert mp.mpf(found) >= mp.exp(mp.mpf(log)) * (1 + mp.mpf("0.5e-13")) or found == 1
            assert log < -700 or mp.mpf(found) <= mp.exp(mp.mpf(log)) * (1 + mp.mpf("1e-11"))
    assert exp_up(np.array([0.0, 1.0, np.nan, -np.inf])).tolist() == [1.0, 1.0, 1.0, 0.0]


def test_deferred_builds_once_and_only_when_asked() -> None:
    built = []

    def build() -> Curve:
        built.append(1)
        return QUADRATIC

    curve = DeferredCurve(build)
    assert not built
    assert curve.delta(1.0) == QUADRATIC.delta(1.0)
    assert curve.epsilon(0.1) == QUADRATIC.epsilon(0.1)
    assert curve.answer(Query(delta=0.1)) == QUADRATIC.answer(Query(delta=0.1))
    assert built == [1]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    losses=st.lists(st.floats(-6, 6), min_size=1, max_size=12, unique=True),
    weights=st.lists(st.floats(1e-3, 1), min_size=12, max_size=12),
    x=st.floats(0, 7),
    log_delta=st.floats(-40, -0.01),
    tail=st.sampled_from([0.0, 1e-9]),
)
def test_loss_curve_is_the_sum_it_stands_for(
    losses: list[float], weights: list[float], x: float, log_delta: float, tail: float
) -> None:
    """δ(x) = Σ p (1 - e^{x - l})_+ + tail, the bracket about it, and both inverses."""
    atoms = np.sort(np.array(losses))
    masses = np.array(weights[: atoms.size]) / sum(weights[: atoms.size])
    curve = LossCurve(atoms, np.log(masses), tail=tail, exact=True)

    def exact(at: float) -> float:
        return float(masses @ np.maximum(-np.expm1(at - atoms), 0))

    assert float(curve.delta(x)) == pytest.approx(min(exact(x) + tail, 1), rel=1e-9, abs=1e-13)
    assert float(curve.delta(x)) >= exact(x) * (1 - 1e-15)
    assert float(curve.delta_lower(x)) <= exact(x) * (1 + 1e-15)
    delta = math.exp(log_delta)
    found = float(curve.epsilon(delta))
    if delta <= tail:
        assert found == np.inf
        return
    assert exact(found) + tail <= delta * (1 + 1e-12)
    if found > 1e-9:
        assert exact(found * (1 - 1e-7) - 1e-13) + tail >= delta * (1 - 1e-9)
    assert float(curve.epsilon_lower(delta)) <= found


def test_loss_curve_of_losses_that_are_never_positive() -> None:
    curve = LossCurve(np.array([-2.0, -1.0]), np.log([0.5, 0.5]), exact=True)
    assert curve.delta(0.0) == 0
    assert curve.epsilon(1e-6) == 0
    assert curve.answer(Query(delta=0.1)) == Answer(0.0, 0.0)
