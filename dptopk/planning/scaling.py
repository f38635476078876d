"""Candidates: designs with a division of the budget, scaled to the budget.

The scale is the ρ of zCDP for which a design builds its mechanisms. It is found by a cheap estimate
first, then roughly by one composition, and in the end exactly by the tightest valid bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from dptopk._internal.choices import Effort
from dptopk._internal.search import bisect, bracket
from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_epsilon
from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.gaussian.pair import gaussian_epsilon
from dptopk.accounting.registry import Bound
from dptopk.costs import BoundedRange, Charge
from dptopk.errors import InvalidParameter
from dptopk.mechanisms.samplers.simulation import BLOCK_DRAWS
from dptopk.planning.designs import Design, Mechanisms, gaussian_rho
from dptopk.planning.request import Request, Split
from dptopk.planning.shape import Outcome, Shape
from dptopk.planning.topk_plan import Phase, joint_charge, phases_of

# Candidates are compared exactly where a rough composition puts them no further apart than the
# first share; those no further apart than the second one in the end count as equally good.
ROUGH = 0.01
FINE = 0.002
# A composition with an ε this close to the budget's, as a share, is extrapolated from: the error is
# a few thousandths then.
CLOSE_TO_BUDGET = 0.15
# The default of ``compose``, so that users who compose the charge themselves see the same ε.
EXACT_RTOL = 1e-3
# Where no shape is given, chances of a swap are those of counts that fall as this over the rank.
REFERENCE = 1e4
# The largest share of the budget that a candidate may leave unspent in the end; the next scale is
# aimed to leave a third of it, so that small errors lead neither above the budget nor below this
# share.
UNSPENT = 0.001
SPARE_SHARE = 3e-4
# The share aimed at after a rough composition, whose ε is a little too large itself.
COARSE_SPARE = 1e-4
LARGEST_RANGE = 700.0  # the largest range whose exponential a float can hold, but for a margin
SQRT_2 = math.sqrt(2)
# The deviations of a normal law beyond which its tail is 0 as a float; and the relative error to
# which the ε of a Gaussian is found, small beside that of the estimate it is for.
FARTHEST = 38.0
ROUGH_RTOL = 1e-5
# Steps by which a candidate is scaled to the budget. The rule of ``_rho_factor`` is exact but for
# how far a composition is from a Gaussian's, so that a few steps suffice; the rest is for costs
# that jump, where parameters are rounded.
MOST_STEPS = 12
# Steps by which pure costs are scaled: each ε grows as the root of ρ or, of a clock or box noise,
# nearly so, so that fewer suffice.
PURE_STEPS = 6
# After this number of steps without a candidate within the budget a larger share of it is left.
STEPS_WITH_LITTLE_SPARE = 4
# No step changes ρ by more than these factors; the last one is taken where the composed ε is 0,
# from which no factor follows.
LARGEST_FACTOR = 1e3
SMALLEST_FACTOR = 1e-3
FACTOR_OF_NO_COST = 4.0
# The ρ for an accuracy is searched from 1 on, by this factor, and found to a thousandth.
FIRST_RHO = 1.0
BRACKET_FACTOR = 4.0
LEAST_RHO = 1e-12
ACCURACY_RTOL = 1e-3


@dataclass(frozen=True)
class Candidate:
    """A design with a division of the budget, at a scale ρ.

    Attributes:
        request: the question with its total.
        design: which kinds of mechanisms run.
        split: the division of the budget among them.
        rho: the scale: the zCDP budget for which the design builds its mechanisms.
        mechanisms: those that the bound is of; a guard may cut what a design builds, so that the
            same call need not build the same twice.
        draws: the least number of simulated answers by which the design is judged on one shape.
        bound: the composition of the mechanisms, an upper bound; None where the cost is only
            estimated.
    """

    request: Request
    design: Design
    split: Split
    rho: float
    mechanisms: Mechanisms
    draws: int = BLOCK_DRAWS
    bound: Bound | None = None

    def at(self, rho: float, split: Split | None = None) -> Candidate:
        """Return the design at another scale, without a bound.

        Args:
            rho: the scale.
            split: another division of the budget; None: the same.
        """
        split = split or self.split
        return replace(
            self,
            split=split,
            rho=rho,
            mechanisms=self.design.build(self.request, split, rho),
            bound=None,
        )

    @property
    def charge(self) -> Charge:
        """Return the most that all phases together can cost."""
        return joint_charge([phase.charge for phase in self.phases])

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Return the mechanisms with the most that each can cost."""
        return phases_of(self.request, self.mechanisms, self.design.method)

    @cached_property
    def outcome(self) -> Outcome | None:
        """Return the design's estimated results on the shape that was given, else their means on
        the shapes of ``request.mixture``; None where they depend on gaps between counts and no
        shape was given.
        """
        request = self.request
        arguments = (self.mechanisms, request.k, request.sensitivity, request.counted)
        if isinstance(request.shape, Shape):
            return request.shape.outcome(*arguments, self.draws)
        predictable = self.design.additive or self.mechanisms[0].open_ended
        if predictable or request.shape is not None:
            return request.mixture.outcome(*arguments)
        return None

    @property
    def loss(self) -> float:
        """Return the predicted loss, in counts (``Outcome.loss``); inf where it depends on gaps
        between counts that nobody knows.
        """
        if self.outcome is None:
            return math.inf
        return self.outcome.loss

    @cached_property
    def least_loss(self) -> float:
        """Return a lower bound of the loss that takes less time, by the noise on counts alone; 0
        where an accuracy was asked for, so that losses are not compared, and where they are
        simulated.
        """
        request = self.request
        if request.epsilon is None or isinstance(request.shape, Shape):
            return 0.0
        return request.mixture.least_loss(
            self.mechanisms, request.k, request.sensitivity, request.counted
        )

    @property
    def doubt(self) -> float:
        """Return two standard errors of a simulated loss; 0 for one in closed form."""
        if self.outcome is None:
            return 0.0
        return 2 * self.outcome.deviation

    @property
    def criterion(self) -> float:
        """Return the number by which candidates are compared, the smaller the better: ε, by the
        bound or an estimate, if an accuracy was requested, otherwise the loss.
        """
        if self.request.epsilon is not None:
            return self.loss
        if self.bound is None:
            return _estimated_epsilon(self)
        return self.bound.epsilon

    @property
    def noise_std(self) -> float | None:
        """Return the standard deviation of the noise on a released count; None where none is
        released.
        """
        request = self.request
        if request.counted:
            return self.mechanisms[-1].count_noise(request.sensitivity, labels=request.k)
        return None

    @property
    def threshold(self) -> int | None:
        """Return the lead over the floor that a noisy count must exceed; None in a public domain,
        and for coins.
        """
        return self.mechanisms[0].threshold_offset(self.request.sensitivity)

    @property
    def swapped(self) -> float | None:
        """Return the chance that the label of rank 2k is placed before that of rank k, on a given
        shape or on REFERENCE/rank; None where it is not known in closed form.
        """
        k = self.request.k
        shape = self.request.shape
        gap = shape.gap(k) if isinstance(shape, Shape) else REFERENCE / (2 * k)
        return self.mechanisms[0].swap_chance(self.request.sensitivity, gap)


def at_budget(request: Request, design: Design, split: Split) -> Candidate:
    """Return the candidate of a design and a division, at about the largest ρ that the budget
    affords or, where an accuracy was asked for, at the least ρ of that accuracy.
    """
    if request.epsilon is None:
        rho = _rho_for_accuracy(request, design, split)
    else:
        # Without the shape, on which ρ does not depend: so a plan after a look finds what was
        # cached for the plan without one.
        rho = affordable_rho(replace(request, shape=None), design, split)
    return Candidate(request, design, split, rho, design.build(request, split, rho))


@lru_cache(maxsize=2048)
def affordable_rho(request: Request, design: Design, split: Split) -> float:
    """Return an estimate of the largest ρ that the budget affords: that of a Gaussian of the
    budget's (ε, δ); where all costs are ε-DP, the larger one of this and of the ρ at which
    ``_sum_of_costs`` is the budget's ε.

    Args:
        request: a question with a total ε.
        design: which kinds of mechanisms run.
        split: the division of the budget among them.

    Raises:
        InvalidParameter: for a budget so small that its ρ is 0 as a float.
    """
    assert request.epsilon is not None  # noqa: S101 - for the type checker
    rest = design.composition_delta(request, split)
    rho = gaussian_rho(request.epsilon, rest) if rest else 0.0
    if max(rho, request.epsilon**2) == 0:  # the ρ of pure costs grows as ε²
        raise InvalidParameter(
            f"budget ({request.epsilon:g}, {request.delta:g}) is too small: no noise fits"
        )
    if not design.pure:
        return rho
    rho_of_sum = 1.0
    # One step is enough where all parameters grow as the root of ρ.
    for _ in range(PURE_STEPS):
        mechanisms = design.build(request, split, rho_of_sum)
        phases = phases_of(request, mechanisms, design.method)
        ratio = request.epsilon / _sum_of_costs(design, phases, rest)
        if ratio == 0:  # a cost has no ε, so that the Gaussian's ρ stays
            return rho
        if abs(ratio - 1) < FINE:
            break
        rho_of_sum *= ratio**2
    return max(rho, rho_of_sum)


def _sum_of_costs(design: Design, phases: tuple[Phase, ...], delta: float) -> float:
    """Return the plain sum of the ε's of all costs; for selections before box counts, with a δ, the
    smaller one of this sum and of an estimate: about the optimal ε of the selections at ``delta``,
    plus the ε of the box counts.

    Args:
        design: which kinds of mechanisms run.
        phases: its phases, with the charge of each.
        delta: the δ of the composition; 0: the plain sum alone is known.
    """
    # The exact sum is rounded once, so that phases need not be joined first.
    whole = pure_sum(cost for phase in phases for cost in phase.charge)
    if design.noise != "box" or not delta:
        return whole
    ((cost, times),) = phases[0].charge.costs.items()
    if not isinstance(cost, BoundedRange) or cost.epsilon > LARGEST_RANGE:
        return whole
    # The optimum is estimated by that of a Gaussian with the same ρ, times the ratio of both at the
    # nearest power of two: few ratios are computed, and each is cached.
    nearest = 2.0 ** round(math.log2(cost.epsilon))
    gaussian = _epsilon_of_gaussian_of_same_rho(cost.epsilon, times, delta)
    selections = gaussian * _ratio_to_gaussian(nearest, times, delta)
    return min(whole, selections + pure_sum(phases[1].charge))


@lru_cache(maxsize=1024)
def _ratio_to_gaussian(epsilon: float, times: int, delta: float) -> float:
    """Return the optimal ε of ``times`` selections over that of a Gaussian with the same ρ.

    Args:
        epsilon: that of each selection, a bounded range.
        times: how many selections there are.
        delta: at which both are stated.
    """
    of_selections = float(br_nonadaptive_epsilon(epsilon, times, delta=delta))
    return of_selections / _epsilon_of_gaussian_of_same_rho(epsilon, times, delta)


@lru_cache(maxsize=1024)
def _epsilon_of_gaussian_of_same_rho(epsilon: float, times: int, delta: float) -> float:
    """Return about the ε of a Gaussian whose ρ is that of ``times`` selections: ε²/8 for each.

    Args:
        epsilon: that of each selection, a bounded range.
        times: how many selections there are.
        delta: at which the Gaussian is stated.
    """
    mu = epsilon * math.sqrt(times) / 2

    def too_small(total: float) -> bool:
        """Return whether the Gaussian has a δ above ``delta`` at this ε.

        That δ is Q(ε/μ - μ/2) - e^ε Q(ε/μ + μ/2), with Q the tail of the normal law.
        """
        first = math.erfc((total / mu - mu / 2) / SQRT_2) / 2
        second = math.erfc((total / mu + mu / 2) / SQRT_2) / 2
        return not first - math.exp(min(total, LARGEST_RANGE)) * second <= delta

    # The tail of the loss beyond this is smaller than any δ in use.
    most = mu * (mu / 2 + FARTHEST)
    return bisect(too_small, 0.0, most, rtol=ROUGH_RTOL)[1]


def _estimated_epsilon(candidate: Candidate) -> float:
    """Return about the ε that a candidate costs at its δ: that of a Gaussian of μ² = 2ρ; where all
    costs are ε-DP, the smaller one of this and of ``_sum_of_costs``.
    """
    rest = candidate.design.composition_delta(candidate.request, candidate.split)
    if rest:
        epsilon = float(gaussian_epsilon(math.sqrt(2 * candidate.rho), delta=rest))
    else:
        epsilon = math.inf
    if candidate.design.pure:
        return min(epsilon, _sum_of_costs(candidate.design, candidate.phases, rest))
    return epsilon


def _rho_for_accuracy(request: Request, design: Design, split: Split) -> float:
    """Return the smallest ρ, to ACCURACY_RTOL, at which 95% of the noise on a count is within the
    accuracy that was asked for.

    Args:
        request: a question with an accuracy.
        design: which kinds of mechanisms run; the last one shows counts.
        split: the division of ρ among them.
    """

    def too_small(rho: float) -> bool:
        """Return whether the noise on counts is wider than the accuracy at this ρ."""
        counting = design.build(request, split, rho)[-1]
        width = counting.count_width(request.sensitivity, labels=request.k)
        # For the type checker: the design shows counts, and an accuracy was asked for.
        return width is None or not width <= (request.accuracy or 0)

    low, high = bracket(too_small, FIRST_RHO, BRACKET_FACTOR, least=LEAST_RHO)
    return bisect(too_small, low, high, rtol=ACCURACY_RTOL, geometric=True)[1]


def scale_coarse(candidate: Candidate) -> Candidate:
    """Return the candidate scaled to about the budget, by extrapolation from one composition near
    it, without a bound; where an accuracy was asked for, as it is, with a bound.

    From an ε within CLOSE_TO_BUDGET of the budget the error is a few thousandths at most.
    """
    request = candidate.request
    spare = COARSE_SPARE if request.delta else 0.0  # pure costs are scaled exactly
    for _ in range(MOST_STEPS):
        bound = compose(
            candidate.charge, delta=request.delta, rtol=ROUGH / 2, effort="quick", lower=False
        )
        if request.epsilon is None:
            return replace(candidate, bound=bound)
        candidate = candidate.at(candidate.rho * _rho_factor(candidate, bound.epsilon, spare))
        if abs(bound.epsilon / request.epsilon - 1) <= CLOSE_TO_BUDGET:
            break
    return candidate


def _rho_factor(candidate: Candidate, epsilon: float, spare: float = SPARE_SHARE) -> float:
    """Return the factor by which ρ is to be multiplied so that the candidate costs the budget's ε,
    less a spare share.

    It is the quotient of the ρ's of two Gaussians, with the ε aimed at and with the present one,
    at the composition's δ, since a Gaussian is close to most compositions. Without a δ, where
    ε-DP costs alone have a bound, ε is taken to grow as the root of ρ.

    Args:
        candidate: the candidate at its present ρ; its request has a total ε.
        epsilon: the ε that it costs.
        spare: the share of the budget that is to be left.
    """
    request = candidate.request
    assert request.epsilon is not None  # noqa: S101 - for the type checker
    if epsilon == 0:
        return FACTOR_OF_NO_COST
    if not 0 < epsilon < math.inf:  # there is no bound at this ρ: much less is tried
        return SMALLEST_FACTOR
    aim = request.epsilon * (1 - spare)
    delta = candidate.design.composition_delta(request, candidate.split)
    if delta:
        ratio = gaussian_rho(aim, delta) / gaussian_rho(epsilon, delta)
    else:
        ratio = (aim / epsilon) ** 2
    return min(max(ratio, SMALLEST_FACTOR), LARGEST_FACTOR)


def scale_exact(candidate: Candidate, effort: Effort) -> Candidate:
    """Return the candidate with its ε by the tightest bound: as it is where an accuracy was asked
    for, else scaled until the ε is within the budget and leaves at most UNSPENT of it.

    Where MOST_STEPS steps do not end there (parameters are rounded, so that ε jumps), the largest
    ρ seen within the budget is taken.

    Args:
        candidate: a candidate at about the right scale.
        effort: what ``compose`` may do for a tight bound.

    Raises:
        InvalidParameter: when no step was within the budget.
    """
    request = candidate.request
    best = None
    for number in range(MOST_STEPS):
        bound = compose(
            candidate.charge, delta=request.delta, rtol=EXACT_RTOL, effort=effort, lower=False
        )
        candidate = replace(candidate, bound=bound)
        if request.epsilon is None:
            return candidate
        if request.epsilon * (1 - UNSPENT) <= bound.epsilon <= request.epsilon:
            return candidate
        if bound.epsilon <= request.epsilon and (best is None or candidate.rho > best.rho):
            best = candidate
        spare = SPARE_SHARE
        if best is None and number >= STEPS_WITH_LITTLE_SPARE:
            spare = UNSPENT
        candidate = candidate.at(candidate.rho * _rho_factor(candidate, bound.epsilon, spare))
    if best is None:
        raise InvalidParameter(
            f"budget ({request.epsilon:g}, {request.delta:g}) is too small: no noise fits"
        )
    return best
