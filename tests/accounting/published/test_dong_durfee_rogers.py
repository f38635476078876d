from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_delta
from dptopk.accounting.bounds import compose
from dptopk.accounting.pld.log_mgf import bounded_range_log_mgf, pure_dp_log_mgf
from dptopk.accounting.published.dong_durfee_rogers import (
    adaptivity_gap,
    dr19_epsilon,
    improved_drv10_epsilon,
    mgf_delta,
    mgf_epsilon,
    opt_kl_epsilon,
)
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.errors import IncompatibleCosts, InvalidParameter

EPSILON_BOUNDS = [mgf_epsilon, opt_kl_epsilon, dr19_epsilon, improved_drv10_epsilon]


def test_known_numbers_of_a_hundred_selections():
    values = [float(f(0.1, 100, delta=1e-6)) for f in EPSILON_BOUNDS]
    assert values[0] == pytest.approx(2.7286, abs=5e-5)
    log = np.log(1e6)
    y = 0.1 / np.expm1(0.1)
    assert values[1] == pytest.approx(100 * (y - 1 - np.log(y)) + np.sqrt(0.5 * log), rel=1e-9)
    assert values[2] == pytest.approx(0.5 + np.sqrt(0.5 * log), rel=1e-12)
    assert values[3] == pytest.approx(0.5 + np.sqrt(2 * log), rel=1e-12)


@pytest.mark.slow
@given(
    epsilon=st.floats(1e-6, 50),
    count=st.integers(1, 10**6),
    log_delta=st.floats(-690, -0.01),
)
@settings(max_examples=100, deadline=None)
def test_order_of_the_bounds(epsilon, count, log_delta):
    """DDR Figure 2: the larger U, the larger the bound."""
    values = [float(f(epsilon, count, delta=np.exp(log_delta))) for f in EPSILON_BOUNDS]
    assert np.all(np.isfinite(values))
    for smaller, larger in pairwise(values):
        assert smaller <= larger * (1 + 1e-11)


@pytest.mark.parametrize("name", ["mgf", "opt_kl", "dr19", "improved_drv10"])
def test_mixed_epsilons_do_not_depend_on_how_they_are_counted(name):
    mixed = Charge({BoundedRange(0.1): 3, BoundedRange(0.2): 2})
    value = compose(mixed, delta=1e-5, bound=name).epsilon
    functions = dict(zip(["mgf", "opt_kl", "dr19", "improved_drv10"], EPSILON_BOUNDS, strict=True))
    singles = functions[name]([0.1, 0.2, 0.1, 0.1, 0.2], 1, delta=1e-5)
    assert value == float(singles)
    alone = compose(Charge({BoundedRange(0.1): 5}), delta=1e-5, bound=name).epsilon
    assert alone < value


@pytest.mark.slow
@given(epsilon=st.floats(1e-5, 20), count=st.integers(1, 10**5), share=st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_mgf_round_trip(epsilon, count, share):
    delta = float(mgf_delta(epsilon, count, at_epsilon=share * epsilon * count))
    assert 0 < delta <= 1
    if 1e-300 < delta < 1:
        assert float(mgf_epsilon(epsilon, count, delta=delta)) == pytest.approx(
            share * epsilon * count, rel=1e-7
        )


@pytest.mark.slow
def test_mgf_is_the_infimum_over_a_grid_of_orders():
    orders = np.geomspace(1e-3, 1e4, 200_001)
    for cost, log_mgf in (
        (BoundedRange(0.3), bounded_range_log_mgf),
        (PureDP(0.3), pure_dp_log_mgf),
    ):
        grid = ((40 * log_mgf(0.3, orders) + np.log(1e8)) / orders).min()
        found = compose(Charge({cost: 40}), delta=1e-8, bound="mgf").epsilon
        assert found == pytest.approx(grid, rel=1e-8)
    both = Charge({BoundedRange(0.3): 40, PureDP(0.2): 5})
    total = 40 * bounded_range_log_mgf(0.3, orders) + 5 * pure_dp_log_mgf(0.2, orders)
    grid = ((total + np.log(1e8)) / orders).min()
    assert compose(both, delta=1e-8, bound="mgf").epsilon == pytest.approx(grid, rel=1e-8)


def test_at_zero_delta_the_sum_is_the_answer():
    charge = Charge({BoundedRange(0.5): 4, BoundedRange(0.25): 2})
    for name in ("mgf", "opt_kl", "dr19", "improved_drv10"):
        assert compose(charge, delta=0.0, bound=name).epsilon == 2.5
        assert compose(charge, epsilon=2.5, bound=name).delta == 0.0
        assert compose(charge, epsilon=0.0, bound=name).delta <= 1.0


def test_extremes_are_finite_and_ordered():
    for epsilon in (1e-6, 1.0, 50.0):
        for count in (1, 10**6):
            deltas = np.array([0.5, 1e-6, 1e-100, 1e-300])
            values = mgf_epsilon(epsilon, count, delta=deltas)
            assert np.all(np.isfinite(values))
            assert np.all(np.diff(values) >= 0)
            assert np.all(values <= epsilon * count * (1 + 1e-12))


def test_bounds_of_bounded_range_refuse_other_costs():
    for name in ("opt_kl", "dr19"):
        with pytest.raises(IncompatibleCosts, match="PureDP"):
            compose(Charge({PureDP(0.1): 3}), delta=1e-6, bound=name)


def test_arguments_are_checked():
    with pytest.raises(InvalidParameter, match="epsilon"):
        dr19_epsilon(-0.1, 3, delta=1e-6)
    with pytest.raises(InvalidParameter, match="count"):
        mgf_epsilon(0.1, 0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="delta"):
        mgf_epsilon(0.1, 3, delta=np.nan)
    with pytest.raises(InvalidParameter, match="at_epsilon"):
        mgf_delta(0.1, 3, at_epsilon=[0.3, -0.1])
    with pytest.raises(InvalidParameter, match="at least one"):
        opt_kl_epsilon([], 1, delta=1e-6)
    with pytest.raises(InvalidParameter, match=r"count must fit .* epsilon, \(2,\); got .*\(3,\)"):
        dr19_epsilon([0.1, 0.2], [1, 2, 3], delta=1e-6)
    with pytest.raises(InvalidParameter, match="epsilon must be an array"):
        dr19_epsilon([[0.1], [0.2, 0.3]], 1, delta=1e-6)
    with pytest.raises(InvalidParameter, match="count must be an array"):
        dr19_epsilon(0.1, [[1], [2, 3]], delta=1e-6)
    for refused in (np.array([0.1 + 1j]), np.array([1], dtype="m8[s]"), ["0.1"], [10**400]):
        with pytest.raises(InvalidParameter, match="epsilon must be an array of numbers"):
            dr19_epsilon(refused, 3, delta=1e-6)


def test_adaptivity_gap_covers_what_the_theorem_says():
    assert adaptivity_gap(1.0, 4, at_epsilon=1.0) is True
    assert adaptivity_gap(1.0, 4, at_epsilon=1.5) is None
    assert adaptivity_gap(1.0, 4, at_epsilon=3.0) is False
    assert adaptivity_gap(1.0, 3, at_epsilon=0.0) is None
    assert adaptivity_gap(1.0, 1, at_epsilon=0.0) is False
    assert adaptivity_gap(1.0, 2, at_epsilon=0.49) is True
    assert adaptivity_gap(1.0, 2, at_epsilon=0.5) is None


def optimum(steps, x, epsilon):
    """δ of the adaptive optimum at each ε_g in x: a loss t with probability q(t), else t - ε; the
    best t each time.
    """

    def value(t):
        q = np.expm1(t - epsilon) / np.expm1(-epsilon)
        ends = np.stack([x[:, None] - t, x[:, None] + epsilon - t])
        won, lost = optimum(steps - 1, ends.ravel(), epsilon).reshape(ends.shape)
        return q * won + (1 - q) * lost

    if steps == 0:
        return np.maximum(-np.expm1(x), 0)
    if steps == 1:  # DDR Lemma 6.2
        return value(np.clip((x[:, None] + epsilon) / 2, 0, epsilon))[:, 0]
    middle, width = np.full(x.shape, epsilon / 2), epsilon / 2
    best = np.zeros(x.shape)
    for points, narrower in [(31, 15)] + [(9, 4)] * 9:
        t = np.clip(middle[:, None] + width * np.linspace(-1, 1, points), 0, epsilon)
        found = value(t)
        middle, width = t[np.arange(len(x)), found.argmax(axis=1)], width / narrower
        best = np.maximum(best, found.max(axis=1))
    return best


GAPS = [(2, [0.0, 0.2, 0.45], [0.5, 0.7]), (3, [0.1, 0.5, 1.2, 1.6], [0.0, 1.7])]


@pytest.mark.parametrize(("count", "gap", "none"), GAPS)
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
def test_where_adapting_gains_for_two_and_three_selections(count, gap, none, epsilon):
    """DDR Theorem 4 as printed has a gap at k = 3 and ε_g = 0; here the optimum of the recursion
    has none, to 1e-10.
    """
    x = np.array(gap + none) * epsilon
    batch = np.array([float(br_nonadaptive_delta(epsilon, count, at_epsilon=at)) for at in x])
    gain = optimum(count, x, epsilon) / batch - 1
    assert (gain[: len(gap)] > 1e-4).all()
    assert (np.abs(gain[len(gap) :]) < 1e-10).all()


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0, 50.0])
@pytest.mark.parametrize("count", [1, 1000, 10**6])
@pytest.mark.parametrize("delta", [0.3, 1e-6, 1e-300])
def test_closed_forms_in_fifty_digits(epsilon, count, delta):
    with mp.workdps(50):
        e, log_inverse = mp.mpf(epsilon), -mp.log(mp.mpf(delta))
        y = e / mp.expm1(e)
        means = {
            opt_kl_epsilon: y - 1 - mp.log(y),
            dr19_epsilon: e**2 / 2,
            improved_drv10_epsilon: e**2 / 2,
        }
        for bound, mean in means.items():
            variance = e**2 if bound is improved_drv10_epsilon else e**2 / 4
            exact = min(count * e, count * mean + mp.sqrt(2 * count * variance * log_inverse))
            value = mp.mpf(float(bound(epsilon, count, delta=delta)))
            assert exact <= value <= exact * (1 + mp.mpf(10) ** -11), bound.__name__


@pytest.mark.parametrize(("epsilon", "count"), [(1e-6, 10**6), (0.1, 100), (2.0, 7), (50.0, 3)])
@pytest.mark.parametrize("delta", [0.01, 1e-6, 1e-300])
def test_mgf_in_fifty_digits(epsilon, count, delta):
    """The infimum over λ, found from above by golden sections in 50 digits."""
    with mp.workdps(50):
        b, log_inverse = mp.mpf(epsilon) / 2, -mp.log(mp.mpf(delta))

        def s(z):
            return mp.log(mp.sinh(z) / z)

        def at(log_order):
            lam = mp.exp(log_order)
            h = (lam + 1) * s((lam + 1) * b) - lam * s(lam * b) - s(b)
            return (count * h + log_inverse) / lam

        low, high, ratio = mp.mpf(-10), mp.mpf(25), (mp.sqrt(5) - 1) / 2
        for _ in range(60):
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, right) if at(left) < at(right) else (left, high)
        exact = min(at((low + high) / 2), mp.mpf(epsilon) * count)
        value = mp.mpf(float(mgf_epsilon(epsilon, count, delta=delta)))
        assert exact * (1 - mp.mpf(10) ** -12) <= value <= exact * (1 + mp.mpf(10) ** -9)
