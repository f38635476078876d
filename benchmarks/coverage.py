"""How often the intervals of a plan's answer cover, and how wide they are: writes the table of docs/intervals.md.

    python benchmarks/coverage.py --runs 400

The share of runs in which all rows are covered ("simultaneous"), the mean share of rows covered ("fcr"), and, for
comparison, what the law of the noise alone would give row by row ("naive"), whatever selected the rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from dptopk import Budget, Histogram, Sensitivity, plan_topk
from dptopk.datasets import macbeth
from dptopk.intervals import smallest_width

PAGE = Path(__file__).resolve().parents[1] / "docs" / "intervals.md"
START, END = "<!-- coverage: start -->", "<!-- coverage: end -->"
CONFIDENCE = 0.95
RANKS = np.arange(1, 5001)
SHAPES = {
    "Macbeth": None,
    "10⁴/r": (10_000 / RANKS).astype(int),
    "10⁵/r^1.5": (100_000 / RANKS**1.5).astype(int),
    "flat, 60 ± 8": np.random.default_rng(0).poisson(60, 5000),
}
CASES = [(1, "private", "auto"), (5, "private", "auto"), (20, "public", "threshold"), (None, "private", "peel")]


def histogram(shape: str, sensitivity: Sensitivity, domain: str) -> Histogram:
    """The data: a private domain, or the same labels as a public one."""
    counts = SHAPES[shape]
    if counts is None:
        words = macbeth(sensitivity=sensitivity)
        return Histogram(words.labels, words.counts, sensitivity=sensitivity, domain=domain)
    return Histogram([str(rank) for rank in RANKS], counts, sensitivity=sensitivity, domain=domain)


def measure(shape: str, l0: int | None, domain: str, method: str, runs: int) -> dict[str, float] | None:
    """Coverage and half-widths of one plan on one data set."""
    sensitivity = Sensitivity(l0=l0)
    plan = plan_topk(25, Budget(1.0, 1e-6), sensitivity=sensitivity, domain=domain, method=method, counts="gaussian")
    data, rng = histogram(shape, sensitivity, domain), np.random.default_rng(1)
    truth = dict(zip(data.labels.tolist(), data.counts.tolist(), strict=True))
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        release = plan.release(data, rng)
        if not len(release):
            continue
        counts = np.array([truth[label] for label in release.labels])
        values = release.counts if release.measured is None else release.measured
        naive = smallest_width(release.measurement.noise, 1, 1 - CONFIDENCE)
        found.setdefault("rows", []).append(len(release))
        found.setdefault("naive", []).append((np.abs(values - counts) <= naive).mean())
        found.setdefault("± naive", []).append(naive)
        for kind in ("simultaneous", "fcr"):
            table = release.intervals(confidence=CONFIDENCE, kind=kind)
            inside = (counts >= table["low"]) & (counts <= table["high"])
            found.setdefault(kind, []).append(inside.all() if kind == "simultaneous" else inside.mean())
            found.setdefault(f"± {kind}", []).append(((table["high"] - table["low"]) / 2).max())
    return {name: float(np.mean(values)) for name, values in found.items()} or None


def main() -> None:
    """Measure every case and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    lines = [
        "| data | Δ, domain, design | rows | all at once, ± | false coverage rate: rows, ± | noise alone: rows, ± |",
        "|---|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        for l0, domain, method in CASES:
            got = measure(shape, l0, domain, method, runs)
            if got is None:
                continue
            cells = [f"{got[kind]:.1%}, {got[f'± {kind}']:.0f}" for kind in ("simultaneous", "fcr", "naive")]
            case = f"{'any' if l0 is None else l0}, {domain}, {method}"
            lines.append(f"| {shape} | {case} | {got['rows']:.1f} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    PAGE.write_text(before + START + "\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
