"""The default on events beside the best published way to find labels, with spread: writes
docs/notes/domain-default.md.

    make measure WHAT=domain_default ARGS="--text macbeth.txt"

The peer is that of benchmarks/domain.py. Here is what a user gets who chooses nothing:
``Session.from_events(table, user=, item=, budget=).top_k(k)``. The tables are the lines of Macbeth
and those of REPORT in benchmarks/tables.py, to which no default is fitted.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.domain import BUDGET, LARGEST, SHARES, SIZES, WORD, peer_scales
from benchmarks.tables import table
from dptopk import Budget, Session
from dptopk.session.event_reading import read_events

PAGE = Path(__file__).parents[1] / "docs" / "notes" / "domain-default.md"
# The names of rows, and of the tables of REPORT.
TABLES = {
    "plane days": "plane, day",
    "packages": "package, word",
    "synsets": "synset, word",
    "entries": "entry, word",
}
# Tables of more users than this are asked for more, at a tenth of ε, where there is something to miss.
MANY = 50_000
HARDER = Budget(0.1, BUDGET.delta)
MORE = (25, 100, 250)
Missed = dict[str, np.ndarray]

TEXT = """# The default on events, with spread

This note supports the claim of how the default compares with the best published way to find labels. Made by
`make measure WHAT=domain_default ARGS="{arguments}"` at δ = 10⁻⁶, labels unknown, {runs} runs, with the package as of commit
{version}.

A number is the per cent of the true top k's counts that an answer misses: mean ± standard deviation of one answer. *Default* is
`Session.from_events(table, user=, item=, budget=).top_k(k)` with nothing chosen: labels *with* counts and error bars; its median is beside it. *Labels only* is the
same with `counts=None`, which is what the peer (Dick, Joseph and Raman 2026, written anew, see [domain](domain.md)) returns. The best of four shares of the peer's
budget is known to nobody beforehand. A user of more than {largest} labels has {largest} of them at random in each of the peer's runs. No default was fitted to these tables
(`REPORT` in `benchmarks/tables.py`, and the lines of Macbeth, on which results were known while it was made).

| table | users | labels | labels of a user: mean, most |
|---|---|---|---|
{sizes}

| users | ε, k | default, with counts | its median | default, labels only | peer, best of four shares | peer, half for each |
|---|---|---|---|---|---|---|
{table}
"""


@dataclass(frozen=True)
class Events:
    """Distinct pairs of a user and an item, both numbered from 0."""

    pairs: pd.DataFrame

    @cached_property
    def counts(self) -> np.ndarray:
        """The users of each item."""
        return np.bincount(self.pairs["item"])

    @cached_property
    def degrees(self) -> np.ndarray:
        """The items of each user."""
        return np.bincount(self.pairs["user"])

    @cached_property
    def light(self) -> np.ndarray:
        """The sums of weights of the users whose items all take part."""
        user, item = self.pairs["user"].to_numpy(), self.pairs["item"].to_numpy()
        each = self.degrees[user]
        few = each <= LARGEST
        weights = 1 / np.sqrt(each[few])
        return np.bincount(item[few], weights=weights, minlength=len(self.counts))

    @cached_property
    def heavy(self) -> list[np.ndarray]:
        """The items of each of the others."""
        many = self.degrees[self.pairs["user"]] > LARGEST
        groups = self.pairs[many].groupby("user")["item"]
        return [items.to_numpy() for _, items in groups]

    def weights(self, rng: np.random.Generator) -> np.ndarray:
        """The sums of weights, of a user of too many items those of some at random."""
        total = self.light.copy()
        for items in self.heavy:
            total[rng.choice(items, LARGEST, replace=False)] += 1 / np.sqrt(LARGEST)
        return total


def peer(
    events: Events, k: int, share: float, rng: np.random.Generator, budget: Budget
) -> np.ndarray:
    """The items that the peer returns."""
    scales = peer_scales(k, share, budget)
    weights = events.weights(rng)
    there = events.counts > 0
    noisy_weights = weights + rng.normal(scale=scales.sigma, size=weights.size)
    found = np.flatnonzero(there & (noisy_weights > scales.threshold))
    noisy = events.counts[found] + rng.gumbel(scale=1 / scales.each, size=found.size)
    return found[np.argsort(-noisy)[:k]]


def measure(events: Events, k: int, runs: int, budget: Budget) -> Missed:
    """The per cent of the top k's counts that each answer misses, by way."""
    best = np.sort(events.counts)[::-1][:k].sum()
    # What from_events reads, once: it is the same in each run.
    read = read_events(
        events.pairs,
        "auto",
        count_capped=False,
        weights="auto",
        ledger=None,
        dataset=None,
        options={"user": "user", "item": "item"},
    )
    missed: dict[str, list[float]] = {}

    def add(way: str, items: list[int] | np.ndarray) -> None:
        missed.setdefault(way, []).append(100 * (1 - events.counts[items].sum() / best))

    for run in range(runs):
        rng = np.random.default_rng([k, len(events.pairs), run, 1])
        shown = Session(read, budget=budget, rng=rng).top_k(k)
        add("default", np.array(shown.labels, dtype=np.int64))
        alone = Session(read, budget=budget, rng=rng).top_k(k, counts=None)
        add("labels only", np.array(alone.labels, dtype=np.int64))
        for share in SHARES:
            add(f"weighted, {share}", peer(events, k, share, rng, budget))
    return {way: np.array(given) for way, given in missed.items()}


def row(name: str, epsilon: float, k: int, missed: Missed) -> str:
    """A row of the page."""
    peers = [missed[f"weighted, {share}"] for share in SHARES]
    default = missed["default"]
    others = [missed["labels only"], min(peers, key=np.mean), missed["weighted, 0.5"]]
    cells = [_spread(default), f"{np.median(default):.2f}", *map(_spread, others)]
    return f"| {name} | {epsilon:g}, {k} | {' | '.join(cells)} |"


def _spread(one: np.ndarray) -> str:
    return f"{one.mean():.2f} ± {one.std(ddof=1):.2f}"


def all_events(text: Path) -> Iterator[tuple[str, Events]]:
    """The tables by name, each made when it is its turn."""
    lines = text.read_text(encoding="utf-8").lower().splitlines()
    words = [(user, sorted(set(WORD.findall(line)))) for user, line in enumerate(lines)]
    rows = [(user, word) for user, found in words for word in found]
    frame = pd.DataFrame(rows, columns=["user", "item"])
    coded = {column: pd.factorize(frame[column])[0] for column in frame}
    yield "lines", Events(pd.DataFrame(coded))
    for name, place in TABLES.items():
        yield name, Events(table(place))


def size(name: str, events: Events) -> str:
    """How large a table is, as a row of the page."""
    degrees = events.degrees
    return f"| {name} | {degrees.size} | {events.counts.size} | {degrees.mean():.1f}, {degrees.max()} |"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    sizes: list[str] = []
    rows: list[str] = []
    for name, events in all_events(given.text):
        sizes.append(size(name, events))
        few = events.degrees.size <= MANY
        budget = BUDGET if few else HARDER
        for k in SIZES if few else MORE:
            missed = measure(events, k, given.runs, budget)
            rows.append(row(name, budget.epsilon, k, missed))
            print(rows[-1], flush=True)
    described = subprocess.run(
        ["git", "log", "-1", "--format=%h of %cs", "--", "dptopk"],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    page = TEXT.format(
        arguments=f"--text {given.text.name}",
        runs=given.runs,
        version=described.stdout.strip(),
        largest=LARGEST,
        sizes="\n".join(sizes),
        table="\n".join(rows),
    )
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
