"""An interrupt of an answer that a ledger pays for: exit code 130, and a charge that is whole or
not there.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dptopk.ledger
from dptopk import Budget, Sensitivity
from dptopk.cli import app
from dptopk.ledger.ledger import Ledger

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
FOLDER = str(Path(dptopk.ledger.__file__).parent)
QUESTION = shlex.split(
    "--k 1 --epsilon 0.1 --delta 1e-8 --labels-per-user 1 --dataset d --analyst ann"
)
INTERRUPTED = 130


class Interrupt:
    """An interrupt at the n-th call of a function of dptopk.ledger; 0 = never, to count them."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER):
            self.calls += 1
            if self.calls == self.at:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)


def ask(folder, interrupt):
    """The question, asked with a fixed name of the ledger; what it exits with."""
    before, handler = sys.getprofile(), signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setprofile(interrupt)
    try:
        return RUNNER.invoke(
            app, ["topk", str(folder / "c.csv"), *QUESTION, "--ledger", str(folder / "l.db")]
        )
    finally:
        sys.setprofile(before)
        signal.signal(signal.SIGINT, handler)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "c.csv").write_text("label,count\na,9000\nb,8000\n", encoding="utf-8")
    with Ledger(tmp_path / "l.db") as ledger:
        terms = Budget(3.0, 1e-6)
        ledger.create_dataset("d", budget=terms, sensitivity=Sensitivity(l0=1))
    return tmp_path


def charges(folder):
    """What was charged, in whole questions; the file is whole."""
    with Ledger(folder / "l.db", read_only=True) as ledger:
        assert ledger.verify()
        spends = ledger.history("d")
    return len(spends), sum(spend.released for spend in spends)


@pytest.mark.slow
def test_an_interrupt_at_any_call_of_the_ledger_leaves_a_charge_whole_or_not_there(folder):
    calls = Interrupt(0)
    assert ask(folder, calls).exit_code == 0
    assert charges(folder) == (1, 1)
    assert calls.calls > 50
    seen = set()
    for at in range(1, calls.calls, max(1, calls.calls // 24)):
        before = charges(folder)
        result = ask(folder, Interrupt(at))
        charged, released = (now - then for now, then in zip(charges(folder), before, strict=True))
        assert result.exit_code == INTERRUPTED, result.output
        assert "Traceback" not in result.output
        assert 0 <= released <= charged <= 1
        seen.add((charged, released))
    assert {(0, 0), (1, 0)} <= seen  # before the charge, and after it: then it stays charged
    assert ask(folder, Interrupt(0)).exit_code == 0


@pytest.mark.slow
def test_a_process_that_is_interrupted_exits_with_130(folder):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from dptopk.cli import main\n"
        "from dptopk.ledger.ledger import Ledger\n"
        "charge = Ledger.charge\n"
        "def charged(*given, **named):\n"
        "    receipt = charge(*given, **named)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return receipt\n"
        "Ledger.charge = charged\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, "topk", "c.csv", *QUESTION, "--ledger", "l.db"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, check=False, timeout=60
    )
    assert done.returncode == INTERRUPTED
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert charges(folder) == (1, 0)  # charged, and no answer was drawn: it stays charged
