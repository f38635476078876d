"""What a cap costs: the loss of one phase and of two against the true counts, on four made-up tables of events.

    python -m benchmarks.caps [--shares]    # rows of the tables in docs/events.md, and with --shares those behind the choice

Loss: root mean square error of the shown counts against the true (uncapped) counts, plus the count missed per row.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from dptopk import Budget, Histogram, Sensitivity, plan_topk
from dptopk.datasets import EventCounts, make_events
from dptopk.planning import plan_two_phases

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


def main(shares: bool) -> None:
    """Print a line for each world, k and way."""
    rng = np.random.default_rng(11)
    for name, pairs in worlds():
        made = {cap: both(pairs, cap, rng) for cap in (*CAPS, None)}
        for k in RANKS:
            if not shares:
                plans = {cap: plan_topk(k, BUDGET, sensitivity=made[cap].under_cap.sensitivity) for cap in made}
                told = [loss(plans[cap], each.under_cap, each, k) for cap, each in made.items()]
                print(f"| {name} | {k} | one phase |", " | ".join(f"{x:.3g}" for x in told), "|", flush=True)
            for find in ("threshold", "coins"):
                for share in SHARES if shares else ("auto",):
                    plans = {
                        cap: plan_two_phases(k, BUDGET, labels_per_user=cap, find=find, share=share) for cap in CAPS
                    }
                    told = [loss(plans[cap], made[cap], made[cap], k) for cap in CAPS]
                    words = " | ".join(f"{x:.3g}" for x in told)
                    print(f"| {name} | {k} | {find}, {share} | {words} | |", flush=True)


if __name__ == "__main__":
    main("--shares" in sys.argv)
