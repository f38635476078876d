"""Calibration: the most that can be done within a budget, on the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable

from dptopk.accounting.bounds import compose
from dptopk.accounting.budget import Budget
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter

__all__ = ["calibrate"]


def calibrate(
    make_charge: Callable[[float], Charge],
    budget: Budget,
    *,
    interaction: str = "setwise",
    rtol: float = 1e-4,
    max_seconds: float = 10.0,
) -> float:
    """The largest x > 0 found for which make_charge(x) stays within a budget under the tightest valid bound.

    Args:
        make_charge: the charge as a function of a scale x in (0, inf); must cost more as x grows.
        budget: the total (ε, δ).
        interaction: as for ``compose``.
        rtol: relative width in x at which the search stops.
        max_seconds: for each evaluation of ``compose``.

    Returns:
        x, checked: compose(make_charge(x), delta=budget.delta) is at most budget.epsilon.

    Raises:
        InvalidParameter: when even the smallest scale tried (1e-12) costs more than the budget.
    """

    def fits(x: float) -> bool:
        found = compose(make_charge(x), delta=budget.delta, interaction=interaction, max_seconds=max_seconds)
        return found.epsilon <= budget.epsilon

    low, high = 1.0, 1.0
    while not fits(low):
        low, high = low / 16, low
        if low < 1e-12:
            raise InvalidParameter(f"budget {budget} is too small: no charge of this form stays within it")
    while low == high or (high < 1e12 and fits(high)):
        low, high = high, high * 16
    while high / low > 1 + rtol:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
