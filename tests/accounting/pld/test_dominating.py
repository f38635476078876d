"""The Gaussian that dominates a discrete Gaussian, against trade-off curves and profiles at sixty
digits.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from dptopk.accounting.gaussian.discrete import discrete_gaussian_delta
from dptopk.accounting.gaussian.pair import gaussian_delta
from dptopk.accounting.pld.dominating import covering_mu, dominating_mu
from dptopk.budgets.registered_costs import dominates
from dptopk.costs import DiscreteGaussianDP, GaussianDP
from dptopk.errors import InvalidParameter

DIGITS = 60


def ends(scale: float, last: int) -> list[mp.mpf]:
    """c_0, ..., c_last with P[X <= k] = Φ(c_k), by Newton's method on logarithms of tails."""
    s = mp.mpf(scale)
    beyond = math.ceil(math.hypot(last, 18 * scale)) + 3
    weights = [mp.exp(-mp.mpf(k * k) / (2 * s * s)) for k in range(beyond)]
    whole = weights[0] + 2 * mp.fsum(weights[1:])
    found = []
    for k in range(last + 1):
        wanted = mp.log(mp.fsum(weights[k + 1 :]) / whole)
        x = mp.sqrt(-2 * wanted) if wanted < -2 else mp.mpf("0.5")
        for _ in range(80):
            tail = mp.erfc(x / mp.sqrt(2)) / 2
            move = (mp.log(tail) - wanted) * tail / mp.npdf(x)
            x += move
            if abs(move) < mp.mpf("1e-40"):
                break
        found.append(x)
    return found


def widest(scale: float, last: int, shift: int = 1) -> mp.mpf:
    """The largest c_k - c_{k - shift}: the least μ, as far as half-lines up to ``last`` tell."""
    right = ends(scale, last)
    line = [-x for x in reversed(right)] + right  # c_{-k-1} = -c_k
    return max(line[i + shift] - line[i] for i in range(len(line) - shift))


@pytest.mark.parametrize("scale", [0.05, 0.3, 0.5, 0.75, 1.0, 2.285])
def test_it_is_the_least_for_one_step_up_to_rounding(scale: float) -> None:
    with mp.workdps(DIGITS):
        least = widest(scale, math.ceil(14 * scale**2) + 6)
        assert least <= dominating_mu(scale) <= least * (1 + mp.mpf("1e-11"))


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.285, 16.0, 31.0])
def test_the_middle_decides(scale: float) -> None:
    """The least is 2 Φ⁻¹(P[X <= 0]), about (1 + 1/(24 s²))/s."""
    with mp.workdps(DIGITS):
        corner = 2 * ends(scale, 0)[0]
        assert corner <= dominating_mu(scale) <= corner * (1 + mp.mpf("1e-9"))
        assert (
            abs(corner * scale - 1 - mp.mpf(1) / (24 * mp.mpf(scale) ** 2))
            < mp.mpf("0.005") / mp.mpf(scale) ** 4
        )


@pytest.mark.parametrize(("scale", "shift"), [(0.7, 2), (3.0, 5), (40.0, 1), (40.0, 7)])
def test_it_covers_larger_moves_and_scales(scale: float, shift: int) -> None:
    with mp.workdps(DIGITS):
        least = widest(scale, 60, shift)
        assert least <= dominating_mu(scale, shift)
        if scale > shift:
            assert dominating_mu(scale, shift) <= least * (
                1 + mp.mpf(2) / (scale / shift) ** 2 / 24
            )
        assert least > mp.mpf(shift) / mp.mpf(scale)  # the continuous μ would not do


@pytest.mark.parametrize(
    ("scale", "shift"), [(0.5, 1), (1.0, 1), (1.0, 2), (2.285, 1), (10.0, 3), (50.0, 1)]
)
def test_its_profile_lies_above_and_that_of_the_continuous_one_does_not(
    scale: float, shift: int
) -> None:
    x = np.linspace(0, 12 * shift / scale, 400)
    exact = discrete_gaussian_delta(
        scale, shift, epsilon=x
    )  # the same in both directions, and so for x < 0
    seen = exact > 1e-25
    assert np.all(
        exact[seen] <= gaussian_delta(dominating_mu(scale, shift), epsilon=x[seen]) * (1 + 1e-9)
    )
    assert np.any(exact[seen] > gaussian_delta(shift / scale, epsilon=x[seen]) * (1 + 1e-6))


def test_nothing_changes_where_the_proof_does() -> None:
    """Listed below scale 32, a formula above: an upper bound by less than 1/(24 s²)."""
    below, above = (dominating_mu(scale) * scale for scale in (32.0, math.nextafter(32.0, 33)))
    assert below < above < below * (1 + 1 / (23 * 32.0**2))
    assert [dominating_mu(s) > 1 / s for s in (1e-6, 1e-3, 1e3, 1e9)] == [True] * 4
    with pytest.raises(InvalidParameter):
        dominating_mu(1e-7)
    with pytest.raises(InvalidParameter):
        dominating_mu(1.0, 0)


def test_a_gaussian_token_covers_discrete_noise_from_its_dominating_mu_on() -> None:
    mu = dominating_mu(2.0)
    assert dominates(GaussianDP(mu), DiscreteGaussianDP(2.0, 1))
    assert not dominates(GaussianDP(0.999 * mu), DiscreteGaussianDP(2.0, 1))
    assert not dominates(GaussianDP(0.5), DiscreteGaussianDP(2.0, 1))


@pytest.mark.parametrize("epsilon", [1e-12, 3e-8, 1e-6, 1e-3, 0.1, 1.0, 1.1, 5.0, 25.0])
def test_the_gaussian_that_covers_a_pure_cost_is_not_too_small(epsilon):
    """In 60 digits; Φ⁻¹(1 - a) in floats was 3e-8 too small, relatively, where ε is 1e-8."""
    with mp.workdps(60):
        exact = 2 * mp.sqrt(2) * mp.erfinv(mp.tanh(mp.mpf(epsilon) / 2))
        assert exact <= covering_mu(epsilon) <= exact * (1 + mp.mpf(10) ** -11)


@pytest.mark.parametrize("epsilon", [5e-324, 1e-323, 1e-310])
def test_the_covering_mu_of_a_subnormal_epsilon(epsilon):
    assert covering_mu(epsilon) >= mp.sqrt(mp.pi / 2) * mp.mpf(epsilon)


@pytest.mark.parametrize("epsilon", [709.0, 744.4, 1000.0, 3000.0])
def test_the_covering_mu_of_a_large_epsilon_is_finite(epsilon):
    """Q(μ/2) is at most 1/(1 + e^ε), and hardly less; above 709.8 μ was inf."""
    mu = covering_mu(epsilon)
    with mp.workdps(40):
        odds = mp.erfc(mp.mpf(mu) / (2 * mp.sqrt(2))) / 2 * (1 + mp.exp(epsilon))
        assert 1 - 1e-7 < odds <= 1
