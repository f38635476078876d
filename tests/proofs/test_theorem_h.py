"""Theorem H: steps of zCDP costs on a Gaussian, against concrete laws, the certificate of the proof
and all orders.
"""

from __future__ import annotations

import functools
import math
from itertools import permutations

import mpmath
import numpy as np
import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.binomial import log_binomial_pmf
from dptopk.accounting.pld.many_responses import responses_delta_below
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.zcdp_gaussian import LARGEST_RHO, concentrated_gaussian, gaussian_of
from dptopk.costs import Charge
from dptopk.errors import IncompatibleCosts

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
    """(loss, mass under P) of pairs that are exactly ρ-zCDP: randomised response, the extremes of
    bounded range.
    """
    pure = mpmath.findroot(lambda e: e * mpmath.tanh(e / 2) - rho, mpmath.sqrt(2 * rho))
    p = 1 / (1 + mpmath.exp(-pure))
    width = mpmath.findroot(
        lambda e: mpmath.log(mpmath.sinh(e / 2) * 2 / e) + e / 2 * mpmath.coth(e / 2) - 1 - rho,
        mpmath.sqrt(8 * rho),
    )
    found = [[(pure, p), (-pure, 1 - p)]]
    for t in (width * share / 10 for share in (2, 4, 5, 6, 8)):
        q = mpmath.expm1(t - width) / mpmath.expm1(-width)
        found.append([(t, q), (t - width, 1 - q)])
    return found


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("share", SHARES)
def test_a_step_on_a_gaussian(rho: float, share: float) -> None:
    """What each law reaches <= the certificate of the proof <= the Gaussian of variance s', at
    forty digits.
    """
    with mpmath.workdps(40):
        one = mpmath.mpf(rho)
        s = one * mpmath.mpf(share)
        near = [s / 2 * mpmath.mpf(k) for k in (0.5, 1, 1.0001)] + [
            s / 2 * (1 + one / s) * (1 + k) for k in (0, 1e-6)
        ]
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
        assert (
            profile(s + 2 * one + 0.6 * one**2 / s, 0)
            < reached
            < profile(s + 2 * one + 0.7 * one**2 / s, 0)
        )


@pytest.mark.parametrize(
    "rhos", [(0.02,) * 5, (0.01, 0.02, 0.05, 0.5), (0.5, 0.5, 0.001, 0.2), (1e-6, 1e-3, 1e-3)]
)
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
        pytest.param("156*ZCDP(0.00245)", 3e-3, marks=pytest.mark.slow),
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
    """21 ρ-zCDP randomised responses reach more at x = 0 than a Gaussian of variance 42 ρ, not more
    than the bound.
    """
    rho, n = 0.002, 21
    epsilon = float(laws(mpmath.mpf(rho))[0][0][0])
    p = 1 / (1 + math.exp(-epsilon))
    masses = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    reached = sum(
        mass * max(-math.expm1((n - 2 * k) * epsilon), 0.0) for k, mass in enumerate(masses)
    )
    assert (
        profile(mpmath.mpf(2 * n * rho), 0) < reached < profile(concentrated_gaussian({rho: n}), 0)
    )


@pytest.mark.slow
def test_one_large_cost_is_left_to_the_conversion() -> None:
    """Beside a large cost the small ones are still one Gaussian."""
    charge = Charge.parse("1000*ZCDP(0.001) + 3*ZCDP(0.2) + ZCDP(0.1, xi=0.01)")
    found = compose(charge, delta=1e-6)
    assert (
        (found.lower or 0.0)
        < found.epsilon
        < 0.99 * compose(charge, delta=1e-6, bound="renyi").epsilon
    )


def played(costs: tuple[tuple[str, int], ...], unit: float, reach: int) -> list[float]:
    """δ at 0, 1, ..., ``reach`` units of the best play found by recursion on a lattice of losses.

    A cost is ("BR", m), any t of whole units, or ("DP", m), randomised response, of ε = m units;
    the next cost and t are chosen from all losses so far.
    """
    span = reach + sum(size for _, size in costs) + 1
    places = range(-span, span + 1)

    def outcomes(kind: str, size: int) -> list[tuple[float, int, int]]:
        """(chance of the larger loss, the larger loss, the smaller loss) in units."""
        ends = range(1, size) if kind == "BR" else (size,)
        width = size if kind == "BR" else 2 * size
        found = []
        for end in ends:
            chance = math.expm1((end - width) * unit) / math.expm1(-width * unit)
            found.append((chance, end, end - width))
        return found

    @functools.cache
    def values(left: tuple[tuple[str, int], ...]) -> dict[int, float]:
        best = {x: max(-math.expm1(x * unit), 0.0) for x in places}
        for place in {left.index(cost) for cost in left}:
            later = values(left[:place] + left[place + 1 :])
            for chance, up, down in outcomes(*left[place]):
                for x in places:
                    if x - up >= -span and x - down <= span:
                        value = chance * later[x - up] + (1 - chance) * later[x - down]
                        best[x] = max(best[x], value)
        return best

    found = values(costs)
    return [found[x] for x in range(reach + 1)]


MIXES = (
    (("BR", 4),) * 7,
    (("BR", 2), ("BR", 3), ("BR", 3), ("BR", 6), ("DP", 2), ("DP", 2)),
    (("DP", 1),) * 5 + (("DP", 3),),
)


@pytest.mark.parametrize("costs", MIXES)
@pytest.mark.parametrize("unit", [0.02, 0.1])
def test_no_play_of_ranges_and_pure_costs_is_above_one_gaussian(
    costs: tuple[tuple[str, int], ...], unit: float
) -> None:
    """Exact games on a lattice; they come within a quarter of the bound, which has a start s_0."""
    terms = [f"{kind}({size * unit!r})" for kind, size in costs]
    charge = Charge.parse(" + ".join(terms))
    reached = played(costs, unit, reach=12)
    asked = [x * unit for x in range(13)]
    bounds_ = [compose(charge, epsilon=x, bound="zcdp_gaussian").delta for x in asked]
    assert all(mine <= bound for mine, bound in zip(reached, bounds_, strict=True))
    assert reached[0] > 0.75 * bounds_[0]


def test_a_gaussian_beside_small_costs_adds_exactly() -> None:
    small = Charge.parse("500*BR(0.02) + 20*DP(0.01)")
    variance = gaussian_of(small).mu ** 2
    both = gaussian_of(Charge.join(small, Charge.parse("3*GDP(0.1)"))).mu ** 2
    assert both == pytest.approx(variance + 0.03, rel=1e-12)
    assert both >= variance + 0.03 * (1 - 1e-15)


@pytest.mark.parametrize(
    ("charge", "reason"),
    [
        ("BR(0.1) + 3*Clock(0.1)", "does not take ExponentialClockDP"),
        ("100*BR(0.1) + ZCDP(0.6)", r"ZCDP\(0.6\) is not known to be 0.5-zCDP"),
        ("100*BR(0.1) + DP(2.0)", r"DP\(2.0\) is not known"),
        ("3*GDP(0.1)", "Gaussian costs alone"),
    ],
)
def test_what_the_theorem_does_not_cover_is_refused_by_name(charge: str, reason: str) -> None:
    with pytest.raises(IncompatibleCosts, match=reason):
        compose(Charge.parse(charge), delta=1e-6, bound="zcdp_gaussian")


@pytest.mark.parametrize(
    "text",
    ["100000*BR(0.01)", "100000000*BR(0.0001)", f"{10**18}*BR(1e-9)", f"{10**12}*DP(1e-6)"],
)
def test_very_many_equal_costs_are_known_closely(text: str) -> None:
    """Both ends, from 10⁵ to 10¹⁸ costs."""
    found = compose(Charge.parse(text), delta=1e-6, effort="quick")
    assert found.lower is not None
    assert found.lower <= found.epsilon <= found.lower * (1 + 2e-4)


@pytest.mark.parametrize(("count", "epsilon"), [(20_000, 0.015), (20_001, 0.015), (50_000, 0.004)])
def test_many_responses_are_bounded_from_below(count: int, epsilon: float) -> None:
    """Against the sum over all places; a mutant without Stirling's last term is above it."""
    for share in (0.5, 2.0, 4.0):
        x = share * math.sqrt(count) * epsilon
        first = max(math.floor((x / epsilon + count) / 2), 0)
        hits = np.arange(first, count + 1)
        success = 1 / (1 + math.exp(-epsilon))
        logs = log_binomial_pmf(hits, count, success, 1 - success)
        gains = -np.expm1(np.minimum(x - (2 * hits - count) * epsilon, 0.0))
        exact = float(np.exp(logs) @ gains)
        below = responses_delta_below(count, epsilon, x)
        assert exact * (1 - 2e-3) < below <= exact


@pytest.mark.parametrize("count", [10**9, 10**12])
def test_far_below_the_mean_the_lower_bound_is_a_number(count: int) -> None:
    """Terms that grow by more than floating point holds made it NaN; δ is nearly 1 there."""
    assert 0 <= responses_delta_below(count, 1.0, 0.0) <= 1


def test_the_gaussian_bound_is_monotone_and_symmetric() -> None:
    text = "40*BR(0.05) + 7*DP(0.02) + ZCDP(0.001)"
    turned = "ZCDP(0.001) + 7*DP(0.02) + 40*BR(0.05)"

    def epsilon(charge: str, delta: float = 1e-6) -> float:
        return compose(Charge.parse(charge), delta=delta, bound="zcdp_gaussian").epsilon

    assert epsilon(text) == epsilon(turned)
    assert epsilon(text) <= epsilon(text.replace("40", "41")) <= epsilon(text + " + BR(0.01)", 1e-7)
    assert epsilon(text, 1e-5) <= epsilon(text)
