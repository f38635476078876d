"""The pair of an exponential clock: its lemmas at fifty digits, its law on grids from above and
below, its products.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.dominating_pairs import certified_bracket
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.clocks import ExponentialClock, clock_log_mgf, decay
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import Grid
from dptopk.accounting.work import Work
from dptopk.budgets.registered_costs import dominates, match, rough_size
from dptopk.costs import ZCDP, BoundedRange, Charge, ExponentialClockDP, PureDP
from dptopk.errors import BudgetExceeded, IncompatibleCosts

EPSILONS = (1e-4, 0.1, 0.8, 3.0, 12.0)


def profile(epsilon, x):
    """The closed form of the symmetric pair at x >= 0."""
    epsilon = mp.mpf(epsilon)
    return -mp.expm1(-epsilon) * mp.exp(-(x + epsilon) / mp.expm1(epsilon))


def race(factor, x):
    """Exp(1) against Exp(factor), both orders: P[l > x] - e^x Q[l > x] from the two survival
    functions.
    """
    log = mp.log(factor)
    late = (x + log) / (factor - 1)  # l > x is t > late for P against Q, t < early for Q against P
    early = max((log - x) / (factor - 1), mp.mpf(0))
    forward = mp.exp(-late) - mp.exp(x) * mp.exp(-factor * late)
    return forward, -mp.expm1(-factor * early) + mp.exp(x) * mp.expm1(-early)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_pair_covers_both_orders_and_every_smaller_factor(epsilon):
    with mp.workdps(50):
        for share, at in itertools.product(
            (0.01, 0.3, 0.9, 1.0), (0, 1e-3, 0.2, 0.7, 0.999, 1, 1.5, 9)
        ):
            x = mp.mpf(at) * epsilon
            bound, found = profile(epsilon, x), race(mp.exp(mp.mpf(share) * epsilon), x)
            assert max(found) <= bound * (1 + mp.mpf("1e-40"))
        assert race(mp.exp(mp.mpf(epsilon)), x)[0] == pytest.approx(
            bound
        )  # attained by the whole factor
        assert race(mp.exp(mp.mpf(epsilon) * 1.01), x)[0] > bound  # and not by a larger one


@pytest.mark.parametrize("total", [0.1, 0.8, 3.0])
def test_several_clocks_that_share_one_factor_are_one_clock(total):
    """Moved by e^a and e^(total - a): the sum of the losses, under P two exponentials, in closed
    form.
    """

    def two(a, x):
        k1, k2 = (1 / mp.expm1(part) for part in (mp.mpf(a), total - mp.mpf(a)))
        at = x + mp.mpf(total)

        def survival(one, other):
            return (other * mp.exp(-one * at) - one * mp.exp(-other * at)) / (other - one)

        return survival(k1, k2) - mp.exp(x) * survival(k1 + 1, k2 + 1)

    with mp.workdps(50):
        for share, at in itertools.product((0.01, 0.2, 0.4, 0.49), (0, 0.1, 0.5, 1, 2, 6)):
            x = mp.mpf(at) * total
            assert two(share * total, x) <= profile(total, x)
        # A factor less by two per cent would not cover it.
        assert two(mp.mpf("0.001") * total, mp.mpf(total)) > profile(total * 0.98, mp.mpf(total))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.01, 0.8, 4.0])
def test_bounded_range_implies_a_clock(epsilon):
    """Every RR_{ε,t} lies below; above the clock of 0.6 ε some do not."""
    with mp.workdps(50):
        e = mp.mpf(epsilon)
        x = [e * at / 40 for at in range(41)]
        worst = [
            max(
                mp.expm1(t - e) / mp.expm1(-e) * -mp.expm1(min(at - t, 0))
                for t in (e * i / 60 for i in range(61))
            )
            for at in x
        ]
        assert all(found <= profile(epsilon, at) for at, found in zip(x, worst, strict=True))
        assert any(found > profile(0.6 * epsilon, at) for at, found in zip(x, worst, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_log_mgf_against_quadrature(epsilon):
    with mp.workdps(40):
        kappa = 1 / mp.expm1(mp.mpf(epsilon))
        assert decay(epsilon) < kappa < decay(epsilon, -1)
        a = profile(epsilon, mp.mpf(0))
        weight, rest = kappa * (kappa + 1) * a, 1 - (2 * kappa + 1) * a
        for share in (1e-6, 0.1, 0.9, 0.999):
            lam = mp.mpf(share) * kappa
            up = mp.quad(
                lambda z, at=lam: weight * mp.exp(-(kappa - at) * z), [0, 1 / (kappa - lam), mp.inf]
            )
            down = mp.quad(
                lambda z, at=lam: weight * mp.exp(-(kappa + 1 + at) * z),
                [0, 1 / (kappa + 1), mp.inf],
            )
            exact = mp.log(rest + up + down)
            found = float(clock_log_mgf(epsilon, np.array([float(lam)]))[0])
            assert exact * (1 - mp.mpf("1e-8")) <= found <= exact * (1 + mp.mpf("1e-9"))
        assert clock_log_mgf(epsilon, np.array([float(kappa), 1e300])).tolist() == [
            math.inf,
            math.inf,
        ]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("step", [0.5, 0.03])
def test_the_law_on_a_grid_brackets_the_profile_of_one_clock(epsilon, step):
    kappa = decay(epsilon)
    source, step = ExponentialClock(epsilon, 1), step / kappa
    with mp.workdps(40):
        for tilt in (0.0, 0.9 * kappa):
            laws = [
                product(source.pairs(Grid(step, tilt, side)), step=step, tilt=tilt, side=side)
                for side in (1, -1)
            ]
            for at in (0, 0.31, 1, 4.7, 14):
                x = at / kappa
                upper, lower = (law.delta(x) for law in laws)
                assert lower < profile(epsilon, mp.mpf(x)) < upper
            if (
                step < 1 and step * kappa < 0.1 and tilt
            ):  # cells that are wider are off to first order
                assert upper < lower * 1.01


def brute(epsilon, count, x, side, cells=6000, reach=45.0):
    """Losses moved to the next (side = 1) or last (-1) point of a fine grid, convolved: another
    way, of first order.
    """
    kappa = 1 / math.expm1(epsilon)
    share = math.exp(-kappa * math.log1p(1 / kappa))
    step = reach / kappa / cells
    edges = np.arange(cells + 1) * step
    up = (kappa + 1) / kappa * kappa * share / (kappa + 1) * -np.diff(np.exp(-kappa * edges))
    down = kappa / (kappa + 1) * share * -np.diff(np.exp(-(kappa + 1) * edges))
    one = np.zeros(2 * cells + 1)
    one[cells] = 1 - up.sum() - down.sum()
    one[cells + (side > 0) : 2 * cells + (side > 0)] += up
    one[cells + (side > 0) - 1 :: -1][:cells] += down
    total = one
    for _ in range(count - 1):
        total = np.fft.irfft(np.fft.rfft(total, 1 << 16) * np.fft.rfft(one, 1 << 16))[
            : len(total) + len(one) - 1
        ]
    losses = (np.arange(len(total)) - cells * count) * step
    return float((total * np.maximum(-np.expm1(np.minimum(x - losses, 0)), 0)).sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "count"),
    [
        pytest.param(0.1, 1, marks=pytest.mark.study),
        (0.1, 2),
        pytest.param(0.8, 3, marks=pytest.mark.study),
        pytest.param(2.0, 2, marks=pytest.mark.study),
    ],
)
def test_products_against_a_second_algorithm(epsilon, count):
    for times in (0.5, 3, 6):
        x = times * epsilon
        found = compose(
            Charge({ExponentialClockDP(epsilon): count}),
            epsilon=x,
            rtol=1e-4,
            bound="optimal_setwise",
        )
        low, high = (brute(epsilon, count, x, side) for side in (-1, 1))
        assert low <= found.delta
        assert found.lower <= high
        assert found.delta <= found.lower * (1 + 5e-4)
        assert high <= low * 1.1  # the other way is worth comparing with


@pytest.mark.slow
def test_one_clock_has_its_closed_form():
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-3), (0.014, 1e-12), (5.0, 1e-6)):
        kappa = 1 / math.expm1(epsilon)
        exact = (math.log(-math.expm1(-epsilon)) - epsilon * kappa - math.log(delta)) / kappa
        found = compose(Charge({ExponentialClockDP(epsilon): 1}), delta=delta)
        assert found.lower <= exact <= found.epsilon
        assert found.epsilon == pytest.approx(exact, rel=1e-3)
    assert compose(Charge({ExponentialClockDP(0.1): 1}), delta=0.0).epsilon == math.inf


@pytest.mark.slow
@pytest.mark.study
def test_it_composes_with_other_costs_and_stays_above_their_part():
    clocks = {ExponentialClockDP(0.1): 2}
    for text in (
        "100*DP(0.1)",
        "40*BR(0.1)",
        "5*DGauss(4.0, 1)",
        "GDP(0.5)",
        "ZCDP(0.01)",
        "3*ADP(0.1, 1e-9)",
    ):
        other = Charge.parse(text)
        whole = Charge.join(Charge(clocks), other)
        found, parts = (
            compose(whole, delta=1e-6),
            [compose(part, delta=1e-6) for part in (Charge(clocks), other)],
        )
        assert max(part.lower or 0 for part in parts) <= found.epsilon
        assert found.epsilon <= sum(
            part.epsilon for part in (compose(c, delta=4.9e-7) for c in (Charge(clocks), other))
        )
        assert compose(whole, delta=1e-6, bound="renyi").epsilon >= (found.lower or 0)
    worse = Charge({ExponentialClockDP(0.11): 2})
    assert compose(worse, delta=1e-6).lower > compose(Charge(clocks), delta=1e-6).epsilon


@pytest.mark.parametrize(
    "epsilon",
    [
        1e-300,
        pytest.param(1e-12, marks=pytest.mark.slow),
        pytest.param(1e-6, marks=pytest.mark.slow),
        60.0,
        1e4,
    ],
)
def test_far_ranges_fail_closed(epsilon):
    """Three clocks cost at least what one does, also where floats end."""
    charge = Charge({ExponentialClockDP(epsilon): 3})
    for x in (0.0, 3 * epsilon, 30 * epsilon):
        with mp.workdps(50):
            least = profile(epsilon, mp.mpf(x))
        found = compose(charge, epsilon=x)
        assert found.delta >= least
        assert found.delta >= (found.lower or 0.0)
    assert compose(charge, delta=1e-6).epsilon >= (0.0 if epsilon < 1e-3 else 3 * epsilon)


@pytest.mark.slow
def test_tokens():
    token = ExponentialClockDP(0.2)
    for cost in (ExponentialClockDP(0.2), ExponentialClockDP(0.1), BoundedRange(0.2), PureDP(0.1)):
        assert dominates(token, cost)
        assert (
            compose(Charge({cost: 4}), delta=1e-6).lower
            <= compose(Charge({token: 4}), delta=1e-6).epsilon
        )
    for cost in (ExponentialClockDP(0.21), BoundedRange(0.21), PureDP(0.11)):
        assert not dominates(token, cost)
    # No other type of token pays for a clock, and a bounded range takes its own token first.
    for other in (
        "DP(50)",
        "BR(50)",
        "GDP(50)",
        "ZCDP(50)",
        "ADP(50, 0.5)",
        "DGauss(0.1, 50)",
        "CDP(50, 50)",
    ):
        ((large, _),) = Charge.parse(other)
        assert not dominates(large, token)
    tokens = {ExponentialClockDP(0.9): 1, BoundedRange(0.3): 1}
    assert match({BoundedRange(0.2): 1}, tokens, dominates, rough_size) == {
        (BoundedRange(0.2), BoundedRange(0.3)): 1
    }


@pytest.mark.slow
def test_a_filter_prices_a_clock_only_where_its_order_has_a_moment():
    from dptopk import Accountant, Budget

    budget = Accountant.filter(Budget(1.0, 1e-6))
    assert budget.order < decay(0.01)
    assert budget.can_spend(Charge({ExponentialClockDP(0.01): 1}))
    with pytest.raises((BudgetExceeded, IncompatibleCosts)):
        budget.spend(Charge({ExponentialClockDP(1.0): 1}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "beside", [{BoundedRange(0.1): 3}, pytest.param({ZCDP(0.1): 3}, marks=pytest.mark.study)]
)
@pytest.mark.parametrize("epsilon", [0.6928, 0.8, 3.0])
def test_clocks_without_a_moment_at_order_one_beside_ranges_and_concentrated_costs(beside, epsilon):
    """No order of 1/(e^ε - 1) or more has a moment, and the best order may be just below."""
    clock = Charge({ExponentialClockDP(epsilon): 1})
    whole = compose(Charge({**clock.costs, **beside}), delta=1e-6)
    least = compose(clock, delta=1e-6).epsilon
    assert least < whole.epsilon < least * 1.1
    assert whole.lower is not None
    assert whole.lower <= whole.epsilon


@pytest.mark.slow
def test_a_clock_without_any_moment_has_no_finite_bound():
    found = compose(Charge({ExponentialClockDP(700.0): 1, BoundedRange(0.1): 2}), delta=1e-6)
    assert found.epsilon == math.inf


@pytest.mark.slow
def test_a_thousand_different_clocks_are_not_multiplied_when_it_is_too_much_work():
    many = Charge({ExponentialClockDP(0.01 + 1e-4 * i): 1 for i in range(1000)})
    found = certified_bracket(many, Query(delta=1e-6, work=Work(2.0)))
    assert found.upper == math.inf
    assert "used up" in found.note


@pytest.mark.slow
def test_a_million_clocks_beside_ranges_are_no_million_factors() -> None:
    """They are one pair to a power: there is time for the product."""
    found = compose(Charge.parse("1000000*Clock(0.001) + 20*BR(0.05)"), delta=1e-6)
    assert found.lower is not None
    assert found.lower > found.epsilon * (1 - 5e-3)
