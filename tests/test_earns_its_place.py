"""The rules of benchmarks/earns_its_place.py."""

import math

import pytest

from benchmarks.earns_its_place import gains, struck_out, winner
from dptopk.planning.designs import DESIGNS

EXACT = {"a": (1e-9, 0.0), "b": (1e-30, 0.0)}


def test_the_best_other_design_sets_the_factor() -> None:
    win = winner({"a": (3.0, 0.0), "b": (2.0, 0.0), "c": (2.5, 0.0)})
    assert (win.design, win.factor, win.clear) == ("b", 1.25, True)


def test_a_win_within_the_noise_of_the_simulation_is_not_clear() -> None:
    assert not winner({"a": (2.0, 0.2), "b": (2.5, 0.2)}).clear
    assert winner({"a": (2.0, 0.1), "b": (2.5, 0.1)}).clear


def test_exact_answers_are_ties() -> None:
    assert not winner(EXACT).clear


def test_a_lone_design_wins() -> None:
    assert winner({"a": (1.0, 0.0)}).factor == math.inf
    with pytest.raises(ValueError, match="empty"):
        winner({})


def test_of_two_equals_one_stays() -> None:
    cells = [{"a": (2.0, 0.0), "b": (2.0, 0.0), "c": (9.0, 0.0)}]
    both = frozenset("abc")
    assert gains(cells, both) == dict.fromkeys("abc", 1.0)
    assert len(struck_out(cells, both)) == 2
    assert "c" in struck_out(cells, both)


def test_what_needs_a_shape_does_not_replace_what_needs_none() -> None:
    plain = "Gumbel selections (public)"
    shaped = "canonical draw (public)"
    assert {plain, shaped} <= {f"{one.name} ({one.domain})" for one in DESIGNS}
    cells = [{plain: (3.0, 0.0), shaped: (1.0, 0.0), "one-shot draw (public)": (4.0, 0.0)}]
    assert gains(cells, frozenset(cells[0]))[plain] == pytest.approx(4 / 3)
