"""The programs under examples/ run, keep to what they announce, and write what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_dashboard(tmp_path):
    table = load("dashboard").main([str(tmp_path), "--queries", "3", "--seed", "1"])
    assert table["epsilon"].is_monotonic_increasing
    assert (table["epsilon"] <= table["each month on its own"] * (1 + 1e-9)).all()
    assert {path.name for path in tmp_path.iterdir()} == {"dashboard.csv", "dashboard.png"}
    assert (tmp_path / "dashboard.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_analyst(tmp_path, seed):
    module = load("analyst")
    log = module.main([str(tmp_path), "--seed", str(seed)])
    assert len(log) >= 4
    assert log["selections left"].is_monotonic_decreasing
    assert {"ledger.db", "session.csv", "session.png"} <= {path.name for path in tmp_path.iterdir()}
    assert module.main([str(tmp_path), "--seed", str(seed)]).equals(log)  # starts anew in the same folder
