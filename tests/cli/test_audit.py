"""``dptopk audit`` from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.cli.audit import load

MECHANISM = """
def honest(counts):
    return []

def leaky(counts):
    return sorted(counts)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MECHANISM, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, ["audit", *arguments])


@pytest.mark.slow
def test_exit_code_says_refuted(run):
    found = run("mine.py:leaky", "--epsilon", "1", "--delta", "0.1", "--seconds", "1")
    assert found.exit_code == 1
    assert "Refuted" in found.output
    assert "confidence" in found.output


@pytest.mark.slow
def test_nothing_found_is_zero_and_json_is_json(run):
    found = run("mine.py:honest", "--claim", "DP(1)", "--seconds", "0.3", "--json")
    assert found.exit_code == 0
    assert json.loads(found.output)["finding"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("mine.py:honest",),
        ("mine.py:nothing", "--epsilon", "1"),
        ("none.py:f", "--epsilon", "1"),
        ("x", "--epsilon", "1"),
    ],
)
def test_wrong_arguments_are_one_line(run, arguments):
    found = run(*arguments)
    assert found.exit_code == 2
    assert "Traceback" not in found.output


def test_a_name_that_a_module_gives_when_asked_is_found(tmp_path, monkeypatch):
    """As the faces of this package do: it is not among the module's variables before."""
    (tmp_path / "gives_when_asked.py").write_text("def __getattr__(name):\n    return len\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert load("gives_when_asked:any") is len
