"""The product of the dominating pairs of a charge on the lattice: certified brackets on its optimal
composition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dptopk._internal.rounding import EPS, sum_times
from dptopk.accounting.cost_models.conversions import pure_of
from dptopk.accounting.cost_models.cost_registry import cost_models, types_with
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.pld.lattice import LossDistribution, product, splitting_gap
from dptopk.accounting.pld.loss_components import Grid, LossComponent
from dptopk.accounting.pld.tilt import best_tilt
from dptopk.costs import Charge

# Costs with one pair that dominates in both directions: Theorem A applies to their products.
DOMINATED = types_with("loss_components")

# From this many pairs on the lower bound comes from ``splitting_gap``, not from a product of its
# own.
MANY_PAIRS = 12
# Above this count the binomial losses of one ε are too many for a grid, a window around the mean
# included.
MOST_BINOMIAL_COPIES = 10**9
# Longest grid that is tried.
MOST_GRID_POINTS = 2**20
# Losses of discrete Gaussians that are listed at most, and the work of one of them.
MOST_ATOMS = 8_000_000
WORK_PER_ATOM = 4e-7
# Standard deviations on a lattice; the work of one of its places; how much of the variance
# splitting may add, about.
DEVIATIONS = 15.0
WORK_PER_PLACE = 5e-7
NOISIEST = 4.0
# Losses whose typical sum is below this have squares that underflow.
SMALLEST_LOSS = 1e-100
# By what the steps of the first grids are multiplied: coarser ones where the work allows no finer,
# then halves.
SCALES = (*(2.0**k for k in range(-10, 1)), 4.0, 16.0, 64.0)
# The grid that is tried at last: this much finer (the first only with a lower bound), of at most
# this many points times parts.
FINER = (64, 16, 4)
CHEAP = 2**22


def loss_components(charge: Charge) -> list[LossComponent]:
    """Return the loss components of a charge's dominated costs, without failure mass; other costs
    are ignored.
    """
    found: list[LossComponent] = []
    for cost_type in DOMINATED:
        costs = charge.of(cost_type)
        build = cost_models()[cost_type].loss_components
        if costs and build is not None:
            found += build(costs)
    return found


def grid_product(parts: Sequence[LossComponent], grid: Grid) -> LossDistribution:
    """The product of all sources on one grid: dominating (side = 1) or dominated (side = -1)."""
    pairs = [pair for part in parts for pair in part.pairs(grid)]
    return product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)


@dataclass(frozen=True)
class Bracket:
    """lower <= optimum <= upper, and the numbers of points of the loss distributions that prove
    it.
    """

    upper: float
    lower: float
    note: str
    above: int = 1
    below: int = 0

    @property
    def points(self) -> int:
        """Of the larger one."""
        return max(self.above, self.below)

    def tightened(self, other: Bracket) -> Bracket:
        """The better end of each."""
        upper = min(self, other, key=lambda b: b.upper)
        lower = max(self, other, key=lambda b: b.lower)
        return Bracket(upper.upper, lower.lower, "", upper.above, lower.below)


def certified_bracket(charge: Charge, query: Query) -> Bracket:
    """Bracket the optimal composition of dominated costs by two grids, refined until it is as
    narrow as asked.

    Args:
        charge: costs of the types ``DOMINATED`` only, at least one; the bracket is of δ given that
            none of them fails.
        query: asks for δ at an ε >= 0 or for ε at a δ in (0, 1); refinement stops at its rtol or
            deadline. Without ``query.lower`` the lower end is 0 and the width is estimated: it is
            of second order in the step.

    Returns:
        Bracket: always sound; the note says when it is wider than rtol.
    """
    parts = loss_components(charge)
    if not _listable(parts):
        return _vacuous(
            charge, query, "too many losses, or losses too small or too large for a grid"
        )
    tilt = best_tilt(parts, delta=query.delta, epsilon=query.epsilon)
    first = _first_grids(charge, parts, tilt, query)
    if first is None:
        return _vacuous(charge, query, "a product of too many places")
    effort = _GridWork.of(parts, first, query)
    work = query.work
    best = None
    scale = math.inf
    for room in work.rooms():
        left = room
        while best is None or not _narrow(best, scale, query):
            finer = effort.finer(scale, left)
            if finer is None or (best is not None and best.points > MOST_GRID_POINTS / 2):
                break
            amount = effort.amount(finer)
            if not work.take(amount):
                return replace(best or _vacuous(charge, query, ""), note=work.note)
            left = left - amount
            scale = finer
            found = _bracket(charge, parts, _scaled(first, scale), query)
            best = found if best is None else best.tightened(found)
    if best is None:
        return _vacuous(
            charge, query, "a product of too many places" if work.spent < math.inf else work.note
        )
    if _narrow(best, scale, query):
        return _finer(best, parts, _scaled(first, scale)[0], query)
    return replace(best, note=f"bracket wider than asked: lower bound {best.lower:.6g}")


def _listable(parts: Sequence[LossComponent]) -> bool:
    """Whether the losses are few enough to be listed, and neither too small nor too large."""
    spread = sum(part.spread() for part in parts)
    atoms = sum(part.atoms() for part in parts)
    return atoms <= MOST_ATOMS and SMALLEST_LOSS**2 < spread < math.inf


@dataclass(frozen=True)
class _GridWork:
    """The work of a bracket: of listing the losses, and of the places of the first grids."""

    listing: float
    places: float

    @classmethod
    def of(
        cls, parts: Sequence[LossComponent], first: tuple[Grid, Grid], query: Query
    ) -> _GridWork:
        atoms = sum(part.atoms() for part in parts)
        listing = WORK_PER_ATOM * atoms + math.fsum(part.work() for part in parts)
        return cls(listing, _places(first, parts, query))

    def amount(self, scale: float) -> float:
        """The work on grids whose steps are ``scale`` times those of the first."""
        return self.listing + WORK_PER_PLACE * self.places / scale

    def finer(self, scale: float, left: float) -> float | None:
        """The next scale after ``scale``: half of it, or what the work that is left allows."""
        fitting = (one for one in SCALES if one < scale and self.amount(one) <= left)
        return next((one for one in fitting if one >= min(1.0, scale / 2)), None)


def _scaled(grids: tuple[Grid, Grid], scale: float) -> tuple[Grid, Grid]:
    """The grids with steps times a scale."""
    above, below = grids
    width = below.width * min(scale, 1.0) ** 0.5
    below = replace(below, step=scale * below.step, width=width)
    return replace(above, step=scale * above.step), below


def _narrow(best: Bracket, scale: float, query: Query) -> bool:
    """Whether the width, or an estimate of it, is at most rtol, relative to the upper end."""
    if query.lower:
        return best.upper - best.lower <= query.rtol * best.upper < math.inf
    return _first_width(query) * scale**2 <= query.rtol and best.upper < math.inf


def _places(grids: tuple[Grid, Grid], parts: Sequence[LossComponent], query: Query) -> float:
    """The places of the products on the grids."""
    above, below = grids
    window = DEVIATIONS * math.sqrt(sum(part.spread() for part in parts))
    by_gap = _bounded_by_gap(parts)
    places = window / above.step * (3 if by_gap and query.lower else 1)
    return places + (window / below.step if query.lower and not by_gap else 0)


def _bounded_by_gap(parts: Sequence[LossComponent]) -> bool:
    """Whether the lower end comes from ``splitting_gap``, not from a product of its own."""
    above = sum(part.roundings()[0] for part in parts)
    return above >= MANY_PAIRS and all(part.exact for part in parts)


def _first_width(query: Query) -> float:
    """The relative width at which the first grids aim; a narrower one is reached by refinement."""
    return min(max(query.rtol, 1e-3), 0.5)


def _finer(best: Bracket, parts: Sequence[LossComponent], grid: Grid, query: Query) -> Bracket:
    """Recompute the upper end on a much finer grid, on which it is almost exact, if that is cheap.

    It is off to second order only; the width of the bracket is that of its lower end.
    """
    size = best.above * sum(part.roundings()[0] for part in parts)
    finer = next((times for times in FINER[not query.lower :] if times * size <= CHEAP), None)
    if finer is None:
        return best
    try:
        above = grid_product(parts, replace(grid, step=grid.step / finer))
    except OverflowError:  # one component has too many places on that grid
        return best
    if query.epsilon is not None:
        upper = above.delta(query.epsilon)
    else:
        upper = above.epsilon(query.delta)
    if max(best.lower, 0.0) <= upper < best.upper and upper > 0:
        return replace(best, upper=upper)
    return best


def _vacuous(charge: Charge, query: Query, note: str) -> Bracket:
    return Bracket(1.0 if query.epsilon is not None else _largest_loss(charge), 0.0, note)


def _first_grids(
    charge: Charge, parts: Sequence[LossComponent], tilt: float, query: Query
) -> tuple[Grid, Grid] | None:
    """Grids on which a bracket should be about rtol wide; a guess that only costs time when it is
    wrong.

    None where splitting would add more than is there.
    """
    spread = sum(part.spread() for part in parts)
    typical = math.sqrt(
        2 * spread * max(1.0, math.log1p(tilt))
    )  # about the size of the losses that matter
    start = _first_width(query)
    if query.epsilon is None:
        tolerance = start * typical
    else:
        tolerance = min(start / (1 + tilt), typical / 2)
    above, below = np.sum([part.roundings() for part in parts], axis=0)
    coarsest = (
        30 * math.sqrt(spread) / MOST_GRID_POINTS
    )  # about MOST_GRID_POINTS cells within the reach of the product
    step_above = (2 if above < MANY_PAIRS else 1.2) * tolerance / typical * spread / above
    step_above = max(math.sqrt(step_above), coarsest)
    if _added_variance(step_above, above, spread) > NOISIEST * spread:
        return None
    if (
        query.epsilon and query.epsilon > step_above
    ):  # a grid point at ε: there the chord touches the curve it bounds
        step_above = query.epsilon / math.ceil(query.epsilon / step_above)
    # Pairs that are off to second order from below too need no finer grid there.
    step_below = max(tolerance / (2 * below) if below else step_above, coarsest)
    width = math.sqrt(4 * tolerance / typical * spread / charge.count)
    return Grid(step_above, tilt, 1), Grid(step_below, tilt, -1, width)


def _added_variance(step: float, pairs: int, spread: float) -> float:
    """About what splitting so many pairs adds to the variance of their total loss."""
    deviation = math.sqrt(spread / max(pairs, 1))  # of one pair
    return pairs * min(step**2 / 4, step * deviation)


def _bracket(
    charge: Charge, parts: Sequence[LossComponent], grids: tuple[Grid, Grid], query: Query
) -> Bracket:
    above = grid_product(parts, grids[0])
    if query.epsilon is not None:
        upper = above.delta(query.epsilon)
    else:
        upper = above.epsilon(query.delta)
    largest = _largest_loss(charge)
    if query.epsilon is None:
        upper = min(upper, largest)
    elif query.epsilon < largest:  # a δ that is positive, however small
        upper = max(upper, math.ulp(0.0))
    if not query.lower:
        return Bracket(upper, 0.0, "", above.masses.size)
    if _bounded_by_gap(parts):
        lower = _below_by_gap(parts, grids[0], above, query, upper)
        return Bracket(upper, min(lower, upper), "", above.masses.size)
    below = grid_product(parts, grids[1])
    if query.epsilon is not None:
        lower = below.delta(query.epsilon)
    else:
        lower = below.epsilon(query.delta_below)
    return Bracket(upper, min(lower, upper), "", above.masses.size, below.masses.size)


def _below_by_gap(
    parts: Sequence[LossComponent], grid: Grid, above: LossDistribution, query: Query, upper: float
) -> float:
    """A lower bound from the product above, less what rounding its pairs outward and splitting can
    have added to it.
    """
    raised = math.fsum(part.raised() for part in parts)
    pairs = [pair for part in parts for pair in part.pairs(grid)]
    gap = splitting_gap(pairs, step=grid.step, tilt=grid.tilt)

    def delta_lower(x: float) -> float:
        return above.delta(x, side=-1) * (1 - raised) - gap(x)

    if query.epsilon is not None:
        return max(delta_lower(query.epsilon), 0.0)
    # Where δ is certainly above the one asked for, the optimal ε is larger: any such point will do.
    for retreat in min(query.rtol, 0.01) * np.geomspace(0.1, 100, 31):
        x = upper * (1 - retreat)
        if x >= 0 and delta_lower(x) > query.delta_below:
            return float(x)
    return 0.0


@dataclass(frozen=True)
class BracketCurve(Curve):
    """Brackets of the optimal composition, one query at a time.

    Args:
        charge: costs of the types ``DOMINATED``.
        largest: upper bound on the largest loss of the composition; inf where there is none.
        attained: whether the lower bound may be reported.
        note: what is to be said with every answer.
    """

    charge: Charge
    largest: float
    attained: bool = True
    note: str = ""

    def answer(self, query: Query) -> Answer:
        """The certified bracket."""
        if (
            query.epsilon is None and query.delta <= 0
        ):  # the largest loss has a positive mass, however small
            is_reached = self.attained and self.largest < math.inf and query.delta_below <= 0
            return Answer(
                self.largest, self.largest * (1 - 4 * EPS) if is_reached else None, self.note
            )
        if query.epsilon is not None and query.epsilon >= self.largest:
            return Answer(0.0, 0.0, self.note)
        found = certified_bracket(self.charge, query)
        if query.epsilon is not None:
            upper = found.upper
        else:
            upper = min(found.upper, self.largest)
        note = "; ".join(filter(None, (self.note, found.note)))
        return Answer(
            upper, min(found.lower, upper) if self.attained and query.lower else None, note
        )


def _largest_loss(charge: Charge) -> float:
    """The sum of the ε's when every cost implies pure DP, else inf."""
    return sum_times((pure_of(cost), times) for cost, times in charge)
