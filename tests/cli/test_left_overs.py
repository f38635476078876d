"""Small things of every day: standard input, files under a wrong name, doubled columns, an
interrupt.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dptopk import Budget, Charge, Ledger, PureDP, Sensitivity, plan_topk
from dptopk.cli.commands import app
from dptopk.errors import InvalidParameter
from dptopk.ledger import transaction
from dptopk.ledger.keys import read_key

OPTIONS = ("--k", "2", "--epsilon", "2", "--known-domain", "--labels-per-user", "1", "--seed", "1")
TABLE = "label,count\na,500\nb,300\n"


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


@pytest.mark.slow
def test_standard_input_is_a_csv_file(counts):
    from_file = run("topk", counts, *OPTIONS, "--format", "csv")
    piped = run("topk", "-", *OPTIONS, "--format", "csv", stdin=TABLE)
    assert piped.exit_code == 0, piped.output
    assert piped.stdout == from_file.stdout
    other = "region;label;count\neu;a;500\nus;a;900\n"
    parts = (
        "--sep",
        ";",
        "--segment-by",
        "region",
        "--segments",
        "eu,us",
        "--segments-per-user",
        "1",
    )
    both = run("topk", "-", *OPTIONS, "--k", 1, *parts, "--format", "json", stdin=other)
    assert set(json.loads(both.stdout)["segments"]) == {"eu", "us"}


def test_a_stored_answer_cannot_be_that_of_standard_input(tmp_path):
    url = tmp_path / "l.db"
    init = ("--dataset", "d", "--epsilon", 3, "--delta", 1e-6, "--labels-per-user", 1, "--test")
    assert run("ledger", "init", url, *init).exit_code == 0
    who = ("--ledger", url, "--dataset", "d", "--analyst", "ann", "--reuse")
    refused = run("topk", "-", *OPTIONS, *who, stdin=TABLE)
    assert refused.exit_code == 2
    assert "standard input is another source each time" in refused.output


@pytest.mark.parametrize(
    ("form", "name"),
    [("parquet", "x.csv"), ("table", "x.csv"), ("csv", "x.json"), ("json", "x.html")],
)
def test_a_file_holds_what_its_name_says(counts, tmp_path, form, name):
    refused = run("topk", counts, *OPTIONS, "--format", form, "--out", tmp_path / name)
    assert refused.exit_code == 2
    assert f"would hold {form}; give it --format" in refused.output
    assert not (tmp_path / name).exists()


def test_events_are_not_written_under_another_name(tmp_path):
    refused = run("datasets", "make", tmp_path / "events.csv", "--events", 10)
    assert refused.exit_code == 2
    assert "name it events.parquet" in refused.output


def test_a_column_named_twice_is_refused(tmp_path):
    path = tmp_path / "double.csv"
    path.write_text("label,count,count\na,5,6\n", encoding="utf-8")
    refused = run("topk", path, *OPTIONS)
    assert refused.exit_code == 2
    assert "has two columns 'count'" in refused.output
    path.write_text("label,count,note,note\na,5,x,y\nb,4,x,y\n", encoding="utf-8")
    assert (
        run("topk", path, *OPTIONS).exit_code == 0
    )  # what is not read may be named as often as it likes


def test_a_count_that_is_text_is_named_by_its_option(tmp_path):
    path = tmp_path / "text.csv"
    path.write_text("label,count\na,5\nb,many\n", encoding="utf-8")
    refused = run("topk", path, *OPTIONS)
    assert refused.exit_code == 2
    assert "--count-col: counts must be whole numbers, got text" in refused.output


@pytest.mark.slow
def test_an_interrupt_while_the_command_is_loaded_is_quiet():
    code = (
        "import builtins, os, signal\n"
        # a background job is started without it
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "load = builtins.__import__\n"
        "def loading(name, *rest):\n"
        "    if name == 'typer':\n"
        "        builtins.__import__ = load\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *rest)\n"
        "builtins.__import__ = loading\n"
        "import dptopk.cli\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == ""


@pytest.mark.slow
def test_a_plan_shows_itself_in_a_notebook():
    plan = plan_topk(5, Budget(1.0, 1e-6), sensitivity=Sensitivity(l0=1))
    page = plan._repr_html_()
    assert plan.design in page
    assert str(plan.charge) in page


DEEP = "[" * 100_000


@pytest.mark.parametrize("where", ["source", "domain", "head"])
def test_json_as_deep_as_the_sea_is_refused_or_a_plain_text(counts, tmp_path, where):
    """One line of one user's must not end a command in a traceback, which might quote data."""
    lines = tmp_path / f"{where}.jsonl"
    lines.write_text(
        f'{{"label": "a", "count": 5}}\n{DEEP if where == "source" else ""}\n', encoding="utf-8"
    )
    deep = tmp_path / "deep.txt"
    deep.write_text(f"a\n{DEEP}\n", encoding="utf-8")
    if where == "head":
        url = tmp_path / "l.db"
        assert (
            run("ledger", "init", url, "--dataset", "d", "--epsilon", 3, "--delta", 1e-6).exit_code
            == 0
        )
        result = run("ledger", "verify", url, "--head", deep)
        assert "'deep.txt' is not an exported head" in result.output
    elif where == "domain":
        result = run(
            "topk", lines, "--k", 1, "--epsilon", 1, "--labels-per-user", 1, "--domain", deep
        )
        assert result.exit_code == 0, result.output
        return
    else:
        result = run("topk", lines, *OPTIONS)
        assert "cannot be read as jsonl" in result.output
    assert result.exit_code == 2


def test_a_key_file_is_its_owner_s(tmp_path, caplog):
    secret, url = tmp_path / "chain.key", tmp_path / "l.db"
    secret.write_text(" a secret \n", encoding="utf-8")
    secret.chmod(0o600)
    init = (
        "ledger",
        "init",
        url,
        "--dataset",
        "d",
        "--epsilon",
        3,
        "--delta",
        1e-6,
        "--key-file",
        secret,
    )
    assert run(*init).exit_code == 0
    assert not caplog.records
    secret.chmod(0o644)
    assert run("ledger", "verify", url, "--key-file", secret).exit_code == 0
    assert "other users may read 'chain.key'" in caplog.text
    secret.write_text(" \n", encoding="utf-8")
    refused = run("ledger", "verify", url, "--key-file", secret)
    assert refused.exit_code == 2
    assert "'chain.key' is empty" in refused.output


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_as_key_file_is_read_and_not_waited_for(tmp_path):
    """The command waited for ever, and a device filled the memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidParameter, match="'pipe' is empty"):
        read_key(pipe)
    device = tmp_path / "device"
    device.symlink_to("/dev/zero")
    with pytest.raises(InvalidParameter, match="'device' is longer than a secret may be"):
        read_key(device)
    reading, writing = os.pipe()  # as of a shell's <(...)
    later = threading.Timer(0.05, lambda: os.write(writing, b"a secret\n") and os.close(writing))
    later.start()
    assert read_key(Path(f"/dev/fd/{reading}")) == b"a secret"
    os.close(reading)
    later.join()


@pytest.mark.slow
@pytest.mark.parametrize("year", [1, 9999])
def test_spending_is_drawn_whatever_the_clock_said(tmp_path, monkeypatch, year):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(year, 1, 1, tzinfo=tz)

    monkeypatch.setattr(transaction, "datetime", Clock)
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.create_dataset("d", budget=Budget(1, 1e-6))
        ledger.charge("d", "ann", Charge({PureDP(0.1): 1}))
    drawn = run("ledger", "show", tmp_path / "l.db", "--plot", tmp_path / "spent.svg")
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "spent.svg").stat().st_size
