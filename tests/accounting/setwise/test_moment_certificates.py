"""Certificates of a few concentrated costs, by the multipliers of their game: the checker accepts
them, and no changed one.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dptopk import Charge, compose
from dptopk.accounting.setwise.certificates import certify
from dptopk.accounting.setwise.moment_program import MomentClass

CHECKER = Path(__file__).parents[3] / "checker" / "check_certificate.py"
TWO = "ZCDP(0.01) + CDP(0.006, 0.2)"
Content = dict[str, Any]


@pytest.fixture(scope="module")
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_certificate", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def two() -> str:
    """One of each class, which may be played in either order."""
    return certify(Charge.parse(TWO), delta=1e-6).text


def accepted(checker: ModuleType, content: Content, folder: Path) -> str:
    """Why a file is refused; '' where it is not."""
    path = folder / "certificate.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        checker.main(path)
    except SystemExit as reason:
        return str(reason)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("charge", "kinds"),
    [
        ("3*ZCDP(0.1)", ["Moments"]),
        ("ZCDP(0.0093) + ZCDP(0.016, xi=0.001)", ["Moments"]),
        ("2*CDP(0.000999, 0.0632)", ["Moments"]),
        ("ZCDP(0.01) + GDP(0.2)", ["GDP", "Moments"]),
        pytest.param("2*ZCDP(0.01) + 20*BR(0.1)", ["BR", "Moments"], marks=pytest.mark.study),
    ],
)
def test_a_game_is_certified_as_it_is_composed(
    charge: str, kinds: list[str], checker: ModuleType, tmp_path: Path
) -> None:
    best = compose(Charge.parse(charge), delta=1e-6, certificate=True)
    assert best.certificate is not None
    content = json.loads(best.certificate.text)
    assert [factor["kind"] for factor in content["factors"]] == kinds
    assert best.lower is not None
    # Of CDP the checker knows the largest mean only, not that moments are about the law's own, and
    # of ranges a group apart.
    share = {"2*CDP(0.000999, 0.0632)": 2e-3, "2*ZCDP(0.01) + 20*BR(0.1)": 1e-2}.get(charge, 5e-4)
    assert best.lower <= best.certificate.epsilon <= best.epsilon * (1 + share)
    assert accepted(checker, content, tmp_path) == ""


@pytest.mark.study
def test_a_game_whose_v_is_nearly_1_is_accepted(checker: ModuleType, tmp_path: Path) -> None:
    """Of costs with a large xi for their rho; a line, a majorant without moments, is one too."""
    charge = "2*ZCDP(1.9e-06, xi=0.00155) + 286*DGauss(11.7, 3) + 77*BR(0.00816)"
    content = json.loads(certify(Charge.parse(charge), delta=0.553).text)
    assert accepted(checker, content, tmp_path) == ""
    charge = "2*ZCDP(1.9e-06, xi=0.00155) + 40*DGauss(11.7, 3)"
    content = json.loads(certify(Charge.parse(charge), delta=0.1).text)
    (game,) = [factor for factor in content["factors"] if factor["kind"] == "Moments"]
    for _, firsts, _ in game["states"]:
        for majorants in firsts:
            x, first_node, last_node, *_ = majorants[0]
            majorants.append([x, first_node, last_node, 1.0 + 1e-9, 1e-9, []])
    assert accepted(checker, content, tmp_path) == ""


def of_all(change: Callable[[list[Any]], None]) -> Callable[[Content], None]:
    """A change of every majorant."""

    def edit(factor: Content) -> None:
        for _, firsts, _ in factor["states"]:
            for made in firsts:
                for majorant in made:
                    change(majorant)

    return edit


def of_last(change: Callable[[list[Any]], None]) -> Callable[[Content], None]:
    """A change of the majorants that the answer is read from."""

    def edit(factor: Content) -> None:
        for made in factor["states"][-1][1]:
            for majorant in made:
                change(majorant)

    return edit


def lighter(majorant: list[Any]) -> None:
    majorant[5] = [[e, g * (1 - 1e-6)] for e, g in majorant[5]]


def at(place: int, value: Callable[[float], Any]) -> Callable[[list[Any]], None]:
    def change(majorant: list[Any]) -> None:
        majorant[place] = value(majorant[place])

    return change


def terms(value: Callable[[float, float], list[Any]]) -> Callable[[list[Any]], None]:
    def change(majorant: list[Any]) -> None:
        majorant[5] = [value(e, g) for e, g in majorant[5]]

    return change


def emptied(factor: Content) -> None:
    factor["states"][-1][1][0] = []


FORGERIES: dict[str, Callable[[Content], Any]] = {
    "all weights smaller": of_all(lighter),
    "last weights smaller": of_last(lighter),
    "last constant smaller": of_last(at(3, lambda a: a - 1e-9)),
    "last slope smaller": of_last(at(4, lambda b: b - 1e-9)),
    "larger exponents": of_last(terms(lambda e, g: [e * 1.001, g])),
    "smaller exponents": of_last(terms(lambda e, g: [e * 0.999, g])),
    "exponents between -1 and 0": of_all(terms(lambda e, g: [-0.5, g])),
    "an exponent of 0": of_all(terms(lambda e, g: [0.0, g])),
    "negative weights": of_all(terms(lambda e, g: [e, -g])),
    "no terms": of_all(at(5, lambda _: [])),
    "x further left": of_last(at(0, lambda x: x - 1e-4)),
    "x further right": of_last(at(0, lambda x: x + 1e-4)),
    "nothing looked at": of_last(at(2, lambda _: 1)),
    "no node": of_last(at(1, lambda _: 10**6)),
    "an order of 0": lambda factor: factor["states"][0].__setitem__(2, [0.0]),
    "a negative order": lambda factor: factor["states"][0].__setitem__(2, [-0.5]),
    "nan": of_last(at(3, lambda _: math.nan)),
    "a text": of_last(at(3, str)),
    "a state left out": lambda factor: factor["states"].pop(0),
    "the last state left out": lambda factor: factor["states"].pop(),
    "a state twice": lambda factor: factor["states"].append(factor["states"][-1]),
    "states in another order": lambda factor: factor["states"].reverse(),
    "nothing for a first cost": emptied,
    "costs exchanged": lambda factor: factor["costs"].reverse(),
    "one cost twice": lambda factor: factor["costs"][0].__setitem__(-1, 2),
    "a smaller cost": lambda factor: factor["costs"][0].__setitem__(1, 0.005),
    "a larger cost": lambda factor: factor["costs"][1].__setitem__(1, 0.011),
    "a finer grid": lambda factor: factor.update(grid=factor["grid"] * 0.99),
    "a coarser grid": lambda factor: factor.update(grid=factor["grid"] * 1.01),
    "fewer nodes": lambda factor: factor.update(nodes=factor["nodes"] // 8),
    "nodes beyond the end": lambda factor: factor.update(far=factor["nodes"]),
    "no nodes on the left": lambda factor: factor.update(left=1),
}


@pytest.mark.slow
@pytest.mark.parametrize("edit", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_game_is_refused(
    edit: Callable[[Content], Any], two: str, checker: ModuleType, tmp_path: Path
) -> None:
    content = json.loads(two)
    (factor,) = content["factors"]
    assert factor["kind"] == "Moments"
    edit(factor)
    assert accepted(checker, content, tmp_path).startswith("refused")


@pytest.mark.slow
def test_a_smaller_epsilon_is_refused_and_a_larger_one_is_not(
    two: str, checker: ModuleType, tmp_path: Path
) -> None:
    content = json.loads(two)
    assert accepted(checker, content, tmp_path) == ""
    content["epsilon"] *= 1 + 1e-4
    assert accepted(checker, content, tmp_path) == ""
    content["epsilon"] *= 1 - 2e-4
    assert "only bounded by" in accepted(checker, content, tmp_path)


@pytest.mark.parametrize("order", [0.01, 1.0, 30.0])
def test_the_checker_knows_the_limits_of_the_classes(checker: ModuleType, order: float) -> None:
    """Those of the package; and no less than the moments of a Gaussian that is in the class."""
    t = checker.ball(order)
    zcdp = checker.LIMITS["ZCDP"](t, checker.ball(0.02), checker.ball(0.001))
    cdp = checker.LIMITS["CDP"](t, checker.ball(0.006), checker.ball(0.2))
    assert float(zcdp) == pytest.approx(MomentClass(0.02, 0.001).log_moment(order))
    assert float(cdp) == pytest.approx(MomentClass(0.02, 0.006 - 0.02).log_moment(order))
    mu = Fraction(1, 10)  # in (0.006, 0.2)-CDP: a mean of 0.005
    assert float(mu**2 / 2) * order * (1 + order) <= float(cdp)
