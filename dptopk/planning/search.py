"""plan_topk: every design that fits, scaled to the same budget, and the best of them.

A cheap estimate (zCDP, plain sums for pure costs) finds each design's best division of the budget and drops the designs
that are far behind; those that are near the best are scaled to the budget exactly, by ``compose``, and compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from dptopk import _validate as validate
from dptopk._choices import ChargeAs, Counts, Domain, Method
from dptopk.accounting.bounds import Bound, compose
from dptopk.accounting.budget import Budget
from dptopk.accounting.gaussian.pair import gaussian_epsilon, gaussian_mu
from dptopk.errors import IncompatibleCosts, InvalidParameter
from dptopk.histogram import Sensitivity
from dptopk.planning.designs import DESIGNS, METHOD_NAMES, Design
from dptopk.planning.merit import Merit, half_width, merit_of
from dptopk.planning.plan import Phase, Plan, joined, phases_of
from dptopk.planning.request import Request, Split, at_least
from dptopk.planning.shape import Shape

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["default_d_bar", "plan_topk"]

# Estimates err by up to a tenth, most of them less: a design this far behind the best is not looked at.
NEAR = 1.1
CLOSE = 0.05
# How far candidates may be apart by one rough look and still be compared exactly; how much of the budget a candidate
# may leave unspent in the end; how close to the budget one look must be to be extrapolated from.
ROUGH, FINE, CLOSE_LOOK = 0.01, 0.002, 0.15
# What may be left where a last step could lower a threshold.
LAST = 1e-4
MOST_STEPS = 12


@dataclass(frozen=True)
class _Candidate:
    """A design with a division of the budget, at a scale ρ: by estimate, or exactly where ``bound`` is there."""

    design: Design
    split: Split
    rho: float
    phases: tuple[Phase, ...]
    merit: Merit
    bound: Bound | None = None


def plan_topk(  # noqa: PLR0913 - each has a default and a name; only k and the budget are asked of everyone
    k: int,
    budget: Budget | None = None,
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    sensitivity: Sensitivity = Sensitivity(),  # noqa: B008 - immutable
    domain: Domain = "private",
    d_bar: int | None = None,
    counts: Counts | None = "auto",
    method: Method | str = "auto",
    like: Any = None,
    selection_share: float | Literal["best"] | None = None,
    fit: bool = True,
    charge_as: ChargeAs | Literal["auto"] = "auto",
    users: int | None = None,
    max_seconds: float = 1.0,
) -> Plan:
    """The mechanisms that answer "what are the top k, and how many of each?" best for a total (ε, δ).

    Every design that fits is compared at the same budget: noise on all counts or on selected ones, Laplace, Gaussian,
    truncated, centred, over the whole histogram or its top, and divisions of ε and δ between the phases. The best has
    the smallest *merit*, in counts: the standard deviation of a released count plus, in a private domain, how far above
    the floor a label appears with probability 1/2 (of labels without counts: that alone, or the standard deviation of
    the noise that selects them). With ``like``: the root mean square error of a shown count plus the count that the
    answer misses, per row, as simulated on that shape (Plan.outcome).

    Args:
        k: how many labels, at least 1.
        budget: the total; δ = 0 is possible in a public domain. Exactly one of budget and accuracy is given.
        accuracy: ask the other way round: the smallest ε at which 95% of the noise on a count is within ± this many.
        delta: the total δ that goes with ``accuracy``; default 0.
        sensitivity: what one user can move; a finite l0 makes counts cheaper.
        domain: "private" (labels come from the data) or "public" (the label set is known to all).
        d_bar: private domain only: how many of the largest counts may take part, where the histogram is cut to its
            top; must not depend on the data. None: the whole histogram will be at hand; designs that cut it
            themselves do so at 10 k, at least 100.
        counts: "auto" for whichever noise is best, "gaussian", "laplace", or None (or "none") for labels only.
        method: "auto", "peel" (select, then count), "threshold" (noise on all counts, keep the k largest), "whole" (the
            labels of a public domain drawn at once), or the name of a design as ``alternatives`` has it.
        like: counts of the shape that is expected, public or already released (an earlier Release: planning by it is
            post-processing, and free): a public Histogram, a Release, or a sequence of counts.
        selection_share: in (0, 1): the share of the zCDP budget that a peel spends on its selections; "best": the one
            with the smallest merit, which in a private domain lowers thresholds at the price of noisier counts; None =
            1/2, or the best for ``like``.
        charge_as: what Gumbel selections pay for: "bounded_range" (k selections), "clocks" (the labels one user
            touches: less where they are few and k is large, but only a registration can pay for it, not a filter), or
            "auto" for what is less.
        users: how many users there are, where that is public: a δ above 1/users is warned of.
        fit: draw the counts of a peel towards the order of selection (CountMLE), as far as that never hurts.
        max_seconds: for each evaluation of the composition; more of it helps for k in the hundreds and above, where
            the optimal bound takes longer than this to refine and a plan may otherwise spend a few percent less.

    Returns:
        Plan: its composition under the tightest valid bound is at most budget.epsilon at budget.delta (an upper bound),
        and close to it. ``alternatives`` lists the others, ``explain()`` says why this one.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that no parameter can meet.
    """
    if domain == "public" and d_bar is not None:
        raise InvalidParameter("d_bar is for private domains: in a public one every label takes part")
    epsilon, accuracy, total = _total(budget, accuracy, delta)
    request = Request(
        k=validate.count(k=k),
        epsilon=epsilon,
        delta=total,
        accuracy=accuracy,
        sensitivity=sensitivity,
        domain=domain,
        d_bar=default_d_bar(k) if d_bar is None else d_bar,
        whole=d_bar is None,
        counts="none" if counts is None else counts,
        method=validate.member(METHOD_NAMES, method=method),
        selection_share=selection_share,
        fit=fit,
        shape=None if like is None else Shape.of(like),
        charge_as=charge_as,
        users=users,
    )
    designs = [design for design in DESIGNS if not design.misfit(request)]
    if not designs:
        raise InvalidParameter(_nothing_fits(request))
    guesses = [_guess(request, design) for design in designs]
    rough = [_roughly(request, guess, max_seconds) for guess in _near(request, guesses)]
    near = (1 + ROUGH) * min(_rank(request, found) for found in rough)
    fine = [_exactly(request, found, max_seconds) for found in rough if _rank(request, found) <= near]
    best = _first(request, fine)
    return _plan(request, best, designs, max_seconds)


def default_d_bar(k: int) -> int:
    """How many of the largest counts take part where a histogram is cut and nothing was said: 10 k, at least 100."""
    return max(10 * validate.count(k=k), 100)


def _near(request: Request, guesses: list[_Candidate]) -> list[_Candidate]:
    """The candidates that may be the best: within NEAR of the best estimate, and of one selection within CLOSE.

    Selections with one division of the budget and one kind of noise differ in nothing but how the counts are measured.
    """
    best = min(guesses, key=lambda guess: _rank(request, guess))
    least = _rank(request, best)

    def limit(guess: _Candidate) -> float:
        same_noise = guess.design.noise == best.design.noise
        alike = same_noise and guess.design.method == best.design.method == "peel" and guess.split == best.split
        if not alike or request.epsilon is None or best.merit.noise_std is None:
            return NEAR * least
        return least + CLOSE * best.merit.noise_std

    return [guess for guess in guesses if _rank(request, guess) <= limit(guess)]


def _first(request: Request, fine: list[_Candidate]) -> _Candidate:
    """The best; of those that are as good to the precision of a plan, the one with the least noise on a count."""
    least = min(_rank(request, found) for found in fine)
    tied = [found for found in fine if _rank(request, found) <= least * (1 + FINE)]
    return min(tied, key=lambda found: (found.merit.noise_std or 0.0, _rank(request, found)))


def _rank(request: Request, found: _Candidate) -> float:
    """What is compared: ε where an accuracy was asked for, else the merit."""
    if request.epsilon is None and found.bound is not None:
        return found.bound.epsilon
    return _estimate(found, request) if request.epsilon is None else found.merit.total


def _guess(request: Request, design: Design) -> _Candidate:
    """The best division of the budget for a design, by estimate."""
    found = []
    for split in design.splits(request):
        rho = _accurate(request, design, split) if request.epsilon is None else _affordable(request, design, split)
        found.append(_at(request, design, split, rho))
    return min(found, key=lambda candidate: (_rank(request, candidate), abs(candidate.split.threshold - 0.5)))


def _at(request: Request, design: Design, split: Split, rho: float) -> _Candidate:
    phases = phases_of(request, design.build(request, split, rho), design.method)
    return _Candidate(design, split, rho, phases, merit_of(request, tuple(phase.mechanism for phase in phases)))


def _affordable(request: Request, design: Design, split: Split) -> float:
    """About the largest ρ that the budget affords: that of a Gaussian, or by plain sums where costs are pure."""
    assert request.epsilon is not None  # noqa: S101 - for the type checker
    rest = design.left(request, split)
    rho = _gaussian(request.epsilon, rest) if rest else 0.0
    if design.pure:
        at_one = joined(phases_of(request, design.build(request, split, 1.0), design.method))
        rho = max(rho, (request.epsilon / _basic(at_one)) ** 2)
    return rho


@lru_cache(maxsize=64)
def _gaussian(epsilon: float, delta: float) -> float:
    """μ²/2 of the Gaussian with this (ε, δ), which nearly all compositions are close to."""
    return gaussian_mu(epsilon, delta) ** 2 / 2


def _basic(charge: Any) -> float:
    try:
        return compose(charge, delta=charge.delta, bound="basic").epsilon
    except IncompatibleCosts:
        return math.inf


def _estimate(found: _Candidate, request: Request) -> float:
    """About the ε that a candidate costs: that of a Gaussian of μ² = 2ρ, or the plain sum where costs are pure."""
    rest = found.design.left(request, found.split)
    epsilon = float(gaussian_epsilon(rest, math.sqrt(2 * found.rho))) if rest else math.inf
    return min(epsilon, _basic(joined(found.phases))) if found.design.pure else epsilon


def _accurate(request: Request, design: Design, split: Split) -> float:
    """The smallest ρ at which 95% of the noise on a count is within the accuracy, to a thousandth."""

    def reached(rho: float) -> bool:
        return half_width(design.build(request, split, rho)[-1], request.sensitivity) <= (request.accuracy or 0)

    high = 1.0
    while not reached(high):
        high *= 4
    low = high / 4
    while low > 1e-12 and reached(low):
        low, high = low / 4, low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _roughly(request: Request, guess: _Candidate, max_seconds: float) -> _Candidate:
    """The candidate at its accuracy, with its ε; or about at the budget, by extrapolation from one look near it.

    ε grows about as the root of ρ: from an ε within CLOSE_LOOK of the budget the error is below a per cent.
    """
    found = guess
    for _ in range(MOST_STEPS):
        bound = compose(joined(found.phases), delta=request.delta, rtol=ROUGH / 2, max_seconds=max_seconds)
        if request.epsilon is None:
            return replace(found, bound=bound)
        found = _at(request, guess.design, guess.split, found.rho * _step(request.epsilon, bound.epsilon))
        if abs(bound.epsilon / request.epsilon - 1) <= CLOSE_LOOK:
            break
    return found


def _step(aim: float, epsilon: float) -> float:
    """By what to multiply ρ, where it costs ``epsilon``, so that it costs about ``aim``."""
    return min(max((aim / epsilon) ** 2, 1e-3), 1e3) if epsilon > 0 else 4.0


def _exactly(request: Request, guess: _Candidate, max_seconds: float) -> _Candidate:
    """The candidate with its ε by the tightest bound: at its accuracy, or scaled to within FINE of the budget.

    A few steps are enough. Where they end elsewhere (a bound that had less time, the rounding of parameters), the
    largest ρ found that is within the budget is taken.
    """
    rho, best = guess.rho, None
    for number in range(MOST_STEPS):
        found = _at(request, guess.design, guess.split, rho)
        # By what ``compose`` says when it is asked without further options.
        bound = compose(joined(found.phases), delta=request.delta, rtol=FINE / 2, max_seconds=max(10.0, max_seconds))
        found = replace(found, bound=bound)
        if request.epsilon is None or request.epsilon * (1 - FINE) <= bound.epsilon <= request.epsilon:
            return _with_lower_threshold(request, found) if guess.design.joint else found
        if bound.epsilon <= request.epsilon and (best is None or rho > best.rho):
            best = found
        rho *= _step(request.epsilon * (1 - FINE * (1 if best is None and number > 3 else 0.3)), bound.epsilon)
    if best is None:
        raise InvalidParameter(f"budget ({request.epsilon:g}, {request.delta:g}) is too small: no noise fits")
    return best


def _with_lower_threshold(request: Request, found: _Candidate) -> _Candidate:
    """The same with what is left of the budget, if that makes the threshold an integer lower."""
    if request.epsilon is None or found.bound is None:
        return found
    other = _at(
        request, found.design, found.split, found.rho * _step(request.epsilon * (1 - LAST), found.bound.epsilon)
    )
    if other.merit.threshold == found.merit.threshold:
        return found
    bound = compose(joined(other.phases), delta=request.delta)
    return replace(other, bound=bound) if bound.epsilon <= request.epsilon else found


def _plan(request: Request, best: _Candidate, designs: list[Design], max_seconds: float) -> Plan:
    assert best.bound is not None  # noqa: S101 - the best was scaled exactly
    epsilon = at_least(best.bound.epsilon) if request.epsilon is None else request.epsilon

    def alternatives() -> pd.DataFrame:
        import pandas as pd

        exact = [_exactly(request, _guess(request, design), max_seconds) for design in designs]
        exact.sort(key=lambda found: _rank(request, found))
        return pd.DataFrame([_row(request, found, found.design is best.design) for found in exact])

    return Plan(
        k=request.k,
        budget=Budget(epsilon, request.delta),
        sensitivity=request.sensitivity,
        domain=request.domain,
        phases=best.phases,
        bound=best.bound,
        split=_in_words(request, best),
        counted=request.counted,
        design=best.design.name,
        why=_why(request, best, len(designs)),
        outcome=best.merit.outcome,
        swapped=best.merit.swapped,
        users=request.users,
        compared=alternatives,
    )


def _row(request: Request, found: _Candidate, chosen: bool) -> dict[str, Any]:
    assert found.bound is not None  # noqa: S101 - alternatives are scaled exactly
    row = {
        "design": found.design.name,
        "chosen": chosen,
        "merit": found.merit.total,
        "epsilon": found.bound.epsilon,
        "delta": request.delta,
        "noise_std": found.merit.noise_std,
        "threshold": found.merit.threshold,
        "appears_at_half": found.merit.appears_at,
        "swapped": found.merit.swapped,
        "selection_share": found.split.selection,
        "threshold_share": found.split.threshold,
    }
    if found.merit.outcome is not None:
        seen = found.merit.outcome
        row |= {"error": seen.error, "missed": seen.missed, "recall": seen.recall, "rows": seen.rows}
    return row | {"mechanisms": " then ".join(str(phase.mechanism) for phase in found.phases)}


def _in_words(request: Request, best: _Candidate) -> str:
    """The division of the budget in words."""
    parts = []
    if len(best.phases) > 1:
        parts.append(f"{best.split.selection:.0%} of the zCDP budget for the selections, the rest for the counts")
    if best.design.joint:
        parts.append("the threshold and the noise share one δ")
    elif request.domain == "private":
        rest = "the rest for the composition" if best.split.threshold < 1 else "none is left for the composition"
        parts.append(f"δ = {best.split.threshold * request.delta:g} for the threshold, {rest}")
    return "; ".join(parts) or "everything for one phase"


def _why(request: Request, best: _Candidate, compared: int) -> str:
    if request.epsilon is None:
        return f"the smallest ε of {compared} designs for 95% of the noise within ±{request.accuracy:g}"
    if not math.isfinite(best.merit.total):
        return "the one that was asked for; how well it does depends on the counts"
    return f"the smallest of {compared} designs in {best.merit.words}: {best.merit.total:.4g} counts"


def _nothing_fits(request: Request) -> str:
    """Why no design is left: the argument to change first."""
    if request.domain == "private" and request.delta == 0:
        return "budget.delta must be above 0: hiding which labels exist costs some δ"
    reasons = {design.misfit(request) for design in DESIGNS if design.domain == request.domain}
    if request.method == "threshold" and request.sensitivity.l0 is None:
        return "method='threshold' needs a finite l0 (labels per user)"
    if request.counts == "gaussian" and request.delta == 0:
        return "budget.delta must be above 0 for counts='gaussian'; use counts='laplace'"
    return f"no design fits this method and these counts: {'; '.join(sorted(reasons))}"


def _total(
    budget: Budget | None, accuracy: float | None, delta: float | None
) -> tuple[float | None, float | None, float]:
    """(ε, accuracy, δ), one of the first two being None."""
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    if budget is None:
        return None, validate.positive(accuracy=accuracy), validate.probability(delta=delta or 0.0)
    if delta is not None:
        raise InvalidParameter("delta goes with accuracy; a budget has its own")
    total = validate.instance(Budget, budget=budget)
    return total.epsilon, None, total.delta
