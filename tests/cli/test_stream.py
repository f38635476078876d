"""``dptopk stream``: a price, a stream, its days; what is refused in the words of the options."""

from __future__ import annotations

import json
from typing import get_args

import pandas as pd
import pytest
from typer.testing import CliRunner

from dptopk import Ledger
from dptopk.cli.answer_sheet import CommonFormat
from dptopk.cli.commands import app

ASKED = ("--k", 2, "--days", 3, "--epsilon", 2, "--delta", 1e-6)


def run(*arguments, exit_code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    return " ".join(result.output.split())


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "ledger.db"
    run("ledger", "init", path, "--dataset", "sales", "--delta", 4e-6, "--epsilon", 2.5, "--labels-per-user", 1,
        "--unit", "user-day")  # fmt: skip
    return path


@pytest.fixture
def stream(tmp_path, ledger):
    path = tmp_path / "sales.stream"
    run("stream", "create", path, *ASKED, *paying(ledger), "--first-day", "2026-11-01")
    return path


def paying(ledger):
    return "--ledger", ledger, "--dataset", "sales", "--analyst", "ann", "--unit", "user-day"


def counts(folder, name, **labels):
    path = folder / name
    path.write_text(
        "label,count\n" + "".join(f"{one},{n}\n" for one, n in labels.items()), encoding="ascii"
    )
    return path


def test_a_price_without_a_ledger_makes_nothing(tmp_path):
    path = tmp_path / "sales.stream"
    said = run("stream", "create", path, *ASKED, "--labels-per-user", 1)
    for part in (
        "1e-06)-DP at most",
        "Charged at once",
        "on one day",
        "threshold",
        "Standard deviation",
    ):
        assert part in said
    said = run("stream", "create", path, *ASKED, "--labels-per-user", 1, "--days-per-user", 3)
    assert "on all days" in said
    assert not path.exists()


@pytest.mark.slow
def test_days_are_answered_once_and_charged_never(tmp_path, ledger, stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with Ledger(ledger) as book:
        spent = book.spent("sales")
    monday, answer = counts(tmp_path, "monday.csv", tea=900, milk=600), ("stream", "answer", stream)
    said = run(*answer, monday, "--ledger", ledger, "--day", 1)
    assert "tea" in said
    assert "day 1 of 3" in said
    first = json.loads(run(*answer, "--ledger", ledger, "--day", "2026-11-01", "--format", "json"))
    assert [row["label"] for row in first["rows"]] == ["tea", "milk"]
    monday = counts(tmp_path, "monday.csv", rum=9000)
    assert (
        json.loads(run(*answer, monday, "--ledger", ledger, "--day", 1, "--format", "json"))
        == first
    )
    out = tmp_path / "answer.csv"
    run(*answer, monday, "--ledger", ledger, "--day", 2, "--format", "csv", "--out", out)
    assert list(pd.read_csv(out)["label"]) == ["rum", "tea"]
    with Ledger(ledger) as book:
        assert book.spent("sales") == spent
    said = run("ledger", "show", ledger, "--dataset", "sales")
    assert "stream 'sales', day" not in said
    assert "charged for all its days" in said
    assert "no answer recorded" not in said
    said = run("stream", "show", stream, "--ledger", ledger)
    for part in (
        "on one day",
        f"Charged at once: {spent}",
        "day 1 (2026-11-01), data 'monday.csv ",
        ": tea, milk",
        "2 of 3",
    ):
        assert part in said
    with Ledger(ledger) as book:
        assert book.spent("sales") == spent


@pytest.mark.slow
@pytest.mark.parametrize("form", get_args(CommonFormat))
def test_every_common_format_has_the_rows_of_a_day_and_their_charge(tmp_path, ledger, stream, form):
    """In CSV, which has room for rows alone, the charge goes to standard error."""
    monday = counts(tmp_path, "monday.csv", tea=900, milk=600)
    asked = ("stream", "answer", stream, monday, "--ledger", ledger, "--day", 1, "--format", form)
    result = CliRunner().invoke(app, [str(argument) for argument in asked])
    assert result.exit_code == 0, result.output
    for label in ("tea", "milk"):
        assert label in result.stdout
    said = result.stdout if form in ("table", "json") else result.stderr
    assert "charge" in said


def test_a_stream_is_charged_once_however_often_it_is_created(ledger, stream, tmp_path):
    again = (*ASKED, *paying(ledger), "--first-day", "2026-11-01")
    run("stream", "create", stream, *again)
    with Ledger(ledger) as book:
        assert len(book.history("sales")) == 1
    assert "budget exceeded" in run(
        "stream", "create", tmp_path / "other.stream", *again, exit_code=3
    )
    assert "other terms" in run(
        "stream", "create", stream, *again, "--late", "left-out", exit_code=2
    )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--day", 3), 2, "the next day to be answered is day 2 (2026-11-02)"),
        (("--day", "soon"), 2, "--day must be a date"),
        (("--day", 2), 2, "was counted on day 1"),
        (("--day", 2, "--label-col", "what"), 2, "--label-col"),
        (("--day", 2, "--confidence", 2), 2, "--confidence"),
        (("--day", 2, "--out", "no/such/folder"), 2, "--out"),
    ],
)
def test_what_is_refused(tmp_path, ledger, stream, options, code, said):
    monday = counts(tmp_path, "monday.csv", tea=900)
    run("stream", "answer", stream, monday, "--ledger", ledger, "--day", 1)
    assert said in run(
        "stream", "answer", stream, monday, "--ledger", ledger, *options, exit_code=code
    )
    assert "was not answered" in run(
        "stream", "answer", stream, "--ledger", ledger, "--day", 2, exit_code=2
    )


def test_a_unit_that_leaves_days_unprotected_must_be_stated(tmp_path, ledger):
    said = run("stream", "create", tmp_path / "s.stream", *ASKED, *paying(ledger)[:-2], exit_code=2)
    assert "--unit: this stream protects some days of a user" in said
    said = run(
        "stream", "create", tmp_path / "s.stream", *ASKED, *paying(ledger)[:-1], "user", exit_code=2
    )
    assert "privacy unit is 'user-day'" in said


def test_public_labels_are_those_of_the_stream_whatever_their_type(tmp_path, ledger):
    (tmp_path / "labels.txt").write_text("1\n2\n3\n", encoding="ascii")
    stream = tmp_path / "public.stream"
    run("stream", "create", stream, *ASKED, *paying(ledger), "--domain", tmp_path / "labels.txt")
    day = counts(tmp_path, "day.csv", **{"3": 900, "1": 500, "7": 9000})
    said = json.loads(
        run("stream", "answer", stream, day, "--ledger", ledger, "--day", 1, "--format", "json")
    )
    assert [row["label"] for row in said["rows"]] == ["3", "1"]
    assert all(row["low"] <= row["count"] <= row["high"] for row in said["rows"])
    assert "threshold" not in run("stream", "show", stream, "--ledger", ledger)


@pytest.mark.slow
def test_a_store_gives_the_partition_of_the_day(tmp_path, ledger, stream):
    path = tmp_path / "events.store"
    for version, label in (("2026-11-01", "tea"), ("second", "rum")):
        events = tmp_path / f"{version}.csv"
        pd.DataFrame({"who": range(300), "what": [label] * 300}).to_csv(events, index=False)
        run("refresh", path, events, "--data-version", version, "--user-col", "who", "--item-col", "what",
            "--labels-per-user", 1, "--partitions", "--days-per-user", 2)  # fmt: skip
    asked = ("stream", "answer", stream, path, "--ledger", ledger, "--format", "json")
    assert [row["label"] for row in json.loads(run(*asked, "--day", 1))["rows"]] == ["tea"]
    assert "'2026-11-02' was not appended" in run(*asked, "--day", 2, exit_code=2)
    said = json.loads(run(*asked, "--day", 2, "--partition", "second"))
    assert {row["label"] for row in said["rows"]} == {"tea", "rum"}


def test_what_a_stream_needs_is_named_before_anything_is_charged(tmp_path, ledger):
    path, of = tmp_path / "new.stream", ("--dataset", "sales", "--analyst", "ann")
    for given, told in (
        ((), "--labels-per-user must be given"),
        (("--labels-per-user", 1, *of), "--dataset and --analyst need --ledger"),
        (("--ledger", ledger, *of[:2]), "--ledger needs --analyst: who asks"),
        (("--ledger", ledger, *of[2:]), "--ledger needs --dataset: what is asked about"),
    ):
        assert told in run("stream", "create", path, *ASKED, *given, exit_code=2)
    assert not path.exists()


@pytest.mark.slow
def test_what_a_refusal_advises_is_an_option_of_the_command(tmp_path, ledger, stream):
    """A survey, a row a person: the refusal names --one-row-per-user, and the command takes it."""
    day = tmp_path / "day.csv"
    day.write_text("drink\n" + "tea\n" * 900 + "milk\n" * 700, encoding="ascii")
    asked = ("stream", "answer", stream, day, "--ledger", ledger, "--day", 1, "--item-col", "drink")
    assert "--one-row-per-user says so" in run(*asked, exit_code=2)
    assert [
        row["label"]
        for row in json.loads(run(*asked, "--one-row-per-user", "--format", "json"))["rows"]
    ] == [
        "tea",
        "milk",
    ]
    day = tmp_path / "semi.csv"
    day.write_text("label;count\ntea;900\n", encoding="ascii")
    asked = ("stream", "answer", stream, day, "--ledger", ledger, "--day", 2)
    assert "no column" in run(*asked, "--sep", "|", exit_code=2)
    assert "tea" in run(*asked)
