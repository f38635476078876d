"""Exact composition of mechanisms that are known by any number of (ε, δ) constraints
(Cadir-Najib-Shkel 2026).

Constraints together have one worst-case pair, a mixture of randomised responses
(``constraints.mixture``), and the pair dominates in both directions. So composition is convolution
of its loss law: this proves Conjecture 1 for every n, and by Theorem A (docs/theorems.md) the
result holds in every set-wise interaction and for different costs side by side. The losses of a
composition are the sums Σ a_i ε_i with integer a_i. The first way that fits is taken:

- all ε commensurable: a grid, by direct convolution;
- one ε: the binomial law of randomised response;
- two ε's: the rows of Theorem 3;
- more: a binomial mixture over how often one of the first two is picked, of the laws before;
- too many to list: a certified bracket on a grid (``pld.dominating_pairs``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import ROUNDOFF, SLACK, Floats, outward, sum_times
from dptopk.accounting.cost_models.dominating_pairs import BracketCurve
from dptopk.accounting.curves import Answer, Curve, Query, smallest_where
from dptopk.accounting.pld.common_lattice import Parts, Responses, common_lattice, signs
from dptopk.accounting.pld.constraints import (
    PERTURBATION,
    RandomizedResponseMixture,
    mixture,
    worst_case,
)
from dptopk.accounting.pld.laws import LossLaw, Power, binomials, power, product
from dptopk.accounting.registry import bound
from dptopk.costs import Charge, MultiDP, PureDP
from dptopk.errors import NotApplicable

# Dropped constraints that a note names one by one.
MOST_NAMED_COSTS = 8
# Outcomes listed at most.
MOST_LISTED_OUTCOMES = 4_000_000
# Different costs at most, if their outcomes are to be listed: to see whether they have a common
# step takes time.
MOST_DIFFERENT_COSTS = 2000
# Above this count even a coarse bracket takes more than a few seconds.
MOST_MULTI_DP_COPIES = 10**7


def multi_dp_delta(
    constraints: Sequence[tuple[float, float]], count: int, *, at_epsilon: ArrayLike
) -> Floats:
    """δ of the count-fold composition of mechanisms that satisfy every (ε, δ) constraint; CNS
    Conjecture 1.

    Args:
        constraints: pairs (ε, δ), ε >= 0, 0 <= δ < 1; inactive ones make no difference.
        count: number of mechanisms k >= 1.
        at_epsilon: ε >= 0 of the composition, any shape.

    Returns:
        Upper bounds on δ of the same shape. While the outcomes can be listed (two constraints: k <
        2000) they are exact to a relative error of about 1e-11, plus 4e-15 k ε_1 for the rounding
        of the losses; else they are the upper side of a bracket on a grid (``multi_dp_bracket``).

    Raises:
        InvalidParameter: on arguments outside their ranges.

    >>> multi_dp_delta([(0.3, 0.0), (0.15, 0.02)], 20, at_epsilon=[0.0, 1.0]).round(6).tolist()
    [0.342327, 0.088664]
    """
    return multi_dp_bracket(constraints, count, at_epsilon=at_epsilon)[1]


def multi_dp_bracket(
    constraints: Sequence[tuple[float, float]],
    count: int,
    *,
    at_epsilon: ArrayLike,
    rtol: float = 1e-4,
) -> tuple[Floats, Floats]:
    """Lower and upper bounds on the δ of ``multi_dp_delta``, both certified.

    Args:
        constraints: pairs (ε, δ), ε >= 0, 0 <= δ < 1; inactive ones make no difference.
        count: number of mechanisms k >= 1.
        at_epsilon: ε >= 0 of the composition, any shape.
        rtol: relative width, of the δ given that no mechanism fails, to which a grid is refined
            when there are too many outcomes to list, while the work of the normal effort lasts.

    Returns:
        (lower, upper), each of the shape of ``at_epsilon``.

    Raises:
        InvalidParameter: on arguments outside their ranges.
    """
    count = validate.count(count=count)
    x = validate.nonnegatives(at_epsilon=at_epsilon)
    exact = MixtureCurve({MultiDP(tuple(constraints)): count})
    bounds = []
    for side, rest in zip((-1, 1), _bracket_without_failure(exact, x.ravel(), rtol), strict=True):
        atom = mixture(constraints, nudge=side * PERTURBATION).atom
        log_survival = count * math.log1p(-atom) if atom < 1 else -math.inf
        deltas = -math.expm1(log_survival) + math.exp(log_survival) * rest
        bounds.append(deltas.reshape(x.shape))
    return bounds[0] * (1 - 1e-13), np.minimum(outward(bounds[1]), 1.0)


def _bracket_without_failure(exact: MixtureCurve, x: Floats, rtol: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on δ given that all losses are finite."""
    ((below, _),), ((above, _),) = exact.parts(-PERTURBATION), exact.parts(PERTURBATION)
    if not above:
        return np.zeros(x.size), np.zeros(x.size)
    if not exact.listed:
        ((cost, count),) = exact.costs.items()
        curve = BracketCurve(Charge({cost: count}), exact.epsilon_max)
        found = [curve.answer(Query(epsilon=float(each), rtol=rtol)) for each in x]
        lower = np.array([one.lower or 0.0 for one in found])
        return lower, np.array([one.value for one in found])
    return exact.lower.delta_lower(x) if below else np.zeros(x.size), exact.delta(x)


@bound(
    "multi_dp",
    source="Cadir-Najib-Shkel 2026, Theorems 2, 3 and Conjecture 1 (proven: docs/notes/regions.md)",
    takes=(MultiDP, PureDP),
)
def multi_dp(charge: Charge) -> Curve:
    """Optimal composition of costs with several (ε, δ) constraints each, together with pure DP
    costs.

    Exact to rounding while the outcomes can be listed, else a certified bracket on a grid.
    """
    if charge.count > MOST_MULTI_DP_COPIES:
        raise NotApplicable(f"more than {MOST_MULTI_DP_COPIES:.0e} costs: too many for a grid")
    if len(charge.costs) > MOST_DIFFERENT_COSTS and not charge.of(MultiDP):
        raise NotApplicable(
            f"more than {MOST_DIFFERENT_COSTS} different pure costs: left to optimal_dp_approx"
        )
    costs = {cost: times for cost, times in charge if isinstance(cost, MultiDP | PureDP)}
    exact = MixtureCurve(costs)
    if exact.listed:
        return exact
    return BracketCurve(charge, exact.epsilon_max, note=exact.note)


@dataclass(frozen=True)
class MixtureCurve(Curve):
    """The privacy profile of costs with finite loss laws, all outcomes listed, with a certified
    lower bound.

    Args:
        costs: the costs with their counts, none with an atom at infinity.
    """

    costs: Mapping[MultiDP | PureDP, int]

    def parts(self, nudge: float) -> Parts:
        """The mixtures with their counts; ``nudge`` as in ``constraints.mixture``."""
        return [(_finite(_mixture_of(cost, nudge)), times) for cost, times in self.costs.items()]

    @cached_property
    def listed(self) -> bool:
        """Whether the outcomes can be enumerated; if not, only this, ``epsilon_max`` and ``note``
        may be used.
        """
        return (
            len(self.costs) <= MOST_DIFFERENT_COSTS
            and outcomes(self.parts(PERTURBATION)) <= MOST_LISTED_OUTCOMES
        )

    @cached_property
    def upper(self) -> LossLaw:
        """A law that dominates the exact one."""
        return _listed_law(self.parts(PERTURBATION))

    @cached_property
    def lower(self) -> LossLaw:
        """A law that is dominated by the exact one."""
        return _listed_law(self.parts(-PERTURBATION))

    @cached_property
    def epsilon_max(self) -> float:
        """The answer for δ = 0."""
        return sum_times((responses[0][0], times) for responses, times in self.parts(PERTURBATION))

    @cached_property
    def note(self) -> str:
        """Describes the constraints that were dropped."""
        dropped = [
            pair
            for cost in self.costs
            if isinstance(cost, MultiDP)
            for pair in worst_case(cost, 0.0).dropped
        ]
        if len(dropped) > MOST_NAMED_COSTS:
            return f"{len(dropped)} inactive constraints dropped"
        listed = ", ".join(f"({epsilon:g}, {delta:g})" for epsilon, delta in dropped)
        if dropped:
            return f"inactive constraints dropped: {listed}"
        return ""

    def _deltas(self, epsilon: Floats) -> Floats:
        return np.where(epsilon >= self.epsilon_max, 0.0, self.upper.delta_upper(epsilon))

    def _epsilons(self, delta: Floats) -> Floats:
        log_target = _log(delta * (1 - SLACK))
        return smallest_where(lambda x: _log(self.delta(x)), log_target, self.epsilon_max)

    def answer(self, query: Query) -> Answer:
        """Both bounds."""
        if query.epsilon is not None:
            at = np.array([query.epsilon])
            return Answer(float(self.delta(at)[0]), float(self.lower.delta_lower(at)[0]), self.note)
        upper = float(self.epsilon(query.delta)) if query.delta else self.epsilon_max
        # The largest loss has a positive mass, however small.
        none_below = math.nextafter(self.epsilon_max, 0.0)
        return Answer(
            upper,
            self._lower_epsilon(query.delta_below) if query.delta_below else none_below,
            self.note,
        )

    def _lower_epsilon(self, delta: float) -> float:
        """An ε at which δ is certainly above the one asked for: found by the root finder, then
        checked.
        """
        log_target = _log(np.array([delta]))

        def log_lower(x: Floats) -> Floats:
            return _log(self.lower.delta_lower(x))

        root = smallest_where(log_lower, log_target, self.epsilon_max)[0]
        candidates = root * (1 - np.array([1e-12, 1e-10, 1e-8, 1e-6, 1e-3]))
        above = self.lower.delta_lower(candidates) > delta
        return float(candidates[above].max(initial=0.0))


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values)
    return logs


@lru_cache(maxsize=1024)
def _mixture_of(cost: MultiDP | PureDP, nudge: float) -> RandomizedResponseMixture:
    if isinstance(cost, MultiDP):
        return worst_case(cost, nudge)
    return mixture([(cost.epsilon, 0.0)], nudge=nudge)


def outcomes(parts: Parts) -> int:
    """Number of losses that the composition would enumerate."""
    grid = common_lattice(parts)
    if grid is not None:
        return 2 * sum(times * grid.nodes[responses[0][0]] for responses, times in parts) + 1
    return math.prod(_outcomes(len(responses), times) for responses, times in parts)


@cache
def _outcomes(kinds: int, count: int) -> int:
    """Listed losses of a mixture of ``kinds`` randomised responses; a large number once it is
    hopeless.
    """
    if count == 1:
        return 2 * kinds
    if kinds == 1 and count <= 30_000:
        return count + 1
    if kinds == 2:
        return (count + 1) ** 2
    if count > 150 or kinds > 6:
        return MOST_LISTED_OUTCOMES**2
    return sum((j + 1) ** 2 * _outcomes(kinds - 2, count - j) for j in range(count + 1))


def composition_law(mixtures: Sequence[tuple[RandomizedResponseMixture, int]]) -> LossLaw:
    """The law of the summed finite losses of all mixtures, each taken ``count`` times
    independently.

    The atoms at infinity are left aside: the law is conditional on none of them.

    Raises:
        NotApplicable: when there are more than MOST_LISTED_OUTCOMES outcomes.
    """
    parts = [(_finite(worst), times) for worst, times in mixtures]
    if outcomes(parts) > MOST_LISTED_OUTCOMES:
        raise NotApplicable("too many outcomes to list")
    return _listed_law(parts)


def _listed_law(parts: Parts) -> LossLaw:
    grid = common_lattice(parts)
    if grid is not None:
        return grid.law(parts)
    total, *others = (_homogeneous(responses, times) for responses, times in parts)
    for law in others:
        total = product(total, law)
    return total


def _finite(worst: RandomizedResponseMixture) -> Responses:
    """The mixture without its atom at infinity."""
    return _scaled(tuple(zip(worst.epsilons, worst.weights, strict=True)), 1 - worst.atom)


def _scaled(responses: Responses, total: float) -> Responses:
    return tuple((epsilon, weight / total) for epsilon, weight in responses)


def _homogeneous(responses: Responses, count: int) -> LossLaw:
    """The law of ``count`` draws from one mixture, conditional on finite losses."""
    largest = count * responses[0][0]
    loss_error = 16 * ROUNDOFF * largest
    if count == 1:
        return _single(responses, loss_error)
    if len(responses) == 1:
        plus, minus = signs(responses[0][0])
        many = power(Power(np.array([minus, plus])), count)
        losses = responses[0][0] * (2 * many.places() - count)
        mass_error = many.error + 4 * count * ROUNDOFF
        return LossLaw.sort(losses, many.masses, mass_error, loss_error, many.lost)
    if len(responses) == 2:
        losses, masses, lost = _double(responses, count)
        return LossLaw.sort(losses, masses, (12 * count + 32) * ROUNDOFF, loss_error, lost)
    return _several(responses, count, loss_error)


def _single(responses: Responses, loss_error: float) -> LossLaw:
    """The law of one draw from a mixture."""
    epsilons, weights = np.array(responses).T
    chances = np.array([signs(epsilon) for epsilon in epsilons.tolist()])
    plus, minus = (weights * part for part in chances.T)
    losses = np.concatenate([epsilons, -epsilons])
    masses = np.concatenate([plus, minus])
    return LossLaw.sort(losses, masses, 16 * ROUNDOFF, loss_error)


def _double(responses: Responses, count: int) -> tuple[Floats, Floats, float]:
    """Losses, masses and what is left out for two ε's, indexed [v, u] as in Theorem 3.

    The loss is ε1 (u + v - k) + ε2 (u - v): v is binomial, and given v, u is the sum of two
    independent binomials over the steps with v = 1 and those with v = 0.
    """
    zero, one = _step_chances(responses)
    v_law = power(Power(np.array([sum(zero), sum(one)])), count)
    of_v = v_law.up_to(count)
    within_one = binomials(count, *(chance / sum(one) for chance in one))
    within_zero = binomials(count, *(chance / sum(zero) for chance in zero))
    masses = np.empty((count + 1, count + 1))
    with np.errstate(under="ignore"):
        for ones in range(count + 1):
            zeros = count - ones
            row = np.convolve(within_one[ones, : ones + 1], within_zero[zeros, : zeros + 1])
            masses[ones] = of_v[ones] * row
    return _double_losses(responses, count), masses, v_law.lost


def _double_losses(responses: Responses, count: int) -> Floats:
    (epsilon1, _), (epsilon2, _) = responses
    v, u = np.ogrid[: count + 1, : count + 1]
    losses: Floats = epsilon1 * (u + v - count) + epsilon2 * (u - v)
    return losses


def _step_chances(responses: Responses) -> tuple[tuple[float, float], tuple[float, float]]:
    """For v = 0 and for v = 1 the chances that one step has it with u = 1, and with u = 0.

    The four outcomes of a step are +ε1: (u, v) = (1, 1), -ε1: (0, 0), +ε2: (1, 0), -ε2: (0, 1).
    """
    (epsilon1, weight1), (epsilon2, weight2) = responses
    plus1, minus1 = signs(epsilon1)
    plus2, minus2 = signs(epsilon2)
    return (weight2 * plus2, weight1 * minus1), (weight1 * plus1, weight2 * minus2)


def _several(responses: Responses, count: int, loss_error: float) -> LossLaw:
    """More than two ε's: j of the draws come from the first two, the others from the rest
    (Conjecture 1).
    """
    first = responses[:2]
    rest = responses[2:]
    of_first = sum(weight for _, weight in first)
    of_rest = sum(weight for _, weight in rest)
    picks = power(Power(np.array([of_rest, of_first])), count)
    first = _scaled(first, of_first)
    rest = _scaled(rest, of_rest)
    laws = [_divided(first, j, rest, count - j) for j in range(count + 1)]
    picked = zip(picks.up_to(count), laws, strict=True)
    return LossLaw.sort(
        losses=np.concatenate([law.losses for law in laws]),
        masses=np.concatenate([pick * law.masses for pick, law in picked]),
        mass_error=(16 * len(responses) * count + 64) * ROUNDOFF,
        loss_error=loss_error,
        lost=max(0.0, *(law.lost for law in laws)) + picks.lost,
    )


def _divided(first: Responses, of_first: int, rest: Responses, of_rest: int) -> LossLaw:
    """The law of draws of which the numbers from one and from another mixture are known."""
    if not of_rest:
        return _homogeneous(first, of_first)
    if not of_first:
        return _homogeneous(rest, of_rest)
    return product(_homogeneous(first, of_first), _homogeneous(rest, of_rest))
