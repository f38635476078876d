"""The game of a few concentrated costs, step by step: what they are worth at most, and at least.

From above, a *majorant* of V, F(w) = a + βw + Σ γ_i w^{-e_i} >= V(ln w) for all w > 0 with γ_i >= 0
and every e_i an order of the class, bounds the step at every x: E[F(e^{x - L})] is a + βe^x + Σ γ_i
e^{-e_i x} E[e^{e_i L}]. From below, a law on multiples of h that satisfies the class can be played
at every x. Both are found by linear programs (``moment_program``), and proven here: the majorant is
lifted until it is above V at all nodes and between them, and the law is mixed with one that says
nothing until all its moments hold (docs/notes/setwise.md, "Few concentrated costs").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import ROUNDOFF, Floats
from dptopk.accounting.cost_models.dominating_pairs import loss_components
from dptopk.accounting.pld.loss_components import LossComponent
from dptopk.accounting.renyi.renyi_curves import log_mgf, renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.law_families import family_near, law_family
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    Nodes,
    ProgramSolution,
)
from dptopk.accounting.setwise.playable_laws import PlayableFamily, playable_family
from dptopk.accounting.setwise.range_steps import (
    CHORD_ROUNDING,
    range_on_grid,
    range_step_above,
    range_step_below,
)
from dptopk.accounting.setwise.recursion import FLOOR, NEARLY_WHOLE, mean_loss
from dptopk.accounting.setwise.step_program import step_solutions
from dptopk.accounting.setwise.zcdp_gaussian import gaussian_of, zcdp_constant
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost
from dptopk.errors import NotApplicable

# Of sums of a few exponentials with exponents up to 600, relative to the sum of their sizes.
ROUNDING = 1e-12
PRODUCT_ROUNDING = 1e-15  # relative, above the rounding of a product with a factor 1 ± 1e-15 in it
# Of the gaps between chords and their functions: absolute, of differences of numbers about 1; and
# relative, far above all else.
GAP_ROUNDING = 1e-14
CHORD_MARGIN = 1e-9
# The rounding above stays small next to δ and to moments in these ranges. The smallest moment is
# the mean of the loss, which may be far below ρ.
SMALLEST_MEAN = 1e-7
LARGEST_RHO = 2.0
SMALLEST_DELTA = 1e-10
MOST_COSTS = 20
MOST_STATES = 60
MOST_STATES_WITH_RANGES = 400  # their tables are remembered while they are computed
LARGEST_DEVIATION = 4.0
MOST_NODES = 6000
CONVERTED_EVERY = 4  # nodes; that of ranges takes long, and decides only where no majorant does
LEAST_ROOM = 0.05  # of work, in seconds: no game takes less
ANSWER_POINTS = 65  # x's of a cell of the tables at which an answer is looked for
NEAREST_PROGRAMS = 12  # whose majorants are tried at a time
LARGEST_RATIO = 12.0  # of the deviations of two costs of a game, which share its nodes


# ---- V on nodes


@dataclass(frozen=True)
class ValueTable:
    """Bounds on V at the nodes jh, 0 <= j < n; those at x < 0 follow by V(x) = 1 - e^x (1 - V(-x)).

    The class of each cost is closed under swapping the neighbours, hence the symmetry.

    Attributes:
        h: the distance of two nodes.
        values: the bounds, shape (n,).
        upper: whether they are upper bounds.
    """

    h: float
    values: Floats
    upper: bool

    def at(self, nodes: Nodes) -> Floats:
        """Return bounds at any nodes. Beyond the last stored node an upper table repeats the last
        bound, and a lower one says 0.
        """
        places = np.abs(nodes)
        last = len(self.values) - 1
        after_last = self.values[last] if self.upper else 0.0
        values = np.where(places <= last, self.values[np.minimum(places, last)], after_last)
        below_0 = np.minimum(nodes, 0) * self.h
        bounds: Floats = np.where(nodes >= 0, values, -np.expm1(below_0) + np.exp(below_0) * values)
        return bounds

    @classmethod
    def of_nothing(cls, h: float, *, upper: bool) -> ValueTable:
        """Return V without costs, [1 - e^x]_+."""
        return cls(h, np.zeros(1), upper)


# ---- from above


@dataclass(frozen=True)
class Majorant:
    """F in terms of t = e^{y - x}: a + bt - c ln t + d t ln t + Σ g_i t^{-e_i}, so that a loss of
    0 is at t = 1.

    Attributes:
        x: where the terms are written down.
        moments: the class, of centred losses where c or d is not 0.
        constant, slope: a, and b >= 0 after ``lifted``.
        weights, exponents: g_i >= 0 and e_i, an order λ of the class or -(1 + λ).
        linear, reversed_linear: c and d, of L and of -L e^{-L}.
    """

    x: float
    moments: MomentClass
    constant: float
    slope: float
    weights: Floats
    exponents: Floats
    linear: float = 0.0
    reversed_linear: float = 0.0

    @classmethod
    def of(cls, solution: ProgramSolution, moments: MomentClass) -> Majorant:
        """Return the function F that the multipliers of a linear program make; it is not yet proven
        to be above V.
        """
        exponents = np.array([constraint.exponent for constraint in solution.constraints])
        return cls(
            x=solution.x,
            moments=moments,
            constant=solution.constant,
            slope=solution.slope,
            weights=solution.weights,
            exponents=exponents,
            linear=solution.linear,
            reversed_linear=solution.reversed_linear,
        )

    @property
    def orders(self) -> Floats:
        """Return the order λ of each term."""
        orders: Floats = np.where(self.exponents > 0, self.exponents, -1 - self.exponents)
        return orders

    @property
    def limits(self) -> Floats:
        """Return K(λ) of each term's order λ."""
        return self.moments.log_moment(self.orders)

    def lifted(self, value: ValueTable, nodes: Nodes) -> Majorant | None:
        """Return a majorant of V from this function; None where its multipliers cannot be raised to
        one.

        It is above V at the nodes, between them, and on both sides of them. V is convex in w with V
        = 1 at w = 0, and falls: it lies below the chords between upper bounds at nodes, below the
        chord from (0, 1) to the first one, and below the last one beyond it. The chord of w^{-e} is
        at most c_e times w^{-e}, so F with c_e g is above the chords of F; those of the other terms
        exceed them by a multiple of ln t's and t ln t's, or are below them where they are concave.

        Args:
            value: upper bounds on V.
            nodes: consecutive nodes at which the function is compared with V.
        """
        y = nodes.astype(np.float64) * value.h - self.x
        above = value.at(nodes)
        raised = self.with_rising_slope_at(float(y[-1]))
        values, sizes = raised.values(y)
        short = above - values + ROUNDING * sizes
        if float(short.max()) > 0:
            raised = raised.with_shortfall_added(short, self.terms(y).sum(axis=0))
        # To the right of the nodes F rises, as V falls: what is added may make it fall there.
        raised = raised.with_chords(value.h).with_rising_slope_at(float(y[-1]))
        # To the left of the nodes: a convex function is above its tangent.
        first = float(y[0])
        slope, size = raised.derivative(first)
        slope_of_chord = (float(above[0]) - 1) * math.exp(-first)
        is_majorant = (
            slope + ROUNDING * size <= slope_of_chord * (1 + ROUNDING)
            and np.isfinite(raised.weights).all()
            and raised.is_convex_up_to(first)
            and raised.derivative_rises_from(float(y[-1]))
        )
        return raised if is_majorant else None

    def with_chords(self, h: float) -> Majorant:
        """Return a function above the chords of F between nodes h apart."""
        factors = [chord_factor(-exponent, h) for exponent in self.exponents.tolist()]
        of_log, of_product = chord_gaps(h)
        return replace(
            self,
            weights=self.weights * np.array(factors),
            constant=self.constant + max(self.linear, 0.0) * of_log,
            slope=self.slope + max(self.reversed_linear, 0.0) * of_product,
        )

    def with_rising_slope_at(self, y: float) -> Majorant:
        """Return F with a slope with which it rises at t = e^y."""
        # Of -c ln t what only raises the derivative is left out, as it vanishes far out.
        without = replace(self, linear=max(self.linear, 0.0))
        rise, size = without.derivative(y)
        return replace(self, slope=self.slope + max(ROUNDING * size - rise, 0.0))

    def is_convex_up_to(self, y: float) -> bool:
        """Return whether F is convex on (0, e^y].

        There t² F'' is at least c + dt + Σ g e(e+1) t^{-e} over e > 0, whose last part falls.
        """
        if self.linear >= 0 and self.reversed_linear >= 0:
            return True
        at_y = self.terms(np.array([y]))[:, 0]
        curvature = np.where(self.exponents > 0, self.exponents * (self.exponents + 1) * at_y, 0.0)
        below_0 = min(self.linear, 0.0) + min(self.reversed_linear, 0.0) * math.exp(y)
        return float(curvature.sum()) * (1 - ROUNDING) >= -below_0 * (1 + ROUNDING)

    def derivative_rises_from(self, y: float) -> bool:
        """Return whether F' without a part c/t > 0 rises for t >= e^y: t times its derivative is at
        least d + Σ g e(e+1) t^{-e-1} over e < -1, which rises.
        """
        if self.reversed_linear >= 0:
            return True
        at_y = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        curvature = np.where(self.exponents < 0, self.exponents * (self.exponents + 1) * at_y, 0.0)
        return float(curvature.sum()) * (1 - ROUNDING) >= -self.reversed_linear * (1 + ROUNDING)

    def with_shortfall_added(self, short: Floats, moments: Floats) -> Majorant:
        """Return F plus what is missing at the nodes: a constant, or a share of the moments,
        whichever costs less at x.

        Args:
            short: by how much F is below V at each node; somewhere positive.
            moments: Σ g_i t^{-e_i} at each node.
        """
        constant = float(short.max())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            share = float(np.max(np.where(short > 0, short / moments, 0.0)))
            moment_worth = float(self.weights @ np.exp(np.minimum(self.limits, LARGEST_EXPONENT)))
        if math.isfinite(share) and share * moment_worth < constant:
            return replace(self, weights=self.weights * (1 + share) * (1 + ROUNDING))
        return replace(self, constant=self.constant + constant)

    def terms(self, y: Floats) -> Floats:
        """Return g_i t^{-e_i} at t = e^y, shape (terms, nodes)."""
        logs = np.clip(-np.outer(self.exponents, y), -LARGEST_EXPONENT, LARGEST_EXPONENT)
        terms: Floats = self.weights[:, None] * np.exp(logs)
        return terms

    def values(self, y: Floats) -> tuple[Floats, Floats]:
        """Return F at t = e^y, and the sum of the absolute values of its terms, which bounds its
        rounding.
        """
        t = np.exp(y)
        powers = self.terms(y).sum(axis=0)
        others = (self.slope * t, -self.linear * y, self.reversed_linear * t * y)
        values = self.constant + np.sum(others, axis=0) + powers
        sizes = abs(self.constant) + np.abs(others).sum(axis=0) + powers
        return values, sizes

    def derivative(self, y: float) -> tuple[float, float]:
        """Return dF/dt at t = e^y, and the sum of the absolute values of its terms, which bounds
        its rounding.
        """
        terms = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        of_log = -self.linear * math.exp(-y)
        of_product = self.reversed_linear * (1 + y)
        derivative = self.slope + of_log + of_product - float(self.exponents @ terms)
        size = abs(self.slope) + abs(of_log) + abs(self.reversed_linear) * (1 + abs(y))
        return derivative, size + float(np.abs(self.exponents) @ terms)

    def step(self, x: Floats) -> Floats:
        """Return the upper bound on the step that the majorant proves at each x, rounded up; 1
        where it is beyond all floats.

        With r = x - ``x``, E F(e^{r - L}) is a + b e^r - c (r - m) + d e^r (r + m') and moments,
        where m = E L and m' = -E[L e^{-L}] are the means in both directions, between 0 and the
        largest one M. The moments of centred losses are at most e^{λ²ρ + λm}, and with m' in the
        other direction: convex in m and in m', so that one of their ends decides.
        """
        r = x - self.x
        with np.errstate(over="ignore", invalid="ignore"):
            t = np.exp(r)
            linear = (self.slope * t, -self.linear * r, self.reversed_linear * t * r)
            forth = self._worst_over_means(r, self.exponents > 0, np.full(len(x), self.linear))
            back = self._worst_over_means(r, self.exponents < 0, self.reversed_linear * t)
            total = self.constant + np.sum(linear, axis=0) + forth.worst + back.worst
            sizes = abs(self.constant) + np.abs(linear).sum(axis=0) + forth.size + back.size
            bounds = total + ROUNDING * sizes
        return np.where(np.isfinite(bounds), np.clip(bounds, 0.0, 1.0), 1.0)

    def _worst_over_means(
        self, r: Floats, side: NDArray[np.bool_], factor: Floats
    ) -> _WorstOverMeans:
        """Return the largest that the moments of one direction and a multiple of its mean may come
        to.

        Args:
            r: x - ``x`` for each x.
            side: which of the moments are of this direction.
            factor: what the mean is multiplied by, for each x.
        """
        worst = np.full(len(r), -np.inf)
        size = np.zeros(len(r))
        means = (0.0, self.moments.mean) if self.moments.centred else (self.moments.mean,)
        for mean in means:
            limits = self.moments.log_moment_at(self.orders[side], mean)
            logs = -np.outer(self.exponents[side], r) + limits[:, None]
            powers = np.where(logs > LARGEST_EXPONENT, np.inf, np.exp(logs))
            of_powers = (self.weights[side][:, None] * powers).sum(axis=0)
            worst = np.fmax(worst, factor * mean + of_powers)
            size = size + np.abs(factor * mean) + of_powers
        return _WorstOverMeans(worst, size)


class _WorstOverMeans(NamedTuple):
    """What depends on a law's mean in one direction, for each x.

    Attributes:
        worst: the largest value over the means of the class.
        size: a bound on the sum of the absolute values of its terms; not finite beyond all floats.
    """

    worst: Floats
    size: Floats


def chord_gaps(h: float) -> tuple[float, float]:
    """Return by how much the chord of -ln t between two nodes, a factor e^h apart, exceeds it at
    most, and the chord of t ln t, relative to t at the left node; rounded up.

    With r = h / (e^h - 1), the first is largest at t = 1 / r and is r - 1 - ln r; the chord of
    t ln t from t = 1 has the slope k = r e^h, and exceeds it most at t = e^{k - 1}.
    """
    ratio = h / math.expm1(h)
    of_log = ratio - 1 - math.log(ratio)
    slope = ratio * math.exp(h)
    of_product = math.exp(slope - 1) - slope
    gaps = [max(gap, 0.0) * (1 + CHORD_MARGIN) + GAP_ROUNDING for gap in (of_log, of_product)]
    return gaps[0], gaps[1]


def chord_factor(exponent: float, h: float) -> float:
    """Return the largest ratio of the chord of t^e between two nodes, a factor e^h apart, to t^e
    itself, rounded up.

    With 1 + s (t - 1) for the chord over [1, e^h], the ratio is largest at t = e (1 - s) / (s (1 -
    e)).

    Args:
        exponent: e, outside (0, 1), so that the power is convex.
        h: the logarithm of the quotient of the nodes.
    """
    rise = math.expm1(exponent * h)
    s = rise / math.expm1(h)
    if s == 0 or exponent == 1:
        return 1.0
    t = exponent * (1 - s) / (s * (1 - exponent))
    t = min(max(t, 1.0), math.exp(h))
    ratio = (1 + s * (t - 1)) * math.exp(-exponent * math.log(t))
    return max(ratio, 1.0) * (1 + CHORD_MARGIN)


# ---- the game


Multiset = tuple[int, ...]
NO_RANGES: Mapping[float, int] = {}


@dataclass(frozen=True)
class ConcentratedGame:
    """A few costs of moment classes, perhaps together with a few bounded ranges.

    Attributes:
        classes: the distinct classes, by rising ρ.
        counts: of each class, and then of each range.
        h: the distance of two nodes.
        reach: the largest x of a table.
        sparsity: how many times farther apart the nodes are at which steps of centred losses are
            solved.
        ranges: the distinct ε's of bounded ranges, rising.
        most_solved: 0, or how many costs a multiset may have whose programs of centred losses are
            solved, all of one kind; in those of others only the largest mean counts.
    """

    classes: tuple[MomentClass, ...]
    counts: Multiset
    h: float
    reach: float
    sparsity: float = 1.0
    ranges: tuple[float, ...] = ()
    most_solved: int = 0

    @classmethod
    def of(
        cls,
        charge: Charge,
        reach: float,
        *,
        fineness: float = 1.0,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return the game of ZCDP and CDP costs and bounded ranges; None where they are too many,
        too different, too small or too large.

        Args:
            charge: the ZCDP and CDP costs, at least one.
            reach: the largest x at which V is needed.
            fineness: how many times the nodes of the coarsest grid it has.
            ranges: the ε's of bounded ranges with counts.
        """
        ranges = dict(sorted(ranges.items()))
        if not 0 < charge.count <= MOST_COSTS or not math.isfinite(reach):
            return None
        count_of_class = _counts_of_classes(charge)
        if not count_of_class:
            return None
        classes = tuple(sorted(count_of_class, key=lambda moments: (moments.rho, moments.xi)))
        class_counts = tuple(count_of_class[moments] for moments in classes)
        counts = (*class_counts, *ranges.values())
        if _states(class_counts) > MOST_STATES or _states(counts) > MOST_STATES_WITH_RANGES:
            return None
        widest, narrowest = _widest_and_narrowest(classes, ranges)
        if widest > min(LARGEST_RATIO * narrowest, LARGEST_DEVIATION):
            return None
        step = min(widest / tuning.GAME_NODES, narrowest / tuning.GAME_NODES_OF_SMALLEST)
        step = _step_for_ranges(ranges, step / fineness)
        # A reach in whole deviations, so that questions share their tables.
        reach = widest * math.ceil(reach / widest + tuning.GAME_BEYOND)
        if reach > MOST_NODES * step:
            return None
        return cls(classes, counts, step, reach, ranges=tuple(ranges))

    @classmethod
    def fitting(
        cls,
        charge: Charge,
        reach: float,
        room: float,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return the finest game of some costs whose work fits into ``room``; None where none does.

        Args:
            charge: the costs, of types ZCDP and CDP.
            reach: the largest x at which V is needed.
            room: of work, in seconds.
            ranges: the ε's of bounded ranges with counts.
        """
        for fineness, sparsity in tuning.GAME_FINENESS:
            game = cls.of(charge, reach, fineness=fineness, ranges=ranges)
            if game is None:
                continue
            game = replace(game, sparsity=sparsity)
            if game.work <= room:
                return game
        return None

    @classmethod
    def sketched(
        cls,
        charge: Charge,
        reach: float,
        room: float,
        ranges: Mapping[float, int] = NO_RANGES,
    ) -> Self | None:
        """Return a game that solves programs of centred losses for few costs of one kind only, as
        many as fit into ``room``; None where none does.

        Args:
            charge: the costs, of types ZCDP and CDP.
            reach: the largest x at which V is needed.
            room: of work, in seconds.
            ranges: the ε's of bounded ranges with counts.
        """
        for most_solved, fineness in product(tuning.MOST_SOLVED, tuning.SKETCHED_FINENESS):
            game = cls.of(charge, reach, fineness=fineness, ranges=ranges)
            if game is None:
                continue
            game = replace(game, most_solved=most_solved)
            if game.work <= room:
                return game
        return None

    @property
    def is_better_sketched(self) -> bool:
        """Return whether its programs are so sparse that solving fewer of them seems better: where
        all means are about as large as the moments allow, they hardly count by themselves, and
        where one is far smaller sparse programs say little.
        """
        least_mean = min(moments.mean / moments.rho for moments in self.classes)
        between = tuning.SPARSE_MEANS[0] < least_mean < tuning.SPARSE_MEANS[1]
        return self.sparsity > 1 and not between

    def is_solved(self, costs_left: Multiset) -> bool:
        """Return whether programs of centred losses are solved for the steps of a multiset."""
        if not self.most_solved:
            return True
        kinds = [count for count in costs_left if count]
        return len(kinds) == 1 and kinds[0] <= self.most_solved

    def pairs_of_parts(self) -> list[GroupPair]:
        """Return pairs of parts that are solved, whose product bounds V of all costs (Theorem C):
        of each kind about equally many costs each.
        """
        pairs = []
        for place, count in enumerate(self.counts):
            parts = math.ceil(count / self.most_solved)
            size, larger_parts = divmod(count, parts)
            smaller = self._pair_of(self.of_one_kind(place, size))
            pairs.append(replace(smaller, count=parts - larger_parts))
            if larger_parts:
                larger = self._pair_of(self.of_one_kind(place, size + 1))
                pairs.append(replace(larger, count=larger_parts))
        return pairs

    def counts_of_laws(self, most: int) -> list[int]:
        """Return the numbers of costs of a kind, up to ``most``, near the solutions of whose
        programs laws of centred losses are played.
        """
        return [count for count in tuning.COUNTS_OF_LAWS if count <= most]

    def of_one_kind(self, place: int, count: int) -> Multiset:
        """Return the multiset of ``count`` costs of the kind at a place of ``counts``, and no
        others.
        """
        after = len(self.counts) - place - 1
        return (*(0,) * place, count, *(0,) * after)

    def is_lower_bound_in(self, interaction: Interaction, *, alone: bool) -> bool:
        """Return whether an analyst can play the game's strategy in this interaction, so that its
        value is a lower bound.

        The strategy chooses each law by the answers before it, and which class comes next. In
        "batch" nothing may depend on answers: it can be played for one cost with no others beside
        it. In "ordered" the order is fixed: it can be played for one class. In "setwise" and
        "filter" it can always be played.

        Args:
            interaction: that of the question.
            alone: whether there are no costs but those of the game.
        """
        if interaction == "batch":
            return alone and sum(self.counts) == 1
        if interaction == "ordered":
            return len(self.counts) == 1
        return True

    @property
    def work(self) -> float:
        """Return the work of V of all costs on all nodes, in seconds."""
        per_node = tuning.WORK_PER_NODE * self.reach / self.h
        work = 0.0
        for costs_left in self.multisets:
            for moments in self.firsts(costs_left):
                bounding = self.bounding_class(costs_left, moments)
                of_one = tuning.WORK_PER_MAJORANT + per_node
                if bounding.centred:
                    of_one += tuning.WORK_PER_CENTRED_MAJORANT
                elif moments.centred:
                    of_one += tuning.WORK_PER_UNCENTRED_MAJORANT
                    work += tuning.WORK_PER_UNSOLVED
                work += of_one * len(self.solved_nodes(costs_left, bounding))
            if self.ranges:
                work += tuning.WORK_PER_MIXED_STATE + per_node * len(self.ranges)
        return work + math.fsum(map(self._work_of_laws, range(len(self.classes))))

    def _work_of_laws(self, place: int) -> float:
        """Return the work of the laws of the class at a place, in seconds."""
        moments = self.classes[place]
        if not moments.centred:
            return tuning.WORK_PER_FAMILY
        nearby = 0
        for count in self.counts_of_laws(self.counts[place]):
            before_step = self.of_one_kind(place, count)
            nearby += len(self.solved_nodes(before_step, moments))
        return tuning.WORK_PER_CENTRED_FAMILY + tuning.WORK_PER_LAW_NEAR * nearby

    def solved_nodes(self, costs_left: Multiset, moments: MomentClass) -> Nodes:
        """Return the nodes at which the programs of a step of one class are solved: the farther
        apart, the smoother V of what is left, and none where V is negligible.
        """
        # ``costs_left`` has the ranges after the classes. A cost of a class adds about 2ρ to the
        # variance, a range at most ε²/4.
        counts = list(zip(costs_left, self.classes, strict=False))
        variance = math.fsum(count * 2 * of_class.rho for count, of_class in counts)
        mean = math.fsum(count * of_class.mean for count, of_class in counts)
        ranges = self.ranges_left(costs_left)
        variance += math.fsum(count * epsilon**2 / 4 for epsilon, count in ranges)
        mean += math.fsum(count * mean_loss(epsilon) for epsilon, count in ranges)
        far = min(mean + tuning.SOLVED_REACH * math.sqrt(variance), self.reach)
        per_deviation: float = tuning.SOLVED_PER_DEVIATION
        if moments.centred:
            per_deviation = tuning.CENTRED_SOLVED_PER_DEVIATION / self.sparsity
        spacing = max(round(math.sqrt(variance) / per_deviation / self.h), 1)
        return np.arange(0, math.ceil(far / self.h) + 1, spacing)

    def solutions(
        self, moments: MomentClass, value: ValueTable, nodes: Nodes
    ) -> list[ProgramSolution]:
        """Return the solutions of the linear programs of one class's step at some nodes.

        Args:
            moments: the class.
            value: upper bounds on V of what is left.
            nodes: x of each program, in multiples of h.
        """
        family = law_family(moments, self.h, self.largest_loss(moments))
        return step_solutions(moments, value, nodes, family)

    def with_uncentred_classes(self) -> ConcentratedGame:
        """Return the game in which the moments of centred losses are bounded by their largest mean
        alone, which is worth at least as much.
        """
        classes: list[MomentClass] = []
        for moments in self.classes:
            bounded = replace(moments, centred=False)
            while bounded in classes:  # a larger class than another one, so that they are apart
                bounded = replace(bounded, rho=math.nextafter(bounded.rho, math.inf))
            classes.append(bounded)
        return replace(self, classes=tuple(classes))

    def largest_loss(self, moments: MomentClass) -> float:
        """Return the largest loss of the laws of one class that are tried."""
        largest = self.reach + tuning.LOSSES_BEYOND * moments.deviation
        return min(largest, tuning.LARGEST_LOSS * moments.deviation)

    def tables(self, costs_left: Multiset) -> tuple[ValueTable, ValueTable]:
        """Return upper and lower bounds on V of the costs still to come, up to the reach."""
        if not any(costs_left):
            return (
                ValueTable.of_nothing(self.h, upper=True),
                ValueTable.of_nothing(self.h, upper=False),
            )
        if costs_left == self.counts:
            # The smaller multisets first, so that no call is nested deeply.
            for smaller in self.multisets:
                _tables(self, smaller)
        return _tables(self, costs_left)

    @property
    def variance(self) -> float:
        """Return about the variance of the loss of all costs."""
        counts = zip(self.counts, self.classes, strict=False)
        of_classes = math.fsum(count * 2 * moments.rho for count, moments in counts)
        ranges = self.ranges_left(self.counts)
        return of_classes + math.fsum(count * epsilon**2 / 4 for epsilon, count in ranges)

    @property
    def multisets(self) -> list[Multiset]:
        """Return the multisets that may be left, without the empty one, by their sizes."""
        return sorted(product(*(range(count + 1) for count in self.counts)), key=sum)[1:]

    def firsts(self, costs_left: Multiset) -> dict[MomentClass, Multiset]:
        """Return the multiset that is left afterwards by the class that may be played first."""
        firsts = {}
        for place, moments in enumerate(self.classes):
            if costs_left[place]:
                firsts[moments] = _without_one(costs_left, place)
        return firsts

    def range_firsts(self, costs_left: Multiset) -> list[tuple[float, Multiset]]:
        """Return each range that may be played first, with the multiset that is left afterwards."""
        firsts = []
        for place, epsilon in enumerate(self.ranges, start=len(self.classes)):
            if costs_left[place]:
                firsts.append((epsilon, _without_one(costs_left, place)))
        return firsts

    def ranges_left(self, costs_left: Multiset) -> list[tuple[float, int]]:
        """Return the ε of each range with how many of it are left."""
        return list(zip(self.ranges, costs_left[len(self.classes) :], strict=True))

    def programs(self, costs_left: Multiset, moments: MomentClass) -> tuple[ProgramSolution, ...]:
        """Return the solutions of the programs of one class's step, from a multiset that has it,
        all over the reach.
        """
        return _solutions(self, costs_left, moments)

    def bounding_class(self, costs_left: Multiset, moments: MomentClass) -> MomentClass:
        """Return the class whose programs bound the step of one class from above: itself, or where
        its programs are not solved the larger one in which only the largest mean counts.
        """
        if self.is_solved(costs_left):
            return moments
        return replace(moments, centred=False)

    def conversion(self, costs_left: Multiset, x: Floats) -> Floats:
        """Return the upper bound on V of a multiset, at each x, by the Rényi conversion."""
        ranges: dict[Cost, int] = {
            BoundedRange(epsilon): count for epsilon, count in self.ranges_left(costs_left) if count
        }
        of_ranges = log_mgf(Charge(ranges))

        def of_all(orders: Floats) -> Floats:
            """Return an upper bound on the log-MGF of the loss of all costs."""
            parts = [
                count * moments.log_moment(orders)
                for moments, count in zip(self.classes, costs_left, strict=False)
            ]
            if ranges:
                parts.append(of_ranges(orders))
            # Some roundings of each part, and one for each sum.
            total: Floats = np.sum(parts, axis=0) * (1 + PRODUCT_ROUNDING * len(parts))
            return total

        return np.minimum(renyi_curve(of_all).delta(x), 1.0)

    def above(self, x: Floats) -> Floats:
        """Return an upper bound on V of all costs at any x >= 0, from the majorants themselves.

        V falls, so what bounds it at the node to the left bounds it as well.
        """
        table, _ = self.tables(self.counts)
        left = np.floor(x / self.h * (1 - PRODUCT_ROUNDING)).astype(np.int64)
        at_left = table.at(left)
        if self.ranges:
            return _chord(table, left, x)
        converted = np.minimum(self.conversion(self.counts, x), at_left)
        above = np.zeros(len(x))
        for moments, after_first in self.firsts(self.counts).items():
            upper, _ = self.tables(after_first)
            nearest = _nearest_solutions(self.programs(self.counts, moments), x)
            bounding = self.bounding_class(self.counts, moments)
            bounds = _least_majorant_bounds(nearest, bounding, upper, converted, x)
            above = np.maximum(above, bounds)
        return above

    def below(self, x: Floats) -> Floats:
        """Return a lower bound on V of all costs at any x.

        Between two nodes V, convex in u = e^x, is above the line through the right one and the
        next, from the lower end there to the upper one, continued to the left.
        """
        upper, lower = self.tables(self.counts)
        right = np.ceil(x / self.h).astype(np.int64)
        left_by = np.maximum(right * self.h - x, 0.0)
        values = lower.at(right)
        falls = np.maximum(values - upper.at(right + 1), 0.0)
        continued: Floats = values - falls * np.expm1(-left_by) / math.expm1(self.h)
        return continued * (1 - ROUNDING)

    def pair(self) -> GroupPair:
        """Return a pair whose profile is at least V of all costs (Theorem C)."""
        return self._pair_of(self.counts)

    def _pair_of(self, costs_left: Multiset) -> GroupPair:
        """Return a pair whose profile is at least V of some of the costs."""
        above, _ = self.tables(costs_left)
        last = len(above.values) - 1
        nodes = np.arange(-last, last + 1)
        values = np.maximum(above.at(nodes) * (1 + PRODUCT_ROUNDING), FLOOR)
        return pair_above(nodes, values, self.h)


@lru_cache(maxsize=2 * MOST_STATES_WITH_RANGES)
def _tables(game: ConcentratedGame, costs_left: Multiset) -> tuple[ValueTable, ValueTable]:
    """Return upper and lower bounds on V of the costs still to come, from the tables of what is
    left after each first cost.
    """
    last = math.ceil(game.reach / game.h)
    above = np.zeros(last + 1)
    below = np.zeros(last + 1)
    for steps in (_moment_steps, _range_steps):
        for from_above, from_below in steps(game, costs_left, last):
            above = np.maximum(above, from_above)
            below = np.maximum(below, from_below)
    # V falls, but where programs know the wrong orders the bounds may rise.
    above = np.minimum.accumulate(above)
    return ValueTable(game.h, above, upper=True), ValueTable(game.h, below, upper=False)


def _moment_steps(
    game: ConcentratedGame, costs_left: Multiset, last: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yield for each class that may be played first upper and lower bounds on what that is worth
    at the nodes 0, ..., last.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        last: the last node.
    """
    x = np.arange(last + 1.0) * game.h
    if not game.firsts(costs_left):
        return
    every = CONVERTED_EVERY if game.ranges else 1
    # V falls, so that what bounds it at a node does at those to the right.
    converted = np.repeat(game.conversion(costs_left, x[::every]), every)[: last + 1]
    for moments, after_first in game.firsts(costs_left).items():
        upper, lower = game.tables(after_first)
        programs = game.programs(costs_left, moments)
        bounding = game.bounding_class(costs_left, moments)
        above = _least_majorant_bounds(programs, bounding, upper, converted, x)
        below = np.zeros(last + 1)
        for laws in _laws(game, costs_left, moments):
            below = np.maximum(below, laws.step(lower, last))
        yield above, below


def _range_steps(
    game: ConcentratedGame, costs_left: Multiset, last: int
) -> Iterator[tuple[Floats, Floats]]:
    """Yield for each range that may be played first upper and lower bounds on what that is worth
    at the nodes 0, ..., last.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        last: the last node.
    """
    for epsilon, after_first in game.range_firsts(costs_left):
        upper, lower = game.tables(after_first)
        on_grid = range_on_grid(epsilon, game.h)
        from_above = range_step_above(on_grid, upper, last)
        yield from_above, range_step_below(on_grid, lower, upper, last)


def _states(costs: Multiset) -> int:
    """Return the number of multisets that may be left of a multiset."""
    return math.prod(count + 1 for count in costs)


def _without_one(costs_left: Multiset, place: int) -> Multiset:
    """Return the multiset with one cost less of the kind at a place."""
    return (*costs_left[:place], costs_left[place] - 1, *costs_left[place + 1 :])


def _widest_and_narrowest(
    classes: Sequence[MomentClass], ranges: Mapping[float, int]
) -> tuple[float, float]:
    """Return about the largest and the smallest standard deviation of a cost's loss."""
    deviations = [moments.deviation for moments in classes]
    deviations += [epsilon / 2 for epsilon in ranges]
    return max(deviations), min(deviations)


def _step_for_ranges(ranges: Mapping[float, int], step: float) -> float:
    """Return a grid step, at most about ``step``, of which the ranges are nearly multiples.

    Of a coin between two multiples, a and b, about (b - ε)(ε - a)/4 is added to the variance.
    """
    if not ranges:
        return step
    epsilons = np.array(list(ranges))
    counts = np.array(list(ranges.values()), dtype=float)
    fewest = math.ceil(epsilons[-1] / step)
    tried = np.arange(fewest, math.ceil(fewest * tuning.FINER_FOR_RANGES) + 1)
    steps = epsilons[-1] / tried
    misfits = np.mod(epsilons / steps[:, None] + NEARLY_WHOLE, 1.0)
    added = steps**2 * ((1 - misfits) * misfits @ counts)
    best = float(steps[np.argmin(added + tuning.GRID_CELL * steps**2 * counts.sum())])
    # The largest range is a multiple, if need be a little less than the grid has it.
    return best * (1 + 4 * ROUNDOFF)


def _chord(table: ValueTable, left: Nodes, x: Floats) -> Floats:
    """Return upper bounds on V at each x by the chord between the nodes next to it.

    Args:
        table: upper bounds at the nodes.
        left: the node to the left of each x.
        x: ε's.
    """
    at_left = table.at(left)
    at_right = table.at(left + 1)
    share = np.clip(np.expm1(x - left * table.h) / math.expm1(table.h), 0.0, 1.0)
    # By how much rounding may have moved x, as a share of a cell.
    moved = CHORD_ROUNDING * (1 + np.abs(x) / table.h)
    chord = at_left * (1 - share) + at_right * share + moved * np.maximum(at_left - at_right, 0.0)
    bounds: Floats = np.minimum(chord * (1 + CHORD_ROUNDING), 1.0)
    return bounds


def _laws(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> list[PlayableFamily]:
    """Return the laws that are tried for the first of some costs: those of the class, and for
    centred losses those near the solutions of the programs, also of later steps.

    Args:
        game: the game.
        costs_left: the multiset of the costs still to come.
        moments: the class of the first cost.
    """
    families = [playable_family(moments, game.h, game.largest_loss(moments))]
    if not moments.centred:
        return families
    place = game.classes.index(moments)
    most = costs_left[place]
    if game.most_solved:
        most = min(most, game.most_solved)
    for count in game.counts_of_laws(most):
        # Beside costs of other kinds the laws are nearly the same, and there are many multisets.
        before_step = game.of_one_kind(place, count)
        nearby = _laws_near_solutions(game, before_step, moments)
        if nearby is not None:
            families.append(nearby)
    return families


@lru_cache(maxsize=256)
def _laws_near_solutions(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> PlayableFamily | None:
    """Return laws near the solutions of the programs of one step; None where there are none.

    Args:
        game: the game.
        costs_left: the multiset before the step.
        moments: the class of the cost that is played.
    """
    nearby = family_near(game.programs(costs_left, moments), moments, game.h)
    if nearby is None:
        return None
    return PlayableFamily.of(nearby, moments, game.h)


def _least_majorant_bounds(
    solutions: Sequence[ProgramSolution],
    moments: MomentClass,
    upper: ValueTable,
    converted: Floats,
    x: Floats,
) -> Floats:
    """Return the least upper bounds on a step at each x that are known.

    Args:
        solutions: the solutions of programs.
        moments: the class whose programs they solve.
        upper: upper bounds on V of the costs left after the step.
        converted: upper bounds on V before the step that are known already, at each x.
        x: ε's.
    """
    least = converted
    for solution in solutions:
        least = np.minimum(least, _majorant_bounds(solution, moments, upper, x))
    return least


def _majorant_bounds(
    solution: ProgramSolution, moments: MomentClass, upper: ValueTable, x: Floats
) -> Floats:
    """Return the upper bounds on a step at each x that the multipliers of a program prove; 1 where
    they prove nothing.

    Args:
        solution: the solution of the program.
        moments: the class of the cost that is played.
        upper: upper bounds on V of the costs left after it.
        x: ε's.
    """
    majorant = Majorant.of(solution, moments).lifted(upper, solution.compared)
    if majorant is None:
        return np.ones(len(x))
    return majorant.step(x)


def _nearest_solutions(solutions: Sequence[ProgramSolution], x: Floats) -> list[ProgramSolution]:
    """Return the NEAREST_PROGRAMS solutions (all, if there are fewer) whose x is nearest to one of
    some x's. Each of them bounds the step from above at every x, so that leaving others out only
    makes the bound larger.
    """
    distances = [float(np.abs(x - solution.x).min()) for solution in solutions]
    order = np.argsort(distances)
    return [solutions[place] for place in order[:NEAREST_PROGRAMS].tolist()]


@lru_cache(maxsize=1024)
def _solutions(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> tuple[ProgramSolution, ...]:
    """Return the solutions of the linear programs whose multipliers bound the step of ``moments``
    from above, at nodes all over [0, reach].

    They are cached here, because ``game.tables`` of the smaller multisets calls this again: tables
    -> programs -> _solutions -> tables of one cost less.

    Args:
        game: the game.
        costs_left: the multiset before the step.
        moments: the class of the cost that is played.
    """
    value, _ = game.tables(game.firsts(costs_left)[moments])
    bounding = game.bounding_class(costs_left, moments)
    return tuple(game.solutions(bounding, value, game.solved_nodes(costs_left, bounding)))


def _counts_of_classes(charge: Charge) -> dict[MomentClass, int] | None:
    """Return how many costs of a charge are in each moment class; None where a cost is in none, or
    in one with a mean loss below SMALLEST_MEAN or a ρ above LARGEST_RHO.
    """
    counts: dict[MomentClass, int] = {}
    for cost, times in charge:
        moments = moment_class(cost)
        if moments is None:
            return None
        is_in_range = moments.mean >= SMALLEST_MEAN and moments.rho <= LARGEST_RHO
        if not is_in_range:  # also where a parameter is not a number
            return None
        counts[moments] = counts.get(moments, 0) + times
    return counts


def moment_class(cost: Cost) -> MomentClass | None:
    """Return the moment class of a ZCDP or CDP cost, None for other costs.

    A CDP(μ, τ) cost is τ²/2-zCDP and its mean loss is at most μ, which is the class of ρ = τ²/2 and
    ξ = min(μ - ρ, 0). The parameters are raised by the rounding of these products.
    """
    raised = 1 + PRODUCT_ROUNDING
    if isinstance(cost, ZCDP):
        return MomentClass(cost.rho * raised, cost.xi * raised)
    if isinstance(cost, CDP):
        rho = cost.tau**2 / 2 * raised
        return MomentClass(rho, min(cost.mu * raised - rho, 0.0), centred=True)
    return None


# ---- several games


class PlayedPart(NamedTuple):
    """Some of the concentrated costs with their game, or with the Gaussian that stands for them.

    Attributes:
        costs: the costs.
        game: their game, or None.
        gaussian: a Gaussian cost that is worth at least the costs (Theorem H), or none.
    """

    costs: Charge
    game: ConcentratedGame | None
    gaussian: Charge

    def components(self) -> list[LossComponent]:
        """Return pairs whose product bounds the costs."""
        if self.game is not None:
            return [self.game.pair()]
        return loss_components(self.gaussian)


def games_of_parts(costs: Charge, reach: float, negligible: float, room: float) -> list[PlayedPart]:
    """Return parts of some costs, of which very many are one Gaussian each, and the others have
    games that fit into the work together; nothing where there are none.

    Args:
        costs: ZCDP and CDP costs.
        reach: the largest x that matters.
        negligible: δ; beyond the ε at which a part alone is worth it nothing is looked at.
        room: of work, in seconds.
    """
    negligible_from = float(renyi_curve(log_mgf(costs)).epsilon(negligible))
    game = ConcentratedGame.fitting(costs, min(reach, negligible_from), room)
    if game is not None:
        return [PlayedPart(costs, game, Charge())]
    one_kind = len(costs.costs) == 1
    if one_kind and costs.count > tuning.MOST_IN_GAMES:
        try:
            return [PlayedPart(costs, None, Charge({gaussian_of(costs): 1}))]
        except NotApplicable:
            return []
    if costs.count < 2 or room < LEAST_ROOM:
        return []
    parts: list[PlayedPart] = []
    halves = _two_parts(costs)
    for part in halves:
        share = _expected_work(part) / sum(_expected_work(one) for one in halves)
        games = games_of_parts(part, reach, negligible, share * room)
        if not games:
            return []
        parts += games
    return parts


def _expected_work(costs: Charge) -> float:
    """Return about the work of the coarsest games of each kind of some costs, in seconds."""
    work = LEAST_ROOM
    for cost, times in costs:
        if times > tuning.MOST_IN_GAMES:
            continue
        if isinstance(cost, CDP):
            work += tuning.WORK_PER_CENTRED_FAMILY + tuning.WORK_PER_CENTRED_COST * times
        else:
            work += tuning.WORK_PER_FAMILY + tuning.WORK_PER_COST * times
    return work


def _two_parts(costs: Charge) -> tuple[Charge, Charge]:
    """Return the larger and the smaller ones of two or more costs, apart where their zCDP constants
    differ most; of a single kind two halves.
    """
    kinds = [(zcdp_constant(cost), cost) for cost in costs.costs]
    kinds.sort(key=lambda kind: kind[0], reverse=True)
    falling = [cost for _, cost in kinds]
    if len(falling) == 1:
        (cost,) = falling
        half = costs.count // 2
        return Charge({cost: costs.count - half}), Charge({cost: half})
    ratios = [larger / smaller for (larger, _), (smaller, _) in pairwise(kinds)]
    cut = int(np.argmax(ratios)) + 1
    larger_costs = {cost: costs.costs[cost] for cost in falling[:cut]}
    smaller_costs = {cost: costs.costs[cost] for cost in falling[cut:]}
    return Charge(larger_costs), Charge(smaller_costs)


# ---- answers


@dataclass(frozen=True)
class Ends:
    """Both ends of an answer, proven.

    Attributes:
        upper: the upper bound.
        lower: the lower bound.
    """

    upper: float
    lower: float


def delta_at(game: ConcentratedGame, x: float) -> Ends:
    """Return bounds on δ at ε = x."""
    points = np.array([x])
    return Ends(float(game.above(points)[0]), float(game.below(points)[0]))


def epsilon_at(game: ConcentratedGame, delta: float, delta_below: float, start: float) -> Ends:
    """Return an upper bound on ε at ``delta``, at most ``start``, and a lower one at
    ``delta_below`` >= delta. The upper one is inf where nothing shows an ε.

    Args:
        game: the game.
        delta: δ of the upper bound.
        delta_below: δ of the lower bound, at least ``delta``.
        start: an upper bound on ε that is known already.
    """
    above, below = game.tables(game.counts)
    # Each end lies in a cell of its table, and is looked for between the cell's nodes.
    upper = start
    if above.values[-1] <= delta:
        first_node = int(np.argmax(above.values <= delta))
        upper = min(first_node * game.h * (1 + PRODUCT_ROUNDING), start)
    if math.isfinite(upper):
        points = np.linspace(max(upper - game.h, 0.0), upper, ANSWER_POINTS)
        low_enough = points[game.above(points) <= delta]
        if low_enough.size:
            upper = float(low_enough[0])
    last = int(np.count_nonzero(np.minimum.accumulate(below.values > delta_below)))
    if last == 0:
        return Ends(upper, 0.0)
    points = np.linspace((last - 1) * game.h, last * game.h, ANSWER_POINTS)
    attained = points[game.below(points) > delta_below]
    # V at the last node of them is above δ itself; between nodes its bound may be lower.
    at_node = (last - 1) * game.h * (1 - PRODUCT_ROUNDING)
    return Ends(upper, float(attained.max(initial=at_node)))
