"""The statement for auditors: what it says is what the ledger says, and nothing is made up."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from dptopk import (
    ApproxDP,
    Budget,
    Charge,
    Histogram,
    KnownLaplace,
    Ledger,
    PureDP,
    Sensitivity,
    Session,
)
from dptopk.cli.commands import app
from dptopk.cli.ledger_view import guarantee
from dptopk.errors import InvalidParameter
from dptopk.ledger import statement
from dptopk.ledger.disclosure import FACTS_OF_CURATOR, statement_page

ONE = Sensitivity(linf=2, l0=3)


@pytest.fixture
def path(tmp_path):
    """A ledger for tests with three datasets, one answer charged to the first."""
    path = tmp_path / "ledger.db"
    with Ledger(path, test=True) as ledger:
        ledger.create_dataset(
            "reads", registered=Charge({PureDP(0.5): 9}), delta=1e-6, sensitivity=ONE, unit="member"
        )
        ledger.create_dataset("free", budget=Budget(2.0, 1e-6), version="7")
        ledger.create_dataset("shared", shares={"a": Charge({PureDP(0.5): 2})}, delta=1e-6)
        histogram = Histogram(["x", "y"], [5, 3], sensitivity=ONE, domain="public")
        session = Session(
            histogram, ledger=ledger, dataset="reads", analyst="ann", rng=np.random.default_rng(1)
        )
        session.run(KnownLaplace(epsilon=0.5))
    return path


def test_it_says_what_the_ledger_says(path):
    with Ledger(path, read_only=True) as ledger:
        made = statement(ledger, "reads", {"population": "members of 2026"})
        summary = ledger.summary("reads")
        assert made["guarantee"]["epsilon"] == summary.epsilon_total
        assert made["guarantee"]["delta"] == 1e-6
        assert made["implementation"]["chain"] == {
            "entries": ledger.head()["seq"],
            "head": ledger.head()["hash"],
        }
        assert made["implementation"]["test_ledger"]
    assert made["unit"]["unit"] == "member"
    assert made["unit"]["caps"] == {"labels_per_unit": 3, "per_label": 2}
    assert made["accounting"]["spent"] == "2*DLap(4.0, 2)"  # of a public domain with two labels
    assert made["accounting"]["mechanisms"] == [
        {"mechanism": "KnownLaplace(epsilon=0.5)", "charged": 1}
    ]
    assert made["accounting"]["theorem"]["name"] != "filter"
    assert {key: made["basic"][key] for key in FACTS_OF_CURATOR if made["basic"][key]} == {
        "population": "members of 2026"
    }
    assert json.loads(json.dumps(made)) == made


def test_other_budgets(path):
    with Ledger(path, read_only=True) as ledger:
        free, shared = statement(ledger, "free"), statement(ledger, "shared")
        with pytest.raises(InvalidParameter, match="population"):
            statement(ledger, "free", {"vendor": "x"})
    assert free["accounting"]["theorem"]["name"] == "filter"
    assert free["guarantee"]["epsilon"] == 2.0
    assert free["accounting"]["mechanisms"] == []
    assert shared["accounting"]["terms"]["shares"]


def test_registered_costs_without_a_finite_guarantee_are_no_filter(tmp_path):
    with Ledger(tmp_path / "failing.db", test=True) as ledger:
        failing = Charge({ApproxDP(0.1, 1e-3): 2})
        ledger.create_dataset("failing", registered=failing, delta=1e-6)
        made = statement(ledger, "failing")
    assert made["accounting"]["theorem"] == {"name": "none", "source": ""}


def test_the_page_escapes(path):
    with Ledger(path, read_only=True) as ledger:
        page = statement_page(statement(ledger, "reads", {"curator": "<b>us & them"}))
    assert "&lt;b&gt;us &amp; them" in page
    assert "not stated" in page
    assert "add_remove" in page


def test_the_command(path):
    def run(*arguments):
        return CliRunner().invoke(
            app, ["ledger", "statement", str(path), "--dataset", "reads", *arguments]
        )

    said = json.loads(run("--about", "population=all = everybody").output)
    assert said["basic"]["population"] == "all = everybody"
    assert run("--format", "html").output.startswith("<!DOCTYPE html>")
    assert run("--about", "population").exit_code == 2
    assert run("--about", "x=y").exit_code == 2


def test_a_budget_in_rho_is_stated(tmp_path):
    """With its own part for failures, by which it is ρ-zCDP, and not half of its δ."""
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset("d", budget=Budget(rho=0.25, delta=1e-6), failure_delta=1e-7)
        made = statement(ledger, "d")
        shown = guarantee(ledger.state("d"))
    assert made["guarantee"]["rho"] == 0.25
    assert made["guarantee"]["failure_delta"] == 1e-7
    assert shown.startswith("0.25-zCDP but for failures of at most 1e-07; (")
    page = statement_page(
        {"basic": {"dataset": "d"}, "accounting": {"terms": made["accounting"]["terms"]}}
    )
    assert "not stated" not in page
    assert re.search(r"terms, budget, rho</td><td[^>]*>0.25<", page)
