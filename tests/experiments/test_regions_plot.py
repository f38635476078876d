"""The figures of Cadir-Najib-Shkel 2026: their statements hold, and they can be drawn."""

from __future__ import annotations

import numpy as np
import pytest

from dptopk.experiments import load

NAMES = ("cns-figure-1", "cns-figure-2", "cns-figure-3")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_statements_hold_and_the_figure_is_drawn(quick, name):
    experiment, data = load(name), quick.table(name)
    assert all(line.agrees in (True, None) for line in experiment.compare(data))
    assert any(line.agrees for line in experiment.compare(data))
    for _, curve in data.groupby([column for column in ("k", "curve") if column in data]):
        assert (np.diff(curve["type_1"]) >= 0).all()
        assert (np.diff(curve["type_2"]) <= 0).all()
    assert (quick.folder / f"{name}.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "curve"), [*zip(NAMES, ("mixture", "exact", "Proposition 2"), strict=True)]
)
def test_statements_are_tested(quick, name, curve):
    """With one curve pushed out of place the comparison must fail."""
    experiment, data = load(name), quick.table(name)
    data.loc[data["curve"].str.startswith(curve), "type_2"] = 0.0
    assert not all(line.agrees in (True, None) for line in experiment.compare(data))
