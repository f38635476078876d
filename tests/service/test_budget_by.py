"""Segments that the ledger declares, over HTTP: each has the whole budget."""

from __future__ import annotations

import pytest

from dptopk import Budget, BudgetExceeded, Client, InvalidParameter, KnownLaplace
from dptopk.costs import Charge, PureDP
from dptopk.errors import LedgerError
from dptopk.ledger.ledger import Ledger
from dptopk.service import answering
from dptopk.service.catalog_changes import open_ledger
from dptopk.service.catalog_file import load as load_catalog, read as read_catalog
from dptopk.service.tables import Tables

from .conftest import CATALOG, Server

BY_PART = CATALOG.replace("segments = { part = 1 }", 'segments = { part = 1 }\nbudget_by = "part"')
COUNT = KnownLaplace(epsilon=2.5)  # of a budget of 4: one fits into an account, two do not
LABELS = {"labels": ["three"]}


def ledger_of(path):
    catalog = load_catalog(path)
    return open_ledger(catalog, Tables(catalog.access))


@pytest.fixture
def by_part(tmp_path):
    with Server(tmp_path, BY_PART).running() as running:
        yield running


@pytest.fixture
def client(by_part):
    return Client(by_part.url, by_part.tokens["ann"], dataset="words")


@pytest.mark.slow
def test_each_segment_has_the_whole_budget(by_part, client):
    assert client.schema()["budget_by"] == "part"
    client.run(COUNT, where={"part": "one"}, **LABELS)
    planned = client.plan(COUNT, where={"part": "one"}, **LABELS)["balance"]["total"]
    assert planned["refused"]
    assert planned["fits"] == 0
    assert client.plan(COUNT, where={"part": "two"}, **LABELS)["balance"]["total"]["fits"] == 1
    with pytest.raises(BudgetExceeded, match="segment one"):
        client.run(COUNT, where={"part": "one"}, **LABELS)
    for everything in ({}, {"segments": {"part": []}}):
        assert client.plan(COUNT, **LABELS, **everything)["balance"]["total"]["fits"] == 0
    client.run(COUNT, where={"part": "two"}, **LABELS)
    ledger = by_part.service.reports.ledger
    assert ledger.spent("words") == Charge({PureDP(2.5): 1})
    assert client.budget()["total"]["shares"] == {
        "one": pytest.approx(2.5 / 4, rel=1e-4),
        "two": pytest.approx(2.5 / 4, rel=1e-4),
    }
    assert client.remaining().epsilon_spent == pytest.approx(2.5, rel=1e-3)
    assert [one["fits"] for one in client.budget()["fits"]] == [0]
    assert ledger.verify()


@pytest.mark.slow
def test_a_limit_holds_in_each_segment(by_part):
    bob = Client(by_part.url, by_part.tokens["bob"], dataset="words")
    small = KnownLaplace(epsilon=0.3)  # of a limit of 0.4
    for part in ("one", "two"):
        bob.run(small, where={"part": part}, **LABELS)
        assert bob.plan(small, where={"part": part}, **LABELS)["balance"]["mine"]["refused"]
    with pytest.raises(BudgetExceeded, match="limit"):
        bob.run(small, **LABELS)


@pytest.mark.slow
def test_all_segments_at_once_are_paid_by_each(client):
    client.top_k_each("part", 2, budget=Budget(2.5, 1e-7), counts="laplace")
    for part in ("one", "two"):
        with pytest.raises(BudgetExceeded):
            client.run(COUNT, where={"part": part}, **LABELS)


@pytest.mark.slow
def test_what_was_charged_to_a_segment_of_older_data_is_not_answered_from_the_new(
    by_part, client, monkeypatch
):
    """Its users may be in the other segment now, whose account has not paid for it."""

    asked = {
        "mechanism": {"name": "KnownLaplace", "epsilon": 2.5},
        "where": {"part": "one"},
    } | LABELS

    def killed(*_):
        raise LedgerError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(answering.AnswerService, "_answer", killed)
        with by_part.client("ann") as ann:
            lost = ann.post(
                "/v1/datasets/words/run", json=asked, headers={"Idempotency-Key": "was-killed"}
            )
        assert lost.status_code == 503, lost.text
    client.run(KnownLaplace(epsilon=1.0), where={"part": "two"}, **LABELS)
    (by_part.folder / "words-2.csv").write_bytes((by_part.folder / "words-1.csv").read_bytes())
    with by_part.client("eve") as admin:
        assert admin.post("/v1/datasets/words/versions", json={"version": "2"}).status_code == 200
        with by_part.client("ann") as ann:
            late = ann.post(
                "/v1/datasets/words/run", json=asked, headers={"Idempotency-Key": "was-killed"}
            )
        assert late.status_code == 409, late.text
        assert "the data changed" in late.json()["message"]
        client.run(KnownLaplace(epsilon=1.0), where={"part": "two"}, **LABELS)
        with pytest.raises(BudgetExceeded):  # 2.5 and 1 of the merged account
            client.run(KnownLaplace(epsilon=1.0), where={"part": "two"}, **LABELS)
        drawn = admin.get("/v1/datasets/words/spending").json()["over_time"]
    shares = [point["share"] for point in drawn]
    assert shares[:2] == pytest.approx([2.5 / 4, 2.5 / 4], rel=1e-4)
    # After a new version the reading is of a charge that covers every segment's history.
    assert 3.5 / 4 * (1 - 1e-4) <= shares[2] <= 1


def test_a_catalog_says_how_much_of_delta_is_for_failures(tmp_path):
    text = CATALOG.replace(
        "epsilon = 4.0, delta = 1e-5", "epsilon = 4.0, delta = 1e-5, failure_delta = 9e-6"
    )
    (tmp_path / "most.toml").write_text(text, encoding="utf-8")
    with ledger_of(tmp_path / "most.toml") as ledger:
        ledger.charge("words", "ann", Charge({PureDP(0.1): 1}, delta=8e-6))
    for wrong in (
        'registered = "BR(1)", delta = 1e-5, failure_delta = 1e-6',
        "epsilon = 1, delta = 1e-5, order = 2",
    ):
        (tmp_path / "wrong.toml").write_text(
            CATALOG.replace("epsilon = 4.0, delta = 1e-5", wrong), encoding="utf-8"
        )
        with pytest.raises(InvalidParameter, match="unknown"):
            load_catalog(tmp_path / "wrong.toml")


def test_the_catalog_and_the_ledger_agree(tmp_path):
    with pytest.raises(InvalidParameter, match="needs segments"):
        read_catalog(
            {"datasets": {"d": {"source": "d.csv", "budget": {"epsilon": 1}, "budget_by": "part"}}},
            tmp_path,
        )
    plain, by = tmp_path / "plain.toml", tmp_path / "by.toml"
    plain.write_text(CATALOG, encoding="utf-8")
    by.write_text(BY_PART, encoding="utf-8")
    ledger_of(plain).close()
    with pytest.raises(LedgerError, match="a budget for each part, the ledger for each nothing"):
        ledger_of(by)
    assert Ledger(load_catalog(plain).ledger).state("words").segments is None
