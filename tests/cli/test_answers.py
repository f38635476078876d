"""Answers on the command line: pages, pictures, CSV, targets, extras that are missing, words of the
options.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dptopk import Histogram, KnownLaplace, Sensitivity
from dptopk.cli.commands import app
from dptopk.cli.output import write_plot

BASE = ("--k", 3, "--epsilon", 2, "--delta", 1e-6, "--labels-per-user", 1, "--seed", 1)
EVIL = ["=1+1", "<script>alert(1)</script>", "[red]x[/red]"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    rows = [*zip(EVIL, (900, 800, 700), strict=True), ("a\x1b[2Jb", 5)]
    path.write_text(
        "label,count\n" + "".join(f'"{label}",{count}\n' for label, count in rows), encoding="utf-8"
    )
    return path


@pytest.mark.slow
def test_the_page_is_whole_and_safe(counts, tmp_path):
    out = tmp_path / "answer.html"
    result = run("topk", counts, *BASE, "--format", "html", "--out", out)
    assert result.exit_code == 0, result.output
    page = out.read_text(encoding="utf-8")
    assert "&lt;script&gt;" in page
    for forbidden in ("<script", "http:", "https:", "src=", "@import", "url("):
        assert forbidden not in page
    lead, _, folded = page.partition("How this was computed")
    for said in (
        "every interval above contains",
        "Data set",
        counts.name,
        "Date",
        "one user, who can affect",
        "noisy on purpose",
    ):
        assert said in lead
    for said in ("TruncatedLaplace", "How to cite", "DP at most", "Split"):
        assert said in folded
        assert said not in lead


@pytest.mark.slow
def test_the_page_says_what_is_left(counts, tmp_path):
    ledger = tmp_path / "l.db"
    run(
        "ledger",
        "init",
        ledger,
        "--dataset",
        "d",
        "--delta",
        1e-5,
        "--epsilon",
        5,
        "--labels-per-user",
        1,
        "--test",
    )
    who = ("--ledger", ledger, "--dataset", "d", "--analyst", "ann")
    result = run("topk", counts, *BASE, *who, "--format", "html")
    assert result.exit_code == 0, result.output
    lead = result.stdout.partition("How this was computed")[0]
    for said in ("What is left", "<dd>d</dd>", "Data version"):
        assert said in lead


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_drawn_beside_the_answer(counts, tmp_path, ending):
    plot = tmp_path / f"answer.{ending}"
    result = run("topk", counts, *BASE, "--plot", plot)
    assert result.exit_code == 0, result.output
    assert plot.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    assert "noisy count" in result.stdout


@pytest.mark.slow
def test_the_plot_of_one_count_is_written(tmp_path):
    """This runs with the lowest matplotlib too."""
    pytest.importorskip("matplotlib")
    histogram = Histogram(["a"], [900], sensitivity=Sensitivity(l0=1), domain="public")
    release = KnownLaplace(epsilon=1.0).release(histogram)
    write_plot(release, tmp_path / "a.svg", 0.95)
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.slow
def test_csv_has_error_bars_no_formulas_and_the_guarantee_beside_it(counts):
    result = run("topk", counts, *BASE, "--format", "csv")
    assert result.stdout.splitlines()[0] == "rank,label,count,low,high"
    assert ",'=1+1," in result.stdout
    assert "1e-06)-DP at most" in result.stderr


def test_json_has_error_bars_and_no_control_characters(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text('label,count\n"a\x9b31m\u202eb",900\n', encoding="utf-8")
    text = run("topk", path, *BASE, "--format", "json").stdout
    assert not set("\x9b\u202e") & set(text)
    answer = json.loads(text)
    assert answer["rows"][0]["label"] == "a\x9b31m\u202eb"
    assert answer["rows"][0]["low"] <= answer["rows"][0]["count"] <= answer["rows"][0]["high"]
    assert answer["intervals"] == {"confidence": 0.95, "kind": "simultaneous", "ranks": "domain"}
    assert list(answer["about"]) == ["Data set", "Date", "Protected", "Data version"]
    assert "* Data set: counts.csv\n" in run("topk", path, *BASE, "--format", "markdown").stdout


# targets
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_target_is_never_an_input(counts, tmp_path):
    ledger = tmp_path / "l.db"
    run(
        "ledger",
        "init",
        ledger,
        "--dataset",
        "d",
        "--delta",
        1e-5,
        "--epsilon",
        5,
        "--labels-per-user",
        1,
        "--test",
    )
    before = ledger.read_bytes(), counts.read_bytes()
    who = ("--ledger", ledger, "--dataset", "d", "--analyst", "ann")
    link = tmp_path / "link.csv"
    link.hardlink_to(counts)
    for target in (ledger, counts, link):
        result = run("topk", counts, *BASE, *who, "--out", target)
        assert result.exit_code == 2
        assert "--out" in result.output
    assert (ledger.read_bytes(), counts.read_bytes()) == before


def test_the_target_is_a_regular_file(counts, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, "/dev/null", tmp_path):
        result = run("topk", counts, *BASE, "--out", target)
        assert result.exit_code == 2, target
        assert "--out" in result.output
    assert pipe.is_fifo()


def test_a_planted_link_is_not_followed(counts, tmp_path):
    victim, out = tmp_path / "victim", tmp_path / "out.csv"
    victim.write_text("precious", encoding="utf-8")
    (tmp_path / ".out.csv.part").symlink_to(victim)
    assert run("topk", counts, *BASE, "--format", "csv", "--out", out).exit_code == 0
    assert victim.read_text(encoding="utf-8") == "precious"
    assert {path.name for path in tmp_path.glob(".*")} == {".out.csv.part"}


@pytest.mark.slow
def test_a_full_disk_after_the_draw_keeps_the_answer(counts, tmp_path):
    ledger = tmp_path / "l.db"
    run(
        "ledger",
        "init",
        ledger,
        "--dataset",
        "d",
        "--delta",
        1e-5,
        "--epsilon",
        5,
        "--labels-per-user",
        1,
        "--test",
    )
    who = ("--ledger", ledger, "--dataset", "d", "--analyst", "ann")
    command = [sys.executable, "-m", "dptopk", *map(str, ("topk", counts, *BASE, *who))]
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert "--reuse" in result.stderr
    assert "Traceback" not in result.stderr
    again = run("topk", counts, *BASE, *who, "--reuse")
    assert again.exit_code == 0, again.output
    assert "=1+1" in again.stdout
    assert "no further charge" in again.stdout
    counts.write_text("label,count\nother,900\n", encoding="utf-8")  # another file: not its answer
    assert "other" in run("topk", counts, *BASE, *who, "--reuse").stdout


# files
# --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_of_other_habits(tmp_path):
    excel = tmp_path / "excel.csv"
    excel.write_bytes("label;count\nM\xfcller;900\n".encode("cp1252"))
    result = run("topk", excel, *BASE)  # an ASCII header tells nothing of it
    assert "Müller" in result.stdout
    assert "M\ufffdller" in run("topk", excel, *BASE, "--encoding", "ascii").stdout
    assert "semicolons" in result.stderr
    out = tmp_path / "top.csv"
    assert run("topk", excel, *BASE, "--out", out).exit_code == 0
    assert out.read_text(encoding="utf-8").count(",") > 2
    packed = tmp_path / "counts.csv.gz"
    packed.write_bytes(gzip.compress(b"label,count\nthe,900\n"))
    assert "the" in run("topk", packed, *BASE).stdout
    assert "--encoding" in run("topk", excel, *BASE, "--encoding", "latin-99").output


@pytest.mark.slow
def test_where_keeps_rows(tmp_path):
    path = tmp_path / "names.csv"
    path.write_text("label,sex,count\nAda,F,900\nAda,M,3\nBob,M,800\n", encoding="utf-8")
    assert "Ada" in run("topk", path, *BASE).stdout  # both rows together
    found = run("topk", path, *BASE, "--where", "sex=F").stdout
    assert "Ada" in found
    assert "Bob" not in found
    for wrong in ("sex", "=F", "size=1"):
        result = run("topk", path, *BASE, "--where", wrong)
        assert result.exit_code == 2, wrong
        assert "--where" in result.output or "where" in result.output


# words
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--labels-per-user", 0), "--labels-per-user must be at least 1, got 0"),
        (("--per-label-cap", 0), "--per-label-cap must be at least 1, got 0"),
        (("--k", 0), "--k must be at least 1, got 0"),
        (("--delta", 0), "--delta must be above 0"),
        (("--epsilon", -1), "--epsilon must be greater than 0, got -1"),
        (
            ("--label-col", "linf"),
            "--label-col: 'l0.csv' has no column 'linf'; it has 'word', 'l0', 'k'",
        ),
        (("--count-col", "k"), "--count-col: counts must be whole numbers"),
        (("--where", "delta=1"), "--where: 'l0.csv' has no column 'delta'"),
    ],
)
def test_errors_name_the_option_and_leave_names_of_the_user_alone(tmp_path, options, said):
    table = tmp_path / "l0.csv"
    table.write_text("word,l0,k\na,5,x\n", encoding="utf-8")
    asked = {"--label-col": "word", "--count-col": "l0", "--k": 1, "--epsilon": 1, "--delta": 1e-6}
    asked |= dict([options])
    result = run("topk", table, *(part for pair in asked.items() for part in pair))
    assert result.exit_code == 2
    assert f"Error: {said}" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "name", ["words.csv", "WORDS.TSV", "words.jsonl", "words.csv.gz", "words.parquet"]
)
def test_a_table_is_no_list_of_public_labels(counts, tmp_path, name):
    """Its lines would be labels: an answer about nothing, for all of the budget."""
    domain = tmp_path / name
    domain.write_text("word,n\nthe,5\n", encoding="utf-8")
    result = run("topk", counts, *BASE, "--domain", domain)
    assert result.exit_code == 2
    assert f"--domain: {name!r} is a table; give a text file" in " ".join(result.stderr.split())


@pytest.mark.slow
def test_options_are_heeded_or_refused(counts):
    for wrong in (
        ("--fit",),
        ("--passes", 2),
        ("--memory-limit", "1GB"),
        ("--reuse",),
        ("--plot", "a.jpg"),
    ):
        result = run("topk", counts, *BASE, *wrong)
        assert result.exit_code == 2, wrong
        assert wrong[0] in result.output


@pytest.mark.slow
def test_help_version_and_completion():
    shown = run("topk", "--help").stdout
    assert "<bool>" not in shown
    assert "--fit" in shown
    assert run("--version").stdout.startswith("dptopk 0.")
    assert "--install-completion" in run("--help").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("topk", "events.parquet", "--user-col", "u", "--item-col", "i", *BASE), "data"),
        pytest.param(
            ("topk", "counts.csv", "--user-col", "u", "--item-col", "i", *BASE),
            "data",
            marks=pytest.mark.study,
        ),
        pytest.param(
            ("datasets", "make", "events.parquet", "--events", "100"),
            "data",
            marks=pytest.mark.study,
        ),
        pytest.param(
            ("topk", "COUNTS", *BASE, "--format", "parquet", "--out", "a.parquet"),
            "data",
            marks=pytest.mark.study,
        ),
        (("topk", "COUNTS", *BASE, "--plot", "a.png"), "plots"),
        pytest.param(("reproduce", "all"), "plots", marks=pytest.mark.study),
    ],
)
def test_a_missing_extra_is_one_line(counts, tmp_path, arguments, extra):
    """As in the base install: none of the modules of the extras can be imported."""
    code = (
        "import importlib.util, sys\n"
        "missing = {'pyarrow', 'ibis', 'duckdb', 'polars', 'pyspark', 'matplotlib'}\n"
        "class Without:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in missing:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *rest: None if name.split('.')[0] in missing "
        "else find(name, *rest)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from dptopk.cli import main\n"
        "main()"
    )
    named = [str(counts) if argument == "COUNTS" else str(argument) for argument in arguments]
    result = subprocess.run(
        [sys.executable, "-c", code, *named],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 2, result.stderr
    assert f"dptopk[{extra}]" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


# confidence
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "html", "csv", "json"])
def test_confidence_is_in_every_form_of_an_answer(counts, form):
    """The level that is asked for is the level of the bars, and the one that is said."""
    usual, narrow = (
        run("topk", counts, *BASE, "--seed", 1, "--format", form, *options)
        for options in ((), ("--confidence", 0.8))
    )
    said = {
        "table": "80% interval",
        "html": "80% interval (joint)",
        "json": '"confidence": 0.8',
    }
    assert said.get(form, "With 80% confidence") in narrow.output
    assert "95%" not in narrow.output
    assert usual.output != narrow.output


def test_confidence_narrows_the_bars(counts):
    options = ("--known-domain", "--epsilon", 0.3, "--format", "json", "--confidence")
    low, high = (
        json.loads(run("topk", counts, *BASE, *options, level).stdout)["rows"][0]
        for level in (0.5, 0.999)
    )
    assert high["low"] < low["low"] <= low["count"] <= low["high"] < high["high"]


@pytest.mark.parametrize("level", [0, 1, 95, "nan"])
def test_confidence_is_a_probability(counts, level):
    result = run("topk", counts, *BASE, "--confidence", level)
    assert result.exit_code == 2
    assert "--confidence must be" in " ".join(result.stderr.split())


def test_confidence_of_a_plan():
    """Less of the noise lies within a narrower width, and a label appears less surely from a lower
    count on.
    """
    plan = ("plan", "--k", 5, "--epsilon", 1, "--delta", 1e-6, "--labels-per-user", 1)
    usual, narrow = run(*plan).stdout, run(*plan, "--confidence", 0.8).stdout
    assert "95% of it is within" in usual
    assert "for a 50% chance to be shown, " in usual
    assert "80% of it is within" in narrow
    assert narrow.count("for 80%") == 1
    assert "95" not in narrow
    assert run(*plan, "--confidence", 1.5).exit_code == 2


@pytest.mark.parametrize("command", ["topk", "plan"])
def test_the_effort_reaches_the_plan(counts, monkeypatch, command):
    given = []
    monkeypatch.setattr(
        "dptopk.planning.choose.plan_topk",
        lambda *args, **options: given.append(options["effort"]) or 1 / 0,
    )
    seed = () if command == "plan" else BASE[-2:]
    run(
        command, *([counts] if command == "topk" else []), *BASE[:-2], *seed, "--effort", "thorough"
    )
    assert given == ["thorough"]


@pytest.mark.slow
def test_an_answer_is_said_in_plain_sentences_before_its_details(tmp_path):
    counts = tmp_path / "counts.csv"
    counts.write_text("label,count\nthe,900\nand,700\n", encoding="utf-8")
    said = run("topk", counts, *BASE).stdout
    plain, _, technical = said.partition("What it cost")
    order = (
        "noisy count",
        "Each number is a label's count",
        "With 95% confidence",
        "costs at most",
    )
    places = [plain.index(words) for words in order]
    assert places == sorted(places)
    assert "Total:" in technical
    for words in ("μ", "√", "composition", "DP("):
        assert words not in plain
