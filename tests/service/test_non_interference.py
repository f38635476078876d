"""The same requests on neighbouring data: nothing but a paid answer depends on one user's rows."""

from __future__ import annotations

import re

import pytest
from fastapi.routing import APIRoute

from dptopk.errors import InvalidParameter
from dptopk.planning import choose, gauge
from dptopk.service import budget_reports
from dptopk.service.answering import job_of
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.questions import TopK
from dptopk.service.routes import router

from .conftest import Server

CATALOG = """
ledger = "ledger.db"
rates = { free = 1000.0, spending = 1000.0 }

[datasets.counts]
source = "counts-{version}.csv"
labels_per_user = 4
unit = "patient"
budget = { epsilon = 2.0, delta = 1e-5 }
filters = { region = ["eu", "us"], ward = ["a", "b"] }
segments = { region = 1 }

[datasets.events]
source = "events.csv"
user = "who"
item = "what"
labels_per_user = 4
unit = "patient"
budget = { epsilon = 2.0, delta = 1e-5 }
filters = { region = ["eu", "us"] }
segments = { region = 1 }
"""
# One user more: a label in a second region and ward, a label nobody else has, no label, no region,
# one not offered.
MORE = [
    ("flu", "us", "b"),
    ("rare", "eu", "a"),
    ("", "us", "a"),
    ("cold", "", "a"),
    ("cold", "asia", ""),
]
ROWS = {("flu", "eu", "a"): 500, ("cold", "eu", "b"): 400, ("measles", "us", "a"): 300}

TOP = {"k": 2, "epsilon": 0.1, "delta": 1e-7, "counts": "laplace", "method": "threshold"}
ALONE = {"k": 1, "epsilon": 0.1, "delta": 1e-7, "counts": "none"}
LAPLACE = {"mechanism": {"name": "KnownLaplace", "epsilon": 0.1}, "labels": ["flu", "nowhere"]}
PAID = [  # path, body
    ("topk", TOP),
    ("topk", TOP | {"where": {"region": "us"}}),
    ("topk", TOP | {"segments": {"region": []}}),
    ("topk", ALONE),
    ("run", LAPLACE),
]
REFUSED = [
    ("topk", TOP | {"epsilon": 3.0}),
    ("topk", TOP | {"where": {"region": "asia"}}),
    ("topk", TOP | {"segments": {"ward": []}}),
    ("topk", TOP | {"d_bar": 0}),
    ("topk", TOP | {"k": 1001}),
    ("run", LAPLACE | {"ranking": ["flu"]}),
    ("run", LAPLACE | {"mechanism": {"name": "KnownGumbel", "k": 4, "epsilon": 0.1}}),
    (
        "run",
        LAPLACE
        | {"mechanism": {"name": "UnknownGumbel", "k": 2, "d_bar": 3, "epsilon": 0.1, "delta": 0}},
    ),
]
JOBS = [
    f"jobs/{job_of('ann', data, key)}"
    for data in ("counts", "events")
    for key in ("topk-first-0", "nobody-asked")
]


def write(folder, *, more: bool) -> None:
    """The two tables, with one user more or without."""
    counts = {**ROWS, **(dict.fromkeys(MORE, 1) if more else {})}
    lines = [f"{label},{count},{region},{ward}" for (label, region, ward), count in counts.items()]
    (folder / "counts-1.csv").write_text(
        "\n".join(["label,count,region,ward", *lines, ""]), "utf-8"
    )
    events = [
        f"u{label}{n},{label},{region}"
        for (label, region, _), count in ROWS.items()
        for n in range(count)
    ]
    events += [f"one-more,{label},{region}" for label, region, _ in MORE if more]
    (folder / "events.csv").write_text("\n".join(["who,what,region", *events, ""]), "utf-8")


def seen(answer) -> tuple:
    """All that a reply without a paid answer says, but for the time of day."""
    headers = sorted((name, value) for name, value in answer.headers.items() if name != "date")
    return answer.status_code, headers, re.sub(r"\d{4}-\d\d-\d\dT[\d:.]{15}", "TIME", answer.text)


def outline(answer) -> tuple:
    """What a reply with a paid answer may not depend on."""
    return answer.status_code, sorted(answer.headers)


def free(ann, eve) -> dict[str, tuple]:
    """Requests that cost nothing, answered or refused, and what each shows."""
    told = {}
    paths = ["me", "datasets", "nowhere", *JOBS, *(f"{job}/events" for job in JOBS)]
    paths += [
        f"datasets/{data}{rest}"
        for data in ("counts", "events", "other")
        for rest in ("", "/budget")
    ]
    paths += [f"datasets/{data}/spending" for data in ("counts", "events")]
    for path in [*paths, "audit", "metrics"]:
        for name, client in (("ann", ann), ("eve", eve)):
            told[f"{name} GET {path}"] = seen(client.get(f"/v1/{path}"))
    for path in JOBS:
        told[f"DELETE {path}"] = seen(ann.delete(f"/v1/{path}"))
    for data in ("counts", "events"):
        told[f"{data} 404"] = seen(ann.get(f"/v1/datasets/{data}/releases/4711"))
        for body in [body for _, body in PAID + REFUSED]:
            told[f"{data} plan {body}"] = seen(ann.post(f"/v1/datasets/{data}/plan", json=body))
        for number, (path, body) in enumerate(REFUSED):
            key = {"Idempotency-Key": f"refused-{number}"}
            told[f"{data} {path} {body}"] = seen(
                ann.post(f"/v1/datasets/{data}/{path}", json=body, headers=key)
            )
    told["divide"] = seen(
        ann.post("/v1/divide", json={"epsilon": 1.0, "delta": 1e-6, "queries": []})
    )
    return told


def session(folder, *, more: bool) -> tuple[dict[str, tuple], set[str]]:
    """All requests on one of the two data sets, and the routes that they came to."""
    write(folder, more=more)
    with (
        Server(folder, CATALOG).running() as server,
        server.client("ann") as ann,
        server.client("eve") as eve,
    ):
        told = {f"before {request}": shown for request, shown in free(ann, eve).items()}
        for data in ("counts", "events"):
            for number, (path, body) in enumerate(PAID):
                key = {"Idempotency-Key": f"{path}-first-{number}"}
                url = f"/v1/datasets/{data}/{path}"
                answers = [ann.post(url, json=body, headers=key) for _ in range(2)]
                told |= {
                    f"{data} {path} {number} {again}": outline(one)
                    for again, one in enumerate(answers)
                }
                assert [one.status_code for one in answers] == [200, 200], answers[0].text
                other = ann.post(url, json=body | {"where": {"region": "eu"}}, headers=key)
                told[f"{data} {path} {number} other"] = seen(other)
                entry = f"/v1/datasets/{data}/releases/{answers[0].json()['entry']}"
                told[entry] = outline(ann.get(entry))
            told[f"{data} releases"] = outline(ann.get(f"/v1/datasets/{data}/releases"))
        told |= {f"after {request}": shown for request, shown in free(ann, eve).items()}
        told["version"] = seen(eve.post("/v1/datasets/counts/versions", json={"version": "2"}))
        key = {"Idempotency-Key": "no-such-file"}
        told["no file"] = seen(ann.post("/v1/datasets/counts/topk", json=TOP, headers=key))
        assert told["no file"][0] == 503
        requests = eve.get("/v1/metrics").text
    return told, set(re.findall(r'requests_total\{method="(\w+",route="[^"]+)"', requests))


@pytest.mark.slow
def test_the_same_requests_on_neighbouring_data(tmp_path, monkeypatch):
    plans, real = (
        {},
        choose.plan_topk,
    )  # plans are arithmetic: made once for both data sets of both services

    def plan_topk(k, **options):
        key = f"{k} {options}"
        if key not in plans:
            plans[key] = real(k, **options)
        return plans[key]

    left, search = {}, gauge.epsilon_left

    def epsilon_left(account, kind):
        """What is left of equal accounts for equal kinds is equal: searched for once too."""
        key = f"{type(account)} {account.state()} {kind.plain()}"
        if key not in left:
            left[key] = search(account, kind)
        return left[key]

    monkeypatch.setattr(choose, "plan_topk", plan_topk)
    for room in (gauge, budget_reports):
        monkeypatch.setattr(room, "epsilon_left", epsilon_left)
    sessions = []
    for more in (False, True):
        (tmp_path / str(more)).mkdir()
        sessions.append(session(tmp_path / str(more), more=more))
    (fewer, routes), (more, _) = sessions
    assert {request for request in fewer if fewer[request] != more[request]} == set()
    assert fewer.keys() == more.keys()
    declared = {
        f'{method}",route="{one.path}'
        for one in router.routes
        for method in one.methods
        if isinstance(one, APIRoute)
    }
    assert declared <= routes | {'GET",route="/v1/metrics'}


def test_sums_are_asked_for_only_where_they_are_declared(tmp_path):
    """Of a table of counts whose users are in two regions, caps hold in each of them, and their sum
    has none.
    """
    (tmp_path / "catalog.toml").write_text(
        CATALOG.replace("region = 1", "region = 2"), encoding="utf-8"
    )
    catalog = load_catalog(tmp_path / "catalog.toml")
    whole, fixed, each = (
        TopK(**TOP),
        TopK(**TOP, where={"region": "eu"}),
        TopK(**TOP, segments={"region": []}),
    )
    whole.check(catalog.datasets["events"])
    for question in (fixed, each):
        question.check(catalog.datasets["counts"])
    for question in (whole, TopK(**TOP, where={"ward": "a"})):
        with pytest.raises(InvalidParameter, match="name one region"):
            question.check(catalog.datasets["counts"])
