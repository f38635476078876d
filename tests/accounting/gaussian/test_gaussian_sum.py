"""Composition of Gaussian and discrete Gaussian costs."""

import math

import numpy as np
import pytest
from scipy import special

from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.costs import Charge, DiscreteGaussianDP, GaussianDP, PureDP
from dptopk.errors import IncompatibleCosts


def test_composition_is_one_gaussian():
    together = compose(
        Charge({GaussianDP(0.3): 16, GaussianDP(0.5): 4}), delta=1e-6, bound="gaussian"
    )
    single = compose(
        Charge({GaussianDP(math.sqrt(0.09 * 16 + 0.25 * 4)): 1}), delta=1e-6, bound="gaussian"
    )
    assert together.epsilon == pytest.approx(single.epsilon, rel=1e-12)
    assert together.lower <= single.epsilon <= together.epsilon * (1 + 1e-12)
    million = compose(Charge({GaussianDP(1e-3): 10**6}), delta=1e-6, bound="gaussian")
    assert million.epsilon == pytest.approx(float(gaussian_epsilon(1.0, delta=1e-6)), rel=1e-12)


def noise_law(scale: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    half = int(12 * scale) + 3
    x = np.arange(-half, half + 1)
    single = np.exp(-(x**2) / (2 * scale**2))
    law = np.ones(1)
    for _ in range(count):
        law = np.convolve(law, single / single.sum())
    return np.arange(-half * count, half * count + 1), law


@pytest.mark.slow
def test_mixture_of_two_lattices_and_a_gaussian_by_enumeration():
    mu, groups = 0.8, {(2.0, 1): 3, (3.0, 2): 2}
    charge = Charge(
        {GaussianDP(mu): 1} | {DiscreteGaussianDP(*key): times for key, times in groups.items()}
    )
    total_loss, total_mass = np.zeros(1), np.ones(1)
    for (scale, shift), times in groups.items():
        z, law = noise_law(scale, times)
        loss = shift * (times * shift - 2 * z) / (2 * scale**2)
        total_loss, total_mass = (
            np.add.outer(total_loss, loss).ravel(),
            np.multiply.outer(total_mass, law).ravel(),
        )
    for epsilon in [0.0, 1.0, 4.0]:
        x = epsilon - total_loss
        # e^x Φ(-mu/2 - x/mu), in logarithms
        gaussian = special.ndtr(mu / 2 - x / mu) - np.exp(x + special.log_ndtr(-mu / 2 - x / mu))
        expected = float(total_mass @ gaussian)
        answer = compose(charge, epsilon=epsilon, bound="gaussian")
        assert answer.delta == pytest.approx(expected, rel=1e-9)
        assert answer.lower <= expected * (1 + 1e-12)
    without = Charge(
        {cost: times for cost, times in charge if isinstance(cost, DiscreteGaussianDP)}
    )
    expected = float(total_mass @ np.maximum(0, -np.expm1(np.minimum(1.0 - total_loss, 0))))
    assert compose(without, epsilon=1.0, bound="gaussian").delta == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "charge",
    [
        Charge({GaussianDP(0.3): 16}),
        Charge({DiscreteGaussianDP(4.0, 1): 9}),
        Charge({DiscreteGaussianDP(0.8, 1): 2}),
    ],
)
def test_agrees_with_dp_accounting(charge):
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = 1e-4
    total = None
    for cost, times in charge:
        if isinstance(cost, GaussianDP):
            one = pld.from_gaussian_mechanism(1 / cost.mu, value_discretization_interval=interval)
        else:
            one = pld.from_discrete_gaussian_mechanism(
                cost.scale, sensitivity=cost.shift, value_discretization_interval=interval
            )
        one = one.self_compose(times)
        total = one if total is None else total.compose(one)
    theirs = total.get_epsilon_for_delta(1e-6)
    ours = compose(charge, delta=1e-6, bound="gaussian").epsilon
    # their losses are rounded up by at most one interval each
    assert theirs - charge.count * interval <= ours <= theirs + 1e-6


def test_smaller_than_every_other_bound():
    charge = Charge({GaussianDP(0.2): 3, DiscreteGaussianDP(5.0, 1): 10})
    exact = compose(charge, delta=1e-8, bound="gaussian")
    for name in ("renyi", "zcdp_tight", "setwise_cdp", "setwise_zcdp"):
        assert exact.epsilon < compose(charge, delta=1e-8, bound=name).epsilon
    assert compose(charge, delta=1e-8).name == "gaussian"


def test_count_equals_singles():
    charge = Charge({DiscreteGaussianDP(2.0, 1): 7})
    singles = Charge.join(*[Charge({DiscreteGaussianDP(2.0, 1): 1})] * 7)
    assert compose(charge, delta=1e-6, bound="gaussian") == compose(
        singles, delta=1e-6, bound="gaussian"
    )


def test_refusals():
    too_many = Charge(
        {GaussianDP(1.0): 1, DiscreteGaussianDP(200.0, 1): 300, DiscreteGaussianDP(30.0, 2): 4}
    )
    for charge in (
        too_many,
        Charge({GaussianDP(1.0): 1, PureDP(0.1): 1}),
        Charge({DiscreteGaussianDP(1.0, 1): 10**6}),
    ):
        with pytest.raises(IncompatibleCosts):
            compose(charge, delta=1e-6, bound="gaussian")
    assert compose(too_many, delta=1e-6, bound="renyi").epsilon < math.inf
