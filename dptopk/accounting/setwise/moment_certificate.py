"""The game of a few concentrated costs as a certificate states it: for each multiset that may be
left and each cost that may come first the multipliers of some programs, and nothing else.

The checker computes V of each multiset from the multipliers. Of each majorant F(w) = a + bw +
Σ γ_i w^{-e_i}, convex in w, it proves that it is above V of what is left then: on a cell of the
grid V is below the chord between its ends, and F above its own tangent at the cell's middle, so it
is enough that the tangent is above V at both ends. Left of the first node V is below the chord from
(0, 1) and F above its tangent; right of the last one V falls and F rises. Here the multipliers are
raised until all that holds with room for the checker's rounding (docs/notes/certificates.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypedDict

import numpy as np

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise.concentrated_game import ConcentratedGame, Multiset
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.majorants import ROUNDING, Majorant, ValueTable
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    PRODUCT_ROUNDING,
    MomentClass,
    Nodes,
    ProgramSolution,
)
from dptopk.accounting.setwise.recursion import FLOOR

# Relative, of the size of a tangent: far above the ten roundings or so with which the checker
# computes it.
CHECKER_ROUNDING = ROUNDING / 4
MOST_MAJORANTS = 3000  # of a file: the checker takes about 5 ms for each
LAST_PROGRAMS = 3  # x's at which the first cost is solved again, near the answer
MOST_RAISED = 5e-4  # relative: a bound that had to be raised by more is solved again
CLOSE_ENOUGH = 1e-5  # relative, of ε: the answer is looked for no more closely
POINTS_NEAR_ANSWER = 20_001  # x's at which a majorant's bound is compared with δ

# The orders of Rényi conversions: the least, the largest, and how many there are, at equal ratios.
ORDERS = (1e-2, 1e6, 4000)
# The number of x's, to a deviation of the first class, for which a conversion is tried.
CONVERTED_SPACING = 12.0

# A majorant as a certificate lists it: x, its first and its last node, a, b, and [e_i, γ_i] of each
# term (``Provable.statement``).
StatedMajorant = list[float | list[list[float]]]


class StatedGame(TypedDict):
    """The parts of a certificate's factor that state a game, apart from its costs.

    Attributes:
        grid: the distance of two nodes.
        nodes: the last node of the tables of V.
        left: the first node at which a majorant is compared with V is -left.
        far: the last node at which a majorant is compared with V, or that after ``nodes`` if it is
            larger.
        states: for each multiset a list of three: its counts, for each class the majorants of its
            step (none where the class has no cost left), and the orders of its Rényi conversion.
    """

    grid: float
    nodes: int
    left: int
    far: int
    states: list[list[list[int] | list[list[StatedMajorant]] | list[float]]]


@dataclass(frozen=True)
class _Tangents:
    """Tangents of a majorant at points where the checker compares them with V, one entry each.

    Attributes:
        shortfalls: the amount by which V exceeds the tangent; below 0 where the tangent is above V.
        moments: the part of the tangent that comes from the moments, Σ γ_i w^{-e_i}.
        sizes: the sum of the absolute values of the tangent's terms, which bounds its rounding.
    """

    shortfalls: Floats
    moments: Floats
    sizes: Floats

    @classmethod
    def join(cls, parts: Sequence[_Tangents]) -> _Tangents:
        """Return the tangents of all parts, one part after the other."""
        return cls(
            np.concatenate([part.shortfalls for part in parts]),
            np.concatenate([part.moments for part in parts]),
            np.concatenate([part.sizes for part in parts]),
        )


@dataclass(frozen=True)
class Provable:
    """A majorant with the nodes at which the checker compares it with V; once it comes from ``of``
    the checker can prove it.

    Attributes:
        majorant: the majorant, without terms in ln t.
        nodes: consecutive nodes.
    """

    majorant: Majorant
    nodes: Nodes

    @classmethod
    def of(
        cls, solution: ProgramSolution, moments: MomentClass, value: ValueTable
    ) -> Provable | None:
        """Return the majorant that the multipliers of a program make, raised until the checker can
        prove that it is above V; None where it cannot be raised so far, or has too large exponents.

        Args:
            solution: the solution of a program.
            moments: the class of its cost.
            value: upper bounds on V of the costs left after it.
        """
        nodes = solution.compared
        provable = cls(Majorant.of(solution, moments), nodes)
        reach = float(np.abs(nodes[[0, -1]] * value.h - solution.x).max())
        largest = float(np.abs(provable.majorant.exponents).max(initial=0.0))
        if largest * reach > LARGEST_EXPONENT:
            return None
        raised = provable.with_rising_end(value.h).with_shortfall_added(value)
        raised = raised.with_rising_end(value.h)
        return raised if raised.is_proven(value) else None

    def with_rising_end(self, h: float) -> Provable:
        """Return this majorant with a slope with which F rises at the last node, and so beyond.

        Args:
            h: the distance of two nodes.
        """
        majorant = self.majorant
        rise, size = majorant.derivative_with_size(float(self.nodes[-1]) * h - majorant.x)
        slope = majorant.slope + max(ROUNDING * size - rise, 0.0)
        return replace(self, majorant=replace(majorant, slope=slope))

    def is_proven(self, value: ValueTable) -> bool:
        """Return whether the checker, with its rounding, will find the majorant above V."""
        tangents = self._tangents(value)
        return bool((tangents.shortfalls <= -CHECKER_ROUNDING / 2 * tangents.sizes).all())

    def with_shortfall_added(self, value: ValueTable) -> Provable:
        """Return this majorant raised by the largest shortfall of its tangents: as a constant, or
        by raising all moments in one proportion, whichever adds less at x.

        Args:
            value: upper bounds on V of what is left.
        """
        majorant = self.majorant
        tangents = self._tangents(value)
        # Four times what ``is_proven`` asks for, as the sizes grow with what is added.
        short = tangents.shortfalls + 2 * CHECKER_ROUNDING * tangents.sizes
        constant = float(short.max())
        if constant <= 0:
            return self
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            needed = np.where(tangents.moments > 0, short / tangents.moments, np.inf)
            shares = np.where(short > 0, needed, 0.0)
            moment_worth = float(
                majorant.weights @ np.exp(np.minimum(majorant.limits, LARGEST_EXPONENT))
            )
        share = float(shares.max())
        if share * moment_worth < constant:
            raised = replace(majorant, weights=majorant.weights * (1 + share) * (1 + ROUNDING))
        else:
            raised = replace(majorant, constant=majorant.constant + constant)
        return replace(self, majorant=raised)

    def _tangents(self, value: ValueTable) -> _Tangents:
        """Return the tangents of the majorant beside V, where the checker compares them.

        The class of the moments is not centred: the majorant has no terms in ln t (c = d = 0).
        The first tangent is that at the first node, which is compared with 1 at w = 0; then come
        all cells with their left ends, then all with their right ends. The tangent of t^{-e} at the
        middle of a cell has at an end, a factor e^{±h/2} away, the share 1 - e (e^{±h/2} - 1) of
        its value.

        Args:
            value: upper bounds on V of what is left.
        """
        majorant = self.majorant
        y = self.nodes.astype(np.float64) * value.h - majorant.x
        v_at_nodes = value.at(self.nodes)
        terms = majorant.terms(y[:-1] + value.h / 2)
        first_terms = majorant.terms(y[:1])
        at_origin = 1 + majorant.exponents
        moments = at_origin @ first_terms
        size = 1 + abs(majorant.constant) + np.abs(at_origin) @ first_terms
        tangents = [_Tangents(1 - majorant.constant - moments, moments, size)]
        for end in (0, 1):
            cells = slice(end, len(y) - 1 + end)
            shares_of_terms = 1 - majorant.exponents * math.expm1((end - 0.5) * value.h)
            linear = majorant.slope * np.exp(y[cells])
            moments = shares_of_terms @ terms
            size = abs(majorant.constant) + np.abs(linear) + np.abs(shares_of_terms) @ terms
            shortfall = v_at_nodes[cells] - majorant.constant - linear - moments
            tangents.append(_Tangents(shortfall, moments, size))
        return _Tangents.join(tangents)

    def statement(self) -> StatedMajorant:
        """Return the majorant as a certificate states it: x, the first and the last node, a, b, and
        [e_i, γ_i] of each term.
        """
        majorant = self.majorant
        pairs = zip(majorant.exponents.tolist(), majorant.weights.tolist(), strict=True)
        terms = [[exponent, weight] for exponent, weight in pairs if weight > 0]
        first = int(self.nodes[0])
        last = int(self.nodes[-1])
        return [majorant.x, first, last, majorant.constant, majorant.slope, terms]


@dataclass(frozen=True)
class CertifiedGame:
    """A game with the majorants that prove its upper bounds.

    Attributes:
        game: the costs, with their classes as they are certified: none of them is centred.
        steps: of each multiset that may be left, the majorants of each class that may come first.
        orders: of each multiset, the orders of the Rényi conversion that are better than the
            majorants somewhere.
        tables: upper bounds on V of each multiset, computed from these alone.
        declared: the classes of the costs as they are, in the order of ``game.classes``; some may
            be centred.
    """

    game: ConcentratedGame
    steps: Mapping[Multiset, Mapping[MomentClass, Sequence[Provable]]]
    orders: Mapping[Multiset, list[float]]
    tables: Mapping[Multiset, ValueTable]
    declared: tuple[MomentClass, ...]

    @classmethod
    def of(cls, game: ConcentratedGame, *, whole: bool) -> CertifiedGame | None:
        """Return the game with majorants from the programs that are solved for it; None where a
        step has no majorant, or where there are too many for a file.

        A CDP cost is certified as one whose mean is bounded (``with_uncentred_classes``).

        Args:
            game: the costs, without ranges.
            whole: whether V of all costs together is certified too, on all nodes; otherwise only V
                of what may be left after the first cost.
        """
        declared = game.classes
        game = game.with_uncentred_classes()
        nothing = (0,) * len(game.counts)
        tables = {nothing: ValueTable.of_nothing(game.h, upper=True)}
        steps: dict[Multiset, dict[MomentClass, list[Provable]]] = {}
        orders: dict[Multiset, list[float]] = {}
        x = np.arange(math.ceil(game.reach / game.h) + 1.0) * game.h
        number_of_majorants = 0
        multisets = sorted(product(*(range(count + 1) for count in game.counts)), key=sum)
        for costs_left in multisets[1:] if whole else multisets[1:-1]:
            proven = _proven_step(game, costs_left, tables, x)
            if proven is None:
                return None
            steps[costs_left], above = proven
            number_of_majorants += sum(len(needed) for needed in steps[costs_left].values())
            orders[costs_left], above = _orders_of_conversion(game, costs_left, x, above)
            tables[costs_left] = ValueTable(game.h, above, upper=True)
        if number_of_majorants > MOST_MAJORANTS:
            return None
        return cls(game, steps, orders, tables, declared)

    def pair(self) -> GroupPair:
        """Return a pair whose profile is at least V of all costs (Theorem C); the game must be one
        that was certified as a ``whole``.
        """
        table = self.tables[self.game.counts]
        last = len(table.values) - 1
        nodes = np.arange(-last, last + 1)
        values = table.at(nodes) * (1 + PRODUCT_ROUNDING)
        return pair_above(nodes, np.maximum(values, FLOOR), table.h)

    def with_majorants_near_answer(
        self, delta: float, start: float
    ) -> tuple[CertifiedGame, float] | None:
        """Return the game with one majorant of the first step for each class, near the answer, and
        the answer: an upper bound on ε at δ = ``delta``. None where a class has no majorant.

        Args:
            delta: δ.
            start: the ε at which the search begins, an upper bound on the answer.
        """
        first_step: dict[MomentClass, list[Provable]] = {}
        epsilon = 0.0
        for moments, after_first in self.game.left_after_classes(self.game.counts).items():
            candidates = list(
                self._majorants_near_answer(moments, self.tables[after_first], delta, start)
            )
            if not candidates:
                return None
            epsilon_of_class, provable = min(candidates, key=lambda candidate: candidate[0])
            first_step[moments] = [provable]
            # Whichever class comes first, δ is at most ``delta`` there.
            epsilon = max(epsilon, epsilon_of_class)
        return replace(self, steps={**self.steps, self.game.counts: first_step}), epsilon

    def _majorants_near_answer(
        self, moments: MomentClass, value: ValueTable, delta: float, start: float
    ) -> Iterator[tuple[float, Provable]]:
        """Yield majorants near the x at which the step is δ, each with the least x at which its
        bound was found to be at most δ; the next one is made at that x.

        Args:
            moments: the class of the first cost.
            value: upper bounds on V of what is left.
            delta: δ.
            start: the first x that is tried, an upper bound on the answer.
        """
        x = start
        for _ in range(LAST_PROGRAMS):
            node = np.array([round(x / value.h)])
            solutions = self.game.solutions_at(moments, value, node)
            if not solutions:
                return
            provable = Provable.of(solutions[0], moments, value)
            if provable is None:
                return
            # A majorant is nearly the best one near its own x: the answer is looked for there. It
            # is more often to the left, as ``start`` is an upper bound.
            first = max(x - moments.deviation, 0.0)
            points = np.linspace(first, x + moments.deviation / 4, POINTS_NEAR_ANSWER)
            low_enough = np.flatnonzero(provable.majorant.step_bounds(points) <= delta)
            if not low_enough.size:
                return
            previous_x = x
            x = float(points[low_enough[0]])
            yield x, provable
            if abs(previous_x - x) <= CLOSE_ENOUGH * x:
                return

    def statement(self) -> StatedGame:
        """Return the game as a certificate states it."""
        nodes = math.ceil(self.game.reach / self.game.h)
        compared: list[Nodes] = []
        states: list[list[list[int] | list[list[StatedMajorant]] | list[float]]] = []
        for costs_left, firsts in self.steps.items():
            steps: list[list[StatedMajorant]] = []
            for moments in self.game.classes:
                provables = firsts.get(moments, ())
                steps.append([provable.statement() for provable in provables])
                compared += [provable.nodes for provable in provables]
            states.append([list(costs_left), steps, self.orders.get(costs_left, [])])
        return {
            "grid": self.game.h,
            "nodes": nodes,
            "left": -min(int(of_majorant[0]) for of_majorant in compared),
            "far": max(nodes + 1, *(int(of_majorant[-1]) for of_majorant in compared)),
            "states": states,
        }


def _proven_step(
    game: ConcentratedGame, costs_left: Multiset, tables: Mapping[Multiset, ValueTable], x: Floats
) -> tuple[dict[MomentClass, list[Provable]], Floats] | None:
    """Return the majorants of each class that may come first from a multiset, and the upper bounds
    on its V at each x that they prove; None where a class has no majorant.

    Args:
        game: the costs.
        costs_left: the multiset.
        tables: upper bounds on V of the smaller multisets.
        x: ε's, the nodes.
    """
    majorants: dict[MomentClass, list[Provable]] = {}
    above = np.zeros(len(x))
    for moments, after_first in game.left_after_classes(costs_left).items():
        provables = []
        for solution in game.solutions_of_step(costs_left, moments):
            provable = _provable_of_program(game, solution, moments, tables[after_first])
            if provable is not None:
                provables.append(provable)
        needed, bounds = _least_majorants(provables, x)
        if not needed:
            return None
        majorants[moments] = needed
        above = np.maximum(above, bounds)
    return majorants, above


def _provable_of_program(
    game: ConcentratedGame, solution: ProgramSolution, moments: MomentClass, value: ValueTable
) -> Provable | None:
    """Return a majorant from a program; None where the program gives none.

    V from the certificate's own tables is not quite that of the program. Where the majorant had to
    be raised by much, the program is solved again.

    Args:
        game: the costs.
        solution: the solution of the program.
        moments: the class of its cost.
        value: upper bounds on V of the costs left after it.
    """
    provable = Provable.of(solution, moments, value)
    x = np.array([solution.x])
    unraised = float(Majorant.of(solution, moments).step_bounds(x)[0])
    if provable is not None and provable.majorant.step_bounds(x)[0] <= unraised * (1 + MOST_RAISED):
        return provable
    solutions = game.solutions_at(moments, value, np.array([round(solution.x / value.h)]))
    if solutions:
        solved_again = Provable.of(solutions[0], moments, value)
        if solved_again is not None:
            return solved_again
    return provable


def _least_majorants(provables: Sequence[Provable], x: Floats) -> tuple[list[Provable], Floats]:
    """Return the majorants that are the least of all at one of the x's, and the least bound at each
    x; no majorants, and bounds of 1, where there are none.
    """
    if not provables:
        return [], np.ones(len(x))
    bounds = np.array([provable.majorant.step_bounds(x) for provable in provables])
    least_places = set(np.argmin(bounds, axis=0).tolist())
    needed = [provable for place, provable in enumerate(provables) if place in least_places]
    return needed, bounds.min(axis=0)


def _orders_of_conversion(
    game: ConcentratedGame, costs_left: Multiset, x: Floats, bounds: Floats
) -> tuple[list[float], Floats]:
    """Return the orders λ whose Rényi conversions are below the given bounds at some x, and the
    bounds at each x with these conversions.

    The conversion of an order is δ(x) <= e^{K(λ) - λx} λ^λ / (1 + λ)^{1 + λ} (CKS20), with the
    limit K of the log-MGF.

    Args:
        game: the costs.
        costs_left: the multiset of the costs still to come.
        x: ε's, the nodes.
        bounds: upper bounds on V of this multiset at each x.
    """
    orders = np.geomspace(*ORDERS)
    logs = _log_moments(game, costs_left, orders)  # of δ at x = 0, by each order
    logs += orders * np.log(orders) - (1 + orders) * np.log1p(orders)
    spacing = max(round(game.classes[0].deviation / CONVERTED_SPACING / game.h), 1)
    spaced = x[spacing::spacing].tolist()
    best_places = {int(np.argmin(logs - orders * epsilon)) for epsilon in spaced}
    better: list[float] = []
    for place in sorted(best_places):
        converted = np.exp(np.minimum(logs[place] - orders[place] * x, 0.0)) * (1 + ROUNDING)
        if (converted < bounds * (1 - ROUNDING)).any():
            better.append(float(orders[place]))
            bounds = np.minimum(bounds, converted)
    return better, bounds


def _log_moments(game: ConcentratedGame, costs_left: Multiset, orders: Floats) -> Floats:
    """Return the limit of the log-MGF of the loss of all costs of a multiset at each order.

    Args:
        game: the costs.
        costs_left: the multiset: how many costs of each class.
        orders: λ > 0, shape (n,).
    """
    limits = [
        count * moments.log_moment(orders)
        for moments, count in zip(game.classes, costs_left, strict=True)
    ]
    total: Floats = np.sum(limits, axis=0)
    return total
