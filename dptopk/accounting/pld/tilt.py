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
# ln θ is looked for between these; every θ gives a bound.
SMALLEST_LOG_TILT = -14.0
LARGEST_LOG_TILT = 9.0
TINY_DELTA = 1e-300


def log_peak(tilt: float) -> float:
    """Return the logarithm of the largest e^{-θ d} (1 - e^{-d}) over d >= 0: θ ln θ - (1 + θ) ln(1
    + θ), and 0 at θ = 0.
    """
    if tilt > 0:
        return -tilt * math.log1p(1 / tilt) - math.log1p(tilt)
    return 0.0


def log_peaks(tilts: Sequence[float]) -> list[float]:
    """Return ``log_peak`` of several tilts, all positive."""
    return [-tilt * math.log1p(1 / tilt) - math.log1p(tilt) for tilt in tilts]


class _HasLogMgf(Protocol):
    """A loss whose log moment generating function is known."""

    def log_mgf(self, tilt: float) -> float:
        """Return ln E[e^{θL}] at θ = ``tilt``."""
        ...


def best_tilt(
    pairs: Sequence[_HasLogMgf], *, delta: float | None = None, epsilon: float | None = None
) -> float:
    """Return a tilt θ near the one at which Chernoff's bound δ <= F(ε) (module ``lattice``) is
    sharpest at the δ or ε asked for; the masses of a lattice should be tilted by it.

    Args:
        pairs: the parts of the product.
        delta: the δ at which ε is asked for; None or 0 where ``epsilon`` is given.
        epsilon: the ε at which δ is asked for, or None.
    """
    # Where δ is 0 no tilt is the best one: that of a tiny δ is taken. With ``epsilon`` it is not
    # used.
    log_delta = math.log(delta or TINY_DELTA)

    def objective(log_tilt: float) -> float:
        """Return the bound on ln δ, where ε is given, or on ε, at this ln θ; inf or NaN where the
        product has no moment of this order.
        """
        tilt = math.exp(log_tilt)
        log_scale = math.fsum(item.log_mgf(tilt) for item in pairs) + log_peak(tilt)
        if epsilon is not None:
            return log_scale - tilt * epsilon
        return (log_scale - log_delta) / tilt

    def has_moment(log_tilt: float) -> bool:
        """Return whether the product has a moment of this order."""
        return math.isfinite(objective(log_tilt))

    low = SMALLEST_LOG_TILT
    high = LARGEST_LOG_TILT
    if not has_moment(high):  # a loss with exponential tails has moments below some θ only
        high, _ = bisect(has_moment, low, high, halvings=15)  # to less than 1e-3 of ln θ
    accuracy = min(TILT_ACCURACY, (high - low) / 2)
    return math.exp(_golden_section_minimum(objective, low, high, accuracy))


def _golden_section_minimum(
    function: Callable[[float], float], low: float, high: float, accuracy: float
) -> float:
    """Return a place near which a unimodal function is lowest, by golden sections; importing an
    optimizer of SciPy would take longer than the search.

    Args:
        function: the function, falling and then rising.
        low: the left end of the interval.
        high: its right end.
        accuracy: the length of the last interval.
    """
    share = (math.sqrt(5) - 1) / 2  # of the golden section: one of the two points is used again
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
