"""Losses of single costs, as products list them."""

import math

import mpmath
import numpy as np
import pytest

from dptopk.accounting.pld.loss_components import (
    CLOSED_FORM_SCALE,
    DiscreteGaussian,
    Grid,
    _log_normalisation,
)


@pytest.mark.parametrize("scale", [0.1, 0.5, 0.999, 1.0, 1.3, 2.0, 17.3, 199.9])
def test_the_normalisation_of_a_discrete_gaussian_is_a_sum_over_the_integers(scale):
    with mpmath.workdps(40):
        square = 2 * mpmath.mpf(scale) ** 2
        terms = range(1, int(15 * scale) + 3)
        total = 1 + 2 * mpmath.fsum(mpmath.exp(-(y**2) / square) for y in terms)
        assert abs(_log_normalisation(scale) - mpmath.log(total)) < 2e-15


@pytest.mark.parametrize("count", [1, 3])
def test_wide_noise_has_the_moments_of_its_loss(count):
    """Mass, mean and variance of the closed form: 1, n μ²/2 and n μ², with μ = shift/scale."""
    scale = CLOSED_FORM_SCALE
    loss = DiscreteGaussian(scale=scale, shift=200, count=count)
    pair = loss._pair_by_closed_form(Grid(step=1e-3, tilt=0.0, side=1))
    masses = np.exp(pair.log_masses[0])
    losses = pair.losses[0]
    variance = count * (200 / scale) ** 2
    mean = math.fsum(masses * losses)
    assert math.fsum(masses) == pytest.approx(1, abs=1e-9)
    assert mean == pytest.approx(variance / 2, abs=1e-3)  # losses are moved by at most a step
    assert math.fsum(masses * (losses - mean) ** 2) == pytest.approx(variance, rel=1e-3)
