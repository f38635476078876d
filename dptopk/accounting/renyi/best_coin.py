"""The coin under which labels appear earliest, for an (ε, δ) of all labels of one user together.

Coins of one Rényi order (docs/notes/partition-selection.md). The order and a first divergence are
those of coins whose divergences are added up; from there the divergence grows to what the game over
the levels of all labels allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dptopk._internal.search import bisect, bracket
from dptopk.accounting.renyi.coin_chances import MOST_LEVELS, coin_chances, levels_about
from dptopk.accounting.renyi.label_coins import game_delta
from dptopk.costs import LabelCoinsDP
from dptopk.errors import InvalidParameter

# The share of δ for labels that one user alone has, where the order is chosen, where divergences
# are added and where the game is played: labels appear earliest near these, and hardly later around
# them.
OWN_FIRST = 0.5
OWN_ADDED = 0.3
OWN = 0.8
# By what the best order of a coin that is played is lower, above 1.
LOWER = 0.93
# ln(order - 1) + ln ε - ln ln(1/δ): the first places to look for the best order, and the last step.
ORDERS = (-0.4, 0.4, 1.2, 2.0)
LAST_STEP = 0.05
# A share of the divergence that makes up for the chords between the statements.
CHORDS = 3e-4
# The divergence that the game allows is looked for from START times that of added ones on: first
# with every n-th level, n at most SKIP and such that THROUGH levels are left, where ln δ is about
# MISSED too small, give or take WITHIN.
START = 1.08
SKIP = 4
THROUGH = 30
MISSED = 0.03
WITHIN = 0.05
# In the end ln δ is at most UNSPENT below what is allowed, or above it at a divergence larger by
# the share NEXT.
UNSPENT = 0.004
NEXT = 5e-4
# A step is at most so large a share of the divergence; and how many games there are at most.
STRIDE = 0.1
GAMES = 20
# Most labels of one user; from MOST_EPSILON on more buys next to nothing, below LEAST_EPSILON coins
# are too long.
MOST_LABELS = 10**6
MOST_EPSILON = 1e3
LEAST_EPSILON = 1e-6


@lru_cache(maxsize=256)
def best_coin(epsilon: float, delta: float, labels: int) -> LabelCoinsDP:
    """Return the best of the tried coins: labels appear earliest, with δ(epsilon) <= delta for n
    labels.

    Where the game is too large to be played, that is the coin which added divergences allow.

    Raises:
        InvalidParameter: when no coin was found, with about the epsilon that is needed; for more
        than 10^6 labels.
    """
    if labels > MOST_LABELS:
        raise InvalidParameter(
            f"l0 must be at most {MOST_LABELS} to show labels by coins, got {labels}"
        )
    if epsilon < LEAST_EPSILON:
        raise _refusal(epsilon, delta, labels)
    epsilon = min(epsilon, MOST_EPSILON)
    try:
        plain = _best_plain(epsilon, delta, labels)
        found = min([plain, *_played(epsilon, delta, plain)], key=_half)
        coin_chances(found.order, found.divergence, found.first)
    except InvalidParameter as reason:
        raise _refusal(epsilon, delta, labels) from reason
    return found


def _refusal(epsilon: float, delta: float, labels: int) -> InvalidParameter:
    """Return the message of a refusal, with approximately the ε that is needed."""

    def too_small(epsilon: float) -> bool:
        coins = (
            _by_divergences(epsilon, delta, labels, _order(epsilon, delta, place), OWN_ADDED)
            for place in ORDERS
        )
        return all(
            levels_about(coin.order, coin.divergence, coin.first) > MOST_LEVELS
            for coin in coins
            if coin
        )

    least = max(epsilon, LEAST_EPSILON)
    _, high = bisect(
        too_small, *bracket(too_small, 2 * least, least=least), rtol=0.05, geometric=True
    )
    return InvalidParameter(
        f"epsilon={epsilon:g} is too small for delta={delta:g} and {labels} labels of one user: "
        f"coins of at most "
        f"{MOST_LEVELS} steps need an epsilon of about {high:.2g}"
    )


def _played(epsilon: float, delta: float, plain: LabelCoinsDP) -> list[LabelCoinsDP]:
    """The coin of the largest divergence that the game allows; none where it is too large to be
    played.
    """
    labels = plain.labels
    order = _plain(1 + LOWER * (plain.order - 1))
    first = _plain(OWN * delta / labels)

    def above(every: int) -> Callable[[float], float]:
        """By how much ln δ is above what is allowed, for a divergence."""
        return lambda divergence: math.log(
            game_delta(order, divergence, first, labels, epsilon, every) / delta
        )

    levels = len(coin_chances(order, plain.divergence, first).shown)
    if above(levels)(plain.divergence) == math.inf:
        return []
    every = max(min(levels // THROUGH, SKIP), 1)
    slope = labels * (order - 1)
    rise = math.nan
    at = START * plain.divergence
    if every > 1:
        _, at, rise = _crossing(above(every), at, slope, rise, -MISSED, WITHIN)
    found, _, _ = _crossing(above(1), at, slope, rise, -UNSPENT / 2, UNSPENT / 2)
    if found:
        return [LabelCoinsDP(order, found, first, labels)]
    return []


def _crossing(
    above: Callable[[float], float], at: float, slope: float, rise: float, aim: float, close: float
) -> tuple[float, float, float]:
    """(the largest place seen below 0, about where it is the aim, the slope there) of a function
    that rises.

    By secants from a place ``at``, where it rises by ``rise`` if that is known, and should by
    ``slope``. It may be flat below 0 and steep above: where it rises less than it should, only a
    place just beyond that is above 0 ends it.
    """
    low = 0.0
    high = math.inf
    before = (0.0, 0.0)
    stride = NEXT
    for _ in range(GAMES):
        at = _plain(at)
        value = above(at)
        low, high = (max(low, at), high) if value <= 0 else (low, at)
        high = high if low < high else math.inf
        if before[0] and at != before[0]:
            rise = (value - before[1]) / (at - before[0])
        flat = not rise > slope / 2
        before = (at, value)
        rate = slope if math.isnan(rise) else min(max(rise, slope / 2), 2 * slope)
        step = (aim - value) / rate
        if (abs(value - aim) <= close and not flat) or high <= low * (1 + NEXT):
            return low, at + step, rise
        if flat and value <= 0 and not math.isnan(rise):
            step = max(step, stride * at)
            stride = 2 * stride
        at += min(max(step, -STRIDE * at), STRIDE * at)
        if high < math.inf and not low < at < high:
            at = (low + high) / 2
    return low, at, rise


@lru_cache(maxsize=256)
def _best_plain(epsilon: float, delta: float, labels: int) -> LabelCoinsDP:
    """The coin of the best order by added divergences, to a few per cent; by halving steps of
    ln(order - 1).

    Raises:
        InvalidParameter: when no order leaves a divergence, or all coins have too many levels.
    """

    def half(place: float) -> float:
        coin = _by_divergences(epsilon, delta, labels, _order(epsilon, delta, place), OWN_FIRST)
        if coin:
            return _half(coin)
        return math.inf

    step = ORDERS[1] - ORDERS[0]
    best, least = min(((place, half(place)) for place in ORDERS), key=lambda pair: pair[1])
    while step > LAST_STEP and least < math.inf:
        step /= 2
        tries = [(place, half(place)) for place in (best - step, best + step)]
        best, least = min([(best, least), *tries], key=lambda pair: pair[1])
    coin = _by_divergences(epsilon, delta, labels, _order(epsilon, delta, best), OWN_ADDED)
    if coin is None or least == math.inf:
        raise InvalidParameter("no order leaves a coin")
    return coin


def _order(epsilon: float, delta: float, place: float) -> float:
    return _plain(1 + math.exp(place) * math.log(1 / delta) / epsilon)


def _by_divergences(
    epsilon: float, delta: float, labels: int, order: float, own: float
) -> LabelCoinsDP | None:
    """The coin of an order by added divergences alone, with this share of δ for labels that one
    user alone has.

    None where nothing is left for the divergence.
    """
    # The sum of divergences that converts to (ε, (1 - own) δ): Canonne-Kamath-Steinke 2020,
    # Proposition 12.
    log_delta = math.log((1 - own) * delta)
    excess = log_delta + math.log(order - 1) - order * math.log1p(-1 / order)
    added = epsilon + excess / (order - 1)
    divergence = (1 - CHORDS) * added / labels
    if divergence > 0:
        return LabelCoinsDP(order, _plain(divergence), _plain(own * delta / labels), labels)
    return None


def _half(coin: LabelCoinsDP) -> float:
    """The level at which the chance, drawn as a line between levels, is 1/2."""
    try:
        shown = coin_chances(coin.order, coin.divergence, coin.first, 0.5).shown
    except InvalidParameter:  # too many levels
        return math.inf
    return len(shown) - 1 - float((shown[-1] - 0.5) / (shown[-1] - shown[-2]))


def _plain(value: float) -> float:
    """Six digits."""
    return float(f"{value:.5e}")
