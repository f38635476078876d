"""Everything that one worker of the service holds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dptopk._internal.lru import LRUCache
from dptopk.errors import BudgetExceeded, DptopkError
from dptopk.ledger.spends import Spend
from dptopk.service.access import Access, Person
from dptopk.service.asking import Asker, KeyUsed, job_of
from dptopk.service.books import Books, opened
from dptopk.service.catalog import Catalog, DatasetSpec
from dptopk.service.data import Histograms
from dptopk.service.jobs import BEAT, Cancelled, Jobs
from dptopk.service.limits import Rates
from dptopk.service.metrics import Metrics
from dptopk.service.questions import Plans, Question, Run
from dptopk.service.tables import Tables

LOG = logging.getLogger("dptopk.service")
PAGES = 256  # previews and answers, as they leave
AT_ONCE = 16  # questions that one worker answers at the same time


@dataclass
class Service:
    """One worker: the catalog, open databases, caches, threads.

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

    def __post_init__(self) -> None:
        self.tables = Tables(self.catalog.access)
        self.access = Access(self.tables)
        self.jobs = Jobs(self.tables, visible=not self.catalog.answers_every)
        self.books = Books(opened(self.catalog))
        self.plans = Plans()
        self.pages: LRUCache[Any] = LRUCache(PAGES)
        self.asker = Asker(self.books.ledger, Histograms(), self.plans, self.jobs)
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="question")
        self._running: dict[str, tuple[Question, Future[Spend]]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        threading.Thread(target=self._beat, name="signs of life", daemon=True).start()

    def submit(
        self, spec: DatasetSpec, person: Person, key: str, question: Question, *, charged: bool
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
        """
        job = job_of(person.analyst, spec.name, key)
        with self._lock:
            asked, running = self._running.get(job, (question, None))
            if not question.is_that(asked.plain()):
                raise KeyUsed("this idempotency key is in use for another question: take a new one")
            if running is None:
                self.jobs.start(job, person.analyst, spec.name, charged=charged)
                running = self._pool.submit(self._answer, spec, person, key, question, job)
                self._running[job] = question, running
                running.add_done_callback(lambda done: self._forget(job, done))
        return running

    def _beat(self) -> None:
        """Show the other workers that this one is still at its questions."""
        while not self._closed.wait(BEAT):
            with self._lock:
                jobs = list(self._running)
            try:
                if jobs:
                    self.jobs.beat(jobs)
            except Exception as error:  # noqa: BLE001 - the next beat may succeed; the questions themselves say more
                LOG.error("a sign of life failed: %s", place(error))  # noqa: TRY400 - a traceback may quote data

    def _forget(self, job: str, done: Future[Spend]) -> None:
        with self._lock:
            if self._running.get(job, (None, None))[1] is done:
                del self._running[job]

    def _answer(self, spec: DatasetSpec, person: Person, key: str, question: Question, job: str) -> Spend:
        stage, code, message = "failed", "internal", "internal error"
        try:
            spend = self.asker.ask(spec, person.analyst, key, question)
            stage, code, message = "done", "", ""
        except DptopkError as error:
            stage = "cancelled" if isinstance(error, Cancelled) else "failed"
            code, message = type(error).__name__, str(error)
            raise
        except Exception as error:
            LOG.error("a question failed: %s", place(error))  # noqa: TRY400 - a traceback may quote data
            raise
        else:
            return spend
        finally:
            self._hold()
            outcome = {"done": "answered", "cancelled": "cancelled"}.get(stage, "failed")
            outcome = "refused" if code == BudgetExceeded.__name__ else outcome
            self.metrics.question(spec.name, outcome)
            action = "run" if isinstance(question, Run) else "topk"
            detail = {"question": question.plain(), "key": key, "job": job}
            self.access.note(person.analyst, action, spec.name, outcome, detail)
            if stage != "cancelled":  # that is written already
                self.jobs.end(job, stage, code, message)

    def running(self, analyst: str, dataset: str, key: str) -> bool:
        """Whether this worker is at a question: its answer leaves when its thread lets it."""
        with self._lock:
            return job_of(analyst, dataset, key) in self._running

    def _hold(self) -> None:
        """Wait for the next time at which answers leave."""
        every = self.catalog.answers_every
        if every:
            self.sleep(every - self.wall() % every)

    def shares(self) -> dict[str, dict[str, float]]:
        """What is used of every data set's budget."""
        return {name: self.books.shares(name) for name in self.catalog.datasets}

    def close(self) -> None:
        """Wait for questions that are being answered, and close the databases."""
        self._pool.shutdown(wait=True)
        self._closed.set()
        self.books.ledger.close()
        self.tables.close()


def place(error: BaseException) -> str:
    """The type of an error and where it was raised; never its message, which may quote data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}"
