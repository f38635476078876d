"""What the README shows on the command line runs as it stands, and prints what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk import BoundedRange, Charge
from dptopk._internal.formatting import format_upper
from dptopk.accounting import bounds
from dptopk.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SECTION = README.split("## Five minutes")[1].split("\n## In Python")[0]
COMMANDS = [
    line[2:].split("  #")[0] for line in SECTION.splitlines() if line.startswith("$ dptopk ")
]
# Long: it has tests of its own (tests/experiments).
ELSEWHERE = ("reproduce",)
PLAN = """epsilon = 2.0
delta = 1e-6

[[query]]
name = "totals"
kind = "counts"
k = 5
labels_per_user = 1

[[query]]
name = "top"
k = 5
labels_per_user = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("readme")
    (path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return path


def test_the_commands_are_found():
    assert len(COMMANDS) > 8
    assert sum(command.split()[1] in ELSEWHERE for command in COMMANDS) == len(ELSEWHERE)


@pytest.mark.slow
def test_all_commands_one_after_the_other(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        if words[0] in ELSEWHERE:
            continue
        if words[:2] == ["datasets", "make"]:
            words += ["--events", "20000"]  # a smaller one than by default
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_the_first_commands_print_what_the_readme_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    first = README.split("## Five minutes")[1].split("\n## ")[0]
    printed = ""
    for command in [
        line[2:].split("  #")[0] for line in first.splitlines() if line.startswith("$ dptopk ")
    ]:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
        printed = result.output
    shown = first.split("```text\n")[1].split("```")[0]
    assert [line.rstrip() for line in printed.strip().splitlines()] == [
        line.rstrip() for line in shown.strip().splitlines()
    ]


@pytest.mark.slow
def test_the_table_of_bounds_is_what_compose_says():
    section = README.split("## How good are the bounds?")[1].split("\n## ")[0]
    names = {
        "as 100 pure DP": "optimal_dp",
        "OptKL": "opt_kl",
        "ε²/8-zCDP": "zcdp_tight",
        "summed Rényi": "renyi",
        "**the adaptive": "optimal_setwise",
        "the optimum if": "br_nonadaptive",
    }
    rows = re.findall(r"^\| (\S.*) \| \**([\d.]+)\** \|$", section, re.MULTILINE)
    assert len(rows) == len(names)
    table = bounds.table(Charge({BoundedRange(0.1): 100}), delta=1e-6).set_index("name")
    for (text, stated), (start, name) in zip(rows, names.items(), strict=True):
        assert text.startswith(start)
        assert stated == format_upper(table.loc[name, "epsilon"], digits=4)
