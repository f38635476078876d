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
from functools import cache, cached_property, lru_cache, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dptopk._internal import validate
from dptopk._internal.rounding import ROUNDOFF, SLACK, Floats, outward, sum_times
from dptopk.accounting.cost_models.dominating_pairs import BracketCurve
from dptopk.accounting.curves import Answer, Curve, Query, smallest_where
from dptopk.accounting.pld.common_lattice import (
    CountedMixtures,
    WeightedEpsilons,
    common_lattice,
    largest_epsilon,
    signs,
)
from dptopk.accounting.pld.constraints import (
    PERTURBATION,
    RandomizedResponseMixture,
    mixture,
    worst_case,
)
from dptopk.accounting.pld.laws import IntegerLaw, LossLaw, binomials, convolution_power, product
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
# The most draws from one mixture of one ε, and from more of them, whose outcomes are counted, and
# the most ε's of a mixture: beyond, the numbers are far above MOST_LISTED_OUTCOMES, or the law of
# one ε is better bracketed on a grid.
MOST_DRAWS = 30_000
MOST_DRAWS_OF_SEVERAL = 150
MOST_SEVERAL = 6
# Distances from a root, relative, at which a lower bound on ε is checked.
RETREATS = (1e-12, 1e-10, 1e-8, 1e-6, 1e-3)


def multi_dp_delta(
    constraints: Sequence[tuple[float, float]], count: int, *, at_epsilon: ArrayLike
) -> Floats:
    """Return δ of the count-fold composition of mechanisms that satisfy every (ε, δ) constraint
    (CNS Conjecture 1).

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
    """Return lower and upper bounds on the δ of ``multi_dp_delta``, both certified.

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
    # Lower and upper bounds on δ given that no mechanism fails.
    bracket = _bracket_without_failure(exact, x.ravel(), rtol)
    for side, delta_without_failure in zip((-1, 1), bracket, strict=True):
        atom = mixture(constraints, nudge=side * PERTURBATION).atom
        log_survival = count * math.log1p(-atom) if atom < 1 else -math.inf
        deltas = -math.expm1(log_survival) + math.exp(log_survival) * delta_without_failure
        bounds.append(deltas.reshape(x.shape))
    lower, upper = bounds
    # The last sums and products of δ's round by a few units only; ``outward`` moves the upper end.
    return lower * (1 - SLACK), np.minimum(outward(upper), 1.0)


def _bracket_without_failure(exact: MixtureCurve, x: Floats, rtol: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on δ at each x, given that all losses are finite.

    Args:
        exact: the curve of copies of a single cost.
        x: ε's, shape (n,).
        rtol: relative width to which a grid is refined.
    """
    ((above, _),) = exact.parts(PERTURBATION)
    if not above:  # every loss is infinite
        return np.zeros(x.size), np.zeros(x.size)
    if not exact.can_be_listed:
        ((cost, count),) = exact.costs.items()
        curve = BracketCurve(Charge({cost: count}), exact.epsilon_max)
        answers = [curve.answer(Query(epsilon=epsilon, rtol=rtol)) for epsilon in x.tolist()]
        lower = np.array([0.0 if answer.lower is None else answer.lower for answer in answers])
        return lower, np.array([answer.value for answer in answers])
    ((below, _),) = exact.parts(-PERTURBATION)
    lower = exact.law_below.delta_lower(x) if below else np.zeros(x.size)
    return lower, exact.delta(x)


@bound(
    "multi_dp",
    source="Cadir-Najib-Shkel 2026, Theorems 2, 3 and Conjecture 1 (proven: docs/notes/regions.md)",
    takes=(MultiDP, PureDP),
)
def multi_dp(charge: Charge) -> Curve:
    """Return the optimal composition of costs with several (ε, δ) constraints each, together with
    pure DP costs.

    It is exact to rounding while the outcomes can be listed, else a certified bracket on a grid.

    Raises:
        NotApplicable: for too many costs, or too many different ones that are all pure.
    """
    if charge.count > MOST_MULTI_DP_COPIES:
        raise NotApplicable(f"more than {MOST_MULTI_DP_COPIES:.0e} costs: too many for a grid")
    if len(charge.costs) > MOST_DIFFERENT_COSTS and not charge.of(MultiDP):
        raise NotApplicable(
            f"more than {MOST_DIFFERENT_COSTS} different pure costs: left to optimal_dp_approx"
        )
    costs = {cost: times for cost, times in charge if isinstance(cost, MultiDP | PureDP)}
    exact = MixtureCurve(costs)
    if exact.can_be_listed:
        return exact
    return BracketCurve(charge, exact.epsilon_max, note=exact.note)


@dataclass(frozen=True)
class MixtureCurve(Curve):
    """The privacy profile of costs given that no loss is infinite, all outcomes listed, with a
    certified lower bound.

    Args:
        costs: the costs with their counts; an atom at infinity is left out.
    """

    costs: Mapping[MultiDP | PureDP, int]

    def parts(self, nudge: float) -> CountedMixtures:
        """Return the worst-case mixture of each cost without its atom at infinity, with counts.

        Args:
            nudge: as for ``constraints.mixture``: PERTURBATION for mixtures that dominate the
                costs, -PERTURBATION for mixtures that the costs dominate.
        """
        return [
            (_mixture_without_atom(_mixture_of(cost, nudge)), times)
            for cost, times in self.costs.items()
        ]

    @cached_property
    def can_be_listed(self) -> bool:
        """Return whether the outcomes can be enumerated; if not, only this, ``epsilon_max`` and
        ``note`` may be used.
        """
        return (
            len(self.costs) <= MOST_DIFFERENT_COSTS
            and number_of_outcomes(self.parts(PERTURBATION)) <= MOST_LISTED_OUTCOMES
        )

    @cached_property
    def law_above(self) -> LossLaw:
        """Return a law that dominates the exact one."""
        return _listed_law(self.parts(PERTURBATION))

    @cached_property
    def law_below(self) -> LossLaw:
        """Return a law that is dominated by the exact one."""
        return _listed_law(self.parts(-PERTURBATION))

    @cached_property
    def epsilon_max(self) -> float:
        """Return the largest loss, which is the ε for δ = 0."""
        parts = self.parts(PERTURBATION)
        return sum_times((largest_epsilon(responses), times) for responses, times in parts)

    @cached_property
    def note(self) -> str:
        """Return a sentence on the constraints that were dropped because others imply them; empty
        if none was.
        """
        dropped: list[tuple[float, float]] = []
        for cost in self.costs:
            if isinstance(cost, MultiDP):
                dropped += worst_case(cost, 0.0).dropped
        if len(dropped) > MOST_NAMED_COSTS:
            return f"{len(dropped)} inactive constraints dropped"
        if not dropped:
            return ""
        pairs = ", ".join(f"({epsilon:g}, {delta:g})" for epsilon, delta in dropped)
        return f"inactive constraints dropped: {pairs}"

    def _deltas(self, epsilon: Floats) -> Floats:
        """Return upper bounds on δ."""
        return np.where(epsilon >= self.epsilon_max, 0.0, self.law_above.delta_upper(epsilon))

    def _epsilons(self, delta: Floats) -> Floats:
        """Return upper bounds on ε."""
        log_target = _log(delta * (1 - SLACK))
        return smallest_where(lambda x: _log(self.delta(x)), log_target, self.epsilon_max)

    def answer(self, query: Query) -> Answer:
        """Return the upper and the lower bound on the answer."""
        if query.epsilon is not None:
            epsilons = np.array([query.epsilon])
            delta = float(self.delta(epsilons)[0])
            lower_delta = float(self.law_below.delta_lower(epsilons)[0])
            return Answer(delta, lower_delta, self.note)
        upper = float(self.epsilon(query.delta)) if query.delta else self.epsilon_max
        if query.delta_below and query.lower:
            lower = self._lower_epsilon(query.delta_below)
        elif query.delta_below:
            # No lower bound will be shown: this cheaper one only tells ``compose`` whether another
            # bound could help.
            lower = self._checked_epsilon(upper, query.delta_below)
        else:
            # The largest loss has a positive mass, however small; ``epsilon_max`` is rounded up by
            # less than one float.
            lower = math.nextafter(self.epsilon_max, 0.0)
        return Answer(upper, lower, self.note)

    def _lower_epsilon(self, delta: float) -> float:
        """Return an ε at which δ is certainly above ``delta``, found by the root finder and then
        checked; 0 if there is none.
        """
        log_target = _log(np.array([delta]))

        def log_lower(x: Floats) -> Floats:
            """Return a lower bound on ln δ."""
            return _log(self.law_below.delta_lower(x))

        root = float(smallest_where(log_lower, log_target, self.epsilon_max)[0])
        return self._checked_epsilon(root, delta)

    def _checked_epsilon(self, root: float, delta: float) -> float:
        """Return an ε just below ``root`` at which δ is certainly above ``delta``; 0 if there is
        none.
        """
        # At the root itself the computed δ need not be above the one given.
        candidates = root * (1 - np.array(RETREATS))
        above = self.law_below.delta_lower(candidates) > delta
        return float(candidates[above].max(initial=0.0))


def _log(values: Floats) -> Floats:
    """Return logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(values)
    return logs


@lru_cache(maxsize=1024)
def _mixture_of(cost: MultiDP | PureDP, nudge: float) -> RandomizedResponseMixture:
    """Return the mixture of randomised responses that is the worst case of one cost."""
    if isinstance(cost, MultiDP):
        return worst_case(cost, nudge)
    return mixture([(cost.epsilon, 0.0)], nudge=nudge)


def number_of_outcomes(parts: CountedMixtures) -> int:
    """Return the number of losses that ``_listed_law`` would list."""
    grid = common_lattice(parts)
    if grid is not None:
        reach = sum(times * grid.nodes[largest_epsilon(responses)] for responses, times in parts)
        return 2 * reach + 1
    return math.prod(_outcomes_of_copies(len(responses), times) for responses, times in parts)


@cache
def _outcomes_of_copies(kinds: int, count: int) -> int:
    """Return the number of losses that ``_law_of_copies`` lists, for ``count`` draws from a mixture
    of ``kinds`` randomised responses; MOST_LISTED_OUTCOMES² where there are far too many to list.

    Two kinds have (count + 1)² losses. Of more kinds, j draws come from the first two and the
    others from the rest, for each j (``_law_of_several_epsilons``).

    Args:
        kinds: at least 1.
        count: at least 0.
    """
    if count == 1:
        return 2 * kinds
    if kinds == 1 and count <= MOST_DRAWS:
        return count + 1
    if kinds == 2:
        return (count + 1) ** 2
    if count > MOST_DRAWS_OF_SEVERAL or kinds > MOST_SEVERAL:
        return MOST_LISTED_OUTCOMES**2
    return sum((j + 1) ** 2 * _outcomes_of_copies(kinds - 2, count - j) for j in range(count + 1))


def composition_law(mixtures: Sequence[tuple[RandomizedResponseMixture, int]]) -> LossLaw:
    """Return the law of the summed losses of all mixtures, each taken ``count`` times
    independently, given that no loss is infinite.

    Args:
        mixtures: each mixture with its count.

    Raises:
        NotApplicable: when there are more than MOST_LISTED_OUTCOMES outcomes.
    """
    parts = [(_mixture_without_atom(worst), times) for worst, times in mixtures]
    if number_of_outcomes(parts) > MOST_LISTED_OUTCOMES:
        raise NotApplicable("too many outcomes to list")
    return _listed_law(parts)


def _listed_law(parts: CountedMixtures) -> LossLaw:
    """Return the law of the summed losses with every outcome listed, on a common grid where there
    is one.
    """
    grid = common_lattice(parts)
    if grid is not None:
        return grid.law(parts)
    laws = [_law_of_copies(responses, times) for responses, times in parts]
    return reduce(product, laws)


def _mixture_without_atom(worst: RandomizedResponseMixture) -> WeightedEpsilons:
    """Return the mixture given that its loss is finite: without its atom, and with weights that add
    up to 1.
    """
    return _with_divided_weights(
        tuple(zip(worst.epsilons, worst.weights, strict=True)), 1 - worst.atom
    )


def _with_divided_weights(responses: WeightedEpsilons, total: float) -> WeightedEpsilons:
    """Return the mixture with its weights divided by ``total``.

    Args:
        responses: (ε, weight) of each randomised response.
        total: above 0.
    """
    return tuple((epsilon, weight / total) for epsilon, weight in responses)


def _law_of_copies(responses: WeightedEpsilons, count: int) -> LossLaw:
    """Return the law of the sum of ``count`` draws from one mixture.

    Args:
        responses: (ε, weight) of each randomised response, the weights adding up to 1.
        count: how many draws there are, at least 1.
    """
    epsilon = largest_epsilon(responses)
    # Of a loss, a sum of two products: a few units of roundoff of the largest one, and of the sums
    # of laws that are made of it.
    loss_error = 16 * ROUNDOFF * (count * epsilon)
    if count == 1:
        return _law_of_one_draw(responses, loss_error)
    if len(responses) == 1:
        plus, minus = signs(epsilon)
        true_answers = convolution_power(IntegerLaw(np.array([minus, plus])), count)
        losses = epsilon * (2 * true_answers.places() - count)
        # P[±ε] are off by at most 4 units of roundoff each, and a mass is a product of ``count``.
        mass_error = true_answers.error + 4 * count * ROUNDOFF
        return LossLaw.from_unsorted(
            losses, true_answers.masses, mass_error, loss_error, true_answers.lost
        )
    if len(responses) == 2:
        return _law_of_two_epsilons(responses, count, loss_error)
    return _law_of_several_epsilons(responses, count, loss_error)


def _law_of_one_draw(responses: WeightedEpsilons, loss_error: float) -> LossLaw:
    """Return the law of one draw from a mixture; ``loss_error`` bounds the error of each loss."""
    epsilons, weights = np.array(responses).T
    plus, minus = np.array([signs(epsilon) for epsilon in epsilons.tolist()]).T
    losses = np.concatenate([epsilons, -epsilons])
    masses = np.concatenate([weights * plus, weights * minus])
    # The weight, the sign's share, their product and a sum of two: below 16 units of roundoff.
    return LossLaw.from_unsorted(losses, masses, 16 * ROUNDOFF, loss_error)


def _law_of_two_epsilons(responses: WeightedEpsilons, count: int, loss_error: float) -> LossLaw:
    """Return the law of the sum of draws from a mixture of two ε's (Theorem 3).

    The loss of one draw is +ε1, -ε1, +ε2 or -ε2. Give it two bits, (u, v) = (1, 1), (0, 0), (1, 0)
    and (0, 1): the loss is then ε1 (u + v - 1) + ε2 (u - v), and that of k draws follows from how
    many have u = 1 and how many have v = 1.

    Args:
        responses: (ε, weight) of each of two randomised responses.
        count: how many draws there are, k.
        loss_error: a bound on the error of each loss.
    """
    chances = _DrawChances.of(responses)
    # The law of the number of draws with v = 1.
    v_law = convolution_power(IntegerLaw(np.array([chances.of_v0, chances.of_v1])), count)
    v_masses = v_law.up_to(count)
    # Of the number with u = 1 among the draws with v = 1, and among the others, given their number.
    u_given_v1 = binomials(count, chances.plus1 / chances.of_v1, chances.minus2 / chances.of_v1)
    u_given_v0 = binomials(count, chances.plus2 / chances.of_v0, chances.minus1 / chances.of_v0)
    masses = np.empty((count + 1, count + 1))  # [number with v = 1, number with u = 1]
    with np.errstate(under="ignore"):
        for ones in range(count + 1):
            zeros = count - ones
            # The number with u = 1 is the sum of both: its law is the convolution of theirs.
            u_masses = np.convolve(u_given_v1[ones, : ones + 1], u_given_v0[zeros, : zeros + 1])
            masses[ones] = v_masses[ones] * u_masses
    # A mass is a product of ``count`` chances of a draw, each off by a few units of roundoff, and a
    # sum of such products.
    return LossLaw.from_unsorted(
        losses=_losses_of_two_epsilons(responses, count),
        masses=masses,
        mass_error=(12 * count + 32) * ROUNDOFF,
        loss_error=loss_error,
        lost=v_law.lost,
    )


def _losses_of_two_epsilons(responses: WeightedEpsilons, count: int) -> Floats:
    """Return the loss of ``count`` draws from a mixture of two ε's, as an array whose indices are
    the number of draws with v = 1 and the number with u = 1 (``_law_of_two_epsilons``).
    """
    (epsilon1, _), (epsilon2, _) = responses
    v, u = np.ogrid[: count + 1, : count + 1]
    losses: Floats = epsilon1 * (u + v - count) + epsilon2 * (u - v)
    return losses


class _DrawChances(NamedTuple):
    """The chances of the four losses of one draw from a mixture of two ε's.

    Attributes:
        plus1, minus1: of +ε1 and -ε1.
        plus2, minus2: of +ε2 and -ε2.
    """

    plus1: float
    minus1: float
    plus2: float
    minus2: float

    @classmethod
    def of(cls, responses: WeightedEpsilons) -> _DrawChances:
        """Return the chances of a draw from two randomised responses, given with their weights."""
        (epsilon1, weight1), (epsilon2, weight2) = responses
        plus1, minus1 = signs(epsilon1)
        plus2, minus2 = signs(epsilon2)
        return cls(weight1 * plus1, weight1 * minus1, weight2 * plus2, weight2 * minus2)

    @property
    def of_v0(self) -> float:
        """Return the chance of v = 0 (``_law_of_two_epsilons``): of -ε1 or +ε2."""
        return self.plus2 + self.minus1

    @property
    def of_v1(self) -> float:
        """Return the chance of v = 1: of +ε1 or -ε2."""
        return self.plus1 + self.minus2


def _law_of_several_epsilons(responses: WeightedEpsilons, count: int, loss_error: float) -> LossLaw:
    """Return the law of the sum of draws from a mixture of more than two ε's: the number of draws
    that have one of the first two ε's is binomial, and all others have one of the rest (Conjecture
    1).

    Args:
        responses: the mixture, by falling ε.
        count: the number of draws.
        loss_error: a bound on the error of each loss.
    """
    first = responses[:2]
    others = responses[2:]
    weight_of_first = sum(weight for _, weight in first)
    weight_of_others = sum(weight for _, weight in others)
    # The law of the number of draws from the first two.
    picks = convolution_power(IntegerLaw(np.array([weight_of_others, weight_of_first])), count)
    first = _with_divided_weights(first, weight_of_first)
    others = _with_divided_weights(others, weight_of_others)
    laws = [_law_of_draws(first, j, others, count - j) for j in range(count + 1)]
    picked = zip(picks.up_to(count), laws, strict=True)
    return LossLaw.from_unsorted(
        losses=np.concatenate([law.losses for law in laws]),
        masses=np.concatenate([pick * law.masses for pick, law in picked]),
        # Above the sum of the errors of a pick, of the law of the first two ε's, that of the others
        # and the products, for at most MOST_DRAWS_OF_SEVERAL draws.
        mass_error=(16 * len(responses) * count + 64) * ROUNDOFF,
        loss_error=loss_error,
        # The picks add up to 1, so that of the laws at most the largest share is left out.
        lost=max(0.0, *(law.lost for law in laws)) + picks.lost,
    )


def _law_of_draws(
    first: WeightedEpsilons, draws_from_first: int, others: WeightedEpsilons, draws_from_others: int
) -> LossLaw:
    """Return the law of the sum of draws from two mixtures, given how many come from each.

    Args:
        first: the one mixture.
        draws_from_first: how many draws it has.
        others: the other mixture.
        draws_from_others: how many draws it has.
    """
    if not draws_from_others:
        return _law_of_copies(first, draws_from_first)
    if not draws_from_first:
        return _law_of_copies(others, draws_from_others)
    return product(
        _law_of_copies(first, draws_from_first), _law_of_copies(others, draws_from_others)
    )
