"""One contract for every registered bound, whatever its theorem."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dptopk._internal.choices import INTERACTIONS
from dptopk.accounting import registry
from dptopk.accounting.bounds import compose, table
from dptopk.accounting.curves import DeltaCurve, Query
from dptopk.accounting.pld.log_mgf import ChernoffCurve
from dptopk.accounting.registry import Bound, bound, names, registered_bounds, split_failure
from dptopk.costs import (
    CDP,
    ZCDP,
    ApproxDP,
    BoundedRange,
    Charge,
    DiscreteGaussianDP,
    GaussianDP,
    MultiDP,
    PureDP,
)
from dptopk.errors import IncompatibleCosts, InvalidParameter

# Charges that between them reach every registered bound (``test_every_bound_is_reached``).
CHARGES = {
    "pure": Charge({PureDP(0.1): 12}),
    "two pure": Charge({PureDP(0.1): 6, PureDP(0.25): 3}),
    "ranged": Charge({BoundedRange(0.2): 8}),
    "two ranged": Charge({BoundedRange(0.1): 3, BoundedRange(0.3): 2}),
    "ranged and pure": Charge({BoundedRange(0.2): 6, PureDP(0.2): 2}),
    "different ranged": Charge({BoundedRange(0.1): 3, BoundedRange(0.3): 2, PureDP(0.15): 1}),
    "several constraints": Charge({MultiDP(((0.3, 0.0), (0.15, 0.02))): 4}),
    "gaussian": Charge({GaussianDP(0.3): 2}),
    "discrete gaussian": Charge({DiscreteGaussianDP(4.0, 1): 2}),
    "zcdp": Charge({ZCDP(0.02): 1, ZCDP(0.01, xi=0.001): 1}),
    "cdp": Charge({CDP(0.02, 0.2): 2}),
    "failing": Charge({ApproxDP(0.1, 1e-9): 6, PureDP(0.25): 3}, delta=1e-8),
}
DELTA, EPSILON, RTOL = 1e-4, 0.6, 3e-3
# A bound that stops refining may answer up to rtol above the value it would find for an easier
# charge.
LOOSE = 1 + 2 * RTOL


@cache
def applicable(charge: Charge, interaction: str = "batch") -> list[str]:
    listed = table(charge, delta=DELTA, interaction=interaction, effort="quick")
    return list(listed.loc[listed["applies"], "name"])


@cache
def ask(charge: Charge, name: str, *, interaction: str = "batch", **question: float) -> Bound:
    return compose(
        charge, bound=name, interaction=interaction, rtol=RTOL, effort="normal", **question
    )


def fresh(charge: Charge, name: str) -> Bound:
    """An answer that is not remembered from an equal charge."""
    return compose(charge, bound=name, interaction="batch", rtol=RTOL, effort="normal", delta=DELTA)


def takes(charge: Charge, name: str) -> bool:
    try:
        ask(charge, name, delta=DELTA)
    except IncompatibleCosts:
        return False
    return True


CASES = [(label, name) for label, charge in CHARGES.items() for name in applicable(charge)]
# Cases that take two thirds of the time of all.
MARKS = {
    ("zcdp", "optimal_setwise"): [pytest.mark.slow, pytest.mark.study],
    ("cdp", "optimal_setwise"): [pytest.mark.slow],
    ("two ranged", "br_heterogeneous"): [pytest.mark.slow],
}
each_bound = pytest.mark.parametrize(
    ("label", "name"),
    [pytest.param(*case, marks=MARKS.get(case, ()), id="-".join(case)) for case in CASES],
)


def test_every_bound_is_reached() -> None:
    assert {name for _, name in CASES} == set(names())
    assert len(set(names())) == len(names())


@each_bound
def test_answers_are_sound_shapes(label: str, name: str) -> None:
    """ε >= 0, 0 <= δ <= 1, lower <= value; an upper bound for the question asked and no other field
    is changed.
    """
    charge = CHARGES[label]
    found = ask(charge, name, delta=DELTA)
    assert found.delta == DELTA
    assert found.epsilon >= 0
    assert found.name == name
    assert found.source
    assert found.valid_in == INTERACTIONS[: len(found.valid_in)] != ()
    if found.lower is not None:
        assert 0 <= found.lower <= found.epsilon
    back = ask(charge, name, epsilon=EPSILON)
    assert back.epsilon == EPSILON
    assert 0 <= back.delta <= 1
    if back.lower is not None:
        assert 0 <= back.lower <= back.delta


@each_bound
def test_directions_invert_each_other(label: str, name: str) -> None:
    """δ(ε(δ)) is at most δ, and a smaller ε has a larger δ; refinement leaves its tolerance between
    them.
    """
    charge = CHARGES[label]
    epsilon = ask(charge, name, delta=DELTA).epsilon
    if not math.isfinite(epsilon):
        pytest.fail("no finite ε at an ordinary δ")
    assert ask(charge, name, epsilon=epsilon * (1 + 2e-3)).delta <= DELTA * (1 + 1e-9)
    delta = ask(charge, name, epsilon=EPSILON).delta
    if 0 < delta < 0.9:
        again = ask(charge, name, delta=delta).epsilon
        assert again <= EPSILON * (1 + 2e-3) + 1e-12


@each_bound
def test_monotone_in_the_question(label: str, name: str) -> None:
    charge = CHARGES[label]
    by_delta = [ask(charge, name, delta=delta).epsilon for delta in (1e-7, DELTA, 0.05)]
    assert all(a * LOOSE >= b for a, b in itertools.pairwise(by_delta))
    by_epsilon = [ask(charge, name, epsilon=epsilon).delta for epsilon in (0.0, EPSILON, 1.2)]
    assert all(a * LOOSE >= b for a, b in itertools.pairwise(by_epsilon))


@each_bound
def test_count_equals_that_many_singles(label: str, name: str) -> None:
    """A charge with counts, joined from singles, split in two, and multiplied: one and the same."""
    charge = CHARGES[label]
    singles = [Charge({cost: 1}) for cost, times in charge for _ in range(times)]
    joined = Charge.join(*singles, Charge({}, delta=charge.delta))
    assert joined == charge
    reverse = Charge.join(Charge({}, delta=charge.delta), *singles[::-1])
    assert fresh(reverse, name).epsilon == ask(charge, name, delta=DELTA).epsilon
    half = Charge(dict.fromkeys(charge.costs, 1))
    twice = half.times(2)
    if takes(twice, name):
        assert ask(twice, name, delta=DELTA).epsilon == fresh(Charge.join(half, half), name).epsilon


@each_bound
def test_another_cost_never_lowers_epsilon(label: str, name: str) -> None:
    charge = CHARGES[label]
    before, at = ask(charge, name, delta=DELTA).epsilon, ask(charge, name, epsilon=EPSILON).delta
    for cost in charge.costs:
        more = Charge.join(charge, Charge({cost: 1}))
        if takes(more, name):
            assert ask(more, name, delta=DELTA).epsilon * LOOSE >= before
            assert ask(more, name, epsilon=EPSILON).delta * LOOSE >= at


@each_bound
def test_interaction_is_respected(label: str, name: str) -> None:
    """Outside the models it is valid in, a bound refuses; a charge that is adaptive inside is never
    a batch.
    """
    charge = CHARGES[label]
    holds = ask(charge, name, delta=DELTA).valid_in
    valid = registered_bounds()[name].valid_in(split_failure(charge)[0])
    assert (
        set(holds) == set(valid) or label == "failing"
    )  # masses of failure are larger in a filter
    for interaction in INTERACTIONS:
        if interaction in valid:
            assert ask(charge, name, delta=DELTA, interaction=interaction).epsilon > 0
        else:
            with pytest.raises(IncompatibleCosts, match="valid only in"):
                ask(charge, name, delta=DELTA, interaction=interaction)
    inside = Charge(charge.costs, delta=charge.delta, adaptive=True)
    if "ordered" not in valid:
        with pytest.raises(IncompatibleCosts, match="adaptive inside"):
            ask(inside, name, delta=DELTA)
    else:
        assert ask(inside, name, delta=DELTA).epsilon == ask(charge, name, delta=DELTA).epsilon


@each_bound
def test_failure_mass_adds_up(label: str, name: str) -> None:
    """δ of the charge itself is added; below the failure mass ε is infinite, with a note."""
    charge = CHARGES[label]
    more = Charge(charge.costs, delta=charge.delta + 1e-5)
    plain, raised = (ask(each, name, epsilon=EPSILON).delta for each in (charge, more))
    assert raised == pytest.approx(plain + 1e-5, rel=2 * RTOL)
    assert ask(more, name, delta=DELTA).epsilon * LOOSE >= ask(charge, name, delta=DELTA).epsilon
    nothing = ask(more, name, delta=9e-6)
    assert nothing.epsilon == math.inf
    assert nothing.note


@each_bound
def test_delta_zero(label: str, name: str) -> None:
    """δ = 0 has a finite answer exactly where the sum of the ε's is one, and then at least the ε of
    a larger δ.
    """
    charge = CHARGES[label]
    found = ask(charge, name, delta=0.0)
    assert not math.isnan(found.epsilon)
    assert (
        found.epsilon * LOOSE >= ask(charge, name, delta=1e-12).epsilon or found.epsilon == math.inf
    )
    if charge.delta or split_failure(charge)[1]:
        assert found.epsilon == math.inf
        assert found.note


@pytest.mark.parametrize("label", CHARGES)
@pytest.mark.parametrize("interaction", INTERACTIONS[:3])
def test_no_bound_is_below_a_proven_lower_bound(label: str, interaction: str) -> None:
    """Lower bounds are on the optimum of the interaction asked, so every valid upper bound lies
    above all of them.
    """
    found = [
        ask(CHARGES[label], name, delta=DELTA, interaction=interaction)
        for name in applicable(CHARGES[label], interaction)
    ]
    lowers = [each.lower for each in found if each.lower is not None]
    assert min(each.epsilon for each in found) >= max(lowers, default=0.0) * (1 - 1e-9)


@pytest.mark.parametrize("label", CHARGES)
@pytest.mark.parametrize("interaction", INTERACTIONS)
def test_best_is_the_smallest_valid_answer(label: str, interaction: str) -> None:
    charge = CHARGES[label]
    best = compose(charge, delta=DELTA, interaction=interaction)
    assert interaction in best.valid_in
    for name in applicable(charge, interaction):
        assert (
            best.epsilon <= ask(charge, name, delta=DELTA, interaction=interaction).epsilon * LOOSE
        )
    stronger = INTERACTIONS[INTERACTIONS.index(interaction) :]
    for other in stronger:
        assert best.epsilon <= compose(charge, delta=DELTA, interaction=other).epsilon * LOOSE


@pytest.mark.parametrize("name", ["best", *names()])
def test_the_empty_charge_costs_nothing(name: str) -> None:
    if name in ("best", "basic"):
        assert compose(Charge(), delta=1e-6, bound=name).epsilon == 0
        assert compose(Charge(delta=1e-6), epsilon=0.0, bound=name).delta == 1e-6
        assert compose(
            Charge({ApproxDP(0.0, 0.1): 2}), epsilon=1.0, bound=name
        ).delta == pytest.approx(0.19)
    else:
        with pytest.raises(IncompatibleCosts, match="nothing to compose"):
            compose(Charge(), delta=1e-6, bound=name)


@pytest.mark.parametrize(
    "question",
    [
        {}, {"delta": 0.1, "epsilon": 1.0}, {"delta": math.nan}, {"delta": math.inf}, {"delta": -1e-9}, {"delta": 1.0},
        {"epsilon": math.nan}, {"epsilon": math.inf}, {"epsilon": -0.1}, {"delta": 0.1, "rtol": 0.0},
        {"delta": 0.1, "rtol": math.nan}, {"delta": 0.1, "max_seconds": 0.0}, {"delta": 0.1, "interaction": "none"},
        {"delta": 0.1, "bound": "none"}, {"delta": "0.1"}, {"delta": True},
    ],
)  # fmt: skip
def test_bad_questions_are_refused(question: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter):
        compose(CHARGES["pure"], **question)


def test_what_is_not_a_charge_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="charge"):
        compose(0.1, delta=0.1)  # type: ignore[arg-type]


def test_table_lists_every_bound_with_its_reason() -> None:
    listed = table(CHARGES["ranged"], delta=DELTA, interaction="setwise")
    assert list(listed["name"]) == list(names())
    refused = listed[~listed["applies"]]
    assert (refused["why not"] != "").all()
    assert (listed.loc[listed["applies"], "why not"] == "").all()
    batch_only = listed[listed["name"] == "br_nonadaptive"].iloc[0]
    assert math.isfinite(batch_only["epsilon"])  # shown for comparison, and marked
    assert not batch_only["applies"]
    assert "valid only in batch" in batch_only["why not"]


def test_cut_by_the_guard_it_stays_sound_and_says_so(ticking: Callable[[], int]) -> None:
    epsilons = np.random.default_rng(3).uniform(0.01, 1.0, 300)
    charge = Charge({PureDP(float(epsilon)): 1 for epsilon in epsilons})
    hurried = compose(charge, delta=1e-6, bound="optimal_dp_approx", rtol=1e-9, max_seconds=1e-3)
    patient = compose(charge, delta=1e-6, bound="optimal_dp_approx", rtol=1e-3)
    assert "not reproducible" in hurried.note
    assert patient.lower is not None
    assert hurried.epsilon >= patient.lower
    before = ticking()
    compose(charge, delta=1e-6)
    assert ticking() == before + 1  # without a guard no clock is read


@settings(max_examples=50, deadline=None)
@given(
    epsilons=st.lists(st.tuples(st.floats(0, 2), st.floats(0, 0.3)), min_size=1, max_size=6),
    own=st.floats(0, 0.2),
)
def test_failure_mass_is_split_off_exactly(epsilons: list[tuple[float, float]], own: float) -> None:
    """The rest carries no δ, and p = 1 - ∏(1 - δ_i), never less."""
    costs = [ApproxDP(e, d) for e, d in epsilons if e > 0 or d > 0]
    charge = Charge.join(*(Charge({cost: 1}) for cost in costs), Charge(delta=own))
    rest, p = split_failure(charge)
    assert all(isinstance(cost, PureDP) for cost in rest.costs)
    assert rest.delta == 0
    exact = 1 - math.prod(1 - cost.delta for cost in costs)
    assert exact - 1e-15 <= p <= exact * (1 + 1e-12) + 1e-15


def test_constraints_share_their_atom() -> None:
    """Of (0.3, a) and (0.15, b) the atom a is split off, and b becomes (b - a)/(1 - a)."""
    rest, p = split_failure(Charge({MultiDP(((0.3, 0.01), (0.15, 0.05))): 1}))
    assert p == 0.01
    ((cost, times),) = rest
    assert times == 1
    assert cost.constraints[0] == (0.3, 0.0)  # type: ignore[attr-defined]
    assert cost.constraints[1] == (0.15, pytest.approx(0.04 / 0.99))  # type: ignore[attr-defined]


def test_a_bound_that_answers_nan_is_never_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A formula that fails gives no guarantee: inf or 1, and compose takes another."""
    monkeypatch.setattr(registry, "REGISTRY", dict(registry.REGISTRY))
    registered_bounds.cache_clear()
    try:

        @bound("broken", source="none", takes=(PureDP,))
        def broken(charge: Charge) -> DeltaCurve:
            return DeltaCurve(lambda x: np.full_like(x, np.nan))

        assert compose(CHARGES["pure"], delta=DELTA, bound="broken").epsilon == math.inf
        assert compose(CHARGES["pure"], epsilon=EPSILON, bound="broken").delta == 1
        assert compose(CHARGES["pure"], delta=DELTA).name == "optimal_dp"
    finally:
        registered_bounds.cache_clear()


def test_of_very_many_different_costs_the_best_order_is_looked_for_on_few_grids():
    """No bound takes a grid of hundreds of orders of thousands of different costs, and little is
    lost.
    """
    asked = []

    def log_mgf(lam):
        asked.append(lam.size)
        return 0.01 * lam * (1 + lam)

    few, many = (
        ChernoffCurve(log_mgf, different=n).answer(Query(delta=1e-6)).value for n in (10, 2000)
    )
    assert few <= many <= few * (1 + 1e-4)
    assert sum(asked[-5:]) == 64 + 4 * 8
    assert sum(asked[:-5]) > 200
    many = Charge({PureDP(1e-4 * (1 + i / 3000)): 1 for i in range(3000)})
    with pytest.raises(IncompatibleCosts, match="left to optimal_dp_approx"):
        compose(many, delta=1e-6, bound="multi_dp")
