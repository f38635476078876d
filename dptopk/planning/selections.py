"""Charge of a plan's selections: as k bounded ranges, or as the clocks that one user can change."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from dptopk._internal.choices import ChargeAs
from dptopk.accounting.bounds import compose
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.accounting.work import OutOfTime, late
from dptopk.costs import BoundedRange, Charge, Cost, ExponentialClockDP
from dptopk.mechanisms.thresholds import special_slots
from dptopk.planning.request import Request, Split

# Clocks are taken where they afford this much more: the comparison is to about a per cent.
LEAST_GAIN = 1.01
# Of what clocks would afford over selections if both were Gaussian: found up to 0.85, for (ε, δ)
# from 0.03 to 10 and from 5e-10 to 5e-3 and up to 100 clocks.
TAIL_FACTOR = 0.9


class Charged(NamedTuple):
    """``gain``: how much larger ε may be than for selections of the same composed cost."""

    charge_as: ChargeAs
    gain: float


def charge_of_selections(request: Request, split: Split) -> Charged:
    """Return the smaller charge at the (ε, δ) of the request, or the requested one.

    ε-BR implies the cost of a clock of ε (docs/notes/clocks.md), so that no fewer clocks than
    selections never pay.
    """
    clocks = _clocks(request)
    ranges = Charged("bounded_range", 1.0)
    auto = request.charge_as == "auto"
    # The gain hardly depends on the share of δ: that of one half is taken for all.
    delta = request.delta / 2 * (split.threshold < 1)
    small = auto and largest_gain(request) < LEAST_GAIN
    if small or request.charge_as == "bounded_range" or clocks is None or not delta > 0:
        return ranges
    try:
        gain = _gain(request.k, clocks, min(request.epsilon or 1.0, 100.0), delta)
    except OutOfTime as cut:  # not cached
        (gain,) = cut.args
    if auto and gain < LEAST_GAIN:
        return ranges
    return Charged("clocks", gain)


def largest_gain(request: Request) -> float:
    """Return about the largest factor, at least 1, by which ε of clocks may be larger than that of
    selections: the loss of a selection has a variance of ε²/4, that of a clock ε².

    Found on a grid, not proven: it decides which designs are priced, never a cost.
    """
    clocks = _clocks(request)
    if request.charge_as == "bounded_range" or not clocks:
        return 1.0
    return max(TAIL_FACTOR * math.sqrt(request.k / clocks) / 2, 1.0)


def _clocks(request: Request) -> int | None:
    """Return how many clocks one user can change; None if there is no limit."""
    if request.domain == "private":
        return special_slots(request.sensitivity, request.d_bar)
    return request.sensitivity.l0


@lru_cache(maxsize=256)
def _gain(k: int, clocks: int, epsilon: float, delta: float) -> float:
    """Return the ε of one of ``clocks`` clocks over that of one of k selections, where each of both
    composes to about (epsilon, delta).

    Args:
        k: how many selections there are.
        clocks: how many clocks one user can change.
        epsilon: that of all selections, or all clocks, together.
        delta: the same.

    Raises:
        OutOfTime: with the ratio found so far.
    """
    mu = gaussian_mu(epsilon=epsilon, delta=delta)
    # A selection has a variance of about ε²/4, a clock of ε², and a tail e^{-x/ε} to the right.
    clock = min(mu / math.sqrt(clocks), epsilon / -math.log(delta))
    selection = _each(BoundedRange, k, epsilon, delta, 2 * mu / math.sqrt(k))
    gain = _each(ExponentialClockDP, clocks, epsilon, delta, clock) / selection
    if late():
        raise OutOfTime(gain)
    return gain


def _each(
    kind: Callable[[float], Cost], times: int, epsilon: float, delta: float, start: float
) -> float:
    """Return the ε of each of several equal costs that compose to about (epsilon, delta), to about
    a per cent; composed ε's grow about in proportion.

    Args:
        kind: makes a cost from its ε.
        times: how many costs there are.
        epsilon: that of all together.
        delta: that of all together.
        start: the ε that is tried first.
    """
    each = start
    for _ in range(8):
        charge = Charge({kind(each): times})
        found = compose(charge, delta=delta, rtol=0.01, effort="quick", lower=False).epsilon
        if abs(found / epsilon - 1) < 0.004:
            break
        each *= min(max(epsilon / found, 0.05), 20.0) if found > 0 else 20.0
    return each
