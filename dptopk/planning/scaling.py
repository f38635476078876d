"""A design at the scale of a budget: by a cheap estimate, roughly, or exactly by the tightest valid bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from dptopk._internal.choices import Effort
from dptopk._internal.search import bisect, bracket
from dptopk.accounting.bounded_range.nonadaptive import br_nonadaptive_epsilon
from dptopk.accounting.bounds import compose
from dptopk.accounting.cost_models.conversions import pure_sum
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.accounting.registry import Bound
from dptopk.costs import BoundedRange
from dptopk.errors import InvalidParameter
from dptopk.planning.designs import Design, Mechanisms
from dptopk.planning.merit import Merit, merit_of
from dptopk.planning.plan import Phase, joined, phases_of
from dptopk.planning.request import Request, Split
from dptopk.planning.shape import Shape

# How far candidates may be apart by one rough look and still be compared exactly, and in the end; how close to the
# budget one look must be to be extrapolated from.
ROUGH, FINE, CLOSE_TO_BUDGET = 0.01, 0.002, 0.15
# What share of the budget a candidate may leave unspent in the end, and what share is left when it is aimed at.
UNSPENT, SPARE_SHARE = 0.001, 3e-4
# The same after a rough look, which is a little too large itself.
COARSE_SPARE = 1e-4
LARGEST_RANGE = 700.0  # that the optimum of selections takes
MOST_STEPS, PURE_STEPS = 12, 6


@dataclass(frozen=True)
class Candidate:
    """A design with a division of the budget, at a scale ρ: by estimate, or exactly where ``bound`` is there."""

    design: Design
    split: Split
    rho: float
    mechanisms: Mechanisms
    merit: Merit
    bound: Bound | None = None

    def phases(self, request: Request) -> tuple[Phase, ...]:
        """The mechanisms with what they can cost, for candidates that are priced."""
        return phases_of(request, self.mechanisms, self.design.method)


def evaluate(request: Request, design: Design) -> list[Candidate]:
    """The design with each division of the budget, by estimate."""
    scale = _accurate if request.epsilon is None else affordable
    splits = design.splits(request)
    scales = map(partial(scale, request, design), splits)
    return list(map(partial(at_scale, request, design), splits, scales))


def refine(request: Request, found: Candidate, draws: int) -> Candidate:
    """Return the candidate with its merit on a shape from n draws."""
    if not isinstance(request.shape, Shape):
        return found
    return replace(found, merit=merit_of(request, found.mechanisms, draws))


def criterion(request: Request, found: Candidate) -> float:
    """The compared value: ε if an accuracy was requested, otherwise the merit."""
    if request.epsilon is None and found.bound is not None:
        return found.bound.epsilon
    return _estimate(found, request) if request.epsilon is None else found.merit.total


def at_scale(request: Request, design: Design, split: Split, rho: float) -> Candidate:
    """The design at a scale ρ; its merit on one shape from a few draws, else in closed form."""
    mechanisms = design.build(request, split, rho)
    return Candidate(design, split, rho, mechanisms, merit_of(request, mechanisms))


def affordable(request: Request, design: Design, split: Split) -> float:
    """About the largest ρ that the budget affords: that of a Gaussian, or by plain sums where costs are pure."""
    assert request.epsilon is not None  # noqa: S101 - for the type checker
    rest = design.left(request, split)
    rho = _gaussian(request.epsilon, rest) if rest else 0.0
    if design.pure:
        pure, ratio = 1.0, math.inf
        for _ in range(PURE_STEPS):  # one is enough where all parameters grow as the root of ρ
            phases = phases_of(request, design.build(request, split, pure), design.method)
            ratio = request.epsilon / _plain(design, phases, rest)
            if ratio == 0 or abs(ratio - 1) < FINE:
                break
            pure *= ratio**2
        rho = max(rho, pure * (ratio > 0))
    return rho


@lru_cache(maxsize=64)
def _gaussian(epsilon: float, delta: float) -> float:
    """μ²/2 of the Gaussian with this (ε, δ), which nearly all compositions are close to."""
    return gaussian_mu(epsilon=epsilon, delta=delta) ** 2 / 2


def _plain(design: Design, phases: tuple[Phase, ...], delta: float) -> float:
    """The plain sum of the costs; box counts add their one cost to the optimum of the selections."""
    whole = pure_sum(joined(phases))
    if design.noise != "box" or not delta:
        return whole
    ((cost, times),) = phases[0].charge.costs.items()
    if not isinstance(cost, BoundedRange) or cost.epsilon > LARGEST_RANGE:
        return whole
    selections = float(br_nonadaptive_epsilon(cost.epsilon, times, delta=delta))
    return min(whole, selections + pure_sum(phases[1].charge))


def _estimate(found: Candidate, request: Request) -> float:
    """About the ε that a candidate costs: that of a Gaussian of μ² = 2ρ, or the plain sum where costs are pure."""
    rest = found.design.left(request, found.split)
    epsilon = float(gaussian_epsilon(math.sqrt(2 * found.rho), delta=rest)) if rest else math.inf
    return min(epsilon, _plain(found.design, found.phases(request), rest)) if found.design.pure else epsilon


def _accurate(request: Request, design: Design, split: Split) -> float:
    """The smallest ρ at which 95% of the noise on a count is within the accuracy, to a thousandth."""

    def too_small(rho: float) -> bool:
        width = design.build(request, split, rho)[-1].count_width(request.sensitivity, labels=request.k)
        return width is None or not width <= (request.accuracy or 0)

    return bisect(too_small, *bracket(too_small, 1.0, 4.0, least=1e-12), rtol=1e-3, geometric=True)[1]


def scale_coarse(request: Request, guess: Candidate) -> Candidate:
    """The candidate at its accuracy, with its ε; or about at the budget, by extrapolation from one look near it.

    From an ε within CLOSE_TO_BUDGET of the budget the error is a few thousandths at most.
    """
    found, spare = guess, COARSE_SPARE if request.delta else 0.0  # pure costs are scaled exactly
    for _ in range(MOST_STEPS):
        bound = compose(joined(found.phases(request)), delta=request.delta, rtol=ROUGH / 2, effort="quick", lower=False)
        if request.epsilon is None:
            return replace(found, bound=bound)
        found = at_scale(request, guess.design, guess.split, found.rho * _step(request, guess, bound.epsilon, spare))
        if abs(bound.epsilon / request.epsilon - 1) <= CLOSE_TO_BUDGET:
            break
    return found


def _step(request: Request, found: Candidate, epsilon: float, spare: float = SPARE_SHARE) -> float:
    """By what to multiply ρ, where it costs ``epsilon``, so that it costs the budget but for a share ``spare``.

    As for a Gaussian, which is close to most compositions; ε grows as the root of ρ where costs are pure.
    """
    assert request.epsilon is not None  # noqa: S101 - for the type checker
    aim, rest = request.epsilon * (1 - spare), found.design.left(request, found.split)
    if not 0 < epsilon < math.inf:
        return 4.0 if epsilon == 0 else 1e-3
    ratio = _gaussian(aim, rest) / _gaussian(epsilon, rest) if rest else (aim / epsilon) ** 2
    return min(max(ratio, 1e-3), 1e3)


def scale_exact(request: Request, guess: Candidate, effort: Effort) -> Candidate:
    """The candidate with its ε by the tightest bound: at its accuracy, or scaled to within UNSPENT of the budget.

    A few steps are enough. Where they end elsewhere (the rounding of parameters), the
    largest ρ found that is within the budget is taken.
    """
    rho, best = guess.rho, None
    for number in range(MOST_STEPS):
        found = at_scale(request, guess.design, guess.split, rho)
        # By what ``compose`` says when it is asked without further options.
        bound = compose(joined(found.phases(request)), delta=request.delta, rtol=FINE / 2, effort=effort, lower=False)
        found = replace(found, bound=bound)
        if request.epsilon is None or request.epsilon * (1 - UNSPENT) <= bound.epsilon <= request.epsilon:
            return found
        if bound.epsilon <= request.epsilon and (best is None or rho > best.rho):
            best = found
        rho *= _step(request, found, bound.epsilon, UNSPENT if best is None and number > 3 else SPARE_SHARE)
    if best is None:
        raise InvalidParameter(f"budget ({request.epsilon:g}, {request.delta:g}) is too small: no noise fits")
    return best
