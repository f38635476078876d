"""The optimal bound for a registered set of costs, played in any order and adaptively: one product
of pairs.

A charge splits into D, its costs with a pair of laws that dominates in both directions, B, its
bounded ranges, and Z, its ZCDP and CDP costs (``game``). B is split into groups (``partition``);
each group, and Z, has a pair (``cost_groups``), and by Theorem C (docs/notes/setwise.md)

    δ_opt(x) <= δ of the product of all pairs at x,

computed on a lattice (``pld.lattice``), tilted to where the question is (``evaluation``). Real
strategies bound it from below (``strategies``). Splits and grids are refined until the two agree to
the tolerance asked for, or the work is used up (``refinement``); the answer is the upper one either
way, and never above the Rényi route nor above the Gaussian of Theorem H. Without B and Z it is the
product of the dominating pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dptopk.accounting.cost_models.dominating_pairs import (
    DOMINATED,
    BracketCurve,
    certified_bracket,
)
from dptopk.accounting.curves import Answer, Curve, Query
from dptopk.accounting.registry import bound
from dptopk.accounting.setwise import tuning
from dptopk.accounting.setwise.cost_groups import GroupPair
from dptopk.accounting.setwise.evaluation import Evaluation
from dptopk.accounting.setwise.game import SetwiseGame
from dptopk.accounting.setwise.recursion import FLOOR
from dptopk.accounting.setwise.refinement import AS_FINE_AS_IT_GETS, Refinement
from dptopk.accounting.setwise.zcdp_gaussian import with_gaussians
from dptopk.accounting.work import Work
from dptopk.costs import CDP, ZCDP, BoundedRange, Charge, Cost, GaussianDP, PureDP
from dptopk.errors import NotApplicable


class SetwiseCurve(SetwiseGame, Curve):
    """The optimum for bounded ranges, costs with dominating pairs, and concentrated costs; see the
    module docstring.
    """

    @classmethod
    def of(cls, charge: Charge) -> SetwiseCurve:
        """The curve of a charge without failures.

        Raises:
            NotApplicable: when its numbers are too large or too small.
        """
        return cls(*cls._parts_of(charge))

    @classmethod
    def with_stand_in(cls, charge: Charge, stand_in: GaussianDP, small: Charge) -> SetwiseCurve:
        """The curve of a charge and of small costs, for which one Gaussian stands.

        Raises:
            NotApplicable: as ``of``; or where that Gaussian is a cost of the charge itself.
        """
        if stand_in in charge.costs:
            raise NotApplicable("the Gaussian that stands for small costs is a cost itself")
        parts = cls._parts_of(Charge({**charge.costs, stand_in: 1}))
        return cls(*parts, stand_in=stand_in, small=small)

    def answer(self, query: Query) -> Answer:
        """The answer, refined until the bracket is within ``query.rtol`` or the work is used up."""
        if query.epsilon is None and query.delta <= FLOOR:
            return Answer(self.top)
        if query.epsilon is not None and query.epsilon >= self.top:
            return Answer(0.0, 0.0)
        if len(self.ranges) > tuning.MOST_RANGES:
            return self._merged(query)
        search = Refinement(self, query)
        several = self.smoothed is not None and self.smoothed[1].costs
        if search.value <= FLOOR or not (self.ranges or self.rest.costs or several):
            return search.by_conversion()
        return search.run()

    def _merged(self, query: Query) -> Answer:
        """Very many different ranges, rounded up to fewer for an upper bound and down for a lower
        one.
        """
        sides = (_rounded(self.ranges, upper=side) for side in (True, False))
        more, less = (SetwiseCurve(ranges, self.rest, self.concentrated) for ranges in sides)
        above = more.answer(replace(query, lower=False)).value
        value, order = self.chernoff(query)
        value = min(value, above, self.by_one_gaussian(query))
        for _, game in self.reductions:
            reduced = Evaluation(game, query, order, tuning.FIRST_SHARE * query.rtol, 0.0, value)
            value = min(value, reduced.above())
        below = 0.0
        if query.lower and value > FLOOR:
            played = Evaluation(less, query, order, tuning.LOOSEST, 0.0, value)
            below = min(max(played.below(value), self._by_responses(query)), value)
        note = "" if value - below <= query.rtol * value else AS_FINE_AS_IT_GETS
        return Answer(value, below if below > 0 else None, note)

    def _by_responses(self, query: Query) -> float:
        """Return what is attained if each range plays randomised response of half its ε, and
        concentrated costs Gaussians.
        """
        halves: dict[Cost, int] = {PureDP(epsilon / 2): n for epsilon, n in self.ranges.items()}
        played = Charge.join(Charge(halves), self.rest, with_gaussians(self.concentrated))
        found = certified_bracket(played, replace(query, work=Work.of("quick"), rtol=1e-3))
        return found.lower

    def proof(self, query: Query) -> Evaluation:
        """The first evaluation of the refinement whose answer is about as good as the best one."""
        search = Refinement(self, query)
        if not self.ranges and not self.rest.costs:
            return search.planned(search.wanted, 1.0)
        search.run()
        if not search.done:
            return search.planned(tuning.LOOSEST, query.work.budget)
        least = min(value for value, _ in search.done)
        good = (one for value, one in search.done if value <= least * (1 + tuning.AS_GOOD))
        return next(good)


def _rounded(ranges: Mapping[float, int], *, upper: bool) -> dict[float, int]:
    """The ranges rounded up, or down, to the largest, or smallest, of each of MOST_RANGES classes
    of equal ratio.
    """
    rising = sorted(ranges.items(), reverse=upper)
    ratio = (max(ranges) / min(ranges)) ** (1 / tuning.MOST_RANGES)
    found: dict[float, int] = {}
    end = rising[0][0]
    for epsilon, count in rising:
        if max(epsilon, end) > min(epsilon, end) * ratio:
            end = epsilon
        found[end] = found.get(end, 0) + count
    return found


def pairs_of_ranges(charge: Charge, *, delta: float, tolerance: float) -> list[GroupPair]:
    """The pairs of groups of the bounded ranges in a charge, each valid together with any other
    cost (Theorem C).

    Args:
        charge: costs without failures, some of them bounded ranges.
        delta: the δ down to which the pairs are sharp.
        tolerance: relative, of the ε of the whole; it decides the groups, and no guarantee.
    """
    curve = SetwiseCurve.of(charge)
    query = Query(delta=delta, lower=False)
    value, order = curve.chernoff(query)
    room = tuning.GROUPS_SHARE * query.work.budget
    return Evaluation(curve, query, order, tolerance, room, value).pairs()


@bound(
    "optimal_setwise",
    source="docs/notes/setwise.md, Theorems A, B and C; recursion of DDR Lemma 6.1 and CR Lemma "
    "5.1",
    takes=(*DOMINATED, BoundedRange, ZCDP, CDP),
    lower_from=lambda charge: (
        "setwise" if charge.of(BoundedRange) else "batch"
    ),  # the strategies adapt and choose
    refines=True,
)
def optimal_setwise(charge: Charge) -> SetwiseCurve | BracketCurve:
    """The optimum over all adaptive interactions with a registered set of costs, as a certified
    bracket.
    """
    curve = SetwiseCurve.of(charge)
    if curve.ranges or curve.concentrated.costs:
        return curve
    return BracketCurve(charge, curve.top)  # the product of dominating pairs
