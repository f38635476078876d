"""One step of the game of concentrated costs as a linear program, solved in floats: a guess for
both ends.

V is what the costs to come are worth, on nodes y = jh. One more cost is worth

    max over laws of its loss L of E[V(x - L)],  E[e^{-L}] = 1,  E[e^{λL}] <= e^{K(λ)}  and
    E[e^{-(1+λ)L}] <= e^{K(λ)}  for all λ > 0.

Losses x - y and orders λ are added where the solution violates what was left out. Nothing here is
trusted: ``concentrated_game`` makes the law playable, and the multipliers a majorant of V.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.accounting.setwise import tuning

Nodes = NDArray[np.int64]
LARGEST_EXPONENT = 600.0
LARGEST_SCALE = 300.0  # -ln of the smallest unit of a mass


@dataclass(frozen=True)
class MomentClass:
    """Losses with E[e^{λL}] <= e^{K(λ)}, K(λ) = λ (ξ + ρ (1 + λ)), for all λ > 0, whichever
    neighbour comes first.

    (ξ, ρ)-zCDP is this class. (μ, τ)-CDP is in the class of ρ = τ²/2, ξ = min(μ, ρ) - ρ, as a mean
    loss is at most τ²/2 where 1 = E[e^{-L}] <= e^{τ²/2 - E[L]}; it is ``centred``: with m the mean
    loss in either direction, ln E[e^{λL}] <= λm + λ²ρ at every real λ, and m <= ξ + ρ.
    """

    rho: float
    xi: float = 0.0
    centred: bool = False

    @property
    def mean(self) -> float:
        """Return the largest mean loss of the class, ξ + ρ."""
        return self.xi + self.rho

    @property
    def deviation(self) -> float:
        """Return about the standard deviation of a loss, sqrt(2ρ)."""
        return math.sqrt(2 * self.rho)

    def log_moment(self, orders: Floats) -> Floats:
        """Return K(λ), the largest ln E[e^{λL}], at each order λ."""
        values: Floats = orders * (self.xi + self.rho * (1 + orders))
        return values


class ValueFunction(Protocol):
    """The value of the costs that are still to come, at nodes jh."""

    @property
    def h(self) -> float:
        """Return the distance of two nodes."""
        ...

    def at(self, nodes: Nodes) -> Floats:
        """Return the values at the nodes jh, for an array of j."""
        ...


@dataclass(frozen=True)
class Constraint:
    """The constraint E[e^{exponent · L}] <= e^{K(λ)} of one order, for one of the two directions.

    Attributes:
        order: λ > 0.
        reversed: whether the neighbours are swapped.
    """

    order: float
    reversed: bool

    @property
    def exponent(self) -> float:
        """Return the exponent e of the moment E[e^{eL}]: λ, or -(1 + λ) with the neighbours
        swapped.
        """
        if self.reversed:
            return -(1 + self.order)
        return self.order


@dataclass(frozen=True)
class ProgramSolution:
    """The solution of the program at x: a law on losses x - jh, and multipliers.

    Attributes:
        x: the ε at which the program maximises.
        nodes, masses: j of each outcome with its probability.
        constant, slope: the multipliers of the constraints on 1 and on e^{-L}.
        constraints, weights: the active constraints on moments, and their multipliers.
    """

    x: float
    nodes: Nodes
    masses: Floats
    constant: float
    slope: float
    constraints: tuple[Constraint, ...]
    weights: Floats


class StepProgram:
    """The linear program for the step of one class at one x.

    Args:
        moments: the class.
        value: upper bounds on V of the costs that are still to come.
        x: ε.
        nearby_solutions: solutions at neighbouring x's, which tell where to begin.
    """

    def __init__(
        self,
        moments: MomentClass,
        value: ValueFunction,
        x: float,
        nearby_solutions: Iterable[ProgramSolution] = (),
    ) -> None:
        """Lay out the losses, the scales of their masses, and the first columns and rows."""
        self.moments = moments
        self.x = x
        self.h = value.h
        deviation = moments.deviation
        first = math.floor(-tuning.PROGRAM_LEFT * deviation / self.h)
        last = math.ceil((x + tuning.PROGRAM_RIGHT * deviation) / self.h)
        self.nodes: Nodes = np.arange(first, last + 1)
        self.losses = x - self.nodes * self.h
        self.values = value.at(self.nodes)
        distances = np.maximum(np.abs(self.losses) - moments.mean, 0.0)
        # Masses of a Gaussian's order, so that the variables of the program are near 1.
        exponents = np.minimum(distances**2 / (4 * moments.rho), LARGEST_SCALE)
        self.scales = np.minimum(1.0, 2 * np.exp(-exponents))
        self.largest_order = (x + 4 * deviation) / moments.mean
        nearby_solutions = list(nearby_solutions)
        self.columns = self._first_columns(nearby_solutions)
        self.rows = self._first_rows(nearby_solutions)

    def _first_columns(self, nearby_solutions: list[ProgramSolution]) -> set[int]:
        """Return the nodes of the first program: evenly spaced ones, and around those of the
        neighbours' solutions, both at the same values to come and at the same losses.
        """
        own_node = round(self.x / self.h)
        first = int(self.nodes[0])
        last = int(self.nodes[-1])
        spacing = max(round(tuning.PROGRAM_SPACING * self.moments.deviation / self.h), 1)
        columns = {*range(first, last + 1, spacing), own_node - 1, own_node, own_node + 1, last}
        for solution in nearby_solutions:
            moved = own_node - round(solution.x / self.h)
            for node in solution.nodes.tolist():
                for shift in range(-2, 3):
                    columns.update((node + shift, node + shift + moved))
        return {node for node in columns if first <= node <= last}

    def _first_rows(self, nearby_solutions: list[ProgramSolution]) -> set[Constraint]:
        """Return the constraints of the first program: some at all orders, and those around the
        orders that decide.
        """
        top = self.largest_order
        rows = {Constraint(order, False) for order in _geometric(1e-2, top, 10)}
        rows |= {Constraint(order, True) for order in _geometric(1e-2, top, 4)}
        for solution in nearby_solutions:
            for constraint in solution.constraints:
                for factor in tuning.PROGRAM_NEAR:
                    rows.add(Constraint(constraint.order * factor, constraint.reversed))
        if not nearby_solutions:
            deciding_order = self.x / (2 * self.moments.rho)  # that of a Gaussian
            low = max(deciding_order / 2, 0.05)
            high = max(1.4 * deciding_order, 0.5)
            rows |= {Constraint(order, False) for order in _geometric(low, high, 8)}
        return rows

    def solve(self, rounds: int = tuning.PROGRAM_ROUNDS) -> ProgramSolution | None:
        """Solve the program, add the losses and orders that its solution violates, and solve it
        again; return the last solution, or None where the solver fails.
        """
        solution = None
        for _ in range(rounds):
            solution = self._solution()
            if solution is None or not self._extend(solution):
                break
        return solution

    def _solution(self) -> ProgramSolution | None:
        """Return the solution of the program with the present losses and orders; None where the
        solver fails.
        """
        from scipy.optimize import linprog

        nodes = np.array(sorted(self.columns))
        places = nodes - self.nodes[0]
        losses = self.losses[places]
        scales = self.scales[places]
        rows = sorted(self.rows, key=lambda row: (row.reversed, row.order))
        exponents = np.array([row.exponent for row in rows])
        limits = self.moments.log_moment(np.array([row.order for row in rows]))
        logs = np.outer(exponents, losses) - limits[:, None] + np.log(scales)
        # A coefficient of e^50 forbids a mass as well as a larger one, which no solver takes.
        coefficients = np.exp(np.clip(logs, -700.0, 50.0))
        worth = self.values[places] * scales
        largest = float(worth.max())
        result = linprog(
            -worth / largest,
            A_ub=coefficients,
            b_ub=np.ones(len(rows)),
            A_eq=np.vstack([scales, scales * np.exp(-losses)]),
            b_eq=[1.0, 1.0],
            bounds=(0, None),
            method="highs-ds",
        )
        masses = result.x
        if result.status != 0 or masses is None:
            return None
        weights = np.maximum(-result.ineqlin.marginals, 0.0) * largest
        constant, slope = (-result.eqlin.marginals * largest).tolist()
        active = weights > 0
        played = masses > 0
        return ProgramSolution(
            x=self.x,
            nodes=nodes[played],
            masses=(masses * scales)[played],
            constant=constant,
            slope=slope,
            constraints=tuple(row for row, on in zip(rows, active, strict=True) if on),
            weights=weights[active] * np.exp(-np.minimum(limits[active], LARGEST_EXPONENT)),
        )

    def _extend(self, solution: ProgramSolution) -> bool:
        """Add the losses and orders at which the solution violates a constraint most; return
        whether there were any.
        """
        columns = self.columns | self._better_losses(solution)
        rows = self.rows | self._violated_constraints(solution)
        extended = len(columns) > len(self.columns) or len(rows) > len(self.rows)
        self.columns = columns
        self.rows = rows
        return extended

    def _better_losses(self, solution: ProgramSolution) -> set[int]:
        """Return the nodes around those where the multipliers are farthest below V."""
        majorant = solution.constant + solution.slope * np.exp(-self.losses)
        for constraint, weight in zip(solution.constraints, solution.weights.tolist(), strict=True):
            logs = np.clip(constraint.exponent * self.losses, -700.0, LARGEST_EXPONENT)
            majorant += weight * np.exp(logs)
        short = (self.values - majorant) * self.scales
        worth = float(self.values[solution.nodes - self.nodes[0]] @ solution.masses)
        first = int(self.nodes[0])
        last = int(self.nodes[-1])
        nodes: set[int] = set()
        for place in _peaks(short, tuning.PROGRAM_TOLERANCE / 10 * worth).tolist():
            node = first + place
            nodes.update((node - 1, node, node + 1))
        return {node for node in nodes if first <= node <= last}

    def _violated_constraints(self, solution: ProgramSolution) -> set[Constraint]:
        """Return the constraints at the orders where the law's moments are farthest above their
        limits.
        """
        orders = np.geomspace(1e-4, self.largest_order, 300)
        limits = np.expm1(np.minimum(self.moments.log_moment(orders), LARGEST_EXPONENT))
        losses = self.x - solution.nodes * self.h
        rows: set[Constraint] = set()
        for direction in (False, True):
            exponents = -(1 + orders) if direction else orders
            logs = np.clip(np.outer(exponents, losses), -700.0, LARGEST_EXPONENT)
            share = np.expm1(logs) @ solution.masses / limits
            worst = _peaks(np.append(share, 0.0), 1 + tuning.PROGRAM_TOLERANCE)
            rows |= {Constraint(float(orders[place]), direction) for place in worst}
        return rows


def _geometric(low: float, high: float, number: int) -> list[float]:
    """Return ``number`` orders, each the same multiple of the last: from ``low`` to ``high``, or to
    twice ``low`` if that is larger.
    """
    orders: list[float] = np.geomspace(low, max(high, 2 * low), number).tolist()
    return orders


def _peaks(values: Floats, above: float) -> NDArray[np.int64]:
    """Return the places of local maxima larger than ``above``, the ends left out."""
    inner = values[1:-1]
    peak = (inner >= values[:-2]) & (inner >= values[2:]) & (inner > above)
    places: NDArray[np.int64] = np.flatnonzero(peak) + 1
    return places
