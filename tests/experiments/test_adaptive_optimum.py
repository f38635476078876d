"""The data on the adaptive optimum: brackets that hold, and known values."""

from __future__ import annotations

import pytest

from dptopk.errors import InvalidParameter
from dptopk.experiments.adaptivity import row_of_gaps
from dptopk.experiments.affordable_queries import row_of_numbers
from dptopk.experiments.range_order import COLUMNS, delta_in_order, row_of_bounds
from dptopk.experiments.setwise_mixes import BOUNDS, bounds_of


def test_order_effect() -> None:
    row = dict(zip(COLUMNS, row_of_bounds((0.5, 1.0, 0.0)), strict=True))
    # one bracket
    assert row["rising_lower"] <= 0.2598147 and row["rising_upper"] >= 0.259814  # noqa: PT018
    assert row["falling_upper"] == pytest.approx(0.2449, abs=1e-4)
    assert row["rising_lower"] > row["falling_upper"]


def test_one_range_played_alone() -> None:
    low, high = delta_in_order([0.4], 0.1)
    exact = (2.718281828459045**0.2 - 2.718281828459045**0.05) ** 2 / (2.718281828459045**0.4 - 1)
    assert low <= exact * (1 + 1e-12)
    assert exact <= high
    with pytest.raises(InvalidParameter, match="distinct"):
        delta_in_order([0.4, 0.4], 0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "least"), [(4, 0.0), (10, 1.1)])
def test_the_gap_is_positive_where_it_is_known_to_be(k: int, least: float) -> None:
    gap = row_of_gaps((0.1, k))
    assert least < gap["ratio_lower"] <= gap["ratio_upper"]


@pytest.mark.slow
def test_mixes_and_counts() -> None:
    found = bounds_of("20*BR(0.1) + 5*DP(0.1)")
    assert all(found["lower"] <= found["optimal_setwise"] < found[bound] for bound in BOUNDS)
    counts = row_of_numbers(1.0)
    assert counts["best"] > 1.5 * counts["opt_kl"]
