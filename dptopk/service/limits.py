"""How many requests a token may make: a bucket that fills steadily, in each worker by itself."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MOST = 10_000  # buckets kept


class Rates:
    """Buckets by name, each for so many requests a second, and as many at once as come in BURST seconds.

    Args:
        clock: seconds that never go back.
    """

    BURST = 4.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # name -> requests left, when
        self._lock = threading.Lock()

    def wait(self, name: str, per_second: float) -> float:
        """Take one request out of a bucket: 0, or the seconds until there will be one, and nothing is taken."""
        full = max(1.0, per_second * self.BURST)
        with self._lock:
            now = self._clock()
            left, since = self._buckets.pop(name, (full, now))
            left = min(full, left + (now - since) * per_second)
            allowed = left >= 1
            self._buckets[name] = (left - 1 if allowed else left, now)
            while len(self._buckets) > MOST:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / per_second
