"""The discrete Laplace pair: 60 digits, the lemma behind it by exact enumeration, and what it
composes to.
"""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import implications_of
from dptopk.accounting.pld.discrete_laplace import discrete_laplace_log_mgf, mean_loss
from dptopk.budgets.registered_costs import dominates
from dptopk.costs import Charge, DiscreteLaplaceDP, PureDP

CASES = [(1.0, 1), (0.3, 2), (2.0, 5), (100.0, 100), (1000.0, 3), (0.02, 4), (5.0, 400)]


def law(scale, shift):
    """Losses and probabilities under P at the precision of mpmath."""
    h = 1 / mp.mpf(scale)
    q = mp.exp(-h)
    masses = [1 / (1 + q), *[q**j * (1 - q) / (1 + q) for j in range(1, shift)], q**shift / (1 + q)]
    return [(shift - 2 * j) * h for j in range(shift + 1)], masses


@pytest.mark.parametrize(("scale", "shift"), CASES)
def test_mean_loss_and_log_mgf_match_sixty_digits(scale, shift):
    with mp.workdps(60):
        losses, masses = law(scale, shift)
        exact = mp.fsum(p * loss for loss, p in zip(losses, masses, strict=True))
        assert exact <= mean_loss(scale, shift) <= exact * (1 + mp.mpf("1e-13"))
        for lam in (1e-9, 1e-3, 0.1, 1.0, 7.0, 300.0):
            value = mp.log(
                mp.fsum(p * mp.exp(lam * loss) for loss, p in zip(losses, masses, strict=True))
            )
            bound = float(discrete_laplace_log_mgf(scale, shift, np.array([lam]))[0])
            assert (
                value * (1 - mp.mpf("1e-14"))
                <= bound
                <= value * (1 + mp.mpf("1e-9")) + mp.mpf("1e-13")
            )
            assert value <= exact * lam * (1 + mp.mpf(lam)) * (
                1 + mp.mpf("1e-40")
            )  # the zCDP constant


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-5, 0.3, 0.499, 0.5, 2.0, 40.0])
def test_one_unit_is_pure_dp(epsilon):
    cost, pure = DiscreteLaplaceDP(1 / epsilon, 1), PureDP(epsilon)
    for notion in ("zcdp", "exact_zcdp", "cdp"):
        assert getattr(implications_of(cost), notion)(cost) == pytest.approx(
            getattr(implications_of(pure), notion)(pure), rel=1e-12
        )
    one, other = (compose(Charge({c: 7}), delta=1e-6, rtol=1e-5) for c in (cost, pure))
    assert other.lower <= one.epsilon * (1 + 1e-12)
    assert one.lower <= other.epsilon
    assert one.epsilon == pytest.approx(other.epsilon, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scale", "shift", "count"), [(2.0, 5, 1), (2.0, 5, 4), (10.0, 30, 6), (0.7, 2, 40)]
)
def test_composition_brackets_the_exact_profile(scale, shift, count):
    with mp.workdps(60):
        one = law(scale, shift)[1]
        total = [mp.mpf(1)]
        for _ in range(count):
            total = [
                mp.fsum(total[i - j] * one[j] for j in range(shift + 1) if 0 <= i - j < len(total))
                for i in range(len(total) + shift)
            ]
        for share in (0.1, 0.5, 0.9):
            x = share * count * shift / scale
            exact = mp.fsum(
                p * -mp.expm1(mp.mpf(x) - loss)
                for i, p in enumerate(total)
                if (loss := (count * shift - 2 * i) / mp.mpf(scale)) > x
            )
            found = compose(
                Charge({DiscreteLaplaceDP(scale, shift): count}), epsilon=x, bound="optimal_setwise"
            )
            assert found.lower <= exact <= found.delta
            assert found.delta <= found.lower * (1 + 2e-3)


def test_wide_shifts_in_larger_steps():
    """A shift of a million is taken in steps from above and in blocks from below."""
    fine, coarse = (
        compose(Charge({DiscreteLaplaceDP(n / 2.0, n): 5}), delta=1e-6, rtol=1e-4)
        for n in (2000, 1_000_000)
    )
    assert fine.lower <= coarse.epsilon
    assert coarse.lower <= fine.epsilon * (1 + 1e-3)
    assert coarse.epsilon == pytest.approx(fine.epsilon, rel=1e-3)
    assert coarse.lower is not None


def profile(p, q, epsilons):
    return np.array([np.maximum(p - math.exp(x) * q, 0).sum() for x in epsilons])


@pytest.mark.parametrize("scale", [0.8, 3.0])
@pytest.mark.parametrize("total", [2, 3])
def test_a_split_move_is_dominated_and_a_shorter_one_would_not_do(scale, total):
    """Noise on two integers that move by a and total - a: below one pair with shift total, above
    shift total - 1.
    """
    n = np.arange(-math.ceil(34 * scale), math.ceil(34 * scale) + 1)
    pmf = np.exp(-np.abs(n) / scale)
    pmf /= pmf.sum()

    def moved(a):
        return np.concatenate([np.zeros(a), pmf, np.zeros(total - a)])

    epsilons = np.linspace(-total / scale, total / scale, 41)
    bounds = {a: profile(moved(0), moved(a), epsilons) for a in (total - 1, total)}
    for a, sign in itertools.product(range(total + 1), (1, -1)):
        pairs = [
            np.multiply.outer(moved(0), moved(0)),
            np.multiply.outer(moved(a), moved(total - a)),
        ][::sign]
        assert (profile(*pairs, epsilons) <= bounds[total] + 1e-13).all()
        assert (profile(*pairs, epsilons) > bounds[total - 1] + 1e-4).any()


def test_tokens_by_steps():
    token = DiscreteLaplaceDP(2.0, 3)
    covered = [
        DiscreteLaplaceDP(2.5, 3),
        DiscreteLaplaceDP(4.0, 6),
        PureDP(0.5),
        DiscreteLaplaceDP(9.0, 12),
    ]
    assert all(dominates(token, cost) for cost in covered)
    others = [
        DiscreteLaplaceDP(1.9, 1),
        DiscreteLaplaceDP(4.0, 7),
        PureDP(0.500001),
        DiscreteLaplaceDP(2.0, 4),
    ]
    assert not any(dominates(token, cost) for cost in others)
    assert dominates(PureDP(1.5), token)
    assert not dominates(PureDP(1.49), token)
    for cost in covered:  # what a token covers never composes to more
        assert (
            compose(Charge({cost: 3}), delta=1e-6).lower
            <= compose(Charge({token: 3}), delta=1e-6).epsilon
        )


def test_published_numbers():
    """Counts with noise of ε = 1 and τ = 100: 27.8 and 71.5 instead of 30.0 and 83.5."""
    for count, own, pure in (
        (30, 27.78, 29.99),
        (100, 71.55, 83.53),
    ):  # the brackets: 71.546 to 71.548
        assert compose(
            Charge({DiscreteLaplaceDP(100.0, 100): count}), delta=1e-6
        ).epsilon == pytest.approx(own, abs=0.01)
        assert compose(Charge({PureDP(1.0): count}), delta=1e-6).epsilon == pytest.approx(
            pure, abs=0.01
        )
