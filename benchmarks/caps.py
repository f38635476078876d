"""What a cap costs: the loss of one phase and of two against the true counts, on four made-up tables of events.

    python -m benchmarks.caps    # the table of docs/events.md; with --shares what the default was chosen by

Loss: root mean square error of the shown counts against the true (uncapped) counts, plus the count missed per row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import pandas as pd

from dptopk import Budget, Histogram, Sensitivity, plan_topk
from dptopk.datasets import EventCounts, make_events
from dptopk.planning import Plan, plan_two_phases
from dptopk.planning.two_phase import Find

BUDGET = Budget(1.0, 1e-6)
RANKS, CAPS, SHARES = (10, 25, 100), (1, 2, 5, 10, 20, 60), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
DRAWS = 20


def worlds() -> Iterator[tuple[str, pd.DataFrame]]:
    """Tables of distinct pairs (user, item)."""
    with TemporaryDirectory() as folder:
        make_events(path := Path(folder) / "e.parquet", events=200_000, users=8_000, items=2_000, seed=1)
        made = pd.read_parquet(path).drop_duplicates(["member", "article"])
        items = made["article"].astype(str).str[-4:].astype(int)
        yield "make_events", pd.DataFrame({"user": made["member"], "item": items})
    rng = np.random.default_rng(7)
    yield "geometric", _drawn(rng, rng.geometric(1 / 12, 12_000), 3_000, 1.0)
    yield "few users", _drawn(rng, rng.geometric(1 / 10, 3_000), 500, 0.8)
    yield "heavy tail", _drawn(rng, np.minimum(1 + rng.pareto(1.1, 30_000) * 2, 500).astype(int), 5_000, 0.9)


def _drawn(rng: np.random.Generator, degrees: np.ndarray, items: int, exponent: float) -> pd.DataFrame:
    """Users with about so many labels each, of Zipf popularity."""
    law = np.cumsum(np.arange(1, items + 1) ** -exponent)
    item = np.searchsorted(law, rng.random(degrees.sum()) * law[-1])
    return pd.DataFrame({"user": np.repeat(np.arange(len(degrees)), degrees), "item": item}).drop_duplicates()


def both(pairs: pd.DataFrame, cap: int | None, rng: np.random.Generator) -> EventCounts:
    """The two histograms; each user's labels under the cap by coins."""
    true = pairs["item"].value_counts().sort_index()
    place = pd.Series(rng.random(len(pairs)), index=pairs.index).groupby(pairs["user"]).rank()
    capped = pairs["item"][place <= (cap or np.inf)].value_counts().sort_index()
    everything = Histogram(true.index.to_numpy(), true.to_numpy())
    return EventCounts.beside(
        everything, Histogram(capped.index.to_numpy(), capped.to_numpy(), sensitivity=Sensitivity(l0=cap), capped=True)
    )


def loss(plan, histogram, true: Histogram, k: int) -> float:
    """The mean over DRAWS answers."""
    rng, top, squares, missed = np.random.default_rng(3), np.sort(true.counts)[::-1][:k].sum(), [], 0.0
    for _ in range(DRAWS):
        answer = plan.release(histogram, rng)
        there = true.count_of(list(answer.labels))
        squares += ((answer.counts - there) ** 2).tolist()
        missed += max(top - there.sum(), 0) / k / DRAWS
    return float(np.sqrt(np.mean(squares)) + missed) if squares else missed


@cache
def one_phase(k: int, cap: int | None) -> Plan:
    """Today's default design at a cap."""
    return plan_topk(k, BUDGET, sensitivity=Sensitivity(l0=cap))


@cache
def two_phases(k: int, cap: int, find: Find, share: float | Literal["auto"]) -> Plan:
    """Labels found under a cap, counted without one."""
    return plan_two_phases(k, BUDGET, labels_per_user=cap, find=find, share=share)


def main(shares: bool) -> None:
    """Print a line for each world, k and way."""
    rng = np.random.default_rng(11)
    ways = list(product(("threshold", "coins"), SHARES)) if shares else [("auto", "auto")]
    for name, pairs in worlds():
        made = {cap: both(pairs, cap, rng) for cap in (*CAPS, None)}
        for k in RANKS:
            if not shares:
                told = [loss(one_phase(k, cap), each.under_cap, each, k) for cap, each in made.items()]
                print(f"| {name} | {k} | one phase |", " | ".join(f"{x:.3g}" for x in told), "|", flush=True)
            for way in ways:
                told = [loss(two_phases(k, cap, *way), made[cap], made[cap], k) for cap in CAPS]
                words = " | ".join(f"{x:.3g}" for x in told)
                print(f"| {name} | {k} | {' '.join(map(str, way))} | {words} | |", flush=True)


if __name__ == "__main__":
    main("--shares" in sys.argv)
