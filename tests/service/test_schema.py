"""The service under requests that its own description allows and does not: no 500, nothing of the
data in an answer.
"""

from __future__ import annotations

import json
import os

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.config import SchemathesisConfig

from .conftest import ASKED, WORDS, Server

MORE = int(os.environ.get("DPTOPK_EXAMPLES", "1"))  # `make service-torture` asks for more
EXAMPLES, SLOW_EXAMPLES = 3 * MORE, MORE  # the second of operations that compute
SECRETS = [str(count) for _, count in WORDS] + [word for word, _ in WORDS if len(word) > 5]
SLOW = ("/plan", "/topk", "/run", "/divide", "/price", "/streams", "/days")
SENT = ("method", "url", "headers", "params", "json", "data", "content")
FEW = settings(
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize=MORE == 1,
    database=None,
)


@pytest.mark.slow
def test_requests_out_of_the_description(server):
    """Each operation under generated requests, for an administrator, who may do everything."""
    with server.client("eve") as eve:
        schema = schemathesis.openapi.from_dict(
            eve.get("/openapi.json").json(), config=SchemathesisConfig()
        )
        statuses = set()
        for result in schema.get_all_operations():
            statuses |= fuzz(result.ok(), server.url, eve)
        assert {200, 422} <= statuses


def fuzz(operation, url, client) -> set[int]:
    """Send requests to one operation; the statuses that came back."""
    statuses = set()
    allowed = {*map(int, operation.definition.raw["responses"]), 400, 405}

    @given(case=operation.as_strategy())
    @settings(FEW, max_examples=SLOW_EXAMPLES if operation.path.endswith(SLOW) else EXAMPLES)
    def send(case):
        if case.path_parameters and "dataset" in case.path_parameters:
            case.path_parameters["dataset"] = "words"
        request = case.as_transport_kwargs(base_url=url)
        request["headers"] = {
            **(request.get("headers") or {}),
            "Authorization": client.headers["Authorization"],
        }
        try:
            answer = client.request(
                **{name: value for name, value in request.items() if name in SENT}
            )
        except (httpx.InvalidURL, UnicodeEncodeError, httpx.LocalProtocolError):
            return  # what HTTP cannot carry
        statuses.add(answer.status_code)
        assert answer.status_code in allowed, (operation.label, answer.status_code, answer.text)
        if answer.status_code == 503:
            assert (
                answer.json()["error"] == "data_unreadable"
            )  # the version that a request made has no file
        if answer.status_code == 200 and answer.request.url.path.endswith(
            ("/topk", "/run", "/releases")
        ):
            assert all(
                row.keys() <= {"rank", "label", "count", "measured"} for row in _rows(answer.json())
            )
        else:
            assert not any(secret in answer.text for secret in SECRETS)

    send()
    return statuses


def _rows(answer):
    answers = answer if isinstance(answer, list) else [answer]
    parts = [part for one in answers if "job" not in one for part in one.get("segments", [one])]
    return [row for part in parts for row in part["release"]["rows"]]


@pytest.mark.slow
def test_bodies_that_are_nonsense(server):
    with server.client("ann") as ann:
        bodies = [
            b"",
            b"\xff\xfe",
            b"[]",
            b"null",
            b"{",
            b'{"k": 1e400}',
            b'{"k": 3, "epsilon": NaN}',
            b'{"k": "\\ud800"}',
        ]
        bodies += [
            json.dumps(ASKED | change).encode()
            for change in (
                {"k": 0},
                {"k": 2**70},
                {"k": 2.5},
                {"k": True},
                {"epsilon": -1},
                {"epsilon": 1e-300},
                {"delta": 1},
                {"delta": -0.0},
                {"epsilon": None},
                {"accuracy": 5.0},
                {"counts": "secret"},
                {"where": {"part": "\ud800"}},
                {"where": {"word": "a"}},
                {"d_bar": 0},
                {"more": 1},
                {"method": None},
            )
        ]
        for body in bodies:
            for path in ("plan", "topk"):
                headers = {"Content-Type": "application/json", "Idempotency-Key": "nonsense-1"}
                answer = ann.post(f"/v1/datasets/words/{path}", content=body, headers=headers)
                assert answer.status_code == 422, (body, answer.text)
                assert set(answer.json()) == {"error", "message"}
        assert server.service.reports.ledger.history("words") == []


@pytest.mark.slow
def test_mechanisms_and_labels_that_are_nonsense(server):
    """Parameters of a mechanism are taken as they come, by any name, and so are labels: none of
    them is a 500.
    """
    deep = '{"name":"CountMLE","noise":' * 700 + "1" + "}" * 700
    bodies = [
        f'{{"mechanism":{mechanism},"labels":[{label}]}}'
        for mechanism, label in (
            ('{"name":"JointTopK","k":"x"}', "1"),
            ('{"name":"UnknownLaplace","d_bar":1e400}', "1"),
            ('{"name":"KnownLaplace","epsilon":NaN}', "1"),
            ('{"name":"KnownLaplace","epsilon":"\\ud800"}', "1"),
            ('{"name":"SparseGaussian","sigma":1e-300,"delta":1e-9}', "1"),
            (deep, "1"),
            ('{"name":"KnownLaplace","epsilon":0.1}', '{"bytes":5}'),
            ('{"name":"KnownLaplace","epsilon":0.1}', '{"tuple":[' * 300 + "1" + "]}" * 300),
        )
    ]
    bodies += [one.partition(',"labels"')[0] + "}" for one in bodies[:6]]
    with server.client("ann") as ann, server.client("eve") as eve:
        for number, body in enumerate(bodies):
            headers = {"Content-Type": "application/json", "Idempotency-Key": f"nonsense-{number}"}
            statuses = [
                ann.post(f"/v1/datasets/words/{path}", content=body, headers=headers).status_code
                for path in ("plan", "run")
            ]
            assert statuses in ([422, 422], [200, 200]), (body[:100], statuses)
        log = eve.get("/v1/audit?limit=1000")
        assert log.status_code == 200
        assert all(
            line["detail"]["question"]["mechanism"].get("epsilon", 0) is not None
            for line in log.json()
        )


@pytest.mark.slow
def test_what_nobody_expected_is_a_plain_500(tmp_path, monkeypatch, caplog):
    from dptopk.service.budget_reports import BudgetReports

    def broken(self, dataset, analyst):
        raise KeyError(WORDS[0])

    monkeypatch.setattr(BudgetReports, "balance", broken)
    with Server(tmp_path).running() as server, server.client("ann") as ann:
        answer = ann.get("/v1/datasets/words/budget")
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "internal", "message": "internal error"},
    )
    assert "KeyError" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)
