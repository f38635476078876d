"""The budget tool: one (ε, δ) divided over wanted queries by what each is worth.

Every query has mechanisms, which are fixed first; their noise scales with one number, the query's
part ρ of a zCDP-like total: the error of a count is c / sqrt(ρ). So the division is a convex
program,

    minimise  Σ w_i c_i ρ_i^(-1/2)   subject to   Σ n_i ρ_i <= R,   ρ_i >= (c_i / a_i)² where an
                                                  error a_i is wanted, ρ_i = (c_i / l_i)² where it
                                                  is locked at l_i,

with w_i the weight of query i and n_i how often it is charged to one user. In the code a query has
a scale s instead of a ρ: its noise is 1/s of that of the mechanisms at first, and its ρ is s² times
their price. The last step is exact: R is the largest total found at which the composition of all
queries under the tightest bound stays within (ε, δ) (Murtagh-Vadhan 2016 divide so, over fixed
statistics).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from dptopk._internal import validate
from dptopk._internal.choices import DOMAINS, Domain, Effort
from dptopk._internal.search import bisect, bracket
from dptopk.accounting.bounds import compose
from dptopk.accounting.registry import Bound, split_failure
from dptopk.costs import Budget, Charge
from dptopk.datasets import segments_charge
from dptopk.errors import IncompatibleCosts, InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.mechanisms import KnownGaussian
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning.best_design import plan_topk
from dptopk.planning.request import refuse_huge_epsilon
from dptopk.planning.topk_plan import joint_charge

Array = np.ndarray[Any, Any]
# An accuracy may be wanted that is this many times the error at an even split; a wider one is taken
# as this, where the query costs a millionth of its even part.
MOST_SPREAD = 1000.0
# A search for a scale or a total takes at most this many steps.
MOST_STEPS = 60
# Scales are bracketed by this factor and found to this relative precision.
SCALE_FACTOR = 1.25
SCALE_RTOL = 1e-3
# The total that the wanted accuracies and locks need is taken to be larger by this share, so that
# there is a rest that the convex program can divide.
NEEDED_MARGIN = 1e-6
# Each free query has at least this share of what the locked ones leave: with a share of 0 its noise
# would be infinite.
LEAST_SHARE = 1e-9
ENOUGH = 2e-3  # the search for the total ends when so small a share of ε is left


@dataclass(frozen=True, kw_only=True)
class BudgetItem:
    """One wanted query.

    Args:
        name: for people.
        kind: "topk" (rank and count k labels) or "counts" (noisy counts of k labels that are
            named).
        k: how many labels.
        weight: how much an error of this query counts beside errors of the others, above 0.
        accuracy: 95% of the noise on a count must be within ± this many; None: any.
        locked: 95% of the noise on a count is within ± this many, neither more nor less, whatever
            the other queries are; None: the division decides.
        times: how often it will be asked, such as 30 for every day of a month.
        segments, segments_per_user: the number of segments, and in how many of them one user counts
            (None = all).
        labels_per_user: how many labels one user has at most; None: any number.
        per_label_cap: the most that one user adds to one label.
        domain: "private" or "public", the domain of the labels.

    Raises:
        InvalidParameter: for values outside their ranges, and for both an accuracy and a lock.
    """

    name: str
    kind: str = "topk"
    k: int = 10
    weight: float = 1.0
    accuracy: float | None = None
    locked: float | None = None
    times: int = 1
    segments: int = 1
    segments_per_user: int | None = None
    labels_per_user: int | None = None
    per_label_cap: int = 1
    domain: Domain = "private"

    def __post_init__(self) -> None:
        validate.parameters(self, name=validate.text, domain=partial(validate.member, DOMAINS))
        validate.member(("topk", "counts"), kind=self.kind)
        if None not in (self.accuracy, self.locked):
            raise InvalidParameter(f"{self.name}: give accuracy or locked, not both")

    @property
    def sensitivity(self) -> Sensitivity:
        """Return the sensitivity of the query's histogram: how much one user can change."""
        return Sensitivity(linf=self.per_label_cap, l0=self.labels_per_user)

    @property
    def segments_of_one_user(self) -> int:
        """Return in how many of the segments one user can count."""
        if self.segments_per_user is None:
            return self.segments
        return min(self.segments_per_user, self.segments)


def queries_of(rows: Sequence[Mapping[str, Any]]) -> tuple[BudgetItem, ...]:
    """Return the queries that the tables of a file, or the objects of a request, state.

    Args:
        rows: for each query the fields of ``BudgetItem`` by name.

    Raises:
        InvalidParameter: for an unknown field, a query without a name, and a name used twice; as
            ``BudgetItem``.
    """
    known = {field.name for field in fields(BudgetItem)}
    for row in rows:
        unknown = sorted(set(row) - known)
        if unknown:
            raise InvalidParameter(
                f"queries: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}"
            )
        if "name" not in row:
            raise InvalidParameter("queries: one of them has no name")
    queries = tuple(BudgetItem(**row) for row in rows)
    if len({query.name for query in queries}) < len(queries):
        raise InvalidParameter("queries: a name is used twice")
    return queries


@dataclass(frozen=True)
class Part:
    """A query and what it gets.

    Attributes:
        query: what is wanted.
        mechanisms: what runs.
        charge: of all its times and segments together.
        epsilon: ε of that charge by itself, at the total's δ, an upper bound.
        error: 95% of the noise on a count is within ± this many; 0 where no counts are shown.
        even_error: the error under an even split of the same total.
        share: its part of the total, in the ρ by which the total is divided, in (0, 1].
    """

    query: BudgetItem
    mechanisms: tuple[Mechanism, ...]
    charge: Charge
    epsilon: float
    error: float
    even_error: float
    share: float


@dataclass(frozen=True)
class Division:
    """A total, divided.

    Attributes:
        budget: the total (ε, δ).
        parts: what each query gets, in the order of the queries.
        epsilon: of everything together, an upper bound, at most the total.
        bound: the name of the bound that says so.
        weighted_error: the sum of weight times error over the queries.
        even_error: the same sum for an even split of the same total.
    """

    budget: Budget
    parts: tuple[Part, ...]
    epsilon: float
    bound: str
    weighted_error: float
    even_error: float

    @property
    def charge(self) -> Charge:
        """Return the registration that pays for all queries, in any order."""
        return Charge.join(*(part.charge for part in self.parts))

    def schedule(self, days: int = 30) -> list[dict[str, Any]]:
        """Return the queries of each day: each query's repetitions are spread evenly over the
        days.

        Raises:
            InvalidParameter: for a number of days below 1.
        """
        validate.count(days=days)
        lines: list[dict[str, int | str]] = []
        for part in self.parts:
            for number in range(part.query.times):
                day = 1 + number * days // part.query.times
                text = " then ".join(map(str, part.mechanisms))
                lines.append({"day": day, "query": part.query.name, "mechanism": text})
        return sorted(lines, key=lambda line: line["day"])

    def plain(self) -> dict[str, Any]:
        """Return the division and its schedule of 30 days as plain values for JSON."""
        return {
            "epsilon": self.epsilon,
            "delta": self.budget.delta,
            "bound": self.bound,
            "weighted_error": self.weighted_error,
            "even_error": self.even_error,
            "registered": str(self.charge),
            "parts": [
                {
                    "query": asdict(part.query),
                    "mechanisms": [str(mechanism) for mechanism in part.mechanisms],
                    "charge": str(part.charge),
                    "epsilon": part.epsilon,
                    "error": part.error,
                    "even_error": part.even_error,
                    "share": part.share,
                }
                for part in self.parts
            ],
            "schedule": self.schedule(),
        }


@dataclass(frozen=True)
class _ScalableDesign:
    """A query with mechanisms whose noise can be scaled: at scale s the noise is 1/s of that of the
    base, and the cost about s² times that of the base.

    Attributes:
        query: what is wanted.
        base: the mechanisms of one answer at scale 1, in the order in which they run; the last one
            counts.
        price: the zCDP-like cost of all answers to the query at scale 1, above 0; NaN where it was
            not computed yet.
    """

    query: BudgetItem
    base: tuple[Mechanism, ...]
    price: float

    def at(self, scale: float) -> tuple[Mechanism, ...]:
        """Return the mechanisms of one answer at this scale; the larger it is, the smaller is the
        noise.
        """
        return tuple(mechanism.scaled(scale) for mechanism in self.base)

    def charge(self, scale: float) -> Charge:
        """Return the charge of all answers to the query, in all segments, at this scale."""
        query = self.query
        # A top k in one phase has noise on all counts, not on k of them.
        in_one_phase = query.kind == "topk" and len(self.base) == 1
        labels = None if in_one_phase else query.k
        *selecting, counting = self.at(scale)
        charges = [mechanism.charge(query.sensitivity) for mechanism in selecting]
        total = joint_charge([*charges, counting.charge(query.sensitivity, labels=labels)])
        if query.segments > 1:
            of_segments = [total] * query.segments
            total = segments_charge(of_segments, segments_per_user=query.segments_of_one_user)
        return total.times(query.times)

    def error(self, scale: float) -> float:
        """Return the half-width within which 95% of the noise on a count is at this scale; 0 where
        no counts are shown.
        """
        return self.at(scale)[-1].count_width(self.query.sensitivity, labels=self.query.k) or 0.0

    def std(self, scale: float) -> float:
        """Return the standard deviation of the noise on a count at this scale; 0 where there are no
        counts.
        """
        return self.at(scale)[-1].count_noise(self.query.sensitivity, labels=self.query.k) or 0.0


@lru_cache(maxsize=1024)
def _best_design_of_query(query: BudgetItem, epsilon: float, delta: float) -> _ScalableDesign:
    """Return the query with the mechanisms that are best for one answer at an even part of the
    total, priced.

    Args:
        query: its wanted error and its weight do not matter.
        epsilon: ε of one answer.
        delta: δ of one answer.

    Raises:
        InvalidParameter: as ``plan_topk``, and for a cost without a finite bound.
    """
    if query.kind == "counts":
        # Any sigma: the design is scaled afterwards.
        base: tuple[Mechanism, ...] = (KnownGaussian(sigma=10.0),)
    else:
        planned = plan_topk(
            query.k,
            Budget(epsilon, delta),
            sensitivity=query.sensitivity,
            domain=query.domain,
            counts="gaussian",
            charge_as="bounded_range",  # as the service plans its questions
        )
        base = planned.mechanisms
    unpriced = _ScalableDesign(query, base, price=math.nan)
    return replace(unpriced, price=_rho_of_design(unpriced, delta))


def _rho_of_design(design: _ScalableDesign, delta: float) -> float:
    """Return the price of a query at the scale 1, a cost like that of zCDP.

    It is the ρ whose standard conversion, ε = ρ + 2 sqrt(ρ ln(1/δ')), gives the ε of the charge at
    δ' = δ/2, without the charge's failures. Such a price only fixes the proportions of the
    division: the composition of all queries is computed afterwards.

    Args:
        design: the query with its mechanisms; its own ``price`` is not read.
        delta: δ of one answer.

    Raises:
        InvalidParameter: for a charge without a finite bound.
    """
    bare, _ = split_failure(design.charge(1.0))
    epsilon = compose(bare, delta=delta / 2).epsilon
    if not math.isfinite(epsilon):
        raise InvalidParameter(
            f"{design.query.name}: there is no bound for {bare} at delta {delta / 2:g}"
        )
    log_inverse_delta = math.log(2 / delta)  # ln(1/δ')
    # The conversion is (sqrt(ρ) + sqrt(ln(1/δ')))² = ε + ln(1/δ').
    return (math.sqrt(log_inverse_delta + epsilon) - math.sqrt(log_inverse_delta)) ** 2


def divide(
    queries: Sequence[BudgetItem], epsilon: float, delta: float, *, effort: Effort = "normal"
) -> Division:
    """Divide (ε, δ) over queries so that the weighted error is least.

    Args:
        queries: what is wanted, at least one.
        epsilon: of the total.
        delta: of the total, above 0.
        effort: of each evaluation of the composition.

    Returns:
        Division: its charge stays within (ε, δ) by the tightest bound (an upper bound); the
        division is the optimum of the convex program up to the solver's precision, and errors are
        those of the noise that will run.

    Raises:
        InvalidParameter: without queries, when all are locked, when the wanted accuracies and
            locks alone cost more than the total, and for a total so small or large that a query
            costs nothing or has no noise.
    """
    if not queries:
        raise InvalidParameter("queries must not be empty")
    budget = Budget(epsilon, validate.probability(delta=delta, allow_zero=False))
    refuse_huge_epsilon(budget.epsilon)
    # An even part of the total: the ε of equal answers grows about as the root of their number, δ's
    # add up. Half of δ is left for the composition.
    answers = sum(query.times * query.segments_of_one_user for query in queries)
    # Designs are cached, so that what they do not depend on is left out.
    bare_designs = [
        _best_design_of_query(
            _without_target(query), epsilon / math.sqrt(answers), delta / (2 * answers)
        )
        for query in queries
    ]
    designs = [
        replace(design, query=query) for design, query in zip(bare_designs, queries, strict=True)
    ]
    for design in designs:
        # With a δ so much larger than ε that it covers all of the charge, ε and the price are 0.
        if not (design.price > 0 and design.std(1.0) > 0):
            raise InvalidParameter(
                f"{design.query.name}: at ({epsilon:g}, {delta:g}) it costs nothing, or its noise "
                f"is 0, so there is nothing to divide"
            )
    program = _ConvexProgram.of(designs)
    if not (program.fixed == 0).any():
        raise InvalidParameter("queries: all are locked, so there is nothing to divide")
    needed = program.needed
    start = max(2 * needed, _first_total(epsilon))
    scales = _scales_of_largest_total(designs, program.scales, budget, start, needed, effort)
    even_scales = _scales_of_even_split(tuple(bare_designs), budget, effort)
    return _division_of_scales(designs, scales, even_scales, budget)


@dataclass(frozen=True, eq=False)
class _ConvexProgram:
    """The convex program that divides a total over queries; all arrays float64, shape (queries,).

    Attributes:
        prices: of each query the ρ that the scale 1 costs.
        errors: of each query its weight times the standard deviation of a count at the scale 1.
        least: of each query the least scale with the accuracy that is asked for; 0 where none is.
        fixed: of each query the scale that is locked; 0 where none is. A query has at most one of
            ``least`` and ``fixed`` above 0.
    """

    prices: Array
    errors: Array
    least: Array
    fixed: Array

    @classmethod
    def of(cls, designs: Sequence[_ScalableDesign]) -> _ConvexProgram:
        """Return the program of these queries with their mechanisms, in the same order."""
        errors = [design.query.weight * design.std(1.0) for design in designs]
        least = [_least_scale(design, design.query.accuracy) for design in designs]
        fixed = [_least_scale(design, design.query.locked) for design in designs]
        return cls(
            prices=np.array([design.price for design in designs]),
            errors=np.array(errors),
            least=np.array(least),
            fixed=np.array(fixed),
        )

    @property
    def needed(self) -> float:
        """Return slightly more than the ρ that the wanted accuracies and locks cost together."""
        return float(self.prices @ np.maximum(self.least, self.fixed) ** 2) * (1 + NEEDED_MARGIN)

    def scales(self, total: float) -> list[float]:
        """Return the scales, one for each query, that minimise Σ error / scale within
        Σ price · scale² <= total, where each scale is at least its ``least`` one, or the ``fixed``
        one.

        Args:
            total: the ρ of all queries together.

        Raises:
            InvalidParameter: when the least and fixed scales alone cost more than the total.
        """
        free = self.fixed == 0
        rho_of_free = total - float(self.prices[~free] @ self.fixed[~free] ** 2)
        costs = self.prices[free]
        # The variables of the program are shares of the ρ that the locked queries leave: each free
        # query has the share of its least scale, and an extra one.
        least_shares = self.least[free] ** 2 * costs / rho_of_free
        if least_shares.sum() >= 1:
            raise InvalidParameter("the requested accuracies and locks cost more than the total")
        # The error of each query if it had all of that ρ.
        errors_with_all = self.errors[free] * np.sqrt(costs / rho_of_free)
        shares = _best_shares(errors_with_all / errors_with_all.max(), least_shares)
        rho_of_each = shares * rho_of_free
        scales = self.fixed.copy()
        scales[free] = np.maximum(np.sqrt(rho_of_each / costs), self.least[free])
        return [float(scale) for scale in scales]


def _without_target(query: BudgetItem) -> BudgetItem:
    """Return the query without its name, its weight and its wanted error, on which its design does
    not depend.
    """
    return replace(query, name="query", weight=1.0, accuracy=None, locked=None)


def _first_total(epsilon: float) -> float:
    """Return the ρ that is tried first for a total ε: a guess, from which the search goes on.

    By ε = 2 sqrt(ρ ln(1/δ)) it is ε² / (4 ln(1/δ)), here for a δ of about 4e-6, where ln(1/δ) is
    12.5.
    """
    return epsilon**2 / 50


@lru_cache(maxsize=256)
def _scales_of_even_split(
    designs: tuple[_ScalableDesign, ...], budget: Budget, effort: Effort
) -> tuple[float, ...]:
    """Return the scales of an even split of the same total.

    Args:
        designs: those of the queries.
        budget: (ε, δ) of all queries together.
        effort: that of the bounds.
    """

    def even_scales(total: float) -> list[float]:
        """Return the scales at which each query costs this ρ."""
        return [math.sqrt(total / design.price) for design in designs]

    return tuple(
        _scales_of_largest_total(
            designs, even_scales, budget, _first_total(budget.epsilon), 0.0, effort
        )
    )


def _least_scale(design: _ScalableDesign, error: float | None) -> float:
    """Return the smallest scale at which the error is at most ``error``, to a thousandth; 0 where
    no error is asked for.

    The error is about proportional to 1/scale, so that few scales are tried. An error of more than
    MOST_SPREAD times that at the scale 1 is taken as that: the query costs next to nothing there.

    Args:
        design: the query with its mechanisms.
        error: the 95% half-width that is asked for; None: none.

    Raises:
        InvalidParameter: when no scale that is tried has so small an error.
    """
    if error is None:
        return 0.0

    def too_small(scale: float) -> bool:
        """Return whether the error at this scale is larger than asked for, or NaN; never at the
        smallest scale that is tried.
        """
        return not design.error(scale) <= error and scale > 1 / MOST_SPREAD

    first_scale = max(design.error(1.0) / error, 1 / MOST_SPREAD)
    most = first_scale * SCALE_FACTOR**MOST_STEPS
    low, high = bracket(too_small, first_scale, SCALE_FACTOR, least=first_scale, most=most)
    if too_small(high):
        raise InvalidParameter(f"{design.query.name}: an error of {error:g} cannot be reached")
    return bisect(too_small, low, high, rtol=SCALE_RTOL, geometric=True)[1]


def _best_shares(weights: Array, least_shares: Array) -> Array:
    """Return the shares of a sum of 1, each above 0, that minimise Σ weight · share^(-1/2) where
    none is below its least share, to the solver's precision, shape (free queries,); arguments as
    for ``_extra_shares``.
    """
    extra_shares = _extra_shares(weights, least_shares)
    # The solver's shares may be a little below 0, and sum to a little more than 1.
    shares = np.maximum(least_shares + np.maximum(extra_shares, 0), LEAST_SHARE)
    normalised: Array = shares / shares.sum()
    return normalised


def _extra_shares(weights: Array, least_shares: Array) -> Array:
    """Return the x >= 0 that minimise Σ weight · (least share + x)^(-1/2) within
    Σ (least share + x) <= 1, to the solver's precision, shape (free queries,).

    Args:
        weights: the largest one 1, shape (free queries,).
        least_shares: of a sum below 1, shape (free queries,).

    Raises:
        InvalidParameter: when the solver finds nothing.
    """
    import cvxpy

    cp: Any = cvxpy
    extra = cp.Variable(len(weights), nonneg=True)
    objective = cp.Minimize(weights @ cp.power(least_shares + extra, -0.5))
    within_total = cp.sum(extra) <= 1 - least_shares.sum()
    with warnings.catch_warnings():
        # Of a solution that is not exact: whatever it is, its cost is computed afterwards.
        warnings.simplefilter("ignore", UserWarning)
        cp.Problem(objective, [within_total]).solve(solver=cp.CLARABEL)
    if extra.value is None:
        raise InvalidParameter("the convex program has no solution within the total")
    return np.asarray(extra.value)


def _scales_of_largest_total(
    designs: Sequence[_ScalableDesign],
    scales: Callable[[float], list[float]],
    budget: Budget,
    start: float,
    needed: float,
    effort: Effort,
) -> list[float]:
    """Return the scales at the largest total found, above ``needed``, at which everything together
    stays within the budget.

    The bound that is best at the first total is asked for the others too, which takes less time:
    every bound is an upper bound. ε grows about as the square root of the total, which gives the
    next guess; a bracket makes sure that the search ends.

    Args:
        designs: those of the queries.
        scales: the function from a total, in ρ, to the scale of each query.
        budget: (ε, δ) of all queries together.
        start: the total that is tried first.
        needed: the total that is spent in any case.
        effort: that of the bounds.

    Raises:
        InvalidParameter: where no total above ``needed`` stays within the budget.
    """
    low = needed
    high = math.inf
    total = start
    best_scales: list[float] = []
    bound = "best"
    for _ in range(MOST_STEPS):
        tried_scales = scales(total)
        charges = [
            design.charge(scale) for design, scale in zip(designs, tried_scales, strict=True)
        ]
        composition = _bound_on_epsilon(Charge.join(*charges), budget.delta, bound, effort)
        epsilon = composition.epsilon
        bound = composition.name if math.isfinite(epsilon) else "best"
        if epsilon <= budget.epsilon:
            low = total
            best_scales = tried_scales
            # Next to nothing is left of ε, or the bracket is narrow.
            if epsilon >= budget.epsilon * (1 - ENOUGH) or high - low <= ENOUGH * low:
                return best_scales
        else:
            high = total
            # Nothing that is worth dividing is left above what is needed.
            if high - needed <= ENOUGH * needed:
                break
        total = _next_total(total, epsilon / budget.epsilon, low, high)
    if not best_scales:
        raise InvalidParameter(
            "the requested accuracies and locks, or the thresholds, cost more than the total"
        )
    return best_scales


def _next_total(total: float, epsilon_ratio: float, low: float, high: float) -> float:
    """Return the total to try next: the guess by ε, where that is inside the bracket, else its
    middle or, without an upper end, twice as much.

    Args:
        total: the last one.
        epsilon_ratio: ε there over that of the budget.
        low: a total that is within the budget, if one was tried, else the least.
        high: one that is not; inf where none was seen.
    """
    if 0 < epsilon_ratio < math.inf:
        # ε grows about as the root of the total; half of what may be left is aimed at.
        guess = total * ((1 - ENOUGH / 2) / epsilon_ratio) ** 2
    else:
        guess = total / 4  # an infinite ε says only that this total is too large
    if low < guess < high:
        return guess
    if high < math.inf:
        return (low + high) / 2
    return 2 * total


def _bound_on_epsilon(charge: Charge, delta: float, bound: str, effort: Effort) -> Bound:
    """Return an upper bound on the ε of a charge by the bound of this name, or by the best one
    where that one does not take the charge.

    Args:
        charge: that of all queries together.
        delta: δ of the total.
        bound: the name of a bound, or "best".
        effort: that of the bound.
    """
    with suppress(IncompatibleCosts):
        return compose(charge, delta=delta, bound=bound, effort=effort)
    return compose(charge, delta=delta, effort=effort)


def _division_of_scales(
    designs: Sequence[_ScalableDesign],
    scales: Sequence[float],
    even_scales: Sequence[float],
    budget: Budget,
) -> Division:
    """Return the division that these scales make, with its errors beside those of an even split.

    Args:
        designs: those of the queries.
        scales: the scale of each design, the larger the less noise.
        even_scales: those of an even split, for comparison.
        budget: (ε, δ) of all queries together.
    """
    charges = [design.charge(scale) for design, scale in zip(designs, scales, strict=True)]
    together = compose(Charge.join(*charges), delta=budget.delta)
    total = sum(design.price * scale**2 for design, scale in zip(designs, scales, strict=True))
    parts = tuple(
        Part(
            query=design.query,
            mechanisms=design.at(scale),
            charge=charge,
            epsilon=compose(charge, delta=budget.delta).epsilon,
            error=design.error(scale),
            even_error=design.error(even_scale),
            share=design.price * scale**2 / total,
        )
        for design, scale, even_scale, charge in zip(
            designs, scales, even_scales, charges, strict=True
        )
    )
    weighted_error = sum(part.query.weight * part.error for part in parts)
    even_error = sum(part.query.weight * part.even_error for part in parts)
    return Division(budget, parts, together.epsilon, together.name, weighted_error, even_error)
