"""Which private labels there are, without counts: a coin for each, as likely as its number of users allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dptopk import _validate as validate
from dptopk.accounting.renyi.label_coins import CHANCE_ROUNDING, FINE, Chances, coin_chances, label_coins_statements
from dptopk.costs import ApproxDP, Charge, LabelCoinsDP
from dptopk.errors import InvalidParameter
from dptopk.histogram import Histogram, Sensitivity
from dptopk.mechanisms.base import add_remove
from dptopk.mechanisms.exact import bernoulli
from dptopk.mechanisms.random import Bits, random_bits
from dptopk.mechanisms.thresholds import present_slots
from dptopk.mechanisms.whole import in_label_order
from dptopk.release import Release

__all__ = ["PartitionSelection"]

# The share of δ for labels that one user alone has, where the game is played and where divergences are added: labels
# appear earliest near these, and hardly later around them.
OWN, OWN_ADDED = 0.8, 0.3
# By what the best order of a coin that is played is lower, above 1.
LOWER = 0.93
# The divergence that the game allows lies between these multiples of the one that adding up allows; how finely it is
# looked for, on what grid first, and how far above what that grid finds.
LEAST, MOST, HALVINGS, ROUGH = 0.8, 1.3, 7, 0.15
CLOSE, FEW = 0.03, 5
# A share of the divergence that makes up for the chords between the statements.
CHORDS = 3e-4
# Parts of a smaller δ would be subnormal floats, whose rounding is no small share of them.
LEAST_DELTA = 1e-300


@dataclass(frozen=True, kw_only=True)
class PartitionSelection:
    """The set of labels that many users have: each present label is shown by a coin; needs the whole histogram.

    No counts and no order: what that saves goes into the chance to appear. A label with τ users or less is shown with
    the chance q, and every τ more raise its chance as far as (epsilon, delta) allows. Charge: ApproxDP(epsilon, delta)
    for l0 = 1, where the coin is the best there is; else one LabelCoinsDP, which composes to at most (epsilon, delta).
    l0 finite. Neighbours: add or remove one user. Whether the histogram is whole is a fact about how it was made, not
    one to be read off the data.

    Args:
        epsilon, delta: of the whole answer; delta in [1e-300, 1/2).

    Source: l0 = 1: Desfontaines et al. 2022, Theorem 1. Above: coins of one Rényi order (Harrison-Manurangsi
    2026), charged by a game over the levels of all labels of a user: docs/partition-selection.md.

    >>> mechanism = PartitionSelection(epsilon=1.0, delta=1e-6)
    >>> [mechanism.appears_at(Sensitivity(l0=l0), probability=0.5) for l0 in (1, 5, 10)]
    [14, 38, 47]
    """

    epsilon: float
    delta: float
    d_bar = None  # all of the histogram takes part

    def __post_init__(self) -> None:
        delta = validate.probability(allow_zero=False, delta=self.delta)
        if not LEAST_DELTA <= delta < 0.5:
            raise InvalidParameter(f"delta must be at least {LEAST_DELTA} and below 1/2, got {delta}")
        validate.assign(self, epsilon=validate.positive(epsilon=self.epsilon), delta=delta)

    def coin(self, sensitivity: Sensitivity) -> LabelCoinsDP | None:
        """The coin of several labels; None for l0 = 1.

        Raises:
            InvalidParameter: when l0 is None, or there is no coin for so many labels at this (epsilon, delta).
        """
        labels = add_remove(sensitivity).l0
        if labels is None:
            raise InvalidParameter("l0 must be finite to show labels by coins")
        return best_coin(self.epsilon, self.delta, labels) if labels > 1 else None

    def chances(self, sensitivity: Sensitivity) -> Chances:
        """The chances of levels 0, 1, ...; a label of count c has the level ⌈c/τ⌉, the last level all above it."""
        coin = self.coin(sensitivity)
        if coin is None:
            return coin_chances(math.inf, self.epsilon, self.delta * (1 - CHANCE_ROUNDING))
        return coin_chances(coin.order, coin.divergence, coin.first)

    def charge(self, sensitivity: Sensitivity, *, labels: int | None = None) -> Charge:  # noqa: ARG002
        """One ApproxDP or one LabelCoinsDP, whatever ``labels``.

        Raises:
            InvalidParameter: as ``coin`` does.
        """
        return Charge({self.coin(sensitivity) or ApproxDP(self.epsilon, self.delta): 1})

    def appears_at(self, sensitivity: Sensitivity, *, probability: float = 0.95) -> int:
        """The smallest count at which a label is shown with at least this probability, in (0, 1)."""
        probability = validate.probability(allow_zero=False, probability=probability)
        level = int(np.argmax(self.chances(sensitivity).shown >= probability))
        return (level - 1) * sensitivity.linf + 1

    def check(self, histogram: Histogram) -> None:
        """Raise whatever ``release`` would raise for this histogram; nothing is drawn."""
        present_slots(histogram, self)
        self.charge(histogram.sensitivity)

    def release(self, histogram: Histogram, rng: np.random.Generator | None = None) -> Release:
        """The labels whose coins say so, in label order; perhaps none.

        Args:
            histogram: rows with count 0 are not present and are ignored.
            rng: a generator for tests and experiments (the release says so); None = a secure source.

        Raises:
            InvalidParameter: when rows were cut off, or as ``coin`` does, before anything is drawn.
        """
        seen = present_slots(histogram, self)
        sensitivity = histogram.sensitivity
        shown = self.tossed(sensitivity, seen.counts, random_bits(rng))
        return Release.drawn(
            histogram,
            rng,
            labels=in_label_order(tuple(seen.labels[shown].tolist())),
            charge=self.charge(sensitivity),
            mechanism=self,
            note="a set, in label order: ranks mean nothing",
        )

    def tossed(self, sensitivity: Sensitivity, counts: npt.NDArray[np.int64], bits: Bits) -> npt.NDArray[np.bool_]:
        """Which labels are shown, shape (n,), for their counts, shape (n,)."""
        chances = self.chances(sensitivity)
        level = np.minimum(-(-counts // sensitivity.linf), len(chances.shown) - 1)
        likely = chances.shown[level] > chances.hidden[level]
        rare = np.where(likely, chances.hidden[level], chances.shown[level])
        drawn: npt.NDArray[np.bool_] = bernoulli(rare, bits) ^ likely
        return drawn


@lru_cache(maxsize=256)
def best_coin(epsilon: float, delta: float, labels: int) -> LabelCoinsDP:
    """The coin under which labels appear earliest, of those tried, with δ(epsilon) <= delta for so many labels.

    The order is near the best one where Rényi divergences are added up; the divergence then grows to what the game
    allows. Where that is too large to be played, the coin that added divergences allow is the better one.

    Raises:
        InvalidParameter: when no coin was found.
    """
    order = _best_order(epsilon, delta, labels)
    plain = _by_divergences(epsilon, delta, labels, order, OWN_ADDED)
    order, first = _plain(1 + LOWER * (order - 1)), _plain(OWN * delta / labels)

    def fits(divergence: float, grid: float) -> bool:
        return _delta_at(epsilon, label_coins_statements(order, divergence, first, labels, grid)) <= delta

    low, high = LEAST * plain.divergence, MOST * plain.divergence
    low = _halved(lambda divergence: fits(divergence, ROUGH), low, high, HALVINGS)
    low = _halved(lambda divergence: fits(divergence, FINE), low, low * (1 + CLOSE), FEW)
    low = _plain(low * (1 - 2e-6))
    played = [LabelCoinsDP(order, low, first, labels)] if fits(low, FINE) else []
    return min([plain, *played], key=lambda coin: _half(coin.order, coin.divergence, coin.first))


def _halved(fits: Callable[[float], bool], low: float, high: float, times: int) -> float:
    for _ in range(times):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@lru_cache(maxsize=256)
def _best_order(epsilon: float, delta: float, labels: int) -> float:
    """The order at which coins by added divergences are the best, to a few per cent; by halving steps from the middle.

    Raises:
        InvalidParameter: when no order leaves a divergence.
    """

    def half(place: float) -> float:
        try:
            coin = _by_divergences(epsilon, delta, labels, order(place), 0.5)
        except InvalidParameter:
            return math.inf
        return _half(coin.order, coin.divergence, coin.first)

    def order(place: float) -> float:
        return _plain(1 + math.exp(place) * math.log(1 / delta) / epsilon)

    step = 0.8
    best, least = min(((place, half(place)) for place in np.arange(-0.4, 2.1, step).tolist()), key=lambda pair: pair[1])
    while step > 0.05:
        step /= 2
        tries = [(place, half(place)) for place in (best - step, best + step)]
        best, least = min([(best, least), *tries], key=lambda pair: pair[1])
    if least == math.inf:
        raise InvalidParameter(f"epsilon={epsilon} is too small for delta={delta} and {labels} labels")
    return order(best)


def _by_divergences(epsilon: float, delta: float, labels: int, order: float, own: float) -> LabelCoinsDP:
    """The coin of an order by added divergences alone, with this share of δ for labels that one user alone has.

    Raises:
        InvalidParameter: when the divergence would not be above 0.
    """
    divergence = (1 - CHORDS) * _renyi_divergence(epsilon, (1 - own) * delta, order) / labels
    return LabelCoinsDP(order, _plain(divergence), _plain(own * delta / labels), labels)


def _renyi_divergence(epsilon: float, delta: float, order: float) -> float:
    """The sum of divergences that converts to (epsilon, delta) (Canonne-Kamath-Steinke 2020, Proposition 12)."""
    return epsilon + (math.log(delta) + math.log(order - 1) - order * math.log1p(-1 / order)) / (order - 1)


def _half(order: float, divergence: float, first: float) -> float:
    """The level at which the chance, drawn as a line between levels, is 1/2."""
    try:
        shown = coin_chances(order, divergence, first, 0.5).shown
    except InvalidParameter:  # too many levels
        return math.inf
    return len(shown) - 1 - float((shown[-1] - 0.5) / (shown[-1] - shown[-2]))


def _delta_at(epsilon: float, statements: tuple[tuple[float, float], ...]) -> float:
    """The chord in e^ε between the statements around ε."""
    epsilons, deltas = np.array(statements)[::-1].T
    return float(np.interp(math.exp(min(epsilon, 700.0)), np.exp(np.minimum(epsilons, 700.0)), deltas))


def _plain(value: float) -> float:
    """Six digits."""
    return float(f"{value:.5e}")
