"""Discrete noise: its law, in the middle and in the tails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dptopk.mechanisms import noise
from dptopk.mechanisms.random import random_bits


def chi_square(drawn, law):
    """Return the p-value of the draws under the law's own pmf, tails pooled."""
    radius = int(25 * law.scale) + 3
    pmf = law.pmf(radius)
    pmf = np.append(pmf, max(0.0, 1 - pmf.sum()))
    seen = np.append(np.bincount(np.clip(drawn, -radius, radius) + radius, minlength=2 * radius + 1), 0)
    expected = pmf * drawn.size
    small = expected < 10
    observed = np.append(seen[~small], seen[small].sum())
    expected = np.append(expected[~small], expected[small].sum() + 1e-9)
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), observed.size - 1)


@pytest.mark.parametrize("scale", [0.3, 2.0, 20.0, 300.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian", "truncated"])
def test_draws_fit_the_law_and_not_a_slightly_different_one(kind, scale):
    def law(s):
        bound = max(1, int(1.5 * scale))
        return {
            "laplace": lambda: noise.laplace_law(1 / s, 1),
            "gaussian": lambda: noise.gaussian_law(s),
            "truncated": lambda: noise.gaussian_law(s, bound),
        }[kind]()

    drawn = law(scale).sample(200_000, random_bits(np.random.default_rng(11)))
    assert chi_square(drawn, law(scale)) > 1e-3
    assert chi_square(drawn, law(scale * 1.1)) < 1e-6


def test_public_functions_draw_from_their_laws():
    bits = random_bits()
    assert noise.discrete_laplace(0.5, 3, 10, bits).shape == (10,)
    assert noise.discrete_gaussian(1e9, 10, bits).dtype == np.int64
    assert np.abs(noise.truncated_discrete_gaussian(100.0, 3, 1000, bits)).max() == 3
    assert noise.truncated_discrete_gaussian(100.0, 0, 5, bits).tolist() == [0] * 5
    assert noise.discrete_laplace(1e300, 1, 5, bits).tolist() == [0] * 5
