"""Utility at equal privacy: recall of the true top k and errors of the counts, with and without the fit of CountMLE.

Run as ``python benchmarks/utility.py [trials]``; prints the tables of docs/utility.md. Seeded, so that it repeats.
"""

from __future__ import annotations

import sys

import numpy as np

from dptopk import Budget, CountMLE, Histogram, Plan, Sensitivity, plan_topk
from dptopk.datasets import macbeth


def zipf(labels: int, largest: int, exponent: float) -> Histogram:
    """A public domain whose count of rank r is largest / r^exponent, rounded."""
    return Histogram(None, np.rint(largest / np.arange(1, labels + 1) ** exponent).astype(int))


DATA = {
    "Macbeth": macbeth(domain="public"),
    "10⁴ / r": zipf(100_000, 10_000, 1.0),
    "10⁵ / r^1.5": zipf(100_000, 100_000, 1.5),
}


def errors(estimates: np.ndarray, truth: np.ndarray) -> list[float]:
    """Mean absolute and root mean square error."""
    return [float(np.abs(estimates - truth).mean()), float(np.sqrt(((estimates - truth) ** 2).mean()))]


def peeled(plan: Plan, histogram: Histogram, rng: np.random.Generator) -> tuple[tuple, list[float]]:
    """Select, then count: labels, and errors of the noisy counts, of their fit, and of a fit to the true order."""
    selection, count_mle = plan.mechanisms
    chosen = selection.release(histogram, rng)
    truth = histogram.counts[histogram.positions(chosen.labels)]
    release = count_mle.release(histogram, rng, ranking=chosen)
    ordered = [chosen.labels[i] for i in np.argsort(-truth, kind="stable")]
    oracle = count_mle.release(histogram, rng, ranking=ordered)  # not private: shows what a true ranking would give
    found = errors(release.measured, truth) + errors(release.counts, truth)
    return chosen.labels, found + errors(oracle.counts, np.sort(truth)[::-1])


def one_shot(plan: Plan, histogram: Histogram, rng: np.random.Generator, k: int) -> tuple[tuple, list[float]]:
    """Noise on all counts, keep the k largest: labels and errors of their noisy counts."""
    (mechanism,) = plan.mechanisms
    release = mechanism.release(histogram, rng)
    labels = release.labels[:k]
    return labels, errors(release.counts[:k], histogram.counts[histogram.positions(labels)])


def row(name: str, k: int, epsilon: float, counts: str, l0: int | None, method: str, trials: int) -> str:
    """One table row: averages over the trials."""
    source = DATA[name]
    sensitivity = Sensitivity(l0=l0)
    histogram = Histogram(source.labels, source.counts, domain="public", sensitivity=sensitivity)
    budget = Budget(epsilon, 1e-6)
    plan = plan_topk(k, budget, sensitivity=sensitivity, domain="public", counts=counts, method=method)
    rng, top = np.random.default_rng(2022), set(histogram.labels[histogram.top_rows(k)].tolist())
    recalls, found = [], []
    for _ in range(trials):
        peel = isinstance(plan.mechanisms[-1], CountMLE)
        labels, error = peeled(plan, histogram, rng) if peel else one_shot(plan, histogram, rng, k)
        recalls.append(len(top.intersection(labels)) / k)
        found.append(error)
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
