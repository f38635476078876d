"""How wide error bars are, over the least width that covers as often: `make measure WHAT=widths`.

Each design on the six shapes of utility.py, 95%: the share of releases that are covered ("all at
once") and of rows ("false coverage rate"), and the mean half-width over the oracle's, the 95%
quantile of the largest error of an answer, or of all errors. The first row is the README's own
answer. Ten minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from utility import SHAPES

from dptopk import Budget, Histogram, Plan, Sensitivity, plan_topk
from dptopk.datasets import macbeth

CONFIDENCE, RELEASES, K, BUDGET = 0.95, 1000, 25, Budget(1, 1e-6)
CASES = (
    (1, "truncated Laplace on all counts"),
    (5, "Gaussian noise over a fixed threshold"),
    (20, "box noise over the noisy floor of the top 2k"),
    (20, "centred Gaussian noise over the noisy floor of the top 2k"),
    (None, "Gumbel, then centred Gaussian counts"),
)


def measure(plan: Plan, histogram: Histogram, releases: int) -> list[tuple[float, float]]:
    """For both kinds the coverage, and the mean half-width over the oracle's; nothing where no rows
    are shown.
    """
    truth, rng = (
        dict(zip(histogram.labels.tolist(), histogram.counts.tolist(), strict=True)),
        np.random.default_rng(5),
    )
    largest, errors = [], []
    covered, widths = {"simultaneous": [], "fcr": []}, {"simultaneous": [], "fcr": []}
    for _ in range(releases):
        answer = plan.release(histogram, rng)
        if not len(answer):
            continue
        true = np.array([truth[label] for label in answer.labels])
        apart = np.abs((answer.counts if answer.measured is None else answer.measured) - true)
        largest.append(apart.max())
        errors.extend(apart)
        for kind, times in covered.items():
            table = answer.intervals(confidence=CONFIDENCE, kind=kind)
            inside = ((true >= table["low"]) & (true <= table["high"])).to_numpy()
            times.append(inside.all() if kind == "simultaneous" else inside.mean())
            widths[kind].append(float(((table["high"] - table["low"]) / 2).mean()))
    oracle = {"simultaneous": largest, "fcr": errors}
    return [
        (
            float(np.mean(covered[kind])),
            float(np.mean(widths[kind]) / max(np.quantile(oracle[kind], CONFIDENCE), 0.5)),
        )
        for kind in covered
        if len(largest) > releases / 20
    ]


def rows(releases: int) -> Iterator[str]:
    """The table."""
    yield "| answer | data | all at once: coverage, width | false coverage rate: coverage, width |"
    yield "|---|---|---|---|"
    own = plan_topk(5, BUDGET, sensitivity=Sensitivity(l0=1))
    cells = [("README", "Macbeth", own, macbeth(sensitivity=Sensitivity(l0=1)))]
    for l0, method in CASES:
        plan = plan_topk(K, BUDGET, sensitivity=Sensitivity(l0=l0), method=method)
        for name, counts in SHAPES.items():
            labels = [f"{rank:06d}" for rank in range(len(counts))]
            data = Histogram(labels, counts.astype(int), sensitivity=plan.sensitivity)
            cells.append((f"{method}, Δ = {l0 or 'any'}", name, plan, data))
    for answer, name, plan, data in cells:
        found = measure(plan, data, releases)
        yield (
            f"| {answer} | {name} | "
            + " | ".join(f"{share:.1%}, {width:.2f}" for share, width in found)
            + " |"
        )


if __name__ == "__main__":
    for line in rows(int(sys.argv[1]) if len(sys.argv) > 1 else RELEASES):
        print(line, flush=True)
