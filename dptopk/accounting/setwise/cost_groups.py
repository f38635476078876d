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
| n equal ranges | the value function of their recursion, from a ladder that is cached |
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
from dptopk.accounting.pld.loss_components import Grid, LossComponent
from dptopk.accounting.pld.pairs import Pairs, pair_of
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.recursion import FLOOR, INWARD, Layer, Rules, ladder, solve
from dptopk.costs import Charge


@dataclass(frozen=True)
class GroupPair(LossComponent):
    """A pair of laws whose profile, δ as a function of ε, is at least that of a group; taken
    ``count`` times.

    Attributes:
        losses: the finite losses of one copy, shape (n,), rising.
        log_masses: the logarithms of their probabilities under P.
        infinite: the mass at an infinite loss, of one copy.
        count: how many such groups there are.
    """

    losses: Floats
    log_masses: Floats
    infinite: float
    count: int = 1

    def on_grid(self, step: float) -> GroupPair:
        """Return a pair with losses at multiples of ``step`` that dominates this one.

        Its profile consists of the chords of this profile between the multiples.
        """
        first = math.floor(self.losses[0] / step)
        last = math.ceil(self.losses[-1] / step)
        nodes = np.arange(first, last + 1)
        # Moved left by more than the rounding of a product: the profile falls.
        inward = 1 - np.sign(nodes) * 4 * ROUNDOFF
        x = np.minimum(nodes * step * inward, self.losses[-1])
        largest_log = float(np.abs(self.log_masses).max())
        # A value is a sum of up to two terms a loss, each an exponential of a known logarithm.
        rounding = 8 * ROUNDOFF * (16 + 2 * len(self.losses) + largest_log)
        values = np.clip(self._profile(x) * (1 + rounding), FLOOR, 1.0)
        return replace(pair_above(nodes, values, step), count=self.count)

    def _profile(self, x: Floats) -> Floats:
        """Return δ(x) of one copy of the pair at each x up to the last loss, without a margin for
        rounding.

        It is the infinite mass, plus what the profile falls by from x on: from x to the next loss
        l by (1 - e^{x - l}) times the sum Σ e^{l - l_j} p_j from there on. All terms are positive.
        """
        falls, sums_beyond = self._suffix_falls_and_sums()
        next_loss = np.searchsorted(self.losses, x)
        fall_to_next = -np.expm1(x - self.losses[next_loss]) * sums_beyond[next_loss]
        profile: Floats = self.infinite + falls[next_loss] + fall_to_next
        return profile

    def _suffix_falls_and_sums(self) -> tuple[Floats, Floats]:
        """Return, for each loss l, how far the profile falls from l to the last loss, and Σ e^{l -
        l_j} p_j over the losses l_j >= l.

        Both are sums of positive terms, from the last loss backwards.
        """
        gaps = np.diff(self.losses)
        sums_beyond = np.exp(self.log_masses)
        falls = np.zeros(len(sums_beyond))
        for place in reversed(range(len(gaps))):
            gap = gaps[place]
            sum_beyond_gap = sums_beyond[place + 1]
            sums_beyond[place] += sum_beyond_gap * math.exp(-gap)
            falls[place] = falls[place + 1] - math.expm1(-gap) * sum_beyond_gap
        return falls, sums_beyond

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the finite part without the masses that are negligible under the tilt, with error
        bounds; it may be used for upper bounds only.
        """
        # Of a logarithm that was stored, and of what it was computed from.
        errors = 64 * ROUNDOFF * (1 + np.abs(self.log_masses))
        pair = pair_of(self.losses, self.log_masses, self.count, log_error=errors)
        loss_error = 4 * ROUNDOFF * float(np.abs(self.losses).max())
        exact = replace(pair, loss_error=loss_error)
        return [exact.without_negligible_atoms(grid.tilt)]


def pair_above(nodes: NDArray[np.int64], values: Floats, h: float) -> GroupPair:
    """Return a pair whose profile is at least V, for every profile V with V(x_j) <= ``values`` at
    the nodes x_j = nodes · h.

    V is convex in u = e^x with V(u = 0) = 1 and falls, so it lies below the chords from (0, 1)
    through any of the points, and below the last value beyond. Points above their neighbours' chord
    are dropped. Soundness does not rest on these steps: the profile of the masses is computed from
    its positive terms, and all masses are raised by the largest ratio in which it falls short of
    ``values``, or of 1 at u = 0.

    Args:
        nodes: j of x_j, rising.
        values: upper bounds on V at the nodes.
        h: the grid step.

    Raises:
        FloatingPointError: when no finite factor raises the masses enough.
    """
    nodes, values = _without_concave_points(nodes, values, h)
    masses = np.maximum(_slope_changes(nodes, values, h), 0.0)
    losses = nodes * h
    infinite = float(values[-1])
    factor = _lifting_factor(nodes, values, masses, h)
    # A pair needs a loss: where every bound is 1, all the mass is at infinity, and none is here.
    masses[-1] = max(masses[-1], FLOOR)
    positive = masses > 0
    log_masses: Floats = np.log(masses[positive]) + math.log(factor)
    raised_infinite = infinite * factor * (1 + 4 * ROUNDOFF)  # for the rounding of the product
    return GroupPair(np.asarray(losses[positive]), log_masses, raised_infinite)


def _without_concave_points(
    nodes: NDArray[np.int64], values: Floats, h: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return the points without those above the chord of their neighbours, as far as a few passes
    find them; what is left need not be quite convex.

    Args:
        nodes: j of x_j = j h, rising.
        values: upper bounds on V at the nodes.
        h: the grid step.
    """
    for _ in range(tuning.HULL_PASSES):
        convex = _slope_changes(nodes, values, h) >= 0
        convex[-1] = True
        if convex.all():
            break
        nodes = nodes[convex]
        values = values[convex]
    return nodes, values


def _lifting_factor(nodes: NDArray[np.int64], values: Floats, masses: Floats, h: float) -> float:
    """Return the factor, at least 1, by which the masses must be multiplied for their profile to
    reach ``values`` at every node and 1 at u = 0.

    Args:
        nodes: j of x_j = j h, rising.
        values: upper bounds on V at the nodes.
        masses: of the losses x_j under P, beside a mass of the last value at infinity.
        h: the grid step.

    Raises:
        FloatingPointError: when no finite factor does.
    """
    losses = nodes * h
    # Only differences of losses enter, so they may be moved to where their exponentials are least.
    centred = losses - losses[-1] / 2 - losses[0] / 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        under_q = masses * np.exp(-centred)
        sums_beyond = _suffix_sums(under_q) * np.exp(centred)
        gaps = np.diff(nodes) * h
        falls = -np.expm1(-gaps) * sums_beyond[1:]
        profile = np.append(_suffix_sums(falls), 0.0) + values[-1]
        # Left of the first loss the profile has the slope -sums_beyond[0] / u_0.
        at_origin = 1 / float(profile[0] + sums_beyond[0])
        at_nodes = float(np.max(values / profile))
    factor = max(1.0, at_nodes, at_origin)
    if not math.isfinite(factor):
        raise FloatingPointError
    # Two sums with a term a node, of exponentials whose arguments are at most ``widest``.
    widest = float(np.abs(centred).max())
    rounding = 4 * ROUNDOFF * (64 + 2 * len(nodes) + 2 * widest)
    return factor * (1 + rounding)


def _suffix_sums(terms: Floats) -> Floats:
    """Return, for each place, the sum of the terms from that place to the last."""
    return np.cumsum(terms[::-1])[::-1]


def _slope_changes(nodes: NDArray[np.int64], values: Floats, h: float) -> Floats:
    """Return the mass under P at each point: u_j times the change of slope at u_j of the polygon
    that starts at (0, 1) and passes through the points.

    Args:
        nodes: j of x_j = j h, rising.
        values: upper bounds on V at the nodes.
        h: the grid step.
    """
    gaps = np.diff(nodes) * h
    drops = values[:-1] - values[1:]
    to_the_right = drops / np.expm1(gaps)  # -slope · u_j of the chord to the right of point j
    from_origin = 1 - values[0]
    to_the_left = np.append(from_origin, to_the_right * np.exp(gaps))
    return to_the_left - np.append(to_the_right, 0.0)


def pair_of_layer(layer: Layer) -> GroupPair:
    """Return a pair whose profile is at least the value function that ``layer`` bounds
    from above.
    """
    nodes = layer.first + np.arange(len(layer.values))
    return pair_above(nodes, layer.values, layer.h)


@lru_cache(maxsize=64)
def equal_ranges_pair(epsilon: float, count: int, steps: int, *, reach: float) -> GroupPair:
    """Return a pair whose profile is at least V of equal ranges.

    Args:
        epsilon: ε.
        count: the number of BR(ε) costs.
        steps: the number of grid steps to ε.
        reach: the half-width of the windows in standard deviations.
    """
    values = ladder(epsilon, steps, upper=True, reach=reach).value(count)
    return pair_of_layer(values)


@lru_cache(maxsize=32)
def mixed_ranges_pair(
    ranges: tuple[tuple[float, int], ...], steps: int, *, reach: float
) -> GroupPair:
    """Return a pair whose profile is at least V of all the ranges together.

    Args:
        ranges: (ε, count) of each range.
        steps: the grid has ``steps`` to ``2 steps`` steps to the largest ε.
        reach: the half-width of the windows in standard deviations.
    """
    rules = Rules.of(dict(ranges), steps, upper=True, reach=reach)
    return pair_of_layer(solve(rules, tuple(count for _, count in ranges)))


def concentrated_pair(charge: Charge, h: float, reach: float) -> GroupPair:
    """Return a pair whose profile is at least the δ of all costs of a charge together, by their
    Rényi curve.

    The classes of the costs must be closed under swapping the neighbours. The conversion b(x) of
    the summed Rényi curve (CKS20) then bounds δ(x) for x >= 0 in either direction, and 1 - e^x (1 -
    b(-x)) bounds it for x < 0: P(S) - e^x Q(S) = 1 - e^x + e^x (Q(S^c) - e^{-x} P(S^c)).

    Args:
        charge: the costs, of any type with a Rényi curve.
        h: the step of the grid on which the curve is read.
        reach: the largest x that matters.
    """
    last = max(math.ceil(reach / h), 2)  # some nodes, however wide the step
    x = np.arange(last + 1) * h
    right = np.minimum(renyi_curve(log_mgf(charge)).delta(x), 1.0)
    return pair_of_symmetric(right, h)


def pair_of_symmetric(right: Floats, h: float) -> GroupPair:
    """Return a pair whose profile is at least that of a class closed under swapping the neighbours.

    At x < 0 the profile follows from that at -x: δ(x) = 1 - e^x (1 - δ(-x)).

    Args:
        right: upper bounds on δ(x), at most 1, at x = 0, h, 2 h, ...
        h: the grid step.
    """
    last = len(right) - 1
    x = np.arange(1, last + 1) * h
    swapped = np.exp(-x) * (1 - right[1:])
    at_negative = 1 - swapped * INWARD  # INWARD covers the rounding of the exponentials
    at_negative = np.minimum(at_negative * (1 + 8 * ROUNDOFF), 1.0)  # and this of the difference
    values = np.concatenate([at_negative[::-1], right])
    nodes = np.arange(-last, last + 1)
    return pair_above(nodes, np.maximum(values, FLOOR), h)
