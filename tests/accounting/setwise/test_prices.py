"""The integer prices of the price game keep to their limit and near to their proportions."""

from __future__ import annotations

import numpy as np
import pytest

from dptopk.accounting.setwise.price_game import proportional_prices
from dptopk.accounting.setwise.tuning import FINEST_WEIGHT, WEIGHT_MISFIT


def test_a_price_that_is_rounded_up_keeps_the_limit():
    worth = {"a": 1.0, "b": 3.18872}
    limit = 9.6939  # above 3 · 3.18872, and below 10, to which that is rounded
    assert max(proportional_prices(worth, limit).values()) <= limit


@pytest.mark.parametrize("seed", range(20))
def test_the_limit_is_kept_unless_the_least_prices_exceed_it(seed):
    rng = np.random.default_rng(seed)
    worth = {place: float(rng.uniform(1, 8)) for place in range(3)}
    limit = float(rng.uniform(4, 40))
    prices = proportional_prices(worth, limit)
    least = max(proportional_prices(worth, 0).values())
    assert max(prices.values()) <= max(limit, least)


def test_without_a_limit_prices_are_near_the_proportions():
    prices = proportional_prices({"a": 1.0, "b": 3.18872})
    assert abs(prices["b"] / prices["a"] / 3.18872 - 1) <= WEIGHT_MISFIT
    assert 1 <= prices["a"] <= FINEST_WEIGHT
