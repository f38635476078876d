"""Many equal concentrated costs: the game of a few of them, then Theorem H.

The proof of Theorem H (docs/notes/setwise.md) begins with V of no costs, which is below the
Gaussian profile G_s of every variance s. For equal costs it may begin with V of m of them, whose
game bounds it: where V_m <= G_s + η at every x, V_n is at most G_S + η, S being the variance to
which the other n - m steps lead from s, because a step of G_s + η is one of G_s, plus η.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats, outward
from dptopk.accounting.curves import Query
from dptopk.accounting.gaussian.pair import gaussian_curve, gaussian_log_delta
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame
from dptopk.accounting.setwise.majorants import ValueTable
from dptopk.accounting.setwise.zcdp_gaussian import LARGEST_RHO, variance_after

# Of a Gaussian's profile: far more than ``gaussian_log_delta`` and an exponential may be too large
# where x is at most FARTHEST standard deviations.
PROFILE_ERROR = 1e-9
FARTHEST = 40.0
GAP_MARGIN = 1e-9  # relative, of the distance between a chord and a profile


class CoveringGaussian(NamedTuple):
    """A Gaussian loss with a little δ besides, which together bound costs at every ε.

    Attributes:
        variance: of the loss.
        missing: δ that is added to the Gaussian's profile.
    """

    variance: float
    missing: float

    def answer(self, query: Query) -> float:
        """Return an upper bound on the δ or ε asked for; inf where the δ that is missing is all."""
        curve = gaussian_curve(float(outward(math.sqrt(self.variance))))
        if query.epsilon is not None:
            delta = float(curve.delta(query.epsilon)) + self.missing
            return min(float(outward(delta)), 1.0)
        delta_left = (query.delta - self.missing) * (1 - ROUNDOFF)
        return float(curve.epsilon(delta_left)) if delta_left > 0 else math.inf


def covering_gaussian(game: ConcentratedGame, rho: float, count: int) -> CoveringGaussian | None:
    """Return the Gaussian of the least variance that was found to bound ``count`` equal costs; None
    where none was. The game is tried with each number of costs that it has.

    Args:
        game: a game of the first few of the costs, of one class and without ranges.
        rho: the smallest ρ for which the cost is known to be ρ-zCDP, at most LARGEST_RHO.
        count: how many costs there are, at least as many as the game has.
    """
    best: CoveringGaussian | None = None
    if not 0 < rho <= LARGEST_RHO:
        return None
    for played in range(1, game.counts[0] + 1):
        table = game.tables((played,)).upper
        missing = float(table.values[-1])  # the game knows no smaller bound on V far out
        start = _covering_variance(table, missing, 2 * rho * played, rho)
        if start is None:
            continue
        variance = variance_after(rho, (count - played) * rho, start)
        if best is None or variance < best.variance:
            best = CoveringGaussian(variance, missing)
    return best


def _covering_variance(
    table: ValueTable, missing: float, variance: float, rho: float
) -> float | None:
    """Return about the least variance s >= ρ for which V <= G_s + η at every x is proven, found by
    halving; None where even the largest that is tried is too small.

    Args:
        table: upper bounds on V.
        missing: η, at least the last bound of the table.
        variance: an estimate of that of the loss, where the search begins.
        rho: ρ of one cost.
    """
    low = variance
    high = variance + tuning.MOST_EXCESS * rho
    if not _is_covered(table, missing, high):
        return None
    for _ in range(tuning.VARIANCE_HALVINGS):
        middle = (low + high) / 2
        if _is_covered(table, missing, middle):
            high = middle
        else:
            low = middle
    return max(high, rho)


def _is_covered(table: ValueTable, missing: float, variance: float) -> bool:
    """Return whether V <= G_s + η at every x is proven.

    Beyond the last node V <= η. Between nodes V, convex in u = e^x, is below the chord of its
    bounds, and the chord of H(u) = G_s(ln u) exceeds it by at most (Δu)²/8 times the largest H'' =
    p_s(x)/u², p_s being the density of the loss. At x < 0 the symmetry of V and of G_s decides.

    Args:
        table: upper bounds on V.
        missing: η, at least the last bound of the table.
        variance: s.
    """
    x = np.arange(len(table.values)) * table.h
    if not x[-1] <= FARTHEST * math.sqrt(variance):
        return False
    log_profile = gaussian_log_delta(math.sqrt(variance), epsilon=x)
    profile: Floats = np.exp(log_profile) * (1 - PROFILE_ERROR)
    # The largest density in the two cells beside each node.
    nearest = np.clip(variance / 2, x - table.h, x + table.h)
    exponents = -((nearest - variance / 2) ** 2) / (2 * variance)
    density = np.exp(exponents) / math.sqrt(2 * math.pi * variance)
    gap = math.expm1(table.h) ** 2 / 8 * density * (1 + GAP_MARGIN)
    return bool(np.all(table.values <= profile - gap + missing * (1 - PROFILE_ERROR)))
