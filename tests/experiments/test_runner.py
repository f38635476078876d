"""Files, resuming, determinism and the report."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk import InvalidParameter
from dptopk.cli import app
from dptopk.experiments import EXPERIMENTS, runner
from dptopk.experiments.experiment import Experiment, RunSettings, claim, in_parallel, number
from dptopk.experiments.runner import run

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
CHEAP = "ddr-figure-2"
QUICK = RunSettings(quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_leaves_its_files(quick, name):
    for ending in (".csv", ".png", ".svg", ".json"):
        assert (quick.folder / f"{name}{ending}").stat().st_size > 100
    assert quick.outcomes[name].experiment.name == name
    assert not quick.outcomes[name].resumed


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_progress_rises_to_one(quick, name):
    shares = quick.progress[name]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.slow
def test_report_is_one_page_that_points_nowhere_else(quick):
    page = (quick.folder / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'(?:href|src)="([^"]{0,40})', page)
    assert len(links) == 4 * len(EXPERIMENTS)  # contents, image, table, drawing
    assert all(link.startswith(("#", "data:")) for link in links)
    visible = re.sub(r'"data:[^"]*"', "", page)
    assert "http" not in visible
    assert "//" not in visible
    for outcome in quick.outcomes.values():
        assert outcome.experiment.name in page
        assert page.count(f'id="{outcome.experiment.name}"') == 1


@pytest.mark.slow
def test_second_run_takes_what_is_there(tmp_path):
    (first,) = run([CHEAP], tmp_path, QUICK)
    table = (tmp_path / f"{CHEAP}.csv").read_bytes()
    drawing = (tmp_path / f"{CHEAP}.svg").read_bytes()
    (second,) = run([CHEAP], tmp_path, QUICK)
    assert (first.resumed, second.resumed) == (False, True)
    assert second.comparisons == first.comparisons
    assert (tmp_path / f"{CHEAP}.svg").read_bytes() == drawing
    (third,) = run([CHEAP], tmp_path, QUICK, force=True)
    assert not third.resumed
    assert (tmp_path / f"{CHEAP}.csv").read_bytes() == table
    assert (tmp_path / f"{CHEAP}.svg").read_bytes() == drawing


@pytest.mark.slow
@pytest.mark.parametrize("other", [replace(QUICK, seed=1), RunSettings()])
def test_other_settings_are_computed_again(tmp_path, other):
    run([CHEAP], tmp_path, QUICK)
    (outcome,) = run([CHEAP], tmp_path, other)
    assert not outcome.resumed


@pytest.mark.slow
def test_a_damaged_table_is_computed_again(tmp_path):
    run([CHEAP], tmp_path, QUICK)
    table = tmp_path / f"{CHEAP}.csv"
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2])
    (outcome,) = run([CHEAP], tmp_path, QUICK)
    assert not outcome.resumed
    assert table.read_bytes() == whole


@pytest.mark.slow
def test_other_code_is_computed_again(tmp_path, monkeypatch):
    run([CHEAP], tmp_path, QUICK)
    monkeypatch.setattr(runner, "_digest_of_package", lambda: "changed")
    (outcome,) = run([CHEAP], tmp_path, QUICK)
    assert not outcome.resumed


@pytest.mark.slow
def test_report_keeps_what_earlier_runs_left(tmp_path):
    run([CHEAP], tmp_path, QUICK)
    run(["cns-figure-1"], tmp_path, QUICK)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f'id="{name}"' in page for name in (CHEAP, "cns-figure-1"))


@pytest.mark.slow
def test_a_killed_run_resumes_with_what_was_done(tmp_path):
    """Kill the command while its second experiment computes: the first is kept, and no worker is
    left behind.
    """
    command = [
        sys.executable,
        "-m",
        "dptopk.cli",
        "reproduce",
        CHEAP,
        "adaptivity",
        "--out",
        tmp_path,
        "--jobs",
        "2",
    ]
    environment = os.environ | {"PYTHONPATH": str(Path(runner.__file__).parents[2])}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (tmp_path / "report.html").exists():
            time.sleep(0.05)
        time.sleep(2)  # the workers of the second experiment start
    finally:
        process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)  # ends when all that hold its output have ended: the workers do
    assert (tmp_path / f"{CHEAP}.json").exists()
    assert not (tmp_path / "adaptivity.json").exists()
    (first,) = run([CHEAP], tmp_path, RunSettings())
    assert first.resumed


def _square(x):
    return x * x


@pytest.mark.slow
def test_trials_in_processes_are_those_in_line():
    shares = []
    settings = RunSettings(jobs=2, progress=shares.append)
    assert (
        in_parallel(_square, range(5), settings)
        == in_parallel(_square, range(5), RunSettings())
        == [0, 1, 4, 9, 16]
    )
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.slow
def test_results_depend_on_the_seed_alone(tmp_path):
    from dptopk.experiments.cr_figure_6 import compute

    one, two, other = (
        compute(settings)
        for settings in (QUICK, replace(QUICK, jobs=2), replace(QUICK, seed=QUICK.seed + 1))
    )
    assert one.equals(two)
    assert not one["rmse"].equals(other["rmse"])


def test_verdicts():
    assert number("σ", 13.1, 13.1499, digits=1).agrees is True
    assert number("σ", 13.1, 13.1501, digits=1).agrees is False
    assert claim("", "", 0).agrees is False
    assert claim("", "", 1).ours == "holds"


def test_names_are_those_of_the_modules():
    from dptopk.experiments import load

    for name in EXPERIMENTS:
        experiment = load(name)
        assert isinstance(experiment, Experiment)
        assert experiment.name == name
        assert experiment.setting
        assert experiment.source


def test_unknown_names_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(InvalidParameter, match="experiment"):
        run([CHEAP, "cr-figure-99"], tmp_path / "out", QUICK)
    assert not (tmp_path / "out").exists()


def test_command_refuses_unknown_names_with_code_2(tmp_path):
    result = RUNNER.invoke(app, ["reproduce", "cr-figure-99", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "cr-figure-99" in result.output + result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_command_names_what_does_not_hold(tmp_path):
    result = RUNNER.invoke(
        app, ["reproduce", "truncated-gaussian", "--out", str(tmp_path), "--quick", "--jobs", "1"]
    )
    assert result.exit_code == 0, result.output
    assert "does not hold: σ = 3: Algorithm 2" in result.stdout


def test_command_lists_all():
    result = RUNNER.invoke(app, ["reproduce"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(EXPERIMENTS)


@pytest.mark.slow
def test_command_makes_figure_and_report(tmp_path):
    result = RUNNER.invoke(
        app, ["reproduce", CHEAP, "--out", str(tmp_path), "--quick", "--jobs", "1"]
    )
    assert result.exit_code == 0, result.output
    assert "2 statements hold" in result.stdout
    assert str(tmp_path / "report.html") in result.stdout.replace("\n", "")
    assert (tmp_path / f"{CHEAP}.png").exists()
