"""The continuous Laplace pair: integrals in 40 digits, mixtures by brute force, and dp-accounting's
distribution.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import implications_of
from dptopk.accounting.interop import to_pld
from dptopk.accounting.pld.discrete_laplace import mean_loss
from dptopk.accounting.pld.laplace_loss import Laplace, laplace_log_mgf, laplace_mean_loss
from dptopk.accounting.pld.loss_components import Grid
from dptopk.budgets.registered_costs import dominates
from dptopk.costs import Charge, DiscreteLaplaceDP, LaplaceDP, PureDP


def mean_of(f, epsilon):
    """E f(L): the two atoms and the density between them."""
    inner = mp.quad(
        lambda loss: mp.exp(-(epsilon - loss) / 2) / 4 * f(loss), mp.linspace(-epsilon, epsilon, 5)
    )
    return f(epsilon) / 2 + mp.exp(-epsilon) / 2 * f(-epsilon) + inner


@pytest.mark.parametrize("epsilon", [1e-4, 0.3, 0.5, 2.0, 9.0])
def test_mean_loss_and_log_mgf_match_forty_digits(epsilon):
    with mp.workdps(40):
        e = mp.mpf(epsilon)
        mean = mean_of(lambda loss: loss, e)
        assert mean <= laplace_mean_loss(epsilon) <= mean * (1 + mp.mpf("1e-13"))
        for lam in (1e-6, 0.1, 3.0, 50.0):
            value = mp.log(mean_of(lambda loss, lam=lam: mp.exp(lam * loss), e))
            bound = float(laplace_log_mgf(epsilon, np.array([lam]))[0])
            assert (
                value * (1 - mp.mpf("1e-14"))
                <= bound
                <= value * (1 + mp.mpf("1e-9")) + mp.mpf("1e-13")
            )
            assert value <= mean * lam * (1 + mp.mpf(lam)) * (1 + mp.mpf("1e-25"))


@pytest.mark.parametrize("epsilon", [0.01, 0.7, 5.0])
@pytest.mark.parametrize("side", [1, -1])
def test_the_pairs_enclose_the_law(epsilon, side):
    """δ(x) = 1 - e^{(x-ε)/2} for one copy and x >= 0; and no probability is lost on either side."""
    (pair,) = Laplace(epsilon, 1).pairs(Grid(1e-3, 0.0, side))
    losses, masses = pair.losses[0], np.exp(pair.log_masses[0])
    assert masses.sum() == pytest.approx(1, rel=1e-12)
    assert (masses * np.exp(-losses)).sum() == pytest.approx(1, rel=1e-9)
    for x in np.linspace(0, epsilon * 0.999, 7):
        found, truth = masses @ np.maximum(-np.expm1(x - losses), 0), -math.expm1((x - epsilon) / 2)
        assert side * (found - truth) >= -1e-14
        assert found == pytest.approx(truth, rel=1e-2, abs=1e-6 * epsilon)


def test_two_copies_by_brute_force():
    """δ of two copies, integrated over the first one's loss, lies in the bracket."""
    epsilon, x = 0.8, 0.5

    def delta(z):
        return 1 - mp.exp((z - epsilon) / 2) if abs(z) < epsilon else max(1 - mp.exp(z), mp.mpf(0))

    truth = mean_of(lambda loss: delta(x - loss), mp.mpf(epsilon))
    found = compose(Charge({LaplaceDP(1.0, epsilon): 2}), epsilon=x, rtol=1e-5)
    assert found.lower <= truth <= found.delta <= truth * (1 + 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["40*Lap(20, 1)", "10*Lap(4, 1.5) + 3*GDP(0.2)", "100*Lap(20, 1) + 100*GDP(0.1)"]
)
def test_it_is_never_looser_than_dp_accounting(text):
    charge = Charge.parse(text)
    ours, theirs = (
        compose(charge, delta=1e-6),
        to_pld(charge, interval=1e-4).get_epsilon_for_delta(1e-6),
    )
    assert ours.lower <= theirs * (1 + 1e-8)
    assert ours.epsilon <= theirs * (1 + 2e-6)


def test_it_costs_less_than_what_it_implies():
    laplace, pure = Charge({LaplaceDP(20.0, 1.0): 100}), Charge({PureDP(0.05): 100})
    steps = Charge({DiscreteLaplaceDP(80.0, 4): 100})
    found = [compose(charge, delta=1e-6).epsilon for charge in (laplace, steps, pure)]
    assert found == sorted(found)
    assert implications_of(LaplaceDP(20.0, 1.0)).pure(LaplaceDP(20.0, 1.0)) == 0.05
    assert str(laplace) == "100*Lap(20.0, 1.0)"
    assert Charge.parse("100*Lap(20, 1)") == Charge.parse(str(laplace)) == laplace


def test_what_covers_it():
    cost = LaplaceDP(10.0, 2.0)
    for token in (
        LaplaceDP(5.0, 1.0),
        PureDP(0.2),
        DiscreteLaplaceDP(20.0, 4),
        DiscreteLaplaceDP(5.0, 1),
    ):
        assert dominates(token, cost)
    for token in (LaplaceDP(10.0, 1.99), PureDP(0.1999), DiscreteLaplaceDP(20.001, 4)):
        assert not dominates(token, cost)


def test_dp_accounting_takes_the_same_law():
    theirs = privacy_loss_distribution.from_laplace_mechanism(
        20.0, value_discretization_interval=1e-3
    )
    ours = to_pld(Charge({LaplaceDP(40.0, 2.0): 1}), interval=1e-3)
    assert ours.get_delta_for_epsilon(0.02) == pytest.approx(
        theirs.get_delta_for_epsilon(0.02), rel=1e-9
    )


@pytest.mark.parametrize("epsilon", [1.1e-162, 3e-161, 1.7e-160])
def test_mean_losses_are_rounded_up_where_squares_are_subnormal(epsilon):
    """ε - 1 + e^-ε is ε²/2 - ε³/6, and the mean of one step of the lattice ε²/2 - ε⁴/24."""
    with mp.workdps(700):
        exact = mp.mpf(epsilon) ** 2 / 2 - mp.mpf(epsilon) ** 3 / 6
        assert laplace_mean_loss(epsilon) >= exact
        step = 1 / mp.mpf(1 / epsilon)
        assert mean_loss(1 / epsilon, 1) >= step**2 / 2 - step**4 / 24
