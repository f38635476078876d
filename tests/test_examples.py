"""The programs under examples/ run, keep to what they announce, and write what they say."""

from __future__ import annotations

import base64
import importlib.util
import json
import logging
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from dptopk import Ledger, compose

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
    assert module.main([str(tmp_path), "--seed", str(seed)]).equals(
        log
    )  # starts anew in the same folder


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


@pytest.mark.slow
def test_with_pipelinedp():
    module = load("with_pipelinedp")
    epsilon, _ = module.main()
    total = compose(module.with_job(epsilon), delta=module.BUDGET.delta).epsilon
    assert module.BUDGET.epsilon * (1 - 2e-3) <= total <= module.BUDGET.epsilon
    sum_of_parts = compose(module.SELECTIONS, delta=5e-7).epsilon + epsilon
    assert sum_of_parts > module.BUDGET.epsilon  # what adding up the two would not allow


@pytest.mark.slow
def test_airflow_task(tmp_path):
    """Three tries of one run are one charge and one answer; the next run is another."""
    module = load("airflow_task")
    rows = module.main([str(tmp_path)])
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert len(ledger.recent("clicks")) == 1
    module.publish(str(tmp_path), "scheduled__2026-11-02")
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert len(ledger.recent("clicks")) == 2
    assert module.publish(str(tmp_path), "scheduled__2026-11-01") == rows


@pytest.mark.slow
def test_spark_job(tmp_path):
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is no java on the PATH")
    sql = pytest.importorskip("pyspark.sql", reason="needs the extra spark")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = {"ui.enabled": "false", "sql.shuffle.partitions": "2", "driver.host": "127.0.0.1"}
    builder = sql.SparkSession.builder.master("local[1]").appName("tests")
    for name, value in (settings | {"driver.bindAddress": "127.0.0.1"}).items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        release = load("spark_job").main([str(tmp_path)], spark)
    finally:
        spark.stop()
    assert 5 <= len(release) <= 10  # now and then the tenth is below the noisy threshold
    lines = (tmp_path / "top.csv").read_text(encoding="utf-8").count("\n")
    assert lines == len(release) + 1


@pytest.mark.slow
def test_notebook(tmp_path, monkeypatch, capsys):
    """Every cell runs, in order; the notebook shows a picture wherever one is drawn."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    notebook = json.loads((EXAMPLES / "story.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["language"]) == (4, "python")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    namespace, pictures = {"__name__": "__main__"}, 0
    for number, cell in enumerate(one for one in notebook["cells"] if one["cell_type"] == "code"):
        text = "".join(cell["source"])
        # what a notebook is
        exec(compile(text, f"cell {number + 1}", "exec"), namespace)  # noqa: S102
        shown = [
            base64.b64decode(one["data"]["image/png"])
            for one in cell["outputs"]
            if one["output_type"] == "display_data"
        ]
        assert len(shown) == text.count("plt.show()")
        assert all(picture.startswith(b"\x89PNG") for picture in shown)
        pictures += len(shown)
    said = capsys.readouterr().out
    assert pictures >= 4
    assert "budget exceeded" in said
    assert "the log is whole: True" in said
