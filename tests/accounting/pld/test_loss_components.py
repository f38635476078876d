"""Losses of single costs, as products list them."""

import mpmath
import pytest

from dptopk.accounting.pld.loss_components import _log_normalisation


@pytest.mark.parametrize("scale", [0.1, 0.5, 0.999, 1.0, 1.3, 2.0, 17.3, 199.9])
def test_the_normalisation_of_a_discrete_gaussian_is_a_sum_over_the_integers(scale):
    with mpmath.workdps(40):
        square = 2 * mpmath.mpf(scale) ** 2
        terms = range(1, int(15 * scale) + 3)
        total = 1 + 2 * mpmath.fsum(mpmath.exp(-(y**2) / square) for y in terms)
        assert abs(_log_normalisation(scale) - mpmath.log(total)) < 2e-15
