"""The Gaussian laws, whole and cut to [-T, T]: Rényi divergences against zCDP, and moves that are
split.
"""

import math

import numpy as np
import pytest

from dptopk.mechanisms.samplers.noise import gaussian_law

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
    """The lemma behind TruncatedGaussian, for the discrete law: conditioned on the overlap, in both
    directions.
    """
    for bound in range(shift, shift + math.ceil(6 * scale) + 2):
        p = log_weights(scale, shift - bound, bound, 0)
        q = log_weights(scale, shift - bound, bound, shift)
        for order in ORDERS:
            limit = order * shift**2 / (2 * scale**2) * (1 + 1e-9) + 1e-12
            assert renyi(p, q, order) <= limit
            assert renyi(q, p, order) <= limit


def test_the_edge_mass_is_convex_in_the_shift():
    """So that δ of several small shifts with the same sum is at most that of whole ones (T >= linf
    is needed).
    """
    for scale in (0.8, 2.0, 7.0):
        for bound in (3, 5, 12):
            law = gaussian_law(scale, bound).pmf(bound)
            edge = np.concatenate([[0.0], np.cumsum(law[:bound])])
            logs = -np.log1p(-edge)
            assert (np.diff(edge, 2) >= 0).all()
            assert (np.diff(logs, 2) >= 0).all()


def moved(weights, shift, room):
    """The law of noise that is moved by ``shift``, on a table with ``room`` more places."""
    return np.concatenate([np.zeros(shift), weights, np.zeros(room - shift)])


def profile(p, q, epsilons):
    return np.array([np.maximum(p - math.exp(x) * q, 0).sum() for x in epsilons])


@pytest.mark.parametrize("scale", [0.35, 0.8, 2.0])
@pytest.mark.parametrize("total", [2, 3])
@pytest.mark.parametrize("cut", [False, True])
def test_a_split_shift_costs_no_more_than_the_whole_one(scale, total, cut):
    """Two noises moved by b and total - b, in one direction: below one noise moved by total, above
    total - 1.

    Cut noise: below the same pair given that the outcome is in the common support, and the mass
    outside. The whole pair, not cut, is above that.
    """
    reach = total + (1 if cut else math.ceil(9 * scale))
    weights = np.exp(log_weights(scale, -reach, reach, 0))
    epsilons = np.linspace(-3, 12, 31)
    one = {a: (moved(weights, 0, total), moved(weights, a, total)) for a in (total - 1, total)}
    bound = profile(*one[total], epsilons)
    for b in range(total + 1):
        for sign in (1, -1):
            pair = [np.multiply.outer(moved(weights, 0, total), moved(weights, 0, total)),
                    np.multiply.outer(moved(weights, b, total), moved(weights, total - b, total))][::sign]  # fmt: skip
            found = profile(*pair, epsilons)
            assert (found <= bound + 1e-13).all()
            assert (found > profile(*one[total - 1], epsilons) + 1e-6).any()
    edge = weights[:total].sum()
    wide = np.exp(log_weights(scale, -60, 60, 0))
    uncut = profile(moved(wide, 0, total), moved(wide, total, total), epsilons)
    assert (bound <= edge + (1 - edge) * uncut + 1e-13).all()
    if cut and scale > 0.5:  # the mass outside is needed
        assert (bound > uncut + 1e-4).any()
