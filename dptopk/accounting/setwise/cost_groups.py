"""Groups: every part of a charge as one certified pair, so that one product bounds the whole
(Theorem C).

Split the registered multiset into groups E_1, ..., E_r. Then V_E <= V_{E_1} ⊗ ... ⊗ V_{E_r}
(docs/notes/setwise.md), and any larger profile may take the place of V_{E_i}. A profile is a convex
function D(u) = p_inf + Σ q_j (u_j - u)_+ of u = e^x: the slope changes of the chords between upper
bounds at the points u_j are masses under Q at the losses ln u_j, times u_j those under P.
``pair_above`` reads them off and then checks, with positive terms only, that their profile is
nowhere below the bounds it came from.

| group | its profile |
|---|---|
| n equal ranges | the value function of their recursion, from a ladder that is kept |
| a few different ranges | the value function over all multisets that may be left |
| all ZCDP and CDP costs | the convex minorant of the Rényi conversion; for x < 0 by symmetry |
| many small costs | one Gaussian (Theorem H, ``zcdp_gaussian``) |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.pld.loss_components import Grid, LossComponent, trimmed
from dptopk.accounting.pld.pairs import Pairs, pair_of
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.recursion import FLOOR, INWARD, Layer, Rules, ladder, solve
from dptopk.costs import Charge


@dataclass(frozen=True)
class GroupPair(LossComponent):
    """A pair whose profile is at least that of a group, taken ``count`` times.

    Attributes:
        losses, log_masses: shape (n,), rising; what is finite.
        infinite: the mass at an infinite loss, of one copy.
        count: how many such groups there are.
    """

    losses: Floats
    log_masses: Floats
    infinite: float
    count: int = 1

    def on_grid(self, step: float) -> GroupPair:
        """The pair on the multiples of a step: chords of its profile between them, so that it
        dominates this one.

        Between two losses the profile falls by (1 - e^{x - l}) times what is beyond, all terms
        positive.
        """
        first = math.floor(self.losses[0] / step)
        last = math.ceil(self.losses[-1] / step)
        nodes = np.arange(first, last + 1)
        inward = 1 - np.sign(nodes) * 4 * ROUNDOFF
        x = np.minimum(nodes * step * inward, self.losses[-1])
        largest_log = float(np.abs(self.log_masses).max())
        rounding = 8 * ROUNDOFF * (16 + 2 * len(self.losses) + largest_log)
        values = np.clip(self._profile(x) * (1 + rounding), FLOOR, 1.0)
        return replace(pair_above(nodes, values, step), count=self.count)

    def _profile(self, x: Floats) -> Floats:
        """The profile of one copy at each x up to the last loss, but for rounding."""
        falls, beyond = self._falls_and_beyond()
        right = np.searchsorted(self.losses, x)
        fall_before = np.expm1(x - self.losses[right]) * beyond[right]
        profile: Floats = self.infinite + falls[right] - fall_before
        return profile

    def _falls_and_beyond(self) -> tuple[Floats, Floats]:
        """Of each loss l: how far the profile falls from there on, and what is beyond,
        Σ e^{l - l_j} p_j over the losses l_j >= l.
        """
        gaps = np.diff(self.losses)
        beyond = np.exp(self.log_masses)
        falls = np.zeros(len(beyond))
        for at in reversed(range(len(gaps))):
            gap = gaps[at]
            beyond_gap = beyond[at + 1]
            beyond[at] += beyond_gap * math.exp(-gap)
            falls[at] = falls[at + 1] - math.expm1(-gap) * beyond_gap
        return falls, beyond

    def pairs(self, grid: Grid) -> list[Pairs]:
        """The finite part, without what is negligible under the tilt; valid from above only."""
        errors = 64 * ROUNDOFF * (1 + np.abs(self.log_masses))
        pair = pair_of(self.losses, self.log_masses, self.count, log_error=errors)
        loss_error = 4 * ROUNDOFF * float(np.abs(self.losses).max())
        return [trimmed(replace(pair, loss_error=loss_error), grid.tilt)]


def pair_above(nodes: NDArray[np.int64], values: Floats, h: float) -> GroupPair:
    """A pair whose profile is at least V wherever V is a profile with V(x_j) <= ``values`` at x_j =
    nodes · h.

    V is convex in u with V(u = 0) = 1 and falls, so it lies below the chords from (0, 1) through
    any of the points, and below the last value beyond. Points above their neighbours' chord are
    dropped. What is left is a guess as far as soundness goes: the profile of the masses found is
    computed from its positive terms and all masses are raised by the largest ratio in which it
    falls short.
    """
    nodes, values = _hull(nodes, values, h)
    masses = np.maximum(_slope_changes(nodes, values, h), 0.0)
    losses = nodes * h
    infinite = float(values[-1])
    short = _shortfall(nodes, values, masses, h)
    masses[-1] = max(masses[-1], FLOOR)  # where every bound is 1, all the mass is at infinity
    found = masses > 0
    log_masses: Floats = np.log(masses[found]) + math.log(short)
    raised_infinite = infinite * short * (1 + 4 * ROUNDOFF)
    return GroupPair(np.asarray(losses[found]), log_masses, raised_infinite)


def _hull(nodes: NDArray[np.int64], values: Floats, h: float) -> tuple[NDArray[np.int64], Floats]:
    """The points that are left after a few passes that drop those above their neighbours' chord."""
    for _ in range(tuning.HULL_PASSES):
        kept = _slope_changes(nodes, values, h) >= 0
        kept[-1] = True
        if kept.all():
            break
        nodes = nodes[kept]
        values = values[kept]
    return nodes, values


def _shortfall(nodes: NDArray[np.int64], values: Floats, masses: Floats, h: float) -> float:
    """The factor, at least 1, that raises the profile of masses to the values everywhere.

    Raises:
        FloatingPointError: no finite factor does.
    """
    losses = nodes * h
    # Only differences of losses enter, so they may be moved to where their exponentials are least.
    centred = losses - losses[-1] / 2 - losses[0] / 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        under_q = masses * np.exp(-centred)
        beyond = _sums_from(under_q) * np.exp(centred)
        gaps = np.diff(nodes) * h
        falls = -np.expm1(-gaps) * beyond[1:]
        profile = np.append(_sums_from(falls), 0.0) + values[-1]
        at_origin = 1 / float(profile[0] + beyond[0])
        at_nodes = float(np.max(values / profile))
    short = max(1.0, at_nodes, at_origin)
    if not math.isfinite(short):
        raise FloatingPointError
    widest = float(np.abs(centred).max())
    rounding = 4 * ROUNDOFF * (64 + 2 * len(nodes) + 2 * widest)
    return short * (1 + rounding)


def _sums_from(terms: Floats) -> Floats:
    """The sum of the terms from each one on."""
    return np.cumsum(terms[::-1])[::-1]


def _slope_changes(nodes: NDArray[np.int64], values: Floats, h: float) -> Floats:
    """Masses under P at the points: u_j times the change of slope there of the chords from (0, 1)
    and on.
    """
    gaps = np.diff(nodes) * h
    drops = values[:-1] - values[1:]
    to_the_right = drops / np.expm1(gaps)  # -slope · u_j of the chord to the right of point j
    from_origin = 1 - values[0]
    to_the_left = np.append(from_origin, to_the_right * np.exp(gaps))
    return to_the_left - np.append(to_the_right, 0.0)


def pair_of_layer(layer: Layer) -> GroupPair:
    """The pair of a value function."""
    nodes = layer.first + np.arange(len(layer.values))
    return pair_above(nodes, layer.values, layer.h)


@lru_cache(maxsize=64)
def equal_ranges_pair(epsilon: float, count: int, steps: int, *, reach: float) -> GroupPair:
    """The pair of ``count`` × BR(ε): a value function of its ladder with ``steps`` grid steps
    to ε.
    """
    values = ladder(epsilon, steps, upper=True, reach=reach).value(count)
    return pair_of_layer(values)


@lru_cache(maxsize=32)
def mixed_ranges_pair(
    ranges: tuple[tuple[float, int], ...], steps: int, *, reach: float
) -> GroupPair:
    """The pair of (ε, count), ... together, ``steps`` or more to the largest ε."""
    rules = Rules.of(dict(ranges), steps, upper=True, reach=reach)
    return pair_of_layer(solve(rules, tuple(count for _, count in ranges)))


def concentrated_pair(charge: Charge, h: float, reach: float) -> GroupPair:
    """The pair of everything in a charge whose classes are closed under swapping the neighbours, by
    its Rényi curve.

    b(x) <= Σ-conversion (CKS20) bounds δ(x) for x >= 0 in either direction, and so 1 - e^x (1 -
    b(-x)) does for x < 0: P(S) - e^x Q(S) = 1 - e^x + e^x (Q(S^c) - e^{-x} P(S^c)).

    Args:
        charge: the costs, of any type with a Rényi curve.
        h: the step of the grid on which the curve is read.
        reach: the largest x that matters.
    """
    last = max(math.ceil(reach / h), 2)
    x = np.arange(last + 1) * h
    right = np.minimum(renyi_curve(log_mgf(charge)).delta(x), 1.0)
    return pair_of_symmetric(right, h)


def pair_of_symmetric(right: Floats, h: float) -> GroupPair:
    """A pair whose profile is at least that of a class closed under swapping the neighbours.

    Args:
        right: upper bounds on δ(x), at most 1, at x = 0, h, 2 h, ...
        h: the grid step.
    """
    last = len(right) - 1
    x = np.arange(1, last + 1) * h
    swapped = np.exp(-x) * (1 - right[1:])
    left = 1 - swapped * INWARD
    left = np.minimum(left * (1 + 8 * ROUNDOFF), 1.0)
    values = np.concatenate([left[::-1], right])
    nodes = np.arange(-last, last + 1)
    return pair_above(nodes, np.maximum(values, FLOOR), h)
