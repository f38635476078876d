"""A plan with centred counts in a ledger: its two pairs are charged, refunded, and kept through a
crash.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dptopk import Budget, Charge, DiscreteGaussianDP, Histogram, Ledger, Session, plan_topk
from dptopk.errors import BudgetExceeded
from dptopk.mechanisms import Centred

K, FOUND = 5, 2
METHOD = "Gumbel, then centred Gaussian counts"
# Two labels are far above any threshold, the others far below: how many rows come out is certain
# but for 1e-9.
COUNTS = [10**6, 9 * 10**5, *[1] * 20]
CRASH = """
import os, sys
from fractions import Fraction
from dptopk import Histogram, Ledger, Session
from dptopk.mechanisms import Centred, CountMLE, KnownGaussian
Centred.measure_repeatedly = lambda *_, **__: os._exit(9)  # the machine stops after the charge, before noise is drawn
session = Session(Histogram(range({n}), {counts}), ledger=Ledger(sys.argv[1]), dataset="d", analyst="a")
session.run({counting!r}, ranking={ranking})
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.mark.slow
def test_a_plan_with_centred_counts_is_charged_kept_and_refunded(path):
    plan = plan_topk(K, Budget(1, 1e-6), method=METHOD)
    noise = plan.mechanisms[1].noise
    assert isinstance(noise, Centred)
    own, common = (DiscreteGaussianDP(part.sigma, 1) for part in (noise.noise, noise.common))
    assert (plan.charge.costs[own], plan.charge.costs[common]) == (K, 1)
    Ledger(path).create_dataset("d", registered=plan.charge.times(3), delta=1e-5)
    histogram = Histogram(range(len(COUNTS)), COUNTS)

    first = _session(path, histogram).run(plan)
    assert len(first) == FOUND
    assert (first.charge.costs[own], first.charge.costs[common]) == (FOUND, 1)
    again = Ledger(path)
    assert again.spent("d").costs == first.charge.costs
    assert again.remaining("d").costs[own] == 3 * K - FOUND

    counting = plan.mechanisms[1]
    code = CRASH.format(n=len(COUNTS), counts=COUNTS, counting=counting, ranking=list(first.labels))
    died = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, check=False, timeout=300
    )
    assert died.returncode == 9, died.stderr
    again, lost = Ledger(path), counting.charge(histogram.sensitivity, labels=FOUND)
    assert again.spent("d").costs == Charge.join(first.charge, lost).costs  # nothing comes back
    assert again.verify()

    averaged = _session(path, histogram).run(plan, average=True)
    assert "means of 2 measurements" in averaged.note
    assert (averaged.charge.costs[own], averaged.charge.costs[common]) == (
        2 * FOUND,
        1,
    )  # Z twice, Y once
    assert Ledger(path).spent("d").costs[own] == 4 * FOUND
    with pytest.raises(BudgetExceeded):  # three Y were registered, and drawn or lost
        _session(path, histogram).run(plan)
    assert Ledger(path).spent("d").costs == Charge.join(first.charge, lost, averaged.charge).costs
    assert Ledger(path).verify()


def _session(path: Path, histogram: Histogram) -> Session:
    return Session(histogram, ledger=Ledger(path), dataset="d", analyst="a")
