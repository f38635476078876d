"""The command line: what people type, what they read, and how they are refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from dptopk import Budget, Ledger, Sensitivity, plan_topk
from dptopk.cli import app
from dptopk.cli.answer_sheet import Format
from dptopk.cli.shell import EXIT_CODES
from dptopk.costs import Charge
from dptopk.datasets import macbeth_counts

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
SECRET = "secret4711"  # noqa: S105


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    macbeth_counts().rename(columns={"count": "n"}).to_csv(path, index=False)
    return path


def run(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


def topk(source, *arguments):
    return run("topk", source, "--label-col", "word", "--count-col", "n", *arguments)


BUDGET = ("--k", 10, "--epsilon", 2, "--delta", 1e-6)


@pytest.mark.slow
def test_a_delta_above_one_over_users_is_told():
    """Where the number of users is public."""
    told = run(
        "plan",
        "--k",
        3,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--labels-per-user",
        1,
        "--users",
        2_000_000,
    )
    assert told.exit_code == 0
    assert "above 1/users" in told.output


@pytest.mark.slow
def test_topk_prints_labels_charges_and_the_total(counts):
    result = topk(counts, *BUDGET, "--labels-per-user", 1, "--seed", 7)
    assert result.exit_code == 0, result.output
    for text in ("the", "and", "DP at most", "private domain", "fixed seed", "What it cost"):
        assert text in result.output


@pytest.mark.slow
def test_answers_are_short_where_labels_are_private_and_full_where_they_are_public(counts):
    public = json.loads(
        topk(counts, *BUDGET, "--known-domain", "--format", "json", "--seed", 1).output
    )
    assert len(public["rows"]) == 10
    private = json.loads(
        topk(counts, "--k", 25, *BUDGET[2:], "--format", "json", "--seed", 1).output
    )
    assert 0 < len(private["rows"]) < 25


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "none"])
@pytest.mark.parametrize("method", ["peel", "auto"])
def test_json_carries_charge_and_guarantee(counts, noise, method):
    options = (
        "--counts",
        noise,
        "--method",
        method,
        "--format",
        "json",
        "--labels-per-user",
        2,
        "--seed",
        3,
    )
    answer = json.loads(topk(counts, *BUDGET, *options).output)
    assert answer["guarantee"]["epsilon"] <= 2
    assert answer["seeded"] is True
    charges = [Charge.parse(text) for text in answer["phases"].values()]
    joined = Charge.join(*charges)
    assert Charge.parse(answer["charge"]).costs == joined.costs
    assert all(("count" in row) == (noise != "none") for row in answer["rows"])


# The formats of rows alone: the guarantee goes beside them.
ROWS_ALONE = {"csv"}
# For each binary format, how its labels are read; the other formats are text.
LABELS_OF_BINARY = {"parquet": lambda path: pd.read_parquet(path)["label"].tolist()}


@pytest.mark.parametrize("form", get_args(Format))
def test_every_format_is_on_the_page_of_the_command(form):
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    row_of_option = next(line for line in text.splitlines() if line.startswith("| `--format`"))
    assert form in row_of_option
    assert f"\n| `{form}` | " in text


@pytest.mark.parametrize("ending", get_args(Format))
def test_every_format_is_written_to_a_file(counts, tmp_path, ending):
    out = tmp_path / f"answer.{ending}"
    result = topk(
        counts, *BUDGET, "--labels-per-user", 1, "--format", ending, "--out", out, "--seed", 3
    )
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert ("DP at most" in result.stderr) == (ending in ROWS_ALONE)
    found = LABELS_OF_BINARY.get(ending, Path.read_text)(out)
    assert "the" in found
    assert list(tmp_path.glob(".*.part")) == []


@pytest.mark.slow
def test_a_look_is_part_of_the_guarantee(counts):
    """ε of the look and of what is planned after it add up to what was asked for, and the answer
    says both.
    """
    answer = topk(
        counts, *BUDGET, "--labels-per-user", 20, "--seed", 1, "--look", 0.25, "--format", "json"
    )
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert 0.5 + 0.98 * 1.5 <= told["guarantee"]["epsilon"] <= 2
    assert told["charge"].startswith(told["phases"]["look"])
    refused = topk(counts, "--k", 10, "--accuracy", 5, "--delta", 1e-6, "--look", 0.25)
    assert refused.exit_code == 2
    assert "look" in refused.stderr


@pytest.mark.slow
def test_a_look_comes_first_where_it_is_worth_its_cost(counts):
    """As in a session: by default, without options; not where a user touches few labels, nor where
    none is wanted.
    """
    asked = ("--k", 10, "--epsilon", 1, "--delta", 1e-6, "--seed", 1, "--format", "json")
    for options, looks in (
        ((), True),
        (("--look", "none"), False),
        (("--labels-per-user", 2), False),
    ):
        told = json.loads(topk(counts, *asked, *options).stdout)
        assert ("look" in told["phases"]) == looks, options
        assert (
            "planned after a look at the counts of the ranks 1, 10, 20, 40, 100" in told["note"]
        ) == looks
        assert told["guarantee"]["epsilon"] <= 1
        assert told["guarantee"]["bound"].endswith("after a look") == looks
    segments = ("--segment-by", "word", "--segments", "the,and", "--look", 0.1)
    refused = topk(counts, *asked, *segments)
    assert refused.exit_code == 2
    assert "no --plot, --reuse, --accuracy or --look SHARE" in refused.stderr


@pytest.mark.slow
def test_a_look_is_paid_by_a_ledger_as_a_session_pays_it(counts, tmp_path):
    """Two charges; both answers are given again together; where its cost is not registered there is
    none.
    """
    book, own = f"{tmp_path}/ledger.db", ("--labels-per-user", 20)
    init = ("ledger", "init", book, "--delta", 1e-6, *own)
    assert run(*init, "--dataset", "free", "--epsilon", 1).exit_code == 0
    assert (
        run(
            *init, "--dataset", "tokens", "--registered", "50*BR(0.2) + 50*DP(0.2) + 50*GDP(0.1)"
        ).exit_code
        == 0
    )
    asked = (
        *own,
        "--k",
        5,
        "--counts",
        "box",
        "--format",
        "json",
        "--ledger",
        book,
        "--analyst",
        "ann",
    )
    free = (*asked, "--dataset", "free", "--epsilon", 0.5, "--delta", 1e-7)
    first, again, third = (topk(counts, *free, *more) for more in ((), ("--reuse",), ()))
    told, repeated = json.loads(first.stdout), json.loads(again.stdout)
    assert next(iter(told["phases"])) == "look"
    assert told["guarantee"]["epsilon"] <= 0.5
    assert repeated["rows"] == told["rows"]
    with Ledger(book) as ledger:
        assert (
            len(ledger.history("free")) == 4
        )  # the look and the answer, of the first and the third
        assert ledger.state("free").account.epsilon() <= 1
    assert "or its look, was answered before" in third.stderr
    tokens = (*asked, "--dataset", "tokens", "--epsilon", 0.5, "--delta", 1e-7, "--method", "peel")
    refused = topk(counts, *tokens, "--look", 0.1)
    assert refused.exit_code == 3, refused.output
    auto, without = (topk(counts, *tokens, *more) for more in ((), ("--look", "none")))
    assert (auto.exit_code, auto.stderr) == (without.exit_code, without.stderr)
    with Ledger(book) as ledger:
        assert ledger.history("tokens") == []


def test_a_domain_file_names_the_public_labels(counts, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("the\nand\nunicorn\n", encoding="utf-8")
    answer = topk(
        counts, "--k", 3, *BUDGET[2:], "--domain", labels, "--format", "json", "--seed", 1
    )
    assert {row["label"] for row in json.loads(answer.output)["rows"]} == {"the", "and", "unicorn"}


@pytest.mark.slow
def test_labels_are_shown_as_text_not_as_markup(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text('word,n\n[red]x[/red],900\n"a\x1b[2Jb",800\n', encoding="utf-8")
    output = topk(path, "--k", 2, *BUDGET[2:], "--labels-per-user", 1).output
    assert "[red]x[/red]" in output
    assert "a\\x1b[2Jb" in output
    assert "\x1b" not in output


@pytest.mark.slow
def test_an_empty_private_table_is_a_short_answer(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("word,n\n", encoding="utf-8")
    result = topk(path, *BUDGET, "--format", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--k", 0, "--epsilon", 1, "--delta", 1e-6), "k"),
        (("--k", 5, "--epsilon", 0, "--delta", 1e-6), "epsilon"),
        (("--k", 5, "--epsilon", -1, "--delta", 1e-6), "epsilon"),
        (("--k", 5, "--epsilon", "nan", "--delta", 1e-6), "epsilon"),
        (("--k", 5, "--epsilon", "inf", "--delta", 1e-6), "epsilon"),
        (("--k", 5, "--epsilon", 1, "--delta", 1), "delta"),
        (("--k", 5, "--epsilon", 1, "--delta", -1e-6), "delta"),
        (("--k", 5, "--epsilon", 1), "delta"),
        ((*BUDGET, "--d-bar", 5), "--d-bar must"),
        ((*BUDGET, "--per-label-cap", 0), "--per-label-cap must"),
        ((*BUDGET, "--labels-per-user", 0), "--labels-per-user must"),
        ((*BUDGET, "--format", "parquet"), "format"),
        ((*BUDGET, "--out", "/nowhere/at/all.csv"), "out"),
        ((*BUDGET, "--counts", "cauchy"), "counts"),
        (("--k", 5, "--epsilon", 1, "--known-domain", "--method", "threshold"), "method"),
        ((*BUDGET, "--method", "guess"), "method"),
        (("--k", 4000, "--epsilon", 1, "--delta", 1e-6, "--known-domain"), "k"),
        ((*BUDGET, "--domain", "/nowhere/labels.txt"), "domain"),
    ],
)
def test_bad_arguments_exit_with_2_and_name_the_argument(counts, arguments, named):
    result = topk(counts, *arguments)
    assert result.exit_code == 2
    assert named in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "rows",
    [
        f"{SECRET},-1",
        f"{SECRET},1.5",
        f"{SECRET},x4711",
        f"{SECRET},1\n{SECRET},-2",
        "the,-1",
    ],
)
def test_bad_rows_exit_with_2_and_stay_secret(tmp_path, rows):
    path = tmp_path / "counts.csv"
    path.write_text(f"word,n\nthe,3\n{rows}\n", encoding="utf-8")
    result = topk(path, *BUDGET)
    assert result.exit_code == 2
    assert "4711" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_unknown_columns_and_unreadable_files_exit_with_2(counts, tmp_path):
    unknown = run("topk", counts, *BUDGET)
    assert unknown.exit_code == 2
    assert "'label'" in unknown.output
    rubbish = tmp_path / "rubbish.csv"
    rubbish.write_bytes(bytes(range(256)) * 4)
    for path in (rubbish, tmp_path / "none.csv", tmp_path / "counts.xlsx", tmp_path):
        result = topk(path, *BUDGET)
        assert result.exit_code == 2, path
        assert path.name in result.output


@pytest.mark.slow
def test_plan_lists_the_designs_that_method_takes():
    cell = ("--k", 5, "--epsilon", 1, "--delta", 1e-6)
    listed = run("plan", *cell, "--labels-per-user", 5, "--alternatives").output
    plan = plan_topk(5, Budget(1, 1e-6), sensitivity=Sensitivity(l0=5))
    assert f"->   {plan.design} " in listed
    for design in plan.alternatives["design"]:
        assert design in listed
    named = run(
        "plan", *cell, "--labels-per-user", 5, "--method", "Laplace noise over a noisy floor"
    ).output
    assert "UnknownLaplace" in named
    assert "centred" in run("plan", *cell, "--alternatives", "--known-domain").output


@pytest.mark.slow
def test_compose_marks_the_best_bound():
    result = run("compose", "25*BR(0.1) + 25*DP(0.1) + ZCDP(0.07)", "--delta", 1e-6)
    assert result.exit_code == 0, result.output
    assert sum(line.strip().startswith("->") for line in result.output.splitlines()) == 1
    lines = result.output.splitlines()
    assert lines[1].startswith("ε = 3.19")
    assert "by optimal_setwise; no valid one can be below 3.19" in lines[1]
    assert "Not for these costs" in result.output


@pytest.mark.slow
def test_compose_as_json_and_csv():
    answer = json.loads(run("compose", "25*DP(0.1)", "--delta", 1e-6, "--format", "json").output)
    best = next(row for row in answer["bounds"] if row["name"] == answer["best"])
    assert best["epsilon"] == pytest.approx(2.07906, abs=5e-6)
    assert "optimal_dp" in run("compose", "25*DP(0.1)", "--epsilon", 2, "--format", "csv").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("25*FOO(1)", "--delta", 1e-6),
        ("25*BR(1)",),
        ("BR(1)", "--delta", 1e-6, "--epsilon", 1),
        ("BR(1)", "--delta", 2),
    ],
)
def test_compose_refuses_bad_questions(arguments):
    result = run("compose", *arguments)
    assert result.exit_code == 2
    assert "Error" in result.output


def test_plan_needs_no_data():
    result = run("plan", *BUDGET, "--method", "peel")
    assert result.exit_code == 0, result.output
    assert "Together: (" in result.output
    assert "standard deviation" in result.output


def test_a_design_is_asked_for_by_name():
    result = run(
        "plan", *BUDGET, "--counts", "none", "--known-domain", "--method", "Gumbel selections"
    )
    assert result.exit_code == 0, result.output
    assert "KnownGumbel" in result.output


@pytest.mark.slow
def test_whole_answers_are_asked_for_by_method_or_by_name(counts):
    arguments = ("--k", 5, "--epsilon", 1, "--known-domain", "--counts", "none", "--seed", 1)
    for method, drawn in (
        ("whole", "TopK("),
        ("canonical draw", "CanonicalTopK("),
        ("routed draw", "RoutedTopK("),
    ):
        result = topk(counts, *arguments, "--method", method)
        assert result.exit_code == 0, result.output
        assert drawn in result.output


@pytest.mark.slow
def test_the_installed_entry_point_runs_as_a_process():
    command = [
        sys.executable,
        "-m",
        "dptopk.cli",
        "topk",
        "/nowhere.csv",
        "--k",
        "1",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("Error: cannot open 'nowhere.csv'")
    assert result.stdout == ""


@pytest.mark.slow
def test_demo_is_macbeth():
    result = run("demo", "--seed", 1)
    assert result.exit_code == 0, result.output
    assert "the" in result.output.split()
    assert "costs at most ε = 2, δ = 1e-06" in result.output
    assert "DP at most" not in result.output  # nothing that a newcomer cannot use


def test_the_page_of_the_command_line_names_every_command():
    import typer

    from dptopk.cli.commands import app as whole

    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    table = page.split("| command | what it does |")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", table, re.MULTILINE))
    command = typer.main.get_command(whole)
    assert set(rows) == set(command.commands)
    for group in ("ledger", "datasets"):
        assert set(command.commands[group].commands) <= set(re.findall(r"`([a-z-]+)`", rows[group]))
    codes = set(map(int, re.findall(r"^\| ([0-9]) \| ", page, re.MULTILINE)))
    assert codes == {0, 1, 2, *EXIT_CODES.values()}


def test_a_plan_is_given_to_programs_as_json():
    plan = plan_topk(3, Budget(1, 1e-6), sensitivity=Sensitivity(l0=1))
    options = (
        "--k",
        3,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--labels-per-user",
        1,
        "--format",
        "json",
    )
    made = json.loads(run("plan", *options).stdout)
    assert Charge.parse(made["charge"]) == plan.charge
    assert made["design"] == plan.design
    assert (made["epsilon"], made["noise_std"], made["threshold"]) == (
        plan.epsilon,
        plan.noise_std,
        plan.threshold,
    )
    assert made["appears_at"]["0.95"] == plan.appears_at(0.95) > made["appears_at"]["0.5"]
    assert [phase["mechanism"]["name"] for phase in made["phases"]] == [
        type(plan.mechanisms[0]).__name__
    ]
    both = json.loads(run("plan", *options, "--alternatives").stdout)["alternatives"]
    assert [one["design"] for one in both if one["chosen"]] == [plan.design]


@pytest.mark.slow
def test_json_of_plans_has_no_nan():
    selecting = run(
        "plan", "--k", 2, "--epsilon", 1, "--delta", 1e-6, "--format", "json", "--alternatives"
    ).stdout
    others = json.loads(selecting, parse_constant=pytest.fail)["alternatives"]
    assert any(value is None for one in others for value in one.values())


def test_users_give_delta_its_default_and_it_is_said(counts):
    base = ("--k", 2, "--epsilon", 1, "--labels-per-user", 1, "--format", "json")
    for users, delta in ((20_000, 5e-6), (150, 6e-4)):  # rounded down to one digit
        answer = topk(counts, *base, "--users", users)
        assert json.loads(answer.stdout)["guarantee"]["delta"] == delta <= 1 / (10 * users)
        assert f"δ = {delta:g}" in answer.stderr
    given = topk(counts, *base, "--users", 20_000, "--delta", 1e-7)
    assert json.loads(given.stdout)["guarantee"]["delta"] == 1e-7
    assert given.stderr == ""


def test_quiet_leaves_the_answer_alone(counts):
    base = ("--k", 2, "--epsilon", 30, "--users", 1000, "--labels-per-user", 1)
    loud, quiet = (topk(counts, *base, *options) for options in ((), ("--quiet",)))
    assert "Warning" in loud.stderr
    assert quiet.stderr == ""
    assert "What it cost" in loud.stdout
    assert "What it cost" not in quiet.stdout
    assert topk(counts, *base, "-q", "--format", "csv").stderr == ""
    assert "Error" in topk(counts, "--k", 0, "--epsilon", 1, "-q").stderr


def test_help_keeps_no_line_breaks_of_docstrings():
    command = typer.main.get_command(app)
    texts = [command.help, *(sub.help for sub in command.commands.values())]
    assert any("\n\n" in text for text in texts)
    for text in texts:
        assert "\n" not in text.replace("\n\n", "")


def test_ten_options_come_first():
    for command in ("topk", "plan"):
        panels = re.split(r"╭─ ", run(command, "--help").stdout)
        first = next(panel for panel in panels if panel.startswith("Options"))
        assert 4 <= len(re.findall(r"^│ [* ] {1,4}--(?!help)", first, re.MULTILINE)) <= 10
        assert any(panel.startswith("Advanced") for panel in panels)


def test_markdown_shows_labels_as_they_are(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("word,n\n*a|b*,9000\n<b>,8000\n", encoding="utf-8")
    options = (
        "--k",
        2,
        "--epsilon",
        1,
        "--delta",
        1e-6,
        "--labels-per-user",
        1,
        "--format",
        "markdown",
    )
    lines = topk(path, *options).stdout.splitlines()
    lines = lines[lines.index("") + 1 :]  # below the title block
    assert lines[0] == "| rank | label | noisy count | 95% interval (joint) |"
    assert lines[2].startswith(r"| 1 | \*a\|b\* | ")
    assert lines[3].startswith(r"| 2 | \<b\> | ")
    assert any("DP at most" in line for line in lines)
