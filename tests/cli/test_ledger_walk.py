"""The walk-through of docs/ledger.md, command by command, in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"
RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def commands() -> list[list[str]]:
    blocks = re.findall(
        r"^```console\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ ")) for line in lines]


@pytest.mark.slow
def test_every_command_of_the_walk_through_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = []
    for program, *arguments in commands():
        assert program == "dptopk"
        result = RUNNER.invoke(app, arguments)
        assert result.exit_code == 0, f"{arguments}: {result.output}"
        outputs.append(result.output)
    assert len(outputs) == 6
    assert "Registered:" in outputs[1]
    shown, verified = outputs[3], outputs[5]
    assert re.search(r"[1-9][0-9.]*% +of the budget", shown), shown
    assert re.search(r"\b1 +19\b", shown), shown  # asked once, 19 more fit
    assert "the chain is whole" in verified
    assert Path("spent.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_question_of_another_kind_is_refused_by_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk = commands()
    for _, *arguments in walk[:2]:
        assert RUNNER.invoke(app, arguments).exit_code == 0
    other = [*walk[2][1:], "--counts", "gaussian", "--method", "threshold"]
    other[other.index("6")] = "3"
    refused = RUNNER.invoke(app, other)
    assert refused.exit_code == 3
    assert "is not registered" in refused.output


@pytest.mark.slow
def test_files_of_the_ledger_are_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _, *arguments in commands()[:2]:
        assert RUNNER.invoke(app, arguments).exit_code == 0
    before = Path("ledger.db").read_bytes()
    for arguments in (
        ["ledger", "export", "ledger.db", "--out", "ledger.db"],
        ["ledger", "export", "ledger.db", "--out", "ledger.db-journal"],
        ["ledger", "export", "ledger.db", "--out", "/dev/full"],
        ["ledger", "show", "ledger.db", "--plot", "ledger.db"],
        ["ledger", "backup", "ledger.db", "--out", "ledger.db"],
    ):
        assert RUNNER.invoke(app, arguments).exit_code in {2, 4}, arguments
    assert Path("ledger.db").read_bytes() == before
    assert (
        RUNNER.invoke(
            app, ["ledger", "set-version", "ledger.db", "--dataset", "words", "--version", "2"]
        ).exit_code
        == 0
    )
    assert RUNNER.invoke(app, ["ledger", "backup", "ledger.db", "--out", "copy.db"]).exit_code == 0
    assert "data version 2" in RUNNER.invoke(app, ["ledger", "show", "copy.db"]).output
    for arguments in (
        ["ledger", "show", "typo.db"],
        ["ledger", "limit", "typo.db", "--dataset", "d", "--analyst", "a"],
    ):
        assert (
            RUNNER.invoke(
                app, [*arguments, *(["--epsilon", "1", "--delta", "0"] * ("limit" in arguments))]
            ).exit_code
            == 4
        )
        assert not Path("typo.db").exists()
