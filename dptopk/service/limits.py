"""How many requests a token may make: a bucket that fills steadily, in each worker by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dptopk._internal.lru import LRUCache

MOST_BUCKETS = 10_000  # buckets kept


class Rates:
    """Buckets by name, each for so many requests a second, and as many at once as come in BURST seconds.

    Args:
        clock: seconds that never go back.
    """

    BURST = 4.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: LRUCache[list[float]] = LRUCache(MOST_BUCKETS)  # name -> requests left, when
        self._lock = threading.Lock()

    def wait(self, name: str, per_second: float) -> float:
        """Take one request out of a bucket: 0, or the seconds until there will be one, and nothing is taken."""
        full = max(1.0, per_second * self.BURST)
        with self._lock:
            now = self._clock()
            bucket = self._buckets.get(name, lambda: [full, now])
            left = min(full, bucket[0] + (now - bucket[1]) * per_second)
            allowed = left >= 1
            bucket[:] = left - 1 if allowed else left, now
        return 0.0 if allowed else (1 - left) / per_second
