"""The product of the dominating pairs of a charge on the lattice: certified brackets on its optimal composition."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from dptopk.accounting.curves import EPS, Answer, Curve, Floats, Query
from dptopk.accounting.kinds.conversions import pure_of
from dptopk.accounting.kinds.registry import kinds, types_with
from dptopk.accounting.pld.lattice import LossDistribution, product, splitting_gap
from dptopk.accounting.pld.sources import Grid, Source
from dptopk.accounting.pld.tilt import best_tilt
from dptopk.costs import Charge, sum_up

__all__ = ["DOMINATED", "Bracket", "BracketCurve", "certified_bracket", "grid_product", "sources"]

# Costs with one pair that dominates in both directions: Theorem A applies to their products.
DOMINATED = types_with(sources=True)

# From this many pairs on the lower bound comes from ``splitting_gap``, not from a product of its own.
MANY = 12
# Above this count the binomial losses of one ε are too many for a grid, a window around the mean included.
MOST_COPIES = 10**9
# Longest grid that is tried.
MOST_POINTS = 2**20
# Losses of discrete Gaussians that are listed at most, and a guess at the seconds that one of them takes.
MOST_ATOMS = 8_000_000
SECONDS_PER_ATOM = 4e-7
# Standard deviations on a lattice; a guess at the seconds that one of its places takes; how late a product may be; how
# much of the variance splitting may add, about.
PLACES, SECONDS_PER_PLACE, LATER, NOISIEST = 15.0, 5e-7, 0.1, 4.0
# Losses whose typical sum is below this have squares that underflow.
SMALLEST_LOSS = 1e-100
# Times that the steps are halved at most.
FINER, CHEAP = 4, 2**22  # a grid so much finer is tried where points times parts are at most so many
REFINEMENTS = 10


def sources(charge: Charge) -> list[Source]:
    """What the dominated costs of a charge (without failure mass) contribute; other costs are left out."""
    found: list[Source] = []
    for cost_type in DOMINATED:
        costs, build = charge.of(cost_type), kinds()[cost_type].sources
        if costs and build is not None:
            found += build(costs)
    return found


def grid_product(parts: Sequence[Source], grid: Grid) -> LossDistribution:
    """The product of all sources on one grid: dominating (side = 1) or dominated (side = -1)."""
    pairs = [pair for part in parts for pair in part.pairs(grid)]
    return product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)


@dataclass(frozen=True)
class Bracket:
    """lower <= optimum <= upper, and the loss distributions that prove it."""

    upper: float
    lower: float
    note: str
    above: LossDistribution
    below: LossDistribution | None

    def narrow(self, rtol: float) -> bool:
        """Whether the width is at most rtol, relative to the upper end."""
        return self.upper - self.lower <= rtol * self.upper < math.inf

    def tightened(self, other: Bracket) -> Bracket:
        """The better end of each."""
        upper, lower = min(self, other, key=lambda b: b.upper), max(self, other, key=lambda b: b.lower)
        return Bracket(upper.upper, lower.lower, "", upper.above, lower.below)


def certified_bracket(charge: Charge, query: Query) -> Bracket:
    """Bracket the optimal composition of dominated costs by two grids, refined until it is as narrow as asked.

    Args:
        charge: costs of the types ``DOMINATED`` only, at least one; the bracket is of δ given that none of them fails.
        query: asks for δ at an ε >= 0 or for ε at a δ in (0, 1); refinement stops at its rtol or deadline. Without
            ``query.lower`` the lower end is 0 and the width is reckoned: it is of second order in the step.

    Returns:
        Bracket: always sound; the note says when it is wider than rtol.
    """
    parts = sources(charge)
    atoms = sum(part.atoms() for part in parts)
    seconds = SECONDS_PER_ATOM * atoms + math.fsum(part.seconds() for part in parts)
    if atoms > MOST_ATOMS or time.monotonic() + seconds > query.deadline:
        return _vacuous(charge, query, "no time for a product of this many losses")
    if not SMALLEST_LOSS**2 < sum(part.spread() for part in parts) < math.inf:
        return _vacuous(charge, query, "losses too small or too large for a grid")
    tilt = best_tilt(parts, delta=query.delta, epsilon=query.epsilon)
    grids = _in_time(_first_grids(charge, parts, tilt, query), parts, seconds, query)
    if grids is None:
        return _vacuous(charge, query, "no time for a product of this many places")
    started = time.monotonic()
    best, reckoned = _bracket(charge, parts, grids, query), _first_width(query)
    for _ in range(REFINEMENTS):
        now = time.monotonic()
        longest = max(part.masses.size for part in (best.above, best.below) if part is not None)
        if _narrow(best, reckoned, query) or now + 3 * (now - started) > query.deadline or 2 * longest > MOST_POINTS:
            break
        started = now
        above, below = grids
        grids = (replace(above, step=above.step / 2), replace(below, step=below.step / 2, width=below.width / 1.4))
        best, reckoned = best.tightened(_bracket(charge, parts, grids, query)), reckoned / 4
    if _narrow(best, reckoned, query):
        return _finer(best, parts, grids[0], query)
    return replace(best, note=f"bracket wider than asked: lower bound {best.lower:.6g}")


def _narrow(best: Bracket, reckoned: float, query: Query) -> bool:
    return best.narrow(query.rtol) if query.lower else reckoned <= query.rtol and best.upper < math.inf


def _in_time(
    grids: tuple[Grid, Grid], parts: Sequence[Source], seconds: float, query: Query
) -> tuple[Grid, Grid] | None:
    """The grids, coarser where their products would take too long; ``seconds`` goes to the pairs. None: no time at all.

    By the time that was given, as long as the clock has about as much: the same question has the same answer.
    """
    room = min(0.8 * query.seconds, query.deadline - time.monotonic() + LATER) - seconds
    above, below = grids
    spread, splits = sum(part.spread() for part in parts), sum(part.roundings()[0] for part in parts)
    if splits * min(above.step**2 / 4, above.step * math.sqrt(spread / max(splits, 1))) > NOISIEST * spread:
        return None  # splitting would add more than is there
    window = PLACES * math.sqrt(spread)
    by_gap = splits >= MANY and all(part.exact for part in parts)
    for coarser in (1, 4, 16, 64):
        places = window / above.step * (3 if by_gap and query.lower else 1)
        places += window / below.step if query.lower and not by_gap else 0
        if SECONDS_PER_PLACE * places <= coarser * room:
            return replace(above, step=coarser * above.step), replace(below, step=coarser * below.step)
    return None


def _first_width(query: Query) -> float:
    """The relative width at which the first grids aim; a narrower one is reached by refinement, watching the time."""
    return min(max(query.rtol, 1e-3), 0.5)


def _finer(best: Bracket, parts: Sequence[Source], grid: Grid, query: Query) -> Bracket:
    """The upper end once more, on a grid so much finer that it is all but exact, where that is cheap.

    It is off to second order only; the width of the bracket is that of its lower end. Whether it is done depends on the
    sizes alone, not on the clock: the same question has the same answer.
    """
    size = FINER * best.above.masses.size * sum(part.roundings()[0] for part in parts)
    if size > CHEAP or time.monotonic() > query.deadline:
        return best
    above = grid_product(parts, replace(grid, step=grid.step / FINER))
    upper = above.delta(query.epsilon) if query.epsilon is not None else above.epsilon(query.delta)
    return replace(best, upper=upper, above=above) if max(best.lower, 0.0) <= upper < best.upper and upper > 0 else best


def _vacuous(charge: Charge, query: Query, note: str) -> Bracket:
    nothing = LossDistribution(1.0, 0, np.ones(1), 0.0, 0.0, 0.0, 0.0, 0.0, 1)
    return Bracket(1.0 if query.epsilon is not None else _largest_loss(charge), 0.0, note, nothing, None)


def _first_grids(charge: Charge, parts: Sequence[Source], tilt: float, query: Query) -> tuple[Grid, Grid]:
    """Grids on which a first bracket should be about rtol wide; a guess that only costs time when it is wrong."""
    spread = sum(part.spread() for part in parts)
    typical = math.sqrt(2 * spread * max(1.0, math.log1p(tilt)))  # about the size of the losses that matter
    start = _first_width(query)
    tolerance = start * typical if query.epsilon is None else min(start / (1 + tilt), typical / 2)
    above, below = np.sum([part.roundings() for part in parts], axis=0)
    coarsest = 30 * math.sqrt(spread) / MOST_POINTS  # about MOST_POINTS cells within the reach of the product
    step_above = max(math.sqrt((2 if above < MANY else 1.2) * tolerance / typical * spread / above), coarsest)
    if query.epsilon and query.epsilon > step_above:  # a grid point at ε: there the chord touches the curve it bounds
        step_above = query.epsilon / math.ceil(query.epsilon / step_above)
    # Pairs that are off to second order from below too need no finer grid there.
    step_below = max(tolerance / (2 * below) if below else step_above, coarsest)
    width = math.sqrt(4 * tolerance / typical * spread / charge.count)
    return Grid(step_above, tilt, 1), Grid(step_below, tilt, -1, width)


def _bracket(charge: Charge, parts: Sequence[Source], grids: tuple[Grid, Grid], query: Query) -> Bracket:
    above = grid_product(parts, grids[0])
    upper = above.delta(query.epsilon) if query.epsilon is not None else above.epsilon(query.delta)
    largest = _largest_loss(charge)
    if query.epsilon is None:
        upper = min(upper, largest)
    elif query.epsilon < largest:  # a δ that is positive, however small
        upper = max(upper, math.ulp(0.0))
    if not query.lower:
        return Bracket(upper, 0.0, "", above, None)
    if sum(part.roundings()[0] for part in parts) >= MANY and all(part.exact for part in parts):
        return Bracket(upper, min(_below_by_gap(parts, grids[0], above, query, upper), upper), "", above, None)
    below = grid_product(parts, grids[1])
    lower = below.delta(query.epsilon) if query.epsilon is not None else below.epsilon(query.delta_below)
    return Bracket(upper, min(lower, upper), "", above, below)


def _below_by_gap(parts: Sequence[Source], grid: Grid, above: LossDistribution, query: Query, upper: float) -> float:
    """A lower bound from the product above, less what rounding its pairs outward and splitting can have added to it."""
    raised = math.fsum(part.raised() for part in parts)
    gap = splitting_gap([pair for part in parts for pair in part.pairs(grid)], step=grid.step, tilt=grid.tilt)

    def delta_lower(x: float) -> float:
        return above.delta(x, side=-1) * (1 - raised) - gap(x)

    if query.epsilon is not None:
        return max(delta_lower(query.epsilon), 0.0)
    # Where δ is certainly above the one asked for, the optimal ε is larger: any such point will do.
    for retreat in min(query.rtol, 0.01) * np.geomspace(0.1, 100, 31):
        if upper * (1 - retreat) >= 0 and delta_lower(upper * (1 - retreat)) > query.delta_below:
            return float(upper * (1 - retreat))
    return 0.0


@dataclass(frozen=True)
class BracketCurve(Curve):
    """Brackets of the optimal composition, one query at a time.

    Args:
        charge: costs of the types ``DOMINATED``, all with a largest loss.
        largest: upper bound on the largest loss of the composition.
        attained: whether the lower bound may be reported.
        note: what is to be said with every answer.
    """

    charge: Charge
    largest: float
    attained: bool = True
    note: str = ""

    def answer(self, query: Query) -> Answer:
        """The certified bracket."""
        if query.epsilon is None and query.delta <= 0:  # the largest loss has a positive mass, however small
            return Answer(self.largest, self.largest * (1 - 4 * EPS) if self.attained else None, self.note)
        if query.epsilon is not None and query.epsilon >= self.largest:
            return Answer(0.0, 0.0, self.note)
        found = certified_bracket(self.charge, query)
        upper = found.upper if query.epsilon is not None else min(found.upper, self.largest)
        note = "; ".join(filter(None, (self.note, found.note)))
        return Answer(upper, min(found.lower, upper) if self.attained and query.lower else None, note)

    def delta(self, epsilon: ArrayLike) -> Floats:
        """Upper bounds on δ, a bracket each."""
        x = np.asarray(epsilon, dtype=float)
        values = [self.answer(Query(epsilon=float(each))).value for each in x.ravel()]
        return np.array(values).reshape(x.shape)

    def epsilon(self, delta: ArrayLike) -> Floats:
        """Upper bounds on ε, a bracket each."""
        d = np.asarray(delta, dtype=float)
        values = [self.answer(Query(delta=float(each))).value for each in d.ravel()]
        return np.array(values).reshape(d.shape)


def _largest_loss(charge: Charge) -> float:
    """The sum of the ε's when every cost implies pure DP, else inf."""
    largest: Counter[float] = Counter()
    for cost, times in charge:
        largest[pure_of(cost)] += times
    return sum_up(largest)
