"""One worker of the service: the catalog, the open databases, the caches and the threads."""

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
from typing import Any, TypeVar

from dptopk._internal.lru import LRUCache
from dptopk.errors import BudgetExceeded, DptopkError, InvalidParameter, LedgerError
from dptopk.ledger.names import canonical_name
from dptopk.ledger.spends import Spend
from dptopk.service.access import Access, Person
from dptopk.service.answering import AnswerService, KeyUsed, job_of, sent_answer, sent_stream
from dptopk.service.budget_reports import BudgetReports
from dptopk.service.catalog import Catalog, DatasetSpec
from dptopk.service.catalog_changes import claim_version, open_ledger, write_new_accounts
from dptopk.service.catalog_file import load as load_catalog
from dptopk.service.data import Histograms
from dptopk.service.jobs import HEARTBEAT_SECONDS, Cancelled, Jobs
from dptopk.service.limits import Busy, Open, Rates, Turns
from dptopk.service.metrics import Metrics
from dptopk.service.questions import Plans, PostedQuestion
from dptopk.service.senders import Senders
from dptopk.service.tables import RELOAD, Tables

Page = TypeVar("Page")
LOG = logging.getLogger("dptopk.service")
PAGES = 256  # the previews and answers that are cached as they are sent
# A catalog that cannot be read again, or is refused, is read at so many heartbeats: for a minute.
RELOAD_TRIES = 12
SWEEP_SECONDS = 3600.0  # old lines of the audit log are deleted so often
# The seconds after which one thread makes room for another: Python's 5 ms would add up over the
# threads that plan, and keep short requests waiting.
SWITCH = 0.0005
# Repeats of charged questions may fill the quota of the audit log this many times: what was paid
# is answered, whatever was refused today.
QUOTAS_OF_REPEATS = 2


@dataclass
class Service:
    """One worker: the catalog, open databases, caches, threads.

    Work that takes a thread waits in one of five queues, none of which waits for another. Any
    numbers of threads are sound; these leave room for others beside one busy person.

    Attributes:
        catalog: the catalog that is served.
        wall: the function that returns the time by which answers are sent on a schedule, in
            seconds.
        sleep: the function that waits for a number of seconds.
        rates: the requests per second of each sender.
        metrics: the counters for Prometheus.
        open: the open requests of each person.
        logins: the threads that check tokens.
        slow_logins: the thread that checks tokens whose hash is of an older version.
        work: the threads for short reads.
        planning: the threads that plan.
        questions: the threads that answer questions.
        tables: the access database: tokens, jobs and the audit log.
        access: the tokens and the audit log in it.
        senders: the persons whose tokens are valid.
        jobs: the status of each question.
        reports: the open ledger, and reports on its budgets.
        plans, pages, histograms: caches of plans, of previews and answers as they are sent, and of
            data; each belongs to the catalog.
        answer_service: the service that charges and answers questions.
    """

    catalog: Catalog
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    rates: Rates = field(default_factory=Rates)
    metrics: Metrics = field(default_factory=Metrics)
    open: Open = field(default_factory=Open)
    logins: Turns = field(default_factory=lambda: Turns(3, per_person=1, at_most=64))
    slow_logins: Turns = field(default_factory=lambda: Turns(1, per_person=1, at_most=1))
    work: Turns = field(default_factory=lambda: Turns(8, per_person=2, at_most=32))
    planning: Turns = field(default_factory=lambda: Turns(4, per_person=1, at_most=8))
    questions: Turns = field(default_factory=lambda: Turns(16, per_person=2, at_most=16))

    def __post_init__(self) -> None:
        """Open the databases, and begin to give signs of life.

        Raises:
            DptopkError: when a database cannot be opened, or the ledger does not fit the catalog.
        """
        self.tables = Tables(self.catalog.access)
        self.access = Access(self.tables)
        self.senders = Senders(self.access, self.logins, self.slow_logins)
        self.jobs = Jobs(self.tables, visible=not self.catalog.answers_every)
        self.reports = BudgetReports(open_ledger(self.catalog, self.tables))
        # Job -> its question and result to come, while a thread of this worker answers it.
        self._running: dict[str, tuple[PostedQuestion, Future[Spend]]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._health = (-1, False)  # the second of the last check, and its result
        self._checking: Future[bool] | None = None
        self._swept = -math.inf  # when old lines of the audit log were last deleted
        # How often operators had asked for the catalog to be read again when it was last read.
        self._generation = self.tables.value(Tables.settings, RELOAD)
        self._reload_tries_left = 0  # how often it is still read if reading it fails
        self._serve(self.catalog)
        sys.setswitchinterval(SWITCH)
        threading.Thread(
            target=self._repeat_regular_tasks, name="regular tasks", daemon=True
        ).start()

    def _serve(self, catalog: Catalog) -> None:
        """Serve a catalog from now on, with empty caches: nothing computed for an earlier one is
        used.
        """
        self.catalog = catalog
        self.plans = Plans(datasets=catalog.datasets)
        self.pages: LRUCache[Any] = LRUCache(PAGES)
        claim = partial(claim_version, self.tables)
        self.histograms = Histograms(datasets=catalog.datasets, claim=claim)
        self.answer_service = AnswerService(
            self.reports.ledger, self.histograms, self.plans, self.jobs, self.wait_for_schedule
        )

    def get_or_compute(
        self, spec: DatasetSpec, key: tuple[object, ...], compute: Callable[[], Page]
    ) -> Page:
        """Return what ``compute`` returns for a data set, once for a key while its catalog is
        served.

        A question that began before the catalog was read again leaves nothing for the new one: its
        data set is that of the old one, which may have other terms.

        Args:
            spec: the data set that the result is about.
            key: the name of the result, beginning with its kind.
            compute: the function that computes it; its errors are raised unchanged.
        """
        pages = self.pages  # read first: a new catalog has its data sets before its pages
        if self.catalog.datasets.get(spec.name) is not spec:
            return compute()
        page: Page = pages.get(key, compute)
        return page

    def reload_if_asked(self) -> None:
        """Read the catalog again if an operator has asked for it since the last call; where that
        failed, as for a database that did not answer, read it again for RELOAD_TRIES calls.

        Raises:
            DptopkError: as ``reload``; the old catalog is served on.
        """
        generation = self.tables.value(Tables.settings, RELOAD)
        if generation != self._generation:
            self._generation = generation
            self._reload_tries_left = RELOAD_TRIES
        if not self._reload_tries_left:
            return
        self._reload_tries_left -= 1
        self.reload()
        self._reload_tries_left = 0

    def reload(self) -> None:
        """Read the catalog again; a catalog that does not fit the ledger is refused, and the old
        one is served on.

        Raises:
            DptopkError: naming what is wrong with the new catalog.
        """
        if self.catalog.path is None:
            raise InvalidParameter("catalog: it was not read from a file")
        catalog = load_catalog(self.catalog.path)
        # The databases that are open, and whether progress is written, were chosen by these.
        for name in ("ledger", "access", "key_file", "head_file", "answers_every"):
            if getattr(catalog, name) != getattr(self.catalog, name):
                raise InvalidParameter(f"catalog: a new {name} needs a restart")
        write_new_accounts(catalog, self.reports.ledger, self.tables)
        self._serve(catalog)

    def begin(
        self, spec: DatasetSpec, person: Person, key: str, question: PostedQuestion
    ) -> Spend | Future[Spend]:
        """Return the charge of a question that was answered before, or begin to answer it and
        return its charge to come.

        Args:
            spec: the data set.
            person: the sender.
            key: the idempotency key.
            question: the question.

        Raises:
            InvalidParameter: for conditions or segments that the data set does not offer.
            KeyUsed: when the key was used for another question.
            Cancelled, Busy: as ``submit``.
        """
        question.check(spec)
        spend = question.answerer(self).charge_of_key(spec, person.analyst, key, question)
        if spend is None:
            return self.submit(spec, person, key, question, charged=False)
        # While it runs, its outcome is still to be written, on a schedule perhaps.
        if spend.answer is None or self.is_running(person.analyst, spec.name, key):
            return self.submit(spec, person, key, question, charged=True)
        self.metrics.count_question(spec.name, "again")
        return spend

    def page_of(self, spec: DatasetSpec, seq: int, analyst: str) -> dict[str, Any] | None:
        """Return the answer to a charge as the service sends it, by the charge's entry in the
        ledger.

        It is None if there is no such charge, no answer, or the charge is not this analyst's.

        Args:
            spec: the data set.
            seq: the number of the charge's entry.
            analyst: the analyst who asks for the answer, in any spelling.
        """

        def read() -> tuple[str, dict[str, Any]]:
            """Return the name of the analyst who was charged, and the answer.

            Raises:
                LookupError: if there is no such charge or no answer, so that nothing is cached.
            """
            spend = self.reports.ledger.spend(spec.name, seq)
            if spend is None or spend.answer is None:
                raise LookupError
            return spend.analyst, self.page(spec, spend)

        try:
            owner, page = self.pages.get(("charge", spec.name, seq), read)
        except LookupError:
            return None
        if owner == canonical_name(analyst):
            return page
        return None

    def page(self, spec: DatasetSpec, spend: Spend) -> dict[str, Any]:
        """Return the answer to a charge as the service sends it, or the terms of the stream that
        was charged; neither ever changes, so that it is cached.

        Args:
            spec: the data set.
            spend: the charge.

        Raises:
            LedgerError: if the charge has no stored answer.
        """

        def read() -> dict[str, Any]:
            """Return the answer as the ledger has it."""
            answer = self.reports.ledger.answer(spend)
            if answer is None and "stream" in spend.mechanism:
                return sent_stream(spend, spec.name)
            if answer is None:
                raise LedgerError("this answer was not stored")
            return sent_answer(spend, answer, spec.name)

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
        """Begin to answer a question, or join the thread that answers it; return its charge to
        come.

        Args:
            spec: the data set.
            person: the sender.
            key: the idempotency key.
            question: the question.
            charged: whether the ledger held a charge under the key before this call.

        Raises:
            Cancelled: when the question was called off.
            KeyUsed: when a thread answers another question under this key, even one that was
                called off.
            Busy: when the analyst has too many questions under way, or has stored as much as the
                catalog allows.
        """
        job = job_of(person.analyst, spec.name, key)
        with self._lock:
            if job in self._running:
                first_question, running = self._running[job]
                if not question.equals_json(first_question.plain()):
                    raise KeyUsed(
                        "this idempotency key is in use for another question: take a new one"
                    )
                return running
            self.questions.refuse_more(person.analyst)
            self._refuse_full(person.analyst, charged=charged or question.paid)
            self.jobs.start(
                job,
                person.analyst,
                spec.name,
                charged=charged,
                cancellable=question.cancellable,
            )
            answering = partial(self._answer, spec, person, key, question, job, charged=charged)
            running = self.questions.submit(person.analyst, answering)
            self._running[job] = (question, running)
            running.add_done_callback(lambda ended: self._forget(job, ended))
        return running

    def _refuse_full(self, analyst: str, *, charged: bool) -> None:
        """Refuse an analyst who has written as much as the catalog allows.

        Args:
            analyst: the analyst.
            charged: whether the question was charged before, by itself or with the stream whose day
                it is. Its answer is stored however much the other answers take, since it is paid
                for.

        Raises:
            Busy: when the answers, or today's lines of the audit log, have reached their limit.
        """
        if not charged and self.tables.value(Tables.usage, analyst) >= self.catalog.storage:
            raise Busy(
                "your stored answers take as much room as the catalog allows (storage): "
                "ask its owner"
            )
        quotas = QUOTAS_OF_REPEATS if charged else 1
        if self.access.uncharged_bytes(analyst) >= quotas * self.catalog.audit_bytes:
            raise Busy(
                "your questions of today for which nothing was charged take as much room in the "
                "audit log as the catalog allows (audit.bytes): ask again tomorrow (UTC)"
            )

    def _sweep(self) -> None:
        """Delete old lines of the audit log, at most once in SWEEP_SECONDS."""
        now = time.monotonic()
        if now - self._swept > SWEEP_SECONDS:
            self._swept = now
            self.access.sweep(self.catalog.audit_days)

    def _repeat_regular_tasks(self) -> None:
        """Do the worker's regular tasks every HEARTBEAT_SECONDS, until the worker closes."""
        while not self._closed.wait(HEARTBEAT_SECONDS):
            self._do_regular_tasks()

    def _do_regular_tasks(self) -> None:
        """Give a sign of life, delete old lines of the audit log, and read the catalog again if an
        operator has asked for it; a task that fails is logged, and the others are done.
        """
        tasks = {
            "a sign of life failed": self._give_sign_of_life,
            "old lines of the audit log were not deleted": self._sweep,
            "the catalog was not read again": self.reload_if_asked,
        }
        for failure, task in tasks.items():
            try:
                task()
            except DptopkError as error:
                # The traceback would say no more than the message does.
                LOG.error("%s: %s", failure, error)  # noqa: TRY400
            except Exception as error:  # noqa: BLE001 - it may succeed the next time
                # A traceback may quote data.
                LOG.error("%s: %s", failure, error_place(error))  # noqa: TRY400

    def _give_sign_of_life(self) -> None:
        """Tell the other workers that this one still answers its questions."""
        with self._lock:
            jobs = list(self._running)
        if jobs:
            self.jobs.beat(jobs)

    def _forget(self, job: str, ended: Future[Spend]) -> None:
        """Remove a job whose thread has ended from the jobs that run in this worker."""
        with self._lock:
            _, future = self._running.get(job, (None, None))
            if future is ended:  # the job may have been begun again since
                del self._running[job]

    def _answer(
        self,
        spec: DatasetSpec,
        person: Person,
        key: str,
        question: PostedQuestion,
        job: str,
        *,
        charged: bool,
    ) -> Spend:
        """Answer a question, and return its charge.

        The question's line in the audit log is written before anything is charged. However it ends,
        the outcome is written afterwards into this line, into the job and into the metrics.

        Args:
            spec: the data set.
            person: the sender.
            key: the idempotency key.
            question: the question.
            job: the name of the question's job.
            charged: whether the ledger held a charge under the key before.

        Raises:
            DptopkError: as ``Answerer.ask`` of the question's answerer.
        """
        detail = {"question": question.plain(), "key": key, "job": job}
        line, line_bytes = self.access.begin_line(
            person.analyst, question.action, spec.name, detail
        )
        begun = BegunQuestion(
            analyst=person.analyst,
            dataset=spec.name,
            job=job,
            line=line,
            line_bytes=line_bytes,
            charged=charged,
        )
        ending = Ending()
        try:
            spend = question.answerer(self).ask(spec, person.analyst, key, question)
            stored_text = json.dumps([spend.mechanism, self.page(spec, spend)])
            ending = Ending.of_answer(len(stored_text))
        except DptopkError as error:
            ending = Ending.of_error(error)
            self.wait_for_schedule()
            raise
        except Exception as error:
            # A traceback may quote data.
            LOG.error("a question failed: %s", error_place(error))  # noqa: TRY400
            self.wait_for_schedule()
            raise
        else:
            return spend
        finally:
            self._write_ending(begun, ending)

    def _write_ending(self, begun: BegunQuestion, ending: Ending) -> None:
        """Write how a question ended into its line of the audit log, its job and the metrics.

        Args:
            begun: the question.
            ending: how it ended.
        """
        self.metrics.count_question(begun.dataset, ending.outcome)
        changes: list[Any] = [self.access.outcome_statement(begun.line, ending.outcome)]
        # What this call charged counts by its answer; what it did not, by its line of the log.
        if ending.answer_bytes and not begun.charged:
            stored = self.tables.add_statement(Tables.usage, begun.analyst, ending.answer_bytes)
            changes.append(stored)
        else:
            changes.append(self.access.uncharged_statement(begun.analyst, begun.line_bytes))
        if ending.stage != "cancelled":  # whoever called it off wrote that already
            ended = self.jobs.end_statement(begun.job, ending.stage, ending.code, ending.message)
            changes.append(ended)
        self.tables.change(*changes)

    def is_running(self, analyst: str, dataset: str, key: str) -> bool:
        """Return whether this worker is answering a question under a key.

        Args:
            analyst: the analyst who asks, in any spelling.
            dataset: the name of the data set.
            key: the idempotency key.
        """
        with self._lock:
            return job_of(analyst, dataset, key) in self._running

    def wait_for_schedule(self) -> None:
        """Wait for the next time at which answers are sent, if the catalog has a schedule
        for them.
        """
        period = self.catalog.answers_every
        if period:
            self.sleep(period - self.wall() % period)

    def shares(self) -> dict[str, dict[str, float]]:
        """Return for each data set the used share of each part of its budget."""
        return {name: self.reports.shares(name) for name in self.catalog.datasets}

    def databases_readable(self) -> bool:
        """Return whether the ledger and the access database can be read; one check holds for a
        second.
        """
        second = int(time.monotonic())
        checked_at, is_readable = self._health
        if checked_at == second:
            return is_readable
        try:
            self.reports.ledger.head()
            self.tables.value(Tables.settings, RELOAD)
            is_readable = True
        except Exception as error:  # noqa: BLE001 - a driver may raise anything
            LOG.error("not well: %s", error_place(error))  # noqa: TRY400
            is_readable = False
        self._health = (second, is_readable)
        return is_readable

    async def health(self) -> bool:
        """Return whether both databases can be read, without blocking the event loop.

        Only one check runs at a time, and a check of this second is not repeated.
        """
        checked_at, is_readable = self._health
        if checked_at == int(time.monotonic()):
            return is_readable
        if self._checking is None or self._checking.done():
            self._checking = self.logins.submit("health", self.databases_readable)
        return await asyncio.shield(asyncio.wrap_future(self._checking))

    def close(self) -> None:
        """Wait for questions that are being answered, and close the databases."""
        for turns in (self.questions, self.planning, self.work, self.logins, self.slow_logins):
            turns.close()
        self._closed.set()
        self.reports.ledger.close()
        self.tables.close()


def refuse_unfit(catalog: Catalog) -> None:
    """Refuse a catalog with which no worker could begin, by opening its databases as a worker does
    and closing them again.

    Raises:
        DptopkError: the error with which a worker would end.
    """
    tables = Tables(catalog.access)
    try:
        open_ledger(catalog, tables).close()
    finally:
        tables.close()


@dataclass(frozen=True, kw_only=True)
class BegunQuestion:
    """A question that a thread answers, as the audit log and the jobs know it.

    Attributes:
        analyst: the name of the analyst who asks.
        dataset: the name of the data set.
        job: the name of its job.
        line: the number of its line in the audit log.
        line_bytes: the size of that line.
        charged: whether it was charged before this thread began.
    """

    analyst: str
    dataset: str
    job: str
    line: int
    line_bytes: int
    charged: bool


@dataclass(frozen=True)
class Ending:
    """How a question ended; the defaults stand for an error that nobody foresaw.

    Attributes:
        stage: the last stage of its job: "done", "failed" or "cancelled".
        code: the error's type that its job shows; "" if there was none.
        message: the error's message that its job shows.
        answer_bytes: the size of the question and its stored answer; 0: there is none, and nothing
            was charged.
    """

    stage: str = "failed"
    code: str = "internal"
    message: str = "internal error"
    answer_bytes: int = 0

    @classmethod
    def of_answer(cls, answer_bytes: int) -> Ending:
        """Return the ending of a question that was answered.

        Args:
            answer_bytes: the size of the question and its stored answer.
        """
        return cls("done", "", "", answer_bytes)

    @classmethod
    def of_error(cls, error: DptopkError) -> Ending:
        """Return the ending of a question that failed with an error which the analyst may read."""
        stage = "cancelled" if isinstance(error, Cancelled) else "failed"
        return cls(stage, type(error).__name__, str(error))

    @property
    def outcome(self) -> str:
        """Return the word for the ending in the audit log and in the metrics."""
        if self.code == BudgetExceeded.__name__:
            return "refused"
        if self.stage == "done":
            return "answered"
        return self.stage


def error_place(error: BaseException) -> str:
    """Return the type of an error and where it was raised; its message is left out, since it may
    quote data.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = type(error).__name__
    if trace is None:
        return name
    return f"{name} at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
