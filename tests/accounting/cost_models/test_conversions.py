"""Conversions between notions: the table, and the exact zCDP constants."""

import math

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.cost_models.conversions import implications_of, max_kl
from dptopk.accounting.pld.log_mgf import bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.costs import CDP, ZCDP, BoundedRange, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP

EPSILONS = [1e-6, 1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0]
ORDERS = np.geomspace(1e-8, 1e12, 21)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_exact_zcdp_constants_hold_at_every_order_and_are_approached(epsilon):
    pairs = [(BoundedRange(epsilon), bounded_range_log_mgf), (PureDP(epsilon), pure_dp_log_mgf)]
    for cost, log_mgf in pairs:
        _, rho = implications_of(cost).exact_zcdp(cost)
        _, published = implications_of(cost).zcdp(cost)
        ratio = log_mgf(epsilon, ORDERS) / (ORDERS * (1 + ORDERS))
        assert (ratio <= rho * (1 + 1e-13)).all()
        assert ratio[0] == pytest.approx(rho, rel=1e-5)
        assert rho <= published * (1 + 1e-12)


def test_terms_of_the_proof_of_the_bounded_range_constant():
    # docs/notes/zcdp-constants.md: g'(z), its closed form, and the bound on it
    rng = np.random.default_rng(1)
    with mp.workdps(60):
        for _ in range(500):
            z, lam = (mp.mpf(10) ** mp.mpf(rng.uniform(-6, 6)) for _ in range(2))
            a, m = 1 + lam, lam * (1 + lam)
            slope = a**3 / (1 + a**2 * z) - lam**3 / (1 + lam**2 * z) - 1 / (1 + z)
            closed = m * (3 + (m + 1) * z) / ((1 + a**2 * z) * (1 + lam**2 * z) * (1 + z))
            assert abs(slope / closed - 1) < mp.mpf("1e-25")
            assert slope <= m * (3 + z) / (1 + z) ** 2


def test_max_kl_matches_high_precision_and_is_below_an_eighth_of_the_square():
    for epsilon in [1e-8, 1e-3, 0.0999, 0.1, 0.1001, 1.0, 10.0, 700.0]:
        with mp.workdps(60):
            y = mp.mpf(epsilon) / mp.expm1(mp.mpf(epsilon))
            exact = y - 1 - mp.log(y)
            assert exact <= max_kl(epsilon) <= exact * (1 + mp.mpf("1e-10"))
            assert exact <= mp.mpf(epsilon) ** 2 / 8


def test_table_of_implications():
    assert implications_of(PureDP(0.3)).bounded_range(PureDP(0.3)) == 0.6
    assert implications_of(BoundedRange(0.3)).pure(BoundedRange(0.3)) == 0.3
    multi = MultiDP(((1.0, 0.0), (0.2, 1e-3)))
    assert implications_of(multi).zcdp(multi) == implications_of(PureDP(1.0)).zcdp(PureDP(1.0))
    assert implications_of(ZCDP(0.2, xi=0.1)).zcdp(ZCDP(0.2, xi=0.1)) == (0.1, 0.2)
    for cost in (GaussianDP(0.4), DiscreteGaussianDP(5.0, 2)):
        mu, tau = implications_of(cost).cdp(cost)
        assert mu == pytest.approx(0.08)
        assert tau == pytest.approx(0.4)
        assert implications_of(cost).pure is None
    for mu in (0.1, 0.5, 7.0):
        assert implications_of(CDP(mu, 0.6)).zcdp(CDP(mu, 0.6)) == pytest.approx((0.0, 0.18))


@pytest.mark.parametrize("seed", range(40))
def test_a_subgaussian_loss_has_a_small_mean(seed):
    """Random pairs of three outcomes with the τ that their losses have in both directions: the mean
    loss and each Rényi divergence are at most those of τ²/2-zCDP.
    """
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(3), size=2)
    orders = np.concatenate([-np.geomspace(1e-2, 30, 400), [-1.0], np.geomspace(1e-2, 30, 400)])
    directions = ((p, np.log(p / q)), (q, np.log(q / p)))
    means = [float(masses @ losses) for masses, losses in directions]
    log_mgfs = [np.log(np.exp(np.outer(orders, losses)) @ masses) for masses, losses in directions]
    proxies = [
        float((2 * (log_mgf - orders * mean) / orders**2).max())
        for log_mgf, mean in zip(log_mgfs, means, strict=True)
    ]
    cost = CDP(max(means), math.sqrt(max(proxies)))
    xi, rho = implications_of(cost).zcdp(cost)
    assert max(means) <= (xi + rho) * (1 + 1e-9)
    for log_mgf in log_mgfs:
        above = orders > 0
        allowed = orders * (xi + rho * (1 + orders))
        assert (log_mgf[above] <= allowed[above] * (1 + 1e-9) + 1e-12).all()


def test_discrete_gaussian_is_concentrated_with_the_continuous_constants():
    for scale, shift in [(0.5, 1), (1.0, 1), (3.0, 2)]:
        x = np.arange(-200, 201)
        log_p = -(x**2) / (2 * scale**2)
        log_p = log_p - np.logaddexp.reduce(log_p)
        loss = shift * (shift - 2 * x) / (2 * scale**2)
        for lam in [0.01, 0.3, 1.0, 4.0]:
            log_moment = np.logaddexp.reduce(log_p + lam * loss)
            assert log_moment <= lam * (1 + lam) * (shift / scale) ** 2 / 2 * (1 + 1e-9)
    assert math.isclose(
        implications_of(DiscreteGaussianDP(0.5, 1)).zcdp(DiscreteGaussianDP(0.5, 1))[1], 2.0
    )
