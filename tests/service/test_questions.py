"""One mechanism by name, and a question put to every segment at once: over HTTP and by the
Client.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import fields, replace
from inspect import signature

import pandas as pd
import pytest

from dptopk import (
    Budget,
    Client,
    InvalidParameter,
    KnownGaussian,
    KnownLaplace,
    Sensitivity,
    Session,
    UnknownGumbel,
)
from dptopk.costs import Charge, PureDP
from dptopk.datasets import Segments
from dptopk.errors import BudgetExceeded, LedgerError
from dptopk.ledger.entries import normal_form
from dptopk.mechanisms import Centred, CountMLE, TruncatedGaussian, TruncatedLaplace
from dptopk.mechanisms.named import mechanism_of
from dptopk.planning import plan_topk
from dptopk.question import Question, default_of
from dptopk.service import data
from dptopk.service.catalog import Catalog, SegmentReading
from dptopk.service.catalog_file import load as load_catalog, read as read_catalog
from dptopk.service.check import check
from dptopk.service.questions import Plans, Run, TopK, charge_of, question_of, record_of, revive

from .conftest import CATALOG, WORDS, Server, write_words

PART = {"method": "threshold", "counts": "gaussian"}


@pytest.fixture
def client(server):
    return Client(server.url, server.tokens["ann"], dataset="words")


@pytest.mark.slow
def test_run_by_name(server, client):
    """What Session.run does: the labels of one answer counted by another, each charged what it
    says.
    """
    selection = UnknownGumbel(k=2, d_bar=3, epsilon=0.2, delta=1e-7)
    promised = client.plan(selection)
    found = client.run(selection)
    assert str(found.charge) in promised["charge"]
    counted = client.run(KnownLaplace(epsilon=0.25), labels=found, key="count-them")
    assert set(counted.labels) == set(found.labels)
    assert counted.charge == Charge({PureDP(0.25): 1})
    assert client.plan(KnownLaplace(epsilon=0.25), labels=found)["charge"] == "DP(0.25)"
    truth = dict(WORDS)
    assert all(
        abs(count - truth[label]) < 400
        for label, count in zip(counted.labels, counted.counts, strict=True)
    )
    again = client.run(KnownLaplace(epsilon=0.25), labels=list(found.labels), key="count-them")
    assert again.to_dict() == counted.to_dict()
    fitted = client.run(CountMLE(noise=KnownGaussian(sigma=30.0)), ranking=found)
    assert list(fitted.labels) == list(found.labels)
    assert len(client.run(TruncatedLaplace(epsilon=0.3, delta=1e-7))) == len(WORDS)
    assert [spend.mechanism["text"] for spend in server.service.reports.ledger.history("words")][
        1
    ] == "KnownLaplace(epsilon=0.25)"
    fits = client.remaining().fits
    assert fits["KnownLaplace(epsilon=0.25)"] > 0
    assert "UnknownGumbel" in client._repr_html_()


@pytest.mark.slow
def test_run_refuses_what_makes_no_sense_before_any_charge(server, client):
    bad = [
        {"name": "KnownLaplace", "epsilon": 0.1},  # of a private domain, without labels
        {"name": "KnownLaplace", "epsilon": 0.1, "sigma": 1},
        {"name": "KnownLaplace"},
        {"name": "KnownLaplace", "epsilon": "0.1"},
        {"name": "os.system", "epsilon": 1},
        {"name": "CountMLE", "noise": {"name": "KnownLaplace", "epsilon": 1}},
        {"name": "UnknownGumbel", "k": 5000, "d_bar": 3, "epsilon": 0.2, "delta": 1e-7},
        {"name": "UnknownGumbel", "k": 5, "d_bar": 10**6, "epsilon": 0.2, "delta": 1e-7},
        {"name": "TruncatedGaussian", "sigma": 1e300, "delta": 1e-7},
    ]
    with server.client("ann") as ann:
        for mechanism in bad:
            key = {"Idempotency-Key": "nonsense-1"}
            answer = ann.post("/v1/datasets/words/run", json={"mechanism": mechanism}, headers=key)
            assert (answer.status_code, answer.json()["error"]) == (422, "invalid"), (
                mechanism,
                answer.text,
            )
    with pytest.raises(InvalidParameter, match="labels"):
        client.run(UnknownGumbel(k=2, d_bar=3, epsilon=0.2, delta=1e-7), labels=["three"])
    with pytest.raises(BudgetExceeded):
        client.run(KnownLaplace(epsilon=50.0), labels=["three"])
    assert server.service.reports.ledger.history("words") == []


@pytest.mark.slow
def test_every_segment_at_once_costs_as_much_as_one(server, client):
    one = client.plan(2, budget=Budget(0.5, 1e-7), **PART)
    promised = client.plan(2, budget=Budget(0.5, 1e-7), segments="part", **PART)
    assert promised["charge"] == one["charge"]
    assert promised["epsilon"] == pytest.approx(one["epsilon"], rel=1e-3)
    answers = client.top_k_each("part", 2, budget=Budget(0.5, 1e-7), key="each-part", **PART)
    assert list(answers) == ["one", "two"]
    assert [str(spend.charge) for spend in server.service.reports.ledger.history("words")] == [
        one["charge"]
    ]
    assert client.releases()[0].keys() == answers.keys()
    again = client.top_k_each({"part": []}, 2, budget=Budget(0.5, 1e-7), key="each-part", **PART)
    assert [answer.to_dict() for answer in again.values()] == [
        answer.to_dict() for answer in answers.values()
    ]
    ran = client.run_each({"part": ["two"]}, TruncatedGaussian(sigma=4.0, delta=1e-7))
    assert list(ran) == ["two"]
    assert list(client.report()["rows"]) == [sum(map(len, answers.values()))] * 2 + [
        len(ran["two"])
    ]
    for segments in (
        {"part": ["three"]},
        {"part": ["two", "two"]},
        "word",
        {"part": [], "word": []},
    ):
        with pytest.raises(InvalidParameter):
            client.top_k_each(segments, 2, budget=Budget(0.5, 1e-7))
    with pytest.raises(InvalidParameter, match="fixed by a condition"):
        client.top_k_each("part", 2, budget=Budget(0.5, 1e-7), where={"part": "one"})


def events_catalog(folder, per_user: int) -> Catalog:
    rows = [
        (f"u{user}", f"w{user % 5}", ("arts", "sport", "news")[part])
        for user in range(300)
        for part in range(3)
    ]
    pd.DataFrame(rows, columns=["member", "item", "section"]).to_parquet(folder / "events.parquet")
    (folder / "catalog.toml").write_text(
        f"""
[datasets.articles]
source = "events.parquet"
user = "member"
item = "item"
labels_per_user = 1
budget = {{ epsilon = 10.0, delta = 1e-5 }}
filters = {{ section = ["arts", "sport", "news"] }}
segments = {{ section = {per_user} }}
""",
        encoding="utf-8",
    )
    return load_catalog(folder / "catalog.toml")


@pytest.mark.slow
def test_segments_of_events_hold_each_user_in_as_many_as_are_charged(tmp_path):
    spec = events_catalog(tmp_path, 2).datasets["articles"]
    question = TopK(k=2, epsilon=1.0, delta=1e-7, segments={"section": []}, **PART)
    asked = spec.segment_reading(question.segments, {})
    assert asked == SegmentReading("section", ("arts", "sport", "news"), 2)
    read = data.Histograms().get(spec, "1", {}, asked, lambda _done, _total: None)
    assert list(read) == ["arts", "sport", "news"]
    assert (
        sum(int(histogram.counts.sum()) for histogram in read.values()) == 2 * 300
    )  # of 3 events each
    prepared = question.plan_for(spec)
    assert (
        charge_of(spec, question, prepared)
        == Segments(read, 2).charge(prepared.charge)
        == prepared.charge.times(2)
    )


def test_a_charge_remembers_every_design(tmp_path):
    """Also a design with a centre, a fraction: read back as JSON has it, it is the plan that was
    charged.
    """
    spec = events_catalog(tmp_path, 1).datasets["articles"]
    wide = type(spec)(name="wide", source="macbeth", terms=spec.terms)
    question = TopK(k=25, epsilon=2.0, delta=1e-6, counts="gaussian", method="peel")
    plans = Plans()
    plan = plans.get(wide, question)
    assert any(isinstance(getattr(one, "noise", None), Centred) for one in plan.mechanisms)
    record = normal_form(mechanism=record_of(question, plan))
    assert revive(wide, record, plan.charge)[1].mechanisms == plan.mechanisms
    with pytest.raises(LedgerError, match="its charge stays"):
        revive(wide, record, Charge({PureDP(0.1): 1}))
    with pytest.raises(LedgerError, match="cannot be put again"):
        revive(wide, record | {"question": record["question"] | {"k": 0}}, plan.charge)


def test_a_charge_of_a_design_that_went_is_revived(tmp_path):
    """Gumbel selections, then independent Gaussian counts: no plan is made so any longer."""
    spec = events_catalog(tmp_path, 1).datasets["articles"]
    question = TopK(k=2, epsilon=1.0, delta=1e-7, counts="gaussian", method="peel")
    plan = Plans().get(spec, question)
    select, count = plan.phases
    under = Sensitivity(l0=20)
    mechanism = CountMLE(noise=KnownGaussian(sigma=40.0))
    before = replace(count, mechanism=mechanism, charge=mechanism.charge(under, labels=2))
    once = replace(plan, phases=(select, before))
    assert plan.mechanisms != once.mechanisms
    record = normal_form(mechanism=record_of(question, once))
    assert revive(spec, record, once.charge)[1].mechanisms == once.mechanisms


def test_mechanisms_by_name_come_back():
    kinds = [
        KnownLaplace(epsilon=0.5),
        CountMLE(noise=Centred(noise=KnownGaussian(sigma=3.0), common=KnownGaussian(sigma=2.0))),
        UnknownGumbel(k=5, d_bar=10, epsilon=0.1, delta=1e-7),
        TruncatedGaussian(sigma=4.0, delta=1e-6),
    ]
    for kind in kinds:
        assert mechanism_of(json.loads(json.dumps(kind.to_dict()))) == kind
    assert Run(mechanism=kinds[0].to_dict(), labels=["a"]).plain()["labels"] == ["a"]


@pytest.mark.slow
def test_a_whole_answer_at_once_over_public_labels(tmp_path):
    """Every method that a plan may have is one that may be asked for."""
    (tmp_path / "labels.txt").write_text(
        "".join(f"{word}\n" for word, _ in WORDS), encoding="utf-8"
    )
    text = CATALOG.replace(
        "[datasets.hidden]\n", '[datasets.open]\nlabels = "labels.txt"\n'
    ).replace('source = "macbeth"\n', 'source = "open.csv"\nlabel = "word"\ncount = "n"\n')
    write_words(tmp_path, "1")
    (tmp_path / "words-1.csv").rename(tmp_path / "open.csv")
    with Server(tmp_path, text).running() as running:
        open_ = Client(running.url, running.tokens["ann"], dataset="open")
        for counts in ("none", "gaussian"):
            asked = {"budget": Budget(0.3, 1e-7), "method": "whole", "counts": counts}
            plan = open_.plan(2, **asked)
            release = open_.top_k(2, **asked, key=f"whole-{counts}")
            assert str(release.charge) == plan["charge"]
            assert open_.top_k(2, **asked, key=f"whole-{counts}").to_dict() == release.to_dict()
            assert set(release.labels) <= {word for word, _ in WORDS}


@pytest.mark.slow
def test_labels_that_python_holds_equal_are_of_different_questions(tmp_path):
    """1, 1.0 and true are three labels: under the key of one of them another one is refused."""
    with Server(tmp_path).running() as running, running.client("ann") as ann:
        key = {"Idempotency-Key": "one-and-true"}
        statuses = [
            ann.post(
                "/v1/datasets/words/run",
                json={"mechanism": {"name": "KnownLaplace", "epsilon": 0.1}, "labels": [label]},
                headers=key,
            ).status_code
            for label in (1, True, 1.0, 1)
        ]
    assert statuses == [200, 409, 409, 200]


def test_the_shipped_table_has_no_segments(tmp_path):
    """Its rows cannot be told apart: each of its segments would be all of it, and pay for a
    part.
    """
    text = CATALOG.replace('source = "words-{version}.csv"', 'source = "macbeth"')
    with pytest.raises(InvalidParameter, match="no columns to filter by"):
        read_catalog(tomllib.loads(text), tmp_path)


@pytest.mark.parametrize("name", ["mechanism", "labels", "ranking"])
def test_a_number_that_is_not_finite_is_refused_by_name(name):
    given = {"mechanism": {"name": "KnownLaplace", "epsilon": 0.1}} | {
        name: {"d_bar": float("inf")} if name == "mechanism" else [float("inf")]
    }
    with pytest.raises(InvalidParameter, match=name):
        question_of(given)


@pytest.mark.parametrize("name", ["k", "d_bar"])
def test_a_number_of_rows_beyond_measure_is_refused(name):
    """Its price in units of work was no number that Python has: a 500."""
    mechanism = {"name": "UnknownGumbel", "epsilon": 0.1, "delta": 1e-7, name: 10**400}
    question = question_of({"mechanism": mechanism})
    with pytest.raises(InvalidParameter, match=name):
        _ = question.rows


@pytest.mark.parametrize("name", ["labels", "ranking"])
def test_a_list_of_no_labels_is_refused(name):
    """It would cost nothing: entries of the ledger without end."""
    mechanism = {"name": "KnownLaplace", "epsilon": 0.1}
    with pytest.raises(InvalidParameter, match=f"{name} must have at least 1 entries"):
        question_of({"mechanism": mechanism, name: []})


IN_RHO = """
ledger = "ledger.db"

[datasets.words]
source = "words-{version}.csv"
label = "word"
count = "n"
labels_per_user = 1
unit = "word"
budget = { rho = 0.5, delta = 1e-6 }
limits = { bob = { rho = 0.1, delta = 1e-7 } }
"""


@pytest.mark.slow
def test_a_question_in_rho_is_answered_within_a_budget_in_rho(tmp_path):
    """Its price is at most its ρ; five of a fifth fit, for bob one of his limit; and the catalog
    still agrees.
    """
    with Server(tmp_path, IN_RHO).running() as server:
        ann, bob = (
            Client(server.url, server.tokens[name], dataset="words") for name in ("ann", "bob")
        )
        part = Budget(rho=0.1, delta=1e-7)
        assert ann.plan(2, budget=part)["balance"]["total"]["fits"] == 5
        for _ in range(4):
            assert ann.top_k(2, budget=part, counts="auto").counts is not None
        bob.top_k(2, budget=part)
        for client in (ann, bob):
            with pytest.raises(BudgetExceeded):
                client.top_k(2, budget=part)
        state = server.service.reports.ledger.state("words")
        price = sum(times * state.account.price(cost)[0] for cost, times in state.spent())
        assert 0.49 < price <= 0.5
        with pytest.raises(InvalidParameter, match="exactly one of epsilon, rho and accuracy"):
            ann._connection.call(
                "POST", "/datasets/words/plan", {"k": 2, "epsilon": 1.0, "rho": 0.1}
            )
    assert not [one for one in check(tmp_path / "catalog.toml") if one.refused]


def test_a_question_without_rho_is_written_down_as_before():
    """A key of a question that an earlier version charged is still that question's."""
    question = TopK(k=2, epsilon=1.0, delta=1e-7)
    before = {
        "k": 2,
        "epsilon": 1.0,
        "delta": 1e-7,
        "accuracy": None,
        "counts": "auto",
        "method": "auto",
        "d_bar": None,
    }
    assert question.equals_json(before | {"where": {}})
    assert question_of(before | {"where": {}}) == question


def test_the_parts_of_a_question_have_one_name_and_one_default():
    """plan_topk, a session, the command line, HTTP and the client: the same names and defaults."""
    planned, http = signature(plan_topk).parameters, TopK.model_fields
    names = {one.name: one for one in fields(Question)}
    shared = planned.keys() & names.keys() - {"k", "fit", "charge_as"}
    assert shared >= {"accuracy", "delta", "counts", "users", "d_bar", "method", "effort", "like"}
    for name in shared:
        assert default_of(names[name]) == planned[name].default
    for name in http.keys() - {"where", "segments", "k"}:
        assert http[name].default == default_of(names[name], "http")
    looks = [signature(asks).parameters["look"].default for asks in (Session.top_k, Client.top_k)]
    assert looks == ["auto", None]  # docs/service.md says why
