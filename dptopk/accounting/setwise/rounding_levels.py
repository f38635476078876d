"""Rounding levels for two or three ranges with many costs each: a guess at the ones that cost least.

Any levels are sound (Theorem E, ``randomized_rounding``); what they cost is known well enough to choose. Where many
costs meet, a range is worth as much as it adds to the log-MGF of the loss at the order that decides. Prices that are
proportional to that leave nothing to gain by choosing one range rather than another; with small integers they are not,
and the excess is what all together pay, in the unit of the cheapest. A coin between two neighbouring prices pays what
a range is worth on average, and loses only to second order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.renyi.composition import log_mgf
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.randomized_rounding import RoundingLevels
from dptopk.costs import BoundedRange, Charge

Ranges = tuple[tuple[float, int], ...]


@lru_cache(maxsize=128)
def tuned(ranges: Ranges, order: float) -> tuple[RoundingLevels, ...]:
    """Anchors for ranges (ε, count), ε rising, worth their log-MGF at the order.

    Each takes more work than the one before, and adds less noise.
    """
    found, least = [], math.inf
    for _, noise, levels in sorted(_candidates(_Band(ranges, order)), key=lambda one: one[:2]):
        if noise < least * tuning.LESS_NOISE:
            least = noise
            found.append(levels)
    return tuple(found)


class _Band:
    """Ranges, their counts, and what a range is worth, by interpolation."""

    def __init__(self, ranges: Ranges, order: float) -> None:
        self.epsilons = np.array([epsilon for epsilon, _ in ranges])
        self.counts = np.array([float(count) for _, count in ranges])
        epsilons = np.geomspace(self.epsilons[0] / 4, self.epsilons[-1] * 2, tuning.WORTH_POINTS)
        at = np.array([order])
        worths = [float(log_mgf(Charge({BoundedRange(epsilon): 1}))(at)[0]) for epsilon in epsilons.tolist()]
        self._log_epsilons, self._log_worths = np.log(epsilons), np.log(worths)
        self.total = float(self.counts @ self.worth(self.epsilons))

    def worth(self, epsilons: Floats) -> Floats:
        """What each is worth."""
        return np.exp(np.interp(np.log(epsilons), self._log_epsilons, self._log_worths))

    def shares(self, top: int) -> Floats:
        """The ranges worth 1, 2, ..., top parts of what the largest is, in units of it."""
        logs = np.log(self.worth(self.epsilons[-1:]) * np.arange(1, top + 1) / top)
        return np.exp(np.interp(logs, self._log_worths, self._log_epsilons)) / self.epsilons[-1]


def _candidates(band: _Band) -> Iterator[tuple[float, float, RoundingLevels]]:
    """(work, noise, anchors) for a top price, grid steps to it, and a range that is one of the anchors itself."""
    for top in range(2, tuning.HIGHEST_TOP + 1):
        shares = band.shares(top)
        for N in tuning.TUNED_STEPS:
            # A step lower than the price is worth costs that range only; a step higher would make all others dear.
            steps = np.floor(N * shares * (1 + tuning.NEARLY)).astype(int)
            if steps[0] < 1 or not (np.diff(steps) > 0).all():
                continue
            largest, next_largest = int(steps[-1]), int(steps[-2])
            for h in {epsilon / n for epsilon in band.epsilons.tolist() for n in steps.tolist()}:
                if next_largest * h < band.epsilons[-1] <= largest * h * (1 + 1e-12):
                    yield _judged(band, steps, h)


def _judged(band: _Band, steps: NDArray[np.int64], h: float) -> tuple[float, float, RoundingLevels]:
    """The anchors ``steps`` · h with prices 1, 2, 3, ..., without those that are not used, and what they come to."""
    epsilons, levels = band.epsilons, steps * h
    above = np.searchsorted(levels, epsilons * (1 - 1e-9))
    below = np.maximum(above - 1, 0)
    alone = (above == 0) | (levels[above] < epsilons * (1 + 1e-9))
    gaps = np.where(alone, 1.0, levels[below] - levels[above])
    larger = np.where(alone, 1.0, np.expm1(np.where(alone, 0.0, levels[below] - epsilons)) / np.expm1(gaps))
    paid = (below + 1) + larger * (above - below)
    used = np.unique(np.concatenate([above, below[~alone]]))
    unit = float(((used + 1) / band.worth(levels[used])).min())
    layers, N = float(band.counts @ paid), int(steps[-1])
    noise = layers / (unit * band.total) - 1
    noise += 4 * tuning.CELL * h * h * float(band.counts.sum()) / float(band.counts @ epsilons**2)
    work = layers * len(used) * (tuning.PER_STEP + tuning.PER_NODE * tuning.LAYER_NODES * N)
    scale = max(N * h / float(epsilons[-1]), 1.0) * (1 + 1e-12)
    return work, noise, RoundingLevels(tuple(steps[used].tolist()), tuple((used + 1).tolist()), noise, scale)
