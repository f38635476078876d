"""Shared commits: several threads write to the ledger in one transaction and wait for the
disk once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from dptopk.errors import DptopkError
from dptopk.ledger.journal import REFUSALS
from dptopk.ledger.ledger import Ledger


@dataclass(frozen=True)
class _Write:
    """A write that waits for its commit.

    Attributes:
        outcome: what the thread waits for: None, or the error of the write.
        work: the function that writes.
    """

    outcome: Future[None]
    work: Callable[[], object]


class Commits:
    """Writes of several threads in one transaction; a write that comes while it commits is part of
    the next one.

    Args:
        ledger: the open ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._journal = ledger._journal  # noqa: SLF001
        self._waiting: list[_Write] = []
        self._lock = threading.Lock()  # for the list of what waits
        self._turn = threading.Lock()  # held by the one thread that commits

    def do(self, work: Callable[[], object]) -> None:
        """Write to the ledger and wait until it is durable; an error of ``work`` is raised.

        A charge in ``work`` is durable when this returns: no noise may be drawn for it before. A
        refusal does not affect the other writes. Any other error undoes the whole transaction, and
        is raised in each of its threads.

        Args:
            work: the function that writes, such as a call of ``Ledger.charge``.

        Raises:
            DptopkError: the refusal of ``work``, after which nothing of it was written.
            BaseException: any other error of a write in the same transaction.
        """
        outcome: Future[None] = Future()
        with self._lock:
            self._waiting.append(_Write(outcome, work))
        with self._turn:
            # Another thread may have committed this write with its own, while this one waited.
            if not outcome.done():
                with self._lock:
                    batch = self._waiting
                    self._waiting = []
                self._commit(batch)
        outcome.result()

    def _commit(self, batch: list[_Write]) -> None:
        """Write a batch in one transaction, and set the outcome of each write."""
        try:
            with self._journal.write():
                refusals = [self._refusal_of(write.work) for write in batch]
        except BaseException as error:  # noqa: BLE001 - each caller waits for an end
            for write in batch:
                write.outcome.set_exception(error)
            return
        for write, refusal in zip(batch, refusals, strict=True):
            if refusal is None:
                write.outcome.set_result(None)
            else:
                write.outcome.set_exception(refusal)

    def _refusal_of(self, work: Callable[[], object]) -> DptopkError | None:
        """Do one write of a batch inside its transaction; return its refusal, None if it has none.

        An inner ``write`` lets a refusal pass without failing the outer one.
        """
        try:
            with self._journal.write():
                work()
        except REFUSALS as error:
            return error
        return None
