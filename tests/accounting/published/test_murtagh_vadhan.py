"""Different ε's: enumeration, 50-digit arithmetic, special cases, guarantees, and a peer's
accountant.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models import dominating_pairs
from dptopk.accounting.pld.lattice import LossDistribution
from dptopk.accounting.published.dwork_rothblum_vadhan import advanced_epsilon
from dptopk.accounting.published.murtagh_vadhan import (
    optimal_dp_approx_epsilon,
    optimal_dp_exact_delta,
    optimal_dp_exact_epsilon,
)
from dptopk.accounting.pure_dp.homogeneous import optimal_dp_delta, optimal_dp_epsilon
from dptopk.accounting.pure_dp.two_epsilon import two_epsilon_delta
from dptopk.costs import ApproxDP, BoundedRange, Charge, GaussianDP, PureDP
from dptopk.errors import IncompatibleCosts, InvalidParameter


def brute_force_delta(epsilons: list[float], x: float) -> mpmath.mpf:
    """δ by all 2^k outcomes in 50 digits: Murtagh-Vadhan 2016, equation 1, term by term."""
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for chosen in itertools.product((True, False), repeat=len(epsilons)):
            inside = sum(mpmath.mpf(e) for e, c in zip(epsilons, chosen, strict=True) if c)
            outside = sum(mpmath.mpf(e) for e, c in zip(epsilons, chosen, strict=True) if not c)
            total += max(mpmath.exp(inside) - mpmath.exp(mpmath.mpf(x) + outside), mpmath.mpf(0))
        return total / math.prod(1 + mpmath.exp(mpmath.mpf(e)) for e in epsilons)


def charge_of(epsilons: list[float] | np.ndarray) -> Charge:
    return Charge.join(*(Charge({PureDP(float(epsilon)): 1}) for epsilon in epsilons))


def bracket(epsilons: list[float] | np.ndarray, **question: float) -> tuple[float, float]:
    """Lower and upper bounds on ε at a δ, or on δ at an ε."""
    found = compose(charge_of(epsilons), bound="optimal_dp_approx", **question)
    return found.lower or 0.0, found.epsilon if "delta" in question else found.delta


EPSILONS = st.lists(st.floats(1e-4, 8), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(epsilons=EPSILONS, fraction=st.floats(0, 1))
def test_exact_equals_enumeration(epsilons: list[float], fraction: float) -> None:
    x = fraction * sum(epsilons)
    exact = brute_force_delta(epsilons, x)
    upper = float(optimal_dp_exact_delta(epsilons, at_epsilon=x))
    assert upper >= exact
    lower = compose(charge_of(epsilons), epsilon=x, bound="optimal_dp_exact").lower
    assert lower is not None
    assert lower <= exact
    if fraction < 0.9:
        assert upper <= exact * (1 + mpmath.mpf(1e-9)) + mpmath.mpf(1e-300)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(epsilons=EPSILONS, log_delta=st.floats(-300, -0.01), order=st.randoms(use_true_random=False))
def test_inverse_permutation_and_growth(
    epsilons: list[float], log_delta: float, order: object
) -> None:
    delta = math.exp(log_delta)
    found = float(optimal_dp_exact_epsilon(epsilons, delta=delta))
    shuffled = list(epsilons)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert float(optimal_dp_exact_epsilon(shuffled, delta=delta)) == pytest.approx(
        found, rel=1e-9, abs=1e-12
    )
    assert brute_force_delta(epsilons, found) <= delta * (1 + mpmath.mpf(1e-30))
    assert float(optimal_dp_exact_epsilon([*epsilons, 0.3], delta=delta)) >= found * (1 - 1e-9)
    assert float(optimal_dp_exact_epsilon([e * 1.1 for e in epsilons], delta=delta)) >= found * (
        1 - 1e-9
    )


@pytest.mark.parametrize("delta", [0.1, 1e-6, 1e-30])
def test_special_cases_collapse(delta: float) -> None:
    """One ε: homogeneous. Two: the closed form. With failure mass in each cost as well."""
    one = compose(Charge({PureDP(0.2): 40}), delta=delta, bound="optimal_dp").epsilon
    assert compose(
        Charge({PureDP(0.2): 40}), delta=delta, bound="optimal_dp_exact"
    ).epsilon == pytest.approx(one)
    two = Charge({PureDP(0.2): 40, PureDP(0.5): 11})
    exact = compose(two, delta=delta, bound="optimal_dp_exact").epsilon
    assert compose(two, delta=delta, bound="two_epsilon").epsilon == pytest.approx(exact, rel=1e-10)
    failing = Charge({ApproxDP(0.2, 1e-33): 40, ApproxDP(0.5, 1e-34): 11})
    answers = [
        compose(failing, delta=delta, bound=name).epsilon
        for name in ("two_epsilon", "optimal_dp_exact")
    ]
    assert answers[0] == pytest.approx(answers[1], rel=1e-10)
    assert exact * (1 - 1e-12) <= answers[0] <= exact * (1 + 1e-2)


def algorithm_1(epsilon_1: float, x: int, epsilon_2: float, y: int) -> dict[float, float]:
    """The corners (ε, δ) of Algorithm 1 of Cadir-Najib-Shkel 2026, as printed."""
    corners = {}
    for a_star, b_star in itertools.product(range(x + 1), range(y + 1)):
        epsilon = epsilon_1 * (x - 2 * a_star) + epsilon_2 * (y - 2 * b_star)
        if epsilon < 0:
            continue
        total = 0.0
        for b in range(y + 1):
            first = max(
                0, math.ceil((y - b_star - b) * epsilon_2 / epsilon_1 + (x - a_star) - 1e-9)
            )
            for a in range(first, x + 1):
                other = epsilon_1 * (2 * (x - a_star) - a) + epsilon_2 * (2 * (y - b_star) - b)
                gain = math.exp(a * epsilon_1 + b * epsilon_2) - math.exp(other)
                total += math.comb(x, a) * math.comb(y, b) * gain
        corners[epsilon] = total / (math.exp(epsilon_1) + 1) ** x / (math.exp(epsilon_2) + 1) ** y
    return corners


@pytest.mark.parametrize(
    ("epsilon_1", "x", "epsilon_2", "y"), [(0.7, 3, 0.4, 4), (1.0, 2, 0.5, 5), (2.0, 1, 0.01, 6)]
)
def test_corners_of_algorithm_1(epsilon_1: float, x: int, epsilon_2: float, y: int) -> None:
    for epsilon, delta in algorithm_1(epsilon_1, x, epsilon_2, y).items():
        found = float(two_epsilon_delta(epsilon_1, x, epsilon_2, y, at_epsilon=epsilon))
        assert found == pytest.approx(delta, rel=1e-9, abs=1e-14)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    epsilon_1=st.floats(1e-4, 5), epsilon_2=st.floats(1e-4, 5), x=st.integers(1, 4), y=st.integers(1, 4),
    fraction=st.floats(0, 0.9),
)  # fmt: skip
def test_two_epsilons_equal_enumeration(
    epsilon_1: float, epsilon_2: float, x: int, y: int, fraction: float
) -> None:
    at = fraction * (epsilon_1 * x + epsilon_2 * y)
    exact = brute_force_delta([epsilon_1] * x + [epsilon_2] * y, at)
    found = float(two_epsilon_delta(epsilon_1, x, epsilon_2, y, at_epsilon=at))
    assert exact <= found <= exact * (1 + mpmath.mpf(1e-9)) + mpmath.mpf(1e-300)


@pytest.mark.slow
def test_two_epsilons_with_large_counts() -> None:
    """Equal ε's written as two kinds that differ by rounding: the homogeneous answer, at counts
    beyond listing.
    """
    delta = 1e-6
    found = compose(
        Charge({PureDP(0.001): 300_000, PureDP(0.001 * (1 + 1e-12)): 200_000}), delta=delta
    )
    assert found.name == "two_epsilon"
    assert found.lower is not None
    assert found.epsilon == pytest.approx(
        float(optimal_dp_epsilon(0.001, 500_000, delta=delta)), rel=1e-9
    )
    assert found.lower == pytest.approx(found.epsilon, rel=1e-7)


@pytest.mark.parametrize("delta", [0.2, 1e-6, 1e-15])
@pytest.mark.parametrize("eta", [0.5, 0.05])
def test_guarantee_of_the_approximation(delta: float, eta: float) -> None:
    """OptComp(δ) <= ε* <= OptComp(e^{-η/2} δ) + η."""
    epsilons = [0.11, 0.23, 0.05, 0.4, 0.17, 0.31, 0.29, 0.08]
    found = optimal_dp_approx_epsilon(epsilons, delta=delta, eta=eta)
    assert found >= float(optimal_dp_exact_epsilon(epsilons, delta=delta)) * (1 - 1e-9)
    assert found <= (
        float(optimal_dp_exact_epsilon(epsilons, delta=math.exp(-eta / 2) * delta)) + eta
    ) * (1 + 1e-9)


def test_rounding_down_as_published_is_no_upper_bound() -> None:
    """Theorem 1.7's proof takes a_i = floor(k ε_i / η): the composition of those lies below the
    true optimum.
    """
    epsilons, delta, eta = [0.11, 0.23, 0.05, 0.4, 0.17, 0.31, 0.29, 0.08], 1e-6, 0.5
    step = eta / len(epsilons)
    down = [math.floor(epsilon / step) * step for epsilon in epsilons]
    published = float(
        optimal_dp_exact_epsilon([epsilon for epsilon in down if epsilon > 0], delta=delta)
    )
    exact = float(optimal_dp_exact_epsilon(epsilons, delta=delta))
    assert brute_force_delta(epsilons, published) > 2 * delta
    assert published < exact - 0.1
    assert optimal_dp_approx_epsilon(epsilons, delta=delta, eta=eta) >= exact


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(epsilons=EPSILONS, log_delta=st.floats(-60, -0.01))
def test_brackets_hold_the_optimum(epsilons: list[float], log_delta: float) -> None:
    delta = math.exp(log_delta)
    exact = float(optimal_dp_exact_epsilon(epsilons, delta=delta))
    lower, upper = bracket(epsilons, delta=delta)
    assert lower <= exact * (1 + 1e-9)
    assert upper >= exact * (1 - 1e-9)
    at = 0.5 * sum(epsilons)
    lower, upper = bracket(epsilons, epsilon=at)
    assert lower <= float(optimal_dp_exact_delta(epsilons, at_epsilon=at))
    assert upper >= brute_force_delta(epsilons, at)


@pytest.mark.slow
def test_a_thousand_different_epsilons_are_certified_on_small_grids(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epsilons = np.random.default_rng(5).uniform(0.05, 0.15, 1000)
    places: list[int] = []
    original = dominating_pairs.grid_product

    def spy(*arguments: Any) -> LossDistribution:
        found = original(*arguments)
        places.append(found.masses.size)
        return found

    monkeypatch.setattr(dominating_pairs, "grid_product", spy)
    lower, upper = bracket(epsilons, delta=1e-6)
    assert upper - lower <= 1e-3 * upper
    assert 0 < sum(places) < 20_000
    # Between the homogeneous optima of the root mean square's neighbourhood.
    assert float(optimal_dp_epsilon(0.09, 1000, delta=1e-6)) < lower
    assert upper < float(optimal_dp_epsilon(0.12, 1000, delta=1e-6))


def test_agrees_with_another_accountant() -> None:
    """dp-accounting's privacy loss distributions for pure DP, connect-the-dots, within their
    discretisation.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    epsilons, interval = [0.11, 0.13, 0.22, 0.07, 0.31] * 4, 1e-3
    total = None
    for epsilon in epsilons:
        one = pld.from_privacy_parameters(
            pld.common.DifferentialPrivacyParameters(epsilon, 0.0),
            value_discretization_interval=interval,
        )
        total = one if total is None else total.compose(one)
    assert total is not None
    counts = dict.fromkeys(epsilons[:5], 4)
    for delta in (1e-2, 1e-6, 1e-9):
        ours = float(optimal_dp_exact_epsilon(counts, delta=delta))
        assert ours <= total.get_epsilon_for_delta(delta) * (1 + 1e-9)
        assert total.get_epsilon_for_delta(delta) <= ours + len(epsilons) * interval
    for epsilon in (0.5, 1.5, 2.5):
        theirs = total.get_delta_for_epsilon(epsilon)
        assert theirs == pytest.approx(
            float(optimal_dp_exact_delta(counts, at_epsilon=epsilon)), rel=0.05
        )


@pytest.mark.parametrize("delta", [0.01, 1e-6, 1e-12])
@pytest.mark.parametrize(("epsilon", "count"), [(0.01, 400), (0.1, 25), (1.0, 60), (0.1, 3)])
def test_order_of_the_bounds(epsilon: float, count: int, delta: float) -> None:
    """optimal <= improved advanced <= classical advanced, and the registered one never exceeds the
    sum.
    """
    optimal = float(optimal_dp_epsilon(epsilon, count, delta=delta))
    improved = epsilon * math.sqrt(-2 * count * math.log(delta)) + count * epsilon * math.tanh(
        epsilon / 2
    )
    classical = float(advanced_epsilon(epsilon, count, delta=delta))
    assert optimal <= improved <= classical
    registered = compose(Charge({PureDP(epsilon): count}), delta=delta, bound="advanced").epsilon
    assert registered == pytest.approx(min(improved, count * epsilon), rel=1e-12)


def test_advanced_composition_formula() -> None:
    """ε sqrt(2k ln(1/δ)) + k ε (e^ε - 1) at k = 100, ε = 0.1, δ = 1e-5, computed by hand in 50
    digits.
    """
    with mpmath.workdps(50):
        e = mpmath.mpf(0.1)
        by_hand = e * mpmath.sqrt(200 * -mpmath.log(mpmath.mpf(1e-5))) + 100 * e * mpmath.expm1(e)
    assert float(advanced_epsilon(0.1, 100, delta=1e-5)) == pytest.approx(float(by_hand), rel=1e-12)
    assert float(advanced_epsilon(0.1, 100, delta=1e-5)) >= by_hand


def test_lower_bounds_are_for_pure_dp_alone() -> None:
    charge = Charge({PureDP(0.2): 3, BoundedRange(0.1): 4})
    for name in ("two_epsilon", "optimal_dp_exact", "optimal_dp_approx"):
        assert compose(charge, delta=1e-3, bound=name).lower is None
        assert compose(charge, delta=1e-3, bound=name).epsilon <= 1.0 + 1e-12


def test_refusals() -> None:
    many = charge_of(np.linspace(0.1, 0.2, 40))
    with pytest.raises(IncompatibleCosts, match="outcomes to list"):
        compose(many, delta=1e-6, bound="optimal_dp_exact")
    with pytest.raises(IncompatibleCosts, match="exactly two"):
        compose(many, delta=1e-6, bound="two_epsilon")
    for call in (
        lambda: optimal_dp_exact_delta([], at_epsilon=1.0),
        lambda: optimal_dp_exact_delta([0.1, -0.1], at_epsilon=1.0),
        lambda: optimal_dp_exact_delta([0.1, math.nan], at_epsilon=1.0),
        lambda: optimal_dp_exact_delta({0.1: 0}, at_epsilon=1.0),
        lambda: optimal_dp_exact_delta(list(np.linspace(0.1, 0.2, 40)), at_epsilon=1.0),
        lambda: optimal_dp_approx_epsilon([0.1], delta=0.0),
        lambda: optimal_dp_approx_epsilon([0.1], delta=1e-6, eta=0.0),
        lambda: optimal_dp_approx_epsilon([0.1] * 25, delta=1e-6, eta=1e-6),
        lambda: optimal_dp_approx_epsilon([0.1] * 25, delta=1e-6, eta=1e-300),
        lambda: two_epsilon_delta(0.1, 1, 0.0, 1, at_epsilon=1.0),
        lambda: advanced_epsilon(0.1, 1, delta=math.nan),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_matches_homogeneous_delta_at_zero_and_beyond() -> None:
    assert float(optimal_dp_exact_delta({0.3: 5}, at_epsilon=0.0)) == pytest.approx(
        float(optimal_dp_delta(0.3, 5, at_epsilon=0.0)), rel=1e-12
    )
    assert float(optimal_dp_exact_delta({0.3: 5, 0.4: 2}, at_epsilon=2.5)) == 0.0
    assert float(optimal_dp_exact_epsilon({0.3: 5, 0.4: 2}, delta=1.0)) == 0.0


@pytest.mark.slow
def test_huge_counts_and_epsilons_are_bounded_by_something() -> None:
    """A billion copies are bracketed on the grid; an absurd ε costs its sum."""
    found = compose(Charge({PureDP(0.001): 10**9}), delta=1e-6, bound="optimal_dp_approx")
    assert found.lower is not None
    assert found.epsilon - found.lower <= 1e-3 * found.epsilon
    # The loss has mean k ε²/2 and variance k ε²: the Gaussian limit, which k = 10^9 has reached.
    gaussian = compose(Charge({GaussianDP(0.001 * math.sqrt(1e9)): 1}), delta=1e-6).epsilon
    assert found.epsilon == pytest.approx(gaussian, rel=1e-2)
    with pytest.raises(IncompatibleCosts, match="copies"):
        compose(Charge({PureDP(0.001): 10**9}), delta=1e-6, bound="optimal_dp")
    with pytest.raises(IncompatibleCosts, match="nothing to gain"):
        compose(Charge({PureDP(1e300): 2, PureDP(1.0): 1}), delta=1e-6, bound="optimal_dp_approx")


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.3, 40.0])
def test_brackets_at_any_epsilon(epsilon: float) -> None:
    """Also where ε is far below the grid's step."""
    epsilons = list(np.random.default_rng(4).uniform(1e-6, 5, 14))
    lower, upper = bracket(epsilons, epsilon=epsilon)
    assert (
        lower <= float(optimal_dp_exact_delta(epsilons, at_epsilon=epsilon)) <= upper * (1 + 1e-12)
    )
    assert upper - lower <= 2e-3 * upper + 1e-12


def test_advanced_composition_is_not_0_where_it_underflows():
    """5e-324 sqrt(4 ln(1/δ)) is below half of the smallest float, and not 0."""
    assert float(advanced_epsilon(5e-324, 2, delta=0.999)) > 0
