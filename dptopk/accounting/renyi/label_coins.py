"""Labels shown by the toss of a coin: its chances at every count, and the largest δ of all labels of one user.

A label of level n (the number of its users, or of full moves) is shown with chance p_n, p_0 = 0, independently of all
other labels, and nothing else is released. With ν(p) the largest chance whose Rényi divergence of one order α from p,
in both directions, is at most ρ,

    p_{n+1} = q + (1 - q) ν(p_n / (1 - q)),

up to 1: after Harrison-Manurangsi 2026, who show that such coins are the best for one label under approximate RDP; for
α -> inf the coin of Desfontaines et al. 2022. One user moves each of up to n labels from one level to the next,
or back. The δ of all of them is bounded by the game in which the user picks the level of every next label from the
answers so far, but none that comes before the last one in a fixed order of the levels:

    V_0(x, n) = max(1 - e^x, 0),   V_{j+1}(x, n) = max over m >= n of E[V_j(x - L_m, m)],

once for each direction. Of very many labels it is bounded by the sum of Rényi divergences. Statements, proofs, and how
much is lost: docs/partition-selection.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dptopk.accounting.curves import Floats, outward
from dptopk.errors import InvalidParameter

__all__ = ["CHANCE_ROUNDING", "FINE", "Chances", "coin_chances", "label_coins_statements", "renyi_delta"]

# The game is played on a grid on which its δ is too large by about a share of FINE; of COARSE, if FINE would take more
# than WORK sums. Where that is too many as well, the Rényi divergences of all labels are added up.
FINE, COARSE, WORK = 0.01, 0.3, 6e6
# How many sums are done at a time: what fits into the processor's cache.
BLOCK = 1 << 15
# From above: what a round of the game can lose by rounding, and all rounds together with the chances' own rounding.
ROUND = 1 + 1e-12
# Levels beyond which a coin is refused.
MOST_LEVELS = 20_000
# Where the curve ends: what is left above the chance that an own label is shown, as a share of it.
LEFT = 1e-3
# An ε beyond which e^ε is not played with, and how many statements there are at most.
LARGEST, MOST_STATEMENTS = 500.0, 2000
HALVINGS = 54
# Above the rounding of one step from level to level, relative; e to the power of LARGEST_EXPONENT is a float, and so is
# its inverse.
CHANCE_ROUNDING, LARGEST_EXPONENT = 2.0**-48, 700.0


class Chances(NamedTuple):
    """Of each level from 0 on: the chance to be shown and to be hidden, shape (levels,); the smaller one is exact."""

    shown: Floats
    hidden: Floats


@lru_cache(maxsize=128)
def coin_chances(order: float, divergence: float, first: float, until: float = 1.0) -> Chances:
    """The chances of levels 0, 1, ..., up to the first that is shown with chance ``until`` or more.

    Args:
        order: α > 1, or inf.
        divergence: ρ > 0.
        first: q in (0, 1/2), the chance of level 1.
        until: in (0, 1].

    Raises:
        InvalidParameter: when there are more than MOST_LEVELS levels.

    >>> coin_chances(math.inf, 1.0, 0.01).shown.round(3).tolist()
    [0.0, 0.01, 0.037, 0.111, 0.312, 0.751, 0.912, 0.971, 0.993, 1.0]
    """
    shown, hidden = [0.0, first], [1.0, 1 - first]
    while shown[-1] < until:
        rest = hidden[-1] - first  # of level n, times 1 - q
        if rest <= 0:
            up, down = 1.0, 0.0
        else:
            up, down = _farthest(shown[-1] / (1 - first), rest / (1 - first), order, divergence)
        up, down = first + (1 - first) * up, (1 - first) * down
        shown.append(up if up <= 0.5 else 1 - down)
        hidden.append(down if up > 0.5 else 1 - up)
        if len(shown) > MOST_LEVELS:
            raise InvalidParameter(f"a coin of more than {MOST_LEVELS} steps: epsilon is too small for so many labels")
    return Chances(np.array(shown), np.array(hidden))


def _farthest(p: float, r: float, order: float, divergence: float) -> tuple[float, float]:
    """ν(p) and 1 - ν(p), for 0 < p < 1 and r = 1 - p; by halving in the log-odds, from below."""
    if order == math.inf:
        factor = math.exp(min(divergence, LARGEST_EXPONENT)) / (1 + CHANCE_ROUNDING)
        grown, shrunk = factor * p, r / factor
        return min(grown, 1 - shrunk), max(1 - grown, shrunk)
    log_p, log_r, most = math.log(p), math.log(r), (order - 1) * divergence

    def within(odds: float) -> bool:
        up = -math.log1p(math.exp(-odds)) if odds > -30 else odds - math.exp(odds)
        down = up - odds
        return (
            _log_sum(order * up - (order - 1) * log_p, order * down - (order - 1) * log_r) <= most
            and _log_sum(order * log_p - (order - 1) * up, order * log_r - (order - 1) * down) <= most
        )

    low, width = log_p - log_r, 1.0
    while width < 1024 and within(low + width):
        width *= 2
    high = low + width
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) else (low, middle)
    odds = math.exp(-abs(low))
    likely, rare = 1 / (1 + odds), odds / (1 + odds)
    return (likely, rare) if low > 0 else (rare, likely)


def _log_sum(a: float, b: float) -> float:
    top = max(a, b)
    return top + math.log1p(math.exp(min(a, b) - top))


@lru_cache(maxsize=256)
def label_coins_statements(
    order: float, divergence: float, first: float, labels: int, grid: float = FINE
) -> tuple[tuple[float, float], ...]:
    """(ε, δ) by falling ε, one to several hundred; upper bounds whose chords are hardly above the curve.

    Args:
        order: α > 1.
        divergence: ρ > 0.
        first: q in (0, 1/2).
        labels: how many labels one user touches at most.
        grid: about the share by which the grid may raise δ.

    Raises:
        InvalidParameter: as ``coin_chances`` does, or when every δ is 1.
    """
    coin = coin_chances(order, divergence, first)
    reach = labels * divergence + max(-math.log(LEFT * labels * first), 1.0) / (order - 1)
    fine, coarse = (math.ceil(reach * (order + 1) / math.sqrt(12 * share / labels)) for share in (grid, COARSE))
    cells = min(fine, int(WORK / (4.0 * labels * len(coin.shown))), MOST_STATEMENTS)
    if cells >= coarse and reach < LARGEST:
        x = np.arange(cells + 1) * (reach / cells)
        deltas = np.maximum(*(_game(pair, labels, reach, cells) for pair in _directions(coin)))
    else:
        x = np.linspace(0, reach, min(math.ceil(reach * order / 0.1), MOST_STATEMENTS))
        deltas = renyi_delta(x, coin, order, first, labels)
    kept = deltas < 1  # below 1 a statement says something
    if not kept.any():
        raise InvalidParameter(f"such coins promise nothing for {labels} labels of one user: divergence is too large")
    return tuple(zip(x[kept].tolist(), deltas[kept].tolist(), strict=True))[::-1]


class _Pair(NamedTuple):
    """Chances of two outcomes, a row a level, a column an outcome: under P and under Q."""

    P: Floats
    Q: Floats


def _directions(coin: Chances) -> tuple[_Pair, _Pair]:
    """With a user against without, rarely shown levels first, and the other way round, rarely hidden ones first."""
    every = np.column_stack([coin.shown, coin.hidden])
    return _Pair(every[1:], every[:-1]), _Pair(every[-2::-1], every[:0:-1])


def _game(pair: _Pair, labels: int, reach: float, cells: int) -> Floats:
    """Upper bounds on V_labels at the nodes from 0 to ``reach``, the levels played in the order of the rows.

    V as a function of u = e^x is convex and falls from 1 at u = 0, so that chords between upper bounds at nodes are
    above it, and so is the last value beyond the last node.
    """
    step, levels = reach / cells, len(pair.P)
    x: Floats = step * np.arange(-cells, cells + 1.0)
    rows = max(BLOCK // len(x), 1)
    blocks = [_round(pair, at, min(at + rows, levels), x) for at in range(0, levels, rows)]
    # A row for each level from which on the user may still play.
    value = np.broadcast_to(np.maximum(-np.expm1(x), 0), (levels, len(x)))
    for _ in range(labels):
        # In front: H(0) = 1, for the cell that ends at the first node; at the end, a cell without a slope.
        nodes = np.concatenate([np.ones((levels, 1)), value, value[:, -1:]], axis=1).ravel()
        played = np.concatenate([block(nodes) for block in blocks]) * ROUND
        value = np.minimum(np.maximum.accumulate(played[::-1])[::-1], 1.0)
    upper: Floats = outward(value[0, cells:], 1e-10)
    return np.minimum(upper, 1.0)


def _round(pair: _Pair, first: int, last: int, x: Floats) -> Callable[[Floats], Floats]:
    """E[V(x - L)] for some of the levels, at the nodes x, as a function of V's values at the nodes of every level."""
    step, cells = float(x[1] - x[0]), len(x) // 2
    P, Q = pair.P[first:last], pair.Q[first:last]
    surely = np.where(Q == 0, P, 0).sum(axis=1, keepdims=True)
    start = np.arange(first, last)[:, None] * (len(x) + 2)
    parts = []
    for p, q in zip(P.T[..., None], Q.T[..., None], strict=True):
        both = (p > 0) & (q > 0)
        moved = x - np.log(np.where(both, p, 1) / np.where(both, q, 1))
        cell = np.clip(np.floor(moved / step), -cells - 1, cells)
        share = np.clip(np.expm1(moved - cell * step) / math.expm1(step), 0, 1)
        share = np.where(cell < -cells, np.exp(np.minimum(moved - x[0], 0)), share)
        mass, place = np.where(both, p, 0), start + cell.astype(np.intp) + cells + 1
        parts += [(place, mass * (1 - share)), (place + 1, mass * share)]

    def played(nodes: Floats) -> Floats:
        total: Floats = np.broadcast_to(surely, parts[0][1].shape).copy()
        for place, mass in parts:
            total += mass * nodes.take(place)
        return total

    return played


def renyi_delta(x: Floats, coin: Chances, order: float, first: float, labels: int) -> Floats:
    """Upper bound on δ at every ε = x by the sum of Rényi divergences at the best of several orders.

    A pair of neighbouring levels is, with weight 1 - q, one of the chances (p_{n+1} - q)/(1 - q) and p_n/(1 - q), and
    with weight q one that tells all.
    """
    tries = 1 + (order - 1) * np.geomspace(0.2, 5.0, 41)[:, None]
    # Of the last steps, from hidden chances at or below q, nothing is left but what tells all.
    steps = np.flatnonzero((coin.shown[:-1] > 0) & (coin.hidden[:-1] > first))
    below, above = coin.shown[steps], coin.shown[steps + 1] - first
    under, over = coin.hidden[steps] - first, coin.hidden[steps + 1]
    with np.errstate(divide="ignore"):  # a chance that underflows: a divergence without a bound
        above, over, below, under = (np.log(part / (1 - first)) for part in (above, over, below, under))
    moments = [
        np.logaddexp(tries * a - (tries - 1) * b, tries * c - (tries - 1) * d)
        for a, b, c, d in ((above, below, over, under), (below, above, under, over))
    ]
    most = np.maximum(0.0, np.max(moments, axis=(0, 2)) if steps.size else 0.0)[:, None]
    lam = tries - 1
    exponents = labels * most - lam * x + lam * np.log(lam) - tries * np.log(tries)
    alike = labels * math.log1p(-first)
    deltas = -math.expm1(alike) + math.exp(alike) * np.exp(np.minimum(exponents.min(axis=0), 0.0))
    upper: Floats = outward(deltas, 1e-9)
    return np.minimum(upper, 1.0)
