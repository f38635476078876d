"""Nobody can stop the service: turns, limits and rates, by counting."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, defaultdict

import pytest

from dptopk.accounting import bounds
from dptopk.costs import Charge
from dptopk.errors import InvalidParameter, LedgerError
from dptopk.ledger import entries
from dptopk.ledger.commits import Commits
from dptopk.ledger.ledger import Ledger
from dptopk.ledger.sqlite import SQLite
from dptopk.planning import Plan
from dptopk.service import app, authentication, budget_reports, routes
from dptopk.service.access import Person
from dptopk.service.limits import Busy, Open, Rates, Turns
from dptopk.service.questions import TopK
from dptopk.service.tables import Tables

from .conftest import ASKED, CATALOG, Server

ANN = Person("ann", "analyst", "a-token")


class Gate:
    """Work that waits, and who began in what order."""

    def __init__(self) -> None:
        self.open, self.order, self.at_once, self.most = threading.Event(), [], Counter(), Counter()

    def work(self, who: str):
        def wait() -> str:
            self.order.append(who)
            self.at_once[who] += 1
            self.most[who] = max(self.most[who], self.at_once[who])
            assert self.open.wait(120)
            self.at_once[who] -= 1
            return who

        return wait


def test_who_asks_much_waits_for_nobody_else():
    turns, gate = Turns(3, per_person=2, at_most=40), Gate()
    futures = [turns.submit("ann", gate.work("ann")) for _ in range(30)]
    futures += [turns.submit(who, gate.work(who)) for who in ("bob", "eve", "bob")]
    gate.open.set()
    assert Counter(future.result(120) for future in futures) == {"ann": 30, "bob": 2, "eve": 1}
    assert gate.most["ann"] <= 2
    assert (
        max(place for place, who in enumerate(gate.order) if who != "ann") <= 7
    )  # in turn, not after 30
    turns.close()


def test_one_person_has_a_limited_number_under_way():
    turns, gate = Turns(2, per_person=1, at_most=3), Gate()
    futures = [turns.submit("ann", gate.work("ann")) for _ in range(3)]
    with pytest.raises(Busy):
        turns.submit("ann", gate.work("ann"))
    futures.append(turns.submit("bob", gate.work("bob")))
    gate.open.set()
    assert [future.result(120) for future in futures] == ["ann"] * 3 + ["bob"]
    assert turns.submit("ann", lambda: 1).result(120) == 1

    def fails() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        turns.submit("ann", fails).result(120)
    for _ in range(5):
        assert turns.submit("ann", lambda: 2).result(120) == 2
    turns.close()


def test_work_that_nobody_waits_for_leaves_the_turn_to_what_is_next():
    """To give a result to what was called off is an error, which ended the sender's thread."""
    turns, gate = Turns(1, per_person=1, at_most=9), Gate()
    first = turns.submit("ann", gate.work("ann"))
    called_off = turns.submit("ann", gate.work("never"))
    after = turns.submit("ann", lambda: 3)
    assert called_off.cancel()
    gate.open.set()
    assert (first.result(120), after.result(120)) == ("ann", 3)
    assert gate.order == ["ann"]
    assert not turns._running
    turns.close()


def test_what_costs_more_takes_more_and_leaves_a_debt():
    now = 0.0
    rates = Rates(clock=lambda: now)
    assert rates.take("ann", 2.0, 50.0) == 0.0  # 8 were there: 42 are owed
    assert rates.take("ann", 2.0) == pytest.approx(21.5)
    now = 21.0
    assert rates.take("ann", 2.0) > 0
    now = 21.5
    assert rates.take("ann", 2.0) == 0.0


def test_what_is_open_is_counted():
    opened = Open()
    opened.enter("ann", 2)
    opened.enter("ann", 2)
    with pytest.raises(Busy):
        opened.enter("ann", 2)
    opened.leave("ann")
    opened.enter("ann", 2)


def test_streams_and_requests_leave_when_they_end(server, monkeypatch):
    monkeypatch.setattr(routes, "MOST_STREAMS", 0)
    with server.client("ann") as ann:
        refused = ann.get(f"/v1/jobs/{'0' * 32}/events")
        assert (refused.status_code, refused.json()["error"]) == (429, "busy")
        assert ann.get("/v1/me").status_code == 200
        until = time.monotonic() + 120
        while server.service.open._count:  # a request leaves after its answer was sent
            assert time.monotonic() < until
            time.sleep(0.01)
        monkeypatch.setattr(authentication, "MOST_REQUESTS", 0)
        for answer in (ann.get("/v1/me"), ann.post("/v1/divide", json={})):
            assert (answer.status_code, answer.json()["error"]) == (429, "busy")


@pytest.mark.slow
def test_plans_and_answers_cost_by_their_size(tmp_path, monkeypatch):
    monkeypatch.setattr(routes, "PLANNED_ROWS_PER_UNIT", 0.1)
    text = CATALOG.replace("free = 1000.0, spending = 1000.0", "free = 10.0, spending = 5.0")
    with (
        Server(tmp_path, text).running() as server,
        server.client("ann") as ann,
        server.client("bob") as bob,
    ):
        server.service.rates._clock = lambda: 0.0
        assert (
            ann.post("/v1/datasets/words/plan", json=ASKED).status_code != 429
        )  # 32 of the 40 that are there
        assert ann.post("/v1/datasets/words/plan", json=ASKED | {"epsilon": 0.4}).status_code != 429
        assert ann.post("/v1/datasets/words/plan", json=ASKED | {"epsilon": 0.5}).status_code == 429
        assert bob.get("/v1/datasets/words/budget").status_code == 200


def test_stored_answers_have_a_quota(tmp_path):
    text = CATALOG.replace("rates =", "storage = 1500\nrates =")
    with (
        Server(tmp_path, text).running() as server,
        server.client("ann") as ann,
        server.client("bob") as bob,
    ):
        statuses = []
        for number in range(4):
            key = {"Idempotency-Key": f"question-{number}"}
            statuses.append(
                ann.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code
            )
        assert statuses[0] == 200
        assert statuses[-1] == 429
        again = ann.post(
            "/v1/datasets/words/topk", json=ASKED, headers={"Idempotency-Key": "question-0"}
        )
        assert again.status_code == 200  # what is stored stays one's own
        key = {"Idempotency-Key": "question-0"}
        assert bob.post("/v1/datasets/words/topk", json=ASKED, headers=key).status_code == 200
        assert server.service.tables.value(Tables.usage, "ann") > 1500


def asked(service, key: str, **changes):
    return service.begin(service.catalog.datasets["words"], ANN, key, TopK(**(ASKED | changes)))


@pytest.fixture
def commits(monkeypatch):
    """The durable commits of the ledger, and whether changes of the other database waited for the
    disk.
    """
    ledger, others, real, change = [], [], SQLite.begin, Tables.change

    def begin(self, run, purpose):
        ledger.extend([1] * (purpose != "read"))
        real(self, run, purpose)

    def changing(self, *statements, durable=False):
        others.append(durable)
        return change(self, *statements, durable=durable)

    monkeypatch.setattr(SQLite, "begin", begin)
    monkeypatch.setattr(Tables, "change", changing)
    return ledger, others


def test_a_spend_is_two_durable_commits(tmp_path, commits):
    service = Server(tmp_path).service
    for made in commits:
        made.clear()
    asked(service, "one-spend").result(120)
    assert len(commits[0]) == 2  # of the charge, before noise is drawn, and of the answer
    assert commits[1]
    assert not any(commits[1])
    service.close()


@pytest.mark.slow
def test_noise_is_drawn_when_the_charge_is_durable(tmp_path, monkeypatch):
    """Another process sees the charge while noise is drawn; a draw or an answer that fails leaves
    it charged.
    """
    service = Server(tmp_path).service
    seen, real, finalize = [], Plan.release, Ledger.finalize

    def release(self, histogram):
        with Ledger(tmp_path / "ledger.db", read_only=True) as other:
            seen.append([spend.released for spend in other.recent("words")])
        if len(seen) == 2:
            raise MemoryError
        return real(self, histogram)

    def settling(self, receipt, used, *, answer):
        if len(seen) == 3:
            raise LedgerError("the answer is too large")
        finalize(self, receipt, used, answer=answer)

    monkeypatch.setattr(Plan, "release", release)
    monkeypatch.setattr(Ledger, "finalize", settling)
    asked(service, "the-first").result(120)
    for key, error in (("no-draw-1", MemoryError), ("no-store", LedgerError)):
        with pytest.raises(error):
            asked(service, key).result(120)
    assert seen == [[False], [False, True], [False, False, True]]
    assert [spend.released for spend in service.reports.ledger.recent("words")] == [
        False,
        False,
        True,
    ]
    service.close()


def test_a_charge_and_an_answer_are_never_committed_together(tmp_path, monkeypatch):
    """An answer that cannot be stored undoes what it is committed with: that is never the charge of
    anybody.
    """
    service, kinds, real = Server(tmp_path).service, defaultdict(set), Commits.do

    def doing(self, work):
        kinds[id(self)].add(work.func.__name__)
        real(self, work)

    monkeypatch.setattr(Commits, "do", doing)
    asked(service, "the-first").result(120)
    assert sorted(kinds.values(), key=str) == [{"charge"}, {"finalize"}]
    service.close()


def test_spends_that_are_ready_together_share_a_commit(tmp_path, commits):
    """One that is refused leaves the others alone."""
    service = Server(tmp_path).service
    ledger, charge, told = (
        service.reports.ledger,
        asked(service, "the-first").result(120).charge,
        [],
    )
    commits[0].clear()
    commits_of_charges = service.answer_service._charges

    def write(who: str) -> None:
        try:
            commits_of_charges.do(
                lambda: ledger.charge("words" if who != "eve" else "nowhere", who, charge)
            )
        except InvalidParameter:
            told.append(who)

    with commits_of_charges._turn:  # somebody is writing meanwhile
        threads = [
            threading.Thread(target=write, args=(who,)) for who in ("ann", "bob", "eve", "dan")
        ]
        for thread in threads:
            thread.start()
        while len(commits_of_charges._waiting) < 4:
            time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert len(commits[0]) == 1
    assert told == ["eve"]
    assert len(ledger.history("words")) == 4
    assert ledger.verify()
    service.close()


def test_an_error_undoes_all_that_was_to_be_committed_together(tmp_path):
    service = Server(tmp_path).service
    ledger, charge = service.reports.ledger, asked(service, "the-first").result(120).charge

    def breaks() -> None:
        ledger.charge("words", "ann", charge)
        raise LedgerError("the disk is full")

    with pytest.raises(LedgerError):
        service.answer_service._charges.do(breaks)
    assert len(ledger.history("words")) == 1
    service.answer_service._charges.do(lambda: ledger.charge("words", "ann", charge))
    assert len(ledger.history("words")) == 2
    assert ledger.verify()
    service.close()


@pytest.mark.slow
def test_a_look_at_the_books_reads_as_much_of_a_longer_log(tmp_path, monkeypatch):
    service = Server(tmp_path).service
    ledger, spec = service.reports.ledger, service.catalog.datasets["words"]
    asked(service, "the-first").result(120)
    small, read, real = Charge.parse("DP(0.001)"), [], entries.Entry.read

    def counted(row):
        read.append(row)
        return real(row)

    monkeypatch.setattr(entries.Entry, "read", counted)
    seen = []
    for _ in range(3):
        with ledger._journal.write():
            for _ in range(60):
                ledger.charge("words", "ann", small)
        read.clear()
        service.reports.budget("words", "ann")
        answers = [
            service.page(spec, spend)
            for spend in ledger.recent("words", analyst="ann")
            if spend.answer
        ]
        seen.append(len(read))
    assert answers == []  # of the newest twenty
    assert seen[0] == seen[2] <= 100
    service.close()


@pytest.mark.slow
def test_what_was_spent_is_read_off_closed_forms(tmp_path, monkeypatch):
    """The best bound for a new mix of charges took 10 s of processor time, after each charge
    anew.
    """
    service = Server(tmp_path).service
    asked_for = []
    real = bounds.compose

    def counted(*args, **options):
        asked_for.append(options)
        return real(*args, **options)

    asked(service, "one-spend").result(120)
    monkeypatch.setattr(bounds, "compose", counted)
    total = service.reports.budget("words", "ann")["total"]
    assert 0 < total["epsilon_spent"] <= 4
    assert {options.get("interaction") for options in asked_for} <= {"filter", None}
    assert all(options.get("effort", "quick") == "quick" for options in asked_for)
    service.close()


def test_a_body_that_does_not_come_is_given_up(server, monkeypatch):
    monkeypatch.setattr(app, "BODY_SECONDS", 0.2)
    host, port = server.url.removeprefix("http://").split(":")
    head = "POST /v1/divide HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
    head += f"Authorization: Bearer {server.tokens['ann']}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).split()[1] == b"408"


@pytest.mark.slow
def test_a_look_at_the_spending_reads_what_is_new(tmp_path, monkeypatch):
    """All of the log was replayed after each new charge: 7 s after 30,000 of them."""
    service = Server(tmp_path).service
    ledger = service.reports.ledger
    asked(service, "the-first").result(120)
    small, read, real = Charge.parse("DP(0.001)"), [], entries.Entry.read

    def counted(row):
        read.append(row)
        return real(row)

    monkeypatch.setattr(entries.Entry, "read", counted)
    seen = []
    for _ in range(3):
        with ledger._journal.write():
            for _ in range(60):
                receipt = ledger.charge("words", "ann", small)
        ledger.finalize(receipt, Charge(), answer={})
        read.clear()
        page = service.reports.spending("words")
        seen.append(len(read))
        fresh = budget_reports.BudgetReports(ledger).spending("words")
        assert page == fresh
    assert seen[1] == seen[2] <= 100
    shares = [point["share"] for point in page["over_time"]]
    assert len(shares) == 100  # what a chart shows; the share of each is of all until then
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(max(page["shares"].values()))
    service.close()
