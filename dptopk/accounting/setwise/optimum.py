"""The optimal bound for a registered set of costs, played in any order and adaptively: one product of pairs.

A charge splits into D, its costs with a pair of laws that dominates in both directions, B, its bounded ranges, and Z,
its ZCDP and CDP costs. B is split into groups (``partition``); each group, and Z, has a pair (``groups``), and by
Theorem C (docs/notes/setwise.md)

    δ_opt(x) <= δ of the product of all pairs at x,

computed on a lattice (``pld.lattice``), tilted to where the question is. Real strategies bound it from below
(``strategies``). Splits and grids are refined until the two agree to the tolerance asked for, or the work is used up
(``accounting.work``); the answer is the upper one either way, and never above the Rényi route. Without B and Z it is
the product of the dominating pairs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dptopk._internal.rounding import ROUNDOFF, outward
from dptopk.accounting.cost_models.conversions import converted, pure_sum
from dptopk.accounting.cost_models.dominating_pairs import (
    DOMINATED,
    MOST_BINOMIAL_COPIES,
    SMALLEST_LOSS,
    BracketCurve,
    certified_bracket,
    loss_components,
)
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.gaussian.composition import gaussian
from dptopk.accounting.pld.lattice import product
from dptopk.accounting.pld.log_mgf import LOG_MGF_ERROR, MANY_ADDENDS
from dptopk.accounting.pld.loss_components import Grid, LossComponent
from dptopk.accounting.pld.tilt import log_peak
from dptopk.accounting.registry import bound
from dptopk.accounting.renyi.composition import log_mgf
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.groups import (
    LARGEST_RHO,
    GroupPair,
    concentrated_gaussian,
    concentrated_pair,
    equal_ranges_pair,
    mixed_ranges_pair,
)
from dptopk.accounting.setwise.partition import Group, partition
from dptopk.accounting.setwise.randomized_rounding import weighted_ranges_pair
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.strategies import last_ranges, steps_from_below, strategy, with_gaussians
from dptopk.accounting.setwise.two_outcomes import two_outcomes_delta
from dptopk.accounting.work import USED_UP, OutOfTime
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, DiscreteGaussianDP, GaussianDP, PureDP, sum_up
from dptopk.errors import NotApplicable

# e^ε and its products must not overflow, and the rounding of a step must stay small.
SMALLEST_RANGE, LARGEST_RANGE = 1e-9, 100.0
SMALLEST_ORDER = 1e-290
LARGEST_SMOOTHED = 1e6  # variance of a Gaussian instead of zCDP costs: rounding stays small
MANY_RANGES = 150  # of more different ones than this no strategy is played by a recursion
AS_FINE_AS_IT_GETS = "the bracket cannot be made as narrow as asked"


class SetwiseCurve(Curve):
    """The optimum for bounded ranges, costs with dominating pairs, and concentrated costs; see the module docstring.

    Args:
        ranges: the ε's of the BR costs with counts.
        rest: the costs of the types ``DOMINATED``.
        concentrated: the ZCDP and CDP costs.
    """

    def __init__(self, ranges: Mapping[float, int], rest: Charge, concentrated: Charge | None = None) -> None:
        self.ranges = dict(sorted(ranges.items()))
        self.rest, self.concentrated = rest, concentrated or Charge()
        self.whole = Charge({**rest.costs, **self.concentrated.costs, **_costs(self.ranges)})
        self.parts = loss_components(rest)
        self.top = pure_sum(self.whole)
        self._log_mgf = log_mgf(self.whole)

    @classmethod
    def of(cls, charge: Charge) -> SetwiseCurve:
        """The curve of a charge without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        ranges = {cost.epsilon: times for cost, times in charge.of(BoundedRange).items()}
        if any(not SMALLEST_RANGE <= epsilon <= LARGEST_RANGE for epsilon in ranges):
            raise NotApplicable(f"a range outside [{SMALLEST_RANGE}, {LARGEST_RANGE}]")
        rest = Charge({cost: times for cost, times in charge if not isinstance(cost, (BoundedRange, ZCDP, CDP))})
        if max(rest.of(PureDP).values(), default=0) > MOST_BINOMIAL_COPIES:
            raise NotApplicable(f"more than {MOST_BINOMIAL_COPIES:.0e} copies of one epsilon")
        if rest.costs and not min(part.spread() for part in loss_components(rest)) > SMALLEST_LOSS**2:
            raise NotApplicable("a cost so small that its square underflows")
        return cls(ranges, rest, Charge(charge.of(ZCDP, CDP)))

    def answer(self, query: Query) -> Answer:
        """The answer, refined until the bracket is within ``query.rtol`` or the work is used up."""
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.top)
        if query.epsilon is not None and query.epsilon >= self.top:
            return Answer(0.0, 0.0)
        if len(self.ranges) > tuning.MOST_RANGES:
            return self._merged(query)
        search = _Search(self, query)
        several = self.smoothed is not None and self.smoothed[1].costs
        if search.value <= FLOOR or not (self.ranges or self.rest.costs or several):
            return search.by_conversion()
        return search.run()

    def _merged(self, query: Query) -> Answer:
        """Very many different ranges, rounded up to fewer for an upper bound and down for a lower one."""
        sides = (_rounded(self.ranges, upper=side) for side in (True, False))
        more, less = (SetwiseCurve(ranges, self.rest, self.concentrated) for ranges in sides)
        above = more.answer(replace(query, lower=False)).value
        value, order = self.chernoff(query)
        value = min(value, above)
        below = 0.0
        if query.lower and value > FLOOR:
            below = min(Run(less, query, order, tuning.LOOSEST, 0.0, value).below(value), value)
        return Answer(value, below if below > 0 else None, AS_FINE_AS_IT_GETS)

    def proof(self, query: Query) -> Run:
        """The first run of the refinement whose answer is about as good as the best one."""
        search = _Search(self, query)
        if not self.ranges and not self.rest.costs:
            return search.planned(search.wanted, 1.0)
        search.run()
        if not search.runs:
            return search.planned(tuning.LOOSEST, query.work.budget)
        least = min(value for value, _ in search.runs)
        return next(run for value, run in search.runs if value <= least * (1 + tuning.AS_GOOD))

    def bracketed(self, query: Query) -> bool:
        """Whether to compute a lower bound: if requested, or to judge whether a split into groups is sharp enough."""
        several = 1 < len(self.ranges) < tuning.MOST_RANGES / 2
        return query.lower or (several and not self.concentrated.costs)

    def chernoff(self, query: Query) -> tuple[float, float]:
        """(upper bound on what is asked by the Rényi route, its order λ)."""
        start = 1.0
        while not math.isfinite(self._log_mgf(np.array([start]))[0]):  # exponential tails: beyond some λ all is inf
            start /= 2
            if start < SMALLEST_ORDER:
                raise OverflowError("a loss that has no moment")
        low, high = (end - math.log(math.sqrt(max(self.variance(start), 1e-20))) for end in (-14.0, 14.0))
        best, order = math.inf, 1.0
        for _ in range(tuning.ZOOMS):
            orders = tuning.FEW_ORDERS if len(self.whole.costs) > MANY_ADDENDS else tuning.ORDERS  # any order is sound
            grid = np.exp(np.linspace(low, high, orders))
            log_mgf_ = self._log_mgf(grid) * (1 + 2 * LOG_MGF_ERROR)
            peaks = np.array([log_peak(one) for one in grid.tolist()])
            log_mgf_ += 1e-14 * np.abs(peaks)
            if query.epsilon is not None:
                values = log_mgf_ + peaks - grid * query.epsilon * (1 - 1e-14)
            else:
                values = (log_mgf_ + peaks - math.log(query.delta)) / grid
            at = int(np.nanargmin(values))
            best, order = min(best, float(values[at])), float(grid[at])
            low, high = math.log(grid[max(at - 1, 0)]), math.log(grid[min(at + 1, len(grid) - 1)])
        if query.epsilon is not None:
            return min(1.0, max(float(outward(math.exp(min(best + 1e-12 * (1 + abs(best)), 0.0)))), FLOOR)), order
        return min(float(outward(max(best, 0.0), 1e-12)), self.top), order

    def log_chernoff(self, order: float) -> Callable[[Mapping[float, int]], float]:
        """The ln C of V_B(x) <= C e^{-λx} for ranges B at one order λ."""

        def of(ranges: Mapping[float, int]) -> float:
            total = float(log_mgf(Charge(_costs(ranges)))(np.array([order]))[0]) if ranges else 0.0
            constant = log_peak(order)
            return total * (1 + 2 * LOG_MGF_ERROR) + constant + 1e-14 * (abs(total) + abs(constant))

        return of

    def variance(self, order: float) -> float:
        """About the variance of the whole loss under the tilt, by differences for what is not a bounded range."""
        beside = self._beside
        curvature = 0.0
        if beside.costs:
            step = 1e-3 * order
            around = np.array([order - step, order, order + step])
            down, here, up = log_mgf(beside)(around).tolist()
            if math.isinf(up):  # the last order at which a loss with exponential tails has a moment is near
                down, here, up = log_mgf(beside)(around - step).tolist()
            curvature = max((up - 2 * here + down) / step**2, 0.0)
        return math.fsum(n * e * e for e, n in self.ranges.items()) / 4 + curvature

    @cached_property
    def smoothed(self) -> tuple[Charge, Charge] | None:
        """(one Gaussian cost for the small zCDP costs by Theorem H, the other concentrated costs), if it may help."""
        # ξ + ρα <= (ξ + ρ) α for α > 1.
        costs = self.concentrated.of(ZCDP, CDP)
        rhos = {cost: sum_up(list(converted(cost, "exact_zcdp"))) for cost in costs}
        total = math.fsum(n * rhos[cost] for cost, n in costs.items())
        top = max((rho for rho in rhos.values() if rho <= LARGEST_RHO), default=0.0)
        found, least = None, math.inf
        for halvings in range(tuning.SMOOTHED_CUTS if top and self.concentrated.count > 1 else 0):
            small = {cost: n for cost, n in costs.items() if 0 < rhos[cost] <= top / 2**halvings}
            together: Counter[float] = Counter()
            for cost, n in small.items():
                together[rhos[cost]] += n
            variance = concentrated_gaussian(together) if small else math.inf
            about = variance + tuning.SMOOTHED * 2 * (total - math.fsum(rho * n for rho, n in together.items()))
            if about < least and SMALLEST_LOSS < variance < LARGEST_SMOOTHED:
                least = about
                gaussian_cost = GaussianDP(math.sqrt(variance) * (1 + 4 * ROUNDOFF))
                found = Charge({gaussian_cost: 1}), Charge({c: n for c, n in self.concentrated if c not in small})
        return found

    @cached_property
    def _beside(self) -> Charge:
        return Charge({**self.rest.costs, **self.concentrated.costs})


def _rounded(ranges: Mapping[float, int], *, upper: bool) -> dict[float, int]:
    """The ranges rounded up, or down, to the largest, or smallest, of each of MOST_RANGES classes of equal ratio."""
    rising = sorted(ranges.items(), reverse=upper)
    ratio = (max(ranges) / min(ranges)) ** (1 / tuning.MOST_RANGES)
    found: dict[float, int] = {}
    end = rising[0][0]
    for epsilon, count in rising:
        if max(epsilon, end) > min(epsilon, end) * ratio:
            end = epsilon
        found[end] = found.get(end, 0) + count
    return found


def _costs(ranges: Mapping[float, int]) -> dict[Cost, int]:
    return {BoundedRange(epsilon): count for epsilon, count in ranges.items()}


@dataclass(frozen=True)
class Run:
    """One evaluation from above and from below: at a tilt, to a tolerance, with windows that reach far enough."""

    curve: SetwiseCurve
    query: Query
    order: float
    tolerance: float
    room: float  # the work that its groups may take
    guess: float  # an upper bound on what is asked

    @cached_property
    def variance(self) -> float:
        """About the variance of the whole loss under the tilt; next to the largest loss differences say nothing."""
        least = tuning.LEAST_VARIANCE * math.fsum(part.spread() for part in self.curve.parts)
        return max(self.curve.variance(self.order), least)

    @cached_property
    def groups(self) -> list[Group]:
        """The groups of ranges."""
        curve = self.curve
        if not curve.ranges:
            return []
        return partition(curve.ranges, self.variance, self.tolerance, self.room, self.order)

    @cached_property
    def work(self) -> float:
        """The work of both bounds: node values of the groups, places of the lattice, pairs that are multiplied."""
        curve = self.curve
        wide = math.fsum(c.scale * math.sqrt(n) for c, n in curve.rest.of(DiscreteGaussianDP).items())
        factors = sum(part.factors() for part in curve.parts) + 8 * len(self.groups)
        above = math.fsum(group.work for group in self.groups) + math.fsum(part.work() for part in curve.parts)
        above += tuning.WORK_PER_LATTICE_POINT * wide + tuning.WORK_PER_FACTOR * factors
        above += tuning.WORK_PER_CURVE * (bool(curve.concentrated.costs) + (curve.smoothed is not None))
        own = min((group.largest / group.steps for group in self.groups), default=math.inf)
        above += tuning.WORK_PER_PLACE * tuning.WINDOW / 2 * math.sqrt(self.variance) / own
        if not curve.ranges or not curve.bracketed(self.query):
            return above
        last = last_ranges(curve.ranges)
        steps = steps_from_below(last, self.variance, self.tolerance)
        return above + 2 * Group(((max(last), sum(last.values())),), steps=steps).work

    @property
    def reach(self) -> float:
        """Number of standard deviations of a group's loss that matter: beyond, V <= e^{-z²/2} is a small share of δ."""
        copies = max(sum(group.copies for group in self.groups), 1)
        delta = self.query.delta if self.query.epsilon is None else self.guess / 100
        z = math.sqrt(2 * math.log(copies / (tuning.WINDOW_SHARE * max(delta, FLOOR))))
        return tuning.REACHES * math.ceil(z / tuning.REACHES)

    def pairs(self) -> list[GroupPair]:
        """The pairs of all groups of ranges."""
        found = []
        for group in self.groups:
            if group.levels:
                found.append(weighted_ranges_pair(group.ranges, group.levels, reach=self.reach))
            elif not group.single:
                found.append(mixed_ranges_pair(group.ranges, group.steps, reach=self.reach))
            else:
                for count, times in group.sizes:
                    pair = equal_ranges_pair(group.largest, count, group.steps, reach=self.reach)
                    found.append(replace(pair, count=times))
        return found

    def above(self) -> float:
        """The upper bound, but for one Rényi curve of everything: that is what the refinement begins with."""
        pairs = self.pairs()
        step = self.lattice_step(pairs)
        splits = [split for split in self.splits() if split[1].count < self.curve.whole.count]
        return min((self.of_split(*split, pairs, step) for split in splits), default=math.inf)

    def splits(self) -> list[tuple[Charge, Charge]]:
        """(a Gaussian cost for small zCDP costs, what is bounded by one Rényi curve), of which the best one counts."""
        curve = self.curve
        together = [curve.concentrated]
        if curve.concentrated.costs and curve.ranges:
            together.append(Charge.join(curve.concentrated, Charge(_costs(curve.ranges))))
        return [(Charge(), one) for one in together] + ([curve.smoothed] if curve.smoothed else [])

    def of_split(self, smoothed: Charge, together: Charge, pairs: Sequence[GroupPair], step: float) -> float:
        """The bound of one of the splits; ``pairs`` are those of the ranges."""
        parts = [*self.curve.parts, *([] if together.of(BoundedRange) else pairs), *loss_components(smoothed)]
        if together.costs:
            parts.append(self.concentrated(step, together))
        return self.of_product(parts, step)

    def lattice_step(self, pairs: Sequence[GroupPair]) -> float:
        """The step of the product's lattice: that of the groups if all have the same, else one fine enough to split."""
        curve, query, variance = self.curve, self.query, self.variance
        own = {group.largest / group.steps for group in self.groups}
        if len(own) == 1 and not curve.parts and not curve.concentrated.costs and all(g.single for g in self.groups):
            return own.pop()
        spread = variance + math.fsum(part.spread() for part in curve.parts)
        splits = sum(part.roundings()[0] for part in curve.parts) + sum(pair.count for pair in pairs)
        step = math.sqrt(tuning.SPLITTING * tuning.LATTICE_SHARE * self.tolerance * variance / max(splits, 1))
        coarsest = tuning.WINDOW * math.sqrt(spread) / tuning.MOST_POINTS
        step = max(min(step, math.sqrt(variance) / tuning.CELLS_PER_STD), coarsest)
        if query.epsilon is not None and query.epsilon > step:  # a lattice point at ε, where the chord touches
            step = query.epsilon / math.ceil(query.epsilon / step)
        return step

    def concentrated(self, step: float, together: Charge) -> GroupPair:
        """The pair of concentrated costs, perhaps together with others, by their Rényi curve."""
        reach = self.guess if self.query.epsilon is None else self.query.epsilon
        reach += tuning.CONCENTRATED_REACH * math.sqrt(self.variance)
        return concentrated_pair(together, max(step, reach / tuning.CONCENTRATED_POINTS), reach)

    def of_product(self, parts: Sequence[LossComponent], step: float) -> float:
        """Evaluate the query on the product of pairs on a lattice; infinite losses add their mass."""
        law = product(
            [pair for part in parts for pair in part.pairs(Grid(step, self.order, 1))],
            step=step,
            tilt=self.order,
            side=1,
        )
        infinite = math.fsum(part.infinite * part.count for part in parts if isinstance(part, GroupPair)) * (1 + 1e-14)
        if self.query.epsilon is not None:
            return min(float(outward(law.delta(self.query.epsilon) + infinite)), 1.0)
        left = (self.query.delta - infinite) * (1 - 1e-14)
        return law.epsilon(left) if left > 0 else math.inf

    def below(self, value: float) -> float:
        """The lower bound; ``value`` is the upper one."""
        curve, query = self.curve, self.query
        rest = Charge.join(curve.rest, with_gaussians(curve.concentrated)) if curve.concentrated.costs else curve.rest
        if not curve.ranges:
            return self._below_without_ranges(rest, value)
        low = max(value - tuning.STRATEGY_REACH * math.sqrt(self.variance), 0.0) if query.epsilon is None else 0.0
        best = 0.0
        # Fixed t's are better where the grid is too coarse, close to the largest loss, and quick for very many ranges.
        for adaptive in (True, False) if len(curve.ranges) <= MANY_RANGES else (False,):
            found = strategy(
                curve.ranges,
                rest,
                order=self.order,
                log_chernoff=curve.log_chernoff(self.order),
                variance=self.variance,
                tolerance=self.tolerance,
                steps={group.ranges[0][0]: group.steps for group in self.groups if group.single},
                reach=self.reach,
                adaptive=adaptive,
            )
            best = max(best, found.answer(query, low, value))
            if value - best <= tuning.SETTLED * self.tolerance * value:
                break
        return best

    def _below_without_ranges(self, rest: Charge, value: float) -> float:
        query = self.query
        product_below = certified_bracket(rest, replace(query, rtol=max(self.tolerance, 1e-3))).lower
        # One ZCDP cost alone: several could not be played by one law.
        alone = [cost for cost in self.curve.whole.of(ZCDP) if self.curve.whole.count == 1]
        if not alone:
            return product_below
        rho, xi = alone[0].rho, alone[0].xi
        if query.epsilon is not None:
            return max(product_below, two_outcomes_delta(rho, xi, query.epsilon))
        for retreat in tuning.CONCENTRATED_RETREATS:
            x = value * (1 - retreat)
            if x <= product_below:
                break
            if two_outcomes_delta(rho, xi, x) > query.delta_below:
                return x
        return product_below


class _Search:
    """Refinement of one answer: finer and finer runs, each stage of the work with larger groups than the one before."""

    def __init__(self, curve: SetwiseCurve, query: Query) -> None:
        self.curve, self.query = curve, query
        self.value, self.order = curve.chernoff(query)
        self.lower = 0.0
        self.bracketed = curve.bracketed(query)
        # d ln δ for d ln ε
        sharpness = max(1.0, self.order * query.epsilon) if query.epsilon is not None else 1.0
        self.wanted = max(min(query.rtol / sharpness, tuning.LOOSEST), tuning.FINEST)
        self.target, self.last = tuning.FIRST_SHARE * self.wanted, math.inf
        self.groups: list[Group] | None = None  # of the last run
        self.runs: list[tuple[float, Run]] = []  # what each found

    def run(self) -> Answer:
        work, note = self.query.work, USED_UP
        for room in work.rooms():
            self.last = math.inf  # larger groups may be better at the same tolerance
            left = room
            while (run := self._fitting(left)) is not None:
                if not work.take(run.work):
                    return self.answer(work.note)
                left, before = left - run.work, self.gap
                try:
                    self._do(run)
                except OutOfTime:
                    return self.answer(work.note)
                if self.gap <= self.query.rtol:
                    return self.answer("")
                # Beside concentrated costs the width is not that of the grids, and only larger groups may help.
                if self.last <= self.wanted and (not self.bracketed or self.curve.concentrated.costs):
                    if len(run.groups) > 1:
                        break
                    return self.answer(AS_FINE_AS_IT_GETS if self.bracketed else "")
                finer = min(self.wanted / self.last, self.query.rtol / self.gap if self.bracketed else math.inf)
                self.target = self.last * min(max(tuning.AIM * finer, tuning.LEAP), 1 / tuning.FINER)
                if self.last <= self.wanted and self.gap > tuning.STUCK * before:
                    note = AS_FINE_AS_IT_GETS
                    break
        return self.answer(note)

    def _do(self, run: Run) -> None:
        """One run, and what it tells about the order."""
        self.runs.append((run.above(), run))
        self.value = min(self.value, self.runs[-1][0])
        if self.bracketed:
            self.lower = max(self.lower, min(run.below(self.value), self.value))
        if self.query.epsilon is None and math.isfinite(self.value):
            self.order = self.curve.chernoff(Query(epsilon=self.value))[1]
        self.last, self.groups = run.tolerance, run.groups

    @property
    def gap(self) -> float:
        """The relative width of the bracket."""
        return (self.value - self.lower) / self.value

    def planned(self, tolerance: float, left: float) -> Run:
        """A run to a tolerance, its groups in a share of what is left."""
        return Run(self.curve, self.query, self.order, tolerance, tuning.GROUPS_SHARE * left, self.value)

    def _fitting(self, left: float) -> Run | None:
        """A run that fits: to the tolerance aimed at if possible, in any case a good deal finer than the last."""
        tolerance = self.target if left > 0 else math.inf
        while tolerance < min(self.last / tuning.COARSER, tuning.COARSEST):
            run = self.planned(tolerance, left)
            if run.work <= left and run.groups != self.groups:
                return run
            tolerance *= tuning.COARSER
        return None

    def by_conversion(self) -> Answer:
        """Concentrated costs only: the conversion itself, nearly attained for one cost, or the Gaussian of many."""
        if self.curve.smoothed is not None:
            self.value = min(self.value, gaussian(self.curve.smoothed[0]).answer(self.query).value)
        if self.value > FLOOR and self.query.lower:
            below = self.planned(self.wanted, 1.0).below(self.value)
            self.lower = max(min(below, self.value), 0.0)
        return self.answer("")

    def answer(self, note: str) -> Answer:
        """The bracket so far."""
        return Answer(self.value, self.lower if self.lower > 0 else None, note)


def pairs_of_ranges(charge: Charge, *, delta: float, tolerance: float) -> list[GroupPair]:
    """The pairs of groups of the bounded ranges in a charge, each valid together with any other cost (Theorem C).

    Args:
        charge: costs without failures, some of them bounded ranges.
        delta: the δ down to which the pairs are sharp.
        tolerance: relative, of the ε of the whole; it decides the groups, and no guarantee.
    """
    curve, query = SetwiseCurve.of(charge), Query(delta=delta, lower=False)
    value, order = curve.chernoff(query)
    return Run(curve, query, order, tolerance, tuning.GROUPS_SHARE * query.work.budget, value).pairs()


@bound(
    "optimal_setwise",
    source="docs/notes/setwise.md, Theorems A, B and C; recursion of DDR Lemma 6.1 and CR Lemma 5.1",
    takes=(*DOMINATED, BoundedRange, ZCDP, CDP),
    lower_from=lambda charge: "setwise" if charge.of(BoundedRange) else "batch",  # the strategies adapt and choose
    refines=True,
)
def optimal_setwise(charge: Charge) -> SetwiseCurve | BracketCurve:
    """The optimum over all adaptive interactions with a registered set of costs, as a certified bracket."""
    curve = SetwiseCurve.of(charge)
    if curve.ranges or curve.concentrated.costs:
        return curve
    return BracketCurve(charge, curve.top)  # the product of dominating pairs
