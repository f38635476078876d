"""Hypothesis profiles: the same examples in every run, or new ones with
HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

# Nothing may depend on how busy the machine is: no deadline, and slow drawing is no failure.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", settings.get_profile("repeatable"), derandomize=False, max_examples=200
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A clock that goes 0.1 s at each look: guards without the machine. Called, it tells the looks
    so far.
    """
    looks = itertools.count()
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + next(looks) / 10)
    return lambda: next(looks)
