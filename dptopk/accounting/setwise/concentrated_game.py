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
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.choices import Interaction
from dptopk._internal.rounding import Floats
from dptopk.accounting.renyi.renyi_curves import renyi_curve
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    Nodes,
    ProgramSolution,
    StepProgram,
)
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.costs import CDP, ZCDP, Charge, Cost

# Of sums of a few exponentials with exponents up to 600, relative to the sum of their sizes.
ROUNDING = 1e-12
# Of the masses of a law whose sum, and whose E[e^{-L}], are 1 but for rounding.
LAW_ERROR = 2e-14
# The rounding above stays small next to δ and to moments in these ranges.
SMALLEST_RHO = 1e-7
LARGEST_RHO = 2.0
SMALLEST_DELTA = 1e-10
MOST_COSTS = 20
MOST_STATES = 60
MOST_NODES = 6000
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
    """F in terms of t = e^{y - x}: a + bt + Σ g_i t^{-e_i}, so that a loss of 0 is at t = 1.

    Attributes:
        x: where the terms are written down.
        constant, slope: a, and b >= 0 after ``lifted``.
        weights, exponents: g_i >= 0 and e_i, an order λ of the class or -(1 + λ).
        limits: K(λ) of each term's order λ.
    """

    x: float
    constant: float
    slope: float
    weights: Floats
    exponents: Floats
    limits: Floats

    @classmethod
    def of(cls, solution: ProgramSolution, moments: MomentClass) -> Majorant:
        """Return the function F that the multipliers of a linear program make; it is not yet proven
        to be above V.
        """
        orders = np.array([constraint.order for constraint in solution.constraints])
        exponents = np.array([constraint.exponent for constraint in solution.constraints])
        limits = moments.log_moment(orders)
        return cls(
            x=solution.x,
            constant=solution.constant,
            slope=solution.slope,
            weights=solution.weights,
            exponents=exponents,
            limits=limits,
        )

    def lifted(self, value: ValueTable, nodes: Nodes) -> Majorant | None:
        """Return a majorant of V from this function; None where its multipliers cannot be raised to
        one.

        It is above V at the nodes, between them, and on both sides of them. V is convex in w with V
        = 1 at w = 0, and falls: it lies below the chords between upper bounds at nodes, below the
        chord from (0, 1) to the first one, and below the last one beyond it. The chord of w^{-e} is
        at most c_e times w^{-e}, so F with c_e g is above the chords of F.

        Args:
            value: upper bounds on V.
            nodes: consecutive nodes at which the function is compared with V.
        """
        y = nodes.astype(np.float64) * value.h - self.x
        above = value.at(nodes)
        terms = self.terms(y)
        rise, size = self.derivative(float(y[-1]))
        slope = self.slope + max(ROUNDING * size - rise, 0.0)
        linear = self.constant + slope * np.exp(y)
        moments = terms.sum(axis=0)
        sizes = abs(self.constant) + abs(slope) * np.exp(y) + moments
        short = above - linear - moments + ROUNDING * sizes
        largest_shortfall = float(short.max())
        raised = self
        if largest_shortfall > 0:
            raised = self._with_more(short, moments)
        factors = [chord_factor(-exponent, value.h) for exponent in self.exponents.tolist()]
        chords = np.array(factors)
        raised = replace(raised, slope=slope, weights=raised.weights * chords)
        # To the right of the nodes F rises, as V falls: what was added may have made it fall there.
        rise, size = raised.derivative(float(y[-1]))
        raised = replace(raised, slope=raised.slope + max(ROUNDING * size - rise, 0.0))
        # To the left of the nodes: a convex function is above its tangent.
        first = float(y[0])
        fall, size = raised.derivative(first)
        needed = (float(above[0]) - 1) * math.exp(-first)
        if (
            not fall + ROUNDING * size <= needed * (1 + ROUNDING)
            or not np.isfinite(raised.weights).all()
        ):
            return None
        return raised

    def _with_more(self, short: Floats, moments: Floats) -> Majorant:
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

    def derivative(self, y: float) -> tuple[float, float]:
        """Return dF/dt at t = e^y, and the sum of the absolute values of its terms, which bounds
        its rounding.
        """
        terms = self.terms(np.array([y]))[:, 0] * math.exp(-y)
        derivative = self.slope - float(self.exponents @ terms)
        return derivative, abs(self.slope) + float(np.abs(self.exponents) @ terms)

    def step(self, x: Floats) -> Floats:
        """Return the upper bound on the step that the majorant proves at each x, rounded up; 1
        where it is beyond all floats.
        """
        y = x - self.x
        with np.errstate(over="ignore"):
            logs = -np.outer(self.exponents, y) + self.limits[:, None]
            terms = self.weights[:, None] * np.exp(np.minimum(logs, LARGEST_EXPONENT))
            moments = terms.sum(axis=0)
            linear = self.slope * np.exp(y)
            sizes = abs(self.constant) + np.abs(linear) + moments
            bounds = self.constant + linear + moments + ROUNDING * sizes
        too_large = (logs > LARGEST_EXPONENT).any(axis=0) | ~np.isfinite(bounds)
        return np.where(too_large, 1.0, np.clip(bounds, 0.0, 1.0))


def chord_factor(exponent: float, h: float) -> float:
    """Return the largest ratio of the chord of t^exponent between two nodes, a factor e^h apart, to
    t^exponent itself, rounded up; the power is convex.

    With 1 + s (t - 1) for the chord over [1, e^h], the ratio is largest at t = e (1 - s) / (s (1 -
    e)).
    """
    rise = math.expm1(exponent * h)
    s = rise / math.expm1(h)
    if s == 0 or exponent == 1:
        return 1.0
    t = exponent * (1 - s) / (s * (1 - exponent))
    t = min(max(t, 1.0), math.exp(h))
    ratio = (1 + s * (t - 1)) * math.exp(-exponent * math.log(t))
    return max(ratio, 1.0) * (1 + 1e-9)


# ---- from below


@dataclass(frozen=True)
class PlayableLaw:
    """A law of the loss L that belongs to the class, with x - L at nodes.

    Attributes:
        x: where its program was solved.
        nodes: x - L of each outcome, in nodes.
        masses: the probabilities of the outcomes under P.
        idle: the probability of one more outcome, with a loss of 0.
    """

    x: float
    nodes: Nodes
    masses: Floats
    idle: float

    @classmethod
    def of(cls, solution: ProgramSolution, moments: MomentClass, h: float) -> PlayableLaw | None:
        """Return a law of the class near the one that solves a program; None where there is none.

        A little mass at one more loss makes E[e^{-L}] = 1. Then the law is mixed with no loss at
        all until every moment holds.

        Args:
            solution: the solution of a program.
            moments: the class.
            h: the distance of two nodes.
        """
        masses = solution.masses / math.fsum(solution.masses.tolist())
        losses = solution.x - solution.nodes * h
        excess = math.fsum((masses * np.expm1(-losses)).tolist())
        place = int(np.argmax(masses))
        loss = float(losses[place])
        largest = float(masses[place])
        # A part of the largest mass goes to a loss that is enough nodes away.
        away = math.ceil(abs(excess) * math.exp(loss) / (largest * h) * 1.1 + 1e-300)
        node = int(solution.nodes[place])
        if excess > 0:
            node -= away
        else:
            node += away
        gain = math.exp(-loss) * -math.expm1(loss - (solution.x - node * h))
        part = excess / gain if excess else 0.0
        if not 0 <= part <= largest:
            return None
        nodes = np.append(solution.nodes, node)
        masses = np.append(masses, part)
        masses[place] -= part
        losses = solution.x - nodes * h
        if moments.centred:
            played = _largest_centred_share(losses, masses, moments)
        else:
            played = _largest_share(losses, masses, moments)
        if not played > 0:
            return None
        return cls(solution.x, nodes, masses * played, 1 - played)

    def step(self, value: ValueTable, by: Nodes) -> Floats:
        """Return lower bounds on the step at nodes, by playing this law; the law's own x must be a
        node.

        Args:
            value: lower bounds on V of what is left.
            by: the nodes, counted from the law's own.
        """
        to_come = value.at(self.nodes + by[:, None]) @ self.masses
        own_node = round(self.x / value.h)
        total = to_come + self.idle * value.at(own_node + by)
        return np.maximum(total * (1 - 1e-13) - LAW_ERROR, 0.0)

    def here(self, value: ValueTable) -> float:
        """Return a lower bound on the step at the law's own x, which need not be a node."""
        to_come = float(value.at(self.nodes) @ self.masses)
        right = np.array([math.ceil(self.x / value.h * (1 + 1e-15))])
        total = to_come + self.idle * float(value.at(right)[0])
        return max(total * (1 - 1e-13) - LAW_ERROR, 0.0)


def _largest_share(losses: Floats, masses: Floats, moments: MomentClass) -> float:
    """Return the largest share of a law with which all its moments hold, the rest being no loss.

    The moments are checked at orders between which ln E[e^{λL}], which is convex, lies below its
    chord, and K above its own less ρΔ²/4; up to the first order by convexity from 0, beyond the
    last by the largest loss.
    """
    last = max(float(np.abs(losses).max()) - moments.mean, 0.0) / moments.rho + 1
    orders = np.geomspace(1e-4, last * 1.001, math.ceil(400 * math.log10(last * 1e4)) + 2)
    gaps = np.diff(orders)
    widest = np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))
    allowed = moments.log_moment(orders) - moments.rho * widest**2 / 4
    allowed[0] = min(allowed[0], orders[0] * moments.mean)
    room = np.expm1(np.minimum(allowed, LARGEST_EXPONENT)) * (1 - 1e-9)
    share = 1.0
    for exponents in (orders, -(1 + orders)):
        logs = np.outer(exponents, losses)
        if logs.max() > LARGEST_EXPONENT:
            return 0.0
        changes = np.expm1(logs)
        rises = changes @ masses + 1e-12 * (np.abs(changes) @ masses) + LAW_ERROR
        with np.errstate(divide="ignore"):
            shares = np.where(rises > 0, room / rises, np.inf)
        share = min(share, float(shares.min()))
    return share


def _largest_centred_share(losses: Floats, masses: Floats, moments: MomentClass) -> float:
    """Return the largest share tried with which a law, the rest being no loss, is subgaussian about
    its mean in both directions, and its means are at most those of the class.

    ln M(λ) <= λm + λ²ρ, both convex, is checked on orders of both signs as in ``_largest_share``,
    and about 0 by (ln M)'' <= E[L² e^{|λL|}] / M <= 2ρ.
    """
    forth = _centred_shares(losses, masses, moments)
    back = _centred_shares(-losses, masses * np.exp(-losses), moments)
    # At one and the same share: a direction that holds at a share may not hold at a smaller one.
    holding = _SHARES[forth & back]
    return float(holding.max()) if holding.size else 0.0


def _centred_shares(losses: Floats, masses: Floats, moments: MomentClass) -> NDArray[np.bool_]:
    """Return for each of ``_SHARES`` whether the law, mixed with no loss, is subgaussian about its
    mean in this direction, with a mean that is small enough.
    """
    rho = moments.rho
    first = 0.02 / moments.deviation
    last = 2 * float(np.abs(losses).max()) / rho + 2 * first
    rising = np.geomspace(first, last, math.ceil(150 * math.log10(last / first)) + 2)
    gap = rising * (rising[1] / rising[0] - 1) * (1 + 1e-9)
    orders = np.concatenate([rising, -rising])
    logs = np.outer(orders, losses)
    reachable = np.abs(logs).max(axis=1) <= LARGEST_EXPONENT
    changes = np.expm1(np.clip(logs, -LARGEST_EXPONENT, LARGEST_EXPONENT))
    rises = changes @ masses + 1e-12 * (np.abs(changes) @ masses) + LAW_ERROR
    if not reachable.all():
        return np.zeros(len(_SHARES), dtype=np.bool_)
    mean = math.fsum((losses * masses).tolist())
    mean_error = 1e-13 * float(np.abs(losses) @ masses) + LAW_ERROR
    shares = _SHARES
    allowed = np.outer(shares, orders * mean - np.abs(orders) * mean_error)
    allowed += rho * (orders**2 - np.concatenate([gap, gap]) ** 2 / 4)
    moments_of = np.log1p(np.outer(shares, rises)) + 1e-13
    holds = (moments_of <= allowed).all(axis=1)
    # Between the two orders nearest to 0, where M >= e^{-|λ| E|L|}.
    size = float(np.abs(losses) @ masses)
    second = float(losses**2 * np.exp(first * np.abs(losses)) @ masses)
    holds &= shares * second * math.exp(first * size) <= 2 * rho * (1 - 1e-9)
    holds &= shares * (mean + mean_error) <= moments.mean
    return holds


_SHARES = np.append(0.0, 1 - np.append(0.0, np.geomspace(1e-4, 0.9, 40)))[1:]


# ---- the game


Multiset = tuple[int, ...]


@dataclass(frozen=True)
class ConcentratedGame:
    """A few costs of moment classes.

    Attributes:
        classes: the distinct classes, by rising ρ.
        counts: of each.
        h: the distance of two nodes.
        reach: the largest x of a table.
        coarseness: how much rarer programs are solved the more costs are still to come, and V the
            smoother; 0: no rarer.
    """

    classes: tuple[MomentClass, ...]
    counts: Multiset
    h: float
    reach: float
    coarseness: float = 0.0

    @classmethod
    def of(cls, charge: Charge, reach: float) -> Self | None:
        """Return the game of ZCDP and CDP costs; None where they are too many, too different, too
        small or too large.

        Args:
            charge: the costs.
            reach: the largest x at which V is needed.
        """
        if not 0 < charge.count <= MOST_COSTS or not math.isfinite(reach):
            return None
        counts_of = _counts_of_classes(charge)
        if counts_of is None:
            return None
        classes = tuple(sorted(counts_of, key=lambda moments: (moments.rho, moments.xi)))
        counts = tuple(counts_of[moments] for moments in classes)
        if math.prod(count + 1 for count in counts) > MOST_STATES:
            return None
        deviations = [moments.deviation for moments in classes]
        widest = max(deviations)
        narrowest = min(deviations)
        if widest > LARGEST_RATIO * narrowest:
            return None
        step = min(widest / tuning.GAME_NODES, narrowest / tuning.GAME_NODES_OF_SMALLEST)
        # A reach in whole deviations, so that questions share their tables.
        reach = widest * math.ceil(reach / widest + tuning.GAME_BEYOND)
        if reach > MOST_NODES * step:
            return None
        return cls(classes, counts, step, reach)

    @classmethod
    def fitting(cls, charge: Charge, reach: float, room: float, *, whole: bool) -> Self | None:
        """Return the finest game of some costs whose work fits into ``room``; None where none does.

        Args:
            charge: the costs, of types ZCDP and CDP.
            reach: the largest x at which V is needed.
            room: of work, in seconds.
            whole: whether V of all costs is needed on all nodes, or one answer only.
        """
        finest = cls.of(charge, reach)
        if finest is None:
            return None
        for coarseness in tuning.GAME_COARSENESS:
            game = replace(finest, coarseness=coarseness)
            if game.work(whole=whole) <= room:
                return game
        return None

    def playable_in(self, interaction: Interaction, *, alone: bool) -> bool:
        """Return whether the game's strategy is one of an interaction: its laws adapt to answers,
        and of several classes it chooses the first.
        """
        if interaction == "batch":
            return alone and sum(self.counts) == 1
        return interaction != "ordered" or len(self.classes) == 1

    def work(self, *, whole: bool) -> float:
        """Return the work, in seconds, of V of all costs on all nodes (``whole``), or of all but
        the first cost and one answer.
        """
        states = product(*(range(count + 1) for count in self.counts))
        programs = 0
        for costs_left in states:
            firsts = sum(1 for count in costs_left if count)
            if costs_left == self.counts and not whole:
                programs += firsts * tuning.LAST_PROGRAMS
            elif firsts:
                spacing = self.spacing(costs_left, self.classes[-1]) / 2
                programs += firsts * math.ceil(self.reach / spacing)
        return tuning.WORK_PER_PROGRAM * programs

    def spacing(self, costs_left: Multiset, moments: MomentClass) -> float:
        """Return the distance of the x's at which the programs of a step are solved at first."""
        to_come = sum(costs_left) - 1
        wider = max(1.0, self.coarseness * math.sqrt(to_come))
        return tuning.GAME_SPACING * moments.deviation * wider

    def tables(self, costs_left: Multiset) -> tuple[ValueTable, ValueTable]:
        """Return upper and lower bounds on V of the costs still to come, up to the reach."""
        if not any(costs_left):
            return (
                ValueTable.of_nothing(self.h, upper=True),
                ValueTable.of_nothing(self.h, upper=False),
            )
        return _tables(self, costs_left)

    def firsts(self, costs_left: Multiset) -> list[tuple[MomentClass, Multiset]]:
        """Return each class that may be played first, with the multiset that is left afterwards."""
        firsts = []
        for place, moments in enumerate(self.classes):
            if costs_left[place]:
                after_first = (*costs_left[:place], costs_left[place] - 1, *costs_left[place + 1 :])
                firsts.append((moments, after_first))
        return firsts

    def programs(self, costs_left: Multiset, moments: MomentClass) -> tuple[ProgramSolution, ...]:
        """Return the solutions of the programs of one class's step, from a multiset that has it,
        all over the reach.
        """
        return _solutions(self, costs_left, moments)

    def conversion(self, costs_left: Multiset, x: Floats) -> Floats:
        """Return the upper bound on V of a multiset, at each x, by the Rényi conversion."""

        def log_mgf(orders: Floats) -> Floats:
            """Return an upper bound on the log-MGF of the loss of all costs."""
            parts = [
                count * moments.log_moment(orders)
                for moments, count in zip(self.classes, costs_left, strict=True)
            ]
            total: Floats = np.sum(parts, axis=0) * (1 + 1e-15 * len(parts))
            return total

        return np.minimum(renyi_curve(log_mgf).delta(x), 1.0)

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
        return continued * (1 - 1e-12)

    def pair(self) -> GroupPair:
        """Return a pair whose profile is at least V of all costs (Theorem C)."""
        above, _ = self.tables(self.counts)
        last = len(above.values) - 1
        nodes = np.arange(-last, last + 1)
        values = np.maximum(above.at(nodes) * (1 + 1e-15), FLOOR)
        return pair_above(nodes, values, self.h)


@lru_cache(maxsize=256)
def _tables(game: ConcentratedGame, costs_left: Multiset) -> tuple[ValueTable, ValueTable]:
    """Return upper and lower bounds on V of the costs still to come, from the tables of what is
    left after each first cost.
    """
    nodes = np.arange(math.ceil(game.reach / game.h) + 1)
    above = np.zeros(len(nodes))
    below = np.zeros(len(nodes))
    x = nodes.astype(np.float64) * game.h
    converted = game.conversion(costs_left, x)
    for moments, after_first in game.firsts(costs_left):
        upper, lower = game.tables(after_first)
        bounds = converted
        for solution in game.programs(costs_left, moments):
            bounds = np.minimum(bounds, _majorant_bounds(solution, moments, upper, x))
            below = np.maximum(below, _lower_bounds(solution, moments, lower, nodes))
        above = np.maximum(above, bounds)
    return ValueTable(game.h, above, upper=True), ValueTable(game.h, below, upper=False)


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
    compared = far_nodes(moments, upper, solution.x)
    majorant = Majorant.of(solution, moments).lifted(upper, compared)
    if majorant is None:
        return np.ones(len(x))
    return majorant.step(x)


def _lower_bounds(
    solution: ProgramSolution, moments: MomentClass, lower: ValueTable, nodes: Nodes
) -> Floats:
    """Return lower bounds on a step at all nodes, by playing the law of a program there; 0 where
    there is none in the class.

    Around the program's own node the law is also tried with its large losses moved with the node,
    so that after such a loss the game stands where it stood before (``_solution_at``).

    Args:
        solution: the solution of the program.
        moments: the class of the cost that is played.
        lower: lower bounds on V of the costs left after it.
        nodes: 0, 1, ..., the last node.
    """
    values = np.zeros(len(nodes))
    own_node = round(solution.x / lower.h)
    law = PlayableLaw.of(solution, moments, lower.h)
    if law is not None:
        values = law.step(lower, nodes - own_node)
    # In a game that is not coarse programs are half a spacing apart (``_solutions``): up to a
    # quarter of it no other program is nearer.
    reach = math.ceil(tuning.GAME_SPACING / 4 * moments.deviation / lower.h)
    first = max(own_node - reach, 0)
    last = min(own_node + reach, len(nodes) - 1)
    at_own_node = np.zeros(1, dtype=int)
    for node in range(first, last + 1):
        moved = PlayableLaw.of(_solution_at(solution, moments, node, lower.h), moments, lower.h)
        if moved is not None:
            attained = moved.step(lower, at_own_node)
            values[node] = max(values[node], float(attained[0]))
    return values


def _solution_at(
    solution: ProgramSolution, moments: MomentClass, node: int, h: float
) -> ProgramSolution:
    """Return the solution of a program, adapted to another node.

    Large losses lead to the same places, with about the probability that such a loss may have; the
    others are the same losses.

    Args:
        solution: the solution of the program.
        moments: the class of the cost that is played.
        node: the other node.
        h: the distance of two nodes.
    """
    by = node - round(solution.x / h)
    losses = solution.x - solution.nodes * h
    large = losses > moments.deviation / 2
    nearer = (losses - moments.mean) ** 2 - (losses + by * h - moments.mean) ** 2
    masses = np.where(large, solution.masses * np.exp(nearer / (4 * moments.rho)), solution.masses)
    masses = np.where(large, masses * tuning.LARGER_MASS, masses)
    nodes = np.where(large, solution.nodes, solution.nodes + by)
    return replace(solution, x=node * h, nodes=nodes, masses=masses)


def far_nodes(moments: MomentClass, value: ValueTable, x: float) -> Nodes:
    """Return the nodes at which a majorant is compared with V: those of the program at x."""
    first = math.floor(-tuning.PROGRAM_LEFT * moments.deviation / value.h)
    last = math.ceil((x + tuning.PROGRAM_RIGHT * moments.deviation) / value.h)
    return np.arange(first, last + 1)


@lru_cache(maxsize=1024)
def _solutions(
    game: ConcentratedGame, costs_left: Multiset, moments: MomentClass
) -> tuple[ProgramSolution, ...]:
    """Solve the programs of one class's step at nodes all over [0, reach], each starting from its
    neighbours.
    """
    after_first = dict(game.firsts(costs_left))[moments]
    value, _ = game.tables(after_first)
    spacing = game.spacing(costs_left, moments)
    solutions: dict[int, ProgramSolution] = {}

    def solve(node: int, nearby_solutions: list[ProgramSolution]) -> None:
        """Solve the program at a node and store its solution, if the solver finds one."""
        solution = StepProgram(moments, value, node * value.h, nearby_solutions).solve()
        if solution is not None:
            solutions[node] = solution

    last: list[ProgramSolution] = []
    for x in np.arange(0.0, game.reach + spacing, spacing).tolist():
        node = round(x / value.h)
        solve(node, last)
        if node in solutions:
            last = [solutions[node]]
    for left_node, right_node in pairwise(sorted(solutions)):
        middle = (left_node + right_node) // 2
        if middle not in solutions:
            solve(middle, [solutions[left_node], solutions[right_node]])
    return tuple(solutions[node] for node in sorted(solutions))


def _counts_of_classes(charge: Charge) -> dict[MomentClass, int] | None:
    """Return how many costs of a charge are in each moment class; None where a cost is in none, or
    too small or too large.
    """
    counts: dict[MomentClass, int] = {}
    for cost, times in charge:
        moments = moment_class(cost)
        if moments is None:
            return None
        if not SMALLEST_RHO <= moments.mean or not moments.rho <= LARGEST_RHO:
            return None
        counts[moments] = counts.get(moments, 0) + times
    return counts


def moment_class(cost: Cost) -> MomentClass | None:
    """Return the moment class of a ZCDP or CDP cost, None for other costs.

    A CDP(μ, τ) cost is τ²/2-zCDP and its mean loss is at most μ, which is the class of ρ = τ²/2 and
    ξ = min(μ - ρ, 0). The factors 1 + 1e-15 cover the rounding of the products.
    """
    if isinstance(cost, ZCDP):
        return MomentClass(cost.rho * (1 + 1e-15), cost.xi * (1 + 1e-15))
    if isinstance(cost, CDP):
        rho = cost.tau**2 / 2 * (1 + 1e-15)
        return MomentClass(rho, min(cost.mu * (1 + 1e-15) - rho, 0.0), centred=True)
    return None


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
    above = 0.0
    below = 0.0
    for moments, costs_left in game.firsts(game.counts):
        upper, lower = game.tables(costs_left)
        first = _first_cost(game, moments, (upper, lower), x, [])
        above = max(above, first.bound(np.array([x]))[0])
        below = max(below, first.attained)
    converted = float(game.conversion(game.counts, np.array([x]))[0])
    return Ends(min(above, converted), below)


class _FirstCost(NamedTuple):
    """What one program says about V of all costs, if a given class is played first.

    Attributes:
        bound: maps x's to upper bounds on V.
        attained: a lower bound on V at the x of the program.
        solutions: the program's solution, or what ``_first_cost`` was given where it has none.
    """

    bound: Callable[[Floats], Floats]
    attained: float
    solutions: list[ProgramSolution]


def _first_cost(
    game: ConcentratedGame,
    moments: MomentClass,
    tables: tuple[ValueTable, ValueTable],
    x: float,
    nearby_solutions: list[ProgramSolution],
) -> _FirstCost:
    """Solve the program at x for a first cost of one class, and return what it proves.

    Args:
        game: the game.
        moments: the class of the first cost.
        tables: upper and lower bounds on V of what is left.
        x: where the program is solved.
        nearby_solutions: solutions at neighbouring x's.
    """
    upper, lower = tables

    def conversion(points: Floats) -> Floats:
        """Return the bound by the Rényi conversion, which needs no program."""
        return game.conversion(game.counts, points)

    solution = StepProgram(moments, upper, x, nearby_solutions).solve(tuning.LAST_PROGRAMS)
    if solution is None:
        return _FirstCost(conversion, 0.0, nearby_solutions)
    majorant = Majorant.of(solution, moments).lifted(upper, far_nodes(moments, upper, x))
    law = PlayableLaw.of(solution, moments, game.h)
    attained = law.here(lower) if law else 0.0
    bound = majorant.step if majorant else conversion
    return _FirstCost(bound, attained, [solution])


def epsilon_at(game: ConcentratedGame, delta: float, delta_below: float, start: float) -> Ends:
    """Return an upper bound on ε at ``delta``, at most ``start``, and a lower one at
    ``delta_below`` >= delta.

    From above, it is the largest over the first costs of the least x at which some majorant is at
    most δ. From below, it is an x at which a law attains more than ``delta_below``, near the upper
    one.

    Args:
        game: the game.
        delta: δ of the upper bound.
        delta_below: δ of the lower bound, at least ``delta``.
        start: an upper bound on ε that is known already.
    """
    above = 0.0
    below = 0.0
    for moments, costs_left in game.firsts(game.counts):
        tables = game.tables(costs_left)
        upper, last_solution = _falls_to(game, moments, tables, delta, start)
        above = max(above, upper)
        below = max(below, _attains(game, moments, tables, delta_below, upper, last_solution))
    return Ends(min(above, start), below)


def _falls_to(
    game: ConcentratedGame,
    moments: MomentClass,
    tables: tuple[ValueTable, ValueTable],
    delta: float,
    start: float,
) -> tuple[float, list[ProgramSolution]]:
    """Return the least x found at which a majorant of the step is at most δ, and the last solution.

    Programs are solved where the last one says that this x is.

    Args:
        game: the game.
        moments: the class of the first cost.
        tables: upper and lower bounds on V of what is left.
        delta: δ.
        start: an x at which V is at most δ.
    """
    best = start
    x = start
    solutions: list[ProgramSolution] = []
    for _ in range(tuning.LAST_PROGRAMS):
        first = _first_cost(game, moments, tables, x, solutions)
        solutions = first.solutions
        points = np.linspace(max(best - moments.deviation, 0.0), best, 4001)
        low_enough = points[first.bound(points) <= delta]
        if not low_enough.size or low_enough[0] >= best:
            break
        moved = best - float(low_enough[0])
        best = float(low_enough[0])
        x = best
        if moved < 1e-5 * best:  # another program would hardly move it
            break
    return best, solutions


def _attains(
    game: ConcentratedGame,
    moments: MomentClass,
    tables: tuple[ValueTable, ValueTable],
    delta: float,
    upper: float,
    solutions: list[ProgramSolution],
) -> float:
    """Return the largest x found, up to ``upper``, at which a law attains more than δ; 0 if there
    is none.

    It is looked for by secants of ln δ, from ``upper`` down.

    Args:
        game: the game.
        moments: the class of the first cost.
        tables: upper and lower bounds on V of what is left.
        delta: δ.
        upper: an upper bound on the answer.
        solutions: solutions of the program near ``upper``.
    """
    best = 0.0
    x = upper
    steepness = 2 / moments.deviation  # about -d ln δ / dx
    last_x = math.nan
    last_log_ratio = math.nan
    for _ in range(tuning.LAST_PROGRAMS):
        first = _first_cost(game, moments, tables, x, solutions)
        solutions = first.solutions
        if first.attained > delta:
            best = max(best, x)
        if first.attained <= 0:
            break
        log_ratio = math.log(first.attained / delta)
        # Both comparisons with NaN are false in the first round.
        if x < last_x:
            steepness = max((log_ratio - last_log_ratio) / (last_x - x), steepness / 8)
        elif x > last_x:
            steepness = max((last_log_ratio - log_ratio) / (x - last_x), steepness / 8)
        last_x = x
        last_log_ratio = log_ratio
        x = max(x + (log_ratio - tuning.JUST_ABOVE) / steepness, x / 2)
        if 0 <= log_ratio < 3 * tuning.JUST_ABOVE:
            break
    return best
