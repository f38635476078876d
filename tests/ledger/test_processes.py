"""Real processes on one ledger: concurrent writers, SIGKILL at random instants, clock jumps."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dptopk.costs import BoundedRange, Charge
from dptopk.errors import BudgetExceeded
from dptopk.ledger import transaction as ledger_transaction
from dptopk.ledger.ledger import Ledger

TORTURE = Path(__file__).parents[2] / "benchmarks" / "ledger_torture.py"


def torture(tmp_path, *, ahead=False, **options):
    arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [
        sys.executable,
        str(TORTURE),
        "--folder",
        str(tmp_path),
        *arguments,
        *(["--ahead"] if ahead else []),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_concurrent_writers_spend_exactly_the_budget(tmp_path):
    found = torture(tmp_path, writers=4, tokens=150, kills=0, spends=5)
    assert found["overspends"] == 0
    assert found["lost charges"] == 0
    assert found["charges"] == found["answers"] > 50
    assert found["verified"] is True


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [pytest.param(False, marks=pytest.mark.study), True])
def test_writers_killed_at_random_instants_lose_no_charge(tmp_path, ahead):
    found = torture(
        tmp_path, writers=4, tokens=1000 if ahead else 500, kills=12, spends=5, ahead=ahead
    )
    assert found["kills"] == 12
    assert found["overspends"] == 0
    assert found["lost charges"] == 0
    assert found["charges"] >= found["answers"] > 0
    assert found["verified"] is True


def test_the_audit_would_see_a_lost_charge_and_an_overspend(tmp_path):
    """The check itself: an answer without an entry is counted, and so are tokens beyond the
    registered ones.
    """
    sys.path.insert(0, str(TORTURE.parent))
    try:
        import ledger_torture
    finally:
        sys.path.remove(str(TORTURE.parent))
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    ledger.create_dataset("data", registered=Charge({ledger_torture.TOKEN: 10}), delta=1e-6)
    receipt = ledger.charge("data", "ann", Charge({ledger_torture.TOKEN: 6}))
    (tmp_path / "answers-1").write_text(f"{receipt.seq} 0.1\n99 0.1\n", encoding="ascii")
    found = ledger_torture.audit(path, tmp_path, tokens=5)
    assert found["lost charges"] == 1
    assert found["overspends"] == 1


@pytest.mark.parametrize("jump", ["1970-01-01T00:00:00", "2999-12-31T23:59:59"])
def test_clock_jumps_change_nothing(tmp_path, monkeypatch, jump):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.fromisoformat(jump).replace(tzinfo=tz)

    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create_dataset("data", registered=Charge({BoundedRange(0.1): 5}), delta=1e-6)
    ledger.charge("data", "ann", Charge({BoundedRange(0.1): 2}))
    monkeypatch.setattr(ledger_transaction, "datetime", Clock)
    ledger.charge("data", "ann", Charge({BoundedRange(0.1): 2}))
    monkeypatch.undo()
    with pytest.raises(BudgetExceeded):
        ledger.charge("data", "ann", Charge({BoundedRange(0.1): 2}))
    assert ledger.verify()
    assert [entry.at[:4] for entry in ledger.entries()][2:] == [
        str(datetime.now(UTC).year),
        jump[:4],
    ]
