"""Answers without a lower bound: as sound, nearly as narrow, and no strategy is valued; needless
bounds rest.
"""

from __future__ import annotations

import math

import pytest

from dptopk.accounting import bounds
from dptopk.accounting.bounds import compose
from dptopk.accounting.composition_query import CompositionQuery
from dptopk.accounting.cost_models import dominating_pairs
from dptopk.accounting.registry import Bound, registered_bounds
from dptopk.accounting.setwise import evaluation
from dptopk.costs import Charge, PureDP
from dptopk.errors import InvalidParameter

RTOL = 4e-3
MIXES = (
    "30*BR(0.1)",
    "20*BR(0.1) + 20*DP(0.05) + 3*DGauss(9.0, 1)",
    "6*BR(0.1) + 6*BR(0.05)",
    "10*BR(0.2) + ZCDP(0.05)",
    "ZCDP(0.1)",
    "7*DP(0.1) + 5*DP(0.23) + 2*DP(0.31)",
    "30*DGauss(7.0, 1) + GDP(0.2) + 3*DP(0.1)",
    "5*Clock(0.1) + delta(1e-9)",
    "4*MultiDP(0.3:0.0, 0.15:0.02) + GDP(0.1)",
)
QUESTIONS = ({"delta": 1e-6}, {"epsilon": 0.7})


def value(found: Bound, question: dict[str, float]) -> float:
    return found.epsilon if "delta" in question else found.delta


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=str)
@pytest.mark.parametrize("mix", MIXES)
def test_it_is_an_upper_bound_and_nearly_as_narrow(mix: str, question: dict[str, float]) -> None:
    charge = Charge.parse(mix)
    both, alone = (compose(charge, **question, rtol=RTOL, lower=lower) for lower in (True, False))
    assert value(alone, question) >= (both.lower or 0.0)
    assert value(alone, question) <= value(both, question) * (1 + RTOL)


@pytest.mark.parametrize("mix", MIXES[:2])
def test_it_is_the_same_number(mix: str) -> None:
    """What is refined does not depend on it: a charge planned within a budget is within it when it
    is asked.
    """
    both, alone = (compose(Charge.parse(mix), delta=1e-6, lower=lower) for lower in (True, False))
    assert alone.epsilon == both.epsilon
    assert alone.lower is None
    assert both.lower is not None


@pytest.mark.slow
def test_a_finer_one_is_finer() -> None:
    """Refinement goes on by what the width is estimated to be."""
    charge = Charge.parse("3*DP(0.1) + 2*DP(0.25) + 5*DGauss(9.0, 1) + 2*DP(0.4)")
    truth = compose(charge, delta=1e-6, rtol=1e-6)
    for rtol in (1e-2, 1e-3, 1e-5):
        found = compose(charge, delta=1e-6, rtol=rtol, lower=False)
        assert truth.lower <= found.epsilon <= truth.epsilon * (1 + rtol)
        assert found.note == ""


@pytest.mark.slow
def test_no_strategy_is_valued_and_no_lower_product_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a lower bound was computed")

    monkeypatch.setattr(evaluation, "nearly_best_strategy", never)
    monkeypatch.setattr(dominating_pairs, "splitting_gap", never)
    monkeypatch.setattr(evaluation.Evaluation, "lower_bound", never)
    for mix in MIXES[:2]:
        with pytest.raises(AssertionError, match="a lower bound"):
            compose(Charge.parse(mix), delta=1e-6)
    # Costs of zCDP are played in a game whose tables give both ends.
    for mix in (*MIXES[:2], *MIXES[3:5]):
        assert compose(Charge.parse(mix), delta=1e-6, lower=False).lower is None
    sides = []
    made = dominating_pairs.grid_product
    monkeypatch.setattr(
        dominating_pairs,
        "grid_product",
        lambda parts, grid: sides.append(grid.side) or made(parts, grid),
    )
    compose(Charge.parse(MIXES[6]), delta=1e-6, lower=False)
    assert set(sides) == {1}


def test_it_must_be_said_yes_or_no() -> None:
    with pytest.raises(InvalidParameter, match="lower"):
        compose(Charge.parse("DP(0.1)"), delta=1e-6, lower="no")


NEEDLESS = [
    (mix, spec.name, spec.better_bound(Charge.parse(mix)))
    for mix in (
        *MIXES,
        "6*DP(0.1) + 3*DP(0.25) + 4*BR(0.3)",
        "2*ZCDP(0.02) + ZCDP(0.01, xi=0.001)",
        "8*DP(0.2)",
    )
    for spec in registered_bounds().values()
    if spec.better_bound(Charge.parse(mix))
]


@pytest.mark.slow
@pytest.mark.parametrize(("mix", "name", "better"), NEEDLESS, ids=str)
def test_what_is_said_to_be_needless_is(mix: str, name: str, better: str) -> None:
    """The other bound is never larger but for the width of its answer."""
    charge = Charge.parse(mix)
    for question in QUESTIONS:
        try:
            one, other = (
                compose(charge, bound=bound, **question, rtol=RTOL) for bound in (name, better)
            )
        except bounds.IncompatibleCosts:
            continue
        if not other.note:
            assert value(one, question) >= value(other, question) * (1 - RTOL)


def asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the bounds that are asked from now on."""
    asked: list[str] = []
    ask = CompositionQuery.ask
    monkeypatch.setattr(
        CompositionQuery,
        "ask",
        lambda self, spec: asked.append(spec.name) or ask(self, spec),
    )
    return asked


def test_what_refines_comes_last_and_a_needless_bound_rests_after_a_better_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_for(monkeypatch)
    charge = Charge.parse("6*DP(0.1) + 3*DP(0.25) + 4*BR(0.3)")
    compose(charge, delta=1e-6, lower=False)
    assert asked[-1] == "optimal_setwise"
    late = compose(charge, delta=1e-6, max_seconds=1e-9)
    assert compose(charge, delta=1e-6).epsilon <= late.epsilon < math.inf
    assert "not reproducible" in late.note


def test_of_very_many_costs_a_needless_bound_always_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asked_for(monkeypatch)
    charge = Charge.parse("1000000*BR(0.01) + 1000000*BR(0.02)")
    quick = compose(charge, delta=1e-6, effort="quick")
    assert not {"two_epsilon", "renyi"} & set(asked)
    assert quick.epsilon <= compose(charge, delta=1e-6, bound="renyi").epsilon * (1 + 1e-6)


@pytest.mark.slow
def test_very_many_different_costs_begin_with_the_quickest_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asked_for(monkeypatch)
    charge = Charge({PureDP(1e-4 * (1 + i / 7)): 1 for i in range(1100)})
    late = compose(charge, delta=1e-6, max_seconds=1e-9)
    assert asked == ["renyi"]
    assert "not reproducible" in late.note
    patient = compose(charge, delta=1e-6)
    assert patient.lower <= patient.epsilon <= late.epsilon
    assert asked[1:] == ["renyi", "optimal_setwise"]


@pytest.mark.parametrize("mu", [1e-7, 3e-8])
def test_an_upper_end_that_is_infinite_is_never_narrow(mu: float) -> None:
    """A tiny Gaussian beside a large loss: the first grids are too coarse, are refined, and else
    other bounds asked.
    """
    charge = Charge.parse(f"GDP({mu}) + DP(3.0)")
    product = compose(charge, delta=1e-9, bound="optimal_setwise")
    assert product.note or product.epsilon - product.lower <= 1e-3 * product.epsilon < 0.01
    for effort, lower in (("normal", True), ("normal", False), ("quick", True), ("quick", False)):
        best = compose(charge, delta=1e-9, lower=lower, effort=effort)
        assert 3 * (1 - 1e-6) < best.epsilon < 3 * (1 + 1.5e-3)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("40*BR(0.1) + ZCDP(0.01)", marks=pytest.mark.slow),
        "30*DP(0.1)",
        "9*DP(0.1) + 5*DP(0.2) + DP(0.3)",
        "CDP(0.1, 0.2)",
    ],
)
@pytest.mark.parametrize("interaction", ["setwise", "filter"])
def test_superseded_theorems_are_never_asked_and_never_better(
    text: str, interaction: str, monkeypatch
) -> None:
    """They answer to their names, and none of them is below the best of the others but for
    rounding.
    """
    published = {name for name, spec in registered_bounds().items() if spec.published}
    assert {"advanced", "mgf", "optimal_dp_exact", "setwise_zcdp"} <= published
    asked = asked_for(monkeypatch)
    charge = Charge.parse(text)
    best = compose(charge, delta=1e-6, interaction=interaction)
    assert not published & set(asked)
    for name in published:
        try:
            found = compose(charge, delta=1e-6, interaction=interaction, bound=name)
        except bounds.IncompatibleCosts:
            continue
        assert found.name == name
        assert found.epsilon >= best.epsilon * (1 - 1e-9)
