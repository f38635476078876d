"""The cache: the least recently used goes, and threads that ask at the same time make a result
once.
"""

from __future__ import annotations

import threading

import pytest

from dptopk._internal.lru import LRUCache


def test_least_recently_used_goes():
    made = []
    cache = LRUCache(2)
    for key in "abacab":
        assert cache.get(key, lambda key=key: made.append(key) or key.upper()) == key.upper()
    assert made == ["a", "b", "c", "b"]


def test_made_once_by_threads_that_ask_together():
    cache, entered, go, made = LRUCache(4), threading.Event(), threading.Event(), []

    def make():
        entered.set()
        assert go.wait(10)
        made.append(1)
        return len(made)

    found = []
    threads = [
        threading.Thread(target=lambda: found.append(cache.get("key", make))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    assert cache.get("other", lambda: "other") == "other"  # another key does not wait
    go.set()
    for thread in threads:
        thread.join(10)
    assert found == [1, 1, 1, 1]


def test_failure_is_tried_again():
    cache = LRUCache(1)
    with pytest.raises(ZeroDivisionError):
        cache.get("key", lambda: 1 / 0)
    assert cache.get("key", lambda: 2) == 2
    assert cache.get(None, lambda: None) is cache.get(None, lambda: 1)


def test_failures_leave_nothing_behind():
    """Keys whose results cannot be made are not bounded by the size."""
    cache = LRUCache(2)
    for key in range(20):
        with pytest.raises(ZeroDivisionError):
            cache.get(key, lambda: 1 / 0)
    assert not cache._key_locks
    assert not cache._results
