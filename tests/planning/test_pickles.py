"""Plans, costs and releases travel (pickle, joblib, Spark, Airflow); what holds a budget does
not.
"""

from __future__ import annotations

import copy
import pickle

import pytest

from dptopk import (
    Accountant,
    BoundedRange,
    Budget,
    Charge,
    InvalidParameter,
    Ledger,
    MultiDP,
    PureDP,
    Sensitivity,
    Session,
    compose,
    plan_topk,
)
from dptopk.datasets import macbeth
from dptopk.planning import plan_two_phases

ONE = Sensitivity(l0=1)
BUDGET = Budget(1, 1e-6)
PLANS = {
    "private": lambda: plan_topk(5, BUDGET, sensitivity=ONE),
    "peel": lambda: plan_topk(5, BUDGET, method="peel"),
    "public": lambda: plan_topk(5, Budget(1), domain="public"),
    "rho": lambda: plan_topk(5, Budget(rho=0.5, delta=1e-6)),
    "like": lambda: plan_topk(
        5, BUDGET, like=[100, 50, 20, 10, 5, 2, 1], method="threshold", sensitivity=ONE
    ),
    "two phases": lambda: plan_two_phases(5, BUDGET),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_plan_travels_with_its_alternatives(kind):
    plan = PLANS[kind]()
    there = pickle.loads(pickle.dumps(plan))  # noqa: S301
    assert there == plan
    assert there.explain() == plan.explain()
    if kind == "private":
        assert there.alternatives.equals(plan.alternatives)


def test_an_answer_and_its_costs_travel():
    release = PLANS["private"]().release(macbeth(sensitivity=ONE))
    there = pickle.loads(pickle.dumps(release))  # noqa: S301
    assert there.table.equals(release.table)
    assert there.intervals().equals(release.intervals())
    assert there.charge == release.charge
    charge = Charge({BoundedRange(0.1): 3, MultiDP(((0.3, 0.1),)): 1}, delta=1e-9)
    bound = compose(charge, delta=1e-6)
    assert pickle.loads(pickle.dumps((charge, bound))) == (charge, bound)  # noqa: S301


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Accountant(Charge({PureDP(0.1): 3}), 1e-6),
        lambda _: Accountant.filter(BUDGET),
        lambda _: Session(macbeth(), budget=BUDGET),
        lambda folder: Ledger(folder / "ledger.db"),
    ],
)
def test_what_holds_a_budget_stays(make, tmp_path):
    held = make(tmp_path)
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidParameter, match="cannot be"):
            way(held)
