"""The plan for many answers: least together, at the width of noise of the plan for one."""

import pytest

from dptopk import Budget, Sensitivity, compose, plan_topk
from dptopk.planning.choose import plan_repeated
from dptopk.question import Facts, Question

pytestmark = pytest.mark.slow
WEEKS, DELTA = 52, 1e-7


@pytest.mark.parametrize(("k", "l0"), [(10, None), (25, 5)])
def test_a_year_of_answers_costs_less_by_gaussian_noise_of_the_same_width(k, l0):
    question = Question(k=k, epsilon=0.5, delta=DELTA)
    facts = Facts(sensitivity=Sensitivity(l0=l0), looks=False)
    found = plan_repeated(question, facts, WEEKS, WEEKS * DELTA)
    assert found.total.epsilon < 0.4 * found.single_total.epsilon
    assert found.plan.preview().half_width <= found.single.preview().half_width
    for plan, total in ((found.plan, found.total), (found.single, found.single_total)):
        again = compose(plan.charge.times(WEEKS), delta=WEEKS * DELTA, lower=False)
        assert again.epsilon == total.epsilon
    assert f"{found.total.epsilon:.4g}" in str(found)
    assert f"{found.single_total.epsilon:.4g}" in str(found)
    planned = plan_topk(k, Budget(0.5, DELTA), sensitivity=Sensitivity(l0=l0), times=WEEKS)
    assert planned.charge == found.plan.charge


def test_one_answer_and_labels_alone_keep_their_plan():
    facts = Facts(sensitivity=Sensitivity(l0=1), looks=False)
    for question, times in (
        (Question(k=5, epsilon=0.5, delta=DELTA), 1),
        (Question(k=5, epsilon=0.5, delta=DELTA, counts="none"), 9),
    ):
        found = plan_repeated(question, facts, times, 1e-6)
        assert found.plan is found.single
        assert "it would be" not in str(found)
        assert str(found).startswith(f"{times} answers cost at most")
    asked = {"sensitivity": Sensitivity(l0=1)}
    once = plan_topk(5, Budget(0.5, DELTA), **asked)
    assert plan_topk(5, Budget(0.5, DELTA), times=1, **asked).charge == once.charge
