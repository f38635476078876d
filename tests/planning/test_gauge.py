"""What is left: the number that is shown, against questions that are really asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gauge import HALVINGS, MOST_BELOW, ROUNDING, difference
from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Charge,
    Histogram,
    Ledger,
    Sensitivity,
    Session,
)
from dptopk.budgets.filter import Filter
from dptopk.costs import MultiDP
from dptopk.errors import InvalidParameter
from dptopk.ledger.ledger import Ledger as Log
from dptopk.planning.facts import facts_of
from dptopk.planning.gauge import Kind, epsilon_left, kind_of
from dptopk.question import Facts, Question

WORDS = Histogram({"the": 900, "of": 700, "and": 500, "to": 20}, sensitivity=Sensitivity(l0=1))
TOTAL = Budget(1.0, 1e-6)


def check(seed: int) -> None:
    said, found, total, case = difference(seed)
    share = (said - found) / total
    assert -MOST_BELOW <= share <= 2.0**-HALVINGS + ROUNDING, (share, case.words)


@pytest.mark.slow
def test_tokens_of_several_constraints_pay_for_a_look_and_its_plan() -> None:
    """The plan at the total does not fit; plans up to the smaller ε of a token do."""
    token = MultiDP(((0.5, 1e-6), (2.0, 1e-6)))
    account = Accountant(Charge({token: 2}), 1e-5)
    looked = Question(k=5, delta=1e-6, look=0.1)
    kind = Kind(looked, Facts(sensitivity=Sensitivity(l0=10)), in_steps=False)
    left = epsilon_left(account, kind)
    assert 0.5 - account.epsilon() / 400 <= left <= 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [2, 3, 7, *(pytest.param(seed, marks=pytest.mark.study) for seed in (0, 6))]
)  # `make measure WHAT=gauge` plays more
def test_what_is_shown_is_what_real_questions_find(seed: int) -> None:
    check(seed)


def session() -> Session:
    return Session(WORDS, budget=TOTAL, rng=np.random.default_rng(1))


@pytest.mark.slow
def test_what_is_shown_is_accepted_and_more_is_not() -> None:
    asked = session()
    asked.top_k(2, budget=Budget(0.4, 1e-7), counts="auto")
    left = asked.remaining().epsilon_left
    assert 0.6 <= left < 1
    again = session()
    again.top_k(2, budget=Budget(0.4, 1e-7), counts="auto")
    with pytest.raises(BudgetExceeded):
        again.top_k(2, budget=Budget(left + 0.01, 1e-7), counts="auto")
    again.top_k(2, budget=Budget(left, 1e-7), counts="auto")
    assert again.remaining().epsilon_left < 0.1


def test_a_fresh_budget_is_left_whole() -> None:
    assert session().remaining().epsilon_left == 1.0
    account = Filter(Budget(2.0, 0.0))
    facts = facts_of(Histogram(None, [5, 3], sensitivity=Sensitivity(l0=1)))
    assert epsilon_left(account, Kind.usual(account, facts)) == 2.0


def test_a_refusal_says_what_would_fit_in_the_terms_of_who_asked() -> None:
    asked = session()
    with pytest.raises(BudgetExceeded, match=r"epsilon 3 is more than the total of 1") as refused:
        asked.top_k(2, budget=Budget(3.0, 1e-6))
    assert "what fits of this kind is epsilon up to 1 at delta 1e-06" in str(refused.value)
    asked.top_k(2, budget=Budget(0.5, 1e-7))
    with pytest.raises(BudgetExceeded, match=r"epsilon 0.9 at delta 1e-07 does not fit; what fits"):
        asked.top_k(2, budget=Budget(0.9, 1e-7))


def test_a_kind_survives_its_record() -> None:
    question = Question(k=3, delta=1e-7, counts="laplace", look=0.1)
    kind = Kind(question, facts_of(WORDS), in_steps=False)
    assert Kind.of(kind.plain()).plain() == kind.plain()
    with pytest.raises(InvalidParameter):
        Kind.of({"question": {"k": 3, "unknown": 1}, "facts": {}, "in_steps": True})
    assert str(replace(kind, question=Question(k=3, delta=1e-7, counts="none"))) == (
        "the top 3 at delta 1e-07, without counts"
    )
    account = Filter(TOTAL)
    usual = kind_of({"of": "another version"}, account, WORDS.sensitivity)
    assert str(usual) == "the top 10 at delta 1e-07"


def test_the_same_ledger_says_the_same_everywhere(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset("words", budget=TOTAL, sensitivity=WORDS.sensitivity)
        first = Session(WORDS, ledger=ledger, dataset="words", analyst="ann")
        first.top_k(3, budget=Budget(0.3, 1e-7))
        said = first.remaining()
        other = Session(WORDS, ledger=ledger, dataset="words", analyst="bob").remaining()
        assert (other.epsilon_left, other.epsilon_spent) == (said.epsilon_left, said.epsilon_spent)
    with Log(tmp_path / "l.db") as ledger:
        state = ledger.state("words")
        kind = kind_of(state.last_question_kind, state.account, state.sensitivity)
        assert str(kind) == "the top 3 at delta 1e-07"
        assert epsilon_left(state.account, kind) == said.epsilon_left
        assert ledger.summary("words").epsilon_spent == said.epsilon_spent
        assert ledger.summary("words").share == said.share_used
