"""What the README shows on the command line runs as it stands, and prints what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SECTION = README.split("## On the command line")[1].split("\n## ")[0]
COMMANDS = [line[2:].split("  #")[0] for line in SECTION.splitlines() if line.startswith("$ dptopk ")]
# Long or without an end: each has tests of its own (tests/service, tests/experiments).
ELSEWHERE = ("serve", "reproduce")
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


def test_the_demo_prints_what_the_readme_shows():
    shown = README.split("## What `make run` prints")[1].split("```text\n")[1].split("```")[0]
    printed = CliRunner().invoke(app, ["demo", "--seed", "1"]).output
    rows = re.compile(r"^\s+(\d+)\s+(\S+)\s+(\d+)", re.MULTILINE)
    assert len(rows.findall(shown)) > 30
    assert rows.findall(shown) == rows.findall(printed)
