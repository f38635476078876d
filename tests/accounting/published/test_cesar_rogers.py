"""The closed forms for three mechanisms against the recursion of CR Lemma 5.1, step by step."""

import mpmath
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


def in_many_digits(epsilon, x):
    """δ of both orders by the formulas of the module, in 60 digits."""
    with mpmath.workdps(60):
        e, g = mpmath.mpf(epsilon), mpmath.mpf(x)

        def q(t):
            return mpmath.expm1(t - e) / mpmath.expm1(-e)

        def one_range(t):
            return -(q(t) ** 2) * mpmath.expm1(-e)

        up = 1 / (1 + mpmath.exp(-e))

        def x_term(t):
            return up * (q(t) * one_range((g - t) / 2) + (1 - q(t)) * one_range((g + e - t) / 2))

        def y_term(t):
            after = -mpmath.expm1(g - e - t)
            return up * (q(t) * after + (1 - q(t)) * one_range((g + e - t) / 2))

        def z_term(t):
            return (1 - up) * q(t) * one_range(e + (g - t) / 2)

        if g >= 3 * e:
            return mpmath.mpf(0), mpmath.mpf(0)
        if g >= e:
            y, t = g - e, g / 3
            both = x_term(e / 2) if y < e / 2 else up * q(t) * one_range(t)
            return both, both
        main = x_term(e / 2) if g >= e / 2 else y_term((e + g) / 3)
        t = max(g, e / 2)
        later = max(x_term(min(g, e / 2)), y_term(t) + z_term(t))
        return main + z_term((2 * e + g) / 3), later


def assert_upper_bounds(epsilon, x):
    exact = in_many_digits(epsilon, x)
    for closed, value in zip((dp_first_delta, dp_later_delta), exact, strict=True):
        bound = float(closed(epsilon, at_epsilon=x))
        assert bound >= 0
        assert min(mpmath.mpf(bound), 1) >= min(value, 1), (closed, epsilon, x)
        assert bound <= float(value) * (1 + 5e-14) + 1e-320, (closed, epsilon, x)


SIZES = [5e-324, 1e-320, 1e-310, 1e-200, 1e-100, 1e-8, 0.05, 0.3, 1.0, 7.1, 40.0, 800.0, 1e5, 1e300]


@pytest.mark.parametrize("epsilon", SIZES)
def test_upper_bounds_near_every_corner_at_any_size(epsilon):
    corners = [0.0, epsilon / 2, epsilon, 1.5 * epsilon, 3 * epsilon]
    points = set(corners)
    for corner in corners:
        for shift in (1e-17, 1e-13, 1e-9, 1e-5, 0.01):
            points |= {abs(corner - shift * epsilon), corner + shift * epsilon}
        points |= {float(np.nextafter(corner, 0)), float(np.nextafter(corner, 9e307))}
    for x in points:
        assert_upper_bounds(epsilon, x)


@given(epsilon=st.floats(1e-320, 1e4), share=st.floats(0, 3.5))
@settings(max_examples=60, deadline=None)
def test_upper_bounds(epsilon, share):
    assert_upper_bounds(epsilon, share * epsilon)


def test_zero_from_three_epsilon_on():
    assert dp_later_delta(0.05, at_epsilon=0.2) == 0.0
    assert dp_first_delta(1.8707941233376588, at_epsilon=7.483) == 0.0


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
