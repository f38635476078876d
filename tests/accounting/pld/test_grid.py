"""Grids of losses: exact where there is a common step, else a bracket; against listing and 40-digit convolution."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.f_dp.multi_dp import lower_law, upper_law
from dptopk.accounting.pld.grid import common_grid, fitting_step, label_law, spread_law
from dptopk.accounting.pld.laws import LossLaw, binomials, power, product

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
            (mpmath.fdot(zip(place, (e for e, _ in responses), strict=True)), mass) for place, mass in law.items()
        ]
        return mpmath.fsum(mass * (1 - mpmath.exp(x - loss)) for loss, mass in losses if loss > x)


@settings(max_examples=25, deadline=None)
@given(weights, st.floats(1e-3, 5.0), st.floats(0.01, 0.9), st.integers(1, 3), st.floats(0, 1), st.integers(20, 400))
def test_bracket_holds_the_exact_value(raw, largest, ratio, count, share, cells):
    total = math.fsum(raw)
    responses = tuple((largest * ratio**i, weight / total) for i, weight in enumerate(raw))
    x = share * count * largest
    exact = exact_delta(responses, count, x)
    parts = [(responses, count)]
    step, at = fitting_step(parts, cells), np.array([x])
    slack = mpmath.mpf(10) ** -13 * (1 + largest)  # the weights given add up to 1 to rounding only
    assert label_law(parts, step).delta_lower(at)[0] <= exact * (1 + slack) + slack**2
    assert spread_law(parts, step).delta_upper(at)[0] >= exact * (1 - slack)
    assert lower_law(parts, cells).delta_lower(at)[0] <= exact * (1 + slack) + slack**2
    assert upper_law(parts, cells).delta_upper(at)[0] >= exact * (1 - slack)


def test_spread_keeps_the_mean_of_the_guess_and_the_total():
    """E[1/(1 + e^|L|)] before and after, up to the outward rounding."""
    parts = [(((1.23, 0.4), (0.51, 0.6)), 1)]
    law = spread_law(parts, 0.1)
    before = sum(weight / (1 + math.exp(epsilon)) for epsilon, weight in parts[0][0])
    after = math.fsum(mass / (1 + math.exp(abs(loss))) for loss, mass in zip(law.losses, law.masses, strict=True))
    assert after == pytest.approx(before, rel=1e-13)
    assert math.fsum(law.masses) == pytest.approx(1, abs=1e-14)
    np.testing.assert_allclose(law.losses / 0.1, np.round(law.losses / 0.1), atol=1e-9)


def test_errors_are_of_second_order_in_the_step():
    parts = [(((0.7123, 0.3), (0.2345, 0.7)), 30)]
    x = np.array([2.0])
    exact = upper_law(parts, 0).delta_upper(x)[0]
    above = [spread_law(parts, step).delta_upper(x)[0] / exact - 1 for step in (0.1, 0.01)]
    below = [1 - label_law(parts, step).delta_lower(x)[0] / exact for step in (0.1, 0.01)]
    for first, second in (above, below):
        assert 0 < second < first / 30


@pytest.mark.parametrize(
    ("epsilons", "step"), [((0.3, 0.15), 0.15), ((0.5, 0.2), 0.1), ((0.1, 0.3, 0.7), 0.1), ((1.0, 0.0), 1.0)]
)
def test_common_steps_are_found(epsilons, step):
    grid = common_grid([(tuple((epsilon, 1 / len(epsilons)) for epsilon in epsilons), 10)])
    assert grid is not None
    assert grid.step == pytest.approx(step, rel=1e-14)
    for epsilon in epsilons:
        assert grid.nodes[epsilon] * grid.step == pytest.approx(epsilon, rel=2e-15)


@pytest.mark.parametrize("epsilons", [(1.0, 1 / math.pi), (1.0, 1e-9), (0.3, 0.15 * (1 + 1e-9))])
def test_no_common_step(epsilons):
    assert common_grid([(tuple((epsilon, 0.5) for epsilon in epsilons), 10)]) is None


def test_powers_are_binomial_laws_and_their_error_bound_holds():
    found = power(np.array([0.7, 0.3]), 500)
    with mpmath.workdps(40):
        for j in (0, 1, 150, 499, 500):
            exact = mpmath.binomial(500, j) * mpmath.mpf(0.3) ** j * mpmath.mpf(0.7) ** (500 - j)
            assert abs(found.masses[j] / exact - 1) <= found.error
    assert found.error < 1e-11
    np.testing.assert_allclose(binomials(500, 0.3, 0.7)[500], found.masses, rtol=1e-11)


def test_cut_powers_count_what_is_missing():
    whole, cut = power(np.array([0.5, 0.5]), 1000), power(np.array([0.5, 0.5]), 1000, tail=1e-12)
    assert len(cut.masses) < len(whole.masses) / 2
    assert 1 - cut.missing - 1e-12 <= math.fsum(cut.masses) <= 1 + 1e-12
    inside = whole.masses[cut.offset : cut.offset + len(cut.masses)]
    assert (cut.masses <= inside * (1 + 1e-11)).all()
    assert math.fsum(inside - cut.masses) <= cut.missing


def test_blocks_of_a_convolution_add_up():
    from dptopk.accounting.pld.laws import _convolve

    rng = np.random.default_rng(0)
    a, b = rng.random(1000), rng.random(777)
    np.testing.assert_allclose(_convolve(a, b, block=100), np.convolve(a, b), rtol=1e-13)


def test_missing_mass_counts_as_an_infinite_loss():
    law = LossLaw.sort(np.array([1.0, -1.0]), np.array([0.7, 0.3]), 0.0, 0.0, missing=0.01)
    assert law.delta_upper(np.array([5.0]))[0] == pytest.approx(0.01)
    assert product(law, law).missing == pytest.approx(0.02)
