"""A refusal says what would fit: a smaller ε, other noise, a registration; each is tried."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dptopk import (
    Accountant,
    Budget,
    BudgetExceeded,
    Histogram,
    Ledger,
    Sensitivity,
    Session,
    plan_topk,
)
from dptopk.accounting.bounds import compose
from dptopk.costs import BoundedRange, Charge, PureDP
from dptopk.planning.facts import facts_of
from dptopk.planning.gauge import Kind
from dptopk.planning.refusals import _fitting_epsilon_in_words
from dptopk.question import Question

WORDS = Histogram({"the": 900, "of": 700, "and": 500, "to": 20}, sensitivity=Sensitivity(l0=1))
TOTAL = Budget(1.0, 1e-6)


def refusal(session: Session, budget: Budget, **options: object) -> str:
    with pytest.raises(BudgetExceeded) as refused:
        session.top_k(2, budget=budget, look=None, **options)  # type: ignore[arg-type]
    return refused.value.reason


def after(*charges: Charge, budget: Budget = TOTAL) -> Session:
    account = Accountant.filter(budget)
    for charge in charges:
        account.spend(charge)
    return Session(WORDS, budget=account, rng=np.random.default_rng(1))


def test_noise_that_costs_less_is_named_where_it_fits_now() -> None:
    session = after(Charge({PureDP(0.05): 18}))
    reason = refusal(session, Budget(0.2, 1e-8), counts="laplace")
    assert 'with counts="gaussian" this question fits now' in reason
    session.top_k(2, budget=Budget(0.2, 1e-8), counts="gaussian", look=None)


def test_noise_that_does_not_fit_either_is_not_named() -> None:
    session = after(Charge({PureDP(0.9): 1}))
    assert "counts=" not in refusal(session, Budget(0.6, 1e-7), counts="laplace")
    assert "counts=" not in refusal(session, Budget(1.5, 1e-7), counts="laplace")


@pytest.mark.slow
def test_a_registration_is_named_where_it_would_have_covered_the_question() -> None:
    spent = Charge({BoundedRange(0.1): 12})
    session = after(spent)
    reason = refusal(session, Budget(0.3, 1e-7), counts="laplace")
    found = re.search(r"would fit: together they are \(([\d.]+), 1e-06\)", reason)
    assert found is not None, reason
    with pytest.raises(BudgetExceeded) as refused:
        session.top_k(2, budget=Budget(0.3, 1e-7), counts="laplace", look=None)
    together = Charge.join(spent, refused.value.requested)
    registered = Accountant(together, TOTAL.delta)
    assert registered.epsilon() <= float(found[1]) <= TOTAL.epsilon
    assert compose(together, delta=TOTAL.delta).epsilon <= TOTAL.epsilon
    registered.spend(spent)
    late = Session(WORDS, budget=registered, rng=np.random.default_rng(1))
    late.top_k(2, budget=Budget(0.3, 1e-7), counts="laplace", look=None)


def test_a_registration_is_not_named_where_it_would_not_cover_the_question() -> None:
    session = after(Charge({PureDP(0.9): 1}))
    assert "registered in advance" not in refusal(session, Budget(0.9, 1e-7), counts="laplace")


@pytest.mark.slow
def test_of_registered_costs_noise_that_is_registered_is_named() -> None:
    asked = {"budget": Budget(0.5, 1e-7), "sensitivity": WORDS.sensitivity}
    gaussian = plan_topk(2, counts="gaussian", **asked)  # type: ignore[arg-type]
    registered = Accountant(gaussian.charge.times(2), 1e-6)
    session = Session(WORDS, budget=registered, rng=np.random.default_rng(1))
    reason = refusal(session, Budget(0.5, 1e-7), counts="laplace")
    assert 'with counts="gaussian" this question fits now' in reason
    session.top_k(2, budget=Budget(0.5, 1e-7), counts="gaussian", look=None)


@pytest.fixture
def limited(tmp_path: Path) -> Session:
    ledger = Ledger(tmp_path / "l.db", test=True)
    ledger.create_dataset("words", budget=TOTAL, sensitivity=WORDS.sensitivity)
    ledger.set_limit("words", "ann", budget=Budget(0.3, 5e-7))
    rng = np.random.default_rng(1)
    return Session(WORDS, ledger=ledger, dataset="words", analyst="ann", rng=rng)


@pytest.mark.slow
def test_what_is_left_for_an_analyst_with_a_limit_is_what_the_limit_leaves(
    limited: Session,
) -> None:
    limited.top_k(2, budget=Budget(0.1, 1e-8), look=None)
    left = limited.remaining()
    assert left.epsilon_total == 0.3
    assert 0.19 < left.epsilon_left < 0.3
    reason = refusal(limited, Budget(0.3, 1e-8))
    assert f"epsilon up to {left.epsilon_left:.3g}" in reason
    limited.top_k(2, budget=Budget(left.epsilon_left, 1e-8), look=None)


def test_no_look_is_paid_for_where_the_limit_does_not_cover_the_plan_after_it(
    limited: Session,
) -> None:
    with pytest.raises(BudgetExceeded):
        limited.top_k(2, budget=Budget(0.5, 1e-8), look=0.2)
    assert limited.remaining().epsilon_spent == 0


def test_a_refused_total_below_one_that_fits_is_explained() -> None:
    """The plan of the larger total may consist of other mechanisms, which fit."""
    question = Question(k=2, epsilon=0.7001, delta=1e-7, counts="none")
    kind = Kind(question, facts_of(WORDS), in_steps=False)
    assert "epsilon up to 0.7151 at delta 1e-07, though not every" in _fitting_epsilon_in_words(
        0.7151, kind
    )
    assert _fitting_epsilon_in_words(0.6991, kind).endswith("epsilon up to 0.6991 at delta 1e-07")
    assert _fitting_epsilon_in_words(0.0, kind).endswith("is nothing")


# What fits after one question of a kind, in the order of the arguments, for every kind.
LEFT_OF_KINDS = """
import sys
from dptopk import Budget, Sensitivity
from dptopk.budgets.filter import Filter
from dptopk.planning.choose import plan
from dptopk.planning.gauge import Kind, epsilon_left
from dptopk.question import Events, Facts, Question

for kind in sys.argv[1:]:
    l0, k, counts = (int(kind[0]) or None, int(kind[1]), "none" if kind[2] == "n" else "auto")
    facts = Facts(sensitivity=Sensitivity(l0=l0), events=None if l0 else Events())
    question = Question(k=k, delta=1e-7, counts=counts)
    account = Filter(Budget(1.0, 1e-6))
    first = plan(question.with_total(Budget(0.3, 1e-7)), facts)
    account.spend(first.charge, stated=first.stated)
    print(kind, repr(epsilon_left(account, Kind(question, facts))))
"""


@pytest.mark.study
@pytest.mark.slow
def test_what_fits_is_the_same_in_every_process() -> None:
    """Neither the seed of hashes, nor the order of questions, nor the number of threads of the
    linear algebra changes a digit.
    """
    kinds = ["12n", "52n", "05a"]
    told = []
    for seed, order in (("1", kinds), ("2", kinds[::-1])):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OPENBLAS_NUM_THREADS": seed}
        command = [sys.executable, "-c", LEFT_OF_KINDS, *order]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.append(sorted(ran.stdout.splitlines()))
    assert len(told[0]) == len(kinds)
    assert told[0] == told[1]
