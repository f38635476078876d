"""Charge of a plan's selections: as k bounded ranges, or as the clocks that one user can change.

k selections by Gumbel noise are a race of exponential clocks, one for each label. The race may be
charged as k selections of bounded range, or as an ``ExponentialClockDP`` for each clock whose rate
one user can change (docs/notes/clocks.md): less where one user touches few labels and k is large.
"""

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
# If both were Gaussian, clocks would afford a larger ε than selections by a certain factor; of that
# factor at most 0.85 was found, for (ε, δ) from 0.03 to 10 and from 5e-10 to 5e-3 and up to 100
# clocks. This is a little more.
TAIL_FACTOR = 0.9
# The ε at which both charges are compared where the total is larger, and where an accuracy is asked
# for, so that there is no ε.
LARGEST_EPSILON = 100.0
USUAL_EPSILON = 1.0
# The ε of equal costs is found to this relative error of their total, in at most MOST_STEPS steps,
# of which none changes it by more than these factors.
SHARE_OFF = 0.004
MOST_STEPS = 8
LARGEST_FACTOR = 20.0
SMALLEST_FACTOR = 0.05


class SelectionCharge(NamedTuple):
    """What selections are charged as.

    Attributes:
        charge_as: "bounded_range" or "clocks".
        gain: how much larger ε may be than for bounded ranges of the same composed cost.
    """

    charge_as: ChargeAs
    gain: float


def charge_of_selections(request: Request, split: Split) -> SelectionCharge:
    """Return what the selections are charged as: whichever of both costs less at the (ε, δ) of the
    request, or the one that was requested.

    A selection of bounded range ε costs no more than a clock of ε (docs/notes/clocks.md), so that
    clocks can only cost less where there are fewer of them than selections. Where there is no limit
    on the clocks, or no δ at which both could be compared, it is bounded ranges whatever was
    requested.

    Args:
        request: the question with its total.
        split: the shares of δ and ρ; where the threshold has all of δ nothing is left to compare.
    """
    clocks = _number_of_clocks(request)
    ranges = SelectionCharge("bounded_range", 1.0)
    if request.charge_as == "bounded_range" or clocks is None or split.threshold >= 1:
        return ranges
    takes_the_less = request.charge_as == "auto"
    if takes_the_less and largest_gain(request) < LEAST_GAIN:
        return ranges
    # The gain depends little on the share of δ: that of one half is taken for all.
    delta = request.delta / 2
    if not delta > 0:
        return ranges
    epsilon = min(request.epsilon or USUAL_EPSILON, LARGEST_EPSILON)
    try:
        gain = _epsilon_ratio(request.k, clocks, epsilon, delta)
    except OutOfTime as cut:  # it carries the ratio found so far, which is not cached
        (gain,) = cut.args
    if takes_the_less and gain < LEAST_GAIN:
        return ranges
    return SelectionCharge("clocks", gain)


def largest_gain(request: Request) -> float:
    """Return about the largest factor, at least 1, by which the ε of selections that are charged as
    clocks may be larger than that of selections charged as bounded ranges.

    The loss of a selection has a variance of ε²/4, that of a clock ε²: if both were Gaussian, k
    selections and c clocks of the same total would have ε's in the ratio sqrt(k/c)/2. That clocks
    afford at most TAIL_FACTOR of it was found on a grid and is not proven. It decides which designs
    are priced, never a cost.
    """
    clocks = _number_of_clocks(request)
    if request.charge_as == "bounded_range" or not clocks:
        return 1.0
    return max(TAIL_FACTOR * math.sqrt(request.k / clocks) / 2, 1.0)


def _number_of_clocks(request: Request) -> int | None:
    """Return how many clocks one user can change: l0 of a public domain, and of a private one as
    many as ``special_slots`` says; None if there is no limit.
    """
    if request.domain == "private":
        return special_slots(request.sensitivity, request.d_bar)
    return request.sensitivity.l0


@lru_cache(maxsize=256)
def _epsilon_ratio(k: int, clocks: int, epsilon: float, delta: float) -> float:
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
    first_for_clock = min(mu / math.sqrt(clocks), epsilon / -math.log(delta))
    first_for_selection = 2 * mu / math.sqrt(k)
    of_selection = _epsilon_of_each(BoundedRange, k, epsilon, delta, first_for_selection)
    of_clock = _epsilon_of_each(ExponentialClockDP, clocks, epsilon, delta, first_for_clock)
    ratio = of_clock / of_selection
    if late():
        raise OutOfTime(ratio)
    return ratio


def _epsilon_of_each(
    kind: Callable[[float], Cost], times: int, epsilon: float, delta: float, start: float
) -> float:
    """Return the ε of each of several equal costs that compose to about (epsilon, delta), to about
    a per cent: an estimate, by a search in which the composed ε is taken to grow in proportion.

    Args:
        kind: the type of the costs, made from an ε.
        times: how many costs there are.
        epsilon: that of all together.
        delta: that of all together.
        start: the ε that is tried first.
    """
    epsilon_of_one = start
    for _ in range(MOST_STEPS):
        charge = Charge({kind(epsilon_of_one): times})
        total = compose(charge, delta=delta, rtol=0.01, effort="quick", lower=False).epsilon
        if abs(total / epsilon - 1) < SHARE_OFF:
            break
        if total > 0:
            epsilon_of_one *= min(max(epsilon / total, SMALLEST_FACTOR), LARGEST_FACTOR)
        else:
            epsilon_of_one *= LARGEST_FACTOR
    return epsilon_of_one
