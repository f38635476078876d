"""One durable commit of the ledger for all that are ready to write: they wait for one disk, not in
line for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from dptopk.errors import DptopkError
from dptopk.ledger.journal import REFUSALS
from dptopk.ledger.ledger import Ledger


class Commits:
    """Writes of several threads in one transaction: who comes while it commits is part of the next
    one.

    Args:
        ledger: open.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._journal = ledger._journal  # noqa: SLF001
        self._waiting: list[tuple[Future[None], Callable[[], object]]] = []
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def do(self, work: Callable[[], object]) -> None:
        """Write to the ledger, and wait until it is durable; raises what ``work`` raises.

        A charge in ``work`` is durable when this returns: no noise may be drawn for it before. What
        is refused leaves the others alone; any other error undoes the whole transaction, and all
        are told.
        """
        mine: Future[None] = Future()
        with self._lock:
            self._waiting.append((mine, work))
        with self._turn:
            if not mine.done():
                with self._lock:
                    batch = self._waiting
                    self._waiting = []
                self._commit(batch)
        mine.result()

    def _commit(self, batch: list[tuple[Future[None], Callable[[], object]]]) -> None:
        refused: dict[Future[None], DptopkError] = {}
        try:
            with self._journal.write():
                for future, work in batch:
                    try:
                        with self._journal.write():
                            work()
                    except REFUSALS as error:
                        refused[future] = error
        except BaseException as error:  # noqa: BLE001
            for future, _ in batch:
                future.set_exception(error)
            return
        for future, _ in batch:
            future.set_exception(refused[future]) if future in refused else future.set_result(None)
