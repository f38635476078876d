"""Rényi divergences of the Gaussian laws, whole and cut to [-T, T], against the zCDP that is charged."""

import math

import numpy as np
import pytest

from dptopk import Sensitivity, TruncatedGaussian, UnknownGaussian
from dptopk.mechanisms.noise import gaussian_law

ORDERS = (1.0001, 1.5, 2.0, 4.0, 9.0, 40.0)


def renyi(log_p, log_q, order):
    terms = order * log_p + (1 - order) * log_q
    return (terms.max() + math.log(np.exp(terms - terms.max()).sum())) / (order - 1)


def log_weights(scale, low, high, centre):
    n = np.arange(low, high + 1)
    weights = -((n - centre) ** 2) / (2 * scale**2)
    return weights - math.log(np.exp(weights).sum())


@pytest.mark.parametrize("scale", [0.3, 0.8, 2.0, 7.0])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_discrete_gaussian_is_zcdp_and_attains_it_at_integer_orders(scale, shift):
    reach = math.ceil(60 * scale + 60 * shift)
    p, q = (log_weights(scale, -reach, reach, centre) for centre in (0, shift))
    for order in ORDERS:
        rho = shift**2 / (2 * scale**2)
        found = renyi(p, q, order)
        assert found <= rho * order * (1 + 1e-9)
        if order == 2.0:
            assert found == pytest.approx(rho * order)


@pytest.mark.parametrize("scale", [0.3, 0.8, 2.0, 7.0])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_truncation_keeps_the_divergence_on_the_common_support(scale, shift):
    """The lemma behind TruncatedGaussian, for the discrete law: conditioned on the overlap, in both directions."""
    for bound in range(shift, shift + math.ceil(6 * scale) + 2):
        p = log_weights(scale, shift - bound, bound, 0)
        q = log_weights(scale, shift - bound, bound, shift)
        for order in ORDERS:
            limit = order * shift**2 / (2 * scale**2) * (1 + 1e-9) + 1e-12
            assert renyi(p, q, order) <= limit
            assert renyi(q, p, order) <= limit


def test_the_edge_mass_is_convex_in_the_shift():
    """So that δ of several small shifts with the same sum is at most that of whole ones (T >= linf is needed)."""
    for scale in (0.8, 2.0, 7.0):
        for bound in (3, 5, 12):
            law = gaussian_law(scale, bound).pmf(bound)
            edge = np.concatenate([[0.0], np.cumsum(law[:bound])])
            logs = -np.log1p(-edge)
            assert (np.diff(edge, 2) >= 0).all()
            assert (np.diff(logs, 2) >= 0).all()


def test_the_charge_covers_every_split_of_a_shift():
    """Shifts a_i <= linf with Σ a_i <= l0·linf over slots and floor: Σ a_i² stays within the charged ρ."""
    sensitivity = Sensitivity(linf=3, l0=2)
    for mechanism in (
        UnknownGaussian(d_bar=2, sigma=1.3, delta=0.01),
        TruncatedGaussian(d_bar=2, sigma=1.3, delta=0.01),
    ):
        (cost,) = mechanism.charge(sensitivity).costs
        scale = 3 * 1.3
        splits = [np.array(a) for a in np.ndindex(4, 4, 4) if sum(a) <= 6]
        rho = [(split**2).sum() / (2 * scale**2) for split in splits]
        assert max(rho) == pytest.approx(cost.rho)
        assert max(rho) <= cost.rho * (1 + 1e-12)
