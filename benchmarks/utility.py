"""Utility at equal privacy: recall of the true top k and errors of the counts, with and without the fit of CountMLE.

Run as ``python benchmarks/utility.py [trials]``; prints the tables of docs/utility.md. Seeded, so that it repeats.
"""

from __future__ import annotations

import sys

import numpy as np

from dptopk import Budget, Sensitivity, plan_topk
from dptopk.experiments.utility import DATA, attempt, data, recall


def row(name: str, k: int, epsilon: float, counts: str, l0: int | None, method: str, trials: int) -> str:
    """One table row: averages over the trials."""
    histogram, budget = data(name, "public", l0), Budget(epsilon, 1e-6)
    plan = plan_topk(
        k,
        budget,
        sensitivity=Sensitivity(l0=l0),
        domain="public",
        counts=counts,
        method=method,
        fit=method == "peel",
        max_seconds=60.0,  # the same plan on a busy machine
    )
    rng = np.random.default_rng(2022)
    recalls, found = [], []
    for _ in range(trials):
        labels, errors = attempt(plan.mechanisms, histogram, k, rng)
        recalls.append(recall(labels, histogram, k))
        found.append([value for pair in errors.values() for value in pair])
    cells = [f"{value:.1f}" for value in np.mean(found, axis=0)]
    cells = [*cells, *["-"] * (6 - len(cells))]
    way = {"peel": "select, count", "threshold": "count all"}[method]
    return f"| {name} | {k} | {epsilon} | {way} | {counts} | {np.mean(recalls):.2f} | {' | '.join(cells)} |"


def main(trials: int) -> None:
    """Print both tables."""
    header = (
        "| counts | k | ε | way | noise | recall | plain l1 | plain l2 | CountMLE l1 | CountMLE l2 "
        "| true order l1 | true order l2 |\n" + "|---" * 12 + "|"
    )
    print(f"One user may touch any number of labels.\n\n{header}")
    for name in DATA:
        for k, epsilon in [(25, 0.5), (25, 1.0), (100, 1.0), (100, 4.0)]:
            for counts in ("gaussian", "laplace"):
                print(row(name, k, epsilon, counts, None, "peel", trials), flush=True)
    print(f"\nOne user touches at most 5 labels.\n\n{header}")
    for name in DATA:
        for method in ("peel", "threshold"):
            for counts in ("gaussian", "laplace"):
                print(row(name, 25, 0.5, counts, 5, method, trials // 2 or 1), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
