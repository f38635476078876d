"""Discrete Gaussians: the listed laws against brute force, the closed forms against the
convolution.
"""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.curves import Query
from dptopk.accounting.gaussian import discrete as module
from dptopk.accounting.gaussian.discrete import (
    discrete_gaussian_curve,
    discrete_gaussian_delta,
    discrete_gaussian_epsilon,
    discrete_gaussian_scale,
    lattice_law,
)
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.errors import InvalidParameter

EPSILONS = [0.0, 0.3, 1.0, 4.0, 20.0]


def reference_deltas(scale: float, shift: int, count: int, epsilons: list[float]) -> list[mp.mpf]:
    """Product of the pairs by convolution at 60 digits: every sum of the noises with its
    probability.
    """
    half = int(12 * scale) + 12
    with mp.workdps(60):
        s = mp.mpf(scale)
        single = {x: mp.exp(-(mp.mpf(x) ** 2) / (2 * s**2)) for x in range(-half, half + 1)}
        norm = sum(single.values())
        law = {0: mp.mpf(1)}
        for _ in range(count):
            new: dict[int, mp.mpf] = {}
            for z, p in law.items():
                for x, q in single.items():
                    new[z + x] = new.get(z + x, 0) + p * q / norm
            law = new
        losses = {z: shift * (count * shift - 2 * mp.mpf(z)) / (2 * s**2) for z in law}
        return [
            sum(p * max(0, 1 - mp.exp(e - losses[z])) for z, p in law.items()) for e in epsilons
        ]


@pytest.mark.parametrize(
    ("scale", "shift", "count"),
    [(0.5, 1, 1), (0.5, 2, 3), (0.5, 1, 6), (1.0, 1, 4), (1.0, 3, 2), (3.0, 1, 1), (3.0, 2, 3)],
)
def test_deltas_match_sixty_digits(scale, shift, count):
    ours = discrete_gaussian_delta(scale, shift, count, epsilon=EPSILONS)
    curve = discrete_gaussian_curve(scale, shift, count)
    for epsilon, delta, exact in zip(
        EPSILONS, ours, reference_deltas(scale, shift, count, EPSILONS), strict=True
    ):
        if exact > 1e-25:  # the reference is cut off beyond
            assert exact * (1 - mp.mpf("1e-28")) <= delta <= exact * (1 + mp.mpf("1e-9"))
            assert curve.answer(Query(epsilon=epsilon)).lower <= exact


def test_two_fold_sums_by_fractions():
    # exact: with weights 2^-(x²), i.e. scale² = 1 / (2 ln 2), the two-fold sums are rational
    # multiples of one another
    scale, count = math.sqrt(1 / (2 * math.log(2))), 2
    weight = {x: Fraction(1, 2 ** (x * x)) for x in range(-6, 7)}
    law: dict[int, Fraction] = {}
    for x, p in weight.items():
        for y, q in weight.items():
            law[x + y] = law.get(x + y, Fraction(0)) + p * q
    ours = lattice_law(scale, 1, count)
    middle = len(ours.log_masses) // 2
    for z in range(4):
        assert ours.log_masses[middle + z] - ours.log_masses[middle] == pytest.approx(
            math.log(law[z] / law[0]), abs=1e-9
        )


@pytest.mark.parametrize("count", [1, 2, 5, 40])
@pytest.mark.parametrize("scale", [1.2, 1.7, 2.5])
def test_closed_form_meets_the_convolution(scale, count):
    noise = module._sum_by_convolution(scale, count)
    width = scale * math.sqrt(count)
    closed = -((noise.points / width) ** 2) / 2 - math.log(width) - 0.5 * math.log(2 * math.pi)
    distance = np.abs(closed - noise.log_masses)
    bound = module.closed_form_error(scale, count)
    assert (distance <= bound + noise.log_error + 1e-13 + 1e-15 * np.abs(closed)).all()
    if scale < 1.5 and count == 2:  # the bound is not idle
        assert distance.max() > 0.4 * bound


@pytest.mark.parametrize(("scale", "count"), [(20.0, 1), (60.0, 9), (5.0, 400)])
@pytest.mark.parametrize("shift", [1, 7])
def test_continuous_form_brackets_the_lattice(scale, count, shift):
    width, mu = scale * math.sqrt(count), shift * math.sqrt(count) / scale
    curve = module._ContinuousCurve(width, mu, module.closed_form_error(scale, count))
    epsilon = np.linspace(0, 7.77 * mu + mu**2 / 2.1, 23)
    exact = discrete_gaussian_delta(scale, shift, count, epsilon=epsilon)
    upper, lower = curve.delta(epsilon), np.exp(curve.log_lower(epsilon))
    assert (lower <= exact * (1 + 1e-12)).all()
    assert (exact <= upper * (1 + 1e-12)).all()
    assert (upper <= exact * (1 + 3000 / width**2)).all()
    # and the correction is needed: the continuous formula alone is not an upper bound
    assert (gaussian_delta(mu, epsilon=epsilon) * (1 + 1e-9) < exact).any()


@pytest.mark.parametrize(
    ("scale", "shift", "count"),
    [
        (0.5, 1, 100),
        (1.0, 1, 10**4),
        (3.0, 2, 10**6),
        pytest.param(29_000.0, 1, 1, marks=pytest.mark.slow),
        (1e6, 10**5, 30),
    ],
)
@pytest.mark.parametrize("delta", [1e-290, 1e-6, 0.3])
def test_both_directions_agree_at_extremes(scale, shift, count, delta):
    curve = discrete_gaussian_curve(scale, shift, count)
    there = curve.answer(Query(delta=delta))
    assert math.isfinite(there.value)
    assert there.lower <= there.value
    assert there.lower == pytest.approx(there.value, rel=1e-6, abs=1e-12)
    assert float(curve.delta(there.value)) <= delta * (1 + 1e-6)
    assert curve.epsilon(0.0) == math.inf


def test_tiny_noise_gives_no_privacy_and_no_numbers_go_wrong():
    assert float(discrete_gaussian_epsilon(1e-3, delta=1e-6)) == pytest.approx(5e5, rel=1e-9)
    assert float(discrete_gaussian_delta(1e-3, epsilon=1.0)) == 1.0


def test_monotone_in_shift_count_and_scale():
    base = float(discrete_gaussian_epsilon(4.0, 2, 5, delta=1e-6))
    assert float(discrete_gaussian_epsilon(4.0, 3, 5, delta=1e-6)) > base
    assert float(discrete_gaussian_epsilon(4.0, 2, 6, delta=1e-6)) > base
    assert float(discrete_gaussian_epsilon(4.1, 2, 5, delta=1e-6)) < base


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(2.07906, 1e-6), (20.0, 1e-6), (0.5, 1e-300), (0.0, 0.1)]
)
@pytest.mark.parametrize(("shift", "count"), [(1, 1), (1, 25), (10, 3)])
def test_scale_is_checked_and_barely_large_enough(epsilon, delta, shift, count):
    scale = discrete_gaussian_scale(epsilon=epsilon, delta=delta, shift=shift, count=count)
    assert float(discrete_gaussian_delta(scale, shift, count, epsilon=epsilon)) <= delta
    assert float(discrete_gaussian_delta(scale * (1 - 1e-6), shift, count, epsilon=epsilon)) > delta


def test_refusals():
    with pytest.raises(InvalidParameter, match="scale"):
        discrete_gaussian_delta(0.0, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="scale"):
        discrete_gaussian_delta(1.0, 1, 10**6, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="count"):
        discrete_gaussian_delta(1.0, 1, 0, epsilon=1.0)
