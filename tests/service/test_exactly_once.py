"""Exactly once: servers that are killed, clients that retry, several servers on one ledger."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from dptopk.costs import Budget
from dptopk.errors import BudgetExceeded, DptopkError
from dptopk.ledger.ledger import Ledger
from dptopk.service.access import Access
from dptopk.service.answering import AnswerService
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import Histograms
from dptopk.service.jobs import Jobs
from dptopk.service.tables import Tables
from dptopk.session.client import Client

from .conftest import ASKED, CATALOG, PatientClient, Server, write_words

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["dptopk.service.app", "dptopk.planning", "dptopk.datasets", "pandas", "uvicorn", "scipy"]
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def mortal(point: str) -> None:
    """Let this process be killed the first time it comes to a point."""
    where = {
        "before the charge": (Ledger, "charge", die, None),
        "before the charge is durable": (Ledger, "charge", None, die),
        "after the charge": (AnswerService, "_charge", None, die),
        "before the answer is stored": (Ledger, "finalize", die, None),
        "before the answer is durable": (Ledger, "finalize", None, die),
        "after the answer is stored": (AnswerService, "_answer", None, die),
    }
    owner, name, before, after = where[point]
    real = getattr(owner, name)

    def changed(*arguments, **options):
        if before is not None:
            before()
        result = real(*arguments, **options)
        if after is not None:
            after()
        return result

    setattr(owner, name, changed)


def serve(folder: str, port: int, point: str | None) -> None:
    import uvicorn

    from dptopk.service.app import create_app

    if point is not None:
        mortal(point)
    app = create_app(load_catalog(Path(folder) / "catalog.toml"))
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", ws="none")


class Host:
    """A server process that can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, point: str | None = None) -> None:
        self.process = FORKS.Process(target=serve, args=(str(self.folder), self.port, point))
        self.process.start()

    def ready(self) -> None:
        while True:
            assert self.process.is_alive()
            try:
                httpx.get(self.url)
            except httpx.HTTPError:
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


@pytest.fixture
def folder(tmp_path):
    write_words(tmp_path, "1")
    (tmp_path / "catalog.toml").write_text(CATALOG, encoding="utf-8")
    return tmp_path


def tokens(folder: Path, *names: str) -> dict[str, str]:
    tables = Tables(load_catalog(folder / "catalog.toml").access)
    access = Access(tables)
    made = {name: access.create(name) for name in names}
    tables.close()
    return made


POINTS = {  # what a server that is killed there has charged and answered
    "before the charge": (0, 0),
    "before the charge is durable": (0, 0),
    "after the charge": (1, 0),
    "before the answer is stored": (1, 0),
    "before the answer is durable": (1, 0),
    "after the answer is stored": (1, 1),
}


@pytest.mark.slow
def test_killed_anywhere_a_retry_is_answered_and_pays_once(folder):
    token = tokens(folder, "ann")["ann"]
    host = Host(folder)
    headers = {"Authorization": f"Bearer {token}"}
    keys = [headers | {"Idempotency-Key": f"killed-{number}"} for number in range(len(POINTS))]
    charges = 0
    answers = 0
    for key, (point, (charged, answered)) in zip(keys, POINTS.items(), strict=True):
        host.start(point)
        host.ready()
        with pytest.raises(httpx.HTTPError):
            httpx.post(f"{host.url}/v1/datasets/words/topk", json=ASKED, headers=key, timeout=120)
        host.process.join()
        assert host.process.exitcode == -signal.SIGKILL
        charges += charged
        answers += answered
        with Ledger(folder / "ledger.db") as ledger:
            spends = ledger.history("words")
            assert len(spends) == charges  # charged >= released, always
            assert sum(spend.released for spend in spends) == answers
    host.start()
    host.ready()
    for key in keys:  # one server answers all that the killed ones left
        with PatientClient(base_url=host.url, headers=key, timeout=120) as patient:
            twice = [patient.post("/v1/datasets/words/topk", json=ASKED) for _ in range(2)]
        assert [answer.status_code for answer in twice] == [200, 200]
        assert twice[0].json() == twice[1].json()
    host.kill()
    with Ledger(folder / "ledger.db") as ledger:
        assert [spend.released for spend in ledger.history("words")] == [True] * len(keys)
        assert ledger.verify()


MORE = int(os.environ.get("DPTOPK_KILLS", "0"))  # `make service-torture` asks for more


def storm(folders: list[Path], ledger_of, *, kills: int) -> int:
    """Eight people, a server in each folder, kills: every question that was answered was charged
    once, and no more.

    Half as many questions fit as are asked, and four callers ask each at the same time, two of each
    server: all have one answer, or all are refused by the budget. Returns how many were charged.
    """
    kills, each = MORE or kills, max(4, MORE)
    part = Budget(0.9 * (4 / each) ** 0.5, 1e-7)
    names = [f"analyst-{number % 2}" for number in range(8)]
    held, hosts = tokens(folders[0], *names[:2]), [Host(folder) for folder in folders]
    told: dict[tuple[str, str], list] = {}

    def work(name: str, person: int) -> None:
        clients = [
            Client(host.url, held[name], dataset="words", patience=300) for host in hosts * 2
        ]
        for number in range(each):
            key = f"question-{person}-{number}"
            told[name, key] = together(clients, lambda client, key=key: word(client, key))

    def word(client: Client, key: str):
        try:
            return client.top_k(
                3, budget=part, method="threshold", counts="gaussian", key=key
            ).to_dict()
        except DptopkError as error:
            return type(error)

    for host in hosts:
        host.start()
    for host in hosts:
        host.ready()
    threads = [
        threading.Thread(target=work, args=(name, client)) for client, name in enumerate(names)
    ]
    for thread in threads:
        thread.start()
    chance = random.Random(7)  # noqa: S311
    for number in range(kills):
        time.sleep(chance.uniform(0.3, 1.0))
        hosts[number % len(hosts)].kill()
        hosts[number % len(hosts)].start()
    _join(threads)
    for host in hosts:
        host.kill()
    assert all(words == words[:1] * 4 for words in told.values()), told
    answers = [key for key, words in told.items() if words[0] != BudgetExceeded]
    assert len(told) == 8 * each > len(answers) > 0  # the budget was used up
    with ledger_of() as ledger:
        charged = [(spend.analyst, _key_of(ledger, spend)) for spend in ledger.history("words")]
        assert sorted(charged) == sorted(answers)  # each once
        assert ledger.state("words").account.summary().share <= 1
        assert ledger.verify()
    return len(charged)


@pytest.mark.slow
def test_eight_clients_two_servers_and_kills(folder):
    """On one SQLite file."""
    assert storm([folder, folder], lambda: Ledger(folder / "ledger.db"), kills=4)


@pytest.mark.slow
def test_one_key_one_word_of_two_workers(tmp_path, monkeypatch):
    """Keys asked four times at once, two times of each worker: nobody hears that nothing was
    charged.

    Of each key one worker is about to charge when the other one has charged, answered and ended the
    job.
    """
    real, late = Jobs.begin_charging, set()

    def charging(self, ident):
        if ident not in late:
            late.add(ident)
            while self.find(ident).stage != "done":
                time.sleep(0.005)
        real(self, ident)

    monkeypatch.setattr(Jobs, "begin_charging", charging)
    keys = 25 if MORE else 5
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(tmp_path).running()) for _ in range(2)]
        clients = [stack.enter_context(server.client("ann")) for server in servers * 2]
        asked = ASKED | {"epsilon": 0.05}
        for number in range(keys):
            key = {"Idempotency-Key": f"question-{number}"}
            answers = together(
                clients,
                lambda c, key=key: c.post("/v1/datasets/words/topk", json=asked, headers=key),
            )
            assert [answer.status_code for answer in answers] == [200] * 4, answers[0].text
            assert len({answer.text for answer in answers}) == 1
        assert len(servers[0].service.reports.ledger.history("words")) == keys


def together(clients, ask) -> list:
    """What each of several callers hears who ask at the same time."""
    ready = threading.Barrier(len(clients))

    def one(client):
        ready.wait(300)
        return ask(client)

    with ThreadPoolExecutor(len(clients)) as pool:
        return list(pool.map(one, clients))


def _join(threads) -> None:
    for thread in threads:
        thread.join()


def _key_of(ledger: Ledger, spend) -> str:
    return next(entry for entry in ledger.entries(spend.seq - 1)).body["once"]


def test_two_draws_of_one_charge_and_only_one_is_seen(folder, monkeypatch):
    """Two workers find the same unanswered charge: both draw, the ledger takes one answer, both
    give that one.
    """
    from dptopk.service.catalog_changes import open_ledger
    from dptopk.service.questions import Plans, TopK, record_of

    catalog = load_catalog(folder / "catalog.toml")
    spec, question, plans, tables = (
        catalog.datasets["words"],
        TopK(**ASKED),
        Plans(),
        Tables(catalog.access),
    )
    ledger = open_ledger(catalog, tables)
    plan = plans.get(spec, question)
    ledger.charge("words", "ann", plan.charge, once="a-key-12", mechanism=record_of(question, plan))
    drawn = []
    real = type(plan).release
    both = threading.Barrier(2)

    def release(self, histogram, rng=None):
        drawn.append(real(self, histogram, rng))
        both.wait(120)
        return drawn[-1]

    monkeypatch.setattr(type(plan), "release", release)
    workers = [AnswerService(ledger, Histograms(), plans, Jobs(tables)) for _ in range(2)]
    seen = []
    threads = [
        threading.Thread(
            target=lambda w=w: seen.append(ledger.answer(w.ask(spec, "ann", "a-key-12", question)))
        )
        for w in workers
    ]
    for thread in threads:
        thread.start()
    _join(threads)
    assert len(drawn) == 2
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert [spend.released for spend in ledger.history("words")] == [True]
    ledger.close()
    tables.close()


def test_a_charge_to_an_old_budget_draws_no_answer_from_what_a_new_one_is_for(folder):
    """An answer that was lost before a renewal is not drawn after it: the new budget would not know
    of it.
    """
    from dptopk.service.answering import KeyUsed
    from dptopk.service.catalog_changes import open_ledger
    from dptopk.service.questions import Plans, TopK, record_of

    catalog = load_catalog(folder / "catalog.toml")
    spec, question, plans, tables = (
        catalog.datasets["words"],
        TopK(**ASKED),
        Plans(),
        Tables(catalog.access),
    )
    with open_ledger(catalog, tables) as ledger:
        plan = plans.get(spec, question)
        for key in ("lost-key-1", "answered-1"):
            ledger.charge(
                "words", "ann", plan.charge, once=key, mechanism=record_of(question, plan)
            )
        answer_service = AnswerService(ledger, Histograms(), plans, Jobs(tables))
        answered = answer_service.ask(spec, "ann", "answered-1", question)
        ledger.renew("words", reason="another month", budget=Budget(1.0, 1e-6))
        assert answer_service.ask(spec, "ann", "answered-1", question).answer == answered.answer
        with pytest.raises(KeyUsed, match="renewed"):
            answer_service.ask(spec, "ann", "lost-key-1", question)
        assert [spend.released for spend in ledger.history("words")] == [False, True]
    tables.close()


@pytest.mark.slow
def test_an_answer_that_is_drawn_while_the_budget_is_renewed_is_not_given(folder, monkeypatch):
    """Its data may be those that the new budget is for."""
    from dptopk.service.answering import KeyUsed
    from dptopk.service.catalog_changes import open_ledger
    from dptopk.service.questions import Plans, TopK, record_of

    catalog = load_catalog(folder / "catalog.toml")
    spec, question, plans = catalog.datasets["words"], TopK(**ASKED), Plans()
    tables = Tables(catalog.access)
    with open_ledger(catalog, tables) as ledger:
        plan = plans.get(spec, question)
        ledger.charge(
            "words", "ann", plan.charge, once="a-key-13", mechanism=record_of(question, plan)
        )
        answer_service = AnswerService(ledger, Histograms(), plans, Jobs(tables))
        read = AnswerService._read

        def renewed_meanwhile(*arguments):
            ledger.renew("words", reason="another month", budget=Budget(1.0, 1e-6))
            return read(*arguments)

        monkeypatch.setattr(AnswerService, "_read", renewed_meanwhile)
        with pytest.raises(KeyUsed, match="renewed"):
            answer_service.ask(spec, "ann", "a-key-13", question)
        assert [spend.released for spend in ledger.history("words")] == [False]
    tables.close()
