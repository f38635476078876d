"""Limits for one person: requests per second, threads in turn, concurrent requests and streams."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dptopk._internal.lru import LRUCache
from dptopk.errors import DptopkError

MOST_BUCKETS = 10_000  # buckets that are remembered


class Busy(DptopkError):
    """The sender has as much under way as one person may have; what is asked again later is
    taken.
    """


class Rates:
    """Token buckets by name, refilled in units per second; the burst capacity is BURST seconds of
    units.

    Args:
        clock: seconds that never go back.
    """

    BURST = 4.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[list[float]] = LRUCache(MOST_BUCKETS)  # name -> units left, when
        self._lock = threading.Lock()

    def wait(self, name: str, per_second: float, cost: float = 1.0) -> float:
        """Take units out of a bucket: 0, or the seconds until one will be there, and nothing is
        taken.

        What costs more than is left leaves a debt, which the bucket fills first.
        """
        full = max(1.0, per_second * self.BURST)
        with self._lock:
            now = self._clock()
            bucket = self._buckets.get(name, lambda: [full, now])
            left = min(full, bucket[0] + (now - bucket[1]) * per_second)
            allowed = left >= 1
            bucket[:] = left - cost if allowed else left, now
        if allowed:
            return 0.0
        return (1 - left) / per_second


Piece = tuple[Future[Any], Callable[[], Any]]  # of work: what becomes of it, and what to do


class Turns:
    """Threads that several people share: who waits longest is next, however much anybody else asks
    for.

    Args:
        threads: how many.
        each: of them that one person may have at a time.
        at_most: pieces of work of one person, those that wait and those that run.
    """

    def __init__(self, threads: int, *, each: int, at_most: int) -> None:
        self._each = each
        self._at_most = at_most
        self._waiting: OrderedDict[str, deque[Piece]] = OrderedDict()  # next one first
        self._running: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(threads)

    def refuse_more(self, who: str) -> None:
        """Refuse a person for whom there is no room.

        Raises:
            Busy: when there is none.
        """
        with self._lock:
            if len(self._waiting.get(who, ())) + self._running[who] >= self._at_most:
                raise Busy(f"{self._at_most} requests of yours are under way: wait for one of them")

    def submit(self, who: str, work: Callable[[], Any]) -> Future[Any]:
        """Do a piece of work when it is its turn.

        Raises:
            Busy: when the person has too much under way.
        """
        future: Future[Any] = Future()
        with self._lock:
            self.refuse_more(who)
            self._waiting.setdefault(who, deque()).append((future, work))
        self._pool.submit(self._work)
        return future

    def _work(self) -> None:
        """Do what may be done now; what waits for another piece of its sender's is done by that
        one's thread.
        """
        while (job := self._take()) is not None:
            who, future, work = job
            if not future.set_running_or_notify_cancel():  # nobody waits for it any more
                self._end(who)
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001
                self._end(who)
                future.set_exception(error)
            else:
                self._end(who)
                future.set_result(result)

    def _take(self) -> tuple[str, Future[Any], Callable[[], Any]] | None:
        """The first piece of work of the next person who may have a thread; that person is last
        from now on.
        """
        with self._lock:
            who = next((name for name in self._waiting if self._running[name] < self._each), None)
            if who is None:
                return None
            mine = self._waiting.pop(who)
            future, work = mine.popleft()
            if mine:
                self._waiting[who] = mine
            self._running[who] += 1
        return who, future, work

    def _end(self, who: str) -> None:
        with self._lock:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]

    def close(self) -> None:
        """Wait for all work."""
        self._pool.shutdown(wait=True)


class Open:
    """Number of open requests and streams of each person, by name."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def enter(self, name: str, at_most: int) -> None:
        """One more; called by one thread alone, as ``leave`` is.

        Raises:
            Busy: when there are as many as there may be.
        """
        if self._count[name] >= at_most:
            raise Busy(f"{at_most} requests of yours are open: end one of them first")
        self._count[name] += 1

    def leave(self, name: str) -> None:
        """One less."""
        self._count[name] -= 1
        if not self._count[name]:
            del self._count[name]
