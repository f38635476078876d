"""Which designs of plan_topk are ever the best, on counts of real tables?

    python -m benchmarks.earns_its_place [CELLS]    # prints a table; by default of all 648 cells

A cell is a table, a k, an l0, a domain with its δ, an ε, and counts shown or labels alone. In each,
plan_topk predicts the loss of every design that fits on the true counts (``like=``); a design
earns its place where it is the best and the best other one loses 3% more. Cells come in an order
that a seed shuffles; CELLS of them are looked at.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections import Counter
from collections.abc import Mapping

from dptopk import Budget, Sensitivity, plan_topk
from dptopk.planning.designs import DESIGNS

from .tables import table

TABLES = ("character, word", "package, tag", "header, include")
DOMAINS = (("private", 1e-6), ("public", 1e-6), ("public", 0.0))
K = (1, 5, 25, 100)
L0 = (1, 5, None)
EPSILONS = (0.1, 1.0, 10.0)
COUNTS = ("auto", None)
LEAST_GAIN = 1.03
LEAST_LOSS = 1e-3  # smaller losses are those of an exact answer and count as equal


def winner(losses: Mapping[str, float]) -> tuple[str, float]:
    """Return the design with the least loss, and the factor by which the best other one is worse.

    A design that is alone wins by an infinite factor.
    """
    floored = {name: max(loss, LEAST_LOSS) for name, loss in losses.items()}
    best = min(floored, key=lambda name: floored[name])
    others = [loss for name, loss in floored.items() if name != best]
    return best, min(others, default=math.inf) / floored[best]


def main(number: int | None) -> None:
    """Print a row for each design: cells where it fits, where it wins by 3%, its largest factor."""
    shapes = {
        name: sorted(table(name)["item"].value_counts().tolist(), reverse=True) for name in TABLES
    }
    cells = list(itertools.product(TABLES, DOMAINS, K, L0, EPSILONS, COUNTS))
    random.Random(45).shuffle(cells)
    fits: Counter[str] = Counter()
    wins: Counter[str] = Counter()
    largest: dict[str, tuple[float, str]] = {}
    looked_at = cells[:number]
    for name, (domain, delta), k, l0, epsilon, counts in looked_at:
        plan = plan_topk(
            k,
            Budget(epsilon, delta),
            sensitivity=Sensitivity(l0=l0),
            domain=domain,
            counts=counts,
            like=shapes[name],
        )
        found = plan.alternatives
        losses = dict(zip(found["design"], found["merit"], strict=True))
        best, factor = winner(losses)
        fits.update(losses.keys())
        wins[best] += factor >= LEAST_GAIN
        shown = "labels" if counts is None else f"counts, loss {losses[best]:.3g}"
        where = f"{name}; {domain}, δ = {delta:g}, ε = {epsilon:g}, k = {k}, l0 = {l0}, {shown}"
        largest[best] = max(largest.get(best, (1.0, "")), (factor, where))
    print(f"{len(looked_at)} of {len(cells)} cells.\n")
    print(
        "| design | cells where it fits | best by 3% | largest factor | in |\n|---|---|---|---|---|"
    )
    names = dict.fromkeys(design.name for design in DESIGNS)
    for design in sorted(names, key=lambda one: (-wins[one], -fits[one], one)):
        factor, where = largest.get(design, (1.0, ""))
        print(f"| {design} | {fits[design]} | {wins[design]} | {factor:.2f} | {where} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
