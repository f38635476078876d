"""The one place that decides how a question is answered: in one phase or two, after a look, by one
mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from dptopk._internal import validate
from dptopk._internal.choices import Counts, FindBy, LookShare
from dptopk.costs import Budget
from dptopk.errors import InvalidParameter
from dptopk.histogram.histogram import Sensitivity
from dptopk.planning.best_design import default_d_bar, plan_topk
from dptopk.planning.probe import Look, LookedPlan
from dptopk.planning.repeated import RepeatedPlan, least_total
from dptopk.planning.topk_plan import OnePhase, TopKPlan
from dptopk.planning.two_phase import FINDS, TwoPhasePlan, plan_two_phases
from dptopk.question import Events, Facts, Question

# A look is taken by default if one user may touch this many labels or more, if k is below this many
# times that number of labels, and if k is at most the third number: else noise on all counts is
# best for most data, and a look only costs its share (docs/notes/utility.md has the losses).
LEAST_LABELS = 3
MOST_K_PER_LABEL = 2
MOST_K = 100


def plan(question: Question, facts: Facts) -> TopKPlan:
    """Return the plan of a question, by what is public.

    Where labels of events can be found under a cap and counted without it, the question is answered
    in two phases, unless a stated field asks for one.

    Args:
        question: what is asked.
        facts: what is known of the data and of the account that pays.

    Raises:
        InvalidParameter: for two stated fields that ask for a different number of phases, for a
            field that these data cannot serve, and where no plan meets the total.

    >>> from dptopk import Sensitivity
    >>> facts = Facts(sensitivity=Sensitivity(l0=1), events=Events())
    >>> plan(Question(k=5, epsilon=1.0, delta=1e-6), facts).kind
    'two phases'
    >>> plan(Question(k=5, epsilon=1.0, delta=1e-6, method="threshold"), facts).kind
    'one phase'
    """
    question.check_total()
    fields_of_one = question.asking_for(1)
    fields_of_two = question.asking_for(2)
    events = facts.events
    if fields_of_one and fields_of_two:
        raise InvalidParameter(
            f"{_assignment(question, fields_of_one)} asks for an answer in one phase, "
            f"{_assignment(question, fields_of_two)} for one in two; leave one of them out"
        )
    if fields_of_two and events is None:
        raise InvalidParameter(
            f"{_assignment(question, fields_of_two)} is for events with private labels, answered "
            f"in two phases; leave it out"
        )
    if events is None:
        return one_phase(question, facts)
    if fields_of_one and events.instead:
        raise InvalidParameter(
            f"{_assignment(question, fields_of_one)} is of one phase; {events.instead}"
        )
    if fields_of_one:
        return one_phase(question, facts)
    if not facts.registered or fields_of_two:
        return two_phases(question, facts)
    # Where only registered costs can be paid, two phases are planned if these cover them.
    covered = _covered_two_phases(question, facts)
    if covered is not None:
        return covered
    return one_phase(question, facts)


def _assignment(question: Question, names: tuple[str, ...]) -> str:
    """Return the first of these fields with its stated value, as in "find='weights'"."""
    return f"{names[0]}={getattr(question, names[0])!r}"


def one_phase(question: Question, facts: Facts) -> OnePhase:
    """Return the plan on one histogram: one that looks first (LookedPlan) where the question states
    a look, or public facts say that it is worth its cost.

    Raises:
        InvalidParameter: as ``plan_topk``; for a stated field that the plan would not use.
    """
    options = {
        name: getattr(question, name)
        for name in ("counts", "method", "users", "effort", "selection_share", "like")
    }
    planner = partial(
        plan_topk,
        k=question.k,
        sensitivity=facts.sensitivity,
        domain=facts.domain,
        d_bar=_d_bar(question, facts),
        fit=question.fit is not False,
        charge_as=question.charge_as or facts.charge_as,
        max_seconds=question.max_seconds,
        **options,
    )
    design = with_look(question.look, planner, whole=facts.looks, **total_of(question))()
    _refuse_unused(question, design)
    return design


def with_look(
    look: LookShare, planner: partial[OnePhase], *, whole: bool = True, **total: Any
) -> Callable[[], OnePhase]:
    """Return a function without arguments that makes the plan of a question: the plan of
    ``planner``, or a LookedPlan if a look comes first, which public facts alone decide.

    Args:
        look: "auto" for a look where it is worth its cost, a share of ε in (0, 1), or None.
        planner: plan_topk with all arguments but the total.
        whole: whether a look is possible: all rows are at hand, and an account may cover it.
        total: the total of the answer, as arguments of plan_topk: budget=, or accuracy= and delta=.

    Raises:
        InvalidParameter: for a stated share of ε, where the total is no ε; for what is no k.
    """
    without_look = partial(planner, **total)
    if look is None or (look == "auto" and not whole):
        return without_look
    arguments = planner.keywords | total
    k = validate.count(k=arguments["k"])
    budget: Any = arguments.get("budget")  # ``Look`` refuses what is no Budget
    if look != "auto":
        return partial(LookedPlan.of, Look(k, budget, look), planner)
    # Where one of these was left out, "auto" takes no look.
    is_worth_it = worth_a_look(
        k,
        budget,
        sensitivity=arguments.get("sensitivity"),
        domain=arguments.get("domain"),
        counts=arguments.get("counts"),
    )
    if is_worth_it:
        return partial(LookedPlan.of, Look(k, budget, optional=True), planner)
    return without_look


def worth_a_look(
    k: int,
    budget: Budget | None,
    sensitivity: Sensitivity | None,
    domain: str | None,
    counts: str | None,
) -> bool:
    """Return whether a look is worth its cost for most data, by public facts only: in a private
    domain, for an answer with counts, where one user may touch many labels for so few rows
    (docs/notes/utility.md).

    Args:
        k: as for plan_topk, like all that follow.
        budget: None where an accuracy is asked for.
        sensitivity: that of the histogram; None: not stated, and then no look is worth its cost.
        domain: "private" or "public"; None as for ``sensitivity``.
        counts: the noise on counts; None or "none" for labels only.
    """
    if domain != "private" or sensitivity is None:
        return False
    if budget is None or budget.rho is not None:
        return False
    if counts in (None, "none") or k > MOST_K:
        return False
    labels_per_user = sensitivity.l0 or math.inf
    return labels_per_user >= LEAST_LABELS and k < MOST_K_PER_LABEL * labels_per_user


def _refuse_unused(question: Question, design: OnePhase) -> None:
    """Refuse fields that only a plan which selects first and then counts can use, where the plan
    has one phase: they would be ignored.

    Args:
        question: the question with its stated fields.
        design: the plan of the question.

    Raises:
        InvalidParameter: for a stated ``fit`` or ``selection_share``, where the plan has one phase.
    """
    if len(design.phases) > 1:
        return
    advice = "this plan selects by the counts themselves; take the method peel, or leave"
    if question.fit:
        raise InvalidParameter(
            f"fit: counts are fitted to the order of a selection, and {advice} fit out"
        )
    if question.selection_share is not None:
        raise InvalidParameter(
            f"selection_share: it divides the budget between selections and counts, and {advice} "
            f"it out"
        )


def _d_bar(question: Question, facts: Facts) -> int | None:
    """Return how many of the largest counts take part (d_bar of plan_topk); None for the whole
    histogram.

    Where only some rows are at hand it is fewer than these, because the count of the next rank is
    the floor.

    Raises:
        InvalidParameter: for a stated d_bar that needs more rows than are read.
    """
    if facts.rows is not None:
        if question.d_bar is None:
            return min(default_d_bar(question.k), facts.rows - 1)
        if question.d_bar >= facts.rows:
            raise InvalidParameter(
                f"d_bar must be below {facts.rows} here: only that many rows are read"
            )
    if question.d_bar is None and facts.domain == "private" and not facts.complete:
        return default_d_bar(question.k)
    return question.d_bar


def total_of(question: Question) -> dict[str, Any]:
    """Return the total as the arguments of plan_topk: a budget, or an accuracy with its δ."""
    if question.accuracy is not None:
        return {"accuracy": question.accuracy, "delta": question.delta or 0.0}
    return {"budget": question.budget}


def two_phases(question: Question, facts: Facts) -> TwoPhasePlan:
    """Return the plan that finds labels under a cap and counts them without it.

    It looks first, at a private profile of users and at a few counts, where the question and the
    events allow that, unless the account covers only the plan without looks.

    Raises:
        InvalidParameter: where the data are no such events; as ``plan_two_phases``.
    """
    events = facts.events
    if events is None:
        raise InvalidParameter("events: two phases are for events whose labels can be found")
    planner = partial(
        plan_two_phases,
        question.k,
        question.budget,
        labels_per_user=events.labels_per_user,
        per_label_cap=events.per_label_cap,
        counts=question.counts,
        share=question.share,
        find=_finder(question, events),
        min_users=question.min_users,
        users=question.users,
    )
    takes_looks = question.look is not None or events.profile == "always"
    if not (events.profile and takes_looks):
        return planner()
    with_looks = planner(profile=True)
    if facts.covers(with_looks):
        return with_looks
    without_looks = planner()
    if facts.covers(without_looks):
        return without_looks
    return with_looks  # whoever pays refuses it, and says what would fit


def _covered_two_phases(question: Question, facts: Facts) -> TwoPhasePlan | None:
    """Return the plan in two phases, if one fits and registered costs cover it; otherwise None."""
    with suppress(InvalidParameter):
        design = two_phases(question, facts)
        if facts.covers(design):
            return design
    return None


def _finder(question: Question, events: Events) -> FindBy:
    """Return how labels are found, as plan_two_phases takes it: of events that were read already by
    weights if they were read for these, else by counts.

    Raises:
        InvalidParameter: for a stated way that the events were not read for.
    """
    if events.weights is None:
        return question.find
    if question.find == "auto":
        if events.weights:
            return "auto"
        return "counts"
    needs_weights = question.find == "weights"
    if question.find != "uncapped" and needs_weights != events.weights:
        raise InvalidParameter(
            f"find={question.find!r}: weights are decided when events are read, by "
            f"from_events(weights=)"
        )
    return question.find


# The kinds of plans that a charge may remember, and the functions that make such a plan again.
BUILDERS: dict[str, Callable[[Question, Facts], TopKPlan]] = {
    OnePhase.kind: one_phase,
    TwoPhasePlan.kind: two_phases,
}


def revived(record: Mapping[str, Any], question: Question, facts: Facts) -> TopKPlan:
    """Return the plan that a charge remembers, whatever would be planned for its question now.

    Args:
        record: what ``Plan.record`` wrote. Records of the first versions name no kind: those whose
            first phase finds labels are in two phases.
        question: the question of the charge.
        facts: of the data set.

    Raises:
        InvalidParameter: when this version cannot make it.
    """
    finds = record["phases"][0]["name"] == FINDS
    kind = record.get("kind", TwoPhasePlan.kind if finds else OnePhase.kind)
    if kind not in BUILDERS:
        raise InvalidParameter(f"kind: this version has no plans of the kind {kind!r}")
    return BUILDERS[kind](question, facts).revived(record)


def plan_repeated(
    question: Question, facts: Facts, times: int, delta: float
) -> RepeatedPlan[TopKPlan]:
    """Return the plan with the least total ε for a number of answers to a question.

    Compared are the plan that is best for one answer and one plan for each family of noise: the
    plan at the same ε, if its 95% half-width on a count is at most 1.5 times that of the first
    plan; otherwise the plan of the least ε with that half-width.

    Args:
        question: with a total for one answer, in ε and δ.
        facts: what is known of the data.
        times: how many answers, at least 1.
        delta: the δ at which all answers together are stated, in [0, 1); 0 where all costs are
            pure.

    Raises:
        InvalidParameter: as ``plan``.
    """

    def plan_with_noise_family(family: Counts, width: float | None) -> TopKPlan:
        """Return the plan with this family of noise on counts: at the question's total, or of the
        least ε with this half-width.
        """
        if width is None:
            return plan(replace(question, counts=family), facts)
        accurate = replace(question, epsilon=None, accuracy=width, counts=family)
        return plan(accurate, facts)

    single = plan(question, facts)
    # Families are compared in one phase, where the question leaves them open and has an ε.
    comparable = question.rho is None and facts.events is None and question.counts == "auto"
    return least_total(single, plan_with_noise_family if comparable else None, times, delta)
