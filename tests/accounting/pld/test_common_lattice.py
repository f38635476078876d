"""Losses on a common step, and convolution powers: against 40-digit convolution and binomial
laws.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.pld.characteristic_function import by_squaring
from dptopk.accounting.pld.common_lattice import common_lattice
from dptopk.accounting.pld.laws import LEAST_MASS, IntegerLaw, binomials, convolution_power

weights = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=3)


def exact_delta(responses, count, x):
    """δ of the count-fold composition by convolution of (loss counts -> mass) in 40 digits."""
    with mpmath.workdps(40):
        law = {(0,) * len(responses): mpmath.mpf(1)}
        for _ in range(count):
            longer: dict[tuple[int, ...], mpmath.mpf] = {}
            for place, mass in law.items():
                for i, (epsilon, weight) in enumerate(responses):
                    for sign in (1, -1):
                        key = (*place[:i], place[i] + sign, *place[i + 1 :])
                        step = mpmath.mpf(weight) / (1 + mpmath.exp(-sign * mpmath.mpf(epsilon)))
                        longer[key] = longer.get(key, mpmath.mpf(0)) + mass * step
            law = longer
        losses = [
            (mpmath.fdot(zip(place, (e for e, _ in responses), strict=True)), mass)
            for place, mass in law.items()
        ]
        return mpmath.fsum(mass * (1 - mpmath.exp(x - loss)) for loss, mass in losses if loss > x)


@settings(max_examples=25, deadline=None)
@given(
    weights,
    st.floats(1e-3, 5.0),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.integers(1, 3),
    st.floats(0, 1),
)
def test_composed_on_a_common_step_as_in_40_digits(raw, step, multiples, count, share):
    total = math.fsum(raw)
    nodes = sorted(set(multiples[: len(raw)]), reverse=True)
    responses = tuple(
        (step * node, weight / total) for node, weight in zip(nodes, raw, strict=False)
    )
    responses = tuple(
        (epsilon, weight / math.fsum(w for _, w in responses)) for epsilon, weight in responses
    )
    grid = common_lattice([(responses, count)])
    x = share * count * responses[0][0]
    exact, law = exact_delta(responses, count, x), grid.law([(responses, count)])
    slack = mpmath.mpf(10) ** -13 * (
        1 + responses[0][0]
    )  # the weights given add up to 1 to rounding only
    assert exact * (1 - slack) <= law.delta_upper(np.array([x]))[0] <= exact * (1 + 1e-11) + 1e-12
    assert exact * (1 - 1e-11) - 1e-12 <= law.delta_lower(np.array([x]))[0] <= exact * (1 + slack)


@pytest.mark.parametrize(
    ("epsilons", "step"),
    [((0.3, 0.15), 0.15), ((0.5, 0.2), 0.1), ((0.1, 0.3, 0.7), 0.1), ((1.0, 0.0), 1.0)],
)
def test_common_steps_are_found(epsilons, step):
    grid = common_lattice([(tuple((epsilon, 1 / len(epsilons)) for epsilon in epsilons), 10)])
    assert grid is not None
    assert grid.step == pytest.approx(step, rel=1e-14)
    for epsilon in epsilons:
        assert grid.nodes[epsilon] * grid.step == pytest.approx(epsilon, rel=2e-15)


@pytest.mark.parametrize("epsilons", [(1.0, 1 / math.pi), (1.0, 1e-9), (0.3, 0.15 * (1 + 1e-9))])
def test_no_common_step(epsilons):
    assert common_lattice([(tuple((epsilon, 0.5) for epsilon in epsilons), 10)]) is None


def test_powers_are_binomial_laws_and_their_error_bound_holds():
    found = convolution_power(IntegerLaw(np.array([0.7, 0.3])), 500)
    with mpmath.workdps(40):
        for j in (0, 1, 150, 499, 500):
            exact = mpmath.binomial(500, j) * mpmath.mpf(0.3) ** j * mpmath.mpf(0.7) ** (500 - j)
            assert abs(found.masses[j] / exact - 1) <= found.error
    assert found.error < 1e-11
    np.testing.assert_allclose(binomials(500, 0.3, 0.7)[500], found.masses, rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "share"), [(900, 0.3), (5000, 1e-3), (40, 1e-30)])
def test_what_a_power_leaves_out_is_stated(count, share):
    """Binomial masses far below the smallest normal number are cut off, and their sum is within
    what is stated.
    """
    found = convolution_power(IntegerLaw(np.array([1 - share, share])), count)
    places = found.places().astype(int)
    with mpmath.workdps(40):
        p, q = (
            mpmath.mpf(share),
            mpmath.mpf(1 - share),
        )  # as floats: they add up to 1 up to a rounding
        exact = [mpmath.binomial(count, j) * p**j * q ** (count - j) for j in range(count + 1)]
        listed = set(places[found.masses > 0].tolist())
        left = mpmath.fsum(mass for j, mass in enumerate(exact) if j not in listed)
        assert 0 < left <= found.lost < 1e-300
        for j, mass in zip(places.tolist(), found.masses.tolist(), strict=True):
            if mass:
                assert mass >= LEAST_MASS
                assert abs(mass / exact[j] - 1) <= found.error + mpmath.mpf(found.lost / mass)
    np.testing.assert_array_equal(found.up_to(count)[places], found.masses)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_equal_factors_are_multiplied_by_squaring(count):
    assert by_squaring(lambda a, b: a * b, 3, count) == 3**count
    assert by_squaring(lambda a, b: a + b, "ab", count) == "ab" * count


def test_blocks_of_a_convolution_add_up():
    from dptopk.accounting.pld.laws import _convolve

    rng = np.random.default_rng(0)
    a, b = rng.random(1000), rng.random(777)
    np.testing.assert_allclose(_convolve(a, b, block=100), np.convolve(a, b), rtol=1e-13)
