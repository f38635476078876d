"""Shared commits: several threads write to the ledger in one transaction and wait for the
disk once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from dptopk.errors import DptopkError
from dptopk.ledger.journal import REFUSALS
from dptopk.ledger.ledger import Ledger


class Commits:
    """Writes of several threads in one transaction; a write that comes while it commits is part of
    the next one.

    Args:
        ledger: the open ledger.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._journal = ledger._journal  # noqa: SLF001
        self._waiting: list[tuple[Future[None], Callable[[], object]]] = []
        self._lock = threading.Lock()  # for the list of what waits
        self._turn = threading.Lock()  # held by the one thread that commits

    def do(self, work: Callable[[], object]) -> None:
        """Write to the ledger and wait until it is durable; an error of ``work`` is raised.

        A charge in ``work`` is durable when this returns: no noise may be drawn for it before. A
        refusal does not affect the other writes. Any other error undoes the whole transaction, and
        is raised in each of its threads.

        Args:
            work: the function that writes, such as a call of ``Ledger.charge``.
        """
        outcome: Future[None] = Future()
        with self._lock:
            self._waiting.append((outcome, work))
        with self._turn:
            # Another thread may have committed this write with its own, while this one waited.
            if not outcome.done():
                with self._lock:
                    batch = self._waiting
                    self._waiting = []
                self._commit(batch)
        outcome.result()

    def _commit(self, batch: list[tuple[Future[None], Callable[[], object]]]) -> None:
        """Write a batch in one transaction, and set the result of each future."""
        refusals: dict[Future[None], DptopkError] = {}
        try:
            with self._journal.write():
                for future, work in batch:
                    try:
                        # An inner ``write`` lets a refusal pass without failing the outer one.
                        with self._journal.write():
                            work()
                    except REFUSALS as error:
                        refusals[future] = error
        except BaseException as error:  # noqa: BLE001 - each caller waits for an end
            for future, _ in batch:
                future.set_exception(error)
            return
        for future, _ in batch:
            if future in refusals:
                future.set_exception(refusals[future])
            else:
                future.set_result(None)
