"""The statistic of `RoutedTopK`: how many users must change before drawing k labels at once finds
fewer of the top k than peeling does.

Drawing at once is nearly perfect where gaps are wide and nearly random where they are narrow, with
little in between: there the number of sets with a little more slack grows faster than their
probability falls. Peeling degrades slowly.

For a level j let D_j be the log-odds that `CanonicalTopK` finds about j of the k, D'_j the smallest
of these odds given the worst rank that is in the set, D"_j that given the best rank that is
missing, and s_j how far the counts of the top k must rise above the rest for peeling to find as
many. Between neighbours D_j moves by at most ε, D'_j and D"_j by half of that, as they depend on
one end of the ranking each, and s_j by at most linf, so that

    advantage = the largest, over j, of min(max(D_j / ε, 2D'_j / ε, 2D"_j / ε), s_j / linf)

moves by at most 1. It is positive where some j is reached by drawing at once and not by peeling.
D_j and s_j are computed on a grid of ranks with fixed weights, which is close to the truth; the
bounds hold for any weights. Proof: docs/notes/mechanisms.md, "Whole answers".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dptopk._internal.search import bisect_each
from dptopk.mechanisms.canonical import log_comb
from dptopk.mechanisms.samplers.level_set_sampling import Ranked
from dptopk.mechanisms.samplers.random import Floats, Ints

# Takes (count - threshold) / scale of the noise of labels; returns the probabilities that they are
# chosen, in the same shape.
Inclusion = Callable[[Floats], Floats]
_LEVELS = 192  # at most this many levels j are compared
# This many ranks on each side of the k-th have a cell of their own; further cells grow by a factor.
_DENSE = 64
_GROWTH = 1.06
# Peeling counts as finding all k labels if it misses fewer than this, on average.
_MISSED_BY_BEST = 1 / 16
# Heights are cut where the statistic no longer depends on them: this number of scales of noise
# beyond the others, and this much in the logarithm of the number of sets.
_REACH_OF_NOISE = 100
_LOG_SETS_MARGIN = 100
_LARGEST_CUT = 2**62  # counts and their differences stay within int64
# Offsets at which all labels of a side are peeled, or none: in scales of noise beyond the counts.
_REACH_OF_OFFSET = 50
_LARGEST_EXPONENT = 50.0  # of a Gumbel law: beyond, a label is peeled with probability 1


def one_shot_inclusion(scores: Floats) -> Floats:
    """Return the probability that `OneShotTopK` chooses a label, which is that its noisy count
    exceeds a threshold, given (count - threshold) / scale of the noise; shape of ``scores``.
    """
    return np.exp(np.minimum(scores, 0.0))


def gumbel_inclusion(scores: Floats) -> Floats:
    """Return the probability that `KnownGumbel` chooses a label, which is that its noisy count
    exceeds a threshold, given (count - threshold) / scale of the noise; shape of ``scores``.
    """
    return -np.expm1(-np.exp(np.minimum(scores, _LARGEST_EXPONENT)))


@dataclass(frozen=True)
class _RankGrid:
    """Kinds of sets, and cells of ranks, for k ranks out of ``size``; it does not depend on counts.

    Attributes:
        missed: the best rank that is missing from the sets of a kind, from 0 on, shape (m,).
        worst: the worst rank in the sets of a kind, shape (w,).
        log_sizes: logarithm of the number of sets of each kind, shape (m, w).
        levels: the levels j, shape (n,): between whole numbers of labels found; the last one is
            reached by the best set alone.
        first_reaching: for each level and worst rank, the first index in ``missed`` whose sets
            reach the level, shape (n, w).
        reaching_worst: for each level and missing rank, how many of the ``worst`` ranks reach the
            level, shape (n, m).
        ranks: the middle rank of each cell of ranks, shape (c,).
        widths: the number of ranks in each cell, shape (c,).
        top_cells: how many of the cells belong to the top k; they come first.
    """

    missed: Ints
    worst: Ints
    log_sizes: Floats
    levels: Floats
    first_reaching: Ints
    reaching_worst: Ints
    ranks: Ints
    widths: Ints
    top_cells: int


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
    """Return the statistic of the module's text, cut to [-most, most]: about how many users must
    change before drawing k labels at once finds fewer of the top k than peeling; negative where it
    already does.

    Neighbours move it by at most 1, and floating point by at most ``rounding_error(k)``/epsilon.

    Args:
        ranked: the counts, of more than k labels.
        k: how many labels are drawn.
        linf: how far one user moves a count.
        epsilon: ε of the set that is drawn at once.
        scale: scale of the noise of peeling, in units of linf.
        inclusion: the probability that a label is peeled, given (count - threshold) / scale; an
            increasing function.
        most: at least 1.
    """
    grid = _rank_grid(ranked.size, k)
    # Heights are cut beyond the log-number of sets, the reach of the noise, and ``most``. Any cut
    # will do, as none increases what one user can change; the factors of 4 leave a margin.
    log_sets = k * math.log(ranked.size) + _LOG_SETS_MARGIN
    farthest = 4 * log_sets / epsilon + _REACH_OF_NOISE * scale + 4 * most
    pivot = ranked.count(k - 1)
    cut = min(math.ceil(farthest * linf), _LARGEST_CUT)

    def heights(ranks: Ints) -> Floats:
        """Return the counts of ranks above the k-th count, in units of linf."""
        return np.clip(ranked.counts_of(ranks) - pivot, -cut, cut) / linf

    odds = _largest_odds(grid, heights, k, epsilon / 2) / epsilon
    shifts = _needed_shifts(grid, heights(grid.ranks), k, scale, inclusion)
    best = float(np.minimum(odds, shifts).max())
    return min(max(best, -most), most)


def rounding_error(k: int) -> float:
    """Return an upper bound on the rounding error of ``advantage`` for k labels, times epsilon.

    Log-odds are sums of logarithms of about k ln(size), each off by a few ulps. The shifts s_j are
    arguments at which an expected number of labels has a given value. That number is off by
    3e-14·k, and the argument by this over the slope, which is at least 1/16 per scale of k/epsilon.
    The numbers here are above both by a factor of ten and more.
    """
    return 1e-5 + 1e-11 * k**2


def _largest_odds(
    grid: _RankGrid, heights: Callable[[Ints], Floats], k: int, rate: float
) -> Floats:
    """Return, for every level j, the largest of three log-odds that a set drawn at once holds about
    j of the top k, shape (n,): D_j over all sets, twice D'_j, the smallest given the worst rank in
    the set, and twice D"_j, the smallest given the best rank that is missing.

    The sets are those of each kind in the grid, with weights e^{-rate·gap}, and the best set, which
    reaches every level. The gap of a set is the count of the best rank that is missing less that of
    the worst rank in it.

    Args:
        grid: the kinds of sets.
        heights: the counts of ranks above the k-th, in units of linf.
        k: how many labels are drawn.
        rate: of the exponential mechanism, for gaps in units of linf.
    """
    gaps = heights(grid.missed)[:, None] - heights(grid.worst)[None, :]
    log_weights = grid.log_sizes - rate * gaps
    last_in, first_out = heights(np.array([k - 1, k])).tolist()
    log_weight_of_best = rate * -(first_out - last_in)
    # For each level and worst rank, the log-weight of the sets that do not reach the level, and of
    # those that do. In a column of ``log_weights`` the latter follow the former.
    below, reaching = _log_sums_by_split(log_weights, grid.first_reaching)
    all_reaching = np.logaddexp(log_weight_of_best, np.logaddexp.reduce(reaching, axis=1))
    total_odds = all_reaching - np.logaddexp.reduce(below, axis=1)
    odds_by_worst = (reaching - below).min(axis=1)
    # The same for each best missing rank: in a row, those that reach the level come first.
    reaching, below = _log_sums_by_split(log_weights.T, grid.reaching_worst)
    odds_by_missed = (reaching - below).min(axis=1)
    return np.maximum(total_odds, 2 * np.maximum(odds_by_worst, odds_by_missed))


def _log_sums_by_split(logs: Floats, split: Ints) -> tuple[Floats, Floats]:
    """Return, for every column, the logarithms of two sums of e^logs: over the rows before each
    split, and over the rows from it on; -inf for no rows.

    Args:
        logs: shape (rows, columns).
        split: a row number for each level and column, shape (n, columns), as are both results.
    """
    empty_row = np.full((1, logs.shape[1]), -np.inf)
    before = np.concatenate((empty_row, np.logaddexp.accumulate(logs)))
    from_the_end = np.logaddexp.accumulate(logs[::-1])
    after = np.concatenate((from_the_end[::-1], empty_row))
    column = np.arange(logs.shape[1])
    return before[split, column], after[split, column]


def _needed_shifts(
    grid: _RankGrid, heights: Floats, k: int, scale: float, inclusion: Inclusion
) -> Floats:
    """Return s_j for every level j, shape (n,): by how much the top k must rise for peeling to
    find j of them, in units of linf; -inf where peeling always finds as many.

    Peeling chooses the labels whose noisy counts exceed a threshold. It finds j of the top k if it
    chooses k - j of the others. So the first search is for the offset which all other counts need
    for that, the second for the offset with which j of the top k are chosen at the same threshold;
    the shift is the difference of the two.

    Args:
        grid: the levels and the cells of ranks.
        heights: the counts of the cells above the k-th, in units of linf, shape (c,).
        k: how many labels are drawn.
        scale: scale of the noise, in units of linf.
        inclusion: as for ``advantage``.
    """
    top_cells = slice(0, grid.top_cells)
    lower_cells = slice(grid.top_cells, None)

    def expected_peeled(cells: slice, offset: Floats) -> Floats:
        """Return the expected number of labels peeled from some cells, if the counts of all of them
        are higher by an offset.
        """
        chances = inclusion((heights[None, cells] + offset[:, None]) / scale)
        return chances @ grid.widths[cells].astype(np.float64)

    reach = _REACH_OF_OFFSET * scale + float(heights[0] - heights[-1])
    others = k - grid.levels
    # Where there are not so many others, peeling always finds j; then any value will do here.
    is_possible = others < grid.widths[lower_cells].sum()
    wanted = np.where(is_possible, others, 0.5)
    offset_of_others = _arguments_of(partial(expected_peeled, lower_cells), wanted, reach)
    offset_of_top = _arguments_of(partial(expected_peeled, top_cells), grid.levels, reach)
    return np.where(is_possible, offset_of_top - offset_of_others, -np.inf)


def _arguments_of(increasing: Callable[[Floats], Floats], values: Floats, reach: float) -> Floats:
    """Return the arguments in [-reach, reach] at which an elementwise increasing function has these
    values, by bisection, shape of ``values``.

    Args:
        increasing: the function, elementwise.
        values: the values that it should have.
        reach: the largest absolute argument.
    """
    ends = np.full(values.shape, reach)
    return np.mean(bisect_each(lambda x: increasing(x) < values, -ends, ends), axis=0)


@lru_cache(maxsize=16)
def _rank_grid(size: int, k: int) -> _RankGrid:
    """Return the grid for the top k of ``size`` > k ranks; each of its sides, the top k and the
    ranks below, is cut into at most a few hundred cells.

    A kind of set is a cell of the best rank that is missing and a cell of the worst rank that is in
    the set; the middle of a cell stands for all of its ranks.
    """
    top_cuts = k - _cell_bounds(0, k)[::-1]
    lower_cuts = _cell_bounds(k, size)
    # The leading ranks 0..missed-1 are in the set, the rank ``missed`` is not.
    missed = (top_cuts[:-1] + top_cuts[1:] - 1) // 2
    # How many of the top k a set holds, about, shape (m, w). It has the i ranks before the missing
    # one, and k - i - 1 of the ranks between the missing and the worst one. The top k has as many
    # of the latter, of which the same share is taken to be in the set.
    i = missed[:, None]
    others = k - i - 1.0
    ranks_between = np.maximum(lower_cuts[None, 1:] - i - 2, 1)  # the worst ends its cell
    found = i + others * others / ranks_between
    levels = _compared_levels(k)
    # The number found grows with the best rank that is missing and falls with the worst rank, so
    # that the kinds which reach a level are counted from one side.
    reached = found[None, :, :] >= levels[:, None, None]
    # The best set alone reaches the last level; peeling reaches it with fewer labels than k.
    levels[-1] = k - _MISSED_BY_BEST
    return _RankGrid(
        missed=missed,
        worst=(lower_cuts[:-1] + lower_cuts[1:] - 1) // 2,
        log_sizes=_log_sizes(top_cuts, lower_cuts, missed, k),
        levels=levels,
        first_reaching=missed.size - reached.sum(axis=1),
        reaching_worst=reached.sum(axis=2),
        ranks=np.concatenate((_middle_ranks(top_cuts), _middle_ranks(lower_cuts))),
        widths=np.concatenate((np.diff(top_cuts), np.diff(lower_cuts))),
        top_cells=top_cuts.size - 1,
    )


def _log_sizes(top_cuts: Ints, lower_cuts: Ints, missed: Ints, k: int) -> Floats:
    """Return the logarithm of the number of sets of k ranks whose best missing rank lies in a cell
    of the top k and whose worst rank in a cell below, for each pair of such cells, shape (m, w).

    Args:
        top_cuts: the ranks at which the cells within the top k begin, and k, shape (m + 1,).
        lower_cuts: those at which the cells below begin, and the number of ranks, shape (w + 1,).
        missed: the middles of the cells within the top k, which stand for all ranks of a cell.
        k: how many ranks a set has.
    """
    i = missed[:, None]
    cell_begin = lower_cuts[None, :-1]
    cell_end = lower_cuts[None, 1:]
    # Sets with the ranks 0..i-1 and without i, whose other k - i ranks lie before a cut c:
    # C(c - i - 1, k - i). Those with the worst rank in the cell are a difference of two of these.
    chosen = np.broadcast_to(k - i, (missed.size, cell_end.size))
    log_before_end = log_comb(cell_end - i - 1, chosen)
    log_before_begin = log_comb(cell_begin - i - 1, chosen)
    log_widths = np.log(np.diff(top_cuts))[:, None]
    with np.errstate(divide="ignore"):
        log_share = np.log(-np.expm1(np.minimum(log_before_begin - log_before_end, 0.0)))
    return log_before_end + log_share + log_widths


def _compared_levels(k: int) -> Floats:
    """Return at most _LEVELS numbers of labels found, increasing, at quarters between the whole
    numbers from 0 to k; at a whole number itself a root could have no slope.
    """
    quarters = np.arange(k)[:, None] + np.array([0.25, 0.5, 0.75])
    chosen = np.linspace(0, 3 * k - 1, min(3 * k, _LEVELS))
    return quarters.ravel()[chosen.astype(np.int64)]


def _middle_ranks(cuts: Ints) -> Ints:
    """Return the middle rank of each cell between successive cuts."""
    return cuts[:-1] + np.diff(cuts) // 2


def _cell_bounds(start: int, end: int) -> Ints:
    """Return increasing integers from start to end, between which cells of ranks lie: the first
    _DENSE cells have one rank, then the distance from the start grows by the factor _GROWTH.
    """
    cuts = [start]
    while cuts[-1] < end:
        distance = cuts[-1] - start
        next_cut = cuts[-1] + 1
        if distance >= _DENSE:
            next_cut = start + math.ceil(distance * _GROWTH)
        cuts.append(min(end, next_cut))
    return np.array(cuts, dtype=np.int64)
