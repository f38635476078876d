"""The product of the dominating pairs of a charge on the lattice: certified brackets on its optimal
composition.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
MOST_ADDED_VARIANCE = 4.0
# The relative widths at which the first grids aim lie between these.
NARROWEST_FIRST = 1e-3
WIDEST_FIRST = 0.5
# Losses whose typical sum is below this have squares that underflow.
SMALLEST_LOSS = 1e-100
# The number of standard deviations of the total loss over which the finest first grid has
# MOST_GRID_POINTS points; about the range of the losses of a product.
DEVIATIONS_OF_FINEST_GRID = 30
# By what the steps of the first grids are multiplied: coarser ones where the work allows no finer,
# then halves.
SCALES = (*(2.0**k for k in range(-10, 1)), 4.0, 16.0, 64.0)
# The upper end is computed at last on a grid that is finer by the first of these factors (the first
# one only with a lower bound) for which its points times its parts are at most MOST_FINER_POINTS.
UPPER_END_FACTORS = (64, 16, 4)
MOST_FINER_POINTS = 2**22


def loss_components(charge: Charge) -> list[LossComponent]:
    """Return the loss components of a charge's dominated costs; other costs are ignored.

    Args:
        charge: costs without failure mass.
    """
    components: list[LossComponent] = []
    for cost_type in DOMINATED:
        costs = charge.of(cost_type)
        build = cost_models()[cost_type].loss_components
        if costs and build is not None:
            components += build(costs)
    return components


def grid_product(parts: Sequence[LossComponent], grid: Grid) -> LossDistribution:
    """Return the product of all components on one grid: dominating (``grid.side`` = 1) or dominated
    (-1).

    Args:
        parts: the loss components, at least one.
        grid: the step, the tilt and the side.

    Raises:
        OverflowError: for a product of too many places.
    """
    pairs = [pair for part in parts for pair in part.pairs(grid)]
    return product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)


class _GridPair(NamedTuple):
    """The two grids that a bracket is computed on.

    Attributes:
        above: for the product that dominates the costs.
        below: for the product that the costs dominate.
    """

    above: Grid
    below: Grid

    def scaled(self, scale: float) -> _GridPair:
        """Return the grids with their steps multiplied by ``scale``."""
        # The step from below is proportional to the tolerance of ``_first_grids``, the width to its
        # root; coarser grids merge no farther ε's.
        width = self.below.width * min(scale, 1.0) ** 0.5
        below = replace(self.below, step=scale * self.below.step, width=width)
        return _GridPair(replace(self.above, step=scale * self.above.step), below)


@dataclass(frozen=True)
class Bracket:
    """Bounds on an optimum, δ or ε, with a note.

    Attributes:
        upper: the upper bound.
        lower: the lower bound; 0 where none was computed.
        note: why the bracket is wider than asked, or empty.
        points_above: the number of points of the loss distribution that proves the upper bound.
        points_below: that of the one that proves the lower bound; 0 where it has none of its own.
    """

    upper: float
    lower: float
    note: str
    points_above: int = 1
    points_below: int = 0

    @property
    def points(self) -> int:
        """Return the number of points of the larger loss distribution."""
        return max(self.points_above, self.points_below)

    def with_better_ends(self, other: Bracket) -> Bracket:
        """Return the bracket with the better end of each of two brackets, without a note."""
        upper = min(self, other, key=lambda b: b.upper)
        lower = max(self, other, key=lambda b: b.lower)
        return Bracket(upper.upper, lower.lower, "", upper.points_above, lower.points_below)


def certified_bracket(charge: Charge, query: Query) -> Bracket:
    """Bracket the optimal composition of dominated costs by two grids, refined until the bracket is
    as narrow as asked.

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
    if not _can_be_listed(parts):
        return _vacuous_bracket(
            charge, query, "too many losses, or losses too small or too large for a grid"
        )
    tilt = best_tilt(parts, delta=query.delta, epsilon=query.epsilon)
    first = _first_grids(charge, parts, tilt, query)
    if first is None:
        return _vacuous_bracket(charge, query, "a product of too many places")
    best, scale = _best_bracket(charge, parts, first, query)
    work = query.work
    if best is None:
        note = "a product of too many places" if work.spent < math.inf else work.note
        return _vacuous_bracket(charge, query, note)
    if work.spent == math.inf:  # a refinement did not fit
        return replace(best, note=work.note)
    if _is_narrow(best, scale, query):
        return _with_finer_upper_end(best, parts, first.scaled(scale).above, query)
    return replace(best, note=f"bracket wider than asked: lower bound {best.lower:.6g}")


def _best_bracket(
    charge: Charge, parts: Sequence[LossComponent], first: _GridPair, query: Query
) -> tuple[Bracket | None, float]:
    """Return the best bracket of grids that are refined while the query's work lasts (None if no
    grid fits), and the scale of the last grids.

    Args:
        charge: the costs.
        parts: their loss components.
        first: the first grids, to which scales refer.
        query: the question, with the work that it may take.
    """
    effort = _GridWork.of(parts, first, query)
    best: Bracket | None = None
    scale = math.inf
    for room in query.work.stage_rooms():
        work_left = room
        while best is None or not _is_narrow(best, scale, query):
            finer = effort.finer(scale, work_left)
            # With half the step there would be twice as many points.
            is_finest = best is not None and best.points > MOST_GRID_POINTS / 2
            if finer is None or is_finest:
                break
            amount = effort.amount(finer)
            if not query.work.take(amount):
                return best, scale
            work_left = work_left - amount
            scale = finer
            grids = first.scaled(scale)
            bracket = _Products.of(charge, parts, grids, lower=query.lower).bracket(query)
            best = bracket if best is None else best.with_better_ends(bracket)
    return best, scale


def _can_be_listed(parts: Sequence[LossComponent]) -> bool:
    """Return whether the losses are few enough to be listed, and neither too small nor
    too large.
    """
    spread = sum(part.spread() for part in parts)
    atoms = sum(part.atoms() for part in parts)
    return atoms <= MOST_ATOMS and SMALLEST_LOSS**2 < spread < math.inf


@dataclass(frozen=True)
class _GridWork:
    """The work of a bracket, as counted before it is computed.

    Attributes:
        listing: of listing the losses, in seconds.
        places: the number of places of the first grids.
    """

    listing: float
    places: float

    @classmethod
    def of(cls, parts: Sequence[LossComponent], first: _GridPair, query: Query) -> _GridWork:
        """Return the work of brackets of a product, given its first grids.

        Args:
            parts: the loss components.
            first: the first grids.
            query: the question.
        """
        atoms = sum(part.atoms() for part in parts)
        listing = WORK_PER_ATOM * atoms + math.fsum(part.work() for part in parts)
        return cls(listing, _number_of_places(first, parts, query))

    def amount(self, scale: float) -> float:
        """Return the work, in seconds, on grids whose steps are ``scale`` times those of
        the first.
        """
        return self.listing + WORK_PER_PLACE * self.places / scale

    def finer(self, scale: float, work_left: float) -> float | None:
        """Return the scale to compute next: after one of at most 1 half of it, and before that the
        finest one from 1 on for which there is work; None where there is none.

        Args:
            scale: the last one; inf before the first.
            work_left: the work that the next grids may take, in seconds.
        """
        finest = min(1.0, scale / 2)
        for candidate in SCALES:  # from fine to coarse
            if finest <= candidate < scale and self.amount(candidate) <= work_left:
                return candidate
        return None


def _is_narrow(best: Bracket, scale: float, query: Query) -> bool:
    """Return whether the width, or an estimate of it, is at most rtol, relative to the
    upper end.

    Args:
        best: the bracket.
        scale: of the last grids, in steps of the first.
        query: the question.
    """
    if query.lower:
        return best.upper - best.lower <= query.rtol * best.upper < math.inf
    # Splitting moves the upper end to second order in the step.
    return _first_width(query) * scale**2 <= query.rtol and best.upper < math.inf


def _number_of_places(grids: _GridPair, parts: Sequence[LossComponent], query: Query) -> float:
    """Return about the number of places of all products that a bracket takes.

    Args:
        grids: the grids.
        parts: the loss components.
        query: the question; without a lower bound there is no product from below.
    """
    above, below = grids
    window = DEVIATIONS * math.sqrt(sum(part.spread() for part in parts))
    by_gap = _uses_splitting_gap(parts)
    if query.lower and by_gap:
        return window / above.step * 3  # ``splitting_gap`` takes two more products
    if query.lower:
        return window / above.step + window / below.step
    return window / above.step


def _uses_splitting_gap(parts: Sequence[LossComponent]) -> bool:
    """Return whether the lower end comes from ``splitting_gap``, not from a product of its own.

    The gap bounds what the grid adds. Pairs that are not exact were larger than the truth before,
    which it does not bound.
    """
    rounded_up = sum(part.roundings().above for part in parts)
    return rounded_up >= MANY_PAIRS and all(part.exact for part in parts)


def _first_width(query: Query) -> float:
    """Return the relative width of a bracket at which the first grids aim; narrower ones are
    reached by refinement.
    """
    return min(max(query.rtol, NARROWEST_FIRST), WIDEST_FIRST)


def _with_finer_upper_end(
    best: Bracket, parts: Sequence[LossComponent], grid: Grid, query: Query
) -> Bracket:
    """Return the bracket with an upper end from a much finer grid, on which it is almost exact, if
    that is cheap.

    The upper end is off to second order only; the width of the bracket is that of its lower end.

    Args:
        best: the bracket.
        parts: the loss components.
        grid: the one from above that the bracket was computed on.
        query: the question.
    """
    size = best.points_above * sum(part.roundings().above for part in parts)
    candidates = UPPER_END_FACTORS if query.lower else UPPER_END_FACTORS[1:]
    cheap = [factor for factor in candidates if factor * size <= MOST_FINER_POINTS]
    if not cheap:
        return best
    try:
        above = grid_product(parts, replace(grid, step=grid.step / cheap[0]))
    except OverflowError:  # one component has too many places on that grid
        return best
    if query.epsilon is not None:
        upper = above.delta(query.epsilon)
    else:
        upper = above.epsilon(query.delta)
    if max(best.lower, 0.0) <= upper < best.upper and upper > 0:
        return replace(best, upper=upper)
    return best


def _vacuous_bracket(charge: Charge, query: Query, note: str) -> Bracket:
    """Return the bracket that says nothing: up to δ = 1, or up to the largest loss.

    Args:
        charge: the costs.
        query: the question.
        note: why no more is known.
    """
    if query.epsilon is not None:
        return Bracket(1.0, 0.0, note)
    return Bracket(_largest_loss(charge), 0.0, note)


def _first_grids(
    charge: Charge, parts: Sequence[LossComponent], tilt: float, query: Query
) -> _GridPair | None:
    """Return the grids on which a bracket should be about rtol wide; None where splitting would add
    more than MOST_ADDED_VARIANCE times the variance that the losses have.

    The choice is a guess that only costs time when it is wrong.

    Args:
        charge: the costs.
        parts: their loss components.
        tilt: the exponent of the tilted laws.
        query: the question.
    """
    spread = sum(part.spread() for part in parts)
    # About the size of the losses that matter.
    typical = math.sqrt(2 * spread * max(1.0, math.log1p(tilt)))
    tolerance = _loss_tolerance(query, tilt, typical)
    pairs_above, pairs_below = np.sum([part.roundings() for part in parts], axis=0)
    finest = DEVIATIONS_OF_FINEST_GRID * math.sqrt(spread) / MOST_GRID_POINTS
    step_above = max(_step_of_splitting(pairs_above, tolerance, typical, spread), finest)
    if _added_variance(step_above, pairs_above, spread) > MOST_ADDED_VARIANCE * spread:
        return None
    # A grid point at ε, where the chord touches the curve that it bounds.
    if query.epsilon and query.epsilon > step_above:
        step_above = query.epsilon / math.ceil(query.epsilon / step_above)
    # Rounding down moves each loss by up to a step, half a step on average. Pairs that are off to
    # second order from below too need no finer grid there.
    step_below = step_above
    if pairs_below:
        step_below = tolerance / (2 * pairs_below)
    # Costs that are merged within a width w change the variance by about w²/4 each.
    width = math.sqrt(4 * tolerance / typical * spread / charge.count)
    below = Grid(max(step_below, finest), tilt, -1, width)
    return _GridPair(Grid(step_above, tilt, 1), below)


def _step_of_splitting(pairs: int, tolerance: float, typical: float, spread: float) -> float:
    """Return the step of a grid on which splitting moves a typical loss by about ``tolerance``.

    Splitting n pairs on a grid of step h adds at most n h²/4 to the variance, and a typical loss
    grows by half the relative growth of the variance: that allows h² = 8 · tolerance/typical ·
    spread/n. A quarter of it, and less where the lower end comes from the same grid, makes up for
    what the estimate leaves out.

    Args:
        pairs: n.
        tolerance: by how much a typical loss may be moved.
        typical: about the size of the losses that matter.
        spread: about the variance of the total loss.
    """
    factor = 2 if pairs < MANY_PAIRS else 1.2
    return math.sqrt(factor * tolerance / typical * spread / pairs)


def _loss_tolerance(query: Query, tilt: float, typical: float) -> float:
    """Return by how much a typical loss may be moved, about, for a bracket as wide as
    ``_first_width``.

    Args:
        query: the question.
        tilt: the exponent of the tilted laws.
        typical: about the size of the losses that matter.
    """
    width = _first_width(query)
    if query.epsilon is None:
        return width * typical
    # Losses that are moved by x change δ by about (1 + tilt) x of it.
    return min(width / (1 + tilt), typical / 2)


def _added_variance(step: float, pairs: int, spread: float) -> float:
    """Return about what splitting pairs on a grid adds to the variance of their total loss.

    Args:
        step: the distance of two grid points.
        pairs: how many pairs are split.
        spread: about the variance of the total loss.
    """
    deviation = math.sqrt(spread / max(pairs, 1))  # of one pair
    # Splitting a loss that is x above a grid point adds x (step - x) to its variance.
    return pairs * min(step**2 / 4, step * deviation)


@dataclass(frozen=True)
class _Products:
    """The products on two grids, from above and from below, which bracket the answer to any query.

    Attributes:
        charge: the costs.
        parts: their components.
        above: the product from above.
        below: the product from below; None where ``gap`` takes its place, or no lower end is
            wanted.
        gap: bounds what splitting added to the δ of ``above``, at each ε, or None.
    """

    charge: Charge
    parts: Sequence[LossComponent]
    above: LossDistribution
    below: LossDistribution | None
    gap: Callable[[float], float] | None

    @classmethod
    def of(
        cls,
        charge: Charge,
        parts: Sequence[LossComponent],
        grids: _GridPair,
        *,
        lower: bool,
    ) -> _Products:
        """Return the products of a charge on two grids.

        Args:
            charge: the costs.
            parts: their loss components.
            grids: the grids.
            lower: whether a lower end is wanted; else there is no product from below.
        """
        grid_above, grid_below = grids
        above = grid_product(parts, grid_above)
        if not lower:
            return cls(charge, parts, above, None, None)
        if _uses_splitting_gap(parts):
            pairs = [pair for part in parts for pair in part.pairs(grid_above)]
            gap = splitting_gap(pairs, step=grid_above.step, tilt=grid_above.tilt)
            return cls(charge, parts, above, None, gap)
        return cls(charge, parts, above, grid_product(parts, grid_below), None)

    def bracket(self, query: Query) -> Bracket:
        """Return the bracket of the answer to a query."""
        upper = self._upper_end(query)
        size = self.above.masses.size
        if self.gap is not None:
            lower = self._lower_end_by_gap(self.gap, query, upper)
            return Bracket(upper, min(lower, upper), "", size)
        if self.below is None:
            return Bracket(upper, 0.0, "", size)
        if query.epsilon is not None:
            lower = self.below.delta(query.epsilon)
        else:
            lower = self.below.epsilon(query.delta_below)
        return Bracket(upper, min(lower, upper), "", size, self.below.masses.size)

    def _upper_end(self, query: Query) -> float:
        """Return the upper end of the bracket."""
        largest = _largest_loss(self.charge)
        if query.epsilon is None:
            return min(self.above.epsilon(query.delta), largest)
        upper = self.above.delta(query.epsilon)
        if query.epsilon < largest:  # δ is positive, and may have underflowed
            return max(upper, math.ulp(0.0))
        return upper

    def _lower_end_by_gap(self, gap: Callable[[float], float], query: Query, upper: float) -> float:
        """Return a lower bound from the product above, less what rounding its pairs outward and
        splitting can have added to it.

        Args:
            gap: bounds what splitting added, at each ε.
            query: the question.
            upper: the upper end of the bracket.
        """
        raised = math.fsum(part.relative_increase() for part in self.parts)

        def delta_lower(x: float) -> float:
            """Return a lower bound on δ at ε = x."""
            return self.above.delta(x, side=-1) * (1 - raised) - gap(x)

        if query.epsilon is not None:
            return max(delta_lower(query.epsilon), 0.0)
        # Where δ is certainly above the one asked for, the optimal ε is larger: any such point is a
        # lower bound, and the points tried decide only how close it is.
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
        """Return the certified bracket, with the note of the curve and that of the bracket."""
        at_largest_loss = self._answer_by_largest_loss(query)
        if at_largest_loss is not None:
            return at_largest_loss
        return self._as_answer(certified_bracket(self.charge, query), query)

    def answers(self, query: Query, others: Sequence[Query]) -> list[Answer]:
        """Return the answers to other queries from the products on the first grids for one query,
        coarser ones where the work allows no finer; where there are none, each is answered by
        itself.

        Args:
            query: one in the middle of them, for which the grids are chosen.
            others: the queries to answer.
        """
        parts = loss_components(self.charge)
        if self._answer_by_largest_loss(query) is not None or not _can_be_listed(parts):
            return super().answers(query, others)
        tilt = best_tilt(parts, delta=query.delta, epsilon=query.epsilon)
        first = _first_grids(self.charge, parts, tilt, query)
        if first is None:
            return super().answers(query, others)
        scale = _GridWork.of(parts, first, query).finer(math.inf, query.work.budget)
        if scale is None:
            return super().answers(query, others)
        grids = first.scaled(scale)
        products = _Products.of(self.charge, parts, grids, lower=query.lower)
        answers = []
        for other in others:
            answer = self._answer_by_largest_loss(other)
            if answer is None:
                answer = self._as_answer(products.bracket(other), other)
            answers.append(answer)
        return answers

    def _answer_by_largest_loss(self, query: Query) -> Answer | None:
        """Return the answer that follows from the largest possible loss alone: that loss, for a δ
        of 0; and a δ of 0, for an ε that is not less. None for other queries.
        """
        if query.epsilon is None and query.delta <= 0:
            # The largest loss has a positive mass, however small.
            is_reached = self.attained and self.largest < math.inf and query.delta_below <= 0
            lower = self.largest * (1 - 4 * EPS) if is_reached else None
            return Answer(self.largest, lower, self.note)
        if query.epsilon is not None and query.epsilon >= self.largest:
            return Answer(0.0, 0.0, self.note)
        return None

    def _as_answer(self, bracket: Bracket, query: Query) -> Answer:
        """Return a bracket as an answer, with the note of the curve and that of the bracket."""
        if query.epsilon is not None:
            upper = bracket.upper
        else:
            upper = min(bracket.upper, self.largest)
        note = "; ".join(filter(None, (self.note, bracket.note)))
        if self.attained and query.lower:
            return Answer(upper, min(bracket.lower, upper), note)
        return Answer(upper, None, note)


def _largest_loss(charge: Charge) -> float:
    """Return the sum of the ε's, rounded up, when every cost implies pure DP; inf otherwise."""
    return sum_times((pure_of(cost), times) for cost, times in charge)
