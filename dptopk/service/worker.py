"""Everything that one worker of the service holds."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dptopk._internal.lru import LRUCache
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.ledger.names import canonical
from dptopk.ledger.spends import Spend
from dptopk.service.access import Access, Person
from dptopk.service.answering import AnswerService, KeyUsed, begun, job_of, shown
from dptopk.service.budget_reports import BudgetReports
from dptopk.service.catalog import Catalog, DatasetSpec
from dptopk.service.catalog_changes import agree, opened
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import Histograms
from dptopk.service.jobs import HEARTBEAT_SECONDS, Cancelled, Jobs
from dptopk.service.limits import Busy, Open, Rates, Turns
from dptopk.service.metrics import Metrics
from dptopk.service.questions import Plans, PostedQuestion
from dptopk.service.senders import Senders
from dptopk.service.tables import RELOAD, Tables

LOG = logging.getLogger("dptopk.service")
PAGES = 256  # previews and answers, as they leave
SWEEP_SECONDS = 3600.0  # between two deletions of old lines of the audit log
SWITCH = 0.0005  # seconds after which one thread makes room for another


@dataclass
class Service:
    """One worker: the catalog, open databases, caches, threads.

    What takes a thread waits in one of five queues, none of which waits for another: logins, those
    with a hash of an older version, short reads, plans, and questions.

    Args:
        catalog: what is served.
        wall: the time that answers keep to, in seconds.
        sleep: how to wait for it.
    """

    catalog: Catalog
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    rates: Rates = field(default_factory=Rates)
    metrics: Metrics = field(default_factory=Metrics)
    open: Open = field(default_factory=Open)
    logins: Turns = field(default_factory=lambda: Turns(3, each=1, at_most=64))
    slow_logins: Turns = field(default_factory=lambda: Turns(1, each=1, at_most=1))
    work: Turns = field(default_factory=lambda: Turns(8, each=2, at_most=32))
    planning: Turns = field(default_factory=lambda: Turns(4, each=1, at_most=8))
    questions: Turns = field(default_factory=lambda: Turns(16, each=2, at_most=16))

    def __post_init__(self) -> None:
        self.tables = Tables(self.catalog.access)
        self.access = Access(self.tables)
        self.senders = Senders(self.access, self.logins, self.slow_logins)
        self.jobs = Jobs(self.tables, visible=not self.catalog.answers_every)
        self.reports = BudgetReports(opened(self.catalog, self.tables))
        self._running: dict[str, tuple[PostedQuestion, Future[Spend]]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._health = (-1, False)
        self._checking: Future[bool] | None = None
        self._swept = -math.inf
        self._generation = self.tables.value(Tables.settings, RELOAD)
        self._serve(self.catalog)
        sys.setswitchinterval(SWITCH)  # whoever computes does not keep others waiting
        threading.Thread(target=self._beat, name="signs of life", daemon=True).start()

    def _serve(self, catalog: Catalog) -> None:
        """Serve a catalog: nothing that was computed for another one is used."""
        self.catalog = catalog
        self.plans = Plans()
        self.pages: LRUCache[Any] = LRUCache(PAGES)
        self.histograms = Histograms()
        self.answer_service = AnswerService(
            self.reports.ledger, self.histograms, self.plans, self.jobs
        )

    def follow(self) -> None:
        """Read the catalog again if an operator has said so."""
        generation = self.tables.value(Tables.settings, RELOAD)
        before = self._generation
        self._generation = generation
        if generation != before:
            self.reload()

    def reload(self) -> None:
        """Read the catalog again; one that does not fit the ledger is refused, and the old one
        stays.

        Raises:
            DptopkError: what is wrong with it.
        """
        if self.catalog.path is None:
            raise InvalidParameter("catalog: it was not read from a file")
        catalog = load_catalog(self.catalog.path)
        for name in ("ledger", "access", "key_file", "head_file", "answers_every"):
            if getattr(catalog, name) != getattr(self.catalog, name):
                raise InvalidParameter(f"catalog: a new {name} needs a restart")
        agree(catalog, self.reports.ledger, self.tables)
        self._serve(catalog)

    def begin(
        self, spec: DatasetSpec, person: Person, key: str, question: PostedQuestion
    ) -> Spend | Future[Spend]:
        """The charge of a question that was answered before, or what comes of it."""
        question.check(spec)
        known = question.answerer(self).known(spec, person.analyst, key, question)
        if (
            known is not None
            and known.answer is not None
            and not self.running(person.analyst, spec.name, key)
        ):
            self.metrics.question(spec.name, "again")
            return known
        return self.submit(spec, person, key, question, charged=known is not None)

    def page_of(self, spec: DatasetSpec, seq: int, analyst: str) -> dict[str, Any] | None:
        """The answer to a charge of an analyst's, by its entry, if there is one."""

        def read() -> tuple[str, dict[str, Any]]:
            spend = self.reports.ledger.spend(spec.name, seq)
            if spend is None or spend.answer is None:
                raise LookupError
            return spend.analyst, self.page(spec, spend)

        try:
            owner, page = self.pages.get(("charge", spec.name, seq), read)
        except LookupError:
            return None
        if owner == canonical(analyst):
            return page
        return None

    def page(self, spec: DatasetSpec, spend: Spend) -> dict[str, Any]:
        """An answer as it leaves: what is stored never changes, and is read once."""

        def read() -> dict[str, Any]:
            answer = self.reports.ledger.answer(spend)
            if answer is None and "stream" in spend.mechanism:
                return begun(spend, spec.name)
            if answer is None:
                raise LedgerError("this answer was not stored")
            return shown(spend, answer, spec.name)

        return self.pages.get(("answer", spend.seq, spend.answer), read)

    def submit(
        self,
        spec: DatasetSpec,
        person: Person,
        key: str,
        question: PostedQuestion,
        *,
        charged: bool,
    ) -> Future[Spend]:
        """Begin to answer a question, or join the thread that is at it.

        Args:
            spec: of the data set.
            person: who asks.
            key: the idempotency key.
            question: what is asked.
            charged: whether the ledger held a charge under the key before this call.

        Raises:
            Cancelled: when the question was called off.
            KeyUsed: when the thread is at another question, even at one that was called off.
            Busy: when the analyst has too many under way, or has stored as much as the catalog
            allows.
        """
        job = job_of(person.analyst, spec.name, key)
        with self._lock:
            first_question, running = self._running.get(job, (question, None))
            if not question.is_that(first_question.plain()):
                raise KeyUsed("this idempotency key is in use for another question: take a new one")
            if running is None:
                self.questions.refuse_more(person.analyst)
                if not charged:
                    self._refuse_full(person.analyst)
                self.jobs.start(
                    job, person.analyst, spec.name, charged=charged or not question.cancellable
                )
                running = self.questions.submit(
                    person.analyst, partial(self._answer, spec, person, key, question, job)
                )
                self._running[job] = question, running
                running.add_done_callback(lambda done: self._forget(job, done))
        return running

    def _refuse_full(self, analyst: str) -> None:
        """Refuse an analyst who has written as much as the catalog allows.

        Raises:
            Busy: then.
        """
        if self.tables.value(Tables.usage, analyst) >= self.catalog.storage:
            raise Busy(
                "your stored answers take as much room as the catalog allows (storage): "
                "ask its owner"
            )
        if self.access.logged(analyst) >= self.catalog.audit_bytes:
            raise Busy(
                "your questions of today for which nothing was charged take as much room in the "
                "audit log as the catalog allows (audit.bytes): ask again tomorrow (UTC)"
            )

    def _sweep(self) -> None:
        """Delete old lines of the audit log, once in a while."""
        now = time.monotonic()
        if now - self._swept > SWEEP_SECONDS:
            self._swept = now
            self.access.sweep(self.catalog.audit_days)

    def _beat(self) -> None:
        """Show the other workers that this one is still at its questions."""
        while not self._closed.wait(HEARTBEAT_SECONDS):
            with self._lock:
                jobs = list(self._running)
            try:
                if jobs:
                    self.jobs.beat(jobs)
                self._sweep()
                self.follow()
            except DptopkError as error:
                # nothing but the message helps
                LOG.error("the catalog was not read again: %s", error)  # noqa: TRY400
            # the next beat may succeed; the questions themselves say more
            except Exception as error:  # noqa: BLE001
                # a traceback may quote data
                LOG.error("a sign of life failed: %s", place(error))  # noqa: TRY400

    def _forget(self, job: str, done: Future[Spend]) -> None:
        with self._lock:
            if self._running.get(job, (None, None))[1] is done:
                del self._running[job]

    def _answer(
        self, spec: DatasetSpec, person: Person, key: str, question: PostedQuestion, job: str
    ) -> Spend:
        """Answer a question. Its line of the audit log is written before anything is charged."""
        ending = Ending()
        detail = {"question": question.plain(), "key": key, "job": job}
        line, size = self.access.begun(person.analyst, question.action, spec.name, detail)
        try:
            spend = question.answerer(self).ask(spec, person.analyst, key, question)
            ending = Ending.answered(len(json.dumps([spend.mechanism, self.page(spec, spend)])))
        except DptopkError as error:
            ending = Ending.by(error)
            raise
        except Exception as error:
            # a traceback may quote data
            LOG.error("a question failed: %s", place(error))  # noqa: TRY400
            raise
        else:
            return spend
        finally:
            self._hold()
            self.metrics.question(spec.name, ending.outcome)
            changes: list[Any] = [self.access.ended(line, ending.outcome)]
            if ending.written:
                changes.append(self.tables.add(Tables.usage, person.analyst, ending.written))
            else:
                changes.append(self.access.add_logged(person.analyst, size))
            if ending.stage != "cancelled":  # whoever called it off wrote that already
                changes.append(self.jobs.end(job, ending.stage, ending.code, ending.message))
            self.tables.change(*changes)

    def running(self, analyst: str, dataset: str, key: str) -> bool:
        """Whether this worker is answering a question."""
        with self._lock:
            return job_of(analyst, dataset, key) in self._running

    def _hold(self) -> None:
        """Wait for the next time at which answers leave."""
        every = self.catalog.answers_every
        if every:
            self.sleep(every - self.wall() % every)

    def shares(self) -> dict[str, dict[str, float]]:
        """Return the used shares of every data set's budget."""
        return {name: self.reports.shares(name) for name in self.catalog.datasets}

    def well(self) -> bool:
        """Whether both databases can be read, as of this second."""
        second = int(time.monotonic())
        if self._health[0] != second:
            try:
                self.reports.ledger.head()
                self.tables.value(Tables.settings, RELOAD)
                self._health = (second, True)
            except Exception as error:  # noqa: BLE001
                LOG.error("not well: %s", place(error))  # noqa: TRY400
                self._health = (second, False)
        return self._health[1]

    async def health(self) -> bool:
        """``well``, for the event loop: one check at a time, and none where it is recent."""
        if self._health[0] == int(time.monotonic()):
            return self._health[1]
        if self._checking is None or self._checking.done():
            self._checking = self.logins.submit("health", self.well)
        return await asyncio.shield(asyncio.wrap_future(self._checking))

    def close(self) -> None:
        """Wait for questions that are being answered, and close the databases."""
        for turns in (self.questions, self.planning, self.work, self.logins, self.slow_logins):
            turns.close()
        self._closed.set()
        self.reports.ledger.close()
        self.tables.close()


def refuse_unfit(catalog: Catalog) -> None:
    """Open a catalog's databases as a worker does, and close them again.

    Raises:
        DptopkError: when no worker could begin.
    """
    tables = Tables(catalog.access)
    try:
        opened(catalog, tables).close()
    finally:
        tables.close()


@dataclass(frozen=True)
class Ending:
    """How a question ended; by default by an error that nobody foresaw.

    Attributes:
        stage, code, message: what its job shows.
        written: the size of the stored answer; 0: there is none, and nothing was charged.
    """

    stage: str = "failed"
    code: str = "internal"
    message: str = "internal error"
    written: int = 0

    @classmethod
    def answered(cls, written: int) -> Ending:
        """With an answer of that size."""
        return cls("done", "", "", written)

    @classmethod
    def by(cls, error: DptopkError) -> Ending:
        """By an error that the analyst may read."""
        stage = "cancelled" if isinstance(error, Cancelled) else "failed"
        return cls(stage, type(error).__name__, str(error))

    @property
    def outcome(self) -> str:
        """Its word in the audit log and in the metrics."""
        if self.code == BudgetExceeded.__name__:
            return "refused"
        if self.stage == "done":
            return "answered"
        return self.stage


def place(error: BaseException) -> str:
    """The type of an error and where it was raised; never its message, which may quote data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        where = ""
    else:
        where = f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"
