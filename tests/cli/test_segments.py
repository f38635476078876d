"""--segment-by: an answer for each segment, charged together."""

import json
from typing import get_args

import pytest
from typer.testing import CliRunner

from dptopk.cli.answer_sheet import CommonFormat
from dptopk.cli.commands import app
from dptopk.costs import Charge
from dptopk.ledger.ledger import Ledger

BASE = ("--k", 2, "--epsilon", 2, "--delta", 1e-6, "--labels-per-user", 1, "--seed", 1)
PARTS = ("--segment-by", "region", "--segments", "eu,us,asia")


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def counts(tmp_path):
    path = tmp_path / "counts.csv"
    rows = ["storm,eu,900", "cup,eu,700", "storm,us,500", "vote,us,800", "secret,mars,999"]
    path.write_text("label,region,count\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def events(tmp_path):
    path = tmp_path / "events.csv"
    rows = [
        f"{user},{'storm' if user % 3 else 'cup'},{'eu' if user % 2 else 'us'}"
        for user in range(400)
    ]
    path.write_text("member,article,region\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_segments_of_one_user_each_cost_as_much_as_one(counts):
    alone = json.loads(
        run("topk", counts, *BASE, "--where", "region=eu", "--format", "json").stdout
    )
    result = run("topk", counts, *BASE, *PARTS, "--segments-per-user", 1, "--format", "json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["guarantee"] == alone["guarantee"]
    assert {name: {row["label"] for row in part["rows"]} for name, part in answer["segments"].items()} == {
        "eu": {"storm", "cup"}, "us": {"storm", "vote"}, "asia": set(),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("form", get_args(CommonFormat))
def test_every_common_format_has_the_segments_and_their_guarantee(counts, form):
    result = run("topk", counts, *BASE, *PARTS, "--segments-per-user", 1, "--format", form)
    assert result.exit_code == 0, result.output
    for part in ("eu", "us", "storm", "vote"):
        assert part in result.stdout
    if form == "json":
        assert json.loads(result.stdout)["guarantee"]["epsilon"] <= 2
    else:
        assert "DP at most" in result.stdout + result.stderr


@pytest.mark.slow
def test_users_of_all_segments_share_the_budget(counts):
    answer = json.loads(run("topk", counts, *BASE, *PARTS, "--format", "json").stdout)
    assert answer["segments_per_user"] == 3
    assert answer["guarantee"]["epsilon"] <= 2
    assert answer["guarantee"]["epsilon"] > 1.7
    assert answer["guarantee"]["delta"] == 1e-6
    parts = [Charge.parse(part["charge"]) for part in answer["segments"].values()]
    assert sum(part.delta for part in parts) <= 1e-6


@pytest.mark.slow
def test_events_are_bounded_in_every_segment(events):
    columns = (
        "--user-col",
        "member",
        "--item-col",
        "article",
        "--segment-by",
        "region",
        "--segments",
        "eu,us",
    )
    result = run("topk", events, *BASE, *columns, "--segments-per-user", 1, "--format", "csv")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == "segment,rank,label,count,low,high"
    assert {line.split(",")[0] for line in result.stdout.splitlines()[1:]} == {"eu", "us"}
    assert "a user in at most 1 of them" in result.stderr
    # What a reader of the rows must know stands below every table, and was left out of CSV.
    table = run("topk", events, *BASE, *columns, "--segments-per-user", 1)
    for sentence in ("protects every user", "With 95% confidence"):
        assert sentence in " ".join(table.output.split())
        assert sentence in result.stderr


@pytest.mark.slow
def test_a_ledger_is_charged_once(counts, tmp_path):
    url = tmp_path / "l.db"
    run(
        "ledger",
        "init",
        url,
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
    who = ("--ledger", url, "--dataset", "d", "--analyst", "ann")
    result = run("topk", counts, *BASE, *PARTS, "--segments-per-user", 1, *who)
    assert result.exit_code == 0, result.output
    for shown in ("eu", "us", "asia", "storm", "at most 1 of them", "ε about"):
        assert shown in " ".join(result.stdout.split())
    plan = json.loads(run("topk", counts, *BASE, "--where", "region=eu", "--format", "json").stdout)
    assert Ledger(url).spent("d") == Charge.parse(plan["charge"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        ("--segment-by", "region"),
        ("--segments", "eu"),
        ("--segment-by", "region", "--segments", "eu,eu"),
        ("--segments-per-user", 1),
        (*PARTS, "--segments-per-user", 0),
        (*PARTS, "--format", "html"),
        (*PARTS, "--where", "region=eu"),
        ("--segment-by", "planet", "--segments", "eu"),
        ("--segment-by", "region", "--segments", ""),
        ("--segment-by", "region", "--segments", "eu,"),
        ("--segment-by", "region", "--segments", "eu, us"),
    ],
)
def test_what_does_not_fit_is_refused(counts, wrong):
    result = run("topk", counts, *BASE, *wrong)
    assert result.exit_code == 2
    assert "Error" in result.output
    assert "secret" not in result.output


@pytest.mark.slow
def test_declared_segments_are_asked_one_after_another_for_the_price_of_one(counts, tmp_path):
    url = tmp_path / "l.db"
    by = ("--segment-by", "region", "--segments")
    init = (
        "ledger",
        "init",
        url,
        "--dataset",
        "d",
        "--delta",
        1e-5,
        "--labels-per-user",
        1,
        "--test",
        "--epsilon",
        3,
    )
    assert run(*init, "--segment-by", "region").exit_code == 2
    assert run(*init, *by, "").exit_code == 2
    assert run(*init, *by, "eu,us,asia").exit_code == 0
    who = ("--ledger", url, "--dataset", "d", "--analyst", "ann")
    for names in ("eu", "us,asia"):
        result = run("topk", counts, *BASE, *by, names, *who)
        assert result.exit_code == 0, result.output
        assert "a user in at most 1 of them" in " ".join(result.stdout.split())
    refused = run("topk", counts, *BASE, *by, "us", *who)
    assert refused.exit_code == 3
    assert "segment us" in " ".join(refused.output.split())
    assert (
        run("topk", counts, *BASE, "--where", "region=eu", *who).exit_code == 3
    )  # as a question about all data
    shown = json.loads(run("ledger", "show", url, "--format", "json").stdout)[0]
    assert shown["segments"] == {"by": "region", "names": ["eu", "us", "asia"]}
    assert set(shown["shares_used"]) == {"eu", "us", "asia"}
    drawn = run("ledger", "show", url, "--plot", tmp_path / "spent.svg")
    assert drawn.exit_code == 0, drawn.output
    assert "segments by region, each with the whole budget: eu, us, asia" in drawn.output
    assert run("ledger", "verify", url).exit_code == 0


def test_one_segment_is_one(counts):
    said = run("topk", counts, *BASE, "--segment-by", "region", "--segments", "eu").output
    assert "for 1 segment, a user in at most 1 of them" in " ".join(said.split())
