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
        """Store nothing yet.

        Args:
            size: how many results stay in memory, the oldest going first.
        """
        self._size = size
        self._held: OrderedDict[Hashable, Value] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the result of ``make`` for a key; threads that ask for one key at the same time
        make it once.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._held:
                    self._making.pop(key, None)
                    self._held.move_to_end(key)
                    return self._held[key]
            value = make()
            with self._lock:
                self._making.pop(key, None)
                self._held[key] = value
                if len(self._held) > self._size:
                    self._held.popitem(last=False)
            return value
