"""Many different ranges at once: coins round each of them to one of a few, which are then played
for prices.

*Lemma (coins).* Let ε' be a random range with E[e^{-ε'}] <= e^{-ε}. Then step_ε(V) <=
E[step_{ε'}(V)] for all V. *Theorem E.* Let each range of a registration E be replaced by such a
random one, all coins independent and tossed before the first answer. Then V_E <= E[V_{E'}], hence
V_E <= E[W_S] with S the sum of the prices of what the coins chose (``price_game``). Proofs:
docs/notes/setwise.md.

For a < ε < b the coin shows b with probability (e^{-a} - e^{-ε}) / (e^{-a} - e^{-b}). What it costs
is of second order, about (b - ε)(ε - a)/4 of variance: a hundred different ranges are as good as
six, and the state is one number.

The second half (``tuned_levels``) chooses rounding levels for two or three ranges with many costs
each. It is a guess: any levels are sound by Theorem E. Where many costs meet, a range is worth what
it adds to the log-MGF of the loss at the order that decides. Prices that are proportional to that
leave nothing to gain by choosing one range rather than another. Small integers are not quite
proportional; all levels then pay in the unit of the one that is cheapest for its worth, and the
excess of the others is noise. A coin between two neighbouring prices pays what a range is worth on
average, and loses only to second order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.renyi.renyi_curves import log_mgf
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.price_game import weight_layers, window_of
from dptopk.accounting.setwise.recursion import Layer, Rules
from dptopk.accounting.work import raise_if_late
from dptopk.costs import BoundedRange, Charge

NEXT_TO = 1e-9  # relative: a range this close to a level is taken to be that level, for an estimate
LEVEL_ROUNDING = 1e-12  # relative, far above that of a product of a step and a number


@dataclass(frozen=True)
class RoundingLevels:
    """The few ranges, *levels*, that coins may choose: multiples of one grid step, each with its
    price; both rising.

    Attributes:
        steps: the number of grid steps of each level.
        prices: the integer price of each level, about proportional to a power of the steps near 2.
        noise: a guess at the share of the variance that coins, prices and the grid add.
        scale: the last level in units of the largest range of the group; at least 1.
    """

    steps: tuple[int, ...]
    prices: tuple[int, ...]
    noise: float = 0.0
    scale: float = 1.0

    @property
    def ratio(self) -> float:
        """Return the ratio of the largest level to the smallest; a range below the smallest level
        is merely rounded up.
        """
        return self.steps[-1] / self.steps[0]

    def rules(self, largest: float, reach: float) -> Rules:
        """Return the levels as ranges on their grid, with the last level ``scale`` times
        ``largest``, or a rounding more.

        Args:
            largest: the largest ε that is rounded.
            reach: the half-width of the windows in standard deviations.
        """
        last = max(largest * self.scale, largest)
        grid = Rules.of({last: 1}, self.steps[-1], upper=True, reach=reach)
        # Each range is no more than what its steps play.
        ranges = tuple(math.nextafter(n * grid.h, 0.0) for n in self.steps)
        return Rules(ranges, self.steps, grid.h, upper=True, reach=reach)


def law_of_price_sum(
    ranges: Mapping[float, int], levels: Floats, prices: tuple[int, ...]
) -> tuple[int, Floats]:
    """Return the law of the sum of prices S, of all ranges after their coins: its smallest possible
    value, and the masses of that value and of all larger ones in turn, rounded up.

    W_S rises with S: so the chance of the larger price is rounded up, and so are all masses
    afterwards, by the rounding of the sums.

    Args:
        ranges: ε's with counts; none above the last level by more than a rounding.
        levels: rising, shape (n,); each no larger than the range that is played for it.
        prices: the price of each level.
    """
    least = 0
    masses = np.ones(1)
    error = 1  # relative, in roundoffs
    for epsilon, count in ranges.items():
        place = int(np.searchsorted(levels, epsilon))
        # Below the first level, or above the last by a rounding: that level is played.
        if place in (0, len(levels)):
            least += count * prices[min(place, len(levels) - 1)]
            continue
        larger = _chance_of_larger(epsilon, float(levels[place - 1]), float(levels[place]))
        coin = np.zeros(prices[place] - prices[place - 1] + 1)
        coin[0] = 1 - larger
        coin[-1] = larger
        least += count * prices[place - 1]
        masses, error = _sum_with_coins(masses, error, coin, count)
    return least, masses * (1 + 2 * ROUNDOFF * error)


def _chance_of_larger(epsilon: float, a: float, b: float) -> float:
    """Return the chance, rounded up, with which a coin rounds ε to b rather than to a, a < ε < b.

    It is the p of Lemma 3 (Theorem E), which solves e^{-ε} = (1 - p) e^{-a} + p e^{-b}. Differences
    and expm1 are within 36 roundoffs; 1 - p is exact to one more.

    Args:
        epsilon: ε.
        a: the smaller level.
        b: the larger level.
    """
    chance = math.expm1(a - epsilon) / math.expm1(a - b)
    return min(chance * (1 + 64 * ROUNDOFF), 1.0)


def _sum_with_coins(masses: Floats, error: int, coin: Floats, count: int) -> tuple[Floats, int]:
    """Return the law of a sum with several equal coins added, and a bound on its relative error in
    units of roundoff. The law of 2^i coins is that of 2^(i-1) coins added to itself.

    Args:
        masses: the law of the sum, the probabilities of 0, 1, ...
        error: a bound on the relative error of these, in units of roundoff.
        coin: the law of one coin, the probabilities of 0, 1, ..., each off by one unit at most.
        count: the number of coins.
    """
    coin_error = 1
    for bit in range(count.bit_length()):
        if count >> bit & 1:
            masses = np.convolve(masses, coin)
            error += coin_error + len(coin) + 1
        coin = np.convolve(coin, coin)
        coin_error = 2 * coin_error + len(coin) + 1
    return masses, error


@lru_cache(maxsize=32)
def weighted_ranges_pair(
    ranges: tuple[tuple[float, int], ...], levels: RoundingLevels, *, reach: float
) -> GroupPair:
    """Return the pair of E[W_S], an upper bound on V of the ranges (ε, count) together
    (Theorem E).

    Args:
        ranges: (ε, count) of each range.
        levels: the levels that coins round them to.
        reach: the half-width of the windows in standard deviations.
    """
    rules = levels.rules(max(epsilon for epsilon, _ in ranges), reach)
    layers = weight_layers(rules, levels.prices)
    return Money.of(ranges, rules, levels.prices).pair(rules, levels.prices, layers)


@dataclass(frozen=True)
class Money:
    """The law of the sum of prices S without its ends, rounded up: W rises with S.

    Attributes:
        first: the smallest value; smaller sums count as this one.
        masses: the probabilities of ``first``, ``first`` + 1, ...
        mass_beyond: the probability of a larger sum, with which everything is taken to be lost
            (δ = 1).
    """

    first: int
    masses: Floats
    mass_beyond: float

    @classmethod
    def of(
        cls, ranges: tuple[tuple[float, int], ...], rules: Rules, prices: tuple[int, ...]
    ) -> Money:
        """Return the law without the sums that are exceeded with about the probability of
        ``rules.reach`` standard deviations.

        Args:
            ranges: (ε, count) of each range.
            rules: the levels as ranges, and their grid.
            prices: the price of each level.
        """
        least, masses = law_of_price_sum(dict(ranges), np.array(rules.epsilons), prices)
        rounding = 2 * ROUNDOFF * len(masses)
        sums_from = np.cumsum(masses[::-1])[::-1]
        tails = np.append(sums_from, 0.0) * (1 + rounding)  # the mass from each place on
        whole = tails[0]
        negligible = math.exp(-(rules.reach**2) / 2)
        nearly_all = whole * (1 - tuning.LOW_WEIGHT_MASS)
        last = int(np.flatnonzero(tails > negligible).max())
        first = int(np.flatnonzero(tails > nearly_all).max())
        # Smaller sums count as the first one, with what the rounding of the tails may hide.
        masses[first] += (whole - tails[first]) + 2 * rounding * whole
        return cls(least + first, masses[first : last + 1], float(tails[last + 1]))

    @property
    def last(self) -> int:
        """Return the largest value of S that is not counted as lost."""
        return self.first + len(self.masses) - 1

    def pair(self, rules: Rules, prices: tuple[int, ...], layers: Iterable[Layer]) -> GroupPair:
        """Return a pair whose profile is at least E[W_S].

        Args:
            rules: the levels as ranges, and their grid.
            prices: the price of each level.
            layers: upper bounds on W_0, W_1, ... in order.
        """
        low, high = window_of(rules, prices, self.last)
        nodes = np.arange(low, high + 1)
        values = np.full(len(nodes), self.mass_beyond)
        # Layers of sums below ``first`` are only needed to compute those after them.
        masses = np.concatenate([np.zeros(self.first), self.masses])
        for mass, layer in zip(masses, layers, strict=False):
            raise_if_late()
            if mass:
                values += mass * layer.values_between(low, high)
        values *= 1 + 4 * ROUNDOFF * (len(self.masses) + 3)  # a sum with a product for each mass
        return pair_above(nodes, np.minimum(values, 1.0), rules.h)


Ranges = tuple[tuple[float, int], ...]


@lru_cache(maxsize=128)
def tuned_levels(ranges: Ranges, order: float) -> tuple[RoundingLevels, ...]:
    """Return rounding levels for a few ranges, by rising work and falling noise; any levels give a
    sound bound.

    Args:
        ranges: (ε, count) of each, ε rising.
        order: λ; a range is taken to be worth its log-MGF at this order.
    """
    chosen = []
    least_noise = math.inf
    candidates = _candidate_levels(_Band(ranges, order))
    by_work = sorted(candidates, key=lambda candidate: (candidate.work, candidate.noise))
    for candidate in by_work:
        if candidate.noise < least_noise * tuning.LESS_NOISE:
            least_noise = candidate.noise
            chosen.append(candidate.levels)
    return tuple(chosen)


class _Candidate(NamedTuple):
    """Rounding levels that may be chosen.

    Attributes:
        work: a number that rises about as the work of their game; only the order of candidates
            counts.
        noise: about the share of the variance that they add.
        levels: the levels.
    """

    work: float
    noise: float
    levels: RoundingLevels


class _Band:
    """Ranges that are rounded together, and what a range of any size is worth.

    Args:
        ranges: (ε, count) of each range, ε rising.
        order: λ; a range is worth its log-MGF at this order, between some points by interpolation.

    Attributes:
        epsilons: the ε's, rising.
        counts: the number of costs of each.
        count: the number of all costs.
        spread: Σ n ε², four times a bound on the variance of the loss.
        total: what all costs together are worth.
    """

    def __init__(self, ranges: Ranges, order: float) -> None:
        """Compute the worth of ranges around those of the band."""
        self.epsilons = np.array([epsilon for epsilon, _ in ranges])
        self.counts = np.array([float(count) for _, count in ranges])
        self.count = float(self.counts.sum())
        self.spread = float(self.counts @ self.epsilons**2)
        # Levels lie about between these ends; beyond them the worth of the end is taken.
        epsilons = np.geomspace(self.epsilons[0] / 4, self.epsilons[-1] * 2, tuning.WORTH_POINTS)
        worths = [_log_mgf_of_range(epsilon, order) for epsilon in epsilons.tolist()]
        self._log_epsilons = np.log(epsilons)
        self._log_worths = np.log(worths)
        self.total = float(self.counts @ self.worth(self.epsilons))

    def worth(self, epsilons: Floats) -> Floats:
        """Return what each of the ranges ``epsilons`` is worth."""
        log_worths = np.interp(np.log(epsilons), self._log_epsilons, self._log_worths)
        return np.exp(log_worths)

    def shares(self, top: int) -> Floats:
        """Return the ranges that are worth 1, 2, ..., top parts of what the largest is worth, in
        units of the largest.
        """
        worth_of_largest = self.worth(self.epsilons[-1:])
        log_worths = np.log(worth_of_largest * np.arange(1, top + 1) / top)
        log_epsilons = np.interp(log_worths, self._log_worths, self._log_epsilons)
        return np.exp(log_epsilons) / self.epsilons[-1]


def _log_mgf_of_range(epsilon: float, order: float) -> float:
    """Return an upper bound on the log-MGF of the loss of one ε-BR mechanism at an order λ."""
    charge = Charge({BoundedRange(epsilon): 1})
    return float(log_mgf(charge)(np.array([order]))[0])


def _candidate_levels(band: _Band) -> Iterator[_Candidate]:
    """Yield levels with the prices 1 to top, for several tops and grids that reach about the
    largest range.

    A grid's step h is such that one of the levels is one of the ranges: that range is not rounded.
    """
    epsilons = band.epsilons.tolist()
    largest = epsilons[-1]
    for steps in _steps_of_levels(band):
        last = int(steps[-1])
        last_but_one = int(steps[-2])
        for h in {epsilon / n for epsilon in epsilons for n in steps.tolist()}:
            if last_but_one * h < largest <= last * h * (1 + LEVEL_ROUNDING):
                yield _candidate_at(band, steps, h)


def _steps_of_levels(band: _Band) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of grid steps to levels that are worth about 1, 2, ..., top parts of the
    largest range.
    """
    for top in range(2, tuning.HIGHEST_TOP + 1):
        shares = band.shares(top)
        for steps_to_largest in tuning.TUNED_STEPS:
            # A step lower than the price is worth costs that range only; a step higher would make
            # all others dear.
            steps = np.floor(steps_to_largest * shares * (1 + tuning.NEARLY)).astype(np.int64)
            rising = bool((np.diff(steps) > 0).all())
            if steps[0] >= 1 and rising:
                yield steps


class _RoundingCoins(NamedTuple):
    """How ranges are rounded to the levels with prices 1, 2, 3, ...

    Attributes:
        mean_prices: the mean price of each range.
        shown: the places of the levels that a coin may show.
    """

    mean_prices: Floats
    shown: NDArray[np.int64]

    @classmethod
    def of(cls, epsilons: Floats, levels: Floats) -> _RoundingCoins:
        """Return the coins of Lemma 3, which round each range to one of the two levels
        around it.
        """
        upper_places = np.searchsorted(levels, epsilons * (1 - NEXT_TO))
        lower_places = np.maximum(upper_places - 1, 0)
        # A range below the first level, or next to one, is rounded up without a coin.
        no_coin = (upper_places == 0) | (levels[upper_places] < epsilons * (1 + NEXT_TO))
        # A coin shows b > ε with the chance (e^{a - ε} - 1) / (e^{a - b} - 1), a < ε.
        distances = np.where(no_coin, 0.0, levels[lower_places] - epsilons)
        gaps = np.where(no_coin, 1.0, levels[lower_places] - levels[upper_places])
        chance_of_upper = np.where(no_coin, 1.0, np.expm1(distances) / np.expm1(gaps))
        # The level at place i has the price i + 1.
        mean_prices: Floats = (lower_places + 1) + chance_of_upper * (upper_places - lower_places)
        return cls(mean_prices, np.unique(np.concatenate([upper_places, lower_places[~no_coin]])))


def _candidate_at(band: _Band, steps: NDArray[np.int64], h: float) -> _Candidate:
    """Return the levels ``steps`` · h with prices 1, 2, 3, ..., without those that no coin shows,
    with estimates of their work and noise.

    If every price were exactly a unit times what the range is worth, the mean of the sum of prices
    would be the unit times what all ranges are worth; by what share it is more is noise.

    Args:
        band: the ranges.
        steps: the numbers of grid steps to the levels, rising.
        h: the grid step.
    """
    levels = np.asarray(steps * h, dtype=np.float64)
    coins = _RoundingCoins.of(band.epsilons, levels)
    prices = coins.shown + 1
    # All levels pay in the unit of the one that is cheapest for its worth; the excess of the others
    # is noise.
    worths = band.worth(levels[coins.shown])
    unit = float((prices / worths).min())
    mean_sum_of_prices = float(band.counts @ coins.mean_prices)
    last = int(steps[-1])
    noise = mean_sum_of_prices / (unit * band.total) - 1
    # A step adds CELL h² to the variance, which is spread / 4.
    noise += 4 * tuning.CELL * h * h * band.count / band.spread
    # The nodes of a layer are taken to rise as the steps to the last level do: a guess, with which
    # candidates for one band are compared.
    work_of_step = tuning.PER_STEP + tuning.PER_NODE * tuning.LAYER_NODES * last
    scale = max(last * h / float(band.epsilons[-1]), 1.0) * (1 + LEVEL_ROUNDING)
    shown_steps = tuple(steps[coins.shown].tolist())
    chosen = RoundingLevels(shown_steps, tuple(prices.tolist()), noise, scale)
    return _Candidate(mean_sum_of_prices * len(prices) * work_of_step, noise, chosen)
