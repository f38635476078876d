"""The data on the adaptive optimum: brackets that hold, and known values."""

from __future__ import annotations

import pytest

from dptopk.costs import BoundedRange, Budget, Charge
from dptopk.errors import InvalidParameter
from dptopk.experiments.setwise_data import adaptivity_gaps, affordable, mixes, order_effect, value_in_order


def test_order_effect() -> None:
    row = order_effect([(0.5, 1.0)], [0.0]).iloc[0]
    assert row["rising_lower"] <= 0.2598147 and row["rising_upper"] >= 0.259814  # noqa: PT018 - one bracket
    assert row["falling_upper"] == pytest.approx(0.2449, abs=1e-4)
    assert row["rising_lower"] > row["falling_upper"]


def test_one_range_played_alone() -> None:
    low, high = value_in_order([0.4], 0.1)
    exact = (2.718281828459045**0.2 - 2.718281828459045**0.05) ** 2 / (2.718281828459045**0.4 - 1)
    assert low <= exact * (1 + 1e-12)
    assert exact <= high
    with pytest.raises(InvalidParameter, match="distinct"):
        value_in_order([0.4, 0.4], 0.1)


@pytest.mark.slow
def test_the_gap_is_positive_where_it_is_known_to_be() -> None:
    gap = adaptivity_gaps([4, 10])
    assert (gap["ratio_lower"] <= gap["ratio_upper"]).all()
    assert gap.loc[gap["k"] == 10, "ratio_lower"].item() > 1.1


@pytest.mark.slow
def test_mixes_and_counts() -> None:
    table = mixes(["20*BR(0.1) + 5*DP(0.1)"])
    others = table[["setwise_cdp", "setwise_zcdp", "zcdp_tight", "renyi"]].to_numpy()
    assert (table["optimal_setwise"].to_numpy()[:, None] < others).all()
    counts = affordable([Charge({BoundedRange(0.1): 1})], Budget(1.0, 1e-6), ("opt_kl", "best")).iloc[0]
    assert counts["best"] > 1.5 * counts["opt_kl"]
