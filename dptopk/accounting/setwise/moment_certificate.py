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
from dptopk.accounting.setwise.concentrated_game import (
    ROUNDING,
    ConcentratedGame,
    Majorant,
    Multiset,
    ValueTable,
    far_nodes,
)
from dptopk.accounting.setwise.cost_groups import GroupPair, pair_above
from dptopk.accounting.setwise.moment_program import (
    LARGEST_EXPONENT,
    MomentClass,
    Nodes,
    ProgramSolution,
    StepProgram,
)
from dptopk.accounting.setwise.recursion import FLOOR

# The checker computes with some ten roundings; the multipliers are raised by ROUNDING for them.
ROOM = ROUNDING / 4
MOST_MAJORANTS = 3000  # of a file: the checker takes about 5 ms for each
LAST_PROGRAMS = 3  # x's at which the first cost is solved again, near the answer
SOLVED_AGAIN = 5e-4  # relative, of a bound: by how much more a program is raised before
CLOSE = 1e-5  # relative, of ε: the answer is looked for no more closely

ORDERS = (1e-2, 1e6, 4000)  # of conversions: the ends, and how many in a row of equal ratio
CONVERTED_SPACING = 12.0  # x's to a deviation of the smallest cost, for each of which one is tried

StatedMajorant = list[float | list[list[float]]]


class StatedGame(TypedDict):
    """What a file states of a game, besides the costs."""

    grid: float
    nodes: int
    left: int
    far: int
    states: list[list[list[int] | list[list[StatedMajorant]] | list[float]]]


@dataclass(frozen=True)
class Provable:
    """A majorant with the nodes at which the checker compares it."""

    majorant: Majorant
    nodes: Nodes

    @classmethod
    def of(cls, found: ProgramSolution, moments: MomentClass, value: ValueTable) -> Provable | None:
        """The multipliers of a program, raised until the checker can prove them; None where they
        cannot be raised so far.
        """
        nodes = far_nodes(moments, value, found.x)
        provable = cls(Majorant.of(found, moments), nodes)
        reach = float(np.abs(nodes[[0, -1]] * value.h - found.x).max())
        largest = float(np.abs(provable.majorant.exponents).max(initial=0.0))
        if largest * reach > LARGEST_EXPONENT:
            return None
        raised = provable.rising(value.h).raised(value).rising(value.h)
        return raised if raised.is_proven(value) else None

    def rising(self, h: float) -> Provable:
        """With a slope for which F rises at the last node."""
        one = self.majorant
        rise, size = one.derivative(float(self.nodes[-1]) * h - one.x)
        slope = one.slope + max(ROUNDING * size - rise, 0.0)
        return replace(self, majorant=replace(one, slope=slope))

    def is_proven(self, value: ValueTable) -> bool:
        """Whether the checker will find it above V."""
        missing, _, sizes = self._missing(value)
        return bool((missing <= -ROOM / 2 * sizes).all())

    def raised(self, value: ValueTable) -> Provable:
        """Plus what is missing: a constant, or a share of the moments, whichever costs less at
        x.
        """
        one = self.majorant
        missing, moments, sizes = self._missing(value)
        short = missing + 2 * ROOM * sizes
        constant = float(short.max())
        if constant <= 0:
            return self
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            shares = np.where(short > 0, np.where(moments > 0, short / moments, np.inf), 0.0)
            worth = float(one.weights @ np.exp(np.minimum(one.limits, LARGEST_EXPONENT)))
        share = float(shares.max())
        if share * worth < constant:
            raised = replace(one, weights=one.weights * (1 + share) * (1 + ROUNDING))
        else:
            raised = replace(one, constant=one.constant + constant)
        return replace(self, majorant=raised)

    def _missing(self, value: ValueTable) -> tuple[Floats, Floats, Floats]:
        """By how much V exceeds the tangents at both ends of each cell, and 1 the tangent at the
        first node at w = 0; the part of the moments in each tangent; and the sizes of the terms.
        """
        one = self.majorant
        y = self.nodes.astype(np.float64) * value.h - one.x
        above = value.at(self.nodes)
        terms = one.terms(y[:-1] + value.h / 2)
        first = one.terms(y[:1])
        at_origin = 1 + one.exponents
        moments = [at_origin @ first]
        sizes = [1 + abs(one.constant) + np.abs(at_origin) @ first]
        missing = [1 - one.constant - moments[0]]
        for end in (0, 1):
            cells = slice(end, len(y) - 1 + end)
            of_terms = 1 - one.exponents * math.expm1((end - 0.5) * value.h)
            linear = one.slope * np.exp(y[cells])
            moments.append(of_terms @ terms)
            sizes.append(abs(one.constant) + np.abs(linear) + np.abs(of_terms) @ terms)
            missing.append(above[cells] - one.constant - linear - moments[-1])
        return np.concatenate(missing), np.concatenate(moments), np.concatenate(sizes)

    def stated(self) -> StatedMajorant:
        """As a file states it: x, the ends of the nodes, a, b, and (e, γ) of each term."""
        one = self.majorant
        pairs = zip(one.exponents.tolist(), one.weights.tolist(), strict=True)
        terms = [[exponent, weight] for exponent, weight in pairs if weight > 0]
        ends = [int(self.nodes[0]), int(self.nodes[-1])]
        return [one.x, *ends, one.constant, one.slope, terms]


@dataclass(frozen=True)
class CertifiedGame:
    """A game with the majorants that prove it.

    Attributes:
        game: the costs.
        steps: of each multiset that may be left, the majorants of each class that may come first.
        orders: of each multiset, the orders of the Rényi conversion that are better somewhere.
        tables: V of each multiset, from these alone.
    """

    game: ConcentratedGame
    steps: Mapping[Multiset, Mapping[MomentClass, Sequence[Provable]]]
    orders: Mapping[Multiset, list[float]]
    tables: Mapping[Multiset, ValueTable]

    @classmethod
    def of(cls, game: ConcentratedGame, *, whole: bool) -> CertifiedGame | None:
        """The game, from the programs that were solved for it; None where a step has no majorant,
        or there are too many.

        Args:
            game: the costs.
            whole: also V of all costs, on all nodes; else of what is left after the first.
        """
        nothing = (0,) * len(game.counts)
        tables = {nothing: ValueTable.of_nothing(game.h, upper=True)}
        steps: dict[Multiset, dict[MomentClass, list[Provable]]] = {}
        orders: dict[Multiset, list[float]] = {}
        x = np.arange(math.ceil(game.reach / game.h) + 1.0) * game.h
        left_over = sorted(product(*(range(count + 1) for count in game.counts)), key=sum)
        for left in left_over[1:] if whole else left_over[1:-1]:
            above = np.zeros(len(x))
            steps[left] = {}
            for one, rest in game.firsts(left):
                solutions = game.programs(left, one)
                provables = [_provable(found, one, tables[rest]) for found in solutions]
                kept, bounds = _needed([each for each in provables if each is not None], x)
                if not kept:
                    return None
                steps[left][one] = kept
                above = np.maximum(above, bounds)
            orders[left], above = _converted(game, left, x, above)
            tables[left] = ValueTable(game.h, above, upper=True)
        number = sum(len(kept) for firsts in steps.values() for kept in firsts.values())
        return cls(game, steps, orders, tables) if number <= MOST_MAJORANTS else None

    def pair(self) -> GroupPair:
        """A pair whose profile is at least V of all costs (Theorem C)."""
        table = self.tables[self.game.counts]
        last = len(table.values) - 1
        nodes = np.arange(-last, last + 1)
        return pair_above(nodes, np.maximum(table.at(nodes) * (1 + 1e-15), FLOOR), table.h)

    def at(self, delta: float, start: float) -> tuple[CertifiedGame, float] | None:
        """The game with the majorants of a first cost near the answer, and the answer: an upper
        bound on ε at a δ, below ``start``; None where there is none.
        """
        last: dict[MomentClass, list[Provable]] = {}
        epsilon = 0.0
        for one, rest in self.game.firsts(self.game.counts):
            found = list(self._near(one, self.tables[rest], delta, start))
            if not found:
                return None
            best, provable = min(found, key=lambda pair: pair[0])
            last[one] = [provable]
            epsilon = max(epsilon, best)
        return replace(self, steps={**self.steps, self.game.counts: last}), epsilon

    def _near(
        self, one: MomentClass, value: ValueTable, delta: float, start: float
    ) -> Iterator[tuple[float, Provable]]:
        """Majorants near the x at which the step is δ, each with the least such x by itself."""
        x = start
        near: list[ProgramSolution] = []
        for _ in range(LAST_PROGRAMS):
            found = StepProgram(one, value, x, near).solve()
            provable = None if found is None else Provable.of(found, one, value)
            if found is None or provable is None:
                return
            near = [found]
            points = np.linspace(max(x - one.deviation, 0.0), x + one.deviation / 4, 20_001)
            low_enough = np.flatnonzero(provable.majorant.step(points) <= delta)
            if not low_enough.size:
                return
            before, x = x, float(points[low_enough[0]])
            yield x, provable
            if abs(before - x) <= CLOSE * x:
                return

    def stated(self) -> StatedGame:
        """As a file states it."""
        kept = [
            each
            for firsts in self.steps.values()
            for provable in firsts.values()
            for each in provable
        ]
        states: list[list[list[int] | list[list[StatedMajorant]] | list[float]]] = []
        for left, firsts in self.steps.items():
            steps = [[each.stated() for each in firsts.get(one, ())] for one in self.game.classes]
            states.append([list(left), steps, self.orders.get(left, [])])
        nodes = math.ceil(self.game.reach / self.game.h)
        return {
            "grid": self.game.h,
            "nodes": nodes,
            "left": -min(int(each.nodes[0]) for each in kept),
            "far": max(nodes + 1, *(int(each.nodes[-1]) for each in kept)),
            "states": states,
        }


def _provable(found: ProgramSolution, one: MomentClass, value: ValueTable) -> Provable | None:
    """A majorant from a program; solved again where what it is raised by is much, as it may be
    since V is not quite that of the program.
    """
    provable = Provable.of(found, one, value)
    at = np.array([found.x])
    before = float(Majorant.of(found, one).step(at)[0])
    if provable is not None and provable.majorant.step(at)[0] <= before * (1 + SOLVED_AGAIN):
        return provable
    again = StepProgram(one, value, found.x, [found]).solve()
    if again is None:
        return provable
    return Provable.of(again, one, value) or provable


def _needed(provables: Sequence[Provable], x: Floats) -> tuple[list[Provable], Floats]:
    """The majorants that are the least somewhere, and the least of all at each x."""
    if not provables:
        return [], np.ones(len(x))
    bounds = np.array([each.majorant.step(x) for each in provables])
    least = set(np.argmin(bounds, axis=0).tolist())
    return [each for place, each in enumerate(provables) if place in least], bounds.min(axis=0)


def _converted(
    game: ConcentratedGame, left: Multiset, x: Floats, above: Floats
) -> tuple[list[float], Floats]:
    """The orders at which the Rényi conversion of a multiset is below the bounds somewhere, and the
    least of all at each x.
    """
    orders = np.geomspace(*ORDERS)
    limits = [n * one.log_moment(orders) for one, n in zip(game.classes, left, strict=True)]
    logs = np.sum(limits, axis=0) + orders * np.log(orders) - (1 + orders) * np.log1p(orders)
    apart = max(round(game.classes[0].deviation / CONVERTED_SPACING / game.h), 1)
    best = {int(np.argmin(logs - orders * at)) for at in x[apart::apart].tolist()}
    kept: list[float] = []
    for place in sorted(best):
        bounds = np.exp(np.minimum(logs[place] - orders[place] * x, 0.0)) * (1 + ROUNDING)
        if (bounds < above * (1 - ROUNDING)).any():
            kept.append(float(orders[place]))
            above = np.minimum(above, bounds)
    return kept, above
