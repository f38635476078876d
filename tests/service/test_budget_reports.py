"""Reports of a budget are those of the ledger as it is, also where others charge meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from dptopk import Budget, Ledger
from dptopk.costs import Charge, PureDP
from dptopk.ledger.dataset import DatasetState
from dptopk.service import budget_reports
from dptopk.service.budget_reports import BudgetReports

TERMS = {
    "one budget": {"budget": Budget(1.0, 1e-6)},
    "a limit of the analyst": {"budget": Budget(2.0, 1e-6)},
    "shares": {"delta": 1e-5, "shares": {"ann": Budget(1.0, 1e-6), "bob": Budget(1.0, 1e-6)}},
}


class ChargedMeanwhile:
    """A ledger to which an analyst is charged once, right after its state was read."""

    def __init__(self, ledger: Ledger, analyst: str) -> None:
        self.ledger = ledger
        self.analyst = analyst

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    def state(self, dataset: str) -> DatasetState:
        state = self.ledger.state(dataset)
        if self.analyst:
            self.ledger.charge(dataset, self.analyst, Charge({PureDP(0.6): 1}))
            self.analyst = ""
        return state


@pytest.mark.parametrize("terms", TERMS)
def test_a_charge_while_a_report_is_computed_is_in_the_next_one(tmp_path, monkeypatch, terms):
    # The largest ε that is left takes a search; any number of the account shows its age as well.
    monkeypatch.setattr(budget_reports, "epsilon_left", lambda account, _: 1 - account.share())
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("words", **TERMS[terms])
    if terms == "a limit of the analyst":
        ledger.set_limit("words", "ann", budget=Budget(1.0, 1e-6))
    reports = BudgetReports(ChargedMeanwhile(ledger, "ann"))
    first = reports.balance("words", "ann")
    later = reports.balance("words", "ann")
    assert later == BudgetReports(ledger).balance("words", "ann")
    assert later != first
    for of_another in ("bob", "ann"):  # these may be computed from numbers of the first report
        fresh = BudgetReports(ledger).budget("words", of_another)
        assert reports.budget("words", of_another) == fresh
