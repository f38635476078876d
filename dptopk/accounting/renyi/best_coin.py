"""The coin under which labels appear earliest, for an (ε, δ) of all labels of one user together.

Coins of one Rényi order (docs/notes/partition-selection.md). The order and a first divergence are
those of coins whose divergences are added up; from there the divergence grows to what the game over
the levels of all labels allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from dptopk._internal.search import bisect, bracket
from dptopk.accounting.renyi.coin_chances import MOST_LEVELS, coin_chances, levels_about
from dptopk.accounting.renyi.label_coins import game_delta
from dptopk.costs import LabelCoinsDP
from dptopk.errors import InvalidParameter

# The share of δ for labels that one user alone has, where the order is chosen, where divergences
# are added and where the game is played: labels appear earliest near these, and hardly later around
# them.
OWN_SHARE_FOR_ORDER = 0.5
OWN_SHARE_ADDED = 0.3
OWN_SHARE_PLAYED = 0.8
# By what the best order of a coin that is played is lower, above 1.
ORDER_FACTOR = 0.93
# ln(order - 1) + ln ε - ln ln(1/δ): the first places to look for the best order, and the last step.
ORDERS = (-0.4, 0.4, 1.2, 2.0)
LAST_STEP = 0.05
# A share of the divergence that makes up for the chords between the statements.
CHORD_SHARE = 3e-4
# The divergence that the game allows is looked for from GAME_START times that of added ones on:
# first with every n-th level, n at most MOST_SKIPPED and such that LEAST_ROUGH_LEVELS levels are
# left, where ln δ is about ROUGH_ERROR too small, give or take ROUGH_TOLERANCE.
GAME_START = 1.08
MOST_SKIPPED = 4
LEAST_ROUGH_LEVELS = 30
ROUGH_ERROR = 0.03
ROUGH_TOLERANCE = 0.05
# In the end ln δ is at most MOST_UNSPENT below what is allowed, or above it at a divergence that is
# larger by the share LEAST_STEP.
MOST_UNSPENT = 0.004
LEAST_STEP = 5e-4
# A step is at most so large a share of the divergence; and how many games there are at most.
LARGEST_STEP = 0.1
MOST_GAMES = 20
# Most labels of one user; from MOST_EPSILON on more buys next to nothing, below LEAST_EPSILON coins
# are too long.
MOST_LABELS = 10**6
MOST_EPSILON = 1e3
LEAST_EPSILON = 1e-6


@lru_cache(maxsize=256)
def best_coin(epsilon: float, delta: float, labels: int) -> LabelCoinsDP:
    """Return the coin whose labels appear earliest (at the lowest level with chance 1/2) among the
    tried coins with δ(epsilon) <= delta for n labels.

    Args:
        epsilon: ε of all labels of one user together.
        delta: δ of all labels of one user together.
        labels: n, the largest number of labels of one user.

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
        coin_by_divergences = _best_by_divergences(epsilon, delta, labels)
        best = min(
            [coin_by_divergences, *_coins_by_game(epsilon, delta, coin_by_divergences)],
            key=_half_level,
        )
        coin_chances(best.order, best.divergence, best.first)  # raises where it has too many levels
    except InvalidParameter as reason:
        raise _refusal(epsilon, delta, labels) from reason
    return best


def _refusal(epsilon: float, delta: float, labels: int) -> InvalidParameter:
    """Return the error that says that ε is too small, with about the ε that is needed.

    Args:
        epsilon: ε of all labels of one user together.
        delta: δ of all labels of one user together.
        labels: the largest number of labels of one user.
    """

    def too_small(larger: float) -> bool:
        """Return whether all coins at this larger ε have too many levels."""
        for place in ORDERS:
            order = _order_at(larger, delta, place)
            coin = _coin_by_divergences(larger, delta, labels, order, OWN_SHARE_ADDED)
            if coin and levels_about(coin.order, coin.divergence, coin.first) <= MOST_LEVELS:
                return False
        return True

    smallest = max(epsilon, LEAST_EPSILON)
    low, high = bracket(too_small, 2 * smallest, least=smallest)
    _, high = bisect(too_small, low, high, rtol=0.05, geometric=True)  # two digits are shown
    return InvalidParameter(
        f"epsilon={epsilon:g} is too small for delta={delta:g} and {labels} labels of one user: "
        f"coins of at most "
        f"{MOST_LEVELS} steps need an epsilon of about {high:.2g}"
    )


def _coins_by_game(
    epsilon: float, delta: float, coin_by_divergences: LabelCoinsDP
) -> list[LabelCoinsDP]:
    """Return, as a list of one, the coin of the largest divergence that the game allows at an order
    near that of ``coin_by_divergences``; an empty list where the game is too large to be played.

    Args:
        epsilon: ε of all labels of one user together.
        delta: δ of all labels of one user together.
        coin_by_divergences: the best coin by added divergences.
    """
    labels = coin_by_divergences.labels
    order = _short_decimal(1 + ORDER_FACTOR * (coin_by_divergences.order - 1))
    first = _short_decimal(OWN_SHARE_PLAYED * delta / labels)
    divergence = coin_by_divergences.divergence
    levels = len(coin_chances(order, divergence, first).shown)
    # One level is played, only to see whether the game is small enough.
    if game_delta(order, divergence, first, labels, epsilon, levels) == math.inf:
        return []

    def excess(every: int, divergence: float) -> float:
        """Return ln(δ / the δ that is allowed) at a divergence, each ``every``-th level played."""
        delta_of_game = game_delta(order, divergence, first, labels, epsilon, every)
        return math.log(delta_of_game / delta)

    every = max(min(levels // LEAST_ROUGH_LEVELS, MOST_SKIPPED), 1)
    slope = labels * (order - 1)  # of ln δ, where the divergences of all labels add up
    rough = _Crossing(0.0, GAME_START * divergence, math.nan)
    if every > 1:
        aim = _Aim(-ROUGH_ERROR, ROUGH_TOLERANCE, slope)
        rough = _crossing(partial(excess, every), aim, rough.near_aim, rough.slope)
    # Aim and tolerance are such that ln δ ends between MOST_UNSPENT below what is allowed and it.
    aim = _Aim(-MOST_UNSPENT / 2, MOST_UNSPENT / 2, slope)
    found = _crossing(partial(excess, 1), aim, rough.near_aim, rough.slope)
    if found.largest_allowed:
        return [LabelCoinsDP(order, found.largest_allowed, first, labels)]
    return []


class _Aim(NamedTuple):
    """What a search for the largest divergence aims at, in values of ln(δ / the δ allowed).

    Attributes:
        value: the value that is looked for, below 0.
        tolerance: how close to it the search may end.
        expected_slope: the slope of the values in the divergence, about.
    """

    value: float
    tolerance: float
    expected_slope: float


class _Crossing(NamedTuple):
    """What a search for the largest divergence found.

    Attributes:
        largest_allowed: the largest divergence seen with a value of at most 0; 0 if there is none.
        near_aim: a divergence at which the value is about that of the aim.
        slope: the slope of the values there, NaN if it is not known.
    """

    largest_allowed: float
    near_aim: float
    slope: float


def _crossing(
    excess: Callable[[float], float], aim: _Aim, divergence: float, slope: float
) -> _Crossing:
    """Search for the largest divergence at which the game allows no more than δ, by secants from a
    first one.

    The function may be flat below 0 and steep above. Where it is flat, a value near the aim proves
    nothing, and the search goes on, by steps that double, until a divergence just beyond has a
    value above 0.

    Args:
        excess: the function, ln(δ / the δ allowed) of a divergence.
        aim: what is looked for.
        divergence: the first one that is tried, > 0.
        slope: the function's slope there, NaN if that is not known.
    """
    low = 0.0
    high = math.inf
    previous_divergence = 0.0
    previous_value = 0.0
    stride = LEAST_STEP
    for _ in range(MOST_GAMES):
        divergence = _short_decimal(divergence)
        value = excess(divergence)
        if value <= 0:
            low = max(low, divergence)
        else:
            high = divergence
        if low >= high:  # rounding of the game: the function is not quite rising
            high = math.inf
        if previous_divergence and divergence != previous_divergence:
            slope = (value - previous_value) / (divergence - previous_divergence)
        is_flat = not slope > aim.expected_slope / 2  # True also while no slope is known (NaN)
        previous_divergence = divergence
        previous_value = value
        step = (aim.value - value) / _trusted_slope(slope, aim.expected_slope)
        is_close = abs(value - aim.value) <= aim.tolerance and not is_flat
        if is_close or high <= low * (1 + LEAST_STEP):
            return _Crossing(low, divergence + step, slope)
        if is_flat and value <= 0 and not math.isnan(slope):
            step = max(step, stride * divergence)
            stride = 2 * stride
        divergence += _cut_step(step, divergence)
        if high < math.inf and not low < divergence < high:
            divergence = (low + high) / 2
    return _Crossing(low, divergence, slope)


def _cut_step(step: float, divergence: float) -> float:
    """Return a step of at most the share LARGEST_STEP of a divergence, in either direction."""
    longest = LARGEST_STEP * divergence
    return min(max(step, -longest), longest)


def _trusted_slope(seen: float, expected: float) -> float:
    """Return the slope of a function that was seen, cut to within a factor of two of the expected
    one, because rounding of the game may show a wrong one; the expected one where ``seen`` is NaN.
    """
    if math.isnan(seen):
        return expected
    return min(max(seen, expected / 2), 2 * expected)


@lru_cache(maxsize=256)
def _best_by_divergences(epsilon: float, delta: float, labels: int) -> LabelCoinsDP:
    """Return the coin of the best order by added divergences, to a few per cent, by halving steps
    of ln(order - 1).

    Args:
        epsilon: ε of all labels of one user together.
        delta: δ of all labels of one user together.
        labels: the largest number of labels of one user.

    Raises:
        InvalidParameter: when no order leaves a divergence, or all coins have too many levels.
    """

    def half_level_at(place: float) -> float:
        """Return the level that the coin of the order at this place shows with chance 1/2; inf
        where there is no such coin.
        """
        coin = _coin_by_divergences(
            epsilon, delta, labels, _order_at(epsilon, delta, place), OWN_SHARE_FOR_ORDER
        )
        if coin:
            return _half_level(coin)
        return math.inf

    step = ORDERS[1] - ORDERS[0]
    levels = {place: half_level_at(place) for place in ORDERS}
    best = min(levels, key=levels.__getitem__)
    while step > LAST_STEP and levels[best] < math.inf:
        step /= 2
        lower = best - step
        higher = best + step
        levels[lower] = half_level_at(lower)
        levels[higher] = half_level_at(higher)
        best = min((best, lower, higher), key=levels.__getitem__)
    coin = _coin_by_divergences(
        epsilon, delta, labels, _order_at(epsilon, delta, best), OWN_SHARE_ADDED
    )
    if coin is None or levels[best] == math.inf:
        raise InvalidParameter("no order leaves a coin")
    return coin


def _order_at(epsilon: float, delta: float, place: float) -> float:
    """Return the order 1 + e^place ln(1/δ)/ε, where ``place`` is as in ``ORDERS``.

    Args:
        epsilon: ε of all labels together.
        delta: δ of all labels together.
        place: the logarithm of (order - 1) ε / ln(1/δ).
    """
    return _short_decimal(1 + math.exp(place) * math.log(1 / delta) / epsilon)


def _coin_by_divergences(
    epsilon: float, delta: float, labels: int, order: float, own_share: float
) -> LabelCoinsDP | None:
    """Return the coin of an order by added divergences alone; None where nothing is left for the
    divergence.

    Args:
        epsilon: ε of all labels together.
        delta: δ of all labels together.
        labels: the largest number of labels of one user.
        order: the Rényi order.
        own_share: the share of δ for labels that one user alone has.
    """
    # The sum of divergences that converts to (ε, (1 - own) δ): Canonne-Kamath-Steinke 2020,
    # Proposition 12.
    log_delta = math.log((1 - own_share) * delta)
    excess = log_delta + math.log(order - 1) - order * math.log1p(-1 / order)
    total_divergence = epsilon + excess / (order - 1)
    divergence = (1 - CHORD_SHARE) * total_divergence / labels
    if divergence > 0:
        return LabelCoinsDP(
            order, _short_decimal(divergence), _short_decimal(own_share * delta / labels), labels
        )
    return None


def _half_level(coin: LabelCoinsDP) -> float:
    """Return the level, not always whole, at which a label is shown with chance 1/2, by
    interpolation between two levels; inf for a coin with too many levels.
    """
    try:
        shown = coin_chances(coin.order, coin.divergence, coin.first, 0.5).shown
    except InvalidParameter:  # too many levels
        return math.inf
    return len(shown) - 1 - float((shown[-1] - 0.5) / (shown[-1] - shown[-2]))


def _short_decimal(value: float) -> float:
    """Return the value rounded to six digits, so that a coin can be written down exactly."""
    return float(f"{value:.5e}")
