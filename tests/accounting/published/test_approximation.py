"""f-DP through several constraints: Propositions 1 and 2, their optimality, and brackets around
known compositions.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from dptopk.accounting.published.cadir_najib_shkel.approximation import (
    area_between,
    best_chords,
    best_tangents,
    compose_f_dp,
    from_above,
    from_below,
    proposition_1,
    slopes_of_equal_length,
)
from dptopk.accounting.published.cadir_najib_shkel.tradeoff import GaussianTradeoff
from dptopk.errors import InvalidParameter

T = (1 - np.cos(np.linspace(0, np.pi, 2001))) / 2
G1 = GaussianTradeoff(1.0)


@pytest.mark.parametrize("f", [G1, GaussianTradeoff(0.3), GaussianTradeoff(3.0)])
@pytest.mark.parametrize("pieces", [1, 2, 5, 12])
def test_approximations_lie_below_and_above(f, pieces):
    slopes = slopes_of_equal_length(f, pieces)
    below, above = from_below(f, slopes), from_above(f, slopes)
    assert (below(T) <= f(T) + 1e-12).all()
    assert (above(T) >= f(T) - 1e-12).all()
    np.testing.assert_allclose(above.inverse()(T), above(T), atol=1e-12)


def test_proposition_2_for_g1():
    """t* solves f'(t) = (f(c) - f(0))/c; ε1 = ln((1 - f(t*))/t*), δ1 = 0, ε2 = ln((c - f(t*))/(t* -
    c)).
    """
    c = G1.fixed_point
    epsilon_star = math.log((1 - c) / c)
    t = float(G1.touch(epsilon_star))
    value = float(G1(t))
    assert t + c * (value - 1 - t) < 0  # h(t*) < 0: two pieces
    epsilon_1, epsilon_2 = math.log((1 - value) / t), math.log((c - value) / (t - c))
    expected = [(epsilon_1, 0.0), (epsilon_2, 1 - c * (1 + math.exp(epsilon_2)))]
    found = best_chords(G1, 2).constraints()
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_proposition_1_for_g1():
    """The two tangents touch at (t* + z)/2 and t*/2 of the turned graph; the second has ε > 0."""
    (epsilon_1, _), (epsilon_2, _) = proposition_1(G1).constraints()

    def turned(epsilon):
        t = float(G1.touch(epsilon))
        return (t - float(G1(t))) / math.sqrt(2), (t + float(G1(t))) / math.sqrt(2)

    z = -1 / math.sqrt(2)
    meeting = 2 * turned(epsilon_2)[0]
    assert turned(epsilon_1)[0] == pytest.approx((meeting + z) / 2, abs=1e-9)
    heights = [
        turned(e)[1] - math.tanh(e / 2) * (meeting - turned(e)[0]) for e in (epsilon_1, epsilon_2)
    ]
    assert heights[0] == pytest.approx(heights[1], abs=1e-9)
    assert epsilon_2 > 0.3


def test_proposition_1_is_not_the_optimum_of_its_integral():
    """The area of (8) for G_1: 0.00738 with the printed slopes, 0.00677 with the best ones."""
    printed, best = proposition_1(G1), best_tangents(G1, 2)
    assert area_between(G1, printed) == pytest.approx(0.00738, abs=2e-5)
    assert area_between(G1, best) == pytest.approx(0.00677, abs=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("f", [G1, GaussianTradeoff(0.4)])
@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize(
    ("build", "best"), [(from_below, best_tangents), (from_above, best_chords)]
)
def test_no_other_slopes_leave_less_area(f, pieces, build, best):
    inner = pieces - (build is from_above)  # the chords have the diagonal besides
    if inner == 0:
        return
    best_area = area_between(f, best(f, pieces), 20_001)
    start = np.log(slopes_of_equal_length(f, inner))
    found = minimize(
        lambda logs: area_between(f, build(f, np.exp(logs)), 20_001), start, method="Nelder-Mead"
    )
    assert best_area <= found.fun * (1 + 1e-4)
    assert best_area == pytest.approx(found.fun, rel=2e-3)


def test_area_falls_with_the_square_of_the_pieces():
    for best in (best_tangents, best_chords):
        areas = [area_between(G1, best(G1, n)) for n in (4, 8, 16, 32)]
        ratios = np.array(areas[:-1]) / np.array(areas[1:])
        assert (ratios > 3.5).all()
        assert (ratios < 4.2).all()


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.2, 1.0])
@pytest.mark.parametrize("count", [3, pytest.param(10, marks=pytest.mark.study), 100])
def test_bracket_holds_the_exact_gaussian_composition_and_closes(mu, count):
    """G_μ composed k times is G_{μ√k} (Figure 3 has μ = 1, k = 3 and 10)."""
    total = mu * math.sqrt(count)
    x = np.array([0.2, 1.0, 2.0]) * total
    exact = GaussianTradeoff(total).delta(x)
    widths = []
    for pieces in (2, 8, 32):
        lower, upper = compose_f_dp(
            GaussianTradeoff(mu), count, at_epsilon=x, pieces=pieces, rtol=1e-3
        )  # finer than the pieces
        assert (lower <= exact).all()
        assert (upper >= exact).all()
        widths.append(upper - lower)
    assert (widths[1] < widths[0]).all()
    assert (widths[2] < widths[1] / 3).all()


@pytest.mark.slow
def test_evenly_spaced_slopes_close_in_on_a_small_delta():
    x, exact = np.array([8.0]), GaussianTradeoff(math.sqrt(10)).delta(8.0)
    widths = []
    for n in (16, 64):
        lower, upper = compose_f_dp(G1, 10, at_epsilon=x, slopes=np.linspace(0, 8, n))
        assert lower[0] <= exact <= upper[0]
        widths.append(float((upper - lower)[0] / exact))
    assert widths[1] < 0.02
    assert widths[1] < widths[0] / 8


def test_slopes_at_equal_affine_length():
    """For two pieces the quartiles of ∫ f''^{1/3} dt, with f''(t) = e^ε / φ(Φ^-1(t)) for G_1, by
    quadrature in t.
    """
    t = G1.fixed_point * np.linspace(0, 1, 200_001)[1:] ** 6
    normal = norm.ppf(t)
    cube_root = np.exp((-normal - 0.5) / 3) / norm.pdf(normal) ** (1 / 3)
    length = np.append(0.0, np.cumsum((cube_root[1:] + cube_root[:-1]) / 2 * np.diff(t)))
    wanted = np.interp(length[-1] * np.array([0.25, 0.75]), length, t)
    np.testing.assert_allclose(G1.touch(slopes_of_equal_length(G1, 2)), wanted, rtol=1e-3)


@pytest.mark.parametrize(
    "epsilons",
    [[], [-1.0], [math.nan], [math.inf], 1.0, [[1.0, 0.0]], ["a"], [[1.0], [1.0, 0.0]], [1j]],
)
@pytest.mark.parametrize("approximate", [from_below, from_above])
def test_slopes_outside_their_range_are_refused(approximate, epsilons):
    with pytest.raises(InvalidParameter, match="epsilons"):
        approximate(G1, epsilons)


@pytest.mark.parametrize("points", [-1, 1, 2.5, "x", True])
def test_an_area_is_not_estimated_from_one_point(points) -> None:
    with pytest.raises(InvalidParameter, match="points"):
        area_between(G1, from_below(G1, [1.0, 0.0]), points)
