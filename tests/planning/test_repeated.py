"""The plan for many answers: least together, at the width of noise of the plan for one."""

import shlex

import pytest
from typer.testing import CliRunner

from dptopk import Budget, Sensitivity, compose, plan_topk
from dptopk._internal.formatting import format_upper
from dptopk.cli import app
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
    assert found.plan.preview().half_width <= 1.5 * found.single.preview().half_width
    for plan, total in ((found.plan, found.total), (found.single, found.single_total)):
        again = compose(plan.charge.times(WEEKS), delta=WEEKS * DELTA, lower=False)
        assert again.epsilon == total.epsilon
    assert format_upper(found.total.epsilon, 4) in str(found)
    assert format_upper(found.single_total.epsilon, 4) in str(found)
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


def test_a_year_is_registered_with_the_least_noise_and_asked_for_as_the_command_says(tmp_path):
    """k = 10, any number of labels, ε = 0.5: 3.34 by Gaussian noise, 13.66 by that of one answer."""
    book = str(tmp_path / "year.db")
    words = tmp_path / "words.csv"
    words.write_text("word,n\nthe,900\nand,700\nof,5\n")
    query = ["--query", "k=10 epsilon=0.5 delta=1e-7", "--times", "52", "--delta", "1e-5"]
    made = CliRunner().invoke(app, ["ledger", "init", book, "--dataset", "w", *query])
    assert "Guarantee: (3.33" in made.output
    assert "best for one answer: (13.66, 1e-05) in all" in made.output
    asked = shlex.split(made.output.partition("Ask for it with: ")[2])
    columns = ["--label-col", "word", "--count-col", "n", "--dataset", "w", "--analyst", "ann"]
    answer = CliRunner().invoke(app, ["topk", str(words), *columns, "--ledger", book, *asked])
    assert answer.exit_code == 0, answer.output
    assert "51 more of" in answer.output
