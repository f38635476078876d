"""The Gaussian pair against high precision."""

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import special

from dptopk._internal.rounding import EPS
from dptopk.accounting.gaussian import pair
from dptopk.accounting.gaussian.pair import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
)
from dptopk.errors import InvalidParameter


def reference_log_delta(epsilon: float, mu: float) -> float:
    with mp.workdps(int(60 + (epsilon / mu + mu / 2) ** 2 / 4)):
        m, e = mp.mpf(mu), mp.mpf(epsilon)

        def upper_tail(x: mp.mpf) -> mp.mpf:
            return mp.erfc(x / mp.sqrt(2)) / 2

        return float(mp.log(upper_tail(e / m - m / 2) - mp.exp(e) * upper_tail(e / m + m / 2)))


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.01, 0.25, 0.26, 1.0, 5.0, 20.0])
def test_log_delta_matches_high_precision(mu):
    for c in [0.0, 1e-3, 0.5, 1.0, 3.0, 10.0, 24.9, 25.1, 36.9][: 6 if mu > 5 else None]:
        for epsilon in {c * mu, max(0.0, c * mu + mu * mu / 2), max(0.0, mu * mu / 2 - c * mu)}:
            exact = reference_log_delta(epsilon, mu)
            excess = float(gaussian_log_delta(mu, epsilon=epsilon)) - exact
            assert -1e-15 * abs(exact) <= excess <= 1e-11


def test_known_numbers():
    # Balle-Wang: 25 counts with (2.07906, 1e-6) need a standard deviation of 10.7645
    assert 5 / gaussian_mu(epsilon=2.07906, delta=1e-6) == pytest.approx(10.7645, abs=5e-5)
    assert float(gaussian_delta(1.0, epsilon=1.0)) == pytest.approx(0.1269367, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1.0, 50.0, 1e5])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5, 0.999])
def test_gaussian_mu_is_the_largest_on_the_safe_side(epsilon, delta):
    mu = gaussian_mu(epsilon=epsilon, delta=delta)
    assert float(gaussian_delta(mu, epsilon=epsilon)) <= delta
    assert float(gaussian_delta(mu * (1 + 1e-9), epsilon=epsilon)) > delta * (1 - 1e-12)


@pytest.mark.slow
@given(mu=st.floats(1e-3, 30), delta=st.floats(1e-300, 0.5))
@settings(max_examples=60, deadline=None)
def test_inverse_round_trip(mu, delta):
    epsilon = float(gaussian_epsilon(mu, delta=delta))
    assert epsilon >= 0
    assert float(gaussian_delta(mu, epsilon=epsilon)) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert gaussian_mu(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=1e-6)


@given(mu=st.floats(1e-6, 50), epsilon=st.floats(0, 100), step=st.floats(1e-3, 1))
@settings(max_examples=100, deadline=None)
def test_monotone(mu, epsilon, step):
    here = float(gaussian_log_delta(mu, epsilon=epsilon))
    assert (
        float(gaussian_log_delta(mu, epsilon=epsilon * (1 + step)))
        <= here + 1e-11 * abs(here) + 1e-10
    )
    assert (
        float(gaussian_log_delta(mu * (1 + step), epsilon=epsilon))
        >= here - 1e-11 * abs(here) - 1e-10
    )


def test_arrays_keep_their_shape():
    epsilon = np.linspace(0, 5, 6).reshape(2, 3)
    assert gaussian_delta(1.0, epsilon=epsilon).shape == (2, 3)
    assert gaussian_epsilon(1.0, delta=np.full((3, 1), 1e-6)).shape == (3, 1)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(-1.0, 1e-6), (1.0, 0.0), (1.0, 1.0), (math.nan, 1e-6)]
)
def test_bad_arguments_are_refused(epsilon, delta):
    with pytest.raises(InvalidParameter):
        gaussian_mu(epsilon=epsilon, delta=delta)


def exact_delta(epsilon, mu):
    """(ln δ, 1 - δ) of the pair in 160 digits, for the floats given; the second is None where δ <
    1/2.
    """
    with mp.workdps(160):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        a, b = e / m - m / 2, e / m + m / 2
        beyond = mp.exp(e) * mp.erfc(b / mp.sqrt(2)) / 2
        if a > 0:
            return mp.log(mp.erfc(a / mp.sqrt(2)) / 2 - beyond), None
        missing = mp.erfc(-a / mp.sqrt(2)) / 2 + beyond
        return mp.log1p(-missing), missing


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1.0, 900.0, 1e7])
def test_rounding_is_covered_and_no_more_than_stated(largest):
    """Also at a large μ, where ε/μ - μ/2 cancels: ln δ >= the exact one, or 1 - δ <= the exact
    one.
    """
    rng = np.random.default_rng(int(largest))
    for _ in range(400):
        mu = math.exp(rng.uniform(math.log(largest * 1e-6), math.log(largest)))
        epsilon = max(
            mu * (float(rng.choice([rng.uniform(-8, 30), rng.uniform(-1.5, 1.5)])) + mu / 2), 0.0
        )
        value = float(gaussian_log_delta(mu, epsilon=epsilon))
        exact, missing = exact_delta(epsilon, mu)
        a, moved = epsilon / mu - mu / 2, epsilon / mu + mu
        assert value >= exact
        room = 1e-12 + 6e-16 * ((abs(a) + 2) * moved + a * a + abs(float(exact))) + 1e-14 * abs(a)
        assert value - exact <= room * (1 if a > -1 else 2 * float(missing)) + 1e-300


def test_what_is_stated_of_the_special_functions():
    for x in np.concatenate([np.linspace(-1, 13, 300), np.linspace(13, 36, 60)]):
        with mp.workdps(120):
            half = mp.erfc(mp.mpf(float(x)) / mp.sqrt(2)) / 2
            ratio = half * mp.sqrt(2 * mp.pi) * mp.exp(mp.mpf(float(x)) ** 2 / 2)
            slope = 1 - mp.mpf(float(x)) * ratio
            off = [
                abs(float(mp.mpf(float(found)) / exact - 1))
                for found, exact in (
                    (pair._mills(np.array([x]))[0], ratio),
                    (pair._mills_slope(np.array([x]))[0], slope),
                    (special.ndtr(-x), half),
                )
            ]
        assert off[0] < pair.MILLS_ERROR
        assert off[1] < pair.SLOPE_ERROR
        assert off[2] < pair.NDTR_ERROR + 2 * EPS * x * x


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 1e-3, 0.3, 1 - 1e-9])
def test_the_largest_mu_is_found_in_a_few_steps(epsilon, delta, monkeypatch):
    """Halving took eighty; what is found fits, and a millionth of a millionth more does not."""
    asked = []
    monkeypatch.setattr(
        pair,
        "gaussian_log_delta",
        lambda mu, *, epsilon: asked.append(mu) or gaussian_log_delta(mu, epsilon=epsilon),
    )
    mu = gaussian_mu(epsilon=epsilon, delta=delta)
    assert len(asked) <= (16 if delta < 0.5 else 40)
    assert gaussian_delta(mu, epsilon=epsilon) <= delta
    if delta < 0.5:  # close to 1, ln δ hardly depends on μ
        assert gaussian_delta(mu * (1 + 1e-11), epsilon=epsilon) > delta


@pytest.mark.parametrize("delta", [1e-310, 5e-324])
def test_the_largest_mu_of_a_subnormal_delta(delta):
    """At ε = 0 δ is about μ / sqrt(2π), which no normal μ has."""
    mu = gaussian_mu(epsilon=0.0, delta=delta)
    assert mu > 0
    assert mp.mpf(mu) / mp.sqrt(2 * mp.pi) <= delta
