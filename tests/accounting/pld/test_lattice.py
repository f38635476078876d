"""Grid products bracket the exact values: enumeration, closed forms, and each step of the
construction.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import log_ndtr

from dptopk.accounting.cost_models.dominating_pairs import Bracket, certified_bracket
from dptopk.accounting.curves import Query
from dptopk.accounting.pld import loss_components
from dptopk.accounting.pld.characteristic_function import CharacteristicFunction
from dptopk.accounting.pld.constraints import PERTURBATION, worst_case
from dptopk.accounting.pld.lattice import product, splitting_gap
from dptopk.accounting.pld.laws import IntegerLaw, convolution_power
from dptopk.accounting.pld.pairs import merged_responses, pair_of, randomised_response
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_delta, optimal_dp_epsilon
from dptopk.costs import Charge, DiscreteGaussianDP, GaussianDP, MultiDP, PureDP


def brute_force_delta(epsilons: list[float], x: float) -> float:
    """δ at ε_g = x of independent randomised responses, by all 2^k outcomes (Murtagh-Vadhan 2016,
    equation 1).
    """
    signs = np.array(list(itertools.product((1, -1), repeat=len(epsilons))))
    losses = signs @ np.array(epsilons)
    masses = np.prod(1 / (1 + np.exp(-signs * np.array(epsilons))), axis=1)
    return float(masses @ np.maximum(-np.expm1(x - losses), 0))


def bracket(charge: Charge | str, **question: float) -> Bracket:
    charge = Charge.parse(charge) if isinstance(charge, str) else charge
    found = certified_bracket(charge, Query(**question))
    assert found.lower <= found.upper
    return found


@pytest.mark.parametrize("twist", [0.0, 18.0, -18.0])
@pytest.mark.parametrize("side", [1, -1])
def test_an_atom_cut_off_weighs_what_the_error_says_where_it_moves(side: int, twist: float) -> None:
    """The atom lies where moving multiplies its mass most, the others on the grid (from above), or
    just below a point of it (from below).
    """
    step, tilt = 0.4, 8.0
    off = 0.5 if side > 0 else 0.0
    others = np.array([-1.0, 2.0]) + (0.0 if side > 0 else 1 - 1e-6)
    losses = step * np.append(others, off)
    masses = np.array([0.5, 0.4, 0.1])
    tilted = masses * np.exp(tilt * losses)
    cut_off = float(tilted[-1] / tilted.sum())
    whole = pair_of(losses, np.log(masses))
    cut = replace(pair_of(losses[:-1], np.log(masses[:-1])), error=cut_off)
    turned = twist if side > 0 else 0.0
    true = product([whole], step=step, tilt=tilt, side=side, twist=turned)
    found = product([cut], step=step, tilt=tilt, side=side, twist=turned)
    points = np.arange(-4, 8)
    differences = 0.0
    for point in points:
        unit = math.exp(true.log_scale - found.log_scale)
        a = [law.masses[law.first + np.arange(law.masses.size) == point] for law in (true, found)]
        differences += abs(float(a[0].sum()) * unit - float(a[1].sum()))
    assert differences <= found.error


@pytest.mark.parametrize("side", [1, -1])
def test_where_what_an_atom_cut_off_may_weigh_is_no_float_nothing_is_known(side: int) -> None:
    pair = pair_of(np.array([-1.0, 1.0]), np.log([0.3, 0.7]))
    assert product([pair], step=900.0, tilt=1.0, side=side).delta(0.0) <= 1
    unknown = product([replace(pair, error=1e-320)], step=900.0, tilt=1.0, side=side)
    for x in (0.0, 1.0, 1e4, 1e300):
        assert unknown.delta(x, side=1) == 1
        assert unknown.delta(x, side=-1) == 0
    assert unknown.epsilon(1e-6) == (math.inf if side > 0 else 0.0)
    gap = splitting_gap([replace(pair, error=1e-320)], step=20.0, tilt=50.0)
    assert gap(0.5) == math.inf


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("tilt", [0.0, 0.5, 7.0])
def test_one_pair_on_the_grid(side: int, tilt: float) -> None:
    """Splitting keeps both masses and raises δ everywhere; rounding down lowers it."""
    losses, masses = np.array([-1.03, -0.2, 0.0, 0.71, 1.4]), np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    on_grid = product([pair_of(losses, np.log(masses))], step=0.07, tilt=tilt, side=side)
    p = np.exp(on_grid.log_masses)
    assert p.sum() == pytest.approx(1, abs=1e-8)
    if side > 0:
        assert p @ np.exp(-on_grid.losses) == pytest.approx(masses @ np.exp(-losses), rel=1e-8)
    for x in np.linspace(0, 1.5, 40):
        exact = float(masses @ np.maximum(1 - np.exp(x - losses), 0))
        assert side * (on_grid.delta(x) - exact) >= 0
        assert abs(on_grid.delta(x) - exact) < (0.01 if side > 0 else 0.08)


def test_rows_are_multiplied_within_the_stated_error_a_place_named_twice_included() -> None:
    indices = np.array([[0, 3, 3], [1, 1, 2], [-2, 0, 5]])
    masses = np.random.default_rng(3).dirichlet(np.ones(3), 3)
    spectrum = CharacteristicFunction(40)
    spectrum.multiply(indices, masses, 2)
    found, error = spectrum.masses(-10)
    exact = {0: Fraction(1)}
    for row, weights in [*zip(indices.tolist(), masses.tolist(), strict=True)] * 2:
        sums: dict[int, Fraction] = {}
        for place, mass in exact.items():
            for move, weight in zip(row, weights, strict=True):
                sums[place + move] = sums.get(place + move, Fraction(0)) + mass * Fraction(weight)
        exact = sums
    off = sum(
        abs(Fraction(float(mass)) - exact.get(place - 10, 0)) for place, mass in enumerate(found)
    )
    assert off <= error < 1e-12


@settings(max_examples=40, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.01, 3), min_size=1, max_size=8),
    fraction=st.floats(0, 0.95),
    step=st.floats(0.003, 0.4),
    tilt=st.floats(0, 20),
)
def test_products_bracket_enumeration(
    epsilons: list[float], fraction: float, step: float, tilt: float
) -> None:
    x = fraction * sum(epsilons)
    exact = brute_force_delta(epsilons, x)
    pairs = [randomised_response(np.array(epsilons))]
    assert product(pairs, step=step, tilt=tilt, side=1).delta(x) >= exact * (1 - 1e-9)
    assert product(pairs, step=step, tilt=tilt, side=-1).delta(x) <= exact * (1 + 1e-9)


@pytest.mark.parametrize(
    ("count", "step"), [(1, 0.1), (3, 0.001), (400, 0.1), (20_000, 0.1), (20_000, 0.002)]
)
def test_masses_are_within_the_stated_error(count: int, step: float) -> None:
    """Tilted masses of losses ±0.1 on the grid, against direct sums of positive terms, in total
    variation.
    """
    tilt = 1.5
    up = math.exp(0.1 * (2 * tilt + 1)) / (1 + math.exp(0.1 * (2 * tilt + 1)))
    found = product([randomised_response(np.array([0.1]), count)], step=step, tilt=tilt, side=-1)
    exact = convolution_power(IntegerLaw(np.array([1 - up, up])), count)
    places = np.rint((0.1 / step) * (2 * exact.places() - count)).astype(int) - found.first
    inside = (places >= 0) & (places < found.masses.size)
    masses = np.zeros(found.masses.size)
    masses[places[inside]] = exact.masses[inside]
    distance = float(np.abs(found.masses - masses).sum()) + float(exact.masses[~inside].sum())
    assert distance <= found.error + exact.error
    assert found.error < 1e-12 + 2e-13 * count  # ten times that at 20,000 if every place counted


@settings(max_examples=40, deadline=None)
@given(epsilons=st.lists(st.floats(0.01, 3), min_size=2, max_size=8), fraction=st.floats(0, 0.95))
def test_merging_is_post_processing(epsilons: list[float], fraction: float) -> None:
    x = fraction * sum(epsilons)
    pair = merged_responses(np.array(epsilons))
    merged = float(np.exp(pair.log_masses[0]) @ np.maximum(1 - np.exp(x - pair.losses[0]), 0))
    assert merged <= brute_force_delta(epsilons, x) * (1 + 1e-9) + 1e-15
    same = merged_responses(np.full(len(epsilons), epsilons[0]))  # equal ε's: nothing is lost
    merged = float(np.exp(same.log_masses[0]) @ np.maximum(1 - np.exp(x - same.losses[0]), 0))
    assert merged == pytest.approx(
        brute_force_delta([epsilons[0]] * len(epsilons), x), rel=1e-6, abs=1e-13
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.01, 3), min_size=1, max_size=8),
    fraction=st.floats(0, 0.95),
    step=st.floats(0.003, 0.3),
    tilt=st.floats(0, 20),
)
def test_the_gap_bounds_what_splitting_adds(
    epsilons: list[float], fraction: float, step: float, tilt: float
) -> None:
    x = fraction * sum(epsilons)
    pairs = [randomised_response(np.array(epsilons))]
    added = product(pairs, step=step, tilt=tilt, side=1).delta(x, side=-1) - brute_force_delta(
        epsilons, x
    )
    assert splitting_gap(pairs, step=step, tilt=tilt)(x) >= added * (1 - 1e-9) - 1e-14


@pytest.mark.slow
def test_the_gap_is_of_second_order_and_not_far_off() -> None:
    epsilons = np.random.default_rng(2).uniform(0.05, 0.15, 300)
    pairs, x, tilt = [randomised_response(epsilons)], 6.0, 2.5
    exact = product(pairs, step=0.0005, tilt=tilt, side=1).delta(x)
    ratios = []
    for step in (0.02, 0.01):
        added = product(pairs, step=step, tilt=tilt, side=1).delta(x) - exact
        ratios.append(splitting_gap(pairs, step=step, tilt=tilt)(x) / added)
    assert all(1 < ratio < 8 for ratio in ratios)


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 10**9])
@pytest.mark.parametrize(
    "charge", ["5*DP(0.3) + 3*DP(0.41) + 4*DP(0.2)", "2*GDP(0.4) + 3*DP(0.3) + DP(1.1)"]
)
def test_both_lower_bounds_agree(many: int, charge: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The brackets by splitting alone and with rounding down overlap: both hold the optimum."""
    from dptopk.accounting.cost_models import dominating_pairs

    reference = bracket(charge, delta=1e-5, rtol=1e-4)
    monkeypatch.setattr(dominating_pairs, "MANY_PAIRS", many)
    found = bracket(charge, delta=1e-5, rtol=1e-3)
    assert found.lower <= reference.upper
    assert reference.lower <= found.upper
    assert found.upper - found.lower <= 3e-3 * found.upper


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-6, 1e-20, 1e-80])
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 25), (0.1, 3), (1.5, 40), (0.01, 4000)])
def test_equal_epsilons(epsilon: float, count: int, delta: float) -> None:
    exact = float(optimal_dp_epsilon(epsilon, count, delta=delta))
    found = bracket(Charge({PureDP(epsilon): count}), delta=delta)
    assert found.lower <= exact * (1 + 1e-12)
    assert found.upper >= exact * (1 - 1e-12)
    assert found.upper - found.lower <= 1e-3 * found.upper
    x = 0.6 * exact + 1e-3
    at = float(optimal_dp_delta(epsilon, count, at_epsilon=x))
    found = bracket(Charge({PureDP(epsilon): count}), epsilon=x)
    assert found.lower <= at * (1 + 1e-12)
    assert found.upper >= at * (1 - 1e-12)


def gaussian_delta(mu: float, x: float) -> float:
    """Balle-Wang 2018: Φ(μ/2 - x/μ) - e^x Φ(-μ/2 - x/μ)."""
    return math.exp(log_ndtr(mu / 2 - x / mu)) - math.exp(x + log_ndtr(-mu / 2 - x / mu))


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.01, 0.5, 1.0, pytest.param(6.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("deviations", [-0.3, 1.0, 4.0])
def test_gaussian(mu: float, deviations: float) -> None:
    x = max(mu**2 / 2 + deviations * mu, 0.0)
    exact = gaussian_delta(mu, x)
    found = bracket(Charge({GaussianDP(mu / 2): 4}), epsilon=x)
    assert found.lower <= exact * (1 + 1e-9)
    assert found.upper >= exact * (1 - 1e-9)
    assert found.upper - found.lower <= 2e-3 * found.upper


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_discrete_gaussian(count: int) -> None:
    """Against the direct convolution of the pmf."""
    scale, shift = 1.7, 2
    y = np.arange(-80, 81)
    pmf = np.exp(-(y**2) / (2 * scale**2))
    pmf /= pmf.sum()
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, pmf)
    losses = (count * shift**2 - 2 * shift * np.arange(-80 * count, 80 * count + 1)) / (
        2 * scale**2
    )
    for x in (0.0, 0.4, 3.0, 9.0):
        exact = float(total @ np.maximum(1 - np.exp(x - losses), 0))
        found = bracket(Charge({DiscreteGaussianDP(scale, shift): count}), epsilon=x)
        assert found.lower <= exact * (1 + 1e-9)
        assert found.upper >= exact * (1 - 1e-9)
        assert found.upper - found.lower <= 3e-3 * found.upper


@pytest.mark.slow
def test_mixed_costs_against_enumeration() -> None:
    """Pure DP, several constraints and a discrete Gaussian together, by all outcomes."""
    constraints = ((0.3, 0.0), (0.15, 0.02))
    charge = Charge(
        {PureDP(0.2): 2, PureDP(0.5): 1, MultiDP(constraints): 1, DiscreteGaussianDP(2.0, 1): 1}
    )
    losses, probabilities = worst_case(MultiDP(constraints), PERTURBATION).atoms()
    y = np.arange(-40, 41)
    pmf = np.exp(-(y**2) / 8)
    parts = [
        (np.array([1, -1]) * e, np.array([1, math.exp(-e)]) / (1 + math.exp(-e)))
        for e in (0.2, 0.2, 0.5)
    ]
    parts += [(losses, probabilities), ((1 - 2 * y) / 8, pmf / pmf.sum())]
    total = np.array([sum(c) for c in itertools.product(*(part[0] for part in parts))])
    masses = np.array([math.prod(c) for c in itertools.product(*(part[1] for part in parts))])
    for x in (0.0, 0.5, 1.2):
        exact = float(masses @ np.maximum(1 - np.exp(x - total), 0))
        found = bracket(charge, epsilon=x)
        assert found.lower <= exact * (1 + 1e-9)
        assert found.upper >= exact * (1 - 1e-9)
        assert found.upper - found.lower <= 3e-3 * found.upper


def test_the_bracket_notices_a_wrong_side() -> None:
    """Rounding up instead of down is caught: its δ exceeds the exact one by far more than the
    tolerances above.
    """
    pairs = [randomised_response(np.full(20, 0.11))]
    above = product(pairs, step=0.05, tilt=2.0, side=1).delta(1.2)
    below = product(pairs, step=0.05, tilt=2.0, side=-1).delta(1.2)
    exact = float(optimal_dp_delta(0.11, 20, at_epsilon=1.2))
    assert below < exact * 0.9
    assert above > exact * 1.01


@pytest.mark.parametrize("side", [1, -1])
def test_an_error_moves_an_end_outward(side: int) -> None:
    """With an error of a tenth of δ: ε of an upper end rises, ε of a lower end falls."""
    exact = product([randomised_response(np.full(20, 0.11))], step=0.05, tilt=2.0, side=side)
    delta = exact.delta(1.2)
    wrong = replace(exact, error=0.05 * delta * math.exp(-exact.log_unit(1.2)))
    assert side * (wrong.epsilon(delta) - exact.epsilon(delta)) > 1e-3
    assert side * (wrong.delta(1.2) - delta) > 0.04 * delta


@pytest.mark.parametrize("failing", [0.0, 0.3])
def test_rounding_constraints_outward_raises_delta_by_no_more_than_stated(
    failing: float, monkeypatch
) -> None:
    """With a nudge large enough to be seen: δ of three copies rises, within the factor the lower
    bound takes off.
    """
    monkeypatch.setattr(loss_components, "PERTURBATION", 1e-3)
    cost = MultiDP(((0.9, failing), (0.5, failing + 0.02), (0.1, failing + 0.15)))
    source, deltas = loss_components.SeveralConstraints(cost, 3), []
    for pair in (source._pair(0), source._pair(1)):
        losses = np.add.outer(np.add.outer(pair.losses[0], pair.losses[0]), pair.losses[0]).ravel()
        p = np.exp(pair.log_masses[0])
        masses = np.multiply.outer(np.multiply.outer(p, p), p).ravel()
        deltas.append(
            np.array([masses @ np.maximum(-np.expm1(x - losses), 0) for x in (0.0, 0.6, 1.5, 2.5)])
        )
    assert (deltas[1] <= deltas[0] * (1 + source.relative_increase())).all()
    assert deltas[1][0] > deltas[0][0] * (1 + 1e-4)
