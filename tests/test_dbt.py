"""The dbt project of examples/, run by dbt with dbt-duckdb: clicks in, a private table out.

dbt has many dependencies of its own, so it is run as a program: that of ``make dbt``, or one on the
path, beside which dptopk is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dptopk import Budget, Ledger, Sensitivity

duckdb = pytest.importorskip("duckdb")

ROOT = Path(__file__).parent.parent
MADE = ROOT / "build" / "dbt" / "bin" / "dbt"
DBT = os.environ.get("DPTOPK_DBT") or (str(MADE) if MADE.exists() else shutil.which("dbt"))
needs_dbt = pytest.mark.skipif(DBT is None, reason="dbt is not installed: make dbt")


def build(folder, command="build", **variables):
    """Run dbt on the project, with its files in a folder."""
    values = json.dumps({"ledger": str(folder / "ledger.db")} | variables)
    given = [DBT, "--no-use-colors", command, "--profiles-dir", "."]
    given += ["--vars", values, "--target-path", str(folder / "target")]
    given += ["--log-path", str(folder / "logs")]
    environment = os.environ | {"DBT_WAREHOUSE": str(folder / "warehouse.duckdb")}
    project = ROOT / "examples" / "dbt"
    return subprocess.run(given, cwd=project, env=environment, capture_output=True, text=True)  # noqa: PLW1510


def table(folder):
    with duckdb.connect(folder / "warehouse.duckdb", read_only=True) as connection:
        return connection.table("top_articles").df()


def spent(folder):
    with Ledger(folder / "ledger.db", read_only=True) as ledger:
        assert ledger.verify()
        return ledger.spent("clicks")


@needs_dbt
@pytest.mark.slow
def test_a_dbt_project_makes_a_private_table_and_charges_each_version_once(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0, done.stdout
    first = table(tmp_path)
    assert list(first["rank"]) == list(range(1, len(first) + 1))
    assert {"label", "count", "low", "high"} <= set(first.columns)
    paid = spent(tmp_path)
    assert build(tmp_path).returncode == 0
    assert table(tmp_path).equals(first)
    assert spent(tmp_path) == paid
    assert build(tmp_path, data_version="2026-11-02").returncode == 0
    assert spent(tmp_path).includes(paid)
    assert spent(tmp_path) != paid
    assert not table(tmp_path).equals(first)


@needs_dbt
@pytest.mark.slow
def test_the_budget_of_the_data_set_ends_the_project(tmp_path):
    """A second version is more than the ledger has left: dbt fails, and the last table stays."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        terms = {"sensitivity": Sensitivity(l0=5), "unit": "member", "version": "1"}
        ledger.create_dataset("clicks", budget=Budget(1.2, 1e-5), **terms)
    assert build(tmp_path, data_version="1").returncode == 0
    last = table(tmp_path)
    refused = build(tmp_path, data_version="2")
    assert refused.returncode != 0
    assert "BudgetExceeded" in refused.stdout
    assert table(tmp_path).equals(last)
