"""Theorem H: many small costs, of any kind with a proven zCDP constant, are nearly one Gaussian.

The proof (docs/notes/setwise.md) uses of a mechanism only that E_P e^{λL} <= e^{ρλ(1+λ)} at every
order λ outside [-1, 0], whichever neighbour comes first. So every cost whose smallest ρ is known
takes part: bounded range, pure DP, Laplace, discrete noise, CDP, and zCDP itself, as ξ + ρ. Costs
that promise less do not: truncated concentrated DP, a Rényi divergence at one order, subsampled
noise. Gaussians enter exactly, by their μ².
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, Floats, outward, sum_up
from dptopk.accounting.cost_models.conversions import implications_of, implied_parameters
from dptopk.accounting.cost_models.cost_registry import types_with
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.gaussian.gaussian_sum import gaussian, total_mu
from dptopk.accounting.gaussian.pair import gaussian_curve, gaussian_epsilon_at
from dptopk.accounting.pld.many_responses import FEWEST_RESPONSES, responses_epsilon_below
from dptopk.accounting.registry import bound
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import NotApplicable

LARGEST_RHO = 0.5  # of a cost
# Starting variances that are tried, in units of the largest ρ; none of them may be below 1.
STARTS: Floats = np.linspace(1.0, 8.0, 71)
LARGEST_VARIANCE = 1e12  # the rounding of a Gaussian's profile stays small
SMALLEST_VARIANCE = 1e-200  # the square of what is smaller may underflow
ROUNDED_DOWN = 1 - 1e-15  # for lower bounds: more than the rounding of a product and a root


def concentrated_gaussian(costs: Mapping[float, float]) -> float:
    """Return an upper bound on the variance of a Gaussian loss whose profile is at least that of
    zCDP costs with ξ = 0.

    A step on a Gaussian of variance s comes to at most sqrt(s') = sqrt(s) + ρ (1 + β)/sqrt(s) for s
    >= ρ, and the game ends at most at the Gaussian of any variance s_0 >= max ρ. The sum of all
    ρ²/s is at most an integral and the first terms of its error, whatever the order
    (docs/notes/setwise.md, Theorem H). The best s_0 of a few is taken.

    Args:
        costs: the ρ's of the costs, in (0, LARGEST_RHO], with counts.
    """
    total = math.fsum([times * rho for rho, times in costs.items()])
    rho = max(costs)
    return float(np.min(variance_after(rho, total, rho * STARTS)))


Starts = TypeVar("Starts", float, Floats)


def variance_after(rho: float, total: float, start: Starts) -> Starts:
    """Return upper bounds on the variances to which steps of small costs lead from other variances
    (Theorem H): small costs, and after them a game that is worth at most a Gaussian of variance
    s_0, are together worth at most a Gaussian of the variance returned.

    Args:
        rho: the largest ρ of a cost, at most LARGEST_RHO.
        total: Σ ρ of the costs.
        start: the variances s_0 >= ρ before the steps.
    """
    kappa, growth = _exponents_of_beta(rho, start)
    factor = 1 + np.expm1(kappa) * np.exp(growth)  # 1 + β
    largest = rho * factor
    whole = total * factor
    share = largest / start
    # Σ ρ²/s of all costs, divided by half the largest ρ: an integral and terms of its error.
    squares = np.log1p(2 * whole / start) + share + share**2 / 3
    after: Starts = start + 2 * whole + largest * squares / 2
    return after * (1 + 128 * ROUNDOFF)  # some dozens of operations on positive numbers


def _exponents_of_beta(rho: float, start: Starts) -> tuple[Starts, Starts]:
    """Return κ and g of Theorem H, which give β = (e^κ - 1) e^g.

    Args:
        rho: the largest ρ of a cost.
        start: s_0, the variance of the Gaussian before the first step, or several.
    """
    slope = 2 * rho / start  # a of the theorem
    longer = 1 + rho / 4 + rho**2 / start  # at least 1 + β
    kappa = rho / 8 + rho * slope / 6
    growth = rho / 4 * (longer + slope * longer**2 / 4)
    return kappa, growth


@dataclass(frozen=True)
class SmallCostBudget:
    """Theorem H' with prices, for filters of older ledgers: small costs, chosen freely while a sum
    of prices lasts, are worth at most one Gaussian.

    With money T left every play is worth at most G_φ(T) at every x, φ(T) = s_0 + T + c ln(1 +
    T/s_0), c = r (1 + r/s_0)/2, r = (1 + β) ρ, where ρ is the largest of a cost and s_0 >= ρ. The
    price of a cost of ρ' <= ρ is 2 (1 + β) ρ', that of one which a Gaussian of μ covers is μ²
    (docs/notes/filters.md).

    Attributes:
        largest_rho: ρ, at most LARGEST_RHO.
        start: s_0.
    """

    largest_rho: float
    start: float

    @property
    def factor(self) -> float:
        """Return 1 + β of Theorem H, rounded up."""
        kappa, growth = _exponents_of_beta(self.largest_rho, self.start)
        beta = math.expm1(kappa) * math.exp(growth)
        return (1 + beta) * (1 + 32 * ROUNDOFF)  # above some dozen roundings of positive numbers

    def variance(self, money: float) -> float:
        """Return the variance φ(T) of the Gaussian for a sum of prices T = ``money``,
        rounded up.
        """
        largest = self.factor * self.largest_rho
        share = largest * (1 + largest / self.start) / 2
        total = self.start + money + share * math.log1p(money / self.start)
        return total * (1 + 32 * ROUNDOFF)  # above those of some ten operations


def zcdp_constant(cost: Cost) -> float:
    """Return the smallest ρ for which every mechanism with this cost is known to be ρ-zCDP; inf if
    none is known.

    A (ξ, ρ)-zCDP cost is (ξ + ρ)-zCDP, because ξ + ρα <= (ξ + ρ) α for α > 1.
    """
    if implications_of(cost).exact_zcdp is None:
        return math.inf
    return sum_up(list(implied_parameters(cost, "exact_zcdp")))


def gaussian_of(charge: Charge) -> GaussianDP:
    """Return one Gaussian cost whose profile is at least that of all costs of a charge without
    failure mass.

    Raises:
        NotApplicable: when a cost has no proven zCDP constant, or one above 1/2, or the numbers are
            out of range.
    """
    gaussians: dict[Cost, int] = {**charge.of(GaussianDP)}
    mu = total_mu(Charge(gaussians)) if gaussians else 0.0
    rhos: Counter[float] = Counter()
    for cost, times in charge:
        if isinstance(cost, GaussianDP):
            continue
        rho = zcdp_constant(cost)
        if not rho <= LARGEST_RHO:
            raise NotApplicable(f"{cost} is not known to be {LARGEST_RHO}-zCDP")
        rhos[rho] += times
    if not rhos:
        raise NotApplicable("Gaussian costs alone are one Gaussian")
    try:
        variance = concentrated_gaussian(rhos) + mu * mu
    except OverflowError:
        raise NotApplicable("the sum of ρ is too large") from None
    if not SMALLEST_VARIANCE < variance < LARGEST_VARIANCE:
        raise NotApplicable("the sum of ρ is too small or too large")
    return GaussianDP(float(outward(math.sqrt(variance))))


def played_as_gaussians(charge: Charge) -> Charge:
    """Return the costs with each ZCDP and CDP cost replaced by about the largest Gaussian that
    satisfies it: one way to play them, for lower bounds only.

    A Gaussian of μ is ρ-zCDP, and so (ξ, ρ)-zCDP, if μ²/2 <= ρ; it is (m, τ)-CDP if μ²/2 <= m and
    μ <= τ. The charge's δ and ``adaptive`` are left out.
    """
    costs: dict[Cost, int] = {}
    for cost, times in charge:
        played: Cost = cost
        if isinstance(cost, ZCDP):
            played = GaussianDP(math.sqrt(2 * cost.rho) * ROUNDED_DOWN)
        elif isinstance(cost, CDP):
            mu = min(math.sqrt(2 * cost.mu), cost.tau) * ROUNDED_DOWN
            if mu <= 0:  # of a mean or τ of 0, or too small for a float: nothing is played
                continue
            played = GaussianDP(mu)
        costs[played] = costs.get(played, 0) + times
    return Charge(costs, neighbours=charge.neighbours)


@dataclass(frozen=True)
class DominatingGaussian(Curve):
    """The profile of the Gaussian of Theorem H, with a lower bound where all costs are alike.

    Attributes:
        charge: the costs.
        gaussian: the Gaussian cost that stands for them.
    """

    charge: Charge
    gaussian: GaussianDP

    def answer(self, query: Query) -> Answer:
        """Return the Gaussian's answer as the upper bound, and for an ε what a strategy attains as
        the lower one.
        """
        mu = self.gaussian.mu
        if query.epsilon is not None:
            return Answer(float(gaussian_curve(mu).delta(query.epsilon)))
        value = gaussian_epsilon_at(mu, query.delta)
        lower = self._attained_epsilon(query.delta_below, value)
        return Answer(value, lower if lower > 0 else None)

    def _attained_epsilon(self, delta: float, upper: float) -> float:
        """Return an ε that some mechanisms attain at a δ: ZCDP and Gaussian costs played as
        Gaussians, or many copies of one pure or bounded-range cost as randomised response (of ε/2
        for ε-BR, which ε/2-DP implies); 0 for other charges.

        Args:
            delta: δ.
            upper: an upper bound on the answer.
        """
        if all(isinstance(cost, ZCDP | GaussianDP) for cost in self.charge.costs):
            played = gaussian(played_as_gaussians(self.charge))
            lower = played.answer(Query(delta=delta)).lower
            return 0.0 if lower is None else lower
        if len(self.charge.costs) != 1:
            return 0.0
        ((cost, times),) = self.charge
        if times < FEWEST_RESPONSES or not isinstance(cost, PureDP | BoundedRange):
            return 0.0
        epsilon = cost.epsilon / 2 if isinstance(cost, BoundedRange) else cost.epsilon
        return responses_epsilon_below(times, epsilon, delta, upper)


@bound(
    "zcdp_gaussian",
    source="docs/notes/setwise.md, Theorem H; exact zCDP constants",
    takes=types_with("exact_zcdp"),
)
def zcdp_gaussian(charge: Charge) -> DominatingGaussian:
    """Bound all costs by one Gaussian, which is nearly exact for very many small ones."""
    return DominatingGaussian(charge, gaussian_of(charge))
