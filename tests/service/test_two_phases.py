"""The service on events with private labels: found under a cap, counted without one; in one phase
where it says so.
"""

from __future__ import annotations

import pandas as pd
import pytest

from dptopk import Budget, InvalidParameter, LedgerError
from dptopk.planning import Plan, TwoPhasePlan, plan_two_phases
from dptopk.service.catalog import Catalog
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.plan_summary import plan_summary
from dptopk.service.questions import TopK, charge_of, record_of, revive

from .conftest import Server

TOP = {"k": 2, "epsilon": 1.0, "delta": 1e-6}


def catalog(folder, *lines: str, budget: str = "{ epsilon = 9.0, delta = 1e-5 }") -> Catalog:
    rows = [
        (f"u{user}", item, "ab"[user % 2])
        for user in range(2000)
        for item in ("x", "y", "z")[: 1 + user % 3]
    ]
    pd.DataFrame(rows, columns=["who", "what", "where"]).to_csv(folder / "events.csv", index=False)
    text = [
        "rates = { free = 1000.0, spending = 1000.0 }",
        "[datasets.events]",
        'source = "events.csv"',
        'user = "who"',
        'item = "what"',
        f"budget = {budget}",
        'filters = { where = ["a", "b"] }',
        "segments = { where = 1 }",
        *lines,
    ]
    (folder / "catalog.toml").write_text("\n".join(text), encoding="utf-8")
    return load_catalog(folder / "catalog.toml")


@pytest.mark.parametrize(
    ("lines", "asked", "two"),
    [
        ((), {}, True),
        (("labels_per_user = 2",), {}, True),
        (("labels_per_user = 2",), {"counts": "none"}, True),
        (("labels_per_user = 2", "count_capped = true"), {}, False),
        (("labels_per_user = 2",), {"counts": "laplace"}, False),
        (("labels_per_user = 2",), {"method": "peel"}, False),
        (("labels_per_user = 2", "top = 50"), {}, False),
    ],
    ids=str,
)
def test_what_is_answered_in_two_phases(tmp_path, lines, asked, two):
    spec = catalog(tmp_path, *lines).datasets["events"]
    question = TopK(**TOP | asked)
    made = question.plan_for(spec)
    assert isinstance(made, TwoPhasePlan) == two
    assert isinstance(made, Plan)
    told = plan_summary(made, charge_of(spec, question, made), 1e-6)
    assert told["epsilon"] <= 1
    assert told["appears_at"] == made.appears_at()
    assert (told["error_bar"] is None) == (asked.get("counts") == "none")
    if two:
        assert made.under.l0 == (2 if lines else 100)
        assert told["labels_per_user"] is None  # counted without the cap under which they are found
    else:
        assert told["labels_per_user"] == spec.labels_per_user


def test_registered_costs_or_no_events_are_answered_in_one(tmp_path):
    capped = "labels_per_user = 2"
    shares = (
        '{ shares = { ann = { registered = "9*DP(1)" }, reserve = { registered = "DP(0.1)" '
        "} }, delta = 1e-5 }"
    )
    for budget in ('{ registered = "9*DP(0.1)", delta = 1e-5 }', shares):
        spec = catalog(tmp_path, capped, budget=budget).datasets["events"]
        assert not isinstance(TopK(**TOP).plan_for(spec), TwoPhasePlan)
    (tmp_path / "labels.txt").write_text("x\ny\n", encoding="utf-8")
    with pytest.raises(InvalidParameter, match="count_capped is for private labels of events"):
        catalog(tmp_path, 'labels = "labels.txt"', "count_capped = true")
    with pytest.raises(InvalidParameter, match="count_capped must be true or false"):
        catalog(tmp_path, "count_capped = 1")


def test_registered_costs_of_two_phases_are_answered_in_two_without_looks(tmp_path):
    """The plan that was registered is the one that is charged; its phases never run as those of
    another plan.
    """
    planned = plan_two_phases(2, Budget(1.0, 1e-6), labels_per_user=2)
    budget = f'{{ registered = "{planned.charge.times(3)}", delta = 1e-5 }}'
    spec = catalog(tmp_path, "labels_per_user = 2", budget=budget).datasets["events"]
    question = TopK(**TOP)
    made = question.plan_for(spec)
    assert isinstance(made, TwoPhasePlan)
    assert made.charge == planned.charge
    assert revive(spec, record_of(question, made), made.charge)[1] == made
    assert not isinstance(TopK(**TOP | {"epsilon": 5.0}).plan_for(spec), TwoPhasePlan)
    capped = catalog(tmp_path, "labels_per_user = 2", "count_capped = true").datasets["events"]
    before = question.plan_for(spec)
    with pytest.raises(LedgerError, match="charge stays"):
        revive(capped, record_of(question, before), before.charge)
    once = question.plan_for(capped)  # what was charged runs, whatever would be planned now
    assert revive(spec, record_of(question, once), once.charge)[1].phases == once.phases


@pytest.mark.slow
def test_answers_cover_the_true_counts_also_by_segment_and_stay_what_was_charged(tmp_path):
    catalog(tmp_path, "labels_per_user = 1")
    truth = {"x": 2000, "y": 1333}
    text = (tmp_path / "catalog.toml").read_text(encoding="utf-8")
    with Server(tmp_path, text).running() as server, server.client("ann") as ann:
        key = {"Idempotency-Key": "two-phases-1"}
        answers = [
            ann.post("/v1/datasets/events/topk", json=TOP, headers=key).json() for _ in range(2)
        ]
        assert answers[0] == answers[1]
        made = answers[0]["release"]
        assert (
            "found on capped data (at most 1 label of one user), and counted on all data"
            in made["note"]
        )
        assert {row["label"] for row in made["rows"]} <= truth.keys()
        assert all(abs(row["count"] - truth[row["label"]]) < 40 for row in made["rows"])
        body = TOP | {"segments": {"where": []}}
        parts = ann.post(
            "/v1/datasets/events/topk", json=body, headers={"Idempotency-Key": "two-phases-2"}
        ).json()
        assert [part["segment"] for part in parts["segments"]] == ["a", "b"]
        assert all("counted on all data" in part["release"]["note"] for part in parts["segments"])
        wide = TOP | {"k": 60}
        once = [
            ann.post(
                "/v1/datasets/events/topk", json=wide, headers={"Idempotency-Key": "two-phases-4"}
            ).json()
            for _ in range(2)
        ]
        assert once[0] == once[1]
        assert "chosen by a look" not in once[0]["release"]["note"]  # the cap is stated
        capped = ann.post(
            "/v1/datasets/events/topk",
            json=TOP | {"method": "threshold"},
            headers={"Idempotency-Key": "two-phases-3"},
        ).json()
        assert "capped data" in capped["release"]["note"]
        assert max(row["count"] for row in capped["release"]["rows"]) < 1500


@pytest.mark.slow
def test_a_look_chooses_the_way_and_a_retry_gives_the_same(tmp_path):
    catalog(tmp_path)
    text = (tmp_path / "catalog.toml").read_text(encoding="utf-8")
    with Server(tmp_path, text).running() as server, server.client("ann") as ann:
        for number, more in enumerate(({}, {"segments": {"where": []}})):
            key = {"Idempotency-Key": f"a-look-{number}"}
            body = TOP | {"k": 60} | more
            once = [
                ann.post("/v1/datasets/events/topk", json=body, headers=key).json()
                for _ in range(2)
            ]
            assert once[0] == once[1]
            for part in once[0].get("segments", [once[0]]):
                assert "chosen by a look, for DP(0.01) + DP(0.0299999)" in part["release"]["note"]
                assert part["release"]["phases"].keys() == {"users", "ranks", "answer"}
