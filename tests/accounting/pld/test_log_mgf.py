from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.pld.log_mgf import LOG_MGF_ERROR, bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.budgets.registered_account import Accountant
from dptopk.costs import BoundedRange, Budget, Charge, PureDP

EPSILONS = [1e-6, 1e-3, 0.1, 0.7, 1.0, 1.99, 2.0, 5.0, 50.0, 300.0]
ORDERS = [1e-9, 1e-3, 0.3, 1.0, 2.0, 17.0, 1e3, 74_000.0, 1e9, 1e15]


def exact_bounded_range(epsilon, lam):
    """DDR's h_ε(λ) as the supremum stands in theory: λε + λ ln y + ln(A - By) at its stationary
    point, 200 digits.
    """
    with mp.workdps(200):
        e, l = mp.mpf(epsilon), mp.mpf(lam)  # noqa: E741
        b = (1 - mp.exp(-e * l)) / (1 - mp.exp(-e))
        a = 1 + mp.exp(-e) * b
        y = l / (1 + l) * a / b
        return l * e + l * mp.log(y) + mp.log(a - b * y)


def exact_pure(epsilon, lam):
    with mp.workdps(200):
        e, l = mp.mpf(epsilon), mp.mpf(lam)  # noqa: E741
        return mp.log((mp.exp(e * (l + 1)) + mp.exp(-e * l)) / (1 + mp.exp(e)))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    ("ours", "exact"), [(bounded_range_log_mgf, exact_bounded_range), (pure_dp_log_mgf, exact_pure)]
)
def test_relative_error_is_within_the_stated_bound(ours, exact, epsilon):
    values = ours(epsilon, np.array(ORDERS))
    for order, value in zip(ORDERS, values, strict=True):
        truth = exact(epsilon, order)
        assert abs(mp.mpf(float(value)) / truth - 1) < LOG_MGF_ERROR, (epsilon, order)


@pytest.mark.parametrize(("epsilon", "order"), [(0.1, 3.0), (1.0, 2.0), (4.0, 0.2), (20.0, 6.0)])
def test_bounded_range_is_the_supremum_over_t(epsilon, order):
    t = np.linspace(0, epsilon, 20_001)
    q = np.expm1(t - epsilon) / np.expm1(-epsilon)
    on_grid = np.log(q * np.exp(order * t) + (1 - q) * np.exp(order * (t - epsilon)))
    best = float(bounded_range_log_mgf(epsilon, order))
    assert on_grid.max() <= best * (1 + 1e-12)
    assert on_grid.max() == pytest.approx(best, rel=1e-6)


def test_known_value():
    assert float(bounded_range_log_mgf(1.0, 2.0)) == pytest.approx(0.68675, abs=5e-6)


def test_bounded_range_lies_below_pure_dp_and_above_the_half():
    """ε-BR is at most as bad as ε-DP, and at least as bad as ε/2-DP (t = ε/2)."""
    epsilon, order = np.array(EPSILONS)[:, None], np.array(ORDERS)
    ranged = bounded_range_log_mgf(epsilon, order)
    assert np.all(ranged <= pure_dp_log_mgf(epsilon, order) * (1 + 1e-13))
    assert np.all(ranged >= pure_dp_log_mgf(epsilon / 2, order) * (1 - 1e-13))


@pytest.mark.parametrize("epsilon", [1e-105, 1e-120, 1e-150, 1e-160, 1e-200, 5e-324])
def test_no_epsilon_is_too_small_to_count(epsilon):
    """For small ε the log-MGFs are λ(1 + λ) ε²/8 and ε²/2: products that underflow are rounded up,
    never to 0.
    """
    for log_mgf, part in ((bounded_range_log_mgf, 8), (pure_dp_log_mgf, 2)):
        for order in (0.1, 1.0, 30.0):
            exact = Fraction(order) * (1 + Fraction(order)) * Fraction(epsilon) ** 2 / part
            assert Fraction(float(log_mgf(epsilon, order)) * (1 + 1e-13)) >= exact
    for cost in (BoundedRange(epsilon), PureDP(epsilon)):
        assert not Accountant.filter(Budget(1.0, 1e-6)).can_spend(Charge({cost: 10**700}))
