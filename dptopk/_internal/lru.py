"""Results that are kept: each is a function of its key alone, so that none is ever out of date."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The results asked for most recently, for all threads of a worker.

    Args:
        at_most: how many are kept.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._held: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result of ``make`` for a key, made now or before; two threads may both make it."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = make()
        with self._lock:
            kept = self._held.setdefault(key, made)
            while len(self._held) > self._at_most:
                self._held.popitem(last=False)
        return kept
