"""``dptopk audit`` from the command line."""

from __future__ import annotations

import json
import pickle

import pytest
from typer.testing import CliRunner

from dptopk.audit import from_opendp
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


@pytest.mark.parametrize(
    "fault", ["raise KeyError(counts)", "raise SystemExit(0)", "return [[{}]]"]
)
def test_a_function_that_fails_is_one_line_and_shows_no_counts(tmp_path, fault):
    """By its name and the type of its error; the exit code is not the function's to choose."""
    (tmp_path / "fails.py").write_text(f"def faulty(counts):\n    {fault}\n", encoding="utf-8")
    found = CliRunner().invoke(
        app, ["audit", f"{tmp_path}/fails.py:faulty", "--epsilon", "1", "--seconds", "5"]
    )
    kind = {"raise K": "KeyError", "raise S": "SystemExit", "return ": "TypeError"}[fault[:7]]
    assert found.exit_code == 2
    assert f"faulty raised {kind}" in found.output
    assert "Traceback" not in found.output
    assert "{" not in found.output


def test_a_law_that_fails_is_one_line(tmp_path):
    (tmp_path / "law.py").write_text(
        "class Odd:\n    def law(self, counts):\n        return 1 / 0\n\nodd = Odd()\n"
    )
    found = CliRunner().invoke(app, ["attest", f"{tmp_path}/law.py:odd", "--claim", "DP(1)"])
    assert found.exit_code == 2
    assert "Odd raised ZeroDivisionError" in found.output


def test_what_is_made_for_opendp_goes_to_another_process():
    """By value, as a process that was spawned gets it: OpenDP's own measurements do not, others
    may.
    """
    for vector, seen in ((True, [3, 1]), (False, {"a": 3, "b": 1})):
        assert pickle.loads(pickle.dumps(from_opendp(repr, vector=vector)))(  # noqa: S301
            {"a": 3, "b": 1}
        ) == repr(seen)


def test_a_name_that_a_module_gives_when_asked_is_found(tmp_path, monkeypatch):
    """As the faces of this package do: it is not among the module's variables before."""
    (tmp_path / "gives_when_asked.py").write_text(
        "def __getattr__(name):\n    return len\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load("gives_when_asked:any") is len
