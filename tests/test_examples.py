"""The programs under examples/ run, keep to what they announce, and write what they say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from dptopk import compose

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


def test_with_dp_accounting():
    found = load("with_dp_accounting").main()
    assert 2.2508 <= found["selections as group"] <= 2.2545  # 2.2508 is proven to be necessary
    assert found["selections as dp"] > 4.7
    assert found["with the Gaussian as group"] < 0.6 * found["with the Gaussian as dp"]


def test_with_opendp():
    module = load("with_opendp")
    epsilon, delta = module.main()
    ours = compose(module.SPENT, delta=1e-6)
    assert ours.lower + 0.5 <= epsilon <= (ours.epsilon + 0.5) * (1 + 1e-3)
    assert delta == 1e-6


def test_with_pipelinedp():
    module = load("with_pipelinedp")
    epsilon, _ = module.main()
    total = compose(module.with_job(epsilon), delta=module.BUDGET.delta).epsilon
    assert module.BUDGET.epsilon * (1 - 2e-3) <= total <= module.BUDGET.epsilon
    sum_of_parts = compose(module.SELECTIONS, delta=5e-7).epsilon + epsilon
    assert sum_of_parts > module.BUDGET.epsilon  # what adding up the two would not allow
