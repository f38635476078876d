"""Small things of every day: standard input, files under a wrong name, doubled columns, an interrupt."""

import json
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dptopk import Budget, Sensitivity, plan_topk
from dptopk.cli.app import app

OPTIONS = ("--k", "2", "--epsilon", "2", "--known-domain", "--labels-per-user", "1", "--seed", "1")
TABLE = "label,count\na,500\nb,300\n"


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text(TABLE, encoding="utf-8")
    return path


def test_standard_input_is_a_csv_file(counts):
    from_file = run("topk", counts, *OPTIONS, "--format", "csv")
    piped = run("topk", "-", *OPTIONS, "--format", "csv", stdin=TABLE)
    assert piped.exit_code == 0, piped.output
    assert piped.stdout == from_file.stdout
    other = "region;label;count\neu;a;500\nus;a;900\n"
    parts = ("--sep", ";", "--segment-by", "region", "--segments", "eu,us", "--segments-per-user", "1")
    both = run("topk", "-", *OPTIONS, *parts, "--format", "json", stdin=other)
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
    ("form", "name"), [("parquet", "x.csv"), ("table", "x.csv"), ("csv", "x.json"), ("json", "x.html")]
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
    path.write_text("label,count,note,note\na,5,x,y\n", encoding="utf-8")
    assert run("topk", path, *OPTIONS).exit_code == 0  # what is not read may be named as often as it likes


def test_a_count_that_is_text_is_named_by_its_option(tmp_path):
    path = tmp_path / "text.csv"
    path.write_text("label,count\na,5\nb,NaN\n", encoding="utf-8")
    refused = run("topk", path, *OPTIONS)
    assert refused.exit_code == 2
    assert "--count-col: counts must be whole numbers, got text" in refused.output


def test_an_interrupt_while_the_command_is_loaded_is_quiet():
    code = (
        "import builtins, os, signal\n"
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


def test_a_plan_shows_itself_in_a_notebook():
    plan = plan_topk(5, Budget(1.0, 1e-6), sensitivity=Sensitivity(l0=1))
    page = plan._repr_html_()
    assert plan.design in page
    assert str(plan.charge) in page
