"""Streams over HTTP: a price, one charge, each day drawn once, whoever asks how often."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dptopk import Budget, BudgetExceeded, Client, InvalidParameter
from dptopk.mechanisms.stream_state import Stream
from dptopk.service import streams
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.streams import NewStream
from dptopk.service.tables import Tables
from dptopk.session.budget_backend import LedgerBudget
from dptopk.session.service_connection import ServiceError
from dptopk.session.stream_session import StreamSession, stream_key

from .conftest import CATALOG, Server

STREAMS = CATALOG.replace(
    "[datasets.hidden]",
    """[datasets.sales]
source = "sales-{version}.csv"
labels_per_user = 1
unit = "user-day"
budget = { epsilon = 2.0, delta = 1e-5 }
streams = "streams"
days_per_user = 1

[datasets.hidden]""",
)
ASKED = {"k": 2, "days": 4, "epsilon": 1.0, "delta": 1e-6, "first_day": "2026-11-01"}
TERMS = {"budget": Budget(1.0, 1e-6), "first_day": "2026-11-01"}


def write_day(folder, day, **counts):
    lines = "".join(f"{label},{count}\n" for label, count in counts.items())
    (folder / f"sales-2026-11-0{day}.csv").write_text(f"label,count\n{lines}", encoding="utf-8")


@pytest.fixture
def server(tmp_path):
    write_day(tmp_path, 1, tea=5000, rum=3000)
    write_day(tmp_path, 2, tea=100, ale=9000)
    with Server(tmp_path, STREAMS).running() as running:
        yield running


@pytest.fixture
def ann(server):
    with server.client("ann") as client:
        yield client


@pytest.mark.slow
def test_a_stream_is_planned_for_the_terms_of_its_own_catalog(server):
    """A price asked before the catalog was read again left its noise for streams of the new one."""
    service = server.service
    now = service.catalog.datasets["sales"]
    before = replace(now, days_per_user=2)
    wanted = NewStream(**ASKED, stream="top")
    mechanisms = [wanted.mechanism(service, spec) for spec in (before, now)]
    assert [mechanism.days_per_user for mechanism in mechanisms] == [2, 1]


@pytest.mark.slow
def test_one_charge_and_each_day_once(server, ann):
    """The contract: price, charge, a day asked again and too early, another person."""
    at = "/v1/datasets/sales/streams"
    ledger = server.service.reports.ledger
    price = ann.post(f"{at}/price", json=ASKED).json()
    assert not ledger.spent("sales")
    assert len(price["half_width"]) == len(price["thresholds"]) == 4
    assert price["epsilon"] <= 1.0
    named = ASKED | {"stream": "top"}
    made = ann.post(at, json=named)
    assert made.status_code == 200, made.text
    assert made.json()["charge"] == price["charge"] == str(ledger.spent("sales"))
    stored_bytes = server.tables.value(Tables.usage, "ann")
    assert ann.post(at, json=named).json() == made.json()
    assert server.tables.value(Tables.usage, "ann") == stored_bytes
    assert server.access.uncharged_bytes("ann") > 0
    assert ann.post(at, json=named | {"k": 3}).status_code == 422
    assert ann.get(at).json() == [made.json()]
    assert oct((server.folder / "streams").stat().st_mode)[-3:] == "700"

    first = ann.post(f"{at}/top/days", json={"day": "2026-11-01"}).json()
    assert {row["label"] for row in first["release"]["rows"]} == {"tea", "rum"}
    write_day(server.folder, 1, other=99999)
    server.service._serve(server.catalog)  # the data are read anew
    assert ann.post(f"{at}/top/days", json={"day": "1"}).json() == first
    assert ann.post(f"{at}/top/days", json={"day": "3"}).status_code == 422
    second = ann.post(f"{at}/top/days", json={"day": "2"}).json()
    assert second["release"]["rows"][0]["label"] == "ale"
    missing = ann.post(f"{at}/top/days", json={"day": "3"})
    assert (missing.status_code, missing.json()["error"]) == (503, "data_unreadable")
    assert ann.post(f"{at}/top/days", json={"day": "5"}).status_code == 404
    page = ann.get(f"{at}/top/days").json()
    assert [(one["day"], one["entry"]) for one in page["answers"]] == [
        (1, first["entry"]),
        (2, second["entry"]),
    ]
    assert page["half_width"] == price["half_width"]
    assert str(ledger.spent("sales")) == price["charge"]
    assert ledger.verify()

    with server.client("bob") as bob:
        assert bob.get(at).json() == []
        for asked in (bob.get(f"{at}/top/days"), bob.post(f"{at}/top/days", json={"day": "1"})):
            assert asked.status_code == 404
    assert ann.get("/v1/datasets/sales/releases").status_code == 200
    assert [one["text"] for one in ann.get("/v1/datasets/sales/budget").json()["fits"]] == [
        "stream 'top'"
    ]
    audit = server.client("eve").get("/v1/audit").json()
    assert {"stream", "stream day"} <= {note["action"] for note in audit}


@pytest.mark.slow
def test_a_folder_that_cannot_be_used_is_said_in_words(server, ann, monkeypatch):
    """It was an internal error: a full or read-only disk, or a folder without permissions."""
    at = "/v1/datasets/sales/streams"
    (server.folder / "streams").write_text("a file", encoding="utf-8")
    refused = ann.post(at, json=ASKED | {"stream": "top"})
    assert (refused.status_code, refused.json()["error"]) == (503, "data_unreadable")

    def unreadable(*_):
        raise PermissionError

    monkeypatch.setattr(Path, "glob", unreadable)
    assert ann.get(at).status_code == 503


@pytest.mark.slow
def test_what_is_refused_costs_nothing(server, ann):
    at = "/v1/datasets/sales/streams"
    for change, status in (
        ({"epsilon": 50.0}, 409),
        ({"stream": "../top"}, 422),
        ({"stream": ""}, 422),
        ({"days": 401}, 422),
        ({"delta": 0}, 422),
        ({"first_day": "soon"}, 422),
        ({"first_day": None, "k": 0}, 422),
    ):
        answer = ann.post(at, json=ASKED | {"stream": "top"} | change)
        assert answer.status_code == status, (change, answer.text)
    assert ann.post("/v1/datasets/words/streams", json=ASKED | {"stream": "top"}).status_code == 422
    assert ann.get("/v1/datasets/words/streams").json() == []
    assert ann.get(at).json() == []
    assert not server.service.reports.ledger.spent("sales")
    token = server.access.create("ann", "reader")
    ann.headers["Authorization"] = f"Bearer {token}"
    assert ann.post(at, json=ASKED | {"stream": "top"}).status_code == 403
    assert ann.post(f"{at}/top/days", json={"day": "1"}).status_code == 403


@pytest.mark.slow
def test_a_client_s_stream(server, monkeypatch):
    client = Client(server.url, server.tokens["ann"], dataset="sales")
    price = client.stream_price(2, 4, **TERMS)
    stream = client.stream("top", 2, 4, **TERMS)
    first = stream.answer("2026-11-01")
    assert stream.answer(1).to_dict() == first.to_dict()
    again = Client(server.url, server.tokens["ann"], dataset="sales").stream("top", 2, 4, **TERMS)
    second = again.answer(2)
    assert {day: one.to_dict() for day, one in stream.answered().items()} == {
        1: first.to_dict(),
        2: second.to_dict(),
    }
    assert stream.half_widths() == price["half_width"]
    assert [one["stream"] for one in client.streams()] == ["top"]
    with pytest.raises(InvalidParameter, match="next day to be answered is day 3"):
        stream.answer(4)
    with pytest.raises(InvalidParameter, match="other terms"):
        client.stream("top", 3, 4, **TERMS)
    with pytest.raises(BudgetExceeded):
        client.stream("dear", 2, 4, budget=Budget(30.0, 1e-6))
    now = [0.0]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.append(now.pop() + seconds)
    )
    with monkeypatch.context() as patched, pytest.raises(ServiceError, match="cannot be read now"):
        patched.setattr(
            "dptopk.session.service_connection.time", clock
        )  # it asks again without waiting
        stream.answer(3)
    write_day(server.folder, 3)  # a day without data
    assert stream.answer(3).labels[0] == "ale"


def test_a_catalog_of_streams(tmp_path):
    """A source that is no day's, a part of the rows, or segments cannot have streams."""
    for old, new in (
        ("sales-{version}.csv", "sales.csv"),
        ("days_per_user = 1", "days_per_user = 0"),
    ):
        (tmp_path / "catalog.toml").write_text(STREAMS.replace(old, new), encoding="utf-8")
        with pytest.raises(InvalidParameter, match=r"datasets\.sales"):
            load_catalog(tmp_path / "catalog.toml")


@pytest.mark.slow
def test_a_day_of_a_charged_stream_is_answered_whatever_else_was_stored(server, ann):
    """An analyst whose answers took all the room lost the days of a stream that was paid for."""
    url = "/v1/datasets/sales/streams"
    assert ann.post(url, json=ASKED | {"stream": "top"}).status_code == 200
    server.service.catalog = replace(server.service.catalog, storage=0)
    assert ann.post(url, json=ASKED | {"stream": "next"}).status_code == 429
    assert ann.post(f"{url}/top/days", json={"day": "1"}).status_code == 200


@pytest.mark.slow
def test_a_stream_is_not_answered_by_another_question(server, ann):
    """A top k under the key of a stream, or of its day, was given as the stream or the day."""
    url = "/v1/datasets/sales"
    question = {"k": 1, "epsilon": 0.1, "delta": 1e-7}
    (server.folder / "sales-1.csv").write_text("label,count\ntea,50\n", encoding="utf-8")
    assert ann.post(f"{url}/streams", json=ASKED | {"stream": "top"}).status_code == 200
    for key in (stream_key("other"), stream_key("top", 1)):
        headers = {"Idempotency-Key": key}
        assert ann.post(f"{url}/topk", json=question, headers=headers).status_code == 200
    refused = [
        ann.post(f"{url}/streams", json=ASKED | {"stream": "other"}),
        ann.post(f"{url}/streams/top/days", json={"day": "1"}),
    ]
    assert [(answer.status_code, answer.json()["error"]) for answer in refused] == [
        (409, "key_used")
    ] * 2
    assert ann.get(f"{url}/streams/top/days").json()["answers"] == []


@pytest.fixture
def on_schedule(tmp_path, monkeypatch):
    """A service with a schedule and a charged stream, and what it does for a day: it looks into
    the file, draws noise, or waits while the ledger has these answers of days.
    """
    seen = []

    def look(_: float) -> None:
        history = running.service.reports.ledger.history("sales")
        seen.append(("waits", sum("token" in spend.mechanism for spend in history)))

    release = Stream.release

    def draw(self, data):
        seen.append(("draws", len(data)))
        return release(self, data)

    open_stream = StreamSession.open

    def look_into_file(*args):
        seen.append(("looks", 0))
        return open_stream(*args)

    monkeypatch.setattr(Stream, "release", draw)
    monkeypatch.setattr(StreamSession, "open", look_into_file)
    write_day(tmp_path, 1, tea=5000, rum=3000)
    text = STREAMS.replace('ledger = "ledger.db"', 'ledger = "ledger.db"\nanswers_every = 5.0')
    running = Server(tmp_path, text, wall=lambda: 1003.25, sleep=look)
    with running.running(), running.client("ann") as ann:
        url = "/v1/datasets/sales/streams"
        assert ann.post(url, json=ASKED | {"stream": "top"}).status_code == 200
        seen.clear()
        yield SimpleNamespace(ann=ann, days=f"{url}/top/days", seen=seen)


@pytest.mark.slow
def test_a_day_is_recorded_and_answered_at_a_whole_multiple(on_schedule):
    """Noise was drawn after the wait, so that the answer showed how many private labels there
    were; and a request for the next day showed whether this one had been drawn.
    """
    assert on_schedule.ann.post(on_schedule.days, json={"day": "1"}).status_code == 200
    assert on_schedule.seen == [("waits", 0), ("looks", 0), ("draws", 2), ("waits", 0)]


@pytest.mark.slow
def test_a_day_that_another_process_has_drawn_is_recorded_at_a_whole_multiple(
    on_schedule, monkeypatch
):
    """A request to another worker would find the day in the file, and show when it was drawn."""
    with monkeypatch.context() as patched:
        patched.setattr(LedgerBudget, "charge", None)  # the other process has gone no further yet
        assert on_schedule.ann.post(on_schedule.days, json={"day": "1"}).status_code == 500
    on_schedule.seen.clear()
    assert on_schedule.ann.post(on_schedule.days, json={"day": "1"}).status_code == 200
    assert on_schedule.seen == [("waits", 0), ("looks", 0), ("waits", 0)]


@pytest.mark.slow
def test_several_workers_draw_a_day_once(server, ann):
    """Two workers on one ledger and folder, four requests at a time: one charge, and one answer of
    each day.
    """
    at = "/v1/datasets/sales/streams"
    with Server(server.folder, STREAMS).running() as other, ThreadPoolExecutor(4) as pool:
        clients = [ann, other.client(None), ann, other.client(None)]
        for client in clients:
            client.headers["Authorization"] = ann.headers["Authorization"]
        made = list(
            pool.map(lambda one: one.post(at, json=ASKED | {"stream": "top"}).json(), clients)
        )
        days = [list(pool.map(lambda one, day=day: one.post(f"{at}/top/days", json={"day": day}).json(), clients))
                for day in "12"]  # fmt: skip
        again = clients[1].get(f"{at}/top/days").json()["answers"]
    for answers in (made, *days):
        assert all(one == answers[0] for one in answers), answers
    assert again == [{"day": day, **answers[0]} for day, answers in enumerate(days, 1)]
    assert str(server.service.reports.ledger.spent("sales")) == made[0]["charge"]


@pytest.mark.slow
def test_a_stream_is_a_job_that_cannot_be_called_off(server, ann, monkeypatch):
    """Its name would be used up: while it is planned and charged the job can be seen, and a refusal
    says too late.
    """
    at, go, plan = "/v1/datasets/sales/streams", threading.Event(), streams.plan_continual
    monkeypatch.setattr(
        streams, "plan_continual", lambda *args, **options: go.wait(120) and plan(*args, **options)
    )
    begun = ann.post(f"{at}?wait=0", json=ASKED | {"stream": "top"})
    job = begun.json()["job"]
    assert begun.status_code == 202
    assert ann.get(f"/v1/jobs/{job}").json()["stage"] == "charging"
    assert ann.delete(f"/v1/jobs/{job}").status_code == 409
    go.set()
    assert ann.post(at, json=ASKED | {"stream": "top"}).json()["stream"] == "top"
    assert ann.get(f"/v1/jobs/{job}").json()["stage"] == "done"
