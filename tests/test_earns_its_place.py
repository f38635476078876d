"""The rule of benchmarks/earns_its_place.py."""

import math

import pytest

from benchmarks.earns_its_place import winner


def test_the_best_other_design_sets_the_factor() -> None:
    assert winner({"a": 3.0, "b": 2.0, "c": 2.5}) == ("b", 1.25)


def test_exact_answers_are_ties() -> None:
    assert winner({"a": 1e-9, "b": 1e-30})[1] == 1


def test_a_lone_design_wins() -> None:
    assert winner({"a": 1.0}) == ("a", math.inf)
    with pytest.raises(ValueError, match="empty"):
        winner({})
