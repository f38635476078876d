"""Independent ε-BR mechanisms with a few different ε's: a certified bracket of the optimum (DDR
Lemma 3.1).

The optimum is a supremum over one t for each mechanism; mechanisms with the same ε share theirs (CR
Lemma 4.4 averages two of them whatever the others are). So there is one dimension for each distinct
ε, searched by branch and bound:

* the value at any t is a lower bound;
* where t lies in [a, b], the loss of RR_{ε,t} lies in [a-ε, b], so that RR_{ε,t} is (ε+b-a)-BR with
  its t at b, and is dominated by that pair (DDR Lemma 4.1). The value of the product of these pairs
  bounds the whole cell from above.

A cell whose upper bound does not exceed the best value found by more than the tolerance is dropped,
others are split.

DDR is Dong-Durfee-Rogers 2020, CR is Cesar-Rogers 2022.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats, outward
from dptopk._internal.search import bisect
from dptopk.accounting.bounded_range.nonadaptive import LARGEST_EPSILON
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.pld.binomial import log_binomial_pmf
from dptopk.accounting.registry import bound
from dptopk.accounting.work import late
from dptopk.costs import BoundedRange, Charge, sum_up
from dptopk.errors import NotApplicable

# The limits of the search: different ε's, outcomes of their product, and cells of strategies.
MOST_EPSILONS = 3
MOST_BATCH_OUTCOMES = 300
MOST_BATCH_CELLS = 200_000
ROUNDING = 1e-11  # relative, far above that of the probabilities
SHIFT = 1e-14  # of ε_g, relative to the largest loss: far above the rounding of the losses
UNDERFLOW = 1e-290  # absolute, covers what underflows
# Of a search on a grid of strategies: points on each axis, by what the next grid is narrower, and
# the number of grids, whose last one is some 1e-5 of the first.
GRID_POINTS = 7
GRID_SHRINKS = 0.4
GRIDS = 12


@bound(
    "br_heterogeneous",
    source="Dong-Durfee-Rogers 2020, Lemma 3.1; Cesar-Rogers 2022, Lemma 4.4",
    takes=(BoundedRange,),
    valid_through="batch",
)
def br_heterogeneous(charge: Charge) -> _Heterogeneous:
    """Return the curve of independent BR mechanisms with at most three ε's and 300 outcomes; its
    answers are certified brackets of the optimum.

    Raises:
        NotApplicable: for equal ε's, or for too many or too large ones.
    """
    counts = {cost.epsilon: times for cost, times in charge.of(BoundedRange).items()}
    if len(counts) < 2:
        raise NotApplicable("needs different epsilons: br_nonadaptive is exact for equal ones")
    outcomes = math.prod(times + 1 for times in counts.values())
    if len(counts) > MOST_EPSILONS or outcomes > MOST_BATCH_OUTCOMES:
        raise NotApplicable(
            f"searches over at most {MOST_EPSILONS} epsilons and {MOST_BATCH_OUTCOMES} outcomes"
        )
    if max(counts) > LARGEST_EPSILON / 2:  # cells are up to twice as wide
        raise NotApplicable(f"computes with epsilon up to {LARGEST_EPSILON / 2} only")
    return _Heterogeneous(counts)


@dataclass(frozen=True)
class _StrategyCells:
    """Cells of strategies; a strategy has one t for the mechanisms of each ε.

    Attributes:
        low: shape (cells, number of ε's), the smallest t in each cell.
        high: the largest, of the same shape.
    """

    low: Floats
    high: Floats

    def __len__(self) -> int:
        """Return the number of cells."""
        return len(self.low)

    @property
    def middle(self) -> Floats:
        """Return the strategy in the middle of each cell."""
        return (self.low + self.high) / 2

    def selected(self, rows: NDArray[np.bool_]) -> _StrategyCells:
        """Return the cells for which ``rows`` is true."""
        return _StrategyCells(self.low[rows], self.high[rows])

    def halved(self) -> _StrategyCells:
        """Return every cell cut in halves along each axis: 2**d cells of d ε's."""
        middle = self.middle
        upper_halves = list(itertools.product([False, True], repeat=self.low.shape[1]))
        low = [np.where(is_upper, middle, self.low) for is_upper in upper_halves]
        high = [np.where(is_upper, self.high, middle) for is_upper in upper_halves]
        return _StrategyCells(np.concatenate(low), np.concatenate(high))


@dataclass(frozen=True)
class _Heterogeneous(Curve):
    """The curve of independent BR mechanisms with different ε's.

    Attributes:
        counts: the number of mechanisms of each ε.
    """

    counts: dict[float, int]

    @property
    def epsilon_max(self) -> float:
        """Return the sum of the ε's, from which on δ = 0."""
        return sum_up(self.counts)

    def answer(self, query: Query) -> Answer:
        """Return the answer, refined to ``query.rtol``, to MOST_BATCH_CELLS or to the deadline.

        It has a certified lower bound, but for an ε whose lower bound is asked for at another δ:
        the one that is found is for δ itself.
        """
        if query.epsilon is not None:
            lower, upper = self.bracket(query.epsilon, query.rtol)
            # The search ends at a width of ``rtol``; as much again is left to rounding outward.
            narrow = upper <= lower * (1 + 2 * query.rtol) + UNDERFLOW
            return Answer(upper, lower, "" if narrow else "not refined further")
        answer = self.invert(query.delta, query.rtol)
        if query.delta_below == query.delta:
            return answer
        return replace(answer, lower=None)

    def invert(self, delta: float, rtol: float) -> Answer:
        """Return the smallest ε found for which δ(ε) <= delta is proven, with a lower bound.

        The lower bound is the ε at which the best strategy found attains delta; from there on
        larger ε's are tried until one is proven.

        Args:
            delta: δ.
            rtol: by what share of ε the answer may lie beyond that root without a note.
        """
        if delta <= UNDERFLOW:
            return Answer(self.epsilon_max, 0.0)
        root = 0.0

        def too_small(x: float) -> bool:
            """Return whether δ(x) is certainly too large."""
            return self._best_strategy_value(x) > delta

        if too_small(0.0):
            # 50 halvings come to the rounding of the largest ε.
            root, _ = bisect(too_small, 0.0, self.epsilon_max, halvings=50)
        gap = rtol / 4  # the first one tried; each next one is four times as large
        while gap < 1:
            # Relative to ε; where ε is nearly 0, to a millionth of the largest one.
            x = root + gap * max(root, 1e-6 * self.epsilon_max)
            if x >= self.epsilon_max:
                break
            # A bracket half as wide as the room between the best strategy and δ decides; where
            # there is no room, the narrowest one that is tried.
            ratio = delta / max(self._best_strategy_value(x), UNDERFLOW)
            log_room = math.log(max(ratio, 1 + 1e-9))  # the least is 1e-9
            _, upper = self.bracket(x, min(log_room / 2, 1.0))
            if upper <= delta:
                return Answer(x, root, "" if gap <= rtol else "not refined further")
            gap *= 4
        return Answer(self.epsilon_max, root, "not refined further")

    def bracket(self, x: float, rtol: float) -> tuple[float, float]:
        """Return (lower, upper) bounds on δ(x) by branch and bound, to a relative width of about
        ``rtol``.
        """
        if x >= self.epsilon_max:
            return 0.0, 0.0
        cells = _StrategyCells(low=np.zeros((1, len(self.counts))), high=np.array([[*self.counts]]))
        lower = self._best_strategy_value(x)
        dropped = 0.0  # the largest upper bound of a cell that was dropped
        evaluated = 0
        while True:
            upper = self._cell_upper_bounds(x, cells)
            lower = max(lower, self._strategy_lower_bounds(x, cells.middle).max())
            evaluated += len(cells)
            is_open = ~(upper <= lower * (1 + rtol))  # True also where ``upper`` is NaN
            dropped = max(dropped, float(upper[~is_open].max(initial=0.0)))
            cells = cells.selected(is_open)
            if not len(cells):
                return lower, min(float(outward(dropped)), 1.0)
            # The work of the next round.
            number_of_parts = 2 ** len(self.counts) * len(cells)
            if evaluated + number_of_parts > MOST_BATCH_CELLS or late():
                of_all = np.maximum(upper[is_open].max(), dropped)
                return lower, min(float(outward(of_all)), 1.0)
            cells = cells.halved()

    def _cell_upper_bounds(self, x: float, cells: _StrategyCells) -> Floats:
        """Return an upper bound on the δ(x) of all strategies in each cell, shape (cells,)."""
        moved = x - SHIFT * self.epsilon_max
        bounds: Floats = self._pair_deltas(moved, cells.high, cells.low) * (1 + ROUNDING)
        return bounds + UNDERFLOW

    def _strategy_lower_bounds(self, x: float, t: Floats) -> Floats:
        """Return lower bounds on δ(x): the values of strategies.

        Args:
            x: ε of the composition.
            t: shape (strategies, number of ε's), the t of the mechanisms of each ε.
        """
        moved = x + SHIFT * self.epsilon_max
        values = self._pair_deltas(moved, t, t) * (1 - ROUNDING) - UNDERFLOW
        return np.nan_to_num(np.maximum(values, 0.0), nan=0.0)

    def _best_strategy_value(self, x: float) -> float:
        """Return a lower bound on δ(x): the value of the best strategy found by zooming in on a
        grid.
        """
        epsilons = np.array(list(self.counts))
        centre = epsilons / 2
        width = epsilons / 2
        best = 0.0
        axis = np.linspace(-1, 1, GRID_POINTS)
        steps = np.array(list(itertools.product(axis, repeat=len(epsilons))))
        # Every strategy gives a lower bound. The next grid reaches 0.4 of a width from the best
        # point, a little beyond the points beside it, a third of a width away.
        for _ in range(GRIDS):
            t = np.clip(centre + width * steps, 0, epsilons)
            values = self._strategy_lower_bounds(x, t)
            place = int(values.argmax())
            best = max(best, float(values[place]))
            centre = t[place]
            width = width * GRID_SHRINKS
        return best

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _pair_deltas(self, x: float, high: Floats, low: Floats) -> Floats:
        """Return δ(x) of the pairs with losses high_j and low_j - ε_j, not rounded outward; what a
        NaN means is left to the callers.

        Args:
            x: ε of the composition.
            high: shape (rows, number of ε's), the larger loss of each mechanism.
            low: shape (rows, number of ε's); the smaller loss is low_j - ε_j.
        """
        mass = np.ones((len(high), 1))
        loss = np.zeros((len(high), 1))
        for j, (epsilon, count) in enumerate(self.counts.items()):
            top = high[:, j : j + 1]
            spread = epsilon + top - low[:, j : j + 1]
            steps, pmf = _pair_law(top, spread, count)
            mass = (mass[:, :, None] * pmf[:, None, :]).reshape(len(high), -1)
            loss = (loss[:, :, None] + steps[:, None, :]).reshape(len(high), -1)
        gains = -np.expm1(np.minimum(x - loss, 0.0))
        return (mass * gains).sum(axis=1)


def _pair_law(top: Floats, spread: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the losses of the sum of ``count`` equal pairs, and their masses under P; both of the
    shape (rows, count + 1).

    Args:
        top: the larger loss of one pair, shape (rows, 1).
        spread: by how much the smaller loss lies below it, of the same shape.
        count: the number of pairs in the sum.
    """
    # The masses of the two losses sum to 1, and so do the masses times e^{-loss}.
    chance_of_larger = np.expm1(top - spread) / np.expm1(-spread)
    chance_of_smaller = np.exp(top - spread) * np.expm1(-top) / np.expm1(-spread)
    smaller_losses = np.arange(count + 1)
    pmf: Floats = np.exp(
        log_binomial_pmf(smaller_losses, count, chance_of_smaller, chance_of_larger)
    )
    return count * top - smaller_losses * spread, pmf
