"""Gaussian noise, continuous and discrete: one pair, and its compositions."""

from dptopk.accounting.gaussian.discrete import (
    discrete_gaussian_delta as discrete_gaussian_delta,
    discrete_gaussian_epsilon as discrete_gaussian_epsilon,
    discrete_gaussian_scale as discrete_gaussian_scale,
)
from dptopk.accounting.gaussian.pair import (
    gaussian_delta as gaussian_delta,
    gaussian_epsilon as gaussian_epsilon,
    gaussian_mu as gaussian_mu,
)
