"""Theorem H: steps of zCDP costs on a Gaussian, against concrete laws, the certificate of the proof and all orders."""

from __future__ import annotations

import math
from itertools import permutations

import mpmath
import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.curves import Query
from dptopk.accounting.setwise.groups import LARGEST_RHO, concentrated_gaussian
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.costs import Charge

RHOS = (1e-4, 0.01, 0.1, LARGEST_RHO)
SHARES = (1.0, 1.5, 4.0, 60.0)  # s over ρ
PLACES = (0.0, 0.2, 0.7, 1.5, 3.0, 6.0)  # x in standard deviations


def profile(s: mpmath.mpf, x: mpmath.mpf) -> mpmath.mpf:
    """δ at x of a Gaussian loss of variance s."""
    root = mpmath.sqrt(s)
    return mpmath.ncdf(root / 2 - x / root) - mpmath.exp(x) * mpmath.ncdf(-root / 2 - x / root)


def beta(rho: mpmath.mpf, s: mpmath.mpf) -> mpmath.mpf:
    """β of the theorem, with the bound ρ/4 + ρ²/s on itself that the proof uses."""
    a, most = 2 * rho / s, rho / 4 + rho**2 / s
    far = (1 + most) + a * (1 + most) ** 2 / 4
    found = mpmath.expm1(rho / 8 + rho * a / 6) * mpmath.exp(rho * far / 4)
    assert found <= most
    return found


def after(rho: mpmath.mpf, s: mpmath.mpf) -> mpmath.mpf:
    """s' of the theorem."""
    return s * (1 + rho * (1 + beta(rho, s)) / s) ** 2


def certificate(rho: mpmath.mpf, s: mpmath.mpf, x: mpmath.mpf) -> mpmath.mpf:
    """G_s(x) + r(0) (e^{ρΛ} - 1)/Λ for the r of each of the proof's three cases, x >= 0."""
    a, density = 2 * rho / s, mpmath.npdf((x - s / 2) / mpmath.sqrt(s)) / mpmath.sqrt(s)
    if 2 * x <= s:
        return profile(s, x) + rho * density
    theta = a / (2 + a) if 2 * x > s * (1 + a / 2) else 0
    order = (1 - theta) * x / s - mpmath.mpf(1) / 2
    tangent = density * mpmath.exp((theta * x) ** 2 / (2 * s))
    return profile(s, x) + tangent * mpmath.expm1(rho * order * (1 + order)) / (order * (1 + order))


def laws(rho: mpmath.mpf) -> list[list[tuple[mpmath.mpf, mpmath.mpf]]]:
    """(loss, mass under P) of pairs that are exactly ρ-zCDP: randomised response, the extremes of bounded range."""
    pure = mpmath.findroot(lambda e: e * mpmath.tanh(e / 2) - rho, mpmath.sqrt(2 * rho))
    p = 1 / (1 + mpmath.exp(-pure))
    width = mpmath.findroot(
        lambda e: mpmath.log(mpmath.sinh(e / 2) * 2 / e) + e / 2 * mpmath.coth(e / 2) - 1 - rho, mpmath.sqrt(8 * rho)
    )
    found = [[(pure, p), (-pure, 1 - p)]]
    for t in (width * share / 10 for share in (2, 4, 5, 6, 8)):
        q = mpmath.expm1(t - width) / mpmath.expm1(-width)
        found.append([(t, q), (t - width, 1 - q)])
    return found


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("share", SHARES)
def test_a_step_on_a_gaussian(rho: float, share: float) -> None:
    """What each law reaches <= the certificate of the proof <= the Gaussian of variance s', at forty digits."""
    with mpmath.workdps(40):
        one = mpmath.mpf(rho)
        s = one * mpmath.mpf(share)
        near = [s / 2 * mpmath.mpf(k) for k in (0.5, 1, 1.0001)] + [s / 2 * (1 + one / s) * (1 + k) for k in (0, 1e-6)]
        for x in [place * mpmath.sqrt(s) for place in PLACES] + near:
            bound = certificate(one, s, x)
            assert bound <= profile(after(one, s), x) * (1 + mpmath.mpf(10) ** -30)
            for law in laws(one):
                assert sum(p * profile(s, x - loss) for loss, p in law) <= bound


@pytest.mark.parametrize("rho", [1e-4, 1e-3])
def test_less_than_two_thirds_of_the_excess_is_no_bound(rho: float) -> None:
    """The mutant s' = s + 2ρ + c ρ²/s: randomised response is above it at x = 0 for c < 2/3."""
    with mpmath.workdps(40):
        one, s = mpmath.mpf(rho), mpmath.mpf(rho) * 100
        reached = sum(p * profile(s, -loss) for loss, p in laws(one)[0])
        assert profile(s + 2 * one + 0.6 * one**2 / s, 0) < reached < profile(s + 2 * one + 0.7 * one**2 / s, 0)


@pytest.mark.parametrize("rhos", [(0.02,) * 5, (0.01, 0.02, 0.05, 0.5), (0.5, 0.5, 0.001, 0.2), (1e-6, 1e-3, 1e-3)])
def test_the_sum_covers_every_order(rhos: tuple[float, ...]) -> None:
    """The closed form is at least what the steps add up to in any order, from the best start."""
    starts = [max(rhos) * (1 + k / 10) for k in range(71)]

    def worst(start: float) -> mpmath.mpf:
        variances = []
        for order in set(permutations(rhos)):
            s = mpmath.mpf(start)
            for rho in order:
                s = after(mpmath.mpf(rho), s)
            variances.append(s)
        return max(variances)

    bound = concentrated_gaussian({rho: rhos.count(rho) for rho in rhos})
    assert 2 * sum(rhos) < min(worst(start) for start in starts[::10]) <= bound


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("156*ZCDP(0.00245)", 9e-3),
        pytest.param("300*ZCDP(0.001) + 200*ZCDP(0.002)", 5e-3, marks=pytest.mark.slow),
        pytest.param("10000*CDP(0.0001, 0.01415)", 2e-3, marks=pytest.mark.slow),
    ],
)
def test_many_small_costs_are_nearly_gaussian(text: str, width: float) -> None:
    """The bracket is far narrower than the 7% between a Gaussian and the conversion."""
    charge = Charge.parse(text)
    found = compose(charge, delta=1e-6)
    assert 0 < found.epsilon / (found.lower or 0.0) - 1 < width
    assert found.epsilon < compose(charge, delta=1e-6, bound="renyi").epsilon * 0.95
    at = SetwiseCurve.of(charge).answer(Query(epsilon=found.epsilon, lower=False))
    assert at.value == pytest.approx(1e-6, rel=1e-6)


def test_randomised_response_needs_more_than_the_sum_of_variances() -> None:
    """21 ρ-zCDP randomised responses reach more at x = 0 than a Gaussian of variance 42 ρ, not more than the bound."""
    rho, n = 0.002, 21
    epsilon = float(laws(mpmath.mpf(rho))[0][0][0])
    p = 1 / (1 + math.exp(-epsilon))
    masses = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    reached = sum(mass * max(-math.expm1((n - 2 * k) * epsilon), 0.0) for k, mass in enumerate(masses))
    assert profile(mpmath.mpf(2 * n * rho), 0) < reached < profile(concentrated_gaussian({rho: n}), 0)


@pytest.mark.slow
def test_one_large_cost_is_left_to_the_conversion() -> None:
    """Beside a large cost the small ones are still one Gaussian."""
    charge = Charge.parse("1000*ZCDP(0.001) + 3*ZCDP(0.2) + ZCDP(0.1, xi=0.01)")
    found = compose(charge, delta=1e-6)
    assert (found.lower or 0.0) < found.epsilon < 0.99 * compose(charge, delta=1e-6, bound="renyi").epsilon
