"""Our numbers against independent libraries: dp-accounting's PLDs and OpenDP's zCDP and
samplers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from dptopk.accounting.bounds import compose
from dptopk.accounting.interop import to_pld
from dptopk.accounting.renyi.concentrated import zcdp_curve
from dptopk.costs import BoundedRange, Charge, GaussianDP, PureDP
from dptopk.mechanisms.samplers.noise import gaussian_law, laplace_law
from dptopk.mechanisms.samplers.random import random_bits

DRAWS, SCALE, ALARM = (
    60_000,
    3.0,
    1e-6,
)  # ALARM: chance that a correct pair of samplers is called different


@pytest.fixture(autouse=True)
def features():
    dp.enable_features("contrib", "honest-but-curious")


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(
    "charge",
    [
        Charge({PureDP(0.05): 200}),
        Charge({GaussianDP(0.1): 100, GaussianDP(0.3): 10}),
        Charge({PureDP(0.1): 50, GaussianDP(0.2): 20}),
    ],
    ids=str,
)
def test_epsilon_against_plds(charge, delta):
    """The certified bracket holds their number, up to the rounding of each of their losses to the
    grid.
    """
    interval = 1e-3
    ours = compose(charge, delta=delta)
    theirs = to_pld(charge, interval=interval).get_epsilon_for_delta(delta)
    assert ours.lower <= theirs * (
        1 + 1e-6
    )  # their Fourier transforms end up to 2e-8 below the truth here
    assert theirs <= ours.epsilon + charge.count * interval


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.5, 4), (0.02, 5000)])
def test_zcdp_conversion_against_opendp(epsilon, count, delta):
    """k·ε²/8-zCDP turned into (ε, δ): OpenDP's conversion searches by bisection, so it may be a
    little larger.
    """
    rho = count * epsilon**2 / 8
    measurement = dp.m.make_user_measurement(
        dp.atom_domain(T=int),
        dp.absolute_distance(T=int),
        dp.zero_concentrated_divergence(),
        lambda _: 0,
        lambda _: rho,
    )
    theirs = dp.c.make_zCDP_to_approxDP(measurement).map(1).epsilon(delta)
    ours = float(zcdp_curve(rho).epsilon(delta))
    assert ours == pytest.approx(theirs, rel=2e-3)
    assert (
        compose(Charge({BoundedRange(epsilon): count}), delta=delta, bound="renyi").epsilon < theirs
    )


@cache
def peers_noise(law: str) -> np.ndarray:
    """OpenDP's draws at SCALE; its source of randomness cannot be seeded."""
    metric = dp.l1_distance(T=int) if law == "laplace" else dp.l2_distance(T=float)
    make = dp.m.make_laplace if law == "laplace" else dp.m.make_gaussian
    return np.array(make(dp.vector_domain(dp.atom_domain(T=int)), metric, SCALE)([0] * DRAWS))


def our_noise(law: str, scale: float, seed: int) -> np.ndarray:
    bits = random_bits(np.random.default_rng(seed))
    return (
        laplace_law(1 / scale, 1).sample(DRAWS, bits)
        if law == "laplace"
        else gaussian_law(scale).sample(DRAWS, bits)
    )


def same_law(one: np.ndarray, other: np.ndarray) -> float:
    """p-value of a two-sample χ² test on the integers within 3 scales and two open ends."""
    edges = np.concatenate([[-np.inf], np.arange(-3 * SCALE, 3 * SCALE + 1) + 0.5, [np.inf]])
    counts = [np.histogram(np.clip(sample, -1e6, 1e6), edges)[0] for sample in (one, other)]
    return float(stats.chi2_contingency(counts).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_samplers_have_opendps_law(law):
    assert same_law(our_noise(law, SCALE, seed=1), peers_noise(law)) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_the_comparison_sees_a_scale_that_is_ten_percent_off(law, factor):
    """Five different samples, so that the power is not one seed's luck."""
    for seed in range(5):
        assert same_law(our_noise(law, factor * SCALE, seed=seed), peers_noise(law)) < ALARM
