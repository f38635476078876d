"""Hypothesis profiles: the same examples in every run, or new ones with
HYPOTHESIS_PROFILE=explore.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

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

# The files whose slow tests take longest, and those that wait for other processes, are begun first:
# else the last worker is left alone with one of them.
LONGEST = (
    "datasets/test_spark.py",
    "test_examples.py",
    "testing/test_check_mechanism.py",
    "accounting/setwise/test_certificates.py",
    "service/test_exactly_once.py",
    "datasets/test_events.py",
    "cli/test_guide.py",
    "session/test_events_session.py",
    "ledger/test_processes.py",
    "accounting/setwise/test_optimum.py",
    "audit/test_attest.py",
    "planning/test_search.py",
    "mechanisms/samplers/test_selection.py",
    "test_copies.py",
    "ledger/test_ahead.py",
    "service/test_schema.py",
    "planning/test_repeated.py",
    "budgets/test_adding_up.py",
    "experiments/test_papers.py",
    "service/test_postgresql.py",
    "ledger/test_witness.py",
    "cli/test_app.py",
    "datasets/test_odd_values.py",
    "service/test_page.py",
    "cli/test_interrupts.py",
    "service/test_non_interference.py",
    "test_types.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first; a study is slow too, so that no run takes it for a
    quick test.
    """
    for item in items:
        if item.get_closest_marker("study"):
            item.add_marker("slow")
    tests = Path(__file__).parent
    places = {tests / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A clock that goes 0.1 s at each look: guards without the machine. Called, it tells the looks
    so far.
    """
    looks = itertools.count()
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + next(looks) / 10)
    return lambda: next(looks)
