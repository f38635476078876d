"""A way to find labels that some code has no branch for is refused by name, not taken for another."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from dptopk._internal.choices import Finder
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.event_counts import finding_sensitivity
from dptopk.planning import prediction, ways
from dptopk.planning.prediction import Scene
from dptopk.planning.two_phase import _split_in_words, plan_two_phases
from dptopk.planning.ways import Way

UNKNOWN = "dice"


def test_a_way_has_a_known_finder():
    with pytest.raises(InvalidParameter, match=UNKNOWN):
        Way(UNKNOWN, 0.5, 0.5, "gaussian", 2)


@pytest.fixture
def half_known(monkeypatch):
    """A way with a finder that has its part of δ, and no mechanism and no prediction."""
    monkeypatch.setitem(ways.FINDING_DELTA, UNKNOWN, 0.5)
    return Way(UNKNOWN, 0.5, 0.5, "gaussian", 2)


def test_no_mechanism_is_made_for_an_unknown_finder(half_known):
    under = finding_sensitivity(2, 1, weights=False)
    with pytest.raises(InvalidParameter, match=UNKNOWN):
        ways._mechanism_that_finds(half_known, 0.1, 1e-6, under)


def test_no_threshold_is_predicted_for_an_unknown_finder(half_known):
    scene = Scene(1, Budget(1.0, 1e-6), users=np.zeros((1, 1)), drawn=None)
    with pytest.raises(InvalidParameter, match=UNKNOWN):
        prediction.threshold(scene, half_known)


@pytest.mark.parametrize(
    ("find", "counting"), [("uncapped", "gaussian"), ("coins", None), ("threshold", "capped")]
)
def test_a_way_that_needs_selections_has_a_share_for_them(find, counting):
    with pytest.raises(InvalidParameter, match="selecting"):
        Way(find, 0.5, 0.0, counting, 2)


def test_capped_counts_that_are_shown_leave_nothing_to_count_again():
    split = _split_in_words(Way("threshold", 1.0, 0.2, "capped", 2))
    assert split.startswith("all of the budget")
    assert "the rest" not in split


@pytest.mark.parametrize("find", get_args(Finder))
@pytest.mark.parametrize("documented", [Way, plan_two_phases])
def test_every_finder_is_explained_where_python_states_it(find, documented):
    assert f'"{find}"' in documented.__doc__
