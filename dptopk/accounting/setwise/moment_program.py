"""The classes of concentrated costs, and what a solution of one step of their game states.

V is what the costs to come are worth, on nodes y = jh. One more cost is worth

    max over laws of its loss L of E[V(x - L)],  E[e^{-L}] = 1,  E[e^{λL}] <= e^{K(λ)}  and
    E[e^{-(1+λ)L}] <= e^{K(λ)}  for all λ > 0,

and a centred loss keeps to its own means as well. ``law_families`` solves this linear program with
a few orders; ``concentrated_game`` makes a majorant of V of its multipliers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dptopk._internal.rounding import Floats
from dptopk.costs import CDP, ZCDP, Cost

Nodes = NDArray[np.int64]
LARGEST_EXPONENT = 600.0  # e^600 is a float, and so is its product with a mass or a multiplier
PRODUCT_ROUNDING = 1e-15  # relative, above the rounding of a product with a factor 1 ± 1e-15 in it
LARGEST_SCALE = 300.0  # -ln of the smallest probability of a large loss in a law


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
        """Return sqrt(2ρ), about the standard deviation of a loss."""
        return math.sqrt(2 * self.rho)

    def log_moment_at(self, orders: Floats, mean: float) -> Floats:
        """Return the largest ln E[e^{λL}] of a law with this mean; of a class that is not centred,
        K(λ).
        """
        if not self.centred:
            return self.log_moment(orders)
        values: Floats = orders * (mean + self.rho * orders)
        return values

    def log_moment(self, orders: Floats) -> Floats:
        """Return K(λ), the largest ln E[e^{λL}], at each order λ."""
        values: Floats = orders * (self.xi + self.rho * (1 + orders))
        return values


class ValueFunction(Protocol):
    """V, the value of the costs that are still to come, at nodes jh."""

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
        compared: the nodes at which the multipliers are to be compared with V.
        linear, reversed_linear: the multipliers on L and on -L e^{-L}, of centred losses.
    """

    x: float
    nodes: Nodes
    masses: Floats
    constant: float
    slope: float
    constraints: tuple[Constraint, ...]
    weights: Floats
    compared: Nodes
    linear: float = 0.0
    reversed_linear: float = 0.0


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
