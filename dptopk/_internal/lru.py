"""A cache of results that are functions of their keys alone, so that none is ever out of date."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class LRUCache(Generic[Value]):
    """The results that were asked for most recently, for all threads of a worker.

    Args:
        size: how many results stay in memory.
    """

    def __init__(self, size: int) -> None:
        """Make an empty cache.

        Args:
            size: how many results stay in memory, the oldest going first.
        """
        self._size = size
        self._results: OrderedDict[Hashable, Value] = OrderedDict()
        self._key_locks: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the result for a key; threads that ask for one key at the same time make it once.

        Args:
            key: the key; equal keys have equal results.
            make: a function that makes the result if the cache has none.

        Raises:
            Exception: whatever ``make`` raises; then nothing is stored, and a thread that waits for
                the same key makes the result again.
        """
        # A lock for each key, so that making one result does not hold up the others.
        with self._lock:
            key_lock = self._key_locks.setdefault(key, threading.Lock())
        with key_lock:
            with self._lock:
                if key in self._results:
                    self._key_locks.pop(key, None)
                    self._results.move_to_end(key)
                    return self._results[key]
            try:
                value = make()
            except BaseException:
                with self._lock:
                    self._key_locks.pop(key, None)
                raise
            with self._lock:
                self._key_locks.pop(key, None)
                self._results[key] = value
                if len(self._results) > self._size:
                    self._results.popitem(last=False)
            return value
