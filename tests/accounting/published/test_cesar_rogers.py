"""The closed forms for three mechanisms against the recursion of CR Lemma 5.1, step by step."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.published.cesar_rogers import dp_first_delta, dp_later_delta
from dptopk.errors import InvalidParameter

T = np.linspace(0, 1, 1201)  # t/ε in the outer suprema


def one_br(epsilon, x):
    """δ of a single ε-BR mechanism at any real x: the supremum over t solved."""
    inner = np.expm1((np.clip(x, -epsilon, epsilon) - epsilon) / 2) ** 2 / -np.expm1(-epsilon)
    return np.where(x >= epsilon, 0, np.where(x <= -epsilon, -np.expm1(np.minimum(x, 0)), inner))


def dp_step(epsilon, after, x):
    up = 1 / (1 + np.exp(-epsilon))
    return up * after(x - epsilon) + (1 - up) * after(x + epsilon)


def br_step(epsilon, after, x):
    t = epsilon * T
    q = np.expm1(t - epsilon) / np.expm1(-epsilon)
    x = np.asarray(x, float)[..., None]
    return (q * after(x - t) + (1 - q) * after(x + epsilon - t)).max(axis=-1)


def dp_br_br(epsilon, x):
    return dp_step(epsilon, lambda y: br_step(epsilon, lambda w: one_br(epsilon, w), y), x)


def br_dp_br(epsilon, x):
    return br_step(epsilon, lambda y: dp_step(epsilon, lambda w: one_br(epsilon, w), y), x)


def br_br_dp(epsilon, x):
    def none(y):
        return np.maximum(-np.expm1(np.minimum(y, 0)), 0)

    return br_step(epsilon, lambda y: br_step(epsilon, lambda w: dp_step(epsilon, none, w), y), x)


def test_known_numbers():
    assert float(dp_first_delta(1.0, at_epsilon=0.3)) == pytest.approx(0.413601, abs=5e-7)
    assert float(dp_later_delta(1.0, at_epsilon=0.3)) == pytest.approx(0.409278, abs=5e-7)


@given(epsilon=st.floats(0.05, 6), share=st.floats(0, 2.9))
@settings(max_examples=60, deadline=None)
def test_agree_with_the_recursion(epsilon, share):
    x = share * epsilon
    for closed, recursion in ((dp_first_delta, dp_br_br), (dp_later_delta, br_dp_br)):
        on_grid, value = float(recursion(epsilon, x)), float(closed(epsilon, at_epsilon=x))
        assert on_grid <= value * (1 + 1e-12) + 1e-16
        assert on_grid == pytest.approx(value, rel=1e-3, abs=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0])
def test_the_dp_mechanism_last_is_as_in_the_middle(epsilon):
    for share in (0.1, 0.8):
        value = float(br_br_dp(epsilon, share * epsilon))
        assert value == pytest.approx(
            float(dp_later_delta(epsilon, at_epsilon=share * epsilon)), rel=1e-4
        )


def test_the_order_matters_below_epsilon_and_only_there():
    x = np.array([0.0, 0.2, 0.4999, 0.5, 0.9, 0.999])
    assert np.all(dp_first_delta(1.0, at_epsilon=x) > dp_later_delta(1.0, at_epsilon=x))
    x = np.array([1.0, 1.3, 1.5, 2.4, 3.0, 9.0])
    assert np.all(dp_first_delta(1.0, at_epsilon=x) == dp_later_delta(1.0, at_epsilon=x))
    assert dp_first_delta(1.0, at_epsilon=3.0) == 0.0


@pytest.mark.parametrize("corner", [0.5, 1.0, 1.5])
def test_the_cases_join_continuously(corner):
    for closed in (dp_first_delta, dp_later_delta):
        below, above = (
            closed(2.0, at_epsilon=2 * corner - 1e-9),
            closed(2.0, at_epsilon=2 * corner + 1e-9),
        )
        assert below == pytest.approx(above, rel=1e-7)


def test_small_epsilon_keeps_its_digits():
    """δ is homogeneous of degree one for tiny ε."""
    for closed in (dp_first_delta, dp_later_delta):
        assert float(closed(1e-6, at_epsilon=3e-7)) / 1e-6 == pytest.approx(
            float(closed(1e-4, at_epsilon=3e-5)) / 1e-4, rel=1e-4
        )


def test_arguments_are_checked():
    with pytest.raises(InvalidParameter, match="at_epsilon"):
        dp_first_delta(1.0, at_epsilon=np.nan)
    with pytest.raises(InvalidParameter, match="epsilon"):
        dp_later_delta(0.0, at_epsilon=1.0)
