"""Number of users that must change before k labels drawn at once find fewer of the top k than
peeling does.

Drawing at once is nearly perfect where gaps are wide and nearly random where they are narrow, with
little between: the number of sets with a little more slack then grows faster than their probability
falls. Peeling degrades slowly.

For a level j let D_j be the log-odds that `CanonicalTopK` finds about j of the k, D'_j the smallest
of these odds given the worst rank that is in the set, D"_j that given the best rank that is
missing, and s_j how far the counts of the top k must rise above the rest for peeling to find as
many. Between neighbours D_j moves by at most ε, D'_j and D"_j by half of that, as they depend on
one end of the ranking each, and s_j by at most linf, so that

    advantage = the largest, over j, of min(max(D_j / ε, 2D'_j / ε, 2D"_j / ε), s_j / linf)

moves by at most 1. It is positive where some j is reached by drawing at once and not by peeling.
D_j and s_j are those of a grid of ranks with fixed weights, close to the truth; the bounds hold for
any weights. Proof: docs/notes/mechanisms.md, "Whole answers".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dptopk._internal.search import bisect_each
from dptopk.mechanisms.canonical import _log_comb
from dptopk.mechanisms.samplers.level_set_sampling import Ranked
from dptopk.mechanisms.samplers.random import Floats, Ints

Inclusion = Callable[[Floats], Floats]
_LEVELS = 192
_DENSE = 64  # ranks next to the k-th each have a cell of their own; further cells grow
_GROWTH = 1.06
_NEARLY = 1 / 16  # peeling finds all when it misses fewer than this


def one_shot_inclusion(scores: Floats) -> Floats:
    """P[a label is chosen] by `OneShotTopK`, of (count - threshold) / scale of the noise."""
    return np.exp(np.minimum(scores, 0.0))


def gumbel_inclusion(scores: Floats) -> Floats:
    """P[a label is chosen] by `KnownGumbel`, of (count - threshold) / scale of the noise."""
    return -np.expm1(-np.exp(np.minimum(scores, 50.0)))


@dataclass(frozen=True)
class _Grid:
    """Kinds of sets, and cells of ranks, for k ranks out of ``size``; nothing here depends on
    counts.

    Attributes:
        missed: the best rank that is not in a set, from 0 on, shape (m,).
        worst: the worst rank that is, shape (w,).
        log_sizes: logarithm of the number of sets of each kind, shape (m, w).
        levels: numbers of labels found, less 1/2, shape (n,); the last is for the best set alone.
        heads: for each level and worst rank, from which missing rank on sets reach the level, shape
            (n, w).
        tails: for each level and missing rank, up to how many worst ranks they do, shape (n, m).
        ranks, widths: cells of ranks; ``inside`` of them belong to the top k.
    """

    missed: Ints
    worst: Ints
    log_sizes: Floats
    levels: Floats
    heads: Ints
    tails: Ints
    ranks: Ints
    widths: Ints
    inside: int


def advantage(
    ranked: Ranked,
    k: int,
    *,
    linf: int,
    epsilon: float,
    scale: float,
    inclusion: Inclusion,
    most: float,
) -> float:
    """Return the statistic, cut to [-most, most]: neighbours move it by at most 1, floats by
    ``rounding(k)``/epsilon.

    Args:
        ranked: the counts, of more than k labels.
        k: how many are drawn.
        linf: how far one user moves a count.
        epsilon: of the set drawn at once.
        scale: of the noise of peeling, in units of linf.
        inclusion: the chance of a label to be peeled, increasing.
        most: at least 1.
    """
    grid = _grid(ranked.size, k)
    # Differences beyond this one change nothing that is not cut off later; the cut keeps what one
    # user can change.
    of_sets = 4 * (k * math.log(ranked.size) + 100) / epsilon
    far = of_sets + 100 * scale + 4 * most
    pivot = ranked.count(k - 1)
    cut = min(math.ceil(far * linf), 2**62)

    def heights(ranks: Ints) -> Floats:
        return np.clip(ranked.at(ranks) - pivot, -cut, cut) / linf

    odds = _odds(grid, heights, k, epsilon / 2) / epsilon
    shifts = _shifts(grid, heights(grid.ranks), k, scale, inclusion)
    best = float(np.minimum(odds, shifts).max())
    return min(max(best, -most), most)


def rounding(k: int) -> float:
    """More than all rounding in ``advantage``, times epsilon.

    Log-odds are sums of logarithms of a size of k ln(size), to within some ulps. In a root 3e-14·k
    of uncertainty in a number of labels stands against a slope of at least 1/16 to a scale of
    k/epsilon.
    """
    return 1e-5 + 1e-11 * k**2


def _odds(grid: _Grid, heights: Callable[[Ints], Floats], k: int, rate: float) -> Floats:
    """The largest of D_j, 2D'_j and 2D"_j of every level."""
    missed = heights(grid.missed)
    worst = heights(grid.worst)
    weights = grid.log_sizes - rate * (missed[:, None] - worst[None, :])
    last_in, first_out = heights(np.array([k - 1, k])).tolist()
    best = rate * -(first_out - last_in)
    bad, good = _sums(weights, grid.heads)
    all_good = np.logaddexp(best, np.logaddexp.reduce(good, axis=1))
    in_all = all_good - np.logaddexp.reduce(bad, axis=1)
    by_worst = (good - bad).min(axis=1)
    good, bad = _sums(weights.T, grid.tails)
    by_missed = (good - bad).min(axis=1)
    return np.maximum(in_all, 2 * np.maximum(by_worst, by_missed))


def _sums(logs: Floats, split: Ints) -> tuple[Floats, Floats]:
    """For every column, return the log sums of the rows before each split and from it on, shape of
    ``split``.
    """
    none = np.full((1, logs.shape[1]), -np.inf)
    before = np.concatenate((none, np.logaddexp.accumulate(logs)))
    from_the_end = np.logaddexp.accumulate(logs[::-1])
    after = np.concatenate((from_the_end[::-1], none))
    column = np.arange(logs.shape[1])
    return before[split, column], after[split, column]


def _shifts(grid: _Grid, heights: Floats, k: int, scale: float, inclusion: Inclusion) -> Floats:
    """Return s_j for every level j: by how much the top k must rise for peeling to find j of them.

    Given how many others are peeled the threshold is known, and then how high the top k must stand.
    """
    inside, outside = slice(0, grid.inside), slice(grid.inside, None)

    def found(part: slice, offset: Floats) -> Floats:
        chances = inclusion((heights[None, part] + offset[:, None]) / scale)
        return chances @ grid.widths[part].astype(np.float64)

    reach = 50 * scale + float(heights[0] - heights[-1])
    others = k - grid.levels
    possible = others < grid.widths[outside].sum()
    raised = _root(lambda offset: found(outside, offset), np.where(possible, others, 0.5), reach)
    level = _root(lambda offset: found(inside, offset), grid.levels, reach)
    return np.where(possible, level - raised, -np.inf)


def _root(increasing: Callable[[Floats], Floats], values: Floats, reach: float) -> Floats:
    """Return the arguments at which an elementwise increasing function has these values, by
    bisection.
    """
    ends = np.full(values.shape, reach)
    return np.mean(bisect_each(lambda x: increasing(x) < values, -ends, ends), axis=0)


@lru_cache(maxsize=16)
def _grid(size: int, k: int) -> _Grid:
    """The grid; all arrays are small: at most some hundred ranks each way."""
    tails = _cuts(k, size)
    heads = k - _cuts(0, k)[::-1]
    head = (heads[:-1] + heads[1:] - 1) // 2  # this many leading ranks are in the set, not the next
    # Of the ranks between, this many are in the set, and in proportion of the top k.
    i = head[:, None]
    found = i + (k - i - 1.0) ** 2 / np.maximum(tails[None, 1:] - i - 2, 1)
    levels = _levels(k)
    # It grows with the best rank that is missing, falls with the worst.
    reached = found[None, :, :] >= levels[:, None, None]
    levels[-1] = k - _NEARLY
    return _Grid(
        missed=head,
        worst=(tails[:-1] + tails[1:] - 1) // 2,
        log_sizes=_log_sizes(heads, tails, head, k),
        levels=levels,
        heads=head.size - reached.sum(axis=1),
        tails=reached.sum(axis=2),
        ranks=np.concatenate((_middles(heads), _middles(tails))),
        widths=np.concatenate((np.diff(heads), np.diff(tails))),
        inside=heads.size - 1,
    )


def _log_sizes(heads: Ints, tails: Ints, head: Ints, k: int) -> Floats:
    """The logarithm of the number of sets whose best missing and worst rank lie in these cells."""
    i = head[:, None]
    few = tails[None, :-1]
    many = tails[None, 1:]
    more = _log_comb(many - i - 1, k - i + 0 * many)
    less = _log_comb(few - i - 1, k - i + 0 * few)
    cells = np.log(np.diff(heads))[:, None]
    with np.errstate(divide="ignore"):
        remaining = np.log(-np.expm1(np.minimum(less - more, 0.0)))
    return more + remaining + cells


def _levels(k: int) -> Floats:
    """Quarters between whole numbers of labels, which themselves would leave no slope."""
    quarters = np.arange(k)[:, None] + np.array([0.25, 0.5, 0.75])
    chosen = np.linspace(0, 3 * k - 1, min(3 * k, _LEVELS))
    return quarters.ravel()[chosen.astype(np.int64)]


def _middles(cuts: Ints) -> Ints:
    return cuts[:-1] + np.diff(cuts) // 2


def _cuts(start: int, end: int) -> Ints:
    """From start to end in steps of one at first, then growing."""
    cuts = [start]
    while cuts[-1] < end:
        past = cuts[-1] - start
        following = cuts[-1] + 1
        if past >= _DENSE:
            following = start + math.ceil(past * _GROWTH)
        cuts.append(min(end, following))
    return np.array(cuts, dtype=np.int64)
