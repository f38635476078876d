"""Analysts with shares of their own: fixed beforehand, used up one by one, renewed all at once and
not over HTTP.
"""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from dptopk import Budget, Client, KnownLaplace, Ledger
from dptopk.cli import app
from dptopk.costs import Charge, PureDP
from dptopk.errors import BudgetExceeded, InvalidParameter
from dptopk.service.catalog import CatalogBudget
from dptopk.service.catalog_file import load as load_catalog

from .conftest import CATALOG, Server

SHARED = CATALOG.replace(
    'limits = { bob = { epsilon = 0.4, delta = 1e-6 } }\n', ""
).replace(
    "budget = { epsilon = 4.0, delta = 1e-5 }",
    'budget = { delta = 1e-5, shares = { ann = { registered = "2*DP(0.5)" }, Bob = { epsilon = '
    '0.4, delta = 1e-6 } } }',
)  # fmt: skip
ASK = KnownLaplace(epsilon=0.4)


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path, SHARED).running() as running:
        yield running


def client(server, who):
    return Client(server.url, server.tokens[who], dataset="words")


@pytest.mark.slow
def test_each_ends_with_a_share_of_their_own(server):
    ann, bob, eve = (client(server, who) for who in ("ann", "bob", "eve"))
    whole = Ledger(server.catalog.ledger, read_only=True).state("words").account
    before = ann.budget()
    assert (
        before["total"]["epsilon"] == whole.epsilon() < whole.sum().epsilon
    )  # the product of both shares
    assert (before["mine"]["owner"], before["mine"]["epsilon"]) == (
        "ann",
        pytest.approx(1.0, rel=1e-3),
    )
    assert bob.budget()["mine"]["owner"] == "bob"
    for _ in range(2):
        ann.run(ASK, labels=["three"])
    with pytest.raises(BudgetExceeded):
        ann.run(ASK, labels=["three"])
    assert ann.plan(ASK, labels=["three"])["balance"]["mine"]["fits"] == 0
    used = ann.budget()
    assert used["mine"]["share"] == pytest.approx(0.8, rel=1e-3)  # of the ε of two tokens
    assert used["mine"]["epsilon_spent"] == pytest.approx(0.8, rel=1e-3)  # of two tokens of 0.5
    assert used["total"]["epsilon"] == before["total"]["epsilon"]
    assert ann.remaining().fits == {"KnownLaplace(epsilon=0.4)": 0}
    bob.run(ASK, labels=["three"])  # bob's is untouched
    assert eve.budget()["mine"]["refused"]  # neither a share nor a reserve
    with pytest.raises(BudgetExceeded, match="reserve"):
        eve.run(ASK, labels=["three"])
    with server.client("eve") as owner:
        spent = owner.get("/v1/datasets/words/spending").json()
    assert spent["limits"] == {
        "ann": pytest.approx(0.8, rel=1e-3),
        "bob": pytest.approx(1.0, rel=1e-3),
    }
    assert [point["analyst"] for point in spent["over_time"]] == ["ann", "ann", "bob"]
    assert 0.8 <= spent["over_time"][-1]["share"] <= 1.0


@pytest.mark.slow
def test_renewed_all_at_once_by_who_holds_the_ledger(server):
    ann = client(server, "ann")
    for _ in range(2):
        ann.run(ASK, labels=["three"])
    shares = ["--share", "ann=3*DP(0.5)", "--share", "reserve=0.5,1e-6"]
    renewal = [
        "ledger",
        "renew",
        server.catalog.ledger,
        "--dataset",
        "words",
        "--delta",
        "1e-5",
        "--reason",
        "May",
    ]
    renewed = CliRunner().invoke(app, [*renewal, *shares])
    assert renewed.exit_code == 0, renewed.output
    ann.run(ASK, labels=["three"])
    assert ann.budget()["mine"]["share"] == pytest.approx(0.8 / 3, rel=1e-3)
    assert client(server, "bob").budget()["mine"]["owner"] == "reserve"
    with Ledger(server.catalog.ledger, read_only=True) as ledger:
        assert ledger.verify()
        assert ledger.spent("words", lifetime=True) == Charge({PureDP(0.4): 3})
    for wrong in ("ann", "ann=", "ann=0.5", "ann=x,y"):
        assert CliRunner().invoke(app, [*renewal, "--share", wrong]).exit_code == 2
    with server.client("eve") as owner:  # no request can renew
        paths = owner.get("/openapi.json").json()["paths"]
    assert not any("renew" in path or "limit" in path or "share" in path for path in paths)


@pytest.mark.parametrize(
    "shares",
    [
        "{}",
        "{ ann = { shares = { bob = { epsilon = 1.0 } } } }",
        '{ ann = { registered = "DP(1)", delta = 1e-9 } }',
        "{ ann = 5 }",
        "5",
    ],
)
def test_shares_with_a_mistake(tmp_path, shares):
    text = f"[datasets.words]\nsource = 'macbeth'\nbudget = {{ delta = 1e-5, shares = {shares} }}\n"
    (tmp_path / "catalog.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match="shares"):
        load_catalog(tmp_path / "catalog.toml")


def test_a_part_beside_shares_is_refused(tmp_path):
    text = SHARED.replace(
        'unit = "word"', 'unit = "word"\nlimits = { ann = { epsilon = 0.1, delta = 0.0 } }'
    )
    (tmp_path / "catalog.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameter, match="limits"):
        load_catalog(tmp_path / "catalog.toml")
    assert CatalogBudget(budget=Budget(1.0, 1e-6)).arguments() == {"budget": Budget(1.0, 1e-6)}
