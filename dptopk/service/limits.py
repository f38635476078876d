"""Limits for one person: requests per second, threads, and how many requests are open at once."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from dptopk._internal.lru import LRUCache
from dptopk.errors import DptopkError

# So many names are remembered. A name that is forgotten begins with a full bucket, as a new one.
MOST_BUCKETS = 10_000


class Busy(DptopkError):
    """The sender has as many requests under way as one person may have; the same request can be
    sent again later.
    """


@dataclass
class _Bucket:
    """The units that one sender may still use.

    Attributes:
        units: how many were left at a moment; negative: a debt.
        at: this moment, in seconds of the clock.
    """

    units: float
    at: float


class Rates:
    """Token buckets, one for each name: a bucket gains so many units a second, until it is full
    with the units of BURST seconds.

    Args:
        clock: a function that returns seconds that never go back.
    """

    BURST = 4.0  # seconds: a page that sends a dozen requests at once is not slowed down

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[_Bucket] = LRUCache(MOST_BUCKETS)  # by name
        self._lock = threading.Lock()

    def take(self, name: str, per_second: float, cost: float = 1.0) -> float:
        """Take units out of a bucket if at least one is left; return the seconds to wait, 0 if they
        were taken.

        If less than one unit is left, nothing is taken, and the seconds are those until there will
        be one. A request that costs more than is left is allowed, and leaves a debt to be filled
        first.

        Args:
            name: the name of the bucket.
            per_second: how many units it gains in a second.
            cost: how many units the request takes.
        """
        full = max(1.0, per_second * self.BURST)  # a request needs one unit to be allowed
        with self._lock:
            now = self._clock()
            bucket = self._buckets.get(name, lambda: _Bucket(full, now))
            gained = (now - bucket.at) * per_second
            units = min(full, bucket.units + gained)
            bucket.at = now
            if units >= 1:
                bucket.units = units - cost
                return 0.0
            bucket.units = units
        return (1 - units) / per_second


@dataclass(frozen=True)
class _Piece:
    """A piece of work that waits for a thread.

    Attributes:
        who: the person whose work it is.
        work: the function that does it.
        future: its result to come.
    """

    who: str
    work: Callable[[], Any]
    future: Future[Any]


class Turns:
    """Threads that several people share: the person who has waited longest is next, however much
    anybody else asks for.

    Args:
        threads: how many threads there are.
        per_person: how many of them one person may have at a time.
        at_most: how many pieces of work of one person may wait or run.
    """

    def __init__(self, threads: int, *, per_person: int, at_most: int) -> None:
        self._per_person = per_person
        self._at_most = at_most
        # person -> their pieces of work; the person whose turn is next comes first
        self._waiting: OrderedDict[str, deque[_Piece]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._pool = ThreadPoolExecutor(threads)

    def refuse_more(self, who: str) -> None:
        """Refuse a person who has as much under way as one person may have.

        Raises:
            Busy: when ``at_most`` pieces of the person's work wait or run.
        """
        with self._lock:
            if len(self._waiting.get(who, ())) + self._running[who] >= self._at_most:
                raise Busy(f"{self._at_most} requests of yours are under way: wait for one of them")

    def submit(self, who: str, work: Callable[[], Any]) -> Future[Any]:
        """Queue a piece of work of a person, and return its result to come.

        Raises:
            Busy: when the person has too much under way.
        """
        piece = _Piece(who, work, Future())
        with self._lock:
            self.refuse_more(who)
            self._waiting.setdefault(who, deque()).append(piece)
        self._pool.submit(self._do_pieces)
        return piece.future

    def _do_pieces(self) -> None:
        """Do pieces of work, one after the other, until none may run now.

        A piece that must wait, since its sender has as many threads as one person may have, is done
        later by one of those threads: each looks for more work when it has finished.
        """
        while True:
            piece = self._next_piece()
            if piece is None:
                return
            if not piece.future.set_running_or_notify_cancel():  # nobody waits for it any more
                self._count_end(piece.who)
                continue
            # The end is counted first: whoever sees the result may submit the next piece at once.
            try:
                result = piece.work()
            except BaseException as error:  # noqa: BLE001 - the sender waits for an end
                self._count_end(piece.who)
                piece.future.set_exception(error)
            else:
                self._count_end(piece.who)
                piece.future.set_result(result)

    def _next_piece(self) -> _Piece | None:
        """Remove and return the first piece of work of the next person who may have a thread, and
        count it as running; None if no piece may run now. That person is last from now on.
        """
        with self._lock:
            who = self._next_person()
            if who is None:
                return None
            pieces = self._waiting.pop(who)
            piece = pieces.popleft()
            if pieces:
                self._waiting[who] = pieces
            self._running[who] += 1
        return piece

    def _next_person(self) -> str | None:
        """Return the person whose turn is next, of those who may have one more thread; None if
        nobody may. The caller holds the lock.
        """
        for who in self._waiting:
            if self._running[who] < self._per_person:
                return who
        return None

    def _count_end(self, who: str) -> None:
        """Record that a piece of work of a person runs no more."""
        with self._lock:
            self._running[who] -= 1
            if not self._running[who]:
                del self._running[who]

    def close(self) -> None:
        """Wait for all work, and end the threads."""
        self._pool.shutdown(wait=True)


class Open:
    """How many requests, and how many event streams, each person has open.

    Only the thread of the event loop uses it, so that no lock is needed.
    """

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def enter(self, name: str, at_most: int) -> None:
        """Count one more open request, or stream, under a name.

        Args:
            name: the person, and what is counted.
            at_most: how many may be open at a time.

        Raises:
            Busy: when ``at_most`` are open already.
        """
        if self._count[name] >= at_most:
            raise Busy(f"{at_most} requests of yours are open: end one of them first")
        self._count[name] += 1

    def leave(self, name: str) -> None:
        """Count one open request, or stream, less under a name."""
        self._count[name] -= 1
        if not self._count[name]:
            del self._count[name]
