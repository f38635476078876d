"""Coins that show labels: the chance to be shown at every level, by one Rényi order.

A label of level n (the number of its users, or of full moves) is shown with chance p_n, p_0 = 0.
With ν(p) the largest chance whose Rényi divergence of one order α from p, in both directions, is at
most ρ,

    p_{n+1} = q + (1 - q) ν(p_n / (1 - q)),

up to 1: after Harrison-Manurangsi 2026, who show that such coins are the best for one label under
approximate RDP; for α -> inf the coin of Desfontaines et al. 2022.
docs/notes/partition-selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.errors import InvalidParameter

# Levels beyond which a coin is refused.
MOST_LEVELS = 20_000
TOO_LONG = f"a coin of more than {MOST_LEVELS} steps: epsilon is too small for that many labels"
# How close a step in the log-odds is to the largest one, as a share of it, and after how many tries
# at most.
STEP_TOLERANCE = 1e-10
STEP_TRIES = 80
# Number of log-odds, or chances, at which steps are computed to estimate the number of levels.
LOG_ODDS_NODES = 40
# After this many levels a coin that is certain to be refused is given up.
LEVELS_BEFORE_ESTIMATE = 100
# Above the rounding of one step from level to level, relative; e to the power of LARGEST_EXPONENT
# is a float, and so is its inverse.
CHANCE_ROUNDING = 2.0**-48
LARGEST_EXPONENT = 700.0


class Chances(NamedTuple):
    """The chances of a coin at each level from 0 on.

    Attributes:
        shown: shape (levels,), the chance to be shown.
        hidden: shape (levels,), 1 less it; the smaller of the two has full relative precision.
    """

    shown: Floats
    hidden: Floats


@lru_cache(maxsize=128)
def coin_chances(order: float, divergence: float, first: float, until: float = 1.0) -> Chances:
    """Return the chances of levels 0, 1, ..., up to the first that is shown with chance ``until``
    or more.

    Args:
        order: α > 1, or inf.
        divergence: ρ > 0.
        first: q in (0, 1/2), the chance of level 1.
        until: 1/2 or 1.

    Raises:
        InvalidParameter: when there are more than MOST_LEVELS levels until 1.

    >>> coin_chances(math.inf, 1.0, 0.01).shown.round(3).tolist()
    [0.0, 0.01, 0.037, 0.111, 0.312, 0.751, 0.912, 0.971, 0.993, 1.0]
    """
    if least_levels(order, divergence, first) > MOST_LEVELS:
        raise InvalidParameter(TOO_LONG)
    coin = _CoinParameters(order, divergence, first)
    levels = [_Chance(0.0, 1.0), _Chance(first, 1 - first)]
    rise = 0.0
    previous_rise = 0.0
    while levels[-1].shown < until:
        guessed_rise = None
        if previous_rise:
            # Rises change by nearly the same factor from level to level.
            guessed_rise = rise * (rise / previous_rise)
        level, next_rise = _next_level(levels[-1], coin, guessed_rise)
        previous_rise = rise
        rise = next_rise
        levels.append(level.with_exact_sum())
        _refuse_too_many_levels(levels, coin)
    shown, hidden = zip(*levels, strict=True)
    return Chances(np.array(shown), np.array(hidden))


class _Chance(NamedTuple):
    """The chance that a label of one level is shown.

    Attributes:
        shown: p.
        hidden: 1 - p, to full relative precision where it is small.
    """

    shown: float
    hidden: float

    def with_exact_sum(self) -> _Chance:
        """Return the chance with the larger of both numbers as 1 less the smaller one."""
        if self.shown <= 0.5:
            return _Chance(self.shown, 1 - self.shown)
        return _Chance(1 - self.hidden, self.hidden)

    @classmethod
    def of_log_odds(cls, log_odds: float) -> _Chance:
        """Return the chance p with ln(p / (1 - p)) = ``log_odds``."""
        e = math.exp(-abs(log_odds))
        likely = 1 / (1 + e)
        rare = e / (1 + e)
        if log_odds > 0:
            return cls(likely, rare)
        return cls(rare, likely)


class _CoinParameters(NamedTuple):
    """What the chances of all levels follow from.

    Attributes:
        order: α > 1, or inf.
        divergence: ρ > 0.
        first: q, the chance of level 1.
    """

    order: float
    divergence: float
    first: float


def _refuse_too_many_levels(levels: Sequence[_Chance], coin: _CoinParameters) -> None:
    """Refuse a coin whose levels so far show that it has more than MOST_LEVELS.

    Args:
        levels: the chances so far.
        coin: the coin.

    Raises:
        InvalidParameter: for such a coin.
    """
    # Above 1/2 are at least as many levels as below: hidden chances rise by the same steps from the
    # other end.
    least = len(levels) if levels[-1].shown > 0.5 else 2 * len(levels)
    if least > MOST_LEVELS:
        raise InvalidParameter(TOO_LONG)
    # Twice as many as are allowed, because it is an estimate.
    is_estimated = len(levels) == LEVELS_BEFORE_ESTIMATE and coin.order < math.inf
    if is_estimated and levels_about(*coin) > 2 * MOST_LEVELS:
        raise InvalidParameter(TOO_LONG)


def _next_level(
    level: _Chance, coin: _CoinParameters, guessed_rise: float | None
) -> tuple[_Chance, float]:
    """Return the chance of level n + 1, and by how much the log-odds of ν(p) are above those of p =
    p_n / (1 - q); that is 0 where ν is not found by log-odds.

    Args:
        level: the chance of level n.
        coin: the coin.
        guessed_rise: about that rise, from which the search for it starts; None: not known.
    """
    order, divergence, first = coin
    scaled_hidden = level.hidden - first  # (1 - q) (1 - p)
    rise = 0.0
    if scaled_hidden <= 0:
        next_chance = _Chance(1.0, 0.0)
    elif order == math.inf:
        chance = _Chance(level.shown / (1 - first), scaled_hidden / (1 - first))
        next_chance = _largest_chance_of_order_inf(chance, divergence)
    else:
        log_p = math.log(level.shown / (1 - first))
        log_r = math.log(scaled_hidden / (1 - first))
        if not guessed_rise:
            # The moment of a shown label alone allows a rise that is little larger.
            guessed_rise = ((order - 1) * divergence - log_p) / order
        rise = _largest_rise(log_p, log_r, order, divergence, guessed_rise)
        next_chance = _Chance.of_log_odds(log_p - log_r + rise)
    shown = first + (1 - first) * next_chance.shown
    return _Chance(shown, (1 - first) * next_chance.hidden), rise


def _largest_chance_of_order_inf(chance: _Chance, divergence: float) -> _Chance:
    """Return ν(p) for the order inf, min(e^ρ p, 1 - e^-ρ (1 - p)), lower by the rounding.

    Args:
        chance: p.
        divergence: ρ.
    """
    factor = math.exp(min(divergence, LARGEST_EXPONENT)) / (1 + CHANCE_ROUNDING)
    grown = factor * chance.shown
    shrunk = chance.hidden / factor
    return _Chance(min(grown, 1 - shrunk), max(1 - grown, shrunk))


def _largest_rise(
    log_p: float, log_r: float, order: float, divergence: float, guess: float
) -> float:
    """Return the rise of the log-odds from a chance p to ν(p), found by Newton steps inside a
    bracket.

    It may be too large by a share of STEP_TOLERANCE: ν(p) need not be exact, because what a coin
    costs is computed from its chances as they are.

    Args:
        log_p: ln p.
        log_r: ln(1 - p).
        order: α.
        divergence: ρ.
        guess: the first rise that is tried.
    """
    largest_moment = (order - 1) * divergence
    low = 0.0
    high = math.inf
    step = guess
    for _ in range(STEP_TRIES):
        value, slope = _larger_moment(log_p - log_r + step, log_p, log_r, order)
        if value <= largest_moment:
            low = step
        else:
            high = step
        newton = step + (largest_moment - value) / slope if slope > 0 else math.inf
        if abs(newton - step) <= STEP_TOLERANCE * step:
            return newton
        if low < newton < high:
            step = newton
        elif high < math.inf:
            step = (low + high) / 2
        else:
            step = 2 * step
    return low


def _larger_moment(odds: float, log_p: float, log_r: float, order: float) -> tuple[float, float]:
    """Return (α - 1) D_α between the chance of these log-odds and p, in the direction in which that
    is larger, and its slope in the log-odds.

    Args:
        odds: the log-odds of one chance.
        log_p: ln p, p being the other.
        log_r: ln(1 - p).
        order: α.
    """
    e = math.exp(-abs(odds))
    likely = -math.log1p(e)
    rare = -math.log1p(e) - abs(odds)
    up, down = (likely, rare) if odds > 0 else (rare, likely)
    shown, hidden = _Chance.of_log_odds(odds)
    lam = order - 1
    forward, forward_share = _log_sum(order * up - lam * log_p, order * down - lam * log_r)
    backward, backward_share = _log_sum(order * log_p - lam * up, order * log_r - lam * down)
    # In the log-odds, ``up`` = ln(shown) has the slope ``hidden``, and ``down`` = ln(hidden) the
    # slope -``shown``.
    if forward > backward:
        return forward, order * (forward_share * hidden - (1 - forward_share) * shown)
    return backward, lam * ((1 - backward_share) * shown - backward_share * hidden)


def _log_sum(a: float, b: float) -> tuple[float, float]:
    """Return ln(e^a + e^b), and the share of the sum that e^a is."""
    e = math.exp(-abs(a - b))
    # e^a and e^b are now divided by the larger of them, so that one is 1, and the other one e.
    scaled_a = 1 if a >= b else e
    return max(a, b) + math.log1p(e), scaled_a / (1 + e)


def levels_about(order: float, divergence: float, first: float) -> float:
    """Return an estimate of the number of levels of ``coin_chances`` up to 1, for a finite order
    and many levels.

    With y the log-odds, a coin takes about ∫ dy / rise(y) levels to 1/2, and as many from there to
    1; the second term is that of a sum against an integral (Euler-Maclaurin).

    Args:
        order: α.
        divergence: ρ.
        first: q, the chance of level 1.
    """
    coin = _CoinParameters(order, divergence, first)
    odds = np.linspace(math.log(first), 0.0, LOG_ODDS_NODES)
    rises = []
    for log_odds in odds.tolist():
        next_chance, _ = _next_level(_Chance.of_log_odds(log_odds), coin, None)
        rises.append(math.log(next_chance.shown / next_chance.hidden) - log_odds)
    if min(rises) <= 0:  # lost to rounding
        return math.inf
    integral = np.trapezoid(1 / np.array(rises), odds)
    return 2 * float(integral + math.log(rises[-1] / rises[0]) / 2)


def least_levels(order: float, divergence: float, first: float) -> float:
    """Return a lower bound on the number of levels of ``coin_chances`` up to 1, without computing
    them.

    From level to level y = ln(1/p) becomes no less than (1 - 1/α) y - c, c = (1 - 1/α) ρ + q/t,
    while p is at least t: so y + α c falls by no more than a factor 1 - 1/α, for any t. This counts
    levels from t on; no fewer follow the last level up to t, as p_{n+1} rises with p_n. The chances
    to be hidden rise by the same law from the other end (docs/notes/partition-selection.md).

    Args:
        order: α > 1, or inf.
        divergence: ρ > 0.
        first: q in (0, 1/2), the chance of level 1.
    """
    if order == math.inf:
        return 0.0
    y = -np.log(np.geomspace(first, 0.5, LOG_ODDS_NODES))  # ln(1/t) at some t's
    constant = (order - 1) * divergence + order * first * np.exp(y)  # α c
    falls = np.log((y + constant) / (math.log(2) + constant))  # of ln(y + α c), from t to 1/2
    fall_of_level = -math.log1p(-1 / order)  # at most
    return 2 * float(falls.max()) / fall_of_level
