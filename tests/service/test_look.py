"""A private look before the plan, over HTTP: one charge of the total, one answer; questions of
before as they were.
"""

from __future__ import annotations

import pytest

from dptopk import Budget, Client, InvalidParameter
from dptopk.costs import ApproxDP, Charge
from dptopk.errors import BudgetExceeded
from dptopk.planning import Plan
from dptopk.planning.probe import LookedPlan
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.plan_summary import plan_summary
from dptopk.service.questions import TopK, charge_of, question_of, record_of, revive
from dptopk.session.service_connection import ServiceError

from .conftest import Server

CATALOG = """
ledger = "ledger.db"
rates = {{ free = 1000.0, spending = 1000.0 }}

[datasets.pages]
source = "pages.csv"
label = "page"
count = "n"
labels_per_user = 20
budget = {budget}
{more}
"""
ASKED = {"k": 5, "epsilon": 0.5, "delta": 1e-7}
COUNTS = {f"page {rank}": 10**5 // rank for rank in range(1, 150)}


def catalog(folder, budget="{ epsilon = 2.0, delta = 1e-6 }", more="") -> str:
    rows = "".join(f"{page},{count}\n" for page, count in COUNTS.items())
    (folder / "pages.csv").write_text("page,n\n" + rows, encoding="utf-8")
    text = CATALOG.format(budget=budget, more=more)
    (folder / "catalog.toml").write_text(text, encoding="utf-8")
    return text


def loaded(folder, **options):
    catalog(folder, **options)
    return load_catalog(folder / "catalog.toml").datasets["pages"]


@pytest.mark.slow
def test_a_look_is_one_charge_of_the_total_and_one_answer(tmp_path):
    with Server(tmp_path, catalog(tmp_path)).running() as server:
        client = Client(server.url, server.tokens["ann"], dataset="pages")
        budget = Budget(0.5, 1e-7)
        plain, price = (
            client.plan(5, budget=budget, counts="auto", **more) for more in ({}, {"look": "auto"})
        )
        assert (price["epsilon"], price["delta"]) <= (0.5, 1e-7)
        assert price["epsilon"] == pytest.approx(plain["epsilon"], rel=1e-2)
        assert Charge.parse(price["charge"]) == Charge({ApproxDP(0.5, 1e-7): 1})
        assert price["error_bar"] > 0
        answer = client.top_k(5, budget=budget, counts="auto", look="auto", key="the-first-look")
        assert str(answer.charge) == price["charge"]
        assert "planned after a look at the counts of the ranks 1, 5, 10, 20, 50" in answer.note
        assert "look" in answer.phases
        assert all(
            abs(count - COUNTS[label]) < 400
            for label, count in zip(answer.labels, answer.counts, strict=True)
        )
        again = client.top_k(5, budget=budget, counts="auto", look="auto", key="the-first-look")
        assert again.to_dict() == answer.to_dict()
        for other in (None, 0.05):
            with pytest.raises(ServiceError, match="another question"):
                client.top_k(5, budget=budget, counts="auto", look=other, key="the-first-look")
        (spend,) = server.service.reports.ledger.history("pages")
        assert str(spend.charge) == price["charge"]
        assert spend.mechanism["text"] == "a look then a plan by it"
        for wrong in (0.0, 1.0, "much"):
            with pytest.raises(InvalidParameter, match="look"):
                client.top_k(5, budget=budget, counts="auto", look=wrong)
        with pytest.raises(BudgetExceeded):
            client.top_k(5, budget=Budget(1.9, 1e-7), counts="auto", look="auto")
        assert len(server.service.reports.ledger.history("pages")) == 1


def test_a_question_of_before_looks_were_asked_for_is_what_it_was(tmp_path):
    """Its stored form, and so its fingerprint and key, say nothing of looks, and it takes none."""
    spec, asked = loaded(tmp_path), TopK(**ASKED)
    assert "look" not in asked.plain()
    assert question_of(asked.plain()) == asked
    assert not isinstance(asked.plan_for(spec), LookedPlan)
    looked = [TopK(**ASKED, look=look) for look in ("auto", 0.05)]
    assert len({one.fingerprint(spec) for one in (asked, *looked)}) == 3
    assert [question_of(one.plain()).look for one in looked] == ["auto", 0.05]


def test_what_was_charged_is_revived_with_its_look(tmp_path):
    spec, question = loaded(tmp_path), TopK(**ASKED, look=0.05)
    prepared = question.plan_for(spec)
    charge = charge_of(spec, question, prepared)
    told = plan_summary(prepared, charge, 1e-6)
    assert (told["charge"], told["delta"]) == ("ADP(0.5, 1e-07)", 1e-7)
    assert 0.45 < told["epsilon"] <= 0.5
    assert "after a look" in told["explain"]
    same, again = revive(spec, record_of(question, prepared), charge)
    assert same == question
    assert isinstance(again, LookedPlan)
    assert (again.charge, again.look) == (prepared.charge, prepared.look)


@pytest.mark.parametrize(
    ("options", "look", "looks"),
    [
        ({"budget": '{ registered = "9*DP(0.1)", delta = 1e-5 }'}, "auto", False),
        ({"budget": '{ registered = "9*DP(0.1)", delta = 1e-5 }'}, 0.1, True),
        ({"more": 'labels = "labels.txt"'}, "auto", False),
        ({}, None, False),
    ],
    ids=str,
)
def test_where_a_look_is_taken(tmp_path, options, look, looks):
    """Where it is worth its cost, and never by itself from a budget of registered costs."""
    (tmp_path / "labels.txt").write_text("\n".join(COUNTS), encoding="utf-8")
    made = TopK(**ASKED, look=look).plan_for(loaded(tmp_path, **options))
    assert isinstance(made, Plan)
    assert isinstance(made, LookedPlan) == looks
