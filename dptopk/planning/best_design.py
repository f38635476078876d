"""plan_topk: every design that fits, scaled to the same budget, and the best of them.

A candidate is a design (which mechanisms run) with a division of the budget among them, at a scale
of the noise. A cheap estimate (zCDP, plain sums for pure costs) finds each design's best division
and drops the designs that are far behind; those that are near the best are scaled to the budget
exactly, by ``compose``, and compared.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from dptopk._internal import validate
from dptopk._internal.choices import EFFORTS, ChargeAs, Counts, Domain, Effort, Method
from dptopk._internal.rounding import ceil_digits
from dptopk.accounting.work import CUT_BY_TIME, late, within
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.planning.designs import Design, all_designs, method_names
from dptopk.planning.mixture import Mixture
from dptopk.planning.request import Request
from dptopk.planning.scaling import FINE, ROUGH, Candidate, at_budget, scale_coarse, scale_exact
from dptopk.planning.selections import largest_gain
from dptopk.planning.shape import Shape
from dptopk.planning.topk_plan import OnePhase

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


# Estimates err by up to a tenth, most of them less: a design that is further behind the best than
# this factor is not composed.
ESTIMATE_MARGIN = 1.1
# The same on a shape, before one composition corrects the scale of each design: the estimated scale
# and the few draws of a first simulation err more. Chosen by hand: a larger one only costs time.
SHAPE_MARGIN = 1.3
# How many answers are simulated for candidates that are still near the best after a few simulated
# answers, and for those that are left in the end; and for how many candidates at most. The standard
# error falls by half from one to the next. Chosen by hand, for the time of a plan.
REFINED_DRAWS = 256
FINAL_DRAWS = 1024
MOST_REFINED = 16
MOST_FINAL = 4
# The largest δ at which several answers are compared. The sum of the δ's of many answers may be 1
# or more, where nothing is compared; any number below 1 serves.
LARGEST_DELTA_OF_ALL = 0.5


# Each argument has a default and a name; only k and the budget are asked of everyone.
def plan_topk(  # noqa: PLR0913
    k: int,
    budget: Budget | None = None,
    *,
    accuracy: float | None = None,
    delta: float | None = None,
    sensitivity: Sensitivity = Sensitivity(),  # noqa: B008
    domain: Domain = "private",
    d_bar: int | None = None,
    counts: Counts | None = "auto",
    method: Method | str = "auto",
    like: Any = None,
    selection_share: float | Literal["best"] | None = None,
    fit: bool = True,
    charge_as: ChargeAs | Literal["auto"] = "auto",
    users: int | None = None,
    effort: Effort = "normal",
    max_seconds: float | None = None,
    times: int = 1,
) -> OnePhase:
    """Return the plan whose mechanisms answer "what are the top k, and how many of each?" best for
    a total (ε, δ).

    Every design that fits is compared at the same budget: noise on all counts or on selected ones,
    Laplace, Gaussian, truncated, centred, over the whole histogram or its top, and divisions of ε
    and δ between the phases. The best has the smallest *merit*, in counts: the root mean square
    error of a shown count plus the count that the answer misses, per row; the geometric mean of
    what a closed form predicts on seven shapes of reference (docs/notes/utility.md), or with
    ``like`` as simulated on that shape (Plan.outcome). Without a shape a peel gives half of its
    budget to the selections, where the product of the noise on a count and of the noise that
    selects is smallest.

    Args:
        k: how many labels, at least 1.
        budget: the total; δ = 0 is possible in a public domain. Exactly one of budget and accuracy
            is given. In ρ: the plan of the largest (ε, δ) found whose charge is within ρ, with a
            mass of failure of at most δ/2.
        accuracy: ask the other way round: the smallest ε at which 95% of the noise on a count is
            within ± this many.
        delta: the total δ that goes with ``accuracy``; default 0.
        sensitivity: what one user can move; a finite l0 makes counts cheaper.
        domain: "private" (labels come from the data) or "public" (the label set is known to all).
        d_bar: private domain only: how many of the largest counts may take part, where the
            histogram is cut to its top; must not depend on the data. None: the whole histogram will
            be at hand; designs that cut it themselves do so at 10 k, at least 100.
        counts: "auto" for whichever noise is best, "gaussian", "laplace", "box", or None (or
            "none") for labels only.
        method: "auto", "peel" (select, then count), "threshold" (noise on all counts, keep the k
            largest), "whole" (the labels of a public domain drawn at once; of a private one all
            that coins show, cut to k in label order), or the name of a design as ``alternatives``
            has it.
        like: counts of the shape that is expected, public or already released (an earlier Release:
            planning by it is post-processing, and free): a public Histogram, a Release, or a
            sequence of counts.
        selection_share: in (0, 1): the share of the zCDP budget that a peel spends on its
            selections; None = 1/2, or the best for ``like``; "best": the one with the smallest
            merit.
        charge_as: what Gumbel selections pay for: "bounded_range" (k selections), "clocks" (the
            labels one user touches: less where they are few and k is large, but only a registration
            can pay for it, not a filter), or "auto" for what is less.
        users: how many users there are, where that is public: a δ above 1/users is warned of.
        fit: whether the counts of a peel are fitted to the order of selection (CountMLE), as far as
            that never makes them worse.
        effort: "quick", "normal" or "thorough": the work of each evaluation of the composition that
            decides, as for ``compose``; more of it helps for k in the hundreds and above.
        times: how many answers there will be. Above 1 the plan is the one whose answers together
            cost least: that for one answer, or one with another kind of noise at the same budget
            for each answer; noise that would be much wider than that of the first plan is compared
            at its width instead. With an accuracy all are compared at that accuracy.
        max_seconds: a guard for the whole search: cut by it the plan is sound but not reproducible,
            and the note of its bound says so.

    Returns:
        OnePhase: its composition under the tightest valid bound is at most budget.epsilon at
        budget.delta (an upper bound), and close to it. ``alternatives`` lists the others,
        ``explain()`` says why this one.

    Raises:
        InvalidParameter: on arguments outside their ranges, or a budget that no parameter can meet.
    """
    # The same question for other totals: of several answers, and of a budget in ρ.
    plan_of_total = partial(
        plan_topk,
        k,
        accuracy=accuracy,
        delta=delta,
        sensitivity=sensitivity,
        domain=domain,
        d_bar=d_bar,
        counts=counts,
        method=method,
        like=like,
        selection_share=selection_share,
        fit=fit,
        charge_as=charge_as,
        users=users,
        effort=effort,
        max_seconds=max_seconds,
    )
    if times != 1:
        return _plan_of_repeated_answers(plan_of_total, budget, counts, times)
    if isinstance(budget, Budget) and budget.rho is not None:
        return _plan_of_rho(plan_of_total, budget, domain, charge_as)
    if domain == "public" and d_bar is not None:
        raise InvalidParameter("d_bar must be left out in a public domain: every label takes part")
    epsilon, accuracy, total_delta = _validated_total(budget, accuracy, delta)
    request = Request(
        k=validate.count(k=k),
        epsilon=epsilon,
        delta=total_delta,
        accuracy=accuracy,
        sensitivity=sensitivity,
        domain=domain,
        d_bar=default_d_bar(k) if d_bar is None else d_bar,
        whole=d_bar is None,
        counts="none" if counts is None else counts,
        method=validate.member(method_names(), method=method),
        shape=_shape_of(like),
        selection_share=selection_share,
        fit=fit,
        charge_as=charge_as,
        users=users,
    )
    designs = _fitting_designs(request)
    validate.member(EFFORTS, effort=effort)
    with within(max_seconds):
        # Only a given shape is simulated, and only a loss: an accuracy fixes the noise.
        if isinstance(request.shape, Shape) and request.epsilon is not None:
            guesses = _candidates_on_a_shape(request, designs)
        else:
            guesses = _candidates_by_estimate(request, designs)
        guesses = [replace(guess, draws=FINAL_DRAWS) for guess in guesses]
        rough = list(map(scale_coarse, guesses))
        # Candidates that the rough composition may have put behind the best are scaled exactly too.
        largest_criterion = (1 + ROUGH) * min(map(attrgetter("criterion"), rough))
        near_the_best = [guess for guess in rough if guess.criterion <= largest_criterion]
        best = _least_noisy_of_the_best([scale_exact(guess, effort) for guess in near_the_best])
        if best.bound is not None and late():
            best = replace(best, bound=replace(best.bound, note=CUT_BY_TIME))
    return _plan_of_candidate(request, best, designs, effort)


def _shape_of(like: Any) -> Shape | Mixture | None:
    """Return the shape that ``like`` of plan_topk states; a look passes a Mixture, as it is."""
    if like is None or isinstance(like, Mixture):
        return like
    return Shape.of(like)


def _plan_of_rho(
    plan_of_total: Callable[..., OnePhase],
    budget: Budget,
    domain: Domain,
    charge_as: ChargeAs | Literal["auto"],
) -> OnePhase:
    """Return the plan for a budget in ρ, by plans of totals in ε and δ.

    Args:
        plan_of_total: a function of ``budget=``, a total in ε and δ, and of ``charge_as=``, what
            selections pay for; it returns the plan.
        budget: in ρ; its δ must be above 0 where labels are private.
        domain: whether the labels are private.
        charge_as: what was asked for; "auto" is bounded range, because clocks have no zCDP.

    Raises:
        InvalidParameter: for a δ of 0 where labels are private; when no plan fits.
    """
    from dptopk.planning.in_rho import plan_in_rho

    if domain == "private" and not budget.delta:
        raise InvalidParameter("budget.delta must be above 0: hiding which labels exist needs a δ")
    charged = "bounded_range" if charge_as == "auto" else charge_as
    return plan_in_rho(budget, lambda total: plan_of_total(budget=total, charge_as=charged))


def _fitting_designs(request: Request) -> list[Design]:
    """Return the designs that fit a request, at least one.

    Raises:
        InvalidParameter: where none fits, with the argument to change first.
    """
    designs = [design for design in all_designs() if not design.misfit(request)]
    if not designs:
        raise InvalidParameter(_reason_for_no_design(request))
    return designs


def _plan_of_repeated_answers(
    plan_of_one: Callable[..., OnePhase], budget: Budget | None, counts: Counts | None, times: int
) -> OnePhase:
    """Return the plan of each of a number of answers whose total ε is least, at a δ of ``times``
    times that of one answer.

    Where the total is in ρ, or the family of noise was stated, it is the plan for one answer.

    Args:
        plan_of_one: plan_topk for one answer, with all arguments but ``budget=`` and ``counts=``,
            or ``accuracy=`` and ``delta=`` in place of the budget.
        budget: the total of one answer; None: an accuracy was asked for.
        counts: the family of noise on counts that was asked for, or "auto".
        times: how many answers.
    """
    from dptopk.planning.repeated import least_total

    times = validate.count(times=times)
    single = plan_of_one(budget=budget)
    in_rho = budget is not None and budget.rho is not None
    if in_rho or counts != "auto":
        return single

    def plan_with_noise_family(family: Counts, width: float | None) -> OnePhase:
        """Return the plan with this family of noise on counts: at the budget, or of the least ε
        with this half-width.
        """
        if width is None or budget is None:
            return plan_of_one(budget=budget, counts=family)
        return plan_of_one(accuracy=width, delta=budget.delta, counts=family)

    delta_of_all = min(times * single.budget.delta, LARGEST_DELTA_OF_ALL)
    return least_total(single, plan_with_noise_family, times, delta_of_all).plan


def default_d_bar(k: int) -> int:
    """Return the default number of largest counts that take part in a truncated histogram: 10 k, at
    least 100.

    Raises:
        InvalidParameter: for a k below 1.
    """
    return max(10 * validate.count(k=k), 100)


def _candidates_on_a_shape(request: Request, designs: list[Design]) -> list[Candidate]:
    """Return the candidates that may be the best on a given shape, at most MOST_FINAL, the best
    first.

    Losses on a shape are simulated. A few answers exclude most candidates; then the divisions of
    the best are varied, and more answers are simulated for those that are left.

    Args:
        request: what was asked for, with a Shape.
        designs: those that fit it.
    """
    divided = [
        at_budget(request, design, split) for design in designs for split in design.splits(request)
    ]
    candidates = _candidates_near_the_best(divided, SHAPE_MARGIN)
    candidates = _candidates_near_the_best(_scaled_by_one_look(candidates), ESTIMATE_MARGIN)
    # A share that was asked for is not varied.
    if not isinstance(request.selection_share, float):
        neighbours = {
            (guess.design.name, split): guess.at(guess.rho, split)
            for guess in candidates[:MOST_FINAL]
            for split in guess.split.neighbours()
        }
        candidates = _candidates_near_the_best([*candidates, *neighbours.values()], ESTIMATE_MARGIN)
    refined = [replace(guess, draws=REFINED_DRAWS) for guess in candidates[:MOST_REFINED]]
    return _candidates_near_the_best(refined, ESTIMATE_MARGIN)[:MOST_FINAL]


def _scaled_by_one_look(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates, each scaled to about the budget: the best one of each design is
    composed, and the factor by which its ρ then changes is taken for all divisions of that design.

    Args:
        candidates: the candidates, the best first.
    """
    factors: dict[str, float] = {}  # of ρ, by the name of the design
    for guess in candidates:
        name = guess.design.name
        if name not in factors:
            factors[name] = scale_coarse(guess).rho / guess.rho
    return [guess.at(guess.rho * factors[guess.design.name]) for guess in candidates]


def _candidates_by_estimate(request: Request, designs: list[Design]) -> list[Candidate]:
    """Return the candidates that may be the best by a closed form, at most one of each design.

    Where selections may be charged as clocks, all designs are first compared by selections that are
    charged as bounded ranges, which takes less time. Only those that clocks might bring to the top
    are then divided anew, with selections charged as whichever is less.

    Args:
        request: what was asked for: without a shape, with a Mixture of shapes, or with an accuracy.
        designs: those that fit it.
    """
    gain = largest_gain(request)
    clocks_may_gain = gain > 1 and request.epsilon is not None and request.charge_as == "auto"
    margin = ESTIMATE_MARGIN
    first_request = request
    if clocks_may_gain:
        # A larger ε of selections by ``gain`` makes a loss smaller by about that factor at most: a
        # design that is not within it is not the best by clocks either.
        margin *= gain
        first_request = replace(request, charge_as="bounded_range")
    guesses = [
        _by_criterion(candidates)[0]
        for candidates in _hopeful_divisions(first_request, designs, margin)
    ]
    if clocks_may_gain:
        limit = margin * min(guess.criterion for guess in guesses)
        guesses = [
            _best_division(request, guess.design)
            if guess.design.method == "peel" and guess.criterion <= limit
            else guess
            for guess in guesses
        ]
    least = min(guess.criterion for guess in guesses)
    return [guess for guess in guesses if guess.criterion <= ESTIMATE_MARGIN * least]


def _candidates_near_the_best(candidates: list[Candidate], near: float) -> list[Candidate]:
    """Return the candidates whose loss may be within the factor ``near`` of the least, best first.

    A simulated loss is known to within its ``doubt``, so that the least loss is at most the least
    sum of a loss and its doubt. A candidate is left out only where its loss less its doubt is above
    ``near`` times that sum.
    """
    most = min(candidate.loss + candidate.doubt for candidate in candidates)
    hopeful = [each for each in candidates if each.loss - each.doubt <= near * most]
    return sorted(hopeful, key=attrgetter("loss"))


def _best_division(request: Request, design: Design) -> Candidate:
    """Return the best division of the budget for a design, by estimate; on a given shape, of the
    best few by a first simulation, the best by a longer one.
    """
    candidates = _ranked_divisions(request, design)
    # Only a loss on a given shape is simulated, so that more draws make it more exact.
    if request.epsilon is None or not isinstance(request.shape, Shape):
        return candidates[0]
    refined = [replace(guess, draws=REFINED_DRAWS) for guess in candidates[:MOST_FINAL]]
    return min(refined, key=attrgetter("criterion"))


def _ranked_divisions(request: Request, design: Design) -> list[Candidate]:
    """Return the candidates of a design with each of its divisions of the budget, in the order of
    ``_by_criterion``.
    """
    return _by_criterion([at_budget(request, design, split) for split in design.splits(request)])


def _by_criterion(candidates: list[Candidate]) -> list[Candidate]:
    """Return the candidates of one design, the best first.

    Of those whose criterion is within the share FINE of the least, the one with the lowest
    threshold comes first, and then the one with more of δ for the threshold.
    """
    # All criteria up to this one count as equal.
    tied = (1 + FINE) * min(map(attrgetter("criterion"), candidates))
    return sorted(
        candidates,
        key=lambda guess: (
            max(guess.criterion, tied),
            guess.threshold or 0,  # of a public domain, and of coins, it is None for all
            -guess.split.threshold,
        ),
    )


def _hopeful_divisions(
    request: Request, designs: list[Design], margin: float
) -> list[list[Candidate]]:
    """Return a list of candidates for each design, one for each division of the budget that may be
    within ``margin`` of the best; no list for a design without such a division.

    ``least_loss`` is a lower bound of the loss that takes little time. Losses are computed in the
    order of these bounds until the next bound is too large for any candidate after it; so the
    losses of these, which are sums over ranks, and the cost of coins, a long search, are not
    computed.

    Args:
        request: what was asked for.
        designs: those that fit it.
        margin: how many times the least criterion of all a loss may be, at least 1.
    """
    divided: list[list[Candidate]] = []
    for design in designs:
        scaled = partial(at_budget, request, design)
        divided.append(list(map(scaled, design.splits(request))))
    every_candidate = [candidate for candidates in divided for candidate in candidates]
    least = math.inf
    for candidate in sorted(every_candidate, key=attrgetter("least_loss")):
        # Divisions that are equal to the share FINE are still ranked.
        if candidate.least_loss > (1 + FINE) * margin * least:
            break
        least = min(least, candidate.criterion)
    limit = (1 + FINE) * margin * least
    hopeful = [
        [candidate for candidate in candidates if candidate.least_loss <= limit]
        for candidates in divided
    ]
    return [candidates for candidates in hopeful if candidates]


def _least_noisy_of_the_best(candidates: list[Candidate]) -> Candidate:
    """Return the best candidate; of those whose criterion is within the share FINE of the least,
    the one with the least noise on a count.

    Args:
        candidates: scaled to the budget exactly, at least one.
    """
    least = min(candidate.criterion for candidate in candidates)
    tied = [candidate for candidate in candidates if candidate.criterion <= least * (1 + FINE)]
    # Without counts there is no noise on one.
    return min(tied, key=lambda candidate: (candidate.noise_std or 0.0, candidate.criterion))


def _plan_of_candidate(
    request: Request, best: Candidate, designs: list[Design], effort: Effort
) -> OnePhase:
    """Return the plan of the best candidate; its table of alternatives is made when it is asked
    for.

    Args:
        request: what was asked for.
        best: the candidate, scaled to the budget and with its bound.
        designs: all that were compared.
        effort: of each evaluation of the composition in the table.
    """
    assert best.bound is not None  # noqa: S101 - for the type checker: it was scaled exactly
    if request.epsilon is None:
        epsilon = ceil_digits(best.bound.epsilon)
    else:
        epsilon = request.epsilon

    return OnePhase(
        k=request.k,
        budget=Budget(epsilon, request.delta),
        sensitivity=request.sensitivity,
        domain=request.domain,
        phases=best.phases,
        bound=best.bound,
        split=_division_in_words(request, best),
        counted=request.counted,
        design=best.design.name,
        why=_reason_in_words(request, best, len(designs)),
        outcome=best.outcome if isinstance(request.shape, Shape) else None,
        swapped=best.swapped,
        users=request.users,
        compared=partial(_alternatives, request, best, designs, effort),
    )


def _alternatives(
    request: Request, best: Candidate, designs: list[Design], effort: Effort
) -> pd.DataFrame:
    """Return the table of all designs that fit, the best first.

    Args:
        request: what was asked for.
        best: the candidate that was chosen, its row in the table.
        designs: all that fit.
        effort: of each evaluation of the composition.
    """
    import pandas as pd

    guesses = [_best_division(request, design) for design in designs if design != best.design]
    exact = [scale_exact(replace(guess, draws=FINAL_DRAWS), effort) for guess in guesses]
    exact.sort(key=attrgetter("criterion"))
    rows = [
        _row_of_alternatives(candidate, is_chosen=candidate is best) for candidate in (best, *exact)
    ]
    return pd.DataFrame(rows)


def _row_of_alternatives(candidate: Candidate, *, is_chosen: bool) -> dict[str, Any]:
    """Return the row of a candidate in the table of alternatives.

    Args:
        candidate: the candidate, scaled exactly.
        is_chosen: whether it is the one that the plan takes.
    """
    assert candidate.bound is not None  # noqa: S101 - for the type checker: it was scaled exactly
    row = {
        "design": candidate.design.name,
        "chosen": is_chosen,
        "merit": candidate.loss,
        "epsilon": candidate.bound.epsilon,
        "delta": candidate.request.delta,
        "noise_std": candidate.noise_std,
        "threshold": candidate.threshold,
        "appears_at_half": candidate.mechanisms[0].appears_at(
            candidate.request.sensitivity, probability=0.5
        ),
        "swapped": candidate.swapped,
        "selection_share": candidate.split.selection,
        "threshold_share": candidate.split.threshold,
    }
    outcome = candidate.outcome
    if outcome is not None:
        row |= {
            "error": outcome.error,
            "missed": outcome.missed,
            "recall": outcome.recall,
            "rows": outcome.rows,
        }
    return row | {"mechanisms": " then ".join(map(str, candidate.mechanisms))}


def _division_in_words(request: Request, best: Candidate) -> str:
    """Return the division of the budget between the phases, and of δ, in words."""
    parts = []
    if len(best.mechanisms) > 1:
        parts.append(
            f"{best.split.selection:.0%} of the zCDP budget for the selections, the rest for "
            f"the counts"
        )
    if best.mechanisms[0].open_ended:
        parts.append("labels shown by coins and what is composed with them share one δ")
    elif best.design.threshold_is_charged:
        parts.append("the threshold and the noise share one δ")
    elif request.domain == "private":
        share = best.split.threshold
        rest = ", the rest for the composition" if share < 1 else ""
        whole = "all of " if share == 1 else ""
        parts.append(f"{whole}δ = {share * request.delta:g} for the threshold{rest}")
    return "; ".join(parts) or "everything for one phase"


def _reason_in_words(request: Request, best: Candidate, compared: int) -> str:
    """Return in words why the best candidate was taken out of ``compared`` designs.

    Args:
        request: what was asked for.
        best: the candidate that the plan takes.
        compared: the number of designs.
    """
    if request.epsilon is None:
        return (
            f"the smallest ε of {compared} designs for 95% of the noise within "
            f"±{request.accuracy:g}"
        )
    if not math.isfinite(best.loss):
        return "the one that was asked for; how well it does depends on the counts"
    merit = "the count missed, per row"
    if request.counted:
        merit = f"the error of a shown count and {merit}"
    if request.shape is None:
        merit = f"{merit} (on average over typical shapes of counts)"
    return f"the best of {compared} designs: {merit} is smallest, {best.loss:.4g}"


def _reason_for_no_design(request: Request) -> str:
    """Return in words why no design is left: the argument to change first."""
    if request.method == "threshold" and request.sensitivity.l0 is None:
        return "method='threshold' needs a limit on the labels of one user"
    if request.counts == "gaussian" and request.delta == 0:
        return "budget.delta must be above 0 for counts='gaussian'; use counts='laplace'"
    reasons = {
        design.misfit(request) for design in all_designs() if design.domain == request.domain
    }
    return (
        f"method={request.method!r} does not go with counts={request.counts!r}: "
        f"{'; '.join(sorted(reasons))}"
    )


def _validated_total(
    budget: Budget | None, accuracy: float | None, delta: float | None
) -> tuple[float | None, float | None, float]:
    """Return (ε, accuracy, δ) of the total, of which either ε or the accuracy is None; arguments as
    for plan_topk.

    Raises:
        InvalidParameter: unless exactly one of ``budget`` and ``accuracy`` is given; for a
            ``delta`` beside a budget; outside their ranges.
    """
    if (budget is None) == (accuracy is None):
        raise InvalidParameter("give exactly one of budget and accuracy")
    if accuracy is not None:
        return None, validate.positive(accuracy=accuracy), validate.probability(delta=delta or 0.0)
    if delta is not None:
        raise InvalidParameter("delta is for accuracy=; a budget has its own delta")
    total = validate.instance(Budget, budget=budget)
    return total.epsilon, None, total.delta
