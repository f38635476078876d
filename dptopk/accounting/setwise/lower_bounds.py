"""Lower bounds for any mix: strategies that an analyst could really follow, valued from below.

First all costs with dominating pairs; then most of the bounded ranges (ε-BR costs), each played by
the pair with the losses t and t - ε whose t is best for the tilt of the whole loss, as if they were
independent; then the last few ranges by the recursion from below, t chosen from all answers before,
the smaller ranges first. ZCDP and CDP costs are played by a Gaussian that satisfies them, which is
among the costs with dominating pairs here; a single such statement with nothing beside it by a law
with two outcomes (``two_outcome_laws``).

What is played first is independent of answers: its loss L is a law with finitely many *atoms*, so
that the strategy reaches E[V(x - L)] at ε = x, where V is what the last costs are worth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk._internal.sums import weighted
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.curves import Query
from dptopk.accounting.pld.binomial import log_binomial_pmf
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.loss_components import (
    CUT_MASS,
    REACH_OF_ANSWERS,
    GaussianLoss,
    Grid,
    LossComponent,
)
from dptopk.accounting.pld.pairs import Pairs, pair_of
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.game import log_chernoff_of, range_costs
from dptopk.accounting.setwise.order_from_below import play_in_order
from dptopk.accounting.setwise.recursion import (
    FLOOR,
    INWARD,
    Layer,
    ladder,
)
from dptopk.costs import Charge

LOG_SUM_ERROR = 1e-9  # of a sum of a few logarithms, far above its rounding
LARGEST_LOG_RATIO = 700.0  # e^-700 is a float
LEAST_SHARE_OF_RANGE = 1e-6  # of ε, between t and either end of (0, ε)
LEAST_OF_LEVEL = 1e-9  # of the level in ``largest_point_above``: smaller values count as this much
CLUSTERS = 3  # of points that ``largest_point_above`` tries at most

Ranges = Mapping[float, int]  # the ε's of bounded ranges, with how many costs there are of each


@dataclass(frozen=True)
class StrategyAim:
    """What a strategy is made for: it is valid for any values, which decide only how good it is.

    Attributes:
        order: λ of the tilt: parts of the loss are weighed by e^{λ·loss}, about as the question
            weighs them.
        variance: an estimate of the variance of the whole loss.
        tolerance: by how much, relatively, the ε of the strategy may be below that of the best one:
            a wish.
    """

    order: float
    variance: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Atoms:
    """A loss distribution as finitely many atoms, for lower bounds: losses and masses are moved
    down.

    The value E[V(x - L)] over the atoms, less ``error(x)``, is at most that of the distribution.

    Attributes:
        losses: the losses.
        masses: the probability under P of each.
        log_error: K, with ``order`` λ: what the atoms carry more than the distribution is worth at
            most e^{K - λx} of δ(x); -inf where they carry no more.
        order: λ.
    """

    losses: Floats
    masses: Floats
    log_error: float = -math.inf
    order: float = 1.0

    @classmethod
    def of(
        cls, parts: Sequence[LossComponent], grid: Grid, log_chernoff: float, merge: float
    ) -> Atoms:
        """Return the product of pairs on a grid, from below, as atoms.

        The lattice has an error in its tilted masses, those times e^{θl - K}, K their log-MGF. A
        tilted mass a, wherever it is, is worth at most a e^{K - θl} V(x - l) <= a e^{K +
        log_chernoff - θx}, which is how that error becomes one of δ.

        Args:
            parts: the loss components.
            grid: the lattice, which rounds losses down, and its tilt θ.
            log_chernoff: the ln C of V(x) <= C e^{-θx} for the value V of what is played
                afterwards.
            merge: atoms less than about this far apart are merged.
        """
        pairs = [pair for part in parts for pair in part.pairs(grid)]
        smooth = any(isinstance(part, GaussianLoss) for part in parts)
        if not smooth and _sums_can_be_listed(pairs):
            return cls._of_listed_sums(pairs, grid, log_chernoff)
        law = product(pairs, step=grid.step, tilt=grid.tilt, side=grid.side)
        log_masses = law.log_masses
        positive = law.masses > 0
        losses = law.losses[positive] - law.shift
        # Of the exponential, with a margin.
        masses = np.exp(log_masses[positive] - law.log_error - 64 * ROUNDOFF)
        log_error = math.log(law.error) + law.log_scale + log_chernoff + law.log_error
        log_error += LOG_SUM_ERROR
        return cls(*_outcomes_in_cells(losses, masses, merge), log_error, law.tilt)

    @classmethod
    def _of_listed_sums(cls, pairs: Sequence[Pairs], grid: Grid, log_chernoff: float) -> Atoms:
        """Return all sums of the losses of a few small pairs as atoms, without rounding to a grid.

        The arguments are those of ``of``; ``grid`` gives the tilt only.
        """
        losses = np.zeros(1)
        log_masses = np.zeros(1)
        loss_error = 0.0  # absolute, of a sum of losses
        log_error = 0.0  # of the logarithm of a product of masses
        tilted_error = 0.0  # of the tilted masses: what the pairs themselves may have too much
        log_scale = log_chernoff  # ln of what a tilted mass is worth at x = 0
        for pair in pairs:
            losses, log_masses = _sums_with_pair(losses, log_masses, pair)
            rounds = pair.count * len(pair.losses)  # so often one of its rows was added
            largest_loss = float(np.abs(losses).max())
            loss_error += rounds * (pair.loss_error + 4 * ROUNDOFF * largest_loss)
            log_rounding = 4 * ROUNDOFF * (1 + float(np.abs(log_masses).max()))
            log_error += rounds * (float(np.max(pair.log_error)) + log_rounding)
            tilted_error += rounds * pair.error
            log_scale += pair.log_mgf(grid.tilt)
        masses = np.exp(log_masses - log_error - 64 * ROUNDOFF)
        log_error_of_delta = -math.inf
        if tilted_error:
            log_error_of_delta = math.log(tilted_error) + log_scale + log_error + LOG_SUM_ERROR
        return cls(losses - loss_error, masses, log_error_of_delta, grid.tilt)

    def error(self, x: Floats) -> Floats:
        """Return a bound, for each x, on the part of δ(x) that the atoms may give too much."""
        with np.errstate(over="ignore"):
            bounds: Floats = np.exp(self.log_error - self.order * x)
        return bounds


def _sums_can_be_listed(pairs: Sequence[Pairs]) -> bool:
    """Return whether all sums of losses of pairs, all copies together, are few enough to be listed.

    Their number is compared in logarithms, because that of a million copies of a wide pair has many
    digits.
    """
    logs = [len(pair.losses) * pair.count * math.log(pair.losses.shape[1]) for pair in pairs]
    # A limit of 0, which has no logarithm, is below that of any sum: so is 0.5.
    return math.fsum(logs) <= math.log(max(tuning.LISTED, 0.5)) + LOG_SUM_ERROR


def _sums_with_pair(losses: Floats, log_masses: Floats, pair: Pairs) -> tuple[Floats, Floats]:
    """Return every loss plus every sum of losses of a pair's copies, with the products of their
    masses.

    Args:
        losses: sums of losses so far.
        log_masses: the logarithms of their masses.
        pair: a pair, all of whose rows and copies are added.
    """
    for row, row_masses in zip(pair.losses, pair.log_masses, strict=True):
        for _ in range(pair.count):
            losses = np.add.outer(losses, row).ravel()
            log_masses = np.add.outer(log_masses, row_masses).ravel()
    return losses, log_masses


def _outcomes_in_cells(losses: Floats, masses: Floats, width: float) -> tuple[Floats, Floats]:
    """Return the losses and masses that are left when the outcomes of each cell of a width are
    merged into one.

    Merging is post-processing, so the result is a lower bound, and it loses to second order only.
    The merged outcome has mass Σ p under P and Σ p e^{-l} under Q.

    Args:
        losses: rising.
        masses: the probability under P of each.
        width: the length of a cell.
    """
    cells = np.floor(losses / width)
    starts = np.flatnonzero(np.diff(cells, prepend=-np.inf))
    sizes = np.diff(starts, append=len(losses))
    first = losses[starts]
    from_first = losses - np.repeat(first, sizes)
    total = np.add.reduceat(masses, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        mass_under_q = np.add.reduceat(masses * np.exp(-from_first), starts)
        merged_shift = -np.log(mass_under_q / total)
    merged_shift = np.where(total > 0, np.maximum(merged_shift, 0.0), 0.0)
    # Sums of ``sizes`` terms, and losses that are added to ``first``.
    rounding = 8 * ROUNDOFF * (2 + sizes + np.abs(first))
    return first + merged_shift - rounding, total * (1 - rounding)


@dataclass(frozen=True)
class FixedRanges(LossComponent):
    """n mechanisms of ε-bounded range, all with the same t: a strategy, for lower bounds.

    Each has the loss t with probability q_t = (1 - e^{t-ε}) / (1 - e^{-ε}) under P and the loss
    t - ε otherwise. The number of larger losses is binomial.

    Attributes:
        epsilon: ε.
        count: n.
        t: the larger loss, in (0, ε).
    """

    epsilon: float
    count: int
    t: float

    def pairs(self, grid: Grid) -> list[Pairs]:
        """Return the law of the sum of the losses, cut to REACH_OF_ANSWERS sqrt(n) larger losses
        around its tilted mean; beyond, Hoeffding leaves the tilted mass CUT_MASS.
        """
        n = self.count
        chance_of_larger, chance_of_smaller = self._chances_of_losses()
        larger_losses = self._larger_losses_near_tilted_mean(grid.tilt)
        log_masses = np.asarray(
            log_binomial_pmf(larger_losses, n, chance_of_larger, chance_of_smaller)
        )
        possible = log_masses > -np.inf
        larger_losses = larger_losses[possible]
        log_masses = log_masses[possible]
        distance = np.abs(larger_losses - n * chance_of_larger)
        # The two probabilities are known to 64 roundoffs; their error enters through the deviance,
        # times the distance.
        errors = ROUNDOFF * (64 * (1 + np.abs(log_masses)) + 128 * (distance + 16))
        losses = n * self.t - (n - larger_losses) * self.epsilon
        pair = pair_of(losses, log_masses, log_error=errors)
        loss_error = 8 * ROUNDOFF * n * max(self.t, self.epsilon)
        return [replace(pair, loss_error=loss_error, error=CUT_MASS)]

    def _chances_of_losses(self) -> tuple[float, float]:
        """Return the probabilities, under P, of the larger loss t and of the smaller one, t - ε."""
        t = self.t
        epsilon = self.epsilon
        chance_of_larger = math.expm1(t - epsilon) / math.expm1(-epsilon)
        chance_of_smaller = math.exp(t - epsilon) * math.expm1(-t) / math.expm1(-epsilon)
        return chance_of_larger, chance_of_smaller

    def _larger_losses_near_tilted_mean(self, tilt: float) -> Floats:
        """Return the numbers of mechanisms with loss t that are within REACH_OF_ANSWERS sqrt(n) of
        their mean under the tilt.
        """
        n = self.count
        chance_of_larger, chance_of_smaller = self._chances_of_losses()
        # The tilt multiplies the smaller loss by this factor against the larger one.
        log_factor = max(-tilt * self.epsilon, -LARGEST_LOG_RATIO)
        tilted_chance = chance_of_larger / (
            chance_of_larger + chance_of_smaller * math.exp(log_factor)
        )
        reach = REACH_OF_ANSWERS * math.sqrt(n) + 1
        first = max(math.floor(n * tilted_chance - reach), 0)
        last = min(math.ceil(n * tilted_chance + reach), n)
        return np.arange(first, last + 1, dtype=float)


def best_t(epsilon: float, order: float) -> float:
    """Return an approximation to the t in (0, ε) that maximises ln E[e^{λL}] of RR_{ε,t} at λ =
    ``order`` (DDR Theorem 5); any t in (0, ε) can be played.

    With b = ε/2 it is t = b + s, e^s = λ sinh((λ+1) b) / ((λ+1) sinh(λb)) (``pld.log_mgf``).

    Args:
        epsilon: ε > 0.
        order: λ > 0.
    """
    b = epsilon / 2
    # ln sinh(y) = y - ln 2 + ln(1 - e^{-2y})
    s = math.log(order / (1 + order)) + b
    s += _log_1_minus_exp(-2 * (order + 1) * b) - _log_1_minus_exp(-2 * order * b)
    return min(max(b + s, LEAST_SHARE_OF_RANGE * epsilon), (1 - LEAST_SHARE_OF_RANGE) * epsilon)


def _log_1_minus_exp(exponent: float) -> float:
    """Return ln(1 - e^x) for an exponent x < 0."""
    return math.log(-math.expm1(exponent))


class Endgame(Protocol):
    """The costs that are played last, after the atoms, as what they are worth at least."""

    def below(self, x: Floats) -> Floats:
        """Return a lower bound on the value V of these costs at any x."""
        ...


@dataclass(frozen=True)
class LastRanges:
    """Bounded ranges that are played last, by a recursion.

    H(u) = V(ln u) is convex: left of a node it lies above the line through the node and any point
    further right, so a lower bound at the node and an upper one to its right give a lower bound in
    between. And should rounding have put x beyond the node, H falls there no faster than it does
    left of the node.

    Attributes:
        lower: V from below.
        upper: V from above; its grid step may differ from that of ``lower`` by the rounding of ε.
    """

    lower: Layer
    upper: Layer

    def below(self, x: Floats) -> Floats:
        """Return lower bounds on V at any x."""
        lower = self.lower
        first = lower.first * lower.h
        last = (lower.first + len(lower.values) - 1) * lower.h
        clipped = np.clip(x, first, last)
        if np.isnan(clipped).any():
            # Of losses that are no floats nothing is known: 0 is always below.
            return np.zeros(x.shape)
        bounds = self._below_between_nodes(clipped)
        # Outside of what is stored: no less than at its left end and than 1 - e^x, or than 0.
        empty_values = -np.expm1(np.minimum(x, 0.0)) * INWARD
        bounds_to_the_left = np.maximum(bounds, empty_values)
        bounds = np.where(x > last, 0.0, bounds)
        return np.where(x < first, bounds_to_the_left, bounds)

    def _below_between_nodes(self, x: Floats) -> Floats:
        """Return lower bounds on V for x between the first and the last stored node, from the node
        to the right of each x and the bounds beside that node.
        """
        lower = self.lower
        node = np.ceil(x / lower.h)
        first = int(node.min())
        last = int(node.max())
        values = lower.values_between(first, last)
        upper = self.upper.above(np.arange(first - 1, last + 2) * lower.h)
        place = node.astype(int) - first
        at_node = values[place]
        # ``upper`` begins one node further left than ``values``.
        upper_to_the_left = upper[place]
        upper_to_the_right = upper[place + 2]
        # How far x is to the left of the node, as a share of the cell beyond it, in u = e^x.
        share = np.clip(-lower.share_in_cell(node, x), 0.0, 1.0)
        moved = lower.rounding_of_share(x)
        rise = np.maximum(at_node - upper_to_the_right, 0.0) * np.maximum(share - moved, 0.0)
        fall = np.maximum(upper_to_the_left - at_node, 0.0) * moved
        bounds = (at_node + rise) * INWARD - fall
        return np.maximum(bounds, 0.0)


@dataclass(frozen=True)
class Strategy:
    """A strategy: some costs are played first, the others afterwards by their own game.

    Attributes:
        atoms: the loss of the costs that are played first.
        last: the game of the others, or None where there are none.
    """

    atoms: Atoms
    last: Endgame | None

    def value(self, x: Floats) -> Floats:
        """Return a lower bound on the δ that the strategy reaches at every x of a one-dimensional
        array.
        """
        x_left = np.subtract.outer(x, self.atoms.losses)
        if self.last is None:
            # The difference is moved up by more than its rounding, where less is gained.
            rounded_up = x_left + 4 * ROUNDOFF * np.abs(x_left)
            values = -np.expm1(np.minimum(rounded_up, 0.0)) * INWARD
        else:
            values = self.last.below(x_left)
        # A unit of roundoff for each term of the sum, and a few for the terms themselves.
        rounding = ROUNDOFF * (len(self.atoms.masses) + 8)
        total = weighted(values, self.atoms.masses) * (1 - rounding)
        return np.maximum(total - self.atoms.error(x) - FLOOR, 0.0)

    def answer(self, query: Query, low: float, high: float) -> float:
        """Return a lower bound on the δ or ε that the query asks for; an ε is looked for between
        ``low`` and ``high``, and is 0 where none is found.

        Args:
            query: the question.
            low: the smallest ε that is tried.
            high: the largest ε that is tried.
        """
        if query.epsilon is not None:
            return float(self.value(np.array([query.epsilon]))[0])
        return largest_point_above(self.value, query.delta_below, low, high)


def nearly_best_strategy(
    ranges: Ranges,
    dominated: Charge,
    aim: StrategyAim,
    *,
    steps: Mapping[float, int],
    reach: float,
    adaptive: bool = True,
) -> Strategy:
    """Return a strategy whose ε should be within about ``aim.tolerance`` of the best one's.

    Args:
        ranges: the bounded ranges, at least one.
        dominated: the other costs, with dominating pairs.
        aim: what the strategy is made for.
        steps: for an ε the number of grid steps with which its recursion from above (``ladder``)
            has been computed already.
        reach: of the windows of the recursion, in standard deviations.
        adaptive: whether the last ranges are played by the recursion; else all of them with a fixed
            t.
    """
    last = last_ranges(ranges) if adaptive else {}
    log_chernoff = log_chernoff_of(Charge(range_costs(last)), aim.order)
    first = {epsilon: count - last.get(epsilon, 0) for epsilon, count in ranges.items()}
    atoms = _atoms_of_first_costs(first, dominated, aim, log_chernoff)
    if not last:
        return Strategy(atoms, None)
    grid_steps = steps_from_below(last, aim.variance, aim.tolerance)
    if len(last) > 1:
        return Strategy(atoms, _several_ranges_in_order(last, grid_steps, reach))
    ((epsilon, count),) = last.items()
    # The ladder from above with ``steps`` is computed already, so that one with as many steps costs
    # nothing.
    grid_steps = max(grid_steps, steps.get(epsilon, 0))
    lower_ladder = ladder(epsilon, grid_steps, upper=False, reach=reach)
    upper_ladder = ladder(epsilon, grid_steps, upper=True, reach=reach)
    return Strategy(atoms, LastRanges(lower_ladder.value(count), upper_ladder.value(count)))


def strategy_before(
    last: Endgame, ranges: Ranges, dominated: Charge, aim: StrategyAim, *, log_chernoff: float
) -> Strategy:
    """Return the strategy that plays ``dominated``, then the ranges, each with a fixed t, and then
    another game.

    Args:
        last: the game that is played last.
        ranges: the bounded ranges that are played before it.
        dominated: the costs with dominating pairs.
        aim: what the strategy is made for.
        log_chernoff: the ln C of V(x) <= C e^{-λx} for the value V of ``last``, λ = ``aim.order``.
    """
    return Strategy(_atoms_of_first_costs(ranges, dominated, aim, log_chernoff), last)


def _atoms_of_first_costs(
    ranges: Ranges, dominated: Charge, aim: StrategyAim, log_chernoff: float
) -> Atoms:
    """Return, as atoms, the loss of the costs that are played first: those with dominating pairs,
    and ranges, each with the t that is best at the order of the tilt.

    Args:
        ranges: the bounded ranges among these costs; counts may be 0.
        dominated: the costs with dominating pairs.
        aim: what the strategy is made for.
        log_chernoff: the ln C of V(x) <= C e^{-λx} for the value V of what is played last.
    """
    parts: list[LossComponent] = loss_components(dominated)
    for epsilon, count in ranges.items():
        if count:
            parts.append(FixedRanges(epsilon, count, best_t(epsilon, aim.order)))
    # Each of the roundings below may lose a share of the tolerance.
    tolerance = aim.tolerance
    merge = math.sqrt(aim.variance) * math.sqrt(tuning.LATTICE_SHARE_BELOW * tolerance)
    step = _step_from_below(parts, aim.variance, tolerance)
    costs = max(dominated.count, 1)
    # Costs that are merged within a width w change the variance by about w²/4 each.
    width = math.sqrt(4 * tuning.LATTICE_SHARE_BELOW * tolerance * aim.variance / costs)
    return Atoms.of(parts, Grid(step, aim.order, -1, width), log_chernoff, merge=merge)


def _step_from_below(parts: Sequence[LossComponent], variance: float, tolerance: float) -> float:
    """Return the step of a lattice on which a product is computed from below: a guess.

    Losses are rounded down; each rounding loses up to a step.

    Args:
        parts: the loss components.
        variance: an estimate of the variance of the whole loss.
        tolerance: how much of ε, relatively, a strategy may lose.
    """
    sigma = math.sqrt(variance)
    roundings = [1 if isinstance(part, FixedRanges) else part.roundings().below for part in parts]
    # ε is taken to be about four deviations.
    step = tuning.LATTICE_SHARE_BELOW * tolerance * 4 * sigma / max(sum(roundings), 1)
    shortest = tuning.WINDOW * sigma / tuning.MOST_ATOMS
    return min(max(step, shortest), sigma / tuning.CELLS_PER_STD)


def last_ranges(ranges: Ranges) -> dict[float, int]:
    """Return the ranges that are played last, by the recursion, with how many of each: the largest
    ones, as many as are worth its work.
    """
    places_left = tuning.LAST_EQUAL if len(ranges) == 1 else tuning.LAST_DIFFERENT
    last = {}
    for epsilon, count in sorted(ranges.items(), reverse=True)[: tuning.LAST_KINDS]:
        if places_left:
            last[epsilon] = min(count, places_left)
            places_left -= last[epsilon]
    return last


def steps_from_below(last: Ranges, variance: float, tolerance: float) -> int:
    """Return the number of grid steps to the largest ε for a recursion from below: a guess.

    Args:
        last: the ranges that the recursion plays.
        variance: an estimate of the variance of the whole loss.
        tolerance: how much of ε, relatively, a strategy may lose.
    """
    costs = sum(last.values())
    allowed_loss = tuning.GRID_SHARE_BELOW * tolerance * variance

    def lost_variance(steps: int) -> float:
        """Return an estimate of the variance that a grid with this number of steps loses."""
        return tuning.CELL * (max(last) / steps) ** 2 * costs

    # A first guess: a few steps, none of them longer than 1/2.
    steps = max(8, math.ceil(2 * max(last)))
    most_steps = tuning.MOST_STEPS if len(last) == 1 else tuning.STEPS_OF_KINDS
    while steps < most_steps and lost_variance(steps) > allowed_loss:
        steps = math.ceil(steps * tuning.LARGER)
    # Even, so that fewer different ladders are computed.
    return min(2 * math.ceil(steps / 2), tuning.MOST_STEPS)


def _several_ranges_in_order(last: dict[float, int], steps: int, reach: float) -> Endgame:
    """Return lower bounds on the value of playing ranges of several ε's in the order of rising ε,
    with t chosen from all answers.

    Args:
        last: the ranges.
        steps: the number of grid steps to the largest ε.
        reach: of the windows, in standard deviations.
    """
    rising = dict(sorted(last.items()))
    played = [place for place, count in enumerate(rising.values()) for _ in range(count)]
    return play_in_order(rising, played, steps, reach=reach)


def largest_point_above(
    function: Callable[[Floats], Floats], level: float, low: float, high: float
) -> float:
    """Return a point in [low, high) at which the function is above a level, close to the last such
    point; 0 if none is seen. The point returned was itself evaluated.

    The function is evaluated at rising points from ``low`` on, closer and closer to ``high``. Of
    the last one above the level and its neighbour on the right, between which the function falls
    below the level, a cluster of points is evaluated next, about the place where the chord of the
    logarithms crosses the level; and so on.

    Args:
        function: maps an array of points to values that fall, or nearly.
        level: above 0.
        low: the least point.
        high: the largest point, whose value need not be above the level.
    """
    points = high - (high - low) * _SHARES_FROM_UPPER_END
    values = function(points)
    best = 0.0
    for clusters_left in reversed(range(CLUSTERS + 1)):
        above = np.flatnonzero(values > level)
        if not above.size:
            break
        last = int(above[-1])
        best = float(points[last])
        if last == len(points) - 1 or not clusters_left:
            break
        next_point = float(points[last + 1])
        next_value = np.maximum(values[last + 1], level * LEAST_OF_LEVEL)  # has a logarithm
        root = _root_of_log_chord(values[last], next_value, level)
        shares = np.clip(root + _SHARES_ABOUT_ROOT, 0.0, 1.0)
        cluster = best + (next_point - best) * shares
        points = np.append(cluster, next_point)
        values = np.append(function(cluster), min(next_value, level))
    return best


def _root_of_log_chord(before: float, after: float, level: float) -> float:
    """Return where, as a share of the way from one point to the next, the chord of the logarithms
    of two values crosses a level; 0 where the values do not fall.

    Args:
        before: the value at the first point, at least the level.
        after: the value at the next point, above 0.
        level: above 0.
    """
    if before > after:
        return math.log(before / level) / math.log(before / after)
    return 0.0


# Where ``largest_point_above`` evaluates: shares of the way from ``high`` back to ``low``, and of
# the way between two points, before and after the root.
_SHARES_FROM_UPPER_END = np.geomspace(1.0, 1e-5, 26)
_SHARES_ABOUT_ROOT = np.array([-0.1, -1e-2, -1e-3, -1e-5, 1e-5, 1e-3, 1e-2, 0.1])
