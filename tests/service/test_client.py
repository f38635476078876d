"""Client: the calls of a Session, over HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from dptopk import Budget, BudgetExceeded, Client, InvalidParameter, Ledger, LedgerError, Session
from dptopk._internal.formatting import format_lower
from dptopk.cli.commands import app
from dptopk.datasets import macbeth
from dptopk.planning.gauge import epsilon_left, kind_of
from dptopk.session.service_connection import ServiceConnection, ServiceError

PART = {"budget": Budget(0.3, 1e-7), "method": "threshold", "counts": "gaussian"}


@pytest.fixture
def client(server):
    return Client(server.url, server.tokens["ann"], dataset="words")


@pytest.mark.slow
def test_the_calls_of_a_session(server, client):
    assert list(client.datasets()["name"]) == ["words", "hidden"]
    assert client.schema()["unit"] == "word"
    plan = client.plan(3, **PART)
    before = client.remaining()
    release = client.top_k(3, **PART, where={"part": "two"}, key="named-here")
    assert str(release.charge) == plan["charge"]
    assert {"low", "high"} <= set(release.intervals().columns)
    assert client.remaining() != before
    assert (
        client.top_k(3, **PART, where={"part": "two"}, key="named-here").to_dict()
        == release.to_dict()
    )
    assert [one.to_dict() for one in client.releases()] == [release.to_dict()]
    assert list(client.report()["rows"]) == [len(release)] * 2
    assert client.budget()["fits"][0]["fits"] > 0


@pytest.mark.slow
def test_every_place_shows_one_number_for_one_file(server, client):
    """Left, spent and share: HTTP, client, session, the log itself, the command line."""
    client.top_k(3, **PART)
    said = client.remaining()
    total = client.budget()["total"]
    with Ledger(server.catalog.ledger, read_only=True) as ledger:
        session = Session(macbeth(), ledger=ledger, dataset="words", analyst="ann").remaining()
        state = ledger.state("words")
        kind = kind_of(state.last_question_kind, state.account, state.sensitivity)
        log = (
            epsilon_left(state.account, kind),
            ledger.summary("words").epsilon_spent,
            ledger.summary("words").share,
        )
    path = str(server.catalog.ledger)
    table = CliRunner().invoke(app, ["ledger", "show", path, "--dataset", "words"]).output
    shown = " ".join(table.split())  # lines end where the terminal does
    as_json = ("--dataset", "words", "--format", "json")
    (written,) = json.loads(CliRunner().invoke(app, ["ledger", "show", path, *as_json]).output)
    pairs = [
        (said.epsilon_left, said.epsilon_spent, said.share_used),
        (total["epsilon_left"], total["epsilon_spent"], total["share"]),
        (session.epsilon_left, session.epsilon_spent, session.share_used),
        (written["epsilon_left"], written["epsilon_spent"], written["share_used"]),
    ]
    assert pairs == [log] * 4
    assert f"ε about {log[1]:.4g} of 4" in shown
    assert f"{log[2]:.1%} of the budget is used" in shown
    assert f"ε up to {format_lower(log[0], 4)} for the top 3 at delta 1e-07" in shown


@pytest.mark.slow
def test_by_accuracy(client):
    plan = client.plan(2, accuracy=30.0, delta=1e-7, method="threshold", counts="gaussian")
    assert plan["half_width"] <= 30
    release = client.top_k(2, accuracy=30.0, delta=1e-7, method="threshold", counts="gaussian")
    assert str(release.charge) == plan["charge"]


@pytest.mark.slow
def test_labels_alone_where_no_counts_are_asked_for(client):
    alone = {"budget": Budget(0.3, 1e-7), "method": "threshold", "counts": None}
    plan = client.plan(2, **alone)
    release = client.top_k(2, **alone, where={"part": "two"})
    assert release.counts is None
    assert str(release.charge) == plan["charge"]
    assert client.plan(2, accuracy=30.0, delta=1e-7, method="threshold")["half_width"] <= 30


@pytest.mark.slow
def test_refusals_are_the_library_s(server, client):
    with pytest.raises(BudgetExceeded) as caught:
        client.top_k(3, **PART | {"budget": Budget(90.0, 1e-7)})
    assert caught.value.requested.costs
    with pytest.raises(InvalidParameter, match="part"):
        client.top_k(3, **PART, where={"part": "nowhere"})
    with pytest.raises(InvalidParameter, match="exactly one"):
        client.top_k(3)
    with pytest.raises(ServiceError) as refused:
        Client(server.url, "dptopk_nobody", dataset="words").schema()
    assert (refused.value.status, refused.value.code) == (401, "token_needed")
    with pytest.raises(InvalidParameter, match="name one of words, hidden"):
        Client(server.url, server.tokens["ann"]).schema()
    assert Client(server.url, server.tokens["bob"]).schema()["name"] == "words"
    with pytest.raises(InvalidParameter, match="http"):
        Client("file:///etc", "token")
    for name, wrong in (
        ("token", "of-a-file\n"),
        ("token", "\u00fc"),
        ("key", ""),
        ("key", "\u00fc"),
    ):
        with pytest.raises(InvalidParameter, match=name):
            Client(server.url, wrong if name == "token" else "t").top_k(3, **PART, key=wrong)
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client("http://127.0.0.1:9", "token", dataset="words", patience=0.2).top_k(3, **PART)


def test_a_service_without_a_data_set_is_no_list_of_none(monkeypatch):
    monkeypatch.setattr(ServiceConnection, "call", lambda *_: [])
    with pytest.raises(InvalidParameter, match="the service has none that this token may ask"):
        Client("http://127.0.0.1:9", "token").schema()


@pytest.mark.slow
def test_a_token_follows_no_redirect(server):
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{server.url}{self.path}")
            self.end_headers()

        def log_message(self, *_):
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        client = Client(
            f"http://127.0.0.1:{elsewhere.server_port}", server.tokens["ann"], dataset="words"
        )
        with pytest.raises(ServiceError) as refused:
            client.schema()
        elsewhere.shutdown()
    assert refused.value.status == 302


@pytest.mark.parametrize("url", ["file:///etc", "http://[", ""])
def test_an_address_that_is_none_is_refused_by_name(url):
    with pytest.raises(InvalidParameter, match="url"):
        Client(url, "token")


@pytest.mark.parametrize("answer", [{"job": "j", "stage": "reading"}, {}])
def test_no_answer_is_waited_for_without_end(monkeypatch, answer):
    """A question that never ended, and a proxy that answers "{}", were asked about for ever."""
    asked = []

    def call(self, method, path, body=None, headers=None):
        asked.append(headers["Idempotency-Key"])
        assert len(asked) < 50
        return answer

    monkeypatch.setattr(ServiceConnection, "call", call)
    client = Client("http://a", "token", dataset="words", patience=0.3, longest=0.3)
    with pytest.raises(ServiceError) as given_up:
        client.top_k(3, **PART)
    assert asked[0] in given_up.value.__notes__[0]
    with pytest.raises(ServiceError):
        client.top_k(3, **PART)
    assert len(set(asked)) == 1


def test_a_data_set_that_was_not_named_is_looked_up_for_as_long_as_an_answer(monkeypatch):
    """The first question to a service that was away for a moment was given up at once."""
    asked = []
    away = ServiceError(0, "unreachable", "")
    answers = [away, [{"name": "words"}], away, {"entry": 7}]

    def call(self, method, path, body=None, headers=None):
        asked.append(path.partition("?")[0])
        answer = answers[len(asked) - 1]
        if isinstance(answer, ServiceError):
            raise answer
        return answer

    monkeypatch.setattr(ServiceConnection, "call", call)
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr("dptopk.session.service_connection.time", clock)
    Client("http://a", "token").stream("s", 2, 4, budget=Budget(1.0, 1e-6))
    question = "/datasets/words/streams"
    assert asked == ["/datasets"] * 2 + [question] * 2


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_that_breaks_off_is_asked_for_again(monkeypatch, status):
    """A service that was killed while it sent its answer was an error of http.client."""
    keys = []
    answer = b'{"entry": 1, "release": 2}'

    class Killed(BaseHTTPRequestHandler):
        def do_POST(self):
            keys.append(self.headers["Idempotency-Key"])
            whole = len(keys) > 2
            self.send_response(200 if whole else status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer if whole else answer[: 7 * len(keys)])

        def log_message(self, *_):
            """Nothing."""

    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    monkeypatch.setattr("dptopk.session.service_connection.time", clock)
    with HTTPServer(("127.0.0.1", 0), Killed) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        client = Client(f"http://127.0.0.1:{service.server_port}", "token", dataset="words")
        assert client._spend("/topk", {}, None) == json.loads(answer)
        service.shutdown()
    assert len(keys) == 3
    assert len(set(keys)) == 1


@pytest.mark.slow
def test_a_question_is_paid_once_however_its_asker_fails(server, client, monkeypatch):
    """A failure after which a charge may be there is tried again, and given up keeps its key for
    the same question.
    """
    real, keys, failures = ServiceConnection.call, [], []

    def call(self, method, path, body=None, headers=None):
        answer = real(self, method, path, body, headers)
        if headers:
            keys.append(headers["Idempotency-Key"])
            if failures:  # the service has charged and answered, and nobody heard it
                raise failures.pop()
        return answer

    monkeypatch.setattr(ServiceConnection, "call", call)
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    monkeypatch.setattr("dptopk.session.service_connection.time", clock)
    lost = [ServiceError(status, "lost", "lost") for status in (0, 429, 500, 502, 503, 504)]
    failures += [*lost, LedgerError("lost")]
    first = client.top_k(3, **PART)
    assert len(keys) == 8
    assert len(set(keys)) == 1
    keys.clear()
    for failure in (ServiceError(401, "token_needed", "Token needed"), KeyboardInterrupt()):
        failures.append(failure)
        with pytest.raises(type(failure)):
            client.top_k(3, **PART)
    second = client.top_k(3, **PART)
    assert len(set(keys)) == 1
    failures += [ServiceError(503, "lost", "lost") for _ in range(30)]
    with pytest.raises(ServiceError) as given_up:
        client.top_k(3, **PART)
    assert keys[-1] in given_up.value.__notes__[0]
    failures[:] = [BudgetExceeded(first.charge, "nothing")]
    with pytest.raises(BudgetExceeded):
        client.top_k(3, **PART)
    assert keys[-1] == keys[-2]
    client.top_k(3, **PART)
    assert keys[-1] != keys[-2]  # the refusal was the end of that key
    assert first.to_dict() != second.to_dict()
    assert len(server.service.reports.ledger.history("words")) == 4
