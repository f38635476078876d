"""Long work: progress, calling off before the charge, answers on a schedule."""

from __future__ import annotations

import gc
import itertools
import json
import threading

import pytest

from dptopk.service import data
from dptopk.service.answering import job_of
from dptopk.service.jobs import KEPT_SECONDS, LOST_SECONDS, Cancelled, Jobs
from dptopk.service.limits import Rates
from dptopk.service.metrics import Metrics
from dptopk.service.tables import Tables

from .conftest import ASKED, CATALOG, Server


class Slow:
    """A reader of data that waits at a gate between two steps of progress."""

    def __init__(self, monkeypatch) -> None:
        self.gate, self.begun, self.reads = threading.Event(), threading.Event(), 0
        self.real = data._read_source
        monkeypatch.setattr(data, "_read_source", self.read)

    def read(self, spec, version, where, asked, progress):
        self.reads += 1
        self.begun.set()
        progress(1, 3)
        assert self.gate.wait(120)
        progress(3, 3)
        return self.real(spec, version, where, asked, progress)


@pytest.mark.slow
def test_progress_then_the_answer_and_the_data_is_read_once(server, monkeypatch):
    slow = Slow(monkeypatch)
    with server.client("ann") as ann, server.client("bob") as bob:
        key = {"Idempotency-Key": "slow-question"}
        first = ann.post("/v1/datasets/words/topk?wait=0", json=ASKED, headers=key)
        assert first.status_code == 202
        job = first.headers["Location"]
        assert slow.begun.wait(120)
        assert ann.get(job).json()["stage"] == "reading"
        assert bob.get(job).status_code == 404
        with ann.stream("GET", f"{job}/events") as events:
            lines = (line for line in events.iter_lines() if line.startswith("data: "))
            assert json.loads(next(lines)[6:])["stage"] == "reading"
            slow.gate.set()
            assert json.loads(list(lines)[-1][6:])["stage"] == "done"
        assert ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code == 200
        assert bob.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code == 200
        assert ann.delete(job).status_code == 409
    assert slow.reads == 1
    assert len(server.service.reports.ledger.history("words")) == 2


@pytest.mark.slow
def test_called_off_before_the_charge(server, monkeypatch):
    slow = Slow(monkeypatch)
    with server.client("ann") as ann:
        key = {"Idempotency-Key": "called-off"}
        job = ann.post("/v1/datasets/words/topk?wait=0", json=ASKED, headers=key).json()["job"]
        assert slow.begun.wait(120)
        assert ann.delete(f"/v1/jobs/{job}").json()["stage"] == "cancelled"
        slow.gate.set()
        with ann.stream("GET", f"/v1/jobs/{job}/events") as events:
            assert "cancelled" in list(events.iter_lines())[1]
        again = ann.post(
            "/v1/datasets/words/topk", json=ASKED, headers=key
        )  # a key's answer is the answer
        assert (again.status_code, again.json()["error"]) == (409, "cancelled")
        assert server.service.reports.ledger.history("words") == []


@pytest.mark.slow
def test_an_error_after_the_request_was_answered_is_told_by_the_job_alone(
    server, monkeypatch, caplog
):
    """asyncio wrote a traceback of it, which may quote what was asked: "never retrieved"."""
    slow = Slow(monkeypatch)
    with server.client("ann") as ann:
        key = {"Idempotency-Key": "refused-later"}
        asked = ASKED | {"epsilon": 90.0}
        job = ann.post("/v1/datasets/words/topk?wait=0", json=asked, headers=key).json()["job"]
        assert slow.begun.wait(120)
        slow.gate.set()
        with ann.stream("GET", f"/v1/jobs/{job}/events") as events:
            last = [line for line in events.iter_lines() if line.startswith("data: ")][-1]
    assert json.loads(last[6:])["error"] == "BudgetExceeded"
    gc.collect()
    assert logged_errors(server, caplog) == []


def logged_errors(server, caplog) -> list[str]:
    """What was logged until the event loop has answered once more."""
    with server.client("ann") as ann:
        assert ann.get("/v1/me").status_code == 200
    gc.collect()
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


@pytest.fixture
def clock():
    return [1000.0]


@pytest.fixture
def two(clock, tmp_path):
    """The jobs of two workers."""
    tables = Tables(str(tmp_path / "access.db"))
    yield [Jobs(tables, clock=lambda: clock[0]) for _ in range(2)]
    tables.close()


def called_off(act, *arguments, **options) -> bool:
    try:
        act(*arguments, **options)
    except Cancelled:
        return True
    return False


ACTS = ((0, "charge"), (1, "charge"), (0, "failed"), (1, "done"), (1, "again"), (0, "cancel"))


@pytest.mark.slow
def test_no_order_of_two_workers_says_cancelled_of_what_may_be_charged(two):
    """Every order of three acts of two workers that are at one key, and of a cancel: once a worker
    may charge, none says that the question was called off, and once it was called off none charges.
    """
    for number, order in enumerate(itertools.product(ACTS, repeat=3)):
        job, off, charged = f"job-{number}", False, False
        for jobs in two:
            jobs.start(job, "ann", "words")
        for worker, act in order:
            jobs = two[worker]
            if act == "cancel":
                off = jobs.cancel(job) or off
            elif act == "again":
                assert called_off(jobs.start, job, "ann", "words") == off
            elif act == "charge":
                refused = called_off(jobs.begin_charging, job)
                assert refused == off
                charged = charged or not refused
            else:
                jobs._tables.change(jobs.end_statement(job, act))
            assert not (off and charged), order
            assert (jobs.find(job).stage == "cancelled") == off


def test_a_clock_that_was_set_back_hides_no_progress(two, clock):
    """Nothing was written until the clock had come so far again."""
    first, _ = two
    first.start("job", "ann", "words")
    first.progress("job", 1, 9)
    clock[0] -= 1000.0
    first.progress("job", 2, 9)
    assert first.find("job").done == 2


def test_jobs_of_killed_workers_end(two, clock):
    one, other = two
    for job in ("reading", "charging"):
        one.start(job, "ann", "words")
    one.begin_charging("charging")
    assert one.count_running() == 2
    clock[0] += LOST_SECONDS
    other.beat(["reading"])
    clock[0] += 1.0
    assert one.count_running() == 1
    assert other.find("reading").stage == "reading"
    lost = other.find("charging")
    assert (lost.stage, lost.code, lost.has_ended) == ("failed", "interrupted", True)
    clock[0] += LOST_SECONDS
    assert other.cancel("reading")  # nobody can charge it any more
    assert called_off(one.begin_charging, "reading")
    assert not other.cancel("charging")  # its worker may only be slow
    other.start("charging", "ann", "words")
    assert other.find("charging").stage == "charging"
    other._tables.change(other.end_statement("charging", "done"))
    clock[0] += 1.0 + KEPT_SECONDS  # what was called off stays so
    other.start("next", "ann", "words")
    assert other.find("charging") is None
    assert called_off(other.start, "reading", "ann", "words")


def test_what_the_ledger_holds_cannot_be_called_off(two):
    two[0].start("job", "ann", "words", charged=True)
    assert not two[1].cancel("job")
    two[0].start("called-off-once", "ann", "words")
    assert two[0].cancel("called-off-once")
    two[1].start("called-off-once", "ann", "words", charged=True)  # the ledger is right
    assert two[1].find("called-off-once").stage == "charging"


def test_a_question_that_cannot_be_called_off_takes_no_key_of_one_that_was(two):
    two[0].start("job", "ann", "words", cancellable=False)
    assert not two[1].cancel("job")
    two[0].start("job", "ann", "words", cancellable=False)
    assert two[1].find("job").stage == "charging"
    two[0].start("called-off", "ann", "words")
    assert two[0].cancel("called-off")
    assert called_off(two[1].start, "called-off", "ann", "words", cancellable=False)
    assert two[1].find("called-off").stage == "cancelled"


@pytest.mark.slow
def test_a_key_in_use_is_of_one_question(server, monkeypatch):
    """Another question under a key that is being answered is refused at once, and does not get the
    first one's answer.

    Nor does it bring back a first one that was called off.
    """
    slow = Slow(monkeypatch)
    other = ASKED | {"k": 2}
    with server.client("ann") as ann:
        key = {"Idempotency-Key": "two-bodies"}
        job = ann.post("/v1/datasets/words/topk?wait=0", json=ASKED, headers=key).json()["job"]
        assert slow.begun.wait(120)
        refused = ann.post("/v1/datasets/words/topk?wait=0", json=other, headers=key)
        assert (refused.status_code, refused.json()["error"]) == (409, "key_used")
        assert ann.delete(f"/v1/jobs/{job}").status_code == 200
        assert (
            ann.post("/v1/datasets/words/topk?wait=0", json=other, headers=key).status_code == 409
        )
        slow.gate.set()
        with ann.stream("GET", f"/v1/jobs/{job}/events") as events:
            assert "cancelled" in list(events.iter_lines())[1]
        assert server.service.reports.ledger.history("words") == []


def test_a_revoked_token_sees_no_more_progress(server, monkeypatch):
    slow = Slow(monkeypatch)
    monkeypatch.setattr("dptopk.service.senders.RECENT_SECONDS", 0.0)
    with server.client("ann") as ann:
        key = {"Idempotency-Key": "slow-question"}
        job = ann.post("/v1/datasets/words/topk?wait=0", json=ASKED, headers=key).headers[
            "Location"
        ]
        assert slow.begun.wait(120)
        with ann.stream("GET", f"{job}/events") as events:
            lines = (line for line in events.iter_lines() if line.startswith("data: "))
            assert json.loads(next(lines)[6:])["stage"] == "reading"
            server.access.revoke("ann")
            assert all(
                json.loads(line[6:])["stage"] == "reading" for line in lines
            )  # and they end, before the job
        slow.gate.set()


@pytest.mark.slow
def test_answers_leave_at_whole_multiples(tmp_path):
    waited, now = [], 1003.25
    text = CATALOG.replace('ledger = "ledger.db"', 'ledger = "ledger.db"\nanswers_every = 5.0')
    with (
        Server(tmp_path, text, wall=lambda: now, sleep=waited.append).running() as server,
        server.client("ann") as ann,
    ):
        for number, epsilon in enumerate((0.3, 50.0)):  # a refusal too
            key = {"Idempotency-Key": f"on-schedule-{number}"}
            ann.post("/v1/datasets/words/topk", json=ASKED | {"epsilon": epsilon}, headers=key)
    # Each waits twice: before it is charged, and before its answer is stored or it is refused.
    assert waited == [1.75] * 4


@pytest.mark.slow
def test_nothing_is_seen_between_the_multiples(tmp_path):
    """The charge, its time, the stage of the job and the stored answer showed how long the data
    were read.
    """
    seen = []

    def look(_: float) -> None:
        history = server.service.reports.ledger.history("words")
        job = server.service.jobs.find(job_of("ann", "words", "on-schedule"))
        seen.append((job.stage, [spend.answer is not None for spend in history]))

    text = CATALOG.replace('ledger = "ledger.db"', 'ledger = "ledger.db"\nanswers_every = 5.0')
    with (
        Server(tmp_path, text, wall=lambda: 1003.25, sleep=look).running() as server,
        server.client("ann") as ann,
    ):
        key = {"Idempotency-Key": "on-schedule"}
        ann.post("/v1/datasets/words/topk", json=ASKED, headers=key)
    assert seen == [("reading", []), ("charging", [False])]


def test_rates_fill_steadily():
    now = 0.0
    rates = Rates(clock=lambda: now)
    assert [rates.take("ann", 1.0) for _ in range(4)] == [0.0] * 4
    assert rates.take("ann", 1.0) == 1.0
    assert rates.take("bob", 1.0) == 0.0
    now = 2.0
    assert [bool(rates.take("ann", 1.0)) for _ in range(3)] == [False, False, True]


def test_metrics_escape_what_they_name():
    metrics = Metrics()
    metrics.count_request("GET", "/v1/me", 200)
    metrics.count_question('a"b', "answered")
    text = metrics.text({"a\nb": {"budget": 0.25}}, 1, 7)
    assert 'dptopk_requests_total{method="GET",route="/v1/me",status="200"} 1\n' in text
    assert 'dptopk_questions_total{dataset="a\\"b",outcome="answered"} 1\n' in text
    assert 'dptopk_budget_used_ratio{dataset="a\\nb",of="budget"} 0.25\n' in text


def test_metrics_count_every_request():
    metrics = Metrics()
    metrics._requests["GET", "/v1/me", 200] = 1_234_567  # six digits would be 1.23457e+06
    assert "} 1234567\n" in metrics.text({}, 0, 0)
