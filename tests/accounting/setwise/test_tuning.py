"""Soundness depends on no guess: with bad ones the brackets are wider, and overlap all the same."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound
from dptopk.accounting.setwise import tuning
from dptopk.costs import Charge

BAD = {
    "narrow windows": {"BELOW": 1.0, "STRAY": 1.5, "WINDOW_SHARE": 0.1, "REACHES": 2.0},
    "coarse grids": {
        "CELL": 0.01,
        "MOST_STEPS": 8,
        "FEWEST_STEPS": 2,
        "LARGEST_GROUP": 16,
        "GRID_CELL": 3.0,
    },
    "few strategies": {
        "LAST_EQUAL": 2,
        "LAST_DIFFERENT": 3,
        "LAST_KINDS": 1,
        "STEPS_OF_KINDS": 8,
        "CONCENTRATED_RETREATS": (0.3,),
        "TRIED_LOSSES": 2,
        "STRATEGY_REACH": 0.1,
    },
    "little listed": {
        "LISTED": 0,
        "HULL_PASSES": 1,
        "SAMPLED": 2,
        "SAMPLED_BLOCKS": 1,
        "END_SAMPLES": 0,
    },
    "coarse lattices": {
        "ORDERS": 5,
        "ZOOMS": 1,
        "WINDOW": 6.0,
        "MOST_POINTS": 300,
        "CONCENTRATED_POINTS": 40,
    },
    "wrong work": {
        "PER_STEP": 0.1,
        "PER_STEP_TOGETHER": 0.1,
        "GROUPS_SHARE": 0.01,
        "LOOSEST": 0.1,
        "STUCK": 0.1,
    },
}
# Each with ε's of its own, so that nothing that was computed before is used again.
CHARGES = (
    "70*BR(0.1{0}7)",
    "5*BR(0.2{0}3) + 6*BR(0.3{0}1) + 3*DP(0.25) + 2*GDP(0.2)",
    "9*BR(0.2{0}9) + ZCDP(0.0{0}1)",
)


def bracket(charge: str) -> Bound:
    return compose(
        Charge.parse(charge), delta=1e-4, bound="optimal_setwise", rtol=1e-2, effort="thorough"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=[pytest.mark.study] if place in (1, 4) else [])
        for place in range(len(BAD))
    ],
)
def test_bad_guesses_only_widen_the_bracket(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(BAD.values())[place]
    charges = [charge.format(place) for charge in CHARGES]
    for name, value in names.items():
        assert getattr(tuning, name) != value
        monkeypatch.setattr(tuning, name, value)
    bad = [bracket(charge) for charge in charges]
    monkeypatch.undo()
    good = [bracket(charge) for charge in charges]
    for one, other in zip(bad, good, strict=True):
        assert math.isfinite(one.epsilon)
        assert (one.lower or 0.0) <= other.epsilon
        assert one.epsilon >= (other.lower or 0.0)
    assert any(
        one.epsilon != other.epsilon or one.lower != other.lower
        for one, other in zip(bad, good, strict=True)
    )


def test_every_guess_is_used() -> None:
    """None is left behind, and what the module defines is all that it holds."""
    folder = Path(tuning.__file__).parent
    used = {
        node.attr
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "tuning"
    }
    assert used == {name for name in vars(tuning) if name.isupper()}
