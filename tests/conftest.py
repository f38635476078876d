"""Hypothesis profiles: the same examples in every run, or new ones with HYPOTHESIS_PROFILE=explore."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A clock that goes 0.1 s at each look: deadlines without the machine. Called, it tells the looks so far."""
    looks = itertools.count()
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + next(looks) / 10)
    return lambda: next(looks)
