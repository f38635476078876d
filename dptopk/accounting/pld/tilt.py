"""The exponential tilt of a product of pairs: F, what a unit of tilted mass is worth, and where it
is sharpest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from dptopk._internal.search import bisect

# How closely the logarithm of the best tilt is looked for.
TILT_ACCURACY = 0.02


def log_peak(tilt: float) -> float:
    """Ln of the largest e^{-θ d} (1 - e^{-d}) over d >= 0: θ ln θ - (1 + θ) ln(1 + θ); 0 at θ =
    0.
    """
    if tilt > 0:
        return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)
    return 0.0


def log_peaks(tilts: Sequence[float]) -> list[float]:
    """``log_peak`` of several tilts, all positive."""
    return [-tilt * math.log1p(1 / tilt) - math.log1p(tilt) for tilt in tilts]


class _HasLogMgf(Protocol):
    def log_mgf(self, tilt: float) -> float: ...


def best_tilt(
    pairs: Sequence[_HasLogMgf], *, delta: float | None = None, epsilon: float | None = None
) -> float:
    """The θ whose bound δ <= F(ε) is sharpest at the δ or ε asked for: there the masses should be
    centred.
    """

    def objective(log_tilt: float) -> float:
        tilt = math.exp(log_tilt)
        log_scale = math.fsum(item.log_mgf(tilt) for item in pairs) + log_peak(tilt)
        if epsilon is not None:
            return log_scale - tilt * epsilon
        return (log_scale - math.log(delta or 1e-300)) / tilt

    low = -14.0
    high = 9.0
    if not math.isfinite(
        objective(high)
    ):  # a loss with exponential tails: only tilts below some θ have a moment
        high, _ = bisect(
            lambda log_tilt: math.isfinite(objective(log_tilt)), low, high, halvings=15
        )
    return math.exp(_lowest(objective, low, high, min(TILT_ACCURACY, (high - low) / 2)))


def _lowest(function: Callable[[float], float], low: float, high: float, accuracy: float) -> float:
    """About where a unimodal function is lowest, by golden sections; SciPy's optimizers take long
    to be imported.
    """
    share = (math.sqrt(5) - 1) / 2
    left = high - share * (high - low)
    right = low + share * (high - low)
    at_left = function(left)
    at_right = function(right)
    while high - low > accuracy:
        if at_left <= at_right:
            high = right
            right = left
            at_right = at_left
            left = high - share * (high - low)
            at_left = function(left)
        else:
            low = left
            left = right
            at_left = at_right
            right = low + share * (high - low)
            at_right = function(right)
    if at_left <= at_right:
        return left
    return right
