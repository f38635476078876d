"""``dptopk topk`` on raw events, and ``dptopk datasets``."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from dptopk.cli import app
from dptopk.datasets import EventsStore, macbeth_counts

RUNNER = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def run(*arguments):
    return RUNNER.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    path = tmp_path_factory.mktemp("events") / "events.parquet"
    result = run(
        "datasets", "make", path, "--events", 60_000, "--users", 8_000, "--items", 500, "--seed", 4
    )
    assert result.exit_code == 0, result.output
    assert "most popular" in result.stdout
    return path


def topk(events, *arguments):
    columns = ("--user-col", "member", "--item-col", "article", "--labels-per-user", 3)
    budget = ("--k", 5, "--epsilon", 1, "--delta", 1e-7)
    return run("topk", events, *columns, *budget, "--format", "json", "--seed", 1, *arguments)


def answer(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("one_phase", [("--count-capped",), ("--method", "peel")], ids=" ".join)
def test_events_are_bounded_counted_and_answered(events, one_phase):
    made = answer(topk(events, *one_phase, "--memory-limit", "1GB", "--passes", 2))
    assert made["sensitivity"]["l0"] == 3
    frame = pd.read_parquet(events)
    truth = frame.drop_duplicates(["member", "article"])["article"].value_counts().head(8).index
    assert 3 <= len(made["rows"]) <= 5
    assert {row["label"] for row in made["rows"]} <= set(truth)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [(), ("--segment-by", "region", "--segments", "north,south")], ids=["all", "segments"]
)
def test_a_look_comes_first_where_no_cap_is_stated(events, more):
    """Its cost is part of what is charged, and the note says what was chosen by it."""
    asked = (
        "--user-col",
        "member",
        "--item-col",
        "article",
        "--epsilon",
        1,
        "--delta",
        1e-7,
        "--format",
        "json",
        *more,
    )
    made = answer(run("topk", events, *asked, "--k", 40))
    for part in made.get("segments", {"": made}).values():
        assert "chosen by a look, for" in part["note"]
        assert list(part["phases"]) == ["users", "ranks", "answer"]
    if not more:  # the mechanisms that were planned first need not be those that ran
        shown = " ".join(run("topk", events, *asked, "--k", 40, "--format", "table").stdout.split())
        assert "3. answer: as the looks chose, at the charge of every choice charged ADP(" in shown
        assert "Split:" not in shown
        assert list(answer(run("topk", events, *asked, "--k", 40, "--look", "none"))["phases"]) == [
            "find",
            "select",
            "count",
        ]


@pytest.mark.parametrize("form", ["table", "html"])
@pytest.mark.slow
def test_of_capped_data_only_lower_ends_are_said_to_hold(events, tmp_path, form):
    said = " ".join(topk(events, "--format", form, "--count-capped").stdout.split())
    assert (
        "Each interval covers the count after capping; only its lower end holds for the true count"
        in said
    )
    assert "contains its count after that limit; true counts can only be larger." in said
    assert "may be missing or rank lower" in said
    assert "its true count" not in said
    counts = tmp_path / "counts.csv"
    counts.write_text("label,count\na,900\nb,800\n", encoding="utf-8")
    printed = run(
        "topk", counts, "--k", 2, "--epsilon", 1, "--delta", 1e-6, "--format", form
    ).stdout
    assert "contains its true count" in printed


@pytest.mark.slow
def test_labels_are_found_under_the_cap_and_counted_on_all_events(events):
    frame = pd.read_parquet(events)
    truth = frame.groupby("article", observed=True)["member"].nunique()
    made = answer(topk(events, "--passes", 2))
    assert made["sensitivity"]["l0"] is None
    assert (
        "found on capped data (at most 3 labels of one user), and counted on all data"
        in made["note"]
    )
    assert list(made["phases"]) == ["find", "select", "count"]
    assert made["guarantee"]["epsilon"] <= 1
    assert len(made["rows"]) == 5
    assert all(row["low"] <= truth[row["label"]] <= row["high"] for row in made["rows"])
    said = " ".join(topk(events, "--format", "table").stdout.split())
    assert "every interval above contains its true count" in said
    assert "chosen by a look" in answer(run_without_a_cap(events))["note"]


def run_without_a_cap(events):
    budget = ("--k", 5, "--epsilon", 1, "--delta", 1e-7)
    return run(
        "topk", events, "--user-col", "member", "--item-col", "article", *budget, "--format", "json"
    )


def test_counting_what_a_cap_leaves_is_for_private_labels_of_events(events):
    refused = topk(events, "--known-domain", "--count-capped")
    assert refused.exit_code == 2
    assert "--count-capped is for private labels of events" in refused.output


@pytest.mark.slow
def test_public_labels_come_from_a_file(events, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text(
        "article-001\nno such article\narticle-002\narticle-003\narticle-004\n", encoding="utf-8"
    )
    made = answer(topk(events, "--domain", labels))
    assert {row["label"] for row in made["rows"]} == set(
        labels.read_text(encoding="utf-8").splitlines()
    )
    assert len(answer(topk(events, "--known-domain"))["rows"]) == 5


@pytest.mark.slow
def test_public_labels_of_a_column_of_integers_are_the_lines_of_their_file(tmp_path):
    """Whatever the column holds, so that no user decides how a line is read."""
    path, labels = tmp_path / "events.parquet", tmp_path / "labels.txt"
    pd.DataFrame({"member": range(3000), "article": [7] * 2000 + [8] * 1000}).to_parquet(path)
    labels.write_text("7\n8\n9\n10\n11\n", encoding="utf-8")
    rows = {row["label"]: row["count"] for row in answer(topk(path, "--domain", labels))["rows"]}
    assert set(rows) == {"7", "8", "9", "10", "11"}
    assert rows["7"] > 1900
    labels.write_text("seven\n8\n9\n10\n11\n", encoding="utf-8")
    rows = {row["label"]: row["count"] for row in answer(topk(path, "--domain", labels))["rows"]}
    assert set(rows) == {"seven", "8", "9", "10", "11"}
    assert rows["8"] > 900 > 100 > rows["seven"]


@pytest.mark.slow
def test_an_empty_table_is_a_short_answer(tmp_path):
    path = tmp_path / "empty.parquet"
    pd.DataFrame(
        {"member": pd.Series([], dtype="int64"), "article": pd.Series([], dtype=str)}
    ).to_parquet(path)
    assert answer(topk(path))["rows"] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--user-col", "nobody"), "user"),
        (("--item-col", "nothing"), "item"),
        (("--memory-limit", "much"), "--memory-limit must be a size"),
    ],
)
def test_bad_columns_exit_with_2(events, arguments, named):
    result = topk(events, *arguments)
    assert result.exit_code == 2
    assert named in result.output
    assert "Traceback" not in result.output


def test_user_and_item_go_together(events):
    result = run("topk", events, "--user-col", "member", "--k", 5, "--epsilon", 1, "--delta", 1e-7)
    assert result.exit_code == 2
    assert "item-col" in result.output


def test_macbeth_is_written(tmp_path):
    path = tmp_path / "macbeth.csv"
    assert run("datasets", "macbeth", path).exit_code == 0
    assert pd.read_csv(path, keep_default_na=False).equals(macbeth_counts().astype({"word": "str"}))


def test_bad_sizes_exit_with_2(tmp_path):
    result = run("datasets", "make", tmp_path / "x.parquet", "--users", 0)
    assert result.exit_code == 2
    assert "users" in result.output


@pytest.mark.slow
def test_stores_segments_surveys_and_least_numbers(tmp_path):
    """In two phases each: a store without a cap, segments; in one: rows that are persons."""
    rows = [
        (f"u{user}", item, "ab"[user % 2])
        for user in range(2000)
        for item in ("x", "y", "z")[: 1 + user % 3]
    ]
    frame = pd.DataFrame(rows, columns=["who", "what", "where"])
    csv, store = tmp_path / "events.csv", tmp_path / "events.store"
    frame.to_csv(csv, index=False)
    budget = ("--k", 3, "--epsilon", 1, "--delta", 1e-6, "--format", "json", "--seed", 1)
    columns = ("--user-col", "who", "--item-col", "what")
    with EventsStore(store, user="who", item="what", labels_per_user=None) as made:
        made.append(frame, version="1")
    truth = frame["what"].value_counts().to_dict()
    two = [
        answer(run("topk", *where, *budget))
        for where in ((csv, *columns), (store,), (csv, *columns, "--counts", "none"))
    ]
    for found in two:
        assert "on all data" in found["note"]
        assert [row["label"] for row in found["rows"]] == ["x", "y", "z"]
    assert all(
        abs(row["count"] - truth[row["label"]]) < 40 for found in two[:2] for row in found["rows"]
    )
    apart = answer(
        run(
            "topk",
            csv,
            *columns,
            "--segment-by",
            "where",
            "--segments",
            "a,b",
            "--segments-per-user",
            1,
            *budget,
        )
    )
    for name, found in apart["segments"].items():
        here = frame[frame["where"] == name]["what"].value_counts().to_dict()
        assert "counted on all data" in found["note"]
        assert all(abs(row["count"] - here[row["label"]]) < 40 for row in found["rows"])
    least = answer(run("topk", csv, *columns, "--min-users", 1100, *budget))
    assert {row["label"] for row in least["rows"]} <= {"x", "y"}
    assert answer(run("topk", csv, *columns, "--min-users", 10**30, *budget))["rows"] == []
    looked = answer(run("topk", csv, *columns, "--labels-per-user", 2, "--look", 0.2, *budget))
    assert "look" in looked["phases"]
    survey = answer(run("topk", csv, "--item-col", "what", "--one-row-per-user", *budget))
    assert (survey["sensitivity"]["l0"], survey["note"]) == (1, "")
    assert all(abs(row["count"] - truth[row["label"]]) < 40 for row in survey["rows"])
    for wrong, told in (
        (("--item-col", "what"), "--one-row-per-user"),
        ((*columns, "--one-row-per-user"), "--one-row-per-user goes with"),
        (("--item-col", "what", "--one-row-per-user", "--labels-per-user", 2), "--labels-per-user"),
        ((*columns, "--count-capped", "--labels-per-user", 2, "--min-users", 5), "--min-users"),
    ):
        refused = run("topk", csv, *wrong, *budget)
        assert refused.exit_code == 2
        assert told in " ".join(refused.output.split())
