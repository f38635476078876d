"""The optimal set-wise bound: brackets that hold against brute force, closed forms and published
numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.curves import Query
from dptopk.accounting.pld import lattice
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.optimum import SetwiseCurve
from dptopk.accounting.setwise.partition import CostGroup, _packed_groups
from dptopk.costs import BoundedRange, Charge, GaussianDP, PureDP
from dptopk.errors import IncompatibleCosts

SETWISE = {"bound": "optimal_setwise"}


def one_selection(epsilon: float, x: float) -> float:
    """δ of one ε-BR mechanism: the largest chord of [1 - u]_+ of ratio e^ε over u = e^x."""
    return (math.exp(epsilon / 2) - math.exp(x / 2)) ** 2 / math.expm1(epsilon)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_one_selection_has_a_closed_form(epsilon: float, share: float) -> None:
    exact = one_selection(epsilon, share * epsilon)
    found = compose(
        Charge({BoundedRange(epsilon): 1}), epsilon=share * epsilon, rtol=1e-4, **SETWISE
    )
    assert found.lower <= exact * (1 + 1e-12)
    assert exact <= found.delta
    assert found.delta - found.lower <= 1e-4 * found.delta


@pytest.mark.parametrize(
    ("charge", "epsilon", "published"),
    [
        # CR Lemma 5.3 at ε = 1, ε_g = 0.3: (DP, BR, BR) is the best of the three fixed orders.
        ("DP(1) + 2*BR(1)", 0.3, 0.413601),
        # Two different ranges at ε_g = 0: the smaller one first.
        ("BR(0.5) + BR(1)", 0.0, 0.2598),
    ],
)
def test_known_values(charge: str, epsilon: float, published: float) -> None:
    found = compose(Charge.parse(charge), epsilon=epsilon, rtol=2e-5, **SETWISE)
    assert found.lower <= published + 6e-5
    assert found.delta >= published - 6e-5
    assert found.delta - found.lower <= 2e-5 * found.delta


@pytest.mark.slow
def test_a_hundred_selections_at_the_reference_point() -> None:
    found = compose(Charge({BoundedRange(0.1): 100}), epsilon=2.0, rtol=0.008, **SETWISE)
    assert 9.40e-6 < found.lower <= found.delta < 9.48e-6
    inverse = compose(Charge({BoundedRange(0.1): 100}), delta=1e-6, **SETWISE)
    assert 2.246 < inverse.lower <= inverse.epsilon < 2.256  # the non-adaptive optimum is 2.246
    assert inverse.epsilon - inverse.lower <= 1e-3 * inverse.epsilon


@pytest.mark.slow
def test_one_direction_is_the_inverse_of_the_other() -> None:
    charge = Charge({BoundedRange(0.3): 12, PureDP(0.2): 3})
    for delta in (1e-2, 1e-5):
        epsilon = compose(charge, delta=delta, **SETWISE).epsilon
        back = compose(charge, epsilon=epsilon, **SETWISE)
        assert back.lower <= delta <= compose(charge, epsilon=epsilon * 0.998, **SETWISE).delta


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(k=st.integers(1, 40), epsilon=st.floats(0.05, 1.0), log_delta=st.floats(-14, -2))
def test_more_selections_never_cost_less(k: int, epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    fewer = compose(Charge({BoundedRange(epsilon): k}), delta=delta, **SETWISE)
    more = compose(Charge({BoundedRange(epsilon): k + 1}), delta=delta, **SETWISE)
    assert (fewer.lower or 0.0) <= more.epsilon
    assert fewer.epsilon <= k * epsilon * (1 + 1e-12)
    assert np.isfinite(more.epsilon)


def test_cut_by_the_guard_the_answer_is_still_an_upper_bound() -> None:
    charge = Charge({BoundedRange(0.1): 1000})
    hurried = compose(charge, delta=1e-6, max_seconds=1e-9, **SETWISE)
    assert "not reproducible" in hurried.note
    assert hurried.epsilon >= compose(charge, delta=1e-6, rtol=0.01, **SETWISE).lower


@pytest.mark.parametrize(
    "rest", ["5*DP(0.1)", "GDP(0.3)", "3*DP(0.1) + 2*DP(0.25)", "4*MultiDP(0.5:0, 0.2:1e-3)"]
)
def test_without_bounded_range_it_is_the_product_of_the_pairs(rest: str) -> None:
    charge = Charge.parse(rest)
    found, other = compose(charge, delta=1e-4, **SETWISE), compose(charge, delta=1e-4)
    assert other.name != "optimal_setwise"
    assert found.lower <= other.epsilon
    assert (other.lower or 0.0) <= found.epsilon
    assert found.epsilon == pytest.approx(other.epsilon, rel=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "rest",
    [
        "2*DP(0.2)",
        "GDP(0.5)",
        "3*DGauss(5.0, 1)",
        "2*MultiDP(0.5:0, 0.2:1e-3)",
        "DP(0.1) + GDP(0.3) + DP(0.2, 1e-9)",
    ],
)
def test_dominated_costs_beside_bounded_range(rest: str) -> None:
    ranges = Charge({BoundedRange(0.2): 8})
    both = Charge.join(ranges, Charge.parse(rest))
    found = compose(both, delta=1e-6, **SETWISE)
    assert found.epsilon - found.lower <= 1e-3 * found.epsilon
    for part in (ranges, Charge.parse(rest)):  # adding costs never lowers ε
        assert found.epsilon >= (compose(part, delta=1e-6, **SETWISE).lower or 0.0)
    # A pair of ε-DP is dominated by ε-BR's own pairs at 2ε, and an ε-BR cost by ε-DP.
    worse = Charge.join(Charge({PureDP(0.2): 8}), Charge.parse(rest))
    assert found.lower <= compose(worse, delta=1e-6, **SETWISE).epsilon
    assert found.epsilon <= compose(both, delta=1e-6, bound="renyi").epsilon


@pytest.mark.slow
def test_concentrated_costs_have_a_place() -> None:
    """The product with the pair of the conversion is below the sum of all Rényi curves, and has a
    lower bound.
    """
    for text in (
        "20*BR(0.1) + ZCDP(0.07)",
        "20*DP(0.1) + ZCDP(0.1, xi=0.01)",
        "10*BR(0.2) + 5*DP(0.1) + CDP(0.1, 0.3)",
    ):
        charge = Charge.parse(text)
        found, renyi = (
            compose(charge, delta=1e-6, rtol=0.02, **SETWISE),
            compose(charge, delta=1e-6, bound="renyi"),
        )
        assert 0.9 * found.epsilon < found.lower < found.epsilon <= renyi.epsilon * (1 + 1e-9)


@pytest.mark.slow
def test_one_concentrated_cost_has_a_narrow_bracket() -> None:
    """CKS20's conversion is nearly attained, by laws with two outcomes."""
    for text in ("ZCDP(0.125)", "ZCDP(0.01, xi=0.1)"):
        found = compose(Charge.parse(text), delta=1e-6)
        assert found.lower >= found.epsilon * (1 - 2e-3)


@pytest.mark.slow
def test_two_concentrated_costs_are_played_better_than_by_gaussians() -> None:
    """And worth no more than one cost of both ρ together, which no two are known to attain."""
    one, two = (compose(Charge.parse(text), delta=1e-6) for text in ("ZCDP(0.1)", "2*ZCDP(0.05)"))
    gaussian = compose(Charge.parse("GDP(0.4472135954999579)"), delta=1e-6).epsilon
    assert gaussian * 1.05 < two.lower <= two.epsilon <= one.epsilon


def test_a_charge_with_many_different_ranges() -> None:
    charge = Charge({BoundedRange(0.05 + i / 1000): 2 for i in range(5)})
    assert "not reproducible" in compose(charge, delta=1e-6, max_seconds=1e-9, **SETWISE).note
    found = compose(charge, delta=1e-6, rtol=0.1, effort="thorough", **SETWISE)
    assert (
        found.lower
        <= found.epsilon
        <= compose(Charge({BoundedRange(0.055): 10}), delta=1e-6, **SETWISE).epsilon
    )
    assert found.epsilon < compose(charge, delta=1e-6, bound="renyi").epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    "charge",
    ["2000*BR(0.1) + 4*BR(0.5)", "2000*BR(0.1)", "200*BR(0.1) + 200*BR(0.05)"],
)
def test_large_counts(charge: str) -> None:
    found = compose(Charge.parse(charge), delta=1e-6, rtol=1.5e-3, effort="thorough", **SETWISE)
    assert found.epsilon - found.lower <= 1.5e-3 * found.epsilon
    assert found.epsilon < compose(Charge.parse(charge), delta=1e-6, bound="renyi").epsilon


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilons", "width"),
    [
        ((0.03, 0.05, 0.07, 0.1), 1.5e-3),
        pytest.param((0.02, 0.03, 0.04, 0.06, 0.08, 0.1), 2.2e-3, marks=pytest.mark.study),
        pytest.param(
            (0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1), 4.2e-3, marks=pytest.mark.study
        ),
    ],
)
def test_several_ranges_of_twenty_costs_at_normal_effort(
    epsilons: tuple[float, ...], width: float
) -> None:
    found = compose(Charge({BoundedRange(epsilon): 20 for epsilon in epsilons}), delta=1e-6)
    assert found.lower <= found.epsilon <= found.lower * (1 + width)


@pytest.mark.parametrize("work", [0.05, 0.5, 2.0, 50.0])
def test_joined_ranges_are_all_there_and_fit_into_the_work(work: float) -> None:
    alone = [CostGroup(((epsilon, 20),)) for epsilon in (0.02, 0.03, 0.04, 0.06, 0.08, 0.1)]
    for most in (4.0, 441.0, 9261.0, 40_000.0):
        packed = _packed_groups(alone, most, work, 16)
        assert [one for group in packed for one in group.ranges] == [one.ranges[0] for one in alone]
        joined = [group for group in packed if not group.single]
        assert sum(group.work for group in joined) <= work * (1 + 1e-12)
        assert all(group.states <= most for group in joined)
        assert bool(joined) == (most >= 441)


def test_a_charge_may_be_written_in_any_order() -> None:
    one = compose(
        Charge({BoundedRange(0.2): 3, BoundedRange(0.5): 2, PureDP(0.1): 1}), delta=1e-5, **SETWISE
    )
    other = compose(
        Charge({PureDP(0.1): 1, BoundedRange(0.5): 2, BoundedRange(0.2): 3}), delta=1e-5, **SETWISE
    )
    assert one == other


@pytest.mark.parametrize(
    ("charge", "question"),
    [
        ("BR(0.1) + GDP(1.0)", {"epsilon": 60.0}),
        ("BR(0.1) + GDP(1.0)", {"epsilon": 1e6}),
        ("BR(0.1)", {"delta": 0.0}),
        ("BR(0.1)", {"delta": 0.999}),
        ("BR(0.1)", {"delta": 1e-250}),
        ("5*BR(1e-8)", {"delta": 1e-9}),
        ("BR(99)", {"delta": 1e-6}),
        ("BR(0.1) + BR(50)", {"delta": 1e-6}),
        ("BR(0.1) + GDP(50)", {"delta": 1e-6}),
        ("BR(0.1) + GDP(1e-6)", {"delta": 1e-6}),
        ("3*BR(0.1) + 2*DP(30)", {"delta": 1e-6}),
        ("2*BR(0.1) + DGauss(0.3, 5)", {"delta": 1e-6}),
        pytest.param("DP(0.1) + 100000*ZCDP(0.125)", {"epsilon": 10.0}, marks=pytest.mark.slow),
        ("BR(0.1) + 100000*CDP(0.25, 1)", {"epsilon": 0.0}),
    ],
)
def test_extremes(charge: str, question: dict[str, float]) -> None:
    found = compose(Charge.parse(charge), **question, rtol=0.02, **SETWISE)
    value = found.epsilon if "delta" in question else found.delta
    sound = compose(Charge.parse(charge), **question, bound="renyi")
    assert 0 <= value < math.inf
    assert (found.lower or 0.0) <= (
        sound.epsilon if "delta" in question else max(sound.delta, 1e-289)
    )
    assert value <= max(
        (sound.epsilon if "delta" in question else sound.delta) * (1 + 1e-9), 1e-289
    )


@pytest.mark.parametrize("charge", ["BR(1e-300)", "BR(101)", "BR(1.0) + DP(1e-150)"])
def test_costs_outside_the_range_of_the_recursion_are_left_to_other_bounds(charge: str) -> None:
    with pytest.raises(IncompatibleCosts):
        compose(Charge.parse(charge), delta=1e-6, **SETWISE)
    assert compose(Charge.parse(charge), delta=1e-6).epsilon <= 1.01 * sum(
        cost.epsilon for cost in Charge.parse(charge).costs
    )


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.005, 2.0), min_size=1, max_size=2, unique=True),
    count=st.integers(1, 25),
    mu=st.none() | st.floats(0.02, 1.5),
    share=st.floats(0, 0.95),
    tilts=st.lists(st.tuples(st.floats(3e-4, 0.02), st.floats(0.5, 2.0)), min_size=2, max_size=3),
)
def test_all_brackets_of_one_number_overlap(
    epsilons: list[float],
    count: int,
    mu: float | None,
    share: float,
    tilts: list[tuple[float, float]],
) -> None:
    """Whatever the groups, the grids and the tilt: no lower bound exceeds any upper bound."""
    rest = Charge({GaussianDP(mu): 1} if mu else {})
    curve = SetwiseCurve(dict(zip(epsilons, (count, 2), strict=False)), rest)
    x = share * curve.chernoff(Query(delta=1e-8))[0]
    question = Query(epsilon=x)
    value, order = curve.chernoff(question)
    runs = [
        Evaluation(curve, question, order * tilt, tolerance, 1.0, value)
        for tolerance, tilt in tilts
    ]
    upper = min(value, *(run.upper_bound() for run in runs))
    assert max(run.lower_bound(upper) for run in runs) <= upper * (1 + 1e-12)


@pytest.mark.parametrize(
    ("question", "nothing"), [(Query(epsilon=1.0), 1.0), (Query(delta=1e-6), math.inf)]
)
def test_a_product_of_too_many_places_says_nothing(
    question: Query, nothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = SetwiseCurve({0.1: 2}, Charge({GaussianDP(1.0): 1}))
    value, order = curve.chernoff(question)
    run = Evaluation(curve, question, order, 0.1, 1.0, value)
    parts = loss_components(Charge({GaussianDP(1.0): 1}))
    assert run.bound_of_product(parts, 0.05) < nothing
    monkeypatch.setattr(lattice, "MOST_PLACES", 2**6)
    assert run.bound_of_product(parts, 0.05) == nothing


@pytest.mark.parametrize("epsilon", [37.0, 37.5, 38.0])
def test_a_delta_below_the_products_is_that_of_all_costs(epsilon: float) -> None:
    """A δ below 1e-290: that of a Gaussian with small zCDP costs beside it is no less than that of
    the Gaussian alone.
    """
    alone = compose(Charge.parse("GDP(1)"), epsilon=epsilon)
    together = compose(Charge.parse("GDP(1) + 2*ZCDP(0.0001)"), epsilon=epsilon)
    assert alone.lower is not None
    assert together.delta >= alone.lower > 0
