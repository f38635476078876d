"""One place decides how a question is answered, by what is stated and by what is public."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dptopk import Budget, Histogram, InvalidParameter, KnownLaplace, Sensitivity, plan_topk
from dptopk.costs import Charge
from dptopk.errors import BudgetExceeded
from dptopk.histogram.event_counts import EventCounts, finding_sensitivity
from dptopk.planning import OnePhase, TwoPhasePlan, plan, revived
from dptopk.planning.facts import facts_of
from dptopk.planning.per_segment import bound_together, plans_within_total
from dptopk.planning.probe import LookedPlan
from dptopk.planning.single import Single
from dptopk.planning.topk_plan import joint_charge
from dptopk.question import Events, Facts, Question

COUNTS = Facts(sensitivity=Sensitivity(l0=2))
EVENTS = Facts(sensitivity=Sensitivity(l0=2), events=Events(labels_per_user=2))
ONE = {
    "method": "threshold",
    "counts": "laplace",
    "d_bar": 200,
    "look": 0.1,
    "selection_share": 0.4,
    "like": [9, 5, 2, 1],
}
TWO = {"find": "threshold", "share": 0.4, "min_users": 3}


def asked(**stated):
    return Question(k=3, epsilon=1.0, delta=1e-6, **stated)


@pytest.mark.parametrize("name", ONE)
def test_a_field_of_one_phase_asks_for_one_phase(name):
    many = replace(EVENTS, sensitivity=Sensitivity(l0=50))  # for which labels are selected first
    made = plan(asked(**{name: ONE[name]}), many)
    assert made.kind == OnePhase.kind
    assert made.reading.finding is None


@pytest.mark.parametrize("name", TWO)
def test_a_field_of_two_phases_is_refused_by_name_where_there_are_no_events(name):
    assert plan(asked(**{name: TWO[name]}), EVENTS).kind == TwoPhasePlan.kind
    with pytest.raises(InvalidParameter, match=f"{name}=.* is for events"):
        plan(asked(**{name: TWO[name]}), COUNTS)


@pytest.mark.parametrize("first", ONE)
@pytest.mark.parametrize("second", TWO)
def test_two_fields_that_ask_for_different_phases_are_refused_by_both_names(first, second):
    both = asked(**{first: ONE[first], second: TWO[second]})
    with pytest.raises(InvalidParameter, match=rf"{first}=.* asks .*{second}="):
        plan(both, EVENTS)


def test_events_that_were_read_for_two_phases_say_how_one_is_asked():
    under = Histogram(["x"], [900], sensitivity=finding_sensitivity(2, 1, weights=True))
    read = EventCounts.of_histograms(Histogram(["x"], [900]), under)
    with pytest.raises(InvalidParameter, match=re.escape("count_capped=True")):
        plan(asked(method="peel"), facts_of(read))
    assert plan(asked(), facts_of(read)).reading.finding.labels_per_user == 2


def test_registered_costs_are_planned_in_two_phases_where_they_cover_them():
    usual = plan(asked(look=None), EVENTS).charge
    for covered in (True, False):
        facts = Facts(
            sensitivity=Sensitivity(l0=2),
            events=Events(labels_per_user=2),
            registered=True,
            covers=lambda made, covered=covered: covered and made.charge == usual,
        )
        kind = TwoPhasePlan.kind if covered else OnePhase.kind
        assert plan(asked(), facts).kind == kind


class Purse:
    """Pays for n steps, and writes down what it was asked."""

    def __init__(self, steps):
        self.left, self.paid = steps, []

    def covers(self, *charges):
        return len(charges) <= self.left

    def has(self, step):
        return False

    def known(self, step):
        return None

    def refuse(self, *charges):
        return BudgetExceeded(Charge.join(*charges), "nothing")

    def answer(self, step, rng):
        if not self.left:
            raise self.refuse(step.charge)
        self.left -= 1
        self.paid.append((step.text, step.charge))
        return step.draw(rng)


@pytest.mark.parametrize(
    ("facts", "stated", "steps"), [(COUNTS, {"look": 0.1}, 2), (COUNTS, {}, 1), (EVENTS, {}, 1)]
)
def test_what_pays_is_asked_before_each_draw(facts, stated, steps):
    counts = {"x": 900, "y": 700, "z": 500, "w": 3}
    data = Histogram(counts, sensitivity=Sensitivity(l0=2))
    made = plan(asked(**stated), facts)
    if made.reading.finding is not None:
        caps = finding_sensitivity(2, 1, weights=True)
        cell = Histogram(None, [0] * 8, sensitivity=Sensitivity(l0=1))
        under = Histogram(counts, sensitivity=caps)
        data = EventCounts.of_histograms(Histogram(counts), under, cell)
    purse = Purse(steps)
    answer = made.release(data, average=False, paying=purse)
    assert len(purse.paid) == steps
    assert joint_charge([charge for _, charge in purse.paid]).includes(answer.charge)
    short = Purse(steps - 1)
    with pytest.raises(BudgetExceeded):
        made.release(data, paying=short)
    assert short.paid == []  # nothing was drawn: a look is paid only where its plan is covered too


def test_a_record_is_drawn_as_it_was_charged_whatever_would_be_planned_now():
    for facts, kind in ((COUNTS, OnePhase), (EVENTS, TwoPhasePlan)):
        made = plan(asked(), facts)
        again = revived(made.record(), asked(), EVENTS)
        assert isinstance(again, kind)
        assert again.phases == made.phases
        unnamed = {name: value for name, value in made.record().items() if name != "kind"}
        assert revived(unnamed, asked(), EVENTS).phases == made.phases  # as first written
    with pytest.raises(InvalidParameter, match="kind"):
        revived(made.record() | {"kind": "by hand"}, asked(), EVENTS)
    with pytest.raises(InvalidParameter, match="phases"):
        revived(plan(asked(), COUNTS).record() | {"kind": "two phases"}, asked(), EVENTS)


def test_the_plan_of_a_question_is_that_of_plan_topk():
    """The policy adds nothing: the same arguments give the same plan."""
    made = plan(asked(method="peel", look=None), COUNTS)
    same = plan_topk(3, Budget(1.0, 1e-6), sensitivity=Sensitivity(l0=2), method="peel")
    assert made == same
    looked = plan(asked(look=0.1), COUNTS)
    assert isinstance(looked, LookedPlan)
    assert looked.text == "a look then a plan by it"


def test_what_the_plan_would_ignore_is_refused_before_it_is_paid():
    """A share for selections, and a fit to their order, where no selections come first."""
    one = Facts(sensitivity=Sensitivity(l0=1))
    assert len(plan(asked(), one).phases) == 1
    for stated in ({"selection_share": 0.3}, {"fit": True}):
        (name,) = stated
        with pytest.raises(InvalidParameter, match=f"^{name}: .* take the method peel"):
            plan(asked(**stated), one)
        assert len(plan(asked(**stated, method="peel"), one).phases) == 2


def test_segments_of_which_a_user_is_in_several_share_the_total():
    for per_user, most in ((1, 1.0), (2, 1.0)):
        plans = plans_within_total(asked(), COUNTS, ["a", "b", "c"], per_user)
        assert 0.9 * most < bound_together(plans, 1e-6).epsilon <= most
        assert plans.charge == plans.each.charge.times(per_user)
        data = dict.fromkeys("abc", Histogram({"x": 900}, sensitivity=Sensitivity(l0=2)))
        plans.check(data)
        assert list(plans.draw(data, None)) == ["a", "b", "c"]
    with pytest.raises(InvalidParameter, match="rho"):
        plans_within_total(Question(k=3, rho=0.1, delta=1e-6), COUNTS, ["a", "b"], 2)


def test_a_mechanism_of_all_labels_has_a_preview():
    """``labels=None`` names no labels, as if it were left out."""
    sensitivity = Sensitivity(l0=1)
    plans = [
        Single.of(KnownLaplace(epsilon=0.5), options, sensitivity, 7)
        for options in ({}, {"labels": None})
    ]
    left_out, none = (plan.preview() for plan in plans)
    assert left_out == none
    assert none.noise_std == KnownLaplace(epsilon=0.5).noise_std(sensitivity)


@pytest.mark.parametrize("asked", [{"k": "x"}, {"k": None}, {"epsilon": 1e300}])
def test_what_is_no_number_of_labels_and_a_huge_epsilon_are_refused(asked: dict[str, Any]) -> None:
    question = Question(**({"k": 3, "epsilon": 1.0, "delta": 1e-6} | asked))
    with pytest.raises(InvalidParameter):
        plan(question, Facts(sensitivity=Sensitivity(l0=2)))
