"""A question without a budget asks for all that is left of the session's own budget."""

from __future__ import annotations

import numpy as np
import pytest

from dptopk import Accountant, Budget, Histogram, Sensitivity, Session
from dptopk.errors import BudgetExceeded, InvalidParameter

READS = Histogram(
    ["tea", "rum", "ale"], [900, 700, 90], sensitivity=Sensitivity(l0=1), domain="private"
)


def session(budget):
    return Session(READS, budget=budget, rng=np.random.default_rng(1))


@pytest.mark.slow
def test_the_first_question_has_the_whole_budget_and_the_second_what_is_left():
    whole = session(Budget(1.0, 1e-6))
    assert whole.top_k(2).labels == ("tea", "rum")
    with pytest.raises(BudgetExceeded):
        whole.top_k(2)
    parts = session(Budget(1.0, 1e-6))
    parts.top_k(2, budget=Budget(0.3, 1e-7))
    rest = parts.top_k(2)
    assert rest.labels == ("tea", "rum")
    assert parts.remaining().epsilon_left < 0.02
    with pytest.raises(BudgetExceeded):
        parts.top_k(2, budget=Budget(0.1, 1e-8))


def test_a_number_is_no_budget_and_a_shared_account_is_not_emptied():
    with pytest.raises(InvalidParameter, match=r"budget must be Budget\(epsilon, delta\)"):
        session(Budget(1.0, 1e-6)).top_k(2, budget=0.5)
    shared = Accountant.filter(Budget(1.0, 1e-6))
    with pytest.raises(InvalidParameter, match="the session's own"):
        session(shared).top_k(2)
